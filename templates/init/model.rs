//! The model that answers: a script that needs no network, or any server that speaks `OpenAI`'s protocol.

use std::pin::Pin;
use std::time::Duration;

use async_openai::Client;
use async_openai::config::{OPENAI_API_BASE, OpenAIConfig};
use async_openai::error::OpenAIError;
use async_openai::types::chat::{
    ChatCompletionStreamOptions, ChatCompletionTools, CreateChatCompletionRequest,
};
use futures_util::stream::{Stream, StreamExt as _, iter};
use serde_json::{Value, json};

use {{ module }}::web::openai::{client, request_messages};
use crate::sagents::{Content, Message, Messages, Role};

/// A model. Its answers are streams of chunks, as `OpenAI` sends them.
pub enum Model {
    /// Reacts to some words of the last message, which are in its answer to any other message.
    Scripted {
        /// The time that a word takes.
        delay: Duration,
    },
    /// A server.
    OpenAi {
        /// Has the address and the key.
        client: Box<Client<OpenAIConfig>>,
        /// The name that the server knows it by.
        name: String,
        /// To be left out of logs.
        key: String,
    },
}

/// What a model is asked.
#[derive(Debug)]
pub struct Request<'a> {
    /// How to behave.
    pub instructions: &'a str,
    /// The conversation.
    pub messages: &'a Messages,
    /// The beginning of the answer, if it was interrupted.
    pub unfinished: &'a str,
    /// What the model may call.
    pub tools: Vec<ChatCompletionTools>,
}

/// The answer of a model, in parts.
pub type Chunks = Pin<Box<dyn Stream<Item = Result<Value, ModelError>> + Send>>;

/// Why there is no answer, for people.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    message: &'static str,
    detail: String,
}

impl ModelError {
    /// The detail is for the log.
    pub fn new(message: &'static str, detail: impl Into<String>) -> Self {
        Self {
            message,
            detail: detail.into(),
        }
    }

    /// For the log. It does not contain the key.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl Model {
    /// The model that `OPENAI_MODEL` names, at `OPENAI_BASE_URL`, with `OPENAI_API_KEY`. Without a name it
    /// is the scripted one, whose words take `SCRIPTED_DELAY_MS`.
    ///
    /// # Errors
    ///
    /// If a variable has no usable value. The error does not contain it.
    pub fn from_env() -> Result<Self, String> {
        let variable = |name| {
            let value = std::env::var(name)
                .ok()
                .map(|value: String| value.trim().to_owned());
            value.filter(|value| !value.is_empty())
        };
        let base_url = variable("OPENAI_BASE_URL");
        let Some(name) = variable("OPENAI_MODEL") else {
            if base_url.is_some() {
                return Err(
                    "OPENAI_BASE_URL is set: set OPENAI_MODEL too, to the name of a model".into(),
                );
            }
            let delay = variable("SCRIPTED_DELAY_MS").map_or(Ok(40), |delay| delay.parse());
            let delay = delay.map_err(|_| "SCRIPTED_DELAY_MS is not a number of milliseconds")?;
            return Ok(Self::Scripted {
                delay: Duration::from_millis(delay),
            });
        };
        let key = variable("OPENAI_API_KEY").unwrap_or_default();
        if !key.chars().all(|character| character.is_ascii_graphic()) {
            return Err("OPENAI_API_KEY has a character that no key has".into());
        }
        let client = Box::new(client(base_url.as_deref().unwrap_or(OPENAI_API_BASE), &key));
        Ok(Self::OpenAi { client, name, key })
    }

    /// What the server calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Scripted { .. } => "scripted",
            Self::OpenAi { name, .. } => name,
        }
    }

    /// Asks for an answer. Dropping the stream ends it.
    ///
    /// # Errors
    ///
    /// If the server refuses the request or cannot be reached.
    pub async fn ask(&self, request: Request<'_>) -> Result<Chunks, ModelError> {
        match self {
            Self::Scripted { delay } => Ok(play(script(&request), *delay)),
            Self::OpenAi { client, name, key } => {
                let key = key.clone();
                let explain = move |error| explain(&error, &key);
                let request = request.to_openai(name);
                let chunks = client.chat().create_stream_byot(request).await;
                let chunks = chunks.map_err(&explain)?;
                Ok(Box::pin(chunks.map(move |chunk| chunk.map_err(&explain))))
            }
        }
    }
}

