//! Every rule about input. What a person gave, what was recorded and what the host shows become [`Options`], in which
//! nothing is left to default and everything is valid; no later module sees a clap type.

mod database;
mod group;
mod key;
mod library;
mod lints;
mod owner;
mod rerun;
mod reserved;
mod shared;
mod web;

pub use self::group::{Group, GroupTable, NewOwners, new_owners};
pub use self::key::OwnerTable;
pub use self::library::Library;
pub use self::owner::Owner;
pub use self::rerun::{Carried, Dropped, carry, refuse_other_database, refuse_other_inference, refuse_unknown_owners};
pub use self::reserved::is_reserved;
pub use self::web::Web;

use std::collections::BTreeSet;

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

use self::database::Choice;
use self::owner::Inquiry;
use self::reserved::{PAGE_MODULES, is_crate};
use crate::chain::Scene;
use crate::database::{Database, Dialect as _};
use crate::failure::{Failure, Result};
use crate::given::Given;
use crate::host::Host;
use crate::host::drivers::{self, Evidence};
use crate::host::migrations::{self, Catalog, Migrations, Migrator, Place, Tool};
use crate::host::source::{self, Access, Lookup};
use crate::memory::{self, Last, Recorded};
use crate::names::{self, ModulePath, Name, TablePrefix, TypePath};
use crate::note::Note;
use crate::schema::{self, OwnerColumn, OwnerKey, Reading};

#[derive(Debug)]
pub struct Options {
    pub context: ModulePath,
    pub scope: TypePath,
    pub scope_origin: ScopeOrigin,
    /// Where another context, or the host itself, implements `OwnerScope` for the scope.
    pub shared_scope: Option<Utf8PathBuf>,
    pub owner: Option<Owner>,
    /// The group whose scope may read what its members own.
    pub group: Option<Group>,
    pub prefix: TablePrefix,
    pub database: Database,
    /// What shows that it is the host's; nothing if it was given, or is the default.
    pub database_shown_by: Option<String>,
    pub migrations: Utf8PathBuf,
    pub web: Web,
    pub tests: bool,
    pub wire: bool,
    /// Where the host has the library from.
    pub library: Library,
    /// How rows get another owner.
    pub backfill: Option<Backfill>,
    /// The migrations as they are, those of the context included.
    pub found: Migrations,
    /// What was assumed.
    pub notes: Vec<Note>,
}

/// Where the scope type comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeOrigin {
    /// The host has it.
    Host,
    /// It is not there: it is created, once.
    Created,
    /// The context brings one of its own: nothing has an owner, so that nobody has to be told apart.
    Context,
}

/// An SQL expression that gives a conversation its new owner, or `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backfill {
    pub text: String,
    /// It is for the change of owner in this run, not for an earlier one.
    pub is_used_now: bool,
}

