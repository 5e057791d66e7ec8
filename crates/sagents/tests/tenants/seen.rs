//! Answers as data.

use sagents::{
    BeginRun, Claim, Conversation, ConversationOrder, Decided, DisplayMessage, Error, Message, Page, State, Timestamp,
    ToolResult,
};
use serde_json::{Map, Value, json};

use super::model::{AMBIGUOUS, Answer, INVALID, NO_OWNER, NOT_FOUND};
use super::steps::is_valid;

/// An answer as data, with what is left out where it serializes.
pub trait Seen {
    fn seen(&self) -> Value;
}

impl Seen for Conversation {
    fn seen(&self) -> Value {
        let mut row = json!(self);
        row["scope"] = self.scope.clone();
        row
    }
}

/// Without the time of a decision, which the model doesn't know.
impl Seen for DisplayMessage {
    fn seen(&self) -> Value {
        let mut row = json!(self);
        let decision = row.pointer_mut("/metadata/decision").and_then(Value::as_object_mut);
        if let Some(at) = decision.and_then(|decision| decision.remove("at")) {
            at.as_str().unwrap().parse::<Timestamp>().unwrap();
        }
        row
    }
}

impl<T: Seen> Seen for Page<T> {
    fn seen(&self) -> Value {
        let items: Vec<_> = self.items.iter().map(T::seen).collect();
        json!({ "items": items, "more": self.next.is_some() })
    }
}

/// Whether the caller has the claim.
impl Seen for Claim<DisplayMessage> {
    fn seen(&self) -> Value {
        match self {
            Self::Claimed(call) => json!([true, call.seen()]),
            Self::Already(call) => json!([false, call.seen()]),
        }
    }
}

impl Seen for Decided<DisplayMessage> {
    fn seen(&self) -> Value {
        match self {
            Self::Claimed(call) => json!([true, call.seen()]),
            Self::Already(decision, call) => json!([decision, call.seen()]),
        }
    }
}

impl Seen for BeginRun {
    fn seen(&self) -> Value {
        match self {
            Self::Started(run) => json!([true, run.id]),
            Self::Busy(run) => json!([false, run.id]),
        }
    }
}

impl Seen for Value {
    fn seen(&self) -> Value {
        self.clone()
    }
}

impl Seen for u64 {
    fn seen(&self) -> Value {
        json!(self)
    }
}

impl Seen for () {
    fn seen(&self) -> Value {
        Value::Null
    }
}

pub fn rows<T: Seen>(answer: Result<T, Error>) -> Answer {
    match answer {
        Ok(rows) => Ok(rows.seen()),
        Err(Error::NotFound) => NOT_FOUND,
        Err(Error::Invalid(_)) => INVALID,
        Err(Error::Ambiguous) => AMBIGUOUS,
        Err(Error::NoOwner) => NO_OWNER,
        Err(error) => panic!("{error}"),
    }
}

pub fn clean(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

pub fn clean_map(map: &Map<String, Value>) -> Map<String, Value> {
    let text = json!(map).to_string().replace("\\u0000", "\u{FFFD}");
    serde_json::from_str(&text).unwrap()
}

pub fn fold(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

pub fn page(all: Vec<Value>, limit: u32) -> Answer {
    page_with_ties(all, limit, Value::to_string)
}

/// A page is not cut between conversations of several owners with the same id.
pub fn page_with_ties<K: PartialEq>(mut all: Vec<Value>, limit: u32, place: impl Fn(&Value) -> K) -> Answer {
    if !is_valid(limit) {
        return INVALID;
    }
    let limit = limit as usize;
    let more = all.len() > limit;
    if more {
        let last = place(&all[limit - 1]);
        let ties = all[limit..].iter().take_while(|row| place(row) == last);
        let length = limit + ties.count();
        all.truncate(length);
    }
    Ok(json!({ "items": all, "more": more }))
}

/// What the results of a search are ordered by.
pub const FOUND: &[&str] = &["inserted_at", "conversation_id", "sequence"];

/// What a list is ordered by.
pub fn keys(order: ConversationOrder) -> &'static [&'static str] {
    match order {
        ConversationOrder::Updated => &["updated_at", "id"],
        ConversationOrder::Created => &["id"],
    }
}

/// The rows of a page in one order: which of several owners comes first is not defined.
pub fn sorted(answer: Answer, keys: &[&str]) -> Answer {
    let mut page = answer?;
    let rows = page["items"].as_array_mut().unwrap();
    let same = |one: &Value, other: &Value| keys.iter().all(|key| one[key] == other[key]);
    for run in rows.chunk_by_mut(same) {
        run.sort_by_key(Value::to_string);
    }
    Ok(page)
}

pub fn result(call_id: &str, text: &str, is_error: bool) -> ToolResult {
    ToolResult { is_error, ..ToolResult::new(call_id, "search", text) }
}

pub fn state(text: &str) -> State {
    let mut state = State::new();
    state.add_message(Message::user(text));
    state
}
