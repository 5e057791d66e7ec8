//! The state of a session: the agent state, and everything that's left to store. It decides what the task does next. It
//! never waits and never calls the storage.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::backoff::Backoff;
use super::drafts::Drafts;
use super::edits::{Edit, Edits};
use super::options::Phase;
use super::runs::Runs;
use super::saves::{Save, Saves};
use super::storage::Failure;
use super::writes::{PendingWrite, Reply, Writes, reply};
use super::{Result, SessionError, SessionOptions};
use crate::{Delivery, Expect, Extensions, Lifecycle, Revision, Run, State};

pub(super) struct SessionState {
    pub options: Arc<SessionOptions>,
    pub phase: Phase,
    /// Differs between sessions, so that those that fail together don't retry together.
    pub jitter: u8,
    pub agent_state: Arc<State>,
    /// The number of changes so far, how many of them are saved, and the last that a reload loses.
    pub changes: u64,
    pub saved: u64,
    pub lost_by_reload: u64,
    /// The last change that marks a whole state as not stored.
    pub not_stored: u64,
    /// The changes that aren't saved and that a reload doesn't lose.
    pub edits: Edits,
    /// The time of the first change that no save contains.
    pub changed_at: Option<Instant>,
    /// What the next save expects.
    pub expect: Expect,
    /// The reason to save now.
    pub requested: Option<Lifecycle>,
    /// The save that is in progress, or is retried unchanged: it may be stored already, with only the reply lost.
    pub save: Option<Save>,
    /// The permanent failure that stopped saving.
    pub blocked_by: Option<SessionError>,
    /// The stored state is newer, and has to be loaded.
    pub is_stale: bool,
    /// The reloads since the last save, for messages that wait to be saved.
    pub reloads: u32,
    /// The last failure, until something is stored.
    pub last_error: Option<SessionError>,
    pub save_backoff: Backoff,
    pub writes: Writes,
    pub drafts: Drafts,
    pub runs: Runs,
    /// The messages that are displayed and that the agent state didn't have when the session started.
    pub unknown: Vec<Uuid>,
    /// The `interrupted` flag of the conversation, if it's known.
    pub interrupted: Option<bool>,
    pub waiting_saves: Saves,
    pub waiting_reloads: Vec<Reply<Option<Arc<State>>>>,
    pub waiting_shutdowns: Vec<Reply<()>>,
    pub used_at: Instant,
    pub life: Life,
    /// The conversation is gone.
    pub deleted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    /// It ends when everything is stored.
    ShuttingDown,
    Ended,
    /// It ended without [`Step::End`]: the storage panicked, or the runtime shut down.
    Aborted,
}

/// What a session finds when it starts.
pub(super) struct Found {
    pub state: State,
    pub expect: Expect,
    /// The display messages that are drafts or unsaved, and what becomes of them.
    pub unsettled: Vec<(Uuid, Delivery)>,
    /// The run that waits for a person.
    pub waiting: Option<Run>,
}

/// What the task does next.
pub(super) enum Step {
    /// Wait until this time, or until it's woken.
    Wait(Option<Instant>),
    /// Wait for the turn to save. Before it, write this, or wait until this time, or until woken.
    Queue(Option<Arc<PendingWrite>>, Option<Instant>),
    Write(Arc<PendingWrite>),
    Save(Save),
    Reload,
    End,
}

impl SessionState {
    pub fn new(options: Arc<SessionOptions>, phase: Phase, jitter: u8, found: Found, now: Instant) -> Self {
        let Found { state: mut agent_state, expect, unsettled, waiting } = found;
        let is_saved = matches!(expect, Expect::Revision(revision) if revision > Revision(0));
        // The application's initial state is saved, unless it's empty.
        let is_new = !is_saved && agent_state != State::new();
        let runs = Runs::found(waiting.as_ref());
        let waiting_for = waiting.and_then(|run| run.waiting_for);
        agent_state.interrupt_data = waiting_for.filter(|data| !data.is_null());
        let mut state = Self {
            options,
            phase,
            jitter,
            agent_state: Arc::new(agent_state),
            changes: u64::from(is_new),
            saved: 0,
            lost_by_reload: 0,
            not_stored: u64::from(is_new),
            edits: Edits::default(),
            changed_at: is_new.then_some(now),
            expect,
            requested: None,
            save: None,
            blocked_by: None,
            is_stale: false,
            reloads: 0,
            last_error: None,
            save_backoff: Backoff::default(),
            writes: Writes::new(),
            drafts: Drafts::default(),
            runs,
            unknown: Vec::new(),
            interrupted: None,
            waiting_saves: Saves::new(),
            waiting_reloads: Vec::new(),
            waiting_shutdowns: Vec::new(),
            used_at: now,
            life: Life::Running,
            deleted: false,
        };
        let unknown = unsettled.iter().filter(|(_, delivery)| *delivery == Delivery::Unknown);
        state.unknown = unknown.map(|(id, _)| *id).collect();
        state.settle(unsettled);
        state.display_undisplayed();
        state
    }

