//! What a message shows to a person.

use serde_json::{Map, Value};

use super::message::{Content, Message, MessageStatus, PartKind, ToolCall, ToolResult};

/// One thing that a person sees of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct DisplayItem {
    /// What kind of thing it is.
    pub kind: DisplayKind,
    /// The text that a person reads.
    pub content: String,
    /// Everything else: a call's arguments, why the model stopped.
    pub metadata: Map<String, Value>,
}

/// The kinds of things that a person sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisplayKind {
    /// What was said.
    Text,
    /// What the model thought before it spoke.
    Thinking,
    /// A tool that the model calls.
    ToolCall {
        /// The call.
        call_id: String,
    },
    /// What a tool answered.
    ToolResult {
        /// The call that it answers.
        call_id: String,
    },
}

/// The items of a message in their order: texts and thoughts, then tool calls, then tool results.
/// Pictures and files are for the model. If the model was stopped, the last item says why.
#[must_use]
pub fn display_items(message: &Message) -> Vec<DisplayItem> {
    let mut items: Vec<_> = match &message.content {
        None => Vec::new(),
        Some(Content::Text(text)) => vec![item(DisplayKind::Text, text)],
        Some(Content::Parts(parts)) => parts
            .iter()
            .filter_map(|part| {
                let kind = match part.kind {
                    PartKind::Text => DisplayKind::Text,
                    PartKind::Thinking => DisplayKind::Thinking,
                    _ => return None,
                };
                Some(item(kind, part.content.as_deref().unwrap_or_default()))
            })
            .collect(),
    };
    items.extend(message.tool_calls.iter().map(call_item));
    items.extend(message.tool_results.iter().map(result_item));
    if let (Some(last), Some(reason)) = (items.last_mut(), stop_reason(message)) {
        last.metadata.insert("stop_reason".into(), reason.into());
        if let Some(details) = metadata(message, "stop_details") {
            last.metadata.insert("stop_details".into(), details.clone());
        }
    }
    items
}

fn item(kind: DisplayKind, text: &str) -> DisplayItem {
    DisplayItem {
        kind,
        content: text.to_owned(),
        metadata: Map::new(),
    }
}

fn call_item(call: &ToolCall) -> DisplayItem {
    let kind = DisplayKind::ToolCall {
        call_id: call.call_id.clone(),
    };
    let mut item = item(kind, call.display_text.as_ref().unwrap_or(&call.name));
    item.metadata
        .insert("call_id".into(), call.call_id.clone().into());
    item.metadata
        .insert("name".into(), call.name.clone().into());
    item.metadata.insert(
        "arguments".into(),
        call.arguments.clone().unwrap_or_default(),
    );
    item.metadata
        .insert("display_text".into(), call.display_text.clone().into());
    item
}

fn result_item(result: &ToolResult) -> DisplayItem {
    let kind = DisplayKind::ToolResult {
        call_id: result.tool_call_id.clone(),
    };
    let content = result
        .content
        .as_ref()
        .map(Content::text)
        .unwrap_or_default();
    let mut item = item(kind, &content);
    item.metadata
        .insert("tool_call_id".into(), result.tool_call_id.clone().into());
    item.metadata
        .insert("name".into(), result.name.clone().into());
    item.metadata
        .insert("is_error".into(), result.is_error.into());
    item.metadata
        .insert("is_interrupt".into(), result.is_interrupt.into());
    item
}

/// Why the model stopped before it was done.
fn stop_reason(message: &Message) -> Option<&str> {
    match &message.status {
        MessageStatus::Complete => None,
        MessageStatus::Cancelled if metadata(message, "streaming_error").is_some() => {
            Some("stream_error")
        }
        status => Some(status.as_str()),
    }
}

fn metadata<'a>(message: &'a Message, key: &str) -> Option<&'a Value> {
    message
        .metadata
        .as_ref()?
        .get(key)
        .filter(|value| !value.is_null())
}
