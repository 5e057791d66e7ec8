//! The calls for what a person sees of a conversation: append, page, clear, search.

use sqlx::types::Json;
use sqlx::{FromRow as _, Row as _};
use uuid::Uuid;

use super::values::{clean_text, now, timestamp};
use super::{
    {{ w.context }}, DisplayMessage, Error, MessagePage, MessagePosition, NewDisplayMessage,{% if w.owner.is_some() %} Owner,{% endif %}
    OwnerScope, Result, retry, touch,
};
use crate::sagents::{Message, display_items};

impl {{ w.context }} {
    /// Appends an item to what a person sees. Repeating the call with the same message id and item
    /// stores nothing and returns what the first one stored.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation, [`Error::Invalid`] if the
    /// message contradicts itself.
    pub async fn append_display_message(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        message: NewDisplayMessage,
    ) -> Result<DisplayMessage> {
        let mut stored = self.append(scope, conversation_id, vec![message]).await?;
        stored.pop().ok_or(Error::NotFound)
    }

    /// Stores everything that a message shows, in its order: texts, thoughts, tool calls as pending,
    /// and tool results. Repeating the call with the same message id stores nothing and returns what
    /// the first one stored.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation, [`Error::Invalid`] if a value is
    /// nested too deeply.
    pub async fn save_message(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        message_id: Uuid,
        message: &Message,
    ) -> Result<Vec<DisplayMessage>> {
        let shown = display_items(message).into_iter().zip(0..);
        let items = shown.map(|(shown, item)| NewDisplayMessage {
            message_id,
            item,
            ..NewDisplayMessage::shown(message.role, shown)
        });
        self.append(scope, conversation_id, items.collect()).await
    }

    /// Appends items of one message, all of them or none.
    async fn append(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        messages: Vec<NewDisplayMessage>,
    ) -> Result<Vec<DisplayMessage>> {
        const TAKE_SEQUENCES: &str = r#"
            UPDATE {{ w.conversations }}
            SET next_sequence = next_sequence + $2, updated_at = $3
            WHERE {{ w.owner_and }}id = $1
            RETURNING next_sequence - $2"#;
        const INSERT: &str = r#"
            INSERT INTO {{ w.display_messages }}
                ({{ w.owner_first }}conversation_id, sequence, message_id, item, role, content_type,
                 content, metadata, tool_call_id, status, inserted_at)
            VALUES ({{ w.owner_value }}$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
            ON CONFLICT ({{ w.owner_first }}conversation_id, message_id, item) DO NOTHING
            RETURNING *"#;

        {{ w.take_owner }}
        let messages = messages.into_iter().map(NewDisplayMessage::checked);
        let messages = messages.collect::<Result<Vec<_>>>()?;
        let count = i64::try_from(messages.len()).unwrap_or(i64::MAX);
        retry(|| async {
            let now = timestamp(now());
            let mut tx = self.begin().await?;
            let first: i64 = sqlx::query_scalar(TAKE_SEQUENCES){{ w.bind_owner }}
                .bind(conversation_id)
                .bind(count)
                .bind(&now)
                .fetch_optional(&mut *tx)
                .await?
                .ok_or(Error::NotFound)?;
            let mut stored = Vec::with_capacity(messages.len());
            for (message, sequence) in messages.iter().zip(first..) {
                let inserted: Option<DisplayMessage> = sqlx::query_as(INSERT){{ w.bind_owner }}
                    .bind(conversation_id)
                    .bind(sequence)
                    .bind(message.message_id)
                    .bind(message.item)
                    .bind(message.role)
                    .bind(message.content_type)
                    .bind(&message.content)
                    .bind(Json(&message.metadata))
                    .bind(&message.tool_call_id)
                    .bind(message.status)
                    .bind(&now)
                    .fetch_optional(&mut *tx)
                    .await?;
                let Some(inserted) = inserted else {
                    // It is there already: give the sequences back.
                    tx.rollback().await?;
                    return self.stored({{ w.owner_arg }}conversation_id, &messages).await;
                };
                stored.push(inserted);
            }
            tx.commit().await?;
            Ok(stored)
        })
        .await
    }

    /// The items of a message that were stored before.
    async fn stored(
        &self,
        {{ w.owner_param }}
        conversation_id: Uuid,
        messages: &[NewDisplayMessage],
    ) -> Result<Vec<DisplayMessage>> {
        const SELECT: &str = r#"
            SELECT * FROM {{ w.display_messages }}
            WHERE {{ w.owner_and }}conversation_id = $1 AND message_id = $2
              AND item BETWEEN $3 AND $4
            ORDER BY item"#;

        let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
            return Ok(Vec::new());
        };
        let stored = sqlx::query_as(SELECT){{ w.bind_owner }}
            .bind(conversation_id)
            .bind(first.message_id)
            .bind(first.item)
            .bind(last.item)
            .fetch_all(&self.pool)
            .await?;
        Ok(stored)
    }

