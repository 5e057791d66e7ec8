//! Temporary hosts, and the program run in them: called as a function where nothing depends on its process, which saves
//! most of the time of a run, and as a process where something does.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::{panic, thread};

use anstream::StripStream;
use camino::Utf8PathBuf;
use sagents_cli::{Io, Tools};
use tempfile::TempDir;

/// The command line of the original, word for word.
pub const FULL: &str = "gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --owner-type user \
     --owner-field user_id --owner-module MyApp.Accounts.User --table-prefix sagents_";

/// A short one. The scope is written if there is none.
pub const PLAIN: &str = "gen persistence conversations -s accounts::Scope";

/// A package in a temporary directory.
pub struct Host {
    /// Keeps the directory; nothing if it belongs to somebody else.
    _directory: Option<TempDir>,
    root: PathBuf,
}

impl Host {
    /// An empty directory.
    pub fn empty() -> Self {
        let directory = temporary("sagents-host-");
        let root = directory.path().canonicalize().unwrap().join("host");
        fs::create_dir(&root).unwrap();
        Self { _directory: Some(directory), root }
    }

    /// A directory of somebody else's, which stays.
    pub fn at(root: PathBuf) -> Self {
        Self { _directory: None, root }
    }

    /// A host to be compiled: a directory with nothing but the Cargo.lock of the last run, so that cargo finds its
    /// dependencies compiled.
    pub fn compiled(name: &str) -> Self {
        let hosts = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hosts");
        let root = hosts.join(name);
        let lock = fs::read(root.join("Cargo.lock"));
        if root.exists() {
            fs::remove_dir_all(&root).unwrap();
        }
        fs::create_dir_all(&root).unwrap();
        // This repository's own settings are not the hosts'.
        fs::write(hosts.join("rustfmt.toml"), "").unwrap();
        if let Ok(lock) = lock {
            fs::write(root.join("Cargo.lock"), lock).unwrap();
        }
        Self::at(root)
    }

    /// A package `my_app` with an empty library.
    pub fn library() -> Self {
        Self::empty().file("Cargo.toml", &manifest("my_app", "2024", "")).file("src/lib.rs", "")
    }

    /// As `library`, with this in its module `accounts`.
    pub fn with_accounts(source: &str) -> Self {
        Self::library().file("src/lib.rs", "pub mod accounts;\n").file("src/accounts.rs", source)
    }

    /// A package `my_app` with only a binary.
    pub fn binary() -> Self {
        Self::empty().file("Cargo.toml", &manifest("my_app", "2024", "")).file("src/main.rs", "fn main() {}\n")
    }

    /// Writes a file, with its directories.
    pub fn file(self, path: &str, text: &str) -> Self {
        self.write(path, text);
        self
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Every file with its bytes, `target` and Cargo.lock aside.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.root, &self.root, &mut files);
        files
    }

    /// The only file whose name ends so.
    pub fn find(&self, ending: &str) -> String {
        let found: Vec<_> = self.files().into_keys().filter(|path| path.ends_with(ending)).collect();
        assert_eq!(found.len(), 1, "files that end with {ending}: {found:?}");
        found.into_iter().next().unwrap()
    }

    /// Calls `sagents` in the host with arguments separated by spaces.
    pub fn sagents(&self, args: &str) -> Run {
        self.sagents_in(".", &words(args))
    }

    /// Calls `sagents` in a directory below the host.
    pub fn sagents_in(&self, directory: &str, args: &[&str]) -> Run {
        Run::called(&self.root.join(directory), tools("rustfmt".into()), args)
    }

    /// Calls `sagents`, which must succeed.
    pub fn generate(&self, args: &str) -> Run {
        self.sagents(args).succeeded(args)
    }

    /// Calls `sagents` with a formatter that formats nothing, for tests that ask about something else.
    pub fn unformatted(&self, args: &[&str]) -> Run {
        Run::called(&self.root, tools(no_formatter()), args)
    }

    /// Calls `sagents` as `unformatted` does, with a program in place of cargo.
    pub fn unformatted_by(&self, cargo: &Path, args: &[&str]) -> Run {
        Run::called(&self.root, Tools { cargo: cargo.into(), rustfmt: no_formatter() }, args)
    }

    /// Calls `sagents` with a cargo that refuses every package, for tests that ask about what comes before that.
    pub fn refused(&self, args: &[&str]) -> Run {
        Run::called(&self.root, Tools { cargo: "false".into(), rustfmt: no_formatter() }, args)
    }

    /// Runs the real program in the host.
    pub fn program(&self, args: &str) -> Run {
        Run::of(sagents().args(words(args)).current_dir(&self.root))
    }
}

