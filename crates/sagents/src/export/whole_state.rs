//! The agent state of an export as JSON: its envelope, and the ids of its messages beside it.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::messages::Messages;
use super::super::serializer;
use super::super::state::State;
use super::checks::Problem;
use super::fields::Fields;

pub(super) fn serialize<'a, S: Serializer>(state: impl Into<Option<&'a State>>, target: S) -> Result<S::Ok, S::Error> {
    let Some(state) = state.into() else {
        return target.serialize_none();
    };
    let envelope = serializer::serialize_server_state(state);
    let envelope = envelope.map_err(serde::ser::Error::custom)?;
    let ids: Vec<_> = (0..state.messages.len()).map(|index| state.messages.id(index)).collect();
    let undisplayed = &state.undisplayed;
    let whole = json!({ "envelope": envelope, "message_ids": ids, "undisplayed": undisplayed });
    whole.serialize(target)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<Option<State>, D::Error> {
    match Option::<Map<String, Value>>::deserialize(source)? {
        Some(map) => read(Fields(map)).map(Some).map_err(D::Error::custom),
        None => Ok(None),
    }
}

fn read(mut fields: Fields) -> Result<State, Problem> {
    let envelope = fields.take("envelope")?;
    let ids: Vec<Option<Uuid>> = fields.take("message_ids")?;
    let undisplayed = fields.take("undisplayed")?;
    fields.end()?;
    let state = serializer::deserialize_server_state("", envelope);
    let state = state.map_err(|error| Problem::of(error, "envelope."))?;
    let found = state.messages.len();
    if ids.len() != found {
        let reason = format!("expected {found} of them, found {}", ids.len());
        return Err(Problem::new("message_ids", reason));
    }
    let mut messages = Messages::new();
    for (id, message) in ids.into_iter().zip(state.messages) {
        match id {
            Some(id) => messages.push_with_id(id, message),
            None => messages.push(message),
        }
    }
    Ok(State { agent_id: None, messages, undisplayed, ..state })
}
