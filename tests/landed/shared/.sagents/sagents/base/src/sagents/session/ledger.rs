//! What a session knows and has still to store. The ledger decides what is to be done next; it never
//! waits and never writes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::message::Message;
use super::super::persistence::{Expect, Failure, Lifecycle, Loaded, Revision};
use super::super::state::State;
use super::{OnConflict, SessionError, SessionOptions};

/// The books of one session.
pub(super) struct Ledger<E> {
    options: Arc<SessionOptions>,
    /// Spreads sessions that fail together.
    salt: u8,
    state: Arc<State>,
    /// How many changes were made, and how many of them are stored.
    changes: u64,
    saved: u64,
    /// When the first change was made that no save has taken up.
    changed_at: Option<Instant>,
    /// What the next save has to expect.
    expect: Expect,
    /// Why the state is to be saved now.
    asked: Option<Lifecycle>,
    /// The save that is under way, or is to be repeated as it is: perhaps only its answer was lost.
    save: Option<Save>,
    /// Why the state is not saved any more.
    refused: Option<SessionError<E>>,
    /// The last failure, as long as nothing was stored since.
    trouble: Option<SessionError<E>>,
    save_pause: Pause,
    /// What is to be written beside the state, in order, and how many have been.
    notes: VecDeque<Arc<Note>>,
    noted: u64,
    note_pause: Pause,
    /// What the conversation says, as far as it is known here.
    interrupted: Option<bool>,
    callers: Vec<Caller<E>>,
    reloads: Vec<oneshot::Sender<Reloaded<E>>>,
    ends: Vec<oneshot::Sender<Result<(), SessionError<E>>>>,
    used_at: Instant,
    closing: bool,
    ended: bool,
    /// It ended before its time: with the runtime, or because the storage panicked.
    cut_off: bool,
}

/// A state, if it is not stored.
type Unsaved = Option<Arc<State>>;

/// What a call that takes over the stored state answers: what that replaced.
pub(super) type Reloaded<E> = Result<Unsaved, SessionError<E>>;

/// A state as it was at a moment, to be stored.
#[derive(Clone)]
pub(super) struct Save {
    pub state: Arc<State>,
    pub expect: Expect,
    pub lifecycle: Lifecycle,
    pub write_id: Uuid,
    /// The change that it holds, and the notes that were made before it.
    changes: u64,
    notes: u64,
}

/// What is written beside the state.
pub(super) enum Note {
    Message { id: Uuid, message: Message },
    Title(String),
    Interrupted(bool),
}

impl Note {
    pub fn message_id(&self) -> Option<Uuid> {
        match self {
            Self::Message { id, .. } => Some(*id),
            Self::Title(_) | Self::Interrupted(_) => None,
        }
    }
}

/// What is to be done next.
pub(super) enum Step {
    /// Nothing, until then or until something happens.
    Wait(Option<Instant>),
    Note(Arc<Note>),
    Save(Save),
    Reload,
    /// Nothing ever again.
    End,
}

/// Somebody who waits until everything is stored that was there when they asked.
struct Caller<E> {
    changes: u64,
    notes: u64,
    reply: oneshot::Sender<Result<Revision, SessionError<E>>>,
}

/// The time between two tries.
#[derive(Default)]
struct Pause {
    failures: u32,
    until: Option<Instant>,
}

impl Pause {
    fn is_over(&self, now: Instant) -> bool {
        self.until <= Some(now)
    }

    fn end(&mut self) {
        *self = Self::default();
    }

    /// Begins another one, longer than the last. Answers how long.
    fn begin(&mut self, now: Instant, options: &SessionOptions, salt: u8) -> Duration {
        self.failures += 1;
        let length = options.pause(self.failures, salt);
        self.until = Some(now + length);
        length
    }
}

impl<E> Ledger<E> {
    /// The books of a session that begins.
    pub fn new(
        options: Arc<SessionOptions>,
        salt: u8,
        (state, expect): (State, Expect),
        now: Instant,
    ) -> Self {
        let is_stored = matches!(expect, Expect::Revision(revision) if revision > Revision(0));
        // What the application starts with is to be stored, unless that is nothing.
        let is_new = !is_stored && state != State::new();
        Self {
            options,
            salt,
            state: Arc::new(state),
            changes: u64::from(is_new),
            saved: 0,
            changed_at: is_new.then_some(now),
            expect,
            asked: None,
            save: None,
            refused: None,
            trouble: None,
            save_pause: Pause::default(),
            notes: VecDeque::new(),
            noted: 0,
            note_pause: Pause::default(),
            interrupted: None,
            callers: Vec::new(),
            reloads: Vec::new(),
            ends: Vec::new(),
            used_at: now,
            closing: false,
            ended: false,
            cut_off: false,
        }
    }

