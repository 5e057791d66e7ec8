//! Messages: their order, pages, drafts and searches.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::super::*;
use super::database::{Database, alice};
use super::object;
use crate::sagents::{Content, ContentPart, Message, ToolCall};

#[tokio::test]
async fn messages_are_paged_both_ways_and_sequences_go_on_after_a_clear() {
    let db = Database::new().await;
    let id = db.conversation().await;
    for n in 0..5 {
        let message = NewDisplayMessage::text(Role::User, format!("message {n}"));
        assert_eq!(
            db.append_display_message(&alice(), id, message)
                .await
                .unwrap()
                .sequence,
            n
        );
    }
    for (page, expected) in [
        (MessagePage::first().limit(2), vec![0, 1]),
        (MessagePage::after(1).limit(2), vec![2, 3]),
        (MessagePage::last().limit(2), vec![3, 4]),
        (MessagePage::before(3).limit(2), vec![1, 2]),
        (MessagePage::after(4), vec![]),
        (MessagePage::first(), vec![0, 1, 2, 3, 4]),
    ] {
        let messages = db.load_display_messages(&alice(), id, page).await.unwrap();
        let sequences: Vec<_> = messages.items.iter().map(|message| message.sequence).collect();
        assert_eq!(sequences, expected, "{page:?}");
    }
    for (start, expected) in [
        (MessagePage::first(), [vec![0, 1], vec![2, 3], vec![4]]),
        (MessagePage::last(), [vec![3, 4], vec![1, 2], vec![0]]),
    ] {
        let (mut request, mut pages) = (start.limit(2), Vec::new());
        loop {
            let page = db.load_display_messages(&alice(), id, request).await.unwrap();
            pages.push(page.items.iter().map(|message| message.sequence).collect::<Vec<_>>());
            let Some(next) = page.next else { break };
            request = MessagePage::next(next).limit(2);
        }
        assert_eq!(pages, expected);
    }
    assert_eq!(db.clear_display_messages(&alice(), id).await.unwrap(), 5);
    let cleared = db.load_display_messages(&alice(), id, MessagePage::first()).await.unwrap();
    assert_eq!((cleared.items, cleared.next), (vec![], None));
    let message = NewDisplayMessage::text(Role::User, "again");
    assert_eq!(
        db.append_display_message(&alice(), id, message)
            .await
            .unwrap()
            .sequence,
        5
    );
}

