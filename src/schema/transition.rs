//! The way from the tables that are there to those that should be, as one migration: schemas go in, SQL comes out. No
//! row gets lost, neither up nor down: what cannot be carried over stops the migration before it has changed anything.

mod backfill;
mod host;
mod path;
mod postgres;
mod script;
mod sqlite;
#[cfg(test)]
mod tests;
mod valid;

pub use backfill::check as check_backfill;
pub use host::{additions, taken};

use crate::database::Database;
use crate::failure::{Failure, Result};
use crate::schema::{Column, ForeignKey, Schema, Table};
use path::{Owners, Path};

/// What a person said about a change of tables.
#[derive(Debug, Clone, Copy, std::default::Default)]
pub struct Wish<'a> {
    /// An SQL expression that gives the new owner of a row of the conversations. It is evaluated on the tables as they
    /// are before the change. With one, the owner's values are new even where the old ones could stay.
    pub backfill: Option<&'a str>,
    /// The columns of former owners go; not that of an owner who leaves by this same change.
    pub drop_old_owner: bool,
    /// It is the same kind of owner, so the values stay if only the column's name or only the foreign key changes.
    pub same_owner: bool,
    /// What the host added to our tables.
    pub additions: &'a [Addition],
    /// The names of the host's own tables, views and indexes.
    pub taken: &'a [String],
}

/// A column that a migration of the host's own added to one of our tables. `PostgreSQL` keeps it by itself; where a
/// table is built anew it has to be said again.
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
    /// For every table, the columns that stay, by their old and their new name.
    kept: Vec<Vec<(String, String)>>,
    owner: OwnerChange,
    additions: Vec<Addition>,
    taken: Vec<String>,
}

/// What happens to the owner.
#[derive(Debug, PartialEq, Eq)]
enum OwnerChange {
    /// The values stay; the column's name or its foreign key may change.
    Stays,
    /// There is none any more.
    Leaves,
    /// Another one comes.
    Comes(Filling),
}

/// Where the values of a new owner come from.
#[derive(Debug, PartialEq, Eq)]
enum Filling {
    Backfill(String),
    /// It was the owner before, and the column is still there.
    Former(String),
    /// Nobody said; good for tables without rows.
    Unknown,
}

/// Nothing if the tables are as they should be. A difference that no version of the generator makes is refused: a table
/// more or less, a column of another type, or a new one that needs a value.
pub fn transition(old: &Schema, new: &Schema, wish: &Wish) -> Result<Option<Transition>> {
    for schema in [old, new] {
        valid::check(schema).map_err(|fault| unknown_tables(&fault))?;
    }
    if old.tables.len() != new.tables.len() {
        return Err(unknown_tables(&format!("there are {} of them", old.tables.len())));
    }
    let new = &as_recorded(old, new);
    refuse_taken_columns(old, new, wish.additions)?;
    refuse_taken_names(old, new, wish.taken)?;
    let owner = OwnerChange::of(old, new, wish);
    let retired = retired_names(old, new, &owner, wish);
    let mut schema = new.clone();
    let mut kept = Vec::new();
    for (before, table) in old.tables.iter().zip(&mut schema.tables) {
        let pairs = pairs(before, table, old.owner(), new.owner(), &owner, &retired);
        check_columns(before, table, &pairs, new.owner()).map_err(|fault| unknown_tables(&fault))?;
        let former = pairs.iter().filter(|(_, name)| table.column(name).is_none()).filter_map(|(from, name)| {
            let former = Column {
                name: name.clone(),
                nullable: true,
                default: None,
                retired: true,
                kind: before.column(from)?.kind,
            };
            Some(former)
        });
        let former: Vec<_> = former.collect();
        table.columns.extend(former);
        kept.push(pairs);
    }
    let (additions, taken) = (wish.additions.to_vec(), wish.taken.to_vec());
    let transition = Transition { old: old.clone(), schema, kept, owner, additions, taken };
    Ok(Some(transition).filter(Transition::changes_something))
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
    for (before, now) in old.tables.iter().zip(&mut new.tables) {
        for key in &mut now.foreign_keys {
            if let Some(same) = before.foreign_keys.iter().find(|before| place(before) == place(key)) {
                key.schema.clone_from(&same.schema);
            }
        }
    }
    new
}

