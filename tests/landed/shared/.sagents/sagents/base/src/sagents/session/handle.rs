//! What an application holds of a session.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::sync::{broadcast, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::super::message::Message;
use super::super::persistence::{Lifecycle, Revision, SessionPersistence};
use super::super::state::State;
use super::SessionError;
use super::keeper::{Event, Session};
use super::ledger::{Ledger, Note};

/// The key under which an agent keeps its conversation's title.
const TITLE: &str = "conversation_title";

/// A running session: an agent's state that saves itself. Clones are handles of the same session.
///
/// No call but [`save`](Self::save), [`reload`](Self::reload) and [`shutdown`](Self::shutdown)
/// waits for the database. After the session has ended, calls that would change something answer
/// [`SessionError::Ended`].
///
/// **Dropping the last handle** saves the state and ends the session, in the background. That needs
/// a runtime that lives on: a process that ends right after loses what was not saved. So await
/// [`shutdown`](Self::shutdown), or [`Coordinator::shutdown`](super::Coordinator::shutdown) before
/// `main` returns.
pub struct AgentSession<P: SessionPersistence> {
    session: Arc<Session<P>>,
}

type Result<T, P> = std::result::Result<T, SessionError<<P as super::AgentPersistence>::Error>>;

impl<P: SessionPersistence> AgentSession<P> {
    /// The first handle, which the session counts from its beginning.
    pub(super) fn of(session: Arc<Session<P>>) -> Self {
        Self { session }
    }

    /// Another handle, unless the session has ended or was told to.
    pub(super) fn open(session: &Arc<Session<P>>) -> Option<Self> {
        session.open().then(|| Self::of(Arc::clone(session)))
    }

    /// The conversation that it keeps.
    #[must_use]
    pub fn conversation_id(&self) -> Uuid {
        self.session.context.conversation_id
    }

    /// The running agent.
    #[must_use]
    pub fn agent_id(&self) -> &str {
        &self.session.context.agent_id
    }

