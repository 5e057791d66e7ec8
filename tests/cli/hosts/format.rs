//! The host's way of writing.

use std::process::Command;

use super::{PLAIN, assert_a_second_run_changes_nothing};
use crate::support::{FULL, Host, Run, manifest};

#[test]
fn an_older_edition_is_formatted_by_its_own_rules() {
    let host = Host::library().file("Cargo.toml", &manifest("my_app", "2021", ""));
    host.generate(FULL);
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2021", "--check", "src/lib.rs"]).current_dir(host.root());
    assert_eq!(Run::of(&mut rustfmt).stdout, "");
}

#[test]
fn the_hosts_own_rustfmt_configuration_is_followed() {
    let host = Host::library().file("rustfmt.toml", "max_width = 80\nhard_tabs = true\n");
    host.generate(PLAIN);
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024", "--check", "src/lib.rs"]).current_dir(host.root());
    assert_eq!(Run::of(&mut rustfmt).stdout, "");
}

#[test]
fn a_width_that_is_too_narrow_for_rustfmt_is_no_failure() {
    let host = Host::library().file("rustfmt.toml", "max_width = 40\n");
    host.generate(PLAIN);
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn sources_with_crlf_get_more_of_them() {
    let host = Host::library()
        .file("src/lib.rs", "//! A library.\r\n\r\npub mod accounts;\r\n")
        .file("src/accounts.rs", "pub struct User;\r\n")
        .file("Cargo.toml", &manifest("my_app", "2024", "").replace('\n', "\r\n"));
    host.generate(&format!("{PLAIN} --create-scope"));
    let files = host.files().into_iter().filter(|(path, _)| !path.starts_with(".sagents"));
    let mixed = files.filter(|(_, bytes)| {
        let text = String::from_utf8_lossy(bytes);
        text.replace("\r\n", "").contains('\n')
    });
    assert_eq!(mixed.map(|(path, _)| path).collect::<Vec<_>>(), [""; 0]);
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn a_file_that_was_only_formatted_otherwise_is_not_edited() {
    let host = Host::library();
    host.generate(PLAIN);
    host.write("rustfmt.toml", "max_width = 80\n");
    let mut rustfmt = Command::new("rustfmt");
    Run::of(rustfmt.args(["--edition", "2024", "src/lib.rs"]).current_dir(host.root()));
    assert_a_second_run_changes_nothing(&host, PLAIN);
    assert_eq!(host.sagents("check").code, 0);

    // Not even by the host's own settings.
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024", "--config", "max_width=140,use_small_heuristics=Max", "src/lib.rs"]);
    Run::of(rustfmt.current_dir(host.root()));
    assert_a_second_run_changes_nothing(&host, PLAIN);
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn a_checkout_that_turned_the_line_ends_is_not_edited() {
    let host = Host::library();
    host.generate(PLAIN);
    for (path, bytes) in host.files() {
        host.write(&path, &String::from_utf8(bytes).unwrap().replace('\n', "\r\n"));
    }
    assert_a_second_run_changes_nothing(&host, PLAIN);
}
