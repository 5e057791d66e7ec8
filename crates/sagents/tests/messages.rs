//! Display messages: order, pages, drafts, and a host's own columns.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use sagents::sqlx::{self, FromRow, Row as _};
use sagents::{
    Content, ContentPart, Delivery, DisplayMessage, Error, Key, Message, MessagePage, NewDisplayMessage, OwnerColumn,
    Role, Tables, TokenUsage, ToolCall,
};
use serde_json::json;
use support::fixture::{Fixture, KINDS, object, sequences};
use support::{Kind, TABLES, TestDatabase};
use tokio::task::JoinSet;
use uuid::Uuid;

on_both_databases!(
    messages_are_paged_in_both_directions,
    sequences_go_on_after_a_clear,
    an_append_is_idempotent,
    a_stranger_reaches_no_message,
    concurrent_writers_leave_no_gap,
    a_whole_message_replaces_its_drafts,
    a_draft_can_lose_items,
    a_removal_beside_finished_rows_is_announced,
    racing_drafts_never_replace_the_whole_message,
    writers_notice_a_deleted_conversation,
    a_hosts_own_columns_are_decoded_and_kept,
);

fn text(role: Role, text: impl Into<String>) -> NewDisplayMessage {
    NewDisplayMessage::text(role, text)
}

fn parts(texts: &[&str]) -> Message {
    let parts = texts.iter().map(|text| ContentPart::text(*text)).collect();
    Message::new(Role::Assistant, Some(Content::Parts(parts)))
}

/// An answer that is displayed as two items.
fn answer_with_call() -> Message {
    let mut message = Message::assistant("hi");
    message.tool_calls = vec![ToolCall::new("c", "search", json!({}))];
    message
}

async fn messages_are_paged_in_both_directions(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id) = (&db.alice, db.conversation().await);
        let empty = db.load_display_messages(alice, id, MessagePage::last()).await.unwrap();
        assert_eq!((empty.items.len(), empty.next), (0, None));
        for n in 0..5 {
            let appended = db.append_display_message(alice, id, text(Role::User, format!("m{n}"))).await.unwrap();
            assert_eq!(appended.sequence, n);
        }
        for (page, expected) in [
            (MessagePage::first().limit(2), vec![0, 1]),
            (MessagePage::after(1).limit(2), vec![2, 3]),
            (MessagePage::last().limit(2), vec![3, 4]),
            (MessagePage::before(3).limit(2), vec![1, 2]),
            (MessagePage::after(4), vec![]),
            (MessagePage::first(), vec![0, 1, 2, 3, 4]),
        ] {
            let loaded = db.load_display_messages(alice, id, page).await.unwrap();
            assert_eq!(sequences(&loaded.items), expected);
        }
        for (start, expected) in [
            (MessagePage::first(), [vec![0, 1], vec![2, 3], vec![4]]),
            (MessagePage::last(), [vec![3, 4], vec![1, 2], vec![0]]),
        ] {
            let (mut request, mut pages) = (start.limit(2), Vec::new());
            loop {
                let page = db.load_display_messages(alice, id, request).await.unwrap();
                pages.push(sequences(&page.items));
                let Some(next) = page.next else { break };
                request = MessagePage::next(next).limit(2);
            }
            assert_eq!(pages, expected);
        }
        assert_invalid!(db.load_display_messages(alice, id, MessagePage::first().limit(0)));
    }
}

async fn sequences_go_on_after_a_clear(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id) = (&db.alice, db.conversation().await);
        for n in 0..5 {
            db.append_display_message(alice, id, text(Role::User, format!("m{n}"))).await.unwrap();
        }
        assert_eq!(db.clear_display_messages(alice, id).await.unwrap(), 5);
        assert_eq!(db.counter(id, "last_removal").await, 6);
        assert_eq!(db.clear_display_messages(alice, id).await.unwrap(), 0);
        let again = db.append_display_message(alice, id, text(Role::User, "again")).await.unwrap();
        assert_eq!(again.sequence, 5);
    }
}

