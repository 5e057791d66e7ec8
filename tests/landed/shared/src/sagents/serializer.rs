//! The state as JSON, in versions. It reads what the Elixir library writes, and the other way
//! round.

use chrono::{SecondsFormat, Utc};
use serde_json::{Map, Value};

use super::json::{Fields, MAX_DEPTH};
use super::json::{deep_in, fits, wrong};
use super::message::Message;
use super::state::State;
use super::todo::Todo;

/// Why a stored state cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A newer version of the application wrote it.
    #[error("the state is of version {version}; this code reads versions up to {VERSION}")]
    FutureVersion {
        /// The version that it is of.
        version: u64,
    },
    /// It is no state.
    #[error("the state is damaged: {place}: {reason}")]
    Damaged {
        /// Where the damage is: `state.messages[3].role`.
        place: String,
        /// What is wrong there.
        reason: String,
    },
}

impl ReadError {
    pub(super) fn damaged(place: &str, reason: impl Into<String>) -> Self {
        let place = if place.is_empty() { "the whole" } else { place };
        Self::Damaged {
            place: place.to_owned(),
            reason: reason.into(),
        }
    }
}

/// Why a state cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place} is nested deeper than 100")]
pub struct TooDeep {
    /// Where the value is.
    pub place: String,
}

const VERSION: i32 = 2;

/// Each step turns a state of its version into one of the next; the first is for version 1.
const STEPS: &[fn(&mut Map<String, Value>)] = &[rename_task_argument];

/// The version that is written.
#[must_use]
pub fn current_version() -> i32 {
    VERSION
}

/// The state in its envelope as text, to the byte as it is stored.
///
/// # Errors
///
/// [`TooDeep`] if a value is nested deeper than can be read back.
pub fn to_text(state: &State) -> Result<String, TooDeep> {
    serialize_server_state(state).map(|envelope| envelope.to_string())
}

/// Reads what [`to_text`] wrote, or whatever else is there.
///
/// # Errors
///
/// [`ReadError`] if it is damaged, or of a version that this code does not know.
pub fn from_bytes(agent_id: impl Into<String>, bytes: &[u8]) -> Result<State, ReadError> {
    let data = serde_json::from_slice(bytes)
        .map_err(|error| ReadError::damaged("", format!("it is no JSON: {error}")))?;
    deserialize_server_state(agent_id, data)
}

/// The state in its envelope, as it is stored.
///
/// # Errors
///
/// [`TooDeep`] if a value is nested deeper than can be read back.
pub fn serialize_server_state(state: &State) -> Result<Value, TooDeep> {
    let mut envelope = state.envelope.clone();
    envelope.insert("version".into(), VERSION.into());
    envelope.insert("state".into(), write_state(state));
    let now = Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true);
    envelope.insert("serialized_at".into(), now.into());
    if let Some(message) = &state.pending_message {
        envelope.insert("pending_message".into(), message.write());
    }
    let envelope = Value::Object(envelope);
    check(&envelope, state)?;
    Ok(envelope)
}

/// The messages, todos and metadata.
///
/// # Errors
///
/// [`TooDeep`] if a value is nested deeper than can be read back.
pub fn serialize_state(state: &State) -> Result<Value, TooDeep> {
    let value = write_state(state);
    check(&value, state)?;
    Ok(value)
}

/// Reads an envelope. Interrupts stay as they are.
///
/// # Errors
///
/// [`ReadError`] if it is damaged, or of a version that this code does not know.
pub fn deserialize_server_state(
    agent_id: impl Into<String>,
    data: Value,
) -> Result<State, ReadError> {
    let mut fields = Fields::of("", data)?;
    let version = read_version(&mut fields)?;
    let Some(data) = fields.present("state") else {
        return Err(ReadError::damaged(
            "state",
            "expected an object, found nothing",
        ));
    };
    let pending = fields.present("pending_message");
    let mut state = read_state(data, version)?;
    state.agent_id = Some(agent_id.into());
    state.pending_message = match pending {
        Some(message) => Some(Message::read("pending_message", message)?),
        None => None,
    };
    fields.take("serialized_at");
    state.envelope = fields.rest();
    Ok(state)
}

/// Reads the `state` part alone, which says nothing of its version, or a whole envelope.
///
/// # Errors
///
/// [`ReadError`] if it is damaged, or of a version that this code does not know.
pub fn deserialize_state(agent_id: impl Into<String>, data: Value) -> Result<State, ReadError> {
    if data.get("state").is_some_and(Value::is_object) && data.get("messages").is_none() {
        return deserialize_server_state(agent_id, data);
    }
    let mut state = read_state(data, 1)?;
    state.agent_id = Some(agent_id.into());
    Ok(state)
}

fn write_state(state: &State) -> Value {
    let mut map = state.extra.clone();
    map.insert(
        "messages".into(),
        state.messages.iter().map(Message::write).collect(),
    );
    map.insert(
        "todos".into(),
        state.todos.iter().map(Todo::write).collect(),
    );
    map.insert("metadata".into(), state.metadata.clone().into());
    map.into()
}

/// A state without a version is of the first.
fn read_version(fields: &mut Fields) -> Result<u64, ReadError> {
    match fields.present("version") {
        None => Ok(1),
        // However it is written, a number beyond ours is of the future.
        Some(found) => match found.as_u64() {
            _ if found
                .as_f64()
                .is_some_and(|version| version > f64::from(VERSION)) =>
            {
                let version = found.as_u64().unwrap_or(u64::MAX);
                Err(ReadError::FutureVersion { version })
            }
            Some(version) if version > 0 => Ok(version),
            _ => Err(wrong("version", "a version number", &found)),
        },
    }
}

fn read_state(data: Value, version: u64) -> Result<State, ReadError> {
    let Value::Object(mut map) = data else {
        return Err(wrong("state", "an object", &data));
    };
    let done = usize::try_from(version - 1).unwrap_or(STEPS.len());
    for step in STEPS.iter().skip(done) {
        step(&mut map);
    }
    let mut fields = Fields::of("state", map.into())?;
    let mut state = State {
        messages: fields.list("messages", Message::read)?,
        todos: fields.list("todos", Todo::read)?,
        metadata: fields.optional_object("metadata")?.unwrap_or_default(),
        ..State::default()
    };
    state.extra = fields.rest();
    // These are always written.
    for key in ["messages", "todos", "metadata"] {
        state.extra.remove(key);
    }
    Ok(state)
}

/// Version 1 to 2: the task tools call their argument `task_name`.
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
            arguments.insert("task_name".into(), name);
        }
    }
}

/// What is free in form may be nested to the limit wherever it stands; the frame around it does not
/// count. A whole that is within the limit has nothing in it that is not.
fn check(whole: &Value, state: &State) -> Result<(), TooDeep> {
    if fits(whole, MAX_DEPTH) {
        return Ok(());
    }
    let messages = state.messages.iter().enumerate();
    let place = deep_in("state.metadata", &state.metadata)
        .or_else(|| deep_in("state", &state.extra))
        .or_else(|| deep_in("envelope", &state.envelope))
        .or_else(|| {
            messages
                .map(|(index, message)| (format!("state.messages[{index}]"), message))
                .find_map(|(place, message)| message.deep(&place))
        })
        .or_else(|| state.pending_message.as_ref()?.deep("pending_message"))
        .or_else(|| {
            let mut todos = state.todos.iter().enumerate();
            todos.find_map(|(index, todo)| deep_in(&format!("state.todos[{index}]"), &todo.extra))
        });
    match place {
        Some(place) => Err(TooDeep { place }),
        None => Ok(()),
    }
}
