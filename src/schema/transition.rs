//! The way from the tables that are there to those that should be, as one migration: schemas go in, SQL comes out. No
//! row gets lost, neither up nor down: what cannot be carried over stops the migration before it has changed anything.

mod backfill;
mod host;
mod path;
mod postgres;
mod queries;
mod script;
mod sqlite;
#[cfg(test)]
mod tests;
mod valid;

pub use backfill::check as check_backfill;
pub use host::{additions, taken};

use crate::database::{Database, Dialect as _};
use crate::failure::{Failure, Result};
use crate::schema::{Column, ForeignKey, OwnerIds, Ownership as _, Reading, Schema, Table, is_nobody, is_same_key};
use path::{Owners, Path};

/// What a person said about a change of tables.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish<'a> {
    /// An SQL expression that gives the new owner of a row of the conversations. It is evaluated on the tables as they
    /// are before the change. With one, the owner's values are new even where the old ones could stay.
    pub backfill: Option<&'a str>,
    /// The columns that are retired go; not those that this same change retires.
    pub drop_old_owner: bool,
    /// The owner types before and now; nothing where there is no owner, or where it is not known.
    pub owner_types: [Option<&'a str>; 2],
    /// How the owner before is read from a scope.
    pub reading: Option<&'a Reading>,
    /// What the host added to our tables.
    pub additions: &'a [Addition],
    /// The names of the host's own tables, views and indexes.
    pub taken: &'a [String],
}

/// A column that a migration of the host's own added to one of our tables. `PostgreSQL` keeps it by itself; where a
/// table is rebuilt it has to be said again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    pub table: String,
    pub column: String,
    /// As in `CREATE TABLE`.
    pub definition: String,
    /// Its value is computed from other columns, so nothing is written to it.
    pub generated: bool,
}

/// One migration, up and down.
#[derive(Debug)]
pub struct Transition {
    old: Schema,
    schema: Schema,
    /// The tables that stay, the conversations first.
    kept: Vec<KeptTable>,
    owner: OwnerChange,
    additions: Vec<Addition>,
    taken: Vec<String>,
}

#[derive(Debug)]
struct KeptTable {
    before: String,
    now: String,
    /// The columns that stay, by their old and their new name.
    columns: Vec<(String, String)>,
}

/// What happens to the owner.
#[derive(Debug, PartialEq, Eq)]
enum OwnerChange {
    /// The values stay; the column's name or its foreign key may change.
    Stays,
    /// Another one comes.
    Comes(Filling),
}

/// Where the values of a new owner come from.
#[derive(Debug, PartialEq, Eq)]
enum Filling {
    Backfill(String),
    /// It was the owner before, and the column is still there.
    Former(String),
    /// Conversations have no owner from now on: the column is always 0.
    Nobody,
    /// Nobody said; good for tables without rows.
    Unknown,
}

impl Filling {
    /// As SQL, where there is one.
    fn expression(&self, database: Database) -> Option<String> {
        match self {
            Self::Backfill(text) if backfill::is_enclosed(text, database) => Some(text.clone()),
            Self::Backfill(text) => Some(format!("({text})")),
            Self::Former(former) => Some(database.quote(former)),
            Self::Nobody => Some("0".to_owned()),
            Self::Unknown => None,
        }
    }
}

