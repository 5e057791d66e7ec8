//! The statements of a store on `PostgreSQL`, as one would write them for these tables.

use sagents::sqlx::postgres::{PgConnection, PgPool, PgRow};
use sagents::sqlx::types::Json;
use sagents::sqlx::{self, FromRow as _, Postgres, Row as _, Transaction};
use sagents::{ContentType, Conversation, DisplayMessage, NewDisplayMessage, Store, Timestamp, ToolStatus};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::hand::{ByHand, approval, either_case, may_change};
use crate::{TABLES, USER};

#[derive(Clone)]
pub struct Hand {
    pub pool: PgPool,
}

impl ByHand for Hand {
    type Row = PgRow;

    async fn settle(&self) {
        for settle in ["VACUUM ANALYZE", "CHECKPOINT"] {
            sqlx::query(settle).execute(&self.pool).await.unwrap();
        }
    }

    async fn logged(&self, work: impl Future<Output = ()>) -> u64 {
        let position = async || -> i64 {
            let position = sqlx::query_scalar("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint");
            position.fetch_one(&self.pool).await.unwrap()
        };
        let start = position().await;
        work.await;
        (position().await - start).unsigned_abs()
    }

    fn new_store(&self) -> Store {
        (*sagents::postgres::Store::new(self.pool.clone(), &TABLES)).clone()
    }

    async fn set_title_with_help(&self, id: Uuid, title: &str) {
        sagents::postgres::retry(|| async {
            self.set_title(id, title).await;
            Ok(())
        })
        .await
        .unwrap();
    }

    async fn set_title(&self, id: Uuid, title: &str) {
        let update = sqlx::query(
            "UPDATE sagents_conversations SET title = $3, updated_at = greatest(updated_at, $4)
             WHERE user_id = $1 AND id = $2",
        );
        update.bind(USER).bind(id).bind(title).bind(Timestamp::now()).execute(&self.pool).await.unwrap();
    }

    async fn set_interrupted(&self, id: Uuid, interrupted: bool) {
        let update = sqlx::query(
            "UPDATE sagents_conversations SET interrupted = $3, updated_at = greatest(updated_at, $4)
             WHERE user_id = $1 AND id = $2",
        );
        update.bind(USER).bind(id).bind(interrupted).bind(Timestamp::now()).execute(&self.pool).await.unwrap();
    }

    async fn usage(&self, id: Uuid) -> Vec<PgRow> {
        let select = sqlx::query(
            "SELECT model, count(*), sum(input_tokens)::bigint, sum(output_tokens)::bigint, sum(cached_tokens)::bigint
             FROM sagents_usage WHERE user_id = $1 AND conversation_id = $2 GROUP BY model",
        );
        select.bind(USER).bind(id).fetch_all(&self.pool).await.unwrap()
    }

    async fn append(&self, conversation_id: Uuid, items: Vec<NewDisplayMessage>) -> Vec<DisplayMessage> {
        match <[_; 1]>::try_from(items) {
            Ok([item]) => vec![self.append_one(conversation_id, item).await],
            Err(items) => self.append_all(conversation_id, &items).await,
        }
    }

    async fn page(&self, conversation_id: Uuid) -> Vec<DisplayMessage> {
        let page = sqlx::query_as(
            "SELECT m.* FROM sagents_conversations c
             LEFT JOIN (
                 SELECT * FROM sagents_display_messages
                 WHERE user_id = $1 AND conversation_id = $2 AND sequence > $3 ORDER BY sequence LIMIT $4
             ) m ON TRUE
             WHERE c.user_id = $1 AND c.id = $2 ORDER BY m.sequence",
        );
        let page = page.bind(USER).bind(conversation_id).bind(-1_i64).bind(100_i64);
        page.fetch_all(&self.pool).await.unwrap()
    }

