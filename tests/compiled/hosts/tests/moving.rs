//! A whole application moves from `SQLite` to `PostgreSQL`: two contexts side by side, copy, compare, switch.

use std::path::Path;

use my_app::accounts::Scope;
use my_app::conversations::{self, Conversations};
use my_app::former::{
    self, Archived, Former, ListConversations, NewConversation, NewDisplayMessage, Role,
};
use my_app::sagents::{Expect, Message, State, ToolCall};
use uuid::Uuid;

#[tokio::test]
async fn every_conversation_of_every_owner_arrives_and_goes_on() {
    let old = old_application().await;
    let url = std::env::var("DATABASE_URL").unwrap();
    let pool = conversations::connect(&url).await.unwrap();
    let migrations = sqlx::migrate::Migrator::new(Path::new("migrations"));
    migrations.await.unwrap().run(&pool).await.unwrap();
    let new = Conversations::new(pool);
    let scopes: Vec<_> = (0..3)
        .map(|_| Scope {
            user_id: Uuid::now_v7(),
        })
        .collect();
    for scope in &scopes {
        fill(&old, scope).await;
    }

    // What is copied already when it is interrupted is found again.
    assert_eq!(copy(&old, &new, &scopes[..2]).await, (120, 0));
    assert_eq!(copy(&old, &new, &scopes).await, (60, 120));

    let list = conversations::ListConversations::new().limit(200);
    for scope in &scopes {
        let page = new.list_conversations(scope, list).await.unwrap();
        assert_eq!(page.items.len(), 60);
        let id = page.items[0].id;
        let mut saved = new.load_agent_state(scope, id).await.unwrap();
        saved.state.add_message(Message::user("here"));
        let expect = Expect::Revision(saved.revision);
        new.save_agent_state(scope, id, &saved.state, expect)
            .await
            .unwrap();
        let message = conversations::NewDisplayMessage::text(Role::User, "here");
        new.append_display_message(scope, id, message)
            .await
            .unwrap();
    }
}

/// Copies what these owners have, and compares it. Returns how many were new, and how many were there.
async fn copy(old: &Former, new: &Conversations, scopes: &[Scope]) -> (usize, usize) {
    let (mut created, mut found) = (0, 0);
    for scope in scopes {
        let mut list = ListConversations::new().archived(Archived::Include);
        loop {
            let page = old.list_conversations(scope, list).await.unwrap();
            for conversation in &page.items {
                let export = old
                    .export_conversation(scope, conversation.id)
                    .await
                    .unwrap();
                let imported = new
                    .import_conversation(scope, export.clone())
                    .await
                    .unwrap();
                *if imported.created {
                    &mut created
                } else {
                    &mut found
                } += 1;
                let copy = new
                    .export_conversation(scope, conversation.id)
                    .await
                    .unwrap();
                assert_eq!(copy, export);

                // As files they are equal too.
                let (mut left, mut right) = (Vec::new(), Vec::new());
                old.export_conversation_to(scope, conversation.id, &mut left)
                    .await
                    .unwrap();
                new.export_conversation_to(scope, conversation.id, &mut right)
                    .await
                    .unwrap();
                assert_eq!(left, right);
            }
            match page.next {
                Some(next) => list = list.after(next),
                None => break,
            }
        }
    }
    (created, found)
}

/// A database in memory.
async fn old_application() -> Former {
    let pool = former::connect("sqlite::memory:").await.unwrap();
    let migrations = sqlx::migrate::Migrator::new(Path::new("migrations/sqlite"));
    migrations.await.unwrap().run(&pool).await.unwrap();
    Former::new(pool)
}

/// More conversations than fit on a page.
async fn fill(old: &Former, scope: &Scope) {
    for number in 0..60 {
        let new = NewConversation::new().title(format!("Plan {number} \u{1F30A}"));
        let id = old.create_conversation(scope, new).await.unwrap().id;
        let mut state = State::new();
        state.put_metadata("budget", serde_json::json!({ "tokens": 1e21, "left": 0.1 }));
        let mut answer = Message::assistant("Let me look.");
        answer.tool_calls = vec![ToolCall::new(
            "call_1",
            "search",
            serde_json::json!({ "n": number }),
        )];
        old.save_message(scope, id, Uuid::now_v7(), &answer)
            .await
            .unwrap();
        old.mark_tool_executing(scope, id, "call_1").await.unwrap();
        let message = NewDisplayMessage::text(Role::User, "hello");
        old.append_display_message(scope, id, message)
            .await
            .unwrap();
        state.add_messages([Message::user("Where to?"), answer]);
        old.save_agent_state(scope, id, &state, Expect::NOTHING)
            .await
            .unwrap();
    }
}
