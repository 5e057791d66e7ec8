//! The clock of the machine goes back.

use matrix::conversations::{
    ConversationChanges, HitlDecision, ListConversations, NewDisplayMessage, SearchPage,
};
use matrix::sagents::{Expect, State};

use super::{append, conversation, opened};
use crate::storage::scope;

/// What was written a day from now, before the clock was set right.
const TOMORROW: &str = "2100-01-01T00:00:00.000000Z";

#[tokio::test]
async fn no_time_of_a_conversation_goes_back_with_the_clock() {
    const AHEAD: &str = "
        UPDATE sagents_conversations SET updated_at = $1;
        UPDATE sagents_agent_states SET updated_at = $1;
        UPDATE sagents_display_messages SET inserted_at = $1";

    let (_database, pool, layer) = opened().await;
    let (scope, id) = (&scope(), conversation(&layer, 1).await);
    layer
        .save_agent_state(scope, id, &State::new(), Expect::Any)
        .await
        .unwrap();
    append(&layer, 1, id, "found first").await.unwrap();
    for statement in AHEAD.split(';') {
        let statement = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(TOMORROW);
        statement.execute(&pool).await.unwrap();
    }

    let changes = ConversationChanges::default().title("a title");
    let updated = layer.update_conversation(scope, id, changes).await.unwrap();
    let tomorrow = updated.updated_at;
    assert_eq!(tomorrow.to_rfc3339(), "2100-01-01T00:00:00+00:00");
    let interrupted = layer.set_interrupted(scope, id, true).await.unwrap();
    assert_eq!(interrupted.updated_at, tomorrow);
    let second = append(&layer, 1, id, "found second").await.unwrap();
    assert_eq!(second.inserted_at, tomorrow);
    let call = NewDisplayMessage::tool_call("call", "a tool");
    let call = layer.append_display_message(scope, id, call).await.unwrap();
    assert_eq!(call.inserted_at, tomorrow);
    layer.mark_tool_executing(scope, id, "call").await.unwrap();
    let approved = HitlDecision::Approved;
    let decided = layer.record_hitl_decision(scope, id, "call", approved);
    decided.await.unwrap();
    let found = layer.search_messages(scope, "FOUND", SearchPage::first());
    let found = found.await.unwrap().items;
    let found: Vec<_> = found
        .iter()
        .map(|message| message.content.as_str())
        .collect();
    assert_eq!(found, ["found second", "found first"], "newest first");
    layer
        .save_agent_state(scope, id, &State::new(), Expect::Any)
        .await
        .unwrap();
    layer.clear_display_messages(scope, id).await.unwrap();

    let listed = layer.list_conversations(scope, ListConversations::default());
    assert_eq!(listed.await.unwrap().items[0].updated_at, tomorrow);
    let saved: String = sqlx::query_scalar("SELECT updated_at FROM sagents_agent_states")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(saved, TOMORROW);
}
