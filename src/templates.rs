//! One askama struct per template, with fields ready to print. Decisions are made here, layout in `templates/`.

pub mod example;

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use camino::Utf8PathBuf;

use crate::database::Database;
use crate::host::source::{Access, Around, Seen, Step, Take};
use crate::key::KeyType;
use crate::names::{Name, TablePrefix, TypePath, crate_name};
use crate::options::{Group, GroupTable, NewOwners, Options, Owner, ScopeOrigin, Web, is_reserved};
use crate::time_crate::TimeCrate;

/// How generated tests make the tables.
#[derive(Debug)]
pub enum Tables {
    /// By the migration, relative to the package.
    Script(Utf8PathBuf),
    /// By the tables as they are now: migrations that changed them need the host's own tables and rows.
    Text(String),
}

/// The texts of a context's files.
#[derive(Debug)]
pub struct Context {
    database: Database,
    api: Api,
    models: Models,
    scope: OwnerScope,
    store: Store,
    /// Nothing with `--no-tests`.
    tests: Option<Tests>,
}

impl Context {
    /// `openai`: the package has a model that is asked through `async-openai`.
    pub fn new(options: &Options, public: bool, openai: bool, tables: &Tables) -> Self {
        let Options {
            context,
            scope,
            scope_origin,
            owner,
            group,
            prefix,
            database,
            database_shown_by: _,
            migrations: _,
            web,
            tests,
            wire: _,
            sqlx_name: _,
            sea_orm,
            time_crate: _,
            backfill: _,
            found: _,
            notes: _,
        } = options;
        let name = context.last().camel();
        let is_hidden = is_reserved(&scope.name, *web) || scope.name == name;
        let scope_name = if is_hidden { scope.rust() } else { scope.name.clone() };
        let is_free = &|ty: &TypePath| !is_reserved(&ty.name, *web) && ty.name != name && ty.name != scope.name;
        let is_own = *scope_origin == ScopeOrigin::Context;
        // One that the context brings is beside every file that names it.
        let scope_name = if is_own { scope.name.clone() } else { scope_name };
        let scope_import = match scope_origin {
            ScopeOrigin::Context => Some(format!("super::{scope_name}")),
            ScopeOrigin::Host | ScopeOrigin::Created => (!is_hidden).then(|| scope.rust()),
        };
        let table = |suffix: &str| table(*database, prefix, suffix);
        let column = |owner: &Owner| database.quote(owner.field.as_str());
        Self {
            database: *database,
            models: Models {
                prefix: prefix.as_str().to_owned(),
                owner: owner.as_ref().map(|owner| OwnerField {
                    noun: owner.noun.to_string(),
                    field: owner.field.to_string(),
                    rust_type: owner.key.rust_type(),
                }),
                scope_example: match owner {
                    Some(owner) => format!(r#"{{"type": "{}", "id": {}}}"#, owner.noun, example(owner.key)),
                    None => r#"{"type": "none"}"#.to_owned(),
                },
            },
            scope: OwnerScope {
                scope_name: scope_name.clone(),
                imports: imports(
                    scope_import.iter().filter(|_| !is_own).cloned(),
                    owner
                        .iter()
                        .map(|owner| &owner.access)
                        .chain(group.iter().filter_map(|group| group.access.as_ref())),
                    is_free,
                ),
                is_own,
                uses_uuid: owner.as_ref().map(|owner| owner.key).is_some_and(is_uuid)
                    || group.as_ref().map(|group| group.key).is_some_and(is_uuid),
                owner: owner.as_ref().map(|owner| ScopeOwner::new(owner, is_free)),
                group: group.as_ref().map(|group| ScopeGroup::new(group, is_free)),
            },
            store: Store::new(options),
            tests: tests.then(|| Tests {
                context: name.clone(),
                module: context.last().to_string(),
                agent_states: table("agent_states"),
                agent_messages: table("agent_messages"),
                has_owner: owner.is_some(),
                owner: owner.as_ref().map(|owner| {
                    let (alice, bob) = two_keys(owner.key);
                    TestOwner { column: column(owner), alice, bob }
                }),
                stand_in: owner.as_ref().and_then(|owner| stand_in(owner, group.as_ref(), *database)),
                group: owner.as_ref().zip(group.as_ref()).map(|(owner, group)| TestGroup::new(owner, group, *database)),
                migration: match tables {
                    Tables::Script(script) => {
                        format!(r#"include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/{script}"))"#)
                    }
                    Tables::Text(text) => format!("r#\"\n{text}\"#"),
                },
            }),
            api: Api {
                context: name,
                public,
                sea_orm: *sea_orm,
                tests: *tests,
                web: *web == Web::Axum,
                openai,
                scope_name,
                scope_import,
                is_own,
            },
        }
    }

    pub fn files(&self) -> Files {
        let Self { database, api, models, scope, store, tests } = self;
        let mut files = vec![
            (None, api.context()),
            (Some("branches"), api.branches()),
            (Some("changes"), api.changes()),
            (Some("conversation"), models.conversation()),
            (Some("display_message"), models.display_message()),
            (Some("exports"), api.exports()),
            (Some("messages"), api.messages()),
            (Some("page"), include_str!("../templates/context/page.rs").to_owned()),
            (Some("runs"), api.runs()),
            (Some("scope"), scope.text()),
            (Some("sessions"), api.sessions()),
            (Some("states"), api.states()),
            (Some("tool_calls"), api.tool_calls()),
            (Some("usage"), api.usage()),
            (Some("values"), include_str!("../templates/context/values.rs").to_owned()),
        ];
        files.extend(match database {
            Database::Sqlite => vec![
                (Some("store"), store.sqlite()),
                (Some("store/branches"), store.sqlite_branches()),
                (Some("store/changes"), store.sqlite_changes()),
                (Some("store/conversations"), store.sqlite_conversations()),
                (Some("store/cuts"), store.sqlite_cuts()),
                (Some("store/exports"), store.sqlite_exports()),
                (Some("store/lease"), include_str!("../templates/store/sqlite/lease.rs").to_owned()),
                (Some("store/messages"), store.sqlite_messages()),
                (Some("store/rows"), store.sqlite_rows()),
                (Some("store/runs"), store.sqlite_runs()),
                (Some("store/states"), store.sqlite_states()),
                (Some("store/tool_calls"), store.sqlite_tool_calls()),
                (Some("store/usage"), store.sqlite_usage()),
            ],
            Database::Postgres => vec![
                (Some("store"), store.postgres()),
                (Some("store/branches"), store.postgres_branches()),
                (Some("store/changes"), store.postgres_changes()),
                (Some("store/conversations"), store.postgres_conversations()),
                (Some("store/cuts"), store.postgres_cuts()),
                (Some("store/exports"), store.postgres_exports()),
                (Some("store/lease"), include_str!("../templates/store/postgres/lease.rs").to_owned()),
                (Some("store/messages"), store.postgres_messages()),
                (Some("store/notifications"), store.postgres_notifications()),
                (Some("store/rows"), store.postgres_rows()),
                (Some("store/runs"), store.postgres_runs()),
                (Some("store/states"), store.postgres_states()),
                (Some("store/tool_calls"), store.postgres_tool_calls()),
                (Some("store/usage"), store.postgres_usage()),
            ],
        });
        if store.group.is_some() {
            files.push(match database {
                Database::Sqlite => (Some("store/groups"), store.sqlite_groups()),
                Database::Postgres => (Some("store/groups"), store.postgres_groups()),
            });
        }
        if api.web {
            files.extend(web(api));
        }
        if let Some(tests) = tests {
            let database = match database {
                Database::Sqlite => tests.sqlite_database(),
                Database::Postgres => tests.postgres_database(),
            };
            files.extend([
                (Some("tests"), tests.text()),
                (Some("tests/branches"), tests.branches()),
                (Some("tests/database"), database),
                (Some("tests/exports"), tests.exports()),
                (Some("tests/usage"), tests.usage()),
            ]);
        }
        files
    }
}

/// The routes and the page.
fn web(api: &Api) -> Files {
    macro_rules! plain {
        ($($name:literal: $path:literal,)*) => {
            [$((Some($name), include_str!(concat!("../templates/web/", $path)).to_owned()),)*]
        };
    }

    let mut files = vec![
        (Some("web"), api.web()),
        (Some("web/agent"), api.web_agent()),
        (Some("web/events"), api.web_events()),
        (Some("web/runner"), api.web_runner()),
    ];
    files.extend(plain! {
        "web/conversations": "conversations.rs",
        "web/guard": "guard.rs",
        "web/input": "input.rs",
        "web/messages": "messages.rs",
        "web/page": "page.rs",
        "web/problem": "problem.rs",
        "web/runs": "runs.rs",
        "web/streams": "streams.rs",
        "web/assets/api.js": "assets/api.js",
        "web/assets/app.css": "assets/app.css",
        "web/assets/app.js": "assets/app.js",
        "web/assets/icon.svg": "assets/icon.svg",
        "web/assets/index.html": "assets/index.html",
        "web/assets/markdown.js": "assets/markdown.js",
        "web/assets/message.js": "assets/message.js",
    });
    if api.openai {
        files.push((Some("web/openai"), api.web_openai()));
        if api.tests {
            files.extend(plain! { "web/openai/tests": "openai_tests.rs", });
        }
    }
    files
}

/// A struct of fields that are ready to print, with a method for each template that prints them.
macro_rules! templates {
    (@struct $group:ident { $($(#[$attribute:meta])* $field:ident: $type:ty,)* }) => {
        #[derive(Debug)]
        struct $group {
            $($(#[$attribute])* $field: $type,)*
        }
    };
    (@text { $($(#[$attribute:meta])* $field:ident: $type:ty,)* } $text:ident: $path:literal) => {
        fn $text(&self) -> String {
            #[derive(Template)]
            #[template(path = $path, escape = "none")]
            #[allow(dead_code, reason = "not every template prints every field")]
            struct Text<'a> {
                $($field: &'a $type,)*
            }

            let Self { $($field,)* } = self;
            render(&Text { $($field,)* })
        }
    };
    ($group:ident $fields:tt $($text:ident: $path:literal,)*) => {
        templates!(@struct $group $fields);

        impl $group {
            $(templates!(@text $fields $text: $path);)*
        }
    };
}

templates! {
    Api {
        /// The context's type: `Conversations`.
        context: String,
        /// Other crates can reach it, so what it does not use itself is no dead code.
        public: bool,
        sea_orm: bool,
        tests: bool,
        web: bool,
        /// Whether the package has a model that is asked through `async-openai`.
        openai: bool,
        /// The scope's type, and what a file imports to name it so.
        scope_name: String,
        scope_import: Option<String>,
        /// The context brings the scope's type.
        is_own: bool,
    }
    context: "context/context.rs",
    branches: "context/branches.rs",
    messages: "context/messages.rs",
    changes: "context/changes.rs",
    exports: "context/exports.rs",
    runs: "context/runs.rs",
    sessions: "context/sessions.rs",
    states: "context/states.rs",
    tool_calls: "context/tool_calls.rs",
    usage: "context/usage.rs",
    web: "web/web.rs",
    web_agent: "web/agent.rs",
    web_events: "web/events.rs",
    web_openai: "web/openai.rs",
    web_runner: "web/runner.rs",
}

templates! {
    Models {
        prefix: String,
        owner: Option<OwnerField>,
        /// What the column `scope` holds.
        scope_example: String,
    }
    conversation: "context/conversation.rs",
    display_message: "context/display_message.rs",
}

templates! {
    OwnerScope {
        scope_name: String,
        /// What is imported for it, beside what every such file imports.
        imports: Vec<String>,
        /// The scope's type is defined there.
        is_own: bool,
        uses_uuid: bool,
        owner: Option<ScopeOwner>,
        group: Option<ScopeGroup>,
    }
    text: "context/scope.rs",
}

templates! {
    Store {
        prefix: String,
        /// The names of the tables, and of the owner's column, quoted.
        conversations: String,
        agent_states: String,
        agent_messages: String,
        unreadable_states: String,
        display_messages: String,
        runs: String,
        usage: String,
        owner: Option<String>,
        owner_field: Option<String>,
        sea_orm: bool,
        /// The command that runs migrations.
        migrate: &'static str,
        owner_is_uuid_text: bool,
        /// The Rust type of the owner's column, and its least value.
        key_type: &'static str,
        least_key: &'static str,
        group: Option<StoreGroup>,
    }
    sqlite: "store/sqlite/store.rs",
    sqlite_branches: "store/sqlite/branches.rs",
    sqlite_changes: "store/sqlite/changes.rs",
    sqlite_conversations: "store/sqlite/conversations.rs",
    sqlite_cuts: "store/sqlite/cuts.rs",
    sqlite_exports: "store/sqlite/exports.rs",
    sqlite_groups: "store/sqlite/groups.rs",
    sqlite_messages: "store/sqlite/messages.rs",
    sqlite_rows: "store/sqlite/rows.rs",
    sqlite_runs: "store/sqlite/runs.rs",
    sqlite_states: "store/sqlite/states.rs",
    sqlite_tool_calls: "store/sqlite/tool_calls.rs",
    sqlite_usage: "store/sqlite/usage.rs",
    postgres: "store/postgres/store.rs",
    postgres_branches: "store/postgres/branches.rs",
    postgres_changes: "store/postgres/changes.rs",
    postgres_conversations: "store/postgres/conversations.rs",
    postgres_cuts: "store/postgres/cuts.rs",
    postgres_exports: "store/postgres/exports.rs",
    postgres_groups: "store/postgres/groups.rs",
    postgres_messages: "store/postgres/messages.rs",
    postgres_notifications: "store/postgres/notifications.rs",
    postgres_rows: "store/postgres/rows.rs",
    postgres_runs: "store/postgres/runs.rs",
    postgres_states: "store/postgres/states.rs",
    postgres_tool_calls: "store/postgres/tool_calls.rs",
    postgres_usage: "store/postgres/usage.rs",
}

impl Store {
    fn new(options: &Options) -> Self {
        let Options { owner, group, prefix, database, sea_orm, found, .. } = options;
        let table = |suffix: &str| table(*database, prefix, suffix);
        let column = |owner: &Owner| database.quote(owner.field.as_str());
        Self {
            prefix: prefix.as_str().to_owned(),
            conversations: table("conversations"),
            agent_states: table("agent_states"),
            agent_messages: table("agent_messages"),
            unreadable_states: table("unreadable_states"),
            display_messages: table("display_messages"),
            runs: table("runs"),
            usage: table("usage"),
            owner: owner.as_ref().map(column),
            owner_field: owner.as_ref().map(|owner| owner.field.to_string()),
            sea_orm: *sea_orm,
            migrate: found.tool.command(),
            owner_is_uuid_text: owner.as_ref().is_some_and(|owner| owner.key == KeyType::UuidText),
            key_type: owner.as_ref().map_or("", |owner| key_type(owner.key)),
            least_key: owner.as_ref().map_or("", |owner| least_key(owner.key)),
            group: group.as_ref().map(|group| StoreGroup::new(group, *database)),
        }
    }
}

fn table(database: Database, prefix: &TablePrefix, suffix: &str) -> String {
    database.quote(&format!("{}{suffix}", prefix.as_str()))
}

templates! {
    Tests {
        context: String,
        module: String,
        agent_states: String,
        agent_messages: String,
        has_owner: bool,
        owner: Option<TestOwner>,
        stand_in: Option<StandIn>,
        group: Option<TestGroup>,
        /// What makes the tables, as a Rust expression.
        migration: String,
    }
    text: "context/tests.rs",
    branches: "context/tests/branches.rs",
    exports: "context/tests/exports.rs",
    usage: "context/tests/usage.rs",
    sqlite_database: "store/sqlite/tests_database.rs",
    postgres_database: "store/postgres/tests_database.rs",
}

#[derive(Debug)]
struct OwnerField {
    noun: String,
    field: String,
    rust_type: &'static str,
}

#[derive(Debug)]
struct ScopeOwner {
    noun: String,
    article: &'static str,
    field: String,
    /// With a link, if there is a type to link to.
    link: String,
    rust_type: &'static str,
    /// What is bound to a statement: its type, and how it is read from `self`.
    bound_type: &'static str,
    bound: String,
    is_text: bool,
    /// Something on the way to the owner may be absent.
    is_optional: bool,
    /// The statements that read the owner's id from a scope, and the id.
    read: Vec<String>,
    read_value: String,
}

impl ScopeOwner {
    /// `is_free` says whether a type may go by its bare name.
    fn new(owner: &Owner, is_free: &dyn Fn(&TypePath) -> bool) -> Self {
        let Owner { noun, field, key, table: _, access, module: _, link } = owner;
        let (read, read_value) = read_owner(access, *key, named(is_free));
        Self {
            noun: noun.to_string(),
            article: article(noun),
            field: field.to_string(),
            link: link.as_ref().map_or_else(|| noun.to_string(), |link| format!("[{noun}]({})", link.rust())),
            rust_type: key.rust_type(),
            bound_type: bound_type(*key),
            bound: bound(field, *key),
            is_text: *key == KeyType::Text,
            is_optional: access.is_optional(),
            read,
            read_value,
        }
    }
}

/// The scope, and the enums that the ways through it name: one line for a module.
fn imports<'a>(
    scope: impl Iterator<Item = String>,
    ways: impl Iterator<Item = &'a Access>,
    is_free: &dyn Fn(&TypePath) -> bool,
) -> Vec<String> {
    let enums = ways.flat_map(Access::enums).filter(|ty| is_free(ty)).map(TypePath::rust);
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in scope.chain(enums) {
        if let Some((module, name)) = path.rsplit_once("::") {
            modules.entry(module.to_owned()).or_default().insert(name.to_owned());
        }
    }
    let line = |(module, names): (String, BTreeSet<String>)| {
        let joined = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        if names.len() == 1 { format!("{module}::{joined}") } else { format!("{module}::{{{joined}}}") }
    };
    modules.into_iter().map(line).collect()
}

/// What a type is called where it may go by its bare name, or may not.
fn named(is_free: &dyn Fn(&TypePath) -> bool) -> impl Fn(&TypePath) -> String {
    move |ty| if is_free(ty) { ty.name.clone() } else { ty.rust() }
}

#[derive(Debug)]
struct ScopeGroup {
    noun: String,
    article: &'static str,
    field: String,
    rust_type: &'static str,
    bound_type: &'static str,
    bound: String,
    is_text: bool,
    /// The statements that read the group's id from a scope, and the id. Nothing if every scope has an owner.
    read: Vec<String>,
    read_value: Option<String>,
}

impl ScopeGroup {
    fn new(group: &Group, is_free: &dyn Fn(&TypePath) -> bool) -> Self {
        let Group { noun, field, key, table: _, access } = group;
        let (read, read_value) = access.as_ref().map(|access| read_owner(access, *key, named(is_free))).unzip();
        Self {
            noun: noun.to_string(),
            article: article(noun),
            field: field.to_string(),
            rust_type: key.rust_type(),
            bound_type: bound_type(*key),
            bound: bound(field, *key),
            is_text: *key == KeyType::Text,
            read: read.unwrap_or_default(),
            read_value,
        }
    }
}

/// The names of the group's table and its columns, quoted.
#[derive(Debug)]
struct StoreGroup {
    table: String,
    column: String,
    member: String,
    is_owners: bool,
}

impl StoreGroup {
    fn new(group: &Group, database: Database) -> Self {
        let GroupTable { schema, name, group: column, member, is_owners } = &group.table;
        let names = schema.iter().chain([name]).map(|name| database.quote(name));
        Self {
            table: names.collect::<Vec<_>>().join("."),
            column: database.quote(column),
            member: database.quote(member),
            is_owners: *is_owners,
        }
    }
}

/// What is bound to a statement: its type, and how it is read from `self`.
fn bound_type(key: KeyType) -> &'static str {
    match key {
        KeyType::Integer => "i64",
        KeyType::Uuid => "Uuid",
        KeyType::Text => "&str",
        KeyType::UuidText => "String",
    }
}

fn bound(field: &Name, key: KeyType) -> String {
    match key {
        KeyType::Integer | KeyType::Uuid => format!("self.{field}"),
        KeyType::Text => format!("&self.{field}"),
        KeyType::UuidText => format!("self.{field}.to_string()"),
    }
}

fn is_uuid(key: KeyType) -> bool {
    matches!(key, KeyType::Uuid | KeyType::UuidText)
}

/// By its first letter, which is right for nearly every noun that owns something.
fn article(noun: &Name) -> &'static str {
    let is_vowel = noun.as_str().starts_with(['a', 'e', 'i', 'o']);
    if is_vowel { "an" } else { "a" }
}

#[derive(Debug)]
struct TestOwner {
    column: String,
    alice: &'static str,
    bob: &'static str,
}

/// The groups in generated tests, and the statements that let an owner join and leave one.
#[derive(Debug)]
struct TestGroup {
    ours: &'static str,
    other: &'static str,
    /// A table of memberships, where the host's own migrations do not run.
    create: Option<String>,
    join: String,
    leave: String,
}

impl TestGroup {
    fn new(owner: &Owner, group: &Group, database: Database) -> Self {
        let (ours, other) = two_keys(group.key);
        let kind = |key: KeyType| database.column_type(key.column());
        let StoreGroup { table, column, member, is_owners } = StoreGroup::new(group, database);
        let make_schema = make_schema(group.table.schema.as_deref(), database);
        let (owner_kind, group_kind) = (kind(owner.key), kind(group.key));
        if is_owners {
            return Self {
                ours,
                other,
                create: None,
                join: format!("UPDATE {table} SET {column} = $1 WHERE {member} = $2"),
                leave: format!("UPDATE {table} SET {column} = NULL WHERE {column} = $1 AND {member} = $2"),
            };
        }
        Self {
            ours,
            other,
            create: Some(format!("{make_schema}CREATE TABLE {table} ({column} {group_kind}, {member} {owner_kind})")),
            join: format!("INSERT INTO {table} ({column}, {member}) VALUES ($1, $2)"),
            leave: format!("DELETE FROM {table} WHERE {column} = $1 AND {member} = $2"),
        }
    }
}

fn make_schema(schema: Option<&str>, database: Database) -> String {
    schema.map(|schema| format!("CREATE SCHEMA IF NOT EXISTS {}; ", database.quote(schema))).unwrap_or_default()
}

/// The keys of two owners, or of two groups, in Rust.
fn two_keys(key: KeyType) -> (&'static str, &'static str) {
    match key {
        KeyType::Integer => ("1", "2"),
        KeyType::Uuid | KeyType::UuidText => ("Uuid::from_u128(1)", "Uuid::from_u128(2)"),
        KeyType::Text => ("\"alice\"", "\"bob\""),
    }
}

fn key_type(key: KeyType) -> &'static str {
    match key {
        KeyType::Integer => "i64",
        KeyType::Uuid => "Uuid",
        KeyType::Text | KeyType::UuidText => "String",
    }
}

fn least_key(key: KeyType) -> &'static str {
    match key {
        KeyType::Integer => "i64::MIN",
        KeyType::Uuid => "Uuid::nil()",
        KeyType::Text | KeyType::UuidText => "String::new()",
    }
}

/// The statements that read an owner's id from `self`, and the expression of the id. What is absent on the way ends the
/// call with `NoOwner`.
fn read_owner(access: &Access, key: KeyType, named: impl Fn(&TypePath) -> String) -> (Vec<String>, String) {
    let mut statements = Vec::new();
    let mut place = Value { text: "self".to_owned(), hold: Hold::Reference };
    let assumed = match key {
        KeyType::Integer => Seen::I64,
        KeyType::Uuid | KeyType::UuidText => Seen::Uuid,
        KeyType::Text => Seen::String,
    };
    let seen = access.id.as_ref().unwrap_or(&assumed);
    for (index, step) in access.steps.iter().enumerate() {
        let is_last = index + 1 == access.steps.len();
        match step {
            Step::Member { text, around } => {
                let hold = if text.ends_with("()") { Hold::Value } else { Hold::Place };
                place = Value { text: format!("{}.{text}", place.text), hold };
                if let Some(around) = around {
                    let (borrow, hold) = if is_last { taken(seen, hold, *around) } else { held(hold) };
                    let absent = match around {
                        Around::Option => "ok_or(Error::NoOwner)?",
                        Around::Result => "map_err(|_| Error::NoOwner)?",
                    };
                    place = Value { text: format!("{}{borrow}.{absent}", place.text), hold };
                    if !is_last {
                        let name = text.trim_end_matches("()");
                        let name = if name.starts_with(|c: char| c.is_ascii_digit()) { "owner" } else { name };
                        statements.push(format!("let {name} = {};", place.text));
                        name.clone_into(&mut place.text);
                    }
                }
            }
            Step::Variant { of, name, field, fields, binding, is_optional, is_only } => {
                let choice = of.as_ref().map_or_else(|| "Self".to_owned(), &named);
                let pattern = format!("{choice}::{name}{}", pattern(field, *fields, binding, *is_optional));
                let borrow = if place.hold == Hold::Place { "&" } else { "" };
                let otherwise = if *is_only && !is_optional { "" } else { " else { return Err(Error::NoOwner); }" };
                statements.push(format!("let {pattern} = {borrow}{}{otherwise};", place.text));
                place = Value { text: binding.clone(), hold: Hold::Reference };
            }
            Step::Kind { member, of, variant, is_optional } => {
                let variant = format!("{}::{variant}", named(of));
                let variant = if *is_optional { format!("Some({variant})") } else { variant };
                let kind = format!("{}.{member}", place.text);
                statements.push(format!("if !matches!({kind}, {variant}) {{ return Err(Error::NoOwner); }}"));
            }
        }
    }
    (statements, convert(&place, seen))
}

/// An expression, and what it gives.
#[derive(Debug)]
struct Value {
    text: String,
    hold: Hold,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// A field, which stays where it is.
    Place,
    Value,
    Reference,
}

/// How something on the way is taken out of an `Option`, and what that gives.
fn held(hold: Hold) -> (&'static str, Hold) {
    if hold == Hold::Place { (".as_ref()", Hold::Reference) } else { ("", hold) }
}

/// How an id is taken out of an `Option` or a `Result`, and what that gives.
fn taken(seen: &Seen, hold: Hold, around: Around) -> (&'static str, Hold) {
    match seen {
        _ if hold != Hold::Place => ("", Hold::Value),
        _ if around == Around::Result => (".as_ref()", Hold::Reference),
        Seen::String | Seen::From { take: Take::Clone, .. } | Seen::Into { take: Take::Clone, .. } => {
            (".clone()", Hold::Value)
        }
        Seen::From { take: Take::Borrow, .. } | Seen::Into { take: Take::Borrow, .. } => (".as_ref()", Hold::Reference),
        Seen::Str => (".as_deref()", Hold::Value),
        _ => ("", Hold::Value),
    }
}

/// What of a variant is bound to a name: `(user)`, `(_, user, ..)`, `{ id, .. }`.
fn pattern(field: &str, fields: usize, binding: &str, is_optional: bool) -> String {
    let bound = if is_optional { format!("Some({binding})") } else { binding.to_owned() };
    match field.parse::<usize>() {
        Ok(index) => {
            let rest = if index + 1 < fields { ", .." } else { "" };
            format!("({}{bound}{rest})", "_, ".repeat(index))
        }
        Err(_) => {
            let rest = if fields > 1 { ", .." } else { "" };
            let bound = if bound == binding { bound } else { format!("{binding}: {bound}") };
            format!(" {{ {bound}{rest} }}")
        }
    }
}

/// An expression of a type that was seen, as the type that is stored.
fn convert(value: &Value, seen: &Seen) -> String {
    let Value { text, hold } = value;
    let plain = || if *hold == Hold::Reference { format!("*{text}") } else { text.clone() };
    match seen {
        Seen::I64 | Seen::Uuid | Seen::Other(_) => plain(),
        Seen::SmallInt => format!("i64::from({})", plain()),
        Seen::String if *hold == Hold::Value => text.clone(),
        Seen::String => format!("{text}.clone()"),
        Seen::Str => format!("{text}.to_string()"),
        Seen::Ref(inner) => {
            let text = if *hold == Hold::Reference { format!("(*{text})") } else { text.clone() };
            convert(&Value { text, hold: Hold::Reference }, inner)
        }
        Seen::From { to, take } | Seen::Into { to, take } => {
            let target = match **to {
                Seen::Uuid => "Uuid",
                Seen::String => "String",
                _ => "i64",
            };
            let value = match (take, hold) {
                (Take::Copy, _) => plain(),
                (Take::Clone, Hold::Value) | (Take::Borrow, Hold::Reference) => text.clone(),
                (Take::Clone, _) => format!("{text}.clone()"),
                (Take::Borrow, _) => format!("&{text}"),
            };
            match seen {
                Seen::Into { .. } => format!("Into::<{target}>::into({value})"),
                _ => format!("{target}::from({value})"),
            }
        }
    }
}

fn example(key: KeyType) -> &'static str {
    match key {
        KeyType::Integer => "123",
        KeyType::Uuid | KeyType::UuidText => r#""01890a5d-…""#,
        KeyType::Text => r#""alice""#,
    }
}

/// The owner's table in generated tests, where the host's own migrations do not run.
#[derive(Debug)]
struct StandIn {
    create: String,
    insert: String,
}

#[derive(Template)]
#[template(path = "init/main.rs", escape = "none")]
struct Main<'a> {
    context: String,
    /// The path of the context's module: `my_app::conversations`.
    module: String,
    /// The path of the runtime.
    runtime: String,
    /// Nothing if the scope is called like something else that `main` names.
    scope_import: Option<&'a str>,
    scope: &'a str,
    group: Option<MainGroup>,
    opening: Opening,
}

/// How a `main` opens its database.
struct Opening {
    /// Where the database is, from the environment.
    url: String,
    /// A URL may hold a password, which is nobody's to see.
    opened: &'static str,
    /// The macro's argument; by default it looks where migrations are by default.
    migrations: String,
}

impl Opening {
    fn new(options: &Options, package: &str) -> Self {
        Self {
            url: match options.database {
                Database::Sqlite => {
                    format!(r#"std::env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite:{package}.db".into())"#)
                }
                Database::Postgres => format!(
                    r#"std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL, for example to postgres://localhost/{package}")?"#
                ),
            },
            opened: match options.database {
                Database::Sqlite => "opened {url} and ran its migrations",
                Database::Postgres => "opened the database and ran its migrations",
            },
            migrations: match options.migrations.as_str() {
                "migrations" => String::new(),
                other => format!("\"./{other}\""),
            },
        }
    }
}

/// How `main` shows a group.
struct MainGroup {
    noun: String,
    scope: String,
    /// The statement that makes the owner a member, and its parameters.
    join: String,
    owner_id: &'static str,
    group_id: &'static str,
}

/// The module itself, without a name, and the modules below it: `scope`, `store`, `store/messages`. What has an
/// extension is a file that is no module: `web/assets/app.js`.
pub type Files = Vec<(Option<&'static str>, String)>;

macro_rules! plain {
    ($module:literal, $($name:literal),*) => {
        vec![
            (None, include_str!(concat!("../templates/runtime/", $module, ".rs")).to_owned()),
            $((Some($name), include_str!(concat!("../templates/runtime/", $name, ".rs")).to_owned()),)*
        ]
    };
}

/// The agent runtime: plain Rust that this package tests in place. It is the same in every host, but for the crate of its
/// points in time.
pub fn runtime(time_crate: TimeCrate) -> Files {
    let mut files = plain!(
        "sagents",
        "branch",
        "display",
        "export",
        "export/checks",
        "export/fields",
        "export/file",
        "export/rows",
        "export/values",
        "export/whole_state",
        "extensions",
        "json",
        "message",
        "messages",
        "persistence",
        "run",
        "serializer",
        "session",
        "session/backoff",
        "session/coordinator",
        "session/drafts",
        "session/edits",
        "session/event",
        "session/guard",
        "session/handle",
        "session/options",
        "session/registry",
        "session/reloads",
        "session/rewinds",
        "session/runs",
        "session/saves",
        "session/state",
        "session/task",
        "session/tools",
        "session/turn",
        "session/writer",
        "session/writes",
        "state",
        "stored",
        "todo",
        "turn",
        "usage"
    );
    let timestamp = match time_crate {
        TimeCrate::Chrono => include_str!("../templates/runtime/timestamp.rs"),
        TimeCrate::Time => include_str!("../templates/runtime/timestamp_of_time.rs"),
    };
    files.push((Some("timestamp"), timestamp.to_owned()));
    files
}

#[derive(Template)]
#[template(path = "migration/sea_orm.rs", escape = "none")]
struct RustMigration<'a> {
    up: &'a str,
    down: &'a str,
    /// As many as the texts need around them.
    hashes: String,
}

/// A migration in Rust that runs some SQL.
pub fn rust_migration(up: &str, down: &str) -> String {
    let is_inside = |hashes: &String| [up, down].iter().any(|sql| sql.contains(&format!("\"{hashes}")));
    let mut hashes = "#".to_owned();
    while is_inside(&hashes) {
        hashes.push('#');
    }
    render(&RustMigration { up, down, hashes }) + "\n"
}

/// The `main` of a new package.
pub fn main(options: &Options, package: &str) -> String {
    let outside = |path| outside(package, path);
    let context = options.context.last().camel();
    let name = &options.scope.name;
    let is_taken = MAIN_NAMES.contains(&name.as_str()) || *name == context;
    let scope_public = outside(options.scope.rust());
    let scope_type = if is_taken { &scope_public } else { name };
    let scope = match (&options.owner, &options.group) {
        (Some(owner), Some(group)) => {
            let (id, group_id) = (owned_key(owner.key), owned_key(group.key));
            format!("{scope_type} {{ {}: Some({id}), {}: Some({group_id}) }}", owner.field, group.field)
        }
        (Some(owner), None) => format!("{scope_type} {{ {}: {} }}", owner.field, owned_key(owner.key)),
        (None, _) => scope_type.clone(),
    };
    let group = options.owner.as_ref().zip(options.group.as_ref()).filter(|(_, group)| group.table.is_owners);
    let group = group.map(|(owner, group)| {
        let StoreGroup { table, column, member, is_owners: _ } = StoreGroup::new(group, options.database);
        MainGroup {
            noun: group.noun.to_string(),
            scope: format!("{scope_type} {{ {}: None, {}: Some({}) }}", owner.field, group.field, owned_key(group.key)),
            join: format!("INSERT INTO {table} ({member}, {column}) VALUES ($1, $2) ON CONFLICT DO NOTHING"),
            owner_id: owned_key(owner.key),
            group_id: owned_key(group.key),
        }
    });
    let scope_import = (!is_taken).then_some(scope_public.as_str());
    let opening = Opening::new(options, package);
    let module = outside(options.context.rust());
    let runtime = outside("crate::sagents".to_owned());
    render(&Main { context, module, runtime, scope_import, scope: &scope, group, opening })
}

/// A path of the library, as the binary beside it writes it.
fn outside(package: &str, path: String) -> String {
    match path.strip_prefix("crate::") {
        Some(rest) => format!("{}::{rest}", crate_name(package)),
        None => path,
    }
}

/// The key of somebody, as a value that a field may have.
fn owned_key(key: KeyType) -> &'static str {
    match key {
        KeyType::Integer => "1",
        KeyType::Uuid | KeyType::UuidText => "Uuid::from_u128(1)",
        KeyType::Text => "\"alice\".to_owned()",
    }
}

/// The table of owners of a new package with groups.
pub fn create_owners(owners: &NewOwners) -> String {
    let NewOwners { table, key, group, database } = owners;
    let (kind, group_kind) = (database.column_type(key.column()), database.column_type(KeyType::Integer.column()));
    let [quoted, key, column, index] =
        [table.as_str(), "id", group.as_str(), &format!("{table}_{group}")].map(|name| database.quote(name));
    format!(
        "CREATE TABLE {quoted} (\n    {key} {kind} NOT NULL PRIMARY KEY,\n    {column} {group_kind}\n);\n\
         CREATE INDEX {index} ON {quoted} ({column});\n"
    )
}

pub fn drop_owners(owners: &NewOwners) -> String {
    format!("DROP TABLE {};\n", owners.database.quote(&owners.table))
}

/// What `main` names besides the scope and the context.
const MAIN_NAMES: &[&str] = &[
    "Box",
    "Coordinator",
    "Decided",
    "Decision",
    "ListConversations",
    "Message",
    "MessagePage",
    "NewConversation",
    "Result",
    "ToolCall",
    "ToolResult",
    "Uuid",
];

/// The scope type that is created when the host has none.
pub fn scope_type(options: &Options, public: bool) -> String {
    let name = &options.scope.name;
    let allow = if public { "" } else { "#[allow(dead_code, reason = \"for the application to use\")]\n" };
    match &options.owner {
        Some(owner) => {
            let (noun, ty) = (&owner.noun, field_type(owner.key));
            if let Some(group) = &options.group {
                let (group, field, group_type) = (&group.noun, &group.field, field_type(group.key));
                return format!(
                    "/// On whose behalf a call is made. With {} {noun}, it reaches what belongs to that {noun}; without one,\n\
                     /// it reads what belongs to the members of the {group}.\n\
                     #[derive(Debug, Clone, PartialEq, Eq)]\n{allow}pub struct {name} {{\n    \
                     /// The {noun} that the caller acts for.\n    pub {}: Option<{ty}>,\n    \
                     /// The {group} that the caller acts for.\n    pub {field}: Option<{group_type}>,\n}}\n",
                    article(noun),
                    owner.field
                );
            }
            format!(
                "/// On whose behalf a call is made. What belongs to the {noun} is reached through one.\n\
                 #[derive(Debug, Clone, PartialEq, Eq)]\n{allow}pub struct {name} {{\n    \
                 /// The {noun} that the caller acts for.\n    pub {}: {ty},\n}}\n",
                owner.field
            )
        }
        None => format!(
            "/// On whose behalf a call is made.\n#[derive(Debug, Clone, PartialEq, Eq)]\n{allow}pub struct {name};\n"
        ),
    }
}

/// The type of a field with a key, without an import.
fn field_type(key: KeyType) -> &'static str {
    if is_uuid(key) { "uuid::Uuid" } else { key.rust_type() }
}

fn stand_in(owner: &Owner, group: Option<&Group>, database: Database) -> Option<StandIn> {
    let table = owner.table.as_ref()?;
    let names = table.schema.iter().chain([&table.name]).map(|name| database.quote(name));
    let (name, key) = (names.collect::<Vec<_>>().join("."), database.quote(&table.key));
    let make_schema = make_schema(table.schema.as_deref(), database);
    let kind = database.column_type(owner.key.column());
    let group = group
        .filter(|group| group.table.is_owners)
        .map(|group| format!(", {} {}", database.quote(&group.table.group), database.column_type(group.key.column())));
    let group = group.unwrap_or_default();
    Some(StandIn {
        create: format!("{make_schema}CREATE TABLE {name} ({key} {kind} NOT NULL PRIMARY KEY{group})"),
        insert: format!("INSERT INTO {name} ({key}) VALUES ($1)"),
    })
}

/// rustfmt stumbles over spaces at the end of a line, which an empty expression may leave.
fn render(template: &impl Template) -> String {
    let text = template.render().expect("a template writes to a string, which does not fail");
    text.split('\n').map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(steps: &[(&str, bool)], id: Seen) -> Access {
        let member = |&(text, optional): &(&str, bool)| Step::Member {
            text: text.to_owned(),
            around: optional.then_some(Around::Option),
        };
        Access { steps: steps.iter().map(member).collect(), id: Some(id) }
    }

    fn from(to: Seen, take: Take) -> Seen {
        Seen::From { to: Box::new(to), take }
    }

    fn variant(field: &str, fields: usize, binding: &str) -> Step {
        let (name, field, binding) = ("User".to_owned(), field.to_owned(), binding.to_owned());
        Step::Variant { of: None, name, field, fields, binding, is_optional: false, is_only: false }
    }

    #[test]
    fn an_owner_is_read_through_whatever_is_on_the_way() {
        let cases = [
            (access(&[("user", false), ("id", false)], Seen::I64), KeyType::Integer, "", "self.user.id"),
            (
                access(&[("user", true), ("id", false)], Seen::SmallInt),
                KeyType::Integer,
                "let user = self.user.as_ref().ok_or(Error::NoOwner)?;",
                "i64::from(user.id)",
            ),
            (
                access(&[("user_id", true)], Seen::String),
                KeyType::Text,
                "",
                "self.user_id.clone().ok_or(Error::NoOwner)?",
            ),
            (access(&[("user_id()", false)], Seen::Str), KeyType::Text, "", "self.user_id().to_string()"),
            (access(&[("id()", false)], Seen::Ref(Box::new(Seen::Uuid))), KeyType::Uuid, "", "*self.id()"),
            (
                access(&[("user()", true), ("id", false)], Seen::Uuid),
                KeyType::Uuid,
                "let user = self.user().ok_or(Error::NoOwner)?;",
                "user.id",
            ),
            (
                Access { steps: vec![variant("0", 1, "id")], id: Some(Seen::SmallInt) },
                KeyType::Integer,
                "let Self::User(id) = self else { return Err(Error::NoOwner); };",
                "i64::from(*id)",
            ),
            (
                Access { steps: vec![variant("1", 3, "id")], id: Some(Seen::String) },
                KeyType::Text,
                "let Self::User(_, id, ..) = self else { return Err(Error::NoOwner); };",
                "id.clone()",
            ),
            (
                Access { steps: vec![variant("id", 2, "id")], id: Some(from(Seen::Uuid, Take::Copy)) },
                KeyType::Uuid,
                "let Self::User { id, .. } = self else { return Err(Error::NoOwner); };",
                "Uuid::from(*id)",
            ),
            (
                access(&[("user_id", false)], from(Seen::Uuid, Take::Borrow)),
                KeyType::Uuid,
                "",
                "Uuid::from(&self.user_id)",
            ),
            (
                access(&[("user_id", false)], Seen::Into { to: Box::new(Seen::Uuid), take: Take::Copy }),
                KeyType::Uuid,
                "",
                "Into::<Uuid>::into(self.user_id)",
            ),
            (
                access(&[("user_id", true)], from(Seen::String, Take::Clone)),
                KeyType::Text,
                "",
                "String::from(self.user_id.clone().ok_or(Error::NoOwner)?)",
            ),
            (
                Access {
                    steps: vec![Step::Member { text: "user_id()".to_owned(), around: Some(Around::Result) }],
                    id: Some(Seen::Uuid),
                },
                KeyType::Uuid,
                "",
                "self.user_id().map_err(|_| Error::NoOwner)?",
            ),
        ];
        for (access, id, statements, value) in cases {
            let named = |ty: &TypePath| ty.name.clone();
            let expected = (statements.lines().map(str::to_owned).collect(), value.to_owned());
            assert_eq!(read_owner(&access, id, named), expected);
        }
    }
}
