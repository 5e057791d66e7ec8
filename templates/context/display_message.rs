//! The model of a display message, and what its calls take.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::values::{clean_call_id, clean_json, clean_text};
use super::{Error, Result, Role};
use crate::sagents::timestamp::{self, Timestamp};
use crate::sagents::{DisplayItem, DisplayKind};

/// A row of `{{ prefix }}display_messages`: one item that a person sees of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DisplayMessage {
{%- if let Some(owner) = owner %}
    /// The {{ owner.noun }} that owns it.
    pub {{ owner.field }}: {{ owner.rust_type }},
{%- endif %}
    /// The conversation that it belongs to.
    pub conversation_id: Uuid,
    /// The position in the conversation: 0, 1, 2, … without a gap.
    pub sequence: i64,
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
    /// Further data: the arguments of a tool call, token usage.
    pub metadata: Map<String, Value>,
    /// The id of the tool call, for tool calls and tool results. An id of more than 1000 bytes is
    /// stored as its beginning and a hash; calls accept both.
    pub tool_call_id: Option<String>,
    /// The status of a tool call; `None` for everything else.
    pub status: Option<ToolStatus>,
    /// When it was appended.
    #[serde(with = "timestamp")]
    pub inserted_at: Timestamp,
}

impl DisplayMessage {
    /// For [`SearchPage::after`], if this is the last message of a page.
    #[must_use]
    pub fn cursor(&self) -> SearchCursor {
        SearchCursor {
            inserted_at: self.inserted_at,
            conversation_id: self.conversation_id,
            sequence: self.sequence,
        }
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
    pub fn tool_call(call_id: impl Into<String>, display_text: impl Into<String>) -> Self {
        Self {
            tool_call_id: Some(call_id.into()),
            status: Some(ToolStatus::Pending),
            ..Self::new(Role::Assistant, ContentType::ToolCall, display_text)
        }
    }

    /// The result of a tool call.
    #[must_use]
    pub fn tool_result(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            tool_call_id: Some(call_id.into()),
            ..Self::new(Role::Tool, ContentType::ToolResult, content)
        }
    }

    /// Sets the message id, so that the append can be repeated.
    #[must_use]
    pub fn message_id(mut self, message_id: Uuid) -> Self {
        self.message_id = message_id;
        self
    }

    /// Sets the metadata.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.metadata = metadata;
        self
    }

    /// An item of a message of the agent's.
    pub(super) fn of_item(message_id: Uuid, place: i32, role: Role, item: DisplayItem) -> Self {
        let (content_type, tool_call_id, status) = match item.kind {
            DisplayKind::Text => (ContentType::Text, None, None),
            DisplayKind::Thinking => (ContentType::Thinking, None, None),
            DisplayKind::ToolCall { call_id } => {
                (ContentType::ToolCall, Some(call_id), Some(ToolStatus::Pending))
            }
            DisplayKind::ToolResult { call_id } => (ContentType::ToolResult, Some(call_id), None),
        };
        Self {
            message_id,
            item: place,
            role,
            content_type,
            content: item.content,
            metadata: item.metadata,
            tool_call_id,
            status,
        }
    }

    pub(super) fn checked(mut self) -> Result<Self> {
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
        self.content = clean_text(&self.content);
        self.tool_call_id = self.tool_call_id.as_deref().map(clean_call_id);
        self.metadata = clean_json(self.metadata)?;
        Ok(self)
    }
}

/// What the content of a display message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentType {
    /// Text of a message.
    Text,
    /// Reasoning of the model.
    Thinking,
    /// A picture.
    Image,
    /// A file that is stored elsewhere.
    FileReference,
    /// Data for a table or a chart.
    StructuredData,
    /// An event that a person should know of.
    Notification,
    /// An error that a person should know of.
    Error,
    /// A tool call, with its status.
    ToolCall,
    /// The result of a tool call.
    ToolResult,
    /// A copy of the todo list.
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

/// The status of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// Not started.
    Pending,
    /// Running.
    Executing,
    /// Succeeded.
    Completed,
    /// Failed.
    Failed,
    /// Waits for a person's decision.
    Interrupted,
    /// Will not run.
    Cancelled,
}

impl ToolStatus {
    /// All statuses.
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

    /// Whether a call with this status may change to `next`. Repeating a change is allowed; a call
    /// that has ended does not change.
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

/// A person's decision about a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HitlDecision {
    /// The call may run.
    Approved,
    /// The call may not run.
    Rejected,
}

impl HitlDecision {
    /// As it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
        }
    }
}

/// A page of the display messages of a conversation, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessagePage {
    /// Where the page starts or ends.
    pub from: MessagePosition,
    /// At most [`MessagePage::MAX_LIMIT`].
    pub limit: u32,
}

impl MessagePage {
    /// The default limit.
    pub const DEFAULT_LIMIT: u32 = 100;
    /// The largest page; a larger limit is reduced to it.
    pub const MAX_LIMIT: u32 = 1000;

    /// The oldest messages.
    #[must_use]
    pub fn first() -> Self {
        Self::at(MessagePosition::First)
    }

    /// The newest messages.
    #[must_use]
    pub fn last() -> Self {
        Self::at(MessagePosition::Last)
    }

    /// The messages after the one with this sequence.
    #[must_use]
    pub fn after(sequence: i64) -> Self {
        Self::at(MessagePosition::After(sequence))
    }

    /// The messages before the one with this sequence.
    #[must_use]
    pub fn before(sequence: i64) -> Self {
        Self::at(MessagePosition::Before(sequence))
    }

    /// Sets the size of the page.
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

/// The position of a [`MessagePage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessagePosition {
    /// The oldest messages.
    First,
    /// The newest messages.
    Last,
    /// After the message with this sequence.
    After(i64),
    /// Before the message with this sequence.
    Before(i64),
}

/// A page of messages that a search found, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SearchPage {
    /// At most [`SearchPage::MAX_LIMIT`].
    pub limit: u32,
    /// The [cursor](DisplayMessage::cursor) of the last message of the previous page.
    pub after: Option<SearchCursor>,
}

impl SearchPage {
    /// The default limit.
    pub const DEFAULT_LIMIT: u32 = 50;
    /// The largest page; a larger limit is reduced to it.
    pub const MAX_LIMIT: u32 = 1000;

    /// The newest messages that match.
    #[must_use]
    pub fn first() -> Self {
        Self {
            limit: Self::DEFAULT_LIMIT,
            after: None,
        }
    }

    /// Continues behind the message with this [cursor](DisplayMessage::cursor).
    #[must_use]
    pub fn after(cursor: SearchCursor) -> Self {
        Self {
            after: Some(cursor),
            ..Self::first()
        }
    }

    /// Sets the size of the page.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }
}

impl Default for SearchPage {
    fn default() -> Self {
        Self::first()
    }
}

/// A position in the results of a search. It serializes, so that a web page can send it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchCursor {
    /// [`DisplayMessage::inserted_at`].
    #[serde(with = "timestamp")]
    pub inserted_at: Timestamp,
    /// [`DisplayMessage::conversation_id`].
    pub conversation_id: Uuid,
    /// [`DisplayMessage::sequence`].
    pub sequence: i64,
}

impl SearchCursor {
    /// Behind which the newest message is.
    pub(super) const START: Self = Self {
        inserted_at: timestamp::MAX,
        conversation_id: Uuid::max(),
        sequence: i64::MAX,
    };
}
