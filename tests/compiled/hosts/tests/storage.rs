//! A storage for sessions that injects faults into the calls of a real context. Where the clock of a test is paused, it
//! stays paused while the database works.

#![allow(dead_code, reason = "each test needs a part of it")]

use std::collections::VecDeque;
use std::future::Future;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use matrix::conversations::{
    Conversations, DisplayMessage, Error, MessagePage, NewConversation, connect,
};
use matrix::sagents::session::{AgentSession, Coordinator, SessionOptions};
use matrix::sagents::{
    AgentPersistence, BeginRun, Claim, Cut, Decided, Decision, Delivery, Expect, Failure,
    Lifecycle, LoadContext, Loaded, Message, PersistContext, Point, Revision, Run, RunSignal,
    RunStatus, SessionPersistence, State, StoredCall, ToolResult, ToolStatus,
};
use matrix::scopes::{Scope, User};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::database;

/// A fault of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call does not reach the database.
    Before,
    /// The database executes the call, and the reply is lost.
    After,
    /// The database executes the call and never replies.
    Silence,
    /// The database executes the call, and replies after a second.
    Late,
}

/// A save that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Save {
    pub lifecycle: Lifecycle,
    pub write_id: Uuid,
    pub expect: Expect,
    pub said: Vec<String>,
    /// What the session received.
    pub reply: Option<Revision>,
}

/// Clones share the pool and the record.
#[derive(Clone)]
pub struct Storage {
    pub layer: Conversations,
    pub record: Arc<Record>,
}

/// The saves that happened, and the faults to come. It outlives a simulated process.
#[derive(Default)]
pub struct Record {
    faults: Mutex<VecDeque<Option<Fault>>>,
    saves: Mutex<Vec<Save>>,
    loads: AtomicUsize,
    rewinds: AtomicUsize,
    /// The saves in progress, and the most at one time.
    saving: AtomicUsize,
    most: AtomicUsize,
    load_faults: Mutex<VecDeque<Option<Fault>>>,
    /// Held by a test to block saves, or loads.
    gate: tokio::sync::RwLock<()>,
    load_gate: tokio::sync::RwLock<()>,
}

impl Record {
    /// Queues faults for the next calls that write, one per call.
    pub fn fail(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        locked(&self.faults).extend(faults);
    }

    pub fn fail_loads(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        locked(&self.load_faults).extend(faults);
    }

    pub fn forget_faults(&self) {
        locked(&self.faults).clear();
    }

    pub fn saves(&self) -> Vec<Save> {
        locked(&self.saves).clone()
    }

    /// The lifecycle of each save.
    pub fn lifecycles(&self) -> Vec<Lifecycle> {
        let saves = self.saves();
        saves.iter().map(|save| save.lifecycle).collect()
    }

    pub fn loads(&self) -> usize {
        self.loads.load(Ordering::SeqCst)
    }

    /// The rewinds that the database executed, with or without a reply.
    pub fn rewinds(&self) -> usize {
        self.rewinds.load(Ordering::SeqCst)
    }

    pub fn most_saves_at_once(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    /// Blocks saves until the guard is dropped.
    pub async fn hold_saves(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.gate.write().await
    }

    pub async fn hold_loads(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.load_gate.write().await
    }

    async fn write<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let fault = locked(&self.faults).pop_front().flatten();
        self.call(call, fault).await
    }

    /// Makes a call with a fault.
    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
        fault: Option<Fault>,
    ) -> Result<T, Error> {
        if fault == Some(Fault::Before) {
            return Err(failed());
        }
        let result = frozen(call).await;
        match fault {
            Some(Fault::After) => Err(failed()),
            Some(Fault::Silence) => std::future::pending().await,
            Some(Fault::Late) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                result
            }
            Some(Fault::Before) | None => result,
        }
    }
}

