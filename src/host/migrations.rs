//! The host's migrations: where they are and in which form, so that a new one fits in, and the tables they leave behind,
//! so that the owner's table can be found. The SQL is read statement by statement; a statement that no parser knows is
//! passed over, because a migration that the database accepts is never an error here.

mod catalog;
mod file;
pub mod mention;
mod migrator;
mod place;
mod rust;
mod statement;
mod table;
#[cfg(test)]
mod tests;

use camino::{Utf8Path, Utf8PathBuf};
use chrono::{DateTime, Utc};
use sqlparser::ast::Ident;

pub use self::catalog::Catalog;
pub use self::file::Tool;
use self::file::{Direction, MigrationFile, Next, of_sqlx};
pub use self::migrator::Migrator;
pub use self::place::{DEFAULT_DIRECTORY, Place, is_of, resolved};
use self::rust::Idens;
pub use self::table::{Reference, Table, TableName};
use crate::database::{Database, Dialect as _};
use crate::digest;
use crate::failure::{Failure, Result};
use crate::templates;
use crate::tree::Tree;

#[derive(Debug)]
pub struct Script {
    /// Its file, below the directory.
    pub name: String,
    pub text: String,
}

#[derive(Debug)]
pub struct Migrations {
    /// In the order in which they run.
    pub scripts: Vec<Script>,
    files: Vec<MigrationFile>,
    pub tool: Tool,
    /// The tables after all migrations have run.
    pub catalog: Catalog,
}

/// Reads the migrations in a directory, which is relative to the package and may contain `..`.
pub fn read(tree: &Tree, place: &Place, database: Database) -> Result<Migrations> {
    let Place { directory, tool } = place;
    if *tool == Tool::Sqlx
        && let Some(foreign) = tree.list(directory)?.iter().find(|name| is_foreign(name))
    {
        return Err(Failure::decision(format!(
            "{directory}/{foreign} is not of sqlx, whose migrations start with a number: `0001_users.sql`"
        ))
        .help("name the directory of sqlx's migrations with --migrations, also if there is none yet"));
    }
    let mut files = tool.files(tree, directory)?;
    if let Tool::SeaOrm { migrator } = tool {
        let list = tree.read(migrator)?.as_deref().and_then(Migrator::read);
        let modules = list.map(|list| list.modules).unwrap_or_default();
        files.sort_by_key(|file| modules.iter().position(|module| *module == file.written).unwrap_or(usize::MAX));
    }
    let mut scripts = Vec::new();
    for file in &files {
        let text = tree.read(&directory.join(&file.name))?.unwrap_or_default();
        scripts.push(Script { name: file.name.clone(), text });
    }
    let mut idens = Idens::default();
    scripts.iter().filter(|script| is_rust(&script.name)).for_each(|script| idens.read(&script.text));
    let mut catalog = Catalog::new(database);
    for (file, script) in files.iter().zip(&scripts).filter(|(file, _)| file.direction != Direction::Down) {
        if is_rust(&file.name) {
            catalog.apply(&rust::sql(&script.text, &idens, database).join(";\n"));
        } else {
            catalog.apply(&script.text);
        }
    }
    Ok(Migrations { scripts, files, tool: tool.clone(), catalog })
}

/// What a migration is known by. One in Rust is known by the SQL in it, however it is formatted.
pub fn content_digest(file: &Utf8Path, text: &str) -> String {
    match is_rust(file.as_str()).then(|| rust::literals(text)).flatten() {
        Some(literals) => digest::of_text(&literals.join("\n")),
        None => digest::of_text(text),
    }
}

/// Whether a file is only for the way back.
pub fn is_down(file: &Utf8Path) -> bool {
    file.file_name() == Some("down.sql") || file.as_str().ends_with(".down.sql")
}

/// The directory of a host's migrations that a migration is in.
pub fn directory_of(file: &Utf8Path) -> &Utf8Path {
    let parent = file.parent().unwrap_or(Utf8Path::new(""));
    match file.file_name() {
        Some("up.sql" | "down.sql") => parent.parent().unwrap_or(parent),
        _ => parent,
    }
}

impl Script {
    /// The SQL of a migration of ours on its way up.
    pub fn sql(&self) -> String {
        let literals = is_rust(&self.name).then(|| rust::literals(&self.text)).flatten();
        let up = literals.and_then(|literals| literals.into_iter().next());
        up.map_or_else(|| self.text.replace("\r\n", "\n"), |up| up.trim_start_matches('\n').to_owned())
    }
}

impl Migrations {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Pairs of scripts that have one version, and are not the two directions of one migration.
    pub fn same_version(&self) -> Vec<(&str, &str)> {
        let is_same = |pair: &&[MigrationFile]| {
            let directions = (pair[0].direction, pair[1].direction);
            let is_one = directions == (Direction::Down, Direction::Up)
                && (self.tool != Tool::Diesel || directory_of_name(&pair[0]) == directory_of_name(&pair[1]));
            self.tool.has_versions() && pair[0].version == pair[1].version && !is_one
        };
        self.files.windows(2).filter(is_same).map(|pair| (pair[0].name.as_str(), pair[1].name.as_str())).collect()
    }

    /// The scripts of a new migration below the directory, in the form of the others and later than them. `now` is the
    /// clock as a value.
    pub fn new_scripts(
        &self,
        now: DateTime<Utc>,
        name: &str,
        up: String,
        down: String,
    ) -> Result<Vec<(Utf8PathBuf, String)>> {
        let last = self.files.iter().map(|file| &file.version).max();
        let newest: Vec<_> = self.files.iter().filter(|file| Some(&file.version) == last).collect();
        let Next { up: up_file, down: down_file, is_rust } = self.tool.next(&newest, now, name)?;
        if is_rust {
            return Ok(vec![(up_file.into(), templates::rust_migration(&up, &down))]);
        }
        let down = down_file.map(|file| (file.into(), down));
        Ok(down.into_iter().chain([(up_file.into(), up)]).collect())
    }
}

fn directory_of_name(file: &MigrationFile) -> Option<&str> {
    file.name.split('/').next()
}

fn is_rust(name: &str) -> bool {
    Utf8Path::new(name).extension() == Some("rs")
}

/// sqlx passes over most files, but refuses to run where one of these is.
fn is_foreign(file: &str) -> bool {
    Utf8Path::new(file).extension() == Some("sql") && file.contains('_') && of_sqlx(file).is_none()
}

/// A column's definition with other names for the columns that its conditions and expressions are about.
pub fn rename_columns(definition: &str, database: Database, rename: impl Fn(&str) -> Option<String>) -> String {
    statement::rename_columns(definition, database, rename)
}

/// A name as the database knows it.
fn spelled(ident: &Ident, database: Database) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { database.fold(&ident.value) }
}
