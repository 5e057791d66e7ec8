//! The statements for tool calls. A model may use the id of a call again: the newest item with it counts.
//!
//! Rust decides on a change, and one statement stores it, if the conversation is still at the change that was read. All
//! that could affect the decision takes a number.

use serde_json::{Map, Value};
use sqlx::postgres::{PgConnection, PgExecutor};
use sqlx::types::Json;
use uuid::Uuid;

use super::messages::is_joined;
use super::{Driver, retry};
use crate::display_message::{IS_ERROR, IS_INTERRUPT};
use crate::rows::{Columns as _, display_message};
use crate::statement::statements;
use crate::store::tool_calls::{ToolCallEdit, is_interrupt};
use crate::{ContentType, DisplayMessage, Error, Owner, Result, Timestamp, ToolStatus};

statements! {
    pub(super) struct ToolCalls {
        newest: "
            SELECT c.last_change AS conversation_change, {m.display_message_columns}
            FROM {conversations} AS c
            LEFT JOIN (
                SELECT {m.display_message_columns} FROM {display_messages} AS m
                WHERE m.{owner} = $4::{owner_type} AND m.conversation_id = $1::uuid
                  AND m.tool_call_id = $2::text AND m.content_type = $3::text
                ORDER BY m.sequence DESC LIMIT 1
            ) AS m ON TRUE
            WHERE c.{owner} = $4::{owner_type} AND c.id = $1::uuid",
        /// Without the array in the condition, the server may look at all messages of the conversation.
        change: "
            WITH new AS (
                SELECT n.sequence, n.status, n.content, n.metadata
                FROM unnest($4::bigint[], $5::text[], $6::text[], $7::jsonb[])
                    AS n (sequence, status, content, metadata)
            ), conversation AS (
                UPDATE {conversations} AS c
                SET last_change = c.last_change + 1, updated_at = greatest(c.updated_at, $3::timestamptz)
                WHERE c.{owner} = $9::{owner_type} AND c.id = $1::uuid AND c.last_change = $2::bigint
                RETURNING c.id, c.last_change
            )
            UPDATE {display_messages} AS m
            SET status = coalesce(n.status, m.status), content = coalesce(n.content, m.content),
                metadata = (m.metadata - $8::text[]) || n.metadata, changed = c.last_change
            FROM conversation AS c, new AS n
            WHERE m.{owner} = $9::{owner_type} AND m.conversation_id = c.id
              AND m.sequence = ANY ($4::bigint[]) AND m.sequence = n.sequence
            RETURNING {m.display_message_columns}",
    }
}

/// A change of a tool call or its result.
struct ItemChange<'a> {
    sequence: i64,
    status: Option<ToolStatus>,
    content: Option<&'a str>,
    /// Merged into the item's own.
    metadata: &'a Map<String, Value>,
}

/// An item, and the change of the conversation that it was read at.
struct Newest {
    item: Option<DisplayMessage>,
    change: i64,
}

impl Driver {
    pub(crate) async fn newest_item(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        content_type: ContentType,
    ) -> Result<Option<DisplayMessage>> {
        let newest = self.newest(&self.pool, owner, conversation_id, tool_call_id, content_type).await?;
        Ok(newest.item)
    }

