//! The statements for agent states.

use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::Driver;
use crate::rows::Columns as _;
use crate::serializer;
use crate::statement::statements;
use crate::store::states::{Attempt, Current, Save};
use crate::stored::Rows;
use crate::{Error, Owner, Result, Revision, State, Timestamp};

statements! {
    pub(super) struct States {
        /// Sets `updated_at` as every write does, and returns what is stored.
        current: "
            UPDATE {conversations} AS c SET updated_at = max(c.updated_at, $2)
            WHERE c.{owner} = $3 AND c.id = $1
            RETURNING coalesce((
                SELECT s.revision FROM {agent_states} AS s
                WHERE s.{owner} = $3 AND s.conversation_id = $1
            ), 0), (
                SELECT s.write_id FROM {agent_states} AS s
                WHERE s.{owner} = $3 AND s.conversation_id = $1
            )",
        /// Three statements in one round trip to the connection's thread. `$6` is a JSON array with the position of each
        /// changed row and the place of its text in `$8`; `$7` has the ids, 16 bytes each.
        save: "
            INSERT INTO {agent_states} AS s
                ({owner}, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
            VALUES ($10, $1, $2, 1, $3, $4, $5, $5)
            ON CONFLICT ({owner}, conversation_id) DO UPDATE
            SET version = excluded.version,
                revision = s.revision + 1,
                write_id = excluded.write_id,
                data = excluded.data,
                updated_at = max(s.updated_at, excluded.updated_at)
            RETURNING revision;

            INSERT INTO {agent_messages}
                ({owner}, conversation_id, epoch, position, message_id, data)
            SELECT s.{owner}, s.conversation_id, s.epoch, json_extract(r.value, '$[0]'),
                   substr($7, 16 * r.key + 1, 16),
                   CAST(substr($8, json_extract(r.value, '$[1]'), json_extract(r.value, '$[2]')) AS TEXT)
            FROM {agent_states} AS s CROSS JOIN json_each($6) AS r
            WHERE s.{owner} = $10 AND s.conversation_id = $1
            ON CONFLICT ({owner}, conversation_id, epoch, position) DO UPDATE
            SET message_id = excluded.message_id, data = excluded.data;

            DELETE FROM {agent_messages} AS m
            WHERE m.{owner} = $10 AND m.conversation_id = $1 AND m.epoch = (
                SELECT s.epoch FROM {agent_states} AS s
                WHERE s.{owner} = $10 AND s.conversation_id = $1
            ) AND m.position >= $9",
        /// The left join tells a conversation without a state from one that doesn't exist.
        load: "
            SELECT NULL, NULL, s.data, s.revision, s.write_id
            FROM {conversations} AS c
            LEFT JOIN {agent_states} AS s ON s.{owner} = $2 AND s.conversation_id = $1
            WHERE c.{owner} = $2 AND c.id = $1
            UNION ALL
            SELECT m.position, m.message_id, m.data, NULL, NULL
            FROM {agent_messages} AS m
            WHERE m.{owner} = $2 AND m.conversation_id = $1 AND m.epoch = (
                SELECT s.epoch FROM {agent_states} AS s
                WHERE s.{owner} = $2 AND s.conversation_id = $1
            )",
        header: "
            SELECT s.data, s.revision FROM {conversations} AS c
            LEFT JOIN {agent_states} AS s ON s.{owner} = $2 AND s.conversation_id = $1
            WHERE c.{owner} = $2 AND c.id = $1",
        touch: "
            UPDATE {conversations} AS c SET updated_at = max(c.updated_at, $2)
            WHERE c.{owner} = $3 AND c.id = $1",
        interrupt: "
            UPDATE {conversations} AS c SET interrupted = $2, updated_at = max(c.updated_at, $3)
            WHERE c.{owner} = $4 AND c.id = $1",
        list_unreadable: "
            SELECT u.epoch, u.set_aside_at FROM {unreadable_states} AS u
            WHERE u.{owner} = $2 AND u.conversation_id = $1
            ORDER BY u.epoch",
        load_unreadable: "
            SELECT NULL, NULL, u.data FROM {unreadable_states} AS u
            WHERE u.{owner} = $3 AND u.conversation_id = $1 AND u.epoch = $2
            UNION ALL
            SELECT m.position, m.message_id, m.data FROM {agent_messages} AS m
            WHERE m.{owner} = $3 AND m.conversation_id = $1 AND m.epoch = $2",
        is_unreadable: "
            SELECT TRUE FROM {unreadable_states} AS u
            WHERE u.{owner} = $3 AND u.conversation_id = $1 AND u.epoch = $2",
        set_aside: "
            INSERT INTO {unreadable_states} ({owner}, conversation_id, epoch, data, set_aside_at)
            SELECT s.{owner}, s.conversation_id, s.epoch, s.data, $2
            FROM {agent_states} AS s
            WHERE s.{owner} = $3 AND s.conversation_id = $1",
        next_epoch: "
            UPDATE {agent_states} AS s
            SET epoch = 1 + (
                SELECT max(u.epoch) FROM {unreadable_states} AS u
                WHERE u.{owner} = $2 AND u.conversation_id = $1
            )
            WHERE s.{owner} = $2 AND s.conversation_id = $1",
        restore: "
            UPDATE {agent_states} AS s
            SET epoch = u.epoch, data = u.data, revision = s.revision + 1, write_id = $3,
                updated_at = max(s.updated_at, $4)
            FROM {unreadable_states} AS u
            WHERE s.{owner} = $5 AND s.conversation_id = $1
              AND u.{owner} = $5 AND u.conversation_id = $1 AND u.epoch = $2
            RETURNING revision",
        discard: "
            DELETE FROM {unreadable_states} AS u
            WHERE u.{owner} = $3 AND u.conversation_id = $1 AND u.epoch = $2",
        discard_messages: "
            DELETE FROM {agent_messages} AS m
            WHERE m.{owner} = $3 AND m.conversation_id = $1 AND m.epoch = $2",
    }
}

impl Driver {
    pub(crate) async fn save_agent_state(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        state: &State,
        save: &Save,
    ) -> Result<Attempt> {
        let mut tx = self.begin().await?;
        let row = sqlx::query(&self.sql.states.current)
            .bind(conversation_id)
            .bind(Timestamp::now())
            .bind(owner.key())
            .fetch_optional(&mut *tx)
            .await?
            .ok_or(Error::NotFound)?;
        let current = Current::from_row(&row)?;
        if !current.fits(save, None) {
            tx.rollback().await?;
            return Ok(Attempt::Found(current));
        }
        // Only now: saves that wait for their turn don't hold the text of their states.
        let rows = state.to_rows(conversation_id, save.expect)?;
        if !current.fits(save, rows.base) {
            tx.rollback().await?;
            return Ok(Attempt::Found(current));
        }
        if save.set_aside {
            self.set_aside(&mut tx, owner, conversation_id).await?;
            let next = sqlx::query(&self.sql.states.next_epoch).bind(conversation_id).bind(owner.key());
            next.execute(&mut *tx).await?;
        }
        let revision = self.write(&mut tx, owner, conversation_id, &rows, save.write_id).await?;
        let usage = rows.changed.iter().filter_map(|row| Some((row.message_id, row.usage.as_ref()?)));
        self.count(&mut tx, owner, conversation_id, &usage.collect::<Vec<_>>()).await?;
        tx.commit().await?;
        Ok(Attempt::Saved(revision, rows))
    }

    /// Stores a state over the one that is there.
    async fn write(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        conversation_id: Uuid,
        rows: &Rows,
        write_id: Uuid,
    ) -> Result<Revision> {
        let mut texts = Vec::new();
        let mut places = Vec::with_capacity(rows.changed.len());
        for row in &rows.changed {
            places.push((row.position, texts.len() + 1, row.data.len()));
            texts.extend_from_slice(row.data.as_bytes());
        }
        let ids: Vec<_> = rows.changed.iter().flat_map(|row| row.message_id.into_bytes()).collect();
        let saved = sqlx::query(&self.sql.states.save)
            .bind(conversation_id)
            .bind(serializer::STORED_VERSION)
            .bind(write_id)
            .bind(&rows.header)
            .bind(Timestamp::now())
            .bind(Json(places))
            .bind(ids)
            .bind(texts)
            .bind(rows.count)
            .bind(owner.key())
            .fetch_all(connection)
            .await?;
        let revision = saved.first().ok_or(Error::NotFound)?;
        Ok(Revision(revision.at(0)?))
    }

    pub(crate) async fn restore_unreadable_state(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        epoch: i64,
        write_id: Uuid,
    ) -> Result<Revision> {
        let sql = &self.sql.states;
        let mut tx = self.begin().await?;
        self.touch(&mut tx, owner, conversation_id).await?;
        let found = sqlx::query(&sql.is_unreadable).bind(conversation_id).bind(epoch).bind(owner.key());
        found.fetch_optional(&mut *tx).await?.ok_or(Error::NotFound)?;
        self.set_aside(&mut tx, owner, conversation_id).await?;
        let restored = sqlx::query(&sql.restore)
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
        Ok(Revision(restored.at(0)?))
    }

    pub(crate) async fn discard_unreadable_state(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        epoch: i64,
    ) -> Result<()> {
        let sql = &self.sql.states;
        let mut tx = self.begin().await?;
        self.touch(&mut tx, owner, conversation_id).await?;
        let discard = sqlx::query(&sql.discard).bind(conversation_id).bind(epoch).bind(owner.key());
        if discard.execute(&mut *tx).await?.rows_affected() == 0 {
            // The epoch may be that of the current state, so its messages stay.
            return Err(Error::NotFound);
        }
        let discard = sqlx::query(&sql.discard_messages).bind(conversation_id).bind(epoch).bind(owner.key());
        discard.execute(&mut *tx).await?;
        tx.commit().await
    }

    pub(crate) async fn set_interrupted(&self, owner: &Owner, conversation_id: Uuid, interrupted: bool) -> Result<()> {
        let mut tx = self.begin().await?;
        let updated = sqlx::query(&self.sql.states.interrupt)
            .bind(conversation_id)
            .bind(interrupted)
            .bind(Timestamp::now())
            .bind(owner.key())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        if updated.rows_affected() == 0 { Err(Error::NotFound) } else { Ok(()) }
    }

    /// Sets `updated_at`.
    async fn touch(&self, connection: &mut SqliteConnection, owner: &Owner, conversation_id: Uuid) -> Result<()> {
        let touch = sqlx::query(&self.sql.states.touch).bind(conversation_id).bind(Timestamp::now()).bind(owner.key());
        let touched = touch.execute(connection).await?;
        if touched.rows_affected() == 0 { Err(Error::NotFound) } else { Ok(()) }
    }
}
