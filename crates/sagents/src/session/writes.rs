//! The writes of a session beside the agent state, in order.

use std::collections::VecDeque;
use std::mem::discriminant;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::backoff::Backoff;
use super::rewinds::RewoundState;
use super::{Result, SessionError, UnsavedMessage};
use crate::{
    BeginRun, Claim, Decided, Delivery, DisplayMessage, Message, Point, RunSignal, RunStatus, SignedDecision,
    StoredCall, ToolResult, ToolStatus,
};

/// Something to be stored beside the agent state.
pub(super) enum PendingWrite {
    /// The display messages of a message. One that was sent is displayed after it's saved.
    Message {
        id: Uuid,
        message: Arc<Message>,
        is_sent: bool,
    },
    Draft {
        id: Uuid,
        message: Arc<Message>,
    },
    Settle(Vec<(Uuid, Delivery)>),
    Tool {
        tool_call_id: String,
        status: ToolStatus,
        metadata: Map<String, Value>,
    },
    /// The call of a result ends, unless it has ended. A placeholder becomes the result.
    Finish {
        result: ToolResult,
        status: ToolStatus,
        has_placeholder: bool,
    },
    Claim {
        tool_call_id: String,
        claim: Uuid,
    },
    Decide {
        tool_call_id: String,
        decision: SignedDecision,
        claim: Uuid,
    },
    /// Cancels a call that nobody has started.
    CancelUnstarted {
        tool_call_id: String,
        only_undecided: bool,
    },
    /// Ends a call that an earlier run left executing, if the run goes on.
    Seal {
        tool_call_id: String,
        run_id: Uuid,
        /// Before that, a call that was running is pending again.
        reopens: bool,
    },
    BeginRun(Uuid),
    RenewRun(Uuid),
    /// `begins` if this process has no run yet.
    WaitRun {
        run_id: Uuid,
        begins: bool,
        data: Value,
    },
    EndRun(Uuid, RunStatus),
    /// With the run of this process, unless its agent was asked to stop before.
    RequestCancel(Option<Uuid>),
    Rewind(Point),
    Title(String),
    Interrupted(bool),
}

impl PendingWrite {
    pub fn message_id(&self) -> Option<Uuid> {
        match self {
            Self::Message { id, .. } => Some(*id),
            _ => None,
        }
    }

    /// The call that it's about. An error may then be about the call, and not the conversation.
    pub fn tool_call_id(&self) -> Option<&str> {
        match self {
            Self::Finish { result, .. } => Some(&result.tool_call_id),
            Self::Tool { tool_call_id, .. }
            | Self::Claim { tool_call_id, .. }
            | Self::Decide { tool_call_id, .. }
            | Self::Seal { tool_call_id, .. }
            | Self::CancelUnstarted { tool_call_id, .. } => Some(tool_call_id),
            _ => None,
        }
    }

    /// For logs, if it fails.
    pub fn failure(&self) -> &'static str {
        match self {
            Self::Message { .. } => "a display message was not stored",
            Self::Draft { .. } => "a draft was not stored",
            Self::Settle(_) => "the delivery of display messages was not stored",
            Self::Tool { .. } | Self::Finish { .. } | Self::CancelUnstarted { .. } | Self::Seal { .. } => {
                "the status of a tool call was not stored"
            }
            Self::Claim { .. } => "a tool call was not claimed",
            Self::Decide { .. } => "a decision was not stored",
            Self::BeginRun(_)
            | Self::RenewRun(_)
            | Self::WaitRun { .. }
            | Self::EndRun(..)
            | Self::RequestCancel(_) => "the state of the run was not stored",
            Self::Rewind(_) => "the conversation was not rewound",
            Self::Title(_) => "the title was not stored",
            Self::Interrupted(_) => "the interrupted flag was not stored",
        }
    }

    fn is_sent(&self) -> bool {
        matches!(self, Self::Message { is_sent: true, .. })
    }

    /// Whether something is missing if it fails permanently. A caller who waits for it gets the error instead.
    fn is_content(&self) -> bool {
        matches!(self, Self::Message { .. } | Self::Title(_) | Self::Interrupted(_))
    }

    /// Whether an earlier write doesn't matter any more.
    fn replaces(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            (Self::Message { id, .. }, Self::Message { id: other, .. }) => id == other,
            _ => discriminant(self) == discriminant(earlier),
        }
    }
}

/// The result of a write.
pub(super) enum Written {
    Nothing,
    Items(Vec<DisplayMessage>),
    Claim(Claim<DisplayMessage>),
    Decided(Decided<DisplayMessage>),
    /// The call, and whether it's cancelled.
    Cancelled(Option<(DisplayMessage, bool)>),
    Sealed(Option<StoredCall>),
    Run(BeginRun),
    Signal(RunSignal),
    IsRunning(bool),
    Rewound(RewoundState),
}

impl Written {
    /// The display messages of a tool call that changed.
    pub fn call_items(&self) -> Vec<DisplayMessage> {
        match self {
            Self::Items(items) => items.clone(),
            Self::Claim(Claim::Claimed(item))
            | Self::Decided(Decided::Claimed(item))
            | Self::Cancelled(Some((item, true))) => vec![item.clone()],
            _ => Vec::new(),
        }
    }
}

/// Where a caller of a session waits for the result.
pub(super) type Reply<T> = oneshot::Sender<Result<T>>;

