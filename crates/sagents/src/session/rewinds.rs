//! Rewinds of the conversation, by a caller of the session.

use tokio::time::Instant;

use super::Result;
use super::state::SessionState;
use super::task::Session;
use crate::{Cut, Loaded, Point};

/// A rewind that is stored.
pub(super) struct RewoundState {
    pub cut: Cut,
    /// The agent state that's left, unless it couldn't be loaded.
    pub loaded: Option<Loaded>,
}

impl Session {
    /// Rewinds the conversation, and loads what's left.
    pub async fn rewind(&self, to: Point) -> Result<RewoundState> {
        let storage = &self.registry.storage;
        let cut = storage.rewind(&self.owner, self.context.conversation_id, to).await?;
        let loaded = storage.load_state(&self.owner, &self.context).await.ok();
        Ok(RewoundState { cut, loaded })
    }
}

impl SessionState {
    /// Goes on with the stored state. This takes back messages that were displayed and not saved, too. Messages that
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
