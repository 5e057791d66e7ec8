//! Forks and rewinds at any point of any conversation, beside a simple model in memory.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sagents::{
    ContentType, Cut, Delivery, DisplayMessage, Error, Expect, Fork, Message, MessagePage, NewDisplayMessage, Owner,
    Point, Role, State, Todo, ToolCall, ToolResult, ToolStatus,
};
use serde_json::{Map, json};
use tokio::runtime::Handle;
use tokio::task::{JoinSet, block_in_place};
use uuid::Uuid;

use crate::on_both_databases;
use crate::support::context::NewConversation;
use crate::support::fixture::Fixture;
use crate::support::{TABLES, TestDatabase};

on_both_databases!(
    a_fork_and_a_rewind_keep_everything_before_any_point_of_any_conversation,
    ten_thousand_messages_are_forked_and_rewound,
    drafts_runs_and_interrupts_follow_the_cut,
    rewinds_and_other_writers_leave_a_conversation_that_agrees,
);

/// A message, and where it is.
#[derive(Debug, Clone)]
struct Entry {
    /// The ids of its calls and of its results are few, so that they are used again.
    calls: Vec<u8>,
    results: Vec<u8>,
    in_state: bool,
    is_shown: bool,
    /// The next one is displayed before it.
    is_late: bool,
}

fn entry() -> impl Strategy<Value = Entry> {
    let tools = prop_oneof![
        3 => Just((Vec::new(), Vec::new())),
        2 => proptest::collection::vec(0_u8..3, 1..3).prop_map(|calls| (calls, Vec::new())),
        3 => proptest::collection::vec(0_u8..3, 1..3).prop_map(|results| (Vec::new(), results)),
    ];
    let flag = |weight| proptest::bool::weighted(weight);
    (tools, flag(0.85), flag(0.85), flag(0.15)).prop_map(|((calls, results), in_state, is_shown, is_late)| Entry {
        calls,
        results,
        in_state,
        is_shown,
        is_late,
    })
}

impl Entry {
    fn message(&self) -> Message {
        let id = |n: &u8| format!("call_{n}");
        if !self.calls.is_empty() {
            let call = |n| ToolCall::new(id(n), "search", json!({ "tool_results": [n] }));
            return Message::tool_calls(self.calls.iter().map(call));
        }
        if !self.results.is_empty() {
            // Agent states can have U+0000.
            let result = |n| ToolResult::new(id(n), "search", "\"tool_calls\": \0");
            return Message::tool_results(self.results.iter().map(result));
        }
        Message::user("hello")
    }
}

/// What a conversation has: the agent's messages, and the display messages.
#[derive(Debug, Clone, PartialEq)]
struct Content {
    agent: Vec<(Uuid, Message)>,
    shown: Vec<DisplayMessage>,
}

impl Content {
    async fn read(db: &Fixture, owner: &Owner, id: Uuid) -> Self {
        let agent = match db.load_agent_state(owner, id).await {
            Ok(saved) => {
                let messages = saved.state.messages;
                let ids = (0..messages.len()).filter_map(|n| messages.id(n));
                ids.zip(messages.iter().cloned()).collect()
            }
            Err(Error::NotFound) => Vec::new(),
            Err(error) => panic!("{error}"),
        };
        let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
        Self { agent, shown: db.load_display_messages(owner, id, page).await.unwrap().items }
    }

    /// Without what differs between a conversation and its fork.
    fn comparable(mut self) -> Self {
        for row in &mut self.shown {
            (row.conversation_id, row.changed) = (Uuid::nil(), 0);
        }
        self
    }

    fn position(&self, id: Uuid) -> Option<usize> {
        self.agent.iter().position(|(other, _)| *other == id)
    }

    fn has(&self, id: Uuid) -> bool {
        self.position(id).is_some() || self.shown.iter().any(|row| row.message_id == id)
    }

