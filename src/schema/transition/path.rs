//! What a migration has to do, up or down, before any database spells it: which tables and columns go where, what of
//! the keys and indexes can stay, where the owner comes from, and what would have to be refused.

use super::{Addition, Filling};
use crate::database::{Database, Dialect as _};
use crate::host::migrations::rename_columns;
use crate::schema::sql::{self, Part};
use crate::schema::{Column, DefaultValue, ForeignKey, Key, Kind, Schema, Table};

pub(super) struct Path<'a> {
    /// The tables that are there before and after, parents first.
    pub tables: Vec<TablePath<'a>>,
    /// The tables that are made.
    pub added: Vec<&'a Table>,
    /// The tables that go.
    pub dropped: Vec<&'a Table>,
    /// All tables before and after, parents first.
    pub from: &'a Schema,
    pub to: &'a Schema,
    pub owners: Owners<'a>,
    pub additions: &'a [Addition],
    /// The columns of the owner, before and after.
    owner_columns: [Option<&'a str>; 2],
    /// Names that something of the host's has.
    taken: &'a [String],
}

pub(super) struct TablePath<'a> {
    pub from: &'a Table,
    pub to: &'a Table,
    /// The columns that stay.
    kept: Names<'a>,
}

/// Old and new names.
type Names<'a> = Vec<(&'a str, &'a str)>;

/// Where the owner comes from that the tables have at the end.
pub(super) enum Owners<'a> {
    /// It is the one that they have, or there was none.
    Same,
    /// From an expression on the conversations.
    Filled { column: &'a Column, filling: &'a Filling },
    /// From the column that kept it. Rows that a conversation got since then do not have it, their conversation does.
    Restored { column: &'a Column },
}

/// Something that must not be, or else the migration stops with nothing changed.
pub(super) struct Guard {
    /// What is made sure, for the reader of the migration.
    pub about: String,
    /// For the person who runs it.
    pub message: String,
    /// Finds a row if it has to stop.
    pub query: String,
}

/// How the constraints or the indexes of a table change.
#[derive(Default)]
pub(super) struct Difference {
    pub dropped: Vec<Part>,
    /// By their old and their new name.
    pub renamed: Vec<(String, String)>,
    pub added: Vec<Part>,
}

impl Difference {
    /// The `before` has its old names, and definitions as they read after the change.
    fn of(before: Vec<Part>, after: Vec<Part>) -> Self {
        let taken: Vec<_> = before.iter().map(|part| part.name.clone()).collect();
        let mut difference = Self { dropped: before, ..Self::default() };
        let changed: Vec<_> = after.into_iter().filter(|part| difference.take(|old| old == part).is_none()).collect();
        for part in changed {
            let is_free = !taken.contains(&part.name);
            match difference.take(|old| is_free && old.definition == part.definition) {
                Some(old) => difference.renamed.push((old.name, part.name)),
                None => difference.added.push(part),
            }
        }
        difference
    }

    fn take(&mut self, is_same: impl Fn(&Part) -> bool) -> Option<Part> {
        let place = self.dropped.iter().position(is_same)?;
        Some(self.dropped.remove(place))
    }
}

