//! The calls that fork a conversation at a message, or rewind it to one.

use serde_json::{Map, Value, json};
use tracing::instrument;
use uuid::Uuid;

use super::values::{check_id, clean_text};
use super::{{ '{' }}{{ context }}, Conversation, Error, OwnerScope, Result};
use crate::sagents::stored::HeaderState;
use crate::sagents::{Cut, Point, Revision};

impl {{ context }} {
    /// Creates a conversation with what another one has up to a point: display messages, the agent's
    /// messages, title, metadata, and the todos as they are now. `metadata.forked_from` names the
    /// conversation and the last message. Message ids stay the same. Repeating the call with the same
    /// [id](Fork::id) stores nothing and returns the existing conversation.
    ///
    /// A decision belongs to the conversation in which it was made. A call that was approved, and has
    /// not ended, waits for a decision again in the fork. One that runs without needing a decision is
    /// [`Unknown`](super::ToolStatus::Unknown) there.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation or it has no such message,
    /// [`Error::Invalid`] if the id is not a `UUIDv7` or that of another conversation,
    /// [`Error::DeserializationFailed`] if the agent state cannot be read.
    #[instrument(level = "debug", skip_all, fields(%id, fork = %fork.id))]
    pub async fn fork_conversation(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        id: Uuid,
        fork: Fork,
    ) -> Result<Forked> {
        let owner = scope.owner()?;
        self.store.fork_conversation(&owner, id, &fork.checked()?).await
    }

    /// Takes back what is after a point: display messages and the agent's messages. Todos and
    /// metadata stay. The revision of the agent state rises, so a process with the old state gets a
    /// conflict, and a run is asked to stop. If nothing is after the point, nothing changes.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation or it has no such message,
    /// [`Error::DeserializationFailed`] if the agent state cannot be read.
    #[instrument(level = "debug", skip_all, fields(%id))]
    pub async fn rewind_conversation(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        id: Uuid,
        to: Point,
    ) -> Result<Rewound> {
        let owner = scope.owner()?;
        self.store.rewind_conversation(&owner, id, to).await
    }
}

/// A conversation to create from another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// A `UUIDv7` for the new conversation. [`Fork::at`] makes one.
    pub id: Uuid,
    /// What is behind this point is not copied.
    pub at: Point,
    /// `None` is the title of the other one.
    pub title: Option<String>,
}

impl Fork {
    /// A copy of everything.
    #[must_use]
    pub fn new() -> Self {
        Self::at(Point::End)
    }

    /// A copy up to a point, with a new id.
    #[must_use]
    pub fn at(point: Point) -> Self {
        Self {
            id: Uuid::now_v7(),
            at: point,
            title: None,
        }
    }

    /// Sets the id, which must be a `UUIDv7`, so that the call can be repeated.
    #[must_use]
    pub fn id(mut self, id: Uuid) -> Self {
        self.id = id;
        self
    }

    /// Sets the title.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    fn checked(mut self) -> Result<Self> {
        check_id(self.id)?;
        self.title = self.title.as_deref().map(clean_text);
        Ok(self)
    }
}

impl Default for Fork {
    fn default() -> Self {
        Self::new()
    }
}

/// A conversation that was forked.
#[derive(Debug, Clone, PartialEq)]
pub struct Forked {
    /// The new conversation.
    pub conversation: Conversation,
    /// Where the other one was cut.
    pub cut: Cut,
}

/// The key in the metadata of a fork.
const FORKED_FROM: &str = "forked_from";

impl Forked {
    /// What the metadata of a fork has in addition.
    pub(super) fn metadata(source: Uuid, cut: Cut) -> Map<String, Value> {
        let from = json!({ "conversation_id": source, "message_id": cut.last, "moved": cut.moved });
        Map::from_iter([(FORKED_FROM.to_owned(), from)])
    }

