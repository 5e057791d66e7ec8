//! The statements of the generated context for SQLite, as one would write them for this one host.

use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, Utc};
use my_app::conversations::{
    ContentType, Conversation, DisplayMessage, NewConversation, NewDisplayMessage, ToolStatus,
};
use serde_json::{Map, Value, json};
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::types::Json;
use sqlx::{Row as _, Sqlite, SqliteConnection, Transaction};
use uuid::Uuid;

use crate::USER;
use crate::beside_hand::{before, either_case};

pub struct ByHand(pub SqlitePool);

/// Of a model: messages, input, output and cached tokens.
type Sums = (Option<String>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

impl ByHand {
    pub async fn create(&self, new: NewConversation) -> Conversation {
        let mut tx = self.begin().await;
        let created = sqlx::query_as(
            "INSERT INTO sagents_conversations AS c (user_id, id, title, scope, metadata, inserted_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $6)
             ON CONFLICT (user_id, id) DO UPDATE SET title = c.title RETURNING *",
        )
        .bind(USER)
        .bind(new.id)
        .bind(new.title)
        .bind(Json(json!({ "type": "user", "id": USER })))
        .bind(Json(new.metadata))
        .bind(text(Utc::now()))
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        created
    }

    pub async fn get(&self, id: Uuid) -> Conversation {
        let get = sqlx::query_as("SELECT * FROM sagents_conversations WHERE user_id = $1 AND id = $2");
        get.bind(USER).bind(id).fetch_one(&self.0).await.unwrap()
    }

    pub async fn update(&self, id: Uuid, title: String, metadata: Map<String, Value>) -> Conversation {
        let mut tx = self.begin().await;
        let updated = sqlx::query_as(
            "UPDATE sagents_conversations
             SET title = CASE WHEN $3 THEN $4 ELSE title END, metadata = CASE WHEN $5 THEN $6 ELSE metadata END,
                 updated_at = $7
             WHERE user_id = $1 AND id = $2 RETURNING *",
        )
        .bind(USER)
        .bind(id)
        .bind(true)
        .bind(title)
        .bind(true)
        .bind(Json(metadata))
        .bind(text(Utc::now()))
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        updated
    }

    pub async fn set_interrupted(&self, id: Uuid, interrupted: bool) -> Conversation {
        let mut tx = self.begin().await;
        let update = sqlx::query_as(
            "UPDATE sagents_conversations SET interrupted = $3, updated_at = $4
             WHERE user_id = $1 AND id = $2 RETURNING *",
        );
        let update = update.bind(USER).bind(id).bind(interrupted).bind(text(Utc::now()));
        let updated = update.fetch_one(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        updated
    }

    pub async fn archive(&self, id: Uuid) -> Conversation {
        let mut tx = self.begin().await;
        let update = sqlx::query_as(
            "UPDATE sagents_conversations SET archived_at = coalesce(archived_at, $3)
             WHERE user_id = $1 AND id = $2 RETURNING *",
        );
        let update = update.bind(USER).bind(id).bind(text(Utc::now()));
        let updated = update.fetch_one(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        updated
    }

    pub async fn usage(&self, id: Uuid) -> Vec<Sums> {
        let select = sqlx::query_as(
            "SELECT u.* FROM sagents_conversations c
             LEFT JOIN (
                 SELECT model, count(*), sum(input_tokens), sum(output_tokens), sum(cached_tokens)
                 FROM sagents_usage WHERE user_id = $1 AND conversation_id = $2 GROUP BY model
             ) u ON TRUE
             WHERE c.user_id = $1 AND c.id = $2",
        );
        select.bind(USER).bind(id).fetch_all(&self.0).await.unwrap()
    }

    pub async fn delete(&self, id: Uuid) {
        let mut tx = self.begin().await;
        let delete = sqlx::query("DELETE FROM sagents_conversations WHERE user_id = $1 AND id = $2");
        delete.bind(USER).bind(id).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }

    pub async fn list(&self) -> Vec<Conversation> {
        let list = sqlx::query_as(
            "SELECT * FROM sagents_conversations
             WHERE user_id = $1 AND archived_at IS NULL AND (updated_at, id) < ($4, $3)
             ORDER BY updated_at DESC, id DESC LIMIT $2",
        );
        let list = list.bind(USER).bind(50_i64).bind(Uuid::max()).bind("9999-12-31T23:59:59.999999Z");
        list.fetch_all(&self.0).await.unwrap()
    }

    pub async fn append(&self, conversation_id: Uuid, items: Vec<NewDisplayMessage>) -> Vec<DisplayMessage> {
        let now = text(Utc::now());
        let mut tx = self.begin().await;
        let (first, change): (i64, i64) = sqlx::query_as(
            "UPDATE sagents_conversations
             SET next_sequence = next_sequence + $3, last_change = last_change + 1, updated_at = $4
             WHERE user_id = $1 AND id = $2 RETURNING next_sequence - $3, last_change",
        )
        .bind(USER)
        .bind(conversation_id)
        .bind(i64::try_from(items.len()).unwrap())
        .bind(&now)
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
            .bind(&now)
            .bind(change)
            .fetch_one(&mut *tx)
            .await
            .unwrap();
            appended.push(message);
        }
        tx.commit().await.unwrap();
        appended
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
        let mut tx = self.begin().await;
        touch(&mut tx, conversation_id).await;
        let clear = sqlx::query("DELETE FROM sagents_display_messages WHERE user_id = $1 AND conversation_id = $2");
        let cleared = clear.bind(USER).bind(conversation_id).execute(&mut *tx).await.unwrap().rows_affected();
        tx.commit().await.unwrap();
        cleared
    }

    /// The first page.
    pub async fn search(&self, text: &str) -> Vec<DisplayMessage> {
        let exact: String = text.chars().map(either_case).collect();
        let search = sqlx::query_as(
            "SELECT * FROM sagents_display_messages WHERE user_id = $1 AND content LIKE $2 ESCAPE '\\'
                 AND content GLOB $3 AND (inserted_at, conversation_id, sequence) < ($5, $6, $7)
             ORDER BY inserted_at DESC, conversation_id DESC, sequence DESC LIMIT $4",
        );
        let search = search.bind(USER).bind(format!("%{text}%")).bind(format!("*{exact}*")).bind(20_i64);
        let search = search.bind("9999-12-31T23:59:59.999999Z").bind(Uuid::max()).bind(i64::MAX);
        // As every search should, it ends in time.
        let mut connection = self.0.acquire().await.unwrap();
        let start = Instant::now();
        let in_time = move || start.elapsed() < Duration::from_secs(5);
        connection.lock_handle().await.unwrap().set_progress_handler(256, in_time);
        let found = search.fetch_all(&mut *connection).await.unwrap();
        connection.lock_handle().await.unwrap().remove_progress_handler();
        found
    }

    pub async fn change_tool_call(
        &self,
        conversation_id: Uuid,
        call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> DisplayMessage {
        let mut tx = self.begin().await;
        let mut call = newest(&mut tx, conversation_id, call_id, ContentType::ToolCall).await;
        assert!(before(status).contains(&call.status.unwrap().as_str()));
        if call.status == Some(ToolStatus::Interrupted) && status == ToolStatus::Executing {
            assert!(call.metadata.get("hitl_decision").is_some_and(|decision| decision == "approved"));
        }
        let change = count_change(&mut tx, conversation_id).await;
        call.status = Some(status);
        call.metadata.extend(metadata);
        call.changed = change;
        write_back(&mut tx, &call).await;
        tx.commit().await.unwrap();
        call
    }

    /// A person approves a tool call, which has a result.
    pub async fn approve(&self, conversation_id: Uuid, call_id: &str) -> DisplayMessage {
        let mut tx = self.begin().await;
        let mut call = newest(&mut tx, conversation_id, call_id, ContentType::ToolCall).await;
        assert!(!call.status.unwrap().is_ended() && !call.metadata.contains_key("hitl_decision"));
        let change = count_change(&mut tx, conversation_id).await;
        call.metadata.insert("hitl_decision".into(), "approved".into());
        call.changed = change;
        write_back(&mut tx, &call).await;
        let mut result = newest(&mut tx, conversation_id, call_id, ContentType::ToolResult).await;
        result.metadata.insert("hitl_decision".into(), "approved".into());
        result.changed = change;
        write_back(&mut tx, &result).await;
        tx.commit().await.unwrap();
        call
    }

    pub async fn resolve(&self, conversation_id: Uuid, call_id: &str, content: &str) -> DisplayMessage {
        let mut tx = self.begin().await;
        let change = count_change(&mut tx, conversation_id).await;
        let mut result = newest(&mut tx, conversation_id, call_id, ContentType::ToolResult).await;
        result.metadata.extend(["is_interrupt", "is_error"].map(|flag| (flag.to_owned(), false.into())));
        content.clone_into(&mut result.content);
        result.changed = change;
        write_back(&mut tx, &result).await;
        tx.commit().await.unwrap();
        result
    }

    pub async fn delete_before(&self, cutoff: DateTime<Utc>) -> u64 {
        let (cutoff, mut start, mut deleted) = (text(cutoff), (i64::MIN, Uuid::nil()), 0);
        loop {
            let batch = sqlx::query_as(
                "SELECT user_id, id, updated_at < $3 FROM sagents_conversations WHERE (user_id, id) > ($1, $2)
                 ORDER BY user_id, id LIMIT 1000",
            );
            let batch = batch.bind(start.0).bind(start.1).bind(&cutoff);
            let keys: Vec<(i64, Uuid, bool)> = batch.fetch_all(&self.0).await.unwrap();
            let Some(last) = keys.last() else { return deleted };
            if keys.iter().any(|key| key.2) {
                let mut tx = self.begin().await;
                for (user, id, _) in keys.iter().filter(|key| key.2) {
                    let row = sqlx::query(
                        "DELETE FROM sagents_conversations WHERE user_id = $1 AND id = $2 AND updated_at < $3",
                    );
                    let row = row.bind(user).bind(id).bind(&cutoff).execute(&mut *tx).await.unwrap();
                    deleted += row.rows_affected();
                }
                tx.commit().await.unwrap();
            }
            start = (last.0, last.1);
        }
    }

    /// The snapshot way: a text that is ready, messages included, in one column.
    pub async fn save_snapshot(&self, conversation_id: Uuid, data: &str, expected: i64) -> i64 {
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
        .bind(text(Utc::now()))
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        revision
    }

    /// The header and the messages of a state, which nobody parses.
    pub async fn load_rows(&self, conversation_id: Uuid) -> Vec<SqliteRow> {
        let load = sqlx::query(
            "SELECT s.revision, s.write_id, NULL AS position, NULL AS message_id, s.data
             FROM sagents_conversations c
             LEFT JOIN sagents_agent_states s ON s.user_id = $1 AND s.conversation_id = $2
             WHERE c.user_id = $1 AND c.id = $2
             UNION ALL
             SELECT NULL, NULL, position, message_id, data FROM sagents_agent_messages
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = (
                 SELECT epoch FROM sagents_agent_states WHERE user_id = $1 AND conversation_id = $2
             )",
        );
        load.bind(USER).bind(conversation_id).fetch_all(&self.0).await.unwrap()
    }

    /// The header of a state that was set aside, with its messages.
    pub async fn load_unreadable(&self, conversation_id: Uuid, epoch: i64) -> (Vec<u8>, Vec<Vec<u8>>) {
        let load = sqlx::query(
            "SELECT -1 AS position, NULL AS message_id, data FROM sagents_unreadable_states
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
        let mut tx = self.begin().await;
        touch(&mut tx, conversation_id).await;
        assert!(of_aside(&mut tx, conversation_id).await.is_none());
        let keep = sqlx::query(
            "INSERT INTO sagents_unreadable_states (user_id, conversation_id, epoch, data, set_aside_at)
             SELECT user_id, conversation_id, epoch, data, $3 FROM sagents_agent_states
             WHERE user_id = $1 AND conversation_id = $2",
        );
        keep.bind(USER).bind(conversation_id).bind(text(Utc::now())).execute(&mut *tx).await.unwrap();
        let move_on = sqlx::query(
            "UPDATE sagents_agent_states SET epoch = 1 + (
                 SELECT max(epoch) FROM sagents_unreadable_states WHERE user_id = $1 AND conversation_id = $2
             )
             WHERE user_id = $1 AND conversation_id = $2",
        );
        move_on.bind(USER).bind(conversation_id).execute(&mut *tx).await.unwrap();
        let restore = sqlx::query_scalar(
            "UPDATE sagents_agent_states AS s
             SET epoch = u.epoch, data = u.data, revision = s.revision + 1, write_id = $4, updated_at = $5
             FROM sagents_unreadable_states AS u
             WHERE s.user_id = $1 AND s.conversation_id = $2
                 AND u.user_id = $1 AND u.conversation_id = $2 AND u.epoch = $3
             RETURNING revision",
        );
        let restore = restore.bind(USER).bind(conversation_id).bind(epoch).bind(Uuid::now_v7());
        let revision = restore.bind(text(Utc::now())).fetch_one(&mut *tx).await.unwrap();
        let take = sqlx::query(
            "DELETE FROM sagents_unreadable_states WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3",
        );
        take.bind(USER).bind(conversation_id).bind(epoch).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        revision
    }

    pub async fn discard_unreadable(&self, conversation_id: Uuid, epoch: i64) {
        let mut tx = self.begin().await;
        touch(&mut tx, conversation_id).await;
        assert!(of_aside(&mut tx, conversation_id).await.is_none());
        for discard in [
            "DELETE FROM sagents_agent_messages WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3",
            "DELETE FROM sagents_unreadable_states WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3",
        ] {
            let discard = sqlx::query(discard).bind(USER).bind(conversation_id).bind(epoch);
            discard.execute(&mut *tx).await.unwrap();
        }
        tx.commit().await.unwrap();
    }

    pub(super) async fn begin(&self) -> Transaction<'static, Sqlite> {
        self.0.begin_with("BEGIN IMMEDIATE").await.unwrap()
    }
}

/// What the first version has set aside, if rows belong to it.
async fn of_aside(connection: &mut SqliteConnection, conversation_id: Uuid) -> Option<SqliteRow> {
    let select = sqlx::query(
        "SELECT s.data, s.unreadable_data FROM sagents_agent_states s
         WHERE s.user_id = $1 AND s.conversation_id = $2 AND s.unreadable_data IS NOT NULL AND EXISTS (
             SELECT 1 FROM sagents_agent_messages m
             WHERE m.user_id = $1 AND m.conversation_id = $2 AND m.epoch = s.epoch
         )",
    );
    select.bind(USER).bind(conversation_id).fetch_optional(connection).await.unwrap()
}

async fn touch(connection: &mut SqliteConnection, id: Uuid) {
    let touch = sqlx::query("UPDATE sagents_conversations SET updated_at = $3 WHERE user_id = $1 AND id = $2");
    touch.bind(USER).bind(id).bind(text(Utc::now())).execute(connection).await.unwrap();
}

/// The number of the change that begins.
async fn count_change(connection: &mut SqliteConnection, id: Uuid) -> i64 {
    let count = sqlx::query_scalar(
        "UPDATE sagents_conversations SET last_change = last_change + 1, updated_at = $3
         WHERE user_id = $1 AND id = $2 RETURNING last_change",
    );
    count.bind(USER).bind(id).bind(text(Utc::now())).fetch_one(connection).await.unwrap()
}

async fn newest(
    connection: &mut SqliteConnection,
    conversation_id: Uuid,
    call_id: &str,
    content_type: ContentType,
) -> DisplayMessage {
    let newest = sqlx::query_as(
        "SELECT * FROM sagents_display_messages
         WHERE user_id = $1 AND conversation_id = $2 AND sequence = (
             SELECT max(sequence) FROM sagents_display_messages
             WHERE user_id = $1 AND conversation_id = $2 AND tool_call_id = $3 AND content_type = $4
         )",
    );
    let newest = newest.bind(USER).bind(conversation_id).bind(call_id).bind(content_type.as_str());
    newest.fetch_one(connection).await.unwrap()
}

async fn write_back(connection: &mut SqliteConnection, message: &DisplayMessage) {
    sqlx::query(
        "UPDATE sagents_display_messages SET status = $4, content = $5, metadata = $6, changed = $7
         WHERE user_id = $1 AND conversation_id = $2 AND sequence = $3",
    )
    .bind(USER)
    .bind(message.conversation_id)
    .bind(message.sequence)
    .bind(message.status.map(ToolStatus::as_str))
    .bind(&message.content)
    .bind(Json(&message.metadata))
    .bind(message.changed)
    .execute(connection)
    .await
    .unwrap();
}

pub(super) fn text(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}
