//! The stored form of a [`State`]: a versioned JSON envelope, the same as that of the Elixir library.

use serde::de::{MapAccess, SeqAccess};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::Timestamp;
use super::json::{Fields, FromJson, MAX_DEPTH, Object, Path, Reader};
use super::json::{from_slice, from_value, kind, too_deep_in, too_deep_item};
use super::message::Message;
use super::state::State;
use super::stored::HeaderState;
use super::todo::Todo;

/// Why a stored state cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A newer version of the application wrote it.
    #[error("the state has version {version}, which this code does not read")]
    FutureVersion {
        /// The version in the envelope.
        version: u64,
    },
    /// It is not JSON, or not a state.
    #[error("the state is damaged: {path}: {reason}")]
    Damaged {
        /// The place of the error, for example `state.messages[3].role`.
        path: String,
        /// What was expected there.
        reason: String,
    },
}

impl ReadError {
    pub(super) fn damaged(path: &str, reason: impl Into<String>) -> Self {
        let path = if path.is_empty() { "root" } else { path };
        Self::Damaged { path: path.to_owned(), reason: reason.into() }
    }
}

/// A state cannot be stored because it could not be read back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} is nested deeper than {MAX_DEPTH}")]
pub struct TooDeep {
    /// The place of the value, for example `state.metadata.plan`.
    pub path: String,
}

const VERSION: i32 = 2;

/// The version of a stored header, whose messages are rows. Code that knows no rows refuses it.
pub(crate) const STORED_VERSION: i32 = 3;

/// `MIGRATIONS[n]` turns a state of version `n + 1` into one of version `n + 2`.
const MIGRATIONS: &[fn(&mut State)] = &[rename_task_argument];

/// The version of the envelope.
#[must_use]
pub fn current_version() -> i32 {
    VERSION
}

/// The envelope as JSON text.
///
/// # Errors
///
/// [`TooDeep`] if a value is nested too deeply to be read back.
pub fn to_text(state: &State) -> Result<String, TooDeep> {
    check_depth(state)?;
    Ok(text(&Envelope::of(state)))
}

/// Reads the text of an envelope.
///
/// # Errors
///
/// [`ReadError`] if it is damaged, or has a version that this code does not know.
pub fn from_bytes(agent_id: impl Into<String>, bytes: &[u8]) -> Result<State, ReadError> {
    read_text(bytes, VERSION)?.into_state(agent_id)
}

/// Reads a stored header, whose messages are rows.
pub(crate) fn read_stored(agent_id: impl Into<String>, header: &[u8]) -> Result<HeaderState, ReadError> {
    read_text(header, STORED_VERSION)?.into_header(agent_id)
}

/// The envelope: version, state, time, pending message.
///
/// # Errors
///
/// [`TooDeep`] if a value is nested too deeply to be read back.
pub fn serialize_server_state(state: &State) -> Result<Value, TooDeep> {
    check_depth(state)?;
    Ok(tree(&Envelope::of(state)))
}

/// The `state` part of the envelope: messages, todos and metadata.
///
/// # Errors
///
/// [`TooDeep`] if a value is nested too deeply to be read back.
pub fn serialize_state(state: &State) -> Result<Value, TooDeep> {
    check_depth(state)?;
    Ok(tree(&Part { state, rows: None }))
}

/// Reads an envelope. Interrupts stay as they are.
///
/// # Errors
///
/// [`ReadError`] if it is damaged, or has a version that this code does not know.
pub fn deserialize_server_state(agent_id: impl Into<String>, data: Value) -> Result<State, ReadError> {
    let _ = read_version(data.get("version"), VERSION)?;
    let envelope: ReadEnvelope = from_value(Path::Root(""), data)?;
    envelope.into_state(agent_id)
}

/// Reads an envelope, or its `state` part alone. The part does not state its version, so it is
/// migrated from version 1, which changes nothing in a newer one.
///
/// # Errors
///
/// [`ReadError`] if it is damaged, or has a version that this code does not know.
pub fn deserialize_state(agent_id: impl Into<String>, data: Value) -> Result<State, ReadError> {
    if data.get("state").is_some_and(Value::is_object) && data.get("messages").is_none() {
        return deserialize_server_state(agent_id, data);
    }
    let part: ReadPart = from_value(Path::Root("state"), data)?;
    let mut state = part.into_state(1)?;
    state.agent_id = Some(agent_id.into());
    Ok(state)
}

/// The envelope without messages, for [`Rows`](super::stored::Rows). There are `count` of them.
pub(super) fn header_to_text(state: &State, count: usize) -> Result<String, TooDeep> {
    check_depth_of_header(state)?;
    let rows = Some(count);
    let header = Envelope { version: STORED_VERSION, part: Part { state, rows } };
    Ok(text(&header))
}

/// A message as a row.
pub(super) fn message_to_text(message: &Message, position: usize) -> Result<String, TooDeep> {
    match message.too_deep(Path::Index(&MESSAGES, position)) {
        Some(path) => Err(TooDeep { path }),
        None => Ok(text(message)),
    }
}

