//! Forks and rewinds.

mod points;
#[path = "../support/mod.rs"]
mod support;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use sagents::{
    Cut, Error, Expect, Fork, Message, NewDisplayMessage, OwnerColumn, Point, Revision, Role, State, Tables, Todo,
    TokenUsage, ToolCall, ToolResult,
};
use serde_json::json;
use support::fixture::Fixture;
use support::{TABLES, TestDatabase};
use tokio::task::JoinSet;
use uuid::Uuid;

on_both_databases!(
    a_fork_has_everything_up_to_a_message,
    a_fork_before_a_result_ends_before_its_call,
    a_fork_of_everything_equals_its_source,
    a_fork_is_created_once_even_without_its_source,
    a_fork_needs_an_id_of_its_own_and_a_known_message,
    tool_calls_that_did_not_end_do_not_run_in_a_fork,
    parallel_forks_with_one_id_are_one_fork,
    a_rewind_removes_later_messages_and_cancels_the_run,
    a_rewind_never_separates_a_call_from_its_result,
    a_rewind_without_a_state_follows_the_display_messages,
    rewinds_and_forks_beside_saves_cut_no_call_in_two,
    rewinds_and_forks_beside_appends_cut_no_call_in_two,
);

/// Tables with columns of the host's own.
const WITH_OWN_COLUMNS: Tables = Tables::new(1, "sagents_", OwnerColumn::integer("user_id"))
    .conversation_columns(&["user_id", "id", "title", "project"])
    .display_message_columns(&["user_id", "pinned"]);

const NOW: &str = "'2026-01-01T00:00:00.000000Z'";

async fn with_own_columns(database: &TestDatabase) -> Fixture {
    let db = Fixture::new(database, WITH_OWN_COLUMNS).await;
    db.pool.execute("ALTER TABLE sagents_conversations ADD COLUMN project TEXT").await;
    db.pool.execute("ALTER TABLE sagents_display_messages ADD COLUMN pinned TEXT").await;
    db
}

/// A row of the display messages, stored as it is.
struct Row<'a> {
    message: Uuid,
    item: i32,
    kind: &'a str,
    call: Option<&'a str>,
    status: Option<&'a str>,
    metadata: &'a str,
}

impl<'a> Row<'a> {
    fn text(message: Uuid) -> Self {
        Self { message, item: 0, kind: "text", call: None, status: None, metadata: "{}" }
    }

    fn call(message: Uuid, call: &'a str, status: &'a str) -> Self {
        Self { kind: "tool_call", call: Some(call), status: Some(status), ..Self::text(message) }
    }

    fn result(message: Uuid, call: &'a str) -> Self {
        Self { kind: "tool_result", call: Some(call), ..Self::text(message) }
    }
}

async fn show(db: &Fixture, id: Uuid, sequence: i64, row: Row<'_>) {
    let quoted = |text: Option<&str>| text.map_or("NULL".to_owned(), |text| format!("'{text}'"));
    let (id, message) = (db.pool.uuid(id), db.pool.uuid(row.message));
    let Row { item, kind, metadata, .. } = row;
    let (call, status) = (quoted(row.call), quoted(row.status));
    db.pool
        .execute(format!(
            "INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role, \
             content_type, content, metadata, tool_call_id, status, inserted_at, changed) \
             VALUES (1, {id}, {sequence}, {message}, {item}, 'assistant', '{kind}', 'c{sequence}', '{metadata}', \
             {call}, {status}, {NOW}, {sequence})"
        ))
        .await;
    db.pool
        .execute(format!(
            "UPDATE sagents_conversations SET next_sequence = {sequence} + 1, last_change = {sequence} WHERE id = {id}"
        ))
        .await;
}

async fn shown(db: &Fixture, id: Uuid) -> Vec<Uuid> {
    db.shown(id).await.iter().map(|row| row.message_id).collect()
}

