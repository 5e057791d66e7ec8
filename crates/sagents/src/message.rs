//! Messages between a person, a model and its tools.

use serde::de::{self, MapAccess, SeqAccess};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::json::{Fields, FromJson, Object, Path, Reader};
use super::json::{deserialize, too_deep, too_deep_in, too_deep_item};

/// A message as it is sent to a model or received from one.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The sender.
    pub role: Role,
    /// A message that only calls tools, or only has their results, has none.
    pub content: Option<Content>,
    /// Whether the sender finished it.
    pub status: MessageStatus,
    /// Only in messages of [`Role::Assistant`].
    pub tool_calls: Vec<ToolCall>,
    /// Only in messages of [`Role::Tool`].
    pub tool_results: Vec<ToolResult>,
    /// Data of the provider: token usage, why the model stopped.
    pub metadata: Option<Map<String, Value>>,
    /// Keys that this version does not know.
    pub extra: Map<String, Value>,
}

impl Message {
    /// Instructions of the application for the model.
    #[must_use]
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, Some(text.into().into()))
    }

    /// A text of a person.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, Some(text.into().into()))
    }

    /// A text of the model.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, Some(text.into().into()))
    }

    /// A message of the model that only calls tools.
    #[must_use]
    pub fn tool_calls(calls: impl IntoIterator<Item = ToolCall>) -> Self {
        let mut message = Self::new(Role::Assistant, None);
        message.tool_calls = calls.into_iter().collect();
        message
    }

    /// The results of tools that the model called.
    #[must_use]
    pub fn tool_results(results: impl IntoIterator<Item = ToolResult>) -> Self {
        let mut message = Self::new(Role::Tool, None);
        message.tool_results = results.into_iter().collect();
        message
    }

    /// A complete message without tools.
    #[must_use]
    pub fn new(role: Role, content: Option<Content>) -> Self {
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

    /// The path of a value that is nested too deeply, if there is one.
    pub(super) fn too_deep(&self, path: Path<'_>) -> Option<String> {
        let key = |key| Path::Key(&path, key);
        too_deep_in(path, &self.extra)
            .or_else(|| too_deep_in(key("metadata"), self.metadata.as_ref()?))
            .or_else(|| self.content.as_ref()?.too_deep(key("content")))
            .or_else(|| too_deep_item(key("tool_calls"), &self.tool_calls, ToolCall::too_deep))
            .or_else(|| too_deep_item(key("tool_results"), &self.tool_results, ToolResult::too_deep))
    }
}

impl FromJson for Message {
    const EXPECTED: &'static str = "an object";

    fn from_object<'de, A: MapAccess<'de>>(mut fields: Fields<'_, A>) -> Result<Self, A::Error> {
        let mut role = None;
        let mut message = Self::new(Role::User, None);
        while let Some(key) = fields.next_key()? {
            match &*key {
                "role" => role = fields.required("role")?,
                "content" => message.content = fields.optional("content")?,
                "status" => {
                    let status = fields.optional("status")?;
                    message.status = status.unwrap_or(MessageStatus::Complete);
                }
                "tool_calls" => message.tool_calls = fields.list("tool_calls")?,
                "tool_results" => message.tool_results = fields.list("tool_results")?,
                "metadata" => message.metadata = fields.optional_object("metadata")?,
                _ => fields.keep(key)?,
            }
        }
        message.role = fields.found("role", role)?;
        message.extra = fields.rest;
        // It is always written, also if it is null.
        drop(message.extra.remove("content"));
        Ok(message)
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::new(serializer, &self.extra)?;
        object.set("role", self.role.as_str())?;
        object.set("content", &self.content)?;
        object.set("status", self.status.as_str())?;
        object.set_list("tool_calls", &self.tool_calls)?;
        object.set_list("tool_results", &self.tool_results)?;
        object.set_some("metadata", self.metadata.as_ref())?;
        object.end()
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize("message", deserializer)
    }
}

