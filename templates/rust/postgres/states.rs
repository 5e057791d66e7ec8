{% extends "rust/states.rs" %}

{% block uses %}
use sqlx::postgres::PgExecutor;
use sqlx::{FromRow, Row as _};
use uuid::Uuid;

use super::values::{now, timestamp};
use super::{
    {{ w.context }}, Conversation, Error,{% if w.owner.is_some() %} Owner,{% endif %} OwnerScope, Result, retry,
};
{%- endblock %}

{% block save_state %}
        // The revision decides in the upsert, which sees the row as it is when its turn comes. What
        // could not be read is moved aside, where it stays until it is restored.
        const SAVE: &str = r#"
            WITH conversation AS (
                UPDATE {{ w.conversations }} SET updated_at = greatest(updated_at, $5)
                WHERE {{ w.owner_and }}id = $1 AND $6 = coalesce((
                    SELECT revision FROM {{ w.agent_states }}
                    WHERE {{ w.owner_and }}conversation_id = $1
                      AND NOT ($7 AND unreadable_data IS NOT NULL)
                ), 0)
                RETURNING id
            )
            INSERT INTO {{ w.agent_states }} AS s
                ({{ w.owner_first }}conversation_id, version, revision, write_id, data, inserted_at, updated_at)
            SELECT {{ w.owner_value }}id, $2, 1, $3, $4::json, $5, $5 FROM conversation
            ON CONFLICT ({{ w.owner_first }}conversation_id) DO UPDATE
            SET version = excluded.version,
                revision = s.revision + 1,
                write_id = excluded.write_id,
                data = excluded.data,
                unreadable_data = CASE WHEN $7 THEN s.data ELSE s.unreadable_data END,
                updated_at = greatest(s.updated_at, $5)
            WHERE s.revision = $6 AND NOT ($7 AND s.unreadable_data IS NOT NULL)
            RETURNING revision"#;
        const CURRENT: &str = r#"
            SELECT coalesce(s.revision, 0) AS revision, s.write_id,
                   s.unreadable_data IS NOT NULL AS has_unreadable
            FROM {{ w.conversations }} c
            LEFT JOIN {{ w.agent_states }} s ON {{ w.s_owner_and }}s.conversation_id = $1
            WHERE {{ w.c_owner_and }}c.id = $1"#;
        const OCCUPIED: &str = "another state is kept aside: restore or discard it";

        {{ w.take_owner }}
        let data = serializer::to_text(state).map_err(|error| Error::Invalid(error.to_string()))?;
        loop {
            let (expected, set_aside) = match expect {
                Expect::Revision(expected) => (expected.0, false),
                Expect::Unreadable(expected) => (expected.0, true),
                // Whoever does not care what is there may still not lose what cannot be read.
                Expect::Any => match read_state(&self.pool, {{ w.owner_arg }}conversation_id, "").await? {
                    Loaded::Nothing => (0, false),
                    Loaded::Saved { revision, .. } => (revision.0, false),
                    Loaded::Unreadable { revision, .. } => (revision.0, true),
                },
            };
            let saved: Option<i64> = retry(|| async {
                let save = sqlx::query_scalar(SAVE){{ w.bind_owner }}
                    .bind(conversation_id)
                    .bind(serializer::current_version())
                    .bind(write_id)
                    .bind(&data)
                    .bind(timestamp(now()))
                    .bind(expected)
                    .bind(set_aside);
                Ok(save.fetch_optional(&self.pool).await?)
            })
            .await?;
            if let Some(revision) = saved {
                return Ok(Revision(revision));
            }
            let current: Option<Current> = sqlx::query_as(CURRENT){{ w.bind_owner }}
                .bind(conversation_id)
                .fetch_optional(&self.pool)
                .await?;
            let current = current.ok_or(Error::NotFound)?;
            if current.write_id == Some(write_id) && expected == current.revision - 1 {
                // The answer was lost, the save was not.
                return Ok(Revision(current.revision));
            }
            if set_aside && current.has_unreadable && expected == current.revision {
                return Err(Error::Invalid(OCCUPIED.into()));
            }
            if expect != Expect::Any {
                let current = Revision(current.revision);
                return Err(Error::Conflict { current });
            }
            // Somebody else saved in between, which is to be overwritten as well.
        }
{%- endblock %}

{% block restore_unreadable %}
        const RESTORE: &str = r#"
            WITH conversation AS (
                UPDATE {{ w.conversations }} SET updated_at = greatest(updated_at, $3)
                WHERE {{ w.owner_and }}id = $1 AND EXISTS (
                    SELECT FROM {{ w.agent_states }}
                    WHERE {{ w.owner_and }}conversation_id = $1 AND unreadable_data IS NOT NULL
                )
                RETURNING id
            )
            UPDATE {{ w.agent_states }} s
            SET data = s.unreadable_data, unreadable_data = s.data,
                revision = s.revision + 1, write_id = $2,
                updated_at = greatest(s.updated_at, $3)
            FROM conversation c
            WHERE {{ w.s_owner_and }}s.conversation_id = c.id AND s.unreadable_data IS NOT NULL
            RETURNING s.revision"#;

        {{ w.take_owner }}
        let write_id = Uuid::now_v7();
        retry(|| async {
            let restored: Option<i64> = sqlx::query_scalar(RESTORE){{ w.bind_owner }}
                .bind(conversation_id)
                .bind(write_id)
                .bind(timestamp(now()))
                .fetch_optional(&self.pool)
                .await?;
            restored.map(Revision).ok_or(Error::NotFound)
        })
        .await
{%- endblock %}

{% block discard_unreadable %}
        const DISCARD: &str = r#"
            WITH conversation AS (
                UPDATE {{ w.conversations }} SET updated_at = greatest(updated_at, $2)
                WHERE {{ w.owner_and }}id = $1 AND EXISTS (
                    SELECT FROM {{ w.agent_states }}
                    WHERE {{ w.owner_and }}conversation_id = $1 AND unreadable_data IS NOT NULL
                )
                RETURNING id
            )
            UPDATE {{ w.agent_states }} s SET unreadable_data = NULL
            FROM conversation c
            WHERE {{ w.s_owner_and }}s.conversation_id = c.id AND s.unreadable_data IS NOT NULL"#;

        {{ w.take_owner }}
        retry(|| async {
            let discarded = sqlx::query(DISCARD){{ w.bind_owner }}
                .bind(conversation_id)
                .bind(timestamp(now()))
                .execute(&self.pool)
                .await?;
            if discarded.rows_affected() == 0 {
                return Err(Error::NotFound);
            }
            Ok(())
        })
        .await
{%- endblock %}
