//! Two processes with the same conversation.

use std::time::Duration;

use sagents::Revision;
use sagents::session::{OnConflict, SessionError, SessionEvent, SessionOptions};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{INTERVAL, SECOND};
use crate::paused_on_both_databases;
use crate::storage::{Fault, Talk, frozen, said, say, scope};
use crate::support::Kind;

paused_on_both_databases!(
    a_save_of_another_process_is_reported_and_never_overwritten,
    an_unresolved_conflict_is_returned_by_shutdown,
    a_conflict_during_shutdown_is_reported_even_with_on_conflict_reload,
    a_save_that_a_reload_replaced_is_not_acknowledged,
    with_on_conflict_reload_a_session_loads_the_save_of_another_process,
    concurrent_reloads_all_return,
    a_reload_keeps_the_agent_id,
    a_reload_without_a_stored_state_saves_the_own_state,
    a_reload_that_was_cancelled_replaces_nothing,
    a_failed_load_is_retried_only_with_on_conflict_reload,
    a_reload_of_a_damaged_state_sets_it_aside_and_saves_the_own_state,
    the_interrupted_flag_is_written_again_after_a_reload,
);

async fn a_save_of_another_process_is_reported_and_never_overwritten(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    say(&session, "mine");
    let mut events = session.subscribe();
    let current = talk.other_process_says("theirs").await;
    sleep(INTERVAL * 10).await;
    assert_eq!(talk.record.saves().len(), 1, "a conflict is not retried");
    let event = events.recv().await.unwrap();
    assert!(matches!(&*event, SessionEvent::Conflict { current: reported } if *reported == current), "{event:?}");
    say(&session, "more of mine");
    let refused = session.save().await.unwrap_err();
    assert!(matches!(refused, SessionError::Conflict { .. }), "{refused}");
    assert_eq!(talk.stored().await.0, ["theirs"]);

    let replaced = session.reload().await.unwrap().unwrap();
    assert_eq!(said(&replaced), ["mine", "more of mine"]);
    assert_eq!(session.read(said), ["theirs"]);
    session.change(|state| state.messages.extend(replaced.messages.clone())).unwrap();
    session.save().await.unwrap();
    assert_eq!(talk.stored().await.0, ["theirs", "mine", "more of mine"]);
    assert_eq!(talk.coordinator.stats().conflicts, 1);
}

async fn an_unresolved_conflict_is_returned_by_shutdown(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    say(&session, "mine");
    talk.other_process_says("theirs").await;
    let refused = session.shutdown().await.unwrap_err();
    assert!(matches!(refused, SessionError::Conflict { .. }), "{refused}");
    assert_eq!(said(&session.export_state()), ["mine"]);
    assert_eq!(talk.stored().await.0, ["theirs"]);
    assert_eq!(talk.start().await.read(said), ["theirs"]);
}

async fn a_conflict_during_shutdown_is_reported_even_with_on_conflict_reload(kind: Kind) {
    let options = SessionOptions { on_conflict: OnConflict::Reload, ..SessionOptions::default() };
    let talk = Talk::new(kind, options).await;
    let session = talk.start().await;
    say(&session, "mine");
    talk.other_process_says("theirs").await;
    let mut events = session.subscribe();
    let refused = session.shutdown().await.unwrap_err();
    assert!(matches!(refused, SessionError::Conflict { .. }), "{refused}");
    assert_eq!(said(&session.export_state()), ["mine"]);
    assert!(matches!(&*events.recv().await.unwrap(), SessionEvent::Conflict { .. }));
    let ended = events.recv().await.unwrap();
    assert!(matches!(&*ended, SessionEvent::Ended { unsaved: Some(_), .. }), "{ended:?}");
    assert!(events.recv().await.is_err(), "`Ended` is the last event");
    assert!(session.subscribe().recv().await.is_err());

    let session = talk.start().await;
    say(&session, "mine again");
    talk.other_process_says("theirs again").await;
    let report = talk.coordinator.shutdown(INTERVAL).await;
    assert_eq!((report.saved, report.unsaved.len()), (0, 1));
    assert_eq!(talk.stored().await.0, ["theirs", "theirs again"]);
}

async fn a_save_that_a_reload_replaced_is_not_acknowledged(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    talk.other_process_says("theirs").await;
    say(&session, "mine");
    let (saved, reloaded) = tokio::join!(session.save(), session.reload());
    assert!(matches!(saved, Err(SessionError::Conflict { .. })));
    assert_eq!(said(&reloaded.unwrap().unwrap()), ["mine"]);
    assert_eq!(session.read(said), ["theirs"]);
}

