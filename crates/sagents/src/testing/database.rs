//! A database for one test.

use std::path::Path;
use std::{env, fmt};

use uuid::Uuid;

use super::migrations;
use crate::Result;

/// A new, empty database for one test. It's removed when this value is dropped.
pub struct TestDatabase {
    url: String,
    place: Place,
}

enum Place {
    /// The directory with the file.
    #[cfg(feature = "_sqlite")]
    Sqlite(std::path::PathBuf),
    #[cfg(feature = "postgres")]
    Postgres { server: String, name: String },
}

impl TestDatabase {
    /// A file in a new temporary directory.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if the directory can't be created.
    #[cfg(feature = "_sqlite")]
    pub fn sqlite() -> Result<Self> {
        let directory = env::temp_dir().join(format!("sagents-{}", Uuid::now_v7()));
        std::fs::create_dir(&directory)?;
        let url = format!("sqlite://{}", directory.join("test.db").display());
        Ok(Self { url, place: Place::Sqlite(directory) })
    }

    /// A database of its own on the server of `DATABASE_URL`, whose role must be allowed to create databases.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) if `DATABASE_URL` isn't set or the database can't be created.
    #[cfg(feature = "postgres")]
    pub async fn postgres() -> Result<Self> {
        let Ok(server) = env::var("DATABASE_URL") else {
            let missing = "set DATABASE_URL to a PostgreSQL database whose role may create databases";
            return Err(crate::Error::Invalid(missing.into()));
        };
        Self::postgres_on(&server).await
    }

    /// As [`postgres`](Self::postgres), on the server of this URL.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) if the database can't be created.
    #[cfg(feature = "postgres")]
    pub async fn postgres_on(server: &str) -> Result<Self> {
        let name = format!("sagents_test_{}", Uuid::now_v7().simple());
        execute(server, format!("CREATE DATABASE {name}")).await.map_err(|error| {
            crate::Error::Invalid(format!(
                "can't create a database on the server of DATABASE_URL: {error} (the role needs CREATEDB: ALTER ROLE … \
                 CREATEDB)"
            ))
        })?;
        Ok(Self { url: with_database(server, &name), place: Place::Postgres { server: server.to_owned(), name } })
    }

    /// What a client connects to.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Runs the SQL migrations of a directory in the order of their numbers, without recording them. It knows the layouts
    /// of sqlx (`1_name.sql`, `1_name.up.sql`), diesel (`1_name/up.sql`) and refinery (`V1__name.sql`), and leaves
    /// `*.down.sql` and `down.sql` alone.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) with the file that fails, or if there is none.
    pub async fn run_migrations(&self, directory: impl AsRef<Path>) -> Result<()> {
        let scripts = migrations::read(directory.as_ref())?;
        match &self.place {
            #[cfg(feature = "_sqlite")]
            Place::Sqlite(_) => {
                let pool = crate::sqlite::connect(&self.url).await?;
                let mut connection = pool.acquire().await?;
                for (file, script) in scripts {
                    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(script)).execute(&mut *connection).await;
                    done.map_err(|error| migrations::failed(&file, &error))?;
                }
                drop(connection);
                pool.close().await;
            }
            #[cfg(feature = "postgres")]
            Place::Postgres { .. } => {
                let mut connection = connect(&self.url).await?;
                for (file, script) in scripts {
                    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(script)).execute(&mut connection).await;
                    done.map_err(|error| migrations::failed(&file, &error))?;
                }
                sqlx::Connection::close(connection).await?;
            }
        }
        Ok(())
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        match &self.place {
            // If that fails, the files stay among the system's temporary files.
            #[cfg(feature = "_sqlite")]
            Place::Sqlite(directory) => drop(std::fs::remove_dir_all(directory)),
            #[cfg(feature = "postgres")]
            Place::Postgres { server, name } => {
                let (server, drop_it) = (server.clone(), format!("DROP DATABASE {name} WITH (FORCE)"));
                // The test's runtime can't be blocked on here.
                let dropping = std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                    runtime.block_on(execute(&server, drop_it))
                });
                if !matches!(dropping.join(), Ok(Ok(()))) {
                    tracing::warn!(target: "sagents", name, "a test's database was not dropped");
                }
            }
        }
    }
}

/// Without the URL, which may have a password.
impl fmt::Debug for TestDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDatabase").finish_non_exhaustive()
    }
}

#[cfg(feature = "postgres")]
async fn connect(url: &str) -> sqlx::Result<sqlx::PgConnection> {
    use std::str::FromStr as _;

    let options = sqlx::postgres::PgConnectOptions::from_str(url)?;
    sqlx::ConnectOptions::connect(&options).await
}

#[cfg(feature = "postgres")]
async fn execute(url: &str, statement: String) -> sqlx::Result<()> {
    let mut connection = connect(url).await?;
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await?;
    sqlx::Connection::close(connection).await
}

/// The URL of another database on the same server.
#[cfg(feature = "postgres")]
fn with_database(url: &str, database: &str) -> String {
    let (server, parameters) = url.split_once('?').unwrap_or((url, ""));
    let start = server.find("://").map_or(0, |at| at + 3);
    let end = server[start..].find('/').map_or(server.len(), |at| start + at);
    let parameters: Vec<_> =
        parameters.split('&').filter(|parameter| !parameter.is_empty() && !parameter.starts_with("dbname=")).collect();
    let separator = if parameters.is_empty() { "" } else { "?" };
    format!("{}/{database}{separator}{}", &server[..end], parameters.join("&"))
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::with_database;

    #[test]
    fn only_the_database_of_a_url_changes() {
        for (url, expected) in [
            ("postgres://role:secret@host:5433/app", "postgres://role:secret@host:5433/new"),
            ("postgres://host", "postgres://host/new"),
            ("postgres:///app?host=/run&dbname=app&user=me", "postgres:///new?host=/run&user=me"),
            ("postgres://host/app?sslmode=require", "postgres://host/new?sslmode=require"),
        ] {
            assert_eq!(with_database(url, "new"), expected);
        }
    }
}
