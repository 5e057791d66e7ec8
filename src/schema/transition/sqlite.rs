//! A path for `SQLite`. Names and plain columns change in place. Keys cannot, so then the tables are built anew beside
//! the old ones, which go when every row is copied: children before parents, since a parent that goes would take its
//! children along. No pragma is needed, and all of it happens in the migration's transaction.

use super::backfill;
use super::path::{Guard, Owners, Path, TablePath};
use super::script::Script;
use super::{Addition, Filling};
use crate::database::Database;
use crate::schema::sql;
use crate::schema::{Column, ForeignKey, Index, Table};

const DATABASE: Database = Database::Sqlite;

pub(super) fn render(path: &Path) -> String {
    let mut script = Script::default();
    if builds_anew(path) {
        build_anew(path, &mut script);
    } else {
        change_in_place(path, &mut script);
    }
    script.finish()
}

pub(super) fn builds_anew(path: &Path) -> bool {
    !path.tables.iter().all(|table| can_stay(path, table))
}

/// Whether `ALTER TABLE` can make all of the difference.
fn can_stay(path: &Path, table: &TablePath) -> bool {
    let TablePath { from, to, .. } = table;
    let same_column = |(from, to): (&Column, &Column)| {
        from.nullable == to.nullable && from.default == to.default && from.retired == to.retired
    };
    let mut checks = [from.checks.clone(), to.checks.clone()];
    for checks in &mut checks {
        checks.sort();
    }
    table.primary_key_stays()
        && table.unique_stays()
        && path.foreign_keys_dropped(table).is_empty()
        && path.foreign_keys_added(table).is_empty()
        && from.clustered == to.clustered
        && checks[0] == checks[1]
        && table.kept().all(same_column)
        && table.added().all(|column| column.nullable || column.default.is_some())
        // A condition of the table keeps its column from going.
        && table.dropped().all(|column| sql::condition(column, DATABASE).is_none())
}

fn change_in_place(path: &Path, script: &mut Script) {
    // An index cannot be renamed.
    let stays = |table: &TablePath, index: &Index| table.indexes_kept().contains(&(&index.name, &index.name));
    let dropped = path.tables.iter().flat_map(|table| {
        let dropped = table.from.indexes.iter().filter(|index| !stays(table, index));
        dropped.map(|index| format!("DROP INDEX {};", quote(&index.name)))
    });
    script.step("Indexes that change go first.", dropped);
    let alter = |table: &TablePath, change: String| format!("ALTER TABLE {} {change};", quote(&table.from.name));
    let dropped = path.tables.iter().flat_map(|table| {
        table.dropped().map(move |column| alter(table, format!("DROP COLUMN {}", quote(&column.name))))
    });
    script.step("Columns that are no more.", dropped);
    let renamed = path.tables.iter().flat_map(|table| {
        let renamed = table.renamed().into_iter();
        renamed.map(move |(from, to)| alter(table, format!("RENAME COLUMN {} TO {}", quote(from), quote(to))))
    });
    script.step("Columns by their new names.", renamed);
    let added = path.tables.iter().flat_map(|table| {
        table.added().map(move |column| {
            let check = sql::condition(column, DATABASE).map(|condition| format!(" CHECK ({condition})"));
            alter(table, format!("ADD COLUMN {}{}", sql::define(column, DATABASE), check.unwrap_or_default()))
        })
    });
    script.step("New columns.", added);
    let renamed = path.tables.iter().filter(|table| table.from.name != table.to.name);
    let rename = |table: &TablePath| rename_table(&table.from.name, &table.to.name);
    script.step("Tables by their new names.", renamed.map(rename));
    let added = path.tables.iter().flat_map(|table| {
        let kept = table.indexes_kept();
        let stays = move |index: &&Index| kept.contains(&(&index.name, &index.name));
        let added = table.to.indexes.iter().filter(move |index| !stays(index));
        added.map(|index| sql::create_index(index, table.to, DATABASE))
    });
    script.step("Indexes as they are from now on.", added);
}

