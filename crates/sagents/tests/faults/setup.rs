//! What errors say if a `PostgreSQL` database isn't set up: what's wrong, and what an operator can do.

use std::time::Duration;

use sagents::schema::{Database, Kind, OwnerColumn, OwnerKey, Schema, sql};
use sagents::sqlx::postgres::PgPoolOptions;
use sagents::sqlx::{self, AssertSqlSafe, PgPool};
use sagents::{Error, Result};

use super::{alice, hint};
use crate::support::TABLES;
use crate::support::postgres::Server;

/// The error of an attempt to connect.
async fn refusal(url: &str) -> String {
    told(&sagents::postgres::connect(url).await.unwrap_err())
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

fn as_role(url: &str, role: &str) -> String {
    url.replace("sagents@", &format!("{role}@"))
}

#[tokio::test]
async fn a_wrong_url_is_refused_with_an_example() {
    for url in ["", "sqlite:app.db", "mysql://localhost/app", "localhost:5432/app", "/app"] {
        let expected = "invalid: the database URL must start with postgres://, as in postgres://role@host/database";
        assert_eq!(refusal(url).await, expected, "{url}");
    }
    let port = refusal("postgres://localhost:many/app").await;
    assert_eq!(port, "database error: error with configuration: invalid port number");

    // No server listens there.
    let refused = refusal("postgres://sagents:secret@127.0.0.1:1/app").await;
    let remedy = ": start the server, or correct host and port in the database URL";
    assert!(refused.ends_with(remedy) && !refused.contains("secret"), "{refused}");
}

#[tokio::test]
async fn a_missing_database_and_a_missing_role_are_named() {
    let server = Server::start();
    assert_eq!(
        refusal(&server.url("absent")).await,
        "database error: database \"absent\" does not exist: \
         create the database, for example with `sqlx database create`"
    );
    assert_eq!(
        refusal(&as_role(&server.url("postgres"), "stranger")).await,
        "database error: role \"stranger\" does not exist: correct role and password in the database URL"
    );
}

#[tokio::test]
async fn a_server_without_a_free_connection_is_told_apart_from_a_small_pool() {
    let server = Server::start_with(&[("max_connections", "3"), ("superuser_reserved_connections", "0")]);
    let url = server.url("postgres");
    let pool = PgPoolOptions::new().max_connections(3);
    let others = pool.clone().min_connections(3).connect(&url).await.unwrap();
    assert_eq!(
        refusal(&url).await,
        "database error: sorry, too many clients already: \
         allow more connections on the server, or fewer in its clients"
    );
    // A pool tries until its time is up, and doesn't report why.
    let pool = pool.acquire_timeout(Duration::from_millis(300)).connect_lazy(&url).unwrap();
    let store = sagents::postgres::Store::new(pool, &TABLES);
    assert!(hint(store.unfinished_runs(&alice()).await).contains("the server has no connection left"));
    others.close().await;
}

#[tokio::test]
async fn missing_tables_and_missing_rights_are_named() {
    let server = Server::start();
    server.create_database("app");
    let url = server.url("app");
    let call = async |url: &str| {
        let store = sagents::postgres::Store::new(sagents::postgres::connect(url).await.unwrap(), &TABLES);
        sagents::testing::create_conversation(&store, &alice()).await.map_err(|error| told(&error))
    };
    assert_eq!(
        call(&url).await.unwrap_err(),
        "database error: relation \"sagents_conversations\" does not exist: run your migrations"
    );

    let pool = sagents::postgres::connect(&url).await.unwrap();
    sagents::testing::create_tables(&sagents::postgres::Store::new(pool, &TABLES)).await.unwrap();
    let _ = server.query("app", "CREATE ROLE app LOGIN");
    assert_eq!(
        call(&as_role(&url, "app")).await.unwrap_err(),
        "database error: permission denied for table sagents_conversations: \
         grant the role SELECT, INSERT, UPDATE and DELETE on the tables of sagents"
    );
    // The rights that the hint names are enough.
    let grant = "SELECT format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO app', tablename) FROM pg_tables \
                 WHERE tablename LIKE 'sagents\\_%'";
    for grant in server.query("app", grant).lines() {
        let _ = server.query("app", grant);
    }
    let id = call(&as_role(&url, "app")).await.unwrap();
    let store = super::connect(&as_role(&url, "app")).await;
    store.check().await.unwrap();
    super::append(&store, &alice(), id, "hello").await.unwrap();
    store.delete_conversation(&alice(), id).await.unwrap();
}

#[tokio::test]
async fn a_migration_that_cannot_run_says_what_it_lacks() {
    let server = Server::start();
    server.create_database("app");
    let pool = sagents::postgres::connect(&server.url("app")).await.unwrap();
    assert_eq!(
        migrate(&pool).await.unwrap_err(),
        "the table \"users\" of the owners is missing: \
         make it in an earlier migration, or name another with --owner-table"
    );

    let _ = server.query("app", "CREATE TABLE users (id BIGINT PRIMARY KEY); CREATE ROLE app LOGIN");
    let _ = server.query("app", "REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let pool = sagents::postgres::connect(&as_role(&server.url("app"), "app")).await.unwrap();
    assert_eq!(
        migrate(&pool).await.unwrap_err(),
        "the role app may not create tables in the schema public: \
         let its owner GRANT CREATE ON SCHEMA public TO app"
    );
    let _ = server.query("app", "GRANT CREATE ON SCHEMA public TO app");
    assert_eq!(
        migrate(&pool).await.unwrap_err(),
        "the role app may not refer to \"users\": let its owner GRANT REFERENCES ON \"users\" TO app"
    );
    let _ = server.query("app", "GRANT REFERENCES ON \"users\" TO app");
    migrate(&pool).await.unwrap();
}

/// Creates the tables as a migration does.
async fn migrate(pool: &PgPool) -> Result<(), String> {
    let users = OwnerKey { schema: None, table: "users".into(), column: "id".into() };
    let owner = OwnerColumn { name: "user_id".into(), kind: Kind::BigInteger, references: Some(users) };
    let statements = sql::create(&Schema::new("sagents_", &owner, false), Database::Postgres);
    let ran = sqlx::raw_sql(AssertSqlSafe(statements)).execute(pool).await;
    ran.map(drop).map_err(|error| error.into_database_error().unwrap().message().to_owned())
}
