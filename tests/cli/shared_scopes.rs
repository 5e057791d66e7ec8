//! Contexts with the same scope type. Rust allows one `impl OwnerScope` for it.

use std::fs;

use insta::assert_snapshot;

use crate::rerun::edit;
use crate::support::Host;
use crate::transcript::{anonymous, everything, refusal};

const ONE: &str = "gen persistence conversations -s accounts::Scope";
const TWO: &str = "gen persistence notes -s accounts::Scope --table-prefix notes_";
const SCOPE: &str = "pub struct Scope {\n    pub user_id: i64,\n}\n";

/// The files that implement `OwnerScope`.
fn implementations(host: &Host) -> Vec<String> {
    let files = host.files().into_keys().filter(|path| path.starts_with("src/"));
    files.filter(|path| host.read(path).contains("impl OwnerScope for ")).collect()
}

fn two_contexts() -> Host {
    let host = Host::with_accounts(SCOPE);
    host.generate(ONE);
    host.generate(TWO);
    host
}

#[test]
fn the_second_context_uses_the_scope_file_of_the_first() {
    let host = two_contexts();
    assert_eq!(implementations(&host), ["src/conversations/scope.rs"]);
    assert!(host.read("src/conversations.rs").contains("\nmod scope;\n"));
    assert!(!host.read("src/notes.rs").contains("mod scope;"), "{}", host.read("src/notes.rs"));
    let before = everything(&host);
    for line in ["update", ONE, TWO, "check"] {
        host.generate(line);
        assert_eq!(everything(&host), before, "{line}");
    }
}

#[test]
fn a_report_names_the_shared_file() {
    let host = Host::with_accounts(SCOPE);
    host.generate(ONE);
    let run = host.generate(TWO);
    let read_first = run.stdout.lines().find(|line| line.contains("Read first")).unwrap();
    assert_snapshot!(anonymous(&host, read_first), @"Wrote 9 files with 936 lines. Read first: src/notes.rs, src/conversations/scope.rs, migrations/[version]_create_notes_persistence.up.sql");
}

