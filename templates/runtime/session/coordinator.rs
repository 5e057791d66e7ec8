//! Starts, finds and ends sessions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::super::message::Message;
use super::super::persistence::{LoadContext, SessionPersistence};
use super::super::run::{Run, RunStatus};
use super::super::state::State;
use super::super::turn::Delivery;
use super::registry::Registry;
use super::state::Found;
use super::task::Session;
use super::{AgentSession, SessionError, SessionOptions, Stats};

/// Starts the sessions of an application and finds the running ones. An application has one
/// coordinator; clones share its sessions.
pub struct Coordinator<P: SessionPersistence> {
    registry: Arc<Registry<P>>,
}

impl<P: SessionPersistence> Clone for Coordinator<P> {
    fn clone(&self) -> Self {
        Self {
            registry: Arc::clone(&self.registry),
        }
    }
}

impl<P: SessionPersistence> fmt::Debug for Coordinator<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<P: SessionPersistence> Coordinator<P> {
    /// With [`SessionOptions::default`].
    #[must_use]
    pub fn new(persistence: P) -> Self {
        Self::with_options(persistence, SessionOptions::default())
    }

    /// The options apply to all sessions.
    #[must_use]
    pub fn with_options(persistence: P, options: SessionOptions) -> Self {
        Self {
            registry: Registry::new(persistence, options),
        }
    }

    /// The session of a conversation: the running one, or a new one with the saved agent state. If
    /// none is saved, or the saved one is damaged, the session starts with an empty state; see
    /// [`State::load_or_new`].
    ///
    /// The session keeps the scope and uses it for all its calls of the storage.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] if the caller has no such conversation, a newer version wrote its
    /// state, or the database failed. [`SessionError::TimedOut`] if there is no session after
    /// [`call_timeout`](SessionOptions::call_timeout): the storage does not reply, or an earlier
    /// session is shutting down and cannot be saved. [`SessionError::Ended`] after
    /// [`shutdown`](Self::shutdown).
    pub async fn start(
        &self,
        scope: &P::Scope,
        conversation_id: Uuid,
    ) -> Result<AgentSession<P>, SessionError<P::Error>>
    where
        P::Scope: Clone,
    {
        self.start_with(scope, conversation_id, State::new()).await
    }

