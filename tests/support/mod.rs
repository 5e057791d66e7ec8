//! Temporary hosts, and the real program run in them.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

/// The command line of the original, word for word.
pub const FULL: &str = "gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --owner-type user \
     --owner-field user_id --owner-module MyApp.Accounts.User --table-prefix sagents_";

/// A package in a temporary directory.
pub struct Host {
    /// Keeps the directory; nothing if it belongs to somebody else.
    _directory: Option<TempDir>,
    root: PathBuf,
}

impl Host {
    /// An empty directory.
    pub fn empty() -> Self {
        let directory = tempfile::Builder::new().prefix("sagents-host-").tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap().join("host");
        fs::create_dir(&root).unwrap();
        Self { _directory: Some(directory), root }
    }

    /// A directory of somebody else's, which stays.
    pub fn at(root: PathBuf) -> Self {
        Self { _directory: None, root }
    }

    /// A package `my_app` with an empty library.
    pub fn library() -> Self {
        Self::empty().file("Cargo.toml", &manifest("my_app", "2024", "")).file("src/lib.rs", "")
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

    /// Runs `sagents` in the host with arguments separated by spaces.
    pub fn sagents(&self, args: &str) -> Run {
        self.sagents_in(".", &args.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs `sagents` in a directory below the host.
    pub fn sagents_in(&self, directory: &str, args: &[&str]) -> Run {
        Run::of(sagents().args(args).current_dir(self.root.join(directory)))
    }

    /// Runs `sagents`, which must succeed.
    pub fn generate(&self, args: &str) -> Run {
        let run = self.sagents(args);
        assert_eq!(run.code, 0, "{args}\n{}{}", run.stdout, run.stderr);
        run
    }
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

/// A formatter that formats nothing, for tests that ask about something else: rustfmt is most of what a run costs.
pub fn unformatted() -> Command {
    static SCRIPT: OnceLock<TempDir> = OnceLock::new();
    let directory = SCRIPT.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("rustfmt");
        fs::write(&script, "#!/bin/sh\nexec cat\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        directory
    });
    let mut command = sagents();
    command.env("RUSTFMT", directory.path().join("rustfmt"));
    command
}

/// Cargo for a host that is compiled. Compiling is what takes the time in these tests, so hosts compile their
/// dependencies with the same settings into one directory, whoever comes first. What they build of their own is apart.
pub fn cargo(host: &Host) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(host.root());
    for variable in ["CARGO_ENCODED_RUSTFLAGS", "DATABASE_URL", "RUSTC_WORKSPACE_WRAPPER", "RUSTFMT"] {
        command.env_remove(variable);
    }
    command
        .env("CARGO_BUILD_BUILD_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("build"))
        .env("CARGO_TARGET_DIR", target(host))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_TERM_COLOR", "never")
        .env("RUSTFLAGS", "-D warnings -W clippy::pedantic");
    command
}

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
