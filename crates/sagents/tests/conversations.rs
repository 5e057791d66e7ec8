//! Conversations: changes, lists and their pages, and deletion by age.

mod support;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sagents::{
    ChangeCursor, ConversationChanges, ConversationOrder, Error, Expired, Key, ListConversations, MessagePage,
    NewDisplayMessage, Owner, OwnerScope, Reach, Role, RunUpdate, Timestamp,
};
use serde_json::{Map, json};
use support::context::{Conversations, NewConversation};
use support::fixture::{Fixture, GROUP, KINDS, object};
use support::{TABLES, TestDatabase};
use tokio::task::JoinSet;
use uuid::Uuid;

on_both_databases!(
    a_conversation_is_created_once,
    changes_apply_only_to_their_fields,
    a_stranger_reaches_no_conversation,
    concurrent_creates_of_one_id_agree,
    concurrent_updates_all_succeed,
    pages_have_every_conversation_in_order,
    a_group_lists_what_its_members_have,
    a_forged_copy_of_a_members_conversation_is_a_conflict_for_the_group,
    a_caller_who_reads_as_a_group_writes_as_its_owner_only,
    pages_miss_and_repeat_nothing_beside_writers,
    conversations_are_deleted_by_age_across_owners,
);

async fn say(db: &Fixture, owner: &Owner, id: Uuid, text: &str) {
    db.append_display_message(owner, id, NewDisplayMessage::text(Role::User, text)).await.unwrap();
}

fn archived(archived: bool) -> ConversationChanges {
    ConversationChanges::default().archived(archived)
}

async fn a_conversation_is_created_once(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let metadata = object(json!({"color": "blue", "n": -0.0}));
        let new = NewConversation::new().title("Pl\0ans").metadata(metadata);
        let created = db.create_conversation(&db.alice, new.clone()).await.unwrap();
        assert_eq!(created.title.as_deref(), Some("Pl\u{FFFD}ans"));
        assert_eq!(created.scope, db.alice.to_json());
        assert_eq!(db.create_conversation(&db.alice, new.clone()).await.unwrap(), created);
        assert_eq!(db.get_conversation(&db.alice, new.id).await.unwrap(), created);
    }
}

async fn changes_apply_only_to_their_fields(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let alice = &db.alice;
        let new = NewConversation::new().title("Plans").metadata(object(json!({"color": "blue"})));
        let created = db.create_conversation(alice, new).await.unwrap();
        let id = created.id;
        let other = ConversationChanges::default().title("Other");
        let renamed = db.update_conversation(alice, id, other).await.unwrap();
        assert_eq!((renamed.title.as_deref(), &renamed.metadata), (Some("Other"), &created.metadata));
        assert!(renamed.updated_at > created.updated_at);

        let stored = db.update_conversation(alice, id, archived(true)).await.unwrap();
        assert_eq!(stored.updated_at, renamed.updated_at);
        assert!(stored.archived_at.is_some());
        assert_eq!(db.update_conversation(alice, id, archived(true)).await.unwrap(), stored);
        let none = ConversationChanges::default();
        assert_eq!(db.update_conversation(alice, id, none).await.unwrap(), stored);
        let cleared = archived(false).clear_title().metadata(Map::new());
        let cleared = db.update_conversation(alice, id, cleared).await.unwrap();
        assert_eq!((cleared.title, cleared.metadata, cleared.archived_at), (None, Map::new(), None));

        say(&db, alice, id, "x").await;
        db.delete_conversation(alice, id).await.unwrap();
        assert_not_found!(db.delete_conversation(alice, id));
        let messages = db.table("display_messages");
        assert_eq!(db.pool.number(format!("SELECT count(*) FROM {messages}")).await, 0);
    }
}

async fn a_stranger_reaches_no_conversation(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let id = db.conversation().await;
        let mut strangers = vec![(&db.alice, Uuid::now_v7())];
        if db.has_owners() {
            strangers.push((&db.bob, id));
        }
        for (owner, id) in strangers {
            assert_not_found!(db.get_conversation(owner, id));
            assert_not_found!(db.update_conversation(owner, id, ConversationChanges::default()));
            assert_not_found!(db.update_conversation(owner, id, archived(true)));
            assert_not_found!(db.delete_conversation(owner, id));
        }
        db.get_conversation(&db.alice, id).await.unwrap();
    }
}

