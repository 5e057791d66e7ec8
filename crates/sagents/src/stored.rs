//! A [`State`] as a database stores it: a header, and a row for each message.
//!
//! A save writes the header and only the rows that changed. A state therefore remembers the messages of the last save or
//! load of its conversation, and shares them with its clones.

#[cfg(any(feature = "_sqlite", feature = "postgres"))]
mod load;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::messages::Messages;
use super::persistence::{Expect, Revision};
use super::serializer::{self, TooDeep};
use super::state::State;
use super::usage::{MessageUsage, usage_of};

#[cfg(any(feature = "_sqlite", feature = "postgres"))]
pub use self::load::{RowReader, StoredRow};

/// What a save writes.
#[derive(Debug)]
pub struct Rows {
    /// The envelope without the messages, as JSON.
    pub header: String,
    /// The number of messages. The save deletes rows from this position on.
    pub count: i32,
    /// `false` if there are no rows to delete.
    pub may_be_shorter: bool,
    /// The rows to write, by position.
    pub changed: Vec<Row>,
    /// `None` if `changed` has a row for every position. Otherwise the [`SavePoint::write_id`] of the save that wrote the
    /// other rows: if another save is stored, these rows may not be written.
    pub base: Option<Uuid>,
    messages: Messages,
}

/// A message to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Counted from 0.
    pub position: i32,
    /// The id of the message.
    pub message_id: Uuid,
    /// The message as JSON.
    pub data: String,
    /// What it cost, if it says so.
    pub usage: Option<MessageUsage>,
}

/// Identifies the content of a stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavePoint {
    /// The conversation of the state.
    pub conversation_id: Uuid,
    /// The stored revision.
    pub revision: Revision,
    /// The id of the save that stored it. Revisions start again if a conversation is deleted and
    /// created again, and in another database.
    pub write_id: Uuid,
}

impl State {
    /// Prepares a save. If this process knows the rows of the expected revision, it writes only those that changed;
    /// otherwise all.
    ///
    /// # Errors
    ///
    /// [`TooDeep`] if a value is nested too deeply to be read back.
    pub fn to_rows(&self, conversation_id: Uuid, expect: Expect) -> Result<Rows, TooDeep> {
        let known = self.stored_messages.at(conversation_id, expect);
        let may_be_shorter = match &known {
            Some((_, stored)) => self.messages.len() < stored.len(),
            None => expect != Expect::NOTHING,
        };
        let positions = match &known {
            Some((_, stored)) => self.messages.changed_since(stored),
            None => (0..self.messages.len()).collect(),
        };
        let mut changed = Vec::with_capacity(positions.len());
        for position in positions {
            if let Some((message_id, message)) = self.messages.identified(position) {
                changed.push(Row {
                    position: number(position),
                    message_id,
                    data: serializer::message_to_text(message, position)?,
                    usage: message.metadata.as_ref().and_then(usage_of),
                });
            }
        }
        Ok(Rows {
            header: serializer::header_to_text(self, self.messages.len())?,
            count: number(self.messages.len()),
            may_be_shorter,
            changed,
            base: known.map(|(point, _)| point.write_id),
            messages: self.messages.clone(),
        })
    }

    /// Remembers the rows of a save, so that the next one writes only what changed since. A save that finds its
    /// `write_id` stored must not call it: it wrote nothing.
    pub fn remember(&self, rows: &Rows, point: SavePoint) {
        self.stored_messages.set(point, rows.messages.clone());
    }
}

/// A process runs out of memory before it has more messages than fit.
fn number(position: usize) -> i32 {
    i32::try_from(position).unwrap_or(i32::MAX)
}

/// A header that was read: a state without its messages.
#[derive(Debug)]
pub struct HeaderState {
    pub(super) state: State,
    pub(super) count: usize,
}

/// The messages of a conversation as they were saved or loaded last. Clones share it, so that a
/// state learns what a clone of it has saved.
#[derive(Default)]
pub struct StoredMessages(Mutex<Arc<Memory>>);

type Memory = Mutex<Option<(SavePoint, Messages)>>;

impl StoredMessages {
    /// The stored messages, if they are those that a save expects.
    fn at(&self, conversation_id: Uuid, expect: Expect) -> Option<(SavePoint, Messages)> {
        let memory = Arc::clone(&locked(&self.0));
        let memory = locked(&memory);
        let is_expected = |(point, _): &&(SavePoint, Messages)| {
            point.conversation_id == conversation_id && expect == Expect::Revision(point.revision)
        };
        memory.as_ref().filter(is_expected).cloned()
    }

    /// Clones of a state that work for other conversations keep their memory.
    fn set(&self, point: SavePoint, messages: Messages) {
        let mut shared = locked(&self.0);
        let is_other = |(other, _): &(SavePoint, _)| other.conversation_id != point.conversation_id;
        if locked(&shared).as_ref().is_some_and(is_other) {
            *shared = Arc::default();
        }
        *locked(&shared) = Some((point, messages));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clone for StoredMessages {
    fn clone(&self) -> Self {
        Self(Mutex::new(Arc::clone(&locked(&self.0))))
    }
}

impl fmt::Debug for StoredMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = Arc::clone(&locked(&self.0));
        let point = locked(&memory).as_ref().map(|(point, _)| *point);
        f.debug_tuple("StoredMessages").field(&point).finish()
    }
}

#[cfg(test)]
mod tests;
