//! What a run is about to do, on the disk before it does it: `.sagents/journal.toml`. Whatever stops the run, the next
//! one reads there how to end it: with the old project while files were only staged, with the new one as soon as the
//! first of them may be in place. A package that is made in a new directory needs none of this: it is staged as a
//! whole, and appears by one rename.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, Permissions};
use std::io::ErrorKind;

use anyhow::Context as _;
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::memory::DIRECTORY;
use crate::{digest, disk};

const FILE: &str = ".sagents/journal.toml";
/// The journal before it counts.
const DRAFT: &str = ".sagents/journal.tmp";
/// A package that is being made, beside the directory that it will be.
const PACKAGE: &str = ".sagents-init.tmp";

/// The files that a run changes, with their new texts; those without one are removed.
pub type Writes<'a> = BTreeMap<Utf8PathBuf, Option<&'a str>>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Journal {
    /// The package's directory.
    #[serde(skip)]
    root: Utf8PathBuf,
    phase: Phase,
    /// The directories that this run makes, each behind the one that it is in.
    directories: Vec<Utf8PathBuf>,
    files: Vec<ChangedFile>,
}

/// How the next run ends this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Phase {
    /// Nothing has changed yet: what is staged goes away.
    Staging,
    /// All is staged: whatever is not in place yet is put there.
    Committing,
    /// Something could not be put in place: what was there before comes back.
    Undoing,
}

/// A file that changes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ChangedFile {
    path: Utf8PathBuf,
    becomes: Becomes,
    /// The digest of what is there before, if something is.
    before: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Becomes {
    Written,
    Removed,
}

/// What a file was before a run.
#[derive(Debug)]
pub struct Before {
    bytes: Vec<u8>,
    permissions: Permissions,
}

/// Where a file is, and where it is staged: beside it, so that a rename is all that is left to do.
#[derive(Debug)]
pub struct Place {
    pub target: Utf8PathBuf,
    pub new: Utf8PathBuf,
    old: Utf8PathBuf,
}

/// How an interrupted run was ended.
#[derive(Debug)]
pub enum Recovered {
    Old,
    /// With what was edited since the interruption and is kept as `.orig`.
    New(Vec<Utf8PathBuf>),
}

/// Whether an earlier run was interrupted in a package, so that the next one that writes has to end it first.
pub fn interrupted(root: &Utf8Path) -> bool {
    root.join(FILE).is_file()
}

/// Ends what an earlier run in a directory did not come to end.
pub fn recover(directory: &Utf8Path) -> Result<Option<Recovered>> {
    remove_package(directory);
    let Ok(root) = directory.canonicalize_utf8() else { return Ok(None) };
    let Some(journal) = Journal::read(&root)? else {
        // A run may have been stopped before its journal counted.
        let _ = disk::remove_file(&root.join(DRAFT));
        disk::remove_empty(&root.join(DIRECTORY));
        return Ok(None);
    };
    let recovered = match journal.phase {
        Phase::Staging => journal.unstage().map(|()| Recovered::Old),
        Phase::Undoing => journal.take_back().map(|()| Recovered::Old),
        Phase::Committing => journal.keep_edited().and_then(|edited| journal.commit().map(|()| Recovered::New(edited))),
    };
    recovered.map(Some).map_err(|error| {
        Failure::from(error.context("an earlier run was interrupted, and cannot be brought to its end"))
            .help("make it possible to write there, then run the same command again")
    })
}

/// Where a package that is still to be made is staged, and the directory that it is renamed to.
pub fn package(root: &Utf8Path) -> Option<(Utf8PathBuf, Utf8PathBuf)> {
    let missing = root.ancestors().take_while(|directory| !directory.is_dir()).last()?;
    Some((missing.parent()?.join(PACKAGE), missing.to_owned()))
}

/// Removes a package that was only staged.
fn remove_package(directory: &Utf8Path) {
    let existing = camino::absolute_utf8(directory).unwrap_or_else(|_| directory.to_owned());
    let existing = existing.ancestors().find(|directory| directory.is_dir()).unwrap_or(directory);
    let package = existing.join(PACKAGE);
    if package.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        let _ = disk::remove_all(&package);
    }
}

