//! The calls that follow what happens to display messages, whichever process writes them.

use std::fmt;
use std::future::pending;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;
use tracing::instrument;
use uuid::Uuid;

use super::{Signals, Store, with_driver};
use crate::page::{deserialize_text, rows_to_read};
use crate::{DisplayMessage, Error, Owner, OwnerScope, Reach, Result};

/// Where a conversation is: the numbers of its last change, and of the last one that deleted messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastChange {
    pub(crate) changed: i64,
    pub(crate) removed: i64,
}

impl Store {
    /// Returns the display messages that are new or changed since a position: each once, as it is now, in the order of
    /// their changes. If messages were deleted since, it begins again; see [`Changes::reset`].
    ///
    /// There are at most `limit` messages with about [`Changes::MAX_BYTES`], or more if a single change has more.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation, [`Error::Invalid`] if the limit is 0 or above
    /// [`Changes::MAX_LIMIT`].
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn changes(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        after: ChangeCursor,
        limit: u32,
    ) -> Result<Changes> {
        let read = rows_to_read(limit, Changes::MAX_LIMIT)?;
        let owner = self.owner_of(scope, conversation_id).await?;
        let last = self.last_change(&owner, conversation_id).await?;
        self.read_changes(&owner, conversation_id, after, last, read).await
    }

    /// Waits for display messages that are new or changed since a position.
    ///
    /// A watch notices changes by this process at once, and those by others within a second, or at once with
    /// [notifications](crate::postgres::Store::with_notifications) on `PostgreSQL`.
    ///
    /// # Errors
    ///
    /// [`Error::NoOwner`] if the scope reaches nothing.
    pub fn watch(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        after: ChangeCursor,
    ) -> Result<Watch> {
        Ok(Watch {
            reach: scope.reach()?,
            conversation_id,
            cursor: after,
            seen: None,
            signals: with_driver!(self, driver => driver.subscribe()),
            interval: None,
            store: self.clone(),
        })
    }

    async fn last_change(&self, owner: &Owner, conversation_id: Uuid) -> Result<LastChange> {
        let last = with_driver!(self, driver => driver.last_change(owner, conversation_id).await?);
        last.ok_or(Error::NotFound)
    }

    /// `last` was read before: if messages are deleted in between, the next call notices it.
    async fn read_changes(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        start: ChangeCursor,
        last: LastChange,
        rows: u32,
    ) -> Result<Changes> {
        let (mut rows, mut bytes) = (rows, Changes::MAX_BYTES);
        let is_stale = start.removed < last.removed;
        // Everything again, as it is now.
        let after = if is_stale { ChangeCursor { changed: 0, removed: last.removed } } else { start };
        loop {
            let found =
                with_driver!(self, driver => driver.changes(owner, conversation_id, after.changed, rows, bytes).await?);
            let (mut items, fit) = found.into_parts();
            let cut = items.drain(items.len().min(fit as usize)..).next();
            let more = cut.is_some();
            if let Some(cut) = cut {
                // The rest of this change may be on the next page.
                items.retain(|item| item.changed < cut.changed);
            }
            if items.is_empty() && more {
                (rows, bytes) = (rows.saturating_mul(2), bytes.saturating_mul(2));
                continue;
            }
            let next = items.iter().fold(after, ChangeCursor::behind);
            let reset = is_stale && start.changed > 0;
            return Ok(Changes { items, next, more, reset });
        }
    }
}

/// Display messages that are new or changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Changes {
    /// In the order of their changes.
    pub items: Vec<DisplayMessage>,
    /// For the next call.
    pub next: ChangeCursor,
    /// Whether there are more already.
    pub more: bool,
    /// Messages were deleted since the position: forget all that you have. These are the first of those that exist.
    pub reset: bool,
}

impl Changes {
    /// The largest limit.
    pub const MAX_LIMIT: u32 = 1000;
    /// About how many bytes the messages have as JSON, at most. A single change may have more.
    pub const MAX_BYTES: usize = 64 * 1024;
}

/// A position in the changes of a conversation. Its text, which it also serializes as, is for example `17.9`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChangeCursor {
    /// [`DisplayMessage::changed`] of the last change that was seen.
    changed: i64,
    /// The last change that deleted messages, as far as the reader knows. It's ahead of `changed` while the reader, who
    /// began again, hasn't come that far.
    removed: i64,
}

