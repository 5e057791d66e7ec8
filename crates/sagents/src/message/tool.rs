//! Calls of tools, and their results.

use serde::de::{self, MapAccess};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::Content;
use crate::json::{Fields, FromJson, Object, Path, Reader};
use crate::json::{too_deep, too_deep_in};

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

    pub(super) fn too_deep(&self, path: Path<'_>) -> Option<String> {
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
    /// Data that lets the application resume after the decision.
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
    pub(crate) fn has_elixir_data(&self) -> bool {
        let data = self.extra.get(ELIXIR_DATA);
        data.is_some_and(|data| !data.is_null())
    }

    /// An error that the model can read, in place of an interrupt.
    pub(crate) fn demoted(&self, reason: &str) -> Self {
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

    pub(super) fn too_deep(&self, path: Path<'_>) -> Option<String> {
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
const ELIXIR_DATA: &str = "interrupt_data_b64";
