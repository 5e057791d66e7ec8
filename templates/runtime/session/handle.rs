//! The handle of a session.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::sync::{broadcast, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::super::extensions::Extensions;
use super::super::message::Message;
use super::super::persistence::{Lifecycle, Revision, SessionPersistence};
use super::super::state::State;
use super::state::{PendingWrite, SessionState};
use super::task::{Event, Session};
use super::{AgentPersistence, SessionError};

/// The key of the title in the metadata of the agent state.
const TITLE: &str = "conversation_title";

/// A handle of a running session. Clones are handles of the same session.
///
/// Only [`save`](Self::save), [`reload`](Self::reload) and [`shutdown`](Self::shutdown) wait for the
/// database. After the session ended, calls that change something return [`SessionError::Ended`].
///
/// **Dropping the last handle** saves the state and ends the session in the background. A process
/// that ends right after may lose unsaved changes, so await [`shutdown`](Self::shutdown), or
/// [`Coordinator::shutdown`](super::Coordinator::shutdown) before `main` returns.
pub struct AgentSession<P: SessionPersistence> {
    session: Arc<Session<P>>,
}

type Result<T, P> = std::result::Result<T, SessionError<<P as AgentPersistence>::Error>>;

impl<P: SessionPersistence> AgentSession<P> {
    /// A handle that the session has counted.
    pub(super) fn new(session: Arc<Session<P>>) -> Self {
        Self { session }
    }

    /// Another handle, unless the session ended or is shutting down.
    pub(super) fn open(session: &Arc<Session<P>>) -> Option<Self> {
        session.open().then(|| Self::new(Arc::clone(session)))
    }

    /// The conversation of the session.
    #[must_use]
    pub fn conversation_id(&self) -> Uuid {
        self.session.context.conversation_id
    }

    /// The id in logs and in [`State::agent_id`].
    #[must_use]
    pub fn agent_id(&self) -> &str {
        &self.session.context.agent_id
    }

