//! A process with sessions is killed several times while it works. Everything that it acknowledged is stored, and the
//! next process continues. An import that's killed stores all or nothing.

use std::collections::HashSet;
use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Duration;

use sagents::session::{AgentSession, AutoSave, Coordinator, SessionOptions};
use sagents::{Delivery, Error, Export, ExportedMessage, Message, State, Store};
use tokio::task::{JoinSet, spawn_blocking};
use uuid::Uuid;

use super::{alice, append, connect, conversation, said, shown, this_program};
use crate::support::{TABLES, TestDatabase};

crate::on_both_databases!(
    a_killed_process_loses_only_changes_that_it_did_not_acknowledge,
    an_import_that_is_killed_stores_all_or_nothing_and_can_be_repeated,
);

const KILLS: usize = 5;
const SESSIONS: usize = 4;
/// The first sessions grow, the others have turns.
const GROWING: usize = 2;
/// A process is killed after this many acknowledgements.
const ACKNOWLEDGED: usize = 40;
const URL: &str = "SAGENTS_KILLED_URL";
const IDS: &str = "SAGENTS_KILLED_IDS";

async fn a_killed_process_loses_only_changes_that_it_did_not_acknowledge(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    let mut ids = Vec::new();
    for _ in 0..SESSIONS {
        ids.push(conversation(&store, &alice()).await);
    }
    let mut lost = 0;
    for _ in 0..KILLS {
        let (url, ids) = (database.url.clone(), ids.clone());
        let talks = spawn_blocking(move || until_killed(&url, &ids)).await.unwrap();
        for &(id, talk) in &talks[..GROWING] {
            let saved = store.load_agent_state(&alice(), id).await.unwrap();
            let numbers: Vec<usize> = said(&saved.state).iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>());
            assert_one_save(&saved.state);
            assert!(talk.stored <= numbers.len(), "{talk:?} {}", numbers.len());
            // The process may have been killed before it reported the last change.
            assert!(numbers.len() <= talk.made + 1, "{talk:?} {}", numbers.len());
            lost += talk.made.saturating_sub(numbers.len());
        }
        for &(id, talk) in &talks[GROWING..] {
            lost += talk.made - assert_agreement(&store, id, talk).await;
        }
    }
    assert!(lost > 0, "no process was killed in the middle of its work");
}

/// A session that starts after the kill makes display messages and agent state agree. Returns how many of the messages
/// that the process made are in the state.
async fn assert_agreement(store: &Store, id: Uuid, talk: Reported) -> usize {
    let session = Coordinator::new(store).start(&alice(), id).await.unwrap();
    session.shutdown().await.unwrap();
    let messages = session.read(|state| state.messages.clone());
    let saved: HashSet<_> = (0..messages.len()).filter_map(|n| messages.id(n)).collect();
    assert_eq!(saved.len(), messages.len());
    assert!(talk.stored <= saved.len(), "{talk:?} {}", saved.len());
    let rows = shown(store, id).await;
    for row in &rows {
        let is_saved = saved.contains(&row.message_id);
        let agrees = match row.delivery {
            Delivery::Stored => is_saved,
            Delivery::Unknown | Delivery::Interrupted => !is_saved,
            Delivery::Draft | Delivery::Unsaved => false,
        };
        assert!(agrees, "{row:?}");
    }
    assert!(saved.is_subset(&rows.iter().map(|row| row.message_id).collect()));
    talk.made.min(saved.len())
}

/// Adds a message, and changes an earlier one and the header.
fn grow(state: &mut State) -> usize {
    let number = state.messages.len() + 1;
    state.add_message(Message::user(number.to_string()));
    let changed = &mut state.messages[number / 2];
    changed.extra.insert("changed_by".into(), number.into());
    state.put_metadata("number", number);
    number
}

/// The header and the messages are those of one save.
fn assert_one_save(state: &State) {
    let number = state.messages.len();
    assert_eq!(state.messages[number / 2].extra["changed_by"], number);
    assert_eq!(state.metadata["number"], number);
}

/// What a process reported of a conversation before it was killed.
#[derive(Debug, Default, Clone, Copy)]
struct Reported {
    /// How many changes it had made, and how many were stored.
    made: usize,
    stored: usize,
}

