//! The model of a display message, and what its calls take.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::Timestamp;
use crate::page::{Bound, Cursor, Position, deserialize_text};
use crate::values::{clean_call_id, clean_json, clean_string};
use crate::{ContentType, Decision, Delivery, DisplayItem, DisplayKind, TokenUsage, ToolStatus, set_usage};
use crate::{Error, Result, Role};

/// A row of `sagents_display_messages`: one item that a person sees of a conversation.
/// As JSON it does not have its owner, so it can be sent to a browser.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DisplayMessage {
    /// The conversation that it belongs to.
    pub conversation_id: Uuid,
    /// The position in the conversation: 0, 1, 2, … Messages that are deleted leave gaps: no number is
    /// used twice.
    pub sequence: i64,
    /// The message that this is an item of.
    pub message_id: Uuid,
    /// The position in the message, which may have parts that are not shown.
    pub item: i32,
    /// Who the message is from.
    pub role: Role,
    /// What `content` is.
    pub content_type: ContentType,
    /// The text that a person sees, or as the [type](ContentType) says.
    pub content: String,
    /// Further data: the arguments of a tool call, token usage.
    pub metadata: Map<String, Value>,
    /// Whether this is the result of a tool that failed. It is stored as `is_error` in the metadata.
    pub is_error: bool,
    /// The id of the tool call, for tool calls and tool results. An id of more than 1000 bytes is
    /// stored as its beginning and a hash; calls accept both.
    pub tool_call_id: Option<String>,
    /// The status of a tool call; `None` for everything else.
    pub status: Option<ToolStatus>,
    /// When it was appended.
    pub inserted_at: Timestamp,
    /// The number of the conversation's change that stored it as it is: 1, 2, 3, … 0 if it was
    /// imported.
    pub changed: i64,
    /// Whether it is whole, and in the agent state.
    pub delivery: Delivery,
}

impl DisplayMessage {
    /// A person's decision about this tool call.
    #[must_use]
    pub fn decision(&self) -> Option<Decision> {
        let decision = self.metadata.get(DECISION).and_then(|value| Decision::deserialize(value).ok());
        decision.or_else(|| match self.metadata.get(HITL_DECISION)?.as_str()? {
            APPROVED => Some(Decision::Approve),
            REJECTED => Some(Decision::Reject { reason: None }),
            _ => None,
        })
    }

    /// Who decided about this tool call, if the [decision](Decision::by) says so.
    #[must_use]
    pub fn decided_by(&self) -> Option<&str> {
        self.metadata.get(DECISION)?.get(DECIDED_BY)?.as_str()
    }

    /// When a person decided about this tool call.
    #[must_use]
    pub fn decided_at(&self) -> Option<Timestamp> {
        self.metadata.get(DECISION)?.get(DECIDED_AT)?.as_str()?.parse().ok()
    }

    /// The claim of the caller who started this tool call.
    #[must_use]
    pub fn claim(&self) -> Option<Uuid> {
        self.id_in_metadata(CLAIM)
    }

    /// The claim of the caller whose decision about this tool call is stored.
    pub(crate) fn decision_claim(&self) -> Option<Uuid> {
        self.id_in_metadata(DECISION_CLAIM)
    }

    fn id_in_metadata(&self, key: &str) -> Option<Uuid> {
        self.metadata.get(key)?.as_str()?.parse().ok()
    }

    /// The position in the results of a search.
    pub(crate) fn found(&self) -> Cursor {
        Cursor(Position::Found(self.inserted_at, self.conversation_id, self.sequence))
    }
}

/// A display message to append.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDisplayMessage {
    /// The message that this is an item of.
    pub message_id: Uuid,
    /// The position in the message: 0, 1, 2, …
    pub item: i32,
    /// Who the message is from.
    pub role: Role,
    /// What `content` is.
    pub content_type: ContentType,
    /// The text that a person sees.
    pub content: String,
    /// Further data.
    pub metadata: Map<String, Value>,
    /// The id of the tool call, for tool calls and tool results.
    pub tool_call_id: Option<String>,
    /// Required for a tool call, `None` for everything else.
    pub status: Option<ToolStatus>,
}

impl NewDisplayMessage {
    /// The only item of a message with a new id.
    #[must_use]
    pub fn new(role: Role, content_type: ContentType, content: impl Into<String>) -> Self {
        Self {
            message_id: Uuid::now_v7(),
            item: 0,
            role,
            content_type,
            content: content.into(),
            metadata: Map::new(),
            tool_call_id: None,
            status: None,
        }
    }

