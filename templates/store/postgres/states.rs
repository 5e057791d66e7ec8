//! The statements for agent states.
//!
//! `data` of a state is its header; its messages are the rows of its epoch. A state that an earlier
//! version of this code stored has its messages in `data`, and no rows.

use sqlx::postgres::{PgConnection, PgExecutor, PgRow};
use sqlx::types::Json;
use sqlx::{Connection as _, FromRow, Postgres, Row as _, Transaction};
use uuid::Uuid;

use super::super::states::{UnreadableData, UnreadableState};
use super::super::{Error, Owner, {% if group.is_some() %}Reach, {% endif %}Result};
{% if group.is_some() %}use super::groups;
{% endif %}use super::usage::{Counted, counted};
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
        const CURRENT: &str = r#"
            SELECT coalesce(s.revision, 0) AS revision, s.write_id
            FROM {{ conversations }} AS c
            LEFT JOIN {{ agent_states }} AS s
                ON {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1::uuid
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1::uuid"#;

        loop {
            let (expected, set_aside) = match expect {
                Expect::Revision(expected) => (expected.0, false),
                Expect::Unreadable(expected) => (expected.0, true),
                Expect::Any => match self.load_agent_state({% if group.is_some() %}&Reach::Owner(owner.clone()){% else %}owner{% endif %}, conversation_id, "").await? {
                    Loaded::Nothing => (0, false),
                    Loaded::Saved { revision, .. } => (revision.0, false),
                    Loaded::Unreadable { revision, .. } => (revision.0, true),
                },
            };
            let saved = retry(|| async {
                let mut lease = self.lease(owner, conversation_id).await?;
                // Only now: saves that wait for their turn do not hold the text of their states.
                let rows = state.to_rows(conversation_id, expect)?;
                // Nearly always no, and then a save is one statement.
                let must_separate = rows.base.is_none()
                    && expected > 0
                    && are_rows_of_aside(lease.connection(), owner, conversation_id).await?;
                let saved = if set_aside || must_separate {
                    let mut tx = lock(lease.connection(), owner, conversation_id).await?;
                    let _ = separate(&mut tx, owner, conversation_id).await?;
                    if set_aside {
                        let _ = move_aside(&mut *tx, owner, conversation_id).await?;
                    }
                    let saved = save(&mut *tx, owner, conversation_id, &rows, expected, write_id).await?;
                    match saved {
                        Some(_) => tx.commit().await?,
                        None => tx.rollback().await?,
                    }
                    saved
                } else {
                    let connection = lease.connection();
                    save(connection, owner, conversation_id, &rows, expected, write_id).await?
                };
                lease.end();
                if let Some(revision) = saved {
                    let point = SavePoint {
                        conversation_id,
                        revision,
                        write_id,
                    };
                    state.remember(&rows, point);
                }
                Ok(saved)
            })
            .await?;
            if let Some(revision) = saved {
                return Ok(revision);
            }
            let current: Option<Current> = sqlx::query_as(CURRENT)
                .bind(conversation_id)
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&self.pool)
                .await?;
            let current = current.ok_or(Error::NotFound)?;
            if current.write_id == Some(write_id) && expected == current.revision - 1 {
                // A repeat: it was stored, and only the result was lost. The state may have changed
                // since, so it is not remembered.
                return Ok(Revision(current.revision));
            }
            if expect != Expect::Any {
                let current = Revision(current.revision);
                return Err(Error::Conflict { current });
            }
            // Another writer saved in between: this save overwrites that state too.
        }
    }

    pub(crate) async fn load_agent_state(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
        agent_id: &str,
    ) -> Result<Loaded> {
        // One statement, so one snapshot: the header and its messages fit together. The left join
        // tells a conversation without a state from one that does not exist. The rows are sorted
        // later: the server would sort their texts too, on its disk if there are many.
        const SELECT: &str = r#"
            SELECT NULL::integer AS position, NULL::uuid AS message_id, s.data,
                   s.revision, s.write_id
            FROM {{ conversations }} AS c
            LEFT JOIN {{ agent_states }} AS s
                ON {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1::uuid
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1::uuid
            UNION ALL
            SELECT m.position, m.message_id, m.data, NULL::bigint, NULL::uuid
            FROM {{ agent_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $2 AND {% endif %}m.conversation_id = $1::uuid
              AND m.epoch = (
                  SELECT s.epoch FROM {{ agent_states }} AS s
                  WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1::uuid
              )"#;
{%- if group.is_some() %}

        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}

        let query = sqlx::query(SELECT)
            .bind(conversation_id)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %};
        // Messages are read as their rows arrive.
        let (mut header, mut messages) = (None, RowReader::default());
        query
            .try_map(|row: PgRow| {
                match row.try_get(0)? {
                    None => header = Some(row),
                    Some(position) => messages.push(message(position, &row)?),
                }
                Ok(())
            })
            .fetch_all(&self.pool)
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

    /// Reads the header only.
    pub(crate) async fn load_todos(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
    ) -> Result<Vec<Todo>> {
        const SELECT: &str = r#"
            SELECT s.data FROM {{ conversations }} AS c
            LEFT JOIN {{ agent_states }} AS s
                ON {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1::uuid
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1::uuid"#;
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
                WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $2 AND {% endif %}u.conversation_id = $1::uuid
                UNION ALL
                SELECT -1, NULL::timestamptz FROM {{ agent_states }} AS s
                WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1::uuid
                  AND s.unreadable_data IS NOT NULL
            ) AS u ON TRUE
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1::uuid"#;
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
            SELECT NULL::integer AS position, NULL::uuid AS message_id, u.data
            FROM {{ unreadable_states }} AS u
            WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $3 AND {% endif %}u.conversation_id = $1::uuid AND u.epoch = $2::bigint
            UNION ALL
            SELECT NULL::integer, NULL::uuid, s.unreadable_data
            FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1::uuid
              AND s.unreadable_data IS NOT NULL AND $2::bigint = -1
            UNION ALL
            SELECT -1, s.conversation_id, s.data
            FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1::uuid
              AND s.unreadable_data IS NOT NULL AND $2::bigint = -1
            UNION ALL
            SELECT m.position, m.message_id, m.data
            FROM {{ agent_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $3 AND {% endif %}m.conversation_id = $1::uuid
              AND m.epoch = (
                  SELECT u.epoch FROM {{ unreadable_states }} AS u
                  WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $3 AND {% endif %}u.conversation_id = $1::uuid AND u.epoch = $2::bigint
                  UNION ALL
                  SELECT s.epoch FROM {{ agent_states }} AS s
                  WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1::uuid
                    AND s.unreadable_data IS NOT NULL AND $2::bigint = -1
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
            WITH aside AS (
                SELECT u.epoch, u.data FROM {{ unreadable_states }} AS u
                WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $5 AND {% endif %}u.conversation_id = $1::uuid
                  AND u.epoch = $2::bigint
                UNION ALL
                SELECT s.epoch, s.unreadable_data FROM {{ agent_states }} AS s
                WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $5 AND {% endif %}s.conversation_id = $1::uuid
                  AND s.unreadable_data IS NOT NULL AND $2::bigint = -1
            ), taken AS (
                DELETE FROM {{ unreadable_states }} AS u
                WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $5 AND {% endif %}u.conversation_id = $1::uuid
                  AND u.epoch = $2::bigint
            )
            UPDATE {{ agent_states }} AS s
            SET epoch = a.epoch,
                data = a.data,
                unreadable_data = CASE WHEN $2::bigint = -1 THEN NULL ELSE s.unreadable_data END,
                revision = s.revision + 1,
                write_id = $3::uuid,
                updated_at = greatest(s.updated_at, $4::timestamptz)
            FROM aside AS a
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $5 AND {% endif %}s.conversation_id = $1::uuid
            RETURNING s.revision"#;

        let write_id = Uuid::now_v7();
        retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let mut tx = lock(lease.connection(), owner, conversation_id).await?;
            let separated = separate(&mut tx, owner, conversation_id).await?;
            let epoch = separated.filter(|_| epoch == -1).unwrap_or(epoch);
            if move_aside(&mut *tx, owner, conversation_id).await? == Some(epoch) {
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
            tx.commit().await?;
            lease.end();
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
        const DISCARD: &str = r#"
            WITH discarded AS (
                DELETE FROM {{ unreadable_states }} AS u
                WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $3 AND {% endif %}u.conversation_id = $1::uuid
                  AND u.epoch = $2::bigint
                RETURNING u.epoch
            ), messages AS (
                DELETE FROM {{ agent_messages }} AS m
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $3 AND {% endif %}m.conversation_id = $1::uuid
                  AND m.epoch = (SELECT d.epoch FROM discarded AS d)
            ), cleared AS (
                UPDATE {{ agent_states }} AS s SET unreadable_data = NULL
                WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1::uuid
                  AND s.unreadable_data IS NOT NULL AND $2::bigint = -1
                RETURNING $2::bigint AS epoch
            )
            SELECT d.epoch FROM discarded AS d
            UNION ALL
            SELECT d.epoch FROM cleared AS d"#;

        retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let mut tx = lock(lease.connection(), owner, conversation_id).await?;
            let separated = separate(&mut tx, owner, conversation_id).await?;
            let epoch = separated.filter(|_| epoch == -1).unwrap_or(epoch);
            let discarded = sqlx::query(DISCARD)
                .bind(conversation_id)
                .bind(epoch)
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&mut *tx)
                .await?;
            if discarded.is_none() {
                return Err(Error::NotFound);
            }
            tx.commit().await?;
            lease.end();
            Ok(())
        })
        .await
    }
}

/// Begins a transaction that has the conversation to itself: its further statements see what
/// earlier writers stored.
async fn lock<'c>(
    connection: &'c mut PgConnection,
    owner: &Owner,
    conversation_id: Uuid,
) -> Result<Transaction<'c, Postgres>> {
    const LOCK: &str = r#"
        UPDATE {{ conversations }} AS c
        SET updated_at = greatest(c.updated_at, $2::timestamptz)
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}c.id = $1::uuid"#;

    let mut tx = connection.begin().await?;
    let locked = sqlx::query(LOCK)
        .bind(conversation_id)
        .bind(now())
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(&mut *tx)
        .await?;
    if locked.rows_affected() == 0 {
        return Err(Error::NotFound);
    }
    Ok(tx)
}

