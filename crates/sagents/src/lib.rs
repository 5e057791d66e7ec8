//! Persistence for AI agents: conversations and who owns them, agent state, and the messages a UI shows, on `SQLite` and
//! `PostgreSQL`.
//!
//! The command `sagents gen persistence` (package `sagents-cli`) writes the part that belongs to your application: a
//! context module with the SQL of your conversations, models, migrations and tests. This crate has everything else, over
//! the same tables.
//!
//! - **Tenant isolation**: every method takes the caller's scope first and only sees that owner's rows.
//! - **Optimistic locking**: a stale writer gets a conflict. States that can't be parsed are quarantined, never overwritten.
//! - **Idempotent writes**, keyset pagination, and readers that reconnect without missing a change.
//! - **[Sessions](session)** that save an agent's state by themselves, and tool calls that a person approves.
//! - **[Routes and a page](web)** for `axum`, and a streaming client for models ([`openai`]).
//!
//! # A conversation
//!
//! `Conversations` and `NewConversation` are generated code; everything else is this crate.
//!
//! ```
//! use sagents::session::Coordinator;
//! use sagents::{Message, MessagePage, Owner};
//! use uuid::Uuid;
//!
//! # #[cfg(feature = "sqlite")]
//! # mod generated {
//! #     use sagents::{OwnerColumn, OwnerScope, Result, Tables, sqlite::Store, sqlx::SqlitePool, testing};
//! #     const TABLES: Tables = Tables::new(1, "sagents_", OwnerColumn::integer("user_id"));
//! #     pub struct Conversations(Store);
//! #     #[derive(Default)]
//! #     pub struct NewConversation;
//! #     pub struct Conversation { pub id: uuid::Uuid }
//! #     impl Conversations {
//! #         pub fn new(pool: SqlitePool) -> Self { Self(Store::new(pool, &TABLES)) }
//! #         pub fn store(&self) -> &Store { &self.0 }
//! #         pub async fn create_conversation(&self, scope: &impl OwnerScope, _: NewConversation) -> Result<Conversation> {
//! #             testing::create_tables(&self.0).await?;
//! #             Ok(Conversation { id: testing::create_conversation(&self.0, scope).await? })
//! #         }
//! #         pub async fn load_display_messages(
//! #             &self, scope: &impl OwnerScope, id: uuid::Uuid, page: sagents::MessagePage,
//! #         ) -> Result<sagents::Page<sagents::DisplayMessage>> {
//! #             self.0.load_display_messages(scope, id, page).await
//! #         }
//! #     }
//! # }
//! # #[cfg(feature = "sqlite")]
//! # use generated::{Conversations, NewConversation};
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! # #[cfg(feature = "sqlite")]
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let pool = sagents::sqlite::connect("sqlite::memory:").await?;
//!     let conversations = Conversations::new(pool);
//!     let scope = Owner::new("user", 1); // or your application's scope
//!     let conversation = conversations.create_conversation(&scope, NewConversation::default()).await?;
//!
//!     // A session saves what happens in a turn of the agent.
//!     let coordinator = Coordinator::new(conversations.store());
//!     let session = coordinator.start(&scope, conversation.id).await?;
//!     session.send_message(Uuid::now_v7(), Message::user("Where's my parcel?")).await?;
//!     session.add_message(Uuid::now_v7(), Message::assistant("In Lisbon. It arrives tomorrow."))?;
//!     session.shutdown().await?;
//!
//!     let messages = conversations.load_display_messages(&scope, conversation.id, MessagePage::last()).await?;
//!     for message in &messages.items {
//!         println!("{:?}: {}", message.role, message.content);
//!     }
//!     # assert_eq!(messages.items.len(), 2);
//!     Ok(())
//! }
//! ```
//!
//! # Where to go next
//!
//! | for | see |
//! | --- | --- |
//! | all calls on the tables | [`Store`], which [`sqlite::Store`] and [`postgres::Store`] dereference to |
//! | a turn with tool calls, approvals and restarts | [`session`] |
//! | who may see what | [`OwnerScope`], [`Tables`], [`Group`] |
//! | agent state and messages as Rust types | [`State`], [`Message`], [`display_items`] |
//! | HTTP routes, server-sent events and a page | [`web`] |
//! | files with whole conversations | [`export`] |
//! | states on a storage of your own | [`AgentPersistence`] |
//! | tests | [`testing`] |
//!
//! # Features
//!
//! All features are additive, and none is on by default.
//!
//! | feature | adds |
//! | --- | --- |
//! | `sqlite` | [`sqlite`], with `SQLite` compiled in; `sqlite-unbundled` links the system's |
//! | `postgres` | [`postgres`]; `tls-rustls-ring`, `tls-rustls-aws-lc-rs` or `tls-native-tls` add TLS |
//! | `axum` | [`web`], beside a database |
//! | `openai` | [`openai`] |
//! | `chrono`, `time` | conversions of [`Timestamp`] |
//!
//! The crate re-exports [`sqlx`] 0.9. An application on sqlx 0.9 shares its pool; any other application opens a second
//! one with [`sqlite::connect`] or [`postgres::connect`]. The runtime is Tokio.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
// Without the feature of an item, its links lead nowhere.
#![cfg_attr(
    not(all(feature = "axum", feature = "openai", feature = "sqlite", feature = "postgres")),
    allow(rustdoc::broken_intra_doc_links)
)]
// Without a database, the crate is types, formats and sessions on a storage of your own.
#![cfg_attr(not(any(feature = "_sqlite", feature = "postgres")), allow(dead_code, clippy::unused_async))]

