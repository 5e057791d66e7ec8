//! The routes, with real HTTP.

#![cfg(all(feature = "axum", feature = "sqlite", feature = "postgres"))]
#![allow(clippy::needless_pass_by_value, reason = "bodies are written where they are sent")]

mod abandoned;
mod agent;
mod calls;
mod client;
mod context;
mod events;
mod groups;
mod hosts;
mod limits;
mod page;
mod readers;
mod routes;
#[path = "../support/mod.rs"]
mod support;
mod unavailable;

use std::time::Duration;

use axum::Router;
use sagents::OwnerScope;
use sagents::session::{Coordinator, SessionOptions};
use sagents::web::{Limits, Web};
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::agent::Script;
use crate::client::Client;
use crate::context::{Context, User};
use crate::support::context::Conversations;
use crate::support::{TABLES, TestDatabase};

/// A server of its own for a test.
struct Server {
    web: Web<Context<User>>,
    coordinator: Coordinator,
    client: Client,
    task: JoinHandle<()>,
}

impl Server {
    /// Creates the tables, too.
    async fn start(database: &TestDatabase) -> Self {
        Self::on(database.store(&TABLES).await).await
    }

    /// On a database that has its tables, as another process.
    async fn another(database: &TestDatabase) -> Self {
        Self::on(database.connect(&TABLES).await).await
    }

    async fn on(store: Conversations) -> Self {
        Self::with_limits(store, Limits::default()).await
    }

    async fn with_limits(store: Conversations, limits: Limits) -> Self {
        let options = SessionOptions {
            run_lease: Duration::from_secs(2),
            draft_interval: Some(Duration::from_millis(100)),
            ..SessionOptions::default()
        };
        let coordinator = Coordinator::with_options(&store, options);
        let web = Web::new(Context::new(store), coordinator.clone(), Script).with_limits(limits);
        let (client, task) = serve(web.router()).await;
        Self { web, coordinator, client, task }
    }

    /// A client of one of the users.
    fn user(&self, id: i64) -> Client {
        self.client.with("x-user", id)
    }

    /// Accepts no more connections.
    fn stop(self) {
        self.task.abort();
    }
}

async fn serve(router: Router) -> (Client, JoinHandle<()>) {
    let socket = TcpSocket::new_v4().unwrap();
    // The system buffers little, so a client that reads nothing is noticed early.
    socket.set_send_buffer_size(16 * 1024).unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = socket.listen(1024).unwrap();
    let client = Client::new(listener.local_addr().unwrap());
    let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (client, task)
}

/// A server with another kind of scope.
async fn serve_context<S>(store: &Conversations, configure: impl FnOnce(Web<Context<S>>) -> Web<Context<S>>) -> Client
where
    S: OwnerScope + axum::extract::FromRequestParts<()> + 'static,
{
    let web = Web::new(Context::new(store.clone()), Coordinator::new(store), Script);
    serve(configure(web).router()).await.0
}

/// A new conversation, as its path.
async fn conversation(client: &Client) -> String {
    let created = client.post("/api/conversations", json!({})).await.expect(201);
    format!("/api/conversations/{}", created["id"].as_str().unwrap())
}

/// Sends a message, and returns its id.
async fn send(client: &Client, conversation: &str, text: &str) -> String {
    let id = Uuid::now_v7().to_string();
    let body = json!({ "id": id, "text": text });
    let _ = client.post(&format!("{conversation}/messages"), body).await.expect(202);
    id
}

/// Who said what.
fn said(rows: &Value) -> Vec<String> {
    let rows = rows["items"].as_array().unwrap().iter();
    rows.map(|row| format!("{} {}", row["role"].as_str().unwrap(), row["content"].as_str().unwrap())).collect()
}
