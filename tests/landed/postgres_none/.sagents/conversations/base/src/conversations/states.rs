//! The calls for what a conversation's agent knows.


use sqlx::postgres::PgExecutor;
use sqlx::{FromRow, Row as _};
use uuid::Uuid;

use super::values::{now, timestamp};
use super::{
    Conversations, Conversation, Error, OwnerScope, Result, retry,
};
use crate::sagents::serializer::{self, ReadError};
use crate::sagents::{
    AgentPersistence, Expect, LoadContext, Loaded, PersistContext, Revision, State, Todo,
};
use crate::scope::Everyone;

/// A state as it was saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// What the agent knew.
    pub state: State,
    /// Which save it was; the next one may expect it.
    pub revision: Revision,
}

/// What a save finds.
#[derive(FromRow)]
struct Current {
    revision: i64,
    write_id: Option<Uuid>,
    has_unreadable: bool,
}

impl Conversations {
    /// Saves what the agent knows, if what is there is what the writer expects.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation, [`Error::Conflict`] if somebody
    /// else saved meanwhile, [`Error::Invalid`] if a value is nested too deeply to be read back.
    pub async fn save_agent_state(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        state: &State,
        expect: Expect,
    ) -> Result<Revision> {
        self.save_agent_state_as(scope, conversation_id, state, expect, Uuid::now_v7())
            .await
    }

    /// As [`save_agent_state`](Self::save_agent_state), with an id for the save: one that expects a
    /// revision and whose answer was lost can be repeated with the same id, and is carried out once.
    ///
    /// # Errors
    ///
    /// As [`save_agent_state`](Self::save_agent_state).
    pub async fn save_agent_state_as(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        state: &State,
        expect: Expect,
        write_id: Uuid,
    ) -> Result<Revision> {
        // The revision decides in the upsert, which sees the row as it is when its turn comes. What
        // could not be read is moved aside, where it stays until it is restored.
        const SAVE: &str = r#"
            WITH conversation AS (
                UPDATE "as_long_as_a_prefix_may_be_in_tablesconversations" SET updated_at = greatest(updated_at, $5)
                WHERE id = $1 AND $6 = coalesce((
                    SELECT revision FROM "as_long_as_a_prefix_may_be_in_tablesagent_states"
                    WHERE conversation_id = $1
                      AND NOT ($7 AND unreadable_data IS NOT NULL)
                ), 0)
                RETURNING id
            )
            INSERT INTO "as_long_as_a_prefix_may_be_in_tablesagent_states" AS s
                (conversation_id, version, revision, write_id, data, inserted_at, updated_at)
            SELECT id, $2, 1, $3, $4::json, $5, $5 FROM conversation
            ON CONFLICT (conversation_id) DO UPDATE
            SET version = excluded.version,
                revision = s.revision + 1,
                write_id = excluded.write_id,
                data = excluded.data,
                unreadable_data = CASE WHEN $7 THEN s.data ELSE s.unreadable_data END,
                updated_at = greatest(s.updated_at, $5)
            WHERE s.revision = $6 AND NOT ($7 AND s.unreadable_data IS NOT NULL)
            RETURNING revision"#;
        const CURRENT: &str = r#"
            SELECT coalesce(s.revision, 0) AS revision, s.write_id,
                   s.unreadable_data IS NOT NULL AS has_unreadable
            FROM "as_long_as_a_prefix_may_be_in_tablesconversations" c
            LEFT JOIN "as_long_as_a_prefix_may_be_in_tablesagent_states" s ON s.conversation_id = $1
            WHERE c.id = $1"#;
        const OCCUPIED: &str = "another state is kept aside: restore or discard it";

        scope.owner()?;
        let data = serializer::to_text(state).map_err(|error| Error::Invalid(error.to_string()))?;
        loop {
            let (expected, set_aside) = match expect {
                Expect::Revision(expected) => (expected.0, false),
                Expect::Unreadable(expected) => (expected.0, true),
                // Whoever does not care what is there may still not lose what cannot be read.
                Expect::Any => match read_state(&self.pool, conversation_id, "").await? {
                    Loaded::Nothing => (0, false),
                    Loaded::Saved { revision, .. } => (revision.0, false),
                    Loaded::Unreadable { revision, .. } => (revision.0, true),
                },
            };
            let saved: Option<i64> = retry(|| async {
                let save = sqlx::query_scalar(SAVE)
                    .bind(conversation_id)
                    .bind(serializer::current_version())
                    .bind(write_id)
                    .bind(&data)
                    .bind(timestamp(now()))
                    .bind(expected)
                    .bind(set_aside);
                Ok(save.fetch_optional(&self.pool).await?)
            })
            .await?;
            if let Some(revision) = saved {
                return Ok(Revision(revision));
            }
            let current: Option<Current> = sqlx::query_as(CURRENT)
                .bind(conversation_id)
                .fetch_optional(&self.pool)
                .await?;
            let current = current.ok_or(Error::NotFound)?;
            if current.write_id == Some(write_id) && expected == current.revision - 1 {
                // The answer was lost, the save was not.
                return Ok(Revision(current.revision));
            }
            if set_aside && current.has_unreadable && expected == current.revision {
                return Err(Error::Invalid(OCCUPIED.into()));
            }
            if expect != Expect::Any {
                let current = Revision(current.revision);
                return Err(Error::Conflict { current });
            }
            // Somebody else saved in between, which is to be overwritten as well.
        }
    }

