//! Every rule about input. What a person gave, what was recorded and what the host shows become [`Options`], in which
//! nothing is left to default and nothing can be wrong; nobody past this room sees a clap type.

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use serde::Serialize;

use crate::database::Database;
use crate::failure::{Failure, Result};
use crate::host::Host;
use crate::host::manifest::Sqlx;
use crate::host::migrations::{self, Migrations, Table};
use crate::host::source::{self, Access, IdType, Lookup, Seen, Step};
use crate::memory::{Given, Recorded};
use crate::names::{self, ModulePath, Name, TablePrefix, TypePath, plural};
use crate::schema::{self, Kind, OwnerColumn};

#[derive(Debug)]
pub struct Options {
    pub context: ModulePath,
    pub scope: TypePath,
    /// The scope type is not there: it is created, once.
    pub create_scope: bool,
    pub owner: Option<Owner>,
    pub prefix: TablePrefix,
    pub database: Database,
    pub migrations: Utf8PathBuf,
    pub tests: bool,
    pub wire: bool,
    /// sqlx under another name in the host's Cargo.toml.
    pub sqlx_name: Option<String>,
    /// What was assumed, for the report.
    pub notes: Vec<String>,
}

#[derive(Debug)]
pub struct Owner {
    pub noun: Name,
    pub field: Name,
    pub id: IdType,
    pub storage: Storage,
    pub table: Option<OwnerTable>,
    pub access: Access,
    /// The owner's type, if it can be linked to.
    pub link: Option<TypePath>,
}

/// How the owner's key is stored in its own table, and so in ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    Integer,
    Text,
    Uuid,
    /// A UUID as text.
    UuidText,
}

