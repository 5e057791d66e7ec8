//! Each call of a store, ours and by hand. Calls that are the same statement as another one aren't called twice: a tool
//! call fails, is interrupted and is cancelled as it's completed.

use std::fmt::Debug;

use sagents::{
    ChangeCursor, Claim, Decided, Decision, DisplayMessage, Expect, Expired, Message, MessagePage, NewDisplayMessage,
    Role, SearchPage, State, Store, Timestamp, TokenUsage, ToolResult, ToolStatus,
};
use serde_json::Map;
use uuid::Uuid;

use crate::hand::{ByHand, Place};
use crate::measure::{BESIDE_HAND, at_most, compare, header, measure, row};
use crate::{SCOPE, answer, create_conversation, id, metadata, new_message};

const ANSWERED: &str = "What a tool answered in the end.";

const WORDS: [&str; 2] = ["MESSAGE", "77"];

pub async fn compare_all(place: &impl Place) {
    let (ours, hand) = &place.database("calls", &[vec![100; 10], vec![0; 190]].concat()).await;
    assert_answers(ours, hand).await;

    header(["call", "ours", "by hand", "ratio", "target"]);
    conversation_calls(ours, hand).await;
    message_calls(ours, hand).await;
    tool_calls(ours, hand).await;
    rescue_calls(ours, hand).await;
    println!();
    new_stores(hand).await;
}

/// Every statement is expanded when a store is created.
async fn new_stores(hand: &impl ByHand) {
    header(["in a store", "time", "", "", "target"]);
    let (time, _) = measure(40, 5, async |_| (), async |()| hand.new_store(), async |()| ()).await;
    row(["expanding all statements", &format!("{:.1} µs", time.as_secs_f64() * 1e6), "", "", "<= 1 ms"]);
    println!();
}

/// Both sides answer alike.
async fn assert_answers(ours: &Store, hand: &impl ByHand) {
    let one = id(0);
    let page = ours.load_display_messages(&SCOPE, one, MessagePage::first()).await.unwrap();
    assert_eq!(page.items, hand.page(one).await);
    let found = ours.search_messages(&SCOPE, &WORDS.join(" "), SearchPage::first().limit(20)).await.unwrap();
    assert_eq!(found.items, hand.search(&WORDS).await);

    let (said, message_id) = (&answer(), Uuid::now_v7());
    let saved = ours.save_message(&SCOPE, id(1), message_id, said).await.unwrap();
    assert_eq!(shown(saved), shown(hand.append(id(2), items(message_id, said)).await));
    let (after, limit) = (ChangeCursor::START, 10);
    let changes = ours.changes(&SCOPE, id(1), after, limit).await.unwrap();
    assert_eq!(shown(changes.items), shown(hand.changes(id(2), 0).await));
    let (call, other) = (&interrupted_call(ours, id(1)).await, &interrupted_call(ours, id(2)).await);
    assert_eq!(ours.get_tool_call(&SCOPE, id(1), call).await.unwrap(), hand.get_tool_call(id(1), call).await);
    let claim = Uuid::now_v7();
    let decided = decided(ours, id(1), call, claim).await;
    assert_eq!(edited(decided), edited(hand.approve(id(2), other, claim).await));
    let executing = claimed(ours, id(1), call, claim).await;
    let by_hand = hand.change_tool_call(id(2), other, ToolStatus::Executing, claim_of(claim)).await;
    assert_eq!(edited(executing), edited(by_hand));
    let completed = ours.complete_tool_call(&SCOPE, id(1), call, metadata()).await.unwrap();
    assert_eq!(edited(completed), edited(hand.change_tool_call(id(2), other, ToolStatus::Completed, metadata()).await));
    let resolved = ours.resolve_tool_result(&SCOPE, id(1), &answered(call)).await.unwrap();
    let by_hand = hand.resolve(id(2), other, ANSWERED).await;
    assert_eq!((resolved.content, resolved.is_error), (by_hand.content, by_hand.is_error));
    let cleared = ours.clear_display_messages(&SCOPE, id(1)).await.unwrap();
    assert_eq!(cleared, hand.clear(id(2)).await);
}

