//! Sessions: agent states that save themselves.
//!
//! The code that runs a model holds an [`AgentSession`] and reports to it: messages, other changes
//! of the agent state, that the agent is done or waits for a person. The session stores all of it
//! in a task of its own, so that the agent does not wait for the database.
//!
//! - A conversation has **one session** per process. A [`Coordinator`] starts or finds it, for the
//!   owner of the conversation only.
//! - The **agent state** is saved within 30 seconds after a change, when the agent is done, was
//!   stopped, failed or waits for a person, and when the session ends ([`AutoSave`]). All changes
//!   since the last save are one save. A process that is killed loses the changes since its last
//!   save. Many sessions save at different times, and only a few at once.
//! - **Display messages** are stored at once, in order, and each once. A message that is
//!   [sent](AgentSession::send) is saved and displayed when the call returns. After a kill, the next
//!   session makes display messages and agent state agree.
//! - **Tool calls** are stored after their messages, and a [decision](AgentSession::decide) about one
//!   is taken once, in all processes.
//! - A conversation has **one [run](AgentSession::begin_run)** of its agent, in all processes.
//! - **Transient failures** are retried with exponential backoff, and soon after another session
//!   could store something. All failures are reported: by `tracing`, to
//!   [subscribers](AgentSession::subscribe) and in the [`Stats`]. A display message that failed
//!   permanently is also returned by the shutdown.
//! - If **another process** saves the same conversation, the session gets a conflict instead of
//!   overwriting it, and reports it or reloads ([`OnConflict`]).
//!
//! The guide in the [parent module](super) has an example.

mod backoff;
mod coordinator;
mod drafts;
mod edits;
mod event;
mod guard;
mod handle;
mod options;
mod registry;
mod reloads;
mod rewinds;
mod runs;
mod saves;
mod state;
mod task;
mod tools;
mod turn;
mod writer;
mod writes;

use super::persistence::AgentPersistence;

pub use self::coordinator::{Coordinator, Shutdown, Unsaved, UnsavedMessage};
pub use self::event::{LastError, RunChange, SessionError, SessionEvent, Stats};
pub use self::guard::RunGuard;
pub use self::handle::AgentSession;
pub use self::options::{AutoSave, OnConflict, SessionOptions};
pub use self::runs::CancelToken;
