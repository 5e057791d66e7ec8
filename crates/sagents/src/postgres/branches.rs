//! The statements that fork and rewind conversations. They copy and delete rows on the server; the search for the cut reads ids
//! and positions. One transaction does both and locks the conversation first, so no other writer comes between.

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Json;
use sqlx::{Connection as _, Postgres, Transaction};
use uuid::Uuid;

use super::shared_cut::OutlineIds;
use super::{Driver, retry};
use crate::cut::Place;
use crate::rows;
use crate::statement::statements;
use crate::store::branches::origin;
use crate::{Error, Fork, Forked, Owner, Point, Result, Rewound, Timestamp};

statements! {
    pub(super) struct Branches {
        /// Every writer updates this row first. Inserts into other tables may check that it's there.
        lock: "
            SELECT TRUE FROM {conversations} AS c
            WHERE c.{owner} = $2::{owner_type} AND c.id = $1::uuid
            FOR NO KEY UPDATE",
        /// Rows are found by the id that `c` has, not by the parameter: with a value to look at, the server plans the
        /// statement again in every call.
        outline: "
            SELECT c.last_change, s.revision, s.data,
                   ARRAY(
                       SELECT m.position::bigint FROM {agent_messages} AS m
                       WHERE m.{owner} = $2::{owner_type} AND m.conversation_id = c.id AND m.epoch = s.epoch
                       ORDER BY m.position
                   ), ARRAY(
                       SELECT m.message_id FROM {agent_messages} AS m
                       WHERE m.{owner} = $2::{owner_type} AND m.conversation_id = c.id AND m.epoch = s.epoch
                       ORDER BY m.position
                   ), ARRAY(
                       SELECT m.sequence FROM {display_messages} AS m
                       WHERE m.{owner} = $2::{owner_type} AND m.conversation_id = c.id
                       ORDER BY m.sequence
                   ), ARRAY(
                       SELECT m.message_id FROM {display_messages} AS m
                       WHERE m.{owner} = $2::{owner_type} AND m.conversation_id = c.id
                       ORDER BY m.sequence
                   ), ARRAY(
                       SELECT m.sequence FROM {display_messages} AS m
                       WHERE m.{owner} = $2::{owner_type} AND m.conversation_id = c.id
                         AND m.tool_call_id IS NOT NULL AND m.content_type = 'tool_call'
                         AND (m.status = 'interrupted'
                              OR m.status IN ('pending', 'executing')
                                 AND m.metadata ->> 'hitl_decision' = 'approved')
                   )
            FROM {conversations} AS c
            LEFT JOIN {agent_states} AS s ON s.{owner} = $2::{owner_type} AND s.conversation_id = c.id
            WHERE c.{owner} = $2::{owner_type} AND c.id = $1::uuid",
        /// The type `json` allows U+0000, and the functions that read it don't.
        agent_tools: "
            WITH state AS (
                SELECT s.conversation_id, s.epoch FROM {agent_states} AS s
                WHERE s.{owner} = $4::{owner_type} AND s.conversation_id = $1::uuid
            ), messages AS MATERIALIZED (
                SELECT m.position::bigint AS position, replace(m.data::text, '\\u0000', '\\u0001')::json AS data
                FROM {agent_messages} AS m
                WHERE m.{owner} = $4::{owner_type} AND m.conversation_id = (SELECT s.conversation_id FROM state AS s)
                  AND m.epoch = (SELECT s.epoch FROM state AS s)
                  AND m.position >= $2::bigint AND m.position < $3::bigint
                  AND (strpos(m.data::text, '\"tool_calls\"') > 0 OR strpos(m.data::text, '\"tool_results\"') > 0)
            )
            SELECT m.position, TRUE, t.value ->> 'call_id'
            FROM messages AS m CROSS JOIN json_array_elements(
                CASE json_typeof(m.data -> 'tool_calls') WHEN 'array' THEN m.data -> 'tool_calls' ELSE '[]' END
            ) AS t (value)
            UNION ALL
            SELECT m.position, FALSE, t.value ->> 'tool_call_id'
            FROM messages AS m CROSS JOIN json_array_elements(
                CASE json_typeof(m.data -> 'tool_results') WHEN 'array' THEN m.data -> 'tool_results' ELSE '[]' END
            ) AS t (value)",
        shown_tools: "
            SELECT m.sequence, m.content_type = 'tool_call', m.tool_call_id
            FROM {display_messages} AS m
            WHERE m.{owner} = $4::{owner_type} AND m.conversation_id = $1::uuid
              AND m.sequence >= $2::bigint AND m.sequence < $3::bigint
              AND m.tool_call_id IS NOT NULL AND m.content_type IN ('tool_call', 'tool_result')",
        create: "
            INSERT INTO {conversations}
                ({owner}, id, title, scope, metadata, interrupted, next_sequence,
                 inserted_at, updated_at, last_change{own_conversation_columns})
            SELECT c.{owner}, $2::uuid, coalesce($3::text, c.title), c.scope,
                   c.metadata || jsonb_build_object('forked_from', $4::jsonb),
                   coalesce($5::boolean, c.interrupted), c.next_sequence,
                   $6::timestamptz, $6::timestamptz, c.last_change{c.own_conversation_columns}
            FROM {conversations} AS c
            WHERE c.{owner} = $7::{owner_type} AND c.id = $1::uuid
            ON CONFLICT ({owner}, id) DO NOTHING
            RETURNING {conversation_columns}",
        existing: "
            SELECT {c.conversation_columns} FROM {conversations} AS c
            WHERE c.{owner} = $2::{owner_type} AND c.id = $1::uuid",
        copy_state: "
            INSERT INTO {agent_states}
                ({owner}, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
            SELECT s.{owner}, $2::uuid, s.version, 1, $3::uuid, $4::json, $5::timestamptz, $5::timestamptz
            FROM {agent_states} AS s
            WHERE s.{owner} = $6::{owner_type} AND s.conversation_id = $1::uuid",
        copy_messages: "
            INSERT INTO {agent_messages} ({owner}, conversation_id, epoch, position, message_id, data)
            SELECT m.{owner}, $2::uuid, 0, m.position, m.message_id, m.data
            FROM {agent_messages} AS m
            WHERE m.{owner} = $4::{owner_type} AND m.conversation_id = $1::uuid AND m.epoch = (
                SELECT s.epoch FROM {agent_states} AS s
                WHERE s.{owner} = $4::{owner_type} AND s.conversation_id = $1::uuid
            ) AND m.position < $3::bigint",
        /// A fork doesn't get an approval of a call that hasn't ended, nor the execution of a call.
        copy_shown: "
            INSERT INTO {display_messages}
                ({owner}, conversation_id, sequence, message_id, item, role, content_type, content, metadata,
                 tool_call_id, status, inserted_at, changed, delivery{own_display_message_columns})
            SELECT m.{owner}, $2::uuid, m.sequence, m.message_id, m.item, m.role, m.content_type, m.content,
                   CASE
                       WHEN m.status = 'executing' AND m.metadata ->> 'hitl_decision' IS DISTINCT FROM 'approved'
                           THEN m.metadata || '{\"started_elsewhere\": true}'
                       WHEN m.status = 'executing'
                           THEN m.metadata - ARRAY['hitl_decision', 'decision', 'decision_claim', 'claim']
                                || '{\"started_elsewhere\": true}'
                       WHEN m.tool_call_id IS NOT NULL AND m.metadata ->> 'hitl_decision' = 'approved'
                            AND (m.status IN ('pending', 'interrupted')
                                 OR m.status IS NULL AND m.metadata -> 'is_interrupt' = 'true')
                           THEN m.metadata - ARRAY['hitl_decision', 'decision', 'decision_claim', 'claim']
                       ELSE m.metadata
                   END,
                   m.tool_call_id,
                   CASE
                       WHEN m.status IN ('pending', 'executing') AND m.metadata ->> 'hitl_decision' = 'approved'
                           THEN 'interrupted'
                       WHEN m.status = 'executing' THEN 'unknown'
                       ELSE m.status
                   END, m.inserted_at, m.changed,
                   CASE m.delivery WHEN 'draft' THEN 'interrupted' ELSE m.delivery END{m.own_display_message_columns}
            FROM {display_messages} AS m
            WHERE m.{owner} = $5::{owner_type} AND m.conversation_id = $1::uuid
              AND (m.sequence < $3::bigint) <> (m.sequence = ANY ($4::bigint[]))",
        /// A row without tokens marks a message that was counted in the other conversation.
        copy_usage: "
            INSERT INTO {usage}
                ({owner}, conversation_id, message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at)
            SELECT u.{owner}, $2::uuid, u.message_id, u.model, 0, 0, 0, $3::timestamptz
            FROM {usage} AS u
            WHERE u.{owner} = $4::{owner_type} AND u.conversation_id = $1::uuid",
        rewind: "
            UPDATE {conversations} AS c
            SET last_change = $4::bigint, last_removal = $4::bigint, interrupted = c.interrupted AND $3::boolean,
                updated_at = greatest(c.updated_at, $2::timestamptz)
            WHERE c.{owner} = $5::{owner_type} AND c.id = $1::uuid",
        /// A removal has the number of a change. The last display message that stays gets it, too: a reader who loads it is
        /// known to have seen the removal.
        rewind_shown: "
            WITH touched AS (
                UPDATE {display_messages} AS m SET changed = $5::bigint
                WHERE m.{owner} = $6::{owner_type} AND m.conversation_id = $1::uuid AND m.sequence = $4::bigint
            )
            DELETE FROM {display_messages} AS m
            WHERE m.{owner} = $6::{owner_type} AND m.conversation_id = $1::uuid
              AND (m.sequence >= $2::bigint) <> (m.sequence = ANY ($3::bigint[]))",
        rewind_state: "
            WITH state AS (
                UPDATE {agent_states} AS s
                SET revision = s.revision + 1, write_id = $2::uuid, data = $3::json,
                    updated_at = greatest(s.updated_at, $4::timestamptz)
                WHERE s.{owner} = $6::{owner_type} AND s.conversation_id = $1::uuid
                RETURNING s.epoch
            )
            DELETE FROM {agent_messages} AS m
            WHERE m.{owner} = $6::{owner_type} AND m.conversation_id = $1::uuid
              AND m.epoch = (SELECT s.epoch FROM state AS s) AND m.position >= $5::bigint",
        cancel_run: "
            UPDATE {runs} AS r SET cancel_requested = TRUE
            WHERE r.{owner} = $3::{owner_type} AND r.conversation_id = $1::uuid
              AND (r.status = 'running' OR r.status = 'waiting' AND NOT $2::boolean)",
    }
}

impl Driver {
    /// Nothing if the id is taken.
    pub(crate) async fn fork_conversation(&self, owner: &Owner, id: Uuid, fork: &Fork) -> Result<Option<Forked>> {
        retry(|| async {
            let (sql, now) = (&self.sql.branches, Timestamp::now());
            let mut lease = self.lease(owner, fork.id).await?;
            let (mut tx, place) = self.find_cut(lease.connection(), owner, id, fork.at).await?;
            let created = sqlx::query(&sql.create)
                .bind(id)
                .bind(fork.id)
                .bind(&fork.title)
                .bind(Json(origin(id, place.cut)))
                .bind(place.waits_in_fork())
                .bind(now)
                .bind(owner.key())
                .fetch_optional(&mut *tx)
                .await?;
            let Some(created) = created else {
                tx.rollback().await?;
                lease.end();
                return Ok(None);
            };
            if let Some(header) = place.header()? {
                sqlx::query(&sql.copy_state)
                    .bind(id)
                    .bind(fork.id)
                    .bind(Uuid::now_v7())
                    .bind(header)
                    .bind(now)
                    .bind(owner.key())
                    .execute(&mut *tx)
                    .await?;
                let messages = sqlx::query(&sql.copy_messages).bind(id).bind(fork.id).bind(place.position);
                messages.bind(owner.key()).execute(&mut *tx).await?;
            }
            sqlx::query(&sql.copy_shown)
                .bind(id)
                .bind(fork.id)
                .bind(place.sequence)
                .bind(&place.displaced)
                .bind(owner.key())
                .execute(&mut *tx)
                .await?;
            let usage = sqlx::query(&sql.copy_usage).bind(id).bind(fork.id).bind(now).bind(owner.key());
            usage.execute(&mut *tx).await?;
            tx.commit().await?;
            lease.end();
            Ok(Some(Forked { conversation: rows::conversation(&created)?, cut: place.cut }))
        })
        .await
    }

    pub(crate) async fn rewind_conversation(
        &self,
        owner: &Owner,
        id: Uuid,
        to: Point,
        write_id: Uuid,
    ) -> Result<Rewound> {
        let (rewound, is_changed) = retry(|| async {
            let (sql, now) = (&self.sql.branches, Timestamp::now());
            let mut lease = self.lease(owner, id).await?;
            let (mut tx, place) = self.find_cut(lease.connection(), owner, id, to).await?;
            if !place.removes() {
                tx.rollback().await?;
                lease.end();
                return Ok((place.unchanged(), false));
            }
            let change = place.last_change + 1;
            sqlx::query(&sql.rewind)
                .bind(id)
                .bind(now)
                .bind(place.is_waiting)
                .bind(change)
                .bind(owner.key())
                .execute(&mut *tx)
                .await?;
            sqlx::query(&sql.rewind_shown)
                .bind(id)
                .bind(place.sequence)
                .bind(&place.displaced)
                .bind(place.last_sequence)
                .bind(change)
                .bind(owner.key())
                .execute(&mut *tx)
                .await?;
            if let Some(header) = place.header()? {
                sqlx::query(&sql.rewind_state)
                    .bind(id)
                    .bind(write_id)
                    .bind(header)
                    .bind(now)
                    .bind(place.position)
                    .bind(owner.key())
                    .execute(&mut *tx)
                    .await?;
            }
            let cancel = sqlx::query(&sql.cancel_run).bind(id).bind(place.is_waiting).bind(owner.key());
            cancel.execute(&mut *tx).await?;
            tx.commit().await?;
            lease.end();
            Ok((place.rewound(), true))
        })
        .await?;
        if is_changed {
            self.announce(id).await;
        }
        Ok(rewound)
    }

    /// Begins a transaction that has the conversation to itself, and searches the cut.
    async fn find_cut<'c>(
        &self,
        connection: &'c mut PgConnection,
        owner: &Owner,
        id: Uuid,
        point: Point,
    ) -> Result<(Transaction<'c, Postgres>, Place)> {
        let sql = &self.sql.branches;
        let mut tx = connection.begin().await?;
        // A statement of its own: the next one sees what earlier writers stored.
        let lock = sqlx::query(&sql.lock).bind(id).bind(owner.key());
        lock.fetch_optional(&mut *tx).await?.ok_or(Error::NotFound)?;
        let place = self.search_cut(&mut tx, owner, id, point).await?;
        Ok((tx, place))
    }
}

/// The ids of the agent's messages by position, those of display messages by sequence, and the waiting tool calls.
pub(super) fn outline_ids(row: &PgRow) -> sqlx::Result<OutlineIds> {
    let waiting = sqlx::Row::try_get(row, 7)?;
    Ok(OutlineIds { agent: numbered_ids(row, 3)?, shown: numbered_ids(row, 5)?, waiting })
}

/// Reads a column with numbers, and the next one with their ids.
fn numbered_ids(row: &PgRow, column: usize) -> sqlx::Result<Vec<(i64, Uuid)>> {
    let numbers: Vec<i64> = sqlx::Row::try_get(row, column)?;
    let ids: Vec<Uuid> = sqlx::Row::try_get(row, column + 1)?;
    Ok(numbers.into_iter().zip(ids).collect())
}
