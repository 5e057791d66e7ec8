//! The calls for runs: a conversation has at most one agent that works on it.

use std::time::Duration;

use serde_json::Value;
use tracing::instrument;
use uuid::Uuid;

use super::{Store, with_driver};
use crate::values::{clean_text, clean_value};
use crate::{BeginRun, Error, Owner, OwnerScope, Reach, Result, Run, RunSignal, RunStatus};

/// What a driver finds when a run should begin.
pub(crate) enum Begin {
    Started(Run),
    Busy(Run),
    /// A concurrent caller was faster. The next attempt sees its run.
    Raced,
}

impl Store {
    /// Begins a run, unless another one was [renewed](Self::renew_run) within the lease.
    ///
    /// A run that waits for a person doesn't stop another one from beginning. With the id of the current run, the call
    /// continues that run, so you can repeat it. `holder` tells people who runs the agent, for example a host name and a
    /// process id.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(gen_ai.conversation.id = %conversation_id, %run_id))]
    pub async fn begin_run(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        run_id: Uuid,
        holder: &str,
        lease: Duration,
    ) -> Result<BeginRun> {
        let (owner, holder) = (scope.owner()?, clean_text(holder));
        loop {
            let begun =
                with_driver!(self, driver => driver.begin_run(&owner, conversation_id, run_id, &holder, lease).await?);
            match begun {
                Begin::Started(run) => return Ok(BeginRun::Started(run)),
                Begin::Busy(run) => return Ok(BeginRun::Busy(run)),
                Begin::Raced => {}
            }
        }
    }

    /// Renews the lease of a run, and tells whether the run should go on.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(gen_ai.conversation.id = %conversation_id, %run_id))]
    pub async fn renew_run(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        run_id: Uuid,
    ) -> Result<RunSignal> {
        self.change_run(&scope.owner()?, conversation_id, run_id, None, None).await
    }

    /// Marks a run as waiting for a person, who has to decide `waiting_for`. Any process continues it with
    /// [`begin_run`](Self::begin_run).
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, [`Error::Invalid`] if the value is nested too deeply.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(gen_ai.conversation.id = %conversation_id, %run_id))]
    pub async fn wait_run(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        run_id: Uuid,
        waiting_for: &Value,
    ) -> Result<RunSignal> {
        let waiting_for = clean_value(waiting_for.clone())?;
        self.change_run(&scope.owner()?, conversation_id, run_id, Some(RunStatus::Waiting), Some(&waiting_for)).await
    }

    /// Ends a run. If it isn't the current run, or has ended before, nothing changes.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, [`Error::Invalid`] if `status` isn't the status of a
    /// run that has ended.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(gen_ai.conversation.id = %conversation_id, %run_id, status = status.as_str()))]
    pub async fn end_run(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        run_id: Uuid,
        status: RunStatus,
    ) -> Result<()> {
        if !status.is_ended() {
            return Err(Error::Invalid(format!("a run doesn't end as {}", status.as_str())));
        }
        self.change_run(&scope.owner()?, conversation_id, run_id, Some(status), None).await.map(drop)
    }

    /// Asks the process that runs the agent to stop; it learns of that when it renews its run. Returns whether a run is
    /// in progress.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(gen_ai.conversation.id = %conversation_id))]
    pub async fn request_cancel(&self, scope: &(impl OwnerScope + ?Sized), conversation_id: Uuid) -> Result<bool> {
        let owner = scope.owner()?;
        let is_asked = with_driver!(self, driver => driver.request_cancel(&owner, conversation_id).await?);
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
    #[instrument(level = "debug", target = "sagents", skip_all, fields(gen_ai.conversation.id = %conversation_id))]
    pub async fn get_run(&self, scope: &(impl OwnerScope + ?Sized), conversation_id: Uuid) -> Result<Option<Run>> {
        let owner = self.reached(scope, conversation_id).await?;
        let run = with_driver!(self, driver => driver.get_run(&owner, conversation_id).await?);
        if run.is_none() {
            self.must_exist(&owner, conversation_id).await?;
        }
        Ok(run)
    }

    /// The runs that haven't ended, newest first, at most a thousand. After a restart, runs that are
    /// [abandoned](Run::is_abandoned) were killed in the middle, and runs that wait can be decided.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database fails.
    #[instrument(level = "debug", target = "sagents", skip_all)]
    pub async fn unfinished_runs(&self, scope: &(impl OwnerScope + ?Sized)) -> Result<Vec<Run>> {
        match scope.reach()? {
            Reach::Owner(owner) => with_driver!(self, driver => driver.unfinished_runs(&owner).await),
            Reach::Group(group) => with_driver!(self, driver => driver.unfinished_runs_of_group(&group).await),
        }
    }

    async fn change_run(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        run_id: Uuid,
        status: Option<RunStatus>,
        waiting_for: Option<&Value>,
    ) -> Result<RunSignal> {
        let is_cancelled =
            with_driver!(self, driver => driver.change_run(owner, conversation_id, run_id, status, waiting_for).await?);
        match is_cancelled {
            Some(true) => Ok(RunSignal::CancelRequested),
            Some(false) => Ok(RunSignal::Go),
            None => {
                self.must_exist(owner, conversation_id).await?;
                Ok(RunSignal::Lost)
            }
        }
    }

    /// Tells a row that isn't there from a conversation that isn't there.
    pub(crate) async fn must_exist(&self, owner: &Owner, conversation_id: Uuid) -> Result<()> {
        let exists = with_driver!(self, driver => driver.conversation_exists(owner, conversation_id).await?);
        if exists { Ok(()) } else { Err(Error::NotFound) }
    }
}
