//! New packages.

use insta::assert_snapshot;

use super::{assert_a_second_run_changes_nothing, created, lines_with};
use crate::support::{Host, manifest};
use crate::transcript::{next, without_library};

#[test]
fn a_new_package_without_an_owner_needs_no_scope() {
    let host = Host::empty();
    host.generate("gen persistence MyApp.Conversations --owner-type none --init");
    assert!(!host.exists("src/accounts.rs"));
    let main = host.read("src/main.rs");
    assert!(main.contains("Everyone") && main.contains("let scope = Everyone;"), "{main}");
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
    ");
    assert_snapshot!(without_library(&host.read("Cargo.toml")), @r#"
    [package]
    name = "my_app"
    version = "0.1.0"
    edition = "2024"

    [dependencies]
    sagents = { version = "0.1.0", path = "[library]", features = ["sqlite"] }
    serde = { version = "1.0", features = ["derive"] }
    serde_json = "1.0"
    sqlx = { version = "0.9", features = ["runtime-tokio", "sqlite"] }
    tokio = { version = "1.40", features = ["macros", "rt-multi-thread"] }
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
      cargo test       # runs the generated tests
      cargo run        # runs an example
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
fn a_new_package_beside_a_directory_is_not_formatted_as_that_directory_is() {
    let host = Host::empty().file("tool/rustfmt.toml", "max_width = 140\n").file("other/README.md", "");
    for (directory, path) in [("tool", "../one"), ("other", "../two")] {
        let line = format!("gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init --path {path}");
        let run = host.sagents_in(directory, &line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    }
    let messages = "src/conversations/tests.rs";
    assert_eq!(host.read(&format!("one/{messages}")), host.read(&format!("two/{messages}")));
}
