//! Conversations as values and as files, to move them to another owner or another database.
//!
//! A file has one JSON record per line, in this order: `conversation`, `state` if there is one, then each `agent_message`,
//! `display_message` and `usage`, and `end` with their numbers. Equal conversations are equal files. The state and its
//! messages have the Elixir library's format.
//!
//! ```
//! use sagents::Export;
//!
//! let file = r#"
//! {"type":"conversation","version":1,"id":"01890a5d-ac96-774b-bcce-b302099a8057","title":"Plans","metadata":{},"interrupted":false,"inserted_at":"2026-01-02T03:04:05.000000Z","updated_at":"2026-01-02T03:04:05.000000Z","archived_at":null}
//! {"type":"state","envelope":{"version":2,"state":{"messages":[],"todos":[],"metadata":{}}},"undisplayed":[]}
//! {"type":"agent_message","id":"01890a5d-ac96-774b-bcce-b302099a8058","message":{"role":"user","content":"Where to?"}}
//! {"type":"display_message","sequence":0,"message_id":"01890a5d-ac96-774b-bcce-b302099a8058","item":0,"role":"user","content_type":"text","content":"Where to?","metadata":{},"tool_call_id":null,"status":null,"inserted_at":"2026-01-02T03:04:05.000000Z","delivery":"stored"}
//! {"type":"usage","message_id":"01890a5d-ac96-774b-bcce-b302099a8058","model":"large","input_tokens":100,"output_tokens":20,"cached_tokens":0,"inserted_at":"2026-01-02T03:04:05.000000Z"}
//! {"type":"end","agent_messages":1,"display_messages":1,"usage":1}
//! "#;
//! let export = Export::read_from(file.trim_start().as_bytes())?;
//! assert_eq!(export.messages[0].content, "Where to?");
//! # Ok::<_, sagents::ExportError>(())
//! ```
//!
//! An import refuses a file without its `end`, with a value that can't be stored, with an unknown key or of another
//! version. It names the place, for example `line 17: message.role: …`, and stores nothing.

mod checks;
mod fields;
mod file;
mod rows;
mod values;
mod whole_state;

use std::fmt;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use self::checks::Problem;
use super::Timestamp;
use super::display::ContentType;
use super::message::{Message, Role};
use super::serializer::TooDeep;
use super::state::State;
use super::turn::{Delivery, ToolStatus};

pub use self::file::{ExportReader, ExportWriter};
pub use self::rows::{MessageRows, header, row};
pub use self::values::ExportValues;

/// A conversation with all that belongs to it, except its runs and the states that were set aside. It
/// has no owner.
///
/// Two are equal if they're imported as the same: the times of the last update and of archiving don't
/// count, and the ids of the agent's messages are compared where both have one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// The conversation. With another id, a `UUIDv7`, it is imported as a copy.
    pub conversation: ExportedConversation,
    /// The agent state. As JSON it is its envelope, with the ids of the messages beside it.
    #[serde(with = "whole_state")]
    pub state: Option<State>,
    /// The display messages, by sequence.
    pub messages: Vec<ExportedMessage>,
    /// The tokens that messages cost, by message id.
    pub usage: Vec<ExportedUsage>,
}

impl PartialEq for Export {
    fn eq(&self, other: &Self) -> bool {
        is_same_conversation(&self.conversation, &other.conversation)
            && is_same_state(self.state.as_ref(), other.state.as_ref())
            && self.messages == other.messages
            && self.usage == other.usage
    }
}

/// An import has its own times of these kinds.
fn is_same_conversation(left: &ExportedConversation, right: &ExportedConversation) -> bool {
    let archived_at = left.archived_at.and(right.archived_at);
    left.archived_at.is_some() == right.archived_at.is_some()
        && ExportedConversation { updated_at: right.updated_at, archived_at, ..left.clone() }
            == ExportedConversation { archived_at, ..right.clone() }
}

fn is_same_state(left: Option<&State>, right: Option<&State>) -> bool {
    let (Some(left), Some(right)) = (left, right) else {
        return left.is_none() && right.is_none();
    };
    let is_same_id = |position| {
        let ids = left.messages.id(position).zip(right.messages.id(position));
        ids.is_none_or(|(left, right)| left == right)
    };
    left == right && left.undisplayed == right.undisplayed && (0..left.messages.len()).all(is_same_id)
}

/// A conversation of an [`Export`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExportedConversation {
    /// A `UUIDv7`.
    pub id: Uuid,
    /// The title that a person sees.
    pub title: Option<String>,
    /// Data of the application's.
    pub metadata: Map<String, Value>,
    /// Whether the agent waits for a person's decision.
    pub interrupted: bool,
    /// When it was created.
    pub inserted_at: Timestamp,
    /// When anything in the conversation was last written. An import is a write: the imported conversation
    /// has the time of the import.
    pub updated_at: Timestamp,
    /// When it was archived, if it was. The imported conversation is archived at the time of the import.
    pub archived_at: Option<Timestamp>,
    /// Your own columns of the conversation, by name. Columns that are missing here get their default.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub columns: Map<String, Value>,
}

