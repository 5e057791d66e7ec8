//! Hosts in which the generated code would not compile: refused before anything is written, with what changes that.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use crate::support::Host;

const PLAIN: &str = "gen persistence conversations -s accounts::Scope";

/// A library whose `src/accounts.rs` is this.
fn with_accounts(source: &str) -> Host {
    Host::library().file("src/lib.rs", "pub mod accounts;\n").file("src/accounts.rs", source)
}

/// A library with a scope and with this in its root.
fn with_root(line: &str) -> Host {
    with_accounts("pub struct Scope { pub user_id: i64 }\n")
        .file("src/lib.rs", &format!("pub mod accounts;\n\n{line}\n"))
}

#[test]
fn links_that_lead_back_are_followed_once() {
    let host = with_root("pub fn nothing() {}");
    for name in ["again", "anew"] {
        symlink(".", host.root().join("src").join(name)).unwrap();
    }
    let run = host.sagents(PLAIN);
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn a_file_that_is_no_text_and_no_module_is_passed_over() {
    let host = with_root("pub fn nothing() {}");
    fs::write(host.root().join("src/latin.rs"), b"// \xff\n").unwrap();
    fs::write(host.root().join("src").join(OsStr::from_bytes(b"\xff.rs")), "").unwrap();
    let run = host.sagents(PLAIN);
    assert_eq!(run.code, 0, "{}", run.stderr);
}
