//! Who may use a connection, and when: one writer after the other, and a few searches.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{self, Duration};

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePool};
use sqlx::{ConnectOptions as _, Connection as _, Sqlite};
use tokio::sync::{Mutex as Queue, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::errors::{SQLITE_BUSY, SQLITE_ERROR, code};
use crate::{Error, Reach, Result};

/// The writers of a process. `SQLite` has one at a time; those that wait here, instead of in the
/// database, come in order and leave the connections to readers.
#[derive(Debug, Clone, Default)]
pub(super) struct Writers(Arc<Queue<Turn>>);

/// The turn of a writer.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// When the last write began, if a task waits for the end of the writes.
    last_write: Option<Instant>,
}

/// A write transaction, which dereferences to its connection. Dropping it rolls it back.
///
/// It's not one of sqlx's: those don't notice if `SQLite` ends a transaction by itself, for example on a full disk.
pub struct Write(Lease<OwnedMutexGuard<Turn>>);

impl Writers {
    /// Begins a write when it's its turn. It takes the database's lock at once, so that it can't fail later because of
    /// another writer.
    pub(super) async fn begin(&self, pool: &SqlitePool) -> Result<Write> {
        /// Hundreds of writers have their turn in this time. A task that begins a second write inside its first one
        /// would wait for itself.
        const LONGEST_WAIT: Duration = Duration::from_secs(30);

        let turn = timeout(LONGEST_WAIT, Arc::clone(&self.0).lock_owned()).await;
        let mut turn = turn.map_err(|_| Error::Busy("waited 30 seconds for another write of this process"))?;
        if turn.last_write.replace(Instant::now()).is_none() {
            let log = truncate_log(Arc::downgrade(&self.0), pool.connect_options());
            drop(tokio::spawn(log));
        }
        let mut write = Lease::take(pool, turn).await?;
        write.begin("BEGIN IMMEDIATE").await?;
        Ok(Write(write))
    }
}

impl Write {
    /// Commits the transaction and lets the next writer begin. If another process has the database locked, it tries again
    /// a few times.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database fails; then nothing is stored.
    pub async fn commit(mut self) -> Result<()> {
        self.0.execute("COMMIT").await?;
        self.0.0 = None;
        Ok(())
    }

    pub(super) async fn rollback(mut self) -> Result<()> {
        self.0.execute("ROLLBACK").await?;
        self.0.0 = None;
        Ok(())
    }
}

impl Deref for Write {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.0
    }
}

impl DerefMut for Write {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.0
    }
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write").finish_non_exhaustive()
    }
}

/// A read transaction, whose statements all see the same rows. Dropping it ends it.
pub(super) type Snapshot = Lease<()>;

impl Snapshot {
    pub(super) async fn of(pool: &SqlitePool) -> Result<Self> {
        let mut snapshot = Lease::take(pool, ()).await?;
        snapshot.begin("BEGIN").await?;
        Ok(snapshot)
    }

    /// Gives the connection back at once.
    pub(super) async fn end(mut self) -> Result<()> {
        self.execute("COMMIT").await?;
        self.0 = None;
        Ok(())
    }
}

/// The searches of a process. A search reads all messages that its caller may: there are a few at
/// once, one of each caller, so that they leave the connections to other calls and do not wait for a
/// caller with many of them.
#[derive(Debug, Clone)]
pub(super) struct Searches {
    permits: Arc<Semaphore>,
    callers: Arc<Mutex<HashMap<Reach, Weak<Queue<()>>>>>,
}

/// A connection for a search.
pub(super) type Search = Lease<(OwnedMutexGuard<()>, OwnedSemaphorePermit)>;

impl Searches {
    /// At most four at once, and at most a quarter of the connections.
    pub(super) fn new(pool: &SqlitePool) -> Self {
        let permits = (pool.options().get_max_connections() / 4).clamp(1, 4);
        Self { permits: Arc::new(Semaphore::new(permits as usize)), callers: Arc::default() }
    }

    /// A connection when it is the search's turn. A search that takes too long, or whose caller is
    /// gone, is interrupted when it comes to one of the next messages.
    pub(super) async fn begin(&self, pool: &SqlitePool, reach: &Reach, caller: &Arc<()>) -> Result<Search> {
        const LIMIT: Duration = Duration::from_secs(5);

        let turn = async {
            let turn = self.queue(reach).lock_owned().await;
            (turn, Arc::clone(&self.permits).acquire_owned().await)
        };
        let Ok((turn, Ok(permit))) = timeout(LIMIT, turn).await else {
            return Err(sqlx::Error::PoolTimedOut.into());
        };
        let mut search = Lease::take(pool, (turn, permit)).await?;
        let (caller, start, mut calls) = (Arc::downgrade(caller), time::Instant::now(), 0_u32);
        let goes_on = move || {
            calls = calls.wrapping_add(1);
            // Asking for the time takes longer than looking at most messages.
            caller.strong_count() > 0 && (calls % 16 > 0 || start.elapsed() < LIMIT)
        };
        search.lock_handle().await?.set_progress_handler(16, goes_on);
        Ok(search)
    }

