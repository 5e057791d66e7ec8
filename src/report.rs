//! The only module that words what a run reports. Its functions return text with colours; the printer takes the colours
//! away where they do not belong. Failures are worded where they are found.

mod check;
mod words;

pub use self::check::{check, check_json};

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;
use similar::TextDiff;

use self::words::Command;
use crate::change::{Action, Change};
use crate::database::Dialect as _;
use crate::failure::Failure;
use crate::generation::Generation;
use crate::journal::Recovered;
use crate::note::Note;
use crate::options::{Dropped, Resolved, Web};

const BOLD: Style = Style::new().bold();
const GREEN: Style = AnsiColor::Green.on_default();
const YELLOW: Style = AnsiColor::Yellow.on_default();
const RED: Style = AnsiColor::Red.on_default();
const CYAN: Style = AnsiColor::Cyan.on_default();

/// What a run did, or would do.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    pub generation: &'a Generation,
    pub dry_run: bool,
}

/// A note beside a report.
pub fn reminder(note: &Note) -> String {
    format!("{YELLOW}Note:{YELLOW:#} {}\n", words::note(note))
}

impl Report<'_> {
    pub fn text(&self) -> String {
        let Generation { resolved: _, database_shown_by: _, dropped, notes, unwired, next, changes, read_first } =
            self.generation;
        let mut text = self.headline();
        if changes.iter().any(shows) {
            text.push('\n');
        }
        text += &if read_first.is_empty() { files(changes) } else { new_files(changes) };
        if !dropped.is_empty() {
            text.push('\n');
        }
        for Dropped { option, value, described } in dropped {
            let _ = writeln!(text, "{YELLOW}dropped:{YELLOW:#} {option} = {value}, it described {described}");
        }
        for (path, lines) in unwired {
            let _ = writeln!(text, "\n{BOLD}Add to {path}:{BOLD:#}");
            for line in lines {
                let _ = writeln!(text, "  {line}");
            }
        }
        for note in notes {
            let _ = writeln!(text, "\n{YELLOW}Note:{YELLOW:#} {}", words::note(note));
        }
        if !next.is_empty() && !self.dry_run {
            let _ = writeln!(text, "\n{BOLD}Next:{BOLD:#}");
            let next: Vec<_> = next.iter().map(words::step).collect();
            let width = next.iter().map(|step| step.command.len()).max().unwrap_or_default();
            for Command { command, why } in next {
                let _ = writeln!(text, "  {CYAN}{command:width$}{CYAN:#}  # {why}");
            }
        }
        if let Some(Written { files, lines, read_first }) = Written::of(changes, read_first) {
            let verb = if self.dry_run { "Would write" } else { "Wrote" };
            let _ =
                writeln!(text, "\n{verb} {files} files with {lines} lines. Read first: {}", words::list(read_first));
        }
        text
    }

    /// With the failure that the run ended with, if files were written all the same.
    pub fn json(&self, failure: Option<&Failure>) -> String {
        pretty(&self.value(failure))
    }

    pub fn value(&self, failure: Option<&Failure>) -> serde_json::Value {
        #[derive(Serialize)]
        struct File<'a> {
            path: &'a str,
            action: Action,
            lines: usize,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            added: &'a [String],
        }
        impl<'a> File<'a> {
            fn of(change: &'a Change) -> Self {
                let Change { path, action, before: _, after, added, memory: _, migration: _ } = change;
                Self { path: path.as_str(), action: *action, lines: after.lines().count(), added }
            }
        }
        #[derive(Serialize)]
        struct Unwired<'a> {
            path: &'a str,
            lines: &'a [String],
        }
        #[derive(Serialize)]
        struct Json<'a> {
            context: &'a str,
            changed: bool,
            dry_run: bool,
            options: &'a Resolved,
            #[serde(skip_serializing_if = "Option::is_none")]
            database_shown_by: Option<&'a str>,
            files: Vec<File<'a>>,
            unwired: Vec<Unwired<'a>>,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            dropped: &'a [Dropped],
            notes: Vec<String>,
            next: Vec<Command>,
            #[serde(skip_serializing_if = "Option::is_none")]
            written: Option<Written<'a>>,
            #[serde(flatten)]
            failure: Option<FailureJson<'a>>,
        }
        let Generation { resolved, database_shown_by, dropped, notes, unwired, next, changes, read_first } =
            self.generation;
        let json = Json {
            context: &resolved.context,
            changed: changes.iter().any(Change::writes),
            dry_run: self.dry_run,
            options: resolved,
            database_shown_by: database_shown_by.as_deref(),
            files: changes.iter().map(File::of).collect(),
            unwired: unwired.iter().map(|(path, lines)| Unwired { path: path.as_str(), lines }).collect(),
            dropped,
            notes: notes.iter().map(words::note).collect(),
            next: next.iter().map(words::step).collect(),
            written: Written::of(changes, read_first),
            failure: failure.map(FailureJson::of),
        };
        serde_json::to_value(json).expect("a report is plain data")
    }

    fn headline(&self) -> String {
        let Generation { resolved, database_shown_by, changes, .. } = self.generation;
        let Resolved { context, owner_type, owner_field, owner_id, table_prefix, database, .. } = resolved;
        let Resolved { group_type, group_table, group_field, .. } = resolved;
        let verb = match (self.dry_run, changes.iter().any(Change::writes)) {
            _ if changes.iter().any(Change::is_undecided) => "Needs a decision:",
            _ if changes.iter().any(|change| change.action == Action::Unresolved) => "Has conflicts:",
            (_, false) => "Up to date:",
            (true, true) => "Would generate",
            (false, true) => "Generated",
        };
        let owner = match (owner_field, owner_id) {
            (Some(field), Some(id)) => format!("owner {owner_type} ({field}, {id})"),
            _ => "no owner".to_owned(),
        };
        let group = match (group_type, group_table, group_field) {
            (Some(group), Some(table), Some(field)) => format!(", group {group} ({table}, {field})"),
            _ => String::new(),
        };
        let shown_by = database_shown_by.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
        let database = database.name();
        format!("{BOLD}{verb} {context}{BOLD:#}: {database}{shown_by}, {owner}{group}, tables {table_prefix}*\n")
    }
}

