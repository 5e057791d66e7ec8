//! The calls for what a person sees of a conversation: append, page, clear, search.


use sqlx::types::Json;
use sqlx::{FromRow as _, Row as _};
use uuid::Uuid;

use super::values::{clean_text, now, timestamp};
use super::{
    Conversations, DisplayMessage, Error, MessagePage, MessagePosition, NewDisplayMessage, OwnerScope,
    Result, ToolStatus, retry,
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
        // Only what is missing takes sequences, and only if something is missing the conversation
        // is touched. Should another writer store the same item meanwhile, its key refuses ours,
        // which undoes the statement; it is repeated then, and finds that item.
        const APPEND: &str = r#"
            WITH new AS (
                SELECT * FROM unnest(
                    $4::integer[], $5::text[], $6::text[], $7::text[], $8::jsonb[], $9::text[], $10::text[]
                ) AS new (item, role, content_type, content, metadata, tool_call_id, status)
            ), present AS (
                SELECT * FROM "sagents_display_messages"
                WHERE "team_id" = $1 AND conversation_id = $2 AND message_id = $3 AND item = ANY($4)
            ), missing AS (
                SELECT *, row_number() OVER (ORDER BY item) AS place FROM new
                WHERE item NOT IN (SELECT item FROM present)
            ), conversation AS (
                UPDATE "sagents_conversations"
                SET next_sequence = next_sequence + (SELECT count(*) FROM missing),
                    updated_at = greatest(updated_at, $11)
                WHERE "team_id" = $1 AND id = $2 AND EXISTS (SELECT FROM missing)
                RETURNING next_sequence - (SELECT count(*) FROM missing) - 1 AS last, updated_at
            ), inserted AS (
                INSERT INTO "sagents_display_messages"
                    ("team_id", conversation_id, sequence, message_id, item, role, content_type,
                     content, metadata, tool_call_id, status, inserted_at)
                SELECT $1, $2, last + place, $3, item, role, content_type,
                       content, metadata, tool_call_id, status, updated_at
                FROM conversation, missing
                RETURNING *
            )
            SELECT * FROM present UNION ALL SELECT * FROM inserted ORDER BY item"#;


        let owner = scope.owner()?;
        let messages = messages.into_iter().map(NewDisplayMessage::checked);
        let messages = messages.collect::<Result<Vec<_>>>()?;
        if messages.is_empty() {
            self.get_conversation(scope, conversation_id).await?;
            return Ok(Vec::new());
        }
        let message_id = messages[0].message_id;
        let items: Vec<_> = messages.iter().map(|new| new.item).collect();
        let roles: Vec<_> = messages.iter().map(|new| new.role.as_str()).collect();
        let types: Vec<_> = messages.iter().map(|new| new.content_type.as_str()).collect();
        let contents: Vec<_> = messages.iter().map(|new| new.content.as_str()).collect();
        let metadata: Vec<_> = messages.iter().map(|new| Json(&new.metadata)).collect();
        let calls: Vec<_> = messages.iter().map(|new| new.tool_call_id.as_deref()).collect();
        let statuses: Vec<_> = messages.iter().map(|new| new.status.map(ToolStatus::as_str)).collect();
        retry(|| async {
            let stored: Vec<DisplayMessage> = sqlx::query_as(APPEND)
.bind(owner.id())
                .bind(conversation_id)
                .bind(message_id)
                .bind(&items)
                .bind(&roles)
                .bind(&types)
                .bind(&contents)
                .bind(&metadata)
                .bind(&calls)
                .bind(&statuses)
                .bind(timestamp(now()))
                .fetch_all(&self.pool)
                .await?;
            if stored.is_empty() {
                return Err(Error::NotFound);
            }
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
                WHERE "team_id" = $1 AND conversation_id = $2 AND sequence > $3
                ORDER BY sequence LIMIT $4
            ) m ON TRUE
            WHERE c."team_id" = $1 AND c.id = $2
            ORDER BY m.sequence"#;
        const BACKWARD: &str = r#"
            SELECT m.* FROM "sagents_conversations" c
            LEFT JOIN (
                SELECT * FROM "sagents_display_messages"
                WHERE "team_id" = $1 AND conversation_id = $2 AND sequence < $3
                ORDER BY sequence DESC LIMIT $4
            ) m ON TRUE
            WHERE c."team_id" = $1 AND c.id = $2
            ORDER BY m.sequence"#;

        let owner = scope.owner()?;
        let (sql, bound) = match page.from {
            MessagePosition::First => (FORWARD, -1),
            MessagePosition::Last => (BACKWARD, i64::MAX),
            MessagePosition::After(sequence) => (FORWARD, sequence),
            MessagePosition::Before(sequence) => (BACKWARD, sequence),
        };
        let rows = sqlx::query(sql)
.bind(owner.id())
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
        const CLEAR: &str = r#"
            WITH conversation AS (
                UPDATE "sagents_conversations" SET updated_at = greatest(updated_at, $3)
                WHERE "team_id" = $1 AND id = $2
                RETURNING id
            ), deleted AS (
                DELETE FROM "sagents_display_messages" m USING conversation c
                WHERE m."team_id" = $1 AND m.conversation_id = c.id
                RETURNING m.sequence
            )
            SELECT (SELECT count(*) FROM deleted) FROM conversation"#;

        let owner = scope.owner()?;
        retry(|| async {
            let deleted: Option<i64> = sqlx::query_scalar(CLEAR)
.bind(owner.id())
                .bind(conversation_id)
                .bind(timestamp(now()))
                .fetch_optional(&self.pool)
                .await?;
            deleted.map(i64::unsigned_abs).ok_or(Error::NotFound)
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
            WHERE "team_id" = $1 AND content COLLATE "C" ILIKE $2 ESCAPE '\' AND content ~ $3
            ORDER BY inserted_at DESC, conversation_id DESC, sequence DESC LIMIT $4"#;
        // No database takes patterns of any length.
        const LONGEST_PATTERN: usize = 50_000;

        let owner = scope.owner()?;
        let text = clean_text(text);
        let (like, exact) = (like_pattern(&text), exact_pattern(&text));
        if like.len().max(exact.len()) > LONGEST_PATTERN {
            return Err(Error::Invalid("the text to search for is too long".into()));
        }
        let found = sqlx::query_as(SEARCH)
.bind(owner.id())
            .bind(like)
            .bind(exact)
            .bind(i64::from(limit.min(MessagePage::MAX_LIMIT)))
            .fetch_all(&self.pool)
            .await?;
        Ok(found)
    }
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


/// A regular expression that finds a text in whatever case: every letter is a class of its cases.
fn exact_pattern(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        let cases = cases(c);
        if cases.len() > c.len_utf8() {
            pattern.push('[');
            pattern.push_str(&cases);
            pattern.push(']');
        } else {
            if c.is_ascii_punctuation() {
                pattern.push('\\');
            }
            pattern.push(c);
        }
    }
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