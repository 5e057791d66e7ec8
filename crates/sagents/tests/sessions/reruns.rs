//! Tools that may run twice are started again by the run that follows a killed one.

use sagents::session::SessionOptions;
use sagents::{BeginRun, Claim, Decision, Message, State, ToolCall, ToolResult, ToolStatus};
use serde_json::json;

use crate::storage::{Talk, add, scope};
use crate::support::Kind;
use crate::{by_hand, paused_on_both_databases};

paused_on_both_databases!(a_tool_that_may_run_twice_is_claimed_again_after_a_kill);

async fn a_tool_that_may_run_twice_is_claimed_again_after_a_kill(kind: Kind) {
    let options = SessionOptions { rerun_tools: ["search".to_owned()].into(), ..by_hand() };
    let talk = Talk::new(kind, options).await;
    let killed = talk.start().await;
    let names = [("plain", "search"), ("asked", "search"), ("answered", "search"), ("once", "send")];
    add(&killed, Message::tool_calls(names.map(|(id, name)| ToolCall::new(id, name, json!({})))));
    killed.interrupt_tool_call("asked", json!({})).unwrap();
    killed.save().await.unwrap();
    killed.decide_tool_call("asked", Decision::Approve).await.unwrap();
    for (call, _) in names {
        assert!(matches!(killed.claim_tool_call(call).await.unwrap(), Claim::Claimed(_)), "{call}");
    }
    killed.add_tool_result(ToolResult::new("answered", "search", "found")).unwrap();
    killed.save().await.unwrap();

    let session = talk.other_process().start(&scope(), talk.id).await.unwrap();
    let BeginRun::Started(run) = session.begin_run().await.unwrap() else { panic!("nobody else runs it") };
    assert_eq!(run.sealed_tool_calls(), ["once"]);
    let open: Vec<_> = session.read(State::open_tool_calls).into_iter().map(|call| call.tool_call_id).collect();
    assert_eq!(open, ["plain", "asked"]);
    for call in ["plain", "asked"] {
        let Claim::Claimed(row) = session.claim_tool_call(call).await.unwrap() else { panic!("{call} runs again") };
        assert_eq!(row.status, Some(ToolStatus::Executing));
        assert_eq!(row.decision(), (call == "asked").then_some(Decision::Approve));
        assert!(matches!(killed.claim_tool_call(call).await.unwrap(), Claim::Already(_)), "{call}");
    }
    for call in ["answered", "once"] {
        assert!(matches!(session.claim_tool_call(call).await.unwrap(), Claim::Already(_)), "{call}");
    }
}
