//! What an agent needs of its storage.

use std::future::Future;
use std::hash::Hash;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::message::Message;
use super::serializer::ReadError;
use super::state::State;

/// Storage for the states of agents. Every call takes the caller's scope first.
pub trait AgentPersistence: Sync {
    /// Who is asking.
    type Scope: ?Sized + Sync;
    /// Why a call did not succeed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Stores a state and answers its revision. A failure is logged and answered.
    fn persist_state(
        &self,
        scope: &Self::Scope,
        state: &State,
        expect: Expect,
        context: &PersistContext,
    ) -> impl Future<Output = Result<Revision, Self::Error>> + Send;

    /// The state that was stored last, if there is one.
    fn load_state(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
    ) -> impl Future<Output = Result<Loaded, Self::Error>> + Send;

    /// Notes whether the agent waits for a person.
    fn set_interrupted(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        interrupted: bool,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// What [sessions](super::session) need besides: whose they are, and what a person sees of them.
pub trait SessionPersistence: AgentPersistence<Scope: Send + 'static> + Send + 'static {
    /// Who owns a conversation. A session is found only by its owner.
    type Owner: Clone + Eq + Hash + Send + Sync;
    /// A display message as it was stored.
    type DisplayMessage: Send + Sync + 'static;

    /// The owner on whose behalf a scope asks.
    ///
    /// # Errors
    ///
    /// If the scope stands for nobody.
    fn owner(&self, scope: &Self::Scope) -> Result<Self::Owner, Self::Error>;

    /// Stores what a message shows to a person, in its order. Repeated with the same id, it stores
    /// nothing twice and answers the same.
    fn save_message(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        message_id: Uuid,
        message: &Message,
    ) -> impl Future<Output = Result<Vec<Self::DisplayMessage>, Self::Error>> + Send;

    /// Gives the conversation a title.
    fn set_title(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        title: &str,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// What a failed call means for the next one.
    fn failure(error: &Self::Error) -> Failure;
}

/// What a failed call means for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Somebody else saved the state meanwhile.
    Conflict {
        /// What is there now.
        current: Revision,
    },
    /// Repeated as it is, the call fails again.
    Lasting,
    /// The call may succeed later.
    Passing,
}

/// Counts the saves of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Revision(pub i64);

/// What a save expects to find. A writer that missed a save is told so instead of overwriting it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Whatever is there is overwritten.
    Any,
    /// This revision, which the writer loaded or saved.
    Revision(Revision),
    /// This revision, which the writer could not read: it is kept aside.
    Unreadable(Revision),
}

impl Expect {
    /// Nothing was saved yet.
    pub const NOTHING: Self = Self::Revision(Revision(0));
}

/// What was found.
#[derive(Debug)]
pub enum Loaded {
    /// Nothing was saved yet.
    Nothing,
    /// A state.
    Saved {
        /// What the agent knew.
        state: Box<State>,
        /// Which save it was.
        revision: Revision,
    },
    /// Something that is no state.
    Unreadable {
        /// Why it cannot be read.
        error: ReadError,
        /// Which save it was.
        revision: Revision,
    },
}

/// Whose state is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadContext {
    /// The running agent.
    pub agent_id: String,
    /// Its conversation.
    pub conversation_id: Uuid,
}

impl LoadContext {
    /// The agent of a conversation is called after it.
    #[must_use]
    pub fn new(conversation_id: Uuid) -> Self {
        Self {
            agent_id: format!("conversation-{conversation_id}"),
            conversation_id,
        }
    }

    /// The same, for a save with an id of its own.
    #[must_use]
    pub fn because(&self, lifecycle: Lifecycle) -> PersistContext {
        PersistContext {
            agent_id: self.agent_id.clone(),
            conversation_id: self.conversation_id,
            lifecycle,
            write_id: Uuid::now_v7(),
        }
    }
}

/// Whose state is stored, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistContext {
    /// The running agent.
    pub agent_id: String,
    /// Its conversation.
    pub conversation_id: Uuid,
    /// Why it is stored now.
    pub lifecycle: Lifecycle,
    /// Identifies the save: repeated with the same context after a lost answer, it is carried out
    /// once.
    pub write_id: Uuid,
}

/// Why a state is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lifecycle {
    /// The agent has done its work.
    Completion,
    /// A user stopped it.
    Cancel,
    /// It failed.
    Error,
    /// It waits for a person.
    Interrupt,
    /// The conversation was given a title.
    TitleGenerated,
    /// The session ends: it was told to, nobody holds it any more, or nobody used it for long.
    Shutdown,
    /// Changes have waited for as long as the session lets them.
    Interval,
    /// The application asked for it.
    Request,
}

impl Lifecycle {
    /// As a log shows it.
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
