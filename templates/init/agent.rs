//! The agent: what happens between a message of a person and the answer.
//!
//! It is a loop. The model is asked, the tools that it calls are run, and it is asked again, until it
//! calls none. Everything goes through the session, which stores it and shows it to connected pages, so
//! the loop can begin again wherever it was stopped.
//!
//! This file is yours: change the instructions, add tools.

use std::time::Duration;

use async_openai::types::chat::ChatCompletionTools;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use {{ module }}::web::openai::{Answer, tool};
use {{ module }}::web::{Agent, AgentError, AgentRun, Outcome, StartCall};
use crate::model::{Model, ModelError, Request};
use crate::sagents::{
    Content, Message, MessageStatus, Role, State, Todo, TodoStatus, ToolCall, ToolResult, timestamp,
};

const INSTRUCTIONS: &str = "You are a helpful assistant. Answer in Markdown, and be brief. \
    Before you begin something with several steps, write the steps down with write_todos, and keep them up to date.";

/// How often the model may be asked in a run.
const MOST_TURNS: usize = 25;

/// How often a page gets what the model has written.
const PARTIAL_INTERVAL: Duration = Duration::from_millis(200);

/// An agent with three tools.
pub struct Assistant {
    model: Model,
}

impl Assistant {
    /// The model answers.
    #[must_use]
    pub fn new(model: Model) -> Self {
        Self { model }
    }
}

impl Agent for Assistant {
    async fn run(&self, run: AgentRun) -> Result<Outcome, AgentError> {
        match self.work(&run).await {
            // What failed then failed because of that.
            _ if run.token.is_cancelled() => Ok(Outcome::Cancelled),
            Err(error) => {
                let error = error.downcast::<ModelError>()?;
                tracing::error!(detail = error.detail(), "the model failed");
                Ok(Outcome::Failed(error.to_string()))
            }
            outcome => outcome,
        }
    }
}

impl Assistant {
    async fn work(&self, run: &AgentRun) -> Result<Outcome, AgentError> {
        set_title(run).await?;
        let mut unfinished = run.unfinished().await?;
        let mut has_missed = false;
        for _ in 0..MOST_TURNS {
            let waiting = run_tools(run).await?;
            if !waiting.is_empty() {
                return Ok(Outcome::Waiting(json!({ "call_ids": waiting })));
            }
            if run.token.is_cancelled() || is_answered(run) && !has_missed {
                return Ok(Outcome::Finished);
            }
            has_missed = self.ask(run, unfinished.take()).await?;
        }
        Ok(Outcome::Failed(format!(
            "The agent was stopped after {MOST_TURNS} turns."
        )))
    }

    /// Asks the model, and adds its answer to the conversation. An answer that was interrupted goes on
    /// where it ends, in the same message. Returns whether somebody wrote in the meantime.
    async fn ask(
        &self,
        run: &AgentRun,
        unfinished: Option<(Uuid, String)>,
    ) -> Result<bool, AgentError> {
        let session = &run.session;
        let (id, text) = unfinished.unwrap_or_else(|| (Uuid::now_v7(), String::new()));
        let messages = session.read(|state| state.messages.clone());
        let request = Request {
            instructions: INSTRUCTIONS,
            messages: &messages,
            unfinished: &text,
            tools: tools(),
        };
        let mut answer = Answer::behind(&text);
        let streamed = tokio::select! {
            () = run.token.cancelled() => Ok(None),
            streamed = self.stream(run, id, request, &mut answer) => streamed.map(Some),
        };
        let Ok(Some(message)) = streamed else {
            // What it has said is kept. The end of the run marks it as interrupted.
            session.partial(id, answer.so_far())?;
            return streamed.map(|_| false);
        };
        let has_missed = session.read(|state| state.messages.len() > messages.len());
        session.add_message_with_id(id, message)?;
        // It is stored before its tools run.
        session.save().await?;
        Ok(has_missed)
    }