/// A line per file, and the lines that were added to the host's own ones.
fn files(changes: &[Change]) -> String {
    let mut text = String::new();
    for change in changes.iter().filter(|change| shows(change)) {
        let _ = writeln!(text, "{}", file(change));
        for line in &change.added {
            let _ = writeln!(text, "            {CYAN}+ {line}{CYAN:#}");
        }
    }
    text
}

/// The files of a first run with their numbers of lines. Short ones share a line, so that all of them fit on a screen.
fn new_files(changes: &[Change]) -> String {
    const SHORT: usize = 15;
    let is_short = |change: &&Change| change.action == Action::Created && new_lines(change) < SHORT;
    let (short, long): (Vec<_>, Vec<_>) = changes.iter().filter(|change| shows(change)).partition(is_short);
    let mut text = String::new();
    for change in long {
        let lines = new_lines(change);
        let size = match change.added.as_slice() {
            _ if !change.writes() => String::new(),
            [] => format!(" ({lines} lines)"),
            added => {
                // Of a dependency, the name is enough.
                let added: Vec<_> =
                    added.iter().map(|line| line.split(" = ").next().unwrap_or(line).trim_end_matches(';')).collect();
                format!(" (+{lines} {}: {})", if lines == 1 { "line" } else { "lines" }, added.join(", "))
            }
        };
        let _ = writeln!(text, "{}{size}", file(change));
    }
    let short: Vec<_> = short.iter().map(|change| format!("{} ({})", change.path, new_lines(change))).collect();
    if !short.is_empty() {
        let (style, word) = word(Action::Created);
        let _ = writeln!(text, "  {style}{word:9}{style:#} {}", short.join(", "));
    }
    text
}

