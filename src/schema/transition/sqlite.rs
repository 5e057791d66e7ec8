//! A path for `SQLite`. Names and plain columns change in place. Keys and checks cannot, so then a table is rebuilt: made
//! beside the old one, which goes when every row is copied. Children are rebuilt with their parent and go before it,
//! since a parent that goes would take its children along. No pragma is needed, and all of it happens in the migration's
//! transaction.

use super::path::{Guard, Owners, Path, TablePath};
use super::queries::Queries;
use super::script::Script;
use super::{Addition, Filling, backfill};
use crate::database::Database;
use crate::schema::sql;
use crate::schema::{ForeignKey, Table};

const DATABASE: Database = Database::Sqlite;

pub(super) fn render(path: &Path) -> String {
    let mut script = Script::default();
    let rebuilt = rebuilt(path);
    for guard in path.guards(DATABASE) {
        stop_if(path, Some(guard), &mut script);
    }
    let dropped = path.dropped.iter().rev().map(|table| drop_table(&table.name));
    script.step("Tables that are no more.", dropped);
    let is_rebuilt = |table: &&TablePath| rebuilt.contains(&table.to.name.as_str());
    change_in_place(path, &path.tables.iter().filter(|table| !is_rebuilt(table)).collect::<Vec<_>>(), &mut script);
    let tables: Vec<_> = path.tables.iter().filter(is_rebuilt).collect();
    if tables.is_empty() {
        script.step("New tables.", path.added.iter().map(|table| sql::create_table(table, DATABASE)));
    } else {
        rebuild(path, &tables, &mut script);
    }
    script.finish()
}

/// The tables that are rebuilt, by their new names.
pub(super) fn rebuilt<'a>(path: &Path<'a>) -> Vec<&'a str> {
    let mut rebuilt: Vec<&str> = Vec::new();
    // Parents come first.
    for table in &path.tables {
        let is_child = table.to.foreign_keys.iter().any(|key| key.schema.is_none() && rebuilt.contains(&&*key.table));
        if is_child || !can_stay(path, table) {
            rebuilt.push(&table.to.name);
        }
    }
    rebuilt
}

/// Whether `ALTER TABLE` can make all of the difference.
fn can_stay(path: &Path, table: &TablePath) -> bool {
    let constraints = path.constraints(table, DATABASE);
    // A new column brings its conditions along.
    let mut brought: Vec<_> =
        table.added().flat_map(|column| sql::column_conditions(table.to, column, DATABASE)).collect();
    let is_brought = |definition: &str| {
        let place = brought.iter().position(|part| part.definition == definition);
        place.map(|place| brought.remove(place)).is_some()
    };
    constraints.dropped.is_empty()
        && constraints.added.iter().map(|part| part.definition.as_str()).all(is_brought)
        && table.from.clustered == table.to.clustered
        && table.kept().all(|(from, to)| sql::shape(from, DATABASE) == sql::shape(to, DATABASE))
        && table.added().all(|column| column.nullable || column.default.is_some())
}

