//! The usage of a message is read from its metadata in every shape that providers and libraries send, and nothing in it
//! is an error.

use proptest::prelude::*;
use sagents::{Message, MessageUsage, ModelUsage, Price, TokenUsage, Usage, usage_of};
use serde_json::{Map, Value, json};

fn read(metadata: Value) -> Option<MessageUsage> {
    let Value::Object(metadata) = metadata else { panic!("not an object") };
    usage_of(&metadata)
}

fn tokens(input: u64, output: u64, cached: u64) -> TokenUsage {
    TokenUsage { input, output, cached }
}

#[test]
fn the_shapes_of_providers_and_libraries_are_read() {
    let openai = json!({
        "prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306,
        "prompt_tokens_details": { "cached_tokens": 1920, "audio_tokens": 0 },
        "completion_tokens_details": { "reasoning_tokens": 0 },
    });
    let responses = json!({
        "input_tokens": 36, "input_tokens_details": { "cached_tokens": 10 },
        "output_tokens": 87, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 123,
    });
    let anthropic = json!({
        "input_tokens": 50, "output_tokens": 503,
        "cache_creation_input_tokens": 248, "cache_read_input_tokens": 1800,
    });
    // A service that sends the shapes of two providers at once.
    let both = json!({
        "prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": { "cached_tokens": 40 },
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": 40,
    });
    for (usage, expected) in [
        (json!({ "input": 12, "output": 3, "cached": 4 }), tokens(12, 3, 4)),
        (json!({ "input": 12, "output": 3, "raw": null }), tokens(12, 3, 0)),
        (json!({ "input": 2006, "output": 300, "raw": openai }), tokens(2006, 300, 1920)),
        (json!({ "input": 50, "output": 503, "raw": anthropic }), tokens(2098, 503, 1800)),
        (openai, tokens(2006, 300, 1920)),
        (responses, tokens(36, 87, 10)),
        (anthropic, tokens(2098, 503, 1800)),
        (both, tokens(100, 5, 40)),
        (json!({ "prompt_tokens": 5, "prompt_tokens_details": null }), tokens(5, 0, 0)),
    ] {
        for key in ["usage", "token_usage"] {
            let expected = Some(MessageUsage { model: Some("m-1".into()), tokens: expected });
            assert_eq!(read(json!({ key: usage, "model": "m-1" })), expected, "{usage}");
        }
    }
}

#[test]
fn what_is_no_number_of_tokens_is_ignored() {
    for usage in [
        json!(null),
        json!(17),
        json!("many"),
        json!([1, 2]),
        json!({}),
        json!({ "input": 0, "output": 0 }),
        json!({ "input": -5, "output": "7" }),
        json!({ "prompt_tokens": 1.5, "completion_tokens": true }),
        json!({ "prompt_tokens_details": { "cached_tokens": 5 } }),
    ] {
        assert_eq!(read(json!({ "usage": usage, "model": "m-1" })), None, "{usage}");
    }
    let huge = read(json!({ "usage": { "input": u64::MAX, "output": 1, "cached": u64::MAX } })).unwrap();
    assert!(huge.tokens.input < 1 << 50 && huge.tokens.cached == huge.tokens.input);
    let other = json!({ "usage": "?", "token_usage": { "input": 1 } });
    assert_eq!(read(other).unwrap().tokens, tokens(1, 0, 0));
    for (model, expected) in [
        (json!(null), None),
        (json!(" "), None),
        (json!({}), None),
        (json!("m\0-1 "), Some("m-1".to_owned())),
        (json!("x".repeat(10_000)), Some("x".repeat(200))),
    ] {
        assert_eq!(read(json!({ "usage": { "input": 1 }, "model": model })).unwrap().model, expected);
    }
}

#[test]
fn an_application_states_the_usage_of_a_message() {
    let message = Message::assistant("hello").with_usage("m-1", tokens(12, 3, 4));
    let expected = Some(MessageUsage { model: Some("m-1".into()), tokens: tokens(12, 3, 4) });
    assert_eq!(usage_of(message.metadata.as_ref().unwrap()), expected);
    let wrong = Message::assistant("hello").with_usage("", tokens(0, u64::MAX, 7));
    let wrong = usage_of(wrong.metadata.as_ref().unwrap()).unwrap();
    assert_eq!((wrong.model, wrong.tokens.input, wrong.tokens.cached), (None, 0, 0));
}

#[test]
fn a_cost_needs_a_price_for_every_model() {
    let model = |name: &str, tokens| ModelUsage { model: Some(name.into()), messages: 1, tokens };
    let usage =
        Usage { models: vec![model("a", tokens(3_000_000, 1_000_000, 2_000_000)), model("b", tokens(0, 500_000, 0))] };
    assert_eq!(usage.total(), tokens(3_000_000, 1_500_000, 2_000_000));
    let price = Price { input: 2.0, output: 8.0, cached: 0.5 };
    assert_eq!(usage.cost(|_| Some(price)), Some(2.0 + 8.0 + 1.0 + 4.0));
    assert_eq!(usage.cost(|model| (model == Some("a")).then_some(price)), None);
    assert_eq!(Usage::default().cost(|_| None), Some(0.0));
    let full = tokens(u64::MAX, u64::MAX, u64::MAX);
    assert_eq!(full + full, full);
    let json = json!(usage.models[1]);
    assert_eq!(json, json!({ "model": "b", "messages": 1, "input": 0, "output": 500_000, "cached": 0 }));
    assert_eq!(serde_json::from_value::<ModelUsage>(json).unwrap(), usage.models[1]);
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,5}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "input",
        "output",
        "cached",
        "raw",
        "input_tokens",
        "output_tokens",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "prompt_tokens_details",
        "input_tokens_details",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    ]);
    leaf.prop_recursive(3, 20, 6, move |inner| {
        let entries = prop::collection::vec((key.clone(), inner), 0..6);
        entries.prop_map(|entries| entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    })
}

proptest! {
    #[test]
    fn any_metadata_gives_numbers_that_can_be_stored(usage in json_value(), model in json_value()) {
        let metadata = Map::from_iter([("usage".to_owned(), usage), ("model".to_owned(), model)]);
        if let Some(MessageUsage { tokens, .. }) = usage_of(&metadata) {
            prop_assert!(tokens.cached <= tokens.input && tokens.input < 1 << 50);
            prop_assert!(tokens.output < 1 << 50);
        }
    }
}