async fn concurrent_creates_of_one_id_agree(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let new = NewConversation::new();
    let mut callers = JoinSet::new();
    for n in 0..30 {
        let (db, new) = (db.clone(), new.clone().title(n.to_string()));
        callers.spawn(async move { db.create_conversation(&db.alice, new).await.unwrap() });
    }
    let created = callers.join_all().await;
    assert!(created.iter().all(|conversation| *conversation == created[0]));
}

async fn concurrent_updates_all_succeed(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    let mut callers = JoinSet::new();
    for n in 0..50 {
        let db = db.clone();
        let changes = ConversationChanges::default().title(n.to_string());
        callers.spawn(async move { db.update_conversation(&db.alice, id, changes).await.unwrap() });
    }
    let titles: BTreeSet<_> = callers.join_all().await.into_iter().map(|updated| updated.title).collect();
    assert_eq!(titles.len(), 50);
}

/// The ids on all pages. Cursors go through their text, as in a URL.
async fn pages(store: &Conversations, scope: &impl OwnerScope, mut list: ListConversations) -> Vec<Uuid> {
    let mut seen = Vec::new();
    loop {
        let page = store.list_conversations(scope, list).await.unwrap();
        seen.extend(page.items.iter().map(|conversation| conversation.id));
        let Some(next) = page.next else { return seen };
        list = list.after(next.to_string().parse().unwrap());
    }
}

/// Lists in both orders, with pages of several sizes.
fn lists(archived: bool) -> impl Iterator<Item = (ConversationOrder, ListConversations)> {
    [ConversationOrder::Updated, ConversationOrder::Created].into_iter().flat_map(move |order| {
        let list = ListConversations::new().order_by(order).archived(archived);
        (1..8).map(move |limit| (order, list.limit(limit)))
    })
}

/// Conversations of three owners: some archived, some with later messages, and one id that all three use.
async fn create_many(db: &Fixture) -> (Vec<Uuid>, Uuid) {
    let mut created = Vec::new();
    for n in 0..23 {
        let owner = db.owner(1 + n % 3);
        let id = db.conversation_of(&owner).await;
        created.push((owner, id));
    }
    for (owner, id) in created.iter().step_by(4) {
        db.update_conversation(owner, *id, archived(true).title("t")).await.unwrap();
    }
    for (owner, id) in created.iter().skip(1).step_by(5) {
        say(db, owner, *id, "hello").await;
    }
    let twin = created[2].1;
    for owner in 1..=3 {
        db.create_conversation(&db.owner(owner), NewConversation::new().id(twin)).await.unwrap();
    }
    (created.into_iter().map(|(_, id)| id).collect(), twin)
}

async fn pages_have_every_conversation_in_order(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let _ = create_many(&db).await;
        let mut count = 0;
        for is_archived in [false, true] {
            for (order, list) in lists(is_archived) {
                for owner in 1..=3 {
                    let owner = db.owner(owner);
                    let all = db.list_conversations(&owner, list.limit(200)).await.unwrap().items;
                    let ids: Vec<_> = all.iter().map(|conversation| conversation.id).collect();
                    assert_eq!(pages(&db, &owner, list).await, ids, "{list:?}");
                    let mut expected = all.clone();
                    match order {
                        ConversationOrder::Updated => {
                            expected.sort_by_key(|conversation| Reverse((conversation.updated_at, conversation.id)));
                        }
                        ConversationOrder::Created => expected.sort_by_key(|conversation| Reverse(conversation.id)),
                    }
                    assert_eq!(all, expected);
                    assert!(all.iter().all(|conversation| conversation.archived_at.is_some() == is_archived));
                    count += all.len();
                }
            }
        }
        // With two orders and seven sizes of pages.
        assert_eq!(count, 14 * if db.has_owners() { 25 } else { 3 * 23 });
    }
}