impl Journal {
    /// The journal of a run that is about to stage its files, and what they are now.
    pub fn begin(root: &Utf8Path, writes: &Writes) -> anyhow::Result<(Self, Vec<Option<Before>>)> {
        let phase = Phase::Staging;
        let mut journal = Self { root: root.to_owned(), phase, directories: Vec::new(), files: Vec::new() };
        let mut befores = Vec::new();
        for (path, text) in writes {
            let becomes = if text.is_some() { Becomes::Written } else { Becomes::Removed };
            journal.files.push(ChangedFile { path: path.clone(), becomes, before: None });
            let before = Before::read(&journal.place(befores.len()).target)?;
            journal.files[befores.len()].before = before.as_ref().map(|before| digest::of_bytes(&before.bytes));
            befores.push(before);
            journal.will_make(path.parent().unwrap_or(Utf8Path::new("")));
        }
        disk::make_directory(&root.join(DIRECTORY))?;
        let written = journal.write();
        if written.is_err() {
            let _ = journal.remove();
        }
        written.map(|()| (journal, befores))
    }

    fn will_make(&mut self, directory: &Utf8Path) {
        let known = self.directories.iter().any(|known| known == directory);
        if known || directory == DIRECTORY || self.root.join(directory).is_dir() {
            return;
        }
        if let Some(parent) = directory.parent() {
            self.will_make(parent);
        }
        self.directories.push(directory.to_owned());
    }

    /// The directories that this run makes.
    fn directories(&self) -> impl Iterator<Item = Utf8PathBuf> {
        self.directories.iter().map(|directory| self.root.join(directory))
    }

    /// A link inside the host keeps being one: what it leads to is written. But a link is removed itself.
    pub fn place(&self, index: usize) -> Place {
        let ChangedFile { path, becomes, before: _ } = &self.files[index];
        let path = self.root.join(path);
        let target = match becomes {
            Becomes::Written => path.canonicalize_utf8().unwrap_or(path),
            Becomes::Removed => path,
        };
        let beside = |ending: &str| target.with_file_name(format!(".sagents-{index}.{ending}"));
        Place { new: beside("tmp"), old: beside("old"), target }
    }

    fn places(&self) -> impl Iterator<Item = (&ChangedFile, Place)> {
        self.files.iter().enumerate().map(|(index, entry)| (entry, self.place(index)))
    }

    /// All is staged: from here on, the end is the new project.
    pub fn all_staged(&mut self) -> anyhow::Result<()> {
        self.enter(Phase::Committing)
    }

    /// Puts in place whatever is not there yet.
    pub fn commit(&self) -> anyhow::Result<()> {
        for (entry, Place { target, new, old }) in self.places() {
            match entry.becomes {
                Becomes::Written if disk::is_there(&new) => {
                    disk::rename(&new, &target).with_context(|| format!("cannot replace {target}"))?;
                }
                Becomes::Written => {}
                Becomes::Removed => disk::remove_file(&target).with_context(|| format!("cannot remove {target}"))?,
            }
            // Left if a run was stopped while it undid.
            let _ = disk::remove_file(&old);
        }
        let removed = self.files.iter().filter(|entry| entry.becomes == Becomes::Removed);
        for directory in removed.flat_map(|entry| entry.path.ancestors().skip(1)) {
            if directory != "" && directory != DIRECTORY {
                disk::remove_empty(&self.root.join(directory));
            }
        }
        self.remove()
    }

    /// Ends a run that failed with the project as it was before.
    pub fn undo(mut self, befores: &[Option<Before>]) -> anyhow::Result<()> {
        if self.phase == Phase::Staging {
            return self.unstage();
        }
        for ((entry, place), before) in self.places().zip(befores) {
            let is_done = match entry.becomes {
                Becomes::Written => !disk::is_there(&place.new),
                Becomes::Removed => !disk::is_there(&place.target),
            };
            if let Some(Before { bytes, permissions }) = before
                && is_done
            {
                disk::make_directory(place.old.parent().expect("a file has a directory"))?;
                disk::write(&place.old, bytes, Some(permissions.clone()))?.sync_all()?;
            }
        }
        self.enter(Phase::Undoing)?;
        self.take_back()
    }

    fn take_back(&self) -> anyhow::Result<()> {
        for (entry, Place { target, new, old }) in self.places() {
            if disk::is_there(&old) {
                disk::rename(&old, &target).with_context(|| format!("cannot replace {target}"))?;
            } else if entry.before.is_none() && !disk::is_there(&new) {
                disk::remove_file(&target).with_context(|| format!("cannot remove {target}"))?;
            }
        }
        self.unstage()
    }

