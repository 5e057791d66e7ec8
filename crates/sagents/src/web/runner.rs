//! Starts the agent, and ends its runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::agent::{Agent, AgentError, AgentRun, Outcome};
use super::{Backend, BoxFuture};
use crate::session::{AgentSession, RunGuard, SessionError};
use crate::{BeginRun, ClaimedRun, Delivery, Message, Owner, OwnerScope, Role, Run, RunStatus, State};

type Result<T> = std::result::Result<T, SessionError>;
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
    /// There's a message without an answer, or a decision, unless the agent has seen it already.
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

    /// Waits a few seconds until the agent doesn't work on a conversation in this process. Returns whether that's so.
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
    /// `None` if it works on the conversation already.
    fn take(runner: &Arc<Runner>, key: &Key) -> Option<Self> {
        let mut working = runner.working();
        if let Some(work) = working.get_mut(key) {
            work.is_asked = true;
            return None;
        }
        drop(working.insert(key.clone(), Work::default()));
        Some(Self { runner: Arc::clone(runner), key: key.clone(), is_left: false })
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
        // After it's left, somebody else may have taken it.
        if !self.is_left {
            drop(self.runner.working().remove(&self.key));
        }
    }
}

impl Backend {
    /// Starts the agent in the background, unless it works on the conversation already. If that's in another process,
    /// which may end before it sees what's new, the agent is started afterwards.
    pub(super) async fn start(
        &self,
        scope: &Arc<dyn OwnerScope>,
        session: &AgentSession,
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
        self.spawn(place, Arc::clone(scope), session.clone(), begun, reason);
        Ok(())
    }

    /// Works in the background, after a run of another process has ended.
    fn spawn(
        &self,
        place: Place,
        scope: Arc<dyn OwnerScope>,
        session: AgentSession,
        begun: BeginRun<RunGuard>,
        reason: Reason,
    ) {
        let web = self.clone();
        let work = async move {
            if let Some(guard) = begin(&session, begun).await {
                web.work(place, &scope, &session, guard, reason).await;
            }
        };
        drop(tokio::spawn(work));
    }

    /// Claims abandoned runs of all owners, and starts the agent for them. Returns how many it claimed.
    pub(super) async fn resume_abandoned_runs(&self, limit: u32) -> Result<usize> {
        let options = self.coordinator.options();
        let claimed = self.store.claim_abandoned_runs(&options.run_holder, options.run_lease, limit).await?;
        let count = claimed.len();
        for ClaimedRun { owner, run } in claimed {
            let session = self.coordinator.start(&owner, run.conversation_id).await?;
            let Some(place) = Place::take(&self.runner, &(owner.clone(), run.conversation_id)) else { continue };
            let begun = session.begin_claimed_run(&run).await?;
            self.spawn(place, Arc::new(owner), session, begun, Reason::Asked);
        }
        Ok(count)
    }

    /// Starts the agent if a process ended in the middle of a run.
    pub(super) async fn resume(&self, scope: &Arc<dyn OwnerScope>, session: &AgentSession, run: &Run) -> Result<()> {
        let lease = self.coordinator.options().run_lease;
        let is_left = match run.status {
            RunStatus::Running => run.is_abandoned(lease),
            // A process that shuts down lets its run wait for nothing.
            RunStatus::Waiting => run.waiting_for.as_ref().is_none_or(Value::is_null),
            RunStatus::Finished | RunStatus::Failed | RunStatus::Cancelled => false,
        };
        if is_left {
            self.start(scope, session, Reason::Asked).await?;
        }
        Ok(())
    }

