//! Events, errors and statistics of sessions.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::super::persistence::{Lifecycle, Revision};
use super::super::state::State;
use super::super::timestamp::Timestamp;

/// An event for [subscribers](super::AgentSession::subscribe) of a session.
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionEvent<M, E> {
    /// The display messages of a message are stored.
    Displayed {
        /// The id that [`add_message`](super::AgentSession::add_message) returned.
        message_id: Uuid,
        /// The display messages, in order.
        items: Vec<M>,
    },
    /// The agent state is stored.
    Saved {
        /// The new revision.
        revision: Revision,
        /// Why it was saved.
        lifecycle: Lifecycle,
    },
    /// A call of the storage failed.
    Failed {
        /// The message that was not stored, if it was one.
        message_id: Option<Uuid>,
        /// The error of the call.
        error: SessionError<E>,
        /// The time until the retry, which is earlier if another session stores something before;
        /// `None` if the failure is permanent.
        retry_in: Option<Duration>,
    },
    /// A state that another process saved replaced that of the session.
    Reloaded {
        /// The revision of the loaded state.
        revision: Revision,
        /// The replaced state, if it had unsaved changes.
        unsaved: Option<Arc<State>>,
    },
    /// The session ended. It is the last event.
    Ended {
        /// The agent state, if it has unsaved changes.
        unsaved: Option<Arc<State>>,
    },
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastError {
    /// The conversation of the session that failed.
    pub conversation_id: Uuid,
    /// The time of the failure.
    pub at: Timestamp,
    /// The message of the error, and those of its sources.
    pub error: String,
}
