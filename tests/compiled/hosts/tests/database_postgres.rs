//! A database of its own for each test; it goes away with it.

#![allow(dead_code, reason = "each test needs a part of it")]

pub mod server;

use std::path::Path;

use tokio::sync::OnceCell;

pub type Pool = sqlx::PgPool;

pub struct Database(server::Database);

impl Database {
    /// Without a table.
    pub fn empty() -> Self {
        Self(server::Database::new())
    }

    /// With all migrations run, and these rows. They are run once in a process; the others are copies of that database.
    pub async fn migrated(insert: &'static str) -> Self {
        static MIGRATED: OnceCell<Database> = OnceCell::const_new();
        let migrated = MIGRATED.get_or_init(|| async {
            let database = Self::empty();
            migrate(&database.url(), "").await;
            database
        });
        let database = Self(server::Database::copy(&migrated.await.0));
        execute(&database.url(), insert).await;
        database
    }

    pub fn url(&self) -> String {
        self.0.url()
    }
}

pub async fn migrate(url: &str, insert: &'static str) {
    let pool = matrix::conversations::connect(url).await.unwrap();
    let migrations = sqlx::migrate::Migrator::new(Path::new("migrations"));
    migrations.await.unwrap().run(&pool).await.unwrap();
    pool.close().await;
    execute(url, insert).await;
}

async fn execute(url: &str, statements: &'static str) {
    let pool = matrix::conversations::connect(url).await.unwrap();
    sqlx::raw_sql(statements).execute(&pool).await.unwrap();
    pool.close().await;
}

/// Everything in the database that a migration made.
pub async fn catalog(pool: &Pool) -> String {
    const SELECT: &str = "
        SELECT coalesce(string_agg(line, E'\n' ORDER BY line), '') FROM (
            SELECT concat_ws(' ', 'column', table_name, column_name, data_type, is_nullable, column_default) AS line
            FROM information_schema.columns WHERE table_schema = 'public'
            UNION ALL
            SELECT concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid))
            FROM pg_constraint WHERE connamespace = 'public'::regnamespace
            UNION ALL
            SELECT concat_ws(' ', 'index', indexdef) FROM pg_indexes WHERE schemaname = 'public'
            UNION ALL
            SELECT concat_ws(' ', 'function', proname) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
            UNION ALL
            SELECT concat_ws(' ', 'trigger', tgname) FROM pg_trigger WHERE NOT tgisinternal
        ) made (line) WHERE line NOT LIKE '%\\_sqlx\\_migrations%'";

    sqlx::query_scalar(SELECT).fetch_one(pool).await.unwrap()
}

/// Puts a text in the place of a stored state.
pub const STORE: &str = "UPDATE sagents_agent_states SET data = $1::json";

/// Records which rows of messages are written, and which are deleted.
pub const RECORD_ROWS: &str = "
    CREATE TABLE changed_rows (change TEXT NOT NULL, position INTEGER NOT NULL);
    CREATE FUNCTION record_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'DELETE' THEN
            INSERT INTO changed_rows VALUES ('deleted', old.position);
        ELSE
            INSERT INTO changed_rows VALUES ('written', new.position);
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER recorded AFTER INSERT OR UPDATE OR DELETE ON sagents_agent_messages
    FOR EACH ROW EXECUTE FUNCTION record_row();";
