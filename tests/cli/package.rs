//! What `cargo package` ships: everything that the program, its documentation and its tests need.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::process::Command;

use crate::support::{Host, Run};

#[test]
fn the_package_has_the_files_that_its_tests_need_and_no_others() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    if directory.join("Cargo.toml.orig").exists() {
        return; // This is an unpacked package: it has what it has.
    }
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["package", "--list", "--allow-dirty", "--offline"]).current_dir(directory);
    let run = Run::of(cargo.env("CARGO_TERM_COLOR", "never"));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let packaged: BTreeSet<_> = run.stdout.lines().map(str::to_owned).collect();

    // Cargo leaves out directories that have a Cargo.toml of their own.
    let is_packaged = |name: &String| packaged.contains(name);
    let all = ["benches", "docs", "snapshots", "src", "templates", "tests"].into_iter().flat_map(|top| {
        let files = Host::at(directory.join(top)).files();
        files.into_keys().map(move |name| format!("{top}/{name}"))
    });
    let missing: Vec<_> = all.filter(|name| !is_packaged(name)).collect();
    assert_eq!(missing, [""; 0], "Cargo.toml: `include`");

    let tops: BTreeSet<_> = packaged.iter().map(|name| name.split('/').next().unwrap()).collect();
    insta::assert_snapshot!(tops.into_iter().collect::<Vec<_>>().join("\n"), @r"
    .cargo_vcs_info.json
    ARCHITECTURE.md
    CHANGELOG.md
    Cargo.lock
    Cargo.toml
    Cargo.toml.orig
    LICENSE-APACHE
    LICENSE-MIT
    README.md
    RELEASING.md
    benches
    docs
    snapshots
    src
    templates
    tests
    ");
}
