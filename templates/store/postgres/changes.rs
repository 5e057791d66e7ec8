//! The statements that read what changed.

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::super::page::PageRows;
use super::super::{ChangeCursor, Error, {% if group.is_some() %}Reach{% else %}Owner{% endif %}, Result};
{% if group.is_some() %}use super::groups;
{% endif %}use super::Store;
use super::rows::{display_message_columns, joined_display_message};

impl Store {
    /// Reads the display messages behind a position, by the number of their change, and returns the
    /// number of the last change that deleted some.
    pub(crate) async fn changes(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
        after: ChangeCursor,
        rows: &mut PageRows,
    ) -> Result<i64> {
        // The left join tells a conversation without changes from one that does not exist.
        const SELECT: &str = concat!("SELECT c.last_removal, ", display_message_columns!(), r#"
            FROM {{ conversations }} AS c
            LEFT JOIN (
                (
                    SELECT "#, display_message_columns!(), r#"
                    FROM {{ display_messages }} AS m
                    WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = $1::uuid
                      AND m.changed = 0 AND m.sequence > $3::bigint
                    ORDER BY m.sequence LIMIT $4::bigint
                )
                UNION ALL
                (
                    SELECT "#, display_message_columns!(), r#"
                    FROM {{ display_messages }} AS m
                    WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = $1::uuid
                      AND m.changed > $2::bigint AND m.changed >= 0
                    ORDER BY m.changed, m.sequence LIMIT $4::bigint
                )
            ) AS m ON TRUE
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $5 AND {% endif %}c.id = $1::uuid
            ORDER BY m.changed, m.sequence LIMIT $4::bigint"#);
{%- if group.is_some() %}

        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}

        let last_removal = sqlx::query(SELECT)
            .bind(conversation_id)
            .bind(after.changed())
            .bind(after.sequence())
            .bind(i64::from(rows.to_read()))
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .try_map(|row: PgRow| {
                rows.take(|| joined_display_message(&row))?;
                row.try_get("last_removal")
            })
            .fetch_all(&self.pool)
            .await?;
        last_removal.first().copied().ok_or(Error::NotFound)
    }

    /// The number of the last change, the next sequence, and the number of the last change that deleted
    /// messages: earlier versions of this code count no changes.
    pub(crate) async fn last_change(&self, {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %}, id: Uuid) -> Result<(i64, i64, i64)> {
        const SELECT: &str = r#"
            SELECT c.last_change, c.next_sequence, c.last_removal
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1::uuid"#;
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
