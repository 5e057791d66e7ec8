//! Scopes that generated code could not read the owner from.

use insta::assert_snapshot;

use super::refusals_in;
use crate::support::{Host, PLAIN};
use crate::transcript::{refusal, refusals};

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
    assert!(scope.contains("Owner::new(\"user\", self.user.id.to_string())"), "{scope}");
}

#[test]
fn a_method_may_be_in_another_file() {
    let host = Host::with_accounts("pub struct Scope { pub user: User }\npub struct User { id: i64 }\n")
        .file("src/lib.rs", "pub mod accounts;\nmod users;\n")
        .file("src/users.rs", "impl crate::accounts::User {\n    pub fn key(&self) -> i64 {\n        1\n    }\n}\n");
    host.generate("gen persistence conversations -s accounts::Scope --scope-owner user.key()");
}
