//! A process that runs while the tables change, tables that weren't migrated, and what telemetry sees.

mod support;

use std::error::Error as _;
use std::fmt::{Debug, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sagents::{
    ChangeCursor, ConversationChanges, ConversationOrder, Decision, Expect, Expired, Export, Fork, ListConversations,
    Message, MessagePage, NewDisplayMessage, Owner, Point, Role, RunStatus, RunUpdate, SearchPage, State, Timestamp,
    ToolCall, ToolResult,
};
use serde_json::{Map, json};
use support::context::{Conversations, NewConversation};
use support::fixture::{Fixture, KINDS, object};
use support::{Kind, TABLES, TestDatabase};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use uuid::Uuid;

on_both_databases!(
    a_column_that_is_added_under_a_running_process_breaks_no_call,
    an_index_and_a_table_that_are_added_under_a_running_process_break_no_call,
    processes_of_two_releases_work_on_one_conversation,
    tables_that_were_not_migrated_are_an_error_with_a_hint,
    every_call_is_a_span_with_the_conversation_and_without_content,
);

const SECRET: &str = "a secret of the user's";

/// The tables that a host may add columns to.
const OPEN: [&str; 3] = ["conversations", "agent_states", "display_messages"];

async fn a_column_that_is_added_under_a_running_process_breaks_no_call(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        call_everything(&db, &db.alice).await;
        let before = exported(&db, &db.alice).await;
        for table in OPEN.map(|table| db.table(table)) {
            let columns = ["color TEXT", "shape TEXT NOT NULL DEFAULT 'round'"];
            for column in columns {
                database.execute(&format!("ALTER TABLE {table} ADD COLUMN {column}")).await;
            }
        }
        // Every connection of the pool has prepared the statements before.
        for _ in 0..10 {
            call_everything(&db, &db.alice).await;
        }

        // Both processes import what the other one exports. The column isn't part of it.
        let (id, old, new) = (before.conversation.id, &*db, database.connect(&tables).await);
        for (from, to) in [(old, &new), (&new, old)] {
            let mut file = Vec::new();
            from.export_conversation_to(&db.alice, id, &mut file).await.unwrap();
            from.delete_conversation(&db.alice, id).await.unwrap();
            assert!(to.import_conversation_from(&db.alice, &*file).await.unwrap().created);
            assert_eq!(to.export_conversation(&db.alice, id).await.unwrap(), before);
        }
    }
}

async fn an_index_and_a_table_that_are_added_under_a_running_process_break_no_call(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    call_everything(&db, &db.alice).await;
    // A migration of a later release adds what this one doesn't know.
    let statements = [
        "CREATE INDEX later_index ON sagents_display_messages (user_id, inserted_at)",
        "CREATE TABLE sagents_later (user_id BIGINT NOT NULL, conversation_id BIGINT, note TEXT)",
        "ALTER TABLE sagents_runs ADD COLUMN later_priority INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE sagents_agent_messages ADD COLUMN later_note TEXT",
        "ALTER TABLE sagents_usage ADD COLUMN later_price INTEGER",
    ];
    for statement in statements {
        database.execute(statement).await;
    }
    for _ in 0..10 {
        call_everything(&db, &db.alice).await;
    }
    call_everything(&database.connect(&TABLES).await, &db.alice).await;
}

