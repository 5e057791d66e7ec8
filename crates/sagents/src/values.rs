//! What both databases can store of text, JSON and ids, for SQL of your own.
//!
//! ```
//! use sagents::values::{check_id, clean_json, clean_string};
//! # use serde_json::{Map, Value};
//! # use uuid::Uuid;
//!
//! # struct NewConversation { id: Uuid, title: Option<String>, metadata: Map<String, Value> }
//! # fn checked(new: NewConversation) -> sagents::Result<NewConversation> {
//! check_id(new.id)?;
//! let title = new.title.map(clean_string);
//! let metadata = clean_json(new.metadata)?;
//! # Ok(NewConversation { id: new.id, title, metadata })
//! # }
//! ```

use serde_json::{Map, Number, Value};
use uuid::Uuid;

use crate::{Error, Result};

/// Refuses a conversation id that isn't a `UUIDv7`: lists are in the order of ids.
///
/// # Errors
///
/// [`Error::Invalid`].
pub fn check_id(id: Uuid) -> Result<()> {
    if id.get_version_num() != 7 {
        return Err(Error::Invalid(format!("the id {id} is not a UUIDv7")));
    }
    Ok(())
}

/// Replaces U+0000, which `PostgreSQL` doesn't store, with U+FFFD.
#[must_use]
pub fn clean_text(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

/// As [`clean_text`]; clean text isn't copied.
#[must_use]
pub fn clean_string(text: String) -> String {
    if text.contains('\0') { clean_text(&text) } else { text }
}

/// As [`clean_text`], for the id of a tool call. An id of more than 1000 bytes may not fit into an
/// index: it becomes its first 100 characters and a hash.
pub(crate) fn clean_call_id(id: &str) -> String {
    const LONGEST: usize = 1000;

    let id = clean_text(id);
    if id.len() <= LONGEST {
        return id;
    }
    // FNV-1a: it must be the same in all processes and versions.
    let hash = id
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let beginning: String = id.chars().take(100).collect();
    format!("{beginning}…{hash:016x}")
}

/// Cleans all text in a JSON object as [`clean_text`] does. Numbers become what `PostgreSQL` returns for them.
///
/// # Errors
///
/// [`Error::Invalid`] if it's nested deeper than 100: it couldn't be read back.
pub fn clean_json(map: Map<String, Value>) -> Result<Map<String, Value>> {
    clean_entries(map, 100)
}

/// As [`clean_json`], for any value.
pub(crate) fn clean_value(value: Value) -> Result<Value> {
    clean(value, 100)
}

fn clean(value: Value, depth: u32) -> Result<Value> {
    if depth == 0 && matches!(value, Value::Array(_) | Value::Object(_)) {
        return Err(Error::Invalid("the metadata is nested deeper than 100".into()));
    }
    Ok(match value {
        Value::Number(number) => Value::Number(clean_number(number)),
        Value::String(text) => Value::String(clean_string(text)),
        Value::Array(items) => {
            let items = items.into_iter().map(|item| clean(item, depth - 1));
            Value::Array(items.collect::<Result<_>>()?)
        }
        Value::Object(map) => Value::Object(clean_entries(map, depth - 1)?),
        plain => plain,
    })
}

fn clean_entries(mut map: Map<String, Value>, depth: u32) -> Result<Map<String, Value>> {
    if map.keys().any(|key| key.contains('\0')) {
        map = map.into_iter().map(|(key, value)| (clean_string(key), value)).collect();
    }
    for value in map.values_mut() {
        *value = clean(std::mem::take(value), depth)?;
    }
    Ok(map)
}

/// Without the sign of zero, and an integer if it is one in decimal notation.
fn clean_number(number: Number) -> Number {
    let text = match number.as_f64() {
        Some(0.0) if number.is_f64() => "0.0".to_owned(),
        Some(float) if number.is_f64() && float.abs() >= 1e16 => float.to_string(),
        _ => return number,
    };
    serde_json::from_str(&text).unwrap_or(number)
}