    /// What stays, and whether the cut was moved.
    fn cut(&self, to: Point) -> (Self, bool) {
        let (mut point, mut moved) = (to, false);
        let (mut position, mut sequence) = (self.agent.len(), i64::MAX);
        loop {
            let sequences = |id: Uuid| {
                let rows = self.shown.iter().filter(move |row| row.message_id == id);
                rows.map(|row| row.sequence)
            };
            let (in_state, shown) = match point {
                Point::End => (None, None),
                Point::Through(id) => (self.position(id).map(|n| n + 1), sequences(id).max().map(|n| n + 1)),
                Point::Before(id) => (self.position(id), sequences(id).min()),
            };
            let behind_shown = shown.and_then(|cut| {
                let behind = self.shown.iter().filter(|row| row.sequence >= cut);
                behind.filter_map(|row| self.position(row.message_id)).min()
            });
            let behind_state = in_state.and_then(|cut| {
                let behind = self.agent.iter().skip(cut);
                behind.flat_map(|(id, _)| sequences(*id)).min()
            });
            position = position.min(in_state.or(behind_shown).unwrap_or(usize::MAX));
            sequence = sequence.min(shown.or(behind_state).unwrap_or(i64::MAX));
            let stays = |row: &DisplayMessage| match self.position(row.message_id) {
                Some(n) => n < position,
                None => row.sequence < sequence,
            };
            let kept = Self {
                agent: self.agent[..position].to_vec(),
                shown: self.shown.iter().filter(|row| stays(row)).cloned().collect(),
            };
            match self.separated(&kept) {
                None => return (kept, moved),
                Some(id) => (point, moved) = (Point::Before(id), true),
            }
        }
    }

    /// The first message that stays, with a call that has a result which does not.
    fn separated(&self, kept: &Self) -> Option<Uuid> {
        let (mut calls, mut separated) = (HashMap::new(), Vec::new());
        for (n, (id, message)) in self.agent.iter().enumerate() {
            for call in &message.tool_calls {
                calls.insert(&call.tool_call_id, (n, *id));
            }
            for result in &message.tool_results {
                let call = calls.get(&result.tool_call_id);
                let call = call.filter(|(call, _)| *call < kept.agent.len());
                separated.extend(call.filter(|_| n >= kept.agent.len()).copied());
            }
        }
        if let Some((_, id)) = separated.into_iter().min() {
            return Some(id);
        }
        let (mut calls, mut separated) = (HashMap::new(), Vec::new());
        for row in &self.shown {
            match row.content_type {
                ContentType::ToolCall => drop(calls.insert(&row.tool_call_id, row)),
                ContentType::ToolResult => {
                    let call = calls.get(&row.tool_call_id);
                    let call = call.filter(|call| kept.shown.contains(call));
                    separated.extend(call.filter(|_| !kept.shown.contains(row)).copied());
                }
                _ => {}
            }
        }
        let first = separated.into_iter().min_by_key(|call| call.sequence);
        first.map(|call| call.message_id)
    }
}

async fn write(db: &Fixture, owner: &Owner, entries: &[Entry]) -> (Uuid, Vec<Uuid>) {
    let id = db.create_conversation(owner, NewConversation::new().title("Plans")).await.unwrap().id;
    let entries: Vec<_> = entries.iter().map(|entry| (Uuid::now_v7(), entry)).collect();
    let mut state = State::new();
    state.todos = vec![Todo::new(1, "Think.")];
    for (message_id, entry) in entries.iter().filter(|(_, entry)| entry.in_state) {
        state.messages.push_with_id(*message_id, entry.message());
    }
    let mut order: Vec<_> = entries.iter().filter(|(_, entry)| entry.is_shown).collect();
    for n in 1..order.len() {
        if order[n - 1].1.is_late {
            order.swap(n - 1, n);
        }
    }
    for (message_id, entry) in order {
        db.save_message(owner, id, *message_id, &entry.message()).await.unwrap();
    }
    if entries.iter().any(|(_, entry)| entry.in_state) {
        db.save_agent_state(owner, id, &state, Expect::NOTHING).await.unwrap();
    }
    (id, entries.into_iter().map(|(id, _)| id).collect())
}

