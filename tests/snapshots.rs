//! The files that the generator writes, for each kind of options, under `snapshots/`.
//!
//! `user` and `postgres` have every file in full. The others show how they differ from one of these: what only they have
//! in full, everything else as a difference. The copies under `.sagents/*/base` and the tables in `schema.json`, which
//! the migrations show, are left out.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use support::{Host, manifest};

const USERS: &str = "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL);\n";
const SCOPE: &str =
    "pub struct User {\n    pub name: String,\n    pub id: i64,\n}\n\npub struct Scope {\n    pub user: User,\n}\n";

/// A library with a scope that knows its user, and a table of users.
fn library() -> Host {
    Host::library()
        .file("src/lib.rs", "pub mod accounts;\n")
        .file("src/accounts.rs", SCOPE)
        .file("migrations/20240101000000_users.up.sql", USERS)
        .file("migrations/20240101000000_users.down.sql", "DROP TABLE users;\n")
}

const COMMAND: &str = "gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope";

#[test]
fn user() {
    assert_files("user", &made(&library(), ""));
}

#[test]
fn postgres() {
    assert_files("postgres", &made(&postgres_library(), ON_POSTGRES));
}

#[test]
fn team_with_a_uuid_key() {
    let host = library()
        .file("src/accounts.rs", "use uuid::Uuid;\n\npub struct Scope {\n    pub team_id: Uuid,\n}\n")
        .file("migrations/20240102000000_teams.up.sql", "CREATE TABLE teams (id BLOB PRIMARY KEY);\n")
        .file("migrations/20240102000000_teams.down.sql", "DROP TABLE teams;\n");
    assert_difference("team_uuid", &host, "--owner-type team");
}

#[test]
fn account_with_a_text_key_and_an_optional_owner() {
    let host = library()
        .file("src/accounts.rs", "pub struct Scope {\n    pub account_id: Option<String>,\n}\n")
        .file("migrations/20240102000000_accounts.up.sql", "CREATE TABLE accounts (id TEXT PRIMARY KEY);\n")
        .file("migrations/20240102000000_accounts.down.sql", "DROP TABLE accounts;\n");
    assert_difference("account_text_optional", &host, "--owner-type account");
}

#[test]
fn group_in_a_table_of_memberships() {
    let options = "--group-type organization";
    assert_difference("group", &with_memberships(library()), options);
    let host = with_memberships(postgres_library());
    let base = made(&postgres_library(), ON_POSTGRES);
    assert_snapshot("group_on_postgres", &difference(&base, &made(&host, &format!("{ON_POSTGRES} {options}"))));
}

/// Users whose organizations read what they own.
fn with_memberships(host: Host) -> Host {
    let scope = "pub struct Scope {\n    pub user_id: Option<i64>,\n    pub organization_id: Option<i64>,\n}\n";
    let memberships = "CREATE TABLE memberships (user_id INTEGER, organization_id INTEGER);\n\
                       CREATE INDEX of_organization ON memberships (organization_id, user_id);\n";
    host.file("src/accounts.rs", scope)
        .file("migrations/20240102000000_memberships.up.sql", memberships)
        .file("migrations/20240102000000_memberships.down.sql", "DROP TABLE memberships;\n")
}

#[test]
fn user_with_a_uuid_that_is_stored_as_text() {
    let host = library()
        .file("src/accounts.rs", "pub struct Scope {\n    pub user_id: uuid::Uuid,\n}\n")
        .file("migrations/20240101000000_users.up.sql", "CREATE TABLE users (id TEXT PRIMARY KEY);\n");
    assert_difference("user_uuid_as_text", &host, "--owner-id uuid");
}

#[test]
fn no_owner() {
    assert_difference("none", &library(), "--owner-type none");
}

#[test]
fn no_table_other_prefix_and_a_nested_context() {
    let command =
        "gen persistence crate::chat::conversations -s crate::accounts::Scope --owner-table none --table-prefix=";
    assert_snapshot("nested_without_prefix", &difference(&made(&library(), ""), &made_by(&library(), command)));
}

#[test]
fn a_binary_in_the_style_of_2021() {
    let host = Host::empty()
        .file(
            "Cargo.toml",
            &manifest(
                "my_app",
                "2021",
                "\n[dependencies]\nsqlx = { version = \"0.8\", features = [\"sqlite\", \"runtime-tokio\"] }\n",
            ),
        )
        .file("src/main.rs", "mod accounts;\n\nfn main() {}\n")
        .file("src/accounts/mod.rs", SCOPE)
        .file("migrations/0001_users.sql", USERS);
    assert_difference("binary_2021_mod_rs", &host, "");
}

#[test]
fn a_scope_that_is_created_and_no_tests() {
    let host = Host::library();
    assert_difference("created_scope_without_tests", &host, "--no-tests");
}

#[test]
fn routes_and_a_page() {
    assert_difference("web", &library(), "--web axum");
}

#[test]
fn a_new_package() {
    assert_difference("init", &Host::empty(), "--init");
}

