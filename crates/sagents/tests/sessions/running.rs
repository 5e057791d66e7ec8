//! Starting, finding and ending sessions.

use std::sync::Arc;
use std::time::Duration;

use sagents::Error;
use sagents::session::{AutoSave, Coordinator, SessionError, SessionOptions};
use sagents::{Lifecycle, Message, Revision};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{INTERVAL, SECOND, process};
use crate::paused_on_both_databases;
use crate::storage::{Fault, Talk, frozen, said, say, scope, user};
use crate::support::context::NewConversation;
use crate::support::{Kind, TABLES};

paused_on_both_databases!(
    concurrent_starts_share_one_session,
    only_the_owner_finds_a_running_session,
    a_start_without_a_conversation_leaves_no_session,
    an_inactive_session_is_saved_and_ends,
    reading_restarts_the_inactivity_timeout,
    dropping_the_last_handle_saves,
    a_session_without_handles_is_found_until_it_is_saved,
    a_session_starts_only_after_the_previous_one_has_saved,
    shutdown_saves_all_sessions_by_the_deadline_and_returns_the_rest,
    all_sessions_share_one_deadline,
    with_a_deadline_of_zero_stored_sessions_count_as_saved,
    what_is_not_stored_by_the_deadline_is_returned_with_its_error,
    a_start_times_out_and_fails_after_shutdown,
    callers_who_start_one_conversation_give_up_each_at_its_own_time,
    callers_who_wait_for_a_start_that_fails_share_its_error,
    a_session_ends_with_the_runtime_and_returns_an_error,
    callers_that_wait_for_a_cancelled_start_share_the_next_session,
    ; a_runtime_can_shut_down_while_sessions_start
);

async fn concurrent_starts_share_one_session(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let mut starts = tokio::task::JoinSet::new();
    for n in 0..20 {
        let (coordinator, id) = (talk.coordinator.clone(), talk.id);
        starts.spawn(async move {
            let session = coordinator.start(&scope(), id).await.unwrap();
            say(&session, &n.to_string());
            session
        });
    }
    let sessions = starts.join_all().await;
    assert_eq!(talk.record.loads(), 1);
    assert_eq!(talk.coordinator.stats().sessions, 1);
    assert_eq!(sessions[0].read(|state| state.messages.len()), 20);
    assert!(talk.coordinator.find(&scope(), talk.id).unwrap().is_some());
    drop(sessions);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(talk.coordinator.stats().sessions, 0);
    assert!(talk.coordinator.find(&scope(), talk.id).unwrap().is_none());
    assert_eq!(talk.stored().await.0.len(), 20);
}

async fn only_the_owner_finds_a_running_session(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let own = talk.start().await;
    say(&own, "secret");
    let refused = talk.coordinator.start(&user(2), talk.id).await.unwrap_err();
    assert!(matches!(refused, SessionError::Storage(error) if matches!(*error, Error::NotFound)));
    assert!(talk.coordinator.find(&user(2), talk.id).unwrap().is_none());

    // Another owner may have a conversation with the same id.
    let new = NewConversation { id: talk.id, ..NewConversation::new() };
    frozen(talk.layer.create_conversation(&user(2), new)).await.unwrap();
    let other = talk.coordinator.start(&user(2), talk.id).await.unwrap();
    assert_eq!(other.read(|state| state.messages.len()), 0);
    say(&other, "mine");
    let report = talk.coordinator.shutdown(INTERVAL).await;
    assert_eq!((report.saved, report.unsaved.len()), (2, 0));
    assert_eq!(talk.stored().await.0, ["secret"]);
    let others = frozen(talk.layer.load_agent_state(&user(2), talk.id)).await.unwrap();
    assert_eq!(said(&others.state), ["mine"]);
}

async fn a_start_without_a_conversation_leaves_no_session(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let refused = talk.coordinator.start(&scope(), Uuid::now_v7()).await;
    assert!(matches!(refused, Err(SessionError::Storage(error)) if matches!(*error, Error::NotFound)));
    assert_eq!(talk.coordinator.stats().sessions, 0);
}

async fn an_inactive_session_is_saved_and_ends(kind: Kind) {
    let options = SessionOptions { inactivity_timeout: Some(INTERVAL * 20), ..SessionOptions::default() };
    let talk =
        Talk::new(kind, SessionOptions { auto_save: AutoSave { interval: None, ..AutoSave::default() }, ..options })
            .await;
    let session = talk.start().await;
    for _ in 0..3 {
        say(&session, "hello");
        sleep(INTERVAL * 19).await;
    }
    assert_eq!(talk.coordinator.stats().sessions, 1);
    sleep(INTERVAL * 2).await;
    assert_eq!(talk.coordinator.stats().sessions, 0);
    assert_eq!(talk.record.lifecycles(), [Lifecycle::Shutdown]);
    let late = session.change(|_| ()).unwrap_err();
    assert!(matches!(late, SessionError::Ended));
    assert_eq!(session.read(|state| state.messages.len()), 3, "it can still be read");

    let again = talk.start().await;
    assert_eq!(again.read(|state| state.messages.len()), 3);
    drop(session);
    say(&again, "dropping a handle of the ended session does not end this one");
}

