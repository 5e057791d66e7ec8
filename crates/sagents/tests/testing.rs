//! The helpers for an application's tests, on tables as applications have them.

mod support;

use std::fs;
use std::path::Path;

use sagents::testing::{self, TestDatabase as HostDatabase};
use sagents::{Error, Group, Key, KeyKind, Owner, OwnerColumn, Tables};
use support::context::Conversations;
use support::{Kind, TABLES, TestDatabase};
use tempfile::TempDir;

on_both_databases!(
    migrations_run_in_the_order_of_their_numbers,
    a_migration_that_fails_is_named,
    owners_are_created_whatever_their_table_needs,
    an_owner_needs_no_table,
    owners_join_groups_in_a_table_of_memberships,
    owners_join_groups_in_their_own_table,
    a_test_database_is_removed,
);

/// A database as an application's tests have it, on the server that the other tests use.
async fn host_database(database: &TestDatabase) -> HostDatabase {
    match database.kind {
        Kind::Sqlite => HostDatabase::sqlite().unwrap(),
        Kind::Postgres => HostDatabase::postgres_on(&database.url).await.unwrap(),
    }
}

fn write(directory: &TempDir, path: &str, script: &str) {
    let path = directory.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, script).unwrap();
}

/// A migration of each layout, and what must not run.
async fn migrations_run_in_the_order_of_their_numbers(database: &TestDatabase) {
    for [one, two, ten, down] in [
        ["1_create.sql", "2_rows.sql", "10_more.sql", "README.md"],
        ["1_create.up.sql", "2_rows.up.sql", "10_more.up.sql", "10_more.down.sql"],
        [
            "2024-01-01-000000_a/up.sql",
            "2024-01-01-000001_b/up.sql",
            "2024-02-01-000000_c/up.sql",
            "2024-02-01-000000_c/down.sql",
        ],
        ["V1__create.sql", "U2__rows.sql", "V10__more.sql", "10_more/README.md"],
    ] {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, one, "CREATE TABLE steps (n BIGINT); CREATE TABLE other (n BIGINT);");
        write(&directory, two, "ALTER TABLE steps RENAME TO moved;");
        write(&directory, ten, "-- Two statements.\nINSERT INTO moved VALUES (10); INSERT INTO moved VALUES (11);");
        write(&directory, down, "DROP TABLE moved;");
        let host = host_database(database).await;
        host.run_migrations(directory.path()).await.unwrap();
        assert_eq!(count(&host, "SELECT count(*) FROM moved").await, 2, "{one}");
    }
}

async fn count(host: &HostDatabase, sql: &'static str) -> i64 {
    use sagents::sqlx::{Connection as _, PgConnection, SqliteConnection, query_scalar};
    if host.url().starts_with("sqlite") {
        let mut connection = SqliteConnection::connect(host.url()).await.unwrap();
        return query_scalar(sql).fetch_one(&mut connection).await.unwrap();
    }
    let mut connection = PgConnection::connect(host.url()).await.unwrap();
    let count = query_scalar(sql).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    count
}

async fn a_migration_that_fails_is_named(database: &TestDatabase) {
    let directory = tempfile::tempdir().unwrap();
    let host = host_database(database).await;
    let message = |path: &Path, result: sagents::Result<()>| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(path.to_str().unwrap()), "{message}");
        message
    };
    let empty = host.run_migrations(directory.path()).await;
    assert!(message(directory.path(), empty).contains("no SQL migrations"));
    let missing = directory.path().join("missing");
    message(&missing, host.run_migrations(&missing).await);
    write(&directory, "1_good.sql", "CREATE TABLE good (n BIGINT);");
    write(&directory, "2_bad.sql", "INSERT INTO bad VALUES (1);");
    let bad = host.run_migrations(directory.path()).await;
    assert!(message(&directory.path().join("2_bad.sql"), bad).contains("bad"));
}

