//! Every SQL statement of this context, for `PostgreSQL`: connections, retries, errors.
//!
//! Most calls are one statement. A few need a second one: a message of which something is stored
//! already, a save that is refused or that expects anything, a cut. Exports, imports, searches and what
//! sets states aside, restores or discards them are transactions. A statement that writes locks the
//! conversation first, so writers of one conversation wait for each other and do not deadlock; only
//! those of runs, which have one row each, do not. Of one process, at most four writers of a
//! conversation have a connection, and the others wait before they take one.
//!
//! The owner is the last parameter of every statement; only the usage of messages, in the statements
//! that store some, comes behind it. Parameters are cast, and `DO UPDATE` uses none: Citus runs the
//! parts of a statement separately, and a part cannot infer the types of parameters that it does not
//! use.
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
mod notifications;
mod rows;
mod runs;
mod states;
mod tool_calls;
mod usage;

use std::borrow::Cow;
use std::future::Future;
use std::io::ErrorKind;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::Semaphore;
use uuid::Uuid;

use self::lease::{Lease, Turn, Turns, Work};
use self::notifications::Notifications;
use super::{Error, Owner, {% if group.is_some() %}Reach, {% endif %}Result};
use crate::sagents::timestamp::{Timestamp, from_micros};

pub(super) use crate::sagents::timestamp::now;

/// The pool that the context uses.
pub type Pool = PgPool;
{%- if sea_orm %}

/// The pool behind a connection of `sea-orm`.
pub(super) fn pool_of(connection: &sea_orm::DatabaseConnection) -> Pool {
    connection.get_postgres_connection_pool().clone()
}
{%- endif %}

/// Opens a pool with the settings that this layer needs.
///
/// - At most 16 connections. Calls are short, so these serve hundreds of agents; a call that finds
///   none free within ten seconds fails.
/// - A connection is tested before use only if it was idle for half a minute, so that most calls
///   are one round trip.
/// - The server cancels a statement after 30 seconds, and one that waits for a lock after ten. A
///   URL with options of its own, such as `?options[statement_timeout]=5s`, has only those. A search
///   is cancelled after ten seconds in any pool.
///
/// Behind `PgBouncer` in transaction mode, use 1.21 or later with `max_prepared_statements` set and
/// `ignore_startup_parameters = extra_float_digits, options`; set the timeouts for the role then
/// (`ALTER ROLE … SET statement_timeout`).
///
/// # Errors
///
/// [`Error::Invalid`] if this is not the URL of a `PostgreSQL` database, [`Error::Database`] if the
/// server cannot be reached or refuses the connection.
pub async fn connect(url: &str) -> Result<Pool> {
    const EXPECTED: &str =
        "the database URL must start with postgres://, as in postgres://role@host/database";

    if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(Error::Invalid(EXPECTED.into()));
    }
    let mut options = PgConnectOptions::from_str(url)?;
    if options.get_options().is_none() {
        options = options.options([("statement_timeout", "30s"), ("lock_timeout", "10s")]);
    }
    open(options).await
}

/// Tries a connection first, so that a wrong setting is reported as such and not as a timeout of
/// the pool.
pub(super) async fn open(options: PgConnectOptions) -> Result<Pool> {
    options.connect().await?.close().await?;
    let pool = PgPoolOptions::new()
        .max_connections(16)
        .acquire_timeout(Duration::from_secs(10))
        .test_before_acquire(false)
        .before_acquire(|connection, usage| {
            Box::pin(async move {
                if usage.idle_for > Duration::from_secs(30) {
                    connection.ping().await?;
                }
                Ok(true)
            })
        });
    Ok(pool.connect_lazy_with(options))
}

#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) pool: Pool,
    turns: Turns,
    searches: Arc<Semaphore>,
    exports: Arc<Semaphore>,
    notifications: Notifications,
}

impl Store {
    pub(super) fn new(pool: Pool) -> Self {
        // At most four searches and exports at once each, and at most a quarter of the connections.
        let a_few = (pool.options().get_max_connections() / 4).clamp(1, 4) as usize;
        Self {
            pool,
            turns: Turns::default(),
            searches: Arc::new(Semaphore::new(a_few)),
            exports: Arc::new(Semaphore::new(a_few)),
            notifications: Notifications::new(),
        }
    }

