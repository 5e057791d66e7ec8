//! What owners see of each other{% if group.is_some() %}, and what a group sees of its members{% endif %}.

use std::time::Duration;
{% if group.is_some() %}
use serde_json::Map;
{% endif %}
use super::super::*;
use super::database::{ {%- if group.is_some() %}DAMAGED, {% endif %}Database, alice, bob{% if group.is_some() %}, group, other_group{% endif -%} };
{%- if group.is_some() %}
use super::state_of;
use crate::sagents::{Expect, Message, State, Todo, ToolResult};
{%- else %}
use crate::sagents::{Expect, Message, State};
{%- endif %}

#[tokio::test]
async fn what_belongs_to_somebody_else_is_not_found() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let call = NewDisplayMessage::tool_call("call_1", "search");
    db.append_display_message(&alice(), id, call).await.unwrap();
    let before = db.get_conversation(&alice(), id).await.unwrap();

    let message = NewDisplayMessage::text(Role::User, "hello");
    let page = MessagePage::first();
    assert_not_found!(db.get_conversation(&bob(), id));
    assert_not_found!(db.update_conversation(&bob(), id, ConversationChanges::default()));
    assert_not_found!(db.delete_conversation(&bob(), id));
    assert_not_found!(db.append_display_message(&bob(), id, message));
    assert_not_found!(db.load_display_messages(&bob(), id, page));
    assert_not_found!(db.clear_display_messages(&bob(), id));
    assert_not_found!(db.mark_tool_executing(&bob(), id, "call_1"));
    let some = Uuid::now_v7();
    assert_not_found!(db.claim_tool_call(&bob(), id, "call_1", some));
    assert_not_found!(db.decide_tool_call(&bob(), id, "call_1", &Decision::Approve, some));
    assert_not_found!(db.save_draft(&bob(), id, some, &Message::assistant("hello")));
    assert_not_found!(db.changes(&bob(), id, ChangeCursor::START, 10));
    assert_not_found!(db.fork_conversation(&bob(), id, Fork::new()));
    assert_not_found!(db.rewind_conversation(&bob(), id, Point::End));
    assert_not_found!(db.begin_run(&bob(), id, some, "here", Duration::ZERO));
    assert_not_found!(db.get_run(&bob(), id));
    assert_not_found!(db.save_agent_state(&bob(), id, &State::new(), Expect::Any));
    assert_not_found!(db.load_agent_state(&bob(), id));
    assert_not_found!(db.load_todos(&bob(), id));
    assert_not_found!(db.list_unreadable(&bob(), id));
    assert_not_found!(db.restore_unreadable(&bob(), id, 0));
    assert_not_found!(db.set_interrupted(&bob(), id, true));
    assert_not_found!(db.save_message(&bob(), id, Uuid::now_v7(), &Message::user("hello")));
    assert_not_found!(db.record_hitl_decision(&bob(), id, "call_1", HitlDecision::Approved));
    let listed = db.list_conversations(&bob(), ListConversations::default()).await.unwrap();
    assert_eq!(listed.items, []);
    let found = db.search_messages(&bob(), "search", SearchPage::first()).await.unwrap();
    assert_eq!(found.items, []);

    assert_eq!(db.get_conversation(&alice(), id).await.unwrap(), before);
    let messages = db.load_display_messages(&alice(), id, page).await.unwrap();
    assert_eq!(messages.items.len(), 1);
}

#[tokio::test]
async fn the_tables_refuse_a_row_that_crosses_owners() {
    let db = Database::new().await;
    let id = db.conversation().await;
    assert!(db.insert_state(&bob(), id).await.is_err());
    db.insert_state(&alice(), id).await.unwrap();
}
{%- if group.is_some() %}