struct Queued {
    write: Arc<PendingWrite>,
    reply: Option<Reply<Written>>,
}

/// What's left to write, in order.
pub(super) struct Writes {
    queue: VecDeque<Queued>,
    /// How many are done.
    pub written: u64,
    pub backoff: Backoff,
    /// Content that failed permanently, and that no later write replaced.
    refused: Vec<(Arc<PendingWrite>, SessionError)>,
}

impl Writes {
    pub fn new() -> Self {
        Self { queue: VecDeque::new(), written: 0, backoff: Backoff::default(), refused: Vec::new() }
    }

    pub fn push(&mut self, write: PendingWrite, reply: Option<Reply<Written>>) {
        let write = Arc::new(write);
        self.queue.push_back(Queued { write, reply });
    }

    pub fn extend(&mut self, writes: impl IntoIterator<Item = PendingWrite>) {
        for write in writes {
            self.push(write, None);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn any(&self, is_it: impl Fn(&PendingWrite) -> bool) -> bool {
        self.queue.iter().any(|queued| is_it(&queued.write))
    }

    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// The first permanent failure.
    pub fn refused_by(&self) -> Option<&SessionError> {
        self.refused.first().map(|(_, error)| error)
    }

    pub fn first(&self) -> Option<&Arc<PendingWrite>> {
        self.queue.front().map(|queued| &queued.write)
    }

    /// Whether this is the first one.
    pub fn is_first(&self, write: &PendingWrite) -> bool {
        let first = self.queue.front();
        first.is_some_and(|first| std::ptr::eq(Arc::as_ptr(&first.write), write))
    }

    /// The number of writes so far, done or not.
    pub fn queued(&self) -> u64 {
        self.written + self.queue.len() as u64
    }

    /// The number of writes before the first for which `waits`.
    pub fn before(&self, waits: impl Fn(&PendingWrite) -> bool) -> u64 {
        let before = self.queue.iter().take_while(|queued| !waits(&queued.write));
        self.written + before.count() as u64
    }

    /// The messages to be displayed.
    pub fn message_ids(&self) -> Vec<Uuid> {
        let writes = self.queue.iter();
        writes.filter_map(|queued| queued.write.message_id()).collect()
    }

    /// The first write is done, and its caller gets the reply.
    pub fn succeeded(&mut self) -> Option<Reply<Written>> {
        let queued = self.finish()?;
        self.refused.retain(|(earlier, _)| !queued.write.replaces(earlier));
        queued.reply
    }

    /// The first write fails permanently. It's put aside, so that those behind it are stored.
    pub fn refused(&mut self, error: &SessionError) {
        let Some(queued) = self.finish() else {
            return;
        };
        if queued.write.is_content() && queued.reply.is_none() {
            self.refused.retain(|(earlier, _)| !queued.write.replaces(earlier));
            self.refused.push((queued.write, error.clone()));
        }
        reply(queued.reply, Err(error.clone()));
    }

    fn finish(&mut self) -> Option<Queued> {
        self.backoff.reset();
        let queued = self.queue.pop_front()?;
        self.written += 1;
        Some(queued)
    }

    /// The first write failed and will be repeated, without its caller if it's a message.
    pub fn delayed(&mut self, error: &SessionError) {
        let first = self.queue.front_mut();
        if let Some(first) = first.filter(|first| first.write.message_id().is_some()) {
            reply(first.reply.take(), Err(error.clone()));
        }
    }

    /// A save that messages wait for failed, and will be repeated without their callers.
    pub fn save_delayed(&mut self, error: &SessionError) {
        for queued in &mut self.queue {
            if queued.write.is_sent() {
                reply(queued.reply.take(), Err(error.clone()));
            }
        }
    }

    /// Removes the writes for which `is_refused`, and replies to their callers. Returns the messages among them.
    pub fn refuse(&mut self, error: &SessionError, is_refused: impl Fn(&PendingWrite) -> bool) -> Vec<Uuid> {
        let mut ids = Vec::new();
        for queued in std::mem::take(&mut self.queue) {
            if is_refused(&queued.write) {
                ids.extend(queued.write.message_id());
                // Nobody waits for it any more.
                self.written += 1;
                reply(queued.reply, Err(error.clone()));
            } else {
                self.queue.push_back(queued);
            }
        }
        ids
    }

    /// Nothing has to be written any more.
    pub fn clear(&mut self, error: &SessionError) {
        drop(self.refuse(error, |_| true));
        self.refused.clear();
    }

    /// The messages whose display messages aren't stored.
    pub fn unsaved_messages(&self) -> Vec<UnsavedMessage> {
        let refused = self.refused.iter().map(|(write, error)| (write, Some(error)));
        let writes = self.queue.iter().map(|queued| (&queued.write, None));
        let messages = refused.chain(writes).filter_map(|(write, error)| match &**write {
            PendingWrite::Message { id, message, .. } => {
                Some(UnsavedMessage { message_id: *id, message: (**message).clone(), error: error.cloned() })
            }
            _ => None,
        });
        messages.collect()
    }
}

/// A caller who stopped waiting misses the reply.
pub(super) fn reply<T>(reply: Option<Reply<T>>, result: Result<T>) {
    if let Some(reply) = reply {
        drop(reply.send(result));
    }
}
