//! The right to run the agent of a conversation.

use std::fmt;

use uuid::Uuid;

use super::super::persistence::SessionPersistence;
use super::super::run::Run;
use super::{AgentSession, CancelToken};

/// A run of the agent that belongs to the caller; see [`AgentSession::begin_run`].
///
/// The session renews it while the guard exists. A guard that is dropped ends the run as
/// [failed](super::super::RunStatus::Failed), unless the session was told before that the agent
/// [completed](AgentSession::completed), failed or was cancelled, or that it
/// [waits](AgentSession::interrupted) for a person: such a run goes on waiting.
#[must_use = "a guard that is dropped ends its run"]
pub struct RunGuard<P: SessionPersistence> {
    session: AgentSession<P>,
    run_id: Uuid,
    token: CancelToken,
    /// Whether it is known that the run began, or that it did not.
    is_known: bool,
    resumed: bool,
}

impl<P: SessionPersistence> RunGuard<P> {
    /// For a run that is about to begin.
    pub(super) fn new(session: &AgentSession<P>, run_id: Uuid) -> Self {
        Self {
            token: session.run_token(run_id),
            session: session.clone(),
            run_id,
            is_known: false,
            resumed: false,
        }
    }

    pub(super) fn started(mut self, run: &Run) -> Self {
        self.resumed = run.resumed;
        self
    }

    /// The run began, or did not.
    pub(super) fn known(mut self) -> Self {
        self.token = self.session.run_token(self.run_id);
        self.is_known = true;
        self
    }

    /// Differs for every run.
    #[must_use]
    pub fn run_id(&self) -> Uuid {
        self.run_id
    }

    /// Whether this run follows one whose process ended before the run did, and no run since has
    /// finished or waited for a person. Tool calls that were executing then have an unknown outcome; see
    /// [`AgentSession::seal_calls`].
    #[must_use]
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Tells the agent when it has to stop.
    #[must_use]
    pub fn token(&self) -> &CancelToken {
        &self.token
    }
}

impl<P: SessionPersistence> Drop for RunGuard<P> {
    fn drop(&mut self) {
        self.session.release_run(self.run_id, self.is_known);
    }
}

impl<P: SessionPersistence> fmt::Debug for RunGuard<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunGuard")
            .field("run_id", &self.run_id)
            .field("is_cancelled", &self.token.is_cancelled())
            .finish_non_exhaustive()
    }
}