impl ChangeCursor {
    /// Before everything.
    pub const START: Self = Self { changed: 0, removed: 0 };

    /// Behind the newest messages of a conversation, for a reader who has loaded the last page.
    pub fn after<'a>(messages: impl IntoIterator<Item = &'a DisplayMessage>) -> Self {
        let seen = messages.into_iter().fold(Self::START, Self::behind);
        // A change that deletes messages also changes the last one that stays.
        Self { removed: seen.changed, ..seen }
    }

    fn behind(self, message: &DisplayMessage) -> Self {
        Self { changed: self.changed.max(message.changed), ..self }
    }
}

impl fmt::Display for ChangeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.changed, self.removed)
    }
}

impl FromStr for ChangeCursor {
    type Err = Error;

    /// [`Error::Invalid`] if it isn't the text of a position.
    fn from_str(text: &str) -> Result<Self> {
        let number = |digits: &str| digits.parse().ok().filter(|number| *number >= 0);
        let cursor = text.split_once('.').and_then(|(changed, removed)| {
            let (changed, removed) = (number(changed)?, number(removed)?);
            Some(Self { changed, removed })
        });
        cursor.ok_or_else(|| Error::Invalid("not a position in the changes of a conversation".into()))
    }
}

impl Serialize for ChangeCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ChangeCursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_text(deserializer)
    }
}

/// Waits for changes of a conversation's display messages, from any process.
#[derive(Debug)]
pub struct Watch {
    store: Store,
    reach: Reach,
    conversation_id: Uuid,
    cursor: ChangeCursor,
    /// Where the conversation was when all its changes were read.
    seen: Option<LastChange>,
    signals: Signals,
    /// Instead of the store's.
    interval: Option<Duration>,
}

impl Watch {
    /// Sets how often it looks for changes by other processes, which costs a read of one row.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = Some(interval);
        self
    }

    /// Waits until display messages are new, changed or deleted. You can drop the future, for example in
    /// `tokio::select!`, and call it again: nothing is lost.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope doesn't reach the conversation, or no longer does.
    pub async fn next(&mut self) -> Result<Changes> {
        const ROWS: u32 = 101;

        let mut was_told = true;
        loop {
            let owner = self.store.owner_of(&self.reach, self.conversation_id).await?;
            let last = self.store.last_change(&owner, self.conversation_id).await?;
            if self.seen == Some(last) {
                was_told = self.signal().await;
                continue;
            }
            // With a short interval of its own, a watch may be faster than a notification.
            if !was_told && self.interval.is_none() {
                with_driver!(self.store, driver => driver.missed_signal());
            }
            let read = self.store.read_changes(&owner, self.conversation_id, self.cursor, last, ROWS);
            let changes = read.await?;
            self.cursor = changes.next;
            self.seen = (!changes.more).then_some(last);
            if changes.reset || !changes.items.is_empty() {
                return Ok(changes);
            }
        }
    }

    /// The position behind everything that was returned, for a watch that starts again.
    #[must_use]
    pub fn cursor(&self) -> ChangeCursor {
        self.cursor
    }

    /// Waits until the conversation may have changed, and returns whether somebody said so.
    async fn signal(&mut self) -> bool {
        let interval = self.interval.unwrap_or_else(|| with_driver!(self.store, driver => driver.interval()));
        let (signals, conversation_id) = (&mut self.signals, self.conversation_id);
        let told = async {
            loop {
                match signals.recv().await {
                    Ok(id) if id != conversation_id && !id.is_nil() => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => pending().await,
                }
            }
        };
        timeout(interval, told).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_two_numbers() {
        let cursor = ChangeCursor { changed: 17, removed: 9 };
        assert_eq!(cursor.to_string(), "17.9");
        assert_eq!("17.9".parse::<ChangeCursor>().unwrap(), cursor);
        assert_eq!(serde_json::to_string(&ChangeCursor::START).unwrap(), r#""0.0""#);
        for text in ["", "17", "17.", ".9", "-1.0", "1.-1", "1.2.3", "a.b", "9223372036854775808.0"] {
            assert!(matches!(text.parse::<ChangeCursor>(), Err(Error::Invalid(_))), "{text}");
        }
    }
}
