//! Runs of the agent, as calls on a session, and the right to run it.

use std::fmt;

use serde_json::Value;
use uuid::Uuid;

use super::state::SessionState;
use super::writes::{PendingWrite, Written};
use super::{AgentSession, CancelToken, Result, SessionError};
use crate::{BeginRun, Lifecycle, Run, RunStatus};

impl AgentSession {
    /// Begins a run of the agent, unless one is in progress in this or another process, which is returned then. A run
    /// that waits for a person, or whose process was killed, is taken over; see [`RunGuard::is_resumed`].
    ///
    /// When the run has begun, the session prepares the agent state for it:
    ///
    /// - It [reloads](Self::reload) the stored state, because another process may have saved it. Unsaved
    ///   [changes](Self::change) are saved before.
    /// - It seals the tool calls that an earlier run left dangling. A call that was started and has no result in the agent
    ///   state gets its stored result, or an error that says that the outcome is unknown: providers refuse a history in
    ///   which a call has no result. Tools that [may run twice](super::SessionOptions::rerun_tools) are pending again
    ///   instead. See [`RunGuard::sealed_tool_calls`].
    ///
    /// Calls that wait for a decision don't change. Use [`undecided_tool_calls`](crate::State::undecided_tool_calls) to
    /// tell whether the run has to [wait](Self::wait_run) again.
    ///
    /// It waits while failures are transient.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] if the failure is permanent. [`SessionError::Conflict`] if another process saved the
    /// state, and a reload would lose changes that [`OnConflict::Report`](super::OnConflict::Report) protects. The run
    /// has ended as failed then.
    pub async fn begin_run(&self) -> Result<BeginRun<RunGuard>> {
        self.begin_run_as(Uuid::now_v7()).await
    }

    /// As [`begin_run`](Self::begin_run), for a run of this conversation that this process
    /// [claimed](crate::Store::claim_abandoned_runs). It's busy if the claim is older than the lease and another process
    /// was faster.
    ///
    /// # Errors
    ///
    /// As [`begin_run`](Self::begin_run).
    pub async fn begin_claimed_run(&self, run: &Run) -> Result<BeginRun<RunGuard>> {
        self.begin_run_as(run.id).await
    }

    async fn begin_run_as(&self, run_id: Uuid) -> Result<BeginRun<RunGuard>> {
        self.needs_rows()?;
        let guard = RunGuard::new(self, run_id);
        let begun = self.ask(
            |session, reply| {
                let begin = PendingWrite::BeginRun(run_id);
                session.writes.push(begin, Some(reply));
            },
            |written| match written {
                Written::Run(begun) => Some(begun),
                _ => None,
            },
        );
        let begun = begun.await?;
        let mut guard = guard.known();
        Ok(match begun {
            BeginRun::Started(run) => {
                self.refresh().await?;
                guard.sealed = self.seal_tool_calls(run_id).await?;
                BeginRun::Started(guard.started(&run))
            }
            BeginRun::Busy(run) => BeginRun::Busy(run),
        })
    }

    /// Loads the stored state, without losing changes unless the options allow it.
    async fn refresh(&self) -> Result<()> {
        let loses_changes = self.session.state().loses_changes();
        if loses_changes {
            match self.save().await {
                Err(SessionError::Conflict { .. }) if self.session.state().can_reload() => {}
                saved => drop(saved?),
            }
        }
        drop(self.reload().await?);
        Ok(())
    }

    /// Ends the run, because the agent's work is complete.
    ///
    /// # Errors
    ///
    /// [`SessionError::Undecided`] if tool calls still have an interrupt in place of a result: nothing is changed, and
    /// the run goes on. It has to [wait](Self::wait_run), or the calls need [results](Self::add_tool_result).
    /// [`SessionError::Ended`] if the session has ended.
    pub fn complete_run(&self) -> Result<()> {
        self.update(SessionState::complete_run)?
    }

    /// Ends the run, because the agent failed.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn fail_run(&self) -> Result<()> {
        self.update(|session| session.end_run(RunStatus::Failed, Lifecycle::Error))
    }

    /// Ends the run, because somebody [cancelled](Self::request_cancel) it and the agent has stopped.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn acknowledge_cancel(&self) -> Result<()> {
        self.update(|session| session.end_run(RunStatus::Cancelled, Lifecycle::Cancel))
    }

    /// Lets the run wait for a person. The data is kept in [`State::interrupt_data`](crate::State::interrupt_data),
    /// also by a session that starts after a restart, until the run [continues](Self::continue_run) or ends. The
    /// conversation is marked as interrupted, and the run as [waiting](RunStatus::Waiting). Null is stored as an empty
    /// object.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn wait_run(&self, data: Value) -> Result<()> {
        self.update(|session| session.wait_run(data))
    }

    /// Lets a run that [waited](Self::wait_run) continue. If this process has no run, the one that waits ends.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn continue_run(&self) -> Result<()> {
        self.update(SessionState::continue_run)
    }

    /// Asks the agent to stop, in whichever process it runs: its [token](RunGuard::token) is cancelled, in another
    /// process when that renews the run. Returns whether there's a run that hasn't ended.
    ///
    /// It waits while failures are transient.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] if the failure is permanent.
    pub async fn request_cancel(&self) -> Result<bool> {
        self.ask(
            |session, reply| {
                let cancel = PendingWrite::RequestCancel(session.runs.cancel());
                session.writes.push(cancel, Some(reply));
            },
            |written| match written {
                Written::IsRunning(is_running) => Some(is_running),
                _ => None,
            },
        )
        .await
    }
}

/// A run of the agent that belongs to the caller; see [`AgentSession::begin_run`].
///
/// The session renews it while the guard exists. Dropping the guard ends the run as [failed](RunStatus::Failed), unless
/// it has ended before, or [waits](AgentSession::wait_run) for a person: such a run goes on waiting.
#[must_use = "dropping a guard ends its run"]
pub struct RunGuard {
    session: AgentSession,
    run_id: Uuid,
    token: CancelToken,
    /// Whether it's known that the run began, or that it didn't.
    is_known: bool,
    resumed: bool,
    sealed: Vec<String>,
}

impl RunGuard {
    /// For a run that is about to begin.
    fn new(session: &AgentSession, run_id: Uuid) -> Self {
        Self {
            token: session.run_token(run_id),
            session: session.clone(),
            run_id,
            is_known: false,
            resumed: false,
            sealed: Vec::new(),
        }
    }

    fn started(mut self, run: &Run) -> Self {
        self.resumed = run.resumed;
        self
    }

    /// The run began, or didn't.
    fn known(mut self) -> Self {
        self.token = self.session.run_token(self.run_id);
        self.is_known = true;
        self
    }

    /// Differs for every run.
    #[must_use]
    pub fn run_id(&self) -> Uuid {
        self.run_id
    }

    /// Whether this run follows one whose process ended before the run did, and no run since has finished or waited for a
    /// person.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// The ids of the tool calls that an earlier run left dangling, and that got a result when this one began.
    #[must_use]
    pub fn sealed_tool_calls(&self) -> &[String] {
        &self.sealed
    }

    /// Tells the agent when it has to stop.
    #[must_use]
    pub fn token(&self) -> &CancelToken {
        &self.token
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.session.release_run(self.run_id, self.is_known);
    }
}

impl fmt::Debug for RunGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunGuard")
            .field("run_id", &self.run_id)
            .field("is_cancelled", &self.token.is_cancelled())
            .finish_non_exhaustive()
    }
}
