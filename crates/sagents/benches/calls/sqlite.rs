//! Databases of `SQLite`, filled for the benchmarks.

mod branches;
mod hand;

use std::path::PathBuf;
use std::{env, fs, process};

use sagents::sqlx::{self, SqlitePool, types::Json};
use sagents::{Store, testing};

use crate::hand::{ByHand as _, Place};
use crate::{TABLES, USER, metadata};

pub use hand::Hand;

/// The directory of a run's databases.
pub struct Directory(PathBuf);

impl Place for Directory {
    type Hand = Hand;

    const HAS_MANY_WRITERS: bool = false;
    const LOADED: &str = "<= 2.20";

    fn new() -> Self {
        let directory = env::temp_dir().join(format!("sagents-bench-{}", process::id()));
        fs::create_dir(&directory).unwrap();
        Self(directory)
    }

    fn description(&self) -> String {
        format!("SQLite in files in {}", self.0.parent().unwrap().display())
    }

    async fn database(&self, name: &str, messages: &[i64]) -> (Store, Hand) {
        let pool = sagents::sqlite::connect(&format!("sqlite://{}/{name}.db", self.0.display())).await.unwrap();
        let store = sagents::sqlite::Store::new(pool.clone(), &TABLES);
        testing::create_tables(&store).await.unwrap();
        fill(&pool, messages).await;
        let hand = Hand { pool, store: store.clone() };
        hand.settle().await;
        ((*store).clone(), hand)
    }
}

async fn fill(pool: &SqlitePool, messages: &[i64]) {
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
        fill.execute(pool).await.unwrap();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
