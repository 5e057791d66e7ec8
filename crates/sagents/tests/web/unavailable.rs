//! The routes while the database server is down.

use std::sync::Arc;
use std::time::Duration;

use sagents::sqlx::postgres::PgPoolOptions;
use serde_json::json;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::support::TABLES;
use crate::support::context::Conversations;
use crate::support::postgres::Server as Database;
use crate::{Server, conversation, send};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_to_be_repeated_while_the_database_is_down() {
    let database = Arc::new(Database::start());
    database.create_database("app");
    let pool = PgPoolOptions::new().acquire_timeout(Duration::from_secs(2));
    let pool = pool.connect(&database.url("app")).await.unwrap();
    let store = sagents::postgres::Store::new(pool, &TABLES);
    sagents::testing::create_tables(&store).await.unwrap();
    let server = Server::on(Conversations::Postgres(store)).await;
    let user = server.user(1);
    let path = conversation(&user).await;

    let down = Arc::clone(&database);
    spawn_blocking(move || down.stop()).await.unwrap();
    let message = json!({ "id": Uuid::now_v7(), "text": "hello" });
    for refused in [
        user.get("/api/conversations").await,
        user.get(&format!("{path}/messages")).await,
        user.get(&format!("{path}/events")).await,
        user.post(&format!("{path}/messages"), message.clone()).await,
    ] {
        assert_eq!(refused.header("retry-after"), Some("2"), "{refused:?}");
        assert_eq!(refused.problem(503), None, "no detail of the failure");
    }
    let up = Arc::clone(&database);
    spawn_blocking(move || up.restart()).await.unwrap();
    let mut events = user.follow(&format!("{path}/events")).await.unwrap();
    let _ = user.post(&format!("{path}/messages"), message).await.expect(202);
    let _ = events.rows_until("You said hello").await;
    let _ = send(&user, &path, "again").await;
    let _ = events.rows_until("You said again").await;
}
