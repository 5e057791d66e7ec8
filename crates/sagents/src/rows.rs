//! How rows become values, for both databases.

use serde::Deserialize;
use sqlx::types::Json;
use uuid::Uuid;

use crate::cut::ToolEntry;
use crate::display_message::{DisplayMessage, is_error};
use crate::store::messages::StoredItem;
use crate::{Conversation, ExportedUsage, Key, ModelUsage, Owner, Run, TokenUsage, UnreadableState};

/// A value that a column of either database can hold.
#[cfg(all(feature = "_sqlite", feature = "postgres"))]
pub(crate) trait Value<'r>:
    sqlx::Decode<'r, sqlx::Sqlite>
    + sqlx::Type<sqlx::Sqlite>
    + sqlx::Decode<'r, sqlx::Postgres>
    + sqlx::Type<sqlx::Postgres>
{
}
#[cfg(all(feature = "_sqlite", feature = "postgres"))]
impl<'r, T> Value<'r> for T where
    T: sqlx::Decode<'r, sqlx::Sqlite>
        + sqlx::Type<sqlx::Sqlite>
        + sqlx::Decode<'r, sqlx::Postgres>
        + sqlx::Type<sqlx::Postgres>
{
}
#[cfg(all(feature = "_sqlite", not(feature = "postgres")))]
pub(crate) trait Value<'r>: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite> {}
#[cfg(all(feature = "_sqlite", not(feature = "postgres")))]
impl<'r, T> Value<'r> for T where T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite> {}
#[cfg(all(not(feature = "_sqlite"), feature = "postgres"))]
pub(crate) trait Value<'r>: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> {}
#[cfg(all(not(feature = "_sqlite"), feature = "postgres"))]
impl<'r, T> Value<'r> for T where T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> {}

/// A row of either database.
pub(crate) trait Columns {
    fn get<'r, T: Value<'r>>(&'r self, column: &str) -> sqlx::Result<T>;

    /// The length of a value as the database sends it; 0 for NULL.
    fn length(&self, column: &str) -> usize;

    /// A column by its number, for statements with many rows: a name would be looked up in each.
    fn at<'r, T: Value<'r>>(&'r self, column: usize) -> sqlx::Result<T>;

    /// The bytes of a column with text or JSON, whatever they are: damaged data is not a failed query.
    fn bytes(&self, column: usize) -> sqlx::Result<&[u8]>;

    fn json<T: for<'a> Deserialize<'a>>(&self, column: &str) -> sqlx::Result<T>
    where
        Json<T>: for<'r> Value<'r>,
    {
        let Json(value) = self.get(column)?;
        Ok(value)
    }
}

#[cfg(feature = "_sqlite")]
impl Columns for sqlx::sqlite::SqliteRow {
    fn get<'r, T: Value<'r>>(&'r self, column: &str) -> sqlx::Result<T> {
        sqlx::Row::try_get(self, column)
    }

    fn length(&self, column: &str) -> usize {
        let bytes: sqlx::Result<Option<&[u8]>> = sqlx::Row::try_get_unchecked(self, column);
        bytes.ok().flatten().map_or(0, <[u8]>::len)
    }

    fn at<'r, T: Value<'r>>(&'r self, column: usize) -> sqlx::Result<T> {
        sqlx::Row::try_get(self, column)
    }

    fn bytes(&self, column: usize) -> sqlx::Result<&[u8]> {
        sqlx::Row::try_get_unchecked(self, column)
    }
}

#[cfg(feature = "postgres")]
impl Columns for sqlx::postgres::PgRow {
    fn get<'r, T: Value<'r>>(&'r self, column: &str) -> sqlx::Result<T> {
        sqlx::Row::try_get(self, column)
    }

    fn length(&self, column: &str) -> usize {
        let value = sqlx::Row::try_get_raw(self, column).ok();
        value.and_then(|value| value.as_bytes().ok().map(<[u8]>::len)).unwrap_or_default()
    }

    fn at<'r, T: Value<'r>>(&'r self, column: usize) -> sqlx::Result<T> {
        sqlx::Row::try_get(self, column)
    }

    fn bytes(&self, column: usize) -> sqlx::Result<&[u8]> {
        sqlx::Row::try_get_unchecked(self, column)
    }
}

/// About how many bytes a display message has as JSON.
pub(crate) fn size(row: &impl Columns) -> sqlx::Result<usize> {
    /// The names of the fields, and the short fields.
    const FRAME: usize = 400;

    let content = json_length(row.get("content")?);
    Ok(FRAME + content + row.length("metadata") + row.length("tool_call_id"))
}

fn json_length(text: &str) -> usize {
    let escapes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
        0..=0x1f => 5,
        _ => 0,
    });
    text.len() + escapes.sum::<usize>()
}

pub(crate) fn conversation(row: &impl Columns) -> sqlx::Result<Conversation> {
    Ok(Conversation {
        id: row.get("id")?,
        title: row.get("title")?,
        scope: row.json("scope")?,
        metadata: row.json("metadata")?,
        interrupted: row.get("interrupted")?,
        inserted_at: row.get("inserted_at")?,
        updated_at: row.get("updated_at")?,
        archived_at: row.get("archived_at")?,
    })
}