/// The release before doesn't list a column that the host has added, and goes on while the next one uses it.
async fn processes_of_two_releases_work_on_one_conversation(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    database.execute("ALTER TABLE sagents_conversations ADD COLUMN project TEXT NOT NULL DEFAULT 'none'").await;
    let new = database.connect(&TABLES.conversation_columns(&["project"])).await;
    db.pool.execute("UPDATE sagents_conversations SET project = 'Atlas'").await;
    for (n, store) in [&*db, &new, &*db, &new].into_iter().enumerate() {
        let message = NewDisplayMessage::text(Role::User, n.to_string());
        assert_eq!(store.append_display_message(alice, id, message).await.unwrap().sequence, i64::try_from(n).unwrap());
        let (mut state, expect) = match store.load_agent_state(alice, id).await {
            Ok(saved) => (saved.state, Expect::Revision(saved.revision)),
            Err(_) => (State::new(), Expect::NOTHING),
        };
        state.add_message(Message::user(n.to_string()));
        store.save_agent_state(alice, id, &state, expect).await.unwrap();
        let title = ConversationChanges::default().title(n.to_string());
        store.update_conversation(alice, id, title).await.unwrap();
    }
    let forks = [&*db, &new].map(|store| store.fork_conversation(alice, id, Fork::new()));
    let [by_old, by_new] = forks;
    let (by_old, by_new) = (by_old.await.unwrap().conversation.id, by_new.await.unwrap().conversation.id);
    for (fork, project) in [(by_old, "none"), (by_new, "Atlas")] {
        let literal = db.pool.uuid(fork);
        let stored = db.pool.texts(format!("SELECT project FROM sagents_conversations WHERE id = {literal}")).await;
        assert_eq!(stored, [project]);
        assert_eq!(db.load_agent_state(alice, fork).await.unwrap().state.messages.len(), 4);
    }
}

async fn tables_that_were_not_migrated_are_an_error_with_a_hint(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    for change in [
        "ALTER TABLE sagents_agent_states RENAME COLUMN user_id TO team_id",
        "ALTER TABLE sagents_display_messages RENAME TO display_messages_of_another_prefix",
    ] {
        database.execute(change).await;
        let error = if change.contains("RENAME COLUMN") {
            db.load_agent_state(&db.alice, id).await.unwrap_err()
        } else {
            db.search_messages(&db.alice, "a", SearchPage::first()).await.unwrap_err()
        };
        let hint = error.hint().unwrap_or_default();
        assert!(hint.contains("run") && hint.contains("migrations"), "{error:?} {hint}");
        assert!(!error.to_string().contains("sagents_"), "{error}");
        let source = error.source().unwrap().to_string();
        assert!(source.contains("sagents_display_messages") || source.contains("user_id"), "{source}");
        let checked = db.check().await.unwrap_err();
        assert!(checked.hint().unwrap_or_default().contains("migrations"), "{checked:?}");
    }
}

/// Exports a conversation with a message and a state.
async fn exported(store: &Conversations, owner: &Owner) -> Export {
    let id = store.create_conversation(owner, NewConversation::new()).await.unwrap().id;
    let text = NewDisplayMessage::text(Role::User, "hello");
    store.append_display_message(owner, id, text).await.unwrap();
    let mut state = State::new();
    state.add_message(Message::user("hello"));
    store.save_agent_state(owner, id, &state, Expect::NOTHING).await.unwrap();
    store.export_conversation(owner, id).await.unwrap()
}

