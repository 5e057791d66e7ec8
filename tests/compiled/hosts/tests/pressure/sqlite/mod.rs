//! What can happen on `SQLite` only.

mod clock;
mod disk;
mod files;
mod housekeeping;
mod searches;
mod writers;

use std::time::Duration;

use matrix::conversations::{
    Conversations, DisplayMessage, Error, NewConversation, NewDisplayMessage, Pool, Role, connect,
};
use uuid::Uuid;

use crate::database::Database;
use crate::storage::user;

const USERS: &str = "INSERT INTO users (id, name) VALUES (1, 'a'), (2, 'b')";

async fn opened() -> (Database, Pool, Conversations) {
    let database = Database::migrated(USERS).await;
    let pool = connect(&database.url()).await.unwrap();
    let layer = Conversations::new(pool.clone());
    (database, pool, layer)
}

async fn conversation(layer: &Conversations, owner: i64) -> Uuid {
    let new = NewConversation::new();
    let created = layer.create_conversation(&user(owner), new).await;
    created.unwrap().id
}

/// Appends a message of an owner.
async fn append(
    layer: &Conversations,
    owner: i64,
    id: Uuid,
    text: impl Into<String>,
) -> Result<DisplayMessage, Error> {
    let message = NewDisplayMessage::text(Role::User, text);
    layer
        .append_display_message(&user(owner), id, message)
        .await
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
