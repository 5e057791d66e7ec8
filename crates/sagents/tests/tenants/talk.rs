//! A conversation of the model.

use std::collections::BTreeMap;

use sagents::{ContentType, MessagePosition, Timestamp, ToolStatus};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::model::{Answer, NOT_FOUND, Tokens};
use super::seen::{clean, clean_map, page};
use super::steps::Draft;

pub struct Talk {
    /// Who created it.
    pub scope: Value,
    pub title: Option<String>,
    pub metadata: Map<String, Value>,
    pub inserted_at: Timestamp,
    pub updated_at: Timestamp,
    pub archived_at: Option<Timestamp>,
    /// The tokens of the messages that were counted.
    pub counted: BTreeMap<Uuid, (u64, u64)>,
    /// It was written to at a time that is not known yet.
    pub touched: bool,
    pub next: i64,
    /// How often display messages changed.
    pub changes: i64,
    /// Whether the agent waits: a fork in which a call waits does.
    pub interrupted: bool,
    pub items: Vec<Entry>,
    /// The run in progress.
    pub run: Option<usize>,
}

#[derive(Clone)]
pub struct Entry {
    pub sequence: i64,
    pub message_id: Uuid,
    pub item: i32,
    pub content_type: ContentType,
    pub content: String,
    pub metadata: Map<String, Value>,
    pub tool_call_id: Option<String>,
    pub status: Option<ToolStatus>,
    pub inserted_at: Timestamp,
    pub changed: i64,
}

impl Talk {
    /// Deletes what is behind a message, and the message. A call is deleted with its result. Returns how
    /// many there were.
    pub fn rewind(&mut self, message_id: Uuid) -> Option<usize> {
        let first = |id: Uuid| {
            let mut items = self.items.iter().filter(|item| item.message_id == id);
            items.next().map(|item| item.sequence)
        };
        let mut cut = first(message_id)?;
        loop {
            let gone = self.items.iter().filter(|item| item.sequence >= cut);
            let results = gone.filter(|item| item.content_type == ContentType::ToolResult);
            let calls = results.filter_map(|result| {
                let before = self.items.iter().rev().filter(|item| {
                    item.content_type == ContentType::ToolCall
                        && item.tool_call_id == result.tool_call_id
                        && item.sequence < result.sequence
                });
                before.take(1).find(|call| call.sequence < cut)
            });
            let Some(separated) = calls.filter_map(|call| first(call.message_id)).min() else {
                break;
            };
            cut = separated;
        }
        let before = self.items.len();
        self.items.retain(|item| item.sequence < cut);
        self.changes += 1;
        if let Some(last) = self.items.last_mut() {
            last.changed = self.changes;
        }
        self.interrupted &= self.waits_in_copy();
        Some(before - self.items.len())
    }

    /// Whether a call waits for a decision here, or would in a copy, where its approval doesn't count.
    pub fn waits_in_copy(&self) -> bool {
        self.items.iter().any(|item| item.copied().status == Some(ToolStatus::Interrupted))
    }

    /// The item that was there already, or a new one.
    pub fn append(&mut self, draft: &Draft, message_id: Uuid, at: Timestamp) -> &Entry {
        let same = |item: &Entry| (item.message_id, item.item) == (message_id, draft.item);
        if let Some(index) = self.items.iter().position(same) {
            return &self.items[index];
        }
        let count = |key: &str| draft.metadata.get("usage")?.get(key)?.as_u64();
        let tokens = (count("input").unwrap_or(0), count("output").unwrap_or(0));
        if tokens != (0, 0) {
            self.counted.entry(message_id).or_insert(tokens);
        }
        self.changes += 1;
        self.items.push(Entry {
            changed: self.changes,
            sequence: self.next,
            message_id,
            item: draft.item,
            content_type: draft.content_type,
            content: clean(&draft.content),
            metadata: clean_map(&draft.metadata),
            tool_call_id: draft.tool_call_id.as_deref().map(clean),
            status: draft.status,
            inserted_at: at,
        });
        self.next += 1;
        self.updated_at = at;
        &self.items[self.items.len() - 1]
    }

    /// Counts a change of a tool call.
    pub fn changed(&mut self, call_id: &str) -> &mut Entry {
        self.changes += 1;
        let changes = self.changes;
        let item = self.newest(call_id, ContentType::ToolCall).unwrap();
        item.changed = changes;
        item
    }

    /// A decision is noted with the same change on the result.
    pub fn note_on_result(&mut self, call_id: &str, decision: &str) {
        let changes = self.changes;
        if let Some(result) = self.newest(call_id, ContentType::ToolResult) {
            result.metadata.insert("hitl_decision".into(), json!(decision));
            result.changed = changes;
        }
    }

