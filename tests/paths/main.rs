//! Path equivalence: from every option set to every other one, on real databases, with every sqlx that hosts may have as
//! the migrator. The program generates the migrations; a small host, `runner/`, moves databases along them.

#[path = "../../crates/sagents/tests/support/postgres.rs"]
mod postgres;
mod sets;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::thread;

use sets::{Change, Database, KEYS, SETS, Set, backfill, change, owners};
use support::{Host, Run, cargo, manifest};
use tempfile::TempDir;

const VERSIONS: [&str; 2] = ["0.9", "0.8"];

#[test]
fn every_path_leads_to_a_fresh_install_on_sqlite() {
    let paths = Paths::generated(Database::Sqlite);
    for sqlx in VERSIONS {
        run(sqlx, &["sqlite", paths.root()]);
    }
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn every_path_leads_to_a_fresh_install_on_postgres() {
    let paths = Paths::generated(Database::Postgres);
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
        let paths = Self { directory: support::temporary("sagents-paths-"), database };
        in_parallel(SETS.iter().collect(), |set| paths.generate_fresh(set));
        paths
    }

    /// Concurrently the runners are compiled: hosts of other tests wait for that now, and these would wait for them later.
    fn generated(database: Database) -> Self {
        thread::scope(|scope| {
            scope.spawn(|| runner(VERSIONS[0]));
            Self::generate(database)
        })
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
        let backfill = backfill(old, new);
        let wish: Vec<_> = backfill.iter().flat_map(|text| ["--backfill", text]).collect();
        self.sagents(&host, new, &wish);
        if old.owner.is_some() && change(old, new) != Change::Stays {
            self.sagents(&host, new, &["--drop-old-owner"]);
        }
        let pairs = self.directory.path().join("pairs");
        copy(&host.root().join("migrations"), &pairs.join(old.name).join(new.name));
    }

    /// Projects with a history of their own.
    fn generate_special(&self) {
        let [user, team, chat] = ["user", "team", "user_in_chat"].map(Set::find);
        let to_team = backfill(user, team).unwrap();
        self.special("without_backfill", |host| self.sagents(host, team, &["--backfill", "none"]));
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
            let label = match self.database {
                Database::Sqlite => "AS (user_id || ' ' || pinned)",
                Database::Postgres => "GENERATED ALWAYS AS (user_id::text || ' ' || pinned::text) STORED",
            };
            let add = format!(
                "ALTER TABLE sagents_conversations ADD COLUMN pin INTEGER NOT NULL DEFAULT 0 CHECK (pin >= 0);\n\
                 ALTER TABLE sagents_conversations RENAME COLUMN pin TO pinned;\n\
                 ALTER TABLE sagents_conversations ADD COLUMN label TEXT {label};\n\
                 ALTER TABLE sagents_display_messages ADD COLUMN note TEXT;\n\
                 CREATE TABLE sagents_guard (id INTEGER);\n\
                 CREATE TABLE sagents_conversations_new (id INTEGER);\n"
            );
            host.write("migrations/0003_host.up.sql", &add);
            let drop = "DROP TABLE sagents_conversations_new;\n\
                        DROP TABLE sagents_guard;\n\
                        ALTER TABLE sagents_conversations DROP COLUMN label;\n\
                        ALTER TABLE sagents_conversations DROP COLUMN pinned;\n\
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

    /// The generated code of two sets is the same but for the names of tables, of the owner and of its column.
    fn differ_in_names(&self, kind: &Set, set: &Set) {
        let (Some(from), Some(to)) = (&kind.owner, &set.owner) else { panic!("{} and {}", kind.name, set.name) };
        let code = |set: &Set, shown: &dyn Fn(&str) -> String| -> Vec<String> {
            let mut files = self.host(set).files();
            files.retain(|path, _| path.starts_with("src/conversations"));
            let files = files.into_iter().map(|(path, text)| path + "\n" + &shown(str::from_utf8(&text).unwrap()));
            let lines = files.collect::<String>();
            lines.lines().filter(|line| !line.trim_start().starts_with("//")).map(str::to_owned).collect()
        };
        let renamed = |text: &str| {
            text.replace(&format!("\"{}", kind.prefix), &format!("\"{}", set.prefix))
                .replace(&format!(" {}*", kind.prefix), &format!(" {}*", set.prefix))
                .replace(from.field, to.field)
                .replace(&format!("{:?}Scope", from.key), &format!("{:?}Scope", to.key))
                .replace(&format!("\"type\": \"{}\"", from.noun), &format!("\"type\": \"{}\"", to.noun))
        };
        let (expected, found) = (code(kind, &renamed), code(set, &str::to_owned));
        let difference = expected.iter().zip(&found).find(|(expected, found)| expected != found);
        assert_eq!((difference, expected.len()), (None, found.len()), "{} and {}", kind.name, set.name);
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
        let mut args = vec!["gen", "persistence", "conversations", "--database", database, "--no-tests"];
        args.extend(options.iter().map(String::as_str).chain(more.iter().copied()));
        // Only migrations matter here.
        let run = host.unformatted(&args);
        assert_eq!(run.code, 0, "{args:?}\n{}{}", run.stdout, run.stderr);
    }
}

/// Makes a project that of an older generator, whose messages did not have something yet.
fn play_older(host: &Host, missing: &[&str]) {
    let is_missing = |text: &str| missing.iter().any(|part| text.contains(part));
    let path = host.find("_create_sagents_persistence.up.sql");
    let text = host.read(&path);
    let (before, messages) = text.split_at(text.find("CREATE TABLE \"sagents_display_messages\"").unwrap());
    let (messages, behind) = messages.split_at(messages.find("CREATE TABLE \"sagents_agent_messages\"").unwrap());
    let indexes = messages.find("CREATE INDEX").unwrap();
    let lines = messages[..indexes].lines().filter(|line| !is_missing(line));
    host.write(&path, &format!("{before}{}\n{behind}", lines.collect::<Vec<_>>().join("\n")));
    let path = ".sagents/conversations/schema.json";
    let mut schema: serde_json::Value = serde_json::from_str(&host.read(path)).unwrap();
    let messages = schema["tables"][2].as_object_mut().unwrap();
    messages["columns"].as_array_mut().unwrap().retain(|column| !is_missing(column["name"].as_str().unwrap()));
    messages["checks"].as_array_mut().unwrap().retain(|check| !is_missing(check["condition"].as_str().unwrap()));
    messages.remove("indexes");
    if is_missing("UNIQUE") {
        messages.remove("unique");
    }
    host.write(path, &serde_json::to_string_pretty(&schema).unwrap());
    // It did not record the digest of that.
    let path = ".sagents/conversations/files.toml";
    let files = host.read(path);
    let files = files.lines().filter(|line| !line.starts_with("schema = ")).map(|line| format!("{line}\n"));
    host.write(path, &files.collect::<String>());
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

/// The program that has a version of sqlx. The first one that is asked for compiles all.
fn runner(sqlx: &str) -> &'static Path {
    static RUNNERS: OnceLock<[PathBuf; VERSIONS.len()]> = OnceLock::new();
    let runners = RUNNERS.get_or_init(|| {
        let _turn = support::build_turn();
        VERSIONS.map(compile)
    });
    let (_, runner) = VERSIONS.iter().zip(runners).find(|(version, _)| **version == sqlx).unwrap();
    runner
}

/// Runs the runner that has a version of sqlx.
fn run(sqlx: &str, arguments: &[&str]) {
    let run = Run::of(Command::new(runner(sqlx)).args(arguments));
    assert_eq!(run.code, 0, "with sqlx {sqlx}: {}{}", run.stdout, run.stderr);
    let pairs = SETS.len() * (SETS.len() - 1);
    assert_eq!(run.stdout, format!("{pairs} proven, 0 failed\n"), "with sqlx {sqlx}");
}

/// Compiles the runner with a version of sqlx, where the last run left it.
fn compile(sqlx: &str) -> PathBuf {
    let host = Host::at(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("paths/runner {sqlx}")));
    let main = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/paths/runner/main.rs");
    let text = include_str!("runner/manifest.toml").replace("{{ main }}", main.to_str().unwrap());
    // The dependencies are those of the hosts in tests/compiled, so that they are compiled once.
    let members = support::write_dependencies(&host, Some(sqlx));
    let text = text.replace("{{ sqlx }}", sqlx).replace("{{ members }}", &format!("{members:?}"));
    host.write("Cargo.toml", &text);
    // One version makes the calls; what the other migrates is the same.
    let features = if sqlx == VERSIONS[0] { "calls" } else { "" };
    write_contexts(&host, !features.is_empty());
    let mut command = cargo(&host);
    let built = Run::of(command.args(["build", "--quiet", "--workspace", "--features", features]));
    assert_eq!(built.code, 0, "the runner with sqlx {sqlx}\n{}", built.stderr);
    support::target(&host).join("debug/runner")
}

