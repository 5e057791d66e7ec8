//! Many callers at once: tasks of one process, and several processes, each with a pool of its own.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sagents::session::{AgentSession, Coordinator, Faults, SessionOptions};
use sagents::sqlx::pool::PoolConnection;
use sagents::sqlx::{Database, Pool};
use sagents::{
    BeginRun, ChangeCursor, Claim, Content, ContentPart, Decided, Decision, Delivery, DisplayMessage, Error, Expect,
    Message, MessagePage, NewDisplayMessage, Owner, Role, RunStatus, RunUpdate, SearchPage, State, Store, ToolCall,
};
use serde_json::{Map, json};
use support::context::{Conversations, NewConversation};
use support::fixture::sequences;
use support::{TABLES, TestDatabase};
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

on_both_databases!(
    sixteen_tasks_of_one_pool_leave_no_gap_and_no_tie,
    four_tasks_on_each_of_four_pools_leave_no_gap_and_no_tie,
    one_of_two_hundred_decisions_is_claimed,
    one_of_two_hundred_decisions_through_sessions_is_claimed,
    one_of_many_processes_runs_the_agent,
    a_run_that_keeps_another_from_beginning_is_running,
    a_reader_who_reconnects_sees_every_message_as_it_is_in_the_end,
    everything_that_several_processes_send_is_stored_once_and_in_one_order,
    calls_that_write_are_small_futures,
    a_call_beside_sessions_that_all_save_waits_for_a_few_of_them,
    a_state_that_waits_for_a_connection_is_not_text_yet,
);

const LEASE: Duration = Duration::from_secs(30);

fn alice() -> Owner {
    Owner::new("user", 1)
}

/// Stores with pools of their own, and a conversation.
async fn processes(database: &TestDatabase, count: usize) -> (Vec<Conversations>, Uuid) {
    let mut processes = vec![database.store(&TABLES).await];
    while processes.len() < count {
        processes.push(database.connect(&TABLES).await);
    }
    let id = processes[0].create_conversation(&alice(), NewConversation::new()).await.unwrap().id;
    (processes, id)
}

/// A session of the conversation in each process.
async fn sessions(processes: &[Conversations], id: Uuid) -> Vec<AgentSession> {
    let mut sessions = Vec::new();
    for process in processes {
        sessions.push(Coordinator::new(process).start(&alice(), id).await.unwrap());
    }
    sessions
}

async fn shown(process: &Conversations, id: Uuid) -> Vec<DisplayMessage> {
    let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
    process.load_display_messages(&alice(), id, page).await.unwrap().items
}

async fn append(process: &Conversations, id: Uuid, new: NewDisplayMessage) -> DisplayMessage {
    process.append_display_message(&alice(), id, new).await.unwrap()
}

async fn sixteen_tasks_of_one_pool_leave_no_gap_and_no_tie(database: &TestDatabase) {
    append_from(database, 1, 16).await;
}

async fn four_tasks_on_each_of_four_pools_leave_no_gap_and_no_tie(database: &TestDatabase) {
    append_from(database, 4, 4).await;
}

/// Every task appends messages of its own, and one that all of them have.
async fn append_from(database: &TestDatabase, pools: usize, tasks: usize) {
    const EACH: usize = 20;

    let (processes, id) = processes(database, pools).await;
    let shared = NewDisplayMessage::text(Role::System, "appended by all, stored once");
    let mut writers = JoinSet::new();
    for process in &processes {
        for _ in 0..tasks {
            let (process, shared) = (process.clone(), shared.clone());
            writers.spawn(async move {
                let mut appended = Vec::new();
                for n in 0..EACH {
                    let message = NewDisplayMessage::text(Role::User, format!("message {n}"));
                    let (own, common) =
                        tokio::join!(append(&process, id, message), append(&process, id, shared.clone()));
                    appended.push((own.sequence, common.sequence));
                }
                appended
            });
        }
    }
    let appended: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
    let common: BTreeSet<_> = appended.iter().map(|(_, common)| *common).collect();
    assert_eq!(common.len(), 1, "all got the same row");
    let own: BTreeSet<_> = appended.iter().map(|(own, _)| *own).collect();
    assert_eq!(own.len(), appended.len(), "no two got the same sequence");
    let expected: Vec<_> = (0..).take(pools * tasks * EACH + 1).collect();
    assert_eq!(sequences(&shown(&processes[0], id).await), expected);
}