    /// The state as it is now.
    pub fn look(&mut self, now: Instant) -> Arc<State> {
        self.used_at = now;
        Arc::clone(&self.state)
    }

    /// There are changes that will be taken up by a save, at a time that the task knows.
    pub fn is_expected(&self) -> bool {
        self.changed_at.is_some() && self.refused.is_none()
    }

    /// Everything is stored.
    pub fn is_saved(&self) -> bool {
        self.changes == self.saved && self.notes.is_empty()
    }

    /// Somebody uses the session.
    ///
    /// # Errors
    ///
    /// If it has ended, or is about to.
    pub fn used(&mut self, now: Instant) -> Result<&mut Self, SessionError<E>> {
        if self.ended || self.closing {
            return Err(SessionError::Ended);
        }
        self.used_at = now;
        Ok(self)
    }

    /// Changes the state. A save that is under way keeps the state that it has.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut State) -> R) -> R {
        self.changes += 1;
        self.changed_at.get_or_insert(self.used_at);
        self.try_again();
        change(Arc::make_mut(&mut self.state))
    }

    /// Has something written beside the state.
    pub fn note(&mut self, note: Note) {
        self.notes.push_back(Arc::new(note));
    }

    /// Keeps what the agent waits for. The conversation says whether it waits, unless it says so
    /// already; what for is not stored, so this is no change of the state.
    pub fn set_interrupt(&mut self, data: Option<Value>) {
        let interrupted = Some(data.is_some());
        if self.state.interrupt_data != data {
            Arc::make_mut(&mut self.state).interrupt_data = data;
        }
        if self.interrupted != interrupted {
            self.interrupted = interrupted;
            self.note(Note::Interrupted(interrupted == Some(true)));
        }
    }

    /// Has the state saved now, if it has changed.
    pub fn ask(&mut self, lifecycle: Lifecycle) {
        if self.changes > self.saved {
            self.asked = Some(lifecycle);
            self.try_again();
        }
    }

    /// Has everything stored now, and says when it is.
    pub fn save(&mut self, reply: oneshot::Sender<Result<Revision, SessionError<E>>>) {
        self.try_again();
        self.hurry();
        self.callers.push(Caller {
            changes: self.changes,
            notes: self.noted + self.notes.len() as u64,
            reply,
        });
        self.answer();
    }

    /// Has the stored state take the place of this one.
    pub fn reload(&mut self, reply: oneshot::Sender<Reloaded<E>>) {
        self.reloads.push(reply);
        self.hurry();
    }

    /// Has the session end once everything is stored.
    pub fn close(&mut self, reply: oneshot::Sender<Result<(), SessionError<E>>>) {
        self.ends.push(reply);
        if self.ended {
            self.tell_ended();
            return;
        }
        self.closing = true;
        self.try_again();
        self.hurry();
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// What is to be done next. A session that nobody holds ends once everything is stored.
    pub fn next(&mut self, now: Instant, is_held: bool) -> Step {
        let idle_at = self.options.inactivity;
        let idle_at = idle_at.and_then(|limit| self.used_at.checked_add(limit));
        let leaves = self.closing || !is_held || idle_at.is_some_and(|at| at <= now);
        self.begin_save(now, leaves);

        let reload = self.must_reload(leaves);
        let note = self.notes.front();
        let can_note = note.is_some() && self.note_pause.is_over(now);
        let can_save = self.save_pause.is_over(now);
        if reload && can_save {
            return Step::Reload;
        }
        // What a state knows has been shown before, unless showing it fails.
        let is_turn = |save: &&Save| save.notes <= self.noted || !can_note;
        if let Some(save) = self.save.as_ref().filter(|_| can_save).filter(is_turn) {
            return Step::Save(save.clone());
        }
        if let Some(note) = note.filter(|_| can_note) {
            return Step::Note(Arc::clone(note));
        }
        let waits = self.save.is_some() || reload;
        if leaves && !waits && note.is_none() {
            self.ended = true;
            return Step::End;
        }
        let times = [
            self.save_pause.until.filter(|_| waits),
            self.note_pause.until.filter(|_| note.is_some()),
            self.save_at().filter(|_| !waits),
            idle_at.filter(|_| !leaves),
        ];
        Step::Wait(times.into_iter().flatten().min())
    }

    /// Takes up what has changed, if it is time.
    fn begin_save(&mut self, now: Instant, leaves: bool) {
        if self.save.is_some() {
            return;
        }
        let asked = self.asked.take();
        if self.changes == self.saved || self.refused.is_some() {
            return;
        }
        let on_shutdown = leaves && self.options.auto_save.on_shutdown;
        let mut callers = self.callers.iter();
        let on_request = callers.any(|caller| caller.changes > self.saved);
        let lifecycle = match asked {
            Some(lifecycle) => lifecycle,
            None if on_request => Lifecycle::Request,
            None if on_shutdown => Lifecycle::Shutdown,
            None if self.save_at().is_some_and(|at| at <= now) => Lifecycle::Interval,
            None => return,
        };
        self.changed_at = None;
        self.save = Some(Save {
            state: Arc::clone(&self.state),
            expect: self.expect,
            lifecycle,
            write_id: Uuid::now_v7(),
            changes: self.changes,
            notes: self.noted + self.notes.len() as u64,
        });
    }

    /// When the state is saved if nothing happens before.
    fn save_at(&self) -> Option<Instant> {
        let interval = self.options.auto_save.interval?;
        let changed_at = self.changed_at.filter(|_| self.refused.is_none())?;
        changed_at.checked_add(interval)
    }

    /// A save was answered.
    pub fn saved(&mut self, save: &Save, revision: Revision) {
        self.saved = save.changes;
        self.expect = Expect::Revision(revision);
        self.save = None;
        self.save_pause.end();
        self.trouble = None;
        self.answer();
    }

    /// A save failed. Answers when it is repeated.
    pub fn save_failed(
        &mut self,
        error: &SessionError<E>,
        failure: Failure,
        now: Instant,
    ) -> Option<Duration> {
        self.fail(error);
        if failure == Failure::Passing {
            return Some(self.save_pause.begin(now, &self.options, self.salt));
        }
        self.save = None;
        self.save_pause.end();
        self.refused = Some(error.clone());
        None
    }

    /// A note was written.
    pub fn noted(&mut self) {
        self.trouble = None;
        self.drop_note();
        self.answer();
    }

    fn drop_note(&mut self) {
        self.notes.pop_front();
        self.noted += 1;
        self.note_pause.end();
    }

    /// A note could not be written. Answers when that is repeated. One that can never be written
    /// must not keep the others back.
    pub fn note_failed(
        &mut self,
        error: &SessionError<E>,
        failure: Failure,
        now: Instant,
    ) -> Option<Duration> {
        self.fail(error);
        if failure == Failure::Passing {
            return Some(self.note_pause.begin(now, &self.options, self.salt));
        }
        self.interrupted = None;
        self.drop_note();
        None
    }

    /// The stored state was read and takes the place of this one. Answers which save it is, and
    /// what it replaced if that was not stored; nothing if nobody wants it any more.
    pub fn reloaded(
        &mut self,
        loaded: Loaded,
        now: Instant,
        is_held: bool,
    ) -> Option<(Revision, Unsaved)> {
        if !self.must_reload(self.closing || !is_held) {
            return None;
        }
        let mut unsaved = None;
        match loaded {
            Loaded::Saved { state, revision } => {
                unsaved = self.unsaved();
                self.refuse_callers_of_changes(&SessionError::Conflict { current: revision });
                // What is never stored stays.
                self.state = Arc::new(State {
                    agent_id: self.state.agent_id.clone(),
                    interrupt_data: self.state.interrupt_data.clone(),
                    runtime: self.state.runtime.clone(),
                    ..*state
                });
                self.saved = self.changes;
                self.changed_at = None;
                self.expect = Expect::Revision(revision);
            }
            // There is nothing to take over: what is here is to be saved.
            Loaded::Nothing => self.store_again(Expect::NOTHING, now),
            Loaded::Unreadable { revision, .. } => {
                self.store_again(Expect::Unreadable(revision), now);
            }
        }
        self.save = None;
        self.save_pause.end();
        self.refused = None;
        self.trouble = None;
        // Whoever saved may have said otherwise.
        self.interrupted = None;
        for reply in self.reloads.drain(..) {
            // Whoever asked need not wait for it.
            let _ = reply.send(Ok(unsaved.clone()));
        }
        self.answer();
        Some((self.revision(), unsaved))
    }

    /// What is known here is to be stored, whatever was before.
    fn store_again(&mut self, expect: Expect, now: Instant) {
        self.expect = expect;
        self.changes += 1;
        self.changed_at.get_or_insert(now);
    }

    /// The stored state could not be read. Answers when that is repeated.
    pub fn reload_failed(
        &mut self,
        error: &SessionError<E>,
        failure: Failure,
        now: Instant,
    ) -> Option<Duration> {
        self.trouble = Some(error.clone());
        for reply in self.reloads.drain(..) {
            let _ = reply.send(Err(error.clone()));
        }
        if failure == Failure::Passing && self.must_reload(self.closing) {
            return Some(self.save_pause.begin(now, &self.options, self.salt));
        }
        if self.refused.is_some() {
            self.refused = Some(error.clone());
        }
        None
    }

    /// Ends the session, whether everything is stored or not. Answers what is not.
    pub fn end(&mut self) -> Unsaved {
        self.cut_off = !self.ended;
        self.ended = true;
        self.refuse_callers(&SessionError::Ended);
        self.reloads.clear();
        self.unsaved()
    }

    /// Tells those who wait for the end that it has come.
    pub fn tell_ended(&mut self) {
        for reply in std::mem::take(&mut self.ends) {
            // Whoever asked need not wait for it.
            let _ = reply.send(self.outcome());
        }
    }

    /// How the session ended: well, unless something was to be stored and is not.
    fn outcome(&self) -> Result<(), SessionError<E>> {
        if let Some(error) = &self.refused {
            return Err(error.clone());
        }
        if self.cut_off && !self.is_saved() {
            return Err(self.trouble.clone().unwrap_or(SessionError::Ended));
        }
        Ok(())
    }

    /// The state, if it is not stored.
    pub fn unsaved(&self) -> Unsaved {
        (self.changes > self.saved).then(|| Arc::clone(&self.state))
    }

    /// The messages that are not stored yet.
    pub fn unsaved_messages(&self) -> Vec<(Uuid, Message)> {
        let messages = self.notes.iter().filter_map(|note| match &**note {
            Note::Message { id, message } => Some((*id, message.clone())),
            Note::Title(_) | Note::Interrupted(_) => None,
        });
        messages.collect()
    }

    /// The last failure, as long as nothing was stored since.
    pub fn trouble(&self) -> Option<SessionError<E>> {
        self.trouble.clone()
    }

    /// The save that the state was loaded from, or that it was stored by.
    fn revision(&self) -> Revision {
        match self.expect {
            Expect::Any => Revision(0),
            Expect::Revision(revision) | Expect::Unreadable(revision) => revision,
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self.refused, Some(SessionError::Conflict { .. }))
    }

    /// Somebody waits for what is stored, or it is to be taken over after a conflict. At its end a
    /// session reports that instead: nobody would see what was replaced.
    fn must_reload(&mut self, leaves: bool) -> bool {
        self.reloads.retain(|reply| !reply.is_closed());
        let by_itself = self.options.on_conflict == OnConflict::Reload && self.is_conflict();
        by_itself && !leaves || !self.reloads.is_empty()
    }

    /// What was refused may be accepted now, unless somebody else's save is in the way.
    fn try_again(&mut self) {
        if !self.is_conflict() {
            self.refused = None;
        }
    }

    /// Somebody waits, so the next try is now.
    fn hurry(&mut self) {
        self.save_pause.until = None;
        self.note_pause.until = None;
    }

    /// Tells the callers whose changes are stored.
    fn answer(&mut self) {
        for caller in std::mem::take(&mut self.callers) {
            if caller.changes > self.saved {
                match &self.refused {
                    // Nothing will be tried, so nothing would answer.
                    Some(error) => drop(caller.reply.send(Err(error.clone()))),
                    None => self.callers.push(caller),
                }
            } else if caller.notes > self.noted {
                self.callers.push(caller);
            } else {
                let _ = caller.reply.send(Ok(self.revision()));
            }
        }
    }

    fn fail(&mut self, error: &SessionError<E>) {
        self.trouble = Some(error.clone());
        self.refuse_callers(error);
    }

    /// Tells those whose changes are not stored, and never will be.
    fn refuse_callers_of_changes(&mut self, error: &SessionError<E>) {
        for caller in std::mem::take(&mut self.callers) {
            if caller.changes > self.saved {
                let _ = caller.reply.send(Err(error.clone()));
            } else {
                self.callers.push(caller);
            }
        }
    }

    fn refuse_callers(&mut self, error: &SessionError<E>) {
        for caller in self.callers.drain(..) {
            let _ = caller.reply.send(Err(error.clone()));
        }
    }
}
