//! The statement that finds where a conversation is cut.

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::super::branches::{Located, Search};
use super::super::{Error, Owner, Point, Result};
use crate::sagents::serializer;
use crate::sagents::stored::Header;
use crate::sagents::{ReadError, Revision};

/// `own` is the cut at the message, in the tables that have it; in the other one, it is before the
/// first message that is behind it. A display message stays if its message does in the agent state,
/// or else if it is before the cut. `result_ids` are the results behind the cut whose call is not.
const LOCATE: &str = r#"
    WITH state AS MATERIALIZED (
        SELECT s.revision, s.epoch, s.data FROM {{ agent_states }} AS s
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $6 AND {% endif %}s.conversation_id = $1
    ), agent AS MATERIALIZED (
        SELECT m.position, m.message_id FROM {{ agent_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
          AND m.epoch = (SELECT e.epoch FROM state AS e)
    ), shown AS MATERIALIZED (
        SELECT m.sequence, m.message_id, m.content_type, m.tool_call_id, m.status
        FROM {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
    ), own AS MATERIALIZED (
        SELECT (
            SELECT CASE WHEN $3 THEN max(a.position) + 1 ELSE min(a.position) END
            FROM agent AS a WHERE a.message_id = $2
        ) AS position, (
            SELECT CASE WHEN $3 THEN max(w.sequence) + 1 ELSE min(w.sequence) END
            FROM shown AS w WHERE w.message_id = $2
        ) AS sequence
    ), cut AS MATERIALIZED (
        SELECT min($4, coalesce(o.position, (
            SELECT min(a.position) FROM agent AS a WHERE a.message_id IN (
                SELECT w.message_id FROM shown AS w
                WHERE w.sequence >= (SELECT o.sequence FROM own AS o)
            )
        ), $4)) AS position, min($5, coalesce(o.sequence, (
            SELECT min(w.sequence) FROM shown AS w WHERE w.message_id IN (
                SELECT a.message_id FROM agent AS a
                WHERE a.position >= (SELECT o.position FROM own AS o)
            )
        ), $5)) AS sequence, coalesce(o.position, o.sequence) IS NOT NULL AS found
        FROM own AS o
    ), known AS MATERIALIZED (
        SELECT a.message_id, max(a.position) AS position FROM agent AS a GROUP BY a.message_id
    ), divided AS MATERIALIZED (
        SELECT w.sequence, w.message_id, w.content_type, w.tool_call_id, w.status,
               CASE WHEN a.position IS NULL THEN w.sequence < o.sequence
                    ELSE a.position < o.position END AS stays
        FROM cut AS o CROSS JOIN shown AS w
        LEFT JOIN known AS a ON a.message_id = w.message_id
    ), answered AS MATERIALIZED (
        SELECT w.content_type, w.stays, max(
            CASE WHEN w.content_type = 'tool_call' THEN w.sequence END
        ) OVER (PARTITION BY w.tool_call_id ORDER BY w.sequence) AS call_sequence
        FROM divided AS w WHERE w.tool_call_id IS NOT NULL
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
        SELECT DISTINCT t.call_id FROM (
            SELECT t.call_id, t.is_call,
                   max(t.is_call) OVER (PARTITION BY t.call_id ORDER BY t.position) AS has_call
            FROM tools AS t
        ) AS t
        WHERE NOT t.is_call AND NOT t.has_call
    ), calls AS MATERIALIZED (
        SELECT max(m.position) AS position
        FROM {{ agent_messages }} AS m CROSS JOIN json_each(
            CASE WHEN json_valid(m.data) THEN m.data ELSE '{}' END, '$.tool_calls'
        ) AS t
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $6 AND {% endif %}m.conversation_id = $1
          AND m.epoch = (SELECT e.epoch FROM state AS e)
          AND m.position < (SELECT o.position FROM cut AS o)
          AND EXISTS (SELECT 1 FROM result_ids)
          AND instr(m.data, '"tool_calls"') > 0 AND t.type = 'object'
          AND json_extract(t.value, '$.call_id') IN (SELECT v.call_id FROM result_ids AS v)
        GROUP BY json_extract(t.value, '$.call_id')
    ), last_shown AS MATERIALIZED (
        SELECT w.sequence, w.message_id FROM divided AS w WHERE w.stays
        ORDER BY w.sequence DESC LIMIT 1
    )
    SELECT c.last_change, e.revision, e.data, o.found, o.position, o.sequence,
           (SELECT count(*) FROM agent) AS "rows",
           (SELECT count(*) FROM divided AS w WHERE NOT w.stays) AS removed,
           (SELECT w.sequence FROM last_shown AS w) AS last_sequence,
           coalesce((SELECT w.message_id FROM last_shown AS w), (
               SELECT a.message_id FROM agent AS a
               WHERE a.position < (SELECT o.position FROM cut AS o)
               ORDER BY a.position DESC LIMIT 1
           )) AS last_id,
           EXISTS (
               SELECT 1 FROM divided AS w
               WHERE w.stays AND w.content_type = 'tool_call' AND w.status = 'interrupted'
           ) AS is_interrupted,
           coalesce((
               SELECT a.message_id FROM agent AS a
               WHERE a.position = (SELECT min(k.position) FROM calls AS k)
           ), (
               SELECT w.message_id FROM answered AS v
               JOIN divided AS w ON w.sequence = v.call_sequence AND w.stays
               WHERE v.content_type = 'tool_result' AND NOT v.stays
               ORDER BY w.sequence LIMIT 1
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
            is_interrupted: row.try_get("is_interrupted")?,
            last_change: row.try_get("last_change")?,
            state,
        }));
    }
}
