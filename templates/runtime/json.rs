//! JSON objects, read key by key with the path of every error, and written with the keys that this
//! version does not know.

use serde_json::{Map, Value};

use super::serializer::ReadError;

/// How many objects and arrays of a free-form value may contain each other. With the levels around
/// it, such a value stays below the 128 levels that `serde_json` reads.
pub(super) const MAX_DEPTH: usize = 100;

/// An object that is read key by key. The keys that are left in the end are kept as they are.
pub(super) struct Fields {
    path: String,
    map: Map<String, Value>,
}

impl Fields {
    pub(super) fn new(path: &str, value: Value) -> Result<Self, ReadError> {
        match value {
            Value::Object(map) => Ok(Self {
                path: path.to_owned(),
                map,
            }),
            other => Err(unexpected(path, "an object", &other)),
        }
    }

    pub(super) fn string(&mut self, key: &str) -> Result<String, ReadError> {
        match self.map.remove(key) {
            Some(Value::String(text)) => Ok(text),
            other => Err(self.unexpected(key, "a string", other)),
        }
    }

    pub(super) fn optional_string(&mut self, key: &str) -> Result<Option<String>, ReadError> {
        match self.present(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            other => Err(self.unexpected(key, "a string", other)),
        }
    }

    /// `false` if the key is absent or null.
    pub(super) fn bool(&mut self, key: &str) -> Result<bool, ReadError> {
        match self.present(key) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(value),
            other => Err(self.unexpected(key, "a boolean", other)),
        }
    }

    pub(super) fn optional_object(
        &mut self,
        key: &str,
    ) -> Result<Option<Map<String, Value>>, ReadError> {
        match self.present(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            other => Err(self.unexpected(key, "an object", other)),
        }
    }

    pub(super) fn optional<T>(
        &mut self,
        key: &str,
        read: impl Fn(&str, Value) -> Result<T, ReadError>,
    ) -> Result<Option<T>, ReadError> {
        let value = self.present(key);
        value
            .map(|value| read(&self.path_of(key), value))
            .transpose()
    }

    /// Empty if the key is absent or null. An empty array stays in the rest, so that it is written
    /// again.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        read: impl Fn(&str, Value) -> Result<T, ReadError>,
    ) -> Result<Vec<T>, ReadError> {
        if self
            .map
            .get(key)
            .and_then(Value::as_array)
            .is_some_and(Vec::is_empty)
        {
            return Ok(Vec::new());
        }
        match self.present(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => read_list(&self.path_of(key), items, read),
            other => Err(self.unexpected(key, "an array", other)),
        }
    }

    /// The value, unless it is null. A null stays in the rest, so that it is written again.
    pub(super) fn present(&mut self, key: &str) -> Option<Value> {
        match self.map.get(key) {
            None | Some(Value::Null) => None,
            Some(_) => self.map.remove(key),
        }
    }

    /// The value, also if it is null.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key)
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// The keys that were not read.
    pub(super) fn rest(self) -> Map<String, Value> {
        self.map
    }

    fn unexpected(&self, key: &str, expected: &str, found: Option<Value>) -> ReadError {
        let path = self.path_of(key);
        match found {
            Some(found) => unexpected(&path, expected, &found),
            None => ReadError::damaged(&path, format!("expected {expected}, found nothing")),
        }
    }
}

pub(super) fn read_list<T>(
    path: &str,
    items: Vec<Value>,
    read: impl Fn(&str, Value) -> Result<T, ReadError>,
) -> Result<Vec<T>, ReadError> {
    let items = items.into_iter().enumerate();
    items
        .map(|(index, item)| read(&format!("{path}[{index}]"), item))
        .collect()
}

pub(super) fn unexpected(path: &str, expected: &str, found: &Value) -> ReadError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    ReadError::damaged(path, format!("expected {expected}, found {found}"))
}

/// An object that is written key by key.
pub(super) struct Object(Map<String, Value>);

impl Object {
    /// Starts with the keys that this version does not know.
    pub(super) fn new(extra: &Map<String, Value>) -> Self {
        Self(extra.clone())
    }

    pub(super) fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        drop(self.0.insert(key.to_owned(), value.into()));
        self
    }

    /// Leaves the key out if there is no value.
    pub(super) fn set_some(self, key: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.set(key, value),
            None => self,
        }
    }

    /// Leaves the key out if the list is empty.
    pub(super) fn set_list<T>(self, key: &str, items: &[T], write: fn(&T) -> Value) -> Self {
        let is_empty = items.is_empty();
        self.set_some(key, (!is_empty).then(|| write_list(items, write)))
    }

    pub(super) fn into_map(self) -> Map<String, Value> {
        self.0
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Self::Object(object.0)
    }
}

pub(super) fn write_list<T>(items: &[T], write: fn(&T) -> Value) -> Value {
    items.iter().map(write).collect()
}

/// The path of a value, if it is nested deeper than [`MAX_DEPTH`].
pub(super) fn too_deep(path: &str, value: &Value) -> Option<String> {
    (!fits(value, MAX_DEPTH)).then(|| path.to_owned())
}

/// The path of the first value in an object that is nested deeper than [`MAX_DEPTH`].
pub(super) fn too_deep_in(path: &str, map: &Map<String, Value>) -> Option<String> {
    map.iter()
        .find_map(|(key, value)| too_deep(&format!("{path}.{key}"), value))
}

/// The path that `find` returns for the first item with one.
pub(super) fn too_deep_item<T>(
    path: &str,
    items: &[T],
    find: impl Fn(&T, &str) -> Option<String>,
) -> Option<String> {
    let mut items = items.iter().enumerate();
    items.find_map(|(index, item)| find(item, &format!("{path}[{index}]")))
}

/// Whether at most `depth` arrays and objects contain each other. It recurses no deeper than that.
pub(super) fn fits(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| fits(item, depth - 1)),
        Value::Object(map) => depth > 0 && map.values().all(|item| fits(item, depth - 1)),
        _ => true,
    }
}
