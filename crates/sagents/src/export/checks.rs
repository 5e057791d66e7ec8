//! What can be imported.

use std::collections::HashSet;
use std::fmt;
use std::ops::RangeInclusive;

use serde::Serialize;
use uuid::Uuid;

use super::super::Timestamp;
use super::super::display::ContentType;
use super::super::json::{MAX_DEPTH, Path};
use super::super::message::Message;
use super::super::serializer::{ReadError, TooDeep};
use super::{ExportError, ExportedConversation, ExportedMessage, ExportedUsage, Place, Record};

/// What the records of an export have to fulfil, each and together.
#[derive(Debug, Default)]
pub(super) struct Checks {
    last_kind: Option<u8>,
    counts: Counts,
    last_sequence: Option<i64>,
    items: HashSet<(Uuid, i32)>,
    last_usage: Option<Uuid>,
    pub has_ended: bool,
}

impl Checks {
    pub(super) fn next(&mut self, record: &Record) -> Result<(), Problem> {
        let (kind, may_repeat) = match record {
            Record::Conversation(_) => (0, false),
            Record::State(_) => (1, false),
            Record::AgentMessage { .. } => (2, true),
            Record::Message(_) => (3, true),
            Record::Usage(_) => (4, true),
        };
        let is_in_order = match self.last_kind {
            None => kind == 0,
            Some(last) if last == kind => may_repeat,
            // The messages of an agent need its state.
            Some(last) => last < kind && (kind != 2 || last == 1),
        };
        if !is_in_order {
            return Err(Problem::new("type", "this record may not be here"));
        }
        self.last_kind = Some(kind);
        self.counts.add(record);
        match record {
            Record::Conversation(conversation) => conversation.check(),
            Record::State(_) | Record::AgentMessage { .. } => Ok(()),
            Record::Message(message) => {
                message.check()?;
                let last = self.last_sequence.replace(message.sequence);
                if last.is_some_and(|last| last >= message.sequence) {
                    return Err(Problem::new("sequence", "not after that of the message before"));
                }
                if !self.items.insert((message.message_id, message.item)) {
                    return Err(Problem::new("item", "another one of this message has it"));
                }
                Ok(())
            }
            Record::Usage(usage) => {
                usage.check()?;
                let last = self.last_usage.replace(usage.message_id);
                if last.is_some_and(|last| last >= usage.message_id) {
                    return Err(Problem::new("message_id", "not after that of the record before"));
                }
                Ok(())
            }
        }
    }

    pub(super) fn end(&mut self, counts: Counts) -> Result<(), Problem> {
        if self.last_kind.is_none() {
            return Err(Problem::new("type", "this record may not be here"));
        }
        let found = self.counts;
        for (key, expected, found) in [
            ("agent_messages", counts.agent_messages, found.agent_messages),
            ("display_messages", counts.display_messages, found.display_messages),
            ("usage", counts.usage, found.usage),
        ] {
            if expected != found {
                let reason = format!("the file should have {expected} of them, and has {found}");
                return Err(Problem::new(key, reason));
            }
        }
        self.has_ended = true;
        Ok(())
    }
}

impl ExportedConversation {
    fn check(&self) -> Result<(), Problem> {
        if self.id.get_version_num() != 7 {
            return Err(Problem::new("id", format!("{} is not a UUIDv7", self.id)));
        }
        check_time("inserted_at", self.inserted_at)?;
        check_time("updated_at", self.updated_at)?;
        self.archived_at.map_or(Ok(()), |time| check_time("archived_at", time))
    }
}

impl ExportedMessage {
    fn check(&self) -> Result<(), Problem> {
        let is_call = self.content_type == ContentType::ToolCall;
        // Others follow, statements calculate with them, and JavaScript reads them exactly.
        if !(0..1 << 53).contains(&self.sequence) {
            return Err(Problem::new("sequence", format!("{} is out of range", self.sequence)));
        }
        if self.item < 0 {
            return Err(Problem::new("item", "it is negative"));
        }
        if is_call && self.tool_call_id.is_none() {
            return Err(Problem::new("tool_call_id", "a tool call needs its id"));
        }
        if is_call != self.status.is_some() {
            return Err(Problem::new("status", "a tool call has one, and nothing else has"));
        }
        check_time("inserted_at", self.inserted_at)
    }
}

impl ExportedUsage {
    fn check(&self) -> Result<(), Problem> {
        for (key, tokens) in [
            ("input_tokens", self.input_tokens),
            ("output_tokens", self.output_tokens),
            ("cached_tokens", self.cached_tokens),
        ] {
            // Databases have no larger numbers.
            if i64::try_from(tokens).is_err() {
                return Err(Problem::new(key, "it is out of range"));
            }
        }
        check_time("inserted_at", self.inserted_at)
    }
}

/// A time that every database stores as it is.
fn check_time(key: &str, time: Timestamp) -> Result<(), Problem> {
    /// The first and the last microsecond of these years.
    const STORED: RangeInclusive<i64> = -62_167_219_200_000_000..=253_402_300_799_999_999;

    if STORED.contains(&time.as_micros()) {
        return Ok(());
    }
    Err(Problem::new(key, "a time is in the years 0 to 9999"))
}

pub(super) fn check_depth(message: &Message) -> Result<(), Problem> {
    match message.too_deep(Path::Root("message")) {
        Some(path) => Err(TooDeep { path }.into()),
        None => Ok(()),
    }
}

/// How many records of a kind a file has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub agent_messages: u64,
    pub display_messages: u64,
    pub usage: u64,
}

impl Counts {
    pub(super) fn add(&mut self, record: &Record) {
        match record {
            Record::Conversation(_) | Record::State(_) => {}
            Record::AgentMessage { .. } => self.agent_messages += 1,
            Record::Message(_) => self.display_messages += 1,
            Record::Usage(_) => self.usage += 1,
        }
    }
}

/// What is wrong with a record, and with which of its keys, if with one.
#[derive(Debug)]
pub(super) struct Problem {
    pub key: String,
    pub reason: String,
}

impl Problem {
    pub(super) fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { key: key.into(), reason: reason.into() }
    }

    pub(super) fn of(error: ReadError, prefix: &str) -> Self {
        match error {
            ReadError::Damaged { path, reason } => Self::new(format!("{prefix}{path}"), reason),
            ReadError::FutureVersion { .. } => Self::new(format!("{prefix}version"), error.to_string()),
        }
    }

    pub(super) fn at(self, place: Place) -> ExportError {
        let place = match self.key.as_str() {
            "" => place.to_string(),
            key => place.key(key),
        };
        ExportError::Invalid { place, reason: self.reason }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.reason)
    }
}

impl From<TooDeep> for Problem {
    fn from(error: TooDeep) -> Self {
        Self::new(error.path, format!("it is nested deeper than {MAX_DEPTH}"))
    }
}
