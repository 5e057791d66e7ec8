//! Options, schema and host become a plan: an ordered map from path to what should stand there. Pure; the clock is a
//! value. Planning a path twice is a bug that shows at once.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use chrono::{DateTime, Utc};

use crate::database::Database;
use crate::failure::{Failure, Result};
use crate::host::Host;
use crate::host::manifest::{Need, SqlxVersion};
use crate::host::migrations;
use crate::host::modules::{self, Declaration, Found, Module};
use crate::memory::{self, Files, Given, Last};
use crate::names::{ModulePath, Name, crate_name};
use crate::options::Options;
use crate::schema::{self, Schema, sql};
use crate::templates::{self, Words};

#[derive(Debug)]
pub struct Plan {
    pub files: BTreeMap<Utf8PathBuf, Planned>,
    /// The lines that `--no-wire` leaves to the user, by file.
    pub unwired: Vec<(Utf8PathBuf, Vec<String>)>,
    /// Migrations that this run adds.
    pub migrations: Vec<Utf8PathBuf>,
}

/// What should stand at a path, and whose it is.
#[derive(Debug, PartialEq, Eq)]
pub enum Planned {
    /// Generated Rust, before formatting. Reruns bring it up to date. It is remembered with the context or with the
    /// runtime.
    Generated { text: String, home: ModulePath },
    /// Created if it is missing; the host's from then on. Rust is formatted.
    Once(String),
    /// A file of the host's, with lines added.
    Edit { text: String, added: Vec<String> },
    /// A migration: emitted once, never rewritten.
    Migration(String),
    /// The generator's own memory.
    Memory(String),
}

pub fn plan(options: &Options, given: &Given, host: &Host, last: &Last, now: DateTime<Utc>) -> Result<Plan> {
    let schema = schema::schema(&options.prefix, options.owner_column().as_ref());
    let mut builder = Builder::new(options, host, last);
    let migrations = builder.migrate(&schema, now)?;
    builder.add_scope()?;
    let module = builder.place(&options.context, true)?;
    builder.add_runtime()?;
    let words = Words::new(options, module.public, &crate_name(&host.package), &migrations);
    builder.add_context(&module, &words);
    builder.wire_manifest()?;
    if host.is_new() {
        builder.add_init(&words);
    }
    builder.remember(given, &schema, migrations)?;
    Ok(builder.finish())
}

struct Builder<'a> {
    options: &'a Options,
    host: &'a Host,
    last: &'a Last,
    files: BTreeMap<Utf8PathBuf, Planned>,
    /// The host's files that get lines added, as they are so far.
    edits: BTreeMap<Utf8PathBuf, (String, Vec<String>)>,
    migrations: Vec<Utf8PathBuf>,
}

impl<'a> Builder<'a> {
    fn new(options: &'a Options, host: &'a Host, last: &'a Last) -> Self {
        let edits = host.laid.iter().map(|(path, text)| (path.clone(), (text.clone(), Vec::new()))).collect();
        Self { options, host, last, files: BTreeMap::new(), edits, migrations: Vec::new() }
    }

    fn add(&mut self, path: impl Into<Utf8PathBuf>, planned: Planned) {
        let path = path.into();
        let before = self.files.insert(path.clone(), planned);
        assert!(before.is_none(), "{path} is planned twice");
    }

    /// Plans the migration unless an earlier run emitted it. Returns every script that makes the tables, in order.
    fn migrate(&mut self, schema: &Schema, now: DateTime<Utc>) -> Result<Vec<Utf8PathBuf>> {
        // A migration that was deleted before it ran is as good as never emitted.
        let emitted = &self.last.files.migrations;
        let is_gone = !emitted.is_empty() && emitted.iter().all(|path| !self.host.tree.is_file(path));
        if let Some(before) = self.last.schema.as_ref().filter(|_| !is_gone) {
            let database = self.last.resolved.get("database").and_then(toml::Value::as_str);
            if before != schema || database.is_some_and(|name| name != self.options.database.name()) {
                return Err(other_tables(self.options, &self.last.resolved));
            }
            return Ok(self.last.files.migrations.clone());
        }
        let directory = &self.options.migrations;
        let found = migrations::read(&self.host.tree, directory, self.options.database)?;
        if let Some(table) = schema.tables.iter().find(|table| found.catalog.table(&table.name).is_some()) {
            return Err(Failure::decision(format!(
                "the migrations in {directory} make a table `{}` already",
                table.name
            ))
            .help("choose other names with --table-prefix"));
        }
        let prefix = self.options.prefix.as_str();
        let subject = if prefix.is_empty() { format!("{}_", self.options.context.last()) } else { prefix.to_owned() };
        let stem = format!("{}_create_{}persistence", found.next_version(now), with_underscore(&subject));
        let up = sql::create(schema, self.options.database);
        if found.habit.reversible {
            self.add_migration(directory.join(format!("{stem}.down.sql")), sql::drop(schema, self.options.database));
            self.add_migration(directory.join(format!("{stem}.up.sql")), up);
        } else {
            self.add_migration(directory.join(format!("{stem}.sql")), up);
        }
        let forward = self.migrations.iter().filter(|path| !path.as_str().ends_with(".down.sql"));
        Ok(forward.cloned().collect())
    }

