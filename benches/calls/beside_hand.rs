//! Each call, ours and by hand. Calls that are the same statement as another one are not called twice: a tool call
//! fails, is interrupted and is cancelled as it is completed.

use std::fmt::Debug;

use chrono::DateTime;
use my_app::conversations::{
    Conversation, ConversationChanges, Conversations, DisplayMessage, HitlDecision, ListConversations, MessagePage,
    NewDisplayMessage, Role, SearchPage, ToolStatus,
};
use my_app::sagents::{Expect, Message, State, ToolResult};
use serde_json::Map;
use uuid::Uuid;

use crate::database::{ByHand, Place, settle};
use crate::measure::{BESIDE_HAND, compare, header};
use crate::{SCOPE, answer, id, metadata, new_conversation, new_message};

const ANSWERED: &str = "What a tool answered in the end.";

pub async fn compare_all(place: &Place) {
    let pool = place.database("calls", &[vec![100; 10], vec![0; 190]].concat()).await;
    let (ours, hand) = (&Conversations::new(pool.clone()), &ByHand(pool));
    assert_answers(ours, hand).await;

    header(["call", "ours", "by hand", "ratio", "target"]);
    conversation_calls(ours, hand).await;
    message_calls(ours, hand).await;
    tool_calls(ours, hand).await;
    rescue_calls(ours, hand).await;
    println!();
}

/// Both sides answer alike.
async fn assert_answers(ours: &Conversations, hand: &ByHand) {
    let (one, list, new) = (id(0), ListConversations::default, &new_conversation());
    assert_eq!(ours.get_conversation(&SCOPE, one).await.unwrap(), hand.get(one).await);
    assert_eq!(ours.list_conversations(&SCOPE, list()).await.unwrap().items, hand.list().await);
    let page = ours.load_display_messages(&SCOPE, one, MessagePage::first()).await.unwrap();
    assert_eq!(page.items, hand.page(one).await);
    assert_eq!(
        ours.search_messages(&SCOPE, "MESSAGE 77", SearchPage::first().limit(20)).await.unwrap().items,
        hand.search("MESSAGE 77").await
    );
    assert_eq!(ours.create_conversation(&SCOPE, new.clone()).await.unwrap(), hand.create(new.clone()).await);
    assert_eq!(
        timeless(renamed(ours, new.id).await),
        timeless(hand.update(new.id, "Another".into(), metadata()).await)
    );
    let interrupted = ours.set_interrupted(&SCOPE, new.id, true).await.unwrap();
    assert_eq!(timeless(interrupted), timeless(hand.set_interrupted(new.id, true).await));

    let (said, message_id) = (&answer(), Uuid::now_v7());
    let saved = ours.save_message(&SCOPE, id(1), message_id, said).await.unwrap();
    assert_eq!(shown(saved), shown(hand.append(id(2), items(message_id, said)).await));
    let (call, other) = (&interrupted_call(ours, id(1)).await, &interrupted_call(ours, id(2)).await);
    let decided = ours.record_hitl_decision(&SCOPE, id(1), call, HitlDecision::Approved).await.unwrap();
    assert_eq!(edited(decided), edited(hand.approve(id(2), other).await));
    let executing = ours.mark_tool_executing(&SCOPE, id(1), call).await.unwrap();
    assert_eq!(edited(executing), edited(hand.change_tool_call(id(2), other, ToolStatus::Executing, Map::new()).await));
    let completed = ours.complete_tool_call(&SCOPE, id(1), call, metadata()).await.unwrap();
    assert_eq!(edited(completed), edited(hand.change_tool_call(id(2), other, ToolStatus::Completed, metadata()).await));
    let resolved = ours.resolve_interrupted_tool_result(&SCOPE, id(1), &answered(call)).await.unwrap();
    let by_hand = hand.resolve(id(2), other, ANSWERED).await;
    assert_eq!((resolved.content, resolved.is_error), (by_hand.content, by_hand.is_error));
    let cleared = ours.clear_display_messages(&SCOPE, id(1)).await.unwrap();
    assert_eq!(cleared, hand.clear(id(2)).await);
}

