//! Messages as `OpenAI` and servers like it want them, and their streamed answers as messages.
//!
//! [`request_messages`] makes the messages of a request, [`tool`] one of its tools. An [`Answer`] collects
//! what the server streams. Servers differ in what they add and leave out, so their chunks are read as
//! JSON: ask for them with `create_stream_byot`.

{% if tests -%}
#[cfg(test)]
mod tests;

{% endif -%}
use std::collections::HashMap;

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::types::chat::{
    ChatCompletionMessageToolCall, ChatCompletionMessageToolCalls,
    ChatCompletionRequestAssistantMessage, ChatCompletionRequestMessage,
    ChatCompletionRequestMessageContentPartFile, ChatCompletionRequestMessageContentPartImage,
    ChatCompletionRequestSystemMessage, ChatCompletionRequestToolMessage,
    ChatCompletionRequestUserMessage, ChatCompletionRequestUserMessageContent,
    ChatCompletionRequestUserMessageContentPart, ChatCompletionTool, ChatCompletionTools,
    FileObject, FunctionCall, FunctionObject, ImageUrl,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::sagents::{
    Content, ContentPart, Message, MessageStatus, PartKind, Role, ToolCall, ToolResult,
};

/// A client of a server. The address ends with the version, for example `https://api.openai.com/v1`.
#[must_use]
pub fn client(base_url: &str, key: &str) -> Client<OpenAIConfig> {
    // For `https`. Only the first one counts, which may be the application's.
    drop(rustls::crypto::ring::default_provider().install_default());
    let config = OpenAIConfig::new().with_api_base(base_url.trim_end_matches('/'));
    Client::with_config(config.with_api_key(key))
}

/// What the model reads in place of a result that is not there.
const NO_RESULT: &str = "The call has no result.";

/// The messages of a request. Every tool call is followed by its result, wherever that is in the
/// conversation, because servers refuse anything else. Thinking is left out.
pub fn request_messages<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
) -> Vec<ChatCompletionRequestMessage> {
    let mut converted = Vec::new();
    let mut results = HashMap::new();
    for message in messages {
        match message.role {
            Role::System => {
                let message = ChatCompletionRequestSystemMessage::from(text_of(message));
                converted.push(message.into());
            }
            Role::User => converted.push(user(message).into()),
            Role::Assistant => {
                converted.extend(assistant(message));
                for call in &message.tool_calls {
                    let _ = results.insert(call.call_id.as_str(), converted.len());
                    converted.push(result(&call.call_id, NO_RESULT.to_owned()));
                }
            }
            Role::Tool => {
                for ToolResult {
                    tool_call_id,
                    content,
                    ..
                } in &message.tool_results
                {
                    let place = results.get(tool_call_id.as_str());
                    if let Some(place) = place.and_then(|place| converted.get_mut(*place)) {
                        let content = content.as_ref().map(Content::text).unwrap_or_default();
                        *place = result(tool_call_id, content);
                    }
                }
            }
        }
    }
    converted
}

/// A tool that the model may call. `parameters` is a JSON schema.
#[must_use]
pub fn tool(name: &str, description: &str, parameters: Value) -> ChatCompletionTools {
    ChatCompletionTools::Function(ChatCompletionTool {
        function: FunctionObject {
            name: name.to_owned(),
            description: Some(description.to_owned()),
            parameters: Some(parameters),
            strict: None,
        },
    })
}

fn text_of(message: &Message) -> String {
    message
        .content
        .as_ref()
        .map(Content::text)
        .unwrap_or_default()
}

fn user(message: &Message) -> ChatCompletionRequestUserMessage {
    let is_text = |part: &ContentPart| matches!(part.kind, PartKind::Text | PartKind::Thinking);
    let content = match &message.content {
        Some(Content::Parts(parts)) if !parts.iter().all(is_text) => {
            ChatCompletionRequestUserMessageContent::Array(parts.iter().filter_map(part).collect())
        }
        _ => text_of(message).into(),
    };
    content.into()
}

fn part(part: &ContentPart) -> Option<ChatCompletionRequestUserMessageContentPart> {
    use ChatCompletionRequestUserMessageContentPart as Part;

    let content = part.content.clone()?;
    let data_url = |kind: &str| {
        let media_type = part.media_type();
        format!(
            "data:{};base64,{content}",
            media_type.as_deref().unwrap_or(kind)
        )
    };
    let image = |url| {
        Part::ImageUrl(ChatCompletionRequestMessageContentPartImage {
            image_url: ImageUrl { url, detail: None },
            ..Default::default()
        })
    };
    Some(match part.kind {
        // The protocol has no files at an address.
        PartKind::Text | PartKind::FileUrl => Part::Text(content.into()),
        PartKind::Image => image(data_url("image/png")),
        PartKind::ImageUrl => image(content),
        PartKind::File => Part::File(ChatCompletionRequestMessageContentPartFile {
            file: FileObject {
                file_data: Some(data_url("application/pdf")),
                file_id: None,
                filename: part.file_name().map(str::to_owned),
            },
            ..Default::default()
        }),
        PartKind::Thinking | PartKind::Other(_) => return None,
    })
}

