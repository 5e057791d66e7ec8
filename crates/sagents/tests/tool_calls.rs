//! Tool calls: claims, decisions, results; and the usage of messages.

mod support;

use std::time::Duration;

use sagents::{
    Claim, Decided, Decision, Error, Fork, Key, Message, MessagePage, ModelUsage, NewDisplayMessage, Reach, Role,
    Timestamp, TokenUsage, ToolCall, ToolResult, ToolStatus, Usage,
};
use serde_json::{Map, json};
use support::fixture::{Fixture, GROUP, KINDS, object, sequences};
use support::{TABLES, TestDatabase};
use tokio::task::JoinSet;
use uuid::Uuid;

on_both_databases!(
    a_call_is_approved_claimed_and_completed_once,
    a_call_with_the_id_of_an_older_one_is_another_call,
    only_a_waiting_call_can_be_decided,
    a_rejected_call_cannot_be_claimed,
    a_decision_keeps_who_made_it_and_when,
    long_call_ids_are_shortened_everywhere,
    one_of_many_decides_claims_and_resolves,
    usage_is_counted_once_per_message,
    usage_can_be_learned_later,
    usage_outlives_cleared_messages,
    a_group_sees_the_usage_and_the_calls_of_its_members,
    sums_of_usage_saturate,
);

/// Displays a call, and the question whether it may run.
async fn ask(db: &Fixture, id: Uuid, call: &str) {
    let alice = &db.alice;
    db.append_display_message(alice, id, NewDisplayMessage::tool_call(call, "search")).await.unwrap();
    let question = NewDisplayMessage::tool_result(call, "waiting")
        .metadata(object(json!({"is_interrupt": true, "name": "search"})));
    db.append_display_message(alice, id, question).await.unwrap();
    db.interrupt_tool_call(alice, id, call, Map::new()).await.unwrap();
}

async fn a_call_is_approved_claimed_and_completed_once(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id, claim, decision) = (&db.alice, db.conversation().await, Uuid::now_v7(), Uuid::now_v7());
        let new = NewDisplayMessage::tool_call("call_1", "search").metadata(object(json!({"name": "search"})));
        db.append_display_message(alice, id, new).await.unwrap();
        let question = NewDisplayMessage::tool_result("call_1", "waiting")
            .metadata(object(json!({"is_interrupt": true, "name": "search"})));
        db.append_display_message(alice, id, question).await.unwrap();
        let claimed = db.claim_tool_call(alice, id, "call_1", claim).await.unwrap();
        assert!(matches!(claimed, Claim::Claimed(call) if call.status == Some(ToolStatus::Executing)));

        // It asks, and someone edits its arguments.
        let asked = db.interrupt_tool_call(alice, id, "call_1", object(json!({"question": "really?"}))).await.unwrap();
        assert_eq!(db.get_tool_call(alice, id, "call_1").await.unwrap(), asked);
        assert_eq!(asked.metadata, object(json!({"name": "search", "question": "really?"})));
        assert!(matches!(db.claim_tool_call(alice, id, "call_1", claim).await.unwrap(), Claim::Already(_)));
        let edit = Decision::Edit { arguments: json!({"q": 1}) };
        let decided = db.decide_tool_call(alice, id, "call_1", &edit, decision).await.unwrap();
        let Decided::Claimed(call) = &decided else { panic!("{decided:?}") };
        assert_eq!((call.status, call.decision()), (Some(ToolStatus::Pending), Some(edit)));
        assert_eq!(call.metadata["hitl_decision"], json!("approved"));
        let repeated = db.decide_tool_call(alice, id, "call_1", &Decision::Approve, decision).await.unwrap();
        assert_eq!(repeated, decided);
        let late = db.decide_tool_call(alice, id, "call_1", &Decision::Approve, Uuid::now_v7()).await.unwrap();
        assert!(matches!(late, Decided::Already(Decision::Edit { .. }, _)), "{late:?}");
        let question = &db.shown(id).await[1];
        assert_eq!((&question.metadata["hitl_decision"], question.changed), (&json!("approved"), call.changed));

        for _ in 0..2 {
            assert!(matches!(db.claim_tool_call(alice, id, "call_1", claim).await.unwrap(), Claim::Claimed(_)));
        }
        let late = db.claim_tool_call(alice, id, "call_1", Uuid::now_v7()).await.unwrap();
        assert!(matches!(late, Claim::Already(call) if call.claim() == Some(claim)));

        let real = ToolResult::error("call_1", "search", "42");
        let resolved = db.resolve_tool_result(alice, id, &real).await.unwrap();
        assert!(resolved.is_error);
        assert_eq!(resolved.content, "42");
        let expected = json!({"is_interrupt": false, "is_error": true, "hitl_decision": "approved", "name": "search"});
        assert_eq!(resolved.metadata, object(expected));
        assert_invalid!(db.resolve_tool_result(alice, id, &real));
        assert_not_found!(db.resolve_tool_result(alice, id, &ToolResult::new("nope", "x", "y")));

        let metadata = object(json!({"result": 42}));
        let done = db.complete_tool_call(alice, id, "call_1", metadata.clone()).await.unwrap();
        let change = db.counter(id, "last_change").await;
        assert_eq!(db.complete_tool_call(alice, id, "call_1", metadata).await.unwrap(), done);
        assert_eq!(db.counter(id, "last_change").await, change);
        assert!(matches!(db.claim_tool_call(alice, id, "call_1", claim).await.unwrap(), Claim::Already(_)));
        assert_invalid!(db.cancel_tool_call(alice, id, "call_1"));
        assert_invalid!(db.interrupt_tool_call(alice, id, "call_1", Map::new()));
        assert_not_found!(db.fail_tool_call(alice, id, "call_2", Map::new()));
        assert_not_found!(db.fail_tool_call(alice, Uuid::now_v7(), "call_1", Map::new()));
    }
}

