//! Forks, rewinds, exports and imports as one would write them for this one host.

use sagents::sqlx::sqlite::SqliteRow;
use sagents::sqlx::types::Json;
use sagents::sqlx::{self, Row as _, SqliteConnection};
use sagents::{Conversation, Timestamp, ToolStatus};
use serde_json::json;
use uuid::Uuid;

use super::Hand;
use crate::USER;
use crate::files::{Line, Read, header_of, write};

/// Where a conversation is cut.
struct Cut {
    last_change: i64,
    position: i64,
    sequence: i64,
    header: String,
    is_interrupted: bool,
}

impl Hand {
    pub(super) async fn fork_at(&self, id: Uuid, new: Uuid, message_id: Uuid) -> Conversation {
        let mut tx = self.begin().await;
        let cut = cut(&mut tx, id, message_id).await;
        let from = json!({ "conversation_id": id, "message_id": message_id, "moved": false });
        let create = sqlx::query_as(
            "INSERT INTO sagents_conversations (user_id, id, title, scope, metadata, interrupted, next_sequence,
                 inserted_at, updated_at, last_change)
             SELECT user_id, $3, title, scope, json_set(metadata, '$.forked_from', json($4)), interrupted AND $5,
                 next_sequence, $6, $6, last_change
             FROM sagents_conversations WHERE user_id = $1 AND id = $2 RETURNING *",
        );
        let create = create.bind(USER).bind(id).bind(new).bind(Json(from)).bind(cut.is_interrupted);
        let forked = create.bind(Timestamp::now()).fetch_one(&mut *tx).await.unwrap();
        let copy = sqlx::query(
            "INSERT INTO sagents_agent_states
                 (user_id, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
             SELECT $1, $3, version, 1, $4, $5, $6, $6 FROM sagents_agent_states
             WHERE user_id = $1 AND conversation_id = $2;
             INSERT INTO sagents_agent_messages (user_id, conversation_id, epoch, position, message_id, data)
             SELECT $1, $3, 0, position, message_id, data FROM sagents_agent_messages
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = (
                 SELECT epoch FROM sagents_agent_states WHERE user_id = $1 AND conversation_id = $2
             ) AND position < $7;
             INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role,
                 content_type, content, metadata, tool_call_id, status, inserted_at, changed, delivery)
             SELECT $1, $3, sequence, message_id, item, role, content_type, content, CASE
                     WHEN status = 'executing' AND metadata ->> '$.hitl_decision' IS NOT 'approved'
                         THEN json_set(metadata, '$.started_elsewhere', json('true'))
                     WHEN status = 'executing'
                         THEN json_set(json_remove(metadata, '$.hitl_decision', '$.decision', '$.decision_claim',
                             '$.claim'), '$.started_elsewhere', json('true'))
                     WHEN tool_call_id IS NOT NULL AND metadata ->> '$.hitl_decision' = 'approved'
                         AND (status IN ('pending', 'interrupted') OR metadata ->> '$.is_interrupt')
                         THEN json_remove(metadata, '$.hitl_decision', '$.decision', '$.decision_claim', '$.claim')
                     ELSE metadata
                 END, tool_call_id, CASE
                     WHEN status IN ('pending', 'executing') AND metadata ->> '$.hitl_decision' = 'approved'
                         THEN 'interrupted'
                     WHEN status = 'executing' THEN 'unknown'
                     ELSE status
                 END, inserted_at, changed, CASE delivery WHEN 'draft' THEN 'interrupted' ELSE delivery END
             FROM sagents_display_messages WHERE user_id = $1 AND conversation_id = $2 AND sequence < $8;
             INSERT INTO sagents_usage (user_id, conversation_id, message_id, model, input_tokens, output_tokens,
                 cached_tokens, inserted_at)
             SELECT $1, $3, message_id, model, 0, 0, 0, $6 FROM sagents_usage
             WHERE user_id = $1 AND conversation_id = $2",
        );
        let copy = copy.bind(USER).bind(id).bind(new).bind(Uuid::now_v7()).bind(cut.header).bind(Timestamp::now());
        copy.bind(cut.position).bind(cut.sequence).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        forked
    }

    pub(super) async fn rewind_to(&self, id: Uuid, message_id: Uuid) -> u64 {
        let mut tx = self.begin().await;
        let cut = cut(&mut tx, id, message_id).await;
        let delete = sqlx::query(
            "DELETE FROM sagents_display_messages WHERE user_id = $1 AND conversation_id = $2 AND sequence >= $3",
        );
        let delete = delete.bind(USER).bind(id).bind(cut.sequence).execute(&mut *tx).await.unwrap();
        let rewind = sqlx::query(
            "UPDATE sagents_conversations
             SET last_change = $3, last_removal = $3, interrupted = interrupted AND $4, updated_at = max(updated_at, $5)
             WHERE user_id = $1 AND id = $2;
             UPDATE sagents_display_messages SET changed = $3
             WHERE user_id = $1 AND conversation_id = $2 AND sequence = (
                 SELECT max(sequence) FROM sagents_display_messages WHERE user_id = $1 AND conversation_id = $2
             );
             DELETE FROM sagents_agent_messages
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = (
                 SELECT epoch FROM sagents_agent_states WHERE user_id = $1 AND conversation_id = $2
             ) AND position >= $6;
             UPDATE sagents_runs SET cancel_requested = TRUE
             WHERE user_id = $1 AND conversation_id = $2 AND (status = 'running' OR status = 'waiting' AND NOT $4);
             UPDATE sagents_agent_states
             SET revision = revision + 1, write_id = $7, data = $8, updated_at = max(updated_at, $5)
             WHERE user_id = $1 AND conversation_id = $2",
        );
        let rewind = rewind.bind(USER).bind(id).bind(cut.last_change + 1).bind(cut.is_interrupted);
        let rewind = rewind.bind(Timestamp::now()).bind(cut.position).bind(Uuid::now_v7()).bind(cut.header);
        rewind.execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        delete.rows_affected()
    }

    pub(super) async fn export_file(&self, id: Uuid) -> Vec<u8> {
        let mut tx = self.pool.begin().await.unwrap();
        let conversation = sqlx::query_as("SELECT * FROM sagents_conversations WHERE user_id = $1 AND id = $2");
        let conversation = conversation.bind(USER).bind(id).fetch_one(&mut *tx).await.unwrap();
        let state =
            sqlx::query("SELECT epoch, data FROM sagents_agent_states WHERE user_id = $1 AND conversation_id = $2");
        let state = state.bind(USER).bind(id).fetch_one(&mut *tx).await.unwrap();
        let agent_messages = sqlx::query(
            "SELECT message_id, data FROM sagents_agent_messages
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = $3 ORDER BY position",
        );
        let agent_messages = agent_messages.bind(USER).bind(id).bind(state.get::<i64, _>("epoch"));
        let message = |row: &SqliteRow| {
            let data: &[u8] = row.try_get_unchecked("data").unwrap();
            (row.get("message_id"), serde_json::from_slice(data).unwrap())
        };
        let agent_messages = agent_messages.fetch_all(&mut *tx).await.unwrap().iter().map(message).collect();
        let messages = sqlx::query_as(
            "SELECT * FROM sagents_display_messages WHERE user_id = $1 AND conversation_id = $2 ORDER BY sequence",
        );
        let messages = messages.bind(USER).bind(id).fetch_all(&mut *tx).await.unwrap();
        let usage = sqlx::query_as(
            "SELECT message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at FROM sagents_usage WHERE user_id = $1 AND conversation_id = $2 ORDER BY message_id",
        );
        let usage = usage.bind(USER).bind(id).fetch_all(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        let header: &[u8] = state.try_get_unchecked("data").unwrap();
        write(Read { conversation, header: header.to_vec(), agent_messages, messages, usage })
    }

    pub(super) async fn import_file(&self, file: &[u8]) -> Conversation {
        let mut lines = file.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut next = || -> Line { serde_json::from_slice(lines.next().unwrap()).unwrap() };
        let Line::Conversation { version, id, title, metadata, interrupted, inserted_at, updated_at, archived_at } =
            next()
        else {
            panic!("no conversation")
        };
        assert_eq!(version, 1);
        let mut tx = self.begin().await;
        let create = sqlx::query(
            "INSERT INTO sagents_conversations
                 (user_id, id, title, scope, metadata, interrupted, inserted_at, updated_at, archived_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (user_id, id) DO NOTHING",
        );
        let create = create.bind(USER).bind(id).bind(title).bind(Json(json!({ "type": "user", "id": USER })));
        let create = create.bind(Json(metadata)).bind(interrupted).bind(inserted_at).bind(updated_at);
        assert_eq!(create.bind(archived_at).execute(&mut *tx).await.unwrap().rows_affected(), 1);
        let (mut state, mut count, mut next_sequence) = (None, 0_i32, 0);
        loop {
            match next() {
                Line::Conversation { .. } => panic!("another conversation"),
                Line::State { envelope, .. } => state = Some(envelope),
                Line::AgentMessage { id: message_id, message } => {
                    let insert = sqlx::query(
                        "INSERT INTO sagents_agent_messages
                             (user_id, conversation_id, epoch, position, message_id, data)
                         VALUES ($1, $2, 0, $3, $4, $5)",
                    );
                    let insert = insert.bind(USER).bind(id).bind(count).bind(message_id).bind(Json(message));
                    insert.execute(&mut *tx).await.unwrap();
                    count += 1;
                }
                Line::DisplayMessage(message) => {
                    next_sequence = message.sequence + 1;
                    let insert = sqlx::query(
                        "INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item,
                             role, content_type, content, metadata, tool_call_id, status, inserted_at, delivery)
                         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
                    );
                    let insert = insert.bind(USER).bind(id).bind(message.sequence).bind(message.message_id);
                    let insert = insert.bind(message.item).bind(message.role.as_str());
                    let insert = insert.bind(message.content_type.as_str()).bind(message.content);
                    let insert = insert.bind(Json(message.metadata)).bind(message.tool_call_id);
                    let insert = insert.bind(message.status.map(ToolStatus::as_str));
                    let insert = insert.bind(message.inserted_at).bind(message.delivery.as_stored());
                    insert.execute(&mut *tx).await.unwrap();
                }
                Line::Usage(used) => {
                    let insert = sqlx::query(
                        "INSERT INTO sagents_usage (user_id, conversation_id, message_id, model, input_tokens,
                             output_tokens, cached_tokens, inserted_at)
                         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                    );
                    let insert = insert.bind(USER).bind(id).bind(used.message_id).bind(used.model);
                    let insert = insert.bind(used.input_tokens).bind(used.output_tokens).bind(used.cached_tokens);
                    insert.bind(used.inserted_at).execute(&mut *tx).await.unwrap();
                }
                Line::End { .. } => break,
            }
        }
        let insert = sqlx::query(
            "INSERT INTO sagents_agent_states
                 (user_id, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
             VALUES ($1, $2, 3, 1, $3, $4, $5, $5)",
        );
        let header = header_of(state.unwrap(), usize::try_from(count).unwrap());
        let insert = insert.bind(USER).bind(id).bind(Uuid::now_v7()).bind(header).bind(Timestamp::now());
        insert.execute(&mut *tx).await.unwrap();
        let set = sqlx::query_as(
            "UPDATE sagents_conversations SET next_sequence = $3 WHERE user_id = $1 AND id = $2 RETURNING *",
        );
        let imported = set.bind(USER).bind(id).bind(next_sequence).fetch_one(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        imported
    }
}

/// Behind a message, if no tool call is separated from its result there.
async fn cut(connection: &mut SqliteConnection, id: Uuid, message_id: Uuid) -> Cut {
    let locate = sqlx::query(
        "WITH state AS MATERIALIZED (
             SELECT epoch, data FROM sagents_agent_states WHERE user_id = $1 AND conversation_id = $2
         ), cut AS MATERIALIZED (
             SELECT (
                 SELECT max(position) + 1 FROM sagents_agent_messages
                 WHERE user_id = $1 AND conversation_id = $2 AND epoch = (SELECT epoch FROM state) AND message_id = $3
             ) AS position, (
                 SELECT max(sequence) + 1 FROM sagents_display_messages
                 WHERE user_id = $1 AND conversation_id = $2 AND message_id = $3
             ) AS sequence
         ), shown AS MATERIALIZED (
             SELECT sequence, tool_call_id, content_type, status FROM sagents_display_messages
             WHERE user_id = $1 AND conversation_id = $2 AND tool_call_id IS NOT NULL
         ), tools AS MATERIALIZED (
             SELECT position, data FROM sagents_agent_messages
             WHERE user_id = $1 AND conversation_id = $2 AND epoch = (SELECT epoch FROM state)
                 AND (instr(data, '\"tool_calls\"') OR instr(data, '\"tool_results\"'))
         )
         SELECT c.last_change, s.data, o.position, o.sequence, EXISTS (
             SELECT 1 FROM shown k JOIN shown r USING (tool_call_id)
             WHERE k.content_type = 'tool_call' AND k.sequence < o.sequence
                 AND r.content_type = 'tool_result' AND r.sequence >= o.sequence
         ) OR EXISTS (
             SELECT 1 FROM tools t, json_each(t.data, '$.tool_calls') v
             WHERE t.position < o.position AND v.value ->> 'call_id' IN (
                 SELECT v.value ->> 'tool_call_id' FROM tools t, json_each(t.data, '$.tool_results') v
                 WHERE t.position >= (SELECT position FROM cut)
             )
         ) AS separated, EXISTS (
             SELECT 1 FROM shown WHERE content_type = 'tool_call' AND status = 'interrupted' AND sequence < o.sequence
         ) AS is_interrupted
         FROM sagents_conversations c, cut o, state s WHERE c.user_id = $1 AND c.id = $2",
    );
    let row = locate.bind(USER).bind(id).bind(message_id).fetch_one(connection).await.unwrap();
    assert!(!row.get::<bool, _>("separated"));
    let position: i64 = row.get("position");
    let header: &[u8] = row.try_get_unchecked("data").unwrap();
    Cut {
        last_change: row.get("last_change"),
        position,
        sequence: row.get("sequence"),
        header: header_of(serde_json::from_slice(header).unwrap(), usize::try_from(position).unwrap()),
        is_interrupted: row.get("is_interrupted"),
    }
}
