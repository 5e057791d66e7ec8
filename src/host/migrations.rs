//! The host's migrations: how they are named, so that a new one fits in, and the tables they leave behind, so that the
//! owner's table can be found. The SQL is read statement by statement; a statement that no parser knows is passed over,
//! because a migration that the database accepts is never an error here.

mod statement;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use camino::Utf8Path;
use sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, ColumnDef, ColumnOption, CreateIndex, CreateTable, Expr, Ident,
    IndexColumn, ObjectName, ObjectType, RenameTableNameKind, Statement, TableConstraint,
};

use self::statement::{is_definition, parse, salvage, statements};
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
    pub fn next_version(&self, now: chrono::DateTime<chrono::Utc>) -> String {
        let following = self.last.map_or(1, |last| last.saturating_add(1));
        match self.habit.versions {
            Versions::Sequential { width } => format!("{following:0width$}"),
            Versions::Timestamp => {
                let stamp = now.format("%Y%m%d%H%M%S").to_string();
                if stamp.parse::<i64>().is_ok_and(|stamp| stamp >= following) { stamp } else { following.to_string() }
            }
        }
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

/// The tables that some SQL leaves behind. Names are looked up without regard to case.
#[derive(Debug, Clone)]
pub struct Catalog {
    tables: BTreeMap<String, Table>,
    database: Database,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// As the database knows it, without quotes and schema.
    pub name: String,
    /// Where it is, if that was written and the database has such places.
    pub schema: Option<String>,
    pub columns: Vec<Column>,
    pub primary_key: Vec<String>,
    /// The tables that this one has foreign keys to.
    pub references: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// The declared type in upper case; empty if there is none.
    pub declared: String,
    /// As in `CREATE TABLE`, its name included.
    pub definition: String,
    /// It is the primary key, or a part of it.
    pub primary_key: bool,
    /// It alone is unique by a constraint or an index of its own.
    pub unique: bool,
}

impl Catalog {
    pub fn new(database: Database) -> Self {
        Self { tables: BTreeMap::new(), database }
    }

    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.get(&name.to_lowercase())
    }

    /// A table with a foreign key to another one.
    pub fn referring(&self, name: &str) -> impl Iterator<Item = &Table> {
        let name = name.to_lowercase();
        let refers = move |table: &&Table| table.references.iter().any(|other| other.to_lowercase() == name);
        self.tables.values().filter(refers)
    }

    pub fn forget(&mut self, name: &str) {
        self.tables.remove(&name.to_lowercase());
    }

    /// Does to the tables what the statements of `sql` do.
    pub fn apply(&mut self, sql: &str) {
        let sql = sql.trim_start_matches('\u{feff}');
        for statement in statements(sql).into_iter().filter(|statement| is_definition(statement)) {
            if let Some(statement) = parse(statement).or_else(|| salvage(statement).map(Statement::CreateTable)) {
                self.execute(statement);
            }
        }
    }

    fn execute(&mut self, statement: Statement) {
        match statement {
            Statement::CreateTable(create) => self.create(create),
            Statement::CreateIndex(index) => self.index(&index),
            Statement::Drop { object_type: ObjectType::Table, names, .. } => {
                for name in names {
                    self.tables.remove(&last_part(&name, self.database).to_lowercase());
                }
            }
            Statement::AlterTable(alter) => {
                let mut name = last_part(&alter.name, self.database);
                for operation in alter.operations {
                    name = self.alter(name, operation);
                }
            }
            _ => {}
        }
    }

    fn create(&mut self, create: CreateTable) {
        let database = self.database;
        let name = last_part(&create.name, database);
        // A temporary table is gone when the connection is, and one that is there is not made again.
        if create.temporary || (create.if_not_exists && self.table(&name).is_some()) {
            return;
        }
        let schema = schema_part(&create.name, database);
        let mut table = Table { name, schema, columns: Vec::new(), primary_key: Vec::new(), references: Vec::new() };
        for column in create.columns {
            table.add_column(column, database);
        }
        for constraint in create.constraints {
            table.add_constraint(constraint, database);
        }
        self.put(table);
    }

    fn index(&mut self, index: &CreateIndex) {
        // An index with a predicate holds for some rows only.
        if !index.unique || index.predicate.is_some() {
            return;
        }
        if let Some(table) = self.tables.get_mut(&last_part(&index.table_name, self.database).to_lowercase()) {
            table.mark_unique(&index.columns, self.database);
        }
    }

    /// Returns the table's name after the operation.
    fn alter(&mut self, name: String, operation: AlterTableOperation) -> String {
        let key = name.to_lowercase();
        if let AlterTableOperation::RenameTable {
            table_name: RenameTableNameKind::To(new) | RenameTableNameKind::As(new),
        } = operation
        {
            return self.rename(&key, last_part(&new, self.database));
        }
        if let Some(table) = self.tables.get_mut(&key) {
            table.alter(operation, self.database);
        }
        name
    }

    /// Foreign keys follow a renamed table, in `SQLite` as in `PostgreSQL`.
    fn rename(&mut self, key: &str, new: String) -> String {
        for reference in self.tables.values_mut().flat_map(|table| &mut table.references) {
            if reference.to_lowercase() == key {
                reference.clone_from(&new);
            }
        }
        if let Some(mut table) = self.tables.remove(key) {
            table.name.clone_from(&new);
            self.put(table);
        }
        new
    }

    fn put(&mut self, table: Table) {
        self.tables.insert(table.name.to_lowercase(), table);
    }
}

