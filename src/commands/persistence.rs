//! `sagents gen persistence`: generates a context, or reruns over one.

use std::io::BufRead as _;

use heck::ToUpperCamelCase as _;

use super::generate::Files;
use super::{Ending, generate};
use crate::cli::Persistence;
use crate::failure::Result;
use crate::generation::Request;
use crate::given::Given;
use crate::host::{Host, migrations, modules};
use crate::io::Io;
use crate::memory::Recorded;
use crate::names::ModulePath;
use crate::{options, report, templates};

pub fn run(args: &Persistence, io: &mut Io) -> Result<Ending> {
    let Persistence { context, given, create_scope, drop_old_owner, run } = args;
    generate::run(
        run,
        context,
        given.scope.as_deref(),
        || new_tables(given),
        io,
        |host, context, io| {
            let mut given = given.clone();
            if given.scope.is_none() && needs_scope(&given, host, &context)? {
                given.scope = ask_scope(&host.package, run.yes, io);
            }
            let (path, drop_old_owner, create_scope) = (run.host.path.as_path(), *drop_old_owner, *create_scope);
            Ok(Request { context, path, given, drop_old_owner, create_scope, force: run.force, creates: true })
        },
    )
}

/// A new package with groups has tables of its owners, which name the group of each.
fn new_tables(given: &Given) -> Result<Files> {
    let Some(tables) = options::new_owners(given)? else { return Ok(Vec::new()) };
    let directory = modules::clean(given.migrations.as_deref().unwrap_or(migrations::DEFAULT_DIRECTORY.into()));
    Ok(vec![
        (directory.join("0001_create_owners.down.sql"), templates::drop_owners(&tables)),
        (directory.join("0001_create_owners.up.sql"), templates::create_owners(&tables)),
    ])
}

/// Whether a context has an owner, and nothing says yet which type holds it.
fn needs_scope(given: &Given, host: &Host, context: &ModulePath) -> Result<bool> {
    let recorded = Recorded::read(&host.tree)?;
    let before = recorded.contexts.get(&context.key());
    let owner = given.owner_type.as_ref().or_else(|| before.and_then(|before| before.owner_type.as_ref()));
    Ok(before.is_none_or(|before| before.scope.is_none()) && owner.is_none_or(|owner| owner != options::NO_OWNER))
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
