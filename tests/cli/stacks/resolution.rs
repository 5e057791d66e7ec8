//! Whether cargo can resolve a host together with the library, whatever else the host uses.

use insta::assert_snapshot;

use super::{PLAIN, diesel, host as depending, loco, refinery, sea_orm};
use crate::support::{Host, PLAIN as FOR_LIBRARY, Run, cargo_program, manifest};
use crate::transcript::refusal;

/// The versions of some crates that cargo chooses for a host.
fn chosen(host: &Host, line: &str, crates: &[&str]) -> Vec<String> {
    host.generate(line);
    let run = Run::of(cargo_program().arg("generate-lockfile").current_dir(host.root()));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let lock = host.read("Cargo.lock");
    let packages = lock.split("[[package]]\n").filter_map(|package| {
        let mut lines = package.lines();
        let name = lines.next()?.strip_prefix("name = \"")?.strip_suffix('"')?;
        let version = lines.next()?.strip_prefix("version = \"")?.strip_suffix('"')?;
        let (minor, _patch) = version.rsplit_once('.')?;
        crates.contains(&name).then(|| format!("{name} {minor}"))
    });
    packages.collect()
}

#[test]
fn an_sqlx_of_the_same_version_is_shared() {
    for (features, crates) in [("sqlite", "sqlx-sqlite"), ("postgres", "sqlx-postgres")] {
        let host =
            depending(&format!("sqlx = {{ version = \"0.9\", features = [\"{features}\", \"runtime-tokio\"] }}\n"));
        assert_eq!(chosen(&host, PLAIN, &["sqlx", crates]), ["sqlx 0.9", &format!("{crates} 0.9")]);
    }
}

#[test]
fn other_stacks_get_the_librarys_sqlx_beside_their_own() {
    for (host, expected) in [
        (depending("sqlx = { version = \"0.8\", features = [\"sqlite\", \"runtime-tokio\"] }\n"), "sqlx 0.8, sqlx 0.9"),
        (
            depending("sea-orm = { version = \"1.1\", features = [\"sqlx-sqlite\", \"runtime-tokio\"] }\n"),
            "sqlx 0.8, sqlx 0.9",
        ),
        (depending("diesel = { version = \"2.2\", features = [\"sqlite\"] }\n"), "sqlx 0.9"),
        (depending("rusqlite = \"0.32\"\n"), "sqlx 0.9"),
        (diesel(), "sqlx 0.9"),
        (refinery(), "sqlx 0.9"),
        (sea_orm(), "sqlx 0.8, sqlx 0.9"),
        (loco(), "sqlx 0.8, sqlx 0.9"),
    ] {
        let mut versions = chosen(&host, PLAIN, &["sqlx", "libsqlite3-sys"]);
        let sqlites = versions.extract_if(.., |version| version.starts_with("libsqlite3-sys ")).count();
        assert_eq!((versions.join(", "), sqlites), (expected.to_owned(), 1));
        let before = host.files();
        host.generate(PLAIN);
        assert_eq!(host.files(), before);
    }
}

#[test]
fn a_host_that_needs_another_sqlite_is_refused() {
    let hosts = [
        depending("sqlx = { version = \"0.7\", features = [\"sqlite\", \"runtime-tokio\"] }\n"),
        // Its Cargo.lock has SQLite even if it is not compiled.
        depending("sqlx = { version = \"0.7\", features = [\"postgres\", \"runtime-tokio\"] }\n"),
        depending("rusqlite = \"0.40\"\n"),
    ];
    let texts = hosts.map(|host| patchless(&refusal(&host, PLAIN)));
    assert_snapshot!(texts.join("\n"), @"
    $ gen persistence conversations -s crate::auth::CurrentUser
    error: Cargo.toml: sqlx 0.7 and sagents cannot be in one program: it brings libsqlite3-sys [old], and sagents needs libsqlite3-sys >=0.30.1, <0.38.0; a program links only one `sqlite3`
    help: use sqlx 0.8 or 0.9
    exit 5

    $ gen persistence conversations -s crate::auth::CurrentUser
    error: Cargo.toml: sqlx 0.7 and sagents cannot be in one program: it brings libsqlite3-sys [old], and sagents needs libsqlite3-sys >=0.30.1, <0.38.0; a program links only one `sqlite3`
    help: use sqlx 0.8 or 0.9
    exit 5

    $ gen persistence conversations -s crate::auth::CurrentUser
    error: Cargo.toml: rusqlite 0.40 and sagents cannot be in one program: it brings libsqlite3-sys ^0.38.0, and sagents needs libsqlite3-sys >=0.30.1, <0.38.0; a program links only one `sqlite3`
    help: use a version of rusqlite that works with libsqlite3-sys >=0.30.1, <0.38.0
    exit 5
    ");
}

/// Versions without their last number, which newer releases change.
fn patchless(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.strip_prefix('v').and_then(|version| version.rsplit_once('.')) {
        Some((minor, _)) => minor.to_owned(),
        None => word.to_owned(),
    });
    // Which of the old ones it is depends on what cargo has downloaded.
    words.collect::<Vec<_>>().join(" ").replace("^0.26.0", "[old]").replace("^0.27.0", "[old]")
}