/// The way from one schema to another. What it cannot make is refused: a column that would need a value or a conversion.
/// A column that the new tables do not have stays, and is retired. A table that they do not have stays as it is, and is
/// the host's own from then on: old processes may still use it.
pub fn transition(old: &Schema, new: &Schema, wish: &Wish) -> Result<Transition> {
    for schema in [old, new] {
        valid::check(schema).map_err(|fault| unknown_tables(&fault))?;
    }
    let mut schema = as_recorded(old, new);
    refuse_taken_names(old, &schema, wish.taken)?;
    let owner = OwnerChange::of(old, &schema, wish);
    let owners =
        Columns { old: old.owner(), new: new.owner(), change: &owner, retired: retired_names(old, new, &owner, wish) };
    let mut kept = Vec::new();
    for (before, now) in pairs(old, new) {
        let Some(table) = schema.tables.iter_mut().find(|table| table.name == now.name) else { continue };
        refuse_taken_columns(before, table, wish.additions, new.owner())?;
        let columns = owners.kept(before, table, wish);
        check_columns(before, table, &columns, &owners).map_err(|fault| unknown_tables(&fault))?;
        let retired = columns.iter().filter(|(_, name)| table.column(name).is_none());
        let retired: Vec<_> = retired.filter_map(|(from, name)| Some(retire(before.column(from)?, name))).collect();
        table.columns.extend(retired);
        kept.push(KeptTable { before: before.name.clone(), now: now.name.clone(), columns });
    }
    remember_owner(old, &mut schema, &kept, &owner, wish);
    let (additions, taken) = (wish.additions.to_vec(), wish.taken.to_vec());
    Ok(Transition { old: old.clone(), schema, kept, owner, additions, taken })
}

/// The tables that are there before and after, by what is behind their prefix.
fn pairs<'a>(old: &'a Schema, new: &'a Schema) -> Vec<(&'a Table, &'a Table)> {
    fn suffix<'a>(schema: &Schema, table: &'a Table) -> Option<&'a str> {
        table.name.strip_prefix(schema.prefix()?)
    }
    let same = |table: &'a Table| new.tables.iter().find(|now| suffix(new, now) == suffix(old, table));
    old.tables.iter().filter_map(|table| Some((table, same(table)?))).collect()
}

/// A column that the new tables have no use for: nobody writes to it, so it must do without a value.
fn retire(column: &Column, name: &str) -> Column {
    let nullable = column.nullable || column.default.is_none();
    Column { name: name.to_owned(), nullable, retired: true, ..column.clone() }
}

/// Notes whose ids the old owner's column holds, if no foreign key says so afterwards.
fn remember_owner(old: &Schema, new: &mut Schema, kept: &[KeptTable], change: &OwnerChange, wish: &Wish) {
    let [Some(owner_type), _] = wish.owner_types else { return };
    let table = old.owner_table();
    let says_more = *change != OwnerChange::Stays || (table.is_some() && new.foreign_key_to_owner().is_none());
    let ids = OwnerIds { owner_type: owner_type.to_owned(), table, reading: wish.reading.cloned() };
    let name = old.owner().and_then(|owner| kept.first()?.arrival(&owner.name));
    let columns = new.tables.first_mut().into_iter().flat_map(|table| &mut table.columns);
    for column in columns.filter(|column| Some(column.name.as_str()) == name) {
        column.holds = says_more.then(|| ids.clone());
    }
}

/// What is recorded was edited by hand, or merged, or comes from another version.
fn unknown_tables(fault: &str) -> Failure {
    Failure::decision(format!("the recorded tables are not ones that this version can change: {fault}"))
        .help("restore .sagents from version control, then run this again")
}

/// The new tables; a foreign key onto the same table as before is spelled as before, with the default schema or without.
fn as_recorded(old: &Schema, new: &Schema) -> Schema {
    let mut new = new.clone();
    let place = |key: &ForeignKey| {
        let default = Database::Postgres.default_schema();
        (key.schema.clone().filter(|schema| Some(schema.as_str()) != default), key.table.clone())
    };
    for key in new.tables.iter_mut().flat_map(|table| &mut table.foreign_keys) {
        let mut before = old.tables.iter().flat_map(|table| &table.foreign_keys);
        if let Some(same) = before.find(|before| place(before) == place(key)) {
            key.schema.clone_from(&same.schema);
        }
    }
    new
}

