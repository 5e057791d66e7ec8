//! The list of an agent's messages.

use std::collections::HashSet;
use std::fmt;
use std::ops::{Index, IndexMut, Range};
use std::slice;
use std::sync::{Arc, OnceLock};
use std::vec;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::message::Message;

/// The messages of an agent, oldest first: a `Vec` of messages whose clones share what is equal.
///
/// A clone copies one pointer for 64 messages, whatever their size. A change copies what it changes
/// and the pointers around it, so clones never see each other's changes.
///
/// Each message has an id beside it, which also names its display messages. It is given with
/// [`push_with_id`](Self::push_with_id), or else by the first save, and stays with the message when
/// the message is changed or moved. It is not compared.
#[derive(Clone, Default)]
pub struct Messages {
    /// All are full, except the last, which is not empty.
    chunks: Vec<Arc<Chunk>>,
}

type Chunk = Vec<Arc<Entry>>;

const CHUNK: usize = 64;

#[derive(Clone)]
struct Entry {
    /// Shared by the copies of a changed message, so that they get one id.
    id: Arc<OnceLock<Uuid>>,
    message: Message,
}

impl Messages {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.chunks.split_last() {
            Some((last, full)) => full.len() * CHUNK + last.len(),
            None => 0,
        }
    }

    /// Whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The message at a position.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Message> {
        self.entry(index).map(|entry| &entry.message)
    }

    /// The message at a position, to be changed. It is copied if a clone of the list has it too.
    #[must_use]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Message> {
        let chunk = Arc::make_mut(self.chunks.get_mut(index / CHUNK)?);
        chunk.get_mut(index % CHUNK).map(message_mut)
    }

    /// The id of the message at a position. A message that was never saved may have none yet.
    #[must_use]
    pub fn id(&self, index: usize) -> Option<Uuid> {
        self.entry(index)?.id.get().copied()
    }

    /// The position of the message with an id. Newer messages are found sooner.
    #[must_use]
    pub fn position(&self, id: Uuid) -> Option<usize> {
        let is_it = |entry: &Arc<Entry>| entry.id.get() == Some(&id);
        let behind = self.entries().rev().position(is_it)?;
        Some(self.len() - 1 - behind)
    }

    /// The oldest message.
    #[must_use]
    pub fn first(&self) -> Option<&Message> {
        self.get(0)
    }

    /// The newest message.
    #[must_use]
    pub fn last(&self) -> Option<&Message> {
        self.get(self.len().checked_sub(1)?)
    }

    /// The newest message, to be changed.
    #[must_use]
    pub fn last_mut(&mut self) -> Option<&mut Message> {
        self.get_mut(self.len().checked_sub(1)?)
    }

    /// The messages in order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter { messages: self, range: 0..self.len() }
    }

    /// The messages in order, to be changed. Every message that it yields is copied if a clone of
    /// the list has it too.
    #[must_use]
    pub fn iter_mut(&mut self) -> IterMut<'_> {
        fn entries(chunk: &mut Arc<Chunk>) -> slice::IterMut<'_, Arc<Entry>> {
            Arc::make_mut(chunk).iter_mut()
        }

        IterMut { entries: self.chunks.iter_mut().flat_map(entries) }
    }

    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        let id = Arc::default();
        self.push_entry(Arc::new(Entry { id, message }));
    }

    /// Appends a message that has an id, for example that of its display messages.
    pub fn push_with_id(&mut self, id: Uuid, message: Message) {
        let id = Arc::new(OnceLock::from(id));
        self.push_entry(Arc::new(Entry { id, message }));
    }

    /// Appends the messages of another list with their ids.
    pub fn append(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
        } else {
            self.push_entries(other.into_entries());
        }
    }

    /// Removes the newest message and returns it.
    pub fn pop(&mut self) -> Option<Message> {
        let last = self.len().checked_sub(1)?;
        self.split_off(last).pop().map(into_message)
    }

    /// Inserts a message before the one at a position.
    ///
    /// # Panics
    ///
    /// If the position is greater than the length.
    pub fn insert(&mut self, index: usize, message: Message) {
        let len = self.len();
        assert!(index <= len, "cannot insert at {index} of {len} messages");
        let behind = self.split_off(index);
        self.push(message);
        self.push_entries(behind);
    }

    /// Removes the message at a position and returns it.
    ///
    /// # Panics
    ///
    /// If there is no message at the position.
    pub fn remove(&mut self, index: usize) -> Message {
        let len = self.len();
        assert!(index < len, "cannot remove at {index} of {len} messages");
        let mut behind = self.split_off(index);
        let removed = behind.remove(0);
        self.push_entries(behind);
        into_message(removed)
    }

    /// Removes all messages from a position on.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            drop(self.split_off(len));
        }
    }

    /// Removes all messages.
    pub fn clear(&mut self) {
        self.chunks.clear();
    }

    /// Removes the messages for which `keep` returns `false`.
    pub fn retain(&mut self, mut keep: impl FnMut(&Message) -> bool) {
        // Up to the first one that is removed, nothing moves.
        let Some(first) = self.iter().position(|message| !keep(message)) else {
            return;
        };
        let behind = self.split_off(first).into_iter().skip(1);
        let kept = behind.filter(|entry| keep(&entry.message));
        self.push_entries(kept);
    }

    /// A copy of all messages.
    #[must_use]
    pub fn to_vec(&self) -> Vec<Message> {
        self.iter().cloned().collect()
    }

    /// Replaces the list. Messages that are equal to those at the start or at the end of the old
    /// list keep their ids.
    pub(super) fn replace(&mut self, new: Vec<Message>) {
        let is_same = |(old, new): &(&Message, &Message)| old == new;
        let start = self.iter().zip(&new).take_while(is_same).count();
        let longest = self.len().min(new.len()) - start;
        let pairs = self.iter().rev().zip(new.iter().rev());
        let end = pairs.take(longest).take_while(is_same).count();
        let kept = self.split_off(self.len() - end);
        self.truncate(start);
        let changed = new.len() - start - end;
        self.extend(new.into_iter().skip(start).take(changed));
        self.push_entries(kept);
    }

    /// The positions whose message or id differs from that in `stored`. What has no id and is equal
    /// to the stored message at its position is that message, unless it was moved.
    pub(super) fn changed_since(&self, stored: &Self) -> Vec<usize> {
        let mut used_ids = None;
        let mut is_used = |id: &Uuid| {
            let ids = || self.entries().filter_map(|entry| entry.id.get().copied());
            let ids: &HashSet<Uuid> = used_ids.get_or_insert_with(|| ids().collect());
            ids.contains(id)
        };
        let mut is_stored = |entry: &Arc<Entry>, stored: &Arc<Entry>| {
            if Arc::ptr_eq(entry, stored) {
                return true;
            }
            if entry.message != stored.message {
                return false;
            }
            match (entry.id.get(), stored.id.get()) {
                (Some(id), Some(stored)) => id == stored,
                (None, Some(stored)) => !is_used(stored) && entry.id.get_or_init(|| *stored) == stored,
                (_, None) => false,
            }
        };
        let mut changed = Vec::new();
        for (n, chunk) in self.chunks.iter().enumerate() {
            let stored = stored.chunks.get(n);
            if stored.is_some_and(|stored| Arc::ptr_eq(chunk, stored)) {
                continue;
            }
            for (index, entry) in chunk.iter().enumerate() {
                let stored = stored.and_then(|stored| stored.get(index));
                if !stored.is_some_and(|stored| is_stored(entry, stored)) {
                    changed.push(n * CHUNK + index);
                }
            }
        }
        changed
    }

    /// The message at a position, and its id, which is made now if there is none yet.
    pub(super) fn identified(&self, index: usize) -> Option<(Uuid, &Message)> {
        let entry = self.entry(index)?;
        Some((*entry.id.get_or_init(Uuid::now_v7), &entry.message))
    }

    fn entry(&self, index: usize) -> Option<&Arc<Entry>> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    fn entries(&self) -> impl DoubleEndedIterator<Item = &Arc<Entry>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    fn into_entries(self) -> impl Iterator<Item = Arc<Entry>> {
        self.chunks.into_iter().flat_map(Arc::unwrap_or_clone)
    }

    fn push_entry(&mut self, entry: Arc<Entry>) {
        match self.chunks.last_mut().filter(|last| last.len() < CHUNK) {
            Some(last) => Arc::make_mut(last).push(entry),
            None => self.chunks.push(Arc::new(vec![entry])),
        }
    }

    fn push_entries(&mut self, entries: impl IntoIterator<Item = Arc<Entry>>) {
        for entry in entries {
            self.push_entry(entry);
        }
    }

    /// Removes and returns what is behind the first `len` messages.
    fn split_off(&mut self, len: usize) -> Chunk {
        let full = len / CHUNK;
        if full >= self.chunks.len() {
            return Vec::new();
        }
        let behind = self.chunks.split_off(full);
        let mut entries: Chunk = Self { chunks: behind }.into_entries().collect();
        let behind = entries.split_off(len % CHUNK);
        if !entries.is_empty() {
            self.chunks.push(Arc::new(entries));
        }
        behind
    }
}