impl<'a> Path<'a> {
    /// The `pairs` are the tables that stay, by their old and their new name, each with its columns.
    pub fn new(
        from: &'a Schema,
        to: &'a Schema,
        pairs: &[(&str, &str, Names<'a>)],
        owners: Owners<'a>,
        additions: &'a [Addition],
        taken: &'a [String],
    ) -> Self {
        let find = |schema: &'a Schema, name: &str| schema.tables.iter().find(|table| table.name == name);
        let stays = |(before, now, kept): &(&str, &str, Vec<_>)| {
            Some(TablePath { from: find(from, before)?, to: find(to, now)?, kept: kept.clone() })
        };
        let tables: Vec<_> = pairs.iter().filter_map(stays).collect();
        let added = to.tables.iter().filter(|table| !tables.iter().any(|path| path.to == *table)).collect();
        let owner_columns = [from, to].map(|schema| schema.owner().map(|owner| owner.name.as_str()));
        Self { tables, added, dropped: Vec::new(), from, to, owners, additions, owner_columns, taken }
    }

    /// The conversations, whose key all the others refer to.
    pub fn conversations(&self) -> &TablePath<'a> {
        &self.tables[0]
    }

    pub fn children(&self) -> &[TablePath<'a>] {
        &self.tables[1..]
    }

    /// A name for the new owner's column while the old columns are still there: one that no backfill means by mistake.
    pub fn staging(&self) -> String {
        let ours = self.tables.iter().flat_map(|table| &table.from.columns).map(|column| &column.name);
        let taken: Vec<_> = ours.chain(self.additions.iter().map(|addition| &addition.column)).cloned().collect();
        super::free_name("sagents_new_owner", &taken)
    }

    /// A name for a table that is there only during the migration.
    pub fn transient_name(&self, wanted: &str) -> String {
        let ours = self.from.tables.iter().chain(&self.to.tables).map(|table| &table.name);
        let taken: Vec<_> = ours.chain(self.taken).cloned().collect();
        super::free_name(wanted, &taken)
    }

    /// Which column of the old conversations holds the owner that they will have, if that is another one than now.
    pub fn new_owners(&self) -> Option<String> {
        match self.owners {
            Owners::Same => None,
            Owners::Filled { .. } => Some(self.staging()),
            // A former owner stays until it is dropped.
            Owners::Restored { column } => self.conversations().origin(&column.name).map(str::to_owned),
        }
    }

    /// The old table with every name as it is after the change, except those of its constraints and indexes.
    fn carried(&self, table: &TablePath) -> Table {
        let columns = |names: &[String]| names.iter().map(|name| table.carried(name)).collect::<Vec<_>>();
        let mut carried = Table { name: table.to.name.clone(), ..table.from.clone() };
        for column in &mut carried.columns {
            column.name = table.carried(&column.name);
        }
        for key in carried.unique.iter_mut().chain([&mut carried.primary_key]) {
            key.columns = columns(&key.columns);
        }
        for column in carried.indexes.iter_mut().flat_map(|index| &mut index.columns) {
            column.name = table.carried(&column.name);
        }
        for key in &mut carried.foreign_keys {
            key.columns = columns(&key.columns);
            if let Some(own) = self.tables.iter().find(|own| key.refers_to(own.from)) {
                key.references = key.references.iter().map(|name| own.carried(name)).collect();
                key.table.clone_from(&own.to.name);
                if own.loses_key(&key.references) {
                    // What it refers to goes, and so it has to go before.
                    key.table.insert_str(0, GONE);
                }
            }
        }
        carried
    }

    /// How the constraints of a table change. `SQLite` keeps their names in the text of the table alone, where nothing
    /// finds them and nothing but a rebuild can change them; so there another name is no difference.
    pub fn constraints(&self, table: &TablePath, database: Database) -> Difference {
        let parts = |table: &Table| {
            let mut parts = sql::constraints(table, database);
            match database {
                Database::Sqlite => parts.iter_mut().for_each(|part| part.name.clear()),
                Database::Postgres => {}
            }
            parts
        };
        Difference::of(parts(&self.carried(table)), parts(table.to))
    }

    pub fn indexes(&self, table: &TablePath, database: Database) -> Difference {
        Difference::of(sql::indexes(&self.carried(table), database), sql::indexes(table.to, database))
    }

    /// Foreign keys of a table onto tables that are not ours, among those that have to be made.
    pub fn foreign_keys_to_others(&self, table: &TablePath<'a>) -> Vec<&'a ForeignKey> {
        let place = |key: &ForeignKey| (key.columns.clone(), key.schema.clone(), key.table.clone());
        let before: Vec<_> = self.carried(table).foreign_keys.iter().map(place).collect();
        let own = |key: &ForeignKey| self.to.tables.iter().any(|table| key.refers_to(table));
        let keys = table.to.foreign_keys.iter();
        keys.filter(|key| !before.contains(&place(key)) && !own(key)).collect()
    }

    /// How a `child` finds its `conversation`, by the keys that they have before the change.
    pub fn join(&self, child: &TablePath, database: Database) -> String {
        let conversations = self.conversations().from;
        let keys = child.from.foreign_keys.iter().filter(|key| key.refers_to(conversations));
        let pairs = keys.take(1).flat_map(|key| key.references.iter().zip(&key.columns));
        let equal = |(parent, column): (&String, &String)| {
            format!("conversation.{} = child.{}", database.quote(parent), database.quote(column))
        };
        pairs.map(equal).collect::<Vec<_>>().join(" AND ")
    }

    /// What a change of tables and columns must not meet: a value that would be lost, or one that is missing.
    pub fn guards(&self, database: Database) -> Vec<Guard> {
        let dropped = self.dropped.iter().map(|table| Guard {
            about: format!("Stops, with nothing changed, if {} has rows, which would be lost.", table.name),
            message: format!("there are rows in {}, and they would be lost; nothing was changed", table.name),
            query: format!("SELECT 1 FROM {}", database.quote(&table.name)),
        });
        dropped.chain(self.tables.iter().flat_map(|table| self.column_guards(table, database))).collect()
    }

    fn column_guards(&self, table: &TablePath, database: Database) -> Vec<Guard> {
        let name = &table.from.name;
        let guard = |what: &str, condition: Option<String>| Guard {
            about: format!("Stops, with nothing changed, if {name} has {what}."),
            message: format!("there are rows in {name} with {what}; nothing was changed"),
            query: match condition {
                Some(condition) => format!("SELECT 1 FROM {} WHERE {condition}", database.quote(name)),
                None => format!("SELECT 1 FROM {}", database.quote(name)),
            },
        };
        let [old_owner, new_owner] = self.owner_columns;
        let mut guards = Vec::new();
        // An owner that leaves is guarded on its own, and what is retired goes because somebody asked for that.
        for column in table.dropped().filter(|column| !column.retired && Some(column.name.as_str()) != old_owner) {
            let what = format!("a value of {} that would be lost", column.name);
            guards.push(guard(&what, has_value(column, database)));
        }
        for column in table.added().filter(|column| Some(column.name.as_str()) != new_owner) {
            if !column.nullable && column.default.is_none() {
                let what = format!("no value of {}: a {} is needed", column.name, column.kind.name());
                guards.push(guard(&what, None));
            }
        }
        for (from, to) in table.kept() {
            let quoted = database.quote(&from.name);
            let is_owner = Some(to.name.as_str()) == new_owner && !matches!(self.owners, Owners::Same);
            if from.nullable && !to.nullable && to.default.is_none() && !is_owner {
                let what = format!("no value of {}: a {} is needed", from.name, from.kind.name());
                guards.push(guard(&what, Some(format!("{quoted} IS NULL"))));
            }
            if (from.kind, to.kind) == (Kind::BigInteger, Kind::Integer) {
                let what = format!("a {} that is too large for a {}", from.name, to.kind.name());
                guards.push(guard(&what, Some(format!("{quoted} NOT BETWEEN {} AND {}", i32::MIN, i32::MAX))));
            }
        }
        guards
    }

    /// No conversation may be without its owner.
    pub fn empty_owner_guard(&self, database: Database) -> Option<Guard> {
        let from = self.new_owners()?;
        let conversations = &self.conversations().from.name;
        let (name, message) = match &self.owners {
            Owners::Same | Owners::Filled { filling: Filling::Nobody, .. } => return None,
            Owners::Filled { column, filling } => {
                let name = &column.name;
                let message = match filling {
                    Filling::Backfill(_) => {
                        format!("the backfill leaves conversations without a {name}; nothing was changed")
                    }
                    Filling::Former(former) => format!(
                        "there are conversations without a former {former}: say with --backfill what their {name} is; \
                         nothing was changed"
                    ),
                    Filling::Nobody | Filling::Unknown => format!(
                        "there are conversations already: say with --backfill what their {name} is; nothing was changed"
                    ),
                };
                (name, message)
            }
            Owners::Restored { column } => {
                let name = &column.name;
                (
                    name,
                    format!(
                        "there are conversations without a former {name}, so it cannot be restored; nothing was changed"
                    ),
                )
            }
        };
        Some(Guard {
            about: format!("Stops, with nothing changed, if a conversation is without a {name}."),
            message,
            query: format!("SELECT 1 FROM {} WHERE {} IS NULL", database.quote(conversations), database.quote(&from)),
        })
    }

    /// Two conversations may not become one.
    pub fn same_key_guard(&self, database: Database) -> Option<Guard> {
        if matches!(self.owners, Owners::Same) {
            return None;
        }
        let conversations = self.conversations();
        let owner = self.new_owners();
        // Without an owner before, ids alone were a key.
        let [_, id] = conversations.from.primary_key.columns.as_slice() else { return None };
        let key: Vec<_> = owner.iter().chain([id]).map(|column| database.quote(column)).collect();
        let message = match &self.owners {
            Owners::Same | Owners::Filled { filling: Filling::Nobody, .. } => {
                "there are conversations of one id, which only their owners tell apart; nothing was changed".to_owned()
            }
            Owners::Filled { column, .. } | Owners::Restored { column } => {
                format!(
                    "there are conversations of one id that would have the same {}; nothing was changed",
                    column.name
                )
            }
        };
        Some(Guard {
            about: "Stops, with nothing changed, if two conversations would have the same key.".to_owned(),
            message,
            query: format!(
                "SELECT 1 FROM {} GROUP BY {} HAVING count(*) > 1",
                database.quote(&conversations.from.name),
                key.join(", ")
            ),
        })
    }
}

/// What no name starts with: for what goes, so that nothing new is taken for it.
const GONE: &str = "\0";

/// The rows in which a column has a value of its own; nothing if all have one.
fn has_value(column: &Column, database: Database) -> Option<String> {
    let name = database.quote(&column.name);
    match column.default {
        // Of the two types of JSON one cannot be compared.
        Some(DefaultValue::EmptyObject) => Some(format!("CAST({name} AS TEXT) <> '{{}}'")),
        Some(default) => Some(format!("{name} <> {}", sql::literal(default, database))),
        None if column.nullable => Some(format!("{name} IS NOT NULL")),
        None => None,
    }
}

impl<'a> TablePath<'a> {
    /// The new name of a column, if it stays.
    pub fn arrival(&self, from: &str) -> Option<&'a str> {
        self.kept.iter().find(|(before, _)| *before == from).map(|(_, now)| *now)
    }

    /// The old name of a column, if it was there.
    pub fn origin(&self, to: &str) -> Option<&'a str> {
        self.kept.iter().find(|(_, now)| *now == to).map(|(before, _)| *before)
    }

