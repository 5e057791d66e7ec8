//! Migrations that are written in Rust, for sea-orm-migration, Loco and refinery, as the SQL that they run: strings as
//! they are, and the calls of sea-query that make, change and drop tables. What else they do is passed over.

use std::collections::BTreeMap;

use heck::ToSnakeCase as _;
use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprCall, ExprMethodCall, File, ImplItemFn, Item, ItemFn, Lit, Meta};

use crate::database::Database;
use crate::names;

/// The names that `Users::Table` and `Users::Id` stand for, of all migrations of a host: one may use another's.
#[derive(Debug, Default)]
pub struct Idens(BTreeMap<(String, String), String>);

impl Idens {
    pub fn read(&mut self, text: &str) {
        let Ok(file) = syn::parse_file(text) else { return };
        for item in &file.items {
            match item {
                Item::Enum(item) if is_iden(&item.attrs) => {
                    let name = item.ident.unraw().to_string();
                    let table = given_name(&item.attrs).unwrap_or_else(|| name.to_snake_case());
                    for variant in &item.variants {
                        let ident = variant.ident.unraw().to_string();
                        let own = given_name(&variant.attrs);
                        let own = own.unwrap_or(if ident == "Table" { table.clone() } else { ident.to_snake_case() });
                        self.0.insert((name.clone(), ident), own);
                    }
                }
                Item::Struct(item) if is_iden(&item.attrs) => {
                    let name = item.ident.unraw().to_string();
                    let own = given_name(&item.attrs).unwrap_or_else(|| name.to_snake_case());
                    self.0.insert((String::new(), name), own);
                }
                _ => {}
            }
        }
    }
}

/// The SQL that a migration runs on the way up.
pub fn sql(text: &str, idens: &Idens, database: Database) -> Vec<String> {
    let Ok(file) = syn::parse_file(text) else { return Vec::new() };
    let mut reader = Reader { idens, strings: strings(&file), database, statements: Vec::new() };
    reader.visit_file(&file);
    reader.statements
}

/// The strings of a file, in order: all that a migration of ours consists of, however it is formatted.
pub fn literals(text: &str) -> Option<Vec<String>> {
    struct Literals(Vec<String>);
    impl<'ast> Visit<'ast> for Literals {
        fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
            self.0.push(literal.value().replace("\r\n", "\n"));
        }

        fn visit_attribute(&mut self, _: &'ast Attribute) {}
    }
    let mut literals = Literals(Vec::new());
    literals.visit_file(&syn::parse_file(text).ok()?);
    Some(literals.0)
}

/// The constants that are strings.
fn strings(file: &File) -> BTreeMap<String, String> {
    let constants = file.items.iter().filter_map(|item| match item {
        Item::Const(item) => Some((item.ident.to_string(), string(&item.expr)?)),
        Item::Static(item) => Some((item.ident.to_string(), string(&item.expr)?)),
        _ => None,
    });
    constants.collect()
}

fn string(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value().replace("\r\n", "\n")),
            _ => None,
        },
        Expr::Reference(reference) => string(&reference.expr),
        _ => None,
    }
}

struct Reader<'a> {
    idens: &'a Idens,
    strings: BTreeMap<String, String>,
    database: Database,
    statements: Vec<String>,
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if item.sig.ident != "down" {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if item.sig.ident != "down" {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        if let Some(statements) = Chain::of(expr).and_then(|chain| self.statement(&chain)) {
            return self.statements.extend(statements);
        }
        if let Some(text) = string(expr).or_else(|| self.constant(expr)) {
            return self.statements.push(text);
        }
        visit::visit_expr(self, expr);
    }

    // The constants count where they are used.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}

    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// `Table::create().table(…).col(…)`, taken apart: what it starts from, and the calls on it.
struct Chain<'a> {
    base: &'a ExprCall,
    calls: Vec<&'a ExprMethodCall>,
}

impl<'a> Chain<'a> {
    fn of(expr: &'a Expr) -> Option<Self> {
        match expr {
            Expr::Call(base) => Some(Self { base, calls: Vec::new() }),
            Expr::MethodCall(call) => {
                let mut chain = Self::of(&call.receiver)?;
                chain.calls.push(call);
                Some(chain)
            }
            Expr::Reference(reference) => Self::of(&reference.expr),
            Expr::Paren(paren) => Self::of(&paren.expr),
            _ => None,
        }
    }

    /// The function that it starts with, and the type before it.
    fn function(&self) -> (String, String) {
        let Expr::Path(path) = &*self.base.func else { return Default::default() };
        let mut segments = path.path.segments.iter().rev().map(|segment| segment.ident.unraw().to_string());
        let function = segments.next().unwrap_or_default();
        (segments.next().unwrap_or_default(), function)
    }

