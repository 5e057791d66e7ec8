//! The state of a session: the agent state, and what is left to store. It decides what the task
//! does next. It never waits and never calls the storage.

use std::collections::VecDeque;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::extensions::Extensions;
use super::super::message::Message;
use super::super::persistence::{Expect, Failure, Lifecycle, Loaded, Revision};
use super::super::state::State;
use super::options::Phase;
use super::{OnConflict, SessionError, SessionOptions, UnsavedMessage};

pub(super) struct SessionState<E> {
    options: Arc<SessionOptions>,
    phase: Phase,
    /// Differs between sessions, so that those that fail together do not retry together.
    jitter: u8,
    agent_state: Arc<State>,
    /// The number of changes so far, and how many of them are saved.
    changes: u64,
    saved: u64,
    /// The time of the first change that no save contains.
    changed_at: Option<Instant>,
    /// What the next save expects.
    expect: Expect,
    /// The reason to save now.
    requested: Option<Lifecycle>,
    /// The save that is in progress, or is retried unchanged: it may be stored already, with only
    /// the reply lost.
    save: Option<Save>,
    /// The permanent failure that stopped saving.
    blocked_by: Option<SessionError<E>>,
    /// The last failure, until something is stored.
    last_error: Option<SessionError<E>>,
    save_backoff: Backoff,
    /// What is left to write beside the agent state, in order, and how many writes are done.
    writes: VecDeque<Arc<PendingWrite>>,
    written: u64,
    write_backoff: Backoff,
    /// The writes that failed permanently, and that no later one replaced.
    refused: Vec<(Arc<PendingWrite>, SessionError<E>)>,
    /// The `interrupted` flag of the conversation, if it is known.
    interrupted: Option<bool>,
    waiting_saves: Vec<WaitingSave<E>>,
    waiting_reloads: Vec<Reply<Option<Arc<State>>, E>>,
    waiting_shutdowns: Vec<Reply<(), E>>,
    used_at: Instant,
    shutting_down: bool,
    ended: bool,
    /// The session ended without [`Step::End`]: the storage panicked, or the runtime shut down.
    aborted: bool,
}

/// Where a caller of a session waits for the result.
pub(super) type Reply<T, E> = oneshot::Sender<Result<T, SessionError<E>>>;

/// A snapshot of the agent state to be stored.
#[derive(Clone)]
pub(super) struct Save {
    pub state: Arc<State>,
    pub expect: Expect,
    pub lifecycle: Lifecycle,
    pub write_id: Uuid,
    /// How many changes it contains, and how many writes were queued before it.
    changes: u64,
    writes: u64,
}

/// Something to be stored beside the agent state.
pub(super) enum PendingWrite {
    Message { id: Uuid, message: Message },
    Title(String),
    Interrupted(bool),
}

impl PendingWrite {
    pub fn message_id(&self) -> Option<Uuid> {
        match self {
            Self::Message { id, .. } => Some(*id),
            Self::Title(_) | Self::Interrupted(_) => None,
        }
    }

    /// Whether an earlier write does not matter any more.
    fn replaces(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            (Self::Message { id, .. }, Self::Message { id: other, .. }) => id == other,
            _ => discriminant(self) == discriminant(earlier),
        }
    }
}

/// What the task does next.
pub(super) enum Step {
    /// Wait until this time, or until it is woken.
    Wait(Option<Instant>),
    /// Wait for the turn to save. Before it, write this, or wait until this time, or until woken.
    Queue(Option<Arc<PendingWrite>>, Option<Instant>),
    Write(Arc<PendingWrite>),
    Save(Save),
    Reload,
    End,
}

/// A caller who waits until everything is stored that existed at the time of the call.
struct WaitingSave<E> {
    changes: u64,
    writes: u64,
    reply: Reply<Revision, E>,
}

/// The delay before a retry.
#[derive(Default)]
struct Backoff {
    failures: u32,
    until: Option<Instant>,
    /// Whether a delay since the last success was shortened.
    was_shortened: bool,
}

