//! Conflicts with other processes, and the reloads that end them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::state::SessionState;
use super::storage::Failure;
use super::writes::{PendingWrite, Reply, reply};
use super::{OnConflict, SessionError};
use crate::{Delivery, Expect, Loaded, Revision, State};

impl SessionState {
    /// Replaces the agent state with the stored one, and replies with the old one if changes get lost.
    pub fn reload(&mut self, reply: Reply<Option<Arc<State>>>) {
        self.waiting_reloads.push(reply);
        self.skip_backoff();
    }

    /// Takes back the messages that were sent and can't be saved, unless a reload may help.
    pub fn refuse_sent(&mut self) {
        let Some(error) = self.blocked_by.clone() else {
            return;
        };
        if self.has_conflict() && self.can_reload() {
            return;
        }
        let edits = &self.edits;
        let refused = self.writes.refuse(
            &error,
            |write| matches!(write, PendingWrite::Message { id, is_sent: true, .. } if edits.contains(*id)),
        );
        if refused.is_empty() {
            return;
        }
        for id in refused {
            self.edits.take_back(id, Arc::make_mut(&mut self.agent_state));
        }
        let last = self.lost_by_reload.max(self.not_stored);
        if self.edits.is_empty() && last <= self.saved {
            // Without it, the state is the loaded or saved one.
            self.saved = self.changes;
            self.changed_at = None;
            self.blocked_by = None;
        }
    }

    /// Whether a reload would lose changes.
    pub fn loses_changes(&self) -> bool {
        self.lost_by_reload > self.saved
    }

    /// Whether a reload loses nothing, or the application allows it.
    pub fn can_reload(&self) -> bool {
        const MOST: u32 = 16;
        (!self.loses_changes() || self.options.on_conflict == OnConflict::Reload) && self.reloads < MOST
    }

    /// Replaces the agent state with the loaded one, and repeats the edits. Returns the revision, and the old state if
    /// changes get lost; `None` if no caller waits for it any more.
    pub fn reload_succeeded(
        &mut self,
        loaded: Loaded,
        now: Instant,
        has_handles: bool,
    ) -> Option<(Revision, Option<Arc<State>>)> {
        if !self.must_reload(self.is_shutting_down() || !has_handles) {
            return None;
        }
        self.reloads += 1;
        Some(self.replace(loaded, now))
    }

    /// Replaces the agent state with the loaded one. Returns the revision, and the old state if changes get lost.
    pub fn replace(&mut self, loaded: Loaded, now: Instant) -> (Revision, Option<Arc<State>>) {
        let mut lost = None;
        match loaded {
            Loaded::Saved { state, revision } => {
                lost = self.loses_changes().then(|| Arc::clone(&self.agent_state));
                let error = SessionError::Conflict { current: revision };
                self.waiting_saves.fail_after(self.saved, &error);
                // The parts that are never stored stay.
                self.agent_state = Arc::new(State {
                    agent_id: self.agent_state.agent_id.clone(),
                    interrupt_data: self.agent_state.interrupt_data.clone(),
                    extensions: self.agent_state.extensions.clone(),
                    ..*state
                });
                self.saved = self.changes;
                self.changed_at = None;
                self.expect = Expect::Revision(revision);
                self.display_undisplayed();
                self.edit_again(now);
            }
            // The own state is as new as it was.
            Loaded::Nothing if self.expect == Expect::NOTHING => {}
            // There's nothing to load, so the own state is saved.
            Loaded::Nothing => self.save_again(Expect::NOTHING, now),
            Loaded::Unreadable { revision, .. } => {
                self.save_again(Expect::Unreadable(revision), now);
            }
        }
        self.save = None;
        self.is_stale = false;
        self.save_backoff.reset();
        self.blocked_by = None;
        self.last_error = None;
        // The other process may have changed the flag.
        self.interrupted = None;
        for waiting in self.waiting_reloads.drain(..) {
            reply(Some(waiting), Ok(lost.clone()));
        }
        self.reply_to_saves();
        (self.revision(), lost)
    }

    /// Repeats the edits on a loaded state.
    pub fn edit_again(&mut self, now: Instant) {
        let changes = &mut self.changes;
        let next = || {
            *changes += 1;
            *changes
        };
        let state = Arc::make_mut(&mut self.agent_state);
        // A process that was killed may have sent its save before.
        let is_unknown = |id: &Uuid| state.messages.position(*id).is_none();
        let (unknown, mut known) = std::mem::take(&mut self.unknown).into_iter().partition::<Vec<_>, _>(is_unknown);
        self.unknown = unknown;
        let (again, orphans) = self.edits.apply_again(state, next);
        known.extend(again);
        if self.changes > self.saved {
            self.changed_at = Some(now);
        }
        self.settle_as(known, Delivery::Stored);
        self.give_up_results(&orphans);
        // A rewind may have taken it back. If it didn't, this changes nothing.
        for (id, message) in self.edits.hide() {
            self.display(id, message);
        }
    }

    /// Gives up messages with results whose calls were taken back. They aren't displayed any more, or are marked as
    /// [unknown](Delivery::Unknown) if they're displayed already.
    fn give_up_results(&mut self, ids: &[Uuid]) {
        let is_one = |write: &PendingWrite| write.message_id().is_some_and(|id| ids.contains(&id));
        let current = self.revision();
        let error = SessionError::Conflict { current };
        drop(self.writes.refuse(&error, is_one));
        self.settle(ids.iter().map(|id| (*id, Delivery::Unknown)).collect());
    }

    /// Marks the agent state as changed.
    pub fn save_again(&mut self, expect: Expect, now: Instant) {
        self.expect = expect;
        self.count_change(now);
        self.not_stored = self.changes;
    }

    /// Returns the time until the retry, if there's one.
    pub fn reload_failed(&mut self, error: &SessionError, failure: Failure, now: Instant) -> Option<Duration> {
        self.last_error = Some(error.clone());
        for waiting in self.waiting_reloads.drain(..) {
            reply(Some(waiting), Err(error.clone()));
        }
        if failure == Failure::Transient && self.must_reload(self.is_shutting_down()) {
            self.writes.save_delayed(error);
            return Some(self.save_backoff.start(now, &self.options, self.jitter));
        }
        // The next save finds the conflict.
        self.is_stale = false;
        if self.blocked_by.is_some() {
            self.blocked_by = Some(error.clone());
            self.refuse_sent();
        }
        None
    }

    /// Whether the stored state is gone, with the conversation that had it.
    pub fn is_other_conversation(&self, current: Revision) -> bool {
        current == Revision(0) && self.revision() > Revision(0)
    }

    pub fn has_conflict(&self) -> bool {
        matches!(self.blocked_by, Some(SessionError::Conflict { .. }))
    }

    /// Whether a caller waits for a reload, or a rewind or a conflict requires one. A session that is ending reports
    /// the conflict instead, because no caller would see what was replaced.
    pub fn must_reload(&mut self, is_ending: bool) -> bool {
        self.waiting_reloads.retain(|reply| !reply.is_closed());
        let on_conflict =
            self.options.on_conflict == OnConflict::Reload && !is_ending || self.has_sent() && self.can_reload();
        on_conflict && self.has_conflict() || !self.waiting_reloads.is_empty() || self.is_stale
    }
}