impl Request<'_> {
    fn to_openai(&self, model: &str) -> CreateChatCompletionRequest {
        const CONTINUE: &str =
            "Your answer was interrupted. Continue it exactly where it ends, and repeat nothing.";
        const GO_ON: &str = "Go on, and answer what is not answered yet.";

        let instructions = Message::system(self.instructions);
        let mut messages = request_messages([&instructions].into_iter().chain(self.messages));
        let last = self.messages.last();
        if !self.unfinished.is_empty() {
            let begun = Message::assistant(self.unfinished);
            messages.extend(request_messages([&begun, &Message::user(CONTINUE)]));
        } else if last.is_some_and(|last| last.role == Role::Assistant) {
            messages.extend(request_messages([&Message::user(GO_ON)]));
        }
        CreateChatCompletionRequest {
            model: model.to_owned(),
            messages,
            tools: Some(self.tools.clone()),
            stream: Some(true),
            stream_options: Some(ChatCompletionStreamOptions {
                include_usage: Some(true),
                include_obfuscation: None,
            }),
            ..Default::default()
        }
    }
}

fn explain(error: &OpenAIError, key: &str) -> ModelError {
    let message = match error {
        OpenAIError::Reqwest(_) => "The model's server cannot be reached.",
        OpenAIError::StreamError(_) => "The connection to the model was lost.",
        OpenAIError::ApiError(error) => match error.status_code.as_u16() {
            401 | 403 => "The model's server does not accept the API key.",
            404 => "The model's server does not know the model.",
            429 => "The model is busy, or its quota is used up. Try again later.",
            500.. => "The model's server failed. Try again.",
            _ => "The model's server refuses the request.",
        },
        _ => "The model's server sent something that is no answer.",
    };
    let mut detail = error.to_string();
    if !key.is_empty() {
        detail = detail.replace(key, "(the key)");
    }
    ModelError::new(message, detail)
}

