//! How many statements each call sends to the server. One is the rule; this test fails where another one is added.

use crate::database;

use database::server::Server;
use matrix::conversations::*;
use matrix::sagents::{Expect, Message, State, TokenUsage, ToolCall, ToolResult};
use matrix::scopes::{Scope, User};
use serde_json::{Map, json};
use sqlx::Row as _;
use uuid::Uuid;

const CREATE: &str =
    "CREATE EXTENSION pg_stat_statements; INSERT INTO users (id, name) VALUES (1, 'a')";
/// Four conversations: three with 600 messages of the agent, and one with 600 display messages.
const OLD: &str = "
    INSERT INTO sagents_conversations (user_id, id, scope, next_sequence, inserted_at, updated_at)
    SELECT 1, gen_random_uuid(), '{}', 600 * (n / 4), now(), now() FROM generate_series(1, 4) n;
    INSERT INTO sagents_agent_messages (user_id, conversation_id, epoch, position, message_id, data)
    SELECT user_id, id, 0, n, gen_random_uuid(), '{}'
    FROM sagents_conversations, generate_series(1, 600) n WHERE next_sequence = 0";
const COUNT: &str = "
    SELECT coalesce(sum(calls), 0)::bigint AS calls FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
    WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_statements%'";

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "one line for each call")]
async fn every_call_is_one_statement() {
    let server = Server::start();
    server.create_database("counted");
    let url = server.url("counted");
    database::migrate(&url, CREATE).await;
    // The counter has a connection of its own, and what it sends is not counted.
    let counter = connect(&url).await.unwrap();
    let layer = &Conversations::new(connect(&url).await.unwrap());
    let count = async || {
        let row = sqlx::raw_sql(COUNT).fetch_one(&counter).await.unwrap();
        row.get_unchecked::<i64, _>("calls")
    };

    macro_rules! statements {
        ($expected:literal, $call:expr) => {{
            let before = count().await;
            let answer = $call.await;
            let made = count().await - before;
            assert_eq!(made, $expected, "{}", stringify!($call));
            answer
        }};
    }

    let scope = &Scope {
        user: User {
            id: 1,
            name: "a".into(),
        },
    };
    let new = NewConversation::new().title("Plans");
    let id = statements!(1, layer.create_conversation(scope, new.clone()))
        .unwrap()
        .id;
    statements!(1, layer.create_conversation(scope, new)).unwrap();
    statements!(1, layer.get_conversation(scope, id)).unwrap();
    statements!(1, layer.get_conversation(scope, Uuid::now_v7())).unwrap_err();
    statements!(
        1,
        layer.update_conversation(scope, id, ConversationChanges::default())
    )
    .unwrap();
    statements!(1, layer.set_interrupted(scope, id, true)).unwrap();
    for order_by in [
        ConversationOrder::UpdatedDesc,
        ConversationOrder::UpdatedAsc,
        ConversationOrder::CreatedDesc,
        ConversationOrder::CreatedAsc,
    ] {
        for archived in [Archived::Exclude, Archived::Include, Archived::Only] {
            let list = ListConversations::new()
                .order_by(order_by)
                .archived(archived);
            statements!(1, layer.list_conversations(scope, list)).unwrap();
        }
    }
    statements!(1, layer.archive_conversation(scope, id)).unwrap();
    statements!(1, layer.unarchive_conversation(scope, id)).unwrap();
    statements!(1, layer.archive_conversation(scope, Uuid::now_v7())).unwrap_err();

    let text = NewDisplayMessage::text(Role::User, "hello");
    statements!(1, layer.append_display_message(scope, id, text.clone())).unwrap();
    // A repeat is refused by the key, and then read; the server does not count what it refuses.
    statements!(1, layer.append_display_message(scope, id, text.clone())).unwrap();
    statements!(1, layer.append_display_message(scope, Uuid::now_v7(), text)).unwrap_err();
    let mut message = Message::assistant("Let me look.");
    message.tool_calls = vec![
        ToolCall::new("call_1", "search", json!({})),
        ToolCall::new("call_2", "fetch", json!({})),
    ];
    // What a message cost is counted by the statement that stores it.
    let tokens = TokenUsage::new(10, 2);
    let answer = NewDisplayMessage::text(Role::Assistant, "hello").usage("a", tokens);
    statements!(1, layer.append_display_message(scope, id, answer.clone())).unwrap();
    statements!(1, layer.append_display_message(scope, id, answer)).unwrap();
    let answer = Message::assistant("Counted.").with_usage("b", tokens);
    let answer_id = Uuid::now_v7();
    statements!(1, layer.save_message(scope, id, answer_id, &answer)).unwrap();
    // A repeat appends nothing, and then compares the items.
    statements!(2, layer.save_message(scope, id, answer_id, &answer)).unwrap();
    let usage = statements!(1, layer.usage(scope, id)).unwrap();
    assert_eq!(usage.total(), TokenUsage::new(20, 4));
    let (from, to) = (chrono::DateTime::UNIX_EPOCH, chrono::Utc::now());
    statements!(1, layer.usage_between(scope, from, to)).unwrap();
    statements!(1, layer.usage(scope, Uuid::now_v7())).unwrap_err();

    let message_id = Uuid::now_v7();
    let stored = statements!(1, layer.save_message(scope, id, message_id, &message)).unwrap();
    assert_eq!(stored.len(), 3);
    message
        .tool_calls
        .push(ToolCall::new("call_3", "fetch", json!({})));
    statements!(2, layer.save_message(scope, id, message_id, &message)).unwrap();
    statements!(
        1,
        layer.load_display_messages(scope, id, MessagePage::last())
    )
    .unwrap();
    // In a transaction, for which a limit in time is set.
    statements!(4, layer.search_messages(scope, "LOOK", SearchPage::first())).unwrap();

    let none = Map::new;
    statements!(1, layer.get_tool_call(scope, id, "call_1")).unwrap();
    statements!(1, layer.get_tool_call(scope, id, "call_9")).unwrap_err();
    statements!(1, layer.mark_tool_executing(scope, id, "call_1")).unwrap();
    statements!(1, layer.interrupt_tool_call(scope, id, "call_1", none())).unwrap();
    statements!(
        1,
        layer.record_hitl_decision(scope, id, "call_1", HitlDecision::Approved)
    )
    .unwrap();
    statements!(1, layer.complete_tool_call(scope, id, "call_1", none())).unwrap();
    statements!(1, layer.cancel_tool_call(scope, id, "call_1")).unwrap_err();
    statements!(1, layer.fail_tool_call(scope, id, "call_2", none())).unwrap();
    statements!(1, layer.cancel_tool_call(scope, id, "call_3")).unwrap();
    statements!(1, layer.cancel_tool_call(scope, id, "call_4")).unwrap_err();
    let metadata = Map::from_iter([("is_interrupt".to_owned(), json!(true))]);
    let waiting = NewDisplayMessage::tool_result("call_1", "waiting").metadata(metadata);
    statements!(1, layer.append_display_message(scope, id, waiting)).unwrap();
    let result = &ToolResult::new("call_1", "search", "42");
    statements!(1, layer.resolve_interrupted_tool_result(scope, id, result)).unwrap();
    statements!(1, layer.resolve_interrupted_tool_result(scope, id, result)).unwrap_err();

    // The whole message is not appended, because its draft exists, and then replaces it.
    let draft_id = Uuid::now_v7();
    let draft = Message::assistant("To the");
    statements!(1, layer.save_draft(scope, id, draft_id, &draft)).unwrap();
    statements!(1, layer.save_draft(scope, id, draft_id, &draft)).unwrap();
    statements!(2, layer.save_message(scope, id, draft_id, &draft)).unwrap();
    statements!(1, layer.unsettled_messages(scope, id)).unwrap();
    let settled = [(draft_id, Delivery::Stored)];
    statements!(1, layer.settle_messages(scope, id, &settled)).unwrap();
    statements!(1, layer.changes(scope, id, ChangeCursor::START, 100)).unwrap();
    // Where the conversation is, and what changed.
    let mut watch = layer.watch(scope, id, ChangeCursor::START).unwrap();
    statements!(2, watch.next()).unwrap();
    let mut calls = Message::assistant("");
    calls.tool_calls = vec![
        ToolCall::new("call_5", "search", json!({})),
        ToolCall::new("call_6", "search", json!({})),
    ];
    statements!(1, layer.save_message(scope, id, Uuid::now_v7(), &calls)).unwrap();
    let claim = Uuid::now_v7();
    statements!(1, layer.claim_tool_call(scope, id, "call_5", claim)).unwrap();
    statements!(1, layer.claim_tool_call(scope, id, "call_5", claim)).unwrap();
    statements!(1, layer.interrupt_tool_call(scope, id, "call_6", none())).unwrap();
    for _ in 0..2 {
        let decision = &Decision::Approve;
        statements!(
            1,
            layer.decide_tool_call(scope, id, "call_6", decision, claim)
        )
        .unwrap();
    }

    let (run_id, lease) = (Uuid::now_v7(), std::time::Duration::from_secs(30));
    statements!(1, layer.begin_run(scope, id, run_id, "here", lease)).unwrap();
    statements!(1, layer.begin_run(scope, id, claim, "here", lease)).unwrap();
    statements!(1, layer.renew_run(scope, id, run_id)).unwrap();
    // Whether the conversation exists.
    statements!(2, layer.renew_run(scope, id, claim)).unwrap();
    statements!(1, layer.wait_run(scope, id, run_id, &json!({}))).unwrap();
    statements!(1, layer.request_cancel(scope, id)).unwrap();
    statements!(1, layer.unfinished_runs(scope)).unwrap();
    statements!(1, layer.end_run(scope, id, run_id, RunStatus::Finished)).unwrap();
    statements!(1, layer.get_run(scope, id)).unwrap();
    // Where the cut is, and the change. A repeat looks whether it was made.
    let fork = Fork::at(Point::Through(draft_id));
    statements!(2, layer.fork_conversation(scope, id, fork.clone())).unwrap();
    let forked = statements!(3, layer.fork_conversation(scope, id, fork)).unwrap();
    let forked = forked.conversation.id;
    statements!(1, layer.delete_conversation(scope, forked)).unwrap();
    statements!(
        2,
        layer.rewind_conversation(scope, id, Point::Through(draft_id))
    )
    .unwrap();
    statements!(
        1,
        layer.rewind_conversation(scope, id, Point::Through(draft_id))
    )
    .unwrap();
    statements!(1, layer.clear_display_messages(scope, id)).unwrap();

    let (mut state, write_id) = (State::new(), Uuid::now_v7());
    state.add_message(answer);
    let first = statements!(
        1,
        layer.save_agent_state(scope, id, &state, Expect::NOTHING)
    )
    .unwrap();
    let expect = Expect::Revision(first);
    statements!(
        1,
        layer.save_agent_state_with_id(scope, id, &state, expect, write_id)
    )
    .unwrap();
    // Why a save was refused takes another one, and so does looking at what `Any` overwrites. One that
    // writes all rows looks whether those that are there belong to what the first version set aside.
    statements!(
        3,
        layer.save_agent_state_with_id(scope, id, &state, expect, write_id)
    )
    .unwrap();
    statements!(3, layer.save_agent_state(scope, id, &state, expect)).unwrap_err();
    let last = statements!(3, layer.save_agent_state(scope, id, &state, Expect::Any)).unwrap();
    statements!(1, layer.load_agent_state(scope, id)).unwrap();
    statements!(1, layer.load_todos(scope, id)).unwrap();
    // A transaction: the conversation, its state, and each table, of which an import has batches.
    let mut export = statements!(7, layer.export_conversation(scope, id)).unwrap();
    export.conversation.id = Uuid::now_v7();
    statements!(7, layer.import_conversation(scope, export.clone())).unwrap();
    let copy = statements!(4, layer.import_conversation(scope, export)).unwrap();
    statements!(1, layer.delete_conversation(scope, copy.conversation.id)).unwrap();
    // What sets aside, restores or discards is a transaction that locks the conversation first.
    statements!(
        7,
        layer.save_agent_state(scope, id, &state, Expect::Unreadable(last))
    )
    .unwrap();
    let aside = statements!(1, layer.list_unreadable(scope, id)).unwrap()[0].epoch;
    statements!(1, layer.load_unreadable(scope, id, aside)).unwrap();
    statements!(6, layer.restore_unreadable(scope, id, aside)).unwrap();
    let aside = statements!(1, layer.list_unreadable(scope, id)).unwrap()[0].epoch;
    statements!(5, layer.discard_unreadable(scope, id, aside)).unwrap();

    // One for each thousand conversations, and one that finds the end.
    statements!(
        2,
        layer.delete_conversations_before(chrono::DateTime::UNIX_EPOCH)
    )
    .unwrap();
    statements!(
        2,
        layer.delete_archived_before(chrono::DateTime::UNIX_EPOCH)
    )
    .unwrap();
    statements!(1, layer.delete_conversation(scope, id)).unwrap();
    statements!(1, layer.delete_conversation(scope, id)).unwrap_err();

    // Between them, one for each thousand rows that are deleted: here for two conversations each.
    sqlx::raw_sql(OLD).execute(&counter).await.unwrap();
    let all = chrono::DateTime::<chrono::Utc>::MAX_UTC;
    let deleted = statements!(4, layer.delete_conversations_before(all)).unwrap();
    assert_eq!(deleted, 4);
}
