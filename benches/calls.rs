//! Each call of a generated context beside the same statements by hand on bare sqlx, the calls in a small and in a large
//! database, and what sessions cost: for `SQLite`, then for `PostgreSQL`, or for what is named, as in
//! `cargo bench --bench calls -- postgres sessions`. The layer is generated into a host, which has `calls/host.rs` as an
//! example that measures and prints. Nothing here is asserted: section 10 of the design has the targets.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use support::{FULL, Host, manifest, sagents};

const DATABASES: [&str; 2] = ["sqlite", "postgres"];
const TOPICS: [&str; 5] = ["branches", "calls", "sessions", "sizes", "states"];
const ACCOUNTS: &str = "#[derive(Clone)]\npub struct User {\n    pub id: i64,\n}\n\n#[derive(Clone)]\npub struct Scope {\n    pub user: User,\n}\n";

fn main() {
    // Cargo adds an option of its own.
    let named: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let (databases, topics): (Vec<_>, Vec<_>) = named.iter().partition(|name| DATABASES.contains(&name.as_str()));
    for topic in &topics {
        assert!(TOPICS.contains(&topic.as_str()), "{topic} is none of {DATABASES:?} and {TOPICS:?}");
    }
    for database in DATABASES {
        if databases.is_empty() || databases.iter().any(|name| *name == database) {
            measure(database, &topics);
        }
    }
}

fn measure(database: &str, topics: &[&String]) {
    // A fixed place, so that the host's dependencies are compiled once.
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("calls");
    let host = host(&place, database);
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut example = Command::new(cargo);
    example.args(["run", "--quiet", "--release", "--example", "calls", "--features", database, "--"]).args(topics);
    example.current_dir(host.root()).env("CARGO_TARGET_DIR", place.join("target"));
    // In memory where that is possible: code is to be measured, not a disk.
    if Path::new("/dev/shm").is_dir() {
        example.env("TMPDIR", "/dev/shm");
    }
    run(&mut example);
}

/// A host of its own for each database, with the layer of today and the lock file of last time.
fn host(place: &Path, database: &str) -> Host {
    let root = place.join(database);
    let lock = fs::read_to_string(root.join("Cargo.lock"));
    let _ = fs::remove_dir_all(&root);
    // A workspace of its own, wherever the target directory is.
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/calls/host.rs");
    let more = format!(
        "\n[workspace]\n\n[features]\nsqlite = []\npostgres = []\n\n[dev-dependencies]\nlanded = {{ path = \"landed\" }}\n\n\
         [[example]]\nname = \"calls\"\npath = '{}'\n",
        example.display()
    );
    let host = Host::at(root).file("Cargo.toml", &manifest("my_app", "2024", &more));
    write_landed(&host, if database == "sqlite" { "sqlite_user" } else { "postgres_team" });
    let host = host.file("src/lib.rs", "pub mod accounts;\n").file("src/accounts.rs", ACCOUNTS);
    if let Ok(lock) = lock {
        host.write("Cargo.lock", &lock);
    }
    let mut generate = sagents();
    generate.args(FULL.split_whitespace()).args(["--database", database, "--path"]).arg(host.root());
    run(generate.stdout(Stdio::null()));
    host
}

/// A crate with what the first version generated.
fn write_landed(host: &Host, set: &str) {
    let landed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/landed");
    for directory in ["shared", set] {
        let mut files = Host::at(landed.join(directory)).files();
        files.retain(|path, _| !path.starts_with(".sagents/") && path != "sagents.toml");
        for (path, bytes) in files {
            let path = path.replace("manifest.toml", "Cargo.toml");
            let text = String::from_utf8(bytes).unwrap();
            host.write(&format!("landed/{path}"), &text.replace("name = \"my_app\"", "name = \"landed\""));
        }
    }
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
