{% extends "rust/states.rs" %}

{% block uses %}
use sqlx::sqlite::SqliteExecutor;
use sqlx::{FromRow, Row as _};
use uuid::Uuid;

use super::values::{now, timestamp};
use super::{
    {{ w.context }}, Conversation, Error,{% if w.owner.is_some() %} Owner,{% endif %} OwnerScope, Result, retry, touch,
};
{%- endblock %}

{% block save_state %}
        const CURRENT: &str = r#"
            SELECT revision, write_id, unreadable_data IS NOT NULL AS has_unreadable
            FROM {{ w.agent_states }} WHERE {{ w.owner_and }}conversation_id = $1"#;
        const OCCUPIED: &str = "another state is kept aside: restore or discard it";
        // What could not be read is moved aside, where it stays until it is restored.
        const SAVE: &str = r#"
            INSERT INTO {{ w.agent_states }} AS s
                ({{ w.owner_first }}conversation_id, version, revision, write_id, data, inserted_at, updated_at)
            VALUES ({{ w.owner_value }}$1, $2, 1, $3, $4, $5, $5)
            ON CONFLICT ({{ w.owner_first }}conversation_id) DO UPDATE
            SET version = excluded.version,
                revision = s.revision + 1,
                write_id = excluded.write_id,
                data = excluded.data,
                unreadable_data = CASE WHEN $6 THEN s.data ELSE s.unreadable_data END,
                updated_at = excluded.updated_at
            RETURNING revision"#;

        {{ w.take_owner }}
        let data = serializer::to_text(state).map_err(|error| Error::Invalid(error.to_string()))?;
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, {{ w.owner_arg }}conversation_id).await?;
            let current: Option<Current> = sqlx::query_as(CURRENT){{ w.bind_owner }}
                .bind(conversation_id)
                .fetch_optional(&mut *tx)
                .await?;
            let revision = current.as_ref().map_or(0, |current| current.revision);
            let expected = match expect {
                Expect::Any => revision,
                Expect::Revision(expected) | Expect::Unreadable(expected) => expected.0,
            };
            let is_own = current.as_ref().is_some_and(|current| current.write_id == Some(write_id));
            if is_own && expected == revision - 1 {
                // The answer was lost, the save was not.
                return Ok(Revision(revision));
            }
            if expected != revision {
                let current = Revision(revision);
                return Err(Error::Conflict { current });
            }
            let set_aside = match expect {
                Expect::Any => {
                    let stored = read_state(&mut *tx, {{ w.owner_arg }}conversation_id, "").await?;
                    matches!(stored, Loaded::Unreadable { .. })
                }
                Expect::Revision(_) => false,
                Expect::Unreadable(_) => true,
            };
            if set_aside && current.is_some_and(|current| current.has_unreadable) {
                return Err(Error::Invalid(OCCUPIED.into()));
            }
            let revision = sqlx::query_scalar(SAVE){{ w.bind_owner }}
                .bind(conversation_id)
                .bind(serializer::current_version())
                .bind(write_id)
                .bind(&data)
                .bind(timestamp(now()))
                .bind(set_aside)
                .fetch_one(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(Revision(revision))
        })
        .await
{%- endblock %}

{% block restore_unreadable %}
        const RESTORE: &str = r#"
            UPDATE {{ w.agent_states }}
            SET data = unreadable_data, unreadable_data = data,
                revision = revision + 1, write_id = $2, updated_at = $3
            WHERE {{ w.owner_and }}conversation_id = $1 AND unreadable_data IS NOT NULL
            RETURNING revision"#;

        {{ w.take_owner }}
        let write_id = Uuid::now_v7();
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, {{ w.owner_arg }}conversation_id).await?;
            let revision = sqlx::query_scalar(RESTORE){{ w.bind_owner }}
                .bind(conversation_id)
                .bind(write_id)
                .bind(timestamp(now()))
                .fetch_optional(&mut *tx)
                .await?
                .ok_or(Error::NotFound)?;
            tx.commit().await?;
            Ok(Revision(revision))
        })
        .await
{%- endblock %}

{% block discard_unreadable %}
        const DISCARD: &str = r#"
            UPDATE {{ w.agent_states }} SET unreadable_data = NULL
            WHERE {{ w.owner_and }}conversation_id = $1 AND unreadable_data IS NOT NULL"#;

        {{ w.take_owner }}
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, {{ w.owner_arg }}conversation_id).await?;
            let discarded = sqlx::query(DISCARD){{ w.bind_owner }}
                .bind(conversation_id)
                .execute(&mut *tx)
                .await?;
            if discarded.rows_affected() == 0 {
                return Err(Error::NotFound);
            }
            tx.commit().await
        })
        .await
{%- endblock %}
