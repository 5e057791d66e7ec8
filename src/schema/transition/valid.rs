//! What every schema of the generator is. One that was recorded can be edited or merged into something else.

use crate::schema::{Schema, Table};

/// The first fault of a schema, if it has one.
pub(super) fn check(schema: &Schema) -> Result<(), String> {
    let Some(conversations) = schema.tables.first() else { return Err("there are none".to_owned()) };
    let Some(prefix) = schema.prefix() else { return Err(format!("the first one is `{}`", conversations.name)) };
    if let Some(table) = schema.tables.iter().find(|table| !table.name.starts_with(prefix)) {
        return Err(format!("the name of `{}` does not start with `{prefix}`", table.name));
    }
    let names: Vec<_> = schema.tables.iter().map(|table| table.name.as_str()).collect();
    distinct("tables", &names)?;
    for table in &schema.tables {
        check_table(table, schema)?;
    }
    let key = &conversations.primary_key.columns;
    if !(1..=2).contains(&key.len()) {
        return Err(format!("the key of `{}` has {} columns", conversations.name, key.len()));
    }
    let refers = |table: &Table| table.foreign_keys.iter().any(|key| key.refers_to(conversations));
    match schema.tables[1..].iter().find(|table| !refers(table)) {
        Some(table) => Err(format!("`{}` has no foreign key to `{}`", table.name, conversations.name)),
        None => Ok(()),
    }
}

fn check_table(table: &Table, schema: &Schema) -> Result<(), String> {
    let columns: Vec<_> = table.columns.iter().map(|column| column.name.as_str()).collect();
    distinct(&format!("columns in `{}`", table.name), &columns)?;
    let keys = table.unique.iter().chain([&table.primary_key]);
    let keys_and_indexes = keys.clone().map(|key| &key.name).chain(table.indexes.iter().map(|index| &index.name));
    let foreign_keys = table.foreign_keys.iter().map(|key| &key.name);
    let names = keys_and_indexes.chain(foreign_keys).chain(table.checks.iter().map(|check| &check.name));
    distinct(&format!("constraints and indexes of `{}`", table.name), &names.map(String::as_str).collect::<Vec<_>>())?;
    for key in keys {
        has_columns(table, &format!("the key `{}`", key.name), &key.columns)?;
    }
    for index in &table.indexes {
        let columns: Vec<_> = index.columns.iter().map(|column| column.name.clone()).collect();
        has_columns(table, &format!("the index `{}`", index.name), &columns)?;
    }
    for key in &table.foreign_keys {
        let name = format!("the foreign key `{}`", key.name);
        has_columns(table, &name, &key.columns)?;
        if key.columns.len() != key.references.len() {
            return Err(format!("{name} refers to another number of columns"));
        }
        if let Some(own) = schema.tables.iter().find(|own| key.refers_to(own)) {
            has_columns(own, &name, &key.references)?;
        }
    }
    Ok(())
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
