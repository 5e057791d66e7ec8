//! The interface between agents and the storage of their states.

use std::future::Future;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::serializer::ReadError;
use super::state::State;

/// Storage of agent states. Every call takes the scope of the caller.
pub trait AgentPersistence: Sync {
    /// Identifies the caller and what they may reach.
    type Scope: ?Sized + Sync;
    /// The error of every call.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Stores a state if `expect` matches the stored one, and returns its revision. Failures are
    /// logged. A call with a `write_id` that is already stored changes nothing and succeeds.
    fn persist_state(
        &self,
        scope: &Self::Scope,
        state: &State,
        expect: Expect,
        context: &PersistContext,
    ) -> impl Future<Output = Result<Revision, Self::Error>> + Send;

    /// Loads the state that was stored last.
    fn load_state(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
    ) -> impl Future<Output = Result<Loaded, Self::Error>> + Send;

    /// Stores whether the agent waits for a person's decision.
    fn set_interrupted(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        interrupted: bool,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// The number of saves of a state: 1 after the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Revision(pub i64);

/// What a save expects to be stored. If it finds something else, it fails with a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Anything that can be read; it is overwritten.
    Any,
    /// The revision that the writer loaded or saved.
    Revision(Revision),
    /// A revision that the writer could not read; it is set aside.
    Unreadable(Revision),
}

impl Expect {
    /// No saved state.
    pub const NOTHING: Self = Self::Revision(Revision(0));

    /// Makes the save idempotent: repeated with the same id, it's applied once.
    #[must_use]
    pub fn with_write_id(self, write_id: Uuid) -> SaveOptions {
        SaveOptions { expect: self, write_id }
    }
}

/// How a state is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveOptions {
    /// The stored revision that the save expects.
    pub expect: Expect,
    /// Identifies the save; a new one by default.
    pub write_id: Uuid,
}

impl From<Expect> for SaveOptions {
    fn from(expect: Expect) -> Self {
        expect.with_write_id(Uuid::now_v7())
    }
}

/// The result of [`AgentPersistence::load_state`].
#[derive(Debug)]
pub enum Loaded {
    /// The conversation has no saved state.
    Nothing,
    /// A state that could be read.
    Saved {
        /// The state as it was saved.
        state: Box<State>,
        /// For [`Expect::Revision`].
        revision: Revision,
    },
    /// A damaged state.
    Unreadable {
        /// Why it cannot be read.
        error: ReadError,
        /// For [`Expect::Unreadable`].
        revision: Revision,
    },
}

/// The agent and the conversation of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadContext {
    /// For logs, and for [`State::agent_id`].
    pub agent_id: String,
    /// The conversation that the agent works for.
    pub conversation_id: Uuid,
}

impl LoadContext {
    /// The agent's id is `conversation-` and the id of the conversation.
    #[must_use]
    pub fn new(conversation_id: Uuid) -> Self {
        Self { agent_id: format!("conversation-{conversation_id}"), conversation_id }
    }
}

/// The agent and the conversation of a save, and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistContext {
    /// For logs.
    pub agent_id: String,
    /// The conversation that the agent works for.
    pub conversation_id: Uuid,
    /// Why the state is saved now.
    pub lifecycle: Lifecycle,
    /// Identifies the save. A caller who got no reply repeats it with the same context, and it is
    /// stored once.
    pub write_id: Uuid,
}

impl PersistContext {
    /// A save with a new `write_id`.
    #[must_use]
    pub fn new(context: &LoadContext, lifecycle: Lifecycle) -> Self {
        Self {
            agent_id: context.agent_id.clone(),
            conversation_id: context.conversation_id,
            lifecycle,
            write_id: Uuid::now_v7(),
        }
    }
}

/// Why a state is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// The agent finished its work.
    Completion,
    /// A user stopped the agent.
    Cancel,
    /// The agent failed.
    Error,
    /// The agent waits for a person's decision.
    Interrupt,
    /// The conversation got a title.
    TitleGenerated,
    /// The session ends: it was shut down, its last handle was dropped, or it was inactive.
    Shutdown,
    /// The interval of [`AutoSave`](super::session::AutoSave) is over.
    Interval,
    /// The application called [`save`](super::session::AgentSession::save).
    Request,
}

impl Lifecycle {
    /// The name in logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completion => "on_completion",
            Self::Cancel => "on_cancel",
            Self::Error => "on_error",
            Self::Interrupt => "on_interrupt",
            Self::TitleGenerated => "on_title_generated",
            Self::Shutdown => "on_shutdown",
            Self::Interval => "on_interval",
            Self::Request => "on_request",
        }
    }
}
