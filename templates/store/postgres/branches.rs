//! The statements that fork and rewind conversations. They copy and delete rows on the server, and do
//! nothing if somebody has written since the cut was found.

use sqlx::types::Json;
use uuid::Uuid;

use super::super::branches::{Fork, Forked, Rewound};
use super::super::{Conversation, Error, Owner, Point, {% if group.is_some() %}Reach, {% endif %}Result};
use super::cuts::locate;
use super::rows::conversation_columns;
use super::{Store, now, retry};
use crate::sagents::{Expect, Loaded, Revision};

impl Store {
    pub(crate) async fn fork_conversation(&self, owner: &Owner, id: Uuid, fork: &Fork) -> Result<Forked> {
        loop {
            let forked = retry(|| async {
                let mut lease = self.lease(owner, fork.id).await?;
                let connection = lease.connection();
                let located = match locate(connection, owner, id, fork.at).await {
                    // It may have been forked before, and be gone.
                    Err(Error::NotFound) => {
                        lease.end();
                        return self.existing_fork(owner, id, fork.id).await?.ok_or(Error::NotFound).map(Some);
                    }
                    located => located?,
                };
                let Some(located) = located else {
                    lease.end();
                    self.make_rows(owner, id).await?;
                    return Ok(None);
                };
                let cut = located.cut;
                let created: Option<Conversation> = sqlx::query_as(FORK)
                    .bind(id)
                    .bind(fork.id)
                    .bind(located.last_change)
                    .bind(located.revision())
                    .bind(located.position)
                    .bind(located.sequence)
                    .bind(located.header()?)
                    .bind(Uuid::now_v7())
                    .bind(now())
                    .bind(&fork.title)
                    .bind(Json(Forked::metadata(id, cut)))
                    .bind(located.waits_in_fork())
                    .bind(&located.displaced)
{%- if owner.is_some() %}
                    .bind(owner.id())
{%- endif %}
                    .fetch_optional(connection)
                    .await?;
                lease.end();
                match created {
                    Some(conversation) => Ok(Some(Forked { conversation, cut })),
                    None => self.existing_fork(owner, id, fork.id).await,
                }
            })
            .await?;
            if let Some(forked) = forked {
                return Ok(forked);
            }
        }
    }

    pub(crate) async fn rewind_conversation(&self, owner: &Owner, id: Uuid, to: Point) -> Result<Rewound> {
        loop {
            let rewound = retry(|| async {
                let mut lease = self.lease(owner, id).await?;
                let connection = lease.connection();
                let Some(located) = locate(connection, owner, id, to).await? else {
                    lease.end();
                    self.make_rows(owner, id).await?;
                    return Ok(None);
                };
                if let Some(rewound) = located.nothing_removed() {
                    lease.end();
                    return Ok(Some((false, rewound)));
                }
                let row: Option<(Option<i64>, i64)> = sqlx::query_as(REWIND)
                    .bind(id)
                    .bind(located.last_change)
                    .bind(located.revision())
                    .bind(located.position)
                    .bind(located.sequence)
                    .bind(located.header()?)
                    .bind(Uuid::now_v7())
                    .bind(now())
                    .bind(located.is_interrupted)
                    .bind(located.last_sequence)
                    .bind(&located.displaced)
{%- if owner.is_some() %}
                    .bind(owner.id())
{%- endif %}
                    .fetch_optional(connection)
                    .await?;
                lease.end();
                Ok(row.map(|(revision, removed)| {
                    let rewound = Rewound {
                        revision: revision.map(Revision),
                        cut: located.cut,
                        removed: removed.unsigned_abs(),
                    };
                    (true, rewound)
                }))
            })
            .await?;
            if let Some((is_changed, rewound)) = rewound {
                if is_changed {
                    self.announce(id).await;
                }
                return Ok(rewound);
            }
        }
    }

