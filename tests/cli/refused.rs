//! Hosts in which the generated code would not compile: refused before anything is written, with what changes that.

mod lints;
mod scopes;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use insta::assert_snapshot;

use crate::support::{Host, PLAIN, manifest};
use crate::transcript::{refusal, refusals};

/// A library with a scope and with this in its root.
fn with_root(line: &str) -> Host {
    Host::with_accounts("pub struct Scope { pub user_id: i64 }\n")
        .file("src/lib.rs", &format!("pub mod accounts;\n\n{line}\n"))
}

#[test]
fn links_that_lead_back_are_followed_once() {
    let host = with_root("pub fn nothing() {}");
    for name in ["again", "once_more"] {
        symlink(".", host.root().join("src").join(name)).unwrap();
    }
    let run = host.sagents(PLAIN);
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn a_file_that_is_no_text_and_no_module_is_passed_over() {
    let host = with_root("pub fn nothing() {}");
    fs::write(host.root().join("src/latin.rs"), b"// \xff\n").unwrap();
    fs::write(host.root().join("src").join(OsStr::from_bytes(b"\xff.rs")), "").unwrap();
    let run = host.sagents(PLAIN);
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn an_owner_table_has_no_empty_part_and_no_space_around_it() {
    let lines = ["users.", ".users", "app..users", "none ", " users", "None"]
        .map(|table| format!("gen persistence conversations -s accounts::Scope --owner-table '{table}'"));
    assert_snapshot!(refusals(&Host::library(), &lines.each_ref().map(String::as_str)), @"
    $ gen persistence conversations -s accounts::Scope --owner-table 'users.'
    error: --owner-table: `users.` has an empty part
    help: write `users`, or `auth.users` for a table in another schema
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-table '.users'
    error: --owner-table: `.users` has an empty part
    help: write `users`, or `auth.users` for a table in another schema
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-table 'app..users'
    error: --owner-table: `app..users` has an empty part
    help: write `users`, or `auth.users` for a table in another schema
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-table 'none '
    error: --owner-table: `none ` has spaces around it
    help: write `none`
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-table ' users'
    error: --owner-table: ` users` has spaces around it
    help: write `users`
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-table 'None'
    error: --owner-table: `None` is not a table
    help: write `none`, in lower case, for no foreign key
    exit 2
    ");
}

#[test]
fn migrations_have_a_directory_of_their_own() {
    let lines =
        [".git", ".git/hooks", ".sagents/migrations", "target", "target/migrations", "src", "src/new", " migrations"]
            .map(|directory| format!("gen persistence conversations -s accounts::Scope --migrations '{directory}'"));
    let member = Host::empty()
        .file("Cargo.toml", "[workspace]\nmembers = [\"web\"]\n")
        .file("web/Cargo.toml", &manifest("web", "2024", ""))
        .file("web/src/lib.rs", "");
    let of_member = ["..", "../target/migrations"].map(|directory| {
        format!("gen persistence conversations -s accounts::Scope --path web --migrations {directory}")
    });
    let all = [
        refusals(&Host::library(), &lines.each_ref().map(String::as_str)),
        refusals(&member, &of_member.each_ref().map(String::as_str)),
    ];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope --migrations '.git'
    error: --migrations: `.git` belongs to git
    help: name a directory of their own, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations '.git/hooks'
    error: --migrations: `.git/hooks` belongs to git
    help: name a directory of their own, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations '.sagents/migrations'
    error: --migrations: `.sagents/migrations` belongs to the generator
    help: name a directory of their own, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations 'target'
    error: --migrations: `target` is where cargo builds
    help: name a directory of their own, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations 'target/migrations'
    error: --migrations: `target/migrations` is where cargo builds
    help: name a directory of their own, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations 'src'
    error: --migrations: `src` is among the source files
    help: name a directory of their own, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations 'src/new'
    error: --migrations: `src/new` is among the source files
    help: name a directory of their own, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations ' migrations'
    error: --migrations: ` migrations` has spaces around it
    help: use a plain name, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --path web --migrations ..
    error: --migrations: `..` is not a directory inside of [host]
    help: name one relative to the package, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --path web --migrations ../target/migrations
    error: --migrations: `../target/migrations` is where cargo builds
    help: name a directory of their own, for example `migrations`
    exit 2
    ");
}

#[test]
fn migrations_have_a_directory_that_rust_code_can_name() {
    let plain = [r#"db"1"#, r"db\1", "db{x}", "db/x}"]
        .map(|directory| format!("gen persistence conversations -s accounts::Scope --migrations '{directory}'"));
    let init = "gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init --migrations 'db{x}'";
    let all = [refusals(&Host::library(), &plain.each_ref().map(String::as_str)), refusal(&Host::empty(), init)];
    assert_snapshot!(all.join("\n"), @r#"
    $ gen persistence conversations -s accounts::Scope --migrations 'db"1'
    error: --migrations: `db"1` contains `"`
    help: use a plain name, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations 'db\1'
    error: --migrations: `db\1` contains `\`
    help: use a plain name, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations 'db{x}'
    error: --migrations: `db{x}` contains `{`
    help: use a plain name, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations 'db/x}'
    error: --migrations: `db/x}` contains `}`
    help: use a plain name, for example `migrations`
    exit 2

    $ gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init --migrations 'db{x}'
    error: --migrations: `db{x}` contains `{`
    help: use a plain name, for example `migrations`
    exit 2
    "#);
}

#[test]
fn migrations_that_are_among_the_sources_stay_there() {
    let host =
        Host::library().file("src/db/migrations/0001_first.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    host.generate("gen persistence conversations -s accounts::Scope --migrations src/db/migrations");
}

#[test]
fn names_are_not_longer_than_those_of_files() {
    let long = "a".repeat(300);
    let deep = vec!["abcdefghi"; 30].join("::");
    let lines = [
        format!("gen persistence {long} -s accounts::Scope"),
        format!("gen persistence {deep} -s accounts::Scope"),
        format!("gen persistence conversations -s {long}::Scope"),
        format!("gen persistence conversations -s accounts::Scope --owner-type {long}"),
        format!("gen persistence conversations -s accounts::Scope --migrations {long}"),
    ];
    let all = refusals(&Host::library(), &lines.each_ref().map(String::as_str));
    assert_snapshot!(all.replace(&long, "[long]").replace(&deep, "[deep]"), @"
    $ gen persistence [long] -s accounts::Scope
    error: CONTEXT: `[long]` has 300 bytes, the limit is 100
    help: use a shorter name
    exit 2

    $ gen persistence [deep] -s accounts::Scope
    error: CONTEXT: `[deep]` has 328 bytes, the limit is 200
    help: use a shorter name
    exit 2

    $ gen persistence conversations -s [long]::Scope
    error: --scope: `[long]` has 300 bytes, the limit is 100
    help: use a shorter name
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-type [long]
    error: --owner-type: `[long]` has 300 bytes, the limit is 100
    help: use a shorter name
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations [long]
    error: --migrations: `[long]` has a name of 300 bytes in it, the limit is 200
    help: use a plain name, for example `migrations`
    exit 2
    ");
}

/// A library with a scope and with these lines in its Cargo.toml.
fn with_manifest(lines: &str) -> Host {
    Host::with_accounts("pub struct Scope { pub user_id: i64 }\n")
        .file("Cargo.toml", &manifest("my_app", "2024", lines))
}

fn refusals_in(hosts: &[Host]) -> String {
    hosts.iter().map(|host| refusal(host, PLAIN)).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_crate_for_some_targets_is_not_added_for_all() {
    let hosts = [
        "\n[target.'cfg(unix)'.dependencies]\nserde = { version = \"1.0\", features = [\"rc\"] }\n",
        "\n[target.'cfg(unix)'.dependencies.uuid]\nversion = \"1.10\"\n\n[target.'cfg(windows)'.dependencies]\nuuid = \"1.10\"\n",
        "\n[target.x86_64-unknown-linux-gnu.dependencies]\nagents = { package = \"sagents\", version = \"0.1.0\" }\n",
    ]
    .map(with_manifest);
    assert_snapshot!(refusals_in(&hosts), @"
    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `serde` is there for some targets only, under [target.'cfg(unix)'.dependencies], but the generated code is for all of them
    help: move `serde` to [dependencies]
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `uuid` is there for some targets only, under [target.'cfg(unix)'.dependencies], but the generated code is for all of them
    help: move `uuid` to [dependencies]
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `agents` is there for some targets only, under [target.x86_64-unknown-linux-gnu.dependencies], but the generated code is for all of them
    help: move `agents` to [dependencies]
    exit 5
    ");
}

#[test]
fn what_some_targets_add_to_a_crate_is_theirs() {
    let host = with_manifest(
        "\n[dependencies]\nuuid = \"1.12\"\n\n[target.'cfg(unix)'.dependencies]\nuuid = { version = \"1.12\", features = [\"v4\"] }\n",
    );
    host.generate(PLAIN);
    assert_snapshot!(host.read("Cargo.toml").lines().filter(|line| line.contains("uuid")).collect::<Vec<_>>().join("\n"), @r#"
    uuid = { version = "1.12", features = ["serde", "v7"] }
    uuid = { version = "1.12", features = ["v4"] }
    "#);
}

#[test]
fn a_name_that_is_taken_is_no_module_of_ours() {
    let hosts = [
        with_root("pub use accounts as conversations;"),
        with_root("pub mod talks {}\npub use talks::{self as conversations};"),
    ];
    let nested = with_root("pub mod chat;").file("src/chat.rs", "use crate::accounts as conversations;\n");
    let scope = Host::library().file("src/lib.rs", "//! The root.\n\nmod people {}\nuse people as accounts;\n");
    let all = [
        refusals_in(&hosts),
        refusal(&nested, "gen persistence chat::conversations -s accounts::Scope"),
        refusal(&scope, PLAIN),
    ];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: src/lib.rs:3: `conversations` is an import here, and a module cannot have the same name
    help: give it another name, or choose another module for the generated code
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: src/lib.rs:4: `conversations` is an import here, and a module cannot have the same name
    help: give it another name, or choose another module for the generated code
    exit 5

    $ gen persistence chat::conversations -s accounts::Scope
    error: src/chat.rs:1: `conversations` is an import here, and a module cannot have the same name
    help: give it another name, or choose another module for the generated code
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: src/lib.rs:4: `accounts` is an import here, and a module cannot have the same name
    help: give it another name, or choose another module for the generated code
    exit 5
    ");
}

#[test]
fn functions_and_macros_may_be_called_like_a_module_of_ours() {
    let host = with_root(
        "mod pages {\n    pub fn conversations() {}\n}\npub use pages::conversations;\n\n\
         macro_rules! conversations {\n    () => {};\n}",
    );
    host.generate(PLAIN);
}
