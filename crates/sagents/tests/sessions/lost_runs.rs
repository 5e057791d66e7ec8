//! Processes that lose their run, and claims whose replies are lost.

use sagents::{Claim, RunStatus, RunUpdate, ToolResult, ToolStatus};
use uuid::Uuid;

use crate::storage::{Talk, add, frozen, scope};
use crate::support::Kind;
use crate::turns::{calls, rows, started};
use crate::{by_hand, paused_on_both_databases};

paused_on_both_databases!(
    a_process_that_was_slow_and_lost_its_run_changes_no_call_of_the_next_one,
    a_claim_whose_reply_was_lost_is_not_repeated_after_the_outcome_is_unknown,
);

async fn a_process_that_was_slow_and_lost_its_run_changes_no_call_of_the_next_one(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let (slow, next) = (talk.start().await, talk.other_process());
    add(&slow, calls(&["runs", "ends", "starts", "stays"]));
    slow.save().await.unwrap();
    let lost = started(slow.begin_run().await.unwrap());
    for call in ["runs", "ends"] {
        assert!(matches!(slow.claim_tool_call(call).await.unwrap(), Claim::Claimed(_)));
    }
    // Its lease is over.
    let (scope, failed) = (scope(), RunUpdate::End(RunStatus::Failed));
    frozen(talk.layer.update_run(&scope, talk.id, lost.run_id(), failed)).await.unwrap();
    let next = next.start(&scope, talk.id).await.unwrap();
    let run = started(next.begin_run().await.unwrap());
    assert_eq!(run.sealed_tool_calls(), ["runs", "ends"]);
    assert!(matches!(next.claim_tool_call("starts").await.unwrap(), Claim::Claimed(_)));
    next.save().await.unwrap();

    // The slow one goes on, and does not know it.
    for call in ["runs", "starts"] {
        assert!(matches!(slow.claim_tool_call(call).await.unwrap(), Claim::Already(_)));
        assert!(!slow.cancel_unstarted_tool_call(call).await.unwrap(), "it was started");
    }
    slow.add_tool_result(ToolResult::new("ends", "search", "found")).unwrap();
    slow.save().await.unwrap_err();
    slow.reload().await.unwrap();
    slow.save().await.unwrap();
    let text = slow.read(|state| state.result_of("ends").unwrap().content.clone());
    assert!(text.unwrap().text().contains("outcome is unknown"));

    next.add_tool_result(ToolResult::new("starts", "search", "found")).unwrap();
    next.reload().await.unwrap();
    next.save().await.unwrap();
    assert!(next.cancel_unstarted_tool_call("stays").await.unwrap());
    assert!(next.cancel_unstarted_tool_call("stays").await.unwrap(), "it can be repeated");
    let statuses: Vec<_> = rows(&talk).await.iter().filter_map(|row| row.status).collect();
    let expected = [ToolStatus::Unknown, ToolStatus::Unknown, ToolStatus::Completed, ToolStatus::Cancelled];
    assert_eq!(statuses, expected);
    drop((lost, run));
}

async fn a_claim_whose_reply_was_lost_is_not_repeated_after_the_outcome_is_unknown(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    add(&session, calls(&["call_1"]));
    session.save().await.unwrap();
    let (store, scope, claim) = (&talk.layer, scope(), Uuid::now_v7());
    for _ in 0..2 {
        let claimed = store.claim_tool_call(&scope, talk.id, "call_1", claim);
        assert!(matches!(frozen(claimed).await.unwrap(), Claim::Claimed(_)));
    }
    let run = started(session.begin_run().await.unwrap());
    assert_eq!(run.sealed_tool_calls(), ["call_1"]);
    let claimed = store.claim_tool_call(&scope, talk.id, "call_1", claim);
    assert!(matches!(frozen(claimed).await.unwrap(), Claim::Already(_)));
}
