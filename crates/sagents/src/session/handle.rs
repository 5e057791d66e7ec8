//! The handle of a session.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::sync::{broadcast, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::edits::Edit;
use super::state::SessionState;
use super::task::{Event, Session};
use super::writes::{PendingWrite, Reply, Written};
use super::{CancelToken, Result, SessionError, SessionEvent};
use crate::{Cut, DisplayMessage, Extensions, Lifecycle, Message, Point, Revision, State};

/// A handle of a running session. Clones are handles of the same session.
///
/// Only the `async` calls wait for the database. Once the session has ended, calls that change something return
/// [`SessionError::Ended`]. If the [persistence](super::Coordinator::with_persistence) stores agent states only, calls
/// that need display messages, tool calls or stored runs return [`SessionError::StateOnly`].
///
/// **Dropping the last handle** saves the state and ends the session in the background. A process that ends right after may
/// lose unsaved changes, so await [`shutdown`](Self::shutdown), or
/// [`Coordinator::shutdown`](super::Coordinator::shutdown) before `main` returns.
pub struct AgentSession {
    pub(super) session: Arc<Session>,
}

impl AgentSession {
    /// A handle that the session has counted.
    pub(super) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }

    /// Another handle, unless the session ended or is shutting down.
    pub(super) fn open(session: &Arc<Session>) -> Option<Self> {
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

    /// Reads the agent state. It works on a snapshot, so it doesn't block other callers.
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

    /// Changes the agent state. The next save stores the change; see [`AutoSave`](super::AutoSave). For values of the
    /// process, use [`change_extensions`](Self::change_extensions).
    ///
    /// It doesn't wait for a save in progress: the first change during one copies the state, but not the messages. All
    /// other callers wait for the change, so it must be short, and it must not use this session or its coordinator. If
    /// it panics, the changes it has made stay.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is changed then.
    pub fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> Result<R> {
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

    /// Changes the [extensions](State::extensions) of the agent state. They aren't stored, so this causes no save.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is changed then.
    pub fn change_extensions<R>(&self, change: impl FnOnce(&mut Extensions) -> R) -> Result<R> {
        let mut state = self.session.state();
        Ok(state.touch(Instant::now())?.change_extensions(change))
    }

    /// Appends a message to the agent state, saves it, stores its display messages, and returns them. Call it for
    /// messages that people send.
    ///
    /// It's idempotent: a message with this id is stored once. If another process saved the agent state, the session
    /// reloads it and tries again, unless that would lose [changes](Self::change) and
    /// [`OnConflict::Report`](super::OnConflict::Report) forbids it.
    ///
    /// # Errors
    ///
    /// [`SessionError::Conflict`] as described, [`SessionError::Storage`] if the failure is permanent: the message is
    /// then neither in the agent state nor displayed. If the failure is transient ([`SessionError::TimedOut`], too),
    /// the session keeps the message and retries; a call with the same id waits for it again.
    pub async fn send_message(&self, message_id: Uuid, message: Message) -> Result<Vec<DisplayMessage>> {
        self.ask(
            |session, reply| session.send_message(message_id, message, reply),
            |written| match written {
                Written::Items(items) => Some(items),
                _ => None,
            },
        )
        .await
    }

    /// Appends a message to the agent state and stores its display messages at once, without waiting. The id is that of
    /// a [draft](Self::save_draft), which the message replaces, or a new one. A message that the agent state has isn't
    /// added again.
    ///
    /// For a message that must not get lost, use [`send_message`](Self::send_message); for one that isn't displayed,
    /// [`change`](Self::change). If the process is killed before the state is saved, the display messages become
    /// [unknown](crate::Delivery::Unknown).
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is added then.
    pub fn add_message(&self, message_id: Uuid, message: Message) -> Result<()> {
        self.update_rows(|session| session.add_message(message_id, message))
    }

    /// Reports what the model has written of a message so far. Subscribers get it at once, and it's stored as a draft
    /// at [intervals](super::SessionOptions::draft_interval). [`add_message`](Self::add_message) with the same id
    /// replaces it with the whole message.
    ///
    /// Every event contains the message so far, so call it a few times a second and not for every token.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn save_draft(&self, message_id: Uuid, message: Message) -> Result<()> {
        let message = Arc::new(message);
        self.update_rows(|session| {
            self.session.emit(SessionEvent::Draft { message_id, message: Arc::clone(&message) });
            session.save_draft(message_id, message);
        })
    }

    /// Stores the display messages of a message without adding it to the agent state, for example a notice that the
    /// agent failed. The same id is stored once, even if another process uses it, too.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended; nothing is stored then.
    pub fn display_message(&self, message_id: Uuid, message: Message) -> Result<()> {
        self.update_rows(|session| session.display(message_id, Arc::new(message)))
    }

    /// Gives subscribers an event of your own, in order with the others. It isn't stored.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn emit(&self, data: Value) -> Result<()> {
        self.update(|_| self.session.emit(SessionEvent::Application { data }))
    }

    /// Sets the title of the conversation, in its row and in the agent state.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`] if the session has ended.
    pub fn set_title(&self, title: impl Into<String>) -> Result<()> {
        let title = title.into();
        self.update(|session| {
            let _ = session.edit(Edit::Title(title.clone()));
            session.write(PendingWrite::Title(title));
            session.request_save(Lifecycle::TitleGenerated);
        })
    }

    /// Stores everything that isn't stored yet, and returns when it's: the agent state as it's now, and the display
    /// messages of all messages so far. Messages that failed permanently were reported before and don't fail it.
    ///
    /// # Errors
    ///
    /// [`SessionError::Conflict`] if another process saved the state, or it was [reloaded](Self::reload) in between.
    /// [`SessionError::Storage`] or [`SessionError::TimedOut`] if this try failed; the session retries it if the
    /// failure is transient. [`SessionError::Ended`] if the session has ended.
    pub async fn save(&self) -> Result<Revision> {
        let (reply, result) = oneshot::channel();
        self.update(|session| session.save(reply))?;
        result.await.unwrap_or(Err(SessionError::Ended))
    }

    /// Replaces the agent state with the stored one, for example after a [`SessionError::Conflict`]. Messages that were
    /// [added](Self::add_message) and not saved are appended to it, because they're displayed, but not the results of
    /// tool calls that it doesn't have. Returns the old state if it had other unsaved changes.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] or [`SessionError::TimedOut`] if the stored state couldn't be loaded; nothing is
    /// replaced then. [`SessionError::Ended`] if the session has ended.
    pub async fn reload(&self) -> Result<Option<Arc<State>>> {
        let (reply, result) = oneshot::channel();
        self.update(|session| session.reload(reply))?;
        result.await.unwrap_or(Err(SessionError::Ended))
    }

    /// Takes back everything after a point: from the agent state, from the display messages and from readers' pages.
    /// Stop the agent first: its run ends as cancelled, in another process, too. Everything that's pending is stored
    /// before. If the point is between a tool call and its result, the conversation is cut before the call.
    ///
    /// # Errors
    ///
    /// As [`save`](Self::save), and [`SessionError::Storage`] if there's no such message. After a transient failure,
    /// [`SessionError::TimedOut`] included, it isn't known whether the conversation was rewound; the session loads the
    /// stored state.
    pub async fn rewind(&self, to: Point) -> Result<Cut> {
        self.needs_rows()?;
        // The agent's unfinished work is taken back.
        self.acknowledge_cancel()?;
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

    /// Receives the events from now on. The channel closes when the session ends. A subscriber that [lags
    /// behind](super::SessionOptions::event_capacity) receives how many events it missed.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.session.subscribe()
    }

    /// Saves everything and ends the session, for other handles, too. Transient failures are retried for as long as it
    /// takes; a `tokio::time::timeout` around this call stops the waiting, not the retries.
    ///
    /// # Errors
    ///
    /// [`SessionError::Conflict`] if another process saved the state, [`SessionError::Storage`] if the failure is
    /// permanent, that of an earlier display message included. [`export_state`](Self::export_state) still returns the
    /// state.
    pub async fn shutdown(&self) -> Result<()> {
        let end = self.session.shutdown();
        end.await.unwrap_or(Err(SessionError::Ended))
    }

    /// Asks the session for something to be stored as rows, and waits for the result.
    pub(super) async fn ask<T>(
        &self,
        ask: impl FnOnce(&mut SessionState, Reply<Written>),
        take: impl FnOnce(Written) -> Option<T>,
    ) -> Result<T> {
        let (reply, result) = oneshot::channel();
        self.update_rows(|session| ask(session, reply))?;
        let written = result.await.unwrap_or(Err(SessionError::Ended))?;
        take(written).ok_or(SessionError::Ended)
    }

    /// As [`update`](Self::update), if there are rows.
    pub(super) fn update_rows<R>(&self, update: impl FnOnce(&mut SessionState) -> R) -> Result<R> {
        self.needs_rows()?;
        self.update(update)
    }

    pub(super) fn needs_rows(&self) -> Result<()> {
        if self.session.registry.storage.has_rows() { Ok(()) } else { Err(SessionError::StateOnly) }
    }

    /// Updates the state of the session, and wakes the task.
    pub(super) fn update<R>(&self, update: impl FnOnce(&mut SessionState) -> R) -> Result<R> {
        let result = update(self.session.state().touch(Instant::now())?);
        self.session.wake.notify_one();
        Ok(result)
    }

    pub(super) fn run_token(&self, run_id: Uuid) -> CancelToken {
        self.session.state().runs.token(run_id)
    }

    /// Works while the session is shutting down, too.
    pub(super) fn release_run(&self, run_id: Uuid, is_known: bool) {
        self.session.state().release_run(run_id, is_known);
        self.session.wake.notify_one();
    }
}

impl Clone for AgentSession {
    fn clone(&self) -> Self {
        let _ = self.session.handles.fetch_add(1, Ordering::SeqCst);
        Self::new(Arc::clone(&self.session))
    }
}

impl Drop for AgentSession {
    fn drop(&mut self) {
        // The running task saves it: a task that is spawned in a `drop` may never run.
        if self.session.handles.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.session.wake.notify_one();
        }
    }
}

impl fmt::Debug for AgentSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSession")
            .field("agent_id", &self.agent_id())
            .field("is_saved", &self.is_saved())
            .finish_non_exhaustive()
    }
}
