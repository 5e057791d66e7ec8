//! Values as they are stored: times that sort, texts and JSON that every database can hold.

use chrono::{DateTime, Datelike as _, SecondsFormat, SubsecRound as _, Utc};
use serde_json::{Map, Value};

use super::{Error, Result};

/// Times are kept in microseconds.
pub(super) fn now() -> DateTime<Utc> {
    Utc::now().trunc_subsecs(6)
}

/// A time as it is stored: text of one length, so that it sorts.
pub(super) fn timestamp(time: DateTime<Utc>) -> String {
    match time.year() {
        ..0 => "0000-01-01T00:00:00.000000Z".into(),
        0..=9999 => time.to_rfc3339_opts(SecondsFormat::Micros, true),
        10000.. => "9999-12-31T23:59:59.999999Z".into(),
    }
}

/// U+0000 cannot be shown, and not every database can store it.
pub(super) fn clean_text(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

/// As [`clean_text`], for every text in it. A value may be nested to 100, so that it can be read
/// back.
pub(super) fn clean_json(map: Map<String, Value>) -> Result<Map<String, Value>> {
    fn clean(value: Value, depth: u32) -> Result<Value> {
        if depth == 0 && matches!(value, Value::Array(_) | Value::Object(_)) {
            return Err(Error::Invalid(
                "the metadata is nested deeper than 100".into(),
            ));
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
