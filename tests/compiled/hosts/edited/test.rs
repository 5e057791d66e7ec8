//! What the host added works beside what was generated, on rows from before the change of owner; and everybody sees the
//! rows of their own team, also where the number of a user is that of another team.

use edited::accounts::{Scope, Team, User};
use edited::conversations::Conversations;
use sagents::sqlx::{self, AssertSqlSafe};
use sagents::testing::TestDatabase;
use sagents::{Error, ListConversations, MessagePage};
use std::fs;
use std::path::PathBuf;
use uuid::Uuid;

/// User 1 is in team 7, and user 7 in team 1.
const ROWS: &str = "
    INSERT INTO teams (id) VALUES (1), (7);
    INSERT INTO users (id) VALUES (1), (7);
    INSERT INTO memberships (user_id, team_id, joined_at) VALUES (1, 7, '2023-01-01'), (7, 1, '2023-02-01');
    INSERT INTO sagents_conversations (user_id, id, title, scope, next_sequence, inserted_at, updated_at, project_id)
    VALUES (1, x'01890a5d000070008000000000000000', 'blue', '{}', 1, '2024-01-01T00:00:00.000000Z',
            '2024-01-01T00:00:00.000000Z', 70),
           (7, x'01890a5d000070008000000000000007', 'green', '{}', 0, '2024-01-01T00:00:00.000000Z',
            '2024-01-01T00:00:00.000000Z', 10);
    INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role,
        content_type, content, inserted_at, rating)
    VALUES (1, x'01890a5d000070008000000000000000', 0, x'01890a5d000070008000000000000001', 0, 'user',
        'text', 'hello', '2024-01-01T00:00:00.000000Z', 5);";

#[tokio::test]
async fn edits_and_rows_are_there_after_the_change_of_owner_and_every_team_sees_its_own() {
    let database = TestDatabase::sqlite().unwrap();
    let pool = sagents::sqlite::connect(database.url()).await.unwrap();
    let mut migrations: Vec<_> = fs::read_dir("migrations")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().ends_with(".up.sql"))
        .collect();
    migrations.sort();
    // The accounts, the tables, the host's own columns; and then the change of owner.
    let (before, change) = migrations.split_at(4);
    let migrate = async |paths: &[PathBuf]| {
        for path in paths {
            let sql = format!("BEGIN; {} COMMIT;", fs::read_to_string(path).unwrap());
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.unwrap();
        }
    };
    migrate(before).await;
    sqlx::raw_sql(ROWS).execute(&pool).await.unwrap();
    migrate(change).await;

    let conversations = Conversations::new(pool.clone());
    let scope = |user, team| Scope { user: User { id: user }, team: Team { id: team } };
    let blue = Uuid::from_u128(0x0189_0a5d_0000_7000_8000_0000_0000_0000);
    for (scope, own) in [(scope(1, 7), (7, "blue")), (scope(7, 1), (1, "green"))] {
        let list = ListConversations::new();
        let found = conversations.list_conversations(&scope, list).await.unwrap();
        let seen: Vec<_> = found.items.iter().map(|found| (found.team_id, found.title.as_deref().unwrap())).collect();
        assert_eq!(seen, [own]);
        assert_eq!(found.items[0].project_id, Some(own.0 * 10));
        let planned = conversations.list_project_conversations(&scope, own.0 * 10, list).await.unwrap();
        assert_eq!(planned.items, found.items);
        assert_eq!(conversations.count_conversations(&scope).await.unwrap(), 1);
    }
    let hidden = conversations.get_conversation(&scope(7, 1), blue).await;
    assert!(matches!(hidden, Err(Error::NotFound)), "{hidden:?}");
    let hidden = conversations.rate_message(&scope(7, 1), blue, 0, 1).await;
    assert!(matches!(hidden, Err(Error::NotFound)), "{hidden:?}");

    let rated = async || {
        let page = conversations.load_display_messages(&scope(1, 7), blue, MessagePage::first()).await;
        page.unwrap().items.into_iter().map(|row| (row.content, row.rating)).collect::<Vec<_>>()
    };
    assert_eq!(rated().await, [("hello".to_owned(), Some(5))]);
    conversations.rate_message(&scope(1, 7), blue, 0, 3).await.unwrap();
    assert_eq!(rated().await, [("hello".to_owned(), Some(3))]);
    let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM sagents_conversations")
        .fetch_one(conversations.database())
        .await
        .unwrap();
    assert_eq!(tables, 2);
}
