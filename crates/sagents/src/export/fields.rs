//! Reads the parts of an export key by key.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::super::Timestamp;
use super::checks::Problem;
use super::{ExportedConversation, ExportedMessage, ExportedUsage};

/// The keys of a record. What is not taken is an error: nothing is dropped in silence.
pub(super) struct Fields(pub Map<String, Value>);

impl Fields {
    pub(super) fn take<T: DeserializeOwned>(&mut self, key: &str) -> Result<T, Problem> {
        let value = self.0.remove(key).ok_or_else(|| Problem::new(key, "missing"))?;
        T::deserialize(value).map_err(|error| Problem::new(key, error.to_string()))
    }

    fn take_or_default<T: DeserializeOwned + Default>(&mut self, key: &str) -> Result<T, Problem> {
        if self.0.contains_key(key) { self.take(key) } else { Ok(T::default()) }
    }

    fn time(&mut self, key: &str) -> Result<Timestamp, Problem> {
        let value: Value = self.take(key)?;
        Timestamp::deserialize(value).map_err(|error| Problem::new(key, error.to_string()))
    }

    fn optional_time(&mut self, key: &str) -> Result<Option<Timestamp>, Problem> {
        if self.0.get(key).is_some_and(Value::is_null) {
            drop(self.0.remove(key));
            return Ok(None);
        }
        self.time(key).map(Some)
    }

    pub(super) fn read<T: FromFields>(mut self) -> Result<T, Problem> {
        let record = T::from_fields(&mut self)?;
        self.end()?;
        Ok(record)
    }

    pub(super) fn end(self) -> Result<(), Problem> {
        match self.0.keys().next() {
            Some(key) => Err(Problem::new(key, "unknown key")),
            None => Ok(()),
        }
    }
}

/// A record that is read key by key, so that an error has its place.
pub(super) trait FromFields: Sized {
    fn from_fields(fields: &mut Fields) -> Result<Self, Problem>;
}

impl FromFields for ExportedConversation {
    fn from_fields(fields: &mut Fields) -> Result<Self, Problem> {
        Ok(Self {
            id: fields.take("id")?,
            title: fields.take("title")?,
            metadata: fields.take("metadata")?,
            interrupted: fields.take("interrupted")?,
            inserted_at: fields.time("inserted_at")?,
            updated_at: fields.time("updated_at")?,
            archived_at: fields.optional_time("archived_at")?,
            columns: fields.take_or_default("columns")?,
        })
    }
}

impl FromFields for ExportedMessage {
    fn from_fields(fields: &mut Fields) -> Result<Self, Problem> {
        Ok(Self {
            sequence: fields.take("sequence")?,
            message_id: fields.take("message_id")?,
            item: fields.take("item")?,
            role: fields.take("role")?,
            content_type: fields.take("content_type")?,
            content: fields.take("content")?,
            metadata: fields.take("metadata")?,
            tool_call_id: fields.take("tool_call_id")?,
            status: fields.take("status")?,
            inserted_at: fields.time("inserted_at")?,
            delivery: fields.take("delivery")?,
        })
    }
}

impl FromFields for ExportedUsage {
    fn from_fields(fields: &mut Fields) -> Result<Self, Problem> {
        Ok(Self {
            message_id: fields.take("message_id")?,
            model: fields.take("model")?,
            input_tokens: fields.take("input_tokens")?,
            output_tokens: fields.take("output_tokens")?,
            cached_tokens: fields.take("cached_tokens")?,
            inserted_at: fields.time("inserted_at")?,
        })
    }
}

impl<'de> Deserialize<'de> for ExportedConversation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer)
    }
}

impl<'de> Deserialize<'de> for ExportedMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer)
    }
}

impl<'de> Deserialize<'de> for ExportedUsage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer)
    }
}

fn deserialize<'de, T: FromFields, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let fields = Fields(Map::deserialize(deserializer)?);
    fields.read().map_err(D::Error::custom)
}
