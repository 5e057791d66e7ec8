//! Pages of a list, and the cursors between them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use super::{DisplayMessage, Error, Result};
use crate::sagents::timestamp::{self, Timestamp};

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// In the order of the list.
    pub items: Vec<T>,
    /// For the call that reads the next page; `None` if there is none.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// A page of rows, of which one more was read than fits on it. Rows in the same position stay
    /// together, also if the page gets longer.
    pub(super) fn new(mut rows: Vec<T>, limit: u32, cursor: impl Fn(&T) -> Cursor) -> Self {
        let limit = limit as usize;
        let next = (rows.len() > limit).then(|| cursor(&rows[limit - 1]));
        if let Some(next) = next {
            let same = rows[limit..].iter().take_while(|row| cursor(row) == next);
            let length = limit + same.count();
            rows.truncate(length);
        }
        Self { items: rows, next }
    }

    /// As [`new`](Self::new), of rows in the opposite order: the next page is before this one.
    pub(super) fn backward(rows: Vec<T>, limit: u32, cursor: impl Fn(&T) -> Cursor) -> Self {
        let mut page = Self::new(rows, limit, cursor);
        page.items.reverse();
        page
    }
}

/// The display messages of a page, as they arrive from the database: as many as fit, and one more if
/// there is one. A page ends before a message that would make it too large, but not without any.
/// Memory has no more of them than that, however many rows arrive.
#[derive(Debug)]
pub(super) struct PageRows {
    rows: Vec<DisplayMessage>,
    /// How many rows fit.
    limit: u32,
    /// How many bytes are left.
    room: usize,
    is_over: bool,
}

impl PageRows {
    /// For [`rows_to_read`] rows, with about this many bytes as JSON.
    pub(super) fn new(rows_to_read: u32, bytes: usize) -> Self {
        Self {
            rows: Vec::new(),
            limit: rows_to_read.saturating_sub(1),
            room: bytes,
            is_over: false,
        }
    }

    /// The number of rows to read.
    pub(super) fn to_read(&self) -> u32 {
        self.limit.saturating_add(1)
    }

    /// Takes the next row, if it is one: an outer join may have found nothing.
    pub(super) fn take<E>(
        &mut self,
        row: impl FnOnce() -> std::result::Result<Option<DisplayMessage>, E>,
    ) -> std::result::Result<(), E> {
        if self.is_over {
            return Ok(());
        }
        let Some(row) = row()? else {
            return Ok(());
        };
        let size = row.size();
        if let Some(last) = self.rows.last() {
            // Rows in the same position stay together; see `Page::new`.
            if size > self.room && row.found() != last.found() {
                self.limit = self.limit.min(u32::try_from(self.rows.len()).unwrap_or(u32::MAX));
                self.is_over = true;
            }
        }
        self.room = self.room.saturating_sub(size);
        self.rows.push(row);
        Ok(())
    }

    /// Whether all further rows are dropped.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The rows, and how many of them fit.
    pub(super) fn into_parts(self) -> (Vec<DisplayMessage>, u32) {
        (self.rows, self.limit)
    }
}

/// The number of rows to read for a page: one more than its limit.
pub(super) fn rows_to_read(limit: u32, max: u32) -> Result<u32> {
    if limit == 0 || limit > max {
        return Err(Error::Invalid(format!("the limit {limit} is not one of 1 to {max}")));
    }
    Ok(limit + 1)
}

/// The position of a page in its list. It is opaque: it has no meaning outside of that list, and a
/// later version may write it in another way.
///
/// Its text, which it also serializes as, consists of letters and digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cursor(pub(super) Position);

/// The key of a row that a page is next to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Position {
    /// In a list by the time of the last write.
    Updated(Timestamp, Uuid),
    /// In a list by the time of creation.
    Created(Uuid),
    /// In the display messages of a conversation.
    Message(Bound),
    /// In the results of a search.
    Found(Timestamp, Uuid, i64),
}

/// The sequence that a page of display messages starts after, or ends before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Bound {
    After(i64),
    Before(i64),
}

impl Cursor {
    /// The error for a cursor of another list.
    pub(super) fn of_another_list() -> Error {
        Error::Invalid("the cursor is one of another list".into())
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, key) = text.split_at_checked(1)?;
        Some(Self(match kind {
            "u" => Position::Updated(time(key.get(..16)?)?, id(key.get(16..)?)?),
            "c" => Position::Created(id(key)?),
            "a" => Position::Message(Bound::After(number(key)?)),
            "b" => Position::Message(Bound::Before(number(key)?)),
            "f" => Position::Found(
                time(key.get(..16)?)?,
                id(key.get(16..48)?)?,
                number(key.get(48..)?)?,
            ),
            _ => return None,
        }))
    }
}

fn number(digits: &str) -> Option<i64> {
    let number = u64::from_str_radix(digits, 16).ok()?;
    Some(i64::from_be_bytes(number.to_be_bytes()))
}

fn id(digits: &str) -> Option<Uuid> {
    Uuid::try_parse(digits).ok()
}

fn time(digits: &str) -> Option<Timestamp> {
    timestamp::from_micros(number(digits)?)
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Position::Updated(time, id) => {
                write!(f, "u{:016x}{}", timestamp::to_micros(time), id.simple())
            }
            Position::Created(id) => write!(f, "c{}", id.simple()),
            Position::Message(Bound::After(sequence)) => write!(f, "a{sequence:016x}"),
            Position::Message(Bound::Before(sequence)) => write!(f, "b{sequence:016x}"),
            Position::Found(time, id, sequence) => {
                let (time, id) = (timestamp::to_micros(time), id.simple());
                write!(f, "f{time:016x}{id}{sequence:016x}")
            }
        }
    }
}

impl FromStr for Cursor {
    type Err = Error;

    /// [`Error::Invalid`] if it is not the text of a cursor.
    fn from_str(text: &str) -> Result<Self> {
        let cursor = Self::parse(text).filter(|cursor| cursor.to_string() == text);
        cursor.ok_or_else(|| Error::Invalid("not a cursor".into()))
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserialize_text(deserializer)
    }
}

/// A value that serializes as its text.
pub(super) fn deserialize_text<'de, T, D>(deserializer: D) -> std::result::Result<T, D::Error>
where
    T: FromStr<Err = Error>,
    D: Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(de::Error::custom)
}
