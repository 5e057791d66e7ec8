//! Files and directories of the host.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::{Command, Stdio};

use insta::assert_snapshot;

use super::{PLAIN, with_migration};
use crate::support::{Host, Run, sagents};
use crate::transcript::{anonymous, outside, refusal, refusal_by};

#[test]
fn a_source_file_that_does_not_parse_is_named_with_its_line() {
    let root = Host::library().file("src/lib.rs", "//! A library.\n\npub fn broken( {}\n");
    let accounts = Host::with_accounts("pub struct Scope {\n    pub user_id: i64,\n");
    let parent = Host::library().file("src/lib.rs", "pub mod chat;\n").file("src/chat.rs", "fn fn() {}\n");
    let all = [
        refusal(&root, PLAIN),
        refusal(&accounts, PLAIN),
        refusal(&parent, "gen persistence chat::conversations -s accounts::Scope"),
    ];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: src/lib.rs:3:14: something here is not closed, or is no Rust at all
    help: fix src/lib.rs, then run this again
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: src/accounts.rs:1:18: something here is not closed, or is no Rust at all
    help: fix src/accounts.rs, then run this again
    exit 2

    $ gen persistence chat::conversations -s accounts::Scope
    error: src/chat.rs:1:4: expected identifier, found keyword `fn`
    help: fix src/chat.rs, then run this again
    exit 2
    ");
}