/// The ids of the messages in the agent state.
async fn saved(db: &Fixture, id: Uuid) -> Vec<Uuid> {
    match db.load_agent_state(&db.alice, id).await {
        Ok(saved) => (0..saved.state.messages.len()).filter_map(|n| saved.state.messages.id(n)).collect(),
        Err(Error::NotFound) => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

/// A question, a call, its result and an answer, displayed and saved.
async fn talk(db: &Fixture) -> (Uuid, [Uuid; 4]) {
    let id = db.conversation().await;
    let ids = [(); 4].map(|()| Uuid::now_v7());
    let [question, call, result, answer] = ids;
    show(db, id, 0, Row::text(question)).await;
    show(db, id, 1, Row::call(call, "call_1", "completed")).await;
    show(db, id, 2, Row::result(result, "call_1")).await;
    show(db, id, 3, Row::text(answer)).await;
    let mut state = State::new();
    state.messages.push_with_id(question, Message::user("What\0 is it?"));
    let tool_call = ToolCall::new("call\0_1", "search", json!({"x": "\0"}));
    state.messages.push_with_id(call, Message::tool_calls([tool_call]));
    let tool_result = ToolResult::new("call\0_1", "search", "42\0");
    state.messages.push_with_id(result, Message::tool_results([tool_result]));
    let usage = TokenUsage::new(3, 4);
    state.messages.push_with_id(answer, Message::assistant("It is 42.").with_usage("m", usage));
    state.put_todo(Todo::new(1, "t"));
    db.save_agent_state(&db.alice, id, &state, Expect::NOTHING).await.unwrap();
    (id, ids)
}

async fn a_fork_has_everything_up_to_a_message(database: &TestDatabase) {
    let db = with_own_columns(database).await;
    let (id, [question, call, result, _]) = talk(&db).await;
    db.pool.execute("UPDATE sagents_conversations SET metadata = '{\"a\":1}', project = 'p7'").await;
    db.pool.execute("UPDATE sagents_display_messages SET pinned = 'x'").await;
    let fork = Fork::at(Point::Through(result)).title("Another\0way");
    let forked = db.fork_conversation(&db.alice, id, fork).await.unwrap();
    assert_eq!(forked.cut, Cut { last: Some(result), moved: false });
    let copy = &forked.conversation;
    let kept = vec![question, call, result];
    assert_eq!((saved(&db, copy.id).await, shown(&db, copy.id).await), (kept.clone(), kept));
    assert_eq!(copy.title.as_deref(), Some("Another\u{FFFD}way"));
    assert_eq!(copy.metadata["a"], json!(1));
    let origin = json!({"conversation_id": id, "message_id": result, "moved": false});
    assert_eq!(copy.metadata["forked_from"], origin);
    assert_eq!(db.load_todos(&db.alice, copy.id).await.unwrap().len(), 1);
    let usage = db.usage(&db.alice, copy.id).await.unwrap().total();
    assert_eq!(usage.input, 0, "a fork doesn't count the usage of its source again");

    let copied = db.pool.uuid(copy.id);
    let projects = format!("SELECT project FROM sagents_conversations WHERE id = {copied}");
    assert_eq!(db.pool.texts(projects).await, ["p7"]);
    let pinned = format!("SELECT pinned FROM sagents_display_messages WHERE conversation_id = {copied}");
    assert_eq!(db.pool.texts(pinned).await, ["x", "x", "x"]);
}

async fn a_fork_before_a_result_ends_before_its_call(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, [question, _, result, _]) = talk(&db).await;
    let forked = db.fork_conversation(&db.alice, id, Fork::at(Point::Before(result))).await.unwrap();
    assert_eq!(forked.cut, Cut { last: Some(question), moved: true });
    let copy = forked.conversation.id;
    assert_eq!((saved(&db, copy).await, shown(&db, copy).await), (vec![question], vec![question]));
}

async fn a_fork_of_everything_equals_its_source(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, ids) = talk(&db).await;
    let forked = db.fork_conversation(&db.alice, id, Fork::new()).await.unwrap();
    assert_eq!(forked.cut.last, Some(ids[3]));
    let copy = forked.conversation.id;
    for conversation in [id, copy] {
        assert_eq!((saved(&db, conversation).await, shown(&db, conversation).await), (ids.to_vec(), ids.to_vec()));
    }
    let loaded = db.load_agent_state(&db.alice, copy).await.unwrap();
    let mut state = loaded.state;
    state.add_message(Message::user("on"));
    db.save_agent_state(&db.alice, copy, &state, Expect::Revision(loaded.revision)).await.unwrap();
    assert_eq!(saved(&db, id).await, ids);
}

