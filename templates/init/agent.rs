//! The agent: it asks the model, runs the tools that the model calls, and asks again until there
//! are no calls.
//!
//! It reports everything to the session, which stores it and shows it on the page. So a run can
//! stop at any point and continue later. Change the instructions and the tools.

use std::time::Duration;

use futures_util::StreamExt as _;
use sagents::openai::{Answer, ModelError, Request, tool};
use sagents::web::{Agent, AgentError, AgentRun, Outcome, StartCall};
use sagents::{Content, Message, MessageStatus, Role, State, Timestamp, Todo, TodoStatus, ToolResult};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::model::Model;

const INSTRUCTIONS: &str = "You are a helpful assistant. Answer in Markdown, and be brief. \
    Before a task with several steps, list them with write_todos, and keep the list up to date.";

/// A run ends after this many answers of the model.
const MAX_TURNS: usize = 25;

/// How often pages get the answer so far.
const DRAFT_INTERVAL: Duration = Duration::from_millis(200);

/// An agent with three tools.
pub struct Assistant {
    conversations: {{ module }}::{{ context }},
    model: Model,
}

impl Agent for Assistant {
    async fn run(&self, run: AgentRun) -> Result<Outcome, AgentError> {
        self.set_title(&run).await?;
        let mut unfinished = run.unfinished().await?;
        let mut was_interrupted = false;
        for _ in 0..MAX_TURNS {
            run_tools(&run).await?;
            if run.token.is_cancelled() {
                return Ok(Outcome::Cancelled);
            }
            let undecided = run.session.read(State::undecided_tool_calls);
            if !undecided.is_empty() {
                return Ok(Outcome::Waiting(json!({ "tool_call_ids": undecided })));
            }
            if run.session.read(is_answered) && !was_interrupted {
                return Ok(Outcome::Finished);
            }
            was_interrupted = match self.answer(&run, unfinished.take()).await {
                Err(_) if run.token.is_cancelled() => return Ok(Outcome::Cancelled),
                Err(error) => {
                    let error = error.downcast::<ModelError>()?;
                    tracing::error!(detail = error.detail(), "the model failed");
                    return Ok(Outcome::Failed(error.to_string()));
                }
                Ok(was_interrupted) => was_interrupted,
            };
        }
        let text = format!("The agent was stopped after {MAX_TURNS} answers.");
        Ok(Outcome::Failed(text))
    }
}

impl Assistant {
    /// An agent for these conversations.
    #[must_use]
    pub fn new(conversations: {{ module }}::{{ context }}, model: Model) -> Self {
        Self { conversations, model }
    }

    /// The beginning of the first message is the title, unless there is one.
    async fn set_title(&self, run: &AgentRun) -> Result<(), AgentError> {
        let id = run.session.conversation_id();
        let conversation = self.conversations.get_conversation(&run.scope, id).await?;
        let text = run.session.read(|state| {
            let mut messages = state.messages.iter();
            let first = messages.find(|message| message.role == Role::User)?;
            first.content.as_ref().map(Content::text)
        });
        let line = text.as_deref().and_then(|text| text.lines().next());
        let title: String = line.unwrap_or_default().chars().take(60).collect();
        if conversation.title.is_none() && !title.is_empty() {
            run.session.set_title(title)?;
        }
        Ok(())
    }

    /// Adds an answer of the model to the conversation. An unfinished one continues in the same
    /// message. Returns whether a user wrote something in the meantime.
    async fn answer(&self, run: &AgentRun, unfinished: Option<(Uuid, String)>) -> Result<bool, AgentError> {
        let session = &run.session;
        let (id, text) = unfinished.unwrap_or_else(|| (Uuid::now_v7(), String::new()));
        let messages = session.read(|state| state.messages.clone());
        let request = Request::new(&messages).instructions(INSTRUCTIONS);
        let request = tools().into_iter().fold(request, Request::tool);
        let request = request.unfinished(text.as_str());
        let mut answer = Answer::behind(text.as_str());
        let stream = async {
            let mut chunks = self.model.ask(&request, &messages, &text).await?;
            let mut shown_at = Instant::now();
            while let Some(chunk) = chunks.next().await {
                answer.add(&chunk?).map_err(ModelError::failed)?;
                if shown_at.elapsed() >= DRAFT_INTERVAL {
                    session.save_draft(id, answer.so_far())?;
                    shown_at = Instant::now();
                }
            }
            Ok::<_, AgentError>(())
        };
        let streamed = tokio::select! {
            () = run.token.cancelled() => Err("cancelled".into()),
            streamed = stream => streamed,
        };
        if streamed.is_err() {
            // The next run continues from here.
            session.save_draft(id, answer.so_far())?;
        }
        streamed?;
        let message = answer.finish();
        let cut = || ModelError::new("The model stopped in the middle of its answer.", "");
        let message = message.ok_or_else(cut)?;
        if message.content.is_none() && message.tool_calls.is_empty() {
            return Err(ModelError::new("The model gave no answer.", "").into());
        }
        let was_interrupted = session.read(|state| state.messages.len() > messages.len());
        session.add_message(id, message)?;
        // The calls are saved before their tools run.
        session.save().await?;
        Ok(was_interrupted)
    }
}

