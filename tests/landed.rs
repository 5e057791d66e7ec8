//! What the first version generated, with rows and edits, leads to what the program of today generates.

#[path = "support/story.rs"]
mod story;
#[path = "support/mod.rs"]
mod support;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use story::{Notes, Real, Story};
use support::{Host, manifest};

/// A project of the first version, see landed/README.md.
struct Landed {
    name: &'static str,
    /// What it would be generated with today.
    options: &'static str,
    /// The columns that no fresh install has: of a former owner, and of the host.
    more: &'static [&'static str],
    /// What the host put into generated files.
    edits: &'static [(&'static str, &'static str)],
}

const SQLITE: [Landed; 3] = [
    Landed {
        name: "sqlite_user",
        options: "conversations --scope crate::accounts::Scope --owner-module crate::accounts::User --database sqlite",
        more: &["pinned"],
        edits: &[
            ("src/conversations/conversation.rs", "    pub pinned: bool,\n"),
            ("src/conversations/display_message.rs", "    pub fn first_line(&self) -> &str {\n"),
        ],
    },
    Landed {
        name: "sqlite_none",
        options: "conversations --scope crate::scope::Everyone --owner-type none --database sqlite",
        more: &[],
        edits: &[],
    },
    Landed {
        name: "sqlite_text",
        options: "chat --scope crate::scope::Scope --scope-owner login --owner-type login --owner-id text \
                  --owner-table logins --table-prefix chat_ --database sqlite",
        more: &[],
        edits: &[],
    },
];

const POSTGRES: [Landed; 2] = [
    Landed {
        name: "postgres_team",
        options: "conversations --scope crate::scope::Scope --scope-owner team_id --owner-type team --owner-id uuid \
                  --owner-table teams --database postgres",
        more: &["user_id"],
        edits: &[],
    },
    Landed {
        name: "postgres_none",
        options: "conversations --scope crate::scope::Everyone --owner-type none --database postgres \
                  --table-prefix as_long_as_a_prefix_may_be_in_tables",
        more: &[],
        edits: &[],
    },
];

