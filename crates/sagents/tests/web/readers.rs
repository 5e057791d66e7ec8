//! Clients that read slowly, or nothing: what they take, and when they are given up.

use std::collections::BTreeSet;
use std::time::Duration;

use sagents::web::{Limit, Limits};
use sagents::{
    ContentType, Delivery, Export, ExportedConversation, ExportedMessage, NewDisplayMessage, Role, Timestamp,
};
use serde_json::{Map, Value};
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::context::User;
use crate::limits::{in_a_process_of_its_own, is_alone, resident};
use crate::support::context::Conversations;
use crate::support::{Kind, TABLES, TestDatabase};
use crate::{Server, conversation, on_both_databases, said};

on_both_databases!(
    one_caller_has_so_many_exports_and_leaves_the_others_theirs,
    an_export_that_nobody_reads_gives_its_connection_back,
    an_export_that_is_read_slowly_is_of_one_point_in_time,
    a_page_of_large_messages_is_shorter_and_has_a_next_one,
    one_caller_has_so_many_bytes_of_pages_and_leaves_the_others_theirs,
    a_stream_that_nobody_reads_ends,
);

/// The longest page of messages, in bytes, unless a single message is longer.
const PAGE: usize = sagents::MessagePage::MAX_BYTES;

/// The memory that sixty readers who read nothing may take, in bytes.
const UNREAD: usize = 100 * 1024 * 1024;

