//! Sessions on an application's own persistence, which stores agent states only.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sagents::session::{AgentSession, AutoSave, Coordinator, OnConflict, SessionError, SessionEvent, SessionOptions};
use sagents::{
    AgentPersistence, Decision, Error, Expect, Lifecycle, LoadContext, Loaded, Message, Owner, OwnerScope,
    PersistContext, Point, Revision, State, ToolCall, ToolResult,
};
use serde_json::{Map, json};
use uuid::Uuid;

/// The error of an application.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("conflict")]
    Conflict(Revision),
    #[error("unavailable")]
    Unavailable,
    #[error("over quota")]
    OverQuota,
    #[error("gone")]
    Gone,
}

impl From<Refused> for Error {
    fn from(error: Refused) -> Self {
        match error {
            Refused::Conflict(current) => Self::Conflict { current },
            Refused::Unavailable => {
                Self::Host { status: 503, message: error.to_string(), source: Some(Box::new(error)) }
            }
            Refused::OverQuota => Self::Host { status: 402, message: error.to_string(), source: None },
            Refused::Gone => Self::NotFound,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Call {
    Save(Lifecycle),
    Interrupted(bool),
}

type States = HashMap<(Owner, Uuid), (State, Revision)>;

/// Clones share what is stored.
#[derive(Clone, Default)]
struct Memory {
    states: Arc<Mutex<States>>,
    calls: Arc<Mutex<Vec<Call>>>,
    write_ids: Arc<Mutex<Vec<Uuid>>>,
    /// The errors of the next saves.
    refusals: Arc<Mutex<VecDeque<Refused>>>,
}

impl Memory {
    fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    fn refuse(&self, refused: Refused) {
        self.refusals.lock().unwrap().push_back(refused);
    }

    fn stored(&self, id: Uuid) -> Vec<String> {
        let states = self.states.lock().unwrap();
        states.get(&(user(1), id)).map(|(state, _)| said(state)).unwrap_or_default()
    }

    fn save(&self, owner: &Owner, id: Uuid, state: &State, expect: Expect) -> Result<Revision, Refused> {
        let mut states = self.states.lock().unwrap();
        let key = (owner.clone(), id);
        let current = states.get(&key).map_or(Revision(0), |(_, revision)| *revision);
        if matches!(expect, Expect::Revision(expected) if expected != current) {
            return Err(Refused::Conflict(current));
        }
        let revision = Revision(current.0 + 1);
        states.insert(key, (state.clone(), revision));
        Ok(revision)
    }
}

impl AgentPersistence for Memory {
    type Scope = Owner;
    type Error = Refused;

    async fn persist_state(
        &self,
        owner: &Owner,
        state: &State,
        expect: Expect,
        context: &PersistContext,
    ) -> Result<Revision, Refused> {
        self.calls.lock().unwrap().push(Call::Save(context.lifecycle));
        self.write_ids.lock().unwrap().push(context.write_id);
        if let Some(refused) = self.refusals.lock().unwrap().pop_front() {
            return Err(refused);
        }
        self.save(owner, context.conversation_id, state, expect)
    }

    async fn load_state(&self, owner: &Owner, context: &LoadContext) -> Result<Loaded, Refused> {
        let states = self.states.lock().unwrap();
        Ok(match states.get(&(owner.clone(), context.conversation_id)) {
            Some((state, revision)) => Loaded::Saved { state: Box::new(state.clone()), revision: *revision },
            None => Loaded::Nothing,
        })
    }

    async fn set_interrupted(&self, _: &Owner, _: &LoadContext, interrupted: bool) -> Result<(), Refused> {
        self.calls.lock().unwrap().push(Call::Interrupted(interrupted));
        Ok(())
    }
}

fn user(id: i64) -> Owner {
    Owner::new("user", id)
}

fn said(state: &State) -> Vec<String> {
    let contents = state.messages.iter().map(|message| message.content.as_ref());
    contents.map(|content| content.map(sagents::Content::text).unwrap_or_default()).collect()
}

fn say(session: &AgentSession, text: &str) {
    session.change(|state| state.add_message(Message::user(text))).unwrap();
}

/// The agent state is saved only when it has to be.
fn by_hand() -> SessionOptions {
    let auto_save = AutoSave { interval: None, on_idle: false, on_interrupt: false, on_shutdown: false };
    SessionOptions { auto_save, ..SessionOptions::default() }
}

async fn start(memory: &Memory, options: SessionOptions, id: Uuid) -> AgentSession {
    let coordinator = Coordinator::with_persistence(memory.clone(), options);
    coordinator.start(&user(1), id).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_host_gets_saves_of_every_lifecycle() {
    type Report = fn(&AgentSession) -> Result<(), SessionError>;

    let (memory, id) = (Memory::default(), Uuid::now_v7());
    let session = start(&memory, SessionOptions::default(), id).await;

    say(&session, "wait");
    session.wait_run(json!({ "question": 1 })).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let calls = memory.calls();
    assert!(calls.contains(&Call::Interrupted(true)) && calls.contains(&Call::Save(Lifecycle::Interrupt)), "{calls:?}");
    assert_eq!(session.read(|state| state.interrupt_data.clone()), Some(json!({ "question": 1 })));

    session.continue_run().unwrap();
    session.save().await.unwrap();
    assert_eq!(memory.calls(), [Call::Interrupted(false)]);
    assert_eq!(session.read(|state| state.interrupt_data.clone()), None);

    let reports: [(Report, Lifecycle); 4] = [
        (AgentSession::complete_run, Lifecycle::Completion),
        (AgentSession::fail_run, Lifecycle::Error),
        (AgentSession::acknowledge_cancel, Lifecycle::Cancel),
        (|session| session.set_title("Plans"), Lifecycle::TitleGenerated),
    ];
    for (report, lifecycle) in reports {
        say(&session, lifecycle.as_str());
        report(&session).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(memory.calls(), [Call::Save(lifecycle)]);
    }
    assert_eq!(session.read(|state| state.metadata["conversation_title"].clone()), "Plans");

    say(&session, "request");
    session.save().await.unwrap();
    say(&session, "interval");
    tokio::time::sleep(Duration::from_secs(31)).await;
    say(&session, "shutdown");
    session.shutdown().await.unwrap();
    let saves = [Lifecycle::Request, Lifecycle::Interval, Lifecycle::Shutdown].map(Call::Save);
    assert_eq!(memory.calls(), saves);
    assert_eq!(memory.stored(id).last().unwrap(), "shutdown");

    let session = start(&memory, SessionOptions::default(), id).await;
    assert_eq!(session.read(said), memory.stored(id));
    assert!(session.is_saved());
}

#[tokio::test(start_paused = true)]
async fn calls_that_need_rows_say_that_a_host_has_none() {
    let (memory, id) = (Memory::default(), Uuid::now_v7());
    let coordinator = Coordinator::with_persistence(memory.clone(), by_hand());
    let session = coordinator.start(&user(1), id).await.unwrap();
    let message = || Message::user("hello");
    let results = [
        session.send_message(id, message()).await.map(drop),
        session.add_message(id, message()),
        session.save_draft(id, message()),
        session.display_message(id, message()),
        session.add_tool_result(ToolResult::new("call_1", "search", "found")),
        session.claim_tool_call("call_1").await.map(drop),
        session.complete_tool_call("call_1", Map::new()),
        session.fail_tool_call("call_1", Map::new()),
        session.cancel_tool_call("call_1"),
        session.cancel_unstarted_tool_call("call_1").await.map(drop),
        session.interrupt_tool_call("call_1", json!({})),
        session.decide_tool_call("call_1", Decision::Approve).await.map(drop),
        session.cancel_pending_interrupts().await,
        session.clean_stale_interrupts(|_| false).await,
        session.begin_run().await.map(drop),
        session.request_cancel().await.map(drop),
        session.rewind(Point::End).await.map(drop),
        coordinator.delete_conversation(&user(1), id).await,
    ];
    for (index, result) in results.into_iter().enumerate() {
        let Err(error @ SessionError::StateOnly) = result else { panic!("{index}: {result:?}") };
        assert_eq!(error.to_string(), "the persistence of this session stores agent states only");
    }
    assert_eq!(session.read(said), [""; 0]);
    assert!(session.is_saved());
    assert_eq!(coordinator.stats().failures, 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_does_not_complete_while_calls_are_undecided() {
    let (memory, id) = (Memory::default(), Uuid::now_v7());
    let session = start(&memory, by_hand(), id).await;
    let calls = ["call_1", "call_2", "call_3"].map(|id| ToolCall::new(id, "pay", json!({})));
    let waits = |id: &str| ToolResult::interrupt(id, "pay", "Waiting for a decision.", json!({}));
    session
        .change(|state| {
            state.add_message(Message::tool_calls(calls));
            state.add_message(Message::tool_results([waits("call_1"), ToolResult::new("call_2", "pay", "paid")]));
            state.add_message(Message::tool_results([waits("call_3")]));
        })
        .unwrap();
    let undecided = |result| match result {
        Err(SessionError::Undecided { tool_call_ids }) => tool_call_ids,
        other => panic!("{other:?}"),
    };
    assert_eq!(undecided(session.complete_run()), ["call_1", "call_3"]);
    session
        .change(|state| state.replace_newest_tool_result("call_1", &ToolResult::new("call_1", "pay", "paid")))
        .unwrap();
    assert_eq!(undecided(session.complete_run()), ["call_3"]);
    assert_eq!(session.complete_run().unwrap_err().to_string(), "tool calls are undecided: call_3");
    // It fails, waits and is cancelled as it likes.
    session.wait_run(json!(null)).unwrap();
    assert_eq!(session.read(|state| state.interrupt_data.clone()), Some(json!({})));
    session.fail_run().unwrap();
    session.acknowledge_cancel().unwrap();
    session.change(State::cancel_pending_interrupts).unwrap();
    session.complete_run().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_conflict_of_a_host_is_reported_or_reloaded() {
    for on_conflict in [OnConflict::Report, OnConflict::Reload] {
        let (memory, id) = (Memory::default(), Uuid::now_v7());
        let session = start(&memory, SessionOptions { on_conflict, ..by_hand() }, id).await;
        say(&session, "first");
        session.save().await.unwrap();
        let mut other = session.export_state();
        other.add_message(Message::user("theirs"));
        memory.save(&user(1), id, &other, Expect::Any).unwrap();
        say(&session, "ours");
        let failed = session.save().await.unwrap_err();
        assert!(matches!(failed, SessionError::Conflict { current: Revision(2) }), "{failed}");
        if on_conflict == OnConflict::Report {
            assert_eq!(session.read(said), ["first", "ours"]);
            let lost = session.reload().await.unwrap().unwrap();
            assert_eq!(said(&lost), ["first", "ours"]);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(session.read(said), ["first", "theirs"]);
        say(&session, "again");
        assert_eq!(session.save().await.unwrap(), Revision(3));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_host_is_tried_again_and_a_refusal_is_not() {
    let (memory, id) = (Memory::default(), Uuid::now_v7());
    let session = start(&memory, by_hand(), id).await;
    let mut events = session.subscribe();
    memory.refuse(Refused::Unavailable);
    memory.refuse(Refused::Unavailable);
    say(&session, "one");
    assert!(matches!(session.save().await, Err(SessionError::Storage(_))));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(memory.stored(id), ["one"]);
    let write_ids = memory.write_ids.lock().unwrap().clone();
    assert_eq!(write_ids, [write_ids[0]; 3], "a retry has the id of the first try");

    memory.refuse(Refused::OverQuota);
    say(&session, "two");
    let refused = session.save().await.unwrap_err();
    assert!(matches!(&refused, SessionError::Storage(error) if error.status_code() == 402), "{refused}");
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(memory.stored(id), ["one"]);
    say(&session, "three");
    session.save().await.unwrap();
    assert_eq!(memory.stored(id), ["one", "two", "three"]);
    let mut retries = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let SessionEvent::Failed { retry_in, .. } = &*event {
            retries.push(retry_in.is_some());
        }
    }
    assert_eq!(retries, [true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_when_the_host_no_longer_has_its_conversation() {
    let (memory, id) = (Memory::default(), Uuid::now_v7());
    let session = start(&memory, by_hand(), id).await;
    memory.refuse(Refused::Gone);
    say(&session, "too late");
    assert!(session.save().await.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(matches!(session.complete_run(), Err(SessionError::Ended)));
}

#[tokio::test(start_paused = true)]
async fn a_session_belongs_to_the_owner_of_the_scope() {
    struct Guest;

    impl OwnerScope for Guest {
        fn owner(&self) -> sagents::Result<Owner> {
            Err(Error::NoOwner)
        }
    }

    let (memory, id) = (Memory::default(), Uuid::now_v7());
    let coordinator = Coordinator::with_persistence(memory.clone(), by_hand());
    let session = coordinator.start(&user(1), id).await.unwrap();
    say(&session, "mine");
    session.save().await.unwrap();
    assert!(coordinator.find(&user(2), id).unwrap().is_none());
    let same = coordinator.start(&Arc::new(user(1)), id).await.unwrap();
    assert_eq!(same.read(said), ["mine"]);
    let other = coordinator.start(&user(2), id).await.unwrap();
    assert_eq!(other.read(said), [""; 0]);
    assert_eq!(coordinator.stats().sessions, 2);
    let refused = coordinator.start(&Guest, id).await.unwrap_err();
    assert!(matches!(&refused, SessionError::Storage(error) if matches!(**error, Error::NoOwner)), "{refused}");
    let shutdown = coordinator.shutdown(Duration::from_secs(1)).await;
    assert_eq!((shutdown.saved, shutdown.unsaved.len()), (2, 0));
}
