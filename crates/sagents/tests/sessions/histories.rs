//! A property of sessions: after any history of changes, turns, failures, other writers, crashes and restarts, the stored
//! state is the newest one that was acknowledged, display and state agree, and no tool runs twice. Tokio's clock is paused.

mod steps;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sagents::session::{AgentSession, OnConflict, RunGuard, SessionError, SessionOptions};
use sagents::{
    BeginRun, Claim, ContentType, Decided, Decision, Delivery, DisplayMessage, Error, Expect, Fork, Forked, Message,
    MessagePage, Point, Revision, State, ToolCall, ToolResult,
};
use serde_json::json;
use tokio::runtime::Runtime;
use uuid::Uuid;

use self::steps::{Step, step};
use crate::process;
use crate::storage::{self, Talk, add, new_database, said, say, scope};
use crate::support::context::Conversations;
use crate::support::{Kind, TABLES, TestDatabase};

mod sqlite {
    #[test]
    fn the_stored_state_is_the_newest_that_was_acknowledged() {
        super::the_stored_state_is_the_newest_that_was_acknowledged(crate::support::Kind::Sqlite);
    }
}

mod postgres {
    #[test]
    fn the_stored_state_is_the_newest_that_was_acknowledged() {
        super::the_stored_state_is_the_newest_that_was_acknowledged(crate::support::Kind::Postgres);
    }
}

fn the_stored_state_is_the_newest_that_was_acknowledged(kind: Kind) {
    let database = process().block_on(storage::frozen(new_database(kind)));
    let reader = Arc::new(Reader::new(&database));
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(60) });
    let history = proptest::collection::vec(step(), 1..60);
    let on_conflict = prop_oneof![Just(OnConflict::Report), Just(OnConflict::Reload)];
    let outcome = runner.run(&(history, on_conflict), |(history, on_conflict)| {
        let options = SessionOptions {
            on_conflict,
            // A run of a process that crashed is abandoned at once.
            run_lease: Duration::ZERO,
            ..SessionOptions::default()
        };
        let mut model = Model::new(Arc::clone(&database), Arc::clone(&reader), options);
        for life in history.split_inclusive(|step| matches!(step, Step::Crashed)) {
            model.live(life);
        }
        model.end();
        Ok(())
    });
    outcome.unwrap();
}

/// A process that only reads what the others have stored.
struct Reader {
    process: Runtime,
    layer: Conversations,
}

impl Reader {
    fn new(database: &TestDatabase) -> Self {
        let process = process();
        let layer = process.block_on(storage::frozen(database.connect(&TABLES)));
        Self { process, layer }
    }
}

/// What must be true after every history.
struct Model {
    talk: Talk,
    reader: Arc<Reader>,
    /// The numbers that were used.
    numbers: usize,
    /// What other processes saved.
    others: Vec<(Revision, Vec<String>)>,
    /// What the last rewind left.
    rewound: (Revision, Vec<String>),
    /// The messages that were added or sent, those that were acknowledged, and those that were refused.
    added: HashSet<Uuid>,
    /// Messages whose send returned an error: if they are stored all the same, they are shown later.
    late: HashSet<Uuid>,
    acknowledged: Vec<Uuid>,
    refused: Vec<Uuid>,
    /// The last tool call, who may run each one, and what was decided.
    call: String,
    claimed: Vec<String>,
    decided: HashMap<String, Decision>,
    run: Option<RunGuard>,
}

impl Model {
    fn new(database: Arc<TestDatabase>, reader: Arc<Reader>, options: SessionOptions) -> Self {
        let talk = process().block_on(Talk::on(database, options));
        Self {
            talk,
            reader,
            numbers: 0,
            others: Vec::new(),
            rewound: (Revision(0), Vec::new()),
            added: HashSet::new(),
            late: HashSet::new(),
            acknowledged: Vec::new(),
            refused: Vec::new(),
            call: String::new(),
            claimed: Vec::new(),
            decided: HashMap::new(),
            run: None,
        }
    }

