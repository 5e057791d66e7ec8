//! A state as rows: what is written is what changed, and what is read back is the state.

use std::collections::{BTreeMap, HashSet};

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{HeaderState, Row, RowReader, Rows, SavePoint, StoredRow};
use crate::messages::tests::{Edit, edit, message};
use crate::serializer::{self, read_stored};
use crate::{Expect, Message, Messages, ReadError, Revision, State, Todo, TooDeep, ToolResult, strategies};

/// What a database has of one conversation.
#[derive(Debug, Clone, Default)]
struct Stored {
    revision: i64,
    write_id: Uuid,
    header: String,
    rows: BTreeMap<i32, (Uuid, String)>,
}

impl Stored {
    fn point(&self) -> SavePoint {
        SavePoint { conversation_id: Uuid::nil(), revision: Revision(self.revision), write_id: self.write_id }
    }

    fn expect(&self) -> Expect {
        Expect::Revision(Revision(self.revision))
    }

    /// Writes rows as a store does, and checks that all of them had to be written.
    fn write(&mut self, rows: &Rows) {
        if let Some(base) = rows.base {
            assert_eq!(base, self.write_id, "only a complete save may replace what it does not know");
        }
        for Row { position, message_id, data, .. } in &rows.changed {
            let replaced = self.rows.insert(*position, (*message_id, data.clone()));
            if rows.base.is_some() {
                assert_ne!(replaced, Some((*message_id, data.clone())), "row {position} is as it was");
            }
        }
        if rows.base.is_none() {
            assert_eq!(rows.changed.len(), usize::try_from(rows.count).unwrap());
        }
        self.rows.retain(|position, _| *position < rows.count);
        self.header.clone_from(&rows.header);
        self.revision += 1;
        self.write_id = Uuid::now_v7();
    }

    /// Saves a state, which remembers it. Returns the positions that were written.
    fn save(&mut self, state: &State) -> Vec<i32> {
        let rows = state.to_rows(Uuid::nil(), self.expect()).unwrap();
        self.write(&rows);
        state.remember(&rows, self.point());
        rows.changed.iter().map(|row| row.position).collect()
    }

    fn load(&self) -> Result<State, ReadError> {
        let header = header(&self.header)?;
        let mut rows = RowReader::default();
        // The order in which they arrive does not matter.
        for (&position, (message_id, data)) in self.rows.iter().rev() {
            rows.push(StoredRow { position: position.into(), message_id: *message_id, data: data.as_bytes() });
        }
        header.finish(rows, self.point())
    }
}

#[test]
fn a_text_is_read_as_the_parser_reads_it() {
    let written = |text: &[u8]| {
        [br#"{"role":"user","content":[{"type":"text","content":""#, text, br#""}],"status":"complete"}"#].concat()
    };
    let read = |data: &[u8]| {
        let mut state = State::new();
        state.add_message(Message::user(""));
        let mut stored = Stored::default();
        stored.save(&state);
        let header = header(&stored.header).unwrap();
        let mut rows = RowReader::default();
        rows.push(StoredRow { position: 0, message_id: Uuid::nil(), data });
        header.finish(rows, stored.point()).map(|state| state.messages)
    };
    for text in [
        &b""[..],
        b"plain text, longer than a chunk of it",
        br#"\"quoted\", sixteen \\ and\nmore\r\t"#,
        br"0123456789abcde\n0123456789abcdef\n",
        br"\b\f\/\u0041\ud83d\ude00",
        "é, and \u{1f600} behind a chunk".as_bytes(),
        // Damaged.
        b"a line\nand another",
        b"a \" quotation mark",
        br"an \x escape",
        br"no end \",
        br"no end, further on \\\",
        b"no UTF-8 \xff",
        br#""}],"status":"complete"},{"role":"user","content":[{"type":"text","content":""#,
    ] {
        let plain = written(text);
        // With a space it is for the parser.
        let spaced = [&plain[..], b" "].concat();
        assert_eq!(read(&plain), read(&spaced), "{}", text.escape_ascii());
    }
}

fn header(text: &str) -> Result<HeaderState, ReadError> {
    read_stored("agent", text.as_bytes())
}

fn ids(messages: &Messages) -> Vec<Option<Uuid>> {
    (0..messages.len()).map(|index| messages.id(index)).collect()
}

/// What happens to a state.
#[derive(Debug, Clone)]
enum Step {
    Edit(Edit),
    Save,
    /// A clone is made, the state is edited, then the clone is saved.
    SaveClone(Edit),
    /// The state is edited between the making and the writing of its rows.
    EditDuringSave(Edit),
    /// Rows are made and not written.
    FailedSave,
    /// Rows are written, and the writer never learns it.
    LostReply,
    /// Another writer loads, edits and saves.
    OtherWriter(Edit),
    Load,
    Reset,
    /// The conversation is deleted, created again, and saved as often as before.
    Recreate,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => edit().prop_map(Step::Edit),
        6 => Just(Step::Save),
        3 => edit().prop_map(Step::SaveClone),
        2 => edit().prop_map(Step::EditDuringSave),
        1 => Just(Step::FailedSave),
        1 => Just(Step::LostReply),
        1 => edit().prop_map(Step::OtherWriter),
        1 => Just(Step::Load),
        1 => Just(Step::Reset),
        1 => Just(Step::Recreate),
    ]
}

