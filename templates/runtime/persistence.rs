//! The interface between agents and their storage. The generated contexts implement it.

use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::branch::{Cut, Point};
use super::message::{Message, ToolResult};
use super::run::{BeginRun, Run, RunSignal, RunStatus};
use super::serializer::ReadError;
use super::state::State;
use super::turn::{Claim, Decided, Decision, Delivery, StoredCall, ToolStatus};

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

/// What [sessions](super::session) need in addition: owners, display messages, tool calls, runs and titles.
pub trait SessionPersistence: AgentPersistence<Scope: Send + 'static> + Send + 'static {
    /// Identifies the owner of a conversation. A session is found only by its owner.
    type Owner: Clone + Eq + Hash + Send + Sync;
    /// A stored display message.
    type DisplayMessage: Clone + Send + Sync + 'static;

    /// The owner that a scope acts for.
    ///
    /// # Errors
    ///
    /// If the scope has no owner.
    fn owner(&self, scope: &Self::Scope) -> Result<Self::Owner, Self::Error>;

    /// Stores the display items of a message in order, and returns them.
    ///
    /// Repeated with the same id, it changes only items that are [drafts](Delivery::Draft) or
    /// [interrupted](Delivery::Interrupted), which get their whole content, and the delivery of
    /// those that are unsaved or unknown if `delivery` is [`Stored`](Delivery::Stored). Draft items
    /// that the message does not have are deleted.
    ///
    /// With [`Delivery::Draft`], it stores or replaces the texts of a draft, and changes nothing if
    /// the message is stored as a whole.
    fn save_message(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        message_id: Uuid,
        message: &Message,
        delivery: Delivery,
    ) -> impl Future<Output = Result<Vec<Self::DisplayMessage>, Self::Error>> + Send;

    /// The messages that have display items which are drafts or unsaved.
    fn unsettled_messages(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
    ) -> impl Future<Output = Result<Vec<(Uuid, Delivery)>, Self::Error>> + Send;

    /// Changes the delivery of messages, and returns the items for which that matters to a reader
    /// (all changes but that from unsaved to stored). What is unsaved becomes stored or unknown,
    /// what is unknown becomes stored, a draft becomes interrupted; anything else stays as it is.
    fn settle_messages(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        messages: &[(Uuid, Delivery)],
    ) -> impl Future<Output = Result<Vec<Self::DisplayMessage>, Self::Error>> + Send;

    /// Changes the status of the newest tool call with this id, and merges `metadata` into its own.
    /// Repeated for a call that has ended with this status, it changes nothing.
    fn change_tool_call(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> impl Future<Output = Result<Self::DisplayMessage, Self::Error>> + Send;

    /// Starts a tool call that is pending or approved, for exactly one of all callers. Repeated with
    /// the same `claim`, the result is the same.
    fn claim_tool_call(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        call_id: &str,
        claim: Uuid,
    ) -> impl Future<Output = Result<Claim<Self::DisplayMessage>, Self::Error>> + Send;

    /// Stores a person's decision about an interrupted tool call, for exactly one of all callers.
    /// Repeated with the same `claim`, the result is the same. An approved call is then pending, a
    /// rejected one cancelled.
    fn decide_tool_call(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        call_id: &str,
        decision: &Decision,
        claim: Uuid,
    ) -> impl Future<Output = Result<Decided<Self::DisplayMessage>, Self::Error>> + Send;

    /// Cancels the newest tool call with this id unless somebody has started it, or, with
    /// `only_undecided`, decided about it. Returns the call and whether it is cancelled, or `None` if
    /// the call isn't displayed.
    fn cancel_unstarted_tool_call(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        call_id: &str,
        only_undecided: bool,
    ) -> impl Future<Output = Result<Option<(Self::DisplayMessage, bool)>, Self::Error>> + Send;

    /// Makes the newest tool call with this id [unknown](ToolStatus::Unknown) if it is executing, and
    /// returns what is then stored about it, or `None` if the call isn't displayed.
    fn seal_tool_call(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        call_id: &str,
    ) -> impl Future<Output = Result<Option<StoredCall>, Self::Error>> + Send;

    /// Replaces the newest result of a tool call, which marks an interrupt, with the real one.
    /// Repeated, it fails.
    fn resolve_tool_result(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        result: &ToolResult,
    ) -> impl Future<Output = Result<Self::DisplayMessage, Self::Error>> + Send;

    /// Begins a run, unless another one was renewed within the lease. A run that waits for a person
    /// does not stop another one from beginning. With the id of the current run, it goes on with it.
    fn begin_run(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        run_id: Uuid,
        holder: &str,
        lease: Duration,
    ) -> impl Future<Output = Result<BeginRun, Self::Error>> + Send;

    /// Renews the lease of a run.
    fn renew_run(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        run_id: Uuid,
    ) -> impl Future<Output = Result<RunSignal, Self::Error>> + Send;

    /// The run waits for a person, who has to decide this. It goes on with
    /// [`begin_run`](Self::begin_run).
    fn wait_run(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        run_id: Uuid,
        waiting_for: &Value,
    ) -> impl Future<Output = Result<RunSignal, Self::Error>> + Send;

    /// The run ended. If it is not the current one, or ended before, nothing changes.
    fn end_run(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        run_id: Uuid,
        status: RunStatus,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Asks the process that runs the agent to stop. Returns whether there is a run that has not
    /// ended.
    fn request_cancel(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// The current or the last run.
    fn get_run(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
    ) -> impl Future<Output = Result<Option<Run>, Self::Error>> + Send;

    /// Takes back what is after a point, in the agent state and in the display messages, and returns
    /// where it was cut. A message that does not exist is an error for which
    /// [`is_missing`](Self::is_missing) is true.
    fn rewind(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        to: Point,
    ) -> impl Future<Output = Result<Cut, Self::Error>> + Send;

    /// Deletes the conversation with everything that belongs to it.
    fn delete_conversation(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Stores the title of the conversation.
    fn set_title(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        title: &str,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Decides whether a session repeats a call that returned this error.
    fn failure(error: &Self::Error) -> Failure;

    /// Whether the row of the call is gone. A call that names only a conversation returns such an
    /// error if the conversation is gone.
    fn is_missing(error: &Self::Error) -> bool;
}

/// Whether to repeat a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Another writer saved the state. The call fails until that state is loaded.
    Conflict {
        /// The stored revision.
        current: Revision,
    },
    /// The same call fails again.
    Permanent,
    /// The same call may succeed later.
    Transient,
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
        Self {
            agent_id: format!("conversation-{conversation_id}"),
            conversation_id,
        }
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