    /// What the agent knew when it was last saved.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation or nothing was saved in it,
    /// [`Error::DeserializationFailed`] if what was saved cannot be read.
    pub async fn load_agent_state(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
    ) -> Result<Saved> {
        scope.owner()?;
        let agent_id = LoadContext::new(conversation_id).agent_id;
        match read_state(&self.pool, conversation_id, &agent_id).await? {
            Loaded::Saved { state, revision } => Ok(Saved {
                state: *state,
                revision,
            }),
            Loaded::Unreadable { error, .. } => Err(error.into()),
            Loaded::Nothing => Err(Error::NotFound),
        }
    }

    /// Only the todos of what was last saved, for a page that does not start the agent. There are
    /// none where nothing was saved.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation,
    /// [`Error::DeserializationFailed`] if what was saved cannot be read.
    pub async fn load_todos(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
    ) -> Result<Vec<Todo>> {
        scope.owner()?;
        match read_state(&self.pool, conversation_id, "").await? {
            Loaded::Saved { state, .. } => Ok(state.todos),
            Loaded::Unreadable { error, .. } => Err(error.into()),
            Loaded::Nothing => Ok(Vec::new()),
        }
    }

    /// Puts a state that could not be read back in its place, to the byte. What was saved since is
    /// kept aside instead, so that calling this again undoes it.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation or nothing is kept aside in it.
    pub async fn restore_unreadable(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
    ) -> Result<Revision> {
        const RESTORE: &str = r#"
            WITH conversation AS (
                UPDATE "as_long_as_a_prefix_may_be_in_tablesconversations" SET updated_at = greatest(updated_at, $3)
                WHERE id = $1 AND EXISTS (
                    SELECT FROM "as_long_as_a_prefix_may_be_in_tablesagent_states"
                    WHERE conversation_id = $1 AND unreadable_data IS NOT NULL
                )
                RETURNING id
            )
            UPDATE "as_long_as_a_prefix_may_be_in_tablesagent_states" s
            SET data = s.unreadable_data, unreadable_data = s.data,
                revision = s.revision + 1, write_id = $2,
                updated_at = greatest(s.updated_at, $3)
            FROM conversation c
            WHERE s.conversation_id = c.id AND s.unreadable_data IS NOT NULL
            RETURNING s.revision"#;

        scope.owner()?;
        let write_id = Uuid::now_v7();
        retry(|| async {
            let restored: Option<i64> = sqlx::query_scalar(RESTORE)
                .bind(conversation_id)
                .bind(write_id)
                .bind(timestamp(now()))
                .fetch_optional(&self.pool)
                .await?;
            restored.map(Revision).ok_or(Error::NotFound)
        })
        .await
    }

    /// The bytes of a state that could not be read and is kept aside, for whoever mends it.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation or nothing is kept aside in it.
    pub async fn load_unreadable(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
    ) -> Result<Vec<u8>> {
        const SELECT: &str = r#"
            SELECT unreadable_data FROM "as_long_as_a_prefix_may_be_in_tablesagent_states"
            WHERE conversation_id = $1 AND unreadable_data IS NOT NULL"#;

        scope.owner()?;
        let row = sqlx::query(SELECT)
            .bind(conversation_id)
            .fetch_optional(&self.pool)
            .await?
            .ok_or(Error::NotFound)?;
        Ok(row.try_get_unchecked("unreadable_data")?)
    }

