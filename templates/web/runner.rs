//! Starts the agent, and ends its runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::super::{
    BeginRun, {{ context }}, Delivery, Error, Owner, OwnerScope as _, Role, Run, RunStatus,
};
use super::agent::{Agent, AgentError, AgentRun, Outcome};
use super::{Caller, Web};
use crate::sagents::Message;
use crate::sagents::session::{AgentSession, RunGuard, SessionError};

type Result<T> = std::result::Result<T, SessionError<Error>>;
type Ended = std::result::Result<Outcome, AgentError>;

/// The agent, and the conversations that it works on in this process.
pub(super) struct Runner {
    agent: Box<dyn Fn(AgentRun) -> BoxFuture<'static, Ended> + Send + Sync>,
    working: Mutex<HashMap<Key, Work>>,
}

type Key = (Owner, Uuid);

#[derive(Default)]
struct Work {
    /// Somebody wanted to start the agent while it worked.
    is_asked: bool,
    /// Closes when it ends.
    end: watch::Sender<()>,
}

/// Why the agent is started.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// There is a message without an answer, or a decision, unless the agent has seen it already.
    News,
    /// A person wants it, or a process ended in the middle of a run.
    Asked,
}

impl Runner {
    pub(super) fn new(agent: impl Agent) -> Self {
        let agent = Arc::new(agent);
        Self {
            agent: Box::new(move |run| {
                let agent = Arc::clone(&agent);
                Box::pin(async move { agent.run(run).await })
            }),
            working: Mutex::default(),
        }
    }

    /// Whether the agent works on a conversation in this process.
    pub(super) fn is_working(&self, owner: Owner, id: Uuid) -> bool {
        self.working().contains_key(&(owner, id))
    }

    /// Waits until the agent does not work on a conversation in this process, for a few seconds.
    /// Returns whether that is so.
    pub(super) async fn ended(&self, owner: Owner, id: Uuid) -> bool {
        const PATIENCE: Duration = Duration::from_secs(10);

        let end = self.working().get(&(owner, id)).map(|work| work.end.subscribe());
        match end {
            Some(mut end) => timeout(PATIENCE, end.changed()).await.is_ok(),
            None => true,
        }
    }

    fn working(&self) -> MutexGuard<'_, HashMap<Key, Work>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The agent works on a conversation in this process, until this is dropped.
struct Place {
    runner: Arc<Runner>,
    key: Key,
    is_left: bool,
}

impl Place {
    /// Nothing if it works on the conversation already.
    fn take(runner: &Arc<Runner>, key: &Key) -> Option<Self> {
        let mut working = runner.working();
        if let Some(work) = working.get_mut(key) {
            work.is_asked = true;
            return None;
        }
        drop(working.insert(key.clone(), Work::default()));
        Some(Self {
            runner: Arc::clone(runner),
            key: key.clone(),
            is_left: false,
        })
    }

    /// Returns whether somebody wanted to start the agent since it was taken.
    fn leave(mut self) -> bool {
        self.is_left = true;
        let work = self.runner.working().remove(&self.key);
        work.is_some_and(|work| work.is_asked)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // After it was left, somebody else may have taken it.
        if !self.is_left {
            drop(self.runner.working().remove(&self.key));
        }
    }
}

impl Web {
    /// Starts the agent in the background, unless it works on the conversation already. If that is in
    /// another process, which may end before it sees what is new, it is started afterwards.
    pub(super) async fn start(
        &self,
        scope: &Arc<Caller>,
        session: &AgentSession<{{ context }}>,
        reason: Reason,
    ) -> Result<()> {
        let key = (scope.owner()?, session.conversation_id());
        let Some(place) = Place::take(&self.runner, &key) else {
            return Ok(());
        };
        let begun = session.begin_run().await?;
        if matches!(begun, BeginRun::Busy(_)) && reason != Reason::News {
            return Ok(());
        }
        let (web, scope, session) = (self.clone(), Arc::clone(scope), session.clone());
        let work = async move {
            if let Some(guard) = begin(&session, begun).await {
                web.work(place, &scope, &session, guard, reason).await;
            }
        };
        drop(tokio::spawn(work));
        Ok(())
    }

    /// Starts the agent if a process ended in the middle of a run.
    pub(super) async fn resume(
        &self,
        scope: &Arc<Caller>,
        session: &AgentSession<{{ context }}>,
        run: &Run,
    ) -> Result<()> {
        let lease = self.coordinator.options().run_lease;
        let is_left = match run.status {
            RunStatus::Running => run.is_abandoned(lease),
            // A process that is shut down lets its run wait for nothing.
            RunStatus::Waiting => run.waiting_for.as_ref().is_none_or(Value::is_null),
            RunStatus::Finished | RunStatus::Failed | RunStatus::Cancelled => false,
        };
        if is_left {
            self.start(scope, session, Reason::Asked).await?;
        }
        Ok(())
    }

    /// Runs the agent, and again while there is something new.
    async fn work(
        &self,
        mut place: Place,
        scope: &Arc<Caller>,
        session: &AgentSession<{{ context }}>,
        mut guard: RunGuard<{{ context }}>,
        mut reason: Reason,
    ) {
        let key = place.key.clone();
        loop {
            let is_stopped = self.run(scope, session, guard, reason).await;
            let is_asked = place.leave();
            if (is_stopped && !is_asked) || !self.has_news(scope, session).await {
                return;
            }
            let Some(taken) = Place::take(&self.runner, &key) else {
                return;
            };
            let Ok(begun) = session.begin_run().await else {
                return;
            };
            let Some(begun) = begin(session, begun).await else {
                return;
            };
            (place, guard, reason) = (taken, begun, Reason::News);
        }
    }

