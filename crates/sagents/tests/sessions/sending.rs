//! Messages that a person sends, and partial text.

use sagents::session::{OnConflict, SessionError, SessionEvent, SessionOptions};
use sagents::{Delivery, Message, Revision, State};
use serde_json::{Map, json};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::turns::{deliveries, rows};
use super::{SECOND, by_hand, deep, process};
use crate::paused_on_both_databases;
use crate::storage::{Fault, Talk, said, say, scope};
use crate::support::Kind;

paused_on_both_databases!(
    a_message_that_was_sent_is_saved_and_displayed_once,
    a_message_that_was_sent_is_displayed_between_those_around_it,
    a_message_that_is_refused_leaves_nothing_behind,
    a_message_that_is_refused_leaves_an_unsaved_initial_state_unsaved,
    a_message_is_sent_again_on_the_state_of_another_process,
    partial_text_that_could_not_be_stored_is_displayed_before_what_came_later,
    partial_text_is_stored_at_intervals_and_replaced_by_the_whole,
    ; after_a_crash_display_and_state_agree
);
async fn a_message_that_was_sent_is_saved_and_displayed_once(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    let id = Uuid::now_v7();
    talk.record.fail([Some(Fault::After)]);
    let failed = session.send_message(id, Message::user("hello")).await.unwrap_err();
    assert!(matches!(failed, SessionError::Storage(_)), "{failed}");
    for _ in 0..2 {
        let rows = session.send_message(id, Message::user("hello")).await.unwrap();
        assert_eq!((rows.len(), rows[0].message_id), (1, id));
        assert_eq!(rows[0].delivery, Delivery::Stored);
    }
    assert_eq!(talk.stored().await.0, ["hello"]);
    assert_eq!(talk.shown().await, ["hello"]);
    assert!(session.is_saved());

    // Another process sends it too, and does not know of the first.
    let other = talk.other_process();
    let other = other.start(&scope(), talk.id).await.unwrap();
    session.send_message(Uuid::now_v7(), Message::user("more")).await.unwrap();
    other.send_message(id, Message::user("hello")).await.unwrap();
    other.send_message(Uuid::now_v7(), Message::user("most")).await.unwrap();
    assert_eq!(talk.stored().await.0, ["hello", "more", "most"]);
    assert_eq!(talk.shown().await, ["hello", "more", "most"]);
}

async fn a_message_that_was_sent_is_displayed_between_those_around_it(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    crate::storage::add(&session, Message::user("before"));
    let send = session.send_message(Uuid::now_v7(), Message::user("sent"));
    let add = async { crate::storage::add(&session, Message::user("behind")) };
    let (rows, _) = tokio::join!(send, add);
    rows.unwrap();
    session.save().await.unwrap();
    assert_eq!(talk.shown().await, ["before", "sent", "behind"]);
    assert_eq!(talk.stored().await.0, ["before", "sent", "behind"]);
    assert_eq!(deliveries(&talk).await, [Delivery::Stored; 3]);
}

async fn a_message_that_is_refused_leaves_nothing_behind(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    say(&session, "mine");
    talk.other_process_says("theirs").await;
    let (id, message) = (Uuid::now_v7(), Message::user("sent"));
    for _ in 0..2 {
        let refused = session.send_message(id, message.clone()).await.unwrap_err();
        assert!(matches!(refused, SessionError::Conflict { .. }), "{refused}");
        assert_eq!(session.read(said), ["mine"]);
    }
    assert_eq!(talk.shown().await.len(), 0);
    assert_eq!(talk.stored().await.0, ["theirs"]);

    session.reload().await.unwrap();
    session.send_message(id, message).await.unwrap();
    assert_eq!(talk.stored().await.0, ["theirs", "sent"]);
    assert_eq!(talk.shown().await, ["sent"]);
}

async fn a_message_that_is_refused_leaves_an_unsaved_initial_state_unsaved(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let mut fresh = State::new();
    fresh.add_message(Message::system("initial"));
    let session = talk.coordinator.start_with(&scope(), talk.id, fresh).await.unwrap();
    let mut refused = Message::user("sent");
    refused.metadata = Some(Map::from_iter([("deep".to_owned(), deep())]));
    session.send_message(Uuid::now_v7(), refused.clone()).await.unwrap_err();
    assert_eq!(session.read(said), ["initial"]);
    assert!(!session.is_saved());
    assert_eq!(session.save().await.unwrap(), Revision(1));
    assert!(session.is_saved());
    assert_eq!(talk.stored().await.0, ["initial"]);

    // Nor does it after a reload that found nothing.
    talk.execute("DELETE FROM sagents_agent_states").await;
    session.reload().await.unwrap();
    session.send_message(Uuid::now_v7(), refused).await.unwrap_err();
    assert!(!session.is_saved());
    session.save().await.unwrap();
    assert_eq!(talk.stored().await.0, ["initial"]);
}

