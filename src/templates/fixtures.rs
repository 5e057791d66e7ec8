//! The tests of a context, with what they need: keys, tables and groups.

use camino::Utf8PathBuf;

use super::key::two_keys;
use super::names::Names;
use super::store::{StoreGroup, table};
use super::{Files, raw};
use crate::database::Database;
use crate::key::KeyType;
use crate::options::{Group, Options, Owner};

/// How generated tests make the tables.
#[derive(Debug)]
pub enum Tables {
    /// By the migration, relative to the package.
    Script(Utf8PathBuf),
    /// By the tables as they are now: migrations that changed them need the host's own tables and rows.
    Text(String),
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
    messages: "context/tests/messages.rs",
    owners: "context/tests/owners.rs",
    runs: "context/tests/runs.rs",
    states: "context/tests/states.rs",
    tool_calls: "context/tests/tool_calls.rs",
    usage: "context/tests/usage.rs",
    sqlite_database: "store/sqlite/tests_database.rs",
    postgres_database: "store/postgres/tests_database.rs",
}

impl Tests {
    pub fn new(options: &Options, names: &Names, tables: &Tables) -> Self {
        let Options { context, owner, group, prefix, database, .. } = options;
        Self {
            context: names.context.clone(),
            module: context.last().to_string(),
            agent_states: table(*database, prefix, "agent_states"),
            agent_messages: table(*database, prefix, "agent_messages"),
            has_owner: owner.is_some(),
            owner: owner.as_ref().map(|owner| {
                let (alice, bob) = two_keys(owner.key);
                TestOwner { column: database.quote(owner.field.as_str()), alice, bob }
            }),
            stand_in: owner.as_ref().and_then(|owner| stand_in(owner, group.as_ref(), *database)),
            group: owner.as_ref().zip(group.as_ref()).map(|(owner, group)| TestGroup::new(owner, group, *database)),
            migration: match tables {
                Tables::Script(script) => {
                    format!(r#"include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/{script}"))"#)
                }
                Tables::Text(text) => raw(&format!("\n{text}")),
            },
        }
    }

    pub fn files(&self, database: Database) -> Files {
        let database = match database {
            Database::Sqlite => self.sqlite_database(),
            Database::Postgres => self.postgres_database(),
        };
        let mut files = vec![
            (Some("tests"), self.text()),
            (Some("tests/branches"), self.branches()),
            (Some("tests/database"), database),
            (Some("tests/exports"), self.exports()),
            (Some("tests/messages"), self.messages()),
            (Some("tests/runs"), self.runs()),
            (Some("tests/states"), self.states()),
            (Some("tests/tool_calls"), self.tool_calls()),
            (Some("tests/usage"), self.usage()),
        ];
        if self.has_owner {
            files.push((Some("tests/owners"), self.owners()));
        }
        files
    }
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

/// The owner's table in generated tests, where the host's own migrations do not run.
#[derive(Debug)]
struct StandIn {
    /// Both are Rust expressions.
    create: String,
    insert: String,
}

fn stand_in(owner: &Owner, group: Option<&Group>, database: Database) -> Option<StandIn> {
    let table = owner.table.as_ref()?;
    let name = database.quote_table(table.schema.as_deref(), &table.name);
    let key = database.quote(&table.key);
    let make_schema = make_schema(table.schema.as_deref(), database);
    let kind = database.column_type(owner.key.column());
    let group = group
        .filter(|group| group.table.is_owners)
        .map(|group| format!(", {} {}", database.quote(&group.table.group), database.column_type(group.key.column())));
    let group = group.unwrap_or_default();
    Some(StandIn {
        create: raw(&format!("{make_schema}CREATE TABLE {name} ({key} {kind} NOT NULL PRIMARY KEY{group})")),
        insert: raw(&format!("INSERT INTO {name} ({key}) VALUES ($1)")),
    })
}

fn make_schema(schema: Option<&str>, database: Database) -> String {
    schema.map(|schema| format!("CREATE SCHEMA IF NOT EXISTS {}; ", database.quote(schema))).unwrap_or_default()
}