async fn a_group_lists_what_its_members_have(database: &TestDatabase) {
    let db = Fixture::with_group(database, TABLES, 3).await;
    let (ids, twin) = create_many(&db).await;
    let stranger = db.conversation_of(&db.owner(4)).await;
    let (group, other) = (Reach::Group(Key::Integer(GROUP)), Reach::Group(Key::Integer(GROUP + 1)));
    for is_archived in [false, true] {
        for (_, list) in lists(is_archived) {
            let got = pages(&db, &group, list).await;
            let all = db.list_conversations(&group, list.limit(200)).await.unwrap().items;
            assert_eq!(got, all.iter().map(|conversation| conversation.id).collect::<Vec<_>>(), "{list:?}");
            assert_eq!(got.len(), if is_archived { 6 } else { 19 });
            if !is_archived {
                assert_eq!(got.iter().filter(|id| **id == twin).count(), 3);
            }
        }
    }
    let ambiguous = db.get_conversation(&group, twin).await;
    assert!(matches!(ambiguous, Err(Error::Ambiguous)), "{ambiguous:?}");
    assert_eq!(db.get_conversation(&group, ids[0]).await.unwrap().id, ids[0]);
    assert_not_found!(db.get_conversation(&group, stranger));
    assert_not_found!(db.get_conversation(&other, ids[0]));
    assert_eq!(pages(&db, &other, ListConversations::new()).await, Vec::<Uuid>::new());
}

async fn pages_miss_and_repeat_nothing_beside_writers(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    for _ in 0..300 {
        db.conversation().await;
    }
    let by_creation = ListConversations::new().order_by(ConversationOrder::Created).limit(7);
    let all = pages(&db, &db.alice, by_creation.limit(200)).await;
    let (doomed, stable): (Vec<_>, Vec<_>) = all.into_iter().partition(|id| id.as_u128() % 3 == 0);
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (db, stop, stable) = (db.clone(), Arc::clone(&stop), stable.clone());
        async move {
            let mut doomed = doomed.into_iter();
            let mut updated = stable.iter().cycle();
            while !stop.load(Ordering::SeqCst) {
                if let Some(id) = doomed.next() {
                    db.delete_conversation(&db.alice, id).await.unwrap();
                }
                db.conversation().await;
                let changes = ConversationChanges::default().title("x");
                db.update_conversation(&db.alice, *updated.next().unwrap(), changes).await.unwrap();
            }
        }
    });
    let stable: BTreeSet<_> = stable.into_iter().collect();
    for _ in 0..5 {
        let got = pages(&db, &db.alice, by_creation).await;
        let set: BTreeSet<_> = got.iter().copied().collect();
        assert_eq!(set.len(), got.len(), "duplicates");
        assert!(stable.is_subset(&set), "gaps");
        // An updated conversation moves before the page, and never behind it.
        let got = pages(&db, &db.alice, ListConversations::new().limit(7)).await;
        let set: BTreeSet<_> = got.iter().copied().collect();
        assert_eq!(set.len(), got.len(), "duplicates by update");
    }
    stop.store(true, Ordering::SeqCst);
    writer.await.unwrap();
}

async fn conversations_are_deleted_by_age_across_owners(database: &TestDatabase) {
    // More than a statement deletes at once, so that it has to go on behind a key of each kind.
    const COUNT: usize = 1200;

    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let mut created = Vec::new();
        for n in 0..COUNT {
            let owner = db.owner(1 + u8::try_from(n % 7).unwrap());
            let id = db.conversation_of(&owner).await;
            created.push((owner, id));
        }
        for (owner, id) in created.iter().take(100) {
            say(&db, owner, *id, "text").await;
        }
        for (owner, id) in created.iter().skip(50).step_by(10) {
            db.update_conversation(owner, *id, archived(true)).await.unwrap();
        }
        let (owner, id) = &created[COUNT - 200];
        let cutoff = db.get_conversation(owner, *id).await.unwrap().updated_at;
        let (mut old, mut put_away) = (BTreeSet::new(), BTreeSet::new());
        for (owner, id) in &created {
            let conversation = db.get_conversation(owner, *id).await.unwrap();
            if conversation.archived_at.is_some() {
                put_away.insert(*id);
            } else if conversation.updated_at < cutoff {
                old.insert(*id);
            }
        }
        let deleted = db.delete_conversations(Expired::ArchivedBefore(Timestamp::now())).await.unwrap();
        assert_eq!(deleted, put_away.len() as u64);
        let (one, other) = tokio::join!(
            db.delete_conversations(Expired::UpdatedBefore(cutoff)),
            db.delete_conversations(Expired::UpdatedBefore(cutoff))
        );
        assert_eq!(one.unwrap() + other.unwrap(), old.len() as u64);
        for (owner, id) in &created {
            let exists = db.get_conversation(owner, *id).await.is_ok();
            assert_eq!(exists, !old.contains(id) && !put_away.contains(id));
        }
        assert_eq!(db.delete_conversations(Expired::UpdatedBefore(cutoff)).await.unwrap(), 0);
        assert_eq!(db.delete_conversations(Expired::UpdatedBefore(Timestamp::MIN)).await.unwrap(), 0);
    }
}