impl Options {
    pub fn resolve(
        context: ModulePath,
        carried: &Carried,
        host: &Host,
        recorded: &Recorded,
        last: &Last,
    ) -> Result<Self> {
        let given = &carried.given;
        let Given {
            scope,
            owner_type,
            owner_field: _,
            owner_module: _,
            owner_table: _,
            owner_id: _,
            scope_owner: _,
            group_type,
            group_field: _,
            group_table: _,
            scope_group: _,
            table_prefix,
            database,
            migrations,
            web,
            library: _,
            no_wire,
            no_tests,
            backfill: _,
            ejected: _,
        } = given;
        let noun = owner_type.as_deref().unwrap_or(DEFAULT_OWNER);
        let (scope, is_own) = scope_of(scope.as_deref(), noun, &context, host)?;
        let web = Web::choose(web.as_deref())?;
        check_context(&context, (!is_own).then_some(&scope), web, recorded)?;
        let sqlx = host.manifest.sqlx();
        let evidence = drivers::evidence(host, &sqlx);
        let Choice { database, shown_by } = database::choose(database.as_deref(), &evidence)?;
        let prefix = table_prefix.as_deref().unwrap_or(DEFAULT_PREFIX);
        let prefix = TablePrefix::parse(prefix, schema::LONGEST_SUFFIX, database.identifier_limit())?;
        check_prefix(&context, &prefix, recorded)?;
        let place = migrations_place(migrations.as_deref(), host, last)?;
        let found = migrations::read(&host.tree, &place, database)?;
        let directory = place.directory;
        refuse_mixed_migrations(migrations.as_deref(), &directory, database, &evidence, &found)?;
        let catalog = tables_of_others(given, &prefix, database, found.catalog.clone())?;
        let mut notes = Vec::new();
        let inquiry =
            Inquiry { context: &context, scope: &scope, given, host, catalog: &catalog, directory: &directory, last };
        let mut lookup = if is_own { Lookup::Absent } else { host.source(&context).lookup(&scope)? };
        let written = lookup.clone();
        if is_untouched(&lookup, &scope, last, host)? {
            lookup = Lookup::Absent;
        }
        let created = Some(&scope).filter(|_| !is_own && matches!(lookup, Lookup::Absent));
        check_created(created)?;
        if web == Web::Axum && last.made_package(host) {
            check_page(&context, created)?;
        }
        let owner = match noun {
            NO_OWNER => {
                inquiry.refuse_owner_options()?;
                None
            }
            noun => Some(inquiry.owner(noun, database, &lookup, &mut notes)?),
        };
        let group = match (&owner, group_type.as_deref().unwrap_or(NO_GROUP)) {
            (Some(owner), noun) if noun != NO_GROUP => Some(inquiry.group(noun, owner, database, &lookup, &mut notes)?),
            _ => {
                inquiry.refuse_group_options()?;
                None
            }
        };
        if !is_own {
            host.source(&context).check_scope(&scope)?;
        }
        let recorded_library = recorded.contexts.get(&context.key()).and_then(|given| given.library.as_deref());
        let library = Library::choose(given.library.as_deref(), recorded_library, host)?;
        notes.extend(library.note(host));
        let options = Self {
            scope_origin: match lookup {
                _ if is_own => ScopeOrigin::Context,
                Lookup::Absent => ScopeOrigin::Created,
                Lookup::Found(_) | Lookup::Opaque | Lookup::Made(_) => ScopeOrigin::Host,
            },
            shared_scope: None,
            backfill: None,
            owner,
            group,
            prefix,
            database,
            database_shown_by: shown_by,
            migrations: directory,
            web,
            tests: !no_tests.unwrap_or(false),
            wire: !no_wire.unwrap_or(false),
            library,
            found,
            notes,
            context,
            scope,
        };
        lints::refuse_forbidden(&options, host)?;
        let backfill = rerun::backfill(carried, &options, &catalog, last)?;
        let shared_scope = shared::scope(&options, &written, host, recorded, last)?;
        Ok(Self { shared_scope, backfill, ..options })
    }

