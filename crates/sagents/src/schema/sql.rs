//! A schema as SQL.
#![allow(missing_docs, reason = "for the generator; hidden from the documentation")]

use super::{Check, Column, Database, DefaultValue, ForeignKey, Index, IndexColumn, Schema, Table};

/// The statements that make every table.
pub fn create(schema: &Schema, database: Database) -> String {
    let tables = schema.tables.iter().map(|table| create_table(table, database));
    preconditions(schema, database).into_iter().chain(tables).collect::<Vec<_>>().join("\n")
}

/// The statements that remove every table, children first.
pub fn drop(schema: &Schema, database: Database) -> String {
    let drop = |table: &Table| format!("DROP TABLE {};\n", database.quote(&table.name));
    schema.tables.iter().rev().map(drop).collect()
}

/// A statement that says what a role lacks, and what to do about it, where the database itself says only what failed.
fn preconditions(schema: &Schema, database: Database) -> Option<String> {
    match database {
        Database::Sqlite => None,
        Database::Postgres => {
            let checks = may_create(database) + &owner_checks(&foreign_keys_to_others(schema), database);
            Some(format!("-- Says what is missing before anything is made.\nDO $$\nBEGIN\n{checks}END\n$$;\n"))
        }
    }
}

/// Whether tables can be made, as a part of a `DO` block.
pub fn may_create(database: Database) -> String {
    fail(
        "NOT has_schema_privilege(current_schema(), 'CREATE')",
        "the role % may not create tables in the schema %: let its owner GRANT CREATE ON SCHEMA % TO %",
        ",\n            current_user, current_schema(), current_schema(), current_user",
        database,
    )
}

/// The foreign keys onto tables that are not ours.
fn foreign_keys_to_others(schema: &Schema) -> Vec<&ForeignKey> {
    let own = |key: &&ForeignKey| key.schema.is_none() && schema.tables.iter().any(|table| table.name == key.table);
    schema.tables.iter().flat_map(|table| &table.foreign_keys).filter(|key| !own(key)).collect()
}

/// Whether these foreign keys can be made, as a part of a `DO` block.
pub fn owner_checks(keys: &[&ForeignKey], database: Database) -> String {
    let mut checks = String::new();
    for key in keys {
        let table = referenced(key, database);
        let (literal, shown) = (database.string_literal(&table), table.replace('%', "%%"));
        checks += &fail(
            &format!("to_regclass({literal}) IS NULL"),
            &format!(
                "the table {shown} of the owners is missing: make it in an earlier migration, or name another with --owner-table"
            ),
            "",
            database,
        );
        checks += &fail(
            &format!("NOT has_table_privilege({literal}, 'REFERENCES')"),
            &format!("the role % may not refer to {shown}: let its owner GRANT REFERENCES ON {shown} TO %"),
            ",\n            current_user, current_user",
            database,
        );
    }
    checks
}

/// A part of a `DO` block. Every `%` in the message stands for one of the arguments.
pub fn fail(condition: &str, message: &str, arguments: &str, database: Database) -> String {
    let message = database.string_literal(message);
    format!("    IF {condition} THEN\n        RAISE EXCEPTION {message}{arguments};\n    END IF;\n")
}

/// A constraint or an index of a table: its name, and the rest of its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    pub definition: String,
}

/// The statements that make a table and its indexes.
pub fn create_table(table: &Table, database: Database) -> String {
    let indexes = create_indexes(table, database);
    let compressed: Vec<_> = table.columns.iter().filter(|column| column.compressed).collect();
    let compress = compress(table, &compressed, database)
        .map(|sql| format!("-- Large values are compressed in a fast way, where the server has it.\n{sql}\n"));
    indexes.into_iter().chain(compress).fold(create_bare_table(table, &[], database), |sql, more| sql + &more)
}

/// Sets whether these columns are compressed in a fast way. Nothing where the server has none.
pub fn compress(table: &Table, columns: &[&Column], database: Database) -> Option<String> {
    let is_possible = match database {
        Database::Sqlite => false,
        Database::Postgres => true,
    };
    if columns.is_empty() || !is_possible {
        return None;
    }
    let set = |column: &&Column| {
        let method = if column.compressed { "lz4" } else { "default" };
        format!("ALTER COLUMN {} SET COMPRESSION {method}", database.quote(&column.name))
    };
    let changes: Vec<_> = columns.iter().map(set).collect();
    let alter = format!("ALTER TABLE {} {}", database.quote(&table.name), changes.join(", "));
    // Servers before 14 cannot even read that statement.
    Some(format!(
        "DO $$\nBEGIN\n    IF EXISTS (\n        SELECT FROM pg_settings\n        \
         WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)\n    ) THEN\n        \
         EXECUTE {};\n    END IF;\nEND\n$$;",
        database.string_literal(&alter)
    ))
}

