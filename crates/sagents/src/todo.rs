//! The agent's todo list.

use serde::de::{self, MapAccess};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};

use super::json::{Fields, FromJson, Object, Path, Reader};
use super::json::{deserialize, too_deep_in};

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
        Self { id: id.into(), content: content.into(), status: TodoStatus::Pending, extra: Map::new() }
    }

    /// Replaces the status.
    #[must_use]
    pub fn status(mut self, status: TodoStatus) -> Self {
        self.status = status;
        self
    }

    /// The path of a value that is nested too deeply, if there is one.
    pub(super) fn too_deep(&self, path: Path<'_>) -> Option<String> {
        too_deep_in(path, &self.extra)
    }
}

impl FromJson for Todo {
    const EXPECTED: &'static str = "an object";

    fn from_object<'de, A: MapAccess<'de>>(mut fields: Fields<'_, A>) -> Result<Self, A::Error> {
        let (mut id, mut content, mut status) = (Value::Null, None, None);
        while let Some(key) = fields.next_key()? {
            match &*key {
                "id" => id = fields.value()?,
                "content" => content = fields.required("content")?,
                "status" => status = fields.required("status")?,
                _ => fields.keep(key)?,
            }
        }
        let id = match id {
            Value::Number(number) => TodoId::Number(number),
            Value::String(text) => TodoId::Text(text),
            other => return Err(fields.unexpected("id", "a number or a string", &other)),
        };
        Ok(Self {
            id,
            content: fields.found("content", content)?,
            status: fields.found("status", status)?,
            extra: fields.rest,
        })
    }
}

impl Serialize for Todo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::new(serializer, &self.extra)?;
        object.set("id", &self.id)?;
        object.set("content", &self.content)?;
        object.set("status", self.status.as_str())?;
        object.end()
    }
}

impl<'de> Deserialize<'de> for Todo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize("todo", deserializer)
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

impl Serialize for TodoId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => text.serialize(serializer),
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
}

impl FromJson for TodoStatus {
    const EXPECTED: &'static str = "a string";

    fn from_text<E: de::Error>(_at: Reader<'_>, text: &str) -> Result<Self, E> {
        Ok(match text {
            "pending" => Self::Pending,
            "in_progress" => Self::InProgress,
            "completed" => Self::Completed,
            "cancelled" => Self::Cancelled,
            _ => Self::Other(text.to_owned()),
        })
    }
}