    fn calls(&self, name: &str) -> impl Iterator<Item = &'a ExprMethodCall> {
        self.calls.iter().copied().filter(move |call| call.method == name)
    }

    fn has(&self, name: &str) -> bool {
        self.calls(name).next().is_some()
    }
}

impl Reader<'_> {
    /// A statement of sea-query as SQL; nothing if it is something else, and no text if it cannot be read.
    fn statement(&self, chain: &Chain) -> Option<Vec<String>> {
        let (ty, function) = chain.function();
        let table = || chain.calls("table").next().and_then(|call| self.table(call.args.first()?));
        match (ty.as_str(), function.as_str()) {
            ("Table", "create") => Some(self.create(&table()?, chain)),
            (_, "table_auto" | "table_auto_tz") => Some(self.create(&self.table(chain.base.args.first()?)?, chain)),
            ("Table", "alter") => Some(self.alter(&table()?, chain)),
            ("Table", "drop") => {
                let tables = chain.calls("table").filter_map(|call| self.table(call.args.first()?));
                Some(tables.map(|table| format!("DROP TABLE {table};")).collect())
            }
            ("Table", "rename") => {
                let mut args = chain.calls("table").next()?.args.iter();
                let (from, to) = (self.table(args.next()?)?, self.name(args.next()?)?);
                Some(vec![format!("ALTER TABLE {from} RENAME TO {};", self.quote(&to))])
            }
            ("Index", "create") => {
                let unique = if chain.has("unique") { "UNIQUE " } else { "" };
                let name = chain.calls("name").next().and_then(|call| self.name(call.args.first()?))?;
                let (name, columns) = (self.quote(&name), self.columns(chain, "col"));
                Some(vec![format!("CREATE {unique}INDEX {name} ON {} ({columns});", table()?)])
            }
            ("ForeignKey", "create") => {
                let from = chain.calls("from").chain(chain.calls("from_tbl")).next()?;
                let from = self.table(from.args.first()?)?;
                Some(vec![format!("ALTER TABLE {from} ADD {};", self.foreign_key(chain)?)])
            }
            // Of Loco.
            ("" | "schema", "create_table") => self.loco_table(chain.base),
            _ => None,
        }
    }

    fn create(&self, table: &str, chain: &Chain) -> Vec<String> {
        let mut parts = Vec::new();
        let mut is_complete = true;
        for call in &chain.calls {
            let arg = call.args.first();
            let part = match call.method.to_string().as_str() {
                "col" => arg.and_then(|arg| self.column(arg)),
                "primary_key" => {
                    let columns = arg.and_then(Chain::of).map(|index| self.columns(&index, "col"));
                    columns.map(|columns| format!("PRIMARY KEY ({columns})"))
                }
                "index" => match arg.and_then(Chain::of) {
                    Some(index) if index.has("unique") => Some(format!("UNIQUE ({})", self.columns(&index, "col"))),
                    _ => continue,
                },
                "foreign_key" => arg.and_then(Chain::of).and_then(|key| self.foreign_key(&key)),
                _ => continue,
            };
            is_complete &= part.is_some();
            parts.extend(part);
        }
        let mut statements = vec![format!("CREATE TABLE {table} ({});", parts.join(", "))];
        if !is_complete {
            // What is not known of it may be anything.
            statements.push(format!("DO {table};"));
        }
        statements
    }

    fn alter(&self, table: &str, chain: &Chain) -> Vec<String> {
        let mut statements = Vec::new();
        for call in &chain.calls {
            let mut args = call.args.iter();
            let change = match call.method.to_string().as_str() {
                "add_column" | "add_column_if_not_exists" => {
                    args.next().and_then(|arg| self.column(arg)).map(|column| format!("ADD COLUMN {column}"))
                }
                "drop_column" => {
                    args.next().and_then(|arg| self.name(arg)).map(|name| format!("DROP COLUMN {}", self.quote(&name)))
                }
                "rename_column" => {
                    let names =
                        args.next().and_then(|arg| self.name(arg)).zip(args.next().and_then(|arg| self.name(arg)));
                    names.map(|(from, to)| format!("RENAME COLUMN {} TO {}", self.quote(&from), self.quote(&to)))
                }
                _ => None,
            };
            statements.extend(change.map(|change| format!("ALTER TABLE {table} {change};")));
        }
        statements
    }

    /// `ColumnDef::new(Users::Id).integer().not_null()`, or one of the short forms: `pk_auto(Users::Id)`.
    fn column(&self, expr: &Expr) -> Option<String> {
        let chain = Chain::of(expr)?;
        let name = self.quote(&self.name(chain.base.args.first()?)?);
        let (_, function) = chain.function();
        let mut column = Column::default();
        if function.starts_with("new") {
            for call in &chain.calls {
                column.declare(&call.method.to_string(), self.database);
            }
        } else {
            column.short(&function, self.database);
            for call in &chain.calls {
                column.constrain(&call.method.to_string());
            }
        }
        Some(format!("{name} {}", column.sql()))
    }

    fn foreign_key(&self, chain: &Chain) -> Option<String> {
        let pair = |table: &str, both: &str, column: &str| {
            if let Some(call) = chain.calls(both).next() {
                let mut args = call.args.iter();
                let table = self.table(args.next()?)?;
                return Some((table, self.list(args.next()?)));
            }
            let table = chain.calls(table).next().and_then(|call| self.table(call.args.first()?));
            Some((table.unwrap_or_default(), self.columns(chain, column)))
        };
        let ((_, from), (table, to)) = (pair("from_tbl", "from", "from_col")?, pair("to_tbl", "to", "to_col")?);
        (!from.is_empty() && !table.is_empty()).then(|| format!("FOREIGN KEY ({from}) REFERENCES {table} ({to})"))
    }

    /// `create_table(m, "users", &[("id", ColType::PkAuto)], &[("teams", "")])`
    fn loco_table(&self, call: &ExprCall) -> Option<Vec<String>> {
        let mut args = call.args.iter().skip(1);
        let table = plural(&self.name(args.next()?)?.to_snake_case());
        let mut parts = Vec::new();
        for pair in tuples(args.next()?) {
            let [name, ty] = pair[..] else { return None };
            let mut column = Column::default();
            column.short(&last_segment(ty)?.to_snake_case(), self.database);
            parts.push(format!("{} {}", self.quote(&self.name(name)?.to_snake_case()), column.sql()));
        }
        for pair in args.next().into_iter().flat_map(tuples) {
            let [to, column] = pair[..] else { return None };
            let (to, column) = (self.name(to)?, self.name(column)?);
            let null = if to.ends_with('?') { "" } else { " NOT NULL" };
            let to = to.trim_end_matches('?').to_snake_case();
            let column = if column.is_empty() { format!("{}_id", singular(&to)) } else { column };
            let (to, column) = (self.quote(&plural(&to)), self.quote(&column));
            parts.push(format!("{column} INTEGER{null} REFERENCES {to} (\"id\")"));
        }
        parts.extend(["created_at", "updated_at"].map(|name| format!("\"{name}\" TIMESTAMPTZ NOT NULL")));
        Some(vec![format!("CREATE TABLE {} ({});", self.quote(&table), parts.join(", "))])
    }

    /// The names in all calls of a method.
    fn columns(&self, chain: &Chain, method: &str) -> String {
        let names = chain.calls(method).filter_map(|call| self.name(call.args.first()?));
        names.map(|name| self.quote(&name)).collect::<Vec<_>>().join(", ")
    }

    /// One name, or a tuple of several.
    fn list(&self, expr: &Expr) -> String {
        let names: Vec<_> = match expr {
            Expr::Tuple(tuple) => tuple.elems.iter().filter_map(|elem| self.name(elem)).collect(),
            expr => self.name(expr).into_iter().collect(),
        };
        names.iter().map(|name| self.quote(name)).collect::<Vec<_>>().join(", ")
    }

    /// A table, in a schema or not.
    fn table(&self, expr: &Expr) -> Option<String> {
        match expr {
            Expr::Tuple(tuple) => {
                let names: Option<Vec<_>> =
                    tuple.elems.iter().map(|elem| Some(self.quote(&self.name(elem)?))).collect();
                Some(names?.join("."))
            }
            expr => Some(self.quote(&self.name(expr)?)),
        }
    }

    /// What an identifier stands for: `Users::Id`, `Alias::new("id")`, `"id"`.
    fn name(&self, expr: &Expr) -> Option<String> {
        match expr {
            Expr::Path(path) => {
                let mut segments = path.path.segments.iter().rev().map(|segment| segment.ident.unraw().to_string());
                let last = segments.next()?;
                let key = (segments.next().unwrap_or_default(), last);
                self.idens.0.get(&key).cloned().or_else(|| self.constant(expr))
            }
            Expr::Call(call) => self.name(call.args.first()?),
            Expr::MethodCall(call) => self.name(&call.receiver),
            Expr::Reference(reference) => self.name(&reference.expr),
            expr => string(expr),
        }
    }

    fn constant(&self, expr: &Expr) -> Option<String> {
        let Expr::Path(path) = expr else { return None };
        self.strings.get(&path.path.get_ident()?.to_string()).cloned()
    }

    fn quote(&self, name: &str) -> String {
        self.database.quote(name)
    }
}

