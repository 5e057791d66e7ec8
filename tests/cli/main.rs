//! The real program in temporary hosts, without compiling them: what it says, writes and refuses.

#[path = "../support/mod.rs"]
mod support;

use support::{FULL, Host};

#[test]
fn a_second_run_changes_no_byte_and_says_so() {
    let host = Host::library();
    host.generate(FULL);
    let before = host.files();
    let run = host.generate(FULL);
    assert!(run.stdout.starts_with("Up to date: crate::conversations"), "{}", run.stdout);
    assert_eq!(host.files(), before);
}
