//! The tables, as data. A schema knows nothing of how a database spells it; `schema::sql` and `database` do.

mod recorded;
pub mod sql;
pub mod transition;

use serde::{Deserialize, Serialize};

use crate::database::Database;
use crate::names::TablePrefix;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    pub tables: Vec<Table>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    pub name: String,
    /// What the table is for, as a comment in the migration.
    pub about: String,
    pub columns: Vec<Column>,
    pub primary_key: Key,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unique: Vec<Key>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign_keys: Vec<ForeignKey>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<Index>,
    /// Rows are small and read in the order of the key.
    pub clustered: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    pub nullable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<DefaultValue>,
    /// A former owner or an older version left it: nothing is written to it any more, and it is in no key, index or
    /// foreign key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retired: bool,
    /// Large values are compressed in a fast way, where the server has one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compressed: bool,
    /// Whose ids it holds, where no foreign key says so (any more). Only columns of the conversations remember it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<OwnerIds>,
}

/// The owners whose ids a column holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerIds {
    pub owner_type: String,
    /// The last table that a foreign key of the column named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<OwnerKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
}

/// How an id was read from a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The scope's type.
    pub scope: String,
    /// As `--scope-owner` writes it.
    pub way: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Boolean,
    Integer,
    BigInteger,
    Uuid,
    Text,
    Json,
    /// JSON that is kept to the byte.
    ExactJson,
    Time,
}

impl Kind {
    /// Whether a column can become one of another kind without a change of its values. What does not fit stops the
    /// migration.
    pub fn converts_to(self, other: Self) -> bool {
        use Kind::{BigInteger, ExactJson, Integer, Text};
        self == other
            || matches!(
                (self, other),
                (Integer, BigInteger) | (BigInteger, Integer) | (Text, ExactJson) | (ExactJson, Text)
            )
    }

    /// What a person calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Integer => "32-bit integer",
            Self::BigInteger => "64-bit integer",
            Self::Uuid => "UUID",
            Self::Text => "text",
            Self::Json | Self::ExactJson => "JSON value",
            Self::Time => "time",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefaultValue {
    False,
    Zero,
    EmptyObject,
}

/// A primary key or a unique constraint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    pub name: String,
    pub columns: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Distinct in its table; it does not start with the table's name, so that it stays when a table is renamed.
    pub name: String,
    pub condition: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    pub name: String,
    pub columns: Vec<String>,
    /// Where the table is, if it is not beside ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    pub table: String,
    pub references: Vec<String>,
}

impl ForeignKey {
    /// Whether it leads to one of our own tables, which are all in one schema.
    pub fn refers_to(&self, table: &Table) -> bool {
        self.schema.is_none() && self.table == table.name
    }

    /// The table and the only column that it names.
    fn names_key(&self) -> Option<OwnerKey> {
        let [column] = self.references.as_slice() else { return None };
        Some(OwnerKey { schema: self.schema.clone(), table: self.table.clone(), column: column.clone() })
    }
}

impl OwnerKey {
    /// Whether both name the same, with the default schema or without.
    pub fn is(&self, other: &Self) -> bool {
        let place = |key: &Self| {
            let default = Database::Postgres.default_schema();
            (
                key.schema.clone().filter(|schema| Some(schema.as_str()) != default),
                key.table.clone(),
                key.column.clone(),
            )
        };
        place(self) == place(other)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    pub name: String,
    pub columns: Vec<IndexColumn>,
    /// Only rows that meet this are in the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexColumn {
    pub name: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub descending: bool,
}

/// The owner's column, and the table that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerColumn {
    pub name: String,
    pub kind: Kind,
    pub references: Option<OwnerKey>,
}

/// The key of the owner's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerKey {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    pub table: String,
    pub column: String,
}

impl Schema {
    /// The owner's column: it leads the key of the conversations.
    pub fn owner(&self) -> Option<&Column> {
        let conversations = self.tables.first()?;
        match conversations.primary_key.columns.as_slice() {
            [owner, _] => conversations.column(owner),
            _ => None,
        }
    }

    /// The table that the owner's foreign key names, or named last.
    pub fn owner_table(&self) -> Option<OwnerKey> {
        let owner = self.owner()?;
        let named = owner.holds.as_ref().and_then(|ids| ids.table.clone());
        self.foreign_key_to_owner().and_then(ForeignKey::names_key).or(named)
    }

    pub fn foreign_key_to_owner(&self) -> Option<&ForeignKey> {
        let owner = self.owner()?;
        self.tables.first()?.foreign_keys.iter().find(|key| key.columns == [owner.name.as_str()])
    }

    /// The columns of former owners, the last one first, with what they hold.
    pub fn former_owners(&self) -> impl Iterator<Item = (&Column, &OwnerIds)> {
        let conversations = self.tables.first().into_iter().flat_map(|table| &table.columns);
        conversations.filter(|column| column.retired).filter_map(|column| Some((column, column.holds.as_ref()?)))
    }

