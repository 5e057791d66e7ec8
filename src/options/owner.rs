//! The owner of a conversation: its name, its field, its table, and the way to it from the scope. What was given is
//! held against the host's source and migrations; where they leave a choice, a person decides with a flag.

use camino::Utf8Path;

use super::NO_GROUP;
use super::key::{OWNER_TABLE, OwnerTable, check_table, key_of, type_of};
use crate::database::{Database, Dialect as _};
use crate::failure::{Failure, Result};
use crate::given::Given;
use crate::host::Host;
use crate::host::migrations::{Catalog, Table};
use crate::host::source::{Access, Around, Definition, End, Lookup, Seen, Sought};
use crate::key::KeyType;
use crate::memory::Last;
use crate::names::{ModulePath, Name, TypePath, plural};
use crate::note::Note;
use crate::schema::{self, Ownership as _, Reading};

#[derive(Debug)]
pub struct Owner {
    pub noun: Name,
    pub field: Name,
    pub key: KeyType,
    pub table: Option<OwnerTable>,
    pub access: Access,
    /// Its Rust type, if that was given.
    pub module: Option<TypePath>,
    /// The owner's type, if it can be linked to.
    pub link: Option<TypePath>,
}

/// Everything that the questions about the owner are asked of.
pub(super) struct Inquiry<'a> {
    pub(super) context: &'a ModulePath,
    pub(super) scope: &'a TypePath,
    pub(super) given: &'a Given,
    pub(super) host: &'a Host,
    pub(super) catalog: &'a Catalog,
    pub(super) directory: &'a Utf8Path,
    pub(super) last: &'a Last,
}

