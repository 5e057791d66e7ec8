//! The statements that read what changed.

use std::time::Duration;

use uuid::Uuid;

use super::super::changes::Signals;
use super::super::{ChangeCursor, DisplayMessage, Error, {% if group.is_some() %}Reach{% else %}Owner{% endif %}, Result};
{% if group.is_some() %}use super::groups;
{% endif %}use super::Store;
use super::rows::display_message_columns;

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

    /// At most `limit` display messages behind a position, by the number of their change.
    pub(crate) async fn changes(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
        after: ChangeCursor,
        limit: u32,
    ) -> Result<Vec<DisplayMessage>> {
        const SELECT: &str = concat!("SELECT ", display_message_columns!(), r#"
            FROM (
                SELECT "#, display_message_columns!(), r#" FROM {{ display_messages }} AS m
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = $1
                  AND m.changed = 0 AND m.sequence > $3
                ORDER BY m.sequence LIMIT $4
            )
            UNION ALL
            SELECT "#, display_message_columns!(), r#"
            FROM (
                SELECT "#, display_message_columns!(), r#" FROM {{ display_messages }} AS m
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = $1 AND m.changed > $2 AND m.changed >= 0
                ORDER BY m.changed, m.sequence LIMIT $4
            )"#);
{% if group.is_some() %}
        let sql = match reach {
            Reach::Owner(_) => SELECT,
            Reach::Group(_) => groups::CHANGES,
        };
        let query = sqlx::query_as(sql)
            .bind(conversation_id)
            .bind(after.changed())
            .bind(after.sequence())
            .bind(limit);
        let query = match reach {
            Reach::Owner(owner) => query.bind(owner.id()),
            Reach::Group(group) => query.bind(group.id()),
        };
        let mut messages: Vec<DisplayMessage> = query.fetch_all(&self.pool).await?;
{%- else %}
        let mut messages: Vec<DisplayMessage> = sqlx::query_as(SELECT)
            .bind(conversation_id)
            .bind(after.changed())
            .bind(after.sequence())
            .bind(limit)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_all(&self.pool)
            .await?;
{%- endif %}
        if messages.is_empty() {
            drop(self.get_conversation({% if group.is_some() %}reach{% else %}owner{% endif %}, conversation_id).await?);
        }
        messages.sort_by_key(|message| (message.changed, message.sequence));
        messages.truncate(limit as usize);
        Ok(messages)
    }

    /// The number of the last change, and the next sequence: earlier versions of this code count no
    /// changes.
    pub(crate) async fn last_change(&self, {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %}, id: Uuid) -> Result<(i64, i64)> {
        const SELECT: &str = r#"
            SELECT c.last_change, c.next_sequence
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1"#;
{%- if group.is_some() %}

        let query = match reach {
            Reach::Owner(owner) => sqlx::query_as(SELECT).bind(id).bind(owner.id()),
            Reach::Group(group) => sqlx::query_as(groups::LAST_CHANGE).bind(id).bind(group.id()),
        };
        query
{%- else %}

        sqlx::query_as(SELECT)
            .bind(id)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
{%- endif %}
            .fetch_optional(&self.pool)
            .await?
            .ok_or(Error::NotFound)
    }
}
