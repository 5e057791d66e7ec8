//! The statements for agent states.
//!
//! `data` of a state is its header; its messages are the rows of its epoch. A state that an earlier
//! version of this code stored has its messages in `data`, and no rows.

use sqlx::sqlite::{SqliteConnection, SqliteExecutor, SqliteRow};
use sqlx::types::Json;
use sqlx::{FromRow, Row as _};
use uuid::Uuid;

use super::super::states::{UnreadableData, UnreadableState};
use super::super::{Error, Owner, {% if group.is_some() %}Reach, {% endif %}Result};
use super::conversations::touch;
{% if group.is_some() %}use super::groups;
{% endif %}use super::usage::count;
use super::{Store, now, retry};
use crate::sagents::serializer::{self, ReadError};
use crate::sagents::stored::{self, Header, RowReader, Rows, SavePoint, StoredRow};
use crate::sagents::{Expect, Loaded, Revision, State, Todo};

/// What a save finds. Without a state, the revision is 0.
#[derive(FromRow)]
struct Current {
    revision: i64,
    write_id: Option<Uuid>,
}

impl Store {
    pub(crate) async fn save_agent_state(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        state: &State,
        expect: Expect,
        write_id: Uuid,
    ) -> Result<Revision> {
        // Sets `updated_at` as every write does, and returns what is stored.
        const TOUCH: &str = r#"
            UPDATE {{ conversations }} AS c SET updated_at = max(c.updated_at, $2)
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}c.id = $1
            RETURNING coalesce((
                SELECT s.revision FROM {{ agent_states }} AS s
                WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1
            ), 0) AS revision, (
                SELECT s.write_id FROM {{ agent_states }} AS s
                WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1
            ) AS write_id"#;

