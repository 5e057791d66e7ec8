//! The seams of generated code: SQL is in the context, the owner's expression is in the scope, and the calls are the same
//! in every host.

use std::collections::BTreeMap;

use crate::support::Host;

const GENERATE: &str = "gen persistence conversations --scope crate::accounts::Scope";

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

/// The calls of a context with their parameters and results.
fn calls(text: &str) -> Vec<String> {
    let calls = text.split("pub async fn ").skip(1).map(|rest| rest.split('{').next().unwrap());
    calls.map(|call| call.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn the_expression_of_the_owner_is_in_one_file() {
    let host = Host::library()
        .file("src/lib.rs", "pub mod accounts;\n")
        .file("src/accounts.rs", "pub struct Scope {\n    pub visitor: i64,\n    pub tenant: Option<i64>,\n}\n");
    host.generate(&format!("{GENERATE} --scope-owner visitor --web axum"));
    let sources = sources(&host);
    let reading: Vec<_> = sources.iter().filter(|(_, text)| text.contains("visitor")).map(|(path, _)| path).collect();
    assert_eq!(reading, ["src/conversations/scope.rs"]);
    assert_eq!(sources["src/conversations/scope.rs"].matches("visitor").count(), 1);
}

#[test]
fn the_calls_are_the_same_for_every_database_and_every_owner() {
    let generated = |options: &str| {
        let host = host();
        host.generate(&format!("{GENERATE} {options}"));
        calls(&host.read("src/conversations.rs"))
    };
    let expected = generated("");
    assert!(expected.len() > 10 && expected[0].starts_with("create_conversation("), "{expected:?}");
    for options in [
        "--database postgres",
        "--owner-type none",
        "--owner-type team --database postgres --table-prefix ai_",
        "--group-type team",
        "--group-type team --database postgres",
    ] {
        assert_eq!(generated(options), expected, "{options}");
    }
}

#[test]
fn sql_is_in_the_context_and_nowhere_else() {
    let host = host();
    host.generate(&format!("{GENERATE} --web axum"));
    for (path, text) in sources(&host) {
        let has_sql = ["SELECT ", "INSERT ", "UPDATE ", "DELETE "].iter().any(|sql| text.contains(sql));
        assert_eq!(has_sql, path == "src/conversations.rs", "{path}");
    }
}

#[test]
fn the_memory_is_no_larger_than_what_it_is_about() {
    let host = host();
    host.generate(GENERATE);
    let bases = host.files().into_iter().filter(|(path, _)| path.contains("/base/"));
    let bases: BTreeMap<_, _> = bases.map(|(path, text)| (path, String::from_utf8(text).unwrap())).collect();
    assert!(bases.keys().all(|path| path.rsplit('.').next() == Some("rs")), "{:?}", bases.keys());
    let lines = |texts: &BTreeMap<String, String>| texts.values().map(|text| text.lines().count()).sum::<usize>();
    assert_eq!(bases.len(), sources(&host).len());
    assert!(lines(&bases) <= lines(&sources(&host)));
}