async fn an_append_is_idempotent(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id) = (&db.alice, db.conversation().await);
        let metadata = object(json!({"tokens": 3, "x": 1.5e300, "y": -0.0, "z": u64::MAX}));
        let new = text(Role::Assistant, "nul\0byte").metadata(metadata);
        let first = db.append_display_message(alice, id, new.clone()).await.unwrap();
        assert_eq!(first.content, "nul\u{FFFD}byte");
        let (updated, change) = (db.updated(id).await, db.counter(id, "last_change").await);
        assert_eq!(db.append_display_message(alice, id, new.clone()).await.unwrap(), first);
        assert_eq!((db.updated(id).await, db.counter(id, "last_change").await), (updated, change));

        let other_item = NewDisplayMessage { item: 3, ..new.clone() };
        let second = db.append_display_message(alice, id, other_item).await.unwrap();
        assert_eq!((second.sequence, second.item), (first.sequence + 1, 3));
        assert_eq!(db.counter(id, "next_sequence").await, second.sequence + 1);
        assert_invalid!(db.append_display_message(alice, id, NewDisplayMessage { item: -1, ..new }));
    }
}

async fn a_stranger_reaches_no_message(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let id = db.conversation().await;
        db.append_display_message(&db.alice, id, text(Role::User, "mine")).await.unwrap();
        let mut strangers = vec![(&db.alice, Uuid::now_v7())];
        if db.has_owners() {
            strangers.push((&db.bob, id));
        }
        for (owner, id) in strangers {
            let message = Uuid::now_v7();
            assert_not_found!(db.append_display_message(owner, id, text(Role::User, "x")));
            assert_not_found!(db.clear_display_messages(owner, id));
            assert_not_found!(db.load_display_messages(owner, id, MessagePage::first()));
            assert_not_found!(db.save_message(owner, id, message, &Message::user("x")));
            assert_not_found!(db.save_message(owner, id, message, &Message::assistant("")));
            assert_not_found!(db.save_draft(owner, id, message, &Message::assistant("x")));
            assert_not_found!(db.touch_display_messages(owner, id, &[0]));
            assert_not_found!(db.usage(owner, id));
            assert_not_found!(db.get_tool_call(owner, id, "x"));
        }
        assert_eq!(db.shown(id).await.len(), 1);
    }
}

async fn concurrent_writers_leave_no_gap(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    let (shared, shared_message) = (text(Role::System, "once"), Uuid::now_v7());
    let mut writers = JoinSet::new();
    for writer in 0..16 {
        let (db, shared) = (db.clone(), shared.clone());
        writers.spawn(async move {
            let alice = &db.alice;
            let said = db.append_display_message(alice, id, shared).await.unwrap().sequence;
            let saved = db.save_message(alice, id, shared_message, &answer_with_call()).await.unwrap();
            assert_eq!(saved.len(), 2);
            for n in 0..2 {
                let own = text(Role::User, format!("{writer} {n}"));
                db.append_display_message(alice, id, own).await.unwrap();
                let rows = db.save_message(alice, id, Uuid::now_v7(), &answer_with_call()).await.unwrap();
                assert_eq!(rows.len(), 2);
                let message = Uuid::now_v7();
                let draft = db.save_draft(alice, id, message, &Message::assistant("d")).await.unwrap();
                assert_eq!(draft.len(), 1);
                assert_eq!(db.save_message(alice, id, message, &answer_with_call()).await.unwrap().len(), 2);
                let counted = Message::user("u").with_usage("m", TokenUsage::new(1, 1));
                db.save_message(alice, id, Uuid::now_v7(), &counted).await.unwrap();
            }
            (said, sequences(&saved))
        });
    }
    let said: BTreeSet<_> = writers.join_all().await.into_iter().collect();
    assert_eq!(said.len(), 1);
    let shown = db.shown(id).await;
    let expected = 1 + 2 + 16 * 2 * (1 + 2 + 2 + 1);
    assert_eq!(sequences(&shown), (0..expected).collect::<Vec<_>>());
    assert!(shown.windows(2).all(|pair| pair[0].inserted_at <= pair[1].inserted_at));
    assert_eq!(db.counter(id, "next_sequence").await, expected);
    assert!(shown.iter().all(|row| row.delivery == Delivery::Stored && row.changed > 0));
    assert_eq!(db.usage(&db.alice, id).await.unwrap().models[0].messages, 32);
}