async fn conversation_calls(ours: &Store, hand: &impl ByHand) {
    let (one, target) = (id(0), BESIDE_HAND);
    compare(
        "delete_conversations",
        target,
        async |_| Timestamp::MIN,
        async |cutoff| ours.delete_conversations(Expired::UpdatedBefore(cutoff)).await.unwrap(),
        async |cutoff| hand.delete_before(cutoff).await,
    )
    .await;
    compare(
        "a write of a context",
        target,
        async |_| one,
        async |id| hand.set_title_with_help(id, "Another").await,
        async |id| hand.set_title(id, "Another").await,
    )
    .await;
    compare(
        "set_interrupted",
        target,
        async |_| one,
        async |id| ours.set_interrupted(&SCOPE, id, true).await.unwrap(),
        async |id| hand.set_interrupted(id, true).await,
    )
    .await;
    for n in 0..10 {
        let counted = new_message().usage(format!("model {}", n % 2), TokenUsage::new(1234, 56));
        ours.append_display_message(&SCOPE, id(4), counted).await.unwrap();
    }
    compare(
        "usage",
        target,
        async |_| id(4),
        async |id| ours.usage(&SCOPE, id).await.unwrap(),
        async |id| hand.usage(id).await,
    )
    .await;
}

async fn message_calls(ours: &Store, hand: &impl ByHand) {
    let (one, target) = (id(0), BESIDE_HAND);
    let filled = async |_| {
        let id = create_conversation(ours).await;
        for _ in 0..10 {
            ours.append_display_message(&SCOPE, id, new_message()).await.unwrap();
        }
        id
    };
    compare(
        "append_display_message",
        target,
        async |_| new_message(),
        async |new| ours.append_display_message(&SCOPE, one, new).await.unwrap(),
        async |new| hand.append(one, vec![new]).await,
    )
    .await;
    compare(
        "load_display_messages, 100",
        target,
        async |_| one,
        async |id| ours.load_display_messages(&SCOPE, id, MessagePage::first()).await.unwrap(),
        async |id| hand.page(id).await,
    )
    .await;
    compare(
        "changes, 10",
        target,
        async |_| (),
        async |()| ours.changes(&SCOPE, one, ChangeCursor::START, 10).await.unwrap(),
        async |()| hand.changes(one, 0).await,
    )
    .await;
    // In front of the calls that store what would be searched.
    compare(
        "search_messages",
        target,
        async |_| WORDS.join(" "),
        async |text| ours.search_messages(&SCOPE, &text, SearchPage::first().limit(20)).await.unwrap(),
        async |_| hand.search(&WORDS).await,
    )
    .await;
    compare(
        "clear_display_messages, 10",
        target,
        filled,
        async |id| ours.clear_display_messages(&SCOPE, id).await.unwrap(),
        async |id| hand.clear(id).await,
    )
    .await;
    compare(
        "save_message, 3 items",
        target,
        async |_| (Uuid::now_v7(), answer()),
        async |(id, said)| ours.save_message(&SCOPE, one, id, &said).await.unwrap(),
        async |(id, said)| hand.append(one, items(id, &said)).await,
    )
    .await;
}

async fn tool_calls(ours: &Store, hand: &impl ByHand) {
    let (one, target) = (id(0), BESIDE_HAND);
    let pending = async |_| pending_call(ours, one).await;
    let interrupted = async |_| interrupted_call(ours, one).await;
    compare(
        "get_tool_call",
        target,
        pending,
        async |call| ours.get_tool_call(&SCOPE, one, &call).await.unwrap(),
        async |call| hand.get_tool_call(one, &call).await,
    )
    .await;
    compare(
        "claim_tool_call",
        target,
        pending,
        async |call| claimed(ours, one, &call, Uuid::now_v7()).await,
        async |call| hand.change_tool_call(one, &call, ToolStatus::Executing, claim_of(Uuid::now_v7())).await,
    )
    .await;
    compare(
        "complete_tool_call",
        target,
        pending,
        async |call| ours.complete_tool_call(&SCOPE, one, &call, metadata()).await.unwrap(),
        async |call| hand.change_tool_call(one, &call, ToolStatus::Completed, metadata()).await,
    )
    .await;
    compare(
        "decide_tool_call",
        target,
        interrupted,
        async |call| decided(ours, one, &call, Uuid::now_v7()).await,
        async |call| hand.approve(one, &call, Uuid::now_v7()).await,
    )
    .await;
    compare(
        "resolve_tool_result",
        target,
        interrupted,
        async |call| ours.resolve_tool_result(&SCOPE, one, &answered(&call)).await.unwrap(),
        async |call| hand.resolve(one, &call, ANSWERED).await,
    )
    .await;
}