/// Nothing for a message that has neither text nor calls.
fn assistant(message: &Message) -> Option<ChatCompletionRequestMessage> {
    let text = text_of(message);
    if text.is_empty() && message.tool_calls.is_empty() {
        return None;
    }
    let calls: Vec<_> = message.tool_calls.iter().map(call).collect();
    let message = ChatCompletionRequestAssistantMessage {
        content: (!text.is_empty()).then(|| text.into()),
        tool_calls: (!calls.is_empty()).then_some(calls),
        ..Default::default()
    };
    Some(message.into())
}

fn call(call: &ToolCall) -> ChatCompletionMessageToolCalls {
    let arguments = match &call.arguments {
        Some(arguments @ Value::Object(_)) => arguments.to_string(),
        // Not every server takes back what its model wrote wrong.
        _ => "{}".to_owned(),
    };
    ChatCompletionMessageToolCalls::Function(ChatCompletionMessageToolCall {
        id: call.call_id.clone(),
        function: FunctionCall {
            name: call.name.clone(),
            arguments,
        },
    })
}

fn result(call_id: &str, content: String) -> ChatCompletionRequestMessage {
    ChatCompletionRequestMessage::Tool(ChatCompletionRequestToolMessage {
        content: content.into(),
        tool_call_id: call_id.to_owned(),
    })
}

/// An answer of a model while it is streamed.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    thinking: String,
    text: String,
    calls: Vec<CallParts>,
    metadata: Map<String, Value>,
    finish_reason: Option<String>,
}

#[derive(Debug, Clone)]
struct CallParts {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

impl Answer {
    /// An answer that goes on behind this text.
    #[must_use]
    pub fn behind(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// Adds a chunk of the stream.
    ///
    /// # Errors
    ///
    /// If the chunk is an error of the server; it is the message of that.
    pub fn add(&mut self, chunk: &Value) -> Result<(), String> {
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let message = error.get("message").unwrap_or(error);
            return Err(message
                .as_str()
                .map_or_else(|| message.to_string(), str::to_owned));
        }
        for key in ["model", "usage"] {
            // The last usage counts: some servers send one in every chunk.
            if let Some(value) = chunk.get(key).filter(|value| !value.is_null()) {
                drop(self.metadata.insert(key.to_owned(), value.clone()));
            }
        }
        let choice = &chunk["choices"][0];
        let delta = &choice["delta"];
        let text = |key: &str| delta[key].as_str().unwrap_or_default();
        self.text += text("content");
        self.text += text("refusal");
        // The names that servers have given to it.
        self.thinking += match text("reasoning_content") {
            "" => text("reasoning"),
            thinking => thinking,
        };
        for part in delta["tool_calls"].as_array().into_iter().flatten() {
            self.add_call(part);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish_reason = Some(reason.to_owned());
        }
        Ok(())
    }

    /// The first part of a call has its id and its name, and all have a piece of the arguments.
    fn add_call(&mut self, part: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let index = part["index"].as_u64().unwrap_or_default();
        let (id, function) = (text(&part["id"]), &part["function"]);
        let is_same = |call: &&mut CallParts| {
            call.index == index && (id.is_empty() || call.id.is_empty() || call.id == id)
        };
        let Some(call) = self.calls.iter_mut().rev().find(is_same) else {
            self.calls.push(CallParts {
                index,
                id,
                name: text(&function["name"]),
                arguments: text(&function["arguments"]),
            });
            return;
        };
        if call.id.is_empty() {
            call.id = id;
        }
        if call.name.is_empty() {
            call.name = text(&function["name"]);
        }
        call.arguments += function["arguments"].as_str().unwrap_or_default();
    }

    /// What there is so far, without tool calls.
    #[must_use]
    pub fn so_far(&self) -> Message {
        let thinking = Some(&self.thinking).filter(|text| !text.is_empty());
        let text = Some(&self.text).filter(|text| !text.is_empty());
        let parts = thinking
            .map(ContentPart::thinking)
            .into_iter()
            .chain(text.map(ContentPart::text));
        let parts: Vec<_> = parts.collect();
        let content = (!parts.is_empty()).then_some(Content::Parts(parts));
        Message::new(Role::Assistant, content)
    }

    /// The whole message, with what it cost in its metadata. `None` if the stream ended before the
    /// answer did.
    ///
    /// Arguments that are no JSON stay text; the tool should return an error for the model then.
    #[must_use]
    pub fn finish(self) -> Option<Message> {
        let reason = self.finish_reason.as_deref()?;
        let mut message = self.so_far();
        if reason == "length" {
            message.status = MessageStatus::Length;
        }
        // A call that was cut off is not one.
        let calls = self
            .calls
            .into_iter()
            .filter(|_| message.status == MessageStatus::Complete);
        message.tool_calls = calls.map(CallParts::finish).collect();
        let mut metadata = self.metadata;
        drop(metadata.insert("finish_reason".to_owned(), reason.into()));
        message.metadata = Some(metadata);
        Some(message)
    }
}

impl CallParts {
    fn finish(self) -> ToolCall {
        let mut id = self.id;
        if id.is_empty() {
            id = format!("call_{}", Uuid::now_v7().simple());
        }
        let arguments = match self.arguments.trim() {
            "" => Value::Object(Map::new()),
            text => serde_json::from_str(text).unwrap_or(Value::String(self.arguments)),
        };
        ToolCall::new(id, self.name, arguments)
    }
}
