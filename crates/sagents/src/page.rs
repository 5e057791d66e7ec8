//! Pages of a list, and the cursors between them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use crate::Timestamp;
use crate::{Error, Result};

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// In the order of the list.
    pub items: Vec<T>,
    /// For the call that reads the next page; `None` if there is none.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// A page of at most `limit` rows. Read one row more, so that it's known whether another page follows.
    ///
    /// Rows in one position stay together, so a page may get longer than its limit.
    pub fn new(mut rows: Vec<T>, limit: u32, cursor: impl Fn(&T) -> Cursor) -> Self {
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
    pub(crate) fn backward(rows: Vec<T>, limit: u32, cursor: impl Fn(&T) -> Cursor) -> Self {
        let mut page = Self::new(rows, limit, cursor);
        page.items.reverse();
        page
    }
}

/// The rows of a page as they arrive from the database: as many as fit, and one more if there is one. A page ends before a
/// row that would make it too large, but it has at least one. Memory has no more of them, however many arrive.
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
#[derive(Debug)]
pub(crate) struct PageRows<R> {
    rows: Vec<R>,
    /// How many rows fit.
    limit: u32,
    /// How many bytes are left.
    room: usize,
}

#[cfg(any(feature = "_sqlite", feature = "postgres"))]
impl<R> PageRows<R> {
    /// For [`rows_to_read`] rows, with about this many bytes.
    pub(crate) fn new(rows_to_read: u32, bytes: usize) -> Self {
        Self { rows: Vec::new(), limit: rows_to_read.saturating_sub(1), room: bytes }
    }

    /// Takes a row, and returns whether it takes another one. Rows in one position stay together; see [`Page::new`].
    pub(crate) fn push(&mut self, row: R, size: usize, is_in_one_position: impl Fn(&R, &R) -> bool) -> bool {
        let is_full = size > self.room && self.rows.last().is_some_and(|last| !is_in_one_position(last, &row));
        if is_full {
            self.limit = self.limit.min(u32::try_from(self.rows.len()).unwrap_or(u32::MAX));
        }
        self.room = self.room.saturating_sub(size);
        self.rows.push(row);
        !is_full
    }

    /// The rows, and how many of them fit.
    pub(crate) fn into_parts(self) -> (Vec<R>, u32) {
        (self.rows, self.limit)
    }
}

/// Whether rows in the last position of a page may be missing from `rows`, of which `read` were asked for.
pub(crate) fn is_cut<T>(rows: &[T], limit: u32, read: i64, cursor: impl Fn(&T) -> Cursor) -> bool {
    let last_of_page = rows.get(limit as usize - 1);
    i64::try_from(rows.len()).is_ok_and(|found| found >= read) && last_of_page.map(&cursor) == rows.last().map(&cursor)
}

/// The number of rows to read for a page: one more than its limit.
pub(crate) fn rows_to_read(limit: u32, max: u32) -> Result<u32> {
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
pub struct Cursor(pub(crate) Position);

/// The key of a row that a page is next to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Position {
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
pub(crate) enum Bound {
    After(i64),
    Before(i64),
}

impl Cursor {
    /// The error for a cursor of another list.
    pub(crate) fn of_another_list() -> Error {
        Error::Invalid("the cursor is one of another list".into())
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, key) = text.split_at_checked(1)?;
        Some(Self(match kind {
            "u" => Position::Updated(time(key.get(..16)?)?, id(key.get(16..)?)?),
            "c" => Position::Created(id(key)?),
            "a" => Position::Message(Bound::After(number(key)?)),
            "b" => Position::Message(Bound::Before(number(key)?)),
            "f" => Position::Found(time(key.get(..16)?)?, id(key.get(16..48)?)?, number(key.get(48..)?)?),
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
    Timestamp::from_micros(number(digits)?)
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Position::Updated(time, id) => {
                write!(f, "u{:016x}{}", time.as_micros(), id.simple())
            }
            Position::Created(id) => write!(f, "c{}", id.simple()),
            Position::Message(Bound::After(sequence)) => write!(f, "a{sequence:016x}"),
            Position::Message(Bound::Before(sequence)) => write!(f, "b{sequence:016x}"),
            Position::Found(time, id, sequence) => {
                let (time, id) = (time.as_micros(), id.simple());
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
pub(crate) fn deserialize_text<'de, T, D>(deserializer: D) -> std::result::Result<T, D::Error>
where
    T: FromStr<Err = Error>,
    D: Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(de::Error::custom)
}
