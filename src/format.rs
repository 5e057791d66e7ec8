//! rustfmt, as a function from text to text, with the host's own configuration.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use camino::Utf8PathBuf;

use crate::failure::{Failure, Result};

#[derive(Debug, Clone)]
pub struct Formatter {
    /// The host's directory: rustfmt looks for its configuration there and above.
    pub directory: Utf8PathBuf,
    pub edition: String,
}

impl Formatter {
    /// Formats several texts at once.
    pub fn format_all(&self, texts: &[&str]) -> Result<Vec<String>> {
        std::thread::scope(|threads| {
            let running: Vec<_> = texts.iter().map(|text| threads.spawn(|| self.format(text))).collect();
            running.into_iter().map(|thread| thread.join().expect("rustfmt's thread does not panic")).collect()
        })
    }

    fn format(&self, text: &str) -> Result<String> {
        match self.run(text) {
            Ok(formatted) => Ok(formatted),
            Err(error) => Err(Failure::from(error.context("cannot format the generated code"))
                .help("`rustup component add rustfmt` installs rustfmt; the variable RUSTFMT may name another one")),
        }
    }

    fn run(&self, text: &str) -> anyhow::Result<String> {
        let program = std::env::var_os("RUSTFMT").unwrap_or_else(|| "rustfmt".into());
        let mut child = Command::new(&program)
            .args(["--edition", &self.edition, "--quiet"])
            .current_dir(&self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} does not run", program.to_string_lossy()))?;
        let mut input = child.stdin.take().expect("standard input is piped");
        let text = text.to_owned();
        // Written from a thread of its own: rustfmt may fill its output before it has read everything.
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output().context("rustfmt was stopped")?;
        let written = writer.join().expect("the writer does not panic");
        // A line that does not fit the host's settings is reported, and the text is there all the same.
        if !output.status.success() && output.stdout.is_empty() {
            bail!("rustfmt failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        written.context("rustfmt did not read its input")?;
        String::from_utf8(output.stdout).context("rustfmt wrote no text")
    }
}
