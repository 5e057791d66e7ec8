//! Display messages.

use sagents::Error;
use sagents::session::{SessionError, SessionEvent, SessionOptions};
use sagents::{Message, ToolCall};
use serde_json::json;
use tokio::time::sleep;
use uuid::Uuid;

use super::{INTERVAL, SECOND, deep};
use crate::paused_on_both_databases;
use crate::storage::{Fault, Talk, frozen, scope};
use crate::support::Kind;

paused_on_both_databases!(
    messages_are_displayed_in_order_and_once_despite_failures,
    a_message_that_fails_permanently_does_not_block_others,
    what_could_not_be_displayed_is_unsaved_at_shutdown,
    a_message_that_is_displayed_in_another_form_is_saved,
    a_message_of_a_session_has_the_id_of_its_display_messages,
);

async fn messages_are_displayed_in_order_and_once_despite_failures(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    talk.record.fail([Some(Fault::After), Some(Fault::Before), None, Some(Fault::Silence), Some(Fault::After)]);
    let mut given = Vec::new();
    for n in 0..10 {
        let mut message = Message::assistant(n.to_string());
        message.tool_calls = vec![ToolCall::new(format!("call_{n}"), format!("tool {n}"), json!({}))];
        given.push(crate::storage::add(&session, message));
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
    let expected: Vec<_> = (0..10).flat_map(|n| [n.to_string(), format!("tool {n}")]).collect();
    assert_eq!(talk.shown().await, expected);
    assert_eq!(talk.coordinator.stats().messages, 10);

    // An id is displayed once, and `display` does not add to the state.
    session.display_message(given[9], Message::assistant("again")).unwrap();
    session.display_message(Uuid::now_v7(), Message::system("only displayed")).unwrap();
    session.save().await.unwrap();
    assert_eq!(talk.shown().await.len(), 21);
    assert_eq!(talk.stored().await.0.len(), 10);
}

async fn a_message_that_fails_permanently_does_not_block_others(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    let bad = Uuid::now_v7();
    session.display_message(bad, too_deep()).unwrap();
    crate::storage::add(&session, Message::user("fine"));
    let event = events.recv().await.unwrap();
    assert!(
        matches!(&*event, SessionEvent::Failed { message_id: Some(id), retry_in: None, .. } if *id == bad),
        "{event:?}"
    );
    session.save().await.unwrap();
    assert_eq!(talk.shown().await, ["fine"]);
}

async fn what_could_not_be_displayed_is_unsaved_at_shutdown(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let bad = Uuid::now_v7();
    session.display_message(bad, too_deep()).unwrap();
    crate::storage::add(&session, Message::user("fine"));
    sleep(SECOND).await;
    session.save().await.unwrap();
    assert!(!session.is_saved());
    let stats = talk.coordinator.stats();
    assert_eq!((stats.unsaved, stats.refused_messages), (1, 1));

    let report = talk.coordinator.shutdown(INTERVAL).await;
    assert_eq!((report.saved, report.unsaved.len()), (0, 1));
    let unsaved = &report.unsaved[0];
    assert!(is_invalid(&unsaved.error), "{}", unsaved.error);
    assert_eq!(unsaved.state, None, "it is stored");
    let messages = &unsaved.messages;
    assert_eq!((messages.len(), messages[0].message_id), (1, bad));
    assert!(messages[0].error.as_ref().is_some_and(is_invalid));
    let ended = session.shutdown().await.unwrap_err();
    assert!(is_invalid(&ended), "{ended}");
    assert_eq!(talk.stored().await.0, ["fine"]);
    assert_eq!(talk.shown().await, ["fine"]);
}

async fn a_message_that_is_displayed_in_another_form_is_saved(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let id = Uuid::now_v7();
    session.display_message(id, too_deep()).unwrap();
    session.set_title("Plans").unwrap();
    sleep(SECOND).await;
    assert!(!session.is_saved());
    session.display_message(id, Message::assistant("short")).unwrap();
    session.shutdown().await.unwrap();
    assert_eq!(talk.shown().await, ["short"]);
    assert_eq!(talk.coordinator.stats().refused_messages, 1);
}

fn too_deep() -> Message {
    let mut message = Message::assistant("too deep");
    message.tool_calls = vec![ToolCall::new("call_1", "search", deep())];
    message
}

fn is_invalid(error: &SessionError) -> bool {
    matches!(error, SessionError::Storage(error) if matches!(**error, Error::Invalid(_)))
}

async fn a_message_of_a_session_has_the_id_of_its_display_messages(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let given: Vec<_> = (0..3).map(|n| crate::storage::add(&session, Message::user(n.to_string()))).collect();
    session.shutdown().await.unwrap();
    let saved = frozen(talk.layer.load_agent_state(&scope(), talk.id)).await.unwrap().state;
    let kept: Vec<_> = (0..3).filter_map(|index| saved.messages.id(index)).collect();
    let shown: Vec<_> = crate::turns::rows(&talk).await.iter().map(|row| row.message_id).collect();
    assert_eq!((&kept, &shown), (&given, &given));
}
