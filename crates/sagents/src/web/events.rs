//! Server-sent events: everything that happens in a conversation, in whichever process.
//!
//! | event | data |
//! | --- | --- |
//! | `run` | `status` (`running`, `waiting`, `finished`, `failed`, `cancelled`, or null before the first run), `stopping` |
//! | `rows` | `items`: display messages that are new or changed; `reset`: forget all others |
//! | `draft` | `message_id`, `items`: a message as the model has written it so far |
//! | `todos`, `title` | as they are now |
//! | `gone` | nothing: the conversation was deleted |
//!
//! `rows` have an id. A browser that reconnects sends the last one, and gets everything that's new or changed since;
//! the parameter `after` is for the first connection of a page that has loaded messages. `rows` come from the database,
//! whichever process wrote them. `draft`, `todos` and `title` come from the session of this process. A `draft` of a
//! message whose rows are complete came too late. A `run` follows the rows that were stored before it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::mem::replace;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::http::{HeaderMap, HeaderName};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use uuid::Uuid;

use super::body::in_parts;
use super::caller::Caller;
use super::input::{Id, Query};
use super::problem::Result;
use super::streams::Open;
use super::{Backend, BoxFuture};
use crate::session::{AgentSession, RunChange, SessionError, SessionEvent};
use crate::{ChangeCursor, Changes, DisplayMessage, Error, OwnerScope as _, RunStatus, Watch};

/// Where the events start.
#[derive(Debug, Deserialize)]
pub(super) struct Start {
    after: Option<ChangeCursor>,
}

pub(super) async fn follow(
    caller: Caller,
    Extension(web): Extension<Backend>,
    id: Id,
    Query(start): Query<Start>,
    headers: HeaderMap,
) -> Result<Response> {
    const KEEP_ALIVE: Duration = Duration::from_secs(15);

    let (open, permit) = web.streams.open(caller.reach()?)?;
    let after = match headers.get("last-event-id") {
        Some(last) => last.to_str().unwrap_or_default().parse()?,
        None => start.after.unwrap_or(ChangeCursor::START),
    };
    let watch = web.store.watch(&caller, id.get(), after)?;
    let session = match caller.owner() {
        Ok(_) => Some(web.session(&caller, id.get()).await?),
        // Readers of a group have no session.
        Err(Error::NoOwner) => None,
        Err(error) => return Err(error.into()),
    };
    let events = session.as_ref().map(|session| (session.clone(), session.subscribe()));
    let mut stream = Follow {
        id: id.get(),
        cursor: after,
        rows: wait(watch),
        queue: VecDeque::new(),
        events,
        told: None,
        look: every(web.coordinator.options().run_lease),
        is_soon: false,
        is_over: false,
        open,
        caller,
        web,
    };
    stream.look().await?;
    // In a task, because a client that reads slowly must not hold up a call of the database. An event may be large, so
    // few of them wait.
    let (sender, events) = channel(1);
    drop(tokio::spawn(stream.run(sender)));
    let stream = unfold((events, permit), |(mut events, permit)| async {
        let event = events.recv().await?;
        Some((Ok::<_, Infallible>(event), (events, permit)))
    });
    // A proxy that buffers would hold events back.
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), "no")];
    let stream = Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    Ok((unbuffered, stream).into_response().map(in_parts))
}

/// An open stream.
struct Follow {
    web: Backend,
    caller: Caller,
    id: Uuid,
    /// Behind the rows that the client has.
    cursor: ChangeCursor,
    rows: BoxFuture<'static, (Watch, crate::Result<Changes>)>,
    /// To be sent next.
    queue: VecDeque<Event>,
    /// The session of this process, and its events. It may end before the stream.
    events: Option<(AgentSession, Events)>,
    /// The state of the run that the client knows.
    told: Option<Told>,
    look: Interval,
    /// Whether it looks earlier than the interval says.
    is_soon: bool,
    is_over: bool,
    open: Open,
}

type Events = Receiver<Arc<SessionEvent>>;

#[derive(Serialize)]
struct Rows<'a> {
    items: &'a [DisplayMessage],
    reset: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Told {
    status: Option<RunStatus>,
    stopping: bool,
}

impl Follow {
    /// Sends events until the client has gone, or takes nothing.
    async fn run(mut self, sender: Sender<Event>) {
        let send = async {
            while let Some(event) = self.next().await {
                let sent = match sender.try_send(event) {
                    Ok(()) => true,
                    Err(TrySendError::Full(event)) => self.wait_to_send(&sender, event).await,
                    Err(TrySendError::Closed(_)) => false,
                };
                if !sent {
                    return;
                }
            }
        };
        tokio::select! {
            () = send => {}
            () = sender.closed() => {}
        }
    }