async fn a_fork_is_created_once_even_without_its_source(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, _) = talk(&db).await;
    let fork = Fork::new();
    let forked = db.fork_conversation(&db.alice, id, fork.clone()).await.unwrap();
    assert_eq!(db.fork_conversation(&db.alice, id, fork.clone()).await.unwrap(), forked);
    db.delete_conversation(&db.alice, id).await.unwrap();
    assert_eq!(db.fork_conversation(&db.alice, id, fork).await.unwrap(), forked);
}

async fn a_fork_needs_an_id_of_its_own_and_a_known_message(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, _) = talk(&db).await;
    assert_invalid!(db.fork_conversation(&db.alice, id, Fork::new().id(id)));
    assert_invalid!(db.fork_conversation(&db.alice, id, Fork::new().id(Uuid::nil())));
    assert_not_found!(db.fork_conversation(&db.alice, id, Fork::at(Point::Before(Uuid::now_v7()))));
    assert_not_found!(db.fork_conversation(&db.bob, id, Fork::new()));
    assert_not_found!(db.rewind_conversation(&db.bob, id, Point::End));
}

async fn tool_calls_that_did_not_end_do_not_run_in_a_fork(database: &TestDatabase) {
    const APPROVED: &str =
        r#"{"hitl_decision":"approved","decision":{"type":"approve"},"decision_claim":"x","claim":"y","k":1}"#;

    let db = Fixture::new(database, TABLES).await;
    let (id, message) = (db.conversation().await, Uuid::now_v7());
    for (n, (status, metadata)) in [
        ("pending", "{}"),
        ("pending", APPROVED),
        ("executing", "{}"),
        ("executing", APPROVED),
        ("completed", APPROVED),
        ("interrupted", "{}"),
    ]
    .into_iter()
    .enumerate()
    {
        let item = i32::try_from(n).unwrap();
        let call = format!("c{n}");
        show(&db, id, item.into(), Row { item, metadata, ..Row::call(message, &call, status) }).await;
    }
    db.pool.execute("UPDATE sagents_display_messages SET delivery = 'draft' WHERE sequence = 0").await;
    let forked = db.fork_conversation(&db.alice, id, Fork::new()).await.unwrap();
    assert!(forked.conversation.interrupted);
    let rows = db.shown(forked.conversation.id).await;
    let fact = |n: usize| {
        let status = rows[n].status.map(sagents::ToolStatus::as_str).unwrap_or_default();
        format!("{status} {} {:?}", json!(rows[n].metadata), rows[n].delivery)
    };
    assert_eq!(fact(0), "pending {} Interrupted");
    assert_eq!(fact(1), r#"interrupted {"k":1} Stored"#);
    assert_eq!(fact(2), r#"unknown {"started_elsewhere":true} Stored"#);
    assert_eq!(fact(3), r#"interrupted {"k":1,"started_elsewhere":true} Stored"#);
    assert!(fact(4).starts_with("completed") && fact(4).contains("approved"), "{}", fact(4));
    assert_eq!(fact(5), "interrupted {} Stored");
}

async fn parallel_forks_with_one_id_are_one_fork(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, _) = talk(&db).await;
    let fork = Fork::new();
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let (db, fork) = (db.clone(), fork.clone());
        callers.spawn(async move { db.fork_conversation(&db.alice, id, fork).await.unwrap() });
    }
    let forks = callers.join_all().await;
    assert!(forks.iter().all(|forked| *forked == forks[0]));
}

async fn a_rewind_removes_later_messages_and_cancels_the_run(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, [question, call, result, answer]) = talk(&db).await;
    let (alice, old) = (&db.alice, db.load_agent_state(&db.alice, id).await.unwrap());
    let literal = db.pool.uuid(id);
    db.pool
        .execute(format!(
            "INSERT INTO sagents_runs (user_id, conversation_id, run_id, holder, status, started_at, seen_at) \
             VALUES (1, {literal}, {literal}, 'h', 'running', {NOW}, {NOW})"
        ))
        .await;
    let rewound = db.rewind_conversation(alice, id, Point::Before(answer)).await.unwrap();
    assert_eq!(rewound.cut, Cut { last: Some(result), moved: false });
    assert_eq!((rewound.removed, rewound.revision), (1, Some(Revision(2))));
    let kept = vec![question, call, result];
    assert_eq!((saved(&db, id).await, shown(&db, id).await), (kept.clone(), kept));
    assert!(db.get_run(alice, id).await.unwrap().unwrap().cancel_requested);
    assert_eq!((db.counter(id, "last_change").await, db.counter(id, "last_removal").await), (4, 4));
    let changes: Vec<_> = db.shown(id).await.iter().map(|row| row.changed).collect();
    assert_eq!(changes, [0, 1, 4]);

    let late = db.save_agent_state(alice, id, &old.state, Expect::Revision(old.revision)).await;
    assert!(matches!(late, Err(Error::Conflict { current }) if Some(current) == rewound.revision), "{late:?}");
    let again = db.rewind_conversation(alice, id, Point::Through(result)).await.unwrap();
    assert_eq!((again.revision, again.removed), (rewound.revision, 0));
    assert_not_found!(db.rewind_conversation(alice, id, Point::Through(answer)));
}

