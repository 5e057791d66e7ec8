//! Reading hosts and wiring them: which lines go where, and what is left as it was.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use insta::assert_snapshot;

use crate::support::{FULL, Host, Run, manifest};
use crate::transcript::{anonymous, next};

const PLAIN: &str = "gen persistence conversations -s accounts::Scope";

/// The files that were not there before, without the generator's memory. Of the files below the context's one stands
/// for all.
fn created(host: &Host, line: &str) -> String {
    let before = host.files();
    host.generate(line);
    let mut created: Vec<_> = host.files().into_keys().filter(|path| !before.contains_key(path)).collect();
    created.retain(|path| !path.contains(".sagents/") && (!path.contains("conversations/") || is_shown(path)));
    anonymous(host, &created.join("\n"))
}

fn is_shown(path: &str) -> bool {
    path.ends_with("/mod.rs") || path.ends_with("/scope.rs")
}

/// The lines of a file that contain a text.
fn lines_with(host: &Host, path: &str, text: &str) -> String {
    host.read(path).lines().filter(|line| line.contains(text)).map(str::trim).collect::<Vec<_>>().join("\n")
}

fn assert_a_second_run_changes_nothing(host: &Host, line: &str) {
    let before = host.files();
    let run = host.generate(line);
    assert!(run.stdout.starts_with("Up to date: "), "{}", run.stdout);
    assert_eq!(host.files(), before);
}

#[test]
fn a_second_run_changes_no_byte_and_says_so() {
    let host = Host::library();
    host.generate(FULL);
    assert_a_second_run_changes_nothing(&host, FULL);
}

