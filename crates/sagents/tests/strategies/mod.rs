//! Arbitrary states for property tests. Unit tests include this file, too.

#![allow(dead_code, reason = "each test uses a part of it")]

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use sagents::{
    Content, ContentPart, Message, MessageStatus, PartKind, Role, State, Todo, TodoId, TodoStatus, ToolCall,
    ToolCallStatus, ToolResult,
};

/// Any text, including U+0000, other control characters and characters beyond the basic plane.
pub fn text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => any::<char>(),
        1 => Just('\0'),
        1 => proptest::char::range('\u{1}', '\u{1f}'),
        1 => proptest::char::range('\u{1F300}', '\u{1F6FF}'),
    ];
    vec(character, 0..10).prop_map(|characters| characters.into_iter().collect())
}

/// Any JSON: integers of i64 and u64, any finite float.
pub fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        proptest::num::f64::ANY
            .prop_filter_map("finite", |float| serde_json::Number::from_f64(float).map(Value::Number)),
        text().prop_map(Value::from),
    ];
    let flat = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec((text(), inner), 0..3).prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    });
    // Sometimes almost as deep as is allowed.
    (flat, prop_oneof![9 => Just(0_usize), 1 => 90..=96_usize]).prop_map(|(value, depth)| {
        (0..depth).fold(value, |inner, n| if n % 2 == 0 { json!([inner]) } else { json!({ "k": inner }) })
    })
}

/// Keys that the runtime does not know.
pub fn unknown() -> impl Strategy<Value = Map<String, Value>> {
    let entry = (text(), value()).prop_map(|(key, value)| (format!("x_{key}"), value));
    vec(entry, 0..2).prop_map(|entries| entries.into_iter().collect())
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    vec((text(), value()), 0..3).prop_map(|entries| entries.into_iter().collect())
}

fn content() -> impl Strategy<Value = Content> {
    let kind = prop_oneof![
        Just(PartKind::Text),
        Just(PartKind::Thinking),
        Just(PartKind::Image),
        Just(PartKind::ImageUrl),
        Just(PartKind::File),
        text().prop_map(|other| PartKind::Other(format!("x_{other}"))),
    ];
    let part = (kind, proptest::option::of(text()), proptest::option::of(object()), unknown())
        .prop_map(|(kind, content, options, extra)| ContentPart { kind, content, options, extra });
    prop_oneof![text().prop_map(Content::Text), vec(part, 0..3).prop_map(Content::Parts)]
}

fn tool_call() -> impl Strategy<Value = ToolCall> {
    let status = prop_oneof![Just(ToolCallStatus::Complete), Just(ToolCallStatus::Incomplete)];
    (
        text(),
        text(),
        proptest::option::of(value()),
        proptest::option::of(text()),
        status,
        proptest::option::of(object()),
        unknown(),
    )
        .prop_map(|(tool_call_id, name, arguments, display_text, status, metadata, extra)| ToolCall {
            tool_call_id,
            name,
            arguments,
            display_text,
            status,
            kind: "function".into(),
            metadata,
            extra,
        })
}

fn tool_result() -> impl Strategy<Value = ToolResult> {
    let optional = (proptest::option::of(text()), proptest::option::of(content()), proptest::option::of(value()));
    (text(), optional, any::<bool>(), any::<bool>(), unknown()).prop_map(
        |(tool_call_id, (name, content, interrupt_data), is_error, is_interrupt, extra)| ToolResult {
            tool_call_id,
            name,
            content,
            is_error,
            is_interrupt,
            interrupt_data,
            kind: "function".into(),
            extra,
        },
    )
}

pub fn message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![Just(Role::System), Just(Role::User), Just(Role::Assistant), Just(Role::Tool)];
    let status = prop_oneof![
        Just(MessageStatus::Complete),
        Just(MessageStatus::Cancelled),
        Just(MessageStatus::Length),
        text().prop_map(|other| MessageStatus::Other(format!("x_{other}"))),
    ];
    let tools = (vec(tool_call(), 0..2), vec(tool_result(), 0..2));
    (role, proptest::option::of(content()), status, tools, proptest::option::of(object()), unknown()).prop_map(
        |(role, content, status, (tool_calls, tool_results), metadata, extra)| Message {
            role,
            content,
            status,
            tool_calls,
            tool_results,
            metadata,
            extra,
        },
    )
}

fn todo() -> impl Strategy<Value = Todo> {
    let id = prop_oneof![any::<i64>().prop_map(TodoId::from), text().prop_map(TodoId::from)];
    let status = prop_oneof![
        Just(TodoStatus::Pending),
        Just(TodoStatus::InProgress),
        Just(TodoStatus::Completed),
        Just(TodoStatus::Cancelled),
        text().prop_map(|other| TodoStatus::Other(format!("x_{other}"))),
    ];
    (id, text(), status, unknown()).prop_map(|(id, content, status, extra)| Todo { id, content, status, extra })
}

pub fn state() -> impl Strategy<Value = State> {
    (vec(message(), 0..4), vec(todo(), 0..3), object(), proptest::option::of(message()), unknown(), unknown()).prop_map(
        |(messages, todos, metadata, pending_message, extra, envelope)| State {
            messages: messages.into(),
            todos,
            metadata,
            pending_message,
            extra,
            envelope,
            ..State::new()
        },
    )
}