fn message_mut(entry: &mut Arc<Entry>) -> &mut Message {
    &mut Arc::make_mut(entry).message
}

fn into_message(entry: Arc<Entry>) -> Message {
    Arc::unwrap_or_clone(entry).message
}

impl Index<usize> for Messages {
    type Output = Message;

    fn index(&self, index: usize) -> &Message {
        let Some(message) = self.get(index) else {
            panic!("there is no message {index}: the length is {}", self.len());
        };
        message
    }
}

impl IndexMut<usize> for Messages {
    fn index_mut(&mut self, index: usize) -> &mut Message {
        let len = self.len();
        let Some(message) = self.get_mut(index) else {
            panic!("there is no message {index}: the length is {len}");
        };
        message
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl PartialEq for Messages {
    fn eq(&self, other: &Self) -> bool {
        let is_equal = |(chunk, other): (&Arc<Chunk>, &Arc<Chunk>)| {
            let mut entries = chunk.iter().zip(other.iter());
            Arc::ptr_eq(chunk, other)
                || entries.all(|(one, other)| Arc::ptr_eq(one, other) || one.message == other.message)
        };
        self.len() == other.len() && self.chunks.iter().zip(&other.chunks).all(is_equal)
    }
}

impl PartialEq<[Message]> for Messages {
    fn eq(&self, other: &[Message]) -> bool {
        self.iter().eq(other)
    }
}

impl PartialEq<&[Message]> for Messages {
    fn eq(&self, other: &&[Message]) -> bool {
        self.iter().eq(*other)
    }
}

impl<const N: usize> PartialEq<[Message; N]> for Messages {
    fn eq(&self, other: &[Message; N]) -> bool {
        self.iter().eq(other)
    }
}

impl PartialEq<Vec<Message>> for Messages {
    fn eq(&self, other: &Vec<Message>) -> bool {
        self.iter().eq(other)
    }
}

impl PartialEq<Messages> for Vec<Message> {
    fn eq(&self, other: &Messages) -> bool {
        other == self
    }
}

impl From<Vec<Message>> for Messages {
    fn from(messages: Vec<Message>) -> Self {
        messages.into_iter().collect()
    }
}

impl FromIterator<Message> for Messages {
    fn from_iter<I: IntoIterator<Item = Message>>(messages: I) -> Self {
        let mut list = Self::new();
        list.extend(messages);
        list
    }
}

impl Extend<Message> for Messages {
    fn extend<I: IntoIterator<Item = Message>>(&mut self, messages: I) {
        for message in messages {
            self.push(message);
        }
    }
}

/// Without the ids; [`Messages::append`] keeps them.
impl IntoIterator for Messages {
    type Item = Message;
    type IntoIter = vec::IntoIter<Message>;

    fn into_iter(self) -> Self::IntoIter {
        let messages: Vec<_> = self.into_entries().map(into_message).collect();
        messages.into_iter()
    }
}

impl<'a> IntoIterator for &'a Messages {
    type Item = &'a Message;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Messages {
    type Item = &'a mut Message;
    type IntoIter = IterMut<'a>;

    fn into_iter(self) -> IterMut<'a> {
        self.iter_mut()
    }
}

impl Serialize for Messages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<'de> Deserialize<'de> for Messages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

/// The messages of a list; see [`Messages::iter`].
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    messages: &'a Messages,
    range: Range<usize>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Message;

    fn next(&mut self) -> Option<&'a Message> {
        self.messages.get(self.range.next()?)
    }

    fn nth(&mut self, n: usize) -> Option<&'a Message> {
        self.messages.get(self.range.nth(n)?)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.messages.get(self.range.next_back()?)
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// The messages of a list, to be changed; see [`Messages::iter_mut`].
pub struct IterMut<'a> {
    entries: Entries<'a>,
}

type Entries<'a> = std::iter::FlatMap<
    slice::IterMut<'a, Arc<Chunk>>,
    slice::IterMut<'a, Arc<Entry>>,
    fn(&'a mut Arc<Chunk>) -> slice::IterMut<'a, Arc<Entry>>,
>;

impl<'a> Iterator for IterMut<'a> {
    type Item = &'a mut Message;

    fn next(&mut self) -> Option<&'a mut Message> {
        self.entries.next().map(message_mut)
    }
}

impl DoubleEndedIterator for IterMut<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entries.next_back().map(message_mut)
    }
}

impl fmt::Debug for IterMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterMut").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
