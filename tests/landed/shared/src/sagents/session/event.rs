//! What sessions tell.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::super::persistence::{Lifecycle, Revision};
use super::super::state::State;

/// What happened in a session, for whoever [subscribed](super::AgentSession::subscribe).
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionEvent<M, E> {
    /// What a message shows is stored.
    Displayed {
        /// The message.
        message_id: Uuid,
        /// What it shows, in its order.
        items: Vec<M>,
    },
    /// The state is stored.
    Saved {
        /// Which save it was.
        revision: Revision,
        /// Why it was stored.
        lifecycle: Lifecycle,
    },
    /// Something could not be stored, or not be loaded.
    Failed {
        /// The message that could not be stored, if it was one.
        message_id: Option<Uuid>,
        /// Why.
        error: SessionError<E>,
        /// When it is tried again. Nothing if trying again would not help.
        retry_in: Option<Duration>,
    },
    /// What somebody else saved has taken the place of the session's state.
    Reloaded {
        /// Which save it was.
        revision: Revision,
        /// What it replaced, if that was never stored.
        unsaved: Option<Arc<State>>,
    },
    /// The session has ended.
    Ended {
        /// What could not be stored before, or was not to be.
        unsaved: Option<Arc<State>>,
    },
}

/// Why a call on a session did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError<E> {
    /// The storage refused or failed.
    #[error(transparent)]
    Storage(Arc<E>),
    /// The storage did not answer in time.
    #[error("the storage did not answer in time")]
    TimedOut,
    /// Somebody else saved the state of the conversation meanwhile.
    #[error("the agent's state was saved by somebody else meanwhile, as revision {}", current.0)]
    Conflict {
        /// What is there now.
        current: Revision,
    },
    /// The session has ended. The coordinator starts another one.
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

/// What the sessions of a coordinator have done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// The sessions that are running.
    pub sessions: usize,
    /// Those of them with something that is not stored yet.
    pub unsaved: usize,
    /// The states that were stored.
    pub saves: u64,
    /// The messages whose display items were stored.
    pub messages: u64,
    /// The calls to the storage that failed.
    pub failures: u64,
    /// How often somebody else had saved the state.
    pub conflicts: u64,
    /// The failure that was last.
    pub last_error: Option<LastError>,
}

/// A failure, for a page that shows how the application is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastError {
    /// Where it happened.
    pub conversation_id: Uuid,
    /// When it happened.
    pub at: chrono::DateTime<chrono::Utc>,
    /// What the storage said.
    pub error: String,
}

impl fmt::Display for LastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            conversation_id,
            at,
            error,
        } = self;
        write!(f, "{at} conversation {conversation_id}: {error}")
    }
}