    /// Looks at what the agent knows.
    pub fn read<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        let state = {
            let mut ledger = self.session.ledger();
            ledger.look(Instant::now())
        };
        read(&state)
    }

    /// What the agent knows now, to be kept elsewhere.
    #[must_use]
    pub fn export_state(&self) -> State {
        self.read(State::clone)
    }

    /// Whether everything is stored.
    #[must_use]
    pub fn is_saved(&self) -> bool {
        self.session.ledger().is_saved()
    }

    /// Changes what the agent knows. The change is saved with the next save; see
    /// [`AutoSave`](super::AutoSave).
    ///
    /// It never waits for a save: one that is under way keeps the state that it has, which costs
    /// the first change meanwhile a copy. Everybody else waits for the change, so it must be short
    /// and must not use this session or its coordinator. If it panics, what it did so far stays.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is changed then.
    pub fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> Result<R, P> {
        let mut ledger = self.session.ledger();
        let ledger = ledger.used(Instant::now())?;
        if !ledger.is_expected() {
            // The task has to know when to save. Of more changes it need not know.
            self.session.wake.notify_one();
        }
        Ok(ledger.change(change))
    }

    /// Adds a message to what the agent knows, and stores what it shows to a person at once. The
    /// answer is the id of the message.
    ///
    /// Messages that nobody is to see are added by [`change`](Self::change).
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is added then.
    pub fn add_message(&self, message: Message) -> Result<Uuid, P> {
        let id = Uuid::now_v7();
        self.act(|ledger| {
            ledger.change(|state| state.add_message(message.clone()));
            ledger.note(Note::Message { id, message });
            id
        })
    }

    /// Stores what a message shows to a person and leaves what the agent knows alone. With the same
    /// id it is stored once, also by another process.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is stored then.
    pub fn display(&self, message_id: Uuid, message: Message) -> Result<(), P> {
        let id = message_id;
        self.act(|ledger| ledger.note(Note::Message { id, message }))
    }

    /// The agent has done its work.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn completed(&self) -> Result<(), P> {
        self.stopped(Lifecycle::Completion)
    }

    /// A user stopped the agent.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn cancelled(&self) -> Result<(), P> {
        self.stopped(Lifecycle::Cancel)
    }

    /// The agent failed.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn failed(&self) -> Result<(), P> {
        self.stopped(Lifecycle::Error)
    }

    /// The agent waits for a person. What it waits for is kept with the state, but not stored; the
    /// conversation says that there is something.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn interrupted(&self, data: Value) -> Result<(), P> {
        let save = self.session.registry.options.auto_save.on_interrupt;
        self.act(|ledger| {
            ledger.set_interrupt(Some(data));
            if save {
                ledger.ask(Lifecycle::Interrupt);
            }
        })
    }

    /// The agent goes on after it waited for a person.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn resumed(&self) -> Result<(), P> {
        self.act(|ledger| ledger.set_interrupt(None))
    }

    /// The conversation was given a title: both the agent and the conversation have it.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn title_generated(&self, title: impl Into<String>) -> Result<(), P> {
        let title = title.into();
        self.act(|ledger| {
            ledger.change(|state| state.put_metadata(TITLE, title.clone()));
            ledger.note(Note::Title(title));
            ledger.ask(Lifecycle::TitleGenerated);
        })
    }

    /// Stores everything that is not stored yet, and answers when it is: the state as it is now,
    /// and what every message so far shows. A message that the storage will never have does not keep
    /// others back; it was reported when that turned out.
    ///
    /// # Errors
    ///
    /// [`SessionError::Conflict`] if somebody else saved the state, or it was
    /// [reloaded](Self::reload) meanwhile. [`SessionError::Storage`] or [`SessionError::TimedOut`] if
    /// this try failed; the session goes on trying, unless that would not help.
    /// [`SessionError::Ended`] if the session has ended.
    pub async fn save(&self) -> Result<Revision, P> {
        let (reply, answer) = oneshot::channel();
        self.act(|ledger| ledger.save(reply))?;
        answer.await.unwrap_or(Err(SessionError::Ended))
    }

    /// Takes over what is stored, for example after a [`SessionError::Conflict`]. The answer is what
    /// that replaced, if it was not stored.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] or [`SessionError::TimedOut`] if it cannot be read; the state is as
    /// it was then. [`SessionError::Ended`] if the session has ended.
    pub async fn reload(&self) -> Result<Option<Arc<State>>, P> {
        let (reply, answer) = oneshot::channel();
        self.act(|ledger| ledger.reload(reply))?;
        answer.await.unwrap_or(Err(SessionError::Ended))
    }

    /// What is stored from now on, what fails, and the end, as it happens. After the end there is
    /// nothing more to receive. Somebody who falls
    /// [behind](super::SessionOptions::event_capacity) is told how much they missed.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Event<P>> {
        self.session.subscribe()
    }

    /// Saves everything and ends the session, also for other handles. While the database fails, it
    /// waits and tries again; a `tokio::time::timeout` around it stops the waiting, not the trying.
    ///
    /// # Errors
    ///
    /// [`SessionError::Conflict`] if somebody else saved the state, [`SessionError::Storage`] if the
    /// storage will not have it. [`export_state`](Self::export_state) still answers it.
    pub async fn shutdown(&self) -> Result<(), P> {
        let (reply, answer) = oneshot::channel();
        self.session.ledger().close(reply);
        self.session.wake.notify_one();
        answer.await.unwrap_or(Err(SessionError::Ended))
    }

    fn stopped(&self, lifecycle: Lifecycle) -> Result<(), P> {
        let save = self.session.registry.options.auto_save.on_idle;
        self.act(|ledger| {
            ledger.set_interrupt(None);
            if save {
                ledger.ask(lifecycle);
            }
        })
    }

    /// Writes into the books, and wakes the task: there is something to do at once.
    fn act<R>(&self, act: impl FnOnce(&mut Ledger<P::Error>) -> R) -> Result<R, P> {
        let result = act(self.session.ledger().used(Instant::now())?);
        self.session.wake.notify_one();
        Ok(result)
    }
}

impl<P: SessionPersistence> Clone for AgentSession<P> {
    fn clone(&self) -> Self {
        self.session.handles.fetch_add(1, Ordering::SeqCst);
        Self::of(Arc::clone(&self.session))
    }
}

impl<P: SessionPersistence> Drop for AgentSession<P> {
    fn drop(&mut self) {
        // The task is there already: one that is spawned here might never run.
        if self.session.handles.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.session.wake.notify_one();
        }
    }
}

impl<P: SessionPersistence> fmt::Debug for AgentSession<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSession")
            .field("agent_id", &self.agent_id())
            .field("is_saved", &self.is_saved())
            .finish_non_exhaustive()
    }
}
