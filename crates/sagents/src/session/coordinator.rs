//! Starts, finds and ends sessions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::registry::Registry;
use super::state::Found;
use super::storage::Storage;
use super::task::Session;
use super::{AgentSession, Result, SessionError, SessionOptions, Stats};
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
use crate::Store;
use crate::{AgentPersistence, Delivery, Error, LoadContext, Message, Owner, OwnerScope, Run, RunStatus, State};

/// Starts the sessions of an application and finds the running ones. An application has one coordinator; clones share
/// its sessions.
#[derive(Clone)]
pub struct Coordinator {
    registry: Arc<Registry>,
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Coordinator {
    /// Sessions on a store, with [`SessionOptions::default`].
    #[cfg(any(feature = "_sqlite", feature = "postgres"))]
    #[must_use]
    pub fn new(store: &Store) -> Self {
        Self::with_options(store, SessionOptions::default())
    }

    /// Sessions on a store. The options apply to all of them.
    #[cfg(any(feature = "_sqlite", feature = "postgres"))]
    #[must_use]
    pub fn with_options(store: &Store, options: SessionOptions) -> Self {
        Self { registry: Registry::new(Storage::of_store(store, &options), options) }
    }

    /// Sessions on a persistence of your own, which gets the owner of the conversation as its scope.
    ///
    /// They load and save agent states, for every [`Lifecycle`](crate::Lifecycle), and set whether the agent waits for
    /// a person. Calls that need display messages, tool calls or stored runs return [`SessionError::StateOnly`]; change
    /// the state with [`AgentSession::change`] instead.
    ///
    /// [`Error::Conflict`] and [`Error::NotFound`] mean what they mean for a store: another process saved the state, or
    /// the conversation is gone. A call is repeated if its error has the [status code](Error::status_code) 503; any
    /// other error is permanent.
    #[must_use]
    pub fn with_persistence<P>(persistence: P, options: SessionOptions) -> Self
    where
        P: AgentPersistence<Scope = Owner, Error: Into<Error>> + Send + 'static,
    {
        Self { registry: Registry::new(Storage::of_host(persistence, &options), options) }
    }

    /// As [`with_options`](Self::with_options), with faults.
    #[cfg(all(feature = "_faults", any(feature = "_sqlite", feature = "postgres")))]
    #[must_use]
    pub fn with_faults(store: &Store, options: SessionOptions, faults: Arc<super::Faults>) -> Self {
        let storage = Storage::of_store(store, &options).with_faults(faults);
        Self { registry: Registry::new(storage, options) }
    }

    /// Returns the session of a conversation: the running one, or a new one with the saved agent state. If no state is
    /// saved, or the saved one is damaged, the session starts with an empty state; see [`State::load_or_new`].
    ///
    /// The scope must have an owner. The session makes all its calls with that owner.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] if the scope has no owner, the owner has no such conversation, a newer version wrote
    /// its state, or the database failed. [`SessionError::TimedOut`] if there's no session after
    /// [`call_timeout`](SessionOptions::call_timeout): the storage doesn't reply, or an earlier session is shutting
    /// down and can't be saved. [`SessionError::Ended`] after [`shutdown`](Self::shutdown).
    pub async fn start(&self, scope: &(impl OwnerScope + ?Sized), conversation_id: Uuid) -> Result<AgentSession> {
        self.start_with(scope, conversation_id, State::new()).await
    }

    /// As [`start`](Self::start), with `fresh` instead of an empty state.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn start_with(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        fresh: State,
    ) -> Result<AgentSession> {
        let registry = &self.registry;
        let owner = scope.owner()?;
        let slot = registry.reserve(&owner, conversation_id)?;
        let start = async {
            let mut start = slot.lock_start().await?;
            if let Some(running) = slot.session() {
                if let Some(handle) = AgentSession::open(&running) {
                    return Ok(handle);
                }
                // It's shutting down, and may still be saving. Its own callers get the result.
                drop(running.shutdown().await);
            }
            let context = LoadContext::new(conversation_id);
            let found = self.find_stored(&owner, &context, fresh).await;
            let found = found.map_err(|error| start.insert(error).clone())?;
            let session = Session::new(registry, owner, context, found);
            slot.put(&session)?;
            session.spawn();
            Ok(AgentSession::new(session))
        };
        // This includes the time in which another caller tries to start the session.
        let start = tokio::time::timeout(registry.options.call_timeout, start);
        start.await.unwrap_or(Err(SessionError::TimedOut))
    }

