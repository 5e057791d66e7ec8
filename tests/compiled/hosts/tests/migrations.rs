//! All migrations up, down and up again, with rows in the tables of several contexts.

use std::path::Path;

use matrix::scopes::{Scope, TeamScope, User};
use matrix::{conversations, team_chats};
use sqlx::sqlite::SqlitePool;
use uuid::Uuid;

#[tokio::test]
async fn down_takes_everything_away_and_up_brings_it_back() {
    let path = std::env::temp_dir().join(format!("migrations-{}.db", Uuid::now_v7()));
    let url = format!("sqlite:{}", path.display());
    let pool = conversations::connect(&url).await.unwrap();
    let migrator = sqlx::migrate::Migrator::new(Path::new("migrations"))
        .await
        .unwrap();
    let empty = schema(&pool).await;

    migrator.run(&pool).await.unwrap();
    let made = schema(&pool).await;
    assert!(made.contains("sagents_conversations"), "{made}");
    fill(&pool).await;

    migrator.undo(&pool, 0).await.unwrap();
    assert_eq!(schema(&pool).await, empty);

    migrator.run(&pool).await.unwrap();
    assert_eq!(schema(&pool).await, made);
    fill(&pool).await;

    pool.close().await;
    std::fs::remove_file(path).unwrap();
}

async fn fill(pool: &SqlitePool) {
    let team = Uuid::now_v7();
    let insert = "INSERT INTO users (id, name) VALUES (1, 'a')";
    sqlx::query(insert).execute(pool).await.unwrap();
    let insert = "INSERT INTO teams (id) VALUES ($1)";
    sqlx::query(insert).bind(team).execute(pool).await.unwrap();

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

    let scope = TeamScope::new(team);
    let context = team_chats::TeamChats::new(pool.clone());
    let new = team_chats::NewConversation::new();
    context.create_conversation(&scope, new).await.unwrap();
}

/// Everything in the database that a migration made.
async fn schema(pool: &SqlitePool) -> String {
    const SELECT: &str = "
        SELECT type, name, coalesce(sql, '') FROM sqlite_schema
        WHERE name NOT LIKE '\\_sqlx%' ESCAPE '\\' AND tbl_name NOT IN ('_sqlx_migrations', 'sqlite_sequence')
        ORDER BY type, name";

    let rows: Vec<(String, String, String)> = sqlx::query_as(SELECT).fetch_all(pool).await.unwrap();
    let lines = rows
        .iter()
        .map(|(kind, name, sql)| format!("{kind} {name}\n{sql}\n"));
    lines.collect()
}
