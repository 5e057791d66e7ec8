//! An agent's state that saves itself.
//!
//! Whatever runs the model holds an [`AgentSession`]. It tells the session what happens: messages,
//! other changes of the state, that the agent is done or waits for a person. The session stores
//! it, in a task of its own, so that nobody waits for the database.
//!
//! - There is **one session for a conversation** in a process, and a [`Coordinator`] that starts or
//!   finds it. Only the owner of the conversation finds it.
//! - The **state** is saved when changes have waited for 30 seconds, when the agent is done, was
//!   stopped, failed or waits for a person, and when the session ends ([`AutoSave`]). All changes
//!   up to then are one save. What a killed process has not saved is lost.
//! - What a **message** shows to a person is stored at once, in order and once.
//! - What **fails** is tried again, with longer and longer pauses, and reported: by `tracing`, to
//!   [subscribers](AgentSession::subscribe) and in the [`Figures`]. Nothing newer is lost meanwhile.
//! - Another **process** with the same conversation may save it too. The session that comes second
//!   meets a conflict and overwrites nothing; it reports or reloads ([`OnConflict`]).
//!
//! How an agent uses it is shown in the guide of the [module above](super).

mod coordinator;
mod event;
mod handle;
mod keeper;
mod ledger;
mod options;
mod registry;

use super::persistence::AgentPersistence;

pub use self::coordinator::{Coordinator, Shutdown, Unsaved};
pub use self::event::{Figures, LastError, SessionError, SessionEvent};
pub use self::handle::AgentSession;
pub use self::options::{AutoSave, OnConflict, SessionOptions};
