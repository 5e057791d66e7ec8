//! What a turn of an agent stores beside its state: whether a display message is in the agent state,
//! and who works on a tool call.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whether a display message is whole, and whether the agent state contains its message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Whole, and nothing is known to be wrong.
    #[default]
    Stored,
    /// Partial text of a message that the model is still writing.
    Draft,
    /// Displayed, and not yet saved in the agent state. It becomes `Stored` without notice to
    /// readers.
    Unsaved,
    /// Partial text of a message that was never finished.
    Interrupted,
    /// Displayed, and the agent never received it: the process was killed before it saved the
    /// state.
    Unknown,
}

impl Delivery {
    /// As it is stored; nothing is stored for [`Stored`](Self::Stored).
    #[must_use]
    pub fn as_stored(self) -> Option<&'static str> {
        match self {
            Self::Stored => None,
            Self::Draft => Some("draft"),
            Self::Unsaved => Some("unsaved"),
            Self::Interrupted => Some("interrupted"),
            Self::Unknown => Some("unknown"),
        }
    }
}

/// The status of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// Not started.
    Pending,
    /// Running.
    Executing,
    /// Succeeded.
    Completed,
    /// Failed.
    Failed,
    /// Waits for a person's decision.
    Interrupted,
    /// Will not run.
    Cancelled,
}

impl ToolStatus {
    /// All statuses.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Executing,
        Self::Completed,
        Self::Failed,
        Self::Interrupted,
        Self::Cancelled,
    ];

    /// As it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Executing => "executing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the call will not change any more.
    #[must_use]
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Whether a call with this status may change to `next`. An interrupted call runs only after a
    /// person's approval, and may be interrupted again, with another question. A call that runs cannot
    /// start again, and one that has ended does not change.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        match next {
            Self::Pending => false,
            Self::Executing => matches!(self, Self::Pending | Self::Interrupted),
            Self::Interrupted | Self::Completed | Self::Failed | Self::Cancelled => {
                !self.is_ended()
            }
        }
    }
}

/// A person's decision about a tool call that is interrupted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Decision {
    /// The call runs as the model wrote it.
    Approve,
    /// The call runs with other arguments.
    Edit {
        /// Instead of those of the model.
        arguments: Value,
    },
    /// The call does not run.
    Reject {
        /// For the model.
        reason: Option<String>,
    },
}

impl Decision {
    /// The new status of the call.
    #[must_use]
    pub fn status(&self) -> ToolStatus {
        match self {
            Self::Approve | Self::Edit { .. } => ToolStatus::Executing,
            Self::Reject { .. } => ToolStatus::Cancelled,
        }
    }
}

/// The result of an attempt to start a tool call. `M` is a display message.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim<M> {
    /// The caller runs the tool, and nobody else does.
    Claimed(M),
    /// Somebody else has started it, or it has ended or is interrupted: the caller does not run it.
    Already(M),
}

/// The result of a decision. `M` is a display message.
#[derive(Debug, Clone, PartialEq)]
pub enum Decided<M> {
    /// The decision is stored. The caller acts on it, and nobody else does.
    Claimed(M),
    /// Somebody else decided first, and this is their decision.
    Already(Decision, M),
}
