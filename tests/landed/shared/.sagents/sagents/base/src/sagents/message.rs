//! What is said in a conversation with a model: messages, their parts, tool calls and their
//! results.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::json::Fields;
use super::json::{deep, deep_in, wrong};
use super::serializer::ReadError;

/// A message, as the model is sent it or sends it.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: MessageRole,
    /// What is said.
    pub content: Option<Content>,
    /// Whether it is whole.
    pub status: MessageStatus,
    /// What an assistant asks for.
    pub tool_calls: Vec<ToolCall>,
    /// What the tools answered.
    pub tool_results: Vec<ToolResult>,
    /// What providers add: token usage, why the model stopped.
    pub metadata: Option<Map<String, Value>>,
    /// What another version wrote, kept as it is.
    pub extra: Map<String, Value>,
}

impl Message {
    /// What the application tells the model.
    #[must_use]
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(MessageRole::System, Some(text.into().into()))
    }

    /// What a person says.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(MessageRole::User, Some(text.into().into()))
    }

    /// What the model says.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(MessageRole::Assistant, Some(text.into().into()))
    }

    /// An assistant's message that only calls tools.
    #[must_use]
    pub fn tool_calls(calls: impl IntoIterator<Item = ToolCall>) -> Self {
        let mut message = Self::new(MessageRole::Assistant, None);
        message.tool_calls = calls.into_iter().collect();
        message
    }

    /// The answers of tools.
    #[must_use]
    pub fn tool_results(results: impl IntoIterator<Item = ToolResult>) -> Self {
        let mut message = Self::new(MessageRole::Tool, None);
        message.tool_results = results.into_iter().collect();
        message
    }

    /// A whole message, without tools.
    #[must_use]
    pub fn new(role: MessageRole, content: Option<Content>) -> Self {
        Self {
            role,
            content,
            status: MessageStatus::Complete,
            tool_calls: Vec::new(),
            tool_results: Vec::new(),
            metadata: None,
            extra: Map::new(),
        }
    }

    pub(super) fn read(place: &str, value: Value) -> Result<Self, ReadError> {
        let mut fields = Fields::of(place, value)?;
        let role = fields.text("role")?;
        let role = MessageRole::read(&role).ok_or_else(|| {
            ReadError::damaged(&fields.at("role"), format!("{role:?} is no role"))
        })?;
        let content = match fields.present("content") {
            Some(content) => Some(Content::read(&fields.at("content"), content)?),
            None => None,
        };
        let status = fields.optional_text("status")?;
        let mut message = Self {
            role,
            content,
            status: status.map_or(MessageStatus::Complete, MessageStatus::read),
            tool_calls: fields.list("tool_calls", ToolCall::read)?,
            tool_results: fields.list("tool_results", ToolResult::read)?,
            metadata: fields.optional_object("metadata")?,
            extra: fields.rest(),
        };
        message.extra.remove("content");
        Ok(message)
    }

    /// The place of a value that is nested too deeply, if there is one.
    pub(super) fn deep(&self, place: &str) -> Option<String> {
        let calls = self.tool_calls.iter().enumerate();
        let results = self.tool_results.iter().enumerate();
        deep_in(place, &self.extra)
            .or_else(|| deep_in(&format!("{place}.metadata"), self.metadata.as_ref()?))
            .or_else(|| self.content.as_ref()?.deep(&format!("{place}.content")))
            .or_else(|| {
                calls
                    .map(|(i, call)| call.deep(&format!("{place}.tool_calls[{i}]")))
                    .find_map(|deep| deep)
            })
            .or_else(|| {
                results
                    .map(|(i, result)| result.deep(&format!("{place}.tool_results[{i}]")))
                    .find_map(|deep| deep)
            })
    }

    pub(super) fn write(&self) -> Value {
        let mut map = self.extra.clone();
        map.insert("role".into(), self.role.as_str().into());
        map.insert(
            "content".into(),
            self.content.as_ref().map_or(Value::Null, Content::write),
        );
        map.insert("status".into(), self.status.as_str().into());
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.iter().map(ToolCall::write).collect();
            map.insert("tool_calls".into(), calls);
        }
        if !self.tool_results.is_empty() {
            let results = self.tool_results.iter().map(ToolResult::write).collect();
            map.insert("tool_results".into(), results);
        }
        if let Some(metadata) = &self.metadata {
            map.insert("metadata".into(), metadata.clone().into());
        }
        map.into()
    }
}

