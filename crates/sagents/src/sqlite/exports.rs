//! The statements that export conversations and import them.

use serde_json::{Map, Value, json};
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::types::Json;
use sqlx::{Row as _, TypeInfo as _, ValueRef as _};
use uuid::Uuid;

use super::Driver;
use super::lease::Snapshot;
use crate::export::{self, MessageRows, Record};
use crate::rows::{conversation, stored_count};
use crate::statement::statements;
use crate::store::exports::{Sink, Source, change_of, refused_column};
use crate::stored::Row;
use crate::{Conversation, Error, ExportedConversation, ExportedMessage, ExportedUsage, Owner, Result, ToolStatus};

statements! {
    pub(super) struct Exports {
        conversation: "
            SELECT {conversation_columns} FROM {conversations}
            WHERE {owner} = $1 AND id = $2",
        state: "
            SELECT epoch, data FROM {agent_states}
            WHERE {owner} = $1 AND conversation_id = $2",
        agent_messages: "
            SELECT position, message_id, data FROM {agent_messages}
            WHERE {owner} = $1 AND conversation_id = $2 AND epoch = $3 AND position > $4
            ORDER BY position LIMIT $5",
        display_messages: "
            SELECT {display_message_columns} FROM {display_messages}
            WHERE {owner} = $1 AND conversation_id = $2 AND sequence > $3
            ORDER BY sequence LIMIT $4",
        /// No id is before the first one, so a page starts with the last row of the previous one.
        usage: "
            SELECT message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at FROM {usage}
            WHERE {owner} = $1 AND conversation_id = $2 AND message_id >= $3
            ORDER BY message_id LIMIT $4",
    }
}