/// What the scripted model says and does.
#[derive(Default)]
struct Script {
    thinking: &'static str,
    text: String,
    /// The name and the arguments.
    call: Option<(&'static str, Value)>,
    call_id: String,
    read: usize,
    fails: bool,
}

impl Script {
    fn says(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    fn calls(text: impl Into<String>, name: &'static str, arguments: Value) -> Self {
        Self {
            call: Some((name, arguments)),
            ..Self::says(text)
        }
    }
}

fn script(request: &Request<'_>) -> Script {
    let text_of = |message: &Message| {
        message
            .content
            .as_ref()
            .map(Content::text)
            .unwrap_or_default()
    };
    let messages: Vec<_> = request.messages.iter().collect();
    let asked = messages
        .iter()
        .rposition(|message| message.role == Role::User)
        .unwrap_or(0);
    let question = messages
        .get(asked)
        .map(|message| text_of(message))
        .unwrap_or_default();
    let since = messages.get(asked..).unwrap_or_default();
    let results = since
        .last()
        .into_iter()
        .flat_map(|message| &message.tool_results);
    let mut script = match results.last() {
        Some(result) => {
            let text = result
                .content
                .as_ref()
                .map(Content::text)
                .unwrap_or_default();
            let step = since
                .iter()
                .filter(|message| !message.tool_calls.is_empty())
                .count();
            after_tool(
                result.name.as_deref().unwrap_or_default(),
                &text,
                result.is_error,
                step,
            )
        }
        None => answer_to(&question),
    };
    if let Some(rest) = script.text.strip_prefix(request.unfinished) {
        script.text = rest.to_owned();
    }
    script.call_id = format!("call_{}", messages.len());
    script.read = messages
        .iter()
        .map(|message| text_of(message).split_whitespace().count())
        .sum();
    script
}

fn answer_to(question: &str) -> Script {
    let lower = question.to_lowercase();
    let has = |word| lower.contains(word);
    if has("postcard") {
        let mut words = question
            .split_whitespace()
            .skip_while(|word| *word != "to")
            .skip(1);
        let to = words.next().map_or("Paris", |to| {
            to.trim_matches(|c: char| !c.is_alphanumeric())
        });
        let arguments =
            json!({ "to": to, "text": format!("Greetings to {to}! The weather is fine.") });
        return Script::calls(
            "I have written one. Please look at it before I send it.",
            "send_postcard",
            arguments,
        );
    }
    if has("plan") || has("todo") {
        return Script::calls("I write down what there is to do.", "write_todos", todos(0));
    }
    if has("time") {
        return Script::calls("I look at the clock.", "current_time", json!({}));
    }
    if has("think") {
        return Script {
            thinking: "There are three kinds of answers: short ones, long ones, and those that were thought about. \
                This has to be one of the last kind, so a few more words do no harm.",
            ..Script::says("I have thought about it. **Yes.**")
        };
    }
    if has("markdown") {
        return Script::says(MARKDOWN);
    }
    if has("long") {
        return Script::says(long());
    }
    if has("fail") {
        return Script {
            fails: true,
            ..Script::says("I begin to answer, and then")
        };
    }
    Script::says(format!(
        "You wrote {} words. I am a script that plays a model, so I know only a few of them. \
         Ask me for a **postcard**, a **plan**, the **time**, a **long** answer or **Markdown**; \
         ask me to **think**, or to **fail**.",
        question.split_whitespace().count()
    ))
}

/// `step` is how often tools were called for the current question.
fn after_tool(name: &str, result: &str, is_error: bool, step: usize) -> Script {
    match name {
        "send_postcard" if result.contains("unknown") => {
            Script::says("I can't tell whether it was sent. Please check before you ask again.")
        }
        "send_postcard" if is_error => Script::says("All right, I have not sent it."),
        "send_postcard" => Script::says("It is on its way."),
        "write_todos" if step < TASKS.len() => Script::calls(
            format!("{} is done.", TASKS[step - 1]),
            "write_todos",
            todos(step),
        ),
        "write_todos" if step == TASKS.len() => {
            Script::calls("That was the last one.", "write_todos", todos(step))
        }
        "write_todos" => Script::says("Everything on the list is done."),
        _ => Script::says(format!("The tool says: {result}")),
    }
}

const TASKS: [&str; 3] = ["Look at the map", "Choose a road", "Pack a bag"];

/// The first `done` tasks are done.
fn todos(done: usize) -> Value {
    let status = |place: usize| match place {
        _ if place < done => "completed",
        _ if place == done => "in_progress",
        _ => "pending",
    };
    let tasks = TASKS.iter().enumerate();
    let tasks: Vec<_> = tasks
        .map(|(place, task)| json!({ "content": task, "status": status(place) }))
        .collect();
    json!({ "todos": tasks })
}

const MARKDOWN: &str = "\
## What Markdown looks like

Text can be **bold**, *italic* or `code`, and there are [links](https://www.rust-lang.org).

1. First
2. Second
   - with a part

| city | river |
| --- | --- |
| Paris | Seine |
| Rome | Tiber |

> A quotation.

```rust
fn main() {
    println!(\"Hello!\");
}
```
";

fn long() -> String {
    const SENTENCES: [&str; 5] = [
        "The road follows the river for a while.",
        "Behind the second bridge it turns to the hills.",
        "From there one sees the whole valley, and on a clear day the sea.",
        "Nobody is in a hurry here.",
        "It is a good place to rest before the last part.",
    ];
    let paragraphs = (1..=20).map(|number| {
        let sentences = SENTENCES
            .iter()
            .cycle()
            .skip(number % SENTENCES.len())
            .take(SENTENCES.len());
        let sentences: Vec<_> = sentences.copied().collect();
        format!("**{number}.** {}", sentences.join(" "))
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// The script as chunks, word by word.
fn play(script: Script, delay: Duration) -> Chunks {
    let Script {
        thinking,
        text,
        call,
        call_id,
        read,
        fails,
    } = script;
    let chunk = |delta: Value| Ok(json!({ "model": "scripted", "choices": [{ "delta": delta }] }));
    let words = |text: &str| {
        text.split_inclusive(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let written = words(thinking).len() + words(&text).len();
    let mut chunks = Vec::new();
    chunks.extend(
        words(thinking)
            .into_iter()
            .map(|word| chunk(json!({ "reasoning_content": word }))),
    );
    chunks.extend(
        words(&text)
            .into_iter()
            .map(|word| chunk(json!({ "content": word }))),
    );
    if fails {
        let message = "The scripted model failed, as you asked.";
        chunks.push(Err(ModelError::new(message, "")));
    }
    let reason = if call.is_some() { "tool_calls" } else { "stop" };
    chunks.extend(call.map(|(name, arguments)| {
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        chunk(json!({ "tool_calls": [{ "index": 0, "id": call_id, "function": function }] }))
    }));
    chunks.push(Ok(json!({
        "choices": [{ "finish_reason": reason }],
        "usage": { "prompt_tokens": read, "completion_tokens": written },
    })));
    Box::pin(iter(chunks).then(move |chunk| async move {
        tokio::time::sleep(delay).await;
        chunk
    }))
}
