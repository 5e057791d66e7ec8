//! A session and the task that keeps it: whatever is stored, is stored there, one thing after the
//! other.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

use super::super::persistence::{Expect, Failure, LoadContext, PersistContext, SessionPersistence};
use super::super::state::State;
use super::ledger::{Ledger, Note, Save, Step};
use super::registry::Registry;
use super::{SessionError, SessionEvent};

/// What the handles of a session share with the task that keeps it.
pub(super) struct Session<P: SessionPersistence> {
    pub context: LoadContext,
    pub owner: P::Owner,
    scope: Arc<P::Scope>,
    pub registry: Arc<Registry<P>>,
    ledger: Mutex<Ledger<P::Error>>,
    /// Counted outside of the ledger, so that a change may drop a handle.
    pub handles: AtomicUsize,
    /// Wakes the task when there is something to do.
    pub wake: Notify,
    /// There from the first subscriber to the end. Locked after the ledger, if at all.
    events: Mutex<Option<broadcast::Sender<Event<P>>>>,
}

/// What subscribers receive.
pub(super) type Event<P> = Arc<
    SessionEvent<<P as SessionPersistence>::DisplayMessage, <P as super::AgentPersistence>::Error>,
>;

impl<P: SessionPersistence> Session<P> {
    /// A session for one handle. It stores nothing until it is [kept](Self::keep).
    pub fn new(
        registry: &Arc<Registry<P>>,
        scope: Arc<P::Scope>,
        owner: P::Owner,
        context: LoadContext,
        start: (State, Expect),
    ) -> Arc<Self> {
        let options = Arc::clone(&registry.options);
        let salt = context.conversation_id.as_bytes()[15];
        Arc::new(Self {
            context,
            owner,
            scope,
            registry: Arc::clone(registry),
            ledger: Mutex::new(Ledger::new(options, salt, start, Instant::now())),
            handles: AtomicUsize::new(1),
            wake: Notify::new(),
            events: Mutex::new(None),
        })
    }

    /// Begins the task that keeps it. A runtime that shuts down drops it at once, which ends the
    /// session: no lock of the registry's may be held here.
    pub fn keep(self: &Arc<Self>) {
        tokio::spawn(Keeper(Arc::clone(self)).keep());
    }

