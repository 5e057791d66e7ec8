//! What README.md and docs/ show. A part of every section is left to its reader.

#![allow(
    clippy::all,
    clippy::future_not_send,
    clippy::pedantic,
    clippy::unwrap_used,
    dead_code,
    let_underscore_drop,
    missing_docs,
    unreachable_pub,
    unused_imports,
    unused_mut,
    unused_qualifications,
    unused_results,
    unused_variables
)]

mod prelude {
    pub use crate::conversations::{Conversation, ConversationChanges, Conversations, DisplayMessage, NewConversation};
    pub use sagents::session::*;
    pub use sagents::*;
    pub use serde_json::json;
    pub use std::time::Duration;
    pub use uuid::Uuid;
}

use crate::accounts::{Scope, User};
use prelude::{Conversation, Conversations, NewConversation, Result};

/// A context on an empty database, who is asking, and a conversation.
async fn start() -> Result<(Conversations, Scope, Conversation)> {
    let pool = sagents::sqlite::connect("sqlite::memory:").await?;
    sqlx::migrate!().run(&pool).await.unwrap();
    sqlx::query("INSERT INTO users (id, name) VALUES (1, 'somebody')").execute(&pool).await?;
    let conversations = Conversations::new(pool);
    let scope = Scope { user: User { name: "somebody".to_owned(), id: 1 } };
    let chat = conversations.create_conversation(&scope, NewConversation::default()).await?;
    Ok((conversations, scope, chat))
}
