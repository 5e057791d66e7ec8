//! The crate that gets the code, and the crates that it depends on.

use insta::assert_snapshot;

use super::{PLAIN, assert_a_second_run_changes_nothing, created, lines_with};
use crate::support::{Host, manifest};
use crate::transcript::without_library;

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
    ");
    assert_snapshot!(host.read("src/lib.rs"), @"
    pub mod accounts;
    pub mod conversations;
    ");
}

#[test]
fn a_library_gets_the_dependencies_that_it_lacks() {
    let host = Host::library();
    host.generate(PLAIN);
    assert_snapshot!(without_library(&host.read("Cargo.toml")), @r#"
    [package]
    name = "my_app"
    version = "0.1.0"
    edition = "2024"

    [dependencies]
    sagents = { version = "0.1.0", path = "[library]", features = ["sqlite"] }
    serde = { version = "1.0", features = ["derive"] }
    serde_json = "1.0"
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

    fn main() {}
    ");
}

#[test]
fn an_sqlx_of_the_host_stays_as_it_is() {
    let entry = "[dependencies.sqlx]\nversion = \"0.8.6\" # pinned by Ann\ndefault-features = false\nfeatures = [\n    \"sqlite\",\n    \"macros\",\n]\n";
    let host = Host::library().file("Cargo.toml", &manifest("my_app", "2024", &format!("\n{entry}")));
    host.generate(PLAIN);
    let after = host.read("Cargo.toml");
    assert!(after.contains(entry) && after.contains("\nsagents = { version = "), "{after}");
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn a_dependency_of_the_host_is_extended_and_never_replaced() {
    let entry = "\n[dependencies.uuid]\nversion = \"1.12\" # pinned by Ann\ndefault-features = false\nfeatures = [\n    \"std\",\n    \"v4\",\n]\n";
    let host = Host::library().file("Cargo.toml", &manifest("my_app", "2024", entry));
    host.generate(PLAIN);
    assert_snapshot!(without_library(&host.read("Cargo.toml")), @r#"
    [package]
    name = "my_app"
    version = "0.1.0"
    edition = "2024"

    [dependencies.uuid]
    version = "1.12" # pinned by Ann
    default-features = false
    features = [
        "std",
        "v4",
        "serde",
        "v7",
    ]

    [dependencies]
    sagents = { version = "0.1.0", path = "[library]", features = ["sqlite"] }
    serde = { version = "1.0", features = ["derive"] }
    serde_json = "1.0"

    [dev-dependencies]
    tokio = { version = "1.40", features = ["macros", "rt-multi-thread"] }
    "#);
}

#[test]
fn the_database_is_the_one_that_sqlx_is_used_with() {
    for sqlx in [
        "sqlx = { version = \"0.9\", features = [\"postgres\", \"runtime-tokio\"] }",
        "db = { package = \"sqlx\", version = \"0.9\", features = [\"postgres\", \"runtime-tokio\"] }",
    ] {
        let host = Host::library()
            .file("Cargo.toml", &manifest("my_app", "2024", &format!("\n[dependencies]\n{sqlx}\n")))
            .file("migrations/0001_users.sql", "CREATE TABLE App.Users (Id UUID PRIMARY KEY);\n");
        host.generate(PLAIN);
        assert_eq!(lines_with(&host, "Cargo.toml", "sqlx"), sqlx);
        assert!(host.read("Cargo.toml").contains("features = [\"postgres\"] }\n"), "{}", host.read("Cargo.toml"));
        let key = lines_with(&host, &host.find("persistence.sql"), "FOREIGN KEY (\"user_id\")");
        let expected = "FOREIGN KEY (\"user_id\") REFERENCES \"app\".\"users\" (\"id\") ON DELETE CASCADE,";
        assert!(key.ends_with(expected), "{key}");
        assert_a_second_run_changes_nothing(&host, PLAIN);
    }
}
