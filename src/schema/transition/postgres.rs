//! A path for `PostgreSQL`: everything happens in place, so that grants, triggers and views that a host has on the
//! tables stay. Every name is in the end that of a fresh install.

use super::Filling;
use super::backfill;
use super::path::{Guard, Owners, Path, TablePath};
use super::script::Script;
use crate::database::Database;
use crate::schema::sql;
use crate::schema::{Column, Table};

const DATABASE: Database = Database::Postgres;

pub(super) fn render(path: &Path) -> String {
    let mut script = Script::default();
    let checks = sql::owner_checks(&path.foreign_keys_to_others(), DATABASE);
    if !checks.is_empty() {
        script.step("Says what is missing before anything is changed.", [block(&checks)]);
    }
    let names: Vec<_> = path.tables.iter().map(|table| quote(&table.from.name)).collect();
    let lock = format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE;", names.join(", "));
    script.step("Nobody writes while the tables change.", [lock]);
    find_owners(path, &mut script);
    let going = path.tables.iter().rev().flat_map(|table| take_off(path, table));
    script.step("Keys, checks and indexes that change go first.", going);
    change_columns(path, &mut script);
    script.step("Everything gets its new name.", path.tables.iter().flat_map(|table| rename(path, table)));
    let coming = path.tables.iter().flat_map(|table| put_on(path, table));
    script.step("Keys, checks and indexes as they are from now on.", coming);
    script.finish()
}

