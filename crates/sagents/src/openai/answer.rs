//! Streamed answers as messages.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{Content, ContentPart, Message, MessageStatus, Role, ToolCall};

/// A model's answer while it's streamed.
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
    /// An answer that continues this text.
    #[must_use]
    pub fn behind(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Adds a chunk of the stream.
    ///
    /// # Errors
    ///
    /// If the chunk is an error of the server, its message.
    pub fn add(&mut self, chunk: &Value) -> Result<(), String> {
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let message = error.get("message").unwrap_or(error);
            return Err(message.as_str().map_or_else(|| message.to_string(), str::to_owned));
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
        // Servers have two names for it.
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

    /// The first part of a call has its id and its name. Every part has a piece of the arguments.
    fn add_call(&mut self, part: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let index = part["index"].as_u64().unwrap_or_default();
        let (id, function) = (text(&part["id"]), &part["function"]);
        let is_same =
            |call: &&mut CallParts| call.index == index && (id.is_empty() || call.id.is_empty() || call.id == id);
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

    /// The message so far, without tool calls.
    #[must_use]
    pub fn so_far(&self) -> Message {
        let thinking = Some(&self.thinking).filter(|text| !text.is_empty());
        let text = Some(&self.text).filter(|text| !text.is_empty());
        let parts = thinking.map(ContentPart::thinking).into_iter().chain(text.map(ContentPart::text));
        let parts: Vec<_> = parts.collect();
        let content = (!parts.is_empty()).then_some(Content::Parts(parts));
        Message::new(Role::Assistant, content)
    }

    /// The complete message, with its usage in the metadata. `None` if the stream ended before the answer did.
    ///
    /// Arguments that aren't JSON stay text. The tool should return an error for the model then.
    #[must_use]
    pub fn finish(self) -> Option<Message> {
        let reason = self.finish_reason.as_deref()?;
        let mut message = self.so_far();
        if reason == "length" {
            message.status = MessageStatus::Length;
        }
        // A call that was cut off must not run.
        let calls = self.calls.into_iter().filter(|_| message.status == MessageStatus::Complete);
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
