//! Housekeeping finds the runs of all owners whose processes are gone, and gives each to one process.

#[macro_use]
mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use sagents::session::{Coordinator, SessionOptions};
use sagents::{BeginRun, ClaimedRun, RunStatus, RunUpdate};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::TestDatabase;
use crate::support::fixture::{Fixture, KINDS};

on_both_databases![
    abandoned_and_handed_over_runs_of_all_owners_are_claimed_once,
    a_claimed_run_continues_in_a_session,
    a_claim_that_nobody_continues_is_abandoned_again,
];

/// Every run is abandoned at once.
const OVER: Duration = Duration::ZERO;
const LEASE: Duration = Duration::from_mins(1);

async fn abandoned_and_handed_over_runs_of_all_owners_are_claimed_once(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let mut expected = BTreeSet::new();
        for owner in [&db.alice, &db.bob] {
            let started = async |update: Option<RunUpdate>| {
                let (id, run) = (db.conversation_of(owner).await, Uuid::now_v7());
                db.begin_run(owner, id, run, "dead", LEASE).await.unwrap();
                if let Some(update) = update {
                    let _ = db.update_run(owner, id, run, update).await.unwrap();
                }
                id
            };
            let left = [started(None).await, started(Some(RunUpdate::Wait(Value::Null))).await];
            expected.extend(left.map(|id| (owner.key().clone(), id)));
            let _ = started(Some(RunUpdate::Wait(json!({ "question": 1 })))).await;
            let _ = started(Some(RunUpdate::End(RunStatus::Finished))).await;
        }
        assert_eq!(db.claim_abandoned_runs("one", LEASE, 100).await.unwrap().len(), expected.len() / 2, "handed over");
        tokio::time::sleep(Duration::from_millis(2)).await;
        let (one, other) =
            tokio::join!(db.claim_abandoned_runs("one", OVER, 2), db.claim_abandoned_runs("other", OVER, 100));
        assert!(one.as_ref().is_ok_and(|one| one.len() <= 2));
        for ClaimedRun { owner, run } in one.unwrap().into_iter().chain(other.unwrap()) {
            assert!(run.resumed, "{run:?}");
            assert_eq!(owner.to_json()["type"], db.alice.to_json()["type"]);
            expected.remove(&(owner.key().clone(), run.conversation_id));
        }
        assert_eq!(expected, BTreeSet::new(), "{tables:?}");
        assert_eq!(db.claim_abandoned_runs("late", LEASE, 100).await.unwrap(), []);
    }
}

async fn a_claimed_run_continues_in_a_session(database: &TestDatabase) {
    let db = Fixture::new(database, KINDS[0]).await;
    let id = db.conversation().await;
    db.begin_run(&db.alice, id, Uuid::now_v7(), "dead", LEASE).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2)).await;

    let options = SessionOptions { run_lease: LEASE, ..SessionOptions::default() };
    let coordinator = Coordinator::with_options(&db.store(), options);
    let [claimed] = db.claim_abandoned_runs("here", OVER, 10).await.unwrap().try_into().unwrap();
    let session = coordinator.start(&claimed.owner, id).await.unwrap();
    let BeginRun::Busy(other) = session.begin_run().await.unwrap() else { panic!("the claim holds the conversation") };
    assert_eq!(other, claimed.run);
    let BeginRun::Started(guard) = session.begin_claimed_run(&claimed.run).await.unwrap() else { panic!("it's ours") };
    assert!(guard.is_resumed());
    session.complete_run().unwrap();
    assert_eq!(coordinator.shutdown(LEASE).await.unsaved.len(), 0);
    assert_eq!(db.get_run(&db.alice, id).await.unwrap().unwrap().status, RunStatus::Finished);
}

async fn a_claim_that_nobody_continues_is_abandoned_again(database: &TestDatabase) {
    let db = Fixture::new(database, KINDS[0]).await;
    let id = db.conversation().await;
    db.begin_run(&db.alice, id, Uuid::now_v7(), "dead", LEASE).await.unwrap();
    let mut runs = BTreeSet::new();
    for holder in ["first", "second"] {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let [claimed] = db.claim_abandoned_runs(holder, OVER, 10).await.unwrap().try_into().unwrap();
        assert_eq!((claimed.run.holder.as_str(), claimed.run.resumed), (holder, true));
        runs.insert(claimed.run.id);
    }
    assert_eq!(runs.len(), 2, "each claim is a run of its own");
}
