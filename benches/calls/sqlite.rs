//! Databases of SQLite, filled for the benchmarks.

mod branches;
mod hand;

use std::path::PathBuf;
use std::{env, fs, process};

use landed::accounts::{Scope, User};
use my_app::conversations::connect;
use sqlx::sqlite::SqlitePool;
use sqlx::types::Json;

use crate::{USER, metadata};

pub use hand::ByHand;

pub const LANDED_SCOPE: Scope = Scope { user: User { id: USER } };

/// The directory of a run's databases.
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Self {
        let directory = env::temp_dir().join(format!("sagents-bench-{}", process::id()));
        fs::create_dir(&directory).unwrap();
        Self(directory)
    }

    pub fn description(&self) -> String {
        format!("SQLite in files in {}", self.0.parent().unwrap().display())
    }

    /// A new database of one owner's conversations, each with as many messages as this says.
    pub async fn database(&self, name: &str, messages: &[i64]) -> SqlitePool {
        let pool = connect(&format!("sqlite://{}/{name}.db", self.0.display())).await.unwrap();
        sqlx::migrate!().run(&pool).await.unwrap();
        let conversations = "
            INSERT INTO sagents_conversations
                (user_id, id, title, scope, metadata, next_sequence, inserted_at, updated_at)
            SELECT $1, unhex(printf('%012x70008000000000000000', key)), 'Conversation ' || key,
                '{\"type\":\"user\",\"id\":1}', $3, value,
                strftime('%Y-%m-%dT%H:%M:%f000Z', 1.7e9 + key, 'unixepoch'),
                strftime('%Y-%m-%dT%H:%M:%f000Z', 1.7e9 + key, 'unixepoch')
            FROM json_each($2)";
        let shown = "
            WITH RECURSIVE n(n) AS (
                SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < (SELECT max(value) FROM json_each($2))
            )
            INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role,
                content_type, content, metadata, inserted_at)
            SELECT $1, unhex(printf('%012x70008000000000000000', key)), n,
                unhex(printf('%012x70008000000000000000', key * 100 + n)), 0, 'user', 'text', 'Message '
                    || (key * 100 + n)
                    || ': a sentence or two of what a person would write to an agent, or read from it.',
                $3, strftime('%Y-%m-%dT%H:%M:%f000Z', 1.7e9 + key * 100 + n, 'unixepoch')
            FROM json_each($2) CROSS JOIN n WHERE n < value";
        for fill in [conversations, shown] {
            let fill = sqlx::query(fill).bind(USER).bind(Json(messages)).bind(Json(metadata()));
            fill.execute(&pool).await.unwrap();
        }
        settle(&pool).await;
        pool
    }

    /// A database with the tables of the first version, and the settings of today.
    pub async fn landed(&self) -> SqlitePool {
        let pool = connect(&format!("sqlite://{}/landed.db", self.0.display())).await.unwrap();
        sqlx::migrate!("landed/migrations").run(&pool).await.unwrap();
        sqlx::query("INSERT INTO users (id) VALUES ($1)").bind(USER).execute(&pool).await.unwrap();
        pool
    }
}

/// Empties the log.
pub async fn settle(pool: &SqlitePool) {
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(pool).await.unwrap();
}

/// The bytes of the log after this is done, if it was empty before.
pub async fn logged(pool: &SqlitePool, work: impl Future<Output = ()>) -> u64 {
    let file = sqlx::query_scalar("SELECT file FROM pragma_database_list WHERE name = 'main'");
    let file: String = file.fetch_one(pool).await.unwrap();
    settle(pool).await;
    work.await;
    fs::metadata(file + "-wal").unwrap().len()
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
