//! The pipeline: from a request to the changes that it would make. It reads, and never writes; `gen` and `update` apply
//! the changes, `diff` prints them, `check` judges them.

use camino::Utf8Path;
use chrono::{DateTime, Utc};

use crate::chain::{self, Scene};
use crate::change::{self, Action, Change};
use crate::database::Database;
use crate::failure::{Failure, Result};
use crate::format::Formatter;
use crate::given::{Dropped, Given};
use crate::host::Host;
use crate::host::migrations;
use crate::host::modules::{self, Found};
use crate::host::source;
use crate::memory::{self, Last, Recorded};
use crate::names::{self, ModulePath};
use crate::next::{self, Step};
use crate::options::{self, Options, Resolved};
use crate::plan::{self, Plan, Start, Unwired};
use crate::schema::transition;

/// What somebody asks for: a context, and what they say about it now.
#[derive(Debug)]
pub struct Request<'a> {
    pub context: ModulePath,
    /// The package's directory, as it was named.
    pub path: &'a Utf8Path,
    pub given: Given,
    pub drop_old_owner: bool,
    /// Replace what cannot be merged.
    pub force: bool,
    /// It is the command that creates a context, so one that was deleted comes back.
    pub creates: bool,
}

impl<'a> Request<'a> {
    /// With nothing but what was recorded.
    pub fn recorded(path: &'a Utf8Path, context: ModulePath) -> Self {
        let given = Given::default();
        Self { context, path, given, drop_old_owner: false, force: false, creates: false }
    }
}

/// What a request would change, with all that a report says of it.
#[derive(Debug)]
pub struct Generation {
    pub resolved: Resolved,
    /// Recorded options that do not hold any longer.
    pub dropped: Vec<Dropped>,
    pub notes: Vec<String>,
    pub unwired: Unwired,
    pub next: Vec<Step>,
    pub changes: Vec<Change>,
}

pub fn generation(host: &Host, request: &Request, now: DateTime<Utc>) -> Result<Generation> {
    let Request { context, path, given, drop_old_owner, force, creates } = request;
    let recorded = Recorded::read(&host.tree)?;
    let last = Last::read(&host.tree, context)?;
    let recreated = gone(context, &last, host);
    if !creates {
        recreated.iter().try_for_each(|module| refuse_gone(module, context, &last))?;
    }
    let before = recorded.contexts.get(&context.key());
    let is_recorded = before.is_some();
    let (mut given_all, dropped) = options::carry(given, before, last.resolved.as_ref(), host);
    refuse_other_database(context, &given_all, &last)?;
    refuse_broken_chain(context, &given_all, &last, host)?;
    let mut options = Options::resolve(context.clone(), &given_all, host, &recorded, &last)?;
    refuse_other_inference(&options, &given_all, &last)?;
    if given.scope.is_none() {
        refuse_lost_scope(&options, &last, host)?;
    }
    let backfill = backfill(&mut options, &mut given_all, given.backfill.is_some(), &last)?;
    let start = Start {
        given: &given_all,
        last: &last,
        recorded: is_recorded,
        recreated: &recreated,
        backfill: backfill.as_deref(),
        drop_old_owner: *drop_old_owner,
        now,
    };
    let plan = plan::plan(&options, host, start)?;
    let formatter = Formatter {
        program: host.tools.rustfmt.clone(),
        directory: host.working_directory(),
        edition: host.edition.clone(),
    };
    let changes = change::changes(&plan, host, &options.context, &last, &formatter, *force)?;
    let mut notes = options.notes.clone();
    notes.extend(plan_notes(&plan, &last, host, &changes));
    let next = next::steps(host, path, &options, &plan, &last)?;
    Ok(Generation { resolved: options.resolved(), dropped, notes, unwired: plan.unwired, next, changes })
}

