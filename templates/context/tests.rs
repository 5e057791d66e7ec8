{%- if has_owner %}
//! Tests of this layer in this host: every call, ordering, idempotence, concurrency and the isolation
//! of owners.
{%- else %}
//! Tests of this layer in this host: every call, ordering, idempotence and concurrency.
{%- endif %}

#![allow(unused_results, clippy::unwrap_used, reason = "a test panics where it fails")]

mod branches;
mod database;
mod exports;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value, json};

use self::database::{DAMAGED, Database, alice{% if has_owner %}, bob{% endif %}{% if group.is_some() %}, group, other_group{% endif %}};
use super::*;
use crate::sagents::{
    Content, ContentPart, Expect, Message, State, Todo, ToolCall, ToolResult, serializer,
};

/// A state with messages.
fn state_of(messages: &[&str]) -> State {
    let mut state = State::new();
    state.add_messages(messages.iter().map(|&text| Message::user(text)));
    state
}

/// The place of the damage that a call has found.
fn damaged_place<T>(result: Result<T>) -> String {
    match result {
        Err(Error::DeserializationFailed(ReadError::Damaged { path, .. })) => path,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("no error"),
    }
}

macro_rules! assert_not_found {
    ($call:expr) => {
        assert!(matches!($call.await, Err(Error::NotFound)), "{}", stringify!($call))
    };
}

macro_rules! assert_invalid {
    ($call:expr) => {
        assert!(matches!($call.await, Err(Error::Invalid(_))), "{}", stringify!($call))
    };
}

mod usage;

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
    assert_eq!(created.scope, alice().to_json());
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
    assert_not_found!(db.get_conversation(&alice(), created.id));
    assert_not_found!(db.delete_conversation(&alice(), created.id));
}
{%- if has_owner %}

#[tokio::test]
async fn what_belongs_to_somebody_else_is_not_found() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let call = NewDisplayMessage::tool_call("call_1", "search");
    db.append_display_message(&alice(), id, call).await.unwrap();
    let before = db.get_conversation(&alice(), id).await.unwrap();

    let message = NewDisplayMessage::text(Role::User, "hello");
    let page = MessagePage::first();
    assert_not_found!(db.get_conversation(&bob(), id));
    assert_not_found!(db.update_conversation(&bob(), id, ConversationChanges::default()));
    assert_not_found!(db.delete_conversation(&bob(), id));
    assert_not_found!(db.append_display_message(&bob(), id, message));
    assert_not_found!(db.load_display_messages(&bob(), id, page));
    assert_not_found!(db.clear_display_messages(&bob(), id));
    assert_not_found!(db.mark_tool_executing(&bob(), id, "call_1"));
    let some = Uuid::now_v7();
    assert_not_found!(db.claim_tool_call(&bob(), id, "call_1", some));
    assert_not_found!(db.decide_tool_call(&bob(), id, "call_1", &Decision::Approve, some));
    assert_not_found!(db.save_draft(&bob(), id, some, &Message::assistant("hello")));
    assert_not_found!(db.changes(&bob(), id, ChangeCursor::START, 10));
    assert_not_found!(db.fork_conversation(&bob(), id, Fork::new()));
    assert_not_found!(db.rewind_conversation(&bob(), id, Point::End));
    assert_not_found!(db.begin_run(&bob(), id, some, "here", Duration::ZERO));
    assert_not_found!(db.get_run(&bob(), id));
    assert_not_found!(db.save_agent_state(&bob(), id, &State::new(), Expect::Any));
    assert_not_found!(db.load_agent_state(&bob(), id));
    assert_not_found!(db.load_todos(&bob(), id));
    assert_not_found!(db.list_unreadable(&bob(), id));
    assert_not_found!(db.restore_unreadable(&bob(), id, 0));
    assert_not_found!(db.set_interrupted(&bob(), id, true));
    assert_not_found!(db.save_message(&bob(), id, Uuid::now_v7(), &Message::user("hello")));
    assert_not_found!(db.record_hitl_decision(&bob(), id, "call_1", HitlDecision::Approved));
    let listed = db.list_conversations(&bob(), ListConversations::default()).await.unwrap();
    assert_eq!(listed.items, []);
    let found = db.search_messages(&bob(), "search", SearchPage::first()).await.unwrap();
    assert_eq!(found.items, []);

    assert_eq!(db.get_conversation(&alice(), id).await.unwrap(), before);
    let messages = db.load_display_messages(&alice(), id, page).await.unwrap();
    assert_eq!(messages.items.len(), 1);
}

#[tokio::test]
async fn the_tables_refuse_a_row_that_crosses_owners() {
    let db = Database::new().await;
    let id = db.conversation().await;
    assert!(db.insert_state(&bob(), id).await.is_err());
    db.insert_state(&alice(), id).await.unwrap();
}
{%- if group.is_some() %}