#[test]
fn a_new_package_with_a_page() {
    let base = made(&Host::empty(), "--init");
    assert_snapshot("init_web", &difference(&base, &made(&Host::empty(), "--init --web axum")));
}

#[test]
fn a_new_package_with_a_page_on_postgres() {
    // What is the same on both databases is there once.
    let base = made(&Host::empty(), "--init --web axum").into_iter().chain(made(&postgres_library(), ON_POSTGRES));
    let files = made(&Host::empty(), &format!("--init --web axum {ON_POSTGRES}"));
    assert_snapshot("init_web_on_postgres", &difference(&base.collect(), &files));
}

fn postgres_library() -> Host {
    library().file("migrations/20240101000000_users.up.sql", "CREATE TABLE users (id BIGSERIAL PRIMARY KEY);\n")
}

const ON_POSTGRES: &str = "--database postgres";

/// Compares a host with that of `user`.
fn assert_difference(name: &str, host: &Host, options: &str) {
    assert_snapshot(name, &difference(&made(&library(), ""), &made(host, options)));
}

fn assert_files(name: &str, files: &Files) {
    let mut text = String::new();
    for (path, content) in files {
        let _ = writeln!(text, "==> {path} <==\n{content}");
    }
    assert_snapshot(name, &text);
}

type Files = BTreeMap<String, String>;

/// How files differ from those of another host, which may have them at other paths.
fn difference(base: &Files, files: &Files) -> String {
    let mut text = String::new();
    let mut compared = BTreeSet::new();
    for (path, new) in files {
        let same_name = || base.keys().find(|other| !files.contains_key(*other) && name(other) == name(path));
        let Some((other, old)) = base.get_key_value(path).or_else(|| base.get_key_value(same_name()?)) else {
            let _ = writeln!(text, "==> {path} <==\n{new}");
            continue;
        };
        compared.insert(other);
        let moved = if other == path { String::new() } else { format!(" from {other}") };
        if old != new {
            let difference = similar::TextDiff::from_lines(old.as_str(), new.as_str());
            let _ = writeln!(text, "==> {path} differs{moved}\n{}", difference.unified_diff().context_radius(1));
        } else if other != path {
            let _ = writeln!(text, "==> {path} is {other}\n");
        }
    }
    for path in base.keys().filter(|path| !compared.contains(path)) {
        let _ = writeln!(text, "==> {path} is not there\n");
    }
    text
}

/// The name of a file, whatever the style of modules and migrations is.
fn name(path: &str) -> String {
    let name = path.strip_suffix("/mod.rs").map_or_else(|| path.to_owned(), |module| format!("{module}.rs"));
    let name = name.rsplit('/').next().unwrap_or_default();
    match name.split_once("_create_") {
        Some((_, migration)) => migration.replace(".up.", "."),
        None => name.to_owned(),
    }
}

/// The files that the command with these options writes into a host.
fn made(host: &Host, options: &str) -> Files {
    made_by(host, &format!("{COMMAND} {options}"))
}

/// The version of the new migration, which is a time, the place of the library and digests are replaced.
fn made_by(host: &Host, command: &str) -> Files {
    let before = host.files();
    host.generate(command);
    let is_shown = |path: &str| !path.contains("/base/") && !path.ends_with("/schema.json");
    let files = host.files().into_iter().filter(|(path, bytes)| is_shown(path) && before.get(path) != Some(bytes));
    let texts: Files = files.map(|(path, bytes)| (path, String::from_utf8(bytes).unwrap())).collect();
    let stamp =
        texts.keys().find_map(|path| Some(path.strip_prefix("migrations/")?.split_once("_create_")?.0.to_owned()));
    let stamp = stamp.filter(|version| version.len() == 14).unwrap_or_else(|| "no version".to_owned());
    let plain = |text: &str| text.replace(&stamp, "VERSION");
    texts
        .into_iter()
        .map(|(path, text)| (plain(&path), without_digests(&path, &without_library(&plain(&text)))))
        .collect()
}

/// A Cargo.toml as a published generator writes it, whatever its version is.
fn without_library(text: &str) -> String {
    const VERSION: &str = concat!("version = \"", env!("CARGO_PKG_VERSION"), "\", path = \"");
    let Some((above, rest)) = text.split_once(VERSION) else { return text.to_owned() };
    let (_, below) = rest.split_once('"').unwrap();
    format!("{above}version = \"LIBRARY\"{below}")
}

/// Digests follow from the texts, and the migration's version is in some of these.
fn without_digests(path: &str, text: &str) -> String {
    if !path.ends_with("/files.toml") {
        return text.to_owned();
    }
    let is_digest = |part: &str| part.len() == 32 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts = text.split('"').map(|part| if is_digest(part) { "DIGEST" } else { part });
    parts.collect::<Vec<_>>().join("\"")
}

fn assert_snapshot(name: &str, text: &str) {
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn the_snapshots_can_be_reviewed() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let lines: usize = files.map(|path| std::fs::read_to_string(path).unwrap().lines().count()).sum();
    assert!(lines <= 6_000, "{lines} lines");
}
