//! The statements for runs.

use std::time::Duration;

use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use super::super::{BeginRun, Error, Owner, {% if group.is_some() %}Reach, {% endif %}Result, Run, RunStatus};
{% if group.is_some() %}use super::groups;
{% endif %}use super::rows::{run, run_columns};
use super::{Store, now, retry};
use crate::sagents::timestamp::{self, from_micros, to_micros, to_text};

const CURRENT: &str = concat!("SELECT ", run_columns!(), r#"
    FROM {{ runs }} AS r
    WHERE {% if let Some(owner) = owner %}r.{{ owner }} = $2 AND {% endif %}r.conversation_id = $1"#);

impl Store {
    pub(crate) async fn begin_run(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        run_id: Uuid,
        holder: &str,
        lease: Duration,
    ) -> Result<BeginRun> {
        const BEGIN: &str = concat!(r#"
            INSERT INTO {{ runs }} AS r
                (conversation_id, run_id, holder, status, cancel_requested, started_at, seen_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
            SELECT c.id, $2, $3, 'running', FALSE, $4, $4{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
            FROM {{ conversations }} AS c
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $6 AND {% endif %}c.id = $1
            ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}conversation_id) DO UPDATE
            SET run_id = $2, holder = $3, status = 'running', waiting_for = NULL, seen_at = $4,
                cancel_requested = (r.run_id = $2 AND r.cancel_requested),
                resumed = CASE
                    WHEN r.run_id = $2 THEN r.resumed
                    WHEN r.status = 'waiting' THEN coalesce(r.waiting_for, 'null') = 'null'
                    WHEN r.status IN ('failed', 'cancelled') THEN r.resumed
                    ELSE r.status = 'running'
                END,
                started_at = CASE WHEN r.run_id = $2 THEN r.started_at ELSE $4 END
            WHERE r.run_id = $2 OR r.status <> 'running' OR r.seen_at < $5
            RETURNING "#, run_columns!());

        let lease = i64::try_from(lease.as_micros()).unwrap_or(i64::MAX);
        retry(|| async {
            let now = timestamp::now();
            let lost = from_micros(to_micros(now).saturating_sub(lease)).unwrap_or(timestamp::MIN);
            let mut tx = self.begin().await?;
            let begun = sqlx::query(BEGIN)
                .bind(conversation_id)
                .bind(run_id)
                .bind(holder)
                .bind(to_text(now))
                .bind(to_text(lost))
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&mut *tx)
                .await?;
            if let Some(row) = begun {
                tx.commit().await?;
                return Ok(BeginRun::Started(run(&row)?));
            }
            // In the same transaction, so that it has not ended in between.
            let current = sqlx::query(CURRENT).bind(conversation_id){% if owner.is_some() %}.bind(owner.id()){% endif %};
            let current = current.fetch_optional(&mut *tx).await?;
            tx.commit().await?;
            let current = current.as_ref().map(run).transpose()?;
            current.map(BeginRun::Busy).ok_or(Error::NotFound)
        })
        .await
    }

    /// Renews a run that has not ended, and changes its status if there is another one. Returns
    /// whether it should stop, or nothing if there is no such run.
    pub(crate) async fn change_run(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        run_id: Uuid,
        change: Option<&(RunStatus, Option<Value>)>,
    ) -> Result<Option<bool>> {
        const UPDATE: &str = r#"
            UPDATE {{ runs }} AS r
            SET seen_at = $3, status = coalesce($4, r.status),
                waiting_for = CASE WHEN $4 IS NULL THEN r.waiting_for ELSE $5 END
            WHERE {% if let Some(owner) = owner %}r.{{ owner }} = $6 AND {% endif %}r.conversation_id = $1 AND r.run_id = $2
              AND r.status IN ('running', 'waiting')
            RETURNING cancel_requested"#;

        let status = change.map(|(status, _)| status.as_str());
        let waiting_for = change.and_then(|(_, waiting_for)| waiting_for.as_ref()).map(Json);
        retry(|| async {
            let mut tx = self.begin().await?;
            let cancel_requested = sqlx::query_scalar(UPDATE)
                .bind(conversation_id)
                .bind(run_id)
                .bind(now())
                .bind(status)
                .bind(waiting_for)
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(cancel_requested)
        })
        .await
    }

    pub(crate) async fn request_cancel(&self, owner: &Owner, conversation_id: Uuid) -> Result<bool> {
        const UPDATE: &str = r#"
            UPDATE {{ runs }} AS r SET cancel_requested = TRUE
            WHERE {% if let Some(owner) = owner %}r.{{ owner }} = $2 AND {% endif %}r.conversation_id = $1
              AND r.status IN ('running', 'waiting')"#;

        retry(|| async {
            let mut tx = self.begin().await?;
            let update = sqlx::query(UPDATE).bind(conversation_id){% if owner.is_some() %}.bind(owner.id()){% endif %};
            let updated = update.execute(&mut *tx).await?.rows_affected();
            tx.commit().await?;
            Ok(updated > 0)
        })
        .await
    }

    pub(crate) async fn get_run(&self, {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %}, conversation_id: Uuid) -> Result<Option<Run>> {
{%- if group.is_some() %}
        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}
        let query = sqlx::query(CURRENT).bind(conversation_id){% if owner.is_some() %}.bind(owner.id()){% endif %};
        let row = query.fetch_optional(&self.pool).await?;
        Ok(row.as_ref().map(run).transpose()?)
    }

    pub(crate) async fn unfinished_runs(&self, {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %}) -> Result<Vec<Run>> {
        const SELECT: &str = concat!("SELECT ", run_columns!(), r#"
            FROM {{ runs }} AS r
            WHERE {% if let Some(owner) = owner %}r.{{ owner }} = $1 AND {% endif %}r.status IN ('running', 'waiting')
            ORDER BY r.started_at DESC LIMIT 1000"#);
{% if group.is_some() %}
        groups::check_member(&self.pool, reach).await?;
        let query = match reach {
            Reach::Owner(owner) | Reach::Member(_, owner) => sqlx::query(SELECT).bind(owner.id()),
            Reach::Group(group) => sqlx::query(groups::UNFINISHED_RUNS).bind(group.id()),
        };
{%- else %}
        let query = sqlx::query(SELECT){% if owner.is_some() %}.bind(owner.id()){% endif %};
{%- endif %}
        let rows = query.fetch_all(&self.pool).await?;
        Ok(rows.iter().map(run).collect::<sqlx::Result<_>>()?)
    }
}
