//! The task of a session, which makes all its calls of the storage, one after the other.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, broadcast, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::registry::{Registry, Turn};
use super::saves::Save;
use super::state::{Found, SessionState, Step};
use super::storage::{Failure, failure, is_missing};
use super::writes::PendingWrite;
use super::{Result, SessionError, SessionEvent};
use crate::{Key, LoadContext, Owner, PersistContext};

/// What the handles of a session share with its task.
pub(super) struct Session {
    pub context: LoadContext,
    pub owner: Owner,
    pub registry: Arc<Registry>,
    state: Mutex<SessionState>,
    /// Not inside of `state`, so that a change may drop a handle.
    pub handles: AtomicUsize,
    /// Wakes the task when there's something to do.
    pub wake: Notify,
    /// Exists from the first subscriber to the end. Lock it after `state`, never before.
    events: Mutex<Option<broadcast::Sender<Event>>>,
}

pub(super) type Event = Arc<SessionEvent>;

impl Session {
    /// A session with one handle, and without its task.
    pub fn new(registry: &Arc<Registry>, owner: Owner, context: LoadContext, found: Found) -> Arc<Self> {
        let options = Arc::clone(&registry.options);
        let jitter = context.conversation_id.as_bytes()[15];
        let phase = registry.next_phase();
        let state = SessionState::new(options, phase, jitter, found, Instant::now());
        Arc::new(Self {
            context,
            owner,
            registry: Arc::clone(registry),
            state: Mutex::new(state),
            handles: AtomicUsize::new(1),
            wake: Notify::new(),
            events: Mutex::new(None),
        })
    }

    /// Its key in the registry.
    fn key(&self) -> (Key, Uuid) {
        (self.owner.key().clone(), self.context.conversation_id)
    }

    /// Starts the task. A runtime that is shutting down drops it at once, and that calls the registry: no lock of the
    /// registry may be held here.
    pub fn spawn(self: &Arc<Self>) {
        drop(tokio::spawn(SessionTask(Arc::clone(self)).run()));
    }

    /// The state is consistent after a panic, because changes are counted before they're made.
    pub fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts another handle, unless the session ended or is shutting down.
    pub fn open(&self) -> bool {
        let mut state = self.state();
        let opened = state.touch(Instant::now()).is_ok();
        // While the state is locked, the task doesn't end the session.
        let _ = self.handles.fetch_add(usize::from(opened), Ordering::SeqCst);
        opened
    }

    /// Ends the session when everything is stored. The result is received then.
    pub fn shutdown(&self) -> oneshot::Receiver<Result<()>> {
        let (reply, end) = oneshot::channel();
        self.state().shutdown(reply);
        self.wake.notify_one();
        end
    }

    /// Ends the session, because its conversation is gone.
    pub fn delete(&self) {
        self.state().delete(&SessionError::Ended);
        self.wake.notify_one();
    }

