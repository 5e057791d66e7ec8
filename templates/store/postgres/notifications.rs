//! How watches learn that a conversation changed: at once from this process, and from others if they
//! send notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::PgListener;
use tokio::runtime::Handle;
use tokio::sync::broadcast;
use uuid::Uuid;

use super::super::changes::Signals;
use super::{Pool, Store};

/// The name that other processes listen to.
const CHANNEL: &str = "{{ prefix }}changes";

#[derive(Debug, Clone)]
pub(super) struct Notifications {
    /// The conversations that change; nil if it may be any.
    signals: broadcast::Sender<Uuid>,
    /// Whether there is a listener, if notifications are sent.
    is_listening: Option<Arc<AtomicBool>>,
}

impl Notifications {
    /// Of this process alone.
    pub(super) fn new() -> Self {
        Self {
            signals: broadcast::Sender::new(64),
            is_listening: None,
        }
    }

    pub(super) fn between_processes(self) -> Self {
        Self {
            is_listening: Some(Arc::default()),
            ..self
        }
    }
}

impl Store {
    /// Which conversations are changed. The first watch starts the listener, which all share.
    pub(crate) fn subscribe(&self) -> Signals {
        let Notifications { signals, is_listening } = &self.notifications;
        let Ok(runtime) = Handle::try_current() else {
            return signals.subscribe();
        };
        let is_first = |is_listening: &Arc<AtomicBool>| !is_listening.swap(true, Ordering::SeqCst);
        if is_listening.as_ref().is_some_and(is_first) {
            drop(runtime.spawn(listen(self.pool.clone(), signals.clone())));
        }
        signals.subscribe()
    }

    /// How often a watch looks for changes by other processes. With notifications, it does so in case
    /// one is lost.
    pub(crate) fn interval(&self) -> Duration {
        let is_told = self.notifications.is_listening.is_some();
        Duration::from_secs(if is_told { 30 } else { 1 })
    }

    /// Tells the watches of a conversation that it has changed.
    pub(super) async fn announce(&self, conversation_id: Uuid) {
        const NOTIFY: &str = "SELECT pg_notify($1, $2)";

        let Notifications { signals, is_listening } = &self.notifications;
        // Without watches there is nobody to tell.
        drop(signals.send(conversation_id));
        if is_listening.is_some() {
            let notify = sqlx::query(NOTIFY).bind(CHANNEL).bind(conversation_id.to_string());
            if let Err(error) = notify.execute(&self.pool).await {
                tracing::debug!(%conversation_id, %error, "a change was stored and not announced");
            }
        }
    }
}

/// Forwards notifications until the pool is closed.
async fn listen(pool: Pool, signals: broadcast::Sender<Uuid>) {
    const PAUSE: Duration = Duration::from_secs(1);

    while !pool.is_closed() {
        if let Err(error) = forward(&pool, &signals).await {
            tracing::debug!(%error, "changes by other processes are not announced");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn forward(pool: &Pool, signals: &broadcast::Sender<Uuid>) -> sqlx::Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    loop {
        // Something may have been missed: at first, and when the connection was lost.
        drop(signals.send(Uuid::nil()));
        while let Some(notification) = listener.try_recv().await? {
            // Earlier versions of this code send a number behind the id.
            let id = notification.payload().split_whitespace().next();
            let id = id.and_then(|id| Uuid::try_parse(id).ok());
            drop(signals.send(id.unwrap_or_default()));
        }
    }
}