async fn a_call_with_the_id_of_an_older_one_is_another_call(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id) = (&db.alice, db.conversation().await);
        for _ in 0..2 {
            db.append_display_message(alice, id, NewDisplayMessage::tool_call("call", "search")).await.unwrap();
        }
        assert_eq!(db.get_tool_call(alice, id, "call").await.unwrap().sequence, 1);
        db.claim_tool_call(alice, id, "call", Uuid::now_v7()).await.unwrap();
        db.complete_tool_call(alice, id, "call", Map::new()).await.unwrap();
        let statuses: Vec<_> = db.shown(id).await.iter().map(|row| row.status).collect();
        assert_eq!(statuses, [Some(ToolStatus::Pending), Some(ToolStatus::Completed)]);
    }
}

async fn only_a_waiting_call_can_be_decided(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    db.append_display_message(alice, id, NewDisplayMessage::tool_call("call", "x")).await.unwrap();
    assert_invalid!(db.decide_tool_call(alice, id, "call", &Decision::Approve, Uuid::now_v7()));
    assert_not_found!(db.decide_tool_call(alice, id, "other", &Decision::Approve, Uuid::now_v7()));
}

async fn a_rejected_call_cannot_be_claimed(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    ask(&db, id, "call").await;
    let reject = Decision::Reject { reason: None };
    db.decide_tool_call(alice, id, "call", &reject, Uuid::now_v7()).await.unwrap();
    assert!(matches!(db.claim_tool_call(alice, id, "call", Uuid::now_v7()).await.unwrap(), Claim::Already(_)));
}

async fn a_decision_keeps_who_made_it_and_when(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id, start) = (&db.alice, db.conversation().await, Timestamp::now());
    for (call, decision) in [("approved", Decision::Approve), ("rejected", Decision::Reject { reason: None })] {
        ask(&db, id, call).await;
        db.decide_tool_call(alice, id, call, decision.clone().by("Ada"), Uuid::now_v7()).await.unwrap();
        let decided = db.get_tool_call(alice, id, call).await.unwrap();
        assert_eq!((decided.decision(), decided.decided_by()), (Some(decision), Some("Ada")));
        assert!(decided.decided_at().is_some_and(|at| start <= at && at <= Timestamp::now()));
    }
    // An open call is asked about again in a copy, so nobody has decided there.
    let copy = db.fork_conversation(alice, id, Fork::new()).await.unwrap().conversation.id;
    let copied = db.get_tool_call(alice, copy, "approved").await.unwrap();
    assert_eq!((copied.decided_by(), copied.decided_at()), (None, None));
    // Nobody has to have a name.
    ask(&db, id, "unnamed").await;
    let Decided::Claimed(decided) =
        db.decide_tool_call(alice, id, "unnamed", &Decision::Approve, Uuid::now_v7()).await.unwrap()
    else {
        panic!("nobody else decides")
    };
    assert_eq!((decided.decided_by(), decided.decided_at().is_some()), (None, true));
}

