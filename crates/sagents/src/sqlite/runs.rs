//! The statements for runs.

use std::time::Duration;

use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use super::Driver;
use crate::rows::{run, run_with_owner};
use crate::statement::statements;
use crate::store::runs::Begin;
use crate::{Error, Owner, Result, Run, RunStatus, Timestamp};

statements! {
    pub(super) struct Runs {
        current: "
            SELECT {run_columns} FROM {runs} AS r
            WHERE r.{owner} = $2 AND r.conversation_id = $1",
        begin: "
            INSERT INTO {runs} AS r
                ({owner}, conversation_id, run_id, holder, status, cancel_requested, started_at, seen_at)
            SELECT c.{owner}, c.id, $2, $3, 'running', FALSE, $4, $4
            FROM {conversations} AS c
            WHERE c.{owner} = $6 AND c.id = $1
            ON CONFLICT ({owner}, conversation_id) DO UPDATE
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
            RETURNING {run_columns}",
        change: "
            UPDATE {runs} AS r
            SET seen_at = $3, status = coalesce($4, r.status),
                waiting_for = CASE WHEN $4 IS NULL THEN r.waiting_for ELSE $5 END
            WHERE r.{owner} = $6 AND r.conversation_id = $1 AND r.run_id = $2
              AND r.status IN ('running', 'waiting')
            RETURNING cancel_requested",
        request_cancel: "
            UPDATE {runs} AS r SET cancel_requested = TRUE
            WHERE r.{owner} = $2 AND r.conversation_id = $1
              AND r.status IN ('running', 'waiting')",
        unfinished: "
            SELECT {run_columns} FROM {runs} AS r
            WHERE r.{owner} = $1 AND r.status IN ('running', 'waiting')
            ORDER BY r.started_at DESC LIMIT 1000",
    }
}

statements! {
    /// Housekeeping, for all owners.
    pub(super) struct AbandonedRuns {
        abandoned: "
            SELECT r.{owner} AS owner, c.scope ->> '$.type' AS owner_kind, {run_columns}
            FROM {runs} AS r
            JOIN {conversations} AS c ON c.{owner} = r.{owner} AND c.id = r.conversation_id
            WHERE r.status IN ('running', 'waiting')
              AND (r.status = 'running' AND r.seen_at < $1
                   OR r.status = 'waiting' AND coalesce(r.waiting_for, 'null') = 'null')
            ORDER BY r.seen_at LIMIT $2",
    }
}

statements! {
    pub(super) struct GroupRuns {
        unfinished: "
            SELECT {run_columns} FROM {runs} AS r
            WHERE r.{owner} IN (SELECT g.{member} FROM {group_table} AS g WHERE g.{group} = $1)
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
        let now = Timestamp::now();
        let mut tx = self.begin().await?;
        let begun = sqlx::query(&self.sql.runs.begin)
            .bind(conversation_id)
            .bind(run_id)
            .bind(holder)
            .bind(now)
            .bind(now - lease)
            .bind(owner.key())
            .fetch_optional(&mut *tx)
            .await?;
        if let Some(row) = begun {
            tx.commit().await?;
            return Ok(Begin::Started(run(&row)?));
        }
        // In the same transaction, so that it hasn't ended in between.
        let current = sqlx::query(&self.sql.runs.current).bind(conversation_id).bind(owner.key());
        let current = current.fetch_optional(&mut *tx).await?;
        tx.commit().await?;
        let current = current.as_ref().map(run).transpose()?;
        current.map(Begin::Busy).ok_or(Error::NotFound)
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
        let mut tx = self.begin().await?;
        let cancel_requested = sqlx::query_scalar(&self.sql.runs.change)
            .bind(conversation_id)
            .bind(run_id)
            .bind(Timestamp::now())
            .bind(status.map(RunStatus::as_str))
            .bind(waiting_for.map(Json))
            .bind(owner.key())
            .fetch_optional(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(cancel_requested)
    }

    pub(crate) async fn request_cancel(&self, owner: &Owner, conversation_id: Uuid) -> Result<bool> {
        let mut tx = self.begin().await?;
        let update = sqlx::query(&self.sql.runs.request_cancel).bind(conversation_id).bind(owner.key());
        let updated = update.execute(&mut *tx).await?.rows_affected();
        tx.commit().await?;
        Ok(updated > 0)
    }

    pub(crate) async fn abandoned_runs(&self, lease: Duration, limit: u32) -> Result<Vec<(Owner, Run)>> {
        let query = sqlx::query(&self.sql.abandoned_runs.abandoned).bind(Timestamp::now() - lease);
        let rows = query.bind(i64::from(limit)).fetch_all(&self.pool).await?;
        Ok(rows.iter().map(run_with_owner).collect::<sqlx::Result<_>>()?)
    }
}
