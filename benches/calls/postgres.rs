//! Databases of a `PostgreSQL` server that lives as long as the benchmarks, filled for them.

mod branches;
mod hand;
#[path = "../../crates/sagents/tests/support/postgres.rs"]
mod server;

use landed::scope::Scope;
use my_app::conversations::connect;
use server::Server;
use sqlx::postgres::PgPool;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{USER, metadata};

pub use hand::ByHand;

pub const LANDED_SCOPE: Scope = Scope { user_id: USER, team_id: Uuid::nil() };

/// The server of a run.
pub struct Place(Server);

impl Place {
    pub fn new() -> Self {
        Self(Server::start())
    }

    pub fn description(&self) -> String {
        let version = self.0.query("postgres", "SELECT split_part(current_setting('server_version'), ' ', 1)");
        let parent = self.0.directory().parent().unwrap();
        format!("PostgreSQL {version} on 127.0.0.1, data in {}, fsync off", parent.display())
    }

    /// A new database of one owner's conversations, each with as many messages as this says.
    pub async fn database(&self, name: &str, messages: &[i64]) -> PgPool {
        self.0.create_database(name);
        let pool = connect(&self.0.url(name)).await.unwrap();
        sqlx::migrate!().run(&pool).await.unwrap();
        fill(&pool, messages).await;
        settle(&pool).await;
        pool
    }

    /// A database with the tables of the first version, and the settings of today.
    pub async fn landed(&self) -> PgPool {
        self.0.create_database("landed");
        let pool = connect(&self.0.url("landed")).await.unwrap();
        sqlx::migrate!("landed/migrations").run(&pool).await.unwrap();
        sqlx::query("INSERT INTO teams (id) VALUES ($1)").bind(Uuid::nil()).execute(&pool).await.unwrap();
        pool
    }
}

/// Statements are planned for what is there now, not for the empty tables of before.
pub async fn settle(pool: &PgPool) {
    for settle in ["VACUUM ANALYZE", "CHECKPOINT"] {
        sqlx::query(settle).execute(pool).await.unwrap();
    }
}

/// The bytes that the server writes to its log while this is done.
pub async fn logged(pool: &PgPool, work: impl Future<Output = ()>) -> u64 {
    let position = async || -> i64 {
        let position = sqlx::query_scalar("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint");
        position.fetch_one(pool).await.unwrap()
    };
    let start = position().await;
    work.await;
    (position().await - start).unsigned_abs()
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
