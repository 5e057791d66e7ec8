{% extends "rust/tool_calls.rs" %}

{% block uses %}
use serde_json::{Map, Value};
use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::values::{clean_json, clean_text};
use super::{
    ContentType, {{ w.context }}, DisplayMessage, Error, HitlDecision,{% if w.owner.is_some() %} Owner,{% endif %} OwnerScope, Result,
    ToolStatus, retry, touch,
};
{%- endblock %}

{% block record_hitl_decision %}
        {{ w.take_owner }}
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
            touch(&mut tx, {{ w.owner_arg }}conversation_id).await?;
            let mut call = newest(
                &mut tx,
                {{ w.owner_arg }}
                conversation_id,
                &call_id,
                ContentType::ToolCall,
            )
            .await?
            .ok_or(Error::NotFound)?;
            note(&mut call);
            write_back(&mut tx, {{ w.owner_arg }}&call).await?;
            let result = newest(
                &mut tx,
                {{ w.owner_arg }}
                conversation_id,
                &call_id,
                ContentType::ToolResult,
            );
            if let Some(mut result) = result.await? {
                note(&mut result);
                write_back(&mut tx, {{ w.owner_arg }}&result).await?;
            }
            tx.commit().await?;
            Ok(call)
        })
        .await
{%- endblock %}

{% block resolve_interrupted_tool_result %}
        {{ w.take_owner }}
        let call_id = clean_text(call_id);
        let content = clean_text(content);
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, {{ w.owner_arg }}conversation_id).await?;
            let result = newest(
                &mut tx,
                {{ w.owner_arg }}
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
            write_back(&mut tx, {{ w.owner_arg }}&result).await?;
            tx.commit().await?;
            Ok(result)
        })
        .await
{%- endblock %}

{% block change_tool_call %}
        {{ w.take_owner }}
        let call_id = clean_text(call_id);
        let metadata = clean_json(metadata)?;
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, {{ w.owner_arg }}conversation_id).await?;
            let mut call = newest(
                &mut tx,
                {{ w.owner_arg }}
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
            write_back(&mut tx, {{ w.owner_arg }}&call).await?;
            tx.commit().await?;
            Ok(call)
        })
        .await
{%- endblock %}

{% block tool_call_steps %}
/// The newest item of a tool call. Call ids come from the model, which may repeat one.
async fn newest(
    connection: &mut SqliteConnection,
    {{ w.owner_param }}
    conversation_id: Uuid,
    call_id: &str,
    content_type: ContentType,
) -> Result<Option<DisplayMessage>> {
    const SELECT: &str = r#"
        SELECT * FROM {{ w.display_messages }}
        WHERE {{ w.owner_and }}conversation_id = $1 AND sequence = (
            SELECT max(sequence) FROM {{ w.display_messages }}
            WHERE {{ w.owner_and }}conversation_id = $1 AND tool_call_id = $2 AND content_type = $3
        )"#;

    let message = sqlx::query_as(SELECT){{ w.bind_owner }}
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
    {{ w.owner_param }}
    message: &DisplayMessage,
) -> Result<()> {
    const UPDATE: &str = r#"
        UPDATE {{ w.display_messages }} SET status = $3, content = $4, metadata = $5
        WHERE {{ w.owner_and }}conversation_id = $1 AND sequence = $2"#;

    sqlx::query(UPDATE){{ w.bind_owner }}
        .bind(message.conversation_id)
        .bind(message.sequence)
        .bind(message.status.map(ToolStatus::as_str))
        .bind(&message.content)
        .bind(Json(&message.metadata))
        .execute(connection)
        .await?;
    Ok(())
}
{%- endblock %}
