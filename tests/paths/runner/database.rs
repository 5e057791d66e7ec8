//! A database of one's own, by whatever version of sqlx this is compiled with.

use std::borrow::Cow;
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{Executor as _, Row as _};

use crate::Result;
use crate::sets::Database;

pub enum Place {
    Memory,
    /// Every session has a schema of its own there.
    Server(String),
}

pub struct Session {
    pool: Pool,
}

pub enum Pool {
    Sqlite(SqlitePool),
    Postgres { pool: PgPool, schema: String },
}

impl Session {
    pub async fn open(place: &Place) -> Self {
        let pool = match place {
            Place::Memory => {
                let options = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
                Pool::Sqlite(options.connect("sqlite::memory:").await.unwrap())
            }
            Place::Server(url) => {
                static SESSIONS: AtomicU32 = AtomicU32::new(0);
                let schema = format!("session_{}_{}", std::process::id(), SESSIONS.fetch_add(1, Ordering::Relaxed));
                let options: PgConnectOptions = url.parse().unwrap();
                let options = options.options([
                    ("search_path", schema.as_str()),
                    ("client_min_messages", "warning"),
                    ("timezone", "UTC"),
                ]);
                let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
                pool.execute(leak(format!("CREATE SCHEMA {schema}"))).await.unwrap();
                Pool::Postgres { pool, schema }
            }
        };
        Self { pool }
    }

    pub async fn close(self) {
        match self.pool {
            Pool::Sqlite(pool) => pool.close().await,
            Pool::Postgres { pool, schema } => {
                pool.execute(leak(format!("DROP SCHEMA {schema} CASCADE"))).await.unwrap();
                pool.close().await;
            }
        }
    }

    #[cfg(feature = "calls")]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    pub fn database(&self) -> Database {
        match self.pool {
            Pool::Sqlite(_) => Database::Sqlite,
            Pool::Postgres { .. } => Database::Postgres,
        }
    }

    /// Migrates up to a version.
    pub async fn migrate(&self, migrations: &Migrations, version: i64) -> Result<()> {
        let migrator = migrations.up_to(version)?;
        ended(match &self.pool {
            Pool::Sqlite(pool) => migrator.run(pool).await,
            Pool::Postgres { pool, .. } => migrator.run(pool).await,
        })
    }

    /// Undoes what is newer than a version.
    pub async fn undo(&self, migrations: &Migrations, version: i64) -> Result<()> {
        let Migrations(migrator) = migrations;
        ended(match &self.pool {
            Pool::Sqlite(pool) => migrator.undo(pool, version).await,
            Pool::Postgres { pool, .. } => migrator.undo(pool, version).await,
        })
    }

    /// Carries out statements.
    pub async fn execute(&self, sql: &str) -> Result<()> {
        let sql = leak(sql.to_owned());
        let done = match &self.pool {
            Pool::Sqlite(pool) => sqlx::raw_sql(sql).execute(pool).await.map(drop),
            Pool::Postgres { pool, .. } => sqlx::raw_sql(sql).execute(pool).await.map(drop),
        };
        done.map_err(|error| format!("{sql}\n{error}"))
    }

    /// The rows of a query whose columns are texts.
    pub async fn query(&self, sql: &str) -> Vec<Vec<String>> {
        let sql = leak(sql.to_owned());
        let rows: Result<Vec<Vec<String>>, sqlx::Error> =
            match &self.pool {
                Pool::Sqlite(pool) => sqlx::query(sql).fetch_all(pool).await.map(|rows| {
                    rows.iter().map(|row| (0..row.len()).map(|column| row.get(column)).collect()).collect()
                }),
                Pool::Postgres { pool, .. } => sqlx::query(sql).persistent(false).fetch_all(pool).await.map(|rows| {
                    rows.iter().map(|row| (0..row.len()).map(|column| row.get(column)).collect()).collect()
                }),
            };
        rows.unwrap_or_else(|error| panic!("{sql}\n{error}"))
    }
}

/// The migrations of a directory.
pub struct Migrations(Migrator);

impl Migrations {
    pub async fn read(directory: &Path) -> Self {
        let migrator = Migrator::new(directory).await;
        Self(migrator.unwrap_or_else(|error| panic!("{}: {error}", directory.display())))
    }

    fn up_to(&self, version: i64) -> Result<Migrator> {
        if !self.0.version_exists(version) {
            return Err(format!("there is no migration of version {version}"));
        }
        let wanted = self.0.iter().filter(|migration| migration.version <= version);
        Ok(Migrator { migrations: Cow::Owned(wanted.cloned().collect()), ..Migrator::DEFAULT })
    }
}

fn ended(migrated: Result<(), MigrateError>) -> Result<()> {
    migrated.map_err(|error| shown(&error))
}

/// An error with its causes.
fn shown(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", shown(source)),
        None => error.to_string(),
    }
}

/// One version of sqlx takes nothing but a text that lives as long as the program.
fn leak(sql: String) -> &'static str {
    sql.leak()
}