fn build_anew(path: &Path, script: &mut Script) {
    for guard in strangers(path) {
        stop_if(path, Some(guard), script);
    }
    find_owners(path, script);
    for guard in missing_owners(path) {
        stop_if(path, Some(guard), script);
    }
    let create = |table: &TablePath| {
        let more = added_by_host(path, table).map(|addition| &addition.definition);
        let more: Vec<_> = more.map(|definition| table.carried_definition(definition, DATABASE)).collect();
        sql::create_bare_table(&under_new_name(path, table.to), &more, DATABASE)
    };
    script.step("The new tables, beside the old ones.", path.tables.iter().map(create));
    script.step("Every row is copied, parents first.", path.tables.iter().map(|table| copy(path, table)));
    let drop = |table: &TablePath| format!("DROP TABLE {};", quote(&table.from.name));
    script.step("The old tables go, children first.", path.tables.iter().rev().map(drop));
    let rename = |table: &TablePath| rename_table(&temporary(path, &table.to.name), &table.to.name);
    script.step("The new tables take their names; foreign keys follow.", path.tables.iter().map(rename));
    let indexes = path
        .tables
        .iter()
        .flat_map(|table| table.to.indexes.iter().map(|index| sql::create_index(index, table.to, DATABASE)));
    script.step("Indexes, whose names are free now.", indexes);
}

/// What a table that goes would take along, and the generator does not know.
fn strangers(path: &Path) -> Vec<Guard> {
    let list = |names: Vec<&str>| names.into_iter().map(literal).collect::<Vec<_>>().join(", ");
    let tables = list(path.tables.iter().map(|table| table.from.name.as_str()).collect());
    let indexes = path.tables.iter().flat_map(|table| &table.from.indexes).map(|index| index.name.as_str());
    let stop = "Stops, with nothing changed, if the old tables have";
    let mend = "drop it in a migration before this one, and make it again after; nothing was changed";
    let columns = path.tables.iter().map(|table| {
        let ours = table.from.columns.iter().map(|column| column.name.as_str());
        let hosts = added_by_host(path, table).map(|addition| addition.column.as_str());
        let known = list(ours.chain(hosts).collect());
        format!("SELECT 1 FROM pragma_table_xinfo({}) WHERE name NOT IN ({known})", literal(&table.from.name))
    });
    let columns = Guard {
        about: format!("{stop} a column that would be lost."),
        message: "the tables have a column that no migration of this project adds, and that would be lost; \
                  nothing was changed"
            .to_owned(),
        query: columns.collect::<Vec<_>>().join("\n    UNION ALL "),
    };
    let objects = Guard {
        about: format!("{stop} an index or a trigger that would be lost."),
        message: format!("the tables have an index or a trigger of your own: {mend}"),
        query: format!(
            "SELECT 1 FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL\n    \
             AND tbl_name IN ({tables})\n    AND name NOT IN ({})",
            list(indexes.collect())
        ),
    };
    let references = Guard {
        about: "Stops, with nothing changed, if another table refers to the old ones: its rows would be deleted."
            .into(),
        message: format!("a table of your own has a foreign key onto these: {mend}"),
        query: format!(
            "SELECT 1 FROM sqlite_schema AS host, pragma_foreign_key_list(host.name) AS key\n    \
             WHERE host.type = 'table' AND key.\"table\" COLLATE NOCASE IN ({tables})\n    AND host.name NOT IN ({tables})",
        ),
    };
    vec![columns, objects, references]
}

/// Every conversation gets its owner, or nothing is changed.
fn find_owners(path: &Path, script: &mut Script) {
    let conversations = quote(&path.conversations().from.name);
    if let (Owners::Filled { column: owner, filling }, Some(column)) = (&path.owners, path.new_owners()) {
        let expression = match filling {
            Filling::Backfill(text) if backfill::is_enclosed(text, DATABASE) => Some(text.clone()),
            Filling::Backfill(text) => Some(format!("({text})")),
            Filling::Former(former) => Some(quote(former)),
            Filling::Unknown => None,
        };
        let column = quote(&column);
        let add = format!("ALTER TABLE {conversations} ADD COLUMN {column} {};", DATABASE.column_type(owner.kind));
        let update = expression
            .map(|expression| format!("UPDATE {conversations} AS {} SET {column} = {expression};", backfill::ROW));
        script.step(&format!("Every conversation gets its {}.", owner.name), [add].into_iter().chain(update));
    }
    stop_if(path, path.empty_owner_guard(DATABASE), script);
    stop_if(path, path.same_key_guard(DATABASE), script);
}

