//! The statements that search display messages.

use std::sync::Arc;

use futures_util::TryStreamExt as _;
use sqlx::types::Json;

use super::Driver;
use crate::page::PageRows;
use crate::rows::{display_message, size};
use crate::statement::statements;
use crate::store::search::{Found, Words, cases, has_cases};
use crate::{DisplayMessage, Reach, Result, SearchPage};

statements! {
    /// `LIKE` is fast, but ignores only the case of ASCII letters; `GLOB` decides. `SQLite` evaluates it last, because
    /// it's in a subquery.
    pub(super) struct Search {
        search: r"
            SELECT {m.display_message_columns} FROM (
                SELECT {display_message_columns}, CASE content_type
                    WHEN 'tool_call' THEN content || char(10) || coalesce(metadata ->> '$.arguments', '')
                    ELSE content
                END AS searched
                FROM {display_messages} WHERE {owner} = $1
            ) AS m
            WHERE (m.searched LIKE $2 ESCAPE '\'
                AND NOT EXISTS (SELECT 1 FROM json_each($3) AS w WHERE NOT m.searched GLOB w.value)
                OR m.conversation_id IN (
                    SELECT c.id FROM {conversations} AS c
                    WHERE c.{owner} = $1
                      AND c.title LIKE $2 ESCAPE '\'
                      AND NOT EXISTS (SELECT 1 FROM json_each($3) AS w WHERE NOT c.title GLOB w.value)
                ) AND m.sequence = (
                    SELECT min(f.sequence) FROM {display_messages} AS f
                    WHERE f.{owner} = $1 AND f.conversation_id = m.conversation_id
                ))
              AND (m.inserted_at, m.conversation_id, m.sequence) < ($4, $5, $6)
            ORDER BY m.inserted_at DESC, m.conversation_id DESC, m.sequence DESC LIMIT $7",
    }
}

statements! {
    pub(super) struct GroupSearch {
        search: r"
            SELECT {m.display_message_columns} FROM (
                SELECT {owner} AS owner, {display_message_columns}, CASE content_type
                    WHEN 'tool_call' THEN content || char(10) || coalesce(metadata ->> '$.arguments', '')
                    ELSE content
                END AS searched
                FROM {display_messages}
                WHERE {owner} IN (SELECT +g.{member} FROM {group_table} AS g WHERE g.{group} = $1)
            ) AS m
            WHERE (m.searched LIKE $2 ESCAPE '\'
                AND NOT EXISTS (SELECT 1 FROM json_each($3) AS w WHERE NOT m.searched GLOB w.value)
                OR (m.owner, m.conversation_id) IN (
                    SELECT c.{owner}, c.id FROM {conversations} AS c
                    WHERE c.{owner} IN (SELECT +g.{member} FROM {group_table} AS g WHERE g.{group} = $1)
                      AND c.title LIKE $2 ESCAPE '\'
                      AND NOT EXISTS (SELECT 1 FROM json_each($3) AS w WHERE NOT c.title GLOB w.value)
                ) AND m.sequence = (
                    SELECT min(f.sequence) FROM {display_messages} AS f
                    WHERE f.{owner} = m.owner AND f.conversation_id = m.conversation_id
                ))
              AND (m.inserted_at, m.conversation_id, m.sequence) < ($4, $5, $6)
            ORDER BY m.inserted_at DESC, m.conversation_id DESC, m.sequence DESC LIMIT $7",
    }
}

impl Driver {
    pub(crate) async fn search_messages(
        &self,
        reach: &Reach,
        words: &Words,
        (time, conversation_id, sequence): Found,
        rows: u32,
    ) -> Result<PageRows<DisplayMessage>> {
        let (statement, key) = match reach {
            Reach::Owner(owner) => (&self.sql.search.search, owner.key()),
            Reach::Group(group) => (&self.groups()?.search.search, group),
        };
        let patterns: Vec<_> = words.all.iter().map(|word| glob_pattern(word)).collect();
        let caller = Arc::default();
        let mut search = self.searches.begin(&self.pool, reach, &caller).await?;
        let mut found = PageRows::new(rows, SearchPage::MAX_BYTES);
        let mut rows = sqlx::query(statement)
            .bind(key)
            .bind(&words.like)
            .bind(Json(patterns))
            .bind(time)
            .bind(conversation_id)
            .bind(sequence)
            .bind(i64::from(rows))
            .fetch(&mut *search);
        while let Some(row) = rows.try_next().await?
            && found.push(display_message(&row)?, size(&row)?, |one, other| one.found() == other.found())
        {}
        drop(rows);
        search.end().await?;
        Ok(found)
    }
}

/// A pattern for `GLOB`, which doesn't ignore case: every letter becomes a class of its cases.
fn glob_pattern(word: &str) -> String {
    let mut pattern = String::from("*");
    for c in word.chars() {
        if has_cases(c) || matches!(c, '*' | '?' | '[') {
            pattern.push('[');
            pattern.push_str(&cases(c));
            pattern.push(']');
        } else {
            pattern.push(c);
        }
    }
    pattern.push('*');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_both_cases_and_no_wildcards() {
        assert_eq!(glob_pattern("aÉ*[]?1"), "*[aA][Éé][*][[]][?]1*");
    }
}
