//! Measures the generated context of the host that this is an example of. Both sides of a comparison take turns in
//! small batches and share a pool, so that what else the machine does touches both alike.

mod hand;
mod states;

use std::fmt::Debug;
use std::hint::black_box;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chrono::DateTime;
use hand::ByHand;
use my_app::accounts::{Scope, User};
use my_app::conversations::{
    ConversationChanges, Conversations, DisplayMessage, ListConversations, MessagePage, NewConversation,
    NewDisplayMessage, Role, ToolStatus, connect,
};
use my_app::sagents::{Message, ToolCall};
use serde_json::{Map, Value, json};
use sqlx::sqlite::SqlitePool;
use sqlx::types::Json;
use uuid::Uuid;

const ROUNDS: usize = 40;
const BATCH: usize = 50;
const BESIDE_HAND: &str = "<= 1.15";
const FLAT: &str = "<= 1.30";
const USER: i64 = 1;
const SCOPE: Scope = Scope { user: User { id: USER } };

#[tokio::main]
async fn main() {
    let directory = Directory::new();
    println!("{}", machine());
    println!(
        "databases in {}, medians of {} calls a side, in turns of {BATCH}\n",
        directory.0.display(),
        ROUNDS * BATCH
    );
    beside_hand(&directory).await;
    println!();
    states::beside_bare_driver(&directory).await;
    println!();
    small_and_large(&directory).await;
}

/// Each call, ours and by hand.
async fn beside_hand(directory: &Directory) {
    let pool = directory.database("calls", 200, 10).await;
    let (ours, hand) = (&Conversations::new(pool.clone()), &ByHand(pool));
    let (one, list) = (id(0), ListConversations::default);
    assert_eq!(ours.get_conversation(&SCOPE, one).await.unwrap(), hand.get(one).await);
    assert_eq!(ours.list_conversations(&SCOPE, list()).await.unwrap(), hand.list().await);
    assert_eq!(ours.load_display_messages(&SCOPE, one, MessagePage::first()).await.unwrap(), hand.page(one).await);
    assert_eq!(ours.search_messages(&SCOPE, "MESSAGE 77", 20).await.unwrap(), hand.search("MESSAGE 77").await);
    let (said, message_id) = (&answer(), Uuid::now_v7());
    let saved = ours.save_message(&SCOPE, id(1), message_id, said).await.unwrap();
    assert_eq!(shown(saved), shown(hand.save_message(id(2), message_id, said).await));

    header(["call", "ours", "by hand", "ratio", "target"]);
    conversation_calls(ours, hand).await;
    message_calls(ours, hand).await;
}

async fn conversation_calls(ours: &Conversations, hand: &ByHand) {
    let (one, list, target) = (id(0), ListConversations::default, BESIDE_HAND);
    let created = async |_| ours.create_conversation(&SCOPE, new_conversation()).await.unwrap().id;
    compare(
        "delete_conversations_before",
        target,
        async |_| DateTime::UNIX_EPOCH,
        async |cutoff| ours.delete_conversations_before(cutoff).await.unwrap(),
        async |cutoff| hand.delete_before(cutoff).await,
    )
    .await;
    compare(
        "create_conversation",
        target,
        async |_| new_conversation(),
        async |new| ours.create_conversation(&SCOPE, new).await.unwrap(),
        async |new| hand.create(new).await,
    )
    .await;
    compare(
        "get_conversation",
        target,
        async |_| one,
        async |id| ours.get_conversation(&SCOPE, id).await.unwrap(),
        async |id| hand.get(id).await,
    )
    .await;
    compare(
        "update_conversation",
        target,
        async |_| "Another title".to_owned(),
        async |title| {
            let changes = ConversationChanges::default().title(title).metadata(metadata());
            ours.update_conversation(&SCOPE, one, changes).await.unwrap()
        },
        async |title| hand.update(one, title, metadata()).await,
    )
    .await;
    compare(
        "delete_conversation",
        target,
        created,
        async |id| ours.delete_conversation(&SCOPE, id).await.unwrap(),
        async |id| hand.delete(id).await,
    )
    .await;
    compare(
        "list_conversations, 50",
        target,
        async |_| (),
        async |()| ours.list_conversations(&SCOPE, list()).await.unwrap(),
        async |()| hand.list().await,
    )
    .await;
}

