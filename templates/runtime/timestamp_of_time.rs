//! Points in time, as the `time` crate has them. Everything else names [`Timestamp`] and these
//! functions.
//!
//! A field of a type that serializes needs `#[serde(with = "timestamp")]`: text as in RFC 3339.

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, PrimitiveDateTime, UtcOffset};

/// A point in time, in UTC.
pub type Timestamp = OffsetDateTime;

/// Before every other one.
pub const MIN: Timestamp = PrimitiveDateTime::MIN.assume_utc();

/// After every other one.
pub const MAX: Timestamp = PrimitiveDateTime::MAX.assume_utc();

/// The current time, in microseconds.
#[must_use]
pub fn now() -> Timestamp {
    let now = OffsetDateTime::now_utc();
    now.replace_microsecond(now.microsecond()).unwrap_or(now)
}

/// As in RFC 3339, with microseconds. All texts have the same length, so that they sort: what is
/// before the year 0 is its beginning, and what is after 9999 is its end.
#[must_use]
pub fn to_text(time: Timestamp) -> String {
    let time = time.checked_to_offset(UtcOffset::UTC).unwrap_or(time);
    match time.year() {
        ..0 => "0000-01-01T00:00:00.000000Z".into(),
        year @ 0..=9999 => {
            let (month, day) = (u8::from(time.month()), time.day());
            let (hour, minute, second, microsecond) = time.to_hms_micro();
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{microsecond:06}Z")
        }
        10000.. => "9999-12-31T23:59:59.999999Z".into(),
    }
}

/// The microseconds since 1970.
#[must_use]
pub fn to_micros(time: Timestamp) -> i64 {
    let micros = time.unix_timestamp_nanos().div_euclid(1000);
    i64::try_from(micros).unwrap_or(i64::MAX)
}

/// The opposite of [`to_micros`]; `None` if there is no such time.
#[must_use]
pub fn from_micros(micros: i64) -> Option<Timestamp> {
    Timestamp::from_unix_timestamp_nanos(i128::from(micros) * 1000).ok()
}

/// For `#[serde(with = "timestamp")]`.
///
/// # Errors
///
/// Those of the serializer, and if the year is not one of 0 to 9999.
pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&time.format(&Rfc3339).map_err(S::Error::custom)?)
}

/// For `#[serde(with = "timestamp")]`.
///
/// # Errors
///
/// If it is not a time as in RFC 3339.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(deserializer)?;
    Timestamp::parse(&text, &Rfc3339).map_err(D::Error::custom)
}

/// For `#[serde(with = "timestamp::option")]`.
pub mod option {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};
    use time::format_description::well_known::Rfc3339;

    use super::Timestamp;

    /// As [`super::serialize`], or nothing.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn serialize<'a, S: Serializer>(
        time: impl Into<Option<&'a Timestamp>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time.into() {
            Some(time) => super::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// As [`super::deserialize`], or nothing.
    ///
    /// # Errors
    ///
    /// If there is something else than a time as in RFC 3339.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let time = text.map(|text| Timestamp::parse(&text, &Rfc3339));
        time.transpose().map_err(D::Error::custom)
    }
}
