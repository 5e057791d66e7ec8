//! Searches that take long, and are given up, while others work.

use std::time::{Duration, Instant};

use matrix::conversations::{Conversations, Error, MessagePage, Pool, SearchPage};
use sqlx::sqlite::SqlitePoolOptions;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{append, conversation, median, opened};
use crate::storage::user;

/// Messages of a megabyte each.
async fn fill(layer: &Conversations, pool: &Pool, messages: i64) {
    const FILL: &str = "
        INSERT INTO sagents_display_messages
            (user_id, conversation_id, sequence, message_id, item, role, content_type, content, inserted_at)
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $2)
        SELECT 1, $1, n, randomblob(16), 0, 'user', 'text', replace(hex(zeroblob(500000)), '0', '1'), ''
        FROM numbers";

    let id = conversation(layer, 1).await;
    let fill = sqlx::query(FILL).bind(id).bind(messages);
    fill.execute(pool).await.unwrap();
}

/// A text that is found almost everywhere, and nowhere.
fn hostile() -> String {
    "1".repeat(199) + "2"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_of_one_owner_do_not_slow_down_another() {
    const ROUNDS: usize = 4;
    const CALLS: usize = 25;

    let (_database, pool, layer) = opened().await;
    fill(&layer, &pool, 20).await;
    let other = conversation(&layer, 2).await;
    let call = async || {
        let began = Instant::now();
        append(&layer, 2, other, "elsewhere").await.unwrap();
        let page = MessagePage::last();
        let page = layer.load_display_messages(&user(2), other, page).await;
        page.unwrap();
        began.elapsed()
    };
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let (mut usual, mut attacked) = (Vec::new(), Vec::new());
        for _ in 0..CALLS {
            usual.push(call().await);
        }
        let mut searches = JoinSet::new();
        for _ in 0..16 {
            let layer = layer.clone();
            searches.spawn(async move {
                loop {
                    let (scope, text) = (user(1), hostile());
                    let search = layer.search_messages(&scope, &text, SearchPage::first());
                    let given_up = timeout(Duration::from_millis(300), search).await;
                    assert!(given_up.is_err(), "{given_up:?}");
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        for _ in 0..CALLS {
            attacked.push(call().await);
        }
        // One of another owner does not wait for them.
        let page = SearchPage::first();
        let found = layer.search_messages(&user(2), "ELSE", page).await;
        assert!(!found.unwrap().items.is_empty());
        searches.shutdown().await;
        ratios.push(median(attacked).as_secs_f64() / median(usual).as_secs_f64());
    }
    // What else the machine does touches some of the rounds.
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    println!("times as long beside searches: {ratios:.2?}");
    assert!(least < 2.0, "{ratios:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_that_takes_too_long_is_interrupted_and_its_connection_is_used_again() {
    let (database, pool, layer) = opened().await;
    fill(&layer, &pool, 100).await;
    let pool = SqlitePoolOptions::new().max_connections(1);
    let pool = pool.connect(&database.url()).await.unwrap();
    let layer = Conversations::new(pool);
    let (scope, hostile) = (user(1), hostile());
    let search = layer.search_messages(&scope, &hostile, SearchPage::first());
    let error = search.await.unwrap_err();
    assert!(matches!(error, Error::Database(_)), "{error:?}");
    assert!(
        error.hint().unwrap().contains("too many messages"),
        "{error:?}"
    );

    // One that is given up is interrupted too, long before its time is over.
    for _ in 0..3 {
        let search = layer.search_messages(&scope, &hostile, SearchPage::first());
        timeout(Duration::from_millis(10), search)
            .await
            .unwrap_err();
        let found = layer.search_messages(&scope, "nowhere", SearchPage::first());
        assert_eq!(found.await.unwrap().items, []);
    }
    let id = conversation(&layer, 1).await;
    layer.get_conversation(&scope, id).await.unwrap();
}
