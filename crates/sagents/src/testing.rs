//! Helpers for tests.

use crate::check::Depth;
use crate::{Result, Store};

/// Creates the tables in an empty database, without the foreign key to your owners' table.
///
/// Tests of an application run its own migrations instead.
///
/// # Errors
///
/// [`Error::Database`](crate::Error::Database) if the tables exist, or can't be created.
pub async fn create_tables(store: &Store) -> Result<()> {
    store.create_tables().await
}

/// Compares the tables with those that the library needs: columns, types, keys and indexes.
///
/// It also fails if you added a column to the conversations or display messages that `TABLES` doesn't list: forks and
/// imports copy only the columns that are listed.
///
/// # Errors
///
/// [`Error::Tables`](crate::Error::Tables) with everything that doesn't fit.
pub async fn check_tables(store: &Store) -> Result<()> {
    store.compare(Depth::Everything).await
}