impl Storage {
    pub fn kind(self) -> Kind {
        match self {
            Self::Integer => Kind::BigInteger,
            Self::Text | Self::UuidText => Kind::Text,
            Self::Uuid => Kind::Uuid,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerTable {
    pub name: String,
    pub key: String,
}

impl Options {
    pub fn resolve(context: ModulePath, given: &Given, host: &Host, recorded: &Recorded) -> Result<Self> {
        let Given {
            scope,
            owner_type,
            owner_field: _,
            owner_module: _,
            owner_table: _,
            owner_id: _,
            scope_owner: _,
            table_prefix,
            database,
            migrations,
            no_wire,
            no_tests,
        } = given;
        let scope = scope.as_deref().ok_or_else(|| {
            Failure::usage("--scope is missing: the type that says who is asking")
                .help("add it, for example `--scope MyApp.Accounts.Scope`; it is created if it does not exist")
        })?;
        let scope = TypePath::parse("--scope", scope, &host.package, &host.manifest.dependency_crates())?;
        check_context(&context, &scope, recorded)?;
        let sqlx = host.manifest.sqlx()?;
        let database = choose_database(database.as_deref(), &sqlx)?;
        let prefix = table_prefix.as_deref().unwrap_or(DEFAULT_PREFIX);
        let prefix = TablePrefix::parse(prefix, schema::LONGEST_SUFFIX, database.identifier_limit())?;
        check_prefix(&context, &prefix, recorded)?;
        let directory = migrations_directory(migrations.as_deref(), host)?;
        let mut found = migrations::read(&host.tree, &directory)?;
        // The tables of the context itself are nobody's owner, even if one is called so.
        for table in schema::schema(&prefix, None).tables {
            if given.owner_table.as_deref().is_some_and(|owner| owner.eq_ignore_ascii_case(&table.name)) {
                return Err(Failure::usage(format!(
                    "--owner-table: `{}` is a table of the context itself",
                    table.name
                ))
                .help("name the table of the owner, or `none` for no foreign key"));
            }
            found.catalog.forget(&table.name);
        }
        let mut notes = Vec::new();
        let inquiry =
            Inquiry { context: &context, scope: &scope, given, host, migrations: &found, directory: &directory };
        let lookup = source::lookup(&host.tree, &host.krate, &scope, &context)?;
        let owner = match owner_type.as_deref().unwrap_or(DEFAULT_OWNER) {
            "none" => {
                inquiry.refuse_owner_options()?;
                None
            }
            noun => Some(inquiry.owner(noun, database, &lookup, &mut notes)?),
        };
        if let Lookup::Found(definition) = &lookup
            && definition.generic
        {
            return Err(Failure::usage(format!("--scope: `{}` in {} has parameters", scope.name, definition.file))
                .help("name a type without generic parameters or lifetimes"));
        }
        Ok(Self {
            create_scope: matches!(lookup, Lookup::Absent),
            owner,
            prefix,
            database,
            migrations: directory,
            tests: !no_tests.unwrap_or(false),
            wire: !no_wire.unwrap_or(false),
            sqlx_name: sqlx.renamed,
            notes,
            context,
            scope,
        })
    }

    /// The owner as a column.
    pub fn owner_column(&self) -> Option<OwnerColumn> {
        self.owner.as_ref().map(|owner| OwnerColumn {
            name: owner.field.as_str().to_owned(),
            kind: owner.storage.kind(),
            references: owner.table.clone().map(|table| (table.name, table.key)),
        })
    }

    /// As text for `.sagents/` and for people.
    pub fn resolved(&self) -> Resolved {
        let owner = self.owner.as_ref();
        Resolved {
            context: self.context.rust(),
            scope: self.scope.rust(),
            owner_type: owner.map_or("none".to_owned(), |owner| owner.noun.to_string()),
            owner_field: owner.map(|owner| owner.field.to_string()),
            owner_id: owner.map(|owner| id_name(owner.id).to_owned()),
            owner_table: owner.map(|owner| owner.table.as_ref().map_or("none".to_owned(), |table| table.name.clone())),
            owner_key: owner.and_then(|owner| owner.table.as_ref().map(|table| table.key.clone())),
            scope_owner: owner
                .map(|owner| owner.access.steps.iter().map(|step| step.text.as_str()).collect::<Vec<_>>().join(".")),
            table_prefix: self.prefix.as_str().to_owned(),
            database: self.database,
            migrations: self.migrations.clone(),
            tests: self.tests,
        }
    }
}

/// The options with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    pub scope_owner: Option<String>,
    pub table_prefix: String,
    pub database: Database,
    pub migrations: Utf8PathBuf,
    pub tests: bool,
}

pub const DEFAULT_PREFIX: &str = "sagents_";
const DEFAULT_OWNER: &str = "user";
const DEFAULT_MIGRATIONS: &str = "migrations";

/// Everything that the questions about the owner are asked of.
struct Inquiry<'a> {
    context: &'a ModulePath,
    scope: &'a TypePath,
    given: &'a Given,
    host: &'a Host,
    migrations: &'a Migrations,
    directory: &'a Utf8Path,
}

impl Inquiry<'_> {
    fn owner(&self, noun: &str, database: Database, lookup: &Lookup, notes: &mut Vec<String>) -> Result<Owner> {
        let noun = Name::parse_plain("--owner-type", noun)?;
        let field = match &self.given.owner_field {
            Some(field) => Name::parse_plain("--owner-field", field)?,
            None => Name::parse_plain("--owner-field", &format!("{noun}_id"))?,
        };
        check_field(&field, database)?;
        let wanted = self.given.owner_id.as_deref().map(parse_id).transpose()?;
        let module = self.owner_module()?;
        let table = self.owner_table(&noun, module.as_ref(), notes)?;
        let key = table.as_ref().map_or("id", |(table, _)| table.key.as_str());
        let mut access = self.access(&noun, &field, key, module.as_ref(), lookup)?;
        let declared = table.as_ref().and_then(|(table, declared)| Some((table, declared.as_deref()?)));
        let (id, storage) = match declared {
            Some((table, declared)) => stored(table, declared, wanted)?,
            None => {
                let id = wanted.or_else(|| access.id.as_ref().and_then(id_of)).unwrap_or(IdType::I64);
                (id, storage_of(id))
            }
        };
        match &access.id {
            // A scope that is created gets a field of the right type.
            _ if matches!(lookup, Lookup::Absent) => access.id = Some(seen(id)),
            Some(seen) if id_of(seen) != Some(id) => {
                return Err(self.wrong_type(&access, seen, id, declared.map(|(table, _)| table)));
            }
            Some(_) => {}
            None => notes.push(format!(
                "The type of `{}` in {} cannot be seen; it is taken to be {}.",
                path(&access),
                self.scope.rust(),
                rust_type(id)
            )),
        }
        let link = self.link(&noun, module)?;
        Ok(Owner { noun, field, id, storage, table: table.map(|(table, _)| table), access, link })
    }

