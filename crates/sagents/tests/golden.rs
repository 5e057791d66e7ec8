//! The output of the Elixir library, under `golden/`, is read, written, migrated, merged and displayed as in Elixir.

use sagents::serializer::{
    current_version, deserialize_server_state, deserialize_state, serialize_server_state, serialize_state,
};
use sagents::{DisplayItem, DisplayKind, Message, State, display_items};
use serde_json::{Map, Value, json};

/// The cases of a golden file.
fn golden(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(!cases.is_empty());
    cases
}

fn state(data: &Value) -> State {
    deserialize_state("agent", data.clone()).unwrap()
}

fn written(state: &State) -> Value {
    serialize_state(state).unwrap()
}

#[test]
fn states_of_the_elixir_library_are_written_as_they_were_read() {
    for case in golden("states") {
        let state = deserialize_server_state("agent", case["data"].clone()).unwrap();
        let mut again = serialize_server_state(&state).unwrap();
        again["serialized_at"] = case["data"]["serialized_at"].clone();
        assert_eq!(again, case["data"], "{}", case["name"]);
    }
}

#[test]
fn older_versions_are_migrated_on_every_path() {
    for case in golden("migrations") {
        let state = deserialize_server_state("agent", case["input"].clone()).unwrap();
        let again = serialize_server_state(&state).unwrap();
        assert_eq!(again["state"], case["state"], "{}", case["name"]);
        assert_eq!(again["version"], json!(current_version()));
        assert_eq!(written(&self::state(&case["input"]["state"])), case["state"], "the state alone");
        assert_eq!(written(&self::state(&case["input"])), case["state"], "the envelope");
    }
}

#[test]
fn states_merge_as_in_elixir() {
    for case in golden("merges") {
        let merged = state(&case["left"]).merge(state(&case["right"]));
        assert_eq!(written(&merged), case["merged"], "{}", case["name"]);
    }
}

#[test]
fn interrupts_are_demoted_as_in_elixir() {
    for case in golden("interrupts") {
        let mut cancelled = state(&case["state"]);
        cancelled.cancel_pending_interrupts();
        assert_eq!(written(&cancelled), case["cancelled"], "{}", case["name"]);
        let mut cleaned = state(&case["state"]);
        cleaned.clean_stale_interrupts(|_| false);
        assert_eq!(written(&cleaned), case["cleaned"], "{}", case["name"]);
        let read = State::from_serialized("agent", case["state"].clone()).unwrap();
        assert_eq!(written(&read), case["cleaned"], "from_serialized demotes all");
    }
}

#[test]
fn display_items_other_than_pictures_are_the_same_as_in_elixir() {
    for case in golden("display_items") {
        let messages = state(&json!({ "messages": case["messages"] })).messages;
        let items: Vec<Vec<Value>> = messages
            .iter()
            .map(|message| display_items(message).iter().filter_map(|item| shown(message, item)).collect())
            .collect();
        assert_eq!(json!(items), case["items"], "{}", case["name"]);
    }
}

/// A display item in the form of the Elixir library, which has none for pictures and files.
fn shown(message: &Message, item: &DisplayItem) -> Option<Value> {
    let (kind, mut content) = match &item.kind {
        DisplayKind::Image | DisplayKind::File => return None,
        DisplayKind::Text => ("text", object(json!({ "text": item.content }))),
        DisplayKind::Thinking => ("thinking", object(json!({ "text": item.content }))),
        DisplayKind::ToolCall { tool_call_id } => {
            assert_eq!(item.metadata["call_id"], json!(tool_call_id));
            let text = item.metadata["display_text"].as_str().or(item.metadata["name"].as_str());
            assert_eq!(Some(item.content.as_str()), text);
            ("tool_call", Map::new())
        }
        DisplayKind::ToolResult { tool_call_id } => {
            assert_eq!(item.metadata["tool_call_id"], json!(tool_call_id));
            ("tool_result", object(json!({ "content": item.content })))
        }
    };
    content.extend(item.metadata.clone());
    Some(json!({ "type": kind, "message_type": message.role.as_str(), "content": content }))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("not an object: {other}"),
    }
}
