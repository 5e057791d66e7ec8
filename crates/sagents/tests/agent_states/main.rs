//! Agent states: revisions, the rows that a save writes, and states that can't be parsed.

mod damage;
mod round_trips;
mod saves;
#[path = "../strategies/mod.rs"]
mod strategies;
#[path = "../support/mod.rs"]
mod support;

use std::fmt::Debug;

use sagents::{
    AgentPersistence, Error, Expect, Fork, Lifecycle, LoadContext, Message, PersistContext, Point, ReadError, Result,
    Revision, State, Todo, TokenUsage,
};
use serde_json::json;
use support::context::NewConversation;
use support::fixture::{Fixture, KINDS};
use support::{Kind, TABLES, TestDatabase};
use tokio::task::JoinSet;
use uuid::Uuid;

on_both_databases!(
    a_state_is_loaded_as_it_was_saved,
    a_repeated_save_is_stored_once,
    every_other_revision_is_a_conflict,
    a_stranger_reaches_no_state,
    every_store_is_an_agent_persistence,
    a_save_writes_only_messages_that_differ,
    a_stale_save_on_a_recreated_conversation_is_a_conflict,
    one_of_many_first_saves_wins,
    saves_that_expect_anything_all_succeed,
    a_state_that_cannot_be_parsed_is_quarantined,
    quarantined_states_are_restored_and_discarded,
    a_state_of_a_future_version_is_never_overwritten,
    damaged_messages_are_found_and_quarantined,
    a_gap_between_messages_is_damage,
);

fn state_of(texts: &[&str]) -> State {
    let mut state = State::new();
    state.add_messages(texts.iter().map(|text| Message::user(*text)));
    state
}

#[allow(clippy::needless_pass_by_value, reason = "it takes what a call returned")]
fn assert_conflict<T: Debug>(result: Result<T>, expected: Revision) {
    assert!(matches!(result, Err(Error::Conflict { current }) if current == expected), "{result:?}");
}

#[allow(clippy::needless_pass_by_value, reason = "it takes what a call returned")]
fn assert_unreadable<T: Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Unreadable(_))), "{result:?}");
}

/// Where a state is damaged.
fn damage<T: Debug>(result: Result<T>) -> String {
    match result {
        Err(Error::Unreadable(ReadError::Damaged { path, .. })) => path,
        other => panic!("{other:?}"),
    }
}

/// Overwrites the stored states without their messages.
async fn overwrite(db: &Fixture, data: &str) {
    let table = db.table("agent_states");
    db.pool.execute(format!("UPDATE {table} SET data = '{data}'")).await;
}

async fn a_state_is_loaded_as_it_was_saved(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id) = (&db.alice, db.conversation().await);
        assert_not_found!(db.load_agent_state(alice, id));
        assert_eq!(db.load_todos(alice, id).await.unwrap(), []);
        let mut state = state_of(&["nul\0byte"]);
        state.put_todo(Todo::new(1, "write"));
        state.put_metadata("exact", json!([u64::MAX, i64::MIN, 0.1, 1e300, -0.0]));
        let first = db.save_agent_state(alice, id, &state, Expect::NOTHING).await.unwrap();
        let saved = db.load_agent_state(alice, id).await.unwrap();
        assert_eq!((&saved.state, saved.revision), (&state, first));
        assert_eq!(db.load_todos(alice, id).await.unwrap(), state.todos);
        db.set_interrupted(alice, id, true).await.unwrap();
        assert!(db.get_conversation(alice, id).await.unwrap().interrupted);

        db.save_agent_state(alice, id, &State::new(), Expect::Any).await.unwrap();
        assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, State::new());
        let table = db.table("agent_messages");
        assert_eq!(db.pool.number(format!("SELECT count(*) FROM {table}")).await, 0);
    }
}

async fn a_repeated_save_is_stored_once(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id, write) = (&db.alice, db.conversation().await, Uuid::now_v7());
    let mut state = state_of(&["hello"]);
    let first = db.save_agent_state(alice, id, &state, Expect::NOTHING).await.unwrap();
    state.add_message(Message::assistant("hello").with_usage("m", TokenUsage::new(10, 5)));
    for _ in 0..2 {
        let second =
            db.save_agent_state(alice, id, &state, Expect::Revision(first).with_write_id(write)).await.unwrap();
        assert_eq!(second.0, first.0 + 1);
    }
    assert_eq!(db.usage(alice, id).await.unwrap().total(), TokenUsage::new(10, 5));
    let again = db.save_agent_state(alice, id, &state, Expect::Any.with_write_id(write)).await.unwrap();
    assert_eq!(again, Revision(2));
    assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, state);
}

