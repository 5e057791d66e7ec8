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

use crate::support::{Host, manifest};

const PLAIN: &str = "gen persistence conversations -s accounts::Scope";

/// A library with these dependencies.
fn depending(dependencies: &str) -> Host {
    Host::library().file("Cargo.toml", &manifest("my_app", "2024", &format!("\n[dependencies]\n{dependencies}\n")))
}

/// A library whose `src/accounts.rs` is this.
fn with_accounts(source: &str) -> Host {
    Host::library().file("src/lib.rs", "pub mod accounts;\n").file("src/accounts.rs", source)
}

/// A library with one migration.
fn with_migration(sql: &str) -> Host {
    Host::library().file("migrations/0001_first.sql", sql)
}
