//! The group of owners: its name, the table and the column that name the group of an owner, and the way to it from the
//! scope. The host's own tables decide who is in a group; where they leave a choice, a person decides.

use super::key::{OwnerTable, check_table};
use super::owner::{Inquiry, Owner, is_temporary, list, show};
use super::{DEFAULT_OWNER, NO_GROUP, NO_OWNER, Resolved};
use crate::database::{Database, Dialect as _};
use crate::failure::{Failure, Result};
use crate::given::Given;
use crate::host::migrations::Table;
use crate::host::source::{Access, Lookup, Seen, Sought};
use crate::key::KeyType;
use crate::names::{Name, plural};
use crate::note::Note;

#[derive(Debug)]
pub struct Group {
    pub noun: Name,
    pub field: Name,
    pub key: KeyType,
    pub table: GroupTable,
    /// Nothing if every scope has an owner, so that none is a group's.
    pub access: Option<Access>,
}

/// The table that names the groups of owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupTable {
    /// Where it is, if not beside our tables, or if a person named it.
    pub schema: Option<String>,
    pub name: String,
    /// The column that names the group.
    pub group: String,
    /// The column that names the owner.
    pub member: String,
    /// It is the owner's own table, which has every owner once.
    pub is_owners: bool,
}

impl GroupTable {
    /// As a person would write it.
    pub fn shown(&self) -> String {
        self.schema.iter().chain([&self.name]).cloned().collect::<Vec<_>>().join(".")
    }
}

/// A group's table as the migrations have it.
struct Found {
    table: GroupTable,
    /// The declared types of the group's and the owner's column, if they could be read.
    group: Option<String>,
    member: Option<String>,
}

const TYPE: &str = "--group-type";
const FIELD: &str = "--group-field";
const TABLE: &str = "--group-table";

/// The table of owners that a new package with groups starts with.
#[derive(Debug)]
pub struct NewOwners {
    pub table: String,
    pub key: KeyType,
    /// The column that names the group.
    pub group: Name,
    pub database: Database,
}

/// What `--init` makes, so that there is somebody to own conversations, and to be a member. Nothing without a group.
pub fn new_owners(given: &Given) -> Result<Option<NewOwners>> {
    let Given { owner_type, owner_id, owner_table, group_type, group_field, group_table, database, .. } = given;
    let owner = owner_type.as_deref().unwrap_or(DEFAULT_OWNER);
    let Some(group) = group_type.as_deref().filter(|group| *group != NO_GROUP && owner != NO_OWNER) else {
        return Ok(None);
    };
    for (flag, table) in [("--owner-table", owner_table), (TABLE, group_table)] {
        if table.is_some() {
            return Err(Failure::usage(format!("{flag}: a new package with groups gets its own table of owners"))
                .help(format!("leave {flag} out, or leave --init out and name a package that has the table")));
        }
    }
    let group = group_field.clone().unwrap_or_else(|| format!("{group}_id"));
    Ok(Some(NewOwners {
        table: plural(Name::parse_plain("--owner-type", owner)?.as_str()),
        key: owner_id.as_deref().map_or(Ok(KeyType::Integer), KeyType::parse)?,
        group: Name::parse_plain(FIELD, &group)?,
        database: database.as_deref().map_or(Ok(Database::Sqlite), Database::parse)?,
    }))
}