fn plan_notes(plan: &Plan, last: &Last, host: &Host, changes: &[Change]) -> Vec<String> {
    let mut notes = Vec::new();
    if plan.lacks_backfill {
        notes.push(
            "Without --backfill the migration is for empty tables; where there are conversations it stops, with nothing changed."
                .to_owned(),
        );
    }
    if !plan.replaced.is_empty() {
        let replaced: Vec<_> = plan.replaced.iter().map(|file| file.as_str()).collect();
        notes.push(format!(
            "Emitted and not there any more, but other migrations make the same tables: {}.",
            replaced.join(", ")
        ));
    }
    let is_known = |path: &&camino::Utf8PathBuf| {
        let generated = [&last.files, &last.runtime].into_iter().any(|files| files.generated.contains_key(*path));
        generated || changes.iter().any(|change| change.path == **path)
    };
    for path in plan.ejected.iter().filter(|path| !is_known(path)) {
        notes.push(format!("`ejected` in {} names {path}, which is not a generated file.", memory::OPTIONS_FILE));
    }
    if let Some(workspace) = host.surrounding_workspace() {
        notes.push(format!("The new package is inside the workspace of {workspace}: list it there under `members`."));
    }
    notes
}

/// Whoever merges into changes that are not committed cannot tell the two apart afterwards.
pub fn note_uncommitted(generation: &mut Generation, host: &Host) {
    let merged = |change: &&Change| matches!(change.action, Action::Merged | Action::Conflict);
    let paths: Vec<_> = generation.changes.iter().filter(merged).map(|change| change.path.as_path()).collect();
    let dirty = if paths.is_empty() { Vec::new() } else { host.uncommitted(&paths) };
    if !dirty.is_empty() {
        let list: Vec<_> = dirty.iter().map(|path| path.as_str()).collect();
        generation.notes.push(format!("Merged into changes that were not committed: {}.", list.join(", ")));
    }
}

/// What was generated and is not there any more, of the context and the runtime.
fn gone(context: &ModulePath, last: &Last, host: &Host) -> Vec<ModulePath> {
    let is_gone = |module: &ModulePath| {
        let mut roots = last.of(module).generated.keys().filter(|path| memory::is_root(path, module)).peekable();
        let is_found = || matches!(modules::find(&host.tree, &host.krate, module.names()), Ok(Found::Module(_)));
        roots.peek().is_some() && !roots.any(|path| host.tree.is_file(path)) && !is_found()
    };
    [context.clone(), ModulePath::runtime()].into_iter().filter(is_gone).collect()
}

fn refuse_gone(module: &ModulePath, context: &ModulePath, last: &Last) -> Result<()> {
    let root = last.of(module).generated.keys().find(|path| memory::is_root(path, module));
    let (key, root) = (module.key(), root.map_or("its module", |path| path.as_str()));
    let restore = format!("restore {root} from version control");
    let again = format!("generate it again with `sagents gen persistence {}`", context.rust());
    let failure = Failure::decision(format!("`{key}` was generated, and {root} is gone: it was moved or deleted"));
    Err(failure.help(if module == context {
        let file = memory::OPTIONS_FILE;
        format!("{restore}, {again}, or remove `[contexts.{key}]` from {file} and .sagents/ if it is yours now")
    } else {
        format!("{restore}, or {again}")
    }))
}

/// A scope that was there is not written again, unless somebody asks for it by name.
fn refuse_lost_scope(options: &Options, last: &Last, host: &Host) -> Result<()> {
    let scope = options.scope.rust();
    let is_known = last.resolved.as_ref().is_some_and(|before| before.scope == scope);
    if !is_known || !options.create_scope || is_as_created(last, options.wire, host)? {
        return Ok(());
    }
    let command = format!("sagents gen persistence {} --scope", options.context.rust());
    Err(Failure::decision(format!("`{scope}` is gone: it was moved, renamed or deleted")).help(format!(
        "restore it, or say which type it is now with `{command} <TYPE>`; `{command} {scope}` writes it again"
    )))
}