impl Transition {
    /// The tables afterwards: the new ones, with the columns of former owners.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// What it does, for the name of the migration.
    pub fn name(&self) -> String {
        let (before, now) = (subject(&self.old), subject(&self.schema));
        let owner = |schema: &Schema| schema.owner().map_or("none".to_owned(), |owner| owner.name.clone());
        let (old_owner, new_owner) = (owner(&self.old), owner(&self.schema));
        let former = |schema| retired_columns(schema).len();
        match self.owner {
            OwnerChange::Comes(_) | OwnerChange::Leaves => format!("change_{now}_owner_to_{new_owner}"),
            OwnerChange::Stays if old_owner != new_owner => format!("rename_{now}_owner_to_{new_owner}"),
            OwnerChange::Stays if before != now => format!("rename_{before}_to_{now}"),
            OwnerChange::Stays if target(&self.old) != target(&self.schema) => format!("change_{now}_owner_table"),
            OwnerChange::Stays if former(&self.schema) < former(&self.old) => format!("drop_{now}_old_owner"),
            OwnerChange::Stays => format!("update_{now}"),
        }
    }

    pub fn up(&self, database: Database) -> String {
        let stays = self.old.owner().map_or(String::new(), |owner| {
            let place = self.kept[0].iter().find(|(from, _)| *from == owner.name).map_or("", |(_, to)| to);
            let place = if place == owner.name { String::new() } else { format!(" in {place}") };
            format!(" What {} held stays{place}, until a run with --drop-old-owner.", owner.name)
        });
        let about = match (&self.owner, self.schema.owner()) {
            (OwnerChange::Stays, _) => None,
            (_, Some(owner)) => Some(format!("The owner is {} from now on.{stays}", owner.name)),
            (_, None) => Some(format!("There is no owner from now on.{stays}")),
        };
        render(about, &self.path_up(), database)
    }

    pub fn down(&self, database: Database) -> String {
        let is_gone = |column: &&Column| !self.kept[0].iter().any(|(from, _)| *from == column.name);
        let about = match (&self.owner, self.old.owner()) {
            (OwnerChange::Stays, _) if retired_columns(&self.old).iter().any(is_gone) => {
                Some("The columns of former owners come back, without their values.".to_owned())
            }
            (OwnerChange::Stays, _) => None,
            (_, Some(owner)) => Some(format!("The owner is {} again.", owner.name)),
            (_, None) => Some("There is no owner, again.".to_owned()),
        };
        let additions = self.additions(database);
        render(about, &self.path_down(&additions), database)
    }

    /// Whether the tables are built anew, up or down, so that what others have on them gets lost or is in the way.
    pub fn builds_anew(&self, database: Database) -> bool {
        match database {
            Database::Sqlite => sqlite::builds_anew(&self.path_up()) || sqlite::builds_anew(&self.path_down(&[])),
            Database::Postgres => false,
        }
    }

    /// It can run only while there are no conversations, because nobody said whose they are.
    pub fn lacks_backfill(&self) -> bool {
        self.owner == OwnerChange::Comes(Filling::Unknown)
    }