    async fn stream(
        &self,
        run: &AgentRun,
        id: Uuid,
        request: Request<'_>,
        answer: &mut Answer,
    ) -> Result<Message, AgentError> {
        let mut chunks = self.model.ask(request).await?;
        let mut shown_at = Instant::now();
        while let Some(chunk) = chunks.next().await {
            answer
                .add(&chunk?)
                .map_err(|error| ModelError::new("The model failed.", error))?;
            if shown_at.elapsed() >= PARTIAL_INTERVAL {
                run.session.partial(id, answer.so_far())?;
                shown_at = Instant::now();
            }
        }
        let message = answer.clone().finish();
        let cut = || ModelError::new("The model stopped in the middle of its answer.", "");
        let message = message.ok_or_else(cut)?;
        if message.content.is_none() && message.tool_calls.is_empty() {
            return Err(ModelError::new("The model gave no answer.", "").into());
        }
        Ok(message)
    }
}

/// The first words of the first message are the title, unless there is one.
async fn set_title(run: &AgentRun) -> Result<(), AgentError> {
    const LONGEST: usize = 60;

    let id = run.session.conversation_id();
    if run
        .conversations
        .get_conversation(&run.scope, id)
        .await?
        .title
        .is_some()
    {
        return Ok(());
    }
    let first = run.session.read(|state| {
        let first = state
            .messages
            .iter()
            .find(|message| message.role == Role::User);
        first
            .and_then(|message| message.content.as_ref())
            .map(Content::text)
    });
    let mut title = String::new();
    for word in first.iter().flat_map(|text| text.split_whitespace()) {
        if !title.is_empty() && title.chars().count() + word.chars().count() > LONGEST {
            title += " …";
            break;
        }
        if !title.is_empty() {
            title.push(' ');
        }
        title.extend(word.chars().take(LONGEST));
    }
    if !title.is_empty() {
        run.session.title_generated(title)?;
    }
    Ok(())
}

/// Whether the last message is a whole answer.
fn is_answered(run: &AgentRun) -> bool {
    run.session.read(|state| {
        let last = state.messages.last();
        last.is_none_or(|last| {
            last.role == Role::Assistant && last.status == MessageStatus::Complete
        })
    })
}

/// Runs the tools that the model has called. Returns the calls that wait for a person.
async fn run_tools(run: &AgentRun) -> Result<Vec<String>, AgentError> {
    let session = &run.session;
    let (mut waiting, mut has_run) = (Vec::new(), false);
    for call in open_calls(run) {
        let result = match result_of(run, &call).await? {
            Some(Ok(text)) => ToolResult::new(call.call_id, call.name, text),
            Some(Err(text)) => ToolResult::error(call.call_id, call.name, text),
            None => {
                if is_open(run, &call) {
                    waiting.push(call.call_id);
                }
                continue;
            }
        };
        session.tool_result(result)?;
        has_run = true;
    }
    if has_run {
        session.save().await?;
    }
    Ok(waiting)
}

/// Runs the tool of a call, unless a person has to decide first or it was started before. An error is
/// for the model.
async fn result_of(
    run: &AgentRun,
    call: &ToolCall,
) -> Result<Option<Result<String, String>>, AgentError> {
    let (session, id) = (&run.session, call.call_id.as_str());
    if run.token.is_cancelled() {
        let is_cancelled = session.cancel_call(id).await?;
        let stopped = || Err("The user stopped the agent before the tool ran.".to_owned());
        return Ok(is_cancelled.then(stopped));
    }
    let is_asked = session.read(|state| state.result_of(id).is_some());
    if let Some(question) = question(call).filter(|_| !is_asked) {
        session.tool_interrupted(id, json!({ "question": question }))?;
        return Ok(None);
    }
    Ok(match run.start_call(id).await? {
        StartCall::Waiting | StartCall::Over => None,
        StartCall::Rejected(None) => Some(Err("The user does not want this.".to_owned())),
        StartCall::Rejected(Some(reason)) => {
            Some(Err(format!("The user does not want this: {reason}")))
        }
        StartCall::Run(None) => {
            let arguments = call.arguments.clone().unwrap_or_default();
            Some(run_tool(run, &call.name, &arguments).await)
        }
        StartCall::Run(Some(arguments)) => {
            let result = run_tool(run, &call.name, &arguments).await;
            let note =
                |result| format!("{result} The user had changed the arguments to {arguments}.");
            Some(result.map(note))
        }
    })
}

