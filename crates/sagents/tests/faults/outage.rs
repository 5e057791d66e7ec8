//! The server is down for a while, and sessions go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sagents::Message;
use sagents::session::{AgentSession, AutoSave, Coordinator, SessionOptions};
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use super::{alice, connect, conversation, on_server, said, server, shown};
use crate::support::postgres::Server;

const SESSIONS: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_continue_while_the_server_is_down_and_are_saved_afterwards() {
    let (server, url) = server().await;
    let store = connect(&url).await;
    let options = SessionOptions {
        auto_save: AutoSave { interval: Some(Duration::from_millis(200)), ..AutoSave::default() },
        ..SessionOptions::default()
    };
    let coordinator = Coordinator::with_options(&store, options);

    let stop = Arc::new(AtomicBool::new(false));
    let changes = Arc::new(AtomicUsize::new(0));
    let mut work = JoinSet::new();
    for _ in 0..SESSIONS {
        let id = conversation(&store, &alice()).await;
        let session = coordinator.start(&alice(), id).await.unwrap();
        let (stop, changes) = (Arc::clone(&stop), Arc::clone(&changes));
        work.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let number = changes.fetch_add(1, Ordering::SeqCst);
                session.add_message(Uuid::now_v7(), Message::user(number.to_string())).unwrap();
                sleep(Duration::from_millis(100)).await;
            }
            session
        });
    }
    let stats = || coordinator.stats();
    while stats().saves < 2 * SESSIONS as u64 {
        sleep(Duration::from_millis(10)).await;
    }

    on_server(&server, Server::stop).await;
    // The last reply may still be on its way to its session.
    sleep(Duration::from_millis(200)).await;
    let (made, saves, failures) = (changes.load(Ordering::SeqCst), stats().saves, stats().failures);
    // Every session goes on, and its saves fail.
    while changes.load(Ordering::SeqCst) < made + 20 * SESSIONS || stats().failures < failures + SESSIONS as u64 {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(stats().saves, saves, "the server was not down");
    assert_eq!(stats().unsaved, SESSIONS);
    on_server(&server, Server::restart).await;

    stop.store(true, Ordering::SeqCst);
    let sessions: Vec<AgentSession> = work.join_all().await;
    let report = coordinator.shutdown(Duration::MAX).await;
    assert!(report.unsaved.is_empty(), "{:?}", report.unsaved);
    assert_eq!(report.saved, SESSIONS);
    for session in sessions {
        let (id, known) = (session.conversation_id(), session.read(said));
        let stored = store.load_agent_state(&alice(), id).await.unwrap();
        assert_eq!(said(&stored.state), known);
        let shown: Vec<_> = shown(&store, id).await.into_iter().map(|message| message.content).collect();
        assert_eq!(shown, known, "in order, and once");
    }
}
