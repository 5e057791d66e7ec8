//! The statements for conversations.

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use uuid::Uuid;

use super::super::{
    Change, Conversation, ConversationChanges, ConversationOrder, Error, NewConversation, Owner,
    {% if group.is_some() %}Reach, {% endif %}Result,
};
{% if group.is_some() %}use super::groups;
{% endif %}use super::rows::conversation_columns;
use super::{Store, retry, timestamp};

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
                .bind(timestamp(Utc::now()))
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

        let query = match reach {
            Reach::Owner(owner) => sqlx::query_as(SELECT).bind(id).bind(owner.id()),
            Reach::Group(group) => sqlx::query_as(groups::CONVERSATION).bind(id).bind(group.id()),
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
                .bind(timestamp(Utc::now()))
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
                .bind(timestamp(Utc::now()))
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
        .await
    }

    pub(crate) async fn list_conversations(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        order_by: ConversationOrder,
        (time, id): (DateTime<Utc>, Uuid),
        limit: u32,
    ) -> Result<Vec<Conversation>> {
        const UPDATED_DESC: &str = concat!("SELECT ", conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}(c.updated_at, c.id) < ($2::timestamptz, $3::uuid)
            ORDER BY c.updated_at DESC, c.id DESC LIMIT $1::bigint"#);
        const UPDATED_ASC: &str = concat!("SELECT ", conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}(c.updated_at, c.id) > ($2::timestamptz, $3::uuid)
            ORDER BY c.updated_at, c.id LIMIT $1::bigint"#);
        const CREATED_DESC: &str = concat!("SELECT ", conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}c.id < $2::uuid
            ORDER BY c.id DESC LIMIT $1::bigint"#);
        const CREATED_ASC: &str = concat!("SELECT ", conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}c.id > $2::uuid
            ORDER BY c.id LIMIT $1::bigint"#);

        let sql = match order_by {
            ConversationOrder::UpdatedDesc => UPDATED_DESC,
            ConversationOrder::UpdatedAsc => UPDATED_ASC,
            ConversationOrder::CreatedDesc => CREATED_DESC,
            ConversationOrder::CreatedAsc => CREATED_ASC,
        };
{%- if group.is_some() %}
        let sql = match reach {
            Reach::Owner(_) => sql,
            Reach::Group(_) => groups::list(order_by),
        };
{%- endif %}
        let mut query = sqlx::query_as(sql).bind(i64::from(limit));
        if order_by.is_by_update() {
            query = query.bind(timestamp(time));
        }
{%- if group.is_some() %}
        let query = match reach {
            Reach::Owner(owner) => query.bind(id).bind(owner.id()),
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

    pub(crate) async fn delete_conversations_before(&self, cutoff: DateTime<Utc>) -> Result<u64> {
{%- match owner %}
{%- when Some(owner) %}
        // For a condition on the pair (owner, id) the planner uses the first column only, and would
        // read all rows of an owner in every page. The size is the number of rows to delete, or more.
        const SIZES: &str = r#"
            WITH own AS (
                SELECT c.{{ owner }}, c.id, CASE WHEN c.updated_at < $1::timestamptz THEN
                    1 + c.next_sequence + (SELECT count(*) FROM {{ agent_messages }} AS m WHERE m.{{ owner }} = c.{{ owner }} AND m.conversation_id = c.id)
                    ELSE 0 END AS size
                FROM {{ conversations }} AS c
                WHERE c.{{ owner }} = $3 AND c.id > $2::uuid
                ORDER BY c.id LIMIT 1000
            ), others AS (
                SELECT c.{{ owner }}, c.id, CASE WHEN c.updated_at < $1::timestamptz THEN
                    1 + c.next_sequence + (SELECT count(*) FROM {{ agent_messages }} AS m WHERE m.{{ owner }} = c.{{ owner }} AND m.conversation_id = c.id)
                    ELSE 0 END AS size
                FROM {{ conversations }} AS c
                WHERE c.{{ owner }} > $3
                ORDER BY c.{{ owner }}, c.id LIMIT 1000
            )
            SELECT p.id, p.{{ owner }}, p.size FROM own AS p
            UNION ALL
            SELECT p.id, p.{{ owner }}, p.size FROM others AS p
            ORDER BY {{ owner }}, id LIMIT 1000"#;
        const DELETE: &str = r#"
            WITH own AS (
                SELECT c.{{ owner }}, c.id, c.updated_at FROM {{ conversations }} AS c
                WHERE c.{{ owner }} = $4 AND c.id > $2::uuid
                ORDER BY c.id LIMIT $3::bigint
            ), others AS (
                SELECT c.{{ owner }}, c.id, c.updated_at FROM {{ conversations }} AS c
                WHERE c.{{ owner }} > $4
                ORDER BY c.{{ owner }}, c.id LIMIT $3::bigint
            ), batch AS (
                SELECT b.{{ owner }}, b.id, b.updated_at FROM own AS b
                UNION ALL
                SELECT b.{{ owner }}, b.id, b.updated_at FROM others AS b
                ORDER BY {{ owner }}, id LIMIT $3::bigint
            ), deleted AS (
                DELETE FROM {{ conversations }} AS c USING batch AS b
                WHERE b.updated_at < $1::timestamptz AND c.updated_at < $1::timestamptz
                  AND c.{{ owner }} = b.{{ owner }} AND c.id = b.id
                RETURNING c.id
            )
            SELECT (SELECT count(*) FROM deleted), b.id, b.{{ owner }} FROM batch AS b
            ORDER BY b.{{ owner }} DESC, b.id DESC LIMIT 1"#;

        let cutoff = timestamp(cutoff);
        let mut last = (Uuid::nil(), {{ least_key }});
        let mut total = 0;
        loop {
            let (last_id, last_owner) = &last;
            let page: Vec<(Uuid, {{ key_type }}, i64)> = sqlx::query_as(SIZES)
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
                        let deleted = sqlx::query_as(DELETE)
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
        // The size is the number of rows to delete, or more.
        const SIZES: &str = r#"
            SELECT c.id, CASE WHEN c.updated_at < $1::timestamptz THEN
                1 + c.next_sequence + (SELECT count(*) FROM {{ agent_messages }} AS m WHERE m.conversation_id = c.id)
                ELSE 0 END AS size
            FROM {{ conversations }} AS c
            WHERE c.id > $2::uuid ORDER BY c.id LIMIT 1000"#;
        const DELETE: &str = r#"
            WITH batch AS (
                SELECT c.id, c.updated_at FROM {{ conversations }} AS c
                WHERE c.id > $2::uuid ORDER BY c.id LIMIT $3::bigint
            ), deleted AS (
                DELETE FROM {{ conversations }} AS c USING batch AS b
                WHERE b.updated_at < $1::timestamptz AND c.updated_at < $1::timestamptz AND c.id = b.id
                RETURNING c.id
            )
            SELECT (SELECT count(*) FROM deleted), b.id FROM batch AS b ORDER BY b.id DESC LIMIT 1"#;

        let cutoff = timestamp(cutoff);
        let mut last_id = Uuid::nil();
        let mut total = 0;
        loop {
            let page: Vec<(Uuid, i64)> = sqlx::query_as(SIZES)
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
                        let deleted = sqlx::query_as(DELETE)
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
