//! sea-orm runs the migrations, and both pools use one file.

use migration::{Migrator, MigratorTrait as _};
use on_sea_orm::accounts::Scope;
use on_sea_orm::conversations::{Conversations, NewConversation};
use sagents::testing::TestDatabase;
use sagents::{Error, NewDisplayMessage, Role};
use sea_orm::{ConnectionTrait as _, Database, DatabaseConnection, DbBackend, Statement};

/// How many tables have a name that starts so.
async fn tables(db: &DatabaseConnection, prefix: &str) -> i64 {
    let select = format!("SELECT count(*) AS n FROM sqlite_schema WHERE name LIKE '{prefix}%'");
    let statement = Statement::from_string(DbBackend::Sqlite, select);
    let row = db.query_one(statement).await.unwrap();
    row.unwrap().try_get("", "n").unwrap()
}

#[tokio::test]
async fn two_pools_of_two_versions_of_sqlx_use_one_database() {
    let database = TestDatabase::sqlite().unwrap();
    let url = format!("{}?mode=rwc", database.url());
    let db = Database::connect(url).await.unwrap();
    Migrator::up(&db, None).await.unwrap();
    let insert = "INSERT INTO users (email) VALUES ('a@example.com')";
    db.execute_unprepared(insert).await.unwrap();

    let pool = sagents::sqlite::connect(database.url()).await.unwrap();
    let conversations = Conversations::new(pool);
    let (alice, nobody) = (Scope { user_id: 1 }, Scope { user_id: 2 });
    let new = NewConversation::default();
    let created = conversations.create_conversation(&alice, new).await;
    let created = created.unwrap();
    let new = NewConversation::default();
    let refused = conversations.create_conversation(&nobody, new).await;
    assert!(matches!(refused, Err(Error::Database(_))), "{refused:?}");

    // Both write, in turns and at the same time.
    tokio::join!(
        async {
            for number in 0..50 {
                let text = NewDisplayMessage::text(Role::User, number.to_string());
                let appended = conversations.append_display_message(&alice, created.id, text);
                appended.await.unwrap();
            }
        },
        async {
            for number in 0..50 {
                let insert = format!("INSERT INTO users (email) VALUES ('{number}')");
                db.execute_unprepared(&insert).await.unwrap();
            }
        }
    );

    // The second migration of the two renamed the tables.
    assert!(tables(&db, "chat").await > 0);
    Migrator::down(&db, Some(1)).await.unwrap();
    assert_eq!(tables(&db, "chat").await, 0);
    assert!(tables(&db, "sagents").await > 0);
    let renamed = conversations.get_conversation(&alice, created.id).await;
    assert!(matches!(renamed, Err(Error::Database(_))), "{renamed:?}");
    Migrator::up(&db, None).await.unwrap();
    let found = conversations.get_conversation(&alice, created.id).await;
    assert_eq!(found.unwrap().id, created.id);

    Migrator::down(&db, None).await.unwrap();
    assert_eq!(tables(&db, "chat").await + tables(&db, "users").await, 0);
    db.close().await.unwrap();
}
