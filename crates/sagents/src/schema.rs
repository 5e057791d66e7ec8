//! The tables as data, and as the SQL that creates them.
//!
//! This module is for the generator, which writes migrations from it. An application doesn't need it, and its items may
//! change in any release.

mod database;
mod layout;
#[doc(hidden)]
pub mod sql;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use self::database::Database;
use crate::tables;

/// All tables of a context.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Parents first.
    pub tables: Vec<Table>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Its name, with the prefix.
    pub name: String,
    /// What the table is for, as a comment in the migration.
    pub about: String,
    /// In the order of `CREATE TABLE`.
    pub columns: Vec<Column>,
    /// It begins with the owner, like every key.
    pub primary_key: Key,
    /// Unique constraints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unique: Vec<Key>,
    /// Foreign keys; deletes cascade.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign_keys: Vec<ForeignKey>,
    /// Check constraints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Indexes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<Index>,
    /// Rows are small and read in the order of the key.
    pub clustered: bool,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Whether it allows NULL.
    pub nullable: bool,
    /// The value of rows that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<DefaultValue>,
    /// A former owner or an older version left it. Nothing writes to it, and no key, index or foreign key has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retired: bool,
    /// Whether the server compresses large values with lz4, if it can.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compressed: bool,
    /// Whose keys it holds, if no foreign key says so (any more). The generator keeps it for the conversations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<OwnerIds>,
}

/// The owners whose keys a column holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerIds {
    /// What owns a conversation: `user`.
    pub owner_type: String,
    /// The last table that a foreign key of the column referenced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<OwnerKey>,
    /// How the key was read from a scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
}

/// How a key is read from a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The scope's type.
    pub scope: String,
    /// As `--scope-owner` writes it.
    pub way: String,
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// True or false.
    Boolean,
    /// 32 bits.
    Integer,
    /// 64 bits.
    BigInteger,
    /// 16 bytes.
    Uuid,
    /// Text.
    Text,
    /// JSON that the database may normalize.
    Json,
    /// JSON that stays as it was written, to the byte.
    ExactJson,
    /// A point in time, in microseconds.
    Time,
}

impl Kind {
    /// Whether a column can become one of another kind without a change of its values. What does not fit stops the
    /// migration.
    pub fn converts_to(self, other: Self) -> bool {
        use Kind::{BigInteger, ExactJson, Integer, Text};
        self == other
            || matches!(
                (self, other),
                (Integer, BigInteger) | (BigInteger, Integer) | (Text, ExactJson) | (ExactJson, Text)
            )
    }

    /// What a person calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Integer => "32-bit integer",
            Self::BigInteger => "64-bit integer",
            Self::Uuid => "UUID",
            Self::Text => "text",
            Self::Json | Self::ExactJson => "JSON value",
            Self::Time => "time",
        }
    }
}

/// A default of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefaultValue {
    /// `FALSE`.
    False,
    /// `0`.
    Zero,
    /// `{}`.
    EmptyObject,
}

/// A primary key or a unique constraint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The name of the constraint.
    pub name: String,
    /// In the order of the key.
    pub columns: Vec<String>,
}

/// A check constraint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Distinct in its table; it does not start with the table's name, so that it stays when a table is renamed.
    pub name: String,
    /// An expression that both databases understand.
    pub condition: String,
}

/// A foreign key; deletes cascade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// The name of the constraint.
    pub name: String,
    /// The columns that refer.
    pub columns: Vec<String>,
    /// Where the table is, if it is not beside ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The table that is referred to.
    pub table: String,
    /// Its columns.
    pub references: Vec<String>,
}

impl ForeignKey {
    /// Whether it leads to one of our own tables, which are all in one schema.
    pub fn refers_to(&self, table: &Table) -> bool {
        self.schema.is_none() && self.table == table.name
    }
}

/// An index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Its name.
    pub name: String,
    /// In their order.
    pub columns: Vec<IndexColumn>,
    /// Only rows that meet this are in the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
}

/// A column of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexColumn {
    /// Its name.
    pub name: String,
    /// Whether it is in descending order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub descending: bool,
}

/// The column that leads every key, and the table that it references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// The owners' table, if the application has one.
    pub references: Option<OwnerKey>,
}

impl OwnerColumn {
    /// The column of tables without owners, which is always 0.
    #[must_use]
    pub fn none() -> Self {
        Self { name: tables::OwnerColumn::none().name.to_owned(), kind: Kind::BigInteger, references: None }
    }

    /// Whether it's the column of tables without owners.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.name == tables::OwnerColumn::none().name
    }
}

/// The key of the owner's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerKey {
    /// The schema, if it is not the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The table.
    pub table: String,
    /// The column with the key.
    pub column: String,
}

impl Schema {
    /// The owner's column: it leads the key of the conversations.
    pub fn owner(&self) -> Option<&Column> {
        let conversations = self.tables.first()?;
        match conversations.primary_key.columns.as_slice() {
            [owner, _] => conversations.column(owner),
            _ => None,
        }
    }

    /// What the names of all tables start with. The conversations come first.
    pub fn prefix(&self) -> Option<&str> {
        self.tables.first()?.name.strip_suffix(CONVERSATIONS)
    }
}

impl Table {
    /// The column with this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

const CONVERSATIONS: &str = "conversations";

/// The longest thing that is put behind a table prefix.
pub const LONGEST_SUFFIX: &str = "display_messages_tool_calls";

impl Schema {
    /// The tables with this prefix. `has_group` says that scopes read what several owners have.
    #[must_use]
    pub fn new(prefix: &str, owner: &OwnerColumn, has_group: bool) -> Self {
        Self { tables: layout::tables(prefix, owner, has_group) }
    }

    /// The names of the library's columns. The owner's column can't have one of them.
    #[must_use]
    pub fn reserved_columns() -> BTreeSet<String> {
        let tables = Self::new("", &OwnerColumn::none(), false).tables;
        tables.into_iter().flat_map(|table| table.columns).map(|column| column.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_suffix_is_the_longest() {
        let tables = Schema::new("", &OwnerColumn::none(), true).tables;
        let names = tables.iter().flat_map(|table| {
            let keys = table.unique.iter().chain([&table.primary_key]).map(|key| &key.name);
            let foreign_keys = table.foreign_keys.iter().map(|key| &key.name);
            keys.chain(foreign_keys).chain(table.indexes.iter().map(|index| &index.name))
        });
        assert_eq!(names.map(String::len).max(), Some(LONGEST_SUFFIX.len()));
    }

    #[test]
    fn the_owner_leads_every_key() {
        for table in Schema::new("", &OwnerColumn::none(), true).tables {
            let foreign_keys = table.foreign_keys.iter().map(|key| &key.columns);
            let unique = table.unique.iter().map(|key| &key.columns);
            for columns in foreign_keys.chain(unique).chain([&table.primary_key.columns]) {
                assert_eq!(columns[0], "sagents_owner", "{}", table.name);
            }
        }
    }
}
