//! Options, tables and host become a plan: an ordered map from path to what should be there. Nothing is written, and the
//! clock is a value. Every function here returns the part that it adds; planning a path twice is a bug that shows at
//! once.

mod edit;
mod needs;
mod place;
mod scope;
mod tables;

use std::collections::BTreeMap;

use camino::Utf8PathBuf;
use chrono::{DateTime, Utc};

use self::edit::Edit;
use self::place::{Purpose, generated, place};
use self::tables::{Tables, tables};
use crate::chain::Chain;
use crate::database::Database;
use crate::digest;
use crate::failure::Result;
use crate::given::Given;
use crate::host::migrations::{Tool, is_down};
use crate::host::{Host, modules};
use crate::memory::{self, Created, Emitted, Last};
use crate::names::{Name, crate_name};
use crate::options::{Options, Web};
use crate::templates;

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags")]
pub struct Plan {
    pub files: PlannedFiles,
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
    /// The migration is for empty tables only: the new owners are not known.
    pub lacks_backfill: bool,
    /// The columns of former owners, which are still there.
    pub former_owners: Vec<String>,
    /// The scope type, if the generator made it and it was not edited since.
    pub scope: Option<Created>,
    /// Generated files that the host took over.
    pub ejected: Vec<Utf8PathBuf>,
    /// `sagents.toml` knew the context before.
    pub recorded: bool,
    /// The context's files were deleted as a whole, and come back.
    pub recreated: bool,
    /// The files that explain the rest to a reviewer.
    pub read_first: Vec<Utf8PathBuf>,
    /// The package has a server with a page, which mounts the routes.
    pub has_page: bool,
}

/// What a plan starts from, beside the options.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The options to record in `sagents.toml`.
    pub given: &'a Given,
    pub last: &'a Last,
    /// The migrations that were emitted so far.
    pub chain: &'a Chain,
    pub recorded: bool,
    /// The context's files were deleted as a whole, and come back.
    pub recreated: bool,
    pub drop_old_owner: bool,
    pub now: DateTime<Utc>,
}

/// What should be at a path, and whose it is.
#[derive(Debug, PartialEq, Eq)]
pub enum Planned {
    /// Generated Rust before formatting. Reruns bring it up to date.
    Generated(String),
    /// Created if it is missing; the host's from then on. Rust is formatted.
    Once(String),
    /// A file of the host's, with lines added.
    Edit { text: String, added: Vec<String> },
    /// A migration: emitted once, never rewritten.
    Migration(String),
    /// The generator's own memory.
    Memory(String),
}

pub type PlannedFiles = BTreeMap<Utf8PathBuf, Planned>;

/// Lines for the user to add, by file.
pub type Unwired = Vec<(Utf8PathBuf, Vec<String>)>;

pub fn plan(options: &Options, host: &Host, start: Start) -> Result<Plan> {
    let tables = tables(options, &crate_name(&host.package), start)?;
    let schema = memory::schema_text(&tables.schema);
    let digest = digest::of_text(&schema);
    let scope = scope::created(options, host, start)?;
    let context = place(host, start, &options.context, Purpose::Generated)?;
    let module = context.module.clone();
    let has_page = start.last.made_package(host) && options.web == Web::Axum;
    let former_owners = tables.former_owners();
    let file = module.file.file_name().unwrap_or_default();
    let texts = templates::Context::new(options, file, module.public, &former_owners);
    let (scope, scope_part) = scope.unzip();
    let parts = [
        migrations(&tables),
        registrations(options, &tables),
        scope_part.unwrap_or_default(),
        generated(context, texts.files()),
        needs::manifest(options, host, has_page)?,
        new_package(options, host, start.last),
        attributes(host)?,
        memory(options, host, start.given, schema)?,
    ];
    let (files, unwired) = join(host, options.wire, parts)?;
    let new: Vec<_> = tables.new.iter().map(|(path, _)| path.clone()).collect();
    let scripts = new.iter().filter(|path| !is_down(path)).cloned();
    let scope_file = options.shared_scope.clone().unwrap_or_else(|| module.directory.join("scope.rs"));
    let read_first = [module.file, scope_file].into_iter().chain(scripts).collect();
    Ok(Plan {
        files,
        unwired,
        migrations: new,
        former_owners,
        emitted: tables.emitted,
        replaced: tables.replaced,
        tables: tables.name,
        schema: digest,
        lacks_backfill: tables.lacks_backfill,
        scope,
        ejected: start.given.ejected.iter().flatten().map(|path| modules::clean(path)).collect(),
        recorded: start.recorded,
        recreated: start.recreated,
        read_first,
        has_page,
    })
}

