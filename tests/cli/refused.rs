//! Hosts in which the generated code would not compile: refused before anything is written, with what changes that.

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
        "\n[target.'cfg(unix)'.dependencies]\nsqlx = { version = \"0.8\", features = [\"postgres\"] }\n",
        "\n[target.'cfg(unix)'.dependencies.uuid]\nversion = \"1.10\"\n\n[target.'cfg(windows)'.dependencies]\nuuid = \"1.10\"\n",
        "\n[target.x86_64-unknown-linux-gnu.dependencies]\ndb = { package = \"sqlx\", version = \"0.9\" }\n",
    ]
    .map(with_manifest);
    assert_snapshot!(refusals_in(&hosts), @"
    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `sqlx` is there for some targets only, under [target.'cfg(unix)'.dependencies], but the generated code is for all of them
    help: move `sqlx` to [dependencies]
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `uuid` is there for some targets only, under [target.'cfg(unix)'.dependencies], but the generated code is for all of them
    help: move `uuid` to [dependencies]
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `db` is there for some targets only, under [target.x86_64-unknown-linux-gnu.dependencies], but the generated code is for all of them
    help: move `db` to [dependencies]
    exit 5
    ");
}

#[test]
fn what_some_targets_add_to_a_crate_is_theirs() {
    let host = with_manifest(
        "\n[dependencies]\nsqlx = \"0.8.4\"\n\n[target.'cfg(unix)'.dependencies]\nsqlx = { version = \"0.8.4\", features = [\"postgres\"] }\n",
    );
    host.generate(PLAIN);
    assert_snapshot!(host.read("Cargo.toml").lines().filter(|line| line.contains("sqlx")).collect::<Vec<_>>().join("\n"), @r#"
    sqlx = { version = "0.8.4", features = ["chrono", "postgres", "runtime-tokio", "uuid"] }
    sqlx = { version = "0.8.4", features = ["postgres"] }
    "#);
}

#[test]
fn a_name_that_is_taken_is_no_module_of_ours() {
    let hosts = [
        with_root("pub use accounts as conversations;"),
        with_root("#[allow(non_camel_case_types)]\npub struct sagents;"),
        with_root("extern crate core as sagents;"),
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
    error: src/lib.rs:4: `sagents` is a struct here, and a module cannot have the same name
    help: give it another name: the agent runtime is always `crate::sagents`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: src/lib.rs:3: `sagents` is a crate here, and a module cannot have the same name
    help: give it another name: the agent runtime is always `crate::sagents`
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
        "mod pages {\n    pub fn conversations() {}\n}\npub use pages::conversations;\n\npub fn sagents() {}\n\n\
         macro_rules! sagents {\n    () => {};\n}",
    );
    host.generate(PLAIN);
}

#[test]
fn a_scope_is_public() {
    let hosts = [
        Host::with_accounts("pub(crate) struct Scope { pub user_id: i64 }\n"),
        Host::with_accounts("pub type Scope = Session;\nstruct Session { pub user_id: i64 }\n"),
        Host::binary()
            .file("src/main.rs", "mod accounts;\nfn main() {}\n")
            .file("src/accounts.rs", "pub(crate) struct Scope { pub user_id: i64 }\n"),
    ];
    assert_snapshot!(refusals_in(&hosts), @"
    $ gen persistence conversations -s accounts::Scope
    error: --scope: `Scope` in src/accounts.rs is not `pub`, but it is a part of public traits of the generated code
    help: make `Scope` itself `pub`; the module that it is in may stay private
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: --scope: `Session` in src/accounts.rs is not `pub`, but it is a part of public traits of the generated code
    help: make `Session` itself `pub`; the module that it is in may stay private
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: --scope: `Scope` in src/accounts.rs is not `pub`, but it is a part of public traits of the generated code
    help: make `Scope` itself `pub`; the module that it is in may stay private
    exit 5
    ");
}

#[test]
fn a_public_scope_may_be_in_a_private_module() {
    let host = Host::with_accounts(
        "mod inner {\n    pub struct Scope {\n        pub user_id: i64,\n    }\n}\npub(crate) use inner::Scope;\n",
    );
    host.generate(PLAIN);
}

#[test]
fn a_scope_is_visible_where_it_is_used() {
    const SCOPE: &str = "pub struct Scope {\n    pub user_id: i64,\n}\n";
    let nested = |accounts: &str| Host::with_accounts(accounts).file("src/accounts/extractor.rs", SCOPE);
    let line = "gen persistence conversations -s accounts::extractor::Scope";
    let all = [
        refusal(&nested("mod extractor;\n"), line),
        refusal(&nested("mod extractor;\n\npub use extractor::Scope;\n"), line),
        refusal(&nested("mod extractor;\n\nuse extractor::Scope;\n"), PLAIN),
        refusal(&nested("mod extractor;\n\npub struct User;\n"), &format!("{line}d --create-scope")),
    ];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::extractor::Scope
    error: --scope: `crate::accounts::extractor::Scope` cannot be named in `crate::conversations`: `mod extractor` in src/accounts.rs is private
    help: write `pub(crate) mod extractor;` in src/accounts.rs, or re-export `Scope` from a module that is visible
    exit 5

    $ gen persistence conversations -s accounts::extractor::Scope
    error: --scope: `crate::accounts::extractor::Scope` cannot be named in `crate::conversations`: `mod extractor` in src/accounts.rs is private
    help: name it as it is visible there, with `--scope crate::accounts::Scope`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: --scope: `crate::accounts::Scope` cannot be named in `crate::conversations`: the import of `Scope` in src/accounts.rs is private
    help: write `pub(crate) use extractor::Scope;` in src/accounts.rs, or re-export `Scope` from a module that is visible
    exit 5

    $ gen persistence conversations -s accounts::extractor::Scoped --create-scope
    error: --scope: `crate::accounts::extractor::Scoped` cannot be named in `crate::conversations`: `mod extractor` in src/accounts.rs is private
    help: write `pub(crate) mod extractor;` in src/accounts.rs, or re-export `Scoped` from a module that is visible
    exit 5
    ");

    nested("pub(crate) mod extractor;\n").generate(line);
    nested("mod extractor;\n").generate("gen persistence accounts::conversations -s accounts::extractor::Scope");
}

#[test]
fn a_scope_that_does_not_exist_is_not_written_by_mistake() {
    let host = Host::library()
        .file("src/lib.rs", "pub mod auth;\npub mod accounts;\n")
        .file("src/auth.rs", "pub struct AuthUser {\n    pub user_id: i64,\n}\n\npub enum Kind {}\n")
        .file("src/accounts.rs", "pub mod model {\n    pub type Account = u8;\n}\n");
    let refused = refusals(
        &host,
        &[
            "gen persistence conversations -s crate::x::AuthUser",
            "gen persistence conversations -s crate::auth::AuthUsr",
            "gen persistence conversations -s crate::accounts::Account",
            "gen persistence conversations -s Everything",
        ],
    );
    assert_snapshot!(refused, @"
    $ gen persistence conversations -s crate::x::AuthUser
    error: --scope: there is no `crate::x::AuthUser`; the nearest is `crate::auth::AuthUser`
    help: name it with --scope, or have it written with --create-scope
    exit 5

    $ gen persistence conversations -s crate::auth::AuthUsr
    error: --scope: there is no `crate::auth::AuthUsr`; the nearest is `crate::auth::AuthUser`
    help: name it with --scope, or have it written with --create-scope
    exit 5

    $ gen persistence conversations -s crate::accounts::Account
    error: --scope: there is no `crate::accounts::Account`; the nearest is `crate::accounts::model::Account`
    help: name it with --scope, or have it written with --create-scope
    exit 5

    $ gen persistence conversations -s Everything
    error: --scope: there is no `crate::Everything`
    help: name a type that is there with --scope, or have it written with --create-scope
    exit 5
    ");

    // What the generator wrote is no mistake, nor is what it is asked to write.
    host.generate("gen persistence conversations -s crate::x::Scope --create-scope");
    assert!(host.read("src/x.rs").contains("pub struct Scope {"));
    assert!(!host.read("sagents.toml").contains("create-scope"));
    assert!(host.generate("gen persistence conversations -s crate::x::Scope").stdout.starts_with("Up to date: "));
    host.generate("gen persistence conversations -t team --backfill 1");
    assert!(host.read("src/x.rs").contains("pub team_id: i64"));
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn a_scope_goes_from_thread_to_thread() {
    let hosts = [
        "use std::rc::Rc;\npub struct Scope { pub user_id: i64, pub cache: Rc<str> }\n",
        "pub struct Scope { pub user: User }\npub struct User { pub id: i64, seen: Option<std::cell::RefCell<u8>> }\n",
        "pub struct Scope { pub user_id: i64, pub check: Box<dyn Fn() -> bool + Send> }\n",
    ]
    .map(Host::with_accounts);
    assert_snapshot!(refusals_in(&hosts), @"
    $ gen persistence conversations -s accounts::Scope
    error: --scope: `crate::accounts::Scope` in src/accounts.rs is not `Send` and `Sync`, which sessions need: `cache` holds `Rc<str>`
    help: use types that threads can share, such as `Arc` and `Mutex`, or name a type without it with --scope
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: --scope: `crate::accounts::Scope` in src/accounts.rs is not `Send` and `Sync`, which sessions need: `user` holds `std::cell::RefCell<u8>`
    help: use types that threads can share, such as `Arc` and `Mutex`, or name a type without it with --scope
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: --scope: `crate::accounts::Scope` in src/accounts.rs is not `Send` and `Sync`, which sessions need: `check` holds `dyn Fn() -> bool + Send`
    help: use types that threads can share, such as `Arc` and `Mutex`, or name a type without it with --scope
    exit 5
    ");
}

#[test]
fn a_scope_may_share_what_is_locked() {
    let host = Host::with_accounts(
        "use std::cell::Cell;\nuse std::sync::{Arc, Mutex};\n\
         pub struct Scope { pub user_id: i64, pub seen: Arc<Mutex<Cell<u8>>>, pub check: Box<dyn Fn() + Send + Sync> }\n",
    );
    host.generate(PLAIN);
}

/// A library whose scope is this with a feature, and that without it.
fn with_variants(with: &str, without: &str) -> Host {
    Host::with_accounts(&format!(
        "#[cfg(feature = \"teams\")]\npub struct Scope {{ {with} }}\n\
         #[cfg(not(feature = \"teams\"))]\npub struct Scope {{ {without} }}\n\
         pub struct User {{ pub id: i64 }}\n"
    ))
}

#[test]
fn variants_of_a_scope_agree_on_the_way_to_the_owner() {
    let lines = [PLAIN, "gen persistence conversations -s accounts::Scope --scope-owner user.id"];
    let by_another_way = with_variants("pub user: User", "pub user_id: i64");
    let of_another_type = with_variants("pub user_id: i64", "pub user_id: String");
    assert_snapshot!([refusals(&by_another_way, &lines), refusal(&of_another_type, PLAIN)].join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: `crate::accounts::Scope` in src/accounts.rs has variants under `cfg`, which lead to the owner by `user.id` or `user_id`
    help: name a field or method with --scope-owner that every variant has, with the same type
    exit 5

    $ gen persistence conversations -s accounts::Scope --scope-owner user.id
    error: --scope-owner: `crate::accounts::Scope` in src/accounts.rs has no field `user`; it has
      user_id: i64
    help: name one of these, or add `pub fn owner_id(&self)` to `Scope` in that file
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: `crate::accounts::Scope` in src/accounts.rs has variants under `cfg`, which lead to the owner by `user_id` of different types
    help: name a field or method with --scope-owner that every variant has, with the same type
    exit 5
    ");
}

#[test]
fn variants_that_agree_are_one_scope() {
    with_variants("pub user_id: i64, pub team_id: i64", "pub user_id: i64").generate(PLAIN);
}

#[test]
fn a_scope_that_a_macro_may_make_is_not_written_again() {
    let hosts = [
        "macro_rules! scope {\n    () => {\n        pub struct Scope { pub user_id: i64 }\n    };\n}\nscope! {}\n",
        "auth::scope! { user_id: i64 }\n",
        "#[derive(auth::MakeScope)]\npub struct User { pub id: i64 }\n",
        "#[auth::session(name = \"Scope\")]\npub struct User { pub id: i64 }\n",
    ]
    .map(Host::with_accounts);
    assert_snapshot!(refusals_in(&hosts), @"
    $ gen persistence conversations -s accounts::Scope
    error: `crate::accounts::Scope` is not written in the source, but `scope!` in src/accounts.rs:6 may make it
    help: if it does, give with --scope-owner how it names its user, for example `--scope-owner user_id`; if not, write the type, or name another module with --scope
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: `crate::accounts::Scope` is not written in the source, but `auth::scope!` in src/accounts.rs:1 may make it
    help: if it does, give with --scope-owner how it names its user, for example `--scope-owner user_id`; if not, write the type, or name another module with --scope
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: `crate::accounts::Scope` is not written in the source, but an attribute in src/accounts.rs:1 may make it
    help: if it does, give with --scope-owner how it names its user, for example `--scope-owner user_id`; if not, write the type, or name another module with --scope
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: `crate::accounts::Scope` is not written in the source, but an attribute in src/accounts.rs:1 may make it
    help: if it does, give with --scope-owner how it names its user, for example `--scope-owner user_id`; if not, write the type, or name another module with --scope
    exit 5
    ");
}

#[test]
fn macros_that_make_no_type_do_not_stand_in_the_way_of_a_scope() {
    for source in [
        "thread_local! { static SEEN: u8 = 1; }\n",
        "macro_rules! user {\n    () => {\n        pub struct User;\n    };\n}\nuser! {}\n",
        "#[derive(Debug, serde::Serialize)]\npub struct User;\n\n#[tracing::instrument(skip(scope))]\npub fn login(scope: u8) {}\n",
    ] {
        let host = Host::with_accounts(source);
        host.generate(&format!("{PLAIN} --create-scope"));
        assert!(host.read("src/accounts.rs").contains("pub struct Scope {"), "{source}");
    }
}

#[test]
fn a_way_to_the_owner_ends_at_its_key() {
    let host = Host::with_accounts(
        "pub struct Scope { pub user: User }\n\
         pub struct User { pub id: i64, pub key: Key }\n\
         #[derive(Debug, Clone)]\n\
         pub struct Key(pub i64);\n",
    )
    .file("migrations/0001_first.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    let lines =
        ["user.id()", "user.id.id()", "user.id.0", "user.key.id()", "user.key.to_string()", "user.id.to_string()"]
            .map(|way| format!("gen persistence conversations -s accounts::Scope --scope-owner {way}"));
    assert_snapshot!(refusals(&host, &lines.each_ref().map(String::as_str)), @"
    $ gen persistence conversations -s accounts::Scope --scope-owner user.id()
    error: --scope-owner: `User` in src/accounts.rs has no method `id()`; it has
      id: i64
      key: Key
    help: name one of these, or add `pub fn id(&self)` to `User` in that file
    exit 2

    $ gen persistence conversations -s accounts::Scope --scope-owner user.id.id()
    error: --scope-owner: `user.id` is `i64`, and `id()` does not lead from there to a key
    help: end with `user.id`, or with `user.id.to_string()` for a key of text
    exit 2

    $ gen persistence conversations -s accounts::Scope --scope-owner user.id.0
    error: --scope-owner: `user.id` is `i64`, and `0` does not lead from there to a key
    help: end with `user.id`, or with `user.id.to_string()` for a key of text
    exit 2

    $ gen persistence conversations -s accounts::Scope --scope-owner user.key.id()
    error: --scope-owner: `Key` in src/accounts.rs has no method `id()`; it has
      0: i64
    help: name one of these, or add `pub fn id(&self)` to `Key` in that file
    exit 2

    $ gen persistence conversations -s accounts::Scope --scope-owner user.key.to_string()
    error: --scope-owner: `Key` in src/accounts.rs has no method `to_string()`; it has
      0: i64
    help: name one of these, or implement `Display` for `Key`
    exit 2

    $ gen persistence conversations -s accounts::Scope --scope-owner user.id.to_string()
    error: `user.id.to_string()` in crate::accounts::Scope is `String`, but the key `id` of table `users` is `i64`
    help: name a way to the `i64` with --scope-owner, another table with --owner-table, or `--owner-table none`
    exit 5
    ");
}

#[test]
fn the_text_of_a_key_is_a_key() {
    let host = Host::with_accounts("pub struct Scope { pub user: User }\npub struct User { pub id: i64 }\n");
    host.generate("gen persistence conversations -s accounts::Scope --scope-owner user.id.to_string()");
    let scope = host.read("src/conversations/scope.rs");
    assert!(
        scope.contains("    user_id: String,") && scope.contains("Owner::new(self.user.id.to_string())"),
        "{scope}"
    );
}

#[test]
fn a_method_may_be_in_another_file() {
    let host = Host::with_accounts("pub struct Scope { pub user: User }\npub struct User { id: i64 }\n")
        .file("src/lib.rs", "pub mod accounts;\nmod users;\n")
        .file("src/users.rs", "impl crate::accounts::User {\n    pub fn key(&self) -> i64 {\n        1\n    }\n}\n");
    host.generate("gen persistence conversations -s accounts::Scope --scope-owner user.key()");
}

/// A library with a scope, whose root begins with this.
fn with_attributes(attributes: &str) -> Host {
    with_root("").file("src/lib.rs", &format!("//! A library.\n\n{attributes}\n\npub mod accounts;\n"))
}

#[test]
fn lints_that_generated_code_allows_are_not_forbidden() {
    let hosts = [
        with_attributes("#![forbid(unsafe_code, unused_qualifications)]"),
        with_attributes("#![forbid(unused, reason = \"order\")]\n#![cfg_attr(feature = \"ci\", forbid(clippy::all))]"),
        with_attributes(
            "#![cfg_attr(not(test), forbid(clippy::unreachable))]\n#![cfg_attr(any(unix, not(test)), cfg_attr(all(), forbid(unused_mut)))]",
        ),
        with_attributes("#![forbid(clippy::unwrap_used)]"),
        with_manifest(
            "\n[lints.rust]\nunsafe_code = \"forbid\"\nunreachable-pub = { level = \"forbid\", priority = 1 }\n\n[lints.clippy]\nexpect_used = \"forbid\"\n",
        ),
        with_manifest("\n[lints]\nworkspace = true\n\n[workspace.lints]\nrust.dead_code = \"forbid\"\n"),
        Host::binary().file("src/main.rs", "#![forbid(deprecated)]\nfn main() {}\n"),
    ];
    let member = Host::empty()
        .file("Cargo.toml", "[workspace]\nmembers = [\"web\"]\n\n[workspace.lints.rust]\nunused_results = \"forbid\"\n")
        .file("web/Cargo.toml", &manifest("web", "2024", "\n[lints]\nworkspace = true\n"))
        .file("web/src/lib.rs", "");
    let of_none = with_attributes("#![forbid(clippy::unused_self)]");
    let all = [
        refusals_in(&hosts),
        refusal(&member, "gen persistence conversations -s accounts::Scope --path web"),
        refusal(&of_none, "gen persistence conversations -s accounts::Scope --owner-type none"),
    ];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      src/lib.rs:3: `forbid(unused_qualifications)`: code that serde derives allows it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      src/lib.rs:3: `forbid(unused)`: the agent runtime allows `dead_code`, which is in this group
      src/lib.rs:4: `forbid(clippy::all)`: `#[tracing::instrument]` allows `clippy::needless_return`, which is in this group
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      src/lib.rs:3: `forbid(clippy::unreachable)`: `#[tracing::instrument]` allows it
      src/lib.rs:4: `forbid(unused_mut)`: the generated tests allow it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      src/lib.rs:3: `forbid(clippy::unwrap_used)`: the generated tests allow it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it; or generate no tests, with --no-tests
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      Cargo.toml: `unreachable-pub` in [lints.rust]: the agent runtime allows it
      Cargo.toml: `expect_used` in [lints.clippy]: the generated tests allow it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      Cargo.toml: `dead_code` in [workspace.lints.rust]: the agent runtime allows it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      src/main.rs:1: `forbid(deprecated)`: code that thiserror derives allows it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it
    exit 5

    $ gen persistence conversations -s accounts::Scope --path web
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      [host]/Cargo.toml: `unused_results` in [workspace.lints.rust]: the generated tests allow it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it; or generate no tests, with --no-tests
    exit 5

    $ gen persistence conversations -s accounts::Scope --owner-type none
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      src/lib.rs:3: `forbid(clippy::unused_self)`: code for conversations without an owner allows it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it
    exit 5
    ");
}

#[test]
fn lints_that_generated_code_does_not_allow_may_be_forbidden() {
    let strict = "#![forbid(unsafe_code, missing_docs, clippy::unused_self)]\n#![deny(unused, clippy::unwrap_used)]\n\
                  #![cfg_attr(not(test), forbid(clippy::unwrap_used))]\n\
                  #![cfg_attr(all(unix, not(any(test, feature = \"testing\"))), forbid(clippy::expect_used))]";
    with_attributes(strict).generate(PLAIN);
    let offered = "\n[workspace.lints.rust]\ndead_code = \"forbid\"\n\n[lints.rust]\nunsafe_code = \"forbid\"\nunused = \"deny\"\n";
    with_manifest(offered).generate(PLAIN);
    let without_tests = with_attributes("#![forbid(unused_results, clippy::unwrap_used)]");
    without_tests.generate("gen persistence conversations -s accounts::Scope --no-tests");
}
