//! The statements of a store on `SQLite`, as one would write them for these tables.

use std::time::{Duration, Instant};

use sagents::sqlx::sqlite::{SqlitePool, SqliteRow};
use sagents::sqlx::types::Json;
use sagents::sqlx::{self, Sqlite, SqliteConnection, Transaction};
use sagents::{ContentType, Conversation, DisplayMessage, NewDisplayMessage, Store, Timestamp, ToolStatus};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::hand::{ByHand, approval, either_case, may_change};
use crate::{TABLES, USER};

#[derive(Clone)]
pub struct Hand {
    pub pool: SqlitePool,
    pub store: sagents::sqlite::Store,
}

impl ByHand for Hand {
    type Row = SqliteRow;

    async fn settle(&self) {
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&self.pool).await.unwrap();
    }

    async fn logged(&self, work: impl Future<Output = ()>) -> u64 {
        let file = sqlx::query_scalar("SELECT file FROM pragma_database_list WHERE name = 'main'");
        let file: String = file.fetch_one(&self.pool).await.unwrap();
        self.settle().await;
        work.await;
        std::fs::metadata(file + "-wal").unwrap().len()
    }

    fn new_store(&self) -> Store {
        (*sagents::sqlite::Store::new(self.pool.clone(), &TABLES)).clone()
    }

    async fn set_title_with_help(&self, id: Uuid, title: &str) {
        let mut write = self.store.begin().await.unwrap();
        set_title(&mut write, id, title).await;
        write.commit().await.unwrap();
    }

    async fn set_title(&self, id: Uuid, title: &str) {
        let mut tx = self.begin().await;
        set_title(&mut tx, id, title).await;
        tx.commit().await.unwrap();
    }

    async fn set_interrupted(&self, id: Uuid, interrupted: bool) {
        let mut tx = self.begin().await;
        let update = sqlx::query(
            "UPDATE sagents_conversations SET interrupted = $3, updated_at = max(updated_at, $4)
             WHERE user_id = $1 AND id = $2",
        );
        let update = update.bind(USER).bind(id).bind(interrupted).bind(Timestamp::now());
        update.execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn usage(&self, id: Uuid) -> Vec<SqliteRow> {
        let select = sqlx::query(
            "SELECT model, count(*), sum(input_tokens), sum(output_tokens), sum(cached_tokens) FROM sagents_usage
             WHERE user_id = $1 AND conversation_id = $2 GROUP BY model",
        );
        select.bind(USER).bind(id).fetch_all(&self.pool).await.unwrap()
    }

    async fn append(&self, conversation_id: Uuid, items: Vec<NewDisplayMessage>) -> Vec<DisplayMessage> {
        let mut tx = self.begin().await;
        let (first, change, time): (i64, i64, Timestamp) = sqlx::query_as(
            "UPDATE sagents_conversations
             SET next_sequence = next_sequence + $3, last_change = last_change + 1, updated_at = max(updated_at, $4)
             WHERE user_id = $1 AND id = $2 RETURNING next_sequence - $3, last_change, updated_at",
        )
        .bind(USER)
        .bind(conversation_id)
        .bind(i64::try_from(items.len()).unwrap())
        .bind(Timestamp::now())
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        let mut appended = Vec::with_capacity(items.len());
        for (new, sequence) in items.into_iter().zip(first..) {
            let message = sqlx::query_as(
                "INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role,
                     content_type, content, metadata, tool_call_id, status, inserted_at, changed)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
                 ON CONFLICT (user_id, conversation_id, message_id, item) DO NOTHING RETURNING *",
            )
            .bind(USER)
            .bind(conversation_id)
            .bind(sequence)
            .bind(new.message_id)
            .bind(new.item)
            .bind(new.role.as_str())
            .bind(new.content_type.as_str())
            .bind(new.content)
            .bind(Json(new.metadata))
            .bind(new.tool_call_id)
            .bind(new.status.map(ToolStatus::as_str))
            .bind(time)
            .bind(change)
            .fetch_one(&mut *tx)
            .await
            .unwrap();
            appended.push(message);
        }
        tx.commit().await.unwrap();
        appended
    }

    async fn page(&self, conversation_id: Uuid) -> Vec<DisplayMessage> {
        let page = sqlx::query_as(
            "SELECT * FROM sagents_display_messages
             WHERE user_id = $1 AND conversation_id = $2 AND sequence > $3 ORDER BY sequence LIMIT $4",
        );
        let page = page.bind(USER).bind(conversation_id).bind(-1_i64).bind(101_i64);
        let mut page = page.fetch_all(&self.pool).await.unwrap();
        page.truncate(100);
        page
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
        let mut tx = self.begin().await;
        let count = sqlx::query(
            "UPDATE sagents_conversations
             SET last_change = last_change + 1, last_removal = last_change + 1, updated_at = max(updated_at, $3)
             WHERE user_id = $1 AND id = $2",
        );
        count.bind(USER).bind(conversation_id).bind(Timestamp::now()).execute(&mut *tx).await.unwrap();
        let clear = sqlx::query("DELETE FROM sagents_display_messages WHERE user_id = $1 AND conversation_id = $2");
        let cleared = clear.bind(USER).bind(conversation_id).execute(&mut *tx).await.unwrap().rows_affected();
        tx.commit().await.unwrap();
        cleared
    }

    async fn search(&self, words: &[&str]) -> Vec<DisplayMessage> {
        let patterns: Vec<String> =
            words.iter().map(|word| format!("*{}*", word.chars().map(either_case).collect::<String>())).collect();
        let search = sqlx::query_as(
            "SELECT m.* FROM (
                 SELECT *, CASE content_type
                     WHEN 'tool_call' THEN content || char(10) || coalesce(metadata ->> '$.arguments', '')
                     ELSE content
                 END AS searched
                 FROM sagents_display_messages WHERE user_id = $1
             ) AS m
             WHERE (m.searched LIKE $2 ESCAPE '\\'
                 AND NOT EXISTS (SELECT 1 FROM json_each($3) AS w WHERE NOT m.searched GLOB w.value)
                 OR m.conversation_id IN (
                     SELECT id FROM sagents_conversations
                     WHERE user_id = $1 AND title LIKE $2 ESCAPE '\\'
                         AND NOT EXISTS (SELECT 1 FROM json_each($3) AS w WHERE NOT title GLOB w.value)
                 ) AND m.sequence = (
                     SELECT min(f.sequence) FROM sagents_display_messages AS f
                     WHERE f.user_id = $1 AND f.conversation_id = m.conversation_id
                 ))
                 AND (m.inserted_at, m.conversation_id, m.sequence) < ($4, $5, $6)
             ORDER BY m.inserted_at DESC, m.conversation_id DESC, m.sequence DESC LIMIT $7",
        );
        let longest = words.iter().max_by_key(|word| word.len()).unwrap();
        let search = search.bind(USER).bind(format!("%{longest}%")).bind(Json(patterns));
        let search = search.bind(Timestamp::MAX).bind(Uuid::max()).bind(i64::MAX).bind(21_i64);
        // As every search should, it ends in time.
        let mut connection = self.pool.acquire().await.unwrap();
        let start = Instant::now();
        let in_time = move || start.elapsed() < Duration::from_secs(5);
        connection.lock_handle().await.unwrap().set_progress_handler(256, in_time);
        let mut found = search.fetch_all(&mut *connection).await.unwrap();
        connection.lock_handle().await.unwrap().remove_progress_handler();
        found.truncate(20);
        found
    }

    async fn get_tool_call(&self, conversation_id: Uuid, tool_call_id: &str) -> DisplayMessage {
        let mut connection = self.pool.acquire().await.unwrap();
        newest(&mut connection, conversation_id, tool_call_id, ContentType::ToolCall).await
    }

    async fn change_tool_call(
        &self,
        conversation_id: Uuid,
        tool_call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> DisplayMessage {
        let mut tx = self.begin().await;
        let mut call = newest(&mut tx, conversation_id, tool_call_id, ContentType::ToolCall).await;
        assert!(may_change(&call, status));
        call.changed = count_change(&mut tx, conversation_id).await;
        call.status = Some(status);
        call.metadata.extend(metadata);
        let call = write_back(&mut tx, &call).await;
        tx.commit().await.unwrap();
        call
    }

    async fn approve(&self, conversation_id: Uuid, tool_call_id: &str, claim: Uuid) -> DisplayMessage {
        let mut tx = self.begin().await;
        let mut call = newest(&mut tx, conversation_id, tool_call_id, ContentType::ToolCall).await;
        assert!(call.status == Some(ToolStatus::Interrupted) && !call.metadata.contains_key("hitl_decision"));
        call.changed = count_change(&mut tx, conversation_id).await;
        call.status = Some(ToolStatus::Pending);
        call.metadata.extend(approval(claim));
        let call = write_back(&mut tx, &call).await;
        let mut result = newest(&mut tx, conversation_id, tool_call_id, ContentType::ToolResult).await;
        result.metadata.insert("hitl_decision".into(), "approved".into());
        result.changed = call.changed;
        write_back(&mut tx, &result).await;
        tx.commit().await.unwrap();
        call
    }

    async fn resolve(&self, conversation_id: Uuid, tool_call_id: &str, content: &str) -> DisplayMessage {
        let mut tx = self.begin().await;
        let mut result = newest(&mut tx, conversation_id, tool_call_id, ContentType::ToolResult).await;
        result.changed = count_change(&mut tx, conversation_id).await;
        result.metadata.extend(["is_interrupt", "is_error"].map(|flag| (flag.to_owned(), false.into())));
        content.clone_into(&mut result.content);
        let result = write_back(&mut tx, &result).await;
        tx.commit().await.unwrap();
        result
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
            if keys.iter().any(|key| key.2) {
                let mut tx = self.begin().await;
                for (user, id, _) in keys.iter().filter(|key| key.2) {
                    let row = sqlx::query(
                        "DELETE FROM sagents_conversations WHERE user_id = $1 AND id = $2 AND updated_at < $3",
                    );
                    let row = row.bind(user).bind(id).bind(cutoff).execute(&mut *tx).await.unwrap();
                    deleted += row.rows_affected();
                }
                tx.commit().await.unwrap();
            }
            start = (last.0, last.1);
        }
    }

    async fn save_snapshot(&self, conversation_id: Uuid, data: &str, expected: i64) -> i64 {
        let mut tx = self.begin().await;
        touch(&mut tx, conversation_id).await;
        let current: Option<(i64, Uuid)> = sqlx::query_as(
            "SELECT revision, write_id FROM sagents_agent_states WHERE user_id = $1 AND conversation_id = $2",
        )
        .bind(USER)
        .bind(conversation_id)
        .fetch_optional(&mut *tx)
        .await
        .unwrap();
        assert_eq!(current.map_or(0, |current| current.0), expected);
        let revision = sqlx::query_scalar(
            "INSERT INTO sagents_agent_states AS s
                 (user_id, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
             VALUES ($1, $2, $3, 1, $4, $5, $6, $6)
             ON CONFLICT (user_id, conversation_id) DO UPDATE
             SET version = excluded.version, revision = s.revision + 1, write_id = excluded.write_id,
                 data = excluded.data, updated_at = excluded.updated_at
             RETURNING revision",
        )
        .bind(USER)
        .bind(conversation_id)
        .bind(2)
        .bind(Uuid::now_v7())
        .bind(data)
        .bind(Timestamp::now())
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        revision
    }

    async fn load_rows(&self, conversation_id: Uuid) -> Vec<SqliteRow> {
        let load = sqlx::query(
            "SELECT NULL, NULL, s.data, s.revision, s.write_id
             FROM sagents_conversations c
             LEFT JOIN sagents_agent_states s ON s.user_id = $1 AND s.conversation_id = $2
             WHERE c.user_id = $1 AND c.id = $2
             UNION ALL
             SELECT position, message_id, data, NULL, NULL FROM sagents_agent_messages
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = (
                 SELECT epoch FROM sagents_agent_states WHERE user_id = $1 AND conversation_id = $2
             )",
        );
        load.bind(USER).bind(conversation_id).fetch_all(&self.pool).await.unwrap()
    }

    async fn load_unreadable(&self, conversation_id: Uuid, epoch: i64) -> Vec<SqliteRow> {
        let load = sqlx::query(
            "SELECT NULL, NULL, data FROM sagents_unreadable_states
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3
             UNION ALL
             SELECT position, message_id, data FROM sagents_agent_messages
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3",
        );
        load.bind(USER).bind(conversation_id).bind(epoch).fetch_all(&self.pool).await.unwrap()
    }

    async fn restore_unreadable(&self, conversation_id: Uuid, epoch: i64) -> i64 {
        let mut tx = self.begin().await;
        touch(&mut tx, conversation_id).await;
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
            "UPDATE sagents_agent_states AS s
             SET epoch = u.epoch, data = u.data, revision = s.revision + 1, write_id = $4, updated_at = $5
             FROM sagents_unreadable_states AS u
             WHERE s.user_id = $1 AND s.conversation_id = $2
                 AND u.user_id = $1 AND u.conversation_id = $2 AND u.epoch = $3
             RETURNING revision",
        );
        let restore = restore.bind(USER).bind(conversation_id).bind(epoch).bind(Uuid::now_v7());
        let revision = restore.bind(Timestamp::now()).fetch_one(&mut *tx).await.unwrap();
        let take = sqlx::query(
            "DELETE FROM sagents_unreadable_states WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3",
        );
        take.bind(USER).bind(conversation_id).bind(epoch).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        revision
    }

    async fn discard_unreadable(&self, conversation_id: Uuid, epoch: i64) {
        let mut tx = self.begin().await;
        touch(&mut tx, conversation_id).await;
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
    pub(super) async fn begin(&self) -> Transaction<'static, Sqlite> {
        self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap()
    }
}

