//! Workspaces at fixed places that cargo compiles, and the programs in them.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{fs, thread};

use crate::postgres::Database;
use crate::support::{self, Host, Run};

pub struct Workspace {
    pub host: Host,
    pub database: Option<Database>,
}

impl Workspace {
    /// A workspace with these members, which are still to be written.
    pub fn new(name: &str, members: &[&str]) -> Self {
        let host = Host::compiled(name);
        support::write_workspace(&host, members);
        Self { host, database: None }
    }

    /// As `new`, with a database on a real server for `DATABASE_URL`.
    pub fn with_server(name: &str, members: &[&str]) -> Self {
        Self { database: Some(Database::new()), ..Self::new(name, members) }
    }

    /// Runs the real program in the workspace. It must succeed.
    pub fn generate_by_program(&self, args: &str) {
        let run = self.host.program(args);
        assert_eq!(run.code, 0, "{args}\n{}{}", run.stdout, run.stderr);
    }

    /// Calls `sagents` in a member. It must succeed.
    pub fn generate(&self, member: &str, args: &str) -> Run {
        let run = self.host.sagents_in(member, &args.split_whitespace().collect::<Vec<_>>());
        assert_eq!(run.code, 0, "{args}\n{}{}", run.stdout, run.stderr);
        run
    }

    /// The members are formatted, they and their documentation have no warnings, and their tests pass.
    pub fn prove(&self) -> Vec<Program> {
        self.check_format();
        let programs = self.build();
        self.test(&programs);
        programs
    }

    pub fn check_format(&self) {
        self.run(support::cargo(&self.host).args(["fmt", "--check"]));
    }

    /// Compiles the members without a warning. Cargo compiles one workspace at a time; the tests of others run then.
    pub fn build(&self) -> Vec<Program> {
        let mut command = support::cargo(&self.host);
        command.env("RUSTC_WORKSPACE_WRAPPER", wrapper());
        command.args(["build", "--workspace", "--all-targets", "--message-format", "json-render-diagnostics"]);
        let turn = support::build_turn();
        let built = self.run(&mut command);
        drop(turn);
        built.stdout.lines().filter_map(Program::parse).collect()
    }

    /// Runs the tests, some at once: they wait for the database most of the time.
    pub fn test(&self, programs: &[Program]) {
        const AT_ONCE: usize = 3;
        let tests = Mutex::new(programs.iter().filter(|program| program.is_test));
        let next = || tests.lock().unwrap_or_else(PoisonError::into_inner).next();
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(test) = next() {
                        self.run(test.command().env("RUST_TEST_THREADS", "4"));
                    }
                });
            }
        });
    }

    /// Runs the only program of the workspace that is no test, and returns what it prints.
    pub fn show(&self, programs: &[Program]) -> String {
        let [program] = programs.iter().filter(|program| !program.is_test).collect::<Vec<_>>()[..] else {
            panic!("one program is expected: {programs:?}")
        };
        self.run(&mut program.command()).stdout
    }

    fn run(&self, command: &mut Command) -> Run {
        if let Some(database) = &self.database {
            command.env("DATABASE_URL", database.url());
        }
        let run = Run::of(command);
        let root = self.host.root().display();
        // Messages of cargo for programs are no help.
        let printed: Vec<_> = run.stdout.lines().filter(|line| !line.starts_with('{')).collect();
        assert_eq!(run.code, 0, "{command:?}, in {root}\n{}\n{}", printed.join("\n"), run.stderr);
        run
    }
}

/// Tests are not written for the lints that some hosts deny.
const LAX: &str = "#[allow(
    let_underscore_drop,
    unreachable_pub,
    unused_qualifications,
    unused_results,
    clippy::future_not_send,
    clippy::unwrap_used
)]
";

/// Makes modules with tests part of a library, which they use as others do: it is compiled once then.
pub fn add_tests(host: &Host, package: &str, library: &str, files: &[(&str, &str)]) {
    let mut names = BTreeSet::new();
    for (path, text) in files {
        host.write(&format!("{package}/src/{path}"), text);
        names.extend(path.split(['/', '.']).next());
    }
    let root = format!("{package}/src/lib.rs");
    let modules: Vec<_> = names.into_iter().map(|name| format!("#[cfg(test)]\n{LAX}mod {name};\n")).collect();
    let modules = modules.concat();
    let text = format!("{}\n#[cfg(test)]\nextern crate self as {library};\n\n{modules}", host.read(&root));
    host.write(&root, &text);
}

/// Something that cargo has compiled and that can be run.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    /// Its package, where cargo runs it.
    directory: PathBuf,
    pub is_test: bool,
}

impl Program {
    /// One of cargo's messages, if it is about a program.
    fn parse(message: &str) -> Option<Self> {
        let message: serde_json::Value = serde_json::from_str(message).unwrap();
        let path = message["executable"].as_str()?;
        // A build script has an executable too, which is not shown.
        let manifest = Path::new(message["manifest_path"].as_str().unwrap());
        Some(Self {
            path: path.into(),
            directory: manifest.parent().unwrap().into(),
            is_test: message["profile"]["test"].as_bool().unwrap(),
        })
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.directory).env_remove("DATABASE_URL").env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }
}

/// What compiles the hosts' own crates. Clippy is rustc with more lints: what it warns of fails, and what passes is
/// compiled. Rustdoc gets the same arguments: `cargo doc` would have to check all dependencies again.
fn wrapper() -> &'static Path {
    static WRAPPER: OnceLock<PathBuf> = OnceLock::new();
    WRAPPER.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clippy-and-rustdoc");
        fs::write(&path, include_str!("clippy-and-rustdoc")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    })
}
