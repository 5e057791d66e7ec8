//! Helpers for tests: a database for each test, its tables, and rows that they need.
//!
//! ```
//! use sagents::testing::{self, TestDatabase};
//! use sagents::{MessagePage, NewDisplayMessage, Owner, OwnerColumn, Role, Tables};
//!
//! const TABLES: Tables = Tables::new(1, "sagents_", OwnerColumn::integer("user_id"));
//!
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> sagents::Result<()> {
//! let database = TestDatabase::sqlite()?;
//! let store = sagents::sqlite::Store::new(sagents::sqlite::connect(database.url()).await?, &TABLES);
//! testing::create_tables(&store).await?;
//!
//! let alice = Owner::new("user", 1);
//! let id = testing::create_conversation(&store, &alice).await?;
//! let hello = NewDisplayMessage::text(Role::User, "Hello");
//! let store: &sagents::Store = &store;
//! store.append_display_message(&alice, id, hello).await?;
//! assert_eq!(store.load_display_messages(&alice, id, MessagePage::first()).await?.items.len(), 1);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```

mod database;
mod migrations;

use uuid::Uuid;

pub use self::database::TestDatabase;
use crate::check::Depth;
use crate::store::with_driver;
use crate::{Error, Key, OwnerScope, Result, Store};

/// Both databases understand it.
pub(crate) const CREATE_CONVERSATION: &str = "
    INSERT INTO {conversations} ({owner}, id, scope, inserted_at, updated_at) VALUES ($1, $2, $3, $4, $4)";

/// Creates the tables in an empty database, without the foreign key to your owners' table.
///
/// Tests of an application [run its own migrations](TestDatabase::run_migrations) instead.
///
/// # Errors
///
/// [`Error::Database`] if the tables exist, or can't be created.
pub async fn create_tables(store: &Store) -> Result<()> {
    store.create_tables().await
}

/// Compares the tables with those that the library needs: columns, types, keys, foreign keys and indexes.
///
/// It also fails if you added a column to the conversations or display messages that `TABLES` doesn't list: forks and
/// imports copy only the columns that are listed. It doesn't know your owners' table, so it doesn't look for a foreign
/// key to it.
///
/// # Errors
///
/// [`Error::Tables`] with everything that doesn't fit.
pub async fn check_tables(store: &Store) -> Result<()> {
    store.compare(Depth::Everything).await
}

/// Inserts a scope's owner into the table that the owner column references, if it has a foreign key and the owner isn't
/// there.
///
/// All other columns are NULL or have their defaults. If the table refuses that, it first loses its other constraints, so
/// don't use the function outside of a test's own database.
///
/// # Errors
///
/// [`Error::NoOwner`] if the scope has no owner, [`Error::Database`] if the owner can't be inserted.
pub async fn create_owner(store: &Store, scope: &(impl OwnerScope + ?Sized)) -> Result<()> {
    let (owner, tables) = (scope.owner()?, store.tables());
    let conversations = format!("{}conversations", tables.prefix());
    create_referenced(store, &conversations, tables.owner().name(), owner.key()).await
}

/// Makes an owner a member of a group, in the table that [`Tables::group`](crate::Tables::group) names. It
/// [creates](create_owner) the owner, and the row of the group if there's a foreign key.
///
/// In the owners' own table, the owner leaves its former group.
///
/// # Errors
///
/// [`Error::Invalid`] if the tables have no group, and as [`create_owner`].
pub async fn join_group(store: &Store, scope: &(impl OwnerScope + ?Sized), group: impl Into<Key>) -> Result<()> {
    let Some(groups) = store.tables().group_of_owners() else {
        return Err(Error::Invalid("the tables have no group".into()));
    };
    let (owner, key) = (scope.owner()?, group.into());
    create_owner(store, scope).await?;
    create_referenced(store, groups.table, groups.member, owner.key()).await?;
    create_referenced(store, groups.table, groups.group, &key).await?;
    let member = (groups.member, owner.key());
    let group = (groups.group, &key);
    with_driver!(store, driver => {
        if driver.is_unique(groups.table, groups.member).await? && driver.set_value(groups.table, group, member).await? {
            return Ok(());
        }
        driver.insert_values(groups.table, &[group, member]).await
    })
}

/// Creates a conversation without a title, and returns its id. Its owner must [exist](create_owner).
///
/// # Errors
///
/// [`Error::NoOwner`] if the scope has no owner, [`Error::Database`] if the owner doesn't exist.
pub async fn create_conversation(store: &Store, scope: &(impl OwnerScope + ?Sized)) -> Result<Uuid> {
    let (owner, id) = (scope.owner()?, Uuid::now_v7());
    with_driver!(store, driver => driver.create_conversation(&owner, id).await?);
    Ok(id)
}

/// Inserts the row that a foreign key of this column needs.
async fn create_referenced(store: &Store, table: &str, column: &str, key: &Key) -> Result<()> {
    with_driver!(store, driver => match driver.referenced(table, column).await? {
        Some((table, column)) => driver.insert_values(&table, &[(&column, key)]).await,
        None => Ok(()),
    })
}