/// Makes every call once, in a new conversation that it deletes at the end.
#[allow(clippy::too_many_lines, reason = "one line for each call")]
async fn call_everything(store: &Conversations, owner: &Owner) -> Uuid {
    let new = NewConversation::new().title(SECRET);
    let id = store.create_conversation(owner, new).await.unwrap().id;
    store.get_conversation(owner, id).await.unwrap();
    store.update_conversation(owner, id, ConversationChanges::default().title(SECRET)).await.unwrap();
    for order_by in [ConversationOrder::Updated, ConversationOrder::Created] {
        store.list_conversations(owner, ListConversations { order_by, ..ListConversations::new() }).await.unwrap();
    }
    store.set_interrupted(owner, id, true).await.unwrap();

    let text = NewDisplayMessage::text(Role::User, SECRET);
    for _ in 0..2 {
        store.append_display_message(owner, id, text.clone()).await.unwrap();
    }
    let mut message = Message::assistant(SECRET);
    message.tool_calls = vec![ToolCall::new("call_1", "search", json!({ "q": SECRET }))];
    store.save_message(owner, id, Uuid::now_v7(), &message).await.unwrap();
    store.load_display_messages(owner, id, MessagePage::first()).await.unwrap();
    store.load_display_messages(owner, id, MessagePage::last()).await.unwrap();
    store.touch_display_messages(owner, id, &[0]).await.unwrap();
    store.search_messages(owner, SECRET, SearchPage::first()).await.unwrap();
    store.interrupt_tool_call(owner, id, "call_1", Map::new()).await.unwrap();
    let waiting = NewDisplayMessage::tool_result("call_1", SECRET).metadata(object(json!({ "is_interrupt": true })));
    store.append_display_message(owner, id, waiting).await.unwrap();
    let claim = Uuid::now_v7();
    store.decide_tool_call(owner, id, "call_1", Decision::Approve.by(SECRET), claim).await.unwrap();
    store.claim_tool_call(owner, id, "call_1", claim).await.unwrap();
    let result = ToolResult::new("call_1", "search", SECRET);
    store.resolve_tool_result(owner, id, &result).await.unwrap();
    store.complete_tool_call(owner, id, "call_1", Map::new()).await.unwrap();
    store.get_tool_call(owner, id, "call_1").await.unwrap();

    let message_id = Uuid::now_v7();
    for text in ["a", SECRET] {
        store.save_draft(owner, id, message_id, &Message::assistant(text)).await.unwrap();
    }
    let mut message = Message::assistant(SECRET);
    message.tool_calls = ["call_2", "call_3"].map(|call| ToolCall::new(call, "search", json!({ "q": SECRET }))).into();
    store.save_message(owner, id, message_id, &message).await.unwrap();
    store.interrupt_tool_call(owner, id, "call_2", Map::new()).await.unwrap();
    let reject = Decision::Reject { reason: Some(SECRET.into()) };
    store.decide_tool_call(owner, id, "call_2", reject, claim).await.unwrap();
    store.fail_tool_call(owner, id, "call_3", Map::new()).await.unwrap();
    store.changes(owner, id, ChangeCursor::START, 10).await.unwrap();
    store.watch(owner, id, ChangeCursor::START).unwrap().next().await.unwrap();

    store.begin_run(owner, id, claim, SECRET, Duration::from_secs(30)).await.unwrap();
    store.update_run(owner, id, claim, RunUpdate::Renew).await.unwrap();
    store.update_run(owner, id, claim, RunUpdate::Wait(json!(SECRET))).await.unwrap();
    store.request_cancel(owner, id).await.unwrap();
    store.unfinished_runs(owner).await.unwrap();
    store.update_run(owner, id, claim, RunUpdate::End(RunStatus::Finished)).await.unwrap();
    store.get_run(owner, id).await.unwrap();
    store.claim_abandoned_runs(SECRET, Duration::from_hours(1), 10).await.unwrap();
    let fork = store.fork_conversation(owner, id, Fork::new()).await.unwrap().conversation.id;
    store.delete_conversation(owner, fork).await.unwrap();
    store.rewind_conversation(owner, id, Point::Before(message_id)).await.unwrap();
    store.clear_display_messages(owner, id).await.unwrap();

    let mut state = State::new();
    state.add_message(Message::user(SECRET));
    let saved = store.save_agent_state(owner, id, &state, Expect::NOTHING).await.unwrap();
    store.save_agent_state(owner, id, &state, Expect::Any).await.unwrap();
    store.save_agent_state(owner, id, &state, Expect::Revision(saved)).await.unwrap_err();
    let loaded = store.load_agent_state(owner, id).await.unwrap();
    store.load_todos(owner, id).await.unwrap();
    store.save_agent_state(owner, id, &state, Expect::Unreadable(loaded.revision)).await.unwrap();
    let epoch = store.list_unreadable_states(owner, id).await.unwrap()[0].epoch;
    store.load_unreadable_state(owner, id, epoch).await.unwrap();
    store.restore_unreadable_state(owner, id, epoch).await.unwrap();
    let epoch = store.list_unreadable_states(owner, id).await.unwrap()[0].epoch;
    store.discard_unreadable_state(owner, id, epoch).await.unwrap();
    store.usage(owner, id).await.unwrap();
    let first = "1970-01-01T00:00:00Z".parse::<Timestamp>().unwrap();
    store.usage(owner, first..Timestamp::now()).await.unwrap();
    for expired in [Expired::UpdatedBefore(first), Expired::ArchivedBefore(first)] {
        store.delete_conversations(expired).await.unwrap();
    }
    let export = store.export_conversation(owner, id).await.unwrap();
    let mut file = Vec::new();
    store.export_conversation_to(owner, id, &mut file).await.unwrap();
    store.delete_conversation(owner, id).await.unwrap();
    store.import_conversation_from(owner, &*file).await.unwrap();
    store.delete_conversation(owner, id).await.unwrap();
    store.import_conversation(owner, export).await.unwrap();
    store.delete_conversation(owner, id).await.unwrap();
    id
}

