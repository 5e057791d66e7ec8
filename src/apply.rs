//! From changes to files, all of them or none. Every file is first staged beside its target, so that what the file
//! system refuses is known before anything has changed; then each one is put in place by a rename, under a journal
//! that lets the next run end what this one might not. A package in a new directory is staged as a whole.

use std::fs::{self, File};

use anyhow::{Context as _, ensure};
use camino::{Utf8Component, Utf8Path, Utf8PathBuf};

use crate::change::{Action, Change};
use crate::disk;
use crate::failure::{Failure, Result};
use crate::journal::{self, Journal, Writes};

/// Writes the changes below `root`, all of them or none.
pub fn apply(root: &Utf8Path, changes: &[&Change]) -> Result<()> {
    const AGAIN: &str = "make it possible to write there, then run the same command again";
    let writes = writes(root, changes);
    if writes.is_empty() {
        return Ok(());
    }
    let outcome = match journal::package(root) {
        Some((staged, package)) => make_package(root, &staged, &package, &writes).map_err(Stopped::Undone),
        None => write_all(root, &writes),
    };
    outcome.map_err(|stopped| match stopped {
        Stopped::Undone(error) => Failure::from(error.context("nothing was changed")).help(AGAIN),
        Stopped::Halfway(error) => Failure::from(error.context("only a part of the files was changed"))
            .help(format!("{AGAIN}: it starts by ending what this one began")),
    })
}

/// How a run ends that cannot go on.
enum Stopped {
    Undone(anyhow::Error),
    /// It could not be undone either. The journal is still there for the next run.
    Halfway(anyhow::Error),
}

/// Later changes of a file count.
fn writes<'a>(root: &Utf8Path, changes: &[&'a Change]) -> Writes<'a> {
    let mut writes = Writes::new();
    for change in changes.iter().filter(|change| change.writes()) {
        if change.action == Action::Replaced
            && let Some(before) = &change.before
        {
            let kept = disk::kept_name(&root.join(&change.path));
            let kept = kept.strip_prefix(root).map_or_else(|_| kept.clone(), Utf8Path::to_owned);
            writes.insert(kept, Some(before));
        }
        let text = (change.action != Action::Removed).then_some(change.after.as_str());
        writes.insert(change.path.clone(), text);
    }
    writes
}

fn write_all(root: &Utf8Path, writes: &Writes) -> Result<(), Stopped> {
    let (mut journal, befores) = Journal::begin(root, writes).map_err(Stopped::Undone)?;
    let outcome = stage(&journal, writes).and_then(|()| journal.all_staged()).and_then(|()| journal.commit());
    outcome.map_err(|error| match journal.undo(&befores) {
        Ok(()) => Stopped::Undone(error),
        Err(_) => Stopped::Halfway(error),
    })
}

/// Writes every file beside its target, with the permissions of the file that it replaces.
fn stage(journal: &Journal, writes: &Writes) -> anyhow::Result<()> {
    let mut staged = Vec::new();
    for (index, text) in writes.values().enumerate() {
        let Some(text) = text else { continue };
        let place = journal.place(index);
        disk::make_directory(place.target.parent().expect("a file has a directory"))?;
        let permissions = fs::metadata(&place.target).ok().map(|metadata| metadata.permissions());
        let file = disk::write(&place.new, text.as_bytes(), permissions);
        staged.push((file.with_context(|| format!("cannot write {}", place.target))?, place.target));
    }
    sync(&staged)
}

/// What is staged has to be on the disk before the journal records it. All at once, for a disk takes many files in the
/// time of a few.
fn sync(staged: &[(File, Utf8PathBuf)]) -> anyhow::Result<()> {
    std::thread::scope(|threads| {
        let running: Vec<_> = staged.iter().map(|(file, _)| threads.spawn(|| file.sync_all())).collect();
        running.into_iter().zip(staged).try_for_each(|(thread, (_, target))| {
            let synced = thread.join().expect("waiting for a disk does not panic");
            synced.with_context(|| format!("cannot write {target}"))
        })
    })
}

/// Writes a package under another name, then renames it.
fn make_package(root: &Utf8Path, staged: &Utf8Path, package: &Utf8Path, writes: &Writes) -> anyhow::Result<()> {
    let inside = root.strip_prefix(package).expect("the directory to make is the package's, or above it");
    let is_plain = inside.components().all(|part| matches!(part, Utf8Component::Normal(_)));
    ensure!(is_plain, "cannot create {root}: there is no {package}");
    let outcome = disk::make_directory(staged)
        .with_context(|| format!("cannot create {package}"))
        .and_then(|()| write_package(root, &staged.join(inside), writes))
        .and_then(|()| disk::rename(staged, package).with_context(|| format!("cannot create {package}")));
    if outcome.is_err() {
        let _ = disk::remove_all(staged);
    }
    outcome
}

fn write_package(root: &Utf8Path, staged: &Utf8Path, writes: &Writes) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for (path, text) in writes {
        let (target, file) = (root.join(path), staged.join(path));
        let directory = file.parent().expect("a file has a directory");
        let written = disk::make_directory(directory)
            .and_then(|()| Ok(disk::write(&file, text.unwrap_or_default().as_bytes(), None)?));
        files.push((written.with_context(|| format!("cannot write {target}"))?, target));
    }
    sync(&files)
}