    fn path_up(&self) -> Path<'_> {
        let owners = match (&self.owner, self.schema.owner()) {
            (OwnerChange::Comes(filling), Some(column)) => Owners::Filled { column, filling },
            (OwnerChange::Leaves, _) => Owners::Dropped,
            (OwnerChange::Stays | OwnerChange::Comes(_), _) => Owners::Same,
        };
        let kept = self.kept.iter().map(|pairs| borrowed(pairs)).collect();
        Path::new(&self.old, &self.schema, kept, owners, &self.additions, &self.taken)
    }

    fn path_down<'a>(&'a self, additions: &'a [Addition]) -> Path<'a> {
        let owners = match (&self.owner, self.old.owner()) {
            (OwnerChange::Stays, _) => Owners::Same,
            (OwnerChange::Comes(_) | OwnerChange::Leaves, Some(column)) => Owners::Restored { column },
            (OwnerChange::Comes(_) | OwnerChange::Leaves, None) => Owners::Dropped,
        };
        let reverse = |(from, to)| (to, from);
        let kept = self.kept.iter().map(|pairs| borrowed(pairs).into_iter().map(reverse).collect()).collect();
        Path::new(&self.schema, &self.old, kept, owners, additions, &self.taken)
    }

    fn changes_something(&self) -> bool {
        let bare = |schema: &Schema| {
            let mut schema = schema.clone();
            for table in &mut schema.tables {
                table.about.clear();
                table.columns.sort_by(|a, b| a.name.cmp(&b.name));
                table.indexes.sort_by(|a, b| a.name.cmp(&b.name));
                table.checks.sort();
            }
            schema
        };
        self.owner != OwnerChange::Stays || bare(&self.old) != bare(&self.schema)
    }

    /// The host's columns once this has run.
    pub fn additions(&self, database: Database) -> Vec<Addition> {
        let path = self.path_up();
        let moved = |addition: &Addition| match path.tables.iter().find(|table| table.from.name == addition.table) {
            Some(table) => Addition {
                table: table.to.name.clone(),
                definition: table.carried_definition(&addition.definition, database),
                ..addition.clone()
            },
            None => addition.clone(),
        };
        self.additions.iter().map(moved).collect()
    }
}

impl OwnerChange {
    fn of(old: &Schema, new: &Schema, wish: &Wish) -> Self {
        let (before, now) = match (old.owner(), new.owner()) {
            (before, Some(now)) => (before, now),
            (Some(_), None) => return Self::Leaves,
            (None, None) => return Self::Stays,
        };
        if before.is_some_and(|before| before.kind == now.kind && values_stay(before, now, old, new, wish)) {
            return Self::Stays;
        }
        let former = || retired_columns(old).into_iter().find(|c| c.name == now.name && c.kind == now.kind);
        Self::Comes(match wish.backfill {
            Some(expression) => Filling::Backfill(expression.to_owned()),
            None => former().map_or(Filling::Unknown, |column| Filling::Former(column.name.clone())),
        })
    }
}

/// Whether the values of an owner's column are those of the new one's, which has the same type.
fn values_stay(before: &Column, now: &Column, old: &Schema, new: &Schema, wish: &Wish) -> bool {
    let same_name = before.name == now.name;
    let same_target = target(old) == target(new);
    match wish.backfill {
        Some(_) => wish.same_owner && same_name && same_target,
        None if wish.same_owner => same_name || same_target,
        // Without a table to name them, the numbers of users may be anybody's.
        None => same_name && same_target && target(old).is_some(),
    }
}

/// What the owner's foreign key names.
fn target(schema: &Schema) -> Option<(Option<&str>, &str, &[String])> {
    let owner = schema.owner()?;
    let key = |key: &&ForeignKey| key.columns == [owner.name.as_str()];
    let key = schema.tables.first()?.foreign_keys.iter().find(key)?;
    Some((key.schema.as_deref(), &key.table, &key.references))
}

/// The columns of former owners are the same in every table.
fn retired_columns(schema: &Schema) -> Vec<&Column> {
    schema.tables.first().into_iter().flat_map(|table| &table.columns).filter(|column| column.retired).collect()
}

/// What the columns of former owners are called from now on: as before, unless the new tables need the name.
fn retired_names(old: &Schema, new: &Schema, owner: &OwnerChange, wish: &Wish) -> Vec<(String, String)> {
    let names = |schema: &Schema| -> Vec<String> {
        schema.tables.iter().flat_map(|table| &table.columns).map(|column| column.name.clone()).collect()
    };
    let needed = names(new);
    let mut taken = [needed.clone(), names(old)].concat();
    taken.extend(wish.additions.iter().map(|addition| addition.column.clone()));
    let leaves = old.owner().filter(|_| *owner != OwnerChange::Stays);
    let earlier = retired_columns(old).into_iter().filter(|_| !wish.drop_old_owner);
    let mut found = Vec::new();
    for column in leaves.into_iter().chain(earlier) {
        let mut name = column.name.clone();
        if needed.contains(&name) {
            name = free_name(&format!("old_{name}"), &taken);
            taken.push(name.clone());
        }
        found.push((column.name.clone(), name));
    }
    found
}

