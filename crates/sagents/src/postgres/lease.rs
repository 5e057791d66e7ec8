//! Who may use a connection, and when: four writers of a conversation at a time, and a few searches.

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{Connection as _, Executor as _, Postgres};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use uuid::Uuid;

use crate::{Error, Reach, Result};

/// How long a call waits for others before it takes a connection.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How long the rest of a statement is waited for after its caller gave up.
const LONGEST_REST: Duration = Duration::from_secs(45);

/// A conversation that is written to, or without an id the searches of a caller.
type Place = (Reach, Option<Uuid>);

/// The calls that work at a place or wait for it.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns(Arc<Mutex<HashMap<Place, Weak<Queue>>>>);

impl Turns {
    pub(super) async fn take(&self, reach: &Reach, conversation_id: Option<Uuid>) -> Result<Turn> {
        let queue = self.queue((reach.clone(), conversation_id));
        let permit = in_time(Arc::clone(&queue.permits).acquire_owned()).await?;
        let permit = permit.map_err(|_| sqlx::Error::PoolClosed)?;
        Ok(Turn { _permit: permit, _queue: queue })
    }

    fn queue(&self, place: Place) -> Arc<Queue> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = places.get(&place).and_then(Weak::upgrade) {
            return queue;
        }
        // While one writer has the conversation's row, the next ones wait for it on the server.
        let at_once = if place.1.is_some() { 4 } else { 1 };
        let queue =
            Arc::new(Queue { permits: Arc::new(Semaphore::new(at_once)), turns: self.clone(), place: place.clone() });
        drop(places.insert(place, Arc::downgrade(&queue)));
        queue
    }
}

/// A turn at a place. The next call has its turn when this is dropped.
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
    _queue: Arc<Queue>,
}

/// The calls at one place. It is removed with the last of them.
#[derive(Debug)]
struct Queue {
    permits: Arc<Semaphore>,
    turns: Turns,
    place: Place,
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut places = self.turns.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Another call may have come, and made it again.
        if places.get(&self.place).is_some_and(|queue| queue.strong_count() == 0) {
            drop(places.remove(&self.place));
        }
    }
}

/// Waits for other calls, but not for long.
pub(super) async fn in_time<T>(turn: impl Future<Output = T>) -> Result<T> {
    timeout(LONGEST_WAIT, turn).await.map_err(|_| {
        let seconds = LONGEST_WAIT.as_secs();
        let waited = format!("waited {seconds} seconds for other calls of this process");
        sqlx::Error::Io(io::Error::new(ErrorKind::ResourceBusy, waited)).into()
    })
}

/// A connection, and the turn that it is used in. Both are given back at the [end](Lease::end). If a
/// caller gives up before, its statement runs on, and they are given back when it has ended.
pub(super) struct Lease<T: Send + 'static>(Option<(PoolConnection<Postgres>, T)>);

impl<T: Send> Lease<T> {
    /// Waits for a connection. The future of that has several kilobytes and would be part of every
    /// call.
    pub(super) async fn take(pool: &PgPool, turn: T) -> Result<Self> {
        let connection = Box::pin(pool.acquire()).await?;
        Ok(Self(Some((connection, turn))))
    }

    pub(super) fn connection(&mut self) -> &mut PgConnection {
        match &mut self.0 {
            Some((connection, _)) => connection,
            None => unreachable!("only the end takes it"),
        }
    }

    /// For when no statement runs and no transaction is open.
    pub(super) fn end(mut self) {
        self.0 = None;
    }

    /// As [`end`](Self::end), unless the database failed. Returns the result.
    pub(super) fn end_with<R>(self, result: Result<R>) -> Result<R> {
        if !matches!(result, Err(Error::Database(_))) {
            self.end();
        }
        result
    }
}

impl<T: Send> Drop for Lease<T> {
    fn drop(&mut self) {
        let Some((mut connection, turn)) = self.0.take() else {
            return;
        };
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn(async move {
                let freed = timeout(LONGEST_REST, free(&mut connection)).await;
                match freed {
                    Ok(Ok(())) => drop(connection),
                    // This closes it.
                    Ok(Err(_)) | Err(_) => drop(connection.detach()),
                }
                drop(turn);
            }));
        }
    }
}

/// Waits until a statement has ended, however it ends, and ends a transaction that is open.
async fn free(connection: &mut PgConnection) -> sqlx::Result<()> {
    drop(connection.ping().await);
    // Without a transaction, ROLLBACK alone would be a warning in the server's log.
    if connection.execute("BEGIN; ROLLBACK").await.is_err() {
        // BEGIN fails in a transaction that has failed.
        connection.execute("ROLLBACK").await.map(drop)?;
    }
    Ok(())
}