    async fn changes(&self, conversation_id: Uuid, after: i64) -> Vec<DisplayMessage> {
        let last =
            sqlx::query("SELECT last_change, last_removal FROM sagents_conversations WHERE user_id = $1 AND id = $2");
        last.bind(USER).bind(conversation_id).fetch_one(&self.pool).await.unwrap();
        let changes = sqlx::query_as(
            "SELECT * FROM sagents_display_messages
             WHERE user_id = $1 AND conversation_id = $2 AND changed > $3 AND changed >= 0
             ORDER BY changed, sequence LIMIT $4",
        );
        let changes = changes.bind(USER).bind(conversation_id).bind(after).bind(11_i64);
        changes.fetch_all(&self.pool).await.unwrap()
    }

    async fn clear(&self, conversation_id: Uuid) -> u64 {
        let clear = sqlx::query_scalar(
            "WITH conversation AS (
                 UPDATE sagents_conversations
                 SET last_change = last_change + 1, last_removal = last_change + 1,
                     updated_at = greatest(updated_at, $3)
                 WHERE user_id = $1 AND id = $2 RETURNING id
             ), deleted AS (
                 DELETE FROM sagents_display_messages m USING conversation c
                 WHERE m.user_id = $1 AND m.conversation_id = c.id RETURNING m.sequence
             )
             SELECT (SELECT count(*) FROM deleted) FROM conversation",
        );
        let clear = clear.bind(USER).bind(conversation_id).bind(Timestamp::now());
        let cleared: i64 = clear.fetch_one(&self.pool).await.unwrap();
        cleared.unsigned_abs()
    }

    async fn search(&self, words: &[&str]) -> Vec<DisplayMessage> {
        let patterns: Vec<String> = words.iter().map(|word| word.chars().map(either_case).collect()).collect();
        let search = sqlx::query_as(
            "SELECT m.* FROM (
                 SELECT *, CASE content_type
                     WHEN 'tool_call' THEN concat(content, chr(10), metadata ->> 'arguments')
                     ELSE content
                 END AS searched
                 FROM sagents_display_messages WHERE user_id = $1
             ) AS m
             WHERE (m.searched COLLATE \"C\" ILIKE $2 ESCAPE '\\' AND m.searched ~ ALL ($3)
                 OR m.conversation_id IN (
                     SELECT id FROM sagents_conversations
                     WHERE user_id = $1 AND title COLLATE \"C\" ILIKE $2 ESCAPE '\\' AND title ~ ALL ($3)
                 ) AND m.sequence = (
                     SELECT min(f.sequence) FROM sagents_display_messages AS f
                     WHERE f.user_id = $1 AND f.conversation_id = m.conversation_id
                 ))
                 AND (m.inserted_at, m.conversation_id, m.sequence) < ($4, $5, $6)
             ORDER BY m.inserted_at DESC, m.conversation_id DESC, m.sequence DESC LIMIT $7",
        );
        let longest = words.iter().max_by_key(|word| word.len()).unwrap();
        let search = search.bind(USER).bind(format!("%{longest}%")).bind(patterns);
        let search = search.bind(Timestamp::MAX).bind(Uuid::max()).bind(i64::MAX).bind(21_i64);
        let mut tx = self.pool.begin_with("BEGIN; SET LOCAL statement_timeout = '10s'").await.unwrap();
        let mut found = search.fetch_all(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        found.truncate(20);
        found
    }

    async fn get_tool_call(&self, conversation_id: Uuid, tool_call_id: &str) -> DisplayMessage {
        let mut connection = self.pool.acquire().await.unwrap();
        newest(&mut connection, conversation_id, tool_call_id, ContentType::ToolCall).await.0
    }

    async fn change_tool_call(
        &self,
        conversation_id: Uuid,
        tool_call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> DisplayMessage {
        let mut connection = self.pool.acquire().await.unwrap();
        let (call, change) = newest(&mut connection, conversation_id, tool_call_id, ContentType::ToolCall).await;
        assert!(may_change(&call, status));
        let changes = [Edit { status: Some(status), metadata, ..Edit::of(&call) }];
        edit(&mut connection, conversation_id, change, &changes).await.remove(0)
    }

    async fn approve(&self, conversation_id: Uuid, tool_call_id: &str, claim: Uuid) -> DisplayMessage {
        let mut connection = self.pool.acquire().await.unwrap();
        let (call, change) = newest(&mut connection, conversation_id, tool_call_id, ContentType::ToolCall).await;
        assert!(call.status == Some(ToolStatus::Interrupted) && !call.metadata.contains_key("hitl_decision"));
        let (result, _) = newest(&mut connection, conversation_id, tool_call_id, ContentType::ToolResult).await;
        let decision = Map::from_iter([("hitl_decision".into(), "approved".into())]);
        let changes = [
            Edit { status: Some(ToolStatus::Pending), metadata: approval(claim), ..Edit::of(&call) },
            Edit { metadata: decision, ..Edit::of(&result) },
        ];
        let edited = edit(&mut connection, conversation_id, change, &changes).await;
        edited.into_iter().find(|item| item.sequence == call.sequence).unwrap()
    }

    async fn resolve(&self, conversation_id: Uuid, tool_call_id: &str, content: &str) -> DisplayMessage {
        let mut connection = self.pool.acquire().await.unwrap();
        let (result, change) = newest(&mut connection, conversation_id, tool_call_id, ContentType::ToolResult).await;
        let metadata = ["is_interrupt", "is_error"].map(|flag| (flag.to_owned(), false.into())).into_iter().collect();
        let changes = [Edit { content: Some(content), metadata, ..Edit::of(&result) }];
        edit(&mut connection, conversation_id, change, &changes).await.remove(0)
    }

    async fn delete_before(&self, cutoff: Timestamp) -> u64 {
        let (mut start, mut deleted) = ((i64::MIN, Uuid::nil()), 0);
        loop {
            let batch = sqlx::query_as(
                "SELECT user_id, id, updated_at < $3 FROM sagents_conversations WHERE (user_id, id) > ($1, $2)
                 ORDER BY user_id, id LIMIT 1000",
            );
            let batch = batch.bind(start.0).bind(start.1).bind(cutoff);
            let keys: Vec<(i64, Uuid, bool)> = batch.fetch_all(&self.pool).await.unwrap();
            let Some(last) = keys.last() else { return deleted };
            start = (last.0, last.1);
            for (user, id, _) in keys.iter().filter(|key| key.2) {
                let delete =
                    sqlx::query("DELETE FROM sagents_conversations WHERE user_id = $1 AND id = $2 AND updated_at < $3");
                let delete = delete.bind(user).bind(id).bind(cutoff).execute(&self.pool);
                deleted += delete.await.unwrap().rows_affected();
            }
        }
    }

    async fn save_snapshot(&self, conversation_id: Uuid, data: &str, expected: i64) -> i64 {
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
        .bind(Timestamp::now())
        .bind(expected)
        .fetch_one(&self.pool)
        .await
        .unwrap()
    }

    async fn load_rows(&self, conversation_id: Uuid) -> Vec<PgRow> {
        let load = sqlx::query(
            "SELECT NULL::bigint, NULL::uuid, s.data, s.revision, s.write_id
             FROM sagents_conversations c
             LEFT JOIN sagents_agent_states s ON s.user_id = $1 AND s.conversation_id = $2
             WHERE c.user_id = $1 AND c.id = $2
             UNION ALL
             SELECT position::bigint, message_id, data, NULL::bigint, NULL::uuid FROM sagents_agent_messages
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = (
                 SELECT epoch FROM sagents_agent_states WHERE user_id = $1 AND conversation_id = $2
             )",
        );
        load.bind(USER).bind(conversation_id).fetch_all(&self.pool).await.unwrap()
    }

    async fn load_unreadable(&self, conversation_id: Uuid, epoch: i64) -> Vec<PgRow> {
        let load = sqlx::query(
            "SELECT NULL::bigint, NULL::uuid, data FROM sagents_unreadable_states
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3
             UNION ALL
             SELECT position::bigint, message_id, data FROM sagents_agent_messages
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3",
        );
        load.bind(USER).bind(conversation_id).bind(epoch).fetch_all(&self.pool).await.unwrap()
    }

    async fn restore_unreadable(&self, conversation_id: Uuid, epoch: i64) -> i64 {
        let mut tx = self.lock(conversation_id).await;
        let found = sqlx::query(
            "SELECT TRUE FROM sagents_unreadable_states WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3",
        );
        found.bind(USER).bind(conversation_id).bind(epoch).fetch_one(&mut *tx).await.unwrap();
        let keep = sqlx::query(
            "INSERT INTO sagents_unreadable_states (user_id, conversation_id, epoch, data, set_aside_at)
             SELECT user_id, conversation_id, epoch, data, $3 FROM sagents_agent_states
             WHERE user_id = $1 AND conversation_id = $2",
        );
        keep.bind(USER).bind(conversation_id).bind(Timestamp::now()).execute(&mut *tx).await.unwrap();
        let restore = sqlx::query_scalar(
            "UPDATE sagents_agent_states s
             SET epoch = u.epoch, data = u.data, revision = s.revision + 1, write_id = $4,
                 updated_at = greatest(s.updated_at, $5)
             FROM sagents_unreadable_states u
             WHERE s.user_id = $1 AND s.conversation_id = $2
                 AND u.user_id = $1 AND u.conversation_id = $2 AND u.epoch = $3
             RETURNING s.revision",
        );
        let restore = restore.bind(USER).bind(conversation_id).bind(epoch).bind(Uuid::now_v7()).bind(Timestamp::now());
        let revision = restore.fetch_one(&mut *tx).await.unwrap();
        let take = sqlx::query(
            "DELETE FROM sagents_unreadable_states WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3",
        );
        take.bind(USER).bind(conversation_id).bind(epoch).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        revision
    }

    async fn discard_unreadable(&self, conversation_id: Uuid, epoch: i64) {
        let mut tx = self.lock(conversation_id).await;
        for discard in [
            "DELETE FROM sagents_unreadable_states WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3",
            "DELETE FROM sagents_agent_messages WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3",
        ] {
            let discard = sqlx::query(discard).bind(USER).bind(conversation_id).bind(epoch);
            discard.execute(&mut *tx).await.unwrap();
        }
        tx.commit().await.unwrap();
    }

    async fn fork(&self, id: Uuid, new: Uuid, message_id: Uuid) -> Conversation {
        self.fork_at(id, new, message_id).await
    }

    async fn rewind(&self, id: Uuid, message_id: Uuid) -> u64 {
        self.rewind_to(id, message_id).await
    }

    async fn export(&self, id: Uuid) -> Vec<u8> {
        self.export_file(id).await
    }

    async fn import(&self, file: &[u8]) -> Conversation {
        self.import_file(file).await
    }

    async fn trim(&self, short: Uuid) {
        let trim = "DELETE FROM sagents_display_messages
                    WHERE sequence >= CASE conversation_id WHEN $1 THEN 10 ELSE 10000 END";
        sqlx::query(trim).bind(short).execute(&self.pool).await.unwrap();
    }
}

