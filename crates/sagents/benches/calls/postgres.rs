//! Databases of a `PostgreSQL` server that lives as long as the benchmarks, filled for them.

mod branches;
mod hand;
#[path = "../../tests/support/postgres.rs"]
mod server;

use sagents::sqlx::{self, PgPool, types::Json};
use sagents::{Store, testing};

use crate::hand::{ByHand as _, Place};
use crate::{TABLES, USER, metadata};

pub use hand::Hand;

/// The server of a run.
pub struct Server(server::Server);

impl Place for Server {
    type Hand = Hand;

    const HAS_MANY_WRITERS: bool = true;
    const LOADED: &str = "<= 1.40";

    fn new() -> Self {
        Self(server::Server::start())
    }

    fn description(&self) -> String {
        let version = self.0.query("postgres", "SELECT split_part(current_setting('server_version'), ' ', 1)");
        let parent = self.0.directory().parent().unwrap();
        format!("PostgreSQL {version} on 127.0.0.1, data in {}, fsync off", parent.display())
    }

    async fn database(&self, name: &str, messages: &[i64]) -> (Store, Hand) {
        self.0.create_database(name);
        let pool = sagents::postgres::connect(&self.0.url(name)).await.unwrap();
        let store = sagents::postgres::Store::new(pool.clone(), &TABLES);
        testing::create_tables(&store).await.unwrap();
        fill(&pool, messages).await;
        let hand = Hand { pool };
        hand.settle().await;
        ((*store).clone(), hand)
    }
}

async fn fill(pool: &PgPool, messages: &[i64]) {
    let conversations = "
        INSERT INTO sagents_conversations
            (user_id, id, title, scope, metadata, next_sequence, inserted_at, updated_at)
        SELECT $1, (lpad(to_hex(key - 1), 12, '0') || '70008000000000000000')::uuid, 'Conversation ' || (key - 1),
            '{\"type\":\"user\",\"id\":1}', $3, value, to_timestamp(1.7e9 + key), to_timestamp(1.7e9 + key)
        FROM unnest($2) WITH ORDINALITY AS c (value, key)";
    let shown = "
        INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role,
            content_type, content, metadata, inserted_at)
        SELECT $1, (lpad(to_hex(key - 1), 12, '0') || '70008000000000000000')::uuid, n,
            (lpad(to_hex((key - 1) * 100 + n), 12, '0') || '70008000000000000000')::uuid, 0, 'user', 'text',
            'Message ' || ((key - 1) * 100 + n)
                || ': a sentence or two of what a person would write to an agent, or read from it.',
            $3, to_timestamp(1.7e9 + key * 100 + n)
        FROM unnest($2) WITH ORDINALITY AS c (value, key), generate_series(0, value - 1) n";
    let mut tx = pool.begin().await.unwrap();
    // A million rows take their time, and need not be checked one by one.
    for set in ["SET LOCAL statement_timeout = 0", "SET LOCAL session_replication_role = replica"] {
        sqlx::query(set).execute(&mut *tx).await.unwrap();
    }
    for fill in [conversations, shown] {
        let fill = sqlx::query(fill).bind(USER).bind(messages).bind(Json(metadata()));
        fill.execute(&mut *tx).await.unwrap();
    }
    tx.commit().await.unwrap();
}
