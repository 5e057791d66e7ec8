//! The handle of a session.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::sync::{broadcast, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::super::branch::{Cut, Point};
use super::super::extensions::Extensions;
use super::super::message::Message;
use super::super::persistence::{Lifecycle, Revision, SessionPersistence};
use super::super::state::State;
use super::edits::Edit;
use super::state::SessionState;
use super::task::{Event, Session};
use super::writes::{PendingWrite, Reply, Written};
use super::{AgentPersistence, CancelToken, SessionError, SessionEvent};

/// A handle of a running session. Clones are handles of the same session.
///
/// Only the `async` calls wait for the database. After the session ended, calls that change something
/// return [`SessionError::Ended`].
///
/// **Dropping the last handle** saves the state and ends the session in the background. A process
/// that ends right after may lose unsaved changes, so await [`shutdown`](Self::shutdown), or
/// [`Coordinator::shutdown`](super::Coordinator::shutdown) before `main` returns.
pub struct AgentSession<P: SessionPersistence> {
    session: Arc<Session<P>>,
}

pub(super) type Result<T, P> = std::result::Result<T, SessionError<<P as AgentPersistence>::Error>>;
type WriteReply<P> =
    Reply<Written<<P as SessionPersistence>::DisplayMessage>, <P as AgentPersistence>::Error>;

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
        let has_subscribers = self.session.has_subscribers();
        let todos = has_subscribers.then(|| state.agent_state.todos.clone());
        let result = state.change(change);
        let is_same = todos.is_none_or(|todos| todos == state.agent_state.todos);
        if !is_same {
            let todos = state.agent_state.todos.clone();
            self.session.emit(SessionEvent::Todos { todos });
        }
        Ok(result)
    }

    /// Appends a message to the agent state, saves it, stores its display messages, and returns them.
    /// Call it for what a person sends.
    ///
    /// Repeated with the same id, it stores nothing twice. If another process saved the agent state,
    /// the session reloads it and tries again, unless that would lose
    /// [changes](Self::change) and [`OnConflict::Report`](super::OnConflict::Report) forbids it.
    ///
    /// # Errors
    ///
    /// [`SessionError::Conflict`] as described, [`SessionError::Storage`] if the failure is permanent:
    /// the message is neither in the agent state nor displayed. If the failure is transient, also
    /// [`SessionError::TimedOut`], the session keeps the message and retries; a call with the same
    /// id waits for it again. [`SessionError::Ended`] if the session has ended.
    pub async fn send(
        &self,
        message_id: Uuid,
        message: Message,
    ) -> Result<Vec<P::DisplayMessage>, P> {
        self.ask(
            |session, reply| session.send(message_id, message, reply),
            |written| match written {
                Written::Items(items) => Some(items),
                _ => None,
            },
        )
        .await
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
    /// Use [`send`](Self::send) for a message that must not get lost, and [`change`](Self::change)
    /// for messages that are not displayed. If the process is killed before the state is saved, the
    /// display messages become [unknown](super::super::Delivery::Unknown).
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is added then.
    pub fn add_message(&self, message: Message) -> Result<Uuid, P> {
        let id = Uuid::now_v7();
        self.add_message_with_id(id, message)?;
        Ok(id)
    }

    /// As [`add_message`](Self::add_message), with the id of the message, for example that of its
    /// [partial](Self::partial) form. A message that the agent state has is not added again.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is added then.
    pub fn add_message_with_id(&self, message_id: Uuid, message: Message) -> Result<(), P> {
        self.update(|session| session.add_message(message_id, message))
    }

    /// Reports what the model has written of a message so far. Subscribers get it at once, and it is
    /// stored as a draft at [intervals](super::SessionOptions::draft_interval). The whole message,
    /// added with the same id, replaces it.
    ///
    /// Every event contains the message so far, so call it some times a second and not for every
    /// token.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn partial(&self, message_id: Uuid, message: Message) -> Result<(), P> {
        let message = Arc::new(message);
        self.update(|session| {
            self.session.emit(SessionEvent::Partial {
                message_id,
                message: Arc::clone(&message),
            });
            session.partial(message_id, message);
        })
    }

    /// Stores the display messages of a message that is not added to the agent state. The same id
    /// is stored once, even if another process uses it too.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is stored then.
    pub fn display(&self, message_id: Uuid, message: Message) -> Result<(), P> {
        self.update(|session| session.display(message_id, Arc::new(message)))
    }

    /// Gives subscribers an event of the application's own, in order with the others.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn emit(&self, data: Value) -> Result<(), P> {
        self.update(|_| self.session.emit(SessionEvent::Application { data }))
    }

    /// Reports that the agent finished its work. Its run ends.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn completed(&self) -> Result<(), P> {
        self.update(|session| session.stopped(Lifecycle::Completion))
    }

    /// Reports that a user stopped the agent. Its run ends.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn cancelled(&self) -> Result<(), P> {
        self.update(|session| session.stopped(Lifecycle::Cancel))
    }

    /// Reports that the agent failed. Its run ends.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn failed(&self) -> Result<(), P> {
        self.update(|session| session.stopped(Lifecycle::Error))
    }

    /// Reports that the agent waits for a person's decision. The data is kept in
    /// [`State::interrupt_data`], also by a session that is started after a restart, until the agent
    /// [continues](Self::resumed) or stops. The conversation is marked as interrupted, and its run as
    /// [waiting](super::super::RunStatus::Waiting).
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn interrupted(&self, data: Value) -> Result<(), P> {
        self.update(|session| session.interrupt(data))
    }

    /// Reports that the agent continues after an interrupt.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn resumed(&self) -> Result<(), P> {
        self.update(SessionState::resume)
    }

    /// Sets the title of the conversation, in its row and in the agent state.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn title_generated(&self, title: impl Into<String>) -> Result<(), P> {
        let title = title.into();
        self.update(|session| {
            let _ = session.edit(Edit::Title(title.clone()));
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

    /// Replaces the agent state by the stored one, for example after a [`SessionError::Conflict`].
    /// Messages that were [added](Self::add_message) and not saved are appended to it, because they
    /// are displayed, but not the results of tool calls that it does not have. Returns the old state if
    /// it had other unsaved changes.
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

    /// Takes back what is after a point: from the agent state, from the display messages and from the
    /// pages of readers. The agent has to stop first: its run ends as cancelled, also one in another
    /// process. Everything that is pending is stored before. If the point is between a tool call and
    /// its result, the conversation is cut before the call.
    ///
    /// # Errors
    ///
    /// As [`save`](Self::save), and [`SessionError::Storage`] if there is no such message. After a
    /// transient failure, also [`SessionError::TimedOut`], it is not known whether the conversation was
    /// rewound; the session loads what is stored.
    pub async fn rewind(&self, to: Point) -> Result<Cut, P> {
        // What the agent works on is taken back.
        self.cancelled()?;
        let _ = self.save().await?;
        self.ask(
            |session, reply| session.writes.push(PendingWrite::Rewind(to), Some(reply)),
            |written| match written {
                Written::Rewound(rewound) => Some(rewound.cut),
                _ => None,
            },
        )
        .await
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

    /// Asks the session for something to be stored, and waits for the result.
    pub(super) async fn ask<T>(
        &self,
        ask: impl FnOnce(&mut SessionState<P::DisplayMessage, P::Error>, WriteReply<P>),
        take: impl FnOnce(Written<P::DisplayMessage>) -> Option<T>,
    ) -> Result<T, P> {
        let (reply, result) = oneshot::channel();
        self.update(|session| ask(session, reply))?;
        let written = result.await.unwrap_or(Err(SessionError::Ended))?;
        take(written).ok_or(SessionError::Ended)
    }

    /// Updates the state of the session, and wakes the task.
    pub(super) fn update<R>(
        &self,
        update: impl FnOnce(&mut SessionState<P::DisplayMessage, P::Error>) -> R,
    ) -> Result<R, P> {
        let result = update(self.session.state().touch(Instant::now())?);
        self.session.wake.notify_one();
        Ok(result)
    }

    pub(super) fn run_token(&self, run_id: Uuid) -> CancelToken {
        self.session.state().runs.token(run_id)
    }

    /// Also while the session is shutting down.
    pub(super) fn release_run(&self, run_id: Uuid, is_known: bool) {
        self.session.state().release_run(run_id, is_known);
        self.session.wake.notify_one();
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
