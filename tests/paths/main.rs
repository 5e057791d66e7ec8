//! Path equivalence: from every option set to every other one, on real databases. The program generates the migrations,
//! which move databases with rows.

mod calls;
mod catalogue;
mod database;
mod moves;
#[path = "../../crates/sagents/tests/support/postgres.rs"]
mod postgres;
mod rows;
mod scenarios;
mod sets;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use database::Place;
use sets::{Change, Database, KEYS, SETS, Set, backfill, change, owners};
use support::{Host, manifest};
use tempfile::TempDir;

#[test]
fn every_path_leads_to_a_fresh_install_on_sqlite() {
    prove(&Paths::generated(Database::Sqlite), &Place::Memory);
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn every_path_leads_to_a_fresh_install_on_postgres() {
    let paths = Paths::generated(Database::Postgres);
    let database = postgres::Database::new();
    prove(&paths, &Place::Server(database.url()));
}

fn prove(paths: &Paths, place: &Place) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (proven, failures) = runtime.block_on(moves::prove(place, paths.directory.path()));
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
    assert_eq!(proven, SETS.len() * (SETS.len() - 1));
}

/// The migrations of every set, and of every way from one set to another.
struct Paths {
    directory: TempDir,
    database: Database,
}

impl Paths {
    fn generated(database: Database) -> Self {
        let paths = Self { directory: support::temporary("sagents-paths-"), database };
        in_parallel(SETS.iter().collect(), |set| paths.generate_fresh(set));
        let pairs = SETS.iter().flat_map(|old| SETS.iter().map(move |new| (old, new)));
        let pairs = pairs.filter(|(old, new)| old.name != new.name).collect();
        in_parallel(pairs, |(old, new)| paths.generate_pair(old, new));
        paths.generate_special();
        paths
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
