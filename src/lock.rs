//! One run at a time in a workspace, whose packages may share migrations: a second one waits for the first. The lock is
//! the system's own, on the workspace's directory, so nothing is left behind, and a process that died holds nothing.

use std::fs::{File, TryLockError};
use std::io;

use camino::{Utf8Path, Utf8PathBuf};

use crate::host::is_workspace;

/// Held until it is dropped. Where a file system has no locks it holds nothing, and the run goes on.
#[derive(Debug)]
pub struct Lock {
    file: Option<File>,
}

impl Lock {
    /// Takes the lock of the workspace that a package is in, of the package if it is in none, or of the nearest directory
    /// that exists if the package is still to be made. Before it waits for another run it calls `waiting`, with the
    /// directory that the other one holds.
    pub fn take(path: &Utf8Path, mut waiting: impl FnMut(&Utf8Path)) -> Self {
        loop {
            let Some(place) = place(path) else { return Self { file: None } };
            let file = open(&place).and_then(|file| lock(file, || waiting(&place)));
            // Another run may have made the package by now.
            if file.is_err() || self::place(path).as_ref() == Some(&place) {
                return Self { file: file.ok() };
            }
        }
    }
}

impl Drop for Lock {
    /// Unlocked explicitly: closing the file is not enough while another thread starts a program, which has all open
    /// files for a moment.
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = file.unlock();
        }
    }
}

/// The directory of the workspace, or the nearest one that exists.
fn place(path: &Utf8Path) -> Option<Utf8PathBuf> {
    let path = camino::absolute_utf8(path).ok()?;
    let nearest = path.ancestors().find(|directory| directory.is_dir())?.canonicalize_utf8().ok()?;
    let workspace = nearest.ancestors().find(|directory| is_workspace(&directory.join("Cargo.toml")));
    Some(workspace.unwrap_or(&nearest).to_owned())
}

fn lock(file: File, waiting: impl FnOnce()) -> io::Result<File> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            waiting();
            file.lock()?;
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    Ok(file)
}

#[cfg(unix)]
fn open(place: &Utf8Path) -> io::Result<File> {
    File::open(place)
}

/// Elsewhere a directory cannot be opened as a file: a file that is named after it is locked instead.
#[cfg(not(unix))]
fn open(place: &Utf8Path) -> io::Result<File> {
    let name = format!("sagents-{}.lock", crate::digest::of_bytes(place.as_str().as_bytes()));
    File::options().create(true).truncate(false).write(true).open(std::env::temp_dir().join(name))
}