/// Every process decides differently, and all but one learn the decision of another.
async fn one_of_two_hundred_decisions_is_claimed(database: &TestDatabase) {
    let (processes, id) = processes(database, 4).await;
    append(&processes[0], id, NewDisplayMessage::tool_call("call_1", "search")).await;
    // First they race for the call itself.
    let mut claims = JoinSet::new();
    for n in 0..20 {
        let process = processes[n % 4].clone();
        claims.spawn(async move {
            let claim = process.claim_tool_call(&alice(), id, "call_1", Uuid::now_v7()).await;
            matches!(claim.unwrap(), Claim::Claimed(_))
        });
    }
    let claimed = claims.join_all().await;
    assert_eq!(claimed.iter().filter(|is_claimed| **is_claimed).count(), 1);
    processes[0].interrupt_tool_call(&alice(), id, "call_1", Map::new()).await.unwrap();

    let mut decisions = JoinSet::new();
    for n in 0..200 {
        let (process, claim, decision) = (processes[n % 4].clone(), Uuid::now_v7(), decision(n));
        decisions.spawn(async move {
            let decide = async || process.decide_tool_call(&alice(), id, "call_1", &decision, claim).await.unwrap();
            let decided = decide().await;
            assert_eq!(decide().await, decided, "a repeated call has the same reply");
            match decided {
                Decided::Claimed(call) => (decision, call, true),
                Decided::Already(decision, call) => (decision, call, false),
            }
        });
    }
    let decided = decisions.join_all().await;
    let claimed: Vec<_> = decided.iter().filter(|(_, _, is_claimed)| *is_claimed).collect();
    let [(decision, call, _)] = claimed[..] else { panic!("{} callers act", claimed.len()) };
    assert_eq!(call.status, Some(decision.status()));
    assert!(decided.iter().all(|other| (&other.0, &other.1) == (decision, call)));
}

fn decision(n: usize) -> Decision {
    match n % 3 {
        0 => Decision::Approve,
        1 => Decision::Edit { arguments: json!({ "n": n }) },
        _ => Decision::Reject { reason: Some(n.to_string()) },
    }
}

async fn one_of_two_hundred_decisions_through_sessions_is_claimed(database: &TestDatabase) {
    let (processes, id) = processes(database, 4).await;
    let sessions = sessions(&processes, id).await;
    let asking = &sessions[0];
    let call = Message::tool_calls([ToolCall::new("call_1", "pay", json!({}))]);
    asking.add_message(Uuid::now_v7(), call).unwrap();
    asking.interrupt_tool_call("call_1", json!({})).unwrap();
    asking.save().await.unwrap();

    let mut deciding = JoinSet::new();
    for n in 0..200 {
        let (session, decision) = (sessions[n % sessions.len()].clone(), decision(n));
        deciding.spawn(async move {
            let decided = session.decide_tool_call("call_1", decision.clone()).await;
            (decision, decided.unwrap())
        });
    }
    let (mut claimed, mut others) = (Vec::new(), Vec::new());
    for (own, decided) in deciding.join_all().await {
        match decided {
            Decided::Claimed(_) => claimed.push(own),
            Decided::Already(decision, _) => others.push(decision),
        }
    }
    assert_eq!((claimed.len(), others.len()), (1, 199));
    assert!(others.iter().all(|decision| *decision == claimed[0]));
}

async fn one_of_many_processes_runs_the_agent(database: &TestDatabase) {
    let (processes, id) = processes(database, 4).await;
    for _ in 0..3 {
        let mut callers = JoinSet::new();
        for n in 0..40 {
            let process = processes[n % 4].clone();
            callers.spawn(async move {
                match process.begin_run(&alice(), id, Uuid::now_v7(), "here", LEASE).await.unwrap() {
                    BeginRun::Started(run) => (run.id, true),
                    BeginRun::Busy(run) => (run.id, false),
                }
            });
        }
        let replies = callers.join_all().await;
        let started: Vec<_> = replies.iter().filter(|(_, is_started)| *is_started).collect();
        assert_eq!(started.len(), 1, "{replies:?}");
        assert!(replies.iter().all(|(run, _)| *run == started[0].0));
        let end = RunUpdate::End(RunStatus::Failed);
        let _ = processes[0].update_run(&alice(), id, started[0].0, end).await.unwrap();
    }
}

