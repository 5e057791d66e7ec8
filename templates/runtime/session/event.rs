//! Events, errors and statistics of sessions.

use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::Value;
use uuid::Uuid;

use super::super::branch::Cut;
use super::super::display::display_items;
use super::super::message::Message;
use super::super::persistence::{Lifecycle, Revision};
use super::super::run::RunStatus;
use super::super::state::State;
use super::super::timestamp::{self, Timestamp};
use super::super::todo::Todo;

/// An event for [subscribers](super::AgentSession::subscribe) of a session.
///
/// As JSON it is an object with a `type`, for example `{"type": "title", "title": "Plans"}`. It has
/// the message of an error and not its details, and only says whether there is an unsaved state.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[serde(bound = "M: Serialize")]
#[non_exhaustive]
pub enum SessionEvent<M, E> {
    /// The model writes a message. What is displayed of it later has the same id.
    Partial {
        /// The id of the message.
        message_id: Uuid,
        /// The message so far. As JSON it is its [display items](display_items).
        #[serde(rename = "items", serialize_with = "as_items")]
        message: Arc<Message>,
    },
    /// The display messages of a message are stored.
    Displayed {
        /// The id of the message.
        message_id: Uuid,
        /// The display messages, in order.
        items: Vec<M>,
    },
    /// Display messages have changed: they will not be finished, or the agent never received them.
    Changed {
        /// The display messages as they are now.
        items: Vec<M>,
    },
    /// The status of a tool call has changed, or a result has replaced its placeholder.
    ToolCall {
        /// The id of the call.
        call_id: String,
        /// The display messages as they are now: of the call, of the result, or of both.
        items: Vec<M>,
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
    /// The run of the agent began, ended, or has to stop.
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
        /// The message that was not stored, if it was one.
        message_id: Option<Uuid>,
        /// The error of the call.
        #[serde(serialize_with = "as_message")]
        error: SessionError<E>,
        /// The time until the retry, which is earlier if another session stores something before;
        /// `None` if the failure is permanent.
        #[serde(rename = "retry_in_ms", serialize_with = "as_milliseconds")]
        retry_in: Option<Duration>,
    },
    /// A state that another process saved replaced that of the session. Messages that were added and
    /// not saved are appended to it.
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
    /// The session ended. It is the last event.
    Ended {
        /// The agent state, if it has unsaved changes.
        #[serde(serialize_with = "as_whether")]
        unsaved: Option<Arc<State>>,
        /// Whether the conversation was deleted.
        deleted: bool,
    },
    /// An event of the application's own; see [`emit`](super::AgentSession::emit).
    Application {
        /// What the application gave.
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
    /// It is not that of this process any more.
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

fn as_message<S: Serializer, E>(error: &SessionError<E>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match error {
        SessionError::Storage(_) => "the storage failed",
        SessionError::TimedOut => "the storage did not reply in time",
        SessionError::Conflict { .. } => "another process saved the agent state",
        SessionError::Ended => "the session has ended",
    })
}

#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
fn as_milliseconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_millis()).serialize(serializer)
}

#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
fn as_whether<S: Serializer>(state: &Option<Arc<State>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(state.is_some())
}

/// The error of a call on a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError<E> {
    /// The storage returned an error.
    #[error(transparent)]
    Storage(Arc<E>),
    /// The storage took longer than [`call_timeout`](super::SessionOptions::call_timeout), or no
    /// session could save for this long.
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
}

impl<E> Clone for SessionError<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Storage(error) => Self::Storage(Arc::clone(error)),
            Self::TimedOut => Self::TimedOut,
            Self::Conflict { current } => Self::Conflict { current: *current },
            Self::Ended => Self::Ended,
        }
    }
}

impl<E> From<E> for SessionError<E> {
    fn from(error: E) -> Self {
        Self::Storage(Arc::new(error))
    }
}

/// Statistics of all sessions of a coordinator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Running sessions.
    pub sessions: usize,
    /// Running sessions with something that is not stored, refused messages included.
    pub unsaved: usize,
    /// Agent states that were stored so far.
    pub saves: u64,
    /// Messages whose display messages were stored so far.
    pub messages: u64,
    /// Messages whose display messages could not be stored so far, with a permanent failure.
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
    #[serde(with = "timestamp")]
    pub at: Timestamp,
    /// The message of the error, and those of its sources.
    pub error: String,
}
