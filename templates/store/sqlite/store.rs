//! Every SQL statement of this context, for `SQLite`: connections, transactions, retries, errors.
//!
//! A write is one transaction that takes the write lock when it begins, so two writers never work
//! on the same conversation at once. The owner is the last parameter of every statement.
{%- if owner.is_none() %}

#![allow(unused_variables, reason = "conversations have no owner here")]
{%- endif %}

mod branches;
mod changes;
mod conversations;
mod cuts;
mod exports;
{%- if group.is_some() %}
mod groups;
{%- endif %}
mod lease;
mod messages;
mod rows;
mod runs;
mod states;
mod tool_calls;
mod usage;

use std::future::Future;
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use tokio::sync::broadcast;
use uuid::Uuid;

use self::lease::{Exports, Searches, Write, Writers};
use super::{Error, Result};
use crate::sagents::timestamp::{self, to_text};

/// The pool that the context uses.
pub type Pool = SqlitePool;
{%- if sea_orm %}

/// The pool behind a connection of `sea-orm`.
pub(super) fn pool_of(connection: &sea_orm::DatabaseConnection) -> Pool {
    connection.get_sqlite_connection_pool().clone()
}
{%- endif %}

/// Opens a pool with the settings that this layer needs. The file is created if it is missing; one
/// that is deleted while the pool is open is not created again.
///
/// - Write-ahead logging: readers work while one writer writes. `synchronous = FULL`: a call that
///   returned survives a power cut. A log that became large is truncated.
/// - Foreign keys are enforced: deleting a conversation deletes what belongs to it.
/// - A writer waits up to ten seconds for a writer of another process, and tries a few times.
/// - Connections are local, so none is tested before use or closed when idle. One that is still in a
///   transaction when it is released is closed: on a full disk `SQLite` ends a transaction that sqlx
///   takes for open, and then sqlx could not begin another one.
///
/// Of any pool, writes use one connection at a time, searches a quarter and exports a quarter. A search is
/// interrupted after five seconds. A database in memory has one connection.
///
/// # Errors
///
/// [`Error::Database`] if the URL is not valid or the file cannot be opened.
pub async fn connect(url: &str) -> Result<Pool> {
    const MAX_LOG: &str = "16777216";

    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .pragma("journal_size_limit", MAX_LOG)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(10));
    let in_memory = url.contains(":memory:") || url.contains("mode=memory");
    let pool = SqlitePoolOptions::new()
        .max_connections(if in_memory { 1 } else { 8 })
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .after_release(move |connection, _| {
            Box::pin(async move {
                if in_transaction(connection) {
                    // Its rollback may be on the way.
                    connection.ping().await?;
                }
                Ok(in_memory || !in_transaction(connection))
            })
        })
        .connect_with(options.clone())
        .await?;
    if !in_memory {
        pool.set_connect_options(options.create_if_missing(false));
    }
    Ok(pool)
}

fn in_transaction(connection: &SqliteConnection) -> bool {
    connection.is_in_transaction()
}

/// For sqlx before 0.8.4, which does not know. A newer one has a method of this name that comes
/// first, because this one is of a reference.
#[allow(dead_code, reason = "it depends on the version of sqlx")]
trait InTransaction {
    fn is_in_transaction(&self) -> bool {
        false
    }
}

impl InTransaction for &SqliteConnection {}

#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) pool: Pool,
    writers: Writers,
    searches: Searches,
    exports: Exports,
    /// Tells the watches of this process which conversations change.
    signals: broadcast::Sender<Uuid>,
    /// How often watches look for what other processes changed.
    interval: Duration,
}

impl Store {
    pub(super) fn new(pool: Pool) -> Self {
        Self {
            writers: Writers::default(),
            searches: Searches::new(&pool),
            exports: Exports::new(&pool),
            signals: broadcast::Sender::new(64),
            interval: Duration::from_secs(1),
            pool,
        }
    }

    /// There are none.
    pub(super) fn with_notifications(self) -> Self {
        self
    }

    /// Begins a write when it is its turn.
    async fn begin(&self) -> Result<Write> {
        self.writers.begin(&self.pool).await
    }
}

/// Repeats a write that found the database busy, a few times.
async fn retry<T, F>(write: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    const ATTEMPTS: u32 = 4;
    for attempt in 1..ATTEMPTS {
        match write().await {
            Err(Error::Database(error)) if code(&error) == Some(SQLITE_BUSY) => {
                tokio::time::sleep(Duration::from_millis(20) * 4_u32.pow(attempt)).await;
            }
            result => return result,
        }
    }
    write().await
}

/// The current time as it is stored.
pub(super) fn now() -> String {
    to_text(timestamp::now())
}

const SQLITE_ERROR: u32 = 1;
const SQLITE_BUSY: u32 = 5;
const SQLITE_READONLY: u32 = 8;
const SQLITE_INTERRUPT: u32 = 9;
const SQLITE_IOERR: u32 = 10;
const SQLITE_FULL: u32 = 13;
const SQLITE_CANTOPEN: u32 = 14;
const SQLITE_TOOBIG: u32 = 18;
const SQLITE_CONSTRAINT: u32 = 19;
const SQLITE_MISMATCH: u32 = 20;

/// Whether the same call may succeed later. It does not if the database refuses the values, or the
/// pool was closed.
pub(super) fn is_transient(error: &sqlx::Error) -> bool {
    let refused = [SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH];
    !matches!(error, sqlx::Error::PoolClosed) && !code(error).is_some_and(|code| refused.contains(&code))
}

pub(super) fn hint(error: &sqlx::Error) -> Option<&'static str> {
    if matches!(error, sqlx::Error::PoolTimedOut) {
        return Some("allow more connections in the pool, or make fewer calls at once");
    }
    match code(error)? {
        SQLITE_ERROR => {
            let message = error.as_database_error()?.message();
            let is_missing = message.starts_with("no such table") || message.contains("no such column") || message.contains("has no column");
            is_missing.then_some("run the migrations, for example with `{{ migrate }}`")
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
fn code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?;
    Some(code.parse::<u32>().ok()? & 0xff)
}
