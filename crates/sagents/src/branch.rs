//! Points of a conversation, where it is forked or rewound.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A point of a conversation, named by the id of a message.
///
/// The id is the same in the agent state and in the display messages. A cut at a point keeps both in agreement:
///
/// - A message that's in both stays in both or in neither. A message that's only displayed stays if it's displayed before
///   the point.
/// - A tool call stays with its result. If the point is between the two, the cut moves to before the message with the call;
///   see [`Cut::moved`]. A call without a result stays.
/// - Todos and metadata aren't part of a message and stay as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// After the last message.
    #[default]
    End,
    /// After a message, which stays.
    Through(Uuid),
    /// Before a message, which doesn't stay.
    Before(Uuid),
}

/// Where a conversation was cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cut {
    /// The last message that stays, by the order of the display messages.
    pub last: Option<Uuid>,
    /// Whether the cut is before the requested point, because it would have separated a tool call from its result. Then
    /// it's before the message with the call.
    pub moved: bool,
}
