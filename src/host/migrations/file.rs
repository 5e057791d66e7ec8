//! The files of migrations, as each tool names and orders them.

use camino::{Utf8Path, Utf8PathBuf};
use chrono::{DateTime, Utc};

use crate::failure::{Failure, Result};
use crate::tree::Tree;

/// What runs the migrations of a host, which decides their form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tool {
    /// `20240101000000_name.sql`, or `….up.sql` and `….down.sql`
    Sqlx,
    /// `2024-01-01-000000_name/up.sql` and `down.sql`
    Diesel,
    /// `V1__name.sql`
    Refinery,
    /// `m20240101_000000_name.rs`, which the `Migrator` in this file lists
    SeaOrm { migrator: Utf8PathBuf },
}

/// A file of a migration, below the directory of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MigrationFile {
    pub(super) name: String,
    pub(super) version: Version,
    /// As it is written.
    pub(super) written: String,
    pub(super) direction: Direction,
}

/// Those of one directory are all of one kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    Number(i64),
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    /// A migration that cannot be reverted, or that has both directions in one file.
    Only,
    Down,
    Up,
}

/// Even a stamp of `YYYYMMDDHHMM` is larger than this.
const SMALLEST_TIMESTAMP: i64 = 100_000_000_000;

impl Tool {
    /// The form of what is in a directory; nothing if no migration is there.
    pub(super) fn seen(tree: &Tree, directory: &Utf8Path) -> Result<Option<Self>> {
        for tool in [Self::Diesel, Self::Refinery, Self::Sqlx] {
            if !tool.files(tree, directory)?.is_empty() {
                return Ok(Some(tool));
            }
        }
        Ok(None)
    }

    /// The form that a script has.
    pub fn of_script(file: &Utf8Path) -> Option<Self> {
        let name = file.file_name()?;
        match name {
            "up.sql" | "down.sql" => Some(Self::Diesel),
            _ if of_refinery(Utf8Path::new(name)).is_some() => Some(Self::Refinery),
            _ => of_sqlx(name).map(|_| Self::Sqlx),
        }
    }

    /// The migrations in a directory, in the order in which they run. Rust's are ordered by their `Migrator`.
    pub(super) fn files(&self, tree: &Tree, directory: &Utf8Path) -> Result<Vec<MigrationFile>> {
        let mut files: Vec<_> = match self {
            Self::Sqlx => tree.list(directory)?.iter().filter_map(|name| of_sqlx(name)).collect(),
            Self::Diesel => tree.list(directory)?.iter().flat_map(|name| of_diesel(tree, directory, name)).collect(),
            Self::Refinery => {
                let files = tree.sources(directory)?;
                let names = files.iter().filter_map(|file| file.strip_prefix(directory).ok());
                names.filter_map(of_refinery).collect()
            }
            Self::SeaOrm { .. } => tree.list(directory)?.iter().filter_map(|name| of_sea_orm(name)).collect(),
        };
        files.retain(|file| tree.is_file(&directory.join(&file.name)));
        files.sort_by(|one, other| (&one.version, one.direction).cmp(&(&other.version, other.direction)));
        Ok(files)
    }

    /// Where the scripts of a new migration go that comes after all others: the way up, and the way down if the host
    /// has such. `newest` are the files of the newest one that is there.
    pub(super) fn next(&self, newest: &[&MigrationFile], now: DateTime<Utc>, name: &str) -> Result<Next> {
        let last = newest.last().copied();
        let has_down = newest.iter().any(|file| file.direction == Direction::Down);
        Ok(match self {
            Self::Sqlx => {
                let stem = format!("{}_{name}", number(last, now, None)?);
                if newest.is_empty() || last.is_some_and(|last| last.direction == Direction::Up) {
                    Next::scripts(format!("{stem}.up.sql"), Some(format!("{stem}.down.sql")))
                } else {
                    Next::scripts(format!("{stem}.sql"), None)
                }
            }
            Self::Diesel => {
                let stem = format!("{}_{name}", dashed(last, now)?);
                let down = newest.is_empty() || has_down;
                Next::scripts(format!("{stem}/up.sql"), down.then(|| format!("{stem}/down.sql")))
            }
            Self::Refinery => Next::scripts(format!("V{}__{name}.sql", number(last, now, Some(1))?), None),
            Self::SeaOrm { .. } => {
                Next { up: format!("m{}_{name}.rs", now.format("%Y%m%d_%H%M%S")), down: None, is_rust: true }
            }
        })
    }

    /// Whether two migrations of one version are in each other's way.
    pub(super) fn has_versions(&self) -> bool {
        !matches!(self, Self::SeaOrm { .. })
    }
}

/// The files of a new migration.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) up: String,
    pub(super) down: Option<String>,
    /// One file in Rust has both directions.
    pub(super) is_rust: bool,
}

impl Next {
    fn scripts(up: String, down: Option<String>) -> Self {
        Self { up, down, is_rust: false }
    }
}

