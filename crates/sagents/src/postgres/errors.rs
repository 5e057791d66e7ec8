//! What an error of `PostgreSQL` means.

use std::borrow::Cow;
use std::io::ErrorKind;

pub(super) const SERIALIZATION_FAILURE: &str = "40001";
pub(super) const DEADLOCK_DETECTED: &str = "40P01";
pub(super) const FOREIGN_KEY_VIOLATION: &str = "23503";
pub(super) const UNIQUE_VIOLATION: &str = "23505";

/// Whether a statement was undone because of a concurrent one. A unique violation is a row that both inserted; the next
/// attempt finds it.
pub(super) fn is_collision(error: &sqlx::Error) -> bool {
    let collisions = [SERIALIZATION_FAILURE, DEADLOCK_DETECTED, UNIQUE_VIOLATION];
    code(error).is_some_and(|code| collisions.contains(&&*code))
}

/// Whether the same call may succeed later. It doesn't if the database refuses the values.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    // Classes of SQLSTATE: wrong data, violated constraint, exceeded limit.
    let refused = ["22", "23", "54"];
    !matches!(error, sqlx::Error::PoolClosed)
        && !code(error).is_some_and(|code| refused.iter().any(|class| code.starts_with(class)))
}

pub(crate) fn hint(error: &sqlx::Error) -> Option<&'static str> {
    match error {
        sqlx::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
            Some("start the server, or correct host and port in the database URL")
        }
        sqlx::Error::Io(error) if error.kind() == ErrorKind::ResourceBusy => Some(
            "end what keeps the conversation locked, or make fewer calls for one conversation, or fewer searches, at once",
        ),
        sqlx::Error::Tls(_) => Some("enable a `tls-…` feature of sagents"),
        sqlx::Error::PoolTimedOut => Some(
            "the server has no connection left or doesn't answer, or the pool is too small: check the server and its \
             `max_connections`, allow more connections in the pool, or make fewer calls at once",
        ),
        _ => match &*code(error)? {
            "28P01" | "28000" => Some("correct role and password in the database URL"),
            "3D000" => Some("create the database, for example with `sqlx database create`"),
            "42501" => Some("grant the role SELECT, INSERT, UPDATE and DELETE on the tables of sagents"),
            // A missing table, or a missing column.
            "42P01" | "42703" => Some("run your migrations"),
            "53300" => Some("allow more connections on the server, or fewer in its clients"),
            "55P03" => Some("end the transaction that keeps the conversation locked"),
            "57014" => {
                Some("it took too long: a search has at most ten seconds, and every statement `statement_timeout`")
            }
            _ => None,
        },
    }
}

/// The SQLSTATE of an error that the server returned.
pub(super) fn code(error: &sqlx::Error) -> Option<Cow<'_, str>> {
    error.as_database_error()?.code()
}