impl Transition {
    /// The tables afterwards: the new ones, with the columns that are retired.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// What it does, for the name of the migration.
    pub fn name(&self) -> String {
        let (before, now) = (subject(&self.old), subject(&self.schema));
        let owner = |schema: &Schema| {
            let owner = schema.owner().filter(|owner| !is_nobody(&owner.name));
            owner.map_or("none".to_owned(), |owner| owner.name.clone())
        };
        let (old_owner, new_owner) = (owner(&self.old), owner(&self.schema));
        match self.owner {
            OwnerChange::Comes(_) => format!("change_{now}_owner_to_{new_owner}"),
            OwnerChange::Stays if old_owner != new_owner => format!("rename_{now}_owner_to_{new_owner}"),
            OwnerChange::Stays if before != now => format!("rename_{before}_to_{now}"),
            OwnerChange::Stays if target(&self.old) != target(&self.schema) => format!("change_{now}_owner_table"),
            OwnerChange::Stays if self.drops_retired() => format!("drop_{now}_old_owner"),
            OwnerChange::Stays => format!("update_{now}"),
        }
    }

    /// The migration; empty if the tables are as they should be.
    pub fn up(&self, database: Database) -> String {
        let path = self.path_up();
        let stays = self.old.owner().filter(|owner| !is_nobody(&owner.name)).map_or(String::new(), |owner| {
            let place = path.conversations().arrival(&owner.name).unwrap_or_default();
            let place = if place == owner.name { String::new() } else { format!(" in {place}") };
            format!(" What {} held stays{place}, until a run with --drop-old-owner.", owner.name)
        });
        let owner = match (&self.owner, self.schema.owner()) {
            (OwnerChange::Stays, _) => None,
            (_, Some(owner)) if !is_nobody(&owner.name) => {
                Some(format!("The owner is {} from now on.{stays}", owner.name))
            }
            (_, _) => Some(format!("There is no owner from now on.{stays}")),
        };
        let retired = path.tables.iter().flat_map(|table| {
            let now = table.kept().filter(|(from, to)| to.retired && !from.retired);
            let now = now.filter(|(from, _)| self.old.owner().is_none_or(|owner| owner.name != from.name));
            now.map(|(_, to)| {
                format!(
                    "{} of {} is not used any more. It stays until a run with --drop-old-owner.",
                    to.name, table.to.name
                )
            })
        });
        let left = self
            .left()
            .map(|table| format!("{} is not used any more. It stays as it is, and is yours from now on.", table.name));
        render(owner.into_iter().chain(retired).chain(left), &path, database)
    }

    /// The way back.
    pub fn down(&self, database: Database) -> String {
        let about = match (&self.owner, self.old.owner()) {
            (OwnerChange::Stays, _) if self.drops_retired() => {
                Some("The columns that were not used come back, without their values.".to_owned())
            }
            (OwnerChange::Stays, _) => None,
            (_, Some(owner)) if !is_nobody(&owner.name) => Some(format!("The owner is {} again.", owner.name)),
            (_, _) => Some("There is no owner, again.".to_owned()),
        };
        let additions = self.additions(database);
        render(about.into_iter(), &self.path_down(&additions), database)
    }

    /// It can run only while there are no conversations, because nobody said whose they are.
    pub fn lacks_backfill(&self) -> bool {
        self.owner == OwnerChange::Comes(Filling::Unknown)
    }

