//! One module per command. A command returns what it prints, and `lib.rs` prints it; only what cannot wait, a question or
//! the reason for a delay, is printed here.

pub mod check;
pub mod diff;
pub mod generate;
pub mod list;
pub mod man;
pub mod persistence;
pub mod update;

use camino::Utf8Path;

use crate::change::{self, Change};
use crate::failure::{Failure, Result};
use crate::generation::Generation;
use crate::host::Host;
use crate::host::modules::{self, Found};
use crate::io::{Io, Place};
use crate::lock::Lock;
use crate::memory::{self, Last, Recorded};
use crate::names::ModulePath;
use crate::{apply, journal, report};

/// How a command ends that could do its work: what goes to standard output, and why the exit code is not 0.
#[derive(Debug)]
pub struct Ending {
    pub output: String,
    pub failure: Option<Failure>,
}

impl Ending {
    pub fn success(output: String) -> Self {
        Self { output, failure: None }
    }
}

/// Before a command that writes reads anything: no other run is at work, and none is left half done. The lock is held
/// to the end.
fn begin(place: &Place, io: &mut Io) -> Result<Lock> {
    let waiting = |holder: &Utf8Path| io.complain(&report::waiting(holder));
    let lock = Lock::take(&place.path, waiting);
    if let Some(recovered) = journal::recover(&place.path)? {
        io.complain(&report::recovered(&recovered));
    }
    Ok(lock)
}

/// A command that only looks does not end what an earlier run began.
fn refuse_interrupted(place: &Place) -> Result<()> {
    if !journal::interrupted(&place.path) {
        return Ok(());
    }
    Err(Failure::pending("an earlier run of sagents was interrupted here").help("`sagents update` ends it"))
}

/// Writes the changes of all generations, or of none.
fn write(host: &Host, generations: &[Generation]) -> Result<()> {
    let changes: Vec<&Change> = generations.iter().flat_map(|generation| &generation.changes).collect();
    apply::apply(host.tree.root(), &changes)
}

/// What a person has to decide before anything can be written.
fn undecided(generations: &[Generation]) -> Option<Failure> {
    generations.iter().find_map(|generation| change::undecided(&generation.changes))
}

/// The contexts that `sagents.toml` knows, or those of them that are named.
fn recorded_contexts(host: &Host, path: &Utf8Path, named: &[String]) -> Result<Vec<ModulePath>> {
    let known: Vec<_> = Recorded::read(&host.tree)?.contexts.into_keys().collect();
    if known.is_empty() {
        return Err(Failure::usage(format!("no context has been generated in {path}"))
            .help("generate one with `sagents gen persistence`, or name the package with --path"));
    }
    let mut keys = Vec::new();
    for name in named {
        // A key as `sagents.toml` has it, or any other notation.
        let is_key = known.contains(name);
        let key = if is_key { name.clone() } else { ModulePath::parse_context(name, &host.package)?.key() };
        if !known.contains(&key) {
            return Err(Failure::usage(format!("CONTEXT: `{key}` has not been generated here")).help(format!(
                "{} knows {}",
                memory::OPTIONS_FILE,
                known.join(", ")
            )));
        }
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let keys = if named.is_empty() { known } else { keys };
    let contexts = keys.iter().map(|key| recorded_context(key)).collect::<Result<Vec<_>>>()?;
    contexts.iter().try_for_each(|context| refuse_unknown(context, host))?;
    Ok(contexts)
}

/// A context that is in `sagents.toml` and nowhere else was misspelt, or never generated.
fn refuse_unknown(context: &ModulePath, host: &Host) -> Result<()> {
    let is_remembered = Last::read(&host.tree, context)?.resolved.is_some();
    let is_there = || matches!(modules::find(&host.tree, &host.krate, context.names()), Ok(Found::Module(_)));
    if is_remembered || is_there() {
        return Ok(());
    }
    let (key, file) = (context.key(), memory::OPTIONS_FILE);
    Err(Failure::usage(format!("{file}: `{key}` has not been generated"))
        .help(format!("generate it with `sagents gen persistence {}`, or remove it from {file}", context.rust())))
}

/// A context's name in `sagents.toml`, which a person may have written there.
fn recorded_context(key: &str) -> Result<ModulePath> {
    ModulePath::parse_key(key)
        .map_err(|failure| Failure { what: format!("{}: {}", memory::OPTIONS_FILE, failure.what), ..failure })
}