async fn a_whole_message_replaces_its_drafts(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id, message) = (&db.alice, db.conversation().await, Uuid::now_v7());
        let first = db.save_draft(alice, id, message, &Message::assistant("To")).await.unwrap().remove(0);
        assert_eq!((first.content.as_str(), first.delivery), ("To", Delivery::Draft));
        assert_eq!((first.changed, first.sequence), (1, 0));
        let second = db.save_draft(alice, id, message, &Message::assistant("To the")).await.unwrap().remove(0);
        assert_eq!((second.content.as_str(), second.delivery), ("To the", Delivery::Draft));
        assert_eq!((second.changed, second.sequence, second.inserted_at), (2, 0, first.inserted_at));

        let mut whole = Message::assistant("To the sea.").with_usage("small", TokenUsage::new(9, 1));
        whole.tool_calls = vec![ToolCall::new("call_1", "search", json!({}))];
        let stored = db.save_message(alice, id, message, &whole).await.unwrap();
        let facts = |row: &DisplayMessage| (row.sequence, row.item, row.content.clone(), row.delivery, row.changed);
        assert_eq!(
            stored.iter().map(facts).collect::<Vec<_>>(),
            [(0, 0, "To the sea.".into(), Delivery::Stored, 3), (1, 1, "search".into(), Delivery::Stored, 3)]
        );
        assert_eq!(db.save_message(alice, id, message, &whole).await.unwrap(), stored);
        let late = db.save_draft(alice, id, message, &Message::assistant("To")).await.unwrap();
        assert_eq!(late, stored);
        assert_eq!(db.counter(id, "last_change").await, 3);
        assert_eq!(db.counter(id, "last_removal").await, 0);
        assert_eq!(db.usage(alice, id).await.unwrap().total(), TokenUsage::new(9, 1));

        whole.tool_calls.push(ToolCall::new("call_2", "fetch", json!({})));
        let gained = db.save_message(alice, id, message, &whole).await.unwrap();
        assert_eq!((gained.len(), &gained[..2], gained[2].sequence), (3, &stored[..], 2));
        assert_eq!(db.save_message(alice, id, Uuid::now_v7(), &Message::assistant("")).await.unwrap(), []);
    }
}

async fn a_draft_can_lose_items(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id, message) = (&db.alice, db.conversation().await, Uuid::now_v7());
        let first = db.append_display_message(alice, id, text(Role::User, "hello")).await.unwrap();
        let draft = db.save_draft(alice, id, message, &parts(&["a", "b", "c"])).await.unwrap();
        assert_eq!(sequences(&draft), [1, 2, 3]);
        let change = db.counter(id, "last_change").await;
        let draft = db.save_draft(alice, id, message, &parts(&["a2", "b2"])).await.unwrap();
        let facts = |row: &DisplayMessage| (row.sequence, row.content.clone(), row.changed);
        assert_eq!(
            draft.iter().map(facts).collect::<Vec<_>>(),
            [(1, "a2".into(), change + 1), (2, "b2".into(), change + 1)]
        );
        assert_eq!(db.counter(id, "last_removal").await, change + 1);

        // All items go: the last row that stays is touched, so that readers notice.
        assert_eq!(db.save_draft(alice, id, message, &parts(&[])).await.unwrap(), []);
        assert_eq!(db.counter(id, "last_removal").await, change + 2);
        let shown = db.shown(id).await;
        assert_eq!(sequences(&shown), [first.sequence]);
        assert_eq!(shown[0].changed, change + 2);

        let draft = db.save_draft(alice, id, message, &parts(&["x", "y"])).await.unwrap();
        assert_eq!(sequences(&draft), [4, 5], "the sequences of deleted drafts aren't reused");

        // Readers drop the drafts of a message that is stored, without a removal.
        let removal = db.counter(id, "last_removal").await;
        let whole = db.save_message(alice, id, message, &parts(&["x!"])).await.unwrap();
        let whole: Vec<_> = whole.iter().map(|row| (row.sequence, row.delivery)).collect();
        assert_eq!(whole, [(4, Delivery::Stored)]);
        assert_eq!(db.counter(id, "last_removal").await, removal);
    }
}

