//! The statements for display messages.

use std::sync::Arc;

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::types::Json;
use uuid::Uuid;

use super::super::{
    Delivery, DisplayMessage, Error, NewDisplayMessage, Owner, {% if group.is_some() %}Reach, {% endif %}Result, ToolStatus,
};
use super::super::display_message::is_error;
use super::super::messages::Items;
use super::super::page::{Bound, PageRows};
{% if group.is_some() %}use super::groups;
{% endif %}use super::rows::{display_message_columns, has_rows, named, take};
use super::usage::count;
use super::{Store, now, retry};
use crate::sagents::timestamp::{Timestamp, to_text};
use crate::sagents::usage_of;

impl Store {
    pub(crate) async fn append_display_message(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        message: &NewDisplayMessage,
    ) -> Result<DisplayMessage> {
        let usage = usage_of(&message.metadata);
        let usage: Vec<_> = usage.iter().map(|usage| (message.message_id, usage)).collect();
        retry(|| async {
            let mut tx = self.begin().await?;
            let change = take_sequences(&mut tx, owner, conversation_id, 1).await?;
            let (new, delivery) = ([message], Delivery::Stored);
            let added = insert_items(&mut tx, owner, conversation_id, &new, delivery, &change).await?;
            if let Some(mut stored) = added {
                count(&mut tx, owner, conversation_id, &usage).await?;
                tx.commit().await?;
                self.announce(conversation_id);
                return stored.pop().ok_or(Error::NotFound);
            }
            // It exists: return the sequence that was taken.
            tx.rollback().await?;
            let mut tx = self.begin().await?;
            let stored = items(&mut tx, owner, conversation_id, message.message_id).await?;
            tx.commit().await?;
            stored.into_iter().find(|old| old.item == message.item).ok_or(Error::NotFound)
        })
        .await
    }

    /// Stores the items of one message. Those that exist are returned as they are, except texts that
    /// are not finished, which are replaced, or deleted if the message does not have them any more.
    pub(crate) async fn save_items(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        Items { message_id, messages, delivery, usage }: Items<'_>,
    ) -> Result<Vec<DisplayMessage>> {
        let all: Vec<_> = messages.iter().collect();
        let usage: Vec<_> = usage.into_iter().map(|usage| (message_id, usage)).collect();
        retry(|| async {
            let mut tx = self.begin().await?;
            // A draft exists, except for the first time.
            if delivery != Delivery::Draft && !all.is_empty() {
                let change = take_first_sequences(&mut tx, owner, conversation_id, message_id, all.len());
                if let Some(change) = change.await? {
                    let added = insert_items(&mut tx, owner, conversation_id, &all, delivery, &change);
                    let stored = added.await?.into_iter().flatten().collect();
                    count(&mut tx, owner, conversation_id, &usage).await?;
                    tx.commit().await?;
                    self.announce(conversation_id);
                    return Ok(stored);
                }
            }
            let stored = items(&mut tx, owner, conversation_id, message_id).await?;
            let is_blocked = delivery == Delivery::Draft && !stored.iter().all(is_partial);
            let is_missing = |new: &&NewDisplayMessage| stored.iter().all(|old| old.item != new.item);
            let missing: Vec<_> = messages.iter().filter(is_missing).collect();
            let is_same = missing.is_empty() && !stored.iter().any(is_partial);
            count(&mut tx, owner, conversation_id, &usage).await?;
            if is_blocked || is_same {
                tx.commit().await?;
                if stored.is_empty() {
                    drop(self.get_conversation({% if group.is_some() %}&Reach::Owner(owner.clone()){% else %}owner{% endif %}, conversation_id).await?);
                }
                return Ok(stored);
            }
            let change = take_sequences(&mut tx, owner, conversation_id, missing.len()).await?;
            let (partial, mut saved): (Vec<_>, Vec<_>) =
                stored.into_iter().partition(is_partial);
            let is_gone = |row: &DisplayMessage| messages.iter().all(|new| new.item != row.item);
            let is_shown = !missing.is_empty() || !partial.iter().all(is_gone);
            // Readers forget the drafts of a message when they get a row of it that is not one.
            let are_told = delivery != Delivery::Draft && is_shown;
            let is_removal = |row: &DisplayMessage| {
                is_gone(row) && !(are_told && row.delivery == Delivery::Draft)
            };
            let has_removal = partial.iter().any(is_removal);
            for mut row in partial {
                if let Some(new) = messages.iter().find(|new| new.item == row.item) {
                    replace(&mut row, new, delivery);
                    row.changed = change.number;
                    update(&mut tx, owner, &mut row).await?;
                    saved.push(row);
                } else {
                    delete(&mut tx, owner, &row).await?;
                }
            }
            let added = insert_items(&mut tx, owner, conversation_id, &missing, delivery, &change);
            saved.extend(added.await?.into_iter().flatten());
            saved.sort_by_key(|row| row.item);
            if has_removal {
                let last = mark_removal(&mut tx, owner, conversation_id, change.number).await?;
                for row in saved.iter_mut().filter(|row| Some(row.sequence) == last) {
                    row.changed = change.number;
                }
            }
            tx.commit().await?;
            self.announce(conversation_id);
            Ok(saved)
        })
        .await
    }