#[tokio::test]
async fn a_group_reads_what_its_members_have() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let new = NewConversation::new();
    let apart = db.create_conversation(&bob(), new).await.unwrap().id;
    let message = NewDisplayMessage::text(Role::User, "hello");
    db.append_display_message(&alice(), id, message).await.unwrap();
    let mut state = state_of(&["hello"]);
    state.set_todos(vec![Todo::new("1", "Write")]);
    db.save_agent_state(&alice(), id, &state, Expect::Any).await.unwrap();
    db.replace_state(DAMAGED[1]).await;
    db.save_agent_state(&alice(), id, &state, Expect::Any).await.unwrap();
    db.join(&group(), &alice()).await;

    let (page, found) = (MessagePage::first(), SearchPage::first());
    let listed = db.list_conversations(&group(), ListConversations::default()).await.unwrap();
    assert_eq!(listed.items, [db.get_conversation(&alice(), id).await.unwrap()]);
    assert_eq!(db.get_conversation(&group(), id).await.unwrap(), listed.items[0]);
    let messages = db.load_display_messages(&group(), id, page).await.unwrap();
    assert_eq!(messages, db.load_display_messages(&alice(), id, page).await.unwrap());
    assert_eq!(db.search_messages(&group(), "HELLO", found).await.unwrap(), messages);
    assert_eq!(db.load_agent_state(&group(), id).await.unwrap().state, state);
    assert_eq!(db.load_todos(&group(), id).await.unwrap(), state.todos);
    let aside = db.list_unreadable(&group(), id).await.unwrap();
    assert_eq!(aside, db.list_unreadable(&alice(), id).await.unwrap());
    let data = db.load_unreadable(&group(), id, aside[0].epoch).await.unwrap();
    assert_eq!(data, db.load_unreadable(&alice(), id, aside[0].epoch).await.unwrap());

    db.join(&other_group(), &bob()).await;
    assert_not_found!(db.get_conversation(&group(), apart));
    assert_eq!(db.get_conversation(&other_group(), apart).await.unwrap().id, apart);
    // A caller who leaves a group is out with the next call.
    db.leave(&group(), &alice()).await;
    for outsider in [group(), other_group()] {
        let listed = db.list_conversations(&outsider, ListConversations::default()).await.unwrap();
        assert!(listed.items.iter().all(|conversation| conversation.id == apart));
        assert_not_found!(db.get_conversation(&outsider, id));
        assert_not_found!(db.load_display_messages(&outsider, id, page));
        assert_eq!(db.search_messages(&outsider, "hello", found).await.unwrap().items, []);
        assert_not_found!(db.load_agent_state(&outsider, id));
        assert_not_found!(db.load_todos(&outsider, id));
        assert_not_found!(db.list_unreadable(&outsider, id));
        assert_not_found!(db.load_unreadable(&outsider, id, aside[0].epoch));
    }
}

#[tokio::test]
async fn a_group_follows_what_its_members_do() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let message = NewDisplayMessage::text(Role::User, "hello");
    let message = db.append_display_message(&alice(), id, message).await.unwrap();
    db.begin_run(&alice(), id, Uuid::now_v7(), "here", Duration::ZERO).await.unwrap();
    db.join(&group(), &alice()).await;
    let changes = db.changes(&group(), id, ChangeCursor::START, 10).await.unwrap();
    assert_eq!(changes, db.changes(&alice(), id, ChangeCursor::START, 10).await.unwrap());
    let mut watch = db.watch(&group(), id, ChangeCursor::START).unwrap();
    assert_eq!(watch.next().await.unwrap().items, [message]);
    let run = db.get_run(&group(), id).await.unwrap();
    assert_eq!(run, db.get_run(&alice(), id).await.unwrap());
    assert_eq!(db.unfinished_runs(&group()).await.unwrap(), Vec::from_iter(run));

    db.leave(&group(), &alice()).await;
    assert_not_found!(db.changes(&group(), id, ChangeCursor::START, 10));
    assert_not_found!(watch.next());
    assert_not_found!(db.get_run(&group(), id));
    assert_eq!(db.unfinished_runs(&group()).await.unwrap(), []);
}

#[tokio::test]
async fn a_group_writes_nothing() {
    macro_rules! assert_no_owner {
        ($call:expr) => {
            assert!(matches!($call.await, Err(Error::NoOwner)), "{}", stringify!($call))
        };
    }

    let db = Database::new().await;
    let id = db.conversation().await;
    db.join(&group(), &alice()).await;
    let before = db.get_conversation(&group(), id).await.unwrap();
    let (message, none) = (NewDisplayMessage::text(Role::User, "hello"), Map::new);
    assert_no_owner!(db.create_conversation(&group(), NewConversation::new()));
    assert_no_owner!(db.update_conversation(&group(), id, ConversationChanges::default()));
    assert_no_owner!(db.delete_conversation(&group(), id));
    assert_no_owner!(db.set_interrupted(&group(), id, true));
    assert_no_owner!(db.append_display_message(&group(), id, message));
    assert_no_owner!(db.save_message(&group(), id, Uuid::now_v7(), &Message::user("hello")));
    assert_no_owner!(db.clear_display_messages(&group(), id));
    assert_no_owner!(db.mark_tool_executing(&group(), id, "call_1"));
    assert_no_owner!(db.complete_tool_call(&group(), id, "call_1", none()));
    assert_no_owner!(db.record_hitl_decision(&group(), id, "call_1", HitlDecision::Approved));
    let result = ToolResult::new("call_1", "search", "42");
    assert_no_owner!(db.resolve_interrupted_tool_result(&group(), id, &result));
    let some = Uuid::now_v7();
    assert_no_owner!(db.save_draft(&group(), id, some, &Message::assistant("hello")));
    assert_no_owner!(db.settle_messages(&group(), id, &[(some, Delivery::Stored)]));
    assert_no_owner!(db.claim_tool_call(&group(), id, "call_1", some));
    assert_no_owner!(db.decide_tool_call(&group(), id, "call_1", &Decision::Approve, some));
    assert_no_owner!(db.begin_run(&group(), id, some, "here", Duration::ZERO));
    assert_no_owner!(db.request_cancel(&group(), id));
    assert_no_owner!(db.save_agent_state(&group(), id, &State::new(), Expect::Any));
    assert_no_owner!(db.restore_unreadable(&group(), id, 0));
    assert_no_owner!(db.discard_unreadable(&group(), id, 0));
    assert_eq!(db.get_conversation(&alice(), id).await.unwrap(), before);
}
{%- endif %}
{%- endif %}

#[tokio::test]
async fn pages_of_conversations_follow_each_other_in_every_order() {
    let db = Database::new().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(
            db.conversation().await,
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
        let mut request = ListConversations::new().order_by(order_by).limit(2);
        let mut seen = Vec::new();
        loop {
            let page = db.list_conversations(&alice(), request).await.unwrap();
            assert!(page.items.len() <= 2);
            seen.extend(page.items.iter().map(|conversation| conversation.id));
            let Some(next) = page.next else { break };
            assert_eq!(next, page.items[1].cursor(order_by));
            request = request.after(next);
        }
        assert_eq!(seen, expected, "{order_by:?}");
        let all = db.list_conversations(&alice(), ListConversations::new().limit(5)).await.unwrap();
        assert_eq!((all.items.len(), all.next), (5, None));
    }
}

