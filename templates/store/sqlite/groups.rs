{%- if let (Some(group), Some(owner)) = (group, owner) -%}
//! Whose rows a group reads: the statements for its members, and those that read what all of them
//! have. The group is their last parameter, and `group_member` is an owner who is in it.
//!
//! A conversation's id is unique for its owner only: a member can import one with any id. So a call
//! for one conversation finds its owner first, and then reads the rows of that owner. A page with one
//! of several conversations with the same id has all of them, also if it gets longer than its limit:
//! the next page starts behind that id, and is empty if there is nothing behind it.
//!
//! `+` before a member's key takes off the type that its column is declared with. With another type
//! than that of our columns, no index of theirs would be used.

use sqlx::SqliteExecutor;
use uuid::Uuid;

use super::super::{Archived, Error, Owner, Reach, Result};
use super::conversations::Lists;
use super::rows::{conversation_columns, display_message_columns, run_columns};
use super::usage::sums;

/// The owner of the conversation that a call reads.
///
/// # Errors
///
/// [`Error::NotFound`] if the caller reaches no such conversation, [`Error::SeveralOwners`] if more
/// than one member of the group has it. Neither time nor order decides between them, because both can
/// come from a file.
pub(super) async fn owner_of(executor: impl SqliteExecutor<'_>, reach: &Reach, id: Uuid) -> Result<Owner> {
    const SELECT: &str = r#"
        SELECT c.{{ owner }} FROM {{ conversations }} AS c
        WHERE c.id = $1 AND EXISTS (
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
pub(super) async fn check_member(executor: impl SqliteExecutor<'_>, reach: &Reach) -> Result<()> {
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
    ($condition:literal, $index:literal) => {
        concat!(r#"
            WITH first AS (
                SELECT o.group_member, rank() OVER (ORDER BY c.id DESC) AS group_rank
                FROM (
                    SELECT {% if !group.is_owners %}DISTINCT {% endif %}+g.{{ group.member }} AS group_member
                    FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $3
                ) AS o
                CROSS JOIN {{ conversations }} AS c ON c.{{ owner }} = o.group_member AND c.id = (
                    SELECT d.id FROM {{ conversations }} AS d"#, $index, r#"
                    WHERE d.{{ owner }} = o.group_member AND "#, $condition, r#"d.id < $2
                    ORDER BY d.id DESC LIMIT 1
                )
            ), page AS (
                SELECT "#, conversation_columns!(), r#", rank() OVER (ORDER BY c.id DESC) AS group_rank
                FROM first AS f
                CROSS JOIN {{ conversations }} AS c ON c.{{ owner }} = f.group_member AND c.id IN (
                    SELECT d.id FROM {{ conversations }} AS d"#, $index, r#"
                    WHERE d.{{ owner }} = f.group_member AND "#, $condition, r#"d.id < $2
                    ORDER BY d.id DESC LIMIT $1
                )
                WHERE f.group_rank <= $1
            )
            SELECT "#, conversation_columns!(), r#"
            FROM page AS p WHERE p.group_rank <= $1
            ORDER BY p.id DESC"#)
    };
}

macro_rules! created_asc {
    ($condition:literal, $index:literal) => {
        concat!(r#"
            WITH first AS (
                SELECT o.group_member, rank() OVER (ORDER BY c.id) AS group_rank
                FROM (
                    SELECT {% if !group.is_owners %}DISTINCT {% endif %}+g.{{ group.member }} AS group_member
                    FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $3
                ) AS o
                CROSS JOIN {{ conversations }} AS c ON c.{{ owner }} = o.group_member AND c.id = (
                    SELECT d.id FROM {{ conversations }} AS d"#, $index, r#"
                    WHERE d.{{ owner }} = o.group_member AND "#, $condition, r#"d.id > $2
                    ORDER BY d.id LIMIT 1
                )
            ), page AS (
                SELECT "#, conversation_columns!(), r#", rank() OVER (ORDER BY c.id) AS group_rank
                FROM first AS f
                CROSS JOIN {{ conversations }} AS c ON c.{{ owner }} = f.group_member AND c.id IN (
                    SELECT d.id FROM {{ conversations }} AS d"#, $index, r#"
                    WHERE d.{{ owner }} = f.group_member AND "#, $condition, r#"d.id > $2
                    ORDER BY d.id LIMIT $1
                )
                WHERE f.group_rank <= $1
            )
            SELECT "#, conversation_columns!(), r#"
            FROM page AS p WHERE p.group_rank <= $1
            ORDER BY p.id"#)
    };
}

/// As for one owner, the condition is a part of the text.
macro_rules! lists {
    ($condition:literal, $index:literal) => {
        Lists {
            updated_desc: concat!(r#"
                WITH first AS (
                    SELECT o.group_member, rank() OVER (ORDER BY c.updated_at DESC, c.id DESC) AS group_rank
                    FROM (
                        SELECT {% if !group.is_owners %}DISTINCT {% endif %}+g.{{ group.member }} AS group_member
                        FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $4
                    ) AS o
                    CROSS JOIN {{ conversations }} AS c ON c.{{ owner }} = o.group_member AND c.id = (
                        SELECT d.id FROM {{ conversations }} AS d
                        WHERE d.{{ owner }} = o.group_member AND "#, $condition, r#"(d.updated_at, d.id) < ($2, $3)
                        ORDER BY d.updated_at DESC, d.id DESC LIMIT 1
                    )
                ), page AS (
                    SELECT "#, conversation_columns!(), r#", rank() OVER (ORDER BY c.updated_at DESC, c.id DESC) AS group_rank
                    FROM first AS f
                    CROSS JOIN {{ conversations }} AS c ON c.{{ owner }} = f.group_member AND c.id IN (
                        SELECT d.id FROM {{ conversations }} AS d
                        WHERE d.{{ owner }} = f.group_member AND "#, $condition, r#"(d.updated_at, d.id) < ($2, $3)
                        ORDER BY d.updated_at DESC, d.id DESC LIMIT $1
                    )
                    WHERE f.group_rank <= $1
                )
                SELECT "#, conversation_columns!(), r#"
                FROM page AS p WHERE p.group_rank <= $1
                ORDER BY p.updated_at DESC, p.id DESC"#),
            updated_asc: concat!(r#"
                WITH first AS (
                    SELECT o.group_member, rank() OVER (ORDER BY c.updated_at, c.id) AS group_rank
                    FROM (
                        SELECT {% if !group.is_owners %}DISTINCT {% endif %}+g.{{ group.member }} AS group_member
                        FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $4
                    ) AS o
                    CROSS JOIN {{ conversations }} AS c ON c.{{ owner }} = o.group_member AND c.id = (
                        SELECT d.id FROM {{ conversations }} AS d
                        WHERE d.{{ owner }} = o.group_member AND "#, $condition, r#"(d.updated_at, d.id) > ($2, $3)
                        ORDER BY d.updated_at, d.id LIMIT 1
                    )
                ), page AS (
                    SELECT "#, conversation_columns!(), r#", rank() OVER (ORDER BY c.updated_at, c.id) AS group_rank
                    FROM first AS f
                    CROSS JOIN {{ conversations }} AS c ON c.{{ owner }} = f.group_member AND c.id IN (
                        SELECT d.id FROM {{ conversations }} AS d
                        WHERE d.{{ owner }} = f.group_member AND "#, $condition, r#"(d.updated_at, d.id) > ($2, $3)
                        ORDER BY d.updated_at, d.id LIMIT $1
                    )
                    WHERE f.group_rank <= $1
                )
                SELECT "#, conversation_columns!(), r#"
                FROM page AS p WHERE p.group_rank <= $1
                ORDER BY p.updated_at, p.id"#),
            created_desc: created_desc!($condition, $index),
            created_asc: created_asc!($condition, $index),
        }
    };
}

const ALL: Lists = Lists {
    updated_desc: concat!(r#"
        WITH first AS (
            SELECT o.group_member, rank() OVER (ORDER BY c.updated_at DESC, c.id DESC) AS group_rank
            FROM (
                SELECT {% if !group.is_owners %}DISTINCT {% endif %}+g.{{ group.member }} AS group_member
                FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $4
            ) AS o
            CROSS JOIN {{ conversations }} AS c ON c.{{ owner }} = o.group_member AND c.id = (
                SELECT b.id FROM (
                    SELECT d.updated_at, d.id FROM {{ conversations }} AS d
                    WHERE d.{{ owner }} = o.group_member AND d.archived_at IS NULL AND (d.updated_at, d.id) < ($2, $3)
                    UNION ALL
                    SELECT d.updated_at, d.id FROM {{ conversations }} AS d
                    WHERE d.{{ owner }} = o.group_member AND d.archived_at IS NOT NULL AND (d.updated_at, d.id) < ($2, $3)
                    ORDER BY updated_at DESC, id DESC LIMIT 1
                ) AS b
            )
        ), page AS (
            SELECT "#, conversation_columns!(), r#", rank() OVER (ORDER BY c.updated_at DESC, c.id DESC) AS group_rank
            FROM first AS f
            CROSS JOIN {{ conversations }} AS c ON c.{{ owner }} = f.group_member AND c.id IN (
                SELECT b.id FROM (
                    SELECT d.updated_at, d.id FROM {{ conversations }} AS d
                    WHERE d.{{ owner }} = f.group_member AND d.archived_at IS NULL AND (d.updated_at, d.id) < ($2, $3)
                    UNION ALL
                    SELECT d.updated_at, d.id FROM {{ conversations }} AS d
                    WHERE d.{{ owner }} = f.group_member AND d.archived_at IS NOT NULL AND (d.updated_at, d.id) < ($2, $3)
                    ORDER BY updated_at DESC, id DESC LIMIT $1
                ) AS b
            )
            WHERE f.group_rank <= $1
        )
        SELECT "#, conversation_columns!(), r#"
        FROM page AS p WHERE p.group_rank <= $1
        ORDER BY p.updated_at DESC, p.id DESC"#),
    updated_asc: concat!(r#"
        WITH first AS (
            SELECT o.group_member, rank() OVER (ORDER BY c.updated_at, c.id) AS group_rank
            FROM (
                SELECT {% if !group.is_owners %}DISTINCT {% endif %}+g.{{ group.member }} AS group_member
                FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $4
            ) AS o
            CROSS JOIN {{ conversations }} AS c ON c.{{ owner }} = o.group_member AND c.id = (
                SELECT b.id FROM (
                    SELECT d.updated_at, d.id FROM {{ conversations }} AS d
                    WHERE d.{{ owner }} = o.group_member AND d.archived_at IS NULL AND (d.updated_at, d.id) > ($2, $3)
                    UNION ALL
                    SELECT d.updated_at, d.id FROM {{ conversations }} AS d
                    WHERE d.{{ owner }} = o.group_member AND d.archived_at IS NOT NULL AND (d.updated_at, d.id) > ($2, $3)
                    ORDER BY updated_at, id LIMIT 1
                ) AS b
            )
        ), page AS (
            SELECT "#, conversation_columns!(), r#", rank() OVER (ORDER BY c.updated_at, c.id) AS group_rank
            FROM first AS f
            CROSS JOIN {{ conversations }} AS c ON c.{{ owner }} = f.group_member AND c.id IN (
                SELECT b.id FROM (
                    SELECT d.updated_at, d.id FROM {{ conversations }} AS d
                    WHERE d.{{ owner }} = f.group_member AND d.archived_at IS NULL AND (d.updated_at, d.id) > ($2, $3)
                    UNION ALL
                    SELECT d.updated_at, d.id FROM {{ conversations }} AS d
                    WHERE d.{{ owner }} = f.group_member AND d.archived_at IS NOT NULL AND (d.updated_at, d.id) > ($2, $3)
                    ORDER BY updated_at, id LIMIT $1
                ) AS b
            )
            WHERE f.group_rank <= $1
        )
        SELECT "#, conversation_columns!(), r#"
        FROM page AS p WHERE p.group_rank <= $1
        ORDER BY p.updated_at, p.id"#),
    created_desc: created_desc!("", ""),
    created_asc: created_asc!("", ""),
};
const ACTIVE: Lists = lists!("archived_at IS NULL AND ", r#" INDEXED BY "{{ prefix }}conversations_active_id""#);
const ARCHIVED: Lists = lists!("archived_at IS NOT NULL AND ", r#" INDEXED BY "{{ prefix }}conversations_archived_id""#);

pub(super) const UNFINISHED_RUNS: &str = concat!("SELECT ", run_columns!(), r#"
    FROM (
        SELECT {% if !group.is_owners %}DISTINCT {% endif %}+g.{{ group.member }} AS group_member
        FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $1
    ) AS o
    CROSS JOIN {{ runs }} AS r ON r.{{ owner }} = o.group_member
    WHERE r.status IN ('running', 'waiting')
    ORDER BY r.started_at DESC LIMIT 1000"#);

/// The keys of what matches are sorted, and only the page is read as a whole.
pub(super) const SEARCH: &str = concat!(r#"
    WITH found AS (
        SELECT o.group_member, m.conversation_id AS found_id, m.sequence AS found_sequence,
               rank() OVER (ORDER BY m.inserted_at DESC, m.conversation_id DESC, m.sequence DESC)
                   AS group_rank
        FROM (
            SELECT {% if !group.is_owners %}DISTINCT {% endif %}+g.{{ group.member }} AS group_member
            FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $7
        ) AS o
        CROSS JOIN {{ display_messages }} AS m ON m.{{ owner }} = o.group_member
        WHERE m.content LIKE $1 ESCAPE '\' AND m.content GLOB $2
          AND (m.inserted_at, m.conversation_id, m.sequence) < ($4, $5, $6)
    )
    SELECT "#, display_message_columns!(), r#"
    FROM found AS f
    CROSS JOIN {{ display_messages }} AS m
        ON m.{{ owner }} = f.group_member AND m.conversation_id = f.found_id
       AND m.sequence = f.found_sequence
    WHERE f.group_rank <= $3
    ORDER BY m.inserted_at DESC, m.conversation_id DESC, m.sequence DESC"#);

pub(super) const USAGE_BETWEEN: &str = concat!("SELECT ", sums!(), r#"
    FROM (
        SELECT {% if !group.is_owners %}DISTINCT {% endif %}+g.{{ group.member }} AS group_member
        FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $3
    ) AS o
    CROSS JOIN {{ usage }} AS u ON u.{{ owner }} = o.group_member
    WHERE u.inserted_at >= $1 AND u.inserted_at < $2
      AND (u.input_tokens > 0 OR u.output_tokens > 0)
    GROUP BY u.model"#);
{%- endif %}
