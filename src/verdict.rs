//! Changes as `check` sees them: the state of every file beside what the generator would leave there, and what mends it.

use std::collections::BTreeSet;

use camino::Utf8PathBuf;
use serde::Serialize;

use crate::change::{Action, Change};
use crate::failure::{Exit, Failure};

/// What `check` says of a context.
#[derive(Debug, Serialize)]
pub struct Verdict {
    pub context: String,
    pub files: Vec<Finding>,
    /// Why it could not be judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

#[derive(Debug, Serialize)]
pub struct Finding {
    pub path: Utf8PathBuf,
    pub state: State,
    #[serde(skip)]
    pub remark: &'static str,
    /// What mends it, if it has to be mended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
    #[serde(skip)]
    pub exit: Exit,
}

#[derive(Debug, Serialize)]
pub struct Problem {
    pub what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    #[serde(skip)]
    pub exit: Exit,
}

/// How a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it was generated.
    Pristine,
    /// With edits, and nothing new for it.
    Edited,
    /// There is something new for it.
    Outdated,
    /// With the markers of a merge in it.
    Conflict,
    /// Not there, though it should be.
    Missing,
    /// Not there, because the user deleted it.
    Deleted,
    /// Not generated any more.
    Orphaned,
    /// The host took it over.
    Ejected,
    /// A migration to come.
    Pending,
    /// A migration that is not what was emitted.
    Altered,
    /// In the way, and never generated.
    Foreign,
    /// What it was generated from is lost.
    Lost,
}

/// What `check` ends with: the worst of all that it found.
pub fn worst(verdicts: &[Verdict]) -> Exit {
    verdicts.iter().flat_map(Verdict::exits).max_by_key(|exit| *exit as u8).unwrap_or(Exit::Success)
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            Self::Pristine => "pristine",
            Self::Edited => "edited",
            Self::Outdated => "outdated",
            Self::Conflict => "conflict",
            Self::Missing => "missing",
            Self::Deleted => "deleted",
            Self::Orphaned => "orphaned",
            Self::Ejected => "ejected",
            Self::Pending => "pending",
            Self::Altered => "altered",
            Self::Foreign => "foreign",
            Self::Lost => "lost",
        }
    }
}

impl Verdict {
    pub fn of(context: &str, changes: Result<&[Change], &Failure>) -> Self {
        let context = context.to_owned();
        let changes = match changes {
            Ok(changes) => changes,
            Err(Failure { exit, what, help }) => {
                let error = Some(Problem { what: what.clone(), help: help.clone(), exit: *exit });
                return Self { context, files: Vec::new(), error };
            }
        };
        let (memory, files): (Vec<_>, Vec<_>) = changes.iter().partition(|change| change.memory);
        let mut files: Vec<_> = files.into_iter().map(|change| Finding::of(change, &context)).collect();
        // Every file is as it should be, but that would not be remembered.
        if files.iter().all(|file| file.exit == Exit::Success) {
            let forgotten = memory.into_iter().find(|change| change.writes());
            files.extend(forgotten.map(|change| Finding::of(change, &context)));
        }
        Self { context, files, error: None }
    }

    pub fn problems(&self) -> usize {
        self.exits().filter(|exit| *exit != Exit::Success).count()
    }

    /// What mends the problems, each said once.
    pub fn mends(&self) -> BTreeSet<&str> {
        self.files.iter().filter_map(|file| file.mend.as_deref()).collect()
    }

    fn exits(&self) -> impl Iterator<Item = Exit> {
        let of_files = self.files.iter().map(|file| file.exit);
        of_files.chain(self.error.iter().map(|error| error.exit))
    }
}

impl Finding {
    fn of(change: &Change, context: &str) -> Self {
        let path = change.path.clone();
        let is_migration = path.extension() == Some("sql");
        let update = || Some(format!("sagents update {context}"));
        let (state, exit, mend) = match change.action {
            Action::Unchanged => (State::Pristine, Exit::Success, None),
            Action::Edited => (State::Edited, Exit::Success, None),
            Action::Ejected | Action::EjectedOutdated => (State::Ejected, Exit::Success, None),
            Action::Deleted => (State::Deleted, Exit::Success, None),
            Action::Orphaned => (State::Orphaned, Exit::Success, None),
            Action::Created if is_migration => (State::Pending, Exit::Pending, update()),
            Action::Created => (State::Missing, Exit::Pending, update()),
            Action::Updated | Action::Merged | Action::Conflict | Action::Replaced => {
                (State::Outdated, Exit::Pending, update())
            }
            Action::Removed => (State::Orphaned, Exit::Pending, update()),
            Action::Unresolved => {
                let mend = "edit the lines between `<<<<<<<` and `>>>>>>>`, then run sagents update";
                (State::Conflict, Exit::Conflict, Some(mend.to_owned()))
            }
            Action::Altered | Action::Missing => {
                let state = if change.action == Action::Altered { State::Altered } else { State::Missing };
                (state, Exit::Decision, Some(format!("git checkout -- {path}")))
            }
            Action::Foreign => {
                let mend = format!("move {path} away, or sagents update {context} --force (which keeps it as .orig)");
                (State::Foreign, Exit::Decision, Some(mend))
            }
            Action::Lost => {
                let mend =
                    format!("git checkout -- .sagents, or sagents update {context} --force (which keeps .orig files)");
                (State::Lost, Exit::Decision, Some(mend))
            }
        };
        let remark = match change.action {
            Action::EjectedOutdated => " (the generator would change it)",
            Action::Conflict => " (and your edits conflict with what is new)",
            Action::Merged => " (your edits stay)",
            Action::Deleted => " (by you)",
            Action::Orphaned => " (it has your edits)",
            _ => "",
        };
        Self { path, state, remark, mend, exit }
    }

    /// Somebody may want to know.
    pub fn is_notable(&self) -> bool {
        let quiet = matches!(self.state, State::Pristine | State::Edited)
            || (self.state == State::Ejected && self.remark.is_empty());
        self.exit != Exit::Success || !quiet
    }
}