    /// Where the context's migrations are looked for.
    pub fn scene<'a>(&'a self, krate: &'a str, host: &'a Host) -> Scene<'a> {
        let Self { context, migrations: directory, found, .. } = self;
        Scene { tree: &host.tree, krate, context, directory, found }
    }

    /// The expression for the change of owner in this run.
    pub fn backfill_now(&self) -> Option<&str> {
        let now = self.backfill.as_ref().filter(|backfill| backfill.is_used_now).map(|backfill| backfill.text.as_str());
        now.filter(|text| *text != rerun::NO_BACKFILL)
    }

    /// A person said that there are no conversations, or that the migration may stop where there are.
    pub fn allows_only_empty_tables(&self) -> bool {
        self.backfill.as_ref().is_some_and(|backfill| backfill.is_used_now && backfill.text == rerun::NO_BACKFILL)
    }

    /// The owner as a column.
    pub fn owner_column(&self) -> OwnerColumn {
        self.owner.as_ref().map_or_else(OwnerColumn::none, |owner| OwnerColumn {
            name: owner.field.as_str().to_owned(),
            kind: owner.key.column(),
            references: owner.table.clone().map(|table| OwnerKey {
                schema: table.schema,
                table: table.name,
                column: table.key,
            }),
        })
    }

    /// As text for `.sagents/` and for people.
    pub fn resolved(&self) -> Resolved {
        let (owner, group) = (self.owner.as_ref(), self.group.as_ref());
        Resolved {
            context: self.context.rust(),
            scope: self.scope.rust(),
            owner_type: owner.map_or(NO_OWNER.to_owned(), |owner| owner.noun.to_string()),
            owner_field: owner.map(|owner| owner.field.to_string()),
            owner_id: owner.map(|owner| owner.key.name().to_owned()),
            owner_table: owner.map(|owner| owner.table.as_ref().map_or("none".to_owned(), OwnerTable::shown)),
            owner_key: owner.and_then(|owner| owner.table.as_ref().map(|table| table.key.clone())),
            owner_module: owner.and_then(|owner| owner.module.as_ref().map(TypePath::rust)),
            scope_owner: owner.map(|owner| owner.access.shown()),
            group_type: group.map(|group| group.noun.to_string()),
            group_field: group.map(|group| group.field.to_string()),
            group_id: group.map(|group| group.key.name().to_owned()),
            group_table: group.map(|group| group.table.shown()),
            group_member: group.map(|group| group.table.member.clone()),
            scope_group: group.and_then(|group| group.access.as_ref().map(Access::shown)),
            table_prefix: self.prefix.as_str().to_owned(),
            database: self.database,
            migrations: self.migrations.clone(),
            web: self.web,
            tests: self.tests,
            backfill: self.backfill.as_ref().map(|backfill| backfill.text.clone()),
        }
    }
}

/// The tables of the context itself are not the owner's, even if one has its name.
fn tables_of_others(given: &Given, prefix: &TablePrefix, database: Database, mut catalog: Catalog) -> Result<Catalog> {
    for table in schema::schema(prefix, &OwnerColumn::none(), false).tables {
        for (flag, named, help) in [
            ("--owner-table", &given.owner_table, "name the table of the owner, or `none` for no foreign key"),
            ("--group-table", &given.group_table, "name the table of the owner, or one of memberships"),
        ] {
            let named = named.as_deref().map(|named| OwnerTable::named(named, database).place(database));
            if named.is_some_and(|named| named.schema.is_none() && named.table.eq_ignore_ascii_case(&table.name)) {
                let what = format!("{flag}: `{}` is a table of the context itself", table.name);
                return Err(Failure::usage(what).help(help));
            }
        }
        catalog.forget(&table.name);
    }
    Ok(catalog)
}

/// A scope type that the generator made and that has no edits counts as absent: it is made again.
fn is_untouched(lookup: &Lookup, scope: &TypePath, last: &Last, host: &Host) -> Result<bool> {
    let (Lookup::Found(definition), Some(created)) = (lookup, &last.files.scope) else { return Ok(false) };
    if definition.file != created.file {
        return Ok(false);
    }
    let text = host.tree.read(&created.file)?.unwrap_or_default();
    let same_name = created.text.contains(&format!("pub struct {}", scope.name));
    Ok(same_name && source::untouched(&text, &created.text).is_some())
}

/// A scope that is not in the host, which has these types.
pub fn absent_scope(scope: &TypePath, types: &[TypePath]) -> Failure {
    const MOST: usize = 3;
    let names: BTreeSet<_> = types.iter().map(|ty| ty.name.as_str()).collect();
    let close = similar::get_close_matches(scope.name.as_str(), &names.into_iter().collect::<Vec<_>>(), MOST, 0.7);
    let nearest = close.iter().flat_map(|name| types.iter().filter(move |ty| ty.name == **name));
    let nearest: Vec<_> = nearest.take(MOST).collect();
    let shown = nearest.iter().map(|ty| format!("`{}`", ty.rust())).collect::<Vec<_>>().join(", ");
    let (known, choice) = match nearest.as_slice() {
        [] => (String::new(), "name a type that is there with --scope"),
        [_] => (format!("; the nearest is {shown}"), "name it with --scope"),
        _ => (format!("; the nearest are {shown}"), "name one of them with --scope"),
    };
    Failure::decision(format!("--scope: there is no `{}`{known}", scope.rust()))
        .help(format!("{choice}, or have it written with --create-scope"))
}

