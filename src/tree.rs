//! The files of a host package as the generator sees them: the disk, and over it what `--init` is about to put there.
//! Reads only. Every path is relative to the package's directory and uses `/`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use anyhow::Context as _;
use camino::{Utf8Path, Utf8PathBuf};

use crate::failure::{Failure, Result};

#[derive(Debug)]
pub struct Tree {
    root: Utf8PathBuf,
    overlay: BTreeMap<Utf8PathBuf, String>,
    /// What is about to be written, or removed, for other contexts of the same run.
    pending: BTreeMap<Utf8PathBuf, Option<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Missing,
    File,
    Directory,
}

impl Tree {
    pub fn new(root: impl Into<Utf8PathBuf>) -> Self {
        Self { root: root.into(), overlay: BTreeMap::new(), pending: BTreeMap::new() }
    }

    /// Puts a file over the disk: it reads as if it were already there.
    pub fn overlay(&mut self, path: impl Into<Utf8PathBuf>, text: impl Into<String>) {
        self.overlay.insert(path.into(), text.into());
    }

    /// From now on a file reads as if it had been written, or removed, on the disk.
    pub fn pend(&mut self, path: impl Into<Utf8PathBuf>, text: Option<String>) {
        self.pending.insert(path.into(), text);
    }

    pub fn root(&self) -> &Utf8Path {
        &self.root
    }

    /// The text of a file, or nothing if there is none. A file that is no UTF-8 text is an error.
    pub fn read(&self, path: &Utf8Path) -> Result<Option<String>> {
        if let Some(text) = self.overlay.get(path) {
            return Ok(Some(text.clone()));
        }
        self.read_disk(path)
    }

    /// As [`Tree::read`], without the overlay.
    pub fn read_disk(&self, path: &Utf8Path) -> Result<Option<String>> {
        if let Some(pending) = self.pending.get(path) {
            return Ok(pending.clone());
        }
        match std::fs::read_to_string(self.root.join(path)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(unreadable(path, error)),
        }
    }

    pub fn kind(&self, path: &Utf8Path) -> FileKind {
        let full = self.root.join(path);
        let is_file = || match self.pending.get(path) {
            Some(pending) => pending.is_some(),
            None => full.is_file(),
        };
        if self.overlay.contains_key(path) || is_file() {
            FileKind::File
        } else if full.is_dir() || self.pending_in(path).next().is_some() {
            FileKind::Directory
        } else {
            FileKind::Missing
        }
    }

    pub fn is_file(&self, path: &Utf8Path) -> bool {
        self.kind(path) == FileKind::File
    }

    /// The names in a directory, sorted; none if there is no such directory. Names that are not UTF-8 are not listed: no
    /// module and no migration has one.
    pub fn list(&self, path: &Utf8Path) -> Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.root.join(path)) {
            Ok(entries) => Some(entries),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
            Err(error) => return Err(unreadable(path, error)),
        };
        let mut names: BTreeSet<_> = self.pending_in(path).map(str::to_owned).collect();
        for entry in entries.into_iter().flatten() {
            let entry = entry.with_context(|| format!("cannot read {path}"))?;
            names.extend(entry.file_name().into_string());
        }
        names.retain(|name| self.pending.get(&path.join(name)) != Some(&None));
        Ok(names.into_iter().collect())
    }

    /// The names of what is about to be written in a directory.
    fn pending_in(&self, directory: &Utf8Path) -> impl Iterator<Item = &str> {
        let pending = self.pending.iter().filter(|(_, text)| text.is_some()).map(|(path, _)| path);
        let written = pending.chain(self.overlay.keys());
        written.filter_map(move |path| Some(path.strip_prefix(directory).ok()?.components().next()?.as_str()))
    }

    /// The files beside and below a crate's root, in order. A directory that several links lead to is read once; hidden
    /// ones are passed over, and so is what cargo and a host keep beside a crate root in the package's own directory.
    pub fn sources(&self, directory: &Utf8Path) -> Result<Vec<Utf8PathBuf>> {
        const NO_MODULES: &[&str] = &["benches", "examples", "migrations", "target", "tests"];
        let mut files = Vec::new();
        let mut seen = BTreeSet::new();
        let mut open = vec![directory.to_owned()];
        while let Some(here) = open.pop() {
            let full = self.root.join(&here);
            if !seen.insert(full.canonicalize_utf8().unwrap_or(full)) {
                continue;
            }
            for name in self.list(&here)? {
                let path = here.join(&name);
                let is_foreign = here.as_str().is_empty() && NO_MODULES.contains(&name.as_str());
                match self.kind(&path) {
                    FileKind::File => files.push(path),
                    FileKind::Directory if !name.starts_with('.') && !is_foreign => open.push(path),
                    FileKind::Directory | FileKind::Missing => {}
                }
            }
        }
        files.sort();
        Ok(files)
    }
}

fn unreadable(path: &Utf8Path, error: std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::IsADirectory => {
            Failure::usage(format!("{path} is a directory, where a file has to be")).help(format!("move {path} away"))
        }
        ErrorKind::InvalidData => {
            Failure::usage(format!("{path} is not a text in UTF-8")).help(format!("save {path} as UTF-8"))
        }
        _ => Failure::from(anyhow::Error::from(error).context(format!("cannot read {path}")))
            .help(format!("make {path} readable, then run this again")),
    }
}