#[tokio::test]
async fn messages_are_paged_both_ways_and_sequences_go_on_after_a_clear() {
    let db = Database::new().await;
    let id = db.conversation().await;
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
        let sequences: Vec<_> = messages.items.iter().map(|message| message.sequence).collect();
        assert_eq!(sequences, expected, "{page:?}");
    }
    for (start, expected) in [
        (MessagePage::first(), [vec![0, 1], vec![2, 3], vec![4]]),
        (MessagePage::last(), [vec![3, 4], vec![1, 2], vec![0]]),
    ] {
        let (mut request, mut pages) = (start.limit(2), Vec::new());
        loop {
            let page = db.load_display_messages(&alice(), id, request).await.unwrap();
            pages.push(page.items.iter().map(|message| message.sequence).collect::<Vec<_>>());
            let Some(next) = page.next else { break };
            request = MessagePage::next(next).limit(2);
        }
        assert_eq!(pages, expected);
    }
    assert_eq!(db.clear_display_messages(&alice(), id).await.unwrap(), 5);
    let cleared = db.load_display_messages(&alice(), id, MessagePage::first()).await.unwrap();
    assert_eq!((cleared.items, cleared.next), (vec![], None));
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
    let id = db.conversation().await;
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
    let id = db.conversation().await;
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
    let sequences: Vec<_> = messages.items.iter().map(|message| message.sequence).collect();
    let expected: Vec<_> = (0..).take(WRITERS * EACH + 1).collect();
    assert_eq!(sequences, expected);
}

#[tokio::test]
async fn a_tool_call_runs_through_its_life() {
    let db = Database::new().await;
    let id = db.conversation().await;
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
    let real = ToolResult::error("call_1", "search", "42");
    let resolved = db.resolve_interrupted_tool_result(&alice(), id, &real).await.unwrap();
    assert!(resolved.is_error);
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
    assert_invalid!(db.cancel_tool_call(&alice(), id, "call_1"));
    assert_not_found!(db.fail_tool_call(&alice(), id, "call_2", Map::new()));
    assert_invalid!(db.resolve_interrupted_tool_result(&alice(), id, &real));

    let messages = db
        .load_display_messages(&alice(), id, MessagePage::first())
        .await
        .unwrap()
        .items;
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
            json!({ "is_interrupt": false, "is_error": true, "hitl_decision": "approved" })
        )
    );
    assert_eq!(messages[2], resolved);
    assert_eq!(messages[2].content, "42");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tool_call_is_claimed_and_decided_by_one_caller() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let call = NewDisplayMessage::tool_call("call_1", "search");
    db.append_display_message(&alice(), id, call).await.unwrap();
    assert_invalid!(db.decide_tool_call(&alice(), id, "call_1", &Decision::Approve, Uuid::now_v7()));
    let claim = Uuid::now_v7();
    for _ in 0..2 {
        let claimed = db.claim_tool_call(&alice(), id, "call_1", claim).await.unwrap();
        assert!(matches!(claimed, Claim::Claimed(call) if call.claim() == Some(claim)));
    }
    let other = db.claim_tool_call(&alice(), id, "call_1", Uuid::now_v7()).await.unwrap();
    assert!(matches!(other, Claim::Already(call) if call.claim() == Some(claim)));
    assert_invalid!(db.mark_tool_executing(&alice(), id, "call_1"));

    db.interrupt_tool_call(&alice(), id, "call_1", Map::new()).await.unwrap();
    assert_invalid!(db.mark_tool_executing(&alice(), id, "call_1"));
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (conversations, claim) = ((*db).clone(), Uuid::now_v7());
        let decision = match n % 2 {
            0 => Decision::Edit { arguments: json!({ "caller": n }) },
            _ => Decision::Reject { reason: Some(n.to_string()) },
        };
        callers.spawn(async move {
            let scope = alice();
            for _ in 0..2 {
                let decide =
                    conversations.decide_tool_call(&scope, id, "call_1", &decision, claim);
                if let Decided::Already(other, call) = decide.await.unwrap() {
                    return (other, call.status, false);
                }
            }
            (decision.clone(), Some(decision.status()), true)
        });
    }
    let decided = callers.join_all().await;
    let (first, status, _) = decided.iter().find(|(.., is_claimed)| *is_claimed).unwrap();
    assert_eq!(decided.iter().filter(|(.., is_claimed)| *is_claimed).count(), 1);
    assert!(decided.iter().all(|(decision, after, _)| decision == first && after == status));
    assert_invalid!(db.record_hitl_decision(
        &alice(),
        id,
        "call_1",
        match first {
            Decision::Reject { .. } => HitlDecision::Approved,
            Decision::Approve | Decision::Edit { .. } => HitlDecision::Rejected,
        }
    ));
}

