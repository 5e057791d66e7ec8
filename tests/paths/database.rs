//! A database of one's own, and what moves it along migrations.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use sagents::sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sagents::sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sagents::sqlx::{self, AssertSqlSafe, Row as _};

use crate::calls;
use crate::moves::Result;
use crate::sets::Database;

pub enum Place {
    Memory,
    /// Every session has a schema of its own there.
    Server(String),
}

pub struct Session {
    pool: Pool,
    /// The newest migration that ran.
    version: Cell<u32>,
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
                let create = AssertSqlSafe(format!("CREATE SCHEMA {schema}"));
                sqlx::raw_sql(create).execute(&pool).await.unwrap();
                Pool::Postgres { pool, schema }
            }
        };
        Self { pool, version: Cell::new(0) }
    }

    pub async fn close(self) {
        match self.pool {
            Pool::Sqlite(pool) => pool.close().await,
            Pool::Postgres { pool, schema } => {
                let drop = AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"));
                sqlx::raw_sql(drop).execute(&pool).await.unwrap();
                pool.close().await;
            }
        }
    }

    /// The place for the library's calls.
    pub fn calls(&self) -> calls::Place<'_> {
        match &self.pool {
            Pool::Sqlite(pool) => calls::Place::Sqlite(pool),
            Pool::Postgres { pool, .. } => calls::Place::Postgres(pool),
        }
    }

    pub fn database(&self) -> Database {
        match self.pool {
            Pool::Sqlite(_) => Database::Sqlite,
            Pool::Postgres { .. } => Database::Postgres,
        }
    }

    /// Migrates up to a version.
    pub async fn migrate(&self, migrations: &Migrations, version: u32) -> Result<()> {
        for Migration { number, up, .. } in &migrations.0 {
            if (self.version.get() + 1..=version).contains(number) {
                self.transact(up).await?;
                self.version.set(*number);
            }
        }
        if self.version.get() == version { Ok(()) } else { Err(format!("there is no migration {version}")) }
    }

    /// Undoes what is newer than a version.
    pub async fn undo(&self, migrations: &Migrations, version: u32) -> Result<()> {
        for Migration { number, down, .. } in migrations.0.iter().rev() {
            if (version + 1..=self.version.get()).contains(number) {
                self.transact(down).await?;
                self.version.set(number - 1);
            }
        }
        Ok(())
    }

    /// Runs a script in a transaction, as every migration tool does.
    async fn transact(&self, script: &str) -> Result<()> {
        let run = self.execute(&format!("BEGIN;\n{script}\nCOMMIT;")).await;
        if run.is_err() {
            self.execute("ROLLBACK;").await?;
        }
        run
    }

    /// Carries out statements.
    pub async fn execute(&self, sql: &str) -> Result<()> {
        let statements = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        let done = match &self.pool {
            Pool::Sqlite(pool) => statements.execute(pool).await.map(drop),
            Pool::Postgres { pool, .. } => statements.execute(pool).await.map(drop),
        };
        done.map_err(|error| format!("{sql}\n{error}"))
    }

    /// The rows of a query whose columns are texts.
    pub async fn query(&self, sql: &str) -> Vec<Vec<String>> {
        let query = AssertSqlSafe(sql.to_owned());
        let rows: Result<Vec<Vec<String>>, sqlx::Error> =
            match &self.pool {
                Pool::Sqlite(pool) => sqlx::query(query).fetch_all(pool).await.map(|rows| {
                    rows.iter().map(|row| (0..row.len()).map(|column| row.get(column)).collect()).collect()
                }),
                Pool::Postgres { pool, .. } => sqlx::query(query).persistent(false).fetch_all(pool).await.map(|rows| {
                    rows.iter().map(|row| (0..row.len()).map(|column| row.get(column)).collect()).collect()
                }),
            };
        rows.unwrap_or_else(|error| panic!("{sql}\n{error}"))
    }
}

/// The migrations of a directory, in order.
pub struct Migrations(Vec<Migration>);

struct Migration {
    number: u32,
    up: String,
    down: String,
}

impl Migrations {
    pub fn read(directory: &Path) -> Self {
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let scripts = files.filter_map(|up| {
            let name = up.file_name()?.to_str()?;
            let number = name.strip_suffix(".up.sql")?.split('_').next()?.parse().unwrap();
            let down = up.with_file_name(name.replace(".up.sql", ".down.sql"));
            let [up, down] = [up, down].map(|path| fs::read_to_string(path).unwrap());
            assert!(!up.contains("-- no-transaction"), "some tools run it in a transaction all the same");
            Some(Migration { number, up, down })
        });
        let mut migrations: Vec<_> = scripts.collect();
        migrations.sort_by_key(|migration| migration.number);
        Self(migrations)
    }
}
