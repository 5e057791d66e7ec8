//! The statements that export conversations and import them.

use std::sync::Arc;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Json;
use sqlx::{Connection as _, Executor as _, FromRow as _, Row as _};
use uuid::Uuid;

use super::super::exports::{Batch, Sink, Source};
use super::super::{Conversation, DisplayMessage, Error, Owner, {% if group.is_some() %}Reach, {% endif %}Result, ToolStatus};
{% if group.is_some() %}use super::groups;
{% endif %}use super::lease::{Lease, Work, in_time};
use super::rows::{conversation_columns, display_message_columns};
use super::{Store, now};
use crate::sagents::export::{self, MessageRows, Record};
use crate::sagents::stored::Row;
use crate::sagents::{ExportedConversation, ExportedMessage, ExportedUsage, State, serializer};

/// How many rows of usage a statement reads.
const PAGE: u16 = 1000;

impl Store {
    pub(crate) async fn export_conversation(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        id: Uuid,
        sink: &mut impl Sink,
    ) -> Result<()> {
        const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        const SELECT: &str = concat!("SELECT ", conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1::uuid"#);
        const STATE: &str = r#"
            SELECT s.epoch, s.data FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1::uuid"#;

        let turn = self.turns.take({% if group.is_some() %}reach{% else %}owner{% endif %}, Work::Exports).await?;
        let permit = in_time(Arc::clone(&self.exports).acquire_owned()).await?;
        let mut lease = Lease::take(&self.pool, (turn, permit)).await?;
        let snapshot = lease.connection();
        snapshot.execute(BEGIN).await.map(drop)?;
{%- if group.is_some() %}
        let owner = &groups::owner_of(&mut *snapshot, reach, id).await?;
{%- endif %}
        let found: Option<Conversation> = sqlx::query_as(SELECT)
            .bind(id)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_optional(&mut *snapshot)
            .await?;
        let found = found.ok_or(Error::NotFound)?;
        sink.take(Record::Conversation(found.into_export())).await?;
        let row = sqlx::query(STATE)
            .bind(id)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_optional(&mut *snapshot)
            .await?;
        let read = |row: PgRow| {
            let (state, rows) = MessageRows::of_header(row.try_get_unchecked("data")?)?;
            Ok::<_, Error>((row.try_get("epoch")?, state, rows))
        };
        if let Some((epoch, state, rows)) = row.map(read).transpose()? {
            for record in Record::of_state(state) {
                sink.take(record).await?;
            }
            if let Some(rows) = rows {
                export_agent_messages(snapshot, owner, id, epoch, rows, sink).await?;
            }
        }
        export_display_messages(snapshot, owner, id, sink).await?;
        export_usage(snapshot, owner, id, sink).await?;
        snapshot.execute("COMMIT").await.map(drop)?;
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
        const INSERT: &str = r#"
            INSERT INTO {{ conversations }}
                (id, title, scope, metadata, interrupted, inserted_at, updated_at, archived_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
            VALUES ($1::uuid, $2::text, $3::jsonb, $4::jsonb, $5::boolean, $6::timestamptz,
                    $7::timestamptz, $8::timestamptz{% if owner.is_some() %}, $9{% endif %})
            ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}id) DO NOTHING"#;
        const SET_SEQUENCE: &str = concat!(r#"
            UPDATE {{ conversations }} AS c SET next_sequence = $2::bigint
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}c.id = $1::uuid
            RETURNING "#, conversation_columns!());

        // The source is read once, so nothing is repeated. No other call can have the new row.
        let mut lease = self.lease(owner, new.id).await?;
        let mut tx = lease.connection().begin().await?;
        let inserted = sqlx::query(INSERT)
            .bind(new.id)
            .bind(&new.title)
            .bind(Json(owner.to_json()))
            .bind(Json(&new.metadata))
            .bind(new.interrupted)
            .bind(new.inserted_at)
            .bind(new.updated_at)
            .bind(new.archived_at)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .execute(&mut *tx)
            .await?;
        if inserted.rows_affected() == 0 {
            tx.rollback().await?;
            lease.end();
            return Ok(None);
        }
        let (mut state, mut count, mut next_sequence) = (None, 0_i32, 0);
        let mut batch = Inserts::default();
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
                    next_sequence = message.sequence + 1;
                    batch.bytes += message.content.len();
                    batch.messages.push(*message);
                }
                Record::Usage(usage) => batch.usage.push(usage),
            }
            if batch.is_full() {
                batch.insert(&mut tx, owner, new.id).await?;
                batch = Inserts::default();
            }
        }
        batch.insert(&mut tx, owner, new.id).await?;
        if let Some(state) = state {
            insert_state(&mut tx, owner, new.id, &state, count).await?;
        }
        let imported = sqlx::query_as(SET_SEQUENCE)
            .bind(new.id)
            .bind(next_sequence)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_one(&mut *tx)
            .await?;
        tx.commit().await?;
        lease.end();
        Ok(Some(imported))
    }
}

