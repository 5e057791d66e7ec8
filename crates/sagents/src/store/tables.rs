//! Whether the tables are there.

use super::{Store, with_driver};
use crate::check::{self, Depth};
use crate::schema::{Database, sql};
use crate::{Error, Result};

impl Store {
    /// Checks that the tables have the columns that this store needs. Call it when your application starts: a forgotten
    /// migration then fails there, and not in a user's request.
    ///
    /// # Errors
    ///
    /// [`Error::Tables`] with everything that's missing.
    pub async fn check(&self) -> Result<()> {
        self.compare(Depth::Columns).await
    }

    pub(crate) async fn compare(&self, depth: Depth) -> Result<()> {
        let found = with_driver!(self, driver => driver.found_tables().await?);
        let problems = check::problems(self.tables(), self.database(), depth, &found);
        if problems.is_empty() { Ok(()) } else { Err(Error::Tables { problems }) }
    }

    pub(crate) async fn create_tables(&self) -> Result<()> {
        let statements = sql::create(&check::needed(self.tables()), self.database());
        with_driver!(self, driver => driver.execute_script(statements).await)
    }

    pub(crate) fn database(&self) -> Database {
        match &self.driver {
            #[cfg(feature = "_sqlite")]
            super::Driver::Sqlite(_) => Database::Sqlite,
            #[cfg(feature = "postgres")]
            super::Driver::Postgres(_) => Database::Postgres,
        }
    }
}
