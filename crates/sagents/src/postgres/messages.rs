//! The statements for display messages. Rust decides how deliveries change, and one statement changes them, if the
//! conversation is still at the change that was read.

use futures_util::TryStreamExt as _;
use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;
use uuid::Uuid;

use super::errors::{UNIQUE_VIOLATION, code};
use super::{Driver, retry};
use crate::page::{Bound, PageRows};
use crate::rows::{Columns as _, size, stored_count, stored_item};
use crate::statement::statements;
use crate::store::messages::{Settled, settled};
use crate::{
    Delivery, Error, MessagePage, MessageUsage, NewDisplayMessage, Owner, Result, Timestamp, ToolStatus, usage_of,
};

statements! {
    pub(super) struct DisplayMessages {
        append: "
            WITH conversation AS (
                UPDATE {conversations} AS c
                SET next_sequence = c.next_sequence + 1, last_change = c.last_change + 1,
                    updated_at = greatest(c.updated_at, $10::timestamptz)
                WHERE c.{owner} = $11::{owner_type} AND c.id = $1::uuid
                RETURNING c.{owner}, c.id, c.next_sequence - 1 AS sequence, c.last_change, c.updated_at
            )
            INSERT INTO {display_messages} AS m
                ({owner}, conversation_id, sequence, message_id, item, role, content_type, content,
                 metadata, tool_call_id, status, inserted_at, changed)
            SELECT c.{owner}, c.id, c.sequence, $2::uuid, $3::integer, $4::text, $5::text, $6::text,
                   $7::jsonb, $8::text, $9::text, c.updated_at, c.last_change
            FROM conversation AS c
            RETURNING {m.display_message_columns}",
        append_counted: "
            WITH conversation AS (
                UPDATE {conversations} AS c
                SET next_sequence = c.next_sequence + 1, last_change = c.last_change + 1,
                    updated_at = greatest(c.updated_at, $10::timestamptz)
                WHERE c.{owner} = $11::{owner_type} AND c.id = $1::uuid
                RETURNING c.{owner}, c.id, c.next_sequence - 1 AS sequence, c.last_change, c.updated_at
            ), counted AS (
                INSERT INTO {usage}
                    ({owner}, conversation_id, message_id, model, input_tokens, output_tokens,
                     cached_tokens, inserted_at)
                SELECT c.{owner}, c.id, $2::uuid, $12::text, $13::bigint, $14::bigint, $15::bigint,
                       $10::timestamptz
                FROM conversation AS c
                ON CONFLICT ({owner}, conversation_id, message_id) DO NOTHING
            )
            INSERT INTO {display_messages} AS m
                ({owner}, conversation_id, sequence, message_id, item, role, content_type, content,
                 metadata, tool_call_id, status, inserted_at, changed)
            SELECT c.{owner}, c.id, c.sequence, $2::uuid, $3::integer, $4::text, $5::text, $6::text,
                   $7::jsonb, $8::text, $9::text, c.updated_at, c.last_change
            FROM conversation AS c
            RETURNING {m.display_message_columns}",
        item: "
            SELECT {m.display_message_columns} FROM {display_messages} AS m
            WHERE m.{owner} = $4::{owner_type} AND m.conversation_id = $1::uuid
              AND m.message_id = $2::uuid AND m.item = $3::integer",
        unsettled: "
            SELECT DISTINCT m.message_id, m.delivery FROM {display_messages} AS m
            WHERE m.{owner} = $2::{owner_type} AND m.conversation_id = $1::uuid
              AND m.delivery IN ('draft', 'unsaved')
            ORDER BY m.message_id",
        deliveries: "
            SELECT c.last_change AS conversation_change, m.sequence, m.message_id, m.item, m.delivery
            FROM {conversations} AS c
            LEFT JOIN {display_messages} AS m
                ON m.{owner} = $3::{owner_type} AND m.conversation_id = $1::uuid
               AND m.message_id = ANY ($2::uuid[])
            WHERE c.{owner} = $3::{owner_type} AND c.id = $1::uuid",
        /// Without the array in the condition, the server may look at all messages of the conversation.
        /// What readers needn't know keeps its number. Another process may have changed a delivery without a number.
        settle: "
            WITH new AS (
                SELECT n.sequence, n.earlier, n.later, n.is_visible
                FROM unnest($5::bigint[], $6::text[], $7::text[], $8::boolean[])
                    AS n (sequence, earlier, later, is_visible)
            ), conversation AS (
                UPDATE {conversations} AS c
                SET last_change = c.last_change + $4::bigint,
                    updated_at = greatest(c.updated_at, $3::timestamptz)
                WHERE c.{owner} = $9::{owner_type} AND c.id = $1::uuid AND c.last_change = $2::bigint
                RETURNING c.id, c.last_change
            )
            UPDATE {display_messages} AS m
            SET delivery = n.later,
                changed = CASE WHEN n.is_visible THEN c.last_change ELSE m.changed END
            FROM conversation AS c, new AS n
            WHERE m.{owner} = $9::{owner_type} AND m.conversation_id = c.id
              AND m.sequence = ANY ($5::bigint[]) AND m.sequence = n.sequence AND m.delivery = n.earlier
            RETURNING {m.display_message_columns}",
        /// The left join tells a conversation without messages from one that doesn't exist.
        forward: "
            SELECT {m.display_message_columns}
            FROM {conversations} AS c
            LEFT JOIN (
                SELECT {m.display_message_columns} FROM {display_messages} AS m
                WHERE m.{owner} = $4::{owner_type} AND m.conversation_id = $1::uuid AND m.sequence > $2::bigint
                ORDER BY m.sequence LIMIT $3::bigint
            ) AS m ON TRUE
            WHERE c.{owner} = $4::{owner_type} AND c.id = $1::uuid
            ORDER BY m.sequence",
        backward: "
            SELECT {m.display_message_columns}
            FROM {conversations} AS c
            LEFT JOIN (
                SELECT {m.display_message_columns} FROM {display_messages} AS m
                WHERE m.{owner} = $4::{owner_type} AND m.conversation_id = $1::uuid AND m.sequence < $2::bigint
                ORDER BY m.sequence DESC LIMIT $3::bigint
            ) AS m ON TRUE
            WHERE c.{owner} = $4::{owner_type} AND c.id = $1::uuid
            ORDER BY m.sequence DESC",
        touch: "
            WITH conversation AS (
                UPDATE {conversations} AS c SET last_change = c.last_change + 1
                WHERE c.{owner} = $3::{owner_type} AND c.id = $1::uuid AND EXISTS (
                    SELECT FROM {display_messages} AS m
                    WHERE m.{owner} = $3::{owner_type} AND m.conversation_id = $1::uuid
                      AND m.sequence = ANY ($2::bigint[])
                )
                RETURNING c.id, c.last_change
            )
            UPDATE {display_messages} AS m SET changed = c.last_change FROM conversation AS c
            WHERE m.{owner} = $3::{owner_type} AND m.conversation_id = c.id
              AND m.sequence = ANY ($2::bigint[])",
        clear: "
            WITH conversation AS (
                UPDATE {conversations} AS c
                SET last_change = c.last_change + 1, last_removal = c.last_change + 1,
                    updated_at = greatest(c.updated_at, $2::timestamptz)
                WHERE c.{owner} = $3::{owner_type} AND c.id = $1::uuid
                RETURNING c.id
            ), deleted AS (
                DELETE FROM {display_messages} AS m USING conversation AS c
                WHERE m.{owner} = $3::{owner_type} AND m.conversation_id = c.id
                RETURNING m.sequence
            )
            SELECT (SELECT count(*) FROM deleted) FROM conversation AS c",
    }
}