/// The options with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Resolved {
    pub context: String,
    pub scope: String,
    pub owner_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_table: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_module: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope_owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_table: Option<String>,
    /// The column of that table that names the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_member: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope_group: Option<String>,
    pub table_prefix: String,
    pub database: Database,
    pub migrations: Utf8PathBuf,
    #[serde(default, skip_serializing_if = "Web::is_none")]
    pub web: Web,
    pub tests: bool,
    /// The one that was used last; it is for one change of owner and no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backfill: Option<String>,
}

impl Resolved {
    /// Whether the rows belong to the same owners, by the same key.
    pub fn has_owner_of(&self, other: &Self) -> bool {
        let owner = |of: &Self| {
            let Self { owner_type, owner_id, owner_table, owner_key, .. } = of;
            (owner_type.clone(), owner_id.clone(), owner_table.clone(), owner_key.clone())
        };
        owner(self) == owner(other)
    }

    /// How the owner's id is read from a scope.
    pub fn owner_reading(&self) -> Option<Reading> {
        Some(Reading { scope: self.scope.clone(), way: self.scope_owner.clone()? })
    }

    /// How the group's id is read from a scope.
    pub fn group_reading(&self) -> Option<Reading> {
        Some(Reading { scope: self.scope.clone(), way: self.scope_group.clone()? })
    }
}

pub const DEFAULT_PREFIX: &str = "sagents_";
pub const DEFAULT_OWNER: &str = "user";
/// The owner type of conversations that have no owner.
pub const NO_OWNER: &str = "none";
/// What `--group-type` is by default.
pub const NO_GROUP: &str = "none";

/// The type of the scope, and whether the context brings it.
fn scope_of(scope: Option<&str>, owner: &str, context: &ModulePath, host: &Host) -> Result<(TypePath, bool)> {
    match scope {
        Some(scope) => {
            let scope = TypePath::parse("--scope", scope, &host.package, &host.manifest.dependency_crates())?;
            host.source(context).refuse_foreign(&scope)?;
            Ok((scope, false))
        }
        None if owner == NO_OWNER => Ok((everyone(context), true)),
        None => Err(Failure::usage("--scope is missing: the type that holds who is asking").help(
            "add it, for example `--scope MyApp.Accounts.Scope`; \
             where conversations have no owner, `--owner-type none` needs none",
        )),
    }
}

/// The name of a package that `--init` makes.
pub fn check_package(package: &str) -> Result<()> {
    const CARGO: &[&str] = &["build", "deps", "examples", "incremental", "proc_macro", "test"];
    let help = "name the package in CONTEXT, for example `MyApp.Conversations`";
    Name::parse_plain("--init", package).map_err(|failure| failure.help(help))?;
    // A new package has sqlx beside the library, for `migrate!`.
    if CARGO.contains(&package) || package == "sqlx" || is_crate(package, Web::Axum) {
        return Err(Failure::usage(format!(
            "--init: a package called `{package}` would be mistaken for another crate"
        ))
        .help(help));
    }
    Ok(())
}

/// The scope type that a context brings where conversations have no owner.
fn everyone(context: &ModulePath) -> TypePath {
    TypePath { krate: None, modules: context.names().to_vec(), name: "Everyone".to_owned() }
}

/// A package of `--init` with a page has modules of its own. `scope` is the one that is written.
fn check_page(context: &ModulePath, scope: Option<&TypePath>) -> Result<()> {
    let first = [context.names().first(), scope.and_then(|scope| scope.modules.first())];
    let taken = first.into_iter().flatten().find(|name| PAGE_MODULES.contains(&name.as_str()));
    match taken {
        Some(name) => Err(Failure::usage(format!("--web: src/{name}.rs is a file of a package with a page"))
            .help("use another name for CONTEXT or the module of --scope")),
        None => Ok(()),
    }
}

/// `scope` is the one that is written.
fn check_created(scope: Option<&TypePath>) -> Result<()> {
    let first = scope.and_then(|scope| scope.modules.first());
    match first.filter(|name| CARGO_MODULES.contains(&name.as_str())) {
        Some(name) => Err(Failure::usage(format!("--scope: src/{name} has a meaning for cargo"))
            .help("keep the scope in another module, for example `crate::accounts::Scope`")),
        None => Ok(()),
    }
}