async fn a_rewind_never_separates_a_call_from_its_result(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, [question, _, result, _]) = talk(&db).await;
    let rewound = db.rewind_conversation(&db.alice, id, Point::Before(result)).await.unwrap();
    assert_eq!((rewound.cut, rewound.removed), (Cut { last: Some(question), moved: true }, 3));
    let rewound = db.rewind_conversation(&db.alice, id, Point::Before(question)).await.unwrap();
    assert_eq!(rewound.cut, Cut { last: None, moved: false });
    assert_eq!((saved(&db, id).await, shown(&db, id).await), (Vec::new(), Vec::new()));
}

async fn a_rewind_without_a_state_follows_the_display_messages(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    let ids = [(); 4].map(|()| Uuid::now_v7());
    show(&db, id, 0, Row::text(ids[0])).await;
    show(&db, id, 1, Row::text(ids[1])).await;
    show(&db, id, 2, Row { item: 1, ..Row::call(ids[1], "c", "pending") }).await;
    show(&db, id, 4, Row::call(ids[2], "d", "interrupted")).await;
    show(&db, id, 5, Row::result(ids[3], "c")).await;
    db.set_interrupted(&db.alice, id, true).await.unwrap();
    let forked = db.fork_conversation(&db.alice, id, Fork::at(Point::Through(ids[3]))).await.unwrap();
    assert!(forked.conversation.interrupted);
    let rewound = db.rewind_conversation(&db.alice, id, Point::Through(ids[2])).await.unwrap();
    assert_eq!(rewound.cut, Cut { last: Some(ids[0]), moved: true });
    assert_eq!((rewound.removed, rewound.revision), (4, None));
    assert_eq!(shown(&db, id).await, [ids[0]]);
}

/// An agent saves calls with their results, while others rewind and fork.
async fn rewinds_and_forks_beside_saves_cut_no_call_in_two(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    for round in 0..6 {
        let (id, first) = (db.conversation().await, Uuid::now_v7());
        let mut state = State::new();
        state.messages.push_with_id(first, Message::user("0"));
        show(&db, id, 0, Row::text(first)).await;
        db.save_agent_state(&db.alice, id, &state, Expect::NOTHING).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(save_calls(db.clone(), id));
        tasks.spawn(rewind_often(db.clone(), id, first, round));
        tasks.spawn(fork_often(db.clone(), id));
        tasks.join_all().await;
        let loaded = db.load_agent_state(&db.alice, id).await.unwrap();
        assert!(loaded.state.open_tool_calls().is_empty());
        assert_eq!(loaded.state.messages.id(0), Some(first));
    }
}

