//! All migrations up, down and up again, with rows in the tables of several contexts.

use crate::database;

use std::path::Path;

use database::{Database, Pool, catalog};
use matrix::scopes::{AccountScope, Scope, User};
use matrix::{chat, conversations};

#[tokio::test]
async fn down_takes_everything_away_and_up_brings_it_back() {
    let database = Database::empty();
    let pool = conversations::connect(&database.url()).await.unwrap();
    let migrator = sqlx::migrate::Migrator::new(Path::new("migrations"))
        .await
        .unwrap();
    let empty = catalog(&pool).await;

    migrator.run(&pool).await.unwrap();
    let made = catalog(&pool).await;
    assert!(made.contains("sagents_conversations"), "{made}");
    fill(&pool).await;

    migrator.undo(&pool, 0).await.unwrap();
    assert_eq!(catalog(&pool).await, empty);

    migrator.run(&pool).await.unwrap();
    assert_eq!(catalog(&pool).await, made);
    fill(&pool).await;

    pool.close().await;
}

async fn fill(pool: &Pool) {
    let insert = "INSERT INTO users (id, name) VALUES (1, 'a')";
    sqlx::query(insert).execute(pool).await.unwrap();
    let insert = "INSERT INTO accounts (id) VALUES ('a')";
    sqlx::query(insert).execute(pool).await.unwrap();

    let name = "a".to_owned();
    let scope = Scope {
        user: User { id: 1, name },
    };
    let context = conversations::Conversations::new(pool.clone());
    let new = conversations::NewConversation::new();
    let id = context.create_conversation(&scope, new).await.unwrap().id;
    let message = conversations::NewDisplayMessage::tool_call("call_1", "search");
    context
        .append_display_message(&scope, id, message)
        .await
        .unwrap();

    let account_id = Some("a".to_owned());
    let scope = AccountScope { account_id };
    let context = chat::conversations::Conversations::new(pool.clone());
    let new = chat::conversations::NewConversation::new();
    context.create_conversation(&scope, new).await.unwrap();
}
