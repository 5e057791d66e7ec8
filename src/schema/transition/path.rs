//! What a migration has to do, up or down, before any database spells it: which columns go where, what of the keys and
//! indexes can stay, whence the owner comes, and what would have to be refused.

use super::{Addition, Filling};
use crate::database::Database;
use crate::host::migrations::rename_columns;
use crate::schema::{Column, ForeignKey, Index, Schema, Table};

pub(super) struct Path<'a> {
    /// Parents first.
    pub tables: Vec<TablePath<'a>>,
    pub owners: Owners<'a>,
    pub additions: &'a [Addition],
    /// Names that something of the host's has.
    taken: &'a [String],
}

pub(super) struct TablePath<'a> {
    pub from: &'a Table,
    pub to: &'a Table,
    /// The columns that stay, by their old and their new name.
    kept: Vec<(&'a str, &'a str)>,
}

/// Whence the owner comes that the tables have at the end.
pub(super) enum Owners<'a> {
    /// It is the one that they have, or there was none.
    Same,
    /// There will be none.
    Dropped,
    /// From an expression on the conversations.
    Filled { column: &'a Column, filling: &'a Filling },
    /// From the column that kept it. Rows that a conversation got since then do not have it, their conversation does.
    Restored { column: &'a Column },
}

/// Something that must not be, or else the migration stops with nothing changed.
pub(super) struct Guard {
    /// What is made sure, for the reader of the migration.
    pub about: String,
    /// For whoever runs it.
    pub message: String,
    /// Finds a row if it has to stop.
    pub query: String,
}

impl<'a> Path<'a> {
    pub fn new(
        from: &'a Schema,
        to: &'a Schema,
        kept: Vec<Vec<(&'a str, &'a str)>>,
        owners: Owners<'a>,
        additions: &'a [Addition],
        taken: &'a [String],
    ) -> Self {
        let tables = from.tables.iter().zip(&to.tables).zip(kept);
        let tables = tables.map(|((from, to), kept)| TablePath { from, to, kept }).collect();
        Self { tables, owners, additions, taken }
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
        let ours = self.tables.iter().flat_map(|table| [&table.from.name, &table.to.name]);
        let taken: Vec<_> = ours.chain(self.taken).cloned().collect();
        super::free_name(wanted, &taken)
    }

    /// Which column of the old conversations holds the owner that they will have, if that is another one than now.
    pub fn new_owners(&self) -> Option<String> {
        match self.owners {
            Owners::Same | Owners::Dropped => None,
            Owners::Filled { .. } => Some(self.staging()),
            // A former owner stays until it is dropped.
            Owners::Restored { column } => self.conversations().origin(&column.name).map(str::to_owned),
        }
    }

    /// A foreign key as it is after columns and tables have their new names; nothing if a column of it goes.
    fn carried(&self, table: &TablePath, key: &ForeignKey) -> Option<ForeignKey> {
        let own = self.tables.iter().find(|table| key.schema.is_none() && table.from.name == key.table);
        Some(ForeignKey {
            columns: table.carried(&key.columns)?,
            schema: key.schema.clone(),
            table: own.map_or_else(|| key.table.clone(), |own| own.to.name.clone()),
            references: match own {
                Some(own) => own.carried(&key.references)?,
                None => key.references.clone(),
            },
        })
    }

