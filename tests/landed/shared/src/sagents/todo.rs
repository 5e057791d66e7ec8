//! The agent's list of things to do.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};

use super::json::Fields;
use super::json::wrong;
use super::serializer::ReadError;

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Todo {
    /// What it is known by.
    pub id: TodoId,
    /// What is to be done.
    pub content: String,
    /// How far it has come.
    pub status: TodoStatus,
    /// What another version wrote, kept as it is.
    pub extra: Map<String, Value>,
}

impl Todo {
    /// Something that has not been started.
    #[must_use]
    pub fn new(id: impl Into<TodoId>, content: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            content: content.into(),
            status: TodoStatus::Pending,
            extra: Map::new(),
        }
    }

    /// With this status.
    #[must_use]
    pub fn status(mut self, status: TodoStatus) -> Self {
        self.status = status;
        self
    }

    pub(super) fn read(place: &str, value: Value) -> Result<Self, ReadError> {
        let mut fields = Fields::of(place, value)?;
        let id = match fields.present("id") {
            Some(Value::Number(number)) => TodoId::Number(number),
            Some(Value::String(text)) => TodoId::Text(text),
            other => {
                let found = other.unwrap_or(Value::Null);
                return Err(wrong(&fields.at("id"), "a number or a text", &found));
            }
        };
        Ok(Self {
            id,
            content: fields.text("content")?,
            status: TodoStatus::read(fields.text("status")?),
            extra: fields.rest(),
        })
    }

    pub(super) fn write(&self) -> Value {
        let mut map = self.extra.clone();
        map.insert("id".into(), self.id.to_value());
        map.insert("content".into(), self.content.clone().into());
        map.insert("status".into(), self.status.as_str().into());
        map.into()
    }
}

/// As it is stored.
impl Serialize for Todo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.write().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Todo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::read("todo", value).map_err(D::Error::custom)
    }
}

/// Agents number their todos or name them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TodoId {
    /// A number.
    Number(Number),
    /// A name.
    Text(String),
}

impl TodoId {
    fn to_value(&self) -> Value {
        match self {
            Self::Number(number) => Value::Number(number.clone()),
            Self::Text(text) => Value::String(text.clone()),
        }
    }
}

impl From<i64> for TodoId {
    fn from(number: i64) -> Self {
        Self::Number(number.into())
    }
}

impl From<&str> for TodoId {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for TodoId {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl fmt::Display for TodoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// How far a todo has come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TodoStatus {
    /// Not started.
    Pending,
    /// Started.
    InProgress,
    /// Done.
    Completed,
    /// Given up.
    Cancelled,
    /// One that another version knows.
    Other(String),
}

impl TodoStatus {
    /// As it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Other(other) => other,
        }
    }

    fn read(text: String) -> Self {
        match text.as_str() {
            "pending" => Self::Pending,
            "in_progress" => Self::InProgress,
            "completed" => Self::Completed,
            "cancelled" => Self::Cancelled,
            _ => Self::Other(text),
        }
    }
}
