//! The calls that read a tool call, change its status, and record a person's decision about it.

use serde_json::{Map, Value, json};
use tracing::instrument;
use uuid::Uuid;

use super::display_message::{CLAIM, DECISION, DECISION_CLAIM, HITL_DECISION, IS_INTERRUPT, STARTED_ELSEWHERE};
use super::values::{clean_call_id, clean_json, clean_text};
use super::{
    Claim, {{ context }}, Decided, Decision, DisplayMessage, Error, HitlDecision, OwnerScope, Result,
    ToolStatus,
};
use crate::sagents::{Content, StoredCall, ToolResult};

impl {{ context }} {
    /// The newest tool call with this id, as it is now.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation or it has no such call.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn get_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
    ) -> Result<DisplayMessage> {
        let reach = scope.reach()?;
        self.store.get_tool_call(&reach, conversation_id, &clean_call_id(call_id)).await
    }

    /// The tool call starts. An interrupted call needs an approval first. Only one of several callers
    /// succeeds; [`claim_tool_call`](Self::claim_tool_call) does the same and can be repeated.
    ///
    /// # Errors
    ///
    /// As for the other status changes: [`Error::NotFound`] if the owner has no such conversation or
    /// it has no such call, [`Error::Invalid`] if [the status does not
    /// allow](ToolStatus::may_become) the change.
    pub async fn mark_tool_executing(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Executing;
        self.change_tool_call(scope, conversation_id, call_id, status, Map::new())
            .await
    }

    /// The tool call succeeded. `metadata`, for example the result, is merged into that of the call.
    /// Repeated, it changes nothing.
    ///
    /// # Errors
    ///
    /// As [`mark_tool_executing`](Self::mark_tool_executing).
    pub async fn complete_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Completed;
        self.change_tool_call(scope, conversation_id, call_id, status, metadata)
            .await
    }

    /// The tool call failed. `metadata`, for example the error, is merged into that of the call.
    /// Repeated, it changes nothing.
    ///
    /// # Errors
    ///
    /// As [`mark_tool_executing`](Self::mark_tool_executing).
    pub async fn fail_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Failed;
        self.change_tool_call(scope, conversation_id, call_id, status, metadata)
            .await
    }

    /// The tool call waits for a person's decision. `metadata`, for example the question, is merged
    /// into that of the call. A decision about an earlier question is removed from it.
    ///
    /// # Errors
    ///
    /// As [`mark_tool_executing`](Self::mark_tool_executing).
    pub async fn interrupt_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Interrupted;
        self.change_tool_call(scope, conversation_id, call_id, status, metadata)
            .await
    }

    /// The tool call will not run. Repeated, it changes nothing.
    ///
    /// # Errors
    ///
    /// As [`mark_tool_executing`](Self::mark_tool_executing).
    pub async fn cancel_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Cancelled;
        self.change_tool_call(scope, conversation_id, call_id, status, Map::new())
            .await
    }

    /// Starts a tool call that is pending or approved, for exactly one caller in all processes. Only
    /// that caller may run the tool. `claim` identifies the attempt: a caller who got no reply repeats
    /// the call with it, and gets the same result while the tool call is executing.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation or it has no such call.
    pub async fn claim_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
        claim: Uuid,
    ) -> Result<Claim<DisplayMessage>> {
        let edit = ToolCallEdit {
            metadata: object(json!({ CLAIM: claim })),
            ..ToolCallEdit::to(ToolStatus::Executing)
        };
        let (call, is_changed) = self.edit_tool_call(scope, conversation_id, call_id, edit).await?;
        // A call that was executing may be unknown by now: others were told so, and it must not run.
        let is_own = call.claim() == Some(claim) && call.status == Some(ToolStatus::Executing);
        Ok(if is_changed || is_own {
            Claim::Claimed(call)
        } else {
            Claim::Already(call)
        })
    }

    /// Stores a person's decision about an interrupted tool call, for exactly one caller in all
    /// processes. An approved call is pending until somebody [claims](Self::claim_tool_call) it, a
    /// rejected one is cancelled. `claim` identifies the attempt: a caller who got no reply repeats the
    /// call with it, and gets the same result.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation or it has no such call,
    /// [`Error::Invalid`] if the call waits for no decision or the arguments are nested too deeply.
    pub async fn decide_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
        decision: &Decision,
        claim: Uuid,
    ) -> Result<Decided<DisplayMessage>> {
        let recorded = match decision {
            Decision::Approve | Decision::Edit { .. } => HitlDecision::Approved,
            Decision::Reject { .. } => HitlDecision::Rejected,
        };
        let edit = ToolCallEdit {
            before: vec![ToolStatus::Interrupted],
            only_undecided: true,
            metadata: object(json!({
                HITL_DECISION: recorded,
                DECISION: decision,
                DECISION_CLAIM: claim,
            })),
            ..ToolCallEdit::to(decision.status())
        };
        let (call, is_changed) = self.edit_tool_call(scope, conversation_id, call_id, edit).await?;
        if is_changed {
            return Ok(Decided::Claimed(call));
        }
        match call.decision() {
            Some(_) if call.decision_claim() == Some(claim) => Ok(Decided::Claimed(call)),
            Some(decision) => Ok(Decided::Already(decision, call)),
            None => Err(refused(&call, "waits for no decision")),
        }
    }

    /// Records a person's decision that was made elsewhere, as `hitl_decision` in the metadata of the
    /// tool call, and of its result if there is one. The status stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation or it has no such call,
    /// [`Error::Invalid`] if there is another decision or the call has ended.
    pub async fn record_hitl_decision(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
        decision: HitlDecision,
    ) -> Result<DisplayMessage> {
        let is_open = |status: &ToolStatus| !status.is_ended();
        let edit = ToolCallEdit {
            status: None,
            before: ToolStatus::ALL.into_iter().filter(is_open).collect(),
            only_undecided: true,
            metadata: object(json!({ HITL_DECISION: decision })),
        };
        let (call, is_changed) = self.edit_tool_call(scope, conversation_id, call_id, edit).await?;
        match call.metadata.get(HITL_DECISION) {
            _ if is_changed => Ok(call),
            Some(recorded) if recorded == decision.as_str() => Ok(call),
            Some(_) => Err(refused(&call, "has another decision")),
            None => Err(refused(&call, "takes no decision")),
        }
    }

    /// Replaces a tool result that marks an interrupt (`is_interrupt` in its metadata) with the real
    /// one, which may be an error: its text, and whether it is an error.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation or the call has no result,
    /// [`Error::Invalid`] if its newest result does not mark an interrupt, or the new
    /// one does.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn resolve_interrupted_tool_result(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        result: &ToolResult,
    ) -> Result<DisplayMessage> {
        let owner = scope.owner()?;
        if result.is_interrupt {
            return Err(Error::Invalid("the new tool result is an interrupt too".into()));
        }
        let content = result.content.as_ref().map(Content::text).unwrap_or_default();
        let (call_id, content) = (clean_call_id(&result.tool_call_id), clean_text(&content));
        self.store
            .resolve_interrupted_tool_result(&owner, conversation_id, &call_id, &content, result.is_error)
            .await
    }

    /// Cancels a tool call that nobody has started, or, with `only_undecided`, decided about. Returns
    /// the call, and whether it is cancelled.
    pub(super) async fn cancel_unstarted_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
        only_undecided: bool,
    ) -> Result<(DisplayMessage, bool)> {
        let edit = ToolCallEdit {
            before: vec![ToolStatus::Pending, ToolStatus::Interrupted],
            only_undecided,
            ..ToolCallEdit::to(ToolStatus::Cancelled)
        };
        let (call, is_changed) = self.edit_tool_call(scope, conversation_id, call_id, edit).await?;
        let is_repeated = call.status == Some(ToolStatus::Cancelled)
            && !(only_undecided && call.metadata.contains_key(HITL_DECISION));
        Ok((call, is_changed || is_repeated))
    }

    /// Makes a tool call unknown if it is executing. Returns what is then stored about it.
    pub(super) async fn seal_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
    ) -> Result<StoredCall> {
        let seal = ToolCallEdit::to(ToolStatus::Unknown);
        let (call, _) = self.edit_tool_call(scope, conversation_id, call_id, seal).await?;
        let (owner, short) = (scope.owner()?, clean_call_id(call_id));
        let result = self.store.tool_result(&owner, conversation_id, &short, call.sequence).await?;
        let is_result = |row: &DisplayMessage| row.metadata.get(IS_INTERRUPT) != Some(&true.into());
        let result = result.filter(is_result).map(|row| {
            let name = row.metadata.get("name").and_then(Value::as_str).unwrap_or_default();
            let mut result = ToolResult::new(call_id, name, row.content);
            result.is_error = row.is_error;
            (row.message_id, result)
        });
        Ok(StoredCall {
            status: call.status.unwrap_or(ToolStatus::Pending),
            decision: call.decision(),
            result,
        })
    }

    pub(super) async fn change_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let edit = ToolCallEdit {
            metadata,
            ..ToolCallEdit::to(status)
        };
        let (call, is_changed) = self.edit_tool_call(scope, conversation_id, call_id, edit).await?;
        let is_repeated = call.status == Some(status) && status.is_ended();
        if is_changed || is_repeated {
            return Ok(call);
        }
        Err(refused(&call, &format!("cannot become {}", status.as_str())))
    }

    /// Returns the call, and whether the edit applied to it.
    #[instrument(level = "debug", skip_all, fields(%conversation_id, status = edit.status.map(ToolStatus::as_str)))]
    async fn edit_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
        edit: ToolCallEdit,
    ) -> Result<(DisplayMessage, bool)> {
        let owner = scope.owner()?;
        let edit = ToolCallEdit {
            metadata: clean_json(edit.metadata)?,
            ..edit
        };
        self.store
            .edit_tool_call(&owner, conversation_id, &clean_call_id(call_id), &edit)
            .await
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn refused(call: &DisplayMessage, why: &str) -> Error {
    let status = call.status.map_or("no tool call", ToolStatus::as_str);
    Error::Invalid(format!("a tool call that is {status} {why}"))
}

/// A change of a tool call, and the calls that it applies to.
#[derive(Debug)]
pub(super) struct ToolCallEdit {
    /// The new status; without one, the status stays.
    pub status: Option<ToolStatus>,
    /// The statuses that it applies to.
    pub before: Vec<ToolStatus>,
    /// Whether it applies only to calls without a decision. If it decides, the newest result of the call
    /// gets `hitl_decision` too.
    pub only_undecided: bool,
    /// Merged into that of the call.
    pub metadata: Map<String, Value>,
}

impl ToolCallEdit {
    /// A change of the status, from those that allow it.
    fn to(status: ToolStatus) -> Self {
        let may_change = |before: &ToolStatus| before.may_become(status);
        Self {
            status: Some(status),
            before: ToolStatus::ALL.into_iter().filter(may_change).collect(),
            only_undecided: false,
            metadata: Map::new(),
        }
    }

    pub(super) fn applies_to(&self, call: &DisplayMessage) -> bool {
        let decision = call.metadata.get(HITL_DECISION);
        let starts = self.status == Some(ToolStatus::Executing);
        let is_ready = match decision {
            _ if self.only_undecided => decision.is_none(),
            None => !starts || call.status != Some(ToolStatus::Interrupted),
            Some(decision) => !starts || decision == HitlDecision::Approved.as_str(),
        };
        is_ready && call.status.is_some_and(|status| self.before.contains(&status))
    }

    /// The keys of the metadata that a call loses when a person has to decide again.
    pub(super) const OF_A_DECISION: [&str; 4] = [HITL_DECISION, DECISION, DECISION_CLAIM, CLAIM];
}

/// Takes what must not be copied from a tool call or its result. Nobody has approved a call in the
/// copy, and nobody runs it there. The statement that forks a conversation does the same.
pub(super) fn reset_copied(
    call_id: Option<&str>,
    status: Option<ToolStatus>,
    metadata: &mut Map<String, Value>,
) -> Option<ToolStatus> {
    let is_open = match status {
        Some(status) => !status.is_ended(),
        None => call_id.is_some() && metadata.get(IS_INTERRUPT) == Some(&Value::Bool(true)),
    };
    let decision = metadata.get(HITL_DECISION);
    let is_approved = decision.is_some_and(|decision| decision == HitlDecision::Approved.as_str());
    if status == Some(ToolStatus::Executing) {
        drop(metadata.insert(STARTED_ELSEWHERE.into(), true.into()));
    }
    if is_open && is_approved {
        metadata.retain(|key, _| !ToolCallEdit::OF_A_DECISION.contains(&key.as_str()));
        return status.map(|_| ToolStatus::Interrupted);
    }
    match status {
        Some(ToolStatus::Executing) => Some(ToolStatus::Unknown),
        status => status,
    }
}
