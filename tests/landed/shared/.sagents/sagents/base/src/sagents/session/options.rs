//! How sessions behave.

use std::time::Duration;

/// How the sessions of a [`Coordinator`](super::Coordinator) behave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOptions {
    /// When the state is saved.
    pub auto_save: AutoSave,
    /// What happens when somebody else saved the state.
    pub on_conflict: OnConflict,
    /// A session that nobody used for so long is saved and ends, also if handles of it are left.
    /// By default it lives as long as its handles.
    pub inactivity: Option<Duration>,
    /// How long a session waits after a failure before it tries again. The time doubles with every
    /// further failure, up to `longest_pause`.
    pub first_pause: Duration,
    /// The longest time between two tries.
    pub longest_pause: Duration,
    /// A call to the database that takes longer has failed, and is repeated.
    pub timeout: Duration,
    /// How many events a subscriber may be behind before it misses the oldest.
    pub event_capacity: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            auto_save: AutoSave::default(),
            on_conflict: OnConflict::Report,
            inactivity: None,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(30),
            timeout: Duration::from_secs(45),
            event_capacity: 64,
        }
    }
}

impl SessionOptions {
    /// The time until the next try. `salt` spreads sessions that failed together.
    pub(super) fn pause(&self, failures: u32, salt: u8) -> Duration {
        const LONGEST: Duration = Duration::from_secs(100_000);
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let pause = self.first_pause.saturating_mul(doubled);
        let half = pause.min(self.longest_pause).min(LONGEST) / 2;
        half + half * u32::from(salt) / u32::from(u8::MAX)
    }
}

/// When a session saves its state. It never does so if nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoSave {
    /// How long a change may wait. Everything that happens meanwhile is the same save.
    pub interval: Option<Duration>,
    /// When the agent has done its work, was stopped, or failed.
    pub on_idle: bool,
    /// When the agent waits for a person.
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

/// What a session does when somebody else saved the state of its conversation. It never overwrites
/// that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// It keeps its own state, saves no more, and reports it until
    /// [`reload`](super::AgentSession::reload).
    Report,
    /// It takes over what was saved, and tells its subscribers what that replaced.
    Reload,
}
