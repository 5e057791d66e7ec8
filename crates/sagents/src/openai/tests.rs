//! Requests, answers, and a server that streams one.

use std::error::Error;

use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::request::NO_RESULT;
use super::{Answer, Client, ModelError, Request, request_messages, tool};
use crate::{Content, ContentPart, Message, MessageStatus, Role, TokenUsage, ToolCall, ToolResult, usage_of};

#[test]
fn every_call_is_followed_by_its_result() {
    let mut answer = Message::assistant("I look.");
    answer.tool_calls =
        vec![ToolCall::new("a", "search", json!({ "q": 1 })), ToolCall::new("b", "search", json!("{ \"q"))];
    let late =
        Message::tool_results([ToolResult::new("a", "search", "found"), ToolResult::new("x", "search", "of no call")]);
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
    let result = |id: &str, text: &str| json!({ "role": "tool", "tool_call_id": id, "content": text });
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
    assert_eq!(Value::from(request_messages(&messages)), expected);
}

#[test]
fn pictures_and_files_are_parts() {
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
    assert_eq!(Value::from(request_messages([&message])), expected);
}

fn answer(deltas: impl IntoIterator<Item = Value>, reason: &str) -> Result<Option<Message>, String> {
    let mut answer = Answer::default();
    for delta in deltas {
        answer.add(&json!({ "choices": [{ "index": 0, "delta": delta }] }))?;
    }
    answer.add(&json!({ "choices": [{ "delta": {}, "finish_reason": reason }], "usage": null }))?;
    Ok(answer.finish())
}

fn calls(deltas: impl IntoIterator<Item = Value>) -> Result<Vec<ToolCall>, String> {
    Ok(answer(deltas, "tool_calls")?.map(|message| message.tool_calls).unwrap_or_default())
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
    let expected = [ToolCall::new("a", "search", json!({ "q": 1 })), ToolCall::new("b", "now", json!({}))];
    assert_eq!(found, expected);

    // Servers that do not count them.
    let found = calls([part(0, json!("a"), json!("now"), "{}"), part(0, json!("b"), json!("now"), "{ oh")])?;
    let expected = [ToolCall::new("a", "now", json!({})), ToolCall::new("b", "now", json!("{ oh"))];
    assert_eq!(found, expected);

    let found = calls([json!({ "tool_calls": [{ "function": { "name": "now" } }] })])?;
    assert!(found.iter().all(|call| call.name == "now" && call.tool_call_id.starts_with("call_")));
    Ok(())
}

#[test]
fn an_answer_may_think_refuse_be_cut_off_or_fail() -> Result<(), String> {
    let thought = answer(
        [json!({ "reasoning": "Hm" }), json!({ "reasoning_content": "m." }), json!({ "content": "Yes." })],
        "stop",
    )?;
    let parts = vec![ContentPart::thinking("Hmm."), ContentPart::text("Yes.")];
    assert_eq!(thought.and_then(|message| message.content), Some(Content::Parts(parts)));

    let refused = answer([json!({ "content": null, "refusal": "No." })], "stop")?;
    assert_eq!(refused.and_then(|message| message.content), Some("No.".to_owned().into()));

    let call = json!({ "index": 0, "id": "a", "function": { "name": "now", "arguments": "{" } });
    let cut = answer([json!({ "content": "Once upon" }), json!({ "tool_calls": [call] })], "length")?;
    assert!(cut.is_some_and(|cut| cut.status == MessageStatus::Length && cut.tool_calls.is_empty()));

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
    assert_eq!(headers.get("authorization").and_then(|key| key.to_str().ok()), Some("Bearer secret"));
    assert_eq!((&request["stream"], &request["model"]), (&json!(true), &json!("small")));
    assert_eq!(request["messages"], json!([{ "role": "user", "content": "What time is it?" }]));
    assert_eq!(request["tools"][0]["function"]["name"], "now");
    let chunk =
        |rest: &str| format!(r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"small-1",{rest}}}"#);
    let delta = |delta: &str| chunk(&format!(r#""choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]"#));
    let chunks = [
        delta(r#"{"role":"assistant","content":"","refusal":null}"#),
        delta(r#"{"content":"I l"}"#),
        delta(r#"{"content":"ook."}"#),
        delta(r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"now","arguments":""}}]}"#),
        delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"zone\":"}}]}"#),
        delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"UTC\"}"}}]}"#),
        chunk(r#""choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]"#),
        chunk(
            r#""choices":[],"usage":{"prompt_tokens":20,"completion_tokens":5,"total_tokens":25,"prompt_tokens_details":{"cached_tokens":16}}"#,
        ),
        "[DONE]".to_owned(),
    ];
    let body = chunks.map(|chunk| format!("data: {chunk}\n\n")).concat();
    let kind = (header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    (HeaderMap::from_iter([kind]), body)
}

