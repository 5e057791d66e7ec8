//! The statements for conversations.

use sqlx::types::Json;
use uuid::Uuid;

use super::super::{
    Archived, Change, Conversation, ConversationChanges, ConversationOrder, Error, NewConversation, Owner,
    {% if group.is_some() %}Reach, {% endif %}Result,
};
{% if group.is_some() %}use super::groups;
{% endif %}use super::rows::conversation_columns;
use super::{Store, now, retry, timestamp};
use crate::sagents::Timestamp;

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
            VALUES ($1::uuid, $2::text, $3::jsonb, $4::jsonb, $5::timestamptz, $5::timestamptz{% if owner.is_some() %}, $6{% endif %})
            ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}id) DO UPDATE SET title = c.title
            RETURNING "#, conversation_columns!());

        retry(|| async {
            let mut lease = self.lease(owner, new.id).await?;
            let created = sqlx::query_as(INSERT)
                .bind(new.id)
                .bind(&new.title)
                .bind(Json(owner.to_json()))
                .bind(Json(&new.metadata))
                .bind(now())
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_one(lease.connection())
                .await?;
            lease.end();
            Ok(created)
        })
        .await
    }

    pub(crate) async fn get_conversation(&self, {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %}, id: Uuid) -> Result<Conversation> {
        const SELECT: &str = concat!("SELECT ", conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1::uuid"#);
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
            SET title = CASE WHEN $2::boolean THEN $3::text ELSE c.title END,
                metadata = coalesce($4::jsonb, c.metadata),
                updated_at = greatest(c.updated_at, $5::timestamptz)
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $6 AND {% endif %}c.id = $1::uuid
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
            let mut lease = self.lease(owner, id).await?;
            let updated: Option<Conversation> = sqlx::query_as(UPDATE)
                .bind(id)
                .bind(set_title)
                .bind(title)
                .bind(metadata)
                .bind(now())
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(lease.connection())
                .await?;
            lease.end();
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
            SET interrupted = $2::boolean, updated_at = greatest(c.updated_at, $3::timestamptz)
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.id = $1::uuid
            RETURNING "#, conversation_columns!());

        retry(|| async {
            let mut lease = self.lease(owner, id).await?;
            let updated: Option<Conversation> = sqlx::query_as(UPDATE)
                .bind(id)
                .bind(interrupted)
                .bind(now())
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(lease.connection())
                .await?;
            lease.end();
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
            SET archived_at = CASE WHEN $2::boolean THEN coalesce(c.archived_at, $3::timestamptz) END
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.id = $1::uuid
            RETURNING "#, conversation_columns!());

        retry(|| async {
            let mut lease = self.lease(owner, id).await?;
            let updated: Option<Conversation> = sqlx::query_as(UPDATE)
                .bind(id)
                .bind(is_archived)
                .bind(now())
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(lease.connection())
                .await?;
            lease.end();
            updated.ok_or(Error::NotFound)
        })
        .await
    }

    pub(crate) async fn delete_conversation(&self, owner: &Owner, id: Uuid) -> Result<()> {
        const DELETE: &str = r#"
            DELETE FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1::uuid"#;

        retry(|| async {
            let mut lease = self.lease(owner, id).await?;
            let deleted = sqlx::query(DELETE)
                .bind(id)
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .execute(lease.connection())
                .await?;
            lease.end();
            if deleted.rows_affected() == 0 {
                return Err(Error::NotFound);
            }
            Ok(())
        })
        .await?;
        self.announce(id).await;
        Ok(())
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
        let mut query = sqlx::query_as(lists.by(order_by)).bind(i64::from(limit));
        if order_by.is_by_update() {
            query = query.bind(timestamp(time));
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

    async fn delete_batches(&self, old: &Old, cutoff: Timestamp) -> Result<u64> {
{%- match owner %}
{%- when Some(owner) %}
        let cutoff = timestamp(cutoff);
        let mut last = (Uuid::nil(), {{ least_key }});
        let mut total = 0;
        loop {
            let (last_id, last_owner) = &last;
            let page: Vec<(Uuid, {{ key_type }}, i64)> = sqlx::query_as(old.sizes)
                .bind(cutoff)
                .bind(last_id)
                .bind(last_owner)
                .fetch_all(&self.pool)
                .await?;
            if page.is_empty() {
                return Ok(total);
            }
            for mut batch in batches(page, |(_, _, size)| *size) {
                let (last_id, last_owner) = &last;
                let end: Option<(i64, Uuid, {{ key_type }})> = if batch.iter().any(|(_, _, size)| *size > 0) {
                    retry(|| async {
                        let deleted = sqlx::query_as(old.delete)
                            .bind(cutoff)
                            .bind(last_id)
                            .bind(i64::try_from(batch.len()).unwrap_or(i64::MAX))
                            .bind(last_owner)
                            .fetch_optional(&self.pool)
                            .await?;
                        Ok(deleted)
                    })
                    .await?
                } else {
                    batch.pop().map(|(id, owner, _)| (0, id, owner))
                };
                if let Some((deleted, id, owner)) = end {
                    total += deleted.unsigned_abs();
                    last = (id, owner);
                }
            }
        }
{%- when None %}
        let cutoff = timestamp(cutoff);
        let mut last_id = Uuid::nil();
        let mut total = 0;
        loop {
            let page: Vec<(Uuid, i64)> = sqlx::query_as(old.sizes)
                .bind(cutoff)
                .bind(last_id)
                .fetch_all(&self.pool)
                .await?;
            if page.is_empty() {
                return Ok(total);
            }
            for mut batch in batches(page, |(_, size)| *size) {
                let end: Option<(i64, Uuid)> = if batch.iter().any(|(_, size)| *size > 0) {
                    retry(|| async {
                        let deleted = sqlx::query_as(old.delete)
                            .bind(cutoff)
                            .bind(last_id)
                            .bind(i64::try_from(batch.len()).unwrap_or(i64::MAX))
                            .fetch_optional(&self.pool)
                            .await?;
                        Ok(deleted)
                    })
                    .await?
                } else {
                    batch.pop().map(|(id, _)| (0, id))
                };
                if let Some((deleted, id)) = end {
                    total += deleted.unsigned_abs();
                    last_id = id;
                }
            }
        }
{%- endmatch %}
    }
}

/// The statements that delete the conversations whose time is before a cutoff. `sizes` reads a page with
/// the number of rows to delete, or more, of each conversation. Sequences may have been imported: a
/// high one counts as a million rows.
struct Old {
    sizes: &'static str,
    delete: &'static str,
}
{%- match owner %}
{%- when Some(owner) %}

/// For a condition on the pair (owner, id) the planner uses the first column only, and would read all
/// rows of an owner in every page.
macro_rules! old {
    ($time:literal) => {
        Old {
            sizes: concat!(r#"
                WITH own AS (
                    SELECT c.{{ owner }}, c.id, CASE WHEN c."#, $time, r#" < $1::timestamptz THEN
                        1 + least(c.next_sequence, 1000000) + (SELECT count(*) FROM {{ agent_messages }} AS m WHERE m.{{ owner }} = c.{{ owner }} AND m.conversation_id = c.id)
                        + (SELECT count(*) FROM {{ usage }} AS m WHERE m.{{ owner }} = c.{{ owner }} AND m.conversation_id = c.id)
                        ELSE 0 END AS size
                    FROM {{ conversations }} AS c
                    WHERE c.{{ owner }} = $3 AND c.id > $2::uuid
                    ORDER BY c.id LIMIT 1000
                ), others AS (
                    SELECT c.{{ owner }}, c.id, CASE WHEN c."#, $time, r#" < $1::timestamptz THEN
                        1 + least(c.next_sequence, 1000000) + (SELECT count(*) FROM {{ agent_messages }} AS m WHERE m.{{ owner }} = c.{{ owner }} AND m.conversation_id = c.id)
                        + (SELECT count(*) FROM {{ usage }} AS m WHERE m.{{ owner }} = c.{{ owner }} AND m.conversation_id = c.id)
                        ELSE 0 END AS size
                    FROM {{ conversations }} AS c
                    WHERE c.{{ owner }} > $3
                    ORDER BY c.{{ owner }}, c.id LIMIT 1000
                )
                SELECT p.id, p.{{ owner }}, p.size FROM own AS p
                UNION ALL
                SELECT p.id, p.{{ owner }}, p.size FROM others AS p
                ORDER BY {{ owner }}, id LIMIT 1000"#),
            delete: concat!(r#"
                WITH own AS (
                    SELECT c.{{ owner }}, c.id, c."#, $time, r#" FROM {{ conversations }} AS c
                    WHERE c.{{ owner }} = $4 AND c.id > $2::uuid
                    ORDER BY c.id LIMIT $3::bigint
                ), others AS (
                    SELECT c.{{ owner }}, c.id, c."#, $time, r#" FROM {{ conversations }} AS c
                    WHERE c.{{ owner }} > $4
                    ORDER BY c.{{ owner }}, c.id LIMIT $3::bigint
                ), batch AS (
                    SELECT b.{{ owner }}, b.id, b."#, $time, r#" FROM own AS b
                    UNION ALL
                    SELECT b.{{ owner }}, b.id, b."#, $time, r#" FROM others AS b
                    ORDER BY {{ owner }}, id LIMIT $3::bigint
                ), deleted AS (
                    DELETE FROM {{ conversations }} AS c USING batch AS b
                    WHERE b."#, $time, r#" < $1::timestamptz AND c."#, $time, r#" < $1::timestamptz
                      AND c.{{ owner }} = b.{{ owner }} AND c.id = b.id
                    RETURNING c.id
                )
                SELECT (SELECT count(*) FROM deleted), b.id, b.{{ owner }} FROM batch AS b
                ORDER BY b.{{ owner }} DESC, b.id DESC LIMIT 1"#),
        }
    };
}
{%- when None %}

macro_rules! old {
    ($time:literal) => {
        Old {
            sizes: concat!(r#"
                SELECT c.id, CASE WHEN c."#, $time, r#" < $1::timestamptz THEN
                    1 + least(c.next_sequence, 1000000) + (SELECT count(*) FROM {{ agent_messages }} AS m WHERE m.conversation_id = c.id)
                    + (SELECT count(*) FROM {{ usage }} AS m WHERE m.conversation_id = c.id)
                    ELSE 0 END AS size
                FROM {{ conversations }} AS c
                WHERE c.id > $2::uuid ORDER BY c.id LIMIT 1000"#),
            delete: concat!(r#"
                WITH batch AS (
                    SELECT c.id, c."#, $time, r#" FROM {{ conversations }} AS c
                    WHERE c.id > $2::uuid ORDER BY c.id LIMIT $3::bigint
                ), deleted AS (
                    DELETE FROM {{ conversations }} AS c USING batch AS b
                    WHERE b."#, $time, r#" < $1::timestamptz AND c."#, $time, r#" < $1::timestamptz AND c.id = b.id
                    RETURNING c.id
                )
                SELECT (SELECT count(*) FROM deleted), b.id FROM batch AS b ORDER BY b.id DESC LIMIT 1"#),
        }
    };
}
{%- endmatch %}

const OLD: Old = old!("updated_at");
const OLD_ARCHIVED: Old = old!("archived_at");

/// Splits a page of conversations where a thousand rows are reached. A conversation is never split.
fn batches<T>(page: Vec<T>, size: impl Fn(&T) -> i64) -> Vec<Vec<T>> {
    let (mut batches, mut batch, mut rows) = (Vec::new(), Vec::new(), 0);
    for conversation in page {
        rows += size(&conversation);
        batch.push(conversation);
        if rows >= 1000 {
            batches.push(std::mem::take(&mut batch));
            rows = 0;
        }
    }
    batches.push(batch);
    batches
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

macro_rules! created_desc {
    ($condition:literal) => {
        concat!("SELECT ", conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}"#, $condition, r#"c.id < $2::uuid
            ORDER BY c.id DESC LIMIT $1::bigint"#)
    };
}

macro_rules! created_asc {
    ($condition:literal) => {
        concat!("SELECT ", conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}"#, $condition, r#"c.id > $2::uuid
            ORDER BY c.id LIMIT $1::bigint"#)
    };
}

/// The condition is a part of the text, so that the index with that condition is used.
macro_rules! lists {
    ($condition:literal) => {
        Lists {
            updated_desc: concat!("SELECT ", conversation_columns!(), r#"
                FROM {{ conversations }} AS c
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}"#, $condition, r#"(c.updated_at, c.id) < ($2::timestamptz, $3::uuid)
                ORDER BY c.updated_at DESC, c.id DESC LIMIT $1::bigint"#),
            updated_asc: concat!("SELECT ", conversation_columns!(), r#"
                FROM {{ conversations }} AS c
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}"#, $condition, r#"(c.updated_at, c.id) > ($2::timestamptz, $3::uuid)
                ORDER BY c.updated_at, c.id LIMIT $1::bigint"#),
            created_desc: created_desc!($condition),
            created_asc: created_asc!($condition),
        }
    };
}

/// By their update, the conversations of both indexes are merged.
const ALL: Lists = Lists {
    updated_desc: concat!("SELECT ", conversation_columns!(), r#"
        FROM (
            (SELECT "#, conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.archived_at IS NULL AND (c.updated_at, c.id) < ($2::timestamptz, $3::uuid)
            ORDER BY c.updated_at DESC, c.id DESC LIMIT $1::bigint)
            UNION ALL
            (SELECT "#, conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.archived_at IS NOT NULL AND (c.updated_at, c.id) < ($2::timestamptz, $3::uuid)
            ORDER BY c.updated_at DESC, c.id DESC LIMIT $1::bigint)
        ) AS c
        ORDER BY c.updated_at DESC, c.id DESC LIMIT $1::bigint"#),
    updated_asc: concat!("SELECT ", conversation_columns!(), r#"
        FROM (
            (SELECT "#, conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.archived_at IS NULL AND (c.updated_at, c.id) > ($2::timestamptz, $3::uuid)
            ORDER BY c.updated_at, c.id LIMIT $1::bigint)
            UNION ALL
            (SELECT "#, conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.archived_at IS NOT NULL AND (c.updated_at, c.id) > ($2::timestamptz, $3::uuid)
            ORDER BY c.updated_at, c.id LIMIT $1::bigint)
        ) AS c
        ORDER BY c.updated_at, c.id LIMIT $1::bigint"#),
    created_desc: created_desc!(""),
    created_asc: created_asc!(""),
};
const ACTIVE: Lists = lists!("c.archived_at IS NULL AND ");
const ARCHIVED: Lists = lists!("c.archived_at IS NOT NULL AND ");
