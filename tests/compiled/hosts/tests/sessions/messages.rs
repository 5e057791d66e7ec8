//! Display messages.

use matrix::sagents::session::{SessionEvent, SessionOptions};
use matrix::sagents::{Message, ToolCall};
use serde_json::json;
use uuid::Uuid;

use crate::deep;
use crate::storage::{Fault, Talk};

#[tokio::test(start_paused = true)]
async fn messages_are_displayed_in_order_and_once_despite_failures() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    talk.record.fail([
        Some(Fault::After),
        Some(Fault::Before),
        None,
        Some(Fault::Silence),
        Some(Fault::After),
    ]);
    let mut given = Vec::new();
    for n in 0..10 {
        let mut message = Message::assistant(n.to_string());
        message.tool_calls = vec![ToolCall::new(
            format!("call_{n}"),
            format!("tool {n}"),
            json!({}),
        )];
        given.push(session.add_message(message).unwrap());
    }
    let mut seen = Vec::new();
    while seen.len() < 10 {
        if let SessionEvent::Displayed { message_id, items } = &*events.recv().await.unwrap() {
            let texts: Vec<_> = items.iter().map(|item| item.content.clone()).collect();
            let n = seen.len();
            assert_eq!(texts, [n.to_string(), format!("tool {n}")]);
            assert_eq!(items[0].sequence, 2 * i64::try_from(n).unwrap());
            seen.push(*message_id);
        }
    }
    assert_eq!(seen, given);
    let expected: Vec<_> = (0..10)
        .flat_map(|n| [n.to_string(), format!("tool {n}")])
        .collect();
    assert_eq!(talk.shown().await, expected);
    assert_eq!(talk.coordinator.stats().messages, 10);

    // An id is displayed once, and `display` does not add to the state.
    session
        .display(given[9], Message::assistant("again"))
        .unwrap();
    session
        .display(Uuid::now_v7(), Message::system("only displayed"))
        .unwrap();
    session.save().await.unwrap();
    assert_eq!(talk.shown().await.len(), 21);
    assert_eq!(talk.stored().await.0.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_fails_permanently_does_not_block_others() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    let mut message = Message::assistant("too deep");
    message.tool_calls = vec![ToolCall::new("call_1", "search", deep())];
    let bad = Uuid::now_v7();
    session.display(bad, message).unwrap();
    session.add_message(Message::user("fine")).unwrap();
    let event = events.recv().await.unwrap();
    assert!(
        matches!(&*event, SessionEvent::Failed { message_id: Some(id), retry_in: None, .. } if *id == bad),
        "{event:?}"
    );
    session.save().await.unwrap();
    assert_eq!(talk.shown().await, ["fine"]);
}
