{%- if let (Some(group), Some(owner)) = (group, owner) -%}
//! Whose rows a group reads: the statements for its members, and those that read what all of them
//! have. The group is their last parameter, and `group_member` is an owner who is in it.
//!
//! A conversation's id is unique for its owner only: a member can import one with any id. So a call
//! for one conversation finds its owner first, and then reads the rows of that owner. A page with one
//! of several conversations with the same id has all of them, also if it gets longer than its limit:
//! the next page starts behind that id, and is empty if there is nothing behind it.
//!
//! `WITH TIES` needs `PostgreSQL` 13.

use sqlx::PgExecutor;
use uuid::Uuid;

use super::super::{Archived, Error, Owner, Reach, Result};
use super::conversations::Lists;
use super::rows::{conversation_columns, display_message_columns, run_columns};

/// The owner of the conversation that a call reads.
///
/// # Errors
///
/// [`Error::NotFound`] if the caller reaches no such conversation, [`Error::SeveralOwners`] if more
/// than one member of the group has it. Neither time nor order decides between them, because both can
/// come from a file.
pub(super) async fn owner_of(executor: impl PgExecutor<'_>, reach: &Reach, id: Uuid) -> Result<Owner> {
    const SELECT: &str = r#"
        SELECT c.{{ owner }} FROM {{ conversations }} AS c
        WHERE c.id = $1::uuid AND EXISTS (
            SELECT 1 FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }}
        )
        LIMIT 2"#;

    match reach {
        Reach::Owner(owner) => Ok(owner.clone()),
        Reach::Member(_, owner) => {
            check_member(executor, reach).await?;
            Ok(owner.clone())
        }
        Reach::Group(group) => {
            let query = sqlx::query_scalar(SELECT).bind(id).bind(group.id());
            let mut keys: Vec<{{ key_type }}> = query.fetch_all(executor).await?;
            let key = keys.pop().ok_or(Error::NotFound)?;
            if !keys.is_empty() {
                return Err(Error::SeveralOwners);
            }
{%- if owner_is_uuid_text %}
            let key = Uuid::try_parse(&key).map_err(|error| sqlx::Error::Decode(error.into()))?;
{%- endif %}
            Ok(Owner::new(key))
        }
    }
}

/// [`Error::NotFound`] if the caller names an owner who is not a member of its group.
pub(super) async fn check_member(executor: impl PgExecutor<'_>, reach: &Reach) -> Result<()> {
    const SELECT: &str = r#"
        SELECT 1 FROM {{ group.table }} AS g
        WHERE g.{{ group.column }} = $1 AND g.{{ group.member }} = $2 LIMIT 1"#;

    let Reach::Member(group, owner) = reach else {
        return Ok(());
    };
    let query = sqlx::query(SELECT).bind(group.id()).bind(owner.id());
    let member = query.fetch_optional(executor).await?;
    member.map(drop).ok_or(Error::NotFound)
}

/// The statements for a page of conversations.
///
/// A page can have conversations only of the members whose first ones come first, and of each no
/// more than fit on it.
pub(super) fn lists(archived: Archived) -> Lists {
    match archived {
        Archived::Exclude => ACTIVE,
        Archived::Include => ALL,
        Archived::Only => ARCHIVED,
    }
}

