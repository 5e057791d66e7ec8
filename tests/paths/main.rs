//! Path equivalence: from every option set to every other one, on real databases, with every sqlx that hosts may have as
//! the migrator. The program generates the migrations; a small host, `runner/`, moves databases along them.

#[path = "../support/postgres.rs"]
mod postgres;
mod sets;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;

use sets::{Change, Database, KEYS, SETS, Set, backfill, change, owners};
use support::{Host, Run, manifest, sagents};
use tempfile::TempDir;

const VERSIONS: [&str; 2] = ["0.9", "0.8"];

#[test]
fn every_path_leads_to_a_fresh_install_on_sqlite() {
    let paths = Paths::generate(Database::Sqlite);
    for sqlx in VERSIONS {
        run(sqlx, &["sqlite", paths.root()]);
    }
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn every_path_leads_to_a_fresh_install_on_postgres() {
    let paths = Paths::generate(Database::Postgres);
    let database = postgres::Database::new();
    for sqlx in VERSIONS {
        run(sqlx, &["postgres", paths.root(), &database.url()]);
    }
}

/// The migrations of every set, and of every way from one set to another.
struct Paths {
    directory: TempDir,
    database: Database,
}

impl Paths {
    /// A project of every set.
    fn fresh(database: Database) -> Self {
        let directory = tempfile::Builder::new().prefix("sagents-paths-").tempdir().unwrap();
        let paths = Self { directory, database };
        fs::write(paths.formatter(), "#!/bin/sh\nexec cat\n").unwrap();
        fs::set_permissions(paths.formatter(), fs::Permissions::from_mode(0o755)).unwrap();
        in_parallel(SETS.iter().collect(), |set| paths.generate_fresh(set));
        paths
    }

    fn generate(database: Database) -> Self {
        let paths = Self::fresh(database);
        let pairs = SETS.iter().flat_map(|old| SETS.iter().map(move |new| (old, new)));
        let pairs = pairs.filter(|(old, new)| old.name != new.name).collect();
        in_parallel(pairs, |(old, new)| paths.generate_pair(old, new));
        paths.generate_special();
        paths
    }

    fn root(&self) -> &str {
        self.directory.path().to_str().unwrap()
    }

    /// A project of its own.
    fn generate_fresh(&self, set: &Set) {
        let host = self.host(set);
        host.write("Cargo.toml", &manifest("my_app", "2024", ""));
        host.write("src/lib.rs", "pub mod scopes;\n");
        host.write("src/scopes.rs", &scopes());
        host.write("migrations/0001_owners.up.sql", &owners(self.database));
        host.write("migrations/0001_owners.down.sql", "");
        self.sagents(&host, set, &[]);
        copy(&host.root().join("migrations"), &self.directory.path().join("fresh").join(set.name));
    }

    /// A copy of the old set's project goes on with the options of the new one; then the old owner is dropped.
    fn generate_pair(&self, old: &Set, new: &Set) {
        let directory = tempfile::tempdir_in(self.directory.path()).unwrap();
        copy(self.host(old).root(), directory.path());
        let host = Host::at(directory.path().to_owned());
        if new.owner.is_none() {
            forget_owner(&host);
        }
        let backfill = backfill(old, new);
        let wish: Vec<_> = backfill.iter().flat_map(|text| ["--backfill", text]).collect();
        self.sagents(&host, new, &wish);
        if old.owner.is_some() && change(old, new) != Change::Stays {
            self.sagents(&host, new, &["--drop-old-owner"]);
        }
        let pairs = self.directory.path().join("pairs");
        copy(&host.root().join("migrations"), &pairs.join(old.name).join(new.name));
    }

    /// Formats nothing, at once: only migrations matter here.
    fn formatter(&self) -> PathBuf {
        self.directory.path().join("rustfmt")
    }

    /// Projects with a history of their own.
    fn generate_special(&self) {
        let [user, team, chat] = ["user", "team", "user_in_chat"].map(Set::find);
        let to_team = backfill(user, team).unwrap();
        self.special("without_backfill", |host| self.sagents(host, team, &[]));
        self.special("partial_backfill", |host| {
            let some = to_team.replace("ORDER BY", "AND k > 1 ORDER BY");
            self.sagents(host, team, &["--backfill", &some]);
        });
        self.special("there_and_back", |host| {
            self.sagents(host, team, &["--backfill", &to_team]);
            self.sagents(host, user, &[]);
            self.sagents(host, user, &["--drop-old-owner"]);
        });
        self.special("host_column", |host| {
            let add = "ALTER TABLE sagents_conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0 CHECK (pinned >= 0);\n\
                       ALTER TABLE sagents_display_messages ADD COLUMN note TEXT;\n";
            host.write("migrations/0003_host.up.sql", add);
            let drop = "ALTER TABLE sagents_conversations DROP COLUMN pinned;\n\
                        ALTER TABLE sagents_display_messages DROP COLUMN note;\n";
            host.write("migrations/0003_host.down.sql", drop);
            let to_chat = Set { name: "", prefix: chat.prefix, owner: Set::find("team").owner };
            self.sagents(host, &to_chat, &["--backfill", &to_team]);
        });
        self.special("older", |host| {
            play_older(host, &["metadata", "tool_calls"]);
            self.sagents(host, user, &[]);
        });
        self.special("laxer", |host| {
            play_older(host, &["metadata", "tool_calls", "UNIQUE", "item >= 0"]);
            self.sagents(host, user, &[]);
        });
    }

    /// A copy of the project of users, with what happens to it.
    fn special(&self, name: &str, happens: impl Fn(&Host)) {
        let directory = tempfile::tempdir_in(self.directory.path()).unwrap();
        copy(self.host(Set::find("user")).root(), directory.path());
        let host = Host::at(directory.path().to_owned());
        happens(&host);
        copy(&host.root().join("migrations"), &self.directory.path().join("special").join(name));
    }

    fn host(&self, set: &Set) -> Host {
        Host::at(self.directory.path().join("projects").join(set.name))
    }

    fn sagents(&self, host: &Host, set: &Set, more: &[&str]) {
        let database = match self.database {
            Database::Sqlite => "sqlite",
            Database::Postgres => "postgres",
        };
        let options = set.options(self.database);
        let mut command = sagents();
        command.args(["gen", "persistence", "conversations", "--database", database, "--no-tests"]);
        command.args(&options).args(more).current_dir(host.root());
        let run = Run::of(command.env("RUSTFMT", self.formatter()));
        assert_eq!(run.code, 0, "{options:?} {more:?}\n{}{}", run.stdout, run.stderr);
    }
}

/// Makes a project that of an older generator, whose messages did not have something yet.
fn play_older(host: &Host, missing: &[&str]) {
    let is_missing = |text: &str| missing.iter().any(|part| text.contains(part));
    let path = host.find("_create_sagents_persistence.up.sql");
    let text = host.read(&path);
    let (before, messages) = text.split_at(text.find("CREATE TABLE \"sagents_display_messages\"").unwrap());
    let indexes = messages.find("CREATE INDEX").unwrap();
    let lines = messages[..indexes].lines().filter(|line| !is_missing(line));
    host.write(&path, &(before.to_owned() + &lines.collect::<Vec<_>>().join("\n") + "\n"));
    let path = ".sagents/conversations/schema.json";
    let mut schema: serde_json::Value = serde_json::from_str(&host.read(path)).unwrap();
    let messages = schema["tables"][2].as_object_mut().unwrap();
    messages["columns"].as_array_mut().unwrap().retain(|column| !is_missing(column["name"].as_str().unwrap()));
    messages["checks"].as_array_mut().unwrap().retain(|check| !is_missing(check.as_str().unwrap()));
    messages.remove("indexes");
    if is_missing("UNIQUE") {
        messages.remove("unique");
    }
    host.write(path, &serde_json::to_string_pretty(&schema).unwrap());
}

/// Options about an owner contradict that there is none.
fn forget_owner(host: &Host) {
    let options = host.read("sagents.toml");
    let others = options.lines().filter(|line| !line.starts_with("owner-") && !line.starts_with("scope-owner"));
    host.write("sagents.toml", &(others.collect::<Vec<_>>().join("\n") + "\n"));
}

/// A scope for every kind of owner, and one for none.
fn scopes() -> String {
    let scope = |name: String, field: &str| format!("pub struct {name} {{\n    {field}\n}}\n");
    let owned = KEYS.map(|key| {
        let kind = match key.kind() {
            "uuid" => "uuid::Uuid",
            "text" => "String",
            kind => kind,
        };
        scope(format!("{key:?}Scope"), &format!("pub key: {kind},"))
    });
    owned.concat() + &scope("Anyone".to_owned(), "")
}

/// Compiles the runner with a version of sqlx, where the last run left it, and runs it.
fn run(sqlx: &str, arguments: &[&str]) {
    static TURN: Mutex<()> = Mutex::new(());
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("paths");
    let host = Host::at(directory.join(format!("runner {sqlx}")));
    let target = directory.join(format!("target {sqlx}"));
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let main = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/paths/runner/main.rs");
    let text = include_str!("runner/Cargo.toml").replace("{{ main }}", main.to_str().unwrap());
    host.write("Cargo.toml", &text.replace("{{ sqlx }}", sqlx));
    // One version makes the calls; what the other migrates is the same.
    let features = if sqlx == VERSIONS[0] { "calls" } else { "" };
    write_contexts(&host, !features.is_empty());
    let mut cargo = Command::new("cargo");
    for variable in ["CARGO_ENCODED_RUSTFLAGS", "DATABASE_URL", "RUSTFLAGS"] {
        cargo.env_remove(variable);
    }
    cargo.args(["build", "--quiet", "--features", features]).current_dir(host.root());
    cargo.env("CARGO_TARGET_DIR", &target).env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    let built = Run::of(&mut cargo);
    assert_eq!(built.code, 0, "the runner with sqlx {sqlx}\n{}", built.stderr);
    drop(turn);
    let run = Run::of(Command::new(target.join("debug/runner")).args(arguments));
    assert_eq!(run.code, 0, "with sqlx {sqlx}: {}{}", run.stdout, run.stderr);
    let pairs = SETS.len() * (SETS.len() - 1);
    assert_eq!(run.stdout, format!("{pairs} proven, 0 failed\n"), "with sqlx {sqlx}");
}

/// The generated code of every set and database as modules of the runner, for the calls of `runner/calls.rs`.
fn write_contexts(host: &Host, with_calls: bool) {
    let new = Host::empty();
    let mut modules = String::new();
    if with_calls {
        modules += "#![allow(dead_code, unused_imports)]\n\npub mod calls;\npub mod sagents;\npub mod scopes;\n";
        new.write("calls.rs", include_str!("runner/calls.rs"));
        new.write("scopes.rs", &scopes());
        for (database, name) in [(Database::Sqlite, "sqlite"), (Database::Postgres, "postgres")] {
            let paths = Paths::fresh(database);
            for set in SETS {
                let (source, module) = (paths.host(set).root().join("src"), format!("{name}_{}", set.name));
                copy(&source.join("conversations"), &new.root().join(&module));
                fs::copy(source.join("conversations.rs"), new.root().join(format!("{module}.rs"))).unwrap();
                copy(&source.join("sagents"), &new.root().join("sagents"));
                fs::copy(source.join("sagents.rs"), new.root().join("sagents.rs")).unwrap();
                modules.extend(["pub mod ", &module, ";\n"]);
            }
        }
    }
    new.write("lib.rs", &modules);
    // What did not change is not compiled again.
    let source = host.root().join("src");
    fs::create_dir_all(&source).unwrap();
    let (before, now) = (Host::at(source.clone()).files(), new.files());
    for path in before.keys().filter(|path| !now.contains_key(*path)) {
        fs::remove_file(source.join(path)).unwrap();
    }
    for (path, text) in now.iter().filter(|(path, text)| before.get(*path) != Some(text)) {
        host.write(&format!("src/{path}"), str::from_utf8(text).unwrap());
    }
}

/// Does something with every item, on all processors.
fn in_parallel<T: Send>(items: Vec<T>, work: impl Fn(T) + Sync) {
    let items = Mutex::new(items);
    let next = || items.lock().unwrap().pop();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from: PathBuf = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}