    fn add_migration(&mut self, path: Utf8PathBuf, text: String) {
        self.migrations.push(path.clone());
        self.add(path, Planned::Migration(text));
    }

    fn add_scope(&mut self) -> Result<()> {
        if !self.options.create_scope {
            return Ok(());
        }
        let modules = &self.options.scope.modules;
        let module = if modules.is_empty() {
            self.root()?
        } else {
            self.place(&ModulePath::of(modules.iter().cloned()), false)?
        };
        let text = templates::scope_type(self.options, module.public);
        if let Some(existing) = self.current(&module.file)?
            && !self.was_created(&module.file)
        {
            let newline = if existing.contains("\r\n") { "\r\n" } else { "\n" };
            let gap = if existing.trim().is_empty() { "" } else { "\n" };
            let appended = format!("{}\n{gap}{text}", existing.trim_end()).replace("\r\n", "\n").replace('\n', newline);
            // Whoever adds it by hand needs all of it.
            let added = if self.options.wire {
                vec![format!("pub struct {}", self.options.scope.name)]
            } else {
                text.lines().map(str::to_owned).collect()
            };
            for line in added {
                self.edit(module.file.clone(), appended.clone(), line);
            }
        } else {
            let noun = self
                .options
                .owner
                .as_ref()
                .map_or("the application".to_owned(), |owner| format!("which {}", owner.noun));
            self.add(module.file, Planned::Once(format!("//! Who is asking, and for {noun}.\n\n{text}")));
        }
        Ok(())
    }

    fn add_context(&mut self, module: &Module, words: &Words) {
        for (name, text) in templates::context(words) {
            let path = match name {
                None => module.file.clone(),
                Some(name) => module.directory.join(format!("{name}.rs")),
            };
            self.add(path, Planned::Generated { text, home: self.options.context.clone() });
        }
    }

    fn add_runtime(&mut self) -> Result<()> {
        let home = ModulePath::runtime();
        let module = self.place(&home, true)?;
        for (name, text) in templates::RUNTIME {
            let path = match name {
                None => module.file.clone(),
                Some(name) => module.directory.join(format!("{name}.rs")),
            };
            self.add(path, Planned::Generated { text: (*text).to_owned(), home: home.clone() });
        }
        Ok(())
    }

    /// Where a module is or will be. Parents that are missing are created, and every `mod` line on the way is added.
    fn place(&mut self, path: &ModulePath, context: bool) -> Result<Module> {
        let inline = |file: &Utf8Path| {
            Failure::usage(format!("`{}` is, or is inside of, a module that is written inline in {file}", path.rust()))
                .help("move that module to a file of its own, or choose another path")
        };
        let (mut module, depth) = match modules::find(&self.host.tree, &self.host.krate, path.names())? {
            Found::Module(module) => return Ok(module),
            Found::Inline { file } => return Err(inline(&file)),
            Found::Missing { parent, depth } => (parent, depth),
        };
        let missing = &path.names()[depth..];
        if depth == 0 && self.host.manifest.dependency_crates().iter().any(|krate| krate == missing[0].as_str()) {
            return Err(Failure::usage(format!(
                "`{}` is outside of this crate: `{}` is a dependency, and a module of that name would hide it",
                path.rust(),
                missing[0]
            ))
            .help("choose another path, for example `crate::conversations`"));
        }
        for (index, name) in missing.iter().enumerate() {
            let is_last = index + 1 == missing.len();
            let public = self.host.krate.library;
            self.declare(&module.file, name, public)?;
            module = modules::child(&self.host.krate, &module, name, public);
            let taken = self.files.contains_key(&module.file) || self.host.tree.is_file(&module.file);
            if !is_last && !taken {
                self.add(module.file.clone(), Planned::Once(format!("//! The modules of `{name}`.\n")));
            } else if !context && self.host.tree.is_file(&module.file) && !self.was_created(&module.file) {
                return Err(undeclared(&module.file, name));
            }
        }
        Ok(module)
    }

