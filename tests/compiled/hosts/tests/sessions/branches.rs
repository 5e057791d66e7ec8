//! Forks and rewinds at any point of any conversation.

use std::collections::HashMap;

use matrix::conversations::{
    ContentType, Conversations, Cut, DisplayMessage, Error, Fork, MessagePage, NewConversation,
    NewDisplayMessage, Point, Role, connect,
};
use matrix::sagents::{
    Delivery, Expect, Message, State, Todo, ToolCall, ToolResult, ToolStatus, serializer,
};
use matrix::scopes::Scope;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use uuid::Uuid;

use crate::database::{Database, STORE};
use crate::storage::{scope, user};

const USERS: &str = "INSERT INTO users (id, name) VALUES (1, 'a'), (2, 'b')";

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
    (tools, flag(0.85), flag(0.85), flag(0.15)).prop_map(
        |((calls, results), in_state, is_shown, is_late)| Entry {
            calls,
            results,
            in_state,
            is_shown,
            is_late,
        },
    )
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
    async fn read(layer: &Conversations, scope: &Scope, id: Uuid) -> Self {
        let agent = match layer.load_agent_state(scope, id).await {
            Ok(saved) => {
                let messages = saved.state.messages;
                let ids = (0..messages.len()).filter_map(|n| messages.id(n));
                ids.zip(messages.iter().cloned()).collect()
            }
            Err(Error::NotFound) => Vec::new(),
            Err(error) => panic!("{error}"),
        };
        let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
        let shown = layer.load_display_messages(scope, id, page).await;
        Self {
            agent,
            shown: shown.unwrap().items,
        }
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
                Point::Through(id) => (
                    self.position(id).map(|n| n + 1),
                    sequences(id).max().map(|n| n + 1),
                ),
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
                shown: self
                    .shown
                    .iter()
                    .filter(|row| stays(row))
                    .cloned()
                    .collect(),
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
                calls.insert(&call.call_id, (n, *id));
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

async fn write(layer: &Conversations, scope: &Scope, entries: &[Entry]) -> (Uuid, Vec<Uuid>) {
    let new = NewConversation::new().title("Plans");
    let id = layer.create_conversation(scope, new).await.unwrap().id;
    let entries: Vec<_> = entries
        .iter()
        .map(|entry| (Uuid::now_v7(), entry))
        .collect();
    let mut state = State::new();
    state.todos = vec![Todo::new(1, "Think.")];
    for (message_id, entry) in &entries {
        if entry.in_state {
            state.messages.push_with_id(*message_id, entry.message());
        }
    }
    let mut order: Vec<_> = entries.iter().filter(|(_, entry)| entry.is_shown).collect();
    for n in 1..order.len() {
        if order[n - 1].1.is_late {
            order.swap(n - 1, n);
        }
    }
    for (message_id, entry) in order {
        let message = entry.message();
        let save = layer.save_message(scope, id, *message_id, &message);
        save.await.unwrap();
    }
    if entries.iter().any(|(_, entry)| entry.in_state) {
        let save = layer.save_agent_state(scope, id, &state, Expect::NOTHING);
        save.await.unwrap();
    }
    (id, entries.into_iter().map(|(id, _)| id).collect())
}

#[test]
fn a_fork_and_a_rewind_keep_what_is_before_any_point_of_any_conversation() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let database = runtime.block_on(Database::migrated(USERS));
    let layer = Conversations::new(runtime.block_on(connect(&database.url())).unwrap());
    let other = [entry_of(&[0], &[]), entry_of(&[], &[0])];
    let (other_id, _) = runtime.block_on(write(&layer, &user(2), &other));
    let other = runtime.block_on(Content::read(&layer, &user(2), other_id));
    let point = (0_usize..12, 0_u8..5);
    let histories = (proptest::collection::vec(entry(), 0..12), point);
    let mut runner = TestRunner::new(Config {
        cases: 100,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&histories, |(entries, (n, kind))| {
        runtime.block_on(async {
            let scope = scope();
            let (id, ids) = write(&layer, &scope, &entries).await;
            let message = ids.get(n % ids.len().max(1));
            let point = match (message, kind) {
                (None, _) | (_, 0) => Point::End,
                (Some(message), 1..3) => Point::Through(*message),
                (Some(message), _) => Point::Before(*message),
            };
            let before = Content::read(&layer, &scope, id).await;
            let is_known = message.is_none_or(|message| before.has(*message));
            let forked = layer.fork_conversation(&scope, id, Fork::at(point)).await;
            let copied = layer.fork_conversation(&scope, id, Fork::new()).await;
            let copy = copied.unwrap().conversation.id;
            let copied = Content::read(&layer, &scope, copy).await;
            prop_assert_eq!(copied.clone().comparable(), before.clone().comparable());
            let rewound = layer.rewind_conversation(&scope, copy, point).await;
            if point != Point::End && !is_known {
                prop_assert!(matches!(forked, Err(Error::NotFound)));
                prop_assert!(matches!(rewound, Err(Error::NotFound)));
                return Ok(());
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
            prop_assert_eq!(forked.cut, Cut { last, moved });
            prop_assert_eq!(rewound.cut, forked.cut);
            let removed = before.shown.len() - expected.shown.len();
            prop_assert_eq!(rewound.removed, removed as u64);
            let fork = forked.conversation.id;
            for copy in [fork, copy] {
                let left = Content::read(&layer, &scope, copy).await;
                prop_assert_eq!(left.comparable(), expected.clone().comparable());
            }
            if entries.iter().any(|entry| entry.in_state) {
                let todos = layer.load_todos(&scope, fork).await.unwrap();
                prop_assert_eq!(todos.len(), 1);
            }
            prop_assert_eq!(Content::read(&layer, &scope, id).await, before);
            // Both go on.
            let message = NewDisplayMessage::text(Role::User, "more");
            for copy in [fork, copy] {
                let append = layer.append_display_message(&scope, copy, message.clone());
                let stored = append.await.unwrap();
                let newest = expected.shown.last().map_or(-1, |row| row.sequence);
                prop_assert!(stored.sequence > newest);
            }
            Ok(())
        })
    });
    result.unwrap();
    let after = runtime.block_on(Content::read(&layer, &user(2), other_id));
    assert_eq!(after, other);
}

fn entry_of(calls: &[u8], results: &[u8]) -> Entry {
    Entry {
        calls: calls.to_vec(),
        results: results.to_vec(),
        in_state: true,
        is_shown: true,
        is_late: false,
    }
}

async fn layer(database: &Database) -> Conversations {
    Conversations::new(connect(&database.url()).await.unwrap())
}

#[tokio::test]
async fn ten_thousand_messages_are_forked_and_rewound() {
    let database = Database::migrated(USERS).await;
    let (layer, scope) = (layer(&database).await, scope());
    let new = NewConversation::new();
    let id = layer.create_conversation(&scope, new).await.unwrap().id;
    let mut state = State::new();
    for n in 0..10_000 {
        let message = match n % 4 {
            0 => Message::user("hello"),
            1 => Message::tool_calls([ToolCall::new(format!("call_{n}"), "search", json!({}))]),
            2 => {
                let call_id = format!("call_{}", n - 1);
                Message::tool_results([ToolResult::new(call_id, "search", "42")])
            }
            _ => Message::assistant("It is 42."),
        };
        state.messages.push_with_id(Uuid::now_v7(), message);
    }
    let save = layer.save_agent_state(&scope, id, &state, Expect::NOTHING);
    save.await.unwrap();
    let ids: Vec<_> = (0..10_000).filter_map(|n| state.messages.id(n)).collect();
    let forked = layer.fork_conversation(&scope, id, Fork::at(Point::Before(ids[9_002])));
    let forked = forked.await.unwrap();
    assert_eq!(
        forked.cut,
        Cut {
            last: Some(ids[9_000]),
            moved: true
        }
    );
    let fork = Content::read(&layer, &scope, forked.conversation.id).await;
    assert_eq!(fork.agent.len(), 9_001);
    let rewound = layer
        .rewind_conversation(&scope, id, Point::Through(ids[3]))
        .await;
    assert_eq!(rewound.unwrap().cut.last, Some(ids[3]));
    assert_eq!(Content::read(&layer, &scope, id).await.agent.len(), 4);
}

#[tokio::test]
async fn a_state_with_its_messages_inside_is_forked_and_rewound_and_a_damaged_one_is_not() {
    let database = Database::migrated(USERS).await;
    let pool = connect(&database.url()).await.unwrap();
    let (layer, scope) = (Conversations::new(pool.clone()), scope());
    let (id, ids) = write(&layer, &scope, &[entry_of(&[], &[]), entry_of(&[0], &[])]).await;
    let state = layer.load_agent_state(&scope, id).await.unwrap().state;
    let whole = serializer::to_text(&state).unwrap();
    sqlx::query(STORE)
        .bind(&whole)
        .execute(&pool)
        .await
        .unwrap();
    let forked = layer
        .fork_conversation(&scope, id, Fork::new())
        .await
        .unwrap();
    let fork = layer
        .load_agent_state(&scope, forked.conversation.id)
        .await
        .unwrap();
    assert_eq!(fork.state.messages, state.messages);
    let rewound = layer
        .rewind_conversation(&scope, id, Point::Before(ids[1]))
        .await
        .unwrap();
    assert_eq!(rewound.removed, 1);

    let damaged = r#"{"version":3,"state":{}}"#;
    sqlx::query(STORE)
        .bind(damaged)
        .execute(&pool)
        .await
        .unwrap();
    let fork = layer.fork_conversation(&scope, id, Fork::new()).await;
    assert!(
        matches!(fork, Err(Error::DeserializationFailed(_))),
        "{fork:?}"
    );
    let rewound = layer
        .rewind_conversation(&scope, id, Point::Before(ids[0]))
        .await;
    assert!(
        matches!(rewound, Err(Error::DeserializationFailed(_))),
        "{rewound:?}"
    );
    assert_eq!(
        layer
            .load_display_messages(&scope, id, MessagePage::first())
            .await
            .unwrap()
            .items
            .len(),
        1
    );
}

#[tokio::test]
async fn drafts_runs_and_interrupts_follow_the_cut() {
    let database = Database::migrated(USERS).await;
    let (layer, scope) = (layer(&database).await, scope());
    let (id, ids) = write(&layer, &scope, &[entry_of(&[], &[]), entry_of(&[0], &[])]).await;
    let none = serde_json::Map::new;
    layer
        .interrupt_tool_call(&scope, id, "call_0", none())
        .await
        .unwrap();
    layer.set_interrupted(&scope, id, true).await.unwrap();
    let draft = Uuid::now_v7();
    layer
        .save_draft(&scope, id, draft, &Message::assistant("It"))
        .await
        .unwrap();
    let run_id = Uuid::now_v7();
    let lease = std::time::Duration::from_mins(1);
    layer
        .begin_run(&scope, id, run_id, "here", lease)
        .await
        .unwrap();

    let forked = layer
        .fork_conversation(&scope, id, Fork::new())
        .await
        .unwrap()
        .conversation;
    assert!(forked.interrupted);
    assert_eq!(layer.get_run(&scope, forked.id).await.unwrap(), None);
    let shown = Content::read(&layer, &scope, forked.id).await.shown;
    assert_eq!(shown[2].delivery, Delivery::Interrupted);
    assert_eq!(shown[1].status, Some(ToolStatus::Interrupted));
    let at = Fork::at(Point::Through(ids[0]));
    let forked = layer
        .fork_conversation(&scope, id, at)
        .await
        .unwrap()
        .conversation;
    assert!(!forked.interrupted);

    layer
        .rewind_conversation(&scope, id, Point::Through(ids[1]))
        .await
        .unwrap();
    assert!(
        layer
            .get_conversation(&scope, id)
            .await
            .unwrap()
            .interrupted
    );
    assert!(
        layer
            .get_run(&scope, id)
            .await
            .unwrap()
            .unwrap()
            .cancel_requested
    );
    layer
        .rewind_conversation(&scope, id, Point::Through(ids[0]))
        .await
        .unwrap();
    assert!(
        !layer
            .get_conversation(&scope, id)
            .await
            .unwrap()
            .interrupted
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rewinds_and_other_writers_leave_a_conversation_that_agrees() {
    let database = Database::migrated(USERS).await;
    let first = layer(&database).await;
    let (id, ids) = write(
        &first,
        &scope(),
        &[entry_of(&[], &[]), entry_of(&[0], &[0])],
    )
    .await;
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let layer = layer(&database).await;
        writers.spawn(async move {
            for _ in 0..10 {
                let saved = layer.load_agent_state(&scope(), id).await.unwrap();
                let (mut state, message_id) = (saved.state, Uuid::now_v7());
                let message = Message::user("more");
                state.messages.push_with_id(message_id, message.clone());
                let expect = Expect::Revision(saved.revision);
                match layer.save_agent_state(&scope(), id, &state, expect).await {
                    Err(Error::Conflict { .. }) => {}
                    saved => drop(saved.unwrap()),
                }
            }
        });
    }
    for _ in 0..10 {
        let rewound = first
            .rewind_conversation(&scope(), id, Point::Through(ids[1]))
            .await;
        assert_eq!(rewound.unwrap().cut.last, Some(ids[1]));
    }
    writers.join_all().await;
    first
        .rewind_conversation(&scope(), id, Point::Through(ids[1]))
        .await
        .unwrap();
    let left = Content::read(&first, &scope(), id).await;
    assert_eq!((left.agent.len(), left.shown.len()), (2, 2));
}
