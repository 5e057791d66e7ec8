//! Tool calls, as calls on a session.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::Result;
use super::handle::AgentSession;
use super::state::SessionState;
use super::turn::resolved_by;
use super::writes::{PendingWrite, Written};
use crate::{Claim, Decided, DisplayMessage, SignedDecision, State, ToolCall, ToolResult, ToolStatus};

/// The status of a tool call is stored after the message that has the call. Subscribers learn of a change that [the
/// status doesn't allow](ToolStatus::may_become).
impl AgentSession {
    /// Starts a tool call that's pending or approved. Exactly one caller of all processes gets [`Claim::Claimed`] and
    /// runs the tool.
    ///
    /// It waits while failures are transient. A caller who stops waiting may have claimed the call.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if there's no such call.
    pub async fn claim_tool_call(&self, tool_call_id: &str) -> Result<Claim<DisplayMessage>> {
        let claim = PendingWrite::Claim { tool_call_id: tool_call_id.to_owned(), claim: Uuid::now_v7() };
        self.ask(
            |session, reply| session.writes.push(claim, Some(reply)),
            |written| match written {
                Written::Claim(claim) => Some(claim),
                _ => None,
            },
        )
        .await
    }

    /// Adds the result of a tool, or its error, to the agent state and to the display messages. It replaces the
    /// interrupt of its call, if there's one; a call that has a result keeps it. The call is then completed or failed,
    /// unless it has ended before.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`](super::SessionError::Ended) if the session has ended.
    pub fn add_tool_result(&self, result: ToolResult) -> Result<()> {
        self.update_rows(|session| session.add_tool_result(result))
    }

    /// Marks a call as succeeded without a result for the model; see [`add_tool_result`](Self::add_tool_result).
    /// `metadata` is merged into that of the call.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`](super::SessionError::Ended) if the session has ended.
    pub fn complete_tool_call(&self, tool_call_id: &str, metadata: Map<String, Value>) -> Result<()> {
        self.update_rows(|session| session.change_tool_call(tool_call_id, ToolStatus::Completed, metadata))
    }

    /// Marks a call as failed without a result for the model; see [`add_tool_result`](Self::add_tool_result).
    /// `metadata` is merged into that of the call.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`](super::SessionError::Ended) if the session has ended.
    pub fn fail_tool_call(&self, tool_call_id: &str, metadata: Map<String, Value>) -> Result<()> {
        self.update_rows(|session| session.change_tool_call(tool_call_id, ToolStatus::Failed, metadata))
    }

    /// Marks a call as one that won't run.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`](super::SessionError::Ended) if the session has ended.
    pub fn cancel_tool_call(&self, tool_call_id: &str) -> Result<()> {
        self.update_rows(|session| session.change_tool_call(tool_call_id, ToolStatus::Cancelled, Map::new()))
    }

    /// Marks a call as waiting for a person's [decision](Self::decide_tool_call). The agent state gets an interrupt
    /// with this data in place of the result, unless it has one.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`](super::SessionError::Ended) if the session has ended.
    pub fn interrupt_tool_call(&self, tool_call_id: &str, data: Value) -> Result<()> {
        self.update_rows(|session| session.interrupt_tool_call(tool_call_id, data))
    }

    /// Stores a person's decision about an interrupted call. Exactly one caller of all processes gets
    /// [`Decided::Claimed`]. An approved call then has to be [claimed](Self::claim_tool_call) like any other one before
    /// its tool runs. A rejected call gets a [result](Self::add_tool_result), which is an error for the model.
    ///
    /// It waits while failures are transient. A caller who stops waiting may have decided.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if the call doesn't wait for a decision.
    pub async fn decide_tool_call(
        &self,
        tool_call_id: &str,
        decision: impl Into<SignedDecision>,
    ) -> Result<Decided<DisplayMessage>> {
        let (tool_call_id, decision) = (tool_call_id.to_owned(), decision.into());
        let decide = PendingWrite::Decide { tool_call_id, decision, claim: Uuid::now_v7() };
        self.ask(
            |session, reply| session.writes.push(decide, Some(reply)),
            |written| match written {
                Written::Decided(decided) => Some(decided),
                _ => None,
            },
        )
        .await
    }

