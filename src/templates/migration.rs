//! Migrations in Rust, and that of the owners of a new package.

use askama::Template;

use super::{hashes, render};
use crate::key::KeyType;
use crate::options::NewOwners;

#[derive(Template)]
#[template(path = "migration/sea_orm.rs", escape = "none")]
struct RustMigration<'a> {
    up: &'a str,
    down: &'a str,
    /// As many as the texts need around them.
    hashes: String,
}

/// A migration in Rust that runs some SQL.
pub fn rust_migration(up: &str, down: &str) -> String {
    render(&RustMigration { up, down, hashes: hashes(&[up, down]) }) + "\n"
}

/// The table of owners of a new package with groups.
pub fn create_owners(owners: &NewOwners) -> String {
    let NewOwners { table, key, group, database } = owners;
    let (kind, group_kind) = (database.column_type(key.column()), database.column_type(KeyType::Integer.column()));
    let [quoted, key, column, index] =
        [table.as_str(), "id", group.as_str(), &format!("{table}_{group}")].map(|name| database.quote(name));
    format!(
        "CREATE TABLE {quoted} (\n    {key} {kind} NOT NULL PRIMARY KEY,\n    {column} {group_kind}\n);\n\
         CREATE INDEX {index} ON {quoted} ({column});\n"
    )
}

pub fn drop_owners(owners: &NewOwners) -> String {
    format!("DROP TABLE {};\n", owners.database.quote(&owners.table))
}
