//! The statements that fork and rewind conversations. They copy and delete rows in the database; the search for the cut reads
//! ids and positions. One transaction does both, so no other writer comes between.

use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::Driver;
use super::shared_cut::OutlineIds;
use crate::rows::{self, Columns as _};
use crate::statement::statements;
use crate::store::branches::origin;
use crate::{Fork, Forked, Owner, Point, Result, Rewound, Timestamp};

statements! {
    pub(super) struct Branches {
        /// The ids of messages come as one text, each as 32 digits with its position or sequence behind it, and a `w`
        /// behind that of a tool call that waits. Only tool calls have a status.
        outline: "
            SELECT c.last_change, s.revision, s.data, (
                SELECT group_concat(hex(m.message_id) || m.position) FROM {agent_messages} AS m
                WHERE m.{owner} = $2 AND m.conversation_id = $1 AND m.epoch = s.epoch
            ), (
                SELECT group_concat(
                    hex(m.message_id) || m.sequence || CASE
                        WHEN m.status = 'interrupted'
                             OR m.status IN ('pending', 'executing')
                                AND json_extract(m.metadata, '$.hitl_decision') = 'approved' THEN 'w'
                        ELSE ''
                    END
                ) FROM {display_messages} AS m
                WHERE m.{owner} = $2 AND m.conversation_id = $1
            )
            FROM {conversations} AS c
            LEFT JOIN {agent_states} AS s ON s.{owner} = $2 AND s.conversation_id = $1
            WHERE c.{owner} = $2 AND c.id = $1",
        agent_tools: "
            WITH messages AS MATERIALIZED (
                SELECT m.position, CASE WHEN json_valid(m.data) THEN m.data ELSE '{}' END AS data
                FROM {agent_messages} AS m
                WHERE m.{owner} = $4 AND m.conversation_id = $1 AND m.epoch = (
                    SELECT s.epoch FROM {agent_states} AS s
                    WHERE s.{owner} = $4 AND s.conversation_id = $1
                ) AND m.position >= $2 AND m.position < $3
                  AND (instr(m.data, '\"tool_calls\"') > 0 OR instr(m.data, '\"tool_results\"') > 0)
            )
            SELECT messages.position, TRUE, CAST(json_extract(t.value, '$.call_id') AS TEXT)
            FROM messages CROSS JOIN json_each(messages.data, '$.tool_calls') AS t
            WHERE t.type = 'object'
            UNION ALL
            SELECT messages.position, FALSE, CAST(json_extract(t.value, '$.tool_call_id') AS TEXT)
            FROM messages CROSS JOIN json_each(messages.data, '$.tool_results') AS t
            WHERE t.type = 'object'",
        /// The comparison makes `SQLite` use the index of tool calls, which has all of these columns.
        shown_tools: "
            SELECT m.sequence, m.content_type = 'tool_call', m.tool_call_id
            FROM {display_messages} AS m
            WHERE m.{owner} = $4 AND m.conversation_id = $1 AND m.sequence >= $2 AND m.sequence < $3
              AND m.tool_call_id >= '' AND m.content_type IN ('tool_call', 'tool_result')",
        create: "
            INSERT INTO {conversations}
                ({owner}, id, title, scope, metadata, interrupted, next_sequence,
                 inserted_at, updated_at, last_change{own_conversation_columns})
            SELECT c.{owner}, $2, coalesce($3, c.title), c.scope, json_set(c.metadata, '$.forked_from', json($4)),
                   coalesce($5, c.interrupted), c.next_sequence,
                   $6, $6, c.last_change{c.own_conversation_columns}
            FROM {conversations} AS c
            WHERE c.{owner} = $7 AND c.id = $1
            ON CONFLICT ({owner}, id) DO NOTHING
            RETURNING {conversation_columns}",
        existing: "
            SELECT {c.conversation_columns} FROM {conversations} AS c
            WHERE c.{owner} = $2 AND c.id = $1",
        copy_state: "
            INSERT INTO {agent_states}
                ({owner}, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
            SELECT s.{owner}, $2, s.version, 1, $3, $4, $5, $5
            FROM {agent_states} AS s
            WHERE s.{owner} = $7 AND s.conversation_id = $1;

            INSERT INTO {agent_messages} ({owner}, conversation_id, epoch, position, message_id, data)
            SELECT m.{owner}, $2, 0, m.position, m.message_id, m.data
            FROM {agent_messages} AS m
            WHERE m.{owner} = $7 AND m.conversation_id = $1 AND m.epoch = (
                SELECT s.epoch FROM {agent_states} AS s
                WHERE s.{owner} = $7 AND s.conversation_id = $1
            ) AND m.position < $6",
        /// A fork doesn't get an approval of a call that hasn't ended, nor the execution of a call.
        copy_shown: "
            INSERT INTO {display_messages}
                ({owner}, conversation_id, sequence, message_id, item, role, content_type, content, metadata,
                 tool_call_id, status, inserted_at, changed, delivery{own_display_message_columns})
            SELECT m.{owner}, $2, m.sequence, m.message_id, m.item, m.role, m.content_type, m.content,
                   CASE
                       WHEN m.status = 'executing' AND json_extract(m.metadata, '$.hitl_decision') IS NOT 'approved'
                           THEN json_set(m.metadata, '$.started_elsewhere', json('true'))
                       WHEN m.status = 'executing'
                           THEN json_set(json_remove(m.metadata, '$.hitl_decision', '$.decision', '$.decision_claim',
                                                     '$.claim'),
                                         '$.started_elsewhere', json('true'))
                       WHEN m.tool_call_id IS NOT NULL AND json_extract(m.metadata, '$.hitl_decision') = 'approved'
                            AND (m.status IN ('pending', 'interrupted')
                                 OR m.status IS NULL AND json_type(m.metadata, '$.is_interrupt') = 'true')
                           THEN json_remove(m.metadata, '$.hitl_decision', '$.decision', '$.decision_claim', '$.claim')
                       ELSE m.metadata
                   END,
                   m.tool_call_id,
                   CASE
                       WHEN m.status IN ('pending', 'executing')
                            AND json_extract(m.metadata, '$.hitl_decision') = 'approved' THEN 'interrupted'
                       WHEN m.status = 'executing' THEN 'unknown'
                       ELSE m.status
                   END, m.inserted_at, m.changed,
                   CASE m.delivery WHEN 'draft' THEN 'interrupted' ELSE m.delivery END{m.own_display_message_columns}
            FROM {display_messages} AS m
            WHERE m.{owner} = $5 AND m.conversation_id = $1
              AND (m.sequence < $3) <> (m.sequence IN (SELECT d.value FROM json_each($4) AS d))",
        /// A row without tokens marks a message that was counted in the other conversation.
        copy_usage: "
            INSERT INTO {usage}
                ({owner}, conversation_id, message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at)
            SELECT u.{owner}, $2, u.message_id, u.model, 0, 0, 0, $3
            FROM {usage} AS u
            WHERE u.{owner} = $4 AND u.conversation_id = $1",
        rewind_shown: "
            DELETE FROM {display_messages} AS m
            WHERE m.{owner} = $5 AND m.conversation_id = $1 AND m.sequence >= $4
              AND (m.sequence >= $2) <> (m.sequence IN (SELECT d.value FROM json_each($3) AS d))",
        /// A removal has the number of a change. The last display message that stays gets it, too: a reader who loads it is
        /// known to have seen the removal.
        rewind: "
            UPDATE {conversations} AS c
            SET last_change = $4, last_removal = $4, interrupted = c.interrupted AND $3,
                updated_at = max(c.updated_at, $2)
            WHERE c.{owner} = $6 AND c.id = $1;

            UPDATE {display_messages} AS m SET changed = $4
            WHERE m.{owner} = $6 AND m.conversation_id = $1 AND m.sequence = $5;

            UPDATE {runs} AS r SET cancel_requested = TRUE
            WHERE r.{owner} = $6 AND r.conversation_id = $1
              AND (r.status = 'running' OR r.status = 'waiting' AND NOT $3)",
        rewind_state: "
            DELETE FROM {agent_messages} AS m
            WHERE m.{owner} = $6 AND m.conversation_id = $1 AND m.epoch = (
                SELECT s.epoch FROM {agent_states} AS s
                WHERE s.{owner} = $6 AND s.conversation_id = $1
            ) AND m.position >= $5;

            UPDATE {agent_states} AS s
            SET revision = s.revision + 1, write_id = $2, data = $3, updated_at = max(s.updated_at, $4)
            WHERE s.{owner} = $6 AND s.conversation_id = $1",
    }
}

impl Driver {
    /// Nothing if the id is taken.
    pub(crate) async fn fork_conversation(&self, owner: &Owner, id: Uuid, fork: &Fork) -> Result<Option<Forked>> {
        let (sql, now) = (&self.sql.branches, Timestamp::now());
        let mut tx = self.begin().await?;
        let place = self.search_cut(&mut tx, owner, id, fork.at).await?;
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
            return Ok(None);
        };
        if let Some(header) = place.header()? {
            sqlx::query(&sql.copy_state)
                .bind(id)
                .bind(fork.id)
                .bind(Uuid::now_v7())
                .bind(header)
                .bind(now)
                .bind(place.position)
                .bind(owner.key())
                .execute(&mut *tx)
                .await?;
        }
        sqlx::query(&sql.copy_shown)
            .bind(id)
            .bind(fork.id)
            .bind(place.sequence)
            .bind(Json(&place.displaced))
            .bind(owner.key())
            .execute(&mut *tx)
            .await?;
        let usage = sqlx::query(&sql.copy_usage).bind(id).bind(fork.id).bind(now).bind(owner.key());
        usage.execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(Some(Forked { conversation: rows::conversation(&created)?, cut: place.cut }))
    }

    pub(crate) async fn rewind_conversation(
        &self,
        owner: &Owner,
        id: Uuid,
        to: Point,
        write_id: Uuid,
    ) -> Result<Rewound> {
        let (sql, now) = (&self.sql.branches, Timestamp::now());
        let mut tx = self.begin().await?;
        let place = self.search_cut(&mut tx, owner, id, to).await?;
        if !place.removes() {
            tx.rollback().await?;
            return Ok(place.unchanged());
        }
        sqlx::query(&sql.rewind_shown)
            .bind(id)
            .bind(place.sequence)
            .bind(Json(&place.displaced))
            .bind(place.first_removed())
            .bind(owner.key())
            .execute(&mut *tx)
            .await?;
        sqlx::query(&sql.rewind)
            .bind(id)
            .bind(now)
            .bind(place.is_waiting)
            .bind(place.last_change + 1)
            .bind(place.last_sequence)
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
        tx.commit().await?;
        self.announce(id);
        Ok(place.rewound())
    }
}

