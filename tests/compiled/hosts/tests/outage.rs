//! The server is down for ten seconds while sessions work. They continue, and afterwards everything is stored.

use crate::database;
use crate::storage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use database::server::Server;
use matrix::conversations::{Conversations, MessagePage, NewConversation, connect};
use matrix::sagents::Message;
use matrix::sagents::session::{AgentSession, AutoSave, Coordinator, SessionOptions};
use storage::{said, scope};

const SESSIONS: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_continue_while_the_server_is_down_and_are_saved_afterwards() {
    let server = Arc::new(Server::start());
    server.create_database("outage");
    let url = server.url("outage");
    database::migrate(&url, "INSERT INTO users (id, name) VALUES (1, 'a')").await;
    let layer = Conversations::new(connect(&url).await.unwrap());
    let options = SessionOptions {
        auto_save: AutoSave {
            interval: Some(Duration::from_millis(200)),
            ..AutoSave::default()
        },
        ..SessionOptions::default()
    };
    let coordinator = Coordinator::with_options(layer.clone(), options);

    let stop = Arc::new(AtomicBool::new(false));
    let changes = Arc::new(AtomicUsize::new(0));
    let mut work = tokio::task::JoinSet::new();
    for _ in 0..SESSIONS {
        let new = NewConversation::new();
        let id = layer.create_conversation(&scope(), new).await.unwrap().id;
        let session = coordinator.start(&scope(), id).await.unwrap();
        let (stop, changes) = (Arc::clone(&stop), Arc::clone(&changes));
        work.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let number = changes.fetch_add(1, Ordering::SeqCst);
                session
                    .add_message(Message::user(number.to_string()))
                    .unwrap();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            session
        });
    }
    let made = || changes.load(Ordering::SeqCst);
    while coordinator.stats().saves < 2 * SESSIONS as u64 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let down = Arc::clone(&server);
    let stopped = tokio::task::spawn_blocking(move || down.stop());
    stopped.await.unwrap();
    let (before, saves) = (made(), coordinator.stats().saves);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(made() > before + SESSIONS, "sessions waited for the server");
    assert_eq!(coordinator.stats().saves, saves, "the server was not down");
    assert!(coordinator.stats().unsaved > 0);
    let up = Arc::clone(&server);
    let started = tokio::task::spawn_blocking(move || up.restart());
    started.await.unwrap();

    stop.store(true, Ordering::SeqCst);
    let sessions: Vec<AgentSession<Conversations>> = work.join_all().await;
    let report = coordinator.shutdown(Duration::MAX).await;
    assert!(report.unsaved.is_empty(), "{:?}", report.unsaved);
    assert_eq!(report.saved, SESSIONS);
    for session in sessions {
        let id = session.conversation_id();
        let known = session.read(said);
        let stored = layer.load_agent_state(&scope(), id).await.unwrap();
        assert_eq!(said(&stored.state), known);
        let page = MessagePage::first().limit(MessagePage::MAX_LIMIT);
        let page = layer
            .load_display_messages(&scope(), id, page)
            .await
            .unwrap();
        let shown: Vec<_> = page
            .items
            .into_iter()
            .map(|message| message.content)
            .collect();
        assert_eq!(shown, known, "in order, and once");
    }
}
