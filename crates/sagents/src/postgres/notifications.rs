//! How watches learn that a conversation changed: at once from this process, and from others if they
//! send notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPool};
use tokio::runtime::Handle;
use tokio::sync::broadcast;
use uuid::Uuid;

use super::Driver;
use crate::store::Signals;

/// The name that other processes listen to.
const CHANNEL: &str = "sagents_changes";

#[derive(Debug, Clone)]
pub(super) struct Notifications {
    /// The conversations that change; nil if it may be any.
    signals: broadcast::Sender<Uuid>,
    /// The channel between processes, if it's used.
    channel: Option<Arc<Channel>>,
}

#[derive(Debug)]
struct Channel {
    /// Stands behind the conversation in a notification. Hearing oneself doesn't prove that others are heard.
    sender: Uuid,
    is_listening: AtomicBool,
    /// Another process was heard on the present connection.
    is_proved: AtomicBool,
    /// A change wasn't announced although the channel was proved.
    is_broken: AtomicBool,
}

impl Notifications {
    /// Of this process alone.
    pub(super) fn new() -> Self {
        Self { signals: broadcast::Sender::new(64), channel: None }
    }

    pub(super) fn between_processes(self) -> Self {
        let no = || AtomicBool::new(false);
        let channel = Channel { sender: Uuid::now_v7(), is_listening: no(), is_proved: no(), is_broken: no() };
        Self { channel: Some(Arc::new(channel)), ..self }
    }
}

impl Driver {
    /// Which conversations are changed. The first watch starts the listener, which all share.
    pub(crate) fn subscribe(&self) -> Signals {
        let Notifications { signals, channel } = &self.notifications;
        if let (Some(channel), Ok(runtime)) = (channel, Handle::try_current())
            && !channel.is_listening.swap(true, Ordering::SeqCst)
        {
            drop(runtime.spawn(listen(self.pool.clone(), signals.clone(), Arc::clone(channel))));
        }
        signals.subscribe()
    }

    /// How often a watch looks for changes by other processes. With a channel that works, it does so in case a
    /// notification is lost.
    pub(crate) fn interval(&self) -> Duration {
        let is_told = self.notifications.channel.as_ref().is_some_and(|channel| channel.works());
        Duration::from_secs(if is_told { 30 } else { 1 })
    }

    /// A watch found a change after its interval, so nobody has announced it.
    pub(crate) fn missed_signal(&self) {
        if let Some(channel) = &self.notifications.channel
            && channel.works()
        {
            channel.is_broken.store(true, Ordering::Relaxed);
        }
    }

    /// Tells the watches of a conversation that it has changed.
    pub(crate) async fn notify(&self, conversation_id: Uuid) {
        self.announce(conversation_id).await;
    }

    /// Tells the watches of a conversation that it has changed.
    pub(super) async fn announce(&self, conversation_id: Uuid) {
        const NOTIFY: &str = "SELECT pg_notify($1, $2)";

        let Notifications { signals, channel } = &self.notifications;
        // Without watches there is nobody to tell.
        drop(signals.send(conversation_id));
        if let Some(channel) = channel {
            let payload = format!("{conversation_id} {}", channel.sender);
            let notify = sqlx::query(NOTIFY).bind(CHANNEL).bind(payload);
            if let Err(error) = notify.execute(&self.pool).await {
                tracing::debug!(target: "sagents", { gen_ai.conversation.id = %conversation_id, %error }, "a change was stored and not announced");
            }
        }
    }
}

impl Channel {
    fn works(&self) -> bool {
        self.is_proved.load(Ordering::Relaxed) && !self.is_broken.load(Ordering::Relaxed)
    }

    /// Begins on a new connection, perhaps to another node.
    fn reset(&self) {
        self.is_proved.store(false, Ordering::Relaxed);
        self.is_broken.store(false, Ordering::Relaxed);
    }

    /// The conversation of a notification; nil if it can't be read.
    fn hear(&self, payload: &str) -> Uuid {
        let (id, sender) = payload.split_once(' ').unwrap_or((payload, ""));
        if Uuid::try_parse(sender).ok() != Some(self.sender) {
            self.is_proved.store(true, Ordering::Relaxed);
        }
        Uuid::try_parse(id).unwrap_or_default()
    }
}

/// Forwards notifications until the pool is closed.
async fn listen(pool: PgPool, signals: broadcast::Sender<Uuid>, channel: Arc<Channel>) {
    const PAUSE: Duration = Duration::from_secs(1);

    while !pool.is_closed() {
        if let Err(error) = forward(&pool, &signals, &channel).await {
            tracing::debug!(target: "sagents", %error, "changes by other processes are not announced");
            channel.reset();
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn forward(pool: &PgPool, signals: &broadcast::Sender<Uuid>, channel: &Channel) -> sqlx::Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    loop {
        // Something may have been missed: at first, and when the connection was lost.
        channel.reset();
        drop(signals.send(Uuid::nil()));
        while let Some(notification) = listener.try_recv().await? {
            drop(signals.send(channel.hear(notification.payload())));
        }
    }
}
