//! How many event streams are open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::super::Reach;
use super::problem::{Problem, Result};

/// How many one caller may have open.
const PER_CALLER: usize = 32;

/// How many may be open in this process.
const PER_PROCESS: usize = 512;

/// Counts the open streams of each caller.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    all: Arc<Semaphore>,
    by_caller: Arc<Mutex<HashMap<Reach, Weak<Semaphore>>>>,
    is_closed: watch::Sender<bool>,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(PER_PROCESS)),
            by_caller: Arc::default(),
            is_closed: watch::Sender::new(false),
        }
    }
}

impl Streams {
    /// The permit to open a stream, which is open until the permit is dropped.
    pub(super) fn open(&self, caller: Reach) -> Result<Permit> {
        let is_closed = self.is_closed.subscribe();
        if *is_closed.borrow() {
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE));
        }
        let mut by_caller = self.by_caller.lock().unwrap_or_else(PoisonError::into_inner);
        by_caller.retain(|_, streams| streams.strong_count() > 0);
        let streams = by_caller.get(&caller).and_then(Weak::upgrade);
        let streams = streams.unwrap_or_else(|| {
            let streams = Arc::new(Semaphore::new(PER_CALLER));
            drop(by_caller.insert(caller, Arc::downgrade(&streams)));
            streams
        });
        let own = streams.try_acquire_owned();
        let own = own.map_err(|_| too_many("Too many pages are open. Close one."))?;
        let all = Arc::clone(&self.all).try_acquire_owned();
        let all = all.map_err(|_| too_many("Too many people have pages open. Try again later."))?;
        Ok(Permit {
            is_closed,
            _permits: [own, all],
        })
    }

    /// Ends all streams, and opens no more.
    pub(super) fn close(&self) {
        let _ = self.is_closed.send_replace(true);
    }
}

fn too_many(detail: &str) -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS).detail(detail)
}

/// An open stream.
pub(super) struct Permit {
    is_closed: watch::Receiver<bool>,
    _permits: [OwnedSemaphorePermit; 2],
}

impl Permit {
    /// Waits until the stream has to end.
    pub(super) async fn closed(&mut self) {
        drop(self.is_closed.wait_for(|is_closed| *is_closed).await);
    }
}
