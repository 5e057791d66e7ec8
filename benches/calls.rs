//! Each call of a generated context beside the same statements by hand on bare sqlx, and the calls in a small and in a
//! large database. The layer is generated into a host, where `calls/host.rs` becomes an example that measures and
//! prints, with the other files there as its modules. Nothing here is asserted: section 10 of the design has the
//! targets.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use support::{FULL, manifest, sagents};

const ACCOUNTS: &str = "pub struct User {\n    pub id: i64,\n}\n\npub struct Scope {\n    pub user: User,\n}\n";

fn main() {
    // A fixed place, so that the host's dependencies are compiled once.
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("calls");
    let host = place.join("host");
    let lock = fs::read(host.join("Cargo.lock"));
    let _ = fs::remove_dir_all(&host);
    let write = |path: &str, text: &[u8]| {
        let path = host.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    if let Ok(lock) = lock {
        write("Cargo.lock", &lock);
    }
    // A workspace of its own, wherever the target directory is.
    write("Cargo.toml", manifest("my_app", "2024", "\n[workspace]\n").as_bytes());
    write("src/lib.rs", b"pub mod accounts;\n");
    write("src/accounts.rs", ACCOUNTS.as_bytes());
    write("examples/calls/main.rs", include_bytes!("calls/host.rs"));
    write("examples/calls/hand.rs", include_bytes!("calls/hand.rs"));
    write("examples/calls/states.rs", include_bytes!("calls/states.rs"));
    run(sagents().args(FULL.split_whitespace()).arg("--path").arg(&host).stdout(std::process::Stdio::null()));

    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = place.join("target");
    run(Command::new(cargo)
        .args(["build", "--quiet", "--release", "--example", "calls"])
        .current_dir(&host)
        .env("CARGO_TARGET_DIR", &target));
    run(&mut Command::new(target.join("release/examples/calls")));
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