#[test]
fn members_of_the_workspace_and_directories_beside_it_count() {
    let old = "\n[dependencies]\nsqlx = { version = \"0.7\", features = [\"sqlite\", \"runtime-tokio\"] }\n";
    let workspace = Host::empty()
        .file("Cargo.toml", "[workspace]\nmembers = [\"crates/*\"]\nresolver = \"2\"\n")
        .file("crates/app/Cargo.toml", &manifest("app", "2021", ""))
        .file("crates/app/src/lib.rs", "")
        .file("crates/jobs/Cargo.toml", &manifest("jobs", "2021", old))
        .file("crates/jobs/src/main.rs", "fn main() {}\n");
    let beside = Host::empty()
        .file("old/Cargo.toml", &manifest("old", "2021", old))
        .file("old/src/lib.rs", "")
        .file("app/Cargo.toml", &manifest("app", "2021", "\n[dependencies]\nold = { path = \"../old\" }\n"))
        .file("app/src/lib.rs", "");
    let texts = [
        refusal(&workspace, "gen persistence conversations -s accounts::Scope --path crates/app"),
        refusal(&beside, "gen persistence conversations -s accounts::Scope --path app"),
    ];
    assert_snapshot!(texts.map(|text| patchless(&text)).join("\n"), @"
    $ gen persistence conversations -s accounts::Scope --path crates/app
    error: Cargo.toml: sqlx 0.7 and sagents cannot be in one program: it brings libsqlite3-sys [old], and sagents needs libsqlite3-sys >=0.30.1, <0.38.0; a program links only one `sqlite3`
    help: use sqlx 0.8 or 0.9
    exit 5

    $ gen persistence conversations -s accounts::Scope --path app
    error: Cargo.toml: old 0.1 and sagents cannot be in one program: it brings libsqlite3-sys [old], and sagents needs libsqlite3-sys >=0.30.1, <0.38.0; a program links only one `sqlite3`
    help: use a version of old that works with libsqlite3-sys >=0.30.1, <0.38.0
    exit 5
    ");
}

#[test]
fn a_rust_version_that_is_too_low_is_refused() {
    let own = Host::library().file("Cargo.toml", &manifest("my_app", "2024", "rust-version = \"1.85\"\n"));
    let inherited = Host::empty()
        .file("Cargo.toml", "[workspace]\nmembers = [\"app\"]\n\n[workspace.package]\nrust-version = \"1.90.0\"\n")
        .file("app/Cargo.toml", &manifest("app", "2021", "rust-version.workspace = true\n"))
        .file("app/src/lib.rs", "");
    let texts = [refusal(&own, FOR_LIBRARY), refusal(&inherited, &format!("{FOR_LIBRARY} --path app"))];
    assert_snapshot!(texts.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: Cargo.toml: rust-version is 1.85, and sagents needs Rust 1.94 or newer
    help: raise `rust-version` to 1.94
    exit 5

    $ gen persistence conversations -s accounts::Scope --path app
    error: [host]/Cargo.toml: rust-version is 1.90, and sagents needs Rust 1.94 or newer
    help: raise `rust-version` to 1.94
    exit 5
    ");
}
