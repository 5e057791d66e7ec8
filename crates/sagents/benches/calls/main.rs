//! Each call of a store beside the same statements by hand on bare sqlx, in small and large databases, and the cost of
//! sessions. It measures `SQLite` and then `PostgreSQL`, or only what you name:
//! `cargo bench -p sagents --features sqlite,postgres --bench calls -- postgres sessions`. With `quick` it makes a few
//! calls of each, to try it. Nothing here is asserted; the last column of a table is the target.
//!
//! Both sides of a comparison take turns in small batches and share a pool, so other work on the machine touches both
//! alike.

#![allow(clippy::cast_precision_loss, reason = "ratios have two digits")]

mod branches;
mod calls;
mod files;
mod hand;
mod measure;
mod postgres;
mod sessions;
mod sizes;
mod sqlite;
mod states;
mod writers;

use std::fmt::Write as _;

use sagents::{
    Message, NewDisplayMessage, Owner, OwnerColumn, OwnerScope, Result, Role, Store, Tables, ToolCall, testing,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use hand::Place;

const TOPICS: [&str; 5] = ["branches", "calls", "sessions", "sizes", "states"];
const DATABASES: [&str; 2] = ["postgres", "sqlite"];
const TABLES: Tables = Tables::new(1, "sagents_", OwnerColumn::integer("user_id"));
const USER: i64 = 1;
const SCOPE: Scope = Scope;

/// Reads its owner as an application's scope does.
struct Scope;

impl OwnerScope for Scope {
    fn owner(&self) -> Result<Owner> {
        Ok(Owner::new("user", USER))
    }
}

fn main() {
    // Cargo adds `--bench`.
    let named: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for name in &named {
        let is_known = [&TOPICS[..], &DATABASES, &["quick"]].concat().contains(&name.as_str());
        assert!(is_known, "{name} is none of {DATABASES:?}, {TOPICS:?} and \"quick\"");
    }
    let wants = |name: &str, of: &[&str]| {
        named.iter().any(|wanted| wanted == name) || !named.iter().any(|wanted| of.contains(&wanted.as_str()))
    };
    measure::set_quick(named.iter().any(|name| name == "quick"));
    let topics: Vec<_> = TOPICS.into_iter().filter(|topic| wants(topic, &TOPICS)).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if wants("sqlite", &DATABASES) {
        runtime.block_on(measure_all::<sqlite::Directory>(&topics));
    }
    if wants("postgres", &DATABASES) {
        runtime.block_on(measure_all::<postgres::Server>(&topics));
    }
}

async fn measure_all<P: Place>(topics: &[&str]) {
    let place = P::new();
    println!("{}\n{}\n{}\n", measure::machine(), place.description(), measure::calls());
    if topics.contains(&"calls") {
        calls::compare_all(&place).await;
        if P::HAS_MANY_WRITERS {
            writers::beside_hand(&place).await;
        }
    }
    if topics.contains(&"branches") {
        branches::compare_all(&place).await;
    }
    if topics.contains(&"states") {
        states::rows(&place).await;
    }
    if topics.contains(&"sizes") {
        sizes::small_and_large(&place).await;
        sizes::short_and_long(&place).await;
    }
    if topics.contains(&"sessions") {
        sessions::thousand(&place).await;
    }
}

/// The id of the nth conversation that a database is filled with.
fn id(n: usize) -> Uuid {
    Uuid::parse_str(&format!("{n:012x}70008000000000000000")).unwrap()
}

async fn create_conversation(store: &Store) -> Uuid {
    testing::create_conversation(store, &SCOPE).await.unwrap()
}

fn metadata() -> Map<String, Value> {
    let metadata = json!({ "model": "a-model", "tokens": { "input": 1234, "output": 56 }, "tags": ["one", "two"] });
    metadata.as_object().unwrap().clone()
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

/// 1 KB of words, which compress about as well as what people write.
fn text(seed: usize) -> String {
    let mut random = seed as u64;
    let mut text = String::with_capacity(1024);
    while text.len() < 1024 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // One of 4,096 words. Each tenth is in quotation marks and ends a line.
        let word = random >> 52;
        match word % 10 {
            0 => writeln!(text, "\"{:x}\"", word * word * 31).unwrap(),
            _ => write!(text, "{:x} ", word * word * 31).unwrap(),
        }
    }
    text.truncate(1024);
    text
}