async fn reading_restarts_the_inactivity_timeout(kind: Kind) {
    let talk =
        Talk::new(kind, SessionOptions { inactivity_timeout: Some(INTERVAL), ..SessionOptions::default() }).await;
    let session = talk.start().await;
    for _ in 0..5 {
        sleep(INTERVAL * 2 / 3).await;
        session.read(said);
    }
    say(&session, "still there");
}

async fn dropping_the_last_handle_saves(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let other = session.clone();
    say(&session, "hello");
    drop(session);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(talk.record.lifecycles(), [], "there is another handle");
    drop(other);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(talk.record.lifecycles(), [Lifecycle::Shutdown]);
    assert_eq!(talk.stored().await.0, ["hello"]);
}

async fn a_session_without_handles_is_found_until_it_is_saved(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    say(&session, "hello");
    talk.record.fail([Some(Fault::Before); 5]);
    drop(session);
    sleep(Duration::from_secs(3)).await;
    let session = talk.start().await;
    assert_eq!(talk.record.loads(), 1);
    assert_eq!(session.read(said), ["hello"]);
    sleep(INTERVAL * 4).await;
    assert_eq!(talk.stored().await.0, ["hello"]);
    assert_eq!(talk.coordinator.stats().sessions, 1);
}

async fn a_session_starts_only_after_the_previous_one_has_saved(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    say(&session, "hello");
    talk.record.fail([Some(Fault::Before); 4]);
    let end = tokio::spawn(async move { session.shutdown().await });
    sleep(Duration::from_millis(1)).await;
    let again = talk.start().await;
    end.await.unwrap().unwrap();
    assert_eq!(again.read(said), ["hello"]);
    say(&again, "once more");
    again.save().await.unwrap();
    assert_eq!(talk.coordinator.stats().conflicts, 0);
}

async fn shutdown_saves_all_sessions_by_the_deadline_and_returns_the_rest(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let mut sessions = Vec::new();
    for _ in 0..10 {
        let new = frozen(talk.layer.create_conversation(&scope(), NewConversation::new())).await.unwrap();
        let session = talk.coordinator.start(&scope(), new.id).await.unwrap();
        crate::storage::add(&session, Message::user("hello"));
        session.save().await.unwrap();
        say(&session, "unsaved");
        sessions.push(session);
    }
    let last = sessions.pop().unwrap();
    let id = last.conversation_id();
    // The last one has no handle, and its storage fails.
    talk.record.fail([Some(Fault::Before); 1000]);
    last.add_message(Uuid::now_v7(), Message::user("never stored")).unwrap();
    drop(last);
    sleep(Duration::from_secs(1)).await;
    talk.record.forget();
    talk.record.fail([Some(Fault::Silence)]);
    let begin = Instant::now();
    let report = talk.coordinator.shutdown(Duration::from_secs(5)).await;
    assert_eq!(begin.elapsed().as_secs(), 5);
    assert_eq!((report.saved, report.unsaved.len()), (9, 1));
    let unsaved = &report.unsaved[0];
    // Any of the sessions may have got the fault.
    if unsaved.conversation_id == id {
        assert_eq!(unsaved.messages.len(), 1);
    }
    assert!(unsaved.state.is_some());

    let refused = talk.coordinator.start(&scope(), talk.id).await.unwrap_err();
    assert!(matches!(refused, SessionError::Ended));
    sleep(INTERVAL * 4).await;
    assert_eq!(talk.coordinator.stats().sessions, 0, "it was retried after the deadline");
}

async fn all_sessions_share_one_deadline(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let new = NewConversation::new();
        let id = frozen(talk.layer.create_conversation(&scope(), new)).await.unwrap().id;
        let session = talk.coordinator.start(&scope(), id).await.unwrap();
        say(&session, "hello");
        sessions.push(session);
    }
    talk.record.fail([Some(Fault::Silence); 3]);
    let begin = Instant::now();
    let report = talk.coordinator.shutdown(SECOND * 60).await;
    assert_eq!(report.saved, 3);
    assert!(begin.elapsed() < SECOND * 50, "{:?}", begin.elapsed());
}

async fn with_a_deadline_of_zero_stored_sessions_count_as_saved(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    say(&session, "hello");
    session.save().await.unwrap();
    let report = talk.coordinator.shutdown(Duration::ZERO).await;
    assert_eq!((report.saved, report.unsaved.len()), (1, 0));
}

async fn what_is_not_stored_by_the_deadline_is_returned_with_its_error(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    talk.record.fail([Some(Fault::Before); 1000]);
    crate::storage::add(&session, Message::user("hello"));
    let report = talk.coordinator.shutdown(SECOND * 5).await;
    let unsaved = &report.unsaved[0];
    assert!(matches!(unsaved.error, SessionError::Storage(_)), "{}", unsaved.error);
    assert_eq!(said(unsaved.state.as_ref().unwrap()), ["hello"]);
    assert_eq!(unsaved.messages.len(), 1);
}

