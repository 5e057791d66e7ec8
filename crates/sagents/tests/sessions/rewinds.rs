//! Sessions that are rewound, by themselves or by another process.

use sagents::Error;
use sagents::session::{OnConflict, SessionError, SessionOptions};
use sagents::{BeginRun, Cut, Message, Point, RunStatus, ToolCall, ToolResult};
use serde_json::json;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::{INTERVAL, SECOND};
use crate::paused_on_both_databases;
use crate::storage::{Fault, Talk, frozen, said, say, scope};
use crate::support::Kind;

paused_on_both_databases!(
    a_question_is_edited_and_the_answer_made_again,
    an_unknown_message_is_an_error_and_the_session_goes_on,
    after_a_lost_reply_the_session_has_what_is_stored,
    after_a_lost_reply_a_message_that_came_in_between_is_displayed_if_the_state_has_it,
    what_another_process_takes_back_and_was_not_saved_is_displayed_again_but_for_lost_calls,
    an_interrupt_or_a_result_that_was_added_is_given_up_with_its_call,
    a_result_that_was_sent_and_whose_call_is_gone_is_a_conflict,
    concurrent_rewinds_to_an_unknown_message_all_return,
    a_session_of_another_process_stops_and_never_stores_the_old_state,
);

async fn a_question_is_edited_and_the_answer_made_again(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let question = Uuid::now_v7();
    session.send_message(question, Message::user("Two?")).await.unwrap();
    crate::storage::add(&session, Message::assistant("Yes, two."));
    session.complete_run().unwrap();
    let mut events = session.subscribe();

    let cut = session.rewind(Point::Before(question)).await.unwrap();
    session.send_message(Uuid::now_v7(), Message::user("Three?")).await.unwrap();
    crate::storage::add(&session, Message::assistant("Yes, three."));

    assert_eq!(cut, Cut::default());
    session.save().await.unwrap();
    let expected = ["Three?", "Yes, three."];
    assert_eq!(session.read(said), expected);
    assert_eq!(talk.stored().await.0, expected);
    assert_eq!(talk.shown().await, expected);
    let mut kinds = Vec::new();
    while let Ok(event) = events.try_recv() {
        kinds.push(serde_json::to_value(&*event).unwrap()["type"].clone());
    }
    assert!(kinds.contains(&"rewound".into()), "{kinds:?}");
    assert!(!kinds.contains(&"conflict".into()), "{kinds:?}");
    session.shutdown().await.unwrap();
    assert_eq!(talk.start().await.read(said), expected);
}

async fn an_unknown_message_is_an_error_and_the_session_goes_on(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    crate::storage::add(&session, Message::user("one"));
    let error = session.rewind(Point::Before(Uuid::now_v7())).await.unwrap_err();
    assert!(matches!(&error, SessionError::Storage(error) if matches!(**error, Error::NotFound)), "{error:?}");
    crate::storage::add(&session, Message::user("two"));
    session.save().await.unwrap();
    assert_eq!(talk.stored().await.0, ["one", "two"]);
    assert_eq!(talk.shown().await, ["one", "two"]);
}

async fn after_a_lost_reply_the_session_has_what_is_stored(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let first = crate::storage::add(&session, Message::user("one"));
    crate::storage::add(&session, Message::user("two"));
    session.complete_run().unwrap();
    session.save().await.unwrap();
    talk.record.fail([Some(Fault::After)]);
    session.rewind(Point::Through(first)).await.unwrap_err();
    sleep(INTERVAL).await;
    assert_eq!(session.read(said), ["one"]);
    crate::storage::add(&session, Message::user("three"));
    session.save().await.unwrap();
    assert_eq!(talk.stored().await.0, ["one", "three"]);
    assert_eq!(talk.shown().await, ["one", "three"]);
}

async fn after_a_lost_reply_a_message_that_came_in_between_is_displayed_if_the_state_has_it(kind: Kind) {
    for fault in [Fault::Before, Fault::After] {
        let talk = Talk::new(kind, SessionOptions::default()).await;
        let session = talk.start().await;
        let first = crate::storage::add(&session, Message::user("one"));
        session.complete_run().unwrap();
        session.save().await.unwrap();
        sleep(SECOND).await;
        say(&session, "two");
        talk.record.fail([None, None, Some(fault)]);
        let saves = talk.record.hold_saves().await;
        let between = async {
            yield_now().await;
            crate::storage::add(&session, Message::user("three"));
            drop(saves);
        };
        let (rewound, ()) = tokio::join!(session.rewind(Point::Through(first)), between);
        rewound.unwrap_err();
        sleep(INTERVAL).await;
        session.save().await.unwrap();
        let (stored, shown) = match fault {
            Fault::Before => (&["one", "two", "three"][..], ["one", "three"]),
            _ => (&["one", "three"][..], ["one", "three"]),
        };
        assert_eq!(talk.stored().await.0, stored);
        assert_eq!(talk.shown().await, shown);
    }
}