    /// An earlier run created it, perhaps without the line that declares it.
    fn was_created(&self, file: &Utf8Path) -> bool {
        self.last.files.once.iter().any(|created| created == file)
    }

    fn root(&self) -> Result<Module> {
        match modules::find(&self.host.tree, &self.host.krate, &[])? {
            Found::Module(module) => Ok(module),
            Found::Inline { .. } | Found::Missing { .. } => unreachable!("a crate's root is a file"),
        }
    }

    fn declare(&mut self, file: &Utf8Path, name: &Name, public: bool) -> Result<()> {
        let line = format!("{}mod {};", if public { "pub " } else { "" }, name.rust());
        let declaration = Declaration { name, public };
        if let Some(Planned::Once(text)) = self.files.get_mut(file) {
            if let Some(declared) = modules::declare(file, text, &declaration)? {
                *text = declared;
            }
            return Ok(());
        }
        let text = self.current(file)?.unwrap_or_default();
        if let Some(declared) = modules::declare(file, &text, &declaration)? {
            self.edit(file.to_owned(), declared, line);
        }
        Ok(())
    }

    fn wire_manifest(&mut self) -> Result<()> {
        let wiring = self.host.manifest.with(&needs(self.options, self.host)?)?;
        for line in wiring.lines {
            self.edit("Cargo.toml".into(), wiring.text.clone(), line);
        }
        if let Some(name) = &self.options.sqlx_name {
            let line = format!("extern crate {name} as sqlx;");
            let root = self.host.krate.root.clone();
            let text = self.current(&root)?.unwrap_or_default();
            if let Some(text) = modules::declare_extern(&root, &text, &line)? {
                self.edit(root, text, line);
            }
        }
        Ok(())
    }

    fn add_init(&mut self, words: &Words) {
        const BUILD: &str = "\
fn main() {
    // `sqlx::migrate!` does not see a new migration by itself.
    println!(\"cargo:rerun-if-changed=migrations\");
}
";
        self.add("src/main.rs", Planned::Once(templates::main(self.options, words, &self.host.package)));
        self.add("build.rs", Planned::Once(BUILD.replace("=migrations", &format!("={}", self.options.migrations))));
        let ignored = match self.options.database {
            Database::Sqlite => "/target\n*.db\n*.db-shm\n*.db-wal\n",
            Database::Postgres => "/target\n",
        };
        self.add(".gitignore", Planned::Once(ignored.to_owned()));
    }

    /// What the next run needs to know.
    fn remember(&mut self, given: &Given, schema: &Schema, migrations: Vec<Utf8PathBuf>) -> Result<()> {
        let context = &self.options.context;
        let mut files = Files { generated: Vec::new(), once: self.last.files.once.clone(), migrations };
        let mut runtime = Files::default();
        let mut bases = Vec::new();
        for (path, planned) in &self.files {
            match planned {
                Planned::Generated { text, home } => {
                    let inventory = if home == context { &mut files } else { &mut runtime };
                    inventory.generated.push(path.clone());
                    bases.push((memory::base_file(home, path), text.clone()));
                }
                Planned::Once(_) => files.once.push(path.clone()),
                Planned::Edit { .. } | Planned::Migration(_) | Planned::Memory(_) => {}
            }
        }
        files.once.extend(self.host.laid.iter().map(|(path, _)| path.clone()));
        files.once.sort();
        files.once.dedup();
        let resolved = toml::to_string(&self.options.resolved()).expect("resolved options are plain values");
        let schema = serde_json::to_string_pretty(schema).expect("a schema is plain data") + "\n";
        for (home, files) in [(context, files), (&ModulePath::runtime(), runtime)] {
            let inventory = toml::to_string_pretty(&files).expect("a list of files is plain data");
            self.add(memory::files_file(home), Planned::Memory(inventory));
        }
        self.add(memory::resolved_file(context), Planned::Memory(resolved));
        self.add(memory::schema_file(context), Planned::Memory(schema));
        self.add(memory::OPTIONS_FILE, Planned::Memory(memory::options_text(&self.host.tree, context, given)?));
        for (path, text) in bases {
            self.add(path, Planned::Memory(text));
        }
        Ok(())
    }

    fn current(&self, path: &Utf8Path) -> Result<Option<String>> {
        match self.edits.get(path) {
            Some((text, _)) => Ok(Some(text.clone())),
            None => self.host.tree.read(path),
        }
    }

