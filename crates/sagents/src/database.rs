//! What an error of a database means.

#[cfg(feature = "postgres")]
use sqlx::postgres::PgDatabaseError;

/// Whether the same call may succeed later.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    #[cfg(feature = "postgres")]
    if is_postgres(error) {
        return crate::postgres::errors::is_transient(error);
    }
    #[cfg(feature = "_sqlite")]
    if error.as_database_error().is_some() {
        return crate::sqlite::errors::is_transient(error);
    }
    !matches!(error, sqlx::Error::PoolClosed)
}

/// What an operator can do about it.
pub(crate) fn hint(error: &sqlx::Error) -> Option<&'static str> {
    #[cfg(feature = "_sqlite")]
    if error.as_database_error().is_some_and(|error| error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some()) {
        return crate::sqlite::errors::hint(error);
    }
    #[cfg(feature = "postgres")]
    return crate::postgres::errors::hint(error);
    #[cfg(not(feature = "postgres"))]
    matches!(error, sqlx::Error::PoolTimedOut)
        .then_some("allow more connections in the pool, or make fewer calls at once")
}

#[cfg(feature = "postgres")]
fn is_postgres(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.try_downcast_ref::<PgDatabaseError>().is_some())
}
