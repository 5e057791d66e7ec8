//! The store of a context: every statement, for one database.

use super::Files;
use super::key::{key_type, least_key};
use crate::database::Database;
use crate::key::KeyType;
use crate::names::TablePrefix;
use crate::options::{Group, GroupTable, Options, Owner};

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
    pub fn new(options: &Options) -> Self {
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

    pub fn files(&self, database: Database) -> Files {
        let mut files = match database {
            Database::Sqlite => vec![
                (Some("store"), self.sqlite()),
                (Some("store/branches"), self.sqlite_branches()),
                (Some("store/changes"), self.sqlite_changes()),
                (Some("store/conversations"), self.sqlite_conversations()),
                (Some("store/cuts"), self.sqlite_cuts()),
                (Some("store/exports"), self.sqlite_exports()),
                (Some("store/lease"), include_str!("../../templates/store/sqlite/lease.rs").to_owned()),
                (Some("store/messages"), self.sqlite_messages()),
                (Some("store/rows"), self.sqlite_rows()),
                (Some("store/runs"), self.sqlite_runs()),
                (Some("store/states"), self.sqlite_states()),
                (Some("store/tool_calls"), self.sqlite_tool_calls()),
                (Some("store/usage"), self.sqlite_usage()),
            ],
            Database::Postgres => vec![
                (Some("store"), self.postgres()),
                (Some("store/branches"), self.postgres_branches()),
                (Some("store/changes"), self.postgres_changes()),
                (Some("store/conversations"), self.postgres_conversations()),
                (Some("store/cuts"), self.postgres_cuts()),
                (Some("store/exports"), self.postgres_exports()),
                (Some("store/lease"), include_str!("../../templates/store/postgres/lease.rs").to_owned()),
                (Some("store/messages"), self.postgres_messages()),
                (Some("store/notifications"), self.postgres_notifications()),
                (Some("store/rows"), self.postgres_rows()),
                (Some("store/runs"), self.postgres_runs()),
                (Some("store/states"), self.postgres_states()),
                (Some("store/tool_calls"), self.postgres_tool_calls()),
                (Some("store/usage"), self.postgres_usage()),
            ],
        };
        if self.group.is_some() {
            files.push(match database {
                Database::Sqlite => (Some("store/groups"), self.sqlite_groups()),
                Database::Postgres => (Some("store/groups"), self.postgres_groups()),
            });
        }
        files
    }
}

/// The names of the group's table and its columns, quoted.
#[derive(Debug)]
pub struct StoreGroup {
    pub table: String,
    pub column: String,
    pub member: String,
    pub is_owners: bool,
}

impl StoreGroup {
    pub fn new(group: &Group, database: Database) -> Self {
        let GroupTable { schema, name, group: column, member, is_owners } = &group.table;
        Self {
            table: database.quote_table(schema.as_deref(), name),
            column: database.quote(column),
            member: database.quote(member),
            is_owners: *is_owners,
        }
    }

    /// The statement that makes an owner a member: the owner is its first parameter.
    pub fn join(&self) -> String {
        let Self { table, column, member, is_owners: _ } = self;
        format!("INSERT INTO {table} ({member}, {column}) VALUES ($1, $2) ON CONFLICT DO NOTHING")
    }
}

pub fn table(database: Database, prefix: &TablePrefix, suffix: &str) -> String {
    database.quote(&format!("{}{suffix}", prefix.as_str()))
}
