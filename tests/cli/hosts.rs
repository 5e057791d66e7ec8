//! Reading hosts and wiring them: which lines go where, and what is left as it was.

mod crates;
mod files;
mod format;
mod init;
mod modules;
mod scope;
mod tables;
mod workspace;

use std::process::Command;

use crate::support::{FULL, Host, PLAIN, Run};
use crate::transcript::anonymous;

/// The files that were not there before, without the generator's memory. Of the files below the context's one stands
/// for all.
fn created(host: &Host, line: &str) -> String {
    let before = host.files();
    host.generate(line);
    let mut created: Vec<_> = host.files().into_keys().filter(|path| !before.contains_key(path)).collect();
    created.retain(|path| !path.contains(".sagents/") && (!path.contains("conversations/") || is_shown(path)));
    anonymous(host, &created.join("\n"))
}

fn is_shown(path: &str) -> bool {
    path.ends_with("/mod.rs") || path.ends_with("/scope.rs")
}

/// The lines of a file that contain a text.
fn lines_with(host: &Host, path: &str, text: &str) -> String {
    host.read(path).lines().filter(|line| line.contains(text)).map(str::trim).collect::<Vec<_>>().join("\n")
}

fn assert_a_second_run_changes_nothing(host: &Host, line: &str) {
    let before = host.files();
    let run = host.generate(line);
    assert!(run.stdout.starts_with("Up to date: "), "{}", run.stdout);
    assert_eq!(host.files(), before);
}

#[test]
fn a_second_run_changes_no_byte_and_says_so() {
    let host = Host::library();
    host.generate(FULL);
    assert_a_second_run_changes_nothing(&host, FULL);
}

#[test]
fn comments_in_the_recorded_options_stay() {
    let host = Host::library();
    let recorded =
        "# Ours.\n[contexts.conversations] # the first\nscope = 'accounts::Scope' # who\nowner-type = \"team\"\n";
    host.write("sagents.toml", recorded);
    host.generate("gen persistence conversations");
    assert_eq!(host.read("sagents.toml"), recorded);
}

#[test]
fn options_that_are_not_given_keep_their_recorded_value() {
    let host = Host::library();
    host.generate("gen persistence conversations -s accounts::Scope -t team --table-prefix chat_ --no-tests");
    assert_a_second_run_changes_nothing(&host, "gen persistence conversations");
}

#[test]
fn cargo_sagents_is_the_same_program() {
    let host = Host::library();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-sagents"));
    let run = Run::of(command.args(["sagents"]).args(PLAIN.split(' ')).current_dir(host.root()));
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert_a_second_run_changes_nothing(&host, PLAIN);
}
