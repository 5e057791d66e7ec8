//! Changes of display messages, and watches.

mod support;

use std::time::{Duration, Instant};

use sagents::{
    ChangeCursor, Changes, Content, ContentPart, Delivery, Error, Key, Message, MessagePage, NewDisplayMessage, Owner,
    Reach, Role, Store, Timestamp, Watch, sqlx,
};
use support::fixture::{Fixture, GROUP, KINDS, sequences};
use support::{Kind, TABLES, TestDatabase};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

on_both_databases!(
    changes_come_in_order_and_in_pages,
    one_change_can_have_more_messages_than_the_limit,
    a_removal_starts_again_and_is_reported_once,
    a_reader_can_start_behind_the_last_page,
    a_clear_is_a_removal_without_messages,
    a_touch_tells_watches_once,
    a_watch_sees_concurrent_writers_in_order,
    a_watch_can_be_given_up_and_called_again,
    a_watch_ends_with_its_conversation,
    a_watch_notices_another_process_within_its_interval,
    readers_forget_a_draft_that_becomes_nothing,
    readers_forget_items_that_a_later_draft_lacks,
    a_draft_that_is_refused_changes_nothing,
);

async fn say(store: &Store, owner: &Owner, id: Uuid, text: &str) {
    store.append_display_message(owner, id, NewDisplayMessage::text(Role::User, text)).await.unwrap();
}

/// A conversation with messages, and the position behind them.
async fn conversation_of(db: &Fixture, messages: usize) -> (Uuid, ChangeCursor) {
    let id = db.conversation().await;
    for n in 0..messages {
        say(db, &db.alice, id, &format!("m{n}")).await;
    }
    let (_, cursor, _) = read(db, id, ChangeCursor::START, 100).await;
    (id, cursor)
}

/// The sequences on all pages, the position behind them, and how often it began again.
async fn read(db: &Fixture, id: Uuid, mut cursor: ChangeCursor, limit: u32) -> (Vec<i64>, ChangeCursor, usize) {
    let (mut seen, mut resets) = (Vec::new(), 0);
    loop {
        let changes = db.changes(&db.alice, id, cursor, limit).await.unwrap();
        resets += usize::from(changes.reset);
        seen.extend(sequences(&changes.items));
        cursor = changes.next.to_string().parse().unwrap();
        if !changes.more {
            return (seen, cursor, resets);
        }
    }
}

fn assert_nothing(changes: &Changes) {
    assert_eq!((changes.items.len(), changes.more, changes.reset), (0, false, false));
}

async fn changes_come_in_order_and_in_pages(database: &TestDatabase) {
    for tables in KINDS {
        let db = Fixture::new(database, tables).await;
        let (id, _) = conversation_of(&db, 25).await;
        let (seen, cursor, resets) = read(&db, id, ChangeCursor::START, 4).await;
        assert_eq!((seen, resets), ((0..25).collect::<Vec<_>>(), 0));
        let nothing = db.changes(&db.alice, id, cursor, 4).await.unwrap();
        assert_nothing(&nothing);
        assert_eq!(nothing.next, cursor);
        assert_not_found!(db.changes(&db.alice, Uuid::now_v7(), ChangeCursor::START, 4));
        if db.has_owners() {
            assert_not_found!(db.changes(&db.bob, id, ChangeCursor::START, 4));
        }
    }
}

async fn one_change_can_have_more_messages_than_the_limit(database: &TestDatabase) {
    let db = Fixture::with_group(database, TABLES, 3).await;
    let (id, cursor) = conversation_of(&db, 25).await;
    let group = Reach::Group(Key::Integer(GROUP));
    db.changes(&group, id, ChangeCursor::START, 4).await.unwrap();
    let touched: Vec<i64> = (0..20).collect();
    assert_eq!(db.touch_display_messages(&db.alice, id, &touched).await.unwrap(), 20);
    let changes = db.changes(&db.alice, id, cursor, 4).await.unwrap();
    assert_eq!((sequences(&changes.items), changes.more), (touched, false));
    let (seen, _, _) = read(&db, id, ChangeCursor::START, 4).await;
    assert_eq!(seen.len(), 25);
}

async fn a_removal_starts_again_and_is_reported_once(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, cursor) = conversation_of(&db, 10).await;
    let draft = Uuid::now_v7();
    db.save_draft(&db.alice, id, draft, &Message::assistant("partial")).await.unwrap();
    db.save_draft(&db.alice, id, draft, &Message::assistant("")).await.unwrap();
    let (seen, cursor, resets) = read(&db, id, cursor, 2).await;
    assert_eq!((resets, seen.len()), (1, 10));
    assert_nothing(&db.changes(&db.alice, id, cursor, 2).await.unwrap());
}