impl Driver {
    pub(crate) async fn append_display_message(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        message: &NewDisplayMessage,
    ) -> Result<PgRow> {
        let usage = usage_of(&message.metadata);
        let row = retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let connection = lease.connection();
            let appended = match self.append(connection, owner, conversation_id, message, usage.as_ref()).await {
                // The item exists, and the statement was undone.
                Err(error) if code(&error).as_deref() == Some(UNIQUE_VIOLATION) => {
                    let stored = self.item(connection, owner, conversation_id, message).await?;
                    stored.ok_or(Error::Database(error))
                }
                appended => appended.map_err(Error::from).and_then(|row| row.ok_or(Error::NotFound)),
            };
            lease.end_with(appended)
        })
        .await?;
        self.announce(conversation_id).await;
        Ok(row)
    }

    async fn append(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        message: &NewDisplayMessage,
        usage: Option<&MessageUsage>,
    ) -> sqlx::Result<Option<PgRow>> {
        let statement = match usage {
            Some(_) => &self.sql.messages.append_counted,
            None => &self.sql.messages.append,
        };
        let mut query = sqlx::query(statement)
            .bind(conversation_id)
            .bind(message.message_id)
            .bind(message.item)
            .bind(message.role.as_str())
            .bind(message.content_type.as_str())
            .bind(&message.content)
            .bind(Json(&message.metadata))
            .bind(&message.tool_call_id)
            .bind(message.status.map(ToolStatus::as_str))
            .bind(Timestamp::now())
            .bind(owner.key());
        if let Some(usage) = usage {
            query = bind_usage(query, usage);
        }
        query.fetch_optional(connection).await
    }

    async fn item(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        message: &NewDisplayMessage,
    ) -> Result<Option<PgRow>> {
        let query = sqlx::query(&self.sql.messages.item)
            .bind(conversation_id)
            .bind(message.message_id)
            .bind(message.item)
            .bind(owner.key());
        Ok(query.fetch_optional(connection).await?)
    }

    /// Changes deliveries, and returns the items that readers get again.
    pub(crate) async fn settle_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        messages: &[(Uuid, Delivery)],
    ) -> Result<Vec<PgRow>> {
        let visible = retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let settled = self.settle(lease.connection(), owner, conversation_id, messages).await;
            lease.end_with(settled)
        })
        .await?;
        if !visible.is_empty() {
            self.announce(conversation_id).await;
        }
        Ok(visible)
    }

    async fn settle(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        messages: &[(Uuid, Delivery)],
    ) -> Result<Vec<PgRow>> {
        let ids: Vec<_> = messages.iter().map(|(id, _)| *id).collect();
        loop {
            let deliveries = sqlx::query(&self.sql.messages.deliveries)
                .bind(conversation_id)
                .bind(&ids)
                .bind(owner.key())
                .fetch_all(&mut *connection)
                .await?;
            let Some(first) = deliveries.first() else {
                return Ok(Vec::new());
            };
            let change: i64 = first.get("conversation_change")?;
            let (mut sequences, mut earlier, mut later, mut visible) = (vec![], vec![], vec![], vec![]);
            for row in joined(deliveries)? {
                let (item, message_id) = (stored_item(&row)?, row.get::<Uuid>("message_id")?);
                for (_, delivery) in messages.iter().filter(|(id, _)| *id == message_id) {
                    if let Some(settled) = settled(item.delivery, *delivery) {
                        sequences.push(item.sequence);
                        earlier.push(item.delivery.as_stored());
                        later.push(delivery.as_stored());
                        visible.push(settled == Settled::Visible);
                    }
                }
            }
            if sequences.is_empty() {
                return Ok(Vec::new());
            }
            let is_visible = visible.contains(&true);
            let rows = sqlx::query(&self.sql.messages.settle)
                .bind(conversation_id)
                .bind(change)
                .bind(Some(Timestamp::now()).filter(|_| is_visible))
                .bind(i64::from(is_visible))
                .bind(sequences)
                .bind(earlier)
                .bind(later)
                .bind(visible)
                .bind(owner.key())
                .fetch_all(&mut *connection)
                .await?;
            if !rows.is_empty() {
                let changed = rows.into_iter().map(|row| Ok((row.get::<i64>("changed")?, row)));
                let changed = changed.collect::<sqlx::Result<Vec<_>>>()?;
                return Ok(changed.into_iter().filter(|(number, _)| *number > change).map(|(_, row)| row).collect());
            }
            // A concurrent writer was faster.
        }
    }

    pub(crate) async fn load_display_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        bound: Bound,
        limit: u32,
    ) -> Result<PageRows<PgRow>> {
        let (statement, sequence) = match bound {
            Bound::After(sequence) => (&self.sql.messages.forward, sequence),
            Bound::Before(sequence) => (&self.sql.messages.backward, sequence),
        };
        let query = sqlx::query(statement).bind(conversation_id).bind(sequence).bind(i64::from(limit));
        let (mut page, mut exists) = (PageRows::new(limit, MessagePage::MAX_BYTES), false);
        let mut rows = query.bind(owner.key()).fetch(&self.pool);
        while let Some(row) = rows.try_next().await? {
            exists = true;
            if !is_joined(&row)? {
                break;
            }
            let size = size(&row)?;
            if !page.push(row, size, |_, _| false) {
                break;
            }
        }
        if exists { Ok(page) } else { Err(Error::NotFound) }
    }

    /// Gives display messages a new change number, and returns how many of them exist.
    pub(crate) async fn touch_display_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        sequences: &[i64],
    ) -> Result<u64> {
        let touched = retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let touch = sqlx::query(&self.sql.messages.touch).bind(conversation_id).bind(sequences).bind(owner.key());
            let touched = touch.execute(lease.connection()).await?.rows_affected();
            lease.end();
            Ok(touched)
        })
        .await?;
        if touched > 0 {
            self.announce(conversation_id).await;
        }
        Ok(touched)
    }

    pub(crate) async fn clear_display_messages(&self, owner: &Owner, conversation_id: Uuid) -> Result<u64> {
        let deleted: i64 = retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let deleted = sqlx::query_scalar(&self.sql.messages.clear)
                .bind(conversation_id)
                .bind(Timestamp::now())
                .bind(owner.key())
                .fetch_optional(lease.connection())
                .await?;
            lease.end();
            deleted.ok_or(Error::NotFound)
        })
        .await?;
        self.announce(conversation_id).await;
        Ok(deleted.unsigned_abs())
    }
}

/// Whether a left join found a display message.
pub(super) fn is_joined(row: &PgRow) -> sqlx::Result<bool> {
    Ok(row.get::<Option<i64>>("sequence")?.is_some())
}

/// The display messages that a left join found.
pub(super) fn joined(rows: Vec<PgRow>) -> sqlx::Result<Vec<PgRow>> {
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        if is_joined(&row)? {
            found.push(row);
        }
    }
    Ok(found)
}

/// A statement with its parameters.
pub(super) type Statement = Query<'static, Postgres, PgArguments>;

/// Binds what a message cost.
pub(super) fn bind_usage(query: Statement, usage: &MessageUsage) -> Statement {
    query
        .bind(&usage.model)
        .bind(stored_count(usage.tokens.input))
        .bind(stored_count(usage.tokens.output))
        .bind(stored_count(usage.tokens.cached))
}
