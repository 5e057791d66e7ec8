//! A turn of an agent: tool calls, decisions, runs.

use sagents::session::{AgentSession, RunChange, RunGuard, SessionError, SessionEvent};
use sagents::{
    BeginRun, Claim, Decided, Decision, Delivery, Message, RunStatus, RunUpdate, State, Todo, ToolCall, ToolResult,
};
use sagents::{DisplayMessage, Error, MessagePage, ToolStatus};
use serde_json::{Map, json};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::{INTERVAL, SECOND, by_hand};
use crate::paused_on_both_databases;
use crate::storage::{Fault, Talk, frozen, said, say, scope};
use crate::support::Kind;
use crate::support::context::NewConversation;

paused_on_both_databases!(
    the_status_of_a_call_follows_its_message,
    a_call_is_approved_once_and_its_result_replaces_the_question,
    cancelled_interrupts_end_their_calls,
    only_calls_that_nobody_has_decided_about_are_cancelled,
    a_run_gives_a_result_to_the_calls_that_an_earlier_one_started,
    a_run_knows_that_it_follows_one_whose_process_ended,
    a_pending_call_is_claimed_by_one_process,
    a_conversation_has_one_run_which_any_process_can_cancel,
    a_run_that_is_cancelled_in_its_own_process_is_announced_once,
    a_session_that_has_ended_begins_no_run_and_stays_saved,
    an_agent_without_a_run_cannot_wait_while_another_process_works,
    a_run_is_left_to_another_process,
    a_deleted_conversation_ends_its_session,
    events_are_objects_without_details,
);

async fn the_status_of_a_call_follows_its_message(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    for n in 0..20 {
        let call = format!("call_{n}");
        crate::storage::add(&session, calls(&[&call]));
        session.claim_tool_call(&call).await.unwrap();
        let metadata = Map::from_iter([("took".to_owned(), json!(n))]);
        match n % 3 {
            0 => session.complete_tool_call(&call, metadata).unwrap(),
            1 => session.fail_tool_call(&call, metadata).unwrap(),
            _ => session.cancel_tool_call(&call).unwrap(),
        }
    }
    session.save().await.unwrap();
    let ended = [ToolStatus::Completed, ToolStatus::Failed, ToolStatus::Cancelled];
    for (n, row) in rows(&talk).await.iter().enumerate() {
        assert_eq!(row.status, Some(ended[n % 3]));
    }

    // A result is one of the agent state too, and ends its call.
    crate::storage::add(&session, calls(&["good", "bad"]));
    session.add_tool_result(ToolResult::new("good", "search", "found")).unwrap();
    let mut error = ToolResult::new("bad", "search", "offline");
    error.is_error = true;
    session.add_tool_result(error.clone()).unwrap();
    session.add_tool_result(error).unwrap();
    session.save().await.unwrap();
    let rows = &rows(&talk).await[20..];
    let texts: Vec<_> = rows.iter().map(|row| row.content.as_str()).collect();
    assert_eq!(texts, ["search", "search", "found", "offline"]);
    assert_eq!(rows[0].status, Some(ToolStatus::Completed));
    assert_eq!(rows[1].status, Some(ToolStatus::Failed));
    assert_eq!(rows[3].metadata["is_error"], true);
    assert!(talk.coordinator.stats().last_error.is_none());
}

