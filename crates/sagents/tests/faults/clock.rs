//! The machine's clock goes back.

use sagents::{
    Claim, ConversationChanges, Decision, Expect, ListConversations, NewDisplayMessage, SearchPage, State, Timestamp,
};
use serde_json::Map;
use uuid::Uuid;

use crate::support::fixture::Fixture;
use crate::support::{TABLES, TestDatabase};

crate::on_both_databases!(no_time_of_a_conversation_goes_back_with_the_clock);

/// Written before the clock was corrected.
const AHEAD: &str = "2100-01-01T00:00:00.000000Z";

async fn no_time_of_a_conversation_goes_back_with_the_clock(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id, ahead) = (&db.alice, db.conversation().await, AHEAD.parse::<Timestamp>().unwrap());
    let say = async |text: &str| super::append(&db, alice, id, text).await.unwrap();
    db.save_agent_state(alice, id, &State::new(), Expect::Any).await.unwrap();
    say("found first").await;
    for (table, column) in
        [("conversations", "updated_at"), ("agent_states", "updated_at"), ("display_messages", "inserted_at")]
    {
        db.pool.execute(format!("UPDATE sagents_{table} SET {column} = '{AHEAD}'")).await;
    }

    let changes = ConversationChanges::default().title("a title");
    assert_eq!(db.update_conversation(alice, id, changes).await.unwrap().updated_at, ahead);
    db.set_interrupted(alice, id, true).await.unwrap();
    assert_eq!(db.updated(id).await, ahead);
    assert_eq!(say("found second").await.inserted_at, ahead);
    let call = NewDisplayMessage::tool_call("call", "a tool");
    assert_eq!(db.append_display_message(alice, id, call).await.unwrap().inserted_at, ahead);
    db.interrupt_tool_call(alice, id, "call", Map::new()).await.unwrap();
    db.decide_tool_call(alice, id, "call", &Decision::Approve, Uuid::now_v7()).await.unwrap();
    let claimed = db.claim_tool_call(alice, id, "call", Uuid::now_v7()).await.unwrap();
    assert!(matches!(claimed, Claim::Claimed(_)), "{claimed:?}");
    let found = db.search_messages(alice, "FOUND", SearchPage::first()).await.unwrap().items;
    let found: Vec<_> = found.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(found, ["found second", "found first"], "newest first");
    db.save_agent_state(alice, id, &State::new(), Expect::Any).await.unwrap();
    db.clear_display_messages(alice, id).await.unwrap();

    let listed = db.list_conversations(alice, ListConversations::default()).await.unwrap();
    assert_eq!(listed.items[0].updated_at, ahead);
    let later = format!("SELECT count(*) FROM sagents_agent_states WHERE updated_at = '{AHEAD}'");
    assert_eq!(db.pool.number(later).await, 1);
}
