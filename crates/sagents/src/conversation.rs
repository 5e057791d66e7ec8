//! The model of a conversation, and what its calls take.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::page::{Cursor, Position, is_cut, rows_to_read};
use crate::{Result, Timestamp};

/// A row of `{prefix}conversations`.
///
/// As JSON it has neither its owner nor its scope, so you can send it to a browser.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Conversation {
    /// A `UUIDv7`.
    pub id: Uuid,
    /// The title that a person sees.
    pub title: Option<String>,
    /// The owner that created it, as JSON: `{"type": "user", "id": 123}`.
    #[serde(skip)]
    pub scope: Value,
    /// Data of your application's.
    pub metadata: Map<String, Value>,
    /// Whether the agent waits for a person's decision.
    pub interrupted: bool,
    /// When it was created.
    pub inserted_at: Timestamp,
    /// When anything in the conversation was last written. It never goes back.
    pub updated_at: Timestamp,
    /// When it was archived, if it is.
    pub archived_at: Option<Timestamp>,
}

/// What to change in a conversation. Everything else stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConversationChanges {
    /// The new title. `Some(None)` removes it.
    #[allow(clippy::option_option, reason = "keep, remove or set")]
    pub title: Option<Option<String>>,
    /// The new metadata, which replaces the old as a whole.
    pub metadata: Option<Map<String, Value>>,
    /// Archives the conversation, or brings it back.
    pub archived: Option<bool>,
}

impl ConversationChanges {
    /// Replaces the title.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(Some(title.into()));
        self
    }

    /// Removes the title.
    #[must_use]
    pub fn clear_title(mut self) -> Self {
        self.title = Some(None);
        self
    }

    /// Replaces the metadata.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Archives the conversation, or brings it back.
    #[must_use]
    pub fn archived(mut self, archived: bool) -> Self {
        self.archived = Some(archived);
        self
    }
}

/// Which page of conversations to read. It deserializes from a query string, for example
/// `order_by=created&archived=true&limit=20&after=…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListConversations {
    /// [`ConversationOrder::Updated`] by default.
    pub order_by: ConversationOrder,
    /// Whether to list the archived conversations instead of the active ones.
    pub archived: bool,
    /// From 1 to [`ListConversations::MAX_LIMIT`].
    pub limit: u32,
    /// [`Page::next`](crate::Page::next) of the previous page, which was in the same order.
    pub after: Option<Cursor>,
}

impl ListConversations {
    /// The default limit.
    pub const DEFAULT_LIMIT: u32 = 50;
    /// The largest limit.
    pub const MAX_LIMIT: u32 = 200;

    /// The first page of active conversations, last updated first.
    #[must_use]
    pub fn new() -> Self {
        Self { order_by: ConversationOrder::default(), archived: false, limit: Self::DEFAULT_LIMIT, after: None }
    }

    /// Sets the order.
    #[must_use]
    pub fn order_by(mut self, order_by: ConversationOrder) -> Self {
        self.order_by = order_by;
        self
    }

    /// Lists the archived conversations, or the active ones.
    #[must_use]
    pub fn archived(mut self, archived: bool) -> Self {
        self.archived = archived;
        self
    }

    /// Sets the page's size.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// Continues behind the page whose [`next`](crate::Page::next) this is.
    #[must_use]
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// The key that the page starts behind: rows with a smaller `(updated_at, id)` follow, or with a smaller `id` in the
    /// order of creation, where the time has no meaning.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) if the cursor belongs to another list.
    pub fn start(&self) -> Result<(Timestamp, Uuid)> {
        match (self.order_by, self.after) {
            (_, None) => Ok((Timestamp::MAX, Uuid::max())),
            (ConversationOrder::Updated, Some(Cursor(Position::Updated(time, id)))) => Ok((time, id)),
            (ConversationOrder::Created, Some(Cursor(Position::Created(id)))) => Ok((Timestamp::MAX, id)),
            (_, Some(_)) => Err(Cursor::of_another_list()),
        }
    }

