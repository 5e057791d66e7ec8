//! A process with sessions is killed several times while it works. What was acknowledged is stored, at most later changes
//! are missing, and the next process continues. So is a process that imports.

use crate::database;
use crate::storage;

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use matrix::conversations::{
    Conversations, Error, Export, MessagePage, NewConversation, NewDisplayMessage, Role, connect,
};
use matrix::sagents::session::{AgentSession, AutoSave, Coordinator, SessionOptions};
use matrix::sagents::{Delivery, ExportedMessage, Message, State};
use storage::{said, scope};
use uuid::Uuid;

const KILLS: usize = 5;
const SESSIONS: usize = 4;
/// The first sessions grow, the others have turns.
const GROWING: usize = 2;
/// A process is killed after this many acknowledgements.
const ACKNOWLEDGED: usize = 40;
const URL: &str = "SESSIONS_URL";
const IDS: &str = "SESSIONS_IDS";

#[tokio::test]
async fn a_killed_process_loses_at_most_what_was_not_acknowledged() {
    let database =
        database::Database::migrated("INSERT INTO users (id, name) VALUES (1, 'a')").await;
    let layer = Conversations::new(connect(&database.url()).await.unwrap());
    let mut ids = Vec::new();
    for _ in 0..SESSIONS {
        let new = NewConversation::new();
        ids.push(layer.create_conversation(&scope(), new).await.unwrap().id);
    }
    let mut lost = 0;
    for _ in 0..KILLS {
        let (url, ids) = (database.url(), ids.clone());
        let talks = tokio::task::spawn_blocking(move || until_killed(&url, &ids));
        let talks = talks.await.unwrap();
        for &(id, talk) in &talks[..GROWING] {
            let saved = layer.load_agent_state(&scope(), id).await.unwrap();
            let numbers: Vec<usize> = said(&saved.state)
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
            assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>());
            assert_one_save(&saved.state);
            assert!(talk.stored <= numbers.len(), "{talk:?} {}", numbers.len());
            // The process may have been killed before it reported the last change.
            assert!(numbers.len() <= talk.made + 1, "{talk:?} {}", numbers.len());
            lost += talk.made.saturating_sub(numbers.len());
        }
        for &(id, talk) in &talks[GROWING..] {
            lost += talk.made - assert_agreement(&layer, id, talk).await;
        }
    }
    assert!(lost > 0, "no process was killed in the middle of its work");
}