/// Reads the row of a message.
pub(super) fn message_from_bytes(bytes: &[u8], position: usize) -> Result<Message, ReadError> {
    from_slice(Path::Index(&MESSAGES, position), bytes)
}

const MESSAGES: Path<'static> = Path::Root("state.messages");

/// The key of [`State::undisplayed`] in a header.
const UNDISPLAYED: &str = "undisplayed";

/// An envelope to be written.
struct Envelope<'a> {
    version: i32,
    part: Part<'a>,
}

impl<'a> Envelope<'a> {
    fn of(state: &'a State) -> Self {
        Self { version: VERSION, part: Part { state, rows: None } }
    }
}

impl Serialize for Envelope<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let state = self.part.state;
        let now = Timestamp::now().to_string();
        let mut object = Object::new(serializer, &state.envelope)?;
        object.set("version", &self.version)?;
        object.set("state", &self.part)?;
        object.set("serialized_at", &now)?;
        object.set_some("pending_message", state.pending_message.as_ref())?;
        if self.part.rows.is_some() && !state.undisplayed.is_empty() {
            object.set(UNDISPLAYED, &state.undisplayed)?;
        }
        object.end()
    }
}

/// The `state` part of an envelope to be written, with the messages or with their number.
struct Part<'a> {
    state: &'a State,
    /// The number of messages, if they are rows.
    rows: Option<usize>,
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let state = self.state;
        let mut object = Object::new(serializer, &state.extra)?;
        if let Some(count) = self.rows {
            object.set("messages", &json!({ "count": count }))?;
        } else {
            object.set("messages", &state.messages)?;
        }
        object.set("todos", &state.todos)?;
        object.set("metadata", &state.metadata)?;
        object.end()
    }
}

/// Cannot fail: a state has nothing that JSON does not have.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("a state can be written as JSON")
}

fn tree(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("a state can be written as JSON")
}

fn read_text(bytes: &[u8], newest: i32) -> Result<ReadEnvelope, ReadError> {
    let root = Path::Root("");
    from_slice(root, bytes).or_else(|error| {
        // A newer version may have another form.
        if let Ok(ReadVersion(version)) = from_slice(root, bytes) {
            let _ = read_version(version.as_ref(), newest)?;
        }
        Err(error)
    })
}

/// An envelope without a version has version 1.
fn read_version(found: Option<&Value>, newest: i32) -> Result<u64, ReadError> {
    let Some(found) = found.filter(|found| !found.is_null()) else {
        return Ok(1);
    };
    // It may be written as `4.0`, or be too large for an integer.
    let is_future = found.as_f64().is_some_and(|version| version > f64::from(newest));
    match found.as_u64() {
        version if is_future => Err(ReadError::FutureVersion { version: version.unwrap_or(u64::MAX) }),
        Some(version) if version > 0 => Ok(version),
        _ => Err(unexpected("version", "a version number", kind(found))),
    }
}

fn unexpected(path: &str, expected: &str, found: &str) -> ReadError {
    ReadError::damaged(path, format!("expected {expected}, found {found}"))
}

/// The version alone.
struct ReadVersion(Option<Value>);

impl FromJson for ReadVersion {
    const EXPECTED: &'static str = "an object";

    fn from_object<'de, A: MapAccess<'de>>(mut fields: Fields<'_, A>) -> Result<Self, A::Error> {
        let mut version = None;
        while let Some(key) = fields.next_key()? {
            match &*key {
                "version" => version = Some(fields.value()?),
                _ => fields.skip()?,
            }
        }
        Ok(Self(version))
    }
}

/// An envelope that was read.
struct ReadEnvelope {
    version: Option<Value>,
    part: Option<ReadPart>,
    pending_message: Option<Message>,
    rest: Map<String, Value>,
}

impl FromJson for ReadEnvelope {
    const EXPECTED: &'static str = "an object";

    fn from_object<'de, A: MapAccess<'de>>(mut fields: Fields<'_, A>) -> Result<Self, A::Error> {
        let (mut version, mut part, mut pending_message) = (None, None, None);
        while let Some(key) = fields.next_key()? {
            match &*key {
                "version" => version = Some(fields.value()?),
                "state" => part = fields.optional("state")?,
                "serialized_at" => fields.skip()?,
                "pending_message" => pending_message = fields.optional("pending_message")?,
                _ => fields.keep(key)?,
            }
        }
        Ok(Self { version, part, pending_message, rest: fields.rest })
    }
}

impl ReadEnvelope {
    /// An envelope with its messages inside.
    fn into_state(self, agent_id: impl Into<String>) -> Result<State, ReadError> {
        let version = read_version(self.version.as_ref(), VERSION)?;
        let Some(part) = self.part else {
            return Err(unexpected("state", "an object", "nothing"));
        };
        Ok(State {
            agent_id: Some(agent_id.into()),
            pending_message: self.pending_message,
            envelope: self.rest,
            ..part.into_state(version)?
        })
    }