    fn path_up(&self) -> Path<'_> {
        let owners = match (&self.owner, self.schema.owner()) {
            (OwnerChange::Comes(filling), Some(column)) => Owners::Filled { column, filling },
            (OwnerChange::Stays, _) | (OwnerChange::Comes(_), None) => Owners::Same,
        };
        let pairs: Vec<_> = self.kept.iter().map(|table| (&*table.before, &*table.now, table.up())).collect();
        Path::new(&self.old, &self.schema, &pairs, owners, &self.additions, &self.taken)
    }

    fn path_down<'a>(&'a self, additions: &'a [Addition]) -> Path<'a> {
        let owners = match (&self.owner, self.old.owner()) {
            (OwnerChange::Stays, _) | (OwnerChange::Comes(_), None) => Owners::Same,
            (OwnerChange::Comes(_), Some(column)) if is_nobody(&column.name) => {
                Owners::Filled { column, filling: &Filling::Nobody }
            }
            (OwnerChange::Comes(_), Some(column)) => Owners::Restored { column },
        };
        let pairs: Vec<_> = self.kept.iter().map(|table| (&*table.now, &*table.before, table.down())).collect();
        let mut path = Path::new(&self.schema, &self.old, &pairs, owners, additions, &self.taken);
        // What was left alone is still there.
        path.added.clear();
        path.dropped = self.path_up().added;
        path
    }

    /// The tables that the new ones do not have.
    fn left(&self) -> impl Iterator<Item = &Table> {
        self.old.tables.iter().filter(|table| !self.kept.iter().any(|kept| kept.before == table.name))
    }

    fn drops_retired(&self) -> bool {
        self.path_up().tables.iter().any(|table| table.dropped().next().is_some())
    }

    /// The host's columns once this has run.
    pub fn additions(&self, database: Database) -> Vec<Addition> {
        let path = self.path_up();
        let moved = |addition: &Addition| {
            let table = path.tables.iter().find(|table| table.from.name == addition.table)?;
            Some(Addition {
                table: table.to.name.clone(),
                definition: table.carried_definition(&addition.definition, database),
                ..addition.clone()
            })
        };
        self.additions.iter().filter_map(moved).collect()
    }
}

impl KeptTable {
    /// The new name of a column, if it stays.
    fn arrival(&self, from: &str) -> Option<&str> {
        self.columns.iter().find(|(before, _)| before == from).map(|(_, now)| now.as_str())
    }

    fn up(&self) -> Vec<(&str, &str)> {
        self.columns.iter().map(|(before, now)| (before.as_str(), now.as_str())).collect()
    }

    fn down(&self) -> Vec<(&str, &str)> {
        self.up().into_iter().map(|(before, now)| (now, before)).collect()
    }
}

impl OwnerChange {
    fn of(old: &Schema, new: &Schema, wish: &Wish) -> Self {
        let (before, Some(now)) = (old.owner(), new.owner()) else { return Self::Stays };
        match (old.has_no_owner(), new.has_no_owner()) {
            (true, true) => return Self::Stays,
            (false, true) => return Self::Comes(Filling::Nobody),
            _ => {}
        }
        if let Some(expression) = wish.backfill {
            return Self::Comes(Filling::Backfill(expression.to_owned()));
        }
        if old.has_no_owner() {
            // Rows from the time without owners have none that a former column could give them.
            return Self::Comes(Filling::Unknown);
        }
        if before.is_some_and(|before| before.kind == now.kind) && is_same_owner(old, new, wish) {
            return Self::Stays;
        }
        // What a column is called says nothing about whose ids are in it. Of several only the last one counts: rows may
        // have got another owner of this type since the others.
        let former = old.former_owners().find(|(_, ids)| Some(ids.owner_type.as_str()) == wish.owner_types[1]);
        let same_table = |ids: &OwnerIds| match (&ids.table, new.owner_table()) {
            (Some(former), Some(now)) => is_same_key(former, &now),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let former = former.filter(|(column, ids)| column.kind == now.kind && same_table(ids));
        Self::Comes(former.map_or(Filling::Unknown, |(column, _)| Filling::Former(column.name.clone())))
    }
}

/// What the owner's foreign key names.
fn target(schema: &Schema) -> Option<(Option<&str>, &str, &[String])> {
    let key = schema.foreign_key_to_owner()?;
    Some((key.schema.as_deref(), &key.table, &key.references))
}

/// Whether the owner is of the same type, and in the same table where a table was ever named.
fn is_same_owner(old: &Schema, new: &Schema, wish: &Wish) -> bool {
    let [before, now] = wish.owner_types;
    let tables = old.owner_table().zip(new.owner_table());
    before.is_some() && before == now && tables.is_none_or(|(before, now)| is_same_key(&before, &now))
}

/// What becomes of columns, as far as that does not depend on their table.
struct Columns<'a> {
    /// The columns of the owner.
    old: Option<&'a Column>,
    new: Option<&'a Column>,
    change: &'a OwnerChange,
    /// What retired columns are called from now on: those of an owner that leaves, and earlier ones unless they go.
    retired: Vec<(String, String)>,
}

