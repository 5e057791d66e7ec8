//! The tables of a context.

use super::{
    CONVERSATIONS, Check, Column, DefaultValue, ForeignKey, Index, IndexColumn, Key, Kind, OwnerColumn, OwnerKey, Table,
};

/// The tables, parents first.
pub(super) fn tables(prefix: &str, owner: &OwnerColumn, has_group: bool) -> Vec<Table> {
    let maker = Maker { prefix, owner, has_group };
    vec![
        maker.conversations(),
        maker.agent_states(),
        maker.display_messages(),
        maker.agent_messages(),
        maker.unreadable_states(),
        maker.runs(),
        maker.usage(),
    ]
}

/// Makes the tables, each with the owner first.
struct Maker<'a> {
    prefix: &'a str,
    owner: &'a OwnerColumn,
    has_group: bool,
}

impl Maker<'_> {
    fn conversations(&self) -> Table {
        let name = self.name(CONVERSATIONS);
        let to_owner = self.owner.references.clone().map(|OwnerKey { schema, table, column }| {
            let (name, columns) = (format!("{name}_fkey"), vec![self.owner.name.clone()]);
            ForeignKey { name, columns, schema, table, references: vec![column] }
        });
        let mut checks = vec![check("valid_next_sequence", "next_sequence >= 0")];
        if self.owner.is_none() {
            checks.push(check("no_owner", &format!("{} = 0", self.owner.name)));
        }
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
            checks,
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
        [column(&self.owner.name, self.owner.kind)].into_iter().chain(columns).collect()
    }

    /// The columns of a key.
    fn columns_of(&self, columns: &[&str]) -> Vec<String> {
        let owner = self.owner.name.clone();
        [owner].into_iter().chain(columns.iter().map(|&column| column.to_owned())).collect()
    }

    fn index(&self, name: String, columns: &[(&str, bool)], only: Option<&str>) -> Index {
        let column = |(name, descending): (&str, bool)| IndexColumn { name: name.to_owned(), descending };
        let owner = (self.owner.name.as_str(), false);
        let columns = [owner].into_iter().chain(columns.iter().copied()).map(column).collect();
        Index { name, columns, only: only.map(str::to_owned) }
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
