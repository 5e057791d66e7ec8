//! How much callers may have open at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::problem::{Problem, Result};
use crate::Reach;

/// How much memory and how many connections callers can use, for [`Web::with_limits`](super::Web::with_limits).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The longest body of a request, in bytes. By default 256 KiB.
    pub body_bytes: usize,
    /// Open event streams. By default 32 and 512.
    pub streams: Limit,
    /// Exports that are being sent. Each has a megabyte or two in memory. By default 4 and 32.
    ///
    /// A longer export reads at the pace of its client, and keeps a database connection meanwhile. So a caller reads one
    /// export at a time, and all callers together use a quarter of the pool's connections. Others wait for their turn,
    /// and get 503 after ten seconds.
    pub exports: Limit,
    /// The bytes of pages that are being sent. Pages of less than 64 KiB don't count. By default 8 MiB and 64 MiB.
    pub page_bytes: Limit,
    /// A response is broken off if its reader takes nothing for this long. By default 30 seconds.
    pub stalled_after: Duration,
    /// An export is broken off after this time. It reads one point in time, and the database keeps old versions of rows
    /// meanwhile. By default ten minutes.
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
            body_bytes: 256 * 1024,
            streams: Limit::new(32, 512),
            exports: Limit::new(4, 32),
            page_bytes: Limit::new(8 * MIB, 64 * MIB),
            stalled_after: Duration::from_secs(30),
            longest_export: Duration::from_mins(10),
        }
    }
}

impl Limit {
    /// A limit for each caller, and one for all of a process.
    #[must_use]
    pub fn new(per_caller: usize, per_process: usize) -> Self {
        Self { per_caller, per_process }
    }
}

/// The unused part of a limit.
#[derive(Debug, Clone)]
pub(super) struct Quota {
    limit: Limit,
    all: Arc<Semaphore>,
    by_caller: Arc<Mutex<HashMap<Reach, Weak<Semaphore>>>>,
}

/// A part of a quota, until it is dropped.
pub(super) struct Permit {
    /// The caller's part. It's held as long as the connection may buffer something.
    pub own: OwnedSemaphorePermit,
    /// The process's part.
    pub all: OwnedSemaphorePermit,
}

impl Quota {
    pub(super) fn new(limit: Limit) -> Self {
        Self { limit, all: semaphore(limit.per_process), by_caller: Arc::default() }
    }

    /// Takes an amount for a caller. An amount above the limit takes all of it: a single message may be larger than
    /// that.
    pub(super) fn take(&self, caller: Reach, amount: usize) -> Result<Permit> {
        let Limit { per_caller, per_process } = self.limit;
        let amount = amount.min(per_caller).min(per_process).max(1);
        let amount = u32::try_from(amount).unwrap_or(u32::MAX);
        let own = self.of(caller).try_acquire_many_owned(amount);
        let own = own.map_err(|_| too_many("You have too much open. Close something, or try again later."))?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(amount);
        let all = all.map_err(|_| too_many("Too many people are busy here. Try again later."))?;
        Ok(Permit { own, all })
    }

    /// As [`take`](Self::take) of one, but waits for it.
    pub(super) async fn wait(&self, caller: Reach) -> Result<Permit> {
        const PATIENCE: Duration = Duration::from_secs(10);

        let take = async {
            let own = self.of(caller).acquire_owned().await;
            Some(Permit { own: own.ok()?, all: Arc::clone(&self.all).acquire_owned().await.ok()? })
        };
        let taken = timeout(PATIENCE, take).await.ok().flatten();
        taken.ok_or_else(|| {
            let busy = Problem::new(StatusCode::SERVICE_UNAVAILABLE);
            busy.detail("Other exports are still being read. Try again later.")
        })
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