async fn a_run_that_keeps_another_from_beginning_is_running(database: &TestDatabase) {
    let (processes, id) = processes(database, 4).await;
    let mut callers = JoinSet::new();
    for process in processes {
        callers.spawn(async move {
            for _ in 0..150 {
                match process.begin_run(&alice(), id, Uuid::now_v7(), "here", LEASE).await.unwrap() {
                    BeginRun::Started(run) => {
                        let end = RunUpdate::End(RunStatus::Finished);
                        let _ = process.update_run(&alice(), id, run.id, end).await.unwrap();
                    }
                    BeginRun::Busy(run) => assert_eq!(run.status, RunStatus::Running),
                }
            }
        });
    }
    callers.join_all().await;
}

/// Two processes write messages, drafts and tool calls, while readers lose their connection again and again.
async fn a_reader_who_reconnects_sees_every_message_as_it_is_in_the_end(database: &TestDatabase) {
    let (processes, id) = processes(database, 2).await;
    let mut writers = JoinSet::new();
    for (n, process) in processes.iter().cloned().enumerate() {
        writers.spawn(async move {
            for step in 0..15 {
                write_turn(&process, id, n * 100 + step).await;
            }
        });
    }
    let readers = [1, 2, 5, 10, 100].map(|limit| tokio::spawn(follow(processes[0].clone(), id, limit)));
    let mut watch = processes[1].watch(&alice(), id, ChangeCursor::START).unwrap();
    let watched = tokio::spawn(async move {
        let mut seen = BTreeMap::new();
        loop {
            for row in watch.next().await.unwrap().items {
                if row.content == "the end" {
                    return seen;
                }
                seen.insert(row.sequence, row);
            }
        }
    });
    writers.join_all().await;
    append(&processes[0], id, NewDisplayMessage::text(Role::System, "the end")).await;

    let stored = shown(&processes[0], id).await.into_iter().filter(|row| row.content != "the end");
    let expected: BTreeMap<_, _> = stored.map(|row| (row.sequence, row)).collect();
    assert_eq!(expected.len(), 2 * 15 * 4);
    for seen in readers {
        assert_eq!(seen.await.unwrap(), expected);
    }
    let mut watched = watched.await.unwrap();
    watched.retain(|sequence, _| expected.contains_key(sequence));
    assert_eq!(watched, expected);
}

/// Reads changes until the end, from a cursor that is text in between.
async fn follow(process: Conversations, id: Uuid, limit: u32) -> BTreeMap<i64, DisplayMessage> {
    let (mut seen, mut cursor) = (BTreeMap::new(), ChangeCursor::START.to_string());
    loop {
        let read = process.changes(&alice(), id, cursor.parse().unwrap(), limit).await.unwrap();
        if read.reset {
            seen.clear();
        }
        for row in read.items {
            if row.content == "the end" {
                return seen;
            }
            if row.delivery != Delivery::Draft {
                // A message takes the place of its drafts.
                seen.retain(|_, other: &mut DisplayMessage| {
                    other.delivery != Delivery::Draft || other.message_id != row.message_id
                });
            }
            seen.insert(row.sequence, row);
        }
        cursor = read.next.to_string();
        tokio::time::sleep(Duration::from_millis(u64::from(limit % 7))).await;
    }
}

/// Leaves four display messages. One item of the first draft is gone in the end.
async fn write_turn(process: &Conversations, id: Uuid, n: usize) {
    let (alice, message_id, call_id) = (alice(), Uuid::now_v7(), format!("call_{n}"));
    let thinking = |texts: &[&str], text: &str| {
        let mut parts: Vec<_> = texts.iter().map(|text| ContentPart::thinking(*text)).collect();
        parts.push(ContentPart::text(text));
        Message::new(Role::Assistant, Some(Content::Parts(parts)))
    };
    for text in ["I", "I think"] {
        process.save_draft(&alice, id, message_id, &thinking(&["hm", "or"], text)).await.unwrap();
    }
    let mut whole = thinking(&["hm"], "I think so.");
    if n.is_multiple_of(2) {
        whole.tool_calls = vec![ToolCall::new(&call_id, "search", json!({}))];
    }
    process.save_message(&alice, id, message_id, &whole).await.unwrap();
    if n.is_multiple_of(2) {
        process.claim_tool_call(&alice, id, &call_id, message_id).await.unwrap();
        process.interrupt_tool_call(&alice, id, &call_id, Map::new()).await.unwrap();
        process.decide_tool_call(&alice, id, &call_id, &Decision::Approve, message_id).await.unwrap();
        process.complete_tool_call(&alice, id, &call_id, Map::new()).await.unwrap();
    } else {
        // A message that is never stored.
        process.save_draft(&alice, id, Uuid::now_v7(), &Message::assistant("half")).await.unwrap();
    }
    append(process, id, NewDisplayMessage::text(Role::User, format!("message {n}"))).await;
}

