//! Writers of a conversation whose row another transaction keeps locked.

use std::sync::Arc;
use std::time::Duration;

use matrix::conversations::{
    Conversations, Error, MessagePage, NewConversation, NewDisplayMessage, Role, connect,
};
use sqlx::{PgPool, Postgres, Transaction};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use super::{ALICE, BOB, USERS};
use crate::database::Database;

const WAITING: &str = "
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// Two conversations, of which the first is locked until the transaction ends.
struct Locked {
    layer: Conversations,
    id: Uuid,
    other: Uuid,
    give_up: Arc<Notify>,
    outside: PgPool,
    lock: Transaction<'static, Postgres>,
    _database: Database,
}

impl Locked {
    async fn new() -> Self {
        let database = Database::migrated(USERS).await;
        let layer = Conversations::new(connect(&database.url()).await.unwrap());
        let (new, outside) = (
            NewConversation::new,
            connect(&database.url()).await.unwrap(),
        );
        let id = layer.create_conversation(&ALICE, new()).await.unwrap().id;
        let other = layer.create_conversation(&BOB, new()).await.unwrap().id;
        let mut lock = outside.begin().await.unwrap();
        let select = "SELECT FROM sagents_conversations WHERE id = $1 FOR UPDATE";
        let select = sqlx::query(select).bind(id);
        select.execute(&mut *lock).await.unwrap();
        Self {
            layer,
            id,
            other,
            give_up: Arc::default(),
            outside,
            lock,
            _database: database,
        }
    }

    /// Tasks that append `0`, `1`, … and come in this order. The first ones wait for the lock when
    /// this returns, as many as may at once. Every second task gives up when it is told to.
    async fn append(&self, count: usize) -> JoinSet<Result<(), Error>> {
        let mut writers = JoinSet::new();
        for number in 0..count {
            let (layer, id, give_up) = (self.layer.clone(), self.id, self.give_up.clone());
            let append = async move {
                let message = NewDisplayMessage::text(Role::User, number.to_string());
                let append = layer.append_display_message(&ALICE, id, message);
                if number % 2 == 1 {
                    return append.await.map(drop);
                }
                tokio::select! {
                    appended = append => panic!("{number} did not have to wait: {appended:?}"),
                    () = give_up.notified() => Ok(()),
                }
            };
            writers.spawn(append);
            tokio::task::yield_now().await;
        }
        while self.waiting().await < 4 {
            sleep(Duration::from_millis(10)).await;
        }
        writers
    }

    /// How many connections wait for a lock.
    async fn waiting(&self) -> i64 {
        let count = sqlx::query_scalar(WAITING).fetch_one(&self.outside);
        count.await.unwrap()
    }
}

/// Waits for those who gave up: they leave in the background, each with a connection.
async fn all_have_left(layer: &Conversations) {
    while layer.pool().num_idle() < layer.pool().size() as usize {
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn writers_of_a_locked_conversation_leave_the_connections_to_others() {
    const WRITERS: usize = 40;

    let locked = Locked::new().await;
    let mut writers = locked.append(WRITERS).await;
    let layer = &locked.layer;
    locked.give_up.notify_waiters();
    let mut gave_up = 0;
    while gave_up < WRITERS / 2 {
        let message = NewDisplayMessage::text(Role::User, "elsewhere");
        layer
            .append_display_message(&BOB, locked.other, message)
            .await
            .unwrap();
        layer
            .get_conversation(&ALICE, locked.id)
            .await
            .expect("readers of the locked conversation too");
        while let Some(writer) = writers.try_join_next() {
            writer.unwrap().unwrap();
            gave_up += 1;
        }
        assert!(locked.waiting().await <= 4);
    }
    assert_eq!(
        locked.waiting().await,
        4,
        "of the first four, of which two gave up but have not ended"
    );

    locked.lock.commit().await.unwrap();
    while let Some(writer) = writers.join_next().await {
        writer.unwrap().unwrap();
    }
    all_have_left(layer).await;
    let page = layer.load_display_messages(&ALICE, locked.id, MessagePage::first());
    let stored = page.await.unwrap().items;
    assert!(stored.iter().map(|row| row.sequence).eq(0..22));
    let mut stored: Vec<usize> = stored
        .iter()
        .map(|row| row.content.parse().unwrap())
        .collect();
    stored.sort_unstable();
    // The statements of two were under way when their callers gave up.
    let expected = (0..WRITERS).filter(|number| number % 2 == 1 || *number < 4);
    assert_eq!(stored, expected.collect::<Vec<_>>());
    let places = format!("{layer:?}");
    assert!(!places.contains(&locked.id.to_string()), "{places}");
}

#[tokio::test]
async fn a_writer_waits_for_others_only_so_long() {
    let locked = Locked::new().await;
    let mut others = locked.append(4).await;
    locked.give_up.notify_waiters();
    // Timers fire at once now, while all wait for the server.
    tokio::time::pause();
    let message = NewDisplayMessage::text(Role::User, "too late");
    let append = locked
        .layer
        .append_display_message(&ALICE, locked.id, message);
    let error = append.await.unwrap_err();
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("conversation")),
        "{error:?}"
    );
    tokio::time::resume();
    locked.lock.commit().await.unwrap();
    while let Some(other) = others.join_next().await {
        other.unwrap().unwrap();
    }
    all_have_left(&locked.layer).await;
    let message = NewDisplayMessage::text(Role::User, "in time");
    let append = locked
        .layer
        .append_display_message(&ALICE, locked.id, message);
    assert_eq!(append.await.unwrap().sequence, 4);
}

/// The trigger does what another transaction may do between the statement's reading and its writing.
#[tokio::test]
async fn a_run_of_a_conversation_that_is_deleted_meanwhile_is_not_found() {
    const DELETE: &str = "
        CREATE FUNCTION delete_conversation() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            DELETE FROM sagents_conversations WHERE id = new.conversation_id;
            RETURN new;
        END $$;
        CREATE TRIGGER deleting BEFORE INSERT ON sagents_runs
        FOR EACH ROW EXECUTE FUNCTION delete_conversation()";

    let database = Database::migrated(USERS).await;
    let pool = connect(&database.url()).await.unwrap();
    let layer = Conversations::new(pool.clone());
    let new = NewConversation::new();
    let id = layer.create_conversation(&ALICE, new).await.unwrap().id;
    sqlx::raw_sql(DELETE).execute(&pool).await.unwrap();
    let lease = Duration::from_secs(30);
    let begun = layer.begin_run(&ALICE, id, Uuid::now_v7(), "here", lease);
    let begun = begun.await;
    assert!(matches!(begun, Err(Error::NotFound)), "{begun:?}");
}
