//! Refinery runs the migrations; the conversations have a pool of their own beside its connections.

use on_refinery::accounts::Scope;
use on_refinery::conversations::{connect, Conversations, NewConversation};
use on_refinery::embedded::migrations;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn count(client: &Client, from: &str) -> i64 {
    let select = format!("SELECT count(*) FROM {from}");
    client.query_one(&select, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn refinery_migrates_and_both_use_the_tables() {
    let url = std::env::var("DATABASE_URL").unwrap();
    let admin = client(&url).await;
    let create = "CREATE DATABASE on_refinery";
    admin.batch_execute(create).await.unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    let url = format!("{server}/on_refinery");
    let mut client = client(&url).await;
    let report = migrations::runner().run_async(&mut client).await.unwrap();
    assert_eq!(report.applied_migrations().len(), 3);
    let report = migrations::runner().run_async(&mut client).await.unwrap();
    assert_eq!(report.applied_migrations().len(), 0);

    let user_id = Uuid::now_v7();
    let insert = format!("INSERT INTO users (id) VALUES ('{user_id}')");
    client.batch_execute(&insert).await.unwrap();
    let conversations = Conversations::new(connect(&url).await.unwrap());
    let scope = Scope { user_id };
    let new = conversations.create_conversation(&scope, NewConversation::new());
    new.await.unwrap();
    assert_eq!(count(&client, "chat_conversations").await, 1);
    // The newest migration renamed the tables.
    let renamed = "pg_tables WHERE tablename LIKE 'sagents%'";
    assert_eq!(count(&client, renamed).await, 0);
    let drop = "DROP DATABASE on_refinery WITH (FORCE)";
    admin.batch_execute(drop).await.unwrap();
}
