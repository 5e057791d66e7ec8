//! Any state is loaded as it was saved.

use proptest::test_runner::{Config, TestRunner};
use sagents::{Error, Expect, LoadContext, Message, ReadError, State};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use uuid::Uuid;

use crate::support::fixture::Fixture;
use crate::support::{TABLES, TestDatabase};
use crate::{on_both_databases, overwrite, strategies};

on_both_databases!(
    any_state_reads_back_equal,
    nesting_past_the_limit_is_refused_with_its_path,
    ten_thousand_messages_are_saved_and_loaded,
    an_agent_does_not_start_on_a_state_of_a_future_version,
);

async fn any_state_reads_back_equal(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(200) });
    block_in_place(|| {
        let outcome = runner.run(&strategies::state(), |state| {
            Handle::current().block_on(Box::pin(reads_back_equal(&db, &state)));
            Ok(())
        });
        outcome.unwrap();
    });
}

async fn reads_back_equal(db: &Fixture, state: &State) {
    let (alice, id) = (&db.alice, db.conversation().await);
    db.save_agent_state(alice, id, state, Expect::NOTHING).await.unwrap();
    assert_eq!(&db.load_agent_state(alice, id).await.unwrap().state, state);
    // Every message can be displayed.
    for message in &state.messages {
        db.save_message(alice, id, Uuid::now_v7(), message).await.unwrap();
    }
}

async fn nesting_past_the_limit_is_refused_with_its_path(database: &TestDatabase) {
    let nested = |depth| (0..depth).fold(json!(1), |inner, _| -> Value { json!([inner]) });
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    let mut state = State::new();
    state.put_metadata("deep", nested(100));
    db.save_agent_state(alice, id, &state, Expect::Any).await.unwrap();
    assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, state);
    state.put_metadata("deep", nested(101));
    let error = db.save_agent_state(alice, id, &state, Expect::Any).await.unwrap_err();
    assert_eq!(error.to_string(), "invalid: state.metadata.deep is nested deeper than 100");
}

async fn ten_thousand_messages_are_saved_and_loaded(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    let mut state = State::new();
    state.add_messages((0..10_000).map(|n| Message::user(format!("{n} {}", "x".repeat(1024)))));
    db.save_agent_state(alice, id, &state, Expect::NOTHING).await.unwrap();
    assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, state);
}

async fn an_agent_does_not_start_on_a_state_of_a_future_version(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, context) = (&db.alice, LoadContext::new(db.conversation().await));
    let loaded = State::load_or_new(&db.store(), alice, &context, State::new()).await;
    let (state, expect) = loaded.unwrap();
    assert_eq!((expect, state.agent_id.as_ref()), (Expect::NOTHING, Some(&context.agent_id)));
    db.save_agent_state(alice, context.conversation_id, &state, expect).await.unwrap();
    overwrite(&db, r#"{"version":4,"state":{}}"#).await;
    let refused = State::load_or_new(&db.store(), alice, &context, State::new()).await;
    let future = ReadError::FutureVersion { version: 4 };
    assert!(matches!(&refused, Err(Error::Unreadable(error)) if *error == future), "{refused:?}");
}