/// The sender of a message, in agent states and in display messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The application, which instructs the model.
    System,
    /// A person.
    User,
    /// The model.
    Assistant,
    /// A tool that the model called.
    Tool,
}

impl Role {
    /// The text that is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

impl FromJson for Role {
    const EXPECTED: &'static str = "a string";

    fn from_text<E: de::Error>(at: Reader<'_>, text: &str) -> Result<Self, E> {
        [Self::System, Self::User, Self::Assistant, Self::Tool]
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| at.damaged(format!("{text:?} is not a role")))
    }
}

/// Whether the sender finished a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MessageStatus {
    /// It is complete.
    Complete,
    /// A person cancelled it, or the stream failed.
    Cancelled,
    /// The model reached its token limit.
    Length,
    /// A status that this version does not know.
    Other(String),
}

impl MessageStatus {
    /// The text that is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Complete => "complete",
            Self::Cancelled => "cancelled",
            Self::Length => "length",
            Self::Other(other) => other,
        }
    }
}

impl FromJson for MessageStatus {
    const EXPECTED: &'static str = "a string";

    fn from_text<E: de::Error>(_at: Reader<'_>, text: &str) -> Result<Self, E> {
        Ok(match text {
            "complete" => Self::Complete,
            "cancelled" => Self::Cancelled,
            "length" => Self::Length,
            _ => Self::Other(text.to_owned()),
        })
    }
}

/// The content of a message or of a tool result.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Stored as a JSON string.
    Text(String),
    /// Stored as a JSON array.
    Parts(Vec<ContentPart>),
}

impl Content {
    /// The text parts, with a blank line between two. Thinking, images and files are left out.
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

    fn too_deep(&self, path: Path<'_>) -> Option<String> {
        match self {
            Self::Text(_) => None,
            Self::Parts(parts) => too_deep_item(path, parts, ContentPart::too_deep),
        }
    }
}

impl FromJson for Content {
    const EXPECTED: &'static str = "a string or an array";

    fn from_text<E: de::Error>(_at: Reader<'_>, text: &str) -> Result<Self, E> {
        Ok(Self::Text(text.to_owned()))
    }

    fn from_list<'de, A: SeqAccess<'de>>(at: Reader<'_>, items: A) -> Result<Self, A::Error> {
        FromJson::from_list(at, items).map(Self::Parts)
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Parts(parts) => parts.serialize(serializer),
        }
    }
}

/// A list with one text part, which is how providers expect it.
impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Parts(vec![ContentPart::text(text)])
    }
}

/// A part of a [`Content`].
#[derive(Debug, Clone, PartialEq)]
pub struct ContentPart {
    /// What `content` contains.
    pub kind: PartKind,
    /// Text, a URL, or base64, depending on `kind`.
    pub content: Option<String>,
    /// For the provider. Of a picture or a file, `media` is the media type (`image/png`; the Elixir
    /// library also writes `png`), `filename` the name, `detail` the level of detail.
    pub options: Option<Map<String, Value>>,
    /// Keys that this version does not know.
    pub extra: Map<String, Value>,
}

