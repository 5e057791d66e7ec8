//! Measures the generated context of the host that this is an example of. Both sides of a comparison take turns in
//! small batches and share a pool, so that what else the machine does touches both alike.

mod beside_hand;
mod branches;
mod files;
mod landed;
mod measure;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
mod sessions;
mod sizes;
#[cfg(feature = "sqlite")]
mod sqlite;
mod states;
#[cfg(feature = "postgres")]
mod writers;

use std::fmt::Write as _;

use my_app::accounts::{Scope, User};
use my_app::conversations::{NewConversation, NewDisplayMessage, Role};
use my_app::sagents::{Message, ToolCall};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use measure::{BATCH, ROUNDS, machine};
#[cfg(feature = "postgres")]
use postgres as database;
#[cfg(feature = "sqlite")]
use sqlite as database;

const USER: i64 = 1;
const SCOPE: Scope = Scope { user: User { id: USER } };

#[tokio::main]
async fn main() {
    let place = database::Place::new();
    println!("{}\n{}", machine(), place.description());
    println!("medians of {} calls a side, in turns of {BATCH}\n", ROUNDS * BATCH);
    let topics: Vec<_> = std::env::args().skip(1).collect();
    let wants = |topic: &str| topics.is_empty() || topics.iter().any(|wanted| wanted == topic);
    if wants("calls") {
        beside_hand::compare_all(&place).await;
        // SQLite has one writer at a time.
        #[cfg(feature = "postgres")]
        writers::beside_hand(&place).await;
    }
    if wants("branches") {
        branches::compare_all(&place).await;
    }
    if wants("states") {
        states::rows(&place).await;
    }
    if wants("sessions") {
        sessions::thousand(&place).await;
    }
    if wants("sizes") {
        sizes::small_and_large(&place).await;
        sizes::short_and_long(&place).await;
    }
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

/// 1 KB of words, which can be compressed about as well as what people write.
fn text(seed: usize) -> String {
    let mut random = seed as u64;
    let mut text = String::with_capacity(1024);
    while text.len() < 1024 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // One of 4,096 words, each tenth in quotation marks and at the end of a line.
        let word = random >> 52;
        match word % 10 {
            0 => writeln!(text, "\"{:x}\"", word * word * 31).unwrap(),
            _ => write!(text, "{:x} ", word * word * 31).unwrap(),
        }
    }
    text.truncate(1024);
    text
}
