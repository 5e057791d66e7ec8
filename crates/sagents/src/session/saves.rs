//! Saves of the agent state, and the callers who wait for them.

use std::sync::Arc;

use uuid::Uuid;

use super::writes::{Reply, reply};
use super::{Result, SessionError};
use crate::{Expect, Lifecycle, Revision, State};

/// A snapshot of the agent state to be stored.
#[derive(Clone)]
pub(super) struct Save {
    pub state: Arc<State>,
    pub expect: Expect,
    pub lifecycle: Lifecycle,
    pub write_id: Uuid,
    /// How many changes it contains, and how many writes have to be made before it.
    pub changes: u64,
    pub writes: u64,
}

/// The callers who wait until everything is stored that existed at the time of their call.
pub(super) struct Saves(Vec<Waiting>);

struct Waiting {
    changes: u64,
    writes: u64,
    reply: Reply<Revision>,
}

impl Saves {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    pub fn push(&mut self, changes: u64, writes: u64, reply: Reply<Revision>) {
        self.0.push(Waiting { changes, writes, reply });
    }

    /// Whether a caller waits for more changes to be saved.
    pub fn is_waiting(&self, saved: u64) -> bool {
        self.0.iter().any(|waiting| waiting.changes > saved)
    }

    pub fn fail(&mut self, error: &SessionError) {
        self.resolve(|_, _| Some(Err(error.clone())));
    }

    /// Replies to those who wait for more changes.
    pub fn fail_after(&mut self, saved: u64, error: &SessionError) {
        self.resolve(|changes, _| (changes > saved).then(|| Err(error.clone())));
    }

    /// Replies to the callers for whose changes and writes there's a result. The others keep waiting.
    pub fn resolve(&mut self, result: impl Fn(u64, u64) -> Option<Result<Revision>>) {
        for waiting in std::mem::take(&mut self.0) {
            match result(waiting.changes, waiting.writes) {
                Some(result) => reply(Some(waiting.reply), result),
                None => self.0.push(waiting),
            }
        }
    }
}