    /// Returns the call, and whether the edit applied to it.
    pub(crate) async fn edit_tool_call(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        edit: &ToolCallEdit,
    ) -> Result<(DisplayMessage, bool)> {
        let (call, is_changed) = retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let edited = self.edit(lease.connection(), owner, conversation_id, tool_call_id, edit).await;
            lease.end_with(edited)
        })
        .await?;
        if is_changed {
            self.announce(conversation_id).await;
        }
        Ok((call, is_changed))
    }

    async fn edit(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        edit: &ToolCallEdit,
    ) -> Result<(DisplayMessage, bool)> {
        let of_result = edit.of_result();
        loop {
            let call = ContentType::ToolCall;
            let read = self.newest(&mut *connection, owner, conversation_id, tool_call_id, call).await?;
            let call = read.item.ok_or(Error::NotFound)?;
            if !edit.applies_to(&call) {
                return Ok((call, false));
            }
            let mut changes = vec![ItemChange {
                sequence: call.sequence,
                status: Some(edit.status),
                content: None,
                metadata: &edit.metadata,
            }];
            if let Some(metadata) = &of_result {
                let result = ContentType::ToolResult;
                let result = self.newest(&mut *connection, owner, conversation_id, tool_call_id, result).await?.item;
                changes.extend(result.map(|result| ItemChange {
                    sequence: result.sequence,
                    status: None,
                    content: None,
                    metadata,
                }));
            }
            let edited = self.change(connection, owner, conversation_id, read.change, &changes, edit.removes(&call));
            let edited = edited.await?.into_iter().find(|item| item.sequence == call.sequence);
            if let Some(call) = edited {
                return Ok((call, true));
            }
            // A concurrent writer was faster.
        }
    }

    /// Replaces the newest result of a call, or returns nothing if it doesn't mark an interrupt.
    pub(crate) async fn resolve_tool_result(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        content: &str,
        is_error: bool,
    ) -> Result<Option<DisplayMessage>> {
        let resolved = retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let connection = lease.connection();
            let resolved = self.resolve(connection, owner, conversation_id, tool_call_id, content, is_error).await;
            lease.end_with(resolved)
        })
        .await?;
        if resolved.is_some() {
            self.announce(conversation_id).await;
        }
        Ok(resolved)
    }

    async fn resolve(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        content: &str,
        is_error: bool,
    ) -> Result<Option<DisplayMessage>> {
        let flags = [(IS_INTERRUPT, false), (IS_ERROR, is_error)];
        let metadata = flags.map(|(key, flag)| (key.to_owned(), flag.into())).into_iter().collect();
        loop {
            let result = ContentType::ToolResult;
            let read = self.newest(&mut *connection, owner, conversation_id, tool_call_id, result).await?;
            let result = read.item.ok_or(Error::NotFound)?;
            if !is_interrupt(&result) {
                return Ok(None);
            }
            let (sequence, content) = (result.sequence, Some(content));
            let changes = [ItemChange { sequence, status: None, content, metadata: &metadata }];
            let resolved = self.change(connection, owner, conversation_id, read.change, &changes, &[]).await?;
            if let Some(resolved) = resolved.into_iter().next() {
                return Ok(Some(resolved));
            }
            // A concurrent writer was faster.
        }
    }

    async fn newest(
        &self,
        executor: impl PgExecutor<'_>,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        content_type: ContentType,
    ) -> Result<Newest> {
        let row = sqlx::query(&self.sql.tool_calls.newest)
            .bind(conversation_id)
            .bind(tool_call_id)
            .bind(content_type.as_str())
            .bind(owner.key())
            .fetch_optional(executor)
            .await?
            .ok_or(Error::NotFound)?;
        let item = if is_joined(&row)? { Some(display_message(&row)?) } else { None };
        Ok(Newest { item, change: row.get("conversation_change")? })
    }

    /// Changes items, and returns them. If the conversation isn't at this change any more, nothing happens. The items lose
    /// the `removed` keys of their metadata.
    async fn change(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        change: i64,
        changes: &[ItemChange<'_>],
        removed: &[&str],
    ) -> Result<Vec<DisplayMessage>> {
        let sequences: Vec<_> = changes.iter().map(|item| item.sequence).collect();
        let statuses: Vec<_> = changes.iter().map(|item| item.status.map(ToolStatus::as_str)).collect();
        let contents: Vec<_> = changes.iter().map(|item| item.content).collect();
        let metadata: Vec<_> = changes.iter().map(|item| Json(item.metadata)).collect();
        let rows = sqlx::query(&self.sql.tool_calls.change)
            .bind(conversation_id)
            .bind(change)
            .bind(Timestamp::now())
            .bind(sequences)
            .bind(statuses)
            .bind(contents)
            .bind(metadata)
            .bind(removed)
            .bind(owner.key())
            .fetch_all(connection)
            .await?;
        Ok(rows.iter().map(display_message).collect::<sqlx::Result<_>>()?)
    }
}