    /// Gives up a state that could not be read and is kept aside. It cannot be undone.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation or nothing is kept aside in it.
    pub async fn discard_unreadable(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
    ) -> Result<()> {
        const DISCARD: &str = r#"
            WITH conversation AS (
                UPDATE "as_long_as_a_prefix_may_be_in_tablesconversations" SET updated_at = greatest(updated_at, $2)
                WHERE id = $1 AND EXISTS (
                    SELECT FROM "as_long_as_a_prefix_may_be_in_tablesagent_states"
                    WHERE conversation_id = $1 AND unreadable_data IS NOT NULL
                )
                RETURNING id
            )
            UPDATE "as_long_as_a_prefix_may_be_in_tablesagent_states" s SET unreadable_data = NULL
            FROM conversation c
            WHERE s.conversation_id = c.id AND s.unreadable_data IS NOT NULL"#;

        scope.owner()?;
        retry(|| async {
            let discarded = sqlx::query(DISCARD)
                .bind(conversation_id)
                .bind(timestamp(now()))
                .execute(&self.pool)
                .await?;
            if discarded.rows_affected() == 0 {
                return Err(Error::NotFound);
            }
            Ok(())
        })
        .await
    }

    /// Notes whether the agent waits for a person's decision.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation.
    pub async fn set_interrupted(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        interrupted: bool,
    ) -> Result<Conversation> {
        const UPDATE: &str = r#"
            UPDATE "as_long_as_a_prefix_may_be_in_tablesconversations" SET interrupted = $2, updated_at = greatest(updated_at, $3)
            WHERE id = $1
            RETURNING *"#;

        scope.owner()?;
        retry(|| async {
            let updated: Option<Conversation> = sqlx::query_as(UPDATE)
                .bind(conversation_id)
                .bind(interrupted)
                .bind(timestamp(now()))
                .fetch_optional(&self.pool)
                .await?;
            updated.ok_or(Error::NotFound)
        })
        .await
    }
}

/// Reads the saved state, whether it can be understood or not.
async fn read_state(
    executor: impl PgExecutor<'_>,

    conversation_id: Uuid,
    agent_id: &str,
) -> Result<Loaded> {
    // The conversation is on the left, so that one without a state is told from one that is not
    // there. The state is read as bytes: what is no text is damaged, not a failure.
    const SELECT: &str = r#"
        SELECT s.revision, s.data FROM "as_long_as_a_prefix_may_be_in_tablesconversations" c
        LEFT JOIN "as_long_as_a_prefix_may_be_in_tablesagent_states" s ON s.conversation_id = $1
        WHERE c.id = $1"#;

    let row = sqlx::query(SELECT)
        .bind(conversation_id)
        .fetch_optional(executor)
        .await?
        .ok_or(Error::NotFound)?;
    let Some(revision) = row.try_get("revision")? else {
        return Ok(Loaded::Nothing);
    };
    let revision = Revision(revision);
    match serializer::from_bytes(agent_id, row.try_get_unchecked("data")?) {
        Ok(state) => Ok(Loaded::Saved {
            state: Box::new(state),
            revision,
        }),
        Err(error @ ReadError::FutureVersion { .. }) => Err(error.into()),
        Err(error) => Ok(Loaded::Unreadable { error, revision }),
    }
}

impl AgentPersistence for Conversations {
    type Scope = Everyone;
    type Error = Error;

    async fn persist_state(
        &self,
        scope: &Self::Scope,
        state: &State,
        expect: Expect,
        context: &PersistContext,
    ) -> Result<Revision> {
        let (id, write_id) = (context.conversation_id, context.write_id);
        let saved = self
            .save_agent_state_as(scope, id, state, expect, write_id)
            .await;
        if let Err(error) = &saved {
            tracing::error!(
                agent_id = context.agent_id,
                conversation_id = %context.conversation_id,
                lifecycle = context.lifecycle.as_str(),
                %error,
                "the agent's state was not saved"
            );
        }
        saved
    }

    async fn load_state(&self, scope: &Self::Scope, context: &LoadContext) -> Result<Loaded> {
        scope.owner()?;
        read_state(&self.pool, context.conversation_id, &context.agent_id).await
    }

    async fn set_interrupted(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        interrupted: bool,
    ) -> Result<()> {
        Self::set_interrupted(self, scope, context.conversation_id, interrupted).await?;
        Ok(())
    }
}