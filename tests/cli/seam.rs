//! The seam of the generated code: SQL and the database are in the store, the owner is in the scope and the models, and
//! everything else is the same in every host.

use std::collections::BTreeMap;

use crate::support::Host;

const API: &[&str] = &[
    "src/conversations.rs",
    "src/conversations/messages.rs",
    "src/conversations/page.rs",
    "src/conversations/sessions.rs",
    "src/conversations/states.rs",
    "src/conversations/tool_calls.rs",
    "src/conversations/usage.rs",
    "src/conversations/values.rs",
];

/// A scope with a user and a team, and a table of each.
fn host() -> Host {
    Host::library()
        .file("src/lib.rs", "pub mod accounts;\n")
        .file("src/accounts.rs", "pub struct Scope {\n    pub user_id: Option<i64>,\n    pub team_id: Option<i64>,\n}\n")
        .file(
            "migrations/0001_accounts.sql",
            "CREATE TABLE teams (id BIGINT PRIMARY KEY);\nCREATE TABLE users (id BIGINT PRIMARY KEY, team_id BIGINT);\n",
        )
}

/// The generated sources of a context.
fn sources(host: &Host) -> BTreeMap<String, String> {
    let files = host.files().into_iter().filter(|(path, _)| path.starts_with("src/conversations"));
    files.map(|(path, text)| (path, String::from_utf8(text).unwrap())).collect()
}

#[test]
fn another_owner_changes_the_scope_the_models_the_store_and_the_tests_and_no_other_file() {
    let host = host();
    host.generate("gen persistence conversations --scope crate::accounts::Scope");
    let before = sources(&host);
    let backfill = "(SELECT users.team_id FROM users WHERE users.id = conversation.user_id)";
    let args = ["gen", "persistence", "conversations", "--owner-type", "team", "--backfill", backfill];
    let run = host.sagents_in(".", &args);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let after = sources(&host);
    let changed: Vec<_> =
        after.iter().filter(|(path, text)| before.get(*path) != Some(text)).map(|(path, _)| path).collect();
    assert_eq!(
        changed,
        [
            "src/conversations/conversation.rs",
            "src/conversations/display_message.rs",
            "src/conversations/scope.rs",
            "src/conversations/store/branches.rs",
            "src/conversations/store/changes.rs",
            "src/conversations/store/conversations.rs",
            "src/conversations/store/cuts.rs",
            "src/conversations/store/exports.rs",
            "src/conversations/store/messages.rs",
            "src/conversations/store/rows.rs",
            "src/conversations/store/runs.rs",
            "src/conversations/store/states.rs",
            "src/conversations/store/tool_calls.rs",
            "src/conversations/store/usage.rs",
            "src/conversations/tests.rs",
            "src/conversations/tests/database.rs",
        ]
    );
}

#[test]
fn the_api_is_the_same_for_every_database_and_every_owner() {
    let generated = |options: &str| {
        let host = host();
        host.generate(&format!("gen persistence conversations --scope crate::accounts::Scope {options}"));
        sources(&host)
    };
    let one = generated("");
    for options in [
        "--database postgres",
        "--owner-type none",
        "--owner-type team --database postgres --table-prefix ai_",
        "--group-type team",
        "--group-type team --database postgres",
    ] {
        let other = generated(options);
        for path in API {
            assert_eq!(one[*path], other[*path], "{path} with {options}");
        }
    }
}

#[test]
fn outside_of_the_store_and_the_tests_there_is_no_sql_and_only_the_drivers_error() {
    let host = host();
    host.generate("gen persistence conversations --scope crate::accounts::Scope");
    for (path, text) in sources(&host) {
        if path.contains("/store") || path.contains("/tests") {
            continue;
        }
        for sql in ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "r#\""] {
            assert!(!text.contains(sql), "{path} contains {sql:?}");
        }
        let drivers: Vec<_> = text.lines().filter(|line| line.contains("sqlx")).map(str::trim).collect();
        let allowed: &[&str] = if path == "src/conversations.rs" { &["Database(#[from] sqlx::Error),"] } else { &[] };
        assert_eq!(drivers, allowed, "{path}");
    }
}