async fn a_call_is_approved_once_and_its_result_replaces_the_question(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    crate::storage::add(&session, calls(&["call_1"]));
    session.interrupt_tool_call("call_1", json!({ "amount": 5 })).unwrap();
    session.wait_run(json!({ "call": "call_1" })).unwrap();
    session.save().await.unwrap();
    assert_eq!(talk.shown().await.len(), 2);

    // Other processes decide too. The replies of some are lost.
    talk.record.fail([Some(Fault::After), Some(Fault::Before), Some(Fault::After)]);
    let others = [talk.other_process(), talk.other_process()];
    let mut sessions = vec![session.clone()];
    for other in &others {
        let other = other.start(&scope(), talk.id).await.unwrap();
        let waits_for = other.read(|state| state.interrupt_data.clone());
        assert_eq!(waits_for, Some(json!({ "call": "call_1" })));
        sessions.push(other);
    }
    let mut claimed = Vec::new();
    for (n, session) in sessions.iter().enumerate() {
        let decision = match n {
            0 => Decision::Approve,
            _ => Decision::Reject { reason: None },
        };
        match session.decide_tool_call("call_1", decision).await.unwrap() {
            Decided::Claimed(row) => claimed.push((n, row.status)),
            Decided::Already(decision, _) => assert_eq!(decision, Decision::Approve),
        }
    }
    assert_eq!(claimed, [(0, Some(ToolStatus::Pending))]);
    // Any process may run it, and one does.
    for (n, session) in sessions.iter().enumerate().rev() {
        let claim = session.claim_tool_call("call_1").await.unwrap();
        assert_eq!(matches!(claim, Claim::Claimed(_)), n == 2);
    }

    session.continue_run().unwrap();
    session.add_tool_result(ToolResult::new("call_1", "pay", "paid 5")).unwrap();
    session.save().await.unwrap();
    let rows = rows(&talk).await;
    assert_eq!(rows[0].status, Some(ToolStatus::Completed));
    assert_eq!((rows.len(), rows[1].content.as_str()), (2, "paid 5"));
    let results = session.read(|state| state.messages[1].tool_results.clone());
    assert!(!results[0].is_interrupt && results.len() == 1);
    assert!(session.decide_tool_call("call_1", Decision::Approve).await.is_ok());
    let unknown = session.decide_tool_call("call_2", Decision::Approve).await.unwrap_err();
    assert!(is(&unknown, |error| matches!(error, Error::NotFound)), "{unknown}");
    let seen = types(&mut events);
    assert!(seen.contains(&"tool_call".to_owned()) && seen.contains(&"run".to_owned()), "{seen:?}");
    let again = talk.other_process().start(&scope(), talk.id).await.unwrap();
    assert_eq!(again.read(|state| state.interrupt_data.clone()), None);
}

async fn cancelled_interrupts_end_their_calls(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    crate::storage::add(&session, calls(&["call_1", "call_2"]));
    session.interrupt_tool_call("call_1", json!({ "type": "ask" })).unwrap();
    session.interrupt_tool_call("call_2", json!({ "type": "old" })).unwrap();
    session.clean_stale_interrupts(|data| data["type"] == "ask").await.unwrap();
    session.save().await.unwrap();
    let status = |rows: &[DisplayMessage]| [rows[0].status, rows[1].status];
    let before = rows(&talk).await;
    let (waits, ended) = (Some(ToolStatus::Interrupted), Some(ToolStatus::Cancelled));
    assert_eq!(status(&before), [waits, ended]);
    assert_eq!(before[3].metadata["is_error"], true);

    session.cancel_pending_interrupts().await.unwrap();
    session.send_message(Uuid::now_v7(), Message::user("instead")).await.unwrap();
    session.save().await.unwrap();
    let after = rows(&talk).await;
    assert_eq!(status(&after), [ended, ended]);
    assert_eq!(after[2].metadata["is_interrupt"], false);
    assert_eq!(after[4].content, "instead");
    let interrupts = session.read(|state| {
        let mut results = state.messages.iter().flat_map(|message| &message.tool_results);
        results.any(|result| result.is_interrupt)
    });
    assert!(!interrupts);
}

async fn only_calls_that_nobody_has_decided_about_are_cancelled(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    let ids = ["waits", "approved", "runs", "rejected"];
    crate::storage::add(&session, calls(&ids));
    for call in ids {
        session.interrupt_tool_call(call, json!({})).unwrap();
    }
    session.save().await.unwrap();
    // Other processes decide, and the state of this one does not show it.
    let other = talk.other_process().start(&scope(), talk.id).await.unwrap();
    other.decide_tool_call("approved", Decision::Approve).await.unwrap();
    other.decide_tool_call("runs", Decision::Approve).await.unwrap();
    other.claim_tool_call("runs").await.unwrap();
    let reject = Decision::Reject { reason: None };
    other.decide_tool_call("rejected", reject).await.unwrap();

    for _ in 0..2 {
        session.clean_stale_interrupts(|_| false).await.unwrap();
        session.cancel_pending_interrupts().await.unwrap();
    }
    session.save().await.unwrap();
    let statuses: Vec<_> = rows(&talk).await.iter().filter_map(|row| row.status).collect();
    let cancelled = ToolStatus::Cancelled;
    let expected = [cancelled, ToolStatus::Pending, ToolStatus::Executing, cancelled];
    assert_eq!(statuses, expected);
    let open = session.read(State::open_tool_calls);
    let open: Vec<_> = open.iter().map(|call| call.tool_call_id.as_str()).collect();
    assert_eq!(open, ["approved", "runs", "rejected"]);
}

