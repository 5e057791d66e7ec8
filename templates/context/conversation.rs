//! The model of a conversation, and what its calls take.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::Result;
use super::page::{Cursor, Position};
use super::values::{check_id, clean_json, clean_text};
use crate::sagents::timestamp::{self, Timestamp};

/// A row of `{{ prefix }}conversations`.
///
{%- if owner.is_some() %}
/// As JSON it has neither its owner nor its scope, so it can be sent to a browser.
{%- else %}
/// As JSON it does not have its scope, so it can be sent to a browser.
{%- endif %}
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Conversation {
{%- if let Some(owner) = owner %}
    /// The {{ owner.noun }} that owns it.
    #[serde(skip)]
    pub {{ owner.field }}: {{ owner.rust_type }},
{%- endif %}
    /// A `UUIDv7`, made by the caller.
    pub id: Uuid,
    /// The title that a person sees.
    pub title: Option<String>,
    /// The owner that created it, as JSON: `{{ scope_example }}`.
    #[serde(skip)]
    pub scope: Value,
    /// Data of the application's.
    pub metadata: Map<String, Value>,
    /// Whether the agent waits for a person's decision.
    pub interrupted: bool,
    /// When it was created.
    #[serde(with = "timestamp")]
    pub inserted_at: Timestamp,
    /// When anything in the conversation was last written. It never goes back.
    #[serde(with = "timestamp")]
    pub updated_at: Timestamp,
    /// When it was archived, if it is.
    #[serde(with = "timestamp::option")]
    pub archived_at: Option<Timestamp>,
}

impl Conversation {
    /// For [`ListConversations::after`]: continues a list in this order behind this conversation.
    #[must_use]
    pub fn cursor(&self, order_by: ConversationOrder) -> Cursor {
        Cursor(if order_by.is_by_update() {
            Position::Updated(self.updated_at, self.id)
        } else {
            Position::Created(self.id)
        })
    }
}

/// A conversation to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewConversation {
    /// A `UUIDv7`. [`NewConversation::new`] makes one.
    pub id: Uuid,
    /// The title that a person sees.
    pub title: Option<String>,
    /// Data of the application's.
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

    /// Sets the id, which must be a `UUIDv7`.
    #[must_use]
    pub fn id(mut self, id: Uuid) -> Self {
        self.id = id;
        self
    }

    /// Sets the title.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the metadata.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.metadata = metadata;
        self
    }

    pub(super) fn checked(mut self) -> Result<Self> {
        check_id(self.id)?;
        self.title = self.title.as_deref().map(clean_text);
        self.metadata = clean_json(self.metadata)?;
        Ok(self)
    }
}

impl Default for NewConversation {
    fn default() -> Self {
        Self::new()
    }
}

/// What to change in a conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConversationChanges {
    /// A new title, or `None` to remove it.
    pub title: Change<Option<String>>,
    /// The new metadata, as a whole.
    pub metadata: Change<Map<String, Value>>,
}

impl ConversationChanges {
    /// Replaces the title.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Change::To(Some(title.into()));
        self
    }

    /// Removes the title.
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

    pub(super) fn checked(mut self) -> Result<Self> {
        if let Change::To(Some(title)) = &mut self.title {
            *title = clean_text(title);
        }
        if let Change::To(metadata) = self.metadata {
            self.metadata = Change::To(clean_json(metadata)?);
        }
        Ok(self)
    }
}

/// A field of [`ConversationChanges`].
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Change<T> {
    /// The stored value stays.
    #[default]
    Keep,
    /// The new value.
    To(T),
}

/// Which page of conversations to read. It deserializes from a query string, for example
/// `order_by=created_asc&archived=include&limit=20&after=…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListConversations {
    /// [`ConversationOrder::UpdatedDesc`] by default.
    pub order_by: ConversationOrder,
    /// [`Archived::Exclude`] by default.
    pub archived: Archived,
    /// From 1 to [`ListConversations::MAX_LIMIT`].
    pub limit: u32,
    /// [`Page::next`](super::Page::next) of the page before, which was in the same order or its
    /// reverse.
    pub after: Option<Cursor>,
}

impl ListConversations {
    /// The default limit.
    pub const DEFAULT_LIMIT: u32 = 50;
    /// The largest limit.
    pub const MAX_LIMIT: u32 = 200;

    /// The first page in the default order.
    #[must_use]
    pub fn new() -> Self {
        Self {
            order_by: ConversationOrder::default(),
            archived: Archived::default(),
            limit: Self::DEFAULT_LIMIT,
            after: None,
        }
    }

    /// Sets the order.
    #[must_use]
    pub fn order_by(mut self, order_by: ConversationOrder) -> Self {
        self.order_by = order_by;
        self
    }

    /// Sets what happens to archived conversations.
    #[must_use]
    pub fn archived(mut self, archived: Archived) -> Self {
        self.archived = archived;
        self
    }

    /// Sets the size of the page.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// Continues with the page that this cursor is the [`next`](super::Page::next) of.
    #[must_use]
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// The key that the page starts behind. Where the order is by id, the time has no meaning.
    pub(super) fn start(&self) -> Result<(Timestamp, Uuid)> {
        match self.after {
            Some(Cursor(Position::Updated(time, id))) if self.order_by.is_by_update() => Ok((time, id)),
            Some(Cursor(Position::Created(id))) if !self.order_by.is_by_update() => {
                Ok((timestamp::MIN, id))
            }
            Some(_) => Err(Cursor::of_another_list()),
            None => Ok(match self.order_by {
                ConversationOrder::UpdatedDesc | ConversationOrder::CreatedDesc => {
                    (timestamp::MAX, Uuid::max())
                }
                ConversationOrder::UpdatedAsc | ConversationOrder::CreatedAsc => {
                    (timestamp::MIN, Uuid::nil())
                }
            }),
        }
    }
}

impl Default for ListConversations {
    fn default() -> Self {
        Self::new()
    }
}

/// The order of a list of conversations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationOrder {
    /// Last written first.
    #[default]
    UpdatedDesc,
    /// Last written last.
    UpdatedAsc,
    /// Newest first, by id: ids are `UUIDv7`.
    CreatedDesc,
    /// Oldest first, by id.
    CreatedAsc,
}

impl ConversationOrder {
    pub(super) fn is_by_update(self) -> bool {
        matches!(self, Self::UpdatedDesc | Self::UpdatedAsc)
    }
}

/// What a list does with archived conversations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Archived {
    /// It leaves them out.
    #[default]
    Exclude,
    /// It has them beside the others.
    Include,
    /// It has only them.
    Only,
}