async fn a_removal_beside_finished_rows_is_announced(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id, message) = (&db.alice, db.conversation().await, Uuid::now_v7());
        db.save_draft(alice, id, message, &parts(&["p", "q"])).await.unwrap();
        let (table, literal) = (db.table("display_messages"), db.pool.uuid(message));
        let finish = format!("UPDATE {table} SET delivery = NULL WHERE message_id = {literal} AND item = 0");
        db.pool.execute(finish).await;
        let whole = db.save_message(alice, id, message, &parts(&["P"])).await.unwrap();
        let items: Vec<_> = whole.iter().map(|row| (row.item, row.content.as_str())).collect();
        assert_eq!(items, [(0, "p")]);
        assert_eq!(whole[0].changed, db.counter(id, "last_change").await, "the message's own row is touched");
        assert_eq!(db.shown(id).await.last().unwrap(), &whole[0]);
    }
}

async fn racing_drafts_never_replace_the_whole_message(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    for _ in 0..10 {
        let message = Uuid::now_v7();
        let mut writers = JoinSet::new();
        for n in 0..8 {
            let db = db.clone();
            writers.spawn(async move {
                let alice = &db.alice;
                if n == 5 {
                    db.save_message(alice, id, message, &Message::assistant("whole")).await.unwrap()
                } else {
                    db.save_draft(alice, id, message, &Message::assistant(format!("draft {n}"))).await.unwrap()
                }
            });
        }
        writers.join_all().await;
        let shown = db.shown(id).await;
        let rows: Vec<_> = shown.iter().filter(|row| row.message_id == message).collect();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].content.as_str(), rows[0].delivery), ("whole", Delivery::Stored));
        assert!(rows[0].changed <= db.counter(id, "last_change").await);
    }
}

async fn writers_notice_a_deleted_conversation(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    let mut writers = JoinSet::new();
    for writer in 0..3 {
        let (db, known) = (db.clone(), Uuid::now_v7());
        writers.spawn(async move {
            for written in 0.. {
                let message = Message::assistant(written.to_string());
                let counted = message.clone().with_usage("m", TokenUsage::new(1, 1));
                let saved = match writer {
                    0 => db.save_message(&db.alice, id, Uuid::now_v7(), &counted).await,
                    1 => db.save_draft(&db.alice, id, known, &message).await,
                    _ => db.save_message(&db.alice, id, known, &counted).await,
                };
                match saved {
                    Ok(_) => {}
                    Err(Error::NotFound) => return written,
                    Err(error) => panic!("{error:?}"),
                }
            }
            unreachable!("the conversation is deleted")
        });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    db.delete_conversation(&db.alice, id).await.unwrap();
    let written = writers.join_all().await;
    assert!(written.iter().all(|written| *written > 0), "{written:?}");
}

/// A host's own display message, with a column of its own.
#[derive(Debug, PartialEq)]
struct OwnMessage {
    sequence: i64,
    content: String,
    starred: Option<i32>,
    delivery: Option<String>,
}

macro_rules! from_row {
    ($row:ty) => {
        impl FromRow<'_, $row> for OwnMessage {
            fn from_row(row: &$row) -> sqlx::Result<Self> {
                let _: Key = row.try_get("user_id")?;
                Ok(Self {
                    sequence: row.try_get("sequence")?,
                    content: row.try_get("content")?,
                    starred: row.try_get("starred")?,
                    delivery: row.try_get("delivery")?,
                })
            }
        }
    };
}
from_row!(sqlx::sqlite::SqliteRow);
from_row!(sqlx::postgres::PgRow);

