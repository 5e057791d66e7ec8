//! How many statements each call sends to a `PostgreSQL` server. This test fails if a change adds one.
//!
//! Reads and appends are one statement. Calls whose rules are in Rust read first, and then write.

use std::cell::RefCell;
use std::time::Duration;

use sagents::sqlx::{self, Row as _};
use sagents::{
    ChangeCursor, Decision, Expect, Expired, Fork, Message, MessagePage, NewDisplayMessage, Point, Role, RunStatus,
    RunUpdate, SearchPage, State, Timestamp, TokenUsage, ToolCall, ToolResult, UsageOf,
};
use serde_json::{Map, json};
use uuid::Uuid;

use super::{alice, connect, conversation, server};
use crate::support::context::Conversations;
use crate::support::fixture::object;

/// Four conversations: three with 600 messages of the agent, and one with 600 display messages.
const OLD: &str = "
    INSERT INTO sagents_conversations (user_id, id, scope, next_sequence, inserted_at, updated_at)
    SELECT 1, gen_random_uuid(), '{}', 600 * (n / 4), now(), now() FROM generate_series(1, 4) n;
    INSERT INTO sagents_agent_messages (user_id, conversation_id, epoch, position, message_id, data)
    SELECT user_id, id, 0, n, gen_random_uuid(), '{}'
    FROM sagents_conversations, generate_series(1, 600) n WHERE next_sequence = 0";

/// The server doesn't count what it refuses, such as a repeated append.
const COUNT: &str = "
    SELECT coalesce(sum(calls), 0)::bigint AS calls FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
    WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_statements%'";

/// The counter has a connection of its own, and its statements aren't counted.
struct Counter {
    pool: sqlx::PgPool,
    /// Calls that sent more or fewer statements than expected.
    wrong: RefCell<Vec<String>>,
}

impl Counter {
    async fn count(&self) -> i64 {
        sqlx::raw_sql(COUNT).fetch_one(&self.pool).await.unwrap().get_unchecked("calls")
    }
}

/// Awaits a call that sends so many statements.
macro_rules! statements {
    ($counter:expr, $expected:literal, $call:expr) => {{
        let before = $counter.count().await;
        let answer = $call.await;
        let sent = $counter.count().await - before;
        if sent != $expected {
            let wrong = format!("{sent} and not {}: {}", $expected, stringify!($call));
            $counter.wrong.borrow_mut().push(wrong);
        }
        answer
    }};
}

