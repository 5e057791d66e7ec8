//! Bad input: one clear error, the exit code that the help promises, and nothing written.

mod command;
mod context;
mod database;
mod files;
mod memory;
mod owner;
mod package;
mod scope;
mod tables;

use crate::support::{Host, PLAIN, manifest};

/// A library with these dependencies.
fn depending(dependencies: &str) -> Host {
    Host::library().file("Cargo.toml", &manifest("my_app", "2024", &format!("\n[dependencies]\n{dependencies}\n")))
}

/// A library with one migration.
fn with_migration(sql: &str) -> Host {
    Host::library().file("migrations/0001_first.sql", sql)
}