fn file(change: &Change) -> String {
    let (style, word) = word(change.action);
    format!("  {style}{word:9}{style:#} {}{}", change.path, remark(change.action))
}

/// How many lines a change adds to a file.
fn new_lines(change: &Change) -> usize {
    let before = change.before.as_deref().map_or(0, |text| text.lines().count());
    change.after.lines().count().saturating_sub(before)
}

/// What a first run wrote, its own memory aside.
#[derive(Serialize)]
struct Written<'a> {
    files: usize,
    lines: usize,
    read_first: &'a [Utf8PathBuf],
}

impl<'a> Written<'a> {
    /// Nothing if it is not a first run, or nothing is written.
    fn of(changes: &[Change], read_first: &'a [Utf8PathBuf]) -> Option<Self> {
        let written: Vec<_> = changes.iter().filter(|change| !change.memory && change.writes()).collect();
        let lines = written.iter().map(|change| new_lines(change));
        let is_shown = !read_first.is_empty() && !written.is_empty();
        is_shown.then(|| Self { files: written.len(), lines: lines.sum(), read_first })
    }
}

/// The whole difference, as `patch` reads it. The generator's memory is left out.
pub fn diff<'a>(changes: impl IntoIterator<Item = &'a Change>) -> String {
    let mut text = String::new();
    for change in changes.into_iter().filter(|change| !change.memory && change.writes()) {
        let before = change.before.as_deref().unwrap_or_default();
        let from = if change.before.is_some() { format!("a/{}", change.path) } else { "/dev/null".to_owned() };
        let difference = TextDiff::from_lines(before, &change.after);
        let to = if change.action == Action::Removed { "/dev/null".to_owned() } else { format!("b/{}", change.path) };
        let difference = difference.unified_diff().context_radius(3).header(&from, &to).to_string();
        for line in difference.split_inclusive('\n') {
            let style = match line.as_bytes().first() {
                Some(b'+') => GREEN,
                Some(b'-') => RED,
                Some(b'@') => CYAN,
                _ => Style::new(),
            };
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
            let _ = write!(text, "{style}{line}{style:#}{end}");
        }
    }
    text
}

/// The contexts of a host with their options.
pub fn list(contexts: &[Resolved]) -> String {
    if contexts.is_empty() {
        return "No context has been generated here.\nMake one with: sagents gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope\n"
            .to_owned();
    }
    let mut text = String::new();
    for resolved in contexts {
        let Resolved {
            context,
            scope,
            owner_type,
            owner_field,
            owner_id,
            owner_table,
            owner_key,
            owner_module: _,
            scope_owner,
            group_type,
            group_field,
            group_id,
            group_table,
            group_member,
            scope_group,
            table_prefix,
            database,
            migrations,
            web,
            tests,
            backfill,
        } = resolved;
        let _ = writeln!(text, "{BOLD}{context}{BOLD:#}");
        let in_brackets = |column: &Option<String>| column.as_deref().map(|column| format!(" ({column})"));
        let key = in_brackets(owner_key).unwrap_or_default();
        let member = in_brackets(group_member).unwrap_or_default();
        let rows = [
            ("scope", Some(scope.clone())),
            ("owner type", Some(owner_type.clone())),
            ("owner field", owner_field.clone()),
            ("owner id", owner_id.clone()),
            ("owner table", owner_table.as_ref().map(|table| format!("{table}{key}"))),
            ("scope owner", scope_owner.clone()),
            ("group type", group_type.clone()),
            ("group field", group_field.clone()),
            ("group id", group_id.clone()),
            ("group table", group_table.as_ref().map(|table| format!("{table}{member}"))),
            ("scope group", scope_group.clone()),
            ("table prefix", Some(table_prefix.clone())),
            ("database", Some(database.name().to_owned())),
            ("migrations", Some(migrations.to_string())),
            ("web", (*web == Web::Axum).then(|| "axum".to_owned())),
            ("tests", Some(if *tests { "yes" } else { "no" }.to_owned())),
            ("backfill", backfill.clone()),
        ];
        for (name, value) in rows {
            if let Some(value) = value {
                let _ = writeln!(text, "  {name:13} {value}");
            }
        }
    }
    text
}

