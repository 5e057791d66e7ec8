//! Stores on new, empty databases, for tests that run on both.

#![allow(dead_code, reason = "each test needs a part of it")]

pub mod context;
pub mod fixture;
pub mod pool;
pub mod postgres;

use sagents::{OwnerColumn, Tables};
use tempfile::TempDir;

use self::context::Conversations;
use self::pool::Pool;

pub const TABLES: Tables = Tables::new(1, "sagents_", OwnerColumn::integer("user_id"));

/// Which database a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
}

/// A database of a test's own, which is removed with this value.
pub struct TestDatabase {
    pub kind: Kind,
    pub url: String,
    guard: Guard,
}

enum Guard {
    Sqlite(TempDir),
    Postgres(postgres::Database),
}

impl TestDatabase {
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => {
                let directory = tempfile::tempdir().unwrap();
                let url = format!("sqlite://{}", directory.path().join("test.db").display());
                Self { kind, url, guard: Guard::Sqlite(directory) }
            }
            Kind::Postgres => {
                let database = postgres::Database::new();
                Self { kind, url: database.url(), guard: Guard::Postgres(database) }
            }
        }
    }

    /// Connects a new pool, as another process would have it.
    pub async fn connect(&self, tables: &Tables) -> Conversations {
        self.pool().await.store(tables)
    }

    pub async fn pool(&self) -> Pool {
        match self.kind {
            Kind::Sqlite => Pool::Sqlite(sagents::sqlite::connect(&self.url).await.unwrap()),
            Kind::Postgres => Pool::Postgres(sagents::postgres::connect(&self.url).await.unwrap()),
        }
    }

    pub async fn sqlite(&self, tables: &Tables) -> sagents::sqlite::Store {
        sagents::sqlite::Store::new(sagents::sqlite::connect(&self.url).await.unwrap(), tables)
    }

    pub async fn postgres(&self, tables: &Tables) -> sagents::postgres::Store {
        sagents::postgres::Store::new(sagents::postgres::connect(&self.url).await.unwrap(), tables)
    }

    /// Connects, and creates the tables.
    pub async fn store(&self, tables: &Tables) -> Conversations {
        let store = self.connect(tables).await;
        sagents::testing::create_tables(&store).await.unwrap();
        store
    }

    /// Executes statements that have no parameters.
    pub async fn execute(&self, sql: &str) {
        let sql = sagents::sqlx::AssertSqlSafe(sql.to_owned());
        match self.kind {
            Kind::Sqlite => {
                let pool = sagents::sqlite::connect(&self.url).await.unwrap();
                sagents::sqlx::raw_sql(sql).execute(&pool).await.unwrap();
                pool.close().await;
            }
            Kind::Postgres => {
                let pool = sagents::postgres::connect(&self.url).await.unwrap();
                sagents::sqlx::raw_sql(sql).execute(&pool).await.unwrap();
                pool.close().await;
            }
        }
    }
}

/// Makes two tests of each function: `sqlite::name` and `postgres::name`. Each gets a database of its own.
#[macro_export]
macro_rules! on_both_databases {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let database = $crate::support::TestDatabase::new($crate::support::Kind::Sqlite);
                Box::pin(super::$name(&database)).await;
            })+
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let database = $crate::support::TestDatabase::new($crate::support::Kind::Postgres);
                Box::pin(super::$name(&database)).await;
            })+
        }
    };
}