    pub(super) fn with_notifications(self) -> Self {
        Self {
            notifications: self.notifications.between_processes(),
            ..self
        }
    }

    /// A connection to write to a conversation with, when all earlier calls of this process that
    /// write to it have ended. Those that wait leave the connections to others.
    async fn lease(&self, owner: &Owner, conversation_id: Uuid) -> Result<Lease<Turn>> {
        let turn = self.turns.take({% if group.is_some() %}&Reach::Owner(owner.clone()){% else %}owner{% endif %}, Work::Writes(conversation_id)).await?;
        Lease::take(&self.pool, turn).await
    }
}

/// Repeats a write that collided with another one, a few times.
async fn retry<T, F>(write: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    const ATTEMPTS: u32 = 4;
    for attempt in 1..ATTEMPTS {
        match write().await {
            Err(Error::Database(error)) if is_collision(&error) => {
                tokio::time::sleep(Duration::from_millis(5) * 4_u32.pow(attempt)).await;
            }
            result => return result,
        }
    }
    write().await
}

/// A time to compare with, in the years 0 to 9999: others are not stored, and `PostgreSQL` does not
/// take all of them.
fn timestamp(time: Timestamp) -> Timestamp {
    let (first, last) = (from_micros(-62_167_219_200_000_000), from_micros(253_402_300_799_999_999));
    time.max(first.unwrap_or(time)).min(last.unwrap_or(time))
}

const SERIALIZATION_FAILURE: &str = "40001";
const DEADLOCK_DETECTED: &str = "40P01";
const FOREIGN_KEY_VIOLATION: &str = "23503";
const UNIQUE_VIOLATION: &str = "23505";

/// Whether a statement was undone because of a concurrent one. A unique violation is a row that
/// both inserted; the next attempt finds it.
fn is_collision(error: &sqlx::Error) -> bool {
    let collisions = [SERIALIZATION_FAILURE, DEADLOCK_DETECTED, UNIQUE_VIOLATION];
    code(error).is_some_and(|code| collisions.contains(&&*code))
}

/// Whether the same call may succeed later. It does not if the database refuses the values, or the
/// pool was closed.
pub(super) fn is_transient(error: &sqlx::Error) -> bool {
    // Classes of SQLSTATE: wrong data, violated constraint, exceeded limit.
    let refused = ["22", "23", "54"];
    !matches!(error, sqlx::Error::PoolClosed)
        && !code(error).is_some_and(|code| refused.iter().any(|class| code.starts_with(class)))
}

pub(super) fn hint(error: &sqlx::Error) -> Option<&'static str> {
    match error {
        sqlx::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
            Some("start the server, or correct host and port in the database URL")
        }
        sqlx::Error::Io(error) if error.kind() == ErrorKind::ResourceBusy => Some(
            "end what keeps the conversation locked, or make fewer calls for one conversation, or \
             fewer searches or exports, at once",
        ),
        sqlx::Error::Tls(_) => Some("enable a `tls-…` feature of sqlx"),
        sqlx::Error::PoolTimedOut => Some(
            "the server has no connection left or does not answer, or the pool is too small: check \
             the server and its `max_connections`, allow more connections in the pool, or make \
             fewer calls at once",
        ),
        _ => match &*code(error)? {
            "28P01" | "28000" => Some("correct role and password in the database URL"),
            "3D000" => Some("create the database, for example with `sqlx database create`"),
            "42501" => {
                Some("grant the role SELECT, INSERT, UPDATE and DELETE on {{ prefix }}*")
            }
            // A missing table, or a missing column.
            "42P01" | "42703" => Some("run the migrations, for example with `{{ migrate }}`"),
            "53300" => Some("allow more connections on the server, or fewer in its clients"),
            "55P03" => Some("end the transaction that keeps the conversation locked"),
            "57014" => Some(
                "it took too long: a search has at most ten seconds, and every statement \
                 `statement_timeout`",
            ),
            _ => None,
        },
    }
}

/// The SQLSTATE of an error that the server returned.
fn code(error: &sqlx::Error) -> Option<Cow<'_, str>> {
    error.as_database_error()?.code()
}
