{% extends "rust/messages.rs" %}

{% block uses %}
use sqlx::types::Json;
use sqlx::{FromRow as _, Row as _};
use uuid::Uuid;

use super::values::{clean_text, now, timestamp};
use super::{
    {{ w.context }}, DisplayMessage, Error, MessagePage, MessagePosition, NewDisplayMessage, OwnerScope,
    Result, ToolStatus, retry,
};
{%- endblock %}

{% block append_statement %}
        // Only what is missing takes sequences, and only if something is missing the conversation
        // is touched. Should another writer store the same item meanwhile, its key refuses ours,
        // which undoes the statement; it is repeated then, and finds that item.
        const APPEND: &str = r#"
            WITH new AS (
                SELECT * FROM unnest(
                    $3::integer[], $4::text[], $5::text[], $6::text[], $7::jsonb[], $8::text[], $9::text[]
                ) AS new (item, role, content_type, content, metadata, tool_call_id, status)
            ), present AS (
                SELECT * FROM {{ w.display_messages }}
                WHERE {{ w.owner_and }}conversation_id = $1 AND message_id = $2 AND item = ANY($3)
            ), missing AS (
                SELECT *, row_number() OVER (ORDER BY item) AS place FROM new
                WHERE item NOT IN (SELECT item FROM present)
            ), conversation AS (
                UPDATE {{ w.conversations }}
                SET next_sequence = next_sequence + (SELECT count(*) FROM missing),
                    updated_at = greatest(updated_at, $10)
                WHERE {{ w.owner_and }}id = $1 AND EXISTS (SELECT FROM missing)
                RETURNING next_sequence - (SELECT count(*) FROM missing) - 1 AS last, updated_at
            ), inserted AS (
                INSERT INTO {{ w.display_messages }}
                    ({{ w.owner_first }}conversation_id, sequence, message_id, item, role, content_type,
                     content, metadata, tool_call_id, status, inserted_at)
                SELECT {{ w.owner_value }}$1, last + place, $2, item, role, content_type,
                       content, metadata, tool_call_id, status, updated_at
                FROM conversation, missing
                RETURNING *
            )
            SELECT * FROM present UNION ALL SELECT * FROM inserted ORDER BY item"#;

{% endblock %}

{% block append %}
        let message_id = messages[0].message_id;
        let items: Vec<_> = messages.iter().map(|new| new.item).collect();
        let roles: Vec<_> = messages.iter().map(|new| new.role.as_str()).collect();
        let types: Vec<_> = messages.iter().map(|new| new.content_type.as_str()).collect();
        let contents: Vec<_> = messages.iter().map(|new| new.content.as_str()).collect();
        let metadata: Vec<_> = messages.iter().map(|new| Json(&new.metadata)).collect();
        let calls: Vec<_> = messages.iter().map(|new| new.tool_call_id.as_deref()).collect();
        let statuses: Vec<_> = messages.iter().map(|new| new.status.map(ToolStatus::as_str)).collect();
        retry(|| async {
            let stored: Vec<DisplayMessage> = sqlx::query_as(APPEND){{ w.bind_owner }}
                .bind(conversation_id)
                .bind(message_id)
                .bind(&items)
                .bind(&roles)
                .bind(&types)
                .bind(&contents)
                .bind(&metadata)
                .bind(&calls)
                .bind(&statuses)
                .bind(timestamp(now()))
                .fetch_all(&self.pool)
                .await?;
            if stored.is_empty() {
                return Err(Error::NotFound);
            }
            Ok(stored)
        })
        .await
{%- endblock %}

{% block clear %}
        const CLEAR: &str = r#"
            WITH conversation AS (
                UPDATE {{ w.conversations }} SET updated_at = greatest(updated_at, $2)
                WHERE {{ w.owner_and }}id = $1
                RETURNING id
            ), deleted AS (
                DELETE FROM {{ w.display_messages }} m USING conversation c
                WHERE {{ w.m_owner_and }}m.conversation_id = c.id
                RETURNING m.sequence
            )
            SELECT (SELECT count(*) FROM deleted) FROM conversation"#;

        {{ w.take_owner }}
        retry(|| async {
            let deleted: Option<i64> = sqlx::query_scalar(CLEAR){{ w.bind_owner }}
                .bind(conversation_id)
                .bind(timestamp(now()))
                .fetch_optional(&self.pool)
                .await?;
            deleted.map(i64::unsigned_abs).ok_or(Error::NotFound)
        })
        .await
{%- endblock %}

{% block pattern %}
/// A regular expression that finds a text in whatever case: every letter is a class of its cases.
fn exact_pattern(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        let cases = cases(c);
        if cases.len() > c.len_utf8() {
            pattern.push('[');
            pattern.push_str(&cases);
            pattern.push(']');
        } else {
            if c.is_ascii_punctuation() {
                pattern.push('\\');
            }
            pattern.push(c);
        }
    }
    pattern
}
{%- endblock %}