    /// A message of plain text.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self::new(role, ContentType::Text, text)
    }

    /// A pending tool call. `display_text` is what a person sees, for example the tool's name.
    #[must_use]
    pub fn tool_call(tool_call_id: impl Into<String>, display_text: impl Into<String>) -> Self {
        Self {
            tool_call_id: Some(tool_call_id.into()),
            status: Some(ToolStatus::Pending),
            ..Self::new(Role::Assistant, ContentType::ToolCall, display_text)
        }
    }

    /// The result of a tool call.
    #[must_use]
    pub fn tool_result(tool_call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self { tool_call_id: Some(tool_call_id.into()), ..Self::new(Role::Tool, ContentType::ToolResult, content) }
    }

    /// Marks the result of a tool that failed, in the metadata.
    #[must_use]
    pub fn error(mut self) -> Self {
        drop(self.metadata.insert(IS_ERROR.into(), true.into()));
        self
    }

    /// Sets the message id, so that the append can be repeated.
    #[must_use]
    pub fn message_id(mut self, message_id: Uuid) -> Self {
        self.message_id = message_id;
        self
    }

    /// Sets the metadata, all of it.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.metadata = metadata;
        self
    }

    /// States what the message cost, in the metadata. It is counted once for all items of a message.
    #[must_use]
    pub fn usage(mut self, model: impl Into<String>, tokens: TokenUsage) -> Self {
        set_usage(&mut self.metadata, model.into(), tokens);
        self
    }

    /// An item of a message of the agent's.
    pub(crate) fn of_item(message_id: Uuid, role: Role, item: DisplayItem) -> Self {
        let (content_type, tool_call_id, status) = match item.kind {
            DisplayKind::Text => (ContentType::Text, None, None),
            DisplayKind::Thinking => (ContentType::Thinking, None, None),
            DisplayKind::Image => (ContentType::Image, None, None),
            DisplayKind::File => (ContentType::FileReference, None, None),
            DisplayKind::ToolCall { tool_call_id } => {
                (ContentType::ToolCall, Some(tool_call_id), Some(ToolStatus::Pending))
            }
            DisplayKind::ToolResult { tool_call_id } => (ContentType::ToolResult, Some(tool_call_id), None),
        };
        Self {
            message_id,
            item: item.place,
            role,
            content_type,
            content: item.content,
            metadata: item.metadata,
            tool_call_id,
            status,
        }
    }

    pub(crate) fn checked(mut self) -> Result<Self> {
        let is_call = self.content_type == ContentType::ToolCall;
        if self.item < 0 {
            return Err(Error::Invalid("the item of a message is negative".into()));
        }
        if is_call && (self.tool_call_id.is_none() || self.status.is_none()) {
            return Err(Error::Invalid("a tool call needs its id and a status".into()));
        }
        if !is_call && self.status.is_some() {
            return Err(Error::Invalid("only a tool call has a status".into()));
        }
        self.content = clean_string(self.content);
        self.tool_call_id = self.tool_call_id.as_deref().map(clean_call_id);
        self.metadata = clean_json(self.metadata)?;
        Ok(self)
    }
}

/// Keys in the metadata of a tool call: the decision about it, who decided, and who started it.
pub(crate) const HITL_DECISION: &str = "hitl_decision";
pub(crate) const DECISION: &str = "decision";
/// Keys of a decision, beside those of [`Decision`].
pub(crate) const DECIDED_BY: &str = "by";
pub(crate) const DECIDED_AT: &str = "at";
pub(crate) const DECISION_CLAIM: &str = "decision_claim";
pub(crate) const CLAIM: &str = "claim";
/// Values of [`HITL_DECISION`], which the Elixir library reads and writes.
pub(crate) const APPROVED: &str = "approved";
pub(crate) const REJECTED: &str = "rejected";
/// It was running when its conversation was copied.
pub(crate) const STARTED_ELSEWHERE: &str = "started_elsewhere";

/// The key in the metadata of a tool result that waits for a decision.
pub(crate) const IS_INTERRUPT: &str = "is_interrupt";

/// The key of [`DisplayMessage::is_error`] in the metadata.
pub(crate) const IS_ERROR: &str = "is_error";

/// [`DisplayMessage::is_error`] of a message with this metadata.
pub(crate) fn is_error(metadata: &Map<String, Value>) -> bool {
    metadata.get(IS_ERROR) == Some(&Value::Bool(true))
}

/// Which page of the display messages of a conversation to read. It deserializes from a query string,
/// for example `from=last&limit=20`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessagePage {
    /// Where the page starts or ends.
    pub from: MessagePosition,
    /// From 1 to [`MessagePage::MAX_LIMIT`].
    pub limit: u32,
}

impl MessagePage {
    /// The default limit.
    pub const DEFAULT_LIMIT: u32 = 100;
    /// The largest limit.
    pub const MAX_LIMIT: u32 = 1000;
    /// About how many bytes the messages of a page have as JSON, at most. A single message may have more.
    pub const MAX_BYTES: usize = 2 * 1024 * 1024;

