//! The routes while the server of the database is down.

use std::sync::Arc;
use std::time::Duration;

use matrix::conversations::Conversations;
use matrix::conversations::web::{Web, router};
use matrix::sagents::session::Coordinator;
use serde_json::json;
use sqlx::postgres::PgPoolOptions;
use uuid::Uuid;

use crate::database::{self, server::Server};
use crate::web::agent::Script;
use crate::web::{conversation, send, serve};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_to_be_repeated_while_the_database_is_away() {
    let server = Arc::new(Server::start());
    server.create_database("away");
    let url = server.url("away");
    database::migrate(&url, "INSERT INTO users (id, name) VALUES (1, 'a')").await;
    let pool = PgPoolOptions::new()
        .acquire_timeout(Duration::from_secs(2))
        .connect(&url)
        .await
        .unwrap();
    let layer = Conversations::new(pool);
    let web = Web::new(layer.clone(), Coordinator::new(layer), Script);
    let (client, _) = serve(router(web)).await;
    let user = client.with("x-user", 1);
    let path = conversation(&user).await;

    let down = Arc::clone(&server);
    tokio::task::spawn_blocking(move || down.stop())
        .await
        .unwrap();
    let message = json!({ "id": Uuid::now_v7(), "text": "hello" });
    for refused in [
        user.get("/api/conversations").await,
        user.get(&format!("{path}/messages")).await,
        user.get(&format!("{path}/events")).await,
        user.post(&format!("{path}/messages"), message.clone())
            .await,
    ] {
        assert_eq!(refused.header("retry-after"), Some("2"), "{refused:?}");
        assert_eq!(refused.problem(503), None, "nothing of the inside is told");
    }
    let up = Arc::clone(&server);
    tokio::task::spawn_blocking(move || up.restart())
        .await
        .unwrap();
    let mut events = user.follow(&format!("{path}/events")).await.unwrap();
    let _ = user
        .post(&format!("{path}/messages"), message)
        .await
        .expect(202);
    events.rows_until("You said hello").await;
    send(&user, &path, "again").await;
    events.rows_until("You said again").await;
}
