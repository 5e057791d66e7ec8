//! The store on `SQLite`.

mod branches;
mod catalog;
mod changes;
mod conversations;
pub(crate) mod errors;
mod exports;
mod fixtures;
mod lease;
mod messages;
#[cfg(test)]
mod plans;
mod runs;
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

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use tokio::sync::broadcast;
use uuid::Uuid;

use self::branches::Branches;
use self::changes::Changes;
use self::conversations::{ConversationRows, Old};
use self::exports::{Exports, Imports};
pub use self::lease::Write;
use self::lease::{Searches, Writers};
use self::messages::DisplayMessages;
use self::runs::{AbandonedRuns, GroupRuns, Runs};
use self::search::{GroupSearch, Search};
use self::states::States;
use self::tool_calls::ToolCalls;
use self::usage::{Counts, GroupCounts};
use crate::schema::Database;
use crate::statement::{Names, OwnColumns, statement_sets, statements};
use crate::store::Signals;
use crate::{Result, Tables};

type Connection = SqliteConnection;
type Pool = SqlitePool;
type Row = SqliteRow;

/// Opens a pool with the settings that this library needs. The file is created if it's missing.
///
/// - Write-ahead logging: readers work while one writer writes. `synchronous = FULL`: a call that returned survives a
///   power cut. A log that became large is truncated.
/// - Foreign keys are enforced: deleting a conversation deletes its rows in the other tables.
/// - A writer waits up to ten seconds for a writer of another process, and tries a few times.
/// - Connections are local, so none is tested before use or closed when idle. A connection that's still in a transaction
///   when it's released is closed: on a full disk `SQLite` ends a transaction that sqlx takes for open.
///
/// Of any pool, writes use one connection at a time and searches a quarter. A search is interrupted after five seconds. A
/// database in memory has one connection, and a second pool on `sqlite::memory:` is another database.
///
/// # Errors
///
/// [`Error::Database`](crate::Error::Database) if the URL isn't valid or the file can't be opened.
pub async fn connect(url: &str) -> Result<SqlitePool> {
    const MAX_LOG: &str = "16777216";

    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .pragma("journal_size_limit", MAX_LOG)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(10))
        .statement_cache_capacity(200);
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

/// A store on `SQLite`. It dereferences to [`Store`](crate::Store), which has the calls.
#[derive(Debug, Clone)]
pub struct Store {
    store: crate::Store,
    pool: SqlitePool,
}

impl Store {
    /// Uses an existing pool; [`connect`] opens one with suitable settings. The tables must exist.
    #[must_use]
    pub fn new(pool: SqlitePool, tables: &Tables) -> Self {
        let driver = Driver::new(pool.clone(), *tables);
        Self { store: crate::Store { driver: crate::store::Driver::Sqlite(driver) }, pool }
    }

    /// Begins a write of your own, when all earlier ones of this process have ended: `SQLite` has one writer at a time.
    /// If another process has the database locked, it tries again a few times.
    ///
    /// Don't call the store's writing methods before you [commit](Write::commit) or drop it: they'd wait for it.
    ///
    /// ```
    /// use sagents::sqlx;
    ///
    /// # async fn example(store: sagents::sqlite::Store) -> sagents::Result<()> {
    /// let mut write = store.begin().await?;
    /// sqlx::query("UPDATE projects SET name = $1").bind("Atlas").execute(&mut *write).await?;
    /// write.commit().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Busy`](crate::Error::Busy) if other writes of this process take more than 30 seconds,
    /// [`Error::Database`](crate::Error::Database) if another process keeps the database locked for longer.
    pub async fn begin(&self) -> Result<Write> {
        match &self.store.driver {
            crate::store::Driver::Sqlite(driver) => driver.begin().await,
            #[cfg(feature = "postgres")]
            crate::store::Driver::Postgres(_) => unreachable!("this store has a driver for SQLite"),
        }
    }

    fn driver(&self) -> &Driver {
        match &self.store.driver {
            crate::store::Driver::Sqlite(driver) => driver,
            #[cfg(feature = "postgres")]
            crate::store::Driver::Postgres(_) => unreachable!("this store has a driver for SQLite"),
        }
    }
}

/// Pool, statements and turns of a store.
#[derive(Debug, Clone)]
pub(crate) struct Driver {
    pub(crate) pool: SqlitePool,
    tables: Tables,
    sql: Arc<Sql>,
    groups: Option<Arc<GroupSql>>,
    /// Sets one of the host's own columns.
    own_columns: Arc<OwnColumns>,
    writers: Writers,
    searches: Searches,
    /// Tells the watches of this process which conversations change.
    signals: broadcast::Sender<Uuid>,
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
            SELECT TRUE FROM {conversations} AS c WHERE c.{owner} = $2 AND c.id = $1",
    }
}

statements! {
    struct Members {
        /// Two are enough to know that the id is ambiguous.
        owners: "
            SELECT c.{owner} FROM {conversations} AS c
            WHERE c.id = $1
              AND c.{owner} IN (SELECT g.{member} FROM {group_table} AS g WHERE g.{group} = $2)
            LIMIT 2",
    }
}

impl Driver {
    fn new(pool: SqlitePool, tables: Tables) -> Self {
        let names = Names::new(tables, Database::Sqlite);
        Self {
            tables,
            sql: Arc::new(Sql::expand(&names)),
            groups: tables.group_of_owners().map(|_| Arc::new(GroupSql::expand(&names))),
            own_columns: Arc::new(names.expand_each(exports::SET_OWN_COLUMN)),
            writers: Writers::default(),
            searches: Searches::new(&pool),
            signals: broadcast::Sender::new(64),
            pool,
        }
    }

    /// Begins a write when it's its turn.
    async fn begin(&self) -> Result<Write> {
        self.writers.begin(&self.pool).await
    }

    /// Which conversations are changed.
    pub(crate) fn subscribe(&self) -> Signals {
        self.signals.subscribe()
    }

    /// As [`announce`](Self::announce), in the same form as on the other database.
    pub(crate) fn notify(&self, conversation_id: Uuid) -> std::future::Ready<()> {
        self.announce(conversation_id);
        std::future::ready(())
    }

    /// A watch always looks after its interval.
    #[allow(clippy::unused_self, reason = "the drivers have the same functions")]
    pub(crate) fn missed_signal(&self) {}

    /// How often a watch looks for changes by other processes.
    #[allow(clippy::unused_self, reason = "the drivers have the same functions")]
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Tells the watches of a conversation that it has changed.
    fn announce(&self, conversation_id: Uuid) {
        // Without watches there is nobody to tell.
        drop(self.signals.send(conversation_id));
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Executor as _, SqlSafeStr as _};

    use super::*;
    use crate::statement::tests::{all_kinds, check_length, create};

    #[tokio::test]
    async fn every_statement_is_valid_for_every_kind_of_tables() {
        for tables in all_kinds() {
            let pool = connect("sqlite::memory:").await.unwrap();
            sqlx::raw_sql(sqlx::AssertSqlSafe(create(&tables, Database::Sqlite))).execute(&pool).await.unwrap();
            let driver = Driver::new(pool, tables);
            check_length(driver.statements());
            for (name, statement) in driver.statements() {
                if let Err(error) = driver.pool.prepare(statement.into_sql_str()).await {
                    panic!("{name} on {tables:?}: {error}\n{}", statement.as_str());
                }
            }
        }
    }
}