fn apply(edit: &Edit, state: &mut State) {
    match edit {
        Edit::Set(at, text) => {
            let behind = state.messages.to_vec().split_off(at % (state.messages.len() + 1));
            state.set_messages(std::iter::once(message(*text)).chain(behind).collect());
        }
        edit => edit.apply(&mut state.messages),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_edits_with_saves_at_any_points_load_back(steps in vec(step(), 0..30)) {
        let (mut state, mut stored) = (State::new(), Stored::default());
        stored.save(&state);
        for step in steps {
            match step {
                Step::Edit(edit) => apply(&edit, &mut state),
                Step::Save => {
                    let known = state.to_rows(Uuid::nil(), stored.expect()).unwrap().base.is_some();
                    let before = stored.clone();
                    let ids_before = ids(&state.messages);
                    let written = stored.save(&state);
                    // Exactly the positions that differ, if what is stored is known.
                    let differs = |(position, row): (&i32, &(Uuid, String))| {
                        (before.rows.get(position) != Some(row)).then_some(*position)
                    };
                    let differ: Vec<_> = stored.rows.iter().filter_map(differs).collect();
                    if known {
                        prop_assert_eq!(written, differ);
                    }
                    prop_assert!(ids(&state.messages).iter().zip(ids_before).all(|(now, before)| {
                        now.is_some() && before.is_none_or(|before| *now == Some(before))
                    }), "ids are given once");
                    prop_assert_eq!(stored.save(&state), Vec::<i32>::new(), "nothing is left to write");
                }
                Step::SaveClone(edit) => {
                    let snapshot = state.clone();
                    apply(&edit, &mut state);
                    stored.save(&snapshot);
                    let rows = state.to_rows(Uuid::nil(), stored.expect()).unwrap();
                    prop_assert_eq!(rows.base, Some(stored.write_id), "a state knows what its clone saved");
                }
                Step::EditDuringSave(edit) => {
                    let rows = state.to_rows(Uuid::nil(), stored.expect()).unwrap();
                    apply(&edit, &mut state);
                    stored.write(&rows);
                    state.remember(&rows, stored.point());
                }
                Step::FailedSave => drop(state.to_rows(Uuid::nil(), stored.expect()).unwrap()),
                Step::LostReply => {
                    let rows = state.to_rows(Uuid::nil(), stored.expect()).unwrap();
                    stored.write(&rows);
                }
                Step::OtherWriter(edit) => {
                    let mut other = stored.load().unwrap();
                    apply(&edit, &mut other);
                    stored.save(&other);
                }
                Step::Load => state = stored.load().unwrap(),
                Step::Reset => state.reset(),
                Step::Recreate => {
                    let revision = stored.revision;
                    stored = Stored::default();
                    stored.save(&State::new());
                    stored.revision = revision;
                    // What is remembered of this revision belongs to another save, which the store notices.
                    let rows = state.to_rows(Uuid::nil(), stored.expect()).unwrap();
                    prop_assert_ne!(rows.base, Some(stored.write_id));
                    stored.write(&state.to_rows(Uuid::nil(), Expect::Any).unwrap());
                }
            }
        }
        stored.save(&state);
        let loaded = stored.load().unwrap();
        prop_assert_eq!(&loaded, &state);
        prop_assert_eq!(ids(&loaded.messages), ids(&state.messages));
        let unique: HashSet<_> = ids(&loaded.messages).into_iter().collect();
        prop_assert_eq!(unique.len(), loaded.messages.len(), "no two messages have one id");
        prop_assert_eq!(stored.save(&loaded), Vec::<i32>::new(), "a load remembers");
    }

    #[test]
    fn any_state_reads_back_equal(state in strategies::state()) {
        let mut stored = Stored::default();
        stored.save(&state);
        let loaded = stored.load().unwrap();
        prop_assert_eq!(&loaded, &state);
        prop_assert_eq!(stored.save(&loaded), Vec::<i32>::new());
        prop_assert_eq!(loaded.agent_id.as_deref(), Some("agent"));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(state in strategies::state(), at in any::<usize>(), bytes in vec(any::<u8>(), 0..10)) {
        let mut stored = Stored::default();
        stored.save(&state);
        let mut header = stored.header.clone().into_bytes();
        header.truncate(at % header.len());
        header.extend(&bytes);
        let _ = read_stored("agent", &header);
        if let Some((_, data)) = stored.rows.values_mut().next() {
            data.truncate((0..=at % data.len()).rev().find(|at| data.is_char_boundary(*at)).unwrap());
            *data += &String::from_utf8_lossy(&bytes);
        }
        let _ = stored.load();
    }
}

fn conversation(len: u8) -> (State, Stored) {
    let (mut state, mut stored) = (State::new(), Stored::default());
    state.add_messages((0..len).map(message));
    assert_eq!(stored.save(&state).len(), usize::from(len));
    (state, stored)
}

#[test]
fn every_operation_of_a_state_writes_the_rows_that_differ() {
    type Change = fn(&mut State);
    let changes: [(&str, Change, &[i32]); 14] = [
        ("nothing", |_| {}, &[]),
        ("a todo or metadata", |state| state.put_metadata("key", 1), &[]),
        ("a message", |state| state.add_message(message(9)), &[200]),
        ("index", |state| state.messages[70] = message(9), &[70]),
        ("the same again", |state| state.messages[70] = message(70), &[]),
        (
            "iter_mut",
            |state| state.messages.iter_mut().filter(|one| **one == message(5)).for_each(|one| *one = message(9)),
            &[5],
        ),
        (
            "replace_tool_result",
            |state| assert!(state.replace_tool_result("a", &ToolResult::new("a", "ask", "yes"))),
            &[150],
        ),
        (
            "replace_newest_tool_result",
            |state| assert!(state.replace_newest_tool_result("a", &ToolResult::new("a", "ask", "yes"))),
            &[150],
        ),
        ("cancel_pending_interrupts", State::cancel_pending_interrupts, &[150]),
        ("clean_stale_interrupts", |state| state.clean_stale_interrupts(|_| false), &[150]),
        ("restorable", |state| state.clean_stale_interrupts(|_| true), &[]),
        (
            "set_messages",
            |state| state.set_messages(state.messages.iter().cloned().chain([message(9)]).collect()),
            &[200],
        ),
        (
            "merge",
            |state| *state = std::mem::take(state).merge(State { messages: vec![message(9)].into(), ..State::new() }),
            &[200],
        ),
        ("truncate", |state| state.messages.truncate(3), &[]),
    ];
    for (name, change, expected) in changes {
        let (mut state, mut stored) = conversation(200);
        state.messages[150] = Message::tool_results([ToolResult::interrupt("a", "ask", "…", json!(1))]);
        assert_eq!(stored.save(&state), [150]);
        change(&mut state);
        assert_eq!(stored.save(&state), expected, "{name}");
        assert_eq!(stored.load().unwrap(), state, "{name}");
    }
}

#[test]
fn a_state_that_was_reset_writes_what_is_new() {
    let (mut state, mut stored) = conversation(3);
    state.reset();
    assert_eq!(stored.save(&state), [] as [i32; 0]);
    assert_eq!(stored.rows.len(), 0);
    state.add_message(message(1));
    assert_eq!(stored.save(&state), [0]);
}

#[test]
fn messages_that_are_set_again_keep_their_ids() {
    let (mut state, mut stored) = conversation(100);
    let before = ids(&state.messages);
    let mut messages = state.messages.to_vec();
    messages.splice(1..90, [Message::system("a summary")]);
    state.set_messages(messages);
    stored.save(&state);
    let after = ids(&state.messages);
    assert_eq!((after[0], &after[2..]), (before[0], &before[90..]));
    assert!(!before.contains(&after[1]));
    // Assigned, they have no ids. What is equal to the stored message at its position is that message.
    state.messages = state.messages.to_vec().into();
    assert_eq!(stored.save(&state), [] as [i32; 0]);
    assert_eq!(ids(&state.messages), after);
    // Its id is not given to a copy.
    state.messages.insert(0, state.messages[0].clone());
    assert_eq!(stored.save(&state).len(), 13);
    assert_eq!(ids(&state.messages)[1..], after);
    assert_ne!(state.messages.id(0), state.messages.id(1));
}

#[test]
fn copies_of_a_message_get_one_id() {
    let (mut state, mut stored) = (State::new(), Stored::default());
    state.add_message(message(1));
    let snapshot = state.clone();
    state.messages[0] = message(2);
    stored.save(&snapshot);
    assert_eq!(state.messages.id(0), snapshot.messages.id(0));
    assert!(state.messages.id(0).is_some());
    assert_eq!(stored.save(&state), [0]);
}

#[test]
fn only_the_expected_revision_of_the_conversation_is_compared_with() {
    let (state, stored) = conversation(3);
    let base = |conversation, expect| state.to_rows(conversation, expect).unwrap().base;
    assert_eq!(base(Uuid::nil(), stored.expect()), Some(stored.write_id));
    for (conversation, expect) in [
        (Uuid::max(), stored.expect()),
        (Uuid::nil(), Expect::Any),
        (Uuid::nil(), Expect::NOTHING),
        (Uuid::nil(), Expect::Revision(Revision(2))),
        (Uuid::nil(), Expect::Unreadable(Revision(1))),
    ] {
        let rows = state.to_rows(conversation, expect).unwrap();
        assert_eq!((rows.base, rows.changed.len(), rows.count), (None, 3, 3), "{expect:?}");
    }
}

#[test]
fn clones_for_other_conversations_keep_what_they_remember() {
    let template = State::new();
    let points = [1, 2].map(|n| SavePoint {
        conversation_id: Uuid::from_u128(n),
        revision: Revision(1),
        write_id: Uuid::from_u128(n),
    });
    let states = points.map(|point| {
        let state = template.clone();
        state.remember(&state.to_rows(point.conversation_id, Expect::NOTHING).unwrap(), point);
        state
    });
    for (state, point) in states.iter().zip(points) {
        let rows = state.to_rows(point.conversation_id, Expect::Revision(point.revision)).unwrap();
        assert_eq!(rows.base, Some(point.write_id));
    }
}

#[test]
fn states_of_the_elixir_library_become_rows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/states.json");
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for case in cases {
        let state = serializer::deserialize_server_state("agent", case["data"].clone()).unwrap();
        assert!(ids(&state.messages).iter().all(Option::is_none), "reading makes no ids");
        let mut stored = Stored::default();
        assert_eq!(stored.save(&state).len(), state.messages.len());
        assert_eq!(stored.load().unwrap(), state, "{}", case["name"]);
    }
}

#[test]
fn a_header_is_refused_as_an_envelope() {
    let (_, stored) = conversation(1);
    let future = Err(ReadError::FutureVersion { version: 3 });
    assert_eq!(serializer::from_bytes("agent", stored.header.as_bytes()), future);
    let header: Value = serde_json::from_str(&stored.header).unwrap();
    assert_eq!(State::from_serialized("agent", header.clone()), future);
    assert_eq!(header["version"], json!(serializer::STORED_VERSION));
    assert_eq!(header["state"], json!({ "messages": { "count": 1 }, "todos": [], "metadata": {} }));
}

#[test]
fn a_header_from_the_future_is_refused_whatever_it_contains() {
    for header in [r#"{"state":7,"version":4}"#, r#"{"version":4.5}"#, r#"{"version":99999999999999999999,"state":{}}"#]
    {
        let read = read_stored("agent", header.as_bytes());
        assert!(matches!(read, Err(ReadError::FutureVersion { .. })), "{header}");
    }
}

#[test]
fn the_todos_are_read_without_the_rows() {
    let (mut state, mut stored) = conversation(3);
    state.set_todos(vec![Todo::new(1, "write")]);
    stored.save(&state);
    assert_eq!(read_stored("", stored.header.as_bytes()).unwrap().into_todos(), state.todos);
}

#[test]
fn damage_is_reported_with_its_place() {
    type Damage = fn(&mut Stored);
    let cases: [(&str, Damage); 14] = [
        ("state.messages: expected 5 rows, found 4", |stored| drop(stored.rows.remove(&4))),
        ("state.messages: expected 5 rows, found 6", |stored| drop(stored.rows.insert(5, stored.rows[&0].clone()))),
        ("state.messages: expected 5 rows, found 0", |stored| stored.rows.clear()),
        ("state.messages[2]: expected its row, found that of 3", |stored| drop(stored.rows.remove(&2))),
        ("state.messages[0]: expected its row, found that of -1", |stored| {
            drop(stored.rows.insert(-1, stored.rows[&0].clone()));
        }),
        (r#"state.messages[3].role: "robot" is not a role"#, |stored| {
            stored.rows.get_mut(&3).unwrap().1 = r#"{"role":"robot"}"#.into();
        }),
        ("state.messages[3]: expected an object, found an array", |stored| {
            stored.rows.get_mut(&3).unwrap().1 = "[]".into();
        }),
        ("state.messages[3]: invalid JSON: EOF while parsing an object at line 1 column 1", |stored| {
            stored.rows.get_mut(&3).unwrap().1 = "{".into();
        }),
        // Rows are read in batches, from the last to the first here.
        ("state.messages[3]: invalid JSON: trailing characters at line 1 column 17", |stored| {
            stored.rows.get_mut(&3).unwrap().1 = r#"{"role":"user"} {"role":"user"}"#.into();
        }),
        ("state.messages[2]: invalid JSON: expected value at line 1 column 1", |stored| {
            let text = &mut stored.rows.get_mut(&3).unwrap().1;
            let end = text.split_off(10);
            stored.rows.get_mut(&2).unwrap().1 = end;
        }),
        ("state.messages[2]: invalid JSON: EOF while parsing a value at line 1 column 0", |stored| {
            let text = stored.rows[&3].1.repeat(2);
            stored.rows.get_mut(&3).unwrap().1 = text;
            stored.rows.get_mut(&2).unwrap().1.clear();
        }),
        ("state.messages: expected an object, found an array", |stored| {
            stored.header = stored.header.replace(r#"{"count":5}"#, "[]");
        }),
        ("state.messages: expected an object, found nothing", |stored| {
            stored.header = stored.header.replace(r#"{"count":5}"#, "null");
        }),
        ("state.messages.count: expected a number, found a string", |stored| {
            stored.header = stored.header.replace(r#"{"count":5}"#, r#"{"count":"5"}"#);
        }),
    ];
    for (message, damage) in cases {
        let (_, mut stored) = conversation(5);
        damage(&mut stored);
        assert_eq!(stored.load().unwrap_err().to_string(), format!("the state is damaged: {message}"));
    }
}

#[test]
fn nesting_past_the_limit_is_refused_with_its_place() {
    let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    let deep = |value| {
        let metadata = Some([("deep".to_owned(), value)].into_iter().collect());
        Message { metadata, ..message(1) }
    };
    let (mut state, mut stored) = conversation(2);
    state.add_message(deep(nested(100)));
    assert_eq!(stored.save(&state), [2]);
    assert_eq!(stored.load().unwrap(), state);
    state.add_message(deep(nested(101)));
    let path = "state.messages[3].metadata.deep".to_owned();
    assert_eq!(state.to_rows(Uuid::nil(), stored.expect()).unwrap_err(), TooDeep { path });
    drop(state.messages.pop());
    state.put_metadata("deep", nested(101));
    let path = "state.metadata.deep".to_owned();
    assert_eq!(state.to_rows(Uuid::nil(), stored.expect()).unwrap_err(), TooDeep { path });
}
