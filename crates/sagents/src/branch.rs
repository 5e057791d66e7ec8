//! Points of a conversation, where it is forked or rewound.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A point of a conversation, named by the id of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// Behind the last message.
    #[default]
    End,
    /// Behind a message, which stays.
    Through(Uuid),
    /// In front of a message, which does not stay.
    Before(Uuid),
}

/// Where a conversation was cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cut {
    /// The last message that stays, by the order of the display messages.
    pub last: Option<Uuid>,
    /// Whether the cut is before the point that was asked for, because it would have separated a tool
    /// call from its result. It is before the message with the call then.
    pub moved: bool,
}