    pub(crate) async fn unsettled_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<Vec<(Uuid, Delivery)>> {
        const SELECT: &str = r#"
            SELECT m.message_id, m.delivery FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $2 AND {% endif %}m.conversation_id = $1 AND m.delivery IN ('draft', 'unsaved')"#;

        let mut rows: Vec<(Uuid, String)> = sqlx::query_as(SELECT)
            .bind(conversation_id)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_all(&self.pool)
            .await?;
        // A message may have several items.
        rows.sort();
        rows.dedup();
        let read = |(id, delivery): &(Uuid, String)| Ok((*id, named("delivery", delivery)?));
        rows.iter().map(read).collect()
    }

    pub(crate) async fn settle_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        messages: &[(Uuid, Delivery)],
    ) -> Result<Vec<DisplayMessage>> {
        retry(|| async {
            let mut tx = self.begin().await?;
            let (mut visible, mut silent) = (Vec::new(), Vec::new());
            for (message_id, delivery) in messages {
                for mut row in items(&mut tx, owner, conversation_id, *message_id).await? {
                    let before = std::mem::replace(&mut row.delivery, *delivery);
                    match (before, *delivery) {
                        (Delivery::Unsaved, Delivery::Stored) => silent.push(row),
                        (Delivery::Unsaved, Delivery::Unknown)
                        | (Delivery::Unknown, Delivery::Stored)
                        | (Delivery::Draft, Delivery::Interrupted) => visible.push(row),
                        _ => {}
                    }
                }
            }
            if !visible.is_empty() {
                let change = take_sequences(&mut tx, owner, conversation_id, 0).await?;
                for row in &mut visible {
                    row.changed = change.number;
                }
            }
            for row in visible.iter_mut().chain(&mut silent) {
                update(&mut tx, owner, row).await?;
            }
            tx.commit().await?;
            if !visible.is_empty() {
                self.announce(conversation_id);
            }
            Ok(visible)
        })
        .await
    }

    pub(crate) async fn load_display_messages(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
        bound: Bound,
        rows: &mut PageRows,
    ) -> Result<()> {
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
        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}
        let found = sqlx::query(sql)
            .bind(conversation_id)
            .bind(sequence)
            .bind(rows.to_read())
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .try_map(|row: SqliteRow| take(rows, &row))
            .fetch_all(&self.pool)
            .await;
        if !has_rows(found)? {
            drop(self.get_conversation({% if group.is_some() %}reach{% else %}owner{% endif %}, conversation_id).await?);
        }
        Ok(())
    }

    pub(crate) async fn clear_display_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<u64> {
        const DELETE: &str = r#"
            DELETE FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $2 AND {% endif %}m.conversation_id = $1"#;
        const REMOVED: &str = r#"
            UPDATE {{ conversations }} AS c
            SET last_change = c.last_change + 1, last_removal = c.last_change + 1,
                updated_at = max(c.updated_at, $2)
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}c.id = $1"#;

        retry(|| async {
            let mut tx = self.begin().await?;
            let found = sqlx::query(REMOVED)
                .bind(conversation_id)
                .bind(now())
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .execute(&mut *tx)
                .await?;
            if found.rows_affected() == 0 {
                return Err(Error::NotFound);
            }
            let deleted = sqlx::query(DELETE)
                .bind(conversation_id)
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .execute(&mut *tx)
                .await?
                .rows_affected();
            tx.commit().await?;
            self.announce(conversation_id);
            Ok(deleted)
        })
        .await
    }

    pub(crate) async fn search_messages(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        text: &str,
        (time, id, sequence): (Timestamp, Uuid, i64),
        rows: &mut PageRows,
    ) -> Result<()> {
        // LIKE is fast but ignores only the case of ASCII letters; GLOB decides.
        const SEARCH: &str = concat!("SELECT ", display_message_columns!(), r#"
            FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $7 AND {% endif %}m.content LIKE $1 ESCAPE '\' AND m.content GLOB $2
              AND (m.inserted_at, m.conversation_id, m.sequence) < ($4, $5, $6)
            ORDER BY m.inserted_at DESC, m.conversation_id DESC, m.sequence DESC LIMIT $3"#);
{%- if group.is_some() %}

        groups::check_member(&self.pool, reach).await?;
{%- endif %}

        let caller = Arc::default();
        let mut search = self.searches.begin(&self.pool, {% if group.is_some() %}reach{% else %}owner{% endif %}, &caller).await?;
{%- if group.is_some() %}
        let sql = match reach {
            Reach::Owner(_) | Reach::Member(..) => SEARCH,
            Reach::Group(_) => groups::SEARCH,
        };
        let query = sqlx::query(sql)
{%- else %}
        let found = sqlx::query(SEARCH)
{%- endif %}
            .bind(like_pattern(text))
            .bind(glob_pattern(text))
            .bind(rows.to_read())
            .bind(to_text(time))
            .bind(id)
{%- if group.is_some() %}
            .bind(sequence);
        let query = match reach {
            Reach::Owner(owner) | Reach::Member(_, owner) => query.bind(owner.id()),
            Reach::Group(group) => query.bind(group.id()),
        };
        let found = query
{%- else %}
            .bind(sequence)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
{%- endif %}
            .try_map(|row: SqliteRow| take(rows, &row))
            .fetch_all(&mut *search)
            .await;
        let _any = has_rows(found)?;
        search.end().await
    }
}

