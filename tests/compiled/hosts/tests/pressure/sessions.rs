//! Many sessions.

use std::pin::pin;
use std::time::Duration;

use matrix::conversations::{Conversations, Error, NewDisplayMessage, Role, connect};
use matrix::sagents::session::SessionOptions;
use matrix::sagents::{Expect, State};
use serde_json::json;
use tokio::time::timeout;

use crate::storage::{Talk, say, scope};

const SESSIONS: usize = 200;

#[tokio::test]
async fn a_call_beside_sessions_that_all_save_waits_for_a_few_of_them() {
    let options = SessionOptions::default();
    let talk = Talk::new(options.clone()).await;
    let text = "a sentence of a long conversation. ".repeat(300);
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = talk.start_another().await;
        say(&session, &text);
        sessions.push(session);
    }
    for session in &sessions {
        session.completed().unwrap();
    }
    let scope = scope();
    let saves = || usize::try_from(talk.coordinator.stats().saves).unwrap();
    let mut appends = 0;
    while saves() < SESSIONS {
        let new = NewDisplayMessage::text(Role::User, "hello");
        let append = talk.layer.append_display_message(&scope, talk.id, new);
        append.await.unwrap();
        appends += 1;
    }
    assert!(appends > SESSIONS / 20, "{appends}");
    assert!(talk.record.most_saves_at_once() <= options.max_concurrent_saves);
    let report = talk.coordinator.shutdown(Duration::MAX).await;
    assert_eq!((report.saved, saves()), (SESSIONS, SESSIONS));
}

#[tokio::test]
async fn a_state_that_waits_for_its_turn_is_not_text_yet() {
    let talk = Talk::new(SessionOptions::default()).await;
    let pool = connect(&talk.database.url()).await.unwrap();
    let layer = Conversations::new(pool.clone());
    let mut taken = Vec::new();
    for _ in 0..pool.options().get_max_connections() {
        taken.push(pool.acquire().await.unwrap());
    }
    // It cannot become text, so it shows when that is tried.
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let mut state = State::new();
    state.put_metadata("deep", deep);
    let scope = scope();
    let mut save = pin!(layer.save_agent_state(&scope, talk.id, &state, Expect::NOTHING));
    let early = timeout(Duration::from_millis(200), &mut save).await;
    assert!(early.is_err(), "{early:?}");
    drop(taken);
    let refused = save.await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
}
