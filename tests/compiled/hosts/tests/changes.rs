//! What readers learn of a change, and what is no change.

use crate::database;

use std::time::Duration;

use database::{Database, Pool};
use matrix::conversations::*;
use matrix::sagents::{Content, ContentPart, Message};
use matrix::scopes::{Scope, User};
use tokio::time::timeout;
use uuid::Uuid;

static SCOPE: Scope = Scope {
    user: User {
        id: 1,
        name: String::new(),
    },
};

/// A conversation, and a watch that does not look for changes itself.
struct Db {
    layer: Conversations,
    pool: Pool,
    id: Uuid,
    watch: Watch,
    _database: Database,
}

impl Db {
    async fn new() -> Self {
        let database = Database::migrated("INSERT INTO users (id, name) VALUES (1, 'a')").await;
        let pool = connect(&database.url()).await.unwrap();
        let layer = Conversations::new(pool.clone());
        let new = NewConversation::new();
        let id = layer.create_conversation(&SCOPE, new).await.unwrap().id;
        let watch = layer.watch(&SCOPE, id, ChangeCursor::START).unwrap();
        Self {
            layer,
            pool,
            id,
            watch: watch.interval(Duration::MAX),
            _database: database,
        }
    }

    async fn append(&self, text: &str) -> DisplayMessage {
        let message = NewDisplayMessage::text(Role::User, text);
        let append = self.layer.append_display_message(&SCOPE, self.id, message);
        append.await.unwrap()
    }

    async fn draft(&self, message_id: Uuid, texts: &[&str]) -> Vec<DisplayMessage> {
        let message = message(texts);
        let save = self.layer.save_draft(&SCOPE, self.id, message_id, &message);
        save.await.unwrap()
    }

    async fn finish(&self, message_id: Uuid, texts: &[&str]) -> Vec<DisplayMessage> {
        let message = message(texts);
        let save = self
            .layer
            .save_message(&SCOPE, self.id, message_id, &message);
        save.await.unwrap()
    }

    async fn settle(&self, messages: &[(Uuid, Delivery)]) -> Vec<DisplayMessage> {
        let settle = self.layer.settle_messages(&SCOPE, self.id, messages);
        settle.await.unwrap()
    }

    async fn page(&self) -> Vec<DisplayMessage> {
        let page = MessagePage::last();
        let page = self.layer.load_display_messages(&SCOPE, self.id, page);
        page.await.unwrap().items
    }

    async fn conversation(&self) -> Conversation {
        let get = self.layer.get_conversation(&SCOPE, self.id);
        get.await.unwrap()
    }

    /// What the watch returns next: whether it begins again, and the texts.
    async fn next(&mut self) -> (bool, Vec<String>) {
        let next = timeout(Duration::from_secs(10), self.watch.next()).await;
        let changes = next.expect("readers are not told").unwrap();
        let texts = changes.items.into_iter().map(|row| row.content);
        (changes.reset, texts.collect())
    }

    /// A reader who loads the last page has missed nothing.
    async fn page_is_all(&self) {
        let after = ChangeCursor::after(&self.page().await);
        let changes = self.layer.changes(&SCOPE, self.id, after, 100);
        let changes = changes.await.unwrap();
        assert!(!changes.reset && changes.items.is_empty(), "{changes:?}");
    }
}

