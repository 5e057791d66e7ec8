//! Many writers at once, as tasks of one process and as several processes would be: with pools of their own.

use crate::database;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use database::Database;
use matrix::conversations::*;
use matrix::sagents::session::{AgentSession, Coordinator};
use matrix::sagents::{Content, ContentPart, Expect, Message, State, ToolCall};
use matrix::scopes::{Scope, User};
use serde_json::{Map, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_tasks_of_one_pool_leave_no_gap_and_no_tie() {
    append_from(1, 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_tasks_of_each_of_four_pools_leave_no_gap_and_no_tie() {
    append_from(4, 4).await;
}

/// Every task appends messages of its own, and one that all of them have.
async fn append_from(pools: usize, tasks: usize) {
    const EACH: usize = 20;

    let database = Database::migrated("INSERT INTO users (id, name) VALUES (1, 'a')").await;
    let url = database.url();
    let conversations = Conversations::new(connect(&url).await.unwrap());
    let id = conversations
        .create_conversation(&scope(), NewConversation::new())
        .await
        .unwrap()
        .id;

    let shared = NewDisplayMessage::text(Role::System, "said by all, stored once");
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..pools {
        let conversations = Conversations::new(connect(&url).await.unwrap());
        for _ in 0..tasks {
            let (conversations, shared) = (conversations.clone(), shared.clone());
            writers.spawn(async move {
                let (scope, mut taken) = (scope(), Vec::new());
                for n in 0..EACH {
                    let message = NewDisplayMessage::text(Role::User, format!("message {n}"));
                    let (own, common) = tokio::join!(
                        conversations.append_display_message(&scope, id, message),
                        conversations.append_display_message(&scope, id, shared.clone()),
                    );
                    taken.push((own.unwrap().sequence, common.unwrap().sequence));
                }
                taken
            });
        }
    }
    let taken: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
    let common: BTreeSet<_> = taken.iter().map(|(_, common)| *common).collect();
    assert_eq!(common.len(), 1, "everyone got the same row");
    let own: BTreeSet<_> = taken.iter().map(|(own, _)| *own).collect();
    assert_eq!(own.len(), taken.len(), "no two got the same sequence");

    let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
    let messages = conversations
        .load_display_messages(&scope(), id, page)
        .await
        .unwrap();
    let sequences: Vec<_> = messages.items.iter().map(|row| row.sequence).collect();
    let expected: Vec<_> = (0..).take(pools * tasks * EACH + 1).collect();
    assert_eq!(sequences, expected);
}

/// Every process decides differently, and all but one learn what was decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_decisions_of_four_processes_are_claimed_once() {
    let (_database, processes, id) = processes(4).await;
    let call = NewDisplayMessage::tool_call("call_1", "search");
    processes[0]
        .append_display_message(&scope(), id, call)
        .await
        .unwrap();
    // Before, they race for the call itself.
    let mut claims = JoinSet::new();
    for n in 0..20 {
        let process = processes[n % 4].clone();
        claims.spawn(async move {
            let (scope, claim) = (scope(), Uuid::now_v7());
            let claim = process.claim_tool_call(&scope, id, "call_1", claim);
            matches!(claim.await.unwrap(), Claim::Claimed(_))
        });
    }
    let claimed = claims.join_all().await;
    assert_eq!(claimed.iter().filter(|is_claimed| **is_claimed).count(), 1);
    processes[0]
        .interrupt_tool_call(&scope(), id, "call_1", Map::new())
        .await
        .unwrap();

    let mut decisions = JoinSet::new();
    for n in 0..200 {
        let (process, claim) = (processes[n % 4].clone(), Uuid::now_v7());
        let decision = match n % 3 {
            0 => Decision::Approve,
            1 => Decision::Edit {
                arguments: json!({ "n": n }),
            },
            _ => Decision::Reject {
                reason: Some(n.to_string()),
            },
        };
        decisions.spawn(async move {
            let scope = scope();
            let decide = || process.decide_tool_call(&scope, id, "call_1", &decision, claim);
            let decided = decide().await.unwrap();
            assert_eq!(decide().await.unwrap(), decided, "the reply was lost");
            match decided {
                Decided::Claimed(call) => (decision, call, true),
                Decided::Already(decision, call) => (decision, call, false),
            }
        });
    }
    let decided = decisions.join_all().await;
    let claimed: Vec<_> = decided.iter().filter(|(_, _, is)| *is).collect();
    let [(decision, call, _)] = claimed[..] else {
        panic!("{} callers act", claimed.len());
    };
    assert_eq!(call.decision().as_ref(), Some(decision));
    assert_eq!(call.status, Some(decision.status()));
    assert!(
        decided
            .iter()
            .all(|other| (&other.0, &other.1) == (decision, call))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_processes_one_runs_the_agent() {
    const LEASE: Duration = Duration::from_secs(30);

    let (_database, processes, id) = processes(4).await;
    let begin = async |lease: Duration| {
        let mut callers = JoinSet::new();
        for n in 0..40 {
            let process = processes[n % 4].clone();
            callers.spawn(async move {
                let (scope, run_id) = (scope(), Uuid::now_v7());
                let begun = process.begin_run(&scope, id, run_id, "here", lease);
                match begun.await.unwrap() {
                    BeginRun::Started(run) => (run.id, true),
                    BeginRun::Busy(run) => (run.id, false),
                }
            });
        }
        callers.join_all().await
    };
    for _ in 0..3 {
        let replies = begin(LEASE).await;
        let started: Vec<_> = replies.iter().filter(|(_, is)| *is).collect();
        assert_eq!(started.len(), 1, "{replies:?}");
        assert!(replies.iter().all(|(run, _)| *run == started[0].0));
        processes[0]
            .end_run(&scope(), id, started[0].0, RunStatus::Failed)
            .await
            .unwrap();
    }
}

/// Who is busy has not ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_run_that_stops_another_one_is_running() {
    const LEASE: Duration = Duration::from_secs(30);

    let (_database, processes, id) = processes(4).await;
    let mut callers = JoinSet::new();
    for process in processes {
        callers.spawn(async move {
            let scope = scope();
            for _ in 0..150 {
                let run_id = Uuid::now_v7();
                let begun = process.begin_run(&scope, id, run_id, "here", LEASE);
                match begun.await.unwrap() {
                    BeginRun::Started(run) => {
                        let end = process.end_run(&scope, id, run.id, RunStatus::Finished);
                        end.await.unwrap();
                    }
                    BeginRun::Busy(run) => assert_eq!(run.status, RunStatus::Running),
                }
            }
        });
    }
    callers.join_all().await;
}

/// Messages, drafts and tool calls of two processes, followed by readers who lose their connection again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_who_reconnects_sees_every_row_in_its_last_form() {
    let (_database, processes, id) = processes(2).await;
    let mut writers = JoinSet::new();
    for (n, process) in processes.iter().cloned().enumerate() {
        writers.spawn(async move {
            for step in 0..15 {
                write_turn(&process, id, n * 100 + step).await;
            }
        });
    }
    let reader = |limit: u32| {
        let process = processes[0].clone();
        async move {
            let (mut seen, mut cursor) = (BTreeMap::new(), ChangeCursor::START.to_string());
            let scope = scope();
            loop {
                let read = process.changes(&scope, id, cursor.parse().unwrap(), limit);
                let read = read.await.unwrap();
                for row in read.items {
                    if row.content == "the end" {
                        return seen;
                    }
                    if row.delivery != Delivery::Draft {
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
    };
    let readers = [1, 2, 5, 10, 100].map(|limit| tokio::spawn(reader(limit)));
    let mut watch = processes[1]
        .watch(&scope(), id, ChangeCursor::START)
        .unwrap();
    let watched = tokio::spawn(async move {
        let mut last = BTreeMap::new();
        loop {
            for row in watch.next().await.unwrap().items {
                if row.content == "the end" {
                    return last;
                }
                last.insert(row.sequence, row);
            }
        }
    });
    writers.join_all().await;
    let end = NewDisplayMessage::text(Role::System, "the end");
    processes[0]
        .append_display_message(&scope(), id, end)
        .await
        .unwrap();

    let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
    let page = processes[0]
        .load_display_messages(&scope(), id, page)
        .await
        .unwrap();
    let mut expected: BTreeMap<_, _> = page
        .items
        .into_iter()
        .map(|row| (row.sequence, row))
        .collect();
    expected.retain(|_, row| row.content != "the end");
    assert_eq!(expected.len(), 2 * 15 * 4);
    for seen in readers {
        assert_eq!(seen.await.unwrap(), expected);
    }
    let mut watched = watched.await.unwrap();
    watched.retain(|sequence, _| expected.contains_key(sequence));
    assert_eq!(watched, expected);
}

/// On `PostgreSQL` a watch with notifications looks for changes itself only every 30 seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_watch_is_told_what_another_process_writes() {
    let (_database, processes, id) = processes(2).await;
    let [reader, writer] = &processes[..] else {
        panic!("there are two");
    };
    let (reader, writer) = (
        reader.clone().with_notifications(),
        writer.clone().with_notifications(),
    );
    let mut watch = reader.watch(&scope(), id, ChangeCursor::START).unwrap();
    for text in ["one", "two", "three"] {
        let (told, seen) = oneshot::channel();
        let next = tokio::spawn(async move {
            let changes = watch.next().await.unwrap();
            told.send(changes.items).unwrap();
            watch
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        let message = NewDisplayMessage::text(Role::User, text);
        let written = writer
            .append_display_message(&scope(), id, message)
            .await
            .unwrap();
        let seen = tokio::time::timeout(Duration::from_secs(10), seen).await;
        assert_eq!(seen.unwrap().unwrap(), [written]);
        watch = next.await.unwrap();
    }
}

#[tokio::test]
async fn a_message_replaces_a_draft_that_has_other_items() {
    let (_database, processes, id) = processes(1).await;
    let (scope, message_id) = (scope(), Uuid::now_v7());
    let mut draft = Message::assistant("");
    let picture = ContentPart::image_url("https://example.com/sea.png");
    draft.content = Some(Content::Parts(vec![picture, ContentPart::text("The")]));
    let save = processes[0].save_draft(&scope, id, message_id, &draft);
    assert_eq!(save.await.unwrap()[0].item, 1);
    let whole = Message::assistant("The sea.");
    let save = processes[0].save_message(&scope, id, message_id, &whole);
    let saved = save.await.unwrap();
    let page = processes[0].load_display_messages(&scope, id, MessagePage::first());
    assert_eq!(page.await.unwrap().items, saved);
    assert_eq!((saved.len(), saved[0].delivery), (1, Delivery::Stored));
}

/// Four rows are left of it; one of the draft is not.
async fn write_turn(process: &Conversations, id: Uuid, n: usize) {
    let (scope, message_id, call_id) = (scope(), Uuid::now_v7(), format!("call_{n}"));
    let thought = |text: &str| ContentPart::thinking(text);
    for text in ["I", "I think"] {
        let parts = vec![thought("hm"), thought("or"), ContentPart::text(text)];
        let mut draft = Message::assistant("");
        draft.content = Some(Content::Parts(parts));
        process
            .save_draft(&scope, id, message_id, &draft)
            .await
            .unwrap();
    }
    let mut whole = Message::assistant("");
    whole.content = Some(Content::Parts(vec![
        thought("hm"),
        ContentPart::text("I think so."),
    ]));
    if n.is_multiple_of(2) {
        whole.tool_calls = vec![ToolCall::new(&call_id, "search", json!({}))];
    }
    process
        .save_message(&scope, id, message_id, &whole)
        .await
        .unwrap();
    if n.is_multiple_of(2) {
        process
            .claim_tool_call(&scope, id, &call_id, message_id)
            .await
            .unwrap();
        process
            .interrupt_tool_call(&scope, id, &call_id, Map::new())
            .await
            .unwrap();
        let decide = process.decide_tool_call(&scope, id, &call_id, &Decision::Approve, message_id);
        decide.await.unwrap();
        process
            .complete_tool_call(&scope, id, &call_id, Map::new())
            .await
            .unwrap();
    } else {
        let unsaved = Uuid::now_v7();
        let said = Message::user("unsaved");
        process
            .save_draft(&scope, id, unsaved, &said)
            .await
            .unwrap();
        let settled = [(unsaved, Delivery::Interrupted)];
        process.settle_messages(&scope, id, &settled).await.unwrap();
    }
    let text = NewDisplayMessage::text(Role::User, format!("message {n}"));
    process
        .append_display_message(&scope, id, text)
        .await
        .unwrap();
}

/// Processes have pools of their own.
async fn processes(count: usize) -> (Database, Vec<Conversations>, Uuid) {
    let database = Database::migrated("INSERT INTO users (id, name) VALUES (1, 'a')").await;
    let mut processes = Vec::new();
    for _ in 0..count {
        processes.push(Conversations::new(connect(&database.url()).await.unwrap()));
    }
    let new = NewConversation::new();
    let id = processes[0]
        .create_conversation(&scope(), new)
        .await
        .unwrap()
        .id;
    (database, processes, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_two_hundred_decisions_through_sessions_is_taken() {
    let (_database, processes, id) = processes(4).await;
    let sessions = sessions(&processes, id).await;
    let call = ToolCall::new("call_1", "pay", json!({}));
    let asks = &sessions[0];
    asks.add_message(Message::tool_calls([call])).unwrap();
    asks.tool_interrupted("call_1", json!({})).unwrap();
    asks.save().await.unwrap();

    let mut deciding = tokio::task::JoinSet::new();
    for n in 0..200 {
        let session = sessions[n % sessions.len()].clone();
        let decision = match n % 3 {
            0 => Decision::Reject { reason: None },
            1 => Decision::Approve,
            _ => Decision::Edit {
                arguments: json!({ "n": n }),
            },
        };
        deciding.spawn(async move {
            let decided = session.decide("call_1", decision.clone()).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_several_processes_send_is_all_there_and_in_one_order() {
    const EACH: usize = 10;

    let (_database, processes, id) = processes(3).await;
    let sessions = sessions(&processes, id).await;
    let mut sending = tokio::task::JoinSet::new();
    for session in &sessions {
        let session = session.clone();
        sending.spawn(async move {
            for _ in 0..EACH {
                let id = Uuid::now_v7();
                let message = Message::user(id.to_string());
                session.send(id, message.clone()).await.unwrap();
                session.send(id, message).await.unwrap();
            }
        });
    }
    sending.join_all().await;
    let layer = &processes[0];
    let saved = layer.load_agent_state(&scope(), id).await.unwrap();
    let messages = &saved.state.messages;
    let known: BTreeSet<_> = (0..messages.len()).map(|n| messages.id(n)).collect();
    assert_eq!((messages.len(), known.len()), (3 * EACH, 3 * EACH));
    let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
    let page = layer.load_display_messages(&scope(), id, page).await;
    let shown: BTreeSet<_> = page
        .unwrap()
        .items
        .iter()
        .map(|row| Some(row.message_id))
        .collect();
    assert_eq!(shown, known);
}

/// Without the driver's own checks, as in a release, its future of a connection has several kilobytes.
#[tokio::test]
async fn calls_that_write_are_small_futures() {
    let (_database, processes, id) = processes(1).await;
    let (layer, scope, state) = (&processes[0], scope(), State::new());
    let new = NewConversation::new();
    let message = NewDisplayMessage::text(Role::User, "a");
    let sizes = [
        size_of_val(&layer.create_conversation(&scope, new)),
        size_of_val(&layer.append_display_message(&scope, id, message)),
        size_of_val(&layer.save_agent_state(&scope, id, &state, Expect::Any)),
        size_of_val(&layer.mark_tool_executing(&scope, id, "call")),
        size_of_val(&layer.search_messages(&scope, "a", SearchPage::first())),
    ];
    assert!(sizes.iter().all(|size| *size < 5 << 10), "{sizes:?}");
}

/// Sessions of one conversation, each in a process of its own.
async fn sessions(processes: &[Conversations], id: Uuid) -> Vec<AgentSession<Conversations>> {
    let mut sessions = Vec::new();
    for process in processes {
        let coordinator = Coordinator::new(process.clone());
        sessions.push(coordinator.start(&scope(), id).await.unwrap());
    }
    sessions
}

fn scope() -> Scope {
    let name = "a".to_owned();
    Scope {
        user: User { id: 1, name },
    }
}