    /// Cancels a call that nobody has started, whether or not somebody has approved it. Returns whether it's cancelled; if
    /// not, it may be running in another process.
    ///
    /// It waits while failures are transient.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if the failure is permanent.
    pub async fn cancel_unstarted_tool_call(&self, tool_call_id: &str) -> Result<bool> {
        self.cancel_unstarted(tool_call_id, false).await
    }

    /// As [`State::cancel_pending_interrupts`], and cancels the calls. Call it when the user sends a new message
    /// instead of deciding. A call that somebody has decided about doesn't change, because it may be running.
    ///
    /// It waits while failures are transient.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if the failure is permanent.
    pub async fn cancel_pending_interrupts(&self) -> Result<()> {
        let results = self.read(|state| resolved_by(state, State::cancel_pending_interrupts));
        self.cancel_tool_calls(results).await?;
        self.update(SessionState::continue_run)
    }

    /// As [`State::clean_stale_interrupts`], and cancels the calls. Call it when the session starts. A call that
    /// somebody has decided about doesn't change.
    ///
    /// It waits while failures are transient.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if the failure is permanent.
    pub async fn clean_stale_interrupts(&self, restorable: impl Fn(&Value) -> bool) -> Result<()> {
        let clean = |state: &mut State| state.clean_stale_interrupts(restorable);
        let results = self.read(|state| resolved_by(state, clean));
        self.cancel_tool_calls(results).await
    }

    /// Cancels the calls of these results, which replace their interrupts, unless somebody has decided about them.
    async fn cancel_tool_calls(&self, results: Vec<ToolResult>) -> Result<()> {
        let mut cancelled = Vec::new();
        for result in results {
            if self.cancel_unstarted(&result.tool_call_id, true).await? {
                cancelled.push(result);
            }
        }
        self.update_rows(|session| session.resolve_interrupts(cancelled))
    }

    /// Gives a result to every call that was started or has ended, and that has none in the agent state: the stored
    /// result if there's one, otherwise an error that says that the outcome is unknown. A call whose tool [may run
    /// twice](super::SessionOptions::rerun_tools) is pending again instead. Calls that nobody has started don't change.
    /// Returns the ids of the calls that got a result.
    pub(crate) async fn seal_tool_calls(&self, run_id: Uuid) -> Result<Vec<String>> {
        let mut sealed = Vec::new();
        for call in self.read(State::open_tool_calls) {
            if self.seal(run_id, &call).await? {
                sealed.push(call.tool_call_id);
            }
        }
        Ok(sealed)
    }

    /// As [`seal_tool_calls`](Self::seal_tool_calls), for one call.
    #[cfg(feature = "axum")]
    pub(crate) async fn seal_tool_call(&self, run_id: Uuid, tool_call_id: &str) -> Result<()> {
        let open = self.read(State::open_tool_calls);
        if let Some(call) = open.iter().find(|call| call.tool_call_id == tool_call_id) {
            let _ = self.seal(run_id, call).await?;
        }
        Ok(())
    }

    /// Returns whether the call got a result.
    async fn seal(&self, run_id: Uuid, call: &ToolCall) -> Result<bool> {
        let reopens = self.session.registry.options.rerun_tools.contains(&call.name);
        let seal = PendingWrite::Seal { tool_call_id: call.tool_call_id.clone(), run_id, reopens };
        let sealed = self.ask(
            |session, reply| session.writes.push(seal, Some(reply)),
            |written| match written {
                Written::Sealed(sealed) => Some(sealed),
                _ => None,
            },
        );
        // Nobody can have started a call that isn't displayed.
        let Some(stored) = sealed.await? else { return Ok(false) };
        let status = stored.status;
        let Some((id, result)) = stored.sealed(call) else { return Ok(false) };
        self.update(|session| session.finish_tool_call(id, result, status))?;
        Ok(true)
    }

    async fn cancel_unstarted(&self, tool_call_id: &str, only_undecided: bool) -> Result<bool> {
        let cancel = PendingWrite::CancelUnstarted { tool_call_id: tool_call_id.to_owned(), only_undecided };
        self.ask(
            |session, reply| session.writes.push(cancel, Some(reply)),
            |written| match written {
                // Nobody can decide about a call that isn't displayed, or start it.
                Written::Cancelled(call) => Some(call.is_none_or(|(_, is_cancelled)| is_cancelled)),
                _ => None,
            },
        )
        .await
    }
}
