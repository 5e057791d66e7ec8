//! The tables as the library creates and checks them.

mod support;

use sagents::schema::{self, Schema};
use sagents::{Error, Expect, Group, KeyKind, NewDisplayMessage, Owner, OwnerColumn, State, Store, Tables, testing};
use support::context::NewConversation;
use support::pool::Pool;
use support::{Kind, TABLES, TestDatabase};
use uuid::Uuid;

on_both_databases!(
    created_tables_fit,
    dropped_tables_leave_nothing_and_can_be_created_again,
    a_missing_table_or_column_is_named,
    a_column_of_the_hosts_must_be_listed,
    a_column_without_default_must_allow_null,
    keys_types_and_indexes_are_compared,
    a_foreign_key_must_cascade,
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

/// Everything that the database has beside data.
async fn catalogue(pool: &Pool) -> Vec<String> {
    let objects = match pool {
        Pool::Sqlite(_) => "SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1",
        Pool::Postgres(_) => {
            "SELECT 'relation ' || relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
             UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
             UNION ALL SELECT 'type ' || typname FROM pg_type WHERE typnamespace = 'public'::regnamespace
             UNION ALL SELECT 'constraint ' || conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)
                 FROM pg_constraint WHERE connamespace = 'public'::regnamespace
             UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"
        }
    };
    pool.texts(objects).await
}

async fn dropped_tables_leave_nothing_and_can_be_created_again(database: &TestDatabase) {
    let pool = database.pool().await;
    let empty = catalogue(&pool).await;
    // What the generator writes into a migration's way down.
    let dialect = match database.kind {
        Kind::Sqlite => schema::Database::Sqlite,
        Kind::Postgres => schema::Database::Postgres,
    };
    let owner = schema::OwnerColumn { name: "user_id".into(), kind: schema::Kind::BigInteger, references: None };
    let down = schema::sql::drop(&Schema::new("sagents_", &owner, false), dialect);
    let mut made = Vec::new();
    for _ in 0..2 {
        let store = pool.store(&TABLES);
        testing::create_tables(&store).await.unwrap();
        made.push(catalogue(&pool).await);
        let owner = Owner::new("user", 1);
        let id = store.create_conversation(&owner, NewConversation::new()).await.unwrap().id;
        let call = NewDisplayMessage::tool_call("call_1", "search");
        store.append_display_message(&owner, id, call).await.unwrap();
        store.save_agent_state(&owner, id, &State::new(), Expect::NOTHING).await.unwrap();
        database.execute(&down).await;
        assert_eq!(catalogue(&pool).await, empty);
    }
    assert_eq!(made[0], made[1]);
    assert!(made[0].iter().any(|object| object.contains("sagents_conversations")), "{made:?}");
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
    let store = database.connect(&WITH_PROJECT).await;
    testing::check_tables(&store).await.unwrap();

    // A former owner's column isn't copied, and doesn't have to be there.
    let store = database.connect(&TABLES.former_owner_columns(&["project_id"])).await;
    testing::check_tables(&store).await.unwrap();
    database.execute("ALTER TABLE sagents_conversations DROP COLUMN project_id").await;
    testing::check_tables(&store).await.unwrap();
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
                 PRIMARY KEY (user_id, conversation_id, message_id), \
                 FOREIGN KEY (user_id, conversation_id) REFERENCES sagents_conversations ON DELETE CASCADE); \
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
        "sagents_runs has no foreign key on (user_id, conversation_id) to sagents_conversations with ON DELETE CASCADE",
        "sagents_usage has no index sagents_usage_times",
    ] {
        assert!(problems.contains(expected), "{expected} in {problems}");
    }
}

async fn a_foreign_key_must_cascade(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    let key = "FOREIGN KEY (user_id, conversation_id) REFERENCES sagents_conversations (user_id, id)";
    if database.kind == Kind::Sqlite {
        // SQLite can't change a constraint; a migration would rebuild the table.
        database
            .execute(&format!(
                "DROP TABLE sagents_usage; \
                 CREATE TABLE sagents_usage (user_id INTEGER NOT NULL, conversation_id BLOB NOT NULL, \
                 message_id BLOB NOT NULL, model TEXT, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, \
                 cached_tokens INTEGER NOT NULL, inserted_at TEXT NOT NULL, \
                 PRIMARY KEY (user_id, conversation_id, message_id), {key}); \
                 CREATE INDEX sagents_usage_times ON sagents_usage (user_id, inserted_at)"
            ))
            .await;
    } else {
        database
            .execute(&format!(
                "ALTER TABLE sagents_usage DROP CONSTRAINT sagents_usage_fkey; ALTER TABLE sagents_usage ADD {key}"
            ))
            .await;
    }
    let missing = "sagents_usage has no foreign key on (user_id, conversation_id) to sagents_conversations with ON DELETE CASCADE";
    assert_eq!(problems(&store).await, [missing]);
}