fn change_in_place(path: &Path, tables: &[&TablePath], script: &mut Script) {
    // An index cannot be renamed.
    let indexes: Vec<_> = tables.iter().map(|table| (table, path.indexes(table, DATABASE))).collect();
    let dropped = indexes.iter().flat_map(|(_, difference)| {
        let renamed = difference.renamed.iter().map(|(before, _)| before);
        difference.dropped.iter().map(|index| &index.name).chain(renamed)
    });
    script.step("Indexes that change go first.", dropped.map(|name| format!("DROP INDEX {};", quote(name))));
    let alter = |table: &TablePath, change: String| format!("ALTER TABLE {} {change};", quote(&table.from.name));
    let dropped = tables.iter().flat_map(|table| {
        table.dropped().map(move |column| alter(table, format!("DROP COLUMN {}", quote(&column.name))))
    });
    script.step("Columns that are no more.", dropped);
    let renamed = tables.iter().flat_map(|table| {
        let renamed = table.renamed().into_iter();
        renamed.map(move |(from, to)| alter(table, format!("RENAME COLUMN {} TO {}", quote(from), quote(to))))
    });
    script.step("Columns by their new names.", renamed);
    let added = tables.iter().flat_map(|table| {
        table.added().map(move |column| {
            let conditions = sql::column_conditions(table.to, column, DATABASE);
            let conditions = conditions.iter().map(|condition| format!(" {}", sql::named(condition, DATABASE)));
            alter(table, format!("ADD COLUMN {}{}", sql::define(column, DATABASE), conditions.collect::<String>()))
        })
    });
    script.step("New columns.", added);
    let renamed = tables.iter().filter(|table| table.from.name != table.to.name);
    script.step("Tables by their new names.", renamed.map(|table| rename_table(&table.from.name, &table.to.name)));
    let added = indexes.iter().flat_map(|(table, difference)| {
        let all = sql::indexes(table.to, DATABASE).into_iter();
        all.filter(|index| {
            difference.added.contains(index) || difference.renamed.iter().any(|(_, name)| *name == index.name)
        })
    });
    script.step("Indexes as they are from now on.", added.map(|index| sql::create_index(&index, DATABASE)));
}

fn rebuild(path: &Path, tables: &[&TablePath], script: &mut Script) {
    for guard in strangers(path, tables) {
        stop_if(path, Some(guard), script);
    }
    find_owners(path, script);
    for guard in missing_owners(path) {
        stop_if(path, Some(guard), script);
    }
    // The copies of rows need those that are new, too.
    let create = |table: &Table| {
        if path.added.contains(&table) {
            return Some(sql::create_bare_table(&beside_old(path, table, tables), &[], DATABASE));
        }
        let table = tables.iter().find(|path| path.to == table)?;
        let more = added_by_host(path, table).map(|addition| &addition.definition);
        let more: Vec<_> = more.map(|definition| table.carried_definition(definition, DATABASE)).collect();
        let new = Table { name: temporary(path, &table.to.name), ..beside_old(path, table.to, tables) };
        Some(sql::create_bare_table(&new, &more, DATABASE))
    };
    script.step("The new tables, beside the old ones.", path.to.tables.iter().filter_map(create));
    script.step("Every row is copied, parents first.", tables.iter().map(|table| copy(path, table)));
    let drop = |table: &&TablePath| drop_table(&table.from.name);
    script.step("The old tables go, children first.", tables.iter().rev().map(drop));
    let rename = |table: &&TablePath| rename_table(&temporary(path, &table.to.name), &table.to.name);
    script.step("The new tables take their names; foreign keys follow.", tables.iter().map(rename));
    let made = tables.iter().map(|table| table.to).chain(path.added.iter().copied());
    let indexes = made.flat_map(|table| sql::create_indexes(table, DATABASE));
    script.step("Indexes, whose names are free now.", indexes);
}

