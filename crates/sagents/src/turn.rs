//! What a turn of an agent stores beside its state: whether a display message is in the agent state,
//! and who works on a tool call.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::message::{ToolCall, ToolResult};

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
///
/// The database enforces this table, whichever process makes the change; see [`may_become`](Self::may_become).
///
/// | from \\ to | pending | executing | interrupted | completed, failed, cancelled | unknown |
/// | --- | --- | --- | --- | --- | --- |
/// | pending | – | by a claim | yes | yes | no |
/// | executing | no | – | yes | yes | yes |
/// | interrupted | by an approval | by a claim, once approved | yes: another question | yes | no |
/// | completed, failed, cancelled, unknown | no | no | no | no | no |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// Not started. A call that a person approved is pending, too, until it's
    /// [claimed](super::session::AgentSession::claim_tool_call).
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
    /// Started, but no result was reported, because its process was killed or lost its run. The tool may have run.
    Unknown,
}

impl ToolStatus {
    /// All statuses.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Executing,
        Self::Completed,
        Self::Failed,
        Self::Interrupted,
        Self::Cancelled,
        Self::Unknown,
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
            Self::Unknown => "unknown",
        }
    }

    /// Whether the call will not change any more.
    #[must_use]
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Unknown)
    }

    /// Whether a call with this status may change to `next`. A person's approval makes an
    /// interrupted call pending again. It may be interrupted a second time, with another question. A
    /// call that runs can't start again, and one that has ended doesn't change.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        match next {
            Self::Pending => self == Self::Interrupted,
            Self::Executing => matches!(self, Self::Pending | Self::Interrupted),
            Self::Interrupted | Self::Completed | Self::Failed | Self::Cancelled => !self.is_ended(),
            Self::Unknown => self == Self::Executing,
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

/// A decision with who made it.
#[derive(Debug, Clone, PartialEq)]
pub struct SignedDecision {
    /// The decision.
    pub decision: Decision,
    /// Who made it, as people should read it.
    pub by: Option<String>,
}

impl From<Decision> for SignedDecision {
    fn from(decision: Decision) -> Self {
        Self { decision, by: None }
    }
}

impl From<&Decision> for SignedDecision {
    fn from(decision: &Decision) -> Self {
        decision.clone().into()
    }
}

impl Decision {
    /// Adds who made the decision: a name of your application. It's stored with the decision, and the page shows it.
    #[must_use]
    pub fn by(self, name: impl Into<String>) -> SignedDecision {
        SignedDecision { decision: self, by: Some(name.into()) }
    }

    /// The new status of the call. An approved call is pending until a run claims it.
    #[must_use]
    pub fn status(&self) -> ToolStatus {
        match self {
            Self::Approve | Self::Edit { .. } => ToolStatus::Pending,
            Self::Reject { .. } => ToolStatus::Cancelled,
        }
    }
}

/// What is stored about a tool call that has no result in the agent state.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredCall {
    /// Its status. A call that was executing is [`ToolStatus::Unknown`] now.
    pub status: ToolStatus,
    /// What a person decided about it.
    pub decision: Option<Decision>,
    /// Its result, with the id of the message that has it. A placeholder isn't one.
    pub result: Option<(Uuid, ToolResult)>,
}

impl StoredCall {
    /// The result of a call that an earlier run started or ended, with the id of its message. `None` if the call still has
    /// to be decided or started, or if the agent tells the model why a person rejected it.
    pub(super) fn sealed(self, call: &ToolCall) -> Option<(Uuid, ToolResult)> {
        let text = match (self.status, self.decision) {
            (ToolStatus::Pending | ToolStatus::Interrupted, _)
            | (ToolStatus::Cancelled, Some(Decision::Reject { .. })) => return None,
            (ToolStatus::Cancelled, _) => CANCELLED,
            (ToolStatus::Executing | ToolStatus::Unknown, _) => OUTCOME_UNKNOWN,
            (ToolStatus::Completed, _) => RESULT_LOST,
            (ToolStatus::Failed, _) => ERROR_LOST,
        };
        let error = || (Uuid::now_v7(), ToolResult::error(&call.tool_call_id, &call.name, text));
        Some(self.result.unwrap_or_else(error))
    }
}

// The model reads these instead of a result.
const CANCELLED: &str = "The call was cancelled.";
const RESULT_LOST: &str = "The tool succeeded, but its result was lost.";
const ERROR_LOST: &str = "The tool failed, and its error was lost.";
const OUTCOME_UNKNOWN: &str = "The tool started, but it never reported a result. Its outcome is unknown.";

/// The result of an attempt to start a tool call. `M` is a display message.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim<M> {
    /// The caller runs the tool, and nobody else does.
    Claimed(M),
    /// The caller must not run the tool: somebody has started it, it has ended, or a person still has
    /// to decide.
    Already(M),
}

/// The result of a decision. `M` is a display message.
#[derive(Debug, Clone, PartialEq)]
pub enum Decided<M> {
    /// The decision is stored. An approved call runs once somebody
    /// [claims](super::session::AgentSession::claim_tool_call) it.
    Claimed(M),
    /// Somebody else decided first, and this is their decision.
    Already(Decision, M),
}
