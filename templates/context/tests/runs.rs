//! Runs of an agent.

use std::time::Duration;

use serde_json::json;

use super::super::*;
use super::database::{Database, alice};

#[tokio::test]
async fn a_conversation_has_one_run_at_a_time() {
    const LEASE: Duration = Duration::from_secs(45);

    let db = Database::new().await;
    let id = db.conversation().await;
    let [first, second, third] = [(); 3].map(|()| Uuid::now_v7());
    assert_eq!(db.get_run(&alice(), id).await.unwrap(), None);
    assert!(!db.request_cancel(&alice(), id).await.unwrap());
    let begin = async |run_id, lease| db.begin_run(&alice(), id, run_id, "here", lease).await.unwrap();
    let BeginRun::Started(run) = begin(first, LEASE).await else {
        panic!("nobody else runs");
    };
    assert_eq!((run.id, run.status, run.cancel_requested), (first, RunStatus::Running, false));
    assert!(!run.is_abandoned(LEASE));
    assert!(matches!(begin(second, LEASE).await, BeginRun::Busy(run) if run.id == first));
    assert_eq!(db.renew_run(&alice(), id, first).await.unwrap(), RunSignal::Go);
    assert_eq!(db.renew_run(&alice(), id, second).await.unwrap(), RunSignal::Lost);
    assert!(db.request_cancel(&alice(), id).await.unwrap());
    assert_eq!(db.renew_run(&alice(), id, first).await.unwrap(), RunSignal::CancelRequested);
    assert!(matches!(begin(first, LEASE).await, BeginRun::Started(run) if run.cancel_requested));

    tokio::time::sleep(Duration::from_millis(2)).await;
    let BeginRun::Started(taken) = begin(second, Duration::ZERO).await else {
        panic!("the lease is over");
    };
    assert_eq!((taken.id, taken.cancel_requested), (second, false));
    assert_eq!(db.renew_run(&alice(), id, first).await.unwrap(), RunSignal::Lost);
    db.end_run(&alice(), id, first, RunStatus::Failed).await.unwrap();
    let question = json!({ "question": "really?" });
    assert_eq!(db.wait_run(&alice(), id, second, &question).await.unwrap(), RunSignal::Go);
    let waiting = db.unfinished_runs(&alice()).await.unwrap();
    assert_eq!(waiting, [db.get_run(&alice(), id).await.unwrap().unwrap()]);
    assert_eq!((waiting[0].status, &waiting[0].waiting_for), (RunStatus::Waiting, &Some(question)));
    // Who got the decision goes on, also in another process.
    assert!(matches!(begin(third, LEASE).await, BeginRun::Started(run) if run.waiting_for.is_none()));
    assert_invalid!(db.end_run(&alice(), id, third, RunStatus::Waiting));
    db.end_run(&alice(), id, third, RunStatus::Finished).await.unwrap();
    assert_eq!(db.renew_run(&alice(), id, third).await.unwrap(), RunSignal::Lost);
    assert_eq!(db.unfinished_runs(&alice()).await.unwrap(), []);
    assert!(matches!(begin(first, LEASE).await, BeginRun::Started(_)));
    db.delete_conversation(&alice(), id).await.unwrap();
    assert_not_found!(db.renew_run(&alice(), id, first));
    assert_not_found!(db.begin_run(&alice(), id, first, "here", LEASE));
}
