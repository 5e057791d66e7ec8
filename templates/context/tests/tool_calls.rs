//! Tool calls, and decisions on them.

use serde_json::{Map, json};

use super::super::*;
use super::database::{Database, alice};
use super::object;
use crate::sagents::{Message, ToolCall, ToolResult};

#[tokio::test]
async fn a_tool_call_runs_through_its_life() {
    let db = Database::new().await;
    let id = db.conversation().await;
    for _ in 0..2 {
        // A model may repeat a call id: the newest row is the one that is meant.
        let call = NewDisplayMessage::tool_call("call_1", "search")
            .metadata(object(json!({ "name": "search" })));
        db.append_display_message(&alice(), id, call).await.unwrap();
    }
    let waiting = NewDisplayMessage::tool_result("call_1", "waiting")
        .metadata(object(json!({ "is_interrupt": true })));
    db.append_display_message(&alice(), id, waiting)
        .await
        .unwrap();

    let question = object(json!({ "question": "really?" }));
    db.mark_tool_executing(&alice(), id, "call_1")
        .await
        .unwrap();
    db.interrupt_tool_call(&alice(), id, "call_1", question)
        .await
        .unwrap();
    db.record_hitl_decision(&alice(), id, "call_1", HitlDecision::Approved)
        .await
        .unwrap();
    db.mark_tool_executing(&alice(), id, "call_1")
        .await
        .unwrap();
    let real = ToolResult::error("call_1", "search", "42");
    let resolved = db.resolve_interrupted_tool_result(&alice(), id, &real).await.unwrap();
    assert!(resolved.is_error);
    let result = object(json!({ "result": 42 }));
    let done = db
        .complete_tool_call(&alice(), id, "call_1", result.clone())
        .await
        .unwrap();
    assert_eq!(
        db.complete_tool_call(&alice(), id, "call_1", result)
            .await
            .unwrap(),
        done,
        "repeating is harmless"
    );
    assert_invalid!(db.cancel_tool_call(&alice(), id, "call_1"));
    assert_not_found!(db.fail_tool_call(&alice(), id, "call_2", Map::new()));
    assert_invalid!(db.resolve_interrupted_tool_result(&alice(), id, &real));

    let messages = db
        .load_display_messages(&alice(), id, MessagePage::first())
        .await
        .unwrap()
        .items;
    let seen: Vec<_> = messages
        .iter()
        .map(|message| (message.status, json!(message.metadata)))
        .collect();
    let metadata = json!({
        "name": "search", "question": "really?", "hitl_decision": "approved", "result": 42
    });
    assert_eq!(
        seen[0],
        (Some(ToolStatus::Pending), json!({ "name": "search" }))
    );
    assert_eq!(seen[1], (Some(ToolStatus::Completed), metadata));
    assert_eq!(
        seen[2],
        (
            None,
            json!({ "is_interrupt": false, "is_error": true, "hitl_decision": "approved" })
        )
    );
    assert_eq!(messages[2], resolved);
    assert_eq!(messages[2].content, "42");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tool_call_is_claimed_and_decided_by_one_caller() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let call = NewDisplayMessage::tool_call("call_1", "search");
    db.append_display_message(&alice(), id, call).await.unwrap();
    assert_invalid!(db.decide_tool_call(&alice(), id, "call_1", &Decision::Approve, Uuid::now_v7()));
    let claim = Uuid::now_v7();
    for _ in 0..2 {
        let claimed = db.claim_tool_call(&alice(), id, "call_1", claim).await.unwrap();
        assert!(matches!(claimed, Claim::Claimed(call) if call.claim() == Some(claim)));
    }
    let other = db.claim_tool_call(&alice(), id, "call_1", Uuid::now_v7()).await.unwrap();
    assert!(matches!(other, Claim::Already(call) if call.claim() == Some(claim)));
    assert_invalid!(db.mark_tool_executing(&alice(), id, "call_1"));

    db.interrupt_tool_call(&alice(), id, "call_1", Map::new()).await.unwrap();
    assert_invalid!(db.mark_tool_executing(&alice(), id, "call_1"));
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (conversations, claim) = ((*db).clone(), Uuid::now_v7());
        let decision = match n % 2 {
            0 => Decision::Edit { arguments: json!({ "caller": n }) },
            _ => Decision::Reject { reason: Some(n.to_string()) },
        };
        callers.spawn(async move {
            let scope = alice();
            for _ in 0..2 {
                let decide =
                    conversations.decide_tool_call(&scope, id, "call_1", &decision, claim);
                if let Decided::Already(other, call) = decide.await.unwrap() {
                    return (other, call.status, false);
                }
            }
            (decision.clone(), Some(decision.status()), true)
        });
    }
    let decided = callers.join_all().await;
    let (first, status, _) = decided.iter().find(|(.., is_claimed)| *is_claimed).unwrap();
    assert_eq!(decided.iter().filter(|(.., is_claimed)| *is_claimed).count(), 1);
    assert!(decided.iter().all(|(decision, after, _)| decision == first && after == status));
    assert_invalid!(db.record_hitl_decision(
        &alice(),
        id,
        "call_1",
        match first {
            Decision::Reject { .. } => HitlDecision::Approved,
            Decision::Approve | Decision::Edit { .. } => HitlDecision::Rejected,
        }
    ));
}

#[tokio::test]
async fn a_tool_call_may_have_an_id_of_any_length() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let numbers = (1..1000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let call_id = numbers.map(|number| number.to_string()).collect::<Vec<_>>().concat();
    let mut message = Message::assistant("Let me look.");
    message.tool_calls = vec![ToolCall::new(&call_id, "search", json!({}))];
    let stored = db.save_message(&alice(), id, Uuid::now_v7(), &message).await.unwrap();
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[1].metadata["call_id"], json!(call_id));

    let started = db.mark_tool_executing(&alice(), id, &call_id).await.unwrap();
    let short = started.tool_call_id.unwrap();
    assert!(short.len() < 200 && call_id.starts_with(&short[..100]), "{short}");
    let ended = db.complete_tool_call(&alice(), id, &short, Map::new()).await.unwrap();
    assert_eq!(ended.sequence, started.sequence);
    assert_not_found!(db.cancel_tool_call(&alice(), id, &call_id[1..]));
}
