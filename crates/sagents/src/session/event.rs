//! Events, errors and statistics of sessions.

use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    Cut, DisplayMessage, Error, Lifecycle, Message, Revision, RunStatus, State, Timestamp, Todo, display_items,
};

/// An event for [subscribers](super::AgentSession::subscribe) of a session.
///
/// As JSON it's an object with a `type`, for example `{"type": "title", "title": "Plans"}`. The JSON has the message of an
/// error, not its details, and whether there's an unsaved state, not the state.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionEvent {
    /// The model writes a message. Its display messages get the same id later.
    Draft {
        /// The id of the message.
        message_id: Uuid,
        /// The message so far. As JSON it's its [display items](display_items).
        #[serde(rename = "items", serialize_with = "as_items")]
        message: Arc<Message>,
    },
    /// The display messages of a message are stored.
    Displayed {
        /// The id of the message.
        message_id: Uuid,
        /// The display messages, in order.
        items: Vec<DisplayMessage>,
    },
    /// Display messages won't be finished, or the agent never received them.
    Changed {
        /// The display messages as they are now.
        items: Vec<DisplayMessage>,
    },
    /// The status of a tool call has changed, or a result has replaced its placeholder.
    ToolCall {
        /// The id of the call.
        tool_call_id: String,
        /// The display messages as they are now: of the call, of the result, or of both.
        items: Vec<DisplayMessage>,
    },
    /// The todos of the agent have changed.
    Todos {
        /// All of them.
        todos: Vec<Todo>,
    },
    /// The conversation has a title.
    Title {
        /// The title.
        title: String,
    },
    /// The run began, waits, ended, or has to stop.
    Run {
        /// The id of the run.
        run_id: Uuid,
        /// What happened.
        change: RunChange,
    },
    /// The agent state is stored.
    Saved {
        /// The new revision.
        revision: Revision,
        /// Why it was saved.
        lifecycle: Lifecycle,
    },
    /// Another process saved the agent state.
    Conflict {
        /// The stored revision.
        current: Revision,
    },
    /// A call of the storage failed.
    Failed {
        /// The message that wasn't stored, if it was one.
        message_id: Option<Uuid>,
        /// The error of the call.
        #[serde(serialize_with = "as_message")]
        error: SessionError,
        /// The time until the retry, or `None` if the failure is permanent. The retry comes earlier if another session
        /// can store something.
        #[serde(rename = "retry_in_ms", serialize_with = "as_milliseconds")]
        retry_in: Option<Duration>,
    },
    /// The session replaced its state with one that another process saved. Messages that were added and not saved are
    /// appended to it.
    Reloaded {
        /// The revision of the loaded state.
        revision: Revision,
        /// The replaced state, if it had other unsaved changes.
        #[serde(serialize_with = "as_whether")]
        unsaved: Option<Arc<State>>,
    },
    /// The conversation was [rewound](super::AgentSession::rewind): messages after the cut are deleted.
    Rewound {
        /// Where it was cut.
        cut: Cut,
    },
    /// The session ended. It's the last event.
    Ended {
        /// The agent state, if it has unsaved changes.
        #[serde(serialize_with = "as_whether")]
        unsaved: Option<Arc<State>>,
        /// Whether the conversation was deleted.
        deleted: bool,
    },
    /// Your own event; see [`emit`](super::AgentSession::emit).
    Application {
        /// The data of the event.
        data: Value,
    },
}

/// What happened to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunChange {
    /// It began.
    Started,
    /// It waits for a person.
    Waiting,
    /// Somebody wants it to stop.
    CancelRequested,
    /// Another process has taken it over, or it has ended there.
    Lost,
    /// It ended.
    Finished,
    /// It ended with an error.
    Failed,
    /// It was stopped.
    Cancelled,
}

impl From<RunStatus> for RunChange {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Running => Self::Started,
            RunStatus::Waiting => Self::Waiting,
            RunStatus::Finished => Self::Finished,
            RunStatus::Failed => Self::Failed,
            RunStatus::Cancelled => Self::Cancelled,
        }
    }
}

fn as_items<S: Serializer>(message: &Message, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(display_items(message))
}

fn as_message<S: Serializer>(error: &SessionError, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match error {
        SessionError::Storage(_) => "the storage failed",
        SessionError::TimedOut => "the storage did not reply in time",
        SessionError::Conflict { .. } => "another process saved the agent state",
        SessionError::Ended => "the session has ended",
        SessionError::Undecided { .. } => "tool calls are undecided",
        SessionError::StateOnly => "only agent states are stored",
    })
}

#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
fn as_milliseconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_millis()).serialize(serializer)
}

#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
fn as_whether<S: Serializer>(state: &Option<Arc<State>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(state.is_some())
}

/// The error of a call on a session.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The storage returned an error.
    #[error(transparent)]
    Storage(Arc<Error>),
    /// The storage took longer than [`call_timeout`](super::SessionOptions::call_timeout), or no session could save for
    /// this long.
    #[error("the storage did not reply in time")]
    TimedOut,
    /// Another process saved the agent state.
    #[error("the agent state was saved by another process as revision {}", current.0)]
    Conflict {
        /// The stored revision.
        current: Revision,
    },
    /// The session ended. The coordinator can start another one.
    #[error("the session has ended")]
    Ended,
    /// The run can't complete, because tool calls have an interrupt in place of a result. The run has to
    /// [wait](super::AgentSession::wait_run), or the calls need [results](super::AgentSession::add_tool_result).
    #[error("tool calls are undecided: {}", tool_call_ids.join(", "))]
    Undecided {
        /// The ids of the calls.
        tool_call_ids: Vec<String>,
    },
    /// The call needs display messages, tool calls or stored runs, and the sessions run on a
    /// [persistence](super::Coordinator::with_persistence) that has none.
    #[error("the persistence of this session stores agent states only")]
    StateOnly,
}

impl From<Error> for SessionError {
    fn from(error: Error) -> Self {
        Self::Storage(Arc::new(error))
    }
}

/// Statistics of all sessions of a coordinator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Running sessions.
    pub sessions: usize,
    /// Running sessions with something that isn't stored, refused messages included.
    pub unsaved: usize,
    /// Agent states that were stored so far.
    pub saves: u64,
    /// Messages whose display messages were stored so far.
    pub messages: u64,
    /// Messages whose display messages failed permanently so far.
    pub refused_messages: u64,
    /// Calls of the storage that failed so far, conflicts included.
    pub failures: u64,
    /// Saves that met a conflict so far.
    pub conflicts: u64,
    /// The most recent failure.
    pub last_error: Option<LastError>,
}

/// The most recent failure, for a status page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastError {
    /// The conversation of the session that failed.
    pub conversation_id: Uuid,
    /// The time of the failure.
    pub at: Timestamp,
    /// The messages of the error and of its sources.
    pub error: String,
}
