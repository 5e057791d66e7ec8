//! The delay before a call of the storage is repeated.

use std::time::Duration;

use tokio::time::Instant;

use super::SessionOptions;

#[derive(Default)]
pub(super) struct Backoff {
    failures: u32,
    pub until: Option<Instant>,
    /// Whether a delay since the last success was shortened.
    was_shortened: bool,
}

impl Backoff {
    pub fn is_over(&self, now: Instant) -> bool {
        self.until <= Some(now)
    }

    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Starts a longer delay than the last, and returns it.
    pub fn start(&mut self, now: Instant, options: &SessionOptions, jitter: u8) -> Duration {
        self.failures += 1;
        let delay = options.backoff(self.failures, jitter);
        self.until = Some(now + delay);
        delay
    }

    /// Ends a longer delay at this time, and returns whether it did. It does so once until the next success: otherwise a
    /// call that fails only in this session would be repeated all the time.
    pub fn shorten(&mut self, until: Instant) -> bool {
        let shortens = !self.was_shortened && self.until > Some(until);
        if shortens {
            self.until = Some(until);
            self.was_shortened = true;
        }
        shortens
    }
}
