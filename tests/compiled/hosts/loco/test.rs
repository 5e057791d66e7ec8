//! Loco runs the migrations with its `Migrator`, and its connection serves the conversations too.

use migration::{Migrator, MigratorTrait as _};
use on_loco::conversations::{Conversations, Error, NewConversation};
use on_loco::models::users::{ActiveModel, Model};
use sea_orm::{ActiveModelTrait as _, ActiveValue, Database};

#[tokio::test]
async fn one_pool_serves_both_and_migrations_go_up_and_down() {
    let name = format!("on_loco_{}.sqlite", std::process::id());
    let path = std::env::temp_dir().join(name);
    let url = format!("sqlite://{}?mode=rwc", path.display());
    let db = Database::connect(url).await.unwrap();
    Migrator::up(&db, None).await.unwrap();
    let alice = ActiveModel {
        email: ActiveValue::Set("a@example.com".to_owned()),
        ..Default::default()
    };
    let alice = alice.insert(&db).await.unwrap();
    let nobody = Model {
        id: 2,
        ..alice.clone()
    };

    let conversations = Conversations::from(&db);
    let created = conversations
        .create_conversation(&alice, NewConversation::new())
        .await
        .unwrap();
    let refused = conversations
        .create_conversation(&nobody, NewConversation::new())
        .await;
    assert!(matches!(refused, Err(Error::Database(_))), "{refused:?}");

    // The second migration of the two renamed the tables.
    Migrator::down(&db, Some(1)).await.unwrap();
    let renamed = conversations.get_conversation(&alice, created.id).await;
    assert!(matches!(renamed, Err(Error::Database(_))), "{renamed:?}");
    Migrator::up(&db, None).await.unwrap();
    let found = conversations.get_conversation(&alice, created.id).await;
    assert_eq!(found.unwrap(), created);
    Migrator::down(&db, None).await.unwrap();
    db.close().await.unwrap();
    std::fs::remove_file(path).unwrap();
}
