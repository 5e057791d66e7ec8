//! The statement that finds where a conversation is cut.

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::super::branches::{Located, Search};
use super::super::{Error, Owner, Point, Result};
use crate::sagents::serializer;
use crate::sagents::stored::Header;
use crate::sagents::{ReadError, Revision};

/// `own` is the cut at the message, in the tables that have it; in the other one, it is before the
/// first message that is behind it. A display message stays if its message does in the agent state,
/// or else if it is before the cut: `displaced` are those that are not on the side of their message,
/// and `gone` those that do not stay. Those before the cut are looked up by their messages if these are
/// few. `result_ids` are the results after the cut whose call is not.
///
/// `item >= 0` is always true, and makes the planner use the key of the message.
const LOCATE: &str = r#"
    WITH state AS MATERIALIZED (
        SELECT s.revision, s.epoch, s.data FROM {{ agent_states }} AS s
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $6 AND {% endif %}s.conversation_id = $1
    ), own AS MATERIALIZED (
        SELECT (
            SELECT CASE WHEN $3 THEN max(m.position) + 1 ELSE min(m.position) END
            FROM {{ agent_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
              AND m.epoch = (SELECT e.epoch FROM state AS e) AND m.message_id = $2
        ) AS position, (
            SELECT CASE WHEN $3 THEN max(m.sequence) + 1 ELSE min(m.sequence) END
            FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1 AND m.message_id = $2 AND m.item >= 0
        ) AS sequence
    ), cut AS MATERIALIZED (
        SELECT min($4, coalesce(o.position, (
            SELECT min(m.position) FROM {{ agent_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
              AND m.epoch = (SELECT e.epoch FROM state AS e) AND m.message_id IN (
                  SELECT n.message_id FROM {{ display_messages }} AS n
                  WHERE {% if let Some(owner) = owner %}n.{{ owner }} = $6 AND {% endif %}n.conversation_id = $1
                    AND n.sequence >= (SELECT o.sequence FROM own AS o)
              )
        ), $4)) AS position, min($5, coalesce(o.sequence, (
            SELECT min(m.sequence) FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1 AND m.message_id IN (
                SELECT n.message_id FROM {{ agent_messages }} AS n
                WHERE {% if let Some(owner) = owner %}n.{{ owner }} = $6 AND {% endif %}n.conversation_id = $1
                  AND n.epoch = (SELECT e.epoch FROM state AS e)
                  AND n.position >= (SELECT o.position FROM own AS o)
            )
        ), $5)) AS sequence, coalesce(o.position, o.sequence) IS NOT NULL AS found
        FROM own AS o
    ), behind AS MATERIALIZED (
        SELECT m.message_id FROM {{ agent_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
          AND m.epoch = (SELECT e.epoch FROM state AS e)
          AND m.position >= (SELECT o.position FROM cut AS o)
    ), displaced AS MATERIALIZED (
        SELECT m.sequence
        FROM cut AS o CROSS JOIN behind AS b CROSS JOIN {{ display_messages }} AS m
        WHERE 4 * (SELECT count(*) FROM behind) < o.sequence
          AND {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1 AND m.message_id = b.message_id
          AND m.item >= 0 AND +m.sequence < o.sequence
        UNION ALL
        SELECT m.sequence FROM {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
          AND m.sequence < (
              SELECT o.sequence FROM cut AS o WHERE 4 * (SELECT count(*) FROM behind) >= o.sequence
          )
          AND m.message_id IN (SELECT b.message_id FROM behind AS b)
        UNION ALL
        SELECT m.sequence FROM {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
          AND m.sequence >= (SELECT o.sequence FROM cut AS o)
          AND m.message_id NOT IN (SELECT b.message_id FROM behind AS b)
          AND m.message_id IN (
              SELECT n.message_id FROM {{ agent_messages }} AS n
              WHERE {% if let Some(owner) = owner %}n.{{ owner }} = $6 AND {% endif %}n.conversation_id = $1
                AND n.epoch = (SELECT e.epoch FROM state AS e)
                AND n.position < (SELECT o.position FROM cut AS o)
          )
    ), gone AS MATERIALIZED (
        SELECT m.sequence, m.content_type, m.tool_call_id FROM {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
          AND m.sequence >= (SELECT o.sequence FROM cut AS o)
          AND m.sequence NOT IN (SELECT x.sequence FROM displaced AS x)
        UNION ALL
        SELECT m.sequence, m.content_type, m.tool_call_id
        FROM displaced AS x CROSS JOIN {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1 AND m.sequence = x.sequence
          AND x.sequence < (SELECT o.sequence FROM cut AS o)
    ), tools AS (
        SELECT m.position, json_extract(t.value, '$.call_id') AS call_id, TRUE AS is_call
        FROM {{ agent_messages }} AS m CROSS JOIN json_each(
            CASE WHEN json_valid(m.data) THEN m.data ELSE '{}' END, '$.tool_calls'
        ) AS t
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
          AND m.epoch = (SELECT e.epoch FROM state AS e)
          AND m.position >= (SELECT o.position FROM cut AS o)
          AND instr(m.data, '"tool_calls"') > 0 AND t.type = 'object'
        UNION ALL
        SELECT m.position, json_extract(t.value, '$.tool_call_id'), FALSE
        FROM {{ agent_messages }} AS m CROSS JOIN json_each(
            CASE WHEN json_valid(m.data) THEN m.data ELSE '{}' END, '$.tool_results'
        ) AS t
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
          AND m.epoch = (SELECT e.epoch FROM state AS e)
          AND m.position >= (SELECT o.position FROM cut AS o)
          AND instr(m.data, '"tool_results"') > 0 AND t.type = 'object'
    ), result_ids AS MATERIALIZED (
        SELECT t.call_id FROM tools AS t GROUP BY t.call_id
        HAVING min(t.position) FILTER (WHERE NOT t.is_call)
               < coalesce(min(t.position) FILTER (WHERE t.is_call), 1 + max(t.position))
    ), calls AS MATERIALIZED (
        SELECT max(m.position) AS position
        FROM {{ agent_messages }} AS m CROSS JOIN json_each(
            CASE WHEN json_valid(m.data) THEN m.data ELSE '{}' END, '$.tool_calls'
        ) AS t
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
          AND m.epoch = (SELECT e.epoch FROM state AS e)
          AND m.position < (SELECT o.position FROM cut AS o WHERE EXISTS (SELECT 1 FROM result_ids))
          AND instr(m.data, '"tool_calls"') > 0 AND t.type = 'object'
          AND json_extract(t.value, '$.call_id') IN (SELECT v.call_id FROM result_ids AS v)
        GROUP BY json_extract(t.value, '$.call_id')
    ), answered AS MATERIALIZED (
        SELECT max(m.sequence) AS sequence FROM gone AS w CROSS JOIN {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1 AND m.tool_call_id = w.tool_call_id
          AND m.content_type = 'tool_call' AND m.sequence < w.sequence
          AND +w.content_type = 'tool_result'
        GROUP BY w.sequence
    ), last_shown AS MATERIALIZED (
        SELECT max(w.sequence) AS sequence FROM (
            SELECT max(m.sequence) AS sequence FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
              AND m.sequence < (SELECT o.sequence FROM cut AS o)
              AND m.sequence NOT IN (SELECT x.sequence FROM displaced AS x)
            UNION ALL
            SELECT max(x.sequence) FROM displaced AS x
            WHERE x.sequence >= (SELECT o.sequence FROM cut AS o)
        ) AS w
    )
    SELECT c.last_change, e.revision, e.data, o.found, o.position, o.sequence, (
               SELECT json_group_array(x.sequence) FROM displaced AS x
           ) AS displaced, (
               SELECT count(*) FROM {{ agent_messages }} AS m
               WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
                 AND m.epoch = (SELECT e.epoch FROM state AS e)
           ) AS "rows",
           (SELECT count(*) FROM gone) AS removed,
           (SELECT w.sequence FROM last_shown AS w) AS last_sequence,
           coalesce((
               SELECT m.message_id FROM {{ display_messages }} AS m
               WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
                 AND m.sequence = (SELECT w.sequence FROM last_shown AS w)
           ), (
               SELECT m.message_id FROM {{ agent_messages }} AS m
               WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
                 AND m.epoch = (SELECT e.epoch FROM state AS e)
                 AND m.position < (SELECT o.position FROM cut AS o)
               ORDER BY m.position DESC LIMIT 1
           )) AS last_id,
           EXISTS (
               SELECT 1 FROM {{ display_messages }} AS m
               WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
                 AND (m.status = 'interrupted' OR m.status IN ('pending', 'executing')
                                                  AND json_extract(m.metadata, '$.hitl_decision') = 'approved')
                 AND (m.sequence < o.sequence) <> (m.sequence IN (SELECT x.sequence FROM displaced AS x))
           ) AS is_interrupted,
           coalesce((
               SELECT m.message_id FROM {{ agent_messages }} AS m
               WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
                 AND m.epoch = (SELECT e.epoch FROM state AS e)
                 AND m.position = (SELECT min(k.position) FROM calls AS k)
           ), (
               SELECT m.message_id FROM {{ display_messages }} AS m
               WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1 AND m.sequence = (
                   SELECT min(v.sequence) FROM answered AS v
                   WHERE (v.sequence < o.sequence) <> (v.sequence IN (SELECT x.sequence FROM displaced AS x))
               )
           )) AS separated
    FROM {{ conversations }} AS c CROSS JOIN cut AS o LEFT JOIN state AS e ON TRUE
    WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $6 AND {% endif %}c.id = $1"#;

/// Where to cut; nothing if the state has its messages inside, and no rows. Messages stay in the
/// database, which looks into those that call tools or have results.
pub(super) async fn locate(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
    to: Point,
) -> Result<Option<Located>> {
    let mut search = Search::new(to);
    loop {
        let (message_id, stays) = search.message();
        let row = sqlx::query(LOCATE)
            .bind(conversation_id)
            .bind(message_id)
            .bind(stays)
            .bind(search.position)
            .bind(search.sequence)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_optional(&mut *connection)
            .await?
            .ok_or(Error::NotFound)?;
        let revision: Option<i64> = row.try_get("revision")?;
        let state = match revision {
            None => None,
            Some(revision) => match serializer::read_stored("", row.try_get_unchecked("data")?)? {
                Header::Whole(_) => return Ok(None),
                Header::Rows(header) => Some((Revision(revision), header)),
            },
        };
        let (expected, rows): (_, i64) = (state.as_ref().map_or(0, |(_, header)| header.count()), row.try_get("rows")?);
        if usize::try_from(rows) != Ok(expected) {
            let (path, reason) = ("state.messages".to_owned(), format!("expected {expected} rows, found {rows}"));
            return Err(ReadError::Damaged { path, reason }.into());
        }
        if message_id.is_some() && !row.try_get::<bool, _>("found")? {
            return Err(Error::NotFound);
        }
        let (position, sequence) = (row.try_get("position")?, row.try_get("sequence")?);
        if let Some(message_id) = row.try_get("separated")? {
            search.move_before(message_id, position, sequence);
            continue;
        }
        return Ok(Some(Located {
            cut: search.cut(row.try_get("last_id")?),
            position,
            sequence,
            removed: row.try_get("removed")?,
            last_sequence: row.try_get("last_sequence")?,
            displaced: row.try_get::<Json<_>, _>("displaced")?.0,
            is_interrupted: row.try_get("is_interrupted")?,
            last_change: row.try_get("last_change")?,
            state,
        }));
    }
}