/// What one step adds to a plan.
#[derive(Default)]
struct Part {
    files: Vec<(Utf8PathBuf, Planned)>,
    /// Modules above generated ones. They are created unless something else is planned at their path.
    parents: Vec<(Utf8PathBuf, String)>,
    edits: Vec<Edit>,
}

impl Part {
    fn files(files: impl IntoIterator<Item = (Utf8PathBuf, Planned)>) -> Self {
        Self { files: files.into_iter().collect(), ..Self::default() }
    }
}

/// Puts the parts together: the files, and the lines that are left to the user.
fn join(host: &Host, wire: bool, parts: impl IntoIterator<Item = Part>) -> Result<(PlannedFiles, Unwired)> {
    let mut files = PlannedFiles::new();
    let (mut all_parents, mut all_edits) = (Vec::new(), Vec::new());
    for Part { files: more, parents, edits } in parts {
        for (path, planned) in more {
            let before = files.insert(path.clone(), planned);
            assert!(before.is_none(), "{path} is planned twice");
        }
        all_parents.extend(parents);
        all_edits.extend(edits);
    }
    for (path, text) in all_parents {
        files.entry(path).or_insert(Planned::Once(text));
    }
    let edited = edit::apply(host, &mut files, all_edits)?;
    let (wired, unwired): (Vec<_>, Vec<_>) = edited.into_iter().partition(|_| wire || host.is_new());
    for (path, (text, added)) in wired {
        let before = files.insert(path.clone(), Planned::Edit { text, added });
        assert!(before.is_none(), "{path} is planned and edited");
    }
    Ok((files, unwired.into_iter().map(|(path, (_, added))| (path, added)).collect()))
}

fn migrations(tables: &Tables) -> Part {
    let scripts = tables.new.iter().chain(&tables.adopted);
    Part::files(scripts.map(|(path, text)| (path.clone(), Planned::Migration(text.clone()))))
}

/// Migrations in Rust count when their `Migrator` lists them.
fn registrations(options: &Options, tables: &Tables) -> Part {
    let Tool::SeaOrm { migrator } = &options.found.tool else { return Part::default() };
    let mut edits = Vec::new();
    for emitted in tables.emitted.iter().filter(|emitted| emitted.file.extension() == Some("rs")) {
        let Some(Ok(name)) = emitted.file.file_stem().map(|stem| Name::parse_plain("", stem)) else { continue };
        edits.push(Edit::declaration(migrator, &name, false));
        edits.push(Edit::registration(migrator, name.as_str(), options.wire));
    }
    Part { edits, ..Part::default() }
}

/// The files of a package that `--init` made, beside those of the context.
fn new_package(options: &Options, host: &Host, last: &Last) -> Part {
    if !last.made_package(host) {
        return Part::default();
    }
    let build = format!(
        "\
fn main() {{
    // `sqlx::migrate!` does not see a new migration by itself.
    println!(\"cargo:rerun-if-changed={}\");
}}
",
        options.migrations
    );
    let ignored = match options.database {
        Database::Sqlite => "/target\n*.db\n*.db-shm\n*.db-wal\n",
        Database::Postgres => "/target\n",
    };
    let main = match options.web {
        Web::None => templates::main(options, &host.package),
        Web::Axum => templates::example::server(options, &host.package),
    };
    let files = [("src/main.rs", main), ("build.rs", build), (".gitignore", ignored.to_owned())];
    let mut part = Part::files(files.map(|(path, text)| (path.into(), Planned::Once(text))));
    if options.web == Web::Axum {
        for (name, text) in templates::example::modules(options) {
            part.files.push((format!("src/{name}.rs").into(), Planned::Once(text)));
            let name = Name::parse_plain("", name).expect("they have plain names");
            part.edits.push(Edit::declaration(&host.krate.root, &name, host.krate.library));
        }
    }
    part
}

/// Reviews fold what `.gitattributes` marks as generated. The host's first run adds the line; it may be removed.
fn attributes(host: &Host) -> Result<Part> {
    if memory::exists(&host.tree)? {
        return Ok(Part::default());
    }
    let line = format!("{}/** linguist-generated=true", memory::DIRECTORY);
    Ok(Part { edits: vec![Edit::line(".gitattributes", line)], ..Part::default() })
}

/// What the next run needs to know of the options and the tables. `change` remembers the files.
fn memory(options: &Options, host: &Host, given: &Given, schema: String) -> Result<Part> {
    let context = &options.context;
    let resolved = toml::to_string(&options.resolved()).expect("resolved options are plain values");
    let files = [
        (memory::resolved_file(context), resolved),
        (memory::schema_file(context), schema),
        (memory::OPTIONS_FILE.into(), memory::options_text(&host.tree, context, given)?),
    ];
    Ok(Part::files(files.map(|(path, text)| (path, Planned::Memory(text)))))
}
