{% extends "rust/tool_calls.rs" %}

{% block uses %}
use serde_json::{Map, Value, json};
use sqlx::types::Json;
use sqlx::{FromRow as _, Row as _};
use uuid::Uuid;

use super::values::{clean_json, clean_text, now, timestamp};
use super::{
    {{ w.context }}, DisplayMessage, Error, HitlDecision, OwnerScope, Result, ToolStatus, retry,
};
{%- endblock %}

{% block record_hitl_decision %}
        const RECORD: &str = r#"
            WITH newest AS (
                SELECT
                    (SELECT max(sequence) FROM {{ w.display_messages }}
                     WHERE {{ w.owner_and }}conversation_id = $1 AND tool_call_id = $2
                       AND content_type = 'tool_call') AS call,
                    (SELECT max(sequence) FROM {{ w.display_messages }}
                     WHERE {{ w.owner_and }}conversation_id = $1 AND tool_call_id = $2
                       AND content_type = 'tool_result') AS result
            ), conversation AS (
                UPDATE {{ w.conversations }} SET updated_at = greatest(updated_at, $4)
                WHERE {{ w.owner_and }}id = $1 AND (SELECT call FROM newest) IS NOT NULL
                RETURNING id
            ), changed AS (
                UPDATE {{ w.display_messages }} m SET metadata = m.metadata || $3
                FROM conversation c
                WHERE {{ w.m_owner_and }}m.conversation_id = c.id AND m.sequence = ANY (
                    ARRAY[(SELECT call FROM newest), (SELECT result FROM newest)]
                )
                RETURNING m.*
            )
            SELECT * FROM changed WHERE content_type = 'tool_call'"#;

        {{ w.take_owner }}
        let call_id = clean_text(call_id);
        let decision = match decision {
            HitlDecision::Approved => "approved",
            HitlDecision::Rejected => "rejected",
        };
        retry(|| async {
            let call: Option<DisplayMessage> = sqlx::query_as(RECORD){{ w.bind_owner }}
                .bind(conversation_id)
                .bind(&call_id)
                .bind(json!({ "hitl_decision": decision }))
                .bind(timestamp(now()))
                .fetch_optional(&self.pool)
                .await?;
            call.ok_or(Error::NotFound)
        })
        .await
{%- endblock %}

{% block resolve_interrupted_tool_result %}
        const RESOLVE: &str = r#"
            WITH result AS (
                SELECT sequence, metadata FROM {{ w.display_messages }}
                WHERE {{ w.owner_and }}conversation_id = $1 AND tool_call_id = $2
                  AND content_type = 'tool_result'
                ORDER BY sequence DESC LIMIT 1
            ), conversation AS (
                UPDATE {{ w.conversations }} SET updated_at = greatest(updated_at, $4)
                WHERE {{ w.owner_and }}id = $1
                  AND (SELECT metadata -> 'is_interrupt' FROM result) = 'true'
                RETURNING id
            ), changed AS (
                UPDATE {{ w.display_messages }} m
                SET content = $3, metadata = m.metadata || '{"is_interrupt": false}'
                FROM conversation c, result r
                WHERE {{ w.m_owner_and }}m.conversation_id = c.id AND m.sequence = r.sequence
                  AND m.metadata -> 'is_interrupt' = 'true'
                RETURNING m.*
            )
            SELECT * FROM changed"#;

        {{ w.take_owner }}
        let call_id = clean_text(call_id);
        let content = clean_text(content);
        retry(|| async {
            let result: Option<DisplayMessage> = sqlx::query_as(RESOLVE){{ w.bind_owner }}
                .bind(conversation_id)
                .bind(&call_id)
                .bind(&content)
                .bind(timestamp(now()))
                .fetch_optional(&self.pool)
                .await?;
            result.ok_or(Error::NotFound)
        })
        .await
{%- endblock %}

{% block change_tool_call %}
        // What may not change is returned as it is, so that it can be said why.
        const CHANGE: &str = r#"
            WITH call AS (
                SELECT * FROM {{ w.display_messages }}
                WHERE {{ w.owner_and }}conversation_id = $1 AND tool_call_id = $2
                  AND content_type = 'tool_call'
                ORDER BY sequence DESC LIMIT 1
            ), conversation AS (
                UPDATE {{ w.conversations }} SET updated_at = greatest(updated_at, $6)
                WHERE {{ w.owner_and }}id = $1 AND (SELECT status FROM call) = ANY ($5)
                RETURNING id
            ), changed AS (
                UPDATE {{ w.display_messages }} m SET status = $3, metadata = m.metadata || $4
                FROM conversation c, call
                WHERE {{ w.m_owner_and }}m.conversation_id = c.id AND m.sequence = call.sequence
                  AND m.status = ANY ($5)
                RETURNING m.*
            )
            SELECT *, TRUE AS is_changed FROM changed
            UNION ALL
            SELECT *, FALSE FROM call WHERE NOT EXISTS (SELECT FROM changed)"#;

        {{ w.take_owner }}
        let call_id = clean_text(call_id);
        let metadata = clean_json(metadata)?;
        let before = ToolStatus::ALL.into_iter().filter(|before| before.may_become(status));
        let before: Vec<_> = before.map(ToolStatus::as_str).collect();
        loop {
            let row = retry(|| async {
                let row = sqlx::query(CHANGE){{ w.bind_owner }}
                    .bind(conversation_id)
                    .bind(&call_id)
                    .bind(status.as_str())
                    .bind(Json(&metadata))
                    .bind(&before)
                    .bind(timestamp(now()))
                    .fetch_optional(&self.pool)
                    .await?;
                row.ok_or(Error::NotFound)
            })
            .await?;
            let call = DisplayMessage::from_row(&row)?;
            if row.try_get("is_changed")? {
                return Ok(call);
            }
            let before = call.status.ok_or(Error::NotFound)?;
            if !before.may_become(status) {
                return Err(Error::Invalid(format!(
                    "the tool call {call_id} is {before:?} and cannot become {status:?}"
                )));
            }
            // Somebody else changed it at the same moment: it is another one now.
        }
{%- endblock %}