impl ContentPart {
    /// A part of kind [`PartKind::Text`].
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(PartKind::Text, text)
    }

    /// A part of kind [`PartKind::Thinking`].
    #[must_use]
    pub fn thinking(text: impl Into<String>) -> Self {
        Self::new(PartKind::Thinking, text)
    }

    /// A picture in base64, with its media type, for example `image/png`.
    #[must_use]
    pub fn image(data: impl Into<String>, media_type: impl Into<String>) -> Self {
        Self::new(PartKind::Image, data).with_option(MEDIA, media_type)
    }

    /// A picture that providers read from a URL.
    #[must_use]
    pub fn image_url(url: impl Into<String>) -> Self {
        Self::new(PartKind::ImageUrl, url)
    }

    /// A file in base64, with its media type, for example `application/pdf`, and its name.
    #[must_use]
    pub fn file(data: impl Into<String>, media_type: impl Into<String>, name: impl Into<String>) -> Self {
        Self::new(PartKind::File, data).with_option(MEDIA, media_type).with_option(FILE_NAME, name)
    }

    /// A file that providers read from a URL.
    #[must_use]
    pub fn file_url(url: impl Into<String>) -> Self {
        Self::new(PartKind::FileUrl, url)
    }

    /// Sets an option for the provider.
    #[must_use]
    pub fn with_option(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let options = self.options.get_or_insert_with(Map::new);
        drop(options.insert(key.into(), Value::String(value.into())));
        self
    }

    /// The media type of a picture or a file, from the option `media`. `png` is read as `image/png`.
    #[must_use]
    pub fn media_type(&self) -> Option<String> {
        let media = self.option(MEDIA)?;
        Some(match media {
            _ if media.contains('/') => media.to_owned(),
            "pdf" => "application/pdf".into(),
            "jpg" => "image/jpeg".into(),
            _ => format!("image/{media}"),
        })
    }

    /// The name of a picture or a file, from the option `filename`.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        self.option(FILE_NAME)
    }

    fn option(&self, key: &str) -> Option<&str> {
        self.options.as_ref()?.get(key)?.as_str()
    }

    /// A part without options.
    #[must_use]
    pub fn new(kind: PartKind, content: impl Into<String>) -> Self {
        Self { kind, content: Some(content.into()), options: None, extra: Map::new() }
    }

    fn too_deep(&self, path: Path<'_>) -> Option<String> {
        too_deep_in(path, &self.extra).or_else(|| too_deep_in(Path::Key(&path, "options"), self.options.as_ref()?))
    }
}

impl FromJson for ContentPart {
    const EXPECTED: &'static str = "an object";

    fn from_object<'de, A: MapAccess<'de>>(mut fields: Fields<'_, A>) -> Result<Self, A::Error> {
        let (mut kind, mut content, mut options) = (None, None, None);
        while let Some(key) = fields.next_key()? {
            match &*key {
                "type" => kind = fields.required("type")?,
                "content" => content = fields.optional("content")?,
                "options" => options = fields.optional_object("options")?,
                _ => fields.keep(key)?,
            }
        }
        Ok(Self { kind: fields.found("type", kind)?, content, options, extra: fields.rest })
    }
}

impl Serialize for ContentPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::new(serializer, &self.extra)?;
        object.set("type", self.kind.as_str())?;
        object.set_some("content", self.content.as_ref())?;
        object.set_some("options", self.options.as_ref())?;
        object.end()
    }
}

/// What a [`ContentPart`] contains.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// Plain text.
    Text,
    /// The model's reasoning before its answer.
    Thinking,
    /// An image in base64.
    Image,
    /// The URL of an image.
    ImageUrl,
    /// A file in base64.
    File,
    /// The URL of a file.
    FileUrl,
    /// A kind that this version does not know.
    Other(String),
}

impl PartKind {
    /// The text that is stored.
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
}

impl FromJson for PartKind {
    const EXPECTED: &'static str = "a string";

    fn from_text<E: de::Error>(_at: Reader<'_>, text: &str) -> Result<Self, E> {
        Ok(match text {
            "text" => Self::Text,
            "thinking" => Self::Thinking,
            "image" => Self::Image,
            "image_url" => Self::ImageUrl,
            "file" => Self::File,
            "file_url" => Self::FileUrl,
            _ => Self::Other(text.to_owned()),
        })
    }
}

/// A call that the model asks the application to make.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The result refers to it. Models choose it, and some use one twice.
    pub tool_call_id: String,
    /// The name of the tool.
    pub name: String,
    /// Usually an object; a string while the model is still writing it.
    pub arguments: Option<Value>,
    /// Shown to a person instead of the name.
    pub display_text: Option<String>,
    /// Whether the model finished it.
    pub status: ToolCallStatus,
    /// Always `function` so far.
    pub kind: String,
    /// Data of the provider.
    pub metadata: Option<Map<String, Value>>,
    /// Keys that this version does not know.
    pub extra: Map<String, Value>,
}

