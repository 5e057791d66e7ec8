//! What `check` prints: the problems of every context, and what fixes them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use camino::Utf8Path;
use serde::Serialize;

use super::{BOLD, CYAN, GREEN, RED, YELLOW, pretty};
use crate::change::Action;
use crate::failure::{Exit, Failure};
use crate::verdict::{self, Finding, State, Verdict};

pub fn check(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for verdict in verdicts {
        let Verdict { context, files, error } = verdict;
        let count = |state: State| files.iter().filter(|file| file.state == state).count();
        let _ = match verdict.problems() {
            0 => writeln!(
                text,
                "{BOLD}{context}{BOLD:#}: {GREEN}up to date{GREEN:#} ({} pristine, {} edited, {} ejected)",
                count(State::Pristine),
                count(State::Edited),
                count(State::Ejected)
            ),
            1 => writeln!(text, "{BOLD}{context}{BOLD:#}: {RED}1 problem{RED:#}"),
            problems => writeln!(text, "{BOLD}{context}{BOLD:#}: {RED}{problems} problems{RED:#}"),
        };
        for file in files.iter().filter(|file| file.is_notable()) {
            let style = if file.exit == Exit::Success { YELLOW } else { RED };
            let (word, remark) = (word(file.state), remark(file.action));
            let _ = writeln!(text, "  {style}{word:9}{style:#} {}{remark}", file.path);
        }
        let helps: BTreeSet<_> = files.iter().filter_map(|file| help(file, context)).collect();
        for help in helps {
            let _ = writeln!(text, "  {CYAN}help:{CYAN:#} {help}");
        }
        if let Some(Failure { what, help, exit: _ }) = error {
            let _ = writeln!(text, "  {RED}error:{RED:#} {what}");
            if let Some(help) = help {
                let _ = writeln!(text, "  {CYAN}help:{CYAN:#} {help}");
            }
        }
    }
    text
}

pub fn check_json(verdicts: &[Verdict]) -> String {
    #[derive(Serialize)]
    struct Json<'a> {
        ok: bool,
        exit: u8,
        contexts: Vec<ContextJson<'a>>,
    }
    #[derive(Serialize)]
    struct ContextJson<'a> {
        context: &'a str,
        files: Vec<FileJson<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<ErrorJson<'a>>,
    }
    #[derive(Serialize)]
    struct FileJson<'a> {
        path: &'a Utf8Path,
        state: State,
        #[serde(skip_serializing_if = "Option::is_none")]
        help: Option<String>,
    }
    #[derive(Serialize)]
    struct ErrorJson<'a> {
        what: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        help: Option<&'a str>,
    }
    let contexts = verdicts.iter().map(|Verdict { context, files, error }| {
        let files =
            files.iter().map(|file| FileJson { path: &file.path, state: file.state, help: help(file, context) });
        let error = error.as_ref().map(|Failure { what, help, exit: _ }| ErrorJson { what, help: help.as_deref() });
        ContextJson { context, files: files.collect(), error }
    });
    let exit = verdict::worst(verdicts);
    pretty(&Json { ok: exit == Exit::Success, exit: exit as u8, contexts: contexts.collect() })
}

/// What fixes a file, if it has to be fixed.
fn help(file: &Finding, context: &str) -> Option<String> {
    let path = &file.path;
    match file.state {
        _ if file.exit == Exit::Success => None,
        State::Conflict => Some("edit the lines between `<<<<<<<` and `>>>>>>>`, then run sagents update".to_owned()),
        State::Foreign => {
            Some(format!("move {path} away, or sagents update {context} --force (which keeps it as .orig)"))
        }
        State::Lost => {
            Some(format!("git checkout -- .sagents, or sagents update {context} --force (which keeps .orig files)"))
        }
        _ if file.exit == Exit::Decision => Some(format!("git checkout -- {path}")),
        _ => Some(format!("sagents update {context}")),
    }
}

fn remark(action: Action) -> &'static str {
    match action {
        Action::EjectedOutdated => " (the generator would change it)",
        Action::Conflict => " (and your edits conflict with what is new)",
        Action::Merged => " (your edits stay)",
        Action::Deleted => " (by you)",
        Action::Orphaned => " (it has your edits)",
        _ => "",
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Pristine => "pristine",
        State::Edited => "edited",
        State::Outdated => "outdated",
        State::Conflict => "conflict",
        State::Missing => "missing",
        State::Deleted => "deleted",
        State::Orphaned => "orphaned",
        State::Ejected => "ejected",
        State::Pending => "pending",
        State::Altered => "altered",
        State::Foreign => "foreign",
        State::Lost => "lost",
    }
}
