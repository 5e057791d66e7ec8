{% extends "rust/values.rs" %}

{% block uses %}
use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
{%- endblock %}

{% block timestamp %}
/// A time as it can be stored: `PostgreSQL` knows none before 4713 BC.
pub(super) fn timestamp(time: DateTime<Utc>) -> DateTime<Utc> {
    let span = TimeDelta::days(365 * 6_000);
    time.clamp(DateTime::UNIX_EPOCH - span, DateTime::UNIX_EPOCH + span)
}
{%- endblock %}
