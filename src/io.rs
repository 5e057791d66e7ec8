//! What a run takes from its process, as values: the working directory, the tools, the terminal and the streams. A
//! caller with values of its own can have many runs in one process, also at the same time.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write};

use camino::{Utf8Path, Utf8PathBuf};

pub struct Io<'a> {
    /// Where relative paths start; empty for the working directory of the process.
    pub directory: Utf8PathBuf,
    pub tools: Tools,
    /// Somebody can be asked.
    pub interactive: bool,
    /// Texts for both streams have colours; a stream that shows none has to strip them.
    pub stdout: &'a mut dyn Write,
    pub stderr: &'a mut dyn Write,
}

/// The programs that a run starts.
#[derive(Debug, Clone)]
pub struct Tools {
    pub cargo: OsString,
    pub rustfmt: OsString,
}

/// A directory as it was named, and where that is.
#[derive(Debug)]
pub struct Place<'a> {
    pub named: &'a Utf8Path,
    pub path: Utf8PathBuf,
    pub tools: Tools,
    /// The crates that the command line names. In a workspace, one of them is probably the host.
    pub meant: Vec<String>,
}

impl<'a> Io<'a> {
    pub fn of_process(stdout: &'a mut dyn Write, stderr: &'a mut dyn Write) -> Self {
        let interactive = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        Self { directory: Utf8PathBuf::new(), tools: Tools::of_process(), interactive, stdout, stderr }
    }

    pub(crate) fn place<'n>(&self, named: &'n Utf8Path) -> Place<'n> {
        Place { named, path: self.directory.join(named), tools: self.tools.clone(), meant: Vec::new() }
    }

    /// A reader that went away, such as `head`, is no failure.
    pub(crate) fn print(&mut self, text: &str) {
        let _ = self.stdout.write_all(text.as_bytes());
    }

    pub(crate) fn complain(&mut self, text: &str) {
        let _ = self.stderr.write_all(text.as_bytes());
    }
}

impl Tools {
    fn of_process() -> Self {
        let tool = |variable: &str, name: &str| std::env::var_os(variable).unwrap_or_else(|| name.into());
        Self { cargo: tool("CARGO", "cargo"), rustfmt: tool("RUSTFMT", "rustfmt") }
    }
}