/// What sea-query is told about a column.
#[derive(Default)]
struct Column {
    declared: String,
    is_key: bool,
    is_unique: bool,
    is_required: bool,
}

impl Column {
    /// One of the short forms, `string_null`, or a type of Loco in its case, `string_null` too.
    fn short(&mut self, function: &str, database: Database) {
        let (base, is_unique) = match function.strip_suffix("_uniq").or_else(|| function.strip_suffix("_unique")) {
            Some(base) => (base, true),
            None => (function, false),
        };
        let (base, is_null) = base.strip_suffix("_null").map_or((base, false), |base| (base, true));
        let base = base.strip_suffix("_len").unwrap_or(base);
        (self.is_unique, self.is_required) = (is_unique, !is_null);
        match base {
            "pk_auto" => (self.declared, self.is_key) = ("INTEGER".to_owned(), true),
            "pk_uuid" => (self.declared, self.is_key) = ("UUID".to_owned(), true),
            base => self.declare(base, database),
        }
    }

    fn declare(&mut self, method: &str, database: Database) {
        let declared = match method.strip_suffix("_len").unwrap_or(method) {
            "tiny_integer" | "small_integer" | "tiny_unsigned" | "small_unsigned" => "SMALLINT",
            "integer" | "unsigned" => "INTEGER",
            "big_integer" | "big_unsigned" => "BIGINT",
            "string" => "VARCHAR",
            "text" => "TEXT",
            "char" => "CHAR",
            "uuid" => "UUID",
            "boolean" => "BOOLEAN",
            "float" => "REAL",
            "double" => "DOUBLE PRECISION",
            "decimal" | "money" => "DECIMAL",
            "date" => "DATE",
            "time" => "TIME",
            "date_time" | "timestamp" => "TIMESTAMP",
            "timestamp_with_time_zone" => "TIMESTAMPTZ",
            "json" => "JSON",
            "json_binary" => "JSONB",
            "binary" | "blob" | "var_binary" => match database {
                Database::Sqlite => "BLOB",
                Database::Postgres => "BYTEA",
            },
            other => return self.constrain(other),
        };
        declared.clone_into(&mut self.declared);
    }

