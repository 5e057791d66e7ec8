//! The routes, with real HTTP.

#![allow(
    clippy::needless_pass_by_value,
    reason = "bodies are written where they are sent"
)]

pub mod agent;
mod calls;
pub mod client;
mod events;
mod groups;
mod hosts;
mod limits;
mod page;
mod readers;
mod routes;

use std::time::Duration;

use axum::Router;
use matrix::conversations::web::{Limits, Web, router};
use matrix::conversations::{Conversations, connect};
use matrix::sagents::session::{Coordinator, SessionOptions};
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::database::Database;
use agent::Script;
use client::Client;

/// A server of its own for a test.
struct Server {
    web: Web,
    coordinator: Coordinator<Conversations>,
    client: Client,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(url: &str) -> Self {
        Self::with_layer(Conversations::new(connect(url).await.unwrap())).await
    }

    async fn with_layer(layer: Conversations) -> Self {
        Self::with_limits(layer, Limits::default()).await
    }

    async fn with_limits(layer: Conversations, limits: Limits) -> Self {
        let options = SessionOptions {
            run_lease: Duration::from_secs(2),
            draft_interval: Some(Duration::from_millis(100)),
            ..SessionOptions::default()
        };
        let coordinator = Coordinator::with_options(layer.clone(), options);
        let web = Web::new(layer, coordinator.clone(), Script).with_limits(limits);
        let (client, task) = serve(router(web.clone())).await;
        Self {
            web,
            coordinator,
            client,
            task,
        }
    }

    /// A client that one of the users has.
    fn user(&self, id: i64) -> Client {
        self.client.with("x-user", id)
    }

    /// Accepts no more connections.
    fn stop(self) {
        self.task.abort();
    }
}

pub async fn serve(router: Router) -> (Client, JoinHandle<()>) {
    let socket = TcpSocket::new_v4().unwrap();
    // The system buffers little, so a client that reads nothing is noticed early.
    socket.set_send_buffer_size(16 * 1024).unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = socket.listen(1024).unwrap();
    let client = Client::new(listener.local_addr().unwrap());
    let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (client, task)
}

/// Two users.
async fn database() -> Database {
    Database::migrated("INSERT INTO users (id, name) VALUES (1, 'a'), (2, 'b')").await
}

/// A new conversation, as its path.
pub async fn conversation(client: &Client) -> String {
    let created = client
        .post("/api/conversations", json!({}))
        .await
        .expect(201);
    format!("/api/conversations/{}", created["id"].as_str().unwrap())
}

/// Sends a message, and returns its id.
pub async fn send(client: &Client, conversation: &str, text: &str) -> String {
    let id = Uuid::now_v7().to_string();
    let body = json!({ "id": id, "text": text });
    let _ = client
        .post(&format!("{conversation}/messages"), body)
        .await
        .expect(202);
    id
}

/// Who said what.
fn said(rows: &Value) -> Vec<String> {
    let rows = rows["items"].as_array().unwrap().iter();
    rows.map(|row| {
        format!(
            "{} {}",
            row["role"].as_str().unwrap(),
            row["content"].as_str().unwrap()
        )
    })
    .collect()
}