async fn a_run_gives_a_result_to_the_calls_that_an_earlier_one_started(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let killed = talk.start().await;
    let ids = ["pending", "waits", "approved", "runs", "ran", "failed", "done", "cancelled", "rejected"];
    crate::storage::add(&killed, calls(&ids));
    for call in ["waits", "approved", "runs", "done", "rejected"] {
        killed.interrupt_tool_call(call, json!({})).unwrap();
    }
    killed.save().await.unwrap();
    for call in ["approved", "runs", "done"] {
        killed.decide_tool_call(call, Decision::Approve).await.unwrap();
    }
    let reject = Decision::Reject { reason: None };
    killed.decide_tool_call("rejected", reject).await.unwrap();
    for call in ["runs", "ran", "failed", "done"] {
        let claim = killed.claim_tool_call(call).await.unwrap();
        assert!(matches!(claim, Claim::Claimed(_)), "{call}");
    }
    // These results are displayed, and the process ends before it saves them.
    let messages = rows(&talk).await.len();
    killed.add_tool_result(ToolResult::error("failed", "search", "offline")).unwrap();
    killed.add_tool_result(ToolResult::new("done", "search", "found")).unwrap();
    killed.cancel_tool_call("cancelled").unwrap();
    let is_ended = |rows: &[DisplayMessage]| {
        let mut statuses = rows.iter().filter_map(|row| row.status);
        statuses.any(|status| status == ToolStatus::Cancelled && rows.len() > messages)
    };
    while !is_ended(&rows(&talk).await) {
        sleep(SECOND / 100).await;
    }

    let session = talk.other_process().start(&scope(), talk.id).await.unwrap();
    let run = started(session.begin_run().await.unwrap());
    assert_eq!(run.sealed_tool_calls(), ["runs", "ran", "failed", "done", "cancelled"]);
    session.acknowledge_cancel().unwrap();
    drop(run);
    let run = started(session.begin_run().await.unwrap());
    assert!(run.sealed_tool_calls().is_empty());
    assert!(
        matches!(session.complete_run(), Err(SessionError::Undecided { tool_call_ids }) if tool_call_ids == ["waits", "approved", "rejected"])
    );
    session.save().await.unwrap();
    let text = |call: &str| {
        session.read(|state| {
            let result = state.result_of(call).filter(|result| !result.is_interrupt)?;
            Some(result.content.as_ref().unwrap().text())
        })
    };
    for call in ["runs", "ran"] {
        let text = text(call).unwrap();
        assert!(text.contains("outcome is unknown"), "{call}: {text}");
    }
    assert_eq!(text("failed").unwrap(), "offline");
    assert_eq!(text("done").unwrap(), "found");
    assert_eq!(text("cancelled").unwrap(), "The call was cancelled.");
    for call in ["pending", "waits", "approved", "rejected"] {
        assert_eq!(text(call), None, "{call} is still to be decided, started or answered");
    }
    // The deliveries are written after the state.
    session.save().await.unwrap();
    let shown = rows(&talk).await;
    let statuses: Vec<_> = shown.iter().filter_map(|row| row.status.map(ToolStatus::as_str)).collect();
    let expected =
        ["pending", "interrupted", "pending", "unknown", "unknown", "failed", "completed", "cancelled", "cancelled"];
    assert_eq!(statuses, expected);
    // A result that was displayed before is not displayed twice.
    let results = |text: &str| shown.iter().filter(|row| row.content == text).count();
    assert_eq!((results("offline"), results("found")), (1, 1));
    assert!(shown.iter().all(|row| row.delivery == Delivery::Stored), "{shown:#?}");
    for call in ["runs", "ran", "done"] {
        let claim = session.claim_tool_call(call).await.unwrap();
        assert!(matches!(claim, Claim::Already(_)), "{call}");
    }
}

