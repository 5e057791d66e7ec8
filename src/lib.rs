//! `sagents`: README.md describes what it does, ARCHITECTURE.md how the modules of this crate work together.

mod apply;
mod chain;
mod change;
pub mod cli;
mod commands;
mod database;
mod digest;
mod disk;
mod failure;
mod format;
mod generation;
mod given;
mod host;
mod journal;
mod key;
mod lock;
mod memory;
mod merge;
mod names;
mod next;
mod note;
mod options;
mod plan;
mod report;
mod schema;
mod templates;
mod tree;
mod verdict;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::cli::{Cli, Command, Generator};
use crate::commands::{Ending, check, diff, list, persistence, update};
use crate::failure::{Exit, Failure, Result};

/// Runs a command line, the program's name first.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let wants_json = args.iter().any(|arg| arg == "--json");
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            if wants_json && error.use_stderr() {
                print(&report::failure_json(&Failure::usage(error.to_string().trim())));
            }
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    match cli.command {
        Command::Gen(Generator::Persistence(args)) => end(args.run.json, persistence::run(&args)),
        Command::Update(args) => end(args.json, update::run(&args)),
        Command::Check(args) => end(args.json, check::run(&args)),
        Command::Diff(args) => end(args.json, diff::run(&args)),
        Command::List(args) => end(args.json, list::run(&args)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "sagents", &mut script);
            print(&String::from_utf8_lossy(&script));
            Exit::Success.into()
        }
    }
}

/// Prints how a command ended. With `json` there is one document on standard output, whatever happened.
fn end(json: bool, outcome: Result<Ending>) -> ExitCode {
    let failure = match outcome {
        Ok(Ending { output, failure }) => {
            print(&output);
            failure
        }
        Err(failure) => {
            if json {
                print(&report::failure_json(&failure));
            }
            Some(failure)
        }
    };
    let Some(failure) = failure else { return Exit::Success.into() };
    if !failure.what.is_empty() {
        let _ = write!(anstream::stderr(), "{}", report::failure(&failure));
    }
    failure.exit.into()
}

/// A reader that went away, such as `head`, is no failure.
fn print(text: &str) {
    let _ = anstream::stdout().write_all(text.as_bytes());
}
