//! The statements that export conversations and import them.

use serde_json::{Map, Value, json};
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use sqlx::{Connection as _, Executor as _, Row as _};
use uuid::Uuid;

use super::Driver;
use super::lease::Lease;
use crate::export::{self, MessageRows, Record};
use crate::rows::{conversation, stored_count};
use crate::statement::statements;
use crate::store::exports::{Sink, Source, change_of, refused_column};
use crate::stored::Row;
use crate::{Conversation, Error, ExportedConversation, ExportedMessage, ExportedUsage, Owner, Result, ToolStatus};

statements! {
    pub(super) struct Exports {
        conversation: "
            SELECT {c.conversation_columns}, to_jsonb(c) AS all_columns FROM {conversations} AS c
            WHERE c.{owner} = $1::{owner_type} AND c.id = $2::uuid",
        state: "
            SELECT epoch, data FROM {agent_states}
            WHERE {owner} = $1::{owner_type} AND conversation_id = $2::uuid",
        agent_messages: "
            SELECT position, message_id, data FROM {agent_messages}
            WHERE {owner} = $1::{owner_type} AND conversation_id = $2::uuid
              AND epoch = $3::bigint AND position > $4::integer
            ORDER BY position LIMIT $5::bigint",
        display_messages: "
            SELECT {display_message_columns} FROM {display_messages}
            WHERE {owner} = $1::{owner_type} AND conversation_id = $2::uuid AND sequence > $3::bigint
            ORDER BY sequence LIMIT $4::bigint",
        /// No id is before the first one, so a page starts with the last row of the previous one.
        usage: "
            SELECT message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at FROM {usage}
            WHERE {owner} = $1::{owner_type} AND conversation_id = $2::uuid AND message_id >= $3::uuid
            ORDER BY message_id LIMIT $4::bigint",
    }
}

