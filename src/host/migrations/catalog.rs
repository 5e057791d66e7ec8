//! The tables that some SQL leaves behind. A name without a schema means what `PostgreSQL` would take it for: the first
//! table of that name along the search path, which every migration starts with the default of.

use sqlparser::ast::{
    AlterIndexOperation, AlterSchemaOperation, AlterTableOperation, ColumnDef, ColumnOption, CreateIndex, CreateTable,
    Expr, ForeignKeyConstraint, Ident, ObjectName, ObjectType, RenameTableNameKind, Reset, Set, Statement,
    TableConstraint, Value,
};

use super::spelled;
use super::statement::{Unparsed, changes_in_block, is_block, is_definition, parse, salvage, statements, unparsed};
use super::table::{Reference, Table, TableName};
use crate::database::{Database, Dialect as _};

#[derive(Debug, Clone)]
pub struct Catalog {
    pub(super) tables: Vec<Table>,
    views: Vec<View>,
    database: Database,
    /// `None` is the default schema.
    search_path: Vec<Option<String>>,
    /// The temporary tables of a migration, which hide others of their name.
    temporary: Vec<String>,
}

#[derive(Debug, Clone)]
struct View {
    name: TableName,
    /// Of its query.
    words: Vec<String>,
}

impl Catalog {
    pub fn new(database: Database) -> Self {
        let (tables, views, temporary) = (Vec::new(), Vec::new(), Vec::new());
        Self { tables, views, database, search_path: vec![None], temporary }
    }

