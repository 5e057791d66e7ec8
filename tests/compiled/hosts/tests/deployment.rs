//! A process that runs while the tables change, tables that were not migrated, and what telemetry sees.

use std::error::Error as _;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use matrix::conversations::*;
use matrix::sagents::{Expect, Message, State, ToolCall, ToolResult, timestamp};
use matrix::scopes::{Scope, User};
use serde_json::{Map, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use uuid::Uuid;

use crate::database::Database;
use crate::storage::alone;

const SECRET: &str = "a secret of the user's";

#[tokio::test]
async fn a_column_that_another_process_adds_breaks_no_call() {
    let database = Database::migrated("INSERT INTO users (id, name) VALUES (1, 'a')").await;
    let layer = Conversations::new(connect(&database.url()).await.unwrap());
    call_everything(&layer).await.unwrap();
    let before = exported(&layer).await;

    let other = connect(&database.url()).await.unwrap();
    for table in ["conversations", "agent_states", "display_messages"] {
        let add =
            format!("ALTER TABLE sagents_{table} ADD COLUMN color TEXT NOT NULL DEFAULT 'red'");
        sqlx::raw_sql(sqlx::AssertSqlSafe(add))
            .execute(&other)
            .await
            .unwrap();
    }
    // Every connection of the pool has prepared the statements before.
    for _ in 0..10 {
        call_everything(&layer).await.unwrap();
    }

    // Both processes import what the other one exports. The column is not part of it.
    let (id, scope, new) = (before.conversation.id, scope(), Conversations::new(other));
    for (from, to) in [(&layer, &new), (&new, &layer)] {
        let mut file = Vec::new();
        let export = from.export_conversation_to(&scope, id, &mut file).await;
        export.unwrap();
        from.delete_conversation(&scope, id).await.unwrap();
        let imported = to.import_conversation_from(&scope, &*file).await.unwrap();
        assert!(imported.created);
        let after = to.export_conversation(&scope, id).await.unwrap();
        assert_eq!(after, before);
    }
}

/// Exports a conversation with a message and a state.
async fn exported(layer: &Conversations) -> Export {
    let (scope, new) = (&scope(), NewConversation::new());
    let id = layer.create_conversation(scope, new).await.unwrap().id;
    let text = NewDisplayMessage::text(Role::User, "hello");
    let appended = layer.append_display_message(scope, id, text).await;
    appended.unwrap();
    let mut state = State::new();
    state.add_message(Message::user("hello"));
    let saved = layer.save_agent_state(scope, id, &state, Expect::NOTHING);
    saved.await.unwrap();
    layer.export_conversation(scope, id).await.unwrap()
}

#[tokio::test]
async fn tables_that_were_not_migrated_are_an_error_with_a_hint() {
    for change in [
        "ALTER TABLE sagents_conversations RENAME COLUMN user_id TO team_id",
        "DROP TABLE sagents_display_messages",
    ] {
        let database = Database::migrated("INSERT INTO users (id, name) VALUES (1, 'a')").await;
        let pool = connect(&database.url()).await.unwrap();
        sqlx::raw_sql(change).execute(&pool).await.unwrap();
        let layer = Conversations::new(pool);
        let error = if change.starts_with("ALTER") {
            let list = ListConversations::new();
            layer.list_conversations(&scope(), list).await.unwrap_err()
        } else {
            let page = SearchPage::first();
            let found = layer.search_messages(&scope(), "a", page).await;
            found.unwrap_err()
        };
        assert_eq!(error.to_string(), "database error");
        let hint = error.hint().unwrap();
        assert!(hint.starts_with("run the migrations"), "{hint}");
        let source = error.source().unwrap().to_string();
        assert!(
            source.contains("sagents_display_messages") || source.contains("user_id"),
            "{source}"
        );
    }
}

/// While another test makes a call for the first time, tracing does not notice a new subscriber.
#[tokio::test]
async fn every_call_is_a_span_with_the_conversation_and_without_content() {
    if !alone(
        module_path!(),
        "every_call_is_a_span_with_the_conversation_and_without_content",
    ) {
        return;
    }
    let database = Database::migrated("INSERT INTO users (id, name) VALUES (1, 'a')").await;
    let layer = Conversations::new(connect(&database.url()).await.unwrap());
    let spans = Spans::default();
    let guard = tracing::subscriber::set_default(spans.clone());
    let id = call_everything(&layer).await.unwrap();
    drop(guard);

    let seen = spans.0.lock().unwrap();
    let names: Vec<_> = seen.iter().map(|(name, _)| *name).collect();
    for call in CALLS {
        assert!(names.contains(call), "{call} is no span of {names:?}");
    }
    for (name, fields) in seen.iter() {
        assert!(!fields.contains(SECRET), "{name} {fields}");
        let is_about_many = [
            "list_conversations",
            "search_messages",
            "unfinished_runs",
            "usage_between",
            "import_conversation_from",
            "delete_conversations_before",
            "delete_archived_before",
        ]
        .contains(name);
        assert!(
            is_about_many || fields.contains(&id.to_string()),
            "{name} {fields}"
        );
    }
}

/// The spans that there should be; tool calls have one for all changes of a status.
const CALLS: &[&str] = &[
    "create_conversation",
    "get_conversation",
    "update_conversation",
    "list_conversations",
    "delete_conversation",
    "archive_conversation",
    "unarchive_conversation",
    "fork_conversation",
    "rewind_conversation",
    "set_interrupted",
    "save_agent_state_with_id",
    "load_agent_state",
    "load_todos",
    "list_unreadable",
    "load_unreadable",
    "restore_unreadable",
    "discard_unreadable",
    "append_display_message",
    "save_items",
    "unsettled_messages",
    "settle_messages",
    "changes",
    "begin_run",
    "renew_run",
    "wait_run",
    "end_run",
    "request_cancel",
    "get_run",
    "unfinished_runs",
    "load_display_messages",
    "clear_display_messages",
    "search_messages",
    "edit_tool_call",
    "resolve_interrupted_tool_result",
    "usage",
    "usage_between",
    "export_conversation",
    "export_conversation_to",
    "import_conversation",
    "import_conversation_from",
    "delete_conversations_before",
    "delete_archived_before",
];

/// Makes every call once, in a new conversation that it deletes at the end.
#[allow(clippy::too_many_lines, reason = "one line for each call")]
async fn call_everything(layer: &Conversations) -> Result<Uuid> {
    let scope = &scope();
    let new = NewConversation::new().title(SECRET);
    let id = layer.create_conversation(scope, new).await?.id;
    layer.get_conversation(scope, id).await?;
    let changes = ConversationChanges::default().title(SECRET);
    layer.update_conversation(scope, id, changes).await?;
    for order_by in [
        ConversationOrder::UpdatedDesc,
        ConversationOrder::UpdatedAsc,
        ConversationOrder::CreatedDesc,
        ConversationOrder::CreatedAsc,
    ] {
        let list = ListConversations::new().order_by(order_by);
        layer.list_conversations(scope, list).await?;
    }
    layer.set_interrupted(scope, id, true).await?;

    let text = NewDisplayMessage::text(Role::User, SECRET);
    for _ in 0..2 {
        layer
            .append_display_message(scope, id, text.clone())
            .await?;
    }
    let mut message = Message::assistant(SECRET);
    message.tool_calls = vec![ToolCall::new("call_1", "search", json!({ "q": SECRET }))];
    layer
        .save_message(scope, id, Uuid::now_v7(), &message)
        .await?;
    layer
        .load_display_messages(scope, id, MessagePage::first())
        .await?;
    layer
        .load_display_messages(scope, id, MessagePage::last())
        .await?;
    layer
        .search_messages(scope, SECRET, SearchPage::first())
        .await?;
    layer
        .interrupt_tool_call(scope, id, "call_1", Map::new())
        .await?;
    layer
        .record_hitl_decision(scope, id, "call_1", HitlDecision::Approved)
        .await?;
    layer.mark_tool_executing(scope, id, "call_1").await?;
    let is_interrupt = Map::from_iter([("is_interrupt".to_owned(), json!(true))]);
    let waiting = NewDisplayMessage::tool_result("call_1", SECRET).metadata(is_interrupt);
    layer.append_display_message(scope, id, waiting).await?;
    let result = ToolResult::new("call_1", "search", SECRET);
    layer
        .resolve_interrupted_tool_result(scope, id, &result)
        .await?;
    layer
        .complete_tool_call(scope, id, "call_1", Map::new())
        .await?;

    let message_id = Uuid::now_v7();
    for text in ["a", SECRET] {
        let draft = Message::assistant(text);
        layer.save_draft(scope, id, message_id, &draft).await?;
    }
    layer.unsettled_messages(scope, id).await?;
    let settled = [(message_id, Delivery::Interrupted)];
    layer.settle_messages(scope, id, &settled).await?;
    let mut message = Message::assistant(SECRET);
    message.tool_calls = vec![ToolCall::new("call_2", "search", json!({ "q": SECRET }))];
    layer.save_message(scope, id, message_id, &message).await?;
    let claim = Uuid::now_v7();
    layer.claim_tool_call(scope, id, "call_2", claim).await?;
    layer
        .interrupt_tool_call(scope, id, "call_2", Map::new())
        .await?;
    let decision = Decision::Reject {
        reason: Some(SECRET.into()),
    };
    layer
        .decide_tool_call(scope, id, "call_2", &decision, claim)
        .await?;
    layer.changes(scope, id, ChangeCursor::START, 10).await?;
    let mut watch = layer.watch(scope, id, ChangeCursor::START)?;
    watch.next().await?;
    let lease = std::time::Duration::from_secs(30);
    layer.begin_run(scope, id, claim, SECRET, lease).await?;
    layer.renew_run(scope, id, claim).await?;
    layer.wait_run(scope, id, claim, &json!(SECRET)).await?;
    layer.request_cancel(scope, id).await?;
    layer.unfinished_runs(scope).await?;
    layer.end_run(scope, id, claim, RunStatus::Finished).await?;
    layer.get_run(scope, id).await?;
    layer.fork_conversation(scope, id, Fork::new()).await?;
    layer
        .rewind_conversation(scope, id, Point::Before(message_id))
        .await?;
    layer.clear_display_messages(scope, id).await?;

    let mut state = State::new();
    state.add_message(Message::user(SECRET));
    let saved = layer
        .save_agent_state(scope, id, &state, Expect::NOTHING)
        .await?;
    layer
        .save_agent_state(scope, id, &state, Expect::Any)
        .await?;
    assert!(
        layer
            .save_agent_state(scope, id, &state, Expect::Revision(saved))
            .await
            .is_err()
    );
    let loaded = layer.load_agent_state(scope, id).await?;
    layer.load_todos(scope, id).await?;
    let expect = Expect::Unreadable(loaded.revision);
    layer.save_agent_state(scope, id, &state, expect).await?;
    let aside = layer.list_unreadable(scope, id).await?[0].epoch;
    layer.load_unreadable(scope, id, aside).await?;
    layer.restore_unreadable(scope, id, aside).await?;
    let aside = layer.list_unreadable(scope, id).await?[0].epoch;
    layer.discard_unreadable(scope, id, aside).await?;
    layer.usage(scope, id).await?;
    layer
        .usage_between(scope, chrono::DateTime::UNIX_EPOCH, timestamp::now())
        .await?;
    layer.archive_conversation(scope, id).await?;
    layer.unarchive_conversation(scope, id).await?;
    layer
        .delete_conversations_before(chrono::DateTime::UNIX_EPOCH)
        .await?;
    layer
        .delete_archived_before(chrono::DateTime::UNIX_EPOCH)
        .await?;
    let export = layer.export_conversation(scope, id).await?;
    let mut file = Vec::new();
    layer.export_conversation_to(scope, id, &mut file).await?;
    layer.delete_conversation(scope, id).await?;
    layer.import_conversation_from(scope, &*file).await?;
    layer.delete_conversation(scope, id).await?;
    layer.import_conversation(scope, export).await?;
    layer.delete_conversation(scope, id).await?;
    Ok(id)
}

fn scope() -> Scope {
    Scope {
        user: User {
            id: 1,
            name: "a".into(),
        },
    }
}

/// The spans of the generated code, with their fields as text.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<(&'static str, String)>>>);

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
            && metadata.target().starts_with("matrix::conversations")
            && *metadata.level() == Level::DEBUG
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        let mut spans = self.0.lock().unwrap();
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
}