/// Whether the conversation ends with a complete answer.
fn is_answered(state: &State) -> bool {
    let last = state.messages.iter().next_back();
    let is_complete = |last: &Message| last.status == MessageStatus::Complete;
    last.is_none_or(|last| last.role == Role::Assistant && is_complete(last))
}

/// Runs the tools of all calls that have no result and don't wait for a person.
async fn run_tools(run: &AgentRun) -> Result<(), AgentError> {
    let session = &run.session;
    for call in session.read(State::open_tool_calls) {
        let id = &call.tool_call_id;
        if run.token.is_cancelled() {
            // Otherwise it runs in another process.
            if session.cancel_unstarted_tool_call(id).await? {
                let text = "The user stopped the agent before the tool ran.";
                session.add_tool_result(ToolResult::error(id, &call.name, text))?;
            }
            continue;
        }
        let is_asked = session.read(|state| state.result_of(id).is_some());
        if call.name == "send_postcard" && !is_asked {
            session.interrupt_tool_call(id, json!({ "question": "Send this postcard?" }))?;
            continue;
        }
        let arguments = call.arguments.clone().unwrap_or_default();
        let result = match run.start_call(id).await? {
            StartCall::Waiting | StartCall::Over => continue,
            StartCall::Rejected(reason) => {
                let reason = reason.unwrap_or_default();
                Err(format!("The user doesn't want this. {reason}"))
            }
            StartCall::Run(None) => run_tool(run, &call.name, &arguments).await,
            StartCall::Run(Some(edited)) => {
                let result = run_tool(run, &call.name, &edited).await;
                result.map(|text| format!("{text} The user changed the arguments to {edited}."))
            }
        };
        session.add_tool_result(match result {
            Ok(text) => ToolResult::new(id, &call.name, text),
            Err(text) => ToolResult::error(id, &call.name, text),
        })?;
        session.save().await?;
    }
    Ok(())
}

/// The tools, as the model sees them.
fn tools() -> [Value; 3] {
    fn object(required: &[&str], properties: &Value) -> Value {
        json!({ "type": "object", "required": required, "properties": properties })
    }

    let text = json!({ "type": "string" });
    let status = json!({ "enum": ["pending", "in_progress", "completed"] });
    let todo = object(&["content", "status"], &json!({ "content": text, "status": status }));
    let todos = json!({ "todos": { "type": "array", "items": todo } });
    let todos = object(&["todos"], &todos);
    let postcard = object(&["to", "text"], &json!({ "to": text, "text": text }));
    [
        tool("current_time", "The time, in UTC.", object(&[], &json!({}))),
        tool("write_todos", "Replaces the user's list of tasks.", todos),
        tool("send_postcard", "Sends it, if the user agrees.", postcard),
    ]
}

/// Runs a tool. The model reads the result, also if it's an error.
async fn run_tool(run: &AgentRun, name: &str, arguments: &Value) -> Result<String, String> {
    match name {
        "current_time" => Ok(Timestamp::now().to_string()),
        "write_todos" => {
            let todos = arguments["todos"].as_array().ok_or("todos isn't a list")?;
            let todos = (1..).zip(todos).map(read_todo).collect();
            let changed = run.session.change(|state| state.set_todos(todos));
            changed.map_err(|error| error.to_string())?;
            Ok("The list is replaced.".to_owned())
        }
        "send_postcard" => {
            let to = arguments["to"].as_str().ok_or("A postcard needs `to`.")?;
            // A real one would be sent here.
            sleep(Duration::from_millis(300)).await;
            Ok(format!("The postcard to {to} was sent."))
        }
        _ => Err(format!("There is no tool {name}.")),
    }
}

fn read_todo((number, todo): (i64, &Value)) -> Todo {
    let status = match todo["status"].as_str() {
        Some("completed") => TodoStatus::Completed,
        Some("in_progress") => TodoStatus::InProgress,
        _ => TodoStatus::Pending,
    };
    Todo::new(number, todo["content"].as_str().unwrap_or_default()).status(status)
}