/// The calls of the last answer that have no result, or only a question in place of it.
fn open_calls(run: &AgentRun) -> Vec<ToolCall> {
    run.session.read(|state| {
        let mut answers = state
            .messages
            .iter()
            .rev()
            .filter(|message| message.role == Role::Assistant);
        let calls = answers
            .next()
            .into_iter()
            .flat_map(|message| &message.tool_calls);
        calls.filter(|call| lacks_result(state, call)).cloned().collect()
    })
}

fn is_open(run: &AgentRun, call: &ToolCall) -> bool {
    run.session.read(|state| lacks_result(state, call))
}

fn lacks_result(state: &State, call: &ToolCall) -> bool {
    let result = state.result_of(&call.call_id);
    result.is_none_or(|result| result.is_interrupt)
}

/// The tools, as the model sees them.
fn tools() -> Vec<ChatCompletionTools> {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let status = json!({ "enum": ["pending", "in_progress", "completed"] });
    let todo = json!({
        "type": "object",
        "properties": { "content": text("The task, in a few words"), "status": status },
        "required": ["content", "status"],
    });
    vec![
        tool(
            "current_time",
            "The date and the time, in UTC.",
            json!({ "type": "object", "properties": {} }),
        ),
        tool(
            "write_todos",
            "Replaces the list of tasks that the user sees.",
            json!({
                "type": "object",
                "properties": { "todos": { "type": "array", "items": todo } },
                "required": ["todos"],
            }),
        ),
        tool(
            "send_postcard",
            "Sends a postcard. The user is asked first.",
            json!({
                "type": "object",
                "properties": { "to": text("Who gets it"), "text": text("What is written on it") },
                "required": ["to", "text"],
            }),
        ),
    ]
}

/// What a person is asked before the call runs, if the tool needs that.
fn question(call: &ToolCall) -> Option<String> {
    (call.name == "send_postcard").then(|| "Send this postcard?".to_owned())
}

/// Runs a tool. The model reads the result, also if it is an error.
async fn run_tool(run: &AgentRun, name: &str, arguments: &Value) -> Result<String, String> {
    match name {
        "current_time" => Ok(timestamp::to_text(timestamp::now())),
        "write_todos" => {
            let todos = arguments["todos"].as_array().ok_or("todos is not a list")?;
            let todos: Vec<_> = (1..)
                .zip(todos)
                .map(|(number, todo)| read_todo(number, todo))
                .collect();
            let changed = run.session.change(|state| state.set_todos(todos));
            changed.map_err(|error| error.to_string())?;
            Ok("The list is replaced.".to_owned())
        }
        "send_postcard" => match (arguments["to"].as_str(), arguments["text"].as_str()) {
            (Some(to), Some(_)) => {
                // A real one would be sent here.
                tokio::time::sleep(Duration::from_millis(300)).await;
                Ok(format!("The postcard to {to} was sent."))
            }
            _ => Err("A postcard needs `to` and `text`.".to_owned()),
        },
        _ => Err(format!("There is no tool {name}.")),
    }
}

fn read_todo(number: i64, todo: &Value) -> Todo {
    let status = match todo["status"].as_str() {
        Some("completed") => TodoStatus::Completed,
        Some("in_progress") => TodoStatus::InProgress,
        _ => TodoStatus::Pending,
    };
    Todo::new(number, todo["content"].as_str().unwrap_or_default()).status(status)
}
