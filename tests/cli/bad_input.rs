//! Bad input: one clear error, the exit code that the help promises, and nothing written.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::{Command, Stdio};

use insta::assert_snapshot;

use crate::support::{FULL, Host, Run, manifest, sagents};
use crate::transcript::{anonymous, outside, refusal, refusal_by, refusals};

const PLAIN: &str = "gen persistence conversations -s accounts::Scope";

/// A library with these dependencies.
fn depending(dependencies: &str) -> Host {
    Host::library().file("Cargo.toml", &manifest("my_app", "2024", &format!("\n[dependencies]\n{dependencies}\n")))
}

/// A library whose `src/accounts.rs` is this.
fn with_accounts(source: &str) -> Host {
    Host::library().file("src/lib.rs", "pub mod accounts;\n").file("src/accounts.rs", source)
}

/// A library with one migration.
fn with_migration(sql: &str) -> Host {
    Host::library().file("migrations/0001_first.sql", sql)
}

#[test]
fn the_directory_has_to_be_a_package() {
    let host = Host::empty().file("file.txt", "");
    let missing = ["--path missing", "--path file.txt", ""].map(|path| format!("{PLAIN} {path}").trim().to_owned());
    assert_snapshot!(refusals(&host, &missing.each_ref().map(String::as_str)), @"
    $ gen persistence conversations -s accounts::Scope --path missing
    error: --path: missing is not a directory
    help: name the directory of your package, or make a new one there with --init
    exit 2

    $ gen persistence conversations -s accounts::Scope --path file.txt
    error: --path: file.txt is not a directory
    help: name the directory of your package, or make a new one there with --init
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: --path: . is not a package: it has no Cargo.toml
    help: go to your package, name it with --path, or make a new one with --init
    exit 2
    ");
}

#[test]
fn a_workspace_is_not_a_package() {
    let host = Host::empty()
        .file("Cargo.toml", "[workspace]\nmembers = [\"web\", \"core\"]\n")
        .file("web/Cargo.toml", &manifest("web", "2024", ""))
        .file("web/src/lib.rs", "")
        .file("core/Cargo.toml", &manifest("core_types", "2024", ""))
        .file("core/src/lib.rs", "");
    assert_snapshot!(refusal(&host, PLAIN), @"
    $ gen persistence conversations -s accounts::Scope
    error: --path: . is a workspace, not a package
    help: name one of its members, for example `--package core_types` (there are: core_types, web)
    exit 2
    ");
}

#[test]
fn a_package_has_to_have_a_crate_for_the_code() {
    let several = Host::empty()
        .file("Cargo.toml", &manifest("my_app", "2024", ""))
        .file("src/bin/one.rs", "fn main() {}\n")
        .file("src/bin/two.rs", "fn main() {}\n");
    let none = Host::empty().file("Cargo.toml", &manifest("my_app", "2024", ""));
    assert_snapshot!([refusal(&several, PLAIN), refusal(&none, PLAIN)].join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: package `my_app` has several binaries and no library: one, two
    help: add src/lib.rs, so that all of them can use the generated code
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: cargo cannot read Cargo.toml: failed to parse manifest at `[host]/Cargo.toml`

    Caused by:
      no targets specified in the manifest
      either src/lib.rs, src/main.rs, a [lib] section, or [[bin]] section must be present
    help: fix it until `cargo metadata` succeeds, then run this again
    exit 2
    ");
}

#[test]
fn init_needs_a_directory_without_a_package() {
    let sources = Host::empty().file("src/main.rs", "fn main() {}\n");
    let odd = Host::empty();
    fs::create_dir(odd.root().join("2024")).unwrap();
    let all = [
        refusal(&Host::library(), "gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init"),
        refusal(&sources, "gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init"),
        refusal(&odd, "gen persistence conversations -s accounts::Scope --init --path 2024"),
        refusal(&odd, "gen persistence Async.Conversations -s Async.Accounts.Scope --init"),
        refusal(&odd, "gen persistence Sqlx.Conversations -s Sqlx.Accounts.Scope --init"),
        refusal(&odd, "gen persistence Test.Conversations -s Test.Accounts.Scope --init"),
    ];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init
    error: --init: . is a package already
    help: leave --init out to generate into it
    exit 2

    $ gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init
    error: --init: src/main.rs is there already
    help: make the new package in an empty directory, or move that file away
    exit 5

    $ gen persistence conversations -s accounts::Scope --init --path 2024
    error: --init: `2024` does not start with a letter
    help: name the package in CONTEXT, for example `MyApp.Conversations`
    exit 2

    $ gen persistence Async.Conversations -s Async.Accounts.Scope --init
    error: --init: `async` is a Rust keyword
    help: name the package in CONTEXT, for example `MyApp.Conversations`
    exit 2

    $ gen persistence Sqlx.Conversations -s Sqlx.Accounts.Scope --init
    error: --init: a package called `sqlx` would be mistaken for another crate
    help: name the package in CONTEXT, for example `MyApp.Conversations`
    exit 2

    $ gen persistence Test.Conversations -s Test.Accounts.Scope --init
    error: --init: a package called `test` would be mistaken for another crate
    help: name the package in CONTEXT, for example `MyApp.Conversations`
    exit 2
    ");
}

#[test]
fn a_context_has_no_empty_segment() {
    let lines = [
        "gen persistence '' -s accounts::Scope",
        "gen persistence ' ' -s accounts::Scope",
        "gen persistence . -s accounts::Scope",
        "gen persistence MyApp..Conversations -s accounts::Scope",
        "gen persistence chat:::conversations -s accounts::Scope",
        "gen persistence conversations:: -s accounts::Scope",
        "gen persistence ::conversations -s accounts::Scope",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence '' -s accounts::Scope
    error: CONTEXT: it is empty
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2

    $ gen persistence ' ' -s accounts::Scope
    error: CONTEXT: it is empty
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2

    $ gen persistence . -s accounts::Scope
    error: CONTEXT: `.` has an empty segment
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2

    $ gen persistence MyApp..Conversations -s accounts::Scope
    error: CONTEXT: `MyApp..Conversations` has an empty segment
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2

    $ gen persistence chat:::conversations -s accounts::Scope
    error: CONTEXT: `:conversations` contains `:`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations:: -s accounts::Scope
    error: CONTEXT: `conversations::` has an empty segment
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2

    $ gen persistence ::conversations -s accounts::Scope
    error: CONTEXT: `::conversations` has an empty segment
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2
    ");
}

#[test]
fn a_context_is_made_of_identifiers() {
    let lines = [
        "gen persistence 9lives -s accounts::Scope",
        "gen persistence MyApp.9Lives -s accounts::Scope",
        "gen persistence _chat -s accounts::Scope",
        "gen persistence 'my chats' -s accounts::Scope",
        "gen persistence chat-log -s accounts::Scope",
        "gen persistence conversаtions -s accounts::Scope",
        "gen persistence chat/conversations -s accounts::Scope",
        "gen persistence crate::Chat::conversations -s accounts::Scope",
        "gen persistence MyApp.chat::conversations -s accounts::Scope",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence 9lives -s accounts::Scope
    error: CONTEXT: `9lives` does not start with a letter
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence MyApp.9Lives -s accounts::Scope
    error: CONTEXT: `9Lives` does not start with a letter
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence _chat -s accounts::Scope
    error: CONTEXT: `_chat` does not start with a letter
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence 'my chats' -s accounts::Scope
    error: CONTEXT: `my chats` contains a space
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence chat-log -s accounts::Scope
    error: CONTEXT: `chat-log` contains `-`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversаtions -s accounts::Scope
    error: CONTEXT: `conversаtions` contains U+0430
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence chat/conversations -s accounts::Scope
    error: CONTEXT: `chat/conversations` contains `/`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence crate::Chat::conversations -s accounts::Scope
    error: CONTEXT: `Chat` is not in snake case
    help: use `chat`
    exit 2

    $ gen persistence MyApp.chat::conversations -s accounts::Scope
    error: CONTEXT: `MyApp.chat::conversations` mixes two notations
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2
    ");
}

#[test]
fn a_context_is_no_keyword_and_contains_none() {
    let lines = [
        "gen persistence self -s accounts::Scope",
        "gen persistence crate -s accounts::Scope",
        "gen persistence async -s accounts::Scope",
        "gen persistence MyApp.Async -s accounts::Scope",
        "gen persistence MyApp.Type.Conversations -s accounts::Scope",
        "gen persistence chat::crate::conversations -s accounts::Scope",
        "gen persistence r#async -s accounts::Scope",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence self -s accounts::Scope
    error: CONTEXT: what `self` means depends on where it is read
    help: start at the crate's root: `crate::…` or `MyApp.…`
    exit 2

    $ gen persistence crate -s accounts::Scope
    error: CONTEXT: `crate` names the package itself, not a module in it
    help: add the module's name, for example `MyApp.Conversations`
    exit 2

    $ gen persistence async -s accounts::Scope
    error: CONTEXT: `async` is a Rust keyword
    help: use another name, for example `asyncs` or `async_item`
    exit 2

    $ gen persistence MyApp.Async -s accounts::Scope
    error: CONTEXT: `async` is a Rust keyword
    help: use another name, for example `asyncs` or `async_item`
    exit 2

    $ gen persistence MyApp.Type.Conversations -s accounts::Scope
    error: CONTEXT: `type` is a Rust keyword
    help: use another name, for example `types` or `type_item`
    exit 2

    $ gen persistence chat::crate::conversations -s accounts::Scope
    error: CONTEXT: `crate` is a place, not a name
    help: give a name of your own
    exit 2

    $ gen persistence r#async -s accounts::Scope
    error: CONTEXT: `async` is a Rust keyword
    help: use another name, for example `asyncs` or `async_item`
    exit 2
    ");
}

#[test]
fn a_context_stays_inside_the_crate() {
    let lines = [
        "gen persistence super::conversations -s accounts::Scope",
        "gen persistence self::conversations -s accounts::Scope",
        "gen persistence Other.Conversations -s accounts::Scope",
        "gen persistence ../conversations -s accounts::Scope",
        "gen persistence MyApp -s accounts::Scope",
        "gen persistence my_app -s accounts::Scope",
        "gen persistence auth::conversations -s accounts::Scope",
    ];
    assert_snapshot!(refusals(&depending("auth = \"1\""), &lines), @"
    $ gen persistence super::conversations -s accounts::Scope
    error: CONTEXT: what `super` means depends on where it is read
    help: start at the crate's root: `crate::…` or `MyApp.…`
    exit 2

    $ gen persistence self::conversations -s accounts::Scope
    error: CONTEXT: what `self` means depends on where it is read
    help: start at the crate's root: `crate::…` or `MyApp.…`
    exit 2

    $ gen persistence Other.Conversations -s accounts::Scope
    error: CONTEXT: `Other` in `Other.Conversations` is not this package, which is called `my_app`
    help: write `MyApp.Conversations`
    exit 2

    $ gen persistence ../conversations -s accounts::Scope
    error: CONTEXT: `../conversations` has an empty segment
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2

    $ gen persistence MyApp -s accounts::Scope
    error: CONTEXT: `MyApp` names the package itself, not a module in it
    help: add the module's name, for example `MyApp.Conversations`
    exit 2

    $ gen persistence my_app -s accounts::Scope
    error: CONTEXT: `my_app` names the package itself, not a module in it
    help: add the module's name, for example `MyApp.Conversations`
    exit 2

    $ gen persistence auth::conversations -s accounts::Scope
    error: `crate::auth::conversations` is outside of this crate: `auth` is a dependency, and a module of that name would hide it
    help: choose another path, for example `crate::conversations`
    exit 2
    ");
}

#[test]
fn a_context_takes_no_name_that_means_something_else() {
    let lines = [
        "gen persistence main -s accounts::Scope",
        "gen persistence lib -s accounts::Scope",
        "gen persistence bin -s accounts::Scope",
        "gen persistence bin::conversations -s accounts::Scope",
        "gen persistence sagents -s accounts::Scope",
        "gen persistence chat::sqlx -s accounts::Scope",
        "gen persistence MyApp.Conversation -s accounts::Scope",
        "gen persistence chat::r#mod -s accounts::Scope",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence main -s accounts::Scope
    error: CONTEXT: src/main has a meaning for cargo
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence lib -s accounts::Scope
    error: CONTEXT: src/lib has a meaning for cargo
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence bin -s accounts::Scope
    error: CONTEXT: src/bin has a meaning for cargo
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence bin::conversations -s accounts::Scope
    error: CONTEXT: src/bin has a meaning for cargo
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence sagents -s accounts::Scope
    error: CONTEXT: `sagents` is kept for the agent runtime
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence chat::sqlx -s accounts::Scope
    error: CONTEXT: a module called `sqlx` would hide the crate of that name
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence MyApp.Conversation -s accounts::Scope
    error: CONTEXT: the context's type would be called `Conversation`, which the generated code uses already
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence chat::r#mod -s accounts::Scope
    error: CONTEXT: `mod` is a Rust keyword
    help: use another name, for example `mods` or `mod_item`
    exit 2
    ");
}

#[test]
fn the_context_and_the_scope_are_different_modules() {
    let lines = [
        "gen persistence MyApp.Accounts -s MyApp.Accounts.Scope",
        "gen persistence accounts -s crate::accounts::session::Scope",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence MyApp.Accounts -s MyApp.Accounts.Scope
    error: --scope: `crate::accounts::Scope` would be in the module that is generated
    help: generate another module, for example `conversations`, or keep the scope in another one
    exit 2

    $ gen persistence accounts -s crate::accounts::session::Scope
    error: --scope: `crate::accounts::session::Scope` would be below the module that is generated
    help: generate another module, for example `conversations`, or keep the scope in another one
    exit 2
    ");
}

#[test]
fn a_context_is_not_inside_another() {
    let host = Host::library();
    host.generate("gen persistence chat::conversations -s accounts::Scope");
    let lines = [
        "gen persistence chat::conversations::archive -s accounts::Scope --table-prefix archive_",
        "gen persistence chat -s accounts::Scope --table-prefix chat_",
    ];
    assert_snapshot!(refusals(&host, &lines), @"
    $ gen persistence chat::conversations::archive -s accounts::Scope --table-prefix archive_
    error: CONTEXT: `chat::conversations::archive` and `chat::conversations` would be inside each other
    help: put the contexts beside each other
    exit 2

    $ gen persistence chat -s accounts::Scope --table-prefix chat_
    error: CONTEXT: `chat` and `chat::conversations` would be inside each other
    help: put the contexts beside each other
    exit 2
    ");
}

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
fn an_owner_type_is_an_identifier() {
    let lines = [
        "gen persistence conversations -s accounts::Scope -t ''",
        "gen persistence conversations -s accounts::Scope -t 9th",
        "gen persistence conversations -s accounts::Scope -t 'team member'",
        "gen persistence conversations -s accounts::Scope -t user;",
        "gen persistence conversations -s accounts::Scope -t us\"er",
        "gen persistence conversations -s accounts::Scope -t usеr",
        "gen persistence conversations -s accounts::Scope -t TeamMember",
        "gen persistence conversations -s accounts::Scope -t type",
        "gen persistence conversations -s accounts::Scope -t crate",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @r#"
    $ gen persistence conversations -s accounts::Scope -t ''
    error: --owner-type: it is empty
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -t 9th
    error: --owner-type: `9th` does not start with a letter
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -t 'team member'
    error: --owner-type: `team member` contains a space
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -t user;
    error: --owner-type: `user;` contains `;`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -t us"er
    error: --owner-type: `us"er` contains `"`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -t usеr
    error: --owner-type: `usеr` contains U+0435
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -t TeamMember
    error: --owner-type: `TeamMember` is not in snake case
    help: use `team_member`
    exit 2

    $ gen persistence conversations -s accounts::Scope -t type
    error: --owner-type: `type` is a Rust keyword
    help: use another name, for example `types` or `type_item`
    exit 2

    $ gen persistence conversations -s accounts::Scope -t crate
    error: --owner-type: `crate` is a place, not a name
    help: give a name of your own
    exit 2
    "#);
}

#[test]
fn an_owner_field_is_an_identifier() {
    let lines = [
        "gen persistence conversations -s accounts::Scope -f ''",
        "gen persistence conversations -s accounts::Scope -f 1st",
        "gen persistence conversations -s accounts::Scope -f 'user id'",
        "gen persistence conversations -s accounts::Scope -f user_id;",
        "gen persistence conversations -s accounts::Scope -f user\"id",
        "gen persistence conversations -s accounts::Scope -f uѕer_id",
        "gen persistence conversations -s accounts::Scope -f userId",
        "gen persistence conversations -s accounts::Scope -f user__id",
        "gen persistence conversations -s accounts::Scope -f type",
        "gen persistence conversations -s accounts::Scope -f self",
        "gen persistence conversations -s accounts::Scope -f a_name_that_is_much_too_long_for_a_column_of_any_table_in_postgresql",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @r#"
    $ gen persistence conversations -s accounts::Scope -f ''
    error: --owner-field: it is empty
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -f 1st
    error: --owner-field: `1st` does not start with a letter
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -f 'user id'
    error: --owner-field: `user id` contains a space
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -f user_id;
    error: --owner-field: `user_id;` contains `;`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -f user"id
    error: --owner-field: `user"id` contains `"`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -f uѕer_id
    error: --owner-field: `uѕer_id` contains U+0455
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -f userId
    error: --owner-field: `userId` is not in snake case
    help: use `user_id`
    exit 2

    $ gen persistence conversations -s accounts::Scope -f user__id
    error: --owner-field: `user__id` is not in snake case
    help: use `user_id`
    exit 2

    $ gen persistence conversations -s accounts::Scope -f type
    error: --owner-field: `type` is a Rust keyword
    help: use another name, for example `types` or `type_item`
    exit 2

    $ gen persistence conversations -s accounts::Scope -f self
    error: --owner-field: `self` is a place, not a name
    help: give a name of your own
    exit 2

    $ gen persistence conversations -s accounts::Scope -f a_name_that_is_much_too_long_for_a_column_of_any_table_in_postgresql
    error: --owner-field: `a_name_that_is_much_too_long_for_a_column_of_any_table_in_postgresql` has 68 bytes, the limit is 63
    help: use a shorter name
    exit 2
    "#);
}

#[test]
fn an_owner_field_is_no_column_of_ours() {
    let lines = [
        "gen persistence conversations -s accounts::Scope -f id",
        "gen persistence conversations -s accounts::Scope -f title",
        "gen persistence conversations -s accounts::Scope -t conversation",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence conversations -s accounts::Scope -f id
    error: --owner-field: `id` is a column that the tables have already
    help: use another name, for example `user_id`
    exit 2

    $ gen persistence conversations -s accounts::Scope -f title
    error: --owner-field: `title` is a column that the tables have already
    help: use another name, for example `user_id`
    exit 2

    $ gen persistence conversations -s accounts::Scope -t conversation
    error: --owner-field: `conversation_id` is a column that the tables have already
    help: use another name, for example `user_id`
    exit 2
    ");
}

#[test]
fn an_owner_id_is_one_of_three_types() {
    let line = "gen persistence conversations -s accounts::Scope --owner-id i32";
    assert_snapshot!(refusal(&Host::library(), line), @"
    $ gen persistence conversations -s accounts::Scope --owner-id i32
    error: --owner-id: `i32` is not a type of key
    help: use `i64`, `uuid` or `text`
    exit 2
    ");
}

#[test]
fn an_owner_table_is_a_plain_name() {
    let lines = [
        "gen persistence conversations -s accounts::Scope --owner-table ''",
        "gen persistence conversations -s accounts::Scope --owner-table users;",
        "gen persistence conversations -s accounts::Scope --owner-table us\"ers",
        "gen persistence conversations -s accounts::Scope --owner-table sagents_conversations",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @r#"
    $ gen persistence conversations -s accounts::Scope --owner-table ''
    error: --owner-table: it is empty
    help: name a table, or `none` for no foreign key
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-table users;
    error: --owner-table: `users;` contains `;`
    help: give the table's plain name, without quotes
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-table us"ers
    error: --owner-table: `us"ers` contains `"`
    help: give the table's plain name, without quotes
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-table sagents_conversations
    error: --owner-table: `sagents_conversations` is a table of the context itself
    help: name the table of the owner, or `none` for no foreign key
    exit 2
    "#);
}

#[test]
fn without_an_owner_no_option_is_about_one() {
    let lines = [
        "gen persistence conversations -s accounts::Scope -t none -f user_id",
        "gen persistence conversations -s accounts::Scope -t none --owner-module accounts::User",
        "gen persistence conversations -s accounts::Scope -t none --owner-table users",
        "gen persistence conversations -s accounts::Scope -t none --owner-id i64",
        "gen persistence conversations -s accounts::Scope -t none --scope-owner user.id",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence conversations -s accounts::Scope -t none -f user_id
    error: --owner-field contradicts --owner-type none
    help: leave --owner-field out, or name an owner type
    exit 2

    $ gen persistence conversations -s accounts::Scope -t none --owner-module accounts::User
    error: --owner-module contradicts --owner-type none
    help: leave --owner-module out, or name an owner type
    exit 2

    $ gen persistence conversations -s accounts::Scope -t none --owner-table users
    error: --owner-table contradicts --owner-type none
    help: leave --owner-table out, or name an owner type
    exit 2

    $ gen persistence conversations -s accounts::Scope -t none --owner-id i64
    error: --owner-id contradicts --owner-type none
    help: leave --owner-id out, or name an owner type
    exit 2

    $ gen persistence conversations -s accounts::Scope -t none --scope-owner user.id
    error: --scope-owner contradicts --owner-type none
    help: leave --scope-owner out, or name an owner type
    exit 2
    ");
}

#[test]
fn a_table_prefix_is_lower_case_and_short() {
    let lines = [
        "gen persistence conversations -s accounts::Scope --table-prefix Sagents_",
        "gen persistence conversations -s accounts::Scope --table-prefix my-app_",
        "gen persistence conversations -s accounts::Scope --table-prefix 'my app_'",
        "gen persistence conversations -s accounts::Scope --table-prefix my.app_",
        "gen persistence conversations -s accounts::Scope --table-prefix a\"b_",
        "gen persistence conversations -s accounts::Scope --table-prefix ѕagents_",
        "gen persistence conversations -s accounts::Scope --table-prefix 2024_",
        "gen persistence conversations -s accounts::Scope --table-prefix sqlite_",
        "gen persistence conversations -s accounts::Scope --table-prefix a_prefix_of_thirty_seven_characters__",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @r#"
    $ gen persistence conversations -s accounts::Scope --table-prefix Sagents_
    error: --table-prefix: `Sagents_` contains `S`
    help: use lower-case letters, digits and `_` only, for example `sagents_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix my-app_
    error: --table-prefix: `my-app_` contains `-`
    help: use lower-case letters, digits and `_` only, for example `sagents_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix 'my app_'
    error: --table-prefix: `my app_` contains a space
    help: use lower-case letters, digits and `_` only, for example `sagents_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix my.app_
    error: --table-prefix: `my.app_` contains `.`
    help: use lower-case letters, digits and `_` only, for example `sagents_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix a"b_
    error: --table-prefix: `a"b_` contains `"`
    help: use lower-case letters, digits and `_` only, for example `sagents_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix ѕagents_
    error: --table-prefix: `ѕagents_` contains U+0455
    help: use lower-case letters, digits and `_` only, for example `sagents_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix 2024_
    error: --table-prefix: `2024_` starts with a digit
    help: start with a letter, for example `t2024_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix sqlite_
    error: --table-prefix: names that start like `sqlite_` belong to the database
    help: use another prefix, for example `app_sqlite_`
    exit 2

    $ gen persistence conversations -s accounts::Scope --table-prefix a_prefix_of_thirty_seven_characters__
    error: --table-prefix: `a_prefix_of_thirty_seven_characters__` is too long: `a_prefix_of_thirty_seven_characters__display_messages_tool_calls` has 64 bytes, the limit is 63
    help: use at most 36 characters
    exit 2
    "#);
}

#[test]
fn a_table_prefix_belongs_to_one_context() {
    let host = Host::library();
    host.generate(PLAIN);
    let lines = [
        "gen persistence support_chats -s accounts::Scope",
        "gen persistence support_chats -s accounts::Scope --table-prefix sagents_",
    ];
    assert_snapshot!(refusals(&host, &lines), @"
    $ gen persistence support_chats -s accounts::Scope
    error: --table-prefix: `sagents_` is used by the context `conversations`; the tables would be the same
    help: give this one another, for example `--table-prefix support_chats_`
    exit 2

    $ gen persistence support_chats -s accounts::Scope --table-prefix sagents_
    error: --table-prefix: `sagents_` is used by the context `conversations`; the tables would be the same
    help: give this one another, for example `--table-prefix support_chats_`
    exit 2
    ");
}

#[test]
fn a_table_of_the_host_is_not_made_again() {
    let host = with_migration("CREATE TABLE Conversations (id INTEGER PRIMARY KEY);");
    let line = "gen persistence chats -s accounts::Scope --table-prefix ''";
    assert_snapshot!(refusal(&host, line), @"
    $ gen persistence chats -s accounts::Scope --table-prefix ''
    error: the migrations in migrations make a table `conversations` already
    help: choose other names with --table-prefix
    exit 5
    ");
}

#[test]
fn a_database_is_one_that_is_supported() {
    let lines = [
        "gen persistence conversations -s accounts::Scope --database oracle",
        "gen persistence conversations -s accounts::Scope --database mysql",
        "gen persistence conversations -s accounts::Scope --database postgresql",
        "gen persistence conversations -s accounts::Scope --database SQLite",
        "gen persistence conversations -s accounts::Scope --database ''",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence conversations -s accounts::Scope --database oracle
    error: --database: `oracle` is not a database that is known
    help: use `sqlite` or `postgres`
    exit 2

    $ gen persistence conversations -s accounts::Scope --database mysql
    error: --database: `mysql` is not supported by this version
    help: use `sqlite` or `postgres`
    exit 2

    $ gen persistence conversations -s accounts::Scope --database postgresql
    error: --database: `postgresql` is called `postgres` here, as in sqlx
    help: use `postgres`
    exit 2

    $ gen persistence conversations -s accounts::Scope --database SQLite
    error: --database: `SQLite` is not a database that is known
    help: use `sqlite` or `postgres`
    exit 2

    $ gen persistence conversations -s accounts::Scope --database ''
    error: --database: `` is not a database that is known
    help: use `sqlite` or `postgres`
    exit 2
    ");
}

#[test]
fn of_two_database_drivers_none_is_chosen() {
    let both = depending("sqlx = { version = \"0.9\", features = [\"runtime-tokio\", \"postgres\", \"sqlite\"] }");
    let other = depending("sqlx = { version = \"0.9\", features = [\"runtime-tokio\", \"mysql\"] }");
    assert_snapshot!([refusal(&both, PLAIN), refusal(&other, PLAIN)].join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: sqlx is used with several databases here
    help: choose one with `--database sqlite` or `--database postgres`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: sqlx is used with MySQL here, and this version generates for SQLite and PostgreSQL
    help: `--database sqlite` or `--database postgres` adds one beside it
    exit 5
    ");
}

#[test]
fn an_sqlx_that_the_code_does_not_compile_with_is_refused() {
    let locked = |host: Host, packages: &[(&str, &str)]| {
        let packages = packages
            .iter()
            .map(|(name, version)| format!("\n[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n"));
        host.file("Cargo.lock", &format!("version = 4\n{}", packages.collect::<String>()))
    };
    let on_postgres = "sqlx = { version = \"0.7\", features = [\"postgres\", \"time\"] }";
    let hosts = [
        depending("sqlx = \"0.7\""),
        depending("sqlx = \"1.0\""),
        locked(depending(on_postgres), &[("sqlx", "0.7.3")]),
        locked(
            depending(&format!("{on_postgres}\ntime = \"=0.3.20\"\ntokio = \"1\"")),
            &[("sqlx", "0.7.3"), ("tokio", "1.38.2")],
        ),
        // What has no answer is said before the version.
        depending("sqlx = { version = \"0.6\", features = [\"mysql\"] }"),
        depending("sqlx = { version = \"0.9\", optional = true }"),
        depending("sqlx = { version = \"0.9\", features = [\"runtime-async-std\"] }"),
        depending("sqlx = { package = \"sqlx-oldapi\", version = \"0.6\" }"),
    ];
    assert_snapshot!(hosts.each_ref().map(|host| refusal(host, PLAIN)).join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: sqlx 0.7 is too old: the generated code needs sqlx 0.8.0 or newer
    help: raise the version of sqlx in Cargo.toml to 0.8 or 0.9
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sqlx 1.0 is not known: the generated code compiles with 0.8 or 0.9
    help: set the version of sqlx in Cargo.toml to one of these
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sqlx 0.7.3 is too old: the generated code needs sqlx 0.7.4 or newer
    help: run `cargo update -p sqlx --precise 0.7.4`
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: these crates are too old:
      time =0.3.20: the generated code needs 0.3.36 or newer
      sqlx 0.7.3: the generated code needs 0.7.4 or newer
      tokio 1.38.2: the generated code needs 1.40.0 or newer
    help: raise the version of time in Cargo.toml to `0.3.36`
          run `cargo update -p sqlx --precise 0.7.4`
          run `cargo update -p tokio --precise 1.40.0`
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sqlx is used with MySQL here, and this version generates for SQLite and PostgreSQL
    help: `--database sqlite` or `--database postgres` adds one beside it
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `sqlx` is optional, but the generated code cannot be behind a feature
    help: remove `optional = true` from `sqlx`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: sqlx runs on `runtime-async-std`, but the generated code runs on tokio
    help: replace that feature of sqlx by `runtime-tokio`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `sqlx` is another name of the package `sqlx-oldapi`, and the generated code needs `sqlx` itself
    help: give `sqlx-oldapi` another name under [dependencies]
    exit 5
    ");
}

#[test]
fn a_crate_that_is_too_old_or_renamed_is_refused() {
    let hosts = [
        depending("uuid = \"=1.2.0\""),
        depending("json = { package = \"serde_json\", version = \"1\" }"),
        depending("chrono = \"not a version\""),
    ];
    assert_snapshot!(hosts.each_ref().map(|host| refusal(host, PLAIN)).join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: uuid =1.2.0 is too old: the generated code needs uuid 1.10.0 or newer
    help: raise the version of uuid in Cargo.toml to `1.10`
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: `serde_json` is renamed to `json`, but the generated code calls it `serde_json`
    help: name the dependency `serde_json`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: cargo cannot read Cargo.toml: failed to parse manifest at `[host]/Cargo.toml`

    Caused by:
      failed to parse the version requirement `not a version` for dependency `chrono`

    Caused by:
      unexpected character 'n' while parsing major version number
    help: fix it until `cargo metadata` succeeds, then run this again
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
    .map(with_accounts);
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
fn a_scope_whose_source_is_elsewhere_needs_a_flag() {
    let reexported = with_accounts("pub use auth::Scope;\n");
    let external = depending("auth = \"1\"");
    let all = [refusal(&reexported, PLAIN), refusal(&external, "gen persistence conversations -s auth::Scope")];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: the source of `crate::accounts::Scope` cannot be read, so it is not known how it names its user
    help: give it with --scope-owner, for example `--scope-owner user.id` or `--scope-owner user_id()`
    exit 5

    $ gen persistence conversations -s auth::Scope
    error: the source of `auth::Scope` cannot be read, so it is not known how it names its user
    help: give it with --scope-owner, for example `--scope-owner user.id` or `--scope-owner user_id()`
    exit 5
    ");
}

#[test]
fn a_scope_with_parameters_is_refused() {
    let hosts =
        ["pub struct Scope<'a> { pub user_id: &'a str }\n", "pub struct Scope<T> { pub user_id: i64, pub more: T }\n"]
            .map(with_accounts);
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
    let host = with_accounts("pub struct User { pub id: i64, secret: i64 }\npub struct Scope { pub user: User }\n");
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
fn a_key_has_to_be_of_the_type_that_the_scope_holds() {
    let sql = "CREATE TABLE users (id BLOB PRIMARY KEY);";
    let other = with_accounts("pub struct Scope { pub user_id: i64 }\n").file("migrations/0001_first.sql", sql);
    let wrapped = with_accounts("pub struct UserId(pub i64);\npub struct Scope { pub user_id: UserId }\n");
    let hidden = with_accounts("pub struct UserId(u128);\npub struct Scope { pub user_id: UserId }\n");
    let foreign = with_accounts("pub struct Scope { pub user_id: ulid::Ulid }\n");
    let text = "gen persistence conversations -s accounts::Scope --owner-id text";
    let all = [
        refusal(&other, PLAIN),
        refusal(&wrapped, "gen persistence conversations -s accounts::Scope --scope-owner user_id"),
        refusal(&hidden, PLAIN),
        refusal(&foreign, text),
        refusal(&wrapped, "gen persistence conversations -s accounts::Scope --owner-id uuid --scope-owner user_id.0"),
    ];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: `user_id` in crate::accounts::Scope is `i64`, but the key `id` of table `users` is `Uuid`
    help: name a way to the `Uuid` with --scope-owner, another table with --owner-table, or `--owner-table none`
    exit 5

    $ gen persistence conversations -s accounts::Scope --scope-owner user_id
    error: `user_id` in crate::accounts::Scope is `UserId`, but the owner's key is taken to be `i64`
    `UserId` in src/accounts.rs: it has
      0: i64
    help: name a way to the `i64` with --scope-owner, for example `user_id.0`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: `user_id` in crate::accounts::Scope is `UserId`, but the owner's key is taken to be `i64`
    `UserId` in src/accounts.rs: it has
      0: u128 (private)
    help: name a way to the `i64` with --scope-owner, or let `UserId` have one: a method `pub fn get(&self) -> i64`, or `impl From<UserId> for i64`
    exit 5

    $ gen persistence conversations -s accounts::Scope --owner-id text
    error: `user_id` in crate::accounts::Scope is `ulid::Ulid`, but `--owner-id text` needs `String`
    help: name a way to the `String` with --scope-owner, for example `user_id.to_string()`, `user_id.0` or a method
    exit 5

    $ gen persistence conversations -s accounts::Scope --owner-id uuid --scope-owner user_id.0
    error: `user_id.0` in crate::accounts::Scope is `i64`, but `--owner-id uuid` needs `Uuid`
    help: leave --owner-id out, or name a way to the `Uuid` with --scope-owner
    exit 5
    ");
}

#[test]
fn an_owner_table_has_a_key_of_one_column() {
    let host = with_migration("CREATE TABLE users (tenant INTEGER, number INTEGER, PRIMARY KEY (tenant, number));");
    let keyless = with_migration("CREATE TABLE users (name TEXT);");
    assert_snapshot!([refusal(&host, PLAIN), refusal(&keyless, PLAIN)].join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: the table `users` has no key of a single column that a foreign key could name; its columns are `tenant`, `number`
    help: name another table with --owner-table, or `--owner-table none` for no foreign key
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: the table `users` has no key of a single column that a foreign key could name; its columns are `name`
    help: name another table with --owner-table, or `--owner-table none` for no foreign key
    exit 5
    ");
}

#[test]
fn a_key_of_an_unknown_type_needs_a_flag() {
    let unknown = with_migration("CREATE TABLE users (id DECIMAL(10) PRIMARY KEY);");
    let untyped = with_migration("CREATE TABLE users (id PRIMARY KEY);");
    assert_snapshot!([refusal(&unknown, PLAIN), refusal(&untyped, PLAIN)].join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: the key `id` of table `users` is declared `DECIMAL(10)`, so its type is not known
    help: name it with `--owner-id i64`, `--owner-id uuid` or `--owner-id text`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: the key `id` of table `users` is declared without a type, so its type is not known
    help: name it with `--owner-id i64`, `--owner-id uuid` or `--owner-id text`
    exit 5
    ");
}

#[test]
fn an_owner_id_does_not_contradict_the_owner_table() {
    let line = "gen persistence conversations -s accounts::Scope --owner-id";
    let all = [
        refusal(&with_migration("CREATE TABLE users (id INTEGER PRIMARY KEY);"), &format!("{line} uuid")),
        refusal(&with_migration("CREATE TABLE users (id TEXT PRIMARY KEY);"), &format!("{line} i64")),
        refusal(&with_migration("CREATE TABLE users (id BLOB PRIMARY KEY);"), &format!("{line} text")),
    ];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope --owner-id uuid
    error: --owner-id: the key `id` of table `users` is declared `INTEGER`, so it is i64
    help: leave --owner-id out, or name another table with --owner-table
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-id i64
    error: --owner-id: the key `id` of table `users` is declared `TEXT`, so it is text, or uuid as text
    help: leave --owner-id out, or name another table with --owner-table
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-id text
    error: --owner-id: the key `id` of table `users` is declared `BLOB`, so it is uuid
    help: leave --owner-id out, or name another table with --owner-table
    exit 2
    ");
}

#[test]
fn migrations_stay_inside_the_package() {
    let lines = [
        "gen persistence conversations -s accounts::Scope --migrations ..",
        "gen persistence conversations -s accounts::Scope --migrations ../elsewhere",
        "gen persistence conversations -s accounts::Scope --migrations /var/migrations",
        "gen persistence conversations -s accounts::Scope --migrations .",
        "gen persistence conversations -s accounts::Scope --migrations ''",
        "gen persistence conversations -s accounts::Scope --migrations Cargo.toml",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence conversations -s accounts::Scope --migrations ..
    error: --migrations: `..` is not a directory inside of [host]
    help: name one relative to the package, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations ../elsewhere
    error: --migrations: `../elsewhere` is not a directory inside of [host]
    help: name one relative to the package, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations /var/migrations
    error: --migrations: `/var/migrations` is not a directory inside of [host]
    help: name one relative to the package, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations .
    error: --migrations: `.` is not a directory inside of [host]
    help: name one relative to the package, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations ''
    error: --migrations: `` is not a directory inside of [host]
    help: name one relative to the package, for example `migrations`
    exit 2

    $ gen persistence conversations -s accounts::Scope --migrations Cargo.toml
    error: Cargo.toml is a file, where a directory has to be
    help: move Cargo.toml away, or choose another path
    exit 2
    ");
}

#[test]
fn a_manifest_that_does_not_parse_is_named_with_its_line() {
    let syntax = Host::library().file("Cargo.toml", "[package]\nname = \"my_app\"\nversion = = \"0.1.0\"\n");
    let meaning = Host::library().file("Cargo.toml", "[package]\nname = \"my_app\"\nedition = \"1999\"\n");
    let nothing = Host::library().file("Cargo.toml", "");
    assert_snapshot!([syntax, meaning, nothing].each_ref().map(|host| refusal(host, PLAIN)).join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml:3:11: extra `=`, expected nothing
    help: fix Cargo.toml, then run this again
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: cargo cannot read Cargo.toml: failed to parse manifest at `[host]/Cargo.toml`

    Caused by:
      failed to parse the `edition` key

    Caused by:
      supported edition values are `2015`, `2018`, `2021`, or `2024`, but `1999` is unknown
    help: fix it until `cargo metadata` succeeds, then run this again
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: cargo cannot read Cargo.toml: failed to parse manifest at `[host]/Cargo.toml`

    Caused by:
      manifest is missing either a `[package]` or a `[workspace]`
    help: fix it until `cargo metadata` succeeds, then run this again
    exit 2
    ");
}

#[test]
fn an_edition_that_the_code_does_not_compile_with_is_refused() {
    let old = Host::library().file("Cargo.toml", &manifest("my_app", "2018", ""));
    assert_snapshot!(refusal(&old, PLAIN), @r#"
    $ gen persistence conversations -s accounts::Scope
    error: package `my_app` is of edition 2018: the generated code needs 2021 or 2024
    help: set `edition = "2021"` in Cargo.toml; `cargo fix --edition` helps with what changes
    exit 2
    "#);
}

#[test]
fn a_workspace_manifest_that_does_not_parse_is_named_with_its_line() {
    let host = Host::empty()
        .file("Cargo.toml", "[workspace]\nmembers = [\"web\"]\n[[workspace]\n")
        .file("web/Cargo.toml", &manifest("web", "2024", ""))
        .file("web/src/lib.rs", "");
    assert_snapshot!(refusal(&host, "gen persistence conversations -s accounts::Scope --path web"), @"
    $ gen persistence conversations -s accounts::Scope --path web
    error: cargo cannot read Cargo.toml: unclosed array table, expected `]`
     --> ../Cargo.toml:3:13
      |
    3 | [[workspace]
      |             ^
    help: fix it until `cargo metadata` succeeds, then run this again
    exit 2
    ");
}

#[test]
fn a_source_file_that_does_not_parse_is_named_with_its_line() {
    let root = Host::library().file("src/lib.rs", "//! A library.\n\npub fn broken( {}\n");
    let accounts = with_accounts("pub struct Scope {\n    pub user_id: i64,\n");
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
fn options_that_were_recorded_have_to_be_readable() {
    let hosts = [
        "[contexts.conversations]\nscope = \"MyApp.Accounts.Scope\"\nowner_type = \"team\"\n",
        "[contexts.conversations]\nscope = 1\n",
        "[context.conversations]\n",
        "contexts = 1\n",
        "[contexts.conversations\n",
        "[contexts.conversations]\nscope = \"MyApp.Accounts.Scope\"\ncolour = \"red\"\n",
    ]
    .map(|text| Host::library().file("sagents.toml", text));
    assert_snapshot!(hosts.each_ref().map(|host| refusal(host, PLAIN)).join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml:3: unknown field `owner_type`, expected one of `scope`, `owner-type`, `owner-field`, `owner-module`, `owner-table`, `owner-id`, `scope-owner`, `group-type`, `group-field`, `group-table`, `scope-group`, `table-prefix`, `database`, `migrations`, `backfill`, `web`, `no-wire`, `no-tests`, `ejected`
    help: did you mean `owner-type`?
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml:2: invalid type: integer `1`, expected a string
    help: fix sagents.toml, then run this again
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml:1: unknown field `context`, expected `contexts`
    help: did you mean `contexts`?
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml:1: invalid type: integer `1`, expected a map
    help: fix sagents.toml, then run this again
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml:1: unclosed table, expected `]`
    help: fix sagents.toml, then run this again
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml:3: unknown field `colour`, expected one of `scope`, `owner-type`, `owner-field`, `owner-module`, `owner-table`, `owner-id`, `scope-owner`, `group-type`, `group-field`, `group-table`, `scope-group`, `table-prefix`, `database`, `migrations`, `backfill`, `web`, `no-wire`, `no-tests`, `ejected`
    help: fix sagents.toml, then run this again
    exit 2
    ");
}

#[test]
fn a_recorded_context_has_to_be_one() {
    let host = Host::library().file("sagents.toml", "[contexts.\"chat.log\"]\nscope = \"accounts::Scope\"\n");
    assert_snapshot!(refusal(&host, "list"), @"
    $ list
    error: sagents.toml: CONTEXT: `chat.log` contains `.`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2
    ");
}

#[test]
fn a_damaged_memory_is_restored_by_version_control() {
    let host = Host::library();
    host.generate(PLAIN);
    host.write(".sagents/conversations/schema.json", "{");
    let first = refusal(&host, PLAIN);
    host.write(".sagents/conversations/schema.json", "{\"tables\":[]}");
    host.write(".sagents/conversations/files.toml", "generated = 1\n");
    assert_snapshot!([first, refusal(&host, PLAIN)].join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: .sagents/conversations/schema.json cannot be read: EOF while parsing an object at line 1 column 1
    help: restore .sagents/conversations/schema.json from version control; after a merge of two branches that both ran sagents, take sagents.toml, .sagents/ and the migrations of sagents from one of them (`git checkout <branch> -- <paths>`), remove the other's migrations, and run the other's command again
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: .sagents/conversations/files.toml cannot be read: invalid type: integer `1`, expected a map
    help: restore .sagents/conversations/files.toml from version control; after a merge of two branches that both ran sagents, take sagents.toml, .sagents/ and the migrations of sagents from one of them (`git checkout <branch> -- <paths>`), remove the other's migrations, and run the other's command again
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
fn an_owner_table_that_appears_later_needs_a_decision() {
    let host = Host::library();
    host.generate(PLAIN);
    host.write("migrations/20990101000000_users.up.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    assert_snapshot!(refusal(&host, PLAIN), @"
    $ gen persistence conversations -s accounts::Scope
    error: --owner-table: it was not given and was read from the project as `none`; now the project has `users`
    help: give it: `--owner-table none` keeps it, `--owner-table users` changes it
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
    error: src/conversations/branches.rs would be written outside of the package: [host]/src/conversations leads to [outside]/elsewhere
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
    error: nothing was changed: cannot write [host]/src/conversations/branches.rs: permission denied
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

#[test]
fn a_missing_tool_is_named_with_what_installs_it() {
    let host = Host::library();
    let without = |tool: &str, words: &[&str]| {
        Run::of(sagents().args(words).env(tool, "/nonexistent/tool").current_dir(host.root()))
    };
    let all = ["RUSTFMT", "CARGO"].map(|tool| refusal_by(&host, PLAIN, |words| without(tool, words)));
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: cannot format the generated code: /nonexistent/tool does not run: No such file or directory (os error 2)
    help: `rustup component add rustfmt` installs rustfmt; the variable RUSTFMT may name another one
    exit 1

    $ gen persistence conversations -s accounts::Scope
    error: cargo does not run: No such file or directory (os error 2)
    help: install Rust with rustup, or put cargo on the PATH
    exit 1
    ");
}

#[test]
fn a_command_line_that_is_none_is_refused() {
    let lines = [
        "generate",
        "gen",
        "gen persistance conversations",
        "gen persistence",
        "gen persistence conversations --scop accounts::Scope",
        "gen persistence conversations chats",
        "completions tcsh",
    ];
    // The real program: help is as wide as a terminal.
    let host = Host::library();
    let all = lines.map(|line| refusal_by(&host, line, |_| host.program(line)));
    assert_snapshot!(all.join("\n"), @"
    $ generate
    error: unrecognized subcommand 'generate'

      tip: a similar subcommand exists: 'gen'

    Usage: sagents <COMMAND>

    For more information, try '--help'.
    exit 2

    $ gen
    Generate code, or rerun over what was generated

    Usage: sagents gen <COMMAND>

    Commands:
      persistence  Conversations, agent states and display messages: context, models, migration and
                   tests [alias: p]
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version
    exit 2

    $ gen persistance conversations
    error: unrecognized subcommand 'persistance'

      tip: a similar subcommand exists: 'persistence'

    Usage: sagents gen <COMMAND>

    For more information, try '--help'.
    exit 2

    $ gen persistence
    error: the following required arguments were not provided:
      <CONTEXT>

    Usage: sagents gen persistence <CONTEXT>

    For more information, try '--help'.
    exit 2

    $ gen persistence conversations --scop accounts::Scope
    error: unexpected argument '--scop' found

      tip: a similar argument exists: '--scope'

    Usage: sagents gen persistence --scope <TYPE> <CONTEXT>

    For more information, try '--help'.
    exit 2

    $ gen persistence conversations chats
    error: unexpected argument 'chats' found

    Usage: sagents gen persistence [OPTIONS] <CONTEXT>

    For more information, try '--help'.
    exit 2

    $ completions tcsh
    error: invalid value 'tcsh' for '<SHELL>'
      [possible values: bash, elvish, fish, powershell, zsh]

      tip: a similar value exists: 'zsh'

    For more information, try '--help'.
    exit 2
    ");
}

#[test]
fn init_refuses_as_a_host_does() {
    let lines = [
        "gen persistence MyApp.Conversations --init",
        "gen persistence MyApp.Conversations -s Other.Scope --init",
        "gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init --table-prefix 'x y'",
        "gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init --path new --migrations ../elsewhere",
    ];
    assert_snapshot!(refusals(&Host::empty(), &lines), @"
    $ gen persistence MyApp.Conversations --init
    error: --scope is missing: the type that holds who is asking
    help: add it, for example `--scope MyApp.Accounts.Scope`; where conversations have no owner, `--owner-type none` needs none
    exit 2

    $ gen persistence MyApp.Conversations -s Other.Scope --init
    error: --scope: `Other` in `Other.Scope` is not this package, which is called `my_app`
    help: write `MyApp.Scope`
    exit 2

    $ gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init --table-prefix 'x y'
    error: --table-prefix: `x y` contains a space
    help: use lower-case letters, digits and `_` only, for example `sagents_`
    exit 2

    $ gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init --path new --migrations ../elsewhere
    error: --migrations: `../elsewhere` is not a directory inside of [host]/new
    help: name one relative to the package, for example `migrations`
    exit 2
    ");
}

#[test]
fn the_full_command_line_needs_a_package() {
    assert_snapshot!(refusal(&Host::empty(), FULL), @"
    $ gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --owner-type user --owner-field user_id --owner-module MyApp.Accounts.User --table-prefix sagents_
    error: --path: . is not a package: it has no Cargo.toml
    help: go to your package, name it with --path, or make a new one with --init
    exit 2
    ");
}

#[test]
fn migrations_of_another_tool_are_not_added_to() {
    let host = Host::library().file("migrations/create_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    assert_snapshot!(refusal(&host, PLAIN), @"
    $ gen persistence conversations -s accounts::Scope
    error: migrations/create_users.sql is not of sqlx, whose migrations start with a number: `0001_users.sql`
    help: name the directory of sqlx's migrations with --migrations, also if there is none yet
    exit 5
    ");
}

#[test]
fn migrations_of_another_database_are_not_added_to() {
    let host = |feature: &str| {
        depending(&format!("sqlx = {{ version = \"0.9\", features = [\"runtime-tokio\", \"{feature}\"] }}"))
            .file("migrations/0001_users.sql", "CREATE TABLE users (id BIGSERIAL PRIMARY KEY);\n")
    };
    let refusals = [
        refusal(&host("postgres"), &format!("{PLAIN} --database sqlite")),
        refusal(&host("sqlite"), &format!("{PLAIN} --database postgres")),
    ];
    assert_snapshot!(refusals.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope --database sqlite
    error: the migrations in migrations are for another database, which this project uses now
    help: give these a directory of their own, for example `--migrations migrations/sqlite`
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres
    error: the migrations in migrations are for another database, which this project uses now
    help: give these a directory of their own, for example `--migrations migrations/postgres`
    exit 5
    ");
}

#[test]
fn a_generated_context_stays_on_its_database() {
    let host = Host::library();
    host.generate(PLAIN);
    assert_snapshot!(refusal(&host, &format!("{PLAIN} --database postgres")), @"
    $ gen persistence conversations -s accounts::Scope --database postgres
    error: --database: `conversations` is generated for sqlite, and its rows would stay there
    help: generate another context with `--database postgres`, copy the rows, and remove `conversations` when it is empty
    exit 5
    ");
}

#[test]
fn postgres_refers_only_to_keys_that_compare() {
    let host = |key: &str| {
        Host::library().file("migrations/0001_users.sql", &format!("CREATE TABLE users (id {key} PRIMARY KEY);\n"))
    };
    let line = format!("{PLAIN} --database postgres");
    let refusals = [
        refusal(&host("CITEXT"), &line),
        refusal(&host("NUMERIC(20, 0)"), &format!("{line} --owner-id i64")),
        refusal(&host("UUID"), &format!("{line} --owner-id i64")),
        refusal(&host("CHARACTER VARYING(36)"), &format!("{line} --owner-id i64")),
    ];
    assert_snapshot!(refusals.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope --database postgres
    error: the key `id` of table `users` is declared `CITEXT`, which no integer, uuid or text can refer to
    help: name another table with --owner-table, or `--owner-table none` for no foreign key
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres --owner-id i64
    error: the key `id` of table `users` is declared `NUMERIC(20,0)`, which no integer, uuid or text can refer to
    help: name another table with --owner-table, or `--owner-table none` for no foreign key
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres --owner-id i64
    error: --owner-id: the key `id` of table `users` is declared `UUID`, so it is uuid
    help: leave --owner-id out, or name another table with --owner-table
    exit 2

    $ gen persistence conversations -s accounts::Scope --database postgres --owner-id i64
    error: --owner-id: the key `id` of table `users` is declared `CHARACTER VARYING(36)`, so it is text, or uuid as text
    help: leave --owner-id out, or name another table with --owner-table
    exit 2
    ");
}

#[test]
fn a_backfill_is_one_expression_and_for_a_change_of_owner() {
    let host = Host::library();
    host.generate(PLAIN);
    let team = ["gen", "persistence", "conversations", "-t", "team", "--backfill"];
    let texts = ["", "1; DROP TABLE users", "user_id, 2", "user_id -- mine", "SELECT 1", "$1", "(user_id", "'open"];
    let refused = texts.map(|text| {
        let run = host.sagents_in(".", &[&team[..], &[text]].concat());
        format!("$ --backfill '{text}'\n{}exit {}\n", run.stderr, run.code)
    });
    let unneeded = refusal(&host, &format!("{PLAIN} --backfill 1"));
    assert_snapshot!(format!("{}\n{unneeded}", refused.join("\n")), @"
    $ --backfill ''
    error: --backfill: `` is not one SQL expression: it is empty
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ --backfill '1; DROP TABLE users'
    error: --backfill: `1; DROP TABLE users` is not one SQL expression: it contains a `;`
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ --backfill 'user_id, 2'
    error: --backfill: `user_id, 2` is not one SQL expression: `,` is too much
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ --backfill 'user_id -- mine'
    error: --backfill: `user_id -- mine` is not one SQL expression: it contains a comment
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ --backfill 'SELECT 1'
    error: --backfill: `SELECT 1` is not one SQL expression: `1` is too much
    help: put the query in parentheses: `(SELECT …)`
    exit 2

    $ --backfill '$1'
    error: --backfill: `$1` is not one SQL expression: it contains a parameter
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ --backfill '(user_id'
    error: --backfill: `(user_id` is not one SQL expression: Expected: ), found: EOF
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ --backfill ''open'
    error: --backfill: `'open` is not one SQL expression: Unterminated string literal at Line: 1, Column: 1
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ gen persistence conversations -s accounts::Scope --backfill 1
    error: --backfill: the owner does not change in this run
    help: give it together with the option that changes the owner, for example `--owner-type team`
    exit 2
    ");
}

#[test]
fn contexts_to_update_check_or_compare_are_known() {
    let host = Host::library();
    assert_snapshot!(refusal(&host, "update conversations"), @"
    $ update conversations
    error: no context has been generated in .
    help: generate one with `sagents gen persistence`, or name the package with --path
    exit 2
    ");
    host.generate(PLAIN);
    let lines = ["update chats", "check MyApp.Chats", "diff chats", "check Other.Chats"];
    assert_snapshot!(refusals(&host, &lines), @"
    $ update chats
    error: CONTEXT: `chats` has not been generated here
    help: sagents.toml knows conversations
    exit 2

    $ check MyApp.Chats
    error: CONTEXT: `chats` has not been generated here
    help: sagents.toml knows conversations
    exit 2

    $ diff chats
    error: CONTEXT: `chats` has not been generated here
    help: sagents.toml knows conversations
    exit 2

    $ check Other.Chats
    error: CONTEXT: `Other` in `Other.Chats` is not this package, which is called `my_app`
    help: write `MyApp.Chats`
    exit 2
    ");
}

#[test]
fn a_context_that_stands_in_the_options_alone_is_unknown() {
    let host = Host::library().file("sagents.toml", "[contexts.chats]\nscope = \"accounts::Scope\"\n");
    assert_snapshot!(refusals(&host, &["update", "check", "diff chats"]), @"
    $ update
    error: sagents.toml: `chats` has not been generated
    help: generate it with `sagents gen persistence crate::chats`, or remove it from sagents.toml
    exit 2

    $ check
    error: sagents.toml: `chats` has not been generated
    help: generate it with `sagents gen persistence crate::chats`, or remove it from sagents.toml
    exit 2

    $ diff chats
    error: sagents.toml: `chats` has not been generated
    help: generate it with `sagents gen persistence crate::chats`, or remove it from sagents.toml
    exit 2
    ");
}

#[test]
fn what_refers_to_tables_that_sqlite_rebuilds_is_not_lost() {
    let host = Host::library();
    host.generate(PLAIN);
    let stars = "CREATE TABLE stars (owner INTEGER, talk BLOB, FOREIGN KEY (owner, talk) \
                 REFERENCES sagents_conversations (user_id, id) ON DELETE CASCADE);\n";
    host.write("migrations/20990101000000_stars.up.sql", stars);
    host.write("migrations/20990101000000_stars.down.sql", "DROP TABLE stars;\n");
    assert_snapshot!(refusal(&host, &format!("{PLAIN} -t team")), @"
    $ gen persistence conversations -s accounts::Scope -t team
    error: the table `stars` has a foreign key to `sagents_conversations`, which SQLite has to rebuild: its rows would go with the old one
    help: take that foreign key away in a migration of your own, run this again, and add it again afterwards; or let `stars` refer to nothing
    exit 5
    ");
}