#[test]
fn a_file_that_is_no_text_is_named() {
    let source = Host::library();
    fs::write(source.root().join("src/lib.rs"), b"// \xff\n").unwrap();
    let migration = with_migration("");
    fs::write(migration.root().join("migrations/0001_first.sql"), b"-- \xff\n").unwrap();
    assert_snapshot!([refusal(&source, PLAIN), refusal(&migration, PLAIN)].join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: src/lib.rs is not a text in UTF-8
    help: save src/lib.rs as UTF-8
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: migrations/0001_first.sql is not a text in UTF-8
    help: save migrations/0001_first.sql as UTF-8
    exit 2
    ");
}

#[test]
fn a_module_without_its_file_is_named() {
    let host = Host::library().file("src/lib.rs", "pub mod chat;\n");
    let undeclared = Host::library().file("src/accounts.rs", "pub struct Scope { pub user_id: i64 }\n");
    let all = [refusal(&host, "gen persistence chat::conversations -s accounts::Scope"), refusal(&undeclared, PLAIN)];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence chat::conversations -s accounts::Scope
    error: src/lib.rs declares `mod chat`, but there is no `src/chat.rs` or `src/chat/mod.rs`
    help: create the file, or remove the line from src/lib.rs
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: src/accounts.rs is there, but no `mod accounts;` declares it
    help: declare it, or move src/accounts.rs away
    exit 5
    ");
}

#[test]
fn an_inline_module_is_no_place_for_files() {
    let context = Host::library().file("src/lib.rs", "pub mod conversations {}\n");
    let parent = Host::library().file("src/lib.rs", "pub mod chat {\n    pub fn talk() {}\n}\n");
    let tests = Host::library().file("src/lib.rs", "#[cfg(test)]\nmod conversations;\n");
    let all = [
        refusal(&context, PLAIN),
        refusal(&parent, "gen persistence chat::conversations -s accounts::Scope"),
        refusal(&parent, "gen persistence conversations -s chat::Scope"),
        refusal(&tests, PLAIN),
    ];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: `crate::conversations` is, or is inside of, a module that is written inline in src/lib.rs
    help: move that module to a file of its own, or choose another path
    exit 2

    $ gen persistence chat::conversations -s accounts::Scope
    error: `crate::chat::conversations` is, or is inside of, a module that is written inline in src/lib.rs
    help: move that module to a file of its own, or choose another path
    exit 2

    $ gen persistence conversations -s chat::Scope
    error: `crate::chat` is, or is inside of, a module that is written inline in src/lib.rs
    help: move that module to a file of its own, or choose another path
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: src/lib.rs: `mod conversations` is there for tests only
    help: give that module another name, or choose another one for the generated code
    exit 2
    ");
}

#[test]
fn an_unrelated_file_is_not_replaced() {
    let host = Host::library().file("src/conversations.rs", "//! Mine.\n");
    let declared = Host::library()
        .file("src/lib.rs", "pub mod conversations;\n")
        .file("src/conversations.rs", "//! Mine.\n")
        .file("src/conversations/scope.rs", "//! Mine, too.\n");
    assert_snapshot!([refusal(&host, PLAIN), refusal(&declared, PLAIN)].join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: not generated by sagents, and in the way: src/conversations.rs
    help: choose another CONTEXT, move the file away, or replace it with --force (the old one is kept as .orig)
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: not generated by sagents, and in the way: src/conversations/scope.rs, src/conversations.rs
    help: choose another CONTEXT, move the file away, or replace it with --force (the old one is kept as .orig)
    exit 5
    ");
}

#[test]
fn a_directory_is_not_replaced_by_a_file() {
    let places =
        ["src/conversations.rs", "src/conversations/scope.rs", "sagents.toml", ".sagents/conversations/schema.json"];
    let all = places.map(|place| {
        let host = Host::library();
        fs::create_dir_all(host.root().join(place)).unwrap();
        refusal(&host, PLAIN)
    });
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: src/conversations.rs is a directory, where a file has to be
    help: move src/conversations.rs away
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: src/conversations/scope.rs is a directory, where a file has to be
    help: move src/conversations/scope.rs away
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml is a directory, where a file has to be
    help: move sagents.toml away
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: .sagents/conversations/schema.json is a directory, where a file has to be
    help: move .sagents/conversations/schema.json away
    exit 2
    ");
}

#[test]
fn a_file_is_not_replaced_by_a_directory() {
    let places = ["src/conversations", "migrations", ".sagents"];
    let all = places.map(|place| refusal(&Host::library().file(place, ""), PLAIN));
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: src/conversations is a file, where a directory has to be
    help: move src/conversations away, or choose another path
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: migrations is a file, where a directory has to be
    help: move migrations away, or choose another path
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: .sagents is a file, where a directory has to be
    help: move .sagents away, or choose another path
    exit 2
    ");
}

#[test]
fn no_link_leads_out_of_the_package() {
    let linked = |place: &str, directory: bool| {
        let host = Host::library();
        let target = outside(&host).join("elsewhere");
        if directory {
            fs::create_dir(&target).unwrap();
        } else {
            fs::write(&target, "").unwrap();
        }
        symlink(target, host.root().join(place)).unwrap();
        refusal(&host, PLAIN)
    };
    let all = [
        linked("src/conversations.rs", false),
        linked("src/conversations", true),
        linked("migrations", true),
        linked("sagents.toml", false),
        linked(".sagents", true),
    ];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: src/conversations.rs would be written outside of the package: [host]/src/conversations.rs leads to [outside]/elsewhere
    help: replace the link by a real file or directory
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: src/conversations/agent_state.rs would be written outside of the package: [host]/src/conversations leads to [outside]/elsewhere
    help: replace the link by a real file or directory
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: migrations/[version]_create_sagents_persistence.down.sql would be written outside of the package: [host]/migrations leads to [outside]/elsewhere
    help: replace the link by a real file or directory
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml would be written outside of the package: [host]/sagents.toml leads to [outside]/elsewhere
    help: replace the link by a real file or directory
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: .sagents/conversations/resolved.toml would be written outside of the package: [host]/.sagents leads to [outside]/elsewhere
    help: replace the link by a real file or directory
    exit 2
    ");
}

#[test]
fn a_link_that_leads_nowhere_is_not_followed() {
    let places = ["src/conversations.rs", "src/conversations", "migrations"];
    let all = places.map(|place| {
        let host = Host::library();
        symlink("/nonexistent/elsewhere", host.root().join(place)).unwrap();
        refusal(&host, PLAIN)
    });
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: [host]/src/conversations.rs is a link that leads nowhere
    help: remove [host]/src/conversations.rs
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: [host]/src/conversations is a link that leads nowhere
    help: remove [host]/src/conversations
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: [host]/migrations is a link that leads nowhere
    help: remove [host]/migrations
    exit 2
    ");
}

#[test]
fn a_read_only_directory_is_named() {
    let places = [".", "src", "migrations", "src/conversations"];
    let all = places.map(|place| {
        let host = Host::library();
        let directory = host.root().join(place);
        fs::create_dir_all(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o555)).unwrap();
        let refusal = refusal_by(&host, PLAIN, |words| Run::of(unprivileged(&host).args(words)));
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        refusal
    });
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: nothing was changed: cannot create [host]/.sagents: Permission denied (os error 13)
    help: make it possible to write there, then run the same command again
    exit 1

    $ gen persistence conversations -s accounts::Scope
    error: nothing was changed: cannot write [host]/src/accounts.rs: permission denied
    help: make it possible to write there, then run the same command again
    exit 1

    $ gen persistence conversations -s accounts::Scope
    error: nothing was changed: cannot write [host]/migrations/[version]_create_sagents_persistence.down.sql: permission denied
    help: make it possible to write there, then run the same command again
    exit 1

    $ gen persistence conversations -s accounts::Scope
    error: nothing was changed: cannot write [host]/src/conversations/agent_state.rs: permission denied
    help: make it possible to write there, then run the same command again
    exit 1
    ");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let places = ["Cargo.toml", "src/lib.rs", "migrations"];
    let all = places.map(|place| {
        let host = with_migration("");
        let path = host.root().join(place);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        let run = Run::of(unprivileged(&host).args(PLAIN.split(' ')));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        format!("{}exit {}\n", anonymous(&host, &run.stderr), run.code)
    });
    assert_snapshot!(all.join("\n"), @"
    error: cannot read Cargo.toml: Permission denied (os error 13)
    help: make Cargo.toml readable, then run this again
    exit 1

    error: cannot read src/lib.rs: Permission denied (os error 13)
    help: make src/lib.rs readable, then run this again
    exit 1

    error: cannot read migrations: Permission denied (os error 13)
    help: make migrations readable, then run this again
    exit 1
    ");
}

/// The program without root's power to write where nobody may.
fn unprivileged(host: &Host) -> Command {
    let mut plain = sagents();
    plain.current_dir(host.root());
    if fs::metadata(host.root()).unwrap().uid() != 0 {
        return plain;
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", "--"]);
    command.arg(plain.get_program()).stdin(Stdio::null()).current_dir(host.root());
    command
}