async fn message_calls(ours: &Conversations, hand: &ByHand) {
    let (one, target) = (id(0), BESIDE_HAND);
    let filled = async |_| {
        let id = ours.create_conversation(&SCOPE, new_conversation()).await.unwrap().id;
        for _ in 0..10 {
            ours.append_display_message(&SCOPE, id, new_message()).await.unwrap();
        }
        id
    };
    let calling = async |_| {
        let message = NewDisplayMessage::tool_call(Uuid::now_v7(), "search the web").metadata(metadata());
        ours.append_display_message(&SCOPE, one, message).await.unwrap().tool_call_id.unwrap()
    };
    compare(
        "append_display_message",
        target,
        async |_| new_message(),
        async |new| ours.append_display_message(&SCOPE, one, new).await.unwrap(),
        async |new| hand.append(one, vec![new]).await,
    )
    .await;
    compare(
        "load_display_messages, 100",
        target,
        async |_| one,
        async |id| ours.load_display_messages(&SCOPE, id, MessagePage::first()).await.unwrap(),
        async |id| hand.page(id).await,
    )
    .await;
    compare(
        "clear_display_messages, 10",
        target,
        filled,
        async |id| ours.clear_display_messages(&SCOPE, id).await.unwrap(),
        async |id| hand.clear(id).await,
    )
    .await;
    compare(
        "search_messages",
        target,
        async |_| "MESSAGE 77",
        async |text| ours.search_messages(&SCOPE, text, 20).await.unwrap(),
        async |text| hand.search(text).await,
    )
    .await;
    compare(
        "mark_tool_executing",
        target,
        calling,
        async |call| ours.mark_tool_executing(&SCOPE, one, &call).await.unwrap(),
        async |call| hand.change_tool_call(one, &call, ToolStatus::Executing, Map::new()).await,
    )
    .await;
    compare(
        "complete_tool_call",
        target,
        calling,
        async |call| ours.complete_tool_call(&SCOPE, one, &call, metadata()).await.unwrap(),
        async |call| hand.change_tool_call(one, &call, ToolStatus::Completed, metadata()).await,
    )
    .await;
    // The last one: what it stores would be searched.
    compare(
        "save_message, 3 items",
        target,
        async |_| (Uuid::now_v7(), answer()),
        async |(id, said)| ours.save_message(&SCOPE, one, id, &said).await.unwrap(),
        async |(id, said)| hand.save_message(one, id, &said).await,
    )
    .await;
}

