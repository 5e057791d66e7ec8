//! The host's migrations: how they are named, so that a new one fits in, and the tables they leave behind, so that the
//! owner's table can be found. The SQL is read statement by statement; a statement that no parser knows is passed over,
//! because a migration that the database accepts is never an error here.

use std::collections::BTreeMap;

use camino::Utf8Path;
use sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, ColumnDef, ColumnOption, CreateIndex, CreateTable, DataType, Expr,
    Ident, IndexColumn, ObjectName, ObjectType, RenameTableNameKind, Statement, TableConstraint,
};
use sqlparser::dialect::{Dialect, GenericDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::parser::Parser;

use crate::failure::Result;
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
    pub habit: Habit,
    /// The newest version that is taken.
    pub last: Option<i64>,
    /// The tables after all migrations have run.
    pub catalog: Catalog,
}

/// Reads the migrations in `directory`, which is relative to the package and may contain `..`.
pub fn read(tree: &Tree, directory: &Utf8Path) -> Result<Migrations> {
    let files = tree.list(directory)?;
    let mut scripts: Vec<_> = files.iter().filter_map(|name| Script::of(name)).collect();
    scripts.retain(|script| tree.is_file(&directory.join(script.file)));
    scripts.sort_by_key(|script| (script.version, script.kind));
    let mut catalog = Catalog::default();
    for script in scripts.iter().filter(|script| script.kind != Kind::Down) {
        catalog.apply(&tree.read(&directory.join(script.file))?.unwrap_or_default());
    }
    let last = scripts.last().map(|script| script.version);
    Ok(Migrations { habit: habit(&scripts), last, catalog })
}

impl Migrations {
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
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    tables: BTreeMap<String, Table>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// As written, without quotes and schema.
    pub name: String,
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
    /// It is the primary key, or a part of it.
    pub primary_key: bool,
    /// It alone is unique by a constraint or an index of its own.
    pub unique: bool,
}

