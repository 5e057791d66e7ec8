//! A database of its own for each test; the file goes away with it.

#![allow(dead_code, reason = "each test needs a part of it")]

use std::path::{Path, PathBuf};

use uuid::Uuid;

pub type Pool = sqlx::SqlitePool;

pub struct Database {
    directory: PathBuf,
}

impl Database {
    /// Without a table.
    pub fn empty() -> Self {
        let directory = std::env::temp_dir().join(format!("matrix-{}", Uuid::now_v7()));
        std::fs::create_dir(&directory).unwrap();
        Self { directory }
    }

    /// With all migrations run, and these rows.
    pub async fn migrated(insert: &'static str) -> Self {
        let database = Self::empty();
        let pool = matrix::conversations::connect(&database.url())
            .await
            .unwrap();
        let migrations = sqlx::migrate::Migrator::new(Path::new("migrations"));
        migrations.await.unwrap().run(&pool).await.unwrap();
        sqlx::raw_sql(insert).execute(&pool).await.unwrap();
        pool.close().await;
        database
    }

    pub fn url(&self) -> String {
        format!("sqlite:{}", self.directory.join("test.db").display())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Everything in the database that a migration made.
pub async fn catalog(pool: &Pool) -> String {
    const SELECT: &str = "
        SELECT type, name, coalesce(sql, '') FROM sqlite_schema
        WHERE name NOT LIKE '\\_sqlx%' ESCAPE '\\' AND tbl_name NOT IN ('_sqlx_migrations', 'sqlite_sequence')
        ORDER BY type, name";

    let rows: Vec<(String, String, String)> = sqlx::query_as(SELECT).fetch_all(pool).await.unwrap();
    let lines = rows
        .iter()
        .map(|(kind, name, sql)| format!("{kind} {name}\n{sql}\n"));
    lines.collect()
}

/// Puts a text in the place of a stored state.
pub const STORE: &str = "UPDATE sagents_agent_states SET data = $1";

/// Records which rows of messages are written, and which are deleted.
pub const RECORD_ROWS: &str = "
    CREATE TABLE changed_rows (change TEXT NOT NULL, position INTEGER NOT NULL);
    CREATE TRIGGER inserted AFTER INSERT ON sagents_agent_messages
    BEGIN INSERT INTO changed_rows VALUES ('written', new.position); END;
    CREATE TRIGGER updated AFTER UPDATE ON sagents_agent_messages
    BEGIN INSERT INTO changed_rows VALUES ('written', new.position); END;
    CREATE TRIGGER deleted AFTER DELETE ON sagents_agent_messages
    BEGIN INSERT INTO changed_rows VALUES ('deleted', old.position); END;";
