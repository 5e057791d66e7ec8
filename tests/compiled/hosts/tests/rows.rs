//! Agent states as rows: what is saved, what is written for it, and what happens to rows that cannot be read.

use crate::database;

use std::collections::{HashMap, HashSet};

use database::{Database, Pool, RECORD_ROWS};
use matrix::conversations::{Conversations, Error, MessagePage, NewConversation, connect};
use matrix::sagents::session::Coordinator;
use matrix::sagents::{Expect, LoadContext, Message, Revision, State, Todo, ToolResult};
use matrix::scopes::{Scope, User};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use uuid::Uuid;

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

#[test]
fn any_history_of_saves_loads_back_equal_and_writes_only_what_differs() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let db = runtime.block_on(async {
        let db = Db::new().await;
        db.run(RECORD_ROWS).await;
        db
    });
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(60)
    });
    let outcome = runner.run(&proptest::collection::vec(step(), 1..50), |history| {
        runtime.block_on(async {
            let mut model = Model::new(&db).await;
            for step in &history {
                model.happen(step).await;
                model.check().await;
            }
        });
        Ok(())
    });
    outcome.unwrap();
}

/// A state in memory, and what the database must hold.
struct Model<'a> {
    db: &'a Db,
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
    async fn new(db: &'a Db) -> Self {
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
                let refused = self.db.save(self.id, &self.state, expect).await;
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
                    self.state = self.db.load(self.id).await.0;
                    self.expect = Expect::Revision(self.revision);
                    self.knows = true;
                }
            }
            Step::Overtaken(edit) => {
                let (mut other, expect) = match self.revision {
                    Revision(0) => (State::new(), Expect::NOTHING),
                    revision => (self.db.load(self.id).await.0, Expect::Revision(revision)),
                };
                apply(&mut other, &mut self.numbers, edit);
                self.revision = self.db.save(self.id, &other, expect).await.unwrap();
                self.stored = other;
                self.db.changed_rows().await;
            }
        }
    }

    async fn save(&mut self, state: &State, expect: Expect) {
        let write_id = Uuid::now_v7();
        let saved = self.db.save_with_id(self.id, state, expect, write_id).await;
        let is_current = expect == Expect::Revision(self.revision);
        if !is_current && expect != Expect::Any {
            self.assert_conflict(&saved);
            return;
        }
        let revision = saved.unwrap();
        assert_eq!(revision, Revision(self.revision.0 + 1));
        let (written, deleted) = self.db.changed_rows().await;
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
        let repeated = self
            .db
            .save_with_id(self.id, &self.state, expect, write_id)
            .await;
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
        let saved = State {
            stored_messages: self.db.load(self.id).await.0.stored_messages,
            ..self.state.clone()
        };
        let (expect, write_id) = (self.expect, Uuid::now_v7());
        let lost = self.db.save_with_id(self.id, &saved, expect, write_id);
        let revision = lost.await.unwrap();
        self.db.changed_rows().await;
        (self.revision, self.stored) = (revision, saved);
        self.last = Some((expect, write_id, revision));
        self.repeat().await;
        self.expect = Expect::Revision(revision);
        self.knows = false;
    }

    fn assert_conflict(&self, saved: &Result<Revision, Error>) {
        let current = self.revision;
        assert!(
            matches!(saved, Err(Error::Conflict { current: found }) if *found == current),
            "{saved:?} with {current:?}"
        );
    }

    /// What is stored is the state of the last save, and nothing but a save writes a row.
    async fn check(&mut self) {
        assert_eq!(self.db.changed_rows().await, (vec![], vec![]));
        if self.revision == Revision(0) {
            return;
        }
        let (loaded, revision) = self.db.load(self.id).await;
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
        Edit::RetainHalf => state
            .messages
            .retain(|message| number(message).is_multiple_of(2)),
        Edit::Set(position) => {
            let mut messages = state.messages.to_vec();
            if let Some(position) = at(*position) {
                messages[position] = new();
            }
            state.set_messages(messages);
        }
        Edit::ReplaceResult => {
            let mut results = state
                .messages
                .iter()
                .flat_map(|message| &message.tool_results);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_saves_of_racing_writers_are_never_mixed() {
    let db = Db::new().await;
    let id = db.conversation().await;
    db.save(id, &State::new(), Expect::NOTHING).await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let layer = Conversations::new(connect(&db.database.url()).await.unwrap());
        writers.spawn(async move {
            for round in 0..25 {
                let saved = layer.load_agent_state(&scope(), id).await.unwrap();
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
                match layer.save_agent_state(&scope(), id, &state, expect).await {
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
        assert_one_save(&db.load(id).await.0);
    }
}

fn texts(state: &State) -> Vec<String> {
    let contents = state.messages.iter().map(|message| &message.content);
    contents
        .map(|content| content.as_ref().unwrap().text())
        .collect()
}

/// The header of every save lists the messages.
fn assert_one_save(state: &State) {
    let listed = state.get_metadata("texts").cloned();
    assert_eq!(listed.unwrap_or(json!([])), json!(texts(state)));
}

#[tokio::test]
async fn a_message_of_a_session_has_the_id_of_its_display_messages() {
    let db = Db::new().await;
    let id = db.conversation().await;
    let coordinator = Coordinator::new(db.layer.clone());
    let session = coordinator.start(&scope(), id).await.unwrap();
    let given: Vec<_> = (0..3)
        .map(|n| session.add_message(Message::user(n.to_string())).unwrap())
        .collect();
    session.shutdown().await.unwrap();

    let (state, _) = db.load(id).await;
    let kept: Vec<_> = (0..3)
        .filter_map(|index| state.messages.id(index))
        .collect();
    let shown = db
        .layer
        .load_display_messages(&scope(), id, MessagePage::first())
        .await
        .unwrap();
    let shown = shown.items.iter().map(|message| message.message_id);
    let shown: Vec<_> = shown.collect();
    assert_eq!((&kept, &shown), (&given, &given));
}

/// Statements that damage the current state of three messages, and what is reported.
const DAMAGES: [(&str, &str); 6] = [
    (
        r#"UPDATE sagents_agent_states SET data = '{"version":3,"state":{"todos":1,"messages":{"count":3}}}'"#,
        "the state is damaged: state.todos: expected an array, found a number",
    ),
    (
        "UPDATE sagents_agent_states SET data = '[]'",
        "the state is damaged: root: expected an object, found an array",
    ),
    (
        r#"UPDATE sagents_agent_messages SET data = '{"role":"robot"}'
           WHERE position = 1 AND epoch = (SELECT epoch FROM sagents_agent_states)"#,
        r#"the state is damaged: state.messages[1].role: "robot" is not a role"#,
    ),
    (
        "DELETE FROM sagents_agent_messages
         WHERE position = 1 AND epoch = (SELECT epoch FROM sagents_agent_states)",
        "the state is damaged: state.messages[1]: expected its row, found that of 2",
    ),
    (
        "DELETE FROM sagents_agent_messages
         WHERE position = 2 AND epoch = (SELECT epoch FROM sagents_agent_states)",
        "the state is damaged: state.messages: expected 3 rows, found 2",
    ),
    (
        r#"UPDATE sagents_agent_states SET data = '{"version":3,"state":{"messages":{"count":2}}}'"#,
        "the state is damaged: state.messages: expected 2 rows, found 3",
    ),
];

#[tokio::test]
async fn damage_is_noticed_with_its_place_and_never_blocks_saving() {
    let seconds = DAMAGES.iter().cycle().skip(1);
    for ((first, place), (second, second_place)) in DAMAGES.iter().zip(seconds) {
        let db = Db::new().await;
        let id = db.conversation().await;
        let [one, two, three] = ["one", "two", "three"].map(three_messages);
        db.save(id, &one, Expect::NOTHING).await.unwrap();
        db.run(first).await;
        assert_eq!(db.fault(id).await, *place);

        // An agent that starts sets it aside.
        let (scope, context) = (&scope(), LoadContext::new(id));
        let loaded = State::load_or_new(&db.layer, scope, &context, State::new());
        let expect = loaded.await.unwrap().1;
        assert_eq!(expect, Expect::Unreadable(Revision(1)));
        db.save(id, &two, expect).await.unwrap();
        assert_eq!(db.load(id).await.0, two);
        let aside = db.layer.load_unreadable(scope, id, 0).await.unwrap();

        // So does a save over anything.
        db.run(second).await;
        assert_eq!(db.fault(id).await, *second_place);
        let revision = db.save(id, &three, Expect::Any).await.unwrap();
        let expect = Expect::Revision(revision);
        db.save(id, &three, expect).await.unwrap();
        assert_eq!(db.load(id).await.0, three);
        assert_eq!(db.aside(id).await, [0, 1]);
        let unchanged = db.layer.load_unreadable(scope, id, 0).await.unwrap();
        assert_eq!(unchanged, aside);

        // What was current is set aside in turn, and comes back equal.
        db.layer.restore_unreadable(scope, id, 0).await.unwrap();
        assert_eq!(db.fault(id).await, *place);
        assert_eq!(db.aside(id).await, [1, 2]);
        db.layer.discard_unreadable(scope, id, 1).await.unwrap();
        let again = db.layer.discard_unreadable(scope, id, 1).await;
        assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
        db.layer.restore_unreadable(scope, id, 2).await.unwrap();
        assert_eq!(db.load(id).await.0, three);
        db.layer.discard_unreadable(scope, id, 0).await.unwrap();
        assert!(db.aside(id).await.is_empty());
        assert_eq!(db.rows().await, 3, "nothing is left of what was discarded");
    }
}

fn three_messages(text: &str) -> State {
    let mut state = State::new();
    state.add_messages((0..3).map(|n| Message::user(format!("{text} {n}"))));
    state
}

fn scope() -> Scope {
    let name = "a".to_owned();
    Scope {
        user: User { id: 1, name },
    }
}

struct Db {
    layer: Conversations,
    pool: Pool,
    database: Database,
}

impl Db {
    async fn new() -> Self {
        let database = Database::migrated("INSERT INTO users (id, name) VALUES (1, 'a')").await;
        let pool = connect(&database.url()).await.unwrap();
        Self {
            layer: Conversations::new(pool.clone()),
            pool,
            database,
        }
    }

    async fn conversation(&self) -> Uuid {
        let new = NewConversation::new();
        let created = self.layer.create_conversation(&scope(), new).await;
        created.unwrap().id
    }

    async fn save(&self, id: Uuid, state: &State, expect: Expect) -> Result<Revision, Error> {
        let write_id = Uuid::now_v7();
        self.save_with_id(id, state, expect, write_id).await
    }

    async fn save_with_id(
        &self,
        id: Uuid,
        state: &State,
        expect: Expect,
        write_id: Uuid,
    ) -> Result<Revision, Error> {
        self.layer
            .save_agent_state_with_id(&scope(), id, state, expect, write_id)
            .await
    }

    async fn load(&self, id: Uuid) -> (State, Revision) {
        let saved = self.layer.load_agent_state(&scope(), id).await.unwrap();
        (saved.state, saved.revision)
    }

    async fn fault(&self, id: Uuid) -> String {
        let loaded = self.layer.load_agent_state(&scope(), id).await;
        loaded.unwrap_err().to_string()
    }

    /// The epochs that are set aside.
    async fn aside(&self, id: Uuid) -> Vec<i64> {
        let aside = self.layer.list_unreadable(&scope(), id).await.unwrap();
        aside.iter().map(|state| state.epoch).collect()
    }

    async fn run(&self, statements: &'static str) {
        let run = sqlx::raw_sql(statements).execute(&self.pool);
        run.await.unwrap();
    }

    /// The rows of messages in all states.
    async fn rows(&self) -> i64 {
        let count = sqlx::query_scalar("SELECT count(*) FROM sagents_agent_messages");
        count.fetch_one(&self.pool).await.unwrap()
    }

    /// The positions that were written, and those that were deleted, since the last call.
    async fn changed_rows(&self) -> (Vec<usize>, Vec<usize>) {
        const SELECT: &str = "SELECT change, position FROM changed_rows ORDER BY position";

        let select = sqlx::query_as(SELECT).fetch_all(&self.pool);
        let changes: Vec<(String, i32)> = select.await.unwrap();
        self.run("DELETE FROM changed_rows").await;
        let (written, deleted) = changes
            .into_iter()
            .partition(|(change, _)| change == "written");
        let positions = |changes: Vec<(String, i32)>| {
            let positions = changes
                .into_iter()
                .map(|(_, position)| usize::try_from(position));
            positions.collect::<Result<_, _>>().unwrap()
        };
        (positions(written), positions(deleted))
    }
}
