{%- if has_owner %}
//! Tests of this layer in this host: every call, ordering, idempotence, concurrency and the isolation
//! of owners.
{%- else %}
//! Tests of this layer in this host: every call, ordering, idempotence and concurrency.
{%- endif %}

#![allow(unused_results, clippy::unwrap_used, reason = "a test panics where it fails")]

macro_rules! assert_not_found {
    ($call:expr) => {
        assert!(matches!($call.await, Err(Error::NotFound)), "{}", stringify!($call))
    };
}

macro_rules! assert_invalid {
    ($call:expr) => {
        assert!(matches!($call.await, Err(Error::Invalid(_))), "{}", stringify!($call))
    };
}

mod branches;
mod database;
mod exports;
mod messages;
{%- if has_owner %}
mod owners;
{%- endif %}
mod runs;
mod states;
mod tool_calls;
mod usage;

use std::time::Duration;

use serde_json::{Map, Value, json};

use self::database::{Database, alice{% if has_owner %}, bob{% endif %}};
use super::*;
use crate::sagents::{Message, State};

/// A state with messages.
fn state_of(messages: &[&str]) -> State {
    let mut state = State::new();
    state.add_messages(messages.iter().map(|&text| Message::user(text)));
    state
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("not an object: {other}"),
    }
}

#[tokio::test]
async fn a_conversation_is_created_read_changed_and_deleted() {
    let db = Database::new().await;
    let new = NewConversation::new()
        .title("Plans")
        .metadata(object(json!({ "color": "blue" })));
    let created = db.create_conversation(&alice(), new.clone()).await.unwrap();
    assert_eq!(created.title.as_deref(), Some("Plans"));
    assert_eq!(created.scope, alice().to_json());
    assert!(!created.interrupted);
    assert_eq!(
        db.get_conversation(&alice(), new.id).await.unwrap(),
        created
    );
    assert_eq!(
        db.create_conversation(&alice(), new).await.unwrap(),
        created,
        "creating it again changes nothing"
    );

    let renamed = db
        .update_conversation(
            &alice(),
            created.id,
            ConversationChanges::default().title("Other"),
        )
        .await
        .unwrap();
    assert_eq!(renamed.title.as_deref(), Some("Other"));
    assert_eq!(renamed.metadata, created.metadata);
    assert!(renamed.updated_at >= created.updated_at);
    let cleared = ConversationChanges::default()
        .clear_title()
        .metadata(Map::new());
    let cleared = db
        .update_conversation(&alice(), created.id, cleared)
        .await
        .unwrap();
    assert_eq!((cleared.title, cleared.metadata), (None, Map::new()));

    db.delete_conversation(&alice(), created.id).await.unwrap();
    assert_not_found!(db.get_conversation(&alice(), created.id));
    assert_not_found!(db.delete_conversation(&alice(), created.id));
}

#[tokio::test]
async fn pages_of_conversations_follow_each_other_in_every_order() {
    let db = Database::new().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(
            db.conversation().await,
        );
    }
    let newest = NewDisplayMessage::text(Role::User, "hello");
    db.append_display_message(&alice(), ids[1], newest)
        .await
        .unwrap();
    let updated = [ids[0], ids[2], ids[3], ids[4], ids[1]];

    for (order_by, expected) in [
        (ConversationOrder::UpdatedAsc, updated.to_vec()),
        (
            ConversationOrder::UpdatedDesc,
            updated.iter().rev().copied().collect(),
        ),
        (ConversationOrder::CreatedAsc, ids.clone()),
        (
            ConversationOrder::CreatedDesc,
            ids.iter().rev().copied().collect(),
        ),
    ] {
        let mut request = ListConversations::new().order_by(order_by).limit(2);
        let mut seen = Vec::new();
        loop {
            let page = db.list_conversations(&alice(), request).await.unwrap();
            assert!(page.items.len() <= 2);
            seen.extend(page.items.iter().map(|conversation| conversation.id));
            let Some(next) = page.next else { break };
            assert_eq!(next, page.items[1].cursor(order_by));
            request = request.after(next);
        }
        assert_eq!(seen, expected, "{order_by:?}");
        let all = db.list_conversations(&alice(), ListConversations::new().limit(5)).await.unwrap();
        assert_eq!((all.items.len(), all.next), (5, None));
    }
}

