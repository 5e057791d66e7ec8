//! The statements for agent states.

use serde::Serialize;
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use sqlx::{Connection as _, Postgres, Transaction};
use uuid::Uuid;

use super::{Driver, retry};
use crate::serializer;
use crate::statement::statements;
use crate::store::states::{Attempt, Current, Save};
use crate::stored::Rows;
use crate::{Error, Owner, Result, Revision, State, Timestamp, TokenUsage};

statements! {
    pub(super) struct States {
        /// The revision is compared twice. The first time a save that must fail changes nothing, also one that leaves out
        /// rows which another save has changed. The second time decides: the upsert sees what a concurrent writer has
        /// saved since. Rows past the end are left to `shorten`.
        save: "
            WITH conversation AS (
                UPDATE {conversations} AS c
                SET updated_at = greatest(c.updated_at, $5::timestamptz)
                WHERE c.{owner} = $11::{owner_type} AND c.id = $1::uuid AND $6::bigint = coalesce((
                    SELECT s.revision FROM {agent_states} AS s
                    WHERE s.{owner} = $11::{owner_type} AND s.conversation_id = $1::uuid
                      AND s.write_id = coalesce($10::uuid, s.write_id)
                ), 0)
                RETURNING c.{owner}, c.id, $6::bigint AS revision
            ), saved AS (
                INSERT INTO {agent_states} AS s
                    ({owner}, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
                SELECT c.{owner}, c.id, $2::integer, c.revision + 1, $3::uuid, $4::json,
                       $5::timestamptz, $5::timestamptz
                FROM conversation AS c
                ON CONFLICT ({owner}, conversation_id) DO UPDATE
                SET version = excluded.version,
                    revision = excluded.revision,
                    write_id = excluded.write_id,
                    data = excluded.data,
                    updated_at = greatest(s.updated_at, excluded.updated_at)
                WHERE s.revision = excluded.revision - 1
                RETURNING s.{owner}, s.conversation_id, s.revision, s.epoch
            ), written AS (
                INSERT INTO {agent_messages}
                    ({owner}, conversation_id, epoch, position, message_id, data)
                SELECT s.{owner}, s.conversation_id, s.epoch, n.position, n.message_id, n.data::json
                FROM saved AS s
                CROSS JOIN unnest($7::integer[], $8::uuid[], $9::text[]) AS n (position, message_id, data)
                ON CONFLICT ({owner}, conversation_id, epoch, position) DO UPDATE
                SET message_id = excluded.message_id, data = excluded.data
            ), counted AS (
                INSERT INTO {usage}
                    ({owner}, conversation_id, message_id, model, input_tokens, output_tokens, cached_tokens,
                     inserted_at)
                SELECT s.{owner}, s.conversation_id, n.message_id, n.model, n.input, n.output, n.cached,
                       $5::timestamptz
                FROM saved AS s
                CROSS JOIN jsonb_to_recordset($12::jsonb)
                    AS n (message_id uuid, model text, input bigint, output bigint, cached bigint)
                ON CONFLICT ({owner}, conversation_id, message_id) DO NOTHING
            )
            SELECT s.revision FROM saved AS s",
        shorten: "
            DELETE FROM {agent_messages} AS m
            WHERE m.{owner} = $3::{owner_type} AND m.conversation_id = $1::uuid AND m.position >= $2::integer
              AND m.epoch = (
                  SELECT s.epoch FROM {agent_states} AS s
                  WHERE s.{owner} = $3::{owner_type} AND s.conversation_id = $1::uuid
              )",
        current: "
            SELECT coalesce(s.revision, 0), s.write_id
            FROM {conversations} AS c
            LEFT JOIN {agent_states} AS s ON s.{owner} = $2::{owner_type} AND s.conversation_id = $1::uuid
            WHERE c.{owner} = $2::{owner_type} AND c.id = $1::uuid",
        /// The left join tells a conversation without a state from one that doesn't exist. The rows are sorted later: the
        /// server would sort their texts, too, on its disk if there are many.
        load: "
            SELECT NULL::bigint, NULL::uuid, s.data, s.revision, s.write_id
            FROM {conversations} AS c
            LEFT JOIN {agent_states} AS s ON s.{owner} = $2::{owner_type} AND s.conversation_id = $1::uuid
            WHERE c.{owner} = $2::{owner_type} AND c.id = $1::uuid
            UNION ALL
            SELECT m.position::bigint, m.message_id, m.data, NULL::bigint, NULL::uuid
            FROM {agent_messages} AS m
            WHERE m.{owner} = $2::{owner_type} AND m.conversation_id = $1::uuid AND m.epoch = (
                SELECT s.epoch FROM {agent_states} AS s
                WHERE s.{owner} = $2::{owner_type} AND s.conversation_id = $1::uuid
            )",
        header: "
            SELECT s.data, s.revision FROM {conversations} AS c
            LEFT JOIN {agent_states} AS s ON s.{owner} = $2::{owner_type} AND s.conversation_id = $1::uuid
            WHERE c.{owner} = $2::{owner_type} AND c.id = $1::uuid",
        touch: "
            UPDATE {conversations} AS c SET updated_at = greatest(c.updated_at, $2::timestamptz)
            WHERE c.{owner} = $3::{owner_type} AND c.id = $1::uuid",
        interrupt: "
            UPDATE {conversations} AS c
            SET interrupted = $2::boolean, updated_at = greatest(c.updated_at, $3::timestamptz)
            WHERE c.{owner} = $4::{owner_type} AND c.id = $1::uuid",
        list_unreadable: "
            SELECT u.epoch, u.set_aside_at FROM {unreadable_states} AS u
            WHERE u.{owner} = $2::{owner_type} AND u.conversation_id = $1::uuid
            ORDER BY u.epoch",
        load_unreadable: "
            SELECT NULL::bigint, NULL::uuid, u.data FROM {unreadable_states} AS u
            WHERE u.{owner} = $3::{owner_type} AND u.conversation_id = $1::uuid AND u.epoch = $2::bigint
            UNION ALL
            SELECT m.position::bigint, m.message_id, m.data FROM {agent_messages} AS m
            WHERE m.{owner} = $3::{owner_type} AND m.conversation_id = $1::uuid AND m.epoch = $2::bigint",
        is_unreadable: "
            SELECT TRUE FROM {unreadable_states} AS u
            WHERE u.{owner} = $3::{owner_type} AND u.conversation_id = $1::uuid AND u.epoch = $2::bigint",
        set_aside: "
            INSERT INTO {unreadable_states} ({owner}, conversation_id, epoch, data, set_aside_at)
            SELECT s.{owner}, s.conversation_id, s.epoch, s.data, $2::timestamptz
            FROM {agent_states} AS s
            WHERE s.{owner} = $3::{owner_type} AND s.conversation_id = $1::uuid",
        next_epoch: "
            UPDATE {agent_states} AS s
            SET epoch = 1 + (
                SELECT max(u.epoch) FROM {unreadable_states} AS u
                WHERE u.{owner} = $2::{owner_type} AND u.conversation_id = $1::uuid
            )
            WHERE s.{owner} = $2::{owner_type} AND s.conversation_id = $1::uuid",
        restore: "
            UPDATE {agent_states} AS s
            SET epoch = u.epoch, data = u.data, revision = s.revision + 1, write_id = $3::uuid,
                updated_at = greatest(s.updated_at, $4::timestamptz)
            FROM {unreadable_states} AS u
            WHERE s.{owner} = $5::{owner_type} AND s.conversation_id = $1::uuid
              AND u.{owner} = $5::{owner_type} AND u.conversation_id = $1::uuid AND u.epoch = $2::bigint
            RETURNING s.revision",
        discard: "
            DELETE FROM {unreadable_states} AS u
            WHERE u.{owner} = $3::{owner_type} AND u.conversation_id = $1::uuid AND u.epoch = $2::bigint",
        discard_messages: "
            DELETE FROM {agent_messages} AS m
            WHERE m.{owner} = $3::{owner_type} AND m.conversation_id = $1::uuid AND m.epoch = $2::bigint",
    }
}

/// A message to count.
#[derive(Serialize)]
struct Counted<'a> {
    message_id: Uuid,
    model: Option<&'a str>,
    #[serde(flatten)]
    tokens: TokenUsage,
}

