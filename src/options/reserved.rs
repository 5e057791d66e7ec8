//! Reserved names: what the generated code names itself, so that nothing of the host may be called so.

use super::Web;

/// Whether generated code names a crate.
pub(super) fn is_crate(name: &str, web: Web) -> bool {
    CRATES.contains(&name) || (web == Web::Axum && WEB_CRATES.contains(&name))
}

/// Whether generated code names a type so: no context may be called so, and a scope that is goes by its whole path.
pub fn is_reserved(name: &str, web: Web) -> bool {
    RESERVED_TYPES.contains(&name) || (web == Web::Axum && WEB_TYPES.contains(&name))
}

const CRATES: &[&str] = &["alloc", "core", "sagents", "serde", "serde_json", "std", "tokio", "uuid"];

const WEB_CRATES: &[&str] = &["axum", "futures_util", "tracing", "tracing_subscriber"];

/// Modules of a new package with a page, beside those of the context and the scope.
pub(super) const PAGE_MODULES: &[&str] = &["agent", "login", "model"];

const RESERVED_TYPES: &[&str] = &[
    "AgentState",
    "ContentType",
    "Conversation",
    "ConversationChanges",
    "ConversationOrder",
    "Default",
    "Delivery",
    "DisplayMessage",
    "Err",
    "Error",
    "Expect",
    "FromRow",
    "Group",
    "Json",
    "Key",
    "KeyKind",
    "ListConversations",
    "Map",
    "Message",
    "MessagePage",
    "NewConversation",
    "NewDisplayMessage",
    "None",
    "Ok",
    "Option",
    "Owner",
    "OwnerColumn",
    "OwnerScope",
    "Page",
    "PgPool",
    "PgRow",
    "Reach",
    "Result",
    "Revision",
    "Role",
    "Row",
    "Saved",
    "Serialize",
    "Some",
    "SqlitePool",
    "SqliteRow",
    "State",
    "Store",
    "String",
    "Tables",
    "TestDatabase",
    "Timestamp",
    "ToolStatus",
    "Uuid",
    "Value",
    "Vec",
];

/// The types that the glue of the routes names, besides.
const WEB_TYPES: &[&str] = &["ConversationContext"];
