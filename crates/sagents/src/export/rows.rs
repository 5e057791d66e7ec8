//! The agent state of an export as a database stores it.

use uuid::Uuid;

use super::super::message::Message;
use super::super::serializer::{self, ReadError, TooDeep};
use super::super::state::State;
use super::super::stored::{HeaderState, Row};

/// The messages of a stored state, which are read one after the other.
#[derive(Debug)]
pub struct MessageRows {
    count: usize,
    next: usize,
}

impl MessageRows {
    /// A state without its messages, and the messages.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the header is damaged, or has a version that this code does not know.
    pub fn of_header(header: &[u8]) -> Result<(State, Option<Self>), ReadError> {
        let HeaderState { state, count } = serializer::read_stored("", header)?;
        Ok((state, Some(Self { count, next: 0 })))
    }

    /// Reads the next message.
    ///
    /// # Errors
    ///
    /// [`ReadError::Damaged`] if it cannot be read, or is not the next one.
    pub fn read(&mut self, position: i64, data: &[u8]) -> Result<Message, ReadError> {
        let next = self.next;
        if usize::try_from(position) != Ok(next) {
            let path = format!("state.messages[{next}]");
            let reason = format!("expected its row, found that of {position}");
            return Err(ReadError::damaged(&path, reason));
        }
        self.next += 1;
        serializer::message_from_bytes(data, next)
    }

    /// Ends the messages.
    ///
    /// # Errors
    ///
    /// [`ReadError::Damaged`] if there were not as many as the header says.
    pub fn end(&self) -> Result<(), ReadError> {
        let Self { count, next } = self;
        if count == next {
            return Ok(());
        }
        let reason = format!("expected {count} rows, found {next}");
        Err(ReadError::damaged("state.messages", reason))
    }
}

/// The row of an imported message. One without an id gets it now.
///
/// # Errors
///
/// [`TooDeep`] if a value is nested too deeply to be read back.
pub fn row(id: Option<Uuid>, message: &Message, position: i32) -> Result<Row, TooDeep> {
    let index = usize::try_from(position).unwrap_or_default();
    Ok(Row {
        position,
        message_id: id.unwrap_or_else(Uuid::now_v7),
        data: serializer::message_to_text(message, index)?,
        // The export says what was counted.
        usage: None,
    })
}

/// The header of an imported state, whose messages are rows.
///
/// # Errors
///
/// [`TooDeep`] if a value is nested too deeply to be read back.
pub fn header(state: &State, count: i32) -> Result<String, TooDeep> {
    serializer::header_to_text(state, usize::try_from(count).unwrap_or_default())
}
