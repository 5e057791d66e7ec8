//! Forks, rewinds, exports and imports as one would write them for this one host.

use sagents::sqlx::postgres::{PgConnection, PgRow};
use sagents::sqlx::types::Json;
use sagents::sqlx::{self, Executor as _, Row as _};
use sagents::{Conversation, Timestamp, ToolStatus};
use serde_json::json;
use uuid::Uuid;

use super::Hand;
use crate::USER;
use crate::files::{Line, Read, Shown, Used, header_of, write};

/// Where a conversation is cut.
struct Cut {
    last_change: i64,
    revision: i64,
    position: i32,
    sequence: i64,
    header: String,
    is_interrupted: bool,
}

impl Hand {
    pub(super) async fn fork_at(&self, id: Uuid, new: Uuid, message_id: Uuid) -> Conversation {
        let mut tx = self.pool.begin().await.unwrap();
        let cut = cut(&mut tx, id, message_id).await;
        let from = json!({ "forked_from": { "conversation_id": id, "message_id": message_id, "moved": false } });
        let fork = sqlx::query_as(
            "WITH created AS (
                 INSERT INTO sagents_conversations (user_id, id, title, scope, metadata, interrupted, next_sequence,
                     inserted_at, updated_at, last_change)
                 SELECT user_id, $3, title, scope, metadata || $4, interrupted AND $5, next_sequence, $6, $6, last_change
                 FROM sagents_conversations WHERE user_id = $1 AND id = $2 AND last_change = $7
                 RETURNING *
             ), state AS (
                 INSERT INTO sagents_agent_states
                     (user_id, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
                 SELECT $1, c.id, s.version, 1, $8, $9::json, $6, $6 FROM created c, sagents_agent_states s
                 WHERE s.user_id = $1 AND s.conversation_id = $2 AND s.revision = $10
             ), messages AS (
                 INSERT INTO sagents_agent_messages (user_id, conversation_id, epoch, position, message_id, data)
                 SELECT $1, c.id, 0, m.position, m.message_id, m.data
                 FROM created c, sagents_agent_states s, sagents_agent_messages m
                 WHERE s.user_id = $1 AND s.conversation_id = $2 AND m.user_id = $1 AND m.conversation_id = $2
                     AND m.epoch = s.epoch AND m.position < $11
             ), shown AS (
                 INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role,
                     content_type, content, metadata, tool_call_id, status, inserted_at, changed, delivery)
                 SELECT $1, c.id, m.sequence, m.message_id, m.item, m.role, m.content_type, m.content, CASE
                         WHEN m.status = 'executing' AND m.metadata ->> 'hitl_decision' IS DISTINCT FROM 'approved'
                             THEN m.metadata || '{\"started_elsewhere\": true}'
                         WHEN m.status = 'executing'
                             THEN m.metadata - '{hitl_decision,decision,decision_claim,claim}'::text[]
                                 || '{\"started_elsewhere\": true}'
                         WHEN m.tool_call_id IS NOT NULL AND m.metadata ->> 'hitl_decision' = 'approved'
                             AND (m.status IN ('pending', 'interrupted') OR m.metadata -> 'is_interrupt' = 'true')
                             THEN m.metadata - '{hitl_decision,decision,decision_claim,claim}'::text[]
                         ELSE m.metadata
                     END, m.tool_call_id, CASE
                         WHEN m.status IN ('pending', 'executing') AND m.metadata ->> 'hitl_decision' = 'approved'
                             THEN 'interrupted'
                         WHEN m.status = 'executing' THEN 'unknown'
                         ELSE m.status
                     END, m.inserted_at, m.changed,
                     CASE m.delivery WHEN 'draft' THEN 'interrupted' ELSE m.delivery END
                 FROM created c, sagents_display_messages m
                 WHERE m.user_id = $1 AND m.conversation_id = $2 AND m.sequence < $12
             ), counted AS (
                 INSERT INTO sagents_usage (user_id, conversation_id, message_id, model, input_tokens, output_tokens,
                     cached_tokens, inserted_at)
                 SELECT $1, c.id, u.message_id, u.model, 0, 0, 0, $6 FROM created c, sagents_usage u
                 WHERE u.user_id = $1 AND u.conversation_id = $2
             )
             SELECT * FROM created",
        );
        let fork = fork.bind(USER).bind(id).bind(new).bind(from).bind(cut.is_interrupted).bind(Timestamp::now());
        let fork = fork.bind(cut.last_change).bind(Uuid::now_v7()).bind(cut.header).bind(cut.revision);
        let forked = fork.bind(cut.position).bind(cut.sequence).fetch_one(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        forked
    }

