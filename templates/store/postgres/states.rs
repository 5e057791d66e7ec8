//! The statements for agent states.

use chrono::Utc;
use sqlx::{FromRow, Row as _};
use uuid::Uuid;

use super::super::{Error, Owner, Result};
use super::{Store, retry, timestamp};
use crate::sagents::serializer::{self, ReadError};
use crate::sagents::{Expect, Loaded, Revision};

/// What a save finds. Without a state, the revision is 0.
#[derive(FromRow)]
struct Current {
    revision: i64,
    write_id: Option<Uuid>,
    has_unreadable: bool,
}

impl Store {
    pub(crate) async fn save_agent_state(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        data: &str,
        expect: Expect,
        write_id: Uuid,
    ) -> Result<Revision> {
        // The revision is compared twice: before the conversation is touched, so that most refused
        // saves change nothing, and in the upsert, which sees what a concurrent writer saved.
        // A value in `excluded.unreadable_data` means that the stored state is to be set aside;
        // there is one unless the expected revision is 0.
        const SAVE: &str = r#"
            WITH conversation AS (
                UPDATE {{ conversations }} AS c
                SET updated_at = greatest(c.updated_at, $5::timestamptz)
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $8 AND {% endif %}c.id = $1::uuid AND $6::bigint = coalesce((
                    SELECT s.revision FROM {{ agent_states }} AS s
                    WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $8 AND {% endif %}s.conversation_id = $1::uuid
                      AND NOT ($7::boolean AND s.unreadable_data IS NOT NULL)
                ), 0)
                RETURNING c.id{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}, $6::bigint AS expected
            )
            INSERT INTO {{ agent_states }} AS s
                (conversation_id, version, revision, write_id, data, unreadable_data,
                 inserted_at, updated_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
            SELECT c.id, $2::integer, c.expected + 1, $3::uuid, $4::json,
                   CASE WHEN $7::boolean AND $6::bigint > 0 THEN 'null'::json END,
                   $5::timestamptz, $5::timestamptz{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
            FROM conversation AS c
            ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}conversation_id) DO UPDATE
            SET version = excluded.version,
                revision = excluded.revision,
                write_id = excluded.write_id,
                data = excluded.data,
                unreadable_data = CASE
                    WHEN excluded.unreadable_data IS NULL THEN s.unreadable_data ELSE s.data
                END,
                updated_at = greatest(s.updated_at, excluded.updated_at)
            WHERE s.revision = excluded.revision - 1
              AND (s.unreadable_data IS NULL OR excluded.unreadable_data IS NULL)
            RETURNING s.revision"#;
        const CURRENT: &str = r#"
            SELECT coalesce(s.revision, 0) AS revision, s.write_id,
                   s.unreadable_data IS NOT NULL AS has_unreadable
            FROM {{ conversations }} AS c
            LEFT JOIN {{ agent_states }} AS s
                ON {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1::uuid
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1::uuid"#;
        const OCCUPIED: &str = "another unreadable state is set aside: restore or discard it";

        loop {
            let (expected, set_aside) = match expect {
                Expect::Revision(expected) => (expected.0, false),
                Expect::Unreadable(expected) => (expected.0, true),
                Expect::Any => match self.load_agent_state(owner, conversation_id, "").await? {
                    Loaded::Nothing => (0, false),
                    Loaded::Saved { revision, .. } => (revision.0, false),
                    Loaded::Unreadable { revision, .. } => (revision.0, true),
                },
            };
            let saved: Option<i64> = retry(|| async {
                let saved = sqlx::query_scalar(SAVE)
                    .bind(conversation_id)
                    .bind(serializer::current_version())
                    .bind(write_id)
                    .bind(data)
                    .bind(timestamp(Utc::now()))
                    .bind(expected)
                    .bind(set_aside)
{%- if owner.is_some() %}
                    .bind(owner.id())
{%- endif %}
                    .fetch_optional(&self.pool)
                    .await?;
                Ok(saved)
            })
            .await?;
            if let Some(revision) = saved {
                return Ok(Revision(revision));
            }
            let current: Option<Current> = sqlx::query_as(CURRENT)
                .bind(conversation_id)
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&self.pool)
                .await?;
            let current = current.ok_or(Error::NotFound)?;
            if current.write_id == Some(write_id) && expected == current.revision - 1 {
                // A repeat: it was stored, and only the result was lost.
                return Ok(Revision(current.revision));
            }
            if set_aside && current.has_unreadable && expected == current.revision {
                return Err(Error::Invalid(OCCUPIED.into()));
            }
            if expect != Expect::Any {
                let current = Revision(current.revision);
                return Err(Error::Conflict { current });
            }
            // Another writer saved in between: this save overwrites that state too.
        }
    }

