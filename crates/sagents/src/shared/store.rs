//! The store and its driver. Each database compiles this module with its own types.

use std::ops::Deref;

use super::{Driver, GroupSql, Pool, Store};
#[cfg(test)]
use crate::statement::Statement;
use crate::{Error, Result, Tables};

impl Store {
    /// The pool, for statements of your own.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl Deref for Store {
    type Target = crate::Store;

    fn deref(&self) -> &crate::Store {
        &self.store
    }
}

impl Driver {
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The statements for groups.
    pub(super) fn groups(&self) -> Result<&GroupSql> {
        self.groups.as_deref().ok_or(Error::NoOwner)
    }

    /// The most connections that the pool opens.
    #[cfg(feature = "axum")]
    pub(crate) fn max_connections(&self) -> u32 {
        self.pool.options().get_max_connections()
    }

    /// Every statement, with its name.
    #[cfg(test)]
    pub(super) fn statements(&self) -> Vec<(&'static str, &Statement)> {
        let groups = self.groups.iter().flat_map(|groups| groups.all());
        self.sql.all().into_iter().chain(groups).chain(self.own_columns.all()).collect()
    }
}