    /// With `--owner-type none`, an option about the owner contradicts it.
    fn refuse_owner_options(&self) -> Result<()> {
        let Given { owner_field, owner_module, owner_table, owner_id, scope_owner, .. } = self.given;
        for (flag, value) in [
            ("--owner-field", owner_field),
            ("--owner-module", owner_module),
            ("--owner-id", owner_id),
            ("--scope-owner", scope_owner),
            ("--owner-table", owner_table),
        ] {
            if value.as_deref().is_some_and(|value| value != "none") {
                return Err(Failure::usage(format!("{flag} contradicts --owner-type none"))
                    .help(format!("leave {flag} out, or name an owner type")));
            }
        }
        Ok(())
    }

    fn owner_module(&self) -> Result<Option<TypePath>> {
        let Some(text) = &self.given.owner_module else { return Ok(None) };
        let dependencies = self.host.manifest.dependency_crates();
        TypePath::parse("--owner-module", text, &self.host.package, &dependencies).map(Some)
    }

    /// A type that does not exist would be a broken link in the documentation.
    fn link(&self, noun: &Name, module: Option<TypePath>) -> Result<Option<TypePath>> {
        let beside =
            TypePath { krate: self.scope.krate.clone(), modules: self.scope.modules.clone(), name: noun.camel() };
        for candidate in module.into_iter().chain([beside]) {
            let found = source::lookup(&self.host.tree, &self.host.krate, &candidate, self.context)?;
            if matches!(found, Lookup::Found(_)) {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    /// The owner's table with the declared type of its key, if it could be read.
    fn owner_table(
        &self,
        noun: &Name,
        module: Option<&TypePath>,
        notes: &mut Vec<String>,
    ) -> Result<Option<(OwnerTable, Option<String>)>> {
        let catalog = &self.migrations.catalog;
        match self.given.owner_table.as_deref() {
            Some("none") => Ok(None),
            Some(name) => {
                check_table(name)?;
                let Some(table) = catalog.table(name) else {
                    notes.push(format!(
                        "{} has no table `{name}`; its key is taken to be `id`. The migration needs it to be there.",
                        self.directory
                    ));
                    return Ok(Some((OwnerTable { name: name.to_owned(), key: "id".to_owned() }, None)));
                };
                key_of(table).map(Some)
            }
            None => {
                let nouns =
                    [Some(noun.as_str().to_owned()), module.map(|module| heck::AsSnakeCase(&module.name).to_string())];
                let mut candidates: Vec<String> = Vec::new();
                for noun in nouns.into_iter().flatten() {
                    for candidate in [plural(&noun), noun] {
                        if !candidates.contains(&candidate) {
                            candidates.push(candidate);
                        }
                    }
                }
                if let Some(table) = candidates.iter().find_map(|name| catalog.table(name)) {
                    return key_of(table).map(Some);
                }
                notes.push(format!(
                    "Conversations have no foreign key to their owner, because {} has no table {}. `--owner-table` names another one, or `none`.",
                    self.directory,
                    list(&candidates)
                ));
                Ok(None)
            }
        }
    }

    fn access(
        &self,
        noun: &Name,
        field: &Name,
        key: &str,
        module: Option<&TypePath>,
        lookup: &Lookup,
    ) -> Result<Access> {
        let (tree, krate) = (&self.host.tree, &self.host.krate);
        let definition = match lookup {
            Lookup::Found(definition) => Some(definition),
            Lookup::Absent | Lookup::Opaque => None,
        };
        match (&self.given.scope_owner, lookup) {
            (Some(_), Lookup::Absent) => Err(Failure::usage(format!(
                "--scope-owner: there is no `{}` yet to read the owner from",
                self.scope.rust()
            ))
            .help("write that type first, or leave --scope-owner out to have it created")),
            (Some(text), _) => source::follow(tree, krate, self.scope, definition, text, self.context),
            (None, Lookup::Found(definition)) => {
                let owner = source::Owner { noun, field, key, module };
                source::infer(tree, krate, self.scope, definition, &owner, self.context)
            }
            (None, Lookup::Absent) => {
                Ok(Access { steps: vec![Step { text: field.rust(), optional: false }], id: None })
            }
            (None, Lookup::Opaque) => Err(Failure::decision(format!(
                "the source of `{}` cannot be read, so it is not known how it names its {noun}",
                self.scope.rust()
            ))
            .help("say it with --scope-owner, for example `--scope-owner user.id` or `--scope-owner user_id()`")),
        }
    }

    fn wrong_type(&self, access: &Access, seen: &Seen, id: IdType, table: Option<&OwnerTable>) -> Failure {
        let (path, wanted) = (path(access), rust_type(id));
        let reason = match (table, &self.given.owner_id) {
            (Some(table), _) => format!("the key `{}` of table `{}` is `{wanted}`", table.key, table.name),
            (None, Some(given)) => format!("`--owner-id {given}` asks for `{wanted}`"),
            (None, None) => format!("the owner's key is taken to be `{wanted}`"),
        };
        let what = format!("`{path}` in {} is `{}`, but {reason}", self.scope.rust(), show(seen));
        Failure::decision(what).help(match (seen, table) {
            (Seen::Other(_), _) => {
                format!("name a way to the `{wanted}` with --scope-owner, for example `{path}.id`, `{path}.0` or a method")
            }
            (_, Some(_)) => format!(
                "name a way to the `{wanted}` with --scope-owner, another table with --owner-table, or `--owner-table none`"
            ),
            (_, None) => format!("leave --owner-id out, or name a way to the `{wanted}` with --scope-owner"),
        })
    }
}

/// The name of a package that `--init` makes.
pub fn check_package(package: &str) -> Result<()> {
    const CARGO: &[&str] = &["build", "deps", "examples", "incremental", "proc_macro", "test"];
    let help = "name the package in CONTEXT, for example `MyApp.Conversations`";
    Name::parse_plain("--init", package).map_err(|failure| failure.help(help))?;
    if CARGO.contains(&package) || CRATES.contains(&package) {
        return Err(Failure::usage(format!(
            "--init: a package called `{package}` would be mistaken for another crate"
        ))
        .help(help));
    }
    Ok(())
}

fn check_context(context: &ModulePath, scope: &TypePath, recorded: &Recorded) -> Result<()> {
    let first = context.names()[0].as_str();
    if ["main", "lib", "bin"].contains(&first) {
        return Err(Failure::usage(format!("CONTEXT: src/{first} has a meaning for cargo"))
            .help("use another name, for example `conversations`"));
    }
    if first == names::RUNTIME {
        return Err(Failure::usage("CONTEXT: `sagents` is kept for the agent runtime")
            .help("use another name, for example `conversations`"));
    }
    if let Some(name) = context.names().iter().find(|name| CRATES.contains(&name.as_str())) {
        return Err(Failure::usage(format!("CONTEXT: a module called `{name}` would hide the crate of that name"))
            .help("use another name, for example `conversations`"));
    }
    let camel = context.last().camel();
    if RESERVED_TYPES.contains(&camel.as_str()) {
        return Err(Failure::usage(format!(
            "CONTEXT: the context's type would be called `{camel}`, which the generated code uses already"
        ))
        .help("use another name, for example `conversations`"));
    }
    if scope.krate.is_none() && scope.modules == context.names() {
        return Err(Failure::usage(format!("--scope: `{}` would be in the module that is generated", scope.rust()))
            .help("generate another module, for example `conversations`, or keep the scope in another one"));
    }
    if scope.krate.is_none() && scope.modules.starts_with(context.names()) {
        return Err(Failure::usage(format!("--scope: `{}` would be below the module that is generated", scope.rust()))
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

fn check_field(field: &Name, database: Database) -> Result<()> {
    if schema::own_columns().iter().any(|column| column == field.as_str()) {
        return Err(Failure::usage(format!("--owner-field: `{field}` is a column that the tables have already"))
            .help("use another name, for example `user_id`"));
    }
    let limit = database.identifier_limit();
    if field.as_str().len() > limit {
        return Err(Failure::usage(format!(
            "--owner-field: `{field}` has {} bytes, the limit is {limit}",
            field.as_str().len()
        ))
        .help("use a shorter name"));
    }
    Ok(())
}

/// A table may be called almost anything; it is quoted wherever it is written.
fn check_table(name: &str) -> Result<()> {
    let odd = name.chars().find(|c| c.is_control() || matches!(c, '"' | '\'' | ';' | '\\' | '#' | '$'));
    match odd {
        Some(odd) => {
            Err(Failure::usage(format!("--owner-table: `{}` contains {}", names::printable(name), names::show(odd)))
                .help("give the table's plain name, without quotes"))
        }
        None if name.trim().is_empty() => {
            Err(Failure::usage("--owner-table: it is empty").help("name a table, or `none` for no foreign key"))
        }
        None => Ok(()),
    }
}

fn choose_database(given: Option<&str>, sqlx: &Sqlx) -> Result<Database> {
    match given {
        Some(name) => Database::parse(name),
        None if sqlx.sqlite && (sqlx.postgres || sqlx.mysql) => {
            Err(Failure::decision("sqlx is used with several databases here")
                .help("say which one with `--database sqlite`"))
        }
        None if sqlx.postgres || sqlx.mysql => {
            Err(Failure::decision("sqlx is used with another database here, and this version generates for SQLite")
                .help("`--database sqlite` adds SQLite beside it"))
        }
        None => Ok(Database::Sqlite),
    }
}

/// Relative to the package, and inside of what the generator may write to.
fn migrations_directory(given: Option<&Utf8Path>, host: &Host) -> Result<Utf8PathBuf> {
    let directory = given.unwrap_or(Utf8Path::new(DEFAULT_MIGRATIONS));
    let root = host.tree.root();
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
    if !clean.starts_with(&host.boundary) || clean == *root {
        return Err(Failure::usage(format!(
            "--migrations: `{directory}` is not a directory inside of {}",
            host.boundary
        ))
        .help("name one relative to the package, for example `migrations`"));
    }
    let up = root.components().count() - common(root, &clean);
    let down: Vec<_> = clean.components().skip(common(root, &clean)).map(|part| part.as_str().to_owned()).collect();
    Ok(std::iter::repeat_n("..".to_owned(), up).chain(down).collect::<Utf8PathBuf>())
}

fn common(one: &Utf8Path, other: &Utf8Path) -> usize {
    one.components().zip(other.components()).take_while(|(one, other)| one == other).count()
}

/// The single column that a foreign key can name, and its declared type.
fn key_of(table: &Table) -> Result<(OwnerTable, Option<String>)> {
    let unique = || table.columns.iter().find(|column| column.unique).map(|column| column.name.as_str());
    let key = match table.primary_key.as_slice() {
        [key] => Some(key.as_str()),
        [] => unique(),
        _ => None,
    };
    let Some(key) = key else {
        let columns: Vec<_> = table.columns.iter().map(|column| format!("`{}`", column.name)).collect();
        return Err(Failure::decision(format!(
            "the table `{}` has no key of a single column that a foreign key could name; its columns are {}",
            table.name,
            columns.join(", ")
        ))
        .help("name another table with --owner-table, or `--owner-table none` for no foreign key"));
    };
    check_table(&table.name)?;
    check_table(key)?;
    let declared = table.column(key).map(|column| column.declared.clone());
    Ok((OwnerTable { name: table.name.clone(), key: key.to_owned() }, declared))
}

/// How `SQLite` stores a column that is declared so, by its rules of affinity.
fn stored(table: &OwnerTable, declared: &str, wanted: Option<IdType>) -> Result<(IdType, Storage)> {
    let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
    let contradiction = |shown: &str| {
        Err(Failure::usage(format!(
            "--owner-id: the key `{}` of table `{}` is declared `{declared}`, so it is {shown}",
            table.key, table.name
        ))
        .help("leave --owner-id out, or name another table with --owner-table"))
    };
    if has(&["INT", "SERIAL"]) {
        match wanted {
            None | Some(IdType::I64) => Ok((IdType::I64, Storage::Integer)),
            Some(_) => contradiction("i64"),
        }
    } else if has(&["CHAR", "CLOB", "TEXT"]) {
        match wanted {
            None | Some(IdType::Text) => Ok((IdType::Text, Storage::Text)),
            Some(IdType::Uuid) => Ok((IdType::Uuid, Storage::UuidText)),
            Some(IdType::I64) => contradiction("text, or uuid as text"),
        }
    } else if has(&["BLOB", "UUID", "BINARY", "BYTEA"]) {
        match wanted {
            None | Some(IdType::Uuid) => Ok((IdType::Uuid, Storage::Uuid)),
            Some(_) => contradiction("uuid"),
        }
    } else {
        match wanted {
            Some(id) => Ok((id, storage_of(id))),
            None => {
                let shown = if declared.is_empty() { "without a type".to_owned() } else { format!("`{declared}`") };
                Err(Failure::decision(format!(
                    "the key `{}` of table `{}` is declared {shown}, which does not say what it holds",
                    table.key, table.name
                ))
                .help("say it with `--owner-id i64`, `--owner-id uuid` or `--owner-id text`"))
            }
        }
    }
}

fn storage_of(id: IdType) -> Storage {
    match id {
        IdType::I64 => Storage::Integer,
        IdType::Uuid => Storage::Uuid,
        IdType::Text => Storage::Text,
    }
}

fn parse_id(text: &str) -> Result<IdType> {
    match text {
        "i64" => Ok(IdType::I64),
        "uuid" => Ok(IdType::Uuid),
        "text" => Ok(IdType::Text),
        _ => {
            Err(Failure::usage(format!("--owner-id: `{text}` is not a type of key"))
                .help("use `i64`, `uuid` or `text`"))
        }
    }
}

fn id_name(id: IdType) -> &'static str {
    match id {
        IdType::I64 => "i64",
        IdType::Uuid => "uuid",
        IdType::Text => "text",
    }
}

fn rust_type(id: IdType) -> &'static str {
    match id {
        IdType::I64 => "i64",
        IdType::Uuid => "Uuid",
        IdType::Text => "String",
    }
}

fn seen(id: IdType) -> Seen {
    match id {
        IdType::I64 => Seen::I64,
        IdType::Uuid => Seen::Uuid,
        IdType::Text => Seen::String,
    }
}

fn id_of(seen: &Seen) -> Option<IdType> {
    match seen {
        Seen::I64 | Seen::SmallInt => Some(IdType::I64),
        Seen::Uuid => Some(IdType::Uuid),
        Seen::String | Seen::Str => Some(IdType::Text),
        Seen::Ref(inner) => id_of(inner),
        Seen::Other(_) => None,
    }
}

fn show(seen: &Seen) -> String {
    match seen {
        Seen::I64 => "i64".to_owned(),
        Seen::SmallInt => "small integer".to_owned(),
        Seen::Uuid => "Uuid".to_owned(),
        Seen::String => "String".to_owned(),
        Seen::Str => "str".to_owned(),
        Seen::Ref(inner) => format!("&{}", show(inner)),
        Seen::Other(text) => text.clone(),
    }
}

fn path(access: &Access) -> String {
    access.steps.iter().map(|step| step.text.as_str()).collect::<Vec<_>>().join(".")
}

fn list(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(" or ")
}

/// The crates that generated code names.
const CRATES: &[&str] =
    &["alloc", "chrono", "core", "serde", "serde_json", "sqlx", "std", "thiserror", "tokio", "tracing", "uuid"];

/// The types that generated code names, now or with the agent runtime.
const RESERVED_TYPES: &[&str] = &[
    "AgentPersistence",
    "AgentState",
    "AsMut",
    "AsRef",
    "BTreeSet",
    "Box",
    "Change",
    "Clone",
    "ContentPart",
    "ContentType",
    "Conversation",
    "ConversationChanges",
    "ConversationCursor",
    "ConversationOrder",
    "Copy",
    "Database",
    "DateTime",
    "Debug",
    "Default",
    "Deserialize",
    "DisplayMessage",
    "Drop",
    "Duration",
    "Eq",
    "Err",
    "Error",
    "Expect",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "FromRow",
    "Future",
    "HitlDecision",
    "Into",
    "Iterator",
    "Json",
    "ListConversations",
    "Map",
    "Message",
    "MessagePage",
    "MessagePosition",
    "NewConversation",
    "NewDisplayMessage",
    "None",
    "Ok",
    "Option",
    "Ord",
    "Owner",
    "OwnerScope",
    "PartialEq",
    "PartialOrd",
    "PathBuf",
    "PgPool",
    "Result",
    "Revision",
    "Role",
    "Row",
    "Saved",
    "Send",
    "Serialize",
    "Some",
    "Sqlite",
    "SqliteConnectOptions",
    "SqliteConnection",
    "SqliteJournalMode",
    "SqlitePool",
    "SqlitePoolOptions",
    "SqliteSynchronous",
    "State",
    "String",
    "Sync",
    "TimeDelta",
    "ToString",
    "Todo",
    "ToolCall",
    "ToolResult",
    "ToolStatus",
    "Transaction",
    "Utc",
    "Uuid",
    "Value",
    "Vec",
];
