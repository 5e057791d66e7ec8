//! `sagents`: README.md says what it does, ARCHITECTURE.md how the rooms of this crate hang together.

mod apply;
mod change;
pub mod cli;
mod database;
mod failure;
mod format;
mod host;
mod memory;
mod names;
mod options;
mod plan;
mod report;
mod schema;
mod templates;
mod tree;

use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Write};
use std::process::ExitCode;

use camino::Utf8Path;
use chrono::{DateTime, Utc};
use clap::{CommandFactory as _, Parser as _};
use heck::ToUpperCamelCase as _;

use crate::change::Change;
use crate::cli::{Cli, Command, Generator, List, Persistence};
use crate::database::Database;
use crate::failure::{Exit, Failure, Result};
use crate::format::Formatter;
use crate::host::Host;
use crate::memory::{Given, Last, Recorded};
use crate::names::ModulePath;
use crate::options::{Options, Resolved};
use crate::report::{Report, Step};

/// Runs a command line, the program's name first.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    match cli.command {
        Command::Gen(Generator::Persistence(args)) => end(args.json, generate(&args)),
        Command::List(args) => end(args.json, list(&args)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "sagents", &mut script);
            print(&String::from_utf8_lossy(&script));
            Exit::Success.into()
        }
    }
}

fn end(json: bool, outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => Exit::Success.into(),
        Err(failure) => {
            if json {
                print(&report::failure_json(&failure));
            }
            let _ = write!(anstream::stderr(), "{}", report::failure(&failure));
            failure.exit.into()
        }
    }
}

fn generate(args: &Persistence) -> Result<()> {
    let outcome = generation(args, Utc::now())?;
    let Generation { host, resolved, notes, unwired, next, changes } = &outcome;
    let undecided = change::undecided(changes);
    let dry_run = args.dry_run || args.diff;
    if undecided.is_none() && !dry_run {
        apply::apply(host.tree.root(), changes)?;
    }
    // Of JSON there is one document, and of a failure that is the failure.
    if undecided.is_none() || (dry_run && !args.json) {
        let report = Report { resolved, changes, unwired, notes, next, dry_run };
        print(&match (args.json, args.diff) {
            (true, _) => report.json(),
            (false, true) => report::diff(changes),
            (false, false) => report.text(),
        });
    }
    undecided.map_or(Ok(()), Err)
}

/// What a command line would change, with all that a report says of it.
struct Generation {
    host: Host,
    resolved: Resolved,
    notes: Vec<String>,
    unwired: Vec<(camino::Utf8PathBuf, Vec<String>)>,
    next: Vec<Step>,
    changes: Vec<Change>,
}

/// From the command line to the changes. It reads, and never writes.
fn generation(args: &Persistence, now: DateTime<Utc>) -> Result<Generation> {
    let Persistence {
        context,
        scope,
        owner_type,
        owner_field,
        owner_module,
        owner_table,
        owner_id,
        scope_owner,
        table_prefix,
        database,
        migrations,
        path,
        init,
        no_wire,
        no_tests,
        dry_run: _,
        diff: _,
        force,
        yes,
        json: _,
    } = args;
    let host = open(path, *init, context)?;
    let recorded = Recorded::read(&host.tree)?;
    let context = ModulePath::parse_context(context, &host.package)?;
    let given = Given {
        scope: scope.clone(),
        owner_type: owner_type.clone(),
        owner_field: owner_field.clone(),
        owner_module: owner_module.clone(),
        owner_table: owner_table.clone(),
        owner_id: owner_id.clone(),
        scope_owner: scope_owner.clone(),
        table_prefix: table_prefix.clone(),
        database: database.clone(),
        migrations: migrations.clone(),
        no_wire: no_wire.then_some(true),
        no_tests: no_tests.then_some(true),
    };
    let mut given = given.over(recorded.contexts.get(&context.key()).cloned().unwrap_or_default());
    if given.scope.is_none() {
        given.scope = ask_scope(&host.package, *yes);
    }
    let last = Last::read(&host.tree, &context)?;
    refuse_other_database(&context, &given, &last)?;
    let options = Options::resolve(context, &given, &host, &recorded)?;
    let plan = plan::plan(&options, &given, &host, &last, now)?;
    let formatter = Formatter { directory: host.working_directory(), edition: host.edition.clone() };
    let changes = change::changes(&plan, &host, &options.context, &last, &formatter, *force)?;
    let mut notes = options.notes.clone();
    if let Some(workspace) = host.surrounding_workspace() {
        notes.push(format!("The new package is inside the workspace of {workspace}: list it there under `members`."));
    }
    let next = next_steps(&host, path, &options, !plan.migrations.is_empty())?;
    Ok(Generation { resolved: options.resolved(), notes, unwired: plan.unwired, next, changes, host })
}