impl Inquiry<'_> {
    pub(super) fn group(
        &self,
        noun: &str,
        owner: &Owner,
        database: Database,
        lookup: &Lookup,
        notes: &mut Vec<Note>,
    ) -> Result<Group> {
        let noun = Name::parse_plain(TYPE, noun)?;
        if noun == owner.noun {
            return Err(Failure::usage(format!("{TYPE}: the {noun} is the owner itself"))
                .help("name what the owners are in, for example `organization`"));
        }
        let field = match &self.given.group_field {
            Some(field) => Name::parse_plain(FIELD, field)?,
            None => Name::parse_plain(FIELD, &format!("{noun}_id"))?,
        };
        check_field(&field, owner, database)?;
        let Found { table, group: declared, member } = self.group_table(&noun, &field, owner, database, notes)?;
        // They are written into statements as the migrations spell them.
        [&table.name, &table.member].into_iter().chain(&table.schema).try_for_each(|name| check_table(TABLE, name))?;
        if table.group.eq_ignore_ascii_case(&table.member) {
            return Err(Failure::usage(format!("{FIELD}: `{}` names the {} itself", table.group, owner.noun))
                .help("name the column of its group"));
        }
        check_member(&table, member.as_deref(), owner, database)?;
        let sought = Sought {
            noun: &noun,
            key: None,
            key_type: declared.as_deref().and_then(|declared| database.key_type(declared)),
            module: None,
            flag: "--scope-group",
        };
        let mut access = self.group_access(&sought, owner, lookup, notes)?;
        let seen_id = access.as_ref().and_then(|access| access.id.as_ref());
        let key = match declared {
            Some(declared) => key_type(&table, &declared, seen_id, database)?,
            None => seen_id.and_then(Seen::key).unwrap_or(KeyType::Integer),
        };
        if let Some(access) = &mut access {
            self.check_type(access, key, &table, lookup, notes)?;
        }
        Ok(Group { noun, field, key, table, access })
    }

    /// Without a group, an option about it has no meaning.
    pub(super) fn refuse_group_options(&self) -> Result<()> {
        let Given { group_field, group_table, scope_group, .. } = self.given;
        for (flag, value) in [(FIELD, group_field), (TABLE, group_table), ("--scope-group", scope_group)] {
            if value.is_some() {
                return Err(Failure::usage(format!("{flag} describes a group, and there is none"))
                    .help(format!("leave {flag} out, or name the group, for example `{TYPE} organization`")));
            }
        }
        Ok(())
    }

    fn group_table(
        &self,
        noun: &Name,
        field: &Name,
        owner: &Owner,
        database: Database,
        notes: &mut Vec<Note>,
    ) -> Result<Found> {
        let found = match self.given.group_table.as_deref() {
            Some(name) => match self.named_group_table(name, field, owner, database)? {
                Ok(found) => found,
                Err(unknown) => {
                    notes.push(Note::UnknownGroupTable {
                        migrations: self.directory.to_owned(),
                        table: name.to_owned(),
                        columns: [unknown.member.clone(), unknown.group.clone()],
                    });
                    return Ok(Found { table: unknown, group: None, member: None });
                }
            },
            None => self.inferred_group_table(noun, field, owner, database)?,
        };
        let table = self.catalog.find(&place(&found.table, database));
        if table.is_some_and(|table| table.is_complete && !table.leads_an_index(&found.table.group)) {
            notes.push(Note::NoGroupIndex { table: found.table.shown(), column: found.table.group.clone() });
        }
        Ok(found)
    }

    /// The table, or what is assumed of it if no migration makes it.
    fn named_group_table(
        &self,
        name: &str,
        field: &Name,
        owner: &Owner,
        database: Database,
    ) -> Result<Result<Found, GroupTable>> {
        check_table(TABLE, name)?;
        if is_temporary(name, database) {
            return Err(Failure::usage(format!("{TABLE}: `{name}` is temporary, so that other connections lack it"))
                .help("name a table that stays"));
        }
        let named = OwnerTable::named(name, database);
        let Some(table) = self.catalog.find(&named.place(database)) else {
            let elsewhere = self.catalog.named(&named.name);
            if let (Some(default), None, false) = (database.default_schema(), &named.schema, elsewhere.is_empty()) {
                let what = format!("a name without a schema is looked for in `{default}`, and `{name}` is not there");
                return Err(self.ambiguous_group(&what, &elsewhere, database));
            }
            let owners = owner.table.as_ref();
            let is_owners = owners.is_some_and(|owners| owners.place(database) == named.place(database));
            let member =
                owners.filter(|_| is_owners).map_or_else(|| owner.noun.id().to_string(), |table| table.key.clone());
            let (schema, name, group) = (named.schema, named.name, field.to_string());
            return Ok(Err(GroupTable { schema, name, group, member, is_owners }));
        };
        let is_owners = self.is_owners(table, owner, database);
        let columns: Vec<_> = table.columns.iter().map(|column| column.name.clone()).collect();
        let lacks = |column: &str, help: &str| {
            let what = format!("{TABLE}: `{}` has no column `{column}`; it has {}", table.name, list(&columns, ", "));
            Err(Failure::usage(what).help(help.to_owned()))
        };
        if table.column(field.as_str()).is_none() && table.is_complete {
            return lacks(field.as_str(), &format!("name the column of the group with {FIELD}, or another table"));
        }
        match &*member_columns(table, owner, is_owners, database) {
            [] if table.is_complete => {
                lacks(owner.noun.id().as_str(), "name a table that has a column of the owner and one of the group")
            }
            [] => Ok(Ok(found(table, field, owner.noun.id().as_str(), named.schema, is_owners))),
            [member] => Ok(Ok(found(table, field, member, named.schema, is_owners))),
            several => Err(Failure::decision(format!(
                "{TABLE}: several columns of `{}` refer to the {}: {}",
                table.name,
                owner.noun,
                list(several, ", ")
            ))
            .help(format!(
                "name a view in which the {} of a group is called `{}`",
                owner.noun,
                owner.noun.id()
            ))),
        }
    }

    fn inferred_group_table(&self, noun: &Name, field: &Name, owner: &Owner, database: Database) -> Result<Found> {
        let owners = owner.table.as_ref();
        if let Some(owners) = owners
            && let Some(table) = self.catalog.find(&owners.place(database))
            && table.column(field.as_str()).is_some()
        {
            return Ok(found(table, field, &owners.key, owners.schema.clone(), true));
        }
        let holders: Vec<_> = self
            .catalog
            .tables()
            .filter(|table| table.column(field.as_str()).is_some() && !self.is_owners(table, owner, database))
            .map(|table| (table, member_columns(table, owner, false, database)))
            .filter(|(_, members)| !members.is_empty())
            .collect();
        match &*holders {
            [(table, members)] if members.len() == 1 => Ok(found(table, field, &members[0], None, false)),
            [] => {
                let of_owner = owners.map(|owners| format!("a column `{field}` in `{}`, and for ", owners.shown()));
                Err(Failure::decision(format!(
                    "{} does not show the {noun} of a {}: looked for {}a table with `{}` and `{field}`",
                    self.directory,
                    owner.noun,
                    of_owner.unwrap_or_default(),
                    owner.noun.id()
                ))
                .help(format!("name the table with {TABLE}, and the column of the {noun} with {FIELD}")))
            }
            several => {
                let tables: Vec<_> = several.iter().map(|(table, _)| *table).collect();
                let what = format!("it is not clear which table names the {noun} of a {}", owner.noun);
                Err(self.ambiguous_group(&what, &tables, database))
            }
        }
    }

    fn is_owners(&self, table: &Table, owner: &Owner, database: Database) -> bool {
        let owners = owner.table.as_ref().and_then(|owners| self.catalog.find(&owners.place(database)));
        owners.is_some_and(|owners| owners.name == table.name)
    }

    fn ambiguous_group(&self, what: &str, tables: &[&Table], database: Database) -> Failure {
        let names: Vec<_> = tables.iter().map(|table| table.name.full(database)).collect();
        let flags: Vec<_> = names.iter().map(|name| format!("{TABLE} {name}")).collect();
        Failure::decision(format!("{what}: {} has {}", self.directory, list(&names, " and ")))
            .help(format!("choose one: {}", list(&flags, " or ")))
    }

    /// How the group's id is read from a scope, if there are scopes without an owner.
    fn group_access(
        &self,
        sought: &Sought,
        owner: &Owner,
        lookup: &Lookup,
        notes: &mut Vec<Note>,
    ) -> Result<Option<Access>> {
        let given = self.given.scope_group.as_deref();
        if !owner.access.is_optional() {
            notes.push(Note::NeverGroup {
                scope: self.scope.rust(),
                owner: owner.noun.to_string(),
                group: sought.noun.to_string(),
            });
            if given.is_none() {
                return Ok(None);
            }
        }
        let before =
            self.last.resolved.as_ref().filter(|before| before.group_type.as_deref() == Some(sought.noun.as_str()));
        let before = before.and_then(Resolved::group_reading);
        self.access(sought, given, before.as_ref(), lookup).map(Some)
    }

    fn check_type(
        &self,
        access: &mut Access,
        key: KeyType,
        table: &GroupTable,
        lookup: &Lookup,
        notes: &mut Vec<Note>,
    ) -> Result<()> {
        match &access.id {
            // A scope that is created gets a field of the right type.
            _ if matches!(lookup, Lookup::Absent) => access.id = Some(Seen::of(key)),
            Some(seen) if !seen.fits(key) => {
                let (path, wanted) = (access.shown(), key.rust_type());
                return Err(Failure::decision(format!(
                    "`{path}` in {} is `{}`, but the column `{}` of table `{}` is `{wanted}`",
                    self.scope.rust(),
                    show(seen),
                    table.group,
                    table.name
                ))
                .help(format!("name a way to the `{wanted}` with --scope-group, or another column with {FIELD}")));
            }
            Some(_) => {}
            None => notes.push(Note::AssumedType {
                path: access.shown(),
                scope: self.scope.rust(),
                rust_type: key.rust_type(),
            }),
        }
        Ok(())
    }
}