    /// The result of a call that is repeated.
    pub(super) fn existing(conversation: Conversation, source: Uuid) -> Result<Self> {
        let uuid = |value: &Value| Uuid::try_parse(value.as_str()?).ok();
        let from = conversation.metadata.get(FORKED_FROM).unwrap_or(&Value::Null);
        if uuid(&from["conversation_id"]) != Some(source) {
            let id = conversation.id;
            return Err(Error::Invalid(format!("the id {id} is that of another conversation")));
        }
        let cut = Cut {
            last: uuid(&from["message_id"]),
            moved: from["moved"] == Value::Bool(true),
        };
        Ok(Self { conversation, cut })
    }
}

/// A conversation that was rewound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewound {
    /// That of the agent state, if there is one.
    pub revision: Option<Revision>,
    /// Where the conversation was cut.
    pub cut: Cut,
    /// The number of display messages that were deleted.
    pub removed: u64,
}

/// The search for a cut that separates no tool call from its result.
pub(super) struct Search {
    point: Point,
    /// The first position and the first sequence that do not stay, so far.
    pub(super) position: i64,
    pub(super) sequence: i64,
    moved: bool,
}

impl Search {
    pub(super) fn new(point: Point) -> Self {
        Self {
            point,
            position: i64::MAX,
            sequence: i64::MAX,
            moved: false,
        }
    }

    /// The message at which to cut, and whether it stays.
    pub(super) fn message(&self) -> (Option<Uuid>, bool) {
        match self.point {
            Point::End => (None, false),
            Point::Through(id) => (Some(id), true),
            Point::Before(id) => (Some(id), false),
        }
    }

    /// Goes on before a message whose calls are separated from their results.
    pub(super) fn move_before(&mut self, message_id: Uuid, position: i64, sequence: i64) {
        *self = Self {
            point: Point::Before(message_id),
            position,
            sequence,
            moved: true,
        };
    }

    /// A message that was asked for stays, also if it is not displayed.
    pub(super) fn cut(&self, last: Option<Uuid>) -> Cut {
        let last = match self.point {
            Point::Through(id) => Some(id),
            _ => last,
        };
        Cut {
            last,
            moved: self.moved,
        }
    }
}

/// Where a conversation is cut, and what was stored when that was found.
pub(super) struct Located {
    pub(super) cut: Cut,
    /// The first position and the first sequence that do not stay.
    pub(super) position: i64,
    pub(super) sequence: i64,
    /// The sequences to which that does not apply: a display message stays if its message does.
    pub(super) displaced: Vec<i64>,
    /// The number of display messages that do not stay, and the last sequence that does.
    pub(super) removed: i64,
    pub(super) last_sequence: Option<i64>,
    /// Whether a tool call that stays waits for a person, or would do so in a fork: approved calls are
    /// copied without their approval.
    pub(super) is_interrupted: bool,
    pub(super) last_change: i64,
    pub(super) state: Option<(Revision, HeaderState)>,
}

impl Located {
    /// 0 without a state.
    pub(super) fn revision(&self) -> i64 {
        self.state.as_ref().map_or(0, |(revision, _)| revision.0)
    }

    /// The header of the messages that stay.
    pub(super) fn header(&self) -> Result<Option<String>> {
        let Some((_, header)) = &self.state else {
            return Ok(None);
        };
        Ok(Some(header.cut(usize::try_from(self.position).unwrap_or(usize::MAX))?))
    }

    /// Whether the agent waits in a fork; `None` if that is as in the other conversation.
    pub(super) fn waits_in_fork(&self) -> Option<bool> {
        if self.is_interrupted {
            Some(true)
        } else {
            (self.removed > 0).then_some(false)
        }
    }

    /// What a rewind returns that has nothing to do.
    pub(super) fn nothing_removed(&self) -> Option<Rewound> {
        let count = self.state.as_ref().map_or(0, |(_, header)| header.count());
        let is_end = usize::try_from(self.position).unwrap_or(usize::MAX) >= count;
        (is_end && self.removed == 0).then(|| Rewound {
            revision: self.state.as_ref().map(|(revision, _)| *revision),
            cut: self.cut,
            removed: 0,
        })
    }
}
