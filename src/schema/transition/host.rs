//! What a host has of its own on our tables or in the way of them, as far as its migrations show it. What a migration
//! would only find out when it runs is refused here.

use super::path::{Path, TablePath};
use super::{Addition, Transition, sqlite};
use crate::database::{Database, Dialect as _};
use crate::failure::{Failure, Result};
use crate::host::migrations::{self, Catalog, Reference};
use crate::schema::{Column, Key, Schema, Table};

/// The columns that migrations of the host's own added to our tables.
pub fn additions(schema: &Schema, catalog: &Catalog) -> Vec<Addition> {
    let mut additions = Vec::new();
    for table in &schema.tables {
        let Some(found) = catalog.table(&table.name) else { continue };
        for column in found.columns.iter().filter(|column| table.column(&column.name).is_none()) {
            additions.push(Addition {
                table: table.name.clone(),
                column: column.name.clone(),
                definition: column.definition(),
                generated: column.generated(),
            });
        }
    }
    additions
}

/// The names of tables, views and indexes that are not ours.
pub fn taken(schema: &Schema, catalog: &Catalog) -> Vec<String> {
    let ours = schema.tables.iter().flat_map(|table| {
        let indexes = table.indexes.iter().map(|index| &index.name);
        indexes.chain([&table.name])
    });
    let ours: Vec<_> = ours.collect();
    let is_ours = |name: &&str| ours.iter().any(|ours| ours.eq_ignore_ascii_case(name));
    catalog.taken().into_iter().filter(|name| !is_ours(name)).map(str::to_owned).collect()
}

impl Transition {
    /// Refuses what would stop the migration, whatever the rows are.
    pub fn refuse_obstacles(&self, catalog: &Catalog, database: Database) -> Result<()> {
        match database {
            Database::Sqlite => self.refuse_what_goes_with_tables(catalog)?,
            Database::Postgres => self.refuse_lost_keys(catalog)?,
        }
        self.refuse_lost_columns(catalog, database)
    }

    /// What a host's column, index or view is made of cannot go, nor get another type.
    fn refuse_lost_columns(&self, catalog: &Catalog, database: Database) -> Result<()> {
        let path = self.path_up();
        for table in &path.tables {
            let name = &table.from.name;
            let retyped = table
                .kept()
                .filter(|(from, to)| database.column_type(from.kind) != database.column_type(to.kind))
                .map(|(from, _)| (from, "whose type changes"));
            let dropped = table.dropped().map(|column| (column, "which this change drops"));
            for (Column { name: dropped, .. }, why) in dropped.chain(retyped) {
                let mut additions = path.additions.iter().filter(|addition| addition.table == *name);
                let index = catalog
                    .table(name)
                    .and_then(|found| found.indexes_on(dropped).find(|index| !has_index(table.from, index)));
                // On PostgreSQL indexes and conditions go along with the column.
                let goes_along = match database {
                    Database::Sqlite => false,
                    Database::Postgres => true,
                };
                let needs = |addition: &&Addition| {
                    (addition.generated || !goes_along) && mentions(&addition.definition, dropped, database)
                };
                let (column, index) = (additions.find(needs), index.filter(|_| !goes_along));
                let view = catalog.views_with(&[name, dropped]).next();
                let found = column.map(|addition| ("column", addition.column.clone()));
                let found = found.or_else(|| Some(("index", index?.to_owned())));
                if let Some((kind, own)) = found.or_else(|| Some(("view", view?.to_string()))) {
                    return Err(Failure::decision(format!(
                        "the {kind} `{own}` of your own needs the column `{dropped}` of `{name}`, {why}"
                    ))
                    .help(format!("drop or redefine the {kind} in a migration of your own, and run this again")));
                }
            }
        }
        Ok(())
    }

