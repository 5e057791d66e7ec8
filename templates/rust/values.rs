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

/// As [`clean_text`], for every text in it.
pub(super) fn clean_json(map: Map<String, Value>) -> Result<Map<String, Value>> {
    fn clean(value: Value, depth: u32) -> Result<Value> {
        let deeper = || match depth {
            100 => Err(Error::Invalid(
                "the metadata is nested deeper than 100".into(),
            )),
            _ => Ok(depth + 1),
        };
        Ok(match value {
            Value::String(text) => Value::String(clean_text(&text)),
            Value::Array(items) => {
                let depth = deeper()?;
                let items = items.into_iter().map(|item| clean(item, depth));
                Value::Array(items.collect::<Result<_>>()?)
            }
            Value::Object(map) => {
                let depth = deeper()?;
                let entries = map
                    .into_iter()
                    .map(|(key, value)| Ok((clean_text(&key), clean(value, depth)?)));
                Value::Object(entries.collect::<Result<_>>()?)
            }
            plain => plain,
        })
    }
    match clean(Value::Object(map), 0)? {
        Value::Object(map) => Ok(map),
        _ => unreachable!("an object stays an object"),
    }
}
