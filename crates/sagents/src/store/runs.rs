//! The calls for runs: a conversation has at most one agent that works on it.

use std::time::Duration;

use tracing::instrument;
use uuid::Uuid;

use super::{Store, with_driver};
use crate::values::{clean_text, clean_value};
use crate::{BeginRun, ClaimedRun, Error, Owner, OwnerScope, Reach, Result, Run, RunSignal, RunStatus, RunUpdate};

/// What a driver finds when a run should begin.
pub(crate) enum Begin {
    Started(Run),
    Busy(Run),
    /// A concurrent caller was faster. The next attempt sees its run.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "SQLite has one writer at a time"))]
    Raced,
}

impl Store {
    /// Begins a run, unless another one was [renewed](RunUpdate::Renew) within the lease.
    ///
    /// A run that waits for a person doesn't stop another one from beginning. With the id of the current run, the call
    /// continues that run, so you can repeat it. `holder` tells people who runs the agent, for example a host name and a
    /// process id.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id, %run_id))]
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

    /// Renews, parks or ends a run, and tells whether the run should go on. If it isn't the current run, or has ended
    /// before, nothing changes, and the signal is [`RunSignal::Lost`].
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, [`Error::Invalid`] if the run doesn't
    /// [end](RunUpdate::End) with that status.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id, %run_id))]
    pub async fn update_run(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        run_id: Uuid,
        update: RunUpdate,
    ) -> Result<RunSignal> {
        let owner = scope.owner()?;
        let (status, waiting_for) = match update {
            RunUpdate::Renew => (None, None),
            RunUpdate::Wait(waiting_for) => (Some(RunStatus::Waiting), Some(clean_value(waiting_for)?)),
            RunUpdate::End(status) if status.is_ended() => (Some(status), None),
            RunUpdate::End(status) => {
                return Err(Error::Invalid(format!("a run doesn't end as {}", status.as_str())));
            }
        };
        let is_cancelled = with_driver!(self, driver => {
            driver.change_run(&owner, conversation_id, run_id, status, waiting_for.as_ref()).await?
        });
        match is_cancelled {
            Some(true) => Ok(RunSignal::CancelRequested),
            Some(false) => Ok(RunSignal::Go),
            None => {
                self.must_exist(&owner, conversation_id).await?;
                Ok(RunSignal::Lost)
            }
        }
    }

    /// Asks the process that runs the agent to stop; it learns of that when it renews its run. Returns whether a run is
    /// in progress.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
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
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn get_run(&self, scope: &(impl OwnerScope + ?Sized), conversation_id: Uuid) -> Result<Option<Run>> {
        let owner = self.owner_of(scope, conversation_id).await?;
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
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix()))]
    pub async fn unfinished_runs(&self, scope: &(impl OwnerScope + ?Sized)) -> Result<Vec<Run>> {
        match scope.reach()? {
            Reach::Owner(owner) => with_driver!(self, driver => driver.unfinished_runs(&owner).await),
            Reach::Group(group) => with_driver!(self, driver => driver.unfinished_runs_of_group(&group).await),
        }
    }

    /// Claims up to `limit` runs whose process ended before the run did, the longest abandoned first, and returns them
    /// with the owners of their conversations. A run is abandoned if nobody renewed it within the lease, or if its process
    /// handed it over when it shut down.
    ///
    /// This is housekeeping, so it works without a scope, on all owners' runs. Each run is returned to one caller in all
    /// processes, as a new run of that caller that is [resumed](Run::resumed). Continue it with
    /// [`AgentSession::begin_claimed_run`](crate::session::AgentSession::begin_claimed_run) within the lease; otherwise
    /// it's abandoned again, and the next call returns it.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database fails. Runs that were claimed until then are abandoned after the lease.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix()))]
    pub async fn claim_abandoned_runs(&self, holder: &str, lease: Duration, limit: u32) -> Result<Vec<ClaimedRun>> {
        let abandoned = with_driver!(self, driver => driver.abandoned_runs(lease, limit).await?);
        let mut claimed = Vec::new();
        for (owner, run) in abandoned {
            match self.begin_run(&owner, run.conversation_id, Uuid::now_v7(), holder, lease).await {
                Ok(BeginRun::Started(run)) => claimed.push(ClaimedRun { owner, run }),
                // Another process was faster, or the conversation was deleted.
                Ok(BeginRun::Busy(_)) | Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(claimed)
    }

    /// Tells a row that isn't there from a conversation that isn't there.
    pub(crate) async fn must_exist(&self, owner: &Owner, conversation_id: Uuid) -> Result<()> {
        let exists = with_driver!(self, driver => driver.conversation_exists(owner, conversation_id).await?);
        if exists { Ok(()) } else { Err(Error::NotFound) }
    }
}
