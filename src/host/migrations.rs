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

/// How the host names its migrations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationStyle {
    pub reversible: bool,
    pub versions: Versions,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Versions {
    Timestamp,
    Sequential { width: usize },
}

#[derive(Debug)]
pub struct Script {
    /// The name of its file.
    pub name: String,
    pub text: String,
}

#[derive(Debug)]
pub struct Migrations {
    /// In the order in which they run.
    pub scripts: Vec<Script>,
    pub style: MigrationStyle,
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
    let mut names: Vec<_> = files.iter().filter_map(|name| ScriptName::parse(name)).collect();
    names.retain(|name| tree.is_file(&directory.join(name.file)));
    names.sort_by_key(|name| (name.version, name.direction));
    let mut catalog = Catalog::new(database);
    let mut scripts = Vec::new();
    for name in &names {
        let text = tree.read(&directory.join(name.file))?.unwrap_or_default();
        if name.direction != Direction::Down {
            catalog.apply(&text);
        }
        scripts.push(Script { name: name.file.to_owned(), text });
    }
    let last = names.last().map(|name| name.version);
    Ok(Migrations { scripts, style: style(&names), last, catalog })
}

impl Migrations {
    /// Pairs of scripts that have one version, and are not the two directions of one migration.
    pub fn same_version(&self) -> Vec<(&str, &str)> {
        let names: Vec<_> = self.scripts.iter().filter_map(|script| ScriptName::parse(&script.name)).collect();
        let is_same = |pair: &&[ScriptName]| {
            let directions = (pair[0].direction, pair[1].direction);
            pair[0].version == pair[1].version && directions != (Direction::Down, Direction::Up)
        };
        names.windows(2).filter(is_same).map(|pair| (pair[0].file, pair[1].file)).collect()
    }

    /// The version for a new migration, later than all there. `now` is the clock as a value.
    pub fn next_version(&self, now: chrono::DateTime<chrono::Utc>) -> Result<String> {
        let Some(following) = self.last.unwrap_or(0).checked_add(1) else {
            let newest = self.scripts.last().map_or("the newest migration", |script| script.name.as_str());
            return Err(Failure::decision(format!(
                "{newest} has the largest version that there is, so none can follow"
            ))
            .help("give that migration a smaller version, or name another directory with --migrations"));
        };
        Ok(match self.style.versions {
            Versions::Sequential { width } => format!("{following:0width$}"),
            Versions::Timestamp => {
                let stamp = now.format("%Y%m%d%H%M%S").to_string();
                if stamp.parse::<i64>().is_ok_and(|stamp| stamp >= following) { stamp } else { following.to_string() }
            }
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    /// A migration that cannot be reverted.
    Only,
    Down,
    Up,
}

/// A file that sqlx takes for a migration: `<VERSION>_<DESCRIPTION>.sql`.
struct ScriptName<'a> {
    file: &'a str,
    version: i64,
    width: usize,
    direction: Direction,
}

impl<'a> ScriptName<'a> {
    fn parse(file: &'a str) -> Option<Self> {
        let (version, description) = file.split_once('_')?;
        let stem = description.strip_suffix(".sql")?;
        if !version.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let direction = match stem.rsplit_once('.') {
            Some((_, "up")) => Direction::Up,
            Some((_, "down")) => Direction::Down,
            _ => Direction::Only,
        };
        Some(Self { file, version: version.parse().ok()?, width: version.len(), direction })
    }
}

/// sqlx passes over most files, but refuses to run where one of these is.
fn is_foreign(file: &str) -> bool {
    Utf8Path::new(file).extension() == Some("sql") && file.contains('_') && ScriptName::parse(file).is_none()
}

fn style(names: &[ScriptName]) -> MigrationStyle {
    // Even a stamp of `YYYYMMDDHHMM` is larger than this.
    const SMALLEST_TIMESTAMP: i64 = 100_000_000_000;
    let Some(newest) = names.last() else {
        return MigrationStyle { reversible: true, versions: Versions::Timestamp };
    };
    let versions = if newest.version < SMALLEST_TIMESTAMP {
        Versions::Sequential { width: newest.width }
    } else {
        Versions::Timestamp
    };
    MigrationStyle { reversible: newest.direction == Direction::Up, versions }
}

/// A column's definition with other names for the columns that its conditions and expressions are about.
pub fn rename_columns(definition: &str, database: Database, rename: impl Fn(&str) -> Option<String>) -> String {
    statement::rename_columns(definition, database, rename)
}

/// A name as the database knows it.
fn spelled(ident: &Ident, database: Database) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { database.fold(&ident.value) }
}
