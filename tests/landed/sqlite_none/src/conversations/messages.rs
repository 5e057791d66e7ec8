//! The calls for what a person sees of a conversation: append, page, clear, search.

use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use sqlx::{FromRow as _, Row as _};
use uuid::Uuid;

use super::values::{clean_text, now, timestamp};
use super::{
    Conversations, DisplayMessage, Error, MessagePage, MessagePosition, NewDisplayMessage,
    OwnerScope, Result, ToolStatus, retry, touch,
};
use crate::sagents::{Message, display_items};

impl Conversations {
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
    /// and tool results. Repeating the call with the same message id stores nothing twice: items that
    /// are there stay as they are, and items that a message has gained are added.
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

    /// Appends items of one message. Those that are there already are left as they are.
    async fn append(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        messages: Vec<NewDisplayMessage>,
    ) -> Result<Vec<DisplayMessage>> {
        scope.owner()?;
        let messages = messages.into_iter().map(NewDisplayMessage::checked);
        let messages = messages.collect::<Result<Vec<_>>>()?;
        if messages.is_empty() {
            self.get_conversation(scope, conversation_id).await?;
            return Ok(Vec::new());
        }
        let all: Vec<_> = messages.iter().collect();
        retry(|| async {
            let mut tx = self.begin().await?;
            if let Some(stored) = insert(&mut tx, conversation_id, &all).await? {
                tx.commit().await?;
                return Ok(stored);
            }
            // Some are there already: give the sequences back, and take those of the others.
            tx.rollback().await?;
            let mut tx = self.begin().await?;
            let mut stored = stored(&mut tx, conversation_id, &all).await?;
            let is_missing =
                |new: &&NewDisplayMessage| stored.iter().all(|old| old.item != new.item);
            let missing: Vec<_> = messages.iter().filter(is_missing).collect();
            if !missing.is_empty() {
                let rest = insert(&mut tx, conversation_id, &missing).await?;
                stored.extend(rest.into_iter().flatten());
                stored.sort_by_key(|message| message.item);
            }
            tx.commit().await?;
            Ok(stored)
        })
        .await
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
            SELECT m.* FROM "sagents_conversations" c
            LEFT JOIN (
                SELECT * FROM "sagents_display_messages"
                WHERE conversation_id = $1 AND sequence > $2
                ORDER BY sequence LIMIT $3
            ) m ON TRUE
            WHERE c.id = $1
            ORDER BY m.sequence"#;
        const BACKWARD: &str = r#"
            SELECT m.* FROM "sagents_conversations" c
            LEFT JOIN (
                SELECT * FROM "sagents_display_messages"
                WHERE conversation_id = $1 AND sequence < $2
                ORDER BY sequence DESC LIMIT $3
            ) m ON TRUE
            WHERE c.id = $1
            ORDER BY m.sequence"#;

        scope.owner()?;
        let (sql, bound) = match page.from {
            MessagePosition::First => (FORWARD, -1),
            MessagePosition::Last => (BACKWARD, i64::MAX),
            MessagePosition::After(sequence) => (FORWARD, sequence),
            MessagePosition::Before(sequence) => (BACKWARD, sequence),
        };
        let rows = sqlx::query(sql)
            .bind(conversation_id)
            .bind(bound)
            .bind(i64::from(page.limit.min(MessagePage::MAX_LIMIT)))
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
            DELETE FROM "sagents_display_messages" WHERE conversation_id = $1"#;

        scope.owner()?;
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, conversation_id).await?;
            let deleted = sqlx::query(DELETE)
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
            SELECT * FROM "sagents_display_messages"
            WHERE content LIKE $1 ESCAPE '\' AND content GLOB $2
            ORDER BY inserted_at DESC, conversation_id DESC, sequence DESC LIMIT $3"#;
        // No database takes patterns of any length.
        const LONGEST_PATTERN: usize = 50_000;