    /// Foreign keys that have to go.
    pub fn foreign_keys_dropped(&self, table: &TablePath<'a>) -> Vec<&'a ForeignKey> {
        let stays =
            |key: &&ForeignKey| self.carried(table, key).is_some_and(|key| table.to.foreign_keys.contains(&key));
        table.from.foreign_keys.iter().filter(|key| !stays(key)).collect()
    }

    /// Foreign keys that have to be made.
    pub fn foreign_keys_added(&self, table: &TablePath<'a>) -> Vec<&'a ForeignKey> {
        let stay: Vec<_> = table.from.foreign_keys.iter().filter_map(|key| self.carried(table, key)).collect();
        table.to.foreign_keys.iter().filter(|key| !stay.contains(key)).collect()
    }

    /// Foreign keys onto tables that are not ours, among those that have to be made.
    pub fn foreign_keys_to_others(&self) -> Vec<&'a ForeignKey> {
        let own =
            |key: &&ForeignKey| key.schema.is_none() && self.tables.iter().any(|table| table.to.name == key.table);
        let added = self.tables.iter().flat_map(|table| self.foreign_keys_added(table));
        added.filter(|key| !own(key)).collect()
    }

    /// How a `child` finds its `conversation`, by the keys that they have before the change.
    pub fn join(&self, child: &TablePath, database: Database) -> String {
        let conversations = &self.conversations().from.name;
        let keys = child.from.foreign_keys.iter().filter(|key| key.schema.is_none() && key.table == *conversations);
        let pairs = keys.take(1).flat_map(|key| key.references.iter().zip(&key.columns));
        let equal = |(parent, column): (&String, &String)| {
            format!("conversation.{} = child.{}", database.quote(parent), database.quote(column))
        };
        pairs.map(equal).collect::<Vec<_>>().join(" AND ")
    }

    /// No conversation may be without its owner.
    pub fn empty_owner_guard(&self, database: Database) -> Option<Guard> {
        let from = self.new_owners()?;
        let conversations = &self.conversations().from.name;
        let (name, message) = match &self.owners {
            Owners::Same | Owners::Dropped => return None,
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
                    Filling::Unknown => format!(
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
        let [_, id] = conversations.from.primary_key.as_slice() else { return None };
        let key: Vec<_> = owner.iter().chain([id]).map(|column| database.quote(column)).collect();
        let message = match &self.owners {
            Owners::Filled { column, .. } | Owners::Restored { column } => {
                format!(
                    "there are conversations of one id that would have the same {}; nothing was changed",
                    column.name
                )
            }
            Owners::Same | Owners::Dropped => {
                "there are conversations of one id, which only their owners tell apart; nothing was changed".to_owned()
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

    /// Columns by their new names; nothing if one of them goes.
    pub fn carried(&self, columns: &[String]) -> Option<Vec<String>> {
        columns.iter().map(|column| self.arrival(column).map(str::to_owned)).collect()
    }

    /// The definition of a host's column, with our columns by their new names.
    pub fn carried_definition(&self, definition: &str, database: Database) -> String {
        let renamed = |name: &str| {
            let same = |(from, to): &&(&str, &str)| from != to && database.same_name(from, name);
            self.kept.iter().find(same).map(|(_, to)| database.quote(to))
        };
        rename_columns(definition, database, renamed)
    }

    pub fn primary_key_stays(&self) -> bool {
        self.carried(&self.from.primary_key).as_ref() == Some(&self.to.primary_key)
    }

    pub fn unique_stays(&self) -> bool {
        match (&self.from.unique, &self.to.unique) {
            (Some(from), Some(to)) => self.carried(from).as_ref() == Some(to),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// An index by its new name and with its columns by theirs.
    fn carried_index(&self, index: &Index) -> Option<Index> {
        let name = match index.name.strip_prefix(&self.from.name) {
            Some(rest) => format!("{}{rest}", self.to.name),
            None => index.name.clone(),
        };
        let mut carried = Index { name, ..index.clone() };
        for column in &mut carried.columns {
            column.name = self.arrival(&column.name)?.to_owned();
        }
        Some(carried)
    }

    /// The indexes that stay, by their old and their new name.
    pub fn indexes_kept(&self) -> Vec<(&'a str, &'a str)> {
        let stays = |index: &'a Index| {
            let carried = self.carried_index(index)?;
            let to = self.to.indexes.iter().find(|to| **to == carried)?;
            Some((index.name.as_str(), to.name.as_str()))
        };
        self.from.indexes.iter().filter_map(stays).collect()
    }

    pub fn indexes_dropped(&self) -> Vec<&'a Index> {
        let kept = self.indexes_kept();
        self.from.indexes.iter().filter(|index| !kept.iter().any(|(from, _)| *from == index.name)).collect()
    }

    pub fn indexes_added(&self) -> Vec<&'a Index> {
        let kept = self.indexes_kept();
        self.to.indexes.iter().filter(|index| !kept.iter().any(|(_, to)| *to == index.name)).collect()
    }
}