impl ToolCall {
    /// A complete call.
    #[must_use]
    pub fn new(tool_call_id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Self {
        Self {
            tool_call_id: tool_call_id.into(),
            name: name.into(),
            arguments: Some(arguments),
            display_text: None,
            status: ToolCallStatus::Complete,
            kind: FUNCTION.into(),
            metadata: None,
            extra: Map::new(),
        }
    }

    fn too_deep(&self, path: Path<'_>) -> Option<String> {
        let key = |key| Path::Key(&path, key);
        too_deep_in(path, &self.extra)
            .or_else(|| too_deep(key("arguments"), self.arguments.as_ref()?))
            .or_else(|| too_deep_in(key("metadata"), self.metadata.as_ref()?))
    }
}

impl FromJson for ToolCall {
    const EXPECTED: &'static str = "an object";

    fn from_object<'de, A: MapAccess<'de>>(mut fields: Fields<'_, A>) -> Result<Self, A::Error> {
        let (mut tool_call_id, mut name) = (None, None);
        let (mut arguments, mut display_text, mut metadata) = (None, None, None);
        let (mut status, mut kind) = (None, None);
        while let Some(key) = fields.next_key()? {
            match &*key {
                "call_id" => tool_call_id = fields.required("call_id")?,
                "name" => name = fields.required("name")?,
                "arguments" => arguments = Some(fields.value()?),
                "display_text" => display_text = fields.optional("display_text")?,
                "status" => status = fields.optional("status")?,
                "type" => kind = fields.optional("type")?,
                "metadata" => metadata = fields.optional_object("metadata")?,
                _ => fields.keep(key)?,
            }
        }
        Ok(Self {
            tool_call_id: fields.found("call_id", tool_call_id)?,
            name: fields.found("name", name)?,
            arguments,
            display_text,
            status: status.unwrap_or(ToolCallStatus::Complete),
            kind: kind.unwrap_or_else(|| FUNCTION.into()),
            metadata,
            extra: fields.rest,
        })
    }
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::new(serializer, &self.extra)?;
        object.set("call_id", &self.tool_call_id)?;
        object.set("name", &self.name)?;
        object.set("status", self.status.as_str())?;
        object.set("type", &self.kind)?;
        object.set_some("arguments", self.arguments.as_ref())?;
        object.set_some("display_text", self.display_text.as_ref())?;
        object.set_some("metadata", self.metadata.as_ref())?;
        object.end()
    }
}

/// Whether the model finished a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ToolCallStatus {
    /// The model is still writing the arguments.
    Incomplete,
    /// It can be executed.
    Complete,
    /// A status that this version does not know.
    Other(String),
}

impl ToolCallStatus {
    /// The text that is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Complete => "complete",
            Self::Other(other) => other,
        }
    }
}

impl FromJson for ToolCallStatus {
    const EXPECTED: &'static str = "a string";

    fn from_text<E: de::Error>(_at: Reader<'_>, text: &str) -> Result<Self, E> {
        Ok(match text {
            "incomplete" => Self::Incomplete,
            "complete" => Self::Complete,
            _ => Self::Other(text.to_owned()),
        })
    }
}

/// The result of a tool call, or an interrupt: a placeholder for a result that needs a person's
/// decision first.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// [`ToolCall::tool_call_id`] of the call.
    pub tool_call_id: String,
    /// The name of the tool.
    pub name: Option<String>,
    /// The result, or the error message.
    pub content: Option<Content>,
    /// The tool failed.
    pub is_error: bool,
    /// The call waits for a decision; `content` is a placeholder.
    pub is_interrupt: bool,
    /// What the application needs to resume after the decision.
    pub interrupt_data: Option<Value>,
    /// Always `function` so far.
    pub kind: String,
    /// Keys that this version does not know, and `interrupt_data_b64`: interrupt data that only the
    /// Elixir library can read.
    pub extra: Map<String, Value>,
}