async fn every_other_revision_is_a_conflict(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id, state) = (&db.alice, db.conversation().await, state_of(&["hello"]));
    for _ in 0..2 {
        db.save_agent_state(alice, id, &state, Expect::Any).await.unwrap();
    }
    for revision in [i64::MIN, -1, 0, 1, i64::MAX].map(Revision) {
        for expect in [Expect::Revision(revision), Expect::Unreadable(revision)] {
            assert_conflict(db.save_agent_state(alice, id, &State::new(), expect).await, Revision(2));
        }
    }
    assert_eq!(db.list_unreadable_states(alice, id).await.unwrap(), []);
    assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, state);
}

async fn a_stranger_reaches_no_state(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let id = db.conversation().await;
        let revision = db.save_agent_state(&db.alice, id, &state_of(&["mine"]), Expect::NOTHING).await.unwrap();
        let mut strangers = vec![(&db.alice, Uuid::now_v7())];
        if db.has_owners() {
            strangers.push((&db.bob, id));
        }
        for (owner, id) in strangers {
            assert_not_found!(db.load_agent_state(owner, id));
            assert_not_found!(db.load_todos(owner, id));
            for expect in [Expect::NOTHING, Expect::Any] {
                assert_not_found!(db.save_agent_state(owner, id, &State::new(), expect));
            }
            assert_not_found!(db.set_interrupted(owner, id, true));
            assert_not_found!(db.list_unreadable_states(owner, id));
            assert_not_found!(db.load_unreadable_state(owner, id, 0));
            assert_not_found!(db.restore_unreadable_state(owner, id, 0));
            assert_not_found!(db.discard_unreadable_state(owner, id, 0));
        }
        assert_eq!(db.load_agent_state(&db.alice, id).await.unwrap().revision, revision);
    }
}

async fn every_store_is_an_agent_persistence(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    let context = LoadContext::new(id);
    let persist = PersistContext::new(&context, Lifecycle::Request);
    let (state, expect) = State::load_or_new(&db.store(), alice, &context, state_of(&["initial"])).await.unwrap();
    assert_eq!((&state, expect), (&state_of(&["initial"]), Expect::NOTHING));
    match database.kind {
        Kind::Sqlite => {
            let store = database.sqlite(&TABLES).await;
            store.persist_state(alice, &state, expect, &persist).await.unwrap();
            AgentPersistence::set_interrupted(&store, alice, &context, true).await.unwrap();
            let (_, expect) = State::load_or_new(&store, alice, &context, State::new()).await.unwrap();
            assert_eq!(expect, Expect::Revision(Revision(1)));
        }
        Kind::Postgres => {
            let store = database.postgres(&TABLES).await;
            store.persist_state(alice, &state, expect, &persist).await.unwrap();
            AgentPersistence::set_interrupted(&store, alice, &context, true).await.unwrap();
            let (_, expect) = State::load_or_new(&store, alice, &context, State::new()).await.unwrap();
            assert_eq!(expect, Expect::Revision(Revision(1)));
        }
    }
    assert!(db.get_conversation(alice, id).await.unwrap().interrupted);
    // Its futures can be spawned, and repeating the save changes nothing.
    let (store, owner) = (db.store(), alice.clone());
    let spawned = tokio::spawn(async move { store.persist_state(&owner, &state, expect, &persist).await.unwrap() });
    assert_eq!(spawned.await.unwrap(), Revision(1));
}

async fn a_save_writes_only_messages_that_differ(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    let nil = db.pool.uuid(Uuid::nil());
    // Rows that are written again have another id than nil.
    let mark = || db.pool.execute(format!("UPDATE sagents_agent_messages SET message_id = {nil}"));
    let written = || {
        let sql = "SELECT CAST(position AS TEXT) FROM sagents_agent_messages WHERE message_id <>";
        db.pool.texts(format!("{sql} {nil} ORDER BY position"))
    };
    let mut state = State::new();
    state.add_messages((0..100).map(|n| Message::user(format!("message {n}"))));
    let revision = db.save_agent_state(alice, id, &state, Expect::NOTHING).await.unwrap();
    mark().await;
    state.add_messages([Message::assistant("new"), Message::user("newer")]);
    let revision = db.save_agent_state(alice, id, &state, Expect::Revision(revision)).await.unwrap();
    assert_eq!(written().await, ["100", "101"]);

    mark().await;
    state.messages[7] = Message::user("other");
    state.messages.truncate(50);
    let revision = db.save_agent_state(alice, id, &state, Expect::Revision(revision)).await.unwrap();
    assert_eq!(written().await, ["7"]);
    assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, state);

    // A state that was never loaded or saved here replaces everything.
    let other = state_of(&["a", "b", "c"]);
    let replaced = db.save_agent_state(alice, id, &other, Expect::Revision(revision)).await.unwrap();
    assert_conflict(db.save_agent_state(alice, id, &state, Expect::Revision(revision)).await, replaced);
    assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, other);
}