/// A name that is not taken and short enough for every database.
fn free_name(wanted: &str, taken: &[String]) -> String {
    let limit = Database::Postgres.identifier_limit();
    let numbered = |number: usize| {
        let suffix = if number == 1 { String::new() } else { format!("_{number}") };
        let room = limit - suffix.len();
        format!("{}{suffix}", cut(wanted, room))
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

/// The columns of a table that stay, by their old and their new name.
fn pairs(
    before: &Table,
    now: &Table,
    old_owner: Option<&Column>,
    new_owner: Option<&Column>,
    owner: &OwnerChange,
    retired: &[(String, String)],
) -> Vec<(String, String)> {
    let named = |name: &str, column: Option<&Column>| column.is_some_and(|column| column.name == name);
    let stays = |column: &Column| {
        let name = &column.name;
        if let Some((_, now)) = retired.iter().find(|(before, _)| before == name) {
            return Some(now.clone());
        }
        if named(name, old_owner) {
            return new_owner.map(|owner| owner.name.clone());
        }
        // What has the name of a new owner is another column.
        let is_new = *owner != OwnerChange::Stays && named(name, new_owner);
        (!column.retired && !is_new && now.column(name).is_some()).then(|| name.clone())
    };
    before.columns.iter().filter_map(|column| Some((column.name.clone(), stays(column)?))).collect()
}

/// Differences that would need a value or a conversion have not been made so far.
fn check_columns(
    before: &Table,
    now: &Table,
    pairs: &[(String, String)],
    owner: Option<&Column>,
) -> Result<(), String> {
    for column in &now.columns {
        let from = pairs.iter().find(|(_, name)| *name == column.name).and_then(|(from, _)| before.column(from));
        let is_owner = owner.is_some_and(|owner| owner.name == column.name);
        let (table, name) = (&now.name, &column.name);
        match from {
            Some(from) if from.kind != column.kind => return Err(format!("`{name}` in `{table}` has another type")),
            None if !is_owner && !column.nullable && column.default.is_none() => {
                return Err(format!("`{name}` in `{table}` is missing, and has no default"));
            }
            Some(_) | None => {}
        }
    }
    let mut names: Vec<_> = pairs.iter().map(|(_, name)| name).collect();
    names.sort();
    match names.windows(2).find(|names| names[0] == names[1]) {
        Some(names) => Err(format!("two columns of `{}` would be called `{}`", now.name, names[0])),
        None => Ok(()),
    }
}

fn refuse_taken_columns(old: &Schema, new: &Schema, additions: &[Addition]) -> Result<()> {
    for (before, now) in old.tables.iter().zip(&new.tables) {
        let of_table = |addition: &&Addition| addition.table == before.name;
        let is_ours = |addition: &&Addition| now.columns.iter().any(|c| c.name.eq_ignore_ascii_case(&addition.column));
        if let Some(Addition { table, column, .. }) = additions.iter().filter(of_table).find(is_ours) {
            return Err(Failure::decision(format!(
                "the table `{table}` has a column `{column}` of your own, and would get one of that name"
            ))
            .help("rename or drop yours in a migration, or choose another name with --owner-field"));
        }
    }
    Ok(())
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
    let name = schema.tables.first().map_or("", |table| table.name.as_str());
    let prefix = name.strip_suffix("conversations").unwrap_or(name).trim_matches('_');
    if prefix.is_empty() { "conversations" } else { prefix }
}

fn borrowed(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect()
}

fn render(about: Option<String>, path: &Path, database: Database) -> String {
    let steps = match database {
        Database::Sqlite => sqlite::render(path),
        Database::Postgres => postgres::render(path),
    };
    about.map(|about| format!("-- {about}\n\n")).unwrap_or_default() + &steps
}