        retry(|| async {
            let mut tx = self.begin().await?;
            let current: Option<Current> = sqlx::query_as(TOUCH)
                .bind(conversation_id)
                .bind(now())
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&mut *tx)
                .await?;
            let Current { revision, write_id: stored } = current.ok_or(Error::NotFound)?;
            let expected = match expect {
                Expect::Any => revision,
                Expect::Revision(expected) | Expect::Unreadable(expected) => expected.0,
            };
            if stored == Some(write_id) && expected == revision - 1 {
                // A repeat: it was stored, and only the result was lost. The state may have changed
                // since, so it is not remembered.
                return Ok(Revision(revision));
            }
            // Only now: saves that wait for their turn do not hold the text of their states.
            let rows = state.to_rows(conversation_id, expect)?;
            // A save that leaves out rows fits only the save that wrote them.
            if expected != revision || rows.base.is_some_and(|base| stored != Some(base)) {
                let current = Revision(revision);
                return Err(Error::Conflict { current });
            }
            let set_aside = match expect {
                Expect::Any => {
                    let stored = read_state(&mut *tx, owner, conversation_id, "").await?;
                    matches!(stored, Loaded::Unreadable { .. })
                }
                Expect::Revision(_) => false,
                Expect::Unreadable(_) => true,
            };
            if rows.base.is_none() && revision > 0 {
                let _ = separate(&mut tx, owner, conversation_id).await?;
            }
            if set_aside {
                let _ = move_aside(&mut tx, owner, conversation_id).await?;
            }
            let revision = save(&mut tx, owner, conversation_id, &rows, write_id).await?;
            let usage = rows.changed.iter().filter_map(|row| Some((row.message_id, row.usage.as_ref()?)));
            let usage: Vec<_> = usage.collect();
            count(&mut tx, owner, conversation_id, &usage).await?;
            tx.commit().await?;
            let point = SavePoint {
                conversation_id,
                revision,
                write_id,
            };
            state.remember(&rows, point);
            Ok(revision)
        })
        .await
    }

    pub(crate) async fn load_agent_state(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
        agent_id: &str,
    ) -> Result<Loaded> {
{%- if group.is_some() %}
        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}
        read_state(&self.pool, owner, conversation_id, agent_id).await
    }

    /// Reads the header only.
    pub(crate) async fn load_todos(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
    ) -> Result<Vec<Todo>> {
        const SELECT: &str = r#"
            SELECT s.data FROM {{ conversations }} AS c
            LEFT JOIN {{ agent_states }} AS s ON {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1"#;
{%- if group.is_some() %}

        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}

        let row = sqlx::query(SELECT)
            .bind(conversation_id)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_optional(&self.pool)
            .await?
            .ok_or(Error::NotFound)?;
        match row.try_get_unchecked("data")? {
            Some(data) => Ok(serializer::read_stored("", data)?.into_todos()),
            None => Ok(Vec::new()),
        }
    }

    pub(crate) async fn list_unreadable(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
    ) -> Result<Vec<UnreadableState>> {
        const SELECT: &str = r#"
            SELECT u.epoch, u.set_aside_at
            FROM {{ conversations }} AS c
            LEFT JOIN (
                SELECT u.epoch, u.set_aside_at FROM {{ unreadable_states }} AS u
                WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $2 AND {% endif %}u.conversation_id = $1
                UNION ALL
                SELECT -1, NULL FROM {{ agent_states }} AS s
                WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1
                  AND s.unreadable_data IS NOT NULL
            ) AS u ON TRUE
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1"#;
{%- if group.is_some() %}

        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}

        let rows = sqlx::query(SELECT)
            .bind(conversation_id)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_all(&self.pool)
            .await?;
        if rows.is_empty() {
            return Err(Error::NotFound);
        }
        let mut unreadable = Vec::new();
        for row in rows {
            // The left join found nothing.
            let Some(epoch) = row.try_get("epoch")? else {
                continue;
            };
            let set_aside_at = row.try_get("set_aside_at")?;
            unreadable.push(UnreadableState {
                epoch,
                set_aside_at,
            });
        }
        unreadable.sort_unstable_by_key(|state| state.epoch);
        Ok(unreadable)
    }

    pub(crate) async fn load_unreadable(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
        epoch: i64,
    ) -> Result<UnreadableData> {
        // With what an earlier version of this code set aside come the current header, at position
        // -1, and its rows: they may belong to either.
        const SELECT: &str = r#"
            SELECT NULL AS position, NULL AS message_id, u.data
            FROM {{ unreadable_states }} AS u
            WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $3 AND {% endif %}u.conversation_id = $1 AND u.epoch = $2
            UNION ALL
            SELECT NULL, NULL, s.unreadable_data
            FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1
              AND s.unreadable_data IS NOT NULL AND $2 = -1
            UNION ALL
            SELECT -1, s.conversation_id, s.data
            FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1
              AND s.unreadable_data IS NOT NULL AND $2 = -1
            UNION ALL
            SELECT m.position, m.message_id, m.data
            FROM {{ agent_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $3 AND {% endif %}m.conversation_id = $1
              AND m.epoch = (
                  SELECT u.epoch FROM {{ unreadable_states }} AS u
                  WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $3 AND {% endif %}u.conversation_id = $1 AND u.epoch = $2
                  UNION ALL
                  SELECT s.epoch FROM {{ agent_states }} AS s
                  WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1
                    AND s.unreadable_data IS NOT NULL AND $2 = -1
              )"#;
{%- if group.is_some() %}

        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}

        let rows = sqlx::query(SELECT)
            .bind(conversation_id)
            .bind(epoch)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_all(&self.pool)
            .await?;
        let (header, messages) = split(&rows)?;
        Ok(UnreadableData::new(bytes(header)?, messages))
    }

    pub(crate) async fn restore_unreadable(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        epoch: i64,
    ) -> Result<Revision> {
        // What an earlier version of this code set aside has no epoch; it gets the next one.
        const RESTORE: &str = r#"
            UPDATE {{ agent_states }} AS s
            SET epoch = a.epoch,
                data = a.data,
                unreadable_data = CASE WHEN $2 = -1 THEN NULL ELSE s.unreadable_data END,
                revision = s.revision + 1,
                write_id = $3,
                updated_at = max(s.updated_at, $4)
            FROM (
                SELECT u.epoch, u.data FROM {{ unreadable_states }} AS u
                WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $5 AND {% endif %}u.conversation_id = $1 AND u.epoch = $2
                UNION ALL
                SELECT s.epoch, s.unreadable_data FROM {{ agent_states }} AS s
                WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $5 AND {% endif %}s.conversation_id = $1
                  AND s.unreadable_data IS NOT NULL AND $2 = -1
            ) AS a
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $5 AND {% endif %}s.conversation_id = $1
            RETURNING revision"#;
        const TAKE: &str = r#"
            DELETE FROM {{ unreadable_states }} AS u
            WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $3 AND {% endif %}u.conversation_id = $1 AND u.epoch = $2"#;

        let write_id = Uuid::now_v7();
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, owner, conversation_id).await?;
            let separated = separate(&mut tx, owner, conversation_id).await?;
            let epoch = separated.filter(|_| epoch == -1).unwrap_or(epoch);
            if move_aside(&mut tx, owner, conversation_id).await? == Some(epoch) {
                // It is the current one.
                return Err(Error::NotFound);
            }
            let revision = sqlx::query_scalar(RESTORE)
                .bind(conversation_id)
                .bind(epoch)
                .bind(write_id)
                .bind(now())
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&mut *tx)
                .await?
                .ok_or(Error::NotFound)?;
            sqlx::query(TAKE)
                .bind(conversation_id)
                .bind(epoch)
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .execute(&mut *tx)
                .await
                .map(drop)?;
            tx.commit().await?;
            Ok(Revision(revision))
        })
        .await
    }

    pub(crate) async fn discard_unreadable(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        epoch: i64,
    ) -> Result<()> {
        const DELETE_MESSAGES: &str = r#"
            DELETE FROM {{ agent_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $3 AND {% endif %}m.conversation_id = $1 AND m.epoch = $2"#;
        const DELETE_HEADER: &str = r#"
            DELETE FROM {{ unreadable_states }} AS u
            WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $3 AND {% endif %}u.conversation_id = $1 AND u.epoch = $2"#;
        const CLEAR: &str = r#"
            UPDATE {{ agent_states }} AS s SET unreadable_data = NULL
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1
              AND s.unreadable_data IS NOT NULL AND $2 = -1"#;

        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, owner, conversation_id).await?;
            let separated = separate(&mut tx, owner, conversation_id).await?;
            let epoch = separated.filter(|_| epoch == -1).unwrap_or(epoch);
            let statements: &[&'static str] = if epoch == -1 {
                &[CLEAR]
            } else {
                &[DELETE_MESSAGES, DELETE_HEADER]
            };
            let mut discarded = 0;
            for &statement in statements {
                let result = sqlx::query(statement)
                    .bind(conversation_id)
                    .bind(epoch)
{%- if owner.is_some() %}
                    .bind(owner.id())
{%- endif %}
                    .execute(&mut *tx)
                    .await?;
                discarded = result.rows_affected();
            }
            // The last statement decides: without a header the messages are not deleted either.
            if discarded == 0 {
                return Err(Error::NotFound);
            }
            tx.commit().await
        })
        .await
    }
}

