//! The statements that save messages, which have several items.
//!
//! A message of which nothing is stored is one statement. For others, Rust reads the items and decides, and one statement
//! stores the changes, if the conversation is still at the change that was read.

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Json;
use uuid::Uuid;

use super::messages::{Statement, bind_usage, is_joined, joined};
use super::{Driver, retry};
use crate::rows::{Columns as _, stored_count, stored_item};
use crate::statement::statements;
use crate::store::messages::{ItemChanges, Items, StoredItem};
use crate::{Delivery, Error, NewDisplayMessage, Owner, Result, Timestamp, ToolStatus};

statements! {
    pub(super) struct Saves {
        /// Stores a message of which nothing is stored, or does nothing.
        save_new: "
            WITH new AS (
                SELECT n.item, n.role, n.content_type, n.content, n.metadata, n.tool_call_id, n.status,
                       row_number() OVER (ORDER BY n.item) AS place
                FROM unnest($3::integer[], $4::text[], $5::text[], $6::text[], $7::jsonb[], $8::text[],
                            $9::text[])
                    AS n (item, role, content_type, content, metadata, tool_call_id, status)
            ), conversation AS (
                UPDATE {conversations} AS c
                SET next_sequence = c.next_sequence + cardinality($3::integer[]),
                    last_change = c.last_change + 1,
                    updated_at = greatest(c.updated_at, $10::timestamptz)
                WHERE c.{owner} = $12::{owner_type} AND c.id = $1::uuid AND NOT EXISTS (
                    SELECT FROM {display_messages} AS m
                    WHERE m.{owner} = $12::{owner_type} AND m.conversation_id = $1::uuid
                      AND m.message_id = $2::uuid
                )
                RETURNING c.{owner}, c.id, c.updated_at, c.last_change,
                          c.next_sequence - cardinality($3::integer[]) - 1 AS last_sequence
            )
            INSERT INTO {display_messages} AS m
                ({owner}, conversation_id, sequence, message_id, item, role, content_type, content,
                 metadata, tool_call_id, status, inserted_at, changed, delivery)
            SELECT c.{owner}, c.id, c.last_sequence + n.place, $2::uuid, n.item, n.role,
                   n.content_type, n.content, n.metadata, n.tool_call_id, n.status, c.updated_at,
                   c.last_change, $11::text
            FROM conversation AS c, new AS n
            RETURNING {m.display_message_columns}",
        save_new_counted: "
            WITH new AS (
                SELECT n.item, n.role, n.content_type, n.content, n.metadata, n.tool_call_id, n.status,
                       row_number() OVER (ORDER BY n.item) AS place
                FROM unnest($3::integer[], $4::text[], $5::text[], $6::text[], $7::jsonb[], $8::text[],
                            $9::text[])
                    AS n (item, role, content_type, content, metadata, tool_call_id, status)
            ), conversation AS (
                UPDATE {conversations} AS c
                SET next_sequence = c.next_sequence + cardinality($3::integer[]),
                    last_change = c.last_change + 1,
                    updated_at = greatest(c.updated_at, $10::timestamptz)
                WHERE c.{owner} = $12::{owner_type} AND c.id = $1::uuid AND NOT EXISTS (
                    SELECT FROM {display_messages} AS m
                    WHERE m.{owner} = $12::{owner_type} AND m.conversation_id = $1::uuid
                      AND m.message_id = $2::uuid
                )
                RETURNING c.{owner}, c.id, c.updated_at, c.last_change,
                          c.next_sequence - cardinality($3::integer[]) - 1 AS last_sequence
            ), counted AS (
                INSERT INTO {usage}
                    ({owner}, conversation_id, message_id, model, input_tokens, output_tokens,
                     cached_tokens, inserted_at)
                SELECT c.{owner}, c.id, $2::uuid, $13::text, $14::bigint, $15::bigint, $16::bigint,
                       $10::timestamptz
                FROM conversation AS c
                ON CONFLICT ({owner}, conversation_id, message_id) DO NOTHING
            )
            INSERT INTO {display_messages} AS m
                ({owner}, conversation_id, sequence, message_id, item, role, content_type, content,
                 metadata, tool_call_id, status, inserted_at, changed, delivery)
            SELECT c.{owner}, c.id, c.last_sequence + n.place, $2::uuid, n.item, n.role,
                   n.content_type, n.content, n.metadata, n.tool_call_id, n.status, c.updated_at,
                   c.last_change, $11::text
            FROM conversation AS c, new AS n
            RETURNING {m.display_message_columns}",
        items: "
            SELECT c.last_change AS conversation_change, c.next_sequence AS conversation_sequence,
                   {m.display_message_columns}
            FROM {conversations} AS c
            LEFT JOIN {display_messages} AS m
                ON m.{owner} = $3::{owner_type} AND m.conversation_id = $1::uuid AND m.message_id = $2::uuid
            WHERE c.{owner} = $3::{owner_type} AND c.id = $1::uuid
            ORDER BY m.item",
        /// Stores new items and replaces others, which have a sequence already. Returns a row if the conversation was at
        /// the change.
        change: "
            WITH new AS (
                SELECT n.sequence, n.item, n.role, n.content_type, n.content, n.metadata, n.tool_call_id,
                       n.status
                FROM unnest($4::bigint[], $5::integer[], $6::text[], $7::text[], $8::text[], $9::jsonb[],
                            $10::text[], $11::text[])
                    AS n (sequence, item, role, content_type, content, metadata, tool_call_id, status)
            ), conversation AS (
                UPDATE {conversations} AS c
                SET next_sequence = c.next_sequence + $14::bigint, last_change = c.last_change + 1,
                    last_removal = CASE WHEN $15::boolean THEN c.last_change + 1 ELSE c.last_removal END,
                    updated_at = greatest(c.updated_at, $12::timestamptz)
                WHERE c.{owner} = $18::{owner_type} AND c.id = $1::uuid AND c.last_change = $3::bigint
                RETURNING c.{owner}, c.id, c.last_change, c.updated_at
            ), counted AS (
                INSERT INTO {usage}
                    ({owner}, conversation_id, message_id, model, input_tokens, output_tokens,
                     cached_tokens, inserted_at)
                SELECT c.{owner}, c.id, $2::uuid, n.model, n.input, n.output, n.cached, $12::timestamptz
                FROM conversation AS c, unnest($19::text[], $20::bigint[], $21::bigint[], $22::bigint[])
                    AS n (model, input, output, cached)
                ON CONFLICT ({owner}, conversation_id, message_id) DO NOTHING
            ), written AS (
                INSERT INTO {display_messages} AS m
                    ({owner}, conversation_id, sequence, message_id, item, role, content_type, content,
                     metadata, tool_call_id, status, inserted_at, changed, delivery)
                SELECT c.{owner}, c.id, n.sequence, $2::uuid, n.item, n.role, n.content_type, n.content,
                       n.metadata, n.tool_call_id, n.status, c.updated_at, c.last_change, $13::text
                FROM conversation AS c, new AS n
                ON CONFLICT ({owner}, conversation_id, sequence) DO UPDATE
                SET role = excluded.role, content_type = excluded.content_type,
                    content = excluded.content, metadata = excluded.metadata,
                    tool_call_id = excluded.tool_call_id, status = excluded.status,
                    changed = excluded.changed, delivery = excluded.delivery
                RETURNING {m.display_message_columns}
            ), deleted AS (
                DELETE FROM {display_messages} AS m USING conversation AS c
                WHERE m.{owner} = $18::{owner_type} AND m.conversation_id = c.id
                  AND m.sequence = ANY ($16::bigint[])
            ), touched AS (
                UPDATE {display_messages} AS m SET changed = c.last_change FROM conversation AS c
                WHERE m.{owner} = $18::{owner_type} AND m.conversation_id = c.id
                  AND m.sequence = $17::bigint
                RETURNING {m.display_message_columns}
            )
            SELECT {m.display_message_columns}
            FROM conversation AS c
            LEFT JOIN (
                SELECT {m.display_message_columns} FROM written AS m
                UNION ALL
                SELECT {m.display_message_columns} FROM touched AS m
            ) AS m ON TRUE",
        /// The last message that stays when some are deleted.
        last: "
            SELECT max(m.sequence) FROM {display_messages} AS m
            WHERE m.{owner} = $3::{owner_type} AND m.conversation_id = $1::uuid
              AND m.sequence <> ALL ($2::bigint[])",
    }
}

