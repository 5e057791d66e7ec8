//! Text and JSON that every database can store.

use serde_json::{Map, Value};

use super::{Error, Result};

/// Replaces U+0000, which `PostgreSQL` does not store, with U+FFFD.
pub(super) fn clean_text(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

/// As [`clean_text`], for all text in it. Refuses nesting beyond 100, which could not be read back.
pub(super) fn clean_json(map: Map<String, Value>) -> Result<Map<String, Value>> {
    fn clean(value: Value, depth: u32) -> Result<Value> {
        if depth == 0 && matches!(value, Value::Array(_) | Value::Object(_)) {
            return Err(Error::Invalid("the metadata is nested deeper than 100".into()));
        }
        Ok(match value {
            Value::String(text) => Value::String(clean_text(&text)),
            Value::Array(items) => {
                let items = items.into_iter().map(|item| clean(item, depth - 1));
                Value::Array(items.collect::<Result<_>>()?)
            }
            Value::Object(map) => Value::Object(clean_entries(map, depth - 1)?),
            plain => plain,
        })
    }
    fn clean_entries(map: Map<String, Value>, depth: u32) -> Result<Map<String, Value>> {
        map.into_iter()
            .map(|(key, value)| Ok((clean_text(&key), clean(value, depth)?)))
            .collect()
    }
    clean_entries(map, 100)
}
