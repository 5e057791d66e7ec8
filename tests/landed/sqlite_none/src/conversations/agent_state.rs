//! The stored state of a conversation's agent.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::FromRow;
use uuid::Uuid;

/// A row of `sagents_agent_states`: what the agent knows, one row per conversation.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct AgentState {
    /// The conversation whose agent it is.
    pub conversation_id: Uuid,
    /// The version of the format that was last saved.
    pub version: i32,
    /// Counts the saves; a writer that holds an older revision has missed one.
    pub revision: i64,
    /// Identifies the save, so that repeating it changes nothing.
    pub write_id: Uuid,
    /// The state as JSON text, exactly as it was saved.
    pub data: String,
    /// What `data` held when it could not be read, kept until it is restored.
    pub unreadable_data: Option<String>,
    /// When it was first saved.
    pub inserted_at: DateTime<Utc>,
    /// When it was last saved.
    pub updated_at: DateTime<Utc>,
}
