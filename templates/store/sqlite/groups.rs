{%- if let (Some(group), Some(owner)) = (group, owner) -%}
//! The statements that read for a group, which is their last parameter. `group_member` is an owner
//! who is in it.
//!
//! Several members may have a conversation with the same id, if one of them got a copy. A statement
//! for one conversation reads the one that was created first. A page with one of them has all of
//! them, also if it gets longer than its limit: the next page starts behind that id, and is empty if
//! there is nothing behind it.
//!
//! `+` before a member's key takes off the type that its column is declared with. With another type
//! than that of our columns, no index of theirs would be used.

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
    WHERE c.id = $1 AND EXISTS (
        SELECT 1 FROM {{ group.table }} AS g
        WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }}
    )
    ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1"#);

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

const FORWARD: &str = concat!("SELECT ", display_message_columns!(), r#"
    FROM {{ display_messages }} AS m
    WHERE m.{{ owner }} = (
        SELECT c.{{ owner }} FROM {{ conversations }} AS c
        WHERE c.id = $1 AND EXISTS (
            SELECT 1 FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $4 AND g.{{ group.member }} = c.{{ owner }}
        )
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    ) AND m.conversation_id = $1 AND m.sequence > $2
    ORDER BY m.sequence LIMIT $3"#);

const BACKWARD: &str = concat!("SELECT ", display_message_columns!(), r#"
    FROM {{ display_messages }} AS m
    WHERE m.{{ owner }} = (
        SELECT c.{{ owner }} FROM {{ conversations }} AS c
        WHERE c.id = $1 AND EXISTS (
            SELECT 1 FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $4 AND g.{{ group.member }} = c.{{ owner }}
        )
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    ) AND m.conversation_id = $1 AND m.sequence < $2
    ORDER BY m.sequence DESC LIMIT $3"#);

pub(super) const CHANGES: &str = concat!(r#"
    WITH conversation AS (
        SELECT c.{{ owner }} AS group_member, c.last_removal FROM {{ conversations }} AS c
        WHERE c.id = $1 AND EXISTS (
            SELECT 1 FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $5 AND g.{{ group.member }} = c.{{ owner }}
        )
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    )
    SELECT (SELECT o.last_removal FROM conversation AS o) AS last_removal, "#, display_message_columns!(), r#"
    FROM (
        SELECT "#, display_message_columns!(), r#" FROM {{ display_messages }} AS m
        WHERE m.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
          AND m.conversation_id = $1 AND m.changed = 0 AND m.sequence > $3
        ORDER BY m.sequence LIMIT $4
    )
    UNION ALL
    SELECT (SELECT o.last_removal FROM conversation AS o) AS last_removal, "#, display_message_columns!(), r#"
    FROM (
        SELECT "#, display_message_columns!(), r#" FROM {{ display_messages }} AS m
        WHERE m.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
          AND m.conversation_id = $1 AND m.changed > $2 AND m.changed >= 0
        ORDER BY m.changed, m.sequence LIMIT $4
    )"#);

pub(super) const LAST_CHANGE: &str = r#"
    SELECT c.last_change, c.next_sequence, c.last_removal FROM {{ conversations }} AS c
    WHERE c.id = $1 AND EXISTS (
        SELECT 1 FROM {{ group.table }} AS g
        WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }}
    )
    ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1"#;

pub(super) const TOOL_CALL: &str = concat!("SELECT ", display_message_columns!(), r#"
    FROM {{ display_messages }} AS m
    WHERE m.{{ owner }} = (
        SELECT c.{{ owner }} FROM {{ conversations }} AS c
        WHERE c.id = $1 AND EXISTS (
            SELECT 1 FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $3 AND g.{{ group.member }} = c.{{ owner }}
        )
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    ) AND m.conversation_id = $1 AND m.tool_call_id = $2 AND m.content_type = 'tool_call'
    ORDER BY m.sequence DESC LIMIT 1"#);

pub(super) const RUN: &str = concat!("SELECT ", run_columns!(), r#"
    FROM {{ runs }} AS r
    WHERE r.{{ owner }} = (
        SELECT c.{{ owner }} FROM {{ conversations }} AS c
        WHERE c.id = $1 AND EXISTS (
            SELECT 1 FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }}
        )
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    ) AND r.conversation_id = $1"#);

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

pub(super) const AGENT_STATE: &str = r#"
    WITH conversation AS (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        WHERE c.id = $1 AND EXISTS (
            SELECT 1 FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }}
        )
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    )
    SELECT NULL AS position, NULL AS message_id, s.data, s.revision, s.write_id
    FROM conversation AS o
    LEFT JOIN {{ agent_states }} AS s
        ON s.{{ owner }} = o.group_member AND s.conversation_id = $1
    UNION ALL
    SELECT m.position, m.message_id, m.data, NULL, NULL
    FROM conversation AS o
    CROSS JOIN {{ agent_states }} AS s
        ON s.{{ owner }} = o.group_member AND s.conversation_id = $1
    CROSS JOIN {{ agent_messages }} AS m
        ON m.{{ owner }} = o.group_member AND m.conversation_id = $1 AND m.epoch = s.epoch"#;

