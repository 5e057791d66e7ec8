//! The statements for the tokens that messages cost.
//!
//! A row without tokens marks a message that was counted in another conversation.

use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::Driver;
use crate::statement::statements;
use crate::{MessageUsage, Owner, Result, Timestamp, TokenUsage};

statements! {
    /// `sum` would fail where a sum overflows, so sums are numbers with a point, up to the largest that's a whole number.
    pub(super) struct Counts {
        /// `$2` is a JSON array with the model and the tokens of each message; `$3` has the ids, 16 bytes each. A message
        /// that was counted isn't counted again.
        count: "
            INSERT INTO {usage}
                ({owner}, conversation_id, message_id, model, input_tokens, output_tokens,
                 cached_tokens, inserted_at)
            SELECT c.{owner}, c.id, substr($3, 16 * n.key + 1, 16), json_extract(n.value, '$[0]'),
                   json_extract(n.value, '$[1]'), json_extract(n.value, '$[2]'),
                   json_extract(n.value, '$[3]'), $4
            FROM {conversations} AS c CROSS JOIN json_each($2) AS n
            WHERE c.{owner} = $5 AND c.id = $1
            ON CONFLICT ({owner}, conversation_id, message_id) DO NOTHING",
        of_conversation: "
            SELECT u.model, count(*) AS messages,
                   CAST(min(total(u.input_tokens), 9223372036854774784.0) AS INTEGER) AS input,
                   CAST(min(total(u.output_tokens), 9223372036854774784.0) AS INTEGER) AS output,
                   CAST(min(total(u.cached_tokens), 9223372036854774784.0) AS INTEGER) AS cached
            FROM {usage} AS u
            WHERE u.{owner} = $2 AND u.conversation_id = $1
              AND (u.input_tokens > 0 OR u.output_tokens > 0)
            GROUP BY u.model",
        between: "
            SELECT u.model, count(*) AS messages,
                   CAST(min(total(u.input_tokens), 9223372036854774784.0) AS INTEGER) AS input,
                   CAST(min(total(u.output_tokens), 9223372036854774784.0) AS INTEGER) AS output,
                   CAST(min(total(u.cached_tokens), 9223372036854774784.0) AS INTEGER) AS cached
            FROM {usage} AS u
            WHERE u.{owner} = $3 AND u.inserted_at >= $1 AND u.inserted_at < $2
              AND (u.input_tokens > 0 OR u.output_tokens > 0)
            GROUP BY u.model",
    }
}

statements! {
    pub(super) struct GroupCounts {
        between: "
            SELECT u.model, count(*) AS messages,
                   CAST(min(total(u.input_tokens), 9223372036854774784.0) AS INTEGER) AS input,
                   CAST(min(total(u.output_tokens), 9223372036854774784.0) AS INTEGER) AS output,
                   CAST(min(total(u.cached_tokens), 9223372036854774784.0) AS INTEGER) AS cached
            FROM {usage} AS u
            WHERE u.{owner} IN (SELECT g.{member} FROM {group_table} AS g WHERE g.{group} = $3)
              AND u.inserted_at >= $1 AND u.inserted_at < $2
              AND (u.input_tokens > 0 OR u.output_tokens > 0)
            GROUP BY u.model",
    }
}

impl Driver {
    /// Counts messages, in the transaction that stores them.
    pub(super) async fn count(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        conversation_id: Uuid,
        messages: &[(Uuid, &MessageUsage)],
    ) -> Result<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let counts = messages.iter().map(|(_, usage)| {
            let TokenUsage { input, output, cached } = usage.tokens;
            (&usage.model, input, output, cached)
        });
        let ids: Vec<u8> = messages.iter().flat_map(|(id, _)| id.into_bytes()).collect();
        sqlx::query(&self.sql.usage.count)
            .bind(conversation_id)
            .bind(Json(counts.collect::<Vec<_>>()))
            .bind(ids)
            .bind(Timestamp::now())
            .bind(owner.key())
            .execute(connection)
            .await
            .map(drop)?;
        Ok(())
    }
}