#[tokio::test]
async fn no_call_sends_more_statements_than_it_needs() {
    let (_server, url) = server().await;
    let pool = sagents::postgres::connect(&url).await.unwrap();
    let counter = Counter { pool, wrong: RefCell::default() };
    sqlx::raw_sql("CREATE EXTENSION pg_stat_statements").execute(&counter.pool).await.unwrap();
    let store = connect(&url).await;
    let id = conversation(&store, &alice()).await;
    display_messages(&counter, &store, id).await;
    drafts_and_changes(&counter, &store, id).await;
    tool_calls(&counter, &store, id).await;
    runs(&counter, &store, id).await;
    states(&counter, &store, id).await;
    branches(&counter, &store, id).await;
    exports(&counter, &store, id).await;
    housekeeping(&counter, &store).await;
    let wrong = counter.wrong.into_inner();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn display_messages(counter: &Counter, store: &Conversations, id: Uuid) {
    let alice = &alice();
    let text = NewDisplayMessage::text(Role::User, "hello");
    statements!(counter, 1, store.append_display_message(alice, id, text.clone())).unwrap();
    // The key refuses a repeat, which is then read.
    statements!(counter, 1, store.append_display_message(alice, id, text.clone())).unwrap();
    statements!(counter, 1, store.append_display_message(alice, Uuid::now_v7(), text)).unwrap_err();
    // The statement that stores a message counts its tokens.
    let tokens = TokenUsage::new(10, 2);
    let answer = NewDisplayMessage::text(Role::Assistant, "hello").usage("a", tokens);
    statements!(counter, 1, store.append_display_message(alice, id, answer)).unwrap();
    let (answer, answer_id) = (Message::assistant("Counted.").with_usage("b", tokens), Uuid::now_v7());
    statements!(counter, 1, store.save_message(alice, id, answer_id, &answer)).unwrap();
    // A repeat appends nothing, compares the items, and counts the tokens again.
    statements!(counter, 3, store.save_message(alice, id, answer_id, &answer)).unwrap();
    let usage = statements!(counter, 1, store.usage(alice, id)).unwrap();
    assert_eq!(usage.total(), TokenUsage::new(20, 4));
    let all = UsageOf::from(Timestamp::MIN..Timestamp::MAX);
    statements!(counter, 1, store.usage(alice, all)).unwrap();
    statements!(counter, 2, store.usage(alice, Uuid::now_v7())).unwrap_err();
    statements!(counter, 1, store.load_display_messages(alice, id, MessagePage::last())).unwrap();
    // A transaction, which has a time limit.
    statements!(counter, 4, store.search_messages(alice, "LOOK", SearchPage::first())).unwrap();
    statements!(counter, 1, store.set_interrupted(alice, id, true)).unwrap();
}

async fn drafts_and_changes(counter: &Counter, store: &Conversations, id: Uuid) {
    let (alice, message_id) = (&alice(), Uuid::now_v7());
    let draft = Message::assistant("To the");
    statements!(counter, 2, store.save_draft(alice, id, message_id, &draft)).unwrap();
    statements!(counter, 2, store.save_draft(alice, id, message_id, &draft)).unwrap();
    // The whole message isn't appended, because its draft exists. Then it's read, and replaced.
    statements!(counter, 3, store.save_message(alice, id, message_id, &draft)).unwrap();
    // The position of the conversation, and the changes.
    statements!(counter, 2, store.changes(alice, id, ChangeCursor::START, 100)).unwrap();
    let mut watch = store.watch(alice, id, ChangeCursor::START).unwrap();
    statements!(counter, 2, watch.next()).unwrap();
}

async fn tool_calls(counter: &Counter, store: &Conversations, id: Uuid) {
    let (alice, claim, none) = (&alice(), Uuid::now_v7(), Map::new);
    let mut message = Message::assistant("Let me look.");
    message.tool_calls =
        ["call_1", "call_2", "call_3", "call_4"].map(|call| ToolCall::new(call, "x", json!({}))).into();
    let stored = statements!(counter, 1, store.save_message(alice, id, Uuid::now_v7(), &message)).unwrap();
    assert_eq!(stored.len(), 5);
    statements!(counter, 1, store.get_tool_call(alice, id, "call_1")).unwrap();
    statements!(counter, 1, store.get_tool_call(alice, id, "call_9")).unwrap_err();
    statements!(counter, 2, store.claim_tool_call(alice, id, "call_1", claim)).unwrap();
    statements!(counter, 1, store.claim_tool_call(alice, id, "call_1", claim)).unwrap();
    statements!(counter, 2, store.interrupt_tool_call(alice, id, "call_1", none())).unwrap();
    let decision = &Decision::Approve;
    // The call, its result, and the change. A repeat finds the decision.
    statements!(counter, 3, store.decide_tool_call(alice, id, "call_1", decision, claim)).unwrap();
    statements!(counter, 1, store.decide_tool_call(alice, id, "call_1", decision, claim)).unwrap();
    statements!(counter, 2, store.complete_tool_call(alice, id, "call_1", none())).unwrap();
    statements!(counter, 1, store.cancel_tool_call(alice, id, "call_1")).unwrap_err();
    statements!(counter, 2, store.fail_tool_call(alice, id, "call_2", none())).unwrap();
    statements!(counter, 2, store.cancel_tool_call(alice, id, "call_3")).unwrap();
    let waiting = NewDisplayMessage::tool_result("call_4", "waiting");
    let waiting = waiting.metadata(object(json!({ "is_interrupt": true })));
    statements!(counter, 1, store.append_display_message(alice, id, waiting)).unwrap();
    let result = &ToolResult::new("call_4", "search", "42");
    statements!(counter, 2, store.resolve_tool_result(alice, id, result)).unwrap();
    statements!(counter, 1, store.resolve_tool_result(alice, id, result)).unwrap_err();
}

async fn runs(counter: &Counter, store: &Conversations, id: Uuid) {
    let (alice, run, other, lease) = (&alice(), Uuid::now_v7(), Uuid::now_v7(), Duration::from_secs(30));
    statements!(counter, 1, store.begin_run(alice, id, run, "here", lease)).unwrap();
    statements!(counter, 1, store.begin_run(alice, id, other, "here", lease)).unwrap();
    let _ = statements!(counter, 1, store.update_run(alice, id, run, RunUpdate::Renew)).unwrap();
    // Whether the conversation exists.
    let _ = statements!(counter, 2, store.update_run(alice, id, other, RunUpdate::Renew)).unwrap();
    let _ = statements!(counter, 1, store.update_run(alice, id, run, RunUpdate::Wait(json!({})))).unwrap();
    statements!(counter, 1, store.request_cancel(alice, id)).unwrap();
    statements!(counter, 1, store.unfinished_runs(alice)).unwrap();
    let end = RunUpdate::End(RunStatus::Finished);
    let _ = statements!(counter, 1, store.update_run(alice, id, run, end)).unwrap();
    statements!(counter, 1, store.get_run(alice, id)).unwrap();
}

async fn states(counter: &Counter, store: &Conversations, id: Uuid) {
    let (alice, mut state, write_id) = (&alice(), State::new(), Uuid::now_v7());
    state.add_message(Message::user("hello"));
    let first = statements!(counter, 1, store.save_agent_state(alice, id, &state, Expect::NOTHING)).unwrap();
    let expect = Expect::Revision(first).with_write_id(write_id);
    statements!(counter, 1, store.save_agent_state(alice, id, &state, expect)).unwrap();
    // A save that may store fewer messages than before is a transaction that locks the conversation first. A refused save
    // reads why, and `Any` reads the state that it overwrites.
    statements!(counter, 5, store.save_agent_state(alice, id, &state, expect)).unwrap();
    statements!(counter, 5, store.save_agent_state(alice, id, &state, Expect::Revision(first))).unwrap_err();
    let last = statements!(counter, 6, store.save_agent_state(alice, id, &state, Expect::Any)).unwrap();
    statements!(counter, 1, store.load_agent_state(alice, id)).unwrap();
    statements!(counter, 1, store.load_todos(alice, id)).unwrap();
    // Setting a state aside adds two statements.
    statements!(counter, 7, store.save_agent_state(alice, id, &state, Expect::Unreadable(last))).unwrap();
    let aside = statements!(counter, 1, store.list_unreadable_states(alice, id)).unwrap()[0].epoch;
    statements!(counter, 1, store.load_unreadable_state(alice, id, aside)).unwrap();
    statements!(counter, 7, store.restore_unreadable_state(alice, id, aside)).unwrap();
    let aside = statements!(counter, 1, store.list_unreadable_states(alice, id)).unwrap()[0].epoch;
    statements!(counter, 5, store.discard_unreadable_state(alice, id, aside)).unwrap();
}

async fn branches(counter: &Counter, store: &Conversations, id: Uuid) {
    let alice = &alice();
    let rows = store.load_display_messages(alice, id, MessagePage::first()).await.unwrap().items;
    let message = rows[1].message_id;
    // A transaction with reads for the cut in Rust, and a write per table. A repeat ends when it finds the fork.
    let fork = Fork::at(Point::Through(message));
    statements!(counter, 10, store.fork_conversation(alice, id, fork.clone())).unwrap();
    statements!(counter, 7, store.fork_conversation(alice, id, fork)).unwrap();
    statements!(counter, 9, store.rewind_conversation(alice, id, Point::Through(message))).unwrap();
    statements!(counter, 4, store.rewind_conversation(alice, id, Point::Through(message))).unwrap();
}

async fn exports(counter: &Counter, store: &Conversations, id: Uuid) {
    let alice = &alice();
    // A transaction: the conversation, its state, and each table, of which an import has batches.
    let mut export = statements!(counter, 7, store.export_conversation(alice, id)).unwrap();
    export.conversation.id = Uuid::now_v7();
    statements!(counter, 8, store.import_conversation(alice, export.clone())).unwrap();
    statements!(counter, 4, store.import_conversation(alice, export)).unwrap();
    statements!(counter, 1, store.clear_display_messages(alice, id)).unwrap();
}

async fn housekeeping(counter: &Counter, store: &Conversations) {
    let nothing = Expired::UpdatedBefore(Timestamp::MIN);
    // One for each thousand conversations, and one that finds the end.
    statements!(counter, 2, store.delete_conversations(nothing)).unwrap();
    statements!(counter, 2, store.delete_conversations(Expired::ArchivedBefore(Timestamp::MIN))).unwrap();
    store.delete_conversations(Expired::UpdatedBefore(Timestamp::MAX)).await.unwrap();
    // Between them, one for each conversation, so that none locks many rows.
    sqlx::raw_sql(OLD).execute(&counter.pool).await.unwrap();
    let deleted = statements!(counter, 6, store.delete_conversations(Expired::UpdatedBefore(Timestamp::MAX))).unwrap();
    assert_eq!(deleted, 4);
}