/// The statement that makes a table, without its indexes. More columns may follow our own.
pub fn create_bare_table(table: &Table, more: &[String], database: Database) -> String {
    let mut lines: Vec<String> = table.columns.iter().map(|column| define(column, database)).collect();
    lines.extend_from_slice(more);
    lines.extend(constraints(table, database).iter().map(|constraint| named(constraint, database)));
    format!(
        "-- {}\nCREATE TABLE {} (\n    {}\n){};\n",
        table.about,
        database.quote(&table.name),
        lines.join(",\n    "),
        database.table_options(table.clustered)
    )
}

/// The constraints of a table; those of its columns' kinds are among them.
pub fn constraints(table: &Table, database: Database) -> Vec<Part> {
    let part = |name: &str, definition| Part { name: name.to_owned(), definition };
    let columns = |columns: &[String]| list(columns, database);
    let mut parts =
        vec![part(&table.primary_key.name, format!("PRIMARY KEY ({})", columns(&table.primary_key.columns)))];
    parts.extend(table.unique.iter().map(|key| part(&key.name, format!("UNIQUE ({})", columns(&key.columns)))));
    parts.extend(table.foreign_keys.iter().map(|key| part(&key.name, reference(key, database))));
    parts.extend(table.columns.iter().filter_map(|column| condition(column, database)));
    parts.extend(table.checks.iter().map(check));
    parts
}

/// What holds for every value of a column. One that is retired is held to nothing, so that nothing keeps it from going.
pub fn condition(column: &Column, database: Database) -> Option<Part> {
    let condition = database.condition(column.kind, &column.name).filter(|_| !column.retired)?;
    Some(check(&condition))
}

/// What holds for every value of a column of a table, whichever other columns there are.
pub fn column_conditions(table: &Table, column: &Column, database: Database) -> Vec<Part> {
    let own = format!("valid_{}", column.name);
    let checks = table.checks.iter().filter(|check| check.name == own).map(check);
    condition(column, database).into_iter().chain(checks).collect()
}

fn check(Check { name, condition }: &Check) -> Part {
    Part { name: name.clone(), definition: format!("CHECK ({condition})") }
}

/// A constraint with its name, as `CREATE TABLE` and `ADD` take it.
pub fn named(Part { name, definition }: &Part, database: Database) -> String {
    format!("CONSTRAINT {} {definition}", database.quote(name))
}

pub fn define(column: &Column, database: Database) -> String {
    format!("{} {}", database.quote(&column.name), shape(column, database))
}

/// The definition of a column behind its name.
pub fn shape(column: &Column, database: Database) -> String {
    let null = if column.nullable { "" } else { " NOT NULL" };
    let default = column.default.map(|default| format!(" DEFAULT {}", literal(default, database))).unwrap_or_default();
    format!("{}{null}{default}", database.column_type(column.kind))
}

pub fn literal(default: DefaultValue, database: Database) -> &'static str {
    match default {
        DefaultValue::False => database.false_literal(),
        DefaultValue::Zero => "0",
        DefaultValue::EmptyObject => "'{}'",
    }
}

/// What is referenced takes what references it along when it goes.
fn reference(key: &ForeignKey, database: Database) -> String {
    format!(
        "FOREIGN KEY ({}) REFERENCES {} ({}) ON DELETE CASCADE",
        list(&key.columns, database),
        referenced(key, database),
        list(&key.references, database)
    )
}

fn referenced(key: &ForeignKey, database: Database) -> String {
    database.quote_table(key.schema.as_deref(), &key.table)
}

/// The indexes of a table.
pub fn indexes(table: &Table, database: Database) -> Vec<Part> {
    let part = |index: &Index| {
        let column = |column: &IndexColumn| {
            format!("{}{}", database.quote(&column.name), if column.descending { " DESC" } else { "" })
        };
        let columns: Vec<_> = index.columns.iter().map(column).collect();
        let only = index.only.as_ref().map(|condition| format!("\n    WHERE {condition}")).unwrap_or_default();
        let definition = format!("ON {} ({}){only}", database.quote(&table.name), columns.join(", "));
        Part { name: index.name.clone(), definition }
    };
    table.indexes.iter().map(part).collect()
}

pub fn create_index(Part { name, definition }: &Part, database: Database) -> String {
    format!("CREATE INDEX {} {definition};\n", database.quote(name))
}

pub fn create_indexes(table: &Table, database: Database) -> Vec<String> {
    indexes(table, database).iter().map(|index| create_index(index, database)).collect()
}

fn list(columns: &[String], database: Database) -> String {
    columns.iter().map(|column| database.quote(column)).collect::<Vec<_>>().join(", ")
}
