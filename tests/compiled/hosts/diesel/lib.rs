//! An application on diesel.

pub mod accounts;

use diesel_migrations::{embed_migrations, EmbeddedMigrations};

/// What diesel runs.
pub const MIGRATIONS: EmbeddedMigrations = embed_migrations!();
