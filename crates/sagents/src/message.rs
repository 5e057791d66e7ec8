//! Messages between a person, a model and its tools.

mod tool;

use serde::de::{self, MapAccess, SeqAccess};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

pub use self::tool::{ToolCall, ToolCallStatus, ToolResult};
use super::json::{Fields, FromJson, Object, Path, Reader};
use super::json::{deserialize, too_deep_in, too_deep_item};

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

const MEDIA: &str = "media";
const FILE_NAME: &str = "filename";