#[tokio::test]
async fn a_draft_becomes_a_whole_message_and_readers_get_every_change() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let message_id = Uuid::now_v7();
    let read = async |after: &str| {
        let mut read = db.changes(&alice(), id, after.parse().unwrap(), 1).await.unwrap();
        while read.more {
            let rest = db.changes(&alice(), id, read.next, 1).await.unwrap();
            read.items.extend(rest.items);
            (read.next, read.more) = (rest.next, rest.more);
        }
        let shown = read.items.iter().map(|row| (row.sequence, row.content.clone(), row.delivery));
        (shown.collect::<Vec<_>>(), read.next.to_string())
    };
    let shown = |rows: &[(i64, &str, Delivery)]| {
        let rows = rows.iter().map(|&(place, text, delivery)| (place, text.to_owned(), delivery));
        rows.collect::<Vec<_>>()
    };
    let start = ChangeCursor::START.to_string();
    assert_eq!(read(&start).await, (Vec::new(), start.clone()));

    db.save_draft(&alice(), id, message_id, &Message::assistant("To")).await.unwrap();
    let (first, place) = read(&start).await;
    assert_eq!(first, shown(&[(0, "To", Delivery::Draft)]));
    db.save_draft(&alice(), id, message_id, &Message::assistant("To the")).await.unwrap();
    let mut whole = Message::assistant("To the sea.");
    whole.tool_calls = vec![ToolCall::new("call_1", "search", json!({}))];
    let stored = db.save_message(&alice(), id, message_id, &whole).await.unwrap();
    assert_eq!(db.save_message(&alice(), id, message_id, &whole).await.unwrap(), stored);
    let late = db.save_draft(&alice(), id, message_id, &Message::assistant("To")).await.unwrap();
    assert_eq!(late, stored, "a draft does not replace a message");
    let both = [(0, "To the sea.", Delivery::Stored), (1, "search", Delivery::Stored)];
    let (second, place) = read(&place).await;
    assert_eq!(second, shown(&both));

    db.mark_tool_executing(&alice(), id, "call_1").await.unwrap();
    let (third, place) = read(&place).await;
    assert_eq!(third, shown(&both[1..]));
    assert_eq!(read(&place).await, (Vec::new(), place));
    assert_eq!(read(&start).await.0, shown(&both), "each once, as it is now");

    let mut watch = db.watch(&alice(), id, ChangeCursor::START).unwrap();
    watch = watch.interval(Duration::from_millis(10));
    assert_eq!(watch.next().await.unwrap().items.len(), 2);
    let (scope, message) = (alice(), NewDisplayMessage::text(Role::User, "And then?"));
    let append = db.append_display_message(&scope, id, message);
    let (appended, seen) = tokio::join!(append, watch.next());
    assert_eq!(seen.unwrap().items, [appended.unwrap()]);
    db.delete_conversation(&alice(), id).await.unwrap();
    assert_not_found!(watch.next());
}

#[tokio::test]
async fn what_a_killed_process_left_is_settled() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let [known, unknown, draft] = [(); 3].map(|()| Uuid::now_v7());
    for (message_id, delivery) in
        [(known, Delivery::Unsaved), (unknown, Delivery::Unsaved), (draft, Delivery::Draft)]
    {
        let message = Message::assistant("hello");
        db.save_items(&alice(), id, message_id, &message, delivery).await.unwrap();
    }
    let unsettled: BTreeSet<_> =
        db.unsettled_messages(&alice(), id).await.unwrap().into_iter().map(|(id, _)| id).collect();
    assert_eq!(unsettled, [known, unknown, draft].into());
    let settled = [
        (known, Delivery::Stored),
        (unknown, Delivery::Unknown),
        (draft, Delivery::Interrupted),
    ];
    let changed = db.settle_messages(&alice(), id, &settled).await.unwrap();
    let changed: BTreeSet<_> = changed.iter().map(|row| row.message_id).collect();
    assert_eq!(changed, [unknown, draft].into(), "readers need not know of the first");
    assert_eq!(db.unsettled_messages(&alice(), id).await.unwrap(), []);
    // The agent gets to know it after all.
    let again = db.save_message(&alice(), id, unknown, &Message::assistant("hello")).await.unwrap();
    assert_eq!(again[0].delivery, Delivery::Stored);
    let page = db.load_display_messages(&alice(), id, MessagePage::first()).await.unwrap();
    let deliveries: Vec<_> = page.items.iter().map(|row| row.delivery).collect();
    assert_eq!(deliveries, [Delivery::Stored, Delivery::Stored, Delivery::Interrupted]);
    assert_eq!(page.items[1], again[0]);
}

#[tokio::test]
async fn a_conversation_has_one_run_at_a_time() {
    const LEASE: Duration = Duration::from_secs(45);

    let db = Database::new().await;
    let id = db.conversation().await;
    let [first, second, third] = [(); 3].map(|()| Uuid::now_v7());
    assert_eq!(db.get_run(&alice(), id).await.unwrap(), None);
    assert!(!db.request_cancel(&alice(), id).await.unwrap());
    let begin = async |run_id, lease| db.begin_run(&alice(), id, run_id, "here", lease).await.unwrap();
    let BeginRun::Started(run) = begin(first, LEASE).await else {
        panic!("nobody else runs");
    };
    assert_eq!((run.id, run.status, run.cancel_requested), (first, RunStatus::Running, false));
    assert!(!run.is_abandoned(LEASE));
    assert!(matches!(begin(second, LEASE).await, BeginRun::Busy(run) if run.id == first));
    assert_eq!(db.renew_run(&alice(), id, first).await.unwrap(), RunSignal::Go);
    assert_eq!(db.renew_run(&alice(), id, second).await.unwrap(), RunSignal::Lost);
    assert!(db.request_cancel(&alice(), id).await.unwrap());
    assert_eq!(db.renew_run(&alice(), id, first).await.unwrap(), RunSignal::CancelRequested);
    assert!(matches!(begin(first, LEASE).await, BeginRun::Started(run) if run.cancel_requested));

    tokio::time::sleep(Duration::from_millis(2)).await;
    let BeginRun::Started(taken) = begin(second, Duration::ZERO).await else {
        panic!("the lease is over");
    };
    assert_eq!((taken.id, taken.cancel_requested), (second, false));
    assert_eq!(db.renew_run(&alice(), id, first).await.unwrap(), RunSignal::Lost);
    db.end_run(&alice(), id, first, RunStatus::Failed).await.unwrap();
    let question = json!({ "question": "really?" });
    assert_eq!(db.wait_run(&alice(), id, second, &question).await.unwrap(), RunSignal::Go);
    let waiting = db.unfinished_runs(&alice()).await.unwrap();
    assert_eq!(waiting, [db.get_run(&alice(), id).await.unwrap().unwrap()]);
    assert_eq!((waiting[0].status, &waiting[0].waiting_for), (RunStatus::Waiting, &Some(question)));
    // Who got the decision goes on, also in another process.
    assert!(matches!(begin(third, LEASE).await, BeginRun::Started(run) if run.waiting_for.is_none()));
    assert_invalid!(db.end_run(&alice(), id, third, RunStatus::Waiting));
    db.end_run(&alice(), id, third, RunStatus::Finished).await.unwrap();
    assert_eq!(db.renew_run(&alice(), id, third).await.unwrap(), RunSignal::Lost);
    assert_eq!(db.unfinished_runs(&alice()).await.unwrap(), []);
    assert!(matches!(begin(first, LEASE).await, BeginRun::Started(_)));
    db.delete_conversation(&alice(), id).await.unwrap();
    assert_not_found!(db.renew_run(&alice(), id, first));
    assert_not_found!(db.begin_run(&alice(), id, first, "here", LEASE));
}

