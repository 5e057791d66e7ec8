//! The crate that gets the code, and the crates that it depends on.

use insta::assert_snapshot;

use super::{PLAIN, assert_a_second_run_changes_nothing, created, lines_with};
use crate::support::{Host, manifest};

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
