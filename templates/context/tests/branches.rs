//! Forks, rewinds, and readers who notice what was deleted.

use serde_json::json;

use super::super::*;
use super::database::{Database, alice{% if has_owner %}, bob{% endif %}};
use crate::sagents::{Expect, Message, State, ToolCall, ToolResult};

/// A question, a call with its result, an answer: in the agent state and displayed, with their ids.
async fn talk(db: &Database) -> (Uuid, [Uuid; 4]) {
    let id = db.conversation().await;
    let ids = [(); 4].map(|()| Uuid::now_v7());
    let messages = [
        Message::user("What is it?"),
        Message::tool_calls([ToolCall::new("call_1", "search", json!({}))]),
        Message::tool_results([ToolResult::new("call_1", "search", "42")]),
        Message::assistant("It is 42."),
    ];
    let mut state = State::new();
    for (message_id, message) in ids.into_iter().zip(messages) {
        db.save_message(&alice(), id, message_id, &message).await.unwrap();
        state.messages.push_with_id(message_id, message);
    }
    db.save_agent_state(&alice(), id, &state, Expect::NOTHING).await.unwrap();
    (id, ids)
}

/// The ids of the agent's messages, and of the display messages.
async fn ids(db: &Database, id: Uuid) -> (Vec<Uuid>, Vec<Uuid>) {
    let state = db.load_agent_state(&alice(), id).await.unwrap().state;
    let agent = (0..state.messages.len()).filter_map(|n| state.messages.id(n));
    let page = db.load_display_messages(&alice(), id, MessagePage::first()).await.unwrap();
    (agent.collect(), page.items.iter().map(|row| row.message_id).collect())
}

#[tokio::test]
async fn a_fork_has_what_is_before_its_point_and_a_repeat_stores_nothing() {
    let db = Database::new().await;
    let (id, [question, call, result, answer]) = talk(&db).await;
    let before = ids(&db, id).await;

    let fork = Fork::at(Point::Through(result)).title("Another way");
    let forked = db.fork_conversation(&alice(), id, fork.clone()).await.unwrap();
    let kept = vec![question, call, result];
    assert_eq!(forked.cut, Cut { last: Some(result), moved: false });
    assert_eq!(ids(&db, forked.conversation.id).await, (kept.clone(), kept));
    assert_eq!(forked.conversation.title.as_deref(), Some("Another way"));
    let from = &forked.conversation.metadata["forked_from"];
    assert_eq!((&from["conversation_id"], &from["message_id"]), (&json!(id), &json!(result)));
    assert_eq!(db.fork_conversation(&alice(), id, fork.clone()).await.unwrap(), forked);

    // A call stays with its result.
    let forked = db.fork_conversation(&alice(), id, Fork::at(Point::Before(result))).await.unwrap();
    assert_eq!(forked.cut, Cut { last: Some(question), moved: true });
    assert_eq!(ids(&db, forked.conversation.id).await, (vec![question], vec![question]));
    let all = db.fork_conversation(&alice(), id, Fork::new()).await.unwrap();
    assert_eq!(all.cut.last, Some(answer));
    assert_eq!(ids(&db, all.conversation.id).await, before);
    assert_eq!(ids(&db, id).await, before, "the other conversation is as it was");

    let taken = Fork::new().id(id);
    assert!(matches!(db.fork_conversation(&alice(), id, taken).await, Err(Error::Invalid(_))));
    let unknown = Fork::at(Point::Before(Uuid::now_v7()));
    assert!(matches!(db.fork_conversation(&alice(), id, unknown).await, Err(Error::NotFound)));
{%- if has_owner %}
    assert!(matches!(db.fork_conversation(&bob(), id, Fork::new()).await, Err(Error::NotFound)));
    assert!(matches!(db.rewind_conversation(&bob(), id, Point::End).await, Err(Error::NotFound)));
{%- endif %}
}

#[tokio::test]
async fn a_rewind_takes_back_both_and_a_writer_with_the_old_state_gets_a_conflict() {
    let db = Database::new().await;
    let (id, [question, call, result, answer]) = talk(&db).await;
    let old = db.load_agent_state(&alice(), id).await.unwrap();

    let rewound = db.rewind_conversation(&alice(), id, Point::Before(answer)).await.unwrap();
    assert_eq!(rewound.cut, Cut { last: Some(result), moved: false });
    assert_eq!(rewound.removed, 1);
    let kept = vec![question, call, result];
    assert_eq!(ids(&db, id).await, (kept.clone(), kept));
    let expect = Expect::Revision(old.revision);
    let late = db.save_agent_state(&alice(), id, &old.state, expect).await;
    assert!(matches!(late, Err(Error::Conflict { current }) if Some(current) == rewound.revision));

    let again = db.rewind_conversation(&alice(), id, Point::Through(result)).await.unwrap();
    assert_eq!((again.revision, again.removed), (rewound.revision, 0), "nothing is left to do");
    let gone = db.rewind_conversation(&alice(), id, Point::Through(answer)).await;
    assert!(matches!(gone, Err(Error::NotFound)));
    let rewound = db.rewind_conversation(&alice(), id, Point::Before(question)).await.unwrap();
    assert_eq!(rewound.cut, Cut { last: None, moved: false });
    assert_eq!(ids(&db, id).await, (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn readers_notice_what_was_deleted() {
    let db = Database::new().await;
    let (id, [_, _, result, _]) = talk(&db).await;
    let seen = db.changes(&alice(), id, ChangeCursor::START, 100).await.unwrap();
    let mut watch = db.watch(&alice(), id, seen.next).unwrap();
    db.rewind_conversation(&alice(), id, Point::Through(result)).await.unwrap();

    let page = db.load_display_messages(&alice(), id, MessagePage::last()).await.unwrap();
    let mut stored = page.items;
    stored.sort_by_key(|row| (row.changed, row.sequence));
    let missed = db.changes(&alice(), id, seen.next, 100).await.unwrap();
    assert!(missed.reset);
    assert_eq!(missed.items, stored);
    assert_eq!(watch.next().await.unwrap(), missed);
    let nothing = db.changes(&alice(), id, missed.next, 100).await.unwrap();
    assert!(nothing.items.is_empty() && !nothing.reset);
    let loaded = db.changes(&alice(), id, ChangeCursor::after(&stored), 100).await.unwrap();
    assert!(loaded.items.is_empty() && !loaded.reset, "who loads the page has seen it");

    db.clear_display_messages(&alice(), id).await.unwrap();
    let cleared = watch.next().await.unwrap();
    assert!(cleared.items.is_empty() && cleared.reset);
    let start = db.changes(&alice(), id, ChangeCursor::START, 100).await.unwrap();
    assert!(start.items.is_empty() && !start.reset, "there is nothing to forget");
}