    /// The number of rows to read for [`Page::new`](crate::Page::new): one more than the limit.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) if the limit is 0 or above [`MAX_LIMIT`](Self::MAX_LIMIT).
    pub fn rows_to_read(&self) -> Result<i64> {
        rows_to_read(self.limit, Self::MAX_LIMIT).map(i64::from)
    }

    /// Whether the rows of a group's list were cut within one position: members of a group can have conversations with the
    /// same id, and a page must not separate them. If so, read twice as many rows. `read` is the number you asked for.
    ///
    /// ```
    /// # use sagents::{Conversation, ListConversations, Page, Result};
    /// # async fn select(limit: i64) -> Result<Vec<Conversation>> { Ok(Vec::new()) }
    /// # async fn example(list: ListConversations) -> Result<Page<Conversation>> {
    /// let cursor = |row: &Conversation| list.cursor(row.updated_at, row.id);
    /// let mut read = list.rows_to_read()?;
    /// loop {
    ///     let rows = select(read).await?;
    ///     if !list.is_cut(&rows, read, cursor) {
    ///         return Ok(Page::new(rows, list.limit, cursor));
    ///     }
    ///     read *= 2;
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn is_cut<T>(&self, rows: &[T], read: i64, cursor: impl Fn(&T) -> Cursor) -> bool {
        is_cut(rows, self.limit, read, cursor)
    }

    /// The cursor that continues this list behind a conversation.
    #[must_use]
    pub fn cursor(&self, updated_at: Timestamp, id: Uuid) -> Cursor {
        Cursor(match self.order_by {
            ConversationOrder::Updated => Position::Updated(updated_at, id),
            ConversationOrder::Created => Position::Created(id),
        })
    }
}

impl Default for ListConversations {
    fn default() -> Self {
        Self::new()
    }
}

/// The order of a list of conversations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationOrder {
    /// Last updated first.
    #[default]
    Updated,
    /// Last created first, by id: ids are `UUIDv7`.
    Created,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, Page};

    #[test]
    fn a_list_takes_only_its_own_cursors() {
        let (time, id) = (Timestamp::now(), Uuid::now_v7());
        let updated = ListConversations::new();
        let created = updated.order_by(ConversationOrder::Created);
        assert_eq!(updated.after(updated.cursor(time, id)).start().unwrap(), (time, id));
        assert_eq!(created.after(created.cursor(time, id)).start().unwrap(), (Timestamp::MAX, id));
        for list in [created.after(updated.cursor(time, id)), updated.after(created.cursor(time, id))] {
            assert!(matches!(list.start(), Err(Error::Invalid(_))));
        }
    }

    #[test]
    fn a_list_deserializes_from_what_a_query_string_has() {
        let list: ListConversations = serde_json::from_str(r#"{ "order_by": "created", "archived": true }"#).unwrap();
        assert_eq!(list, ListConversations::new().order_by(ConversationOrder::Created).archived(true));
    }

    #[test]
    fn limits_are_checked() {
        for limit in [0, ListConversations::MAX_LIMIT + 1, u32::MAX] {
            assert!(matches!(ListConversations::new().limit(limit).rows_to_read(), Err(Error::Invalid(_))));
        }
        assert_eq!(ListConversations::new().limit(200).rows_to_read().unwrap(), 201);
    }

    #[test]
    fn a_page_keeps_rows_in_one_position_together() {
        let list = ListConversations::new().order_by(ConversationOrder::Created);
        let ids = [Uuid::from_u128(3), Uuid::from_u128(2), Uuid::from_u128(2), Uuid::from_u128(1)];
        let page = Page::new(ids.to_vec(), 2, |id| list.cursor(Timestamp::MAX, *id));
        assert_eq!((page.items, page.next), (ids[..3].to_vec(), Some(list.cursor(Timestamp::MAX, ids[2]))));
    }
}
