//! `sagents update`: reruns contexts with their recorded options, all of them or none.

use chrono::Utc;

use super::{Ending, begin, recorded_contexts, undecided, write};
use crate::change;
use crate::cli::{HostArgs, Update};
use crate::failure::Result;
use crate::generation::{Generation, Request, generation, note_git};
use crate::host::Host;
use crate::io::Io;
use crate::report::{self, Report};

pub fn run(args: &Update, io: &mut Io) -> Result<Ending> {
    let Update { contexts, host: HostArgs { path, package: _ }, drop_old_owner, force, json } = args;
    let place = io.place(path);
    let _lock = begin(&place, io)?;
    let mut host = Host::read(&place)?;
    let mut generations = Vec::new();
    for context in recorded_contexts(&host, path, contexts)? {
        let request = Request { drop_old_owner: *drop_old_owner, force: *force, ..Request::recorded(path, context) };
        let mut generated = generation(&host, &request, Utc::now())?;
        note_git(&mut generated, &host);
        // The next one shares files with this one, and may share the directory of migrations.
        host.pend(&generated.changes)?;
        generations.push(generated);
    }
    if let Some(failure) = undecided(&generations) {
        return Err(failure);
    }
    write(&host, &generations)?;
    let conflicts = |generation: &Generation| change::conflicts(&generation.changes, false);
    let reports = generations.iter().map(|generation| Report { generation, dry_run: false });
    let output = if *json {
        let values = reports.map(|report| report.value(conflicts(report.generation).as_ref()));
        report::values(&values.collect::<Vec<_>>())
    } else {
        reports.map(|report| report.text()).collect()
    };
    Ok(Ending { output, failure: generations.iter().find_map(conflicts) })
}
