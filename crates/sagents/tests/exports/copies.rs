//! Any conversation survives an export and an import, and the copy goes on.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sagents::{
    Claim, ContentType, Decision, Delivery, Expect, Expired, Export, ExportedConversation, ExportedMessage,
    ExportedUsage, Fork, ListConversations, Message, MessagePage, NewDisplayMessage, Owner, Point, Role, SearchPage,
    State, Timestamp, ToolStatus,
};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, duplex};
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use uuid::Uuid;

use crate::support::context::NewConversation;
use crate::support::fixture::{Fixture, object};
use crate::support::{TABLES, TestDatabase};
use crate::{bytes, on_both_databases, strategies};

on_both_databases!(
    any_conversation_is_the_same_after_an_export_and_an_import,
    nobody_has_approved_or_started_a_call_in_a_copy,
    an_export_is_of_one_point_in_time,
    a_message_with_the_highest_sequence_stops_neither_its_conversation_nor_housekeeping,
    an_import_of_any_year_is_listed_and_found,
    an_imported_conversation_goes_on,
);

/// An export with something of everything.
pub fn example() -> Export {
    let now = Timestamp::now();
    let message = |sequence: i64, content: &str| ExportedMessage {
        sequence,
        message_id: Uuid::now_v7(),
        item: 0,
        role: Role::User,
        content_type: ContentType::Text,
        content: content.into(),
        metadata: Map::new(),
        tool_call_id: None,
        status: None,
        inserted_at: now,
        delivery: Delivery::Stored,
    };
    let mut state = State::new();
    for message in [Message::user("Where to?"), Message::assistant("To the sea.")] {
        state.messages.push_with_id(Uuid::now_v7(), message);
    }
    Export {
        conversation: ExportedConversation {
            id: Uuid::now_v7(),
            title: Some("Plans".into()),
            metadata: Map::new(),
            interrupted: true,
            inserted_at: now,
            updated_at: now,
            archived_at: None,
            columns: Map::new(),
        },
        state: Some(state),
        messages: vec![
            message(0, "Where to?"),
            ExportedMessage {
                role: Role::Assistant,
                content_type: ContentType::ToolCall,
                tool_call_id: Some("call_1".into()),
                status: Some(ToolStatus::Completed),
                ..message(4, "search")
            },
        ],
        usage: vec![ExportedUsage {
            message_id: Uuid::now_v7(),
            model: None,
            input_tokens: 1,
            output_tokens: 2,
            cached_tokens: 0,
            inserted_at: now,
        }],
    }
}

/// An export with any texts, values and state.
fn any_export() -> impl Strategy<Value = Export> {
    let metadata = || strategies::value().prop_map(|value| json!({ "any": value }));
    let object = |value: Value| value.as_object().unwrap().clone();
    let display = (strategies::text(), metadata(), 0..5_usize, any::<bool>());
    let display = proptest::collection::vec(display, 0..4);
    let usage = (proptest::option::of(strategies::text()), 0..=i64::MAX.unsigned_abs());
    let usage = proptest::collection::vec(usage, 0..3);
    let state = proptest::option::of(strategies::state());
    let title = proptest::option::of(strategies::text());
    (title, metadata(), state, display, usage).prop_map(move |(title, metadata, state, display, usage)| {
        let mut export = example();
        export.conversation.title = title;
        export.conversation.metadata = object(metadata);
        export.conversation.archived_at = export.state.as_ref().map(|_| Timestamp::now());
        export.state = state;
        let (text, call) = (export.messages[0].clone(), export.messages[1].clone());
        let deliveries =
            [Delivery::Stored, Delivery::Draft, Delivery::Unsaved, Delivery::Interrupted, Delivery::Unknown];
        let display = (3..).zip(display);
        let display = display.map(|(sequence, (content, metadata, delivery, is_call))| ExportedMessage {
            sequence: sequence * 2,
            message_id: Uuid::now_v7(),
            content,
            metadata: object(metadata),
            delivery: deliveries[delivery],
            ..if is_call { call.clone() } else { text.clone() }
        });
        export.messages = display.collect();
        let template = export.usage[0].clone();
        let usage = usage.into_iter().map(|(model, tokens)| ExportedUsage {
            message_id: Uuid::now_v7(),
            model,
            input_tokens: tokens,
            ..template.clone()
        });
        export.usage = usage.collect();
        export
    })
}

async fn any_conversation_is_the_same_after_an_export_and_an_import(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(60) });
    block_in_place(|| {
        let outcome = runner.run(&any_export(), |given| {
            Handle::current().block_on(Box::pin(survives(&db, given)));
            Ok(())
        });
        outcome.unwrap();
    });
}