/// What cargo looks for in `src/`.
const CARGO_MODULES: [&str; 3] = ["main", "lib", "bin"];

/// `scope` is the host's, if it has one.
fn check_context(context: &ModulePath, scope: Option<&TypePath>, web: Web, recorded: &Recorded) -> Result<()> {
    let refuse = |what: String| {
        Err(Failure::usage(format!("CONTEXT: {what}")).help("use another name, for example `conversations`"))
    };
    let first = context.names()[0].as_str();
    if CARGO_MODULES.contains(&first) {
        return refuse(format!("src/{first} has a meaning for cargo"));
    }
    if let Some(name) = context.names().iter().find(|name| is_crate(name.as_str(), web)) {
        return refuse(format!("a module called `{name}` would hide the crate of that name"));
    }
    let camel = context.last().camel();
    if is_reserved(&camel, web) {
        return refuse(format!("the context's type would be called `{camel}`, which the generated code uses already"));
    }
    if let Some(scope) = scope
        && scope.modules.starts_with(context.names())
    {
        let place = if scope.modules == context.names() { "in" } else { "below" };
        let what = format!("--scope: `{}` would be {place} the module that is generated", scope.rust());
        return Err(Failure::usage(what)
            .help("generate another module, for example `conversations`, or keep the scope in another one"));
    }
    let key = context.key();
    for other in recorded.contexts.keys().filter(|other| **other != key) {
        if key.starts_with(&format!("{other}::")) || other.starts_with(&format!("{key}::")) {
            return Err(Failure::usage(format!("CONTEXT: `{key}` and `{other}` would be inside each other"))
                .help("put the contexts beside each other"));
        }
    }
    Ok(())
}

fn check_prefix(context: &ModulePath, prefix: &TablePrefix, recorded: &Recorded) -> Result<()> {
    let key = context.key();
    let same = |given: &Given| given.table_prefix.as_deref().unwrap_or(DEFAULT_PREFIX) == prefix.as_str();
    match recorded.contexts.iter().find(|(other, given)| **other != key && same(given)) {
        Some((other, _)) => Err(Failure::usage(format!(
            "--table-prefix: `{}` is used by the context `{other}`; the tables would be the same",
            prefix.as_str()
        ))
        .help(format!("give this one another, for example `--table-prefix {}_`", context.last()))),
        None => Ok(()),
    }
}

/// One directory cannot hold the migrations of two databases.
fn refuse_mixed_migrations(
    given: Option<&Utf8Path>,
    directory: &Utf8Path,
    database: Database,
    evidence: &[Evidence],
    found: &Migrations,
) -> Result<()> {
    let (own, other) = database::shown(evidence, database);
    if given.is_some() || own || !other || found.is_empty() {
        return Ok(());
    }
    Err(Failure::decision(format!(
        "the migrations in {directory} are for another database, which this project uses now"
    ))
    .help(format!("give these a directory of their own, for example `--migrations {directory}/{}`", database.name())))
}

/// Where migrations go: as it is given, as it was while the emitted ones are still there, or where the host's own tool
/// looks for them.
pub fn migrations_place(given: Option<&Utf8Path>, host: &Host, last: &Last) -> Result<Place> {
    if let Some(given) = given {
        return Place::named(migrations_directory(given, host)?, host);
    }
    let before = last.resolved.as_ref().map(|before| before.migrations.as_path());
    let mut emitted = last.files.migrations.iter().map(|emitted| &emitted.file);
    let there = emitted.find(|file| Some(migrations::directory_of(file)) == before && host.tree.is_file(file));
    // The host may have another tool now, in the same directory or elsewhere.
    if let (Some(before), Some(tool)) = (before, there.and_then(|file| Tool::of_script(file))) {
        return Ok(Place { directory: before.to_owned(), tool });
    }
    let own = Place::of_host(host);
    match before.filter(|before| there.is_some() && !own.as_ref().is_ok_and(|own| own.directory == *before)) {
        Some(before) => Place::named(before.to_owned(), host),
        None => {
            let Place { directory, tool } = own?;
            Ok(Place { directory: migrations_directory(&directory, host)?, tool })
        }
    }
}

