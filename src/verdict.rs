//! Changes as `check` sees them: the state of every file beside what the generator would leave there. `report` words it.

use camino::Utf8PathBuf;
use serde::Serialize;

use crate::change::{Action, Change};
use crate::failure::{Exit, Failure, Result};

/// What `check` found in a context.
#[derive(Debug)]
pub struct Verdict {
    pub context: String,
    pub files: Vec<Finding>,
    /// Why it could not be judged.
    pub error: Option<Failure>,
}

#[derive(Debug)]
pub struct Finding {
    pub path: Utf8PathBuf,
    pub state: State,
    /// What a rerun would do.
    pub action: Action,
    pub exit: Exit,
}

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

impl Verdict {
    pub fn of(context: &str, changes: Result<Vec<Change>>) -> Self {
        let context = context.to_owned();
        let changes = match changes {
            Ok(changes) => changes,
            Err(failure) => return Self { context, files: Vec::new(), error: Some(failure) },
        };
        let (memory, files): (Vec<_>, Vec<_>) = changes.iter().partition(|change| change.memory);
        let mut files: Vec<_> = files.into_iter().map(Finding::of).collect();
        // Every file is as it should be, but that would not be remembered.
        if files.iter().all(|file| file.exit == Exit::Success) {
            let forgotten = memory.into_iter().find(|change| change.writes());
            files.extend(forgotten.map(Finding::of));
        }
        Self { context, files, error: None }
    }

    pub fn problems(&self) -> usize {
        self.exits().filter(|exit| *exit != Exit::Success).count()
    }

    fn exits(&self) -> impl Iterator<Item = Exit> {
        let of_files = self.files.iter().map(|file| file.exit);
        of_files.chain(self.error.iter().map(|error| error.exit))
    }
}

impl Finding {
    fn of(change: &Change) -> Self {
        let (path, action) = (change.path.clone(), change.action);
        let (state, exit) = match action {
            Action::Unchanged => (State::Pristine, Exit::Success),
            Action::Edited => (State::Edited, Exit::Success),
            Action::Ejected | Action::EjectedOutdated => (State::Ejected, Exit::Success),
            Action::Deleted => (State::Deleted, Exit::Success),
            Action::Orphaned => (State::Orphaned, Exit::Success),
            Action::Created if change.migration => (State::Pending, Exit::Pending),
            Action::Created => (State::Missing, Exit::Pending),
            Action::Updated | Action::Merged | Action::Conflict | Action::Replaced => (State::Outdated, Exit::Pending),
            Action::Removed => (State::Orphaned, Exit::Pending),
            Action::Unresolved => (State::Conflict, Exit::Conflict),
            Action::Altered => (State::Altered, Exit::Decision),
            Action::Missing => (State::Missing, Exit::Decision),
            Action::Foreign => (State::Foreign, Exit::Decision),
            Action::Lost => (State::Lost, Exit::Decision),
        };
        Self { path, state, action, exit }
    }

    /// Its user may want to know.
    pub fn is_notable(&self) -> bool {
        self.exit != Exit::Success || !matches!(self.action, Action::Unchanged | Action::Edited | Action::Ejected)
    }
}
