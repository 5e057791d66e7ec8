//! Options of sessions.

use std::time::Duration;

/// Options for all sessions of a [`Coordinator`](super::Coordinator).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOptions {
    /// When the agent state is saved.
    pub auto_save: AutoSave,
    /// What to do if another process saved the agent state.
    pub on_conflict: OnConflict,
    /// A session that was not used for this long is saved and ends, even if it has handles. `None`
    /// by default: it lives as long as its handles.
    pub inactivity_timeout: Option<Duration>,
    /// The delay before the first retry. It doubles with every further failure. The actual delay is
    /// between half of it and all of it, different for each session.
    pub initial_backoff: Duration,
    /// The longest delay between two retries.
    pub max_backoff: Duration,
    /// A call of the storage that takes longer is a transient failure.
    pub call_timeout: Duration,
    /// How many events a subscriber may lag behind before it misses the oldest.
    pub event_capacity: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            auto_save: AutoSave::default(),
            on_conflict: OnConflict::Report,
            inactivity_timeout: None,
            initial_backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(30),
            call_timeout: Duration::from_secs(45),
            event_capacity: 64,
        }
    }
}

impl SessionOptions {
    /// The delay before the next retry. `jitter` keeps sessions that failed together apart.
    pub(super) fn backoff(&self, failures: u32, jitter: u8) -> Duration {
        // The time after it must be a valid `Instant`.
        const LIMIT: Duration = Duration::from_secs(100_000);
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let delay = self.initial_backoff.saturating_mul(doubled);
        let half = delay.min(self.max_backoff).min(LIMIT) / 2;
        half + half * u32::from(jitter) / u32::from(u8::MAX)
    }
}

/// When a session saves the agent state. A state that has not changed is never saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoSave {
    /// The longest time that a change stays unsaved. `None` turns this off.
    pub interval: Option<Duration>,
    /// When the agent is done, was stopped, or failed.
    pub on_idle: bool,
    /// When the agent waits for a person's decision.
    pub on_interrupt: bool,
    /// When the session ends.
    pub on_shutdown: bool,
}

impl Default for AutoSave {
    fn default() -> Self {
        Self {
            interval: Some(Duration::from_secs(30)),
            on_idle: true,
            on_interrupt: true,
            on_shutdown: true,
        }
    }
}

/// What a session does if another process saved the agent state. It never overwrites it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// It keeps its own state, reports the conflict, and saves nothing until
    /// [`reload`](super::AgentSession::reload) is called.
    Report,
    /// It loads the saved state, and reports to subscribers what was replaced.
    Reload,
}
