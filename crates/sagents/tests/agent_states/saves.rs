//! Random histories of saves: the last one is loaded as it was, and a save writes only the rows that differ.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sagents::{Error, Expect, Message, Result, Revision, SaveOptions, State, Todo, ToolResult};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::task::{JoinSet, block_in_place};
use uuid::Uuid;

use crate::on_both_databases;
use crate::support::fixture::Fixture;
use crate::support::{Kind, TABLES, TestDatabase};

on_both_databases!(
    any_history_of_saves_loads_back_equal_and_writes_only_what_differs,
    the_saves_of_racing_writers_are_never_mixed,
);

/// Triggers that record each row of a message that's written or deleted.
const RECORD_IN_SQLITE: &str = "
    CREATE TABLE changed_rows (change TEXT NOT NULL, position INTEGER NOT NULL);
    CREATE TRIGGER inserted AFTER INSERT ON sagents_agent_messages
    BEGIN INSERT INTO changed_rows VALUES ('written', new.position); END;
    CREATE TRIGGER updated AFTER UPDATE ON sagents_agent_messages
    BEGIN INSERT INTO changed_rows VALUES ('written', new.position); END;
    CREATE TRIGGER deleted AFTER DELETE ON sagents_agent_messages
    BEGIN INSERT INTO changed_rows VALUES ('deleted', old.position); END;";
const RECORD_IN_POSTGRES: &str = "
    CREATE TABLE changed_rows (change TEXT NOT NULL, position INTEGER NOT NULL);
    CREATE FUNCTION record_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'DELETE' THEN
            INSERT INTO changed_rows VALUES ('deleted', old.position);
        ELSE
            INSERT INTO changed_rows VALUES ('written', new.position);
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER recorded AFTER INSERT OR UPDATE OR DELETE ON sagents_agent_messages
    FOR EACH ROW EXECUTE FUNCTION record_row();";

/// A change of a state. A position is taken modulo the number of messages.
#[derive(Debug, Clone)]
enum Edit {
    Push,
    PushWithId,
    PushMany(usize),
    PushInterrupt,
    /// Through `IndexMut`.
    Change(usize),
    /// Every message is borrowed through `iter_mut`, and every third is changed.
    ChangeThirds,
    /// Every message is borrowed, and none is changed.
    ChangeNothing,
    Truncate(usize),
    Insert(usize),
    Remove(usize),
    Pop,
    RetainHalf,
    /// `set_messages` with another message at a position.
    Set(usize),
    /// `replace_tool_result` for the first result.
    ReplaceResult,
    CancelInterrupts,
    CleanInterrupts,
    Merge,
    Reset,
    Metadata,
    Todos,
}

#[derive(Debug, Clone)]
enum Step {
    Edit(Edit),
    Save,
    /// Over whatever is stored.
    SaveAny,
    /// With a revision that was never stored.
    SaveTooLate,
    /// The last save once more, with its id.
    Repeat,
    /// A save whose reply is lost, and its repeat.
    Lost,
    /// A clone is saved while the state is changed.
    SaveClone(Edit),
    Reload,
    /// Another writer loads, changes and saves the state.
    Overtaken(Edit),
}

