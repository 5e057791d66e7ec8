//! Tests of the conversions.

use std::error::Error;

use axum::http::{HeaderMap, header};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::StreamExt as _;
use serde_json::json;

use async_openai::types::chat::CreateChatCompletionRequest;

use super::*;
use crate::sagents::{TokenUsage, usage_of};

#[test]
fn every_call_is_followed_by_its_result() -> Result<(), Box<dyn Error>> {
    let mut answer = Message::assistant("I look.");
    answer.tool_calls = vec![
        ToolCall::new("a", "search", json!({ "q": 1 })),
        ToolCall::new("b", "search", json!("{ \"q")),
    ];
    let late = Message::tool_results([
        ToolResult::new("a", "search", "found"),
        ToolResult::new("x", "search", "of no call"),
    ]);
    let again = Message::tool_calls([ToolCall::new("a", "search", json!({}))]);
    let second = Message::tool_results([ToolResult::error("a", "search", "failed")]);
    let messages = [
        Message::system("Be brief."),
        Message::user("Where?"),
        answer,
        Message::user("Well?"),
        late,
        again,
        second,
        Message::new(Role::Assistant, None),
    ];
    let call = |id: &str, arguments: &str| {
        let function = json!({ "name": "search", "arguments": arguments });
        json!({ "type": "function", "id": id, "function": function })
    };
    let result =
        |id: &str, text: &str| json!({ "role": "tool", "tool_call_id": id, "content": text });
    let expected = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "Where?" },
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [call("a", "{\"q\":1}"), call("b", "{}")],
        },
        result("a", "found"),
        result("b", NO_RESULT),
        { "role": "user", "content": "Well?" },
        { "role": "assistant", "tool_calls": [call("a", "{}")] },
        result("a", "failed"),
    ]);
    assert_eq!(serde_json::to_value(request_messages(&messages))?, expected);
    Ok(())
}

#[test]
fn pictures_and_files_are_parts() -> Result<(), Box<dyn Error>> {
    let parts = vec![
        ContentPart::thinking("Hm."),
        ContentPart::text("Look:"),
        ContentPart::image("iVBOR", "image/webp"),
        ContentPart::image_url("https://example.com/a.png"),
        ContentPart::file("JVBER", "application/pdf", "a.pdf"),
        ContentPart::file_url("https://example.com/a.pdf"),
    ];
    let message = Message::new(Role::User, Some(Content::Parts(parts)));
    let expected = json!([{ "role": "user", "content": [
        { "type": "text", "text": "Look:" },
        { "type": "image_url", "image_url": { "url": "data:image/webp;base64,iVBOR" } },
        { "type": "image_url", "image_url": { "url": "https://example.com/a.png" } },
        { "type": "file", "file": {
            "file_data": "data:application/pdf;base64,JVBER",
            "filename": "a.pdf",
        } },
        { "type": "text", "text": "https://example.com/a.pdf" },
    ] }]);
    assert_eq!(
        serde_json::to_value(request_messages([&message]))?,
        expected
    );
    Ok(())
}

fn answer(
    deltas: impl IntoIterator<Item = Value>,
    reason: &str,
) -> Result<Option<Message>, String> {
    let mut answer = Answer::default();
    for delta in deltas {
        answer.add(&json!({ "choices": [{ "index": 0, "delta": delta }] }))?;
    }
    answer.add(
        &json!({ "choices": [{ "delta": {}, "finish_reason": reason }], "usage": null }),
    )?;
    Ok(answer.finish())
}

fn calls(deltas: impl IntoIterator<Item = Value>) -> Result<Vec<ToolCall>, String> {
    Ok(answer(deltas, "tool_calls")?
        .map(|message| message.tool_calls)
        .unwrap_or_default())
}

#[test]
fn parts_of_calls_belong_together_by_index() -> Result<(), String> {
    let part = |index: u64, id: Value, name: Value, arguments: &str| {
        let function = json!({ "name": name, "arguments": arguments });
        json!({ "tool_calls": [{ "index": index, "id": id, "function": function }] })
    };
    let found = calls([
        part(0, json!("a"), json!("search"), ""),
        part(0, Value::Null, Value::Null, "{\"q\":"),
        part(1, json!("b"), json!("now"), ""),
        part(0, Value::Null, Value::Null, "1}"),
    ])?;
    let expected = [
        ToolCall::new("a", "search", json!({ "q": 1 })),
        ToolCall::new("b", "now", json!({})),
    ];
    assert_eq!(found, expected);

    // Servers that do not count them.
    let found = calls([
        part(0, json!("a"), json!("now"), "{}"),
        part(0, json!("b"), json!("now"), "{ oh"),
    ])?;
    let expected = [
        ToolCall::new("a", "now", json!({})),
        ToolCall::new("b", "now", json!("{ oh")),
    ];
    assert_eq!(found, expected);

    let found = calls([json!({ "tool_calls": [{ "function": { "name": "now" } }] })])?;
    assert!(
        found
            .iter()
            .all(|call| call.name == "now" && call.call_id.starts_with("call_"))
    );
    Ok(())
}

