//! A server continues the conversations that a killed one left, although nobody opens them.

use std::time::{Duration, Instant};

use sagents::{Message, Owner};
use uuid::Uuid;

use crate::support::TestDatabase;
use crate::support::context::NewConversation;
use crate::{Server, TABLES, on_both_databases, said};

on_both_databases![an_abandoned_answer_is_finished_without_a_visitor];

async fn an_abandoned_answer_is_finished_without_a_visitor(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    let owner = Owner::new("user", 1);
    let id = store.create_conversation(&owner, NewConversation::new()).await.unwrap().id;
    // The process was killed after it saved the message and began its run.
    let killed = sagents::session::Coordinator::new(&store);
    let session = killed.start(&owner, id).await.unwrap();
    session.send_message(Uuid::now_v7(), Message::user("hello")).await.unwrap();
    store.begin_run(&owner, id, Uuid::now_v7(), "killed", Duration::from_secs(2)).await.unwrap();

    let server = Server::another(database).await;
    assert_eq!(server.web.resume_abandoned_runs(10).await.unwrap(), 0, "it may still be alive");
    let started = Instant::now();
    while server.web.resume_abandoned_runs(10).await.unwrap() == 0 {
        assert!(started.elapsed() < Duration::from_secs(30), "the run isn't found");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let messages = format!("/api/conversations/{id}/messages");
    loop {
        let said = said(&server.user(1).get(&messages).await.expect(200));
        if said == ["user hello", "assistant You said hello"] {
            return;
        }
        assert!(started.elapsed() < Duration::from_mins(1), "{said:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
