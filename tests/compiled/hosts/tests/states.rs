//! Agent states through a real database: any state comes back equal.

use crate::database;
use crate::strategies;

use database::{Pool, STORE};
use matrix::conversations::{Conversations, Error, NewConversation, connect};
use matrix::sagents::{
    AgentPersistence as _, Expect, Lifecycle, LoadContext, Message, PersistContext, ReadError,
    State,
};
use matrix::scopes::{Scope, User};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use uuid::Uuid;

#[test]
fn any_state_reads_back_equal() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let db = runtime.block_on(Database::new());
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(200)
    });
    let outcome = runner.run(&strategies::state(), |state| {
        runtime.block_on(reads_back_equal(&db, &state))
    });
    outcome.unwrap();
}

async fn reads_back_equal(db: &Database, state: &State) -> Result<(), TestCaseError> {
    let (layer, scope, id) = (&db.layer, scope(), db.conversation().await);
    layer
        .save_agent_state(&scope, id, state, Expect::NOTHING)
        .await
        .unwrap();
    let saved = layer.load_agent_state(&scope, id).await.unwrap();
    prop_assert_eq!(&saved.state, state);
    // Every message can be displayed.
    for message in &state.messages {
        let message_id = Uuid::now_v7();
        let stored = layer.save_message(&scope, id, message_id, message);
        stored.await.unwrap();
    }
    Ok(())
}

#[tokio::test]
async fn nesting_past_the_limit_is_refused_with_its_path() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let nested =
        |depth| (0..depth).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
    let mut state = State::new();
    state.put_metadata("deep", nested(100));
    db.layer
        .save_agent_state(&scope(), id, &state, Expect::Any)
        .await
        .unwrap();
    assert_eq!(
        db.layer.load_agent_state(&scope(), id).await.unwrap().state,
        state
    );
    state.put_metadata("deep", nested(101));
    let refused = db
        .layer
        .save_agent_state(&scope(), id, &state, Expect::Any)
        .await;
    let error = refused.unwrap_err().to_string();
    assert_eq!(
        error,
        "invalid: state.metadata.deep is nested deeper than 100"
    );
}

#[tokio::test]
async fn ten_thousand_messages_are_saved_and_loaded() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let mut state = State::new();
    state.add_messages((0..10_000).map(|n| Message::user(format!("{n} {}", "x".repeat(1024)))));
    db.layer
        .save_agent_state(&scope(), id, &state, Expect::NOTHING)
        .await
        .unwrap();
    assert_eq!(
        db.layer.load_agent_state(&scope(), id).await.unwrap().state,
        state
    );
}

#[tokio::test]
async fn an_agent_starts_on_a_damaged_state_and_loses_nothing() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let context = LoadContext::new(id);
    let (mut state, expect) = State::load_or_new(&db.layer, &scope(), &context, State::new())
        .await
        .unwrap();
    assert_eq!(
        (expect, state.agent_id.as_ref()),
        (Expect::NOTHING, Some(&context.agent_id))
    );
    state.add_message(Message::user("hello"));
    let save = PersistContext::new(&context, Lifecycle::Completion);
    db.layer
        .persist_state(&scope(), &state, expect, &save)
        .await
        .unwrap();

    let damage = r#"{"version":2,"state":{"messages":[{"role":"robot"}]}}"#;
    db.store(damage).await;
    let fresh = State {
        envelope: serde_json::Map::new(),
        ..State::new()
    };
    let (state, expect) = State::load_or_new(&db.layer, &scope(), &context, fresh)
        .await
        .unwrap();
    assert_eq!(state, State::new());
    db.layer
        .persist_state(&scope(), &state, expect, &save)
        .await
        .unwrap();
    assert_eq!(db.aside(id).await.as_deref(), Some(damage));
    db.layer.restore_unreadable(&scope(), id, 0).await.unwrap();
    let error = db
        .layer
        .load_agent_state(&scope(), id)
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        r#"the state is damaged: state.messages[0].role: "robot" is not a role"#
    );

    db.store(r#"{"version":4,"state":{}}"#).await;
    let refused = State::load_or_new(&db.layer, &scope(), &context, State::new()).await;
    let future = ReadError::FutureVersion { version: 4 };
    assert!(matches!(refused, Err(Error::DeserializationFailed(error)) if error == future));
}

// {{ guide }}
fn scope() -> Scope {
    Scope {
        user: User {
            id: 1,
            name: "somebody".to_owned(),
        },
    }
}

/// A context with its own database.
struct Database {
    layer: Conversations,
    pool: Pool,
    _guard: database::Database,
}

impl Database {
    async fn new() -> Self {
        let insert = "INSERT INTO users (id, name) VALUES (1, 'a')";
        let database = database::Database::migrated(insert).await;
        let pool = connect(&database.url()).await.unwrap();
        Self {
            layer: Conversations::new(pool.clone()),
            pool,
            _guard: database,
        }
    }

    async fn conversation(&self) -> Uuid {
        self.layer
            .create_conversation(&scope(), NewConversation::new())
            .await
            .unwrap()
            .id
    }

    async fn store(&self, data: &str) {
        let update = sqlx::query(STORE).bind(data);
        update.execute(&self.pool).await.unwrap();
    }

    async fn aside(&self, id: Uuid) -> Option<String> {
        let bytes = self.layer.load_unreadable(&scope(), id, 0).await.ok()?;
        String::from_utf8(bytes.header).ok()
    }
}
