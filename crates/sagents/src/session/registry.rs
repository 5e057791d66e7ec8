//! The running sessions, at most one per conversation.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use uuid::Uuid;

use super::options::Phase;
use super::storage::Storage;
use super::task::Session;
use super::{LastError, Result, SessionError, SessionOptions, Stats};
use crate::{Key, Owner, Timestamp};

/// What the sessions of a coordinator share.
pub(super) struct Registry {
    pub storage: Storage,
    pub options: Arc<SessionOptions>,
    /// The sessions that may save now.
    saves: Semaphore,
    /// Whether a call failed, and may succeed later, since the last one that stored something.
    failing: AtomicBool,
    /// When it was made, and how many sessions were made since.
    epoch: Instant,
    made: AtomicU32,
    /// The counters only; [`Registry::stats`] adds the sessions.
    counters: Mutex<Stats>,
    slots: Mutex<Slots>,
}

struct Slots {
    closed: bool,
    by_conversation: HashMap<(Key, Uuid), Arc<Slot>>,
}

/// The session of a conversation, or the place where one is about to start.
struct Slot {
    /// Held while a session is started, so that all other callers find it running, or why it could not be started.
    start: tokio::sync::Mutex<Option<SessionError>>,
    session: Mutex<Option<Arc<Session>>>,
}

impl Slot {
    fn session(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    pub fn new(storage: Storage, options: SessionOptions) -> Arc<Self> {
        let saves = options.max_concurrent_saves.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self {
            storage,
            options: Arc::new(options),
            saves: Semaphore::new(saves),
            failing: AtomicBool::new(false),
            epoch: Instant::now(),
            made: AtomicU32::new(0),
            counters: Mutex::default(),
            slots: Mutex::new(Slots { closed: false, by_conversation: HashMap::new() }),
        })
    }

    /// The slot of a conversation, unless the coordinator was shut down. The slot is removed with the reservation,
    /// unless a session runs in it.
    pub fn reserve(self: &Arc<Self>, owner: &Owner, conversation_id: Uuid) -> Result<Reservation> {
        let key = (owner.key().clone(), conversation_id);
        let mut slots = self.slots();
        if slots.closed {
            return Err(SessionError::Ended);
        }
        let slot = slots.by_conversation.entry(key.clone());
        let slot = Arc::clone(
            slot.or_insert_with(|| Arc::new(Slot { start: tokio::sync::Mutex::new(None), session: Mutex::new(None) })),
        );
        let registry = Arc::clone(self);
        let release = Release { registry, key };
        Ok(Reservation { slot, release })
    }

    pub fn find(&self, owner: &Owner, conversation_id: Uuid) -> Option<Arc<Session>> {
        let slots = self.slots();
        let slot = slots.by_conversation.get(&(owner.key().clone(), conversation_id));
        slot.and_then(|slot| slot.session().clone())
    }

    /// Removes a session that ended, and its slot if no caller is about to start another one there.
    pub fn release(&self, key: &(Key, Uuid)) {
        let mut slots = self.slots();
        let Some(slot) = slots.by_conversation.get(key) else {
            return;
        };
        let is_free = {
            let mut session = slot.session();
            if session.as_ref().is_some_and(|session| session.state().has_ended()) {
                *session = None;
            }
            session.is_none()
        };
        // A slot is cloned only under the lock that is held here.
        if is_free && Arc::strong_count(slot) == 1 {
            drop(slots.by_conversation.remove(key));
        }
    }

    /// Prevents further starts and returns the running sessions.
    pub fn close(&self) -> Vec<Arc<Session>> {
        self.slots().closed = true;
        self.running()
    }

    /// The phase of the next session. Multiples of the golden ratio spread any number of sessions evenly.
    pub fn next_phase(&self) -> Phase {
        const GOLDEN_RATIO: u32 = 0x9E37_79B9;
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        Phase { epoch: self.epoch, fraction: made.wrapping_mul(GOLDEN_RATIO) }
    }

    /// Waits for a turn to save. Fails if no session could save for as long as a call may take.
    pub async fn wait_for_turn(&self) -> Result<Turn<'_>> {
        let mut turn = pin!(self.saves.acquire());
        loop {
            let saves = self.counters().saves;
            let turn = tokio::time::timeout(self.options.call_timeout, turn.as_mut());
            match turn.await {
                Ok(turn) => return turn.map_err(|_| SessionError::Ended),
                Err(_) if self.counters().saves == saves => return Err(SessionError::TimedOut),
                Err(_) => {}
            }
        }
    }

    /// A call failed that may succeed later.
    pub fn storage_fails(&self) {
        self.failing.store(true, Ordering::SeqCst);
    }

    /// A call has stored something. If calls failed before, the other sessions retry soon. No session may be locked.
    pub fn storage_works(&self) {
        if self.failing.swap(false, Ordering::SeqCst) {
            for session in self.running() {
                session.retry_soon();
            }
        }
    }

    pub fn stats(&self) -> Stats {
        let running = self.running();
        let is_unsaved = |session: &&Arc<Session>| !session.state().is_saved();
        let unsaved = running.iter().filter(is_unsaved).count();
        Stats { sessions: running.len(), unsaved, ..self.counters().clone() }
    }

    pub fn count_save(&self) {
        self.counters().saves += 1;
    }

    pub fn count_message(&self) {
        self.counters().messages += 1;
    }

    pub fn count_refused_message(&self) {
        self.counters().refused_messages += 1;
    }

    pub fn count_failure(&self, conversation_id: Uuid, error: &SessionError) {
        let mut counters = self.counters();
        counters.failures += 1;
        counters.conflicts += u64::from(matches!(error, SessionError::Conflict { .. }));
        counters.last_error = Some(LastError { conversation_id, at: Timestamp::now(), error: with_sources(error) });
    }

    fn counters(&self) -> MutexGuard<'_, Stats> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> Vec<Arc<Session>> {
        let slots = self.slots();
        let sessions = slots.by_conversation.values();
        sessions.filter_map(|slot| slot.session().clone()).collect()
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets a session save while it exists.
pub(super) type Turn<'a> = SemaphorePermit<'a>;

/// A slot that is kept while its session is looked up or started.
pub(super) struct Reservation {
    // Fields are dropped in this order: the slot is released when it isn't referenced any more.
    slot: Arc<Slot>,
    release: Release,
}

type Start<'a> = tokio::sync::MutexGuard<'a, Option<SessionError>>;

struct Release {
    registry: Arc<Registry>,
    key: (Key, Uuid),
}

impl Reservation {
    /// Locks the start of a session here. A caller who had to wait for another one gets the error with which that one
    /// failed; the caller with the lock puts its error into the guard for those who wait.
    pub async fn lock_start(&self) -> Result<Start<'_>> {
        if let Ok(mut start) = self.slot.start.try_lock() {
            *start = None;
            return Ok(start);
        }
        let start = self.slot.start.lock().await;
        match &*start {
            Some(error) => Err(error.clone()),
            None => Ok(start),
        }
    }

    pub fn session(&self) -> Option<Arc<Session>> {
        self.slot.session().clone()
    }

    /// Makes the session visible, unless the coordinator was shut down.
    pub fn put(&self, session: &Arc<Session>) -> Result<()> {
        let slots = self.release.registry.slots();
        if slots.closed {
            return Err(SessionError::Ended);
        }
        *self.slot.session() = Some(Arc::clone(session));
        Ok(())
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        self.registry.release(&self.key);
    }
}

/// The message of an error, and those of its sources.
fn with_sources(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}
