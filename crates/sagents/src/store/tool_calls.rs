//! The calls that read a tool call, change its status, and store a person's decision about it.

use serde_json::{Map, Value, json};
use tracing::instrument;
use uuid::Uuid;

use super::{Store, with_driver};
use crate::display_message::{
    APPROVED, CLAIM, DECIDED_AT, DECIDED_BY, DECISION, DECISION_CLAIM, HITL_DECISION, IS_INTERRUPT, REJECTED,
    STARTED_ELSEWHERE,
};
use crate::values::{clean_call_id, clean_json, clean_string};
use crate::{
    Claim, Content, ContentType, Decided, Decision, DisplayMessage, Error, Owner, OwnerScope, Result, SignedDecision,
    StoredCall, Timestamp, ToolResult, ToolStatus,
};

impl Store {
    /// The newest tool call with this id: a model may use an id again.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation, or the conversation has no such call.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn get_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        tool_call_id: &str,
    ) -> Result<DisplayMessage> {
        let owner = self.owner_of(scope, conversation_id).await?;
        let call = self.newest_item(&owner, conversation_id, tool_call_id, ContentType::ToolCall).await?;
        call.ok_or(Error::NotFound)
    }

    /// Starts a tool call that's pending or approved, for exactly one caller in all processes. Only that caller may run the
    /// tool.
    ///
    /// `claim` identifies the attempt. A caller who got no reply repeats the call with it, and gets the same result while
    /// the tool call is executing.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, or the conversation has no such call.
    pub async fn claim_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        tool_call_id: &str,
        claim: Uuid,
    ) -> Result<Claim<DisplayMessage>> {
        let metadata = object(json!({ CLAIM: claim }));
        let edit = ToolCallEdit { metadata, ..ToolCallEdit::to(ToolStatus::Executing) };
        let (call, is_changed) = self.edit_tool_call(scope, conversation_id, tool_call_id, edit).await?;
        // A call that was executing may be unknown by now. The model was told so, and the tool must not run.
        let is_repeated = call.claim() == Some(claim) && call.status == Some(ToolStatus::Executing);
        Ok(if is_changed || is_repeated { Claim::Claimed(call) } else { Claim::Already(call) })
    }

    /// Marks a tool call as completed. `metadata`, for example the result, is merged into the call's own. Repeated, it
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, or the conversation has no such call.
    /// [`Error::Invalid`] if its [status doesn't allow](ToolStatus::may_become) the change.
    pub async fn complete_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        tool_call_id: &str,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        self.change_tool_call(scope, conversation_id, tool_call_id, ToolStatus::Completed, metadata).await
    }

    /// Marks a tool call as failed. `metadata`, for example the error, is merged into the call's own. Repeated, it changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`complete_tool_call`](Self::complete_tool_call).
    pub async fn fail_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        tool_call_id: &str,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        self.change_tool_call(scope, conversation_id, tool_call_id, ToolStatus::Failed, metadata).await
    }

    /// Makes a tool call wait for a person's [decision](Self::decide_tool_call). `metadata`, for example the question, is
    /// merged into the call's own, which loses the decision about an earlier question.
    ///
    /// # Errors
    ///
    /// As [`complete_tool_call`](Self::complete_tool_call).
    pub async fn interrupt_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        tool_call_id: &str,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        self.change_tool_call(scope, conversation_id, tool_call_id, ToolStatus::Interrupted, metadata).await
    }

    /// Cancels a tool call. Repeated, it changes nothing. A tool that's running isn't stopped, but its result isn't stored
    /// as the call's any more.
    ///
    /// # Errors
    ///
    /// As [`complete_tool_call`](Self::complete_tool_call).
    pub async fn cancel_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        tool_call_id: &str,
    ) -> Result<DisplayMessage> {
        self.change_tool_call(scope, conversation_id, tool_call_id, ToolStatus::Cancelled, Map::new()).await
    }

    /// Stores a person's decision about an interrupted tool call, for exactly one caller in all processes. An approved call
    /// is pending until somebody [claims](Self::claim_tool_call) it. A rejected one is cancelled.
    ///
    /// The row keeps the decision, [who](Decision::by) made it and when.
    ///
    /// `claim` identifies the attempt. A caller who got no reply repeats the call with it, and gets the same result.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, or the conversation has no such call.
    /// [`Error::Invalid`] if the call waits for no decision, or the arguments are nested too deeply.
    pub async fn decide_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        tool_call_id: &str,
        decision: impl Into<SignedDecision>,
        claim: Uuid,
    ) -> Result<Decided<DisplayMessage>> {
        let SignedDecision { decision, by } = decision.into();
        let mut signed = object(json!(decision));
        signed.extend(by.map(|by| (DECIDED_BY.to_owned(), by.into())));
        drop(signed.insert(DECIDED_AT.to_owned(), json!(Timestamp::now())));
        let recorded = match decision {
            Decision::Approve | Decision::Edit { .. } => APPROVED,
            Decision::Reject { .. } => REJECTED,
        };
        let edit = ToolCallEdit {
            before: vec![ToolStatus::Interrupted],
            only_undecided: true,
            metadata: object(json!({ HITL_DECISION: recorded, DECISION: signed, DECISION_CLAIM: claim })),
            ..ToolCallEdit::to(decision.status())
        };
        let (call, is_changed) = self.edit_tool_call(scope, conversation_id, tool_call_id, edit).await?;
        if is_changed {
            return Ok(Decided::Claimed(call));
        }
        match call.decision() {
            Some(_) if call.decision_claim() == Some(claim) => Ok(Decided::Claimed(call)),
            Some(decision) => Ok(Decided::Already(decision, call)),
            None => Err(refused(&call, "waits for no decision")),
        }
    }

    /// Replaces the newest result of a tool call, which marks an interrupt (`is_interrupt` in its metadata), with the real
    /// one: its text, and whether it's an error.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, or the call has no result. [`Error::Invalid`] if the
    /// newest result doesn't mark an interrupt, also because it was replaced before, or if the new one does.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn resolve_tool_result(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        result: &ToolResult,
    ) -> Result<DisplayMessage> {
        let owner = scope.owner()?;
        if result.is_interrupt {
            return Err(Error::Invalid("the new tool result is an interrupt, too".into()));
        }
        let content = result.content.as_ref().map(Content::text).unwrap_or_default();
        let (tool_call_id, content) = (clean_call_id(&result.tool_call_id), clean_string(content));
        let resolved = with_driver!(self, driver => {
            driver.resolve_tool_result(&owner, conversation_id, &tool_call_id, &content, result.is_error).await?
        });
        resolved.ok_or_else(|| Error::Invalid("the tool result doesn't mark an interrupt".into()))
    }

    /// Cancels a tool call that nobody has started, or, with `only_undecided`, decided about. Returns the call, and whether
    /// it's cancelled.
    pub(crate) async fn cancel_unstarted_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        tool_call_id: &str,
        only_undecided: bool,
    ) -> Result<(DisplayMessage, bool)> {
        let edit = ToolCallEdit {
            before: vec![ToolStatus::Pending, ToolStatus::Interrupted],
            only_undecided,
            ..ToolCallEdit::to(ToolStatus::Cancelled)
        };
        let (call, is_changed) = self.edit_tool_call(scope, conversation_id, tool_call_id, edit).await?;
        let is_repeated = call.status == Some(ToolStatus::Cancelled) && !(only_undecided && call.decision().is_some());
        Ok((call, is_changed || is_repeated))
    }

    /// Makes a tool call pending again that was executing. Its approval stays.
    pub(crate) async fn reopen_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        tool_call_id: &str,
    ) -> Result<()> {
        let edit = ToolCallEdit { before: vec![ToolStatus::Executing], ..ToolCallEdit::to(ToolStatus::Pending) };
        self.edit_tool_call(scope, conversation_id, tool_call_id, edit).await.map(drop)
    }

    /// Makes a tool call unknown if it's executing. Returns what's stored about it then, and about its result.
    pub(crate) async fn seal_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        tool_call_id: &str,
    ) -> Result<StoredCall> {
        let seal = ToolCallEdit::to(ToolStatus::Unknown);
        let (call, _) = self.edit_tool_call(scope, conversation_id, tool_call_id, seal).await?;
        let owner = scope.owner()?;
        let result = self.newest_item(&owner, conversation_id, tool_call_id, ContentType::ToolResult).await?;
        let result = result.filter(|result| result.sequence > call.sequence && !is_interrupt(result));
        let result = result.map(|row| {
            let name = row.metadata.get("name").and_then(Value::as_str).unwrap_or_default();
            let mut result = ToolResult::new(tool_call_id, name, row.content);
            result.is_error = row.is_error;
            (row.message_id, result)
        });
        Ok(StoredCall { status: call.status.unwrap_or(ToolStatus::Pending), decision: call.decision(), result })
    }

    /// Changes the status of a tool call, and merges `metadata` into its own. Repeated for a call that has ended with this
    /// status, it changes nothing.
    pub(crate) async fn change_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        tool_call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let edit = ToolCallEdit { metadata, ..ToolCallEdit::to(status) };
        let (call, is_changed) = self.edit_tool_call(scope, conversation_id, tool_call_id, edit).await?;
        let is_repeated = call.status == Some(status) && status.is_ended();
        if is_changed || is_repeated {
            return Ok(call);
        }
        Err(refused(&call, &format!("can't become {}", status.as_str())))
    }

    /// Returns the call, and whether the edit applied to it.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id, status = edit.status.as_str()))]
    async fn edit_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        tool_call_id: &str,
        edit: ToolCallEdit,
    ) -> Result<(DisplayMessage, bool)> {
        let (owner, tool_call_id) = (scope.owner()?, clean_call_id(tool_call_id));
        let edit = ToolCallEdit { metadata: clean_json(edit.metadata)?, ..edit };
        with_driver!(self, driver => driver.edit_tool_call(&owner, conversation_id, &tool_call_id, &edit).await)
    }

    async fn newest_item(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        content_type: ContentType,
    ) -> Result<Option<DisplayMessage>> {
        let tool_call_id = clean_call_id(tool_call_id);
        with_driver!(self, driver => driver.newest_item(owner, conversation_id, &tool_call_id, content_type).await)
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

/// Whether a tool result only says that a person has to decide.
pub(crate) fn is_interrupt(result: &DisplayMessage) -> bool {
    result.metadata.get(IS_INTERRUPT) == Some(&Value::Bool(true))
}

/// A change of a tool call, and the calls that it applies to.
#[derive(Debug)]
pub(crate) struct ToolCallEdit {
    /// The new status.
    pub(crate) status: ToolStatus,
    /// The statuses that it applies to.
    before: Vec<ToolStatus>,
    /// Whether it applies only to calls without a decision.
    only_undecided: bool,
    /// Merged into that of the call.
    pub(crate) metadata: Map<String, Value>,
}

impl ToolCallEdit {
    /// A change of the status, from those that allow it.
    fn to(status: ToolStatus) -> Self {
        let may_change = |before: &ToolStatus| before.may_become(status);
        Self {
            status,
            before: ToolStatus::ALL.into_iter().filter(may_change).collect(),
            only_undecided: false,
            metadata: Map::new(),
        }
    }

    /// Whether it may change this call. An interrupted call starts only after its approval, and a rejected one never.
    pub(crate) fn applies_to(&self, call: &DisplayMessage) -> bool {
        let decision = call.metadata.get(HITL_DECISION);
        let starts = self.status == ToolStatus::Executing;
        let is_ready = match decision {
            _ if self.only_undecided => decision.is_none(),
            None => !starts || call.status != Some(ToolStatus::Interrupted),
            Some(decision) => !starts || decision == APPROVED,
        };
        is_ready && call.status.is_some_and(|status| self.before.contains(&status))
    }

    /// The keys of the metadata that this call loses, because a person has to decide again.
    pub(crate) fn removes(&self, call: &DisplayMessage) -> &'static [&'static str] {
        let is_asked = self.status == ToolStatus::Interrupted && call.status != Some(ToolStatus::Interrupted);
        if is_asked { &OF_A_DECISION } else { &[] }
    }

    /// What the newest result of the call gets, too.
    pub(crate) fn of_result(&self) -> Option<Map<String, Value>> {
        let decision = self.metadata.get(HITL_DECISION).filter(|_| self.only_undecided)?;
        Some(object(json!({ HITL_DECISION: decision })))
    }
}

