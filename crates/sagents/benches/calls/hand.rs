//! The statements that both databases have by hand.

use sagents::{Conversation, DisplayMessage, NewDisplayMessage, Store, Timestamp, ToolStatus};
use serde_json::{Map, Value};
use uuid::Uuid;

/// Opens the databases of a benchmark.
pub trait Place: Sized {
    type Hand: ByHand;

    /// `SQLite` has one writer at a time.
    const HAS_MANY_WRITERS: bool;
    /// The target for loading 1,000 messages.
    const LOADED: &str;

    fn new() -> Self;

    fn description(&self) -> String;

    /// A new database with conversations of one owner, each with this many messages. The store has the same pool.
    async fn database(&self, name: &str, messages: &[i64]) -> (Store, Self::Hand);
}

/// A pool, and statements as one would write them for these tables and this database.
pub trait ByHand: Clone + Send + Sync + 'static {
    type Row;

    /// Statements are planned for the current rows from now on, and the log is empty.
    async fn settle(&self);

    /// The bytes that this writes to the write-ahead log.
    async fn logged(&self, work: impl Future<Output = ()>) -> u64;

    /// Creates a store, which expands its statements.
    fn new_store(&self) -> Store;

    /// A write of a context, with the library's help: it waits for its turn or is retried.
    async fn set_title_with_help(&self, id: Uuid, title: &str);

    async fn set_title(&self, id: Uuid, title: &str);

    async fn set_interrupted(&self, id: Uuid, interrupted: bool);

    async fn usage(&self, id: Uuid) -> Vec<Self::Row>;

    fn append(
        &self,
        conversation_id: Uuid,
        items: Vec<NewDisplayMessage>,
    ) -> impl Future<Output = Vec<DisplayMessage>> + Send;

    /// The first hundred messages.
    async fn page(&self, conversation_id: Uuid) -> Vec<DisplayMessage>;

    /// The messages behind a change.
    async fn changes(&self, conversation_id: Uuid, after: i64) -> Vec<DisplayMessage>;

    async fn clear(&self, conversation_id: Uuid) -> u64;

    /// The first twenty messages with all these words.
    async fn search(&self, words: &[&str]) -> Vec<DisplayMessage>;

    async fn get_tool_call(&self, conversation_id: Uuid, tool_call_id: &str) -> DisplayMessage;

    async fn change_tool_call(
        &self,
        conversation_id: Uuid,
        tool_call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> DisplayMessage;

    /// A person approves a tool call, which has a result.
    async fn approve(&self, conversation_id: Uuid, tool_call_id: &str, claim: Uuid) -> DisplayMessage;

    async fn resolve(&self, conversation_id: Uuid, tool_call_id: &str, content: &str) -> DisplayMessage;

    async fn delete_before(&self, cutoff: Timestamp) -> u64;

    /// The snapshot way: a text that is ready, messages included, in one column.
    async fn save_snapshot(&self, conversation_id: Uuid, data: &str, expected: i64) -> i64;

    /// The header and the messages of a state, which nobody parses.
    async fn load_rows(&self, conversation_id: Uuid) -> Vec<Self::Row>;

    async fn load_unreadable(&self, conversation_id: Uuid, epoch: i64) -> Vec<Self::Row>;

    async fn restore_unreadable(&self, conversation_id: Uuid, epoch: i64) -> i64;

    async fn discard_unreadable(&self, conversation_id: Uuid, epoch: i64);

    async fn fork(&self, id: Uuid, new: Uuid, message_id: Uuid) -> Conversation;

    async fn rewind(&self, id: Uuid, message_id: Uuid) -> u64;

    async fn export(&self, id: Uuid) -> Vec<u8>;

    async fn import(&self, file: &[u8]) -> Conversation;

    /// Deletes messages: all but the first 10 of a conversation, all but the first 10,000 of others.
    async fn trim(&self, short: Uuid);
}

/// The metadata of a call that a person approved.
pub fn approval(claim: Uuid) -> Map<String, Value> {
    let decision = serde_json::json!({ "type": "approve", "at": Timestamp::now() });
    Map::from_iter([
        ("hitl_decision".into(), "approved".into()),
        ("decision".into(), decision),
        ("decision_claim".into(), claim.to_string().into()),
    ])
}

/// Whether the status of a call may change, by hand.
pub fn may_change(call: &DisplayMessage, status: ToolStatus) -> bool {
    let before: &[&str] = match status {
        ToolStatus::Executing => &["pending", "interrupted"],
        _ => &["pending", "executing", "interrupted"],
    };
    let current = call.status.unwrap();
    let is_approved = call.metadata.get("hitl_decision").is_some_and(|decision| decision == "approved");
    let starts_unapproved = (current, status) == (ToolStatus::Interrupted, ToolStatus::Executing) && !is_approved;
    before.contains(&current.as_str()) && !starts_unapproved
}

/// A pattern for a letter in either case, by hand.
pub fn either_case(c: char) -> String {
    if c.is_alphabetic() { format!("[{}{}]", c.to_lowercase(), c.to_uppercase()) } else { c.to_string() }
}