const STARRED: Tables = Tables::new(1, "sagents_", OwnerColumn::integer("user_id")).display_message_columns(&[
    "user_id",
    "conversation_id",
    "sequence",
    "message_id",
    "item",
    "role",
    "content_type",
    "content",
    "metadata",
    "tool_call_id",
    "status",
    "inserted_at",
    "changed",
    "delivery",
    "starred",
]);

/// The typed calls, which differ between the databases in the type of their rows.
macro_rules! decode_starred {
    ($db:expr, $store:expr) => {{
        let (db, store) = (&$db, $store);
        let (alice, id) = (&db.alice, db.conversation().await);
        let first: OwnMessage = store.append_display_message(alice, id, text(Role::User, "one")).await.unwrap();
        assert_eq!(first, OwnMessage { sequence: 0, content: "one".into(), starred: None, delivery: None });
        let message = Uuid::now_v7();
        store.save_draft(alice, id, message, &Message::assistant("tw")).await.unwrap();
        let saved = store.save_message::<OwnMessage>(alice, id, message, &Message::assistant("two")).await.unwrap();
        assert_eq!(saved[0].content, "two");

        db.pool.execute("UPDATE sagents_display_messages SET starred = 5").await;
        let (change, updated) = (db.counter(id, "last_change").await, db.updated(id).await);
        assert_eq!(store.touch_display_messages(alice, id, &[0, 1, 77]).await.unwrap(), 2);
        assert_eq!(store.touch_display_messages(alice, id, &[77]).await.unwrap(), 0);
        assert_eq!(store.touch_display_messages(alice, id, &[]).await.unwrap(), 0);
        assert_eq!((db.counter(id, "last_change").await, db.updated(id).await), (change + 1, updated));

        let last = MessagePage::last().limit(1);
        let page = store.load_display_messages::<OwnMessage>(alice, id, last).await.unwrap();
        let rows: Vec<_> = page.items.iter().map(|row| (row.sequence, row.starred)).collect();
        assert_eq!(rows, [(1, Some(5))]);
        let next = MessagePage::next(page.next.unwrap());
        let page = store.load_display_messages::<DisplayMessage>(alice, id, next).await.unwrap();
        let rows: Vec<_> = page.items.iter().map(|row| (row.sequence, row.changed)).collect();
        assert_eq!(rows, [(0, change + 1)]);
        let empty = store.load_display_messages::<OwnMessage>(alice, db.conversation().await, last).await.unwrap();
        assert_eq!(empty.items.len(), 0);
        assert_not_found!(store.load_display_messages::<OwnMessage>(alice, Uuid::now_v7(), last));

        // They stay when a draft is replaced.
        let message = Uuid::now_v7();
        store.save_draft(alice, id, message, &Message::assistant("dr")).await.unwrap();
        db.pool.execute("UPDATE sagents_display_messages SET starred = 9 WHERE delivery = 'draft'").await;
        let whole = Message::assistant("draft");
        let saved = store.save_message::<OwnMessage>(alice, id, message, &whole).await.unwrap();
        assert_eq!((saved[0].content.as_str(), saved[0].starred), ("draft", Some(9)));
        drop(assert_send(store.save_message::<OwnMessage>(alice, id, message, &whole)));
        drop(assert_send(store.load_display_messages::<OwnMessage>(alice, id, last)));
    }};
}

async fn a_hosts_own_columns_are_decoded_and_kept(database: &TestDatabase) {
    let db = Fixture::new(database, STARRED).await;
    db.pool.execute("ALTER TABLE sagents_display_messages ADD COLUMN starred INTEGER").await;
    match database.kind {
        Kind::Sqlite => decode_starred!(db, database.sqlite(&STARRED).await),
        Kind::Postgres => decode_starred!(db, database.postgres(&STARRED).await),
    }
}

fn assert_send<T: Send>(value: T) -> T {
    value
}
