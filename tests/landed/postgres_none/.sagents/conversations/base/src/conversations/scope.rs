
//! Who may reach conversations: here everyone who has a [`Everyone`].

use serde_json::{Value, json};

use super::Result;
use crate::scope::Everyone;

/// The owner of every conversation: the application itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner;

impl Owner {
    /// What the `scope` column says of a conversation's creator.
    pub(super) fn to_json() -> Value {
        json!({ "type": "none" })
    }
}

/// Says on whose behalf a call is made. Implement it for every type that may stand for a caller.
pub trait OwnerScope {
    /// The owner whose rows the call may reach.
    ///
    /// # Errors
    ///
    /// An implementation may refuse a caller.
    fn owner(&self) -> Result<Owner>;
}

impl OwnerScope for Everyone {
    fn owner(&self) -> Result<Owner> {
        Ok(Owner)
    }
}

/// An owner that was read from a scope speaks for itself.
impl OwnerScope for Owner {
    fn owner(&self) -> Result<Owner> {
        Ok(Owner)
    }
}