fn check_field(field: &Name, owner: &Owner, database: Database) -> Result<()> {
    let refuse = |what: String| Err(Failure::usage(format!("{FIELD}: `{field}` {what}")).help("use another name"));
    let limit = database.identifier_limit();
    if [&owner.field, &owner.noun.id()].contains(&field) {
        return refuse("is the owner's".to_owned());
    }
    if database.system_columns().iter().any(|column| field.as_str().eq_ignore_ascii_case(column)) {
        return refuse("is a column that every table of the database has by itself".to_owned());
    }
    if field.as_str().len() > limit {
        return refuse(format!("has {} bytes, the limit is {limit}", field.as_str().len()));
    }
    Ok(())
}

/// An owner's column that cannot be compared with ours would find nobody.
fn check_member(table: &GroupTable, declared: Option<&str>, owner: &Owner, database: Database) -> Result<()> {
    let Some(declared) = declared else { return Ok(()) };
    let kind = database.key_type(declared).map(KeyType::column);
    let fits = kind.map_or(database.compares_any_types(), |kind| kind == owner.key.column());
    if fits {
        return Ok(());
    }
    Err(Failure::decision(format!(
        "the column `{}` of table `{}` is declared `{declared}`, but the key of the {} is `{}`",
        table.member,
        table.name,
        owner.noun,
        owner.key.name()
    ))
    .help(format!("name another table with {TABLE}")))
}