async fn survives(db: &Fixture, given: Export) {
    let (alice, bob, id) = (&db.alice, &db.bob, given.conversation.id);
    assert!(db.import_conversation(alice, given.clone()).await.unwrap().created);
    assert!(!db.import_conversation(alice, given.clone()).await.unwrap().created, "a repeat");
    let export = db.export_conversation(alice, id).await.unwrap();
    // U+0000 and drafts are not kept; everything else is.
    assert_eq!(export.conversation.id, id);
    assert_eq!(export.state, given.state);
    assert_eq!(export.messages.len(), given.messages.len());

    let mut file = Vec::new();
    db.export_conversation_to(alice, id, &mut file).await.unwrap();
    assert_eq!(bytes(&export), file);
    assert_eq!(Export::read_from(&*file).unwrap(), export);
    let json = serde_json::to_string(&export).unwrap();
    assert_eq!(serde_json::from_str::<Export>(&json).unwrap(), export);

    assert!(db.import_conversation_from(bob, &*file).await.unwrap().created);
    assert_eq!(db.export_conversation(bob, id).await.unwrap(), export);
    let loaded = db.load_agent_state(bob, id).await.ok();
    assert_eq!(loaded.map(|saved| saved.state), export.state);
    for owner in [alice, bob] {
        db.delete_conversation(owner, id).await.unwrap();
    }
}

/// A decision belongs to the conversation in which it was made.
async fn nobody_has_approved_or_started_a_call_in_a_copy(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, bob, id) = (&db.alice, &db.bob, make_calls(&db).await);
    let fork = db.fork_conversation(alice, id, Fork::new()).await.unwrap().conversation;
    assert!(fork.interrupted);
    let mut file = Vec::new();
    db.export_conversation_to(alice, id, &mut file).await.unwrap();
    db.import_conversation_from(bob, &*file).await.unwrap();
    for (owner, id) in [(alice, fork.id), (bob, id)] {
        for (call, status, started) in [
            ("approved", ToolStatus::Interrupted, false),
            ("started", ToolStatus::Interrupted, true),
            ("waits", ToolStatus::Interrupted, false),
            ("done", ToolStatus::Completed, false),
            ("rejected", ToolStatus::Cancelled, false),
            ("runs", ToolStatus::Unknown, true),
            ("pending", ToolStatus::Pending, false),
        ] {
            let row = db.get_tool_call(owner, id, call).await.unwrap();
            assert_eq!(row.status, Some(status), "{call}");
            assert_eq!(row.metadata.contains_key("started_elsewhere"), started, "{call}");
            let is_decided = ["done", "rejected"].contains(&call);
            assert_eq!(row.decision().is_some(), is_decided, "{call}");
            let claim = db.claim_tool_call(owner, id, call, Uuid::now_v7()).await.unwrap();
            assert_eq!(matches!(claim, Claim::Claimed(_)), call == "pending", "{call}");
        }
        let page = db.load_display_messages(owner, id, MessagePage::first()).await.unwrap();
        let results = page.items.iter().filter(|row| row.content_type == ContentType::ToolResult);
        let decided: Vec<_> = results
            .filter(|row| row.metadata.contains_key("hitl_decision"))
            .map(|row| row.tool_call_id.as_deref().unwrap())
            .collect();
        assert_eq!(decided, ["rejected"]);
    }
}

/// A conversation with calls that are named after their status.
async fn make_calls(db: &Fixture) -> Uuid {
    let (alice, id) = (&db.alice, db.conversation().await);
    for call in ["approved", "started", "done", "waits", "rejected", "runs", "pending"] {
        let new = NewDisplayMessage::tool_call(call, "pay");
        db.append_display_message(alice, id, new).await.unwrap();
        if call == "runs" || call == "pending" {
            continue;
        }
        let question = object(json!({ "is_interrupt": true }));
        let result = NewDisplayMessage::tool_result(call, "?").metadata(question);
        db.append_display_message(alice, id, result).await.unwrap();
        db.interrupt_tool_call(alice, id, call, Map::new()).await.unwrap();
    }
    for call in ["approved", "started", "done"] {
        let edit = Decision::Edit { arguments: json!({ "amount": 5 }) };
        db.decide_tool_call(alice, id, call, edit, Uuid::now_v7()).await.unwrap();
    }
    let reject = Decision::Reject { reason: None };
    db.decide_tool_call(alice, id, "rejected", reject, Uuid::now_v7()).await.unwrap();
    for call in ["started", "done", "runs"] {
        db.claim_tool_call(alice, id, call, Uuid::now_v7()).await.unwrap();
    }
    db.complete_tool_call(alice, id, "done", Map::new()).await.unwrap();
    id
}

