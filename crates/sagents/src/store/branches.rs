//! The calls that fork a conversation at a message, or rewind it to one.

use serde_json::{Value, json};
use tracing::instrument;
use uuid::Uuid;

use super::{Store, with_driver};
use crate::cut::Place;
use crate::values::{check_id, clean_text};
use crate::{Conversation, Cut, Error, OwnerScope, Point, Result, Revision};

impl Store {
    /// Creates a conversation from the part of another one up to a point: display messages, the agent's messages, title,
    /// metadata, your own columns, and the todos as they are now. `metadata.forked_from` names the conversation and the
    /// last message. Message ids stay the same. The call is idempotent: with the same [id](Fork::id), it returns the
    /// existing fork.
    ///
    /// A decision belongs to the conversation in which it was made. A call that was approved and hasn't ended waits for a
    /// decision again in the fork. A call that's executing without having needed a decision becomes
    /// [`Unknown`](crate::ToolStatus::Unknown) there. If a call waits in both conversations, each decision runs it once.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation or it has no such message, [`Error::Invalid`] if the id
    /// isn't a `UUIDv7` or belongs to another conversation, [`Error::Unreadable`] if the agent state can't be parsed.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %id, fork.id = %fork.id))]
    pub async fn fork_conversation(&self, scope: &(impl OwnerScope + ?Sized), id: Uuid, fork: Fork) -> Result<Forked> {
        let (owner, fork) = (scope.owner()?, fork.checked()?);
        loop {
            let forked = with_driver!(self, driver => driver.fork_conversation(&owner, id, &fork).await);
            let is_missing = match forked {
                Ok(Some(forked)) => return Ok(forked),
                // The id is taken.
                Ok(None) => false,
                // An earlier call may have forked it, and now it's gone.
                Err(Error::NotFound) => true,
                Err(error) => return Err(error),
            };
            let existing = with_driver!(self, driver => driver.existing_conversation(&owner, fork.id).await?);
            match existing {
                Some(existing) => return Forked::existing(existing, id),
                None if is_missing => return Err(Error::NotFound),
                // It was deleted in between.
                None => {}
            }
        }
    }

    /// Deletes the part of a conversation behind a point: display messages and the agent's messages. Todos and metadata
    /// stay. The revision of the agent state rises, so a process with the old state gets a conflict, and a run is asked to
    /// stop. If nothing is behind the point, nothing changes.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation or it has no such message, [`Error::Unreadable`] if the
    /// agent state can't be parsed.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %id))]
    pub async fn rewind_conversation(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        id: Uuid,
        to: Point,
    ) -> Result<Rewound> {
        let owner = scope.owner()?;
        with_driver!(self, driver => driver.rewind_conversation(&owner, id, to, Uuid::now_v7()).await)
    }
}

/// A conversation to create from another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// A `UUIDv7` for the new conversation. [`Fork::at`] makes one.
    pub id: Uuid,
    /// The fork has nothing of the part behind this point.
    pub at: Point,
    /// `None` for the title of the other conversation.
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
        Self { id: Uuid::now_v7(), at: point, title: None }
    }

    /// Sets the id, which must be a `UUIDv7`, so that you can repeat the call.
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

/// The value of `forked_from` in the metadata of a fork.
pub(crate) fn origin(source: Uuid, cut: Cut) -> Value {
    json!({ "conversation_id": source, "message_id": cut.last, "moved": cut.moved })
}

impl Forked {
    /// The result of a call that is repeated.
    fn existing(conversation: Conversation, source: Uuid) -> Result<Self> {
        let uuid = |value: &Value| Uuid::try_parse(value.as_str()?).ok();
        let from = conversation.metadata.get(FORKED_FROM).unwrap_or(&Value::Null);
        if uuid(&from["conversation_id"]) != Some(source) {
            let id = conversation.id;
            return Err(Error::Invalid(format!("the id {id} belongs to another conversation")));
        }
        let cut = Cut { last: uuid(&from["message_id"]), moved: from["moved"] == Value::Bool(true) };
        Ok(Self { conversation, cut })
    }
}

/// A conversation that was rewound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewound {
    /// The revision of the agent state, if there is one.
    pub revision: Option<Revision>,
    /// Where the conversation was cut.
    pub cut: Cut,
    /// The number of display messages that were deleted.
    pub removed: u64,
}

impl Place {
    /// Whether the agent waits in a fork; `None` if that's as in the other conversation.
    pub(crate) fn waits_in_fork(&self) -> Option<bool> {
        if self.is_waiting { Some(true) } else { (self.removed > 0).then_some(false) }
    }

    /// The result of a rewind with nothing to do.
    pub(crate) fn unchanged(&self) -> Rewound {
        Rewound { revision: self.revision(), cut: self.cut, removed: 0 }
    }

    /// The result of a rewind, which is a save of the state.
    pub(crate) fn rewound(&self) -> Rewound {
        let revision = self.revision().map(|Revision(revision)| Revision(revision + 1));
        Rewound { revision, cut: self.cut, removed: self.removed }
    }
}
