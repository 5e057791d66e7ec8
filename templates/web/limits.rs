//! How much callers may have open at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::Reach;
use super::problem::{Problem, Result};

/// What keeps memory and connections from being used up, for [`Web::with_limits`](super::Web::with_limits).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Open event streams. By default 32 and 512.
    pub streams: Limit,
    /// Exports that are being sent. Each has a megabyte or two in memory. By default 4 and 32.
    ///
    /// A larger export is read at the pace of its client, and keeps a connection to the database as long.
    /// Exports use at most a quarter of the connections, and those of one caller use one. Others wait for
    /// their turn, and get 503 if it doesn't come within ten seconds.
    pub exports: Limit,
    /// The bytes of pages that are being sent. Pages of less than 64 KiB do not count. By default 8 MiB and
    /// 64 MiB.
    pub page_bytes: Limit,
    /// A response is broken off if its reader takes nothing for this long. By default 30 seconds.
    pub stalled_after: Duration,
    /// An export is broken off after this time. By default ten minutes. While it reads its point in time, the
    /// database can't clean up what others change.
    pub longest_export: Duration,
}

/// A limit for each caller, and one for all callers of a process. Above it, requests get 429.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// For each caller.
    pub per_caller: usize,
    /// For all callers together.
    pub per_process: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;

        Self {
            streams: Limit::new(32, 512),
            exports: Limit::new(4, 32),
            page_bytes: Limit::new(8 * MIB, 64 * MIB),
            stalled_after: Duration::from_secs(30),
            longest_export: Duration::new(600, 0),
        }
    }
}

impl Limit {
    /// A limit for each caller, and one for all of a process.
    #[must_use]
    pub fn new(per_caller: usize, per_process: usize) -> Self {
        Self {
            per_caller,
            per_process,
        }
    }
}

/// What is left of a limit.
#[derive(Debug, Clone)]
pub(super) struct Quota {
    limit: Limit,
    all: Arc<Semaphore>,
    by_caller: Arc<Mutex<HashMap<Reach, Weak<Semaphore>>>>,
}

/// A part of a quota, until it is dropped.
pub(super) struct Permit {
    /// The caller's part.
    pub own: OwnedSemaphorePermit,
    /// The process's part.
    pub all: OwnedSemaphorePermit,
}

impl Quota {
    pub(super) fn new(limit: Limit) -> Self {
        Self {
            limit,
            all: semaphore(limit.per_process),
            by_caller: Arc::default(),
        }
    }

    /// Takes an amount for a caller. More than the whole limit is all of it: one message may be larger
    /// than all that may be sent.
    pub(super) fn take(&self, caller: Reach, amount: usize) -> Result<Permit> {
        let Limit {
            per_caller,
            per_process,
        } = self.limit;
        let amount = amount.min(per_caller).min(per_process).max(1);
        let amount = u32::try_from(amount).unwrap_or(u32::MAX);
        let own = self.of(caller).try_acquire_many_owned(amount);
        let own = own.map_err(|_| too_many("You have too much open. Close something, or try again later."))?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(amount);
        let all = all.map_err(|_| too_many("Too many people are busy here. Try again later."))?;
        Ok(Permit { own, all })
    }

    fn of(&self, caller: Reach) -> Arc<Semaphore> {
        let mut by_caller = self.by_caller.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(quota) = by_caller.get(&caller).and_then(Weak::upgrade) {
            return quota;
        }
        by_caller.retain(|_, quota| quota.strong_count() > 0);
        let quota = semaphore(self.limit.per_caller);
        drop(by_caller.insert(caller, Arc::downgrade(&quota)));
        quota
    }
}

fn semaphore(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)))
}

fn too_many(detail: &str) -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS).detail(detail)
}