/// Relative to the package, inside of what the generator may write to, and not among files of another kind.
fn migrations_directory(directory: &Utf8Path, host: &Host) -> Result<Utf8PathBuf> {
    let root = host.tree.root();
    check_directory_name(directory)?;
    let mut clean = root.to_owned();
    for component in directory.components() {
        match component {
            Utf8Component::ParentDir => {
                clean.pop();
            }
            Utf8Component::Normal(name) => clean.push(name),
            Utf8Component::CurDir => {}
            Utf8Component::RootDir | Utf8Component::Prefix(_) => clean = Utf8PathBuf::from(component.as_str()),
        }
    }
    if !clean.starts_with(&host.boundary) || clean == host.boundary || clean == *root {
        return Err(Failure::usage(format!(
            "--migrations: `{directory}` is not a directory inside of {}",
            host.boundary
        ))
        .help("name one relative to the package, for example `migrations`"));
    }
    if let Some(what) = taken_directory(&clean, host) {
        return Err(Failure::usage(format!("--migrations: `{directory}` {what}"))
            .help("name a directory of their own, for example `migrations`"));
    }
    let up = root.components().count() - common(root, &clean);
    let down: Vec<_> = clean.components().skip(common(root, &clean)).map(|part| part.as_str().to_owned()).collect();
    Ok(std::iter::repeat_n("..".to_owned(), up).chain(down).collect::<Utf8PathBuf>())
}

fn check_directory_name(directory: &Utf8Path) -> Result<()> {
    const LONGEST: usize = 200;
    let refuse = |what: String| {
        let shown = names::printable(directory.as_str());
        Err(Failure::usage(format!("--migrations: `{shown}` {what}"))
            .help("use a plain name, for example `migrations`"))
    };
    if directory.as_str().trim() != directory {
        return refuse("has spaces around it".to_owned());
    }
    // Generated code has it in string literals, some of them format strings.
    if let Some(odd) = directory.as_str().chars().find(|c| c.is_control() || matches!(c, '"' | '\\' | '{' | '}')) {
        return refuse(format!("contains {}", names::show(odd)));
    }
    match directory.components().map(|part| part.as_str().len()).find(|length| *length > LONGEST) {
        Some(length) => refuse(format!("has a name of {length} bytes in it, the limit is {LONGEST}")),
        None => Ok(()),
    }
}

/// Why a directory is not one for migrations. Those that are among the sources already may stay there.
fn taken_directory(directory: &Utf8Path, host: &Host) -> Option<&'static str> {
    let root = host.tree.root();
    let inside = |parent: &Utf8Path| directory.strip_prefix(parent).unwrap_or(Utf8Path::new("")).to_owned();
    let has = |name: &str| inside(&host.boundary).components().any(|part| part.as_str() == name);
    let holds_migrations = || {
        let entries = directory.read_dir_utf8().into_iter().flatten().flatten();
        entries.into_iter().any(|entry| {
            let is_rust = || Migrator::read(&std::fs::read_to_string(entry.path()).unwrap_or_default()).is_some();
            let has_script = || entry.path().join("up.sql").is_file();
            match entry.path().extension() {
                Some("sql") => true,
                Some("rs") => is_rust(),
                _ => has_script(),
            }
        })
    };
    let sources = ["src", host.krate.root.parent().map_or("", Utf8Path::as_str)].map(|name| root.join(name));
    let is_source = sources.iter().any(|sources| sources != root && directory.starts_with(sources));
    if has(".git") {
        Some("belongs to git")
    } else if has(memory::DIRECTORY) {
        Some("belongs to the generator")
    } else if [root, &host.boundary].iter().any(|parent| inside(parent).starts_with("target")) {
        Some("is where cargo builds")
    } else if is_source && !holds_migrations() {
        Some("is among the source files")
    } else {
        None
    }
}

fn common(one: &Utf8Path, other: &Utf8Path) -> usize {
    one.components().zip(other.components()).take_while(|(one, other)| one == other).count()
}