async fn an_export_is_of_one_point_in_time(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, export) = (Arc::new(db.alice.clone()), example());
    let id = export.conversation.id;
    assert!(db.import_conversation(&alice, export.clone()).await.unwrap().created);
    // It waits for its reader behind the first bytes.
    let (mut near, far) = duplex(16);
    let (store, owner) = (db.store(), Arc::clone(&alice));
    let exported = tokio::spawn(async move { store.export_conversation_to(&owner, id, far).await });
    let mut file = vec![0; 10];
    near.read_exact(&mut file).await.unwrap();
    let late = NewDisplayMessage::text(Role::User, "late");
    db.append_display_message(&alice, id, late).await.unwrap();
    let mut saved = db.load_agent_state(&alice, id).await.unwrap();
    saved.state.add_message(Message::user("late"));
    db.save_agent_state(&alice, id, &saved.state, Expect::Revision(saved.revision)).await.unwrap();
    near.read_to_end(&mut file).await.unwrap();
    exported.await.unwrap().unwrap();
    assert_eq!(Export::read_from(&*file).unwrap(), export);
    assert_eq!(db.export_conversation(&alice, id).await.unwrap().messages.len(), 3);
}

async fn a_message_with_the_highest_sequence_stops_neither_its_conversation_nor_housekeeping(database: &TestDatabase) {
    const LAST: &str = "UPDATE sagents_conversations SET next_sequence = 9223372036854775807";

    let db = Fixture::new(database, TABLES).await;
    let (alice, mut export) = (&db.alice, example());
    export.messages[1].sequence = (1 << 53) - 1;
    let id = export.conversation.id;
    assert!(db.import_conversation(alice, export).await.unwrap().created);
    let hello = NewDisplayMessage::text(Role::User, "hello");
    assert_eq!(db.append_display_message(alice, id, hello).await.unwrap().sequence, 1 << 53);
    assert_eq!(db.rewind_conversation(alice, id, Point::End).await.unwrap().removed, 0);

    assert!(db.import_conversation(&db.bob, example()).await.unwrap().created);
    db.pool.execute(LAST).await;
    let expired = Expired::UpdatedBefore("3000-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(db.delete_conversations(expired).await.unwrap(), 2);
}

async fn an_import_of_any_year_is_listed_and_found(database: &TestDatabase) {
    const TIMES: [&str; 4] =
        ["0000-01-01T00:00:00Z", "2000-01-01T00:00:00Z", "9000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"];

    let db = Fixture::new(database, TABLES).await;
    for time in TIMES {
        let (mut export, time) = (example(), time.parse().unwrap());
        export.conversation.inserted_at = time;
        export.conversation.updated_at = time;
        export.messages[0].inserted_at = time;
        assert!(db.import_conversation(&db.alice, export).await.unwrap().created);
    }
    let list = db.list_conversations(&db.alice, ListConversations::new()).await.unwrap();
    assert_eq!(list.items.len(), TIMES.len());
    let found = db.search_messages(&db.alice, "where", SearchPage::first()).await.unwrap();
    assert_eq!(found.items.len(), TIMES.len());
}

async fn an_imported_conversation_goes_on(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, bob): (&Owner, &Owner) = (&db.alice, &db.bob);
    let id = db.create_conversation(alice, NewConversation::new()).await.unwrap().id;
    let empty = db.export_conversation(alice, id).await.unwrap();
    assert!(db.import_conversation(bob, empty.clone()).await.unwrap().created);
    assert_eq!(db.export_conversation(bob, id).await.unwrap(), empty);

    let export = example();
    let id = export.conversation.id;
    assert!(db.import_conversation(alice, export).await.unwrap().created);
    let hello = NewDisplayMessage::text(Role::User, "hello");
    assert_eq!(db.append_display_message(alice, id, hello).await.unwrap().sequence, 5);
    let sequences: Vec<_> = db.shown(id).await.iter().map(|row| row.sequence).collect();
    assert_eq!(sequences, [0, 4, 5]);
    let mut saved = db.load_agent_state(alice, id).await.unwrap();
    saved.state.add_message(Message::user("hello"));
    let revision = db.save_agent_state(alice, id, &saved.state, Expect::Revision(saved.revision)).await.unwrap();
    assert_eq!(revision.0, 2);
}