impl Backoff {
    fn is_over(&self, now: Instant) -> bool {
        self.until <= Some(now)
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    /// Starts a longer delay than the last, and returns it.
    fn start(&mut self, now: Instant, options: &SessionOptions, jitter: u8) -> Duration {
        self.failures += 1;
        let delay = options.backoff(self.failures, jitter);
        self.until = Some(now + delay);
        delay
    }

    /// Ends a longer delay at this time, and returns whether it did. Once until a success, so that a
    /// call that only fails here is not repeated all the time.
    fn shorten(&mut self, until: Instant) -> bool {
        let shortens = !self.was_shortened && self.until > Some(until);
        if shortens {
            self.until = Some(until);
            self.was_shortened = true;
        }
        shortens
    }
}

impl<E> SessionState<E> {
    pub fn new(
        options: Arc<SessionOptions>,
        phase: Phase,
        jitter: u8,
        (agent_state, expect): (State, Expect),
        now: Instant,
    ) -> Self {
        let is_saved = matches!(expect, Expect::Revision(revision) if revision > Revision(0));
        // The application's initial state is saved, unless it is empty.
        let is_new = !is_saved && agent_state != State::new();
        Self {
            options,
            phase,
            jitter,
            agent_state: Arc::new(agent_state),
            changes: u64::from(is_new),
            saved: 0,
            changed_at: is_new.then_some(now),
            expect,
            requested: None,
            save: None,
            blocked_by: None,
            last_error: None,
            save_backoff: Backoff::default(),
            writes: VecDeque::new(),
            written: 0,
            write_backoff: Backoff::default(),
            refused: Vec::new(),
            interrupted: None,
            waiting_saves: Vec::new(),
            waiting_reloads: Vec::new(),
            waiting_shutdowns: Vec::new(),
            used_at: now,
            shutting_down: false,
            ended: false,
            aborted: false,
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
        !self.is_pending() && self.refused.is_empty()
    }

    /// Whether something is left to store.
    fn is_pending(&self) -> bool {
        self.changes > self.saved || !self.writes.is_empty()
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Restarts the inactivity timeout, or fails if the session ended or is shutting down.
    pub fn touch(&mut self, now: Instant) -> Result<&mut Self, SessionError<E>> {
        if self.ended || self.shutting_down {
            return Err(SessionError::Ended);
        }
        self.used_at = now;
        Ok(self)
    }

    /// Changes the agent state. A save that is in progress keeps its snapshot.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut State) -> R) -> R {
        // Counted first: a change that panics may have changed something.
        self.changes += 1;
        let _ = self.changed_at.get_or_insert(self.used_at);
        self.unblock();
        change(Arc::make_mut(&mut self.agent_state))
    }

    /// Changes the extensions, which are not stored and so do not count as a change.
    pub fn change_extensions<R>(&mut self, change: impl FnOnce(&mut Extensions) -> R) -> R {
        change(&mut Arc::make_mut(&mut self.agent_state).extensions)
    }

    /// Queues a write.
    pub fn write(&mut self, write: PendingWrite) {
        self.writes.push_back(Arc::new(write));
    }

    /// Sets the interrupt data, which is not stored and so does not count as a change. The
    /// `interrupted` flag of the conversation is written if it differs.
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

    /// Stores everything now, and replies when it is stored.
    pub fn save(&mut self, reply: Reply<Revision, E>) {
        self.unblock();
        self.skip_backoff();
        self.waiting_saves.push(WaitingSave {
            changes: self.changes,
            writes: self.queued_writes(),
            reply,
        });
        self.reply_to_saves();
    }

    /// Replaces the agent state by the stored one, and replies with the old one if it had unsaved
    /// changes.
    pub fn reload(&mut self, reply: Reply<Option<Arc<State>>, E>) {
        self.waiting_reloads.push(reply);
        self.skip_backoff();
    }

    /// Ends the session when everything is stored, and replies then.
    pub fn shutdown(&mut self, reply: Reply<(), E>) {
        self.waiting_shutdowns.push(reply);
        if self.ended {
            self.reply_to_shutdowns();
            return;
        }
        self.shutting_down = true;
        self.unblock();
        self.skip_backoff();
    }

    /// Ends long delays before retries, because another session could store something. Returns
    /// whether there was one.
    pub fn retry_soon(&mut self, now: Instant) -> bool {
        let until = now + self.options.backoff(1, self.jitter);
        // Both, in any case.
        self.save_backoff.shorten(until) | self.write_backoff.shorten(until)
    }

    /// Decides what the task does next. A session without handles ends when everything is stored.
    /// It saves only if it has its turn.
    pub fn next_step(&mut self, now: Instant, has_handles: bool, has_turn: bool) -> Step {
        let inactive_at = self.options.inactivity_timeout;
        let inactive_at = inactive_at.and_then(|timeout| self.used_at.checked_add(timeout));
        let is_inactive = inactive_at.is_some_and(|at| at <= now);
        let is_ending = self.shutting_down || !has_handles || is_inactive;
        self.start_save(now, is_ending);

        let reload = self.must_reload(is_ending);
        let can_save = self.save_backoff.is_over(now);
        if reload && can_save {
            return Step::Reload;
        }
        let write = self.writes.front();
        let waits = self.save.is_some() || reload;
        let times = [
            self.save_backoff.until.filter(|_| waits && !can_save),
            self.write_backoff.until.filter(|_| write.is_some()),
            self.interval_end().filter(|_| !waits),
            inactive_at.filter(|_| !is_ending),
        ];
        let until = times.into_iter().flatten().min();
        let ends = is_ending && !waits && write.is_none();
        let write = write.filter(|_| self.write_backoff.is_over(now)).cloned();
        // A message is displayed before a state contains it, unless displaying it fails.
        let is_next = |save: &&Save| can_save && (save.writes <= self.written || write.is_none());
        match (self.save.as_ref().filter(is_next), write) {
            (Some(save), _) if has_turn => Step::Save(save.clone()),
            (Some(_), write) => Step::Queue(write, until),
            (None, Some(write)) => Step::Write(write),
            (None, None) if ends => {
                self.ended = true;
                Step::End
            }
            (None, None) => Step::Wait(until),
        }
    }

    /// Takes a snapshot of the agent state, if there is a reason to save it now.
    fn start_save(&mut self, now: Instant, is_ending: bool) {
        if self.save.is_some() {
            return;
        }
        let requested = self.requested.take();
        if self.changes == self.saved || self.blocked_by.is_some() {
            return;
        }
        let on_shutdown = is_ending && self.options.auto_save.on_shutdown;
        let mut waiting = self.waiting_saves.iter();
        let on_request = waiting.any(|waiting| waiting.changes > self.saved);
        let lifecycle = match requested {
            Some(lifecycle) => lifecycle,
            None if on_request => Lifecycle::Request,
            None if on_shutdown => Lifecycle::Shutdown,
            None if self.interval_end().is_some_and(|at| at <= now) => Lifecycle::Interval,
            None => return,
        };
        self.changed_at = None;
        self.save = Some(Save {
            state: Arc::clone(&self.agent_state),
            expect: self.expect,
            lifecycle,
            write_id: Uuid::now_v7(),
            changes: self.changes,
            writes: self.queued_writes(),
        });
    }

    /// When the interval of the first unsaved change is over.
    fn interval_end(&self) -> Option<Instant> {
        let changed_at = self.changed_at.filter(|_| self.blocked_by.is_none())?;
        self.options.auto_save.save_at(changed_at, self.phase)
    }

    /// The number of writes so far, done or not.
    fn queued_writes(&self) -> u64 {
        self.written + self.writes.len() as u64
    }

    pub fn save_succeeded(&mut self, save: &Save, revision: Revision) {
        self.saved = save.changes;
        self.expect = Expect::Revision(revision);
        self.save = None;
        self.save_backoff.reset();
        self.last_error = None;
        self.reply_to_saves();
    }

    /// Returns the time until the retry, if there is one.
    pub fn save_failed(
        &mut self,
        error: &SessionError<E>,
        failure: Failure,
        now: Instant,
    ) -> Option<Duration> {
        self.fail(error);
        if failure == Failure::Transient {
            return Some(self.save_backoff.start(now, &self.options, self.jitter));
        }
        self.save = None;
        self.save_backoff.reset();
        self.blocked_by = Some(error.clone());
        None
    }

    pub fn write_succeeded(&mut self) {
        self.last_error = None;
        self.finish_write(None);
        self.reply_to_saves();
    }

    /// Returns the time until the retry, if there is one. A write that failed permanently is put
    /// aside, because those behind it have to be stored.
    pub fn write_failed(
        &mut self,
        error: &SessionError<E>,
        failure: Failure,
        now: Instant,
    ) -> Option<Duration> {
        self.fail(error);
        if failure == Failure::Transient {
            return Some(self.write_backoff.start(now, &self.options, self.jitter));
        }
        self.interrupted = None;
        self.finish_write(Some(error.clone()));
        None
    }

    fn finish_write(&mut self, refused: Option<SessionError<E>>) {
        if let Some(write) = self.writes.pop_front() {
            self.refused.retain(|(earlier, _)| !write.replaces(earlier));
            self.refused.extend(refused.map(|error| (write, error)));
        }
        self.written += 1;
        self.write_backoff.reset();
    }

    /// Replaces the agent state by the loaded one. Returns its revision, and the old state if it
    /// had unsaved changes; `None` if no caller waits for it any more.
    pub fn reload_succeeded(
        &mut self,
        loaded: Loaded,
        now: Instant,
        has_handles: bool,
    ) -> Option<(Revision, Option<Arc<State>>)> {
        if !self.must_reload(self.shutting_down || !has_handles) {
            return None;
        }
        let mut unsaved = None;
        match loaded {
            Loaded::Saved { state, revision } => {
                unsaved = self.unsaved();
                let error = SessionError::Conflict { current: revision };
                self.resolve_saves(|state, waiting| {
                    (waiting.changes > state.saved).then(|| Err(error.clone()))
                });
                // Keep what is never stored.
                self.agent_state = Arc::new(State {
                    agent_id: self.agent_state.agent_id.clone(),
                    interrupt_data: self.agent_state.interrupt_data.clone(),
                    extensions: self.agent_state.extensions.clone(),
                    ..*state
                });
                self.saved = self.changes;
                self.changed_at = None;
                self.expect = Expect::Revision(revision);
            }
            // There is nothing to load, so the own state is saved.
            Loaded::Nothing => self.save_again(Expect::NOTHING, now),
            Loaded::Unreadable { revision, .. } => {
                self.save_again(Expect::Unreadable(revision), now);
            }
        }
        self.save = None;
        self.save_backoff.reset();
        self.blocked_by = None;
        self.last_error = None;
        // The other process may have changed the flag.
        self.interrupted = None;
        for waiting in self.waiting_reloads.drain(..) {
            reply(waiting, Ok(unsaved.clone()));
        }
        self.reply_to_saves();
        Some((self.revision(), unsaved))
    }

    /// Marks the agent state as changed.
    fn save_again(&mut self, expect: Expect, now: Instant) {
        self.expect = expect;
        self.changes += 1;
        let _ = self.changed_at.get_or_insert(now);
    }

    /// Returns the time until the retry, if there is one.
    pub fn reload_failed(
        &mut self,
        error: &SessionError<E>,
        failure: Failure,
        now: Instant,
    ) -> Option<Duration> {
        self.last_error = Some(error.clone());
        for waiting in self.waiting_reloads.drain(..) {
            reply(waiting, Err(error.clone()));
        }
        if failure == Failure::Transient && self.must_reload(self.shutting_down) {
            return Some(self.save_backoff.start(now, &self.options, self.jitter));
        }
        if self.blocked_by.is_some() {
            self.blocked_by = Some(error.clone());
        }
        None
    }

    /// Ends the session, even if something is not stored. Returns the agent state if it has unsaved
    /// changes.
    pub fn end(&mut self) -> Option<Arc<State>> {
        self.aborted = !self.ended;
        self.ended = true;
        self.fail_saves(&SessionError::Ended);
        self.waiting_reloads.clear();
        self.unsaved()
    }

    pub fn reply_to_shutdowns(&mut self) {
        for waiting in std::mem::take(&mut self.waiting_shutdowns) {
            reply(waiting, self.outcome());
        }
    }

    /// An error if something had to be stored and is not.
    fn outcome(&self) -> Result<(), SessionError<E>> {
        if let Some(error) = &self.blocked_by {
            return Err(error.clone());
        }
        if self.aborted && self.is_pending() {
            return Err(self.last_error().unwrap_or(SessionError::Ended));
        }
        match self.refused.first() {
            Some((_, error)) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// The agent state, if it has unsaved changes.
    pub fn unsaved(&self) -> Option<Arc<State>> {
        (self.changes > self.saved).then(|| Arc::clone(&self.agent_state))
    }

    /// The messages whose display messages are not stored.
    pub fn unsaved_messages(&self) -> Vec<UnsavedMessage<E>> {
        let refused = self
            .refused
            .iter()
            .map(|(write, error)| (write, Some(error)));
        let writes = self.writes.iter().map(|write| (write, None));
        let messages = refused
            .chain(writes)
            .filter_map(|(write, error)| match &**write {
                PendingWrite::Message { id, message } => Some(UnsavedMessage {
                    message_id: *id,
                    message: message.clone(),
                    error: error.cloned(),
                }),
                PendingWrite::Title(_) | PendingWrite::Interrupted(_) => None,
            });
        messages.collect()
    }

    /// The last failure since something was stored, or the first permanent one.
    pub fn last_error(&self) -> Option<SessionError<E>> {
        let refused = self.refused.first().map(|(_, error)| error);
        self.last_error.as_ref().or(refused).cloned()
    }

    /// The revision that was loaded or saved last.
    fn revision(&self) -> Revision {
        match self.expect {
            Expect::Any => Revision(0),
            Expect::Revision(revision) | Expect::Unreadable(revision) => revision,
        }
    }

    fn has_conflict(&self) -> bool {
        matches!(self.blocked_by, Some(SessionError::Conflict { .. }))
    }

    /// Whether a caller waits for a reload, or a conflict requires one. A session that is ending
    /// reports the conflict instead, because no caller would see what was replaced.
    fn must_reload(&mut self, is_ending: bool) -> bool {
        self.waiting_reloads.retain(|reply| !reply.is_closed());
        let on_conflict = self.options.on_conflict == OnConflict::Reload && self.has_conflict();
        on_conflict && !is_ending || !self.waiting_reloads.is_empty()
    }

    /// Allows another save after a permanent failure. A conflict stays until a reload.
    fn unblock(&mut self) {
        if !self.has_conflict() {
            self.blocked_by = None;
        }
    }

    /// Retries now, because a caller waits.
    fn skip_backoff(&mut self) {
        self.save_backoff.until = None;
        self.write_backoff.until = None;
    }

    /// Records a failure and replies with it.
    fn fail(&mut self, error: &SessionError<E>) {
        self.last_error = Some(error.clone());
        self.fail_saves(error);
    }

    fn fail_saves(&mut self, error: &SessionError<E>) {
        self.resolve_saves(|_, _| Some(Err(error.clone())));
    }

    /// Replies to the callers whose changes and writes are stored, or will not be.
    fn reply_to_saves(&mut self) {
        self.resolve_saves(|state, waiting| {
            if waiting.changes > state.saved {
                state.blocked_by.clone().map(Err)
            } else {
                (waiting.writes <= state.written).then(|| Ok(state.revision()))
            }
        });
    }

    /// Replies to the callers for whom there is a result. The others keep waiting.
    fn resolve_saves(
        &mut self,
        result: impl Fn(&Self, &WaitingSave<E>) -> Option<Result<Revision, SessionError<E>>>,
    ) {
        for waiting in std::mem::take(&mut self.waiting_saves) {
            match result(self, &waiting) {
                Some(result) => reply(waiting.reply, result),
                None => self.waiting_saves.push(waiting),
            }
        }
    }
}

/// A caller who stopped waiting misses the reply.
fn reply<T, E>(reply: Reply<T, E>, result: Result<T, SessionError<E>>) {
    drop(reply.send(result));
}