    /// The table of that name in the default schema.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.find(&TableName::bare(name))
    }

    /// The table in that schema, as a person would name it: in whatever case, if that leaves no doubt.
    pub fn find(&self, name: &TableName) -> Option<&Table> {
        let mut found = self.named(&name.table).into_iter().filter(|table| table.name.schema == name.schema);
        found.next().filter(|_| found.next().is_none())
    }

    /// The tables of that name in all schemas.
    pub fn named(&self, name: &str) -> Vec<&Table> {
        let exact = |other: &Table| other.name.table == name;
        let is_hidden = |table: &Table| {
            !exact(table) && self.tables.iter().any(|other| exact(other) && other.name.schema == table.name.schema)
        };
        let alike = self.tables.iter().filter(|table| table.name.table.to_lowercase() == name.to_lowercase());
        alike.filter(|table| !is_hidden(table)).collect()
    }

    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter()
    }

    /// The foreign keys onto a table of the default schema, with the tables that have them.
    pub fn referring(&self, name: &str) -> impl Iterator<Item = (&Table, &Reference)> {
        let name = TableName::bare(name);
        let all = self.tables.iter().flat_map(|table| table.references.iter().map(move |reference| (table, reference)));
        all.filter(move |(_, reference)| self.same(&reference.to, &name))
    }

    /// The views whose query has these words.
    pub fn views_with(&self, words: &[&str]) -> impl Iterator<Item = &TableName> {
        let has = |view: &View, word: &str| view.words.iter().any(|other| other.eq_ignore_ascii_case(word));
        self.views.iter().filter(move |view| words.iter().all(|word| has(view, word))).map(|view| &view.name)
    }

    /// Every name in the default schema that no new table or index can have.
    pub fn taken(&self) -> Vec<&str> {
        let tables = self.tables.iter().filter(|table| table.name.schema.is_none());
        let indexes = tables.clone().flat_map(Table::indexes);
        let views = self.views.iter().map(|view| &view.name).filter(|name| name.schema.is_none());
        let names = tables.map(|table| &table.name).chain(views).map(|name| name.table.as_str());
        names.chain(indexes).collect()
    }

    /// Forgets a table of the default schema.
    pub fn forget(&mut self, name: &str) {
        self.remove(&TableName::bare(name));
    }

    /// Does to the tables what a migration does.
    pub fn apply(&mut self, sql: &str) {
        self.search_path = vec![None];
        self.temporary.clear();
        let database = self.database;
        let sql = sql.trim_start_matches('\u{feff}');
        for text in &statements(sql, database) {
            if is_block(text) {
                for change in changes_in_block(text, database) {
                    self.doubt(&change);
                }
            } else if is_definition(text) {
                self.define(text);
            }
        }
    }

    fn define(&mut self, text: &str) {
        let database = self.database;
        if let Some(statement) = unparsed(text, database) {
            self.execute_unparsed(statement);
        } else if let Some(statement) = parse(text, database) {
            self.execute(statement);
        } else if let Some(table) = salvage(text, database) {
            let name = table.name.clone();
            self.create(table);
            if let Some(table) = self.existing_mut(&name) {
                table.is_complete = false;
            }
        } else {
            self.doubt(text);
        }
    }

    /// A statement that cannot be read as a whole may add columns to every table that it names.
    fn doubt(&mut self, statement: &str) {
        let words: Vec<_> = statement.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for table in &mut self.tables {
            table.is_complete &= !words.iter().any(|word| word.eq_ignore_ascii_case(&table.name.table));
        }
    }

    fn execute(&mut self, statement: Statement) {
        match statement {
            Statement::CreateTable(create) => self.create(create),
            Statement::CreateIndex(index) => self.index(&index),
            Statement::CreateView(view) if !view.temporary => {
                if let Some(name) = self.new_name(&view.name) {
                    let text = view.query.to_string();
                    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect();
                    self.views.retain(|other| other.name != name);
                    self.views.push(View { name, words });
                }
            }
            Statement::Drop { object_type, names, .. } => {
                for name in names {
                    self.drop(object_type, &name);
                }
            }
            Statement::AlterTable(alter) => {
                let Some(mut name) = self.existing(&alter.name) else { return };
                for operation in alter.operations {
                    name = self.alter(name, operation);
                }
            }
            Statement::AlterIndex { name, operation: AlterIndexOperation::RenameIndex { index_name } } => {
                let (old, new) = (self.last_part(&name), self.last_part(&index_name));
                for table in self.tables_with_index(&name) {
                    table.rename_constraint(&old, &new);
                }
            }
            Statement::AlterSchema(alter) if self.has_schemas() => {
                for operation in alter.operations {
                    if let AlterSchemaOperation::Rename { name } = operation {
                        let (old, new) =
                            (self.schema(&self.last_part(&alter.name)), self.schema(&self.last_part(&name)));
                        self.rename_tables(|name| {
                            (name.schema == old).then(|| TableName { schema: new.clone(), ..name.clone() })
                        });
                    }
                }
            }
            Statement::Set(Set::SingleAssignment { variable, values, .. }) if is_search_path(&variable) => {
                let path = values.iter().filter_map(schema_value);
                let path: Vec<_> = path.filter(|ident| ident.value != "$user").collect();
                self.set_search_path(&path);
            }
            Statement::Reset(reset) => match reset.reset {
                Reset::ConfigurationParameter(variable) if !is_search_path(&variable) => {}
                Reset::SessionAuthorization => {}
                Reset::ConfigurationParameter(_) | Reset::ALL => self.search_path = vec![None],
            },
            _ => {}
        }
    }

    fn execute_unparsed(&mut self, statement: Unparsed) {
        match statement {
            Unparsed::MoveTable { table, schema } => {
                let Some(old) = self.existing(&table) else { return };
                let schema = self.schema(&spelled(&schema, self.database));
                let new = TableName { schema, ..old.clone() };
                self.rename_tables(|name| (*name == old).then(|| new.clone()));
            }
            Unparsed::SetSchema(schema) => self.set_search_path(&[schema]),
            Unparsed::CreateTrigger { name, table } => {
                let name = self.last_part(&name);
                if let Some(table) = self.existing_mut(&table) {
                    table.triggers.push(name);
                }
            }
            Unparsed::DropTrigger { name } => {
                let (name, database) = (self.last_part(&name), self.database);
                for table in &mut self.tables {
                    table.triggers.retain(|trigger| !database.same_name(trigger, &name));
                }
            }
        }
    }

    fn create(&mut self, create: CreateTable) {
        if create.temporary {
            // It is gone when the connection is.
            self.temporary.push(self.last_part(&create.name));
            return;
        }
        let Some(name) = self.new_name(&create.name) else { return };
        // One that is there is not made again.
        if create.if_not_exists && self.tables.iter().any(|table| self.same(&table.name, &name)) {
            return;
        }
        let mut table = Table::new(name.clone(), self.database);
        table.unlogged = create.unlogged;
        // Others come from a query, or from the table that it is like, inherits from or is a part of.
        table.is_complete = create.query.is_none()
            && create.like.is_none()
            && create.inherits.is_none()
            && create.partition_of.is_none()
            && !create.columns.is_empty();
        self.remove(&name);
        self.tables.push(table);
        for column in create.columns {
            self.add_column(&name, column);
        }
        for constraint in create.constraints {
            self.add_constraint(&name, constraint);
        }
    }

    fn add_column(&mut self, table: &TableName, column: ColumnDef) {
        let name = spelled(&column.name, self.database);
        let key = column.options.iter().find_map(|option| match &option.option {
            ColumnOption::ForeignKey(key) => Some((option.name.clone(), key.clone())),
            _ => None,
        });
        let is_there = self.get(table).is_some_and(|table| table.column(&name).is_some());
        if let Some(table) = self.get_mut(table) {
            table.add_column(column);
        }
        if let Some((constraint, key)) = key.filter(|_| !is_there) {
            self.add_reference(table, constraint.as_ref(), vec![name], &key);
        }
    }

    fn add_constraint(&mut self, table: &TableName, constraint: TableConstraint) {
        if let TableConstraint::ForeignKey(key) = &constraint {
            let columns = key.columns.iter().map(|column| spelled(column, self.database)).collect();
            self.add_reference(table, None, columns, key);
        } else if let Some(table) = self.get_mut(table) {
            table.add_constraint(constraint);
        }
    }

    fn add_reference(
        &mut self,
        table: &TableName,
        constraint: Option<&Ident>,
        columns: Vec<String>,
        key: &ForeignKeyConstraint,
    ) {
        if let Some(to) = self.existing(&key.foreign_table)
            && let Some(table) = self.get_mut(table)
        {
            table.add_reference(constraint, columns, to, key);
        }
    }

    fn index(&mut self, index: &CreateIndex) {
        let name = index.name.as_ref().map(|name| self.last_part(name));
        if let Some(table) = self.existing_mut(&index.table_name) {
            table.add_index(name, index);
        }
    }

    fn drop(&mut self, kind: ObjectType, name: &ObjectName) {
        match kind {
            ObjectType::Table => {
                let last = self.last_part(name);
                if name.0.len() == 1 && self.is_temporary(&last) {
                    self.temporary.retain(|temporary| *temporary != last);
                } else if let Some(name) = self.existing(name) {
                    self.remove(&name);
                }
            }
            ObjectType::View | ObjectType::MaterializedView => {
                if let Some(name) = self.existing(name) {
                    self.views.retain(|view| view.name != name);
                }
            }
            ObjectType::Index => {
                let index = self.last_part(name);
                for table in self.tables_with_index(name) {
                    table.drop_index(&index);
                }
            }
            ObjectType::Schema if self.has_schemas() => {
                let schema = self.schema(&self.last_part(name));
                let gone: Vec<_> = self.tables.iter().map(|table| table.name.clone()).collect();
                for name in gone.iter().filter(|name| name.schema == schema) {
                    self.remove(name);
                }
                self.views.retain(|view| view.name.schema != schema);
            }
            _ => {}
        }
    }

    /// Returns the table's name after the operation.
    fn alter(&mut self, name: TableName, operation: AlterTableOperation) -> TableName {
        match operation {
            AlterTableOperation::RenameTable {
                table_name: RenameTableNameKind::To(new) | RenameTableNameKind::As(new),
            } => {
                let new = TableName { table: self.last_part(&new), schema: name.schema.clone() };
                let database = self.database;
                self.rename_tables(|other| same(other, &name, database).then(|| new.clone()));
                return new;
            }
            AlterTableOperation::AddColumn { column_def, .. } => self.add_column(&name, column_def),
            AlterTableOperation::AddConstraint { constraint, .. } => self.add_constraint(&name, constraint),
            operation => {
                if let AlterTableOperation::RenameColumn { old_column_name: old, new_column_name: new } = &operation {
                    self.rename_referenced(&name, &spelled(old, self.database), &spelled(new, self.database));
                }
                if let Some(table) = self.get_mut(&name) {
                    table.alter(operation);
                }
            }
        }
        name
    }

    fn rename_referenced(&mut self, table: &TableName, old: &str, new: &str) {
        let database = self.database;
        let references = self.tables.iter_mut().flat_map(|table| &mut table.references);
        for column in references.filter(|key| same(&key.to, table, database)).flat_map(|key| &mut key.to_columns) {
            if database.same_name(column, old) {
                new.clone_into(column);
            }
        }
    }

    /// Foreign keys and views follow a table, in `SQLite` as in `PostgreSQL`.
    fn rename_tables(&mut self, rename: impl Fn(&TableName) -> Option<TableName>) {
        for (old, new) in self.tables.iter().filter_map(|table| Some((&table.name, rename(&table.name)?))) {
            for word in self.views.iter_mut().flat_map(|view| &mut view.words) {
                if word.eq_ignore_ascii_case(&old.table) {
                    word.clone_from(&new.table);
                }
            }
        }
        let renamed: Vec<_> = self.tables.iter().filter_map(|table| rename(&table.name)).collect();
        self.tables.retain(|table| rename(&table.name).is_some() || !renamed.contains(&table.name));
        for table in &mut self.tables {
            let references = table.references.iter_mut().map(|reference| &mut reference.to);
            for name in references.chain([&mut table.name]) {
                if let Some(new) = rename(name) {
                    *name = new;
                }
            }
        }
    }

    fn remove(&mut self, name: &TableName) {
        let database = self.database;
        self.tables.retain(|table| !same(&table.name, name, database));
        match database {
            // A foreign key stays, and finds the next table of that name.
            Database::Sqlite => {}
            Database::Postgres => {
                for table in &mut self.tables {
                    table.references.retain(|reference| reference.to != *name);
                }
            }
        }
    }

    fn get(&self, name: &TableName) -> Option<&Table> {
        self.tables.iter().find(|table| self.same(&table.name, name))
    }

    fn get_mut(&mut self, name: &TableName) -> Option<&mut Table> {
        let database = self.database;
        self.tables.iter_mut().find(|table| same(&table.name, name, database))
    }

    fn existing_mut(&mut self, name: &ObjectName) -> Option<&mut Table> {
        let name = self.existing(name)?;
        self.get_mut(&name)
    }

    /// The tables that may have an index of that name: it is in the schema of its table.
    fn tables_with_index(&mut self, index: &ObjectName) -> impl Iterator<Item = &mut Table> {
        let path = match self.schema_part(index) {
            Some(schema) => vec![self.schema(&schema)],
            None => self.search_path.clone(),
        };
        self.tables.iter_mut().filter(move |table| path.contains(&table.name.schema))
    }

    /// What a name in a statement means; nothing if that is temporary.
    fn existing(&self, name: &ObjectName) -> Option<TableName> {
        let first = self.new_name(name)?;
        if self.schema_part(name).is_some() {
            return Some(first);
        }
        if self.is_temporary(&first.table) {
            return None;
        }
        let mut along = self.search_path.iter().map(|schema| TableName { schema: schema.clone(), ..first.clone() });
        let is_there =
            |name: &TableName| self.get(name).is_some() || self.views.iter().any(|view| self.same(&view.name, name));
        Some(along.find(is_there).unwrap_or(first))
    }

    /// Where something new of that name is put; nothing if that is temporary.
    fn new_name(&self, name: &ObjectName) -> Option<TableName> {
        let table = self.last_part(name);
        match self.schema_part(name) {
            Some(schema) if self.database.is_temporary_schema(&schema) => None,
            Some(schema) => Some(TableName { schema: self.schema(&schema), table }),
            None => Some(TableName { schema: self.search_path.first().cloned().flatten(), table }),
        }
    }

    fn has_schemas(&self) -> bool {
        self.database.default_schema().is_some()
    }

    /// Where there are no schemas, all tables are in one place.
    fn schema(&self, name: &str) -> Option<String> {
        let default = self.database.default_schema()?;
        Some(name.to_owned()).filter(|name| name != default)
    }

    fn set_search_path(&mut self, schemas: &[Ident]) {
        let path: Vec<_> = schemas.iter().map(|schema| self.schema(&spelled(schema, self.database))).collect();
        self.search_path = if path.is_empty() { vec![None] } else { path };
    }

    fn is_temporary(&self, name: &str) -> bool {
        self.temporary.iter().any(|temporary| self.database.same_name(temporary, name))
    }

    fn same(&self, one: &TableName, other: &TableName) -> bool {
        same(one, other, self.database)
    }

    fn last_part(&self, name: &ObjectName) -> String {
        let ident = name.0.last().and_then(|part| part.as_ident());
        ident.map(|ident| spelled(ident, self.database)).unwrap_or_default()
    }

    fn schema_part(&self, name: &ObjectName) -> Option<String> {
        let ident = name.0.len().checked_sub(2).and_then(|place| name.0[place].as_ident())?;
        Some(spelled(ident, self.database))
    }
}

fn same(one: &TableName, other: &TableName, database: Database) -> bool {
    one.schema == other.schema && database.same_name(&one.table, &other.table)
}

fn is_search_path(variable: &ObjectName) -> bool {
    variable.to_string().eq_ignore_ascii_case("search_path")
}

/// A schema as it is written behind `SET search_path =`; nothing for `DEFAULT`.
fn schema_value(value: &Expr) -> Option<Ident> {
    match value {
        Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default") => None,
        Expr::Identifier(ident) => Some(ident.clone()),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(name) => Some(Ident::with_quote('"', name.clone())),
            _ => None,
        },
        _ => None,
    }
}