/// A message as it's stored, and the change of the conversation that it was read at.
pub(super) struct StoredMessage {
    pub(super) rows: Vec<PgRow>,
    change: i64,
    next_sequence: i64,
}

impl Driver {
    /// Stores the items of a message, and returns all of them in order.
    pub(crate) async fn save_items(&self, owner: &Owner, conversation_id: Uuid, items: &Items) -> Result<Vec<PgRow>> {
        let mut rows = retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let saved = self.save(lease.connection(), owner, conversation_id, items).await;
            lease.end_with(saved)
        })
        .await?;
        self.announce(conversation_id).await;
        let stored = rows.iter().map(stored_item).collect::<sqlx::Result<Vec<_>>>()?;
        if items.delivery == Delivery::Stored && stored.iter().any(StoredItem::is_unsettled) {
            // An earlier call didn't know whether the agent state contains it.
            let known = [(items.message_id, Delivery::Stored)];
            self.settle_messages(owner, conversation_id, &known).await.map(drop)?;
            let mut connection = self.pool.acquire().await?;
            rows = self.items(&mut connection, owner, conversation_id, items.message_id).await?.rows;
        }
        Ok(rows)
    }

    async fn save(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        items: &Items,
    ) -> Result<Vec<PgRow>> {
        // A draft exists, except for the first time.
        if items.delivery != Delivery::Draft && !items.messages.is_empty() {
            let stored = self.save_new(connection, owner, conversation_id, items).await?;
            if !stored.is_empty() {
                return Ok(stored);
            }
        }
        loop {
            let message = self.items(connection, owner, conversation_id, items.message_id).await?;
            let stored = message.rows.iter().map(stored_item).collect::<sqlx::Result<Vec<_>>>()?;
            let Some(changes) = items.changes(&stored) else {
                if let Some(usage) = &items.usage {
                    self.count(connection, owner, conversation_id, items.message_id, usage).await?;
                }
                return Ok(message.rows);
            };
            if let Some(rows) = self.change_items(connection, owner, conversation_id, items, message, &changes).await? {
                return Ok(rows);
            }
            // A concurrent writer was faster.
        }
    }

    /// Stores a message of which nothing is stored, or returns nothing.
    async fn save_new(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        items: &Items,
    ) -> Result<Vec<PgRow>> {
        let statement = match items.usage {
            Some(_) => &self.sql.saves.save_new_counted,
            None => &self.sql.saves.save_new,
        };
        let mut query = sqlx::query(statement).bind(conversation_id).bind(items.message_id);
        query = bind_items(query, items.messages.iter())
            .bind(Timestamp::now())
            .bind(items.delivery.as_stored())
            .bind(owner.key());
        if let Some(usage) = &items.usage {
            query = bind_usage(query, usage);
        }
        let mut rows = query.fetch_all(connection).await?;
        sort(&mut rows)?;
        Ok(rows)
    }

    /// Changes the stored items of a message, and returns all of them, or nothing if the conversation was changed since
    /// they were read.
    async fn change_items(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        items: &Items,
        stored: StoredMessage,
        changes: &ItemChanges<'_>,
    ) -> Result<Option<Vec<PgRow>>> {
        let added = (stored.next_sequence..).zip(changes.added.iter().copied());
        let (sequences, written): (Vec<i64>, Vec<_>) = added.chain(changes.replaced.iter().copied()).unzip();
        // The last row that stays gets the number of a removal, too, as in a rewind.
        let mut touched: Option<i64> = None;
        if changes.is_removal && changes.added.is_empty() {
            let last = sqlx::query_scalar(&self.sql.saves.last).bind(conversation_id).bind(&changes.deleted);
            touched = last.bind(owner.key()).fetch_one(&mut *connection).await?;
        }
        let usage = items.usage.as_slice();
        let query = sqlx::query(&self.sql.saves.change)
            .bind(conversation_id)
            .bind(items.message_id)
            .bind(stored.change)
            .bind(&sequences);
        let rows = bind_items(query, written.iter().copied())
            .bind(Timestamp::now())
            .bind(items.delivery.as_stored())
            .bind(i64::try_from(changes.added.len()).unwrap_or(i64::MAX))
            .bind(changes.is_removal)
            .bind(&changes.deleted)
            .bind(touched.filter(|last| !sequences.contains(last)))
            .bind(owner.key())
            .bind(usage.iter().map(|usage| usage.model.as_deref()).collect::<Vec<_>>())
            .bind(usage.iter().map(|usage| stored_count(usage.tokens.input)).collect::<Vec<_>>())
            .bind(usage.iter().map(|usage| stored_count(usage.tokens.output)).collect::<Vec<_>>())
            .bind(usage.iter().map(|usage| stored_count(usage.tokens.cached)).collect::<Vec<_>>())
            .fetch_all(connection)
            .await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let (mut saved, mut is_changed) = (Vec::new(), changes.deleted.clone());
        for row in rows {
            // The last row that stays may belong to another message.
            if is_joined(&row)? && row.get::<Uuid>("message_id")? == items.message_id {
                is_changed.push(row.get("sequence")?);
                saved.push(row);
            }
        }
        for row in stored.rows {
            if !is_changed.contains(&row.get("sequence")?) {
                saved.push(row);
            }
        }
        sort(&mut saved)?;
        Ok(Some(saved))
    }

    /// What's stored of a message.
    pub(super) async fn items(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        message_id: Uuid,
    ) -> Result<StoredMessage> {
        let rows = sqlx::query(&self.sql.saves.items)
            .bind(conversation_id)
            .bind(message_id)
            .bind(owner.key())
            .fetch_all(connection)
            .await?;
        let first = rows.first().ok_or(Error::NotFound)?;
        let (change, next_sequence) = (first.get("conversation_change")?, first.get("conversation_sequence")?);
        Ok(StoredMessage { rows: joined(rows)?, change, next_sequence })
    }
}