#[test]
fn of_two_branches_with_a_context_each_one_keeps_its_scope_file() {
    let host = Host::with_accounts(SCOPE);
    host.generate(ONE);
    let branch = Host::with_accounts(SCOPE);
    branch.generate(&format!("{TWO} --migrations notes_migrations"));
    for path in branch.files().into_keys().filter(|path| path.contains("notes")) {
        host.write(&path, &branch.read(&path));
    }
    let options = branch.read("sagents.toml");
    let (_, notes) = options.split_once("\n\n").unwrap();
    host.write("sagents.toml", &format!("{}\n{notes}", host.read("sagents.toml")));
    edit(&host, "src/lib.rs", "pub mod conversations;\n", "pub mod conversations;\npub mod notes;\n");
    assert_eq!(implementations(&host).len(), 2);
    host.generate("update");
    assert_eq!(implementations(&host), ["src/conversations/scope.rs"]);
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn a_re_export_and_an_alias_are_the_same_scope() {
    for (path, item) in
        [("crate::Scope", "pub use accounts::Scope;"), ("crate::Caller", "pub type Caller = accounts::Scope;")]
    {
        let host = Host::with_accounts(SCOPE).file("src/lib.rs", &format!("pub mod accounts;\n\n{item}\n"));
        host.generate(ONE);
        host.generate(&format!("gen persistence notes -s {path} --table-prefix notes_"));
        assert_eq!(implementations(&host), ["src/conversations/scope.rs"], "{path}");
    }
}

#[test]
fn the_second_context_gets_its_own_file_when_the_first_is_removed() {
    let host = two_contexts();
    for path in host.files().into_keys().filter(|path| path.contains("conversations")) {
        fs::remove_file(host.root().join(&path)).unwrap();
    }
    edit(&host, "src/lib.rs", "pub mod conversations;\n", "");
    edit(&host, "sagents.toml", "[contexts.conversations]\nscope = \"accounts::Scope\"\n\n", "");
    assert_eq!(host.sagents("check").code, 3);
    host.generate("update");
    assert_eq!(implementations(&host), ["src/notes/scope.rs"]);
    assert!(host.read("src/notes.rs").contains("\nmod scope;\n"));
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn the_second_context_gets_its_own_file_when_the_first_has_another_scope() {
    let host = Host::with_accounts(&format!("{SCOPE}\npub struct Caller {{\n    pub user_id: i64,\n}}\n"));
    host.generate(ONE);
    host.generate(TWO);
    host.generate("gen persistence conversations -s accounts::Caller");
    assert_eq!(host.sagents("check").code, 3);
    host.generate("update");
    assert_eq!(implementations(&host), ["src/conversations/scope.rs", "src/notes/scope.rs"]);
    // And back: the first by name keeps its file.
    host.generate("gen persistence notes -s accounts::Caller");
    assert_eq!(implementations(&host), ["src/conversations/scope.rs"]);
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn other_owners_of_one_scope_are_refused() {
    let host = Host::with_accounts(
        "pub struct Scope {\n    pub user_id: Option<i64>,\n    pub author_id: i64,\n    pub team_id: Option<i64>,\n}\n",
    )
    .file("migrations/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY, team_id INTEGER);\n");
    host.generate(ONE);
    let refused = ["-t team", "-t none", "--scope-owner author_id", "--group-type team"]
        .map(|options| refusal(&host, &format!("{TWO} {options}")));
    assert_snapshot!(refused.join("\n"), @"
    $ gen persistence notes -s accounts::Scope --table-prefix notes_ -t team
    error: `notes` and `conversations` share the `impl OwnerScope for crate::accounts::Scope` in src/conversations/scope.rs, but `notes` needs the team (i64, `team_id`) and `conversations` the user (i64, `user_id`)
    help: give `conversations` the same options first, or `notes` a scope type of its own: `pub struct NotesScope(pub crate::accounts::Scope);`
    exit 5

    $ gen persistence notes -s accounts::Scope --table-prefix notes_ -t none
    error: `notes` and `conversations` share the `impl OwnerScope for crate::accounts::Scope` in src/conversations/scope.rs, but `notes` needs no owner and `conversations` the user (i64, `user_id`)
    help: give `conversations` the same options first, or `notes` a scope type of its own: `pub struct NotesScope(pub crate::accounts::Scope);`
    exit 5

    $ gen persistence notes -s accounts::Scope --table-prefix notes_ --scope-owner author_id
    error: `notes` and `conversations` share the `impl OwnerScope for crate::accounts::Scope` in src/conversations/scope.rs, but `notes` needs the user (i64, `author_id`) and `conversations` the user (i64, `user_id`)
    help: give `conversations` the same options first, or `notes` a scope type of its own: `pub struct NotesScope(pub crate::accounts::Scope);`
    exit 5

    $ gen persistence notes -s accounts::Scope --table-prefix notes_ --group-type team
    error: `notes` and `conversations` share the `impl OwnerScope for crate::accounts::Scope` in src/conversations/scope.rs, but `notes` needs the user (i64, `user_id`) with the team (i64, `team_id`) and `conversations` the user (i64, `user_id`)
    help: give `conversations` the same options first, or `notes` a scope type of its own: `pub struct NotesScope(pub crate::accounts::Scope);`
    exit 5
    ");
    host.generate(TWO);
    // Neither may the first leave the second behind.
    assert_snapshot!(refusal(&host, "gen persistence conversations -t team --backfill none"), @"
    $ gen persistence conversations -t team --backfill none
    error: `notes` and `conversations` share the `impl OwnerScope for crate::accounts::Scope` in src/conversations/scope.rs, but `notes` needs the user (i64, `user_id`) and `conversations` the team (i64, `team_id`)
    help: first give `notes` a scope type of its own: `pub struct NotesScope(pub crate::accounts::Scope);`
    exit 5
    ");
}

#[test]
fn a_group_is_added_to_the_first_context_first_and_removed_from_it_last() {
    let host =
        Host::with_accounts("pub struct Scope {\n    pub user_id: Option<i64>,\n    pub team_id: Option<i64>,\n}\n")
            .file("migrations/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY, team_id INTEGER);\n");
    host.generate(ONE);
    host.generate(TWO);
    host.generate("gen persistence conversations --group-type team");
    host.generate("gen persistence notes --group-type team");
    assert_eq!(host.sagents("gen persistence conversations --group-type none").code, 5);
    host.generate("gen persistence notes --group-type none");
    host.generate("gen persistence conversations --group-type none");
    assert_eq!(implementations(&host), ["src/conversations/scope.rs"]);
}

#[test]
fn another_way_to_the_same_owner_is_followed_by_the_second_context() {
    let host = two_contexts();
    host.write(
        "src/accounts.rs",
        "pub struct User {\n    pub id: i64,\n}\n\npub struct Scope {\n    pub user: User,\n}\n",
    );
    host.generate("gen persistence conversations --scope-owner user.id");
    assert_eq!(host.sagents("check").code, 5);
    host.generate("gen persistence notes --scope-owner user.id");
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn an_impl_of_the_hosts_own_is_used() {
    const BY_HAND: &str = "impl sagents::OwnerScope for Scope {\n    fn owner(&self) -> sagents::Result<sagents::Owner> {\n        \
         Ok(sagents::Owner::new(\"user\", self.user_id))\n    }\n}\n";
    for (path, text) in [
        ("src/accounts.rs", format!("{SCOPE}\n{BY_HAND}")),
        ("src/owners.rs", format!("use super::accounts::Scope;\n\n{BY_HAND}")),
    ] {
        let host = Host::with_accounts(SCOPE).file("src/lib.rs", "pub mod accounts;\nmod owners;\n");
        host.write("src/owners.rs", "");
        host.write(path, &text);
        host.generate(ONE);
        host.generate(TWO);
        assert!(!host.exists("src/conversations/scope.rs") && !host.exists("src/notes/scope.rs"));
        assert_eq!(host.sagents("check").code, 0);
        edit(&host, path, BY_HAND, "");
        host.generate("update");
        assert_eq!(implementations(&host), ["src/conversations/scope.rs"]);
    }
}

#[test]
fn an_impl_for_another_type_of_the_same_name_is_not_used() {
    let host = Host::with_accounts(SCOPE)
        .file("src/lib.rs", "pub mod accounts;\npub struct Scope;\n\nimpl sagents::OwnerScope for Scope {}\n");
    host.generate(ONE);
    assert!(host.exists("src/conversations/scope.rs"));
}

#[test]
fn a_context_that_was_taken_over_keeps_its_scope_file() {
    let host = two_contexts();
    fs::remove_dir_all(host.root().join(".sagents/conversations")).unwrap();
    edit(&host, "sagents.toml", "[contexts.conversations]\nscope = \"accounts::Scope\"\n\n", "");
    assert_eq!(host.sagents("check").code, 0);
    // Its code is still there, but no module of the crate any more.
    edit(&host, "src/lib.rs", "pub mod conversations;\n", "");
    host.generate("update");
    assert!(host.exists("src/notes/scope.rs"));
}