/// The same calls of one owner with few and with many rows. The large database is called all over.
async fn small_and_large(directory: &Directory) {
    let (few, many) = (10, 10_000);
    let small = &Conversations::new(directory.database("small", 50, few).await);
    let large = &Conversations::new(directory.database("large", many, many).await);
    let (in_small, in_large) = (|n: usize| id(n % few), |n: usize| id(n * 7919 % many));
    let (list, page) = (ListConversations::default, MessagePage::first);
    let number = async |n| n;
    let target = FLAT;

    header(["messages in the database", "1,000,000", "1,000", "ratio", "target"]);
    compare(
        "get_conversation",
        target,
        number,
        async |n| large.get_conversation(&SCOPE, in_large(n)).await.unwrap(),
        async |n| small.get_conversation(&SCOPE, in_small(n)).await.unwrap(),
    )
    .await;
    compare(
        "list_conversations, 50",
        target,
        number,
        async |_| large.list_conversations(&SCOPE, list()).await.unwrap(),
        async |_| small.list_conversations(&SCOPE, list()).await.unwrap(),
    )
    .await;
    compare(
        "load_display_messages, 100",
        target,
        number,
        async |n| large.load_display_messages(&SCOPE, in_large(n), page()).await.unwrap(),
        async |n| small.load_display_messages(&SCOPE, in_small(n), page()).await.unwrap(),
    )
    .await;
    compare(
        "append_display_message",
        target,
        number,
        async |n| large.append_display_message(&SCOPE, in_large(n), new_message()).await.unwrap(),
        async |n| small.append_display_message(&SCOPE, in_small(n), new_message()).await.unwrap(),
    )
    .await;

    println!();
    let pool = &directory.database("long", 2, 0).await;
    let ours = &Conversations::new(pool.clone());
    fill_messages(pool, 0, 1, 10_000).await;
    fill_messages(pool, 1, 1, 10).await;
    // Before every turn both have their length again.
    let trimmed = async |n: usize| {
        if n.is_multiple_of(BATCH) {
            let trim = "DELETE FROM sagents_display_messages WHERE sequence >= CASE conversation_id WHEN $1 THEN 10 ELSE 10000 END";
            sqlx::query(trim).bind(id(1)).execute(pool).await.unwrap();
        }
    };
    header(["messages in the conversation", "10,000", "10", "ratio", "target"]);
    compare(
        "append_display_message",
        target,
        trimmed,
        async |()| ours.append_display_message(&SCOPE, id(0), new_message()).await.unwrap(),
        async |()| ours.append_display_message(&SCOPE, id(1), new_message()).await.unwrap(),
    )
    .await;
}

/// Measures two sides in turns and prints their medians.
async fn compare<T, A, B>(
    name: &str,
    target: &str,
    prepare: impl AsyncFn(usize) -> T,
    one: impl AsyncFn(T) -> A,
    other: impl AsyncFn(T) -> B,
) {
    let (one, other) = measure(ROUNDS, BATCH, prepare, one, other).await;
    compared(name, one, other, target);
}

/// The medians of two sides that take turns. What a call needs is prepared outside of its time.
async fn measure<T, A, B>(
    rounds: usize,
    batch: usize,
    prepare: impl AsyncFn(usize) -> T,
    one: impl AsyncFn(T) -> A,
    other: impl AsyncFn(T) -> B,
) -> (Duration, Duration) {
    let (mut ones, mut others) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let numbers = round * batch..(round + 1) * batch;
        turn(numbers.clone(), &prepare, &one, &mut ones).await;
        turn(numbers, &prepare, &other, &mut others).await;
        if round == 0 {
            // It warmed up.
            ones.clear();
            others.clear();
        }
    }
    (median(ones), median(others))
}

