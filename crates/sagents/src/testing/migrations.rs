//! The SQL migrations of a directory.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The files and their texts, in the order of their numbers.
pub(super) fn read(directory: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| failed(directory, &error))? {
        let entry = entry.map_err(|error| failed(directory, &error))?;
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        let file = if path.is_dir() { path.join("up.sql") } else { path };
        let is_migration = if file.ends_with("up.sql") { file.is_file() } else { is_up(&name) };
        if is_migration {
            found.push(((number(&name), name), file));
        }
    }
    if found.is_empty() {
        return Err(failed(directory, &"there are no SQL migrations"));
    }
    found.sort();
    let read = |(_, file): (_, PathBuf)| {
        let script = fs::read_to_string(&file).map_err(|error| failed(&file, &error))?;
        Ok((file, script))
    };
    found.into_iter().map(read).collect()
}

pub(super) fn failed(path: &Path, reason: &dyn Display) -> Error {
    Error::Invalid(format!("{}: {reason}", path.display()))
}

#[allow(clippy::case_sensitive_file_extension_comparisons, reason = "the tools write lower case")]
fn is_up(name: &str) -> bool {
    name.strip_suffix(".sql").is_some_and(|stem| !stem.ends_with(".down"))
}

/// The number that a name starts with. Diesel writes it with dashes, and refinery with a letter. Names without one are
/// last.
fn number(name: &str) -> u128 {
    let digits = name.split(['_', '.']).next().unwrap_or_default();
    let digits = digits.strip_prefix(['V', 'U']).unwrap_or(digits).replace('-', "");
    digits.parse().unwrap_or(u128::MAX)
}
