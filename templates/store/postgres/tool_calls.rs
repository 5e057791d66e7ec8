//! The statements for tool calls. A model may use a call id again: the newest item with it counts.

use serde_json::json;
use sqlx::types::Json;
use sqlx::{FromRow as _, Row as _};
use uuid::Uuid;

use super::super::display_message::{HITL_DECISION, IS_ERROR, IS_INTERRUPT};
use super::super::tool_calls::ToolCallEdit;
use super::super::{DisplayMessage, Error, Owner, {% if group.is_some() %}Reach, {% endif %}Result, ToolStatus};
{% if group.is_some() %}use super::groups;
{% endif -%}
use super::rows::{display_message_columns, joined_display_message};
use super::{Store, now, retry};

/// The beginning of an edit: `$applies` is the condition for the call `m`, besides its status.
macro_rules! edited {
    ($applies:literal) => {
        concat!(r#"
            WITH newest AS (
                SELECT "#, display_message_columns!(), r#" FROM {{ display_messages }} AS m
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $8 AND {% endif %}m.conversation_id = $1::uuid
                  AND m.tool_call_id = $2::text AND m.content_type = 'tool_call'
                ORDER BY m.sequence DESC LIMIT 1
            ), conversation AS (
                UPDATE {{ conversations }} AS c
                SET last_change = c.last_change + 1,
                    updated_at = greatest(c.updated_at, $6::timestamptz)
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $8 AND {% endif %}c.id = $1::uuid AND EXISTS (
                    SELECT FROM newest AS m WHERE m.status = ANY ($5::text[]) AND "#, $applies, r#"
                )
                RETURNING c.id, c.last_change
            ), changed AS (
                UPDATE {{ display_messages }} AS m
                SET status = coalesce($3::text, m.status), changed = c.last_change,
                    metadata = CASE
                        WHEN $3::text = 'interrupted' AND m.status <> 'interrupted'
                            THEN m.metadata - $7::text[]
                        ELSE m.metadata
                    END || $4::jsonb
                FROM conversation AS c, newest AS n
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $8 AND {% endif %}m.conversation_id = c.id AND m.sequence = n.sequence
                  AND m.status = ANY ($5::text[]) AND "#, $applies, r#"
                RETURNING "#, display_message_columns!(), r#"
            )"#)
    };
}

/// The end of an edit: the call, and whether it was changed.
macro_rules! call {
    () => {
        concat!(r#"
            SELECT TRUE AS is_changed, "#, display_message_columns!(), r#"
            FROM changed AS m
            UNION ALL
            SELECT FALSE, "#, display_message_columns!(), r#"
            FROM newest AS m WHERE NOT EXISTS (SELECT FROM changed)"#)
    };
}

impl Store {
    pub(crate) async fn get_tool_call(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
        call_id: &str,
    ) -> Result<DisplayMessage> {
        const SELECT: &str = concat!("SELECT ", display_message_columns!(), r#"
            FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $3 AND {% endif %}m.conversation_id = $1::uuid
              AND m.tool_call_id = $2::text AND m.content_type = 'tool_call'
            ORDER BY m.sequence DESC LIMIT 1"#);
{%- if group.is_some() %}

        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}

        let query = sqlx::query_as(SELECT).bind(conversation_id).bind(call_id){% if owner.is_some() %}.bind(owner.id()){% endif %};
        let call = query.fetch_optional(&self.pool).await?;
        call.ok_or(Error::NotFound)
    }

    /// The newest result of a tool call that has this sequence.
    pub(crate) async fn tool_result(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        call_id: &str,
        sequence: i64,
    ) -> Result<Option<DisplayMessage>> {
        const SELECT: &str = concat!("SELECT ", display_message_columns!(), r#"
            FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $4 AND {% endif %}m.conversation_id = $1::uuid
              AND m.tool_call_id = $2::text AND m.content_type = 'tool_result' AND m.sequence > $3::bigint
            ORDER BY m.sequence DESC LIMIT 1"#);

        let result = sqlx::query_as(SELECT)
            .bind(conversation_id)
            .bind(call_id)
            .bind(sequence)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_optional(&self.pool)
            .await?;
        Ok(result)
    }

    /// Returns the call, and whether the edit applied to it.
    pub(crate) async fn edit_tool_call(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        call_id: &str,
        edit: &ToolCallEdit,
    ) -> Result<(DisplayMessage, bool)> {
        // Three statements: if parts of one depended on its parameters, the server would plan it for
        // every call, which takes longer than the edit.
        const CHANGE: &str = concat!(
            edited!(
                r#"(
                      $3::text <> 'executing' OR m.metadata ->> 'hitl_decision' = 'approved'
                      OR m.status <> 'interrupted' AND NOT m.metadata ? 'hitl_decision'
                  )"#
            ),
            call!()
        );
        const CANCEL: &str = concat!(edited!("NOT m.metadata ? 'hitl_decision'"), call!());
        const DECIDE: &str = concat!(edited!("NOT m.metadata ? 'hitl_decision'"), r#", result AS (
                UPDATE {{ display_messages }} AS m
                SET metadata = m.metadata
                        || jsonb_build_object('hitl_decision', $4::jsonb -> 'hitl_decision'),
                    changed = c.last_change
                FROM conversation AS c
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $8 AND {% endif %}m.conversation_id = c.id AND m.sequence = (
                    SELECT max(n.sequence) FROM {{ display_messages }} AS n
                    WHERE {% if let Some(owner) = owner %}n.{{ owner }} = $8 AND {% endif %}n.conversation_id = $1::uuid
                      AND n.tool_call_id = $2::text AND n.content_type = 'tool_result'
                ) AND EXISTS (SELECT FROM changed)
            )"#, call!());

        let before: Vec<_> = edit.before.iter().map(|status| status.as_str()).collect();
        let statement = match edit.only_undecided {
            false => CHANGE,
            true if edit.metadata.contains_key(HITL_DECISION) => DECIDE,
            true => CANCEL,
        };
        loop {
            let row = retry(|| async {
                let mut lease = self.lease(owner, conversation_id).await?;
                let row = sqlx::query(statement)
                    .bind(conversation_id)
                    .bind(call_id)
                    .bind(edit.status.map(ToolStatus::as_str))
                    .bind(Json(&edit.metadata))
                    .bind(&before)
                    .bind(now())
                    .bind(ToolCallEdit::OF_A_DECISION.as_slice())
{%- if owner.is_some() %}
                    .bind(owner.id())
{%- endif %}
                    .fetch_optional(lease.connection())
                    .await?;
                lease.end();
                row.ok_or(Error::NotFound)
            })
            .await?;
            let (call, is_changed) = (DisplayMessage::from_row(&row)?, row.try_get("is_changed")?);
            if is_changed {
                self.announce(conversation_id).await;
            }
            if is_changed || !edit.applies_to(&call) {
                return Ok((call, is_changed));
            }
            // A concurrent writer changed it: the next attempt sees how.
        }
    }

    pub(crate) async fn resolve_interrupted_tool_result(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        call_id: &str,
        content: &str,
        failed: bool,
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
                SET last_change = c.last_change + 1,
                    updated_at = greatest(c.updated_at, $5::timestamptz)
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $6 AND {% endif %}c.id = $1::uuid
                  AND (SELECT n.metadata -> 'is_interrupt' FROM newest AS n) = 'true'
                RETURNING c.id, c.last_change
            ), changed AS (
                UPDATE {{ display_messages }} AS m
                SET content = $3::text, metadata = m.metadata || $4::jsonb, changed = c.last_change
                FROM conversation AS c, newest AS n
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = c.id AND m.sequence = n.sequence
                  AND m.metadata -> 'is_interrupt' = 'true'
                RETURNING "#, display_message_columns!(), r#"
            )
            SELECT "#, display_message_columns!(), r#"
            FROM newest AS n LEFT JOIN changed AS m ON TRUE"#);
        const NO_INTERRUPT: &str = "the tool result does not mark an interrupt";

        let result = retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let row = sqlx::query(RESOLVE)
                .bind(conversation_id)
                .bind(call_id)
                .bind(content)
                .bind(json!({ IS_INTERRUPT: false, IS_ERROR: failed }))
                .bind(now())
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(lease.connection())
                .await?;
            lease.end();
            let result = joined_display_message(&row.ok_or(Error::NotFound)?)?;
            result.ok_or_else(|| Error::Invalid(NO_INTERRUPT.into()))
        })
        .await?;
        self.announce(conversation_id).await;
        Ok(result)
    }
}
