//! The statements of the generated context for `PostgreSQL`, as one would write them for this one host.

use chrono::{DateTime, TimeDelta, Utc};
use my_app::conversations::{Conversation, DisplayMessage, NewConversation, NewDisplayMessage, ToolStatus};
use serde_json::{Map, Value, json};
use sqlx::postgres::{PgConnection, PgPool, PgRow};
use sqlx::types::Json;
use sqlx::{FromRow as _, Postgres, Row as _, Transaction};
use uuid::Uuid;

use crate::USER;
use crate::beside_hand::{before, either_case};

#[derive(Clone)]
pub struct ByHand(pub PgPool);

/// Of a model: messages, input, output and cached tokens.
type Sums = (Option<String>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

impl ByHand {
    pub async fn create(&self, new: NewConversation) -> Conversation {
        sqlx::query_as(
            "INSERT INTO sagents_conversations AS c (user_id, id, title, scope, metadata, inserted_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $6)
             ON CONFLICT (user_id, id) DO UPDATE SET title = c.title RETURNING *",
        )
        .bind(USER)
        .bind(new.id)
        .bind(new.title)
        .bind(json!({ "type": "user", "id": USER }))
        .bind(Json(new.metadata))
        .bind(Utc::now())
        .fetch_one(&self.0)
        .await
        .unwrap()
    }

    pub async fn get(&self, id: Uuid) -> Conversation {
        let get = sqlx::query_as("SELECT * FROM sagents_conversations WHERE user_id = $1 AND id = $2");
        get.bind(USER).bind(id).fetch_one(&self.0).await.unwrap()
    }

    pub async fn update(&self, id: Uuid, title: String, metadata: Map<String, Value>) -> Conversation {
        sqlx::query_as(
            "UPDATE sagents_conversations
             SET title = CASE WHEN $3 THEN $4 ELSE title END, metadata = CASE WHEN $5 THEN $6 ELSE metadata END,
                 updated_at = greatest(updated_at, $7)
             WHERE user_id = $1 AND id = $2 RETURNING *",
        )
        .bind(USER)
        .bind(id)
        .bind(true)
        .bind(title)
        .bind(true)
        .bind(Json(metadata))
        .bind(Utc::now())
        .fetch_one(&self.0)
        .await
        .unwrap()
    }

    pub async fn set_interrupted(&self, id: Uuid, interrupted: bool) -> Conversation {
        let update = sqlx::query_as(
            "UPDATE sagents_conversations SET interrupted = $3, updated_at = greatest(updated_at, $4)
             WHERE user_id = $1 AND id = $2 RETURNING *",
        );
        update.bind(USER).bind(id).bind(interrupted).bind(Utc::now()).fetch_one(&self.0).await.unwrap()
    }

    pub async fn archive(&self, id: Uuid) -> Conversation {
        let update = sqlx::query_as(
            "UPDATE sagents_conversations SET archived_at = coalesce(archived_at, $3)
             WHERE user_id = $1 AND id = $2 RETURNING *",
        );
        update.bind(USER).bind(id).bind(Utc::now()).fetch_one(&self.0).await.unwrap()
    }

    pub async fn usage(&self, id: Uuid) -> Vec<Sums> {
        let select = sqlx::query_as(
            "SELECT u.* FROM sagents_conversations c
             LEFT JOIN (
                 SELECT model, count(*), sum(input_tokens)::bigint, sum(output_tokens)::bigint, sum(cached_tokens)::bigint
                 FROM sagents_usage WHERE user_id = $1 AND conversation_id = $2 GROUP BY model
             ) u ON TRUE
             WHERE c.user_id = $1 AND c.id = $2",
        );
        select.bind(USER).bind(id).fetch_all(&self.0).await.unwrap()
    }

    pub async fn delete(&self, id: Uuid) {
        let delete = sqlx::query("DELETE FROM sagents_conversations WHERE user_id = $1 AND id = $2");
        delete.bind(USER).bind(id).execute(&self.0).await.unwrap();
    }

    pub async fn list(&self) -> Vec<Conversation> {
        let list = sqlx::query_as(
            "SELECT * FROM sagents_conversations
             WHERE user_id = $1 AND archived_at IS NULL AND (updated_at, id) < ($4, $3)
             ORDER BY updated_at DESC, id DESC LIMIT $2",
        );
        let end = Utc::now() + TimeDelta::days(1000);
        list.bind(USER).bind(50_i64).bind(Uuid::max()).bind(end).fetch_all(&self.0).await.unwrap()
    }

    pub async fn append(&self, conversation_id: Uuid, items: Vec<NewDisplayMessage>) -> Vec<DisplayMessage> {
        match <[_; 1]>::try_from(items) {
            Ok([item]) => vec![self.append_one(conversation_id, item).await],
            Err(items) => self.append_all(conversation_id, &items).await,
        }
    }

    async fn append_one(&self, conversation_id: Uuid, new: NewDisplayMessage) -> DisplayMessage {
        sqlx::query_as(
            "WITH conversation AS (
                 UPDATE sagents_conversations
                 SET next_sequence = next_sequence + 1, last_change = last_change + 1,
                     updated_at = greatest(updated_at, $10)
                 WHERE user_id = $11 AND id = $1
                 RETURNING next_sequence - 1 AS sequence, last_change, updated_at
             )
             INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role,
                 content_type, content, metadata, tool_call_id, status, inserted_at, changed)
             SELECT $11, $1, sequence, $2, $3, $4, $5, $6, $7, $8, $9, updated_at, last_change FROM conversation
             RETURNING *",
        )
        .bind(conversation_id)
        .bind(new.message_id)
        .bind(new.item)
        .bind(new.role.as_str())
        .bind(new.content_type.as_str())
        .bind(&new.content)
        .bind(Json(&new.metadata))
        .bind(&new.tool_call_id)
        .bind(new.status.map(ToolStatus::as_str))
        .bind(Utc::now())
        .bind(USER)
        .fetch_one(&self.0)
        .await
        .unwrap()
    }

    async fn append_all(&self, conversation_id: Uuid, items: &[NewDisplayMessage]) -> Vec<DisplayMessage> {
        sqlx::query_as(
            "WITH new AS (
                 SELECT * FROM unnest(
                     $4::integer[], $5::text[], $6::text[], $7::text[], $8::jsonb[], $9::text[], $10::text[]
                 ) AS new (item, role, content_type, content, metadata, tool_call_id, status)
             ), present AS (
                 SELECT * FROM sagents_display_messages
                 WHERE user_id = $1 AND conversation_id = $2 AND message_id = $3 AND item = ANY($4)
             ), missing AS (
                 SELECT *, row_number() OVER (ORDER BY item) AS place FROM new
                 WHERE item NOT IN (SELECT item FROM present)
             ), conversation AS (
                 UPDATE sagents_conversations
                 SET next_sequence = next_sequence + (SELECT count(*) FROM missing),
                     last_change = last_change + 1, updated_at = greatest(updated_at, $11)
                 WHERE user_id = $1 AND id = $2 AND EXISTS (SELECT FROM missing)
                 RETURNING next_sequence - (SELECT count(*) FROM missing) - 1 AS last, last_change, updated_at
             ), inserted AS (
                 INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role,
                     content_type, content, metadata, tool_call_id, status, inserted_at, changed)
                 SELECT $1, $2, last + place, $3, item, role, content_type, content, metadata, tool_call_id, status,
                     updated_at, last_change
                 FROM conversation, missing
                 RETURNING *
             )
             SELECT * FROM present UNION ALL SELECT * FROM inserted ORDER BY item",
        )
        .bind(USER)
        .bind(conversation_id)
        .bind(items[0].message_id)
        .bind(items.iter().map(|new| new.item).collect::<Vec<_>>())
        .bind(items.iter().map(|new| new.role.as_str()).collect::<Vec<_>>())
        .bind(items.iter().map(|new| new.content_type.as_str()).collect::<Vec<_>>())
        .bind(items.iter().map(|new| new.content.as_str()).collect::<Vec<_>>())
        .bind(items.iter().map(|new| Json(&new.metadata)).collect::<Vec<_>>())
        .bind(items.iter().map(|new| new.tool_call_id.as_deref()).collect::<Vec<_>>())
        .bind(items.iter().map(|new| new.status.map(ToolStatus::as_str)).collect::<Vec<_>>())
        .bind(Utc::now())
        .fetch_all(&self.0)
        .await
        .unwrap()
    }

    pub async fn page(&self, conversation_id: Uuid) -> Vec<DisplayMessage> {
        let page = sqlx::query_as(
            "SELECT m.* FROM sagents_conversations c
             LEFT JOIN (
                 SELECT * FROM sagents_display_messages
                 WHERE user_id = $1 AND conversation_id = $2 AND sequence > $3 ORDER BY sequence LIMIT $4
             ) m ON TRUE
             WHERE c.user_id = $1 AND c.id = $2 ORDER BY m.sequence",
        );
        let page = page.bind(USER).bind(conversation_id).bind(-1_i64).bind(100_i64);
        page.fetch_all(&self.0).await.unwrap()
    }

    pub async fn clear(&self, conversation_id: Uuid) -> u64 {
        let clear = sqlx::query_scalar(
            "WITH conversation AS (
                 UPDATE sagents_conversations SET updated_at = greatest(updated_at, $3)
                 WHERE user_id = $1 AND id = $2 RETURNING id
             ), deleted AS (
                 DELETE FROM sagents_display_messages m USING conversation c
                 WHERE m.user_id = $1 AND m.conversation_id = c.id RETURNING m.sequence
             )
             SELECT (SELECT count(*) FROM deleted) FROM conversation",
        );
        let cleared: i64 = clear.bind(USER).bind(conversation_id).bind(Utc::now()).fetch_one(&self.0).await.unwrap();
        cleared.unsigned_abs()
    }

    /// The first page.
    pub async fn search(&self, text: &str) -> Vec<DisplayMessage> {
        let exact: String = text.chars().map(either_case).collect();
        let search = sqlx::query_as(
            "SELECT * FROM sagents_display_messages
             WHERE user_id = $1 AND content COLLATE \"C\" ILIKE $2 ESCAPE '\\' AND content ~ $3
                 AND (inserted_at, conversation_id, sequence) < ($5, $6, $7)
             ORDER BY inserted_at DESC, conversation_id DESC, sequence DESC LIMIT $4",
        );
        let search = search.bind(USER).bind(format!("%{text}%")).bind(exact).bind(20_i64);
        let search = search.bind(Utc::now() + TimeDelta::days(1000)).bind(Uuid::max()).bind(i64::MAX);
        let mut tx = self.0.begin_with("BEGIN; SET LOCAL statement_timeout = '10s'").await.unwrap();
        let found = search.fetch_all(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        found
    }

    pub async fn change_tool_call(
        &self,
        conversation_id: Uuid,
        call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> DisplayMessage {
        let row = sqlx::query(
            "WITH call AS (
                 SELECT * FROM sagents_display_messages
                 WHERE user_id = $1 AND conversation_id = $2 AND tool_call_id = $3 AND content_type = 'tool_call'
                 ORDER BY sequence DESC LIMIT 1
             ), conversation AS (
                 UPDATE sagents_conversations
                 SET last_change = last_change + 1, updated_at = greatest(updated_at, $7)
                 WHERE user_id = $1 AND id = $2 AND EXISTS (
                     SELECT FROM call WHERE status = ANY ($6) AND (
                         $4 <> 'executing' OR status <> 'interrupted' OR metadata ->> 'hitl_decision' = 'approved'
                     )
                 )
                 RETURNING id, last_change
             ), changed AS (
                 UPDATE sagents_display_messages m
                 SET status = $4, changed = c.last_change, metadata = CASE
                     WHEN $4 = 'interrupted' AND m.status <> 'interrupted'
                         THEN m.metadata - '{hitl_decision,decision,claim}'::text[]
                     ELSE m.metadata
                 END || $5
                 FROM conversation c, call
                 WHERE m.user_id = $1 AND m.conversation_id = c.id AND m.sequence = call.sequence
                     AND m.status = ANY ($6) AND (
                         $4 <> 'executing' OR m.status <> 'interrupted'
                         OR m.metadata ->> 'hitl_decision' = 'approved'
                     )
                 RETURNING m.*
             )
             SELECT *, TRUE AS is_changed FROM changed
             UNION ALL
             SELECT *, FALSE FROM call WHERE NOT EXISTS (SELECT FROM changed)",
        )
        .bind(USER)
        .bind(conversation_id)
        .bind(call_id)
        .bind(status.as_str())
        .bind(Json(metadata))
        .bind(before(status))
        .bind(Utc::now())
        .fetch_one(&self.0)
        .await
        .unwrap();
        assert!(row.get::<bool, _>("is_changed"));
        DisplayMessage::from_row(&row).unwrap()
    }

    /// A person approves a tool call, which has a result.
    pub async fn approve(&self, conversation_id: Uuid, call_id: &str) -> DisplayMessage {
        let row = sqlx::query(
            "WITH call AS (
                 SELECT * FROM sagents_display_messages
                 WHERE user_id = $1 AND conversation_id = $2 AND tool_call_id = $3 AND content_type = 'tool_call'
                 ORDER BY sequence DESC LIMIT 1
             ), conversation AS (
                 UPDATE sagents_conversations
                 SET last_change = last_change + 1, updated_at = greatest(updated_at, $5)
                 WHERE user_id = $1 AND id = $2 AND EXISTS (
                     SELECT FROM call
                     WHERE status IN ('pending', 'executing', 'interrupted') AND NOT metadata ? 'hitl_decision'
                 )
                 RETURNING id, last_change
             ), changed AS (
                 UPDATE sagents_display_messages m SET metadata = m.metadata || $4, changed = c.last_change
                 FROM conversation c, call
                 WHERE m.user_id = $1 AND m.conversation_id = c.id AND m.sequence = call.sequence
                     AND m.status IN ('pending', 'executing', 'interrupted') AND NOT m.metadata ? 'hitl_decision'
                 RETURNING m.*
             ), result AS (
                 UPDATE sagents_display_messages m SET metadata = m.metadata || $4, changed = c.last_change
                 FROM conversation c
                 WHERE m.user_id = $1 AND m.conversation_id = c.id AND m.sequence = (
                     SELECT max(sequence) FROM sagents_display_messages
                     WHERE user_id = $1 AND conversation_id = $2 AND tool_call_id = $3
                         AND content_type = 'tool_result'
                 ) AND EXISTS (SELECT FROM changed)
             )
             SELECT *, TRUE AS is_changed FROM changed
             UNION ALL
             SELECT *, FALSE FROM call WHERE NOT EXISTS (SELECT FROM changed)",
        )
        .bind(USER)
        .bind(conversation_id)
        .bind(call_id)
        .bind(json!({ "hitl_decision": "approved" }))
        .bind(Utc::now())
        .fetch_one(&self.0)
        .await
        .unwrap();
        assert!(row.get::<bool, _>("is_changed"));
        DisplayMessage::from_row(&row).unwrap()
    }

    pub async fn resolve(&self, conversation_id: Uuid, call_id: &str, content: &str) -> DisplayMessage {
        sqlx::query_as(
            "WITH result AS (
                 SELECT sequence, metadata FROM sagents_display_messages
                 WHERE user_id = $1 AND conversation_id = $2 AND tool_call_id = $3 AND content_type = 'tool_result'
                 ORDER BY sequence DESC LIMIT 1
             ), conversation AS (
                 UPDATE sagents_conversations
                 SET last_change = last_change + 1, updated_at = greatest(updated_at, $5)
                 WHERE user_id = $1 AND id = $2 AND (SELECT metadata -> 'is_interrupt' FROM result) = 'true'
                 RETURNING id, last_change
             ), changed AS (
                 UPDATE sagents_display_messages m
                 SET content = $4, metadata = m.metadata || '{\"is_interrupt\": false, \"is_error\": false}',
                     changed = c.last_change
                 FROM conversation c, result r
                 WHERE m.user_id = $1 AND m.conversation_id = c.id AND m.sequence = r.sequence
                     AND m.metadata -> 'is_interrupt' = 'true'
                 RETURNING m.*
             )
             SELECT * FROM changed",
        )
        .bind(USER)
        .bind(conversation_id)
        .bind(call_id)
        .bind(content)
        .bind(Utc::now())
        .fetch_one(&self.0)
        .await
        .unwrap()
    }

    pub async fn delete_before(&self, cutoff: DateTime<Utc>) -> u64 {
        let (mut start, mut total) = ((i64::MIN, Uuid::nil()), 0);
        loop {
            let select = sqlx::query_as(
                "WITH own AS (
                     SELECT c.user_id, c.id, CASE WHEN c.updated_at < $3 THEN 1 + c.next_sequence + (
                         SELECT count(*) FROM sagents_agent_messages m
                         WHERE m.user_id = c.user_id AND m.conversation_id = c.id
                     ) + (
                         SELECT count(*) FROM sagents_usage u
                         WHERE u.user_id = c.user_id AND u.conversation_id = c.id
                     ) ELSE 0 END AS size
                     FROM sagents_conversations c WHERE c.user_id = $1 AND c.id > $2 ORDER BY c.id LIMIT 1000
                 ), others AS (
                     SELECT c.user_id, c.id, CASE WHEN c.updated_at < $3 THEN 1 + c.next_sequence + (
                         SELECT count(*) FROM sagents_agent_messages m
                         WHERE m.user_id = c.user_id AND m.conversation_id = c.id
                     ) + (
                         SELECT count(*) FROM sagents_usage u
                         WHERE u.user_id = c.user_id AND u.conversation_id = c.id
                     ) ELSE 0 END AS size
                     FROM sagents_conversations c WHERE c.user_id > $1 ORDER BY c.user_id, c.id LIMIT 1000
                 )
                 SELECT * FROM own UNION ALL SELECT * FROM others ORDER BY user_id, id LIMIT 1000",
            );
            let select = select.bind(start.0).bind(start.1).bind(cutoff);
            let page: Vec<(i64, Uuid, i64)> = select.fetch_all(&self.0).await.unwrap();
            let Some((user, id, _)) = page.last() else { return total };
            start = (*user, *id);
            for (user, id, _) in page.iter().filter(|(_, _, size)| *size > 0) {
                let delete = sqlx::query(
                    "DELETE FROM sagents_conversations WHERE user_id = $1 AND id = $2 AND updated_at < $3",
                );
                let delete = delete.bind(user).bind(id).bind(cutoff).execute(&self.0);
                total += delete.await.unwrap().rows_affected();
            }
        }
    }

    /// The snapshot way: a text that is ready, messages included, in one column.
    pub async fn save_snapshot(&self, conversation_id: Uuid, data: &str, expected: i64) -> i64 {
        sqlx::query_scalar(
            "WITH conversation AS (
                 UPDATE sagents_conversations SET updated_at = greatest(updated_at, $6)
                 WHERE user_id = $1 AND id = $2 AND $7 = coalesce((
                     SELECT revision FROM sagents_agent_states WHERE user_id = $1 AND conversation_id = $2
                 ), 0)
                 RETURNING id
             )
             INSERT INTO sagents_agent_states AS s
                 (user_id, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
             SELECT $1, id, $3, 1, $4, $5::json, $6, $6 FROM conversation
             ON CONFLICT (user_id, conversation_id) DO UPDATE
             SET version = excluded.version, revision = s.revision + 1, write_id = excluded.write_id,
                 data = excluded.data, updated_at = greatest(s.updated_at, $6)
             WHERE s.revision = $7
             RETURNING revision",
        )
        .bind(USER)
        .bind(conversation_id)
        .bind(2)
        .bind(Uuid::now_v7())
        .bind(data)
        .bind(Utc::now())
        .bind(expected)
        .fetch_one(&self.0)
        .await
        .unwrap()
    }

    /// The header and the messages of a state, which nobody parses.
    pub async fn load_rows(&self, conversation_id: Uuid) -> Vec<PgRow> {
        let load = sqlx::query(
            "SELECT s.revision, s.write_id, NULL::integer AS position, NULL::uuid AS message_id, s.data
             FROM sagents_conversations c
             LEFT JOIN sagents_agent_states s ON s.user_id = $1 AND s.conversation_id = $2
             WHERE c.user_id = $1 AND c.id = $2
             UNION ALL
             SELECT NULL::bigint, NULL::uuid, position, message_id, data FROM sagents_agent_messages
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = (
                 SELECT epoch FROM sagents_agent_states WHERE user_id = $1 AND conversation_id = $2
             )",
        );
        load.bind(USER).bind(conversation_id).fetch_all(&self.0).await.unwrap()
    }

    /// The header of a state that was set aside, with its messages.
    pub async fn load_unreadable(&self, conversation_id: Uuid, epoch: i64) -> (Vec<u8>, Vec<Vec<u8>>) {
        let load = sqlx::query(
            "SELECT -1 AS position, NULL::uuid AS message_id, data FROM sagents_unreadable_states
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3
             UNION ALL
             SELECT -1, NULL, unreadable_data FROM sagents_agent_states
             WHERE user_id = $1 AND conversation_id = $2 AND unreadable_data IS NOT NULL AND $3 = -1
             UNION ALL
             SELECT -2, conversation_id, data FROM sagents_agent_states
             WHERE user_id = $1 AND conversation_id = $2 AND unreadable_data IS NOT NULL AND $3 = -1
             UNION ALL
             SELECT position, message_id, data FROM sagents_agent_messages
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = (
                 SELECT epoch FROM sagents_unreadable_states
                 WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3
                 UNION ALL
                 SELECT epoch FROM sagents_agent_states
                 WHERE user_id = $1 AND conversation_id = $2 AND unreadable_data IS NOT NULL AND $3 = -1
             )",
        );
        let mut rows = load.bind(USER).bind(conversation_id).bind(epoch).fetch_all(&self.0).await.unwrap();
        rows.sort_by_key(|row| row.get::<i32, _>("position"));
        let mut texts = rows.iter().map(|row| row.try_get_unchecked("data").unwrap());
        (texts.next().unwrap(), texts.collect())
    }

    pub async fn restore_unreadable(&self, conversation_id: Uuid, epoch: i64) -> i64 {
        let mut tx = self.lock(conversation_id).await;
        assert!(of_aside(&mut tx, conversation_id).await.is_none());
        let move_aside = sqlx::query(
            "WITH kept AS (
                 INSERT INTO sagents_unreadable_states (user_id, conversation_id, epoch, data, set_aside_at)
                 SELECT user_id, conversation_id, epoch, data, $3 FROM sagents_agent_states
                 WHERE user_id = $1 AND conversation_id = $2
                 RETURNING epoch
             )
             UPDATE sagents_agent_states s
             SET epoch = 1 + greatest(s.epoch, (
                 SELECT max(epoch) FROM sagents_unreadable_states WHERE user_id = $1 AND conversation_id = $2
             ))
             FROM kept WHERE s.user_id = $1 AND s.conversation_id = $2",
        );
        move_aside.bind(USER).bind(conversation_id).bind(Utc::now()).execute(&mut *tx).await.unwrap();
        let restore = sqlx::query_scalar(
            "WITH aside AS (
                 DELETE FROM sagents_unreadable_states
                 WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3
                 RETURNING epoch, data
             )
             UPDATE sagents_agent_states s
             SET epoch = a.epoch, data = a.data, revision = s.revision + 1, write_id = $4,
                 updated_at = greatest(s.updated_at, $5)
             FROM aside a WHERE s.user_id = $1 AND s.conversation_id = $2
             RETURNING s.revision",
        );
        let restore = restore.bind(USER).bind(conversation_id).bind(epoch).bind(Uuid::now_v7()).bind(Utc::now());
        let revision = restore.fetch_one(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        revision
    }

    pub async fn discard_unreadable(&self, conversation_id: Uuid, epoch: i64) {
        let mut tx = self.lock(conversation_id).await;
        assert!(of_aside(&mut tx, conversation_id).await.is_none());
        let discard = sqlx::query(
            "WITH messages AS (
                 DELETE FROM sagents_agent_messages WHERE user_id = $1 AND conversation_id = $2 AND epoch = (
                     SELECT epoch FROM sagents_unreadable_states
                     WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3
                 )
             )
             DELETE FROM sagents_unreadable_states WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3",
        );
        let discarded = discard.bind(USER).bind(conversation_id).bind(epoch).execute(&mut *tx).await.unwrap();
        assert_eq!(discarded.rows_affected(), 1);
        tx.commit().await.unwrap();
    }

    async fn lock(&self, conversation_id: Uuid) -> Transaction<'static, Postgres> {
        let mut tx = self.0.begin().await.unwrap();
        let lock = sqlx::query(
            "UPDATE sagents_conversations SET updated_at = greatest(updated_at, $3) WHERE user_id = $1 AND id = $2",
        );
        lock.bind(USER).bind(conversation_id).bind(Utc::now()).execute(&mut *tx).await.unwrap();
        tx
    }
}

/// What the first version has set aside, if rows belong to it.
async fn of_aside(connection: &mut PgConnection, conversation_id: Uuid) -> Option<PgRow> {
    let select = sqlx::query(
        "SELECT s.data, s.unreadable_data FROM sagents_agent_states s
         WHERE s.user_id = $1 AND s.conversation_id = $2 AND s.unreadable_data IS NOT NULL AND EXISTS (
             SELECT 1 FROM sagents_agent_messages m
             WHERE m.user_id = $1 AND m.conversation_id = $2 AND m.epoch = s.epoch
         )",
    );
    select.bind(USER).bind(conversation_id).fetch_optional(connection).await.unwrap()
}
