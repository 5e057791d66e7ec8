//! The statements of the generated context, as one would write them for this one host.

use chrono::{DateTime, SecondsFormat, Utc};
use my_app::conversations::{
    ContentType, Conversation, DisplayMessage, NewConversation, NewDisplayMessage, Role, ToolStatus,
};
use my_app::sagents::Message;
use serde_json::{Map, Value, json};
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::types::Json;
use sqlx::{Row as _, Sqlite, SqliteConnection, Transaction};
use uuid::Uuid;

use crate::USER;

pub struct ByHand(pub SqlitePool);

impl ByHand {
    pub async fn create(&self, new: NewConversation) -> Conversation {
        let mut tx = self.begin().await;
        let row = sqlx::query(
            "INSERT INTO sagents_conversations (user_id, id, title, scope, metadata, inserted_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (user_id, id) DO NOTHING RETURNING *",
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
        let created = conversation(&row);
        tx.commit().await.unwrap();
        created
    }

    pub async fn get(&self, id: Uuid) -> Conversation {
        let get = sqlx::query("SELECT * FROM sagents_conversations WHERE user_id = $1 AND id = $2");
        conversation(&get.bind(USER).bind(id).fetch_one(&self.0).await.unwrap())
    }

    pub async fn update(&self, id: Uuid, title: String, metadata: Map<String, Value>) -> Conversation {
        let mut tx = self.begin().await;
        let row = sqlx::query(
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
        let updated = conversation(&row);
        tx.commit().await.unwrap();
        updated
    }

    pub async fn delete(&self, id: Uuid) {
        let mut tx = self.begin().await;
        let delete = sqlx::query("DELETE FROM sagents_conversations WHERE user_id = $1 AND id = $2");
        delete.bind(USER).bind(id).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }

    pub async fn list(&self) -> Vec<Conversation> {
        let rows = sqlx::query(
            "SELECT * FROM sagents_conversations WHERE user_id = $1 AND (updated_at, id) < ($2, $3)
             ORDER BY updated_at DESC, id DESC LIMIT $4",
        )
        .bind(USER)
        .bind("9999-12-31T23:59:59.999999Z")
        .bind(Uuid::max())
        .bind(50)
        .fetch_all(&self.0)
        .await
        .unwrap();
        rows.iter().map(conversation).collect()
    }

    /// A text, and the tools that an assistant calls with it.
    pub async fn save_message(&self, conversation_id: Uuid, message_id: Uuid, said: &Message) -> Vec<DisplayMessage> {
        let text = said.content.as_ref().unwrap().text();
        let mut items = vec![NewDisplayMessage::text(Role::Assistant, text).message_id(message_id)];
        for (call, item) in said.tool_calls.iter().zip(1..) {
            let metadata = Map::from_iter([
                ("call_id".into(), call.call_id.as_str().into()),
                ("name".into(), call.name.as_str().into()),
                ("arguments".into(), call.arguments.clone().unwrap()),
                ("display_text".into(), call.display_text.as_deref().into()),
            ]);
            let shown = NewDisplayMessage::tool_call(&call.call_id, &call.name).metadata(metadata);
            items.push(NewDisplayMessage { item, ..shown.message_id(message_id) });
        }
        self.append(conversation_id, items).await
    }

    pub async fn append(&self, conversation_id: Uuid, items: Vec<NewDisplayMessage>) -> Vec<DisplayMessage> {
        let now = text(Utc::now());
        let mut tx = self.begin().await;
        let first: i64 = sqlx::query(
            "UPDATE sagents_conversations SET next_sequence = next_sequence + $3, updated_at = $4
             WHERE user_id = $1 AND id = $2 RETURNING next_sequence - $3",
        )
        .bind(USER)
        .bind(conversation_id)
        .bind(i64::try_from(items.len()).unwrap())
        .bind(&now)
        .fetch_one(&mut *tx)
        .await
        .unwrap()
        .get(0);
        let mut appended = Vec::with_capacity(items.len());
        for (new, sequence) in items.into_iter().zip(first..) {
            let row = sqlx::query(
                "INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role,
                     content_type, content, metadata, tool_call_id, status, inserted_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
                 ON CONFLICT (user_id, conversation_id, message_id, item) DO NOTHING RETURNING *",
            )
            .bind(USER)
            .bind(conversation_id)
            .bind(sequence)
            .bind(new.message_id)
            .bind(new.item)
            .bind(new.role)
            .bind(new.content_type)
            .bind(new.content)
            .bind(Json(new.metadata))
            .bind(new.tool_call_id)
            .bind(new.status)
            .bind(&now)
            .fetch_one(&mut *tx)
            .await
            .unwrap();
            appended.push(message(&row));
        }
        tx.commit().await.unwrap();
        appended
    }

    pub async fn page(&self, conversation_id: Uuid) -> Vec<DisplayMessage> {
        let rows = sqlx::query(
            "SELECT m.* FROM sagents_conversations c
             LEFT JOIN (
                 SELECT * FROM sagents_display_messages
                 WHERE user_id = $1 AND conversation_id = $2 AND sequence > $3 ORDER BY sequence LIMIT $4
             ) m ON TRUE
             WHERE c.user_id = $1 AND c.id = $2 ORDER BY m.sequence",
        )
        .bind(USER)
        .bind(conversation_id)
        .bind(-1)
        .bind(100)
        .fetch_all(&self.0)
        .await
        .unwrap();
        rows.iter().map(message).collect()
    }

    pub async fn clear(&self, conversation_id: Uuid) -> u64 {
        let mut tx = self.begin().await;
        touch(&mut tx, conversation_id).await;
        let clear = sqlx::query("DELETE FROM sagents_display_messages WHERE user_id = $1 AND conversation_id = $2");
        let cleared = clear.bind(USER).bind(conversation_id).execute(&mut *tx).await.unwrap().rows_affected();
        tx.commit().await.unwrap();
        cleared
    }

    pub async fn search(&self, text: &str) -> Vec<DisplayMessage> {
        let rows = sqlx::query(
            "SELECT * FROM sagents_display_messages WHERE user_id = $1 AND content LIKE $2 ESCAPE '\\'
                 AND content GLOB $3
             ORDER BY inserted_at DESC, conversation_id DESC, sequence DESC LIMIT $4",
        )
        .bind(USER)
        .bind(format!("%{text}%"))
        .bind(format!("*{}*", text.chars().map(either_case).collect::<String>()))
        .bind(20)
        .fetch_all(&self.0)
        .await
        .unwrap();
        rows.iter().map(message).collect()
    }

    pub async fn change_tool_call(
        &self,
        conversation_id: Uuid,
        call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> DisplayMessage {
        let mut tx = self.begin().await;
        touch(&mut tx, conversation_id).await;
        let row = sqlx::query(
            "SELECT * FROM sagents_display_messages
             WHERE user_id = $1 AND conversation_id = $2 AND sequence = (
                 SELECT max(sequence) FROM sagents_display_messages
                 WHERE user_id = $1 AND conversation_id = $2 AND tool_call_id = $3 AND content_type = $4
             )",
        )
        .bind(USER)
        .bind(conversation_id)
        .bind(call_id)
        .bind(ContentType::ToolCall)
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        let mut call = message(&row);
        call.status = Some(status);
        call.metadata.extend(metadata);
        sqlx::query(
            "UPDATE sagents_display_messages SET status = $4, content = $5, metadata = $6
             WHERE user_id = $1 AND conversation_id = $2 AND sequence = $3",
        )
        .bind(USER)
        .bind(conversation_id)
        .bind(call.sequence)
        .bind(call.status)
        .bind(&call.content)
        .bind(Json(&call.metadata))
        .execute(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        call
    }

    pub async fn delete_before(&self, cutoff: DateTime<Utc>) -> u64 {
        let (cutoff, mut start, mut deleted) = (text(cutoff), (i64::MIN, Uuid::nil()), 0);
        loop {
            let batch = sqlx::query(
                "SELECT user_id, id, updated_at < $3 FROM sagents_conversations WHERE (user_id, id) > ($1, $2)
                 ORDER BY user_id, id LIMIT 1000",
            )
            .bind(start.0)
            .bind(start.1)
            .bind(&cutoff)
            .fetch_all(&self.0)
            .await
            .unwrap();
            let keys: Vec<(i64, Uuid, bool)> = batch.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
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

    /// A text that is ready, in the place of a state.
    pub async fn save_state(&self, conversation_id: Uuid, data: &str, expected: i64) -> i64 {
        let mut tx = self.begin().await;
        touch(&mut tx, conversation_id).await;
        let current = sqlx::query(
            "SELECT revision, write_id, unreadable_data IS NOT NULL AS has_unreadable
             FROM sagents_agent_states WHERE user_id = $1 AND conversation_id = $2",
        )
        .bind(USER)
        .bind(conversation_id)
        .fetch_optional(&mut *tx)
        .await
        .unwrap();
        assert_eq!(current.map_or(0, |row| row.get::<i64, _>(0)), expected);
        let saved = sqlx::query(
            "INSERT INTO sagents_agent_states AS s
                 (user_id, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
             VALUES ($1, $2, $3, 1, $4, $5, $6, $6)
             ON CONFLICT (user_id, conversation_id) DO UPDATE
             SET version = excluded.version, revision = s.revision + 1, write_id = excluded.write_id,
                 data = excluded.data, unreadable_data = CASE WHEN $7 THEN s.data ELSE s.unreadable_data END,
                 updated_at = excluded.updated_at
             RETURNING revision",
        )
        .bind(USER)
        .bind(conversation_id)
        .bind(2)
        .bind(Uuid::now_v7())
        .bind(data)
        .bind(text(Utc::now()))
        .bind(false)
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        saved.get(0)
    }

    /// The revision and the bytes of a state, which nobody parses.
    pub async fn load_state(&self, conversation_id: Uuid) -> SqliteRow {
        let load = sqlx::query(
            "SELECT s.revision, CAST(s.data AS BLOB) AS data FROM sagents_conversations c
             LEFT JOIN sagents_agent_states s ON s.user_id = $1 AND s.conversation_id = $2
             WHERE c.user_id = $1 AND c.id = $2",
        );
        load.bind(USER).bind(conversation_id).fetch_one(&self.0).await.unwrap()
    }

    async fn begin(&self) -> Transaction<'static, Sqlite> {
        self.0.begin_with("BEGIN IMMEDIATE").await.unwrap()
    }
}

async fn touch(connection: &mut SqliteConnection, id: Uuid) {
    let touch = sqlx::query("UPDATE sagents_conversations SET updated_at = $3 WHERE user_id = $1 AND id = $2");
    touch.bind(USER).bind(id).bind(text(Utc::now())).execute(connection).await.unwrap();
}

fn text(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

fn conversation(row: &SqliteRow) -> Conversation {
    Conversation {
        user_id: row.get("user_id"),
        id: row.get("id"),
        title: row.get("title"),
        scope: row.get::<Json<_>, _>("scope").0,
        metadata: row.get::<Json<_>, _>("metadata").0,
        interrupted: row.get("interrupted"),
        inserted_at: row.get("inserted_at"),
        updated_at: row.get("updated_at"),
    }
}

fn either_case(c: char) -> String {
    if c.is_alphabetic() { format!("[{}{}]", c.to_lowercase(), c.to_uppercase()) } else { c.to_string() }
}

fn message(row: &SqliteRow) -> DisplayMessage {
    DisplayMessage {
        user_id: row.get("user_id"),
        conversation_id: row.get("conversation_id"),
        sequence: row.get("sequence"),
        message_id: row.get("message_id"),
        item: row.get("item"),
        role: row.get("role"),
        content_type: row.get("content_type"),
        content: row.get("content"),
        metadata: row.get::<Json<_>, _>("metadata").0,
        tool_call_id: row.get("tool_call_id"),
        status: row.get("status"),
        inserted_at: row.get("inserted_at"),
    }
}
