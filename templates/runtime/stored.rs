//! A [`State`] as a database stores it: a header, and a row for each message.
//!
//! A save writes the header and only the rows that changed. For this, a state remembers the messages
//! of the last save or load of its conversation, and shares them with its clones.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::message::{Message, Role};
use super::messages::Messages;
use super::persistence::{Expect, Revision};
use super::serializer::{self, ReadError, TooDeep};
use super::state::State;
use super::todo::Todo;
use super::usage::{MessageUsage, usage_of};

/// What a save writes.
#[derive(Debug)]
pub struct Rows {
    /// The envelope without the messages, as JSON.
    pub header: String,
    /// The number of messages. Rows from this position on are to be deleted.
    pub count: i32,
    /// `false` if there are no rows to be deleted.
    pub may_be_shorter: bool,
    /// The rows to write, by position.
    pub changed: Vec<Row>,
    /// `None` if `changed` has a row for every position. Otherwise the [`SavePoint::write_id`] of
    /// the save that wrote the other rows. If another save is stored, nothing may be written, and
    /// [`State::to_rows`] with [`Expect::Any`] returns all rows.
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
    /// What a save has to write: only the rows that changed if this process knows the rows of the
    /// expected revision, otherwise all.
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

    /// Remembers what a save has written, so that the next one writes only what changed since. A
    /// save that finds its `write_id` stored already must not call it, because it wrote nothing.
    pub fn remember(&self, rows: &Rows, point: SavePoint) {
        self.stored_messages.set(point, rows.messages.clone());
    }
}

/// A process runs out of memory before it has more messages than fit.
fn number(position: usize) -> i32 {
    i32::try_from(position).unwrap_or(i32::MAX)
}

/// A header that was read.
#[derive(Debug)]
pub enum Header {
    /// It has its messages inside: the Elixir library wrote it, or a version of this code that had
    /// no rows. Rows beside it do not belong to it.
    Whole(State),
    /// Its messages are rows.
    Rows(HeaderState),
}

impl Header {
    /// The todos of the state, without reading its rows.
    #[must_use]
    pub fn into_todos(self) -> Vec<Todo> {
        match self {
            Self::Whole(state) => state.todos,
            Self::Rows(header) => header.state.todos,
        }
    }
}

/// Whether rows beside `header` belong to `aside`, which an earlier version of this code has set aside:
/// it exchanges two headers, or replaces one, and does not know that rows belong to one of them.
#[must_use]
pub fn are_rows_of_aside(header: &[u8], aside: &[u8]) -> bool {
    match serializer::read_stored("", header) {
        Ok(Header::Whole(_)) => true,
        Err(ReadError::Damaged { .. }) => {
            matches!(serializer::read_stored("", aside), Ok(Header::Rows(_)))
        }
        Ok(Header::Rows(_)) | Err(_) => false,
    }
}

/// A state without its messages, which are rows.
#[derive(Debug)]
pub struct HeaderState {
    pub(super) state: State,
    pub(super) count: usize,
}

/// A stored message.
#[derive(Debug, Clone, Copy)]
pub struct StoredRow<'a> {
    /// Counted from 0.
    pub position: i32,
    /// The id of the message.
    pub message_id: Uuid,
    /// The message as JSON.
    pub data: &'a [u8],
}

/// Reads stored messages as they arrive. They are parsed in batches, because a parser for each message
/// would allocate memory for each.
#[derive(Debug, Default)]
pub struct RowReader {
    read: Vec<ReadRow>,
    /// The messages that are not read yet, one behind the other.
    texts: Vec<u8>,
    /// For each of them its position, its id, and where its text ends.
    unread: Vec<(i32, Uuid, usize)>,
}

/// A stored message that was read, or could not be.
#[derive(Debug)]
struct ReadRow {
    position: i32,
    message_id: Uuid,
    message: Result<Message, ReadError>,
}

impl RowReader {
    /// Takes a message. Messages may come in any order.
    pub fn push(&mut self, row: StoredRow<'_>) {
        const BATCH: usize = 32 * 1024;

        if let Some(message) = text_message(row.data) {
            self.read.push(ReadRow {
                position: row.position,
                message_id: row.message_id,
                message: Ok(message),
            });
            return;
        }
        self.texts.extend_from_slice(row.data);
        self.unread.push((row.position, row.message_id, self.texts.len()));
        if self.texts.len() > BATCH {
            self.read_batch();
        }
    }

