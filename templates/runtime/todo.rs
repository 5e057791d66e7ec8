//! The agent's todo list.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};

use super::json::unexpected;
use super::json::{Fields, Object};
use super::serializer::ReadError;

/// A task that the agent plans, works on or has finished.
#[derive(Debug, Clone, PartialEq)]
pub struct Todo {
    /// Unique in the list.
    pub id: TodoId,
    /// The task, in words.
    pub content: String,
    /// How far the agent is.
    pub status: TodoStatus,
    /// Keys that this version does not know.
    pub extra: Map<String, Value>,
}

impl Todo {
    /// A pending task.
    #[must_use]
    pub fn new(id: impl Into<TodoId>, content: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            content: content.into(),
            status: TodoStatus::Pending,
            extra: Map::new(),
        }
    }

    /// Replaces the status.
    #[must_use]
    pub fn status(mut self, status: TodoStatus) -> Self {
        self.status = status;
        self
    }

    pub(super) fn from_json(path: &str, value: Value) -> Result<Self, ReadError> {
        let mut fields = Fields::new(path, value)?;
        let id = match fields.present("id") {
            Some(Value::Number(number)) => TodoId::Number(number),
            Some(Value::String(text)) => TodoId::Text(text),
            other => {
                let found = other.unwrap_or(Value::Null);
                return Err(unexpected(
                    &fields.path_of("id"),
                    "a number or a string",
                    &found,
                ));
            }
        };
        Ok(Self {
            id,
            content: fields.string("content")?,
            status: TodoStatus::parse(fields.string("status")?),
            extra: fields.rest(),
        })
    }

    pub(super) fn to_json(&self) -> Value {
        Object::new(&self.extra)
            .set("id", self.id.to_json())
            .set("content", self.content.clone())
            .set("status", self.status.as_str())
            .into()
    }
}

impl Serialize for Todo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Todo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_json("todo", value).map_err(D::Error::custom)
    }
}

/// Agents choose the ids of their todos. The number 1 and the text "1" are two ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TodoId {
    /// A JSON number.
    Number(Number),
    /// A JSON string.
    Text(String),
}

impl TodoId {
    fn to_json(&self) -> Value {
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

/// How far the agent is with a task.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TodoStatus {
    /// Not started.
    Pending,
    /// Started and not finished.
    InProgress,
    /// Finished.
    Completed,
    /// Given up.
    Cancelled,
    /// A status that this version does not know.
    Other(String),
}

impl TodoStatus {
    /// The text that is stored.
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

    fn parse(text: String) -> Self {
        match text.as_str() {
            "pending" => Self::Pending,
            "in_progress" => Self::InProgress,
            "completed" => Self::Completed,
            "cancelled" => Self::Cancelled,
            _ => Self::Other(text),
        }
    }
}