fn tools(rustfmt: OsString) -> Tools {
    Tools { cargo: env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), rustfmt }
}

pub fn words(args: &str) -> Vec<&str> {
    args.split_whitespace().collect()
}

/// A new directory, in memory where the system has a place for that: nobody waits for a disk then.
pub fn temporary(prefix: &str) -> TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
    tempfile::Builder::new().prefix(prefix).tempdir_in(place).unwrap()
}

/// The program, without a terminal and without what the environment says of colours.
pub fn sagents() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sagents"));
    command.stdin(Stdio::null());
    for variable in ["NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "RUSTFMT", "COLUMNS"] {
        command.env_remove(variable);
    }
    command
}

/// The program with a formatter that formats nothing.
pub fn unformatted() -> Command {
    let mut command = sagents();
    command.env("RUSTFMT", no_formatter());
    command
}

fn no_formatter() -> OsString {
    static SCRIPT: OnceLock<TempDir> = OnceLock::new();
    let directory = SCRIPT.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        write_program(&directory.path().join("rustfmt"), "exec cat");
        directory
    });
    directory.path().join("rustfmt").into()
}

/// Writes a program of one line for the shell.
fn write_program(path: &Path, line: &str) {
    fs::write(path, format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The cargo that this process was started by.
pub fn cargo_program() -> Command {
    Command::new(tools(OsString::new()).cargo)
}

/// A cargo that says of a host what cargo says of it now. It is a third of the time of a run.
pub fn cargo_that_knows(host: &Host, directory: &Path) -> PathBuf {
    let mut command = cargo_program();
    command.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]).current_dir(host.root());
    let (answer, program) = (directory.join("metadata.json"), directory.join("cargo"));
    fs::write(&answer, Run::of(&mut command).succeeded("metadata").stdout).unwrap();
    write_program(&program, &format!("exec cat '{}'", answer.display()));
    program
}

/// Cargo for a host that is compiled. Compiling is what takes the time in these tests, so hosts compile their
/// dependencies with the same settings into one directory, whichever comes first. What they build of their own is apart.
pub fn cargo(host: &Host) -> Command {
    // Crates of two workspaces may be the same file to cargo. A setting that is not one of their dependencies keeps them
    // apart.
    const HOSTS: [&str; 11] = [
        "customized",
        "edited",
        "init",
        "page",
        "postgres",
        "runner",
        "runner 0.8",
        "runner 0.9",
        "sea_orm",
        "sqlite",
        "web",
    ];
    let name = host.root().file_name().unwrap();
    let number = HOSTS.iter().position(|host| *host == name).expect("every compiled host is in HOSTS");
    let mut command = Command::new("cargo");
    for (crates, units) in [("", 4 + number), (".package.'*'", 4)] {
        command.args(["--config", &format!("profile.dev{crates}.codegen-units = {units}")]);
    }
    // The checks of other crates are theirs to run. Without them they are what hosts release.
    for check in ["debug-assertions", "overflow-checks"] {
        command.args(["--config", &format!("profile.dev.package.'*'.{check} = false")]);
    }
    command.current_dir(host.root());
    for variable in ["CARGO_ENCODED_RUSTFLAGS", "DATABASE_URL", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS", "RUSTFMT"] {
        command.env_remove(variable);
    }
    command
        .env("CARGO_BUILD_BUILD_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("build"))
        .env("CARGO_TARGET_DIR", target(host))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_TERM_COLOR", "never");
    command
}

/// A workspace with these members. With this resolver, macros share dependencies, too.
pub fn write_workspace(host: &Host, members: &[&str]) {
    let members = [members, &[write_dependencies(host)]].concat();
    host.write("Cargo.toml", &format!("[workspace]\nresolver = \"1\"\nmembers = {members:?}\n"));
}

/// Writes a crate that asks for every feature that a host may ask for, so that all workspaces with it share what they
/// compile of their dependencies. Returns its directory.
pub fn write_dependencies(host: &Host) -> &'static str {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/sagents");
    let dependencies = DEPENDENCIES.replace("{library}", library.to_str().unwrap());
    host.write("dependencies/Cargo.toml", &manifest("dependencies", "2024", &dependencies));
    host.write("dependencies/src/lib.rs", "//! Nothing but its dependencies.\n");
    "dependencies"
}

