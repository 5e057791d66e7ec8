//! The statements for runs. Times are those of the server, so that the clocks of processes may differ.

use std::time::Duration;

use serde_json::Value;
use sqlx::Row as _;
use uuid::Uuid;

use super::errors::{FOREIGN_KEY_VIOLATION, code};
use super::{Driver, retry};
use crate::rows::{run, run_with_owner};
use crate::statement::statements;
use crate::store::runs::Begin;
use crate::{Error, Owner, Result, Run, RunStatus};

statements! {
    pub(super) struct Runs {
        /// Citus takes no `now()` in `CASE`, but a subquery.
        begin: "
            WITH taken AS (
                UPDATE {runs} AS r
                SET run_id = $2::uuid, holder = $3::text, status = 'running', waiting_for = NULL,
                    cancel_requested = (r.run_id = $2::uuid AND r.cancel_requested),
                    resumed = CASE
                        WHEN r.run_id = $2::uuid THEN r.resumed
                        WHEN r.status = 'waiting' THEN coalesce(r.waiting_for::text, 'null') = 'null'
                        WHEN r.status IN ('failed', 'cancelled') THEN r.resumed
                        ELSE r.status = 'running'
                    END,
                    started_at = CASE WHEN r.run_id = $2::uuid THEN r.started_at ELSE (SELECT now()) END,
                    seen_at = now()
                WHERE r.{owner} = $5::{owner_type} AND r.conversation_id = $1::uuid
                  AND (r.run_id = $2::uuid OR r.status <> 'running'
                       OR r.seen_at < now() - make_interval(secs => $4::double precision))
                RETURNING {run_columns}
            ), begun AS (
                INSERT INTO {runs} AS r
                    ({owner}, conversation_id, run_id, holder, status, started_at, seen_at)
                SELECT c.{owner}, c.id, $2::uuid, $3::text, 'running', now(), now()
                FROM {conversations} AS c
                WHERE c.{owner} = $5::{owner_type} AND c.id = $1::uuid AND NOT EXISTS (
                    SELECT FROM {runs} AS r
                    WHERE r.{owner} = $5::{owner_type} AND r.conversation_id = $1::uuid
                )
                RETURNING {run_columns}
            )
            SELECT TRUE AS is_begun, TRUE AS is_free, {run_columns} FROM taken AS r
            UNION ALL
            SELECT TRUE, TRUE, {run_columns} FROM begun AS r
            UNION ALL
            SELECT FALSE,
                   (r.run_id = $2::uuid OR r.status <> 'running'
                    OR r.seen_at < now() - make_interval(secs => $4::double precision)),
                   {run_columns}
            FROM {runs} AS r
            WHERE r.{owner} = $5::{owner_type} AND r.conversation_id = $1::uuid
              AND NOT EXISTS (SELECT FROM taken)",
        change: "
            UPDATE {runs} AS r
            SET seen_at = now(), status = coalesce($3::text, r.status),
                waiting_for = CASE WHEN $3::text IS NULL THEN r.waiting_for ELSE $4::text::json END
            WHERE r.{owner} = $5::{owner_type} AND r.conversation_id = $1::uuid
              AND r.run_id = $2::uuid AND r.status IN ('running', 'waiting')
            RETURNING r.cancel_requested",
        request_cancel: "
            UPDATE {runs} AS r SET cancel_requested = TRUE
            WHERE r.{owner} = $2::{owner_type} AND r.conversation_id = $1::uuid
              AND r.status IN ('running', 'waiting')",
        current: "
            SELECT {run_columns} FROM {runs} AS r
            WHERE r.{owner} = $2::{owner_type} AND r.conversation_id = $1::uuid",
        unfinished: "
            SELECT {run_columns} FROM {runs} AS r
            WHERE r.{owner} = $1::{owner_type} AND r.status IN ('running', 'waiting')
            ORDER BY r.started_at DESC LIMIT 1000",
    }
}

