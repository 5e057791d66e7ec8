//! Forks, rewinds, exports and imports, ours and by hand. No message of a fork or a rewind is sent to the client.

use std::time::Duration;

use sagents::{
    ContentType, Delivery, Export, ExportedConversation, ExportedMessage, ExportedUsage, Fork, Message, Point, Role,
    State, Store, Timestamp, ToolCall, ToolResult, ToolStatus,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::hand::{ByHand, Place};
use crate::measure::{BESIDE_HAND, compared, header, measure};
use crate::{SCOPE, metadata};

/// How many messages a conversation has, how many rounds there are, and how many calls a turn has.
const SIZES: [(usize, usize, usize); 2] = [(100, 100, 5), (10_000, 10, 1)];

pub async fn compare_all(place: &impl Place) {
    // Not empty, because statements would be planned for that.
    let (ours, hand) = &place.database("branches", &[vec![100; 100], vec![0; 900]].concat()).await;
    for (messages, ..) in SIZES {
        assert_same(ours, hand, messages).await;
    }
    hand.settle().await;
    header(["call", "ours", "by hand", "ratio", "target"]);
    for (messages, rounds, batch) in SIZES {
        let whole = &conversation(messages);
        let (one, middle) = (imported(ours, whole).await, whole.messages[messages / 2].message_id);
        let (ours_time, hand_time) = measure(
            rounds,
            batch,
            async |_| Uuid::now_v7(),
            async |id| ours.fork_conversation(&SCOPE, one, Fork::at(Point::Through(middle)).id(id)).await.unwrap(),
            async |id| hand.fork(one, id, middle).await,
        )
        .await;
        compared(&format!("fork_conversation, {messages}"), ours_time, hand_time, BESIDE_HAND);
        let (ours_time, hand_time) = measure(
            rounds,
            batch,
            async |_| imported(ours, whole).await,
            async |id| ours.rewind_conversation(&SCOPE, id, Point::Through(middle)).await.unwrap(),
            async |id| hand.rewind(id, middle).await,
        )
        .await;
        compared(&format!("rewind_conversation, {messages}"), ours_time, hand_time, BESIDE_HAND);
        let (ours_time, hand_time) = measure(
            rounds,
            batch,
            async |_| one,
            async |id| exported(ours, id).await,
            async |id| hand.export(id).await,
        )
        .await;
        compared(&format!("export_conversation_to, {messages}"), ours_time, hand_time, BESIDE_HAND);
        let (ours_time, hand_time) = measure(
            rounds,
            batch,
            async |_| file(&copy(whole)),
            async |file| ours.import_conversation_from(&SCOPE, file.as_slice()).await.unwrap().conversation,
            async |file| hand.import(&file).await,
        )
        .await;
        compared(&format!("import_conversation_from, {messages}"), ours_time, hand_time, BESIDE_HAND);
    }
    println!();
}

/// Both sides do alike.
async fn assert_same(ours: &Store, hand: &impl ByHand, messages: usize) {
    let whole = conversation(messages);
    let middle = whole.messages[messages / 2].message_id;
    let (one, other) = (imported(ours, &whole).await, hand.import(&file(&copy(&whole))).await.id);
    assert_eq!(timeless(ours, one).await, timeless(ours, other).await);
    assert_eq!(lines(&exported(ours, one).await), lines(&hand.export(one).await));
    let forked = ours.fork_conversation(&SCOPE, one, Fork::at(Point::Through(middle))).await.unwrap().conversation;
    let by_hand = hand.fork(one, Uuid::now_v7(), middle).await;
    assert_eq!(timeless(ours, forked.id).await, timeless(ours, by_hand.id).await);
    let rewound = ours.rewind_conversation(&SCOPE, one, Point::Through(middle)).await.unwrap();
    assert_eq!(rewound.removed, hand.rewind(other, middle).await);
    assert_eq!(timeless(ours, one).await, timeless(ours, other).await);
}

/// A conversation without its id and the times of calls.
async fn timeless(ours: &Store, id: Uuid) -> Export {
    let mut export = ours.export_conversation(&SCOPE, id).await.unwrap();
    let conversation = &mut export.conversation;
    (conversation.id, conversation.inserted_at) = (Uuid::nil(), Timestamp::MIN);
    conversation.updated_at = Timestamp::MIN;
    export.usage.iter_mut().for_each(|usage| usage.inserted_at = Timestamp::MIN);
    export
}

async fn imported(ours: &Store, whole: &Export) -> Uuid {
    ours.import_conversation(&SCOPE, copy(whole)).await.unwrap().conversation.id
}

async fn exported(ours: &Store, id: Uuid) -> Vec<u8> {
    let mut file = Vec::new();
    ours.export_conversation_to(&SCOPE, id, &mut file).await.unwrap();
    file
}

fn copy(whole: &Export) -> Export {
    let conversation = ExportedConversation { id: Uuid::now_v7(), ..whole.conversation.clone() };
    Export { conversation, ..whole.clone() }
}

fn file(export: &Export) -> Vec<u8> {
    let mut file = Vec::new();
    export.write_to(&mut file).unwrap();
    file
}

fn lines(file: &[u8]) -> Vec<Value> {
    file.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Questions, calls of a tool, its results and answers. Each answer has its usage.
fn conversation(messages: usize) -> Export {
    let time = Timestamp::now() - Duration::from_hours(30 * 24);
    let (mut state, mut shown, mut usage) = (State::new(), Vec::new(), Vec::new());
    for n in 0..messages {
        let (message_id, call_id) = (Uuid::now_v7(), format!("call_{}", n / 4));
        let text = format!("Message {n}: a sentence or two of what a person would write to an agent, or read from it.");
        let call = ToolCall::new(call_id.as_str(), "search", json!({ "query": "the sea", "limit": 10 }));
        let (role, content_type, message) = match n % 4 {
            0 => (Role::User, ContentType::Text, Message::user(text.as_str())),
            1 => (
                Role::Assistant,
                ContentType::ToolCall,
                Message { tool_calls: vec![call], ..Message::assistant(text.as_str()) },
            ),
            2 => (
                Role::Tool,
                ContentType::ToolResult,
                Message::tool_results([ToolResult::new(call_id.as_str(), "search", text.as_str())]),
            ),
            _ => (Role::Assistant, ContentType::Text, Message::assistant(text.as_str())),
        };
        state.messages.push_with_id(message_id, message);
        shown.push(ExportedMessage {
            sequence: i64::try_from(n).unwrap(),
            message_id,
            item: 0,
            role,
            content_type,
            content: text,
            metadata: metadata(),
            tool_call_id: matches!(n % 4, 1 | 2).then_some(call_id),
            status: (n % 4 == 1).then_some(ToolStatus::Completed),
            inserted_at: time,
            delivery: Delivery::Stored,
        });
        if n % 4 == 3 {
            usage.push(ExportedUsage {
                message_id,
                model: Some("a-model".into()),
                input_tokens: 1234,
                output_tokens: 56,
                cached_tokens: 0,
                inserted_at: time,
            });
        }
    }
    let conversation = ExportedConversation {
        id: Uuid::now_v7(),
        title: Some("A conversation".into()),
        metadata: Map::new(),
        interrupted: false,
        inserted_at: time,
        updated_at: time,
        archived_at: None,
        columns: Map::new(),
    };
    Export { conversation, state: Some(state), messages: shown, usage }
}