macro_rules! created_desc {
    ($condition:literal) => {
        concat!(r#"
            WITH first AS (
                SELECT o.group_member
                FROM (
                    SELECT {% if !group.is_owners %}DISTINCT {% endif %}g.{{ group.member }} AS group_member
                    FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $3
                ) AS o
                CROSS JOIN LATERAL (
                    SELECT c.id FROM {{ conversations }} AS c
                    WHERE c.{{ owner }} = o.group_member AND "#, $condition, r#"c.id < $2::uuid
                    ORDER BY c.id DESC LIMIT 1
                ) AS c
                ORDER BY c.id DESC FETCH FIRST ($1::bigint) ROWS WITH TIES
            )
            SELECT "#, conversation_columns!(), r#"
            FROM first AS f
            CROSS JOIN LATERAL (
                SELECT "#, conversation_columns!(), r#"
                FROM {{ conversations }} AS c
                WHERE c.{{ owner }} = f.group_member AND "#, $condition, r#"c.id < $2::uuid
                ORDER BY c.id DESC LIMIT $1::bigint
            ) AS c
            ORDER BY c.id DESC FETCH FIRST ($1::bigint) ROWS WITH TIES"#)
    };
}

macro_rules! created_asc {
    ($condition:literal) => {
        concat!(r#"
            WITH first AS (
                SELECT o.group_member
                FROM (
                    SELECT {% if !group.is_owners %}DISTINCT {% endif %}g.{{ group.member }} AS group_member
                    FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $3
                ) AS o
                CROSS JOIN LATERAL (
                    SELECT c.id FROM {{ conversations }} AS c
                    WHERE c.{{ owner }} = o.group_member AND "#, $condition, r#"c.id > $2::uuid
                    ORDER BY c.id LIMIT 1
                ) AS c
                ORDER BY c.id FETCH FIRST ($1::bigint) ROWS WITH TIES
            )
            SELECT "#, conversation_columns!(), r#"
            FROM first AS f
            CROSS JOIN LATERAL (
                SELECT "#, conversation_columns!(), r#"
                FROM {{ conversations }} AS c
                WHERE c.{{ owner }} = f.group_member AND "#, $condition, r#"c.id > $2::uuid
                ORDER BY c.id LIMIT $1::bigint
            ) AS c
            ORDER BY c.id FETCH FIRST ($1::bigint) ROWS WITH TIES"#)
    };
}

/// As for one owner, the condition is a part of the text.
macro_rules! lists {
    ($condition:literal) => {
        Lists {
            updated_desc: concat!(r#"
                WITH first AS (
                    SELECT o.group_member
                    FROM (
                        SELECT {% if !group.is_owners %}DISTINCT {% endif %}g.{{ group.member }} AS group_member
                        FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $4
                    ) AS o
                    CROSS JOIN LATERAL (
                        SELECT c.updated_at, c.id FROM {{ conversations }} AS c
                        WHERE c.{{ owner }} = o.group_member AND "#, $condition, r#"(c.updated_at, c.id) < ($2::timestamptz, $3::uuid)
                        ORDER BY c.updated_at DESC, c.id DESC LIMIT 1
                    ) AS c
                    ORDER BY c.updated_at DESC, c.id DESC FETCH FIRST ($1::bigint) ROWS WITH TIES
                )
                SELECT "#, conversation_columns!(), r#"
                FROM first AS f
                CROSS JOIN LATERAL (
                    SELECT "#, conversation_columns!(), r#"
                    FROM {{ conversations }} AS c
                    WHERE c.{{ owner }} = f.group_member AND "#, $condition, r#"(c.updated_at, c.id) < ($2::timestamptz, $3::uuid)
                    ORDER BY c.updated_at DESC, c.id DESC LIMIT $1::bigint
                ) AS c
                ORDER BY c.updated_at DESC, c.id DESC FETCH FIRST ($1::bigint) ROWS WITH TIES"#),
            updated_asc: concat!(r#"
                WITH first AS (
                    SELECT o.group_member
                    FROM (
                        SELECT {% if !group.is_owners %}DISTINCT {% endif %}g.{{ group.member }} AS group_member
                        FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $4
                    ) AS o
                    CROSS JOIN LATERAL (
                        SELECT c.updated_at, c.id FROM {{ conversations }} AS c
                        WHERE c.{{ owner }} = o.group_member AND "#, $condition, r#"(c.updated_at, c.id) > ($2::timestamptz, $3::uuid)
                        ORDER BY c.updated_at, c.id LIMIT 1
                    ) AS c
                    ORDER BY c.updated_at, c.id FETCH FIRST ($1::bigint) ROWS WITH TIES
                )
                SELECT "#, conversation_columns!(), r#"
                FROM first AS f
                CROSS JOIN LATERAL (
                    SELECT "#, conversation_columns!(), r#"
                    FROM {{ conversations }} AS c
                    WHERE c.{{ owner }} = f.group_member AND "#, $condition, r#"(c.updated_at, c.id) > ($2::timestamptz, $3::uuid)
                    ORDER BY c.updated_at, c.id LIMIT $1::bigint
                ) AS c
                ORDER BY c.updated_at, c.id FETCH FIRST ($1::bigint) ROWS WITH TIES"#),
            created_desc: created_desc!($condition),
            created_asc: created_asc!($condition),
        }
    };
}

const ALL: Lists = Lists {
    updated_desc: concat!(r#"
        WITH first AS (
            SELECT o.group_member
            FROM (
                SELECT {% if !group.is_owners %}DISTINCT {% endif %}g.{{ group.member }} AS group_member
                FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $4
            ) AS o
            CROSS JOIN LATERAL (
                (SELECT c.updated_at, c.id FROM {{ conversations }} AS c
                WHERE c.{{ owner }} = o.group_member AND c.archived_at IS NULL AND (c.updated_at, c.id) < ($2::timestamptz, $3::uuid)
                ORDER BY c.updated_at DESC, c.id DESC LIMIT 1)
                UNION ALL
                (SELECT c.updated_at, c.id FROM {{ conversations }} AS c
                WHERE c.{{ owner }} = o.group_member AND c.archived_at IS NOT NULL AND (c.updated_at, c.id) < ($2::timestamptz, $3::uuid)
                ORDER BY c.updated_at DESC, c.id DESC LIMIT 1)
                ORDER BY updated_at DESC, id DESC LIMIT 1
            ) AS c
            ORDER BY c.updated_at DESC, c.id DESC FETCH FIRST ($1::bigint) ROWS WITH TIES
        )
        SELECT "#, conversation_columns!(), r#"
        FROM first AS f
        CROSS JOIN LATERAL (
            (SELECT "#, conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE c.{{ owner }} = f.group_member AND c.archived_at IS NULL AND (c.updated_at, c.id) < ($2::timestamptz, $3::uuid)
            ORDER BY c.updated_at DESC, c.id DESC LIMIT $1::bigint)
            UNION ALL
            (SELECT "#, conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE c.{{ owner }} = f.group_member AND c.archived_at IS NOT NULL AND (c.updated_at, c.id) < ($2::timestamptz, $3::uuid)
            ORDER BY c.updated_at DESC, c.id DESC LIMIT $1::bigint)
        ) AS c
        ORDER BY c.updated_at DESC, c.id DESC FETCH FIRST ($1::bigint) ROWS WITH TIES"#),
    updated_asc: concat!(r#"
        WITH first AS (
            SELECT o.group_member
            FROM (
                SELECT {% if !group.is_owners %}DISTINCT {% endif %}g.{{ group.member }} AS group_member
                FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $4
            ) AS o
            CROSS JOIN LATERAL (
                (SELECT c.updated_at, c.id FROM {{ conversations }} AS c
                WHERE c.{{ owner }} = o.group_member AND c.archived_at IS NULL AND (c.updated_at, c.id) > ($2::timestamptz, $3::uuid)
                ORDER BY c.updated_at, c.id LIMIT 1)
                UNION ALL
                (SELECT c.updated_at, c.id FROM {{ conversations }} AS c
                WHERE c.{{ owner }} = o.group_member AND c.archived_at IS NOT NULL AND (c.updated_at, c.id) > ($2::timestamptz, $3::uuid)
                ORDER BY c.updated_at, c.id LIMIT 1)
                ORDER BY updated_at, id LIMIT 1
            ) AS c
            ORDER BY c.updated_at, c.id FETCH FIRST ($1::bigint) ROWS WITH TIES
        )
        SELECT "#, conversation_columns!(), r#"
        FROM first AS f
        CROSS JOIN LATERAL (
            (SELECT "#, conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE c.{{ owner }} = f.group_member AND c.archived_at IS NULL AND (c.updated_at, c.id) > ($2::timestamptz, $3::uuid)
            ORDER BY c.updated_at, c.id LIMIT $1::bigint)
            UNION ALL
            (SELECT "#, conversation_columns!(), r#"
            FROM {{ conversations }} AS c
            WHERE c.{{ owner }} = f.group_member AND c.archived_at IS NOT NULL AND (c.updated_at, c.id) > ($2::timestamptz, $3::uuid)
            ORDER BY c.updated_at, c.id LIMIT $1::bigint)
        ) AS c
        ORDER BY c.updated_at, c.id FETCH FIRST ($1::bigint) ROWS WITH TIES"#),
    created_desc: created_desc!(""),
    created_asc: created_asc!(""),
};
const ACTIVE: Lists = lists!("archived_at IS NULL AND ");
const ARCHIVED: Lists = lists!("archived_at IS NOT NULL AND ");

pub(super) const SEARCH: &str = concat!("SELECT ", display_message_columns!(), r#"
    FROM (
        SELECT {% if !group.is_owners %}DISTINCT {% endif %}g.{{ group.member }} AS group_member
        FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $7
    ) AS o
    CROSS JOIN LATERAL (
        SELECT "#, display_message_columns!(), r#"
        FROM {{ display_messages }} AS m
        WHERE m.{{ owner }} = o.group_member AND m.content COLLATE "C" ILIKE $1::text ESCAPE '\'
          AND m.content ~ $2::text
          AND (m.inserted_at, m.conversation_id, m.sequence)
              < ($4::timestamptz, $5::uuid, $6::bigint)
        ORDER BY m.inserted_at DESC, m.conversation_id DESC, m.sequence DESC LIMIT $3::bigint
    ) AS m
    ORDER BY m.inserted_at DESC, m.conversation_id DESC, m.sequence DESC
    FETCH FIRST ($3::bigint) ROWS WITH TIES"#);

pub(super) const UNFINISHED_RUNS: &str = concat!("SELECT ", run_columns!(), r#"
    FROM (
        SELECT {% if !group.is_owners %}DISTINCT {% endif %}g.{{ group.member }} AS group_member
        FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $1
    ) AS o
    CROSS JOIN LATERAL (
        SELECT "#, run_columns!(), r#" FROM {{ runs }} AS r
        WHERE r.{{ owner }} = o.group_member AND r.status IN ('running', 'waiting')
        ORDER BY r.started_at DESC LIMIT 1000
    ) AS r
    ORDER BY r.started_at DESC LIMIT 1000"#);

/// The sums of each member are made first, so that the rows of each are read with an index.
pub(super) const USAGE_BETWEEN: &str = r#"
    SELECT u.model, sum(u.messages)::bigint AS messages,
           least(sum(u.input), 9223372036854775807)::bigint AS input,
           least(sum(u.output), 9223372036854775807)::bigint AS output,
           least(sum(u.cached), 9223372036854775807)::bigint AS cached
    FROM (
        SELECT {% if !group.is_owners %}DISTINCT {% endif %}g.{{ group.member }} AS group_member
        FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $3
    ) AS o
    CROSS JOIN LATERAL (
        SELECT u.model, count(*) AS messages, sum(u.input_tokens) AS input,
               sum(u.output_tokens) AS output, sum(u.cached_tokens) AS cached
        FROM {{ usage }} AS u
        WHERE u.{{ owner }} = o.group_member
          AND u.inserted_at >= $1::timestamptz AND u.inserted_at < $2::timestamptz
          AND (u.input_tokens > 0 OR u.output_tokens > 0)
        GROUP BY u.model
    ) AS u
    GROUP BY u.model"#;
{%- endif %}
