//! Options, schema and host become a plan: an ordered map from path to what should stand there. Pure; the clock is a
//! value. Planning a path twice is a bug that shows at once.

mod tables;

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use chrono::{DateTime, Utc};

use self::tables::{Tables, tables};
use crate::database::Database;
use crate::digest;
use crate::failure::{Failure, Result};
use crate::given::Given;
use crate::host::Host;
use crate::host::manifest::{Need, SqlxVersion};
use crate::host::modules::{self, Declaration, Found, Module};
use crate::host::source;
use crate::memory::{self, Created, Emitted, Last};
use crate::names::{ModulePath, Name};
use crate::options::Options;
use crate::templates::{self, Files};

#[derive(Debug)]
pub struct Plan {
    pub files: BTreeMap<Utf8PathBuf, Planned>,
    /// The lines that `--no-wire` leaves to the user, by file.
    pub unwired: Unwired,
    /// The migration that this run adds.
    pub migrations: Vec<Utf8PathBuf>,
    /// Every emitted migration, those of this run included.
    pub emitted: Vec<Emitted>,
    /// Emitted once, and replaced by migrations of the host's own that make the same tables.
    pub replaced: Vec<Utf8PathBuf>,
    /// What the newest migration calls the tables.
    pub tables: Option<String>,
    /// The digest of the recorded schema.
    pub schema: String,
    /// The migration is for empty tables only: nobody said who the new owners are.
    pub lacks_backfill: bool,
    /// The columns of former owners, which are still there.
    pub former_owners: Vec<String>,
    /// The scope type, if the generator made it and nobody touched it since.
    pub scope: Option<Created>,
    /// Generated files that the host took over.
    pub ejected: Vec<Utf8PathBuf>,
    /// `sagents.toml` knew the context before.
    pub recorded: bool,
    /// The modules whose files were deleted as a whole, and come back.
    pub recreated: Vec<ModulePath>,
}

/// What a plan starts from, beside the options.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    pub given: &'a Given,
    pub last: &'a Last,
    pub recorded: bool,
    /// The modules whose files were deleted as a whole, and come back.
    pub recreated: &'a [ModulePath],
    /// How rows get another owner, if that was said for this run.
    pub backfill: Option<&'a str>,
    pub drop_old_owner: bool,
    pub now: DateTime<Utc>,
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

pub fn plan(options: &Options, host: &Host, start: Start) -> Result<Plan> {
    let tables = tables(options, host, start)?;
    let mut builder = Builder::new(options, host, start);
    for (path, text) in tables.new.iter().chain(&tables.adopted) {
        builder.add(path.clone(), Planned::Migration(text.clone()));
    }
    let scope = builder.add_scope()?;
    let module = builder.place(&options.context, true)?;
    builder.add_runtime()?;
    let context = templates::Context::new(options, module.public, &tables.for_tests(options));
    builder.add_files(&options.context, &module, context.files());
    builder.wire_manifest()?;
    if host.is_new() || builder.was_created(Utf8Path::new("src/main.rs")) {
        builder.add_init();
    }
    let schema = builder.remember(&tables)?;
    let (files, unwired) = builder.finish();
    Ok(Plan {
        files,
        unwired,
        migrations: tables.new.iter().map(|(path, _)| path.clone()).collect(),
        former_owners: tables.former_owners(),
        emitted: tables.emitted,
        replaced: tables.replaced,
        tables: tables.name,
        schema,
        lacks_backfill: tables.lacks_backfill,
        scope,
        ejected: start.given.ejected.iter().flatten().map(|path| modules::clean(path)).collect(),
        recorded: start.recorded,
        recreated: start.recreated.to_vec(),
    })
}

/// The files so far. A module may be declared in a file that was planned a moment before.
struct Builder<'a> {
    options: &'a Options,
    host: &'a Host,
    start: Start<'a>,
    files: BTreeMap<Utf8PathBuf, Planned>,
    /// The host's files that get lines added, as they are so far.
    edits: BTreeMap<Utf8PathBuf, (String, Vec<String>)>,
}

impl<'a> Builder<'a> {
    fn new(options: &'a Options, host: &'a Host, start: Start<'a>) -> Self {
        let edits = host.laid.iter().map(|(path, text)| (path.clone(), (text.clone(), Vec::new()))).collect();
        Self { options, host, start, files: BTreeMap::new(), edits }
    }

    fn add(&mut self, path: impl Into<Utf8PathBuf>, planned: Planned) {
        let path = path.into();
        let before = self.files.insert(path.clone(), planned);
        assert!(before.is_none(), "{path} is planned twice");
    }