/// A session that starts after the kill makes display and state agree. Returns how many messages the agent knows of
/// those that the process made.
async fn assert_agreement(layer: &Conversations, id: Uuid, talk: Reported) -> usize {
    let coordinator = Coordinator::new(layer.clone());
    let session = coordinator.start(&scope(), id).await.unwrap();
    session.shutdown().await.unwrap();
    let messages = session.read(|state| state.messages.clone());
    let known: HashSet<_> = (0..messages.len()).filter_map(|n| messages.id(n)).collect();
    assert_eq!(known.len(), messages.len());
    assert!(talk.stored <= known.len(), "{talk:?} {}", known.len());
    let mut page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
    let mut shown = HashSet::new();
    loop {
        let rows = layer.load_display_messages(&scope(), id, page).await;
        let rows = rows.unwrap();
        for row in &rows.items {
            let is_known = known.contains(&row.message_id);
            let expected = match row.delivery {
                Delivery::Stored => is_known,
                Delivery::Unknown | Delivery::Interrupted => !is_known,
                Delivery::Draft | Delivery::Unsaved => false,
            };
            assert!(expected, "{row:?}");
            shown.insert(row.message_id);
        }
        let Some(next) = rows.next else {
            break;
        };
        page = MessagePage::next(next).limit(MessagePage::MAX_LIMIT);
    }
    assert!(known.is_subset(&shown));
    talk.made.min(known.len())
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
    let changed = &state.messages[number / 2];
    assert_eq!(changed.extra["changed_by"], number);
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
    let mut process = process("killed::the_process_that_is_killed", url)
        .env(IDS, names.join(" "))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut acknowledged = 0;
    while let Some(line) = lines.next().transpose().unwrap() {
        let words: Vec<_> = line.split(' ').collect();
        let ["reported", index, what, number] = words[..] else {
            continue;
        };
        let talk = &mut talks[index.parse::<usize>().unwrap()].1;
        let number = number.parse().unwrap();
        if what == "made" {
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
    assert!(
        !status.success() && acknowledged >= ACKNOWLEDGED,
        "{status}"
    );
    talks
}

/// This program again, to run one of its tests.
fn process(test: &str, url: &str) -> Command {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", test, "--ignored", "--nocapture"]);
    process.env(URL, url);
    process
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of its own, which another test starts and kills"]
async fn the_process_that_is_killed() {
    let given = |name| std::env::var(name).expect("the test above starts this one");
    let (url, ids) = (given(URL), given(IDS));
    let interval = Some(Duration::from_millis(20));
    let options = SessionOptions {
        auto_save: AutoSave {
            interval,
            ..AutoSave::default()
        },
        draft_interval: Some(Duration::from_millis(1)),
        ..SessionOptions::default()
    };
    let layer = Conversations::new(connect(&url).await.unwrap());
    let coordinator = Coordinator::with_options(layer, options);
    let mut work = tokio::task::JoinSet::new();
    for (index, id) in ids.split(' ').enumerate() {
        let coordinator = coordinator.clone();
        let id = Uuid::try_parse(id).unwrap();
        work.spawn(async move {
            let session = coordinator.start(&scope(), id).await.unwrap();
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
async fn turns(index: usize, session: &AgentSession<Conversations>) {
    let mut number = session.read(|state| state.messages.len());
    loop {
        let message = Message::user("question");
        session.send(Uuid::now_v7(), message).await.unwrap();
        number += 1;
        println!("reported {index} stored {number}");
        let id = Uuid::now_v7();
        session.partial(id, Message::assistant("half")).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        session
            .add_message_with_id(id, Message::assistant("whole"))
            .unwrap();
        number += 1;
        println!("reported {index} made {number}");
    }
}

#[tokio::test]
async fn an_import_that_is_killed_stores_all_or_nothing_and_can_be_repeated() {
    let database =
        database::Database::migrated("INSERT INTO users (id, name) VALUES (1, 'a')").await;
    let layer = Conversations::new(connect(&database.url()).await.unwrap());
    let export = large_export(&layer).await;
    let (id, mut file) = (export.conversation.id, Vec::new());
    export.write_to(&mut file).unwrap();
    let whole = file.len();
    // Before the end of the last line, nothing is committed.
    for length in [whole / 4, whole / 2, whole - 1, whole] {
        let (url, part) = (database.url(), file[..length].to_vec());
        let killed = tokio::task::spawn_blocking(move || import_until_killed(&url, &part));
        killed.await.unwrap();
        let found = layer.get_conversation(&scope(), id).await;
        let is_missing = matches!(found, Err(Error::NotFound));
        assert!(is_missing || found.is_ok() && length == whole, "{found:?}");
    }
    layer
        .import_conversation_from(&scope(), &*file)
        .await
        .unwrap();
    let stored = layer.export_conversation(&scope(), id).await.unwrap();
    assert_eq!(stored, export);
}

/// More than a pipe holds.
async fn large_export(layer: &Conversations) -> Export {
    const MESSAGES: i64 = 2_000;
    let (scope, new) = (scope(), NewConversation::new());
    let id = layer.create_conversation(&scope, new).await.unwrap().id;
    let message = NewDisplayMessage::text(Role::User, "hello");
    let appended = layer.append_display_message(&scope, id, message).await;
    appended.unwrap();
    let mut export = layer.export_conversation(&scope, id).await.unwrap();
    export.conversation.id = Uuid::now_v7();
    let message = export.messages.remove(0);
    let mut state = State::new();
    for sequence in 0..MESSAGES {
        let message_id = Uuid::now_v7();
        let user = Message::user("hello");
        state.messages.push_with_id(message_id, user);
        export.messages.push(ExportedMessage {
            sequence,
            message_id,
            ..message.clone()
        });
    }
    export.state = Some(state);
    export
}

/// Starts a process that imports a file, and kills it when it has read that much of it, but for what the pipe holds.
fn import_until_killed(url: &str, file: &[u8]) {
    let mut process = process("killed::the_process_that_imports", url)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(file).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
}

#[tokio::test]
#[ignore = "a process of its own, which another test starts and kills"]
async fn the_process_that_imports() {
    let url = std::env::var(URL).expect("the test above starts this one");
    let layer = Conversations::new(connect(&url).await.unwrap());
    let file = BufReader::new(std::io::stdin());
    layer
        .import_conversation_from(&scope(), file)
        .await
        .unwrap();
}