    pub(crate) async fn load_agent_state(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        agent_id: &str,
    ) -> Result<Loaded> {
        // The left join tells a conversation without a state from one that does not exist.
        const SELECT: &str = r#"
            SELECT s.revision, s.data FROM {{ conversations }} AS c
            LEFT JOIN {{ agent_states }} AS s
                ON {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1::uuid
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1::uuid"#;

        let row = sqlx::query(SELECT)
            .bind(conversation_id)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_optional(&self.pool)
            .await?
            .ok_or(Error::NotFound)?;
        let Some(revision) = row.try_get("revision")? else {
            return Ok(Loaded::Nothing);
        };
        let revision = Revision(revision);
        // Read as bytes: sqlx decodes the type `json` only through serde.
        match serializer::from_bytes(agent_id, row.try_get_unchecked("data")?) {
            Ok(state) => Ok(Loaded::Saved {
                state: Box::new(state),
                revision,
            }),
            Err(error @ ReadError::FutureVersion { .. }) => Err(error.into()),
            Err(error) => Ok(Loaded::Unreadable { error, revision }),
        }
    }

    pub(crate) async fn load_unreadable(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<Vec<u8>> {
        const SELECT: &str = r#"
            SELECT s.unreadable_data FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1::uuid
              AND s.unreadable_data IS NOT NULL"#;

        let row = sqlx::query(SELECT)
            .bind(conversation_id)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_optional(&self.pool)
            .await?
            .ok_or(Error::NotFound)?;
        Ok(row.try_get_unchecked("unreadable_data")?)
    }

    pub(crate) async fn restore_unreadable(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<Revision> {
        const RESTORE: &str = r#"
            WITH conversation AS (
                UPDATE {{ conversations }} AS c
                SET updated_at = greatest(c.updated_at, $3::timestamptz)
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.id = $1::uuid AND EXISTS (
                    SELECT FROM {{ agent_states }} AS s
                    WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $4 AND {% endif %}s.conversation_id = $1::uuid
                      AND s.unreadable_data IS NOT NULL
                )
                RETURNING c.id
            )
            UPDATE {{ agent_states }} AS s
            SET data = s.unreadable_data, unreadable_data = s.data,
                revision = s.revision + 1, write_id = $2::uuid,
                updated_at = greatest(s.updated_at, $3::timestamptz)
            FROM conversation AS c
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $4 AND {% endif %}s.conversation_id = c.id
              AND s.unreadable_data IS NOT NULL
            RETURNING s.revision"#;

        let write_id = Uuid::now_v7();
        retry(|| async {
            let revision: Option<i64> = sqlx::query_scalar(RESTORE)
                .bind(conversation_id)
                .bind(write_id)
                .bind(timestamp(Utc::now()))
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&self.pool)
                .await?;
            revision.map(Revision).ok_or(Error::NotFound)
        })
        .await
    }

    pub(crate) async fn discard_unreadable(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<()> {
        const DISCARD: &str = r#"
            WITH conversation AS (
                UPDATE {{ conversations }} AS c
                SET updated_at = greatest(c.updated_at, $2::timestamptz)
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}c.id = $1::uuid AND EXISTS (
                    SELECT FROM {{ agent_states }} AS s
                    WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = $1::uuid
                      AND s.unreadable_data IS NOT NULL
                )
                RETURNING c.id
            )
            UPDATE {{ agent_states }} AS s SET unreadable_data = NULL
            FROM conversation AS c
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $3 AND {% endif %}s.conversation_id = c.id
              AND s.unreadable_data IS NOT NULL"#;

        retry(|| async {
            let discarded = sqlx::query(DISCARD)
                .bind(conversation_id)
                .bind(timestamp(Utc::now()))
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .execute(&self.pool)
                .await?;
            if discarded.rows_affected() == 0 {
                return Err(Error::NotFound);
            }
            Ok(())
        })
        .await
    }
}