/// Starts a process, kills it, and returns what it reported.
fn until_killed(url: &str, ids: &[Uuid]) -> Vec<(Uuid, Reported)> {
    let mut talks: Vec<_> = ids.iter().map(|id| (*id, Reported::default())).collect();
    let names: Vec<_> = ids.iter().map(Uuid::to_string).collect();
    let mut process = this_program("killed::the_process_that_is_killed");
    process.env(URL, url).env(IDS, names.join(" "));
    let mut process = process.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut acknowledged = 0;
    while let Some(line) = lines.next().transpose().unwrap() {
        let words: Vec<_> = line.split(' ').collect();
        let ["reported", index, kind, number] = words[..] else { continue };
        let talk = &mut talks[index.parse::<usize>().unwrap()].1;
        let number = number.parse().unwrap();
        if kind == "made" {
            talk.made = number;
        } else {
            talk.stored = number;
            acknowledged += 1;
        }
        if acknowledged == ACKNOWLEDGED {
            process.kill().unwrap();
        }
    }
    let status = process.wait().unwrap();
    assert!(!status.success() && acknowledged >= ACKNOWLEDGED, "{status}");
    talks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process that another test starts and kills"]
async fn the_process_that_is_killed() {
    let (Ok(url), Ok(ids)) = (env::var(URL), env::var(IDS)) else { return };
    let options = SessionOptions {
        auto_save: AutoSave { interval: Some(Duration::from_millis(20)), ..AutoSave::default() },
        draft_interval: Some(Duration::from_millis(1)),
        ..SessionOptions::default()
    };
    let store = connect(&url).await;
    let coordinator = Coordinator::with_options(&store, options);
    let mut work = JoinSet::new();
    for (index, id) in ids.split(' ').enumerate() {
        let (coordinator, id) = (coordinator.clone(), Uuid::try_parse(id).unwrap());
        work.spawn(async move {
            let session = coordinator.start(&alice(), id).await.unwrap();
            if index >= GROWING {
                return turns(index, &session).await;
            }
            loop {
                let number = session.change(grow).unwrap();
                println!("reported {index} made {number}");
                if number % 20 == 0 {
                    session.save().await.unwrap();
                    println!("reported {index} stored {number}");
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }
    work.join_all().await;
}

/// Sends messages, and streams answers.
async fn turns(index: usize, session: &AgentSession) {
    let mut number = session.read(|state| state.messages.len());
    loop {
        session.send_message(Uuid::now_v7(), Message::user("question")).await.unwrap();
        number += 1;
        println!("reported {index} stored {number}");
        let id = Uuid::now_v7();
        session.save_draft(id, Message::assistant("half")).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        session.add_message(id, Message::assistant("whole")).unwrap();
        number += 1;
        println!("reported {index} made {number}");
    }
}

async fn an_import_that_is_killed_stores_all_or_nothing_and_can_be_repeated(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    let export = large_export(&store).await;
    let (id, mut file) = (export.conversation.id, Vec::new());
    export.write_to(&mut file).unwrap();
    let whole = file.len();
    // Nothing is committed before the end of the last line.
    for length in [whole / 4, whole / 2, whole - 1, whole] {
        let (url, part) = (database.url.clone(), file[..length].to_vec());
        spawn_blocking(move || import_until_killed(&url, &part)).await.unwrap();
        let found = store.get_conversation(&alice(), id).await;
        let is_missing = matches!(found, Err(Error::NotFound));
        assert!(is_missing || found.is_ok() && length == whole, "{found:?}");
    }
    store.import_conversation_from(&alice(), &*file).await.unwrap();
    assert_eq!(store.export_conversation(&alice(), id).await.unwrap(), export);
}

/// More than a pipe holds.
async fn large_export(store: &Store) -> Export {
    const MESSAGES: i64 = 2_000;

    let id = conversation(store, &alice()).await;
    append(store, &alice(), id, "hello").await.unwrap();
    let mut export = store.export_conversation(&alice(), id).await.unwrap();
    export.conversation.id = Uuid::now_v7();
    let message = export.messages.remove(0);
    let mut state = State::new();
    for sequence in 0..MESSAGES {
        let message_id = Uuid::now_v7();
        state.messages.push_with_id(message_id, Message::user("hello"));
        export.messages.push(ExportedMessage { sequence, message_id, ..message.clone() });
    }
    export.state = Some(state);
    export
}

/// Starts a process that imports a file, and kills it when it has read all of it except the rest in the pipe.
fn import_until_killed(url: &str, file: &[u8]) {
    let mut process = this_program("killed::the_process_that_imports");
    let mut process = process.env(URL, url).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(file).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
}

#[tokio::test]
#[ignore = "a process that another test starts and kills"]
async fn the_process_that_imports() {
    let Ok(url) = env::var(URL) else { return };
    let file = BufReader::new(std::io::stdin());
    connect(&url).await.import_conversation_from(&alice(), file).await.unwrap();
}