        scope.owner()?;
        let text = clean_text(text);
        let (like, exact) = (like_pattern(&text), exact_pattern(&text));
        if like.len().max(exact.len()) > LONGEST_PATTERN {
            return Err(Error::Invalid("the text to search for is too long".into()));
        }
        let found = sqlx::query_as(SEARCH)
            .bind(like)
            .bind(exact)
            .bind(i64::from(limit.min(MessagePage::MAX_LIMIT)))
            .fetch_all(&self.pool)
            .await?;
        Ok(found)
    }
}

/// Inserts items with the next sequences, or nothing if one of them is there already.
async fn insert(
    connection: &mut SqliteConnection,

    conversation_id: Uuid,
    messages: &[&NewDisplayMessage],
) -> Result<Option<Vec<DisplayMessage>>> {
    const TAKE_SEQUENCES: &str = r#"
        UPDATE "sagents_conversations"
        SET next_sequence = next_sequence + $2, updated_at = $3
        WHERE id = $1
        RETURNING next_sequence - $2"#;
    const INSERT: &str = r#"
        INSERT INTO "sagents_display_messages"
            (conversation_id, sequence, message_id, item, role, content_type,
             content, metadata, tool_call_id, status, inserted_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        ON CONFLICT (conversation_id, message_id, item) DO NOTHING
        RETURNING *"#;

    let now = timestamp(now());
    let first: i64 = sqlx::query_scalar(TAKE_SEQUENCES)
        .bind(conversation_id)
        .bind(i64::try_from(messages.len()).unwrap_or(i64::MAX))
        .bind(&now)
        .fetch_optional(&mut *connection)
        .await?
        .ok_or(Error::NotFound)?;
    let mut stored = Vec::with_capacity(messages.len());
    for (message, sequence) in messages.iter().zip(first..) {
        let inserted: Option<DisplayMessage> = sqlx::query_as(INSERT)
            .bind(conversation_id)
            .bind(sequence)
            .bind(message.message_id)
            .bind(message.item)
            .bind(message.role.as_str())
            .bind(message.content_type.as_str())
            .bind(&message.content)
            .bind(Json(&message.metadata))
            .bind(&message.tool_call_id)
            .bind(message.status.map(ToolStatus::as_str))
            .bind(&now)
            .fetch_optional(&mut *connection)
            .await?;
        match inserted {
            Some(inserted) => stored.push(inserted),
            None => return Ok(None),
        }
    }
    Ok(Some(stored))
}

/// The items of a message that are there already.
async fn stored(
    connection: &mut SqliteConnection,

    conversation_id: Uuid,
    messages: &[&NewDisplayMessage],
) -> Result<Vec<DisplayMessage>> {
    const SELECT: &str = r#"
        SELECT * FROM "sagents_display_messages"
        WHERE conversation_id = $1 AND message_id = $2
          AND item BETWEEN $3 AND $4
        ORDER BY item"#;

    let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
        return Ok(Vec::new());
    };
    let stored = sqlx::query_as(SELECT)
        .bind(conversation_id)
        .bind(first.message_id)
        .bind(first.item)
        .bind(last.item)
        .fetch_all(connection)
        .await?;
    Ok(stored)
}

/// A pattern that LIKE finds quickly. It knows the case of ASCII letters only: where another letter
/// has one, anything may stand.
fn like_pattern(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.chars() {
        match c {
            '%' | '_' | '\\' => pattern.extend(['\\', c]),
            _ if !c.is_ascii() && cases(c).len() > c.len_utf8() => pattern.push('_'),
            _ => pattern.push(c),
        }
    }
    pattern.push('%');
    pattern
}

/// A pattern that GLOB, which knows no case, finds in whatever case: every letter is a class of its
/// cases.
fn exact_pattern(text: &str) -> String {
    let mut pattern = String::from("*");
    for c in text.chars() {
        let cases = cases(c);
        if cases.len() > c.len_utf8() || matches!(c, '*' | '?' | '[') {
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

/// A letter with its other case, if that is a single letter too.
fn cases(c: char) -> String {
    let mut cases = String::from(c);
    for other in [c.to_lowercase().to_string(), c.to_uppercase().to_string()] {
        if other.chars().count() == 1 && !cases.contains(&other) {
            cases += &other;
        }
    }
    cases
}
