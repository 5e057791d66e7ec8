//! The stored state of a conversation's agent.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row as _};
use uuid::Uuid;

/// A row of `as_long_as_a_prefix_may_be_in_tablesagent_states`: what the agent knows, one row per conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
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

/// `data` is text to the byte here, which sqlx does not take JSON for by itself.
impl FromRow<'_, PgRow> for AgentState {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            conversation_id: row.try_get("conversation_id")?,
            version: row.try_get("version")?,
            revision: row.try_get("revision")?,
            write_id: row.try_get("write_id")?,
            data: row.try_get_unchecked("data")?,
            unreadable_data: row.try_get_unchecked("unreadable_data")?,
            inserted_at: row.try_get("inserted_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}