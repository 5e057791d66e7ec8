//! The error of every call.

use crate::serializer::{ReadError, TooDeep};
use crate::{ExportError, Revision};

/// Why a call failed. `Display` shows no data, so you can log it; [`source`](std::error::Error::source) has the details.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The row doesn't exist, or belongs to another owner.
    #[error("not found")]
    NotFound,
    /// The scope has no owner.
    #[error("the scope has no owner")]
    NoOwner,
    /// Another writer saved the agent state first.
    #[error("another writer saved the agent state, as revision {}", current.0)]
    Conflict {
        /// The stored revision.
        current: Revision,
    },
    /// Several members of the group have a conversation with this id.
    #[error("several owners have a conversation with this id")]
    Ambiguous,
    /// The stored agent state can't be parsed.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// The arguments can't be stored.
    #[error("invalid: {0}")]
    Invalid(String),
    /// Other calls keep what this one needs. Try again later.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// The database failed or refused the statement.
    #[cfg(any(feature = "_sqlite", feature = "postgres"))]
    #[error("database error")]
    Database(#[from] sqlx::Error),
    /// The tables in the database aren't those that the store needs.
    #[error("the tables don't fit: {}", problems.join("; "))]
    Tables {
        /// What's wrong, one sentence each.
        problems: Vec<String>,
    },
    /// Reading an import or writing an export failed.
    #[error("an export could not be read or written")]
    Io(#[from] std::io::Error),
    /// Your application's own error, for example a quota in `create_conversation`.
    #[error("{message}")]
    Host {
        /// The HTTP status.
        status: u16,
        /// What to tell the user.
        message: String,
        /// The error itself.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

/// The result of every call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What an operator can do about it, if that's known. Don't show it to users.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            #[cfg(any(feature = "_sqlite", feature = "postgres"))]
            Self::Database(error) => crate::database::hint(error),
            Self::Tables { .. } => Some("run your migrations"),
            Self::Ambiguous => Some("read it with the scope of its owner"),
            _ => None,
        }
    }

    /// The HTTP status for a web layer.
    ///
    /// | error | status |
    /// | --- | --- |
    /// | [`NotFound`](Self::NotFound) | 404 |
    /// | [`NoOwner`](Self::NoOwner) | 403: the caller is known, and may not do this |
    /// | [`Conflict`](Self::Conflict), [`Ambiguous`](Self::Ambiguous) | 409 |
    /// | [`Invalid`](Self::Invalid) | 422 |
    /// | [`Busy`](Self::Busy), and `Database` if the same call may succeed later | 503 |
    /// | [`Host`](Self::Host) | its own |
    /// | everything else | 500 |
    #[must_use]
    pub fn status_code(&self) -> u16 {
        match self {
            Self::NotFound => 404,
            Self::NoOwner => 403,
            Self::Conflict { .. } | Self::Ambiguous => 409,
            Self::Invalid(_) => 422,
            Self::Busy(_) => 503,
            #[cfg(any(feature = "_sqlite", feature = "postgres"))]
            Self::Database(error) if crate::database::is_transient(error) => 503,
            Self::Host { status, .. } => *status,
            _ => 500,
        }
    }
}

impl From<TooDeep> for Error {
    fn from(error: TooDeep) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<ExportError> for Error {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Io(error) => Self::Io(error),
            error @ ExportError::Invalid { .. } => Self::Invalid(error.to_string()),
        }
    }
}