impl Columns<'_> {
    /// The columns of a table that stay, by their old and their new name.
    fn kept(&self, before: &Table, now: &Table, wish: &Wish) -> Vec<(String, String)> {
        let mut taken = column_names([before, now]);
        taken.extend(wish.additions.iter().map(|addition| addition.column.clone()));
        let mut stays = |column: &Column| {
            let name = &column.name;
            let is_owner = is_called(self.old, name);
            if is_owner && is_nobody(name) && *self.change != OwnerChange::Stays {
                return None;
            }
            if column.retired || (is_owner && *self.change != OwnerChange::Stays) {
                return self.retired.iter().find(|(before, _)| before == name).map(|(_, now)| now.clone());
            }
            if is_owner {
                return self.new.map(|owner| owner.name.clone());
            }
            // What has the name of the new owner is another column.
            Some(if is_called(self.new, name) { free_old_name(name, &mut taken) } else { name.clone() })
        };
        before.columns.iter().filter_map(|column| Some((column.name.clone(), stays(column)?))).collect()
    }
}

fn is_called(column: Option<&Column>, name: &str) -> bool {
    column.is_some_and(|column| column.name == name)
}

fn column_names<'a>(tables: impl IntoIterator<Item = &'a Table>) -> Vec<String> {
    tables.into_iter().flat_map(|table| &table.columns).map(|column| column.name.clone()).collect()
}

/// What retired columns are called, the same in every table: as before, unless a table that has one needs the name.
fn retired_names(old: &Schema, new: &Schema, owner: &OwnerChange, wish: &Wish) -> Vec<(String, String)> {
    let mut taken = column_names(old.tables.iter().chain(&new.tables));
    taken.extend(wish.additions.iter().map(|addition| addition.column.clone()));
    let leaves = old.owner().filter(|column| *owner != OwnerChange::Stays && !is_nobody(&column.name));
    let stays = |column: &Column| is_called(leaves, &column.name) || (column.retired && !wish.drop_old_owner);
    let pairs = pairs(old, new);
    let is_needed = |name: &str| {
        pairs.iter().any(|(before, now)| before.column(name).is_some_and(stays) && now.column(name).is_some())
    };
    let mut names: Vec<(String, String)> = Vec::new();
    for Column { name, .. } in old.tables.iter().flat_map(|table| &table.columns).filter(|column| stays(column)) {
        if !names.iter().any(|(before, _)| before == name) {
            let now = if is_needed(name) { free_old_name(name, &mut taken) } else { name.clone() };
            names.push((name.clone(), now));
        }
    }
    names
}

fn free_old_name(name: &str, taken: &mut Vec<String>) -> String {
    let free = free_name(&format!("old_{name}"), taken);
    taken.push(free.clone());
    free
}

/// A name that is not taken and short enough for every database.
fn free_name(wanted: &str, taken: &[String]) -> String {
    let limit = Database::Postgres.identifier_limit();
    let numbered = |number: usize| {
        let suffix = if number == 1 { String::new() } else { format!("_{number}") };
        let left = limit - suffix.len();
        format!("{}{suffix}", cut(wanted, left))
    };
    let is_free = |name: &String| !taken.iter().any(|taken| taken.eq_ignore_ascii_case(name));
    // There are more numbers than names.
    (1..=taken.len() + 1).map(numbered).find(is_free).unwrap_or_else(|| wanted.to_owned())
}