async fn what_another_process_takes_back_and_was_not_saved_is_displayed_again_but_for_lost_calls(kind: Kind) {
    let options = SessionOptions { on_conflict: OnConflict::Reload, ..SessionOptions::default() };
    let talk = Talk::new(kind, options).await;
    let session = talk.start().await;
    let first = crate::storage::add(&session, Message::user("one"));
    let call = ToolCall::new("call_1", "search", json!({}));
    crate::storage::add(&session, Message::tool_calls([call]));
    session.save().await.unwrap();
    let result = ToolResult::new("call_1", "search", "found");
    session.add_tool_result(result).unwrap();
    crate::storage::add(&session, Message::assistant("two"));
    sleep(SECOND).await;
    assert_eq!(talk.shown().await, ["one", "search", "found", "two"]);

    let (scope, to) = (scope(), Point::Through(first));
    frozen(talk.layer.rewind_conversation(&scope, talk.id, to)).await.unwrap();
    sleep(INTERVAL * 2).await;
    assert_eq!(talk.stored().await.0, ["one", "two"]);
    assert_eq!(talk.shown().await, ["one", "two"]);
    session.shutdown().await.unwrap();
}

async fn an_interrupt_or_a_result_that_was_added_is_given_up_with_its_call(kind: Kind) {
    let options = SessionOptions { on_conflict: OnConflict::Reload, ..SessionOptions::default() };
    for is_shown in [true, false] {
        let talk = Talk::new(kind, options.clone()).await;
        let session = talk.start().await;
        let first = crate::storage::add(&session, Message::user("one"));
        let calls = ["call_1", "call_2"].map(|id| ToolCall::new(id, "search", json!({})));
        crate::storage::add(&session, Message::tool_calls(calls));
        session.save().await.unwrap();
        if !is_shown {
            talk.record.fail([Some(Fault::Before)]);
        }
        session.interrupt_tool_call("call_1", json!(1)).unwrap();
        let result = ToolResult::new("call_2", "search", "found");
        crate::storage::add(&session, Message::tool_results([result]));
        if is_shown {
            sleep(SECOND).await;
        }

        let (scope, to) = (scope(), Point::Through(first));
        frozen(talk.layer.rewind_conversation(&scope, talk.id, to)).await.unwrap();
        sleep(INTERVAL * 2).await;
        assert_eq!(session.read(said), ["one"]);
        assert_eq!(talk.stored().await.0, ["one"]);
        session.shutdown().await.unwrap();
    }
}

async fn a_result_that_was_sent_and_whose_call_is_gone_is_a_conflict(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    let first = crate::storage::add(&session, Message::user("one"));
    let call = ToolCall::new("call_1", "search", json!({}));
    crate::storage::add(&session, Message::tool_calls([call]));
    session.save().await.unwrap();
    let (scope, to) = (scope(), Point::Through(first));
    frozen(talk.layer.rewind_conversation(&scope, talk.id, to)).await.unwrap();
    let result = ToolResult::new("call_1", "search", "found");
    let sent = session.send_message(Uuid::now_v7(), Message::tool_results([result]));
    let refused = sent.await.unwrap_err();
    assert!(matches!(refused, SessionError::Conflict { .. }), "{refused}");
    assert_eq!(session.read(said), ["one"]);
    assert_eq!(talk.shown().await, ["one"]);
    session.shutdown().await.unwrap();
}

async fn concurrent_rewinds_to_an_unknown_message_all_return(kind: Kind) {
    let talk = Talk::new(kind, SessionOptions::default()).await;
    let session = talk.start().await;
    session.complete_run().unwrap();
    session.save().await.unwrap();
    talk.record.fail([Some(Fault::Late)]);
    let rewind = || session.rewind(Point::Before(Uuid::now_v7()));
    let later = async {
        sleep(SECOND / 2).await;
        rewind().await
    };
    let both = async { tokio::join!(rewind(), later) };
    let (first, second) = timeout(INTERVAL, both).await.unwrap();
    for refused in [first, second] {
        assert!(matches!(refused, Err(SessionError::Storage(_))), "{refused:?}");
    }
}

async fn a_session_of_another_process_stops_and_never_stores_the_old_state(kind: Kind) {
    let options = SessionOptions { on_conflict: OnConflict::Reload, ..SessionOptions::default() };
    let talk = Talk::new(kind, options).await;
    let session = talk.start().await;
    let first = crate::storage::add(&session, Message::user("one"));
    let BeginRun::Started(guard) = session.begin_run().await.unwrap() else {
        panic!("no other run");
    };
    crate::storage::add(&session, Message::assistant("two"));
    session.save().await.unwrap();
    let mut events = session.subscribe();

    let (scope, to) = (scope(), Point::Through(first));
    frozen(talk.layer.rewind_conversation(&scope, talk.id, to)).await.unwrap();
    sleep(INTERVAL).await;
    let run = frozen(talk.layer.get_run(&scope, talk.id)).await.unwrap().unwrap();
    assert!(run.cancel_requested && run.status == RunStatus::Running);
    crate::storage::add(&session, Message::assistant("three"));
    sleep(INTERVAL * 10).await;
    assert_eq!(talk.stored().await.0, ["one", "three"]);
    assert_eq!(talk.shown().await, ["one", "three"]);
    assert!(guard.token().is_cancelled());
    let mut kinds = Vec::new();
    while let Ok(event) = events.try_recv() {
        kinds.push(serde_json::to_value(&*event).unwrap()["type"].clone());
    }
    assert!(kinds.contains(&"reloaded".into()), "{kinds:?}");
}