/// Whether it is a text that is not finished.
fn is_partial(row: &DisplayMessage) -> bool {
    matches!(row.delivery, Delivery::Draft | Delivery::Interrupted)
}

/// Replaces what an item shows.
fn replace(row: &mut DisplayMessage, new: &NewDisplayMessage, delivery: Delivery) {
    row.role = new.role;
    row.content_type = new.content_type;
    row.content.clone_from(&new.content);
    row.metadata.clone_from(&new.metadata);
    row.tool_call_id.clone_from(&new.tool_call_id);
    row.status = new.status;
    row.delivery = delivery;
}

/// A change of the display messages of a conversation.
pub(super) struct Change {
    /// Counts the changes of the conversation.
    pub number: i64,
    /// The first of the sequences that were taken.
    first: i64,
    time: String,
}

/// Begins a change of display messages, and takes sequences for those that are new.
pub(super) async fn take_sequences(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    count: usize,
) -> Result<Change> {
    const TAKE: &str = r#"
        UPDATE {{ conversations }} AS c
        SET next_sequence = c.next_sequence + $2, last_change = c.last_change + 1,
            updated_at = max(c.updated_at, $3)
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.id = $1
        RETURNING last_change, next_sequence - $2, updated_at"#;

    // The clock may go back; the times of a conversation's messages do not.
    let (number, first, time) = sqlx::query_as(TAKE)
        .bind(conversation_id)
        .bind(i64::try_from(count).unwrap_or(i64::MAX))
        .bind(now())
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_optional(connection)
        .await?
        .ok_or(Error::NotFound)?;
    Ok(Change { number, first, time })
}

/// As [`take_sequences`], or nothing if an item of the message is stored.
async fn take_first_sequences(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    message_id: Uuid,
    count: usize,
) -> Result<Option<Change>> {
    const TAKE: &str = r#"
        UPDATE {{ conversations }} AS c
        SET next_sequence = c.next_sequence + $2, last_change = c.last_change + 1,
            updated_at = max(c.updated_at, $3)
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $5 AND {% endif %}c.id = $1 AND NOT EXISTS (
            SELECT 1 FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = $1
              AND m.message_id = $4 AND m.item >= 0
        )
        RETURNING last_change, next_sequence - $2, updated_at"#;

    let taken: Option<(i64, i64, String)> = sqlx::query_as(TAKE)
        .bind(conversation_id)
        .bind(i64::try_from(count).unwrap_or(i64::MAX))
        .bind(now())
        .bind(message_id)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_optional(connection)
        .await?;
    Ok(taken.map(|(number, first, time)| Change { number, first, time }))
}