/// The spans that there are; all changes of a tool call's status have one.
const CALLS: &[&str] = &[
    "append_display_message",
    "begin_run",
    "changes",
    "claim_abandoned_runs",
    "clear_display_messages",
    "delete_conversations",
    "discard_unreadable_state",
    "edit_tool_call",
    "export_conversation",
    "export_conversation_to",
    "fork_conversation",
    "get_run",
    "get_tool_call",
    "import_conversation",
    "import_conversation_from",
    "list_unreadable_states",
    "load_agent_state",
    "load_display_messages",
    "load_todos",
    "load_unreadable_state",
    "request_cancel",
    "resolve_tool_result",
    "restore_unreadable_state",
    "rewind_conversation",
    "save_agent_state",
    "save_items",
    "search_messages",
    "set_interrupted",
    "touch_display_messages",
    "unfinished_runs",
    "update_run",
    "usage",
];

/// Calls that are about many conversations, or learn the id as they read.
const ABOUT_MANY: &[&str] = &[
    "claim_abandoned_runs",
    "delete_conversations",
    "import_conversation_from",
    "search_messages",
    "unfinished_runs",
    "usage",
];

async fn every_call_is_a_span_with_the_conversation_and_without_content(database: &TestDatabase) {
    // The subscriber is that of the whole process, and each test finds its spans by the prefix of its tables.
    let tables = match database.kind {
        Kind::Sqlite => sagents::Tables::new(1, "spans_sqlite_", TABLES.owner()),
        Kind::Postgres => sagents::Tables::new(1, "spans_postgres_", TABLES.owner()),
    };
    let _ = tracing::subscriber::set_global_default(Spans);
    tracing::callsite::rebuild_interest_cache();
    let db = Fixture::new(database, tables).await;
    let id = call_everything(&db, &db.alice).await;

    let seen = SPANS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let prefix = format!("sagents.tables={} ", tables.prefix());
    let seen: Vec<_> = seen.into_iter().filter(|(_, fields)| fields.contains(&prefix)).collect();
    for call in CALLS {
        assert!(seen.iter().any(|(name, _)| name == call), "{call} is no span of {seen:?}");
    }
    for (name, fields) in &seen {
        assert!(!fields.contains(SECRET), "{name} {fields}");
        let names_it = fields.contains(&format!("gen_ai.conversation.id={id}"));
        assert!(names_it || ABOUT_MANY.contains(name), "{name} {fields}");
    }
}

/// Names and fields of the spans.
static SPANS: Mutex<Vec<(&'static str, String)>> = Mutex::new(Vec::new());

/// Keeps the library's spans, with their fields as text.
struct Spans;

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == "sagents" && *metadata.level() == Level::DEBUG
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        let mut spans = SPANS.lock().unwrap_or_else(PoisonError::into_inner);
        spans.push((span.metadata().name(), fields.0));
        Id::from_u64(u64::try_from(spans.len()).unwrap())
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.0, "{field}={value} ").unwrap();
    }
}
