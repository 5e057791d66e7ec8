//! A conversation.

use sagents::sqlx::types::Json;
use sagents::sqlx::{{ row_import }};
use sagents::sqlx::{self, FromRow, Row as _};
use sagents::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

/// A row of `{{ prefix }}conversations`. Add your own columns to the struct, to
/// [`COLUMNS`](Self::COLUMNS), to `from_row`, and to the statements in `{{ file }}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Conversation {
{%- if let Some(owner) = owner %}
    /// The {{ owner.noun }} that owns it.
    #[serde(skip)]
    pub {{ owner.field }}: {{ owner.rust_type }},
{%- endif %}
    /// A `UUIDv7`.
    pub id: Uuid,
    /// The title.
    pub title: Option<String>,
    /// Data of the application.
    pub metadata: Map<String, Value>,
    /// Whether the agent waits for a decision.
    pub interrupted: bool,
    /// When it was created.
    pub inserted_at: Timestamp,
    /// When anything in it was last written.
    pub updated_at: Timestamp,
    /// When it was archived, if it is.
    pub archived_at: Option<Timestamp>,
}

impl Conversation {
    /// The columns that forks and imports copy, and that the tests compare with the table.
    pub const COLUMNS: &[&str] = &[
        "{{ owner_column }}",
        "id",
        "title",
        "metadata",
        "interrupted",
        "inserted_at",
        "updated_at",
        "archived_at",
    ];
}

impl FromRow<'_, {{ row }}> for Conversation {
    fn from_row(row: &{{ row }}) -> sqlx::Result<Self> {
        let Json(metadata) = row.try_get("metadata")?;
        Ok(Self {
{%- if let Some(owner) = owner %}
            {{ owner.field }}: row{{ owner.get }},
{%- endif %}
            id: row.try_get("id")?,
            title: row.try_get("title")?,
            metadata,
            interrupted: row.try_get("interrupted")?,
            inserted_at: row.try_get("inserted_at")?,
            updated_at: row.try_get("updated_at")?,
            archived_at: row.try_get("archived_at")?,
        })
    }
}

/// A conversation to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewConversation {
    /// A `UUIDv7`. Choose it yourself to make the call repeatable.
    pub id: Uuid,
    /// The title.
    pub title: Option<String>,
    /// Data of the application.
    pub metadata: Map<String, Value>,
}

impl Default for NewConversation {
    fn default() -> Self {
        Self { id: Uuid::now_v7(), title: None, metadata: Map::new() }
    }
}

/// The fields of a conversation to change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConversationChanges {
    /// `Some(None)` removes the title.
    #[allow(clippy::option_option, reason = "unchanged, removed or set")]
    pub title: Option<Option<String>>,
    /// The new metadata, as a whole.
    pub metadata: Option<Map<String, Value>>,
    /// Archives the conversation or brings it back.
    pub archived: Option<bool>,
}
