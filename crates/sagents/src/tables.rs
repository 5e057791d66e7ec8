//! Which tables a store works on.

use uuid::Uuid;

use crate::Key;

/// The number of today's table layout. It rises when a migration of the tables is needed, which never happens in a
/// semver-compatible release.
pub const SCHEMA: u32 = 1;

/// The tables of a host, as its migrations create them. Generated code has one as a constant.
///
/// ```
/// use sagents::{OwnerColumn, Tables};
///
/// const TABLES: Tables = Tables::new(1, "sagents_", OwnerColumn::integer("user_id"));
/// ```
///
/// A constant that doesn't fit fails to compile:
///
/// ```compile_fail
/// use sagents::{OwnerColumn, Tables};
///
/// const TABLES: Tables = Tables::new(0, "sagents_", OwnerColumn::integer("user_id"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables {
    prefix: &'static str,
    owner: OwnerColumn,
    group: Option<Group>,
    conversation_columns: &'static [&'static str],
    display_message_columns: &'static [&'static str],
    former_owner_columns: &'static [&'static str],
}

impl Tables {
    /// Tables with this layout number, prefix and owner column.
    ///
    /// # Panics
    ///
    /// In a constant that's a compile-time error: if `schema` isn't the number of this version of the library, or the
    /// prefix has characters other than lowercase ASCII letters, digits and `_`, or more than 40 of them.
    #[must_use]
    pub const fn new(schema: u32, prefix: &'static str, owner: OwnerColumn) -> Self {
        assert!(
            schema == SCHEMA,
            "these tables belong to another version of sagents: run `sagents update`, then your migrations"
        );
        assert!(is_prefix(prefix), "a table prefix has at most 40 lowercase ASCII letters, digits and `_`");
        Self {
            prefix,
            owner,
            group: None,
            conversation_columns: &[],
            display_message_columns: &[],
            former_owner_columns: &[],
        }
    }

    /// Lets scopes with a group read what the group's members have.
    #[must_use]
    pub const fn group(self, group: Group) -> Self {
        Self { group: Some(group), ..self }
    }

    /// The columns of the host's `Conversation`. Forks copy the host's own ones; exports and imports carry them.
    #[must_use]
    pub const fn conversation_columns(self, columns: &'static [&'static str]) -> Self {
        Self { conversation_columns: columns, ..self }
    }

    /// The columns of the host's `DisplayMessage`.
    #[must_use]
    pub const fn display_message_columns(self, columns: &'static [&'static str]) -> Self {
        Self { display_message_columns: columns, ..self }
    }

    /// The columns of former owners. A change of owner leaves them in every table until a later migration drops them.
    #[must_use]
    pub const fn former_owner_columns(self, columns: &'static [&'static str]) -> Self {
        Self { former_owner_columns: columns, ..self }
    }

    /// The prefix of the table names.
    #[must_use]
    pub const fn prefix(&self) -> &'static str {
        self.prefix
    }

    /// The column with the owner's key.
    #[must_use]
    pub const fn owner(&self) -> OwnerColumn {
        self.owner
    }

    /// The table of memberships, if scopes can have a group.
    #[must_use]
    pub const fn group_of_owners(&self) -> Option<Group> {
        self.group
    }

    /// Whether a column is a former owner's.
    pub(crate) fn is_former_owner(&self, column: &str) -> bool {
        self.former_owner_columns.contains(&column)
    }

    /// The columns that the host added to `{prefix}conversations`.
    pub(crate) fn own_conversation_columns(&self) -> impl Iterator<Item = &'static str> {
        own(self.conversation_columns, self.owner, CONVERSATION)
    }

    /// The columns that the host added to `{prefix}display_messages`.
    pub(crate) fn own_display_message_columns(&self) -> impl Iterator<Item = &'static str> {
        own(self.display_message_columns, self.owner, DISPLAY_MESSAGE)
    }
}

/// The library's columns of a conversation, behind the owner's, as the host's model has them.
pub(crate) const CONVERSATION: &[&str] =
    &["id", "title", "scope", "metadata", "interrupted", "inserted_at", "updated_at", "archived_at"];

/// The library's columns of a display message, behind the owner's.
pub(crate) const DISPLAY_MESSAGE: &[&str] = &[
    "conversation_id",
    "sequence",
    "message_id",
    "item",
    "role",
    "content_type",
    "content",
    "metadata",
    "tool_call_id",
    "status",
    "inserted_at",
    "changed",
    "delivery",
];

/// The columns of a run.
pub(crate) const RUN: &[&str] = &[
    "conversation_id",
    "run_id",
    "holder",
    "status",
    "waiting_for",
    "cancel_requested",
    "started_at",
    "seen_at",
    "resumed",
];

fn own(
    columns: &'static [&'static str],
    owner: OwnerColumn,
    known: &'static [&'static str],
) -> impl Iterator<Item = &'static str> {
    columns.iter().copied().filter(move |column| *column != owner.name && !known.contains(column))
}

const fn is_prefix(prefix: &str) -> bool {
    let bytes = prefix.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !matches!(bytes[at], b'a'..=b'z' | b'0'..=b'9' | b'_') {
            return false;
        }
        at += 1;
    }
    bytes.len() <= 40
}

/// The type of an owner's or a group's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// An integer.
    Integer,
    /// A UUID: a `BLOB` of 16 bytes in `SQLite`, a `UUID` in `PostgreSQL`.
    Uuid,
    /// Text.
    Text,
}

impl KeyKind {
    /// The key that sorts before all others.
    pub(crate) const fn least(self) -> Key {
        match self {
            Self::Integer => Key::Integer(i64::MIN),
            Self::Uuid => Key::Uuid(Uuid::nil()),
            Self::Text => Key::Text(String::new()),
        }
    }

    /// As `PostgreSQL` calls it, for casts of parameters.
    pub(crate) const fn postgres_type(self) -> &'static str {
        match self {
            Self::Integer => "bigint",
            Self::Uuid => "uuid",
            Self::Text => "text",
        }
    }
}

/// The column that says who owns a row. Every table has it, and every key begins with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerColumn {
    pub(crate) name: &'static str,
    pub(crate) kind: KeyKind,
}

impl OwnerColumn {
    /// A column of integers.
    #[must_use]
    pub const fn integer(name: &'static str) -> Self {
        Self { name, kind: KeyKind::Integer }
    }

    /// A column of UUIDs.
    #[must_use]
    pub const fn uuid(name: &'static str) -> Self {
        Self { name, kind: KeyKind::Uuid }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// A column of text, also for UUIDs that are stored as text.
    #[must_use]
    pub const fn text(name: &'static str) -> Self {
        Self { name, kind: KeyKind::Text }
    }

    /// No owners: the column `sagents_owner`, which is always 0.
    #[must_use]
    pub const fn none() -> Self {
        Self::integer("sagents_owner")
    }
}

/// The table that says which owners are members of a group.
///
/// ```
/// use sagents::{Group, KeyKind, OwnerColumn, Tables};
///
/// const TABLES: Tables = Tables::new(1, "sagents_", OwnerColumn::integer("user_id"))
///     .group(Group { table: "memberships", group: "org_id", kind: KeyKind::Integer, member: "user_id" });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// The table of memberships, or the owners' own table. A schema may stand before it: `app.memberships`.
    pub table: &'static str,
    /// Its column with the group's key.
    pub group: &'static str,
    /// The type of the group's key.
    pub kind: KeyKind,
    /// Its column with the owner's key.
    pub member: &'static str,
}