    /// The oldest messages; the next page has newer ones.
    #[must_use]
    pub fn first() -> Self {
        Self::at(MessagePosition::First)
    }

    /// The newest messages; the next page has older ones.
    #[must_use]
    pub fn last() -> Self {
        Self::at(MessagePosition::Last)
    }

    /// The messages after the one with this sequence; the next page has newer ones.
    #[must_use]
    pub fn after(sequence: i64) -> Self {
        Self::at(MessagePosition::After(sequence))
    }

    /// The messages before the one with this sequence; the next page has older ones.
    #[must_use]
    pub fn before(sequence: i64) -> Self {
        Self::at(MessagePosition::Before(sequence))
    }

    /// The page that this cursor is the [`next`](crate::Page::next) of.
    #[must_use]
    pub fn next(cursor: Cursor) -> Self {
        Self::at(MessagePosition::Next(cursor))
    }

    /// Sets the size of the page.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    fn at(from: MessagePosition) -> Self {
        Self { from, limit: Self::DEFAULT_LIMIT }
    }

    pub(crate) fn bound(&self) -> Result<Bound> {
        match self.from {
            MessagePosition::First => Ok(Bound::After(-1)),
            MessagePosition::Last => Ok(Bound::Before(i64::MAX)),
            MessagePosition::After(sequence) => Ok(Bound::After(sequence)),
            MessagePosition::Before(sequence) => Ok(Bound::Before(sequence)),
            MessagePosition::Next(Cursor(Position::Message(bound))) => Ok(bound),
            MessagePosition::Next(_) => Err(Cursor::of_another_list()),
        }
    }
}

impl Default for MessagePage {
    fn default() -> Self {
        Self::first()
    }
}

/// The position of a [`MessagePage`]. It serializes as its text: `first`, `last`, `after:17`,
/// `before:17`, or a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessagePosition {
    /// The oldest messages.
    First,
    /// The newest messages.
    Last,
    /// After the message with this sequence.
    After(i64),
    /// Before the message with this sequence.
    Before(i64),
    /// Where the page before ended.
    Next(Cursor),
}

impl fmt::Display for MessagePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("first"),
            Self::Last => f.write_str("last"),
            Self::After(sequence) => write!(f, "after:{sequence}"),
            Self::Before(sequence) => write!(f, "before:{sequence}"),
            Self::Next(cursor) => cursor.fmt(f),
        }
    }
}

impl FromStr for MessagePosition {
    type Err = Error;

    /// [`Error::Invalid`] if it is not the text of a position.
    fn from_str(text: &str) -> Result<Self> {
        let sequence = |digits: &str| {
            let invalid = |_| Error::Invalid("not the sequence of a message".into());
            digits.parse().map_err(invalid)
        };
        match text.split_once(':') {
            Some(("after", digits)) => sequence(digits).map(Self::After),
            Some(("before", digits)) => sequence(digits).map(Self::Before),
            None if text == "first" => Ok(Self::First),
            None if text == "last" => Ok(Self::Last),
            _ => text.parse().map(Self::Next),
        }
    }
}

impl Serialize for MessagePosition {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MessagePosition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserialize_text(deserializer)
    }
}

/// Which page of the messages that a search found to read, newest first. It deserializes from a
/// query string, for example `limit=20&after=…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SearchPage {
    /// From 1 to [`SearchPage::MAX_LIMIT`].
    pub limit: u32,
    /// [`Page::next`](crate::Page::next) of the page before, of the same search.
    pub after: Option<Cursor>,
}

impl SearchPage {
    /// The default limit.
    pub const DEFAULT_LIMIT: u32 = 50;
    /// The largest limit.
    pub const MAX_LIMIT: u32 = 1000;
    /// As [`MessagePage::MAX_BYTES`].
    pub const MAX_BYTES: usize = MessagePage::MAX_BYTES;

    /// The newest messages that match.
    #[must_use]
    pub fn first() -> Self {
        Self { limit: Self::DEFAULT_LIMIT, after: None }
    }

    /// The page that this cursor is the [`next`](crate::Page::next) of.
    #[must_use]
    pub fn after(cursor: Cursor) -> Self {
        Self { after: Some(cursor), ..Self::first() }
    }

    /// Sets the size of the page.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// The key that the page starts behind: time, conversation and sequence.
    pub(crate) fn start(&self) -> Result<(Timestamp, Uuid, i64)> {
        match self.after {
            Some(Cursor(Position::Found(time, id, sequence))) => Ok((time, id, sequence)),
            Some(_) => Err(Cursor::of_another_list()),
            None => Ok((Timestamp::MAX, Uuid::max(), i64::MAX)),
        }
    }
}

impl Default for SearchPage {
    fn default() -> Self {
        Self::first()
    }
}