/// The key of a conversation, and whether it's old.
pub(crate) fn key_and_age(row: &impl Columns) -> sqlx::Result<(Key, Uuid, bool)> {
    Ok((row.get("owner")?, row.get("id")?, row.get("is_old")?))
}

pub(crate) fn display_message(row: &impl Columns) -> sqlx::Result<DisplayMessage> {
    let metadata = row.json("metadata")?;
    Ok(DisplayMessage {
        conversation_id: row.get("conversation_id")?,
        sequence: row.get("sequence")?,
        message_id: row.get("message_id")?,
        item: row.get("item")?,
        role: row.get("role")?,
        content_type: row.get("content_type")?,
        content: row.get("content")?,
        is_error: is_error(&metadata),
        metadata,
        tool_call_id: row.get("tool_call_id")?,
        status: row.get("status")?,
        inserted_at: row.get("inserted_at")?,
        changed: row.get("changed")?,
        delivery: row.get::<Option<_>>("delivery")?.unwrap_or_default(),
    })
}

/// A run with the owner of its conversation.
pub(crate) fn run_with_owner(row: &impl Columns) -> sqlx::Result<(Owner, Run)> {
    let kind: Option<String> = row.get("owner_kind")?;
    let key: Key = row.get("owner")?;
    Ok((Owner::new(kind.unwrap_or_default(), key), run(row)?))
}

pub(crate) fn run(row: &impl Columns) -> sqlx::Result<Run> {
    let waiting_for: Option<Json<_>> = row.get("waiting_for")?;
    Ok(Run {
        conversation_id: row.get("conversation_id")?,
        id: row.get("run_id")?,
        holder: row.get("holder")?,
        status: row.get("status")?,
        waiting_for: waiting_for.map(|Json(value)| value),
        cancel_requested: row.get("cancel_requested")?,
        started_at: row.get("started_at")?,
        seen_at: row.get("seen_at")?,
        resumed: row.get("resumed")?,
    })
}

pub(crate) fn unreadable_state(row: &impl Columns) -> sqlx::Result<UnreadableState> {
    Ok(UnreadableState { epoch: row.get("epoch")?, set_aside_at: row.get("set_aside_at")? })
}

/// A tool call or a result; nothing without an id.
pub(crate) fn tool_entry(row: &impl Columns) -> sqlx::Result<Option<ToolEntry>> {
    let tool_call_id: Option<String> = row.at(2)?;
    let (at, is_call) = (row.at(0)?, row.at(1)?);
    Ok(tool_call_id.map(|tool_call_id| ToolEntry { at, is_call, tool_call_id }))
}

pub(crate) fn exported_usage(row: &impl Columns) -> sqlx::Result<ExportedUsage> {
    let count = |column| count(row, column);
    Ok(ExportedUsage {
        message_id: row.get("message_id")?,
        model: row.get("model")?,
        input_tokens: count("input_tokens")?,
        output_tokens: count("output_tokens")?,
        cached_tokens: count("cached_tokens")?,
        inserted_at: row.get("inserted_at")?,
    })
}

/// The part of a display message that decides how a save changes it.
pub(crate) fn stored_item(row: &impl Columns) -> sqlx::Result<StoredItem> {
    Ok(StoredItem {
        sequence: row.get("sequence")?,
        item: row.get("item")?,
        delivery: row.get::<Option<_>>("delivery")?.unwrap_or_default(),
    })
}

/// No count is negative.
fn count(row: &impl Columns, column: &str) -> sqlx::Result<u64> {
    Ok(u64::try_from(row.get::<i64>(column)?).unwrap_or(0))
}

/// The largest number for a count that doesn't fit. [`usage_of`](crate::usage_of) returns smaller ones.
pub(crate) fn stored_count(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

pub(crate) fn model_usage(row: &impl Columns) -> sqlx::Result<ModelUsage> {
    let count = |column| count(row, column);
    Ok(ModelUsage {
        model: row.get("model")?,
        messages: count("messages")?,
        tokens: TokenUsage { input: count("input")?, output: count("output")?, cached: count("cached")? },
    })
}

/// So that the calls of the typed stores, which decode display messages into a host's model, take the library's, too.
macro_rules! from_row {
    ($($row:ty: $feature:literal,)+) => {$(
        #[cfg(feature = $feature)]
        impl sqlx::FromRow<'_, $row> for DisplayMessage {
            fn from_row(row: &$row) -> sqlx::Result<Self> {
                display_message(row)
            }
        }

        #[cfg(feature = $feature)]
        impl sqlx::FromRow<'_, $row> for Conversation {
            fn from_row(row: &$row) -> sqlx::Result<Self> {
                conversation(row)
            }
        }
    )+};
}

from_row! {
    sqlx::sqlite::SqliteRow: "_sqlite",
    sqlx::postgres::PgRow: "postgres",
}
