//! Messages and tools as a request has them.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::{Content, ContentPart, Message, PartKind, Role, ToolCall, ToolResult};

/// What the model reads in place of a missing result.
pub(super) const NO_RESULT: &str = "The call has no result.";

/// The messages of a request, as JSON. Every tool call is followed by its result, wherever that is in the conversation,
/// because servers refuse anything else. Thinking is left out.
pub fn request_messages<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<Value> {
    let mut converted = Vec::new();
    let mut results = HashMap::new();
    for message in messages {
        match message.role {
            Role::System => converted.push(json!({ "role": "system", "content": text_of(message) })),
            Role::User => converted.push(json!({ "role": "user", "content": user_content(message) })),
            Role::Assistant => {
                converted.extend(assistant(message));
                for call in &message.tool_calls {
                    let _ = results.insert(call.tool_call_id.as_str(), converted.len());
                    converted.push(result(&call.tool_call_id, NO_RESULT));
                }
            }
            Role::Tool => {
                for ToolResult { tool_call_id, content, .. } in &message.tool_results {
                    let place = results.get(tool_call_id.as_str());
                    if let Some(place) = place.and_then(|place| converted.get_mut(*place)) {
                        let content = content.as_ref().map(Content::text).unwrap_or_default();
                        *place = result(tool_call_id, &content);
                    }
                }
            }
        }
    }
    converted
}

/// A tool that the model may call, as JSON. `parameters` is a JSON schema.
#[must_use]
pub fn tool(name: &str, description: &str, parameters: Value) -> Value {
    let mut function = json!({ "name": name, "description": description });
    function["parameters"] = parameters;
    json!({ "type": "function", "function": function })
}

fn text_of(message: &Message) -> String {
    message.content.as_ref().map(Content::text).unwrap_or_default()
}

fn user_content(message: &Message) -> Value {
    let is_text = |part: &ContentPart| matches!(part.kind, PartKind::Text | PartKind::Thinking);
    match &message.content {
        Some(Content::Parts(parts)) if !parts.iter().all(is_text) => parts.iter().filter_map(part).collect(),
        _ => text_of(message).into(),
    }
}

fn part(part: &ContentPart) -> Option<Value> {
    let content = part.content.as_deref()?;
    let data_url = |default: &str| {
        let media_type = part.media_type();
        format!("data:{};base64,{content}", media_type.as_deref().unwrap_or(default))
    };
    let image = |url: &str| json!({ "type": "image_url", "image_url": { "url": url } });
    Some(match part.kind {
        // The protocol has no URLs of files.
        PartKind::Text | PartKind::FileUrl => json!({ "type": "text", "text": content }),
        PartKind::Image => image(&data_url("image/png")),
        PartKind::ImageUrl => image(content),
        PartKind::File => {
            let mut file = json!({ "file_data": data_url("application/pdf") });
            if let Some(name) = part.file_name() {
                file["filename"] = name.into();
            }
            json!({ "type": "file", "file": file })
        }
        PartKind::Thinking | PartKind::Other(_) => return None,
    })
}

/// `None` for a message that has neither text nor calls.
fn assistant(message: &Message) -> Option<Value> {
    let text = text_of(message);
    let calls: Vec<_> = message.tool_calls.iter().map(call).collect();
    if text.is_empty() && calls.is_empty() {
        return None;
    }
    let mut message = json!({ "role": "assistant" });
    if !text.is_empty() {
        message["content"] = text.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    Some(message)
}

fn call(call: &ToolCall) -> Value {
    let arguments = match &call.arguments {
        Some(arguments @ Value::Object(_)) => arguments.to_string(),
        // Not every server accepts invalid arguments, even if its own model wrote them.
        _ => "{}".to_owned(),
    };
    json!({
        "type": "function",
        "id": call.tool_call_id,
        "function": { "name": call.name, "arguments": arguments },
    })
}

fn result(tool_call_id: &str, content: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": tool_call_id, "content": content })
}
