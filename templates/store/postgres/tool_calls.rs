//! The statements for tool calls. A model may use a call id again: the newest item with it counts.

use chrono::Utc;
use serde_json::{Map, Value, json};
use sqlx::Row as _;
use sqlx::types::Json;
use uuid::Uuid;

use super::super::display_message::IS_ERROR;
use super::super::{DisplayMessage, Error, HitlDecision, Owner, Result, ToolStatus};
use super::rows::{display_message_columns, joined_display_message, named};
use super::{Store, retry, timestamp};

impl Store {
    pub(crate) async fn change_tool_call(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        call_id: &str,
        status: ToolStatus,
        metadata: &Map<String, Value>,
    ) -> Result<DisplayMessage> {
        // Returns the status before, and the call if it was changed.
        const CHANGE: &str = concat!(r#"
            WITH newest AS (
                SELECT n.sequence, n.status FROM {{ display_messages }} AS n
                WHERE {% if let Some(owner) = owner %}n.{{ owner }} = $7 AND {% endif %}n.conversation_id = $1::uuid
                  AND n.tool_call_id = $2::text AND n.content_type = 'tool_call'
                ORDER BY n.sequence DESC LIMIT 1
            ), conversation AS (
                UPDATE {{ conversations }} AS c
                SET updated_at = greatest(c.updated_at, $6::timestamptz)
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $7 AND {% endif %}c.id = $1::uuid
                  AND (SELECT n.status FROM newest AS n) = ANY ($5::text[])
                RETURNING c.id
            ), changed AS (
                UPDATE {{ display_messages }} AS m
                SET status = $3::text, metadata = m.metadata || $4::jsonb
                FROM conversation AS c, newest AS n
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $7 AND {% endif %}m.conversation_id = c.id AND m.sequence = n.sequence
                  AND m.status = ANY ($5::text[])
                RETURNING "#, display_message_columns!(), r#"
            )
            SELECT n.status AS status_before, "#, display_message_columns!(), r#"
            FROM newest AS n LEFT JOIN changed AS m ON TRUE"#);

        let before = ToolStatus::ALL.into_iter().filter(|before| before.may_become(status));
        let before: Vec<_> = before.map(ToolStatus::as_str).collect();
        loop {
            let row = retry(|| async {
                let mut lease = self.lease(owner, conversation_id).await?;
                let row = sqlx::query(CHANGE)
                    .bind(conversation_id)
                    .bind(call_id)
                    .bind(status.as_str())
                    .bind(Json(metadata))
                    .bind(&before)
                    .bind(timestamp(Utc::now()))
{%- if owner.is_some() %}
                    .bind(owner.id())
{%- endif %}
                    .fetch_optional(lease.connection())
                    .await?;
                lease.end();
                row.ok_or(Error::NotFound)
            })
            .await?;
            if let Some(call) = joined_display_message(&row)? {
                return Ok(call);
            }
            let before: ToolStatus = named("status", row.try_get("status_before")?)?;
            if !before.may_become(status) {
                return Err(Error::Invalid(format!(
                    "a tool call that is {} cannot become {}",
                    before.as_str(),
                    status.as_str()
                )));
            }
            // A concurrent writer changed it: the next attempt sees its new status.
        }
    }

    pub(crate) async fn record_hitl_decision(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        call_id: &str,
        decision: HitlDecision,
    ) -> Result<DisplayMessage> {
        const RECORD: &str = concat!(r#"
            WITH newest AS (
                SELECT
                    (SELECT max(n.sequence) FROM {{ display_messages }} AS n
                     WHERE {% if let Some(owner) = owner %}n.{{ owner }} = $5 AND {% endif %}n.conversation_id = $1::uuid
                       AND n.tool_call_id = $2::text AND n.content_type = 'tool_call') AS call,
                    (SELECT max(n.sequence) FROM {{ display_messages }} AS n
                     WHERE {% if let Some(owner) = owner %}n.{{ owner }} = $5 AND {% endif %}n.conversation_id = $1::uuid
                       AND n.tool_call_id = $2::text AND n.content_type = 'tool_result') AS result
            ), conversation AS (
                UPDATE {{ conversations }} AS c
                SET updated_at = greatest(c.updated_at, $4::timestamptz)
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $5 AND {% endif %}c.id = $1::uuid
                  AND (SELECT n.call FROM newest AS n) IS NOT NULL
                RETURNING c.id
            ), changed AS (
                UPDATE {{ display_messages }} AS m SET metadata = m.metadata || $3::jsonb
                FROM conversation AS c
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = c.id AND m.sequence = ANY (
                    ARRAY[(SELECT n.call FROM newest AS n), (SELECT n.result FROM newest AS n)]
                )
                RETURNING "#, display_message_columns!(), r#"
            )
            SELECT "#, display_message_columns!(), r#"
            FROM changed AS m WHERE m.content_type = 'tool_call'"#);

        retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let call: Option<DisplayMessage> = sqlx::query_as(RECORD)
                .bind(conversation_id)
                .bind(call_id)
                .bind(json!({ "hitl_decision": decision.as_str() }))
                .bind(timestamp(Utc::now()))
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(lease.connection())
                .await?;
            lease.end();
            call.ok_or(Error::NotFound)
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
        // Returns a row if there is a result, and the result in it if it was changed.
        const RESOLVE: &str = concat!(r#"
            WITH newest AS (
                SELECT n.sequence, n.metadata FROM {{ display_messages }} AS n
                WHERE {% if let Some(owner) = owner %}n.{{ owner }} = $6 AND {% endif %}n.conversation_id = $1::uuid
                  AND n.tool_call_id = $2::text AND n.content_type = 'tool_result'
                ORDER BY n.sequence DESC LIMIT 1
            ), conversation AS (
                UPDATE {{ conversations }} AS c
                SET updated_at = greatest(c.updated_at, $5::timestamptz)
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $6 AND {% endif %}c.id = $1::uuid
                  AND (SELECT n.metadata -> 'is_interrupt' FROM newest AS n) = 'true'
                RETURNING c.id
            ), changed AS (
                UPDATE {{ display_messages }} AS m
                SET content = $3::text, metadata = m.metadata || $4::jsonb
                FROM conversation AS c, newest AS n
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = c.id AND m.sequence = n.sequence
                  AND m.metadata -> 'is_interrupt' = 'true'
                RETURNING "#, display_message_columns!(), r#"
            )
            SELECT "#, display_message_columns!(), r#"
            FROM newest AS n LEFT JOIN changed AS m ON TRUE"#);
        const NO_INTERRUPT: &str = "the tool result does not mark an interrupt";

        retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let row = sqlx::query(RESOLVE)
                .bind(conversation_id)
                .bind(call_id)
                .bind(content)
                .bind(json!({ "is_interrupt": false, IS_ERROR: is_error }))
                .bind(timestamp(Utc::now()))
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(lease.connection())
                .await?;
            lease.end();
            let result = joined_display_message(&row.ok_or(Error::NotFound)?)?;
            result.ok_or_else(|| Error::Invalid(NO_INTERRUPT.into()))
        })
        .await
    }
}
