//! Reading JSON with the place of every fault, and keeping what is not known.

use serde_json::{Map, Value};

use super::serializer::ReadError;

/// How deep a value may be nested and still be read back.
pub(super) const MAX_DEPTH: usize = 100;

/// An object that is taken apart key by key. What is left at the end is kept as it is.
pub(super) struct Fields {
    place: String,
    map: Map<String, Value>,
}

impl Fields {
    pub(super) fn of(place: &str, value: Value) -> Result<Self, ReadError> {
        match value {
            Value::Object(map) => Ok(Self {
                place: place.to_owned(),
                map,
            }),
            other => Err(wrong(place, "an object", &other)),
        }
    }

    /// A text that must be there.
    pub(super) fn text(&mut self, key: &str) -> Result<String, ReadError> {
        match self.map.remove(key) {
            Some(Value::String(text)) => Ok(text),
            other => Err(self.wrong(key, "a text", other)),
        }
    }

    /// A text, unless it is absent or null. A null stays in what is left.
    pub(super) fn optional_text(&mut self, key: &str) -> Result<Option<String>, ReadError> {
        match self.present(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            other => Err(self.wrong(key, "a text", other)),
        }
    }

    /// `false` if it is absent or null.
    pub(super) fn flag(&mut self, key: &str) -> Result<bool, ReadError> {
        match self.present(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            other => Err(self.wrong(key, "true or false", other)),
        }
    }

    pub(super) fn optional_object(
        &mut self,
        key: &str,
    ) -> Result<Option<Map<String, Value>>, ReadError> {
        match self.present(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            other => Err(self.wrong(key, "an object", other)),
        }
    }

    /// A list, each item read with its place. An absent, null or empty one stays in what is left.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        read: impl Fn(&str, Value) -> Result<T, ReadError>,
    ) -> Result<Vec<T>, ReadError> {
        match self.map.get(key) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(items)) if items.is_empty() => return Ok(Vec::new()),
            Some(_) => {}
        }
        match self.map.remove(key) {
            Some(Value::Array(items)) => items
                .into_iter()
                .enumerate()
                .map(|(index, item)| read(&format!("{}[{index}]", self.at(key)), item))
                .collect(),
            other => Err(self.wrong(key, "a list", other)),
        }
    }

    /// Whatever is there, unless it is absent or null.
    pub(super) fn present(&mut self, key: &str) -> Option<Value> {
        match self.map.get(key) {
            None | Some(Value::Null) => None,
            Some(_) => self.map.remove(key),
        }
    }

    /// Whatever is there, also null.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key)
    }

    pub(super) fn at(&self, key: &str) -> String {
        match self.place.as_str() {
            "" => key.to_owned(),
            place => format!("{place}.{key}"),
        }
    }

    /// What was not taken.
    pub(super) fn rest(self) -> Map<String, Value> {
        self.map
    }

    fn wrong(&self, key: &str, expected: &str, found: Option<Value>) -> ReadError {
        match found {
            Some(found) => wrong(&self.at(key), expected, &found),
            None => {
                ReadError::damaged(&self.at(key), format!("expected {expected}, found nothing"))
            }
        }
    }
}

pub(super) fn wrong(place: &str, expected: &str, found: &Value) -> ReadError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    ReadError::damaged(place, format!("expected {expected}, found {found}"))
}

/// The place of a value, if it is nested deeper than [`MAX_DEPTH`].
pub(super) fn deep(place: &str, value: &Value) -> Option<String> {
    (!fits(value, MAX_DEPTH)).then(|| place.to_owned())
}

/// The place of the first value in an object that is nested deeper than [`MAX_DEPTH`].
pub(super) fn deep_in(place: &str, map: &Map<String, Value>) -> Option<String> {
    map.iter()
        .find_map(|(key, value)| deep(&format!("{place}.{key}"), value))
}

/// Whether there are at most so many arrays and objects inside each other. It looks no deeper than
/// that.
pub(super) fn fits(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| fits(item, depth - 1)),
        Value::Object(map) => depth > 0 && map.values().all(|item| fits(item, depth - 1)),
        _ => true,
    }
}