/// The calls for states that were set aside, with small ones.
async fn rescue_calls(ours: &Store, hand: &impl ByHand) {
    let target = BESIDE_HAND;
    // The first epoch is aside.
    let epoch = 0;
    let set_aside = async |_| {
        let id = create_conversation(ours).await;
        let mut state = State::new();
        state.add_messages([Message::user("Hello!"), answer()]);
        let revision = ours.save_agent_state(&SCOPE, id, &state, Expect::Any).await.unwrap();
        ours.save_agent_state(&SCOPE, id, &State::new(), Expect::Unreadable(revision)).await.unwrap();
        id
    };
    // Tables that were empty when statements were planned for them are read as a whole.
    for n in 0..at_most(500, 5) {
        set_aside(n).await;
    }
    hand.settle().await;
    let one = set_aside(0).await;
    let aside = ours.load_unreadable_state(&SCOPE, one, epoch).await.unwrap();
    assert_eq!(1 + aside.messages.len(), hand.load_unreadable(one, epoch).await.len());
    compare(
        "load_unreadable_state",
        target,
        set_aside,
        async |id| ours.load_unreadable_state(&SCOPE, id, epoch).await.unwrap(),
        async |id| hand.load_unreadable(id, epoch).await,
    )
    .await;
    compare(
        "restore_unreadable_state",
        target,
        set_aside,
        async |id| ours.restore_unreadable_state(&SCOPE, id, epoch).await.unwrap(),
        async |id| hand.restore_unreadable(id, epoch).await,
    )
    .await;
    compare(
        "discard_unreadable_state",
        target,
        set_aside,
        async |id| ours.discard_unreadable_state(&SCOPE, id, epoch).await.unwrap(),
        async |id| hand.discard_unreadable(id, epoch).await,
    )
    .await;
}

async fn claimed(ours: &Store, conversation_id: Uuid, tool_call_id: &str, claim: Uuid) -> DisplayMessage {
    match ours.claim_tool_call(&SCOPE, conversation_id, tool_call_id, claim).await.unwrap() {
        Claim::Claimed(call) => call,
        Claim::Already(call) => panic!("{call:?}"),
    }
}

async fn decided(ours: &Store, conversation_id: Uuid, tool_call_id: &str, claim: Uuid) -> DisplayMessage {
    match ours.decide_tool_call(&SCOPE, conversation_id, tool_call_id, Decision::Approve, claim).await.unwrap() {
        Decided::Claimed(call) => call,
        Decided::Already(_, call) => panic!("{call:?}"),
    }
}

/// The metadata of a call that somebody claimed.
fn claim_of(claim: Uuid) -> Map<String, serde_json::Value> {
    Map::from_iter([("claim".into(), claim.to_string().into())])
}

async fn pending_call(ours: &Store, conversation_id: Uuid) -> String {
    let call = NewDisplayMessage::tool_call(Uuid::now_v7(), "search the web").metadata(metadata());
    ours.append_display_message(&SCOPE, conversation_id, call).await.unwrap().tool_call_id.unwrap()
}

/// A tool call that waits for a decision, and a result that stands for it.
async fn interrupted_call(ours: &Store, conversation_id: Uuid) -> String {
    let call = pending_call(ours, conversation_id).await;
    ours.interrupt_tool_call(&SCOPE, conversation_id, &call, Map::new()).await.unwrap();
    let interrupt = Map::from_iter([("is_interrupt".into(), true.into())]);
    let result = NewDisplayMessage::tool_result(&call, "Waiting").metadata(interrupt);
    ours.append_display_message(&SCOPE, conversation_id, result).await.unwrap();
    call
}

/// The result in the end.
fn answered(call: &str) -> ToolResult {
    ToolResult::new(call, "search the web", ANSWERED)
}

/// What two edits leave alike.
fn edited(call: DisplayMessage) -> impl PartialEq + Debug {
    let decision = call.decision();
    let mut metadata = call.metadata;
    // It has the time.
    metadata.remove("decision");
    (call.sequence, call.content_type, call.status, metadata, decision, call.changed)
}

/// What two calls store alike.
fn shown(items: Vec<DisplayMessage>) -> Vec<impl PartialEq + Debug> {
    let place = |m: &DisplayMessage| (m.sequence, m.message_id, m.item, m.role, m.content_type, m.status);
    items.into_iter().map(|m| (place(&m), m.content, m.metadata, m.tool_call_id)).collect()
}

/// What a message shows, by hand: a text, and the tools that an assistant calls with it.
fn items(message_id: Uuid, said: &Message) -> Vec<NewDisplayMessage> {
    let text = said.content.as_ref().unwrap().text();
    let mut items = vec![NewDisplayMessage::text(Role::Assistant, text).message_id(message_id)];
    for (call, item) in said.tool_calls.iter().zip(1..) {
        let metadata = Map::from_iter([
            ("call_id".into(), call.tool_call_id.as_str().into()),
            ("name".into(), call.name.as_str().into()),
            ("arguments".into(), call.arguments.clone().unwrap()),
            ("display_text".into(), call.display_text.as_deref().into()),
        ]);
        let shown = NewDisplayMessage::tool_call(&call.tool_call_id, &call.name).metadata(metadata);
        items.push(NewDisplayMessage { item, ..shown.message_id(message_id) });
    }
    items
}