    /// The books. A change that panicked has been counted, so they are in order.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger<P::Error>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn subscribe(&self) -> broadcast::Receiver<Event<P>> {
        const MOST: usize = 65_536;
        let ledger = self.ledger();
        if ledger.has_ended() {
            // There is nothing to receive.
            return broadcast::channel(1).1;
        }
        let capacity = self.registry.options.event_capacity.clamp(1, MOST);
        let mut events = self.events();
        let events = events.get_or_insert_with(|| broadcast::channel(capacity).0);
        events.subscribe()
    }

    fn tell(&self, event: SessionEvent<P::DisplayMessage, P::Error>) {
        if let Some(events) = &*self.events() {
            // Nobody may be listening any more.
            let _ = events.send(Arc::new(event));
        }
    }

    fn events(&self) -> MutexGuard<'_, Option<broadcast::Sender<Event<P>>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another handle, unless the session has ended or was told to.
    pub fn open(&self) -> bool {
        let mut ledger = self.ledger();
        let opened = ledger.used(Instant::now()).is_ok();
        // While the ledger is locked, nobody finds that there is none.
        self.handles
            .fetch_add(usize::from(opened), Ordering::SeqCst);
        opened
    }

    fn step(&self) -> Step {
        let mut ledger = self.ledger();
        ledger.next(Instant::now(), self.is_held())
    }

    fn is_held(&self) -> bool {
        self.handles.load(Ordering::SeqCst) > 0
    }

    async fn write(&self, note: &Note) {
        let stored = match note {
            Note::Message { id, message } => {
                let call = self.registry.persistence.save_message(
                    &self.scope,
                    &self.context,
                    *id,
                    message,
                );
                let call = self.in_time(call).await;
                call.map(|items| Some((*id, items)))
            }
            Note::Title(title) => {
                let storage = &self.registry.persistence;
                let call = storage.set_title(&self.scope, &self.context, title);
                self.in_time(call).await.map(|()| None)
            }
            Note::Interrupted(interrupted) => {
                let storage = &self.registry.persistence;
                let call = storage.set_interrupted(&self.scope, &self.context, *interrupted);
                self.in_time(call).await.map(|()| None)
            }
        };
        match stored {
            Ok(message) => {
                // Whoever waits for it finds it counted and told.
                let mut ledger = self.ledger();
                if let Some((message_id, items)) = message {
                    self.registry.counters.message();
                    self.tell(SessionEvent::Displayed { message_id, items });
                }
                ledger.noted();
            }
            Err(error) => {
                let failure = failure::<P>(&error);
                let retry_in = self.ledger().note_failed(&error, failure, Instant::now());
                let what = match note {
                    Note::Message { .. } => "a message was not stored for display",
                    Note::Title(_) => "the conversation's title was not stored",
                    Note::Interrupted(_) => "whether the agent waits for a person was not stored",
                };
                self.report(what, error, retry_in, note.message_id());
            }
        }
    }

    async fn save(&self, save: Save) {
        // Not a new context: a save that is repeated has the id that it had.
        let context = PersistContext {
            agent_id: self.context.agent_id.clone(),
            conversation_id: self.context.conversation_id,
            lifecycle: save.lifecycle,
            write_id: save.write_id,
        };
        let storage = &self.registry.persistence;
        let call = storage.persist_state(&self.scope, &save.state, save.expect, &context);
        match self.in_time(call).await {
            Ok(revision) => {
                let mut ledger = self.ledger();
                self.registry.counters.save();
                let lifecycle = save.lifecycle;
                self.tell(SessionEvent::Saved {
                    revision,
                    lifecycle,
                });
                ledger.saved(&save, revision);
            }
            Err(error) => {
                let failure = failure::<P>(&error);
                let error = match failure {
                    Failure::Conflict { current } => SessionError::Conflict { current },
                    Failure::Lasting | Failure::Passing => error,
                };
                let retry_in = self.ledger().save_failed(&error, failure, Instant::now());
                self.report("the agent's state was not saved", error, retry_in, None);
            }
        }
    }

    async fn reload(&self) {
        let storage = &self.registry.persistence;
        let call = storage.load_state(&self.scope, &self.context);
        match self.in_time(call).await {
            Ok(loaded) => {
                let is_held = self.is_held();
                let reloaded = self.ledger().reloaded(loaded, Instant::now(), is_held);
                let Some((revision, unsaved)) = reloaded else {
                    return;
                };
                tracing::warn!(
                    agent_id = self.context.agent_id,
                    revision = revision.0,
                    replaced = unsaved.is_some(),
                    "the agent's state was loaded again"
                );
                self.tell(SessionEvent::Reloaded { revision, unsaved });
            }
            Err(error) => {
                let failure = failure::<P>(&error);
                let retry_in = self.ledger().reload_failed(&error, failure, Instant::now());
                self.report("the agent's state was not loaded", error, retry_in, None);
            }
        }
    }

    /// What the storage answers, unless it takes too long.
    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, P::Error>> + Send,
    ) -> Result<T, SessionError<P::Error>> {
        match tokio::time::timeout(self.registry.options.timeout, call).await {
            Ok(answer) => answer.map_err(SessionError::from),
            Err(_) => Err(SessionError::TimedOut),
        }
    }

    fn report(
        &self,
        what: &str,
        error: SessionError<P::Error>,
        retry_in: Option<Duration>,
        message_id: Option<uuid::Uuid>,
    ) {
        let agent_id = &self.context.agent_id;
        if let Some(pause) = retry_in {
            tracing::warn!(agent_id, %error, ?pause, "{what}; it will be tried again");
        } else {
            tracing::error!(agent_id, %error, "{what}");
        }
        let counters = &self.registry.counters;
        counters.failure(self.context.conversation_id, &error);
        self.tell(SessionEvent::Failed {
            message_id,
            error,
            retry_in,
        });
    }
}

fn failure<P: SessionPersistence>(error: &SessionError<P::Error>) -> Failure {
    match error {
        SessionError::Storage(error) => P::failure(error),
        SessionError::TimedOut => Failure::Passing,
        SessionError::Conflict { current } => Failure::Conflict { current: *current },
        SessionError::Ended => Failure::Lasting,
    }
}

/// The task of a session. When it goes, the session has ended: also if the storage panicked, or the
/// runtime shuts down.
struct Keeper<P: SessionPersistence>(Arc<Session<P>>);

impl<P: SessionPersistence> Keeper<P> {
    /// Calls to the storage are boxed: a session that rests needs no room for them.
    async fn keep(self) {
        let session = &self.0;
        loop {
            let step = session.step();
            match step {
                Step::Wait(None) => session.wake.notified().await,
                Step::Wait(Some(until)) => {
                    // Either way there is something to look at.
                    let _ = tokio::time::timeout_at(until, session.wake.notified()).await;
                }
                Step::Note(note) => Box::pin(session.write(&note)).await,
                Step::Save(save) => Box::pin(session.save(save)).await,
                Step::Reload => Box::pin(session.reload()).await,
                Step::End => return,
            }
        }
    }
}

impl<P: SessionPersistence> Drop for Keeper<P> {
    fn drop(&mut self) {
        let session = &self.0;
        let (unsaved, messages) = {
            let mut ledger = session.ledger();
            (ledger.end(), ledger.unsaved_messages().len())
        };
        if unsaved.is_some() || messages > 0 {
            tracing::error!(
                agent_id = session.context.agent_id,
                messages,
                "the session ended before everything was stored"
            );
        }
        session
            .registry
            .release(&session.owner, session.context.conversation_id);
        session.tell(SessionEvent::Ended { unsaved });
        *session.events() = None;
        session.ledger().tell_ended();
    }
}
