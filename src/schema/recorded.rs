//! Reads a recorded schema. The first version wrote no names of constraints; they get those that its tables have.

use serde::Deserialize;

use super::{Check, Column, ForeignKey, Index, Key, Schema, Table};
use crate::database::Database;

impl Schema {
    /// Reads `schema.json` of this version or of the first one.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
            .or_else(|error| serde_json::from_str(text).map(|first: FirstSchema| first.named()).map_err(|_| error))
    }
}

#[derive(Deserialize)]
struct FirstSchema {
    tables: Vec<FirstTable>,
}

#[derive(Deserialize)]
struct FirstTable {
    name: String,
    about: String,
    columns: Vec<Column>,
    primary_key: Vec<String>,
    unique: Option<Vec<String>>,
    #[serde(default)]
    foreign_keys: Vec<FirstForeignKey>,
    #[serde(default)]
    checks: Vec<String>,
    #[serde(default)]
    indexes: Vec<Index>,
    clustered: bool,
}

#[derive(Deserialize)]
struct FirstForeignKey {
    columns: Vec<String>,
    schema: Option<String>,
    table: String,
    references: Vec<String>,
}

impl FirstSchema {
    fn named(self) -> Schema {
        Schema { tables: self.tables.into_iter().map(FirstTable::named).collect() }
    }
}

impl FirstTable {
    /// Keys had these names on `PostgreSQL`, which chose those of checks by itself. `SQLite` keeps no names apart from
    /// the text of a table, so there they make no difference.
    fn named(self) -> Table {
        let Self { name, about, columns, primary_key, unique, foreign_keys, checks, indexes, clustered } = self;
        let name_of = |suffix: &str| format!("{name}_{suffix}");
        let named = |FirstForeignKey { columns, schema, table, references }| ForeignKey {
            name: name_of("fkey"),
            columns,
            schema,
            table,
            references,
        };
        Table {
            primary_key: Key { name: name_of("pkey"), columns: primary_key },
            unique: unique.map(|columns| Key { name: name_of("key"), columns }).into_iter().collect(),
            foreign_keys: foreign_keys.into_iter().map(named).collect(),
            checks: named_checks(&name, checks),
            name,
            about,
            columns,
            indexes,
            clustered,
        }
    }
}

/// The first version's checks were about one column, which they started with, or about two.
fn named_checks(table: &str, conditions: Vec<String>) -> Vec<Check> {
    let mut checks: Vec<Check> = Vec::new();
    for condition in conditions {
        let column = condition.split_once(" >= ").or(condition.split_once(" IN (")).map(|(column, _)| column);
        let numbered = |number: usize| {
            let number = if number == 0 { String::new() } else { number.to_string() };
            chosen_name(table, column.unwrap_or_default(), &format!("check{number}"))
        };
        let is_free = |name: &String| !checks.iter().any(|check| check.name == *name);
        // There are more numbers than checks.
        let name = (0..=checks.len()).map(numbered).find(is_free).unwrap_or_default();
        checks.push(Check { name, condition });
    }
    checks
}

/// The name that `PostgreSQL` chooses for a constraint: what is too long is cut, the longer of the two names first.
fn chosen_name(table: &str, column: &str, label: &str) -> String {
    let parts = |table, column| [table, column, label].into_iter().filter(|part| !part.is_empty());
    let (mut table, mut column) = (table, column);
    while parts(table, column).map(|part| part.len() + 1).sum::<usize>() > Database::Postgres.identifier_limit() + 1 {
        let longer = if table.len() > column.len() { &mut table } else { &mut column };
        let Some((end, _)) = longer.char_indices().next_back() else { break };
        *longer = &longer[..end];
    }
    parts(table, column).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(prefix: &str) -> String {
        include_str!("../../tests/landed/sqlite_user/.sagents/conversations/schema.json").replace("sagents_", prefix)
    }

    #[test]
    fn the_first_version_gets_the_names_that_its_tables_have() {
        let schema = Schema::read(&first("sagents_")).unwrap();
        let names = schema.tables.iter().flat_map(|table| {
            let keys = table.unique.iter().chain([&table.primary_key]).map(|key| key.name.as_str());
            let foreign_keys = table.foreign_keys.iter().map(|key| key.name.as_str());
            keys.chain(foreign_keys).chain(table.checks.iter().map(|check| check.name.as_str()))
        });
        insta::assert_snapshot!(names.collect::<Vec<_>>().join("\n"), @"
        sagents_conversations_pkey
        sagents_conversations_fkey
        sagents_conversations_next_sequence_check
        sagents_agent_states_pkey
        sagents_agent_states_fkey
        sagents_agent_states_revision_check
        sagents_display_messages_key
        sagents_display_messages_pkey
        sagents_display_messages_fkey
        sagents_display_messages_sequence_check
        sagents_display_messages_item_check
        sagents_display_messages_role_check
        sagents_display_messages_content_type_check
        sagents_display_messages_status_check
        sagents_display_messages_check
        sagents_display_messages_check1
        ");
    }

    /// As `PostgreSQL` showed them for a prefix of 36 characters.
    #[test]
    fn names_that_were_too_long_are_cut_as_the_database_did() {
        let schema = Schema::read(&first("as_long_as_a_prefix_may_be_in_tables")).unwrap();
        let names = schema.tables.iter().flat_map(|table| &table.checks).map(|check| check.name.as_str());
        insta::assert_snapshot!(names.collect::<Vec<_>>().join("\n"), @"
        as_long_as_a_prefix_may_be_in_tablesconvers_next_sequence_check
        as_long_as_a_prefix_may_be_in_tablesagent_states_revision_check
        as_long_as_a_prefix_may_be_in_tablesdisplay_mess_sequence_check
        as_long_as_a_prefix_may_be_in_tablesdisplay_messages_item_check
        as_long_as_a_prefix_may_be_in_tablesdisplay_messages_role_check
        as_long_as_a_prefix_may_be_in_tablesdisplay__content_type_check
        as_long_as_a_prefix_may_be_in_tablesdisplay_messag_status_check
        as_long_as_a_prefix_may_be_in_tablesdisplay_messages_check
        as_long_as_a_prefix_may_be_in_tablesdisplay_messages_check1
        ");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let schema = Schema::read(&first("sagents_")).unwrap();
        assert_eq!(Schema::read(&serde_json::to_string(&schema).unwrap()).unwrap(), schema);
    }

    #[test]
    fn what_no_version_wrote_is_refused() {
        for text in ["", "{}", "[]", "{\"tables\": [{}]}"] {
            Schema::read(text).unwrap_err();
        }
    }
}
