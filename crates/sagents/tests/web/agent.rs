//! An agent that does what a message says.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use sagents::web::{Agent, AgentError, AgentRun, Outcome, StartCall};
use sagents::{Content, Message, Role, State, Todo, ToolCall, ToolResult};
use serde_json::{Value, json};
use uuid::Uuid;

pub struct Script;

/// A tool. Changed arguments may name a file that gets a line for every run, and one that ends the tool as soon as it
/// exists.
async fn send_postcard(arguments: Option<Value>) -> String {
    let Some(arguments) = arguments else { return "sent".to_owned() };
    if let Some(log) = arguments["log"].as_str() {
        let mut log = File::options().create(true).append(true).open(log).unwrap();
        log.write_all(b"ran\n").unwrap();
    }
    assert_ne!(arguments["panics"], true, "a secret of the tool");
    if let Some(end) = arguments["end"].as_str() {
        while !Path::new(end).exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    arguments.to_string()
}

impl Agent for Script {
    async fn run(&self, run: AgentRun) -> Result<Outcome, AgentError> {
        let session = &run.session;
        for call in session.read(State::undecided_tool_calls) {
            let result = match run.start_call(&call).await? {
                StartCall::Waiting => return Ok(Outcome::Waiting(json!({ "call": call }))),
                StartCall::Rejected(_) => ToolResult::error(&call, "postcard", "rejected"),
                StartCall::Over => ToolResult::error(&call, "postcard", "over"),
                StartCall::Run(arguments) => ToolResult::new(&call, "postcard", send_postcard(arguments).await),
            };
            session.add_tool_result(result)?;
        }
        if let Some((id, text)) = run.unfinished().await? {
            session.add_message(id, Message::assistant(format!("{text} continued")))?;
            return Ok(Outcome::Finished);
        }
        let asked = session.read(|state| {
            let mut users = state.messages.iter().filter(|message| message.role == Role::User);
            users.next_back().and_then(|message| message.content.as_ref()).map(Content::text)
        });
        let (id, asked) = (Uuid::now_v7(), asked.unwrap_or_default());
        match asked.as_str() {
            "fail" => return Err("a secret of the agent".into()),
            "panic" => panic!("a secret of the agent"),
            "ask" | "ask twice"
                if session.read(|state| state.messages.iter().all(|message| message.tool_results.is_empty())) =>
            {
                let ids = ["call_1", "call_2"].into_iter().take(asked.split(' ').count());
                let calls = ids.clone().map(|id| ToolCall::new(id, "postcard", json!({ "to": "Paris" })));
                session.add_message(id, Message::tool_calls(calls))?;
                for id in ids {
                    session.interrupt_tool_call(id, json!({ "question": "Send it?" }))?;
                }
                return Ok(Outcome::Waiting(json!({ "call": "call_1" })));
            }
            "wait" => {
                session.save_draft(id, Message::assistant("so far"))?;
                run.token.cancelled().await;
                return Ok(Outcome::Cancelled);
            }
            "plan" => {
                session.change(|state| state.put_todo(Todo::new(1, "write")))?;
                session.set_title("A plan")?;
            }
            _ => {}
        }
        session.save_draft(id, Message::assistant("You"))?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        session.save_draft(id, Message::assistant("You said"))?;
        session.add_message(id, Message::assistant(format!("You said {asked}")))?;
        Ok(Outcome::Finished)
    }
}