fn edit() -> impl Strategy<Value = Edit> {
    use Edit::*;
    let position = || 0_usize..200;
    prop_oneof![
        6 => Just(Push),
        2 => Just(PushWithId),
        2 => (1_usize..100).prop_map(PushMany),
        3 => Just(PushInterrupt),
        4 => position().prop_map(Change),
        1 => Just(ChangeThirds),
        1 => Just(ChangeNothing),
        2 => position().prop_map(Truncate),
        3 => position().prop_map(Insert),
        3 => position().prop_map(Remove),
        1 => Just(Pop),
        1 => Just(RetainHalf),
        3 => position().prop_map(Set),
        2 => Just(ReplaceResult),
        1 => Just(CancelInterrupts),
        1 => Just(CleanInterrupts),
        1 => Just(Merge),
        1 => Just(Reset),
        1 => Just(Metadata),
        1 => Just(Todos),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    prop_oneof![
        12 => edit().prop_map(Edit),
        6 => Just(Save),
        1 => Just(SaveAny),
        1 => Just(SaveTooLate),
        2 => Just(Repeat),
        2 => Just(Lost),
        2 => edit().prop_map(SaveClone),
        2 => Just(Reload),
        1 => edit().prop_map(Overtaken),
    ]
}

async fn any_history_of_saves_loads_back_equal_and_writes_only_what_differs(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let record = match database.kind {
        Kind::Sqlite => RECORD_IN_SQLITE,
        Kind::Postgres => RECORD_IN_POSTGRES,
    };
    database.execute(record).await;
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(60) });
    block_in_place(|| {
        let outcome = runner.run(&proptest::collection::vec(step(), 1..50), |history| {
            Handle::current().block_on(Box::pin(async {
                let mut model = Model::new(&db).await;
                for step in &history {
                    model.happen(step).await;
                    model.check().await;
                }
            }));
            Ok(())
        });
        outcome.unwrap();
    });
}

/// A state in memory, and what the database must hold.
struct Model<'a> {
    db: &'a Fixture,
    id: Uuid,
    state: State,
    expect: Expect,
    /// Whether the state knows the rows of the revision that it expects.
    knows: bool,
    last: Option<(Expect, Uuid, Revision)>,
    stored: State,
    revision: Revision,
    /// Every message has a number that is never used again.
    numbers: u64,
    /// The ids of messages that were saved, by number.
    ids: HashMap<u64, Uuid>,
}

impl<'a> Model<'a> {
    async fn new(db: &'a Fixture) -> Self {
        Self {
            db,
            id: db.conversation().await,
            state: State::new(),
            expect: Expect::NOTHING,
            knows: false,
            last: None,
            stored: State::new(),
            revision: Revision(0),
            numbers: 0,
            ids: HashMap::new(),
        }
    }

    async fn happen(&mut self, step: &Step) {
        match step {
            Step::Edit(edit) => apply(&mut self.state, &mut self.numbers, edit),
            Step::Save => self.save(&self.state.clone(), self.expect).await,
            Step::SaveAny => self.save(&self.state.clone(), Expect::Any).await,
            Step::SaveTooLate => {
                let expect = Expect::Revision(Revision(self.revision.0 + 7));
                let refused = save(self.db, self.id, &self.state, expect).await;
                self.assert_conflict(&refused);
            }
            Step::Repeat => self.repeat().await,
            Step::Lost => self.lose().await,
            Step::SaveClone(edit) => {
                let clone = self.state.clone();
                apply(&mut self.state, &mut self.numbers, edit);
                self.save(&clone, self.expect).await;
            }
            Step::Reload => {
                if self.revision > Revision(0) {
                    self.state = load(self.db, self.id).await.0;
                    self.expect = Expect::Revision(self.revision);
                    self.knows = true;
                }
            }
            Step::Overtaken(edit) => {
                let (mut other, expect) = match self.revision {
                    Revision(0) => (State::new(), Expect::NOTHING),
                    revision => (load(self.db, self.id).await.0, Expect::Revision(revision)),
                };
                apply(&mut other, &mut self.numbers, edit);
                self.revision = save(self.db, self.id, &other, expect).await.unwrap();
                self.stored = other;
                changed_rows(self.db).await;
            }
        }
    }

    async fn save(&mut self, state: &State, expect: Expect) {
        let write_id = Uuid::now_v7();
        let saved = save(self.db, self.id, state, expect.with_write_id(write_id)).await;
        let is_current = expect == Expect::Revision(self.revision);
        if !is_current && expect != Expect::Any {
            self.assert_conflict(&saved);
            return;
        }
        let revision = saved.unwrap();
        assert_eq!(revision, Revision(self.revision.0 + 1));
        let (written, deleted) = changed_rows(self.db).await;
        let stored = std::mem::replace(&mut self.stored, state.clone());
        let (len, before) = (state.messages.len(), stored.messages.len());
        let is_written = |position: &usize| {
            let is_same = state.messages.get(*position) == stored.messages.get(*position)
                && state.messages.id(*position) == stored.messages.id(*position);
            !is_same || !is_current || !self.knows
        };
        assert_eq!(written, (0..len).filter(is_written).collect::<Vec<_>>());
        assert_eq!(deleted, (len..before).collect::<Vec<_>>());
        self.expect = Expect::Revision(revision);
        self.knows = true;
        self.last = Some((expect, write_id, revision));
        self.revision = revision;
    }

