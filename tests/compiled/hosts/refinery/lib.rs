//! An application on tokio-postgres, whose migrations refinery runs.

pub mod accounts;

/// What refinery runs.
pub mod embedded {
    refinery::embed_migrations!();
}
