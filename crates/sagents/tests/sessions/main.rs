//! Sessions on a real database. Tokio's clock is paused, so that tests do not wait.

mod conflicts;
mod failing;
mod histories;
mod lost_runs;
mod messages;
mod reruns;
mod rewinds;
mod running;
mod saving;
mod sending;
mod storage;
#[path = "../support/mod.rs"]
mod support;
mod turns;

use std::time::Duration;

use sagents::session::{AutoSave, SessionOptions};
use serde_json::{Value, json};

const INTERVAL: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

/// The agent state is saved only by `save`.
fn by_hand() -> SessionOptions {
    SessionOptions {
        auto_save: AutoSave { interval: None, on_idle: false, on_interrupt: false, on_shutdown: false },
        ..SessionOptions::default()
    }
}

/// Retries are so late that a test would notice.
fn slow() -> SessionOptions {
    let backoff = SECOND * 600;
    SessionOptions { initial_backoff: backoff, max_backoff: backoff, ..SessionOptions::default() }
}

/// A value that is nested too deeply to be stored.
fn deep() -> Value {
    (0..200).fold(json!(1), |inner, _| json!([inner]))
}

/// Makes two tests of each function: `sqlite::name` and `postgres::name`. They run with a paused clock, or, behind the
/// semicolon, without a runtime.
#[macro_export]
macro_rules! paused_on_both_databases {
    ($($name:ident),+ $(,)? $(; $($plain:ident),+ $(,)?)?) => {
        $crate::paused_on_both_databases!(@ sqlite, Sqlite, [$($name),+], [$($($plain),+)?]);
        $crate::paused_on_both_databases!(@ postgres, Postgres, [$($name),+], [$($($plain),+)?]);
    };
    (@ $module:ident, $kind:ident, [$($name:ident),+], [$($plain:ident),*]) => {
        mod $module {
            $(#[test]
            fn $name() {
                $crate::process().block_on(Box::pin(super::$name($crate::support::Kind::$kind)));
            })+

            $(#[test]
            fn $plain() {
                super::$plain($crate::support::Kind::$kind);
            })*
        }
    };
}

fn process() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap()
}
