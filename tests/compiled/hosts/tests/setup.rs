//! What errors say when the database is not set up: what is wrong, and what an operator can do.

use crate::database;

use std::time::Duration;

use database::server::Server;
use matrix::conversations::{Conversations, Error, NewConversation, connect};
use matrix::scopes::{Scope, User};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

async fn refusal(url: &str) -> String {
    told(&connect(url).await.unwrap_err())
}

/// An error, its source and its hint.
fn told(error: &Error) -> String {
    let mut parts = vec![error.to_string()];
    if let Error::Database(source) = error {
        let database = source.as_database_error();
        parts.push(database.map_or_else(|| source.to_string(), |error| error.message().to_owned()));
    }
    parts.extend(error.hint().map(str::to_owned));
    parts.join(": ")
}

#[tokio::test]
async fn a_url_that_is_wrong() {
    for url in [
        "",
        "sqlite:app.db",
        "mysql://localhost/app",
        "localhost:5432/app",
        "/app",
    ] {
        let expected = "invalid: the database URL must start with postgres://, as in postgres://role@host/database";
        assert_eq!(refusal(url).await, expected, "{url}");
    }
    let port = refusal("postgres://localhost:many/app").await;
    assert_eq!(
        port,
        "database error: error with configuration: invalid port number"
    );

    // Nobody listens there.
    let refused = refusal("postgres://sagents:secret@127.0.0.1:1/app").await;
    let remedy = ": start the server, or correct host and port in the database URL";
    assert!(
        refused.ends_with(remedy) && !refused.contains("secret"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_server_that_does_not_know_the_database_or_the_role() {
    let server = Server::start();
    assert_eq!(
        refusal(&server.url("absent")).await,
        "database error: database \"absent\" does not exist: \
         create the database, for example with `sqlx database create`"
    );
    assert_eq!(
        refusal(&as_role(&server.url("postgres"), "stranger")).await,
        "database error: role \"stranger\" does not exist: \
         correct role and password in the database URL"
    );
}

#[tokio::test]
async fn a_server_without_a_free_connection() {
    let server = Server::start_with(&[
        ("max_connections", "3"),
        ("superuser_reserved_connections", "0"),
    ]);
    let url = server.url("postgres");
    let pool = PgPoolOptions::new().max_connections(3);
    let others = pool.clone().min_connections(3).connect(&url).await.unwrap();
    assert_eq!(
        refusal(&url).await,
        "database error: sorry, too many clients already: \
         allow more connections on the server, or fewer in its clients"
    );
    // A pool tries until its time is up, and does not report why.
    let pool = pool.acquire_timeout(Duration::from_millis(300));
    let layer = Conversations::new(pool.connect_lazy(&url).unwrap());
    let user = User {
        id: 1,
        name: "a".into(),
    };
    let refused = layer
        .get_conversation(&Scope { user }, Uuid::nil())
        .await
        .unwrap_err();
    assert!(
        refused
            .hint()
            .unwrap()
            .contains("the server has no connection left"),
        "{refused:?}"
    );
    others.close().await;
}

#[tokio::test]
async fn tables_that_are_missing_or_not_granted() {
    let server = Server::start();
    server.create_database("app");
    let url = server.url("app");
    let create = async |url: &str| {
        let layer = Conversations::new(connect(url).await.unwrap());
        let user = User {
            id: 1,
            name: "a".into(),
        };
        let created = layer
            .create_conversation(&Scope { user }, NewConversation::new())
            .await;
        created.map_err(|error| told(&error))
    };
    assert_eq!(
        create(&url).await.unwrap_err(),
        "database error: relation \"sagents_conversations\" does not exist: \
         run the migrations, for example with `sqlx migrate run`"
    );

    database::migrate(
        &url,
        "INSERT INTO users (id, name) VALUES (1, 'a'); CREATE ROLE app LOGIN",
    )
    .await;
    assert_eq!(
        create(&as_role(&url, "app")).await.unwrap_err(),
        "database error: permission denied for table sagents_conversations: \
         grant the role SELECT, INSERT, UPDATE and DELETE on sagents_*"
    );
    // What the message asks for is enough.
    let tables = "sagents_conversations, sagents_agent_states, sagents_agent_messages, sagents_unreadable_states, sagents_display_messages";
    server.query(
        "app",
        &format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO app"),
    );
    create(&as_role(&url, "app")).await.unwrap();
}

#[tokio::test]
async fn a_migration_that_cannot_run() {
    let server = Server::start();
    server.create_database("app");
    let pool = connect(&server.url("app")).await.unwrap();
    assert_eq!(
        migrate(&pool).await.unwrap_err(),
        "the table \"users\" of the owners is missing: \
         make it in an earlier migration, or name another with --owner-table"
    );

    server.query(
        "app",
        "CREATE TABLE users (id BIGINT PRIMARY KEY); CREATE ROLE app LOGIN",
    );
    server.query("app", "REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let pool = connect(&as_role(&server.url("app"), "app")).await.unwrap();
    assert_eq!(
        migrate(&pool).await.unwrap_err(),
        "the role app may not create tables in the schema public: \
         let its owner GRANT CREATE ON SCHEMA public TO app"
    );
    server.query("app", "GRANT CREATE ON SCHEMA public TO app");
    assert_eq!(
        migrate(&pool).await.unwrap_err(),
        "the role app may not refer to \"users\": \
         let its owner GRANT REFERENCES ON \"users\" TO app"
    );
    server.query("app", "GRANT REFERENCES ON \"users\" TO app");
    migrate(&pool).await.unwrap();
}

/// Runs the migration that was generated first, which is the one for users.
async fn migrate(pool: &PgPool) -> Result<(), String> {
    let files = std::fs::read_dir("migrations").unwrap();
    let mut files = files.map(|entry| entry.unwrap().path());
    let ending = "_create_sagents_persistence.up.sql";
    let file = files.find(|path| path.to_str().unwrap().ends_with(ending));
    let sql = std::fs::read_to_string(file.unwrap()).unwrap();
    let ran = sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await;
    let message = |error: sqlx::Error| error.into_database_error().unwrap().message().to_owned();
    ran.map(|_| ()).map_err(message)
}

fn as_role(url: &str, role: &str) -> String {
    url.replace("sagents@", &format!("{role}@"))
}
