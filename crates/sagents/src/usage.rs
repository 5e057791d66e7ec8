//! Tokens that messages cost.

use std::ops::{Add, AddAssign, Range};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::Timestamp;
use super::message::Message;

/// Numbers of tokens. Sums stop at the largest number.
///
/// Databases store a count as an `i64`. A count above 2⁴⁰, which no message has, is stored as 2⁴⁰.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    /// All tokens that the model read, also those that came from a cache.
    pub input: u64,
    /// The tokens that the model wrote.
    pub output: u64,
    /// Those of `input` that were read from a cache of the provider.
    pub cached: u64,
}

impl TokenUsage {
    /// No tokens from a cache.
    #[must_use]
    pub fn new(input: u64, output: u64) -> Self {
        Self { input, output, cached: 0 }
    }

    /// Sets how many of the input tokens were read from a cache.
    #[must_use]
    pub fn cached(mut self, cached: u64) -> Self {
        self.cached = cached;
        self
    }

    /// At most a number that no message reaches, so that one wrong message doesn't spoil a sum.
    fn clamped(self) -> Self {
        let input = self.input.min(MOST);
        Self { input, output: self.output.min(MOST), cached: self.cached.min(input) }
    }
}

impl Add for TokenUsage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cached: self.cached.saturating_add(other.cached),
        }
    }
}

impl AddAssign for TokenUsage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// What one message cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageUsage {
    /// The model, as the provider calls it.
    pub model: Option<String>,
    /// The tokens.
    pub tokens: TokenUsage,
}

/// What messages cost, by model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Ordered by model. What has no model comes first.
    pub models: Vec<ModelUsage>,
}

impl Usage {
    /// The tokens of all models.
    #[must_use]
    pub fn total(&self) -> TokenUsage {
        let add = |sum, model: &ModelUsage| sum + model.tokens;
        self.models.iter().fold(TokenUsage::default(), add)
    }

    /// What the tokens cost at the prices of the application, in their currency. `None` if a model that
    /// was used has no price: `price` gets `None` for messages without a model.
    #[must_use]
    pub fn cost(&self, price: impl Fn(Option<&str>) -> Option<Price>) -> Option<f64> {
        let cost = |model: &ModelUsage| Some(price(model.model.as_deref())?.of(model.tokens));
        self.models.iter().map(cost).sum()
    }
}

/// A part of a [`Usage`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// `None` for messages that do not name their model.
    pub model: Option<String>,
    /// How many messages were counted.
    pub messages: u64,
    /// Their tokens.
    #[serde(flatten)]
    pub tokens: TokenUsage,
}

/// What a million tokens of a model cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Input that was not in a cache.
    pub input: f64,
    /// Output.
    pub output: f64,
    /// Input that was read from a cache.
    pub cached: f64,
}

impl Price {
    fn of(self, tokens: TokenUsage) -> f64 {
        let uncached = tokens.input.saturating_sub(tokens.cached);
        let cost = |tokens: u64, price: f64| float(tokens) / 1e6 * price;
        cost(uncached, self.input) + cost(tokens.cached, self.cached) + cost(tokens.output, self.output)
    }
}

/// Exact up to 2⁵³.
fn float(tokens: u64) -> f64 {
    let high = u32::try_from(tokens >> 32).unwrap_or(u32::MAX);
    let low = u32::try_from(tokens & 0xffff_ffff).unwrap_or(u32::MAX);
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}

impl Message {
    /// States what the message cost, in its metadata. Of a message whose metadata has the usage as the
    /// provider sent it, [`usage_of`] reads that.
    #[must_use]
    pub fn with_usage(mut self, model: impl Into<String>, tokens: TokenUsage) -> Self {
        let metadata = self.metadata.get_or_insert_with(Map::new);
        set_usage(metadata, model.into(), tokens);
        self
    }
}

/// Writes what a message cost into its metadata.
pub fn set_usage(metadata: &mut Map<String, Value>, model: String, tokens: TokenUsage) {
    let TokenUsage { input, output, cached } = tokens;
    let usage = [("input", input), ("output", output), ("cached", cached)];
    let usage: Map<_, _> = usage.map(|(key, count)| (key.to_owned(), count.into())).into_iter().collect();
    metadata.extend([("model".to_owned(), model.into()), ("usage".to_owned(), usage.into())]);
}

