//! The files of a context.

use sagents::SCHEMA;

use super::Files;
use super::key::{group_key, owner_column, two_owners};
use super::names::Names;
use super::scope::OwnerScope;
use super::sql::Sql;
use crate::database::{Database, Dialect as _};
use crate::host::migrations::Tool;
use crate::key::KeyType;
use crate::options::{Group, Options, Owner, Web};

/// The texts of a context's files.
#[derive(Debug)]
pub struct Context {
    module: Module,
    models: Models,
    /// Nothing if the scope has its `OwnerScope` elsewhere.
    scope: Option<OwnerScope>,
    /// Nothing without `--web`.
    routes: Option<Routes>,
    /// Nothing with `--no-tests`.
    tests: Option<Tests>,
}

impl Context {
    /// `file` is the context's own file, and `public` says whether other crates can reach it. The columns of former owners
    /// are still there.
    pub fn new(options: &Options, file: &str, public: bool, former_owners: &[String]) -> Self {
        let names = Names::new(options);
        let sql = Sql::new(options);
        Self {
            models: Models::new(options, file),
            scope: options.shared_scope.is_none().then(|| OwnerScope::new(options, &names)),
            routes: (options.web == Web::Axum).then(|| Routes::new(&names)),
            tests: options.tests.then(|| Tests::new(options, &names)),
            module: Module::new(options, &names, sql, public, former_owners),
        }
    }

    pub fn files(&self) -> Files {
        let Self { module, models, scope, routes, tests } = self;
        let mut files = vec![
            (None, module.context()),
            (Some("agent_state"), models.agent_state()),
            (Some("conversation"), models.conversation()),
            (Some("display_message"), models.display_message()),
        ];
        files.extend(scope.as_ref().map(|scope| (Some("scope"), scope.text())));
        files.extend(tests.as_ref().map(|tests| (Some("tests"), tests.text())));
        files.extend(routes.as_ref().map(|routes| (Some("web"), routes.text())));
        files
    }
}

templates! {
    Module {
        sqlite: bool,
        /// The module of the library for this database.
        database: &'static str,
        /// The context's type: `Conversations`.
        context: String,
        /// Other crates can reach it, so calls that it doesn't use itself are no dead code.
        public: bool,
        /// The context brings the scope's type.
        is_own: bool,
        scope_name: String,
        /// It has a `scope.rs`.
        scope: bool,
        tests: bool,
        web: bool,
        schema: u32,
        prefix: String,
        owner_column: String,
        /// Who else may own a conversation: `user`.
        noun: String,
        group: Option<ModuleGroup>,
        /// The columns of former owners, as Rust strings.
        former_owners: Option<String>,
        sql: Sql,
    }
    context: "context/context.rs",
}

impl Module {
    fn new(options: &Options, names: &Names, sql: Sql, public: bool, former_owners: &[String]) -> Self {
        let Options { owner, group, prefix, database, .. } = options;
        Self {
            sqlite: *database == Database::Sqlite,
            database: database.name(),
            context: names.context.clone(),
            public,
            is_own: names.is_own,
            scope_name: names.scope.clone(),
            scope: options.shared_scope.is_none(),
            tests: options.tests,
            web: options.web == Web::Axum,
            schema: SCHEMA,
            prefix: prefix.as_str().to_owned(),
            owner_column: owner_column(owner.as_ref()),
            noun: owner.as_ref().map_or_else(|| "owner".to_owned(), |owner| owner.noun.to_string()),
            group: group.as_ref().map(ModuleGroup::new),
            former_owners: (!former_owners.is_empty())
                .then(|| former_owners.iter().map(|column| format!("{column:?}")).collect::<Vec<_>>().join(", ")),
            sql,
        }
    }
}

/// The group as `Tables` names it.
#[derive(Debug)]
struct ModuleGroup {
    table: String,
    column: String,
    kind: &'static str,
    member: String,
}

impl ModuleGroup {
    fn new(group: &Group) -> Self {
        let table = &group.table;
        Self {
            table: table.schema.iter().chain([&table.name]).map(String::as_str).collect::<Vec<_>>().join("."),
            column: table.group.clone(),
            kind: match group.key {
                KeyType::Integer => "Integer",
                KeyType::Uuid => "Uuid",
                KeyType::Text | KeyType::UuidText => "Text",
            },
            member: table.member.clone(),
        }
    }
}

templates! {
    Models {
        prefix: String,
        /// The context's own file, which has the statements.
        file: String,
        /// The owner's column.
        owner_column: String,
        owner: Option<OwnerField>,
        /// The type of the database's rows, and the path of its import below `sqlx`.
        row: &'static str,
        row_import: &'static str,
    }
    agent_state: "context/agent_state.rs",
    conversation: "context/conversation.rs",
    display_message: "context/display_message.rs",
}

impl Models {
    fn new(options: &Options, file: &str) -> Self {
        let (row, row_import) = match options.database {
            Database::Sqlite => ("SqliteRow", "sqlite::SqliteRow"),
            Database::Postgres => ("PgRow", "postgres::PgRow"),
        };
        Self {
            prefix: options.prefix.as_str().to_owned(),
            file: file.to_owned(),
            owner_column: options.owner_column().name,
            owner: options.owner.as_ref().map(OwnerField::new),
            row,
            row_import,
        }
    }
}

/// The owner's column as a field of a model.
#[derive(Debug)]
struct OwnerField {
    noun: String,
    field: String,
    rust_type: &'static str,
    /// The call that reads it from a row.
    get: String,
}

impl OwnerField {
    fn new(owner: &Owner) -> Self {
        let column = owner.field.as_str();
        Self {
            noun: owner.noun.to_string(),
            field: owner.field.rust(),
            rust_type: owner.key.rust_type(),
            get: match owner.key {
                KeyType::UuidText => format!(".try_get::<sqlx::types::Text<Uuid>, _>(\"{column}\")?.into_inner()"),
                KeyType::Integer | KeyType::Text | KeyType::Uuid => format!(".try_get(\"{column}\")?"),
            },
        }
    }
}

templates! {
    Routes {
        /// The context's type.
        context: String,
        /// The scope's type, and the import that names it so.
        scope_name: String,
        scope_import: Option<String>,
    }
    text: "context/web.rs",
}

impl Routes {
    fn new(names: &Names) -> Self {
        let Names { context, scope, scope_import, .. } = names;
        Self { context: context.clone(), scope_name: scope.clone(), scope_import: scope_import.clone() }
    }
}

templates! {
    Tests {
        sqlite: bool,
        database: &'static str,
        context: String,
        scope_name: String,
        scope_import: Option<String>,
        has_owner: bool,
        /// Two owners, as Rust expressions.
        alice: String,
        bob: String,
        /// The directory of the migrations; nothing if they are no SQL files.
        migrations: Option<String>,
        /// The key of a group, as a Rust expression.
        group: Option<&'static str>,
    }
    text: "context/tests.rs",
}

impl Tests {
    fn new(options: &Options, names: &Names) -> Self {
        let Options { owner, group, database, .. } = options;
        let (alice, bob) = two_owners(owner.as_ref());
        Self {
            sqlite: *database == Database::Sqlite,
            database: database.name(),
            context: names.context.clone(),
            scope_name: names.scope.clone(),
            scope_import: names.scope_import.clone(),
            has_owner: owner.is_some(),
            alice,
            bob,
            migrations: match &options.found.tool {
                Tool::SeaOrm { .. } => None,
                _ => Some(options.migrations.to_string()),
            },
            group: group.as_ref().map(|group| group_key(group.key)),
        }
    }
}
