//! The agent's side of a conversation: what it knows, how that is stored, and what a person sees.
//!
//! **Configuration lives in code, state in the database.** Which model an agent talks to, its
//! tools, its prompts and its middleware are code; they change with a deploy. What it has been told
//! and what it remembers is [`State`]; it is saved and loaded. No secret is ever in the database,
//! and no stored conversation has to be migrated because a prompt changed.
//!
//! In the examples, `conversations` is the generated context and `scope` says who is asking.
//!
//! # Create a conversation and talk
//!
//! ```ignore
//! let chat = conversations
//!     .create_conversation(&scope, NewConversation::new().title("Plans"))
//!     .await?;
//! let context = LoadContext::new(chat.id);
//! let (mut state, expect) =
//!     State::load_or_new(&conversations, &scope, &context, State::new()).await?;
//! assert_eq!(expect, Expect::NOTHING);
//!
//! state.add_message(Message::user("Where shall we go?"));
//! state.add_message(Message::assistant("To the sea."));
//! ```
//!
//! # Save
//!
//! A save says what it expects to find. A writer that missed the save of another gets a `Conflict`
//! with the current revision and has overwritten nothing; it loads and tries again.
//!
//! ```ignore
//! let chat = conversations.create_conversation(&scope, NewConversation::new()).await?;
//! let mut state = State::new();
//! state.add_message(Message::user("Hello!"));
//! let first = conversations
//!     .save_agent_state(&scope, chat.id, &state, Expect::NOTHING)
//!     .await?;
//!
//! state.add_message(Message::assistant("Hello."));
//! let second = conversations
//!     .save_agent_state(&scope, chat.id, &state, Expect::Revision(first))
//!     .await?;
//!
//! let late = conversations
//!     .save_agent_state(&scope, chat.id, &state, Expect::Revision(first))
//!     .await;
//! assert!(matches!(late, Err(Error::Conflict { current }) if current == second));
//! ```
//!
//! # Show a conversation to a person
//!
//! A page does not need the agent's state. `save_message` stores what each message shows, as it is
//! said; the page loads only that.
//!
//! ```ignore
//! let chat = conversations.create_conversation(&scope, NewConversation::new()).await?;
//! let call = ToolCall::new("call_1", "search", serde_json::json!({ "query": "sea" }));
//! let mut answer = Message::assistant("Let me look.");
//! answer.tool_calls = vec![call];
//! conversations
//!     .save_message(&scope, chat.id, uuid::Uuid::now_v7(), &answer)
//!     .await?;
//! conversations.mark_tool_executing(&scope, chat.id, "call_1").await?;
//!
//! let page = conversations
//!     .load_display_messages(&scope, chat.id, MessagePage::last())
//!     .await?;
//! let seen: Vec<_> = page.iter().map(|message| message.content.as_str()).collect();
//! assert_eq!(seen, ["Let me look.", "search"]);
//! assert_eq!(page[1].status, Some(ToolStatus::Executing));
//! let todos = conversations.load_todos(&scope, chat.id).await?;
//! assert!(todos.is_empty());
//! ```
//!
//! # When there is no state, or none that can be read
//!
//! [`State::load_or_new`] starts afresh where nothing is saved, and where what is saved is damaged:
//! a user can ask again, but not use an agent that does not start. Damaged bytes are not lost. The
//! save that follows moves them aside, where they stay until `restore_unreadable`. What a *newer*
//! version wrote is never started over; that is an error.
//!
//! ```ignore
//! let chat = conversations.create_conversation(&scope, NewConversation::new()).await?;
//! let missing = conversations.load_agent_state(&scope, chat.id).await;
//! assert!(matches!(missing, Err(Error::NotFound)));
//!
//! let context = LoadContext::new(chat.id);
//! let (mut state, expect) =
//!     State::load_or_new(&conversations, &scope, &context, State::new()).await?;
//! // Interrupts that this application cannot take up again become failures the model can read.
//! state.clean_stale_interrupts(|data| data["type"] == "ask_user");
//! conversations
//!     .persist_state(&scope, &state, expect, &context.because(Lifecycle::Completion))
//!     .await?;
//! ```
//!
//! # New middleware on old conversations
//!
//! Middleware keeps its own type under its own key and gets its default where it has kept nothing
//! yet, so nothing stored has to be migrated. What middleware that is gone has left is harmless: it
//! is carried along.
//!
//! ```ignore
//! #[derive(Default, serde::Serialize, serde::Deserialize)]
//! struct Budget {
//!     tokens: u64,
//! }
//!
//! let mut state = State::new();
//! let mut budget: Budget = state.get_typed("budget")?;
//! budget.tokens += 120;
//! state.put_typed("budget", &budget)?;
//! assert_eq!(state.get_typed::<Budget>("budget")?.tokens, 120);
//! ```
//!
//! # Let a session save it
//!
//! Nobody has to think of saving: an [`AgentSession`](session::AgentSession) stores what happens, in
//! the background. It works beside whatever runs the model; here that is a function which plays
//! one. The agent is stopped in the middle of its work, and goes on after the restart.
//!
//! ```ignore
//! use session::{AgentSession, Coordinator};
//!
//! /// A model that looks at the weather before it answers.
//! async fn ask_model(messages: Vec<Message>) -> Message {
//!     let told = messages.iter().any(|message| !message.tool_results.is_empty());
//!     if told {
//!         Message::assistant("Take an umbrella.")
//!     } else {
//!         let city = serde_json::json!({ "city": "Oslo" });
//!         Message::tool_calls([ToolCall::new("call_1", "weather", city)])
//!     }
//! }
//!
//! /// Does so many steps, or fewer if the agent is done. Where it is says its last message, so it
//! /// can be stopped anywhere.
//! async fn run(
//!     session: &AgentSession<Conversations>,
//!     steps: usize,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     for _ in 0..steps {
//!         let messages = session.read(|state| state.messages.clone());
//!         let next = match messages.last() {
//!             Some(last) if !last.tool_calls.is_empty() => {
//!                 // Before a tool does something, it is stored that it was asked to.
//!                 session.save().await?;
//!                 Message::tool_results([ToolResult::new("call_1", "weather", "rain")])
//!             }
//!             Some(last) if last.role == MessageRole::Assistant => {
//!                 session.completed()?;
//!                 break;
//!             }
//!             _ => ask_model(messages).await,
//!         };
//!         session.add_message(next)?;
//!     }
//!     Ok(())
//! }
//!
//! let chat = conversations.create_conversation(&scope, NewConversation::new()).await?;
//! let coordinator = Coordinator::new(conversations.clone());
//! let session = coordinator.start(scope.clone(), chat.id).await?;
//! session.add_message(Message::user("What shall I wear?"))?;
//! run(&session, 1).await?;
//! let ended = coordinator.shutdown(std::time::Duration::from_secs(10)).await;
//! assert!(ended.unsaved.is_empty());
//!
//! // The application was restarted.
//! let coordinator = Coordinator::new(conversations.clone());
//! let session = coordinator.start(scope.clone(), chat.id).await?;
//! run(&session, 10).await?;
//! session.shutdown().await?;
//!
//! let page = conversations
//!     .load_display_messages(&scope, chat.id, MessagePage::last())
//!     .await?;
//! let seen: Vec<_> = page.iter().map(|message| message.content.as_str()).collect();
//! assert_eq!(seen, ["What shall I wear?", "weather", "rain", "Take an umbrella."]);
//! let known = conversations.load_agent_state(&scope, chat.id).await?;
//! assert_eq!(known.state.messages.len(), 4);
//! ```
//!
//! # Clean up
//!
//! ```ignore
//! let month = chrono::TimeDelta::days(30);
//! let deleted = conversations
//!     .delete_conversations_before(chrono::Utc::now() - month)
//!     .await?;
//! assert_eq!(deleted, 0);
//! ```

#![forbid(unsafe_code)]
#![allow(dead_code, unused_imports, reason = "an application uses a part of it")]

mod display;
mod json;
mod message;
mod persistence;
mod runtime;
pub mod serializer;
pub mod session;
mod state;
mod todo;

pub use self::display::display_items;
pub use self::display::{DisplayItem, DisplayKind};
pub use self::message::{
    Content, ContentPart, Message, MessageRole, MessageStatus, PartKind, ToolCall, ToolCallStatus,
    ToolResult,
};
pub use self::persistence::{
    AgentPersistence, Expect, Failure, Lifecycle, LoadContext, Loaded, PersistContext, Revision,
    SessionPersistence,
};
pub use self::runtime::Runtime;
pub use self::serializer::{ReadError, TooDeep};
pub use self::state::State;
pub use self::todo::{Todo, TodoId, TodoStatus};
