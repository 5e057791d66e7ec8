//! What every schema of the generator is. One that was recorded can be edited or merged into something else.

use crate::schema::{ForeignKey, Schema, Table};

/// The first fault of a schema, if it has one.
pub(super) fn check(schema: &Schema) -> Result<(), String> {
    let Some(conversations) = schema.tables.first() else { return Err("there are none".to_owned()) };
    let names: Vec<_> = schema.tables.iter().map(|table| table.name.as_str()).collect();
    distinct("tables", &names)?;
    for table in &schema.tables {
        check_table(table, schema)?;
    }
    if !(1..=2).contains(&conversations.primary_key.len()) {
        return Err(format!("the key of `{}` has {} columns", conversations.name, conversations.primary_key.len()));
    }
    let refers = |table: &Table| table.foreign_keys.iter().any(|key| refers_to(key, conversations));
    match schema.tables[1..].iter().find(|table| !refers(table)) {
        Some(table) => Err(format!("`{}` has no foreign key to `{}`", table.name, conversations.name)),
        None => Ok(()),
    }
}

fn check_table(table: &Table, schema: &Schema) -> Result<(), String> {
    let columns: Vec<_> = table.columns.iter().map(|column| column.name.as_str()).collect();
    distinct(&format!("columns in `{}`", table.name), &columns)?;
    let indexes: Vec<_> = table.indexes.iter().map(|index| index.name.as_str()).collect();
    distinct(&format!("indexes on `{}`", table.name), &indexes)?;
    has_columns(table, "its primary key", &table.primary_key)?;
    if let Some(columns) = &table.unique {
        has_columns(table, "its unique key", columns)?;
    }
    for index in &table.indexes {
        let columns: Vec<_> = index.columns.iter().map(|column| column.name.clone()).collect();
        has_columns(table, &format!("the index `{}`", index.name), &columns)?;
    }
    if table.foreign_keys.len() > 1 {
        return Err(format!("`{}` has several foreign keys", table.name));
    }
    for key in &table.foreign_keys {
        has_columns(table, "its foreign key", &key.columns)?;
        if key.columns.len() != key.references.len() {
            return Err(format!("the foreign key of `{}` refers to another number of columns", table.name));
        }
        if let Some(own) = schema.tables.iter().find(|own| refers_to(key, own)) {
            has_columns(own, &format!("the foreign key of `{}`", table.name), &key.references)?;
        }
    }
    Ok(())
}

fn refers_to(key: &ForeignKey, table: &Table) -> bool {
    key.schema.is_none() && key.table == table.name
}

/// A key names columns that are there and that some owner did not leave behind.
fn has_columns(table: &Table, what: &str, columns: &[String]) -> Result<(), String> {
    if columns.is_empty() {
        return Err(format!("{what} has no columns in `{}`", table.name));
    }
    let names: Vec<_> = columns.iter().map(String::as_str).collect();
    distinct(&format!("columns of {what} in `{}`", table.name), &names)?;
    let is_there = |name: &&String| table.column(name).is_some_and(|column| !column.retired);
    match columns.iter().find(|name| !is_there(name)) {
        Some(name) => Err(format!("{what} names `{name}`, which is no column of `{}`", table.name)),
        None => Ok(()),
    }
}

fn distinct(what: &str, names: &[&str]) -> Result<(), String> {
    let mut names: Vec<_> = names.iter().map(|name| name.to_lowercase()).collect();
    names.sort();
    let odd = names.iter().find(|name| name.is_empty() || name.contains('\0'));
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| &pair[0]);
    match odd.or(twice) {
        Some(name) => Err(format!("the {what} have no names of their own: `{}`", name.escape_debug())),
        None => Ok(()),
    }
}