fn failed() -> Error {
    Error::Database(sqlx::Error::PoolTimedOut)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A paused tokio clock jumps ahead whenever all tasks wait, also if they wait for a database. It does not while a
/// blocking task runs.
pub async fn frozen<T>(call: impl Future<Output = T>) -> T {
    let (done, wait) = mpsc::channel::<()>();
    let block = tokio::task::spawn_blocking(move || wait.recv());
    let result = call.await;
    drop(done);
    let _ = block.await;
    result
}

pub fn said(state: &State) -> Vec<String> {
    let texts = state.messages.iter().map(|message| match &message.content {
        Some(content) => content.text(),
        None => String::new(),
    });
    texts.collect()
}

impl AgentPersistence for Storage {
    type Scope = Scope;
    type Error = Error;

    async fn persist_state(
        &self,
        scope: &Scope,
        state: &State,
        expect: Expect,
        context: &PersistContext,
    ) -> Result<Revision, Error> {
        let record = &self.record;
        let in_progress = InProgress::begin(record);
        let open = record.gate.read().await;
        let call = self.layer.persist_state(scope, state, expect, context);
        let save = |reply| Save {
            lifecycle: context.lifecycle,
            write_id: context.write_id,
            expect,
            said: said(state),
            reply,
        };
        // Recorded before the call: a process may crash before the reply.
        let index = {
            let mut saves = locked(&record.saves);
            saves.push(save(None));
            saves.len() - 1
        };
        let result = record.write(call).await;
        if let Ok(revision) = result {
            locked(&record.saves)[index] = save(Some(revision));
        }
        drop((open, in_progress));
        result
    }

    async fn load_state(&self, scope: &Scope, context: &LoadContext) -> Result<Loaded, Error> {
        let record = &self.record;
        record.loads.fetch_add(1, Ordering::SeqCst);
        let open = record.load_gate.read().await;
        let fault = locked(&record.load_faults).pop_front().flatten();
        let call = self.layer.load_state(scope, context);
        let result = record.call(call, fault).await;
        drop(open);
        result
    }

    async fn set_interrupted(
        &self,
        scope: &Scope,
        context: &LoadContext,
        interrupted: bool,
    ) -> Result<(), Error> {
        let id = context.conversation_id;
        let call = self.layer.set_interrupted(scope, id, interrupted);
        self.record.write(call).await?;
        Ok(())
    }
}

impl SessionPersistence for Storage {
    type Owner = <Conversations as SessionPersistence>::Owner;
    type DisplayMessage = DisplayMessage;

    fn owner(&self, scope: &Scope) -> Result<Self::Owner, Error> {
        self.layer.owner(scope)
    }

    async fn save_message(
        &self,
        scope: &Scope,
        context: &LoadContext,
        id: Uuid,
        message: &Message,
        delivery: Delivery,
    ) -> Result<Vec<DisplayMessage>, Error> {
        let layer = &self.layer;
        let call = SessionPersistence::save_message(layer, scope, context, id, message, delivery);
        self.record.write(call).await
    }

    async fn unsettled_messages(
        &self,
        scope: &Scope,
        context: &LoadContext,
    ) -> Result<Vec<(Uuid, Delivery)>, Error> {
        frozen(SessionPersistence::unsettled_messages(
            &self.layer,
            scope,
            context,
        ))
        .await
    }

    async fn settle_messages(
        &self,
        scope: &Scope,
        context: &LoadContext,
        messages: &[(Uuid, Delivery)],
    ) -> Result<Vec<DisplayMessage>, Error> {
        let layer = &self.layer;
        let call = SessionPersistence::settle_messages(layer, scope, context, messages);
        self.record.write(call).await
    }

    async fn change_tool_call(
        &self,
        scope: &Scope,
        context: &LoadContext,
        call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage, Error> {
        let layer = &self.layer;
        let call =
            SessionPersistence::change_tool_call(layer, scope, context, call_id, status, metadata);
        self.record.write(call).await
    }

    async fn claim_tool_call(
        &self,
        scope: &Scope,
        context: &LoadContext,
        call_id: &str,
        claim: Uuid,
    ) -> Result<Claim<DisplayMessage>, Error> {
        let layer = &self.layer;
        let call = SessionPersistence::claim_tool_call(layer, scope, context, call_id, claim);
        self.record.write(call).await
    }

    async fn decide_tool_call(
        &self,
        scope: &Scope,
        context: &LoadContext,
        call_id: &str,
        decision: &Decision,
        claim: Uuid,
    ) -> Result<Decided<DisplayMessage>, Error> {
        let layer = &self.layer;
        let call =
            SessionPersistence::decide_tool_call(layer, scope, context, call_id, decision, claim);
        self.record.write(call).await
    }

    async fn cancel_unstarted_tool_call(
        &self,
        scope: &Scope,
        context: &LoadContext,
        call_id: &str,
        only_undecided: bool,
    ) -> Result<Option<(DisplayMessage, bool)>, Error> {
        let call = SessionPersistence::cancel_unstarted_tool_call(
            &self.layer,
            scope,
            context,
            call_id,
            only_undecided,
        );
        self.record.write(call).await
    }

    async fn seal_tool_call(
        &self,
        scope: &Scope,
        context: &LoadContext,
        call_id: &str,
    ) -> Result<Option<StoredCall>, Error> {
        let layer = &self.layer;
        let call = SessionPersistence::seal_tool_call(layer, scope, context, call_id);
        self.record.write(call).await
    }

    async fn resolve_tool_result(
        &self,
        scope: &Scope,
        context: &LoadContext,
        result: &ToolResult,
    ) -> Result<DisplayMessage, Error> {
        let layer = &self.layer;
        let call = SessionPersistence::resolve_tool_result(layer, scope, context, result);
        self.record.write(call).await
    }

    async fn begin_run(
        &self,
        scope: &Scope,
        context: &LoadContext,
        id: Uuid,
        holder: &str,
        lease: Duration,
    ) -> Result<BeginRun, Error> {
        let layer = &self.layer;
        let call = SessionPersistence::begin_run(layer, scope, context, id, holder, lease);
        self.record.write(call).await
    }

    async fn renew_run(
        &self,
        scope: &Scope,
        context: &LoadContext,
        id: Uuid,
    ) -> Result<RunSignal, Error> {
        let call = SessionPersistence::renew_run(&self.layer, scope, context, id);
        self.record.write(call).await
    }

    async fn wait_run(
        &self,
        scope: &Scope,
        context: &LoadContext,
        id: Uuid,
        waiting_for: &Value,
    ) -> Result<RunSignal, Error> {
        let call = SessionPersistence::wait_run(&self.layer, scope, context, id, waiting_for);
        self.record.write(call).await
    }

    async fn end_run(
        &self,
        scope: &Scope,
        context: &LoadContext,
        id: Uuid,
        status: RunStatus,
    ) -> Result<(), Error> {
        let call = SessionPersistence::end_run(&self.layer, scope, context, id, status);
        self.record.write(call).await
    }

    async fn request_cancel(&self, scope: &Scope, context: &LoadContext) -> Result<bool, Error> {
        let call = SessionPersistence::request_cancel(&self.layer, scope, context);
        self.record.write(call).await
    }

    async fn get_run(&self, scope: &Scope, context: &LoadContext) -> Result<Option<Run>, Error> {
        frozen(SessionPersistence::get_run(&self.layer, scope, context)).await
    }

    async fn rewind(&self, scope: &Scope, context: &LoadContext, to: Point) -> Result<Cut, Error> {
        let call = async {
            let cut = self.layer.rewind(scope, context, to).await?;
            self.record.rewinds.fetch_add(1, Ordering::SeqCst);
            Ok(cut)
        };
        self.record.write(call).await
    }

    async fn delete_conversation(&self, scope: &Scope, context: &LoadContext) -> Result<(), Error> {
        let call = SessionPersistence::delete_conversation(&self.layer, scope, context);
        self.record.write(call).await
    }

    async fn set_title(
        &self,
        scope: &Scope,
        context: &LoadContext,
        title: &str,
    ) -> Result<(), Error> {
        self.record
            .write(self.layer.set_title(scope, context, title))
            .await
    }

    fn failure(error: &Error) -> Failure {
        Conversations::failure(error)
    }

    fn is_missing(error: &Error) -> bool {
        Conversations::is_missing(error)
    }
}

/// Counts a save while it is in progress.
struct InProgress<'a>(&'a Record);

impl<'a> InProgress<'a> {
    fn begin(record: &'a Record) -> Self {
        let now = record.saving.fetch_add(1, Ordering::SeqCst) + 1;
        record.most.fetch_max(now, Ordering::SeqCst);
        Self(record)
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.0.saving.fetch_sub(1, Ordering::SeqCst);
    }
}

pub fn scope() -> Scope {
    user(1)
}

pub fn user(id: i64) -> Scope {
    let name = "somebody".to_owned();
    Scope {
        user: User { id, name },
    }
}

/// A conversation as one process sees it.
pub struct Talk {
    pub coordinator: Coordinator<Storage>,
    pub layer: Conversations,
    pub record: Arc<Record>,
    pub id: Uuid,
    pub database: Arc<database::Database>,
    options: SessionOptions,
    pool: database::Pool,
}

impl Talk {
    pub async fn new(options: SessionOptions) -> Self {
        let insert = "INSERT INTO users (id, name) VALUES (1, 'a'), (2, 'b')";
        let database = frozen(database::Database::migrated(insert)).await;
        Self::on(Arc::new(database), options).await
    }

    /// Another conversation on an existing database.
    pub async fn on(database: Arc<database::Database>, options: SessionOptions) -> Self {
        frozen(async {
            let pool = connect(&database.url()).await.unwrap();
            let layer = Conversations::new(pool.clone());
            let new = NewConversation::new();
            let id = layer.create_conversation(&scope(), new).await.unwrap().id;
            let record = Arc::new(Record::default());
            let storage = Storage {
                layer: layer.clone(),
                record: Arc::clone(&record),
            };
            Self {
                coordinator: Coordinator::with_options(storage, options.clone()),
                layer,
                record,
                id,
                database,
                options,
                pool,
            }
        })
        .await
    }

    /// The conversation in a process that continues after this one.
    pub async fn reconnected(&self) -> Self {
        let pool = frozen(connect(&self.database.url())).await.unwrap();
        let layer = Conversations::new(pool.clone());
        Self {
            coordinator: self.coordinator_of(&layer),
            layer,
            record: Arc::clone(&self.record),
            id: self.id,
            database: Arc::clone(&self.database),
            options: self.options.clone(),
            pool,
        }
    }

    /// Another process that runs at the same time, on the same pool.
    pub fn other_process(&self) -> Coordinator<Storage> {
        self.coordinator_of(&self.layer)
    }

    fn coordinator_of(&self, layer: &Conversations) -> Coordinator<Storage> {
        let storage = Storage {
            layer: layer.clone(),
            record: Arc::clone(&self.record),
        };
        Coordinator::with_options(storage, self.options.clone())
    }

    pub async fn start(&self) -> AgentSession<Storage> {
        self.coordinator.start(&scope(), self.id).await.unwrap()
    }

    /// The session of another conversation.
    pub async fn start_another(&self) -> AgentSession<Storage> {
        let (scope, new) = (scope(), NewConversation::new());
        let created = frozen(self.layer.create_conversation(&scope, new)).await;
        let id = created.unwrap().id;
        self.coordinator.start(&scope, id).await.unwrap()
    }

    /// The texts of the stored state, and its revision.
    pub async fn stored(&self) -> (Vec<String>, Revision) {
        match frozen(self.layer.load_agent_state(&scope(), self.id)).await {
            Ok(saved) => (said(&saved.state), saved.revision),
            Err(Error::NotFound) => (Vec::new(), Revision(0)),
            Err(error) => panic!("{error}"),
        }
    }

    /// The display messages.
    pub async fn shown(&self) -> Vec<String> {
        let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
        let scope = scope();
        let page = self.layer.load_display_messages(&scope, self.id, page);
        let messages = frozen(page).await.unwrap().items;
        messages
            .into_iter()
            .map(|message| message.content)
            .collect()
    }

    /// Overwrites the data of the stored state.
    pub async fn store(&self, data: &str) {
        frozen(async {
            let pool = connect(&self.database.url()).await.unwrap();
            let store = sqlx::query(database::STORE).bind(data);
            store.execute(&pool).await.unwrap();
        })
        .await;
    }

    /// The application closes its pool.
    pub async fn close(&self) {
        frozen(self.pool.close()).await;
    }

    /// Another process adds a message and saves.
    pub async fn other_process_says(&self, text: &str) -> Revision {
        frozen(async {
            let scope = scope();
            loop {
                let loaded = self.layer.load_agent_state(&scope, self.id).await;
                let (mut state, expect) = match loaded {
                    Ok(saved) => (saved.state, Expect::Revision(saved.revision)),
                    Err(_) => (State::new(), Expect::NOTHING),
                };
                state.add_message(Message::user(text));
                let save = self.layer.save_agent_state(&scope, self.id, &state, expect);
                match save.await {
                    Err(Error::Conflict { .. }) => {}
                    saved => return saved.unwrap(),
                }
            }
        })
        .await
    }
}

pub fn say(session: &AgentSession<Storage>, text: &str) {
    let message = Message::user(text);
    session.change(|state| state.add_message(message)).unwrap();
}

/// Whether a test runs in a process of its own. If it does not, it is run in one.
pub fn alone(module: &str, name: &str) -> bool {
    const ALONE: &str = "ALONE";

    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let (_, module) = module.split_once("::").unwrap();
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{name}"), "--nocapture"])
        .env(ALONE, "yes")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{printed}");
    let printed = String::from_utf8_lossy(&run.stdout);
    assert!(printed.contains("1 passed"), "{printed}");
    false
}