/// Every row gets its owner, or nothing is changed.
fn find_owners(path: &Path, script: &mut Script) {
    let conversations = quote(&path.conversations().from.name);
    let column = path.new_owners().map(|column| quote(&column));
    if let (Owners::Filled { column: owner, filling }, Some(column)) = (&path.owners, &column) {
        let expression = match filling {
            Filling::Backfill(text) if backfill::is_enclosed(text, DATABASE) => Some(text.clone()),
            Filling::Backfill(text) => Some(format!("({text})")),
            Filling::Former(former) => Some(quote(former)),
            Filling::Unknown => None,
        };
        let add = |table: &TablePath| add_staging(table, column, owner);
        let update = expression
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
                Owners::Same | Owners::Dropped | Owners::Restored { .. } => {
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

/// Constraints and indexes that the new table does not have.
fn take_off(path: &Path, table: &TablePath) -> Vec<String> {
    let name = &table.from.name;
    let drop = |constraint: &str| format!("DROP CONSTRAINT {}", quote(constraint));
    let mut changes: Vec<_> =
        path.foreign_keys_dropped(table).iter().map(|_| drop(&constraint(table.from, "fkey"))).collect();
    if table.from.unique.is_some() && !table.unique_stays() {
        changes.push(drop(&constraint(table.from, "key")));
    }
    if !table.primary_key_stays() {
        changes.push(drop(&constraint(table.from, "pkey")));
    }
    changes.extend(Checks::of(table).dropped.iter().map(|check| drop(check)));
    let indexes = table.indexes_dropped().into_iter().map(|index| format!("DROP INDEX {};", quote(&index.name)));
    indexes.chain(alter(name, &changes)).collect()
}

fn change_columns(path: &Path, script: &mut Script) {
    let going = |table: &TablePath| {
        let drops: Vec<_> = table.dropped().map(|column| format!("DROP COLUMN {}", quote(&column.name))).collect();
        alter(&table.from.name, &drops)
    };
    script.step("Columns that are no more.", path.tables.iter().filter_map(going));
    let staged = match path.owners {
        Owners::Filled { column, .. } => Some((path.staging(), column)),
        Owners::Same | Owners::Dropped | Owners::Restored { .. } => None,
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
    let changed = |table: &TablePath| {
        let is_staged = |column: &Column| staged.as_ref().is_some_and(|(_, owner)| owner.name == column.name);
        let added = table.added().filter(|column| !is_staged(column));
        let mut changes: Vec<_> = added.map(|column| format!("ADD COLUMN {}", sql::define(column, DATABASE))).collect();
        changes.extend(staged.iter().map(|(_, owner)| set_nullable(owner)));
        for (from, to) in table.kept() {
            if from.nullable != to.nullable {
                changes.push(set_nullable(to));
            }
            if from.default != to.default {
                changes.push(set_default(to));
            }
        }
        alter(&table.from.name, &changes)
    };
    script.step("Columns as they are from now on.", path.tables.iter().filter_map(changed));
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
    let mut statements = Vec::new();
    if from.name != to.name {
        statements.push(format!("ALTER TABLE {} RENAME TO {};", quote(&from.name), quote(&to.name)));
    }
    let mut constraints = Checks::of(table).renamed;
    for (suffix, stays) in [
        ("pkey", table.primary_key_stays()),
        ("key", table.unique_stays() && from.unique.is_some()),
        ("fkey", from.foreign_keys.len() > path.foreign_keys_dropped(table).len()),
    ] {
        if stays && from.name != to.name {
            constraints.push((constraint(from, suffix), constraint(to, suffix)));
        }
    }
    for (before, now) in constraints {
        let (table, before, now) = (quote(&to.name), quote(&before), quote(&now));
        statements.push(format!("ALTER TABLE {table} RENAME CONSTRAINT {before} TO {now};"));
    }
    for (before, now) in table.indexes_kept() {
        if before != now {
            statements.push(format!("ALTER INDEX {} RENAME TO {};", quote(before), quote(now)));
        }
    }
    statements
}

/// Constraints and indexes that the old table did not have.
fn put_on(path: &Path, table: &TablePath) -> Vec<String> {
    let add = |name: &str, definition: &str| format!("ADD CONSTRAINT {} {definition}", quote(name));
    let mut changes = Vec::new();
    let to = table.to;
    if !table.primary_key_stays() {
        let definition = format!("PRIMARY KEY ({})", sql::list(&to.primary_key, DATABASE));
        changes.push(add(&constraint(to, "pkey"), &definition));
    }
    if let Some(columns) = to.unique.as_ref().filter(|_| !table.unique_stays()) {
        changes.push(add(&constraint(to, "key"), &format!("UNIQUE ({})", sql::list(columns, DATABASE))));
    }
    for key in path.foreign_keys_added(table) {
        changes.push(add(&constraint(to, "fkey"), &sql::reference(key, DATABASE)));
    }
    for (name, condition) in Checks::of(table).added {
        changes.push(add(&name, &format!("CHECK ({condition})")));
    }
    let indexes = table.indexes_added().into_iter().map(|index| sql::create_index(index, to, DATABASE));
    alter(&to.name, &changes).into_iter().chain(indexes).collect()
}

/// What becomes of the check constraints. We leave their names to the database, so they are those that it would choose.
struct Checks {
    dropped: Vec<String>,
    renamed: Vec<(String, String)>,
    /// With their conditions.
    added: Vec<(String, String)>,
}

impl Checks {
    fn of(table: &TablePath) -> Self {
        let (from, to) = (check_names(table.from), check_names(table.to));
        let mut checks = Self { dropped: Vec::new(), renamed: Vec::new(), added: Vec::new() };
        let is_taken = |name: &str| from.iter().any(|(taken, _)| taken == name);
        for (before, condition) in &from {
            match to.iter().find(|(_, same)| same == condition) {
                Some((now, _)) if now == before => {}
                Some((now, _)) if !is_taken(now) => checks.renamed.push((before.clone(), now.clone())),
                Some(_) | None => checks.dropped.push(before.clone()),
            }
        }
        for (now, condition) in &to {
            let same = |(before, same): &(String, &str)| same == condition && (before == now || !is_taken(now));
            if !from.iter().any(same) {
                checks.added.push((now.clone(), (*condition).to_owned()));
            }
        }
        checks
    }
}

/// Every check of a table with the name that the database gives it in `CREATE TABLE`: that of its column, if it is
/// about one, and a number where that is taken.
fn check_names(table: &Table) -> Vec<(String, &str)> {
    let mut names: Vec<(String, &str)> = Vec::new();
    for check in &table.checks {
        let words = words(check);
        let mut columns = table.columns.iter().filter(|column| words.contains(&column.name.as_str()));
        let column = columns.next().filter(|_| columns.next().is_none()).map(|column| column.name.as_str());
        let candidate = |number: usize| {
            let number = if number == 0 { String::new() } else { number.to_string() };
            object_name(&table.name, column, &format!("check{number}"))
        };
        let is_free = |name: &String| !names.iter().any(|(taken, _)| taken == name);
        // There are more numbers than checks.
        let name = (0..=names.len()).map(candidate).find(is_free).unwrap_or_default();
        names.push((name, check));
    }
    names
}

/// The words of a condition outside of its strings.
fn words(condition: &str) -> Vec<&str> {
    let outside = condition.split('\'').step_by(2);
    outside.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_')).collect()
}

/// `makeObjectName` of the server: what is too long is cut, the longer of the two names first.
fn object_name(table: &str, column: Option<&str>, label: &str) -> String {
    let column = column.unwrap_or_default();
    let separators = if column.is_empty() { 1 } else { 2 };
    let room = DATABASE.identifier_limit() - label.len() - separators;
    let (mut first, mut second) = (table.len(), column.len());
    while first + second > room {
        if first > second { first -= 1 } else { second -= 1 }
    }
    let parts = [super::cut(table, first), super::cut(column, second), label];
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("_")
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

fn constraint(table: &Table, suffix: &str) -> String {
    format!("{}_{suffix}", table.name)
}

fn quote(identifier: &str) -> String {
    DATABASE.quote(identifier)
}
