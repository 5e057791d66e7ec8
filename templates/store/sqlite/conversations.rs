//! The statements for conversations.

use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::super::{
    Archived, Change, Conversation, ConversationChanges, ConversationOrder, Error, NewConversation, Owner,
    {% if group.is_some() %}Reach, {% endif %}Result,
};
{% if group.is_some() %}use super::groups;
{% endif %}use super::rows::conversation_columns;
use super::{Store, now, retry};
use crate::sagents::timestamp::{Timestamp, to_text};

impl Store {
    pub(crate) async fn create_conversation(
        &self,
        owner: &Owner,
        new: &NewConversation,
    ) -> Result<Conversation> {
        // The update changes nothing: it makes RETURNING return an existing row.
        const INSERT: &str = concat!(r#"
            INSERT INTO {{ conversations }} AS c
                (id, title, scope, metadata, inserted_at, updated_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
            VALUES ($1, $2, $3, $4, $5, $5{% if owner.is_some() %}, $6{% endif %})
            ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}id) DO UPDATE SET title = c.title
            RETURNING "#, conversation_columns!());

        retry(|| async {
            let mut tx = self.begin().await?;
            let created = sqlx::query_as(INSERT)
                .bind(new.id)
                .bind(&new.title)
                .bind(Json(owner.to_json()))
                .bind(Json(&new.metadata))
                .bind(now())
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_one(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(created)
        })
        .await
    }

    pub(crate) async fn get_conversation(&self, {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %}, id: Uuid) -> Result<Conversation> {
        const SELECT: &str = concat!("SELECT ", conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1"#);
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

    pub(crate) async fn update_conversation(
        &self,
        owner: &Owner,
        id: Uuid,
        changes: &ConversationChanges,
    ) -> Result<Conversation> {
        const UPDATE: &str = concat!(r#"
            UPDATE {{ conversations }} AS c
            SET title = CASE WHEN $2 THEN $3 ELSE c.title END,
                metadata = coalesce($4, c.metadata),
                updated_at = max(c.updated_at, $5)
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $6 AND {% endif %}c.id = $1
            RETURNING "#, conversation_columns!());

        let (set_title, title) = match &changes.title {
            Change::Keep => (false, None),
            Change::To(title) => (true, title.as_ref()),
        };
        let metadata = match &changes.metadata {
            Change::Keep => None,
            Change::To(metadata) => Some(Json(metadata)),
        };
        retry(|| async {
            let mut tx = self.begin().await?;
            let updated: Option<Conversation> = sqlx::query_as(UPDATE)
                .bind(id)
                .bind(set_title)
                .bind(title)
                .bind(metadata)
                .bind(now())
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&mut *tx)
                .await?;
            tx.commit().await?;
            updated.ok_or(Error::NotFound)
        })
        .await
    }

    pub(crate) async fn set_interrupted(
        &self,
        owner: &Owner,
        id: Uuid,
        interrupted: bool,
    ) -> Result<Conversation> {
        const UPDATE: &str = concat!(r#"
            UPDATE {{ conversations }} AS c
            SET interrupted = $2, updated_at = max(c.updated_at, $3)
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.id = $1
            RETURNING "#, conversation_columns!());

        retry(|| async {
            let mut tx = self.begin().await?;
            let updated: Option<Conversation> = sqlx::query_as(UPDATE)
                .bind(id)
                .bind(interrupted)
                .bind(now())
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&mut *tx)
                .await?;
            tx.commit().await?;
            updated.ok_or(Error::NotFound)
        })
        .await
    }

    pub(crate) async fn set_archived(
        &self,
        owner: &Owner,
        id: Uuid,
        is_archived: bool,
    ) -> Result<Conversation> {
        const UPDATE: &str = concat!(r#"
            UPDATE {{ conversations }} AS c
            SET archived_at = CASE WHEN $2 THEN coalesce(c.archived_at, $3) END
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.id = $1
            RETURNING "#, conversation_columns!());

        retry(|| async {
            let mut tx = self.begin().await?;
            let updated: Option<Conversation> = sqlx::query_as(UPDATE)
                .bind(id)
                .bind(is_archived)
                .bind(now())
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&mut *tx)
                .await?;
            tx.commit().await?;
            updated.ok_or(Error::NotFound)
        })
        .await
    }

    pub(crate) async fn delete_conversation(&self, owner: &Owner, id: Uuid) -> Result<()> {
        const DELETE: &str = r#"
            DELETE FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1"#;

        retry(|| async {
            let mut tx = self.begin().await?;
            let deleted = sqlx::query(DELETE)
                .bind(id)
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .execute(&mut *tx)
                .await?
                .rows_affected();
            tx.commit().await?;
            if deleted == 0 {
                return Err(Error::NotFound);
            }
            self.announce(id);
            Ok(())
        })
        .await
    }

    pub(crate) async fn list_conversations(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        (order_by, archived): (ConversationOrder, Archived),
        (time, id): (Timestamp, Uuid),
        limit: u32,
    ) -> Result<Vec<Conversation>> {
        let lists = match archived {
            Archived::Exclude => ACTIVE,
            Archived::Include => ALL,
            Archived::Only => ARCHIVED,
        };
{%- if group.is_some() %}
        groups::check_member(&self.pool, reach).await?;
        let lists = match reach {
            Reach::Owner(_) | Reach::Member(..) => lists,
            Reach::Group(_) => groups::lists(archived),
        };
{%- endif %}
        let mut query = sqlx::query_as(lists.by(order_by)).bind(limit);
        if order_by.is_by_update() {
            query = query.bind(to_text(time));
        }
{%- if group.is_some() %}
        let query = match reach {
            Reach::Owner(owner) | Reach::Member(_, owner) => query.bind(id).bind(owner.id()),
            Reach::Group(group) => query.bind(id).bind(group.id()),
        };
        let page = query.fetch_all(&self.pool).await?;
{%- else %}
        let page = query
            .bind(id)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_all(&self.pool)
            .await?;
{%- endif %}
        Ok(page)
    }

    pub(crate) async fn delete_conversations_before(&self, cutoff: Timestamp) -> Result<u64> {
        self.delete_batches(&OLD, cutoff).await
    }

    pub(crate) async fn delete_archived_before(&self, cutoff: Timestamp) -> Result<u64> {
        self.delete_batches(&OLD_ARCHIVED, cutoff).await
    }

    async fn delete_batches(&self, statements: &Old, cutoff: Timestamp) -> Result<u64> {
{%- match owner %}
{%- when Some(owner) %}
        let cutoff = to_text(cutoff);
        let mut last = (Uuid::nil(), {{ least_key }});
        let mut total = 0;
        loop {
            let (last_id, last_owner) = &last;
            let mut page: Vec<(Uuid, {{ key_type }}, bool)> = sqlx::query_as(statements.select)
                .bind(&cutoff)
                .bind(last_id)
                .bind(last_owner)
                .fetch_all(&self.pool)
                .await?;
            let old: Vec<_> = page.iter().filter(|(_, _, is_old)| *is_old).collect();
            let mut rest = old.as_slice();
            while !rest.is_empty() {
                let (tried, deleted) = retry(|| self.delete_batch(statements, &cutoff, rest)).await?;
                rest = &rest[tried..];
                total += deleted;
            }
            match page.pop() {
                Some((id, owner, _)) => last = (id, owner),
                None => return Ok(total),
            }
        }
{%- when None %}
        let cutoff = to_text(cutoff);
        let mut last_id = Uuid::nil();
        let mut total = 0;
        loop {
            let mut page: Vec<(Uuid, bool)> = sqlx::query_as(statements.select)
                .bind(&cutoff)
                .bind(last_id)
                .fetch_all(&self.pool)
                .await?;
            let old: Vec<_> = page.iter().filter(|(_, is_old)| *is_old).collect();
            let mut rest = old.as_slice();
            while !rest.is_empty() {
                let (tried, deleted) = retry(|| self.delete_batch(statements, &cutoff, rest)).await?;
                rest = &rest[tried..];
                total += deleted;
            }
            match page.pop() {
                Some((id, _)) => last_id = id,
                None => return Ok(total),
            }
        }
{%- endmatch %}
    }

    /// Deletes conversations that are old until a thousand rows are gone with them. Returns how many
    /// it tried, and how many it deleted: a conversation may have been written to since it was read.
    async fn delete_batch(
        &self,
        statements: &Old,
        cutoff: &str,
        old: &[&(Uuid, {% if owner.is_some() %}{{ key_type }}, {% endif %}bool)],
    ) -> Result<(usize, u64)> {
        // Counts also what is deleted because it belongs to a conversation.
        const COUNT: &str = "SELECT total_changes()";

        let mut tx = self.begin().await?;
        let before: i64 = sqlx::query_scalar(COUNT).fetch_one(&mut *tx).await?;
        let (mut tried, mut deleted) = (0, 0);
        for (id, {% if owner.is_some() %}owner, {% endif %}_) in old {
            let delete = sqlx::query(statements.delete).bind(cutoff).bind(id){% if owner.is_some() %}.bind(owner){% endif %};
            deleted += delete.execute(&mut *tx).await?.rows_affected();
            tried += 1;
            let now: i64 = sqlx::query_scalar(COUNT).fetch_one(&mut *tx).await?;
            if now - before >= 1000 {
                break;
            }
        }
        tx.commit().await?;
        Ok((tried, deleted))
    }
}

/// The statements that delete the conversations whose time is before a cutoff: `select` reads a page, and
/// `delete` deletes one of them, by its key. For a condition on the time alone the planner would read all
/// rows of an owner.
struct Old {
    select: &'static str,
    delete: &'static str,
}

macro_rules! old {
    ($time:literal) => {
        Old {
{%- match owner %}
{%- when Some(owner) %}
            select: concat!(r#"
                SELECT c.id, c.{{ owner }}, coalesce(c."#, $time, r#" < $1, FALSE) FROM {{ conversations }} AS c
                WHERE (c.{{ owner }}, c.id) > ($3, $2)
                ORDER BY c.{{ owner }}, c.id LIMIT 1000"#),
{%- when None %}
            select: concat!(r#"
                SELECT c.id, coalesce(c."#, $time, r#" < $1, FALSE) FROM {{ conversations }} AS c
                WHERE c.id > $2 ORDER BY c.id LIMIT 1000"#),
{%- endmatch %}
            delete: concat!(r#"
                DELETE FROM {{ conversations }} AS c
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}c.id = $2 AND c."#, $time, r#" < $1"#),
        }
    };
}

const OLD: Old = old!("updated_at");
const OLD_ARCHIVED: Old = old!("archived_at");

/// Sets `updated_at`. `NotFound` if the owner has no such conversation.
pub(super) async fn touch(connection: &mut SqliteConnection, owner: &Owner, id: Uuid) -> Result<()> {
    const TOUCH: &str = r#"
        UPDATE {{ conversations }} AS c SET updated_at = max(c.updated_at, $2)
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}c.id = $1"#;

    let touched = sqlx::query(TOUCH)
        .bind(id)
        .bind(now())
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(connection)
        .await?;
    if touched.rows_affected() == 0 {
        return Err(Error::NotFound);
    }
    Ok(())
}

/// The statements for a page of conversations.
pub(super) struct Lists {
    pub updated_desc: &'static str,
    pub updated_asc: &'static str,
    pub created_desc: &'static str,
    pub created_asc: &'static str,
}

impl Lists {
    pub(super) fn by(&self, order: ConversationOrder) -> &'static str {
        match order {
            ConversationOrder::UpdatedDesc => self.updated_desc,
            ConversationOrder::UpdatedAsc => self.updated_asc,
            ConversationOrder::CreatedDesc => self.created_desc,
            ConversationOrder::CreatedAsc => self.created_asc,
        }
    }
}

/// The index is named: `SQLite` would go through the table, which is in the order of ids too, and read
/// what the condition leaves out.
macro_rules! created_desc {
    ($condition:literal, $index:literal) => {
        concat!("SELECT ", conversation_columns!(), r#"
            FROM {{ conversations }} AS c"#, $index, r#"
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}"#, $condition, r#"c.id < $2
            ORDER BY c.id DESC LIMIT $1"#)
    };
}

macro_rules! created_asc {
    ($condition:literal, $index:literal) => {
        concat!("SELECT ", conversation_columns!(), r#"
            FROM {{ conversations }} AS c"#, $index, r#"
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}"#, $condition, r#"c.id > $2
            ORDER BY c.id LIMIT $1"#)
    };
}

/// The condition is a part of the text, so that the index with that condition is used.
macro_rules! lists {
    ($condition:literal, $index:literal) => {
        Lists {
            updated_desc: concat!("SELECT ", conversation_columns!(), r#"
                FROM {{ conversations }} AS c
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}"#, $condition, r#"(c.updated_at, c.id) < ($2, $3)
                ORDER BY c.updated_at DESC, c.id DESC LIMIT $1"#),
            updated_asc: concat!("SELECT ", conversation_columns!(), r#"
                FROM {{ conversations }} AS c
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}"#, $condition, r#"(c.updated_at, c.id) > ($2, $3)
                ORDER BY c.updated_at, c.id LIMIT $1"#),
            created_desc: created_desc!($condition, $index),
            created_asc: created_asc!($condition, $index),
        }
    };
}

/// By their update, the conversations of both indexes are merged.
const ALL: Lists = Lists {
    updated_desc: concat!("SELECT ", conversation_columns!(), r#"
        FROM {{ conversations }} AS c
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.archived_at IS NULL AND (c.updated_at, c.id) < ($2, $3)
        UNION ALL
        SELECT "#, conversation_columns!(), r#"
        FROM {{ conversations }} AS c
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.archived_at IS NOT NULL AND (c.updated_at, c.id) < ($2, $3)
        ORDER BY updated_at DESC, id DESC LIMIT $1"#),
    updated_asc: concat!("SELECT ", conversation_columns!(), r#"
        FROM {{ conversations }} AS c
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.archived_at IS NULL AND (c.updated_at, c.id) > ($2, $3)
        UNION ALL
        SELECT "#, conversation_columns!(), r#"
        FROM {{ conversations }} AS c
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.archived_at IS NOT NULL AND (c.updated_at, c.id) > ($2, $3)
        ORDER BY updated_at, id LIMIT $1"#),
    created_desc: created_desc!("", ""),
    created_asc: created_asc!("", ""),
};
const ACTIVE: Lists = lists!("c.archived_at IS NULL AND ", r#" INDEXED BY "{{ prefix }}conversations_active_id""#);
const ARCHIVED: Lists = lists!("c.archived_at IS NOT NULL AND ", r#" INDEXED BY "{{ prefix }}conversations_archived_id""#);
