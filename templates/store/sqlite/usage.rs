//! The statements for the tokens that messages cost.
//!
//! A row without tokens marks a message that was counted in another conversation.

use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::super::usage::usage;
use super::super::{Error, Owner, {% if group.is_some() %}Reach, {% endif %}Result};
{% if group.is_some() %}use super::groups;
{% endif %}use super::{Store, now};
use crate::sagents::timestamp::{Timestamp, to_text};
use crate::sagents::{MessageUsage, TokenUsage, Usage};

/// The sums by model, for a statement that calls the row `u`. `sum` would fail where they overflow, so
/// they are numbers with a point up to the largest that is a whole number.
macro_rules! sums {
    () => {
        "u.model, count(*) AS messages,
            CAST(min(total(u.input_tokens), 9223372036854774784.0) AS INTEGER) AS input,
            CAST(min(total(u.output_tokens), 9223372036854774784.0) AS INTEGER) AS output,
            CAST(min(total(u.cached_tokens), 9223372036854774784.0) AS INTEGER) AS cached"
    };
}
{%- if group.is_some() %}
pub(super) use sums;
{%- endif %}

/// Counts messages, in the transaction that stores them. One that was counted is not counted again.
pub(super) async fn count(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    messages: &[(Uuid, &MessageUsage)],
) -> Result<()> {
    // `$2` is a JSON array with the model and the tokens of each message; `$3` has the ids, 16 bytes
    // each.
    const COUNT: &str = r#"
        INSERT INTO {{ usage }}
            (conversation_id, message_id, model, input_tokens, output_tokens, cached_tokens,
             inserted_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT c.id, substr($3, 16 * n.key + 1, 16), json_extract(n.value, '$[0]'),
               json_extract(n.value, '$[1]'), json_extract(n.value, '$[2]'),
               json_extract(n.value, '$[3]'), $4{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
        FROM {{ conversations }} AS c CROSS JOIN json_each($2) AS n
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $5 AND {% endif %}c.id = $1
        ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}conversation_id, message_id) DO NOTHING"#;

    if messages.is_empty() {
        return Ok(());
    }
    let counts = messages.iter().map(|(_, usage)| {
        let TokenUsage { input, output, cached } = usage.tokens;
        (&usage.model, input, output, cached)
    });
    let ids: Vec<_> = messages.iter().flat_map(|(id, _)| id.into_bytes()).collect();
    sqlx::query(COUNT)
        .bind(conversation_id)
        .bind(Json(counts.collect::<Vec<_>>()))
        .bind(ids)
        .bind(now())
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .execute(connection)
        .await
        .map(drop)?;
    Ok(())
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
                WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $2 AND {% endif %}u.conversation_id = $1
                  AND (u.input_tokens > 0 OR u.output_tokens > 0)
                GROUP BY u.model
            ) AS u ON TRUE
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $2 AND {% endif %}c.id = $1"#);
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
            WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $3 AND {% endif %}u.inserted_at >= $1 AND u.inserted_at < $2
              AND (u.input_tokens > 0 OR u.output_tokens > 0)
            GROUP BY u.model"#);
{%- if group.is_some() %}

        groups::check_member(&self.pool, reach).await?;
        let sql = match reach {
            Reach::Owner(_) | Reach::Member(..) => SELECT,
            Reach::Group(_) => groups::USAGE_BETWEEN,
        };
        let query = sqlx::query_as(sql).bind(to_text(from)).bind(to_text(to));
        let query = match reach {
            Reach::Owner(owner) | Reach::Member(_, owner) => query.bind(owner.id()),
            Reach::Group(group) => query.bind(group.id()),
        };
        let sums = query.fetch_all(&self.pool).await?;
{%- else %}

        let sums = sqlx::query_as(SELECT)
            .bind(to_text(from))
            .bind(to_text(to))
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_all(&self.pool)
            .await?;
{%- endif %}
        Ok(usage(sums))
    }
}