#[tokio::test]
async fn search_ignores_case_and_takes_wildcards_literally() {
    let db = Database::new().await;
    let id = db.conversation().await;
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
        let found = db
            .search_messages(&alice(), text, SearchPage::first().limit(limit))
            .await
            .unwrap();
        let found: Vec<_> = found
            .items
            .iter()
            .map(|message| message.content.as_str())
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    let first = db
        .search_messages(&alice(), "sure", SearchPage::first().limit(1))
        .await
        .unwrap();
    let second = db
        .search_messages(&alice(), "sure", SearchPage::after(first.next.unwrap()))
        .await
        .unwrap();
    assert_eq!((second.items[0].content.as_str(), second.next), ("100% sure", None));
    let long = "a".repeat(201);
    assert_invalid!(db.search_messages(&alice(), &long, SearchPage::first()));
    let odd: String = "ǅ𐐀Ωß[]\\%_*".chars().cycle().take(200).collect();
    let message = NewDisplayMessage::text(Role::User, format!("<{odd}>"));
    let odd_one = db.append_display_message(&alice(), id, message).await.unwrap();
    let found = db.search_messages(&alice(), &odd, SearchPage::first()).await.unwrap();
    assert_eq!(found.items, [odd_one]);
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
        + Duration::from_micros(1);
    tokio::time::sleep(Duration::from_millis(2)).await;
    let new = db
        .create_conversation(&{% if has_owner %}bob{% else %}alice{% endif %}(), NewConversation::new())
        .await
        .unwrap();

    assert_eq!(db.delete_conversations_before(cutoff).await.unwrap(), 1);
    assert_not_found!(db.get_conversation(&alice(), old.id));
    let found = db.search_messages(&alice(), "hello", SearchPage::first()).await.unwrap();
    assert_eq!(found.items, []);
    assert_eq!(db.get_conversation(&{% if has_owner %}bob{% else %}alice{% endif %}(), new.id).await.unwrap(), new);
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused() {
    let db = Database::new().await;
    let random = NewConversation::new().id(Uuid::max());
    assert_invalid!(db.create_conversation(&alice(), random));

    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let deep = NewConversation::new().metadata(object(json!({ "deep": deep })));
    assert_invalid!(db.create_conversation(&alice(), deep));

    let id = db.conversation().await;
    let confused = NewDisplayMessage {
        status: Some(ToolStatus::Failed),
        ..NewDisplayMessage::text(Role::User, "?")
    };
    assert_invalid!(db.append_display_message(&alice(), id, confused));
    for limit in [0, ListConversations::MAX_LIMIT + 1, u32::MAX] {
        let list = ListConversations::new().limit(limit);
        assert_invalid!(db.list_conversations(&alice(), list));
    }
    for limit in [0, MessagePage::MAX_LIMIT + 1] {
        let page = MessagePage::last().limit(limit);
        assert_invalid!(db.load_display_messages(&alice(), id, page));
        assert_invalid!(db.search_messages(&alice(), "a", SearchPage::first().limit(limit)));
    }
}

#[tokio::test]
async fn a_cursor_is_text_that_only_its_own_list_takes() {
    let db = Database::new().await;
    let id = db.conversation().await;
    db.conversation().await;
    for n in 0..2 {
        let message = NewDisplayMessage::text(Role::User, format!("message {n}"));
        db.append_display_message(&alice(), id, message).await.unwrap();
    }
    let by_update = ListConversations::new().limit(1);
    let by_id = by_update.order_by(ConversationOrder::CreatedAsc);
    let (messages, found) = (MessagePage::last().limit(1), SearchPage::first().limit(1));
    let cursors = [
        db.list_conversations(&alice(), by_update).await.unwrap().next.unwrap(),
        db.list_conversations(&alice(), by_id).await.unwrap().next.unwrap(),
        db.load_display_messages(&alice(), id, messages).await.unwrap().next.unwrap(),
        db.search_messages(&alice(), "message", found).await.unwrap().next.unwrap(),
    ];
    for (n, cursor) in cursors.into_iter().enumerate() {
        let text = cursor.to_string();
        assert_eq!(text.parse::<Cursor>().unwrap(), cursor);
        assert_eq!(json!(cursor), json!(text));
        assert_eq!(serde_json::from_value::<Cursor>(json!(text)).unwrap(), cursor);
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{text}");
        for damaged in [&text[1..], &text[..text.len() - 1], &format!("{text}0"), &text.to_uppercase()] {
            assert!(matches!(damaged.parse::<Cursor>(), Err(Error::Invalid(_))), "{damaged}");
        }
        let accepted = [
            db.list_conversations(&alice(), by_update.after(cursor)).await.is_ok(),
            db.list_conversations(&alice(), by_id.after(cursor)).await.is_ok(),
            db.load_display_messages(&alice(), id, MessagePage::next(cursor)).await.is_ok(),
            db.search_messages(&alice(), "message", SearchPage::after(cursor)).await.is_ok(),
        ];
        assert_eq!(accepted, [n == 0, n == 1, n == 2, n == 3], "{text}");
    }
    let position: MessagePage = serde_json::from_value(json!({ "from": cursors[2] })).unwrap();
    assert_eq!(position, MessagePage::next(cursors[2]));
    for from in ["first", "last", "after:17", "before:-1"] {
        let page: MessagePage = serde_json::from_value(json!({ "from": from })).unwrap();
        assert_eq!(page.from.to_string(), from);
    }
    for from in ["", "FIRST", "after:", "before:x", "until:1", "é"] {
        assert!(matches!(from.parse::<MessagePosition>(), Err(Error::Invalid(_))), "{from}");
    }
}

#[tokio::test]
async fn json_has_no_owner_and_no_scope() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let result = NewDisplayMessage::tool_result("call_1", "no such file").error();
    let message = db.append_display_message(&alice(), id, result).await.unwrap();
    assert!(message.is_error);
    let conversation = db.get_conversation(&alice(), id).await.unwrap();
    for row in [json!(conversation), json!(message)] {
        assert_eq!(row.get("scope"), None);
{%- if let Some(owner) = owner %}
        assert_eq!(row.get({{ owner.column }}), None);
{%- endif %}
    }
    assert_eq!(json!(message)["is_error"], true);
    let page = Page {
        items: vec![message.clone()],
        next: None,
    };
    assert_eq!(json!(page), json!({ "items": [message], "next": null }));
}

