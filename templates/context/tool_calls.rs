//! The calls that change the status of a tool call, and record a person's decision about it.

use serde_json::{Map, Value};
use tracing::instrument;
use uuid::Uuid;

use super::values::{clean_call_id, clean_json, clean_text};
use super::{{ '{' }}{{ context }}, DisplayMessage, Error, HitlDecision, OwnerScope, Result, ToolStatus};
use crate::sagents::{Content, ToolResult};

impl {{ context }} {
    /// The tool call starts, or continues after an approval.
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
    /// into that of the call.
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

    /// The tool call will not run.
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

    /// Records a person's decision as `hitl_decision` in the metadata of the tool call, and of its
    /// result if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation or it has no such call.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn record_hitl_decision(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
        decision: HitlDecision,
    ) -> Result<DisplayMessage> {
        let owner = scope.owner()?;
        self.store
            .record_hitl_decision(&owner, conversation_id, &clean_call_id(call_id), decision)
            .await
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

    #[instrument(level = "debug", skip_all, fields(%conversation_id, status = status.as_str()))]
    async fn change_tool_call(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let owner = scope.owner()?;
        let (call_id, metadata) = (clean_call_id(call_id), clean_json(metadata)?);
        self.store
            .change_tool_call(&owner, conversation_id, &call_id, status, &metadata)
            .await
    }
}
