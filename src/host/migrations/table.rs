//! A table as the statements of migrations make and change it: its columns, its keys, and what is on it.

use std::fmt;

use sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, ColumnDef, ColumnOption, ColumnOptionDef, ConstraintCharacteristics,
    ConstraintUsingIndex, CreateIndex, DeferrableInitial, Expr, ForeignKeyConstraint, Ident, IndexColumn, Statement,
    TableConstraint,
};

use super::spelled;
use super::statement::{parse, rename_columns};
use crate::database::{Database, Dialect as _};

/// A table's name with its schema; without one it is in the default schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    pub schema: Option<String>,
    pub table: String,
}

impl TableName {
    /// In the default schema.
    pub fn bare(table: impl Into<String>) -> Self {
        Self { schema: None, table: table.into() }
    }

    /// With the schema also where it is the default.
    pub fn full(&self, database: Database) -> String {
        let schema = self.schema.as_deref().or(database.default_schema());
        schema.into_iter().chain([self.table.as_str()]).collect::<Vec<_>>().join(".")
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.schema.iter().try_for_each(|schema| write!(f, "{schema}."))?;
        f.write_str(&self.table)
    }
}

#[derive(Debug, Clone)]
pub struct Table {
    pub name: TableName,
    pub columns: Vec<Column>,
    /// It has no other columns than these.
    pub is_complete: bool,
    /// Also indexes that are no key.
    keys: Vec<Key>,
    pub references: Vec<Reference>,
    /// By name.
    pub triggers: Vec<String>,
    /// On `PostgreSQL`, other tables cannot refer to it.
    pub unlogged: bool,
    database: Database,
}

#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    /// The declared type in upper case; empty if there is none.
    pub declared: String,
    definition: ColumnDef,
}

#[derive(Debug, Clone)]
struct Key {
    name: String,
    columns: Vec<String>,
    kind: KeyKind,
    /// A foreign key can refer to it.
    usable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Primary,
    Unique,
    /// By `CREATE INDEX`, unique or not.
    Index,
}

/// A foreign key.
#[derive(Debug, Clone)]
pub struct Reference {
    name: String,
    columns: Vec<String>,
    pub to: TableName,
    /// Nothing if it is the primary key.
    pub to_columns: Vec<String>,
}

impl Column {
    /// As in `CREATE TABLE`, its name included.
    pub fn definition(&self) -> String {
        self.definition.to_string()
    }

    /// Its value is computed from other columns.
    pub fn generated(&self) -> bool {
        let computed = |option: &ColumnOptionDef| {
            matches!(&option.option, ColumnOption::Generated { generation_expr: Some(_), .. })
        };
        self.definition.options.iter().any(computed)
    }
}