/// Rows that are inserted together.
#[derive(Default)]
struct Inserts {
    agent_messages: Vec<Row>,
    messages: Vec<ExportedMessage>,
    usage: Vec<ExportedUsage>,
    /// The size of the largest columns.
    bytes: usize,
}

impl Inserts {
    fn is_full(&self) -> bool {
        let rows = self.agent_messages.len() + self.messages.len() + self.usage.len();
        rows >= 1000 || self.bytes >= 1024 * 1024
    }

    async fn insert(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<()> {
        if !self.agent_messages.is_empty() {
            insert_agent_messages(connection, owner, conversation_id, &self.agent_messages).await?;
        }
        if !self.messages.is_empty() {
            insert_display_messages(connection, owner, conversation_id, &self.messages).await?;
        }
        if !self.usage.is_empty() {
            insert_usage(connection, owner, conversation_id, &self.usage).await?;
        }
        Ok(())
    }
}

async fn export_agent_messages(
    connection: &mut PgConnection,
    owner: &Owner,
    conversation_id: Uuid,
    epoch: i64,
    mut rows: MessageRows,
    sink: &mut impl Sink,
) -> Result<()> {
    const SELECT: &str = r#"
        SELECT m.position, m.message_id, m.data FROM {{ agent_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = $1::uuid
          AND m.epoch = $2::bigint AND m.position > $3::integer
        ORDER BY m.position LIMIT $4::bigint"#;

    let (mut batch, mut last) = (Batch::first(), -1_i32);
    loop {
        let (mut records, mut passed) = (Vec::new(), Ok(()));
        sqlx::query(SELECT)
            .bind(conversation_id)
            .bind(epoch)
            .bind(last)
            .bind(i64::from(batch.rows()))
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .try_map(|row: PgRow| {
                if passed.is_ok() && batch.has_room() {
                    last = row.try_get(0)?;
                    let (id, data): (_, &[u8]) = (Some(row.try_get(1)?), row.try_get_unchecked(2)?);
                    batch.take(data.len());
                    passed = rows.read(last.into(), data).map(Box::new).map(|message| {
                        records.push(Record::AgentMessage { id, message });
                    });
                }
                Ok(())
            })
            .fetch_all(&mut *connection)
            .await
            .map(drop)?;
        passed?;
        for record in records {
            sink.take(record).await?;
        }
        match batch.next() {
            Some(next) => batch = next,
            None => return Ok(rows.end()?),
        }
    }
}

async fn export_display_messages(
    connection: &mut PgConnection,
    owner: &Owner,
    conversation_id: Uuid,
    sink: &mut impl Sink,
) -> Result<()> {
    const SELECT: &str = concat!("SELECT ", display_message_columns!(), r#"
        FROM {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $4 AND {% endif %}m.conversation_id = $1::uuid AND m.sequence > $2::bigint
        ORDER BY m.sequence LIMIT $3::bigint"#);

    let (mut batch, mut last) = (Batch::first(), -1_i64);
    loop {
        let mut records = Vec::new();
        sqlx::query(SELECT)
            .bind(conversation_id)
            .bind(last)
            .bind(i64::from(batch.rows()))
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .try_map(|row: PgRow| {
                if batch.has_room() {
                    let message = DisplayMessage::from_row(&row)?;
                    last = message.sequence;
                    batch.take(message.size());
                    records.push(Record::Message(Box::new(message.into_export())));
                }
                Ok(())
            })
            .fetch_all(&mut *connection)
            .await
            .map(drop)?;
        for record in records {
            sink.take(record).await?;
        }
        match batch.next() {
            Some(next) => batch = next,
            None => return Ok(()),
        }
    }
}

async fn export_usage(
    connection: &mut PgConnection,
    owner: &Owner,
    conversation_id: Uuid,
    sink: &mut impl Sink,
) -> Result<()> {
    const SELECT: &str = r#"
        SELECT u.message_id, u.model, u.input_tokens, u.output_tokens, u.cached_tokens, u.inserted_at
        FROM {{ usage }} AS u
        WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $4 AND {% endif %}u.conversation_id = $1::uuid AND u.message_id >= $2::uuid
        ORDER BY u.message_id LIMIT $3::bigint"#;

    let mut last = None;
    loop {
        let page = sqlx::query(SELECT)
            .bind(conversation_id)
            .bind(last.unwrap_or_default())
            .bind(i64::from(PAGE))
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .try_map(|row: PgRow| {
                Ok(ExportedUsage {
                    message_id: row.try_get("message_id")?,
                    model: row.try_get("model")?,
                    input_tokens: row.try_get("input_tokens")?,
                    output_tokens: row.try_get("output_tokens")?,
                    cached_tokens: row.try_get("cached_tokens")?,
                    inserted_at: row.try_get("inserted_at")?,
                })
            })
            .fetch_all(&mut *connection)
            .await?;
        let (is_last, before) = (page.len() < usize::from(PAGE), last);
        last = page.last().map(|usage: &ExportedUsage| usage.message_id);
        // No id is before the first one, so each page starts with the last row of the one before.
        for usage in page.into_iter().filter(|usage| Some(usage.message_id) != before) {
            sink.take(Record::Usage(usage)).await?;
        }
        if is_last {
            return Ok(());
        }
    }
}

async fn insert_state(
    connection: &mut PgConnection,
    owner: &Owner,
    conversation_id: Uuid,
    state: &State,
    count: i32,
) -> Result<()> {
    const INSERT: &str = r#"
        INSERT INTO {{ agent_states }}
            (conversation_id, version, revision, write_id, data, inserted_at, updated_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        VALUES ($1::uuid, $2::integer, 1, $3::uuid, $4::json, $5::timestamptz, $5::timestamptz{% if owner.is_some() %}, $6{% endif %})"#;

    sqlx::query(INSERT)
        .bind(conversation_id)
        .bind(serializer::STORED_VERSION)
        .bind(Uuid::now_v7())
        .bind(export::header(state, count)?)
        .bind(now())
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(connection)
        .await
        .map(drop)?;
    Ok(())
}

async fn insert_agent_messages(
    connection: &mut PgConnection,
    owner: &Owner,
    conversation_id: Uuid,
    rows: &[Row],
) -> Result<()> {
    const INSERT: &str = r#"
        INSERT INTO {{ agent_messages }}
            (conversation_id, epoch, position, message_id, data{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT c.id, 0, n.position, n.message_id, n.data::json{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
        FROM {{ conversations }} AS c
        CROSS JOIN unnest($2::integer[], $3::uuid[], $4::text[]) AS n (position, message_id, data)
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $5 AND {% endif %}c.id = $1::uuid"#;

    let positions: Vec<_> = rows.iter().map(|row| row.position).collect();
    let message_ids: Vec<_> = rows.iter().map(|row| row.message_id).collect();
    let data: Vec<_> = rows.iter().map(|row| row.data.as_str()).collect();
    sqlx::query(INSERT)
        .bind(conversation_id)
        .bind(positions)
        .bind(message_ids)
        .bind(data)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(connection)
        .await
        .map(drop)?;
    Ok(())
}

async fn insert_display_messages(
    connection: &mut PgConnection,
    owner: &Owner,
    conversation_id: Uuid,
    messages: &[ExportedMessage],
) -> Result<()> {
    const INSERT: &str = r#"
        INSERT INTO {{ display_messages }}
            (conversation_id, sequence, message_id, item, role, content_type, content, metadata,
             tool_call_id, status, inserted_at, delivery{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT c.id, n.sequence, n.message_id, n.item, n.role, n.content_type, n.content, n.metadata,
               n.tool_call_id, n.status, n.inserted_at, n.delivery{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
        FROM {{ conversations }} AS c
        CROSS JOIN unnest(
            $2::bigint[], $3::uuid[], $4::integer[], $5::text[], $6::text[], $7::text[], $8::jsonb[],
            $9::text[], $10::text[], $11::timestamptz[], $12::text[]
        ) AS n (sequence, message_id, item, role, content_type, content, metadata,
                tool_call_id, status, inserted_at, delivery)
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $13 AND {% endif %}c.id = $1::uuid"#;

    let sequences: Vec<_> = messages.iter().map(|message| message.sequence).collect();
    let message_ids: Vec<_> = messages.iter().map(|message| message.message_id).collect();
    let items: Vec<_> = messages.iter().map(|message| message.item).collect();
    let roles: Vec<_> = messages.iter().map(|message| message.role.as_str()).collect();
    let types: Vec<_> = messages.iter().map(|message| message.content_type.as_str()).collect();
    let contents: Vec<_> = messages.iter().map(|message| message.content.as_str()).collect();
    let metadata: Vec<_> = messages.iter().map(|message| Json(&message.metadata)).collect();
    let calls: Vec<_> = messages.iter().map(|message| message.tool_call_id.as_deref()).collect();
    let statuses: Vec<_> =
        messages.iter().map(|message| message.status.map(ToolStatus::as_str)).collect();
    let times: Vec<_> = messages.iter().map(|message| message.inserted_at).collect();
    let deliveries: Vec<_> = messages.iter().map(|message| message.delivery.as_stored()).collect();
    sqlx::query(INSERT)
        .bind(conversation_id)
        .bind(sequences)
        .bind(message_ids)
        .bind(items)
        .bind(roles)
        .bind(types)
        .bind(contents)
        .bind(metadata)
        .bind(calls)
        .bind(statuses)
        .bind(times)
        .bind(deliveries)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(connection)
        .await
        .map(drop)?;
    Ok(())
}

async fn insert_usage(
    connection: &mut PgConnection,
    owner: &Owner,
    conversation_id: Uuid,
    usage: &[ExportedUsage],
) -> Result<()> {
    const INSERT: &str = r#"
        INSERT INTO {{ usage }}
            (conversation_id, message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT c.id, n.message_id, n.model, n.input_tokens, n.output_tokens, n.cached_tokens, n.inserted_at{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
        FROM {{ conversations }} AS c
        CROSS JOIN unnest(
            $2::uuid[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::timestamptz[]
        ) AS n (message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at)
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $8 AND {% endif %}c.id = $1::uuid"#;

    let message_ids: Vec<_> = usage.iter().map(|usage| usage.message_id).collect();
    let models: Vec<_> = usage.iter().map(|usage| usage.model.as_deref()).collect();
    let inputs: Vec<_> = usage.iter().map(|usage| usage.input_tokens).collect();
    let outputs: Vec<_> = usage.iter().map(|usage| usage.output_tokens).collect();
    let cached: Vec<_> = usage.iter().map(|usage| usage.cached_tokens).collect();
    let times: Vec<_> = usage.iter().map(|usage| usage.inserted_at).collect();
    sqlx::query(INSERT)
        .bind(conversation_id)
        .bind(message_ids)
        .bind(models)
        .bind(inputs)
        .bind(outputs)
        .bind(cached)
        .bind(times)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(connection)
        .await
        .map(drop)?;
    Ok(())
}