    /// As [`start`](Self::start), with `fresh` instead of an empty state.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn start_with(
        &self,
        scope: &P::Scope,
        conversation_id: Uuid,
        fresh: State,
    ) -> Result<AgentSession<P>, SessionError<P::Error>>
    where
        P::Scope: Clone,
    {
        let scope = Arc::new(scope.clone());
        self.start_shared(scope, conversation_id, fresh).await
    }

    /// As [`start_with`](Self::start_with), for a scope that cannot be cloned.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn start_shared(
        &self,
        scope: Arc<P::Scope>,
        conversation_id: Uuid,
        fresh: State,
    ) -> Result<AgentSession<P>, SessionError<P::Error>> {
        let registry = &self.registry;
        let owner = registry.persistence.owner(&scope)?;
        let slot = registry.reserve(owner.clone(), conversation_id)?;
        let start = async {
            let mut start = slot.lock_start().await?;
            if let Some(running) = slot.session() {
                if let Some(handle) = AgentSession::open(&running) {
                    return Ok(handle);
                }
                // It is shutting down, and may still be saving. Its own callers get the result.
                drop(running.shutdown().await);
            }
            let context = LoadContext::new(conversation_id);
            let found = self.find_stored(&scope, &context, fresh).await;
            let found = found.map_err(|error| start.insert(error.into()).clone())?;
            let session = Session::new(registry, scope, owner, context, found);
            slot.put(&session)?;
            session.spawn();
            Ok(AgentSession::new(session))
        };
        // The time in which another caller tries to start the session counts too.
        let start = tokio::time::timeout(registry.options.call_timeout, start);
        start.await.unwrap_or(Err(SessionError::TimedOut))
    }

    /// What a session starts with. Display messages that an earlier process left unsaved are those
    /// of the agent state, or the agent never received them. Those of a process that still runs
    /// the agent are left alone.
    async fn find_stored(
        &self,
        scope: &P::Scope,
        context: &LoadContext,
        fresh: State,
    ) -> Result<Found, P::Error> {
        let (storage, options) = (&self.registry.persistence, &self.registry.options);
        let (state, expect) = State::load_or_new(storage, scope, context, fresh).await?;
        let run = storage.get_run(scope, context).await?;
        let is_running =
            |run: &Run| run.status == RunStatus::Running && !run.is_abandoned(options.run_lease);
        let mut unsettled = Vec::new();
        if !run.as_ref().is_some_and(is_running) {
            unsettled = storage.unsettled_messages(scope, context).await?;
        }
        for (id, delivery) in &mut unsettled {
            *delivery = match delivery {
                Delivery::Draft => Delivery::Interrupted,
                _ if state.messages.position(*id).is_some() => Delivery::Stored,
                _ => Delivery::Unknown,
            };
        }
        Ok(Found {
            state,
            expect,
            unsettled,
            waiting: run.filter(|run| run.status == RunStatus::Waiting),
        })
    }

    /// Deletes a conversation with everything that belongs to it, and ends its session.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] if the caller has no such conversation, or the database failed.
    pub async fn delete_conversation(
        &self,
        scope: &P::Scope,
        conversation_id: Uuid,
    ) -> Result<(), SessionError<P::Error>> {
        let storage = &self.registry.persistence;
        let owner = storage.owner(scope)?;
        let context = LoadContext::new(conversation_id);
        storage.delete_conversation(scope, &context).await?;
        if let Some(session) = self.registry.find(owner, conversation_id) {
            session.delete();
        }
        Ok(())
    }

    /// The session of a conversation, if it is running.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] if the scope has no owner.
    pub fn find(
        &self,
        scope: &P::Scope,
        conversation_id: Uuid,
    ) -> Result<Option<AgentSession<P>>, SessionError<P::Error>> {
        let owner = self.registry.persistence.owner(scope)?;
        let running = self.registry.find(owner, conversation_id);
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

    /// Saves and ends all sessions concurrently, and starts no more. Await it before the process
    /// ends. The result contains what is not stored by the deadline; the sessions keep trying to
    /// store it while the process lives, unless the failure is permanent.
    pub async fn shutdown(&self, deadline: Duration) -> Shutdown<P::Owner, P::Error> {
        let until = Instant::now().checked_add(deadline);
        let running = self.registry.close();
        let ends: Vec<_> = running.iter().map(|session| session.shutdown()).collect();
        let mut report = Shutdown {
            saved: 0,
            unsaved: Vec::new(),
        };
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
                error: error
                    .or(state.last_error())
                    .unwrap_or(SessionError::TimedOut),
            });
        }
        report
    }
}

/// The result of [`Coordinator::shutdown`].
#[derive(Debug)]
#[must_use = "what is not saved is lost when the process ends"]
pub struct Shutdown<O, E> {
    /// How many sessions are stored completely.
    pub saved: usize,
    /// The other sessions.
    pub unsaved: Vec<Unsaved<O, E>>,
}

/// What a session could not store.
#[derive(Debug)]
pub struct Unsaved<O, E> {
    /// The owner of the conversation.
    pub owner: O,
    /// The conversation of the session.
    pub conversation_id: Uuid,
    /// The agent state, if it has unsaved changes.
    pub state: Option<Arc<State>>,
    /// The messages whose display messages are not stored.
    pub messages: Vec<UnsavedMessage<E>>,
    /// Why it is not stored.
    pub error: SessionError<E>,
}

/// A message whose display messages are not stored.
#[derive(Debug)]
pub struct UnsavedMessage<E> {
    /// The id of the message.
    pub message_id: Uuid,
    /// The message.
    pub message: Message,
    /// The permanent failure, or `None` if it was to be stored later.
    pub error: Option<SessionError<E>>,
}