/// The tables, with a foreign key to a table of the application's.
async fn with_owners(database: &TestDatabase, tables: &Tables, owners: &str, create_owners: &str) -> Conversations {
    database.execute(create_owners).await;
    let store = database.store(tables).await;
    let (conversations, owner) = (format!("{}conversations", tables.prefix()), tables.owner().name());
    if database.kind == Kind::Postgres {
        database
            .execute(&format!(
                "ALTER TABLE {conversations} ADD FOREIGN KEY ({owner}) REFERENCES {owners} ON DELETE CASCADE"
            ))
            .await;
        return store;
    }
    // SQLite has no statement for that. What it stores is the text of the statement that created the table.
    let pool = database.pool().await;
    let sql = pool.texts(format!("SELECT sql FROM sqlite_schema WHERE name = '{conversations}'")).await.remove(0);
    let key = format!(", FOREIGN KEY ({owner}) REFERENCES {owners} ON DELETE CASCADE) STRICT");
    let sql = sql.replacen(") STRICT", &key, 1);
    let rest = pool
        .texts(format!(
            "SELECT sql FROM sqlite_schema WHERE tbl_name = '{conversations}' AND type = 'index' AND sql <> ''"
        ))
        .await
        .join(";");
    database.execute(&format!("PRAGMA foreign_keys = OFF; DROP TABLE {conversations}; {sql}; {rest}")).await;
    store
}

async fn owners_are_created_whatever_their_table_needs(database: &TestDatabase) {
    const TEAMS: Tables = Tables::new(1, "teams_", OwnerColumn::uuid("team_id"));
    const ACCOUNTS: Tables = Tables::new(1, "accounts_", OwnerColumn::text("account"));

    let (identity, uuid) = match database.kind {
        Kind::Sqlite => ("INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB"),
        Kind::Postgres => ("BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "UUID"),
    };
    let users = format!(
        "CREATE TABLE plans (id BIGINT PRIMARY KEY);
         CREATE TABLE users (
             id {identity}, email TEXT NOT NULL UNIQUE, name TEXT NOT NULL DEFAULT '' UNIQUE,
             plan BIGINT NOT NULL DEFAULT 1 REFERENCES plans (id), age BIGINT NOT NULL CHECK (age > 17),
             shown TEXT GENERATED ALWAYS AS (upper(name)) STORED
         );
         CREATE TABLE logins (user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE);
         INSERT INTO plans VALUES (1);
         INSERT INTO users (email, name, age) VALUES ('ann@example.com', 'Ann', 40);
         INSERT INTO logins VALUES (1)"
    );
    let teams = format!(
        "CREATE TABLE team_rows (
             internal BIGINT NOT NULL, public {uuid} NOT NULL UNIQUE, name TEXT NOT NULL, PRIMARY KEY (internal, name)
         )"
    );
    let accounts = "CREATE TABLE account_rows (account VARCHAR(40) PRIMARY KEY, since TEXT NOT NULL)";
    for (tables, owners, sql) in [
        (TABLES, "users (id)", users.as_str()),
        (TEAMS, "team_rows (public)", &teams),
        (ACCOUNTS, "account_rows", accounts),
    ] {
        let store = with_owners(database, &tables, owners, sql).await;
        // User 1 is there.
        for number in [2, 3] {
            let owner = support::fixture::owner(&tables, number);
            assert!(matches!(testing::create_conversation(&store, &owner).await, Err(Error::Database(_))), "{owner:?}");
            for _ in 0..2 {
                testing::create_owner(&store, &owner).await.unwrap();
            }
            let id = testing::create_conversation(&store, &owner).await.unwrap();
            assert_eq!(store.get_conversation(&owner, id).await.unwrap().scope, owner.to_json());
        }
    }
    let pool = database.pool().await;
    assert_eq!(pool.number("SELECT count(*) FROM users").await, 3);
    assert_eq!(pool.texts("SELECT name FROM users WHERE id = 1").await, ["Ann"]);
    assert_eq!(pool.number("SELECT count(*) FROM logins").await, 1, "its rows stay");
    // The foreign key is still enforced, and deletes cascade.
    assert_eq!(pool.execute("DELETE FROM users WHERE id = 2").await, 1);
    assert_eq!(pool.number("SELECT count(*) FROM sagents_conversations").await, 1);
}

async fn an_owner_needs_no_table(database: &TestDatabase) {
    for tables in support::fixture::KINDS {
        let store = database.store(&tables).await;
        let owner = support::fixture::owner(&tables, 1);
        testing::create_owner(&store, &owner).await.unwrap();
        testing::create_conversation(&store, &owner).await.unwrap();
        assert_invalid!(testing::join_group(&store, &owner, 1));
    }
}

