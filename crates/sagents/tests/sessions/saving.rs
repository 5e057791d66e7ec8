//! When a state is saved, and with which state a session starts.

use std::time::Duration;

use sagents::Error;
use sagents::session::{AgentSession, AutoSave, SessionError, SessionEvent, SessionOptions};
use sagents::{Lifecycle, Message, State};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{INTERVAL, SECOND, by_hand};
use crate::paused_on_both_databases;
use crate::storage::{Fault, Talk, frozen, said, say, scope};
use crate::support::Kind;

paused_on_both_databases!(
    many_changes_are_one_save_and_none_follows,
    a_change_waits_for_at_most_one_interval,
    the_saves_of_many_sessions_are_spread_over_the_interval,
    a_few_sessions_save_at_once_and_the_others_go_on_to_display,
    a_save_may_wait_for_its_turn_as_long_as_others_save,
    every_lifecycle_reaches_the_storage,
    without_auto_save_nothing_is_saved,
    changes_do_not_wait_for_saves_and_saves_never_overlap,
    a_save_requested_before_a_retry_follows_the_retry,
    a_save_requested_without_a_change_is_dropped,
    a_message_is_displayed_before_its_state_is_saved,
    an_initial_state_is_saved_after_an_interval,
    a_session_starts_with_the_given_state_and_sets_a_damaged_one_aside,
    a_change_that_panics_does_not_end_the_session,
    a_change_may_drop_a_handle,
    the_conversation_is_marked_while_the_agent_is_interrupted,
    extreme_options_are_accepted,
);

async fn many_changes_are_one_save_and_none_follows(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    sleep(INTERVAL * 10).await;
    assert_eq!(talk.record.lifecycles(), [], "nothing has changed yet");

    for n in 0..1000 {
        say(&session, &n.to_string());
    }
    sleep(INTERVAL / 2).await;
    assert_eq!(talk.record.lifecycles(), [], "the interval is not over");
    sleep(INTERVAL).await;
    assert_eq!(talk.record.lifecycles(), [Lifecycle::Interval]);
    assert_eq!(talk.stored().await.0.len(), 1000);
    assert!(session.is_saved());

    sleep(INTERVAL * 100).await;
    assert_eq!(talk.record.saves().len(), 1, "nothing has changed since");
}

async fn a_change_waits_for_at_most_one_interval(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    for n in 0..90 {
        say(&session, &n.to_string());
        sleep(Duration::from_millis(990)).await;
    }
    sleep(INTERVAL).await;
    let lengths: Vec<_> = talk.record.saves().iter().map(|save| save.state.messages.len()).collect();
    assert_eq!(lengths, [31, 61, 90]);
}

async fn the_saves_of_many_sessions_are_spread_over_the_interval(kind: Kind) {
    const PARTS: u32 = 10;
    let talk = Talk::new(kind, SessionOptions::default()).await;
    sleep(SECOND * 7).await;
    let mut sessions = Vec::new();
    for _ in 0..10 * PARTS {
        sessions.push(talk.start_another().await);
    }
    for round in 1..=2 {
        for session in &sessions {
            say(session, "hello");
        }
        let mut saved = talk.record.saves().len();
        for _ in 0..PARTS {
            sleep(INTERVAL / PARTS).await;
            let now = talk.record.saves().len();
            assert!((7..=13).contains(&(now - saved)), "{}", now - saved);
            saved = now;
        }
        assert_eq!(saved, round * sessions.len(), "each once");
        assert!(sessions.iter().all(AgentSession::is_saved));
        // Each has its own time, whenever it changes.
        sleep(SECOND * 11).await;
    }
}

async fn a_few_sessions_save_at_once_and_the_others_go_on_to_display(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions { max_concurrent_saves: 2, ..SessionOptions::default() }).await;
    let gate = talk.record.hold_saves().await;
    let mut sessions = Vec::new();
    for _ in 0..5 {
        sessions.push(talk.start_another().await);
    }
    for session in &sessions {
        say(session, "hello");
        session.complete_run().unwrap();
    }
    // A session whose own save is on its way displays nothing, so two others have to be first.
    while talk.record.most_saves_at_once() < 2 {
        sleep(SECOND).await;
    }
    sessions.push(talk.start().await);
    let last = &sessions[5];
    say(last, "hello");
    last.complete_run().unwrap();
    last.add_message(uuid::Uuid::now_v7(), Message::user("first")).unwrap();
    sleep(SECOND).await;
    last.add_message(uuid::Uuid::now_v7(), Message::user("second")).unwrap();
    sleep(SECOND).await;
    assert_eq!(talk.shown().await, ["first", "second"]);
    assert_eq!(talk.record.most_saves_at_once(), 2);
    drop(gate);
    sleep(INTERVAL).await;
    assert!(sessions.iter().all(AgentSession::is_saved));
    assert_eq!(talk.record.most_saves_at_once(), 2);
}