impl Hand {
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
        .bind(Timestamp::now())
        .bind(USER)
        .fetch_one(&self.pool)
        .await
        .unwrap()
    }

    async fn append_all(&self, conversation_id: Uuid, items: &[NewDisplayMessage]) -> Vec<DisplayMessage> {
        sqlx::query_as(
            "WITH new AS (
                 SELECT *, row_number() OVER (ORDER BY item) AS place FROM unnest(
                     $4::integer[], $5::text[], $6::text[], $7::text[], $8::jsonb[], $9::text[], $10::text[]
                 ) AS new (item, role, content_type, content, metadata, tool_call_id, status)
             ), conversation AS (
                 UPDATE sagents_conversations
                 SET next_sequence = next_sequence + cardinality($4), last_change = last_change + 1,
                     updated_at = greatest(updated_at, $11)
                 WHERE user_id = $1 AND id = $2 AND NOT EXISTS (
                     SELECT FROM sagents_display_messages
                     WHERE user_id = $1 AND conversation_id = $2 AND message_id = $3
                 )
                 RETURNING next_sequence - cardinality($4) - 1 AS last, last_change, updated_at
             )
             INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role,
                 content_type, content, metadata, tool_call_id, status, inserted_at, changed)
             SELECT $1, $2, last + place, $3, item, role, content_type, content, metadata, tool_call_id, status,
                 updated_at, last_change
             FROM conversation, new
             RETURNING *",
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
        .bind(Timestamp::now())
        .fetch_all(&self.pool)
        .await
        .unwrap()
    }

    /// Begins a transaction that has the conversation to itself.
    async fn lock(&self, conversation_id: Uuid) -> Transaction<'static, Postgres> {
        let mut tx = self.pool.begin().await.unwrap();
        let lock = sqlx::query(
            "UPDATE sagents_conversations SET updated_at = greatest(updated_at, $3) WHERE user_id = $1 AND id = $2",
        );
        lock.bind(USER).bind(conversation_id).bind(Timestamp::now()).execute(&mut *tx).await.unwrap();
        tx
    }
}

