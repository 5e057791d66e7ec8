//! The statements for the tokens that messages cost.
//!
//! A row without tokens marks a message that was counted in another conversation.

use serde::Serialize;
use uuid::Uuid;

use super::super::usage::usage;
use super::super::{Error, {% if group.is_some() %}Reach{% else %}Owner{% endif %}, Result};
{% if group.is_some() %}use super::groups;
{% endif %}use super::{Store, timestamp};
use crate::sagents::{MessageUsage, Timestamp, TokenUsage, Usage};

/// The sums by model, for a statement that calls the row `u`. They stop at the largest number.
macro_rules! sums {
    () => {
        "u.model, count(*) AS messages,
            least(sum(u.input_tokens), 9223372036854775807)::bigint AS input,
            least(sum(u.output_tokens), 9223372036854775807)::bigint AS output,
            least(sum(u.cached_tokens), 9223372036854775807)::bigint AS cached"
    };
}

/// The part of a statement that counts the messages which it stores: its conversation, the time, and the
/// parameter that has a JSON array of [`Counted`]. A message that was counted is not counted again.
macro_rules! counted {
    ($conversation:literal, $time:literal, $messages:literal) => {
        concat!(r#", counted AS (
            INSERT INTO {{ usage }}
                (conversation_id, message_id, model, input_tokens, output_tokens, cached_tokens,
                 inserted_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
            SELECT c.id, n.message_id, n.model, n.input, n.output, n.cached,
                   "#, $time, r#"::timestamptz{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
            FROM "#, $conversation, r#" AS c
            CROSS JOIN jsonb_to_recordset("#, $messages, r#"::jsonb)
                AS n (message_id uuid, model text, input bigint, output bigint, cached bigint)
            ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}conversation_id, message_id) DO NOTHING
        )"#)
    };
}
pub(super) use counted;

/// A message to count.
#[derive(Serialize)]
pub(super) struct Counted<'a> {
    message_id: Uuid,
    model: Option<&'a str>,
    #[serde(flatten)]
    tokens: TokenUsage,
}

impl<'a> Counted<'a> {
    pub(super) fn new(message_id: Uuid, usage: &'a MessageUsage) -> Self {
        Self {
            message_id,
            model: usage.model.as_deref(),
            tokens: usage.tokens,
        }
    }
}

impl Store {
    pub(crate) async fn usage(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
    ) -> Result<Usage> {
        // The left join tells a conversation without usage from one that does not exist.
        const SELECT: &str = concat!(r#"
            SELECT u.model, u.messages, u.input, u.output, u.cached
            FROM {{ conversations }} AS c
            LEFT JOIN (
                SELECT "#, sums!(), r#" FROM {{ usage }} AS u
                WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $2 AND {% endif %}u.conversation_id = $1::uuid
                  AND (u.input_tokens > 0 OR u.output_tokens > 0)
                GROUP BY u.model
            ) AS u ON TRUE
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1::uuid"#);
{%- if group.is_some() %}

        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}

        let sums = sqlx::query_as(SELECT)
            .bind(conversation_id)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_all(&self.pool)
            .await?;
        if sums.is_empty() {
            return Err(Error::NotFound);
        }
        Ok(usage(sums))
    }

    pub(crate) async fn usage_between(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Usage> {
        const SELECT: &str = concat!("SELECT ", sums!(), r#" FROM {{ usage }} AS u
            WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $3 AND {% endif %}u.inserted_at >= $1::timestamptz AND u.inserted_at < $2::timestamptz
              AND (u.input_tokens > 0 OR u.output_tokens > 0)
            GROUP BY u.model"#);
{%- if group.is_some() %}

        groups::check_member(&self.pool, reach).await?;
        let sql = match reach {
            Reach::Owner(_) | Reach::Member(..) => SELECT,
            Reach::Group(_) => groups::USAGE_BETWEEN,
        };
        let query = sqlx::query_as(sql).bind(timestamp(from)).bind(timestamp(to));
        let query = match reach {
            Reach::Owner(owner) | Reach::Member(_, owner) => query.bind(owner.id()),
            Reach::Group(group) => query.bind(group.id()),
        };
        let sums = query.fetch_all(&self.pool).await?;
{%- else %}

        let sums = sqlx::query_as(SELECT)
            .bind(timestamp(from))
            .bind(timestamp(to))
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_all(&self.pool)
            .await?;
{%- endif %}
        Ok(usage(sums))
    }
}
