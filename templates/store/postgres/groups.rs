{%- if let (Some(group), Some(owner)) = (group, owner) -%}
//! The statements that read for a group, which is their last parameter. `group_member` is an owner
//! who is in it.
//!
//! Several members may have a conversation with the same id, if one of them got a copy. A statement
//! for one conversation reads the one that was created first. A page with one of them has all of
//! them, also if it gets longer than its limit: the next page starts behind that id, and is empty if
//! there is nothing behind it.
//!
//! `LIMIT 1` in a join makes the server look up one membership, instead of all of the group.
//! `WITH TIES` needs `PostgreSQL` 13.

use super::super::Archived;
use super::super::page::Bound;
use super::conversations::Lists;
use super::rows::{conversation_columns, display_message_columns, run_columns};
use super::usage::sums;

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

/// The statement for a page of display messages.
pub(super) fn messages(bound: Bound) -> &'static str {
    match bound {
        Bound::After(_) => FORWARD,
        Bound::Before(_) => BACKWARD,
    }
}

pub(super) const CONVERSATION: &str = concat!("SELECT ", conversation_columns!(), r#"
    FROM {{ conversations }} AS c
    CROSS JOIN LATERAL (
        SELECT FROM {{ group.table }} AS g
        WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }} LIMIT 1
    ) AS g
    WHERE c.id = $1::uuid
    ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1"#);

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

const FORWARD: &str = concat!("SELECT ", display_message_columns!(), r#"
    FROM (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        CROSS JOIN LATERAL (
            SELECT FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $4 AND g.{{ group.member }} = c.{{ owner }} LIMIT 1
        ) AS g
        WHERE c.id = $1::uuid
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    ) AS o
    LEFT JOIN LATERAL (
        SELECT "#, display_message_columns!(), r#"
        FROM {{ display_messages }} AS m
        WHERE m.{{ owner }} = o.group_member AND m.conversation_id = $1::uuid AND m.sequence > $2::bigint
        ORDER BY m.sequence LIMIT $3::bigint
    ) AS m ON TRUE
    ORDER BY m.sequence"#);

const BACKWARD: &str = concat!("SELECT ", display_message_columns!(), r#"
    FROM (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        CROSS JOIN LATERAL (
            SELECT FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $4 AND g.{{ group.member }} = c.{{ owner }} LIMIT 1
        ) AS g
        WHERE c.id = $1::uuid
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    ) AS o
    LEFT JOIN LATERAL (
        SELECT "#, display_message_columns!(), r#"
        FROM {{ display_messages }} AS m
        WHERE m.{{ owner }} = o.group_member AND m.conversation_id = $1::uuid AND m.sequence < $2::bigint
        ORDER BY m.sequence DESC LIMIT $3::bigint
    ) AS m ON TRUE
    ORDER BY m.sequence"#);

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

pub(super) const AGENT_STATE: &str = r#"
    WITH conversation AS (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        CROSS JOIN LATERAL (
            SELECT FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }} LIMIT 1
        ) AS g
        WHERE c.id = $1::uuid
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    )
    SELECT NULL::integer AS position, NULL::uuid AS message_id, s.data, s.revision, s.write_id
    FROM conversation AS o
    LEFT JOIN {{ agent_states }} AS s
        ON s.{{ owner }} = o.group_member AND s.conversation_id = $1::uuid
    UNION ALL
    SELECT m.position, m.message_id, m.data, NULL::bigint, NULL::uuid
    FROM conversation AS o
    JOIN {{ agent_states }} AS s
        ON s.{{ owner }} = o.group_member AND s.conversation_id = $1::uuid
    JOIN {{ agent_messages }} AS m
        ON m.{{ owner }} = o.group_member AND m.conversation_id = $1::uuid AND m.epoch = s.epoch"#;

pub(super) const CHANGES: &str = concat!("SELECT o.last_removal, ", display_message_columns!(), r#"
    FROM (
        SELECT c.{{ owner }} AS group_member, c.last_removal FROM {{ conversations }} AS c
        CROSS JOIN LATERAL (
            SELECT FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $5 AND g.{{ group.member }} = c.{{ owner }} LIMIT 1
        ) AS g
        WHERE c.id = $1::uuid
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    ) AS o
    LEFT JOIN LATERAL (
        (
            SELECT "#, display_message_columns!(), r#"
            FROM {{ display_messages }} AS m
            WHERE m.{{ owner }} = o.group_member AND m.conversation_id = $1::uuid
              AND m.changed = 0 AND m.sequence > $3::bigint
            ORDER BY m.sequence LIMIT $4::bigint
        )
        UNION ALL
        (
            SELECT "#, display_message_columns!(), r#"
            FROM {{ display_messages }} AS m
            WHERE m.{{ owner }} = o.group_member AND m.conversation_id = $1::uuid
              AND m.changed > $2::bigint AND m.changed >= 0
            ORDER BY m.changed, m.sequence LIMIT $4::bigint
        )
    ) AS m ON TRUE
    ORDER BY m.changed, m.sequence LIMIT $4::bigint"#);

pub(super) const LAST_CHANGE: &str = r#"
    SELECT c.last_change, c.next_sequence, c.last_removal FROM {{ conversations }} AS c
    CROSS JOIN LATERAL (
        SELECT FROM {{ group.table }} AS g
        WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }} LIMIT 1
    ) AS g
    WHERE c.id = $1::uuid
    ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1"#;