#[tokio::test]
async fn a_caller_may_be_shared_or_of_a_type_that_is_not_known() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let shared = std::sync::Arc::new(alice());
    let unknown: std::sync::Arc<dyn OwnerScope> = shared.clone();
    let expected = db.get_conversation(&alice(), id).await.unwrap();
    assert_eq!(db.get_conversation(&shared, id).await.unwrap(), expected);
    assert_eq!(db.get_conversation(&unknown, id).await.unwrap(), expected);
    assert_eq!(db.get_conversation(&*unknown, id).await.unwrap(), expected);
    assert_eq!(db.get_conversation(&&*unknown, id).await.unwrap(), expected);
    assert_eq!(unknown.reach().unwrap(), alice().reach().unwrap());
}

#[test]
fn an_error_has_a_status_code() {
    let broken = ReadError::FutureVersion { version: 9 };
    for (error, code) in [
        (Error::NotFound, 404),
        (Error::NoOwner, 403),
        (Error::Conflict { current: Revision(1) }, 409),
        (Error::Invalid(String::new()), 422),
        (Error::DeserializationFailed(broken), 500),
        (Error::Database(sqlx::Error::PoolTimedOut), 503),
        (Error::Database(sqlx::Error::PoolClosed), 500),
    ] {
        assert_eq!(error.status_code(), code, "{error}");
    }
}

#[tokio::test]
async fn numbers_in_metadata_are_returned_as_they_are_read_later() {
    let db = Database::new().await;
    let numbers = json!([-0.0, 1e16, -1e16, 1e300, 5e-324, 0.1, u64::MAX, i64::MIN]);
    let new = NewConversation::new().metadata(object(json!({ "numbers": numbers })));
    let created = db.create_conversation(&alice(), new).await.unwrap();
    let numbers = &created.metadata["numbers"];
    let whole = 10_000_000_000_000_000_i64;
    assert_eq!(numbers, &json!([0.0, whole, -whole, 1e300, 5e-324, 0.1, u64::MAX, i64::MIN]));
    assert!(numbers[0].as_f64().unwrap().is_sign_positive());
    assert_eq!(db.get_conversation(&alice(), created.id).await.unwrap(), created);
}

#[tokio::test]
async fn a_tool_call_may_have_an_id_of_any_length() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let numbers = (1..1000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let call_id = numbers.map(|number| number.to_string()).collect::<Vec<_>>().concat();
    let mut message = Message::assistant("Let me look.");
    message.tool_calls = vec![ToolCall::new(&call_id, "search", json!({}))];
    let stored = db.save_message(&alice(), id, Uuid::now_v7(), &message).await.unwrap();
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[1].metadata["call_id"], json!(call_id));

    let started = db.mark_tool_executing(&alice(), id, &call_id).await.unwrap();
    let short = started.tool_call_id.unwrap();
    assert!(short.len() < 200 && call_id.starts_with(&short[..100]), "{short}");
    let ended = db.complete_tool_call(&alice(), id, &short, Map::new()).await.unwrap();
    assert_eq!(ended.sequence, started.sequence);
    assert_not_found!(db.cancel_tool_call(&alice(), id, &call_id[1..]));
}

#[tokio::test]
async fn a_state_reads_back_equal_and_a_late_writer_is_told() {
    let db = Database::new().await;
    let id = db.conversation().await;
    assert_not_found!(db.load_agent_state(&alice(), id));
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
        let second = db.save_agent_state_with_id(&alice(), id, &state, expect, write_id).await.unwrap();
        assert_eq!(second, Revision(first.0 + 1), "repeating the save changes nothing");
    }
    let absurd = Expect::Revision(Revision(i64::MAX));
    let absurd = db.save_agent_state_with_id(&alice(), id, &state, absurd, write_id).await;
    assert!(matches!(absurd, Err(Error::Conflict { .. })));
    let late = db.save_agent_state(&alice(), id, &State::new(), Expect::Revision(first)).await;
    assert!(matches!(late, Err(Error::Conflict { current }) if current.0 == first.0 + 1));
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
    db.save_agent_state(&alice(), id, &State::new(), Expect::Any).await.unwrap();
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, State::new());
}

#[tokio::test]
async fn a_save_writes_only_the_messages_that_changed() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let mut state = State::new();
    state.add_messages((0..100).map(|n| Message::user(format!("message {n}"))));
    let mut revision = db.save_agent_state(&alice(), id, &state, Expect::NOTHING).await.unwrap();
    let ids: Vec<_> = (0..100).map(|n| state.messages.id(n)).collect();
    let loaded = db.load_agent_state(&alice(), id).await.unwrap().state;
    assert_eq!((0..100).map(|n| loaded.messages.id(n)).collect::<Vec<_>>(), ids);

    db.mark_messages().await;
    state.add_messages([Message::assistant("new"), Message::user("newer")]);
    let expect = Expect::Revision(revision);
    revision = db.save_agent_state(&alice(), id, &state, expect).await.unwrap();
    assert_eq!(db.written_messages().await, [100, 101]);

    db.mark_messages().await;
    state.messages[7] = Message::user("other");
    state.messages.truncate(50);
    let expect = Expect::Revision(revision);
    revision = db.save_agent_state(&alice(), id, &state, expect).await.unwrap();
    assert_eq!(db.written_messages().await, [7]);
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);

    // A state that does not know what is stored writes all.
    let other = state_of(&["a", "b", "c"]);
    let expect = Expect::Revision(revision);
    db.save_agent_state(&alice(), id, &other, expect).await.unwrap();
    let late = db.save_agent_state(&alice(), id, &state, expect).await;
    assert!(matches!(late, Err(Error::Conflict { .. })));
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, other);
    db.save_agent_state(&alice(), id, &state, Expect::Any).await.unwrap();
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
}

