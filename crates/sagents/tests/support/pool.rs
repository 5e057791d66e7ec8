//! Statements of a test's own, written once for both databases.

use sagents::Tables;
use sagents::sqlx::{self, AssertSqlSafe, PgPool, SqlitePool};
use uuid::Uuid;

use super::context::Conversations;

/// A pool, and the store on it.
#[derive(Clone)]
pub enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Pool {
    pub fn store(&self, tables: &Tables) -> Conversations {
        match self {
            Self::Sqlite(pool) => Conversations::Sqlite(sagents::sqlite::Store::new(pool.clone(), tables)),
            Self::Postgres(pool) => Conversations::Postgres(sagents::postgres::Store::new(pool.clone(), tables)),
        }
    }

    /// Executes a statement, and returns how many rows it affected.
    pub async fn execute(&self, sql: impl Into<String>) -> u64 {
        let sql = AssertSqlSafe(sql.into());
        match self {
            Self::Sqlite(pool) => sqlx::query(sql).execute(pool).await.unwrap().rows_affected(),
            Self::Postgres(pool) => sqlx::query(sql).execute(pool).await.unwrap().rows_affected(),
        }
    }

    /// The only column of the rows.
    pub async fn texts(&self, sql: impl Into<String>) -> Vec<String> {
        let sql = AssertSqlSafe(sql.into());
        match self {
            Self::Sqlite(pool) => sqlx::query_scalar(sql).fetch_all(pool).await.unwrap(),
            Self::Postgres(pool) => sqlx::query_scalar(sql).fetch_all(pool).await.unwrap(),
        }
    }

    /// A single number.
    pub async fn number(&self, sql: impl Into<String>) -> i64 {
        let sql = AssertSqlSafe(sql.into());
        match self {
            Self::Sqlite(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
            Self::Postgres(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
        }
    }

    /// A UUID as a literal.
    pub fn uuid(&self, id: Uuid) -> String {
        match self {
            Self::Sqlite(_) => format!("X'{}'", id.simple()),
            Self::Postgres(_) => format!("'{id}'::uuid"),
        }
    }

    pub async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}
