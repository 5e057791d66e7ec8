//! The stored form of a [`State`]: a versioned JSON envelope, the same as that of the Elixir library.

use chrono::{SecondsFormat, Utc};
use serde_json::{Map, Value};

use super::json::{Fields, MAX_DEPTH, Object};
use super::json::{fits, too_deep_in, too_deep_item, unexpected, write_list};
use super::message::Message;
use super::messages::Messages;
use super::state::State;
use super::stored::{Header, HeaderState};
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
        Self::Damaged {
            path: path.to_owned(),
            reason: reason.into(),
        }
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

/// The version of a header whose messages are rows. Code that knows no rows refuses it.
const STORED_VERSION: i32 = 3;

/// `MIGRATIONS[n]` turns a state of version `n + 1` into one of version `n + 2`.
const MIGRATIONS: &[fn(&mut Map<String, Value>)] = &[rename_task_argument];

/// The version of the envelope.
#[must_use]
pub fn current_version() -> i32 {
    VERSION
}

/// The version of a header whose messages are rows: [`Rows::header`](super::stored::Rows).
#[must_use]
pub fn stored_version() -> i32 {
    STORED_VERSION
}

/// The envelope as JSON text, as it is stored.
///
/// # Errors
///
/// [`TooDeep`] if a value is nested too deeply to be read back.
pub fn to_text(state: &State) -> Result<String, TooDeep> {
    serialize_server_state(state).map(|envelope| envelope.to_string())
}

/// Reads the text of an envelope.
///
/// # Errors
///
/// [`ReadError`] if it is damaged, or has a version that this code does not know.
pub fn from_bytes(agent_id: impl Into<String>, bytes: &[u8]) -> Result<State, ReadError> {
    let data = serde_json::from_slice(bytes)
        .map_err(|error| ReadError::damaged("", format!("invalid JSON: {error}")))?;
    deserialize_server_state(agent_id, data)
}

/// Reads a stored header: one whose messages are rows, or an envelope.
///
/// # Errors
///
/// [`ReadError`] if it is damaged, or has a version that this code does not know.
pub fn read_stored(agent_id: impl Into<String>, header: &[u8]) -> Result<Header, ReadError> {
    let data: Value = serde_json::from_slice(header)
        .map_err(|error| ReadError::damaged("", format!("invalid JSON: {error}")))?;
    if data.get("version") != Some(&STORED_VERSION.into()) {
        return deserialize_server_state(agent_id, data).map(Header::Whole);
    }
    let mut data = data;
    data["version"] = VERSION.into();
    let count = data.pointer_mut("/state/messages").map(Value::take);
    let count = count.unwrap_or_default();
    let Some(count) = count.as_u64().and_then(|count| usize::try_from(count).ok()) else {
        return Err(unexpected("state.messages", "a count", &count));
    };
    let state = deserialize_server_state(agent_id, data)?;
    Ok(Header::Rows(HeaderState { state, count }))
}

pub(super) fn header_to_text(state: &State) -> Result<String, TooDeep> {
    let count = state.messages.len();
    let state = State {
        messages: Messages::new(),
        ..state.clone()
    };
    let mut envelope = serialize_server_state(&state)?;
    envelope["version"] = STORED_VERSION.into();
    envelope["state"]["messages"] = count.into();
    Ok(envelope.to_string())
}

pub(super) fn message_to_text(message: &Message, position: usize) -> Result<String, TooDeep> {
    match message.too_deep(&format!("state.messages[{position}]")) {
        Some(path) => Err(TooDeep { path }),
        None => Ok(message.to_json().to_string()),
    }
}

pub(super) fn message_from_bytes(bytes: &[u8], position: usize) -> Result<Message, ReadError> {
    let path = format!("state.messages[{position}]");
    let data = serde_json::from_slice(bytes)
        .map_err(|error| ReadError::damaged(&path, format!("invalid JSON: {error}")))?;
    Message::from_json(&path, data)
}

/// The envelope: version, state, time, pending message.
///
/// # Errors
///
/// [`TooDeep`] if a value is nested too deeply to be read back.
pub fn serialize_server_state(state: &State) -> Result<Value, TooDeep> {
    let now = Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true);
    let pending = state.pending_message.as_ref();
    let envelope = Object::new(&state.envelope)
        .set("version", VERSION)
        .set("state", state_to_json(state))
        .set("serialized_at", now)
        .set_some("pending_message", pending.map(Message::to_json));
    checked(envelope.into(), state)
}

/// The `state` part of the envelope: messages, todos and metadata.
///
/// # Errors
///
/// [`TooDeep`] if a value is nested too deeply to be read back.
pub fn serialize_state(state: &State) -> Result<Value, TooDeep> {
    checked(state_to_json(state), state)
}