const OF_A_DECISION: [&str; 4] = [HITL_DECISION, DECISION, DECISION_CLAIM, CLAIM];

/// Takes from a tool call or its result what must not be copied, and returns the status of the copy. Nobody has approved a
/// call in the copy, and nobody runs it there. The statement that forks a conversation does the same.
pub(crate) fn reset_copied(
    tool_call_id: Option<&str>,
    status: Option<ToolStatus>,
    metadata: &mut Map<String, Value>,
) -> Option<ToolStatus> {
    let is_open = match status {
        Some(status) => !status.is_ended(),
        None => tool_call_id.is_some() && metadata.get(IS_INTERRUPT) == Some(&Value::Bool(true)),
    };
    let is_approved = metadata.get(HITL_DECISION).is_some_and(|decision| decision == APPROVED);
    if status == Some(ToolStatus::Executing) {
        drop(metadata.insert(STARTED_ELSEWHERE.into(), true.into()));
    }
    if is_open && is_approved {
        metadata.retain(|key, _| !OF_A_DECISION.contains(&key.as_str()));
        return status.map(|_| ToolStatus::Interrupted);
    }
    match status {
        Some(ToolStatus::Executing) => Some(ToolStatus::Unknown),
        status => status,
    }
}

#[cfg(all(test, feature = "_sqlite", feature = "postgres"))]
mod database_tests;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ContentType, Delivery, Role, Timestamp};

    fn call(status: ToolStatus, metadata: Value) -> DisplayMessage {
        DisplayMessage {
            conversation_id: Uuid::nil(),
            sequence: 0,
            message_id: Uuid::nil(),
            item: 0,
            role: Role::Assistant,
            content_type: ContentType::ToolCall,
            content: "search".into(),
            metadata: object(metadata),
            is_error: false,
            tool_call_id: Some("call_1".into()),
            status: Some(status),
            inserted_at: Timestamp::now(),
            changed: 1,
            delivery: Delivery::Stored,
        }
    }

    #[test]
    fn a_call_starts_if_it_is_pending_or_approved() {
        let start = ToolCallEdit::to(ToolStatus::Executing);
        assert!(start.applies_to(&call(ToolStatus::Pending, json!({}))));
        assert!(start.applies_to(&call(ToolStatus::Interrupted, json!({ HITL_DECISION: APPROVED }))));
        assert!(!start.applies_to(&call(ToolStatus::Interrupted, json!({}))));
        assert!(!start.applies_to(&call(ToolStatus::Pending, json!({ HITL_DECISION: REJECTED }))));
        assert!(!start.applies_to(&call(ToolStatus::Executing, json!({}))));
        assert!(!start.applies_to(&call(ToolStatus::Unknown, json!({}))));
    }

    #[test]
    fn a_call_that_is_interrupted_again_loses_its_decision() {
        let ask = ToolCallEdit::to(ToolStatus::Interrupted);
        assert_eq!(ask.removes(&call(ToolStatus::Executing, json!({}))), OF_A_DECISION);
        assert!(ask.removes(&call(ToolStatus::Interrupted, json!({}))).is_empty());
        assert!(ToolCallEdit::to(ToolStatus::Completed).removes(&call(ToolStatus::Executing, json!({}))).is_empty());
    }

    #[test]
    fn a_copy_has_no_approval_and_runs_nowhere() {
        let approved = json!({ HITL_DECISION: APPROVED, CLAIM: "c", "name": "search" });
        let copied = |status, metadata: &Value| {
            let mut metadata = object(metadata.clone());
            (reset_copied(Some("call_1"), status, &mut metadata), Value::Object(metadata))
        };
        let waiting = (Some(ToolStatus::Interrupted), json!({ "name": "search" }));
        assert_eq!(copied(Some(ToolStatus::Pending), &approved), waiting);
        let started = json!({ "name": "search", STARTED_ELSEWHERE: true });
        assert_eq!(copied(Some(ToolStatus::Executing), &approved), (Some(ToolStatus::Interrupted), started));
        let started = json!({ STARTED_ELSEWHERE: true });
        assert_eq!(copied(Some(ToolStatus::Executing), &json!({})), (Some(ToolStatus::Unknown), started));
        assert_eq!(copied(Some(ToolStatus::Completed), &approved), (Some(ToolStatus::Completed), approved.clone()));
    }
}
