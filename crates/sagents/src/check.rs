//! Compares the tables in the database with those that the library needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::schema::{Database, Kind, OwnerColumn, Schema, Table};
use crate::tables::{KeyKind, Tables};

/// A table as the database's catalog describes it.
#[derive(Debug, Default)]
pub(crate) struct FoundTable {
    pub(crate) columns: Vec<FoundColumn>,
    pub(crate) primary_key: Vec<String>,
    /// The columns of each unique constraint or index, and of each other index.
    pub(crate) unique: Vec<Vec<String>>,
    pub(crate) indexes: Vec<String>,
    pub(crate) foreign_keys: Vec<FoundForeignKey>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FoundForeignKey {
    pub(crate) columns: Vec<String>,
    pub(crate) table: String,
    pub(crate) references: Vec<String>,
    /// Whether deletes cascade.
    pub(crate) cascades: bool,
}

#[derive(Debug)]
pub(crate) struct FoundColumn {
    pub(crate) name: String,
    /// As the database spells it, in lower case.
    pub(crate) kind: String,
    /// Whether a row may leave it out.
    pub(crate) is_optional: bool,
}

/// The tables that a store needs, without their foreign keys to the application's tables.
pub(crate) fn needed(tables: &Tables) -> Schema {
    let owner = tables.owner();
    let kind = match owner.kind {
        KeyKind::Integer => Kind::BigInteger,
        KeyKind::Uuid => Kind::Uuid,
        KeyKind::Text => Kind::Text,
    };
    let owner = OwnerColumn { name: owner.name.to_owned(), kind, references: None };
    Schema::new(tables.prefix(), &owner, tables.group_of_owners().is_some())
}

/// How much of the tables is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Whether every table and column is there: what statements need to run.
    Columns,
    /// Types, keys and indexes too, and columns that the host's `TABLES` doesn't list.
    Everything,
}

/// What's wrong with the tables, one sentence each; nothing if they fit.
pub(crate) fn problems(
    tables: &Tables,
    database: Database,
    depth: Depth,
    found: &BTreeMap<String, FoundTable>,
) -> Vec<String> {
    let mut problems = Vec::new();
    for table in needed(tables).tables {
        let Some(found) = found.get(&table.name) else {
            problems.push(format!("the table {} is missing", table.name));
            continue;
        };
        let own = own_columns(tables, &table.name);
        for column in table.columns.iter().map(|column| column.name.as_str()).chain(own.iter().copied()) {
            if !found.columns.iter().any(|found| found.name == column) {
                problems.push(format!("the table {} has no column {column}", table.name));
            }
        }
        if depth == Depth::Everything {
            let is_listed = |column: &str| own.contains(column) || tables.is_former_owner(column);
            details(&table, found, is_listed, database, &mut problems);
        }
    }
    problems
}

/// The columns that the host's `TABLES` lists beside the library's.
fn own_columns(tables: &Tables, table: &str) -> BTreeSet<&'static str> {
    match table.strip_prefix(tables.prefix()) {
        Some("conversations") => tables.own_conversation_columns().collect(),
        Some("display_messages") => tables.own_display_message_columns().collect(),
        _ => BTreeSet::new(),
    }
}

fn details(
    table: &Table,
    found: &FoundTable,
    is_listed: impl Fn(&str) -> bool,
    database: Database,
    problems: &mut Vec<String>,
) {
    let name = &table.name;
    for found in &found.columns {
        let column = &found.name;
        match table.column(column) {
            Some(needed) => {
                let kind = database.column_type(needed.kind).to_lowercase();
                if !is_kind(needed.kind, &kind, &found.kind) {
                    problems.push(format!("{name}.{column} is {}, and not {kind}", found.kind));
                }
            }
            None if !found.is_optional => {
                problems.push(format!("{name}.{column} needs a default or has to allow NULL"));
            }
            None if is_listed(column) => {}
            None if name.ends_with("conversations") || name.ends_with("display_messages") => {
                let model = if name.ends_with("conversations") { "Conversation" } else { "DisplayMessage" };
                problems.push(format!(
                    "TABLES doesn't list {name}.{column}: add it to {model}::COLUMNS, or forks and imports lose it"
                ));
            }
            None => {}
        }
    }
    if found.primary_key != table.primary_key.columns {
        problems.push(format!("the primary key of {name} isn't ({})", table.primary_key.columns.join(", ")));
    }
    for key in &table.unique {
        if !found.unique.contains(&key.columns) {
            problems.push(format!("{name} has no unique constraint on ({})", key.columns.join(", ")));
        }
    }
    for key in &table.foreign_keys {
        let needed = FoundForeignKey {
            columns: key.columns.clone(),
            table: key.table.clone(),
            references: key.references.clone(),
            cascades: true,
        };
        if !found.foreign_keys.contains(&needed) {
            let (columns, table) = (key.columns.join(", "), &key.table);
            problems.push(format!("{name} has no foreign key on ({columns}) to {table} with ON DELETE CASCADE"));
        }
    }
    for index in &table.indexes {
        if !found.indexes.contains(&index.name) {
            problems.push(format!("{name} has no index {}", index.name));
        }
    }
}

/// A host's key may have a narrower integer or another text type.
fn is_kind(needed: Kind, kind: &str, found: &str) -> bool {
    kind == found
        || match needed {
            Kind::BigInteger => ["integer", "smallint", "int"].contains(&found),
            Kind::Text => found.starts_with("character") || found.starts_with("varchar"),
            Kind::Time => found == "timestamp with time zone",
            _ => false,
        }
}
