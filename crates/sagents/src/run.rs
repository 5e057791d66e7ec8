//! Runs: a conversation has at most one agent that works on it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{Owner, Timestamp};

/// The current or the last run of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The conversation that the agent works on.
    pub conversation_id: Uuid,
    /// Differs for every run.
    pub id: Uuid,
    /// Who runs it, for people: for example a host and a process id.
    pub holder: String,
    /// What it does.
    pub status: RunStatus,
    /// What a person has to decide, while it is [`RunStatus::Waiting`].
    pub waiting_for: Option<Value>,
    /// Whether somebody wants it to stop.
    pub cancel_requested: bool,
    /// When it began.
    pub started_at: Timestamp,
    /// When its process renewed it last.
    pub seen_at: Timestamp,
    /// Whether it follows a run whose process ended before the run did, and no run since has finished or waited for a
    /// person.
    pub resumed: bool,
}

impl Run {
    /// Whether it is running and was not renewed for this time, by the clock of this process: its
    /// process was probably killed.
    #[must_use]
    pub fn is_abandoned(&self, lease: Duration) -> bool {
        let age = Timestamp::now().as_micros() - self.seen_at.as_micros();
        let is_over = u64::try_from(age).is_ok_and(|age| Duration::from_micros(age) > lease);
        self.status == RunStatus::Running && is_over
    }
}

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// A process works on it.
    Running,
    /// It waits for a person. No process has to be there; the one that begins a run next takes over.
    Waiting,
    /// It ended.
    Finished,
    /// It ended with an error.
    Failed,
    /// It was stopped.
    Cancelled,
}

impl RunStatus {
    /// As it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Running | Self::Waiting)
    }
}

/// The result of an attempt to begin a run.
#[derive(Debug, Clone, PartialEq)]
pub enum BeginRun<T = Run> {
    /// It is the caller's.
    Started(T),
    /// Another run is in progress.
    Busy(Run),
}

/// An abandoned run that the caller [claimed](crate::Store::claim_abandoned_runs).
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedRun {
    /// The owner of the conversation, as the scope of further calls.
    pub owner: Owner,
    /// The caller's run.
    pub run: Run,
}

/// A change of a run by the process that has it.
#[derive(Debug, Clone, PartialEq)]
pub enum RunUpdate {
    /// Renews the lease.
    Renew,
    /// The run waits for a person, who has to decide this. No process has to be there meanwhile.
    Wait(Value),
    /// The run ends, as finished, failed or cancelled.
    End(RunStatus),
}

/// The answer to an update of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunSignal {
    /// Go on.
    Go,
    /// Somebody wants it to stop.
    CancelRequested,
    /// The run has ended or another one has begun: stop, and store nothing more.
    Lost,
}
