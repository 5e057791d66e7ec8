//! Tests of archived conversations, and of the tokens that messages cost.

use std::time::Duration;

use super::super::*;
use super::database::{Database, alice{% if has_owner %}, bob{% endif %}{% if group.is_some() %}, group{% endif %}};
use crate::sagents::{Expect, Message, Price, State, TokenUsage, timestamp};

async fn listed(db: &Database, scope: &impl OwnerScope, archived: Archived) -> [Vec<Uuid>; 4] {
    let mut lists = [ConversationOrder::UpdatedDesc; 4].map(|_| Vec::new());
    let orders = [
        ConversationOrder::UpdatedDesc,
        ConversationOrder::UpdatedAsc,
        ConversationOrder::CreatedDesc,
        ConversationOrder::CreatedAsc,
    ];
    for (list, order) in lists.iter_mut().zip(orders) {
        let page = ListConversations::new().archived(archived).order_by(order);
        let page = db.list_conversations(scope, page).await.unwrap();
        list.extend(page.items.iter().map(|conversation| conversation.id));
    }
    lists
}

/// In the orders of [`listed`], of conversations from the oldest to the newest.
fn orders(ids: &[Uuid]) -> [Vec<Uuid>; 4] {
    let reversed: Vec<_> = ids.iter().rev().copied().collect();
    [reversed.clone(), ids.to_vec(), reversed, ids.to_vec()]
}

#[tokio::test]
async fn lists_leave_out_archived_conversations_include_them_or_have_only_them() {
    let db = Database::new().await;
    let [a, b, c] = [db.conversation().await, db.conversation().await, db.conversation().await];
    let before = db.get_conversation(&alice(), b).await.unwrap();
    assert_eq!(before.archived_at, None);
    let archived = db.archive_conversation(&alice(), b).await.unwrap();
    assert!(archived.archived_at.is_some());
    assert_eq!(archived.updated_at, before.updated_at);
    assert_eq!(db.archive_conversation(&alice(), b).await.unwrap(), archived, "it keeps the first time");
    assert_eq!(db.get_conversation(&alice(), b).await.unwrap(), archived);

    assert_eq!(listed(&db, &alice(), Archived::Exclude).await, orders(&[a, c]));
    assert_eq!(listed(&db, &alice(), Archived::Include).await, orders(&[a, b, c]));
    assert_eq!(listed(&db, &alice(), Archived::Only).await, orders(&[b]));
{%- if group.is_some() %}
    db.join(&group(), &alice()).await;
    assert_eq!(listed(&db, &group(), Archived::Exclude).await, orders(&[a, c]));
    assert_eq!(listed(&db, &group(), Archived::Include).await, orders(&[a, b, c]));
    assert_eq!(listed(&db, &group(), Archived::Only).await, orders(&[b]));
    assert!(matches!(db.archive_conversation(&group(), a).await, Err(Error::NoOwner)));
{%- endif %}
{%- if has_owner %}
    assert_not_found!(db.archive_conversation(&bob(), a));
    assert_not_found!(db.unarchive_conversation(&bob(), b));
{%- endif %}

    assert_eq!(db.unarchive_conversation(&alice(), b).await.unwrap(), before);
    assert_eq!(db.unarchive_conversation(&alice(), b).await.unwrap(), before);
    assert_eq!(listed(&db, &alice(), Archived::Exclude).await, orders(&[a, b, c]));
}

#[tokio::test]
async fn housekeeping_deletes_what_was_archived_before_a_time() {
    let db = Database::new().await;
    let (kept, archived) = (db.conversation().await, db.conversation().await);
    let time = db.archive_conversation(&alice(), archived).await.unwrap().archived_at.unwrap();
    assert_eq!(db.delete_archived_before(time).await.unwrap(), 0);
    assert_eq!(db.delete_archived_before(timestamp::MAX).await.unwrap(), 1);
    assert_not_found!(db.get_conversation(&alice(), archived));
    assert!(db.get_conversation(&alice(), kept).await.is_ok());
}

fn answer() -> Message {
    Message::assistant("To the sea.").with_usage("small", TokenUsage::new(100, 20).cached(60))
}

