//! `sagents gen persistence`: generates a context, or reruns over one.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use camino::Utf8Path;
use chrono::Utc;
use heck::ToUpperCamelCase as _;

use super::{Ending, begin, undecided, write};
use crate::change;
use crate::cli::Persistence;
use crate::failure::{Failure, Result};
use crate::generation::{Request, generation, note_uncommitted};
use crate::host::Host;
use crate::memory::Recorded;
use crate::names::{self, ModulePath};
use crate::options;
use crate::report::{self, Report};

pub fn run(args: &Persistence) -> Result<Ending> {
    let Persistence { context, given, drop_old_owner, path, init, dry_run, diff, force, yes, json } = args;
    let dry_run = *dry_run || *diff;
    let _lock = if dry_run { None } else { Some(begin(path)?) };
    let host = open(path, *init, context)?;
    let context = ModulePath::parse_context(context, &host.package)?;
    let mut given = given.clone();
    let is_scope_known = || -> Result<bool> {
        let recorded = Recorded::read(&host.tree)?;
        Ok(recorded.contexts.get(&context.key()).is_some_and(|recorded| recorded.scope.is_some()))
    };
    if given.scope.is_none() && !is_scope_known()? {
        given.scope = ask_scope(&host.package, *yes);
    }
    let request = Request { context, path, given, drop_old_owner: *drop_old_owner, force: *force, creates: true };
    let mut generated = generation(&host, &request, Utc::now())?;
    note_uncommitted(&mut generated, &host);
    let generated = [generated];
    let undecided = undecided(&generated);
    let [generation] = &generated;
    let report = Report { generation, dry_run };
    let text = || if *diff { report::diff(&generation.changes) } else { report.text() };
    if let Some(failure) = undecided {
        // Of JSON there is one document, and of a failure that is the failure.
        let is_shown = dry_run && !json;
        return if is_shown { Ok(Ending { output: text(), failure: Some(failure) }) } else { Err(failure) };
    }
    if !dry_run {
        write(&host, &generated)?;
    }
    let failure = change::conflicts(&generation.changes, dry_run);
    let output = if *json { report.json(failure.as_ref()) } else { text() };
    Ok(Ending { output, failure })
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
