//! The files of a database: the write-ahead log, and what happens if they are deleted.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use matrix::conversations::{Error, Pool};
use sqlx::Row as _;

use super::{append, conversation, opened};
use crate::storage::scope;

fn file(pool: &Pool, ending: &str) -> PathBuf {
    let file = pool.connect_options().get_filename().to_owned();
    PathBuf::from(format!("{}{ending}", file.display()))
}

#[tokio::test]
async fn a_large_log_is_truncated_by_the_next_writes_and_emptied_when_there_are_none() {
    const MEGABYTE: usize = 1 << 20;

    let (_database, pool, layer) = opened().await;
    let id = conversation(&layer, 1).await;
    let log = file(&pool, "-wal");
    let size = || usize::try_from(fs::metadata(&log).unwrap().len()).unwrap();
    // While somebody reads, nothing of the log can be used again.
    let mut reader = pool.begin().await.unwrap();
    let count = "SELECT count(*) FROM sagents_conversations";
    sqlx::query(count).fetch_one(&mut *reader).await.unwrap();
    for _ in 0..24 {
        append(&layer, 1, id, "1".repeat(MEGABYTE)).await.unwrap();
    }
    assert!(size() > 24 * MEGABYTE, "{}", size());
    reader.rollback().await.unwrap();
    for _ in 0..3 {
        append(&layer, 1, id, "small").await.unwrap();
    }
    assert!(size() <= 16 * MEGABYTE, "{}", size());
    while size() > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    append(&layer, 1, id, "after that").await.unwrap();
    assert!(size() > 0);
}

#[tokio::test]
async fn a_database_that_was_deleted_is_missing_and_not_empty() {
    let (_database, pool, layer) = opened().await;
    let id = conversation(&layer, 1).await;
    // Every connection that is open is in use: the call needs another one.
    let mut busy = Vec::new();
    while busy.len() < pool.size() as usize {
        busy.push(pool.acquire().await.unwrap());
    }
    let file = file(&pool, "");
    fs::remove_file(&file).unwrap();
    let error = layer.get_conversation(&scope(), id).await.unwrap_err();
    assert!(matches!(error, Error::Database(_)), "{error:?}");
    assert!(error.hint().unwrap().contains("missing"), "{error:?}");
    assert!(!file.exists());
    drop(busy);
}

#[tokio::test]
async fn a_connection_that_the_application_left_in_a_transaction_is_used_again() {
    let (database, pool, _) = opened().await;
    pool.close().await;
    let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
    let pool = pool.connect(&database.url()).await.unwrap();
    let layer = matrix::conversations::Conversations::new(pool.clone());
    for begin in ["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT s"] {
        let left = sqlx::query(begin).execute(&pool).await;
        left.unwrap();
        conversation(&layer, 1).await;
    }
    let other = sqlx::SqlitePool::connect(&database.url()).await.unwrap();
    let count = sqlx::query("SELECT count(*) FROM sagents_conversations");
    let count = count.fetch_one(&other).await.unwrap();
    assert_eq!(count.get::<i64, _>(0), 3);
}