/// A member of the group, and how many conversations the group reaches.
async fn reached(store: &Conversations, group: &Key) -> usize {
    let group = sagents::Reach::Group(group.clone());
    store.list_conversations(&group, sagents::ListConversations::new()).await.unwrap().items.len()
}

async fn owners_join_groups_in_a_table_of_memberships(database: &TestDatabase) {
    const ORG: Tables =
        TABLES.group(Group { table: "memberships", group: "org_id", kind: KeyKind::Text, member: "user_id" });

    let users = "CREATE TABLE users (id BIGINT PRIMARY KEY, email TEXT NOT NULL);
         CREATE TABLE orgs (id TEXT PRIMARY KEY, name TEXT NOT NULL);
         CREATE TABLE memberships (
             id TEXT NOT NULL PRIMARY KEY, org_id TEXT NOT NULL REFERENCES orgs (id),
             user_id BIGINT NOT NULL REFERENCES users (id), role TEXT NOT NULL
         )";
    let store = with_owners(database, &ORG, "users (id)", users).await;
    let (acme, globex) = (Key::from("acme"), Key::from("globex"));
    for (number, group) in [(1, &acme), (2, &acme), (2, &globex), (2, &globex)] {
        testing::join_group(&store, &Owner::new("user", number), group).await.unwrap();
    }
    for number in [1, 2] {
        testing::create_conversation(&store, &Owner::new("user", number)).await.unwrap();
    }
    assert_eq!((reached(&store, &acme).await, reached(&store, &globex).await), (2, 1));
    assert_eq!(database.pool().await.number("SELECT count(*) FROM memberships").await, 3);
}

async fn owners_join_groups_in_their_own_table(database: &TestDatabase) {
    const ORG: Tables = TABLES.group(Group { table: "users", group: "org_id", kind: KeyKind::Integer, member: "id" });

    let users = "CREATE TABLE orgs (id BIGINT PRIMARY KEY, name TEXT NOT NULL);
         CREATE TABLE users (id BIGINT PRIMARY KEY, email TEXT NOT NULL, org_id BIGINT NOT NULL REFERENCES orgs (id))";
    let store = with_owners(database, &ORG, "users (id)", users).await;
    let owner = Owner::new("user", 1);
    for (group, former) in [(7, 8), (8, 7)] {
        testing::join_group(&store, &owner, group).await.unwrap();
        testing::create_conversation(&store, &owner).await.unwrap();
        assert_eq!(reached(&store, &Key::from(former)).await, 0);
    }
    assert_eq!(reached(&store, &Key::from(8)).await, 2);
    assert_eq!(database.pool().await.number("SELECT count(*) FROM users").await, 1);
}

async fn a_test_database_is_removed(database: &TestDatabase) {
    let host = host_database(database).await;
    let url = host.url().to_owned();
    match database.kind {
        Kind::Sqlite => {
            drop(sagents::sqlite::connect(&url).await.unwrap());
            let file = Path::new(url.strip_prefix("sqlite://").unwrap()).to_owned();
            assert!(file.exists());
            drop(host);
            assert!(!file.parent().unwrap().exists());
        }
        Kind::Postgres => {
            // Even if something is connected.
            let pool = sagents::postgres::connect(&url).await.unwrap();
            let _connection = pool.acquire().await.unwrap();
            drop(host);
            let error = sagents::postgres::connect(&url).await.unwrap_err();
            assert_eq!(error.hint(), Some("create the database, for example with `sqlx database create`"));
        }
    }
}

#[tokio::test]
async fn a_role_that_may_not_create_databases_is_told() {
    let database = TestDatabase::new(Kind::Postgres);
    let role = format!("limited_{}", uuid::Uuid::now_v7().simple());
    database.execute(&format!("CREATE ROLE {role} LOGIN")).await;
    let url = database.url.replacen("://sagents@", &format!("://{role}@"), 1);
    let error = HostDatabase::postgres_on(&url).await.unwrap_err().to_string();
    database.execute(&format!("DROP ROLE {role}")).await;
    assert!(error.contains("permission denied") && error.contains("CREATEDB"), "{error}");
}
