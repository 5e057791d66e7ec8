//! How the rows of a state become a [`State`].

use uuid::Uuid;

use super::{HeaderState, SavePoint};
use crate::message::{Message, Role};
use crate::messages::Messages;
use crate::serializer::{self, ReadError, TooDeep};
use crate::{State, Todo};

/// A stored message.
#[derive(Debug, Clone, Copy)]
pub struct StoredRow<'a> {
    /// Counted from 0.
    pub position: i64,
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
    unread: Vec<(i64, Uuid, usize)>,
}

/// A stored message that was read, or could not be.
#[derive(Debug)]
struct ReadRow {
    position: i64,
    message_id: Uuid,
    message: Result<Message, ReadError>,
}

impl RowReader {
    /// Takes a message. Messages may come in any order.
    pub fn push(&mut self, row: StoredRow<'_>) {
        const BATCH: usize = 32 * 1024;

        if let Some(message) = text_message(row.data) {
            self.read.push(ReadRow { position: row.position, message_id: row.message_id, message: Ok(message) });
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
            self.read.push(ReadRow { position, message_id, message });
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

    /// The todos of the state.
    #[must_use]
    pub fn into_todos(self) -> Vec<Todo> {
        self.state.todos
    }

    /// The header of a state that has only the first `count` messages, as JSON. The rest stays as it is.
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
    /// [`ReadError::Damaged`] if a message can't be parsed or is missing, or there are too many.
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
