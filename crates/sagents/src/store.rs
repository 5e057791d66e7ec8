//! The API of both databases.

pub(crate) mod branches;
pub(crate) mod changes;
pub(crate) mod conversations;
pub(crate) mod exports;
pub(crate) mod messages;
pub(crate) mod runs;
pub(crate) mod search;
pub(crate) mod states;
mod tables;
pub(crate) mod tool_calls;
pub(crate) mod usage;

use uuid::Uuid;

pub use self::changes::{ChangeCursor, Changes, Watch};
pub use self::exports::Imported;
use crate::{Error, Key, Owner, OwnerScope, Reach, Result, Tables};

/// Agent states, display messages, tool calls, branches, exports, usage and runs of an application's conversations.
///
/// You get one from [`sqlite::Store`](crate::sqlite::Store) or [`postgres::Store`](crate::postgres::Store), which
/// dereference to it. Every method takes the caller's scope first and sees only the rows that the scope reaches; another
/// owner's rows are [`Error::NotFound`]. Cloning a store is cheap; clones share the pool.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) driver: Driver,
}

/// The databases. Their modules have the same functions; whatever isn't SQL or a driver call is in this module.
#[derive(Debug, Clone)]
pub(crate) enum Driver {
    #[cfg(feature = "_sqlite")]
    Sqlite(crate::sqlite::Driver),
    #[cfg(feature = "postgres")]
    Postgres(crate::postgres::Driver),
}

/// Evaluates an expression with the driver of a store.
macro_rules! with_driver {
    ($store:expr, $driver:ident => $call:expr) => {
        match &$store.driver {
            #[cfg(feature = "_sqlite")]
            $crate::store::Driver::Sqlite($driver) => $call,
            #[cfg(feature = "postgres")]
            $crate::store::Driver::Postgres($driver) => $call,
        }
    };
}
pub(crate) use with_driver;

impl Store {
    /// The owner of a conversation that a scope reaches, for a statement of your own that reads it.
    ///
    /// If the scope has an owner, that's the one, and nobody checks whether the conversation exists. If it only has a
    /// group, the members' conversations are looked up. The owner's kind is empty then.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if no member of the group has the conversation, [`Error::Ambiguous`] if several have one with
    /// this id, [`Error::NoOwner`] if the scope has neither owner nor group.
    pub async fn owner_of(&self, scope: &(impl OwnerScope + ?Sized), conversation_id: Uuid) -> Result<Owner> {
        match scope.reach()? {
            Reach::Owner(owner) => Ok(owner),
            Reach::Group(group) => self.owner_in_group(&group, conversation_id).await,
        }
    }

    async fn owner_in_group(&self, group: &Key, conversation_id: Uuid) -> Result<Owner> {
        let mut owners = with_driver!(self, driver => driver.owners_in_group(group, conversation_id).await?);
        match (owners.pop(), owners.is_empty()) {
            (Some(owner), true) => Ok(Owner::new("", owner)),
            (Some(_), false) => Err(Error::Ambiguous),
            (None, _) => Err(Error::NotFound),
        }
    }

    /// Tells [watches](Self::watch) that a conversation has changed, after a statement of your own.
    pub async fn notify(&self, conversation_id: Uuid) {
        with_driver!(self, driver => driver.notify(conversation_id).await);
    }

    /// The most connections that the pool opens.
    #[cfg(feature = "axum")]
    pub(crate) fn max_connections(&self) -> u32 {
        with_driver!(self, driver => driver.max_connections())
    }

    /// The tables that the store works on.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        with_driver!(self, driver => driver.tables())
    }
}

/// The conversations that change; nil if it may be any.
pub(crate) type Signals = tokio::sync::broadcast::Receiver<Uuid>;
