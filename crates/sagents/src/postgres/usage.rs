//! The statements for the tokens that messages cost.
//!
//! A row without tokens marks a message that was counted in another conversation.

use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::Driver;
use super::errors::{FOREIGN_KEY_VIOLATION, code};
use crate::rows::stored_count;
use crate::statement::statements;
use crate::{Error, MessageUsage, Owner, Result, Timestamp};

statements! {
    /// Sums stop at the largest number.
    pub(super) struct Counts {
        /// A message that was counted isn't counted again. Statements that store messages have a part like this.
        count: "
            INSERT INTO {usage}
                ({owner}, conversation_id, message_id, model, input_tokens, output_tokens,
                 cached_tokens, inserted_at)
            SELECT c.{owner}, c.id, $2::uuid, $3::text, $4::bigint, $5::bigint, $6::bigint, $7::timestamptz
            FROM {conversations} AS c
            WHERE c.{owner} = $8::{owner_type} AND c.id = $1::uuid
            ON CONFLICT ({owner}, conversation_id, message_id) DO NOTHING",
        of_conversation: "
            SELECT u.model, count(*) AS messages,
                   least(sum(u.input_tokens), 9223372036854775807)::bigint AS input,
                   least(sum(u.output_tokens), 9223372036854775807)::bigint AS output,
                   least(sum(u.cached_tokens), 9223372036854775807)::bigint AS cached
            FROM {usage} AS u
            WHERE u.{owner} = $2::{owner_type} AND u.conversation_id = $1::uuid
              AND (u.input_tokens > 0 OR u.output_tokens > 0)
            GROUP BY u.model",
        between: "
            SELECT u.model, count(*) AS messages,
                   least(sum(u.input_tokens), 9223372036854775807)::bigint AS input,
                   least(sum(u.output_tokens), 9223372036854775807)::bigint AS output,
                   least(sum(u.cached_tokens), 9223372036854775807)::bigint AS cached
            FROM {usage} AS u
            WHERE u.{owner} = $3::{owner_type}
              AND u.inserted_at >= $1::timestamptz AND u.inserted_at < $2::timestamptz
              AND (u.input_tokens > 0 OR u.output_tokens > 0)
            GROUP BY u.model",
    }
}

statements! {
    pub(super) struct GroupCounts {
        between: "
            SELECT u.model, count(*) AS messages,
                   least(sum(u.input_tokens), 9223372036854775807)::bigint AS input,
                   least(sum(u.output_tokens), 9223372036854775807)::bigint AS output,
                   least(sum(u.cached_tokens), 9223372036854775807)::bigint AS cached
            FROM {usage} AS u
            WHERE u.{owner} IN (SELECT g.{member} FROM {group_table} AS g WHERE g.{group} = $3::{group_type})
              AND u.inserted_at >= $1::timestamptz AND u.inserted_at < $2::timestamptz
              AND (u.input_tokens > 0 OR u.output_tokens > 0)
            GROUP BY u.model",
    }
}

impl Driver {
    /// Counts a message that's stored already.
    pub(super) async fn count(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        conversation_id: Uuid,
        message_id: Uuid,
        usage: &MessageUsage,
    ) -> Result<()> {
        let counted = sqlx::query(&self.sql.usage.count)
            .bind(conversation_id)
            .bind(message_id)
            .bind(&usage.model)
            .bind(stored_count(usage.tokens.input))
            .bind(stored_count(usage.tokens.output))
            .bind(stored_count(usage.tokens.cached))
            .bind(Timestamp::now())
            .bind(owner.key())
            .execute(connection)
            .await;
        match counted {
            // The conversation was deleted in between.
            Err(error) if code(&error).as_deref() == Some(FOREIGN_KEY_VIOLATION) => Err(Error::NotFound),
            counted => Ok(counted.map(drop)?),
        }
    }
}
