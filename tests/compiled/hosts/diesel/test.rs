//! Diesel runs the migrations; the conversations have a pool of their own beside its connections.

use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_migrations::MigrationHarness as _;
use on_diesel::accounts::Scope;
use on_diesel::conversations::{connect, Conversations, NewConversation};
use on_diesel::MIGRATIONS;
use uuid::Uuid;

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

fn count(connection: &mut PgConnection, from: &str) -> i64 {
    let select = diesel::sql_query(format!("SELECT count(*) AS n FROM {from}"));
    select.get_result::<Count>(connection).unwrap().n
}

/// How many tables have a name that starts so.
fn tables(connection: &mut PgConnection, prefix: &str) -> i64 {
    count(
        connection,
        &format!("pg_tables WHERE tablename LIKE '{prefix}%'"),
    )
}

#[tokio::test]
async fn diesel_migrates_and_both_use_the_tables() {
    let url = std::env::var("DATABASE_URL").unwrap();
    let mut admin = PgConnection::establish(&url).unwrap();
    admin.batch_execute("CREATE DATABASE on_diesel").unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    let url = format!("{server}/on_diesel");
    let mut connection = PgConnection::establish(&url).unwrap();
    connection.run_pending_migrations(MIGRATIONS).unwrap();

    let user_id = Uuid::now_v7();
    let insert = format!("INSERT INTO users (id) VALUES ('{user_id}')");
    connection.batch_execute(&insert).unwrap();
    let conversations = Conversations::new(connect(&url).await.unwrap());
    let scope = Scope { user_id };
    let new = conversations.create_conversation(&scope, NewConversation::new());
    new.await.unwrap();
    assert_eq!(count(&mut connection, "chat_conversations"), 1);

    // The newest migration renamed the tables.
    connection.revert_last_migration(MIGRATIONS).unwrap();
    assert_eq!(tables(&mut connection, "chat"), 0);
    assert_eq!(count(&mut connection, "sagents_conversations"), 1);
    connection.revert_all_migrations(MIGRATIONS).unwrap();
    assert_eq!(tables(&mut connection, "sagents"), 0);
    let drop = "DROP DATABASE on_diesel WITH (FORCE)";
    admin.batch_execute(drop).unwrap();
}