/// What a table that goes would take along, and the generator does not know.
fn strangers(path: &Path, tables: &[&TablePath]) -> Vec<Guard> {
    let list = |names: Vec<&str>| names.into_iter().map(literal).collect::<Vec<_>>().join(", ");
    let names = list(tables.iter().map(|table| table.from.name.as_str()).collect());
    let indexes = tables.iter().flat_map(|table| &table.from.indexes).map(|index| index.name.as_str());
    let stop = "Stops, with nothing changed, if the old tables have";
    let help = "drop it in a migration before this one, and make it again after; nothing was changed";
    let columns = tables.iter().map(|table| {
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
        message: format!("the tables have an index or a trigger of your own: {help}"),
        query: format!(
            "SELECT 1 FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL\n    \
             AND tbl_name IN ({names})\n    AND name NOT IN ({})",
            list(indexes.collect())
        ),
    };
    let references = Guard {
        about: "Stops, with nothing changed, if another table refers to the old ones: its rows would be deleted."
            .into(),
        message: format!("a table of your own has a foreign key onto these: {help}"),
        query: format!(
            "SELECT 1 FROM sqlite_schema AS host, pragma_foreign_key_list(host.name) AS key\n    \
             WHERE host.type = 'table' AND key.\"table\" COLLATE NOCASE IN ({names})\n    AND host.name NOT IN ({names})",
        ),
    };
    vec![columns, objects, references]
}

/// Every conversation gets its owner, or nothing is changed.
fn find_owners(path: &Path, script: &mut Script) {
    let conversations = quote(&path.conversations().from.name);
    if let (Owners::Filled { column: owner, filling }, Some(column)) = (&path.owners, path.new_owners()) {
        stop_if(path, several_rows(path, filling), script);
        let column = quote(&column);
        let add = format!("ALTER TABLE {conversations} ADD COLUMN {column} {};", DATABASE.column_type(owner.kind));
        let update = filling
            .expression(DATABASE)
            .map(|expression| format!("UPDATE {conversations} AS {} SET {column} = {expression};", backfill::ROW));
        script.step(&format!("Every conversation gets its {}.", owner.name), [add].into_iter().chain(update));
    }
    stop_if(path, path.empty_owner_guard(DATABASE), script);
    stop_if(path, path.same_key_guard(DATABASE), script);
}

/// Of several rows that a query finds for a conversation, its value would be the first one.
fn several_rows(path: &Path, filling: &Filling) -> Option<Guard> {
    let Filling::Backfill(text) = filling else { return None };
    let queries = Queries::of(text, DATABASE).outer;
    let conditions: Vec<_> =
        queries.iter().map(|query| format!("(SELECT count(*) FROM (\n        {query}\n    )) > 1")).collect();
    let conversations = quote(&path.conversations().from.name);
    (!conditions.is_empty()).then(|| Guard {
        about: "Stops, with nothing changed, if a query of the backfill finds several rows.".to_owned(),
        message: "a query of the backfill finds several rows for a conversation; nothing was changed".to_owned(),
        query: format!("SELECT 1 FROM {conversations} AS {} WHERE {}", backfill::ROW, conditions.join(" OR ")),
    })
}

/// A missing owner is reported by name; the foreign key alone would only say that it failed.
fn missing_owners(path: &Path) -> Vec<Guard> {
    let conversations = path.conversations();
    let guard = |key: &ForeignKey| {
        let (name, table) = (&conversations.from.name, &key.table);
        let ([column], [reference]) = (key.columns.as_slice(), key.references.as_slice()) else { return None };
        let from = path.new_owners().or_else(|| conversations.origin(column).map(str::to_owned))?;
        Some(Guard {
            about: format!("Stops, with nothing changed, if a {column} is not in {table}."),
            message: format!("there are conversations whose {column} is not in {table}; nothing was changed"),
            query: format!(
                "SELECT 1 FROM {} AS conversation WHERE NOT EXISTS (\n        \
                 SELECT 1 FROM {} AS owner WHERE owner.{} = conversation.{}\n    )",
                quote(name),
                quote(table),
                quote(reference),
                quote(&from)
            ),
        })
    };
    path.foreign_keys_to_others(conversations).into_iter().filter_map(guard).collect()
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
            (_, Some(origin)) => {
                let value = match column.default.filter(|_| !column.nullable) {
                    Some(default) if table.from.column(origin).is_some_and(|from| from.nullable) => {
                        format!("coalesce({}, {})", of_row(origin), sql::literal(default, DATABASE))
                    }
                    Some(_) | None => of_row(origin),
                };
                copied.push((quote(&column.name), value));
            }
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

/// A new table while the old ones are still there: its foreign keys name the rebuilt ones by their temporary names.
fn beside_old(path: &Path, table: &Table, rebuilt: &[&TablePath]) -> Table {
    let mut table = table.clone();
    for key in &mut table.foreign_keys {
        if key.schema.is_none() && rebuilt.iter().any(|own| own.to.name == key.table) {
            key.table = temporary(path, &key.table);
        }
    }
    table
}

/// Also where the final name is free: a rename finds views and triggers that the old tables leave behind, and stops.
fn temporary(path: &Path, table: &str) -> String {
    path.transient_name(&format!("{table}_new"))
}

fn drop_table(name: &str) -> String {
    format!("DROP TABLE {};", quote(name))
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