async fn a_run_knows_that_it_follows_one_whose_process_ended(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let (session, other) = (talk.start().await, talk.other_process());
    let run = started(session.begin_run().await.unwrap());
    assert!(!run.is_resumed());
    session.complete_run().unwrap();
    drop(run);
    let run = started(session.begin_run().await.unwrap());
    assert!(!run.is_resumed(), "the one before has ended");
    session.wait_run(json!({ "question": "?" })).unwrap();
    drop(run);
    let run = started(session.begin_run().await.unwrap());
    assert!(!run.is_resumed(), "the one before waited for a person");

    // A process that is shut down lets its run wait for nothing.
    session.shutdown().await.unwrap();
    let other = other.start(&scope(), talk.id).await.unwrap();
    talk.record.fail([Some(Fault::After)]);
    let mut run = started(other.begin_run().await.unwrap());
    assert!(run.is_resumed(), "also if the first reply was lost");

    // It ends before it has done anything about that.
    for end in [AgentSession::fail_run, AgentSession::acknowledge_cancel] {
        end(&other).unwrap();
        run = started(other.begin_run().await.unwrap());
        assert!(run.is_resumed(), "nothing has finished since");
    }
    other.complete_run().unwrap();
    drop(run);
    let run = started(other.begin_run().await.unwrap());
    assert!(!run.is_resumed());
    other.shutdown().await.unwrap();
    drop(run);

    // A message that's sent instead of a decision doesn't end a run that was left in the middle.
    let next = talk.other_process().start(&scope(), talk.id).await.unwrap();
    next.cancel_pending_interrupts().await.unwrap();
    let run = started(next.begin_run().await.unwrap());
    assert!(run.is_resumed());
}

async fn a_pending_call_is_claimed_by_one_process(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    crate::storage::add(&session, calls(&["call_1"]));
    let first = session.claim_tool_call("call_1").await.unwrap();
    assert!(matches!(first, Claim::Claimed(_)));
    let other = talk.other_process().start(&scope(), talk.id).await.unwrap();
    for session in [&session, &other] {
        let claim = session.claim_tool_call("call_1").await.unwrap();
        assert!(matches!(claim, Claim::Already(_)));
    }
}

async fn a_conversation_has_one_run_which_any_process_can_cancel(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let (session, other) = (talk.start().await, talk.other_process());
    let other = other.start(&scope(), talk.id).await.unwrap();
    let mut events = session.subscribe();
    assert!(!session.request_cancel().await.unwrap());
    let run = started(session.begin_run().await.unwrap());
    for session in [&session, &other] {
        let BeginRun::Busy(busy) = session.begin_run().await.unwrap() else {
            panic!("two runs");
        };
        assert_eq!(busy.id, run.run_id());
    }
    assert!(!run.token().is_cancelled());
    assert!(other.request_cancel().await.unwrap());
    timeout(INTERVAL, run.token().cancelled()).await.unwrap();
    session.acknowledge_cancel().unwrap();
    drop(run);
    session.save().await.unwrap();
    let ended = frozen(talk.layer.get_run(&scope(), talk.id)).await.unwrap();
    assert_eq!(ended.unwrap().status, RunStatus::Cancelled);
    assert_eq!(changes(&mut events), [RunChange::Started, RunChange::CancelRequested, RunChange::Cancelled]);

    // A guard that is dropped, also before the run began, ends it.
    let cancelled = timeout(SECOND / 1000, session.begin_run());
    drop(cancelled.await);
    session.save().await.unwrap();
    drop(started(other.begin_run().await.unwrap()));
    other.save().await.unwrap();
    let ended = frozen(talk.layer.get_run(&scope(), talk.id)).await.unwrap();
    assert_eq!(ended.unwrap().status, RunStatus::Failed);
}