#[tokio::test]
async fn a_server_streams_an_answer() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Router::new().route("/v1/chat/completions", post(completions));
    let server = tokio::spawn(axum::serve(listener, server).into_future());

    let request = Request::new([&Message::user("What time is it?")]);
    let request = request.tool(tool("now", "The time.", json!({ "type": "object" })));
    let client = Client::new(&format!("http://{address}/v1/"), "secret", "small");
    let mut chunks = client.ask(&request).await?;
    let mut answer = Answer::default();
    while let Some(chunk) = chunks.next().await {
        answer.add(&chunk?)?;
    }
    server.abort();

    let message = answer.finish().ok_or("the answer is not whole")?;
    assert_eq!(message.content, Some("I look.".to_owned().into()));
    assert_eq!(message.tool_calls, [ToolCall::new("a", "now", json!({ "zone": "UTC" }))]);
    let usage = message.metadata.as_ref().and_then(usage_of).ok_or("it has no usage")?;
    assert_eq!(usage.model.as_deref(), Some("small-1"));
    assert_eq!(usage.tokens, TokenUsage::new(20, 5).cached(16));
    Ok(())
}

#[tokio::test]
async fn a_refusal_is_explained_without_the_key() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let refuse = async || {
        let error =
            json!({ "error": { "message": "no model for secret-7", "type": "x", "param": null, "code": null } });
        (StatusCode::NOT_FOUND, Json(error))
    };
    let server = Router::new().route("/v1/chat/completions", post(refuse));
    let server = tokio::spawn(axum::serve(listener, server).into_future());
    let client = Client::new(&format!("http://{address}/v1"), "secret-7", "small");
    assert!(!format!("{client:?}").contains("secret-7"));
    let refused = client.ask(&Request::new([&Message::user("Hi")])).await.err().ok_or("it was accepted")?;
    assert_eq!(refused.to_string(), "The model's server doesn't know the model.");
    assert!(refused.detail().contains("(the key)") && !refused.detail().contains("secret-7"), "{refused:?}");
    server.abort();

    let gone = client.ask(&Request::new([&Message::user("Hi")])).await.err();
    assert_eq!(gone.as_ref().map(ModelError::to_string).as_deref(), Some("The model's server can't be reached."));
    Ok(())
}

#[test]
fn an_unfinished_answer_is_continued_and_a_finished_one_goes_on() {
    let (question, answer) = (Message::user("Well?"), Message::assistant("Yes."));
    let messages = |request: Request| {
        let messages = request.to_json("m")["messages"].as_array().cloned().unwrap_or_default();
        messages.iter().map(|message| message["role"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let asked = Request::new([&question]).instructions("Be brief.");
    assert_eq!(messages(asked.clone()), ["system", "user"]);
    assert_eq!(messages(asked.clone().unfinished("Y")), ["system", "user", "assistant", "user"]);
    assert_eq!(messages(Request::new([&question, &answer])), ["user", "assistant", "user"]);
    assert_eq!(asked.to_json("m").get("tools"), None);
}

#[test]
fn a_client_is_read_from_the_environment() {
    let from = |variables: &[(&str, &str)]| {
        Client::from_variables(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    };
    assert!(matches!(from(&[]), Ok(None)));
    assert!(matches!(from(&[("OPENAI_MODEL", " ")]), Ok(None)));
    let client = from(&[("OPENAI_MODEL", " small ")]);
    assert_eq!(client.as_ref().map(|client| client.as_ref().map(Client::model)), Ok(Some("small")));
    assert!(from(&[("OPENAI_BASE_URL", "http://localhost")]).is_err());
    let refused = from(&[("OPENAI_MODEL", "m"), ("OPENAI_API_KEY", "geheim ü")]).err().unwrap_or_default();
    assert!(!refused.is_empty() && !refused.contains("geheim"), "{refused}");
}
