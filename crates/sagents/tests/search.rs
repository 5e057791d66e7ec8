//! Search in display messages.

mod support;

use std::time::Duration;

use sagents::{DisplayMessage, Key, NewDisplayMessage, Owner, OwnerScope, Reach, Role, SearchPage};
use serde_json::json;
use support::context::NewConversation;
use support::fixture::{Fixture, GROUP, KINDS, object};
use support::{TABLES, TestDatabase};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

on_both_databases!(
    words_and_phrases_are_found_in_any_case,
    punctuation_is_searched_as_it_is,
    arguments_of_tool_calls_are_found,
    titles_find_the_first_message,
    a_search_stays_with_its_scope,
    pages_have_every_hit_once,
    copies_of_one_conversation_are_all_found,
    long_searches_keep_nobody_from_working,
);

async fn say(db: &Fixture, owner: &Owner, id: Uuid, text: &str) {
    db.append_display_message(owner, id, NewDisplayMessage::text(Role::User, text)).await.unwrap();
}

async fn find(db: &Fixture, scope: &impl OwnerScope, text: &str) -> Vec<String> {
    let page = db.search_messages(scope, text, SearchPage::first()).await.unwrap();
    page.items.into_iter().map(|message| message.content).collect()
}

const POSTCARD: &str = "Please send a postcard to Lisbon";

async fn words_and_phrases_are_found_in_any_case(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (alice, id) = (&db.alice, db.conversation().await);
        for text in [POSTCARD, "ÉCOLE straße", "to", ""] {
            say(&db, alice, id, text).await;
        }
        for found in ["postcard lisbon", "LISBON pleas", "\"postcard to\""] {
            assert_eq!(find(&db, alice, found).await, [POSTCARD], "{found}");
        }
        for missing in ["\"postcard lisbon\"", "postcard porto", "école STRASSE"] {
            assert_eq!(find(&db, alice, missing).await, [""; 0], "{missing}");
        }
        assert_eq!(find(&db, alice, "école STRAß").await, ["ÉCOLE straße"]);
        assert_eq!(find(&db, alice, "").await.len(), 4);
        assert_invalid!(db.search_messages(alice, &"x".repeat(201), SearchPage::first()));
    }
}

async fn punctuation_is_searched_as_it_is(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    let text = "100% sure_thing \\ [x] *?";
    for text in [text, POSTCARD] {
        say(&db, alice, id, text).await;
    }
    for found in ["100%", "sure_thing", "\\", "[x]", "*?", "*", "%"] {
        assert_eq!(find(&db, alice, found).await, [text], "{found}");
    }
    assert_eq!(find(&db, alice, "sureXthing").await.len(), 0);
}

async fn arguments_of_tool_calls_are_found(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    let arguments = object(json!({"arguments": {"destination": "Porto"}}));
    let call = NewDisplayMessage::tool_call("call", "search_flights").metadata(arguments);
    db.append_display_message(alice, id, call).await.unwrap();
    db.append_display_message(alice, id, NewDisplayMessage::tool_call("call", "no arguments")).await.unwrap();
    for found in ["porto", "flights porto"] {
        assert_eq!(find(&db, alice, found).await, ["search_flights"], "{found}");
    }
}

async fn titles_find_the_first_message(database: &TestDatabase) {
    let db = Fixture::with_group(database, TABLES, 2).await;
    let group = Reach::Group(Key::Integer(GROUP));
    for owner in [&db.alice, &db.bob] {
        let new = NewConversation { title: Some("A Trip to Lisbon".to_owned()), ..NewConversation::new() };
        let id = db.create_conversation(owner, new).await.unwrap().id;
        // Numbers go on after a clear, so the first message isn't number 0.
        say(&db, owner, id, "gone").await;
        db.clear_display_messages(owner, id).await.unwrap();
        let name = if owner == &db.alice { "alice" } else { "bob" };
        for text in ["first of", "second of"] {
            say(&db, owner, id, &format!("{text} {name}")).await;
        }
    }
    for found in ["lisbon trip", "\"trip to\""] {
        assert_eq!(find(&db, &db.alice, found).await, ["first of alice"], "{found}");
        assert_eq!(find(&db, &group, found).await, ["first of bob", "first of alice"], "{found}");
    }
    for missing in ["lisbon second", "porto"] {
        assert_eq!(find(&db, &db.alice, missing).await, [""; 0], "{missing}");
    }
}

