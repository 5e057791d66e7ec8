
//! Proves the layer in this host: every call, ordering, idempotence, concurrency and the isolation
//! of owners.
//!
//! Each test has a database of its own, with only these tables in it and a stand-in for the owner's
//! table.
//!
//! They need a server: `DATABASE_URL` names a database on it, whose role may create others.

use std::collections::BTreeSet;
use std::thread;

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::*;
use crate::sagents::{Expect, Message, State, Todo, ToolCall};

/// What makes the tables.
const MIGRATIONS: &[&str] = &[
    r#"
-- Says what is missing before anything is made.
DO $$
BEGIN
    IF NOT has_schema_privilege(current_schema(), 'CREATE') THEN
        RAISE EXCEPTION 'the role % may not create tables in the schema %: let its owner GRANT CREATE ON SCHEMA % TO %',
            current_user, current_schema(), current_schema(), current_user;
    END IF;
    IF to_regclass('"teams"') IS NULL THEN
        RAISE EXCEPTION 'the table "teams" of the owners is missing: make it in an earlier migration, or name another with --owner-table';
    END IF;
    IF NOT has_table_privilege('"teams"', 'REFERENCES') THEN
        RAISE EXCEPTION 'the role % may not refer to "teams": let its owner GRANT REFERENCES ON "teams" TO %',
            current_user, current_user;
    END IF;
END
$$;

-- Conversations, and where each one's next message goes.
CREATE TABLE "sagents_conversations" (
    "team_id" UUID NOT NULL,
    "id" UUID NOT NULL,
    "title" TEXT,
    "scope" JSONB NOT NULL,
    "metadata" JSONB NOT NULL DEFAULT '{}',
    "interrupted" BOOLEAN NOT NULL DEFAULT FALSE,
    "next_sequence" BIGINT NOT NULL DEFAULT 0,
    "inserted_at" TIMESTAMPTZ NOT NULL,
    "updated_at" TIMESTAMPTZ NOT NULL,
    "user_id" BIGINT,
    CONSTRAINT "sagents_conversations_pkey" PRIMARY KEY ("team_id", "id"),
    CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("team_id") REFERENCES "teams" ("id") ON DELETE CASCADE,
    CHECK (next_sequence >= 0)
);
CREATE INDEX "sagents_conversations_updated" ON "sagents_conversations" ("team_id", "updated_at" DESC, "id" DESC);

-- What a conversation's agent knows.
CREATE TABLE "sagents_agent_states" (
    "team_id" UUID NOT NULL,
    "conversation_id" UUID NOT NULL,
    "version" INTEGER NOT NULL,
    "revision" BIGINT NOT NULL,
    "write_id" UUID NOT NULL,
    "data" JSON NOT NULL,
    "unreadable_data" JSON,
    "inserted_at" TIMESTAMPTZ NOT NULL,
    "updated_at" TIMESTAMPTZ NOT NULL,
    "user_id" BIGINT,
    CONSTRAINT "sagents_agent_states_pkey" PRIMARY KEY ("team_id", "conversation_id"),
    CONSTRAINT "sagents_agent_states_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "sagents_conversations" ("team_id", "id") ON DELETE CASCADE,
    CHECK (revision >= 1)
);

-- What a person sees of a conversation, in order.
CREATE TABLE "sagents_display_messages" (
    "team_id" UUID NOT NULL,
    "conversation_id" UUID NOT NULL,
    "sequence" BIGINT NOT NULL,
    "message_id" UUID NOT NULL,
    "item" INTEGER NOT NULL,
    "role" TEXT NOT NULL,
    "content_type" TEXT NOT NULL,
    "content" TEXT NOT NULL,
    "metadata" JSONB NOT NULL DEFAULT '{}',
    "tool_call_id" TEXT,
    "status" TEXT,
    "inserted_at" TIMESTAMPTZ NOT NULL,
    "user_id" BIGINT,
    CONSTRAINT "sagents_display_messages_pkey" PRIMARY KEY ("team_id", "conversation_id", "sequence"),
    CONSTRAINT "sagents_display_messages_key" UNIQUE ("team_id", "conversation_id", "message_id", "item"),
    CONSTRAINT "sagents_display_messages_fkey" FOREIGN KEY ("team_id", "conversation_id") REFERENCES "sagents_conversations" ("team_id", "id") ON DELETE CASCADE,
    CHECK (sequence >= 0),
    CHECK (item >= 0),
    CHECK (role IN ('user', 'assistant', 'tool', 'system')),
    CHECK (content_type IN ('text', 'thinking', 'image', 'file_reference', 'structured_data', 'notification', 'error', 'tool_call', 'tool_result', 'todo_snapshot')),
    CHECK (status IN ('pending', 'executing', 'completed', 'failed', 'interrupted', 'cancelled')),
    CHECK ((content_type = 'tool_call') = (status IS NOT NULL)),
    CHECK (content_type <> 'tool_call' OR tool_call_id IS NOT NULL)
);
CREATE INDEX "sagents_display_messages_tool_calls" ON "sagents_display_messages" ("team_id", "conversation_id", "tool_call_id", "content_type", "sequence")
    WHERE tool_call_id IS NOT NULL;
"#,
];


