//! Points in time.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// A point in time in UTC, with microseconds.
///
/// It covers the years 0 to 9999; arithmetic stops at [`MIN`](Self::MIN) and [`MAX`](Self::MAX). It displays, parses and
/// serializes as RFC 3339 text with six digits, such as `2026-03-01T09:30:00.000000Z`, so texts sort like the times.
/// The features `chrono` and `time` add conversions.
///
/// ```
/// use std::time::Duration;
/// use sagents::Timestamp;
///
/// let time: Timestamp = "2026-03-01T10:30:00+01:00".parse()?;
/// assert_eq!(time.to_string(), "2026-03-01T09:30:00.000000Z");
/// assert!(time - Duration::from_secs(1) < time);
/// # Ok::<_, sagents::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The beginning of the year 0.
    pub const MIN: Self = Self(-62_167_219_200_000_000);
    /// The end of the year 9999.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// The current time of the system's clock.
    #[must_use]
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// The microseconds since 1970.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time that is this many microseconds after 1970; `None` outside the years 0 to 9999.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Option<Self> {
        if micros < Self::MIN.0 || micros > Self::MAX.0 { None } else { Some(Self(micros)) }
    }

    /// How long ago `earlier` was at this time; zero if it was not.
    #[must_use]
    pub fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    fn clamped(micros: i64) -> Self {
        Self(micros.clamp(Self::MIN.0, Self::MAX.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self::clamped(self.0.saturating_add(micros(duration)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self::clamped(self.0.saturating_sub(micros(duration)))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self::clamped(micros(after)),
            Err(before) => Self::clamped(-micros(before.duration())),
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(MICROS_PER_SECOND);
        let (days, second) = (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY));
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let micros = self.0.rem_euclid(MICROS_PER_SECOND);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = crate::Error;

    /// Parses RFC 3339 text with any offset. Digits past the microseconds are cut off.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| crate::Error::Invalid("not a time as in RFC 3339".into()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| de::Error::invalid_value(de::Unexpected::Str(&text), &"a time as in RFC 3339"))
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let is_separated = bytes.len() >= 20
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && matches!(bytes[10], b'T' | b't' | b' ')
        && bytes[13] == b':'
        && bytes[16] == b':';
    if !is_separated || !text.is_ascii() {
        return None;
    }
    let (year, month, day) = (number(&text[..4])?, number(&text[5..7])?, number(&text[8..10])?);
    let (hour, minute, second) = (number(&text[11..13])?, number(&text[14..16])?, number(&text[17..19])?);
    let days = days(year, month, day);
    // A leap second is the first second of the next minute.
    let is_valid = date(days) == (year, month, day) && hour < 24 && minute < 60 && second <= 60;
    if !is_valid {
        return None;
    }
    let (fraction, zone) = match text[19..].strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?),
        None => ("0", &text[19..]),
    };
    let micros =
        number(fraction.get(..6).unwrap_or(fraction))? * 10_i64.pow(6 - u32::try_from(fraction.len().min(6)).ok()?);
    let offset = match zone.as_bytes() {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let (hours, minutes) = (number(&zone[1..3])?, number(&zone[4..6])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'-' { -60 } else { 60 }
        }
        _ => return None,
    };
    let seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset;
    Timestamp::from_micros(seconds * MICROS_PER_SECOND + micros)
}

fn number(digits: &str) -> Option<i64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

/// The days from 1970 to a date of the proleptic Gregorian calendar. Years begin in March here, so that the leap day is
/// the last day of a year; see Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The opposite of [`days`].
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(feature = "chrono")]
impl From<Timestamp> for chrono::DateTime<chrono::Utc> {
    fn from(time: Timestamp) -> Self {
        Self::from_timestamp_micros(time.0).unwrap_or_default()
    }
}

/// Times before the year 0 or after 9999 become [`Timestamp::MIN`] or [`Timestamp::MAX`].
#[cfg(feature = "chrono")]
impl<Tz: chrono::TimeZone> From<chrono::DateTime<Tz>> for Timestamp {
    fn from(time: chrono::DateTime<Tz>) -> Self {
        Self::clamped(time.timestamp_micros())
    }
}

#[cfg(feature = "time")]
impl From<Timestamp> for time::OffsetDateTime {
    fn from(time: Timestamp) -> Self {
        Self::from_unix_timestamp_nanos(i128::from(time.0) * 1000).unwrap_or(Self::UNIX_EPOCH)
    }
}

/// Times before the year 0 or after 9999 become [`Timestamp::MIN`] or [`Timestamp::MAX`].
#[cfg(feature = "time")]
impl From<time::OffsetDateTime> for Timestamp {
    fn from(time: time::OffsetDateTime) -> Self {
        let micros = time.unix_timestamp_nanos().div_euclid(1000);
        Self::clamped(i64::try_from(micros).unwrap_or(if micros < 0 { i64::MIN } else { i64::MAX }))
    }
}

