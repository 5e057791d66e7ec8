//! The life of a tool call, from pending to its end, and a person's decisions on the way.


use serde_json::{Map, Value, json};
use sqlx::types::Json;
use sqlx::{FromRow as _, Row as _};
use uuid::Uuid;

use super::values::{clean_json, clean_text, now, timestamp};
use super::{
    Conversations, DisplayMessage, Error, HitlDecision, OwnerScope, Result, ToolStatus, retry,
};

impl Conversations {
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
    /// As [`Conversations::mark_tool_executing`].
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
    /// As [`Conversations::mark_tool_executing`].
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
    /// As [`Conversations::mark_tool_executing`].
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
    /// As [`Conversations::mark_tool_executing`].
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
        const RECORD: &str = r#"
            WITH newest AS (
                SELECT
                    (SELECT max(sequence) FROM "sagents_display_messages"
                     WHERE "team_id" = $1 AND conversation_id = $2 AND tool_call_id = $3
                       AND content_type = 'tool_call') AS call,
                    (SELECT max(sequence) FROM "sagents_display_messages"
                     WHERE "team_id" = $1 AND conversation_id = $2 AND tool_call_id = $3
                       AND content_type = 'tool_result') AS result
            ), conversation AS (
                UPDATE "sagents_conversations" SET updated_at = greatest(updated_at, $5)
                WHERE "team_id" = $1 AND id = $2 AND (SELECT call FROM newest) IS NOT NULL
                RETURNING id
            ), changed AS (
                UPDATE "sagents_display_messages" m SET metadata = m.metadata || $4
                FROM conversation c
                WHERE m."team_id" = $1 AND m.conversation_id = c.id AND m.sequence = ANY (
                    ARRAY[(SELECT call FROM newest), (SELECT result FROM newest)]
                )
                RETURNING m.*
            )
            SELECT * FROM changed WHERE content_type = 'tool_call'"#;

        let owner = scope.owner()?;
        let call_id = clean_text(call_id);
        let decision = match decision {
            HitlDecision::Approved => "approved",
            HitlDecision::Rejected => "rejected",
        };
        retry(|| async {
            let call: Option<DisplayMessage> = sqlx::query_as(RECORD)
.bind(owner.id())
                .bind(conversation_id)
                .bind(&call_id)
                .bind(json!({ "hitl_decision": decision }))
                .bind(timestamp(now()))
                .fetch_optional(&self.pool)
                .await?;
            call.ok_or(Error::NotFound)
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
        const RESOLVE: &str = r#"
            WITH result AS (
                SELECT sequence, metadata FROM "sagents_display_messages"
                WHERE "team_id" = $1 AND conversation_id = $2 AND tool_call_id = $3
                  AND content_type = 'tool_result'
                ORDER BY sequence DESC LIMIT 1
            ), conversation AS (
                UPDATE "sagents_conversations" SET updated_at = greatest(updated_at, $5)
                WHERE "team_id" = $1 AND id = $2
                  AND (SELECT metadata -> 'is_interrupt' FROM result) = 'true'
                RETURNING id
            ), changed AS (
                UPDATE "sagents_display_messages" m
                SET content = $4, metadata = m.metadata || '{"is_interrupt": false}'
                FROM conversation c, result r
                WHERE m."team_id" = $1 AND m.conversation_id = c.id AND m.sequence = r.sequence
                  AND m.metadata -> 'is_interrupt' = 'true'
                RETURNING m.*
            )
            SELECT * FROM changed"#;

        let owner = scope.owner()?;
        let call_id = clean_text(call_id);
        let content = clean_text(content);
        retry(|| async {
            let result: Option<DisplayMessage> = sqlx::query_as(RESOLVE)
.bind(owner.id())
                .bind(conversation_id)
                .bind(&call_id)
                .bind(&content)
                .bind(timestamp(now()))
                .fetch_optional(&self.pool)
                .await?;
            result.ok_or(Error::NotFound)
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
        // What may not change is returned as it is, so that it can be said why.
        const CHANGE: &str = r#"
            WITH call AS (
                SELECT * FROM "sagents_display_messages"
                WHERE "team_id" = $1 AND conversation_id = $2 AND tool_call_id = $3
                  AND content_type = 'tool_call'
                ORDER BY sequence DESC LIMIT 1
            ), conversation AS (
                UPDATE "sagents_conversations" SET updated_at = greatest(updated_at, $7)
                WHERE "team_id" = $1 AND id = $2 AND (SELECT status FROM call) = ANY ($6)
                RETURNING id
            ), changed AS (
                UPDATE "sagents_display_messages" m SET status = $4, metadata = m.metadata || $5
                FROM conversation c, call
                WHERE m."team_id" = $1 AND m.conversation_id = c.id AND m.sequence = call.sequence
                  AND m.status = ANY ($6)
                RETURNING m.*
            )
            SELECT *, TRUE AS is_changed FROM changed
            UNION ALL
            SELECT *, FALSE FROM call WHERE NOT EXISTS (SELECT FROM changed)"#;

        let owner = scope.owner()?;
        let call_id = clean_text(call_id);
        let metadata = clean_json(metadata)?;
        let before = ToolStatus::ALL.into_iter().filter(|before| before.may_become(status));
        let before: Vec<_> = before.map(ToolStatus::as_str).collect();
        loop {
            let row = retry(|| async {
                let row = sqlx::query(CHANGE)
.bind(owner.id())
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
    }
}