#[tokio::test]
async fn appending_again_stores_nothing_and_returns_the_first() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let message = NewDisplayMessage::text(Role::Assistant, "nul\0byte")
        .metadata(object(json!({ "tokens": 3 })));
    let first = db
        .append_display_message(&alice(), id, message.clone())
        .await
        .unwrap();
    assert_eq!(first.content, "nul\u{FFFD}byte");
    let touched = db.get_conversation(&alice(), id).await.unwrap().updated_at;

    assert_eq!(
        db.append_display_message(&alice(), id, message)
            .await
            .unwrap(),
        first
    );
    assert_eq!(
        db.get_conversation(&alice(), id).await.unwrap().updated_at,
        touched
    );
    let next = NewDisplayMessage::text(Role::User, "thanks");
    assert_eq!(
        db.append_display_message(&alice(), id, next)
            .await
            .unwrap()
            .sequence,
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_leave_no_gap_and_no_tie() {
    const WRITERS: usize = 16;
    const EACH: usize = 8;

    let db = Database::new().await;
    let id = db.conversation().await;
    let shared = NewDisplayMessage::text(Role::System, "said by all, stored once");
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..WRITERS {
        let (conversations, shared) = (db.conversations.clone(), shared.clone());
        writers.spawn(async move {
            let said = conversations
                .append_display_message(&alice(), id, shared)
                .await
                .unwrap();
            for n in 0..EACH {
                let message = NewDisplayMessage::text(Role::User, format!("message {n}"));
                conversations
                    .append_display_message(&alice(), id, message)
                    .await
                    .unwrap();
            }
            said.sequence
        });
    }
    let said: BTreeSet<_> = writers.join_all().await.into_iter().collect();
    assert_eq!(said.len(), 1, "everyone got the same row");

    let messages = db
        .load_display_messages(&alice(), id, MessagePage::first().limit(1000))
        .await
        .unwrap();
    let sequences: Vec<_> = messages.items.iter().map(|message| message.sequence).collect();
    let expected: Vec<_> = (0..).take(WRITERS * EACH + 1).collect();
    assert_eq!(sequences, expected);
}

#[tokio::test]
async fn a_message_is_stored_as_what_it_shows_and_only_once() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let mut message = Message::assistant("Let me look.");
    message.tool_calls = vec![ToolCall::new("call_1", "search", json!({ "query": "sea" }))];
    let message_id = Uuid::now_v7();
    let stored = db.save_message(&alice(), id, message_id, &message).await.unwrap();
    assert_eq!(db.save_message(&alice(), id, message_id, &message).await.unwrap(), stored);
    let seen: Vec<_> = stored
        .iter()
        .map(|item| (item.sequence, item.item, item.content.as_str(), item.status))
        .collect();
    let pending = Some(ToolStatus::Pending);
    assert_eq!(seen, [(0, 0, "Let me look.", None), (1, 1, "search", pending)]);
    assert_eq!(stored[1].metadata["arguments"], json!({ "query": "sea" }));

    // A message that gained an item gets that one, and no other twice.
    message.tool_calls.push(ToolCall::new("call_2", "fetch", json!({})));
    let gained = db.save_message(&alice(), id, message_id, &message).await.unwrap();
    assert_eq!((gained.len(), &gained[..2], gained[2].sequence), (3, &stored[..], 2));

    let answer = Message::user("thanks");
    let next = db.save_message(&alice(), id, Uuid::now_v7(), &answer).await.unwrap();
    assert_eq!(next[0].sequence, 3);

    let nothing = Message::assistant("");
    assert_eq!(db.save_message(&alice(), id, Uuid::now_v7(), &nothing).await.unwrap(), []);
    let picture = Content::Parts(vec![
        ContentPart::image("aGk=", "image/png"),
        ContentPart::file_url("https://example.com/a.pdf"),
    ]);
    let picture = Message::new(Role::User, Some(picture));
    let shown = db.save_message(&alice(), id, Uuid::now_v7(), &picture).await.unwrap();
    let seen: Vec<_> = shown
        .iter()
        .map(|row| (row.content_type, row.content.as_str(), json!(row.metadata)))
        .collect();
    let data = json!({ "media_type": "image/png", "data": "aGk=" });
    let url = "https://example.com/a.pdf";
    assert_eq!(
        seen,
        [(ContentType::Image, "", data), (ContentType::FileReference, url, json!({}))]
    );
    assert!(db.set_interrupted(&alice(), id, true).await.unwrap().interrupted);
}

#[tokio::test]
async fn a_draft_becomes_a_whole_message_and_readers_get_every_change() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let message_id = Uuid::now_v7();
    let read = async |after: &str| {
        let mut read = db.changes(&alice(), id, after.parse().unwrap(), 1).await.unwrap();
        while read.more {
            let rest = db.changes(&alice(), id, read.next, 1).await.unwrap();
            read.items.extend(rest.items);
            (read.next, read.more) = (rest.next, rest.more);
        }
        let shown = read.items.iter().map(|row| (row.sequence, row.content.clone(), row.delivery));
        (shown.collect::<Vec<_>>(), read.next.to_string())
    };
    let shown = |rows: &[(i64, &str, Delivery)]| {
        let rows = rows.iter().map(|&(place, text, delivery)| (place, text.to_owned(), delivery));
        rows.collect::<Vec<_>>()
    };
    let start = ChangeCursor::START.to_string();
    assert_eq!(read(&start).await, (Vec::new(), start.clone()));

    db.save_draft(&alice(), id, message_id, &Message::assistant("To")).await.unwrap();
    let (first, place) = read(&start).await;
    assert_eq!(first, shown(&[(0, "To", Delivery::Draft)]));
    db.save_draft(&alice(), id, message_id, &Message::assistant("To the")).await.unwrap();
    let mut whole = Message::assistant("To the sea.");
    whole.tool_calls = vec![ToolCall::new("call_1", "search", json!({}))];
    let stored = db.save_message(&alice(), id, message_id, &whole).await.unwrap();
    assert_eq!(db.save_message(&alice(), id, message_id, &whole).await.unwrap(), stored);
    let late = db.save_draft(&alice(), id, message_id, &Message::assistant("To")).await.unwrap();
    assert_eq!(late, stored, "a draft does not replace a message");
    let both = [(0, "To the sea.", Delivery::Stored), (1, "search", Delivery::Stored)];
    let (second, place) = read(&place).await;
    assert_eq!(second, shown(&both));

    db.mark_tool_executing(&alice(), id, "call_1").await.unwrap();
    let (third, place) = read(&place).await;
    assert_eq!(third, shown(&both[1..]));
    assert_eq!(read(&place).await, (Vec::new(), place));
    assert_eq!(read(&start).await.0, shown(&both), "each once, as it is now");

    let mut watch = db.watch(&alice(), id, ChangeCursor::START).unwrap();
    watch = watch.interval(Duration::from_millis(10));
    assert_eq!(watch.next().await.unwrap().items.len(), 2);
    let (scope, message) = (alice(), NewDisplayMessage::text(Role::User, "And then?"));
    let append = db.append_display_message(&scope, id, message);
    let (appended, seen) = tokio::join!(append, watch.next());
    assert_eq!(seen.unwrap().items, [appended.unwrap()]);
    db.delete_conversation(&alice(), id).await.unwrap();
    assert_not_found!(watch.next());
}

