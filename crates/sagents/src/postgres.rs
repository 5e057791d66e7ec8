//! The store on `PostgreSQL`.
//!
//! Most calls are one statement, which locks the conversation first: writers of one conversation wait for each other and
//! don't deadlock, and sequences have no gaps. The statements follow the rules of Citus, so the tables can be distributed
//! by owner: every parameter is cast where it's first used, `DO UPDATE` uses only `excluded` and the row, no
//! `now()` in `CASE` or `COALESCE` (take it from a subquery), no condition on a parameter alone, no `LATERAL` over a CTE.

mod branches;
mod catalog;
mod changes;
mod conversations;
pub(crate) mod errors;
mod exports;
mod fixtures;
mod lease;
mod messages;
mod notifications;
#[cfg(test)]
mod plans;
mod runs;
mod saves;
mod search;
mod states;
mod tool_calls;
mod usage;

#[path = "shared/cut.rs"]
#[allow(clippy::duplicate_mod, reason = "both databases have it")]
mod shared_cut;
#[path = "shared/exports.rs"]
#[allow(clippy::duplicate_mod, reason = "both databases have it")]
mod shared_exports;
#[path = "shared/models.rs"]
#[allow(clippy::duplicate_mod, reason = "both databases have it")]
mod shared_models;
#[path = "shared/reads.rs"]
#[allow(clippy::duplicate_mod, reason = "both databases have it")]
mod shared_reads;
#[path = "shared/states.rs"]
#[allow(clippy::duplicate_mod, reason = "both databases have it")]
mod shared_states;
#[path = "shared/store.rs"]
#[allow(clippy::duplicate_mod, reason = "both databases have it")]
mod shared_store;

use std::future::Future;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgRow};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::Semaphore;
use uuid::Uuid;

use self::branches::Branches;
use self::changes::Changes;
use self::conversations::{ConversationRows, Old};
use self::errors::is_collision;
use self::exports::{Exports, Imports};
use self::lease::{Lease, Turn, Turns};
use self::messages::DisplayMessages;
use self::notifications::Notifications;
use self::runs::{AbandonedRuns, GroupRuns, Runs};
use self::saves::Saves;
use self::search::{GroupSearch, Search};
use self::states::States;
use self::tool_calls::ToolCalls;
use self::usage::{Counts, GroupCounts};
use crate::schema::Database;
use crate::statement::{Names, OwnColumns, statement_sets, statements};
use crate::{Error, Owner, Reach, Result, Tables};

type Connection = PgConnection;
type Pool = PgPool;
type Row = PgRow;

/// Opens a pool with the settings that this library needs.
///
/// - At most 16 connections. Calls are short, so these serve hundreds of agents; a call that finds none free within ten
///   seconds fails.
/// - A connection is tested before use only if it was idle for half a minute, so that most calls are one round trip.
/// - The server cancels a statement after 30 seconds, and one that waits for a lock after ten. A URL with options of its
///   own, such as `?options[statement_timeout]=5s`, has only those. A search is cancelled after ten seconds in any pool.
///
/// Behind `PgBouncer` in transaction mode, use 1.21 or later with `max_prepared_statements` set and
/// `ignore_startup_parameters = extra_float_digits, options`; set the timeouts for the role then
/// (`ALTER ROLE … SET statement_timeout`).
///
/// # Errors
///
/// [`Error::Invalid`] if this isn't the URL of a `PostgreSQL` database, [`Error::Database`] if the server can't be reached
/// or refuses the connection.
pub async fn connect(url: &str) -> Result<PgPool> {
    const EXPECTED: &str = "the database URL must start with postgres://, as in postgres://role@host/database";

    if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(Error::Invalid(EXPECTED.into()));
    }
    let mut options = PgConnectOptions::from_str(url)?.statement_cache_capacity(200);
    if options.get_options().is_none() {
        options = options.options([("statement_timeout", "30s"), ("lock_timeout", "10s")]);
    }
    // A wrong setting is reported as such, and not as a timeout of the pool.
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

/// A store on `PostgreSQL`. It dereferences to [`Store`](crate::Store), which has the calls.
#[derive(Debug, Clone)]
pub struct Store {
    store: crate::Store,
    pool: PgPool,
}

impl Store {
    /// Uses an existing pool; [`connect`] opens one with suitable settings. The tables must exist.
    #[must_use]
    pub fn new(pool: PgPool, tables: &Tables) -> Self {
        Self::of(Driver::new(pool, *tables))
    }

    /// Tells [watches](crate::Store::watch) of other processes at once what this one changes, and learns from them, with
    /// `NOTIFY`. That takes one connection of the pool. The notifications have the id of the conversation and no content.
    ///
    /// Watches still look every second until another process was heard, and every half minute from then on. If they find
    /// a change that nobody announced, they look every second again: `NOTIFY` doesn't work behind `PgBouncer` in
    /// transaction mode, doesn't cross the nodes of Citus, and some process may send none.
    #[must_use]
    pub fn with_notifications(self) -> Self {
        match self.store.driver {
            crate::store::Driver::Postgres(driver) => {
                Self::of(Driver { notifications: driver.notifications.between_processes(), ..driver })
            }
            #[cfg(feature = "_sqlite")]
            crate::store::Driver::Sqlite(_) => unreachable!("this store has a driver for PostgreSQL"),
        }
    }

