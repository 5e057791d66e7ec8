//! Which framework HTTP routes are generated for.

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Web {
    /// No routes.
    #[default]
    None,
    Axum,
}

impl Web {
    /// As it is given, or the default.
    pub fn choose(given: Option<&str>) -> Result<Self> {
        match given {
            None | Some("none") => Ok(Self::None),
            Some("axum") => Ok(Self::Axum),
            Some(text) => Err(Failure::usage(format!("--web: `{text}` is not a framework that is known"))
                .help("use `axum`, or `none` for no routes")),
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}