#[test]
fn what_landed_leads_to_today_on_sqlite() {
    for landed in SQLITE {
        landed.prove(&Real::Sqlite);
    }
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn what_landed_leads_to_today_on_postgres() {
    let real = Real::postgres();
    for landed in POSTGRES {
        landed.prove(&real);
    }
}

impl Landed {
    /// The update keeps edits and migrations; its migrations lead to the tables of a fresh install, with all rows.
    fn prove(&self, real: &Real) {
        let host = Host::empty();
        copy(&directory("shared"), host.root());
        copy(&directory(self.name), host.root());
        let (landed, tables) = (migrations(&host), self.tables(&host));
        let run = host.sagents("update");
        // Templates and edits may have changed the same lines.
        assert!(run.code == 0 || run.code == 4, "{}: {}{}", self.name, run.stdout, run.stderr);
        for (path, edit) in self.edits {
            assert!(host.read(path).contains(edit), "{}: {path}", self.name);
        }
        let check = host.sagents("check");
        assert_eq!(check.code, run.code, "{}: {}{}", self.name, check.stdout, check.stderr);
        let mut new = migrations(&host);
        for migration in &landed {
            assert!(new.contains(migration), "{}: {} was changed", self.name, migration.0);
        }
        new.retain(|migration| !landed.contains(migration));
        for script in ups(&new) {
            // A tool call has a status more.
            let rebuilt = script.lines().filter(|line| line.contains(" RENAME TO "));
            let mut others = rebuilt.filter(|line| !line.contains("display_messages"));
            assert_eq!(others.next(), None, "{}: nothing else has to be rebuilt\n{script}", self.name);
        }
        let notes = self.play(real, &landed, &new, &tables, &self.tables(&host));
        notes.unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Moves a database of the first version there, and back if there is a way.
    fn play(
        &self,
        real: &Real,
        landed: &[Migration],
        new: &[Migration],
        tables: &[Table],
        tables_now: &[Table],
    ) -> Result<(), String> {
        let fresh = self.fresh(real, tables_now)?;
        let session = real.open();
        let mut story = session.story();
        run_all(ups(landed), &mut story);
        story.run(&fs::read_to_string(directory(&format!("{}.sql", self.name))).unwrap());
        note_tables("landed", tables, &mut story);
        note_rows("landed rows", tables, &mut story);
        run_all(ups(new), &mut story);
        note_tables("updated", tables_now, &mut story);
        note_rows("updated rows", tables, &mut story);
        let downs: Vec<_> = new.iter().rev().filter(|(name, _)| is_down(name)).collect();
        run_all(downs.iter().map(|(_, script)| script.as_str()), &mut story);
        note_tables("back", if downs.is_empty() { tables_now } else { tables }, &mut story);
        note_rows("rows back", tables, &mut story);
        let mut notes = story.play()?;
        notes.add(fresh);
        for (table, _) in tables_now {
            let is_more = |line: &str| self.more.iter().any(|column| line.starts_with(&format!("{table}: {column} ")));
            notes.leave_out("updated", is_more);
        }
        notes.same("fresh", "updated")?;
        notes.same("landed rows", "updated rows")?;
        notes.same("landed rows", "rows back")?;
        if downs.is_empty() { Ok(()) } else { notes.same("landed", "back") }
    }

    /// The tables of a fresh install.
    fn fresh(&self, real: &Real, tables: &[Table]) -> Result<Notes, String> {
        let host = Host::empty().file("Cargo.toml", &manifest("my_app", "2024", ""));
        for module in ["accounts", "scope"] {
            if let Ok(text) = fs::read_to_string(directory(self.name).join(format!("src/{module}.rs"))) {
                host.write(&format!("src/{module}.rs"), &text);
                host.write("src/lib.rs", &format!("pub mod {module};\n"));
            }
        }
        let owners = ["0001_users.up.sql", "0001_owners.up.sql", "20250101000000_logins.sql"];
        for name in owners.map(|name| format!("migrations/{name}")) {
            if let Ok(text) = fs::read_to_string(directory(self.name).join(&name)) {
                host.write(&name, &text);
                host.write(&name.replace(".up.", ".down."), &text);
            }
        }
        host.generate(&format!("gen persistence {} --no-tests", self.options));
        let session = real.open();
        let mut story = session.story();
        run_all(ups(&migrations(&host)), &mut story);
        note_tables("fresh", tables, &mut story);
        story.play()
    }

    /// The recorded tables.
    fn tables(&self, host: &Host) -> Vec<Table> {
        let schema: Value = serde_json::from_str(&host.read(&host.find("/schema.json"))).unwrap();
        let names = |value: &Value| {
            value.as_array().unwrap().iter().map(|value| value["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let tables = schema["tables"].as_array().unwrap().iter();
        let tables = tables.zip(names(&schema["tables"])).map(|(table, name)| (name, names(&table["columns"])));
        let mut tables: Vec<_> = tables.collect();
        if self.more.contains(&"pinned") {
            tables[0].1.push("pinned".to_owned());
        }
        tables
    }
}

/// A name and the script.
type Migration = (String, String);

/// A name and the columns.
type Table = (String, Vec<String>);

fn migrations(host: &Host) -> Vec<Migration> {
    let files = host.files().into_iter().filter(|(path, _)| path.starts_with("migrations/"));
    files.map(|(path, text)| (path, String::from_utf8(text).unwrap())).collect()
}

fn ups(migrations: &[Migration]) -> impl Iterator<Item = &str> {
    migrations.iter().filter(|(name, _)| !is_down(name)).map(|(_, script)| script.as_str())
}

fn is_down(name: &str) -> bool {
    name.ends_with(".down.sql")
}

fn run_all<'a>(scripts: impl Iterator<Item = &'a str>, story: &mut Story) {
    for script in scripts {
        story.run(script);
    }
}

fn note_tables(step: &str, tables: &[Table], story: &mut Story) {
    for (table, _) in tables {
        story.note_table(step, table);
    }
}

fn note_rows(step: &str, tables: &[Table], story: &mut Story) {
    for (table, columns) in tables {
        story.note_rows(step, table, columns.iter().map(String::as_str));
    }
}

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/landed").join(name)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        // Cargo would take a directory with a Cargo.toml for a package, and leave it out of ours.
        let name = from.file_name().unwrap();
        let to = to.join(if name == "manifest.toml" { OsStr::new("Cargo.toml") } else { name });
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}
