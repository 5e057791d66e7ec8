//! The statements that export conversations and import them.

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::types::Json;
use sqlx::{FromRow as _, Row as _};
use uuid::Uuid;

use super::super::exports::{Batch, Sink, Source};
use super::super::{Conversation, DisplayMessage, Error, Owner, {% if group.is_some() %}Reach, {% endif %}Result, ToolStatus};
{% if group.is_some() %}use super::groups;
{% endif %}use super::rows::{conversation_columns, display_message_columns};
use super::{Store, now, retry};
use crate::sagents::export::{self, MessageRows, Record};
use crate::sagents::stored::Row;
use crate::sagents::timestamp::to_text;
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
        const SELECT: &str = concat!("SELECT ", conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1"#);
        const STATE: &str = r#"
            SELECT s.epoch, s.data FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1"#;

        let mut snapshot = self.exports.begin(&self.pool, {% if group.is_some() %}reach{% else %}owner{% endif %}).await?;
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
        let read = |row: SqliteRow| {
            let (state, rows) = MessageRows::of_header(row.try_get_unchecked("data")?)?;
            Ok::<_, Error>((row.try_get("epoch")?, state, rows))
        };
        if let Some((epoch, state, rows)) = row.map(read).transpose()? {
            for record in Record::of_state(state) {
                sink.take(record).await?;
            }
            if let Some(rows) = rows {
                export_agent_messages(&mut snapshot, owner, id, epoch, rows, sink).await?;
            }
        }
        export_display_messages(&mut snapshot, owner, id, sink).await?;
        export_usage(&mut snapshot, owner, id, sink).await?;
        snapshot.end().await
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
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8{% if owner.is_some() %}, $9{% endif %})
            ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}id) DO NOTHING"#;
        const SET_SEQUENCE: &str = concat!(r#"
            UPDATE {{ conversations }} AS c SET next_sequence = $2
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}c.id = $1
            RETURNING "#, conversation_columns!());

        // The source is read once, so nothing else is repeated.
        let mut tx = retry(|| self.begin()).await?;
        let inserted = sqlx::query(INSERT)
            .bind(new.id)
            .bind(&new.title)
            .bind(Json(owner.to_json()))
            .bind(Json(&new.metadata))
            .bind(new.interrupted)
            .bind(to_text(new.inserted_at))
            .bind(to_text(new.updated_at))
            .bind(new.archived_at.map(to_text))
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .execute(&mut *tx)
            .await?;
        if inserted.rows_affected() == 0 {
            tx.rollback().await?;
            return Ok(None);
        }
        let (mut state, mut count, mut next_sequence) = (None, 0_i32, 0);
        while let Some(record) = source()? {
            match record {
                Record::Conversation(_) => {}
                Record::State(found) => state = Some(found),
                Record::AgentMessage { id, message } => {
                    let row = export::row(id, &message, count)?;
                    insert_agent_message(&mut tx, owner, new.id, &row).await?;
                    count = count.saturating_add(1);
                }
                Record::Message(message) => {
                    next_sequence = message.sequence + 1;
                    insert_display_message(&mut tx, owner, new.id, &message).await?;
                }
                Record::Usage(usage) => insert_usage(&mut tx, owner, new.id, &usage).await?,
            }
        }
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
        Ok(Some(imported))
    }
}

async fn export_agent_messages(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    epoch: i64,
    mut rows: MessageRows,
    sink: &mut impl Sink,
) -> Result<()> {
    const SELECT: &str = r#"
        SELECT m.position, m.message_id, m.data FROM {{ agent_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = $1 AND m.epoch = $2 AND m.position > $3
        ORDER BY m.position LIMIT $4"#;

    let (mut batch, mut last) = (Batch::first(), -1_i64);
    loop {
        let (mut records, mut passed) = (Vec::new(), Ok(()));
        sqlx::query(SELECT)
            .bind(conversation_id)
            .bind(epoch)
            .bind(last)
            .bind(batch.rows())
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .try_map(|row: SqliteRow| {
                if passed.is_ok() && batch.has_room() {
                    last = row.try_get(0)?;
                    let (id, data): (_, &[u8]) = (Some(row.try_get(1)?), row.try_get_unchecked(2)?);
                    batch.take(data.len());
                    passed = rows.read(last, data).map(Box::new).map(|message| {
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
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    sink: &mut impl Sink,
) -> Result<()> {
    const SELECT: &str = concat!("SELECT ", display_message_columns!(), r#"
        FROM {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $4 AND {% endif %}m.conversation_id = $1 AND m.sequence > $2
        ORDER BY m.sequence LIMIT $3"#);

    let (mut batch, mut last) = (Batch::first(), -1_i64);
    loop {
        let mut records = Vec::new();
        sqlx::query(SELECT)
            .bind(conversation_id)
            .bind(last)
            .bind(batch.rows())
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .try_map(|row: SqliteRow| {
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
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    sink: &mut impl Sink,
) -> Result<()> {
    const SELECT: &str = r#"
        SELECT u.message_id, u.model, u.input_tokens, u.output_tokens, u.cached_tokens, u.inserted_at
        FROM {{ usage }} AS u
        WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $4 AND {% endif %}u.conversation_id = $1 AND u.message_id >= $2
        ORDER BY u.message_id LIMIT $3"#;

    let mut last = None;
    loop {
        let page = sqlx::query(SELECT)
            .bind(conversation_id)
            .bind(last.unwrap_or_default())
            .bind(i64::from(PAGE))
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .try_map(|row: SqliteRow| {
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
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    state: &State,
    count: i32,
) -> Result<()> {
    const INSERT: &str = r#"
        INSERT INTO {{ agent_states }}
            (conversation_id, version, revision, write_id, data, inserted_at, updated_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        VALUES ($1, $2, 1, $3, $4, $5, $5{% if owner.is_some() %}, $6{% endif %})"#;

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

async fn insert_agent_message(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    row: &Row,
) -> Result<()> {
    const INSERT: &str = r#"
        INSERT INTO {{ agent_messages }}
            (conversation_id, epoch, position, message_id, data{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        VALUES ($1, 0, $2, $3, $4{% if owner.is_some() %}, $5{% endif %})"#;

    sqlx::query(INSERT)
        .bind(conversation_id)
        .bind(row.position)
        .bind(row.message_id)
        .bind(&row.data)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(connection)
        .await
        .map(drop)?;
    Ok(())
}

async fn insert_display_message(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    message: &ExportedMessage,
) -> Result<()> {
    const INSERT: &str = r#"
        INSERT INTO {{ display_messages }}
            (conversation_id, sequence, message_id, item, role, content_type, content, metadata,
             tool_call_id, status, inserted_at, delivery{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12{% if owner.is_some() %}, $13{% endif %})"#;

    sqlx::query(INSERT)
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
        .bind(to_text(message.inserted_at))
        .bind(message.delivery.as_stored())
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(connection)
        .await
        .map(drop)?;
    Ok(())
}

async fn insert_usage(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    usage: &ExportedUsage,
) -> Result<()> {
    const INSERT: &str = r#"
        INSERT INTO {{ usage }}
            (conversation_id, message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        VALUES ($1, $2, $3, $4, $5, $6, $7{% if owner.is_some() %}, $8{% endif %})"#;

    sqlx::query(INSERT)
        .bind(conversation_id)
        .bind(usage.message_id)
        .bind(&usage.model)
        .bind(usage.input_tokens)
        .bind(usage.output_tokens)
        .bind(usage.cached_tokens)
        .bind(to_text(usage.inserted_at))
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(connection)
        .await
        .map(drop)?;
    Ok(())
}
