//! The pipeline: from a request to the changes that it would make. It reads, and never writes; `gen` and `update` apply
//! the changes, `diff` prints them, `check` judges them.

use camino::{Utf8Path, Utf8PathBuf};
use chrono::{DateTime, Utc};

use crate::chain::{self, Scene};
use crate::change::{self, Action, Change};
use crate::failure::{Failure, Result};
use crate::format::Formatter;
use crate::given::Given;
use crate::host::Host;
use crate::host::migrations;
use crate::host::modules::{self, Found};
use crate::host::source;
use crate::memory::{self, Files, Last, Recorded};
use crate::names::{self, ModulePath};
use crate::next::{self, Step};
use crate::note::Note;
use crate::options::{self, Dropped, Options, Resolved, ScopeOrigin};
use crate::plan::{self, Plan, Planned, Start, Unwired};

/// A context, and the options that are given for it now.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags")]
pub struct Request<'a> {
    pub context: ModulePath,
    /// The package's directory, as it was named.
    pub path: &'a Utf8Path,
    pub given: Given,
    pub drop_old_owner: bool,
    /// Write the scope type if it does not exist.
    pub create_scope: bool,
    /// Replace what cannot be merged.
    pub force: bool,
    /// It is the command that creates a context, so one that was deleted comes back.
    pub creates: bool,
}

impl<'a> Request<'a> {
    /// With nothing but what was recorded.
    pub fn recorded(path: &'a Utf8Path, context: ModulePath) -> Self {
        let given = Given::default();
        Self { context, path, given, drop_old_owner: false, create_scope: false, force: false, creates: false }
    }
}

/// What a request would change, with everything that its report needs.
#[derive(Debug)]
pub struct Generation {
    pub resolved: Resolved,
    /// What shows that the database is the host's.
    pub database_shown_by: Option<String>,
    /// Recorded options that do not hold any longer.
    pub dropped: Vec<Dropped>,
    pub notes: Vec<Note>,
    pub unwired: Unwired,
    pub next: Vec<Step>,
    pub changes: Vec<Change>,
    /// In a first run, the files that explain the rest.
    pub read_first: Vec<Utf8PathBuf>,
}