    /// The life of one process, until it crashes or the history is over.
    fn live(&mut self, life: &[Step]) {
        let process = process();
        let session = process.block_on(async {
            self.connect().await;
            let mut session = self.talk.start().await;
            for step in life {
                session = self.happen(session, step).await;
            }
            session
        });
        // The handles are dropped after the runtime, as in a crash.
        drop(process);
        drop((session, self.run.take()));
        self.check();
    }

    /// In the end, without further faults, the session can store its state.
    fn end(mut self) {
        self.talk.record.forget();
        process().block_on(async {
            self.connect().await;
            loop {
                let session = self.talk.start().await;
                self.say(&session);
                if session.save().await.is_err() {
                    session.reload().await.unwrap();
                }
                let known = session.read(said);
                let ended = session.shutdown().await;
                let (stored, _) = self.talk.stored().await;
                if ended.is_ok() && stored == known {
                    break;
                }
                // A save that a crashed process had sent came in between.
                assert!(self.talk.coordinator.stats().conflicts > 0);
                self.connect().await;
            }
        });
        self.check();
        self.check_turns();
    }

    async fn happen(&mut self, session: AgentSession, step: &Step) -> AgentSession {
        match step {
            Step::Said => self.say(&session),
            Step::Displayed => {
                let message = Message::user(self.next_number());
                self.added.insert(add(&session, message));
            }
            Step::Completed => {
                let completed = session.complete_run();
                assert!(matches!(completed, Ok(()) | Err(SessionError::Undecided { .. })), "{completed:?}");
            }
            Step::Interrupted => session.wait_run(json!(1)).unwrap(),
            Step::Titled => session.set_title("Plans").unwrap(),
            Step::Saved => self.save(&session).await,
            Step::Reloaded => {
                session.reload().await.unwrap();
            }
            Step::Raced => {
                let known = session.read(said);
                let (saved, reloaded) = tokio::join!(session.save(), session.reload());
                reloaded.unwrap();
                if let Ok(revision) = saved {
                    let stored = self.talk.stored().await.0;
                    assert!(stored.starts_with(&known) || self.is_overtaken(revision));
                }
            }
            Step::Passed(time) => tokio::time::sleep(*time).await,
            Step::Yielded(times) => {
                for _ in 0..*times {
                    tokio::task::yield_now().await;
                }
            }
            Step::Failing(faults) => self.talk.record.fail(faults.clone()),
            Step::Overtaken => {
                self.numbers += 1;
                let revision = self.talk.other_process_says(&self.numbers.to_string()).await;
                let (said, current) = self.talk.stored().await;
                // The session may have saved right after.
                if current == revision {
                    self.others.push((revision, said));
                }
            }
            Step::Rewound(place) => self.rewind(&session, *place).await,
            Step::Forked(place) => self.fork(*place).await,
            Step::Dropped => {
                drop((session, self.run.take()));
                return self.talk.start().await;
            }
            Step::Restarted => {
                match session.shutdown().await {
                    Ok(()) => {
                        let (stored, known) = (self.talk.stored().await.0, session.read(said));
                        let overtaken = !self.others.is_empty();
                        assert!(stored == known || overtaken && stored.starts_with(&known));
                    }
                    Err(SessionError::Conflict { .. }) => assert!(self.may_conflict()),
                    Err(error) => panic!("{error}"),
                }
                return self.talk.start().await;
            }
            Step::Crashed => {}
            turn => self.turn(&session, turn).await,
        }
        session
    }