/// As it is stored.
impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.write().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::read("message", value).map_err(D::Error::custom)
    }
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageRole {
    /// The application.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A tool that the model called.
    Tool,
}

impl MessageRole {
    /// As it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }

    fn read(text: &str) -> Option<Self> {
        [Self::System, Self::User, Self::Assistant, Self::Tool]
            .into_iter()
            .find(|role| role.as_str() == text)
    }
}

/// Whether the model said all that it had to say.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MessageStatus {
    /// It is whole.
    Complete,
    /// Somebody stopped it.
    Cancelled,
    /// It reached the limit of tokens.
    Length,
    /// One that another version knows.
    Other(String),
}

impl MessageStatus {
    /// As it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Complete => "complete",
            Self::Cancelled => "cancelled",
            Self::Length => "length",
            Self::Other(other) => other,
        }
    }

    fn read(text: String) -> Self {
        match text.as_str() {
            "complete" => Self::Complete,
            "cancelled" => Self::Cancelled,
            "length" => Self::Length,
            _ => Self::Other(text),
        }
    }
}

/// A plain text, or parts of several kinds.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A plain text.
    Text(String),
    /// Parts, in their order.
    Parts(Vec<ContentPart>),
}

impl Content {
    /// The text in it, without thinking and pictures.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => parts
                .iter()
                .filter(|part| part.kind == PartKind::Text)
                .filter_map(|part| part.content.as_deref())
                .collect::<Vec<_>>()
                .join("\n\n"),
        }
    }

    fn read(place: &str, value: Value) -> Result<Self, ReadError> {
        match value {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Array(parts) => {
                let read = |(index, part)| ContentPart::read(&format!("{place}[{index}]"), part);
                Ok(Self::Parts(
                    parts
                        .into_iter()
                        .enumerate()
                        .map(read)
                        .collect::<Result<_, _>>()?,
                ))
            }
            other => Err(wrong(place, "a text or a list of parts", &other)),
        }
    }

    fn deep(&self, place: &str) -> Option<String> {
        match self {
            Self::Text(_) => None,
            Self::Parts(parts) => parts.iter().enumerate().find_map(|(i, part)| {
                let place = format!("{place}[{i}]");
                deep_in(&place, &part.extra)
                    .or_else(|| deep_in(&format!("{place}.options"), part.options.as_ref()?))
            }),
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Text(text) => text.clone().into(),
            Self::Parts(parts) => parts.iter().map(ContentPart::write).collect(),
        }
    }
}

/// A text becomes a list with one part, as models are sent it.
impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Parts(vec![ContentPart::text(text)])
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct ContentPart {
    /// What kind of part it is.
    pub kind: PartKind,
    /// A text, an address, or bytes in base64, as the kind says.
    pub content: Option<String>,
    /// How it is sent: the media type, the level of detail.
    pub options: Option<Map<String, Value>>,
    /// What another version wrote, kept as it is.
    pub extra: Map<String, Value>,
}

impl ContentPart {
    /// A part that is text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(PartKind::Text, text)
    }

    /// A part that is a thought.
    #[must_use]
    pub fn thinking(text: impl Into<String>) -> Self {
        Self::new(PartKind::Thinking, text)
    }

    /// A part of any kind.
    #[must_use]
    pub fn new(kind: PartKind, content: impl Into<String>) -> Self {
        Self {
            kind,
            content: Some(content.into()),
            options: None,
            extra: Map::new(),
        }
    }

    fn read(place: &str, value: Value) -> Result<Self, ReadError> {
        let mut fields = Fields::of(place, value)?;
        Ok(Self {
            kind: PartKind::read(fields.text("type")?),
            content: fields.optional_text("content")?,
            options: fields.optional_object("options")?,
            extra: fields.rest(),
        })
    }

    fn write(&self) -> Value {
        let mut map = self.extra.clone();
        map.insert("type".into(), self.kind.as_str().into());
        if let Some(content) = &self.content {
            map.insert("content".into(), content.clone().into());
        }
        if let Some(options) = &self.options {
            map.insert("options".into(), options.clone().into());
        }
        map.into()
    }
}