impl Inquiry<'_> {
    pub(super) fn owner(
        &self,
        noun: &str,
        database: Database,
        lookup: &Lookup,
        notes: &mut Vec<Note>,
    ) -> Result<Owner> {
        let noun = Name::parse_plain("--owner-type", noun)?;
        let field = match &self.given.owner_field {
            Some(field) => Name::parse_plain("--owner-field", field)?,
            None => Name::parse_plain("--owner-field", &format!("{noun}_id"))?,
        };
        check_field(&field, database)?;
        let wanted = self.given.owner_id.as_deref().map(KeyType::parse).transpose()?;
        let module = self.owner_module()?;
        let table = self.owner_table(&noun, module.as_ref(), database, notes)?;
        let declared = table.as_ref().and_then(|(table, declared)| Some((table, declared.as_deref()?)));
        let key_type = match declared {
            Some((table, declared)) => Some(type_of(table, declared, wanted, database)?),
            None => wanted,
        };
        let sought = Sought {
            noun: &noun,
            key: table.as_ref().map(|(table, _)| table.key.as_str()),
            key_type,
            module: module.as_ref(),
            flag: "--scope-owner",
        };
        let before = self.reading_before(&noun);
        let mut access = self.access(&sought, self.given.scope_owner.as_deref(), before.as_ref(), lookup)?;
        let key = key_type.or_else(|| access.id.as_ref().and_then(Seen::key)).unwrap_or(KeyType::Integer);
        match &access.id {
            // A scope that is created gets a field of the right type.
            _ if matches!(lookup, Lookup::Absent) => access.id = Some(Seen::of(key)),
            Some(seen) if !seen.fits(key) => {
                let end = match lookup {
                    Lookup::Found(scope) => self.host.source(self.context).end(self.scope, scope, &access)?,
                    Lookup::Absent | Lookup::Opaque | Lookup::Made(_) => None,
                };
                return Err(self.wrong_type(&access, seen, end, key, declared.map(|(table, _)| table)));
            }
            Some(_) => {}
            None => notes.push(Note::AssumedType {
                path: access.shown(),
                scope: self.scope.rust(),
                rust_type: key.rust_type(),
            }),
        }
        let link = self.link(&noun, module.clone())?;
        Ok(Owner { noun, field, key, table: table.map(|(table, _)| table), access, module, link })
    }

    fn has_group(&self) -> bool {
        self.given.group_type.as_deref().is_some_and(|group| group != NO_GROUP)
    }

    /// With `--owner-type none`, an option about the owner contradicts it.
    pub(super) fn refuse_owner_options(&self) -> Result<()> {
        let Given { owner_field, owner_module, owner_table, owner_id, scope_owner, .. } = self.given;
        let Given { group_type, group_field, group_table, scope_group, .. } = self.given;
        for (flag, value) in [
            ("--owner-field", owner_field),
            ("--owner-module", owner_module),
            ("--owner-id", owner_id),
            ("--scope-owner", scope_owner),
            ("--owner-table", owner_table),
            ("--group-type", group_type),
            ("--group-field", group_field),
            ("--group-table", group_table),
            ("--scope-group", scope_group),
        ] {
            let is_none = ["--owner-table", "--group-type"].contains(&flag) && value.as_deref() == Some("none");
            if value.is_some() && !is_none {
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
        let beside = TypePath { krate: None, modules: self.scope.modules.clone(), name: noun.camel() };
        for candidate in module.into_iter().chain([beside]) {
            if matches!(self.host.source(self.context).lookup(&candidate)?, Lookup::Found(_)) {
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
        database: Database,
        notes: &mut Vec<Note>,
    ) -> Result<Option<(OwnerTable, Option<String>)>> {
        match self.given.owner_table.as_deref() {
            Some("none") => Ok(None),
            Some(name) => self.named_table(name, database, notes).map(Some),
            None => self.inferred_table(noun, module, database, notes),
        }
    }

    /// A name without a schema means what the database would take it for, also if there is another one elsewhere.
    fn named_table(
        &self,
        name: &str,
        database: Database,
        notes: &mut Vec<Note>,
    ) -> Result<(OwnerTable, Option<String>)> {
        check_table(OWNER_TABLE, name)?;
        if is_temporary(name, database) {
            let what = format!("{OWNER_TABLE}: `{name}` is temporary, so that no other table can refer to it");
            return Err(Failure::usage(what).help("name a table that stays, or `none` for no foreign key"));
        }
        let catalog = self.catalog;
        let named = OwnerTable::named(name, database);
        if let Some(table) = catalog.find(&named.place(database)) {
            let (found, declared) = key_of(table)?;
            // A schema that a person named is named in the migration too.
            return Ok((OwnerTable { schema: named.schema.or(found.schema), ..found }, declared));
        }
        let elsewhere = catalog.named(&named.name);
        if let (Some(default), None, false) = (database.default_schema(), &named.schema, elsewhere.is_empty()) {
            let what = format!("a name without a schema is looked for in `{default}`, and `{name}` is not there");
            return Err(self.ambiguous(&what, &elsewhere, database));
        }
        notes.push(Note::UnknownTable { migrations: self.directory.to_owned(), table: name.to_owned() });
        Ok((named, None))
    }

    fn inferred_table(
        &self,
        noun: &Name,
        module: Option<&TypePath>,
        database: Database,
        notes: &mut Vec<Note>,
    ) -> Result<Option<(OwnerTable, Option<String>)>> {
        let nouns = [Some(noun.as_str().to_owned()), module.map(|module| heck::AsSnakeCase(&module.name).to_string())];
        let mut candidates: Vec<String> = Vec::new();
        for noun in nouns.into_iter().flatten() {
            for candidate in [plural(&noun), noun] {
                if !candidates.contains(&candidate) {
                    candidates.push(candidate);
                }
            }
        }
        let found: Vec<_> = candidates.iter().flat_map(|name| self.catalog.named(name)).collect();
        let Some((first, others)) = found.split_first() else {
            notes.push(Note::NoForeignKey { migrations: self.directory.to_owned(), tables: candidates });
            return Ok(None);
        };
        if others.iter().any(|other| competes(other, first)) {
            let what = format!("there are several tables that may be the one of the {noun}");
            return Err(self.ambiguous(&what, &found, database));
        }
        key_of(first).map(Some)
    }

    fn ambiguous(&self, what: &str, tables: &[&Table], database: Database) -> Failure {
        let names: Vec<_> = tables.iter().map(|table| table.name.full(database)).collect();
        let flags: Vec<_> = names.iter().map(|name| format!("--owner-table {name}")).collect();
        Failure::decision(format!("{what}: {} has {}", self.directory, list(&names, " and ")))
            .help(format!("choose one: {}", list(&flags, " or ")))
    }

    /// How this owner was read from a scope when it last owned the rows.
    fn reading_before(&self, noun: &Name) -> Option<Reading> {
        let before = self.last.resolved.as_ref()?;
        if before.owner_type == noun.as_str() {
            return before.owner_reading();
        }
        let mut former = self.last.schema.as_ref()?.schema.former_owners();
        former.find(|(_, ids)| ids.owner_type == noun.as_str()).and_then(|(_, ids)| ids.reading.clone())
    }

    /// The way from the scope to an id: as a flag gives it, else as the scope's source shows it, if that is the way that
    /// led there `before`.
    pub(super) fn access(
        &self,
        sought: &Sought,
        given: Option<&str>,
        before: Option<&Reading>,
        lookup: &Lookup,
    ) -> Result<Access> {
        let source = self.host.source(self.context);
        let Sought { noun, flag, .. } = sought;
        let field = noun.id();
        let definition = match lookup {
            Lookup::Found(definition) => Some(definition),
            Lookup::Absent | Lookup::Opaque | Lookup::Made(_) => None,
        };
        match (given, lookup) {
            (Some(_), Lookup::Absent) => {
                Err(Failure::usage(format!("{flag}: there is no `{}` yet to read the {noun} from", self.scope.rust()))
                    .help("write that type first, or name one that is there with --scope"))
            }
            (Some(text), _) => source.follow(self.scope, definition, sought, text),
            (None, Lookup::Found(definition)) => {
                let access = source.infer(self.scope, definition, sought)?;
                match before.filter(|before| before.way != access.shown()) {
                    Some(before) => Err(self.another_way(sought, before, &access, definition)),
                    None => Ok(access),
                }
            }
            // A scope of a group has no owner, and one of an owner no group.
            (None, Lookup::Absent) => Ok(Access::field(&field, self.has_group().then_some(Around::Option))),
            (None, Lookup::Opaque) => Err(Failure::decision(format!(
                "the source of `{}` cannot be read, so it is not known how it names its {noun}",
                self.scope.rust()
            ))
            .help(format!("give it with {flag}, for example `{flag} {noun}.id` or `{flag} {field}()`"))),
            (None, Lookup::Made(maker)) => Err(Failure::decision(format!(
                "`{}` is not written in the source, but {maker} may make it",
                self.scope.rust()
            ))
            .help(format!(
                "if it does, give with {flag} how it names its {noun}, for example `{flag} {field}`; \
                 if not, write the type, or name another module with --scope"
            ))),
        }
    }

    /// Another way may lead to somebody else, whose rows these are not.
    fn another_way(&self, sought: &Sought, before: &Reading, now: &Access, definition: &Definition) -> Failure {
        let Sought { noun, flag, .. } = sought;
        let (scope, now) = (self.scope.rust(), now.shown());
        let Reading { scope: former_scope, way } = before;
        let what = if *former_scope == scope {
            format!("the {noun} was read from `{scope}` as `{way}`, and would now be read as `{now}`")
        } else {
            format!(
                "the {noun} was read from `{former_scope}` as `{way}`, and would now be read from `{scope}` as `{now}`"
            )
        };
        let is_there = self.host.source(self.context).follow(self.scope, Some(definition), sought, way).is_ok();
        Failure::decision(what).help(if is_there {
            format!("choose one: `{flag} {way}` or `{flag} {now}`")
        } else {
            format!("if `{now}` is the same {noun}, give `{flag} {now}`")
        })
    }

    fn wrong_type(
        &self,
        access: &Access,
        seen: &Seen,
        end: Option<End>,
        key: KeyType,
        table: Option<&OwnerTable>,
    ) -> Failure {
        let (path, wanted) = (access.shown(), key.rust_type());
        let reason = match (table, &self.given.owner_id) {
            (Some(table), _) => format!("the key `{}` of table `{}` is `{wanted}`", table.key, table.name),
            (None, Some(given)) => format!("`--owner-id {given}` needs `{wanted}`"),
            (None, None) => format!("the owner's key is taken to be `{wanted}`"),
        };
        let what = format!("`{path}` in {} is `{}`, but {reason}", self.scope.rust(), show(seen));
        if let (Seen::Other(name), Some(End { text, key })) = (seen, end) {
            return Failure::decision(format!("{what}\n{text}")).help(match key {
                Some(key) => format!("name a way to the `{wanted}` with --scope-owner, for example `{path}.{key}`"),
                None => format!(
                    "name a way to the `{wanted}` with --scope-owner, or let `{name}` have one: \
                     a method `pub fn get(&self) -> {wanted}`, or `impl From<{name}> for {wanted}`"
                ),
            });
        }
        Failure::decision(what).help(match (seen, table) {
            (Seen::Other(_), _) => {
                let text = if key == KeyType::Text { format!("`{path}.to_string()`, ") } else { String::new() };
                format!("name a way to the `{wanted}` with --scope-owner, for example {text}`{path}.0` or a method")
            }
            (_, Some(_)) => format!(
                "name a way to the `{wanted}` with --scope-owner, another table with --owner-table, or `--owner-table none`"
            ),
            (_, None) => format!("leave --owner-id out, or name a way to the `{wanted}` with --scope-owner"),
        })
    }
}

fn check_field(field: &Name, database: Database) -> Result<()> {
    if schema::Schema::reserved_columns().contains(field.as_str()) {
        return Err(Failure::usage(format!("--owner-field: `{field}` is a column that the tables have already"))
            .help("use another name, for example `user_id`"));
    }
    if database.system_columns().iter().any(|column| field.as_str().eq_ignore_ascii_case(column)) {
        return Err(Failure::usage(format!(
            "--owner-field: `{field}` is a column that every table of the database has by itself"
        ))
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

pub(super) fn show(seen: &Seen) -> String {
    match seen {
        Seen::I64 => "i64".to_owned(),
        Seen::SmallInt => "small integer".to_owned(),
        Seen::Uuid => "Uuid".to_owned(),
        Seen::String => "String".to_owned(),
        Seen::Str => "str".to_owned(),
        Seen::Ref(inner) => format!("&{}", show(inner)),
        Seen::From { to, .. } | Seen::Into { to, .. } => show(to),
        Seen::Other(text) => text.clone(),
    }
}

/// Whether a table may be meant as well as the first that was found. Of `users` and `user` in one schema the first is
/// meant, and a table of another name elsewhere does not compete with one in the default schema.
fn competes(other: &Table, first: &Table) -> bool {
    let (other, first) = (&other.name, &first.name);
    let same_name = other.table.eq_ignore_ascii_case(&first.table);
    same_name || (other.schema != first.schema && first.schema.is_some())
}

pub(super) fn is_temporary(name: &str, database: Database) -> bool {
    name.split_once('.').is_some_and(|(schema, _)| database.is_temporary_schema(schema))
}

pub(super) fn list(names: &[String], word: &str) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(word)
}
