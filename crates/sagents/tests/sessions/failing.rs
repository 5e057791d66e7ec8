//! Transient failures are retried, permanent ones are not.

use std::time::Duration;

use sagents::Error;
use sagents::session::{SessionError, SessionEvent, SessionOptions};
use sagents::{Message, Revision};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{INTERVAL, SECOND, deep, slow};
use crate::paused_on_both_databases;
use crate::storage::{Fault, Talk, frozen, say, scope};
use crate::support::Kind;
use crate::support::context::NewConversation;

paused_on_both_databases!(
    a_failed_save_is_retried_with_growing_delays,
    a_save_whose_reply_was_lost_is_stored_once,
    a_state_that_cannot_be_stored_is_saved_once_it_can,
    a_permanent_failure_is_tried_again_on_request,
    a_change_after_a_permanent_failure_is_saved,
    a_caller_who_waits_skips_the_backoff,
    sessions_that_fail_together_do_not_retry_together,
    a_session_retries_soon_and_once_after_another_one_has_stored_something,
    the_backoff_is_reset_after_a_success,
    constraint_violations_are_permanent_and_missing_tables_transient,
    a_session_ends_after_its_pool_was_closed,
    a_message_that_fails_does_not_block_the_state,
);

async fn a_failed_save_is_retried_with_growing_delays(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    talk.record.fail([Some(Fault::Before); 8]);
    say(&session, "old");
    let begin = Instant::now();
    let failed = session.save().await.unwrap_err();
    assert!(matches!(failed, SessionError::Storage(_)), "{failed}");
    say(&session, "new");

    let mut delays = Vec::new();
    loop {
        match &*events.recv().await.unwrap() {
            SessionEvent::Failed { retry_in, .. } => delays.push(retry_in.unwrap()),
            SessionEvent::Saved { revision, .. } => break assert_eq!(*revision, Revision(1)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(delays.len(), 8);
    assert!(delays.windows(2).all(|pair| pair[0] <= pair[1]), "{delays:?}");
    assert!(delays[0] <= Duration::from_millis(500) && delays[7] <= INTERVAL, "{delays:?}");
    assert!(begin.elapsed() >= delays.iter().sum::<Duration>());
    let stats = talk.coordinator.stats();
    assert_eq!(stats.failures, 8);
    let last = stats.last_error.unwrap();
    assert_eq!(last.conversation_id, talk.id);
    assert!(last.error.contains("pool timed out"), "{last:?}");

    sleep(INTERVAL).await;
    assert_eq!(talk.stored().await, (vec!["old".into(), "new".into()], Revision(2)));
    let stats = talk.coordinator.stats();
    assert_eq!((stats.saves, stats.unsaved), (2, 0));
}

async fn a_save_whose_reply_was_lost_is_stored_once(kind: Kind) {
    for fault in [Fault::After, Fault::Silence] {
        let talk = Talk::new(kind, SessionOptions::default()).await;
        let session = talk.start().await;
        talk.record.fail([Some(fault)]);
        say(&session, "first");
        let failed = session.save().await.unwrap_err();
        assert_eq!(matches!(failed, SessionError::TimedOut), fault == Fault::Silence);
        say(&session, "second");
        sleep(Duration::from_secs(100)).await;
        let saves = talk.record.saves();
        assert_eq!(saves[0].write_id, saves[1].write_id, "the same save, {fault:?}");
        assert_eq!((saves[0].reply, saves[1].reply), (None, Some(Revision(1))));
        assert_eq!(talk.stored().await, (vec!["first".into(), "second".into()], Revision(2)));
        assert_eq!(talk.coordinator.stats().conflicts, 0);
    }
}

async fn a_state_that_cannot_be_stored_is_saved_once_it_can(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    say(&session, "hello");
    session.change(|state| state.put_metadata("deep", deep())).unwrap();
    let refused = session.save().await.unwrap_err();
    assert!(refused.to_string().contains("state.metadata.deep"), "{refused}");
    sleep(INTERVAL * 10).await;
    assert_eq!(talk.record.saves().len(), 1, "a permanent failure is not retried");
    session.change(|state| state.metadata.remove("deep")).unwrap();
    sleep(INTERVAL * 2).await;
    assert_eq!(talk.stored().await.0, ["hello"]);
}

async fn a_permanent_failure_is_tried_again_on_request(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    session.change(|state| state.put_metadata("deep", deep())).unwrap();
    session.save().await.unwrap_err();
    session.save().await.unwrap_err();
    assert_eq!(talk.record.saves().len(), 2);
    session.shutdown().await.unwrap_err();
    assert_eq!(talk.record.saves().len(), 3);
}

async fn a_change_after_a_permanent_failure_is_saved(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let gate = talk.record.hold_saves().await;
    session.change(|state| state.put_metadata("deep", deep())).unwrap();
    session.complete_run().unwrap();
    sleep(SECOND).await;
    say(&session, "during the save");
    drop(gate);
    sleep(SECOND).await;
    session.change(|state| state.metadata.remove("deep")).unwrap();
    sleep(INTERVAL * 2).await;
    assert_eq!(talk.stored().await.0, ["during the save"]);
}

async fn a_caller_who_waits_skips_the_backoff(kind: Kind) {
    let talk = Talk::new(kind, slow()).await;
    let session = talk.start().await;
    let begin = Instant::now();
    talk.record.fail([Some(Fault::Before)]);
    crate::storage::add(&session, Message::user("first"));
    session.save().await.unwrap_err(); // the message
    session.save().await.unwrap();
    talk.record.fail([Some(Fault::Before)]);
    say(&session, "second");
    session.save().await.unwrap_err(); // the state
    session.save().await.unwrap();
    talk.record.fail([Some(Fault::Before)]);
    say(&session, "third");
    session.save().await.unwrap_err();
    session.reload().await.unwrap();
    talk.record.fail([Some(Fault::Before)]);
    say(&session, "fourth");
    session.save().await.unwrap_err();
    session.shutdown().await.unwrap();
    assert!(begin.elapsed() < SECOND, "{:?}", begin.elapsed());
}

async fn sessions_that_fail_together_do_not_retry_together(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let mut delays = Vec::new();
    for last in [0_u8, 128, 255] {
        let mut id = *Uuid::now_v7().as_bytes();
        id[15] = last;
        let new = NewConversation { id: Uuid::from_bytes(id), ..NewConversation::new() };
        let id = frozen(talk.layer.create_conversation(&scope(), new)).await.unwrap().id;
        let session = talk.coordinator.start(&scope(), id).await.unwrap();
        let mut events = session.subscribe();
        talk.record.fail([Some(Fault::Before)]);
        say(&session, "hello");
        session.save().await.unwrap_err();
        let event = events.recv().await.unwrap();
        let SessionEvent::Failed { retry_in: Some(delay), .. } = &*event else { panic!("{event:?}") };
        delays.push(delay.as_millis());
    }
    assert_eq!(delays, [250, 375, 500]);
}

async fn a_session_retries_soon_and_once_after_another_one_has_stored_something(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let (one, other) = (talk.start().await, talk.start_another().await);
    let failures = || talk.coordinator.stats().failures;
    for write in [false, true] {
        let before = failures();
        talk.record.fail([Some(Fault::Before); 8]);
        if write {
            one.display_message(Uuid::now_v7(), Message::user("hello")).unwrap();
        } else {
            say(&one, "hello");
            one.save().await.unwrap_err();
        }
        while failures() < before + 8 {
            sleep(SECOND / 10).await;
        }
        // The next retry is half of the longest delay away, at least.
        sleep(SECOND * 2).await;
        if write {
            say(&other, "hello");
        } else {
            let message = Message::user("hello");
            other.display_message(Uuid::now_v7(), message).unwrap();
        }
        other.save().await.unwrap();
        talk.record.fail([Some(Fault::Before)]);
        sleep(SECOND).await;
        assert_eq!(failures(), before + 9, "it retried");
        say(&other, "hello");
        other.save().await.unwrap();
        sleep(SECOND).await;
        assert!(!one.is_saved(), "once until a success");
        sleep(INTERVAL).await;
        assert!(one.is_saved());
    }
}

async fn the_backoff_is_reset_after_a_success(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    let mut delays = Vec::new();
    for _ in 0..2 {
        talk.record.fail([Some(Fault::Before); 4]);
        say(&session, "hello");
        session.save().await.unwrap_err();
        sleep(INTERVAL).await;
        talk.record.fail([Some(Fault::Before); 4]);
        session.display_message(Uuid::now_v7(), Message::user("hello")).unwrap();
        sleep(INTERVAL).await;
    }
    while let Ok(event) = events.try_recv() {
        if let SessionEvent::Failed { retry_in, .. } = &*event {
            delays.push(retry_in.unwrap());
        }
    }
    assert_eq!(delays.len(), 16);
    assert_eq!(delays[..4], delays[8..12]);
    assert_eq!(delays[4..8], delays[12..]);
}

async fn constraint_violations_are_permanent_and_missing_tables_transient(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let failure = async |sql: &'static str| {
        let error = frozen(talk.try_execute(sql)).await.unwrap_err();
        Error::Database(error).status_code()
    };
    let violation = "UPDATE sagents_conversations SET next_sequence = NULL";
    assert_eq!(failure(violation).await, 500);
    assert_eq!(failure("SELECT * FROM nowhere").await, 503);
}

async fn a_session_ends_after_its_pool_was_closed(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    crate::storage::add(&session, Message::user("hello"));
    session.save().await.unwrap();
    say(&session, "never stored");
    talk.close().await;
    let ended = session.shutdown().await.unwrap_err();
    assert!(matches!(ended, SessionError::Storage(_)), "{ended}");
    assert_eq!(talk.coordinator.stats().sessions, 0);
}

async fn a_message_that_fails_does_not_block_the_state(kind: Kind) {
    let talk = Talk::new(kind, slow()).await;
    let session = talk.start().await;
    talk.record.fail([Some(Fault::Before)]);
    crate::storage::add(&session, Message::user("hello"));
    sleep(INTERVAL * 2).await;
    assert_eq!(talk.shown().await.len(), 0);
    assert_eq!(talk.stored().await.0, ["hello"]);
}
