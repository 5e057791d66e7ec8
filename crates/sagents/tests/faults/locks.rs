//! Writers of a conversation whose row another transaction keeps locked, on `PostgreSQL`.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sagents::sqlx::postgres::PgPoolOptions;
use sagents::sqlx::{self, PgPool, Postgres, Transaction};
use sagents::{Error, Result, SearchPage};
use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;
use uuid::Uuid;

use super::{alice, append, bob, conversation, hint, shown};
use crate::support::{Kind, TABLES, TestDatabase};

const WAITING: &str = "
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// Two conversations. The first one, alice's, is locked until the transaction ends.
struct Locked {
    store: sagents::postgres::Store,
    id: Uuid,
    other: Uuid,
    give_up: Arc<Notify>,
    outside: PgPool,
    lock: Transaction<'static, Postgres>,
    _database: TestDatabase,
}

/// A store on a new database.
async fn postgres() -> (TestDatabase, sagents::postgres::Store) {
    let database = TestDatabase::new(Kind::Postgres);
    let store = database.postgres(&TABLES).await;
    sagents::testing::create_tables(&store).await.unwrap();
    (database, store)
}

impl Locked {
    async fn new() -> Self {
        let (database, store) = postgres().await;
        let outside = sagents::postgres::connect(&database.url).await.unwrap();
        let (id, other) = (conversation(&store, &alice()).await, conversation(&store, &bob()).await);
        let mut lock = outside.begin().await.unwrap();
        let select = sqlx::query("SELECT FROM sagents_conversations WHERE id = $1 FOR UPDATE").bind(id);
        select.execute(&mut *lock).await.unwrap();
        Self { store, id, other, give_up: Arc::default(), outside, lock, _database: database }
    }

    /// Tasks that append `0`, `1`, … and come in this order. The first four wait for the lock when this returns. Every
    /// second task gives up when it's told to.
    async fn append(&self, count: usize) -> JoinSet<Result<()>> {
        let mut writers = JoinSet::new();
        for number in 0..count {
            let (store, id, give_up) = (self.store.clone(), self.id, self.give_up.clone());
            writers.spawn(async move {
                let alice = alice();
                let append = append(&store, &alice, id, number.to_string());
                if number % 2 == 1 {
                    return append.await.map(drop);
                }
                tokio::select! {
                    appended = append => panic!("{number} did not have to wait: {appended:?}"),
                    () = give_up.notified() => Ok(()),
                }
            });
            yield_now().await;
        }
        while self.waiting().await < 4 {
            sleep(Duration::from_millis(10)).await;
        }
        writers
    }

    /// How many connections wait for a lock.
    async fn waiting(&self) -> i64 {
        sqlx::query_scalar(WAITING).fetch_one(&self.outside).await.unwrap()
    }
}

/// Waits for the callers that gave up: they leave in the background, each with a connection.
async fn all_have_left(store: &sagents::postgres::Store) {
    while store.pool().num_idle() < store.pool().size() as usize {
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn writers_of_a_locked_conversation_leave_the_connections_to_others() {
    const WRITERS: usize = 40;

    let locked = Locked::new().await;
    let mut writers = locked.append(WRITERS).await;
    let store = &locked.store;
    locked.give_up.notify_waiters();
    let mut gave_up = 0;
    while gave_up < WRITERS / 2 {
        append(store, &bob(), locked.other, "elsewhere").await.unwrap();
        // Readers of the locked conversation don't wait either.
        assert_eq!(shown(store, locked.id).await, []);
        while let Some(writer) = writers.try_join_next() {
            writer.unwrap().unwrap();
            gave_up += 1;
        }
        assert!(locked.waiting().await <= 4);
    }
    assert_eq!(locked.waiting().await, 4, "the first four; two of them gave up and haven't ended");

    locked.lock.commit().await.unwrap();
    while let Some(writer) = writers.join_next().await {
        writer.unwrap().unwrap();
    }
    all_have_left(store).await;
    let stored = shown(store, locked.id).await;
    assert!(stored.iter().map(|row| row.sequence).eq(0..22));
    let mut stored: Vec<usize> = stored.iter().map(|row| row.content.parse().unwrap()).collect();
    stored.sort_unstable();
    // The statements of two were under way when their callers gave up.
    let expected = (0..WRITERS).filter(|number| number % 2 == 1 || *number < 4);
    assert_eq!(stored, expected.collect::<Vec<_>>());
    let debug = format!("{:?}", sagents::Store::clone(store));
    assert!(!debug.contains(&locked.id.to_string()), "a conversation without callers is forgotten: {debug}");
}

#[tokio::test]
async fn a_writer_waits_for_others_only_so_long() {
    let locked = Locked::new().await;
    let mut others = locked.append(4).await;
    locked.give_up.notify_waiters();
    // Timers fire at once now, while all wait for the server.
    tokio::time::pause();
    let late = append(&locked.store, &alice(), locked.id, "too late").await;
    assert!(hint(late).contains("keeps the conversation locked"));
    tokio::time::resume();
    locked.lock.commit().await.unwrap();
    while let Some(other) = others.join_next().await {
        other.unwrap().unwrap();
    }
    all_have_left(&locked.store).await;
    assert_eq!(append(&locked.store, &alice(), locked.id, "in time").await.unwrap().sequence, 4);
}

/// The trigger does what another transaction may do between the statement's read and its write.
#[tokio::test]
async fn a_run_of_a_conversation_that_is_deleted_meanwhile_is_not_found() {
    const DELETE: &str = "
        CREATE FUNCTION delete_conversation() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            DELETE FROM sagents_conversations WHERE id = new.conversation_id;
            RETURN new;
        END $$;
        CREATE TRIGGER deleting BEFORE INSERT ON sagents_runs
        FOR EACH ROW EXECUTE FUNCTION delete_conversation()";

    let (_database, store) = postgres().await;
    let id = conversation(&store, &alice()).await;
    sqlx::raw_sql(DELETE).execute(store.pool()).await.unwrap();
    let begun = store.begin_run(&alice(), id, Uuid::now_v7(), "here", Duration::from_secs(30)).await;
    assert!(matches!(begun, Err(Error::NotFound)), "{begun:?}");
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_no_transaction_open() {
    let (database, other) = postgres().await;
    let pool = PgPoolOptions::new().max_connections(1).connect(&database.url).await.unwrap();
    let store = sagents::postgres::Store::new(pool, &TABLES);
    let id = conversation(&store, &alice()).await;
    for polls in 1..16 {
        let alice = alice();
        poll(store.search_messages(&alice, "hello", SearchPage::first()), polls).await;
        poll(store.discard_unreadable_state(&alice, id, 0), polls).await;
        poll(store.export_conversation(&alice, id), polls).await;
        // In a transaction that's still open, nobody else would see this.
        let appended = append(&store, &alice, id, polls.to_string()).await.unwrap();
        assert_eq!(shown(&other, id).await.last(), Some(&appended));
    }
}

/// Gives up a call as soon as it was polled so often.
async fn poll<T>(call: impl Future<Output = T>, mut polls: u32) {
    let mut call = pin!(call);
    poll_fn(|context| {
        polls -= 1;
        match call.as_mut().poll(context) {
            Poll::Pending if polls > 0 => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
}
