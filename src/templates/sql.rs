//! Names of tables and columns as the statements of a context write them.

use sqlparser::keywords::ALL_KEYWORDS;

use crate::database::Database;
use crate::options::{GroupTable, Options};

/// The names in a context's statements. A plain name has no quotes.
#[derive(Debug)]
pub struct Sql {
    /// The delimiters of a Rust string with a statement.
    pub open: &'static str,
    pub close: &'static str,
    pub conversations: String,
    pub agent_states: String,
    pub owner: String,
    /// The columns of the models.
    pub columns: String,
    pub state_columns: String,
    /// The indexes of the lists by creation.
    pub active_id: String,
    pub archived_id: String,
    pub group: Option<GroupSql>,
}

/// The table of memberships.
#[derive(Debug)]
pub struct GroupSql {
    /// The delimiters of a Rust string with a statement that names it.
    pub open: &'static str,
    pub close: &'static str,
    pub table: String,
    pub column: String,
    /// The member's key as a value to compare the owner with.
    pub member: String,
}

impl Sql {
    pub fn new(options: &Options) -> Self {
        let database = options.database;
        let table = |suffix: &str| name(database, &format!("{}{suffix}", options.prefix.as_str()));
        let owner = name(database, &options.owner_column().name);
        let (conversations, agent_states) = (table("conversations"), table("agent_states"));
        let is_quoted = [&owner, &conversations].iter().any(|name| name.contains('"'));
        let (open, close) = delimiters(is_quoted);
        let group = options.group.as_ref().map(|group| GroupSql::new(&group.table, database, is_quoted));
        Self {
            open,
            close,
            columns: format!("{owner}, id, title, metadata, interrupted, inserted_at, updated_at, archived_at"),
            state_columns: format!("{owner}, conversation_id, revision, version, inserted_at, updated_at"),
            conversations,
            agent_states,
            owner,
            active_id: table("conversations_active_id"),
            archived_id: table("conversations_archived_id"),
            group,
        }
    }
}

impl GroupSql {
    /// `is_quoted`: other names in the statement have quotes.
    fn new(group: &GroupTable, database: Database, is_quoted: bool) -> Self {
        let GroupTable { schema, name: table, group, member, is_owners: _ } = group;
        let table = schema.iter().chain([table]).map(|part| name(database, part)).collect::<Vec<_>>().join(".");
        let (column, member) = (name(database, group), name(database, member));
        let (open, close) = delimiters(is_quoted || [&table, &column, &member].iter().any(|name| name.contains('"')));
        Self {
            open,
            close,
            table,
            column,
            // `+` takes off the column's type, which would keep SQLite from using an index.
            member: if database == Database::Sqlite { format!("+{member}") } else { member },
        }
    }
}

/// Raw strings need `#` only around quotes.
fn delimiters(is_quoted: bool) -> (&'static str, &'static str) {
    if is_quoted { ("r#\"", "\"#") } else { ("\"", "\"") }
}

/// The statement that makes an owner a member of a group, as a Rust string. The owner is its first parameter.
pub fn join(
    GroupTable { schema, name: table, group, member, is_owners: _ }: &GroupTable,
    database: Database,
) -> String {
    let table: Vec<_> = schema.iter().chain([table]).map(|part| name(database, part)).collect();
    let (table, group, member) = (table.join("."), name(database, group), name(database, member));
    let sql = format!("INSERT INTO {table} ({member}, {group}) VALUES ($1, $2) ON CONFLICT DO NOTHING");
    let (open, close) = delimiters(sql.contains('"'));
    format!("{open}{sql}{close}")
}

/// Names that other databases reserve, but not these two.
const NEVER_RESERVED: &[&str] = &["account", "client", "id", "member", "owner", "uuid"];

/// A name, in quotes if it isn't plain.
pub fn name(database: Database, name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && (NEVER_RESERVED.contains(&name) || ALL_KEYWORDS.binary_search(&name.to_uppercase().as_str()).is_err());
    if is_plain { name.to_owned() } else { database.quote(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_need_quotes_have_them() {
        for plain in ["id", "user_id", "sagents_conversations", "_owner2"] {
            assert_eq!(name(Database::Postgres, plain), plain);
        }
        for (odd, quoted) in [("order", "\"order\""), ("UserId", "\"UserId\""), ("a b", "\"a b\""), ("2nd", "\"2nd\"")]
        {
            assert_eq!(name(Database::Sqlite, odd), quoted);
        }
    }
}