    /// Saves a state that has its messages inside, so that they become rows.
    async fn make_rows(&self, owner: &Owner, id: Uuid) -> Result<()> {
        let loaded = self.load_agent_state({% if group.is_some() %}&Reach::Owner(owner.clone()){% else %}owner{% endif %}, id, "").await?;
        let Loaded::Saved { state, revision } = loaded else {
            return Ok(());
        };
        let expect = Expect::Revision(revision);
        match self.save_agent_state(owner, id, &state, expect, Uuid::now_v7()).await {
            Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What an earlier call has forked, if there is a conversation with this id.
    async fn existing_fork(&self, owner: &Owner, source: Uuid, id: Uuid) -> Result<Option<Forked>> {
        match self.get_conversation({% if group.is_some() %}&Reach::Owner(owner.clone()){% else %}owner{% endif %}, id).await {
            Ok(conversation) => Forked::existing(conversation, source).map(Some),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The messages keep their ids, so usage that was counted is not counted again. Rows are found by the id
/// that `source` has, see `LOCATE`.
const FORK: &str = concat!(r#"
    WITH source AS (
        SELECT c.id, c.title, c.scope, c.metadata, c.interrupted, c.next_sequence, c.last_change{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
        FROM {{ conversations }} AS c
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $14 AND {% endif %}c.id = $1::uuid AND c.last_change = $3::bigint
          AND $4::bigint = coalesce((
              SELECT s.revision FROM {{ agent_states }} AS s
              WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $14 AND {% endif %}s.conversation_id = $1::uuid
          ), 0)
    ), created AS (
        INSERT INTO {{ conversations }} AS c
            (id, title, scope, metadata, interrupted, next_sequence,
             inserted_at, updated_at, last_change{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT $2::uuid, coalesce($10::text, s.title), s.scope, s.metadata || $11::jsonb,
               coalesce($12::boolean, s.interrupted), s.next_sequence,
               $9::timestamptz, $9::timestamptz, s.last_change{% if let Some(owner) = owner %}, s.{{ owner }}{% endif %}
        FROM source AS s
        ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}id) DO NOTHING
        RETURNING "#, conversation_columns!(), r#"
    ), state AS (
        INSERT INTO {{ agent_states }}
            (conversation_id, version, revision, write_id, data,
             inserted_at, updated_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT c.id, s.version, 1, $8::uuid, $7::json,
               $9::timestamptz, $9::timestamptz{% if let Some(owner) = owner %}, s.{{ owner }}{% endif %}
        FROM created AS c CROSS JOIN {{ agent_states }} AS s
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $14 AND {% endif %}s.conversation_id = $1::uuid
    ), messages AS (
        INSERT INTO {{ agent_messages }}
            (conversation_id, epoch, position, message_id, data{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT c.id, 0, m.position, m.message_id, m.data{% if let Some(owner) = owner %}, m.{{ owner }}{% endif %}
        FROM created AS c CROSS JOIN {{ agent_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $14 AND {% endif %}m.conversation_id = (SELECT s.id FROM source AS s) AND m.epoch = (
            SELECT s.epoch FROM {{ agent_states }} AS s
            WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $14 AND {% endif %}s.conversation_id = $1::uuid
        ) AND m.position < $5::bigint
    ), shown AS (
        INSERT INTO {{ display_messages }}
            (conversation_id, sequence, message_id, item, role, content_type, content,
             metadata, tool_call_id, status, inserted_at, changed, delivery{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT c.id, m.sequence, m.message_id, m.item, m.role, m.content_type, m.content,
               CASE
                   WHEN m.status = 'executing' AND m.metadata ->> 'hitl_decision' IS DISTINCT FROM 'approved'
                       THEN m.metadata || '{"started_elsewhere": true}'
                   WHEN m.status = 'executing'
                       THEN m.metadata - '{hitl_decision, decision, decision_claim, claim}'::text[]
                            || '{"started_elsewhere": true}'
                   WHEN m.tool_call_id IS NOT NULL AND m.metadata ->> 'hitl_decision' = 'approved'
                        AND (m.status IN ('pending', 'interrupted')
                             OR m.status IS NULL AND m.metadata -> 'is_interrupt' = 'true')
                       THEN m.metadata - '{hitl_decision, decision, decision_claim, claim}'::text[]
                   ELSE m.metadata
               END,
               m.tool_call_id,
               CASE
                   WHEN m.status IN ('pending', 'executing') AND m.metadata ->> 'hitl_decision' = 'approved'
                       THEN 'interrupted'
                   WHEN m.status = 'executing' THEN 'unknown'
                   ELSE m.status
               END, m.inserted_at, m.changed,
               CASE m.delivery WHEN 'draft' THEN 'interrupted' ELSE m.delivery END{% if let Some(owner) = owner %}, m.{{ owner }}{% endif %}
        FROM created AS c CROSS JOIN {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $14 AND {% endif %}m.conversation_id = (SELECT s.id FROM source AS s)
          AND (m.sequence < $6::bigint) <> (m.sequence = ANY ($13::bigint[]))
    ), counted AS (
        INSERT INTO {{ usage }}
            (conversation_id, message_id, model, input_tokens, output_tokens, cached_tokens,
             inserted_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT c.id, u.message_id, u.model, 0, 0, 0, $9::timestamptz{% if let Some(owner) = owner %}, u.{{ owner }}{% endif %}
        FROM created AS c CROSS JOIN {{ usage }} AS u
        WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $14 AND {% endif %}u.conversation_id = (SELECT s.id FROM source AS s)
    )
    SELECT "#, conversation_columns!(), r#" FROM created AS c"#);

/// The number of a removal is that of a change. The last display message that stays gets it too,
/// so that a reader who loads it is known to have seen the removal. If another writer has saved
/// the state in between, only the conversation has changed: readers begin again without need.
const REWIND: &str = r#"
    WITH conversation AS (
        UPDATE {{ conversations }} AS c
        SET last_change = c.last_change + 1,
            last_removal = c.last_change + 1,
            interrupted = c.interrupted AND $9::boolean,
            updated_at = greatest(c.updated_at, $8::timestamptz)
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $12 AND {% endif %}c.id = $1::uuid AND c.last_change = $2::bigint
          AND $3::bigint = coalesce((
              SELECT s.revision FROM {{ agent_states }} AS s
              WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $12 AND {% endif %}s.conversation_id = $1::uuid
          ), 0)
        RETURNING c.id, c.last_change
    ), state AS (
        UPDATE {{ agent_states }} AS s
        SET revision = s.revision + 1,
            write_id = $7::uuid,
            data = $6::json,
            updated_at = greatest(s.updated_at, $8::timestamptz)
        FROM conversation AS c
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $12 AND {% endif %}s.conversation_id = c.id
          AND s.revision = $3::bigint
        RETURNING s.revision, s.epoch
    ), rewound AS (
        SELECT c.id, c.last_change FROM conversation AS c
        WHERE $3::bigint = 0 OR EXISTS (SELECT FROM state)
    ), deleted AS (
        DELETE FROM {{ display_messages }} AS m USING rewound AS r
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $12 AND {% endif %}m.conversation_id = r.id
          AND (m.sequence >= $5::bigint) <> (m.sequence = ANY ($11::bigint[]))
        RETURNING m.sequence
    ), touched AS (
        UPDATE {{ display_messages }} AS m SET changed = r.last_change
        FROM rewound AS r
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $12 AND {% endif %}m.conversation_id = r.id
          AND m.sequence = $10::bigint
    ), shortened AS (
        DELETE FROM {{ agent_messages }} AS m USING state AS s
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $12 AND {% endif %}m.conversation_id = $1::uuid
          AND m.epoch = s.epoch AND m.position >= $4::bigint
    ), cancelled AS (
        UPDATE {{ runs }} AS n SET cancel_requested = TRUE FROM rewound AS r
        WHERE {% if let Some(owner) = owner %}n.{{ owner }} = $12 AND {% endif %}n.conversation_id = r.id
          AND (n.status = 'running' OR n.status = 'waiting' AND NOT $9::boolean)
    )
    SELECT (SELECT s.revision FROM state AS s), (SELECT count(*) FROM deleted)
    FROM rewound AS r"#;