    /// What the names of all tables start with. The conversations come first.
    pub fn prefix(&self) -> Option<&str> {
        self.tables.first()?.name.strip_suffix(CONVERSATIONS)
    }
}

impl Table {
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

const CONVERSATIONS: &str = "conversations";

/// The longest thing that is put behind a table prefix.
pub const LONGEST_SUFFIX: &str = "display_messages_tool_calls";

/// Every column that is ours; the owner's may not be called like one of them.
pub fn own_columns() -> Vec<String> {
    let prefix = TablePrefix::parse("", LONGEST_SUFFIX, usize::MAX).expect("an empty prefix is valid");
    let mut names: Vec<_> =
        schema(&prefix, None, false).tables.into_iter().flat_map(|table| table.columns).map(|c| c.name).collect();
    names.sort();
    names.dedup();
    names
}

/// The tables of a context. With a group, its scope reads what several owners have.
pub fn schema(prefix: &TablePrefix, owner: Option<&OwnerColumn>, has_group: bool) -> Schema {
    let maker = Maker { prefix: prefix.as_str(), owner, has_group };
    let tables = vec![
        maker.conversations(),
        maker.agent_states(),
        maker.display_messages(),
        maker.agent_messages(),
        maker.unreadable_states(),
        maker.runs(),
        maker.usage(),
    ];
    Schema { tables }
}

/// Puts the owner first, wherever there is one.
struct Maker<'a> {
    prefix: &'a str,
    owner: Option<&'a OwnerColumn>,
    has_group: bool,
}

