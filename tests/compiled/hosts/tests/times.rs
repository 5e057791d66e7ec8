//! Points in time of the `time` crate are written as those of `chrono` are, and read what `chrono`
//! wrote.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use private::sagents::timestamp::{self, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Span {
    #[serde(with = "timestamp")]
    start: Timestamp,
    #[serde(with = "timestamp::option")]
    end: Option<Timestamp>,
}

/// Some times of all kinds, in microseconds since 1970.
const MICROSECONDS: [i64; 7] = [
    0,
    1,
    -1,
    951_825_599_999_999,
    1_700_000_000_120_000,
    -62_167_219_200_000_000,
    253_402_300_799_999_999,
];

fn of_time(microseconds: i64) -> Timestamp {
    let span = Duration::from_micros(microseconds.unsigned_abs());
    if microseconds < 0 {
        Timestamp::UNIX_EPOCH - span
    } else {
        Timestamp::UNIX_EPOCH + span
    }
}

#[test]
fn both_crates_write_the_same_text() {
    for microseconds in MICROSECONDS {
        let chrono: DateTime<Utc> = DateTime::from_timestamp_micros(microseconds).unwrap();
        let expected = chrono.to_rfc3339_opts(SecondsFormat::Micros, true);
        assert_eq!(timestamp::to_text(of_time(microseconds)), expected);
    }
    let in_paris = of_time(0).to_offset(time::UtcOffset::from_hms(1, 0, 0).unwrap());
    assert_eq!(timestamp::to_text(in_paris), "1970-01-01T00:00:00.000000Z");
    assert_eq!(
        timestamp::to_text(timestamp::MIN),
        "0000-01-01T00:00:00.000000Z"
    );
    assert_eq!(
        timestamp::to_text(timestamp::MAX),
        "9999-12-31T23:59:59.999999Z"
    );
    assert_eq!(timestamp::now().nanosecond() % 1_000, 0);
}

#[test]
fn json_is_read_back_whichever_crate_wrote_it() {
    for microseconds in MICROSECONDS {
        let (start, end) = (of_time(microseconds), Some(of_time(microseconds)));
        for span in [Span { start, end }, Span { start, end: None }] {
            let text = serde_json::to_string(&span).unwrap();
            assert_eq!(serde_json::from_str::<Span>(&text).unwrap(), span, "{text}");
        }
        let chrono: DateTime<Utc> = DateTime::from_timestamp_micros(microseconds).unwrap();
        let text = format!(r#"{{"start":"{}","end":null}}"#, chrono.to_rfc3339());
        let span: Span = serde_json::from_str(&text).unwrap();
        assert_eq!(span, Span { start, end: None }, "{text}");
    }
    assert!(serde_json::from_str::<Span>(r#"{"start":0,"end":null}"#).is_err());
}
