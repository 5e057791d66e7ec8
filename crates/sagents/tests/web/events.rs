//! Events continue where a client was, whichever process has written what it missed.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::client::Client;
use crate::support::TestDatabase;
use crate::{Server, conversation, on_both_databases, send};

on_both_databases!(
    a_client_that_connects_again_gets_what_it_missed_once,
    rows_of_another_process_arrive_too,
    a_message_is_answered_after_the_run_of_another_process,
    a_run_whose_process_was_killed_goes_on_for_an_open_stream,
);

/// The changes of rows, each with the message that it shows.
fn changes(rows: &[Value]) -> Vec<(i64, String)> {
    let change = |row: &Value| (row["changed"].as_i64().unwrap(), row["message_id"].as_str().unwrap().to_owned());
    rows.iter().map(change).collect()
}

async fn a_client_that_connects_again_gets_what_it_missed_once(database: &TestDatabase) {
    let server = Server::start(database).await;
    let user = server.user(1);
    let path = conversation(&user).await;
    let events = format!("{path}/events");
    let mut stream = user.follow(&events).await.unwrap();
    send(&user, &path, "one").await;
    let (before, last) = stream.rows_until("You said one").await;
    stream.run("finished").await;
    drop(stream);
    send(&user, &path, "two").await;

    let mut stream = user.with("last-event-id", &last).follow(&events).await.unwrap();
    let (missed, last) = stream.rows_until("You said two").await;
    stream.run("finished").await;
    assert!(changes(&missed).iter().all(|change| !changes(&before).contains(change)), "{missed:?}");
    assert!(missed.iter().any(|row| row["content"] == "two"), "{missed:?}");
    assert!(server.coordinator.shutdown(Duration::MAX).await.unsaved.is_empty());
    server.stop();

    // Another process, on the same database.
    let server = Server::another(database).await;
    let user = server.user(1);
    send(&user, &path, "three").await;
    let mut stream = user.with("last-event-id", &last).follow(&events).await.unwrap();
    let (missed, _) = stream.rows_until("You said three").await;
    assert_eq!(missed[0]["content"], "three");
    assert!(missed.iter().all(|row| row["content"] != "You said two"), "{missed:?}");

    // A page that has loaded the last messages starts behind them.
    stream.run("finished").await;
    let page = user.get(&format!("{path}/messages")).await.expect(200);
    let after = format!("{events}?after={}", page["cursor"].as_str().unwrap());
    let mut stream = user.follow(&after).await.unwrap();
    send(&user, &path, "four").await;
    let (rows, _) = stream.rows_until("You said four").await;
    assert_eq!(rows[0]["content"], "four");
}

async fn rows_of_another_process_arrive_too(database: &TestDatabase) {
    let (one, other) = (Server::start(database).await, Server::another(database).await);
    let path = conversation(&one.user(1)).await;
    let mut stream = other.user(1).follow(&format!("{path}/events")).await.unwrap();
    send(&one.user(1), &path, "hello").await;
    let (rows, _) = stream.rows_until("You said hello").await;
    assert_eq!(rows[0]["content"], "hello");
    stream.run("finished").await;
}

async fn a_message_is_answered_after_the_run_of_another_process(database: &TestDatabase) {
    let (one, other) = (Server::start(database).await, Server::another(database).await);
    let path = conversation(&one.user(1)).await;
    let mut stream = one.user(1).follow(&format!("{path}/events")).await.unwrap();
    send(&one.user(1), &path, "wait").await;
    let is_draft = |data: &Value| data["items"].to_string().contains("so far");
    let _ = stream.until("rows", is_draft).await;
    send(&other.user(1), &path, "second").await;
    one.user(1).post(&format!("{path}/stop"), json!({})).await.expect(202);
    stream.rows_until("You said second").await;
    stream.run("finished").await;
}

async fn a_run_whose_process_was_killed_goes_on_for_an_open_stream(database: &TestDatabase) {
    let other = Server::start(database).await;
    let killed = Killed::start(database);
    let path = conversation(&other.user(1)).await;
    killed.send(&path);
    let mut stream = other.user(1).follow(&format!("{path}/events")).await.unwrap();
    let is_draft = |row: &Value| row["content"] == "so far";
    let draft = stream.until("rows", |data| data["items"].as_array().unwrap().iter().any(is_draft)).await;
    let draft = draft.data["items"].as_array().unwrap().iter().find(|row| is_draft(row));
    let draft = draft.unwrap()["message_id"].clone();
    killed.kill();
    // What it said so far is marked as interrupted, and continued by the process that is left.
    let (rows, _) = stream.rows_until("so far continued").await;
    assert_eq!(rows.last().unwrap()["message_id"], draft);
    stream.run("finished").await;
}

/// A process whose agent waits, on a runtime of its own that ends without notice.
struct Killed(Runtime, Client);

impl Killed {
    fn start(database: &TestDatabase) -> Self {
        let start = || {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let client = runtime.block_on(async { Server::another(database).await.user(1) });
            Self(runtime, client)
        };
        std::thread::scope(|scope| scope.spawn(start).join().unwrap())
    }

    fn send(&self, path: &str) {
        let (client, path) = (self.1.clone(), path.to_owned());
        drop(self.0.spawn(async move { send(&client, &path, "wait").await }));
    }

    fn kill(self) {
        self.0.shutdown_background();
    }
}