async fn conversation_calls(ours: &Conversations, hand: &ByHand) {
    let (one, list, target) = (id(0), ListConversations::default, BESIDE_HAND);
    let created = async |_| ours.create_conversation(&SCOPE, new_conversation()).await.unwrap().id;
    compare(
        "delete_conversations_before",
        target,
        async |_| DateTime::UNIX_EPOCH,
        async |cutoff| ours.delete_conversations_before(cutoff).await.unwrap(),
        async |cutoff| hand.delete_before(cutoff).await,
    )
    .await;
    compare(
        "create_conversation",
        target,
        async |_| new_conversation(),
        async |new| ours.create_conversation(&SCOPE, new).await.unwrap(),
        async |new| hand.create(new).await,
    )
    .await;
    compare(
        "get_conversation",
        target,
        async |_| one,
        async |id| ours.get_conversation(&SCOPE, id).await.unwrap(),
        async |id| hand.get(id).await,
    )
    .await;
    compare(
        "update_conversation",
        target,
        async |_| one,
        async |id| renamed(ours, id).await,
        async |id| hand.update(id, "Another".into(), metadata()).await,
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
    compare(
        "archive_conversation",
        target,
        async |_| id(3),
        async |id| ours.archive_conversation(&SCOPE, id).await.unwrap(),
        async |id| hand.archive(id).await,
    )
    .await;
    compare(
        "usage",
        target,
        async |_| one,
        async |id| ours.usage(&SCOPE, id).await.unwrap(),
        async |id| hand.usage(id).await,
    )
    .await;
    compare(
        "delete_conversation",
        target,
        created,
        async |id| ours.delete_conversation(&SCOPE, id).await.unwrap(),
        async |id| hand.delete(id).await,
    )
    .await;
    compare(
        "list_conversations, 50",
        target,
        async |_| (),
        async |()| ours.list_conversations(&SCOPE, list()).await.unwrap(),
        async |()| hand.list().await,
    )
    .await;
}

async fn message_calls(ours: &Conversations, hand: &ByHand) {
    let (one, target) = (id(0), BESIDE_HAND);
    let filled = async |_| {
        let id = ours.create_conversation(&SCOPE, new_conversation()).await.unwrap().id;
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
    // In front of the calls that store what would be searched.
    compare(
        "search_messages",
        target,
        async |_| "MESSAGE 77",
        async |text| ours.search_messages(&SCOPE, text, SearchPage::first().limit(20)).await.unwrap(),
        async |text| hand.search(text).await,
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

async fn tool_calls(ours: &Conversations, hand: &ByHand) {
    let (one, target) = (id(0), BESIDE_HAND);
    let pending = async |_| pending_call(ours, one).await;
    let interrupted = async |_| interrupted_call(ours, one).await;
    compare(
        "mark_tool_executing",
        target,
        pending,
        async |call| ours.mark_tool_executing(&SCOPE, one, &call).await.unwrap(),
        async |call| hand.change_tool_call(one, &call, ToolStatus::Executing, Map::new()).await,
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
        "record_hitl_decision",
        target,
        interrupted,
        async |call| ours.record_hitl_decision(&SCOPE, one, &call, HitlDecision::Approved).await.unwrap(),
        async |call| hand.approve(one, &call).await,
    )
    .await;
    compare(
        "resolve_interrupted_tool_result",
        target,
        interrupted,
        async |call| ours.resolve_interrupted_tool_result(&SCOPE, one, &answered(&call)).await.unwrap(),
        async |call| hand.resolve(one, &call, ANSWERED).await,
    )
    .await;
}

/// The calls for states that were set aside, with small ones.
async fn rescue_calls(ours: &Conversations, hand: &ByHand) {
    let target = BESIDE_HAND;
    // The first epoch is aside.
    let epoch = 0;
    let set_aside = async |_| {
        let id = ours.create_conversation(&SCOPE, new_conversation()).await.unwrap().id;
        let mut state = State::new();
        state.add_messages([Message::user("Hello!"), answer()]);
        let revision = ours.save_agent_state(&SCOPE, id, &state, Expect::Any).await.unwrap();
        ours.save_agent_state(&SCOPE, id, &State::new(), Expect::Unreadable(revision)).await.unwrap();
        id
    };
    // Tables that were empty when statements were planned for them are read as a whole.
    for n in 0..500 {
        set_aside(n).await;
    }
    settle(&hand.0).await;
    let one = set_aside(0).await;
    let aside = ours.load_unreadable(&SCOPE, one, epoch).await.unwrap();
    let messages = aside.messages.into_iter().map(|message| message.data).collect();
    assert_eq!((aside.header, messages), hand.load_unreadable(one, epoch).await);
    compare(
        "load_unreadable",
        target,
        set_aside,
        async |id| ours.load_unreadable(&SCOPE, id, epoch).await.unwrap(),
        async |id| hand.load_unreadable(id, epoch).await,
    )
    .await;
    compare(
        "restore_unreadable",
        target,
        set_aside,
        async |id| ours.restore_unreadable(&SCOPE, id, epoch).await.unwrap(),
        async |id| hand.restore_unreadable(id, epoch).await,
    )
    .await;
    compare(
        "discard_unreadable",
        target,
        set_aside,
        async |id| ours.discard_unreadable(&SCOPE, id, epoch).await.unwrap(),
        async |id| hand.discard_unreadable(id, epoch).await,
    )
    .await;
}

async fn renamed(ours: &Conversations, id: Uuid) -> Conversation {
    let changes = ConversationChanges::default().title("Another").metadata(metadata());
    ours.update_conversation(&SCOPE, id, changes).await.unwrap()
}

async fn pending_call(ours: &Conversations, conversation_id: Uuid) -> String {
    let call = NewDisplayMessage::tool_call(Uuid::now_v7(), "search the web").metadata(metadata());
    ours.append_display_message(&SCOPE, conversation_id, call).await.unwrap().tool_call_id.unwrap()
}

/// A tool call and a result that stands for an interrupt.
async fn interrupted_call(ours: &Conversations, conversation_id: Uuid) -> String {
    let call = pending_call(ours, conversation_id).await;
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
    (call.sequence, call.content_type, call.status, call.metadata, call.changed)
}

/// A conversation without the time of its last change.
fn timeless(conversation: Conversation) -> Conversation {
    Conversation { updated_at: conversation.inserted_at, ..conversation }
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
            ("call_id".into(), call.call_id.as_str().into()),
            ("name".into(), call.name.as_str().into()),
            ("arguments".into(), call.arguments.clone().unwrap()),
            ("display_text".into(), call.display_text.as_deref().into()),
        ]);
        let shown = NewDisplayMessage::tool_call(&call.call_id, &call.name).metadata(metadata);
        items.push(NewDisplayMessage { item, ..shown.message_id(message_id) });
    }
    items
}

/// The statuses that allow a change of the status, by hand.
pub fn before(status: ToolStatus) -> &'static [&'static str] {
    match status {
        ToolStatus::Executing => &["pending", "interrupted"],
        _ => &["pending", "executing", "interrupted"],
    }
}

/// A pattern of a letter in whatever case, by hand.
pub fn either_case(c: char) -> String {
    if c.is_alphabetic() { format!("[{}{}]", c.to_lowercase(), c.to_uppercase()) } else { c.to_string() }
}
