//! The files of a `SQLite` database: the write-ahead log, and what happens if they're deleted.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use sagents::sqlx::SqlitePool;
use sagents::sqlx::sqlite::SqlitePoolOptions;
use sagents::{Error, sqlx};
use tokio::time::sleep;
use uuid::Uuid;

use super::{alice, append, conversation, sqlite};
use crate::support::TABLES;

fn file(pool: &SqlitePool, ending: &str) -> PathBuf {
    let file = pool.connect_options().get_filename().to_owned();
    PathBuf::from(format!("{}{ending}", file.display()))
}

#[tokio::test]
async fn a_large_log_is_truncated_by_the_next_writes_and_emptied_when_there_are_none() {
    const MEGABYTE: usize = 1 << 20;

    let (_database, store) = sqlite().await;
    let id = conversation(&store, &alice()).await;
    let log = file(store.pool(), "-wal");
    let size = || usize::try_from(fs::metadata(&log).unwrap().len()).unwrap();
    // While somebody reads, no part of the log can be used again.
    let mut reader = store.pool().begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM sagents_conversations").fetch_one(&mut *reader).await.unwrap();
    for _ in 0..24 {
        append(&store, &alice(), id, "1".repeat(MEGABYTE)).await.unwrap();
    }
    assert!(size() > 24 * MEGABYTE, "{}", size());
    reader.rollback().await.unwrap();
    for _ in 0..3 {
        append(&store, &alice(), id, "small").await.unwrap();
    }
    assert!(size() <= 16 * MEGABYTE, "{}", size());
    while size() > 0 {
        sleep(Duration::from_millis(50)).await;
    }
    append(&store, &alice(), id, "after that").await.unwrap();
    assert!(size() > 0);
}

#[tokio::test]
async fn a_database_that_was_deleted_is_missing_and_not_empty() {
    let (_database, store) = sqlite().await;
    while store.pool().num_idle() < store.pool().size() as usize {
        sleep(Duration::from_millis(1)).await;
    }
    // Every open connection is in use: the call needs another one.
    let mut busy = Vec::new();
    for _ in 0..store.pool().size() {
        busy.push(store.pool().acquire().await.unwrap());
    }
    let file = file(store.pool(), "");
    fs::remove_file(&file).unwrap();
    let error = store.get_run(&alice(), Uuid::now_v7()).await.unwrap_err();
    assert!(matches!(error, Error::Database(_)), "{error:?}");
    let hint = "the file or its directory is missing: restore it, or correct the database URL";
    assert_eq!(error.hint(), Some(hint), "{error:?}");
    assert!(!file.exists());
}

#[tokio::test]
async fn a_connection_that_the_application_left_in_a_transaction_is_used_again() {
    let (database, store) = sqlite().await;
    store.pool().close().await;
    let pool = SqlitePoolOptions::new().max_connections(1).connect(&database.url).await.unwrap();
    let store = sagents::sqlite::Store::new(pool.clone(), &TABLES);
    for begin in ["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT s"] {
        sqlx::query(begin).execute(&pool).await.unwrap();
        conversation(&store, &alice()).await;
    }
    let other = database.pool().await;
    assert_eq!(other.number("SELECT count(*) FROM sagents_conversations").await, 3);
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_named_by_the_hint() {
    let (database, store) = sqlite().await;
    store.pool().close().await;
    let missing = database.url.replace("test.db", "missing/test.db");
    let error = sagents::sqlite::connect(&missing).await.unwrap_err();
    let hint = "the file or its directory is missing: restore it, or correct the database URL";
    assert_eq!(error.hint(), Some(hint), "{error:?}");
}