fn sort(rows: &mut Vec<PgRow>) -> sqlx::Result<()> {
    let keyed = rows.drain(..).map(|row| Ok((row.get::<i32>("item")?, row)));
    let mut keyed = keyed.collect::<sqlx::Result<Vec<_>>>()?;
    keyed.sort_by_key(|(item, _)| *item);
    rows.extend(keyed.into_iter().map(|(_, row)| row));
    Ok(())
}

/// Binds items, as one array for each column.
fn bind_items<'a>(query: Statement, messages: impl Iterator<Item = &'a NewDisplayMessage> + Clone) -> Statement {
    query
        .bind(messages.clone().map(|new| new.item).collect::<Vec<_>>())
        .bind(messages.clone().map(|new| new.role.as_str()).collect::<Vec<_>>())
        .bind(messages.clone().map(|new| new.content_type.as_str()).collect::<Vec<_>>())
        .bind(messages.clone().map(|new| new.content.as_str()).collect::<Vec<_>>())
        .bind(messages.clone().map(|new| Json(&new.metadata)).collect::<Vec<_>>())
        .bind(messages.clone().map(|new| new.tool_call_id.as_deref()).collect::<Vec<_>>())
        .bind(messages.map(|new| new.status.map(ToolStatus::as_str)).collect::<Vec<_>>())
}