/// An owner that is not there is told by name; the foreign key alone would only say that it failed.
fn missing_owners(path: &Path) -> Vec<Guard> {
    let conversations = path.conversations();
    let owner = |key: &&ForeignKey| -> Option<String> {
        let [column] = key.columns.as_slice() else { return None };
        path.new_owners().or_else(|| conversations.origin(column).map(str::to_owned))
    };
    let guard = |key: &ForeignKey| {
        let (name, table) = (&conversations.from.name, &key.table);
        let column = &key.columns[0];
        Some(Guard {
            about: format!("Stops, with nothing changed, if a {column} is not in {table}."),
            message: format!("there are conversations whose {column} is not in {table}; nothing was changed"),
            query: format!(
                "SELECT 1 FROM {} AS conversation WHERE NOT EXISTS (\n        \
                 SELECT 1 FROM {} AS owner WHERE owner.{} = conversation.{}\n    )",
                quote(name),
                quote(table),
                quote(&key.references[0]),
                quote(&owner(&key)?)
            ),
        })
    };
    path.foreign_keys_to_others().into_iter().filter_map(guard).collect()
}

/// Copies the rows of a table into the new one. A row whose conversation has another owner now follows it.
fn copy(path: &Path, table: &TablePath) -> String {
    let owner = match (&path.owners, path.new_owners()) {
        (Owners::Filled { column, .. } | Owners::Restored { column }, Some(from)) => Some((&column.name, from)),
        _ => None,
    };
    let is_child = table.from.name != path.conversations().from.name;
    let follows = is_child && owner.is_some();
    let of_row = |column: &str| if follows { format!("child.{}", quote(column)) } else { quote(column) };
    let mut copied = Vec::new();
    for column in &table.to.columns {
        match (&owner, table.origin(&column.name)) {
            (Some((name, from)), _) if **name == column.name => {
                let of_conversation = if follows { "conversation." } else { "" };
                copied.push((quote(&column.name), format!("{of_conversation}{}", quote(from))));
            }
            (_, Some(origin)) => copied.push((quote(&column.name), of_row(origin))),
            // It has its default.
            (_, None) => {}
        }
    }
    let stored = added_by_host(path, table).filter(|addition| !addition.generated);
    copied.extend(stored.map(|addition| (quote(&addition.column), of_row(&addition.column))));
    let (targets, sources): (Vec<_>, Vec<_>) = copied.into_iter().unzip();
    let from = if follows {
        // A row without a conversation is refused by its key, rather than left out.
        format!(
            "{} AS child\n    LEFT JOIN {} AS conversation\n    ON {}",
            quote(&table.from.name),
            quote(&path.conversations().from.name),
            path.join(table, DATABASE)
        )
    } else {
        quote(&table.from.name)
    };
    format!(
        "INSERT INTO {}\n    ({})\n    SELECT {}\n    FROM {from};",
        quote(&temporary(path, &table.to.name)),
        targets.join(", "),
        sources.join(", ")
    )
}

fn added_by_host<'a>(path: &Path<'a>, table: &TablePath<'a>) -> impl Iterator<Item = &'a Addition> {
    let name = &table.from.name;
    path.additions.iter().filter(move |addition| addition.table == *name)
}

/// The table under its temporary name, with foreign keys onto the others under theirs.
fn under_new_name(path: &Path, table: &Table) -> Table {
    let mut table = Table { name: temporary(path, &table.name), ..table.clone() };
    for key in &mut table.foreign_keys {
        if key.schema.is_none() && path.tables.iter().any(|own| own.to.name == key.table) {
            key.table = temporary(path, &key.table);
        }
    }
    table
}

/// Also where the final name is free: a rename finds views and triggers that the old tables leave behind, and stops.
fn temporary(path: &Path, table: &str) -> String {
    path.transient_name(&format!("{table}_new"))
}

fn rename_table(from: &str, to: &str) -> String {
    format!("ALTER TABLE {} RENAME TO {};", quote(from), quote(to))
}

/// Nothing raises an error here but a constraint, whose name is then the message.
fn stop_if(path: &Path, guard: Option<Guard>, script: &mut Script) {
    if let Some(Guard { about, message, query }) = guard {
        let table = quote(&path.transient_name("sagents_guard"));
        script.step(
            &about,
            [
                format!("CREATE TABLE {table} (stop INTEGER CONSTRAINT {} CHECK (NOT stop));", quote(&message)),
                format!("INSERT INTO {table} SELECT EXISTS (\n    {query}\n);"),
                format!("DROP TABLE {table};"),
            ],
        );
    }
}

fn literal(text: &str) -> String {
    DATABASE.string_literal(text)
}

fn quote(identifier: &str) -> String {
    DATABASE.quote(identifier)
}