#[tokio::test]
async fn a_group_reads_what_its_members_have() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let new = NewConversation::new();
    let apart = db.create_conversation(&bob(), new).await.unwrap().id;
    let message = NewDisplayMessage::text(Role::User, "hello");
    db.append_display_message(&alice(), id, message).await.unwrap();
    let mut state = state_of(&["hello"]);
    state.set_todos(vec![Todo::new("1", "Write")]);
    db.save_agent_state(&alice(), id, &state, Expect::Any).await.unwrap();
    db.replace_state(DAMAGED[1]).await;
    db.save_agent_state(&alice(), id, &state, Expect::Any).await.unwrap();
    db.join(&group(), &alice()).await;

    let (page, found) = (MessagePage::first(), SearchPage::first());
    let listed = db.list_conversations(&group(), ListConversations::default()).await.unwrap();
    assert_eq!(listed.items, [db.get_conversation(&alice(), id).await.unwrap()]);
    assert_eq!(db.get_conversation(&group(), id).await.unwrap(), listed.items[0]);
    let messages = db.load_display_messages(&group(), id, page).await.unwrap();
    assert_eq!(messages, db.load_display_messages(&alice(), id, page).await.unwrap());
    assert_eq!(db.search_messages(&group(), "HELLO", found).await.unwrap(), messages);
    assert_eq!(db.load_agent_state(&group(), id).await.unwrap().state, state);
    assert_eq!(db.load_todos(&group(), id).await.unwrap(), state.todos);
    let aside = db.list_unreadable(&group(), id).await.unwrap();
    assert_eq!(aside, db.list_unreadable(&alice(), id).await.unwrap());
    let data = db.load_unreadable(&group(), id, aside[0].epoch).await.unwrap();
    assert_eq!(data, db.load_unreadable(&alice(), id, aside[0].epoch).await.unwrap());

    db.join(&other_group(), &bob()).await;
    assert_not_found!(db.get_conversation(&group(), apart));
    assert_eq!(db.get_conversation(&other_group(), apart).await.unwrap().id, apart);
    // A caller who leaves a group is out with the next call.
    db.leave(&group(), &alice()).await;
    for outsider in [group(), other_group()] {
        let listed = db.list_conversations(&outsider, ListConversations::default()).await.unwrap();
        assert!(listed.items.iter().all(|conversation| conversation.id == apart));
        assert_not_found!(db.get_conversation(&outsider, id));
        assert_not_found!(db.load_display_messages(&outsider, id, page));
        assert_eq!(db.search_messages(&outsider, "hello", found).await.unwrap().items, []);
        assert_not_found!(db.load_agent_state(&outsider, id));
        assert_not_found!(db.load_todos(&outsider, id));
        assert_not_found!(db.list_unreadable(&outsider, id));
        assert_not_found!(db.load_unreadable(&outsider, id, aside[0].epoch));
    }
}

#[tokio::test]
async fn a_group_follows_what_its_members_do() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let message = NewDisplayMessage::text(Role::User, "hello");
    let message = db.append_display_message(&alice(), id, message).await.unwrap();
    db.begin_run(&alice(), id, Uuid::now_v7(), "here", Duration::ZERO).await.unwrap();
    db.join(&group(), &alice()).await;
    let changes = db.changes(&group(), id, ChangeCursor::START, 10).await.unwrap();
    assert_eq!(changes, db.changes(&alice(), id, ChangeCursor::START, 10).await.unwrap());
    let mut watch = db.watch(&group(), id, ChangeCursor::START).unwrap();
    assert_eq!(watch.next().await.unwrap().items, [message]);
    let run = db.get_run(&group(), id).await.unwrap();
    assert_eq!(run, db.get_run(&alice(), id).await.unwrap());
    assert_eq!(db.unfinished_runs(&group()).await.unwrap(), Vec::from_iter(run));

    db.leave(&group(), &alice()).await;
    assert_not_found!(db.changes(&group(), id, ChangeCursor::START, 10));
    assert_not_found!(watch.next());
    assert_not_found!(db.get_run(&group(), id));
    assert_eq!(db.unfinished_runs(&group()).await.unwrap(), []);
}

