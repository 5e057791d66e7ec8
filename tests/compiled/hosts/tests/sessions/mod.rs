//! Sessions on a real database. Tokio's clock is paused, so that tests do not wait.

mod branches;
mod conflicts;
mod failing;
mod messages;
mod rewinds;
mod running;
mod saving;
mod turns;

use std::time::Duration;

use matrix::sagents::session::{AutoSave, SessionOptions};
use serde_json::{Value, json};

const INTERVAL: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

/// The agent state is saved only by `save`.
fn by_hand() -> SessionOptions {
    SessionOptions {
        auto_save: AutoSave {
            interval: None,
            on_idle: false,
            on_interrupt: false,
            on_shutdown: false,
        },
        ..SessionOptions::default()
    }
}

/// Retries are so late that a test would notice.
fn slow() -> SessionOptions {
    let backoff = SECOND * 600;
    SessionOptions {
        initial_backoff: backoff,
        max_backoff: backoff,
        ..SessionOptions::default()
    }
}

/// A value that is nested too deeply to be stored.
fn deep() -> Value {
    (0..200).fold(json!(1), |inner, _| json!([inner]))
}

fn process() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap()
}
