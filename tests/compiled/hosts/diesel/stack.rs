//! Diesel runs the migrations; the conversations have a pool of their own beside its connections.

#![allow(clippy::unwrap_used, unused_results)]

use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_migrations::{embed_migrations, EmbeddedMigrations, MigrationHarness as _};
use uuid::Uuid;

use crate::accounts::scope::Scope;
use crate::conversations::{connect, Conversations, NewConversation};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

/// How many tables have a name that starts so.
fn tables(connection: &mut PgConnection, prefix: &str) -> i64 {
    let select = format!("SELECT count(*) AS n FROM pg_tables WHERE tablename LIKE '{prefix}%'");
    let count: Count = diesel::sql_query(select).get_result(connection).unwrap();
    count.n
}

#[tokio::test]
async fn diesel_migrates_and_both_use_the_tables() {
    let url = std::env::var("DATABASE_URL").unwrap();
    let mut admin = PgConnection::establish(&url).unwrap();
    admin.batch_execute("CREATE DATABASE on_diesel").unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    let url = format!("{server}/on_diesel");
    let mut connection = PgConnection::establish(&url).unwrap();
    let before = "CREATE SCHEMA auth; CREATE TABLE auth.users (id UUID PRIMARY KEY);";
    connection.batch_execute(before).unwrap();
    connection.run_pending_migrations(MIGRATIONS).unwrap();

    let user = Uuid::now_v7();
    let insert = format!("INSERT INTO \"user\" (user_id) VALUES ('{user}')");
    connection.batch_execute(&insert).unwrap();
    let conversations = Conversations::new(connect(&url).await.unwrap());
    let scope = Scope {
        user_id: Some(user),
    };
    let new = conversations.create_conversation(&scope, NewConversation::new());
    new.await.unwrap();
    let select = "SELECT count(*) AS n FROM chat_conversations";
    let count: Count = diesel::sql_query(select)
        .get_result(&mut connection)
        .unwrap();
    assert_eq!(count.n, 1);

    // The newest migration renamed the tables.
    connection.revert_last_migration(MIGRATIONS).unwrap();
    assert_eq!(tables(&mut connection, "chat"), 0);
    connection.revert_all_migrations(MIGRATIONS).unwrap();
    let left = tables(&mut connection, "sagents") + tables(&mut connection, "archive");
    assert_eq!(left, 0);
    let drop = "DROP DATABASE on_diesel WITH (FORCE)";
    admin.batch_execute(drop).unwrap();
}