/// The kinds of parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// What is said.
    Text,
    /// What the model thought before it spoke.
    Thinking,
    /// A picture, in base64.
    Image,
    /// A picture, by its address.
    ImageUrl,
    /// A file, in base64.
    File,
    /// A file, by its address.
    FileUrl,
    /// One that another version knows.
    Other(String),
}

impl PartKind {
    /// As it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Text => "text",
            Self::Thinking => "thinking",
            Self::Image => "image",
            Self::ImageUrl => "image_url",
            Self::File => "file",
            Self::FileUrl => "file_url",
            Self::Other(other) => other,
        }
    }

    fn read(text: String) -> Self {
        let known = [
            Self::Text,
            Self::Thinking,
            Self::Image,
            Self::ImageUrl,
            Self::File,
            Self::FileUrl,
        ];
        known
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .unwrap_or(Self::Other(text))
    }
}

/// A tool that an assistant wants to be called.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// What its result refers to. Models make it up, and may repeat one.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Usually an object; a text while the model is still writing it.
    pub arguments: Option<Value>,
    /// What a person reads instead of the name.
    pub display_text: Option<String>,
    /// Whether the model has written all of it.
    pub status: ToolCallStatus,
    /// `function`.
    pub kind: String,
    /// What providers add.
    pub metadata: Option<Map<String, Value>>,
    /// What another version wrote, kept as it is.
    pub extra: Map<String, Value>,
}

impl ToolCall {
    /// A call that is whole.
    #[must_use]
    pub fn new(call_id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Self {
        Self {
            call_id: call_id.into(),
            name: name.into(),
            arguments: Some(arguments),
            display_text: None,
            status: ToolCallStatus::Complete,
            kind: FUNCTION.into(),
            metadata: None,
            extra: Map::new(),
        }
    }

    fn read(place: &str, value: Value) -> Result<Self, ReadError> {
        let mut fields = Fields::of(place, value)?;
        let status = fields.optional_text("status")?;
        Ok(Self {
            call_id: fields.text("call_id")?,
            name: fields.text("name")?,
            arguments: fields.take("arguments"),
            display_text: fields.optional_text("display_text")?,
            status: status.map_or(ToolCallStatus::Complete, ToolCallStatus::read),
            kind: fields
                .optional_text("type")?
                .unwrap_or_else(|| FUNCTION.into()),
            metadata: fields.optional_object("metadata")?,
            extra: fields.rest(),
        })
    }

    fn deep(&self, place: &str) -> Option<String> {
        deep_in(place, &self.extra)
            .or_else(|| deep(&format!("{place}.arguments"), self.arguments.as_ref()?))
            .or_else(|| deep_in(&format!("{place}.metadata"), self.metadata.as_ref()?))
    }

    fn write(&self) -> Value {
        let mut map = self.extra.clone();
        map.insert("call_id".into(), self.call_id.clone().into());
        map.insert("name".into(), self.name.clone().into());
        map.insert("status".into(), self.status.as_str().into());
        map.insert("type".into(), self.kind.clone().into());
        if let Some(arguments) = &self.arguments {
            map.insert("arguments".into(), arguments.clone());
        }
        if let Some(text) = &self.display_text {
            map.insert("display_text".into(), text.clone().into());
        }
        if let Some(metadata) = &self.metadata {
            map.insert("metadata".into(), metadata.clone().into());
        }
        map.into()
    }
}

/// Whether the model has written all of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ToolCallStatus {
    /// The model is still writing the arguments.
    Incomplete,
    /// It is whole.
    Complete,
    /// One that another version knows.
    Other(String),
}

