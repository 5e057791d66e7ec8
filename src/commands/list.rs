//! `sagents list`: the contexts of a host with their options.

use super::{Ending, recorded_context, refuse_interrupted};
use crate::cli::{HostArgs, List};
use crate::failure::Result;
use crate::given::Given;
use crate::host::Host;
use crate::io::Io;
use crate::memory::{Last, Recorded};
use crate::options::{self, Options};
use crate::report;

pub fn run(args: &List, io: &Io) -> Result<Ending> {
    let List { host: HostArgs { path, package: _ }, json } = args;
    let place = io.place(path);
    refuse_interrupted(&place)?;
    let host = Host::read(&place)?;
    let recorded = Recorded::read(&host.tree)?;
    let mut contexts = Vec::new();
    for (key, given) in &recorded.contexts {
        let context = recorded_context(key)?;
        let last = Last::read(&host.tree, &context)?;
        let carried = options::carry(&Given::default(), Some(given), last.resolved.as_ref(), &host);
        contexts.push(Options::resolve(context, &carried, &host, &recorded, &last)?.resolved());
    }
    Ok(Ending::success(if *json { report::list_json(&contexts) } else { report::list(&contexts) }))
}
