//! `sagents gen …`: what all generators share. A generator turns its arguments into a request, and may ask questions
//! for that; the rest is here.

use camino::Utf8PathBuf;
use chrono::Utc;

use super::{Ending, begin, refuse_interrupted, undecided, write};
use crate::change;
use crate::cli::{GenerateArgs, HostArgs};
use crate::failure::{Failure, Result};
use crate::generation::{Request, generation, note_git};
use crate::host::Host;
use crate::io::{Io, Place};
use crate::memory::Recorded;
use crate::names::{self, ModulePath};
use crate::options;
use crate::report::{self, Report};

/// What a new package has before it is generated into, by path.
pub type Files = Vec<(Utf8PathBuf, String)>;

pub fn run<'a>(
    args: &'a GenerateArgs,
    context: &str,
    scope: Option<&str>,
    starts_with: impl FnOnce() -> Result<Files>,
    io: &mut Io,
    request: impl FnOnce(&Host, ModulePath, &mut Io) -> Result<Request<'a>>,
) -> Result<Ending> {
    let GenerateArgs { host: HostArgs { path, package: _ }, init, dry_run, diff, force: _, yes: _, json } = args;
    let dry_run = *dry_run || *diff;
    let meant = [Some(context), scope].into_iter().flatten().filter_map(names::package_of).collect();
    let place = Place { meant, ..io.place(path) };
    let _lock = if dry_run {
        refuse_interrupted(&place)?;
        None
    } else {
        Some(begin(&place, io)?)
    };
    let host = open(&place, *init, context, starts_with)?;
    let context = ModulePath::parse_context(context, &host.package)?;
    let request = request(&host, context, io)?;
    let mut generated = generation(&host, &request, Utc::now())?;
    note_git(&mut generated, &host);
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
fn open(place: &Place, init: bool, context: &str, starts_with: impl FnOnce() -> Result<Files>) -> Result<Host> {
    if !init {
        return Host::read(place);
    }
    if place.path.join("Cargo.toml").exists() {
        // The same command again is a rerun.
        let host = Host::read(place)?;
        let generated = ModulePath::parse_context(context, &host.package).is_ok_and(|context| {
            Recorded::read(&host.tree).is_ok_and(|recorded| recorded.contexts.contains_key(&context.key()))
        });
        if generated {
            return Ok(host);
        }
        return Err(Failure::usage(format!("--init: {} is a package already", place.named))
            .help("leave --init out to generate into it"));
    }
    let directory = || {
        camino::absolute_utf8(&place.path)
            .ok()
            .and_then(|path| path.file_name().map(heck::AsSnakeCase).map(|name| name.to_string()))
    };
    let package = names::package_of(context).or_else(directory).ok_or_else(|| {
        Failure::usage("--init: the directory has no name that a package could have")
            .help("name the package: `MyApp.Conversations`")
    })?;
    options::check_package(&package)?;
    Host::init(place, package, starts_with()?)
}