    /// One run of the agent. Returns whether it was stopped or failed.
    async fn run(
        &self,
        scope: &Arc<Caller>,
        session: &AgentSession<{{ context }}>,
        guard: RunGuard<{{ context }}>,
        reason: Reason,
    ) -> bool {
        let token = guard.token().clone();
        let run = AgentRun {
            conversations: self.conversations.clone(),
            scope: Arc::clone(scope),
            session: session.clone(),
            token: token.clone(),
            resumed: guard.resumed(),
        };
        // A task, so that one that panics is one that failed.
        let agent = async {
            let has_left = self.take_over(scope, session, guard.resumed()).await?;
            if reason == Reason::News && !has_left && !self.has_news(scope, session).await {
                return Ok(Outcome::Finished);
            }
            tokio::spawn((self.runner.agent)(run)).await?
        };
        let ended = agent.await;
        if !matches!(ended, Ok(Outcome::Finished | Outcome::Waiting(_))) {
            // The tools of an agent that was stopped or failed don't run any more.
            drop(session.seal_calls().await);
        }
        let (is_stopped, ended) = match ended {
            Ok(Outcome::Finished) => (false, session.completed()),
            // With null, it would be a run that its process has left.
            Ok(Outcome::Waiting(Value::Null)) => (false, session.interrupted(json!({}))),
            Ok(Outcome::Waiting(data)) => (false, session.interrupted(data)),
            Ok(Outcome::Cancelled) => (true, session.cancelled()),
            Err(_) if token.is_cancelled() => (true, session.cancelled()),
            Ok(Outcome::Failed(text)) => {
                drop(session.display(Uuid::now_v7(), Message::system(text)));
                (true, session.failed())
            }
            Err(error) => {
                let source = &*error as &dyn std::error::Error;
                tracing::error!(error = source, id = %session.conversation_id(), "the agent failed");
                let notice = Message::system("The agent failed. Try again.");
                drop(session.display(Uuid::now_v7(), notice));
                (true, session.failed())
            }
        };
        // A session that has ended has stored what it could.
        drop(ended);
        is_stopped
    }

    /// Prepares the session for a run that may follow one of another process. Returns whether that one
    /// has left something to do.
    async fn take_over(
        &self,
        scope: &Arc<Caller>,
        session: &AgentSession<{{ context }}>,
        resumed: bool,
    ) -> Result<bool> {
        // Another process may have saved the agent state since this one loaded it.
        match session.save().await {
            Ok(_) | Err(SessionError::Conflict { .. }) => drop(session.reload().await?),
            Err(error) => return Err(error),
        }
        session.resumed()?;
        let sealed = session.seal_calls().await?;
        if !resumed {
            return Ok(sealed > 0);
        }
        // What it was saying stays unfinished, and what it did not save is not known to the agent.
        let id = session.conversation_id();
        let mut left = self.conversations.unsettled_messages(scope, id).await?;
        for (message_id, delivery) in &mut left {
            let is_known = session.read(|state| state.messages.position(*message_id).is_some());
            *delivery = match delivery {
                Delivery::Draft => Delivery::Interrupted,
                _ if is_known => Delivery::Stored,
                _ => Delivery::Unknown,
            };
        }
        drop(self.conversations.settle_messages(scope, id, &left).await?);
        Ok(true)
    }

    /// Whether there is a message without an answer, or a decision that the agent has not seen.
    async fn has_news(&self, scope: &Arc<Caller>, session: &AgentSession<{{ context }}>) -> bool {
        if has_message(session) {
            return true;
        }
        let id = session.conversation_id();
        for call_id in open_calls(session) {
            let call = self.conversations.get_tool_call(scope, id, &call_id).await;
            if call.is_ok_and(|call| call.decision().is_some()) {
                return true;
            }
        }
        false
    }
}

/// Waits until another process has ended its run. Nothing if the session ends before.
async fn begin(
    session: &AgentSession<{{ context }}>,
    mut begun: BeginRun<RunGuard<{{ context }}>>,
) -> Option<RunGuard<{{ context }}>> {
    const PAUSE: Duration = Duration::from_secs(1);

    loop {
        match begun {
            BeginRun::Started(guard) => return Some(guard),
            BeginRun::Busy(_) => sleep(PAUSE).await,
        }
        begun = session.begin_run().await.ok()?;
    }
}

/// Whether the agent waits for a person.
pub(super) fn is_waiting(session: &AgentSession<{{ context }}>) -> bool {
    session.read(|state| state.interrupt_data.is_some()) || !open_calls(session).is_empty()
}

/// Whether the last message is one that nobody has answered.
pub(super) fn has_message(session: &AgentSession<{{ context }}>) -> bool {
    session.read(|state| state.messages.last().is_some_and(|message| message.role == Role::User))
}

/// The tool calls that wait for a person.
fn open_calls(session: &AgentSession<{{ context }}>) -> Vec<String> {
    session.read(|state| {
        let results = state.messages.iter().flat_map(|message| &message.tool_results);
        let open = results.filter(|result| result.is_interrupt);
        open.map(|result| result.tool_call_id.clone()).collect()
    })
}
