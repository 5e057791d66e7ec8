//! `sagents`: README.md says what it does, ARCHITECTURE.md how the rooms of this crate hang together.

mod apply;
mod change;
pub mod cli;
mod database;
mod digest;
mod disk;
mod failure;
mod format;
mod host;
mod journal;
mod lock;
mod memory;
mod merge;
mod names;
mod options;
mod plan;
mod report;
mod schema;
mod templates;
mod tree;
mod verdict;

use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Write};
use std::process::ExitCode;

use camino::Utf8Path;
use chrono::{DateTime, Utc};
use clap::{CommandFactory as _, Parser as _};
use heck::ToUpperCamelCase as _;

use crate::change::{Action, Change};
use crate::cli::{Cli, Command, Generator, List, Look, Persistence, Update};
use crate::database::Database;
use crate::failure::{Exit, Failure, Result};
use crate::format::Formatter;
use crate::host::Host;
use crate::host::modules::{self, Found};
use crate::lock::Lock;
use crate::memory::{Given, Last, Recorded};
use crate::names::ModulePath;
use crate::options::{Options, Resolved};
use crate::plan::{Plan, Start};
use crate::report::{Report, Step};
use crate::schema::transition;
use crate::verdict::Verdict;

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
        Command::Update(args) => end(args.json, update(&args)),
        Command::Check(args) => end(false, check(&args)),
        Command::Diff(args) => end(args.json, diff(&args)),
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
            if !failure.what.is_empty() {
                if json {
                    print(&report::failure_json(&failure));
                }
                let _ = write!(anstream::stderr(), "{}", report::failure(&failure));
            }
            failure.exit.into()
        }
    }
}

fn generate(args: &Persistence) -> Result<()> {
    let dry_run = args.dry_run || args.diff;
    let _lock = if dry_run { None } else { Some(begin(&args.path)?) };
    let mut outcome = generation(&Request::of(args), Utc::now())?;
    outcome.note_uncommitted();
    let undecided = change::undecided(&outcome.changes);
    if undecided.is_none() && !dry_run {
        apply::apply(outcome.host.tree.root(), &outcome.changes)?;
    }
    // Of JSON there is one document, and of a failure that is the failure.
    if undecided.is_none() || (dry_run && !args.json) {
        let report = outcome.report(dry_run);
        print(&match (args.json, args.diff) {
            (true, _) => report.json(),
            (false, true) => report::diff(&outcome.changes),
            (false, false) => report.text(),
        });
    }
    undecided.or_else(|| change::conflicts(&outcome.changes)).map_or(Ok(()), Err)
}

/// Before a command that writes reads anything: no other run is at work, and none is left half done. The lock is held
/// to the end.
fn begin(path: &Utf8Path) -> Result<Lock> {
    let say = |text: &dyn std::fmt::Display| {
        let _ = writeln!(anstream::stderr(), "{text}");
    };
    let lock = Lock::take(path, |place| say(&format_args!("waiting for another run of sagents in {place}")));
    if let Some(recovered) = journal::recover(path)? {
        say(&recovered);
    }
    Ok(lock)
}

/// Reruns every context, or those that are named, with its recorded options.
fn update(args: &Update) -> Result<()> {
    let Update { contexts, path, drop_old_owner, force, json } = args;
    let _lock = begin(path)?;
    let mut reports = Vec::new();
    let mut conflict = None;
    for context in recorded_contexts(path, contexts)? {
        let request = Request { drop_old_owner: *drop_old_owner, force: *force, ..Request::recorded(path, &context) };
        let mut outcome = generation(&request, Utc::now())?;
        outcome.note_uncommitted();
        change::undecided(&outcome.changes).map_or(Ok(()), Err)?;
        apply::apply(outcome.host.tree.root(), &outcome.changes)?;
        conflict = conflict.or_else(|| change::conflicts(&outcome.changes));
        if *json {
            reports.push(outcome.report(false).value());
        } else {
            print(&outcome.report(false).text());
        }
    }
    if *json {
        print(&report::values(&reports));
    }
    conflict.map_or(Ok(()), Err)
}

/// Judges every context, or those that are named. All that is wrong is told at once.
fn check(args: &Look) -> Result<()> {
    let Look { contexts, path, json } = args;
    refuse_interrupted(path)?;
    let mut verdicts = Vec::new();
    for context in recorded_contexts(path, contexts)? {
        let outcome = generation(&Request::recorded(path, &context), Utc::now());
        verdicts.push(Verdict::of(&context, outcome.as_ref().map(|outcome| outcome.changes.as_slice())));
    }
    print(&if *json { report::check_json(&verdicts) } else { report::check(&verdicts) });
    match verdict::worst(&verdicts) {
        Exit::Success => Ok(()),
        exit => Err(Failure::told(exit)),
    }
}