pub fn list_json(contexts: &[Resolved]) -> String {
    pretty(&contexts)
}

pub fn failure(failure: &Failure) -> String {
    let Failure { exit: _, what, help } = failure;
    let mut text = format!("{RED}error:{RED:#} {what}\n");
    if let Some(help) = help {
        let _ = writeln!(text, "{CYAN}help:{CYAN:#} {help}");
    }
    text
}

pub fn failure_json(failure: &Failure) -> String {
    pretty(&FailureJson::of(failure))
}

#[derive(Serialize)]
struct FailureJson<'a> {
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'a str>,
    exit: u8,
}

impl<'a> FailureJson<'a> {
    fn of(failure: &'a Failure) -> Self {
        let Failure { exit, what, help } = failure;
        Self { error: what, help: help.as_deref(), exit: *exit as u8 }
    }
}

/// Before a run waits for another one.
pub fn waiting(directory: &Utf8Path) -> String {
    format!("waiting for another run of sagents in {directory}\n")
}

pub fn recovered(recovered: &Recovered) -> String {
    match recovered {
        Recovered::Old => {
            "an earlier run was interrupted before it changed anything: what it left is removed\n".to_owned()
        }
        Recovered::New(edited) => {
            let edited = edited.iter().map(|kept| format!("edited since then, and kept: {kept}\n"));
            format!("an earlier run was interrupted: what it had begun is now finished\n{}", edited.collect::<String>())
        }
    }
}

/// The question that is asked on a terminal when `--scope` is missing.
pub fn ask_scope(default: &str) -> String {
    format!("{BOLD}Scope type, which holds who is asking{BOLD:#} [{default}]: ")
}

/// A file that needs no attention is not shown.
fn shows(change: &Change) -> bool {
    !change.memory && !matches!(change.action, Action::Unchanged | Action::Edited | Action::Ejected)
}

fn remark(action: Action) -> &'static str {
    match action {
        Action::Deleted => " (by you; it stays so)",
        Action::Conflict => " (look for `<<<<<<<`)",
        Action::EjectedOutdated => " (it would have changed)",
        Action::Orphaned => " (not generated any more; it has your edits)",
        Action::Altered => " (since it was emitted; where it ran, it does not run again)",
        Action::Missing => " (it was emitted; restore it from version control)",
        _ => "",
    }
}

/// Several reports as one document.
pub fn values(reports: &[serde_json::Value]) -> String {
    pretty(&reports)
}

fn word(action: Action) -> (Style, &'static str) {
    match action {
        Action::Created => (GREEN, "created"),
        Action::Updated => (GREEN, "updated"),
        Action::Unchanged => (Style::new(), "unchanged"),
        Action::Deleted => (YELLOW, "deleted"),
        Action::Merged => (GREEN, "merged"),
        Action::Conflict | Action::Unresolved => (RED, "conflict"),
        Action::Edited => (Style::new(), "edited"),
        Action::Ejected | Action::EjectedOutdated => (YELLOW, "ejected"),
        Action::Removed => (YELLOW, "removed"),
        Action::Orphaned => (YELLOW, "orphaned"),
        Action::Foreign => (RED, "in the way"),
        Action::Lost => (RED, "lost"),
        Action::Replaced => (YELLOW, "replaced"),
        Action::Altered => (RED, "altered"),
        Action::Missing => (RED, "missing"),
    }
}

fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("a report is plain data") + "\n"
}