#[tokio::test]
async fn a_conversation_that_was_created_again_is_not_taken_for_the_old_one() {
    let db = Database::new().await;
    let new = NewConversation::new();
    let id = db.create_conversation(&alice(), new.clone()).await.unwrap().id;
    let mut state = state_of(&["a", "b"]);
    let revision = db.save_agent_state(&alice(), id, &state, Expect::NOTHING).await.unwrap();
    db.delete_conversation(&alice(), id).await.unwrap();
    db.create_conversation(&alice(), new).await.unwrap();
    let other = state_of(&["c", "d"]);
    let same = db.save_agent_state(&alice(), id, &other, Expect::NOTHING).await.unwrap();
    assert_eq!(same, revision);

    state.add_message(Message::user("e"));
    let mixed = db.save_agent_state(&alice(), id, &state, Expect::Revision(revision)).await;
    assert!(matches!(mixed, Err(Error::Conflict { .. })), "{mixed:?}");
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_several_writers_with_the_same_revision_one_wins() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let mut writers = tokio::task::JoinSet::new();
    for n in 1..=8 {
        let conversations = db.conversations.clone();
        writers.spawn(async move {
            let mut state = State::new();
            state.add_messages((0..n).map(|_| Message::user(format!("writer {n}"))));
            let saved = conversations.save_agent_state(&alice(), id, &state, Expect::NOTHING).await;
            (saved, state)
        });
    }
    let mut winners = Vec::new();
    for (saved, state) in writers.join_all().await {
        match saved {
            Ok(revision) => {
                assert_eq!(revision, Revision(1));
                winners.push(state);
            }
            Err(error) => assert!(matches!(error, Error::Conflict { current: Revision(1) }), "{error}"),
        }
    }
    assert_eq!(winners, [db.load_agent_state(&alice(), id).await.unwrap().state]);
}

#[tokio::test]
async fn what_cannot_be_read_is_set_aside_until_it_is_restored_or_discarded() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let state = state_of(&["hello"]);
    let mut revision = db.save_agent_state(&alice(), id, &state, Expect::NOTHING).await.unwrap();
    for (n, damaged) in DAMAGED.into_iter().enumerate() {
        db.replace_state(damaged).await;
        assert!(matches!(
            db.load_agent_state(&alice(), id).await,
            Err(Error::DeserializationFailed(_))
        ));
        // A caller who does not look is not allowed to lose it either.
        let expect = if n == 0 { Expect::Unreadable(revision) } else { Expect::Any };
        revision = db.save_agent_state(&alice(), id, &state, expect).await.unwrap();
        assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
    }
    for _ in 0..3 {
        let expect = Expect::Revision(revision);
        revision = db.save_agent_state(&alice(), id, &state, expect).await.unwrap();
    }

    let aside = db.list_unreadable(&alice(), id).await.unwrap();
    assert_eq!(aside.len(), DAMAGED.len());
    for (UnreadableState { epoch, .. }, damaged) in aside.iter().zip(DAMAGED) {
        let data = db.load_unreadable(&alice(), id, *epoch).await.unwrap();
        assert_eq!((data.header.as_slice(), data.messages.len()), (damaged.as_bytes(), 1));
    }

    let restored = db.restore_unreadable(&alice(), id, aside[0].epoch).await.unwrap();
    assert_eq!(restored, Revision(revision.0 + 1));
    assert!(matches!(
        db.load_agent_state(&alice(), id).await,
        Err(Error::DeserializationFailed(_))
    ));
    let late = db.save_agent_state(&alice(), id, &state, Expect::Revision(revision)).await;
    assert!(matches!(late, Err(Error::Conflict { .. })));
    let swapped = db.list_unreadable(&alice(), id).await.unwrap();
    assert_eq!(swapped.len(), DAMAGED.len());
    assert_not_found!(db.restore_unreadable(&alice(), id, aside[0].epoch));

    // The readable one was the last that was set aside.
    let readable = swapped.last().unwrap().epoch;
    db.restore_unreadable(&alice(), id, readable).await.unwrap();
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
    for UnreadableState { epoch, .. } in aside {
        db.discard_unreadable(&alice(), id, epoch).await.unwrap();
        assert_not_found!(db.discard_unreadable(&alice(), id, epoch));
        assert_not_found!(db.load_unreadable(&alice(), id, epoch));
    }
    assert_eq!(db.list_unreadable(&alice(), id).await.unwrap(), []);
    assert_not_found!(db.discard_unreadable(&alice(), id, readable));
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
}