async fn with_on_conflict_reload_a_session_loads_the_save_of_another_process(kind: Kind) {
    let options = SessionOptions { on_conflict: OnConflict::Reload, ..SessionOptions::default() };
    let talk = Talk::new(kind, options).await;
    let session = talk.start().await;
    session.change(|state| state.extensions.insert(7_u8)).unwrap();
    say(&session, "mine");
    talk.other_process_says("theirs").await;
    let mut events = session.subscribe();
    let refused = session.save().await.unwrap_err();
    assert!(matches!(refused, SessionError::Conflict { .. }), "{refused}");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(session.read(said), ["theirs"]);
    assert_eq!(session.read(|state| state.extensions.get::<u8>().copied()), Some(7));
    assert!(matches!(&*events.recv().await.unwrap(), SessionEvent::Conflict { .. }));
    let event = events.recv().await.unwrap();
    let SessionEvent::Reloaded { revision: Revision(1), unsaved: Some(unsaved) } = &*event else {
        panic!("{event:?}");
    };
    assert_eq!(said(unsaved), ["mine"]);
    say(&session, "after it");
    session.shutdown().await.unwrap();
    assert_eq!(talk.stored().await.0, ["theirs", "after it"]);
}

async fn concurrent_reloads_all_return(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let (one, other) = tokio::join!(session.reload(), session.reload());
    assert!(one.is_ok() && other.is_ok());
}

async fn a_reload_keeps_the_agent_id(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let agent = session.read(|state| state.agent_id.clone());
    assert!(agent.is_some());
    talk.other_process_says("theirs").await;
    session.reload().await.unwrap();
    assert_eq!(session.read(|state| state.agent_id.clone()), agent);
}

async fn a_reload_without_a_stored_state_saves_the_own_state(kind: Kind) {
    for on_conflict in [OnConflict::Report, OnConflict::Reload] {
        let talk = Talk::new(kind, SessionOptions { on_conflict, ..SessionOptions::default() }).await;
        let session = talk.start().await;
        say(&session, "hello");
        session.save().await.unwrap();
        talk.execute("DELETE FROM sagents_agent_states").await;
        session.reload().await.unwrap();
        sleep(INTERVAL * 2).await;
        assert_eq!(talk.stored().await.0, ["hello"]);
    }
}

async fn a_reload_that_was_cancelled_replaces_nothing(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    talk.other_process_says("theirs").await;
    say(&session, "mine");
    let gate = talk.record.hold_loads().await;
    let cancelled = timeout(SECOND, session.reload()).await;
    assert!(cancelled.is_err());
    drop(gate);
    sleep(SECOND).await;
    assert_eq!(session.read(said), ["mine"]);
}

async fn a_failed_load_is_retried_only_with_on_conflict_reload(kind: Kind) {
    for (on_conflict, retries) in [(OnConflict::Report, false), (OnConflict::Reload, true)] {
        let talk = Talk::new(kind, SessionOptions { on_conflict, ..SessionOptions::default() }).await;
        let session = talk.start().await;
        say(&session, "mine");
        talk.other_process_says("theirs").await;
        let mut events = session.subscribe();
        talk.record.fail_loads([Some(Fault::Before)]);
        session.save().await.unwrap_err();
        assert!(matches!(&*events.recv().await.unwrap(), SessionEvent::Conflict { .. }));
        if !retries {
            session.reload().await.unwrap_err();
        }
        let event = events.recv().await.unwrap();
        let SessionEvent::Failed { retry_in, .. } = &*event else {
            panic!("{event:?}");
        };
        assert_eq!(retry_in.is_some(), retries);
        sleep(INTERVAL).await;
        let known = if retries { "theirs" } else { "mine" };
        assert_eq!(session.read(said), [known]);
    }
}

async fn a_reload_of_a_damaged_state_sets_it_aside_and_saves_the_own_state(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    say(&session, "hello");
    session.save().await.unwrap();
    let damage = r#"{"version":2,"state":{"messages":[{"role":"robot"}]}}"#;
    talk.store(damage).await;
    assert!(session.reload().await.unwrap().is_none());
    sleep(INTERVAL * 2).await;
    assert_eq!(talk.stored().await.0, ["hello"]);
    let aside = frozen(talk.layer.load_unreadable_state(&scope(), talk.id, 0)).await.unwrap();
    assert_eq!(String::from_utf8(aside.header).unwrap(), damage);
}

async fn the_interrupted_flag_is_written_again_after_a_reload(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    session.wait_run(json!(1)).unwrap();
    session.save().await.unwrap();
    frozen(talk.layer.set_interrupted(&scope(), talk.id, false)).await.unwrap();
    session.reload().await.unwrap();
    session.wait_run(json!(2)).unwrap();
    session.save().await.unwrap();
    let conversation = frozen(talk.layer.get_conversation(&scope(), talk.id)).await.unwrap();
    assert!(conversation.interrupted);
}