async fn a_stale_save_on_a_recreated_conversation_is_a_conflict(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    let mut state = state_of(&["a", "b"]);
    let revision = db.save_agent_state(alice, id, &state, Expect::NOTHING).await.unwrap();
    db.delete_conversation(alice, id).await.unwrap();
    db.create_conversation(alice, NewConversation::new().id(id)).await.unwrap();
    let other = state_of(&["c", "d"]);
    assert_eq!(db.save_agent_state(alice, id, &other, Expect::NOTHING).await.unwrap(), revision);
    state.add_message(Message::user("e"));
    assert_conflict(db.save_agent_state(alice, id, &state, Expect::Revision(revision)).await, revision);
    assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, other);
}

async fn one_of_many_first_saves_wins(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    let mut writers = JoinSet::new();
    for n in 1..=8 {
        let db = db.clone();
        writers.spawn(async move {
            let mut state = State::new();
            state.add_messages((0..n).map(|_| Message::user(format!("writer {n}"))));
            (db.save_agent_state(&db.alice, id, &state, Expect::NOTHING).await, state)
        });
    }
    let mut winners = Vec::new();
    for (saved, state) in writers.join_all().await {
        match saved {
            Ok(revision) => {
                assert_eq!(revision, Revision(1));
                winners.push(state);
            }
            refused => assert_conflict(refused, Revision(1)),
        }
    }
    assert_eq!(winners, [db.load_agent_state(&db.alice, id).await.unwrap().state]);
}

async fn saves_that_expect_anything_all_succeed(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    let mut writers = JoinSet::new();
    for n in 1..=8 {
        let db = db.clone();
        writers.spawn(async move {
            let mut state = State::new();
            state.add_messages((0..n).map(|_| Message::user(format!("writer {n}"))));
            for _ in 0..5 {
                db.save_agent_state(&db.alice, id, &state, Expect::Any).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    assert_eq!(db.load_agent_state(&db.alice, id).await.unwrap().revision, Revision(40));
    assert_eq!(db.list_unreadable_states(&db.alice, id).await.unwrap(), []);
}

/// Data that can't be parsed. `PostgreSQL` refuses what isn't JSON.
fn damaged_data(kind: Kind) -> Vec<&'static str> {
    let mut damaged = vec![
        "[]",
        r#"{"version":2}"#,
        r#"{"version":2,"state":{"messages":[]}}"#,
        r#"{"version":3,"state":{}}"#,
        r#"{"state":{"messages":[{"role":"user","content":"x"}]}}"#,
    ];
    if kind == Kind::Sqlite {
        damaged.push("not JSON");
    }
    damaged
}

async fn a_state_that_cannot_be_parsed_is_quarantined(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id, state) = (&db.alice, db.conversation().await, state_of(&["hello"]));
    let damaged = damaged_data(database.kind);
    let mut revision = db.save_agent_state(alice, id, &state, Expect::NOTHING).await.unwrap();
    for (n, data) in damaged.iter().enumerate() {
        overwrite(&db, data).await;
        assert_unreadable(db.load_agent_state(alice, id).await);
        assert_unreadable(db.load_todos(alice, id).await);
        assert_unreadable(db.fork_conversation(alice, id, Fork::new()).await);
        assert_unreadable(db.rewind_conversation(alice, id, Point::End).await);
        let loaded = State::load_or_new(&db.store(), alice, &LoadContext::new(id), State::new()).await;
        let (_, expect) = loaded.unwrap();
        assert_eq!(expect, Expect::Unreadable(revision));
        let expect = if n == 0 { expect } else { Expect::Any };
        revision = db.save_agent_state(alice, id, &state, expect).await.unwrap();
        assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, state);
    }
    for _ in 0..3 {
        revision = db.save_agent_state(alice, id, &state, Expect::Revision(revision)).await.unwrap();
    }
    let quarantined = db.list_unreadable_states(alice, id).await.unwrap();
    assert_eq!(quarantined.len(), damaged.len());
    for (listed, data) in quarantined.iter().zip(&damaged) {
        let loaded = db.load_unreadable_state(alice, id, listed.epoch).await.unwrap();
        assert_eq!((loaded.header.as_slice(), loaded.messages.len()), (data.as_bytes(), 1));
        assert_not_found!(db.load_unreadable_state(&db.bob, id, listed.epoch));
        assert_not_found!(db.restore_unreadable_state(&db.bob, id, listed.epoch));
        assert_not_found!(db.discard_unreadable_state(&db.bob, id, listed.epoch));
    }
    assert_not_found!(db.list_unreadable_states(&db.bob, id));
}

async fn quarantined_states_are_restored_and_discarded(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id, state) = (&db.alice, db.conversation().await, state_of(&["hello"]));
    let mut revision = Revision(0);
    for data in damaged_data(database.kind) {
        db.save_agent_state(alice, id, &state, Expect::Any).await.unwrap();
        overwrite(&db, data).await;
        revision = db.save_agent_state(alice, id, &state, Expect::Any).await.unwrap();
    }
    let quarantined = db.list_unreadable_states(alice, id).await.unwrap();

    // A restore swaps the two states.
    let first = quarantined[0].epoch;
    let restored = db.restore_unreadable_state(alice, id, first).await.unwrap();
    assert_eq!(restored, Revision(revision.0 + 1));
    assert_unreadable(db.load_agent_state(alice, id).await);
    assert_conflict(db.save_agent_state(alice, id, &state, Expect::Revision(revision)).await, restored);
    let swapped = db.list_unreadable_states(alice, id).await.unwrap();
    assert_eq!(swapped.len(), quarantined.len());
    assert_not_found!(db.restore_unreadable_state(alice, id, first));
    assert_not_found!(db.discard_unreadable_state(alice, id, first));
    assert_unreadable(db.load_agent_state(alice, id).await);
    db.restore_unreadable_state(alice, id, swapped.last().unwrap().epoch).await.unwrap();
    assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, state);

    for listed in &db.list_unreadable_states(alice, id).await.unwrap() {
        db.discard_unreadable_state(alice, id, listed.epoch).await.unwrap();
        assert_not_found!(db.discard_unreadable_state(alice, id, listed.epoch));
        assert_not_found!(db.load_unreadable_state(alice, id, listed.epoch));
    }
    assert_eq!(db.list_unreadable_states(alice, id).await.unwrap(), []);
    assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, state);
    assert_eq!(db.pool.number("SELECT count(*) FROM sagents_agent_messages").await, 1);
}

