//! The host's own columns in forks, exports and imports, in a process that doesn't know them yet, and in the check.

use customized::accounts::{Scope, User};
use customized::conversations::{Conversations, NewConversation};
use sagents::sqlx::{self, AssertSqlSafe};
use sagents::testing::{self, TestDatabase};
use sagents::{Fork, ListConversations, MessagePage, NewDisplayMessage, Role};
use uuid::Uuid;

pub fn scope() -> Scope {
    Scope { user: User { id: 1, name: "a".to_owned() } }
}

/// The context on a new database with the host's tables, and its user.
pub async fn open() -> (TestDatabase, Conversations) {
    let database = TestDatabase::sqlite().unwrap();
    database.run_migrations("migrations").await.unwrap();
    let pool = sagents::sqlite::connect(database.url()).await.unwrap();
    sqlx::raw_sql("INSERT INTO users (id, name) VALUES (1, 'a')").execute(&pool).await.unwrap();
    (database, Conversations::new(pool))
}

async fn planned(conversations: &Conversations) -> Uuid {
    let new = NewConversation { project_id: Some(7), ..NewConversation::default() };
    let id = conversations.create_conversation(&scope(), new).await.unwrap().id;
    let text = NewDisplayMessage::text(Role::Assistant, "hello");
    let message = conversations.append_display_message(&scope(), id, text).await.unwrap();
    conversations.rate_message(&scope(), id, message.sequence, 5).await.unwrap();
    id
}

/// The project of a conversation, and the ratings of its messages.
async fn columns(conversations: &Conversations, id: Uuid) -> (Option<i64>, Vec<Option<i64>>) {
    let found = conversations.get_conversation(&scope(), id).await.unwrap();
    let page = conversations.load_display_messages(&scope(), id, MessagePage::first()).await;
    (found.project_id, page.unwrap().items.into_iter().map(|row| row.rating).collect())
}

#[tokio::test]
async fn forks_have_the_hosts_own_columns() {
    let (_database, conversations) = open().await;
    let id = planned(&conversations).await;
    let fork = conversations.store().fork_conversation(&scope(), id, Fork::new()).await.unwrap();
    assert_eq!(columns(&conversations, fork.conversation.id).await, (Some(7), vec![Some(5)]));
}

#[tokio::test]
async fn exports_and_imports_carry_the_hosts_own_columns_of_conversations() {
    let (_database, conversations) = open().await;
    let id = planned(&conversations).await;
    let (store, mut file) = (conversations.store(), Vec::new());
    store.export_conversation_to(&scope(), id, &mut file).await.unwrap();
    let export = store.export_conversation(&scope(), id).await.unwrap();

    conversations.delete_conversation(&scope(), id).await.unwrap();
    assert!(store.import_conversation_from(&scope(), &*file).await.unwrap().created);
    assert_eq!(columns(&conversations, id).await.0, Some(7));

    conversations.delete_conversation(&scope(), id).await.unwrap();
    assert!(store.import_conversation(&scope(), export).await.unwrap().created);
    assert_eq!(columns(&conversations, id).await.0, Some(7));
}

#[tokio::test]
async fn a_column_that_tables_does_not_list_fails_the_check_which_says_where_to_add_it() {
    let (_database, conversations) = open().await;
    testing::check_tables(conversations.store()).await.unwrap();
    for (table, model) in [("conversations", "Conversation"), ("display_messages", "DisplayMessage")] {
        let add = format!("ALTER TABLE sagents_{table} ADD COLUMN visibility TEXT");
        sqlx::raw_sql(AssertSqlSafe(add)).execute(conversations.store().pool()).await.unwrap();
        let error = testing::check_tables(conversations.store()).await.unwrap_err().to_string();
        assert!(error.contains(&format!("sagents_{table}.visibility")), "{error}");
        assert!(error.contains(&format!("add it to {model}::COLUMNS")), "{error}");
    }
}

#[tokio::test]
async fn a_column_that_another_process_adds_breaks_no_call() {
    let (database, conversations) = open().await;
    planned(&conversations).await;
    let other = sagents::sqlite::connect(database.url()).await.unwrap();
    for table in ["conversations", "agent_states", "display_messages"] {
        let add = format!("ALTER TABLE sagents_{table} ADD COLUMN color TEXT NOT NULL DEFAULT 'red'");
        sqlx::raw_sql(AssertSqlSafe(add)).execute(&other).await.unwrap();
    }
    // Every connection of the pool has prepared the statements before.
    for _ in 0..10 {
        let id = planned(&conversations).await;
        assert_eq!(columns(&conversations, id).await, (Some(7), vec![Some(5)]));
    }
    let list = ListConversations::new();
    let listed = conversations.list_project_conversations(&scope(), 7, list).await.unwrap();
    assert_eq!(listed.items.len(), 11);
}