/// The turn of a build of hosts, until it is dropped. Cargo lets one of them at a time into their directory, but not the one
/// that came first: somebody may wait until all others are through.
pub fn build_turn() -> File {
    let turn = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("build.turn")).unwrap();
    turn.lock().unwrap();
    turn
}

/// What hosts depend on. sea-orm has a sqlx of its own.
const DEPENDENCIES: &str = r#"
[dependencies]
async-trait = "0.1"
axum = "0.8"
futures-util = "0.3"
sagents = { path = "{library}", features = ["axum", "openai", "postgres", "sqlite"] }
sea-orm = { version = "1.1", default-features = false, features = ["macros", "runtime-tokio", "sqlx-sqlite"] }
sea-orm-migration = { version = "1.1", default-features = false, features = ["runtime-tokio", "sqlx-sqlite"] }
serde = { version = "1.0", features = ["derive"] }
serde_json = { version = "1.0", features = ["float_roundtrip"] }
sqlx = { version = "0.9", features = ["postgres", "runtime-tokio", "sqlite"] }
tokio = { version = "1.40", features = ["io-util", "macros", "net", "rt-multi-thread", "signal", "sync", "test-util", "time"] }
tower = { version = "0.5", default-features = false, features = ["util"] }
tracing = "0.1"
tracing-subscriber = "0.3"
uuid = { version = "1.10", features = ["serde", "v7"] }
"#;

/// Where cargo puts what such a host is for: its programs and its documentation.
pub fn target(host: &Host) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("targets").join(host.root().file_name().unwrap())
}

/// How a program ended.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    /// Calls the program in a directory, without a terminal, on a stack like that of a process.
    fn called(directory: &Path, tools: Tools, args: &[&str]) -> Self {
        const STACK: usize = 8 << 20;
        let call = || {
            let (mut stdout, mut stderr) = (StripStream::new(Vec::new()), StripStream::new(Vec::new()));
            let mut io = Io {
                directory: Utf8PathBuf::from_path_buf(directory.to_owned()).unwrap(),
                tools,
                interactive: false,
                stdout: &mut stdout,
                stderr: &mut stderr,
            };
            let args = ["sagents"].iter().chain(args).map(OsString::from).collect();
            let code = sagents_cli::run(args, &mut io).into();
            let [stdout, stderr] = [stdout, stderr].map(|stream| String::from_utf8(stream.into_inner()).unwrap());
            Self { code, stdout, stderr }
        };
        thread::scope(|scope| {
            let called = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, call).unwrap();
            called.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
        })
    }

    /// The run, if it succeeded.
    fn succeeded(self, args: &str) -> Self {
        assert_eq!(self.code, 0, "{args}\n{}{}", self.stdout, self.stderr);
        self
    }

    pub fn of(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap();
        Self {
            code: status.code().unwrap_or(-1),
            stdout: String::from_utf8(stdout).unwrap(),
            stderr: String::from_utf8(stderr).unwrap(),
        }
    }
}

/// A minimal Cargo.toml, with more lines behind it.
pub fn manifest(name: &str, edition: &str, more: &str) -> String {
    format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"{edition}\"\n{more}")
}

fn collect(root: &Path, directory: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            if name != "target" {
                collect(root, &path, files);
            }
        } else if name != "Cargo.lock" {
            files.insert(name, fs::read(&path).unwrap());
        }
    }
}