/// A display message of an [`Export`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExportedMessage {
    /// The position in the conversation. There may be gaps.
    pub sequence: i64,
    /// The message that this is an item of.
    pub message_id: Uuid,
    /// The position in the message.
    pub item: i32,
    /// Who the message is from.
    pub role: Role,
    /// What `content` is.
    pub content_type: ContentType,
    /// The text that a person sees, or as the type says.
    pub content: String,
    /// Further data.
    pub metadata: Map<String, Value>,
    /// The id of the tool call, for tool calls and tool results.
    pub tool_call_id: Option<String>,
    /// The status of a tool call; `None` for everything else.
    pub status: Option<ToolStatus>,
    /// When it was appended.
    pub inserted_at: Timestamp,
    /// Whether it is whole, and in the agent state. A draft is imported as interrupted.
    pub delivery: Delivery,
}

/// The tokens that a message cost, in an [`Export`]. The message may be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExportedUsage {
    /// The message.
    pub message_id: Uuid,
    /// The model, if it is known.
    pub model: Option<String>,
    /// All input tokens.
    pub input_tokens: u64,
    /// All output tokens.
    pub output_tokens: u64,
    /// The input tokens that were read from a cache.
    pub cached_tokens: u64,
    /// When the message was stored.
    pub inserted_at: Timestamp,
}

/// Why an [`Export`] cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A value that cannot be imported.
    #[error("{place}: {reason}")]
    Invalid {
        /// Where it is, for example `line 17: message.role`, or `messages[3].status` of a value.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Problem> for ExportError {
    fn from(Problem { key, reason }: Problem) -> Self {
        Self::Invalid { place: key, reason }
    }
}

impl From<TooDeep> for ExportError {
    fn from(error: TooDeep) -> Self {
        Problem::from(error).into()
    }
}

impl Export {
    /// Writes a file. A store writes one of any size with `export_conversation_to`.
    ///
    /// # Errors
    ///
    /// [`ExportError::Invalid`] if a value is nested too deeply to be read back,
    /// [`ExportError::Io`] if `writer` fails.
    pub fn write_to(&self, writer: impl Write) -> Result<(), ExportError> {
        let mut file = ExportWriter::new(writer);
        let mut values = ExportValues::new(self.clone());
        while let Some((_, record)) = values.read()? {
            file.write(&record)?;
        }
        file.finish().map(drop)
    }

    /// Reads a file up to its end, which a record says: several files may follow each other. A store
    /// reads one of any size with `import_conversation_from`.
    ///
    /// # Errors
    ///
    /// [`ExportError::Invalid`] with the line and the place if it is not a whole file of this version,
    /// [`ExportError::Io`] if `reader` fails.
    pub fn read_from(reader: impl BufRead) -> Result<Self, ExportError> {
        let mut file = ExportReader::new(reader);
        let mut export = None;
        while let Some((_, record)) = file.read()? {
            Self::add(&mut export, record);
        }
        // A file that ends has one.
        export.ok_or_else(|| Problem::new("conversation", "missing").into())
    }

    /// Adds a record to an export. The first one is the conversation.
    pub fn add(export: &mut Option<Self>, record: Record) {
        match (record, export) {
            (Record::Conversation(conversation), export) => {
                *export = Some(Self { conversation, state: None, messages: Vec::new(), usage: Vec::new() });
            }
            (_, None) => {}
            (Record::State(state), Some(export)) => export.state = Some(*state),
            (Record::AgentMessage { id, message }, Some(export)) => {
                let messages = export.state.as_mut().map(|state| &mut state.messages);
                match (messages, id) {
                    (Some(messages), Some(id)) => messages.push_with_id(id, *message),
                    (Some(messages), None) => messages.push(*message),
                    (None, _) => {}
                }
            }
            (Record::Message(message), Some(export)) => export.messages.push(*message),
            (Record::Usage(usage), Some(export)) => export.usage.push(usage),
        }
    }
}

/// A line of a file.
#[derive(Debug, Clone)]
pub enum Record {
    /// The conversation. It comes first.
    Conversation(ExportedConversation),
    /// The agent state, without its messages.
    State(Box<State>),
    /// The next message of the agent state.
    AgentMessage {
        /// Its id, if it has one yet.
        id: Option<Uuid>,
        /// The message.
        message: Box<Message>,
    },
    /// The next display message.
    Message(Box<ExportedMessage>),
    /// The tokens of a message.
    Usage(ExportedUsage),
}

impl Record {
    /// A state and the messages that it has.
    pub fn of_state(mut state: State) -> impl Iterator<Item = Self> {
        let messages = std::mem::take(&mut state.messages);
        let ids: Vec<_> = (0..messages.len()).map(|n| messages.id(n)).collect();
        let messages = ids.into_iter().zip(messages);
        let messages = messages.map(|(id, message)| Self::AgentMessage { id, message: Box::new(message) });
        std::iter::once(Self::State(Box::new(state))).chain(messages)
    }
}

/// Where a [`Record`] is.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// A line of a file, counted from 1.
    Line(u64),
    /// A field of an [`Export`].
    Field(&'static str),
    /// An item of a field of an [`Export`], counted from 0.
    Item(&'static str, usize),
}

impl Place {
    /// The place of a key of the record.
    #[must_use]
    pub fn key(self, key: &str) -> String {
        match self {
            Self::Line(_) => format!("{self}: {key}"),
            Self::Field(_) | Self::Item(..) => format!("{self}.{key}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Field(field) => f.write_str(field),
            Self::Item(field, index) => write!(f, "{field}[{index}]"),
        }
    }
}
