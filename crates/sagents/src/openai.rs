//! A streaming client for `OpenAI` and servers that speak its protocol.
//!
//! A [`Client`] asks a model and streams the chunks of its answer. An [`Answer`] collects them into a [`Message`], with
//! thinking, tool calls and usage. Servers differ in which fields they add and omit, so everything is JSON:
//! [`request_messages`] and [`tool`] work with any other client, too.
//!
//! ```no_run
//! use futures_util::StreamExt as _;
//! use sagents::Message;
//! use sagents::openai::{Answer, Client, ModelError, Request};
//!
//! # async fn example() -> Result<(), ModelError> {
//! let client = Client::new("https://api.openai.com/v1", "a key", "gpt-5-mini");
//! let question = Message::user("What's the time in Lisbon?");
//! let mut chunks = client.ask(&Request::new([&question])).await?;
//! let mut answer = Answer::default();
//! while let Some(chunk) = chunks.next().await {
//!     answer.add(&chunk?).map_err(ModelError::failed)?;
//! }
//! # Ok(())
//! # }
//! ```

mod answer;
mod request;
#[cfg(test)]
mod tests;

use std::fmt;
use std::pin::Pin;

use async_openai::config::{OPENAI_API_BASE, OpenAIConfig};
use async_openai::error::OpenAIError;
use futures_util::stream::{Stream, StreamExt as _};
use serde_json::{Value, json};

use crate::{Message, Role};

pub use self::answer::Answer;
pub use self::request::{request_messages, tool};

/// A client of one model. Cloning is cheap; clones share their connections.
#[derive(Clone)]
pub struct Client {
    http: async_openai::Client<OpenAIConfig>,
    model: String,
    /// To be left out of logs.
    key: String,
}

/// The chunks of an answer, for [`Answer::add`]. Dropping the stream ends the answer.
pub type Chunks = Pin<Box<dyn Stream<Item = Result<Value, ModelError>> + Send>>;

impl Client {
    /// A client of a model at a server. The URL ends with the version, for example `https://api.openai.com/v1`.
    ///
    /// TLS uses `rustls` with `ring`, unless your application has installed another default provider before.
    #[must_use]
    pub fn new(base_url: &str, key: &str, model: &str) -> Self {
        // Only the first provider counts, which may be the application's.
        drop(rustls::crypto::ring::default_provider().install_default());
        let config = OpenAIConfig::new().with_api_base(base_url.trim_end_matches('/')).with_api_key(key);
        Self { http: async_openai::Client::with_config(config), model: model.to_owned(), key: key.to_owned() }
    }

    /// The model that the environment variable `OPENAI_MODEL` names, at `OPENAI_BASE_URL` with `OPENAI_API_KEY`. `None`
    /// if it names none. Without a URL, the server is `OpenAI`'s.
    ///
    /// # Errors
    ///
    /// If a variable has no usable value. The text doesn't contain the value.
    pub fn from_env() -> Result<Option<Self>, String> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let variable = |name| {
            let value = variable(name).map(|value| value.trim().to_owned());
            value.filter(|value| !value.is_empty())
        };
        let base_url = variable("OPENAI_BASE_URL");
        let Some(model) = variable("OPENAI_MODEL") else {
            return match base_url {
                Some(_) => Err("OPENAI_BASE_URL is set: set OPENAI_MODEL too, to the name of a model".into()),
                None => Ok(None),
            };
        };
        let key = variable("OPENAI_API_KEY").unwrap_or_default();
        if !key.chars().all(|character| character.is_ascii_graphic()) {
            return Err("OPENAI_API_KEY has a character that no key has".into());
        }
        Ok(Some(Self::new(base_url.as_deref().unwrap_or(OPENAI_API_BASE), &key, &model)))
    }

    /// The name of the model, as the server knows it.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Asks for an answer.
    ///
    /// # Errors
    ///
    /// If the server refuses the request or can't be reached.
    pub async fn ask(&self, request: &Request) -> Result<Chunks, ModelError> {
        let key = self.key.clone();
        let explain = move |error| explain(&error, &key);
        let chunks = self.http.chat().create_stream_byot(request.to_json(&self.model)).await;
        let chunks = chunks.map_err(&explain)?;
        Ok(Box::pin(chunks.map(move |chunk| chunk.map_err(&explain))))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("model", &self.model).finish_non_exhaustive()
    }
}

/// A question to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    messages: Vec<Value>,
    tools: Vec<Value>,
    is_answered: bool,
    unfinished: String,
}

impl Request {
    /// The conversation so far. If its last message is an answer, the model is asked to go on.
    #[must_use]
    pub fn new<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Self {
        let mut last = None;
        let messages = messages.into_iter().inspect(|message| last = Some(message.role));
        let messages = request_messages(messages);
        Self { messages, is_answered: last == Some(Role::Assistant), ..Self::default() }
    }

    /// Tells the model how to behave. The text comes before the conversation.
    #[must_use]
    pub fn instructions(mut self, text: &str) -> Self {
        self.messages.splice(0..0, request_messages([&Message::system(text)]));
        self
    }

    /// Adds a tool that the model may call; see [`tool`].
    #[must_use]
    pub fn tool(mut self, tool: Value) -> Self {
        self.tools.push(tool);
        self
    }

    /// Asks for the rest of an answer that was interrupted behind this text. Collect it with [`Answer::behind`].
    #[must_use]
    pub fn unfinished(mut self, text: impl Into<String>) -> Self {
        self.unfinished = text.into();
        self
    }

    fn to_json(&self, model: &str) -> Value {
        const CONTINUE: &str = "Your answer was interrupted. Continue it exactly where it ends, and repeat nothing.";
        const GO_ON: &str = "Go on, and answer what isn't answered yet.";

        let mut messages = self.messages.clone();
        if !self.unfinished.is_empty() {
            let begun = Message::assistant(self.unfinished.as_str());
            messages.extend(request_messages([&begun, &Message::user(CONTINUE)]));
        } else if self.is_answered {
            messages.extend(request_messages([&Message::user(GO_ON)]));
        }
        let mut request = json!({
            "model": model,
            "messages": messages,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        // Some servers refuse an empty list.
        if !self.tools.is_empty() {
            request["tools"] = self.tools.as_slice().into();
        }
        request
    }
}

/// Why there's no answer. `Display` is for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    message: &'static str,
    detail: String,
}

impl ModelError {
    /// An error with a message for people and a detail for the log.
    #[must_use]
    pub fn new(message: &'static str, detail: impl Into<String>) -> Self {
        Self { message, detail: detail.into() }
    }

    /// The model failed while it answered. [`Answer::add`] returns the detail.
    #[must_use]
    pub fn failed(detail: String) -> Self {
        Self::new("The model failed.", detail)
    }

    /// For the log. It doesn't contain the key.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

fn explain(error: &OpenAIError, key: &str) -> ModelError {
    let message = match error {
        OpenAIError::Reqwest(_) => "The model's server can't be reached.",
        OpenAIError::StreamError(_) => "The connection to the model was lost.",
        OpenAIError::ApiError(error) => match error.status_code.as_u16() {
            401 | 403 => "The model's server doesn't accept the API key.",
            404 => "The model's server doesn't know the model.",
            429 => "The model is busy, or its quota is used up. Try again later.",
            500.. => "The model's server failed. Try again.",
            _ => "The model's server refuses the request.",
        },
        _ => "The model's server sent something that isn't an answer.",
    };
    let mut detail = error.to_string();
    if !key.is_empty() {
        detail = detail.replace(key, "(the key)");
    }
    ModelError::new(message, detail)
}
