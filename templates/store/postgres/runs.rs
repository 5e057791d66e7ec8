//! The statements for runs. Times are those of the server, so that the clocks of processes may differ.

use std::time::Duration;

use serde_json::Value;
use sqlx::Row as _;
use uuid::Uuid;

use super::super::{BeginRun, Error, Owner, {% if group.is_some() %}Reach, {% endif %}Result, Run, RunStatus};
{% if group.is_some() %}use super::groups;
{% endif %}use super::rows::{run, run_columns};
use super::{FOREIGN_KEY_VIOLATION, Store, code, retry};

/// Whether another run may take the place of the run `r`.
macro_rules! is_free {
    () => {
        "(r.run_id = $2::uuid OR r.status <> 'running'
                  OR r.seen_at < now() - make_interval(secs => $4::double precision))"
    };
}

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
            WITH taken AS (
                UPDATE {{ runs }} AS r
                SET run_id = $2::uuid, holder = $3::text, status = 'running', waiting_for = NULL,
                    cancel_requested = (r.run_id = $2::uuid AND r.cancel_requested),
                    resumed = CASE
                        WHEN r.run_id = $2::uuid THEN r.resumed
                        WHEN r.status = 'waiting' THEN coalesce(r.waiting_for::text, 'null') = 'null'
                        WHEN r.status IN ('failed', 'cancelled') THEN r.resumed
                        ELSE r.status = 'running'
                    END,
                    started_at = CASE WHEN r.run_id = $2::uuid THEN r.started_at ELSE now() END,
                    seen_at = now()
                WHERE {% if let Some(owner) = owner %}r.{{ owner }} = $5 AND {% endif %}r.conversation_id = $1::uuid
                  AND "#, is_free!(), r#"
                RETURNING "#, run_columns!(), r#"
            ), begun AS (
                INSERT INTO {{ runs }} AS r
                    (conversation_id, run_id, holder, status, started_at, seen_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
                SELECT c.id, $2::uuid, $3::text, 'running', now(), now(){% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
                FROM {{ conversations }} AS c
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $5 AND {% endif %}c.id = $1::uuid AND NOT EXISTS (
                    SELECT FROM {{ runs }} AS r
                    WHERE {% if let Some(owner) = owner %}r.{{ owner }} = $5 AND {% endif %}r.conversation_id = $1::uuid
                )
                RETURNING "#, run_columns!(), r#"
            )
            SELECT TRUE AS is_begun, TRUE AS is_free, "#, run_columns!(), r#" FROM taken AS r
            UNION ALL
            SELECT TRUE, TRUE, "#, run_columns!(), r#" FROM begun AS r
            UNION ALL
            SELECT FALSE, "#, is_free!(), ", ", run_columns!(), r#" FROM {{ runs }} AS r
            WHERE {% if let Some(owner) = owner %}r.{{ owner }} = $5 AND {% endif %}r.conversation_id = $1::uuid
              AND NOT EXISTS (SELECT FROM taken)"#);

        // What is longer does not fit into an interval.
        let lease = lease.as_secs_f64().min(1e9);
        loop {
            let row = retry(|| async {
                let query = sqlx::query(BEGIN)
                    .bind(conversation_id)
                    .bind(run_id)
                    .bind(holder)
                    .bind(lease){% if owner.is_none() %};{% endif %}
{%- if owner.is_some() %}
                    .bind(owner.id());
{%- endif %}
                match query.fetch_optional(&self.pool).await {
                    // The conversation was deleted in between.
                    Err(error) if code(&error).as_deref() == Some(FOREIGN_KEY_VIOLATION) => {
                        Err(Error::NotFound)
                    }
                    row => row?.ok_or(Error::NotFound),
                }
            })
            .await?;
            let current = run(&row)?;
            if row.try_get("is_begun")? {
                return Ok(BeginRun::Started(current));
            }
            if !row.try_get("is_free")? {
                return Ok(BeginRun::Busy(current));
            }
            // A concurrent caller was faster: the next attempt sees its run.
        }
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
            SET seen_at = now(), status = coalesce($3::text, r.status),
                waiting_for = CASE WHEN $3::text IS NULL THEN r.waiting_for ELSE $4::text::json END
            WHERE {% if let Some(owner) = owner %}r.{{ owner }} = $5 AND {% endif %}r.conversation_id = $1::uuid
              AND r.run_id = $2::uuid AND r.status IN ('running', 'waiting')
            RETURNING r.cancel_requested"#;

        let status = change.map(|(status, _)| status.as_str());
        let waiting_for = change.and_then(|(_, waiting_for)| waiting_for.as_ref()).map(Value::to_string);
        retry(|| async {
            let cancel_requested = sqlx::query_scalar(UPDATE)
                .bind(conversation_id)
                .bind(run_id)
                .bind(status)
                .bind(&waiting_for)
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(&self.pool)
                .await?;
            Ok(cancel_requested)
        })
        .await
    }

    pub(crate) async fn request_cancel(&self, owner: &Owner, conversation_id: Uuid) -> Result<bool> {
        const UPDATE: &str = r#"
            UPDATE {{ runs }} AS r SET cancel_requested = TRUE
            WHERE {% if let Some(owner) = owner %}r.{{ owner }} = $2 AND {% endif %}r.conversation_id = $1::uuid
              AND r.status IN ('running', 'waiting')"#;

        retry(|| async {
            let update = sqlx::query(UPDATE).bind(conversation_id){% if owner.is_some() %}.bind(owner.id()){% endif %};
            let updated = update.execute(&self.pool).await?.rows_affected();
            Ok(updated > 0)
        })
        .await
    }

    pub(crate) async fn get_run(&self, {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %}, conversation_id: Uuid) -> Result<Option<Run>> {
        const SELECT: &str = concat!("SELECT ", run_columns!(), r#"
            FROM {{ runs }} AS r
            WHERE {% if let Some(owner) = owner %}r.{{ owner }} = $2 AND {% endif %}r.conversation_id = $1::uuid"#);
{%- if group.is_some() %}

        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}

        let query = sqlx::query(SELECT).bind(conversation_id){% if owner.is_some() %}.bind(owner.id()){% endif %};
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