impl ToolResult {
    /// The result of a call that succeeded.
    #[must_use]
    pub fn new(tool_call_id: impl Into<String>, name: impl Into<String>, content: impl Into<String>) -> Self {
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

    /// The result of a call that failed. The model reads the message.
    #[must_use]
    pub fn error(tool_call_id: impl Into<String>, name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::new(tool_call_id, name, message) }
    }

    /// A call that waits for a person's decision.
    #[must_use]
    pub fn interrupt(
        tool_call_id: impl Into<String>,
        name: impl Into<String>,
        placeholder: impl Into<String>,
        data: Value,
    ) -> Self {
        Self { is_interrupt: true, interrupt_data: Some(data), ..Self::new(tool_call_id, name, placeholder) }
    }

    /// Whether there is interrupt data that only the Elixir library can read.
    pub(super) fn has_elixir_data(&self) -> bool {
        let data = self.extra.get(ELIXIR_DATA);
        data.is_some_and(|data| !data.is_null())
    }

    /// An error that the model can read, in place of an interrupt.
    pub(super) fn demoted(&self, reason: &str) -> Self {
        let mut extra = self.extra.clone();
        drop(extra.remove(ELIXIR_DATA));
        Self {
            content: Some(Content::Text(reason.to_owned())),
            is_error: true,
            is_interrupt: false,
            interrupt_data: None,
            extra,
            ..self.clone()
        }
    }

    fn too_deep(&self, path: Path<'_>) -> Option<String> {
        let key = |key| Path::Key(&path, key);
        too_deep_in(path, &self.extra)
            .or_else(|| too_deep(key("interrupt_data"), self.interrupt_data.as_ref()?))
            .or_else(|| self.content.as_ref()?.too_deep(key("content")))
    }
}

impl FromJson for ToolResult {
    const EXPECTED: &'static str = "an object";

    fn from_object<'de, A: MapAccess<'de>>(mut fields: Fields<'_, A>) -> Result<Self, A::Error> {
        let (mut tool_call_id, mut name, mut kind) = (None, None, None);
        let (mut content, mut interrupt_data) = (None, None);
        let (mut is_error, mut is_interrupt) = (false, false);
        while let Some(key) = fields.next_key()? {
            match &*key {
                "tool_call_id" => tool_call_id = fields.required("tool_call_id")?,
                "name" => name = fields.optional("name")?,
                "type" => kind = fields.optional("type")?,
                "content" => content = fields.optional("content")?,
                "interrupt_data" => interrupt_data = Some(fields.value()?),
                "is_error" => is_error = fields.bool("is_error")?,
                "is_interrupt" => is_interrupt = fields.bool("is_interrupt")?,
                _ => fields.keep(key)?,
            }
        }
        Ok(Self {
            tool_call_id: fields.found("tool_call_id", tool_call_id)?,
            name,
            content,
            is_error,
            is_interrupt,
            interrupt_data,
            kind: kind.unwrap_or_else(|| FUNCTION.into()),
            extra: fields.rest,
        })
    }
}

impl Serialize for ToolResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::new(serializer, &self.extra)?;
        object.set("tool_call_id", &self.tool_call_id)?;
        object.set("is_error", &self.is_error)?;
        object.set("is_interrupt", &self.is_interrupt)?;
        object.set("type", &self.kind)?;
        object.set_some("name", self.name.as_ref())?;
        object.set_some("content", self.content.as_ref())?;
        object.set_some("interrupt_data", self.interrupt_data.as_ref())?;
        object.end()
    }
}

const FUNCTION: &str = "function";
const MEDIA: &str = "media";
const FILE_NAME: &str = "filename";
const ELIXIR_DATA: &str = "interrupt_data_b64";
