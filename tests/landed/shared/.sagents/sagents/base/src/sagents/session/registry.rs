//! The sessions that are running: one for a conversation, never two.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::super::persistence::SessionPersistence;
use super::keeper::Session;
use super::{Figures, LastError, SessionError, SessionOptions};

/// What the sessions of a coordinator share.
pub(super) struct Registry<P: SessionPersistence> {
    pub persistence: P,
    pub options: Arc<SessionOptions>,
    pub counters: Counters,
    places: Mutex<Places<P>>,
}

struct Places<P: SessionPersistence> {
    closed: bool,
    by_conversation: HashMap<(P::Owner, Uuid), Arc<Place<P>>>,
}

/// Where the session of a conversation runs, or is about to.
struct Place<P: SessionPersistence> {
    /// Held by whoever starts it, so that everyone else finds it running.
    turn: tokio::sync::Mutex<()>,
    session: Mutex<Option<Arc<Session<P>>>>,
}

impl<P: SessionPersistence> Place<P> {
    fn session(&self) -> MutexGuard<'_, Option<Arc<Session<P>>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: SessionPersistence> Registry<P> {
    pub fn new(persistence: P, options: SessionOptions) -> Arc<Self> {
        Arc::new(Self {
            persistence,
            options: Arc::new(options),
            counters: Counters::default(),
            places: Mutex::new(Places {
                closed: false,
                by_conversation: HashMap::new(),
            }),
        })
    }

    /// The place of a conversation, unless the coordinator was shut down. It goes away with the
    /// reservation, unless a session runs there.
    pub fn reserve(
        self: &Arc<Self>,
        owner: P::Owner,
        conversation_id: Uuid,
    ) -> Result<Reservation<P>, SessionError<P::Error>> {
        let key = (owner, conversation_id);
        let mut places = self.places();
        if places.closed {
            return Err(SessionError::Ended);
        }
        let place = places.by_conversation.entry(key.clone());
        let place = Arc::clone(place.or_insert_with(|| {
            Arc::new(Place {
                turn: tokio::sync::Mutex::default(),
                session: Mutex::new(None),
            })
        }));
        let registry = Arc::clone(self);
        let release = Release { registry, key };
        Ok(Reservation { place, release })
    }

    /// The session of a conversation, if it is running.
    pub fn find(&self, owner: P::Owner, conversation_id: Uuid) -> Option<Arc<Session<P>>> {
        let places = self.places();
        let place = places.by_conversation.get(&(owner, conversation_id));
        place.and_then(|place| place.session().clone())
    }

    /// Forgets a session that has ended, and its place if nobody is about to start another there.
    pub fn release(&self, owner: &P::Owner, conversation_id: Uuid) {
        let mut places = self.places();
        let key = (owner.clone(), conversation_id);
        let Some(place) = places.by_conversation.get(&key) else {
            return;
        };
        let is_free = {
            let mut session = place.session();
            if session
                .as_ref()
                .is_some_and(|session| session.ledger().has_ended())
            {
                *session = None;
            }
            session.is_none()
        };
        // Others get hold of a place only while they hold the lock that is held here.
        if is_free && Arc::strong_count(place) == 1 {
            places.by_conversation.remove(&key);
        }
    }

    /// No session starts any more. Answers those that are running.
    pub fn close(&self) -> Vec<Arc<Session<P>>> {
        self.places().closed = true;
        self.running()
    }

    pub fn figures(&self) -> Figures {
        let running = self.running();
        let is_unsaved = |session: &&Arc<Session<P>>| !session.ledger().is_saved();
        Figures {
            sessions: running.len(),
            unsaved: running.iter().filter(is_unsaved).count(),
            ..self.counters.read()
        }
    }

    fn running(&self) -> Vec<Arc<Session<P>>> {
        let places = self.places();
        let sessions = places.by_conversation.values();
        sessions
            .filter_map(|place| place.session().clone())
            .collect()
    }

    fn places(&self) -> MutexGuard<'_, Places<P>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that is kept while a session is looked for or started.
pub(super) struct Reservation<P: SessionPersistence> {
    /// Given back before it is released.
    place: Arc<Place<P>>,
    release: Release<P>,
}

/// Releases a place.
struct Release<P: SessionPersistence> {
    registry: Arc<Registry<P>>,
    key: (P::Owner, Uuid),
}

impl<P: SessionPersistence> Reservation<P> {
    /// Waits until nobody else starts a session here.
    pub async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.place.turn.lock().await
    }

    pub fn session(&self) -> Option<Arc<Session<P>>> {
        self.place.session().clone()
    }

    /// Puts a session here, unless the coordinator was shut down.
    pub fn put(&self, session: &Arc<Session<P>>) -> Result<(), SessionError<P::Error>> {
        let places = self.release.registry.places();
        if places.closed {
            return Err(SessionError::Ended);
        }
        *self.place.session() = Some(Arc::clone(session));
        Ok(())
    }
}

impl<P: SessionPersistence> Drop for Release<P> {
    fn drop(&mut self) {
        self.registry.release(&self.key.0, self.key.1);
    }
}

/// What is counted over all sessions.
#[derive(Default)]
pub(super) struct Counters {
    saves: AtomicU64,
    messages: AtomicU64,
    failures: AtomicU64,
    conflicts: AtomicU64,
    last_error: Mutex<Option<LastError>>,
}

impl Counters {
    pub fn save(&self) {
        self.saves.fetch_add(1, Ordering::Relaxed);
    }

    pub fn message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    pub fn failure<E: std::error::Error>(&self, conversation_id: Uuid, error: &SessionError<E>) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if matches!(error, SessionError::Conflict { .. }) {
            self.conflicts.fetch_add(1, Ordering::Relaxed);
        }
        *self.last_error() = Some(LastError {
            conversation_id,
            at: chrono::Utc::now(),
            error: error.to_string(),
        });
    }

    fn read(&self) -> Figures {
        Figures {
            saves: self.saves.load(Ordering::Relaxed),
            messages: self.messages.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            conflicts: self.conflicts.load(Ordering::Relaxed),
            last_error: self.last_error().clone(),
            ..Figures::default()
        }
    }

    fn last_error(&self) -> MutexGuard<'_, Option<LastError>> {
        self.last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