    /// Runs the agent, and again while there's something new.
    async fn work(
        &self,
        mut place: Place,
        scope: &Arc<dyn OwnerScope>,
        session: &AgentSession,
        mut guard: RunGuard,
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
    async fn run(&self, scope: &Arc<dyn OwnerScope>, session: &AgentSession, guard: RunGuard, reason: Reason) -> bool {
        let (token, run_id) = (guard.token().clone(), guard.run_id());
        let run = AgentRun {
            store: self.store.clone(),
            scope: Arc::clone(scope),
            session: session.clone(),
            token: token.clone(),
            run_id,
            resumed: guard.is_resumed(),
        };
        let agent = async {
            if !self.prepare(scope, session, &guard, reason).await? {
                let waiting_for = session.read(|state| state.interrupt_data.clone());
                return Ok(waiting_for.map_or(Outcome::Finished, Outcome::Waiting));
            }
            session.continue_run()?;
            // A task, so that a panic is a failure of the agent.
            tokio::spawn((self.runner.agent)(run)).await?
        };
        let ended = agent.await;
        if !matches!(ended, Ok(Outcome::Finished | Outcome::Waiting(_))) {
            // The tools of an agent that was stopped or failed don't run any more.
            drop(session.seal_tool_calls(run_id).await);
        }
        let (is_stopped, ended) = match ended {
            Ok(Outcome::Finished) => (false, complete(session)),
            Ok(Outcome::Waiting(data)) => (false, session.wait_run(data)),
            Ok(Outcome::Cancelled) => (true, session.acknowledge_cancel()),
            Err(_) if token.is_cancelled() => (true, session.acknowledge_cancel()),
            Ok(Outcome::Failed(text)) => {
                drop(session.display_message(Uuid::now_v7(), Message::system(text)));
                (true, session.fail_run())
            }
            Err(error) => {
                let source = &*error as &dyn std::error::Error;
                tracing::error!(target: "sagents", error = source, id = %session.conversation_id(), "the agent failed");
                let notice = Message::system("The agent failed. Try again.");
                drop(session.display_message(Uuid::now_v7(), notice));
                (true, session.fail_run())
            }
        };
        // A session that has ended has stored everything it could.
        drop(ended);
        is_stopped
    }

    /// Prepares the session for a run, which may follow one of another process. Returns whether there's something to
    /// do.
    async fn prepare(
        &self,
        scope: &Arc<dyn OwnerScope>,
        session: &AgentSession,
        guard: &RunGuard,
        reason: Reason,
    ) -> std::result::Result<bool, AgentError> {
        if guard.is_resumed() {
            self.settle(scope, session).await?;
            return Ok(true);
        }
        let has_sealed = !guard.sealed_tool_calls().is_empty();
        Ok(reason == Reason::Asked || has_sealed || self.has_news(scope, session).await)
    }

    /// The answer of the run before stays unfinished, and the agent doesn't know the messages that run didn't save.
    async fn settle(&self, scope: &Arc<dyn OwnerScope>, session: &AgentSession) -> std::result::Result<(), AgentError> {
        let id = session.conversation_id();
        let mut left = self.store.unsettled_messages(scope, id).await?;
        for (message_id, delivery) in &mut left {
            let is_known = session.read(|state| state.messages.position(*message_id).is_some());
            *delivery = match delivery {
                Delivery::Draft => Delivery::Interrupted,
                _ if is_known => Delivery::Stored,
                _ => Delivery::Unknown,
            };
        }
        drop(self.store.settle_messages(scope, id, &left).await?);
        Ok(())
    }

    /// Whether there's a message without an answer, or a decision that the agent hasn't seen.
    async fn has_news(&self, scope: &Arc<dyn OwnerScope>, session: &AgentSession) -> bool {
        if has_message(session) {
            return true;
        }
        let id = session.conversation_id();
        for tool_call_id in session.read(State::undecided_tool_calls) {
            let call = self.store.get_tool_call(scope, id, &tool_call_id).await;
            if call.is_ok_and(|call| call.decision().is_some()) {
                return true;
            }
        }
        false
    }
}

/// Ends the run as complete, or lets it wait if tool calls are undecided.
fn complete(session: &AgentSession) -> Result<()> {
    match session.complete_run() {
        Err(SessionError::Undecided { tool_call_ids }) => session.wait_run(json!({ "tool_call_ids": tool_call_ids })),
        ended => ended,
    }
}

/// Waits until another process has ended its run. `None` if the session ends before.
async fn begin(session: &AgentSession, mut begun: BeginRun<RunGuard>) -> Option<RunGuard> {
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
pub(super) fn is_waiting(session: &AgentSession) -> bool {
    session.read(|state| state.interrupt_data.is_some() || !state.undecided_tool_calls().is_empty())
}

/// Whether nobody has answered the last message.
pub(super) fn has_message(session: &AgentSession) -> bool {
    session.read(|state| state.messages.last().is_some_and(|message| message.role == Role::User))
}