async fn a_state_of_a_future_version_is_never_overwritten(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    db.save_agent_state(alice, id, &state_of(&["hello"]), Expect::NOTHING).await.unwrap();
    overwrite(&db, r#"{"version":4,"state":{}}"#).await;
    let is_future = |error| matches!(error, Error::Unreadable(ReadError::FutureVersion { version: 4 }));
    assert!(is_future(db.load_agent_state(alice, id).await.unwrap_err()));
    assert!(is_future(db.save_agent_state(alice, id, &State::new(), Expect::Any).await.unwrap_err()));
}

async fn damaged_messages_are_found_and_quarantined(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id, state) = (&db.alice, db.conversation().await, state_of(&["a", "b", "c"]));
    for (sql, path) in [
        ("DELETE FROM sagents_agent_messages WHERE position = 1", "state.messages[1]"),
        ("DELETE FROM sagents_agent_messages WHERE position = 2", "state.messages"),
        ("UPDATE sagents_agent_messages SET data = '1' WHERE position = 1", "state.messages[1]"),
        (
            r#"UPDATE sagents_agent_messages SET data = '{"role":"nobody"}' WHERE position = 2"#,
            "state.messages[2].role",
        ),
    ] {
        let revision = db.save_agent_state(alice, id, &state, Expect::Any).await.unwrap();
        db.pool.execute(sql).await;
        assert_eq!(damage(db.load_agent_state(alice, id).await), path);
        if sql.starts_with("DELETE") {
            assert_eq!(damage(db.fork_conversation(alice, id, Fork::new()).await), "state.messages");
        }
        db.save_agent_state(alice, id, &state, Expect::Unreadable(revision)).await.unwrap();
        let epoch = db.list_unreadable_states(alice, id).await.unwrap()[0].epoch;
        db.restore_unreadable_state(alice, id, epoch).await.unwrap();
        assert_eq!(damage(db.load_agent_state(alice, id).await), path);
        db.save_agent_state(alice, id, &state, Expect::Any).await.unwrap();
        for listed in db.list_unreadable_states(alice, id).await.unwrap() {
            db.discard_unreadable_state(alice, id, listed.epoch).await.unwrap();
        }
    }
}

async fn a_gap_between_messages_is_damage(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    db.save_agent_state(alice, id, &state_of(&["a", "b", "c"]), Expect::NOTHING).await.unwrap();
    db.pool.execute("UPDATE sagents_agent_messages SET position = 7 WHERE position = 2").await;
    assert_eq!(damage(db.load_agent_state(alice, id).await), "state.messages[2]");
    assert_eq!(damage(db.rewind_conversation(alice, id, Point::End).await), "state.messages[2]");
}