/// Shows what a rerun of every context, or of those that are named, would change.
fn diff(args: &Look) -> Result<()> {
    let Look { contexts, path, json } = args;
    refuse_interrupted(path)?;
    let mut reports = Vec::new();
    let (mut pending, mut failure) = (false, None);
    for context in recorded_contexts(path, contexts)? {
        let outcome = generation(&Request::recorded(path, &context), Utc::now())?;
        pending |= outcome.changes.iter().any(Change::writes);
        failure = failure.or_else(|| change::undecided(&outcome.changes));
        if *json {
            reports.push(outcome.report(true).value());
        } else {
            print(&report::diff(&outcome.changes));
        }
    }
    if *json {
        print(&report::values(&reports));
    }
    match failure {
        Some(failure) => Err(failure),
        None if pending => Err(Failure::told(Exit::Pending)),
        None => Ok(()),
    }
}

/// Whoever only looks does not end what an earlier run began.
fn refuse_interrupted(path: &Utf8Path) -> Result<()> {
    if !journal::interrupted(path) {
        return Ok(());
    }
    Err(Failure::pending("an earlier run of sagents was interrupted here").help("`sagents update` ends it"))
}

/// The contexts that `sagents.toml` knows, or those of them that are named.
fn recorded_contexts(path: &Utf8Path, named: &[String]) -> Result<Vec<String>> {
    let host = Host::read(path)?;
    let known: Vec<_> = Recorded::read(&host.tree)?.contexts.into_keys().collect();
    if known.is_empty() {
        return Err(Failure::usage(format!("no context has been generated in {path}"))
            .help("generate one with `sagents gen persistence`, or name the package with --path"));
    }
    let mut contexts = Vec::new();
    for name in named {
        let key = ModulePath::parse_context(name, &host.package)?.key();
        if !known.contains(&key) {
            return Err(Failure::usage(format!("CONTEXT: `{key}` has not been generated here")).help(format!(
                "{} knows {}",
                memory::OPTIONS_FILE,
                known.join(", ")
            )));
        }
        contexts.push(key);
    }
    let contexts = if named.is_empty() { known } else { contexts };
    for key in &contexts {
        refuse_unknown(key, &host)?;
    }
    Ok(contexts)
}

/// A context that stands in `sagents.toml` and nowhere else was misspelt, or never generated.
fn refuse_unknown(key: &str, host: &Host) -> Result<()> {
    let context = recorded_context(key, host)?;
    let is_remembered = !Last::read(&host.tree, &context)?.resolved.is_empty();
    let is_there = matches!(modules::find(&host.tree, &host.krate, context.names())?, Found::Module(_));
    if is_remembered || is_there {
        return Ok(());
    }
    Err(Failure::usage(format!("{}: `{key}` has not been generated", memory::OPTIONS_FILE))
        .help(format!("generate it with `sagents gen persistence {key}`, or remove it from {}", memory::OPTIONS_FILE)))
}

/// A context's name in `sagents.toml`, which a person may have written there.
fn recorded_context(key: &str, host: &Host) -> Result<ModulePath> {
    ModulePath::parse_context(key, &host.package)
        .map_err(|failure| Failure { what: format!("{}: {}", memory::OPTIONS_FILE, failure.what), ..failure })
}

/// What somebody asks for: a context, and what they say about it now.
#[expect(clippy::struct_excessive_bools, reason = "they are flags")]
struct Request {
    context: String,
    path: camino::Utf8PathBuf,
    given: Given,
    drop_old_owner: bool,
    init: bool,
    force: bool,
    yes: bool,
}

impl Request {
    fn of(args: &Persistence) -> Self {
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
            backfill,
            drop_old_owner,
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
            backfill: backfill.clone(),
            ejected: None,
        };
        let (context, path) = (context.clone(), path.clone());
        Self { context, path, given, drop_old_owner: *drop_old_owner, init: *init, force: *force, yes: *yes }
    }

    /// With nothing but what was recorded.
    fn recorded(path: &Utf8Path, context: &str) -> Self {
        let (context, path, given) = (context.to_owned(), path.to_owned(), Given::default());
        Self { context, path, given, drop_old_owner: false, init: false, force: false, yes: false }
    }
}

/// What a request would change, with all that a report says of it.
struct Generation {
    host: Host,
    resolved: Resolved,
    notes: Vec<String>,
    unwired: Vec<(camino::Utf8PathBuf, Vec<String>)>,
    next: Vec<Step>,
    changes: Vec<Change>,
}

impl Generation {
    /// Whoever merges into changes that are not committed cannot tell the two apart afterwards.
    fn note_uncommitted(&mut self) {
        let merged = |change: &&Change| matches!(change.action, Action::Merged | Action::Conflict);
        let paths: Vec<_> = self.changes.iter().filter(merged).map(|change| change.path.as_path()).collect();
        let dirty = if paths.is_empty() { Vec::new() } else { self.host.uncommitted(&paths) };
        if !dirty.is_empty() {
            let list: Vec<_> = dirty.iter().map(|path| path.as_str()).collect();
            self.notes.push(format!("Merged into changes that were not committed: {}.", list.join(", ")));
        }
    }

    fn report(&self, dry_run: bool) -> Report<'_> {
        let Self { host: _, resolved, notes, unwired, next, changes } = self;
        Report { resolved, changes, unwired, notes, next, dry_run }
    }
}