async fn a_run_that_is_cancelled_in_its_own_process_is_announced_once(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    for is_fast in [true, false] {
        let run = started(session.begin_run().await.unwrap());
        assert_eq!(changes(&mut events), [RunChange::Started]);
        let token = run.token().clone();
        let stop = async {
            token.cancelled().await;
            if !is_fast {
                sleep(INTERVAL).await;
            }
            session.acknowledge_cancel().unwrap();
        };
        let cancel = async { tokio::join!(session.request_cancel(), session.request_cancel()) };
        let (asked, ()) = tokio::join!(cancel, stop);
        assert!(asked.0.unwrap() && asked.1.unwrap());
        session.save().await.unwrap();
        let expected = [RunChange::CancelRequested, RunChange::Cancelled];
        assert_eq!(changes(&mut events), expected, "{is_fast}");
        drop(run);
    }

    // A process of another run announces nothing of its own.
    let other = talk.other_process().start(&scope(), talk.id).await.unwrap();
    let run = started(other.begin_run().await.unwrap());
    assert!(session.request_cancel().await.unwrap());
    assert!(changes(&mut events).is_empty());
    drop(run);
}

async fn a_session_that_has_ended_begins_no_run_and_stays_saved(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    for is_deleted in [false, true] {
        let session = talk.start().await;
        session.send_message(Uuid::now_v7(), Message::user("hello")).await.unwrap();
        if is_deleted {
            talk.coordinator.delete_conversation(&scope(), talk.id).await.unwrap();
        } else {
            session.shutdown().await.unwrap();
        }
        let begun = session.begin_run().await;
        assert!(matches!(begun, Err(SessionError::Ended)), "{begun:?}");
        assert!(session.is_saved());
        session.shutdown().await.unwrap();
        assert!(session.is_saved());
    }
}

async fn an_agent_without_a_run_cannot_wait_while_another_process_works(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let (session, other) = (talk.start().await, talk.other_process());
    let other = other.start(&scope(), talk.id).await.unwrap();
    let run = started(other.begin_run().await.unwrap());
    let mut events = session.subscribe();
    session.wait_run(json!({ "question": 1 })).unwrap();
    session.save().await.unwrap();
    assert_eq!(changes(&mut events), [RunChange::Lost]);
    session.complete_run().unwrap();
    session.save().await.unwrap();
    assert_eq!(changes(&mut events), [], "there is no run to end");

    // A run that another process took over is not handed over at the end.
    drop(run);
    other.save().await.unwrap();
    let run = started(session.begin_run().await.unwrap());
    let (scope, run_id) = (scope(), run.run_id());
    frozen(talk.layer.update_run(&scope, talk.id, run_id, RunUpdate::End(RunStatus::Failed))).await.unwrap();
    session.shutdown().await.unwrap();
    assert_eq!(changes(&mut events), [RunChange::Started, RunChange::Lost]);
}

async fn a_run_is_left_to_another_process(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    let run = started(session.begin_run().await.unwrap());
    session.wait_run(json!({ "question": 1 })).unwrap();
    session.save().await.unwrap();
    drop(run);
    let unfinished = frozen(talk.layer.unfinished_runs(&scope())).await.unwrap();
    assert_eq!(unfinished.len(), 1);
    assert_eq!(unfinished[0].status, RunStatus::Waiting);

    let other = talk.other_process().start(&scope(), talk.id).await.unwrap();
    let data = other.read(|state| state.interrupt_data.clone());
    assert_eq!(data, Some(json!({ "question": 1 })));
    let run = started(other.begin_run().await.unwrap());
    other.continue_run().unwrap();
    // The process ends in the middle, and the agent stops at once.
    let token = run.token().clone();
    let stopped = async {
        token.cancelled().await;
        drop(run);
    };
    let (ended, ()) = tokio::join!(other.shutdown(), stopped);
    ended.unwrap();
    let again = started(session.begin_run().await.unwrap());
    session.complete_run().unwrap();
    drop(again);
    session.save().await.unwrap();
    let unfinished = frozen(talk.layer.unfinished_runs(&scope())).await.unwrap();
    assert!(unfinished.is_empty(), "{unfinished:?}");
}