fn small(messages: i64) -> ModelUsage {
    ModelUsage {
        model: Some("small".into()),
        messages,
        tokens: TokenUsage::new(100 * messages, 20 * messages).cached(60 * messages),
    }
}

#[tokio::test]
async fn a_message_is_counted_once_however_often_it_is_stored() {
    let db = Database::new().await;
    let id = db.conversation().await;
    assert_eq!(db.usage(&alice(), id).await.unwrap(), Usage::default());
    let message_id = Uuid::now_v7();
    db.save_draft(&alice(), id, message_id, &answer()).await.unwrap();
    assert_eq!(db.usage(&alice(), id).await.unwrap(), Usage::default(), "a draft is not counted");
    for _ in 0..2 {
        db.save_message(&alice(), id, message_id, &answer()).await.unwrap();
        assert_eq!(db.usage(&alice(), id).await.unwrap().models, [small(1)]);
    }
    let mut state = State::new();
    state.messages.push_with_id(message_id, answer());
    state.add_message(Message::user("When?"));
    let saved = db.save_agent_state(&alice(), id, &state, Expect::NOTHING).await.unwrap();
    assert_eq!(db.usage(&alice(), id).await.unwrap().models, [small(1)]);
    state.add_message(answer());
    state.add_message(answer());
    let saved = Expect::Revision(saved);
    db.save_agent_state(&alice(), id, &state, saved).await.unwrap();
    assert!(db.save_agent_state(&alice(), id, &state, saved).await.is_err());
    assert_eq!(db.usage(&alice(), id).await.unwrap().models, [small(3)]);

    let shown = NewDisplayMessage::text(Role::Assistant, "In June.");
    let shown = shown.usage("large", TokenUsage::new(7, 1));
    for _ in 0..2 {
        db.append_display_message(&alice(), id, shown.clone()).await.unwrap();
    }
    let large = ModelUsage {
        model: Some("large".into()),
        messages: 1,
        tokens: TokenUsage::new(7, 1),
    };
    assert_eq!(db.usage(&alice(), id).await.unwrap().models, [large, small(3)]);
}

#[tokio::test]
async fn usage_stays_when_messages_are_deleted_and_goes_with_the_conversation() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let start = timestamp::now();
    let message_id = Uuid::now_v7();
    db.save_message(&alice(), id, message_id, &answer()).await.unwrap();
    db.clear_display_messages(&alice(), id).await.unwrap();
    db.save_message(&alice(), id, message_id, &answer()).await.unwrap();
    let usage = db.usage(&alice(), id).await.unwrap();
    assert_eq!(usage.models, [small(1)]);
    assert_eq!(usage.total(), small(1).tokens);
    let price = Price {
        input: 1e6,
        output: 1e5,
        cached: 0.0,
    };
    assert_eq!(usage.cost(|_| Some(price)), Some(42.0));
    assert_eq!(usage.cost(|_| None), None);

    let end = timestamp::now() + Duration::from_secs(1);
    assert_eq!(db.usage_between(&alice(), start, end).await.unwrap(), usage);
    let none = Usage::default();
    assert_eq!(db.usage_between(&alice(), end, timestamp::MAX).await.unwrap(), none);
    assert_eq!(db.usage_between(&alice(), timestamp::MIN, start).await.unwrap(), none);
{%- if group.is_some() %}
    assert_not_found!(db.usage(&group(), id));
    assert_eq!(db.usage_between(&group(), start, end).await.unwrap(), none);
    db.join(&group(), &alice()).await;
    assert_eq!(db.usage(&group(), id).await.unwrap(), usage);
    assert_eq!(db.usage_between(&group(), start, end).await.unwrap(), usage);
{%- endif %}
{%- if has_owner %}
    assert_not_found!(db.usage(&bob(), id));
    assert_eq!(db.usage_between(&bob(), start, end).await.unwrap(), none);
{%- endif %}

    db.delete_conversation(&alice(), id).await.unwrap();
    assert_not_found!(db.usage(&alice(), id));
    assert_eq!(db.usage_between(&alice(), start, end).await.unwrap(), none);
}
