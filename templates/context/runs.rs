//! The calls for runs: a conversation has at most one agent that works on it.

use std::time::Duration;

use serde_json::Value;
use tracing::instrument;
use uuid::Uuid;

use super::values::{clean_text, clean_value};
use super::{BeginRun, {{ context }}, Error, OwnerScope, Result, Run, RunSignal, RunStatus};

impl {{ context }} {
    /// Begins a run, unless another one was [renewed](Self::renew_run) within the lease. A run that
    /// waits for a person does not stop another one from beginning: who got the decision goes on.
    /// With the id of the current run, the call goes on with it, so it can be repeated. `holder` tells
    /// people who runs it, for example a host and a process id.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation.
    #[instrument(level = "debug", skip_all, fields(%conversation_id, %run_id))]
    pub async fn begin_run(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        run_id: Uuid,
        holder: &str,
        lease: Duration,
    ) -> Result<BeginRun> {
        let owner = scope.owner()?;
        self.store.begin_run(&owner, conversation_id, run_id, &clean_text(holder), lease).await
    }

    /// Renews the lease of a run, and tells whether it goes on.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation.
    #[instrument(level = "debug", skip_all, fields(%conversation_id, %run_id))]
    pub async fn renew_run(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        run_id: Uuid,
    ) -> Result<RunSignal> {
        self.change_run(scope, conversation_id, run_id, None).await
    }

    /// The run waits for a person, who has to decide this. It goes on with
    /// [`begin_run`](Self::begin_run), in any process.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, [`Error::Invalid`] if the value is
    /// nested too deeply.
    #[instrument(level = "debug", skip_all, fields(%conversation_id, %run_id))]
    pub async fn wait_run(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        run_id: Uuid,
        waiting_for: &Value,
    ) -> Result<RunSignal> {
        let change = (RunStatus::Waiting, Some(clean_value(waiting_for.clone())?));
        self.change_run(scope, conversation_id, run_id, Some(change)).await
    }

    /// The run ended. If it is not the current one, or ended before, nothing changes.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, [`Error::Invalid`] if the status is
    /// not one of a run that ended.
    #[instrument(level = "debug", skip_all, fields(%conversation_id, %run_id, status = status.as_str()))]
    pub async fn end_run(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        run_id: Uuid,
        status: RunStatus,
    ) -> Result<()> {
        if !status.is_ended() {
            return Err(Error::Invalid(format!("a run does not end as {}", status.as_str())));
        }
        let change = Some((status, None));
        self.change_run(scope, conversation_id, run_id, change).await.map(drop)
    }

    /// Asks the process that runs the agent to stop; it learns it when it renews its run. Returns
    /// whether there is a run that has not ended.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn request_cancel(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
    ) -> Result<bool> {
        let owner = scope.owner()?;
        let is_asked = self.store.request_cancel(&owner, conversation_id).await?;
        if !is_asked {
            self.must_exist(&owner, conversation_id).await?;
        }
        Ok(is_asked)
    }

    /// The current or the last run of a conversation.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn get_run(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
    ) -> Result<Option<Run>> {
        let run = self.store.get_run(&scope.reach()?, conversation_id).await?;
        if run.is_none() {
            self.must_exist(scope, conversation_id).await?;
        }
        Ok(run)
    }

    /// The runs that have not ended, newest first, at most a thousand. After a restart, those that are
    /// [abandoned](Run::is_abandoned) were left in the middle, and those that wait can be decided.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database fails.
    #[instrument(level = "debug", skip_all)]
    pub async fn unfinished_runs(&self, scope: &(impl OwnerScope + ?Sized)) -> Result<Vec<Run>> {
        self.store.unfinished_runs(&scope.reach()?).await
    }

    async fn change_run(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        run_id: Uuid,
        change: Option<(RunStatus, Option<Value>)>,
    ) -> Result<RunSignal> {
        let owner = scope.owner()?;
        match self.store.change_run(&owner, conversation_id, run_id, change.as_ref()).await? {
            Some(true) => Ok(RunSignal::CancelRequested),
            Some(false) => Ok(RunSignal::Go),
            None => {
                self.must_exist(&owner, conversation_id).await?;
                Ok(RunSignal::Lost)
            }
        }
    }

    async fn must_exist(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
    ) -> Result<()> {
        self.store.get_conversation(&scope.reach()?, conversation_id).await.map(drop)
    }
}