async fn long_call_ids_are_shortened_everywhere(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    let long = "x".repeat(500) + &"y".repeat(2000);
    let mut message = Message::assistant("");
    message.tool_calls = vec![ToolCall::new(&long, "search", json!({}))];
    db.save_message(alice, id, Uuid::now_v7(), &message).await.unwrap();
    let claimed = db.claim_tool_call(alice, id, &long, Uuid::now_v7()).await.unwrap();
    let Claim::Claimed(call) = claimed else { panic!("{claimed:?}") };
    let short = call.tool_call_id.unwrap();
    assert!(short.len() < long.len());
    assert_eq!(db.get_tool_call(alice, id, &short).await.unwrap().sequence, call.sequence);
    db.complete_tool_call(alice, id, &short, Map::new()).await.unwrap();
    assert_not_found!(db.cancel_tool_call(alice, id, &long[1..]));
}

async fn one_of_many_decides_claims_and_resolves(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    for round in 0..20 {
        let call = format!("c{round}");
        ask(&db, id, &call).await;
        let mut people = JoinSet::new();
        for n in 0..8 {
            let (db, call) = (db.clone(), call.clone());
            people.spawn(async move {
                let alice = &db.alice;
                let edit = Decision::Edit { arguments: json!({"n": n}) };
                let decision = if n % 2 == 0 { edit } else { Decision::Approve };
                let (mut decided, mut claimed) = (true, true);
                let claim = Uuid::now_v7();
                for _ in 0..2 {
                    let outcome = db.decide_tool_call(alice, id, &call, &decision, claim).await.unwrap();
                    decided &= matches!(outcome, Decided::Claimed(_));
                }
                let noise = NewDisplayMessage::text(Role::User, "noise");
                db.append_display_message(alice, id, noise).await.unwrap();
                let claim = Uuid::now_v7();
                for _ in 0..2 {
                    let outcome = db.claim_tool_call(alice, id, &call, claim).await.unwrap();
                    claimed &= matches!(outcome, Claim::Claimed(_));
                }
                let result = ToolResult::new(&call, "search", n.to_string());
                (decided, claimed, db.resolve_tool_result(alice, id, &result).await.is_ok())
            });
        }
        let outcomes = people.join_all().await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.0).count(), 1);
        assert_eq!(outcomes.iter().filter(|outcome| outcome.1).count(), 1);
        assert_eq!(outcomes.iter().filter(|outcome| outcome.2).count(), 1);
    }
    let shown = sequences(&db.shown(id).await);
    assert_eq!(shown, (0..20 * (2 + 8)).collect::<Vec<_>>());
}

fn answer() -> Message {
    Message::assistant("To the sea.").with_usage("small", TokenUsage::new(100, 20).cached(60))
}

/// The usage of so many answers.
fn small(messages: u64) -> ModelUsage {
    let tokens = TokenUsage::new(100 * messages, 20 * messages).cached(60 * messages);
    ModelUsage { model: Some("small".into()), messages, tokens }
}

async fn usage_is_counted_once_per_message(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id, message) = (&db.alice, db.conversation().await, Uuid::now_v7());
        assert_eq!(db.usage(alice, id).await.unwrap(), Usage::default());
        db.save_draft(alice, id, message, &answer()).await.unwrap();
        assert_eq!(db.usage(alice, id).await.unwrap(), Usage::default(), "a draft doesn't count");
        for _ in 0..2 {
            db.save_message(alice, id, message, &answer()).await.unwrap();
            assert_eq!(db.usage(alice, id).await.unwrap().models, [small(1)]);
        }
        let mut two_items = answer();
        two_items.tool_calls = vec![ToolCall::new("c", "s", json!({}))];
        for _ in 0..2 {
            db.save_message(alice, id, Uuid::from_bytes([9; 16]), &two_items).await.unwrap();
        }
        assert_eq!(db.usage(alice, id).await.unwrap().models, [small(2)]);
    }
}

async fn usage_can_be_learned_later(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id, message) = (&db.alice, db.conversation().await, Uuid::now_v7());
        db.save_message(alice, id, message, &Message::assistant("To the sea.")).await.unwrap();
        assert_eq!(db.usage(alice, id).await.unwrap(), Usage::default());
        db.save_message(alice, id, message, &answer()).await.unwrap();
        assert_eq!(db.usage(alice, id).await.unwrap().models, [small(1)]);
    }
}

async fn usage_outlives_cleared_messages(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id, start) = (&db.alice, db.conversation().await, Timestamp::now());
        count_four_models(&db, id).await;
        let models = db.usage(alice, id).await.unwrap().models;
        let facts = |usage: &ModelUsage| (usage.model.clone(), usage.messages, usage.tokens.input, usage.tokens.output);
        assert_eq!(
            models.iter().map(facts).collect::<Vec<_>>(),
            [
                (None, 1, 5, 0),
                (Some("large".into()), 1, 7, 1),
                (Some("none".into()), 1, 1, 1 << 40),
                (Some("small".into()), 1, 100, 20)
            ]
        );
        db.clear_display_messages(alice, id).await.unwrap();
        assert_eq!(db.usage(alice, id).await.unwrap().models, models);

        let end = Timestamp::now() + Duration::from_secs(1);
        assert_eq!(db.usage(alice, start..end).await.unwrap().models, models);
        assert_eq!(db.usage(alice, end..Timestamp::MAX).await.unwrap(), Usage::default());
        assert_eq!(db.usage(alice, Timestamp::MIN..start).await.unwrap(), Usage::default());
    }
}