    /// Removes what is staged, and the directories that were made for it.
    fn unstage(&self) -> anyhow::Result<()> {
        for (_, Place { target: _, new, old: _ }) in self.places() {
            disk::remove_file(&new).with_context(|| format!("cannot remove {new}"))?;
        }
        for directory in self.directories().collect::<Vec<_>>().iter().rev() {
            disk::remove_empty(directory);
        }
        self.remove()
    }

    /// Keeps what was edited since the interruption beside what is about to be put in its place.
    fn keep_edited(&self) -> anyhow::Result<Vec<Utf8PathBuf>> {
        let mut edited = Vec::new();
        for (entry, Place { target, new, old: _ }) in self.places() {
            if entry.becomes == Becomes::Written && !disk::is_there(&new) {
                continue;
            }
            let Some(Before { bytes, permissions }) = Before::read(&target)? else { continue };
            if Some(digest::of_bytes(&bytes)) != entry.before {
                let kept = disk::kept_name(&target);
                disk::write(&kept, &bytes, Some(permissions)).with_context(|| format!("cannot write {kept}"))?;
                edited.push(kept.strip_prefix(&self.root).map_or_else(|_| kept.clone(), Utf8Path::to_owned));
            }
        }
        Ok(edited)
    }

    fn read(root: &Utf8Path) -> Result<Option<Self>> {
        let text = match fs::read_to_string(root.join(FILE)) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(damaged(&error)),
        };
        let journal: Self = toml::from_str(&text).map_err(|error| damaged(&error.message()))?;
        let journal = Self { root: root.to_owned(), ..journal };
        journal.check()?;
        Ok(Some(journal))
    }

    /// A journal may come from anywhere, as part of another project: it reaches no further than cargo does.
    fn check(&self) -> Result<()> {
        let packages = self.root.ancestors().filter(|directory| directory.join("Cargo.toml").is_file());
        let boundary = packages.last().unwrap_or(&self.root);
        let files = self.files.iter().map(|entry| &entry.path);
        for path in files.chain(&self.directories) {
            let full = self.root.join(path);
            let real = full.ancestors().find_map(|place| place.canonicalize_utf8().ok());
            if !real.is_some_and(|real| real.starts_with(boundary)) {
                return Err(damaged(&format!("{path} is outside of the package")));
            }
        }
        Ok(())
    }

    fn enter(&mut self, phase: Phase) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.phase, phase);
        self.write().inspect_err(|_| self.phase = before)
    }

    /// Replaces the journal on the disk by this one, in one step.
    fn write(&self) -> anyhow::Result<()> {
        const INTRODUCTION: &str = "\
# A run of sagents is at work, or was interrupted. The next one reads here how to end it: `sagents update`.

";
        let text = format!("{INTRODUCTION}{}", toml::to_string(self).expect("a journal is plain data"));
        let (draft, file) = (self.root.join(DRAFT), self.root.join(FILE));
        let written = disk::write(&draft, text.as_bytes(), None).and_then(|open| open.sync_all());
        written.and_then(|()| disk::rename(&draft, &file)).with_context(|| format!("cannot write {file}"))?;
        disk::sync_directory(&self.root.join(DIRECTORY));
        Ok(())
    }

    /// The run is at its end, and that is on the disk before the journal goes.
    fn remove(&self) -> anyhow::Result<()> {
        let mut directories: Vec<_> =
            self.places().filter_map(|(_, place)| Some(place.target.parent()?.to_owned())).collect();
        directories.sort();
        directories.dedup();
        for directory in &directories {
            disk::sync_directory(directory);
        }
        for file in [DRAFT, FILE] {
            let file = self.root.join(file);
            disk::remove_file(&file).with_context(|| format!("cannot remove {file}"))?;
        }
        disk::remove_empty(&self.root.join(DIRECTORY));
        Ok(())
    }
}

impl Before {
    fn read(target: &Utf8Path) -> anyhow::Result<Option<Self>> {
        if !target.exists() {
            return Ok(None);
        }
        let read = fs::read(target).and_then(|bytes| Ok((bytes, fs::metadata(target)?.permissions())));
        let (bytes, permissions) = read.with_context(|| format!("cannot read {target}"))?;
        Ok(Some(Self { bytes, permissions }))
    }
}

fn damaged(error: &dyn fmt::Display) -> Failure {
    Failure::usage(format!("{FILE} cannot be read: {error}"))
        .help(format!("restore the project from version control, remove {FILE}, then run this again"))
}
