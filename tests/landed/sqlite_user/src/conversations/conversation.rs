//! A conversation, and what can be asked of many.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sqlx::FromRow;
use uuid::Uuid;

/// A row of `sagents_conversations`.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct Conversation {
    /// The user that owns it.
    pub user_id: i64,
    /// A `UUIDv7`, made by the caller.
    pub id: Uuid,
    /// What a person calls it.
    pub title: Option<String>,
    /// What created the conversation: `{"type": "user", "id": 123}`.
    #[sqlx(json)]
    pub scope: Value,
    /// The application's own data.
    #[sqlx(json)]
    pub metadata: Map<String, Value>,
    /// The agent waits for a person's decision.
    pub interrupted: bool,
    /// Shown above the others. Added by the host.
    pub pinned: bool,
    /// When it was created.
    pub inserted_at: DateTime<Utc>,
    /// When anything in the conversation was last written.
    pub updated_at: DateTime<Utc>,
}

impl Conversation {
    /// Where the next page of a list starts when this is the last conversation of a page.
    #[must_use]
    pub fn cursor(&self) -> ConversationCursor {
        ConversationCursor {
            updated_at: self.updated_at,
            id: self.id,
        }
    }
}

/// A conversation to create. Creating the same one again stores nothing and returns the first.
#[derive(Debug, Clone, PartialEq)]
pub struct NewConversation {
    /// A `UUIDv7`, made by [`NewConversation::new`].
    pub id: Uuid,
    /// What a person calls it.
    pub title: Option<String>,
    /// The application's own data.
    pub metadata: Map<String, Value>,
}

impl NewConversation {
    /// A conversation without a title, with a new id.
    #[must_use]
    pub fn new() -> Self {
        Self {
            id: Uuid::now_v7(),
            title: None,
            metadata: Map::new(),
        }
    }

    /// With this title.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// With data of the application's own.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.metadata = metadata;
        self
    }
}

impl Default for NewConversation {
    fn default() -> Self {
        Self::new()
    }
}

/// What to change in a conversation; the rest stays as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConversationChanges {
    /// The title, which may be taken away.
    pub title: Change<Option<String>>,
    /// The metadata, as a whole.
    pub metadata: Change<Map<String, Value>>,
}

impl ConversationChanges {
    /// Replaces the title.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Change::To(Some(title.into()));
        self
    }

    /// Takes the title away.
    #[must_use]
    pub fn clear_title(mut self) -> Self {
        self.title = Change::To(None);
        self
    }

    /// Replaces the metadata.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.metadata = Change::To(metadata);
        self
    }
}

/// A new value, or none.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Change<T> {
    /// What is there stays.
    #[default]
    Keep,
    /// This takes its place.
    To(T),
}

/// A page of the caller's conversations.
#[derive(Debug, Clone, PartialEq)]
pub struct ListConversations {
    /// What comes first.
    pub order_by: ConversationOrder,
    /// At most [`ListConversations::MAX_LIMIT`].
    pub limit: u32,
    /// The [cursor](Conversation::cursor) of the last conversation of the page before.
    pub after: Option<ConversationCursor>,
}

impl ListConversations {
    /// How many there are on a page if nothing is said.
    pub const DEFAULT_LIMIT: u32 = 50;
    /// How many there are on a page at most.
    pub const MAX_LIMIT: u32 = 200;
}

impl Default for ListConversations {
    fn default() -> Self {
        Self {
            order_by: ConversationOrder::default(),
            limit: Self::DEFAULT_LIMIT,
            after: None,
        }
    }
}

/// How a list of conversations is ordered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationOrder {
    /// The one that was written to last comes first.
    #[default]
    UpdatedDesc,
    /// The one that nothing was written to for the longest time comes first.
    UpdatedAsc,
    /// The newest comes first. This goes by id, which is by time: ids are `UUIDv7`.
    CreatedDesc,
    /// The oldest comes first.
    CreatedAsc,
}

/// A place in a list of conversations. It serializes, so that it can travel through a web page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationCursor {
    /// When the conversation was last written to.
    pub updated_at: DateTime<Utc>,
    /// The conversation.
    pub id: Uuid,
}

impl ConversationCursor {
    /// Before every conversation.
    pub(super) const FIRST: Self = Self {
        updated_at: DateTime::<Utc>::MIN_UTC,
        id: Uuid::nil(),
    };
    /// After every conversation.
    pub(super) const LAST: Self = Self {
        updated_at: DateTime::<Utc>::MAX_UTC,
        id: Uuid::max(),
    };
}