async fn count_four_models(db: &Fixture, id: Uuid) {
    let alice = &db.alice;
    db.save_message(alice, id, Uuid::now_v7(), &answer()).await.unwrap();
    let not_displayed = Message::assistant("").with_usage("none", TokenUsage::new(1, u64::MAX));
    db.save_message(alice, id, Uuid::now_v7(), &not_displayed).await.unwrap();
    let appended = NewDisplayMessage::text(Role::Assistant, "In June.").usage("large", TokenUsage::new(7, 1));
    for _ in 0..2 {
        db.append_display_message(alice, id, appended.clone()).await.unwrap();
    }
    let usage = object(json!({"usage": {"input": 5, "output": 0}}));
    let no_model = NewDisplayMessage::text(Role::Assistant, "x").metadata(usage);
    db.append_display_message(alice, id, no_model).await.unwrap();
}

async fn a_group_sees_the_usage_and_the_calls_of_its_members(database: &TestDatabase) {
    let db = Fixture::with_group(database, TABLES, 2).await;
    let (bob, bobs) = (&db.bob, db.conversation_of(&db.bob).await);
    count_four_models(&db, db.conversation().await).await;
    let counted = NewDisplayMessage::text(Role::Assistant, "x").usage("bobs", TokenUsage::new(3, 3));
    db.append_display_message(bob, bobs, counted).await.unwrap();
    db.append_display_message(bob, bobs, NewDisplayMessage::tool_call("c", "x")).await.unwrap();
    let stranger = db.owner(3);
    let strangers = db.conversation_of(&stranger).await;
    let counted = NewDisplayMessage::text(Role::Assistant, "x").usage("strangers", TokenUsage::new(3, 3));
    db.append_display_message(&stranger, strangers, counted).await.unwrap();

    let (group, other) = (Reach::Group(Key::Integer(GROUP)), Reach::Group(Key::Integer(GROUP + 1)));
    let always = (Timestamp::MIN, Timestamp::MAX);
    let usage = db.usage(&group, always.0..always.1).await.unwrap();
    let models: Vec<_> = usage.models.iter().map(|usage| usage.model.as_deref()).collect();
    assert_eq!(models, [None, Some("bobs"), Some("large"), Some("none"), Some("small")]);
    assert_eq!(db.usage(bob, always.0..always.1).await.unwrap().models.len(), 1);
    assert_eq!(db.usage(&other, always.0..always.1).await.unwrap(), Usage::default());

    assert_eq!(db.usage(&group, bobs).await.unwrap().models.len(), 1);
    let page = db.load_display_messages(&group, bobs, MessagePage::first()).await.unwrap();
    assert_eq!(page.items.len(), 2);
    assert_eq!(db.get_tool_call(&group, bobs, "c").await.unwrap().sequence, 1);
    assert_not_found!(db.get_tool_call(&other, bobs, "c"));
    assert_not_found!(db.get_tool_call(&group, strangers, "c"));
    let refused = db.append_display_message(&group, bobs, NewDisplayMessage::text(Role::User, "x")).await;
    assert!(matches!(refused, Err(Error::NoOwner)), "{refused:?}");
    let refused = db.touch_display_messages(&group, bobs, &[0]).await;
    assert!(matches!(refused, Err(Error::NoOwner)), "{refused:?}");
}

async fn sums_of_usage_saturate(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    let counted = NewDisplayMessage::text(Role::Assistant, "x").usage("small", TokenUsage::new(3, 3));
    db.append_display_message(&db.alice, id, counted).await.unwrap();
    for n in 0..3 {
        let message = db.pool.uuid(Uuid::from_bytes([n; 16]));
        db.pool
            .execute(format!(
                "INSERT INTO sagents_usage (user_id, conversation_id, message_id, model, input_tokens, output_tokens, \
                 cached_tokens, inserted_at) SELECT user_id, conversation_id, {message}, 'big', 9223372036854775807, \
                 0, 0, inserted_at FROM sagents_usage WHERE model = 'small'"
            ))
            .await;
    }
    let models = db.usage(&db.alice, id).await.unwrap().models;
    assert!(models[0].tokens.input >= 9_223_372_036_854_774_784, "{models:?}");
}
