//! Options of sessions.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// Options for all sessions of a [`Coordinator`](super::Coordinator).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOptions {
    /// When the agent state is saved.
    pub auto_save: AutoSave,
    /// What to do if another process saved the agent state.
    pub on_conflict: OnConflict,
    /// After this long without use, a session is saved and ends, even if it has handles. `None` by default: it lives as
    /// long as its handles.
    pub inactivity_timeout: Option<Duration>,
    /// The delay before the first retry. It doubles with every further failure. The actual delay is between half of it
    /// and all of it, different for each session.
    pub initial_backoff: Duration,
    /// The longest delay between two retries.
    pub max_backoff: Duration,
    /// A call of the storage that takes longer is a transient failure. So is a save that waits for its turn this long
    /// while no session can save.
    pub call_timeout: Duration,
    /// How many sessions save at the same time, at least 1. The others wait for their turn, and still store display
    /// messages. A thousand sessions that have to save need little memory and few connections, and don't hold up other
    /// calls.
    pub max_concurrent_saves: usize,
    /// How many events a subscriber may lag behind before it misses the oldest.
    pub event_capacity: usize,
    /// How often the newest [draft](super::AgentSession::save_draft) is stored. `None`: never.
    pub draft_interval: Option<Duration>,
    /// A [run](super::AgentSession::begin_run) that nobody renews for this long is abandoned, and another process may
    /// begin one. A session renews its run three times in this time.
    pub run_lease: Duration,
    /// The names of tools that may run twice, for example because they only read. If a process ends while such a tool
    /// runs, the next run starts it again. The result of any other tool then says that its outcome is unknown.
    pub rerun_tools: BTreeSet<String>,
    /// Tells people who runs the agents of this process. By default the id of the process.
    pub run_holder: String,
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
            max_concurrent_saves: 4,
            event_capacity: 64,
            draft_interval: Some(Duration::from_secs(1)),
            run_lease: Duration::from_secs(30),
            rerun_tools: BTreeSet::new(),
            run_holder: format!("process {}", std::process::id()),
        }
    }
}

impl SessionOptions {
    pub(super) fn renew_interval(&self) -> Duration {
        // The time after it must be a valid `Instant`.
        let (shortest, longest) = (Duration::from_millis(100), Duration::from_secs(100_000));
        (self.run_lease / 3).clamp(shortest, longest)
    }

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

/// When a session saves the agent state. A state that hasn't changed is never saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoSave {
    /// The longest time that a change waits to be saved; `None` turns this off. Every session saves at its own time in
    /// the interval, so many sessions don't save at once.
    pub interval: Option<Duration>,
    /// When a run completes, fails or is cancelled.
    pub on_idle: bool,
    /// When a run waits for a person's decision.
    pub on_interrupt: bool,
    /// When the session ends.
    pub on_shutdown: bool,
}

impl Default for AutoSave {
    fn default() -> Self {
        Self { interval: Some(Duration::from_secs(30)), on_idle: true, on_interrupt: true, on_shutdown: true }
    }
}

impl AutoSave {
    /// When a change is saved: at the end of the current interval, which is shifted by the session's phase. `None` if
    /// there's no interval.
    pub(super) fn save_at(&self, changed_at: Instant, phase: Phase) -> Option<Instant> {
        let interval = self.interval?.as_nanos();
        let offset = (interval * u128::from(phase.fraction)) >> u32::BITS;
        let since = changed_at.saturating_duration_since(phase.epoch).as_nanos();
        let passed = (since + interval - offset).checked_rem(interval).unwrap_or(0);
        let left = u64::try_from(interval - passed).unwrap_or(u64::MAX);
        changed_at.checked_add(Duration::from_nanos(left))
    }
}

/// Where in the interval a session saves.
#[derive(Clone, Copy)]
pub(super) struct Phase {
    /// The start of the first interval.
    pub epoch: Instant,
    /// The part of an interval before the save, times 2^32.
    pub fraction: u32,
}

/// What a session does if another process saved the agent state. It never overwrites that state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// It keeps its own state, reports the conflict, and saves nothing until [`reload`](super::AgentSession::reload) is
    /// called.
    Report,
    /// It loads the saved state, and gives subscribers the replaced one.
    Reload,
}