// The strategies of the property tests name the crate as integration tests do.
#[cfg(test)]
extern crate self as sagents;

mod branch;
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
mod check;
mod conversation;
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
mod cut;
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
mod database;
mod display;
mod display_message;
mod error;
pub mod export;
mod extensions;
mod json;
mod message;
pub mod messages;
#[cfg(feature = "openai")]
pub mod openai;
mod owner;
mod page;
mod persistence;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
mod rows;
mod run;

#[doc(hidden)]
pub mod schema;
pub mod serializer;
pub mod session;
#[cfg(feature = "_sqlite")]
pub mod sqlite;
mod state;
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
mod statement;
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
mod store;
mod stored;
#[cfg(test)]
#[path = "../tests/strategies/mod.rs"]
mod strategies;
#[cfg(all(test, feature = "_sqlite", feature = "postgres"))]
#[path = "../tests/support/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "the tests of one database need only its server")]
mod support;
mod tables;
#[cfg(all(test, feature = "postgres"))]
#[path = "../tests/support/postgres.rs"]
#[allow(clippy::duplicate_mod, reason = "the tests of one database need only its server")]
mod test_server;
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
pub mod testing;
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
mod text_column;
mod timestamp;
mod todo;
mod turn;
mod usage;
pub mod values;
#[cfg(all(feature = "axum", any(feature = "_sqlite", feature = "postgres")))]
pub mod web;

#[cfg(any(feature = "_sqlite", feature = "postgres"))]
pub use sqlx;

pub use self::branch::{Cut, Point};
pub use self::conversation::{Conversation, ConversationChanges, ConversationOrder, ListConversations};
pub use self::display::display_items;
pub use self::display::{ContentType, DisplayItem, DisplayKind};
pub use self::display_message::{DisplayMessage, MessagePage, MessagePosition, NewDisplayMessage, SearchPage};
pub use self::error::{Error, Result};
pub use self::export::{Export, ExportError, ExportedConversation, ExportedMessage, ExportedUsage};
pub use self::extensions::Extensions;
pub use self::message::{
    Content, ContentPart, Message, MessageStatus, PartKind, Role, ToolCall, ToolCallStatus, ToolResult,
};
pub use self::messages::Messages;
pub use self::owner::{Key, Owner, OwnerScope, Reach};
pub use self::page::{Cursor, Page};
pub use self::persistence::{
    AgentPersistence, Expect, Lifecycle, LoadContext, Loaded, PersistContext, Revision, SaveOptions,
};
pub use self::run::{BeginRun, ClaimedRun, Run, RunSignal, RunStatus, RunUpdate};
pub use self::serializer::{ReadError, TooDeep};
pub use self::state::State;
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
pub use self::store::branches::{Fork, Forked, Rewound};
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
pub use self::store::conversations::Expired;
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
pub use self::store::states::{Saved, UnreadableData, UnreadableMessage, UnreadableState};
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
pub use self::store::{ChangeCursor, Changes, Imported, Store, Watch};
pub use self::tables::{Group, KeyKind, OwnerColumn, SCHEMA, Tables};
pub use self::timestamp::Timestamp;
pub use self::todo::{Todo, TodoId, TodoStatus};
pub use self::turn::{Claim, Decided, Decision, Delivery, SignedDecision, StoredCall, ToolStatus};
pub use self::usage::{MessageUsage, ModelUsage, Price, TokenUsage, Usage, UsageOf, set_usage, usage_of};