async fn a_search_stays_with_its_scope(database: &TestDatabase) {
    let db = Fixture::with_group(database, TABLES, 3).await;
    say(&db, &db.alice, db.conversation().await, POSTCARD).await;
    say(&db, &db.bob, db.conversation_of(&db.bob).await, "Lisbon is bob's").await;
    let stranger = db.owner(4);
    say(&db, &stranger, db.conversation_of(&stranger).await, "Lisbon is a stranger's").await;
    assert_eq!(find(&db, &db.alice, "lisbon").await, [POSTCARD]);
    assert_eq!(find(&db, &db.bob, "postcard").await.len(), 0);
    assert_eq!(find(&db, &Reach::Group(Key::Integer(GROUP)), "lisbon").await, ["Lisbon is bob's", POSTCARD]);
    assert_eq!(find(&db, &Reach::Group(Key::Integer(GROUP + 1)), "lisbon").await.len(), 0);
}

async fn pages(db: &Fixture, scope: &impl OwnerScope, limit: u32) -> Vec<DisplayMessage> {
    let (mut hits, mut page) = (Vec::new(), SearchPage::first().limit(limit));
    loop {
        let found = db.search_messages(scope, "needle", page).await.unwrap();
        hits.extend(found.items);
        let Some(next) = found.next else { return hits };
        page = SearchPage::after(next).limit(limit);
    }
}

/// A conversation of alice's and one of bob's, with thirty hits each.
async fn needles(db: &Fixture) -> Uuid {
    let (id, bobs) = (db.conversation().await, db.conversation_of(&db.bob).await);
    for n in 0..30 {
        say(db, &db.alice, id, &format!("needle {n}")).await;
        say(db, &db.bob, bobs, &format!("needle {n}")).await;
    }
    id
}

async fn pages_have_every_hit_once(database: &TestDatabase) {
    let db = Fixture::with_group(database, TABLES, 3).await;
    let _ = needles(&db).await;
    for (scope, count) in [(Reach::Owner(db.alice.clone()), 30), (Reach::Group(Key::Integer(GROUP)), 60)] {
        let all = db.search_messages(&scope, "needle", SearchPage::first().limit(1000)).await.unwrap().items;
        assert_eq!(all.len(), count);
        let place = |hit: &DisplayMessage| (hit.inserted_at, hit.conversation_id, hit.sequence);
        assert!(all.windows(2).all(|pair| place(&pair[0]) > place(&pair[1])));
        assert_eq!(pages(&db, &scope, 7).await, all);
    }
}

async fn copies_of_one_conversation_are_all_found(database: &TestDatabase) {
    let db = Fixture::with_group(database, TABLES, 3).await;
    let id = needles(&db).await;
    let export = db.export_conversation(&db.alice, id).await.unwrap();
    for owner in [2, 3] {
        assert!(db.import_conversation(&db.owner(owner), export.clone()).await.unwrap().created);
    }
    let hits = pages(&db, &Reach::Group(Key::Integer(GROUP)), 2).await;
    assert_eq!(hits.len(), 30 * 4, "nothing is lost at the ends of pages");
}

/// A long search is interrupted, or given up, and leaves its connection usable.
async fn long_searches_keep_nobody_from_working(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    let long = "abcdefghij ".repeat(20_000);
    for _ in 0..100 {
        say(&db, &db.alice, id, &long).await;
    }
    let search = |db: Fixture| async move {
        let found = db.search_messages(&db.alice, "abcdefghij zzz", SearchPage::first()).await;
        found.map(|page| page.items.len())
    };
    let searches: Vec<_> = (0..6).map(|_| tokio::spawn(search(db.clone()))).collect();
    timeout(Duration::from_secs(30), db.get_conversation(&db.alice, id)).await.unwrap().unwrap();
    for found in searches {
        // It found nothing, or took too long.
        assert!(matches!(found.await.unwrap(), Ok(0) | Err(_)));
    }
    for _ in 0..20 {
        let given_up = tokio::spawn(search(db.clone()));
        sleep(Duration::from_millis(20)).await;
        given_up.abort();
    }
    db.search_messages(&db.bob, "x", SearchPage::first()).await.unwrap();
    db.conversation().await;
}
