//! The crate that generated code has its points in time from. Only one file of the runtime depends on it.

use serde::{Deserialize, Serialize};

use crate::host::manifest::Sqlx;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeCrate {
    #[default]
    Chrono,
    Time,
}

impl TimeCrate {
    /// The one that the host uses sqlx with. Where that is both or none, it stays what it was.
    pub fn choose(sqlx: &Sqlx, before: Option<Self>) -> Self {
        match (sqlx.chrono, sqlx.time) {
            (true, false) => Self::Chrono,
            (false, true) => Self::Time,
            (true, true) | (false, false) => before.unwrap_or_default(),
        }
    }
}
