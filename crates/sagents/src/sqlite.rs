//! The store on `SQLite`.

mod branches;
mod catalog;
mod changes;
mod conversations;
pub(crate) mod errors;
mod exports;
mod lease;
mod messages;
mod models;
mod runs;
mod search;
mod states;
mod tool_calls;
mod usage;

use std::future::Future;
use std::ops::Deref;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use tokio::sync::broadcast;
use uuid::Uuid;

use self::branches::Branches;
use self::changes::Changes;
use self::conversations::{ConversationRows, GroupLists, Lists, Old};
use self::errors::{SQLITE_BUSY, code};
use self::exports::{Exports, Imports};
pub use self::lease::Write;
use self::lease::{Searches, Writers};
use self::messages::DisplayMessages;
use self::runs::{GroupRuns, Runs};
use self::search::{GroupSearch, Search};
use self::states::States;
use self::tool_calls::ToolCalls;
use self::usage::{Counts, GroupCounts};
use crate::schema::Database;
use crate::statement::{Names, OwnColumns, statement_sets, statements};
use crate::store::Signals;
use crate::{Error, Key, Owner, Result, Tables};

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
/// [`Error::Database`] if the URL isn't valid or the file can't be opened.
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
    ///
    /// Don't call the store's writing methods before you [commit](Write::commit) or drop it: they'd wait for it.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if other writes of this process take more than 30 seconds, [`Error::Database`] if another process
    /// keeps the database locked; [`retry`] repeats a write then.
    pub async fn begin(&self) -> Result<Write> {
        match &self.store.driver {
            crate::store::Driver::Sqlite(driver) => driver.begin().await,
            #[cfg(feature = "postgres")]
            crate::store::Driver::Postgres(_) => unreachable!("this store has a driver for SQLite"),
        }
    }

    /// The pool, for statements of your own.
    #[must_use]
    pub fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    fn driver(&self) -> &Driver {
        match &self.store.driver {
            crate::store::Driver::Sqlite(driver) => driver,
            #[cfg(feature = "postgres")]
            crate::store::Driver::Postgres(_) => unreachable!("this store has a driver for SQLite"),
        }
    }
}

impl Deref for Store {
    type Target = crate::Store;

    fn deref(&self) -> &crate::Store {
        &self.store
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
        lists: Lists,
        old: Old,
        messages: DisplayMessages,
        tool_calls: ToolCalls,
        usage: Counts,
        branches: Branches,
        runs: Runs,
        states: States,
        search: Search,
    }
}

statement_sets! {
    /// Every statement for groups.
    struct GroupSql {
        lists: GroupLists,
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

    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The statements for groups.
    fn groups(&self) -> Result<&GroupSql> {
        self.groups.as_deref().ok_or(Error::NoOwner)
    }

    /// The members of a group that have a conversation with this id; two if there are more.
    pub(crate) async fn owners_in_group(&self, group: &Key, conversation_id: Uuid) -> Result<Vec<Key>> {
        let query = sqlx::query_scalar(&self.groups()?.members.owners).bind(conversation_id).bind(group);
        Ok(query.fetch_all(&self.pool).await?)
    }

    pub(crate) async fn conversation_exists(&self, owner: &Owner, conversation_id: Uuid) -> Result<bool> {
        let query = sqlx::query(&self.sql.conversations.exists).bind(conversation_id).bind(owner.key());
        Ok(query.fetch_optional(&self.pool).await?.is_some())
    }

    /// Begins a write when it's its turn.
    async fn begin(&self) -> Result<Write> {
        self.writers.begin(&self.pool).await
    }
}

/// Repeats a write that found the database locked by another process, up to four times in about two seconds.
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
            Err(Error::Database(error)) if code(&error) == Some(SQLITE_BUSY) => {
                tokio::time::sleep(Duration::from_millis(20) * 4_u32.pow(attempt)).await;
            }
            result => return result,
        }
    }
    write().await
}

impl Driver {
    /// The most connections that the pool opens.
    #[cfg(feature = "axum")]
    pub(crate) fn max_connections(&self) -> u32 {
        self.pool.options().get_max_connections()
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
    use crate::statement::tests::{KINDS, check_length, create};

    #[tokio::test]
    async fn every_statement_is_valid_for_every_kind_of_tables() {
        for tables in KINDS {
            let pool = connect("sqlite::memory:").await.unwrap();
            sqlx::raw_sql(sqlx::AssertSqlSafe(create(&tables, Database::Sqlite))).execute(&pool).await.unwrap();
            let driver = Driver::new(pool, tables);
            let groups = driver.groups.iter().flat_map(|groups| groups.all());
            let statements: Vec<_> =
                driver.sql.all().into_iter().chain(groups).chain(driver.own_columns.all()).collect();
            check_length(statements.iter().copied());
            for (name, statement) in statements {
                if let Err(error) = driver.pool.prepare(statement.into_sql_str()).await {
                    panic!("{name} on {tables:?}: {error}\n{}", statement.as_str());
                }
            }
        }
    }
}
