//! Points in time, as the `chrono` crate has them. Everything else names [`Timestamp`] and these
//! functions.
//!
//! A field of a type that serializes needs `#[serde(with = "timestamp")]`: text as in RFC 3339.

use chrono::{DateTime, Datelike as _, SecondsFormat, SubsecRound as _, Utc};
use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

/// A point in time, in UTC.
pub type Timestamp = DateTime<Utc>;

/// Before every other one.
pub const MIN: Timestamp = Timestamp::MIN_UTC;

/// After every other one.
pub const MAX: Timestamp = Timestamp::MAX_UTC;

/// The current time, in microseconds.
#[must_use]
pub fn now() -> Timestamp {
    Utc::now().trunc_subsecs(6)
}

/// As in RFC 3339, with microseconds. All texts have the same length, so that they sort: what is
/// before the year 0 is its beginning, and what is after 9999 is its end.
#[must_use]
pub fn to_text(time: Timestamp) -> String {
    match time.year() {
        ..0 => "0000-01-01T00:00:00.000000Z".into(),
        0..=9999 => time.to_rfc3339_opts(SecondsFormat::Micros, true),
        10000.. => "9999-12-31T23:59:59.999999Z".into(),
    }
}

/// The microseconds since 1970.
#[must_use]
pub fn to_micros(time: Timestamp) -> i64 {
    time.timestamp_micros()
}

/// The opposite of [`to_micros`]; `None` if there is no such time.
#[must_use]
pub fn from_micros(micros: i64) -> Option<Timestamp> {
    Timestamp::from_timestamp_micros(micros)
}

/// For `#[serde(with = "timestamp")]`.
///
/// # Errors
///
/// Those of the serializer.
pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    time.serialize(serializer)
}

/// For `#[serde(with = "timestamp")]`.
///
/// # Errors
///
/// If it is not a time as in RFC 3339.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    Timestamp::deserialize(deserializer)
}

/// For `#[serde(with = "timestamp::option")]`.
pub mod option {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::Timestamp;

    /// As [`super::serialize`], or nothing.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<'a, S: Serializer>(
        time: impl Into<Option<&'a Timestamp>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.into().serialize(serializer)
    }

    /// As [`super::deserialize`], or nothing.
    ///
    /// # Errors
    ///
    /// If there is something else than a time as in RFC 3339.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Option::deserialize(deserializer)
    }
}