/// From a request to the changes. It reads, and never writes.
fn generation(request: &Request, now: DateTime<Utc>) -> Result<Generation> {
    let Request { context, path, given, drop_old_owner, init, force, yes } = request;
    let host = open(path, *init, context)?;
    let recorded = Recorded::read(&host.tree)?;
    let context = ModulePath::parse_context(context, &host.package)?;
    let before = recorded.contexts.get(&context.key());
    let is_recorded = before.is_some();
    let mut before = before.cloned().unwrap_or_default();
    if given.owner_type.as_deref() == Some("none") {
        before = before.without_owner();
    }
    let mut given = given.clone().over(before);
    if given.scope.is_none() {
        given.scope = ask_scope(&host.package, *yes);
    }
    let last = Last::read(&host.tree, &context)?;
    refuse_other_database(&context, &given, &last)?;
    let mut options = Options::resolve(context, &given, &host, &recorded, &last)?;
    refuse_other_inference(&options, &given, &last)?;
    let backfill = backfill(&mut options, &mut given, &last)?;
    let start = Start {
        given: &given,
        last: &last,
        recorded: is_recorded,
        backfill: backfill.as_deref(),
        drop_old_owner: *drop_old_owner,
        now,
    };
    let plan = plan::plan(&options, &host, start)?;
    let formatter = Formatter { directory: host.working_directory(), edition: host.edition.clone() };
    let changes = change::changes(&plan, &host, &options.context, &last, &formatter, *force)?;
    let mut notes = options.notes.clone();
    if plan.lacks_backfill {
        notes.push(
            "Without --backfill the migration is for empty tables; where there are conversations it stops, with nothing changed."
                .to_owned(),
        );
    }
    if let Some(workspace) = host.surrounding_workspace() {
        notes.push(format!("The new package is inside the workspace of {workspace}: list it there under `members`."));
    }
    let next = next_steps(&host, path, &options, &plan, &last)?;
    Ok(Generation { resolved: options.resolved(), notes, unwired: plan.unwired, next, changes, host })
}

/// Rows do not move from one database to another by generating code.
fn refuse_other_database(context: &ModulePath, given: &Given, last: &Last) -> Result<()> {
    let before = last.option("database");
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

/// The expression for a change of owner. One that was used for an earlier change is not used again.
fn backfill(options: &mut Options, given: &mut Given, last: &Last) -> Result<Option<String>> {
    let Some(text) = given.backfill.clone() else { return Ok(None) };
    transition::check_backfill(&text, options.database)?;
    let changes = options.resolved().owner().iter().any(|(name, now)| last.option(name) != *now);
    let used = last.option("backfill") == Some(text.as_str());
    match (changes && !last.resolved.is_empty(), used) {
        (true, false) => return Ok(Some(text)),
        (false, true) => return Ok(None),
        (true, true) => {}
        (false, false) => {
            return Err(Failure::usage("--backfill: the owner does not change in this run")
                .help("give it together with the option that changes the owner, for example `--owner-type team`"));
        }
    }
    given.backfill = None;
    options.backfill = None;
    Ok(None)
}

/// The same options mean something else than they did, because the host changed: a person says which it is.
fn refuse_other_inference(options: &Options, given: &Given, last: &Last) -> Result<()> {
    let resolved = options.resolved();
    let [noun, field, id, table] = resolved.owner();
    if last.resolved.is_empty() || [noun, field].iter().any(|(name, now)| last.option(name) != *now) {
        return Ok(());
    }
    let database = ("database", Some(resolved.database.name()));
    for ((name, now), given) in [(id, &given.owner_id), (table, &given.owner_table), (database, &given.database)] {
        if let (None, Some(before), Some(now)) = (given, last.option(name), now)
            && before != now
        {
            return Err(Failure::decision(format!(
                "--{name}: it was not given and was read from the project as `{before}`; now the project says `{now}`"
            ))
            .help(format!("say which it is: `--{name} {before}` keeps it, `--{name} {now}` changes it")));
        }
    }
    Ok(())
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
fn next_steps(host: &Host, path: &Utf8Path, options: &Options, plan: &Plan, last: &Last) -> Result<Vec<Step>> {
    let migrate = !plan.migrations.is_empty();
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
                let source = modules::clean(&path.join(&options.migrations));
                steps.push(step(
                    &format!("sqlx migrate run --source {}", quoted(&source)),
                    if last.schema.is_none() {
                        "creates the tables in DATABASE_URL"
                    } else {
                        "changes the tables in DATABASE_URL"
                    },
                ));
            }
        }
    }
    if migrate && !plan.former_owners.is_empty() {
        let command = format!("sagents update {} --drop-old-owner", options.context.key());
        steps.push(step(&command, &format!("later, when {} is not needed any more", plan.former_owners.join(", "))));
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
        let context = recorded_context(key, &host)?;
        let last = Last::read(&host.tree, &context)?;
        contexts.push(Options::resolve(context, given, &host, &recorded, &last)?.resolved());
    }
    print(&if *json { report::list_json(&contexts) } else { report::list(&contexts) });
    Ok(())
}

/// A reader that went away, such as `head`, is no failure.
fn print(text: &str) {
    let _ = anstream::stdout().write_all(text.as_bytes());
}