fn message(texts: &[&str]) -> Message {
    let parts = texts.iter().map(|text| ContentPart::text(*text)).collect();
    let mut message = Message::assistant("");
    message.content = Some(Content::Parts(parts));
    message
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

#[tokio::test]
async fn readers_forget_a_draft_that_becomes_nothing() {
    let mut db = Db::new().await;
    let message_id = Uuid::now_v7();
    db.draft(message_id, &["Hel"]).await;
    assert_eq!(db.next().await, (false, texts(["Hel"])));
    assert_eq!(db.finish(message_id, &[]).await, []);
    assert_eq!(db.next().await, (true, texts([])));

    for before in ["one", "two"] {
        db.append(before).await;
    }
    assert_eq!(db.next().await, (false, texts(["one", "two"])));
    db.draft(message_id, &["Hello"]).await;
    assert_eq!(db.next().await, (false, texts(["Hello"])));
    db.append("three").await;
    assert_eq!(db.next().await, (false, texts(["three"])));
    assert_eq!(db.finish(message_id, &[]).await, []);
    assert_eq!(db.next().await, (true, texts(["one", "two", "three"])));
    db.page_is_all().await;
    let last = db.page().await.pop().unwrap();
    assert_eq!((last.content.as_str(), last.changed), ("three", 7));
}

#[tokio::test]
async fn readers_forget_what_a_later_draft_does_not_have() {
    let mut db = Db::new().await;
    let (first, second) = (Uuid::now_v7(), Uuid::now_v7());
    db.draft(first, &["a", "b"]).await;
    db.append("between").await;
    assert_eq!(db.next().await, (false, texts(["a", "b", "between"])));
    db.draft(first, &["a"]).await;
    let (is_reset, mut shown) = db.next().await;
    shown.sort();
    assert_eq!((is_reset, shown), (true, texts(["a", "between"])));
    db.page_is_all().await;

    // A row that is not a draft replaces the drafts of its message anyway.
    db.draft(second, &["c", "d"]).await;
    assert_eq!(db.next().await, (false, texts(["c", "d"])));
    db.finish(second, &["e"]).await;
    assert_eq!(db.next().await, (false, texts(["e"])));
    db.page_is_all().await;

    // It does not replace what was interrupted.
    let third = Uuid::now_v7();
    db.draft(third, &["f", "g"]).await;
    db.settle(&[(third, Delivery::Interrupted)]).await;
    assert_eq!(db.next().await, (false, texts(["f", "g"])));
    db.finish(third, &["h"]).await;
    let (is_reset, mut shown) = db.next().await;
    shown.sort();
    assert_eq!((is_reset, shown), (true, texts(["a", "between", "e", "h"])));
    db.page_is_all().await;
}

#[tokio::test]
async fn a_draft_that_is_refused_changes_nothing() {
    let db = Db::new().await;
    let message_id = Uuid::now_v7();
    db.draft(message_id, &["a", "b"]).await;
    let finished = NewDisplayMessage {
        item: 2,
        ..NewDisplayMessage::text(Role::Assistant, "c").message_id(message_id)
    };
    let append = db
        .layer
        .append_display_message(&SCOPE, db.id, finished)
        .await;
    assert_eq!(append.unwrap().changed, 2);
    let (before, conversation) = (db.page().await, db.conversation().await);
    assert_eq!(before.len(), 3);
    assert_eq!(db.draft(message_id, &["x"]).await, before);
    assert_eq!(db.page().await, before);
    assert_eq!(db.conversation().await, conversation);
    assert_eq!(db.append("next").await.changed, 3);
}

#[tokio::test]
async fn what_is_stored_now_and_was_unsaved_is_no_change() {
    const UNSAVED: &str = "UPDATE sagents_display_messages SET delivery = 'unsaved'";

    let db = Db::new().await;
    let (first, second) = (db.append("one").await, db.append("two").await);
    sqlx::raw_sql(UNSAVED).execute(&db.pool).await.unwrap();
    let conversation = db.conversation().await;
    let (first_id, second_id) = (first.message_id, second.message_id);
    let nobody = (Uuid::now_v7(), Delivery::Stored);
    assert_eq!(db.settle(&[nobody]).await, []);
    assert_eq!(db.settle(&[(first_id, Delivery::Stored)]).await, []);
    assert_eq!(db.page().await[0], first);
    assert_eq!(db.page().await[1].delivery, Delivery::Unsaved);
    assert_eq!(db.conversation().await, conversation);
    assert_eq!(db.append("three").await.changed, 3);

    // Both at once; one of them twice.
    sqlx::raw_sql(UNSAVED).execute(&db.pool).await.unwrap();
    let mut settled = db
        .settle(&[
            (first_id, Delivery::Stored),
            (second_id, Delivery::Unknown),
            (second_id, Delivery::Unknown),
        ])
        .await;
    let changed = DisplayMessage {
        delivery: Delivery::Unknown,
        changed: 4,
        ..second.clone()
    };
    settled.dedup();
    assert_eq!(settled, [changed]);
    assert_eq!(db.page().await[0], first);
    let settled = db.settle(&[(second_id, Delivery::Stored)]).await;
    let changed = DisplayMessage {
        changed: 5,
        ..second
    };
    assert_eq!(settled, [changed]);
}

#[tokio::test]
async fn a_watch_is_told_that_its_conversation_is_deleted() {
    let mut db = Db::new().await;
    db.append("one").await;
    assert_eq!(db.next().await, (false, texts(["one"])));
    let (layer, id) = (db.layer.clone(), db.id);
    let deleting = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        layer.delete_conversation(&SCOPE, id).await.unwrap();
    });
    let next = timeout(Duration::from_secs(10), db.watch.next()).await;
    let next = next.expect("the watch is not told");
    assert!(matches!(next, Err(Error::NotFound)), "{next:?}");
    deleting.await.unwrap();
}

#[tokio::test]
async fn a_position_has_no_negative_numbers() {
    for text in ["-1.-1.0", "-1.-1", "0.-2.0", "0.-1.-1", "1", "a.b.c", ""] {
        let parsed = text.parse::<ChangeCursor>();
        assert!(matches!(parsed, Err(Error::Invalid(_))), "{text}");
    }
    // Before the first sequence.
    assert_eq!(ChangeCursor::START.to_string(), "0.-1.0");
    for text in ["0.-1.0", "17.42.9"] {
        let parsed: ChangeCursor = text.parse().unwrap();
        assert_eq!(parsed.to_string(), text);
    }
}
