//! How rows become models. A column that you add to a table goes into the list of its columns and
//! into the function below it.

use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use sqlx::{FromRow, Row as _};
{%- if owner_is_uuid_text %}
use uuid::Uuid;
{%- endif %}

use super::super::display_message::is_error;
use super::super::page::PageRows;
use super::super::{Conversation, DisplayMessage, Run};

/// The columns of a [`Conversation`].
macro_rules! conversation_columns {
    () => {
        r#"
{%- if let Some(owner) = owner %}
            {{ owner }},
{%- endif %}
            id, title, scope, metadata, interrupted,
            inserted_at, updated_at, archived_at"#
    };
}
pub(super) use conversation_columns;

impl FromRow<'_, SqliteRow> for Conversation {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
{%- if let Some(field) = owner_field %}
            {{ field }}: {% if owner_is_uuid_text %}uuid(row, "{{ field }}")?{% else %}row.try_get("{{ field }}")?{% endif %},
{%- endif %}
            id: row.try_get("id")?,
            title: row.try_get("title")?,
            scope: json(row, "scope")?,
            metadata: json(row, "metadata")?,
            interrupted: row.try_get("interrupted")?,
            inserted_at: row.try_get("inserted_at")?,
            updated_at: row.try_get("updated_at")?,
            archived_at: row.try_get("archived_at")?,
        })
    }
}

/// The columns of a [`DisplayMessage`].
macro_rules! display_message_columns {
    () => {
        r#"
{%- if let Some(owner) = owner %}
            {{ owner }},
{%- endif %}
            conversation_id, sequence, message_id, item, role, content_type, content, metadata,
            tool_call_id, status, inserted_at, changed, delivery"#
    };
}
pub(super) use display_message_columns;

impl FromRow<'_, SqliteRow> for DisplayMessage {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        let metadata = json(row, "metadata")?;
        Ok(Self {
{%- if let Some(field) = owner_field %}
            {{ field }}: {% if owner_is_uuid_text %}uuid(row, "{{ field }}")?{% else %}row.try_get("{{ field }}")?{% endif %},
{%- endif %}
            conversation_id: row.try_get("conversation_id")?,
            sequence: row.try_get("sequence")?,
            message_id: row.try_get("message_id")?,
            item: row.try_get("item")?,
            role: named("role", row.try_get("role")?)?,
            content_type: named("content_type", row.try_get("content_type")?)?,
            content: row.try_get("content")?,
            is_error: is_error(&metadata),
            metadata,
            tool_call_id: row.try_get("tool_call_id")?,
            status: optional(row, "status")?,
            inserted_at: row.try_get("inserted_at")?,
            changed: row.try_get("changed")?,
            delivery: optional(row, "delivery")?.unwrap_or_default(),
        })
    }
}

/// Takes a row of a page. When the page is full, an error ends the statement: `SQLite` reads rows only when
/// they are asked for. See [`has_rows`].
pub(super) fn take(rows: &mut PageRows, row: &SqliteRow) -> sqlx::Result<()> {
    rows.take(|| DisplayMessage::from_row(row).map(Some))?;
    if rows.is_over() { Err(sqlx::Error::RowNotFound) } else { Ok(()) }
}

/// Whether a statement whose rows were [taken](take) found any.
pub(super) fn has_rows(found: sqlx::Result<Vec<()>>) -> sqlx::Result<bool> {
    match found {
        Ok(found) => Ok(!found.is_empty()),
        Err(sqlx::Error::RowNotFound) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The columns of a [`Run`].
macro_rules! run_columns {
    () => {
        "conversation_id, run_id, holder, status, waiting_for, cancel_requested, started_at, seen_at, resumed"
    };
}
pub(super) use run_columns;

/// Not an implementation of [`FromRow`]: all contexts of an application share the type.
pub(super) fn run(row: &SqliteRow) -> sqlx::Result<Run> {
    let waiting_for: Option<Json<_>> = row.try_get("waiting_for")?;
    Ok(Run {
        conversation_id: row.try_get("conversation_id")?,
        id: row.try_get("run_id")?,
        holder: row.try_get("holder")?,
        status: named("status", row.try_get("status")?)?,
        waiting_for: waiting_for.map(|Json(value)| value),
        cancel_requested: row.try_get("cancel_requested")?,
        started_at: row.try_get("started_at")?,
        seen_at: row.try_get("seen_at")?,
        resumed: row.try_get("resumed")?,
    })
}

/// As [`named`], if there is one.
fn optional<T: for<'a> Deserialize<'a>>(row: &SqliteRow, column: &str) -> sqlx::Result<Option<T>> {
    let name: Option<&str> = row.try_get(column)?;
    name.map(|name| named(column, name)).transpose()
}

/// A value that is stored as the name that serde gives it.
pub(super) fn named<'a, T: Deserialize<'a>>(column: &str, name: &'a str) -> sqlx::Result<T> {
    T::deserialize(name.into_deserializer()).map_err(|error: serde::de::value::Error| sqlx::Error::ColumnDecode {
        index: column.into(),
        source: error.into(),
    })
}

fn json<T: for<'a> Deserialize<'a>>(row: &SqliteRow, column: &str) -> sqlx::Result<T> {
    let Json(value) = row.try_get(column)?;
    Ok(value)
}
{%- if owner_is_uuid_text %}

fn uuid(row: &SqliteRow, column: &str) -> sqlx::Result<Uuid> {
    Uuid::try_parse(row.try_get(column)?).map_err(|error| sqlx::Error::ColumnDecode {
        index: column.into(),
        source: error.into(),
    })
}
{%- endif %}