    pub fn newest(&mut self, call_id: &str, content_type: ContentType) -> Option<&mut Entry> {
        let call_id = Some(clean(call_id));
        let mut newest_first = self.items.iter_mut().rev();
        newest_first.find(|item| item.content_type == content_type && item.tool_call_id == call_id)
    }

    pub fn call(&self, id: Uuid, call_id: &str) -> Answer {
        let call_id = Some(clean(call_id));
        let mut calls = self.items.iter().filter(|item| item.content_type == ContentType::ToolCall);
        let newest = calls.rfind(|item| item.tool_call_id == call_id);
        newest.map_or(NOT_FOUND, |item| Ok(item.row(id)))
    }

    pub fn page(&self, id: Uuid, from: MessagePosition, limit: u32) -> Answer {
        let (after, before, is_backward) = match from {
            MessagePosition::First => (-1, i64::MAX, false),
            MessagePosition::After(sequence) => (sequence, i64::MAX, false),
            MessagePosition::Last => (-1, i64::MAX, true),
            MessagePosition::Before(sequence) => (-1, sequence, true),
            MessagePosition::Next(cursor) => panic!("no call has {cursor}"),
        };
        let within = |item: &&Entry| after < item.sequence && item.sequence < before;
        let rows = self.items.iter().filter(within);
        let mut rows: Vec<_> = rows.map(|item| item.row(id)).collect();
        if is_backward {
            rows.reverse();
        }
        let mut page = page(rows, limit)?;
        if is_backward {
            page["items"].as_array_mut().unwrap().reverse();
        }
        Ok(page)
    }

    pub fn tokens(&self) -> Tokens {
        let counted = self.counted.values();
        let counted = counted.filter(|tokens| **tokens != (0, 0));
        counted.fold((0, 0, 0), |sum, new| (sum.0 + 1, sum.1 + new.0, sum.2 + new.1))
    }

    pub fn row(&self, id: Uuid) -> Value {
        json!({
            "id": id,
            "title": self.title,
            "scope": self.scope,
            "metadata": self.metadata,
            "interrupted": self.interrupted,
            "inserted_at": self.inserted_at,
            "updated_at": self.updated_at,
            "archived_at": self.archived_at,
        })
    }
}

impl Entry {
    pub fn forget_decision(&mut self) {
        for key in ["hitl_decision", "decision", "decision_claim", "claim"] {
            self.metadata.remove(key);
        }
    }

    /// As it is in a copy of its conversation: not running, and not approved.
    pub fn copied(&self) -> Self {
        let mut copy = self.clone();
        let is_approved = self.metadata.get("hitl_decision") == Some(&json!("approved"));
        let is_question = self.metadata.get("is_interrupt") == Some(&json!(true));
        let is_running = self.status == Some(ToolStatus::Executing);
        if is_running {
            copy.metadata.insert("started_elsewhere".into(), json!(true));
            copy.status = Some(ToolStatus::Unknown);
        }
        if is_approved && self.status.is_some_and(|status| !is_ended(status)) {
            copy.forget_decision();
            copy.status = Some(ToolStatus::Interrupted);
        } else if is_approved && is_question && self.tool_call_id.is_some() {
            copy.forget_decision();
        }
        copy
    }

    pub fn row(&self, conversation_id: Uuid) -> Value {
        json!({
            "conversation_id": conversation_id,
            "sequence": self.sequence,
            "message_id": self.message_id,
            "item": self.item,
            "role": "user",
            "content_type": self.content_type,
            "content": self.content,
            "metadata": self.metadata,
            "is_error": self.metadata.get("is_error") == Some(&json!(true)),
            "tool_call_id": self.tool_call_id,
            "status": self.status,
            "inserted_at": self.inserted_at,
            "changed": self.changed,
            "delivery": "stored",
        })
    }
}

pub fn may_become(before: ToolStatus, after: ToolStatus, decision: Option<&Value>) -> bool {
    match (before, after) {
        _ if is_ended(before) => false,
        (ToolStatus::Executing, ToolStatus::Executing) => false,
        (ToolStatus::Interrupted, ToolStatus::Executing) => decision == Some(&json!("approved")),
        (_, ToolStatus::Executing) => decision != Some(&json!("rejected")),
        _ => true,
    }
}

pub fn is_ended(status: ToolStatus) -> bool {
    use ToolStatus::{Cancelled, Completed, Failed, Unknown};
    [Cancelled, Completed, Failed, Unknown].contains(&status)
}