    pub(super) async fn rewind_to(&self, id: Uuid, message_id: Uuid) -> u64 {
        let mut tx = self.pool.begin().await.unwrap();
        let cut = cut(&mut tx, id, message_id).await;
        let rewind = sqlx::query_scalar(
            "WITH conversation AS (
                 UPDATE sagents_conversations
                 SET last_change = last_change + 1, last_removal = last_change + 1, interrupted = interrupted AND $3,
                     updated_at = greatest(updated_at, $4)
                 WHERE user_id = $1 AND id = $2 AND last_change = $5
                 RETURNING id, last_change
             ), state AS (
                 UPDATE sagents_agent_states
                 SET revision = revision + 1, write_id = $6, data = $7::json, updated_at = greatest(updated_at, $4)
                 WHERE user_id = $1 AND conversation_id = (SELECT id FROM conversation) AND revision = $8
                 RETURNING epoch
             ), messages AS (
                 DELETE FROM sagents_agent_messages m USING state s
                 WHERE m.user_id = $1 AND m.conversation_id = $2 AND m.epoch = s.epoch AND m.position >= $9
             ), deleted AS (
                 DELETE FROM sagents_display_messages m USING conversation c
                 WHERE m.user_id = $1 AND m.conversation_id = c.id AND m.sequence >= $10
                 RETURNING m.sequence
             ), touched AS (
                 UPDATE sagents_display_messages m SET changed = c.last_change FROM conversation c
                 WHERE m.user_id = $1 AND m.conversation_id = c.id AND m.sequence = (
                     SELECT max(sequence) FROM sagents_display_messages
                     WHERE user_id = $1 AND conversation_id = $2 AND sequence < $10
                 )
             ), cancelled AS (
                 UPDATE sagents_runs r SET cancel_requested = TRUE FROM conversation c
                 WHERE r.user_id = $1 AND r.conversation_id = c.id
                     AND (r.status = 'running' OR r.status = 'waiting' AND NOT $3)
             )
             SELECT (SELECT count(*) FROM deleted) FROM conversation",
        );
        let rewind = rewind.bind(USER).bind(id).bind(cut.is_interrupted).bind(Timestamp::now()).bind(cut.last_change);
        let rewind = rewind.bind(Uuid::now_v7()).bind(cut.header).bind(cut.revision);
        let removed: i64 = rewind.bind(cut.position).bind(cut.sequence).fetch_one(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        let notify = sqlx::query("SELECT pg_notify('sagents', $1)").bind(id.to_string());
        notify.execute(&self.pool).await.unwrap();
        removed.unsigned_abs()
    }