async fn a_start_times_out_and_fails_after_shutdown(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let gate = talk.record.hold_loads().await;
    let silent = talk.coordinator.start(&scope(), talk.id).await.unwrap_err();
    assert!(matches!(silent, SessionError::TimedOut));
    drop(gate);

    let session = talk.start().await;
    talk.record.fail([Some(Fault::Before); 1000]);
    say(&session, "never stored");
    let ending = session.clone();
    let ending = tokio::spawn(async move { ending.shutdown().await });
    sleep(SECOND).await;
    let late = talk.coordinator.start(&scope(), talk.id).await.unwrap_err();
    assert!(matches!(late, SessionError::TimedOut), "it cannot be saved: {late}");
    assert_eq!(talk.coordinator.shutdown(Duration::ZERO).await.unsaved.len(), 1);
    let refused = talk.coordinator.start(&scope(), talk.id).await.unwrap_err();
    assert!(matches!(refused, SessionError::Ended));
    ending.abort();
}

async fn callers_who_start_one_conversation_give_up_each_at_its_own_time(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let limit = SessionOptions::default().call_timeout;
    let gate = talk.record.hold_loads().await;
    let mut starts = tokio::task::JoinSet::new();
    for n in 0..5 {
        let (coordinator, id) = (talk.coordinator.clone(), talk.id);
        starts.spawn(async move {
            sleep(SECOND * (n / 2)).await;
            let begin = Instant::now();
            let start = coordinator.start(&scope(), id).await;
            (start.map(drop), begin.elapsed())
        });
    }
    for (start, elapsed) in starts.join_all().await {
        assert!(matches!(start, Err(SessionError::TimedOut)));
        assert!(elapsed < limit + SECOND, "{elapsed:?}");
    }
    drop(gate);
    assert_eq!(talk.coordinator.stats().sessions, 0);
    say(&talk.start().await, "hello");
}

async fn callers_who_wait_for_a_start_that_fails_share_its_error(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let gate = talk.record.hold_loads().await;
    talk.record.fail_loads([Some(Fault::Before)]);
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let (coordinator, id) = (talk.coordinator.clone(), talk.id);
        starts.spawn(async move { coordinator.start(&scope(), id).await });
    }
    sleep(SECOND).await;
    drop(gate);
    for start in starts.join_all().await {
        assert!(matches!(start, Err(SessionError::Storage(_))));
    }
    assert_eq!(talk.record.loads(), 1);
    say(&talk.start().await, "hello");
}

async fn a_session_ends_with_the_runtime_and_returns_an_error(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let database = Arc::clone(&talk.database);
    let id = talk.id;
    let session = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store = database.connect(&TABLES).await;
            let coordinator = Coordinator::new(&store);
            let session = coordinator.start(&Arc::new(scope()), id).await.unwrap();
            let message = Message::user("never saved");
            session.change(|state| state.add_message(message)).unwrap();
            session
        })
    });
    let session = frozen(async { tokio::task::spawn_blocking(|| session.join()).await }).await;
    let session = session.unwrap().unwrap();
    let late = session.change(|state| state.add_message(Message::user("too late"))).unwrap_err();
    assert!(matches!(late, SessionError::Ended));
    let ended = session.shutdown().await.unwrap_err();
    assert!(matches!(ended, SessionError::Ended));
    assert_eq!(session.read(said), ["never saved"]);
    assert_eq!(talk.stored().await, (vec![], Revision(0)));
}

fn a_runtime_can_shut_down_while_sessions_start(kind: Kind) {
    let talk = process().block_on(Talk::new(kind, SessionOptions::default()));
    for _ in 0..20 {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (database, id) = (Arc::clone(&talk.database), talk.id);
        runtime.block_on(async move {
            let store = database.connect(&TABLES).await;
            let coordinator = Coordinator::new(&store);
            for _ in 0..8 {
                let coordinator = coordinator.clone();
                tokio::spawn(async move {
                    loop {
                        drop(coordinator.start(&scope(), id).await);
                    }
                });
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        });
        drop(runtime);
    }
}

async fn callers_that_wait_for_a_cancelled_start_share_the_next_session(kind: Kind) {
    for yields in 0..8 {
        let talk = Talk::new(kind, SessionOptions::default()).await;
        let start = || {
            let (coordinator, id) = (talk.coordinator.clone(), talk.id);
            tokio::spawn(async move { coordinator.start(&scope(), id).await.unwrap() })
        };
        let (first, second) = (start(), start());
        for _ in 0..=yields {
            tokio::task::yield_now().await;
        }
        first.abort();
        drop(first.await);
        let third = start();
        let (second, third) = (second.await.unwrap(), third.await.unwrap());
        say(&second, "hello");
        assert_eq!(third.read(said), ["hello"]);
    }
}