pub(super) const TOOL_CALL: &str = concat!("SELECT ", display_message_columns!(), r#"
    FROM (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        CROSS JOIN LATERAL (
            SELECT FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $3 AND g.{{ group.member }} = c.{{ owner }} LIMIT 1
        ) AS g
        WHERE c.id = $1::uuid
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    ) AS o
    JOIN {{ display_messages }} AS m ON m.{{ owner }} = o.group_member
     AND m.conversation_id = $1::uuid AND m.tool_call_id = $2::text AND m.content_type = 'tool_call'
    ORDER BY m.sequence DESC LIMIT 1"#);

pub(super) const RUN: &str = concat!("SELECT ", run_columns!(), r#"
    FROM (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        CROSS JOIN LATERAL (
            SELECT FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }} LIMIT 1
        ) AS g
        WHERE c.id = $1::uuid
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    ) AS o
    JOIN {{ runs }} AS r ON r.{{ owner }} = o.group_member AND r.conversation_id = $1::uuid"#);

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

pub(super) const USAGE: &str = concat!(r#"
    SELECT u.model, u.messages, u.input, u.output, u.cached
    FROM (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        CROSS JOIN LATERAL (
            SELECT FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }} LIMIT 1
        ) AS g
        WHERE c.id = $1::uuid
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    ) AS o
    LEFT JOIN LATERAL (
        SELECT "#, sums!(), r#" FROM {{ usage }} AS u
        WHERE u.{{ owner }} = o.group_member AND u.conversation_id = $1::uuid
          AND (u.input_tokens > 0 OR u.output_tokens > 0)
        GROUP BY u.model
    ) AS u ON TRUE"#);

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

pub(super) const HEADER: &str = r#"
    SELECT s.data
    FROM (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        CROSS JOIN LATERAL (
            SELECT FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }} LIMIT 1
        ) AS g
        WHERE c.id = $1::uuid
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    ) AS o
    LEFT JOIN {{ agent_states }} AS s
        ON s.{{ owner }} = o.group_member AND s.conversation_id = $1::uuid"#;

pub(super) const UNREADABLE_STATES: &str = r#"
    WITH conversation AS (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        CROSS JOIN LATERAL (
            SELECT FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }} LIMIT 1
        ) AS g
        WHERE c.id = $1::uuid
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    )
    SELECT u.epoch, u.set_aside_at
    FROM conversation AS o
    LEFT JOIN (
        SELECT u.epoch, u.set_aside_at FROM {{ unreadable_states }} AS u
        WHERE u.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
          AND u.conversation_id = $1::uuid
        UNION ALL
        SELECT -1, NULL::timestamptz FROM {{ agent_states }} AS s
        WHERE s.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
          AND s.conversation_id = $1::uuid AND s.unreadable_data IS NOT NULL
    ) AS u ON TRUE"#;

pub(super) const UNREADABLE_DATA: &str = r#"
    WITH conversation AS (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        CROSS JOIN LATERAL (
            SELECT FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $3 AND g.{{ group.member }} = c.{{ owner }} LIMIT 1
        ) AS g
        WHERE c.id = $1::uuid
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    )
    SELECT NULL::integer AS position, NULL::uuid AS message_id, u.data
    FROM {{ unreadable_states }} AS u
    WHERE u.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
      AND u.conversation_id = $1::uuid AND u.epoch = $2::bigint
    UNION ALL
    SELECT NULL::integer, NULL::uuid, s.unreadable_data
    FROM {{ agent_states }} AS s
    WHERE s.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
      AND s.conversation_id = $1::uuid
      AND s.unreadable_data IS NOT NULL AND $2::bigint = -1
    UNION ALL
    SELECT -1, s.conversation_id, s.data
    FROM {{ agent_states }} AS s
    WHERE s.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
      AND s.conversation_id = $1::uuid
      AND s.unreadable_data IS NOT NULL AND $2::bigint = -1
    UNION ALL
    SELECT m.position, m.message_id, m.data
    FROM {{ unreadable_states }} AS u
    JOIN {{ agent_messages }} AS m
        ON m.{{ owner }} = u.{{ owner }} AND m.conversation_id = $1::uuid AND m.epoch = u.epoch
    WHERE u.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
      AND u.conversation_id = $1::uuid AND u.epoch = $2::bigint
    UNION ALL
    SELECT m.position, m.message_id, m.data
    FROM {{ agent_states }} AS s
    JOIN {{ agent_messages }} AS m
        ON m.{{ owner }} = s.{{ owner }} AND m.conversation_id = $1::uuid AND m.epoch = s.epoch
    WHERE s.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
      AND s.conversation_id = $1::uuid
      AND s.unreadable_data IS NOT NULL AND $2::bigint = -1"#;
{%- endif %}