#[tokio::test]
async fn a_group_names_the_owner_of_a_conversation_that_several_members_have() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let same_id = NewConversation { id, ..NewConversation::new() };
    db.create_conversation(&bob(), same_id).await.unwrap();
    db.join(&group(), &alice()).await;
    let of = |caller: &dyn OwnerScope| group().member(caller.owner().unwrap()).unwrap();
    assert!(db.get_conversation(&group(), id).await.is_ok());
    assert_not_found!(db.get_conversation(&of(&bob()), id));

    db.join(&group(), &bob()).await;
    let several = db.get_conversation(&group(), id).await;
    assert!(matches!(several, Err(Error::SeveralOwners)), "{several:?}");
    for owner in [alice(), bob()] {
        let conversation = db.get_conversation(&owner, id).await.unwrap();
        assert_eq!(db.get_conversation(&of(&owner), id).await.unwrap(), conversation);
        let listed = db.list_conversations(&of(&owner), ListConversations::default()).await.unwrap();
        assert_eq!(listed.items, [conversation]);
        let written = db.delete_conversation(&of(&owner), id).await;
        assert!(matches!(written, Err(Error::NoOwner)), "{written:?}");
    }
    // Nobody reaches more by naming somebody else.
    assert!(matches!(alice().member(bob().owner().unwrap()), Err(Error::NotFound)));
    assert!(matches!(of(&alice()).member(bob().owner().unwrap()), Err(Error::NotFound)));
    db.leave(&group(), &bob()).await;
    assert_not_found!(db.list_conversations(&of(&bob()), ListConversations::default()));
}

#[tokio::test]
async fn a_group_writes_nothing() {
    macro_rules! assert_no_owner {
        ($call:expr) => {
            assert!(matches!($call.await, Err(Error::NoOwner)), "{}", stringify!($call))
        };
    }

    let db = Database::new().await;
    let id = db.conversation().await;
    db.join(&group(), &alice()).await;
    let before = db.get_conversation(&group(), id).await.unwrap();
    let (message, none) = (NewDisplayMessage::text(Role::User, "hello"), Map::new);
    assert_no_owner!(db.create_conversation(&group(), NewConversation::new()));
    assert_no_owner!(db.update_conversation(&group(), id, ConversationChanges::default()));
    assert_no_owner!(db.delete_conversation(&group(), id));
    assert_no_owner!(db.set_interrupted(&group(), id, true));
    assert_no_owner!(db.append_display_message(&group(), id, message));
    assert_no_owner!(db.save_message(&group(), id, Uuid::now_v7(), &Message::user("hello")));
    assert_no_owner!(db.clear_display_messages(&group(), id));
    assert_no_owner!(db.mark_tool_executing(&group(), id, "call_1"));
    assert_no_owner!(db.complete_tool_call(&group(), id, "call_1", none()));
    assert_no_owner!(db.record_hitl_decision(&group(), id, "call_1", HitlDecision::Approved));
    let result = ToolResult::new("call_1", "search", "42");
    assert_no_owner!(db.resolve_interrupted_tool_result(&group(), id, &result));
    let some = Uuid::now_v7();
    assert_no_owner!(db.save_draft(&group(), id, some, &Message::assistant("hello")));
    assert_no_owner!(db.settle_messages(&group(), id, &[(some, Delivery::Stored)]));
    assert_no_owner!(db.claim_tool_call(&group(), id, "call_1", some));
    assert_no_owner!(db.decide_tool_call(&group(), id, "call_1", &Decision::Approve, some));
    assert_no_owner!(db.begin_run(&group(), id, some, "here", Duration::ZERO));
    assert_no_owner!(db.request_cancel(&group(), id));
    assert_no_owner!(db.save_agent_state(&group(), id, &State::new(), Expect::Any));
    assert_no_owner!(db.restore_unreadable(&group(), id, 0));
    assert_no_owner!(db.discard_unreadable(&group(), id, 0));
    assert_eq!(db.get_conversation(&alice(), id).await.unwrap(), before);
}
{%- endif %}
