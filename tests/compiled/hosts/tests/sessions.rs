//! Sessions on a real database: when they save, and that nothing is lost whatever fails. Time is tokio's, paused, so that
//! half an hour takes no time.

mod database;
mod storage;

use std::sync::Arc;
use std::time::Duration;

use matrix::conversations::{Conversations, Error, NewConversation};
use matrix::sagents::session::{
    AutoSave, Coordinator, OnConflict, SessionError, SessionEvent, SessionOptions,
};
use matrix::sagents::{Lifecycle, Message, Revision, State, ToolCall};
use serde_json::json;
use storage::{Fault, Talk, frozen, say, scope, user};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

const INTERVAL: Duration = Duration::from_secs(30);

/// Saved only on request.
fn by_hand() -> SessionOptions {
    SessionOptions {
        auto_save: AutoSave {
            interval: None,
            on_idle: false,
            on_interrupt: false,
            on_shutdown: false,
        },
        ..SessionOptions::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_changes_is_one_save_and_none_follows() {
    let talk = Talk::new(SessionOptions::default()).await;
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

#[tokio::test(start_paused = true)]
async fn a_change_waits_for_one_interval_and_no_longer() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    for n in 0..90 {
        say(&session, &n.to_string());
        sleep(Duration::from_millis(990)).await;
    }
    sleep(INTERVAL).await;
    let lengths: Vec<_> = talk
        .record
        .saves()
        .iter()
        .map(|save| save.said.len())
        .collect();
    assert_eq!(lengths, [31, 62, 90]);
}

#[tokio::test(start_paused = true)]
async fn every_reason_to_save_is_passed_on() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    let reasons = [
        Lifecycle::Completion,
        Lifecycle::Cancel,
        Lifecycle::Error,
        Lifecycle::Interrupt,
        Lifecycle::TitleGenerated,
        Lifecycle::Request,
        Lifecycle::Interval,
        Lifecycle::Shutdown,
    ];
    for reason in reasons {
        say(&session, reason.as_str());
        match reason {
            Lifecycle::Completion => session.completed().unwrap(),
            Lifecycle::Cancel => session.cancelled().unwrap(),
            Lifecycle::Error => session.failed().unwrap(),
            Lifecycle::Interrupt => session.interrupted(json!({ "type": "ask_user" })).unwrap(),
            Lifecycle::TitleGenerated => session.title_generated("Plans").unwrap(),
            Lifecycle::Request => drop(session.save().await.unwrap()),
            Lifecycle::Shutdown => session.shutdown().await.unwrap(),
            Lifecycle::Interval => sleep(INTERVAL).await,
        }
        sleep(Duration::from_secs(1)).await;
        assert_eq!(talk.record.lifecycles().last(), Some(&reason));
    }
    assert_eq!(talk.record.lifecycles(), reasons);
    let conversation = frozen(talk.layer.get_conversation(&scope(), talk.id))
        .await
        .unwrap();
    assert_eq!(conversation.title.as_deref(), Some("Plans"));
    assert_eq!(
        session.export_state().metadata["conversation_title"],
        "Plans"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_off_saves_nothing() {
    let talk = Talk::new(by_hand()).await;
    let session = talk.start().await;
    say(&session, "hello");
    session.completed().unwrap();
    session.interrupted(json!(1)).unwrap();
    sleep(INTERVAL * 100).await;
    let mut events = session.subscribe();
    session.shutdown().await.unwrap();
    assert_eq!(talk.record.lifecycles(), []);
    let ended = events.recv().await.unwrap();
    let SessionEvent::Ended {
        unsaved: Some(state),
    } = &*ended
    else {
        panic!("{ended:?}");
    };
    assert_eq!(
        storage::said(state),
        ["hello"],
        "it is told, not dropped silently"
    );
}

#[tokio::test(start_paused = true)]
async fn the_conversation_says_whether_the_agent_waits_for_a_person() {
    let talk = Talk::new(SessionOptions::default()).await;
    let interrupted = || async {
        let scope = scope();
        let conversation = talk.layer.get_conversation(&scope, talk.id);
        frozen(conversation).await.unwrap().interrupted
    };
    let session = talk.start().await;
    session.interrupted(json!({ "type": "ask_user" })).unwrap();
    assert_eq!(
        session.read(|state| state.interrupt_data.clone()),
        Some(json!({ "type": "ask_user" }))
    );
    session.save().await.unwrap();
    assert!(interrupted().await);
    session.resumed().unwrap();
    session.save().await.unwrap();
    assert!(!interrupted().await);
    assert_eq!(session.read(|state| state.interrupt_data.clone()), None);

    session.interrupted(json!(1)).unwrap();
    session.shutdown().await.unwrap();
    assert!(interrupted().await);
    let session = talk.start().await;
    session.completed().unwrap();
    session.shutdown().await.unwrap();
    assert!(
        !interrupted().await,
        "a session that begins later knows too"
    );
}

#[tokio::test(start_paused = true)]
async fn a_conversation_has_one_session_whoever_asks_at_once() {
    let talk = Talk::new(SessionOptions::default()).await;
    let mut starts = tokio::task::JoinSet::new();
    for n in 0..20 {
        let (coordinator, id) = (talk.coordinator.clone(), talk.id);
        starts.spawn(async move {
            let session = coordinator.start(scope(), id).await.unwrap();
            say(&session, &n.to_string());
            session
        });
    }
    let sessions = starts.join_all().await;
    assert_eq!(talk.record.loads(), 1);
    assert_eq!(talk.coordinator.figures().sessions, 1);
    assert_eq!(sessions[0].read(|state| state.messages.len()), 20);
    assert!(talk.coordinator.find(&scope(), talk.id).unwrap().is_some());
    drop(sessions);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(talk.coordinator.figures().sessions, 0);
    assert!(talk.coordinator.find(&scope(), talk.id).unwrap().is_none());
    assert_eq!(talk.stored().await.0.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_running_session_is_found_by_its_owner_only() {
    let talk = Talk::new(SessionOptions::default()).await;
    let own = talk.start().await;
    say(&own, "secret");
    let refused = talk.coordinator.start(user(2), talk.id).await.unwrap_err();
    assert!(matches!(refused, SessionError::Storage(error) if matches!(*error, Error::NotFound)));
    assert!(talk.coordinator.find(&user(2), talk.id).unwrap().is_none());

    // Another owner may have a conversation with the same id.
    let new = NewConversation {
        id: talk.id,
        ..NewConversation::new()
    };
    frozen(talk.layer.create_conversation(&user(2), new))
        .await
        .unwrap();
    let other = talk.coordinator.start(user(2), talk.id).await.unwrap();
    assert_eq!(other.read(|state| state.messages.len()), 0);
    say(&other, "mine");
    let report = talk.coordinator.shutdown(INTERVAL).await;
    assert_eq!((report.saved, report.unsaved.len()), (2, 0));
    assert_eq!(talk.stored().await.0, ["secret"]);
    let others = frozen(talk.layer.load_agent_state(&user(2), talk.id))
        .await
        .unwrap();
    assert_eq!(storage::said(&others.state), ["mine"]);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_is_not_there_leaves_nothing_behind() {
    let talk = Talk::new(SessionOptions::default()).await;
    let refused = talk.coordinator.start(scope(), Uuid::now_v7()).await;
    assert!(
        matches!(refused, Err(SessionError::Storage(error)) if matches!(*error, Error::NotFound))
    );
    assert_eq!(talk.coordinator.figures().sessions, 0);
}

#[tokio::test(start_paused = true)]
async fn changes_go_on_during_a_save_and_saves_never_overlap() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    let gate = talk.record.hold_saves().await;
    say(&session, "first");
    session.completed().unwrap();
    sleep(Duration::from_secs(1)).await;
    for n in 0..100 {
        say(&session, &n.to_string());
        session.completed().unwrap();
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(session.read(|state| state.messages.len()), 101);
    drop(gate);
    sleep(Duration::from_secs(1)).await;
    let lengths: Vec<_> = talk
        .record
        .saves()
        .iter()
        .map(|save| save.said.len())
        .collect();
    assert_eq!(lengths, [1, 101], "all that came meanwhile is one save");
    assert_eq!(talk.record.most_saves_at_once(), 1);
    assert_eq!(talk.stored().await.0.len(), 101);
}

#[tokio::test(start_paused = true)]
async fn a_save_that_fails_is_tried_again_with_longer_pauses() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    talk.record.fail([Some(Fault::Before); 8]);
    say(&session, "old");
    let begin = Instant::now();
    let failed = session.save().await.unwrap_err();
    assert!(matches!(failed, SessionError::Storage(_)), "{failed}");
    say(&session, "new");

    let mut pauses = Vec::new();
    loop {
        match &*events.recv().await.unwrap() {
            SessionEvent::Failed { retry_in, .. } => pauses.push(retry_in.unwrap()),
            SessionEvent::Saved { revision, .. } => break assert_eq!(*revision, Revision(1)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(pauses.len(), 8);
    assert!(
        pauses.windows(2).all(|pair| pair[0] <= pair[1]),
        "{pauses:?}"
    );
    assert!(
        pauses[0] <= Duration::from_millis(500) && pauses[7] <= INTERVAL,
        "{pauses:?}"
    );
    assert!(begin.elapsed() >= pauses.iter().sum());
    let figures = talk.coordinator.figures();
    assert_eq!(
        (figures.saves, figures.failures, figures.unsaved),
        (1, 8, 1)
    );
    let last = figures.last_error.unwrap();
    assert_eq!(last.conversation_id, talk.id);
    assert!(last.error.contains("pool timed out"), "{last}");

    sleep(INTERVAL).await;
    assert_eq!(
        talk.stored().await,
        (vec!["old".into(), "new".into()], Revision(2))
    );
    assert_eq!(talk.coordinator.figures().unsaved, 0);
}

#[tokio::test(start_paused = true)]
async fn a_save_whose_answer_was_lost_is_done_once() {
    for fault in [Fault::After, Fault::Silence] {
        let talk = Talk::new(SessionOptions::default()).await;
        let session = talk.start().await;
        talk.record.fail([Some(fault)]);
        say(&session, "first");
        let failed = session.save().await.unwrap_err();
        assert_eq!(
            matches!(failed, SessionError::TimedOut),
            fault == Fault::Silence
        );
        say(&session, "second");
        sleep(Duration::from_secs(100)).await;
        let saves = talk.record.saves();
        assert_eq!(
            saves[0].write_id, saves[1].write_id,
            "the same save, {fault:?}"
        );
        assert_eq!(
            (saves[0].answer, saves[1].answer),
            (None, Some(Revision(1)))
        );
        assert_eq!(
            talk.stored().await,
            (vec!["first".into(), "second".into()], Revision(2))
        );
        assert_eq!(talk.coordinator.figures().conflicts, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_save_is_reported_and_never_overwritten() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    say(&session, "mine");
    let mut events = session.subscribe();
    let current = talk.somebody_else_says("theirs").await;
    sleep(INTERVAL * 10).await;
    assert_eq!(
        talk.record.saves().len(),
        1,
        "it is not tried again and again"
    );
    let event = events.recv().await.unwrap();
    assert!(
        matches!(&*event, SessionEvent::Failed { error: SessionError::Conflict { current: told }, retry_in: None, .. } if *told == current),
        "{event:?}"
    );
    say(&session, "more of mine");
    let refused = session.save().await.unwrap_err();
    assert!(
        matches!(refused, SessionError::Conflict { .. }),
        "{refused}"
    );
    assert_eq!(talk.stored().await.0, ["theirs"]);

    let replaced = session.reload().await.unwrap().unwrap();
    assert_eq!(storage::said(&replaced), ["mine", "more of mine"]);
    assert_eq!(session.read(storage::said), ["theirs"]);
    session
        .change(|state| state.messages.extend(replaced.messages.clone()))
        .unwrap();
    session.save().await.unwrap();
    assert_eq!(talk.stored().await.0, ["theirs", "mine", "more of mine"]);
    assert_eq!(talk.coordinator.figures().conflicts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_save_that_a_reload_overtook_is_not_acknowledged() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    talk.somebody_else_says("theirs").await;
    say(&session, "mine");
    let (saved, reloaded) = tokio::join!(session.save(), session.reload());
    assert!(matches!(saved, Err(SessionError::Conflict { .. })));
    assert_eq!(storage::said(&reloaded.unwrap().unwrap()), ["mine"]);
    assert_eq!(session.read(storage::said), ["theirs"]);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_that_nobody_solves_is_told_at_the_end() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    say(&session, "mine");
    talk.somebody_else_says("theirs").await;
    let refused = session.shutdown().await.unwrap_err();
    assert!(
        matches!(refused, SessionError::Conflict { .. }),
        "{refused}"
    );
    assert_eq!(storage::said(&session.export_state()), ["mine"]);
    assert_eq!(talk.stored().await.0, ["theirs"]);
    assert_eq!(talk.start().await.read(storage::said), ["theirs"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_takes_over_somebody_elses_save_if_it_is_to() {
    let options = SessionOptions {
        on_conflict: OnConflict::Reload,
        ..SessionOptions::default()
    };
    let talk = Talk::new(options).await;
    let session = talk.start().await;
    session.change(|state| state.runtime.insert(7_u8)).unwrap();
    say(&session, "mine");
    talk.somebody_else_says("theirs").await;
    let mut events = session.subscribe();
    let refused = session.save().await.unwrap_err();
    assert!(
        matches!(refused, SessionError::Conflict { .. }),
        "{refused}"
    );
    sleep(Duration::from_secs(1)).await;
    assert_eq!(session.read(storage::said), ["theirs"]);
    assert_eq!(
        session.read(|state| state.runtime.get::<u8>().copied()),
        Some(7)
    );
    assert!(matches!(
        &*events.recv().await.unwrap(),
        SessionEvent::Failed { .. }
    ));
    let event = events.recv().await.unwrap();
    let SessionEvent::Reloaded {
        revision: Revision(1),
        unsaved: Some(unsaved),
    } = &*event
    else {
        panic!("{event:?}");
    };
    assert_eq!(storage::said(unsaved), ["mine"]);
    say(&session, "after it");
    session.shutdown().await.unwrap();
    assert_eq!(talk.stored().await.0, ["theirs", "after it"]);
}

#[tokio::test(start_paused = true)]
async fn messages_are_shown_in_order_and_once_whatever_fails() {
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
    assert_eq!(talk.coordinator.figures().messages, 10);

    // What the state knows has been shown; a message of which only that is wanted is not in it.
    session
        .display(given[9], Message::assistant("again"))
        .unwrap();
    session
        .display(Uuid::now_v7(), Message::system("only shown"))
        .unwrap();
    session.save().await.unwrap();
    assert_eq!(talk.shown().await.len(), 21);
    assert_eq!(talk.stored().await.0.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_stored_keeps_no_other_back() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let mut message = Message::assistant("too deep");
    message.tool_calls = vec![ToolCall::new("call_1", "search", deep)];
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

#[tokio::test(start_paused = true)]
async fn a_state_that_cannot_be_stored_is_saved_once_it_can() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    say(&session, "hello");
    session
        .change(|state| state.put_metadata("deep", deep))
        .unwrap();
    let refused = session.save().await.unwrap_err();
    assert!(
        refused.to_string().contains("state.metadata.deep"),
        "{refused}"
    );
    sleep(INTERVAL * 10).await;
    assert_eq!(
        talk.record.saves().len(),
        1,
        "it is not tried again and again"
    );
    session
        .change(|state| state.metadata.remove("deep"))
        .unwrap();
    sleep(INTERVAL * 2).await;
    assert_eq!(talk.stored().await.0, ["hello"]);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_was_deleted_ends_its_session_with_an_error() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    session.add_message(Message::user("hello")).unwrap();
    frozen(talk.layer.delete_conversation(&scope(), talk.id))
        .await
        .unwrap();
    let ended = session.shutdown().await.unwrap_err();
    assert!(matches!(ended, SessionError::Storage(error) if matches!(*error, Error::NotFound)));
    assert_eq!(talk.coordinator.figures().sessions, 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_uses_is_saved_and_ends() {
    let options = SessionOptions {
        inactivity: Some(INTERVAL * 20),
        ..SessionOptions::default()
    };
    let talk = Talk::new(SessionOptions {
        auto_save: AutoSave {
            interval: None,
            ..AutoSave::default()
        },
        ..options
    })
    .await;
    let session = talk.start().await;
    for _ in 0..3 {
        say(&session, "hello");
        sleep(INTERVAL * 19).await;
    }
    assert_eq!(talk.coordinator.figures().sessions, 1);
    sleep(INTERVAL * 2).await;
    assert_eq!(talk.coordinator.figures().sessions, 0);
    assert_eq!(talk.record.lifecycles(), [Lifecycle::Shutdown]);
    let late = session.change(|_| ()).unwrap_err();
    assert!(matches!(late, SessionError::Ended));
    assert_eq!(
        session.read(|state| state.messages.len()),
        3,
        "it can still be read"
    );

    let again = talk.start().await;
    assert_eq!(again.read(|state| state.messages.len()), 3);
    drop(session);
    say(
        &again,
        "the handle of a session that has ended has no say in this one",
    );
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_saves() {
    let talk = Talk::new(SessionOptions::default()).await;
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

#[tokio::test(start_paused = true)]
async fn a_session_without_handles_is_found_as_long_as_it_is_not_saved() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    say(&session, "hello");
    talk.record.fail([Some(Fault::Before); 5]);
    drop(session);
    sleep(Duration::from_secs(3)).await;
    let session = talk.start().await;
    assert_eq!(talk.record.loads(), 1);
    assert_eq!(session.read(storage::said), ["hello"]);
    sleep(INTERVAL * 4).await;
    assert_eq!(talk.stored().await.0, ["hello"]);
    assert_eq!(talk.coordinator.figures().sessions, 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_starts_again_only_after_the_last_one_has_saved() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    say(&session, "hello");
    talk.record.fail([Some(Fault::Before); 4]);
    let end = tokio::spawn(async move { session.shutdown().await });
    sleep(Duration::from_millis(1)).await;
    let again = talk.start().await;
    end.await.unwrap().unwrap();
    assert_eq!(again.read(storage::said), ["hello"]);
    say(&again, "once more");
    again.save().await.unwrap();
    assert_eq!(talk.coordinator.figures().conflicts, 0);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_saves_all_sessions_by_the_deadline_and_answers_what_it_could_not() {
    let talk = Talk::new(SessionOptions::default()).await;
    let mut sessions = Vec::new();
    for _ in 0..10 {
        let new = frozen(
            talk.layer
                .create_conversation(&scope(), NewConversation::new()),
        )
        .await
        .unwrap();
        let session = talk.coordinator.start(scope(), new.id).await.unwrap();
        session.add_message(Message::user("hello")).unwrap();
        session.save().await.unwrap();
        say(&session, "unsaved");
        sessions.push(session);
    }
    let last = sessions.pop().unwrap();
    let id = last.conversation_id();
    // This one is in trouble, and so is one that nobody holds any more.
    talk.record.fail([Some(Fault::Before); 1000]);
    last.add_message(Message::user("never stored")).unwrap();
    drop(last);
    sleep(Duration::from_secs(1)).await;
    talk.record.forget_faults();
    talk.record.fail([Some(Fault::Silence)]);
    let begin = Instant::now();
    let report = talk.coordinator.shutdown(Duration::from_secs(5)).await;
    assert_eq!(begin.elapsed().as_secs(), 5);
    assert_eq!((report.saved, report.unsaved.len()), (9, 1));
    let unsaved = &report.unsaved[0];
    // Whichever met the silence first.
    if unsaved.conversation_id == id {
        assert_eq!(unsaved.messages.len(), 1);
    }
    assert!(unsaved.state.is_some());

    let refused = talk.coordinator.start(scope(), talk.id).await.unwrap_err();
    assert!(matches!(refused, SessionError::Ended));
    sleep(INTERVAL * 4).await;
    assert_eq!(
        talk.coordinator.figures().sessions,
        0,
        "it was tried further"
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_that_panics_ends_nothing() {
    let talk = Talk::new(SessionOptions::default()).await;
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

#[tokio::test(start_paused = true)]
async fn a_session_begins_with_what_the_application_gives_it_and_keeps_what_is_damaged_aside() {
    let talk = Talk::new(SessionOptions::default()).await;
    let fresh = || {
        let mut state = State::new();
        state.add_message(Message::system("Be kind."));
        state
    };
    let session = talk
        .coordinator
        .start_with(scope(), talk.id, fresh())
        .await
        .unwrap();
    session.shutdown().await.unwrap();
    assert_eq!(talk.stored().await.0, ["Be kind."]);

    let damage = r#"{"version":2,"state":{"messages":[{"role":"robot"}]}}"#;
    store(&talk, damage).await;
    let session = talk
        .coordinator
        .start_with(scope(), talk.id, fresh())
        .await
        .unwrap();
    say(&session, "anew");
    session.shutdown().await.unwrap();
    assert_eq!(talk.stored().await.0, ["Be kind.", "anew"]);
    let aside = frozen(talk.layer.load_unreadable(&scope(), talk.id))
        .await
        .unwrap();
    assert_eq!(String::from_utf8(aside).unwrap(), damage);

    store(&talk, r#"{"version":3,"state":{}}"#).await;
    let refused = talk.coordinator.start(scope(), talk.id).await.unwrap_err();
    assert!(
        matches!(refused, SessionError::Storage(error) if matches!(*error, Error::DeserializationFailed(_)))
    );
}

async fn store(talk: &Talk, data: &str) {
    frozen(async {
        let pool = matrix::conversations::connect(&talk.keeper.url())
            .await
            .unwrap();
        sqlx::query(database::STORE)
            .bind(data)
            .execute(&pool)
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_with_the_runtime_and_does_not_pretend_otherwise() {
    let talk = Talk::new(SessionOptions::default()).await;
    let url = talk.keeper.url();
    let id = talk.id;
    let session = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let pool = matrix::conversations::connect(&url).await.unwrap();
            let coordinator = Coordinator::new(Conversations::new(pool));
            coordinator.start(Arc::new(scope()), id).await.unwrap()
        })
    });
    let session = frozen(async { tokio::task::spawn_blocking(|| session.join()).await }).await;
    let session = session.unwrap().unwrap();
    let late = session
        .change(|state| state.add_message(Message::user("too late")))
        .unwrap_err();
    assert!(matches!(late, SessionError::Ended));
    assert_eq!(talk.stored().await, (vec![], Revision(0)));
}
