//! What a person sees of a conversation.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sqlx::FromRow;
use uuid::Uuid;

use super::values::{clean_json, clean_text};
use super::{Error, Result};
use crate::sagents::{DisplayItem, DisplayKind, MessageRole};

/// A row of `sagents_display_messages`: one item that a person sees.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct DisplayMessage {
    /// The user that owns it.
    pub user_id: i64,
    /// The conversation that it is a part of.
    pub conversation_id: Uuid,
    /// The place in the conversation: 0, 1, 2, … without a gap.
    pub sequence: i64,
    /// The message that this item belongs to. One message may show as several items.
    pub message_id: Uuid,
    /// The place of the item in its message.
    pub item: i32,
    /// Who speaks.
    pub role: Role,
    /// How it is shown.
    pub content_type: ContentType,
    /// The text that a person reads.
    pub content: String,
    /// Everything else: a tool call's arguments, token usage.
    #[sqlx(json)]
    pub metadata: Map<String, Value>,
    /// The tool call that this is, or that this is the result of.
    pub tool_call_id: Option<String>,
    /// How far a tool call has come. Only tool calls have one.
    pub status: Option<ToolStatus>,
    /// When it was appended.
    pub inserted_at: DateTime<Utc>,
}

/// An item to append. Appending the same `message_id` and `item` again stores nothing and returns
/// the first.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDisplayMessage {
    /// The message that this item belongs to.
    pub message_id: Uuid,
    /// The place of the item in its message: 0, 1, 2, …
    pub item: i32,
    /// Who speaks.
    pub role: Role,
    /// How it is shown.
    pub content_type: ContentType,
    /// The text that a person reads.
    pub content: String,
    /// Everything else.
    pub metadata: Map<String, Value>,
    /// The tool call that this is, or that this is the result of.
    pub tool_call_id: Option<String>,
    /// How far a tool call has come. A tool call needs one, nothing else has one.
    pub status: Option<ToolStatus>,
}

impl NewDisplayMessage {
    /// A message with a single item and a new id.
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

    /// A message that is plain text.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self::new(role, ContentType::Text, text)
    }

    /// A tool call that has not started. `display_text` is what a person reads, for example the
    /// tool's name.
    #[must_use]
    pub fn tool_call(call_id: impl Into<String>, display_text: impl Into<String>) -> Self {
        Self {
            tool_call_id: Some(call_id.into()),
            status: Some(ToolStatus::Pending),
            ..Self::new(Role::Assistant, ContentType::ToolCall, display_text)
        }
    }

    /// The result of a tool call. `content` is what a person reads.
    #[must_use]
    pub fn tool_result(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            tool_call_id: Some(call_id.into()),
            ..Self::new(Role::Tool, ContentType::ToolResult, content)
        }
    }

    /// With an id of the caller's own, so that appending it can be repeated.
    #[must_use]
    pub fn message_id(mut self, message_id: Uuid) -> Self {
        self.message_id = message_id;
        self
    }

    /// With everything else that there is to say of it.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.metadata = metadata;
        self
    }

    /// An item of a message as a person sees it.
    pub(super) fn shown(role: MessageRole, item: DisplayItem) -> Self {
        let role = match role {
            MessageRole::System => Role::System,
            MessageRole::User => Role::User,
            MessageRole::Assistant => Role::Assistant,
            MessageRole::Tool => Role::Tool,
        };
        let (content_type, tool_call_id, status) = match item.kind {
            DisplayKind::Text => (ContentType::Text, None, None),
            DisplayKind::Thinking => (ContentType::Thinking, None, None),
            DisplayKind::ToolCall { call_id } => {
                let status = Some(ToolStatus::Pending);
                (ContentType::ToolCall, Some(call_id), status)
            }
            DisplayKind::ToolResult { call_id } => (ContentType::ToolResult, Some(call_id), None),
        };
        Self {
            metadata: item.metadata,
            tool_call_id,
            status,
            ..Self::new(role, content_type, item.content)
        }
    }

    /// As it can be stored, unless it contradicts itself.
    pub(super) fn checked(mut self) -> Result<Self> {
        let is_call = self.content_type == ContentType::ToolCall;
        if self.item < 0 {
            return Err(Error::Invalid("the item of a message is negative".into()));
        }
        if is_call && (self.tool_call_id.is_none() || self.status.is_none()) {
            return Err(Error::Invalid(
                "a tool call needs its id and a status".into(),
            ));
        }
        if !is_call && self.status.is_some() {
            return Err(Error::Invalid("only a tool call has a status".into()));
        }
        self.content = clean_text(&self.content);
        self.tool_call_id = self.tool_call_id.as_deref().map(clean_text);
        self.metadata = clean_json(self.metadata)?;
        Ok(self)
    }
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Role {
    /// The person.
    User,
    /// The agent.
    Assistant,
    /// A tool that the agent called.
    Tool,
    /// The application.
    System,
}

