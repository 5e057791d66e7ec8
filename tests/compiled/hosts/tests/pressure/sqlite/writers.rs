//! Writers that wait for a lock, and are given up.

use std::time::Duration;

use matrix::conversations::{MessagePage, Pool};
use sqlx::Connection as _;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{append, conversation, opened};
use crate::storage::scope;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_are_given_up_leave_the_connections_to_readers() {
    let (database, pool, layer) = opened().await;
    let id = conversation(&layer, 1).await;
    // Another process writes for long.
    let mut other = sqlx::SqliteConnection::connect(&database.url())
        .await
        .unwrap();
    let begin = sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await;
    begin.unwrap();
    let mut writers = JoinSet::new();
    for _ in 0..40 {
        let layer = layer.clone();
        writers.spawn(async move {
            for _ in 0..8 {
                let append = append(&layer, 1, id, "given up");
                let given_up = timeout(Duration::from_millis(50), append).await;
                assert!(given_up.is_err(), "{given_up:?}");
            }
        });
    }
    writers.join_all().await;
    // One of them waits in the database, for as long as it would have waited anyway. All other
    // connections are there for readers.
    let used = pool.size() as usize - pool.num_idle();
    assert!((1..=2).contains(&used), "{used} connections are used");
    let mut readers = Vec::new();
    for _ in 1..pool.options().get_max_connections() {
        readers.push(pool.acquire().await.unwrap());
    }
    drop(readers);
    let read = layer.get_conversation(&scope(), id).await;
    read.unwrap();

    other.close().await.unwrap();
    let stored = append(&layer, 1, id, "stored").await.unwrap();
    let (scope, page) = (scope(), MessagePage::first());
    let page = layer.load_display_messages(&scope, id, page).await;
    assert_eq!(page.unwrap().items, [stored]);
    free(&pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_are_given_up_are_stored_as_a_whole_or_not_at_all() {
    let (_database, pool, layer) = opened().await;
    let id = conversation(&layer, 1).await;
    let mut writers = JoinSet::new();
    for writer in 0..16 {
        let layer = layer.clone();
        writers.spawn(async move {
            let mut stored = 0;
            for n in 0..40 {
                let patience = Duration::from_micros(writer * 200 + n * 37);
                let append = append(&layer, 1, id, "perhaps");
                if let Ok(append) = timeout(patience, append).await {
                    append.unwrap();
                    stored += 1;
                }
            }
            stored
        });
    }
    let acknowledged: usize = writers.join_all().await.into_iter().sum();
    let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
    let page = layer
        .load_display_messages(&scope(), id, page)
        .await
        .unwrap();
    let sequences: Vec<_> = page.items.iter().map(|message| message.sequence).collect();
    assert!(sequences.len() >= acknowledged);
    let count = i64::try_from(sequences.len()).unwrap();
    assert_eq!(sequences, (0..count).collect::<Vec<_>>(), "no gap");
    free(&pool).await;
}

/// All connections can be used, and none is in a transaction.
async fn free(pool: &Pool) {
    let mut connections = Vec::new();
    for _ in 0..pool.options().get_max_connections() {
        let mut connection = pool.acquire().await.unwrap();
        for statement in ["BEGIN", "ROLLBACK"] {
            let executed = sqlx::query(statement).execute(&mut *connection).await;
            executed.unwrap();
        }
        connections.push(connection);
    }
}