/// A database of its own for each test; it goes away with it.
struct Database {
    conversations: Conversations,
    server: PgConnectOptions,
    name: String,
}

impl Database {
    async fn new() -> Self {
        let Ok(url) = std::env::var("DATABASE_URL") else {
            panic!("set DATABASE_URL to a PostgreSQL database whose role may create databases");
        };
        let server = PgConnectOptions::from_str(&url).unwrap();
        let name = format!("conversations_{}", Uuid::now_v7().simple());
        if let Err(error) = command(&server, "CREATE", &name).await {
            panic!("no database for the test on DATABASE_URL: {}", Error::from(error));
        }
        let pool = open(server.clone().database(&name)).await.unwrap();
        let db = Self {
            conversations: Conversations::new(pool.clone()),
            server,
            name,
        };
        sqlx::raw_sql(r#"CREATE TABLE "teams" ("id" UUID NOT NULL PRIMARY KEY)"#).execute(&pool).await.unwrap();
        for &migration in MIGRATIONS {
            sqlx::raw_sql(migration).execute(&pool).await.unwrap();
        }
        for owner in [alice(), bob()] {
            sqlx::query(r#"INSERT INTO "teams" ("id") VALUES ($1)"#).bind(owner.id()).execute(&pool).await.unwrap();
        }
        db
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The test's own runtime cannot wait here.
        let (server, name) = (self.server.clone(), self.name.clone());
        let dropping = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(command(&server, "DROP", &name)).map_err(std::io::Error::other)
        });
        if !matches!(dropping.join(), Ok(Ok(()))) {
            eprintln!("the database {} is left over", self.name);
        }
    }
}

/// Creates or drops a database, which takes no parameters.
async fn command(server: &PgConnectOptions, verb: &str, name: &str) -> sqlx::Result<()> {
    let force = if verb == "DROP" { "WITH (FORCE)" } else { "" };
    let mut connection = server.connect().await?;
    // sqlx takes only statements that live as long as the program.
    let statement: &'static str = format!(r#"{verb} DATABASE "{name}" {force}"#).leak();
    sqlx::raw_sql(statement).execute(&mut connection).await?;
    connection.close().await
}

impl std::ops::Deref for Database {
    type Target = Conversations;

    fn deref(&self) -> &Conversations {
        &self.conversations
    }
}

const ALICE: Uuid = Uuid::from_u128(1);
const BOB: Uuid = Uuid::from_u128(2);

fn alice() -> Owner {
    Owner::new(ALICE)
}

fn bob() -> Owner {
    Owner::new(BOB)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("not an object: {other}"),
    }
}

#[tokio::test]
async fn a_conversation_is_created_read_changed_and_deleted() {
    let db = Database::new().await;
    let new = NewConversation::new()
        .title("Plans")
        .metadata(object(json!({ "color": "blue" })));
    let created = db.create_conversation(&alice(), new.clone()).await.unwrap();
    assert_eq!(created.title.as_deref(), Some("Plans"));
    assert_eq!(created.scope, json!({ "type": "team", "id": ALICE }));
    assert!(!created.interrupted);
    assert_eq!(
        db.get_conversation(&alice(), new.id).await.unwrap(),
        created
    );
    assert_eq!(
        db.create_conversation(&alice(), new).await.unwrap(),
        created,
        "creating it again changes nothing"
    );

    let renamed = db
        .update_conversation(
            &alice(),
            created.id,
            ConversationChanges::default().title("Other"),
        )
        .await
        .unwrap();
    assert_eq!(renamed.title.as_deref(), Some("Other"));
    assert_eq!(renamed.metadata, created.metadata);
    assert!(renamed.updated_at >= created.updated_at);
    let cleared = ConversationChanges::default()
        .clear_title()
        .metadata(Map::new());
    let cleared = db
        .update_conversation(&alice(), created.id, cleared)
        .await
        .unwrap();
    assert_eq!((cleared.title, cleared.metadata), (None, Map::new()));

    db.delete_conversation(&alice(), created.id).await.unwrap();
    assert!(matches!(
        db.get_conversation(&alice(), created.id).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.delete_conversation(&alice(), created.id).await,
        Err(Error::NotFound)
    ));
}