    fn constrain(&mut self, method: &str) {
        match method {
            "primary_key" => self.is_key = true,
            "unique_key" => self.is_unique = true,
            "not_null" => self.is_required = true,
            "null" => self.is_required = false,
            _ => {}
        }
    }

    fn sql(&self) -> String {
        // A type that is not known here is known to the database.
        let declared = if self.declared.is_empty() { "CUSTOM" } else { &self.declared };
        let words = [
            (self.is_required, " NOT NULL"),
            (self.is_key, " PRIMARY KEY"),
            (self.is_unique && !self.is_key, " UNIQUE"),
        ];
        let words: String = words.into_iter().filter(|(is_on, _)| *is_on).map(|(_, word)| word).collect();
        format!("{declared}{words}")
    }
}

/// As Loco names tables, whichever form it is given.
fn plural(noun: &str) -> String {
    if noun.ends_with('s') { noun.to_owned() } else { names::plural(noun) }
}

fn singular(nouns: &str) -> String {
    match nouns.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => nouns.strip_suffix('s').unwrap_or(nouns).to_owned(),
    }
}

/// The tuples in `&[(…), (…)]` or `vec![…]`.
fn tuples(expr: &Expr) -> Vec<Vec<&Expr>> {
    match expr {
        Expr::Reference(reference) => tuples(&reference.expr),
        Expr::Array(array) => {
            let tuples = array.elems.iter().map(|elem| match elem {
                Expr::Tuple(tuple) => tuple.elems.iter().collect(),
                other => vec![other],
            });
            tuples.collect()
        }
        _ => Vec::new(),
    }
}

/// The variant of `ColType::PkAuto`, also with arguments.
fn last_segment(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        Expr::Call(call) => last_segment(&call.func),
        _ => None,
    }
}

fn is_iden(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| match &attr.meta {
        Meta::List(list) if list.path.is_ident("derive") => list.tokens.to_string().contains("Iden"),
        _ => false,
    })
}

/// `#[sea_orm(iden = "users")]` or `#[iden = "users"]`
fn given_name(attrs: &[Attribute]) -> Option<String> {
    attrs.iter().find_map(|attr| match &attr.meta {
        Meta::NameValue(pair) if pair.path.is_ident("iden") => string(&pair.value),
        Meta::List(list) if list.path.is_ident("sea_orm") || list.path.is_ident("iden") => {
            let text = list.tokens.to_string();
            let (_, value) = text.split_once("iden").or_else(|| text.split_once("rename"))?;
            Some(value.split('"').nth(1)?.to_owned())
        }
        _ => None,
    })
}