/// Reads the stored state, whether it can be understood or not.
async fn read_state(
    executor: impl SqliteExecutor<'_>,
    owner: &Owner,
    conversation_id: Uuid,
    agent_id: &str,
) -> Result<Loaded> {
    // One statement, so one snapshot: the header and its messages fit together. The left join tells
    // a conversation without a state from one that does not exist.
    const SELECT: &str = r#"
        SELECT NULL AS position, NULL AS message_id, s.data, s.revision, s.write_id
        FROM {{ conversations }} AS c
        LEFT JOIN {{ agent_states }} AS s ON {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1
        UNION ALL
        SELECT m.position, m.message_id, m.data, NULL, NULL
        FROM {{ agent_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $2 AND {% endif %}m.conversation_id = $1
          AND m.epoch = (
              SELECT s.epoch FROM {{ agent_states }} AS s
              WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1
          )"#;

    let query = sqlx::query(SELECT)
        .bind(conversation_id)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %};
    // Messages are read as their rows arrive.
    let (mut header, mut messages) = (None, RowReader::default());
    query
        .try_map(|row: SqliteRow| {
            match row.try_get(0)? {
                None => header = Some(row),
                Some(position) => messages.push(message(position, &row)?),
            }
            Ok(())
        })
        .fetch_all(executor)
        .await
        .map(drop)?;
    let header = header.ok_or(Error::NotFound)?;
    let Some(revision) = header.try_get("revision")? else {
        return Ok(Loaded::Nothing);
    };
    let revision = Revision(revision);
    let point = SavePoint {
        conversation_id,
        revision,
        write_id: header.try_get("write_id")?,
    };
    let state = match serializer::read_stored(agent_id, bytes(&header)?) {
        Ok(Header::Whole(state)) => Ok(state),
        Ok(Header::Rows(header)) => header.finish(messages, point),
        Err(error) => Err(error),
    };
    match state {
        Ok(state) => Ok(Loaded::Saved {
            state: Box::new(state),
            revision,
        }),
        Err(error @ ReadError::FutureVersion { .. }) => Err(error.into()),
        Err(error) => Ok(Loaded::Unreadable { error, revision }),
    }
}

/// Stores a state over the one that is there.
async fn save(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    rows: &Rows,
    write_id: Uuid,
) -> Result<Revision> {
    // Three statements in one round trip to the connection's thread. `$6` is a JSON array with the
    // position of each changed row and the place of its text in `$8`; `$7` has the ids, 16 bytes
    // each.
    const SAVE: &str = r#"
        INSERT INTO {{ agent_states }} AS s
            (conversation_id, version, revision, write_id, data, inserted_at, updated_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        VALUES ($1, $2, 1, $3, $4, $5, $5{% if owner.is_some() %}, $10{% endif %})
        ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}conversation_id) DO UPDATE
        SET version = excluded.version,
            revision = s.revision + 1,
            write_id = excluded.write_id,
            data = excluded.data,
            updated_at = max(s.updated_at, excluded.updated_at)
        RETURNING revision;

        INSERT INTO {{ agent_messages }}
            (conversation_id, epoch, position, message_id, data{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT s.conversation_id, s.epoch, json_extract(r.value, '$[0]'),
               substr($7, 16 * r.key + 1, 16),
               CAST(substr($8, json_extract(r.value, '$[1]'), json_extract(r.value, '$[2]')) AS TEXT){% if let Some(owner) = owner %}, s.{{ owner }}{% endif %}
        FROM {{ agent_states }} AS s CROSS JOIN json_each($6) AS r
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $10 AND {% endif %}s.conversation_id = $1
        ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}conversation_id, epoch, position) DO UPDATE
        SET message_id = excluded.message_id, data = excluded.data;

        DELETE FROM {{ agent_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $10 AND {% endif %}m.conversation_id = $1 AND m.epoch = (
            SELECT s.epoch FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $10 AND {% endif %}s.conversation_id = $1
        ) AND m.position >= $9"#;

    let mut texts = Vec::new();
    let mut places = Vec::with_capacity(rows.changed.len());
    for row in &rows.changed {
        places.push((row.position, texts.len() + 1, row.data.len()));
        texts.extend_from_slice(row.data.as_bytes());
    }
    let ids: Vec<_> = rows.changed.iter().flat_map(|row| row.message_id.into_bytes()).collect();
    let revisions: Vec<i64> = sqlx::query_scalar(SAVE)
        .bind(conversation_id)
        .bind(serializer::STORED_VERSION)
        .bind(write_id)
        .bind(&rows.header)
        .bind(now())
        .bind(Json(places))
        .bind(ids)
        .bind(texts)
        .bind(rows.count)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_all(connection)
        .await?;
    let revision = revisions.first().copied().ok_or(Error::NotFound)?;
    Ok(Revision(revision))
}

/// Keeps the header with its epoch, which it returns, and moves on to the next one. The messages
/// stay as they are.
async fn move_aside(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
) -> Result<Option<i64>> {
    const KEEP: &str = r#"
        INSERT INTO {{ unreadable_states }}
            (conversation_id, epoch, data, set_aside_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT s.conversation_id, s.epoch, s.data, $2{% if let Some(owner) = owner %}, s.{{ owner }}{% endif %}
        FROM {{ agent_states }} AS s
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1
        RETURNING epoch"#;
    const MOVE: &str = r#"
        UPDATE {{ agent_states }} AS s
        SET epoch = 1 + (
            SELECT max(u.epoch) FROM {{ unreadable_states }} AS u
            WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $2 AND {% endif %}u.conversation_id = $1
        )
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1"#;

    let epoch = sqlx::query_scalar(KEEP)
        .bind(conversation_id)
        .bind(now())
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_optional(&mut *connection)
        .await?;
    sqlx::query(MOVE)
        .bind(conversation_id)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(&mut *connection)
        .await
        .map(drop)?;
    Ok(epoch)
}

/// Keeps what an earlier version of this code has set aside with the current epoch, which it returns,
/// if the rows of that epoch belong to it. The state moves on to the next epoch.
async fn separate(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
) -> Result<Option<i64>> {
    const SELECT: &str = r#"
        SELECT s.data, s.unreadable_data FROM {{ agent_states }} AS s
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1
          AND s.unreadable_data IS NOT NULL AND EXISTS (
              SELECT 1 FROM {{ agent_messages }} AS m
              WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $2 AND {% endif %}m.conversation_id = $1 AND m.epoch = s.epoch
          )"#;
    const KEEP: &str = r#"
        INSERT INTO {{ unreadable_states }}
            (conversation_id, epoch, data, set_aside_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT s.conversation_id, s.epoch, s.unreadable_data, $2{% if let Some(owner) = owner %}, s.{{ owner }}{% endif %}
        FROM {{ agent_states }} AS s
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1
        RETURNING epoch"#;
    const MOVE: &str = r#"
        UPDATE {{ agent_states }} AS s
        SET unreadable_data = NULL, epoch = 1 + (
            SELECT max(u.epoch) FROM {{ unreadable_states }} AS u
            WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $2 AND {% endif %}u.conversation_id = $1
        )
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1"#;

    let row = sqlx::query(SELECT)
        .bind(conversation_id)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_optional(&mut *connection)
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    if !stored::are_rows_of_aside(bytes(&row)?, row.try_get_unchecked("unreadable_data")?) {
        return Ok(None);
    }
    let epoch = sqlx::query_scalar(KEEP)
        .bind(conversation_id)
        .bind(now())
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_optional(&mut *connection)
        .await?;
    sqlx::query(MOVE)
        .bind(conversation_id)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(&mut *connection)
        .await
        .map(drop)?;
    Ok(epoch)
}

/// The header among the rows of a state, which has no position, and the messages in order.
fn split(rows: &[SqliteRow]) -> Result<(&SqliteRow, Vec<StoredRow<'_>>)> {
    let mut header = None;
    let mut messages = Vec::with_capacity(rows.len());
    for row in rows {
        match row.try_get(0)? {
            None => header = Some(row),
            Some(position) => messages.push(message(position, row)?),
        }
    }
    messages.sort_unstable_by_key(|message| message.position);
    Ok((header.ok_or(Error::NotFound)?, messages))
}

/// The columns of messages have numbers: there are many rows, and a name would be looked up in each.
fn message(position: i64, row: &SqliteRow) -> sqlx::Result<StoredRow<'_>> {
    Ok(StoredRow {
        // Beyond that it is a damaged one.
        position: i32::try_from(position).unwrap_or(i32::MAX),
        message_id: row.try_get(1)?,
        data: row.try_get_unchecked(2)?,
    })
}

/// Reads `data` as bytes: what is not text is a damaged state, not a failed query.
fn bytes(row: &SqliteRow) -> sqlx::Result<&[u8]> {
    row.try_get_unchecked("data")
}