    /// Reads the agent state. It works on a snapshot, so other callers do not wait.
    pub fn read<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        let state = self.session.state().agent_state(Instant::now());
        read(&state)
    }

    /// A copy of the agent state.
    #[must_use]
    pub fn export_state(&self) -> State {
        self.read(State::clone)
    }

    /// Whether everything is stored.
    #[must_use]
    pub fn is_saved(&self) -> bool {
        self.session.state().is_saved()
    }

    /// Changes the agent state. The next save stores the change; see
    /// [`AutoSave`](super::AutoSave). Use [`change_extensions`](Self::change_extensions) for values of
    /// the process.
    ///
    /// It does not wait for a save in progress: the first change during one copies the state, but
    /// not the messages. All other callers wait for the change, so it must be short, and it must not
    /// use this session or its coordinator. If it panics, its changes up to there stay.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is changed then.
    pub fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> Result<R, P> {
        let mut state = self.session.state();
        let state = state.touch(Instant::now())?;
        if !state.is_save_scheduled() {
            self.session.wake.notify_one();
        }
        Ok(state.change(change))
    }

    /// Changes the [extensions](State::extensions) of the agent state. They are not stored, so this
    /// causes no save.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is changed then.
    pub fn change_extensions<R>(&self, change: impl FnOnce(&mut Extensions) -> R) -> Result<R, P> {
        let mut state = self.session.state();
        Ok(state.touch(Instant::now())?.change_extensions(change))
    }

    /// Appends a message to the agent state, stores its display messages at once, and returns the
    /// id of the message, which is the same in both.
    ///
    /// Use [`change`](Self::change) for messages that are not displayed.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is added then.
    pub fn add_message(&self, message: Message) -> Result<Uuid, P> {
        let id = Uuid::now_v7();
        self.update(|session| {
            session.change(|state| state.messages.push_with_id(id, message.clone()));
            session.write(PendingWrite::Message { id, message });
            id
        })
    }

    /// Stores the display messages of a message that is not added to the agent state. The same id
    /// is stored once, even if another process uses it too.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is stored then.
    pub fn display(&self, message_id: Uuid, message: Message) -> Result<(), P> {
        let id = message_id;
        self.update(|session| session.write(PendingWrite::Message { id, message }))
    }

    /// Reports that the agent finished its work.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn completed(&self) -> Result<(), P> {
        self.stopped(Lifecycle::Completion)
    }

    /// Reports that a user stopped the agent.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn cancelled(&self) -> Result<(), P> {
        self.stopped(Lifecycle::Cancel)
    }

    /// Reports that the agent failed.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn failed(&self) -> Result<(), P> {
        self.stopped(Lifecycle::Error)
    }

    /// Reports that the agent waits for a person's decision. The data is kept in
    /// [`State::interrupt_data`] and not stored; the conversation is marked as interrupted.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn interrupted(&self, data: Value) -> Result<(), P> {
        let save = self.session.registry.options.auto_save.on_interrupt;
        self.update(|session| {
            session.set_interrupt(Some(data));
            if save {
                session.request_save(Lifecycle::Interrupt);
            }
        })
    }

    /// Reports that the agent continues after an interrupt.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn resumed(&self) -> Result<(), P> {
        self.update(|session| session.set_interrupt(None))
    }

    /// Sets the title of the conversation, in its row and in the agent state.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn title_generated(&self, title: impl Into<String>) -> Result<(), P> {
        let title = title.into();
        self.update(|session| {
            session.change(|state| state.put_metadata(TITLE, title.clone()));
            session.write(PendingWrite::Title(title));
            session.request_save(Lifecycle::TitleGenerated);
        })
    }

    /// Stores everything that is not stored yet, and returns when it is: the agent state as it is
    /// now, and the display messages of all messages so far. Messages that failed permanently were
    /// reported before and do not fail it.
    ///
    /// # Errors
    ///
    /// [`SessionError::Conflict`] if another process saved the state, or it was
    /// [reloaded](Self::reload) in between. [`SessionError::Storage`] or [`SessionError::TimedOut`]
    /// if this try failed; the session retries it if the failure is transient.
    /// [`SessionError::Ended`] if the session has ended.
    pub async fn save(&self) -> Result<Revision, P> {
        let (reply, result) = oneshot::channel();
        self.update(|session| session.save(reply))?;
        result.await.unwrap_or(Err(SessionError::Ended))
    }

    /// Replaces the agent state by the stored one, for example after a [`SessionError::Conflict`],
    /// and returns the old one if it had unsaved changes.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] or [`SessionError::TimedOut`] if the stored state could not be
    /// loaded; nothing is replaced then. [`SessionError::Ended`] if the session has ended.
    pub async fn reload(&self) -> Result<Option<Arc<State>>, P> {
        let (reply, result) = oneshot::channel();
        self.update(|session| session.reload(reply))?;
        result.await.unwrap_or(Err(SessionError::Ended))
    }

    /// Receives the events from now on. The channel closes when the session ends. A subscriber that
    /// [lags behind](super::SessionOptions::event_capacity) receives how many events it missed.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Event<P>> {
        self.session.subscribe()
    }

    /// Saves everything and ends the session, also for other handles. Transient failures are
    /// retried for as long as it takes; a `tokio::time::timeout` around this call stops the waiting,
    /// not the retries.
    ///
    /// # Errors
    ///
    /// [`SessionError::Conflict`] if another process saved the state, [`SessionError::Storage`] if
    /// the failure is permanent, also that of an earlier display message.
    /// [`export_state`](Self::export_state) still returns the state.
    pub async fn shutdown(&self) -> Result<(), P> {
        let end = self.session.shutdown();
        end.await.unwrap_or(Err(SessionError::Ended))
    }

    fn stopped(&self, lifecycle: Lifecycle) -> Result<(), P> {
        let save = self.session.registry.options.auto_save.on_idle;
        self.update(|session| {
            session.set_interrupt(None);
            if save {
                session.request_save(lifecycle);
            }
        })
    }

    /// Updates the state of the session, and wakes the task.
    fn update<R>(&self, update: impl FnOnce(&mut SessionState<P::Error>) -> R) -> Result<R, P> {
        let result = update(self.session.state().touch(Instant::now())?);
        self.session.wake.notify_one();
        Ok(result)
    }
}

impl<P: SessionPersistence> Clone for AgentSession<P> {
    fn clone(&self) -> Self {
        let _ = self.session.handles.fetch_add(1, Ordering::SeqCst);
        Self::new(Arc::clone(&self.session))
    }
}

impl<P: SessionPersistence> Drop for AgentSession<P> {
    fn drop(&mut self) {
        // The running task saves it: a task that is spawned in a `drop` may never run.
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