    /// Sends an event when the client has taken another one. Returns whether it was sent. A client that wakes up later
    /// reconnects, and gets everything it has missed.
    async fn wait_to_send(&mut self, sender: &Sender<Event>, event: Event) -> bool {
        // A future that isn't polled must not keep a connection.
        self.rows = Box::pin(pending());
        let is_sent = tokio::select! {
            sent = timeout(self.web.limits.stalled_after, sender.send(event)) => matches!(sent, Ok(Ok(()))),
            () = self.open.closed() => false,
        };
        is_sent && self.watch().is_ok()
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            let done = tokio::select! {
                (watch, changes) = &mut self.rows => self.changed(watch, changes),
                happened = receive(&mut self.events) => self.happened(happened).await,
                _ = self.look.tick() => self.look().await,
                () = self.open.closed() => return None,
            };
            if let Err(problem) = done {
                // Otherwise the browser connects again.
                let gone = problem.is_not_found().then(|| event("gone", &json!({})));
                self.queue.extend(gone);
                self.is_over = true;
            }
        }
    }

    /// Rows are new or changed.
    fn changed(&mut self, watch: Watch, changes: crate::Result<Changes>) -> Result<()> {
        self.rows = wait(watch);
        self.send(changes?);
        self.find_session();
        self.look_soon();
        Ok(())
    }

    fn send(&mut self, changes: Changes) {
        let Changes { items, next, reset, .. } = changes;
        self.cursor = next;
        let rows = event("rows", &Rows { items: &items, reset });
        self.queue.push_back(rows.id(next.to_string()));
    }

    /// Something happened in the session.
    async fn happened(&mut self, happened: Happened) -> Result<()> {
        let event = match happened {
            Happened::Event(happened) => match &*happened {
                SessionEvent::Draft { .. } => event("draft", &happened),
                SessionEvent::Todos { .. } => event("todos", &happened),
                SessionEvent::Title { .. } => event("title", &happened),
                SessionEvent::Run { change, .. } => match told(*change) {
                    Some(told) => return self.tell(told).await,
                    None => return Ok(()),
                },
                _ => return Ok(()),
            },
            Happened::Missed => match &self.events {
                Some((session, _)) => {
                    let todos = session.read(|state| state.todos.clone());
                    event("todos", &json!({ "todos": todos }))
                }
                None => return Ok(()),
            },
            Happened::Ended => {
                self.events = None;
                return Ok(());
            }
        };
        self.queue.push_back(event);
        Ok(())
    }

    /// Nobody announces what another process does with the run, but mostly it comes with rows.
    fn look_soon(&mut self) {
        if !replace(&mut self.is_soon, true) {
            self.look.reset_after(Duration::from_secs(1));
        }
    }

    /// Looks at the run, which may be another process's, and continues one that was abandoned.
    async fn look(&mut self) -> Result<()> {
        self.is_soon = false;
        self.find_session();
        self.rows = Box::pin(pending());
        let run = self.web.store.get_run(&self.caller, self.id).await?;
        if let (Some((session, _)), Some(run)) = (&self.events, &run) {
            match self.web.resume(&self.caller.scope, session, run).await {
                // The next look finds it.
                Ok(()) | Err(SessionError::Ended) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.tell(Told {
            status: run.as_ref().map(|run| run.status),
            stopping: run.is_some_and(|run| run.cancel_requested && run.status == RunStatus::Running),
        })
        .await
    }

    /// Tells the state of the run, unless the client knows it. Rows that were stored earlier come first, unless there
    /// are many.
    async fn tell(&mut self, told: Told) -> Result<()> {
        const ROWS: u32 = 100;

        // A future that isn't polled must not keep a connection.
        self.rows = Box::pin(pending());
        let before = self.told.replace(told);
        if before.is_some_and(|before| before != told) {
            let changes = self.web.store.changes(&self.caller, self.id, self.cursor, ROWS).await?;
            if changes.reset || !changes.items.is_empty() {
                self.send(changes);
            }
        }
        if before != Some(told) {
            let run = event("run", &told).retry(Duration::from_secs(1));
            self.queue.push_back(run);
        }
        self.watch()
    }

    /// Waits for rows behind those that the client has.
    fn watch(&mut self) -> Result<()> {
        self.rows = wait(self.web.store.watch(&self.caller, self.id, self.cursor)?);
        Ok(())
    }

    /// A session that ended may be followed by another one.
    fn find_session(&mut self) {
        if self.events.is_none() {
            let found = self.web.coordinator.find(&self.caller, self.id).ok().flatten();
            self.events = found.map(|session| {
                let events = session.subscribe();
                (session, events)
            });
        }
    }
}

/// The state of a run after a change. `None` if another process has it now: that has to be looked up.
fn told(change: RunChange) -> Option<Told> {
    let status = match change {
        RunChange::Started | RunChange::CancelRequested => RunStatus::Running,
        RunChange::Waiting => RunStatus::Waiting,
        RunChange::Finished => RunStatus::Finished,
        RunChange::Failed => RunStatus::Failed,
        RunChange::Cancelled => RunStatus::Cancelled,
        RunChange::Lost => return None,
    };
    Some(Told { status: Some(status), stopping: change == RunChange::CancelRequested })
}

/// An event of the session.
enum Happened {
    Event(Arc<SessionEvent>),
    /// The client is too slow for all events. The drafts that it misses don't matter.
    Missed,
    Ended,
}

async fn receive(events: &mut Option<(AgentSession, Events)>) -> Happened {
    match events {
        Some((_, events)) => match events.recv().await {
            Ok(event) => Happened::Event(event),
            Err(RecvError::Lagged(_)) => Happened::Missed,
            Err(RecvError::Closed) => Happened::Ended,
        },
        None => pending().await,
    }
}

/// Waits for rows, without being disturbed by other events.
fn wait(mut watch: Watch) -> BoxFuture<'static, (Watch, crate::Result<Changes>)> {
    Box::pin(async move {
        let changes = watch.next().await;
        (watch, changes)
    })
}

/// How often a stream looks at the run: soon after it could be taken over.
fn every(lease: Duration) -> Interval {
    let time = (lease / 3).clamp(Duration::from_secs(1), Duration::from_secs(10));
    let mut interval = interval_at(Instant::now() + time, time);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

fn event(name: &str, data: &impl Serialize) -> Event {
    // Everything in the database is JSON or text.
    Event::default().event(name).json_data(data).unwrap_or_default()
}