/// Inserts items with the sequences that were taken, or returns nothing if one of them exists.
async fn insert_items(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    messages: &[&NewDisplayMessage],
    delivery: Delivery,
    change: &Change,
) -> Result<Option<Vec<DisplayMessage>>> {
    const INSERT: &str = concat!(r#"
        INSERT INTO {{ display_messages }}
            (conversation_id, sequence, message_id, item, role, content_type, content, metadata,
             tool_call_id, status, inserted_at, changed, delivery{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13{% if owner.is_some() %}, $14{% endif %})
        ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}conversation_id, message_id, item) DO NOTHING
        RETURNING "#, display_message_columns!());

    let mut stored = Vec::with_capacity(messages.len());
    for (message, sequence) in messages.iter().zip(change.first..) {
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
            .bind(&change.time)
            .bind(change.number)
            .bind(delivery.as_stored())
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

/// The items of a message that exist, in order.
async fn items(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    message_id: Uuid,
) -> Result<Vec<DisplayMessage>> {
    const SELECT: &str = concat!("SELECT ", display_message_columns!(), r#"
        FROM {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $3 AND {% endif %}m.conversation_id = $1 AND m.message_id = $2
        ORDER BY m.item"#);

    let items = sqlx::query_as(SELECT)
        .bind(conversation_id)
        .bind(message_id)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_all(connection)
        .await?;
    Ok(items)
}

/// Stores what may change of an item, and reads from the metadata whether it is an error.
pub(super) async fn update(
    connection: &mut SqliteConnection,
    owner: &Owner,
    message: &mut DisplayMessage,
) -> Result<()> {
    const UPDATE: &str = r#"
        UPDATE {{ display_messages }} AS m
        SET role = $3, content_type = $4, content = $5, metadata = $6, tool_call_id = $7, status = $8,
            changed = $9, delivery = $10
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $11 AND {% endif %}m.conversation_id = $1 AND m.sequence = $2"#;

    let updated = sqlx::query(UPDATE)
        .bind(message.conversation_id)
        .bind(message.sequence)
        .bind(message.role.as_str())
        .bind(message.content_type.as_str())
        .bind(&message.content)
        .bind(Json(&message.metadata))
        .bind(&message.tool_call_id)
        .bind(message.status.map(ToolStatus::as_str))
        .bind(message.changed)
        .bind(message.delivery.as_stored())
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(connection)
        .await?;
    debug_assert_eq!(updated.rows_affected(), 1);
    message.is_error = is_error(&message.metadata);
    Ok(())
}

async fn delete(
    connection: &mut SqliteConnection,
    owner: &Owner,
    message: &DisplayMessage,
) -> Result<()> {
    const DELETE: &str = r#"
        DELETE FROM {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $3 AND {% endif %}m.conversation_id = $1 AND m.sequence = $2"#;

    let delete = sqlx::query(DELETE).bind(message.conversation_id).bind(message.sequence){% if owner.is_some() %}.bind(owner.id()){% endif %};
    delete.execute(connection).await.map(drop)?;
    Ok(())
}

/// Makes readers begin again, because rows were deleted: the number of a removal is that of a change,
/// and the last row that stays gets it too, as in a rewind. Returns its sequence.
async fn mark_removal(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    number: i64,
) -> Result<Option<i64>> {
    const REMOVED: &str = r#"
        UPDATE {{ conversations }} AS c SET last_removal = $2
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}c.id = $1"#;
    const TOUCH: &str = r#"
        UPDATE {{ display_messages }} AS m SET changed = $2
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $3 AND {% endif %}m.conversation_id = $1 AND m.sequence = (
            SELECT max(s.sequence) FROM {{ display_messages }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1
        )
        RETURNING sequence"#;

    let removed = sqlx::query(REMOVED).bind(conversation_id).bind(number){% if owner.is_some() %}.bind(owner.id()){% endif %};
    removed.execute(&mut *connection).await.map(drop)?;
    let touch = sqlx::query_scalar(TOUCH).bind(conversation_id).bind(number){% if owner.is_some() %}.bind(owner.id()){% endif %};
    Ok(touch.fetch_optional(connection).await?)
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