statements! {
    /// Housekeeping, for all owners.
    pub(super) struct AbandonedRuns {
        abandoned: "
            SELECT r.{owner} AS owner, c.scope ->> 'type' AS owner_kind, {run_columns}
            FROM {runs} AS r
            JOIN {conversations} AS c ON c.{owner} = r.{owner} AND c.id = r.conversation_id
            WHERE r.status IN ('running', 'waiting')
              AND (r.status = 'running' AND r.seen_at < now() - make_interval(secs => $1::double precision)
                   OR r.status = 'waiting' AND coalesce(r.waiting_for::text, 'null') = 'null')
            ORDER BY r.seen_at LIMIT $2::bigint",
    }
}

statements! {
    pub(super) struct GroupRuns {
        unfinished: "
            SELECT {run_columns} FROM {runs} AS r
            WHERE r.{owner} IN (SELECT g.{member} FROM {group_table} AS g WHERE g.{group} = $1::{group_type})
              AND r.status IN ('running', 'waiting')
            ORDER BY r.started_at DESC LIMIT 1000",
    }
}

impl Driver {
    pub(crate) async fn begin_run(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        run_id: Uuid,
        holder: &str,
        lease: Duration,
    ) -> Result<Begin> {
        let row = retry(|| async {
            let query = sqlx::query(&self.sql.runs.begin)
                .bind(conversation_id)
                .bind(run_id)
                .bind(holder)
                .bind(seconds(lease))
                .bind(owner.key());
            match query.fetch_optional(&self.pool).await {
                // The conversation was deleted in between.
                Err(error) if code(&error).as_deref() == Some(FOREIGN_KEY_VIOLATION) => Err(Error::NotFound),
                row => Ok(row?),
            }
        })
        .await?;
        let Some(row) = row else {
            // Behind a connection to a worker of Citus, the loser of a race finds no row.
            let exists = self.conversation_exists(owner, conversation_id).await?;
            return if exists { Ok(Begin::Raced) } else { Err(Error::NotFound) };
        };
        let current = run(&row)?;
        Ok(if row.try_get("is_begun")? {
            Begin::Started(current)
        } else if row.try_get("is_free")? {
            Begin::Raced
        } else {
            Begin::Busy(current)
        })
    }

    /// Renews a run that hasn't ended, and changes its status if there is another one. Returns whether it should stop, or
    /// nothing if there is no such run.
    pub(crate) async fn change_run(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        run_id: Uuid,
        status: Option<RunStatus>,
        waiting_for: Option<&Value>,
    ) -> Result<Option<bool>> {
        let waiting_for = waiting_for.map(Value::to_string);
        retry(|| async {
            let cancel_requested = sqlx::query_scalar(&self.sql.runs.change)
                .bind(conversation_id)
                .bind(run_id)
                .bind(status.map(RunStatus::as_str))
                .bind(&waiting_for)
                .bind(owner.key())
                .fetch_optional(&self.pool)
                .await?;
            Ok(cancel_requested)
        })
        .await
    }

    pub(crate) async fn request_cancel(&self, owner: &Owner, conversation_id: Uuid) -> Result<bool> {
        retry(|| async {
            let update = sqlx::query(&self.sql.runs.request_cancel).bind(conversation_id).bind(owner.key());
            let updated = update.execute(&self.pool).await?.rows_affected();
            Ok(updated > 0)
        })
        .await
    }

    pub(crate) async fn abandoned_runs(&self, lease: Duration, limit: u32) -> Result<Vec<(Owner, Run)>> {
        let query = sqlx::query(&self.sql.abandoned_runs.abandoned).bind(seconds(lease));
        let rows = query.bind(i64::from(limit)).fetch_all(&self.pool).await?;
        Ok(rows.iter().map(run_with_owner).collect::<sqlx::Result<_>>()?)
    }
}

/// A longer time doesn't fit into an interval.
fn seconds(lease: Duration) -> f64 {
    lease.as_secs_f64().min(1e9)
}
