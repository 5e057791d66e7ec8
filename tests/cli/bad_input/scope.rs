//! The scope, and the way to the owner through it.

use insta::assert_snapshot;

use super::{PLAIN, depending};
use crate::support::Host;
use crate::transcript::{refusal, refusals};

#[test]
fn a_scope_is_a_type_of_the_host() {
    let lines = [
        "gen persistence conversations",
        "gen persistence conversations -s ''",
        "gen persistence conversations -s accounts",
        "gen persistence conversations -s MyApp",
        "gen persistence conversations -s accounts::Self",
        "gen persistence conversations -s Other.Accounts.Scope",
        "gen persistence conversations -s 'accounts::Scope<T>'",
        "gen persistence conversations -s super::Scope",
        "gen persistence conversations -s Accounts::Scope",
        "gen persistence conversations -s accounts::scope",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence conversations
    error: --scope is missing: the type that holds who is asking
    help: add it, for example `--scope MyApp.Accounts.Scope`; where conversations have no owner, `--owner-type none` needs none
    exit 2

    $ gen persistence conversations -s ''
    error: --scope: it is empty
    help: write `MyApp.Accounts.Scope` or `crate::accounts::Scope`
    exit 2

    $ gen persistence conversations -s accounts
    error: --scope: `accounts` is not the name of a type
    help: types are in camel case: did you mean `Accounts`?
    exit 2

    $ gen persistence conversations -s MyApp
    error: --scope: `MyApp` names no type
    help: give the type with its module, for example `MyApp.Accounts.Scope` or `crate::accounts::Scope`
    exit 2

    $ gen persistence conversations -s accounts::Self
    error: --scope: what `Self` means depends on where it is read
    help: start at the crate's root: `crate::…` or `MyApp.…`
    exit 2

    $ gen persistence conversations -s Other.Accounts.Scope
    error: --scope: `Other` in `Other.Accounts.Scope` is not this package, which is called `my_app`
    help: write `MyApp.Accounts.Scope`
    exit 2

    $ gen persistence conversations -s 'accounts::Scope<T>'
    error: --scope: `Scope<T>` contains `<`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s super::Scope
    error: --scope: what `super` means depends on where it is read
    help: start at the crate's root: `crate::…` or `MyApp.…`
    exit 2

    $ gen persistence conversations -s Accounts::Scope
    error: --scope: `Accounts` is not in snake case
    help: use `accounts`
    exit 2

    $ gen persistence conversations -s accounts::scope
    error: --scope: `scope` is not the name of a type
    help: types are in camel case: did you mean `Scope`?
    exit 2
    ");
}

#[test]
fn a_scope_without_a_readable_owner_lists_what_it_has() {
    let hosts = [
        "pub struct Scope { pub r#type: String, pub id: i64 }\n",
        "pub struct Scope { user_id: i64, pub locale: String }\nimpl Scope { pub fn locale(&self) -> &str { &self.locale } }\n",
        "pub enum Scope { Member(i64), Nobody }\n",
        "pub struct Scope;\n",
        "pub struct Team { pub id: i64 }\npub struct Scope { pub team: Team }\n",
    ]
    .map(Host::with_accounts);
    assert_snapshot!(hosts.each_ref().map(|host| refusal(host, PLAIN)).join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: it is not clear how the id of the user is read from `crate::accounts::Scope` in src/accounts.rs: it has
      type: String
      id: i64
    looked for a field or method `user_id`, and for a field or method `user` whose type has a visible `id`
    a scope of `type` and `id` may be any kind of owner, and `String` is no enum with a variant `User` that can be read
    help: give it with `--scope-owner`, or add `pub fn user_id(&self)` to `Scope` in that file
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: it is not clear how the id of the user is read from `crate::accounts::Scope` in src/accounts.rs: it has
      user_id: i64 (private)
      locale: String
      fn locale(&self) -> &str
    looked for a field or method `user_id`, and for a field or method `user` whose type has a visible `id`
    help: give it with `--scope-owner`, or add `pub fn user_id(&self)` to `Scope` in that file
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: it is not clear how the id of the user is read from `crate::accounts::Scope` in src/accounts.rs: it has
      Member(i64)
      Nobody
    looked for a variant `User` with an id or a user, and for a method `user_id` or `user`
    help: give it with `--scope-owner`, or add `pub fn user_id(&self)` to `Scope` in that file
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: it is not clear how the id of the user is read from `crate::accounts::Scope` in src/accounts.rs: it has no field, and no method that reads something
    looked for a field or method `user_id`, and for a field or method `user` whose type has a visible `id`
    help: give it with `--scope-owner`, or add `pub fn user_id(&self)` to `Scope` in that file
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: it is not clear how the id of the user is read from `crate::accounts::Scope` in src/accounts.rs: it has
      team: Team
    looked for a field or method `user_id`, and for a field or method `user` whose type has a visible `id`
    help: give it with `--scope-owner`, or add `pub fn user_id(&self)` to `Scope` in that file
    exit 5
    ");
}

#[test]
fn a_scope_whose_source_is_hidden_needs_a_flag() {
    // The file of a module inside an inline one isn't looked for.
    let host = Host::with_accounts("mod inline {\n    pub mod file;\n}\n\npub use inline::file::Scope;\n");
    assert_snapshot!(refusal(&host, PLAIN), @"
    $ gen persistence conversations -s accounts::Scope
    error: the source of `crate::accounts::Scope` cannot be read, so it is not known how it names its user
    help: give it with --scope-owner, for example `--scope-owner user.id` or `--scope-owner user_id()`
    exit 5
    ");
}

#[test]
fn a_scope_of_a_registry_crate_is_refused() {
    let reexported = Host::with_accounts("pub use auth::Scope;\n");
    let with_all = Host::with_accounts("pub use auth::*;\n");
    let external = depending("auth = \"1\"");
    assert_eq!(refusal(&with_all, PLAIN), refusal(&reexported, PLAIN));
    let all = [refusal(&reexported, PLAIN), refusal(&external, "gen persistence conversations -s auth::Scope")];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: --scope: `crate::accounts::Scope` is a type of another crate, and Rust allows no `impl OwnerScope` for it here
    help: wrap it in a type of this crate:

        /// The caller.
        pub struct Caller(pub crate::accounts::Scope);

    then name that one, for example `--scope crate::accounts::Caller --scope-owner 0.user_id`
    exit 2

    $ gen persistence conversations -s auth::Scope
    error: --scope: `auth::Scope` is a type of another crate, and Rust allows no `impl OwnerScope` for it here
    help: wrap it in a type of this crate:

        /// The caller.
        pub struct Caller(pub auth::Scope);

    then name that one, for example `--scope crate::accounts::Caller --scope-owner 0.user_id`
    exit 2
    ");
}

#[test]
fn a_scope_with_parameters_is_refused() {
    let hosts =
        ["pub struct Scope<'a> { pub user_id: &'a str }\n", "pub struct Scope<T> { pub user_id: i64, pub more: T }\n"]
            .map(Host::with_accounts);
    assert_snapshot!(hosts.each_ref().map(|host| refusal(host, PLAIN)).join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: --scope: `Scope` in src/accounts.rs has parameters
    help: name a type without generic parameters or lifetimes
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: --scope: `Scope` in src/accounts.rs has parameters
    help: name a type without generic parameters or lifetimes
    exit 2
    ");
}

#[test]
fn a_way_to_the_owner_has_to_exist() {
    let host =
        Host::with_accounts("pub struct User { pub id: i64, secret: i64 }\npub struct Scope { pub user: User }\n");
    let lines = [
        "gen persistence conversations -s accounts::Scope --scope-owner usr.id",
        "gen persistence conversations -s accounts::Scope --scope-owner user.secret",
        "gen persistence conversations -s accounts::Scope --scope-owner user.",
        "gen persistence conversations -s accounts::Scope --scope-owner 'user.id; drop()'",
        "gen persistence conversations -s accounts::Scope --scope-owner user",
        "gen persistence conversations -s accounts::Session --scope-owner user.id",
    ];
    assert_snapshot!(refusals(&host, &lines), @"
    $ gen persistence conversations -s accounts::Scope --scope-owner usr.id
    error: --scope-owner: `crate::accounts::Scope` in src/accounts.rs has no field `usr`; it has
      user: User
    help: name one of these, or add `pub fn owner_id(&self)` to `Scope` in that file
    exit 2

    $ gen persistence conversations -s accounts::Scope --scope-owner user.secret
    error: --scope-owner: `secret` of `User` in src/accounts.rs cannot be seen from `crate::conversations`; it has
      id: i64
      secret: i64 (private)
    help: make `secret` visible with `pub(crate)`, or name another
    exit 2

    $ gen persistence conversations -s accounts::Scope --scope-owner user.
    error: --scope-owner: `user.` has an empty part
    help: write the accesses from the scope to the id, for example `user.id` or `user_id()`; an `Option` on the way needs no `?`
    exit 2

    $ gen persistence conversations -s accounts::Scope --scope-owner 'user.id; drop()'
    error: --scope-owner: `id; drop()` in `user.id; drop()` is neither a field nor a method without arguments
    help: write the accesses from the scope to the id, for example `user.id` or `user_id()`; an `Option` on the way needs no `?`
    exit 2

    $ gen persistence conversations -s accounts::Scope --scope-owner user
    error: `user` in crate::accounts::Scope is `User`, but the owner's key is taken to be `i64`
    `User` in src/accounts.rs: it has
      id: i64
      secret: i64 (private)
    help: name a way to the `i64` with --scope-owner, for example `user.id`
    exit 5

    $ gen persistence conversations -s accounts::Session --scope-owner user.id
    error: --scope-owner: there is no `crate::accounts::Session` yet to read the user from
    help: write that type first, or name one that is there with --scope
    exit 2
    ");
}

#[test]
fn a_scope_is_not_written_where_cargo_looks_for_something_else() {
    let line = "gen persistence conversations --create-scope --scope";
    let lines = [format!("{line} MyApp.Main.Scope"), format!("{line} crate::bin::callers::Scope")];
    let lines = lines.each_ref().map(String::as_str);
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence conversations --create-scope --scope MyApp.Main.Scope
    error: --scope: src/main has a meaning for cargo
    help: keep the scope in another module, for example `crate::accounts::Scope`
    exit 2

    $ gen persistence conversations --create-scope --scope crate::bin::callers::Scope
    error: --scope: src/bin has a meaning for cargo
    help: keep the scope in another module, for example `crate::accounts::Scope`
    exit 2
    ");
    let run = Host::empty().sagents("gen persistence MyApp.Conversations --scope MyApp.Main.Scope --init");
    assert_eq!(run.code, 2, "{}", run.stderr);
}