pub(super) const USAGE: &str = concat!(r#"
    WITH conversation AS (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        WHERE c.id = $1 AND EXISTS (
            SELECT 1 FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }}
        )
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    )
    SELECT u.model, u.messages, u.input, u.output, u.cached
    FROM conversation AS o
    LEFT JOIN (
        SELECT "#, sums!(), r#" FROM {{ usage }} AS u
        WHERE u.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
          AND u.conversation_id = $1 AND (u.input_tokens > 0 OR u.output_tokens > 0)
        GROUP BY u.model
    ) AS u ON TRUE"#);

pub(super) const USAGE_BETWEEN: &str = concat!("SELECT ", sums!(), r#"
    FROM (
        SELECT {% if !group.is_owners %}DISTINCT {% endif %}+g.{{ group.member }} AS group_member
        FROM {{ group.table }} AS g WHERE g.{{ group.column }} = $3
    ) AS o
    CROSS JOIN {{ usage }} AS u ON u.{{ owner }} = o.group_member
    WHERE u.inserted_at >= $1 AND u.inserted_at < $2
      AND (u.input_tokens > 0 OR u.output_tokens > 0)
    GROUP BY u.model"#);

pub(super) const HEADER: &str = r#"
    SELECT s.data
    FROM (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        WHERE c.id = $1 AND EXISTS (
            SELECT 1 FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }}
        )
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    ) AS o
    LEFT JOIN {{ agent_states }} AS s
        ON s.{{ owner }} = o.group_member AND s.conversation_id = $1"#;

pub(super) const UNREADABLE_STATES: &str = r#"
    WITH conversation AS (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        WHERE c.id = $1 AND EXISTS (
            SELECT 1 FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $2 AND g.{{ group.member }} = c.{{ owner }}
        )
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    )
    SELECT u.epoch, u.set_aside_at
    FROM conversation AS o
    LEFT JOIN (
        SELECT u.epoch, u.set_aside_at FROM {{ unreadable_states }} AS u
        WHERE u.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
          AND u.conversation_id = $1
        UNION ALL
        SELECT -1, NULL FROM {{ agent_states }} AS s
        WHERE s.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
          AND s.conversation_id = $1 AND s.unreadable_data IS NOT NULL
    ) AS u ON TRUE"#;

pub(super) const UNREADABLE_DATA: &str = r#"
    WITH conversation AS (
        SELECT c.{{ owner }} AS group_member FROM {{ conversations }} AS c
        WHERE c.id = $1 AND EXISTS (
            SELECT 1 FROM {{ group.table }} AS g
            WHERE g.{{ group.column }} = $3 AND g.{{ group.member }} = c.{{ owner }}
        )
        ORDER BY c.inserted_at, c.{{ owner }} LIMIT 1
    )
    SELECT NULL AS position, NULL AS message_id, u.data
    FROM {{ unreadable_states }} AS u
    WHERE u.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
      AND u.conversation_id = $1 AND u.epoch = $2
    UNION ALL
    SELECT NULL, NULL, s.unreadable_data
    FROM {{ agent_states }} AS s
    WHERE s.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
      AND s.conversation_id = $1
      AND s.unreadable_data IS NOT NULL AND $2 = -1
    UNION ALL
    SELECT -1, s.conversation_id, s.data
    FROM {{ agent_states }} AS s
    WHERE s.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
      AND s.conversation_id = $1
      AND s.unreadable_data IS NOT NULL AND $2 = -1
    UNION ALL
    SELECT m.position, m.message_id, m.data
    FROM {{ unreadable_states }} AS u
    CROSS JOIN {{ agent_messages }} AS m
        ON m.{{ owner }} = u.{{ owner }} AND m.conversation_id = $1 AND m.epoch = u.epoch
    WHERE u.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
      AND u.conversation_id = $1 AND u.epoch = $2
    UNION ALL
    SELECT m.position, m.message_id, m.data
    FROM {{ agent_states }} AS s
    CROSS JOIN {{ agent_messages }} AS m
        ON m.{{ owner }} = s.{{ owner }} AND m.conversation_id = $1 AND m.epoch = s.epoch
    WHERE s.{{ owner }} = (SELECT o.group_member FROM conversation AS o)
      AND s.conversation_id = $1
      AND s.unreadable_data IS NOT NULL AND $2 = -1"#;
{%- endif %}
