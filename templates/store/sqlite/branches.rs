//! The statements that fork and rewind conversations. They copy and delete rows in the database.

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
                let mut tx = self.begin().await?;
                let located = match locate(&mut tx, owner, id, fork.at).await {
                    // It may have been forked before, and be gone.
                    Err(Error::NotFound) => {
                        tx.rollback().await?;
                        return self.existing_fork(owner, id, fork.id).await?.ok_or(Error::NotFound).map(Some);
                    }
                    located => located?,
                };
                let Some(located) = located else {
                    tx.rollback().await?;
                    self.make_rows(owner, id).await?;
                    return Ok(None);
                };
                let (cut, header) = (located.cut, located.header()?);
                let created: Option<Conversation> = sqlx::query_as(CREATE)
                    .bind(id)
                    .bind(fork.id)
                    .bind(&fork.title)
                    .bind(Json(Forked::metadata(id, cut)))
                    .bind(located.waits_in_fork())
                    .bind(now())
{%- if owner.is_some() %}
                    .bind(owner.id())
{%- endif %}
                    .fetch_optional(&mut *tx)
                    .await?;
                let Some(conversation) = created else {
                    tx.rollback().await?;
                    return self.existing_fork(owner, id, fork.id).await;
                };
                sqlx::query(COPY)
                    .bind(id)
                    .bind(fork.id)
                    .bind(Uuid::now_v7())
                    .bind(header)
                    .bind(now())
                    .bind(located.position)
                    .bind(located.sequence)
                    .bind(Json(&located.displaced))
{%- if owner.is_some() %}
                    .bind(owner.id())
{%- endif %}
                    .execute(&mut *tx)
                    .await
                    .map(drop)?;
                tx.commit().await?;
                Ok(Some(Forked { conversation, cut }))
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
                let mut tx = self.begin().await?;
                let Some(located) = locate(&mut tx, owner, id, to).await? else {
                    tx.rollback().await?;
                    self.make_rows(owner, id).await?;
                    return Ok(None);
                };
                if let Some(rewound) = located.nothing_removed() {
                    tx.rollback().await?;
                    return Ok(Some(rewound));
                }
                let header = located.header()?;
                let first = located.displaced.iter().copied().fold(located.sequence, i64::min);
                let removed = sqlx::query(DELETE)
                    .bind(id)
                    .bind(located.sequence)
                    .bind(Json(&located.displaced))
                    .bind(first)
{%- if owner.is_some() %}
                    .bind(owner.id())
{%- endif %}
                    .execute(&mut *tx)
                    .await?
                    .rows_affected();
                sqlx::query(REWIND)
                    .bind(id)
                    .bind(located.position)
                    .bind(Uuid::now_v7())
                    .bind(header)
                    .bind(now())
                    .bind(located.is_interrupted)
                    .bind(located.last_sequence)
                    .bind(located.last_change + 1)
{%- if owner.is_some() %}
                    .bind(owner.id())
{%- endif %}
                    .execute(&mut *tx)
                    .await
                    .map(drop)?;
                tx.commit().await?;
                self.announce(id);
                let revision = located.state.as_ref().map(|_| Revision(located.revision() + 1));
                Ok(Some(Rewound {
                    revision,
                    cut: located.cut,
                    removed,
                }))
            })
            .await?;
            if let Some(rewound) = rewound {
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

const CREATE: &str = concat!(r#"
    INSERT INTO {{ conversations }}
        (id, title, scope, metadata, interrupted, next_sequence,
         inserted_at, updated_at, last_change{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
    SELECT $2, coalesce($3, c.title), c.scope,
           json_set(c.metadata, '$.forked_from', json_extract($4, '$.forked_from')),
           coalesce($5, c.interrupted), c.next_sequence, $6, $6, c.last_change{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
    FROM {{ conversations }} AS c
    WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $7 AND {% endif %}c.id = $1
    ON CONFLICT ({% if let Some(owner) = owner %}{{ owner }}, {% endif %}id) DO NOTHING
    RETURNING "#, conversation_columns!());

/// The messages keep their ids, so usage that was counted is not counted again.
const COPY: &str = r#"
    INSERT INTO {{ agent_states }}
        (conversation_id, version, revision, write_id, data, inserted_at, updated_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
    SELECT $2, s.version, 1, $3, $4, $5, $5{% if let Some(owner) = owner %}, s.{{ owner }}{% endif %}
    FROM {{ agent_states }} AS s
    WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $9 AND {% endif %}s.conversation_id = $1;

    INSERT INTO {{ agent_messages }}
        (conversation_id, epoch, position, message_id, data{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
    SELECT $2, 0, m.position, m.message_id, m.data{% if let Some(owner) = owner %}, m.{{ owner }}{% endif %}
    FROM {{ agent_messages }} AS m
    WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $9 AND {% endif %}m.conversation_id = $1 AND m.epoch = (
        SELECT s.epoch FROM {{ agent_states }} AS s
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $9 AND {% endif %}s.conversation_id = $1
    ) AND m.position < $6;

    INSERT INTO {{ display_messages }}
        (conversation_id, sequence, message_id, item, role, content_type, content, metadata,
         tool_call_id, status, inserted_at, changed, delivery{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
    SELECT $2, m.sequence, m.message_id, m.item, m.role, m.content_type, m.content,
           CASE
               WHEN m.status = 'executing' AND json_extract(m.metadata, '$.hitl_decision') IS NOT 'approved'
                   THEN json_set(m.metadata, '$.started_elsewhere', json('true'))
               WHEN m.status = 'executing'
                   THEN json_set(json_remove(m.metadata, '$.hitl_decision', '$.decision', '$.decision_claim', '$.claim'),
                                 '$.started_elsewhere', json('true'))
               WHEN m.tool_call_id IS NOT NULL AND json_extract(m.metadata, '$.hitl_decision') = 'approved'
                    AND (m.status IN ('pending', 'interrupted')
                         OR m.status IS NULL AND json_type(m.metadata, '$.is_interrupt') = 'true')
                   THEN json_remove(m.metadata, '$.hitl_decision', '$.decision', '$.decision_claim', '$.claim')
               ELSE m.metadata
           END,
           m.tool_call_id,
           CASE
               WHEN m.status IN ('pending', 'executing') AND json_extract(m.metadata, '$.hitl_decision') = 'approved'
                   THEN 'interrupted'
               WHEN m.status = 'executing' THEN 'unknown'
               ELSE m.status
           END, m.inserted_at, m.changed,
           CASE m.delivery WHEN 'draft' THEN 'interrupted' ELSE m.delivery END{% if let Some(owner) = owner %}, m.{{ owner }}{% endif %}
    FROM {{ display_messages }} AS m
    WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $9 AND {% endif %}m.conversation_id = $1
      AND (m.sequence < $7) <> (m.sequence IN (SELECT d.value FROM json_each($8) AS d));

    INSERT INTO {{ usage }}
        (conversation_id, message_id, model, input_tokens, output_tokens, cached_tokens,
         inserted_at{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
    SELECT $2, u.message_id, u.model, 0, 0, 0, $5{% if let Some(owner) = owner %}, u.{{ owner }}{% endif %}
    FROM {{ usage }} AS u
    WHERE {% if let Some(owner) = owner %}u.{{ owner }} = $9 AND {% endif %}u.conversation_id = $1"#;

/// The number of a removal is that of a change. The last display message that stays gets it too,
/// so that a reader who loads it is known to have seen the removal.
const REWIND: &str = r#"
    UPDATE {{ conversations }} AS c
    SET last_change = $8, last_removal = $8,
        interrupted = c.interrupted AND $6, updated_at = max(c.updated_at, $5)
    WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $9 AND {% endif %}c.id = $1;

    UPDATE {{ display_messages }} AS m SET changed = $8
    WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $9 AND {% endif %}m.conversation_id = $1 AND m.sequence = $7;

    DELETE FROM {{ agent_messages }} AS m
    WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $9 AND {% endif %}m.conversation_id = $1 AND m.epoch = (
        SELECT s.epoch FROM {{ agent_states }} AS s
        WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $9 AND {% endif %}s.conversation_id = $1
    ) AND m.position >= $2;

    UPDATE {{ runs }} AS r SET cancel_requested = TRUE
    WHERE (r.status = 'running' OR r.status = 'waiting' AND NOT $6)
      AND {% if let Some(owner) = owner %}r.{{ owner }} = $9 AND {% endif %}r.conversation_id = $1;

    UPDATE {{ agent_states }} AS s
    SET revision = s.revision + 1, write_id = $3, data = $4, updated_at = max(s.updated_at, $5)
    WHERE {% if let Some(owner) = owner %}s.{{ owner }} = $9 AND {% endif %}s.conversation_id = $1"#;

const DELETE: &str = r#"
    DELETE FROM {{ display_messages }} AS m
    WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = $1 AND m.sequence >= $4
      AND (m.sequence >= $2) <> (m.sequence IN (SELECT d.value FROM json_each($3) AS d))"#;
