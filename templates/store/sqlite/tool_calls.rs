//! The statements for tool calls.

use serde_json::Value;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::super::display_message::{HITL_DECISION, IS_ERROR, IS_INTERRUPT};
use super::super::tool_calls::ToolCallEdit;
use super::super::{ContentType, DisplayMessage, Error, Owner, {% if group.is_some() %}Reach, {% endif %}Result, ToolStatus};
{% if group.is_some() %}use super::groups;
{% endif %}use super::messages::{take_sequences, update};
use super::rows::display_message_columns;
use super::{Store, retry};

impl Store {
    pub(crate) async fn get_tool_call(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
        call_id: &str,
    ) -> Result<DisplayMessage> {
{%- if group.is_some() %}
        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}
        let mut connection = self.pool.acquire().await?;
        let call = newest(&mut connection, owner, conversation_id, call_id, ContentType::ToolCall);
        call.await?.ok_or(Error::NotFound)
    }

    /// The newest result of a tool call that has this sequence.
    pub(crate) async fn tool_result(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        call_id: &str,
        sequence: i64,
    ) -> Result<Option<DisplayMessage>> {
        let mut connection = self.pool.acquire().await?;
        let result = newest(&mut connection, owner, conversation_id, call_id, ContentType::ToolResult);
        Ok(result.await?.filter(|result| result.sequence > sequence))
    }

    /// Returns the call, and whether the edit applied to it.
    pub(crate) async fn edit_tool_call(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        call_id: &str,
        edit: &ToolCallEdit,
    ) -> Result<(DisplayMessage, bool)> {
        retry(|| async {
            let mut tx = self.begin().await?;
            let call = newest(&mut tx, owner, conversation_id, call_id, ContentType::ToolCall);
            let mut call = call.await?.ok_or(Error::NotFound)?;
            if !edit.applies_to(&call) {
                tx.rollback().await?;
                return Ok((call, false));
            }
            let change = take_sequences(&mut tx, owner, conversation_id, 0).await?;
            if edit.status == Some(ToolStatus::Interrupted) && call.status != edit.status {
                call.metadata.retain(|key, _| !ToolCallEdit::OF_A_DECISION.contains(&key.as_str()));
            }
            call.status = edit.status.or(call.status);
            call.metadata.extend(edit.metadata.clone());
            call.changed = change.number;
            update(&mut tx, owner, &mut call).await?;
            if let Some(decision) = edit.metadata.get(HITL_DECISION).filter(|_| edit.only_undecided) {
                let result = newest(&mut tx, owner, conversation_id, call_id, ContentType::ToolResult);
                if let Some(mut result) = result.await? {
                    drop(result.metadata.insert(HITL_DECISION.into(), decision.clone()));
                    result.changed = change.number;
                    update(&mut tx, owner, &mut result).await?;
                }
            }
            tx.commit().await?;
            self.announce(conversation_id);
            Ok((call, true))
        })
        .await
    }

    pub(crate) async fn resolve_interrupted_tool_result(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        call_id: &str,
        content: &str,
        failed: bool,
    ) -> Result<DisplayMessage> {
        retry(|| async {
            let mut tx = self.begin().await?;
            let change = take_sequences(&mut tx, owner, conversation_id, 0).await?;
            let result = newest(&mut tx, owner, conversation_id, call_id, ContentType::ToolResult);
            let mut result = result.await?.ok_or(Error::NotFound)?;
            if result.metadata.get(IS_INTERRUPT) != Some(&Value::Bool(true)) {
                return Err(Error::Invalid("the tool result does not mark an interrupt".into()));
            }
            let flags = [(IS_INTERRUPT, false), (IS_ERROR, failed)];
            result.metadata.extend(flags.map(|(key, flag)| (key.to_owned(), Value::Bool(flag))));
            content.clone_into(&mut result.content);
            result.changed = change.number;
            update(&mut tx, owner, &mut result).await?;
            tx.commit().await?;
            self.announce(conversation_id);
            Ok(result)
        })
        .await
    }
}

/// The newest item of a tool call: a model may use a call id again.
async fn newest(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    call_id: &str,
    content_type: ContentType,
) -> Result<Option<DisplayMessage>> {
    const SELECT: &str = concat!("SELECT ", display_message_columns!(), r#"
        FROM {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $4 AND {% endif %}m.conversation_id = $1 AND m.sequence = (
            SELECT max(n.sequence) FROM {{ display_messages }} AS n
            WHERE {% if let Some(owner) = owner %}n.{{ owner }} = $4 AND {% endif %}n.conversation_id = $1
              AND n.tool_call_id = $2 AND n.content_type = $3
        )"#);

    let message = sqlx::query_as(SELECT)
        .bind(conversation_id)
        .bind(call_id)
        .bind(content_type.as_str())
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_optional(connection)
        .await?;
    Ok(message)
}