async fn set_title(connection: &mut SqliteConnection, id: Uuid, title: &str) {
    let update = sqlx::query(
        "UPDATE sagents_conversations SET title = $3, updated_at = max(updated_at, $4) WHERE user_id = $1 AND id = $2",
    );
    update.bind(USER).bind(id).bind(title).bind(Timestamp::now()).execute(connection).await.unwrap();
}

async fn touch(connection: &mut SqliteConnection, id: Uuid) {
    let touch =
        sqlx::query("UPDATE sagents_conversations SET updated_at = max(updated_at, $3) WHERE user_id = $1 AND id = $2");
    touch.bind(USER).bind(id).bind(Timestamp::now()).execute(connection).await.unwrap();
}

/// The number of the change that begins.
async fn count_change(connection: &mut SqliteConnection, id: Uuid) -> i64 {
    let count = sqlx::query_scalar(
        "UPDATE sagents_conversations SET last_change = last_change + 1, updated_at = max(updated_at, $3)
         WHERE user_id = $1 AND id = $2 RETURNING last_change",
    );
    count.bind(USER).bind(id).bind(Timestamp::now()).fetch_one(connection).await.unwrap()
}

async fn newest(
    connection: &mut SqliteConnection,
    conversation_id: Uuid,
    tool_call_id: &str,
    content_type: ContentType,
) -> DisplayMessage {
    let newest = sqlx::query_as(
        "SELECT * FROM sagents_display_messages
         WHERE user_id = $1 AND conversation_id = $2 AND sequence = (
             SELECT max(sequence) FROM sagents_display_messages
             WHERE user_id = $1 AND conversation_id = $2 AND tool_call_id = $3 AND content_type = $4
         )",
    );
    let newest = newest.bind(USER).bind(conversation_id).bind(tool_call_id).bind(content_type.as_str());
    newest.fetch_one(connection).await.unwrap()
}

async fn write_back(connection: &mut SqliteConnection, message: &DisplayMessage) -> DisplayMessage {
    sqlx::query_as(
        "UPDATE sagents_display_messages SET status = $4, content = $5, metadata = $6, changed = $7
         WHERE user_id = $1 AND conversation_id = $2 AND sequence = $3 RETURNING *",
    )
    .bind(USER)
    .bind(message.conversation_id)
    .bind(message.sequence)
    .bind(message.status.map(ToolStatus::as_str))
    .bind(&message.content)
    .bind(Json(&message.metadata))
    .bind(message.changed)
    .fetch_one(connection)
    .await
    .unwrap()
}