async fn a_deleted_conversation_ends_its_session(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    for by_coordinator in [true, false] {
        let session = talk.start().await;
        let mut events = session.subscribe();
        session.send_message(Uuid::now_v7(), Message::user("hello")).await.unwrap();
        if by_coordinator {
            talk.coordinator.delete_conversation(&scope(), talk.id).await.unwrap();
        } else {
            frozen(talk.layer.delete_conversation(&scope(), talk.id)).await.unwrap();
            crate::storage::add(&session, Message::user("too late"));
        }
        let ended = loop {
            let event = events.recv().await.unwrap();
            if let SessionEvent::Ended { deleted, .. } = &*event {
                break *deleted;
            }
        };
        assert!(ended);
        assert!(talk.coordinator.find(&scope(), talk.id).unwrap().is_none());
        assert!(matches!(session.complete_run(), Err(SessionError::Ended)));
        session.shutdown().await.unwrap();
        let new = NewConversation::new().id(talk.id);
        frozen(talk.layer.create_conversation(&scope(), new)).await.unwrap();
        assert!(talk.start().await.read(said).is_empty());
        talk.start().await.shutdown().await.unwrap();
    }

    // It was deleted and created again, and the session did not notice.
    let session = talk.start().await;
    session.send_message(Uuid::now_v7(), Message::user("hello")).await.unwrap();
    frozen(talk.layer.delete_conversation(&scope(), talk.id)).await.unwrap();
    let new = NewConversation::new().id(talk.id);
    frozen(talk.layer.create_conversation(&scope(), new)).await.unwrap();
    say(&session, "too late");
    session.save().await.unwrap_err();
    assert!(talk.start().await.read(said).is_empty());
    assert_eq!(talk.coordinator.shutdown(SECOND).await.unsaved.len(), 0);
}

async fn events_are_objects_without_details(kind: Kind) {
    let talk = Talk::new(kind, by_hand()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    let todo = Todo::new("1", "Book a room");
    session.change(|state| state.put_todo(todo)).unwrap();
    session.change(|state| state.put_metadata("key", 1)).unwrap();
    session.emit(json!({ "own": true })).unwrap();
    session.set_title("Plans").unwrap();
    talk.record.fail([Some(Fault::Before)]);
    session.save().await.unwrap_err();
    session.save().await.unwrap();
    session.shutdown().await.unwrap();
    let mut seen = Vec::new();
    while let Ok(event) = events.try_recv() {
        seen.push(json!(&*event));
    }
    let todos = seen.remove(0);
    assert_eq!((&todos["type"], &todos["todos"][0]["content"]), (&json!("todos"), &json!("Book a room")));
    let retry = seen[1]["retry_in_ms"].take();
    assert!(retry.is_u64());
    let expected = [
        json!({ "type": "application", "data": { "own": true } }),
        json!({ "type": "failed", "message_id": null, "error": "the storage failed", "retry_in_ms": null }),
        json!({ "type": "saved", "revision": 1, "lifecycle": "title_generated" }),
        json!({ "type": "title", "title": "Plans" }),
        json!({ "type": "ended", "unsaved": false, "deleted": false }),
    ];
    assert_eq!(seen, expected);
    assert!(json!(talk.coordinator.stats())["last_error"]["error"].is_string());
}

pub(super) fn calls(ids: &[&str]) -> Message {
    Message::tool_calls(ids.iter().map(|id| ToolCall::new(*id, "search", json!({}))))
}

pub(super) fn started(begun: BeginRun<RunGuard>) -> RunGuard {
    match begun {
        BeginRun::Started(guard) => guard,
        BeginRun::Busy(run) => panic!("{run:?}"),
    }
}

pub(super) async fn rows(talk: &Talk) -> Vec<DisplayMessage> {
    let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
    let scope = scope();
    let page = talk.layer.load_display_messages(&scope, talk.id, page);
    frozen(page).await.unwrap().items
}

pub(super) async fn deliveries(talk: &Talk) -> Vec<Delivery> {
    let rows = rows(talk).await.into_iter();
    rows.map(|row| row.delivery).collect()
}

type Events = tokio::sync::broadcast::Receiver<std::sync::Arc<SessionEvent>>;

fn types(events: &mut Events) -> Vec<String> {
    std::iter::from_fn(|| events.try_recv().ok())
        .map(|event| json!(&*event)["type"].as_str().unwrap().to_owned())
        .collect()
}

fn changes(events: &mut Events) -> Vec<RunChange> {
    std::iter::from_fn(|| events.try_recv().ok())
        .filter_map(|event| match &*event {
            SessionEvent::Run { change, .. } => Some(*change),
            _ => None,
        })
        .collect()
}

fn is(error: &SessionError, matches: impl FnOnce(&Error) -> bool) -> bool {
    matches!(error, SessionError::Storage(error) if matches(error))
}