impl Role {
    /// As it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::System => "system",
        }
    }
}

/// How an item is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum ContentType {
    /// Text, as it was said.
    Text,
    /// What the agent thought before it answered.
    Thinking,
    /// A picture.
    Image,
    /// A file that is kept elsewhere.
    FileReference,
    /// Data to be laid out, such as a table.
    StructuredData,
    /// Something that happened.
    Notification,
    /// Something that went wrong.
    Error,
    /// A tool that the agent calls.
    ToolCall,
    /// What a tool answered.
    ToolResult,
    /// The agent's list of things to do, as it was then.
    TodoSnapshot,
}

impl ContentType {
    /// As it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Thinking => "thinking",
            Self::Image => "image",
            Self::FileReference => "file_reference",
            Self::StructuredData => "structured_data",
            Self::Notification => "notification",
            Self::Error => "error",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::TodoSnapshot => "todo_snapshot",
        }
    }
}

/// How far a tool call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum ToolStatus {
    /// It has not started.
    Pending,
    /// It is running.
    Executing,
    /// It has succeeded.
    Completed,
    /// It has failed.
    Failed,
    /// It waits for a person's decision.
    Interrupted,
    /// It was given up.
    Cancelled,
}

impl ToolStatus {
    /// Every status.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Executing,
        Self::Completed,
        Self::Failed,
        Self::Interrupted,
        Self::Cancelled,
    ];

    /// As it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Executing => "executing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether a call in this status may change to `next`. Repeating a change is allowed; what has
    /// ended stays ended.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        match next {
            _ if self == next => true,
            Self::Pending => false,
            Self::Executing => matches!(self, Self::Pending | Self::Interrupted),
            Self::Interrupted => matches!(self, Self::Pending | Self::Executing),
            Self::Completed | Self::Failed | Self::Cancelled => {
                matches!(self, Self::Pending | Self::Executing | Self::Interrupted)
            }
        }
    }
}

/// What a person decided about a tool call that waited for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HitlDecision {
    /// The call may run.
    Approved,
    /// The call may not run.
    Rejected,
}

/// A page of a conversation's messages. Every page is in the order of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagePage {
    /// Where the page is.
    pub from: MessagePosition,
    /// At most [`MessagePage::MAX_LIMIT`].
    pub limit: u32,
}

impl MessagePage {
    /// How many there are on a page if nothing is said.
    pub const DEFAULT_LIMIT: u32 = 100;
    /// How many there are on a page at most.
    pub const MAX_LIMIT: u32 = 1000;

    /// The beginning of the conversation.
    #[must_use]
    pub fn first() -> Self {
        Self::at(MessagePosition::First)
    }

    /// The newest messages.
    #[must_use]
    pub fn last() -> Self {
        Self::at(MessagePosition::Last)
    }

    /// The messages that follow the one with this sequence.
    #[must_use]
    pub fn after(sequence: i64) -> Self {
        Self::at(MessagePosition::After(sequence))
    }

    /// The messages that precede the one with this sequence.
    #[must_use]
    pub fn before(sequence: i64) -> Self {
        Self::at(MessagePosition::Before(sequence))
    }

    /// With at most this many messages.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    fn at(from: MessagePosition) -> Self {
        Self {
            from,
            limit: Self::DEFAULT_LIMIT,
        }
    }
}

impl Default for MessagePage {
    fn default() -> Self {
        Self::first()
    }
}

/// Where a page of messages is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessagePosition {
    /// At the beginning of the conversation.
    First,
    /// At its end, with the newest messages.
    Last,
    /// Behind the message with this sequence.
    After(i64),
    /// In front of the message with this sequence.
    Before(i64),
}

impl DisplayMessage {
    /// Added by the host.
    pub fn first_line(&self) -> &str {
        self.content.lines().next().unwrap_or_default()
    }
}