async fn a_reader_can_start_behind_the_last_page(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, _) = conversation_of(&db, 10).await;
    let shown = db.shown(id).await;
    let cursor = ChangeCursor::after(&shown[shown.len() - 3..]);
    assert_nothing(&db.changes(&db.alice, id, cursor, 2).await.unwrap());
    say(&db, &db.alice, id, "new").await;
    let changes = db.changes(&db.alice, id, cursor, 2).await.unwrap();
    assert_eq!((sequences(&changes.items), changes.reset), (vec![10], false));
}

async fn a_clear_is_a_removal_without_messages(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, cursor) = conversation_of(&db, 10).await;
    db.clear_display_messages(&db.alice, id).await.unwrap();
    let cleared = db.changes(&db.alice, id, cursor, 2).await.unwrap();
    assert_eq!((cleared.items.len(), cleared.reset, cleared.more), (0, true, false));
    assert_nothing(&db.changes(&db.alice, id, cleared.next, 2).await.unwrap());
    say(&db, &db.alice, id, "new").await;
    assert_eq!(db.changes(&db.alice, id, cleared.next, 2).await.unwrap().items.len(), 1);
}

async fn a_touch_tells_watches_once(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, cursor) = conversation_of(&db, 3).await;
    let mut watch = db.watch(&db.alice, id, cursor).unwrap().interval(Duration::from_mins(10));
    assert!(timeout(Duration::from_millis(100), watch.next()).await.is_err());
    assert_eq!(db.touch_display_messages(&db.alice, id, &[0, 1, 77]).await.unwrap(), 2);
    assert_eq!(sequences(&watch.next().await.unwrap().items), [0, 1]);
    assert_eq!(db.touch_display_messages(&db.alice, id, &[77]).await.unwrap(), 0);
    assert_eq!(db.touch_display_messages(&db.alice, id, &[]).await.unwrap(), 0);
    assert!(timeout(Duration::from_millis(100), watch.next()).await.is_err());
    assert!(db.shown(id).await.iter().all(|row| row.delivery == Delivery::Stored));
}

async fn a_watch_sees_concurrent_writers_in_order(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    let mut watch = db.watch(&db.alice, id, ChangeCursor::START).unwrap();
    let reader = tokio::spawn(async move {
        let mut seen = Vec::new();
        while seen.len() < 200 {
            seen.extend(sequences(&watch.next().await.unwrap().items));
        }
        seen
    });
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let db = db.clone();
        writers.spawn(async move {
            for n in 0..50 {
                say(&db, &db.alice, id, &format!("{writer} {n}")).await;
            }
        });
    }
    writers.join_all().await;
    let seen = timeout(Duration::from_secs(30), reader).await.unwrap().unwrap();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}

async fn a_watch_can_be_given_up_and_called_again(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, cursor) = conversation_of(&db, 25).await;
    let mut watch = db.watch(&db.alice, id, ChangeCursor::START).unwrap();
    while watch.next().await.unwrap().more {}
    assert_eq!(watch.cursor(), cursor);
    for _ in 0..5 {
        assert!(timeout(Duration::from_millis(10), watch.next()).await.is_err());
    }
    say(&db, &db.alice, id, "late").await;
    assert_eq!(sequences(&watch.next().await.unwrap().items), [25]);
}

async fn a_watch_ends_with_its_conversation(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (id, cursor) = conversation_of(&db, 1).await;
    let mut watch = db.watch(&db.alice, id, cursor).unwrap();
    assert!(timeout(Duration::from_millis(50), watch.next()).await.is_err());
    db.delete_conversation(&db.alice, id).await.unwrap();
    assert_not_found!(watch.next());
    assert_not_found!(db.watch(&db.bob, id, cursor).unwrap().next());
}

/// How long a watch takes to notice what is written while it waits.
async fn delay(watch: &mut Watch, write: impl Future<Output = ()>) -> Duration {
    let write = async {
        sleep(Duration::from_millis(130)).await;
        let begin = Instant::now();
        write.await;
        begin
    };
    let (changes, begin) = tokio::join!(watch.next(), write);
    assert_eq!(changes.unwrap().items.len(), 1);
    begin.elapsed()
}