/// In a process of its own, so that the memory is that of the readers.
#[test]
fn sixty_readers_who_read_nothing_take_little_memory() {
    in_a_process_of_its_own("readers::sixty_readers_on_sqlite");
    in_a_process_of_its_own("readers::sixty_readers_on_postgres");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs in a process of its own"]
async fn sixty_readers_on_sqlite() {
    sixty_readers(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs in a process of its own"]
async fn sixty_readers_on_postgres() {
    sixty_readers(Kind::Postgres).await;
}

async fn sixty_readers(kind: Kind) {
    const READERS: usize = 60;
    if !is_alone() {
        return;
    }
    let database = TestDatabase::new(kind);
    let store = database.store(&TABLES).await;
    let large = import(&store, 1, &vec!["a".repeat(51_000); 1000]).await;
    let server = Server::on(store).await;
    let (user, other) = (server.user(1), server.user(2));
    let others = conversation(&other).await;
    user.get(&large).await.expect(200);
    let before = resident();
    let mut grown = Vec::new();
    for path in [format!("{large}/export"), format!("{large}/messages?limit=1000"), format!("{large}/events")] {
        let mut readers = Vec::new();
        for _ in 0..READERS {
            readers.push(user.send("GET", &path, None).await);
        }
        // Until it does not grow for a while.
        let (mut most, mut grew) = (0, Instant::now());
        while grew.elapsed() < Duration::from_secs(1) {
            sleep(Duration::from_millis(20)).await;
            let now = resident().saturating_sub(before);
            if now > most {
                (most, grew) = (now, Instant::now());
            }
        }
        grown.push((path, most));
        // Nobody else has to wait for them.
        other.get(&format!("{others}/messages")).await.expect(200);
    }
    println!("{grown:?}");
    assert!(grown.iter().all(|(_, bytes)| *bytes < UNREAD), "{grown:?}");
}

async fn one_caller_has_so_many_exports_and_leaves_the_others_theirs(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    let large = import(&store, 1, &large()).await;
    let limits = Limits { exports: Limit::new(2, 3), stalled_after: Duration::from_millis(500), ..Limits::default() };
    let server = Server::with_limits(store.clone(), limits).await;
    let (user, other) = (server.user(1), server.user(2));
    let export = format!("{large}/export");
    let first = user.open(&export).await.unwrap();
    // It reads when the first one is given up.
    let second = user.open(&export).await.unwrap();
    let refused = user.get(&export).await;
    assert_eq!(refused.header("retry-after"), Some("2"));
    assert!(refused.problem(429).is_some());
    // What cannot be read does not count.
    for _ in 0..4 {
        other.get(&export).await.problem(404);
    }
    drop(first);
    let others = import(&store, 2, &["a".into()]).await;
    let file = other.get(&format!("{others}/export")).await;
    assert!(is_whole(&file.body), "{file:?}");
    until(async || user.open(&export).await.is_ok()).await;
    drop(second);

    let limits = Limits { exports: Limit::new(2, 1), ..Limits::default() };
    let server = Server::with_limits(store, limits).await;
    let unread = server.user(1).open(&export).await.unwrap();
    let others = format!("{others}/export");
    server.user(2).get(&others).await.problem(429);
    drop(unread);
    until(async || server.user(2).get(&others).await.status == 200).await;
}

async fn an_export_that_nobody_reads_gives_its_connection_back(database: &TestDatabase) {
    let (store, is_idle) = with_pool(database).await;
    let path = import(&store, 1, &large()).await;
    let export = format!("{path}/export");
    for (stalled_after, longest_export) in [(1_000, 60_000), (60_000, 1_000)] {
        let limits = Limits {
            exports: Limit::new(1, 1),
            stalled_after: Duration::from_millis(stalled_after),
            longest_export: Duration::from_millis(longest_export),
            ..Limits::default()
        };
        let server = Server::with_limits(store.clone(), limits).await;
        let user = server.user(1);
        let mut unread = user.open(&export).await.unwrap();
        assert!(!is_idle());
        until(async || is_idle()).await;
        // The caller's part is held as long as the connection.
        user.get(&export).await.problem(429);
        let mut rest = Vec::new();
        drop(unread.read_to_end(&mut rest).await);
        assert!(!is_whole(&String::from_utf8_lossy(&rest)));
        until(async || user.get(&export).await.status == 200).await;
    }
}

async fn an_export_that_is_read_slowly_is_of_one_point_in_time(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    let path = import(&store, 1, &large()).await;
    let server = Server::on(store.clone()).await;
    let user = server.user(1);
    let mut export = user.open(&format!("{path}/export")).await.unwrap();
    let id = path.rsplit_once('/').unwrap().1.parse().unwrap();
    let late = NewDisplayMessage::text(Role::User, "late");
    store.append_display_message(&User(1), id, late).await.unwrap();
    let mut file = String::new();
    export.read_to_string(&mut file).await.unwrap();
    assert!(is_whole(&file) && !file.contains("late"));
    let read = Export::read_from(file.as_bytes()).unwrap();
    assert_eq!(read.messages.len(), large().len());
    let file = user.get(&format!("{path}/export")).await.body;
    assert!(is_whole(&file) && file.contains("late"));
}

async fn a_page_of_large_messages_is_shorter_and_has_a_next_one(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    // Escaped they are longer, and one is longer than a page.
    let mut texts = vec!["\u{1}a\n".repeat(30_000); 30];
    texts[20] = "a".repeat(3 * PAGE / 2);
    let path = import(&store, 1, &texts).await;
    let server = Server::on(store).await;
    let user = server.user(1);
    let pages = [
        (format!("{path}/messages"), "from", "from=last"),
        (format!("{path}/messages"), "from", "from=first"),
        ("/api/search".to_owned(), "after", "q=a"),
    ];
    for (path, next, start) in pages {
        let mut sequences = BTreeSet::new();
        let mut query = start.to_owned();
        let mut count = 0;
        loop {
            let reply = user.get(&format!("{path}?limit=1000&{query}")).await;
            let length = reply.body.len();
            let page = reply.expect(200);
            let items = page["items"].as_array().unwrap();
            assert!(length <= PAGE || items.len() == 1);
            for item in items {
                assert!(sequences.insert(item["sequence"].as_i64().unwrap()));
            }
            if next == "from" {
                assert!(items.is_sorted_by_key(|item| item["sequence"].as_i64()));
            }
            count += 1;
            match page["next"].as_str() {
                Some(cursor) if next == "from" => query = format!("from={cursor}"),
                Some(cursor) => query = format!("{start}&after={cursor}"),
                None => break,
            }
        }
        assert_eq!(sequences, (0..30).collect(), "{start}");
        assert!((5..=8).contains(&count), "{count} pages of {start}");
    }
}

async fn one_caller_has_so_many_bytes_of_pages_and_leaves_the_others_theirs(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    // More than the caller may have.
    let large = format!("{}/messages", import(&store, 1, &["a".repeat(3_000_000)]).await);
    let small = format!("{}/messages", import(&store, 1, &["small".into()]).await);
    let others = format!("{}/messages", import(&store, 2, &["a".repeat(100_000)]).await);
    let limits = Limits {
        page_bytes: Limit::new(1_000_000, 1_050_000),
        stalled_after: Duration::from_millis(500),
        ..Limits::default()
    };
    let server = Server::with_limits(store, limits).await;
    let (user, other) = (server.user(1), server.user(2));
    let mut unread = user.open(&large).await.unwrap();
    let refused = user.get(&large).await;
    assert_eq!(refused.header("retry-after"), Some("2"));
    assert!(refused.problem(429).is_some());
    other.get(&others).await.problem(429);
    let page = user.get(&small).await.expect(200);
    assert_eq!(said(&page), ["user small"]);

    // When it's broken off, others get their part, and the client sees that it isn't whole.
    until(async || other.get(&others).await.status == 200).await;
    user.get(&large).await.problem(429);
    let mut rest = Vec::new();
    drop(unread.read_to_end(&mut rest).await);
    assert!(serde_json::from_slice::<Value>(&rest).is_err());
    until(async || user.get(&large).await.status == 200).await;
}

async fn a_stream_that_nobody_reads_ends(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    let path = import(&store, 1, &large()).await;
    let limits = Limits { streams: Limit::new(2, 1), stalled_after: Duration::from_millis(200), ..Limits::default() };
    let server = Server::with_limits(store, limits).await;
    let (user, other) = (server.user(1), server.user(2));
    let events = format!("{path}/events");
    let mut unread = user.follow(&events).await.unwrap();
    let others = format!("{}/events", conversation(&other).await);
    other.follow(&others).await.err().unwrap().problem(429);
    until(async || other.follow(&others).await.is_ok()).await;

    // A client that wakes up gets the beginning, and the rest when it connects again.
    let mut last = None;
    while let Some(event) = unread.next().await {
        last = event.id.or(last);
    }
    let last = last.unwrap();
    let again = user.with("last-event-id", last);
    let mut stream = None;
    until(async || {
        stream = again.follow(&events).await.ok();
        stream.is_some()
    })
    .await;
    let mut stream = stream.unwrap();
    let mut count = 0;
    loop {
        let rows = stream.until("rows", |_| true).await.data;
        let rows = rows["items"].as_array().unwrap();
        count += rows.len();
        assert!(rows[0]["sequence"].as_u64() > Some(0), "not again");
        if rows.last().unwrap()["sequence"] == large().len() - 1 {
            break;
        }
    }
    assert!(count < large().len());
}

/// A store, and whether all connections of its pool are idle.
async fn with_pool(database: &TestDatabase) -> (Conversations, Box<dyn Fn() -> bool + Send + Sync>) {
    drop(database.store(&TABLES).await);
    match database.kind {
        Kind::Sqlite => {
            let pool = sagents::sqlite::connect(&database.url).await.unwrap();
            let store = sagents::sqlite::Store::new(pool.clone(), &TABLES);
            (Conversations::Sqlite(store), Box::new(move || u32::try_from(pool.num_idle()).unwrap() == pool.size()))
        }
        Kind::Postgres => {
            let pool = sagents::postgres::connect(&database.url).await.unwrap();
            let store = sagents::postgres::Store::new(pool.clone(), &TABLES);
            (Conversations::Postgres(store), Box::new(move || u32::try_from(pool.num_idle()).unwrap() == pool.size()))
        }
    }
}

/// More than is buffered anywhere.
fn large() -> Vec<String> {
    vec!["a".repeat(50_000); 80]
}

/// Stores messages for a user, and returns the path of their conversation.
async fn import(store: &Conversations, user: i64, texts: &[String]) -> String {
    let (id, now) = (Uuid::now_v7(), Timestamp::now());
    let messages = (0..).zip(texts).map(|(sequence, text)| ExportedMessage {
        sequence,
        message_id: Uuid::now_v7(),
        item: 0,
        role: Role::User,
        content_type: ContentType::Text,
        content: text.clone(),
        metadata: Map::new(),
        tool_call_id: None,
        status: None,
        inserted_at: now,
        delivery: Delivery::Stored,
    });
    let export = Export {
        conversation: ExportedConversation {
            id,
            title: None,
            metadata: Map::new(),
            interrupted: false,
            inserted_at: now,
            updated_at: now,
            archived_at: None,
            columns: Map::new(),
        },
        state: None,
        messages: messages.collect(),
        usage: Vec::new(),
    };
    let import = store.import_conversation(&User(user), export).await;
    assert!(import.unwrap().created);
    format!("/api/conversations/{id}")
}

/// Whether a file has its last line.
fn is_whole(file: &str) -> bool {
    let last = file.lines().last().unwrap_or_default();
    file.ends_with('\n') && last.starts_with(r#"{"type":"end""#)
}

/// Waits until it is so.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(20), wait).await.unwrap();
}