    /// Plans the scope type if the host has none, and returns what was made of it.
    fn add_scope(&mut self) -> Result<Option<Created>> {
        if !self.options.create_scope {
            return Ok(None);
        }
        let modules = &self.options.scope.modules;
        let module = if modules.is_empty() {
            self.root()?
        } else {
            self.place(&ModulePath::of(modules.iter().cloned()), false)?
        };
        let text = templates::scope_type(self.options, module.public);
        let created = Some(Created { file: module.file.clone(), text: text.clone() });
        let newline = |existing: &str| if existing.contains("\r\n") { "\r\n" } else { "\n" };
        if let (Some(before), Some(existing)) = (&self.start.last.files.scope, self.current(&module.file)?)
            && before.file == module.file
            && let Some(place) = source::untouched(&existing, &before.text)
        {
            if before.text != text {
                let mut replaced = existing.clone();
                replaced.replace_range(place, &text.trim_end().replace('\n', newline(&existing)));
                self.edit(module.file, replaced, format!("pub struct {}", self.options.scope.name));
            }
            return Ok(created);
        }
        if let Some(existing) = self.current(&module.file)?
            && !self.was_created(&module.file)
        {
            let newline = newline(&existing);
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
        Ok(created)
    }

    fn add_runtime(&mut self) -> Result<()> {
        let home = ModulePath::runtime();
        let module = self.place(&home, true)?;
        self.add_files(&home, &module, templates::runtime());
        let path = ModulePath::sessions();
        let sessions = match modules::find(&self.host.tree, &self.host.krate, path.names())? {
            Found::Module(found) => found,
            Found::Inline { .. } | Found::Missing { .. } => {
                modules::child(&self.host.krate, &module, path.last(), true)
            }
        };
        self.add_files(&home, &sessions, templates::sessions());
        Ok(())
    }

    /// Plans a module and the files below it.
    fn add_files(&mut self, home: &ModulePath, module: &Module, files: Files) {
        for (name, text) in files {
            let path = match name {
                None => module.file.clone(),
                Some(name) => module.directory.join(format!("{name}.rs")),
            };
            self.add(path, Planned::Generated { text, home: home.clone() });
        }
    }

    /// Where a module is or will be. Parents that are missing are created, and every `mod` line on the way is added.
    fn place(&mut self, path: &ModulePath, context: bool) -> Result<Module> {
        let inline = |file: &Utf8Path| {
            Failure::usage(format!("`{}` is, or is inside of, a module that is written inline in {file}", path.rust()))
                .help("move that module to a file of its own, or choose another path")
        };
        let krate = &self.host.krate;
        let (mut module, depth) = match modules::find(&self.host.tree, krate, path.names()) {
            Ok(Found::Module(module)) => return Ok(module),
            Ok(Found::Inline { file }) => return Err(inline(&file)),
            Ok(Found::Missing { parent, depth }) => (parent, depth),
            // Its file was deleted, and the line that declares it was not.
            Err(failure) if self.start.recreated.contains(path) => {
                let (last, above) = path.names().split_last().expect("a module has a name");
                return match modules::find(&self.host.tree, krate, above)? {
                    Found::Module(parent) => Ok(modules::child(krate, &parent, last, krate.library)),
                    Found::Inline { .. } | Found::Missing { .. } => Err(failure),
                };
            }
            Err(failure) => return Err(failure),
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
        source::refuse_taken(&self.host.tree, &self.host.krate, &path.names()[..depth], &missing[0])?;
        for (index, name) in missing.iter().enumerate() {
            let is_last = index + 1 == missing.len();
            let public = self.host.krate.library;
            self.declare(&module.file, name, public)?;
            module = modules::child(&self.host.krate, &module, name, public);
            let taken = self.files.contains_key(&module.file) || self.host.tree.is_file(&module.file);
            if !is_last && !taken {
                if self.was_created(&module.file) && !self.start.recreated.contains(path) {
                    return Err(deleted(&module.file, path));
                }
                self.add(module.file.clone(), Planned::Once(format!("//! The modules of `{name}`.\n")));
            } else if !context && self.host.tree.is_file(&module.file) && !self.was_created(&module.file) {
                return Err(undeclared(&module.file, name));
            }
        }
        Ok(module)
    }

    /// An earlier run created it, perhaps without the line that declares it.
    fn was_created(&self, file: &Utf8Path) -> bool {
        self.start.last.files.once.contains_key(file)
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

    fn add_init(&mut self) {
        const BUILD: &str = "\
fn main() {
    // `sqlx::migrate!` does not see a new migration by itself.
    println!(\"cargo:rerun-if-changed=migrations\");
}
";
        self.add("src/main.rs", Planned::Once(templates::main(self.options, &self.host.package)));
        self.add("build.rs", Planned::Once(BUILD.replace("=migrations", &format!("={}", self.options.migrations))));
        let ignored = match self.options.database {
            Database::Sqlite => "/target\n*.db\n*.db-shm\n*.db-wal\n",
            Database::Postgres => "/target\n",
        };
        self.add(".gitignore", Planned::Once(ignored.to_owned()));
    }

    /// What the next run needs to know of the options and the tables. `change` remembers the files. Returns the digest of
    /// the schema.
    fn remember(&mut self, tables: &Tables) -> Result<String> {
        let context = &self.options.context;
        let resolved = toml::to_string(&self.options.resolved()).expect("resolved options are plain values");
        let schema = serde_json::to_string_pretty(&tables.schema).expect("a schema is plain data") + "\n";
        let digest = digest::of_text(&schema);
        self.add(memory::resolved_file(context), Planned::Memory(resolved));
        self.add(memory::schema_file(context), Planned::Memory(schema));
        let options = memory::options_text(&self.host.tree, context, self.start.given)?;
        self.add(memory::OPTIONS_FILE, Planned::Memory(options));
        Ok(digest)
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

    /// The files, and the lines that are left to the user.
    fn finish(mut self) -> (BTreeMap<Utf8PathBuf, Planned>, Unwired) {
        let mut unwired = Vec::new();
        for (path, (text, added)) in std::mem::take(&mut self.edits) {
            if self.options.wire || self.host.is_new() {
                self.add(path, Planned::Edit { text, added });
            } else {
                unwired.push((path, added));
            }
        }
        (self.files, unwired)
    }
}

/// Lines for the user to add, by file.
pub type Unwired = Vec<(Utf8PathBuf, Vec<String>)>;

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
    let tokio: &[_] = &["rt", "sync", "time"];
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

fn deleted(file: &Utf8Path, path: &ModulePath) -> Failure {
    Failure::decision(format!("{file} was generated for `{}` and is gone: it was moved or deleted", path.key()))
        .help(format!("restore {file} from version control"))
}

fn undeclared(file: &Utf8Path, name: &Name) -> Failure {
    Failure::decision(format!("{file} is there, but no `mod {};` declares it", name.rust()))
        .help(format!("declare it, or move {file} away"))
}
