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
mod io;
mod journal;
mod key;
mod lock;
pub mod manual;
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
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::cli::{Cli, Command, Generator, HostArgs};
use crate::commands::{Ending, check, diff, list, man, persistence, update};
use crate::failure::{Exit, Failure, Result};

pub use crate::io::{Io, Tools};

/// Runs a command line, the program's name first, as the process that it is in.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let (mut stdout, mut stderr) = (anstream::stdout(), anstream::stderr());
    run(args, &mut Io::of_process(&mut stdout, &mut stderr)).into()
}

/// Runs a command line, the program's name first. Returns the exit code.
pub fn run(args: Vec<OsString>, io: &mut Io) -> u8 {
    let wants_json = args.iter().any(|arg| arg == "--json");
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            if wants_json && error.use_stderr() {
                io.print(&report::failure_json(&Failure::usage(error.to_string().trim())));
            }
            let text = error.render().ansi().to_string();
            if error.use_stderr() {
                io.complain(&text);
            } else {
                io.print(&text);
            }
            return u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8);
        }
    };
    let mut command = cli.command;
    if let Err(failure) = command.host().map_or(Ok(()), |host| enter_package(host, io)) {
        return end(wants_json, Err(failure), io) as u8;
    }
    let (json, outcome) = match command {
        Command::Gen(Generator::Persistence(args)) => (args.run.json, persistence::run(&args, io)),
        Command::Update(args) => (args.json, update::run(&args, io)),
        Command::Check(args) => (args.json, check::run(&args, io)),
        Command::Diff(args) => (args.json, diff::run(&args, io)),
        Command::List(args) => (args.json, list::run(&args, io)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "sagents", &mut script);
            (false, Ok(Ending::success(String::from_utf8_lossy(&script).into_owned())))
        }
        Command::Man { dir } => (false, man::run(dir.as_deref(), io)),
    };
    end(json, outcome, io) as u8
}

/// From here on, a package that was named is the directory that it is in.
fn enter_package(host: &mut HostArgs, io: &Io) -> Result<()> {
    if let Some(package) = &host.package {
        host.path = host::workspace::locate(&io.place(&host.path), package)?;
    }
    Ok(())
}

/// Prints how a command ended. With `json` there is one document on standard output, whatever happened.
fn end(json: bool, outcome: Result<Ending>, io: &mut Io) -> Exit {
    let failure = match outcome {
        Ok(Ending { output, failure }) => {
            io.print(&output);
            failure
        }
        Err(failure) => {
            if json {
                io.print(&report::failure_json(&failure));
            }
            Some(failure)
        }
    };
    let Some(failure) = failure else { return Exit::Success };
    if !failure.what.is_empty() {
        io.complain(&report::failure(&failure));
    }
    failure.exit
}
