//! The server is killed again and again while it is written to. What was answered is there, what failed can be
//! repeated, and nothing is there twice.

use crate::database;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use database::server::Server;
use matrix::conversations::{
    Conversations, DisplayMessage, Error, MessagePage, NewConversation, NewDisplayMessage, Role,
    Saved, connect,
};
use matrix::sagents::{Expect, Message, Revision, State};
use matrix::scopes::{Scope, User};
use uuid::Uuid;

const TALKS: usize = 2;
const WRITERS: usize = 4;
const EACH: usize = 150;
const KILLS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_server_loses_nothing_that_was_answered() {
    let server = Arc::new(Server::start());
    server.create_database("crash");
    let url = server.url("crash");
    database::migrate(&url, "INSERT INTO users (id, name) VALUES (1, 'a')").await;
    let layer = Conversations::new(connect(&url).await.unwrap());
    let mut ids = Vec::new();
    for _ in 0..TALKS {
        let new = NewConversation::new();
        ids.push(layer.create_conversation(&scope(), new).await.unwrap().id);
    }

    let load = Load::default();
    let mut appends = tokio::task::JoinSet::new();
    let mut writers = tokio::task::JoinSet::new();
    for &id in &ids {
        for _ in 0..WRITERS {
            appends.spawn(append(layer.clone(), id, load.clone()));
        }
        writers.spawn(save(layer.clone(), id, load.clone()));
    }
    for &id in &ids {
        while layer.load_agent_state(&scope(), id).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let total = TALKS * (WRITERS + 1) * EACH;
    for kill in 1..=KILLS {
        while load.answered.load(Ordering::SeqCst) < kill * total / (KILLS + 1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let server = Arc::clone(&server);
        let killed = tokio::task::spawn_blocking(move || {
            server.kill();
            server.restart();
        });
        killed.await.unwrap();
        for &id in &ids {
            let saved = loop {
                let loaded = layer.load_agent_state(&scope(), id).await;
                if let Some(saved) = load.answer(loaded).await {
                    break saved;
                }
            };
            assert_one_save(&saved);
        }
    }

    let answered: Vec<DisplayMessage> = appends.join_all().await.into_iter().flatten().collect();
    writers.join_all().await;
    assert!(
        load.failed.load(Ordering::SeqCst) > 0,
        "no call met the crash"
    );
    for id in ids {
        let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
        let mut stored = layer
            .load_display_messages(&scope(), id, page)
            .await
            .unwrap();
        if let Some(next) = stored.next {
            let rest = MessagePage::next(next).limit(MessagePage::MAX_LIMIT);
            let rest = layer.load_display_messages(&scope(), id, rest).await;
            stored.items.extend(rest.unwrap().items);
        }
        let stored = stored.items;
        let sequences: Vec<_> = stored.iter().map(|message| message.sequence).collect();
        let expected: Vec<_> = (0..).take(WRITERS * EACH).collect();
        assert_eq!(sequences, expected);
        let mut answered: Vec<_> = answered
            .iter()
            .filter(|message| message.conversation_id == id)
            .cloned()
            .collect();
        answered.sort_by_key(|message| message.sequence);
        assert_eq!(answered, stored);

        let saved = layer.load_agent_state(&scope(), id).await.unwrap();
        assert_eq!(saved.state.messages.len(), EACH);
        assert_one_save(&saved);
    }
}

#[derive(Clone, Default)]
struct Load {
    answered: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
}

impl Load {
    /// What a call answered, or nothing if it has to be repeated.
    async fn answer<T>(&self, outcome: Result<T, Error>) -> Option<T> {
        match outcome {
            Ok(answer) => {
                self.answered.fetch_add(1, Ordering::SeqCst);
                Some(answer)
            }
            Err(Error::Database(_)) => {
                self.failed.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                None
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn append(layer: Conversations, id: Uuid, load: Load) -> Vec<DisplayMessage> {
    let (scope, mut answered) = (scope(), Vec::new());
    while answered.len() < EACH {
        let message = NewDisplayMessage::text(Role::User, format!("message {}", answered.len()));
        let stored = loop {
            let outcome = layer.append_display_message(&scope, id, message.clone());
            if let Some(stored) = load.answer(outcome.await).await {
                break stored;
            }
        };
        answered.push(stored);
    }
    answered
}

async fn save(layer: Conversations, id: Uuid, load: Load) {
    let scope = scope();
    let (mut state, mut expect) = (State::new(), Expect::NOTHING);
    for n in 1..=EACH {
        state.add_message(Message::user(format!("message {n}")));
        let changed = &mut state.messages[n / 2];
        changed.extra.insert("changed_by".into(), n.into());
        state.put_metadata("number", n);
        let write_id = Uuid::now_v7();
        let revision = loop {
            let outcome = layer.save_agent_state_with_id(&scope, id, &state, expect, write_id);
            if let Some(revision) = load.answer(outcome.await).await {
                break revision;
            }
        };
        expect = Expect::Revision(revision);
    }
}

/// Every save adds a message, and changes an earlier one and the header: they are those of one save.
fn assert_one_save(saved: &Saved) {
    let (state, number) = (&saved.state, saved.state.messages.len());
    assert_eq!(saved.revision, Revision(i64::try_from(number).unwrap()));
    for (message, n) in state.messages.iter().zip(1..) {
        let text = message.content.as_ref().unwrap().text();
        assert_eq!(text, format!("message {n}"));
    }
    let changed = &state.messages[number / 2];
    assert_eq!(changed.extra["changed_by"], number);
    assert_eq!(state.metadata["number"], number);
}

fn scope() -> Scope {
    let name = "a".to_owned();
    Scope {
        user: User { id: 1, name },
    }
}
