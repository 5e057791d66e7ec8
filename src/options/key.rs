//! The owner's key: the column that a foreign key can name, and its type. What a migration declares decides; a flag may
//! choose only where the declaration leaves a choice.

use crate::database::{Database, Dialect as _};
use crate::failure::{Failure, Result};
use crate::host::migrations::{Table, TableName};
use crate::key::KeyType;
use crate::names;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerTable {
    /// Where it is, if not beside our tables, or if a person named it.
    pub schema: Option<String>,
    pub name: String,
    pub key: String,
}

impl OwnerTable {
    /// A table by the name that a person gave it. Its key is not known yet.
    pub(super) fn named(name: &str, database: Database) -> Self {
        let (schema, table) = match (name.split_once('.'), database) {
            (Some((schema, table)), Database::Postgres) => (Some(schema.to_owned()), table),
            (Some((schema, table)), Database::Sqlite) if schema.eq_ignore_ascii_case("main") => (None, table),
            (Some(_), Database::Sqlite) | (None, _) => (None, name),
        };
        Self { schema, name: table.to_owned(), key: "id".to_owned() }
    }

    /// As migrations know it.
    pub(super) fn place(&self, database: Database) -> TableName {
        let schema = self.schema.clone().filter(|schema| database.default_schema() != Some(schema));
        TableName { schema, table: self.name.clone() }
    }

    /// As a person would write it.
    pub fn shown(&self) -> String {
        self.schema.iter().chain([&self.name]).cloned().collect::<Vec<_>>().join(".")
    }
}

pub(super) const OWNER_TABLE: &str = "--owner-table";

/// A table may be called almost anything; it is quoted wherever it is written.
pub(super) fn check_table(flag: &str, name: &str) -> Result<()> {
    let shown = names::printable(name);
    let refuse =
        |what: &str, help: &str| Err(Failure::usage(format!("{flag}: `{shown}` {what}")).help(help.to_owned()));
    let odd = name.chars().find(|c| c.is_control() || matches!(c, '"' | '\'' | ';' | '\\' | '#' | '$'));
    if let Some(odd) = odd {
        return refuse(&format!("contains {}", names::show(odd)), "give the table's plain name, without quotes");
    }
    let bare = name.trim();
    if bare.is_empty() {
        let none = if flag == OWNER_TABLE { ", or `none` for no foreign key" } else { "" };
        return Err(Failure::usage(format!("{flag}: it is empty")).help(format!("name a table{none}")));
    }
    if bare != name {
        return refuse("has spaces around it", &format!("write `{bare}`"));
    }
    if name.split('.').any(|part| part.trim().is_empty()) {
        return refuse("has an empty part", "write `users`, or `auth.users` for a table in another schema");
    }
    if flag == OWNER_TABLE && name != "none" && name.eq_ignore_ascii_case("none") {
        return refuse("is not a table", "write `none`, in lower case, for no foreign key");
    }
    Ok(())
}

/// The single column that a foreign key can name, and its declared type.
pub(super) fn key_of(table: &Table) -> Result<(OwnerTable, Option<String>)> {
    const HELP: &str = "name another table with --owner-table, or `--owner-table none` for no foreign key";
    let keys = table.single_keys();
    let primary = table.primary_key();
    let best = keys.iter().find(|key| primary == [**key]).or_else(|| keys.iter().find(|key| **key == "id"));
    let Some(&key) = best.or_else(|| keys.first()) else {
        if table.unlogged {
            return Err(Failure::decision(format!(
                "the table `{}` is UNLOGGED, so that only unlogged tables can refer to it",
                table.name
            ))
            .help(format!("make it LOGGED in a migration of your own; or {HELP}")));
        }
        // A key by itself that cannot be used is deferrable.
        if let [key] = primary {
            return Err(Failure::decision(format!(
                "the key `{key}` of table `{}` is DEFERRABLE, which no foreign key can name",
                table.name
            ))
            .help(format!("make it NOT DEFERRABLE in a migration of your own; or {HELP}")));
        }
        let columns: Vec<_> = table.columns.iter().map(|column| format!("`{}`", column.name)).collect();
        return Err(Failure::decision(format!(
            "the table `{}` has no key of a single column that a foreign key could name; its columns are {}",
            table.name,
            columns.join(", ")
        ))
        .help(HELP));
    };
    let TableName { schema, table: name } = &table.name;
    check_table(OWNER_TABLE, name)?;
    check_table(OWNER_TABLE, key)?;
    let declared = table.column(key).map(|column| column.declared.clone());
    Ok((OwnerTable { schema: schema.clone(), name: name.clone(), key: key.to_owned() }, declared))
}

/// The type of a key that is declared so.
pub(super) fn type_of(
    table: &OwnerTable,
    declared: &str,
    wanted: Option<KeyType>,
    database: Database,
) -> Result<KeyType> {
    let contradiction = |shown: &str| {
        Err(Failure::usage(format!(
            "--owner-id: the key `{}` of table `{}` is declared `{declared}`, so it is {shown}",
            table.key, table.name
        ))
        .help("leave --owner-id out, or name another table with --owner-table"))
    };
    match (database.key_type(declared), wanted) {
        (Some(stored), None) => Ok(stored),
        (Some(stored), Some(wanted)) if stored == wanted => Ok(stored),
        (Some(KeyType::Text), Some(KeyType::Uuid | KeyType::UuidText)) => Ok(KeyType::UuidText),
        (Some(KeyType::Text), Some(_)) => contradiction("text, or uuid as text"),
        (Some(stored), Some(_)) => contradiction(stored.name()),
        (None, Some(wanted)) if database.compares_any_types() => Ok(wanted),
        (None, None) if database.compares_any_types() => {
            let shown = if declared.is_empty() { "without a type".to_owned() } else { format!("`{declared}`") };
            Err(Failure::decision(format!(
                "the key `{}` of table `{}` is declared {shown}, so its type is not known",
                table.key, table.name
            ))
            .help("name it with `--owner-id i64`, `--owner-id uuid` or `--owner-id text`"))
        }
        (None, _) => Err(Failure::decision(format!(
            "the key `{}` of table `{}` is declared `{declared}`, which no integer, uuid or text can refer to",
            table.key, table.name
        ))
        .help("name another table with --owner-table, or `--owner-table none` for no foreign key")),
    }
}
