//! The life of a tool call, from pending to its end, and a person's decisions on the way.

use serde_json::{Map, Value};
use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::values::{clean_json, clean_text};
use super::{
    Chat, ContentType, DisplayMessage, Error, HitlDecision, Owner, OwnerScope, Result, ToolStatus,
    retry, touch,
};

impl Chat {
    /// A tool call starts, or goes on after a person approved it.
    ///
    /// # Errors
    ///
    /// For this and the other changes of a tool call: [`Error::NotFound`] if the caller has no such
    /// conversation or it has no such call, [`Error::Invalid`] if the call [may not
    /// change](ToolStatus::may_become) so.
    pub async fn mark_tool_executing(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Executing;
        self.change_tool_call(scope, conversation_id, call_id, status, Map::new())
            .await
    }

    /// A tool call succeeds. `metadata` is merged into the call's metadata, for example the result.
    ///
    /// # Errors
    ///
    /// As [`Chat::mark_tool_executing`].
    pub async fn complete_tool_call(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Completed;
        self.change_tool_call(scope, conversation_id, call_id, status, metadata)
            .await
    }

    /// A tool call fails. `metadata` is merged into the call's metadata, for example the error.
    ///
    /// # Errors
    ///
    /// As [`Chat::mark_tool_executing`].
    pub async fn fail_tool_call(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Failed;
        self.change_tool_call(scope, conversation_id, call_id, status, metadata)
            .await
    }

    /// A tool call waits for a person's decision. `metadata` is merged into the call's metadata,
    /// for example the question.
    ///
    /// # Errors
    ///
    /// As [`Chat::mark_tool_executing`].
    pub async fn interrupt_tool_call(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Interrupted;
        self.change_tool_call(scope, conversation_id, call_id, status, metadata)
            .await
    }

    /// A tool call is given up.
    ///
    /// # Errors
    ///
    /// As [`Chat::mark_tool_executing`].
    pub async fn cancel_tool_call(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Cancelled;
        self.change_tool_call(scope, conversation_id, call_id, status, Map::new())
            .await
    }

    /// Notes a person's decision as `hitl_decision` in the metadata of the tool call, and of its
    /// result if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation or it has no such call.
    pub async fn record_hitl_decision(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
        decision: HitlDecision,
    ) -> Result<DisplayMessage> {
        let owner = scope.owner()?;
        let call_id = clean_text(call_id);
        let note = |message: &mut DisplayMessage| {
            let decision = match decision {
                HitlDecision::Approved => "approved",
                HitlDecision::Rejected => "rejected",
            };
            message
                .metadata
                .insert("hitl_decision".into(), decision.into());
        };
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, &owner, conversation_id).await?;
            let mut call = newest(
                &mut tx,
                &owner,
                conversation_id,
                &call_id,
                ContentType::ToolCall,
            )
            .await?
            .ok_or(Error::NotFound)?;
            note(&mut call);
            write_back(&mut tx, &owner, &call).await?;
            let result = newest(
                &mut tx,
                &owner,
                conversation_id,
                &call_id,
                ContentType::ToolResult,
            );
            if let Some(mut result) = result.await? {
                note(&mut result);
                write_back(&mut tx, &owner, &result).await?;
            }
            tx.commit().await?;
            Ok(call)
        })
        .await
    }

    /// Puts the real result in the place of a tool result that stood for an interrupt
    /// (`is_interrupt` in its metadata).
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation, or the newest result of the call
    /// is no interrupt.
    pub async fn resolve_interrupted_tool_result(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
        content: &str,
    ) -> Result<DisplayMessage> {
        let owner = scope.owner()?;
        let call_id = clean_text(call_id);
        let content = clean_text(content);
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, &owner, conversation_id).await?;
            let result = newest(
                &mut tx,
                &owner,
                conversation_id,
                &call_id,
                ContentType::ToolResult,
            );
            let mut result = result.await?.ok_or(Error::NotFound)?;
            if result.metadata.get("is_interrupt") != Some(&Value::Bool(true)) {
                return Err(Error::NotFound);
            }
            result.metadata.insert("is_interrupt".into(), false.into());
            result.content.clone_from(&content);
            write_back(&mut tx, &owner, &result).await?;
            tx.commit().await?;
            Ok(result)
        })
        .await
    }

    async fn change_tool_call(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let owner = scope.owner()?;
        let call_id = clean_text(call_id);
        let metadata = clean_json(metadata)?;
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, &owner, conversation_id).await?;
            let mut call = newest(
                &mut tx,
                &owner,
                conversation_id,
                &call_id,
                ContentType::ToolCall,
            )
            .await?
            .ok_or(Error::NotFound)?;
            let before = call.status.ok_or(Error::NotFound)?;
            if !before.may_become(status) {
                return Err(Error::Invalid(format!(
                    "the tool call {call_id} is {before:?} and cannot become {status:?}"
                )));
            }
            call.status = Some(status);
            call.metadata.extend(metadata.clone());
            write_back(&mut tx, &owner, &call).await?;
            tx.commit().await?;
            Ok(call)
        })
        .await
    }
}

/// The newest item of a tool call. Call ids come from the model, which may repeat one.
async fn newest(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    call_id: &str,
    content_type: ContentType,
) -> Result<Option<DisplayMessage>> {
    const SELECT: &str = r#"
        SELECT * FROM "chat_display_messages"
        WHERE "login_id" = $1 AND conversation_id = $2 AND sequence = (
            SELECT max(sequence) FROM "chat_display_messages"
            WHERE "login_id" = $1 AND conversation_id = $2 AND tool_call_id = $3 AND content_type = $4
        )"#;

    let message = sqlx::query_as(SELECT)
        .bind(owner.id())
        .bind(conversation_id)
        .bind(call_id)
        .bind(content_type.as_str())
        .fetch_optional(connection)
        .await?;
    Ok(message)
}

/// Stores what may change in an item.
async fn write_back(
    connection: &mut SqliteConnection,
    owner: &Owner,
    message: &DisplayMessage,
) -> Result<()> {
    const UPDATE: &str = r#"
        UPDATE "chat_display_messages" SET status = $4, content = $5, metadata = $6
        WHERE "login_id" = $1 AND conversation_id = $2 AND sequence = $3"#;

    sqlx::query(UPDATE)
        .bind(owner.id())
        .bind(message.conversation_id)
        .bind(message.sequence)
        .bind(message.status.map(ToolStatus::as_str))
        .bind(&message.content)
        .bind(Json(&message.metadata))
        .execute(connection)
        .await?;
    Ok(())
}