statements! {
    pub(super) struct Imports {
        conversation: "
            INSERT INTO {conversations}
                ({owner}, id, title, scope, metadata, interrupted, inserted_at, updated_at, archived_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
            ON CONFLICT ({owner}, id) DO NOTHING",
        state: "
            INSERT INTO {agent_states}
                ({owner}, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
            VALUES ($1, $2, $3, 1, $4, $5, $6, $6)",
        agent_message: "
            INSERT INTO {agent_messages} ({owner}, conversation_id, epoch, position, message_id, data)
            VALUES ($1, $2, 0, $3, $4, $5)",
        display_message: "
            INSERT INTO {display_messages}
                ({owner}, conversation_id, sequence, message_id, item, role, content_type, content, metadata,
                 tool_call_id, status, inserted_at, delivery, changed)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        usage: "
            INSERT INTO {usage}
                ({owner}, conversation_id, message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        finish: "
            UPDATE {conversations} SET next_sequence = $3, last_change = $4
            WHERE {owner} = $1 AND id = $2
            RETURNING {conversation_columns}",
    }
}

pub(super) const SET_OWN_COLUMN: &str = "
    UPDATE {conversations} SET {column} = $3 WHERE {owner} = $1 AND id = $2";

impl Driver {
    pub(crate) async fn export_conversation(&self, owner: &Owner, id: Uuid, sink: &mut impl Sink) -> Result<()> {
        let mut snapshot = Snapshot::of(&self.pool).await?;
        let select = sqlx::query(&self.sql.exports.conversation).bind(owner.key()).bind(id);
        let row = select.fetch_optional(&mut *snapshot).await?.ok_or(Error::NotFound)?;
        let columns =
            self.tables.own_conversation_columns().map(|column| Ok((column.into(), own_value(&row, column)?)));
        let columns = columns.collect::<Result<_>>()?;
        sink.take(Record::Conversation(conversation(&row)?.into_export(columns))).await?;
        let select = sqlx::query(&self.sql.exports.state).bind(owner.key()).bind(id);
        if let Some(row) = select.fetch_optional(&mut *snapshot).await? {
            let (state, messages) = MessageRows::of_header(row.try_get_unchecked("data")?)?;
            for record in Record::of_state(state) {
                sink.take(record).await?;
            }
            if let Some(messages) = messages {
                let epoch = row.try_get("epoch")?;
                self.export_agent_messages(&mut snapshot, owner, id, epoch, messages, sink).await?;
            }
        }
        self.export_display_messages(&mut snapshot, owner, id, sink).await?;
        self.export_usage(&mut snapshot, owner, id, sink).await?;
        snapshot.end().await
    }

    /// Returns nothing, and stores nothing, if the owner has a conversation with this id.
    pub(crate) async fn import_conversation(
        &self,
        owner: &Owner,
        new: &ExportedConversation,
        source: Source<'_>,
    ) -> Result<Option<Conversation>> {
        let mut write = self.begin().await?;
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
            .execute(&mut *write)
            .await?;
        if inserted.rows_affected() == 0 {
            write.rollback().await?;
            return Ok(None);
        }
        for (column, statement) in self.own_columns.iter() {
            if let Some(value) = new.columns.get(column) {
                let update = bind_own_value(sqlx::query(statement).bind(owner.key()).bind(new.id), value);
                update.execute(&mut *write).await.map_err(|error| refused_column(column, error))?;
            }
        }
        let (mut state, mut count) = (None, 0_i32);
        let (mut messages, mut next_sequence, mut last_change) = (0, 0, 0);
        while let Some(record) = source()? {
            match record {
                Record::Conversation(_) => {}
                Record::State(found) => state = Some(found),
                Record::AgentMessage { id, message } => {
                    let row = export::row(id, &message, count)?;
                    self.import_agent_message(&mut write, owner, new.id, &row).await?;
                    count = count.saturating_add(1);
                }
                Record::Message(message) => {
                    (next_sequence, last_change) = (message.sequence + 1, change_of(messages));
                    self.import_display_message(&mut write, owner, new.id, &message, last_change).await?;
                    messages += 1;
                }
                Record::Usage(usage) => self.import_usage(&mut write, owner, new.id, &usage).await?,
            }
        }
        if let Some(state) = state {
            self.import_state(&mut write, owner, new.id, &state, count).await?;
        }
        let finish = sqlx::query(&self.sql.imports.finish).bind(owner.key()).bind(new.id);
        let row = finish.bind(next_sequence).bind(last_change).fetch_one(&mut *write).await?;
        write.commit().await?;
        Ok(Some(conversation(&row)?))
    }

    async fn import_agent_message(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        conversation_id: Uuid,
        row: &Row,
    ) -> Result<()> {
        sqlx::query(&self.sql.imports.agent_message)
            .bind(owner.key())
            .bind(conversation_id)
            .bind(row.position)
            .bind(row.message_id)
            .bind(&row.data)
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn import_display_message(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        conversation_id: Uuid,
        message: &ExportedMessage,
        changed: i64,
    ) -> Result<()> {
        sqlx::query(&self.sql.imports.display_message)
            .bind(owner.key())
            .bind(conversation_id)
            .bind(message.sequence)
            .bind(message.message_id)
            .bind(message.item)
            .bind(message.role.as_str())
            .bind(message.content_type.as_str())
            .bind(&message.content)
            .bind(Json(&message.metadata))
            .bind(&message.tool_call_id)
            .bind(message.status.map(ToolStatus::as_str))
            .bind(message.inserted_at)
            .bind(message.delivery.as_stored())
            .bind(changed)
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn import_usage(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        conversation_id: Uuid,
        usage: &ExportedUsage,
    ) -> Result<()> {
        sqlx::query(&self.sql.imports.usage)
            .bind(owner.key())
            .bind(conversation_id)
            .bind(usage.message_id)
            .bind(&usage.model)
            .bind(stored_count(usage.input_tokens))
            .bind(stored_count(usage.output_tokens))
            .bind(stored_count(usage.cached_tokens))
            .bind(usage.inserted_at)
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// The value of a host's column. A `BLOB` becomes `{"hex": "…"}`: no other value is an object.
fn own_value(row: &SqliteRow, column: &str) -> Result<Value> {
    let value = row.try_get_raw(column)?;
    if value.is_null() {
        return Ok(Value::Null);
    }
    let kind = value.type_info().name().to_owned();
    Ok(match kind.as_str() {
        "INTEGER" => row.try_get_unchecked::<i64, _>(column)?.into(),
        "REAL" => row.try_get_unchecked::<f64, _>(column)?.into(),
        "BLOB" => json!({ "hex": hex(row.try_get_unchecked(column)?) }),
        _ => row.try_get_unchecked::<String, _>(column)?.into(),
    })
}

type Query<'q> = sqlx::query::Query<'q, Sqlite, SqliteArguments>;

fn bind_own_value<'q>(query: Query<'q>, value: &'q Value) -> Query<'q> {
    match value {
        Value::Null => query.bind(None::<i64>),
        Value::Bool(value) => query.bind(*value),
        Value::Number(value) => match value.as_i64() {
            Some(integer) => query.bind(integer),
            None => query.bind(value.as_f64()),
        },
        Value::String(text) => query.bind(text),
        Value::Object(object) => match bytes_of(object) {
            Some(bytes) => query.bind(bytes),
            None => query.bind(Json(value)),
        },
        Value::Array(_) => query.bind(Json(value)),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

fn bytes_of(object: &Map<String, Value>) -> Option<Vec<u8>> {
    let text = object.get("hex").filter(|_| object.len() == 1)?.as_str()?;
    let is_hex = text.len() % 2 == 0 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    if is_hex { (0..text.len()).step_by(2).map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_an_object_with_hexadecimal_digits() {
        let bytes = [0, 1, 254, 255];
        let value = json!({ "hex": hex(&bytes) });
        assert_eq!(value, json!({ "hex": "0001feff" }));
        assert_eq!(bytes_of(value.as_object().unwrap()).unwrap(), bytes);
        for other in [json!({ "hex": "0" }), json!({ "hex": "é" }), json!({ "hex": "00", "a": 1 }), json!({})] {
            assert_eq!(bytes_of(other.as_object().unwrap()), None);
        }
    }
}