async fn a_save_may_wait_for_its_turn_as_long_as_others_save(kind: Kind) {
    let options = SessionOptions { max_concurrent_saves: 1, call_timeout: SECOND * 3 / 2, ..SessionOptions::default() };
    let talk = Talk::new(kind, options.clone()).await;
    let mut sessions = Vec::new();
    for _ in 0..8 {
        let session = talk.start_another().await;
        say(&session, "hello");
        sessions.push(session);
    }
    let save_all = async || {
        let mut saves = tokio::task::JoinSet::new();
        for session in sessions.clone() {
            saves.spawn(async move { session.save().await });
        }
        saves.join_all().await
    };
    talk.record.fail([Some(Fault::Late); 8]);
    assert!(save_all().await.iter().all(Result::is_ok));
    assert_eq!(talk.coordinator.stats().failures, 0);

    for session in &sessions {
        say(session, "again");
    }
    talk.record.fail([Some(Fault::Silence); 1000]);
    let begin = Instant::now();
    for failed in save_all().await {
        assert!(matches!(failed, Err(SessionError::TimedOut)));
    }
    assert!(begin.elapsed() < options.call_timeout * 3);
    talk.record.forget();
    sleep(INTERVAL).await;
    assert!(sessions.iter().all(AgentSession::is_saved));
}

async fn every_lifecycle_reaches_the_storage(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let lifecycles = [
        Lifecycle::Completion,
        Lifecycle::Cancel,
        Lifecycle::Error,
        Lifecycle::Interrupt,
        Lifecycle::TitleGenerated,
        Lifecycle::Request,
        Lifecycle::Interval,
        Lifecycle::Shutdown,
    ];
    for lifecycle in lifecycles {
        say(&session, lifecycle.as_str());
        match lifecycle {
            Lifecycle::Completion => session.complete_run().unwrap(),
            Lifecycle::Cancel => session.acknowledge_cancel().unwrap(),
            Lifecycle::Error => session.fail_run().unwrap(),
            Lifecycle::Interrupt => session.wait_run(json!({ "type": "ask_user" })).unwrap(),
            Lifecycle::TitleGenerated => session.set_title("Plans").unwrap(),
            Lifecycle::Request => drop(session.save().await.unwrap()),
            Lifecycle::Shutdown => session.shutdown().await.unwrap(),
            Lifecycle::Interval => sleep(INTERVAL).await,
        }
        sleep(Duration::from_secs(1)).await;
        assert_eq!(talk.record.lifecycles().last(), Some(&lifecycle));
    }
    assert_eq!(talk.record.lifecycles(), lifecycles);
    let conversation = frozen(talk.layer.get_conversation(&scope(), talk.id)).await.unwrap();
    assert_eq!(conversation.title.as_deref(), Some("Plans"));
    assert_eq!(session.export_state().metadata["conversation_title"], "Plans");
}

async fn without_auto_save_nothing_is_saved(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    say(&session, "hello");
    session.complete_run().unwrap();
    session.wait_run(json!(1)).unwrap();
    sleep(INTERVAL * 100).await;
    let mut events = session.subscribe();
    session.shutdown().await.unwrap();
    assert_eq!(talk.record.lifecycles(), []);
    let ended = events.recv().await.unwrap();
    let SessionEvent::Ended { unsaved: Some(state), .. } = &*ended else {
        panic!("{ended:?}");
    };
    assert_eq!(said(state), ["hello"], "the unsaved state is in the event");
}

