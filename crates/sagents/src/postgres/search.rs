//! The statements that search display messages.

use std::sync::Arc;

use futures_util::TryStreamExt as _;
use sqlx::Executor as _;

use super::Driver;
use super::lease::{Lease, in_time};
use crate::page::PageRows;
use crate::rows::{display_message, size};
use crate::statement::statements;
use crate::store::search::{Found, Words, cases, has_cases};
use crate::{DisplayMessage, Reach, Result, SearchPage};

statements! {
    /// `ILIKE` is fast, but ignores only the case of ASCII letters in this collation; the regular expressions decide.
    /// Their time doesn't grow with the length of a word, and the server can cancel them.
    pub(super) struct Search {
        search: r#"
            SELECT {m.display_message_columns} FROM (
                SELECT {display_message_columns}, CASE content_type
                    WHEN 'tool_call' THEN concat(content, chr(10), metadata ->> 'arguments')
                    ELSE content
                END AS searched
                FROM {display_messages} WHERE {owner} = $1::{owner_type}
            ) AS m
            WHERE (m.searched COLLATE "C" ILIKE $2::text ESCAPE '\' AND m.searched ~ ALL ($3::text[])
                OR m.conversation_id IN (
                    SELECT c.id FROM {conversations} AS c
                    WHERE c.{owner} = $1::{owner_type}
                      AND c.title COLLATE "C" ILIKE $2::text ESCAPE '\' AND c.title ~ ALL ($3::text[])
                ) AND m.sequence = (
                    SELECT min(f.sequence) FROM {display_messages} AS f
                    WHERE f.{owner} = $1::{owner_type} AND f.conversation_id = m.conversation_id
                ))
              AND (m.inserted_at, m.conversation_id, m.sequence) < ($4::timestamptz, $5::uuid, $6::bigint)
            ORDER BY m.inserted_at DESC, m.conversation_id DESC, m.sequence DESC LIMIT $7::bigint"#,
    }
}

statements! {
    pub(super) struct GroupSearch {
        search: r#"
            SELECT {m.display_message_columns} FROM (
                SELECT {owner} AS owner, {display_message_columns}, CASE content_type
                    WHEN 'tool_call' THEN concat(content, chr(10), metadata ->> 'arguments')
                    ELSE content
                END AS searched
                FROM {display_messages}
                WHERE {owner} IN (SELECT g.{member} FROM {group_table} AS g WHERE g.{group} = $1::{group_type})
            ) AS m
            WHERE (m.searched COLLATE "C" ILIKE $2::text ESCAPE '\' AND m.searched ~ ALL ($3::text[])
                OR (m.owner, m.conversation_id) IN (
                    SELECT c.{owner}, c.id FROM {conversations} AS c
                    WHERE c.{owner} IN (SELECT g.{member} FROM {group_table} AS g WHERE g.{group} = $1::{group_type})
                      AND c.title COLLATE "C" ILIKE $2::text ESCAPE '\' AND c.title ~ ALL ($3::text[])
                ) AND m.sequence = (
                    SELECT min(f.sequence) FROM {display_messages} AS f
                    WHERE f.{owner} = m.owner AND f.conversation_id = m.conversation_id
                ))
              AND (m.inserted_at, m.conversation_id, m.sequence) < ($4::timestamptz, $5::uuid, $6::bigint)
            ORDER BY m.inserted_at DESC, m.conversation_id DESC, m.sequence DESC LIMIT $7::bigint"#,
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
        // For this transaction, a limit of ten seconds or the lower one that's set already.
        const BEGIN: &str = "
            BEGIN; SELECT set_config('statement_timeout', least(10000, nullif(1000 * extract(
                epoch FROM current_setting('statement_timeout')::interval
            ), 0))::integer::text, TRUE)";

        let (statement, key) = match reach {
            Reach::Owner(owner) => (&self.sql.search.search, owner.key()),
            Reach::Group(group) => (&self.groups()?.search.search, group),
        };
        let patterns: Vec<_> = words.all.iter().map(|word| regex_pattern(word)).collect();
        let turn = self.turns.take(reach, None).await?;
        let permit = in_time(Arc::clone(&self.searches).acquire_owned()).await?;
        let mut lease = Lease::take(&self.pool, (turn, permit)).await?;
        lease.connection().execute(BEGIN).await?;
        let mut found = PageRows::new(rows, SearchPage::MAX_BYTES);
        let mut rows = sqlx::query(statement)
            .bind(key)
            .bind(&words.like)
            .bind(patterns)
            .bind(time)
            .bind(conversation_id)
            .bind(sequence)
            .bind(i64::from(rows))
            .fetch(lease.connection());
        while let Some(row) = rows.try_next().await?
            && found.push(display_message(&row)?, size(&row)?, |one, other| one.found() == other.found())
        {}
        drop(rows);
        lease.connection().execute("COMMIT").await?;
        lease.end();
        Ok(found)
    }
}

/// A regular expression, which doesn't ignore case: every letter becomes a class of its cases.
fn regex_pattern(word: &str) -> String {
    let mut pattern = String::new();
    for c in word.chars() {
        if has_cases(c) {
            pattern.push('[');
            pattern.push_str(&cases(c));
            pattern.push(']');
        } else {
            if c.is_ascii_punctuation() {
                pattern.push('\\');
            }
            pattern.push(c);
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_both_cases_and_no_operators() {
        assert_eq!(regex_pattern("aÉ.*(1"), r"[aA][Éé]\.\*\(1");
    }
}
