//! The agent behind the routes.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use crate::display_message::HITL_DECISION;
use crate::session::{AgentSession, CancelToken, SessionError};
use crate::{
    Claim, ContentType, Decision, Delivery, DisplayMessage, Error, MessagePage, OwnerScope, Role, Store, ToolStatus,
};

/// Answers what people send.
///
/// A conversation has one run at a time, in all processes, and only a run executes tools.
pub trait Agent: Send + Sync + 'static {
    /// Works until the answer is complete, a person has to decide something, or the [token](AgentRun::token) is
    /// cancelled. It reports everything to the session.
    ///
    /// It's called again after a decision, when a person wants it to continue, and after a restart. So it starts from
    /// the agent state: it [starts](AgentRun::start_call) the calls that have no result, and continues an
    /// [unfinished](AgentRun::unfinished) answer. A call that was running when its process ended has a result that says
    /// so before the agent is called.
    fn run(&self, run: AgentRun) -> impl Future<Output = Result<Outcome, AgentError>> + Send;
}

/// Why an agent failed. It's logged; people are only told that the agent failed.
pub type AgentError = Box<dyn std::error::Error + Send + Sync>;

/// How a run ends.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The answer is complete. If tool calls still wait for a decision, the run waits for it.
    Finished,
    /// A person has to decide this. The agent is called again after a decision.
    Waiting(Value),
    /// It was stopped.
    Cancelled,
    /// It failed, and people are told this. After an error they're only told that the agent failed.
    Failed(String),
}

/// Whether a tool call runs now.
#[derive(Debug, Clone, PartialEq)]
pub enum StartCall {
    /// Run the tool, with these arguments if a person changed them.
    Run(Option<Value>),
    /// A person has to decide first.
    Waiting,
    /// A person rejected it, for this reason.
    Rejected(Option<String>),
    /// It was started or cancelled before: don't run it. Unless it's still running, the agent state has its result.
    Over,
}

/// A run of the agent.
#[non_exhaustive]
pub struct AgentRun {
    /// The store of the conversation.
    pub store: Store,
    /// The caller who started the run. It owns the conversation.
    pub scope: Arc<dyn OwnerScope>,
    /// The session of the conversation.
    pub session: AgentSession,
    /// Says when to stop.
    pub token: CancelToken,
    /// Whether this run follows one whose process ended before the run did, and no run since has finished or waited for a
    /// person.
    pub resumed: bool,
    pub(super) run_id: Uuid,
}

impl fmt::Debug for AgentRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentRun")
            .field("session", &self.session)
            .field("resumed", &self.resumed)
            .finish_non_exhaustive()
    }
}

impl AgentRun {
    /// Starts a tool call if it may run now. Run the tool only after [`StartCall::Run`], which is returned once in all
    /// processes.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] if there's no such call or the failure is permanent.
    pub async fn start_call(&self, tool_call_id: &str) -> Result<StartCall, SessionError> {
        if let Some(question) = self.lost_question(tool_call_id).await? {
            self.session.interrupt_tool_call(tool_call_id, question)?;
            return Ok(StartCall::Waiting);
        }
        Ok(match self.session.claim_tool_call(tool_call_id).await? {
            Claim::Claimed(call) => match call.decision() {
                Some(Decision::Edit { arguments }) => StartCall::Run(Some(arguments)),
                _ => StartCall::Run(None),
            },
            Claim::Already(call) => match (call.status, call.decision()) {
                (_, Some(Decision::Reject { reason })) => StartCall::Rejected(reason),
                (Some(ToolStatus::Interrupted), None) => StartCall::Waiting,
                (status, _) => {
                    if status.is_some_and(ToolStatus::is_ended) {
                        self.session.seal_tool_call(self.run_id, tool_call_id).await?;
                    }
                    StartCall::Over
                }
            },
        })
    }

    /// The question of a call that waits for a decision in the agent state, while its row says that nobody was asked: a
    /// process was killed between the two, or both were imported.
    async fn lost_question(&self, tool_call_id: &str) -> Result<Option<Value>, SessionError> {
        let question = self.session.read(|state| {
            let result = state.result_of(tool_call_id).filter(|result| result.is_interrupt)?;
            Some(result.interrupt_data.clone().unwrap_or_default())
        });
        if question.is_none() {
            return Ok(None);
        }
        let call = self.store.get_tool_call(&self.scope, self.session.conversation_id(), tool_call_id).await?;
        let is_decided = call.metadata.contains_key(HITL_DECISION);
        Ok(question.filter(|_| call.status == Some(ToolStatus::Pending) && !is_decided))
    }

    /// The answer at the end of the conversation, if it was interrupted: the id of the message, and its text so far. To
    /// continue, report the whole text as a [draft](AgentSession::save_draft) with this id, and add the message with
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database fails.
    pub async fn unfinished(&self) -> Result<Option<(Uuid, String)>, Error> {
        let id = self.session.conversation_id();
        let last = MessagePage::last().limit(20);
        let page = self.store.load_display_messages(&self.scope, id, last).await?;
        // A notice that the agent failed may follow it.
        let is_said = |row: &&DisplayMessage| row.role != Role::System;
        let Some(last) = page.items.iter().rfind(is_said) else {
            return Ok(None);
        };
        if last.delivery != Delivery::Interrupted {
            return Ok(None);
        }
        let is_part =
            |row: &&DisplayMessage| row.message_id == last.message_id && row.content_type == ContentType::Text;
        let text = page.items.iter().filter(is_part).map(|row| row.content.as_str()).collect();
        Ok(Some((last.message_id, text)))
    }
}