    /// A step of a turn.
    async fn turn(&mut self, session: &AgentSession, step: &Step) {
        match step {
            Step::Sent => {
                let (id, message) = (Uuid::now_v7(), Message::user(self.next_number()));
                self.added.insert(id);
                match session.send_message(id, message).await {
                    Ok(rows) => {
                        assert_eq!((rows.len(), rows[0].delivery), (1, Delivery::Stored));
                        self.acknowledged.push(id);
                    }
                    Err(SessionError::Conflict { .. }) => {
                        assert!(self.may_conflict());
                        self.late.insert(id);
                        self.refused.push(id);
                    }
                    Err(SessionError::Storage(_) | SessionError::TimedOut) => {
                        self.late.insert(id);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Streamed(whole) => {
                let (id, text) = (Uuid::now_v7(), self.next_number());
                session.save_draft(id, Message::assistant(&*text)).unwrap();
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                if *whole {
                    self.added.insert(id);
                    let message = Message::assistant(text);
                    session.add_message(id, message).unwrap();
                }
            }
            Step::Called => {
                let number = self.next_number();
                self.call = format!("call_{number}");
                let call = ToolCall::new(&*self.call, number, json!({}));
                let message = Message::tool_calls([call]);
                self.added.insert(add(session, message));
            }
            Step::Claimed => {
                if let Ok(Claim::Claimed(_)) = session.claim_tool_call(&self.call).await {
                    self.claimed.push(self.call.clone());
                }
            }
            Step::Asked => {
                // A call that runs may ask again, which is then another decision.
                let is_new = !self.claimed.contains(&self.call) && !self.decided.contains_key(&self.call);
                if is_new && session.read(|state| state.find_tool_call(&self.call).is_some()) {
                    session.interrupt_tool_call(&self.call, json!({})).unwrap();
                }
            }
            Step::Decided(approves) => {
                let decision = match approves {
                    true => Decision::Approve,
                    false => Decision::Reject { reason: None },
                };
                let earlier = self.decided.get(&self.call);
                match session.decide_tool_call(&self.call, decision.clone()).await {
                    Ok(Decided::Claimed(_)) => {
                        assert_eq!(earlier, None, "decided twice");
                        self.decided.insert(self.call.clone(), decision);
                    }
                    // The decision of a process that crashed is not known here.
                    Ok(Decided::Already(decision, _)) => {
                        assert!(earlier.is_none_or(|earlier| *earlier == decision));
                    }
                    Err(_) => {}
                }
            }
            Step::Resulted => {
                if session.read(|state| state.find_tool_call(&self.call).is_some()) {
                    let result = ToolResult::new(&*self.call, "tool", "done");
                    session.add_tool_result(result).unwrap();
                }
            }
            Step::CancelledInterrupts => drop(session.cancel_pending_interrupts().await),
            Step::Begun => {
                match session.begin_run().await {
                    Ok(BeginRun::Started(run)) => self.run = Some(run),
                    // Its guard exists, or another process works.
                    Ok(BeginRun::Busy(_)) | Err(SessionError::Storage(_) | SessionError::TimedOut) => {}
                    Err(SessionError::Conflict { .. }) => assert!(self.may_conflict()),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Stopped => drop(self.run.take()),
            other => unreachable!("{other:?} is no step of a turn"),
        }
    }

    fn say(&mut self, session: &AgentSession) {
        say(session, &self.next_number());
    }

    fn next_number(&mut self) -> String {
        self.numbers += 1;
        self.numbers.to_string()
    }

    async fn save(&self, session: &AgentSession) {
        let known = session.read(said);
        match session.save().await {
            Ok(revision) => {
                let (stored, current) = self.talk.stored().await;
                let is_stored = current == revision && stored == known;
                assert!(is_stored || self.is_overtaken(revision));
            }
            Err(SessionError::Conflict { .. }) => assert!(self.may_conflict()),
            Err(SessionError::Storage(_) | SessionError::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// An unchanged state is not saved again, and another process may have saved since.
    fn is_overtaken(&self, revision: Revision) -> bool {
        self.others.iter().any(|(other, _)| *other > revision)
    }

    async fn rewind(&mut self, session: &AgentSession, place: usize) {
        let known = session.export_state();
        let Some((place, to)) = chosen(&known, place) else {
            return;
        };
        let earlier = self.talk.record.rewinds();
        let result = session.rewind(Point::Through(to)).await;
        let (stored, revision) = self.talk.stored().await;
        let is_rewound = self.talk.record.rewinds() > earlier;
        if is_rewound {
            let kept = stored.len();
            assert_eq!(stored, said(&known)[..kept]);
            check_cut(&known, place, kept);
            let removed: Vec<_> = ids(&known).skip(kept).flatten().collect();
            self.acknowledged.retain(|id| !removed.contains(id));
            self.refused.extend(removed);
            self.rewound = (revision, stored.clone());
        }
        match result {
            Ok(cut) => {
                assert!(is_rewound && session.read(said) == stored);
                assert_eq!(cut.moved, stored.len() <= place);
            }
            Err(SessionError::Conflict { .. }) => assert!(self.may_conflict()),
            Err(SessionError::Storage(error)) if matches!(*error, Error::NotFound) => {
                assert!(self.may_conflict() && !is_rewound);
            }
            // The session does not know yet what is stored.
            Err(SessionError::Storage(_) | SessionError::TimedOut) if is_rewound => {
                self.others.push((revision, stored));
            }
            Err(SessionError::Storage(_) | SessionError::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// A fork has the beginning of the state, and what is displayed of it.
    async fn fork(&self, place: usize) {
        let (layer, scope) = (&self.talk.layer, scope());
        let Ok(source) = storage::frozen(layer.load_agent_state(&scope, self.talk.id)).await else {
            return;
        };
        let Some((place, at)) = chosen(&source.state, place) else {
            return;
        };
        let ids: Vec<_> = ids(&source.state).flatten().collect();
        let before = self.rows(self.talk.id).await;
        let fork = Fork::at(Point::Through(at));
        let fork = storage::frozen(layer.fork_conversation(&scope, self.talk.id, fork)).await;
        let Forked { conversation, cut } = fork.unwrap();
        let id = conversation.id;
        let forked = storage::frozen(layer.load_agent_state(&scope, id)).await;
        let forked = forked.unwrap().state;
        let kept = forked.messages.len();
        check_cut(&source.state, place, kept);
        assert_eq!(cut.moved, kept <= place);
        assert!(self::ids(&forked).flatten().eq(ids[..kept].iter().copied()));
        assert_eq!(said(&forked), said(&source.state)[..kept]);
        let shown = |rows: Vec<DisplayMessage>| {
            let shown = rows.into_iter().map(|row| (row.message_id, row.content));
            shown.filter(|(id, _)| ids.contains(id)).collect::<Vec<_>>()
        };
        // The session goes on to display, before the fork and after it.
        let (before, mut after) = (shown(before), shown(self.rows(self.talk.id).await));
        after.retain(|(id, _)| ids[..kept].contains(id));
        let forked = shown(self.rows(id).await);
        let mut steady = after.iter().filter(|row| before.contains(row));
        assert!(steady.all(|row| forked.contains(row)), "{after:?} {forked:?}");
        let mut after = after.iter();
        let is_after = |row: &(Uuid, String)| after.any(|(id, _)| *id == row.0);
        assert!(forked.iter().all(is_after), "{forked:?}");
    }

    /// Whether another process saved, or one that crashed may have.
    fn may_conflict(&self) -> bool {
        let saves = self.talk.record.saves();
        !self.others.is_empty() || saves.iter().any(|save| save.reply.is_none())
    }

    /// The stored state is the newest that was acknowledged, or a later one whose acknowledgement was lost. Every save
    /// contains the one before.
    fn check(&mut self) {
        let reader = Arc::clone(&self.reader);
        self.talk.layer = reader.layer.clone();
        let (shown, stored) = reader.process.block_on(async {
            let (said, revision) = self.talk.stored().await;
            (self.rows(self.talk.id).await, (revision, said))
        });
        let shown = shown.into_iter();
        let shown = shown.filter(|row| row.content_type != ContentType::ToolResult);
        let shown = shown.map(|row| (row.message_id, row.content.parse().unwrap()));
        let shown: Vec<(Uuid, usize)> = shown.collect();
        let numbers: HashSet<_> = shown.iter().map(|(_, number)| number).collect();
        assert_eq!(numbers.len(), shown.len(), "once: {shown:?}");
        let in_order = shown.iter().filter(|(id, _)| !self.late.contains(id));
        assert!(in_order.is_sorted_by_key(|(_, number)| number), "in order: {shown:?}");
        let saves = self.talk.record.saves();
        let acknowledged = saves.iter().filter_map(|save| Some((save.reply?, said(&save.state))));
        let mut known: Vec<_> = acknowledged.chain(self.others.clone()).collect();
        known.push(self.rewound.clone());
        known.retain(|(revision, _)| *revision >= self.rewound.0);
        known.sort();
        known.dedup();
        if let Some(newest) = known.last() {
            assert!(stored.0 >= newest.0, "{stored:?} is older than {newest:?}");
        }
        let is_known = stored.0 == Revision(0) || known.contains(&stored);
        let was_tried = saves
            .iter()
            .any(|save| said(&save.state) == stored.1 && save.expect == Expect::Revision(Revision(stored.0.0 - 1)));
        assert!(is_known || was_tried, "no process saved {stored:?}");
        known.push(stored);
        for pair in known.windows(2) {
            assert!(pair[1].1.starts_with(&pair[0].1), "{:?} forgets {:?}", pair[1], pair[0]);
        }
    }

    /// Display and state agree, what was acknowledged is in both and what was refused in neither. No call was claimed
    /// twice.
    fn check_turns(&mut self) {
        let reader = Arc::clone(&self.reader);
        self.talk.layer = reader.layer.clone();
        let (rows, state) = reader.process.block_on(async {
            let scope = scope();
            let loaded = self.talk.layer.load_agent_state(&scope, self.talk.id);
            let saved = storage::frozen(loaded).await.unwrap();
            (self.rows(self.talk.id).await, saved.state)
        });
        let known: HashSet<_> = ids(&state).flatten().collect();
        let shown: HashSet<_> = rows.iter().map(|row| row.message_id).collect();
        for row in &rows {
            let is_known = known.contains(&row.message_id);
            let agrees = match row.delivery {
                Delivery::Stored => is_known,
                // A save that a crashed process had sent may come after the next process has looked for the message.
                Delivery::Unknown => !is_known || self.may_conflict(),
                Delivery::Interrupted => !is_known,
                Delivery::Draft | Delivery::Unsaved => false,
            };
            assert!(agrees, "{row:?}");
        }
        let is_shown = |id: &Uuid| !known.contains(id) || shown.contains(id);
        assert!(self.added.iter().all(is_shown));
        let mut acknowledged = self.acknowledged.iter();
        assert!(acknowledged.all(|id| known.contains(id) && shown.contains(id)));
        let mut refused = self.refused.iter();
        assert!(refused.all(|id| !known.contains(id) && !shown.contains(id)));
        let claimed: HashSet<_> = self.claimed.iter().collect();
        assert_eq!(claimed.len(), self.claimed.len(), "{:?}", self.claimed);
    }

    async fn rows(&self, id: Uuid) -> Vec<DisplayMessage> {
        let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
        let scope = scope();
        let page = self.talk.layer.load_display_messages(&scope, id, page);
        storage::frozen(page).await.unwrap().items
    }

    /// A new process: another pool and another coordinator.
    async fn connect(&mut self) {
        self.talk = self.talk.reconnected().await;
    }
}

/// The ids of the messages. One that was not saved may have none yet.
fn ids(state: &State) -> impl Iterator<Item = Option<Uuid>> {
    (0..state.messages.len()).map(|n| state.messages.id(n))
}

/// One of the messages that have an id.
fn chosen(state: &State, number: usize) -> Option<(usize, Uuid)> {
    let ids = ids(state).enumerate();
    let ids: Vec<_> = ids.filter_map(|(n, id)| Some((n, id?))).collect();
    Some(ids[number.checked_rem(ids.len())?])
}

/// The cut is behind the message, or before one with calls, and separates no call from its result. Results may be displayed
/// that the state does not have.
fn check_cut(state: &State, place: usize, kept: usize) {
    let messages = &state.messages;
    let has_calls = |n| {
        let message: Option<&Message> = messages.get(n);
        message.is_some_and(|message| !message.tool_calls.is_empty())
    };
    assert!(kept == place + 1 || kept <= place && has_calls(kept));
    let behind = messages.iter().skip(kept);
    for result in behind.flat_map(|message| &message.tool_results) {
        let mut calls = messages.iter().take(kept).flat_map(|message| &message.tool_calls);
        assert!(calls.all(|call| call.tool_call_id != result.tool_call_id));
    }
}