/// Reads an envelope. Interrupts stay as they are.
///
/// # Errors
///
/// [`ReadError`] if it is damaged, or has a version that this code does not know.
pub fn deserialize_server_state(
    agent_id: impl Into<String>,
    data: Value,
) -> Result<State, ReadError> {
    let mut fields = Fields::new("", data)?;
    let version = read_version(&mut fields)?;
    let Some(data) = fields.present("state") else {
        let reason = "expected an object, found nothing";
        return Err(ReadError::damaged("state", reason));
    };
    let mut state = state_from_json(data, version)?;
    state.agent_id = Some(agent_id.into());
    state.pending_message = fields.optional("pending_message", Message::from_json)?;
    drop(fields.take("serialized_at"));
    state.envelope = fields.rest();
    Ok(state)
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
    let mut state = state_from_json(data, 1)?;
    state.agent_id = Some(agent_id.into());
    Ok(state)
}

fn state_to_json(state: &State) -> Value {
    Object::new(&state.extra)
        .set(
            "messages",
            state
                .messages
                .iter()
                .map(Message::to_json)
                .collect::<Value>(),
        )
        .set("todos", write_list(&state.todos, Todo::to_json))
        .set("metadata", state.metadata.clone())
        .into()
}

/// An envelope without a version has version 1.
fn read_version(fields: &mut Fields) -> Result<u64, ReadError> {
    let Some(found) = fields.present("version") else {
        return Ok(1);
    };
    // It may be written as `3.0`, or be too large for an integer.
    let is_future = found
        .as_f64()
        .is_some_and(|version| version > f64::from(VERSION));
    match found.as_u64() {
        version if is_future => Err(ReadError::FutureVersion {
            version: version.unwrap_or(u64::MAX),
        }),
        Some(version) if version > 0 => Ok(version),
        _ => Err(unexpected("version", "a version number", &found)),
    }
}

fn state_from_json(data: Value, version: u64) -> Result<State, ReadError> {
    let Value::Object(mut map) = data else {
        return Err(unexpected("state", "an object", &data));
    };
    let done = usize::try_from(version - 1).unwrap_or(MIGRATIONS.len());
    for migrate in MIGRATIONS.iter().skip(done) {
        migrate(&mut map);
    }
    let mut fields = Fields::new("state", map.into())?;
    let mut state = State {
        messages: fields.list("messages", Message::from_json)?.into(),
        todos: fields.list("todos", Todo::from_json)?,
        metadata: fields.optional_object("metadata")?.unwrap_or_default(),
        ..State::default()
    };
    state.extra = fields.rest();
    // They are always written, also if they are empty or null.
    for key in ["messages", "todos", "metadata"] {
        drop(state.extra.remove(key));
    }
    Ok(state)
}

/// Version 1 to 2: the task tools take `task_name` instead of `subagent_type`.
fn rename_task_argument(state: &mut Map<String, Value>) {
    let messages = state.get_mut("messages").and_then(Value::as_array_mut);
    let calls = messages
        .into_iter()
        .flatten()
        .filter_map(|message| message.get_mut("tool_calls")?.as_array_mut())
        .flatten();
    for call in calls {
        let is_task = call
            .get("name")
            .is_some_and(|name| name == "task" || name == "get_task_instructions");
        let arguments = call.get_mut("arguments").and_then(Value::as_object_mut);
        let Some(arguments) =
            arguments.filter(|arguments| is_task && !arguments.contains_key("task_name"))
        else {
            continue;
        };
        if let Some(name) = arguments.remove("subagent_type") {
            drop(arguments.insert("task_name".into(), name));
        }
    }
}

/// Each free-form value may be nested to the limit, wherever it is; the levels around it do not
/// count. JSON that is within the limit as a whole needs no further check.
fn checked(json: Value, state: &State) -> Result<Value, TooDeep> {
    if fits(&json, MAX_DEPTH) {
        return Ok(json);
    }
    let path = too_deep_in("state.metadata", &state.metadata)
        .or_else(|| too_deep_in("state", &state.extra))
        .or_else(|| too_deep_in("envelope", &state.envelope))
        .or_else(|| {
            let mut messages = state.messages.iter().enumerate();
            messages.find_map(|(n, message)| message.too_deep(&format!("state.messages[{n}]")))
        })
        .or_else(|| state.pending_message.as_ref()?.too_deep("pending_message"))
        .or_else(|| {
            let find = |todo: &Todo, path: &str| too_deep_in(path, &todo.extra);
            too_deep_item("state.todos", &state.todos, find)
        });
    match path {
        Some(path) => Err(TooDeep { path }),
        None => Ok(json),
    }
}
