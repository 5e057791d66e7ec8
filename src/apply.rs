//! The only module that writes. Every file is first staged beside its target, so that what the file system refuses is
//! known before anything has changed; then each one is put in place by a rename.

use std::fs;
use std::io::Write as _;

use anyhow::{Context as _, anyhow};
use camino::{Utf8Path, Utf8PathBuf};
use tempfile::NamedTempFile;

use crate::change::{Action, Change};
use crate::failure::{Failure, Result};

/// Writes the changes below `root`, all of them or none.
pub fn apply(root: &Utf8Path, changes: &[Change]) -> Result<()> {
    let mut stage = Stage::default();
    let outcome = stage.write_all(root, changes).and_then(|()| stage.put_in_place());
    if outcome.is_err() {
        stage.undo();
    }
    outcome.map_err(|error| {
        Failure::from(error.context("nothing was changed"))
            .help("make it possible to write there, then run the same command again")
    })
}

/// What has been done so far, so that it can be undone.
#[derive(Default)]
struct Stage {
    directories: Vec<Utf8PathBuf>,
    staged: Vec<Staged>,
    removed: Vec<(Utf8PathBuf, String)>,
    placed: Vec<(Utf8PathBuf, Option<Vec<u8>>)>,
}

struct Staged {
    file: NamedTempFile,
    target: Utf8PathBuf,
    before: Option<Vec<u8>>,
}

impl Stage {
    fn write_all(&mut self, root: &Utf8Path, changes: &[Change]) -> anyhow::Result<()> {
        for change in changes.iter().filter(|change| change.writes()) {
            let target = root.join(&change.path);
            if change.action == Action::Removed {
                self.removed.push((target, change.before.clone().unwrap_or_default()));
                continue;
            }
            if change.action == Action::Replaced
                && let Some(before) = &change.before
            {
                self.write(Utf8PathBuf::from(format!("{target}.orig")), before)?;
            }
            self.write(target, &change.after)?;
        }
        Ok(())
    }

    fn write(&mut self, target: Utf8PathBuf, text: &str) -> anyhow::Result<()> {
        let directory = target.parent().expect("a file has a directory").to_owned();
        self.make_directory(&directory)?;
        // A link inside the host keeps being one.
        let target = target.canonicalize_utf8().unwrap_or(target);
        let before = if target.exists() {
            Some(fs::read(&target).with_context(|| format!("cannot read {target}"))?)
        } else {
            None
        };
        let file = stage(&target, text).with_context(|| format!("cannot write {target}"))?;
        self.staged.push(Staged { file, target, before });
        Ok(())
    }

    fn make_directory(&mut self, directory: &Utf8Path) -> anyhow::Result<()> {
        if directory.is_dir() {
            return Ok(());
        }
        if let Some(parent) = directory.parent() {
            self.make_directory(parent)?;
        }
        fs::create_dir(directory).with_context(|| format!("cannot create {directory}"))?;
        self.directories.push(directory.to_owned());
        Ok(())
    }

    fn put_in_place(&mut self) -> anyhow::Result<()> {
        for Staged { file, target, before } in self.staged.drain(..) {
            file.persist(&target).with_context(|| format!("cannot replace {target}"))?;
            self.placed.push((target, before));
        }
        for (target, before) in self.removed.drain(..) {
            fs::remove_file(&target).with_context(|| format!("cannot remove {target}"))?;
            self.placed.push((target, Some(before.into_bytes())));
        }
        Ok(())
    }

    /// Undoing goes on past what cannot be undone: the failure that led here is the one to report.
    fn undo(&mut self) {
        self.staged.clear();
        for (target, before) in self.placed.drain(..).rev() {
            let _ = match before {
                Some(before) => fs::write(&target, before),
                None => fs::remove_file(&target),
            };
        }
        for directory in self.directories.drain(..).rev() {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// A temporary file beside the target, with the permissions of the file that it replaces.
fn stage(target: &Utf8Path, text: &str) -> anyhow::Result<NamedTempFile> {
    let directory = target.parent().expect("a file has a directory");
    let mut builder = tempfile::Builder::new();
    builder.prefix(".sagents-").suffix(".tmp");
    #[cfg(unix)]
    let builder = {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(fs::Permissions::from_mode(0o666))
    };
    // The error itself would name the temporary file, which means nothing to anybody.
    let mut file = builder.tempfile_in(directory).map_err(|error| anyhow!(error.kind()))?;
    file.write_all(text.as_bytes())?;
    if let Ok(metadata) = fs::metadata(target) {
        file.as_file().set_permissions(metadata.permissions())?;
    }
    file.as_file().sync_all()?;
    Ok(file)
}
