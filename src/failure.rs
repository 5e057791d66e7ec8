//! How a run ends when it does not succeed: an exit code that scripts may rely on, and one message with what is
//! wrong and what fixes it. Nothing here prints.

use std::fmt;

/// The contract with scripts and CI. The numbers are documented in `--help` and held by tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, or up to date.
    Success = 0,
    /// The file system refused, or a tool is missing.
    Failure = 1,
    /// A bad command line or option value.
    Usage = 2,
    /// Changes are pending (`check`, `diff`).
    Pending = 3,
    /// Conflicts are left in files.
    Conflict = 4,
    /// A decision is needed that only a person or a flag can make.
    Decision = 5,
}

/// Why nothing was written: what is wrong, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub what: String,
    pub help: Option<String>,
}

pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// An option or its value cannot be used.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what)
    }

    /// The generator could go on in several ways and will not choose one by itself.
    pub fn decision(what: impl Into<String>) -> Self {
        Self::new(Exit::Decision, what)
    }

    /// Something is left to do.
    pub fn pending(what: impl Into<String>) -> Self {
        Self::new(Exit::Pending, what)
    }

    /// Edits and generated code change the same lines.
    pub fn conflict(what: impl Into<String>) -> Self {
        Self::new(Exit::Conflict, what)
    }

    /// The report has everything already.
    pub fn reported(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    /// Adds the command, flag or edit that fixes it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, what: what.into(), help: None }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::Failure, format!("{error:#}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.help {
            Some(help) => write!(f, "\nhelp: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}
