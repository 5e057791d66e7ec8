//! `sagents gen persistence`: generates a context, or reruns over one.

use std::io::BufRead as _;

use heck::ToUpperCamelCase as _;

use super::generate::Files;
use super::{Ending, generate};
use crate::cli::Persistence;
use crate::failure::Result;
use crate::generation::Request;
use crate::given::Given;
use crate::host::Host;
use crate::io::Io;
use crate::memory::Recorded;
use crate::names::ModulePath;
use crate::{options, report, templates};

pub fn run(args: &Persistence, io: &mut Io) -> Result<Ending> {
    let Persistence { context, given, drop_old_owner, run } = args;
    generate::run(
        run,
        context,
        || new_tables(given),
        io,
        |host, context, io| {
            let mut given = given.clone();
            if given.scope.is_none() && !is_scope_known(host, &context)? {
                given.scope = ask_scope(&host.package, run.yes, io);
            }
            let (path, drop_old_owner, force) = (run.path.as_path(), *drop_old_owner, run.force);
            Ok(Request { context, path, given, drop_old_owner, force, creates: true })
        },
    )
}

/// A new package with groups has tables of its owners, which name the group of each.
fn new_tables(given: &Given) -> Result<Files> {
    let Some(tables) = options::new_owners(given)? else { return Ok(Vec::new()) };
    let directory = given.migrations.clone().unwrap_or_else(|| options::DEFAULT_MIGRATIONS.into());
    Ok(vec![
        (directory.join("0001_create_owners.down.sql"), templates::drop_owners(&tables)),
        (directory.join("0001_create_owners.up.sql"), templates::create_owners(&tables)),
    ])
}

fn is_scope_known(host: &Host, context: &ModulePath) -> Result<bool> {
    let recorded = Recorded::read(&host.tree)?;
    Ok(recorded.contexts.get(&context.key()).is_some_and(|recorded| recorded.scope.is_some()))
}

/// Asks on a terminal; anywhere else nothing is ever asked.
fn ask_scope(package: &str, yes: bool, io: &mut Io) -> Option<String> {
    if !io.interactive {
        return None;
    }
    let default = format!("{}.Accounts.Scope", package.to_upper_camel_case());
    if yes {
        return Some(default);
    }
    io.complain(&report::ask_scope(&default));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).ok()?;
    let answer = answer.trim();
    Some(if answer.is_empty() { default } else { answer.to_owned() })
}