/// A change of an item.
struct Edit<'a> {
    sequence: i64,
    status: Option<ToolStatus>,
    content: Option<&'a str>,
    /// Merged into the item's own.
    metadata: Map<String, Value>,
}

impl Edit<'_> {
    fn of(item: &DisplayMessage) -> Self {
        Self { sequence: item.sequence, status: None, content: None, metadata: Map::new() }
    }
}

/// An item, and the change of the conversation that it was read at.
async fn newest(
    connection: &mut PgConnection,
    conversation_id: Uuid,
    tool_call_id: &str,
    content_type: ContentType,
) -> (DisplayMessage, i64) {
    let newest = sqlx::query(
        "SELECT c.last_change, m.* FROM sagents_conversations c
         LEFT JOIN (
             SELECT * FROM sagents_display_messages
             WHERE user_id = $1 AND conversation_id = $2 AND tool_call_id = $3 AND content_type = $4
             ORDER BY sequence DESC LIMIT 1
         ) m ON TRUE
         WHERE c.user_id = $1 AND c.id = $2",
    );
    let newest = newest.bind(USER).bind(conversation_id).bind(tool_call_id).bind(content_type.as_str());
    let row = newest.fetch_one(connection).await.unwrap();
    (DisplayMessage::from_row(&row).unwrap(), row.get("last_change"))
}

