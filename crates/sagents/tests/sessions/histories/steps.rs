//! What happens in a history.

use std::time::Duration;

use proptest::prelude::*;

use crate::storage::Fault;

/// A step of a history.
#[derive(Debug, Clone)]
pub enum Step {
    /// A message is added, with a number that is never used again.
    Said,
    /// As `Said`, and it is displayed.
    Displayed,
    /// As `Displayed`, and the application waits until it is stored.
    Sent,
    /// Partial text is displayed, and perhaps the whole message.
    Streamed(bool),
    /// The model calls a tool. The steps after it are about the last call.
    Called,
    Claimed,
    Asked,
    Decided(bool),
    Resulted,
    CancelledInterrupts,
    /// A run begins, or ends.
    Begun,
    Stopped,
    Completed,
    Interrupted,
    Titled,
    /// The application calls `save` and awaits it.
    Saved,
    Reloaded,
    /// `save` and `reload` at the same time.
    Raced,
    /// Time passes.
    Passed(Duration),
    /// Other tasks run, and no time passes.
    Yielded(usize),
    /// The next calls to the database fail.
    Failing(Vec<Option<Fault>>),
    /// Another process saves the state.
    Overtaken,
    /// What is behind a message is taken back.
    Rewound(usize),
    /// The conversation is forked at a message.
    Forked(usize),
    /// The last handle is dropped, and the session started again.
    Dropped,
    /// The session is shut down, and started again.
    Restarted,
    /// The process crashes, and another one continues.
    Crashed,
}

pub fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    let fault =
        prop_oneof![Just(None), Just(Some(Fault::Before)), Just(Some(Fault::After)), Just(Some(Fault::Silence)),];
    prop_oneof![
        8 => Just(Said),
        4 => Just(Displayed),
        4 => Just(Sent),
        2 => any::<bool>().prop_map(Streamed),
        4 => Just(Called),
        2 => Just(Claimed),
        3 => Just(Asked),
        4 => any::<bool>().prop_map(Decided),
        2 => Just(Resulted),
        1 => Just(CancelledInterrupts),
        2 => Just(Begun),
        1 => Just(Stopped),
        2 => Just(Completed),
        1 => Just(Interrupted),
        1 => Just(Titled),
        3 => Just(Saved),
        1 => Just(Reloaded),
        1 => Just(Raced),
        3 => (0_u64..50_000).prop_map(|ms| Passed(Duration::from_millis(ms))),
        3 => (1_usize..20).prop_map(Yielded),
        3 => proptest::collection::vec(fault, 1..6).prop_map(Failing),
        1 => Just(Overtaken),
        1 => any::<usize>().prop_map(Rewound),
        1 => any::<usize>().prop_map(Forked),
        1 => Just(Dropped),
        1 => Just(Restarted),
        2 => Just(Crashed),
    ]
}
