//! Tables and migrations of the host.

use insta::assert_snapshot;

use super::{PLAIN, assert_a_second_run_changes_nothing, created, lines_with};
use crate::support::Host;

#[test]
fn a_table_called_user_with_a_uuid_key_is_found() {
    let sql = "CREATE TABLE \"user\" (\"user_id\" UUID PRIMARY KEY, email TEXT NOT NULL UNIQUE);\n";
    let host = Host::library().file("migrations/20240101000000_user.up.sql", sql);
    host.generate(PLAIN);
    let migration = host.find("_create_sagents_persistence.up.sql");
    assert_snapshot!(lines_with(&host, &migration, "user_id"), @r#"
    "user_id" BLOB NOT NULL,
    CONSTRAINT "sagents_conversations_pkey" PRIMARY KEY ("user_id", "id"),
    CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "user" ("user_id") ON DELETE CASCADE,
    CONSTRAINT "user_id_is_uuid" CHECK (length("user_id") = 16),
    CREATE INDEX "sagents_conversations_active" ON "sagents_conversations" ("user_id", "updated_at" DESC, "id" DESC)
    CREATE INDEX "sagents_conversations_archived" ON "sagents_conversations" ("user_id", "updated_at" DESC, "id" DESC)
    CREATE INDEX "sagents_conversations_active_id" ON "sagents_conversations" ("user_id", "id")
    CREATE INDEX "sagents_conversations_archived_id" ON "sagents_conversations" ("user_id", "id")
    "user_id" BLOB NOT NULL,
    CONSTRAINT "sagents_agent_states_pkey" PRIMARY KEY ("user_id", "conversation_id"),
    CONSTRAINT "sagents_agent_states_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE,
    CONSTRAINT "user_id_is_uuid" CHECK (length("user_id") = 16),
    "user_id" BLOB NOT NULL,
    CONSTRAINT "sagents_display_messages_pkey" PRIMARY KEY ("user_id", "conversation_id", "sequence"),
    CONSTRAINT "sagents_display_messages_key" UNIQUE ("user_id", "conversation_id", "message_id", "item"),
    CONSTRAINT "sagents_display_messages_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE,
    CONSTRAINT "user_id_is_uuid" CHECK (length("user_id") = 16),
    CREATE INDEX "sagents_display_messages_tool_calls" ON "sagents_display_messages" ("user_id", "conversation_id", "tool_call_id", "content_type", "sequence")
    CREATE INDEX "sagents_display_messages_changed" ON "sagents_display_messages" ("user_id", "conversation_id", "changed", "sequence")
    CREATE INDEX "sagents_display_messages_unsettled" ON "sagents_display_messages" ("user_id", "conversation_id", "delivery", "message_id")
    "user_id" BLOB NOT NULL,
    CONSTRAINT "sagents_agent_messages_pkey" PRIMARY KEY ("user_id", "conversation_id", "epoch", "position"),
    CONSTRAINT "sagents_agent_messages_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE,
    CONSTRAINT "user_id_is_uuid" CHECK (length("user_id") = 16),
    "user_id" BLOB NOT NULL,
    CONSTRAINT "sagents_unreadable_states_pkey" PRIMARY KEY ("user_id", "conversation_id", "epoch"),
    CONSTRAINT "sagents_unreadable_states_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE,
    CONSTRAINT "user_id_is_uuid" CHECK (length("user_id") = 16),
    "user_id" BLOB NOT NULL,
    CONSTRAINT "sagents_runs_pkey" PRIMARY KEY ("user_id", "conversation_id"),
    CONSTRAINT "sagents_runs_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE,
    CONSTRAINT "user_id_is_uuid" CHECK (length("user_id") = 16),
    CREATE INDEX "sagents_runs_unfinished" ON "sagents_runs" ("user_id", "started_at")
    "user_id" BLOB NOT NULL,
    CONSTRAINT "sagents_usage_pkey" PRIMARY KEY ("user_id", "conversation_id", "message_id"),
    CONSTRAINT "sagents_usage_fkey" FOREIGN KEY ("user_id", "conversation_id") REFERENCES "sagents_conversations" ("user_id", "id") ON DELETE CASCADE,
    CONSTRAINT "user_id_is_uuid" CHECK (length("user_id") = 16),
    CREATE INDEX "sagents_usage_times" ON "sagents_usage" ("user_id", "inserted_at");
    "#);
    assert_snapshot!(lines_with(&host, "src/accounts.rs", "pub "), @"
    pub struct Scope {
    pub user_id: uuid::Uuid,
    ");
}

#[test]
fn an_owner_that_is_called_like_a_table_of_ours_is_not_taken_for_it() {
    let host = Host::library();
    let line = "gen persistence chats -s accounts::Scope -t sagents_conversation";
    host.generate(line);
    assert_a_second_run_changes_nothing(&host, line);
}

#[test]
fn migrations_that_no_parser_knows_are_passed_over() {
    let sql = "PRAGMA foreign_keys = ON;\nCREATE VIRTUAL TABLE t USING fts5(a, tokenize = 'porter');\n\
               this is garbage ) (;\nCREATE TABLE users (id TEXT PRIMARY KEY);\nCREATE TRIGGER x AFTER INSERT ON users BEGIN DELETE FROM t; END;\n";
    let host = Host::library().file("migrations/0001_odd.sql", sql);
    host.generate(PLAIN);
    let migration = "migrations/0002_create_sagents_persistence.sql";
    assert_snapshot!(lines_with(&host, migration, "REFERENCES \"users\""), @r#"CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "users" ("id") ON DELETE CASCADE,"#);
}

#[test]
fn migrations_keep_the_hosts_habits() {
    let simple = Host::library().file("migrations/0007_things.sql", "");
    let reversible = Host::library().file("migrations/7_things.up.sql", "").file("migrations/7_things.down.sql", "");
    let stamped = Host::library().file("migrations/20240101000000_things.sql", "");
    let all = [simple, reversible, stamped].each_ref().map(|host| created(host, PLAIN));
    let migrations = all.iter().flat_map(|created| created.lines()).filter(|line| line.starts_with("migrations/"));
    assert_snapshot!(migrations.collect::<Vec<_>>().join("\n"), @"
    migrations/0008_create_sagents_persistence.sql
    migrations/8_create_sagents_persistence.down.sql
    migrations/8_create_sagents_persistence.up.sql
    migrations/[version]_create_sagents_persistence.sql
    ");
}

#[test]
fn a_migration_that_never_ran_is_written_again_once_its_tables_are_forgotten() {
    let host = Host::library();
    host.generate("gen persistence conversations -s accounts::Scope --owner-table usrs");
    for ending in ["up.sql", "down.sql"] {
        std::fs::remove_file(host.root().join(host.find(ending))).unwrap();
    }
    let line = "gen persistence conversations -s accounts::Scope --owner-table users";
    assert_eq!(host.sagents(line).code, 5);
    std::fs::remove_file(host.root().join(".sagents/conversations/schema.json")).unwrap();
    host.generate(line);
    assert!(host.read(&host.find("up.sql")).contains(r#"REFERENCES "users" ("id")"#));
}