/// The type of a group's column that is declared so. A text may be a UUID, if the scope has one.
fn key_type(table: &GroupTable, declared: &str, seen: Option<&Seen>, database: Database) -> Result<KeyType> {
    let held = seen.and_then(Seen::key);
    match (database.key_type(declared), held) {
        (Some(KeyType::Text), Some(KeyType::Uuid)) => Ok(KeyType::UuidText),
        (Some(key), _) => Ok(key),
        (None, Some(held)) if database.compares_any_types() => Ok(held),
        (None, _) => {
            let (group, name) = (&table.group, &table.name);
            let shown = if declared.is_empty() { "without a type".to_owned() } else { format!("`{declared}`") };
            Err(Failure::decision(format!(
                "the column `{group}` of table `{name}` is declared {shown}, which is no key"
            ))
            .help(format!("name a column of integers, UUIDs or text with {FIELD}")))
        }
    }
}

/// The columns of a table that name the owner: the one that is called so, else those that refer to its table.
fn member_columns(table: &Table, owner: &Owner, is_owners: bool, database: Database) -> Vec<String> {
    match (&owner.table, table.column(owner.noun.id().as_str())) {
        (Some(owners), _) if is_owners => vec![owners.key.clone()],
        (_, Some(column)) => vec![column.name.clone()],
        (Some(owners), None) => table.columns_to(&owners.place(database)).map(str::to_owned).collect(),
        (None, None) => Vec::new(),
    }
}

fn found(table: &Table, field: &Name, member: &str, schema: Option<String>, is_owners: bool) -> Found {
    let column = |name: &str| table.column(name);
    let name = |name: &str| column(name).map_or_else(|| name.to_owned(), |column| column.name.clone());
    Found {
        group: column(field.as_str()).map(|column| column.declared.clone()),
        member: column(member).map(|column| column.declared.clone()),
        table: GroupTable {
            schema: schema.or_else(|| table.name.schema.clone()),
            name: table.name.table.clone(),
            group: name(field.as_str()),
            member: name(member),
            is_owners,
        },
    }
}

fn place(table: &GroupTable, database: Database) -> crate::host::migrations::TableName {
    OwnerTable { schema: table.schema.clone(), name: table.name.clone(), key: String::new() }.place(database)
}
