//! The statement that finds where a conversation is cut.

use sqlx::Row as _;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::super::branches::{Located, Search};
use super::super::{Error, Owner, Point, Result};
use crate::sagents::serializer;
use crate::sagents::stored::Header;
use crate::sagents::{ReadError, Revision};

/// `known` has the messages of both tables. `own` is the cut at the message, in the tables that have it;
/// in the other one, it is before the first message that is behind it. A display message stays if its
/// message does in the agent state, or else if it is before the cut: `displaced` are those that are not
/// on the side of their message. `call` is the sequence of the call of a result, and whether it stays.
/// `result_ids` are the results after the cut whose call is not.
///
/// There are groups and windows instead of joins, because a planner that expects few rows would compare
/// each with each. Rows are found by the id that `conversation` has, not by the parameter: with a value to
/// look at, the server plans the statement again in every call, which takes longer than running it. The
/// type `json` allows U+0000, and the functions that read it do not.
const LOCATE: &str = r#"
    WITH conversation AS MATERIALIZED (
        SELECT c.id, c.last_change FROM {{ conversations }} AS c
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $6 AND {% endif %}c.id = $1::uuid
    ), state AS (
        SELECT s.revision, s.epoch, s.data FROM {{ agent_states }} AS s
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $6 AND {% endif %}s.conversation_id = (SELECT c.id FROM conversation AS c)
    ), known AS MATERIALIZED (
        SELECT m.message_id, count(m.position) AS rows, min(m.position) AS first_position,
               max(m.position) AS position, min(m.sequence) AS first_sequence,
               max(m.sequence) AS sequence
        FROM (
            SELECT m.message_id, m.position, NULL::bigint AS sequence
            FROM {{ agent_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = (SELECT c.id FROM conversation AS c)
              AND m.epoch = (SELECT s.epoch FROM state AS s)
            UNION ALL
            SELECT m.message_id, NULL::integer, m.sequence
            FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = (SELECT c.id FROM conversation AS c)
        ) AS m
        GROUP BY m.message_id
    ), own AS (
        SELECT CASE WHEN $3::boolean THEN max(k.position) + 1 ELSE min(k.first_position) END AS position,
               CASE WHEN $3::boolean THEN max(k.sequence) + 1 ELSE min(k.first_sequence) END AS sequence
        FROM known AS k WHERE k.message_id = $2::uuid
    ), cut AS MATERIALIZED (
        SELECT least($4::bigint, coalesce(o.position, (
            SELECT min(k.position) FROM known AS k WHERE k.sequence >= o.sequence
        ))) AS position, least($5::bigint, coalesce(o.sequence, (
            SELECT min(k.first_sequence) FROM known AS k WHERE k.position >= o.position
        ))) AS sequence, coalesce(o.position, o.sequence) IS NOT NULL AS found
        FROM own AS o
    ), displaced AS MATERIALIZED (
        SELECT m.sequence
        FROM cut AS c CROSS JOIN known AS k
        CROSS JOIN LATERAL (
            SELECT m.sequence FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = (SELECT c.id FROM conversation AS c) AND m.message_id = k.message_id
            OFFSET 0
        ) AS m
        WHERE ((k.position < c.position) <> (k.first_sequence < c.sequence)
               OR (k.position < c.position) <> (k.sequence < c.sequence))
          AND (k.position < c.position) <> (m.sequence < c.sequence)
    ), divided AS NOT MATERIALIZED (
        SELECT m.sequence, m.content_type, m.tool_call_id, m.status, m.metadata,
               (m.sequence < (SELECT c.sequence FROM cut AS c))
               <> (m.sequence IN (SELECT x.sequence FROM displaced AS x)) AS stays
        FROM {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = (SELECT c.id FROM conversation AS c)
    ), shown AS (
        SELECT count(*) FILTER (WHERE NOT d.stays) AS removed,
               max(d.sequence) FILTER (WHERE d.stays) AS last_sequence,
               coalesce(bool_or(d.stays AND (
                   d.status = 'interrupted'
                   OR d.status IN ('pending', 'executing') AND d.metadata ->> 'hitl_decision' = 'approved'
               )), FALSE) AS is_interrupted
        FROM divided AS d
    ), answered AS (
        SELECT d.content_type, d.stays, max(
            CASE WHEN d.content_type = 'tool_call' THEN 2 * d.sequence + d.stays::integer END
        ) OVER (PARTITION BY d.tool_call_id COLLATE "C" ORDER BY d.sequence) AS call
        FROM divided AS d
        WHERE d.tool_call_id IS NOT NULL AND (d.content_type = 'tool_call' OR NOT d.stays)
    ), behind AS MATERIALIZED (
        SELECT m.position,
               CASE WHEN strpos(m.data::text, '"tool_calls"') > 0 THEN d.data -> 'tool_calls' END AS calls,
               CASE WHEN strpos(m.data::text, '"tool_results"') > 0 THEN d.data -> 'tool_results' END AS results
        FROM {{ agent_messages }} AS m
        CROSS JOIN LATERAL (
            SELECT CASE WHEN strpos(m.data::text, '\u0000') > 0
                        THEN replace(m.data::text, '\u0000', '\u0001')::json ELSE m.data END AS data
        ) AS d
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = (SELECT c.id FROM conversation AS c)
          AND m.epoch = (SELECT s.epoch FROM state AS s)
          AND m.position >= (SELECT c.position FROM cut AS c)
          AND (strpos(m.data::text, '"tool_calls"') > 0 OR strpos(m.data::text, '"tool_results"') > 0)
    ), tools AS (
        SELECT b.position, t.value ->> 'call_id' AS call_id, TRUE AS is_call
        FROM behind AS b CROSS JOIN json_array_elements(
            CASE json_typeof(b.calls) WHEN 'array' THEN b.calls ELSE '[]' END
        ) AS t (value)
        WHERE b.calls IS NOT NULL
        UNION ALL
        SELECT b.position, t.value ->> 'tool_call_id', FALSE
        FROM behind AS b CROSS JOIN json_array_elements(
            CASE json_typeof(b.results) WHEN 'array' THEN b.results ELSE '[]' END
        ) AS t (value)
        WHERE b.results IS NOT NULL
    ), result_ids AS (
        SELECT t.call_id FROM tools AS t GROUP BY t.call_id
        HAVING min(t.position) FILTER (WHERE NOT t.is_call)
               < coalesce(min(t.position) FILTER (WHERE t.is_call), 1 + max(t.position))
    ), calls AS (
        SELECT max(b.position) AS position FROM (
            SELECT m.position, replace(m.data::text, '\u0000', '\u0001')::json AS data
            FROM {{ agent_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = (SELECT c.id FROM conversation AS c)
              AND m.epoch = (SELECT s.epoch FROM state AS s)
              AND m.position < (SELECT c.position FROM cut AS c)
              AND EXISTS (SELECT FROM result_ids)
              AND strpos(m.data::text, '"tool_calls"') > 0
        ) AS b CROSS JOIN json_array_elements(
            CASE json_typeof(b.data -> 'tool_calls') WHEN 'array' THEN b.data -> 'tool_calls' ELSE '[]' END
        ) AS t (value)
        JOIN result_ids AS r ON r.call_id = t.value ->> 'call_id'
        GROUP BY r.call_id
    )
    SELECT c.last_change, s.revision, s.data, o.found, o.position, o.sequence,
           (SELECT coalesce(sum(k.rows), 0)::bigint FROM known AS k) AS rows,
           w.removed, w.last_sequence, w.is_interrupted,
           ARRAY(SELECT x.sequence FROM displaced AS x) AS displaced,
           coalesce((
               SELECT m.message_id FROM {{ display_messages }} AS m
               WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = (SELECT c.id FROM conversation AS c) AND m.sequence = w.last_sequence
           ), (
               SELECT m.message_id FROM {{ agent_messages }} AS m
               WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = (SELECT c.id FROM conversation AS c)
                 AND m.epoch = s.epoch AND m.position < o.position
               ORDER BY m.position DESC LIMIT 1
           )) AS last_id,
           coalesce((
               SELECT m.message_id FROM {{ agent_messages }} AS m
               WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = (SELECT c.id FROM conversation AS c)
                 AND m.epoch = s.epoch AND m.position = (SELECT min(k.position) FROM calls AS k)
           ), (
               SELECT m.message_id FROM {{ display_messages }} AS m
               WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = (SELECT c.id FROM conversation AS c) AND m.sequence = (
                   SELECT min(r.call / 2) FROM answered AS r
                   WHERE r.content_type = 'tool_result' AND NOT r.stays AND r.call % 2 = 1
               )
           )) AS separated
    FROM conversation AS c CROSS JOIN cut AS o CROSS JOIN shown AS w LEFT JOIN state AS s ON TRUE"#;

/// Where to cut; nothing if the state has its messages inside, and no rows. Messages stay on the
/// server, which looks into those that call tools or have results.
pub(super) async fn locate(
    connection: &mut PgConnection,
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
        if message_id.is_some() && !row.try_get("found")? {
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
            displaced: row.try_get("displaced")?,
            is_interrupted: row.try_get("is_interrupted")?,
            last_change: row.try_get("last_change")?,
            state,
        }));
    }
}
