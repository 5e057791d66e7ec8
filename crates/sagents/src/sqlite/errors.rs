//! What an error of `SQLite` means.

pub(super) const SQLITE_ERROR: u32 = 1;
pub(super) const SQLITE_BUSY: u32 = 5;
const SQLITE_READONLY: u32 = 8;
const SQLITE_INTERRUPT: u32 = 9;
const SQLITE_IOERR: u32 = 10;
const SQLITE_FULL: u32 = 13;
const SQLITE_CANTOPEN: u32 = 14;
const SQLITE_TOOBIG: u32 = 18;
const SQLITE_CONSTRAINT: u32 = 19;
const SQLITE_MISMATCH: u32 = 20;

/// Whether the same call may succeed later. It doesn't if the database refuses the values.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    let refused = [SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH];
    !matches!(error, sqlx::Error::PoolClosed) && !code(error).is_some_and(|code| refused.contains(&code))
}

pub(crate) fn hint(error: &sqlx::Error) -> Option<&'static str> {
    match code(error)? {
        SQLITE_ERROR => {
            let message = error.as_database_error()?.message();
            let is_missing =
                ["no such table", "no such column", "has no column"].iter().any(|text| message.contains(text));
            is_missing.then_some("run your migrations")
        }
        SQLITE_BUSY => Some("another process keeps the database locked: end its transaction"),
        SQLITE_READONLY => Some("let the process write to the file and its directory"),
        SQLITE_INTERRUPT => Some("the owner has too many messages to search: delete old conversations"),
        SQLITE_IOERR => Some("check the disk, its file system and the limits of the process"),
        SQLITE_FULL => Some("free space on the disk"),
        SQLITE_CANTOPEN => Some("the file or its directory is missing: restore it, or correct the database URL"),
        _ => None,
    }
}

/// The primary result code of an error that `SQLite` returned.
pub(super) fn code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?;
    Some(code.parse::<u32>().ok()? & 0xff)
}
