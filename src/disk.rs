//! The operations that change the disk, one function each. Nothing else in this crate changes a host; so a test can stop
//! the program before any of them, or make any of them fail.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};

use anyhow::Context as _;
use camino::{Utf8Path, Utf8PathBuf};

/// Makes a directory, and those above it.
pub fn make_directory(directory: &Utf8Path) -> anyhow::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        make_directory(parent)?;
    }
    turn().and_then(|()| fs::create_dir(directory)).with_context(|| format!("cannot create {directory}"))
}

/// Writes a file of our own; what an earlier run may have left under its name goes away. The file that comes back is
/// still to be synced: until then it may only be on its way to the disk.
pub fn write(file: &Utf8Path, bytes: &[u8], permissions: Option<Permissions>) -> io::Result<File> {
    if is_there(file) {
        remove_file(file)?;
    }
    turn()?;
    let mut open = OpenOptions::new().write(true).create_new(true).open(file).map_err(|error| error.kind())?;
    turn()?;
    open.write_all(bytes)?;
    if let Some(permissions) = permissions {
        open.set_permissions(permissions)?;
    }
    Ok(open)
}

pub fn rename(from: &Utf8Path, to: &Utf8Path) -> io::Result<()> {
    turn()?;
    fs::rename(from, to)
}

/// Removes a file or a link. One that is not there is fine.
pub fn remove_file(file: &Utf8Path) -> io::Result<()> {
    if !is_there(file) {
        return Ok(());
    }
    turn()?;
    match fs::remove_file(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Removes a directory if it is empty. One that is not, or that cannot be removed, does no harm.
pub fn remove_empty(directory: &Utf8Path) {
    let is_empty = directory.read_dir_utf8().is_ok_and(|mut entries| entries.next().is_none());
    if is_empty && turn().is_ok() {
        let _ = fs::remove_dir(directory);
    }
}

/// Removes a directory of our own with all that is in it.
pub fn remove_all(directory: &Utf8Path) -> io::Result<()> {
    turn()?;
    fs::remove_dir_all(directory)
}

/// Waits until what was made, renamed and removed in a directory is so on the disk; where a system can do that.
pub fn sync_directory(directory: &Utf8Path) {
    if cfg!(unix) {
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
    }
}

/// A free name beside a file for what it was before: `.orig`, or `.orig.1` and so on where an earlier run kept something.
pub fn kept_name(file: &Utf8Path) -> Utf8PathBuf {
    let numbered = (1..).map(|number: u32| Utf8PathBuf::from(format!("{file}.orig.{number}")));
    let mut names = std::iter::once(Utf8PathBuf::from(format!("{file}.orig"))).chain(numbered);
    names.find(|name| !is_there(name)).expect("there are more numbers than files")
}

/// Whether something is there, also a link that leads nowhere.
pub fn is_there(path: &Utf8Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Called before each change. In a debug build with `SAGENTS_STEP` set, the program prints it, and waits for a line: a
/// test can look at the disk, end the program there, or reply `fail`.
fn turn() -> io::Result<()> {
    if !cfg!(debug_assertions) || std::env::var_os("SAGENTS_STEP").is_none() {
        return Ok(());
    }
    eprintln!("about to change the disk");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if answer.trim_end() == "fail" { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
}
