//! Operations of an agent state, its JSON, and what's refused; no JSON makes anything panic.

mod strategies;

use proptest::prelude::*;
use sagents::serializer::{self, deserialize_server_state, deserialize_state, serialize_server_state, serialize_state};
use sagents::{
    Content, ContentPart, DisplayItem, DisplayKind, Message, PartKind, ReadError, Role, State, Todo, TodoStatus,
    TooDeep, ToolCall, ToolResult, display_items,
};
use serde_json::{Map, Value, json};

fn state(data: &Value) -> State {
    deserialize_state("agent", data.clone()).unwrap()
}

fn written(state: &State) -> Value {
    serialize_state(state).unwrap()
}

#[test]
fn pictures_and_files_are_shown_and_empty_text_is_not() {
    let parts = [
        (ContentPart::text(" \n"), None),
        (ContentPart::thinking(""), None),
        (ContentPart::new(PartKind::Other("video".into()), "…"), None),
        (
            ContentPart::image("aGk=", "image/png"),
            Some((DisplayKind::Image, "", json!({ "media_type": "image/png", "data": "aGk=" }))),
        ),
        (
            ContentPart::image("aGk=", "jpg").with_option("filename", "sea.jpg"),
            Some((DisplayKind::Image, "sea.jpg", json!({ "media_type": "image/jpeg", "data": "aGk=" }))),
        ),
        (ContentPart::image_url("https://a.test/b"), Some((DisplayKind::Image, "https://a.test/b", json!({})))),
        (
            ContentPart::file("aGk=", "pdf", "plan.pdf"),
            Some((DisplayKind::File, "plan.pdf", json!({ "media_type": "application/pdf" }))),
        ),
        (ContentPart::file_url("https://a.test/c"), Some((DisplayKind::File, "https://a.test/c", json!({})))),
    ];
    for (part, expected) in parts {
        let message = Message::new(Role::User, Some(Content::Parts(vec![part.clone()])));
        let expected = expected.map(|(kind, content, metadata)| DisplayItem {
            place: 0,
            kind,
            content: content.to_owned(),
            metadata: object(metadata),
        });
        assert_eq!(display_items(&message), Vec::from_iter(expected), "{part:?}");
    }
    assert_eq!(display_items(&Message::assistant("")), []);
    let mut calls = Message::assistant("");
    calls.tool_calls = vec![ToolCall::new("a", "search", json!({}))];
    assert_eq!(display_items(&calls)[0].place, 1, "the text may come later");
    assert_eq!(display_items(&Message::new(Role::User, Some(Content::Text(String::new())))), []);
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("not an object: {other}"),
    }
}

