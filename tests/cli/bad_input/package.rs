//! The package that a run is for.

use std::fs;

use insta::assert_snapshot;

use super::PLAIN;
use crate::support::{FULL, Host, manifest};
use crate::transcript::{refusal, refusals};

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
fn the_package_is_not_called_as_the_library_is() {
    let host = Host::library().file("Cargo.toml", &manifest("sagents", "2024", ""));
    assert_snapshot!(refusal(&host, PLAIN), @"
    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: this package is called `sagents`, as the library that generated code names
    help: give it another name
    exit 2
    ");
}

#[test]
fn the_routes_are_for_the_axum_that_the_library_has() {
    let axum = "\n[dependencies]\naxum = \"0.7\"\n";
    let host = Host::library().file("Cargo.toml", &manifest("my_app", "2024", axum));
    assert_snapshot!(refusal(&host, "gen persistence conversations -s accounts::Scope --web axum"), @"
    $ gen persistence conversations -s accounts::Scope --web axum
    error: axum 0.7 is too old: the generated code needs axum 0.8.0 or newer
    help: raise the version of axum in Cargo.toml to `0.8`
    exit 2
    ");
}