    /// Retries without a long delay.
    pub fn retry_soon(&self) {
        if self.state().retry_soon(Instant::now()) {
            self.wake.notify_one();
        }
    }

    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        const MAX_CAPACITY: usize = 65_536;
        let state = self.state();
        if state.has_ended() {
            // A channel without a sender is closed.
            return broadcast::channel(1).1;
        }
        let capacity = self.registry.options.event_capacity.clamp(1, MAX_CAPACITY);
        let mut events = self.events();
        let events = events.get_or_insert_with(|| broadcast::channel(capacity).0);
        events.subscribe()
    }

    pub fn has_subscribers(&self) -> bool {
        self.events().is_some()
    }

    /// The state may be locked.
    pub fn emit(&self, event: SessionEvent) {
        if let Some(events) = &*self.events() {
            // All subscribers may be gone.
            drop(events.send(Arc::new(event)));
        }
    }

    fn events(&self) -> MutexGuard<'_, Option<broadcast::Sender<Event>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_step(&self, has_turn: bool) -> Step {
        let mut state = self.state();
        // Read while the state is locked: `open` can't add a handle to a session that ends.
        let has_handles = self.has_handles();
        state.next_step(Instant::now(), has_handles, has_turn)
    }

    fn has_handles(&self) -> bool {
        self.handles.load(Ordering::SeqCst) > 0
    }

    async fn write(&self, write: &PendingWrite) {
        let delivery = write.message_id().map(|id| self.state().delivery(id));
        let delivery = delivery.unwrap_or_default();
        match self.make(write, delivery).await {
            Ok(mut written) => {
                self.registry.storage_works();
                // Counts and emits before it replies to the caller.
                let mut state = self.state();
                if write.message_id().is_some() {
                    self.registry.count_message();
                }
                if let Some(event) = state.apply(write, &mut written, delivery, Instant::now()) {
                    self.emit(event);
                }
                state.written(write, written);
            }
            Err(error) if self.is_deleted(write, &error).await => self.state().delete(&error),
            Err(error) => {
                let failure = failure(&error);
                let retry_in = self.state().write_failed(write, &error, failure, Instant::now());
                if retry_in.is_none() && write.message_id().is_some() {
                    self.registry.count_refused_message();
                }
                self.report(write.failure(), error, retry_in, write.message_id());
            }
        }
    }

    async fn save(&self, save: Save) {
        let lifecycle = save.lifecycle;
        // A retry has the id of the first try.
        let context = PersistContext { write_id: save.write_id, ..PersistContext::new(&self.context, lifecycle) };
        let storage = &self.registry.storage;
        match storage.persist_state(&self.owner, &save.state, save.expect, &context).await {
            Ok(revision) => {
                self.registry.storage_works();
                // Counts and emits before it replies to the caller.
                let mut state = self.state();
                self.registry.count_save();
                self.emit(SessionEvent::Saved { revision, lifecycle });
                state.save_succeeded(&save, revision);
            }
            Err(error) if is_missing(&error) => self.state().delete(&error),
            Err(error) => self.save_failed(error),
        }
    }

    fn save_failed(&self, error: SessionError) {
        let failure = failure(&error);
        let error = match failure {
            Failure::Conflict { current } if self.state().is_other_conversation(current) => {
                return self.state().delete(&error);
            }
            Failure::Conflict { current } => SessionError::Conflict { current },
            Failure::Permanent | Failure::Transient => error,
        };
        let retry_in = self.state().save_failed(&error, failure, Instant::now());
        self.report("the agent state was not saved", error, retry_in, None);
    }

    /// Waits for the turn to save until this time, or until it's woken. With something to write it doesn't wait, but
    /// writes. The place in the queue is kept for the next call.
    async fn queue<'a>(
        &'a self,
        place: &mut Option<Place<'a>>,
        write: Option<Arc<PendingWrite>>,
        until: Option<Instant>,
    ) -> Option<Turn<'a>> {
        let queued = place.get_or_insert_with(|| Box::pin(self.registry.wait_for_turn()));
        let mut woken = pin!(self.wake_up(until));
        let turn = poll_fn(|cx| match queued.as_mut().poll(cx) {
            Poll::Ready(turn) => Poll::Ready(Some(turn)),
            Poll::Pending if write.is_some() => Poll::Ready(None),
            Poll::Pending => woken.as_mut().poll(cx).map(|()| None),
        });
        let turn = turn.await;
        if turn.is_some() {
            *place = None;
        }
        match (turn, write) {
            (Some(Ok(turn)), _) => return Some(turn),
            (Some(Err(error)), _) => self.save_failed(error),
            (None, Some(write)) => self.write(&write).await,
            (None, None) => {}
        }
        None
    }

    /// Waits until there's something to do.
    async fn wake_up(&self, until: Option<Instant>) {
        match until {
            None => self.wake.notified().await,
            // In both cases the next step is decided again.
            Some(until) => drop(tokio::time::timeout_at(until, self.wake.notified()).await),
        }
    }

    async fn reload(&self) {
        match self.registry.storage.load_state(&self.owner, &self.context).await {
            Ok(loaded) => {
                let has_handles = self.has_handles();
                let reloaded = self.state().reload_succeeded(loaded, Instant::now(), has_handles);
                let Some((revision, unsaved)) = reloaded else {
                    return;
                };
                let (agent_id, number) = (self.context.agent_id.as_str(), revision.0);
                if unsaved.is_some() {
                    tracing::warn!(agent_id, revision = number, "unsaved changes were given up");
                } else {
                    tracing::debug!(agent_id, revision = number, "the agent state was reloaded");
                }
                self.emit(SessionEvent::Reloaded { revision, unsaved });
            }
            Err(error) if is_missing(&error) => self.state().delete(&error),
            Err(error) => {
                let failure = failure(&error);
                let retry_in = self.state().reload_failed(&error, failure, Instant::now());
                self.report("the agent state was not loaded", error, retry_in, None);
            }
        }
    }

    fn report(&self, what: &str, error: SessionError, retry_in: Option<Duration>, message_id: Option<Uuid>) {
        let agent_id = &self.context.agent_id;
        if let Some(retry_in) = retry_in {
            self.registry.storage_fails();
            tracing::warn!(agent_id, %error, ?retry_in, "{what}; it will be retried");
        } else {
            tracing::error!(agent_id, %error, "{what}");
        }
        let conversation_id = self.context.conversation_id;
        self.registry.count_failure(conversation_id, &error);
        self.emit(match error {
            SessionError::Conflict { current } => SessionEvent::Conflict { current },
            error => SessionEvent::Failed { message_id, error, retry_in },
        });
    }
}

/// Dropping it ends the session, also if the storage panicked or the runtime shuts down.
struct SessionTask(Arc<Session>);

impl SessionTask {
    /// Calls of the storage are boxed, so that an idle session doesn't reserve memory for them.
    async fn run(self) {
        let session = &self.0;
        let (mut place, mut turn) = (None, None);
        loop {
            let step = session.next_step(turn.is_some());
            if matches!(step, Step::Wait(_) | Step::Reload) {
                // It has nothing to save now.
                (place, turn) = (None, None);
            }
            match step {
                Step::Wait(until) => session.wake_up(until).await,
                Step::Queue(write, until) => {
                    turn = Box::pin(session.queue(&mut place, write, until)).await;
                }
                Step::Write(write) => Box::pin(session.write(&write)).await,
                Step::Save(save) => {
                    Box::pin(session.save(save)).await;
                    turn = None;
                }
                Step::Reload => Box::pin(session.reload()).await,
                Step::End => return,
            }
        }
    }
}

/// A place in the queue of the sessions that save.
type Place<'a> = Pin<Box<dyn Future<Output = Result<Turn<'a>>> + Send + 'a>>;

impl Drop for SessionTask {
    fn drop(&mut self) {
        let session = &self.0;
        let (unsaved, messages, deleted) = {
            let mut state = session.state();
            let unsaved = state.end();
            let messages = state.writes.unsaved_messages().len();
            (unsaved, messages, state.deleted)
        };
        if unsaved.is_some() || messages > 0 {
            tracing::error!(
                agent_id = session.context.agent_id,
                messages,
                "the session ended before everything was stored"
            );
        }
        session.registry.release(&session.key());
        session.emit(SessionEvent::Ended { unsaved, deleted });
        *session.events() = None;
        session.state().reply_to_shutdowns();
    }
}