async fn a_forged_copy_of_a_members_conversation_is_a_conflict_for_the_group(database: &TestDatabase) {
    let db = Fixture::with_group(database, TABLES, 2).await;
    let group = Reach::Group(Key::Integer(GROUP));
    let real = db.conversation().await;
    say(&db, &db.alice, real, "the real one").await;
    // Bob's file says that his is older.
    let own = db.conversation_of(&db.bob).await;
    say(&db, &db.bob, own, "the forged one").await;
    let mut forged = db.export_conversation(&db.bob, own).await.unwrap();
    forged.conversation.id = real;
    forged.conversation.inserted_at = "1999-01-01T00:00:00Z".parse().unwrap();
    // The file of somebody outside the group changes nothing.
    assert!(db.import_conversation(&db.owner(3), forged.clone()).await.unwrap().created);
    assert_eq!(db.get_conversation(&group, real).await.unwrap(), db.get_conversation(&db.alice, real).await.unwrap());
    let mut watch = db.watch(&group, real, ChangeCursor::START).unwrap();
    assert_eq!(watch.next().await.unwrap().items[0].content, "the real one");
    assert!(db.import_conversation(&db.bob, forged).await.unwrap().created);

    macro_rules! assert_ambiguous {
        ($call:expr) => {{
            let error = $call.await.unwrap_err();
            assert!(matches!(error, Error::Ambiguous) && error.status_code() == 409, "{error:?}");
        }};
    }
    assert_ambiguous!(db.get_conversation(&group, real));
    assert_ambiguous!(db.load_display_messages(&group, real, MessagePage::first()));
    assert_ambiguous!(db.load_agent_state(&group, real));
    assert_ambiguous!(db.load_todos(&group, real));
    assert_ambiguous!(db.changes(&group, real, ChangeCursor::START, 10));
    assert_ambiguous!(db.get_run(&group, real));
    assert_ambiguous!(db.usage(&group, real));
    assert_ambiguous!(watch.next());
    assert_ambiguous!(db.get_tool_call(&group, real, "call"));
    assert_ambiguous!(db.list_unreadable_states(&group, real));
    assert_ambiguous!(db.load_unreadable_state(&group, real, 0));
    assert_ambiguous!(db.export_conversation(&group, real));
    let mut file = Vec::new();
    assert_ambiguous!(db.export_conversation_to(&group, real, &mut file));
    assert_eq!(file, b"");
    // Everybody reads their own, and the group reads it again without the forged one.
    for (owner, text) in [(&db.alice, "the real one"), (&db.bob, "the forged one")] {
        let page = db.load_display_messages(owner, real, MessagePage::first()).await.unwrap();
        assert_eq!(page.items[0].content, text);
    }
    db.delete_conversation(&db.bob, real).await.unwrap();
    let page = db.load_display_messages(&group, real, MessagePage::first()).await.unwrap();
    assert_eq!(page.items[0].content, "the real one");
}

async fn a_caller_who_reads_as_a_group_writes_as_its_owner_only(database: &TestDatabase) {
    /// Writes as an owner, and reads what the whole group has.
    struct Leader(Owner);

    impl OwnerScope for Leader {
        fn owner(&self) -> sagents::Result<Owner> {
            Ok(self.0.clone())
        }

        fn group(&self) -> sagents::Result<Key> {
            Ok(Key::Integer(GROUP))
        }

        fn reach(&self) -> sagents::Result<Reach> {
            self.group().map(Reach::Group)
        }
    }

    let db = Fixture::with_group(database, TABLES, 2).await;
    let (leader, id) = (Leader(db.bob.clone()), db.conversation().await);
    assert_eq!(db.get_run(&leader, id).await.unwrap(), None);
    assert_not_found!(db.request_cancel(&leader, id));
    assert_not_found!(db.update_run(&leader, id, Uuid::now_v7(), RunUpdate::Renew));
    assert!(!db.request_cancel(&db.alice, id).await.unwrap());
    let export = db.export_conversation(&leader, id).await.unwrap();
    for created in [true, false] {
        let imported = db.import_conversation(&leader, export.clone()).await.unwrap();
        assert_eq!((imported.created, imported.conversation.scope), (created, db.bob.to_json()));
    }
}
