//! How many lines are generated. A pull request with them has to be small enough to review.

use crate::support::{Host, manifest};

/// The lines of Rust in a host, and the number of files with them.
fn rust(host: &Host) -> (usize, usize) {
    let files = host
        .files()
        .into_iter()
        .filter(|(path, _)| path.rsplit('.').next() == Some("rs") && !path.starts_with(".sagents"));
    let lines: Vec<_> = files.map(|(_, text)| String::from_utf8(text).unwrap().lines().count()).collect();
    (lines.iter().sum(), lines.len())
}

/// A library with users in teams, and what a run adds to it.
fn added(options: &str) -> (usize, usize) {
    let host = Host::empty()
        .file("Cargo.toml", &manifest("my_app", "2024", ""))
        .file("src/lib.rs", "pub mod accounts;\n")
        .file(
            "src/accounts.rs",
            "pub struct Scope {\n    pub user_id: Option<i64>,\n    pub team_id: Option<i64>,\n}\n",
        )
        .file(
            "migrations/1_accounts.up.sql",
            "CREATE TABLE teams (id BIGINT PRIMARY KEY);\n\
             CREATE TABLE users (id BIGINT PRIMARY KEY, team_id BIGINT REFERENCES teams (id));\n",
        )
        .file("migrations/1_accounts.down.sql", "DROP TABLE users;\nDROP TABLE teams;\n");
    let (lines, files) = rust(&host);
    host.generate(&format!("gen persistence conversations --scope accounts::Scope --owner-type user {options}"));
    let (all_lines, all_files) = rust(&host);
    // The line of `lib.rs` that declares the context isn't in a file of its own.
    (all_lines - lines - 1, all_files - files)
}

/// The lines of a new package.
fn of_new_package(options: &str) -> usize {
    let host = Host::empty();
    let args = "gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init";
    host.generate(&format!("{args} {options}"));
    rust(&host).0
}

#[test]
fn a_context_has_at_most_900_lines_of_rust_in_7_files() {
    for database in ["sqlite", "postgres"] {
        let (lines, files) = added(&format!("--database {database}"));
        assert!(lines <= 900 && files <= 7, "{lines} lines in {files} files on {database}");
    }
}

#[test]
fn a_group_adds_at_most_80_lines() {
    for database in ["sqlite", "postgres"] {
        let (with, _) = added(&format!("--database {database} --group-type team"));
        let (without, _) = added(&format!("--database {database}"));
        assert!(with <= without + 80, "{with} lines beside {without} on {database}");
    }
}

#[test]
fn routes_add_at_most_80_lines_in_one_file() {
    let ((with, files), (without, before)) = (added("--web axum"), added(""));
    assert!(with <= without + 80 && files == before + 1, "{with} lines beside {without}");
}

#[test]
fn a_new_package_adds_at_most_120_lines_and_one_with_a_page_700() {
    let (context, _) = added("");
    for (options, most) in [("", 120), ("--group-type team", 200), ("--web axum", 700)] {
        let lines = of_new_package(options);
        assert!(lines <= context + most, "{lines} lines beside {context} with {options:?}");
    }
}