/// Changes items of a conversation that is still at this change.
async fn edit(
    connection: &mut PgConnection,
    conversation_id: Uuid,
    change: i64,
    edits: &[Edit<'_>],
) -> Vec<DisplayMessage> {
    sqlx::query_as(
        "WITH new AS (
             SELECT * FROM unnest($5::bigint[], $6::text[], $7::text[], $8::jsonb[])
                 n (sequence, status, content, metadata)
         ), conversation AS (
             UPDATE sagents_conversations
             SET last_change = last_change + 1, updated_at = greatest(updated_at, $4)
             WHERE user_id = $1 AND id = $2 AND last_change = $3
             RETURNING id, last_change
         )
         UPDATE sagents_display_messages m
         SET status = coalesce(n.status, m.status), content = coalesce(n.content, m.content),
             metadata = m.metadata || n.metadata, changed = c.last_change
         FROM conversation c, new n
         WHERE m.user_id = $1 AND m.conversation_id = c.id AND m.sequence = ANY ($5) AND m.sequence = n.sequence
         RETURNING m.*",
    )
    .bind(USER)
    .bind(conversation_id)
    .bind(change)
    .bind(Timestamp::now())
    .bind(edits.iter().map(|edit| edit.sequence).collect::<Vec<_>>())
    .bind(edits.iter().map(|edit| edit.status.map(ToolStatus::as_str)).collect::<Vec<_>>())
    .bind(edits.iter().map(|edit| edit.content).collect::<Vec<_>>())
    .bind(edits.iter().map(|edit| Json(&edit.metadata)).collect::<Vec<_>>())
    .fetch_all(connection)
    .await
    .unwrap()
}