/// The start of a text that has at most so many bytes.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or_default()]
}

/// Refuses a difference that would need a value or a conversion.
fn check_columns(before: &Table, now: &Table, kept: &[(String, String)], owners: &Columns) -> Result<(), String> {
    for column in &now.columns {
        let from = kept.iter().find(|(_, name)| *name == column.name).and_then(|(from, _)| before.column(from));
        let comes = is_called(owners.new, &column.name) && matches!(owners.change, OwnerChange::Comes(_));
        let (table, name, kind) = (&now.name, &column.name, column.kind.name());
        match from {
            Some(from) if !from.kind.converts_to(column.kind) => {
                let before = from.kind.name();
                return Err(format!("`{name}` in `{table}` is a {before}, and would have to become a {kind}"));
            }
            None if !comes && !column.nullable && column.default.is_none() => {
                return Err(format!(
                    "`{name}` in `{table}` is missing, and every row needs a {kind} for it: it has no default"
                ));
            }
            Some(_) | None => {}
        }
    }
    let mut names: Vec<_> = kept.iter().map(|(_, name)| name).collect();
    names.sort();
    match names.windows(2).find(|names| names[0] == names[1]) {
        Some(names) => Err(format!("two columns of `{}` would be called `{}`", now.name, names[0])),
        None => Ok(()),
    }
}

fn refuse_taken_columns(before: &Table, now: &Table, additions: &[Addition], owner: Option<&Column>) -> Result<()> {
    let of_table = |addition: &&Addition| addition.table == before.name;
    let ours = |addition: &Addition| now.columns.iter().find(|c| c.name.eq_ignore_ascii_case(&addition.column));
    let Some((Addition { table, column, .. }, ours)) =
        additions.iter().filter(of_table).find_map(|addition| Some((addition, ours(addition)?)))
    else {
        return Ok(());
    };
    let what = format!("the table `{table}` has a column `{column}` of your own, and would get one of that name");
    Err(Failure::decision(what).help(if is_called(owner, &ours.name) {
        "rename or drop yours in a migration, or choose another name with --owner-field"
    } else {
        "rename or drop yours in a migration"
    }))
}

/// The new tables and indexes need names that nothing of the host's has.
fn refuse_taken_names(old: &Schema, new: &Schema, taken: &[String]) -> Result<()> {
    let names = |schema: &Schema| -> Vec<String> {
        let of_table = |table: &Table| {
            let indexes = table.indexes.iter().map(|index| index.name.clone());
            indexes.chain([table.name.clone()]).collect::<Vec<_>>()
        };
        schema.tables.iter().flat_map(of_table).collect()
    };
    let before = names(old);
    let is_taken = |name: &&String| taken.iter().any(|taken| taken.eq_ignore_ascii_case(name));
    match names(new).iter().filter(|name| !before.contains(name)).find(is_taken) {
        Some(name) => {
            Err(Failure::decision(format!("your migrations make a `{name}` already, and so would this change"))
                .help("choose other names with --table-prefix, or rename yours in a migration"))
        }
        None => Ok(()),
    }
}

/// The prefix of the tables as a word for a file's name.
fn subject(schema: &Schema) -> &str {
    match schema.prefix().unwrap_or_default().trim_matches('_') {
        "" => "conversations",
        prefix => prefix,
    }
}

/// Empty if there is nothing to do.
fn render(about: impl Iterator<Item = String>, path: &Path, database: Database) -> String {
    let steps = match database {
        Database::Sqlite => sqlite::render(path),
        Database::Postgres => postgres::render(path),
    };
    if steps.is_empty() {
        return steps;
    }
    let about: Vec<_> = about.map(|line| format!("-- {line}\n")).collect();
    if about.is_empty() { steps } else { format!("{}\n{steps}", about.concat()) }
}