    /// Displays the messages that weren't displayed when the state was saved.
    pub fn display_undisplayed(&mut self) {
        let state = Arc::clone(&self.agent_state);
        for id in &state.undisplayed {
            let position = state.messages.position(*id);
            if let Some(message) = position.and_then(|position| state.messages.get(position)) {
                self.display(*id, Arc::new(message.clone()));
            }
        }
    }

    pub fn agent_state(&mut self, now: Instant) -> Arc<State> {
        self.used_at = now;
        Arc::clone(&self.agent_state)
    }

    /// Whether there are unsaved changes whose save the task has scheduled.
    pub fn is_save_scheduled(&self) -> bool {
        self.changed_at.is_some() && self.blocked_by.is_none()
    }

    /// Whether everything is stored.
    pub fn is_saved(&self) -> bool {
        !self.is_pending() && !self.writes.has_refused()
    }

    /// Whether something is left to store.
    fn is_pending(&self) -> bool {
        self.changes > self.saved || !self.writes.is_empty()
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.life, Life::Ended | Life::Aborted)
    }

    pub fn is_shutting_down(&self) -> bool {
        self.life == Life::ShuttingDown
    }

    /// Restarts the inactivity timeout, or fails if the session ended or is shutting down.
    pub fn touch(&mut self, now: Instant) -> Result<&mut Self> {
        if self.life != Life::Running || self.deleted {
            return Err(SessionError::Ended);
        }
        self.used_at = now;
        Ok(self)
    }

    /// Changes the agent state. A save that is in progress keeps its snapshot.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut State) -> R) -> R {
        // Counted first: a change that panics may have changed something.
        self.count_change(self.used_at);
        self.lost_by_reload = self.changes;
        self.unblock();
        change(Arc::make_mut(&mut self.agent_state))
    }

    /// Makes a change that a reload doesn't lose. Returns whether the agent state has changed.
    pub fn edit(&mut self, edit: Edit) -> bool {
        let state = Arc::make_mut(&mut self.agent_state);
        let changed = self.edits.apply(edit, self.changes + 1, state);
        if changed {
            self.count_change(self.used_at);
        }
        self.unblock();
        changed
    }

    pub fn count_change(&mut self, now: Instant) {
        self.changes += 1;
        let _ = self.changed_at.get_or_insert(now);
    }

    /// Changes the extensions, which aren't stored and so don't count as a change.
    pub fn change_extensions<R>(&mut self, change: impl FnOnce(&mut Extensions) -> R) -> R {
        change(&mut Arc::make_mut(&mut self.agent_state).extensions)
    }

    /// Queues a write.
    pub fn write(&mut self, write: PendingWrite) {
        self.writes.push(write, None);
    }

    /// Sets the interrupt data, which isn't stored and so doesn't count as a change. The `interrupted` flag of the
    /// conversation is written if it differs.
    pub fn set_interrupt(&mut self, data: Option<Value>) {
        let interrupted = data.is_some();
        if self.agent_state.interrupt_data != data {
            Arc::make_mut(&mut self.agent_state).interrupt_data = data;
        }
        if self.interrupted != Some(interrupted) {
            self.interrupted = Some(interrupted);
            self.write(PendingWrite::Interrupted(interrupted));
        }
    }

    /// Saves the agent state now, if it has changed.
    pub fn request_save(&mut self, lifecycle: Lifecycle) {
        if self.changes > self.saved {
            self.requested = Some(lifecycle);
            self.unblock();
        }
    }

    /// Stores everything now, and replies when it's stored.
    pub fn save(&mut self, reply: Reply<Revision>) {
        self.unblock();
        self.skip_backoff();
        let queued = self.writes.queued();
        self.waiting_saves.push(self.changes, queued, reply);
        self.reply_to_saves();
    }

    /// Ends the session when everything is stored, and replies then.
    pub fn shutdown(&mut self, reply: Reply<()>) {
        self.waiting_shutdowns.push(reply);
        if self.has_ended() {
            self.reply_to_shutdowns();
            return;
        }
        let _ = self.runs.cancel();
        // An agent that stops because of it doesn't end its run.
        self.hand_over();
        self.life = Life::ShuttingDown;
        self.unblock();
        self.skip_backoff();
    }

    /// Leaves the agent's work to the next process.
    fn hand_over(&mut self) {
        self.close_drafts();
        let handed_over = self.runs.hand_over();
        self.writes.extend(handed_over);
    }

    /// Ends the session at once: its conversation is gone, and nothing can be stored any more.
    pub fn delete(&mut self, error: &SessionError) {
        self.deleted = true;
        self.save = None;
        self.saved = self.changes;
        self.blocked_by = None;
        self.last_error = None;
        let _ = self.runs.cancel();
        self.writes.clear(error);
        self.waiting_saves.fail(error);
        for waiting in self.waiting_reloads.drain(..) {
            reply(Some(waiting), Err(error.clone()));
        }
    }

    /// Ends a long delay before a retry, because another session could store something. Returns whether there was one.
    pub fn retry_soon(&mut self, now: Instant) -> bool {
        let until = now + self.options.backoff(1, self.jitter);
        // Both, in any case.
        self.save_backoff.shorten(until) | self.writes.backoff.shorten(until)
    }

    /// Decides what the task does next. A session without handles ends when everything is stored. It saves only if it
    /// has its turn.
    pub fn next_step(&mut self, now: Instant, has_handles: bool, has_turn: bool) -> Step {
        if self.deleted {
            self.life = Life::Ended;
            return Step::End;
        }
        let inactive_at = self.options.inactivity_timeout.filter(|_| !self.runs.is_active());
        let inactive_at = inactive_at.and_then(|timeout| self.used_at.checked_add(timeout));
        let is_inactive = inactive_at.is_some_and(|at| at <= now);
        let is_ending = self.is_shutting_down() || !has_handles || is_inactive;
        if is_ending {
            self.hand_over();
        }
        if let Some(renewal) = self.runs.take_due(now, self.next_renewal(now)) {
            return Step::Write(Arc::new(renewal));
        }
        self.start_save(now, is_ending);

        let reload = self.must_reload(is_ending);
        let can_save = self.save_backoff.is_over(now);
        if reload && can_save {
            return Step::Reload;
        }
        if let Some(draft) = self.due_draft(now) {
            return Step::Write(Arc::new(draft));
        }
        let write = self.writes.first().filter(|write| !self.must_wait(write));
        let waits = self.save.is_some() || reload;
        let times = [
            self.save_backoff.until.filter(|_| waits && !can_save),
            self.writes.backoff.until.filter(|_| write.is_some()),
            self.interval_end().filter(|_| !waits),
            inactive_at.filter(|_| !is_ending),
            self.runs.renew_at(),
            self.drafts.next_due().filter(|_| self.writes.is_empty()),
        ];
        let until = times.into_iter().flatten().min();
        let ends = is_ending && !waits && write.is_none();
        let write = write.filter(|_| self.writes.backoff.is_over(now)).cloned();
        // A message is displayed before a state contains it, unless displaying it fails.
        let is_next = |save: &&Save| can_save && (save.writes <= self.writes.written || write.is_none());
        match (self.save.as_ref().filter(is_next), write) {
            (Some(save), _) if has_turn => Step::Save(save.clone()),
            (Some(_), write) => Step::Queue(write, until),
            (None, Some(write)) => Step::Write(write),
            (None, None) if ends => {
                self.life = Life::Ended;
                Step::End
            }
            (None, None) => Step::Wait(until),
        }
    }

    /// A message that was sent is displayed after it's saved.
    pub fn must_wait(&self, write: &PendingWrite) -> bool {
        matches!(write, PendingWrite::Message { id, is_sent: true, .. } if self.edits.contains(*id))
    }

    /// Takes a snapshot of the agent state, if there's a reason to save it now.
    fn start_save(&mut self, now: Instant, is_ending: bool) {
        if self.save.is_some() {
            return;
        }
        let requested = self.requested.take();
        if self.changes == self.saved || self.blocked_by.is_some() {
            return;
        }
        let on_shutdown = is_ending && self.options.auto_save.on_shutdown;
        let on_request = self.waiting_saves.is_waiting(self.saved) || self.has_sent();
        let lifecycle = match requested {
            Some(lifecycle) => lifecycle,
            None if on_request => Lifecycle::Request,
            None if on_shutdown => Lifecycle::Shutdown,
            None if self.interval_end().is_some_and(|at| at <= now) => Lifecycle::Interval,
            None => return,
        };
        self.changed_at = None;
        let undisplayed = self.writes.message_ids();
        if self.agent_state.undisplayed != undisplayed {
            Arc::make_mut(&mut self.agent_state).undisplayed = undisplayed;
        }
        self.save = Some(Save {
            state: Arc::clone(&self.agent_state),
            expect: self.expect,
            lifecycle,
            write_id: Uuid::now_v7(),
            changes: self.changes,
            writes: self.writes.before(|write| self.must_wait(write)),
        });
    }

    /// Whether a message that was sent waits to be saved.
    pub fn has_sent(&self) -> bool {
        self.writes.any(|write| self.must_wait(write))
    }

    /// When the interval of the first unsaved change is over.
    fn interval_end(&self) -> Option<Instant> {
        let changed_at = self.changed_at.filter(|_| self.blocked_by.is_none())?;
        self.options.auto_save.save_at(changed_at, self.phase)
    }

    pub fn save_succeeded(&mut self, save: &Save, revision: Revision) {
        self.saved = save.changes;
        self.expect = Expect::Revision(revision);
        self.save = None;
        self.save_backoff.reset();
        self.reloads = 0;
        self.last_error = None;
        let shown = self.edits.saved(save.changes);
        self.settle_as(shown, Delivery::Stored);
        self.reply_to_saves();
    }

    /// Returns the time until the retry, if there's one.
    pub fn save_failed(&mut self, error: &SessionError, failure: Failure, now: Instant) -> Option<Duration> {
        self.fail(error);
        if failure == Failure::Transient {
            self.writes.save_delayed(error);
            return Some(self.save_backoff.start(now, &self.options, self.jitter));
        }
        self.save = None;
        self.save_backoff.reset();
        self.blocked_by = Some(error.clone());
        self.refuse_sent();
        None
    }

    /// Returns the time until the retry, if there's one.
    pub fn write_failed(
        &mut self,
        write: &PendingWrite,
        error: &SessionError,
        failure: Failure,
        now: Instant,
    ) -> Option<Duration> {
        match write {
            // They aren't in the queue, and the session repeats them later anyway.
            PendingWrite::RenewRun(_) => {
                let delay = self.options.backoff(1, self.jitter);
                self.runs.retry_at(now + delay);
                return Some(delay);
            }
            PendingWrite::Draft { id, .. } if !self.writes.is_first(write) => {
                let delay = self.options.draft_interval.unwrap_or_default();
                let delay = delay.max(self.options.backoff(1, self.jitter));
                self.drafts.failed(*id, now + delay);
                return Some(delay);
            }
            // It isn't repeated: the message may be gone, if only the reply was lost.
            PendingWrite::Rewind(_) => {
                self.is_stale |= failure == Failure::Transient;
                self.writes.refused(error);
                self.reply_to_saves();
                return None;
            }
            _ => {}
        }
        self.fail(error);
        if failure == Failure::Transient {
            self.writes.delayed(error);
            let backoff = &mut self.writes.backoff;
            return Some(backoff.start(now, &self.options, self.jitter));
        }
        self.interrupted = None;
        self.writes.refused(error);
        None
    }

    /// Ends the session, even if something isn't stored. Returns the agent state if it has unsaved changes.
    pub fn end(&mut self) -> Option<Arc<State>> {
        if self.life != Life::Ended {
            self.life = Life::Aborted;
        }
        let _ = self.runs.cancel();
        self.waiting_saves.fail(&SessionError::Ended);
        self.waiting_reloads.clear();
        self.unsaved()
    }

    pub fn reply_to_shutdowns(&mut self) {
        for waiting in std::mem::take(&mut self.waiting_shutdowns) {
            reply(Some(waiting), self.outcome());
        }
    }

    /// An error if something had to be stored and isn't.
    fn outcome(&self) -> Result<()> {
        if let Some(error) = &self.blocked_by {
            return Err(error.clone());
        }
        if self.life == Life::Aborted && self.is_pending() {
            return Err(self.last_error().unwrap_or(SessionError::Ended));
        }
        self.writes.refused_by().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The agent state, if it has unsaved changes.
    pub fn unsaved(&self) -> Option<Arc<State>> {
        (self.changes > self.saved).then(|| Arc::clone(&self.agent_state))
    }

    /// The last failure since something was stored, or the first permanent one.
    pub fn last_error(&self) -> Option<SessionError> {
        let refused = self.writes.refused_by();
        self.last_error.as_ref().or(refused).cloned()
    }

    /// The revision that was loaded or saved last.
    pub fn revision(&self) -> Revision {
        match self.expect {
            Expect::Any => Revision(0),
            Expect::Revision(revision) | Expect::Unreadable(revision) => revision,
        }
    }

    /// Allows another save after a permanent failure. A conflict stays until a reload.
    pub fn unblock(&mut self) {
        if !self.has_conflict() {
            self.blocked_by = None;
        }
    }

    /// Retries now, because a caller waits.
    pub fn skip_backoff(&mut self) {
        self.save_backoff.until = None;
        self.writes.backoff.until = None;
    }

    /// Records a failure and replies with it.
    fn fail(&mut self, error: &SessionError) {
        self.last_error = Some(error.clone());
        self.waiting_saves.fail(error);
    }

    /// Replies to the callers whose changes and writes are stored, or won't be.
    pub fn reply_to_saves(&mut self) {
        let (saved, written, revision) = (self.saved, self.writes.written, self.revision());
        let blocked_by = self.blocked_by.as_ref();
        self.waiting_saves.resolve(|changes, writes| {
            if changes > saved { blocked_by.cloned().map(Err) } else { (writes <= written).then_some(Ok(revision)) }
        });
    }
}