async fn changes_do_not_wait_for_saves_and_saves_never_overlap(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let gate = talk.record.hold_saves().await;
    say(&session, "first");
    session.complete_run().unwrap();
    sleep(Duration::from_secs(1)).await;
    for n in 0..100 {
        say(&session, &n.to_string());
        session.complete_run().unwrap();
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(session.read(|state| state.messages.len()), 101);
    drop(gate);
    sleep(Duration::from_secs(1)).await;
    let lengths: Vec<_> = talk.record.saves().iter().map(|save| save.state.messages.len()).collect();
    assert_eq!(lengths, [1, 101], "all changes during the save are the next save");
    assert_eq!(talk.record.most_saves_at_once(), 1);
    assert_eq!(talk.stored().await.0.len(), 101);
}

async fn a_save_requested_before_a_retry_follows_the_retry(kind: Kind) {
    let auto_save = AutoSave { interval: None, ..AutoSave::default() };
    let talk = Talk::new(kind, SessionOptions { auto_save, ..SessionOptions::default() }).await;
    let session = talk.start().await;
    talk.record.fail([Some(Fault::Before)]);
    say(&session, "first");
    session.save().await.unwrap_err();
    say(&session, "second");
    session.complete_run().unwrap();
    sleep(SECOND * 2).await;
    let request = Lifecycle::Request;
    assert_eq!(talk.record.lifecycles(), [request, request, Lifecycle::Completion]);
    assert_eq!(talk.stored().await.0, ["first", "second"]);
}

async fn a_save_requested_without_a_change_is_dropped(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    session.complete_run().unwrap();
    say(&session, "later");
    sleep(SECOND).await;
    assert_eq!(talk.record.lifecycles(), []);
}

async fn a_message_is_displayed_before_its_state_is_saved(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let gate = talk.record.hold_saves().await;
    crate::storage::add(&session, Message::user("hello"));
    session.complete_run().unwrap();
    sleep(SECOND).await;
    assert_eq!(talk.shown().await, ["hello"]);
    drop(gate);
}

async fn an_initial_state_is_saved_after_an_interval(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let mut fresh = State::new();
    fresh.add_message(Message::system("Be kind."));
    let _session = talk.coordinator.start_with(&scope(), talk.id, fresh).await.unwrap();
    sleep(INTERVAL * 2).await;
    assert_eq!(talk.stored().await.0, ["Be kind."]);
}

async fn a_session_starts_with_the_given_state_and_sets_a_damaged_one_aside(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let fresh = || {
        let mut state = State::new();
        state.add_message(Message::system("Be kind."));
        state
    };
    let session = talk.coordinator.start_with(&scope(), talk.id, fresh()).await.unwrap();
    session.shutdown().await.unwrap();
    assert_eq!(talk.stored().await.0, ["Be kind."]);

    let damage = r#"{"version":2,"state":{"messages":[{"role":"robot"}]}}"#;
    talk.store(damage).await;
    let session = talk.coordinator.start_with(&scope(), talk.id, fresh()).await.unwrap();
    say(&session, "new");
    session.shutdown().await.unwrap();
    assert_eq!(talk.stored().await.0, ["Be kind.", "new"]);
    let aside = frozen(talk.layer.load_unreadable_state(&scope(), talk.id, 0)).await.unwrap();
    assert_eq!(String::from_utf8(aside.header).unwrap(), damage);

    talk.store(r#"{"version":4,"state":{}}"#).await;
    let refused = talk.coordinator.start(&scope(), talk.id).await.unwrap_err();
    assert!(matches!(refused, SessionError::Storage(error) if matches!(*error, Error::Unreadable(_))));
}

async fn a_change_that_panics_does_not_end_the_session(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let (other, doomed) = (session.clone(), session.clone());
    let panicked = tokio::spawn(async move {
        doomed.change(|state| {
            state.add_message(Message::user("half"));
            panic!("on purpose");
        })
    });
    assert!(panicked.await.is_err());
    say(&other, "whole");
    session.shutdown().await.unwrap();
    assert_eq!(talk.stored().await.0, ["half", "whole"]);
}

async fn a_change_may_drop_a_handle(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let other = session.clone();
    session.change(move |_| drop(other)).unwrap();
    session.shutdown().await.unwrap();
}

async fn the_conversation_is_marked_while_the_agent_is_interrupted(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let interrupted = || async {
        let scope = scope();
        let conversation = talk.layer.get_conversation(&scope, talk.id);
        frozen(conversation).await.unwrap().interrupted
    };
    let session = talk.start().await;
    session.wait_run(json!({ "type": "ask_user" })).unwrap();
    assert_eq!(session.read(|state| state.interrupt_data.clone()), Some(json!({ "type": "ask_user" })));
    session.save().await.unwrap();
    assert!(interrupted().await);
    session.continue_run().unwrap();
    session.save().await.unwrap();
    assert!(!interrupted().await);
    assert_eq!(session.read(|state| state.interrupt_data.clone()), None);

    session.wait_run(json!(1)).unwrap();
    session.shutdown().await.unwrap();
    assert!(interrupted().await);
    let session = talk.start().await;
    session.complete_run().unwrap();
    session.shutdown().await.unwrap();
    assert!(!interrupted().await, "a later session clears the flag too");
}

async fn extreme_options_are_accepted(kind: Kind) {
    let long = Duration::MAX;
    let options = SessionOptions {
        auto_save: AutoSave { interval: Some(long), ..AutoSave::default() },
        inactivity_timeout: Some(long),
        initial_backoff: long,
        max_backoff: long,
        call_timeout: long,
        max_concurrent_saves: usize::MAX,
        event_capacity: 0,
        ..SessionOptions::default()
    };
    let none = SessionOptions {
        auto_save: AutoSave { interval: Some(Duration::ZERO), ..AutoSave::default() },
        max_concurrent_saves: 0,
        ..SessionOptions::default()
    };
    let talk = Talk::new(kind, none).await;
    let session = talk.start().await;
    say(&session, "hello");
    sleep(SECOND).await;
    assert!(session.is_saved());

    let talk = Talk::new(kind, options).await;
    let session = talk.start().await;
    drop(session.subscribe());
    talk.record.fail([Some(Fault::Before); 3]);
    say(&session, "hello");
    session.save().await.unwrap_err();
    sleep(SECOND * 1_000_000).await;
    assert!(session.is_saved());
    assert_eq!(talk.coordinator.shutdown(long).await.saved, 1);
}