    pub(super) async fn export_file(&self, id: Uuid) -> Vec<u8> {
        let mut tx = self.pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.unwrap();
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
        let message = |row: &PgRow| {
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
        let mut tx = self.pool.begin().await.unwrap();
        let create = sqlx::query(
            "INSERT INTO sagents_conversations
                 (user_id, id, title, scope, metadata, interrupted, inserted_at, updated_at, archived_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (user_id, id) DO NOTHING",
        );
        let create = create.bind(USER).bind(id).bind(title).bind(json!({ "type": "user", "id": USER }));
        let create = create.bind(Json(metadata)).bind(interrupted).bind(inserted_at).bind(updated_at).bind(archived_at);
        assert_eq!(create.execute(&mut *tx).await.unwrap().rows_affected(), 1);
        let (mut agent_messages, mut messages, mut usage) = (Vec::new(), Vec::new(), Vec::new());
        let (mut state, mut count, mut next_sequence) = (None, 0, 0);
        loop {
            match next() {
                Line::Conversation { .. } => panic!("another conversation"),
                Line::State { envelope, undisplayed } => state = Some((envelope, undisplayed)),
                Line::AgentMessage { id, message } => {
                    agent_messages.push((id, serde_json::to_string(&message).unwrap()));
                }
                Line::DisplayMessage(message) => messages.push(message),
                Line::Usage(used) => usage.push(used),
                Line::End { .. } => break,
            }
            if agent_messages.len() + messages.len() + usage.len() == 1000 {
                next_sequence = messages.last().map_or(next_sequence, |message: &Shown| message.sequence + 1);
                insert(&mut tx, id, count, &agent_messages, &messages, &usage).await;
                count += agent_messages.len();
                agent_messages.clear();
                messages.clear();
                usage.clear();
            }
        }
        next_sequence = messages.last().map_or(next_sequence, |message| message.sequence + 1);
        insert(&mut tx, id, count, &agent_messages, &messages, &usage).await;
        count += agent_messages.len();
        let (envelope, _) = state.unwrap();
        let insert = sqlx::query(
            "INSERT INTO sagents_agent_states
                 (user_id, conversation_id, version, revision, write_id, data, inserted_at, updated_at)
             VALUES ($1, $2, 3, 1, $3, $4::json, $5, $5)",
        );
        let insert =
            insert.bind(USER).bind(id).bind(Uuid::now_v7()).bind(header_of(envelope, count)).bind(Timestamp::now());
        insert.execute(&mut *tx).await.unwrap();
        let set = sqlx::query_as(
            "UPDATE sagents_conversations SET next_sequence = $3 WHERE user_id = $1 AND id = $2 RETURNING *",
        );
        let imported = set.bind(USER).bind(id).bind(next_sequence).fetch_one(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        imported
    }
}

/// Behind a message, if no tool call is separated from its result there. Calls are grouped with their results: a join
/// of them would be planned for a few rows, and compare each with each.
async fn cut(connection: &mut PgConnection, id: Uuid, message_id: Uuid) -> Cut {
    let locate = sqlx::query(
        "WITH state AS (
             SELECT revision, epoch, data FROM sagents_agent_states WHERE user_id = $1 AND conversation_id = $2
         ), cut AS (
             SELECT (
                 SELECT max(position) + 1 FROM sagents_agent_messages
                 WHERE user_id = $1 AND conversation_id = $2 AND epoch = (SELECT epoch FROM state) AND message_id = $3
             ) AS position, (
                 SELECT max(sequence) + 1 FROM sagents_display_messages
                 WHERE user_id = $1 AND conversation_id = $2 AND message_id = $3
             ) AS sequence
         ), shown AS (
             SELECT sequence, tool_call_id, content_type, status FROM sagents_display_messages
             WHERE user_id = $1 AND conversation_id = $2 AND tool_call_id IS NOT NULL
         ), tools AS (
             SELECT m.position, m.data FROM sagents_agent_messages m
             WHERE m.user_id = $1 AND m.conversation_id = $2 AND m.epoch = (SELECT epoch FROM state)
                 AND (m.data::text LIKE '%\"tool_calls\"%' OR m.data::text LIKE '%\"tool_results\"%')
         )
         SELECT c.last_change, s.revision, s.data, o.position, o.sequence, EXISTS (
             SELECT FROM shown GROUP BY tool_call_id
             HAVING bool_or(content_type = 'tool_call' AND sequence < o.sequence)
                 AND bool_or(content_type = 'tool_result' AND sequence >= o.sequence)
         ) OR EXISTS (
             SELECT FROM (
                 SELECT v ->> 'call_id' AS call_id, TRUE AS is_call
                 FROM tools t, json_array_elements(t.data -> 'tool_calls') v WHERE t.position < o.position
                 UNION ALL
                 SELECT v ->> 'tool_call_id', FALSE
                 FROM tools t, json_array_elements(t.data -> 'tool_results') v WHERE t.position >= o.position
             ) v GROUP BY call_id HAVING bool_or(is_call) AND bool_or(NOT is_call)
         ) AS separated, EXISTS (
             SELECT FROM shown WHERE content_type = 'tool_call' AND status = 'interrupted' AND sequence < o.sequence
         ) AS is_interrupted
         FROM sagents_conversations c, cut o, state s WHERE c.user_id = $1 AND c.id = $2",
    );
    let row = locate.bind(USER).bind(id).bind(message_id).fetch_one(connection).await.unwrap();
    assert!(!row.get::<bool, _>("separated"));
    let position: i32 = row.get("position");
    let header: &[u8] = row.try_get_unchecked("data").unwrap();
    Cut {
        last_change: row.get("last_change"),
        revision: row.get("revision"),
        position,
        sequence: row.get("sequence"),
        header: header_of(serde_json::from_slice(header).unwrap(), usize::try_from(position).unwrap()),
        is_interrupted: row.get("is_interrupted"),
    }
}

async fn insert(
    connection: &mut PgConnection,
    id: Uuid,
    first: usize,
    agent_messages: &[(Uuid, String)],
    messages: &[Shown],
    usage: &[Used],
) {
    let insert = sqlx::query(
        "INSERT INTO sagents_agent_messages (user_id, conversation_id, epoch, position, message_id, data)
         SELECT $1, $2, 0, $3::integer + place - 1, message_id, data::json
         FROM unnest($4::uuid[], $5::text[]) WITH ORDINALITY AS n (message_id, data, place)",
    );
    let insert = insert.bind(USER).bind(id).bind(i32::try_from(first).unwrap());
    let insert = insert.bind(agent_messages.iter().map(|message| message.0).collect::<Vec<_>>());
    let insert = insert.bind(agent_messages.iter().map(|message| message.1.as_str()).collect::<Vec<_>>());
    connection.execute(insert).await.unwrap();
    let insert = sqlx::query(
        "INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role,
             content_type, content, metadata, tool_call_id, status, inserted_at, delivery)
         SELECT $1, $2, n.* FROM unnest($3::bigint[], $4::uuid[], $5::integer[], $6::text[], $7::text[], $8::text[],
             $9::jsonb[], $10::text[], $11::text[], $12::timestamptz[], $13::text[]) n",
    );
    let insert = insert.bind(USER).bind(id).bind(messages.iter().map(|m| m.sequence).collect::<Vec<_>>());
    let insert = insert.bind(messages.iter().map(|m| m.message_id).collect::<Vec<_>>());
    let insert = insert.bind(messages.iter().map(|m| m.item).collect::<Vec<_>>());
    let insert = insert.bind(messages.iter().map(|m| m.role.as_str()).collect::<Vec<_>>());
    let insert = insert.bind(messages.iter().map(|m| m.content_type.as_str()).collect::<Vec<_>>());
    let insert = insert.bind(messages.iter().map(|m| m.content.as_str()).collect::<Vec<_>>());
    let insert = insert.bind(messages.iter().map(|m| Json(&m.metadata)).collect::<Vec<_>>());
    let insert = insert.bind(messages.iter().map(|m| m.tool_call_id.as_deref()).collect::<Vec<_>>());
    let insert = insert.bind(messages.iter().map(|m| m.status.map(ToolStatus::as_str)).collect::<Vec<_>>());
    let insert = insert.bind(messages.iter().map(|m| m.inserted_at).collect::<Vec<_>>());
    let insert = insert.bind(messages.iter().map(|m| m.delivery.as_stored()).collect::<Vec<_>>());
    connection.execute(insert).await.unwrap();
    let insert = sqlx::query(
        "INSERT INTO sagents_usage (user_id, conversation_id, message_id, model, input_tokens, output_tokens,
             cached_tokens, inserted_at)
         SELECT $1, $2, n.* FROM unnest($3::uuid[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
             $8::timestamptz[]) n",
    );
    let insert = insert.bind(USER).bind(id).bind(usage.iter().map(|u| u.message_id).collect::<Vec<_>>());
    let insert = insert.bind(usage.iter().map(|u| u.model.as_deref()).collect::<Vec<_>>());
    let insert = insert.bind(usage.iter().map(|u| u.input_tokens).collect::<Vec<_>>());
    let insert = insert.bind(usage.iter().map(|u| u.output_tokens).collect::<Vec<_>>());
    let insert = insert.bind(usage.iter().map(|u| u.cached_tokens).collect::<Vec<_>>());
    let insert = insert.bind(usage.iter().map(|u| u.inserted_at).collect::<Vec<_>>());
    connection.execute(insert).await.unwrap();
}
