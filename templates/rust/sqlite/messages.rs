{% extends "rust/messages.rs" %}

{% block uses %}
use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use sqlx::{FromRow as _, Row as _};
use uuid::Uuid;

use super::values::{clean_text, now, timestamp};
use super::{
    {{ w.context }}, DisplayMessage, Error, MessagePage, MessagePosition, NewDisplayMessage,{% if w.owner.is_some() %} Owner,{% endif %}
    OwnerScope, Result, ToolStatus, retry, touch,
};
{%- endblock %}

{% block append %}
        let all: Vec<_> = messages.iter().collect();
        retry(|| async {
            let mut tx = self.begin().await?;
            if let Some(stored) = insert(&mut tx, {{ w.owner_arg }}conversation_id, &all).await? {
                tx.commit().await?;
                return Ok(stored);
            }
            // Some are there already: give the sequences back, and take those of the others.
            tx.rollback().await?;
            let mut tx = self.begin().await?;
            let mut stored = stored(&mut tx, {{ w.owner_arg }}conversation_id, &all).await?;
            let is_missing = |new: &&NewDisplayMessage| stored.iter().all(|old| old.item != new.item);
            let missing: Vec<_> = messages.iter().filter(is_missing).collect();
            if !missing.is_empty() {
                let rest = insert(&mut tx, {{ w.owner_arg }}conversation_id, &missing).await?;
                stored.extend(rest.into_iter().flatten());
                stored.sort_by_key(|message| message.item);
            }
            tx.commit().await?;
            Ok(stored)
        })
        .await
{%- endblock %}

{% block clear %}
        const DELETE: &str = r#"
            DELETE FROM {{ w.display_messages }} WHERE {{ w.owner_and }}conversation_id = $1"#;

        {{ w.take_owner }}
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, {{ w.owner_arg }}conversation_id).await?;
            let deleted = sqlx::query(DELETE){{ w.bind_owner }}
                .bind(conversation_id)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            tx.commit().await?;
            Ok(deleted)
        })
        .await
{%- endblock %}

{% block append_steps %}
/// Inserts items with the next sequences, or nothing if one of them is there already.
async fn insert(
    connection: &mut SqliteConnection,
    {{ w.owner_param }}
    conversation_id: Uuid,
    messages: &[&NewDisplayMessage],
) -> Result<Option<Vec<DisplayMessage>>> {
    const TAKE_SEQUENCES: &str = r#"
        UPDATE {{ w.conversations }}
        SET next_sequence = next_sequence + $2, updated_at = $3
        WHERE {{ w.owner_and }}id = $1
        RETURNING next_sequence - $2"#;
    const INSERT: &str = r#"
        INSERT INTO {{ w.display_messages }}
            ({{ w.owner_first }}conversation_id, sequence, message_id, item, role, content_type,
             content, metadata, tool_call_id, status, inserted_at)
        VALUES ({{ w.owner_value }}$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        ON CONFLICT ({{ w.owner_first }}conversation_id, message_id, item) DO NOTHING
        RETURNING *"#;

    let now = timestamp(now());
    let first: i64 = sqlx::query_scalar(TAKE_SEQUENCES){{ w.bind_owner }}
        .bind(conversation_id)
        .bind(i64::try_from(messages.len()).unwrap_or(i64::MAX))
        .bind(&now)
        .fetch_optional(&mut *connection)
        .await?
        .ok_or(Error::NotFound)?;
    let mut stored = Vec::with_capacity(messages.len());
    for (message, sequence) in messages.iter().zip(first..) {
        let inserted: Option<DisplayMessage> = sqlx::query_as(INSERT){{ w.bind_owner }}
            .bind(conversation_id)
            .bind(sequence)
            .bind(message.message_id)
            .bind(message.item)
            .bind(message.role.as_str())
            .bind(message.content_type.as_str())
            .bind(&message.content)
            .bind(Json(&message.metadata))
            .bind(&message.tool_call_id)
            .bind(message.status.map(ToolStatus::as_str))
            .bind(&now)
            .fetch_optional(&mut *connection)
            .await?;
        match inserted {
            Some(inserted) => stored.push(inserted),
            None => return Ok(None),
        }
    }
    Ok(Some(stored))
}

/// The items of a message that are there already.
async fn stored(
    connection: &mut SqliteConnection,
    {{ w.owner_param }}
    conversation_id: Uuid,
    messages: &[&NewDisplayMessage],
) -> Result<Vec<DisplayMessage>> {
    const SELECT: &str = r#"
        SELECT * FROM {{ w.display_messages }}
        WHERE {{ w.owner_and }}conversation_id = $1 AND message_id = $2
          AND item BETWEEN $3 AND $4
        ORDER BY item"#;

    let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
        return Ok(Vec::new());
    };
    let stored = sqlx::query_as(SELECT){{ w.bind_owner }}
        .bind(conversation_id)
        .bind(first.message_id)
        .bind(first.item)
        .bind(last.item)
        .fetch_all(connection)
        .await?;
    Ok(stored)
}
{%- endblock %}

{% block pattern %}
/// A pattern that GLOB, which knows no case, finds in whatever case: every letter is a class of its
/// cases.
fn exact_pattern(text: &str) -> String {
    let mut pattern = String::from("*");
    for c in text.chars() {
        let cases = cases(c);
        if cases.len() > c.len_utf8() || matches!(c, '*' | '?' | '[') {
            pattern.push('[');
            pattern.push_str(&cases);
            pattern.push(']');
        } else {
            pattern.push(c);
        }
    }
    pattern.push('*');
    pattern
}
{%- endblock %}