async fn turn<T, R>(
    numbers: Range<usize>,
    prepare: &impl AsyncFn(usize) -> T,
    call: &impl AsyncFn(T) -> R,
    times: &mut Vec<Duration>,
) {
    let mut inputs = Vec::new();
    for n in numbers {
        inputs.push(prepare(n).await);
    }
    for input in inputs {
        let start = Instant::now();
        let answer = call(input).await;
        times.push(start.elapsed());
        black_box(answer);
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn header(columns: [&str; 5]) {
    row(columns);
    println!("{}", "-".repeat(75));
}

fn compared(name: &str, one: Duration, other: Duration, last: &str) {
    let micros = |time: Duration| format!("{:.1} µs", time.as_secs_f64() * 1e6);
    let ratio = format!("{:.2}", one.as_secs_f64() / other.as_secs_f64());
    row([name, &micros(one), &micros(other), &ratio, last]);
}

fn row([name, one, other, ratio, target]: [&str; 5]) {
    println!("{name:<30}{one:>14}{other:>14}{ratio:>8}{target:>9}");
}

fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores, {}", model.map_or("unknown CPU", |(_, name)| name))
}

/// The databases of a run, in memory where that is possible: code is to be measured, not a disk.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let directory = parent.join(format!("sagents-bench-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        Self(directory)
    }

    /// A new database of one owner's conversations, of which the first `talking` have 100 messages each.
    async fn database(&self, name: &str, conversations: usize, talking: usize) -> SqlitePool {
        let pool = connect(&format!("sqlite://{}/{name}.db", self.0.display())).await.unwrap();
        sqlx::migrate!().run(&pool).await.unwrap();
        let fill = "
            WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < $2)
            INSERT INTO sagents_conversations (user_id, id, title, scope, metadata, inserted_at, updated_at)
            SELECT $1, unhex(printf('%012x70008000000000000000', n)), 'Conversation ' || n,
                '{\"type\":\"user\",\"id\":1}', $3,
                strftime('%Y-%m-%dT%H:%M:%f000Z', 1.7e9 + n, 'unixepoch'),
                strftime('%Y-%m-%dT%H:%M:%f000Z', 1.7e9 + n, 'unixepoch')
            FROM n";
        let fill = sqlx::query(fill).bind(USER).bind(i64::try_from(conversations).unwrap());
        fill.bind(Json(metadata())).execute(&pool).await.unwrap();
        if talking > 0 {
            fill_messages(&pool, 0, talking, 100).await;
        }
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&pool).await.unwrap();
        pool
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Gives messages to `count` conversations from `first` on.
async fn fill_messages(pool: &SqlitePool, first: usize, count: usize, messages: usize) {
    let fill = "
        WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < $3 * $4)
        INSERT INTO sagents_display_messages (user_id, conversation_id, sequence, message_id, item, role,
            content_type, content, metadata, inserted_at)
        SELECT $1, unhex(printf('%012x70008000000000000000', $2 + n / $4)), n % $4,
            unhex(printf('%012x70008000000000000000', n)), 0, 'user', 'text',
            'Message ' || n || ': a sentence or two of what a person would write to an agent, or read from it.', $5,
            strftime('%Y-%m-%dT%H:%M:%f000Z', 1.7e9 + n, 'unixepoch')
        FROM n";
    let [first, count, messages] = [first, count, messages].map(|number| i64::try_from(number).unwrap());
    let fill = sqlx::query(fill).bind(USER).bind(first).bind(count).bind(messages);
    fill.bind(Json(metadata())).execute(pool).await.unwrap();
    let next = "
        UPDATE sagents_conversations SET next_sequence = $4
        WHERE user_id = $1 AND id >= unhex(printf('%012x70008000000000000000', $2))
            AND id < unhex(printf('%012x70008000000000000000', $2 + $3))";
    let next = sqlx::query(next).bind(USER).bind(first).bind(count).bind(messages);
    next.execute(pool).await.unwrap();
}

/// The id of the nth conversation that a database is filled with.
fn id(n: usize) -> Uuid {
    Uuid::parse_str(&format!("{n:012x}70008000000000000000")).unwrap()
}

fn metadata() -> Map<String, Value> {
    let metadata = json!({ "model": "a-model", "tokens": { "input": 1234, "output": 56 }, "tags": ["one", "two"] });
    metadata.as_object().unwrap().clone()
}

fn new_conversation() -> NewConversation {
    NewConversation::new().title("A conversation").metadata(metadata())
}

fn new_message() -> NewDisplayMessage {
    let text = "Another sentence or two of what a person would write to an agent, or read from it.";
    NewDisplayMessage::text(Role::User, text).metadata(metadata())
}

/// A text and two tool calls.
fn answer() -> Message {
    let call = |name| ToolCall::new(Uuid::now_v7(), name, json!({ "query": "the sea", "limit": 10 }));
    Message { tool_calls: vec![call("search"), call("fetch")], ..Message::assistant("Let me look that up for you.") }
}

/// What two calls store alike.
fn shown(items: Vec<DisplayMessage>) -> Vec<impl PartialEq + Debug> {
    let place = |m: &DisplayMessage| (m.sequence, m.message_id, m.item, m.role, m.content_type, m.status);
    items.into_iter().map(|m| (place(&m), m.content, m.metadata, m.tool_call_id)).collect()
}
