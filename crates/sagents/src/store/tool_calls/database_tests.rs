//! What sessions ask about tool calls.

use serde_json::{Map, json};
use uuid::Uuid;

use crate::support::TestDatabase;
use crate::support::fixture::{Fixture, KINDS, object};
use crate::{
    Claim, Decision, Message, NewDisplayMessage, ToolCall, ToolResult, ToolStatus, assert_invalid, assert_not_found,
    on_both_databases,
};

on_both_databases!(
    a_question_is_no_result,
    a_sealed_call_is_unknown_and_is_not_claimed_again,
    only_an_undecided_call_is_cancelled_while_it_waits,
    a_call_is_changed_by_its_long_id,
);

async fn a_question_is_no_result(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id) = (&db.alice, db.conversation().await);
        assert_not_found!(db.seal_tool_call(alice, id, "call"));
        db.append_display_message(alice, id, NewDisplayMessage::tool_call("call", "search")).await.unwrap();
        let question = object(json!({"is_interrupt": true, "name": "search"}));
        let question = NewDisplayMessage::tool_result("call", "waiting").metadata(question);
        db.append_display_message(alice, id, question).await.unwrap();
        let stored = db.seal_tool_call(alice, id, "call").await.unwrap();
        assert_eq!((stored.status, stored.decision, stored.result), (ToolStatus::Pending, None, None));

        db.claim_tool_call(alice, id, "call", Uuid::now_v7()).await.unwrap();
        let result = ToolResult::error("call", "search", "42");
        let resolved = db.resolve_tool_result(alice, id, &result).await.unwrap();
        db.complete_tool_call(alice, id, "call", Map::new()).await.unwrap();
        let stored = db.seal_tool_call(alice, id, "call").await.unwrap();
        let (message, result) = stored.result.unwrap();
        assert_eq!((stored.status, message), (ToolStatus::Completed, resolved.message_id));
        assert_eq!((result.is_error, result.name.as_deref()), (true, Some("search")));
    }
}

async fn a_sealed_call_is_unknown_and_is_not_claimed_again(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id, claim) = (&db.alice, db.conversation().await, Uuid::now_v7());
        db.append_display_message(alice, id, NewDisplayMessage::tool_call("call", "search")).await.unwrap();
        for _ in 0..2 {
            let claimed = db.claim_tool_call(alice, id, "call", claim).await.unwrap();
            assert!(matches!(claimed, Claim::Claimed(_)));
        }
        for _ in 0..2 {
            let sealed = db.seal_tool_call(alice, id, "call").await.unwrap();
            assert_eq!((sealed.status, sealed.result), (ToolStatus::Unknown, None));
            let claimed = db.claim_tool_call(alice, id, "call", claim).await.unwrap();
            assert!(matches!(claimed, Claim::Already(_)));
        }
    }
}

async fn only_an_undecided_call_is_cancelled_while_it_waits(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id) = (&db.alice, db.conversation().await);
        for call in ["decided", "waiting"] {
            db.append_display_message(alice, id, NewDisplayMessage::tool_call(call, "x")).await.unwrap();
        }
        db.interrupt_tool_call(alice, id, "decided", Map::new()).await.unwrap();
        db.decide_tool_call(alice, id, "decided", &Decision::Approve, Uuid::now_v7()).await.unwrap();
        let (call, is_cancelled) = db.cancel_unstarted_tool_call(alice, id, "decided", true).await.unwrap();
        assert_eq!((call.status, is_cancelled), (Some(ToolStatus::Pending), false));
        for _ in 0..2 {
            let (call, is_cancelled) = db.cancel_unstarted_tool_call(alice, id, "waiting", true).await.unwrap();
            assert_eq!((call.status, is_cancelled), (Some(ToolStatus::Cancelled), true));
        }
        let claimed = db.claim_tool_call(alice, id, "decided", Uuid::now_v7()).await.unwrap();
        assert!(matches!(claimed, Claim::Claimed(_)));
        for only_undecided in [true, false] {
            let cancelled = db.cancel_unstarted_tool_call(alice, id, "decided", only_undecided).await.unwrap();
            assert_eq!((cancelled.0.status, cancelled.1), (Some(ToolStatus::Executing), false), "it was started");
        }
    }
}

async fn a_call_is_changed_by_its_long_id(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id, executing) = (&db.alice, db.conversation().await, ToolStatus::Executing);
        let long = "x".repeat(500) + &"y".repeat(2000);
        let mut message = Message::assistant("");
        message.tool_calls = vec![ToolCall::new(&long, "search", json!({}))];
        db.save_message(alice, id, Uuid::now_v7(), &message).await.unwrap();
        let started = db.change_tool_call(alice, id, &long, executing, Map::new()).await.unwrap();
        assert_eq!(started.status, Some(executing));
        assert_invalid!(db.change_tool_call(alice, id, &long, executing, Map::new()));
        db.complete_tool_call(alice, id, &started.tool_call_id.unwrap(), Map::new()).await.unwrap();
    }
}
