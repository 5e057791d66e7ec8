//! The statements for display messages.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::super::{
    DisplayMessage, Error, NewDisplayMessage, Owner, {% if group.is_some() %}Reach, {% endif %}Result, ToolStatus,
};
use super::super::page::Bound;
use super::conversations::touch;
{% if group.is_some() %}use super::groups;
{% endif %}use super::rows::display_message_columns;
use super::{Store, retry, timestamp};

impl Store {
    pub(crate) async fn append_display_message(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        message: &NewDisplayMessage,
    ) -> Result<DisplayMessage> {
        let messages = std::slice::from_ref(message);
        let mut stored = self.append_display_messages(owner, conversation_id, messages).await?;
        stored.pop().ok_or(Error::NotFound)
    }

    /// Appends items of one message; those that exist are returned as they are.
    pub(crate) async fn append_display_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        messages: &[NewDisplayMessage],
    ) -> Result<Vec<DisplayMessage>> {
        let all: Vec<_> = messages.iter().collect();
        retry(|| async {
            let mut tx = self.begin().await?;
            if let Some(stored) = insert(&mut tx, owner, conversation_id, &all).await? {
                tx.commit().await?;
                return Ok(stored);
            }
            // Some exist: return the sequences that were taken, and take those of the others.
            tx.rollback().await?;
            let mut tx = self.begin().await?;
            let mut stored = stored(&mut tx, owner, conversation_id, &all).await?;
            let is_missing = |new: &&NewDisplayMessage| stored.iter().all(|old| old.item != new.item);
            let missing: Vec<_> = messages.iter().filter(is_missing).collect();
            if !missing.is_empty() {
                let rest = insert(&mut tx, owner, conversation_id, &missing).await?;
                stored.extend(rest.into_iter().flatten());
                stored.sort_by_key(|message| message.item);
            }
            tx.commit().await?;
            Ok(stored)
        })
        .await
    }

    pub(crate) async fn load_display_messages(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
        bound: Bound,
        limit: u32,
    ) -> Result<Vec<DisplayMessage>> {
        const FORWARD: &str = concat!("SELECT ", display_message_columns!(), r#"
            FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $4 AND {% endif %}m.conversation_id = $1 AND m.sequence > $2
            ORDER BY m.sequence LIMIT $3"#);
        const BACKWARD: &str = concat!("SELECT ", display_message_columns!(), r#"
            FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $4 AND {% endif %}m.conversation_id = $1 AND m.sequence < $2
            ORDER BY m.sequence DESC LIMIT $3"#);

        let (sql, sequence) = match bound {
            Bound::After(sequence) => (FORWARD, sequence),
            Bound::Before(sequence) => (BACKWARD, sequence),
        };
{%- if group.is_some() %}
        let sql = match reach {
            Reach::Owner(_) => sql,
            Reach::Group(_) => groups::messages(bound),
        };
        let query = sqlx::query_as(sql).bind(conversation_id).bind(sequence).bind(limit);
        let query = match reach {
            Reach::Owner(owner) => query.bind(owner.id()),
            Reach::Group(group) => query.bind(group.id()),
        };
        let mut messages: Vec<DisplayMessage> = query.fetch_all(&self.pool).await?;
{%- else %}
        let mut messages: Vec<DisplayMessage> = sqlx::query_as(sql)
            .bind(conversation_id)
            .bind(sequence)
            .bind(limit)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_all(&self.pool)
            .await?;
{%- endif %}
        if matches!(bound, Bound::Before(_)) {
            messages.reverse();
        }
        if messages.is_empty() {
            drop(self.get_conversation({% if group.is_some() %}reach{% else %}owner{% endif %}, conversation_id).await?);
        }
        Ok(messages)
    }

    pub(crate) async fn clear_display_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<u64> {
        const DELETE: &str = r#"
            DELETE FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $2 AND {% endif %}m.conversation_id = $1"#;

        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, owner, conversation_id).await?;
            let deleted = sqlx::query(DELETE)
                .bind(conversation_id)
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .execute(&mut *tx)
                .await?
                .rows_affected();
            tx.commit().await?;
            Ok(deleted)
        })
        .await
    }

    pub(crate) async fn search_messages(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        text: &str,
        (time, id, sequence): (DateTime<Utc>, Uuid, i64),
        limit: u32,
    ) -> Result<Vec<DisplayMessage>> {
        // LIKE is fast but ignores only the case of ASCII letters; GLOB decides.
        const SEARCH: &str = concat!("SELECT ", display_message_columns!(), r#"
            FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $7 AND {% endif %}m.content LIKE $1 ESCAPE '\' AND m.content GLOB $2
              AND (m.inserted_at, m.conversation_id, m.sequence) < ($4, $5, $6)
            ORDER BY m.inserted_at DESC, m.conversation_id DESC, m.sequence DESC LIMIT $3"#);

        let caller = Arc::default();
        let mut search = self.searches.begin(&self.pool, {% if group.is_some() %}reach{% else %}owner{% endif %}, &caller).await?;
{%- if group.is_some() %}
        let sql = match reach {
            Reach::Owner(_) => SEARCH,
            Reach::Group(_) => groups::SEARCH,
        };
        let query = sqlx::query_as(sql)
{%- else %}
        let found = sqlx::query_as(SEARCH)
{%- endif %}
            .bind(like_pattern(text))
            .bind(glob_pattern(text))
            .bind(limit)
            .bind(timestamp(time))
            .bind(id)
{%- if group.is_some() %}
            .bind(sequence);
        let query = match reach {
            Reach::Owner(owner) => query.bind(owner.id()),
            Reach::Group(group) => query.bind(group.id()),
        };
        let found = query.fetch_all(&mut *search).await?;
{%- else %}
            .bind(sequence)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_all(&mut *search)
            .await?;
{%- endif %}
        search.end().await?;
        Ok(found)
    }
}