impl ToolCallStatus {
    /// As it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Complete => "complete",
            Self::Other(other) => other,
        }
    }

    fn read(text: String) -> Self {
        match text.as_str() {
            "incomplete" => Self::Incomplete,
            "complete" => Self::Complete,
            _ => Self::Other(text),
        }
    }
}

/// What a tool answered, or that it waits for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The call that it answers.
    pub tool_call_id: String,
    /// The tool.
    pub name: Option<String>,
    /// What the tool answered.
    pub content: Option<Content>,
    /// The tool failed, and the content says why.
    pub is_error: bool,
    /// The call waits for a person's decision; the content is only a placeholder.
    pub is_interrupt: bool,
    /// What is needed to go on after the decision.
    pub interrupt_data: Option<Value>,
    /// `function`.
    pub kind: String,
    /// What another version wrote, kept as it is. Interrupt data of the Elixir library is here,
    /// under `interrupt_data_b64`.
    pub extra: Map<String, Value>,
}

impl ToolResult {
    /// An answer.
    #[must_use]
    pub fn new(
        tool_call_id: impl Into<String>,
        name: impl Into<String>,
        content: impl Into<String>,
    ) -> Self {
        Self {
            tool_call_id: tool_call_id.into(),
            name: Some(name.into()),
            content: Some(content.into().into()),
            is_error: false,
            is_interrupt: false,
            interrupt_data: None,
            kind: FUNCTION.into(),
            extra: Map::new(),
        }
    }

    /// A call that waits for a person.
    #[must_use]
    pub fn interrupt(
        tool_call_id: impl Into<String>,
        name: impl Into<String>,
        placeholder: impl Into<String>,
        data: Value,
    ) -> Self {
        Self {
            is_interrupt: true,
            interrupt_data: Some(data),
            ..Self::new(tool_call_id, name, placeholder)
        }
    }

    /// Whether there is interrupt data that only the Elixir library can read.
    pub(super) fn has_foreign_data(&self) -> bool {
        self.extra
            .get(FOREIGN_DATA)
            .is_some_and(|data| !data.is_null())
    }

    /// Turns an interrupt into a failure that the model can read.
    pub(super) fn demote(&mut self, reason: &str) {
        self.content = Some(Content::Text(reason.to_owned()));
        self.is_error = true;
        self.is_interrupt = false;
        self.interrupt_data = None;
        self.extra.remove(FOREIGN_DATA);
    }

    fn read(place: &str, value: Value) -> Result<Self, ReadError> {
        let mut fields = Fields::of(place, value)?;
        let content = match fields.present("content") {
            Some(content) => Some(Content::read(&fields.at("content"), content)?),
            None => None,
        };
        Ok(Self {
            tool_call_id: fields.text("tool_call_id")?,
            name: fields.optional_text("name")?,
            content,
            is_error: fields.flag("is_error")?,
            is_interrupt: fields.flag("is_interrupt")?,
            interrupt_data: fields.take("interrupt_data"),
            kind: fields
                .optional_text("type")?
                .unwrap_or_else(|| FUNCTION.into()),
            extra: fields.rest(),
        })
    }

    fn deep(&self, place: &str) -> Option<String> {
        deep_in(place, &self.extra)
            .or_else(|| {
                deep(
                    &format!("{place}.interrupt_data"),
                    self.interrupt_data.as_ref()?,
                )
            })
            .or_else(|| self.content.as_ref()?.deep(&format!("{place}.content")))
    }

    fn write(&self) -> Value {
        let mut map = self.extra.clone();
        map.insert("tool_call_id".into(), self.tool_call_id.clone().into());
        map.insert("is_error".into(), self.is_error.into());
        map.insert("is_interrupt".into(), self.is_interrupt.into());
        map.insert("type".into(), self.kind.clone().into());
        if let Some(name) = &self.name {
            map.insert("name".into(), name.clone().into());
        }
        if let Some(content) = &self.content {
            map.insert("content".into(), content.write());
        }
        if let Some(data) = &self.interrupt_data {
            map.insert("interrupt_data".into(), data.clone());
        }
        map.into()
    }
}

const FUNCTION: &str = "function";
const FOREIGN_DATA: &str = "interrupt_data_b64";