#[test]
fn a_library_gets_public_modules() {
    let host = Host::library();
    assert_snapshot!(created(&host, PLAIN), @"
    .gitattributes
    migrations/[version]_create_sagents_persistence.down.sql
    migrations/[version]_create_sagents_persistence.up.sql
    sagents.toml
    src/accounts.rs
    src/conversations.rs
    src/conversations/scope.rs
    src/sagents.rs
    src/sagents/branch.rs
    src/sagents/display.rs
    src/sagents/export.rs
    src/sagents/export/checks.rs
    src/sagents/export/fields.rs
    src/sagents/export/file.rs
    src/sagents/export/rows.rs
    src/sagents/export/values.rs
    src/sagents/export/whole_state.rs
    src/sagents/extensions.rs
    src/sagents/json.rs
    src/sagents/message.rs
    src/sagents/messages.rs
    src/sagents/persistence.rs
    src/sagents/run.rs
    src/sagents/serializer.rs
    src/sagents/session.rs
    src/sagents/session/backoff.rs
    src/sagents/session/coordinator.rs
    src/sagents/session/drafts.rs
    src/sagents/session/edits.rs
    src/sagents/session/event.rs
    src/sagents/session/guard.rs
    src/sagents/session/handle.rs
    src/sagents/session/options.rs
    src/sagents/session/registry.rs
    src/sagents/session/reloads.rs
    src/sagents/session/rewinds.rs
    src/sagents/session/runs.rs
    src/sagents/session/saves.rs
    src/sagents/session/state.rs
    src/sagents/session/task.rs
    src/sagents/session/tools.rs
    src/sagents/session/turn.rs
    src/sagents/session/writer.rs
    src/sagents/session/writes.rs
    src/sagents/state.rs
    src/sagents/stored.rs
    src/sagents/timestamp.rs
    src/sagents/todo.rs
    src/sagents/turn.rs
    src/sagents/usage.rs
    ");
    assert_snapshot!(host.read("src/lib.rs"), @"
    pub mod accounts;
    pub mod conversations;
    pub mod sagents;
    ");
}

#[test]
fn a_library_gets_the_dependencies_that_it_lacks() {
    let host = Host::library();
    host.generate(PLAIN);
    assert_snapshot!(host.read("Cargo.toml"), @r#"
    [package]
    name = "my_app"
    version = "0.1.0"
    edition = "2024"

    [dependencies]
    chrono = { version = "0.4", features = ["serde"] }
    serde = { version = "1.0", features = ["derive"] }
    serde_json = { version = "1.0", features = ["float_roundtrip"] }
    sqlx = { version = "0.9", features = ["chrono", "runtime-tokio", "sqlite", "uuid"] }
    thiserror = "2.0"
    tokio = { version = "1.40", features = ["rt", "sync", "time"] }
    tracing = "0.1"
    uuid = { version = "1.10", features = ["serde", "v7"] }

    [dev-dependencies]
    tokio = { version = "1.40", features = ["macros", "rt-multi-thread"] }
    "#);
}

#[test]
fn a_binary_gets_private_modules_that_may_be_unused() {
    let host = Host::binary();
    host.generate(PLAIN);
    assert_snapshot!(host.read("src/main.rs"), @"
    mod accounts;
    mod conversations;
    mod sagents;

    fn main() {}
    ");
    assert_snapshot!(lines_with(&host, "src/conversations.rs", "#!["), @"#![allow(");
}

#[test]
fn of_a_library_and_a_binary_the_library_gets_the_code() {
    let host = Host::library().file("src/main.rs", "fn main() {}\n");
    host.generate(PLAIN);
    assert_snapshot!(host.read("src/lib.rs"), @"
    pub mod accounts;
    pub mod conversations;
    pub mod sagents;
    ");
    assert_eq!(host.read("src/main.rs"), "fn main() {}\n");
}

#[test]
fn of_several_binaries_the_packages_own_gets_the_code() {
    let host = Host::binary().file("src/bin/import.rs", "fn main() {}\n");
    host.generate(PLAIN);
    assert_snapshot!(host.read("src/main.rs"), @"
    mod accounts;
    mod conversations;
    mod sagents;

    fn main() {}
    ");
}

fn workspace() -> Host {
    let root = "[workspace]\nmembers = [\"web\"]\nresolver = \"3\"\n\n[workspace.dependencies]\n\
                sqlx = { version = \"0.8.6\", default-features = false, features = [\"macros\"] }\nuuid = \"1.12\"\n";
    Host::empty().file("Cargo.toml", root).file("web/src/lib.rs", "")
}

#[test]
fn a_member_of_a_workspace_is_named_from_the_root() {
    let host = workspace().file("web/Cargo.toml", &manifest("web", "2024", ""));
    assert_snapshot!(created(&host, "gen persistence Web.Conversations -s Web.Accounts.Scope --path web"), @"
    web/.gitattributes
    web/migrations/[version]_create_sagents_persistence.down.sql
    web/migrations/[version]_create_sagents_persistence.up.sql
    web/sagents.toml
    web/src/accounts.rs
    web/src/conversations.rs
    web/src/conversations/scope.rs
    web/src/sagents.rs
    web/src/sagents/branch.rs
    web/src/sagents/display.rs
    web/src/sagents/export.rs
    web/src/sagents/export/checks.rs
    web/src/sagents/export/fields.rs
    web/src/sagents/export/file.rs
    web/src/sagents/export/rows.rs
    web/src/sagents/export/values.rs
    web/src/sagents/export/whole_state.rs
    web/src/sagents/extensions.rs
    web/src/sagents/json.rs
    web/src/sagents/message.rs
    web/src/sagents/messages.rs
    web/src/sagents/persistence.rs
    web/src/sagents/run.rs
    web/src/sagents/serializer.rs
    web/src/sagents/session.rs
    web/src/sagents/session/backoff.rs
    web/src/sagents/session/coordinator.rs
    web/src/sagents/session/drafts.rs
    web/src/sagents/session/edits.rs
    web/src/sagents/session/event.rs
    web/src/sagents/session/guard.rs
    web/src/sagents/session/handle.rs
    web/src/sagents/session/options.rs
    web/src/sagents/session/registry.rs
    web/src/sagents/session/reloads.rs
    web/src/sagents/session/rewinds.rs
    web/src/sagents/session/runs.rs
    web/src/sagents/session/saves.rs
    web/src/sagents/session/state.rs
    web/src/sagents/session/task.rs
    web/src/sagents/session/tools.rs
    web/src/sagents/session/turn.rs
    web/src/sagents/session/writer.rs
    web/src/sagents/session/writes.rs
    web/src/sagents/state.rs
    web/src/sagents/stored.rs
    web/src/sagents/timestamp.rs
    web/src/sagents/todo.rs
    web/src/sagents/turn.rs
    web/src/sagents/usage.rs
    ");
}

#[test]
fn what_a_workspace_offers_is_inherited() {
    let host = workspace().file("web/Cargo.toml", &manifest("web", "2024", ""));
    let before = host.read("Cargo.toml");
    host.generate("gen persistence Web.Conversations -s Web.Accounts.Scope --path web");
    assert_snapshot!(lines_with(&host, "web/Cargo.toml", "workspace"), @r#"
    sqlx = { workspace = true, features = ["chrono", "json", "runtime-tokio", "sqlite", "uuid"] }
    uuid = { workspace = true, features = ["serde", "v7"] }
    "#);
    assert_eq!(host.read("Cargo.toml"), before);
}

#[test]
fn an_sqlx_that_is_inherited_gets_the_features_that_it_lacks() {
    let member = manifest("web", "2024", "\n[dependencies]\nsqlx = { workspace = true } # the database\n");
    let host = workspace().file("web/Cargo.toml", &member);
    host.generate("gen persistence Web.Conversations -s Web.Accounts.Scope --path web");
    assert_snapshot!(lines_with(&host, "web/Cargo.toml", "sqlx"), @r#"sqlx = { workspace = true, features = ["chrono", "json", "runtime-tokio", "sqlite", "uuid"] } # the database"#);
}

#[test]
fn migrations_may_be_shared_in_the_workspace() {
    let host = workspace()
        .file("web/Cargo.toml", &manifest("web", "2024", ""))
        .file("migrations/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    let line = "gen persistence Web.Conversations -s Web.Accounts.Scope --path web --migrations ../migrations";
    let run = host.generate(line);
    assert!(host.exists("migrations/0002_create_sagents_persistence.sql"));
    assert_snapshot!(next(&run), @"
    Next:
      sqlx migrate run --source migrations  # creates the tables in DATABASE_URL
    ");
    assert_snapshot!(lines_with(&host, "web/src/conversations/tests/database.rs", "0002_"), @r#""/../migrations/0002_create_sagents_persistence.sql""#);
    assert_a_second_run_changes_nothing(&host, line);
}

#[test]
fn a_renamed_sqlx_is_known_by_its_name() {
    let renamed = "\n[dependencies]\ndb = { package = \"sqlx\", version = \"0.9\", features = [\"sqlite\"] }\n";
    let host = Host::library()
        .file("Cargo.toml", &manifest("my_app", "2024", renamed))
        .file("src/lib.rs", "//! A library.\n\nuse std::fmt;\n");
    host.generate(PLAIN);
    assert_snapshot!(host.read("src/lib.rs"), @"
    //! A library.

    extern crate db as sqlx;

    pub mod accounts;
    pub mod conversations;
    pub mod sagents;

    use std::fmt;
    ");
    assert_snapshot!(lines_with(&host, "Cargo.toml", "sqlx"), @r#"db = { package = "sqlx", version = "0.9", features = ["sqlite", "chrono", "runtime-tokio", "uuid"] }"#);
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn an_entry_for_sqlx_is_extended_and_never_replaced() {
    let entry = "\n[dependencies.sqlx]\nversion = \"0.8.6\" # pinned by Ann\ndefault-features = false\nfeatures = [\n    \"sqlite\",\n    \"macros\",\n]\n";
    let host = Host::library().file("Cargo.toml", &manifest("my_app", "2024", entry));
    host.generate(PLAIN);
    assert_snapshot!(host.read("Cargo.toml"), @r#"
    [package]
    name = "my_app"
    version = "0.1.0"
    edition = "2024"

    [dependencies.sqlx]
    version = "0.8.6" # pinned by Ann
    default-features = false
    features = [
        "sqlite",
        "macros",
        "chrono",
        "json",
        "runtime-tokio",
        "uuid",
    ]

    [dependencies]
    chrono = { version = "0.4", features = ["serde"] }
    serde = { version = "1.0", features = ["derive"] }
    serde_json = { version = "1.0", features = ["float_roundtrip"] }
    thiserror = "2.0"
    tokio = { version = "1.40", features = ["rt", "sync", "time"] }
    tracing = "0.1"
    uuid = { version = "1.10", features = ["serde", "v7"] }

    [dev-dependencies]
    tokio = { version = "1.40", features = ["macros", "rt-multi-thread"] }
    "#);
}

#[test]
fn a_host_that_promises_an_older_rust_gets_an_older_sqlx() {
    let host = Host::library().file("Cargo.toml", &manifest("my_app", "2024", "rust-version = \"1.85\"\n"));
    host.generate(PLAIN);
    assert_snapshot!(lines_with(&host, "Cargo.toml", "sqlx"), @r#"sqlx = { version = "0.8", features = ["chrono", "runtime-tokio", "sqlite", "uuid"] }"#);
}

#[test]
fn a_host_with_mod_rs_files_gets_one_more() {
    let host = Host::library().file("src/lib.rs", "mod util;\n").file("src/util/mod.rs", "");
    assert_snapshot!(created(&host, PLAIN), @"
    .gitattributes
    migrations/[version]_create_sagents_persistence.down.sql
    migrations/[version]_create_sagents_persistence.up.sql
    sagents.toml
    src/accounts/mod.rs
    src/conversations/mod.rs
    src/conversations/scope.rs
    src/conversations/store/mod.rs
    src/conversations/tests/mod.rs
    src/sagents/branch.rs
    src/sagents/display.rs
    src/sagents/export/checks.rs
    src/sagents/export/fields.rs
    src/sagents/export/file.rs
    src/sagents/export/mod.rs
    src/sagents/export/rows.rs
    src/sagents/export/values.rs
    src/sagents/export/whole_state.rs
    src/sagents/extensions.rs
    src/sagents/json.rs
    src/sagents/message.rs
    src/sagents/messages.rs
    src/sagents/mod.rs
    src/sagents/persistence.rs
    src/sagents/run.rs
    src/sagents/serializer.rs
    src/sagents/session/backoff.rs
    src/sagents/session/coordinator.rs
    src/sagents/session/drafts.rs
    src/sagents/session/edits.rs
    src/sagents/session/event.rs
    src/sagents/session/guard.rs
    src/sagents/session/handle.rs
    src/sagents/session/mod.rs
    src/sagents/session/options.rs
    src/sagents/session/registry.rs
    src/sagents/session/reloads.rs
    src/sagents/session/rewinds.rs
    src/sagents/session/runs.rs
    src/sagents/session/saves.rs
    src/sagents/session/state.rs
    src/sagents/session/task.rs
    src/sagents/session/tools.rs
    src/sagents/session/turn.rs
    src/sagents/session/writer.rs
    src/sagents/session/writes.rs
    src/sagents/state.rs
    src/sagents/stored.rs
    src/sagents/timestamp.rs
    src/sagents/todo.rs
    src/sagents/turn.rs
    src/sagents/usage.rs
    ");
    assert_snapshot!(host.read("src/lib.rs"), @"
    pub mod accounts;
    pub mod conversations;
    pub mod sagents;
    mod util;
    ");
}

#[test]
fn a_module_that_became_a_directory_is_found_there() {
    let host = Host::library();
    host.generate(PLAIN);
    let [flat, nested] = ["src/sagents/session.rs", "src/sagents/session/mod.rs"].map(|path| host.root().join(path));
    std::fs::rename(&flat, &nested).unwrap();
    host.generate(PLAIN);
    assert_eq!((flat.exists(), nested.exists(), host.generate("check").code), (false, true, 0));
}

#[test]
fn an_older_edition_is_formatted_by_its_own_rules() {
    let host = Host::library().file("Cargo.toml", &manifest("my_app", "2021", ""));
    host.generate(FULL);
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2021", "--check", "src/lib.rs"]).current_dir(host.root());
    assert_eq!(Run::of(&mut rustfmt).stdout, "");
}

#[test]
fn the_hosts_own_rustfmt_configuration_is_followed() {
    let host = Host::library().file("rustfmt.toml", "max_width = 80\nhard_tabs = true\n");
    host.generate(PLAIN);
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024", "--check", "src/lib.rs"]).current_dir(host.root());
    assert_eq!(Run::of(&mut rustfmt).stdout, "");
}

#[test]
fn a_width_that_is_too_narrow_for_rustfmt_is_no_failure() {
    let host = Host::library().file("rustfmt.toml", "max_width = 40\n");
    host.generate(PLAIN);
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn sources_with_crlf_get_more_of_them() {
    let host = Host::library()
        .file("src/lib.rs", "//! A library.\r\n\r\npub mod accounts;\r\n")
        .file("src/accounts.rs", "pub struct User;\r\n")
        .file("Cargo.toml", &manifest("my_app", "2024", "").replace('\n', "\r\n"));
    host.generate(&format!("{PLAIN} --create-scope"));
    let files = host.files().into_iter().filter(|(path, _)| !path.starts_with(".sagents"));
    let mixed = files.filter(|(_, bytes)| {
        let text = String::from_utf8_lossy(bytes);
        text.replace("\r\n", "").contains('\n')
    });
    assert_eq!(mixed.map(|(path, _)| path).collect::<Vec<_>>(), [""; 0]);
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

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
    CREATE INDEX "sagents_conversations_updated" ON "sagents_conversations" ("user_id", "updated_at" DESC, "id" DESC);
    CREATE INDEX "sagents_conversations_active" ON "sagents_conversations" ("user_id", "updated_at" DESC, "id" DESC)
    CREATE INDEX "sagents_conversations_archived" ON "sagents_conversations" ("user_id", "updated_at" DESC, "id" DESC)
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
fn the_owner_is_read_through_the_hosts_own_types() {
    let source =
        "pub struct User {\n    pub name: String,\n    pub id: i64,\n}\n\npub struct Scope {\n    pub user: User,\n}\n";
    let host = Host::library().file("src/lib.rs", "pub mod accounts;\n").file("src/accounts.rs", source);
    host.generate(FULL);
    assert_snapshot!(lines_with(&host, "src/conversations/scope.rs", "user.id"), @"Ok(Owner::new(self.user.id))");
    assert_eq!(host.read("src/accounts.rs"), source);
}

#[test]
fn a_path_with_spaces_is_a_path() {
    let host = Host::empty().file("my app/Cargo.toml", &manifest("my_app", "2024", "")).file("my app/src/lib.rs", "");
    let run =
        host.sagents_in(".", &["gen", "persistence", "conversations", "-s", "accounts::Scope", "--path", "my app"]);
    assert_snapshot!(next(&run), @"
    Next:
      sqlx migrate run --source 'my app/migrations'  # creates the tables in DATABASE_URL
    ");
    assert!(host.exists("my app/src/conversations.rs"));
}

#[test]
fn what_stands_on_top_of_a_file_stays_there() {
    let text = "#!/usr/bin/env run\n// Licence: none.\n\n#![forbid(unsafe_code)]\n//! A library.\n//!\n//! It does things.\n\n\
                use std::fmt;\n\n/// A thing.\npub struct Thing;\n";
    let host = Host::library().file("src/lib.rs", text);
    host.generate(&format!("{PLAIN} --create-scope"));
    assert_snapshot!(host.read("src/lib.rs"), @"
    #!/usr/bin/env run
    // Licence: none.

    #![forbid(unsafe_code)]
    //! A library.
    //!
    //! It does things.

    pub mod accounts;
    pub mod conversations;
    pub mod sagents;

    use std::fmt;

    /// A thing.
    pub struct Thing;
    ");
}

#[test]
fn a_mod_line_goes_to_its_place_among_others() {
    let text = "//! A library.\n\npub mod alpha;\npub mod zulu; // the last\n\n#[cfg(test)]\nmod tests;\n";
    let host = Host::library()
        .file("src/lib.rs", text)
        .file("src/alpha.rs", "")
        .file("src/zulu.rs", "")
        .file("src/tests.rs", "");
    host.generate(PLAIN);
    assert_snapshot!(host.read("src/lib.rs"), @"
    //! A library.

    pub mod accounts;
    pub mod alpha;
    pub mod conversations;
    pub mod sagents;
    pub mod zulu; // the last

    #[cfg(test)]
    mod tests;
    ");
}

#[test]
fn the_database_is_the_one_that_sqlx_is_used_with() {
    let sqlx = "\n[dependencies]\nsqlx = { version = \"0.9\", features = [\"postgres\", \"tls-rustls\"] }\n";
    let host = Host::library()
        .file("Cargo.toml", &manifest("my_app", "2024", sqlx))
        .file("migrations/0001_users.sql", "CREATE TABLE App.Users (Id UUID PRIMARY KEY);\n");
    host.generate(PLAIN);
    assert_snapshot!(lines_with(&host, "Cargo.toml", "sqlx"), @r#"sqlx = { version = "0.9", features = ["postgres", "tls-rustls", "chrono", "runtime-tokio", "uuid"] }"#);
    assert_snapshot!(lines_with(&host, &host.find("persistence.sql"), "FOREIGN KEY (\"user_id\")"), @r#"CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "app"."users" ("id") ON DELETE CASCADE,"#);
    assert_a_second_run_changes_nothing(&host, PLAIN);
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
fn a_context_below_a_module_that_is_there_is_declared_in_it() {
    let chat = "//! Talking.\n\npub fn talk() {}\n";
    let host = Host::library().file("src/lib.rs", "pub mod chat;\n").file("src/chat.rs", chat);
    let line = "gen persistence MyApp.Chat.Conversations -s MyApp.Accounts.Scope";
    assert_snapshot!(created(&host, line), @"
    .gitattributes
    migrations/[version]_create_sagents_persistence.down.sql
    migrations/[version]_create_sagents_persistence.up.sql
    sagents.toml
    src/accounts.rs
    src/chat/conversations.rs
    src/chat/conversations/scope.rs
    src/sagents.rs
    src/sagents/branch.rs
    src/sagents/display.rs
    src/sagents/export.rs
    src/sagents/export/checks.rs
    src/sagents/export/fields.rs
    src/sagents/export/file.rs
    src/sagents/export/rows.rs
    src/sagents/export/values.rs
    src/sagents/export/whole_state.rs
    src/sagents/extensions.rs
    src/sagents/json.rs
    src/sagents/message.rs
    src/sagents/messages.rs
    src/sagents/persistence.rs
    src/sagents/run.rs
    src/sagents/serializer.rs
    src/sagents/session.rs
    src/sagents/session/backoff.rs
    src/sagents/session/coordinator.rs
    src/sagents/session/drafts.rs
    src/sagents/session/edits.rs
    src/sagents/session/event.rs
    src/sagents/session/guard.rs
    src/sagents/session/handle.rs
    src/sagents/session/options.rs
    src/sagents/session/registry.rs
    src/sagents/session/reloads.rs
    src/sagents/session/rewinds.rs
    src/sagents/session/runs.rs
    src/sagents/session/saves.rs
    src/sagents/session/state.rs
    src/sagents/session/task.rs
    src/sagents/session/tools.rs
    src/sagents/session/turn.rs
    src/sagents/session/writer.rs
    src/sagents/session/writes.rs
    src/sagents/state.rs
    src/sagents/stored.rs
    src/sagents/timestamp.rs
    src/sagents/todo.rs
    src/sagents/turn.rs
    src/sagents/usage.rs
    ");
    assert_snapshot!(host.read("src/chat.rs"), @"
    //! Talking.

    pub mod conversations;

    pub fn talk() {}
    ");
    assert_a_second_run_changes_nothing(&host, line);
}

#[test]
fn a_parent_that_is_missing_is_created() {
    let host = Host::library();
    let line = "gen persistence crate::chat::log::conversations -s crate::chat::Scope";
    host.generate(line);
    assert_snapshot!([host.read("src/lib.rs"), host.read("src/chat.rs"), host.read("src/chat/log.rs")].join("---\n"), @"
    pub mod chat;
    pub mod sagents;
    ---
    //! Who is asking, and for which user.

    pub mod log;

    /// On whose behalf a call is made. What belongs to the user is reached through one.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Scope {
        /// The user that the caller acts for.
        pub user_id: i64,
    }
    ---
    //! The modules of `log`.

    pub mod conversations;
    ");
    assert_a_second_run_changes_nothing(&host, line);
}

#[test]
fn a_scope_is_created_in_a_new_file() {
    let host = Host::library();
    host.generate("gen persistence conversations -s accounts::Scope -t team --owner-id uuid");
    assert_snapshot!(host.read("src/accounts.rs"), @"
    //! Who is asking, and for which team.

    /// On whose behalf a call is made. What belongs to the team is reached through one.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Scope {
        /// The team that the caller acts for.
        pub team_id: uuid::Uuid,
    }
    ");
}

#[test]
fn a_scope_is_added_to_a_module_that_is_there() {
    let host = Host::library()
        .file("src/lib.rs", "pub mod accounts;\n")
        .file("src/accounts.rs", "//! Accounts.\n\npub struct Account;\n");
    host.generate(&format!("{PLAIN} --create-scope"));
    assert_snapshot!(host.read("src/accounts.rs"), @"
    //! Accounts.

    pub struct Account;

    /// On whose behalf a call is made. What belongs to the user is reached through one.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Scope {
        /// The user that the caller acts for.
        pub user_id: i64,
    }
    ");
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn a_scope_may_be_at_the_crates_root() {
    let text = "pub struct Scope {\n    pub user_id: Option<uuid::Uuid>,\n}\n";
    let host = Host::library().file("src/lib.rs", text);
    host.generate("gen persistence conversations -s MyApp.Scope");
    assert_snapshot!(host.read("src/lib.rs"), @"
    pub mod conversations;
    pub mod sagents;

    pub struct Scope {
        pub user_id: Option<uuid::Uuid>,
    }
    ");
    let created = Host::library();
    created.generate("gen persistence conversations -s crate::Scope");
    assert_snapshot!(created.read("src/lib.rs"), @"
    pub mod conversations;
    pub mod sagents;

    /// On whose behalf a call is made. What belongs to the user is reached through one.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Scope {
        /// The user that the caller acts for.
        pub user_id: i64,
    }
    ");
}

#[test]
fn a_scope_that_names_no_owner_is_enough_without_one() {
    let host = Host::library();
    host.generate("gen persistence conversations -s accounts::Scope -t none");
    assert_snapshot!(host.read("src/accounts.rs"), @"
    //! Who is asking, and for the application.

    /// On whose behalf a call is made.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Scope;
    ");
}

#[test]
fn without_an_owner_a_context_brings_its_scope() {
    let host = Host::library().file("src/lib.rs", "pub struct Thing;\n");
    let line = "gen persistence conversations --owner-type none";
    host.generate(line);
    assert_snapshot!(host.read("src/conversations/scope.rs"), @r#"
    //! Who is asking. Conversations have no owner here: [`Everyone`] reaches all of them.

    use serde_json::{Value, json};

    use super::Result;

    /// The scope of every call. Calls take it all the same, so that an application which gets owners later
    /// has a place for them everywhere.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Everyone;

    /// The owner of every conversation.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Owner;

    impl Owner {
        /// The value of the column `scope`.
        #[allow(clippy::unused_self, reason = "the same call as with an owner")]
        pub(super) fn to_json(&self) -> Value {
            json!({ "type": "none" })
        }
    }

    /// Whose rows a call may read.
    pub type Reach = Owner;

    /// A caller. Implement it for every type that a call may be made with. References, [`Arc`]s and
    /// `dyn OwnerScope` are callers too.
    ///
    /// [`Arc`]: std::sync::Arc
    pub trait OwnerScope: Send + Sync {
        /// The owner whose rows the call may reach.
        ///
        /// # Errors
        ///
        /// An implementation may refuse a caller.
        fn owner(&self) -> Result<Owner>;

        /// Whose rows the call may read.
        ///
        /// # Errors
        ///
        /// As [`owner`](Self::owner).
        fn reach(&self) -> Result<Reach> {
            self.owner()
        }
    }

    impl OwnerScope for Everyone {
        fn owner(&self) -> Result<Owner> {
            Ok(Owner)
        }
    }

    impl OwnerScope for Owner {
        fn owner(&self) -> Result<Owner> {
            Ok(self.clone())
        }
    }

    impl<T: OwnerScope + ?Sized> OwnerScope for &T {
        fn owner(&self) -> Result<Owner> {
            T::owner(self)
        }

        fn reach(&self) -> Result<Reach> {
            T::reach(self)
        }
    }

    impl<T: OwnerScope + ?Sized> OwnerScope for std::sync::Arc<T> {
        fn owner(&self) -> Result<Owner> {
            T::owner(self)
        }

        fn reach(&self) -> Result<Reach> {
            T::reach(self)
        }
    }
    "#);
    assert_eq!(
        lines_with(&host, "src/conversations/states.rs", "Everyone"),
        "use super::Everyone;\ntype Scope = Everyone;"
    );
    assert!(!host.read("sagents.toml").contains("\nscope ="));
    assert_a_second_run_changes_nothing(&host, line);
    assert_a_second_run_changes_nothing(&host, "update");
    // An owner that comes needs a scope that knows it.
    let refused = host.sagents("gen persistence conversations --owner-type user");
    assert!(refused.code == 2 && refused.stderr.contains("--scope is missing"), "{}", refused.stderr);
}

#[test]
fn a_new_package_without_an_owner_needs_no_scope() {
    let host = Host::empty();
    host.generate("gen persistence MyApp.Conversations --owner-type none --init");
    assert!(!host.exists("src/accounts.rs"));
    let main = host.read("src/main.rs");
    assert!(main.contains("Everyone") && main.contains("let scope = Everyone;"), "{main}");
}

/// A package beside a workspace of two: a scope that one of them re-exports from the other.
fn neighbours() -> Host {
    let shared = "[dependencies]\nshared = { path = \"../shared\" }\n";
    let web = "[dependencies]\nidentity = { workspace = true }\nkeys = { package = \"shared-keys\", path = \"../../outside/keys\" }\n";
    Host::empty()
        .file(
            "host/Cargo.toml",
            "[workspace]\nmembers = [\"web\", \"identity\", \"shared\"]\nresolver = \"3\"\n\n\
             [workspace.dependencies]\nidentity = { path = \"identity\" }\n",
        )
        .file("host/web/Cargo.toml", &manifest("web", "2024", &format!("\n{web}")))
        .file("host/web/src/lib.rs", "pub mod auth;\n")
        .file("host/web/src/auth.rs", "pub use identity::Caller as Scope;\n\npub struct Login {\n    pub user_id: keys::UserId,\n}\n")
        .file("host/identity/Cargo.toml", &manifest("identity", "2024", &format!("\n{shared}")))
        .file("host/identity/src/lib.rs", "mod caller;\n\npub use caller::Caller;\npub use shared::*;\n")
        .file(
            "host/identity/src/caller.rs",
            "use shared::Actor;\n\npub struct Caller {\n    pub actor: Actor,\n}\n",
        )
        .file("host/shared/Cargo.toml", &manifest("shared", "2024", ""))
        .file(
            "host/shared/src/lib.rs",
            "#[non_exhaustive]\npub enum Actor {\n    User { id: i64, name: String },\n}\n",
        )
        .file("outside/keys/Cargo.toml", &manifest("shared-keys", "2024", ""))
        .file("outside/keys/src/lib.rs", "pub struct UserId(uuid::Uuid);\n\nimpl UserId {\n    pub fn as_uuid(&self) -> &uuid::Uuid {\n        &self.0\n    }\n}\n")
}

#[test]
fn types_of_the_workspace_and_of_path_dependencies_are_read() {
    for scope in ["crate::auth::Scope", "identity::Caller"] {
        let host = neighbours();
        host.generate(&format!("gen persistence conversations -s {scope} --path host/web"));
        let text = host.read("host/web/src/conversations/scope.rs");
        // It is named by the crate that the host depends on.
        let is_imported = text.contains("use identity::Actor;\n") || text.contains("use identity::{Actor, Caller};\n");
        assert!(is_imported, "{text}");
        assert!(text.contains("let Actor::User { id, .. } = &self.actor else {\n"), "{text}");
        assert!(text.contains("Ok(Owner::new(*id))"), "{text}");
    }
    let host = neighbours();
    host.generate("gen persistence conversations -s crate::auth::Login --path host/web");
    let text = host.read("host/web/src/conversations/scope.rs");
    assert!(text.contains("Ok(Owner::new(*self.user_id.as_uuid()))"), "{text}");
}

#[test]
fn modules_whose_names_start_with_an_underscore_are_read() {
    let host = Host::library()
        .file("src/lib.rs", "pub mod models;\n")
        .file("src/models.rs", "pub mod _entities;\n\npub use _entities::users::Model as Scope;\n")
        .file("src/models/_entities.rs", "pub mod users;\n")
        .file("src/models/_entities/users.rs", "pub struct Model {\n    pub user_id: i32,\n}\n");
    for scope in ["crate::models::Scope", "crate::models::_entities::users::Model", "MyApp.Models.Scope"] {
        host.generate(&format!("gen persistence conversations -s {scope}"));
        let text = host.read("src/conversations/scope.rs");
        assert!(text.contains("i64::from(self.user_id)"), "{text}");
    }
}

#[test]
fn without_wiring_the_lines_are_printed_and_the_hosts_files_stay() {
    let host = Host::library();
    let (manifest, root) = (host.read("Cargo.toml"), host.read("src/lib.rs"));
    let line = format!("{PLAIN} --no-wire");
    let run = host.generate(&line);
    let unwired = run.stdout.lines().skip_while(|line| !line.starts_with("Add to"));
    let unwired = unwired.take_while(|line| *line != "Next:").collect::<Vec<_>>().join("\n");
    assert_snapshot!(unwired, @r#"
    Add to .gitattributes:
      .sagents/** linguist-generated=true

    Add to Cargo.toml:
      chrono = { version = "0.4", features = ["serde"] }
      serde = { version = "1.0", features = ["derive"] }
      serde_json = { version = "1.0", features = ["float_roundtrip"] }
      sqlx = { version = "0.9", features = ["chrono", "runtime-tokio", "sqlite", "uuid"] }
      thiserror = "2.0"
      tracing = "0.1"
      uuid = { version = "1.10", features = ["serde", "v7"] }
      tokio = { version = "1.40", features = ["rt", "sync", "time"] }
      tokio = { version = "1.40", features = ["macros", "rt-multi-thread"] } # in [dev-dependencies]

    Add to src/lib.rs:
      pub mod accounts;
      pub mod conversations;
      pub mod sagents;

    Note: Conversations have no foreign key to their owner, because migrations has no table `users` or `user`. `--owner-table` names another one, or `none`.
    "#);
    assert_eq!((host.read("Cargo.toml"), host.read("src/lib.rs")), (manifest, root));
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn without_wiring_a_scope_to_add_is_printed_whole() {
    let host =
        Host::library().file("src/lib.rs", "pub mod accounts;\n").file("src/accounts.rs", "pub struct Account;\n");
    let run = host.generate(&format!("{PLAIN} --no-wire --create-scope"));
    let unwired = run.stdout.lines().skip_while(|line| !line.starts_with("Add to src/accounts.rs"));
    assert_snapshot!(unwired.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n"), @"
    Add to src/accounts.rs:
      /// On whose behalf a call is made. What belongs to the user is reached through one.
      #[derive(Debug, Clone, PartialEq, Eq)]
      pub struct Scope {
          /// The user that the caller acts for.
          pub user_id: i64,
      }
    ");
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn without_tests_nothing_of_them_is_there() {
    let host = Host::library();
    host.generate(&format!("{PLAIN} --no-tests"));
    assert!(!host.exists("src/conversations/tests.rs"));
    assert_snapshot!(lines_with(&host, "src/conversations.rs", "test"), @"");
    assert_snapshot!(lines_with(&host, "Cargo.toml", "dev-dependencies"), @"");
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn two_contexts_share_a_host() {
    let host = Host::library();
    host.generate(PLAIN);
    let second = "gen persistence support_chats -s accounts::Scope -t none --table-prefix support_";
    host.generate(second);
    assert_snapshot!(host.read("sagents.toml"), @r#"
    # What `sagents gen persistence` was asked for, per context. Options that are not here have their default.
    # Commit this file; a rerun starts from it.

    [contexts.conversations]
    scope = "accounts::Scope"

    [contexts.support_chats]
    scope = "accounts::Scope"
    owner-type = "none"
    table-prefix = "support_"
    "#);
    assert_snapshot!(host.read("src/lib.rs"), @"
    pub mod accounts;
    pub mod conversations;
    pub mod sagents;
    pub mod support_chats;
    ");
    assert_a_second_run_changes_nothing(&host, PLAIN);
    assert_a_second_run_changes_nothing(&host, second);
}

#[test]
fn comments_in_the_recorded_options_stay() {
    let host = Host::library();
    let recorded =
        "# Ours.\n[contexts.conversations] # the first\nscope = 'accounts::Scope' # who\nowner-type = \"team\"\n";
    host.write("sagents.toml", recorded);
    host.generate("gen persistence conversations");
    assert_eq!(host.read("sagents.toml"), recorded);
}

#[test]
fn options_that_are_not_given_keep_their_recorded_value() {
    let host = Host::library();
    host.generate("gen persistence conversations -s accounts::Scope -t team --table-prefix chat_ --no-tests");
    assert_a_second_run_changes_nothing(&host, "gen persistence conversations");
}

#[test]
fn with_force_a_file_in_the_way_is_kept_as_orig() {
    let host = Host::library().file("src/conversations.rs", "//! Mine.\n");
    let run = host.generate(&format!("{PLAIN} --force"));
    assert_eq!(host.read("src/conversations.rs.orig"), "//! Mine.\n");
    assert!(run.stdout.contains("  replaced  src/conversations.rs\n"), "{}", run.stdout);
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn with_force_an_edited_file_is_generated_anew_and_kept_as_orig() {
    let host = Host::library();
    host.generate(PLAIN);
    let pristine = host.read("src/conversations/scope.rs");
    host.write("src/conversations/scope.rs", "// Mine.\n");
    host.generate(&format!("{PLAIN} --force"));
    assert_eq!(host.read("src/conversations/scope.rs"), pristine);
    assert_eq!(host.read("src/conversations/scope.rs.orig"), "// Mine.\n");
}

#[test]
fn a_generated_file_that_was_deleted_stays_so() {
    let host = Host::library();
    host.generate(PLAIN);
    fs::remove_file(host.root().join("src/conversations/tests.rs")).unwrap();
    let before = host.files();
    let run = host.generate(PLAIN);
    assert_snapshot!(run.stdout, @"
    Up to date: crate::conversations: sqlite, owner user (user_id, i64), tables sagents_*

      deleted   src/conversations/tests.rs (by you; it stays so)

    Note: Conversations have no foreign key to their owner, because migrations has no table `users` or `user`. `--owner-table` names another one, or `none`.
    ");
    assert_eq!(host.files(), before);
}

#[test]
fn a_file_that_was_only_formatted_otherwise_is_not_edited() {
    let host = Host::library();
    host.generate(PLAIN);
    host.write("rustfmt.toml", "max_width = 80\n");
    let mut rustfmt = Command::new("rustfmt");
    Run::of(rustfmt.args(["--edition", "2024", "src/lib.rs"]).current_dir(host.root()));
    assert_a_second_run_changes_nothing(&host, PLAIN);
    assert_eq!(host.sagents("check").code, 0);

    // Not even by the host's own settings.
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024", "--config", "max_width=140,use_small_heuristics=Max", "src/lib.rs"]);
    Run::of(rustfmt.current_dir(host.root()));
    assert_a_second_run_changes_nothing(&host, PLAIN);
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn a_checkout_that_turned_the_line_ends_is_not_edited() {
    let host = Host::library();
    host.generate(PLAIN);
    for (path, bytes) in host.files() {
        host.write(&path, &String::from_utf8(bytes).unwrap().replace('\n', "\r\n"));
    }
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn what_git_thinks_of_the_tree_does_not_matter() {
    let host = Host::library();
    Run::of(Command::new("git").args(["init", "--quiet"]).current_dir(host.root()));
    host.write("src/lib.rs", "// Not committed.\n");
    host.generate(PLAIN);
    assert!(host.read("src/lib.rs").starts_with("// Not committed.\n"));
}

#[test]
fn a_link_inside_the_package_is_followed_and_stays_one() {
    let host = Host::library().file("real/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    fs::rename(host.root().join("src/lib.rs"), host.root().join("real/lib.rs")).unwrap();
    symlink("../real/lib.rs", host.root().join("src/lib.rs")).unwrap();
    symlink("real", host.root().join("migrations")).unwrap();
    host.generate(PLAIN);
    assert!(host.root().join("src/lib.rs").is_symlink());
    assert!(host.exists("real/0002_create_sagents_persistence.sql"));
    assert_eq!(host.read("real/lib.rs"), "pub mod accounts;\npub mod conversations;\npub mod sagents;\n");
}

#[test]
fn cargo_sagents_is_the_same_program() {
    let host = Host::library();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-sagents"));
    let run = Run::of(command.args(["sagents"]).args(PLAIN.split(' ')).current_dir(host.root()));
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn init_makes_a_package_that_a_second_run_leaves_alone() {
    let host = Host::empty();
    let line = "gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init";
    assert_snapshot!(created(&host, line), @"
    .gitattributes
    .gitignore
    Cargo.toml
    build.rs
    migrations/[version]_create_sagents_persistence.down.sql
    migrations/[version]_create_sagents_persistence.up.sql
    sagents.toml
    src/accounts.rs
    src/conversations.rs
    src/conversations/scope.rs
    src/lib.rs
    src/main.rs
    src/sagents.rs
    src/sagents/branch.rs
    src/sagents/display.rs
    src/sagents/export.rs
    src/sagents/export/checks.rs
    src/sagents/export/fields.rs
    src/sagents/export/file.rs
    src/sagents/export/rows.rs
    src/sagents/export/values.rs
    src/sagents/export/whole_state.rs
    src/sagents/extensions.rs
    src/sagents/json.rs
    src/sagents/message.rs
    src/sagents/messages.rs
    src/sagents/persistence.rs
    src/sagents/run.rs
    src/sagents/serializer.rs
    src/sagents/session.rs
    src/sagents/session/backoff.rs
    src/sagents/session/coordinator.rs
    src/sagents/session/drafts.rs
    src/sagents/session/edits.rs
    src/sagents/session/event.rs
    src/sagents/session/guard.rs
    src/sagents/session/handle.rs
    src/sagents/session/options.rs
    src/sagents/session/registry.rs
    src/sagents/session/reloads.rs
    src/sagents/session/rewinds.rs
    src/sagents/session/runs.rs
    src/sagents/session/saves.rs
    src/sagents/session/state.rs
    src/sagents/session/task.rs
    src/sagents/session/tools.rs
    src/sagents/session/turn.rs
    src/sagents/session/writer.rs
    src/sagents/session/writes.rs
    src/sagents/state.rs
    src/sagents/stored.rs
    src/sagents/timestamp.rs
    src/sagents/todo.rs
    src/sagents/turn.rs
    src/sagents/usage.rs
    ");
    assert_snapshot!(host.read("Cargo.toml"), @r#"
    [package]
    name = "my_app"
    version = "0.1.0"
    edition = "2024"

    [dependencies]
    chrono = { version = "0.4", features = ["serde"] }
    serde = { version = "1.0", features = ["derive"] }
    serde_json = { version = "1.0", features = ["float_roundtrip"] }
    sqlx = { version = "0.9", features = ["chrono", "runtime-tokio", "sqlite", "uuid"] }
    thiserror = "2.0"
    tokio = { version = "1.40", features = ["macros", "rt-multi-thread", "sync", "time"] }
    tracing = "0.1"
    uuid = { version = "1.10", features = ["serde", "v7"] }
    "#);
    assert_a_second_run_changes_nothing(&host, line);
}

#[test]
fn init_makes_the_directory_too() {
    let host = Host::empty();
    let run = host.generate("gen persistence conversations -s accounts::Scope --init --path apps/my-chat");
    assert_snapshot!(lines_with(&host, "apps/my-chat/Cargo.toml", "name = "), @r#"name = "my_chat""#);
    assert_snapshot!(next(&run), @"
    Next:
      cd apps/my-chat  # the new package
      cargo test       # proves the layer
      cargo run        # shows it at work
    ");
}

#[test]
fn a_package_with_a_hyphen_is_named_either_way() {
    for context in ["MyApp.Conversations", "my_app::conversations"] {
        let host = Host::library().file("Cargo.toml", &manifest("my-app", "2024", ""));
        host.generate(&format!("gen persistence {context} -s MyApp.Accounts.Scope"));
        assert!(host.exists("src/conversations.rs"), "{context}");
    }
}

#[test]
fn a_new_package_inside_a_workspace_is_told_of_it() {
    let host = Host::empty().file("Cargo.toml", "[workspace]\nmembers = []\nresolver = \"3\"\n");
    let run = host.generate("gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init --path app");
    let note = format!(
        "Note: The new package is inside the workspace of {}: list it there under `members`.",
        host.root().join("Cargo.toml").display()
    );
    assert!(run.stdout.contains(&note), "{}", run.stdout);
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

#[test]
fn a_new_package_beside_a_directory_is_not_formatted_as_that_directory_is() {
    let host = Host::empty().file("tool/rustfmt.toml", "max_width = 140\n").file("other/README.md", "");
    for (directory, path) in [("tool", "../one"), ("other", "../two")] {
        let line = format!("gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init --path {path}");
        let run = host.sagents_in(directory, &line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    }
    let messages = "src/conversations/messages.rs";
    assert_eq!(host.read(&format!("one/{messages}")), host.read(&format!("two/{messages}")));
}
