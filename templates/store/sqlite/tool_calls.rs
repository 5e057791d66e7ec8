//! The statements for tool calls.

use serde_json::{Map, Value};
use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::super::display_message::IS_ERROR;
use super::super::{ContentType, DisplayMessage, Error, HitlDecision, Owner, Result, ToolStatus};
use super::conversations::touch;
use super::rows::display_message_columns;
use super::{Store, retry};

impl Store {
    pub(crate) async fn change_tool_call(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        call_id: &str,
        status: ToolStatus,
        metadata: &Map<String, Value>,
    ) -> Result<DisplayMessage> {
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, owner, conversation_id).await?;
            let call = newest(&mut tx, owner, conversation_id, call_id, ContentType::ToolCall);
            let mut call = call.await?.ok_or(Error::NotFound)?;
            let before = call.status.ok_or(Error::NotFound)?;
            if !before.may_become(status) {
                return Err(Error::Invalid(format!(
                    "a tool call that is {} cannot become {}",
                    before.as_str(),
                    status.as_str()
                )));
            }
            call.status = Some(status);
            call.metadata.extend(metadata.clone());
            update(&mut tx, owner, &call).await?;
            tx.commit().await?;
            Ok(call)
        })
        .await
    }

    pub(crate) async fn record_hitl_decision(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        call_id: &str,
        decision: HitlDecision,
    ) -> Result<DisplayMessage> {
        let decision = || [("hitl_decision".to_owned(), Value::from(decision.as_str()))];
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, owner, conversation_id).await?;
            let call = newest(&mut tx, owner, conversation_id, call_id, ContentType::ToolCall);
            let mut call = call.await?.ok_or(Error::NotFound)?;
            call.metadata.extend(decision());
            update(&mut tx, owner, &call).await?;
            let result = newest(&mut tx, owner, conversation_id, call_id, ContentType::ToolResult);
            if let Some(mut result) = result.await? {
                result.metadata.extend(decision());
                update(&mut tx, owner, &result).await?;
            }
            tx.commit().await?;
            Ok(call)
        })
        .await
    }

    pub(crate) async fn resolve_interrupted_tool_result(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        call_id: &str,
        content: &str,
        is_error: bool,
    ) -> Result<DisplayMessage> {
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, owner, conversation_id).await?;
            let result = newest(&mut tx, owner, conversation_id, call_id, ContentType::ToolResult);
            let mut result = result.await?.ok_or(Error::NotFound)?;
            if result.metadata.get("is_interrupt") != Some(&Value::Bool(true)) {
                return Err(Error::Invalid("the tool result does not mark an interrupt".into()));
            }
            let flags = [("is_interrupt", false), (IS_ERROR, is_error)];
            result.metadata.extend(flags.map(|(key, flag)| (key.to_owned(), Value::Bool(flag))));
            result.is_error = is_error;
            content.clone_into(&mut result.content);
            update(&mut tx, owner, &result).await?;
            tx.commit().await?;
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

/// Stores the status, content and metadata of an item.
async fn update(
    connection: &mut SqliteConnection,
    owner: &Owner,
    message: &DisplayMessage,
) -> Result<()> {
    const UPDATE: &str = r#"
        UPDATE {{ display_messages }} AS m SET status = $3, content = $4, metadata = $5
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1 AND m.sequence = $2"#;

    let updated = sqlx::query(UPDATE)
        .bind(message.conversation_id)
        .bind(message.sequence)
        .bind(message.status.map(ToolStatus::as_str))
        .bind(&message.content)
        .bind(Json(&message.metadata))
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(connection)
        .await?;
    debug_assert_eq!(updated.rows_affected(), 1);
    Ok(())
}