#[cfg(feature = "_sqlite")]
mod sqlite {
    use sqlx::encode::IsNull;
    use sqlx::error::BoxDynError;
    use sqlx::sqlite::{Sqlite, SqliteArgumentsBuffer, SqliteTypeInfo, SqliteValueRef};
    use sqlx::{Decode, Encode, Type};

    use super::Timestamp;

    impl Type<Sqlite> for Timestamp {
        fn type_info() -> SqliteTypeInfo {
            <str as Type<Sqlite>>::type_info()
        }
    }

    impl Encode<'_, Sqlite> for Timestamp {
        fn encode_by_ref(&self, arguments: &mut SqliteArgumentsBuffer) -> Result<IsNull, BoxDynError> {
            <String as Encode<Sqlite>>::encode(self.to_string(), arguments)
        }
    }

    impl Decode<'_, Sqlite> for Timestamp {
        fn decode(value: SqliteValueRef<'_>) -> Result<Self, BoxDynError> {
            Ok(<&str as Decode<Sqlite>>::decode(value)?.parse()?)
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use sqlx::encode::IsNull;
    use sqlx::error::BoxDynError;
    use sqlx::postgres::types::Oid;
    use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueFormat, PgValueRef, Postgres};
    use sqlx::{Decode, Encode, Type};

    use super::Timestamp;

    const TIMESTAMPTZ: Oid = Oid(1184);
    const TIMESTAMPTZ_ARRAY: Oid = Oid(1185);
    /// `PostgreSQL` counts from 2000.
    const EPOCH: i64 = 946_684_800_000_000;

    impl Type<Postgres> for Timestamp {
        fn type_info() -> PgTypeInfo {
            PgTypeInfo::with_oid(TIMESTAMPTZ)
        }
    }

    impl PgHasArrayType for Timestamp {
        fn array_type_info() -> PgTypeInfo {
            PgTypeInfo::with_oid(TIMESTAMPTZ_ARRAY)
        }
    }

    impl Encode<'_, Postgres> for Timestamp {
        fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
            <i64 as Encode<Postgres>>::encode(self.0 - EPOCH, buffer)
        }
    }

    impl Decode<'_, Postgres> for Timestamp {
        fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
            match value.format() {
                PgValueFormat::Binary => {
                    let micros = <i64 as Decode<Postgres>>::decode(value)?;
                    Ok(Self::clamped(micros.saturating_add(EPOCH)))
                }
                PgValueFormat::Text => Err("a time as text is not supported".into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, SecondsFormat};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn texts_are_those_of_chrono(micros in Timestamp::MIN.0..=Timestamp::MAX.0) {
            let chrono = DateTime::from_timestamp_micros(micros).unwrap();
            let time = Timestamp::from_micros(micros).unwrap();
            prop_assert_eq!(time.to_string(), chrono.to_rfc3339_opts(SecondsFormat::Micros, true));
            prop_assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        }

        #[test]
        fn what_parses_parses_as_in_chrono(text in "[0-9]{4}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,9})?(Z|z|[+-][0-2][0-9]:[0-6][0-9])?") {
            let ours = text.parse::<Timestamp>().ok().map(Timestamp::as_micros);
            let theirs = DateTime::parse_from_rfc3339(&text).ok().map(|time| time.timestamp_micros());
            let theirs = theirs.filter(|micros| Timestamp::from_micros(*micros).is_some());
            prop_assert_eq!(ours, theirs);
        }
    }

    #[cfg(all(feature = "chrono", feature = "time"))]
    #[test]
    fn times_of_other_crates_are_converted_both_ways() {
        for micros in [0, 1, -1, 951_825_599_999_999, Timestamp::MIN.0, Timestamp::MAX.0] {
            let time = Timestamp(micros);
            let (chrono, other) = (DateTime::<chrono::Utc>::from(time), time::OffsetDateTime::from(time));
            assert_eq!(chrono.timestamp_micros(), micros);
            assert_eq!(other.unix_timestamp_nanos(), i128::from(micros) * 1000);
            assert_eq!((Timestamp::from(chrono), Timestamp::from(other)), (time, time));
            let json = serde_json::to_string(&time).unwrap();
            assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), time, "{json}");
            let json = format!("\"{}\"", chrono.to_rfc3339());
            assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), time, "{json}");
        }
        // An offset doesn't matter.
        let in_paris = time::OffsetDateTime::UNIX_EPOCH.to_offset(time::UtcOffset::from_hms(1, 0, 0).unwrap());
        assert_eq!(Timestamp::from(in_paris).to_string(), "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(Timestamp::MAX + Duration::MAX, Timestamp::MAX);
        assert_eq!(Timestamp::MIN - Duration::from_secs(1), Timestamp::MIN);
        assert_eq!(Timestamp::MIN.duration_since(Timestamp::MAX), Duration::ZERO);
        assert_eq!(Timestamp::MIN.to_string(), "0000-01-01T00:00:00.000000Z");
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999999Z");
    }
}
