//! Writers that are given up.

use std::time::Duration;

use sagents::Store;
use sagents::sqlx::{self, Connection as _, SqliteConnection, SqlitePool};
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

use super::{alice, append, conversation, shown, sqlite};
use crate::support::pool::Pool;
use crate::support::{TABLES, TestDatabase};

crate::on_both_databases!(writes_that_are_given_up_are_stored_as_a_whole_or_not_at_all);

async fn writes_that_are_given_up_are_stored_as_a_whole_or_not_at_all(database: &TestDatabase) {
    let pool = database.pool().await;
    let store = pool.store(&TABLES);
    sagents::testing::create_tables(&store).await.unwrap();
    let id = conversation(&store, &alice()).await;
    let mut writers = JoinSet::new();
    for writer in 0..16 {
        let store = Store::clone(&store);
        writers.spawn(async move {
            let mut stored = 0;
            for n in 0..40 {
                let patience = Duration::from_micros(writer * 200 + n * 37);
                if let Ok(appended) = timeout(patience, append(&store, &alice(), id, "perhaps")).await {
                    appended.unwrap();
                    stored += 1;
                }
            }
            stored
        });
    }
    let acknowledged: usize = writers.join_all().await.into_iter().sum();
    // A statement that was given up may still run. It ends before this one.
    append(&store, &alice(), id, "at the end").await.unwrap();
    let sequences: Vec<_> = shown(&store, id).await.iter().map(|message| message.sequence).collect();
    assert!(sequences.len() > acknowledged);
    let count = i64::try_from(sequences.len()).unwrap();
    assert_eq!(sequences, (0..count).collect::<Vec<_>>(), "no gap");
    match &pool {
        Pool::Sqlite(pool) => all_connections_are_free(pool).await,
        Pool::Postgres(pool) => {
            while pool.num_idle() < pool.size() as usize {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let open = "SELECT count(*) FROM pg_stat_activity \
                        WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
            assert_eq!(sqlx::query_scalar::<_, i64>(open).fetch_one(pool).await.unwrap(), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_are_given_up_leave_the_connections_to_readers() {
    let (database, store) = sqlite().await;
    let (pool, id) = (store.pool(), conversation(&store, &alice()).await);
    // Another process writes for long.
    let mut other = SqliteConnection::connect(&database.url).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let mut writers = JoinSet::new();
    for _ in 0..40 {
        let store = store.clone();
        writers.spawn(async move {
            for _ in 0..8 {
                give_up(&store, id).await;
            }
        });
    }
    writers.join_all().await;
    // One of them waits in the database, for as long as it would have waited anyway. Readers have all other connections.
    let used = pool.size() as usize - pool.num_idle();
    assert!((1..=2).contains(&used), "{used} connections are used");
    let mut readers = Vec::new();
    for _ in 1..pool.options().get_max_connections() {
        readers.push(pool.acquire().await.unwrap());
    }
    drop(readers);
    assert_eq!(shown(&store, id).await, []);

    other.close().await.unwrap();
    let stored = append(&store, &alice(), id, "stored").await.unwrap();
    assert_eq!(shown(&store, id).await, [stored]);
    all_connections_are_free(pool).await;
}

async fn give_up(store: &Store, id: Uuid) {
    let given_up = timeout(Duration::from_millis(50), append(store, &alice(), id, "given up")).await;
    assert!(given_up.is_err(), "{given_up:?}");
}

/// All connections can be used, and none is in a transaction.
async fn all_connections_are_free(pool: &SqlitePool) {
    let mut connections = Vec::new();
    for _ in 0..pool.options().get_max_connections() {
        let mut connection = pool.acquire().await.unwrap();
        for statement in ["BEGIN", "ROLLBACK"] {
            sqlx::query(statement).execute(&mut *connection).await.unwrap();
        }
        connections.push(connection);
    }
}
