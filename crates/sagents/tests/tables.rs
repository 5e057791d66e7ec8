//! The tables as the library creates and checks them.

mod support;

use sagents::{Error, Group, KeyKind, Owner, OwnerColumn, Store, Tables, testing};
use support::{Kind, TABLES, TestDatabase};
use uuid::Uuid;

on_both_databases!(
    created_tables_fit,
    a_missing_table_or_column_is_named,
    a_column_of_the_hosts_must_be_listed,
    a_column_without_default_must_allow_null,
    keys_types_and_indexes_are_compared,
);

const KINDS: [Tables; 4] = [
    TABLES,
    Tables::new(1, "chat_", OwnerColumn::uuid("team_id")),
    Tables::new(1, "", OwnerColumn::text("account")),
    Tables::new(1, "nobodys_", OwnerColumn::none()).group(Group {
        table: "members",
        group: "org_id",
        kind: KeyKind::Integer,
        member: "user_id",
    }),
];

async fn problems(store: &Store) -> Vec<String> {
    match testing::check_tables(store).await {
        Ok(()) => Vec::new(),
        Err(Error::Tables { problems }) => problems,
        Err(error) => panic!("{error:?}"),
    }
}

async fn created_tables_fit(database: &TestDatabase) {
    for tables in &KINDS {
        let store = database.connect(tables).await;
        store.check().await.unwrap_err();
        testing::create_tables(&store).await.unwrap();
        assert_eq!(problems(&store).await, [""; 0], "{tables:?}");
        store.check().await.unwrap();
    }
}

async fn a_missing_table_or_column_is_named(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    database.execute("ALTER TABLE sagents_runs DROP COLUMN holder; DROP TABLE sagents_usage").await;

    let error = store.check().await.unwrap_err();
    let said = "the tables don't fit: the table sagents_runs has no column holder; the table sagents_usage is missing";
    assert_eq!(error.to_string(), said);
    assert_eq!(error.hint(), Some("run your migrations"));
    // A call fails, too, and never returns something wrong.
    let error = store.get_run(&Owner::new("user", 1), Uuid::now_v7()).await.unwrap_err();
    assert_eq!(error.hint(), Some("run your migrations"));
}

async fn a_column_of_the_hosts_must_be_listed(database: &TestDatabase) {
    const WITH_PROJECT: Tables = TABLES.conversation_columns(&["id", "project_id"]);

    let store = database.store(&TABLES).await;
    let missing = database.connect(&WITH_PROJECT).await.check().await.unwrap_err();
    assert_eq!(missing.to_string(), "the tables don't fit: the table sagents_conversations has no column project_id");

    database.execute("ALTER TABLE sagents_conversations ADD COLUMN project_id INTEGER").await;
    store.check().await.expect("a column that isn't listed doesn't stop a running application");
    let problems = problems(&store).await;
    assert!(problems[0].contains("add it to Conversation::COLUMNS"), "{problems:?}");
    testing::check_tables(&database.connect(&WITH_PROJECT).await).await.unwrap();
}

async fn a_column_without_default_must_allow_null(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    if database.kind == Kind::Sqlite {
        // SQLite can't add such a column; a migration would rebuild the table.
        database
            .execute(
                "CREATE TABLE other (a BIGINT NOT NULL); DROP TABLE sagents_usage; \
                 CREATE TABLE sagents_usage (user_id INTEGER NOT NULL, conversation_id BLOB NOT NULL, \
                 message_id BLOB NOT NULL, model TEXT, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, \
                 cached_tokens INTEGER NOT NULL, inserted_at TEXT NOT NULL, project_id INTEGER NOT NULL, \
                 PRIMARY KEY (user_id, conversation_id, message_id)); \
                 CREATE INDEX sagents_usage_times ON sagents_usage (user_id, inserted_at)",
            )
            .await;
    } else {
        database.execute("ALTER TABLE sagents_usage ADD COLUMN project_id BIGINT NOT NULL").await;
    }
    assert_eq!(problems(&store).await, ["sagents_usage.project_id needs a default or has to allow NULL"]);
}

async fn keys_types_and_indexes_are_compared(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    database
        .execute(
            "DROP INDEX sagents_usage_times; DROP TABLE sagents_runs; \
             CREATE TABLE sagents_runs (user_id TEXT NOT NULL, conversation_id BIGINT, run_id TEXT, holder TEXT, \
             status TEXT, waiting_for TEXT, cancel_requested TEXT, started_at TEXT, seen_at BIGINT, resumed TEXT, \
             PRIMARY KEY (conversation_id, user_id)); \
             CREATE INDEX sagents_runs_unfinished ON sagents_runs (user_id)",
        )
        .await;
    let problems = problems(&store).await.join("\n");
    for expected in [
        "sagents_runs.user_id is text, and not",
        "sagents_runs.conversation_id is bigint, and not",
        "sagents_runs.seen_at is bigint, and not",
        "the primary key of sagents_runs isn't (user_id, conversation_id)",
        "sagents_usage has no index sagents_usage_times",
    ] {
        assert!(problems.contains(expected), "{expected} in {problems}");
    }
}