#[tokio::test]
async fn housekeeping_deletes_what_is_old_and_all_that_belongs_to_it() {
    let db = Database::new().await;
    let old = db
        .create_conversation(&alice(), NewConversation::new())
        .await
        .unwrap();
    let message = NewDisplayMessage::text(Role::User, "hello");
    db.append_display_message(&alice(), old.id, message)
        .await
        .unwrap();
    let cutoff = db
        .get_conversation(&alice(), old.id)
        .await
        .unwrap()
        .updated_at
        + Duration::from_micros(1);
    tokio::time::sleep(Duration::from_millis(2)).await;
    let new = db
        .create_conversation(&{% if has_owner %}bob{% else %}alice{% endif %}(), NewConversation::new())
        .await
        .unwrap();

    assert_eq!(db.delete_conversations_before(cutoff).await.unwrap(), 1);
    assert_not_found!(db.get_conversation(&alice(), old.id));
    let found = db.search_messages(&alice(), "hello", SearchPage::first()).await.unwrap();
    assert_eq!(found.items, []);
    assert_eq!(db.get_conversation(&{% if has_owner %}bob{% else %}alice{% endif %}(), new.id).await.unwrap(), new);
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused() {
    let db = Database::new().await;
    let random = NewConversation::new().id(Uuid::max());
    assert_invalid!(db.create_conversation(&alice(), random));

    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let deep = NewConversation::new().metadata(object(json!({ "deep": deep })));
    assert_invalid!(db.create_conversation(&alice(), deep));

    let id = db.conversation().await;
    let confused = NewDisplayMessage {
        status: Some(ToolStatus::Failed),
        ..NewDisplayMessage::text(Role::User, "?")
    };
    assert_invalid!(db.append_display_message(&alice(), id, confused));
    for limit in [0, ListConversations::MAX_LIMIT + 1, u32::MAX] {
        let list = ListConversations::new().limit(limit);
        assert_invalid!(db.list_conversations(&alice(), list));
    }
    for limit in [0, MessagePage::MAX_LIMIT + 1] {
        let page = MessagePage::last().limit(limit);
        assert_invalid!(db.load_display_messages(&alice(), id, page));
        assert_invalid!(db.search_messages(&alice(), "a", SearchPage::first().limit(limit)));
    }
}

#[tokio::test]
async fn a_cursor_is_text_that_only_its_own_list_takes() {
    let db = Database::new().await;
    let id = db.conversation().await;
    db.conversation().await;
    for n in 0..2 {
        let message = NewDisplayMessage::text(Role::User, format!("message {n}"));
        db.append_display_message(&alice(), id, message).await.unwrap();
    }
    let by_update = ListConversations::new().limit(1);
    let by_id = by_update.order_by(ConversationOrder::CreatedAsc);
    let (messages, found) = (MessagePage::last().limit(1), SearchPage::first().limit(1));
    let cursors = [
        db.list_conversations(&alice(), by_update).await.unwrap().next.unwrap(),
        db.list_conversations(&alice(), by_id).await.unwrap().next.unwrap(),
        db.load_display_messages(&alice(), id, messages).await.unwrap().next.unwrap(),
        db.search_messages(&alice(), "message", found).await.unwrap().next.unwrap(),
    ];
    for (n, cursor) in cursors.into_iter().enumerate() {
        let text = cursor.to_string();
        assert_eq!(text.parse::<Cursor>().unwrap(), cursor);
        assert_eq!(json!(cursor), json!(text));
        assert_eq!(serde_json::from_value::<Cursor>(json!(text)).unwrap(), cursor);
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{text}");
        for damaged in [&text[1..], &text[..text.len() - 1], &format!("{text}0"), &text.to_uppercase()] {
            assert!(matches!(damaged.parse::<Cursor>(), Err(Error::Invalid(_))), "{damaged}");
        }
        let accepted = [
            db.list_conversations(&alice(), by_update.after(cursor)).await.is_ok(),
            db.list_conversations(&alice(), by_id.after(cursor)).await.is_ok(),
            db.load_display_messages(&alice(), id, MessagePage::next(cursor)).await.is_ok(),
            db.search_messages(&alice(), "message", SearchPage::after(cursor)).await.is_ok(),
        ];
        assert_eq!(accepted, [n == 0, n == 1, n == 2, n == 3], "{text}");
    }
    let position: MessagePage = serde_json::from_value(json!({ "from": cursors[2] })).unwrap();
    assert_eq!(position, MessagePage::next(cursors[2]));
    for from in ["first", "last", "after:17", "before:-1"] {
        let page: MessagePage = serde_json::from_value(json!({ "from": from })).unwrap();
        assert_eq!(page.from.to_string(), from);
    }
    for from in ["", "FIRST", "after:", "before:x", "until:1", "é"] {
        assert!(matches!(from.parse::<MessagePosition>(), Err(Error::Invalid(_))), "{from}");
    }
}

#[tokio::test]
async fn json_has_no_owner_and_no_scope() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let result = NewDisplayMessage::tool_result("call_1", "no such file").error();
    let message = db.append_display_message(&alice(), id, result).await.unwrap();
    assert!(message.is_error);
    let conversation = db.get_conversation(&alice(), id).await.unwrap();
    for row in [json!(conversation), json!(message)] {
        assert_eq!(row.get("scope"), None);
{%- if let Some(owner) = owner %}
        assert_eq!(row.get({{ owner.column }}), None);
{%- endif %}
    }
    assert_eq!(json!(message)["is_error"], true);
    let page = Page {
        items: vec![message.clone()],
        next: None,
    };
    assert_eq!(json!(page), json!({ "items": [message], "next": null }));
}