impl Table {
    pub(super) fn new(name: TableName, database: Database) -> Self {
        Self {
            name,
            columns: Vec::new(),
            is_complete: true,
            keys: Vec::new(),
            references: Vec::new(),
            triggers: Vec::new(),
            unlogged: false,
            database,
        }
    }

    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| self.database.same_name(&column.name, name))
    }

    pub fn primary_key(&self) -> &[String] {
        self.keys.iter().find(|key| key.kind == KeyKind::Primary).map_or(&[], |key| &key.columns)
    }

    /// The columns that are each a key by themselves to which a foreign key can refer, the primary key first.
    pub fn single_keys(&self) -> Vec<&str> {
        let mut keys: Vec<_> = self.keys.iter().filter(|key| key.usable && !self.unlogged).collect();
        keys.sort_by_key(|key| key.kind != KeyKind::Primary);
        keys.into_iter().filter_map(|key| if let [column] = &*key.columns { Some(&**column) } else { None }).collect()
    }

    /// What `CREATE INDEX` made, by name.
    pub fn indexes(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().filter(|key| key.kind == KeyKind::Index).map(|key| key.name.as_str())
    }

    /// Those of them that have a column.
    pub fn indexes_on(&self, column: &str) -> impl Iterator<Item = &str> {
        let has = move |key: &&Key| key.columns.iter().any(|name| self.database.same_name(name, column));
        self.keys.iter().filter(|key| key.kind == KeyKind::Index).filter(has).map(|key| key.name.as_str())
    }

    /// Whether an index or a key starts with a column, so that its values can be looked up.
    pub fn leads_an_index(&self, column: &str) -> bool {
        let leads = |key: &Key| key.columns.first().is_some_and(|name| self.database.same_name(name, column));
        self.keys.iter().any(leads)
    }

    /// The columns that refer to a table, each by itself.
    pub fn columns_to(&self, table: &TableName) -> impl Iterator<Item = &str> {
        let is_same = |to: &TableName| to.schema == table.schema && self.database.same_name(&to.table, &table.table);
        let references = self.references.iter().filter(move |reference| is_same(&reference.to));
        references.filter_map(|reference| if let [column] = &*reference.columns { Some(&**column) } else { None })
    }

    pub(super) fn add_column(&mut self, definition: ColumnDef) -> &mut Self {
        let name = spelled(&definition.name, self.database);
        if self.column(&name).is_some() {
            return self;
        }
        let declared = definition.data_type.to_string().to_uppercase();
        self.columns.push(Column { name: name.clone(), declared, definition: definition.clone() });
        for ColumnOptionDef { name: constraint, option } in definition.options {
            let columns = vec![name.clone()];
            match option {
                ColumnOption::PrimaryKey(key) => {
                    self.add_key(constraint.as_ref(), KeyKind::Primary, columns, key.characteristics.as_ref());
                }
                ColumnOption::Unique(key) => {
                    self.add_key(constraint.as_ref(), KeyKind::Unique, columns, key.characteristics.as_ref());
                }
                _ => {}
            }
        }
        self
    }

    pub(super) fn add_constraint(&mut self, constraint: TableConstraint) {
        match constraint {
            TableConstraint::PrimaryKey(key) => {
                let columns = self.plain(&key.columns).unwrap_or_default();
                self.add_key(key.name.as_ref(), KeyKind::Primary, columns, key.characteristics.as_ref());
            }
            TableConstraint::Unique(key) => {
                let columns = self.plain(&key.columns).unwrap_or_default();
                self.add_key(key.name.as_ref(), KeyKind::Unique, columns, key.characteristics.as_ref());
            }
            TableConstraint::PrimaryKeyUsingIndex(using) => self.promote(&using, KeyKind::Primary),
            TableConstraint::UniqueUsingIndex(using) => self.promote(&using, KeyKind::Unique),
            _ => {}
        }
    }

    /// A foreign key of a column or of the table.
    pub(super) fn add_reference(
        &mut self,
        name: Option<&Ident>,
        columns: Vec<String>,
        to: TableName,
        key: &ForeignKeyConstraint,
    ) {
        let name = self.constraint_name(name.or(key.name.as_ref()), &columns, "fkey");
        let to_columns = key.referred_columns.iter().map(|column| spelled(column, self.database)).collect();
        self.references.push(Reference { name, columns, to, to_columns });
    }

    pub(super) fn add_index(&mut self, name: Option<String>, index: &CreateIndex) {
        let columns = self.plain(&index.columns);
        // An index with a predicate holds for some rows only.
        let usable = index.unique && index.predicate.is_none() && columns.is_some();
        let columns = columns.unwrap_or_default();
        let name = name.unwrap_or_else(|| self.constraint_name(None, &columns, "idx"));
        if !self.keys.iter().any(|key| self.database.same_name(&key.name, &name)) {
            self.keys.push(Key { name, columns, kind: KeyKind::Index, usable });
        }
    }

    pub(super) fn drop_index(&mut self, name: &str) {
        let database = self.database;
        self.keys.retain(|key| key.kind != KeyKind::Index || !database.same_name(&key.name, name));
    }

    pub(super) fn rename_constraint(&mut self, old: &str, new: &str) {
        let names = self.keys.iter_mut().map(|key| &mut key.name);
        for name in names.chain(self.references.iter_mut().map(|reference| &mut reference.name)) {
            if self.database.same_name(name, old) {
                new.clone_into(name);
            }
        }
    }

    pub(super) fn alter(&mut self, operation: AlterTableOperation) {
        let database = self.database;
        match operation {
            AlterTableOperation::AddConstraint { constraint, .. } => self.add_constraint(constraint),
            AlterTableOperation::DropConstraint { name, .. } => {
                let name = spelled(&name, database);
                self.keys.retain(|key| key.kind == KeyKind::Index || !database.same_name(&key.name, &name));
                self.references.retain(|reference| !database.same_name(&reference.name, &name));
            }
            AlterTableOperation::RenameConstraint { old_name, new_name } => {
                self.rename_constraint(&spelled(&old_name, database), &spelled(&new_name, database));
            }
            AlterTableOperation::DropColumn { column_names, .. } => {
                for dropped in column_names.iter().map(|name| spelled(name, database)) {
                    let has = |columns: &[String]| columns.iter().any(|name| database.same_name(name, &dropped));
                    self.columns.retain(|column| !database.same_name(&column.name, &dropped));
                    self.keys.retain(|key| !has(&key.columns));
                    self.references.retain(|reference| !has(&reference.columns));
                }
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                self.rename_column(&spelled(&old_column_name, database), &new_column_name);
            }
            AlterTableOperation::AlterColumn { column_name, op } => {
                let name = spelled(&column_name, database);
                if let Some(column) = self.columns.iter_mut().find(|column| database.same_name(&column.name, &name)) {
                    column.alter(op);
                }
            }
            AlterTableOperation::SetLogged => self.unlogged = false,
            AlterTableOperation::SetUnlogged => self.unlogged = true,
            _ => {}
        }
    }

    fn rename_column(&mut self, old: &str, new: &Ident) {
        let database = self.database;
        let name = spelled(new, database);
        for column in &mut self.columns {
            if database.same_name(&column.name, old) {
                column.name.clone_from(&name);
                column.definition.name = new.clone();
            }
            let text = column.definition();
            let renamed =
                rename_columns(&text, database, |name| database.same_name(name, old).then(|| new.to_string()));
            if renamed != text
                && let Some(Statement::CreateTable(create)) = parse(&format!("CREATE TABLE t ({renamed})"), database)
                && let Some(definition) = create.columns.into_iter().next()
            {
                column.definition = definition;
            }
        }
        let of_keys = self.keys.iter_mut().flat_map(|key| &mut key.columns);
        for column in of_keys.chain(self.references.iter_mut().flat_map(|reference| &mut reference.columns)) {
            if database.same_name(column, old) {
                column.clone_from(&name);
            }
        }
    }

    /// A table has one primary key, so a new one takes the place of the old.
    fn add_key(
        &mut self,
        name: Option<&Ident>,
        kind: KeyKind,
        columns: Vec<String>,
        characteristics: Option<&ConstraintCharacteristics>,
    ) {
        let name = match kind {
            KeyKind::Primary => self.constraint_name(name, &[], "pkey"),
            KeyKind::Unique | KeyKind::Index => self.constraint_name(name, &columns, "key"),
        };
        let usable = !columns.is_empty() && !self.is_deferrable(characteristics);
        self.keys.retain(|key| kind != KeyKind::Primary || key.kind != kind);
        self.keys.push(Key { name, columns, kind, usable });
    }

    /// An index becomes a constraint.
    fn promote(&mut self, using: &ConstraintUsingIndex, kind: KeyKind) {
        let (database, deferrable) = (self.database, self.is_deferrable(using.characteristics.as_ref()));
        let index = spelled(&using.index_name, database);
        if let Some(key) = self.keys.iter_mut().find(|key| database.same_name(&key.name, &index)) {
            key.name = using.name.as_ref().map_or(index, |name| spelled(name, database));
            key.kind = kind;
            key.usable &= !deferrable;
        }
    }

    fn is_deferrable(&self, characteristics: Option<&ConstraintCharacteristics>) -> bool {
        let deferrable = characteristics.is_some_and(|characteristics| {
            characteristics.deferrable == Some(true) || characteristics.initially == Some(DeferrableInitial::Deferred)
        });
        match self.database {
            // It has no such keys, and reads the word as one about a foreign key.
            Database::Sqlite => false,
            Database::Postgres => deferrable,
        }
    }

    /// The name that was given, or the one that `PostgreSQL` chooses. Those that it would have to cut are not found again.
    fn constraint_name(&self, given: Option<&Ident>, columns: &[String], suffix: &str) -> String {
        let chosen = || {
            let columns = columns.iter().map(String::as_str);
            [self.name.table.as_str()].into_iter().chain(columns).chain([suffix]).collect::<Vec<_>>().join("_")
        };
        given.map_or_else(chosen, |name| spelled(name, self.database))
    }

    /// The names, if what is indexed are columns and no expressions.
    fn plain(&self, columns: &[IndexColumn]) -> Option<Vec<String>> {
        let name = |column: &IndexColumn| match &column.column.expr {
            Expr::Identifier(name) => Some(spelled(name, self.database)),
            _ => None,
        };
        columns.iter().map(name).collect()
    }
}

impl Column {
    fn alter(&mut self, operation: AlterColumnOperation) {
        let options = &mut self.definition.options;
        match operation {
            AlterColumnOperation::SetDataType { data_type, .. } => {
                self.declared = data_type.to_string().to_uppercase();
                self.definition.data_type = data_type;
            }
            AlterColumnOperation::SetNotNull => {
                options.retain(|option| !matches!(option.option, ColumnOption::Null | ColumnOption::NotNull));
                options.push(ColumnOptionDef { name: None, option: ColumnOption::NotNull });
            }
            AlterColumnOperation::DropNotNull => {
                options.retain(|option| !matches!(option.option, ColumnOption::NotNull));
            }
            AlterColumnOperation::SetDefault { value } => {
                options.retain(|option| !matches!(option.option, ColumnOption::Default(_)));
                options.push(ColumnOptionDef { name: None, option: ColumnOption::Default(value) });
            }
            AlterColumnOperation::DropDefault => {
                options.retain(|option| !matches!(option.option, ColumnOption::Default(_)));
            }
            AlterColumnOperation::AddGenerated { .. } => {}
        }
    }
}