#[tokio::test]
async fn damaged_and_missing_messages_are_found_with_their_place() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let state = state_of(&["a", "b", "c"]);
    for (position, damage, place) in [
        (1, None, "state.messages[1]"),
        (2, None, "state.messages"),
        (1, Some("1"), "state.messages[1]"),
        (2, Some(r#"{"role":"nobody"}"#), "state.messages[2].role"),
    ] {
        let revision = db.save_agent_state(&alice(), id, &state, Expect::Any).await.unwrap();
        match damage {
            Some(data) => db.replace_message(position, data).await,
            None => db.delete_message(position).await,
        }
        assert_eq!(damaged_place(db.load_agent_state(&alice(), id).await), place);
        assert_eq!(db.load_todos(&alice(), id).await.unwrap(), []);

        let expect = Expect::Unreadable(revision);
        db.save_agent_state(&alice(), id, &state, expect).await.unwrap();
        assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
        let epoch = db.list_unreadable(&alice(), id).await.unwrap()[0].epoch;
        db.restore_unreadable(&alice(), id, epoch).await.unwrap();
        assert_eq!(damaged_place(db.load_agent_state(&alice(), id).await), place);
        db.save_agent_state(&alice(), id, &state, Expect::Any).await.unwrap();
        for UnreadableState { epoch, .. } in db.list_unreadable(&alice(), id).await.unwrap() {
            db.discard_unreadable(&alice(), id, epoch).await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_an_earlier_version_stored_is_read_and_becomes_rows() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let mut state = state_of(&["a", "b"]);
    state.put_todo(Todo::new(1, "write"));
    let revision = db.save_agent_state(&alice(), id, &State::new(), Expect::NOTHING).await.unwrap();
    db.replace_state(&serializer::to_text(&state).unwrap()).await;
    assert_eq!(db.load_todos(&alice(), id).await.unwrap(), state.todos);
    let mut loaded = db.load_agent_state(&alice(), id).await.unwrap().state;
    assert_eq!(loaded, state);

    for copy in [&mut loaded, &mut state] {
        copy.add_message(Message::user("c"));
    }
    db.save_agent_state(&alice(), id, &loaded, Expect::Revision(revision)).await.unwrap();
    assert_eq!(db.written_messages().await, [0, 1, 2]);
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);

    db.set_aside_by_earlier_version("[]").await;
    let aside = db.list_unreadable(&alice(), id).await.unwrap();
    let earlier = UnreadableState {
        epoch: -1,
        set_aside_at: None,
    };
    assert_eq!(aside, [earlier]);
    let earlier = db.load_unreadable(&alice(), id, -1).await.unwrap();
    assert_eq!((&*earlier.header, earlier.messages.len()), (&b"[]"[..], 0));
    db.restore_unreadable(&alice(), id, -1).await.unwrap();
    assert_eq!(damaged_place(db.load_agent_state(&alice(), id).await), "root");
    let aside = db.list_unreadable(&alice(), id).await.unwrap();
    let [UnreadableState { epoch, .. }] = aside[..] else {
        panic!("not one: {aside:?}");
    };
    db.restore_unreadable(&alice(), id, epoch).await.unwrap();
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
    let epoch = db.list_unreadable(&alice(), id).await.unwrap()[0].epoch;
    assert_eq!(db.load_unreadable(&alice(), id, epoch).await.unwrap().header, b"[]");

    db.set_aside_by_earlier_version("{}").await;
    db.discard_unreadable(&alice(), id, -1).await.unwrap();
    assert_eq!(db.list_unreadable(&alice(), id).await.unwrap().len(), 1);
}

#[tokio::test]
async fn messages_stay_with_a_state_that_an_earlier_version_set_aside() {
    let db = Database::new().await;
    let state = state_of(&["a", "b"]);
    let whole = serializer::to_text(&state_of(&["c", "d", "e"])).unwrap();
    for (earlier, keep) in [(whole.as_str(), true), ("[]", true), (&whole, false)] {
        let id = db.create_conversation(&alice(), NewConversation::new()).await.unwrap().id;
        db.save_agent_state(&alice(), id, &state, Expect::NOTHING).await.unwrap();
        db.set_aside_by_earlier_version(earlier).await;
        db.restore_by_earlier_version().await;
        if keep {
            db.save_agent_state(&alice(), id, &state_of(&["f"]), Expect::Any).await.unwrap();
            let epoch = db.list_unreadable(&alice(), id).await.unwrap()[0].epoch;
            assert_eq!(db.load_unreadable(&alice(), id, epoch).await.unwrap().messages.len(), 2);
            db.restore_unreadable(&alice(), id, epoch).await.unwrap();
        } else {
            assert_eq!(db.load_unreadable(&alice(), id, -1).await.unwrap().messages.len(), 2);
            db.restore_unreadable(&alice(), id, -1).await.unwrap();
        }
        assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
        db.delete_conversation(&alice(), id).await.unwrap();
    }
}

#[tokio::test]
async fn a_revision_that_no_state_has_is_a_conflict() {
    let db = Database::new().await;
    let id = db.create_conversation(&alice(), NewConversation::new()).await.unwrap().id;
    let state = state_of(&["a"]);
    let current = db.save_agent_state(&alice(), id, &state, Expect::Any).await.unwrap();
    for revision in [i64::MIN, -1, i64::MAX].map(Revision) {
        for expect in [Expect::Revision(revision), Expect::Unreadable(revision)] {
            let outcome = db.save_agent_state(&alice(), id, &state, expect).await;
            assert!(matches!(outcome, Err(Error::Conflict { current: found }) if found == current));
        }
    }
    assert_eq!(db.list_unreadable(&alice(), id).await.unwrap(), []);
}

#[tokio::test]
async fn what_a_newer_version_wrote_is_not_overwritten() {
    let db = Database::new().await;
    let id = db.conversation().await;
    db.save_agent_state(&alice(), id, &State::new(), Expect::Any).await.unwrap();
    db.replace_state(r#"{"version":4,"state":{}}"#).await;
    for outcome in [
        db.load_agent_state(&alice(), id).await.map(|_| ()),
        db.save_agent_state(&alice(), id, &State::new(), Expect::Any).await.map(|_| ()),
    ] {
        let future = ReadError::FutureVersion { version: 4 };
        assert!(matches!(outcome, Err(Error::DeserializationFailed(error)) if error == future));
    }
}

#[tokio::test]
async fn a_message_is_stored_as_what_it_shows_and_only_once() {
    let db = Database::new().await;
    let id = db.conversation().await;
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

    let nothing = Message::assistant("");
    assert_eq!(db.save_message(&alice(), id, Uuid::now_v7(), &nothing).await.unwrap(), []);
    let picture = Content::Parts(vec![
        ContentPart::image("aGk=", "image/png"),
        ContentPart::file_url("https://example.com/a.pdf"),
    ]);
    let picture = Message::new(Role::User, Some(picture));
    let shown = db.save_message(&alice(), id, Uuid::now_v7(), &picture).await.unwrap();
    let seen: Vec<_> = shown
        .iter()
        .map(|row| (row.content_type, row.content.as_str(), json!(row.metadata)))
        .collect();
    let data = json!({ "media_type": "image/png", "data": "aGk=" });
    let url = "https://example.com/a.pdf";
    assert_eq!(
        seen,
        [(ContentType::Image, "", data), (ContentType::FileReference, url, json!({}))]
    );
    assert!(db.set_interrupted(&alice(), id, true).await.unwrap().interrupted);
}
