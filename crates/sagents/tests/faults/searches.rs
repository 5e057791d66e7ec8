//! Searches that take long and are given up, while others work.

use std::time::Duration;

use sagents::sqlx::postgres::PgPoolOptions;
use sagents::sqlx::sqlite::SqlitePoolOptions;
use sagents::{Error, SearchPage, Store, sqlx};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{alice, append, bob, conversation, hint, sqlite};
use crate::support::pool::Pool;
use crate::support::{Kind, TABLES, TestDatabase};

crate::on_both_databases!(searches_of_one_owner_leave_most_connections_to_others);

/// Messages of a hundred kilobytes each.
async fn fill(store: &Store, messages: usize) {
    let id = conversation(store, &alice()).await;
    for _ in 0..messages {
        append(store, &alice(), id, "1".repeat(100_000)).await.unwrap();
    }
}

/// A text that's found almost everywhere, and nowhere.
fn hostile() -> String {
    "1".repeat(199) + "2"
}

async fn searches_of_one_owner_leave_most_connections_to_others(database: &TestDatabase) {
    let pool = database.pool().await;
    let store = pool.store(&TABLES);
    sagents::testing::create_tables(&store).await.unwrap();
    fill(&store, 200).await;
    let other = conversation(&store, &bob()).await;
    append(&store, &bob(), other, "elsewhere").await.unwrap();
    let mut searches = JoinSet::new();
    for _ in 0..16 {
        let store = Store::clone(&store);
        searches.spawn(async move {
            loop {
                let (alice, text) = (alice(), hostile());
                let search = store.search_messages(&alice, &text, SearchPage::first());
                if let Ok(found) = timeout(Duration::from_millis(300), search).await {
                    assert_eq!(found.unwrap().items, []);
                }
            }
        });
    }
    let mut most_used = 0;
    for _ in 0..200 {
        most_used = most_used.max(used_and_allowed(&pool).0);
        sleep(Duration::from_millis(5)).await;
    }
    // Another owner's calls don't wait for them, and neither does a search.
    append(&store, &bob(), other, "beside").await.unwrap();
    let found = store.search_messages(&bob(), "ELSE", SearchPage::first()).await.unwrap();
    assert_eq!(found.items.len(), 1);
    searches.shutdown().await;
    // There's one search at a time. The connection of an earlier one may be on its way back to the pool.
    let (_, allowed) = used_and_allowed(&pool);
    assert!((1..=allowed / 2).contains(&most_used), "{most_used} of {allowed} connections were used");
}

/// How many connections of a pool are used, and how many there may be.
fn used_and_allowed(pool: &Pool) -> (usize, usize) {
    let (open, idle, allowed) = match pool {
        Pool::Sqlite(pool) => (pool.size(), pool.num_idle(), pool.options().get_max_connections()),
        Pool::Postgres(pool) => (pool.size(), pool.num_idle(), pool.options().get_max_connections()),
    };
    (open as usize - idle, allowed as usize)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_search_that_takes_too_long_is_interrupted_and_its_connection_is_used_again() {
    let (database, store) = sqlite().await;
    fill(&store, 1000).await;
    let pool = SqlitePoolOptions::new().max_connections(1).connect(&database.url).await.unwrap();
    let store = sagents::sqlite::Store::new(pool, &TABLES);
    let (alice, hostile) = (alice(), hostile());
    let search = store.search_messages(&alice, &hostile, SearchPage::first()).await;
    assert!(matches!(search, Err(Error::Database(_))), "{search:?}");
    assert!(hint(search).contains("too many messages"));

    // A search that's given up is interrupted long before its time is over.
    for _ in 0..3 {
        let search = store.search_messages(&alice, &hostile, SearchPage::first());
        timeout(Duration::from_millis(10), search).await.unwrap_err();
        // It needs the connection, and has no messages to look at.
        let found = store.search_messages(&bob(), "nowhere", SearchPage::first()).await;
        assert_eq!(found.unwrap().items, []);
    }
    conversation(&store, &alice).await;
}

fn with_limit(url: &str, limit: &str) -> String {
    format!("{url}?options[statement_timeout]={limit}")
}

#[tokio::test]
async fn on_postgres_a_search_has_a_limit_of_its_own_unless_the_pool_has_a_lower_one() {
    // A reader of the messages notes the limit that holds then.
    const OBSERVE: &str = "
        CREATE TABLE noted (setting TEXT);
        CREATE FUNCTION note() RETURNS boolean VOLATILE LANGUAGE sql AS $$
            INSERT INTO noted VALUES (current_setting('statement_timeout')) RETURNING true $$;
        ALTER TABLE sagents_display_messages RENAME TO observed;
        CREATE VIEW sagents_display_messages AS SELECT * FROM observed WHERE note()";

    let database = TestDatabase::new(Kind::Postgres);
    let store = database.store(&TABLES).await;
    let id = conversation(&store, &alice()).await;
    append(&store, &alice(), id, "hello").await.unwrap();
    database.execute(OBSERVE).await;
    for (limit, expected) in [("", "10s"), ("10min", "10s"), ("2500ms", "2500ms")] {
        let url = if limit.is_empty() { database.url.clone() } else { with_limit(&database.url, limit) };
        let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
        let store = sagents::postgres::Store::new(pool.clone(), &TABLES);
        let found = store.search_messages(&alice(), "hello", SearchPage::first()).await.unwrap();
        assert_eq!(found.items.len(), 1);
        let noted = sqlx::query_scalar("DELETE FROM noted RETURNING setting");
        let mut noted: Vec<String> = noted.fetch_all(&pool).await.unwrap();
        noted.dedup();
        assert_eq!(noted, [expected], "{limit}");
        let after: String = sqlx::query_scalar("SHOW statement_timeout").fetch_one(&pool).await.unwrap();
        assert_eq!(after, if limit.is_empty() { "0" } else { limit });
    }
}

#[tokio::test]
async fn on_postgres_a_search_that_takes_too_long_ends_with_a_hint() {
    let database = TestDatabase::new(Kind::Postgres);
    let store = database.store(&TABLES).await;
    fill(&store, 400).await;
    let hasty = sagents::postgres::connect(&with_limit(&database.url, "50ms")).await.unwrap();
    let hasty = sagents::postgres::Store::new(hasty, &TABLES);
    let search = hasty.search_messages(&alice(), &hostile(), SearchPage::first()).await;
    assert!(hint(search).contains("a search has at most ten seconds"));
}