    /// Where tables are rebuilt, what is on the old ones would be deleted with them.
    fn refuse_what_goes_with_tables(&self, catalog: &Catalog) -> Result<()> {
        let (up, down) = (self.path_up(), self.path_down(&[]));
        let (forth, back) = (sqlite::rebuilt(&up), sqlite::rebuilt(&down));
        let is_rebuilt = |name: &str| {
            let table = up.tables.iter().find(|table| table.from.name == name);
            table.is_some_and(|table| forth.contains(&&*table.to.name) || back.contains(&name))
        };
        let why = "which SQLite has to rebuild: its rows would go with the old one";
        self.refuse_references(catalog, |table, _| is_rebuilt(table), why)?;
        // On the way back it stops the migration, if it is still there then.
        for table in up.tables.iter().filter(|table| forth.contains(&&*table.to.name)).map(|table| table.from) {
            let Some(found) = catalog.table(&table.name) else { continue };
            let index = found.indexes().find(|name| !has_index(table, name)).map(|name| ("index", name.to_owned()));
            let trigger = found.triggers.first().map(|name| ("trigger", name.clone()));
            let view = catalog.views_with(&[&table.name]).next().map(|name| ("view", name.to_string()));
            if let Some((kind, name)) = index.or(trigger).or(view) {
                return Err(Failure::decision(format!(
                    "there is the {kind} `{name}` of your own on `{}`, which SQLite has to rebuild",
                    table.name
                ))
                .help(format!(
                    "drop the {kind} in a migration of your own, run this again, and make it again afterwards"
                )));
            }
        }
        Ok(())
    }

    /// A key that is replaced cannot be while others refer to it.
    fn refuse_lost_keys(&self, catalog: &Catalog) -> Result<()> {
        let path = self.path_up();
        self.refuse_references(
            catalog,
            |table, reference| loses_key(&path, table, reference),
            "whose key changes: PostgreSQL refuses that while something refers to it",
        )
    }

    fn refuse_references(
        &self,
        catalog: &Catalog,
        is_lost: impl Fn(&str, &Reference) -> bool,
        why: &str,
    ) -> Result<()> {
        let own = |name: &migrations::TableName| {
            name.schema.is_none() && self.kept.iter().any(|table| table.before.eq_ignore_ascii_case(&name.table))
        };
        for table in &self.old.tables {
            let mut others = catalog.referring(&table.name).filter(|(other, _)| !own(&other.name));
            if let Some((other, _)) = others.find(|(_, reference)| is_lost(&table.name, reference)) {
                return Err(Failure::decision(format!(
                    "the table `{}` has a foreign key to `{}`, {why}",
                    other.name, table.name
                ))
                .help(format!(
                    "take that foreign key away in a migration of your own, run this again, and add it again afterwards; \
                     or let `{}` refer to nothing",
                    other.name
                )));
            }
        }
        Ok(())
    }
}

/// Whether the key that a host's foreign key refers to, or a column of it, goes.
fn loses_key(path: &Path, table: &str, reference: &Reference) -> bool {
    let Some(table) = path.tables.iter().find(|path| path.from.name == table) else { return false };
    let TablePath { from, .. } = table;
    let columns = if reference.to_columns.is_empty() { &from.primary_key.columns } else { &reference.to_columns };
    let is = |key: &Key| key.columns.len() == columns.len() && key.columns.iter().all(|name| columns.contains(name));
    let dropped = path.constraints(table, Database::Postgres).dropped;
    let goes = |key: &Key| dropped.iter().any(|part| part.name == key.name);
    from.unique.iter().chain([&from.primary_key]).any(|key| is(key) && goes(key))
        || table.dropped().any(|column| columns.contains(&column.name))
}

fn has_index(table: &Table, name: &str) -> bool {
    table.indexes.iter().any(|index| index.name.eq_ignore_ascii_case(name))
}

/// Whether a column's definition is about another column.
fn mentions(definition: &str, column: &str, database: Database) -> bool {
    let found = std::cell::Cell::new(false);
    migrations::rename_columns(definition, database, |name| {
        found.set(found.get() || database.same_name(name, column));
        None
    });
    found.get()
}