    /// The columns that stay, as they were and as they will be.
    pub fn kept(&self) -> impl Iterator<Item = (&'a Column, &'a Column)> {
        self.kept.iter().filter_map(|(from, to)| Some((self.from.column(from)?, self.to.column(to)?)))
    }

    pub fn dropped(&self) -> impl Iterator<Item = &'a Column> {
        self.from.columns.iter().filter(|column| self.arrival(&column.name).is_none())
    }

    pub fn added(&self) -> impl Iterator<Item = &'a Column> {
        self.to.columns.iter().filter(|column| self.origin(&column.name).is_none())
    }

    /// The columns that get another name, in an order in which the new name is free each time.
    pub fn renamed(&self) -> Vec<(&'a str, &'a str)> {
        let mut pending: Vec<_> = self.kept.iter().copied().filter(|(from, to)| from != to).collect();
        let mut ordered = Vec::new();
        while !pending.is_empty() {
            let is_free = |(_, to): &(&str, &str)| !pending.iter().any(|(from, _)| from == to);
            // No two columns change names with each other: what a column is renamed to is free, or becomes so.
            let next = pending.iter().position(is_free).unwrap_or_default();
            ordered.push(pending.remove(next));
        }
        ordered
    }

    /// A column by its new name, or by one that no column has.
    fn carried(&self, column: &str) -> String {
        self.arrival(column).map_or_else(|| format!("{GONE}{column}"), str::to_owned)
    }

    /// Whether a key of these columns, by their new names, goes.
    fn loses_key(&self, columns: &[String]) -> bool {
        let is_lost = |key: &Key, stays: &dyn Fn(&[String]) -> bool| {
            let key: Vec<_> = key.columns.iter().map(|name| self.carried(name)).collect();
            key.len() == columns.len() && key.iter().all(|name| columns.contains(name)) && !stays(&key)
        };
        is_lost(&self.from.primary_key, &|key| self.to.primary_key.columns == key)
            || self
                .from
                .unique
                .iter()
                .any(|key| is_lost(key, &|columns| self.to.unique.iter().any(|key| key.columns == columns)))
    }

    /// The definition of a host's column, with our columns by their new names.
    pub fn carried_definition(&self, definition: &str, database: Database) -> String {
        let renamed = |name: &str| {
            let same = |(from, to): &&(&str, &str)| from != to && database.same_name(from, name);
            self.kept.iter().find(same).map(|(_, to)| database.quote(to))
        };
        rename_columns(definition, database, renamed)
    }
}
