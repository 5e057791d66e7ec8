//! SQL statements with named placeholders for tables and columns, expanded once per store.

use std::fmt::Write as _;
use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::schema::Database;
use crate::tables::{self, Tables};

/// An expanded statement. `sqlx::query(&statement)` shares its text.
#[derive(Debug, Clone)]
pub(crate) struct Statement(Arc<str>);

impl Statement {
    #[cfg(test)]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text is a constant of this crate with names from a `Tables` constant, which are quoted.
impl SqlSafeStr for &Statement {
    fn into_sql_str(self) -> SqlStr {
        AssertSqlSafe(Arc::clone(&self.0)).into_sql_str()
    }
}

/// Declares a struct of statements. `expand` fills it.
///
/// | placeholder | stands for |
/// | --- | --- |
/// | `{conversations}`, `{display_messages}`, … | a table |
/// | `{owner}`, `{owner_type}` | the owner column, and its type in casts |
/// | `{conversation_columns}` | the columns that `rows::conversation` reads; `{c.conversation_columns}` qualifies each |
/// | `{display_message_columns}`, `{run_columns}` | likewise |
/// | `{own_conversation_columns}` | the host's own columns, each behind a comma; `{c.own_conversation_columns}` likewise |
/// | `{prefix}` | the prefix of tables and indexes |
/// | `{group_table}`, `{group}`, `{group_type}`, `{member}` | the table of memberships and its columns |
macro_rules! statements {
    (
        $(#[$about:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$doc:meta])* $field:ident: $sql:expr,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        $visibility struct $name {
            $($(#[$doc])* pub(super) $field: $crate::statement::Statement,)+
        }

        impl $name {
            $visibility fn expand(names: &$crate::statement::Names) -> Self {
                Self { $($field: names.expand($sql),)+ }
            }

            #[cfg(test)]
            $visibility fn all(&self) -> Vec<(&'static str, &$crate::statement::Statement)> {
                vec![$((stringify!($field), &self.$field),)+]
            }
        }
    };
}
pub(crate) use statements;

/// Declares a struct of structs of statements.
macro_rules! statement_sets {
    (
        $(#[$about:meta])*
        struct $name:ident {
            $($field:ident: $set:ty,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        struct $name {
            $($field: $set,)+
        }

        impl $name {
            fn expand(names: &$crate::statement::Names) -> Self {
                Self { $($field: <$set>::expand(names),)+ }
            }

            #[cfg(test)]
            fn all(&self) -> Vec<(&'static str, &$crate::statement::Statement)> {
                let mut all = Vec::new();
                $(all.extend(self.$field.all());)+
                all
            }
        }
    };
}
pub(crate) use statement_sets;

/// A statement for each of the host's own conversation columns.
#[derive(Debug)]
pub(crate) struct OwnColumns(Vec<(&'static str, Statement)>);

impl OwnColumns {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &Statement)> {
        self.0.iter().map(|(column, statement)| (*column, statement))
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<(&'static str, &Statement)> {
        self.iter().collect()
    }
}

/// The names that placeholders stand for.
pub(crate) struct Names {
    tables: Tables,
    quote: char,
}

impl Names {
    /// `SQLite` takes a name in double quotes for a string if there is no such column. It doesn't do that with backticks,
    /// so a missing column is an error.
    pub(crate) fn new(tables: Tables, database: Database) -> Self {
        let quote = match database {
            Database::Sqlite => '`',
            Database::Postgres => '"',
        };
        Self { tables, quote }
    }

    /// Replaces the placeholders of a statement.
    ///
    /// # Panics
    ///
    /// If a placeholder is unknown. A unit test expands every statement.
    pub(crate) fn expand(&self, sql: &str) -> Statement {
        let mut expanded = String::with_capacity(sql.len() + 256);
        let mut rest = sql;
        while let Some(start) = rest.find('{') {
            expanded += &rest[..start];
            rest = &rest[start + 1..];
            let end = rest.find('}').unwrap_or(0);
            let placeholder = &rest[..end];
            if placeholder.is_empty() || !placeholder.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_' | b'.')) {
                // A brace of the statement's own, for example of an array literal.
                expanded.push('{');
                continue;
            }
            self.push(&mut expanded, placeholder);
            rest = &rest[end + 1..];
        }
        expanded += rest;
        Statement(expanded.into())
    }

    /// As [`expand`](Self::expand), once for each of the host's own conversation columns, which `{column}` stands for.
    pub(crate) fn expand_each(&self, sql: &str) -> OwnColumns {
        let columns = self.tables.own_conversation_columns();
        OwnColumns(
            columns.map(|column| (column, self.expand(&sql.replace("{column}", &self.quoted(column))))).collect(),
        )
    }

    fn push(&self, sql: &mut String, placeholder: &str) {
        let (alias, name) = placeholder.split_once('.').map_or(("", placeholder), |(alias, name)| (alias, name));
        let owner = self.tables.owner();
        let group = || self.tables.group_of_owners().expect("statements for groups are expanded only with a group");
        let pushed = match name {
            "conversations" | "display_messages" | "agent_states" | "agent_messages" | "unreadable_states" | "runs"
            | "usage" => write!(sql, "{}", self.quoted(&format!("{}{name}", self.tables.prefix()))),
            "prefix" => write!(sql, "{}", self.tables.prefix()),
            "owner" => write!(sql, "{}", self.quoted(owner.name)),
            "owner_type" => write!(sql, "{}", owner.kind.postgres_type()),
            "group_table" => {
                write!(sql, "{}", group().table.split('.').map(|name| self.quoted(name)).collect::<Vec<_>>().join("."))
            }
            "group" => write!(sql, "{}", self.quoted(group().group)),
            "group_type" => write!(sql, "{}", group().kind.postgres_type()),
            "member" => write!(sql, "{}", self.quoted(group().member)),
            "conversation_columns" => {
                let columns = [owner.name].into_iter().chain(tables::CONVERSATION.iter().copied());
                write!(sql, "{}", self.list(alias, columns.chain(self.tables.own_conversation_columns())))
            }
            "display_message_columns" => {
                let columns = [owner.name].into_iter().chain(tables::DISPLAY_MESSAGE.iter().copied());
                write!(sql, "{}", self.list(alias, columns.chain(self.tables.own_display_message_columns())))
            }
            "run_columns" => write!(sql, "{}", self.list(alias, tables::RUN.iter().copied())),
            "own_conversation_columns" => self.each(sql, alias, self.tables.own_conversation_columns()),
            "own_display_message_columns" => self.each(sql, alias, self.tables.own_display_message_columns()),
            _ => panic!("the placeholder {{{placeholder}}} is unknown"),
        };
        pushed.expect("writing to a string");
    }

    fn quoted(&self, name: &str) -> String {
        let quote = self.quote;
        format!("{quote}{}{quote}", name.replace(quote, &format!("{quote}{quote}")))
    }

    fn list<'a>(&self, alias: &str, columns: impl Iterator<Item = &'a str>) -> String {
        columns.map(|column| self.qualified(alias, column)).collect::<Vec<_>>().join(", ")
    }

    fn each<'a>(&self, sql: &mut String, alias: &str, mut columns: impl Iterator<Item = &'a str>) -> std::fmt::Result {
        columns.try_for_each(|column| write!(sql, ", {}", self.qualified(alias, column)))
    }

    fn qualified(&self, alias: &str, column: &str) -> String {
        let column = self.quoted(column);
        if alias.is_empty() { column } else { format!("{alias}.{column}") }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tables::{Group, KeyKind, OwnerColumn};

    const MEMBERS: Group = Group { table: "members", group: "org_id", kind: KeyKind::Integer, member: "member" };

    /// Tables with each kind of key and group, and with columns of a host's own.
    pub(crate) const KINDS: [Tables; 4] = [
        Tables::new(1, "sagents_", OwnerColumn::integer("user_id")).group(MEMBERS),
        Tables::new(1, "chat_", OwnerColumn::uuid("team_id"))
            .group(Group { kind: KeyKind::Uuid, ..MEMBERS })
            .conversation_columns(&["id", "project_id"])
            .display_message_columns(&["sequence", "rating"]),
        Tables::new(1, "", OwnerColumn::text("order")).group(Group { kind: KeyKind::Text, ..MEMBERS }),
        Tables::new(1, "nobodys_", OwnerColumn::none()),
    ];

    /// Every kind of owner with every kind of group, and with none.
    pub(crate) fn all_kinds() -> Vec<Tables> {
        let owners = [
            OwnerColumn::integer("user_id"),
            OwnerColumn::uuid("team_id"),
            OwnerColumn::text("order"),
            OwnerColumn::none(),
        ];
        let groups = [KeyKind::Integer, KeyKind::Uuid, KeyKind::Text].map(Some).into_iter().chain([None]);
        let kinds = owners.into_iter().flat_map(|owner| groups.clone().map(move |group| (owner, group)));
        let tables = kinds.map(|(owner, group)| {
            let tables = Tables::new(1, "sagents_", owner);
            group.map_or(tables, |kind| tables.group(Group { kind, ..MEMBERS }))
        });
        tables.chain(KINDS).collect()
    }

    /// Statements that create the tables of a kind, for `SQLite` or `PostgreSQL`.
    pub(crate) fn create(tables: &Tables, database: Database) -> String {
        let kind = |kind: KeyKind| match kind {
            KeyKind::Integer => crate::schema::Kind::BigInteger,
            KeyKind::Uuid => crate::schema::Kind::Uuid,
            KeyKind::Text => crate::schema::Kind::Text,
        };
        let mut sql = crate::schema::sql::create(&crate::check::needed(tables), database);
        if let Some(group) = tables.group_of_owners() {
            let [group, member] = [group.kind, tables.owner().kind].map(|key| database.column_type(kind(key)));
            write!(
                sql,
                "CREATE TABLE IF NOT EXISTS members (org_id {group}, member {member}, PRIMARY KEY (org_id, member));"
            )
            .unwrap();
        }
        let own = [("conversations", tables.own_conversation_columns().next())];
        let own = own.into_iter().chain([("display_messages", tables.own_display_message_columns().next())]);
        for (table, column) in own.filter_map(|(table, column)| Some((table, column?))) {
            write!(sql, "ALTER TABLE {}{table} ADD COLUMN {column} INTEGER;", tables.prefix()).unwrap();
        }
        sql
    }

    /// The lists of conversations in generated code, and the end of the name of the index that each reads. `SQLite` reads
    /// it because the statement names it.
    pub(crate) const LISTS: [(&str, &str); 4] = [
        (
            "active",
            "SELECT {conversation_columns} FROM {conversations}
             WHERE {owner} = $1 AND archived_at IS NULL AND (updated_at, id) < ($2, $3)
             ORDER BY updated_at DESC, id DESC LIMIT $4",
        ),
        (
            "archived",
            "SELECT {conversation_columns} FROM {conversations}
             WHERE {owner} = $1 AND archived_at IS NOT NULL AND (updated_at, id) < ($2, $3)
             ORDER BY updated_at DESC, id DESC LIMIT $4",
        ),
        (
            "active_id",
            "SELECT {conversation_columns} FROM {conversations} INDEXED BY {prefix}conversations_active_id
             WHERE {owner} = $1 AND archived_at IS NULL AND id < $2
             ORDER BY id DESC LIMIT $3",
        ),
        (
            "archived_id",
            "SELECT {conversation_columns} FROM {conversations} INDEXED BY {prefix}conversations_archived_id
             WHERE {owner} = $1 AND archived_at IS NOT NULL AND id < $2
             ORDER BY id DESC LIMIT $3",
        ),
    ];

    /// Statements of more lines hide a decision that belongs in Rust.
    pub(crate) fn check_length<'a>(statements: impl IntoIterator<Item = (&'static str, &'a Statement)>) {
        for (name, statement) in statements {
            let lines = statement.as_str().trim().lines().count();
            assert!(lines <= 60, "the statement {name} has {lines} lines");
        }
    }

    const TABLES: Tables = Tables::new(1, "chat_", OwnerColumn::uuid("team_id")).conversation_columns(&[
        "team_id",
        "id",
        "title",
        "project_id",
    ]);

    #[test]
    fn placeholders_become_quoted_names() {
        let names = Names::new(TABLES, Database::Postgres);
        let sql = "INSERT INTO {runs} ({owner}{own_conversation_columns}) SELECT $1::{owner_type}{c.own_conversation_columns}, '{}', '{1}'";
        let expanded = names.expand(sql);
        assert_eq!(
            expanded.as_str(),
            r#"INSERT INTO "chat_runs" ("team_id", "project_id") SELECT $1::uuid, c."project_id", '{}', '{1}'"#
        );
    }

    #[test]
    fn column_lists_have_our_columns_and_the_hosts() {
        let expanded = Names::new(TABLES, Database::Postgres).expand("{c.conversation_columns}");
        assert!(expanded.as_str().starts_with(r#"c."team_id", c."id", c."title""#));
        assert!(expanded.as_str().ends_with(r#"c."archived_at", c."project_id""#));
    }

    #[test]
    fn a_table_of_memberships_can_have_a_schema() {
        let tables = TABLES.group(Group { table: "app.members", ..MEMBERS });
        for (database, expected) in [(Database::Sqlite, "`app`.`members`"), (Database::Postgres, r#""app"."members""#)]
        {
            assert_eq!(Names::new(tables, database).expand("{group_table}").as_str(), expected);
        }
    }

    #[test]
    #[should_panic(expected = "{conversation} is unknown")]
    fn an_unknown_placeholder_panics() {
        let _ = Names::new(TABLES, Database::Postgres).expand("SELECT 1 FROM {conversation}");
    }
}
