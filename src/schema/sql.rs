//! A schema as SQL.

use crate::database::Database;
use crate::schema::{Column, Default, ForeignKey, Index, Schema, Table};

/// The statements that make every table.
pub fn create(schema: &Schema, database: Database) -> String {
    schema.tables.iter().map(|table| create_table(table, database)).collect::<Vec<_>>().join("\n")
}

/// The statements that remove every table, children first.
pub fn drop(schema: &Schema, database: Database) -> String {
    let drop = |table: &Table| format!("DROP TABLE {};\n", database.quote(&table.name));
    schema.tables.iter().rev().map(drop).collect()
}

fn create_table(table: &Table, database: Database) -> String {
    let mut lines: Vec<String> = table.columns.iter().map(|column| define(column, database)).collect();
    lines.push(format!("PRIMARY KEY ({})", list(&table.primary_key, database)));
    lines.extend(table.unique.iter().map(|columns| format!("UNIQUE ({})", list(columns, database))));
    lines.extend(table.foreign_keys.iter().map(|key| reference(key, database)));
    let conditions =
        table.columns.iter().filter_map(|column| database.condition(column.kind, &database.quote(&column.name)));
    lines.extend(conditions.chain(table.checks.iter().cloned()).map(|condition| format!("CHECK ({condition})")));
    let mut sql = format!(
        "-- {}\nCREATE TABLE {} (\n    {}\n){};\n",
        table.about,
        database.quote(&table.name),
        lines.join(",\n    "),
        database.table_options(table.clustered)
    );
    for index in &table.indexes {
        sql.push_str(&create_index(index, table, database));
    }
    sql
}

fn define(column: &Column, database: Database) -> String {
    let null = if column.nullable { "" } else { " NOT NULL" };
    let default = match column.default {
        Some(Default::False) => format!(" DEFAULT {}", database.false_literal()),
        Some(Default::Zero) => " DEFAULT 0".to_owned(),
        Some(Default::EmptyObject) => " DEFAULT '{}'".to_owned(),
        None => String::new(),
    };
    format!("{} {}{null}{default}", database.quote(&column.name), database.column_type(column.kind))
}

/// What is referenced takes what references it along when it goes.
fn reference(key: &ForeignKey, database: Database) -> String {
    format!(
        "FOREIGN KEY ({}) REFERENCES {} ({}) ON DELETE CASCADE",
        list(&key.columns, database),
        database.quote(&key.table),
        list(&key.references, database)
    )
}

fn create_index(index: &Index, table: &Table, database: Database) -> String {
    let columns: Vec<_> = index
        .columns
        .iter()
        .map(|column| format!("{}{}", database.quote(&column.name), if column.descending { " DESC" } else { "" }))
        .collect();
    let only = index.only.as_ref().map(|condition| format!("\n    WHERE {condition}")).unwrap_or_default();
    format!(
        "CREATE INDEX {} ON {} ({}){only};\n",
        database.quote(&index.name),
        database.quote(&table.name),
        columns.join(", ")
    )
}

fn list(columns: &[String], database: Database) -> String {
    columns.iter().map(|column| database.quote(column)).collect::<Vec<_>>().join(", ")
}