async fn a_fork_and_a_rewind_keep_everything_before_any_point_of_any_conversation(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (other_id, _) = write(&db, &db.bob, &[entry_of(&[0], &[]), entry_of(&[], &[0])]).await;
    let other = Content::read(&db, &db.bob, other_id).await;
    let histories = (proptest::collection::vec(entry(), 0..12), (0_usize..12, 0_u8..5));
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(100) });
    block_in_place(|| {
        let outcome = runner.run(&histories, |(entries, (n, kind))| {
            Handle::current().block_on(Box::pin(cut_anywhere(&db, &entries, n, kind)));
            Ok(())
        });
        outcome.unwrap();
    });
    assert_eq!(Content::read(&db, &db.bob, other_id).await, other);
}

async fn cut_anywhere(db: &Fixture, entries: &[Entry], n: usize, kind: u8) {
    let alice = &db.alice;
    let (id, ids) = write(db, alice, entries).await;
    let message = ids.get(n % ids.len().max(1));
    let point = match (message, kind) {
        (None, _) | (_, 0) => Point::End,
        (Some(message), 1..3) => Point::Through(*message),
        (Some(message), _) => Point::Before(*message),
    };
    let before = Content::read(db, alice, id).await;
    let forked = db.fork_conversation(alice, id, Fork::at(point)).await;
    let copy = db.fork_conversation(alice, id, Fork::new()).await.unwrap().conversation.id;
    let copied = Content::read(db, alice, copy).await;
    assert_eq!(copied.comparable(), before.clone().comparable());
    let rewound = db.rewind_conversation(alice, copy, point).await;
    if point != Point::End && !message.is_none_or(|message| before.has(*message)) {
        assert!(matches!(forked, Err(Error::NotFound)));
        assert!(matches!(rewound, Err(Error::NotFound)));
        return;
    }
    let (forked, rewound) = (forked.unwrap(), rewound.unwrap());
    let (expected, moved) = before.cut(point);
    let last = match point {
        Point::Through(id) if !moved => Some(id),
        _ => {
            let shown = expected.shown.last().map(|row| row.message_id);
            shown.or(expected.agent.last().map(|(id, _)| *id))
        }
    };
    assert_eq!(forked.cut, Cut { last, moved });
    assert_eq!(rewound.cut, forked.cut);
    assert_eq!(rewound.removed, (before.shown.len() - expected.shown.len()) as u64);
    let fork = forked.conversation.id;
    for copy in [fork, copy] {
        let left = Content::read(db, alice, copy).await;
        assert_eq!(left.comparable(), expected.clone().comparable());
    }
    if entries.iter().any(|entry| entry.in_state) {
        assert_eq!(db.load_todos(alice, fork).await.unwrap().len(), 1);
    }
    assert_eq!(Content::read(db, alice, id).await, before);
    // Both go on.
    let newest = expected.shown.last().map_or(-1, |row| row.sequence);
    for copy in [fork, copy] {
        let more = NewDisplayMessage::text(Role::User, "more");
        assert!(db.append_display_message(alice, copy, more).await.unwrap().sequence > newest);
    }
}

fn entry_of(calls: &[u8], results: &[u8]) -> Entry {
    Entry { calls: calls.to_vec(), results: results.to_vec(), in_state: true, is_shown: true, is_late: false }
}