#[test]
fn a_version_from_the_future_is_refused_on_every_path() {
    let data = json!({ "version": 3, "state": { "messages": [], "todos": [], "metadata": {} } });
    let future = Err(ReadError::FutureVersion { version: 3 });
    assert_eq!(deserialize_server_state("agent", data.clone()), future);
    assert_eq!(deserialize_state("agent", data.clone()), future);
    assert_eq!(State::from_serialized("agent", data), future);
    for version in ["3.0", "99999999999999999999"] {
        let text = format!(r#"{{"version":{version},"state":{{}}}}"#);
        let read = serializer::from_bytes("agent", text.as_bytes());
        assert!(matches!(read, Err(ReadError::FutureVersion { .. })), "{version}");
    }
}

#[test]
fn damage_is_reported_with_its_path() {
    for (data, message) in [
        (json!([]), "the state is damaged: root: expected an object, found an array"),
        (json!({ "version": 2 }), "the state is damaged: state: expected an object, found nothing"),
        (json!({ "version": 2, "state": 7 }), "the state is damaged: state: expected an object, found a number"),
        (
            json!({ "version": "2", "state": {} }),
            "the state is damaged: version: expected a version number, found a string",
        ),
        (
            json!({ "version": 2, "state": { "messages": [{ "role": "user", "content": null }, 1] } }),
            "the state is damaged: state.messages[1]: expected an object, found a number",
        ),
        (
            json!({ "version": 2, "state": { "messages": [{ "role": "robot" }] } }),
            "the state is damaged: state.messages[0].role: \"robot\" is not a role",
        ),
        (
            json!({ "state": { "messages": [{ "role": "tool", "tool_results": [{ "tool_call_id": 1 }] }] } }),
            "the state is damaged: state.messages[0].tool_results[0].tool_call_id: expected a string, found a number",
        ),
        (
            json!({ "state": { "todos": [{ "content": "x", "status": "pending" }] } }),
            "the state is damaged: state.todos[0].id: expected a number or a string, found null",
        ),
    ] {
        let error = deserialize_server_state("agent", data).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let error = serializer::from_bytes("agent", b"{\"state\":").unwrap_err();
    assert!(error.to_string().starts_with("the state is damaged: root: invalid JSON: "), "{error}");
}

#[test]
fn a_version_from_the_future_is_found_behind_what_cannot_be_read() {
    let read = |text: &str| serializer::from_bytes("agent", text.as_bytes());
    assert_eq!(read(r#"{"state":[1],"version":7}"#), Err(ReadError::FutureVersion { version: 7 }));
    let damage = read(r#"{"state":[1],"version":2}"#).unwrap_err();
    assert_eq!(damage.to_string(), "the state is damaged: state: expected an object, found an array");
}

#[test]
fn values_that_are_deeper_than_any_text_are_refused() {
    let nested = (0..1_000).fold(json!(1), |inner, _| json!([inner]));
    let read = deserialize_state("agent", json!({ "messages": [], "metadata": { "deep": nested } }));
    assert!(matches!(read, Err(ReadError::Damaged { .. })), "{read:?}");
}

#[test]
fn nulls_and_empty_lists_are_written_as_they_were_read_and_once() {
    let text = r#"{"role":"tool","content":null,"status":"complete","metadata":null,"tool_calls":[],"x":{"y":null}}"#;
    let mut message: Message = serde_json::from_str(text).unwrap();
    let tree: Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&message).unwrap(), tree);
    message.metadata = Some(object(json!({ "a": 1 })));
    message.tool_calls = vec![ToolCall::new("a", "tool", json!({}))];
    let text = serde_json::to_string(&message).unwrap();
    assert_eq!((text.matches("metadata").count(), text.matches("tool_calls").count()), (1, 1), "{text}");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["metadata"], json!({ "a": 1 }));
}

#[test]
fn several_interrupts_are_restored_only_together() {
    let one = |kind: &str| json!({ "type": kind });
    let several = |kinds: &[&str]| {
        let interrupts: Vec<_> = kinds.iter().map(|kind| one(kind)).collect();
        json!({ "type": "multiple_interrupts", "interrupts": interrupts })
    };
    for (data, kept) in [
        (one("ask_user"), true),
        (one("sub_agent"), false),
        (several(&["ask_user", "ask_user"]), true),
        (several(&["ask_user", "sub_agent"]), false),
        (several(&[]), false),
        (json!({ "type": "multiple_interrupts" }), false),
        (Value::Null, false),
    ] {
        let mut state = State::new();
        state.add_message(Message::tool_results([ToolResult::interrupt("call_1", "ask", "waiting", data.clone())]));
        state.clean_stale_interrupts(|data| data["type"] == "ask_user");
        assert_eq!(state.messages[0].tool_results[0].is_interrupt, kept, "{data}");
    }
}

#[test]
fn a_todo_replaces_the_one_with_the_same_id() {
    let mut state = State::new();
    state.set_todos(vec![Todo::new(1, "first"), Todo::new("b", "second")]);
    state.put_todo(Todo::new(1, "changed").status(TodoStatus::Completed));
    state.put_todo(Todo::new("1", "a string is not a number"));
    let contents: Vec<_> = state.todos.iter().map(|todo| todo.content.as_str()).collect();
    assert_eq!(contents, ["changed", "second", "a string is not a number"]);
    assert_eq!(state.todos_by_status(&TodoStatus::Completed).count(), 1);
    state.delete_todo(&"b".into());
    assert_eq!(state.get_todo(&"b".into()), None);
    assert_eq!(state.get_todo(&1.into()).unwrap().content, "changed");
}

#[test]
fn todos_and_messages_serialize_as_they_are_stored() {
    let todo = Todo::new("a", "write").status(TodoStatus::InProgress);
    let stored = json!({ "id": "a", "content": "write", "status": "in_progress" });
    assert_eq!(serde_json::to_value(&todo).unwrap(), stored);
    assert_eq!(serde_json::from_value::<Todo>(stored).unwrap(), todo);
    let message = Message::user("hello");
    let again: Message = serde_json::from_value(serde_json::to_value(&message).unwrap()).unwrap();
    assert_eq!(again, message);
    assert!(serde_json::from_value::<Message>(json!({ "role": "robot" })).is_err());
}

#[test]
fn a_role_is_one_text_in_json_and_in_storage() {
    for role in [Role::System, Role::User, Role::Assistant, Role::Tool] {
        assert_eq!(serde_json::to_value(role).unwrap(), json!(role.as_str()));
        assert_eq!(serde_json::from_value::<Role>(json!(role.as_str())).unwrap(), role);
    }
    let unknown = serde_json::from_value::<Message>(json!({ "role": "robot" })).unwrap_err();
    assert!(unknown.to_string().contains("\"robot\" is not a role"), "{unknown}");
}

#[test]
fn new_middleware_starts_with_its_default_on_an_old_state() {
    #[derive(Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Budget {
        spent: u64,
    }
    let mut state =
        state(&json!({ "messages": [], "todos": [], "metadata": { "removed_middleware": { "left": true } } }));
    assert_eq!(state.get_typed::<Budget>("budget").unwrap(), Budget::default());
    state.put_typed("budget", &Budget { spent: u64::MAX }).unwrap();
    assert_eq!(state.get_typed::<Budget>("budget").unwrap(), Budget { spent: u64::MAX });
    assert!(state.get_typed::<Vec<u8>>("budget").is_err());
    assert_eq!(written(&state)["metadata"]["removed_middleware"], json!({ "left": true }));
}

#[test]
fn fields_of_the_process_are_not_stored() {
    let mut state = State { agent_id: Some("agent".into()), interrupt_data: Some(json!(1)), ..State::new() };
    state.extensions.insert(42_u8);
    assert_eq!(written(&state), json!({ "messages": [], "todos": [], "metadata": {} }));
    state.put_metadata("key", 1);
    state.reset();
    assert_eq!((state.extensions.get::<u8>(), state.agent_id.as_deref()), (Some(&42), Some("agent")));
    assert_eq!(state, State::new());
}

#[test]
fn a_tool_result_is_replaced_by_its_call_id() {
    let mut state = State::new();
    state
        .add_messages([Message::user("hi"), Message::tool_results([ToolResult::interrupt("a", "ask", "…", json!(1))])]);
    assert!(!state.replace_tool_result("b", &ToolResult::new("b", "ask", "no")));
    assert!(state.replace_tool_result("a", &ToolResult::new("a", "ask", "yes")));
    assert_eq!(state.messages[1].tool_results, [ToolResult::new("a", "ask", "yes")]);
}

#[test]
fn the_newest_of_several_results_is_replaced_if_only_that_is_meant() {
    let result = |content: &str| ToolResult::new("a", "ask", content);
    let other = ToolResult::new("b", "ask", "other");
    let mut state = State::new();
    state.add_messages([
        Message::tool_results([result("first")]),
        Message::tool_results([result("second"), result("third"), other.clone()]),
        Message::user("hi"),
    ]);
    assert!(!state.replace_newest_tool_result("c", &other));
    assert!(state.replace_newest_tool_result("a", &ToolResult::error("a", "ask", "no")));
    let results = |state: &State| state.messages.iter().flat_map(|m| m.tool_results.clone()).collect::<Vec<_>>();
    let failed = ToolResult { is_error: true, ..result("no") };
    assert_eq!(results(&state), [result("first"), result("second"), failed, other.clone()]);
    assert!(state.replace_tool_result("a", &result("all")));
    assert_eq!(results(&state), [result("all"), result("all"), result("all"), other]);
}

#[test]
fn nesting_past_the_limit_is_refused_with_its_path() {
    type Put = fn(&mut State, Value);
    let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    let cases: [(&str, Put); 5] = [
        ("state.metadata.deep", |state, value| state.put_metadata("deep", value)),
        ("state.messages[0].tool_calls[0].arguments", |state, value| {
            state.add_message(Message::tool_calls([ToolCall::new("a", "tool", value)]));
        }),
        ("state.messages[0].tool_results[0].interrupt_data", |state, value| {
            state.add_message(Message::tool_results([ToolResult::interrupt("a", "ask", "…", value)]));
        }),
        ("state.messages[0].metadata.deep", |state, value| {
            let metadata = Some(Map::from_iter([("deep".to_owned(), value)]));
            state.add_message(Message { metadata, ..Message::user("hi") });
        }),
        ("envelope.deep", |state, value| {
            state.envelope.insert("deep".into(), value);
        }),
    ];
    for (path, put) in cases {
        let mut state = State::new();
        put(&mut state, nested(100));
        let text = serializer::to_text(&state).unwrap();
        assert_eq!(serializer::from_bytes("agent", text.as_bytes()).unwrap(), state, "{path}");
        let mut state = State::new();
        put(&mut state, nested(101));
        assert_eq!(serializer::to_text(&state), Err(TooDeep { path: path.to_owned() }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_state_reads_back_equal(state in strategies::state()) {
        let text = serializer::to_text(&state).unwrap();
        let again = serializer::from_bytes("agent", text.as_bytes()).unwrap();
        prop_assert_eq!(&again, &state);
        // The text is plain JSON, and a second round trip changes nothing.
        let mut once: Value = serde_json::from_str(&text).unwrap();
        let mut twice = serialize_server_state(&again).unwrap();
        once["serialized_at"] = Value::Null;
        twice["serialized_at"] = Value::Null;
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn no_json_makes_anything_panic(value in strategies::value()) {
        exercise(value);
    }

    #[test]
    fn no_damage_makes_anything_panic(state in strategies::state(), damage in strategies::value(), at in any::<u64>()) {
        let mut data = serialize_server_state(&state).unwrap();
        replace_nth(&mut data, &mut (at % 60), &damage);
        exercise(data);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..40), state in strategies::state(), at in any::<usize>()) {
        let _ = serializer::from_bytes("agent", &bytes);
        let mut text = serializer::to_text(&state).unwrap().into_bytes();
        let at = at % text.len();
        text.truncate(at);
        text.append(&mut bytes);
        let _ = serializer::from_bytes("agent", &text);
    }
}

/// Replaces the nth value, counted from the root.
fn replace_nth(value: &mut Value, left: &mut u64, with: &Value) {
    if *left == 0 {
        *value = with.clone();
    }
    *left = left.wrapping_sub(1);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace_nth(item, left, with)),
        Value::Object(map) => map.values_mut().for_each(|item| replace_nth(item, left, with)),
        _ => {}
    }
}

/// Calls every reader and every operation of a state.
fn exercise(data: Value) {
    let _ = deserialize_server_state("agent", data.clone());
    let _ = State::from_serialized("agent", data.clone());
    let Ok(mut state) = deserialize_state("agent", data.clone()) else {
        return;
    };
    let other = state.clone();
    for message in &other.messages {
        let _ = display_items(message);
        for result in &message.tool_results {
            state.replace_tool_result(&result.tool_call_id, result);
        }
    }
    for todo in other.todos.clone() {
        state.put_todo(todo.clone());
        let _ = state.get_todo(&todo.id);
        let _ = state.todos_by_status(&todo.status).count();
        state.delete_todo(&todo.id);
    }
    for key in other.metadata.keys() {
        let _ = state.get_typed::<Vec<String>>(key);
    }
    state.put_metadata("key", data);
    let mut state = state.merge(other);
    state.clean_stale_interrupts(Value::is_object);
    state.cancel_pending_interrupts();
    let _ = serialize_state(&state);
    state.reset();
}