    fn into_header(mut self, agent_id: impl Into<String>) -> Result<HeaderState, ReadError> {
        let version = read_version(self.version.as_ref(), STORED_VERSION)?;
        if version != u64::from(STORED_VERSION.unsigned_abs()) {
            return Err(ReadError::damaged("version", format!("expected {STORED_VERSION}, found {version}")));
        }
        let messages = self.part.as_mut().and_then(|part| part.messages.take());
        let count = match messages {
            Some(ReadMessages::Count(count)) => count.unwrap_or_default(),
            Some(ReadMessages::Inside(_)) => {
                return Err(unexpected("state.messages", "an object", "an array"));
            }
            None => return Err(unexpected("state.messages", "an object", "nothing")),
        };
        let number = count.as_u64().and_then(|count| count.try_into().ok());
        let Some(number) = number else {
            return Err(unexpected("state.messages.count", "a number", kind(&count)));
        };
        self.version = Some(VERSION.into());
        let undisplayed = self.rest.remove(UNDISPLAYED);
        let undisplayed = undisplayed.and_then(|ids| serde_json::from_value(ids).ok());
        let mut state = self.into_state(agent_id)?;
        state.undisplayed = undisplayed.unwrap_or_default();
        Ok(HeaderState { state, count: number })
    }
}

/// The `state` part of an envelope that was read.
struct ReadPart {
    messages: Option<ReadMessages>,
    /// Without messages.
    state: State,
}

impl FromJson for ReadPart {
    const EXPECTED: &'static str = "an object";

    fn from_object<'de, A: MapAccess<'de>>(mut fields: Fields<'_, A>) -> Result<Self, A::Error> {
        let (mut messages, mut state) = (None, State::new());
        while let Some(key) = fields.next_key()? {
            match &*key {
                "messages" => messages = fields.optional("messages")?,
                "todos" => state.todos = fields.list("todos")?,
                "metadata" => {
                    state.metadata = fields.optional_object("metadata")?.unwrap_or_default();
                }
                _ => fields.keep(key)?,
            }
        }
        state.extra = fields.rest;
        // They are always written, also if they are empty or null.
        for key in ["messages", "todos", "metadata"] {
            drop(state.extra.remove(key));
        }
        Ok(Self { messages, state })
    }
}

impl ReadPart {
    fn into_state(self, version: u64) -> Result<State, ReadError> {
        let mut state = self.state;
        state.messages = match self.messages {
            Some(ReadMessages::Inside(messages)) => messages.into(),
            Some(ReadMessages::Count(_)) => {
                return Err(unexpected("state.messages", "an array", "an object"));
            }
            None => state.messages,
        };
        let done = usize::try_from(version - 1).unwrap_or(MIGRATIONS.len());
        for migrate in MIGRATIONS.iter().skip(done) {
            migrate(&mut state);
        }
        Ok(state)
    }
}

/// The messages, or how many rows there are.
enum ReadMessages {
    Inside(Vec<Message>),
    Count(Option<Value>),
}

impl FromJson for ReadMessages {
    const EXPECTED: &'static str = "an array";

    fn from_list<'de, A: SeqAccess<'de>>(at: Reader<'_>, items: A) -> Result<Self, A::Error> {
        FromJson::from_list(at, items).map(Self::Inside)
    }

    fn from_object<'de, A: MapAccess<'de>>(mut fields: Fields<'_, A>) -> Result<Self, A::Error> {
        let mut count = None;
        while let Some(key) = fields.next_key()? {
            match &*key {
                "count" => count = Some(fields.value()?),
                _ => fields.skip()?,
            }
        }
        Ok(Self::Count(count))
    }
}

/// Version 1 to 2: the task tools take `task_name` instead of `subagent_type`.
fn rename_task_argument(state: &mut State) {
    let messages = state.messages.iter_mut();
    for call in messages.flat_map(|message| &mut message.tool_calls) {
        let is_task = call.name == "task" || call.name == "get_task_instructions";
        let Some(Value::Object(arguments)) = call.arguments.as_mut().filter(|_| is_task) else {
            continue;
        };
        if arguments.contains_key("task_name") {
            continue;
        }
        if let Some(name) = arguments.remove("subagent_type") {
            drop(arguments.insert("task_name".into(), name));
        }
    }
}

/// Each free-form value may be nested to the limit, wherever it is; the levels around it do not
/// count.
fn check_depth(state: &State) -> Result<(), TooDeep> {
    check_depth_of_header(state)?;
    let path = too_deep_item(MESSAGES, &state.messages, Message::too_deep);
    path.map_or(Ok(()), |path| Err(TooDeep { path }))
}

fn check_depth_of_header(state: &State) -> Result<(), TooDeep> {
    let path = too_deep_in(Path::Root("state.metadata"), &state.metadata)
        .or_else(|| too_deep_in(Path::Root("state"), &state.extra))
        .or_else(|| too_deep_in(Path::Root("envelope"), &state.envelope))
        .or_else(|| {
            let pending = state.pending_message.as_ref()?;
            pending.too_deep(Path::Root("pending_message"))
        })
        .or_else(|| too_deep_item(Path::Root("state.todos"), &state.todos, Todo::too_deep));
    path.map_or(Ok(()), |path| Err(TooDeep { path }))
}