/// A file that sqlx takes for a migration: `<VERSION>_<DESCRIPTION>.sql`.
pub(super) fn of_sqlx(name: &str) -> Option<MigrationFile> {
    let (version, description) = name.split_once('_')?;
    let stem = description.strip_suffix(".sql")?;
    let direction = match stem.rsplit_once('.') {
        Some((_, "up")) => Direction::Up,
        Some((_, "down")) => Direction::Down,
        _ => Direction::Only,
    };
    numbered(name, version, direction)
}

/// A directory that diesel takes for a migration: the version is what stands before the first `_`, without dashes.
fn of_diesel(tree: &Tree, directory: &Utf8Path, name: &str) -> Vec<MigrationFile> {
    let written = name.split('_').next().unwrap_or_default();
    let is_version = written.starts_with(|c: char| c.is_ascii_digit());
    let has = |file: &str| tree.is_file(&directory.join(name).join(file));
    if !is_version || !has("up.sql") {
        return Vec::new();
    }
    let script = |file: &str, direction| MigrationFile {
        name: format!("{name}/{file}"),
        version: Version::Text(written.replace('-', "")),
        written: written.to_owned(),
        direction,
    };
    let down = has("down.sql").then(|| script("down.sql", Direction::Down));
    down.into_iter().chain([script("up.sql", Direction::Up)]).collect()
}

/// `V1__name.sql`, `U1__name.rs`, also below directories.
fn of_refinery(path: &Utf8Path) -> Option<MigrationFile> {
    let (version, rest) = path.file_name()?.strip_prefix(['V', 'U'])?.split_once("__")?;
    let (_, extension) = rest.rsplit_once('.')?;
    ["rs", "sql"].contains(&extension).then(|| numbered(path.as_str(), version, Direction::Only))?
}

fn of_sea_orm(name: &str) -> Option<MigrationFile> {
    let stem = name.strip_suffix(".rs")?;
    let is_migration = stem.strip_prefix('m')?.starts_with(|c: char| c.is_ascii_digit());
    is_migration.then(|| MigrationFile {
        name: name.to_owned(),
        version: Version::Text(stem.to_owned()),
        written: stem.to_owned(),
        direction: Direction::Only,
    })
}

fn numbered(name: &str, version: &str, direction: Direction) -> Option<MigrationFile> {
    if !version.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = Version::Number(version.parse().ok()?);
    Some(MigrationFile { name: name.to_owned(), version: number, written: version.to_owned(), direction })
}

/// A number that is larger than the last one, in its style. `first` is for the first one, which is a timestamp else.
fn number(last: Option<&MigrationFile>, now: DateTime<Utc>, first: Option<i64>) -> Result<String> {
    let newest = match last {
        Some(MigrationFile { version: Version::Number(number), .. }) => *number,
        _ => 0,
    };
    let Some(following) = newest.checked_add(1) else {
        return Err(no_more(last));
    };
    Ok(match (last, first) {
        (None, Some(first)) => first.to_string(),
        (Some(last), _) if newest < SMALLEST_TIMESTAMP => format!("{following:0width$}", width = last.written.len()),
        _ => {
            let stamp = now.format("%Y%m%d%H%M%S").to_string();
            if stamp.parse::<i64>().is_ok_and(|stamp| stamp >= following) { stamp } else { following.to_string() }
        }
    })
}

/// A version for diesel, which compares them as texts: in the style of the last one, and behind it.
fn dashed(last: Option<&MigrationFile>, now: DateTime<Utc>) -> Result<String> {
    const STAMPED: usize = 12;
    let stamp = now.format("%Y%m%d%H%M%S").to_string();
    let written = last.map(|last| last.written.as_str()).filter(|written| !written.trim_matches('0').is_empty());
    let written = written.unwrap_or("2024-01-01-000000");
    let digits: String = written.chars().filter(char::is_ascii_digit).collect();
    let following = || {
        let number: u128 = digits.parse().ok()?;
        let following = format!("{:0width$}", number + 1, width = digits.len());
        (following.len() == digits.len()).then_some(following)
    };
    let stamped = format!("{stamp:0<width$}", width = digits.len());
    let next = if digits.len() >= STAMPED && (last.is_none() || stamped > digits) {
        Some(stamped)
    } else if written.len() - written.matches('-').count() == digits.len() {
        following()
    } else {
        Some(stamp).filter(|stamp| last.is_none_or(|last| *stamp > last.written.replace('-', "")))
    };
    let next = next.ok_or_else(|| no_more(last))?;
    // Dashes where the last one has them.
    let mut rest = next.chars();
    let mut text: String = written.chars().filter_map(|c| if c == '-' { Some(c) } else { rest.next() }).collect();
    text.extend(rest);
    Ok(text)
}

fn no_more(last: Option<&MigrationFile>) -> Failure {
    let newest = last.map_or("the newest migration", |last| last.name.as_str());
    Failure::decision(format!("{newest} has the largest version that there is, so none can follow"))
        .help("give that migration a smaller version, or name another directory with --migrations")
}