    /// A page of what a person sees, in the order of the conversation.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation.
    pub async fn load_display_messages(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        page: MessagePage,
    ) -> Result<Vec<DisplayMessage>> {
        // The conversation is on the left, so that one without messages is told from one that is
        // not there.
        const FORWARD: &str = r#"
            SELECT m.* FROM {{ w.conversations }} c
            LEFT JOIN (
                SELECT * FROM {{ w.display_messages }}
                WHERE {{ w.owner_and }}conversation_id = $1 AND sequence > $2
                ORDER BY sequence LIMIT $3
            ) m ON TRUE
            WHERE {{ w.c_owner_and }}c.id = $1
            ORDER BY m.sequence"#;
        const BACKWARD: &str = r#"
            SELECT m.* FROM {{ w.conversations }} c
            LEFT JOIN (
                SELECT * FROM {{ w.display_messages }}
                WHERE {{ w.owner_and }}conversation_id = $1 AND sequence < $2
                ORDER BY sequence DESC LIMIT $3
            ) m ON TRUE
            WHERE {{ w.c_owner_and }}c.id = $1
            ORDER BY m.sequence"#;

        {{ w.take_owner }}
        let (sql, bound) = match page.from {
            MessagePosition::First => (FORWARD, -1),
            MessagePosition::Last => (BACKWARD, i64::MAX),
            MessagePosition::After(sequence) => (FORWARD, sequence),
            MessagePosition::Before(sequence) => (BACKWARD, sequence),
        };
        let rows = sqlx::query(sql){{ w.bind_owner }}
            .bind(conversation_id)
            .bind(bound)
            .bind(page.limit.min(MessagePage::MAX_LIMIT))
            .fetch_all(&self.pool)
            .await?;
        if rows.is_empty() {
            return Err(Error::NotFound);
        }
        let mut messages = Vec::with_capacity(rows.len());
        for row in &rows {
            if row.try_get::<Option<i64>, _>("sequence")?.is_some() {
                messages.push(DisplayMessage::from_row(row)?);
            }
        }
        Ok(messages)
    }

    /// Deletes what a person sees and leaves the conversation and its agent's state. Sequences go
    /// on where they were. Returns how many messages there were.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation.
    pub async fn clear_display_messages(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
    ) -> Result<u64> {
        const DELETE: &str = r#"
            DELETE FROM {{ w.display_messages }} WHERE {{ w.owner_and }}conversation_id = $1"#;

        {{ w.take_owner }}
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, {{ w.owner_arg }}conversation_id).await?;
            let deleted = sqlx::query(DELETE){{ w.bind_owner }}
                .bind(conversation_id)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            tx.commit().await?;
            Ok(deleted)
        })
        .await
    }

    /// The caller's messages that contain a text, in whatever case, newest first. Wildcards
    /// stand for themselves.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the text is too long to search for.
    pub async fn search_messages(
        &self,
        scope: &impl OwnerScope,
        text: &str,
        limit: u32,
    ) -> Result<Vec<DisplayMessage>> {
        const SEARCH: &str = r#"
            SELECT * FROM {{ w.display_messages }}
            WHERE {{ w.owner_and }}content GLOB $1
            ORDER BY inserted_at DESC, conversation_id DESC, sequence DESC LIMIT $2"#;
        // SQLite refuses longer ones.
        const LONGEST_PATTERN: usize = 50_000;

        {{ w.take_owner }}
        let pattern = glob_pattern(&clean_text(text));
        if pattern.len() > LONGEST_PATTERN {
            return Err(Error::Invalid("the text to search for is too long".into()));
        }
        let found = sqlx::query_as(SEARCH){{ w.bind_owner }}
            .bind(pattern)
            .bind(limit.min(MessagePage::MAX_LIMIT))
            .fetch_all(&self.pool)
            .await?;
        Ok(found)
    }
}

/// A pattern that finds a text in whatever case. LIKE knows the case of ASCII letters only, so every
/// letter becomes a class of its cases.
fn glob_pattern(text: &str) -> String {
    let mut pattern = String::from("*");
    for c in text.chars() {
        let mut cases = String::from(c);
        for other in [c.to_lowercase().to_string(), c.to_uppercase().to_string()] {
            if other.chars().count() == 1 && !cases.contains(&other) {
                cases += &other;
            }
        }
        if cases.chars().count() > 1 || matches!(c, '*' | '?' | '[') {
            pattern.push('[');
            pattern.push_str(&cases);
            pattern.push(']');
        } else {
            pattern.push(c);
        }
    }
    pattern.push('*');
    pattern
}
