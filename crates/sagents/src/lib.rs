//! Persistence for AI agents: conversations and who owns them, agent state, and the messages a UI shows.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

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
pub use self::conversation::{
    Conversation, ConversationChanges, ConversationOrder, ListConversations, NewConversation,
};
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
pub use self::persistence::{AgentPersistence, Expect, Lifecycle, LoadContext, Loaded, PersistContext, Revision};
pub use self::run::{BeginRun, Run, RunSignal, RunStatus};
pub use self::serializer::{ReadError, TooDeep};
pub use self::state::State;
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
pub use self::store::branches::{Fork, Forked, Rewound};
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
pub use self::store::states::{Saved, UnreadableData, UnreadableMessage, UnreadableState};
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
pub use self::store::{ChangeCursor, Changes, Imported, Store, Watch};
pub use self::tables::{Group, KeyKind, OwnerColumn, SCHEMA, Tables};
pub use self::timestamp::Timestamp;
pub use self::todo::{Todo, TodoId, TodoStatus};
pub use self::turn::{Claim, Decided, Decision, Delivery, StoredCall, ToolStatus};
pub use self::usage::{MessageUsage, ModelUsage, Price, TokenUsage, Usage, set_usage, usage_of};
