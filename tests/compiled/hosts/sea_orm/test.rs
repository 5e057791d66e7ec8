//! sea-orm runs the migrations and shares its pool with the conversations.

use migration::{Migrator, MigratorTrait as _};
use on_sea_orm::accounts::Scope;
use on_sea_orm::conversations::{Conversations, Error, NewConversation};
use sea_orm::{ConnectionTrait as _, Database, DatabaseConnection, DbBackend, Statement};

/// How many tables have a name that starts so.
async fn tables(db: &DatabaseConnection, prefix: &str) -> i64 {
    let select = format!("SELECT count(*) AS n FROM pg_tables WHERE tablename LIKE '{prefix}%'");
    let row = db
        .query_one(Statement::from_string(DbBackend::Postgres, select))
        .await;
    row.unwrap().unwrap().try_get("", "n").unwrap()
}

#[tokio::test]
async fn one_pool_serves_both_and_migrations_go_up_and_down() {
    let url = std::env::var("DATABASE_URL").unwrap();
    let admin = Database::connect(&url).await.unwrap();
    let create = "CREATE DATABASE on_sea_orm";
    admin.execute_unprepared(create).await.unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    let db = Database::connect(format!("{server}/on_sea_orm"))
        .await
        .unwrap();

    Migrator::up(&db, None).await.unwrap();
    let insert = "INSERT INTO users (email) VALUES ('a@example.com')";
    db.execute_unprepared(insert).await.unwrap();
    let conversations = Conversations::from(&db);
    let (alice, nobody) = (Scope { user_id: 1 }, Scope { user_id: 2 });
    let created = conversations
        .create_conversation(&alice, NewConversation::new())
        .await
        .unwrap();
    let refused = conversations
        .create_conversation(&nobody, NewConversation::new())
        .await;
    assert!(matches!(refused, Err(Error::Database(_))), "{refused:?}");

    // The second migration of the two renamed the tables.
    assert!(tables(&db, "chat").await > 0);
    Migrator::down(&db, Some(1)).await.unwrap();
    assert_eq!(tables(&db, "chat").await, 0);
    assert!(tables(&db, "sagents").await > 0);
    Migrator::up(&db, None).await.unwrap();
    let found = Conversations::from(db.clone())
        .get_conversation(&alice, created.id)
        .await;
    assert_eq!(found.unwrap(), created);

    Migrator::down(&db, None).await.unwrap();
    assert_eq!(tables(&db, "chat").await + tables(&db, "users").await, 0);
    db.close().await.unwrap();
    let drop = "DROP DATABASE on_sea_orm WITH (FORCE)";
    admin.execute_unprepared(drop).await.unwrap();
}