/// Inserts items with the next sequences, or returns nothing if one of them exists.
async fn insert(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    messages: &[&NewDisplayMessage],
) -> Result<Option<Vec<DisplayMessage>>> {
    const TAKE_SEQUENCES: &str = r#"
        UPDATE {{ conversations }} AS c
        SET next_sequence = c.next_sequence + $2, updated_at = max(c.updated_at, $3)
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.id = $1
        RETURNING next_sequence - $2, updated_at"#;
    const INSERT: &str = concat!(r#"
        INSERT INTO {{ display_messages }}
            (conversation_id, sequence, message_id, item, role, content_type, content, metadata,
             tool_call_id, status, inserted_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11{% if owner.is_some() %}, $12{% endif %})
        ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}conversation_id, message_id, item) DO NOTHING
        RETURNING "#, display_message_columns!());

    // The clock may go back; the times of a conversation's messages do not.
    let (first, now): (i64, String) = sqlx::query_as(TAKE_SEQUENCES)
        .bind(conversation_id)
        .bind(i64::try_from(messages.len()).unwrap_or(i64::MAX))
        .bind(timestamp(Utc::now()))
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
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
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_optional(&mut *connection)
            .await?;
        match inserted {
            Some(inserted) => stored.push(inserted),
            None => return Ok(None),
        }
    }
    Ok(Some(stored))
}

/// The items of a message that exist.
async fn stored(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    messages: &[&NewDisplayMessage],
) -> Result<Vec<DisplayMessage>> {
    const SELECT: &str = concat!("SELECT ", display_message_columns!(), r#"
        FROM {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = $1 AND m.message_id = $2
          AND m.item BETWEEN $3 AND $4
        ORDER BY m.item"#);

    let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
        return Ok(Vec::new());
    };
    let stored = sqlx::query_as(SELECT)
        .bind(conversation_id)
        .bind(first.message_id)
        .bind(first.item)
        .bind(last.item)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_all(connection)
        .await?;
    Ok(stored)
}

/// A pattern for LIKE, which ignores the case of ASCII letters only: other letters that have a case
/// match anything.
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

/// A pattern for GLOB, which does not ignore case: every letter becomes a class of its cases.
fn glob_pattern(text: &str) -> String {
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
