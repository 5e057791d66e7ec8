//! A turn of an agent: what a person sends, partial text, tool calls, decisions, runs.

use matrix::conversations::{
    DisplayMessage, Error, MessagePage, NewConversation, ToolStatus, connect,
};
use matrix::sagents::session::{
    AgentSession, OnConflict, RunChange, RunGuard, SessionError, SessionEvent, SessionOptions,
};
use matrix::sagents::{
    BeginRun, Claim, Decided, Decision, Delivery, Message, Revision, RunStatus, State, Todo,
    ToolCall, ToolResult,
};
use serde_json::{Map, json};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::{INTERVAL, SECOND, by_hand, deep, process};
use crate::storage::{Fault, Storage, Talk, frozen, said, say, scope};

#[tokio::test(start_paused = true)]
async fn a_message_that_was_sent_is_saved_and_displayed_once() {
    let talk = Talk::new(by_hand()).await;
    let session = talk.start().await;
    let id = Uuid::now_v7();
    talk.record.fail([Some(Fault::After)]);
    let failed = session.send(id, Message::user("hello")).await.unwrap_err();
    assert!(matches!(failed, SessionError::Storage(_)), "{failed}");
    for _ in 0..2 {
        let rows = session.send(id, Message::user("hello")).await.unwrap();
        assert_eq!((rows.len(), rows[0].message_id), (1, id));
        assert_eq!(rows[0].delivery, Delivery::Stored);
    }
    assert_eq!(talk.stored().await.0, ["hello"]);
    assert_eq!(talk.shown().await, ["hello"]);
    assert!(session.is_saved());

    // Another process sends it too, and does not know of the first.
    let other = talk.other_process();
    let other = other.start(&scope(), talk.id).await.unwrap();
    session
        .send(Uuid::now_v7(), Message::user("more"))
        .await
        .unwrap();
    other.send(id, Message::user("hello")).await.unwrap();
    other
        .send(Uuid::now_v7(), Message::user("most"))
        .await
        .unwrap();
    assert_eq!(talk.stored().await.0, ["hello", "more", "most"]);
    assert_eq!(talk.shown().await, ["hello", "more", "most"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_sent_is_displayed_between_those_around_it() {
    let talk = Talk::new(by_hand()).await;
    let session = talk.start().await;
    session.add_message(Message::user("before")).unwrap();
    let send = session.send(Uuid::now_v7(), Message::user("sent"));
    let add = async { session.add_message(Message::user("behind")).unwrap() };
    let (rows, _) = tokio::join!(send, add);
    rows.unwrap();
    session.save().await.unwrap();
    assert_eq!(talk.shown().await, ["before", "sent", "behind"]);
    assert_eq!(talk.stored().await.0, ["before", "sent", "behind"]);
    assert_eq!(deliveries(&talk).await, [Delivery::Stored; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_refused_leaves_nothing_behind() {
    let talk = Talk::new(SessionOptions::default()).await;
    let session = talk.start().await;
    say(&session, "mine");
    talk.other_process_says("theirs").await;
    let (id, message) = (Uuid::now_v7(), Message::user("sent"));
    for _ in 0..2 {
        let refused = session.send(id, message.clone()).await.unwrap_err();
        assert!(
            matches!(refused, SessionError::Conflict { .. }),
            "{refused}"
        );
        assert_eq!(session.read(said), ["mine"]);
    }
    assert_eq!(talk.shown().await.len(), 0);
    assert_eq!(talk.stored().await.0, ["theirs"]);

    session.reload().await.unwrap();
    session.send(id, message).await.unwrap();
    assert_eq!(talk.stored().await.0, ["theirs", "sent"]);
    assert_eq!(talk.shown().await, ["sent"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_refused_leaves_an_unsaved_initial_state_unsaved() {
    let talk = Talk::new(by_hand()).await;
    let mut fresh = State::new();
    fresh.add_message(Message::system("initial"));
    let session = talk
        .coordinator
        .start_with(&scope(), talk.id, fresh)
        .await
        .unwrap();
    let mut refused = Message::user("sent");
    refused.metadata = Some(Map::from_iter([("deep".to_owned(), deep())]));
    session
        .send(Uuid::now_v7(), refused.clone())
        .await
        .unwrap_err();
    assert_eq!(session.read(said), ["initial"]);
    assert!(!session.is_saved());
    assert_eq!(session.save().await.unwrap(), Revision(1));
    assert!(session.is_saved());
    assert_eq!(talk.stored().await.0, ["initial"]);

    // Nor does it after a reload that found nothing.
    frozen(async {
        let pool = connect(&talk.database.url()).await.unwrap();
        let delete = sqlx::query("DELETE FROM sagents_agent_states");
        delete.execute(&pool).await.unwrap();
    })
    .await;
    session.reload().await.unwrap();
    session.send(Uuid::now_v7(), refused).await.unwrap_err();
    assert!(!session.is_saved());
    session.save().await.unwrap();
    assert_eq!(talk.stored().await.0, ["initial"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_is_sent_again_on_the_state_of_another_process() {
    for on_conflict in [OnConflict::Report, OnConflict::Reload] {
        let options = SessionOptions {
            on_conflict,
            ..SessionOptions::default()
        };
        let talk = Talk::new(options).await;
        let session = talk.start().await;
        session.add_message(Message::assistant("added")).unwrap();
        if on_conflict == OnConflict::Reload {
            say(&session, "lost");
        }
        talk.other_process_says("theirs").await;
        session
            .send(Uuid::now_v7(), Message::user("sent"))
            .await
            .unwrap();
        assert_eq!(talk.stored().await.0, ["theirs", "added", "sent"]);
        assert_eq!(session.read(said), ["theirs", "added", "sent"]);
        assert_eq!(talk.shown().await, ["added", "sent"]);
        session.shutdown().await.unwrap();
        assert_eq!(deliveries(&talk).await, [Delivery::Stored; 2]);
    }
}

#[test]
fn after_a_crash_display_and_state_agree() {
    let talk = process().block_on(Talk::new(by_hand()));
    let known = process().block_on(async {
        let talk = &talk.reconnected().await;
        let session = talk.start().await;
        session.add_message(Message::user("saved")).unwrap();
        // The save is stored, and neither its reply nor the display of what was sent.
        talk.record.fail([None, Some(Fault::Silence)]);
        let id = Uuid::now_v7();
        let send = session.send(id, Message::user("sent"));
        assert!(timeout(SECOND, send).await.is_err());
        id
    });
    process().block_on(async {
        let talk = &talk.reconnected().await;
        assert_eq!(talk.shown().await, ["saved"]);
        assert_eq!(deliveries(talk).await, [Delivery::Unsaved]);
        let session = talk.start().await;
        session.save().await.unwrap();
        assert_eq!(talk.shown().await, ["saved", "sent"]);
        assert_eq!(rows(talk).await[1].message_id, known);
        assert_eq!(deliveries(talk).await, [Delivery::Stored; 2]);
        session.add_message(Message::user("forgotten")).unwrap();
        session
            .partial(Uuid::now_v7(), Message::assistant("half"))
            .unwrap();
        sleep(SECOND * 5).await;
        assert_eq!(talk.shown().await, ["saved", "sent", "forgotten", "half"]);
    });
    process().block_on(async {
        let talk = &talk.reconnected().await;
        let session = talk.start().await;
        let mut events = session.subscribe();
        session.save().await.unwrap();
        assert_eq!(session.read(said), ["saved", "sent"]);
        let expected = [
            Delivery::Stored,
            Delivery::Stored,
            Delivery::Unknown,
            Delivery::Interrupted,
        ];
        assert_eq!(deliveries(talk).await, expected);
        let event = events.recv().await.unwrap();
        assert!(matches!(&*event, SessionEvent::Changed { items } if items.len() == 2));
    });
}

#[tokio::test(start_paused = true)]
async fn partial_text_that_could_not_be_stored_is_displayed_before_what_came_later() {
    let talk = Talk::new(by_hand()).await;
    let session = talk.start().await;
    talk.record.fail([Some(Fault::Before); 2]);
    for text in ["first", "second"] {
        let message = Message::assistant(text);
        session.partial(Uuid::now_v7(), message).unwrap();
        sleep(SECOND * 3 / 2).await;
    }
    sleep(SECOND).await;
    assert_eq!(talk.shown().await, ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn partial_text_is_stored_at_intervals_and_replaced_by_the_whole() {
    let talk = Talk::new(by_hand()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    let id = Uuid::now_v7();
    session.add_message(Message::user("question")).unwrap();
    for text in ["a", "a b", "a b c"] {
        session.partial(id, Message::assistant(text)).unwrap();
        sleep(SECOND * 2 / 3).await;
    }
    assert_eq!(talk.shown().await, ["question", "a b"]);
    assert_eq!(rows(&talk).await[1].delivery, Delivery::Draft);
    session
        .add_message_with_id(id, Message::assistant("a b c d"))
        .unwrap();
    session.save().await.unwrap();
    sleep(SECOND * 5).await;
    assert_eq!(talk.shown().await, ["question", "a b c d"]);
    assert_eq!(deliveries(&talk).await, [Delivery::Stored; 2]);
    let mut seen = Vec::new();
    while let Ok(event) = events.try_recv() {
        let event = json!(&*event);
        seen.push(event["type"].as_str().unwrap().to_owned());
        if event["type"] == "partial" {
            assert_eq!(event["message_id"], json!(id));
            assert_eq!(event["items"][0]["content_type"], "text");
        }
    }
    let expected = [
        "partial",
        "displayed",
        "partial",
        "partial",
        "displayed",
        "saved",
    ];
    assert_eq!(seen, expected);

    // What is not finished when the agent stops stays as it is, and is marked.
    session
        .partial(Uuid::now_v7(), Message::assistant("half"))
        .unwrap();
    session.failed().unwrap();
    session.save().await.unwrap();
    let last = rows(&talk).await.pop().unwrap();
    assert_eq!(
        (last.content.as_str(), last.delivery),
        ("half", Delivery::Interrupted)
    );
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_call_follows_its_message() {
    let talk = Talk::new(by_hand()).await;
    let session = talk.start().await;
    for n in 0..20 {
        let call = format!("call_{n}");
        session.add_message(calls(&[&call])).unwrap();
        session.tool_executing(&call).unwrap();
        let metadata = Map::from_iter([("took".to_owned(), json!(n))]);
        match n % 3 {
            0 => session.tool_completed(&call, metadata).unwrap(),
            1 => session.tool_failed(&call, metadata).unwrap(),
            _ => session.tool_cancelled(&call).unwrap(),
        }
    }
    session.save().await.unwrap();
    let ended = [
        ToolStatus::Completed,
        ToolStatus::Failed,
        ToolStatus::Cancelled,
    ];
    for (n, row) in rows(&talk).await.iter().enumerate() {
        assert_eq!(row.status, Some(ended[n % 3]));
    }

    // A result is one of the agent state too, and ends its call.
    session.add_message(calls(&["good", "bad"])).unwrap();
    session
        .tool_result(ToolResult::new("good", "search", "found"))
        .unwrap();
    let mut error = ToolResult::new("bad", "search", "offline");
    error.is_error = true;
    session.tool_result(error.clone()).unwrap();
    session.tool_result(error).unwrap();
    session.save().await.unwrap();
    let rows = &rows(&talk).await[20..];
    let texts: Vec<_> = rows.iter().map(|row| row.content.as_str()).collect();
    assert_eq!(texts, ["search", "search", "found", "offline"]);
    assert_eq!(rows[0].status, Some(ToolStatus::Completed));
    assert_eq!(rows[1].status, Some(ToolStatus::Failed));
    assert_eq!(rows[3].metadata["is_error"], true);
    assert!(talk.coordinator.stats().last_error.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_is_approved_once_and_its_result_replaces_the_question() {
    let talk = Talk::new(by_hand()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    session.add_message(calls(&["call_1"])).unwrap();
    session
        .tool_interrupted("call_1", json!({ "amount": 5 }))
        .unwrap();
    session.interrupted(json!({ "call": "call_1" })).unwrap();
    session.save().await.unwrap();
    assert_eq!(talk.shown().await.len(), 2);

    // Other processes decide too. The replies of some are lost.
    talk.record
        .fail([Some(Fault::After), Some(Fault::Before), Some(Fault::After)]);
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
        match session.decide("call_1", decision).await.unwrap() {
            Decided::Claimed(row) => claimed.push((n, row.status)),
            Decided::Already(decision, _) => assert_eq!(decision, Decision::Approve),
        }
    }
    assert_eq!(claimed, [(0, Some(ToolStatus::Pending))]);
    // Any process may run it, and one does.
    for (n, session) in sessions.iter().enumerate().rev() {
        let claim = session.claim_call("call_1").await.unwrap();
        assert_eq!(matches!(claim, Claim::Claimed(_)), n == 2);
    }

    session.resumed().unwrap();
    session
        .tool_result(ToolResult::new("call_1", "pay", "paid 5"))
        .unwrap();
    session.save().await.unwrap();
    let rows = rows(&talk).await;
    assert_eq!(rows[0].status, Some(ToolStatus::Completed));
    assert_eq!((rows.len(), rows[1].content.as_str()), (2, "paid 5"));
    let results = session.read(|state| state.messages[1].tool_results.clone());
    assert!(!results[0].is_interrupt && results.len() == 1);
    assert!(session.decide("call_1", Decision::Approve).await.is_ok());
    let unknown = session
        .decide("call_2", Decision::Approve)
        .await
        .unwrap_err();
    assert!(
        is(&unknown, |error| matches!(error, Error::NotFound)),
        "{unknown}"
    );
    let seen = types(&mut events);
    assert!(
        seen.contains(&"tool_call".to_owned()) && seen.contains(&"run".to_owned()),
        "{seen:?}"
    );
    let again = talk.other_process().start(&scope(), talk.id).await.unwrap();
    assert_eq!(again.read(|state| state.interrupt_data.clone()), None);
}

#[tokio::test(start_paused = true)]
async fn cancelled_interrupts_end_their_calls() {
    let talk = Talk::new(by_hand()).await;
    let session = talk.start().await;
    session.add_message(calls(&["call_1", "call_2"])).unwrap();
    session
        .tool_interrupted("call_1", json!({ "type": "ask" }))
        .unwrap();
    session
        .tool_interrupted("call_2", json!({ "type": "old" }))
        .unwrap();
    session
        .clean_stale_interrupts(|data| data["type"] == "ask")
        .await
        .unwrap();
    session.save().await.unwrap();
    let status = |rows: &[DisplayMessage]| [rows[0].status, rows[1].status];
    let before = rows(&talk).await;
    let (waits, ended) = (Some(ToolStatus::Interrupted), Some(ToolStatus::Cancelled));
    assert_eq!(status(&before), [waits, ended]);
    assert_eq!(before[3].metadata["is_error"], true);

    session.cancel_interrupts().await.unwrap();
    session
        .send(Uuid::now_v7(), Message::user("instead"))
        .await
        .unwrap();
    session.save().await.unwrap();
    let after = rows(&talk).await;
    assert_eq!(status(&after), [ended, ended]);
    assert_eq!(after[2].metadata["is_interrupt"], false);
    assert_eq!(after[4].content, "instead");
    let interrupts = session.read(|state| {
        let mut results = state
            .messages
            .iter()
            .flat_map(|message| &message.tool_results);
        results.any(|result| result.is_interrupt)
    });
    assert!(!interrupts);
}

#[tokio::test(start_paused = true)]
async fn only_calls_that_nobody_has_decided_about_are_cancelled() {
    let talk = Talk::new(by_hand()).await;
    let session = talk.start().await;
    let ids = ["waits", "approved", "runs", "rejected"];
    session.add_message(calls(&ids)).unwrap();
    for call in ids {
        session.tool_interrupted(call, json!({})).unwrap();
    }
    session.save().await.unwrap();
    // Other processes decide, and the state of this one does not show it.
    let other = talk.other_process().start(&scope(), talk.id).await.unwrap();
    other.decide("approved", Decision::Approve).await.unwrap();
    other.decide("runs", Decision::Approve).await.unwrap();
    other.claim_call("runs").await.unwrap();
    let reject = Decision::Reject { reason: None };
    other.decide("rejected", reject).await.unwrap();

    for _ in 0..2 {
        session.clean_stale_interrupts(|_| false).await.unwrap();
        session.cancel_interrupts().await.unwrap();
    }
    session.save().await.unwrap();
    let statuses: Vec<_> = rows(&talk)
        .await
        .iter()
        .filter_map(|row| row.status)
        .collect();
    let cancelled = ToolStatus::Cancelled;
    let expected = [
        cancelled,
        ToolStatus::Pending,
        ToolStatus::Executing,
        cancelled,
    ];
    assert_eq!(statuses, expected);
    let open = session.read(State::open_tool_calls);
    let open: Vec<_> = open.iter().map(|call| call.call_id.as_str()).collect();
    assert_eq!(open, ["approved", "runs", "rejected"]);
}

#[tokio::test(start_paused = true)]
#[allow(clippy::too_many_lines, reason = "it is a table")]
async fn a_run_gives_a_result_to_the_calls_that_an_earlier_one_started() {
    let talk = Talk::new(by_hand()).await;
    let killed = talk.start().await;
    let ids = [
        "pending",
        "waits",
        "approved",
        "runs",
        "ran",
        "failed",
        "done",
        "cancelled",
        "rejected",
    ];
    killed.add_message(calls(&ids)).unwrap();
    for call in ["waits", "approved", "runs", "done", "rejected"] {
        killed.tool_interrupted(call, json!({})).unwrap();
    }
    killed.save().await.unwrap();
    for call in ["approved", "runs", "done"] {
        killed.decide(call, Decision::Approve).await.unwrap();
    }
    let reject = Decision::Reject { reason: None };
    killed.decide("rejected", reject).await.unwrap();
    for call in ["runs", "ran", "failed", "done"] {
        let claim = killed.claim_call(call).await.unwrap();
        assert!(matches!(claim, Claim::Claimed(_)), "{call}");
    }
    // These results are displayed, and the process ends before it saves them.
    let messages = rows(&talk).await.len();
    killed
        .tool_result(ToolResult::error("failed", "search", "offline"))
        .unwrap();
    killed
        .tool_result(ToolResult::new("done", "search", "found"))
        .unwrap();
    killed.tool_cancelled("cancelled").unwrap();
    let is_ended = |rows: &[DisplayMessage]| {
        let mut statuses = rows.iter().filter_map(|row| row.status);
        statuses.any(|status| status == ToolStatus::Cancelled && rows.len() > messages)
    };
    while !is_ended(&rows(&talk).await) {
        sleep(SECOND / 100).await;
    }

    let session = talk.other_process().start(&scope(), talk.id).await.unwrap();
    assert_eq!(
        session.seal_calls().await.unwrap(),
        0,
        "without a run, the calls may run elsewhere"
    );
    let _run = started(session.begin_run().await.unwrap());
    assert!(!session.seal_call("pending").await.unwrap());
    assert!(session.seal_call("failed").await.unwrap());
    assert_eq!(session.seal_calls().await.unwrap(), 4);
    assert_eq!(session.seal_calls().await.unwrap(), 0);
    session.save().await.unwrap();
    let text = |call: &str| {
        session.read(|state| {
            let result = state
                .result_of(call)
                .filter(|result| !result.is_interrupt)?;
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
        assert_eq!(
            text(call),
            None,
            "{call} is still to be decided, started or answered"
        );
    }
    let shown = rows(&talk).await;
    let statuses: Vec<_> = shown
        .iter()
        .filter_map(|row| row.status.map(ToolStatus::as_str))
        .collect();
    let expected = [
        "pending",
        "interrupted",
        "pending",
        "unknown",
        "unknown",
        "failed",
        "completed",
        "cancelled",
        "cancelled",
    ];
    assert_eq!(statuses, expected);
    // A result that was displayed before is not displayed twice.
    let results = |text: &str| shown.iter().filter(|row| row.content == text).count();
    assert_eq!((results("offline"), results("found")), (1, 1));
    let is_stored = |row: &DisplayMessage| row.delivery == Delivery::Stored;
    assert!(shown.iter().all(is_stored), "{shown:#?}");
    for call in ["runs", "ran", "done"] {
        let claim = session.claim_call(call).await.unwrap();
        assert!(matches!(claim, Claim::Already(_)), "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_knows_that_it_follows_one_whose_process_ended() {
    let talk = Talk::new(by_hand()).await;
    let (session, other) = (talk.start().await, talk.other_process());
    let run = started(session.begin_run().await.unwrap());
    assert!(!run.resumed());
    session.completed().unwrap();
    drop(run);
    let run = started(session.begin_run().await.unwrap());
    assert!(!run.resumed(), "the one before has ended");
    session.interrupted(json!({ "question": "?" })).unwrap();
    drop(run);
    let run = started(session.begin_run().await.unwrap());
    assert!(!run.resumed(), "the one before waited for a person");

    // A process that is shut down lets its run wait for nothing.
    session.shutdown().await.unwrap();
    let other = other.start(&scope(), talk.id).await.unwrap();
    talk.record.fail([Some(Fault::After)]);
    let mut run = started(other.begin_run().await.unwrap());
    assert!(run.resumed(), "also if the first reply was lost");

    // It ends before it has done anything about that.
    for end in [AgentSession::failed, AgentSession::cancelled] {
        end(&other).unwrap();
        run = started(other.begin_run().await.unwrap());
        assert!(run.resumed(), "nothing has finished since");
    }
    other.completed().unwrap();
    drop(run);
    let run = started(other.begin_run().await.unwrap());
    assert!(!run.resumed());
    other.shutdown().await.unwrap();
    drop(run);

    // Who sends a message does not end a run that was left in the middle.
    let next = talk.other_process().start(&scope(), talk.id).await.unwrap();
    next.cancel_interrupts().await.unwrap();
    let run = started(next.begin_run().await.unwrap());
    assert!(run.resumed());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_slow_and_lost_its_run_changes_no_call_of_the_next_one() {
    let talk = Talk::new(by_hand()).await;
    let (slow, next) = (talk.start().await, talk.other_process());
    slow.add_message(calls(&["runs", "ends", "starts", "stays"]))
        .unwrap();
    slow.save().await.unwrap();
    let lost = started(slow.begin_run().await.unwrap());
    for call in ["runs", "ends"] {
        assert!(matches!(
            slow.claim_call(call).await.unwrap(),
            Claim::Claimed(_)
        ));
    }
    // Its lease is over.
    let (scope, id) = (scope(), lost.run_id());
    frozen(talk.layer.end_run(&scope, talk.id, id, RunStatus::Failed))
        .await
        .unwrap();
    let next = next.start(&scope, talk.id).await.unwrap();
    let run = started(next.begin_run().await.unwrap());
    assert_eq!(next.seal_calls().await.unwrap(), 2);
    let claim = next.claim_call("starts").await.unwrap();
    assert!(matches!(claim, Claim::Claimed(_)));
    next.save().await.unwrap();

    // The slow one goes on, and does not know it.
    assert_eq!(slow.seal_calls().await.unwrap(), 0);
    for call in ["runs", "starts"] {
        assert!(matches!(
            slow.claim_call(call).await.unwrap(),
            Claim::Already(_)
        ));
        assert!(!slow.cancel_call(call).await.unwrap(), "it was started");
    }
    slow.tool_result(ToolResult::new("ends", "search", "found"))
        .unwrap();
    slow.save().await.unwrap_err();
    slow.reload().await.unwrap();
    slow.save().await.unwrap();
    let text = slow.read(|state| state.result_of("ends").unwrap().content.clone());
    assert!(text.unwrap().text().contains("outcome is unknown"));

    next.tool_result(ToolResult::new("starts", "search", "found"))
        .unwrap();
    next.reload().await.unwrap();
    next.save().await.unwrap();
    assert!(next.cancel_call("stays").await.unwrap());
    assert!(
        next.cancel_call("stays").await.unwrap(),
        "it can be repeated"
    );
    let statuses: Vec<_> = rows(&talk)
        .await
        .iter()
        .filter_map(|row| row.status)
        .collect();
    let expected = [
        ToolStatus::Unknown,
        ToolStatus::Unknown,
        ToolStatus::Completed,
        ToolStatus::Cancelled,
    ];
    assert_eq!(statuses, expected);
    drop((lost, run));
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_reply_was_lost_is_not_repeated_after_the_outcome_is_unknown() {
    let talk = Talk::new(by_hand()).await;
    let session = talk.start().await;
    session.add_message(calls(&["call_1"])).unwrap();
    session.save().await.unwrap();
    let (layer, scope, claim) = (&talk.layer, scope(), Uuid::now_v7());
    for _ in 0..2 {
        let claimed = layer.claim_tool_call(&scope, talk.id, "call_1", claim);
        assert!(matches!(frozen(claimed).await.unwrap(), Claim::Claimed(_)));
    }
    let _run = started(session.begin_run().await.unwrap());
    assert_eq!(session.seal_calls().await.unwrap(), 1);
    let claimed = layer.claim_tool_call(&scope, talk.id, "call_1", claim);
    assert!(matches!(frozen(claimed).await.unwrap(), Claim::Already(_)));
}

#[tokio::test(start_paused = true)]
async fn a_pending_call_is_claimed_by_one_process() {
    let talk = Talk::new(by_hand()).await;
    let session = talk.start().await;
    session.add_message(calls(&["call_1"])).unwrap();
    let first = session.claim_call("call_1").await.unwrap();
    assert!(matches!(first, Claim::Claimed(_)));
    let other = talk.other_process().start(&scope(), talk.id).await.unwrap();
    for session in [&session, &other] {
        let claim = session.claim_call("call_1").await.unwrap();
        assert!(matches!(claim, Claim::Already(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_conversation_has_one_run_which_any_process_can_cancel() {
    let talk = Talk::new(by_hand()).await;
    let (session, other) = (talk.start().await, talk.other_process());
    let other = other.start(&scope(), talk.id).await.unwrap();
    let mut events = session.subscribe();
    assert!(!session.cancel_run().await.unwrap());
    let run = started(session.begin_run().await.unwrap());
    for session in [&session, &other] {
        let BeginRun::Busy(busy) = session.begin_run().await.unwrap() else {
            panic!("two runs");
        };
        assert_eq!(busy.id, run.run_id());
    }
    assert!(!run.token().is_cancelled());
    assert!(other.cancel_run().await.unwrap());
    timeout(INTERVAL, run.token().cancelled()).await.unwrap();
    session.cancelled().unwrap();
    drop(run);
    session.save().await.unwrap();
    let ended = frozen(talk.layer.get_run(&scope(), talk.id)).await.unwrap();
    assert_eq!(ended.unwrap().status, RunStatus::Cancelled);
    assert_eq!(
        changes(&mut events),
        [
            RunChange::Started,
            RunChange::CancelRequested,
            RunChange::Cancelled
        ]
    );

    // A guard that is dropped, also before the run began, ends it.
    let cancelled = timeout(SECOND / 1000, session.begin_run());
    drop(cancelled.await);
    session.save().await.unwrap();
    drop(started(other.begin_run().await.unwrap()));
    other.save().await.unwrap();
    let ended = frozen(talk.layer.get_run(&scope(), talk.id)).await.unwrap();
    assert_eq!(ended.unwrap().status, RunStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_in_its_own_process_is_announced_once() {
    let talk = Talk::new(by_hand()).await;
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
            session.cancelled().unwrap();
        };
        let cancel = async { tokio::join!(session.cancel_run(), session.cancel_run()) };
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
    assert!(session.cancel_run().await.unwrap());
    assert!(changes(&mut events).is_empty());
    drop(run);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_has_ended_begins_no_run_and_stays_saved() {
    let talk = Talk::new(by_hand()).await;
    for is_deleted in [false, true] {
        let session = talk.start().await;
        session
            .send(Uuid::now_v7(), Message::user("hello"))
            .await
            .unwrap();
        if is_deleted {
            talk.coordinator
                .delete_conversation(&scope(), talk.id)
                .await
                .unwrap();
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

#[tokio::test(start_paused = true)]
async fn an_agent_without_a_run_cannot_wait_while_another_process_works() {
    let talk = Talk::new(by_hand()).await;
    let (session, other) = (talk.start().await, talk.other_process());
    let other = other.start(&scope(), talk.id).await.unwrap();
    let run = started(other.begin_run().await.unwrap());
    let mut events = session.subscribe();
    session.interrupted(json!({ "question": 1 })).unwrap();
    session.save().await.unwrap();
    assert_eq!(changes(&mut events), [RunChange::Lost]);
    session.completed().unwrap();
    session.save().await.unwrap();
    assert_eq!(changes(&mut events), [], "there is no run to end");

    // A run that another process took over is not handed over at the end.
    drop(run);
    other.save().await.unwrap();
    let run = started(session.begin_run().await.unwrap());
    let (scope, run_id) = (scope(), run.run_id());
    frozen(
        talk.layer
            .end_run(&scope, talk.id, run_id, RunStatus::Failed),
    )
    .await
    .unwrap();
    session.shutdown().await.unwrap();
    assert_eq!(changes(&mut events), [RunChange::Started, RunChange::Lost]);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_left_to_another_process() {
    let talk = Talk::new(by_hand()).await;
    let session = talk.start().await;
    let run = started(session.begin_run().await.unwrap());
    session.interrupted(json!({ "question": 1 })).unwrap();
    session.save().await.unwrap();
    drop(run);
    let unfinished = frozen(talk.layer.unfinished_runs(&scope())).await.unwrap();
    assert_eq!(unfinished.len(), 1);
    assert_eq!(unfinished[0].status, RunStatus::Waiting);

    let other = talk.other_process().start(&scope(), talk.id).await.unwrap();
    let data = other.read(|state| state.interrupt_data.clone());
    assert_eq!(data, Some(json!({ "question": 1 })));
    let run = started(other.begin_run().await.unwrap());
    other.resumed().unwrap();
    // The process ends in the middle, and the agent stops at once.
    let token = run.token().clone();
    let stopped = async {
        token.cancelled().await;
        drop(run);
    };
    let (ended, ()) = tokio::join!(other.shutdown(), stopped);
    ended.unwrap();
    let again = started(session.begin_run().await.unwrap());
    session.completed().unwrap();
    drop(again);
    session.save().await.unwrap();
    let unfinished = frozen(talk.layer.unfinished_runs(&scope())).await.unwrap();
    assert!(unfinished.is_empty(), "{unfinished:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_conversation_ends_its_session() {
    let talk = Talk::new(by_hand()).await;
    for by_coordinator in [true, false] {
        let session = talk.start().await;
        let mut events = session.subscribe();
        session
            .send(Uuid::now_v7(), Message::user("hello"))
            .await
            .unwrap();
        if by_coordinator {
            talk.coordinator
                .delete_conversation(&scope(), talk.id)
                .await
                .unwrap();
        } else {
            frozen(talk.layer.delete_conversation(&scope(), talk.id))
                .await
                .unwrap();
            session.add_message(Message::user("too late")).unwrap();
        }
        let ended = loop {
            let event = events.recv().await.unwrap();
            if let SessionEvent::Ended { deleted, .. } = &*event {
                break *deleted;
            }
        };
        assert!(ended);
        assert!(talk.coordinator.find(&scope(), talk.id).unwrap().is_none());
        assert!(matches!(session.completed(), Err(SessionError::Ended)));
        session.shutdown().await.unwrap();
        let new = NewConversation::new().id(talk.id);
        frozen(talk.layer.create_conversation(&scope(), new))
            .await
            .unwrap();
        assert!(talk.start().await.read(said).is_empty());
        talk.start().await.shutdown().await.unwrap();
    }

    // It was deleted and created again, and the session did not notice.
    let session = talk.start().await;
    session
        .send(Uuid::now_v7(), Message::user("hello"))
        .await
        .unwrap();
    frozen(talk.layer.delete_conversation(&scope(), talk.id))
        .await
        .unwrap();
    let new = NewConversation::new().id(talk.id);
    frozen(talk.layer.create_conversation(&scope(), new))
        .await
        .unwrap();
    say(&session, "too late");
    session.save().await.unwrap_err();
    assert!(talk.start().await.read(said).is_empty());
    assert_eq!(talk.coordinator.shutdown(SECOND).await.unsaved.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn events_are_objects_without_details() {
    let talk = Talk::new(by_hand()).await;
    let session = talk.start().await;
    let mut events = session.subscribe();
    let todo = Todo::new("1", "Book a room");
    session.change(|state| state.put_todo(todo)).unwrap();
    session
        .change(|state| state.put_metadata("key", 1))
        .unwrap();
    session.emit(json!({ "own": true })).unwrap();
    session.title_generated("Plans").unwrap();
    talk.record.fail([Some(Fault::Before)]);
    session.save().await.unwrap_err();
    session.save().await.unwrap();
    session.shutdown().await.unwrap();
    let mut seen = Vec::new();
    while let Ok(event) = events.try_recv() {
        seen.push(json!(&*event));
    }
    let todos = seen.remove(0);
    assert_eq!(
        (&todos["type"], &todos["todos"][0]["content"]),
        (&json!("todos"), &json!("Book a room"))
    );
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

fn calls(ids: &[&str]) -> Message {
    Message::tool_calls(ids.iter().map(|id| ToolCall::new(*id, "search", json!({}))))
}

fn started(begun: BeginRun<RunGuard<Storage>>) -> RunGuard<Storage> {
    match begun {
        BeginRun::Started(guard) => guard,
        BeginRun::Busy(run) => panic!("{run:?}"),
    }
}

async fn rows(talk: &Talk) -> Vec<DisplayMessage> {
    let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
    let scope = scope();
    let page = talk.layer.load_display_messages(&scope, talk.id, page);
    frozen(page).await.unwrap().items
}

async fn deliveries(talk: &Talk) -> Vec<Delivery> {
    let rows = rows(talk).await.into_iter();
    rows.map(|row| row.delivery).collect()
}

type Events = tokio::sync::broadcast::Receiver<std::sync::Arc<SessionEvent<DisplayMessage, Error>>>;

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

fn is(error: &SessionError<Error>, matches: impl FnOnce(&Error) -> bool) -> bool {
    matches!(error, SessionError::Storage(error) if matches(error))
}