/// The generated code of every kind of set and database as modules of the runner, for the calls of `runner/calls.rs`.
fn write_contexts(host: &Host, with_calls: bool) {
    let new = Host::empty();
    let mut modules = String::new();
    if with_calls {
        modules += "#![allow(dead_code, unused_imports)]\n\npub mod calls;\nmod sagents;\nmod scopes;\n";
        new.write("calls.rs", include_str!("runner/calls.rs"));
        new.write("scopes.rs", &scopes());
        for (database, name) in [(Database::Sqlite, "sqlite"), (Database::Postgres, "postgres")] {
            let paths = Paths::fresh(database);
            for set in SETS {
                if set.name != set.kind().name {
                    paths.differ_in_names(set.kind(), set);
                    continue;
                }
                let (source, module) = (paths.host(set).root().join("src"), format!("{name}_{}", set.name));
                copy(&source.join("conversations"), &new.root().join(&module));
                fs::copy(source.join("conversations.rs"), new.root().join(format!("{module}.rs"))).unwrap();
                copy(&source.join("sagents"), &new.root().join("sagents"));
                fs::copy(source.join("sagents.rs"), new.root().join("sagents.rs")).unwrap();
                // What is not called is not compiled to the end.
                modules.extend(["mod ", &module, ";\n"]);
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
