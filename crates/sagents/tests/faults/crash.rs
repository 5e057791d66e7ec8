//! The server is killed several times while it's written to. Everything that was answered is stored, failed calls can be
//! repeated, and nothing is stored twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sagents::{DisplayMessage, Error, Expect, Message, NewDisplayMessage, Result, Revision, Role, Saved, State};
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use super::{alice, connect, conversation, on_server, server, shown};
use crate::support::context::Conversations;
use crate::support::postgres::Server;

const TALKS: usize = 2;
const WRITERS: usize = 4;
const EACH: usize = 150;
const KILLS: usize = 3;

/// Repeats a call until the database answers it.
macro_rules! repeat {
    ($load:expr, $call:expr) => {
        loop {
            if let Some(answer) = $load.answer($call.await).await {
                break answer;
            }
        }
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_server_loses_nothing_that_was_answered() {
    let (server, url) = server().await;
    let store = connect(&url).await;
    let mut ids = Vec::new();
    for _ in 0..TALKS {
        ids.push(conversation(&store, &alice()).await);
    }

    let load = Load::default();
    let (mut appends, mut writers) = (JoinSet::new(), JoinSet::new());
    for &id in &ids {
        for _ in 0..WRITERS {
            appends.spawn(append(store.clone(), id, load.clone()));
        }
        writers.spawn(save(store.clone(), id, load.clone()));
    }
    for &id in &ids {
        while store.load_agent_state(&alice(), id).await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
    }
    let total = TALKS * (WRITERS + 1) * EACH;
    for kill in 1..=KILLS {
        while load.answered.load(Ordering::SeqCst) < kill * total / (KILLS + 1) {
            sleep(Duration::from_millis(1)).await;
        }
        on_server(&server, Server::kill).await;
        on_server(&server, Server::restart).await;
        for &id in &ids {
            assert_one_save(&repeat!(load, store.load_agent_state(&alice(), id)));
        }
    }

    let answered: Vec<DisplayMessage> = appends.join_all().await.into_iter().flatten().collect();
    writers.join_all().await;
    assert!(load.failed.load(Ordering::SeqCst) > 0, "no call met the crash");
    for id in ids {
        let stored = shown(&store, id).await;
        let sequences: Vec<_> = stored.iter().map(|message| message.sequence).collect();
        assert_eq!(sequences, (0..).take(WRITERS * EACH).collect::<Vec<_>>());
        let mut answered: Vec<_> = answered.iter().filter(|message| message.conversation_id == id).cloned().collect();
        answered.sort_by_key(|message| message.sequence);
        assert_eq!(answered, stored);

        let saved = store.load_agent_state(&alice(), id).await.unwrap();
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
    /// The answer of a call, or nothing if it has to be repeated.
    async fn answer<T>(&self, called: Result<T>) -> Option<T> {
        match called {
            Ok(answer) => {
                self.answered.fetch_add(1, Ordering::SeqCst);
                Some(answer)
            }
            Err(Error::Database(_)) => {
                self.failed.fetch_add(1, Ordering::SeqCst);
                sleep(Duration::from_millis(10)).await;
                None
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn append(store: Conversations, id: Uuid, load: Load) -> Vec<DisplayMessage> {
    let mut answered = Vec::new();
    for n in 0..EACH {
        let message = NewDisplayMessage::text(Role::User, format!("message {n}"));
        answered.push(repeat!(load, store.append_display_message(&alice(), id, message.clone())));
    }
    answered
}

async fn save(store: Conversations, id: Uuid, load: Load) {
    let (mut state, mut expect) = (State::new(), Expect::NOTHING);
    for n in 1..=EACH {
        state.add_message(Message::user(format!("message {n}")));
        let changed = &mut state.messages[n / 2];
        changed.extra.insert("changed_by".into(), n.into());
        state.put_metadata("number", n);
        let options = expect.with_write_id(Uuid::now_v7());
        let revision = repeat!(load, store.save_agent_state(&alice(), id, &state, options));
        expect = Expect::Revision(revision);
    }
}

/// Every save adds a message, and changes an earlier one and the header: they're those of one save.
fn assert_one_save(saved: &Saved) {
    let (state, number) = (&saved.state, saved.state.messages.len());
    assert_eq!(saved.revision, Revision(i64::try_from(number).unwrap()));
    for (message, n) in state.messages.iter().zip(1..) {
        assert_eq!(message.content.as_ref().unwrap().text(), format!("message {n}"));
    }
    assert_eq!(state.messages[number / 2].extra["changed_by"], number);
    assert_eq!(state.metadata["number"], number);
}
