//! What the host added works beside what was generated, on rows from before the change of owner.

use std::path::Path;

use my_app::accounts::{Scope, User};
use my_app::conversations::{Conversations, ListConversations, MessagePage, connect};
use sqlx::migrate::Migrator;
use uuid::Uuid;

const ROWS: &str = "
    INSERT INTO teams (id) VALUES (x'00000000000000000000000000000007');
    INSERT INTO users (id, team_id) VALUES (1, x'00000000000000000000000000000007');
    INSERT INTO sagents_conversations (user_id, id, scope, next_sequence, inserted_at, updated_at, color)
    VALUES (1, x'01890a5d000070008000000000000000', '{}', 1, '2024-01-01T00:00:00.000000Z',
            '2024-01-01T00:00:00.000000Z', 'blue');
    INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role,
        content_type, content, inserted_at)
    VALUES (1, x'01890a5d000070008000000000000000', 0, x'01890a5d000070008000000000000001', 0, 'user',
        'text', 'hello', '2024-01-01T00:00:00.000000Z');";

#[tokio::test]
async fn edits_and_rows_are_there_after_the_change_of_owner() {
    let pool = connect("sqlite::memory:").await.unwrap();
    let all = Migrator::new(Path::new("migrations")).await.unwrap();
    all.run_to(3, &pool).await.unwrap();
    sqlx::raw_sql(ROWS).execute(&pool).await.unwrap();
    all.run(&pool).await.unwrap();

    let conversations = Conversations::new(pool);
    let scope = Scope {
        user: User { id: 1 },
        team_id: Uuid::from_u128(7),
    };
    let list = ListConversations::default();
    let found = conversations.list_conversations(&scope, list).await.unwrap();
    let seen: Vec<_> = found
        .iter()
        .map(|found| (found.team_id, found.color.as_str()))
        .collect();
    assert_eq!(seen, [(scope.team_id, "blue")]);
    let messages = conversations
        .load_display_messages(&scope, found[0].id, MessagePage::first())
        .await
        .unwrap();
    assert_eq!(messages[0].content, "hello");
    let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM sagents_conversations")
        .fetch_one(conversations.pool())
        .await
        .unwrap();
    assert_eq!(tables, 1);
}
