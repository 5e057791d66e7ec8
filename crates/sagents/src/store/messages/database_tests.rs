//! What sessions store about messages that aren't saved yet.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::support::TestDatabase;
use crate::support::fixture::{Fixture, KINDS};
use crate::{Content, ContentPart, Delivery, Message, Role, assert_not_found, on_both_databases};

on_both_databases!(
    a_stored_message_is_settled_without_notice,
    a_message_is_settled_once,
    a_message_of_an_unknown_delivery_can_still_be_stored,
    a_stored_message_never_becomes_unknown,
    an_interrupted_draft_can_lose_items,
    a_stranger_settles_nothing,
);

fn parts(texts: &[&str]) -> Message {
    let parts = texts.iter().map(|text| ContentPart::text(*text)).collect();
    Message::new(Role::Assistant, Some(Content::Parts(parts)))
}

async fn display(db: &Fixture, id: Uuid, message: Uuid, delivery: Delivery) {
    let rows = db.save_items(&db.alice, id, message, &Message::assistant("hello"), delivery).await.unwrap();
    assert_eq!(rows[0].delivery, delivery);
}

async fn a_stored_message_is_settled_without_notice(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id, message) = (&db.alice, db.conversation().await, Uuid::now_v7());
        display(&db, id, message, Delivery::Unsaved).await;
        assert_eq!(db.unsettled_messages(alice, id).await.unwrap(), [(message, Delivery::Unsaved)]);
        let (before, updated) = (db.shown(id).await, db.updated(id).await);
        assert_eq!(db.settle_messages(alice, id, &[(message, Delivery::Stored)]).await.unwrap(), []);
        assert_eq!((db.counter(id, "last_change").await, db.updated(id).await), (1, updated));
        let after = db.shown(id).await;
        assert_eq!((after[0].delivery, after[0].changed), (Delivery::Stored, before[0].changed));
        assert_eq!(db.unsettled_messages(alice, id).await.unwrap(), []);
    }
}

async fn a_message_is_settled_once(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id) = (&db.alice, db.conversation().await);
        let [known, unknown, draft] = [(); 3].map(|()| Uuid::now_v7());
        display(&db, id, known, Delivery::Unsaved).await;
        display(&db, id, unknown, Delivery::Unsaved).await;
        display(&db, id, draft, Delivery::Draft).await;
        let unsettled = db.unsettled_messages(alice, id).await.unwrap();
        let unsettled: BTreeSet<_> = unsettled.into_iter().map(|(message, _)| message).collect();
        assert_eq!(unsettled, [known, unknown, draft].into());

        db.settle_messages(alice, id, &[(known, Delivery::Stored)]).await.unwrap();
        let outcomes = [
            (known, Delivery::Unknown),
            (unknown, Delivery::Unknown),
            (draft, Delivery::Interrupted),
            (Uuid::now_v7(), Delivery::Stored),
        ];
        let changed = db.settle_messages(alice, id, &outcomes).await.unwrap();
        let changed: Vec<_> = changed.iter().map(|row| (row.message_id, row.delivery, row.changed)).collect();
        assert_eq!(changed, [(unknown, Delivery::Unknown, 4), (draft, Delivery::Interrupted, 4)]);
        assert_eq!(db.unsettled_messages(alice, id).await.unwrap(), []);
        assert_eq!(db.settle_messages(alice, id, &[]).await.unwrap(), []);
        assert_eq!(db.settle_messages(alice, id, &[(unknown, Delivery::Unknown)]).await.unwrap(), []);
    }
}

async fn a_message_of_an_unknown_delivery_can_still_be_stored(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id) = (&db.alice, db.conversation().await);
        let [unknown, unsaved] = [(); 2].map(|()| Uuid::now_v7());
        display(&db, id, unknown, Delivery::Unsaved).await;
        db.settle_messages(alice, id, &[(unknown, Delivery::Unknown)]).await.unwrap();
        let stored = db.save_message(alice, id, unknown, &Message::assistant("hello")).await.unwrap();
        assert_eq!((stored[0].delivery, stored[0].changed), (Delivery::Stored, 3));
        // Nobody has seen a difference for one that was unsaved.
        display(&db, id, unsaved, Delivery::Unsaved).await;
        let stored = db.save_message(alice, id, unsaved, &Message::assistant("hello")).await.unwrap();
        assert_eq!((stored[0].delivery, stored[0].changed), (Delivery::Stored, 4));
        assert_eq!(db.shown(id).await.last().unwrap(), &stored[0]);
    }
}

async fn a_stored_message_never_becomes_unknown(database: &TestDatabase) {
    let db = Fixture::new(database, KINDS[0]).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    for _ in 0..40 {
        let message = Uuid::now_v7();
        display(&db, id, message, Delivery::Unsaved).await;
        let (stored, unknown) = ([(message, Delivery::Stored)], [(message, Delivery::Unknown)]);
        let (stored, unknown) =
            tokio::join!(db.settle_messages(alice, id, &stored), db.settle_messages(alice, id, &unknown));
        let (stored, unknown) = (stored.unwrap(), unknown.unwrap());
        // Whoever was second: an unknown one becomes stored, which both announce.
        assert_eq!(db.shown(id).await.pop().unwrap().delivery, Delivery::Stored, "{stored:?} {unknown:?}");
        assert_eq!(stored.len(), unknown.len());
    }
}

async fn an_interrupted_draft_can_lose_items(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id, message) = (&db.alice, db.conversation().await, Uuid::now_v7());
        db.save_draft(alice, id, message, &parts(&["i", "j"])).await.unwrap();
        let settled = db.settle_messages(alice, id, &[(message, Delivery::Interrupted)]).await.unwrap();
        assert!(settled.iter().all(|row| row.delivery == Delivery::Interrupted) && settled.len() == 2);
        // Readers keep interrupted items, so they're told of the removal.
        let whole = db.save_message(alice, id, message, &parts(&["i!"])).await.unwrap();
        assert_eq!(whole.len(), 1);
        assert_eq!(db.counter(id, "last_removal").await, whole[0].changed);
    }
}

async fn a_stranger_settles_nothing(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (id, message) = (db.conversation().await, Uuid::now_v7());
        display(&db, id, message, Delivery::Unsaved).await;
        if db.has_owners() {
            let outcome = [(message, Delivery::Unknown)];
            assert_eq!(db.settle_messages(&db.bob, id, &outcome).await.unwrap(), []);
            let hello = Message::assistant("hello");
            assert_not_found!(db.save_items(&db.bob, id, message, &hello, Delivery::Unsaved));
        }
        assert_eq!(db.unsettled_messages(&db.alice, id).await.unwrap(), [(message, Delivery::Unsaved)]);
    }
}