    fn of(driver: Driver) -> Self {
        Self { pool: driver.pool.clone(), store: crate::Store { driver: crate::store::Driver::Postgres(driver) } }
    }

    fn driver(&self) -> &Driver {
        match &self.store.driver {
            crate::store::Driver::Postgres(driver) => driver,
            #[cfg(feature = "_sqlite")]
            crate::store::Driver::Sqlite(_) => unreachable!("this store has a driver for PostgreSQL"),
        }
    }
}

/// Pool, statements and turns of a store.
#[derive(Debug, Clone)]
pub(crate) struct Driver {
    pub(crate) pool: PgPool,
    tables: Tables,
    sql: Arc<Sql>,
    groups: Option<Arc<GroupSql>>,
    /// Sets one of the host's own columns.
    own_columns: Arc<OwnColumns>,
    turns: Turns,
    searches: Arc<Semaphore>,
    notifications: Notifications,
}

statement_sets! {
    /// Every statement for owners.
    struct Sql {
        changes: Changes,
        conversation_rows: ConversationRows,
        conversations: Conversations,
        exports: Exports,
        imports: Imports,
        old: Old,
        messages: DisplayMessages,
        saves: Saves,
        tool_calls: ToolCalls,
        usage: Counts,
        branches: Branches,
        runs: Runs,
        abandoned_runs: AbandonedRuns,
        states: States,
        search: Search,
    }
}

statement_sets! {
    /// Every statement for groups.
    struct GroupSql {
        members: Members,
        runs: GroupRuns,
        search: GroupSearch,
        usage: GroupCounts,
    }
}

statements! {
    struct Conversations {
        exists: "
            SELECT TRUE FROM {conversations} AS c WHERE c.{owner} = $2::{owner_type} AND c.id = $1::uuid",
    }
}

statements! {
    struct Members {
        /// Two are enough to know that the id is ambiguous.
        owners: "
            SELECT c.{owner} FROM {conversations} AS c
            WHERE c.id = $1::uuid
              AND c.{owner} IN (SELECT g.{member} FROM {group_table} AS g WHERE g.{group} = $2::{group_type})
            LIMIT 2",
    }
}

impl Driver {
    fn new(pool: PgPool, tables: Tables) -> Self {
        let names = Names::new(tables, Database::Postgres);
        // At most four searches at once, and at most a quarter of the connections.
        let searches = (pool.options().get_max_connections() / 4).clamp(1, 4);
        Self {
            pool,
            tables,
            sql: Arc::new(Sql::expand(&names)),
            groups: tables.group_of_owners().map(|_| Arc::new(GroupSql::expand(&names))),
            own_columns: Arc::new(names.expand_each(exports::SET_OWN_COLUMN)),
            turns: Turns::default(),
            searches: Arc::new(Semaphore::new(searches as usize)),
            notifications: Notifications::new(),
        }
    }

    /// A connection to write to a conversation with, when all earlier calls of this process that write to it have ended.
    /// Those that wait leave the connections to others.
    async fn lease(&self, owner: &Owner, conversation_id: Uuid) -> Result<Lease<Turn>> {
        let turn = self.turns.take(&Reach::Owner(owner.clone()), Some(conversation_id)).await?;
        Lease::take(&self.pool, turn).await
    }
}

/// Repeats a write that collided with a concurrent one, up to four times in about half a second.
///
/// ```
/// use sagents::{postgres, sqlx};
///
/// # async fn example(store: postgres::Store) -> sagents::Result<()> {
/// let rename = || async {
///     let update = sqlx::query("UPDATE projects SET name = $1").bind("Atlas");
///     Ok(update.execute(store.pool()).await?)
/// };
/// postgres::retry(rename).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The error of the last attempt. Every other error is returned at once.
pub async fn retry<T, F>(write: impl Fn() -> F) -> Result<T>
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

#[cfg(test)]
mod tests {
    use sqlx::{Executor as _, SqlSafeStr as _};

    use super::*;
    use crate::statement::tests::{all_kinds, check_length, create};

    #[tokio::test]
    async fn every_statement_is_valid_for_every_kind_of_tables() {
        let database = crate::test_server::Database::new();
        for tables in all_kinds() {
            let pool = connect(&database.url()).await.unwrap();
            let create =
                format!("DROP SCHEMA public CASCADE; CREATE SCHEMA public; {}", create(&tables, Database::Postgres));
            sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&pool).await.unwrap();
            let driver = Driver::new(pool, tables);
            check_length(driver.statements());
            for (name, statement) in driver.statements() {
                if let Err(error) = driver.pool.prepare(statement.into_sql_str()).await {
                    panic!("{name} on {tables:?}: {error}\n{}", statement.as_str());
                }
            }
            driver.pool.close().await;
        }
    }
}