impl Maker<'_> {
    fn conversations(&self) -> Table {
        let name = self.name(CONVERSATIONS);
        let to_owner = self.owner.and_then(|owner| {
            let OwnerKey { schema, table, column } = owner.references.clone()?;
            let (name, columns) = (format!("{name}_fkey"), vec![owner.name.clone()]);
            Some(ForeignKey { name, columns, schema, table, references: vec![column] })
        });
        let by_update = [("updated_at", true), ("id", true)];
        let (active, archived) = (Some("archived_at IS NULL"), Some("archived_at IS NOT NULL"));
        // Every write of a conversation costs an entry in most of them, so a list of all merges two of them.
        let mut indexes = vec![
            self.index(format!("{name}_active"), &by_update, active),
            self.index(format!("{name}_archived"), &by_update, archived),
            self.index(format!("{name}_active_id"), &[("id", false)], active),
            self.index(format!("{name}_archived_id"), &[("id", false)], archived),
        ];
        // Who of a group's members has a conversation is not known before it is found.
        indexes.extend(self.has_group.then(|| Index {
            name: format!("{name}_id"),
            columns: vec![IndexColumn { name: "id".to_owned(), descending: false }],
            only: None,
        }));
        Table {
            about: "Conversations, and where each one's next message goes.".into(),
            columns: self.columns(vec![
                column("id", Kind::Uuid),
                nullable("title", Kind::Text),
                column("scope", Kind::Json),
                defaulted("metadata", Kind::Json, DefaultValue::EmptyObject),
                defaulted("interrupted", Kind::Boolean, DefaultValue::False),
                defaulted("next_sequence", Kind::BigInteger, DefaultValue::Zero),
                column("inserted_at", Kind::Time),
                column("updated_at", Kind::Time),
                defaulted("last_change", Kind::BigInteger, DefaultValue::Zero),
                defaulted("last_removal", Kind::BigInteger, DefaultValue::Zero),
                nullable("archived_at", Kind::Time),
            ]),
            primary_key: self.primary_key(&name, &["id"]),
            unique: Vec::new(),
            foreign_keys: to_owner.into_iter().collect(),
            checks: vec![check("valid_next_sequence", "next_sequence >= 0")],
            indexes,
            clustered: true,
            name,
        }
    }

    fn agent_states(&self) -> Table {
        let name = self.name("agent_states");
        Table {
            about: "Agent states without their messages; the messages are those of the epoch.".into(),
            columns: self.columns(vec![
                column("conversation_id", Kind::Uuid),
                column("version", Kind::Integer),
                column("revision", Kind::BigInteger),
                column("write_id", Kind::Uuid),
                compressed("data", Kind::ExactJson),
                nullable("unreadable_data", Kind::ExactJson),
                column("inserted_at", Kind::Time),
                column("updated_at", Kind::Time),
                defaulted("epoch", Kind::BigInteger, DefaultValue::Zero),
            ]),
            primary_key: self.primary_key(&name, &["conversation_id"]),
            unique: Vec::new(),
            foreign_keys: vec![self.to_conversation(&name)],
            checks: vec![check("valid_revision", "revision >= 1")],
            indexes: Vec::new(),
            clustered: false,
            name,
        }
    }

    fn agent_messages(&self) -> Table {
        let name = self.name("agent_messages");
        Table {
            about: "The messages of agent states, in order.".into(),
            columns: self.columns(vec![
                column("conversation_id", Kind::Uuid),
                column("epoch", Kind::BigInteger),
                column("position", Kind::Integer),
                column("message_id", Kind::Uuid),
                compressed("data", Kind::ExactJson),
            ]),
            primary_key: self.primary_key(&name, &["conversation_id", "epoch", "position"]),
            unique: Vec::new(),
            foreign_keys: vec![self.to_conversation(&name)],
            checks: vec![check("valid_epoch", "epoch >= 0"), check("valid_position", "position >= 0")],
            indexes: Vec::new(),
            // In the order of its key, SQLite would give every message of 1 KB or more a page of its own.
            clustered: false,
            name,
        }
    }

    fn unreadable_states(&self) -> Table {
        let name = self.name("unreadable_states");
        Table {
            about: "Agent states that were set aside, each with its epoch.".into(),
            columns: self.columns(vec![
                column("conversation_id", Kind::Uuid),
                column("epoch", Kind::BigInteger),
                column("data", Kind::ExactJson),
                column("set_aside_at", Kind::Time),
            ]),
            primary_key: self.primary_key(&name, &["conversation_id", "epoch"]),
            unique: Vec::new(),
            foreign_keys: vec![self.to_conversation(&name)],
            checks: vec![check("valid_epoch", "epoch >= 0")],
            indexes: Vec::new(),
            clustered: false,
            name,
        }
    }

    fn display_messages(&self) -> Table {
        let name = self.name("display_messages");
        let tool_calls =
            [("conversation_id", false), ("tool_call_id", false), ("content_type", false), ("sequence", false)];
        Table {
            about: "What a person sees of a conversation, in order.".into(),
            columns: self.columns(vec![
                column("conversation_id", Kind::Uuid),
                column("sequence", Kind::BigInteger),
                column("message_id", Kind::Uuid),
                column("item", Kind::Integer),
                column("role", Kind::Text),
                column("content_type", Kind::Text),
                column("content", Kind::Text),
                defaulted("metadata", Kind::Json, DefaultValue::EmptyObject),
                nullable("tool_call_id", Kind::Text),
                nullable("status", Kind::Text),
                column("inserted_at", Kind::Time),
                defaulted("changed", Kind::BigInteger, DefaultValue::Zero),
                nullable("delivery", Kind::Text),
            ]),
            primary_key: self.primary_key(&name, &["conversation_id", "sequence"]),
            unique: vec![Key {
                name: format!("{name}_key"),
                columns: self.columns_of(&["conversation_id", "message_id", "item"]),
            }],
            foreign_keys: vec![self.to_conversation(&name)],
            checks: vec![
                check("valid_sequence", "sequence >= 0"),
                check("valid_item", "item >= 0"),
                one_of("role", ROLES),
                one_of("content_type", CONTENT_TYPES),
                one_of("status", TOOL_STATUSES),
                check("status_of_tool_call", "(content_type = 'tool_call') = (status IS NOT NULL)"),
                check("id_of_tool_call", "content_type <> 'tool_call' OR tool_call_id IS NOT NULL"),
                one_of("delivery", DELIVERIES),
            ],
            indexes: vec![
                self.index(format!("{name}_tool_calls"), &tool_calls, Some("tool_call_id IS NOT NULL")),
                // No row is left out. `PostgreSQL` would otherwise take it for statements that do not ask for changes.
                self.index(
                    format!("{name}_changed"),
                    &[("conversation_id", false), ("changed", false), ("sequence", false)],
                    Some("changed >= 0"),
                ),
                self.index(
                    format!("{name}_unsettled"),
                    &[("conversation_id", false), ("delivery", false), ("message_id", false)],
                    Some("delivery IN ('draft', 'unsaved')"),
                ),
            ],
            clustered: true,
            name,
        }
    }

    fn runs(&self) -> Table {
        let name = self.name("runs");
        let unfinished = "status IN ('running', 'waiting')";
        Table {
            about: "The current or last run of each conversation.".into(),
            columns: self.columns(vec![
                column("conversation_id", Kind::Uuid),
                column("run_id", Kind::Uuid),
                column("holder", Kind::Text),
                column("status", Kind::Text),
                nullable("waiting_for", Kind::ExactJson),
                defaulted("cancel_requested", Kind::Boolean, DefaultValue::False),
                column("started_at", Kind::Time),
                column("seen_at", Kind::Time),
                defaulted("resumed", Kind::Boolean, DefaultValue::False),
            ]),
            primary_key: self.primary_key(&name, &["conversation_id"]),
            unique: Vec::new(),
            foreign_keys: vec![self.to_conversation(&name)],
            checks: vec![one_of("status", RUN_STATUSES)],
            indexes: vec![self.index(format!("{name}_unfinished"), &[("started_at", false)], Some(unfinished))],
            clustered: true,
            name,
        }
    }

    fn usage(&self) -> Table {
        let name = self.name("usage");
        Table {
            about: "The tokens that each message cost. Rows stay when messages are deleted.".into(),
            columns: self.columns(vec![
                column("conversation_id", Kind::Uuid),
                column("message_id", Kind::Uuid),
                nullable("model", Kind::Text),
                column("input_tokens", Kind::BigInteger),
                column("output_tokens", Kind::BigInteger),
                column("cached_tokens", Kind::BigInteger),
                column("inserted_at", Kind::Time),
            ]),
            primary_key: self.primary_key(&name, &["conversation_id", "message_id"]),
            unique: Vec::new(),
            foreign_keys: vec![self.to_conversation(&name)],
            checks: ["input_tokens", "output_tokens", "cached_tokens"]
                .map(|column| check(&format!("valid_{column}"), &format!("{column} >= 0")))
                .into(),
            indexes: vec![self.index(format!("{name}_times"), &[("inserted_at", false)], None)],
            clustered: true,
            name,
        }
    }

    fn to_conversation(&self, table: &str) -> ForeignKey {
        ForeignKey {
            name: format!("{table}_fkey"),
            columns: self.columns_of(&["conversation_id"]),
            schema: None,
            table: self.name(CONVERSATIONS),
            references: self.columns_of(&["id"]),
        }
    }

    fn primary_key(&self, table: &str, columns: &[&str]) -> Key {
        Key { name: format!("{table}_pkey"), columns: self.columns_of(columns) }
    }

    fn name(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.prefix)
    }

    fn columns(&self, columns: Vec<Column>) -> Vec<Column> {
        self.owner.iter().map(|owner| column(&owner.name, owner.kind)).chain(columns).collect()
    }

    /// The columns of a key.
    fn columns_of(&self, columns: &[&str]) -> Vec<String> {
        let owner = self.owner.iter().map(|owner| owner.name.clone());
        owner.chain(columns.iter().map(|&column| column.to_owned())).collect()
    }

    fn index(&self, name: String, columns: &[(&str, bool)], only: Option<&str>) -> Index {
        let owner = self.owner.iter().map(|owner| IndexColumn { name: owner.name.clone(), descending: false });
        let columns = columns.iter().map(|&(name, descending)| IndexColumn { name: name.to_owned(), descending });
        Index { name, columns: owner.chain(columns).collect(), only: only.map(str::to_owned) }
    }
}