    fn edit(&mut self, path: Utf8PathBuf, text: String, added: String) {
        let edit = self.edits.entry(path).or_default();
        edit.0 = text;
        edit.1.push(added);
    }

    fn finish(mut self) -> Plan {
        let mut unwired = Vec::new();
        for (path, (text, added)) in std::mem::take(&mut self.edits) {
            if self.options.wire || self.host.is_new() {
                self.add(path, Planned::Edit { text, added });
            } else {
                unwired.push((path, added));
            }
        }
        Plan { files: self.files, unwired, migrations: self.migrations }
    }
}

/// The crates that the generated code names.
fn needs(options: &Options, host: &Host) -> Result<Vec<Need>> {
    let need = |name, version, minimum, features| Need { name, version, minimum, features, dev: false };
    let sqlx = match host.manifest.sqlx()?.version {
        Some(SqlxVersion::V0_8) => "0.8",
        // sqlx 0.9 asks for Rust 1.94.
        None if host.manifest.rust_version().is_some_and(|version| (version.major, version.minor) < (1, 94)) => "0.8",
        Some(SqlxVersion::V0_9) | None => "0.9",
    };
    let mut needs = vec![
        need("chrono", "0.4", "0.4.31", &["clock", "serde", "std"] as &[_]),
        need("serde", "1.0", "1.0.0", &["derive"]),
        need("serde_json", "1.0", "1.0.0", &["float_roundtrip"]),
        need(
            "sqlx",
            sqlx,
            "0.8.4",
            match options.database {
                Database::Sqlite => &["chrono", "derive", "json", "runtime-tokio", "sqlite", "uuid"],
                Database::Postgres => &["chrono", "derive", "json", "postgres", "runtime-tokio", "uuid"],
            },
        ),
        need("thiserror", "2.0", "1.0.0", &[]),
        need("tracing", "0.1", "0.1.0", &[]),
        need("uuid", "1.10", "1.10.0", &["serde", "v7"]),
    ];
    let tokio: &[_] = match options.database {
        Database::Sqlite => &["sync", "time"],
        Database::Postgres => &["time"],
    };
    if host.is_new() {
        needs.push(need("tokio", "1.40", "1.40.0", &["macros", "rt-multi-thread"]));
        needs.push(need("tokio", "1.40", "1.40.0", tokio));
        needs.push(need("sqlx", sqlx, "0.8.4", &["macros", "migrate"]));
    } else {
        needs.push(need("tokio", "1.40", "1.40.0", tokio));
        if options.tests {
            let dev = need("tokio", "1.40", "1.40.0", &["macros", "rt-multi-thread"]);
            needs.push(Need { dev: true, ..dev });
        }
    }
    Ok(needs)
}

/// The tables would be others than those that a migration has made: because of which options, and what keeps them.
fn other_tables(options: &Options, before: &toml::Table) -> Failure {
    const OPTIONS: [&str; 6] = ["owner-type", "owner-field", "owner-id", "owner-table", "table-prefix", "database"];
    let now = toml::Table::try_from(options.resolved()).expect("resolved options are plain values");
    let value =
        |table: &toml::Table, option: &str| table.get(option).and_then(|value| value.as_str().map(str::to_owned));
    let quoted = |value: &str| if value.is_empty() { "''".to_owned() } else { value.to_owned() };
    let (mut differences, mut flags) = (Vec::new(), Vec::new());
    for option in OPTIONS {
        let (before, now) = (value(before, option), value(&now, option));
        if before != now {
            let show =
                |value: &Option<String>| value.as_deref().map_or("absent".to_owned(), |v| format!("`{}`", quoted(v)));
            differences.push(format!("{option} was {} and is now {}", show(&before), show(&now)));
            flags.extend(before.map(|before| format!("--{option} {}", quoted(&before))));
        }
    }
    let differences =
        if differences.is_empty() { "this version makes others".to_owned() } else { differences.join(", ") };
    let keep = if flags.is_empty() { String::new() } else { format!("keep them with `{}`, or ", flags.join(" ")) };
    Failure::decision(format!(
        "the tables of `{}` are in a migration already, and would have to change: {differences}",
        options.context.key()
    ))
    .help(format!("this version does not change tables: {keep}generate another context"))
}

fn with_underscore(subject: &str) -> String {
    if subject.ends_with('_') { subject.to_owned() } else { format!("{subject}_") }
}

fn undeclared(file: &Utf8Path, name: &Name) -> Failure {
    Failure::decision(format!("{file} is there, but no `mod {};` declares it", name.rust()))
        .help(format!("declare it, or move {file} away"))
}
