//! The statements for agent states.

use chrono::Utc;
use sqlx::sqlite::SqliteExecutor;
use sqlx::{FromRow, Row as _};
use uuid::Uuid;

use super::super::{Error, Owner, Result};
use super::conversations::touch;
use super::{Store, retry, timestamp};
use crate::sagents::serializer::{self, ReadError};
use crate::sagents::{Expect, Loaded, Revision};

/// What a save finds.
#[derive(FromRow)]
struct Current {
    revision: i64,
    write_id: Uuid,
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
        const CURRENT: &str = r#"
            SELECT s.revision, s.write_id, s.unreadable_data IS NOT NULL AS has_unreadable
            FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1"#;
        const OCCUPIED: &str = "another unreadable state is set aside: restore or discard it";
        const SAVE: &str = r#"
            INSERT INTO {{ agent_states }} AS s
                (conversation_id, version, revision, write_id, data, inserted_at, updated_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
            VALUES ($1, $2, 1, $3, $4, $5, $5{% if owner.is_some() %}, $7{% endif %})
            ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}conversation_id) DO UPDATE
            SET version = excluded.version,
                revision = s.revision + 1,
                write_id = excluded.write_id,
                data = excluded.data,
                unreadable_data = CASE WHEN $6 THEN s.data ELSE s.unreadable_data END,
                updated_at = max(s.updated_at, excluded.updated_at)
            RETURNING revision"#;

        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, owner, conversation_id).await?;
            let current: Option<Current> = sqlx::query_as(CURRENT)
                .bind(conversation_id)
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&mut *tx)
                .await?;
            let revision = current.as_ref().map_or(0, |current| current.revision);
            let expected = match expect {
                Expect::Any => revision,
                Expect::Revision(expected) | Expect::Unreadable(expected) => expected.0,
            };
            let is_own = current.as_ref().is_some_and(|current| current.write_id == write_id);
            if is_own && expected == revision - 1 {
                // A repeat: it was stored, and only the result was lost.
                return Ok(Revision(revision));
            }
            if expected != revision {
                let current = Revision(revision);
                return Err(Error::Conflict { current });
            }
            let set_aside = match expect {
                Expect::Any => {
                    let stored = read_state(&mut *tx, owner, conversation_id, "").await?;
                    matches!(stored, Loaded::Unreadable { .. })
                }
                Expect::Revision(_) => false,
                Expect::Unreadable(_) => true,
            };
            if set_aside && current.is_some_and(|current| current.has_unreadable) {
                return Err(Error::Invalid(OCCUPIED.into()));
            }
            let revision = sqlx::query_scalar(SAVE)
                .bind(conversation_id)
                .bind(serializer::current_version())
                .bind(write_id)
                .bind(data)
                .bind(timestamp(Utc::now()))
                .bind(set_aside)
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_one(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(Revision(revision))
        })
        .await
    }

    pub(crate) async fn load_agent_state(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        agent_id: &str,
    ) -> Result<Loaded> {
        read_state(&self.pool, owner, conversation_id, agent_id).await
    }

    pub(crate) async fn load_unreadable(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<Vec<u8>> {
        const SELECT: &str = r#"
            SELECT s.unreadable_data FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1
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
            UPDATE {{ agent_states }} AS s
            SET data = s.unreadable_data, unreadable_data = s.data,
                revision = s.revision + 1, write_id = $2, updated_at = max(s.updated_at, $3)
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $4 AND {% endif %}s.conversation_id = $1
              AND s.unreadable_data IS NOT NULL
            RETURNING revision"#;

        let write_id = Uuid::now_v7();
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, owner, conversation_id).await?;
            let revision = sqlx::query_scalar(RESTORE)
                .bind(conversation_id)
                .bind(write_id)
                .bind(timestamp(Utc::now()))
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&mut *tx)
                .await?
                .ok_or(Error::NotFound)?;
            tx.commit().await?;
            Ok(Revision(revision))
        })
        .await
    }

    pub(crate) async fn discard_unreadable(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<()> {
        const DISCARD: &str = r#"
            UPDATE {{ agent_states }} AS s SET unreadable_data = NULL
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1
              AND s.unreadable_data IS NOT NULL"#;

        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, owner, conversation_id).await?;
            let discarded = sqlx::query(DISCARD)
                .bind(conversation_id)
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .execute(&mut *tx)
                .await?;
            if discarded.rows_affected() == 0 {
                return Err(Error::NotFound);
            }
            tx.commit().await
        })
        .await
    }
}

/// Reads the stored state, whether it can be understood or not.
async fn read_state(
    executor: impl SqliteExecutor<'_>,
    owner: &Owner,
    conversation_id: Uuid,
    agent_id: &str,
) -> Result<Loaded> {
    // The left join tells a conversation without a state from one that does not exist.
    const SELECT: &str = r#"
        SELECT s.revision, s.data FROM {{ conversations }} AS c
        LEFT JOIN {{ agent_states }} AS s ON {% if let Some(owner) = owner %}s.{{ owner }} = $2 AND {% endif %}s.conversation_id = $1
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1"#;

    let row = sqlx::query(SELECT)
        .bind(conversation_id)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_optional(executor)
        .await?
        .ok_or(Error::NotFound)?;
    let Some(revision) = row.try_get("revision")? else {
        return Ok(Loaded::Nothing);
    };
    let revision = Revision(revision);
    // Read as bytes: what is not text is a damaged state, not a failed query.
    match serializer::from_bytes(agent_id, row.try_get_unchecked("data")?) {
        Ok(state) => Ok(Loaded::Saved {
            state: Box::new(state),
            revision,
        }),
        Err(error @ ReadError::FutureVersion { .. }) => Err(error.into()),
        Err(error) => Ok(Loaded::Unreadable { error, revision }),
    }
}
