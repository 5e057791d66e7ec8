//! A path for `PostgreSQL`: everything happens in place, so that grants, triggers and views that a host has on the
//! tables stay. Every name is in the end that of a fresh install.

use super::backfill;
use super::path::{Guard, Owners, Path, TablePath};
use super::script::Script;
use crate::database::Database;
use crate::schema::sql;
use crate::schema::{Column, Table};

const DATABASE: Database = Database::Postgres;

pub(super) fn render(path: &Path) -> String {
    let mut changes = Script::default();
    for guard in path.guards(DATABASE) {
        stop_if(Some(guard), &mut changes);
    }
    find_owners(path, &mut changes);
    let going = path.from.tables.iter().rev().flat_map(|table| take_off(path, table));
    changes.step("Tables, keys, checks and indexes that are no more.", going);
    change_columns(path, &mut changes);
    changes.step("Everything gets its new name.", path.tables.iter().flat_map(|table| rename(path, table)));
    let coming = path.to.tables.iter().flat_map(|table| put_on(path, table));
    changes.step("New tables, keys, checks and indexes.", coming);
    let compressed = path.tables.iter().filter_map(|table| {
        let recompressed: Vec<_> = table.kept().filter(|(from, to)| from.compressed != to.compressed).collect();
        sql::compress(table.to, &recompressed.iter().map(|(_, to)| *to).collect::<Vec<_>>(), DATABASE)
    });
    changes.step("How large values are compressed, where the server has a choice.", compressed);
    let changes = changes.finish();
    if changes.is_empty() {
        return changes;
    }
    let mut script = Script::default();
    let may_create = if path.added.is_empty() { String::new() } else { sql::may_create(DATABASE) };
    let keys: Vec<_> = path.tables.iter().flat_map(|table| path.foreign_keys_to_others(table)).collect();
    let checks = may_create + &sql::owner_checks(&keys, DATABASE);
    script
        .step("Says what is missing before anything is changed.", Some(block(&checks)).filter(|_| !checks.is_empty()));
    let names = path.tables.iter().map(|table| table.from).chain(path.dropped.iter().copied());
    let names: Vec<_> = names.map(|table| quote(&table.name)).collect();
    let lock = format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE;", names.join(", "));
    script.step("Nobody writes while the tables change.", [lock]);
    format!("{}\n{changes}", script.finish())
}

/// Every row gets its owner, or nothing is changed.
fn find_owners(path: &Path, script: &mut Script) {
    let conversations = quote(&path.conversations().from.name);
    let column = path.new_owners().map(|column| quote(&column));
    if let (Owners::Filled { column: owner, filling }, Some(column)) = (&path.owners, &column) {
        let add = |table: &TablePath| add_staging(table, column, owner);
        let update = filling
            .expression(DATABASE)
            .map(|expression| format!("UPDATE {conversations} AS {} SET {column} = {expression};", backfill::ROW));
        let about = format!("Every conversation gets its {}.", owner.name);
        script.step(&about, [add(path.conversations())].into_iter().chain(update));
    }
    stop_if(path.empty_owner_guard(DATABASE), script);
    stop_if(path.same_key_guard(DATABASE), script);
    if let Some(column) = column {
        let follow = |child: &TablePath| {
            let (add, condition) = match path.owners {
                Owners::Filled { column: owner, .. } => (Some(add_staging(child, &column, owner)), String::new()),
                // Most have it already.
                Owners::Same | Owners::Restored { .. } => {
                    (None, format!("\n    AND child.{column} IS DISTINCT FROM conversation.{column}"))
                }
            };
            let update = format!(
                "UPDATE {} AS child SET {column} = conversation.{column}\n    FROM {conversations} AS conversation\n    \
                 WHERE {}{condition};",
                quote(&child.from.name),
                path.join(child, DATABASE)
            );
            add.into_iter().chain([update])
        };
        script.step("What belongs to a conversation follows it.", path.children().iter().flat_map(follow));
    }
}

fn add_staging(table: &TablePath, column: &str, owner: &Column) -> String {
    format!("ALTER TABLE {} ADD COLUMN {column} {};", quote(&table.from.name), DATABASE.column_type(owner.kind))
}

/// An old table that goes, or constraints and indexes that the new one does not have.
fn take_off(path: &Path, table: &Table) -> Vec<String> {
    if path.dropped.contains(&table) {
        return vec![format!("DROP TABLE {};", quote(&table.name))];
    }
    let Some(table) = path.tables.iter().find(|path| path.from == table) else { return Vec::new() };
    let constraints = path.constraints(table, DATABASE).dropped;
    let drops: Vec<_> = constraints.iter().map(|part| format!("DROP CONSTRAINT {}", quote(&part.name))).collect();
    let indexes = path.indexes(table, DATABASE).dropped;
    let indexes = indexes.iter().map(|index| format!("DROP INDEX {};", quote(&index.name)));
    indexes.chain(alter(&table.from.name, &drops)).collect()
}