async fn ten_thousand_messages_are_forked_and_rewound(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    let mut state = State::new();
    for n in 0..10_000 {
        let message = match n % 4 {
            0 => Message::user("hello"),
            1 => Message::tool_calls([ToolCall::new(format!("call_{n}"), "search", json!({}))]),
            2 => Message::tool_results([ToolResult::new(format!("call_{}", n - 1), "search", "42")]),
            _ => Message::assistant("It is 42."),
        };
        state.messages.push_with_id(Uuid::now_v7(), message);
    }
    db.save_agent_state(alice, id, &state, Expect::NOTHING).await.unwrap();
    let ids: Vec<_> = (0..10_000).filter_map(|n| state.messages.id(n)).collect();
    let forked = db.fork_conversation(alice, id, Fork::at(Point::Before(ids[9_002]))).await.unwrap();
    assert_eq!(forked.cut, Cut { last: Some(ids[9_000]), moved: true });
    assert_eq!(Content::read(&db, alice, forked.conversation.id).await.agent.len(), 9_001);
    let rewound = db.rewind_conversation(alice, id, Point::Through(ids[3])).await.unwrap();
    assert_eq!(rewound.cut.last, Some(ids[3]));
    assert_eq!(Content::read(&db, alice, id).await.agent.len(), 4);
}

async fn drafts_runs_and_interrupts_follow_the_cut(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let alice = &db.alice;
    let (id, ids) = write(&db, alice, &[entry_of(&[], &[]), entry_of(&[0], &[])]).await;
    db.interrupt_tool_call(alice, id, "call_0", Map::new()).await.unwrap();
    db.set_interrupted(alice, id, true).await.unwrap();
    db.save_draft(alice, id, Uuid::now_v7(), &Message::assistant("It")).await.unwrap();
    db.begin_run(alice, id, Uuid::now_v7(), "here", Duration::from_mins(1)).await.unwrap();

    let forked = db.fork_conversation(alice, id, Fork::new()).await.unwrap().conversation;
    assert!(forked.interrupted);
    assert_eq!(db.get_run(alice, forked.id).await.unwrap(), None);
    let shown = Content::read(&db, alice, forked.id).await.shown;
    assert_eq!(shown[2].delivery, Delivery::Interrupted);
    assert_eq!(shown[1].status, Some(ToolStatus::Interrupted));
    let forked = db.fork_conversation(alice, id, Fork::at(Point::Through(ids[0]))).await.unwrap();
    assert!(!forked.conversation.interrupted);

    db.rewind_conversation(alice, id, Point::Through(ids[1])).await.unwrap();
    assert!(db.get_conversation(alice, id).await.unwrap().interrupted);
    assert!(db.get_run(alice, id).await.unwrap().unwrap().cancel_requested);
    db.rewind_conversation(alice, id, Point::Through(ids[0])).await.unwrap();
    assert!(!db.get_conversation(alice, id).await.unwrap().interrupted);
}

async fn rewinds_and_other_writers_leave_a_conversation_that_agrees(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, ids) = write(&db, &db.alice, &[entry_of(&[], &[]), entry_of(&[0], &[0])]).await;
    let mut writers = JoinSet::new();
    for _ in 0..3 {
        let (store, owner) = (database.connect(&TABLES).await, db.alice.clone());
        writers.spawn(async move {
            for _ in 0..10 {
                let saved = store.load_agent_state(&owner, id).await.unwrap();
                let (mut state, expect) = (saved.state, Expect::Revision(saved.revision));
                state.messages.push_with_id(Uuid::now_v7(), Message::user("more"));
                match store.save_agent_state(&owner, id, &state, expect).await {
                    Err(Error::Conflict { .. }) => {}
                    saved => drop(saved.unwrap()),
                }
            }
        });
    }
    for _ in 0..10 {
        let rewound = db.rewind_conversation(&db.alice, id, Point::Through(ids[1])).await.unwrap();
        assert_eq!(rewound.cut.last, Some(ids[1]));
    }
    writers.join_all().await;
    db.rewind_conversation(&db.alice, id, Point::Through(ids[1])).await.unwrap();
    let left = Content::read(&db, &db.alice, id).await;
    assert_eq!((left.agent.len(), left.shown.len()), (2, 2));
}