async fn everything_that_several_processes_send_is_stored_once_and_in_one_order(database: &TestDatabase) {
    const EACH: usize = 10;

    let (processes, id) = processes(database, 3).await;
    let mut sending = JoinSet::new();
    for session in sessions(&processes, id).await {
        sending.spawn(async move {
            for _ in 0..EACH {
                let message_id = Uuid::now_v7();
                let message = Message::user(message_id.to_string());
                session.send_message(message_id, message.clone()).await.unwrap();
                session.send_message(message_id, message).await.unwrap();
            }
        });
    }
    sending.join_all().await;
    let saved = processes[0].load_agent_state(&alice(), id).await.unwrap();
    let messages = &saved.state.messages;
    let saved: BTreeSet<_> = (0..messages.len()).map(|n| messages.id(n)).collect();
    assert_eq!((messages.len(), saved.len()), (3 * EACH, 3 * EACH));
    let shown: BTreeSet<_> = shown(&processes[0], id).await.iter().map(|row| Some(row.message_id)).collect();
    assert_eq!(shown, saved);
}

/// Without the driver's own checks, as in a release, its future of a connection has several kilobytes. It's not part of
/// a call's future.
async fn calls_that_write_are_small_futures(database: &TestDatabase) {
    const LARGEST: usize = 5 << 10;

    let (processes, id) = processes(database, 1).await;
    let (store, alice, state) = (&processes[0], alice(), State::new());
    let message = NewDisplayMessage::text(Role::User, "a");
    let sizes = [
        size_of_val(&store.append_display_message(&alice, id, message)),
        size_of_val(&store.save_agent_state(&alice, id, &state, Expect::Any)),
        size_of_val(&store.claim_tool_call(&alice, id, "call", id)),
        size_of_val(&store.search_messages(&alice, "a", SearchPage::first())),
    ];
    assert!(sizes.iter().all(|size| *size < LARGEST), "{sizes:?}");
}

async fn a_call_beside_sessions_that_all_save_waits_for_a_few_of_them(database: &TestDatabase) {
    const SESSIONS: usize = 200;

    let (processes, id) = processes(database, 1).await;
    let (store, options, record) = (&processes[0], SessionOptions::default(), Arc::new(Faults::default()));
    let coordinator = Coordinator::with_faults(store, options.clone(), Arc::clone(&record));
    let text = "a sentence of a long conversation. ".repeat(300);
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let id = store.create_conversation(&alice(), NewConversation::new()).await.unwrap().id;
        let session = coordinator.start(&alice(), id).await.unwrap();
        session.change(|state| state.add_message(Message::user(&text))).unwrap();
        sessions.push(session);
    }
    for session in &sessions {
        session.complete_run().unwrap();
    }
    let saves = || usize::try_from(coordinator.stats().saves).unwrap();
    let mut appends = 0;
    while saves() < SESSIONS {
        append(store, id, NewDisplayMessage::text(Role::User, "hello")).await;
        appends += 1;
    }
    assert!(appends > SESSIONS / 20, "{appends}");
    assert!(record.most_saves_at_once() <= options.max_concurrent_saves);
    let report = coordinator.shutdown(Duration::MAX).await;
    assert_eq!((report.saved, saves()), (SESSIONS, SESSIONS));
}

/// Many saves that wait for a connection don't hold the texts of their states.
async fn a_state_that_waits_for_a_connection_is_not_text_yet(database: &TestDatabase) {
    let (processes, id) = processes(database, 1).await;
    match &processes[0] {
        Conversations::Sqlite(store) => save_without_a_connection(store, store.pool(), id).await,
        Conversations::Postgres(store) => save_without_a_connection(store, store.pool(), id).await,
    }
}

async fn save_without_a_connection<D: Database>(store: &Store, pool: &Pool<D>, id: Uuid) {
    let mut taken: Vec<PoolConnection<D>> = Vec::new();
    for _ in 0..pool.options().get_max_connections() {
        taken.push(pool.acquire().await.unwrap());
    }
    // It can't become text. The save fails as soon as the library tries that.
    let mut state = State::new();
    state.put_metadata("deep", (0..200).fold(json!(1), |inner, _| json!([inner])));
    let alice = alice();
    let mut save = pin!(store.save_agent_state(&alice, id, &state, Expect::NOTHING));
    let early = timeout(Duration::from_millis(200), &mut save).await;
    assert!(early.is_err(), "{early:?}");
    drop(taken);
    let refused = save.await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
}