pub fn generation(host: &Host, request: &Request, now: DateTime<Utc>) -> Result<Generation> {
    let Request { context, path, given, drop_old_owner, create_scope, force, creates } = request;
    let recorded = Recorded::read(&host.tree)?;
    let last = Last::read(&host.tree, context)?;
    let recreated = is_gone(context, &last, host);
    if recreated && !creates {
        return Err(gone(context, &last));
    }
    let before = recorded.contexts.get(&context.key());
    let carried = options::carry(given, before, last.resolved.as_ref(), host);
    options::refuse_other_database(context, &carried.given, &last)?;
    refuse_broken_chain(context, &carried.given, &last, host)?;
    let options = Options::resolve(context.clone(), &carried, host, &recorded, &last)?;
    options::refuse_other_inference(&options, &carried.given, &last)?;
    let may_create = *create_scope || host.is_new();
    if options.scope_origin == ScopeOrigin::Created && !may_create {
        refuse_absent_scope(&options, given, &recorded, &last, host)?;
    }
    let krate = &names::crate_name(&host.package);
    let chain = chain::read(options.scene(krate, host), &last)?;
    let backfill = options.backfill.as_ref().map(|backfill| backfill.text.clone());
    let given = Given { backfill, ..carried.given };
    let start = Start {
        given: &given,
        last: &last,
        chain: &chain,
        recorded: before.is_some(),
        recreated,
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
    let is_first = last.files == Files::default();
    Ok(Generation {
        resolved: options.resolved(),
        // Later runs know it.
        database_shown_by: options.database_shown_by.clone().filter(|_| is_first),
        dropped: carried.dropped,
        notes: options
            .notes
            .iter()
            // A new package has no tables yet that a foreign key could name.
            .filter(|note| !(host.is_new() && matches!(note, Note::NoForeignKey { .. })))
            .cloned()
            .chain(notes(&plan, &last, host, &changes))
            .chain(former_fields(
                options.owner.as_ref().map(|owner| owner.field.as_str()),
                &plan,
                &last,
                &changes,
                host,
            ))
            .collect(),
        next: next::steps(host, path, &options, &plan, &last)?,
        unwired: plan.unwired,
        changes,
        read_first: if is_first { plan.read_first } else { Vec::new() },
    })
}

fn notes(plan: &Plan, last: &Last, host: &Host, changes: &[Change]) -> Vec<Note> {
    let mut notes = Vec::new();
    notes.extend(plan.lacks_backfill.then_some(Note::EmptyTablesOnly));
    notes.extend((!plan.replaced.is_empty()).then(|| Note::Replaced(plan.replaced.clone())));
    let is_known = |path: &&Utf8PathBuf| {
        last.files.generated.contains_key(*path) || changes.iter().any(|change| change.path == **path)
    };
    notes.extend(plan.ejected.iter().filter(|path| !is_known(path)).cloned().map(Note::NotGenerated));
    notes.extend(host.surrounding_workspace().map(Note::InsideWorkspace));
    notes
}

/// Adds what git says. What is merged into changes that are not committed cannot be told apart from them afterwards, and
/// what is ignored is in no other clone.
pub fn note_git(generation: &mut Generation, host: &Host) {
    let merged = |change: &&Change| matches!(change.action, Action::Merged | Action::Conflict);
    let paths: Vec<_> = generation.changes.iter().filter(merged).map(|change| change.path.as_path()).collect();
    let dirty = if paths.is_empty() { Vec::new() } else { host.uncommitted(&paths) };
    generation.notes.extend((!dirty.is_empty()).then_some(Note::Uncommitted(dirty)));
    let stays = |change: &&Change| !matches!(change.action, Action::Removed | Action::Deleted | Action::Missing);
    let paths: Vec<_> = generation.changes.iter().filter(stays).map(|change| change.path.as_path()).collect();
    let mut ignored = host.ignored(&paths);
    for file in &mut ignored {
        file.path = memory::shown(&file.path);
    }
    ignored.dedup();
    generation.notes.extend((!ignored.is_empty()).then_some(Note::Ignored(ignored)));
}

/// Edits that still name the former owner's column compile, and would give it the key of the new owner. So would the
/// host's own files beside the generated ones.
fn former_fields(now: Option<&str>, plan: &Plan, last: &Last, changes: &[Change], host: &Host) -> Option<Note> {
    let former = last.resolved.as_ref()?.owner_field.as_deref().filter(|former| Some(*former) != now)?;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let names_it = |line: &&str| line.split(|c| !is_word(c)).any(|word| word == former);
    let mut places = Vec::new();
    for change in changes {
        let text = match change.action {
            Action::Merged | Action::Conflict => &change.after,
            Action::Edited | Action::Ejected | Action::EjectedOutdated => {
                change.before.as_ref().unwrap_or(&change.after)
            }
            _ => continue,
        };
        let generated = match plan.files.get(&change.path) {
            Some(Planned::Generated(text)) => text.lines().filter(names_it).map(str::trim).collect(),
            _ => Vec::new(),
        };
        let lines = text.lines().enumerate().filter(|(_, line)| names_it(line) && !generated.contains(&line.trim()));
        places.extend(lines.map(|(index, _)| format!("{}:{}", change.path, index + 1)));
    }
    let mut generated = plan.files.iter().filter(|(_, planned)| matches!(planned, Planned::Generated(_)));
    let model = generated.find(|(path, _)| path.file_name() == Some("agent_state.rs"));
    let beside = model.and_then(|(path, _)| host.tree.sources(path.parent()?).ok()).unwrap_or_default();
    let is_own =
        |path: &&Utf8PathBuf| path.extension() == Some("rs") && !changes.iter().any(|change| change.path == **path);
    for path in beside.iter().filter(is_own) {
        let Ok(Some(text)) = host.tree.read(path) else { continue };
        let lines = text.lines().enumerate().filter(|(_, line)| names_it(line));
        places.extend(lines.map(|(index, _)| format!("{path}:{}", index + 1)));
    }
    (!places.is_empty()).then(|| Note::FormerOwner { field: former.to_owned(), places })
}

/// Whether the context was generated and isn't there any more.
fn is_gone(context: &ModulePath, last: &Last, host: &Host) -> bool {
    let is_found = || matches!(modules::find(&host.tree, &host.krate, context.names()), Ok(Found::Module(_)));
    memory::root(&last.files, context).is_some_and(|root| !host.tree.is_file(root)) && !is_found()
}

fn gone(context: &ModulePath, last: &Last) -> Failure {
    let root = memory::root(&last.files, context);
    let (key, root) = (context.key(), root.map_or("its module", |path| path.as_str()));
    let (file, directory) = (memory::OPTIONS_FILE, memory::directory(context));
    let table = if key.contains(':') { format!("[contexts.\"{key}\"]") } else { format!("[contexts.{key}]") };
    Failure::decision(format!("`{key}` was generated, and {root} is gone: it was moved or deleted")).help(format!(
        "restore {root} from version control, generate it again with `sagents gen persistence {}`, or, if it is yours \
         now, remove `{table}` from {file} and the directory {directory}",
        context.rust()
    ))
}

/// A scope that is not there is written again if it was there and somebody asks for it by name, or if the host has no
/// type that could have been meant.
fn refuse_absent_scope(options: &Options, given: &Given, recorded: &Recorded, last: &Last, host: &Host) -> Result<()> {
    let scope = options.scope.rust();
    let command = format!("sagents gen persistence {} --scope", options.context.rust());
    if last.resolved.as_ref().is_some_and(|before| before.scope == scope) {
        if given.scope.is_some() || is_as_created(last, options.wire, host)? {
            return Ok(());
        }
        return Err(Failure::decision(format!("`{scope}` is gone: it was moved, renamed or deleted")).help(format!(
            "restore it, or say which type it is now with `{command} <TYPE>`; `{command} {scope}` writes it again"
        )));
    }
    let generated = recorded.contexts.keys().filter_map(|key| ModulePath::parse_key(key).ok());
    let generated: Vec<_> = generated.chain([options.context.clone()]).collect();
    let types = host.source(&options.context).types(&options.scope, &generated);
    if types.is_empty() {
        return Ok(());
    }
    Err(options::absent_scope(&options.scope, &types))
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
    let place = options::migrations_place(given.migrations.as_deref(), host, last)?;
    let (directory, found) = (&place.directory, &migrations::read(&host.tree, &place, resolved.database)?);
    let krate = &names::crate_name(&host.package);
    chain::read(Scene { tree: &host.tree, krate, context, directory, found }, last).map(drop)
}