/// The ids of the agent's messages by position, those of display messages by sequence, and the waiting tool calls.
pub(super) fn outline_ids(row: &SqliteRow) -> sqlx::Result<OutlineIds> {
    let agent = outline_items(row.at(3)?)?;
    let mut shown = outline_items(row.at(4)?)?;
    shown.sort_unstable();
    let waiting = shown.iter().filter(|item| item.waits).map(|item| item.number).collect();
    let numbered = |items: Vec<OutlineItem>| items.into_iter().map(|item| (item.number, item.id)).collect();
    Ok(OutlineIds { agent: numbered(agent), shown: numbered(shown), waiting })
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct OutlineItem {
    /// A position or a sequence.
    number: i64,
    id: Uuid,
    waits: bool,
}

impl OutlineItem {
    fn parse(text: &str) -> Option<Self> {
        let (id, number) = text.split_at_checked(32)?;
        let waits = number.ends_with('w');
        let number = number.strip_suffix('w').unwrap_or(number).parse().ok()?;
        Some(Self { number, id: Uuid::try_parse(id).ok()?, waits })
    }
}

fn outline_items(text: Option<&str>) -> sqlx::Result<Vec<OutlineItem>> {
    let items = text.into_iter().flat_map(|text| text.split(','));
    let damaged = || sqlx::Error::Decode("a message id is damaged".into());
    items.map(|item| OutlineItem::parse(item).ok_or_else(damaged)).collect()
}