/// Rows do not move from one database to another by generating code.
fn refuse_other_database(context: &ModulePath, given: &Given, last: &Last) -> Result<()> {
    let before = last.resolved.get("database").and_then(toml::Value::as_str);
    match (before, given.database.as_deref()) {
        (Some(before), Some(now)) if before != Database::parse(now)?.name() => {
            let key = context.key();
            Err(Failure::decision(format!(
                "--database: `{key}` is generated for {before}, and its rows would stay there"
            ))
            .help(format!(
                "generate another context with `--database {now}`, copy the rows, and remove `{key}` when it is empty"
            )))
        }
        _ => Ok(()),
    }
}

/// The host in a directory, or the one that `--init` is about to make there.
fn open(path: &Utf8Path, init: bool, context: &str) -> Result<Host> {
    if !init {
        return Host::read(path);
    }
    if path.join("Cargo.toml").exists() {
        // The same command again is a rerun.
        let host = Host::read(path)?;
        let generated = ModulePath::parse_context(context, &host.package).is_ok_and(|context| {
            Recorded::read(&host.tree).is_ok_and(|recorded| recorded.contexts.contains_key(&context.key()))
        });
        if generated {
            return Ok(host);
        }
        return Err(
            Failure::usage(format!("--init: {path} is a package already")).help("leave --init out to generate into it")
        );
    }
    let directory = || {
        camino::absolute_utf8(path)
            .ok()
            .and_then(|path| path.file_name().map(heck::AsSnakeCase).map(|name| name.to_string()))
    };
    let package = names::package_of(context).or_else(directory).ok_or_else(|| {
        Failure::usage("--init: the directory has no name that a package could have")
            .help("name the package: `MyApp.Conversations`")
    })?;
    options::check_package(&package)?;
    Host::init(path, package)
}

/// Asks on a terminal; anywhere else nothing is ever asked.
fn ask_scope(package: &str, yes: bool) -> Option<String> {
    let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !terminal {
        return None;
    }
    let default = format!("{}.Accounts.Scope", package.to_upper_camel_case());
    if yes {
        return Some(default);
    }
    let _ = write!(anstream::stderr(), "{}", report::ask_scope(&default));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).ok()?;
    let answer = answer.trim();
    Some(if answer.is_empty() { default } else { answer.to_owned() })
}

/// What is really left to do.
fn next_steps(host: &Host, path: &Utf8Path, options: &Options, migrate: bool) -> Result<Vec<Step>> {
    let step = |command: &str, why: &str| Step { command: command.to_owned(), why: why.to_owned() };
    let mut steps = Vec::new();
    if host.is_new() {
        if path != "." {
            steps.push(step(&format!("cd {}", quoted(path)), "the new package"));
        }
        if options.database == Database::Postgres {
            let url = format!("export DATABASE_URL=postgres://localhost/{}", host.package);
            steps.push(step(&url, "a database of yours whose role may create others"));
        }
        steps.push(step("cargo test", "proves the layer"));
        steps.push(step("cargo run", "shows it at work"));
    } else if migrate {
        match host.mentions("migrate!")? {
            Some(file) => {
                let (command, verb) = if host.runs { ("cargo run", "runs") } else { ("cargo build", "embeds") };
                let manifest = path.join("Cargo.toml");
                let place = if path == "." { String::new() } else { format!(" --manifest-path {}", quoted(&manifest)) };
                let why = format!("{verb} the new migration, by `migrate!` in {file}");
                steps.push(step(&format!("{command}{place}"), &why));
            }
            None => {
                let source = host::modules::clean(&path.join(&options.migrations));
                steps.push(step(
                    &format!("sqlx migrate run --source {}", quoted(&source)),
                    "creates the tables in DATABASE_URL",
                ));
            }
        }
    }
    Ok(steps)
}

fn quoted(path: &Utf8Path) -> String {
    let plain = path.as_str().chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if plain { path.to_string() } else { format!("'{}'", path.as_str().replace('\'', "'\\''")) }
}

fn list(args: &List) -> Result<()> {
    let List { path, json } = args;
    let host = Host::read(path)?;
    let recorded = Recorded::read(&host.tree)?;
    let mut contexts = Vec::new();
    for (key, given) in &recorded.contexts {
        let in_file =
            |failure: Failure| Failure { what: format!("{}: {}", memory::OPTIONS_FILE, failure.what), ..failure };
        let context = ModulePath::parse_context(key, &host.package).map_err(in_file)?;
        contexts.push(Options::resolve(context, given, &host, &recorded)?.resolved());
    }
    print(&if *json { report::list_json(&contexts) } else { report::list(&contexts) });
    Ok(())
}

/// A reader that went away, such as `head`, is no failure.
fn print(text: &str) {
    let _ = anstream::stdout().write_all(text.as_bytes());
}