fn change_columns(path: &Path, script: &mut Script) {
    let going = |table: &TablePath| {
        let drops: Vec<_> = table.dropped().map(|column| format!("DROP COLUMN {}", quote(&column.name))).collect();
        alter(&table.from.name, &drops)
    };
    script.step("Columns that are no more.", path.tables.iter().filter_map(going));
    let staged = match path.owners {
        Owners::Filled { column, .. } => Some((path.staging(), column)),
        Owners::Same | Owners::Restored { .. } => None,
    };
    let renamed = |table: &TablePath| {
        let staged = staged.iter().map(|(staging, column)| (staging.clone(), column.name.clone()));
        let kept = table.renamed().into_iter().map(|(from, to)| (from.to_owned(), to.to_owned()));
        let table = quote(&table.from.name);
        let pairs: Vec<_> = kept.chain(staged).collect();
        let rename = move |(from, to): (String, String)| {
            format!("ALTER TABLE {table} RENAME COLUMN {} TO {};", quote(&from), quote(&to))
        };
        pairs.into_iter().map(rename)
    };
    script.step("Columns by their new names.", path.tables.iter().flat_map(renamed));
    script.step("What is required from now on has a value.", path.tables.iter().flat_map(fill));
    let changed = |table: &TablePath| {
        let is_staged = |column: &Column| staged.as_ref().is_some_and(|(_, owner)| owner.name == column.name);
        let added = table.added().filter(|column| !is_staged(column));
        let mut changes: Vec<_> = added.map(|column| format!("ADD COLUMN {}", sql::define(column, DATABASE))).collect();
        changes.extend(staged.iter().map(|(_, owner)| set_nullable(owner)));
        changes.extend(table.kept().flat_map(|(from, to)| change_column(from, to)));
        alter(&table.from.name, &changes)
    };
    script.step("Columns as they are from now on.", path.tables.iter().filter_map(changed));
}

/// Rows without a value get the default of what has to have one.
fn fill(table: &TablePath) -> Vec<String> {
    let name = quote(&table.from.name);
    let required = table.kept().filter(|(from, to)| from.nullable && !to.nullable);
    let update = |(_, to): (&Column, &Column)| {
        let (column, default) = (quote(&to.name), sql::literal(to.default?, DATABASE));
        Some(format!("UPDATE {name} SET {column} = {default} WHERE {column} IS NULL;"))
    };
    required.filter_map(update).collect()
}

fn change_column(from: &Column, to: &Column) -> Vec<String> {
    let name = quote(&to.name);
    let mut changes = Vec::new();
    let kind = DATABASE.column_type(to.kind);
    let retyped = DATABASE.column_type(from.kind) != kind;
    if retyped {
        // A default of the old type cannot always become one of the new.
        changes.extend(from.default.map(|_| format!("ALTER COLUMN {name} DROP DEFAULT")));
        changes.push(format!("ALTER COLUMN {name} TYPE {kind} USING {name}::{kind}"));
    }
    if from.nullable != to.nullable {
        changes.push(set_nullable(to));
    }
    if from.default != to.default || (retyped && to.default.is_some()) {
        changes.push(set_default(to));
    }
    changes
}

fn set_nullable(column: &Column) -> String {
    format!("ALTER COLUMN {} {} NOT NULL", quote(&column.name), if column.nullable { "DROP" } else { "SET" })
}

fn set_default(column: &Column) -> String {
    let name = quote(&column.name);
    match column.default {
        Some(default) => format!("ALTER COLUMN {name} SET DEFAULT {}", sql::literal(default, DATABASE)),
        None => format!("ALTER COLUMN {name} DROP DEFAULT"),
    }
}

/// The table, and the names of what stays on it.
fn rename(path: &Path, table: &TablePath) -> Vec<String> {
    let TablePath { from, to, .. } = table;
    let moved =
        (from.name != to.name).then(|| format!("ALTER TABLE {} RENAME TO {};", quote(&from.name), quote(&to.name)));
    let constraints = path.constraints(table, DATABASE).renamed.into_iter().map(|(before, now)| {
        format!("ALTER TABLE {} RENAME CONSTRAINT {} TO {};", quote(&to.name), quote(&before), quote(&now))
    });
    let indexes = path.indexes(table, DATABASE).renamed.into_iter();
    let indexes = indexes.map(|(before, now)| format!("ALTER INDEX {} RENAME TO {};", quote(&before), quote(&now)));
    moved.into_iter().chain(constraints).chain(indexes).collect()
}

/// A new table, or constraints and indexes that the old one did not have.
fn put_on(path: &Path, table: &Table) -> Vec<String> {
    if path.added.contains(&table) {
        return vec![sql::create_table(table, DATABASE)];
    }
    let Some(table) = path.tables.iter().find(|path| path.to == table) else { return Vec::new() };
    let constraints = path.constraints(table, DATABASE).added;
    let adds: Vec<_> = constraints.iter().map(|part| format!("ADD {}", sql::named(part, DATABASE))).collect();
    let indexes = path.indexes(table, DATABASE).added;
    let indexes = indexes.iter().map(|index| sql::create_index(index, DATABASE));
    alter(&table.to.name, &adds).into_iter().chain(indexes).collect()
}

fn stop_if(guard: Option<Guard>, script: &mut Script) {
    if let Some(Guard { about, message, query }) = guard {
        let check = sql::fail(&format!("EXISTS ({query})"), &message.replace('%', "%%"), "", DATABASE);
        script.step(&about, [block(&check)]);
    }
}

fn block(checks: &str) -> String {
    format!("DO $$\nBEGIN\n{checks}END\n$$;")
}

/// One statement for all changes of a table, so that it is read only once.
fn alter(table: &str, changes: &[String]) -> Option<String> {
    let table = quote(table);
    match changes {
        [] => None,
        [change] => Some(format!("ALTER TABLE {table} {change};")),
        _ => Some(format!("ALTER TABLE {table}\n    {};", changes.join(",\n    "))),
    }
}

fn quote(identifier: &str) -> String {
    DATABASE.quote(identifier)
}
