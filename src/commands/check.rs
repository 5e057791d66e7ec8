//! `sagents check`: is everything as the generator would leave it? All that is wrong is reported at once.

use camino::Utf8Path;
use chrono::Utc;

use super::{Ending, recorded_contexts, refuse_interrupted};
use crate::cli::{HostArgs, Look};
use crate::failure::{Exit, Failure, Result};
use crate::generation::{Request, generation};
use crate::host::Host;
use crate::io::Io;
use crate::note::Note;
use crate::report;
use crate::verdict::{self, Verdict};

pub fn run(args: &Look, io: &Io) -> Result<Ending> {
    let Look { contexts, host: HostArgs { path, package: _ }, json } = args;
    let place = io.place(path);
    refuse_interrupted(&place)?;
    let mut host = Host::read(&place)?;
    let mut verdicts = Vec::new();
    for context in recorded_contexts(&host, path, contexts)? {
        let key = context.key();
        let outcome = generation(&host, &Request::recorded(path, context), Utc::now());
        let changes = outcome.map(|generated| generated.changes);
        if let Ok(changes) = &changes {
            host.pend(changes)?;
        }
        verdicts.push(Verdict::of(&key, changes));
    }
    let output = if *json { report::check_json(&verdicts) } else { report::check(&verdicts) + &reminder(&host) };
    let failure = match verdict::worst(&verdicts) {
        Exit::Success => None,
        exit => Some(Failure::reported(exit)),
    };
    Ok(Ending { output, failure })
}

/// A library that only this machine has.
fn reminder(host: &Host) -> String {
    let path = host.manifest.library_path().map(Utf8Path::new);
    let outside = path.filter(|path| host.is_outside_repository(path));
    outside.map(|path| report::reminder(&Note::LibraryPath(path.to_owned()))).unwrap_or_default()
}