impl Catalog {
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.get(&name.to_lowercase())
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
                    self.tables.remove(&last_part(&name).to_lowercase());
                }
            }
            Statement::AlterTable(alter) => {
                let mut name = last_part(&alter.name);
                for operation in alter.operations {
                    name = self.alter(name, operation);
                }
            }
            _ => {}
        }
    }

    fn create(&mut self, create: CreateTable) {
        let name = last_part(&create.name);
        // A temporary table is gone when the connection is, and one that is there is not made again.
        if create.temporary || (create.if_not_exists && self.table(&name).is_some()) {
            return;
        }
        let mut table = Table { name, columns: Vec::new(), primary_key: Vec::new(), references: Vec::new() };
        for column in create.columns {
            table.add_column(column);
        }
        for constraint in create.constraints {
            table.add_constraint(constraint);
        }
        self.put(table);
    }

    fn index(&mut self, index: &CreateIndex) {
        // An index with a predicate holds for some rows only.
        if !index.unique || index.predicate.is_some() {
            return;
        }
        if let Some(table) = self.tables.get_mut(&last_part(&index.table_name).to_lowercase()) {
            table.mark_unique(&index.columns);
        }
    }

    /// Returns the table's name after the operation.
    fn alter(&mut self, name: String, operation: AlterTableOperation) -> String {
        let key = name.to_lowercase();
        if let AlterTableOperation::RenameTable {
            table_name: RenameTableNameKind::To(new) | RenameTableNameKind::As(new),
        } = operation
        {
            return self.rename(&key, last_part(&new));
        }
        if let Some(table) = self.tables.get_mut(&key) {
            table.alter(operation);
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

    fn add_column(&mut self, definition: ColumnDef) {
        let name = definition.name.value;
        if self.column(&name).is_some() {
            return;
        }
        let declared = definition.data_type.to_string().to_uppercase();
        self.columns.push(Column { name: name.clone(), declared, primary_key: false, unique: false });
        for option in definition.options {
            match option.option {
                ColumnOption::PrimaryKey(_) => self.set_primary_key(vec![name.clone()]),
                ColumnOption::Unique(_) => self.mark_unique(&[Ident::new(&name).into()]),
                ColumnOption::ForeignKey(key) => self.references.push(last_part(&key.foreign_table)),
                _ => {}
            }
        }
    }

    fn add_constraint(&mut self, constraint: TableConstraint) {
        match constraint {
            TableConstraint::PrimaryKey(key) => self.set_primary_key(key.columns.iter().filter_map(plain).collect()),
            TableConstraint::Unique(unique) => self.mark_unique(&unique.columns),
            TableConstraint::ForeignKey(key) => self.references.push(last_part(&key.foreign_table)),
            _ => {}
        }
    }

    fn alter(&mut self, operation: AlterTableOperation) {
        match operation {
            AlterTableOperation::AddColumn { column_def, .. } => self.add_column(column_def),
            AlterTableOperation::AddConstraint { constraint, .. } => self.add_constraint(constraint),
            AlterTableOperation::DropColumn { column_names, .. } => {
                for dropped in column_names {
                    self.columns.retain(|column| !column.name.eq_ignore_ascii_case(&dropped.value));
                    self.primary_key.retain(|name| !name.eq_ignore_ascii_case(&dropped.value));
                }
            }
            AlterTableOperation::RenameColumn { old_column_name: old, new_column_name: new } => {
                let names = self.primary_key.iter_mut().chain(self.columns.iter_mut().map(|column| &mut column.name));
                for name in names.filter(|name| name.eq_ignore_ascii_case(&old.value)) {
                    name.clone_from(&new.value);
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

    fn mark_unique(&mut self, columns: &[IndexColumn]) {
        if let [column] = columns
            && let Some(name) = plain(column)
            && let Some(column) = self.column_mut(&name)
        {
            column.unique = true;
        }
    }
}

/// The column's name, if what is indexed is a column and no expression.
fn plain(column: &IndexColumn) -> Option<String> {
    match &column.column.expr {
        Expr::Identifier(name) => Some(name.value.clone()),
        _ => None,
    }
}

/// The name without its schema.
fn last_part(name: &ObjectName) -> String {
    let ident = name.0.last().and_then(|part| part.as_ident());
    ident.map(|ident| ident.value.clone()).unwrap_or_default()
}

/// Hosts write for one database, and their SQL does not say which.
fn parse(sql: &str) -> Option<Statement> {
    let dialects: [&dyn Dialect; 3] = [&SQLiteDialect {}, &PostgreSqlDialect {}, &GenericDialect {}];
    dialects.into_iter().find_map(|dialect| {
        let mut statements = Parser::parse_sql(dialect, sql).ok()?;
        if statements.len() == 1 { statements.pop() } else { None }
    })
}

/// Reads a `CREATE TABLE` that cannot be parsed as a whole: its definitions one by one, and nothing of the options
/// behind the closing parenthesis.
fn salvage(sql: &str) -> Option<CreateTable> {
    let (head, definitions) = definitions(sql)?;
    let mut table: Option<CreateTable> = None;
    for definition in definitions {
        let Some(part) = salvage_definition(head, definition) else { continue };
        match &mut table {
            None => table = Some(part),
            Some(table) => {
                table.columns.extend(part.columns);
                table.constraints.extend(part.constraints);
            }
        }
    }
    table
}

/// Parses a single definition; a column's is cut at its end, word by word, until the rest is known.
fn salvage_definition(head: &str, definition: &str) -> Option<CreateTable> {
    const CONSTRAINTS: [&str; 8] = ["CONSTRAINT", "PRIMARY", "UNIQUE", "FOREIGN", "CHECK", "EXCLUDE", "LIKE", "KEY"];
    let attempt = |definition: &str| match parse(&format!("{head}{definition}\n)")) {
        Some(Statement::CreateTable(create)) => Some(create),
        _ => None,
    };
    if let Some(whole) = attempt(definition) {
        return Some(whole);
    }
    let bare: String = bare(definition)?.into_iter().map(|(_, c)| c.to_ascii_uppercase()).collect();
    if bare.split_whitespace().next().is_some_and(|word| CONSTRAINTS.contains(&word)) {
        return None;
    }
    let mut cuts = definition.rmatch_indices(char::is_whitespace);
    let (cut, mut create) = cuts.find_map(|(at, _)| Some((at, attempt(&definition[..at])?)))?;
    let lost = definition[cut..].to_uppercase();
    let lost: Vec<_> = lost.split_whitespace().collect();
    let column = create.columns.first_mut()?;
    if column.options.is_empty() {
        extend_type(column, &lost);
    }
    if lost.windows(2).any(|words| words == ["PRIMARY", "KEY"]) {
        let key = format!("PRIMARY KEY ({})", column.name);
        create.constraints.extend(attempt(&key)?.constraints);
    }
    Some(create)
}

/// `SQLite` takes any words for a type: `UNSIGNED BIG INT`.
fn extend_type(column: &mut ColumnDef, words: &[&str]) {
    const OPTIONS: [&str; 10] =
        ["PRIMARY", "NOT", "NULL", "UNIQUE", "DEFAULT", "CHECK", "REFERENCES", "COLLATE", "GENERATED", "CONSTRAINT"];
    let more = words.iter().copied().take_while(|word| !OPTIONS.contains(word));
    let declared = more.fold(column.data_type.to_string(), |declared, word| declared + " " + word);
    column.data_type = DataType::Custom(Ident::new(declared).into(), Vec::new());
}

/// What stands before the columns of a `CREATE TABLE`, parenthesis included, and the definitions between the commas.
fn definitions(sql: &str) -> Option<(&str, Vec<&str>)> {
    let bare = bare(sql)?;
    let open = bare.iter().find(|(_, c)| *c == '(')?.0;
    let mut depth = 0;
    let mut start = open + 1;
    let mut found = Vec::new();
    for (at, c) in bare.into_iter().filter(|(at, _)| *at >= open) {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            found.push(sql[start..at].trim());
            start = at + 1;
        }
        if depth == 0 {
            return Some((&sql[..=open], found));
        }
    }
    None
}

/// Splits at every `;` that is neither quoted nor in a comment. Bodies of triggers fall apart, which does no harm: no
/// database lets them define tables.
fn statements(sql: &str) -> Vec<&str> {
    let mut start = 0;
    let mut found = Vec::new();
    let ended = scan(sql, |at, c| {
        if c == ';' {
            found.push(&sql[start..at]);
            start = at + 1;
        }
    });
    if ended.is_none() {
        return sql.split(';').collect();
    }
    found.push(&sql[start..]);
    found
}

/// Whether a statement can concern a table's definition. Most of a large migration is rows, which need no parser.
fn is_definition(statement: &str) -> bool {
    let mut words = String::new();
    // A quote that does not end comes after the first word, if it is there at all.
    let _ = scan(statement, |_, c| words.push(c.to_ascii_uppercase()));
    matches!(words.split_whitespace().next(), Some("CREATE" | "ALTER" | "DROP"))
}

/// The characters outside of quotes and comments, with their places; nothing if a quote or comment does not end.
fn bare(sql: &str) -> Option<Vec<(usize, char)>> {
    let mut bare = Vec::new();
    scan(sql, |at, c| bare.push((at, c)))?;
    Some(bare)
}

fn scan(sql: &str, mut visit: impl FnMut(usize, char)) -> Option<()> {
    let mut at = 0;
    while let Some(c) = sql[at..].chars().next() {
        let rest = &sql[at..];
        at += match c {
            '\'' if is_escape_prefix(&sql[..at]) => escaped_length(rest)?,
            // A doubled quote reads as two strings side by side, which end at the same place.
            '\'' | '"' | '`' => 2 + rest[1..].find(c)?,
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => 4 + rest[2..].find("*/")?,
            '$' if dollar_tag(rest).is_some() => {
                let tag = dollar_tag(rest)?;
                2 * tag.len() + rest[tag.len()..].find(tag)?
            }
            _ => {
                visit(at, c);
                c.len_utf8()
            }
        };
    }
    Some(())
}

/// Whether a string that follows is an `E'…'` of `PostgreSQL`, where `\'` is a quote.
fn is_escape_prefix(before: &str) -> bool {
    let mut back = before.chars().rev();
    matches!(back.next(), Some('e' | 'E')) && !back.next().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

fn escaped_length(string: &str) -> Option<usize> {
    let mut chars = string.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '\'' if string[at + 1..].starts_with('\'') => drop(chars.next()),
            '\'' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// `$$` or `$body$` at the start of the text.
fn dollar_tag(text: &str) -> Option<&str> {
    let end = 1 + text.strip_prefix('$')?.find('$')?;
    let tag = &text[1..end];
    let is_tag = tag.chars().all(|c| c.is_alphanumeric() || c == '_') && !tag.starts_with(|c: char| c.is_ascii_digit());
    is_tag.then_some(&text[..=end])
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone as _;

    use super::*;

    fn catalog(sql: &str) -> Catalog {
        let mut catalog = Catalog::default();
        catalog.apply(sql);
        catalog
    }

    /// A table in one line: `users(id INTEGER pk, email TEXT unique) -> teams`.
    fn show(table: &Table) -> String {
        let column = |column: &Column| {
            let mut words = vec![column.name.as_str(), column.declared.as_str()];
            words.extend(column.primary_key.then_some("pk"));
            words.extend(column.unique.then_some("unique"));
            words.retain(|word| !word.is_empty());
            words.join(" ")
        };
        let columns = table.columns.iter().map(column).collect::<Vec<_>>().join(", ");
        let references = table.references.iter().fold(String::new(), |all, name| all + " -> " + name);
        format!("{}({columns}){references}", table.name)
    }

    fn tables(sql: &str) -> Vec<String> {
        catalog(sql).tables.values().map(show).collect()
    }

    fn directory(names: &[&str]) -> (tempfile::TempDir, Tree) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("migrations")).unwrap();
        for name in names {
            let table = name.split(['_', '.']).nth(1).unwrap_or("none");
            let sql = format!("CREATE TABLE {table} (id INTEGER PRIMARY KEY);");
            std::fs::write(directory.path().join("migrations").join(name), sql).unwrap();
        }
        let root = camino::Utf8PathBuf::from_path_buf(directory.path().to_owned()).unwrap();
        (directory, Tree::new(root))
    }

    fn migrations(names: &[&str]) -> Migrations {
        let (_directory, tree) = directory(names);
        read(&tree, Utf8Path::new("migrations")).unwrap()
    }

    fn next(names: &[&str]) -> String {
        migrations(names).next_version(chrono::Utc.with_ymd_and_hms(2026, 3, 4, 5, 6, 7).unwrap())
    }

    #[test]
    fn a_host_without_migrations_gets_reversible_ones_with_timestamps() {
        let found = migrations(&[]);
        assert_eq!(found.habit, Habit { reversible: true, versions: Versions::Timestamp });
        assert_eq!(found.last, None);
        assert_eq!(next(&[]), "20260304050607");
        assert!(read(&Tree::new("/nonexistent"), Utf8Path::new("../migrations")).unwrap().catalog.tables.is_empty());
    }

    #[test]
    fn the_newest_migration_shows_the_habit() {
        let found = migrations(&["0001_a.sql", "0002_b.up.sql", "0002_b.down.sql"]);
        assert_eq!(found.habit, Habit { reversible: true, versions: Versions::Sequential { width: 4 } });
        let found = migrations(&["0001_a.up.sql", "0001_a.down.sql", "20240101000000_b.sql"]);
        assert_eq!(found.habit, Habit { reversible: false, versions: Versions::Timestamp });
    }

    #[test]
    fn a_new_version_is_later_than_all_there() {
        assert_eq!(next(&["20240101000000_a.sql"]), "20260304050607");
        assert_eq!(next(&["20260304050607_a.sql"]), "20260304050608");
        assert_eq!(next(&["29990101235959_a.sql"]), "29990101235960");
        assert_eq!(next(&["0009_a.sql", "0002_b.sql"]), "0010");
        assert_eq!(next(&["9_a.sql"]), "10");
    }

    #[test]
    fn versions_are_ordered_as_numbers_and_other_files_are_ignored() {
        let names =
            ["10_ten.sql", "9_nine.up.sql", "9_nine.down.sql", "README.md", "seed_data.sql", "11.sql", "12_x.txt"];
        let found = migrations(&names);
        assert_eq!(found.last, Some(10));
        assert_eq!(found.catalog.tables.keys().collect::<Vec<_>>(), ["nine", "ten"]);
    }

    #[test]
    fn keys_and_references_are_found_at_columns_and_at_tables() {
        let sql = "CREATE TABLE IF NOT EXISTS users (id INTEGER PRIMARY KEY AUTOINCREMENT, email TEXT NOT NULL UNIQUE);
            CREATE TABLE posts (id BIGINT, user_id BIGINT REFERENCES users (id) ON DELETE CASCADE, slug varchar(20),
                PRIMARY KEY (user_id, id), UNIQUE (slug), FOREIGN KEY (id) REFERENCES public.things (id));";
        let expected = [
            "posts(id BIGINT pk, user_id BIGINT pk, slug VARCHAR(20) unique) -> users -> things",
            "users(id INTEGER pk, email TEXT unique)",
        ];
        assert_eq!(tables(sql), expected);
        assert_eq!(catalog(sql).table("POSTS").unwrap().primary_key, ["user_id", "id"]);
    }

    #[test]
    fn names_are_read_in_every_kind_of_quote() {
        for name in ["\"user\"", "`user`", "[user]", "public.\"user\"", "\"auth\".\"user\"", "main.[user]"] {
            assert_eq!(tables(&format!("CREATE TABLE {name} ([id] BLOB PRIMARY KEY)")), ["user(id BLOB pk)"], "{name}");
        }
    }

    #[test]
    fn types_of_every_database_are_kept() {
        let sql = "CREATE TABLE t (a bigserial PRIMARY KEY, b UUID DEFAULT gen_random_uuid(), c TEXT[] NOT NULL,
            d timestamp with time zone, e, f BIGINT GENERATED BY DEFAULT AS IDENTITY, g citext)";
        let expected = "t(a BIGSERIAL pk, b UUID, c TEXT[], d TIMESTAMP WITH TIME ZONE, e, f BIGINT, g CITEXT)";
        assert_eq!(tables(sql), [expected]);
    }

    #[test]
    fn altered_tables_are_followed() {
        let sql = "CREATE TABLE people (pid INT, old TEXT, mail TEXT);
            CREATE TABLE posts (author INT REFERENCES people);
            ALTER TABLE people RENAME TO users;
            ALTER TABLE users RENAME COLUMN pid TO id;
            ALTER TABLE users RENAME mail TO email;
            ALTER TABLE users ADD COLUMN team_id INTEGER REFERENCES teams (id);
            ALTER TABLE users DROP COLUMN old;
            ALTER TABLE ONLY public.users ADD CONSTRAINT users_pkey PRIMARY KEY (id), ALTER COLUMN id TYPE bigint;
            CREATE UNIQUE INDEX by_email ON users (email);
            CREATE UNIQUE INDEX by_team ON users (team_id) WHERE team_id > 0;
            CREATE TABLE gone (id INT); DROP TABLE IF EXISTS gone, never;";
        assert_eq!(
            tables(sql),
            ["posts(author INT) -> users", "users(id BIGINT pk, email TEXT unique, team_id INTEGER) -> teams"]
        );
    }

    #[test]
    fn a_table_rebuilt_for_sqlite_ends_under_its_own_name() {
        let sql =
            "CREATE TABLE users (id INTEGER PRIMARY KEY); CREATE TABLE posts (user_id INTEGER REFERENCES users (id));
            CREATE TABLE new_users (id BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;
            INSERT INTO new_users SELECT * FROM users; DROP TABLE users; ALTER TABLE new_users RENAME TO users;";
        assert_eq!(tables(sql), ["posts(user_id INTEGER) -> users", "users(id BLOB pk)"]);
    }

    #[test]
    fn statements_that_no_parser_knows_are_passed_over() {
        let unknown = [
            "PRAGMA foreign_keys = ON",
            "DO $$ BEGIN CREATE TABLE inside (id INT); DROP TABLE users; END $$",
            "DO $body$ BEGIN PERFORM 'it''s'; END $body$",
            "CREATE VIRTUAL TABLE t USING fts5(a, tokenize = 'porter')",
            "CREATE TRIGGER t AFTER UPDATE ON users BEGIN UPDATE users SET a = 1; DELETE FROM x; END",
            "CREATE RULE r AS ON INSERT TO users DO INSTEAD (DELETE FROM a; DELETE FROM b)",
            "this is garbage ) ( , \u{1F980}",
            "INSERT INTO users VALUES ('; DROP TABLE users; --', E'it\\'s; DROP TABLE users;')",
            "-- don't; DROP TABLE users;\n/* it's; DROP TABLE users; \" */ SELECT 1",
        ];
        for sql in unknown {
            let around = format!("CREATE TABLE users (id INTEGER);\r\n{sql};\r\nCREATE TABLE after (id INTEGER);\r\n");
            assert_eq!(tables(&around), ["after(id INTEGER)", "users(id INTEGER)"], "{sql}");
        }
    }

    #[test]
    fn a_file_whose_quotes_do_not_end_is_read_as_far_as_it_goes() {
        let sql = "CREATE TABLE a (id INT); SELECT 'oops; CREATE TABLE b (id INT)";
        assert_eq!(tables(sql), ["a(id INT)", "b(id INT)"]);
    }

    #[test]
    fn a_table_with_parts_that_no_parser_knows_keeps_the_rest() {
        let sql = "CREATE TABLE users (
                id UNSIGNED BIG INT NOT  NULL PRIMARY KEY, -- the key, of course
                \"name\" TEXT CHECK (name <> '),(') ODD THINGS,
                period tstzrange NOT NULL,
                -- no two at once
                CONSTRAINT overlap EXCLUDE USING gist (period WITH &&),
                FOREIGN KEY (id) REFERENCES people (id)
            ) STRICT, WITHOUT ROWID";
        let found = tables(sql);
        assert_eq!(found, ["users(id UNSIGNED BIG INT pk, name TEXT, period TSTZRANGE) -> people"]);
    }

    #[test]
    fn options_behind_the_columns_do_not_hide_a_table() {
        for options in ["STRICT", "WITHOUT ROWID", "STRICT, WITHOUT ROWID", "WITHOUT ROWID, STRICT", "WITH (x = 1) ODD"]
        {
            let sql = format!("CREATE TABLE t (id TEXT NOT NULL PRIMARY KEY) {options}");
            assert_eq!(tables(&sql), ["t(id TEXT pk)"], "{options}");
        }
    }

    #[test]
    fn a_temporary_table_is_no_table_and_one_that_exists_stays() {
        let sql = "CREATE TEMP TABLE t (id INT); CREATE TABLE u (id INT); CREATE TABLE IF NOT EXISTS U (other INT);";
        assert_eq!(tables(sql), ["u(id INT)"]);
    }
}
