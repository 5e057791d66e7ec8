//! The calls that follow what happens to display messages, whichever process writes them.

use std::fmt;
use std::future::pending;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::timeout;
use tracing::instrument;
use uuid::Uuid;

use super::page::{PageRows, deserialize_text, rows_to_read};
use super::{{ '{' }}{{ context }}, DisplayMessage, Error, OwnerScope, Reach, Result};

impl {{ context }} {
    /// The display messages that are new or changed since a position, in the order of the changes:
    /// each once, as it is now. At most `limit` and about [`Changes::MAX_BYTES`], and more if one change has
    /// more. If messages were deleted since, it begins again; see [`Changes::reset`].
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation, [`Error::Invalid`] if the limit is
    /// 0 or above [`Changes::MAX_LIMIT`].
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn changes(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        after: ChangeCursor,
        limit: u32,
    ) -> Result<Changes> {
        self.read_changes(&scope.reach()?, conversation_id, after, limit).await
    }

    /// Waits for display messages that are new or changed since a position. Changes by this process are
    /// noticed at once, those by others within a second. With
    /// [notifications](Self::with_notifications) on `PostgreSQL`, others are noticed at once too, or
    /// within half a minute if they send none.
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
            signals: self.store.subscribe(),
            interval: self.store.interval(),
            context: self.clone(),
        })
    }

    async fn read_changes(
        &self,
        reach: &Reach,
        conversation_id: Uuid,
        after: ChangeCursor,
        limit: u32,
    ) -> Result<Changes> {
        let mut read = rows_to_read(limit, Changes::MAX_LIMIT)?;
        let mut bytes = Changes::MAX_BYTES;
        let (start, mut after) = (after, after);
        loop {
            let mut rows = PageRows::new(read, bytes);
            let last_removal = self.store.changes(reach, conversation_id, after, &mut rows).await?;
            if after.removed < last_removal {
                // Everything again, as it is now.
                after = ChangeCursor {
                    removed: last_removal,
                    ..ChangeCursor::START
                };
                if start.has_seen() {
                    continue;
                }
            }
            let (mut items, limit) = rows.into_parts();
            let more = items.len() > limit as usize;
            let last = if more { items.drain(limit as usize..).next() } else { None };
            if let Some(last) = last {
                // The rest of a change may be on the next page. What has no number has a sequence.
                items.retain(|item| item.changed == 0 || item.changed < last.changed);
            }
            if items.is_empty() && more {
                (read, bytes) = (read.saturating_mul(2), bytes.saturating_mul(2));
                continue;
            }
            let next = items.iter().fold(after, ChangeCursor::behind);
            let reset = start.has_seen() && start.removed < after.removed;
            return Ok(Changes {
                items,
                next,
                more,
                reset,
            });
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
    /// Messages were deleted since the position: the reader forgets all that it has, and these are
    /// the first of those that are there.
    pub reset: bool,
}

impl Changes {
    /// The largest limit.
    pub const MAX_LIMIT: u32 = 1000;
    /// About how many bytes they have as JSON, at most. One change may have more.
    pub const MAX_BYTES: usize = 64 * 1024;
}

/// A position in the changes of a conversation. Its text, which it also serializes as, is for example
/// `17.42.9`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChangeCursor {
    /// [`DisplayMessage::changed`] of the last change that was seen.
    changed: i64,
    /// The highest [`DisplayMessage::sequence`] that was seen: messages of earlier versions of this
    /// code have no number.
    sequence: i64,
    /// The number of the last change that deleted messages, as far as the reader knows.
    removed: i64,
}

impl ChangeCursor {
    /// Before everything.
    pub const START: Self = Self {
        changed: 0,
        sequence: -1,
        removed: 0,
    };

    /// Behind the newest messages of a conversation, for a reader who has loaded the last page.
    pub fn after<'a>(messages: impl IntoIterator<Item = &'a DisplayMessage>) -> Self {
        let seen = messages.into_iter().fold(Self::START, Self::behind);
        // A change that deletes messages changes the last one that stays.
        Self {
            removed: seen.changed,
            ..seen
        }
    }

    fn behind(self, message: &DisplayMessage) -> Self {
        Self {
            changed: self.changed.max(message.changed),
            sequence: self.sequence.max(message.sequence),
            ..self
        }
    }

    /// Whether its reader may have messages.
    fn has_seen(self) -> bool {
        (self.changed, self.sequence) != (Self::START.changed, Self::START.sequence)
    }

    pub(super) fn changed(self) -> i64 {
        self.changed
    }

    pub(super) fn sequence(self) -> i64 {
        self.sequence
    }
}

impl fmt::Display for ChangeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.changed, self.sequence, self.removed)
    }
}

impl FromStr for ChangeCursor {
    type Err = Error;

    /// [`Error::Invalid`] if it is not the text of a position. That of an earlier version of this code
    /// has two numbers.
    fn from_str(text: &str) -> Result<Self> {
        let numbers: std::result::Result<Vec<i64>, _> = text.split('.').map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[changed, sequence]) if changed >= 0 && sequence >= -1 => Ok(Self {
                changed,
                sequence,
                removed: changed,
            }),
            Ok(&[changed, sequence, removed]) if changed >= 0 && sequence >= -1 && removed >= 0 => Ok(Self {
                changed,
                sequence,
                removed,
            }),
            _ => Err(Error::Invalid("not a position in the changes of a conversation".into())),
        }
    }
}

impl Serialize for ChangeCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ChangeCursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserialize_text(deserializer)
    }
}

/// Waits for changes of the display messages of a conversation, from any process.
#[derive(Debug)]
pub struct Watch {
    context: {{ context }},
    reach: Reach,
    conversation_id: Uuid,
    cursor: ChangeCursor,
    /// Where the conversation was when its changes were read last.
    seen: Option<(i64, i64, i64)>,
    signals: Signals,
    interval: Duration,
}

/// The conversations that change; nil if it may be any.
pub(super) type Signals = broadcast::Receiver<Uuid>;

impl Watch {
    /// Sets how often it looks for changes by other processes. That is one read of one row.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Waits until there are display messages that are new or changed, or some were deleted. It can be
    /// given up, for example in `tokio::select!`, and called again.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the conversation is not there any more.
    pub async fn next(&mut self) -> Result<Changes> {
        loop {
            let place = self.context.store.last_change(&self.reach, self.conversation_id).await?;
            if self.seen == Some(place) {
                // Looks again after the interval.
                let _ = timeout(self.interval, self.signal()).await;
                continue;
            }
            let read = self.context.read_changes(&self.reach, self.conversation_id, self.cursor, 100);
            let changes = read.await?;
            self.cursor = changes.next;
            self.seen = (!changes.more).then_some(place);
            if changes.reset || !changes.items.is_empty() {
                return Ok(changes);
            }
        }
    }

    /// Behind everything that was returned, for a watch that starts again.
    #[must_use]
    pub fn cursor(&self) -> ChangeCursor {
        self.cursor
    }

    /// Waits until the conversation may have changed.
    async fn signal(&mut self) {
        loop {
            match self.signals.recv().await {
                Ok(id) if id != self.conversation_id && !id.is_nil() => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => pending().await,
            }
        }
    }
}