    fn queue(&self, reach: &Reach) -> Arc<Queue<()>> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = callers.get(reach).and_then(Weak::upgrade) {
            return queue;
        }
        callers.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::default();
        drop(callers.insert(reach.clone(), Arc::downgrade(&queue)));
        queue
    }
}

impl Search {
    /// Gives the connection back at once.
    pub(super) async fn end(mut self) -> Result<()> {
        self.lock_handle().await?.remove_progress_handler();
        self.0 = None;
        Ok(())
    }
}

/// A connection in use, and the turn that it is used in. Both are given back when the connection is
/// free: if a caller gives a call up, its statement runs on, and the next call waits for its end.
pub(super) struct Lease<T: Send + 'static>(Option<(PoolConnection<Sqlite>, T)>);

impl<T: Send> Lease<T> {
    /// Waits for a connection. The future of that has several kilobytes and would be part of every
    /// call.
    async fn take(pool: &SqlitePool, turn: T) -> Result<Self> {
        let connection = Box::pin(pool.acquire()).await?;
        Ok(Self(Some((connection, turn))))
    }

    /// Repeats a statement that found the database locked by another process, up to four times in about two seconds.
    async fn execute(&mut self, statement: &'static str) -> sqlx::Result<()> {
        const ATTEMPTS: u32 = 4;
        for attempt in 1..ATTEMPTS {
            match sqlx::query(statement).execute(&mut **self).await {
                Err(error) if code(&error) == Some(SQLITE_BUSY) => {
                    sleep(Duration::from_millis(20) * 4_u32.pow(attempt)).await;
                }
                result => return result.map(drop),
            }
        }
        sqlx::query(statement).execute(&mut **self).await.map(drop)
    }

    async fn begin(&mut self, statement: &'static str) -> sqlx::Result<()> {
        match self.execute(statement).await {
            Err(error) if code(&error) == Some(SQLITE_ERROR) => {
                // The application has left the connection in a transaction.
                self.execute("ROLLBACK").await?;
                self.execute(statement).await
            }
            begun => begun,
        }
    }
}

impl<T: Send> Drop for Lease<T> {
    fn drop(&mut self) {
        let Some((mut connection, turn)) = self.0.take() else {
            return;
        };
        drop(tokio::spawn(async move {
            // Waits until no statement runs.
            if let Ok(mut handle) = connection.lock_handle().await {
                handle.remove_progress_handler();
            }
            // Fails if there is no transaction.
            let rollback = sqlx::query("ROLLBACK").execute(&mut *connection).await;
            drop((rollback, connection, turn));
        }));
    }
}

const LEASED: &str = "a lease has its connection until it is dropped";

impl<T: Send> Deref for Lease<T> {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        let (connection, _) = self.0.as_ref().expect(LEASED);
        connection
    }
}

impl<T: Send> DerefMut for Lease<T> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        let (connection, _) = self.0.as_mut().expect(LEASED);
        connection
    }
}

/// Empties the write-ahead log after some seconds without a write, unless a reader needs it: a large
/// log would keep its size. It uses a connection of its own and does not keep the pool open.
async fn truncate_log(writers: Weak<Queue<Turn>>, options: Arc<SqliteConnectOptions>) {
    const IDLE: Duration = Duration::from_secs(5);

    let mut end = Instant::now() + IDLE;
    loop {
        sleep_until(end).await;
        let Some(writers) = writers.upgrade() else {
            return;
        };
        let mut turn = writers.lock().await;
        end = turn.last_write.map_or(end, |last_write| last_write + IDLE);
        if end <= Instant::now() {
            turn.last_write = None;
            if let Err(error) = checkpoint(&options).await {
                tracing::debug!(%error, "the write-ahead log was not truncated");
            }
            return;
        }
    }
}

async fn checkpoint(options: &SqliteConnectOptions) -> sqlx::Result<()> {
    let options = options.clone().create_if_missing(false).busy_timeout(Duration::ZERO);
    let mut connection = options.connect().await?;
    let checkpoint = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection);
    checkpoint.await.map(drop)?;
    connection.close().await
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::SqlitePoolOptions;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_inside_a_write_fails_after_a_while() {
        let (writers, pool) = (Writers::default(), SqlitePoolOptions::new().connect_lazy("sqlite::memory:").unwrap());
        let first = Arc::clone(&writers.0).lock_owned().await;
        let second = writers.begin(&pool).await;
        assert!(matches!(second, Err(Error::Busy(_))), "{second:?}");
        drop(first);
    }
}
