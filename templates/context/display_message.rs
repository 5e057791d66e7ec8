//! A message that a UI shows.

use sagents::sqlx::types::Json;
use sagents::sqlx::{{ row_import }};
use sagents::sqlx::{self, FromRow, Row as _};
use sagents::{ContentType, Delivery, Role, Timestamp, ToolStatus};
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

/// A row of `{{ prefix }}display_messages`: a text, a thought, a file, a tool call or a result. Add your own
/// columns to the struct, to [`COLUMNS`](Self::COLUMNS) and to `from_row`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DisplayMessage {
{%- if let Some(owner) = owner %}
    /// The {{ owner.noun }} that owns its conversation.
    #[serde(skip)]
    pub {{ owner.field }}: {{ owner.rust_type }},
{%- endif %}
    /// The conversation that it belongs to.
    pub conversation_id: Uuid,
    /// Its place in the conversation. Numbers aren't reused.
    pub sequence: i64,
    /// The agent's message that it's an item of.
    pub message_id: Uuid,
    /// Its place in that message.
    pub item: i32,
    /// Who wrote it.
    pub role: Role,
    /// What `content` is.
    pub content_type: ContentType,
    /// The text to show.
    pub content: String,
    /// The arguments of a tool call, token usage, and data of the application.
    pub metadata: Map<String, Value>,
    /// Set for tool calls and their results.
    pub tool_call_id: Option<String>,
    /// Set for tool calls.
    pub status: Option<ToolStatus>,
    /// When it was appended.
    pub inserted_at: Timestamp,
    /// The number of the conversation's change that wrote it last.
    pub changed: i64,
    /// Whether it's final. `None` is a stored message.
    pub delivery: Option<Delivery>,
}

impl DisplayMessage {
    /// The columns that reads return and that forks copy. The tests compare them with the table.
    pub const COLUMNS: &[&str] = &[
        "{{ owner_column }}",
        "conversation_id",
        "sequence",
        "message_id",
        "item",
        "role",
        "content_type",
        "content",
        "metadata",
        "tool_call_id",
        "status",
        "inserted_at",
        "changed",
        "delivery",
    ];
}

impl FromRow<'_, {{ row }}> for DisplayMessage {
    fn from_row(row: &{{ row }}) -> sqlx::Result<Self> {
        let Json(metadata) = row.try_get("metadata")?;
        Ok(Self {
{%- if let Some(owner) = owner %}
            {{ owner.field }}: row{{ owner.get }},
{%- endif %}
            conversation_id: row.try_get("conversation_id")?,
            sequence: row.try_get("sequence")?,
            message_id: row.try_get("message_id")?,
            item: row.try_get("item")?,
            role: row.try_get("role")?,
            content_type: row.try_get("content_type")?,
            content: row.try_get("content")?,
            metadata,
            tool_call_id: row.try_get("tool_call_id")?,
            status: row.try_get("status")?,
            inserted_at: row.try_get("inserted_at")?,
            changed: row.try_get("changed")?,
            delivery: row.try_get("delivery")?,
        })
    }
}
