//! What of the recorded options still holds in a rerun. What describes an owner belongs to its type, and the way to the
//! owner belongs to the scope: when one of these changes, what is not given again is inferred again.

use super::{DEFAULT_OWNER, Resolved};
use crate::given::{Dropped, Given};
use crate::host::Host;
use crate::names::TypePath;

/// The options that a run starts from: those given now, over the recorded ones that still hold.
pub fn carry(now: &Given, recorded: Option<&Given>, last: Option<&Resolved>, host: &Host) -> (Given, Vec<Dropped>) {
    let Some(recorded) = recorded else { return (now.clone(), Vec::new()) };
    let mut kept = recorded.clone();
    let mut dropped = Vec::new();
    let owner = Subject {
        before: last.map_or_else(|| owner_type(recorded), |last| last.owner_type.clone()),
        recorded: owner_type(recorded),
        now: now.owner_type.clone().unwrap_or_else(|| owner_type(recorded)),
    };
    let scope = |given: &Given| given.scope.as_deref().map(|scope| canonical(scope, host)).unwrap_or_default();
    let scope = Subject {
        before: last.map_or_else(|| scope(recorded), |last| last.scope.clone()),
        recorded: scope(recorded),
        now: if now.scope.is_some() { scope(now) } else { scope(recorded) },
    };
    let given_now = now.table();
    for (option, value) in kept.of_owner() {
        if given_now.contains_key(option) {
            continue;
        }
        let is_old = |value: &String| {
            let value = if option == "owner-module" { canonical(value, host) } else { value.clone() };
            last.is_some_and(|last| last.option(option) == Some(value))
        };
        let described = if owner.drops(value.as_ref().is_some_and(is_old)) {
            format!("the {}", owner.before)
        } else if option == "scope-owner" && scope.drops(value.as_ref().is_some_and(is_old)) {
            scope.before.clone()
        } else {
            continue;
        };
        dropped.extend(value.take().map(|value| Dropped { option, value, described }));
    }
    (now.over(&kept), dropped)
}

/// Something that other options describe: as the last run had it, as `sagents.toml` has it, and as it is from now on.
struct Subject {
    before: String,
    recorded: String,
    now: String,
}

impl Subject {
    /// Whether a recorded option described the former one. In a file that was edited by hand, only those options did
    /// that are what they were.
    fn drops(&self, is_old: bool) -> bool {
        self.before != self.now && (self.recorded == self.before || is_old)
    }
}

fn owner_type(given: &Given) -> String {
    given.owner_type.clone().unwrap_or_else(|| DEFAULT_OWNER.to_owned())
}

/// A type in one notation. What cannot be read is refused later, with a reason.
fn canonical(ty: &str, host: &Host) -> String {
    TypePath::parse("", ty, &host.package, &host.manifest.dependency_crates())
        .map_or_else(|_| ty.to_owned(), |ty| ty.rust())
}