statements! {
    pub(super) struct Imports {
        conversation: "
            INSERT INTO {conversations}
                ({owner}, id, title, scope, metadata, interrupted, inserted_at, updated_at, archived_at)
            VALUES ($1::{owner_type}, $2::uuid, $3::text, $4::jsonb, $5::jsonb, $6::boolean, $7::timestamptz,
                    $8::timestamptz, $9::timestamptz)
            ON CONFLICT ({owner}, id) DO NOTHING",
        state: "
            INSERT INTO {agent_states}
                ({owner}, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
            VALUES ($1::{owner_type}, $2::uuid, $3::integer, 1, $4::uuid, $5::json, $6::timestamptz, $6::timestamptz)",
        agent_messages: "
            INSERT INTO {agent_messages} ({owner}, conversation_id, epoch, position, message_id, data)
            SELECT c.{owner}, c.id, 0, n.position, n.message_id, n.data::json
            FROM {conversations} AS c
            CROSS JOIN unnest($3::integer[], $4::uuid[], $5::text[]) AS n (position, message_id, data)
            WHERE c.{owner} = $1::{owner_type} AND c.id = $2::uuid",
        display_messages: "
            INSERT INTO {display_messages}
                ({owner}, conversation_id, sequence, message_id, item, role, content_type, content, metadata,
                 tool_call_id, status, inserted_at, delivery, changed)
            SELECT c.{owner}, c.id, n.sequence, n.message_id, n.item, n.role, n.content_type, n.content, n.metadata,
                   n.tool_call_id, n.status, n.inserted_at, n.delivery, n.changed
            FROM {conversations} AS c
            CROSS JOIN unnest(
                $3::bigint[], $4::uuid[], $5::integer[], $6::text[], $7::text[], $8::text[], $9::jsonb[],
                $10::text[], $11::text[], $12::timestamptz[], $13::text[], $14::bigint[]
            ) AS n (sequence, message_id, item, role, content_type, content, metadata,
                    tool_call_id, status, inserted_at, delivery, changed)
            WHERE c.{owner} = $1::{owner_type} AND c.id = $2::uuid",
        usage: "
            INSERT INTO {usage}
                ({owner}, conversation_id, message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at)
            SELECT c.{owner}, c.id, n.message_id, n.model, n.input_tokens, n.output_tokens, n.cached_tokens,
                   n.inserted_at
            FROM {conversations} AS c
            CROSS JOIN unnest(
                $3::uuid[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::timestamptz[]
            ) AS n (message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at)
            WHERE c.{owner} = $1::{owner_type} AND c.id = $2::uuid",
        finish: "
            UPDATE {conversations} SET next_sequence = $3::bigint, last_change = $4::bigint
            WHERE {owner} = $1::{owner_type} AND id = $2::uuid
            RETURNING {conversation_columns}",
    }
}

/// Converts from JSON to the column's type, whatever it is.
pub(super) const SET_OWN_COLUMN: &str = "
    UPDATE {conversations} AS c SET {column} = (jsonb_populate_record(c, $3::jsonb)).{column}
    WHERE c.{owner} = $1::{owner_type} AND c.id = $2::uuid";

impl Driver {
    pub(crate) async fn export_conversation(&self, owner: &Owner, id: Uuid, sink: &mut impl Sink) -> Result<()> {
        const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

        let mut lease = Lease::take(&self.pool, ()).await?;
        let snapshot = lease.connection();
        snapshot.execute(BEGIN).await?;
        let select = sqlx::query(&self.sql.exports.conversation).bind(owner.key()).bind(id);
        let row = select.fetch_optional(&mut *snapshot).await?.ok_or(Error::NotFound)?;
        let Json(mut columns): Json<Map<String, Value>> = row.try_get("all_columns")?;
        columns.retain(|column, _| self.tables.own_conversation_columns().any(|own| own == column));
        sink.take(Record::Conversation(conversation(&row)?.into_export(columns))).await?;
        let select = sqlx::query(&self.sql.exports.state).bind(owner.key()).bind(id);
        if let Some(row) = select.fetch_optional(&mut *snapshot).await? {
            let (state, messages) = MessageRows::of_header(row.try_get_unchecked("data")?)?;
            for record in Record::of_state(state) {
                sink.take(record).await?;
            }
            if let Some(messages) = messages {
                let epoch = row.try_get("epoch")?;
                self.export_agent_messages(snapshot, owner, id, epoch, messages, sink).await?;
            }
        }
        self.export_display_messages(snapshot, owner, id, sink).await?;
        self.export_usage(snapshot, owner, id, sink).await?;
        snapshot.execute("COMMIT").await?;
        lease.end();
        Ok(())
    }

    /// Returns nothing, and stores nothing, if the owner has a conversation with this id.
    pub(crate) async fn import_conversation(
        &self,
        owner: &Owner,
        new: &ExportedConversation,
        source: Source<'_>,
    ) -> Result<Option<Conversation>> {
        // The source is read once, so nothing is repeated. No other call can have the new row.
        let mut lease = self.lease(owner, new.id).await?;
        let mut tx = lease.connection().begin().await?;
        let inserted = sqlx::query(&self.sql.imports.conversation)
            .bind(owner.key())
            .bind(new.id)
            .bind(&new.title)
            .bind(Json(owner.to_json()))
            .bind(Json(&new.metadata))
            .bind(new.interrupted)
            .bind(new.inserted_at)
            .bind(new.updated_at)
            .bind(new.archived_at)
            .execute(&mut *tx)
            .await?;
        if inserted.rows_affected() == 0 {
            tx.rollback().await?;
            lease.end();
            return Ok(None);
        }
        for (column, statement) in self.own_columns.iter() {
            if let Some(value) = new.columns.get(column) {
                let value = json!({ column: own_value(value) });
                let update = sqlx::query(statement).bind(owner.key()).bind(new.id).bind(Json(value));
                update.execute(&mut *tx).await.map_err(|error| refused_column(column, error))?;
            }
        }
        let (mut state, mut count) = (None, 0_i32);
        let (mut messages, mut next_sequence, mut last_change) = (0, 0, 0);
        let mut batch = Batch::default();
        while let Some(record) = source()? {
            match record {
                Record::Conversation(_) => {}
                Record::State(found) => state = Some(found),
                Record::AgentMessage { id, message } => {
                    let row = export::row(id, &message, count)?;
                    batch.bytes += row.data.len();
                    batch.agent_messages.push(row);
                    count = count.saturating_add(1);
                }
                Record::Message(message) => {
                    (next_sequence, last_change) = (message.sequence + 1, change_of(messages));
                    batch.bytes += message.content.len();
                    batch.messages.push((*message, last_change));
                    messages += 1;
                }
                Record::Usage(usage) => batch.usage.push(usage),
            }
            if batch.is_full() {
                self.import_batch(&mut tx, owner, new.id, &batch).await?;
                batch = Batch::default();
            }
        }
        self.import_batch(&mut tx, owner, new.id, &batch).await?;
        if let Some(state) = state {
            self.import_state(&mut tx, owner, new.id, &state, count).await?;
        }
        let finish = sqlx::query(&self.sql.imports.finish).bind(owner.key()).bind(new.id);
        let row = finish.bind(next_sequence).bind(last_change).fetch_one(&mut *tx).await?;
        tx.commit().await?;
        lease.end();
        Ok(Some(conversation(&row)?))
    }

    async fn import_batch(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        batch: &Batch,
    ) -> Result<()> {
        if !batch.agent_messages.is_empty() {
            self.import_agent_messages(connection, owner, conversation_id, &batch.agent_messages).await?;
        }
        if !batch.messages.is_empty() {
            self.import_display_messages(connection, owner, conversation_id, &batch.messages).await?;
        }
        if !batch.usage.is_empty() {
            self.import_usage(connection, owner, conversation_id, &batch.usage).await?;
        }
        Ok(())
    }

    async fn import_agent_messages(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        rows: &[Row],
    ) -> Result<()> {
        sqlx::query(&self.sql.imports.agent_messages)
            .bind(owner.key())
            .bind(conversation_id)
            .bind(all(rows, |row| row.position))
            .bind(all(rows, |row| row.message_id))
            .bind(all(rows, |row| row.data.as_str()))
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn import_display_messages(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        messages: &[(ExportedMessage, i64)],
    ) -> Result<()> {
        sqlx::query(&self.sql.imports.display_messages)
            .bind(owner.key())
            .bind(conversation_id)
            .bind(all(messages, |(message, _)| message.sequence))
            .bind(all(messages, |(message, _)| message.message_id))
            .bind(all(messages, |(message, _)| message.item))
            .bind(all(messages, |(message, _)| message.role.as_str()))
            .bind(all(messages, |(message, _)| message.content_type.as_str()))
            .bind(all(messages, |(message, _)| message.content.as_str()))
            .bind(all(messages, |(message, _)| Json(&message.metadata)))
            .bind(all(messages, |(message, _)| message.tool_call_id.as_deref()))
            .bind(all(messages, |(message, _)| message.status.map(ToolStatus::as_str)))
            .bind(all(messages, |(message, _)| message.inserted_at))
            .bind(all(messages, |(message, _)| message.delivery.as_stored()))
            .bind(all(messages, |(_, changed)| *changed))
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn import_usage(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        usage: &[ExportedUsage],
    ) -> Result<()> {
        sqlx::query(&self.sql.imports.usage)
            .bind(owner.key())
            .bind(conversation_id)
            .bind(all(usage, |usage| usage.message_id))
            .bind(all(usage, |usage| usage.model.as_deref()))
            .bind(all(usage, |usage| stored_count(usage.input_tokens)))
            .bind(all(usage, |usage| stored_count(usage.output_tokens)))
            .bind(all(usage, |usage| stored_count(usage.cached_tokens)))
            .bind(all(usage, |usage| usage.inserted_at))
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// Rows that are inserted together.
#[derive(Default)]
struct Batch {
    agent_messages: Vec<Row>,
    /// With the number of the change that each belongs to.
    messages: Vec<(ExportedMessage, i64)>,
    usage: Vec<ExportedUsage>,
    /// The size of the largest columns.
    bytes: usize,
}

impl Batch {
    fn is_full(&self) -> bool {
        let rows = self.agent_messages.len() + self.messages.len() + self.usage.len();
        rows >= 1000 || self.bytes >= 1024 * 1024
    }
}

/// A column of rows.
fn all<'a, T, C>(rows: &'a [T], column: impl Fn(&'a T) -> C) -> Vec<C> {
    rows.iter().map(column).collect()
}

/// The value of a host's column as JSON that converts to the column's type. `SQLite` exports bytes as `{"hex": "…"}`, and
/// UUIDs are bytes there.
fn own_value(value: &Value) -> &Value {
    match value {
        Value::Object(object) if object.len() == 1 => object.get("hex").unwrap_or(value),
        _ => value,
    }
}