/// Whether the scope is as an earlier run left it. Without wiring, that run may have left it to the user.
fn is_as_created(last: &Last, wire: bool, host: &Host) -> Result<bool> {
    let Some(created) = &last.files.scope else { return Ok(!wire) };
    let text = host.tree.read(&created.file)?;
    let is_there = text.as_ref().is_some_and(|text| source::untouched(text, &created.text).is_some());
    Ok(is_there || (!wire && text.is_some()))
}

/// What the recorded options mean is of no interest while the tables are in doubt.
fn refuse_broken_chain(context: &ModulePath, given: &Given, last: &Last, host: &Host) -> Result<()> {
    let Some(resolved) = &last.resolved else { return Ok(()) };
    let directory = &options::migrations_directory(given.migrations.as_deref(), host)?;
    let found = &migrations::read(&host.tree, directory, resolved.database)?;
    let krate = &names::crate_name(&host.package);
    chain::read(Scene { tree: &host.tree, krate, context, directory, found }, last).map(drop)
}

/// Rows do not move from one database to another by generating code.
fn refuse_other_database(context: &ModulePath, given: &Given, last: &Last) -> Result<()> {
    let (Some(before), Some(now)) = (&last.resolved, &given.database) else { return Ok(()) };
    let before = before.database;
    if before == Database::parse(now)? {
        return Ok(());
    }
    let key = context.key();
    Err(Failure::decision(format!(
        "--database: `{key}` is generated for {}, and its rows would stay there",
        before.name()
    ))
    .help(format!(
        "generate another context with `--database {now}`, copy the rows, and remove `{key}` when it is empty"
    )))
}

/// The expression for a change of owner. One that was used for an earlier change is not used again.
fn backfill(options: &mut Options, given: &mut Given, is_new: bool, last: &Last) -> Result<Option<String>> {
    let Some(text) = given.backfill.clone() else { return Ok(None) };
    let Some(before) = &last.resolved else {
        // What is recorded was used for a change that is not remembered any more.
        if !is_new {
            return Ok(None);
        }
        return Err(Failure::usage("--backfill: .sagents/ does not say who the owner was, so it does not change")
            .help(
                "leave --backfill out if this is the first run; if it is not, restore .sagents/ from version control",
            ));
    };
    let used = before.backfill.as_ref() == Some(&text);
    match (!before.has_owner_of(&options.resolved()), used) {
        (true, false) => {
            let conversations = last.schema.as_ref().and_then(|recorded| recorded.schema.tables.first());
            transition::check_backfill(&text, options.database, conversations, &options.catalog)?;
            Ok(Some(text))
        }
        (false, true) => Ok(None),
        (true, true) => {
            given.backfill = None;
            options.backfill = None;
            Ok(None)
        }
        (false, false) => Err(Failure::usage("--backfill: the owner does not change in this run")
            .help("give it together with the option that changes the owner, for example `--owner-type team`")),
    }
}

/// The same options mean something else than they did, because the host changed: a person says which it is.
fn refuse_other_inference(options: &Options, given: &Given, last: &Last) -> Result<()> {
    let Some(before) = &last.resolved else { return Ok(()) };
    let now = options.resolved();
    if before.owner_type != now.owner_type || before.owner_field != now.owner_field {
        return Ok(());
    }
    let database = |resolved: &Resolved| Some(resolved.database.name().to_owned());
    for (name, before, now, given) in [
        ("owner-id", before.owner_id.clone(), now.owner_id.clone(), &given.owner_id),
        ("owner-table", before.owner_table.clone(), now.owner_table.clone(), &given.owner_table),
        ("database", database(before), database(&now), &given.database),
    ] {
        if let (None, Some(before), Some(now)) = (given, before, now)
            && before != now
        {
            return Err(Failure::decision(format!(
                "--{name}: it was not given and was read from the project as `{before}`; now the project says `{now}`"
            ))
            .help(format!("say which it is: `--{name} {before}` keeps it, `--{name} {now}` changes it")));
        }
    }
    Ok(())
}
