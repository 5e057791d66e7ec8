//! The statements that read what changed.

use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::Row as _;
use uuid::Uuid;

use super::super::changes::Signals;
use super::super::page::PageRows;
use super::super::{ChangeCursor, Error, {% if group.is_some() %}Reach{% else %}Owner{% endif %}, Result};
{% if group.is_some() %}use super::groups;
{% endif %}use super::Store;
use super::rows::{display_message_columns, has_rows, take};

impl Store {
    /// Which conversations are changed by this process.
    pub(crate) fn subscribe(&self) -> Signals {
        self.signals.subscribe()
    }

    /// How often a watch looks for changes by other processes.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    pub(super) fn announce(&self, conversation_id: Uuid) {
        // Without watches there is nobody to tell.
        drop(self.signals.send(conversation_id));
    }

    /// Reads the display messages behind a position, by the number of their change, and returns the
    /// number of the last change that deleted some.
    pub(crate) async fn changes(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
        after: ChangeCursor,
        rows: &mut PageRows,
    ) -> Result<i64> {
        // Those without a number are the first of all: `SQLite` reads the parts of a UNION ALL one after
        // the other.
        const SELECT: &str = concat!(r#"
            SELECT (
                SELECT c.last_removal FROM {{ conversations }} AS c
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $5 AND {% endif %}c.id = $1
            ) AS last_removal, "#, display_message_columns!(), r#"
            FROM (
                SELECT "#, display_message_columns!(), r#" FROM {{ display_messages }} AS m
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = $1
                  AND m.changed = 0 AND m.sequence > $3
                ORDER BY m.sequence LIMIT $4
            )
            UNION ALL
            SELECT (
                SELECT c.last_removal FROM {{ conversations }} AS c
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $5 AND {% endif %}c.id = $1
            ) AS last_removal, "#, display_message_columns!(), r#"
            FROM (
                SELECT "#, display_message_columns!(), r#" FROM {{ display_messages }} AS m
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = $1 AND m.changed > $2 AND m.changed >= 0
                ORDER BY m.changed, m.sequence LIMIT $4
            )"#);
{%- if group.is_some() %}

        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}

        let mut last_removal = 0;
        let found = sqlx::query(SELECT)
            .bind(conversation_id)
            .bind(after.changed())
            .bind(after.sequence())
            .bind(rows.to_read())
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .try_map(|row: SqliteRow| {
                last_removal = row.try_get("last_removal")?;
                take(rows, &row)
            })
            .fetch_all(&self.pool)
            .await;
        if !has_rows(found)? {
            (_, _, last_removal) = self.last_change({% if group.is_some() %}reach{% else %}owner{% endif %}, conversation_id).await?;
        }
        Ok(last_removal)
    }

    /// The number of the last change, the next sequence, and the number of the last change that deleted
    /// messages: earlier versions of this code count no changes.
    pub(crate) async fn last_change(&self, {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %}, id: Uuid) -> Result<(i64, i64, i64)> {
        const SELECT: &str = r#"
            SELECT c.last_change, c.next_sequence, c.last_removal
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1"#;
{%- if group.is_some() %}

        let owner = &groups::owner_of(&self.pool, reach, id).await?;
{%- endif %}

        sqlx::query_as(SELECT)
            .bind(id)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_optional(&self.pool)
            .await?
            .ok_or(Error::NotFound)
    }
}