    /// What a session starts with. If an earlier process left display messages unsaved, the agent state has them, or
    /// the agent never received them. Those of a process that still runs the agent are left alone.
    async fn find_stored(&self, owner: &Owner, context: &LoadContext, fresh: State) -> Result<Found> {
        let (storage, options) = (&self.registry.storage, &self.registry.options);
        let id = context.conversation_id;
        let loaded = storage.load_state(owner, context).await?;
        let (state, expect) = State::loaded_or_new(loaded, context, fresh);
        if !storage.has_rows() {
            return Ok(Found { state, expect, unsettled: Vec::new(), waiting: None });
        }
        let run = storage.get_run(owner, id).await?;
        let is_running = |run: &Run| run.status == RunStatus::Running && !run.is_abandoned(options.run_lease);
        let mut unsettled = Vec::new();
        if !run.as_ref().is_some_and(is_running) {
            unsettled = storage.unsettled_messages(owner, id).await?;
        }
        for (id, delivery) in &mut unsettled {
            *delivery = match delivery {
                Delivery::Draft => Delivery::Interrupted,
                _ if state.messages.position(*id).is_some() => Delivery::Stored,
                _ => Delivery::Unknown,
            };
        }
        let waiting = run.filter(|run| run.status == RunStatus::Waiting);
        Ok(Found { state, expect, unsettled, waiting })
    }

    /// Deletes a conversation with everything that belongs to it, and ends its session.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] if the owner has no such conversation, or the database failed.
    pub async fn delete_conversation(&self, scope: &(impl OwnerScope + ?Sized), conversation_id: Uuid) -> Result<()> {
        let owner = scope.owner()?;
        self.registry.storage.delete_conversation(&owner, conversation_id).await?;
        self.forget_conversation(&owner, conversation_id)
    }

    /// Ends the session of a conversation that you have deleted yourself. It saves nothing, and tells its subscribers.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] if the scope has no owner.
    pub fn forget_conversation(&self, scope: &(impl OwnerScope + ?Sized), conversation_id: Uuid) -> Result<()> {
        if let Some(session) = self.registry.find(&scope.owner()?, conversation_id) {
            session.delete();
        }
        Ok(())
    }

    /// Returns the session of a conversation, if it's running.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] if the scope has no owner.
    pub fn find(&self, scope: &(impl OwnerScope + ?Sized), conversation_id: Uuid) -> Result<Option<AgentSession>> {
        let running = self.registry.find(&scope.owner()?, conversation_id);
        Ok(running.and_then(|session| AgentSession::open(&session)))
    }

    /// The options of all sessions.
    #[must_use]
    pub fn options(&self) -> &SessionOptions {
        &self.registry.options
    }

    /// Statistics of all sessions.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.registry.stats()
    }

    /// Saves and ends all sessions concurrently, and starts no more. Await it before the process ends.
    ///
    /// The result contains everything that isn't stored by the deadline. While the process lives, the sessions keep
    /// trying to store it, unless the failure is permanent.
    pub async fn shutdown(&self, deadline: Duration) -> Shutdown {
        let until = Instant::now().checked_add(deadline);
        let running = self.registry.close();
        let ends: Vec<_> = running.iter().map(|session| session.shutdown()).collect();
        let mut report = Shutdown { saved: 0, unsaved: Vec::new() };
        for (session, end) in running.iter().zip(ends) {
            let end = match until {
                Some(until) => tokio::time::timeout_at(until, end).await,
                None => Ok(end.await),
            };
            let state = session.state();
            let error = match end {
                Ok(Ok(Err(error))) => Some(error),
                _ if state.is_saved() => {
                    report.saved += 1;
                    continue;
                }
                Ok(Ok(Ok(())) | Err(_)) => Some(SessionError::Ended),
                Err(_) => None,
            };
            report.unsaved.push(Unsaved {
                owner: session.owner.clone(),
                conversation_id: session.context.conversation_id,
                state: state.unsaved(),
                messages: state.writes.unsaved_messages(),
                error: error.or(state.last_error()).unwrap_or(SessionError::TimedOut),
            });
        }
        report
    }
}

/// The result of [`Coordinator::shutdown`].
#[derive(Debug)]
#[must_use = "whatever isn't saved is lost when the process ends"]
pub struct Shutdown {
    /// How many sessions are stored completely.
    pub saved: usize,
    /// The other sessions.
    pub unsaved: Vec<Unsaved>,
}

/// The unsaved part of a session.
#[derive(Debug)]
pub struct Unsaved {
    /// The owner of the conversation.
    pub owner: Owner,
    /// The conversation of the session.
    pub conversation_id: Uuid,
    /// The agent state, if it has unsaved changes.
    pub state: Option<Arc<State>>,
    /// The messages whose display messages aren't stored.
    pub messages: Vec<UnsavedMessage>,
    /// Why it isn't stored.
    pub error: SessionError,
}

/// A message whose display messages aren't stored.
#[derive(Debug)]
pub struct UnsavedMessage {
    /// The id of the message.
    pub message_id: Uuid,
    /// The message.
    pub message: Message,
    /// The permanent failure, or `None` if it was to be stored later.
    pub error: Option<SessionError>,
}