#[tokio::test]
async fn a_caller_may_be_shared_or_of_a_type_that_is_not_known() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let shared = std::sync::Arc::new(alice());
    let unknown: std::sync::Arc<dyn OwnerScope> = shared.clone();
    let expected = db.get_conversation(&alice(), id).await.unwrap();
    assert_eq!(db.get_conversation(&shared, id).await.unwrap(), expected);
    assert_eq!(db.get_conversation(&unknown, id).await.unwrap(), expected);
    assert_eq!(db.get_conversation(&*unknown, id).await.unwrap(), expected);
    assert_eq!(db.get_conversation(&&*unknown, id).await.unwrap(), expected);
    assert_eq!(unknown.reach().unwrap(), alice().reach().unwrap());
}

#[test]
fn an_error_has_a_status_code() {
    let broken = ReadError::FutureVersion { version: 9 };
    for (error, code) in [
        (Error::NotFound, 404),
        (Error::NoOwner, 403),
        (Error::Conflict { current: Revision(1) }, 409),
        (Error::SeveralOwners, 409),
        (Error::Invalid(String::new()), 422),
        (Error::DeserializationFailed(broken), 500),
        (Error::Database(sqlx::Error::PoolTimedOut), 503),
        (Error::Database(sqlx::Error::PoolClosed), 500),
    ] {
        assert_eq!(error.status_code(), code, "{error}");
    }
}

#[tokio::test]
async fn numbers_in_metadata_are_returned_as_they_are_read_later() {
    let db = Database::new().await;
    let numbers = json!([-0.0, 1e16, -1e16, 1e300, 5e-324, 0.1, u64::MAX, i64::MIN]);
    let new = NewConversation::new().metadata(object(json!({ "numbers": numbers })));
    let created = db.create_conversation(&alice(), new).await.unwrap();
    let numbers = &created.metadata["numbers"];
    let whole = 10_000_000_000_000_000_i64;
    assert_eq!(numbers, &json!([0.0, whole, -whole, 1e300, 5e-324, 0.1, u64::MAX, i64::MIN]));
    assert!(numbers[0].as_f64().unwrap().is_sign_positive());
    assert_eq!(db.get_conversation(&alice(), created.id).await.unwrap(), created);
}
