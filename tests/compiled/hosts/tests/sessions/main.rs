//! Sessions on a real database. Time is tokio's, paused, so that half an hour takes no time.

mod conflicts;
#[path = "../database/mod.rs"]
mod database;
mod failing;
mod messages;
mod running;
mod saving;
#[path = "../storage/mod.rs"]
mod storage;

use std::time::Duration;

use matrix::sagents::session::{AutoSave, SessionOptions};
use serde_json::{Value, json};

const INTERVAL: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

/// Saved only on request.
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

/// What failed is tried again so late that a test would notice.
fn slow() -> SessionOptions {
    let pause = SECOND * 600;
    SessionOptions {
        first_pause: pause,
        longest_pause: pause,
        ..SessionOptions::default()
    }
}

/// What no database gets: it is nested too deeply.
fn deep() -> Value {
    (0..200).fold(json!(1), |inner, _| json!([inner]))
}

fn process() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap()
}
