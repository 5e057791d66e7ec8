//! The one place that starts sessions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::message::Message;
use super::super::persistence::{LoadContext, SessionPersistence};
use super::super::state::State;
use super::keeper::Session;
use super::registry::Registry;
use super::{AgentSession, Figures, SessionError, SessionOptions};

/// Starts the sessions of an application, and finds those that are running. An application has one;
/// clones share their sessions.
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
            .field("figures", &self.figures())
            .finish_non_exhaustive()
    }
}

impl<P: SessionPersistence> Coordinator<P> {
    /// Sessions as [`SessionOptions::default`] has them.
    #[must_use]
    pub fn new(persistence: P) -> Self {
        Self::with_options(persistence, SessionOptions::default())
    }

    /// Sessions that behave as the application wants.
    #[must_use]
    pub fn with_options(persistence: P, options: SessionOptions) -> Self {
        Self {
            registry: Registry::new(persistence, options),
        }
    }

    /// Where the sessions are stored.
    #[must_use]
    pub fn persistence(&self) -> &P {
        &self.registry.persistence
    }

    /// The session of a conversation: the one that is running, or a new one with the state that is
    /// stored. Where none is stored, or what is stored is damaged, it begins with an empty state;
    /// see [`State::load_or_new`].
    ///
    /// The session keeps the scope and stores on its behalf.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] with what the storage answers: that the caller has no such
    /// conversation, that a newer version wrote its state, or that the database failed.
    /// [`SessionError::TimedOut`] if it does not answer, or if a session that was told to end cannot
    /// be saved. [`SessionError::Ended`] after [`shutdown`](Self::shutdown).
    pub async fn start(
        &self,
        scope: impl Into<Arc<P::Scope>>,
        conversation_id: Uuid,
    ) -> Result<AgentSession<P>, SessionError<P::Error>> {
        self.start_with(scope, conversation_id, State::new()).await
    }

    /// As [`start`](Self::start), with a state for where none is stored.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn start_with(
        &self,
        scope: impl Into<Arc<P::Scope>>,
        conversation_id: Uuid,
        fresh: State,
    ) -> Result<AgentSession<P>, SessionError<P::Error>> {
        let (registry, scope) = (&self.registry, scope.into());
        let storage = &registry.persistence;
        let owner = storage.owner(&scope)?;
        let limit = registry.options.timeout;
        let place = registry.reserve(owner.clone(), conversation_id)?;
        let _turn = place.turn().await;
        if let Some(running) = place.session() {
            if let Some(handle) = AgentSession::open(&running) {
                return Ok(handle);
            }
            // It was told to end, and may still be saving. How it ends is not for us.
            let end = tokio::time::timeout(limit, close(&running));
            let _ = end.await.map_err(|_| SessionError::TimedOut)?;
        }
        let context = LoadContext::new(conversation_id);
        let load = State::load_or_new(storage, &scope, &context, fresh);
        let start = tokio::time::timeout(limit, load);
        let start = start.await.map_err(|_| SessionError::TimedOut)??;
        let session = Session::new(registry, scope, owner, context, start);
        place.put(&session)?;
        session.keep();
        Ok(AgentSession::of(session))
    }

    /// The session of a conversation, if it is running.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`] if the scope stands for nobody.
    pub fn find(
        &self,
        scope: &P::Scope,
        conversation_id: Uuid,
    ) -> Result<Option<AgentSession<P>>, SessionError<P::Error>> {
        let owner = self.registry.persistence.owner(scope)?;
        let running = self.registry.find(owner, conversation_id);
        Ok(running.and_then(|session| AgentSession::open(&session)))
    }

    /// What the sessions have done so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.registry.figures()
    }

    /// Saves and ends all sessions, at once, and starts no more. To be awaited before the process
    /// ends. What is not stored by the deadline is answered, so that it can be kept elsewhere; as
    /// long as the process lives, it is tried further.
    pub async fn shutdown(&self, deadline: Duration) -> Shutdown<P::Owner, P::Error> {
        let until = Instant::now().checked_add(deadline);
        let running = self.registry.close();
        let ends: Vec<_> = running.iter().map(close).collect();
        let mut report = Shutdown {
            saved: 0,
            unsaved: Vec::new(),
        };
        for (session, end) in running.iter().zip(ends) {
            let end = match until {
                Some(until) => tokio::time::timeout_at(until, end).await,
                None => Ok(end.await),
            };
            let ledger = session.ledger();
            let error = match end {
                Ok(Ok(Err(error))) => Some(error),
                _ if ledger.is_saved() => {
                    report.saved += 1;
                    continue;
                }
                Ok(Ok(Ok(())) | Err(_)) => Some(SessionError::Ended),
                Err(_) => None,
            };
            report.unsaved.push(Unsaved {
                owner: session.owner.clone(),
                conversation_id: session.context.conversation_id,
                state: ledger.unsaved(),
                messages: ledger.unsaved_messages(),
                error: error.or(ledger.trouble()).unwrap_or(SessionError::TimedOut),
            });
        }
        report
    }
}

/// Tells a session to end. The answer comes when it has.
fn close<P: SessionPersistence>(
    session: &Arc<Session<P>>,
) -> oneshot::Receiver<Result<(), SessionError<P::Error>>> {
    let (reply, end) = oneshot::channel();
    session.ledger().close(reply);
    session.wake.notify_one();
    end
}

/// How the sessions of a coordinator ended.
#[derive(Debug)]
#[must_use = "what is not saved is lost when the process ends"]
pub struct Shutdown<O, E> {
    /// The sessions of which everything is stored.
    pub saved: usize,
    /// The others.
    pub unsaved: Vec<Unsaved<O, E>>,
}

/// What could not be stored of a session.
#[derive(Debug)]
pub struct Unsaved<O, E> {
    /// Whose it is.
    pub owner: O,
    /// Its conversation.
    pub conversation_id: Uuid,
    /// What the agent knows, if that is not stored.
    pub state: Option<Arc<State>>,
    /// The messages whose display items are not stored, with their ids.
    pub messages: Vec<(Uuid, Message)>,
    /// Why.
    pub error: SessionError<E>,
}