    /// It is stored once, also if the state has changed since.
    async fn repeat(&mut self) {
        let Some((expect, write_id, revision)) = self.last else {
            return;
        };
        // Over anything, it would be another save.
        if expect == Expect::Any {
            return;
        }
        let repeated = save(self.db, self.id, &self.state, expect.with_write_id(write_id)).await;
        if revision == self.revision {
            assert_eq!(repeated.unwrap(), revision);
        } else {
            self.assert_conflict(&repeated);
        }
    }

    /// The process that saved has the same messages, and learns nothing of the save.
    async fn lose(&mut self) {
        if self.expect != Expect::Revision(self.revision) || self.revision == Revision(0) {
            return;
        }
        let saved = State { stored_messages: load(self.db, self.id).await.0.stored_messages, ..self.state.clone() };
        let (expect, write_id) = (self.expect, Uuid::now_v7());
        let lost = save(self.db, self.id, &saved, expect.with_write_id(write_id));
        let revision = lost.await.unwrap();
        changed_rows(self.db).await;
        (self.revision, self.stored) = (revision, saved);
        self.last = Some((expect, write_id, revision));
        self.repeat().await;
        self.expect = Expect::Revision(revision);
        self.knows = false;
    }

    fn assert_conflict(&self, saved: &Result<Revision>) {
        let current = self.revision;
        assert!(
            matches!(saved, Err(Error::Conflict { current: found }) if *found == current),
            "{saved:?} with {current:?}"
        );
    }

    /// What is stored is the state of the last save, and nothing but a save writes a row.
    async fn check(&mut self) {
        assert_eq!(changed_rows(self.db).await, (vec![], vec![]));
        if self.revision == Revision(0) {
            return;
        }
        let (loaded, revision) = load(self.db, self.id).await;
        assert_eq!(revision, self.revision);
        assert_eq!(loaded, self.stored);
        let mut used = HashSet::new();
        for (index, message) in loaded.messages.iter().enumerate() {
            let id = loaded.messages.id(index).unwrap();
            assert_eq!(Some(id), self.stored.messages.id(index));
            assert!(used.insert(id), "two messages have the id {id}");
            let known = self.ids.entry(number(message)).or_insert(id);
            assert_eq!(*known, id, "message {index} got another id");
        }
    }
}

fn number(message: &Message) -> u64 {
    message.extra["number"].as_u64().unwrap()
}

fn numbered(numbers: &mut u64, mut message: Message) -> Message {
    *numbers += 1;
    message.extra.insert("number".into(), json!(*numbers));
    message
}

