//! A project that is up to date is judged by digests alone: nothing is formatted. Here `RUSTFMT` names a program that
//! does not exist, so a run that starts it fails.

use std::process::Command;

use crate::support::{Host, Run, sagents};

const LINE: &str = "gen persistence conversations -s accounts::Scope";

/// Runs a command that must succeed without rustfmt.
fn without_rustfmt(host: &Host, line: &str) -> Run {
    let mut command = sagents();
    command.args(line.split(' ')).current_dir(host.root()).env("RUSTFMT", "/nonexistent/rustfmt");
    let run = Run::of(&mut command);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{line}\n{}", run.stdout);
    run
}

/// How many files `check` counts: pristine, edited and ejected ones.
fn counts(host: &Host) -> String {
    let run = without_rustfmt(host, "check");
    run.stdout.lines().next().and_then(|line| line.split_once('(')).unwrap().1.to_owned()
}

#[test]
fn no_command_formats_anything() {
    let host = Host::library();
    host.generate(LINE);
    for line in [LINE, "update", "check", "diff", "list"] {
        without_rustfmt(&host, line);
    }
}

#[test]
fn a_new_package_is_judged_without_formatting() {
    let host = Host::empty();
    host.generate("gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init --path my_app");
    for line in ["update --path my_app", "check --path my_app"] {
        without_rustfmt(&host, line);
    }
}

#[test]
fn a_file_that_stays_deleted_needs_no_formatting() {
    let host = Host::library();
    host.generate(LINE);
    std::fs::remove_file(host.root().join("src/conversations/tests.rs")).unwrap();
    for line in [LINE, "check"] {
        without_rustfmt(&host, line);
    }
}

#[test]
fn a_file_that_is_the_hosts_by_now_needs_no_formatting() {
    let host = Host::empty();
    host.generate("gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init --path my_app");
    host.write("my_app/src/main.rs", "fn main() {}\n");
    for line in ["update --path my_app", "check --path my_app"] {
        without_rustfmt(&host, line);
    }
}

#[test]
fn a_merged_file_needs_no_formatting_again() {
    let path = "src/conversations/scope.rs";
    let host = crate::rerun::older(path, "impl OwnerScope", "/// Older.\nimpl OwnerScope");
    host.write(path, &format!("{}\n// Ours.\n", host.read(path)));
    host.generate(LINE);
    for line in [LINE, "check"] {
        without_rustfmt(&host, line);
    }
}

#[test]
fn another_configuration_of_rustfmt_makes_nothing_edited() {
    let host = Host::library();
    host.generate(LINE);
    let before = counts(&host);
    host.write("rustfmt.toml", "tab_spaces = 2\nmax_width = 80\n");
    assert_eq!(counts(&host), before);
    let status = Command::new("rustfmt").args(["--edition", "2024", "src/lib.rs"]).current_dir(host.root()).status();
    assert!(status.unwrap().success());
    let run = host.generate("check");
    assert!(run.stdout.contains(&before), "{}", run.stdout);
}
