//! Whose conversations: how the owner is read from [`Scope`].

use serde_json::{Value, json};
use uuid::Uuid;

use super::Result;
use crate::scope::Scope;

/// The team that owns a conversation.
///
/// Every statement carries it, and only a scope makes one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    team_id: Uuid,
}

impl Owner {
    /// For scopes: whoever implements [`OwnerScope`] says who owns.
    pub(crate) fn new(team_id: Uuid) -> Self {
        Self { team_id }
    }

    /// The value of the `team_id` column.
    pub(super) fn id(&self) -> Uuid {
        self.team_id
    }

    /// What the `scope` column says of a conversation's creator.
    pub(super) fn to_json(&self) -> Value {
        json!({ "type": "team", "id": self.team_id })
    }
}

/// Says on whose behalf a call is made. Implement it for every type that may stand for a caller.
pub trait OwnerScope {
    /// The owner whose rows the call may reach.
    ///
    /// # Errors
    ///
    /// [`NoOwner`](super::Error::NoOwner) if the caller acts for no team.
    fn owner(&self) -> Result<Owner>;
}

impl OwnerScope for Scope {
    fn owner(&self) -> Result<Owner> {
        Ok(Owner::new(self.team_id))
    }
}

/// An owner that was read from a scope speaks for itself.
impl OwnerScope for Owner {
    fn owner(&self) -> Result<Owner> {
        Ok(self.clone())
    }
}