#[tokio::test]
async fn what_a_killed_process_left_is_settled() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let [known, unknown, draft] = [(); 3].map(|()| Uuid::now_v7());
    for (message_id, delivery) in
        [(known, Delivery::Unsaved), (unknown, Delivery::Unsaved), (draft, Delivery::Draft)]
    {
        let message = Message::assistant("hello");
        db.save_items(&alice(), id, message_id, &message, delivery).await.unwrap();
    }
    let unsettled: BTreeSet<_> =
        db.unsettled_messages(&alice(), id).await.unwrap().into_iter().map(|(id, _)| id).collect();
    assert_eq!(unsettled, [known, unknown, draft].into());
    let settled = [
        (known, Delivery::Stored),
        (unknown, Delivery::Unknown),
        (draft, Delivery::Interrupted),
    ];
    let changed = db.settle_messages(&alice(), id, &settled).await.unwrap();
    let changed: BTreeSet<_> = changed.iter().map(|row| row.message_id).collect();
    assert_eq!(changed, [unknown, draft].into(), "readers need not know of the first");
    assert_eq!(db.unsettled_messages(&alice(), id).await.unwrap(), []);
    // The agent gets to know it after all.
    let again = db.save_message(&alice(), id, unknown, &Message::assistant("hello")).await.unwrap();
    assert_eq!(again[0].delivery, Delivery::Stored);
    let page = db.load_display_messages(&alice(), id, MessagePage::first()).await.unwrap();
    let deliveries: Vec<_> = page.items.iter().map(|row| row.delivery).collect();
    assert_eq!(deliveries, [Delivery::Stored, Delivery::Stored, Delivery::Interrupted]);
    assert_eq!(page.items[1], again[0]);
}

#[tokio::test]
async fn search_ignores_case_and_takes_wildcards_literally() {
    let db = Database::new().await;
    let id = db.conversation().await;
    for text in ["100% sure", "1000 sure", "ÜBER_all", "überXall"] {
        let message = NewDisplayMessage::text(Role::User, text);
        db.append_display_message(&alice(), id, message)
            .await
            .unwrap();
    }
    for (text, limit, expected) in [
        ("SURE", 10, vec!["1000 sure", "100% sure"]),
        ("sure", 1, vec!["1000 sure"]),
        ("0%", 10, vec!["100% sure"]),
        ("über", 10, vec!["überXall", "ÜBER_all"]),
        ("R_A", 10, vec!["ÜBER_all"]),
        ("*", 10, vec![]),
        ("s?re", 10, vec![]),
        ("[su]", 10, vec![]),
        ("absent", 10, vec![]),
    ] {
        let found = db
            .search_messages(&alice(), text, SearchPage::first().limit(limit))
            .await
            .unwrap();
        let found: Vec<_> = found
            .items
            .iter()
            .map(|message| message.content.as_str())
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    let first = db
        .search_messages(&alice(), "sure", SearchPage::first().limit(1))
        .await
        .unwrap();
    let second = db
        .search_messages(&alice(), "sure", SearchPage::after(first.next.unwrap()))
        .await
        .unwrap();
    assert_eq!((second.items[0].content.as_str(), second.next), ("100% sure", None));
    let long = "a".repeat(201);
    assert_invalid!(db.search_messages(&alice(), &long, SearchPage::first()));
    let odd: String = "ǅ𐐀Ωß[]\\%_*".chars().cycle().take(200).collect();
    let message = NewDisplayMessage::text(Role::User, format!("<{odd}>"));
    let odd_one = db.append_display_message(&alice(), id, message).await.unwrap();
    let found = db.search_messages(&alice(), &odd, SearchPage::first()).await.unwrap();
    assert_eq!(found.items, [odd_one]);
}