    fn read_batch(&mut self) {
        let mut batch = serde_json::Deserializer::from_slice(&self.texts).into_iter();
        let (mut start, mut is_whole) = (0, true);
        for (position, message_id, end) in self.unread.drain(..) {
            let message = batch.next().and_then(Result::ok);
            let message = message.filter(|_| is_whole && batch.byte_offset() == end);
            is_whole = message.is_some();
            let message = message.map_or_else(
                // Damaged, or behind a damaged one. Alone it is read with the place of the error.
                || {
                    let index = usize::try_from(position).unwrap_or_default();
                    serializer::message_from_bytes(&self.texts[start..end], index)
                },
                Ok,
            );
            start = end;
            self.read.push(ReadRow {
                position,
                message_id,
                message,
            });
        }
        self.texts.clear();
    }
}

/// A message that is one text, as this version writes it: most are, and the parser would take three
/// times as long for its text. Everything else, also what is damaged, is left to the parser.
fn text_message(json: &[u8]) -> Option<Message> {
    let json = json.strip_prefix(br#"{"role":""#)?;
    let (role, json) = [Role::User, Role::Assistant].into_iter().find_map(|role| {
        let behind = json.strip_prefix(role.as_str().as_bytes())?;
        Some((role, behind))
    })?;
    let json = json.strip_prefix(br#"","content":[{"type":"text","content":""#)?;
    let json = json.strip_suffix(br#""}],"status":"complete"}"#)?;
    let text = String::from_utf8(unescaped(json)?).ok()?;
    Some(Message::new(role, Some(text.into())))
}

/// The inside of a JSON string, eight bytes at a time. `None` if it ends too early, or has an escape
/// that is seldom written.
fn unescaped(json: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(json.len());
    let mut rest = json;
    while !rest.is_empty() {
        if let Some((chunk, behind)) = rest.split_first_chunk() {
            text.extend_from_slice(chunk);
            let special = specials(u64::from_le_bytes(*chunk));
            if special == 0 {
                rest = behind;
                continue;
            }
            let plain = special.trailing_zeros() as usize / 8;
            text.truncate(text.len() - chunk.len() + plain);
            rest = rest.get(plain..)?;
        }
        let (byte, behind) = match rest {
            [b'\\', escaped, behind @ ..] => {
                let byte = match escaped {
                    b'"' | b'\\' => *escaped,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    _ => return None,
                };
                (byte, behind)
            }
            [byte, behind @ ..] if specials((*byte).into()) & 0x80 == 0 => (*byte, behind),
            _ => return None,
        };
        text.push(byte);
        rest = behind;
    }
    Some(text)
}

/// Sets the highest bit of every byte that cannot stand for itself in a JSON string: quotation marks,
/// backslashes and control characters. All other bits are 0. Bytes are compared from the lowest on;
/// above the first match, the result may be wrong.
fn specials(bytes: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHEST: u64 = ONES << 7;

    let below = |bytes: u64, limit: u8| bytes.wrapping_sub(ONES * u64::from(limit)) & !bytes;
    let same = |byte: u8| below(bytes ^ (ONES * u64::from(byte)), 1);
    (below(bytes, b' ') | same(b'"') | same(b'\\')) & HIGHEST
}

impl HeaderState {
    /// The number of messages.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The header of a state that has only the first `count` messages, as JSON. Nothing else is
    /// changed.
    ///
    /// # Errors
    ///
    /// [`TooDeep`] if a value is nested too deeply to be read back.
    pub fn cut(&self, count: usize) -> Result<String, TooDeep> {
        serializer::header_to_text(&self.state, count.min(self.count))
    }

    /// The state with its messages. It remembers them.
    ///
    /// # Errors
    ///
    /// [`ReadError::Damaged`] if a message could not be read or is missing, or there are too many.
    pub fn finish(self, mut rows: RowReader, point: SavePoint) -> Result<State, ReadError> {
        let Self { state, count } = self;
        rows.read_batch();
        let mut rows = rows.read;
        let found = rows.len();
        rows.sort_unstable_by_key(|row| row.position);
        let mut messages = Messages::new();
        for (row, position) in rows.into_iter().zip(0..count) {
            if usize::try_from(row.position) != Ok(position) {
                let path = format!("state.messages[{position}]");
                let reason = format!("expected its row, found that of {}", row.position);
                return Err(ReadError::damaged(&path, reason));
            }
            messages.push_with_id(row.message_id, row.message?);
        }
        if found != count {
            let reason = format!("expected {count} rows, found {found}");
            return Err(ReadError::damaged("state.messages", reason));
        }
        state.stored_messages.set(point, messages.clone());
        Ok(State { messages, ..state })
    }
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