const ROLES: &[&str] = &["user", "assistant", "tool", "system"];
const CONTENT_TYPES: &[&str] = &[
    "text",
    "thinking",
    "image",
    "file_reference",
    "structured_data",
    "notification",
    "error",
    "tool_call",
    "tool_result",
    "todo_snapshot",
];
const TOOL_STATUSES: &[&str] = &["pending", "executing", "completed", "failed", "interrupted", "cancelled", "unknown"];
const DELIVERIES: &[&str] = &["draft", "unsaved", "interrupted", "unknown"];
const RUN_STATUSES: &[&str] = &["running", "waiting", "finished", "failed", "cancelled"];

fn check(name: &str, condition: &str) -> Check {
    Check { name: name.to_owned(), condition: condition.to_owned() }
}

/// A null passes: a check that is unknown holds.
fn one_of(column: &str, values: &[&str]) -> Check {
    check(&format!("valid_{column}"), &format!("{column} IN ('{}')", values.join("', '")))
}

fn column(name: &str, kind: Kind) -> Column {
    Column {
        name: name.to_owned(),
        kind,
        nullable: false,
        default: None,
        retired: false,
        compressed: false,
        holds: None,
    }
}

fn nullable(name: &str, kind: Kind) -> Column {
    Column { nullable: true, ..column(name, kind) }
}

fn compressed(name: &str, kind: Kind) -> Column {
    Column { compressed: true, ..column(name, kind) }
}

fn defaulted(name: &str, kind: Kind, default: DefaultValue) -> Column {
    Column { default: Some(default), ..column(name, kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_suffix_is_the_longest() {
        let prefix = TablePrefix::parse("", LONGEST_SUFFIX, 63).unwrap();
        let tables = schema(&prefix, None, true).tables;
        let names = tables.iter().flat_map(|table| {
            let keys = table.unique.iter().chain([&table.primary_key]).map(|key| &key.name);
            let foreign_keys = table.foreign_keys.iter().map(|key| &key.name);
            keys.chain(foreign_keys).chain(table.indexes.iter().map(|index| &index.name))
        });
        assert_eq!(names.map(String::len).max(), Some(LONGEST_SUFFIX.len()));
    }
}
