//! Sessions: agent states that save themselves.
//!
//! The code that runs a model holds an [`AgentSession`] and reports to it: messages, other changes of the agent state, and
//! how the run goes. The session stores everything in a task of its own, so the agent doesn't wait for the database.
//!
//! - A conversation has **one session** per process. A [`Coordinator`] starts or finds it, for the conversation's owner only.
//! - The **agent state** is saved within 30 seconds after a change, when a run ends or waits for a person, and when the
//!   session ends ([`AutoSave`]). One save stores all changes since the last one. A process that's killed loses the changes
//!   since its last save. Sessions spread their saves over the interval, and only a few save at once.
//! - **Display messages** are stored at once, in order, each exactly once. When [`send_message`](AgentSession::send_message)
//!   returns, its message is saved and displayed. After a kill, the next session reconciles display messages and agent state.
//! - **Tool calls** are stored after their messages. A [decision](AgentSession::decide_tool_call) is taken once, and a call is
//!   [claimed](AgentSession::claim_tool_call) once, in all processes.
//! - A conversation has **one [run](AgentSession::begin_run)** of its agent, in all processes.
//! - **Transient failures** are retried with exponential backoff, and soon after another session could store something. Every
//!   failure is reported: by `tracing`, to [subscribers](AgentSession::subscribe) and in the [`Stats`]. The shutdown also
//!   returns display messages that failed permanently.
//! - If **another process** saves the same conversation, the session gets a conflict instead of overwriting it, and reports
//!   it or reloads ([`OnConflict`]).
//!
//! # Runs and approvals
//!
//! [`begin_run`](AgentSession::begin_run) gives the conversation to one process. A tool call that needs a person's consent is
//! [interrupted](AgentSession::interrupt_tool_call), and the run [waits](AgentSession::wait_run); the person may take days,
//! and the application may restart. A turn can have several such calls, so decide what to do with a run by asking for all of
//! them: while [`undecided_tool_calls`](crate::State::undecided_tool_calls) isn't empty, the run waits, and
//! [`complete_run`](AgentSession::complete_run) is refused.
//!
//! ```
//! use sagents::session::{AgentSession, SessionError};
//! use sagents::{BeginRun, Claim, Decision, Message, State, ToolCall, ToolResult};
//! use serde_json::{Value, json};
//! use uuid::Uuid;
//!
//! # async fn ask_model(_: &AgentSession) -> Message { Message::assistant("") }
//! # fn needs_consent(_: &ToolCall) -> bool { true }
//! # async fn execute(_: &ToolCall, _: Option<Value>) -> String { String::new() }
//! /// Runs the agent until it's done or needs a decision. Call it again after each decision.
//! async fn run(session: &AgentSession) -> Result<(), SessionError> {
//!     let BeginRun::Started(run) = session.begin_run().await? else {
//!         return Ok(()); // it runs already, here or in another process
//!     };
//!     session.continue_run()?;
//!     while !run.token().is_cancelled() {
//!         for call in session.read(State::open_tool_calls) {
//!             run_tool(session, &call).await?;
//!         }
//!         if !session.read(State::undecided_tool_calls).is_empty() {
//!             return session.wait_run(json!({}));
//!         }
//!         let answer = ask_model(session).await;
//!         let calls = answer.tool_calls.clone();
//!         session.add_message(Uuid::now_v7(), answer)?;
//!         if calls.is_empty() {
//!             return session.complete_run();
//!         }
//!         for call in calls.iter().filter(|call| needs_consent(call)) {
//!             session.interrupt_tool_call(&call.tool_call_id, json!({ "question": "May I?" }))?;
//!         }
//!     }
//!     session.acknowledge_cancel()
//! }
//!
//! /// Runs a tool once in all processes, if nobody has to decide about it first.
//! async fn run_tool(session: &AgentSession, call: &ToolCall) -> Result<(), SessionError> {
//!     let id = &call.tool_call_id;
//!     let (row, is_mine) = match session.claim_tool_call(id).await? {
//!         Claim::Claimed(row) => (row, true),
//!         Claim::Already(row) => (row, false),
//!     };
//!     let edited = match row.decision() {
//!         Some(Decision::Reject { .. }) => {
//!             return session.add_tool_result(ToolResult::error(id, &call.name, "The user doesn't want it."));
//!         }
//!         Some(Decision::Edit { arguments }) => Some(arguments),
//!         Some(Decision::Approve) | None => None,
//!     };
//!     if is_mine {
//!         let result = execute(call, edited).await;
//!         session.add_tool_result(ToolResult::new(id, &call.name, result))?;
//!     }
//!     Ok(())
//! }
//! ```

mod backoff;
mod coordinator;
mod drafts;
mod edits;
mod event;
#[cfg(feature = "_faults")]
mod faults;
mod guard;
mod handle;
mod options;
mod registry;
mod reloads;
mod rewinds;
mod runs;
mod saves;
mod state;
mod storage;
mod task;
mod tools;
mod turn;
mod writer;
mod writes;

pub use self::coordinator::{Coordinator, Shutdown, Unsaved, UnsavedMessage};
pub use self::event::{LastError, RunChange, SessionError, SessionEvent, Stats};
#[cfg(feature = "_faults")]
pub use self::faults::{Fault, Faults, TriedSave, frozen};
pub use self::guard::RunGuard;
pub use self::handle::AgentSession;
pub use self::options::{AutoSave, OnConflict, SessionOptions};
pub use self::runs::CancelToken;

/// The result of the calls of a session.
type Result<T> = std::result::Result<T, SessionError>;

#[cfg(test)]
mod tests;
