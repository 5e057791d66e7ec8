//! The model that answers: a script that needs no network, or a server that speaks `OpenAI`'s
//! protocol.

use std::time::Duration;

use futures_util::stream::{StreamExt as _, iter};
use sagents::openai::{Chunks, Client, ModelError, Request};
use sagents::{Content, Messages, Role, ToolResult};
use serde_json::{Value, json};

/// A model.
pub enum Model {
    /// Reacts to some words of the last message, and takes this long for each word.
    Scripted(Duration),
    /// Asks a server.
    Server(Box<Client>),
}

impl Model {
    /// The model that `OPENAI_MODEL` names, at `OPENAI_BASE_URL` with `OPENAI_API_KEY`. Without a
    /// name it's the scripted one, which takes `SCRIPTED_DELAY_MS` for a word.
    ///
    /// # Errors
    ///
    /// If a variable has no usable value.
    pub fn from_env() -> Result<Self, String> {
        if let Some(client) = Client::from_env()? {
            return Ok(Self::Server(Box::new(client)));
        }
        let delay = std::env::var("SCRIPTED_DELAY_MS").map_or(Ok(40), |delay| delay.parse());
        let delay = delay.map_err(|_| "SCRIPTED_DELAY_MS isn't a number of milliseconds")?;
        Ok(Self::Scripted(Duration::from_millis(delay)))
    }

    /// The name of the model.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Scripted(_) => "scripted",
            Self::Server(client) => client.model(),
        }
    }

    /// Asks about these messages. The answer continues `unfinished`.
    ///
    /// # Errors
    ///
    /// If the server refuses the request or can't be reached.
    pub async fn ask(
        &self,
        request: &Request,
        messages: &Messages,
        unfinished: &str,
    ) -> Result<Chunks, ModelError> {
        match self {
            Self::Scripted(delay) => Ok(play(script(messages), unfinished, *delay)),
            Self::Server(client) => client.ask(request).await,
        }
    }
}

/// A part of an answer of the scripted model.
enum Part {
    Think(&'static str),
    Say(String),
    Call(&'static str, Value),
    Fail,
}

use Part::{Call, Fail, Say, Think};

/// The answer to the last question, or to the result of the last tool.
fn script(messages: &Messages) -> Vec<Part> {
    let messages: Vec<_> = messages.iter().collect();
    let asked = messages.iter().rposition(|message| message.role == Role::User);
    let since = messages.split_at(asked.unwrap_or(0)).1;
    let calls = since.iter().filter(|message| !message.tool_calls.is_empty());
    let question = since.first().and_then(|message| message.content.as_ref());
    match since.last().and_then(|message| message.tool_results.last()) {
        Some(result) => after_tool(result, calls.count()),
        None => answer_to(&question.map(Content::text).unwrap_or_default()),
    }
}

fn answer_to(question: &str) -> Vec<Part> {
    const HELP: &str = "I'm a script that plays a model, so I know only a few words. Ask me for a \
        **postcard**, a **plan**, the **time**, a **long** answer or **Markdown**; ask me to \
        **think**, or to **fail**.";
    const LONG: &str = "The road follows the river, turns to the hills behind the second bridge, \
        and shows the whole valley. It's a good place to rest before the last part.\n\n";
    const WORDS: [&str; 7] = ["postcard", "plan", "time", "think", "markdown", "long", "fail"];

    let question = question.to_lowercase();
    match WORDS.into_iter().find(|word| question.contains(word)) {
        Some("postcard") => {
            let arguments = json!({ "to": "Paris", "text": "Greetings! The weather is fine." });
            let say = Say("I wrote one. Please look at it before I send it.".to_owned());
            vec![say, Call("send_postcard", arguments)]
        }
        Some("plan") => vec![Call("write_todos", todos(0))],
        Some("time") => vec![Call("current_time", json!({}))],
        Some("think") => vec![
            Think("Some answers are short, and some need a thought. This is one of those."),
            Say("I thought about it. **Yes.**".to_owned()),
        ],
        Some("markdown") => vec![Say(MARKDOWN.to_owned())],
        Some("long") => vec![Say(LONG.repeat(15))],
        Some("fail") => vec![Say("I begin to answer, and then".to_owned()), Fail],
        _ => vec![Say(HELP.to_owned())],
    }
}

/// `calls` is the number of answers with calls since the question.
fn after_tool(result: &ToolResult, calls: usize) -> Vec<Part> {
    let text = result.content.as_ref().map(Content::text).unwrap_or_default();
    let say = match result.name.as_deref() {
        Some("write_todos") if calls <= TASKS.len() => {
            return vec![Call("write_todos", todos(calls))];
        }
        Some("write_todos") => "Everything on the list is done.",
        Some("send_postcard") if text.contains("unknown") => {
            "I can't tell whether it was sent. Please check before you ask again."
        }
        Some("send_postcard") if result.is_error => "All right, I didn't send it.",
        Some("send_postcard") => "It's on its way.",
        _ => return vec![Say(format!("The tool says: {text}"))],
    };
    vec![Say(say.to_owned())]
}

const TASKS: [&str; 3] = ["Look at the map", "Choose a road", "Pack a bag"];

/// The tasks, of which the first `done` ones are done.
fn todos(done: usize) -> Value {
    let status = |place| if place < done { "completed" } else { "pending" };
    let tasks = TASKS.iter().enumerate();
    let tasks = tasks.map(|(place, task)| json!({ "content": task, "status": status(place) }));
    json!({ "todos": tasks.collect::<Vec<_>>() })
}

const MARKDOWN: &str = "\
Text can be **bold**, *italic* or `code`, and there are [links](https://www.rust-lang.org).

| city | river |
| --- | --- |
| Paris | Seine |

```rust
println!(\"Hello!\");
```
";

/// Streams the script as a server does, word by word.
fn play(script: Vec<Part>, unfinished: &str, delay: Duration) -> Chunks {
    let delta = |delta| json!({ "model": "scripted", "choices": [{ "delta": delta }] });
    let mut chunks = Vec::new();
    for part in script {
        match part {
            Think(text) => {
                let words = text.split_inclusive(' ');
                chunks.extend(words.map(|word| Ok(delta(json!({ "reasoning_content": word })))));
            }
            Say(text) => {
                let words = text.strip_prefix(unfinished).unwrap_or(&text).split_inclusive(' ');
                chunks.extend(words.map(|word| Ok(delta(json!({ "content": word })))));
            }
            Call(name, arguments) => {
                let function = json!({ "name": name, "arguments": arguments.to_string() });
                let call = json!({ "index": 0, "function": function });
                chunks.push(Ok(delta(json!({ "tool_calls": [call] }))));
            }
            Fail => chunks.push(Err(ModelError::new("The script failed, as you asked.", ""))),
        }
    }
    let usage = json!({ "prompt_tokens": 1, "completion_tokens": chunks.len() });
    let end = json!({ "choices": [{ "finish_reason": "stop" }], "usage": usage });
    chunks.push(Ok(end));
    Box::pin(iter(chunks).then(move |chunk| async move {
        tokio::time::sleep(delay).await;
        chunk
    }))
}
