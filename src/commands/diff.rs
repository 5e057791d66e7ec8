//! `sagents diff`: what a rerun would change, as a patch.

use chrono::Utc;

use super::{Ending, recorded_contexts, refuse_interrupted, undecided};
use crate::change::Change;
use crate::cli::{HostArgs, Look};
use crate::failure::{Exit, Failure, Result};
use crate::generation::{Request, generation};
use crate::host::Host;
use crate::io::Io;
use crate::report::{self, Report};

pub fn run(args: &Look, io: &Io) -> Result<Ending> {
    let Look { contexts, host: HostArgs { path, package: _ }, json } = args;
    let place = io.place(path);
    refuse_interrupted(&place)?;
    let mut host = Host::read(&place)?;
    let mut generations = Vec::new();
    for context in recorded_contexts(&host, path, contexts)? {
        let generated = generation(&host, &Request::recorded(path, context), Utc::now())?;
        host.pend(&generated.changes)?;
        generations.push(generated);
    }
    let changes = || generations.iter().flat_map(|generated| &generated.changes);
    let pending = changes().any(Change::writes).then(|| Failure::reported(Exit::Pending));
    let failure = undecided(&generations).or(pending);
    let output = if *json {
        let reports = generations.iter().map(|generation| Report { generation, dry_run: true }.value(None));
        report::values(&reports.collect::<Vec<_>>())
    } else {
        report::diff(changes())
    };
    Ok(Ending { output, failure })
}
