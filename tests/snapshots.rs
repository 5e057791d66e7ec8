//! Whole rendered trees, one for each kind of options, under `snapshots/`.
//!
//! `user` is a whole tree. The others are their difference from it, which holds the same and shows what the options
//! change. Copies are left out: of the tree under `.sagents/*/base`, of `templates/runtime/` and
//! of `templates/web/assets/`.

mod support;

use std::collections::BTreeMap;
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
    let host = library();
    host.generate(COMMAND);
    let mut text = String::new();
    for (path, content) in tree(&host) {
        let _ = writeln!(text, "==> {path} <==\n{content}");
    }
    assert_snapshot("user", &text);
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
    let scope = "pub struct Scope {\n    pub user_id: Option<i64>,\n    pub organization_id: Option<i64>,\n}\n";
    let memberships = "CREATE TABLE memberships (user_id INTEGER, organization_id INTEGER);\n\
                       CREATE INDEX of_organization ON memberships (organization_id, user_id);\n";
    let host = library()
        .file("src/accounts.rs", scope)
        .file("migrations/20240102000000_memberships.up.sql", memberships)
        .file("migrations/20240102000000_memberships.down.sql", "DROP TABLE memberships;\n");
    assert_difference("group", &host, "--group-type organization");
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
    let host = library();
    host.generate(
        "gen persistence crate::chat::conversations -s crate::accounts::Scope --owner-table none --table-prefix=",
    );
    assert_snapshot("nested_without_prefix", &difference(&host));
}

#[test]
fn postgres() {
    let host =
        library().file("migrations/20240101000000_users.up.sql", "CREATE TABLE users (id BIGSERIAL PRIMARY KEY);\n");
    assert_difference("postgres", &host, "--database postgres");
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
    let host = Host::empty();
    assert_difference("init", &host, "--init");
}

#[test]
fn a_new_package_with_a_page() {
    let host = Host::empty();
    assert_difference("init_web", &host, "--init --owner-id text --group-type organization --web axum");
}

fn assert_difference(name: &str, host: &Host, options: &str) {
    host.generate(&format!("{COMMAND} {options}"));
    assert_snapshot(name, &difference(host));
}

/// How a host differs from the one of `user`.
fn difference(host: &Host) -> String {
    let base = library();
    base.generate(COMMAND);
    let (base, tree) = (tree(&base), tree(host));
    let paths: std::collections::BTreeSet<_> = base.keys().chain(tree.keys()).collect();
    let mut text = String::new();
    for path in paths {
        match (base.get(path), tree.get(path)) {
            (Some(_), None) => {
                let _ = writeln!(text, "==> {path} is not there\n");
            }
            (None, Some(new)) => {
                let _ = writeln!(text, "==> {path} <==\n{new}");
            }
            (Some(old), Some(new)) if old != new => {
                let difference = similar::TextDiff::from_lines(old.as_str(), new.as_str());
                let _ = writeln!(text, "==> {path} differs\n{}", difference.unified_diff().context_radius(1));
            }
            _ => {}
        }
    }
    text
}

/// The files of a host. The version of the new migration, which is a time, is replaced, and so are digests.
fn tree(host: &Host) -> BTreeMap<String, String> {
    let is_copy =
        |path: &str| path.contains("/base/") || path.contains("/web/assets/") || path.starts_with("src/sagents");
    let files = host.files().into_iter().filter(|(path, _)| !is_copy(path));
    let texts: BTreeMap<_, _> = files.map(|(path, bytes)| (path, String::from_utf8(bytes).unwrap())).collect();
    let stamp =
        texts.keys().find_map(|path| Some(path.strip_prefix("migrations/")?.split_once("_create_")?.0.to_owned()));
    let stamp = stamp.filter(|version| version.len() == 14).unwrap_or_else(|| "no version".to_owned());
    let plain = |text: &str| text.replace(&stamp, "VERSION");
    texts.into_iter().map(|(path, text)| (plain(&path), without_digests(&path, &plain(&text)))).collect()
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
