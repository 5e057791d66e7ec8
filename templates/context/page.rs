//! Pages of a list, and the cursors between them.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use super::{Error, Result};

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

    /// As [`new`](Self::new), if the next page is before this one.
    pub(super) fn backward(mut rows: Vec<T>, limit: u32, cursor: impl Fn(&T) -> Cursor) -> Self {
        let rest = rows.len().saturating_sub(limit as usize);
        drop(rows.drain(..rest));
        let next = rows.first().filter(|_| rest > 0).map(cursor);
        Self { items: rows, next }
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
    Updated(DateTime<Utc>, Uuid),
    /// In a list by the time of creation.
    Created(Uuid),
    /// In the display messages of a conversation.
    Message(Bound),
    /// In the results of a search.
    Found(DateTime<Utc>, Uuid, i64),
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

fn time(digits: &str) -> Option<DateTime<Utc>> {
    DateTime::UNIX_EPOCH.checked_add_signed(TimeDelta::microseconds(number(digits)?))
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Position::Updated(time, id) => {
                write!(f, "u{:016x}{}", time.timestamp_micros(), id.simple())
            }
            Position::Created(id) => write!(f, "c{}", id.simple()),
            Position::Message(Bound::After(sequence)) => write!(f, "a{sequence:016x}"),
            Position::Message(Bound::Before(sequence)) => write!(f, "b{sequence:016x}"),
            Position::Found(time, id, sequence) => {
                let (time, id) = (time.timestamp_micros(), id.simple());
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