/// What a message with this metadata cost. The key is `usage` or `token_usage`, and the value has one of these shapes:
///
/// | shape | input | output | cached |
/// | --- | --- | --- | --- |
/// | [`Message::with_usage`] | `input` | `output` | `cached` |
/// | the Elixir library | `input`, or more if `raw` has more | `output` | in `raw`, the provider's own |
/// | `OpenAI`, chat completions | `prompt_tokens` | `completion_tokens` | `prompt_tokens_details.cached_tokens` |
/// | `OpenAI`, responses | `input_tokens` | `output_tokens` | `input_tokens_details.cached_tokens` |
/// | Anthropic | `input_tokens` + `cache_read_input_tokens` + `cache_creation_input_tokens` | `output_tokens` | `cache_read_input_tokens` |
///
/// The model is `model`, beside the key or in the value. Everything that isn't a number of tokens is ignored; if nothing
/// is left, the result is `None`.
#[must_use]
pub fn usage_of(metadata: &Map<String, Value>) -> Option<MessageUsage> {
    let (usage, tokens) = ["usage", "token_usage"].iter().find_map(|key| {
        let usage = metadata.get(*key)?.as_object()?;
        let tokens = tokens_of(usage).clamped();
        (tokens != TokenUsage::default()).then_some((usage, tokens))
    })?;
    let model = metadata.get("model").or_else(|| usage.get("model"));
    Some(MessageUsage { model: model.and_then(Value::as_str).and_then(model_name), tokens })
}

fn tokens_of(usage: &Map<String, Value>) -> TokenUsage {
    let ours = TokenUsage {
        input: count(usage, "input").unwrap_or_default(),
        output: count(usage, "output").unwrap_or_default(),
        cached: count(usage, "cached").unwrap_or_default(),
    };
    let provider = usage.get("raw").and_then(Value::as_object).unwrap_or(usage);
    let provider = tokens_of_provider(provider);
    TokenUsage {
        input: ours.input.max(provider.input),
        output: ours.output.max(provider.output),
        cached: ours.cached.max(provider.cached),
    }
}

fn tokens_of_provider(usage: &Map<String, Value>) -> TokenUsage {
    let of = |key| count(usage, key);
    let details = |key: &str| count(usage.get(key)?.as_object()?, "cached_tokens");
    let cached = details("prompt_tokens_details").or_else(|| details("input_tokens_details"));
    let (read, created) = (of("cache_read_input_tokens"), of("cache_creation_input_tokens"));
    // Some services that speak for others send several shapes at once.
    let input = of("prompt_tokens").unwrap_or_else(|| {
        let input = of("input_tokens").unwrap_or_default();
        let beside = match cached {
            Some(_) => 0,
            None => read.unwrap_or_default() + created.unwrap_or_default(),
        };
        input + beside
    });
    TokenUsage {
        input,
        output: of("completion_tokens").or_else(|| of("output_tokens")).unwrap_or_default(),
        cached: cached.or(read).unwrap_or_default(),
    }
}

/// More than any message has. Sums of a few of them do not overflow.
const MOST: u64 = 1 << 40;

/// A whole number that isn't negative.
fn count(usage: &Map<String, Value>, key: &str) -> Option<u64> {
    Some(usage.get(key)?.as_u64()?.min(MOST))
}

/// A name that any database stores. Names of models are short.
fn model_name(name: &str) -> Option<String> {
    let name: String = name.trim().chars().filter(|c| *c != '\0').take(200).collect();
    (!name.is_empty()).then_some(name)
}

/// The messages whose [usage](crate::Store::usage) is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageOf {
    /// Those of a conversation.
    Conversation(Uuid),
    /// Those of all conversations, if they were stored in this period.
    Period {
        /// The beginning.
        from: Timestamp,
        /// The end, which is excluded.
        to: Timestamp,
    },
}

impl From<Uuid> for UsageOf {
    fn from(conversation_id: Uuid) -> Self {
        Self::Conversation(conversation_id)
    }
}

impl From<Range<Timestamp>> for UsageOf {
    fn from(Range { start, end }: Range<Timestamp>) -> Self {
        Self::Period { from: start, to: end }
    }
}