async fn save_calls(db: Fixture, id: Uuid) {
    for n in 1..40 {
        let loaded = db.load_agent_state(&db.alice, id).await.unwrap();
        let (mut state, call) = (loaded.state, format!("c{n}"));
        state.add_messages([
            Message::assistant(format!("{n}")),
            Message::tool_calls([ToolCall::new(call.clone(), "t", json!({}))]),
            Message::tool_results([ToolResult::new(call, "t", "r")]),
        ]);
        let saved = db.save_agent_state(&db.alice, id, &state, Expect::Revision(loaded.revision)).await;
        assert!(matches!(saved, Ok(_) | Err(Error::Conflict { .. })), "{saved:?}");
    }
}

async fn rewind_often(db: Fixture, id: Uuid, first: Uuid, round: usize) {
    for n in 0..20 {
        let ids = saved(&db, id).await;
        let at = ids[(n * 7 + round) % ids.len()];
        let point = if n % 2 == 0 && at != first { Point::Before(at) } else { Point::Through(at) };
        let rewound = db.rewind_conversation(&db.alice, id, point).await;
        assert!(matches!(rewound, Ok(_) | Err(Error::NotFound)), "{rewound:?}");
    }
}

async fn fork_often(db: Fixture, id: Uuid) {
    for n in 0..20 {
        let ids = saved(&db, id).await;
        let at = ids[(n * 5 + 3) % ids.len()];
        match db.fork_conversation(&db.alice, id, Fork::at(Point::Before(at))).await {
            Ok(forked) => {
                let loaded = db.load_agent_state(&db.alice, forked.conversation.id).await.unwrap();
                assert!(loaded.state.open_tool_calls().is_empty(), "{:?}", loaded.state);
            }
            Err(Error::NotFound) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Calls and results are displayed without a state, while others rewind and fork.
async fn rewinds_and_forks_beside_appends_cut_no_call_in_two(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    for round in 0..6 {
        let id = db.conversation().await;
        append(&db, id, "text", None).await;
        let first = shown(&db, id).await[0];
        let displayed = Arc::new(Mutex::new(HashSet::new()));
        let mut tasks = JoinSet::new();
        let (writer, results) = (db.clone(), Arc::clone(&displayed));
        tasks.spawn(async move {
            for n in 0..60 {
                let call = format!("c{n}");
                append(&writer, id, "tool_call", Some(&call)).await;
                append(&writer, id, "text", None).await;
                append(&writer, id, "tool_result", Some(&call)).await;
                results.lock().unwrap().insert(call);
            }
        });
        for person in 0..2 {
            tasks.spawn(cut_often(db.clone(), id, first, round + person));
        }
        tasks.join_all().await;
        let rows = db.shown(id).await;
        let (calls, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.status.is_some());
        for call in calls.iter().filter_map(|row| row.tool_call_id.as_ref()) {
            let has_result = others.iter().any(|row| row.tool_call_id.as_ref() == Some(call));
            assert!(has_result || !displayed.lock().unwrap().contains(call), "{call} lost its result: {rows:?}");
        }
    }
}

async fn cut_often(db: Fixture, id: Uuid, first: Uuid, seed: usize) {
    for n in 0..30 {
        let ids = shown(&db, id).await;
        let at = ids[(n * 7 + seed) % ids.len()];
        let point = if n % 2 == 0 && at != first { Point::Before(at) } else { Point::Through(at) };
        let forked = db.fork_conversation(&db.alice, id, Fork::at(point)).await;
        assert!(matches!(forked, Ok(_) | Err(Error::NotFound)), "{forked:?}");
        if n % 3 == 0 {
            let rewound = db.rewind_conversation(&db.alice, id, Point::Through(at)).await;
            assert!(matches!(rewound, Ok(_) | Err(Error::NotFound)), "{rewound:?}");
        }
    }
}

async fn append(db: &Fixture, id: Uuid, kind: &str, call: Option<&str>) {
    let call = call.unwrap_or_default();
    let new = match kind {
        "tool_call" => NewDisplayMessage::tool_call(call, "c"),
        "tool_result" => NewDisplayMessage::tool_result(call, "c"),
        _ => NewDisplayMessage::text(Role::Assistant, "c"),
    };
    db.append_display_message(&db.alice, id, new).await.unwrap();
}
