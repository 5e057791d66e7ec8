//! The host's migrations: how they are named, so that a new one fits in, and the tables they leave behind, so that the
//! owner's table can be found. The SQL is read statement by statement; a statement that no parser knows is passed over,
//! because a migration that the database accepts is never an error here.

mod catalog;
mod statement;
mod table;
#[cfg(test)]
mod tests;

use camino::Utf8Path;
use sqlparser::ast::Ident;

pub use self::catalog::Catalog;
pub use self::table::{Reference, Table, TableName};
use crate::database::Database;
use crate::failure::{Failure, Result};
use crate::tree::Tree;

/// How the host writes its migrations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Habit {
    pub reversible: bool,
    pub versions: Versions,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Versions {
    Timestamp,
    Sequential { width: usize },
}

#[derive(Debug)]
pub struct Migrations {
    /// The names of the scripts, in order.
    pub files: Vec<String>,
    pub habit: Habit,
    /// The newest version that is taken.
    pub last: Option<i64>,
    /// The tables after all migrations have run.
    pub catalog: Catalog,
}

/// Reads the migrations in `directory`, which is relative to the package and may contain `..`.
pub fn read(tree: &Tree, directory: &Utf8Path, database: Database) -> Result<Migrations> {
    let files = tree.list(directory)?;
    if let Some(foreign) = files.iter().find(|name| is_foreign(name)) {
        return Err(Failure::decision(format!(
            "{directory}/{foreign} is not of sqlx, whose migrations start with a number: `0001_users.sql`"
        ))
        .help("name the directory of sqlx's migrations with --migrations, also if there is none yet"));
    }
    let mut scripts: Vec<_> = files.iter().filter_map(|name| Script::of(name)).collect();
    scripts.retain(|script| tree.is_file(&directory.join(script.file)));
    scripts.sort_by_key(|script| (script.version, script.kind));
    let mut catalog = Catalog::new(database);
    for script in scripts.iter().filter(|script| script.kind != Kind::Down) {
        catalog.apply(&tree.read(&directory.join(script.file))?.unwrap_or_default());
    }
    let last = scripts.last().map(|script| script.version);
    let files = scripts.iter().map(|script| script.file.to_owned()).collect();
    Ok(Migrations { files, habit: habit(&scripts), last, catalog })
}

impl Migrations {
    /// Pairs of scripts that have one version, and are not the two directions of one migration.
    pub fn same_version(&self) -> Vec<(&str, &str)> {
        let scripts: Vec<_> = self.files.iter().filter_map(|file| Script::of(file)).collect();
        let is_same = |pair: &&[Script]| {
            pair[0].version == pair[1].version && (pair[0].kind, pair[1].kind) != (Kind::Down, Kind::Up)
        };
        scripts.windows(2).filter(is_same).map(|pair| (pair[0].file, pair[1].file)).collect()
    }

    /// The version for a new migration, later than all there. `now` is the clock as a value.
    pub fn next_version(&self, now: chrono::DateTime<chrono::Utc>) -> Result<String> {
        let Some(following) = self.last.unwrap_or(0).checked_add(1) else {
            let newest = self.files.last().map_or("the newest migration", String::as_str);
            return Err(Failure::decision(format!(
                "{newest} has the largest version that there is, so none can follow"
            ))
            .help("give that migration a smaller version, or name another directory with --migrations"));
        };
        Ok(match self.habit.versions {
            Versions::Sequential { width } => format!("{following:0width$}"),
            Versions::Timestamp => {
                let stamp = now.format("%Y%m%d%H%M%S").to_string();
                if stamp.parse::<i64>().is_ok_and(|stamp| stamp >= following) { stamp } else { following.to_string() }
            }
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Simple,
    Down,
    Up,
}

/// A file that sqlx takes for a migration: `<VERSION>_<DESCRIPTION>.sql`.
struct Script<'a> {
    file: &'a str,
    version: i64,
    width: usize,
    kind: Kind,
}

impl<'a> Script<'a> {
    fn of(file: &'a str) -> Option<Self> {
        let (version, description) = file.split_once('_')?;
        let stem = description.strip_suffix(".sql")?;
        if !version.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let kind = match stem.rsplit_once('.') {
            Some((_, "up")) => Kind::Up,
            Some((_, "down")) => Kind::Down,
            _ => Kind::Simple,
        };
        Some(Self { file, version: version.parse().ok()?, width: version.len(), kind })
    }
}

/// sqlx passes over most files, but refuses to run where one of these is.
fn is_foreign(file: &str) -> bool {
    Utf8Path::new(file).extension() == Some("sql") && file.contains('_') && Script::of(file).is_none()
}

fn habit(scripts: &[Script]) -> Habit {
    // Even a stamp of `YYYYMMDDHHMM` is larger than this.
    const SMALLEST_TIMESTAMP: i64 = 100_000_000_000;
    let Some(newest) = scripts.last() else {
        return Habit { reversible: true, versions: Versions::Timestamp };
    };
    let versions = if newest.version < SMALLEST_TIMESTAMP {
        Versions::Sequential { width: newest.width }
    } else {
        Versions::Timestamp
    };
    Habit { reversible: newest.kind == Kind::Up, versions }
}

/// A column's definition with other names for the columns that its conditions and expressions are about.
pub fn rename_columns(definition: &str, database: Database, rename: impl Fn(&str) -> Option<String>) -> String {
    statement::rename_columns(definition, database, rename)
}

/// A name as the database knows it.
fn spelled(ident: &Ident, database: Database) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { database.fold(&ident.value) }
}
