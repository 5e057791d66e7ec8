//! A whole application moves from `SQLite` to `PostgreSQL`: two stores side by side, copy, compare, switch.

use sagents::{Expect, ListConversations, Message, NewDisplayMessage, Owner, Role, State, ToolCall};
use serde_json::json;
use uuid::Uuid;

use crate::support::context::NewConversation;
use crate::support::fixture::Fixture;
use crate::support::{Kind, TABLES, TestDatabase};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_conversation_of_every_owner_arrives_and_goes_on() {
    let databases = (TestDatabase::new(Kind::Sqlite), TestDatabase::new(Kind::Postgres));
    let (old, new) = (Fixture::new(&databases.0, TABLES).await, Fixture::new(&databases.1, TABLES).await);
    let owners = [1, 2, 3].map(|number| old.owner(number));
    for owner in &owners {
        fill(&old, owner).await;
    }

    // A copy that was interrupted finds the conversations that it has copied.
    assert_eq!(copy(&old, &new, &owners[..2]).await, (120, 0));
    assert_eq!(copy(&old, &new, &owners).await, (60, 120));

    for owner in &owners {
        let page = new.list_conversations(owner, ListConversations::new().limit(200)).await.unwrap();
        let archived = ListConversations { archived: true, ..ListConversations::new().limit(200) };
        let archived = new.list_conversations(owner, archived).await.unwrap();
        assert_eq!((page.items.len(), archived.items.len()), (50, 10));
        let id = page.items[0].id;
        let mut saved = new.load_agent_state(owner, id).await.unwrap();
        saved.state.add_message(Message::user("here"));
        new.save_agent_state(owner, id, &saved.state, Expect::Revision(saved.revision)).await.unwrap();
        let message = NewDisplayMessage::text(Role::User, "here");
        new.append_display_message(owner, id, message).await.unwrap();
    }
}

/// Copies the conversations of these owners, and compares them. Returns how many were new, and how many were there.
async fn copy(old: &Fixture, new: &Fixture, owners: &[Owner]) -> (usize, usize) {
    let (mut created, mut found) = (0, 0);
    for (owner, archived) in owners.iter().flat_map(|owner| [(owner, false), (owner, true)]) {
        let mut list = ListConversations { archived, ..ListConversations::new().limit(20) };
        loop {
            let page = old.list_conversations(owner, list).await.unwrap();
            for conversation in &page.items {
                let export = old.export_conversation(owner, conversation.id).await.unwrap();
                let imported = new.import_conversation(owner, export.clone()).await.unwrap();
                let count = if imported.created { &mut created } else { &mut found };
                *count += 1;
                assert_eq!(new.export_conversation(owner, conversation.id).await.unwrap(), export);
            }
            match page.next {
                Some(next) => list = list.after(next),
                None => break,
            }
        }
    }
    (created, found)
}

/// More conversations than fit on a page.
async fn fill(old: &Fixture, owner: &Owner) {
    for number in 0..60 {
        let new = NewConversation::new().title(format!("Plan {number} \u{1F30A}"));
        let id = old.create_conversation(owner, new).await.unwrap().id;
        let mut state = State::new();
        state.put_metadata("budget", json!({ "tokens": 1e21, "left": 0.1 }));
        let mut answer = Message::assistant("Let me look.");
        answer.tool_calls = vec![ToolCall::new("call_1", "search", json!({ "n": number }))];
        old.save_message(owner, id, Uuid::now_v7(), &answer).await.unwrap();
        old.complete_tool_call(owner, id, "call_1", serde_json::Map::new()).await.unwrap();
        let message = NewDisplayMessage::text(Role::User, "hello");
        old.append_display_message(owner, id, message).await.unwrap();
        state.add_messages([Message::user("Where to?"), answer]);
        old.save_agent_state(owner, id, &state, Expect::NOTHING).await.unwrap();
        if number % 6 == 0 {
            let archive = sagents::ConversationChanges::default().archived(true);
            old.update_conversation(owner, id, archive).await.unwrap();
        }
    }
}
