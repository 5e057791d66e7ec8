//! Display items: the parts of a message that a page shows.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::message::{Content, ContentPart, Message, MessageStatus, PartKind, ToolCall, ToolResult};

/// One part of a message as a page shows it. A context stores it as a display message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DisplayItem {
    /// The place among the parts, calls and results of the message, counted from 0. Those that are not
    /// shown count too, so the place stays if an empty text is filled later.
    pub place: i32,
    /// How the item is shown.
    #[serde(flatten)]
    pub kind: DisplayKind,
    /// The text to show: of a tool call its display text or else its name, of a picture or a file its
    /// URL or else its name, which may be empty.
    pub content: String,
    /// Details: the arguments of a call, whether a result is an error, why the model stopped; the
    /// `media_type` of a picture or a file, and the `data` of a picture that has no URL, in base64.
    pub metadata: Map<String, Value>,
}

/// How an item is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "content_type", rename_all = "snake_case")]
pub enum DisplayKind {
    /// Plain text.
    Text,
    /// The model's reasoning before its answer.
    Thinking,
    /// A picture.
    Image,
    /// A file. Its data is only in the agent state.
    File,
    /// A call of a tool.
    ToolCall {
        /// [`ToolCall::tool_call_id`].
        tool_call_id: String,
    },
    /// The result of a tool, or a placeholder while a person has to decide.
    ToolResult {
        /// The [`ToolCall::tool_call_id`] of the call that it belongs to.
        tool_call_id: String,
    },
}

/// What the content of a display message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentType {
    /// Text of a message.
    Text,
    /// Reasoning of the model.
    Thinking,
    /// A picture. The content is its URL; or the content is the name of the picture, which may be
    /// empty, and the metadata has its `data` in base64. The metadata may have its `media_type`, for
    /// example `image/png`.
    Image,
    /// A file that is stored elsewhere. The content is its URL or its name, which may be empty. The
    /// metadata may have its `media_type`.
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

/// The display items of a message in order: text, thinking, pictures and files, then tool calls, then
/// tool results. Empty text is left out. If the model stopped early, the last item that is not a
/// picture or a file has a `stop_reason` in its metadata; if there are only pictures and files, the
/// last one has it.
#[must_use]
pub fn display_items(message: &Message) -> Vec<DisplayItem> {
    let mut items: Vec<_> = match &message.content {
        None => Vec::new(),
        Some(Content::Text(text)) => vec![text_item(DisplayKind::Text, text)],
        Some(Content::Parts(parts)) => parts.iter().map(part_item).collect(),
    };
    items.extend(message.tool_calls.iter().map(call_item).map(Some));
    items.extend(message.tool_results.iter().map(result_item).map(Some));
    let mut items: Vec<_> =
        items.into_iter().zip(0..).filter_map(|(item, place)| item.map(|item| DisplayItem { place, ..item })).collect();
    if let (Some(last), Some(reason)) = (last_text(&mut items), stop_reason(message)) {
        last.metadata.extend(metadata([("stop_reason", reason.into())]));
        if let Some(details) = metadata_value(message, "stop_details") {
            let details = metadata([("stop_details", details.clone())]);
            last.metadata.extend(details);
        }
    }
    items
}

/// The last item that is not a picture or a file, or else the last one.
fn last_text(items: &mut [DisplayItem]) -> Option<&mut DisplayItem> {
    let is_text = |item: &DisplayItem| !matches!(item.kind, DisplayKind::Image | DisplayKind::File);
    let last = items.iter().rposition(is_text);
    items.get_mut(last.or(items.len().checked_sub(1))?)
}

fn part_item(part: &ContentPart) -> Option<DisplayItem> {
    let content = part.content.as_deref()?;
    let (kind, is_url) = match part.kind {
        PartKind::Text => return text_item(DisplayKind::Text, content),
        PartKind::Thinking => return text_item(DisplayKind::Thinking, content),
        PartKind::Image => (DisplayKind::Image, false),
        PartKind::ImageUrl => (DisplayKind::Image, true),
        PartKind::File => (DisplayKind::File, false),
        PartKind::FileUrl => (DisplayKind::File, true),
        PartKind::Other(_) => return None,
    };
    let mut metadata = Map::new();
    if let Some(media_type) = part.media_type() {
        metadata.extend(self::metadata([("media_type", media_type.into())]));
    }
    if kind == DisplayKind::Image && !is_url {
        metadata.extend(self::metadata([("data", content.into())]));
    }
    let name = part.file_name().unwrap_or_default();
    Some(DisplayItem { place: 0, kind, content: if is_url { content } else { name }.to_owned(), metadata })
}

fn text_item(kind: DisplayKind, text: &str) -> Option<DisplayItem> {
    (!text.trim().is_empty()).then(|| DisplayItem { place: 0, kind, content: text.to_owned(), metadata: Map::new() })
}

fn call_item(call: &ToolCall) -> DisplayItem {
    let metadata = metadata([
        ("call_id", call.tool_call_id.clone().into()),
        ("name", call.name.clone().into()),
        ("arguments", call.arguments.clone().into()),
        ("display_text", call.display_text.clone().into()),
    ]);
    DisplayItem {
        place: 0,
        kind: DisplayKind::ToolCall { tool_call_id: call.tool_call_id.clone() },
        content: call.display_text.as_ref().unwrap_or(&call.name).clone(),
        metadata,
    }
}

fn result_item(result: &ToolResult) -> DisplayItem {
    let metadata = metadata([
        ("tool_call_id", result.tool_call_id.clone().into()),
        ("name", result.name.clone().into()),
        ("is_error", result.is_error.into()),
        ("is_interrupt", result.is_interrupt.into()),
    ]);
    let content = result.content.as_ref().map(Content::text);
    DisplayItem {
        place: 0,
        kind: DisplayKind::ToolResult { tool_call_id: result.tool_call_id.clone() },
        content: content.unwrap_or_default(),
        metadata,
    }
}

fn metadata<const N: usize>(entries: [(&str, Value); N]) -> Map<String, Value> {
    let entries = entries.into_iter();
    entries.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Why the model stopped early, if it did.
fn stop_reason(message: &Message) -> Option<&str> {
    match &message.status {
        MessageStatus::Complete => None,
        MessageStatus::Cancelled if metadata_value(message, "streaming_error").is_some() => Some("stream_error"),
        status => Some(status.as_str()),
    }
}

fn metadata_value<'a>(message: &'a Message, key: &str) -> Option<&'a Value> {
    let value = message.metadata.as_ref()?.get(key);
    value.filter(|value| !value.is_null())
}
