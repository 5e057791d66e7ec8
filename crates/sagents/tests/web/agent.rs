//! An agent that does what a message says.

use std::time::Duration;

use sagents::web::{Agent, AgentError, AgentRun, Outcome, StartCall};
use sagents::{Content, Message, Role, State, Todo, ToolCall, ToolResult};
use serde_json::json;
use uuid::Uuid;

pub struct Script;

impl Agent for Script {
    async fn run(&self, run: AgentRun) -> Result<Outcome, AgentError> {
        let session = &run.session;
        for call in session.read(State::undecided_tool_calls) {
            let result = match run.start_call(&call).await? {
                StartCall::Waiting => return Ok(Outcome::Waiting(json!({ "call": call }))),
                StartCall::Rejected(_) => ToolResult::error(&call, "postcard", "rejected"),
                StartCall::Over => ToolResult::error(&call, "postcard", "over"),
                StartCall::Run(arguments) => {
                    let text = arguments.map_or("sent".to_owned(), |edited| edited.to_string());
                    ToolResult::new(&call, "postcard", text)
                }
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
            "ask" if session.read(|state| state.messages.iter().all(|message| message.tool_results.is_empty())) => {
                let call = ToolCall::new("call_1", "postcard", json!({ "to": "Paris" }));
                session.add_message(id, Message::tool_calls([call]))?;
                session.interrupt_tool_call("call_1", json!({ "question": "Send it?" }))?;
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
