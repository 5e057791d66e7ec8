//! The statement that finds where a conversation is cut.

use sqlx::Row as _;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::super::branches::{Located, Search};
use super::super::{Error, Owner, Point, Result};
use crate::sagents::serializer;
use crate::sagents::stored::Header;
use crate::sagents::{ReadError, Revision};

/// `known` has the rows of both tables. `own` is the cut at the message, in the tables that have it; in
/// the other one, it is before the first message that is behind it. A display message stays if its
/// message does in the agent state, or else if it is before the cut. `call` is the sequence of the call
/// of a result, and whether it stays. `result_ids` are the results behind the cut whose call is not.
///
/// There are windows instead of joins, because a planner that expects few rows would compare each with
/// each. The type `json` allows U+0000, and the functions that read it do not.
const LOCATE: &str = r#"
    WITH state AS (
        SELECT s.revision, s.epoch, s.data FROM {{ agent_states }} AS s
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $6 AND {% endif %}s.conversation_id = $1::uuid
    ), known AS (
        SELECT m.position, m.sequence, m.message_id, m.content_type, m.tool_call_id, m.status,
               max(m.position) OVER (PARTITION BY m.message_id) AS state_position
        FROM (
            SELECT m.position, NULL::bigint AS sequence, m.message_id, NULL AS content_type,
                   NULL AS tool_call_id, NULL AS status
            FROM {{ agent_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1::uuid
              AND m.epoch = (SELECT s.epoch FROM state AS s)
            UNION ALL
            SELECT NULL::integer, m.sequence, m.message_id, m.content_type, m.tool_call_id, m.status
            FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1::uuid
        ) AS m
    ), own AS (
        SELECT CASE WHEN $3::boolean THEN max(k.position) + 1 ELSE min(k.position) END AS position,
               CASE WHEN $3::boolean THEN max(k.sequence) + 1 ELSE min(k.sequence) END AS sequence
        FROM known AS k WHERE k.message_id = $2::uuid
    ), cut AS (
        SELECT least($4::bigint, coalesce(o.position, (
            SELECT min(k.state_position) FROM known AS k WHERE k.sequence >= o.sequence
        ))) AS position, least($5::bigint, coalesce(o.sequence, (
            SELECT min(k.sequence) FROM known AS k WHERE k.state_position >= o.position
        ))) AS sequence, coalesce(o.position, o.sequence) IS NOT NULL AS found
        FROM own AS o
    ), divided AS (
        SELECT k.sequence, k.message_id, k.content_type, k.tool_call_id, k.status,
               CASE WHEN k.state_position IS NULL THEN k.sequence < c.sequence
                    ELSE k.state_position < c.position END AS stays
        FROM cut AS c CROSS JOIN known AS k WHERE k.sequence IS NOT NULL
    ), answered AS (
        SELECT d.content_type, d.stays, max(
            CASE WHEN d.content_type = 'tool_call' THEN 2 * d.sequence + d.stays::integer END
        ) OVER (PARTITION BY d.tool_call_id ORDER BY d.sequence) AS call
        FROM divided AS d WHERE d.tool_call_id IS NOT NULL
    ), behind AS (
        SELECT m.position, replace(m.data::text, '\u0000', '\u0001')::json AS data
        FROM {{ agent_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1::uuid
          AND m.epoch = (SELECT s.epoch FROM state AS s)
          AND m.position >= (SELECT c.position FROM cut AS c)
          AND (m.data::text LIKE '%"tool_calls"%' OR m.data::text LIKE '%"tool_results"%')
    ), tools AS (
        SELECT b.position, t.value ->> 'call_id' AS call_id, TRUE AS is_call
        FROM behind AS b CROSS JOIN json_array_elements(
            CASE json_typeof(b.data -> 'tool_calls') WHEN 'array' THEN b.data -> 'tool_calls' ELSE '[]' END
        ) AS t (value)
        UNION ALL
        SELECT b.position, t.value ->> 'tool_call_id', FALSE
        FROM behind AS b CROSS JOIN json_array_elements(
            CASE json_typeof(b.data -> 'tool_results') WHEN 'array' THEN b.data -> 'tool_results' ELSE '[]' END
        ) AS t (value)
    ), result_ids AS (
        SELECT DISTINCT t.call_id FROM (
            SELECT t.call_id, t.is_call, bool_or(t.is_call)
                OVER (PARTITION BY t.call_id ORDER BY t.position) AS has_call
            FROM tools AS t
        ) AS t
        WHERE NOT t.is_call AND NOT t.has_call
    ), calls AS (
        SELECT max(b.position) AS position FROM (
            SELECT m.position, replace(m.data::text, '\u0000', '\u0001')::json AS data
            FROM {{ agent_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1::uuid
              AND m.epoch = (SELECT s.epoch FROM state AS s)
              AND m.position < (SELECT c.position FROM cut AS c)
              AND EXISTS (SELECT FROM result_ids)
              AND m.data::text LIKE '%"tool_calls"%'
        ) AS b CROSS JOIN json_array_elements(
            CASE json_typeof(b.data -> 'tool_calls') WHEN 'array' THEN b.data -> 'tool_calls' ELSE '[]' END
        ) AS t (value)
        JOIN result_ids AS r ON r.call_id = t.value ->> 'call_id'
        GROUP BY r.call_id
    ), last_shown AS (
        SELECT d.sequence, d.message_id FROM divided AS d WHERE d.stays
        ORDER BY d.sequence DESC LIMIT 1
    )
    SELECT c.last_change, s.revision, s.data, o.found, o.position, o.sequence,
           (SELECT count(k.position) FROM known AS k) AS rows,
           (SELECT count(*) FROM divided AS d WHERE NOT d.stays) AS removed,
           ARRAY(
               SELECT d.sequence FROM divided AS d WHERE d.stays <> (d.sequence < o.sequence)
           ) AS displaced,
           (SELECT d.sequence FROM last_shown AS d) AS last_sequence,
           coalesce((SELECT d.message_id FROM last_shown AS d), (
               SELECT k.message_id FROM known AS k WHERE k.position < o.position
               ORDER BY k.position DESC LIMIT 1
           )) AS last_id,
           EXISTS (
               SELECT FROM divided AS d
               WHERE d.stays AND d.content_type = 'tool_call' AND d.status = 'interrupted'
           ) AS is_interrupted,
           coalesce((
               SELECT k.message_id FROM known AS k
               WHERE k.position = (SELECT min(c.position) FROM calls AS c)
           ), (
               SELECT k.message_id FROM known AS k WHERE k.sequence = (
                   SELECT min(r.call / 2) FROM answered AS r
                   WHERE r.content_type = 'tool_result' AND NOT r.stays AND r.call % 2 = 1
               )
           )) AS separated
    FROM {{ conversations }} AS c CROSS JOIN cut AS o LEFT JOIN state AS s ON TRUE
    WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $6 AND {% endif %}c.id = $1::uuid"#;

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
