//! Rewinds of the conversation, by a caller of the session.

use tokio::time::Instant;

use super::super::branch::{Cut, Point};
use super::super::persistence::{AgentPersistence, Loaded, SessionPersistence};
use super::SessionError;
use super::state::SessionState;
use super::task::Session;

/// A rewind that is stored.
pub(super) struct RewoundState {
    pub cut: Cut,
    /// The agent state that is left, unless it could not be loaded.
    pub loaded: Option<Loaded>,
}

impl<P: SessionPersistence> Session<P> {
    /// Rewinds the conversation, and loads what is left.
    pub async fn rewind(
        &self,
        to: Point,
    ) -> Result<RewoundState, SessionError<<P as AgentPersistence>::Error>> {
        let storage = &self.registry.persistence;
        let cut = storage.rewind(&self.scope, &self.context, to);
        let cut = self.in_time(cut).await?;
        let loaded = storage.load_state(&self.scope, &self.context);
        let loaded = self.in_time(loaded).await.ok();
        Ok(RewoundState { cut, loaded })
    }
}

impl<M, E> SessionState<M, E> {
    /// Goes on with the stored state. What was displayed and not saved is taken back too; messages that
    /// are still to be displayed come after the cut.
    pub fn rewound(&mut self, loaded: Option<Loaded>, now: Instant) {
        self.edits.forget_shown();
        match loaded {
            Some(Loaded::Nothing) => {}
            Some(loaded) => drop(self.replace(loaded, now)),
            None => self.is_stale = true,
        }
    }
}