#[tokio::test]
async fn what_belongs_to_somebody_else_is_not_found() {
    let db = Database::new().await;
    let id = db
        .create_conversation(&alice(), NewConversation::new())
        .await
        .unwrap()
        .id;
    let call = NewDisplayMessage::tool_call("call_1", "search");
    db.append_display_message(&alice(), id, call).await.unwrap();
    let before = db.get_conversation(&alice(), id).await.unwrap();

    let message = NewDisplayMessage::text(Role::User, "hello");
    let page = MessagePage::first();
    assert!(matches!(
        db.get_conversation(&bob(), id).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.update_conversation(&bob(), id, ConversationChanges::default())
            .await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.delete_conversation(&bob(), id).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.append_display_message(&bob(), id, message).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.load_display_messages(&bob(), id, page).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.clear_display_messages(&bob(), id).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.mark_tool_executing(&bob(), id, "call_1").await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.save_agent_state(&bob(), id, &State::new(), Expect::Any).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.load_agent_state(&bob(), id).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.load_todos(&bob(), id).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.restore_unreadable(&bob(), id).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.set_interrupted(&bob(), id, true).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.save_message(&bob(), id, Uuid::now_v7(), &Message::user("hello")).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.record_hitl_decision(&bob(), id, "call_1", HitlDecision::Approved)
            .await,
        Err(Error::NotFound)
    ));
    assert_eq!(
        db.list_conversations(&bob(), ListConversations::default())
            .await
            .unwrap(),
        []
    );
    assert_eq!(db.search_messages(&bob(), "search", 10).await.unwrap(), []);

    assert_eq!(db.get_conversation(&alice(), id).await.unwrap(), before);
    assert_eq!(
        db.load_display_messages(&alice(), id, page)
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn the_tables_refuse_a_row_that_crosses_owners() {
    const INSERT: &str = r#"
        INSERT INTO "sagents_agent_states"
            ("team_id", conversation_id, version, revision, write_id, data, inserted_at, updated_at)
        VALUES ($1, $2, 2, 1, $2, '{}', $3, $3)"#;

    let db = Database::new().await;
    let id = db
        .create_conversation(&alice(), NewConversation::new())
        .await
        .unwrap()
        .id;
    for (owner, accepted) in [(bob(), false), (alice(), true)] {
        let inserted = sqlx::query(INSERT)
.bind(owner.id())
            .bind(id)
            .bind(timestamp(now()))
            .execute(&db.pool)
            .await;
        assert_eq!(inserted.is_ok(), accepted, "{inserted:?}");
    }
    let state: AgentState = sqlx::query_as(r#"SELECT * FROM "sagents_agent_states""#)
        .fetch_one(&db.pool)
        .await
        .unwrap();
    assert_eq!((state.conversation_id, state.version), (id, 2));
}

#[tokio::test]
async fn pages_of_conversations_follow_each_other_in_every_order() {
    let db = Database::new().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(
            db.create_conversation(&alice(), NewConversation::new())
                .await
                .unwrap()
                .id,
        );
    }
    let newest = NewDisplayMessage::text(Role::User, "hello");
    db.append_display_message(&alice(), ids[1], newest)
        .await
        .unwrap();
    let updated = [ids[0], ids[2], ids[3], ids[4], ids[1]];

    for (order_by, expected) in [
        (ConversationOrder::UpdatedAsc, updated.to_vec()),
        (
            ConversationOrder::UpdatedDesc,
            updated.iter().rev().copied().collect(),
        ),
        (ConversationOrder::CreatedAsc, ids.clone()),
        (
            ConversationOrder::CreatedDesc,
            ids.iter().rev().copied().collect(),
        ),
    ] {
        let mut request = ListConversations {
            order_by,
            limit: 2,
            after: None,
        };
        let mut seen = Vec::new();
        loop {
            let page = db.list_conversations(&alice(), request.clone()).await.unwrap();
            assert!(page.len() <= 2);
            let Some(last) = page.last() else { break };
            request.after = Some(last.cursor());
            seen.extend(page.iter().map(|conversation| conversation.id));
        }
        assert_eq!(seen, expected, "{order_by:?}");
    }
}

#[tokio::test]
async fn messages_are_paged_both_ways_and_sequences_go_on_after_a_clear() {
    let db = Database::new().await;
    let id = db
        .create_conversation(&alice(), NewConversation::new())
        .await
        .unwrap()
        .id;
    for n in 0..5 {
        let message = NewDisplayMessage::text(Role::User, format!("message {n}"));
        assert_eq!(
            db.append_display_message(&alice(), id, message)
                .await
                .unwrap()
                .sequence,
            n
        );
    }
    for (page, expected) in [
        (MessagePage::first().limit(2), vec![0, 1]),
        (MessagePage::after(1).limit(2), vec![2, 3]),
        (MessagePage::last().limit(2), vec![3, 4]),
        (MessagePage::before(3).limit(2), vec![1, 2]),
        (MessagePage::after(4), vec![]),
        (MessagePage::first(), vec![0, 1, 2, 3, 4]),
    ] {
        let messages = db.load_display_messages(&alice(), id, page).await.unwrap();
        let sequences: Vec<_> = messages.iter().map(|message| message.sequence).collect();
        assert_eq!(sequences, expected, "{page:?}");
    }
    assert_eq!(db.clear_display_messages(&alice(), id).await.unwrap(), 5);
    assert_eq!(
        db.load_display_messages(&alice(), id, MessagePage::first())
            .await
            .unwrap(),
        []
    );
    let message = NewDisplayMessage::text(Role::User, "again");
    assert_eq!(
        db.append_display_message(&alice(), id, message)
            .await
            .unwrap()
            .sequence,
        5
    );
}

#[tokio::test]
async fn appending_again_stores_nothing_and_returns_the_first() {
    let db = Database::new().await;
    let id = db
        .create_conversation(&alice(), NewConversation::new())
        .await
        .unwrap()
        .id;
    let message = NewDisplayMessage::text(Role::Assistant, "nul\0byte")
        .metadata(object(json!({ "tokens": 3 })));
    let first = db
        .append_display_message(&alice(), id, message.clone())
        .await
        .unwrap();
    assert_eq!(first.content, "nul\u{FFFD}byte");
    let touched = db.get_conversation(&alice(), id).await.unwrap().updated_at;

    assert_eq!(
        db.append_display_message(&alice(), id, message)
            .await
            .unwrap(),
        first
    );
    assert_eq!(
        db.get_conversation(&alice(), id).await.unwrap().updated_at,
        touched
    );
    let next = NewDisplayMessage::text(Role::User, "thanks");
    assert_eq!(
        db.append_display_message(&alice(), id, next)
            .await
            .unwrap()
            .sequence,
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_leave_no_gap_and_no_tie() {
    const WRITERS: usize = 16;
    const EACH: usize = 8;

    let db = Database::new().await;
    let id = db
        .create_conversation(&alice(), NewConversation::new())
        .await
        .unwrap()
        .id;
    let shared = NewDisplayMessage::text(Role::System, "said by all, stored once");
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..WRITERS {
        let (conversations, shared) = (db.conversations.clone(), shared.clone());
        writers.spawn(async move {
            let said = conversations
                .append_display_message(&alice(), id, shared)
                .await
                .unwrap();
            for n in 0..EACH {
                let message = NewDisplayMessage::text(Role::User, format!("message {n}"));
                conversations
                    .append_display_message(&alice(), id, message)
                    .await
                    .unwrap();
            }
            said.sequence
        });
    }
    let said: BTreeSet<_> = writers.join_all().await.into_iter().collect();
    assert_eq!(said.len(), 1, "everyone got the same row");

    let messages = db
        .load_display_messages(&alice(), id, MessagePage::first().limit(1000))
        .await
        .unwrap();
    let sequences: Vec<_> = messages.iter().map(|message| message.sequence).collect();
    let expected: Vec<_> = (0..).take(WRITERS * EACH + 1).collect();
    assert_eq!(sequences, expected);
}

#[tokio::test]
async fn a_tool_call_runs_through_its_life() {
    let db = Database::new().await;
    let id = db
        .create_conversation(&alice(), NewConversation::new())
        .await
        .unwrap()
        .id;
    for _ in 0..2 {
        // A model may repeat a call id: the newest row is the one that is meant.
        let call = NewDisplayMessage::tool_call("call_1", "search")
            .metadata(object(json!({ "name": "search" })));
        db.append_display_message(&alice(), id, call).await.unwrap();
    }
    let waiting = NewDisplayMessage::tool_result("call_1", "waiting")
        .metadata(object(json!({ "is_interrupt": true })));
    db.append_display_message(&alice(), id, waiting)
        .await
        .unwrap();

    let question = object(json!({ "question": "really?" }));
    db.mark_tool_executing(&alice(), id, "call_1")
        .await
        .unwrap();
    db.interrupt_tool_call(&alice(), id, "call_1", question)
        .await
        .unwrap();
    db.record_hitl_decision(&alice(), id, "call_1", HitlDecision::Approved)
        .await
        .unwrap();
    db.mark_tool_executing(&alice(), id, "call_1")
        .await
        .unwrap();
    db.resolve_interrupted_tool_result(&alice(), id, "call_1", "42")
        .await
        .unwrap();
    let result = object(json!({ "result": 42 }));
    let done = db
        .complete_tool_call(&alice(), id, "call_1", result.clone())
        .await
        .unwrap();
    assert_eq!(
        db.complete_tool_call(&alice(), id, "call_1", result)
            .await
            .unwrap(),
        done,
        "repeating is harmless"
    );
    assert!(matches!(
        db.cancel_tool_call(&alice(), id, "call_1").await,
        Err(Error::Invalid(_))
    ));
    assert!(matches!(
        db.fail_tool_call(&alice(), id, "call_2", Map::new()).await,
        Err(Error::NotFound)
    ));
    assert!(matches!(
        db.resolve_interrupted_tool_result(&alice(), id, "call_1", "43")
            .await,
        Err(Error::NotFound)
    ));

    let messages = db
        .load_display_messages(&alice(), id, MessagePage::first())
        .await
        .unwrap();
    let seen: Vec<_> = messages
        .iter()
        .map(|message| (message.status, json!(message.metadata)))
        .collect();
    let metadata = json!({
        "name": "search", "question": "really?", "hitl_decision": "approved", "result": 42
    });
    assert_eq!(
        seen[0],
        (Some(ToolStatus::Pending), json!({ "name": "search" }))
    );
    assert_eq!(seen[1], (Some(ToolStatus::Completed), metadata));
    assert_eq!(
        seen[2],
        (
            None,
            json!({ "is_interrupt": false, "hitl_decision": "approved" })
        )
    );
    assert_eq!(messages[2].content, "42");
}

#[tokio::test]
async fn search_ignores_case_and_takes_wildcards_literally() {
    let db = Database::new().await;
    let id = db
        .create_conversation(&alice(), NewConversation::new())
        .await
        .unwrap()
        .id;
    for text in ["100% sure", "1000 sure", "ÜBER_all", "überXall"] {
        let message = NewDisplayMessage::text(Role::User, text);
        db.append_display_message(&alice(), id, message)
            .await
            .unwrap();
    }
    for (text, limit, expected) in [
        ("SURE", 10, vec!["1000 sure", "100% sure"]),
        ("sure", 1, vec!["1000 sure"]),
        ("0%", 10, vec!["100% sure"]),
        ("über", 10, vec!["überXall", "ÜBER_all"]),
        ("R_A", 10, vec!["ÜBER_all"]),
        ("*", 10, vec![]),
        ("s?re", 10, vec![]),
        ("[su]", 10, vec![]),
        ("absent", 10, vec![]),
    ] {
        let found = db.search_messages(&alice(), text, limit).await.unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|message| message.content.as_str())
            .collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[tokio::test]
async fn housekeeping_deletes_what_is_old_and_all_that_belongs_to_it() {
    let db = Database::new().await;
    let old = db
        .create_conversation(&alice(), NewConversation::new())
        .await
        .unwrap();
    let message = NewDisplayMessage::text(Role::User, "hello");
    db.append_display_message(&alice(), old.id, message)
        .await
        .unwrap();
    let cutoff = db
        .get_conversation(&alice(), old.id)
        .await
        .unwrap()
        .updated_at
        + TimeDelta::microseconds(1);
    tokio::time::sleep(Duration::from_millis(2)).await;
    let new = db
        .create_conversation(&bob(), NewConversation::new())
        .await
        .unwrap();

    assert_eq!(db.delete_conversations_before(cutoff).await.unwrap(), 1);
    assert!(matches!(
        db.get_conversation(&alice(), old.id).await,
        Err(Error::NotFound)
    ));
    assert_eq!(db.search_messages(&alice(), "hello", 10).await.unwrap(), []);
    assert_eq!(db.get_conversation(&bob(), new.id).await.unwrap(), new);
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused() {
    let db = Database::new().await;
    let random = NewConversation {
        id: Uuid::max(),
        ..NewConversation::new()
    };
    assert!(matches!(
        db.create_conversation(&alice(), random).await,
        Err(Error::Invalid(_))
    ));

    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let deep = NewConversation::new().metadata(object(json!({ "deep": deep })));
    assert!(matches!(
        db.create_conversation(&alice(), deep).await,
        Err(Error::Invalid(_))
    ));

    let id = db
        .create_conversation(&alice(), NewConversation::new())
        .await
        .unwrap()
        .id;
    let confused = NewDisplayMessage {
        status: Some(ToolStatus::Failed),
        ..NewDisplayMessage::text(Role::User, "?")
    };
    assert!(matches!(
        db.append_display_message(&alice(), id, confused).await,
        Err(Error::Invalid(_))
    ));
}

#[tokio::test]
async fn a_state_reads_back_equal_and_a_late_writer_is_told() {
    let db = Database::new().await;
    let id = db.create_conversation(&alice(), NewConversation::new()).await.unwrap().id;
    assert!(matches!(db.load_agent_state(&alice(), id).await, Err(Error::NotFound)));
    assert_eq!(db.load_todos(&alice(), id).await.unwrap(), []);

    let mut state = State::new();
    state.add_message(Message::user("nul\0byte"));
    state.put_todo(Todo::new(1, "write"));
    state.put_metadata("exact", json!([u64::MAX, i64::MIN, 0.1, 1e300, -0.0]));
    let first = db.save_agent_state(&alice(), id, &state, Expect::NOTHING).await.unwrap();
    let saved = db.load_agent_state(&alice(), id).await.unwrap();
    assert_eq!((&saved.state, saved.revision), (&state, first));
    assert_eq!(db.load_todos(&alice(), id).await.unwrap(), state.todos);

    state.add_message(Message::assistant("hello"));
    let write_id = Uuid::now_v7();
    for _ in 0..2 {
        let expect = Expect::Revision(first);
        let second = db.save_agent_state_as(&alice(), id, &state, expect, write_id).await.unwrap();
        assert_eq!(second, Revision(first.0 + 1), "repeating the save changes nothing");
    }
    let absurd = Expect::Revision(Revision(i64::MAX));
    let absurd = db.save_agent_state_as(&alice(), id, &state, absurd, write_id).await;
    assert!(matches!(absurd, Err(Error::Conflict { .. })));
    let late = db.save_agent_state(&alice(), id, &State::new(), Expect::Revision(first)).await;
    assert!(matches!(late, Err(Error::Conflict { current }) if current.0 == first.0 + 1));
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
    db.save_agent_state(&alice(), id, &State::new(), Expect::Any).await.unwrap();
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, State::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_writers_with_the_same_revision_one_wins() {
    let db = Database::new().await;
    let id = db.create_conversation(&alice(), NewConversation::new()).await.unwrap().id;
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let conversations = db.conversations.clone();
        writers.spawn(async move {
            conversations.save_agent_state(&alice(), id, &State::new(), Expect::NOTHING).await
        });
    }
    let mut won = 0;
    for outcome in writers.join_all().await {
        match outcome {
            Ok(revision) => {
                assert_eq!(revision, Revision(1));
                won += 1;
            }
            Err(error) => assert!(matches!(error, Error::Conflict { current: Revision(1) }), "{error}"),
        }
    }
    assert_eq!(won, 1);
}

#[tokio::test]
async fn what_cannot_be_read_is_kept_aside_until_it_is_restored() {
    const DAMAGE: &str = r#"
        UPDATE "sagents_agent_states" SET data = $3::json WHERE "team_id" = $1 AND conversation_id = $2"#;

    for damage in ["[]", r#"{"version":2}"#, r#"{"version":2,"state":{"messages":[1]}}"#] {
        let db = Database::new().await;
        let id = db.create_conversation(&alice(), NewConversation::new()).await.unwrap().id;
        let revision = db.save_agent_state(&alice(), id, &State::new(), Expect::Any).await.unwrap();
        sqlx::query(DAMAGE)
.bind(alice().id())
            .bind(id)
            .bind(damage)
            .execute(&db.pool)
            .await
            .unwrap();
        assert!(matches!(
            db.load_agent_state(&alice(), id).await,
            Err(Error::DeserializationFailed(_))
        ));

        let expect = Expect::Unreadable(revision);
        let mut revision = db.save_agent_state(&alice(), id, &State::new(), expect).await.unwrap();
        for _ in 0..10 {
            let expect = Expect::Revision(revision);
            revision = db.save_agent_state(&alice(), id, &State::new(), expect).await.unwrap();
        }
        assert_eq!(db.load_unreadable(&alice(), id).await.unwrap(), damage.as_bytes());

        // Whoever does not look is not allowed to lose it either.
        db.restore_unreadable(&alice(), id).await.unwrap();
        let refused = db.save_agent_state(&alice(), id, &State::new(), Expect::Any).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        db.restore_unreadable(&alice(), id).await.unwrap();
        assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, State::new());
        assert_eq!(db.load_unreadable(&alice(), id).await.unwrap(), damage.as_bytes());
        db.discard_unreadable(&alice(), id).await.unwrap();
        assert!(matches!(db.load_unreadable(&alice(), id).await, Err(Error::NotFound)));
    }
}

#[tokio::test]
async fn what_a_newer_version_wrote_is_not_overwritten() {
    const FUTURE: &str = r#"UPDATE "sagents_agent_states" SET data = '{"version":3,"state":{}}'"#;

    let db = Database::new().await;
    let id = db.create_conversation(&alice(), NewConversation::new()).await.unwrap().id;
    db.save_agent_state(&alice(), id, &State::new(), Expect::Any).await.unwrap();
    sqlx::query(FUTURE).execute(&db.pool).await.unwrap();
    for outcome in [
        db.load_agent_state(&alice(), id).await.map(|_| ()),
        db.save_agent_state(&alice(), id, &State::new(), Expect::Any).await.map(|_| ()),
    ] {
        let future = ReadError::FutureVersion { version: 3 };
        assert!(matches!(outcome, Err(Error::DeserializationFailed(error)) if error == future));
    }
}

#[tokio::test]
async fn a_message_is_stored_as_what_it_shows_and_only_once() {
    let db = Database::new().await;
    let id = db.create_conversation(&alice(), NewConversation::new()).await.unwrap().id;
    let mut message = Message::assistant("Let me look.");
    message.tool_calls = vec![ToolCall::new("call_1", "search", json!({ "query": "sea" }))];
    let message_id = Uuid::now_v7();
    let stored = db.save_message(&alice(), id, message_id, &message).await.unwrap();
    assert_eq!(db.save_message(&alice(), id, message_id, &message).await.unwrap(), stored);
    let seen: Vec<_> = stored
        .iter()
        .map(|item| (item.sequence, item.item, item.content.as_str(), item.status))
        .collect();
    let pending = Some(ToolStatus::Pending);
    assert_eq!(seen, [(0, 0, "Let me look.", None), (1, 1, "search", pending)]);
    assert_eq!(stored[1].metadata["arguments"], json!({ "query": "sea" }));

    // A message that gained an item gets that one, and no other twice.
    message.tool_calls.push(ToolCall::new("call_2", "fetch", json!({})));
    let gained = db.save_message(&alice(), id, message_id, &message).await.unwrap();
    assert_eq!((gained.len(), &gained[..2], gained[2].sequence), (3, &stored[..], 2));

    let answer = Message::user("thanks");
    let next = db.save_message(&alice(), id, Uuid::now_v7(), &answer).await.unwrap();
    assert_eq!(next[0].sequence, 3);
    assert!(db.set_interrupted(&alice(), id, true).await.unwrap().interrupted);
}