async fn a_watch_notices_another_process_within_its_interval(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let id = db.conversation().await;
    let other = database.connect(&TABLES).await;
    let mut watch = other.watch(&db.alice, id, ChangeCursor::START).unwrap();
    assert!(timeout(Duration::from_millis(50), watch.next()).await.is_err());
    for _ in 0..3 {
        let delay = delay(&mut watch, say(&db, &db.alice, id, "x")).await;
        assert!(delay > Duration::from_millis(200) && delay < Duration::from_secs(4), "{delay:?}");
    }
}

/// Appends a message as a process without notifications does.
async fn append_silently(pool: &sqlx::PgPool, id: Uuid) {
    let message = Uuid::now_v7();
    let sql = format!(
        "UPDATE sagents_conversations SET next_sequence = next_sequence + 1, last_change = last_change + 1 \
         WHERE id = '{id}'; \
         INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role, \
         content_type, content, metadata, inserted_at, changed) \
         SELECT user_id, id, next_sequence - 1, '{message}', 0, 'user', 'text', 'x', '{{}}', '{}', last_change \
         FROM sagents_conversations WHERE id = '{id}'",
        Timestamp::now()
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(pool).await.unwrap();
}

const AT_ONCE: Duration = Duration::from_secs(5);
const NEVER: Duration = Duration::from_mins(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_tell_other_processes_at_once() {
    let database = TestDatabase::new(Kind::Postgres);
    let db = Fixture::new(&database, TABLES).await;
    let id = db.conversation().await;
    let one = database.postgres(&TABLES).await.with_notifications();
    let two = database.postgres(&TABLES).await.with_notifications();
    let mut watch = one.watch(&db.alice, id, ChangeCursor::START).unwrap().interval(NEVER);
    // Until it listens.
    assert!(timeout(Duration::from_secs(1), watch.next()).await.is_err());
    assert!(delay(&mut watch, say(&one, &db.alice, id, "own")).await < AT_ONCE);
    assert!(delay(&mut watch, say(&two, &db.alice, id, "others")).await < AT_ONCE);

    // The listener's connection is lost: it comes back.
    let end = "SELECT CAST(pg_terminate_backend(pid) AS TEXT) FROM pg_stat_activity \
               WHERE query LIKE 'LISTEN%' AND datname = current_database()";
    assert_eq!(db.pool.texts(end).await, ["true"]);
    let pause = timeout(Duration::from_secs(3), watch.next()).await;
    assert!(pause.is_err(), "{pause:?}");
    assert!(delay(&mut watch, say(&two, &db.alice, id, "again")).await < AT_ONCE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_look_rarely_only_while_notifications_are_proved() {
    let database = TestDatabase::new(Kind::Postgres);
    let db = Fixture::new(&database, TABLES).await;
    let id = db.conversation().await;
    let silent = database.postgres(&TABLES).await;
    let one = database.postgres(&TABLES).await.with_notifications();
    let two = database.postgres(&TABLES).await.with_notifications();
    let mut watch = one.watch(&db.alice, id, ChangeCursor::START).unwrap();
    assert!(timeout(Duration::from_millis(500), watch.next()).await.is_err());
    let silently = || append_silently(silent.pool(), id);
    assert!(delay(&mut watch, silently()).await < AT_ONCE, "it hears nobody yet");
    delay(&mut watch, say(&one, &db.alice, id, "own")).await;
    assert!(delay(&mut watch, silently()).await < AT_ONCE, "its own notifications prove nothing");
    delay(&mut watch, say(&two, &db.alice, id, "others")).await;
    assert!(delay(&mut watch, silently()).await > Duration::from_secs(20), "another process was heard");
    assert!(delay(&mut watch, silently()).await < AT_ONCE, "a change wasn't announced");
    assert!(delay(&mut watch, say(&two, &db.alice, id, "others")).await < AT_ONCE);
}

/// What the watch returns next: whether it begins again, and the texts.
async fn next(watch: &mut Watch) -> (bool, Vec<String>) {
    let changes = timeout(AT_ONCE, watch.next()).await.expect("readers aren't told").unwrap();
    (changes.reset, changes.items.into_iter().map(|row| row.content).collect())
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

fn parts(texts: &[&str]) -> Message {
    let parts = texts.iter().map(|text| ContentPart::text(*text)).collect();
    Message::new(Role::Assistant, Some(Content::Parts(parts)))
}

/// A reader who loads the last page has missed nothing.
async fn assert_page_is_all(db: &Fixture, id: Uuid) {
    let page = db.load_display_messages(&db.alice, id, MessagePage::last()).await.unwrap();
    let cursor = ChangeCursor::after(&page.items);
    assert_nothing(&db.changes(&db.alice, id, cursor, 100).await.unwrap());
}

async fn readers_forget_a_draft_that_becomes_nothing(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id, message) = (&db.alice, db.conversation().await, Uuid::now_v7());
    let mut watch = db.watch(alice, id, ChangeCursor::START).unwrap().interval(NEVER);
    db.save_draft(alice, id, message, &parts(&["Hel"])).await.unwrap();
    assert_eq!(next(&mut watch).await, (false, texts(["Hel"])));
    assert_eq!(db.save_message(alice, id, message, &parts(&[])).await.unwrap(), []);
    assert_eq!(next(&mut watch).await, (true, texts([])));

    for text in ["one", "two"] {
        say(&db, alice, id, text).await;
    }
    assert_eq!(next(&mut watch).await, (false, texts(["one", "two"])));
    db.save_draft(alice, id, message, &parts(&["Hello"])).await.unwrap();
    assert_eq!(next(&mut watch).await, (false, texts(["Hello"])));
    say(&db, alice, id, "three").await;
    assert_eq!(next(&mut watch).await, (false, texts(["three"])));
    assert_eq!(db.save_message(alice, id, message, &parts(&[])).await.unwrap(), []);
    assert_eq!(next(&mut watch).await, (true, texts(["one", "two", "three"])));
    assert_page_is_all(&db, id).await;
    let last = db.shown(id).await.pop().unwrap();
    assert_eq!((last.content.as_str(), last.changed), ("three", 7));
}

async fn readers_forget_items_that_a_later_draft_lacks(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id) = (&db.alice, db.conversation().await);
    let (first, second) = (Uuid::now_v7(), Uuid::now_v7());
    let mut watch = db.watch(alice, id, ChangeCursor::START).unwrap().interval(NEVER);
    db.save_draft(alice, id, first, &parts(&["a", "b"])).await.unwrap();
    say(&db, alice, id, "between").await;
    assert_eq!(next(&mut watch).await, (false, texts(["a", "b", "between"])));
    db.save_draft(alice, id, first, &parts(&["a"])).await.unwrap();
    let (is_reset, mut shown) = next(&mut watch).await;
    shown.sort();
    assert_eq!((is_reset, shown), (true, texts(["a", "between"])));
    assert_page_is_all(&db, id).await;

    // A row that isn't a draft replaces the drafts of its message anyway.
    db.save_draft(alice, id, second, &parts(&["c", "d"])).await.unwrap();
    assert_eq!(next(&mut watch).await, (false, texts(["c", "d"])));
    db.save_message(alice, id, second, &parts(&["e"])).await.unwrap();
    assert_eq!(next(&mut watch).await, (false, texts(["e"])));
    assert_page_is_all(&db, id).await;
}

async fn a_draft_that_is_refused_changes_nothing(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let (alice, id, message) = (&db.alice, db.conversation().await, Uuid::now_v7());
    db.save_draft(alice, id, message, &parts(&["a", "b"])).await.unwrap();
    let finished = NewDisplayMessage::text(Role::Assistant, "c").message_id(message);
    let finished = NewDisplayMessage { item: 2, ..finished };
    assert_eq!(db.append_display_message(alice, id, finished).await.unwrap().changed, 2);
    let (before, updated) = (db.shown(id).await, db.updated(id).await);
    assert_eq!(before.len(), 3);
    assert_eq!(db.save_draft(alice, id, message, &parts(&["x"])).await.unwrap(), before);
    assert_eq!((db.shown(id).await, db.updated(id).await), (before, updated));
    say(&db, alice, id, "next").await;
    assert_eq!(db.shown(id).await.pop().unwrap().changed, 3);
}

#[test]
fn a_position_has_no_negative_numbers() {
    for text in ["-1.-1", "-1.0", "0.-1", "1", "1.2.3", "a.b", ""] {
        let parsed = text.parse::<ChangeCursor>();
        assert!(matches!(parsed, Err(Error::Invalid(_))), "{text}");
    }
    assert_eq!(ChangeCursor::START.to_string(), "0.0");
    for text in ["0.0", "17.9"] {
        assert_eq!(text.parse::<ChangeCursor>().unwrap().to_string(), text);
    }
}