fn apply(state: &mut State, numbers: &mut u64, edit: &Edit) {
    let len = state.messages.len();
    let at = |position: usize| position.checked_rem(len);
    let text = format!("after {numbers}");
    let mut new = || numbered(numbers, Message::user(&text));
    match edit {
        Edit::Push => state.add_message(new()),
        Edit::PushWithId => state.messages.push_with_id(Uuid::now_v7(), new()),
        Edit::PushMany(count) => state.messages.extend((0..*count).map(|_| new())),
        Edit::PushInterrupt => {
            let call_id = format!("call {numbers}");
            let result = ToolResult::interrupt(call_id, "ask", "waiting", json!({ "type": "ask" }));
            state.add_message(numbered(numbers, Message::tool_results([result])));
        }
        Edit::Change(position) => {
            if let Some(position) = at(*position) {
                state.messages[position].content = Some(text.into());
            }
        }
        Edit::ChangeThirds => {
            for message in state.messages.iter_mut().step_by(3) {
                message.content = Some(text.clone().into());
            }
        }
        Edit::ChangeNothing => assert_eq!(state.messages.iter_mut().count(), len),
        Edit::Truncate(position) => state.messages.truncate(at(*position).unwrap_or(0)),
        Edit::Insert(position) => state.messages.insert(at(*position).unwrap_or(0), new()),
        Edit::Remove(position) => {
            if let Some(position) = at(*position) {
                state.messages.remove(position);
            }
        }
        Edit::Pop => {
            state.messages.pop();
        }
        Edit::RetainHalf => state.messages.retain(|message| number(message).is_multiple_of(2)),
        Edit::Set(position) => {
            let mut messages = state.messages.to_vec();
            if let Some(position) = at(*position) {
                messages[position] = new();
            }
            state.set_messages(messages);
        }
        Edit::ReplaceResult => {
            let mut results = state.messages.iter().flat_map(|message| &message.tool_results);
            if let Some(call_id) = results.next().map(|result| result.tool_call_id.clone()) {
                let result = ToolResult::new(&call_id, "ask", text);
                assert!(state.replace_tool_result(&call_id, &result));
            }
        }
        Edit::CancelInterrupts => state.cancel_pending_interrupts(),
        Edit::CleanInterrupts => state.clean_stale_interrupts(|_| false),
        Edit::Merge => {
            let mut other = State::new();
            other.add_message(new());
            *state = std::mem::take(state).merge(other);
        }
        Edit::Reset => state.reset(),
        Edit::Metadata => state.put_metadata("text", text),
        Edit::Todos => state.put_todo(Todo::new(1, text)),
    }
}

async fn save(db: &Fixture, id: Uuid, state: &State, options: impl Into<SaveOptions>) -> Result<Revision> {
    db.save_agent_state(&db.alice, id, state, options).await
}

async fn load(db: &Fixture, id: Uuid) -> (State, Revision) {
    let saved = db.load_agent_state(&db.alice, id).await.unwrap();
    (saved.state, saved.revision)
}

/// The positions that were written, and those that were deleted, since the last call.
async fn changed_rows(db: &Fixture) -> (Vec<usize>, Vec<usize>) {
    let mut changed = (Vec::new(), Vec::new());
    let select = "SELECT change || ' ' || CAST(position AS TEXT) FROM changed_rows ORDER BY position";
    for row in db.pool.texts(select).await {
        let (change, position) = row.split_once(' ').unwrap();
        let positions = if change == "written" { &mut changed.0 } else { &mut changed.1 };
        positions.push(position.parse().unwrap());
    }
    db.pool.execute("DELETE FROM changed_rows").await;
    changed
}

async fn the_saves_of_racing_writers_are_never_mixed(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    save(&db, id, &State::new(), Expect::NOTHING).await.unwrap();
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let (store, owner) = (database.connect(&TABLES).await, db.alice.clone());
        writers.spawn(async move {
            for round in 0..25 {
                let saved = store.load_agent_state(&owner, id).await.unwrap();
                assert_one_save(&saved.state);
                let mut state = saved.state;
                let name = format!("{writer} {round}");
                // One writer changes everything, the others a part; the list grows and shrinks.
                let step = if writer == 0 { 1 } else { 3 };
                for message in state.messages.iter_mut().skip(writer).step_by(step) {
                    *message = Message::user(&name);
                }
                state.messages.truncate(12 + round % 5);
                state.add_messages([Message::user(&name), Message::user(&name)]);
                state.put_metadata("texts", texts(&state));
                let expect = match round % 4 {
                    3 => Expect::Any,
                    _ => Expect::Revision(saved.revision),
                };
                match store.save_agent_state(&owner, id, &state, expect).await {
                    Ok(_) | Err(Error::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    while !writers.is_empty() {
        if let Some(ended) = writers.try_join_next() {
            ended.unwrap();
        }
        assert_one_save(&load(&db, id).await.0);
    }
}

fn texts(state: &State) -> Vec<String> {
    let contents = state.messages.iter().map(|message| &message.content);
    contents.map(|content| content.as_ref().unwrap().text()).collect()
}

/// The header of every save lists the messages.
fn assert_one_save(state: &State) {
    let listed = state.get_metadata("texts").cloned();
    assert_eq!(listed.unwrap_or(json!([])), json!(texts(state)));
}