/// The statement that saves, without its end. The revision is compared twice. The first time a save that
/// must fail changes nothing, also one that leaves out rows which another save has changed. The second
/// time decides: the upsert sees what a concurrent writer has saved since.
macro_rules! saved {
    ($counted:expr) => { concat!(r#"
    WITH conversation AS (
        UPDATE {{ conversations }} AS c
        SET updated_at = greatest(c.updated_at, $5::timestamptz)
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $11 AND {% endif %}c.id = $1::uuid AND $6::bigint = coalesce((
            SELECT s.revision FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $11 AND {% endif %}s.conversation_id = $1::uuid
              AND s.write_id = coalesce($10::uuid, s.write_id)
        ), 0)
        RETURNING c.id, $6::bigint AS revision{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
    ), saved AS (
        INSERT INTO {{ agent_states }} AS s
            (conversation_id, version, revision, write_id, data,
             inserted_at, updated_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT c.id, $2::integer, c.revision + 1, $3::uuid, $4::json,
               $5::timestamptz, $5::timestamptz{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
        FROM conversation AS c
        ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}conversation_id) DO UPDATE
        SET version = excluded.version,
            revision = excluded.revision,
            write_id = excluded.write_id,
            data = excluded.data,
            updated_at = greatest(s.updated_at, excluded.updated_at)
        WHERE s.revision = excluded.revision - 1
        RETURNING s.conversation_id, s.revision, s.epoch{% if let Some(owner) = owner %}, s.{{ owner }}{% endif %}
    ), written AS (
        INSERT INTO {{ agent_messages }}
            (conversation_id, epoch, position, message_id, data{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT s.conversation_id, s.epoch, n.position, n.message_id, n.data::json{% if let Some(owner) = owner %}, s.{{ owner }}{% endif %}
        FROM saved AS s
        CROSS JOIN unnest($7::integer[], $8::uuid[], $9::text[])
            AS n (position, message_id, data)
        ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}conversation_id, epoch, position) DO UPDATE
        SET message_id = excluded.message_id, data = excluded.data
    )"#, $counted) };
}

macro_rules! save {
    ($counted:expr) => { concat!(saved!($counted), r#"
    SELECT s.revision FROM saved AS s"#) };
}

/// Looking for rows to delete would be a third of the time of other saves.
macro_rules! save_shorter {
    ($counted:expr) => { concat!(saved!($counted), r#", truncated AS (
        DELETE FROM {{ agent_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $11 AND {% endif %}m.conversation_id = $1::uuid
          AND m.epoch = (SELECT s.epoch FROM saved AS s)
          AND m.position >= ($4::json #>> '{state,messages,count}')::integer
    )
    SELECT s.revision FROM saved AS s"#) };
}

macro_rules! counted_rows {
    () => { counted!(
        r#"(SELECT s.conversation_id AS id{% if let Some(owner) = owner %}, s.{{ owner }}{% endif %} FROM saved AS s)"#,
        "$5",
        "${% if owner.is_some() %}12{% else %}11{% endif %}"
    ) };
}

const SAVE: &str = save!("");
const SAVE_COUNTED: &str = save!(counted_rows!());
const SAVE_SHORTER: &str = save_shorter!("");
const SAVE_SHORTER_COUNTED: &str = save_shorter!(counted_rows!());

/// Stores a state over the expected revision, or nothing if the stored revision is another.
async fn save(
    executor: impl PgExecutor<'_>,
    owner: &Owner,
    conversation_id: Uuid,
    rows: &Rows,
    expected: i64,
    write_id: Uuid,
) -> Result<Option<Revision>> {
    let counted = rows.changed.iter().filter_map(|row| Some(Counted::new(row.message_id, row.usage.as_ref()?)));
    let counted: Vec<_> = counted.collect();
    let positions: Vec<_> = rows.changed.iter().map(|row| row.position).collect();
    let message_ids: Vec<_> = rows.changed.iter().map(|row| row.message_id).collect();
    let data: Vec<_> = rows.changed.iter().map(|row| row.data.as_str()).collect();
    let statement = match (rows.may_be_shorter, counted.is_empty()) {
        (false, true) => SAVE,
        (false, false) => SAVE_COUNTED,
        (true, true) => SAVE_SHORTER,
        (true, false) => SAVE_SHORTER_COUNTED,
    };
    let mut query = sqlx::query_scalar(statement)
        .bind(conversation_id)
        .bind(serializer::STORED_VERSION)
        .bind(write_id)
        .bind(&rows.header)
        .bind(now())
        .bind(expected)
        .bind(&positions)
        .bind(&message_ids)
        .bind(&data)
        .bind(rows.base){% if owner.is_none() %};{% endif %}
{%- if owner.is_some() %}
        .bind(owner.id());
{%- endif %}
    if !counted.is_empty() {
        query = query.bind(Json(counted));
    }
    let revision: Option<i64> = query.fetch_optional(executor).await?;
    Ok(revision.map(Revision))
}

/// Keeps the header with its epoch, which it returns, and moves on to the next one. The messages
/// stay as they are.
async fn move_aside(
    executor: impl PgExecutor<'_>,
    owner: &Owner,
    conversation_id: Uuid,
) -> Result<Option<i64>> {
    const MOVE: &str = r#"
        WITH kept AS (
            INSERT INTO {{ unreadable_states }}
                (conversation_id, epoch, data, set_aside_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
            SELECT s.conversation_id, s.epoch, s.data, $2::timestamptz{% if let Some(owner) = owner %}, s.{{ owner }}{% endif %}
            FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1::uuid
            RETURNING epoch
        )
        UPDATE {{ agent_states }} AS s
        SET epoch = 1 + greatest(s.epoch, (
            SELECT max(u.epoch) FROM {{ unreadable_states }} AS u
            WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $3 AND {% endif %}u.conversation_id = $1::uuid
        ))
        FROM kept AS k
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1::uuid
        RETURNING k.epoch"#;

    let epoch = sqlx::query_scalar(MOVE)
        .bind(conversation_id)
        .bind(now())
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_optional(executor)
        .await?;
    Ok(epoch)
}

/// Whether the rows of the current epoch belong to what an earlier version of this code has set aside.
async fn are_rows_of_aside(
    executor: impl PgExecutor<'_>,
    owner: &Owner,
    conversation_id: Uuid,
) -> Result<bool> {
    const SELECT: &str = r#"
        SELECT s.data, s.unreadable_data FROM {{ agent_states }} AS s
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1::uuid
          AND s.unreadable_data IS NOT NULL AND EXISTS (
              SELECT FROM {{ agent_messages }} AS m
              WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $2 AND {% endif %}m.conversation_id = $1::uuid AND m.epoch = s.epoch
          )"#;

    let row = sqlx::query(SELECT)
        .bind(conversation_id)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_optional(executor)
        .await?;
    match row {
        Some(row) => Ok(stored::are_rows_of_aside(
            bytes(&row)?,
            row.try_get_unchecked("unreadable_data")?,
        )),
        None => Ok(false),
    }
}

/// Keeps what an earlier version of this code has set aside with the current epoch, which it returns,
/// if the rows of that epoch belong to it. The state moves on to the next epoch.
async fn separate(
    connection: &mut PgConnection,
    owner: &Owner,
    conversation_id: Uuid,
) -> Result<Option<i64>> {
    const SEPARATE: &str = r#"
        WITH kept AS (
            INSERT INTO {{ unreadable_states }}
                (conversation_id, epoch, data, set_aside_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
            SELECT s.conversation_id, s.epoch, s.unreadable_data, $2::timestamptz{% if let Some(owner) = owner %}, s.{{ owner }}{% endif %}
            FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1::uuid
            RETURNING epoch
        )
        UPDATE {{ agent_states }} AS s
        SET unreadable_data = NULL, epoch = 1 + greatest(s.epoch, (
            SELECT max(u.epoch) FROM {{ unreadable_states }} AS u
            WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $3 AND {% endif %}u.conversation_id = $1::uuid
        ))
        FROM kept AS k
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1::uuid
        RETURNING k.epoch"#;

    if !are_rows_of_aside(&mut *connection, owner, conversation_id).await? {
        return Ok(None);
    }
    let epoch = sqlx::query_scalar(SEPARATE)
        .bind(conversation_id)
        .bind(now())
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_optional(connection)
        .await?;
    Ok(epoch)
}

/// The header among the rows of a state, which has no position, and the messages in order.
fn split(rows: &[PgRow]) -> Result<(&PgRow, Vec<StoredRow<'_>>)> {
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
fn message(position: i32, row: &PgRow) -> sqlx::Result<StoredRow<'_>> {
    Ok(StoredRow {
        position,
        message_id: row.try_get(1)?,
        data: row.try_get_unchecked(2)?,
    })
}

/// Reads `data` as bytes: sqlx decodes the type `json` only through serde.
fn bytes(row: &PgRow) -> sqlx::Result<&[u8]> {
    row.try_get_unchecked("data")
}