impl Driver {
    pub(crate) async fn save_agent_state(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        state: &State,
        save: &Save,
    ) -> Result<Attempt> {
        let saved = retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            // Only now: saves that wait for their turn don't hold the text of their states.
            let rows = state.to_rows(conversation_id, save.expect)?;
            let saved = if save.set_aside || rows.may_be_shorter {
                let mut tx = self.lock(lease.connection(), owner, conversation_id).await?;
                if save.set_aside {
                    self.set_aside(&mut tx, owner, conversation_id).await?;
                    let next = sqlx::query(&self.sql.states.next_epoch).bind(conversation_id).bind(owner.key());
                    next.execute(&mut *tx).await?;
                }
                let saved = self.write(&mut tx, owner, conversation_id, &rows, save).await?;
                if saved.is_some() {
                    let shorten =
                        sqlx::query(&self.sql.states.shorten).bind(conversation_id).bind(rows.count).bind(owner.key());
                    shorten.execute(&mut *tx).await?;
                    tx.commit().await?;
                } else {
                    tx.rollback().await?;
                }
                saved
            } else {
                self.write(lease.connection(), owner, conversation_id, &rows, save).await?
            };
            lease.end();
            Ok(saved.map(|revision| (revision, rows)))
        })
        .await?;
        if let Some((revision, rows)) = saved {
            return Ok(Attempt::Saved(revision, rows));
        }
        let query = sqlx::query(&self.sql.states.current).bind(conversation_id).bind(owner.key());
        let row = query.fetch_optional(&self.pool).await?.ok_or(Error::NotFound)?;
        Ok(Attempt::Found(Current::from_row(&row)?))
    }

    /// Stores a state over the expected one, or nothing if another one is stored.
    async fn write(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        rows: &Rows,
        save: &Save,
    ) -> Result<Option<Revision>> {
        let counted = rows.changed.iter().filter_map(|row| {
            let usage = row.usage.as_ref()?;
            Some(Counted { message_id: row.message_id, model: usage.model.as_deref(), tokens: usage.tokens })
        });
        let positions: Vec<_> = rows.changed.iter().map(|row| row.position).collect();
        let message_ids: Vec<_> = rows.changed.iter().map(|row| row.message_id).collect();
        let data: Vec<_> = rows.changed.iter().map(|row| row.data.as_str()).collect();
        let revision: Option<i64> = sqlx::query_scalar(&self.sql.states.save)
            .bind(conversation_id)
            .bind(serializer::STORED_VERSION)
            .bind(save.write_id)
            .bind(&rows.header)
            .bind(Timestamp::now())
            .bind(save.expected.0)
            .bind(&positions)
            .bind(&message_ids)
            .bind(&data)
            .bind(rows.base)
            .bind(owner.key())
            .bind(Json(counted.collect::<Vec<_>>()))
            .fetch_optional(connection)
            .await?;
        Ok(revision.map(Revision))
    }

    pub(crate) async fn restore_unreadable_state(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        epoch: i64,
        write_id: Uuid,
    ) -> Result<Revision> {
        retry(|| async {
            let sql = &self.sql.states;
            let mut lease = self.lease(owner, conversation_id).await?;
            let mut tx = self.lock(lease.connection(), owner, conversation_id).await?;
            let found = sqlx::query(&sql.is_unreadable).bind(conversation_id).bind(epoch).bind(owner.key());
            found.fetch_optional(&mut *tx).await?.ok_or(Error::NotFound)?;
            self.set_aside(&mut tx, owner, conversation_id).await?;
            let revision = sqlx::query_scalar(&sql.restore)
                .bind(conversation_id)
                .bind(epoch)
                .bind(write_id)
                .bind(Timestamp::now())
                .bind(owner.key())
                .fetch_optional(&mut *tx)
                .await?
                .ok_or(Error::NotFound)?;
            let taken = sqlx::query(&sql.discard).bind(conversation_id).bind(epoch).bind(owner.key());
            taken.execute(&mut *tx).await?;
            tx.commit().await?;
            lease.end();
            Ok(Revision(revision))
        })
        .await
    }

    pub(crate) async fn discard_unreadable_state(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        epoch: i64,
    ) -> Result<()> {
        retry(|| async {
            let sql = &self.sql.states;
            let mut lease = self.lease(owner, conversation_id).await?;
            let mut tx = self.lock(lease.connection(), owner, conversation_id).await?;
            let discard = sqlx::query(&sql.discard).bind(conversation_id).bind(epoch).bind(owner.key());
            if discard.execute(&mut *tx).await?.rows_affected() == 0 {
                // The epoch may be that of the current state, so its messages stay.
                return Err(Error::NotFound);
            }
            let discard = sqlx::query(&sql.discard_messages).bind(conversation_id).bind(epoch).bind(owner.key());
            discard.execute(&mut *tx).await?;
            tx.commit().await?;
            lease.end();
            Ok(())
        })
        .await
    }

    pub(crate) async fn set_interrupted(&self, owner: &Owner, conversation_id: Uuid, interrupted: bool) -> Result<()> {
        retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let updated = sqlx::query(&self.sql.states.interrupt)
                .bind(conversation_id)
                .bind(interrupted)
                .bind(Timestamp::now())
                .bind(owner.key())
                .execute(lease.connection())
                .await?;
            lease.end();
            if updated.rows_affected() == 0 { Err(Error::NotFound) } else { Ok(()) }
        })
        .await
    }

    /// Begins a transaction that has the conversation to itself: its statements see what earlier writers stored. Sets
    /// `updated_at`.
    async fn lock<'c>(
        &self,
        connection: &'c mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<Transaction<'c, Postgres>> {
        let mut tx = connection.begin().await?;
        let touch = sqlx::query(&self.sql.states.touch).bind(conversation_id).bind(Timestamp::now()).bind(owner.key());
        let touched = touch.execute(&mut *tx).await?;
        if touched.rows_affected() == 0 { Err(Error::NotFound) } else { Ok(tx) }
    }
}
