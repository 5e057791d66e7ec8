//! The agent runtime.

use super::Files;
use crate::time_crate::TimeCrate;

macro_rules! plain {
    ($module:literal, $($name:literal),*) => {
        vec![
            (None, include_str!(concat!("../../templates/runtime/", $module, ".rs")).to_owned()),
            $((Some($name), include_str!(concat!("../../templates/runtime/", $name, ".rs")).to_owned()),)*
        ]
    };
}

/// The agent runtime: plain Rust that this package tests in place. It is the same in every host, but for the crate of its
/// points in time.
pub fn runtime(time_crate: TimeCrate) -> Files {
    let mut files = plain!(
        "sagents",
        "branch",
        "display",
        "export",
        "export/checks",
        "export/fields",
        "export/file",
        "export/rows",
        "export/values",
        "export/whole_state",
        "extensions",
        "json",
        "message",
        "messages",
        "persistence",
        "run",
        "serializer",
        "session",
        "session/backoff",
        "session/coordinator",
        "session/drafts",
        "session/edits",
        "session/event",
        "session/guard",
        "session/handle",
        "session/options",
        "session/registry",
        "session/reloads",
        "session/rewinds",
        "session/runs",
        "session/saves",
        "session/state",
        "session/task",
        "session/tools",
        "session/turn",
        "session/writer",
        "session/writes",
        "state",
        "stored",
        "todo",
        "turn",
        "usage"
    );
    let timestamp = match time_crate {
        TimeCrate::Chrono => include_str!("../../templates/runtime/timestamp.rs"),
        TimeCrate::Time => include_str!("../../templates/runtime/timestamp_of_time.rs"),
    };
    files.push((Some("timestamp"), timestamp.to_owned()));
    files
}