impl Table {
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name))
    }

    fn column_mut(&mut self, name: &str) -> Option<&mut Column> {
        self.columns.iter_mut().find(|column| column.name.eq_ignore_ascii_case(name))
    }

    fn add_column(&mut self, definition: ColumnDef, database: Database) {
        let name = spelled(&definition.name, database);
        if self.column(&name).is_some() {
            return;
        }
        let declared = definition.data_type.to_string().to_uppercase();
        let written = definition.to_string();
        self.columns.push(Column {
            name: name.clone(),
            declared,
            definition: written,
            primary_key: false,
            unique: false,
        });
        for option in definition.options {
            match option.option {
                ColumnOption::PrimaryKey(_) => self.set_primary_key(vec![name.clone()]),
                ColumnOption::Unique(_) => self.mark_unique(&[definition.name.clone().into()], database),
                ColumnOption::ForeignKey(key) => self.references.push(last_part(&key.foreign_table, database)),
                _ => {}
            }
        }
    }

    fn add_constraint(&mut self, constraint: TableConstraint, database: Database) {
        match constraint {
            TableConstraint::PrimaryKey(key) => {
                self.set_primary_key(key.columns.iter().filter_map(|column| plain(column, database)).collect());
            }
            TableConstraint::Unique(unique) => self.mark_unique(&unique.columns, database),
            TableConstraint::ForeignKey(key) => self.references.push(last_part(&key.foreign_table, database)),
            _ => {}
        }
    }

    fn alter(&mut self, operation: AlterTableOperation, database: Database) {
        match operation {
            AlterTableOperation::AddColumn { column_def, .. } => self.add_column(column_def, database),
            AlterTableOperation::AddConstraint { constraint, .. } => self.add_constraint(constraint, database),
            AlterTableOperation::DropColumn { column_names, .. } => {
                for dropped in column_names {
                    self.columns.retain(|column| !column.name.eq_ignore_ascii_case(&dropped.value));
                    self.primary_key.retain(|name| !name.eq_ignore_ascii_case(&dropped.value));
                }
            }
            AlterTableOperation::RenameColumn { old_column_name: old, new_column_name: new } => {
                let names = self.primary_key.iter_mut().chain(self.columns.iter_mut().map(|column| &mut column.name));
                for name in names.filter(|name| name.eq_ignore_ascii_case(&old.value)) {
                    *name = spelled(&new, database);
                }
            }
            AlterTableOperation::AlterColumn {
                column_name,
                op: AlterColumnOperation::SetDataType { data_type, .. },
            } => {
                if let Some(column) = self.column_mut(&column_name.value) {
                    column.declared = data_type.to_string().to_uppercase();
                }
            }
            _ => {}
        }
    }

    /// A table has one primary key, so a new one takes the place of the old.
    fn set_primary_key(&mut self, columns: Vec<String>) {
        for column in &mut self.columns {
            column.primary_key = columns.iter().any(|name| name.eq_ignore_ascii_case(&column.name));
        }
        self.primary_key = columns;
    }

    fn mark_unique(&mut self, columns: &[IndexColumn], database: Database) {
        if let [column] = columns
            && let Some(name) = plain(column, database)
            && let Some(column) = self.column_mut(&name)
        {
            column.unique = true;
        }
    }
}

/// The column's name, if what is indexed is a column and no expression.
fn plain(column: &IndexColumn, database: Database) -> Option<String> {
    match &column.column.expr {
        Expr::Identifier(name) => Some(spelled(name, database)),
        _ => None,
    }
}

/// The name without its schema.
fn last_part(name: &ObjectName, database: Database) -> String {
    let ident = name.0.last().and_then(|part| part.as_ident());
    ident.map(|ident| spelled(ident, database)).unwrap_or_default()
}

/// The schema, if there is one to speak of: `public` is where tables are by default.
fn schema_part(name: &ObjectName, database: Database) -> Option<String> {
    let ident = name.0.len().checked_sub(2).and_then(|place| name.0[place].as_ident())?;
    Some(spelled(ident, database)).filter(|schema| database.has_schemas() && schema != "public")
}

/// A name as the database knows it.
fn spelled(ident: &Ident, database: Database) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { database.fold(&ident.value) }
}
