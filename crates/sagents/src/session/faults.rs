//! Faults that tests inject into the calls of sessions, and a record of their saves.
//!
//! Where the clock of a test is paused, it stays paused while the database works.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use tokio::sync::{RwLock, RwLockWriteGuard};
use uuid::Uuid;

use crate::{Error, Expect, Lifecycle, PersistContext, Result, Revision, State};

/// A fault of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call doesn't reach the database.
    Before,
    /// The database executes the call, and the reply is lost.
    After,
    /// The database executes the call and never replies.
    Silence,
    /// The database executes the call, and replies after a second.
    Late,
}

/// A save that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct TriedSave {
    /// Why it was saved.
    pub lifecycle: Lifecycle,
    /// The id of the save.
    pub write_id: Uuid,
    /// What it expected.
    pub expect: Expect,
    /// The state.
    pub state: State,
    /// What the session received.
    pub reply: Option<Revision>,
}

/// The faults to come, and the saves that happened. It outlives a simulated process.
#[derive(Debug, Default)]
pub struct Faults {
    writes: Mutex<VecDeque<Option<Fault>>>,
    loads: Mutex<VecDeque<Option<Fault>>>,
    saves: Mutex<Vec<TriedSave>>,
    loaded: AtomicUsize,
    rewound: AtomicUsize,
    /// The saves in progress, and the most at one time.
    saving: AtomicUsize,
    most: AtomicUsize,
    /// Held by a test to block saves, or loads.
    save_gate: RwLock<()>,
    load_gate: RwLock<()>,
}

impl Faults {
    /// Queues faults for the next calls that write, one per call.
    pub fn fail(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        locked(&self.writes).extend(faults);
    }

    /// Queues faults for the next loads of an agent state, one per call.
    pub fn fail_loads(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        locked(&self.loads).extend(faults);
    }

    /// Forgets the queued faults of calls that write.
    pub fn forget(&self) {
        locked(&self.writes).clear();
    }

    /// All saves that were tried.
    pub fn saves(&self) -> Vec<TriedSave> {
        locked(&self.saves).clone()
    }

    /// The lifecycle of each save.
    pub fn lifecycles(&self) -> Vec<Lifecycle> {
        locked(&self.saves).iter().map(|save| save.lifecycle).collect()
    }

    /// How many times a state was loaded.
    pub fn loads(&self) -> usize {
        self.loaded.load(Ordering::SeqCst)
    }

    /// The rewinds that the database executed, with or without a reply.
    pub fn rewinds(&self) -> usize {
        self.rewound.load(Ordering::SeqCst)
    }

    /// The largest number of saves that were in progress at once.
    pub fn most_saves_at_once(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    /// Blocks saves until the guard is dropped.
    pub async fn hold_saves(&self) -> RwLockWriteGuard<'_, ()> {
        self.save_gate.write().await
    }

    /// Blocks loads of agent states until the guard is dropped.
    pub async fn hold_loads(&self) -> RwLockWriteGuard<'_, ()> {
        self.load_gate.write().await
    }

    /// Makes a call with the next fault.
    async fn write<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let fault = locked(&self.writes).pop_front().flatten();
        with_fault(call, fault).await
    }
}

async fn with_fault<T>(call: impl Future<Output = Result<T>>, fault: Option<Fault>) -> Result<T> {
    if fault == Some(Fault::Before) {
        return Err(failed());
    }
    let result = frozen(call).await;
    match fault {
        Some(Fault::After) => Err(failed()),
        Some(Fault::Silence) => std::future::pending().await,
        Some(Fault::Late) => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            result
        }
        Some(Fault::Before) | None => result,
    }
}

#[cfg(any(feature = "_sqlite", feature = "postgres"))]
fn failed() -> Error {
    Error::Database(sqlx::Error::PoolTimedOut)
}

#[cfg(not(any(feature = "_sqlite", feature = "postgres")))]
fn failed() -> Error {
    Error::Busy("an injected fault")
}

/// A paused clock of Tokio jumps ahead when all tasks wait, also if they wait for a database. It doesn't while a
/// blocking task runs.
pub async fn frozen<T>(call: impl Future<Output = T>) -> T {
    let (done, wait) = mpsc::channel::<()>();
    let block = tokio::task::spawn_blocking(move || wait.recv());
    let result = call.await;
    drop(done);
    drop(block.await);
    result
}

pub(super) async fn save(
    faults: Option<&Faults>,
    state: &State,
    expect: Expect,
    context: &PersistContext,
    call: impl Future<Output = Result<Revision>>,
) -> Result<Revision> {
    let Some(faults) = faults else { return call.await };
    let in_progress = InProgress::begin(faults);
    let open = faults.save_gate.read().await;
    // Recorded before the call: a process may crash before the reply.
    let index = {
        let mut saves = locked(&faults.saves);
        let PersistContext { lifecycle, write_id, .. } = *context;
        saves.push(TriedSave { lifecycle, write_id, expect, state: state.clone(), reply: None });
        saves.len() - 1
    };
    let result = faults.write(call).await;
    if let Ok(revision) = result {
        locked(&faults.saves)[index].reply = Some(revision);
    }
    drop((open, in_progress));
    result
}

pub(super) async fn load<T>(faults: Option<&Faults>, call: impl Future<Output = Result<T>>) -> Result<T> {
    let Some(faults) = faults else { return call.await };
    let _ = faults.loaded.fetch_add(1, Ordering::SeqCst);
    let open = faults.load_gate.read().await;
    let fault = locked(&faults.loads).pop_front().flatten();
    let result = with_fault(call, fault).await;
    drop(open);
    result
}

pub(super) async fn write<T>(faults: Option<&Faults>, call: impl Future<Output = Result<T>>) -> Result<T> {
    match faults {
        Some(faults) => faults.write(call).await,
        None => call.await,
    }
}

#[cfg(any(feature = "_sqlite", feature = "postgres"))]
pub(super) async fn read<T>(faults: Option<&Faults>, call: impl Future<Output = Result<T>>) -> Result<T> {
    match faults {
        Some(_) => frozen(call).await,
        None => call.await,
    }
}

#[cfg(any(feature = "_sqlite", feature = "postgres"))]
pub(super) fn rewound(faults: Option<&Faults>) {
    if let Some(faults) = faults {
        let _ = faults.rewound.fetch_add(1, Ordering::SeqCst);
    }
}

/// Counts a save while it's in progress.
struct InProgress<'a>(&'a Faults);

impl<'a> InProgress<'a> {
    fn begin(faults: &'a Faults) -> Self {
        let now = faults.saving.fetch_add(1, Ordering::SeqCst) + 1;
        let _ = faults.most.fetch_max(now, Ordering::SeqCst);
        Self(faults)
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        let _ = self.0.saving.fetch_sub(1, Ordering::SeqCst);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
