//! The number of open event streams.

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::limits::{Limit, Permit, Quota};
use super::problem::{Problem, Result};
use crate::Reach;

/// The open streams.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    quota: Quota,
    is_closed: watch::Sender<bool>,
}

impl Streams {
    pub(super) fn new(limit: Limit) -> Self {
        Self { quota: Quota::new(limit), is_closed: watch::Sender::new(false) }
    }

    /// Opens a stream. Hold the permit, which is the caller's part, as long as the connection; see [`Permit::own`].
    pub(super) fn open(&self, caller: Reach) -> Result<(Open, OwnedSemaphorePermit)> {
        let is_closed = self.is_closed.subscribe();
        if *is_closed.borrow() {
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE));
        }
        let Permit { own, all } = self.quota.take(caller, 1)?;
        let open = Open { is_closed, _permit: all };
        Ok((open, own))
    }

    /// Ends all streams, and opens no more.
    pub(super) fn close(&self) {
        let _ = self.is_closed.send_replace(true);
    }
}

/// An open stream.
pub(super) struct Open {
    is_closed: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
}

impl Open {
    /// Waits until the stream has to end.
    pub(super) async fn closed(&mut self) {
        drop(self.is_closed.wait_for(|is_closed| *is_closed).await);
    }
}
