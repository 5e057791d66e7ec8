{% extends "rust/values.rs" %}

{% block uses %}
use chrono::{DateTime, Datelike as _, SecondsFormat, SubsecRound as _, Utc};
{%- endblock %}

{% block timestamp %}
/// A time as it is stored: text of one length, so that it sorts.
pub(super) fn timestamp(time: DateTime<Utc>) -> String {
    match time.year() {
        ..0 => "0000-01-01T00:00:00.000000Z".into(),
        0..=9999 => time.to_rfc3339_opts(SecondsFormat::Micros, true),
        10000.. => "9999-12-31T23:59:59.999999Z".into(),
    }
}
{%- endblock %}