#[test]
fn an_answer_may_think_refuse_be_cut_off_or_fail() -> Result<(), String> {
    let thought = answer(
        [
            json!({ "reasoning": "Hm" }),
            json!({ "reasoning_content": "m." }),
            json!({ "content": "Yes." }),
        ],
        "stop",
    )?;
    let parts = vec![ContentPart::thinking("Hmm."), ContentPart::text("Yes.")];
    assert_eq!(
        thought.and_then(|message| message.content),
        Some(Content::Parts(parts))
    );

    let refused = answer([json!({ "content": null, "refusal": "No." })], "stop")?;
    assert_eq!(
        refused.and_then(|message| message.content),
        Some("No.".to_owned().into())
    );

    let call =
        json!({ "index": 0, "id": "a", "function": { "name": "now", "arguments": "{" } });
    let cut = answer(
        [
            json!({ "content": "Once upon" }),
            json!({ "tool_calls": [call] }),
        ],
        "length",
    )?;
    assert!(
        cut.is_some_and(|cut| cut.status == MessageStatus::Length && cut.tool_calls.is_empty())
    );

    let mut begun = Answer::behind("Once");
    begun.add(&json!({ "choices": [{ "delta": { "content": " upon" } }] }))?;
    assert_eq!(begun.so_far(), Message::assistant("Once upon"));
    let failed = begun.add(&json!({ "error": { "message": "overloaded" } }));
    assert_eq!(failed, Err("overloaded".to_owned()));
    assert_eq!(begun.finish(), None);
    Ok(())
}

/// Speaks as the server does, byte by byte.
async fn completions(headers: HeaderMap, Json(request): Json<Value>) -> (HeaderMap, String) {
    assert_eq!(
        headers
            .get("authorization")
            .and_then(|key| key.to_str().ok()),
        Some("Bearer secret")
    );
    assert_eq!(
        (&request["stream"], &request["model"]),
        (&json!(true), &json!("small"))
    );
    assert_eq!(
        request["messages"],
        json!([{ "role": "user", "content": "What time is it?" }])
    );
    assert_eq!(request["tools"][0]["function"]["name"], "now");
    let chunk = |rest: &str| {
        format!(
            r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"small-1",{rest}}}"#
        )
    };
    let delta = |delta: &str| {
        chunk(&format!(
            r#""choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]"#
        ))
    };
    let chunks = [
        delta(r#"{"role":"assistant","content":"","refusal":null}"#),
        delta(r#"{"content":"I l"}"#),
        delta(r#"{"content":"ook."}"#),
        delta(
            r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"now","arguments":""}}]}"#,
        ),
        delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"zone\":"}}]}"#),
        delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"UTC\"}"}}]}"#),
        chunk(r#""choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]"#),
        chunk(
            r#""choices":[],"usage":{"prompt_tokens":20,"completion_tokens":5,"total_tokens":25,"prompt_tokens_details":{"cached_tokens":16}}"#,
        ),
        "[DONE]".to_owned(),
    ];
    let body = chunks
        .map(|chunk| format!("data: {chunk}\n\n"))
        .concat();
    let kind = (
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("text/event-stream"),
    );
    (HeaderMap::from_iter([kind]), body)
}

#[tokio::test]
async fn a_server_streams_an_answer() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Router::new().route("/v1/chat/completions", post(completions));
    let server = tokio::spawn(axum::serve(listener, server).into_future());

    let request = CreateChatCompletionRequest {
        model: "small".to_owned(),
        messages: request_messages([&Message::user("What time is it?")]),
        tools: Some(vec![tool("now", "The time.", json!({ "type": "object" }))]),
        stream: Some(true),
        ..Default::default()
    };
    let client = client(&format!("http://{address}/v1/"), "secret");
    let mut chunks = client.chat().create_stream_byot(request).await?;
    let mut answer = Answer::default();
    while let Some(chunk) = chunks.next().await {
        answer.add(&chunk?)?;
    }
    server.abort();

    let message = answer.finish().ok_or("the answer is not whole")?;
    assert_eq!(message.content, Some("I look.".to_owned().into()));
    assert_eq!(
        message.tool_calls,
        [ToolCall::new("a", "now", json!({ "zone": "UTC" }))]
    );
    let usage = message
        .metadata
        .as_ref()
        .and_then(usage_of)
        .ok_or("it has no usage")?;
    assert_eq!(usage.model.as_deref(), Some("small-1"));
    assert_eq!(usage.tokens, TokenUsage::new(20, 5).cached(16));
    Ok(())
}