async fn a_message_is_sent_again_on_the_state_of_another_process(kind: Kind) {
    for on_conflict in [OnConflict::Report, OnConflict::Reload] {
        let options = SessionOptions { on_conflict, ..SessionOptions::default() };
        let talk = Talk::new(kind, options).await;
        let session = talk.start().await;
        crate::storage::add(&session, Message::assistant("added"));
        if on_conflict == OnConflict::Reload {
            say(&session, "lost");
        }
        talk.other_process_says("theirs").await;
        session.send_message(Uuid::now_v7(), Message::user("sent")).await.unwrap();
        assert_eq!(talk.stored().await.0, ["theirs", "added", "sent"]);
        assert_eq!(session.read(said), ["theirs", "added", "sent"]);
        assert_eq!(talk.shown().await, ["added", "sent"]);
        session.shutdown().await.unwrap();
        assert_eq!(deliveries(&talk).await, [Delivery::Stored; 2]);
    }
}

fn after_a_crash_display_and_state_agree(kind: Kind) {
    let talk = process().block_on(Talk::new(kind, by_hand()));
    let known = process().block_on(async {
        let talk = &talk.reconnected().await;
        let session = talk.start().await;
        crate::storage::add(&session, Message::user("saved"));
        // The save is stored, and neither its reply nor the display of what was sent.
        talk.record.fail([None, Some(Fault::Silence)]);
        let id = Uuid::now_v7();
        let send = session.send_message(id, Message::user("sent"));
        assert!(timeout(SECOND, send).await.is_err());
        id
    });
    process().block_on(async {
        let talk = &talk.reconnected().await;
        assert_eq!(talk.shown().await, ["saved"]);
        assert_eq!(deliveries(talk).await, [Delivery::Unsaved]);
        let session = talk.start().await;
        session.save().await.unwrap();
        assert_eq!(talk.shown().await, ["saved", "sent"]);
        assert_eq!(rows(talk).await[1].message_id, known);
        assert_eq!(deliveries(talk).await, [Delivery::Stored; 2]);
        crate::storage::add(&session, Message::user("forgotten"));
        session.save_draft(Uuid::now_v7(), Message::assistant("half")).unwrap();
        sleep(SECOND * 5).await;
        assert_eq!(talk.shown().await, ["saved", "sent", "forgotten", "half"]);
    });
    process().block_on(async {
        let talk = &talk.reconnected().await;
        let session = talk.start().await;
        let mut events = session.subscribe();
        session.save().await.unwrap();
        assert_eq!(session.read(said), ["saved", "sent"]);
        let expected = [Delivery::Stored, Delivery::Stored, Delivery::Unknown, Delivery::Interrupted];
        assert_eq!(deliveries(talk).await, expected);
        let event = events.recv().await.unwrap();
        assert!(matches!(&*event, SessionEvent::Changed { items } if items.len() == 2));
    });
}

async fn partial_text_that_could_not_be_stored_is_displayed_before_what_came_later(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    talk.record.fail([Some(Fault::Before); 2]);
    for text in ["first", "second"] {
        let message = Message::assistant(text);
        session.save_draft(Uuid::now_v7(), message).unwrap();
        sleep(SECOND * 3 / 2).await;
    }
    sleep(SECOND).await;
    assert_eq!(talk.shown().await, ["first", "second"]);
}

async fn partial_text_is_stored_at_intervals_and_replaced_by_the_whole(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    let id = Uuid::now_v7();
    crate::storage::add(&session, Message::user("question"));
    for text in ["a", "a b", "a b c"] {
        session.save_draft(id, Message::assistant(text)).unwrap();
        sleep(SECOND * 2 / 3).await;
    }
    assert_eq!(talk.shown().await, ["question", "a b"]);
    assert_eq!(rows(&talk).await[1].delivery, Delivery::Draft);
    session.add_message(id, Message::assistant("a b c d")).unwrap();
    session.save().await.unwrap();
    sleep(SECOND * 5).await;
    assert_eq!(talk.shown().await, ["question", "a b c d"]);
    assert_eq!(deliveries(&talk).await, [Delivery::Stored; 2]);
    let mut seen = Vec::new();
    while let Ok(event) = events.try_recv() {
        let event = json!(&*event);
        seen.push(event["type"].as_str().unwrap().to_owned());
        if event["type"] == "draft" {
            assert_eq!(event["message_id"], json!(id));
            assert_eq!(event["items"][0]["content_type"], "text");
        }
    }
    let expected = ["draft", "displayed", "draft", "draft", "displayed", "saved"];
    assert_eq!(seen, expected);

    // What is not finished when the agent stops stays as it is, and is marked.
    session.save_draft(Uuid::now_v7(), Message::assistant("half")).unwrap();
    session.fail_run().unwrap();
    session.save().await.unwrap();
    let last = rows(&talk).await.pop().unwrap();
    assert_eq!((last.content.as_str(), last.delivery), ("half", Delivery::Interrupted));
}
