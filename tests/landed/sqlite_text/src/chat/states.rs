//! The calls for what a conversation's agent knows.

use sqlx::sqlite::SqliteExecutor;
use sqlx::{FromRow, Row as _};
use uuid::Uuid;

use super::values::{now, timestamp};
use super::{Chat, Conversation, Error, Owner, OwnerScope, Result, retry, touch};
use crate::sagents::serializer::{self, ReadError};
use crate::sagents::{
    AgentPersistence, Expect, LoadContext, Loaded, PersistContext, Revision, State, Todo,
};
use crate::scope::Scope;

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

impl Chat {
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
        const CURRENT: &str = r#"
            SELECT revision, write_id, unreadable_data IS NOT NULL AS has_unreadable
            FROM "chat_agent_states" WHERE "login_id" = $1 AND conversation_id = $2"#;
        const OCCUPIED: &str = "another state is kept aside: restore or discard it";
        // What could not be read is moved aside, where it stays until it is restored.
        const SAVE: &str = r#"
            INSERT INTO "chat_agent_states" AS s
                ("login_id", conversation_id, version, revision, write_id, data, inserted_at, updated_at)
            VALUES ($1, $2, $3, 1, $4, $5, $6, $6)
            ON CONFLICT ("login_id", conversation_id) DO UPDATE
            SET version = excluded.version,
                revision = s.revision + 1,
                write_id = excluded.write_id,
                data = excluded.data,
                unreadable_data = CASE WHEN $7 THEN s.data ELSE s.unreadable_data END,
                updated_at = excluded.updated_at
            RETURNING revision"#;

        let owner = scope.owner()?;
        let data = serializer::to_text(state).map_err(|error| Error::Invalid(error.to_string()))?;
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, &owner, conversation_id).await?;
            let current: Option<Current> = sqlx::query_as(CURRENT)
                .bind(owner.id())
                .bind(conversation_id)
                .fetch_optional(&mut *tx)
                .await?;
            let revision = current.as_ref().map_or(0, |current| current.revision);
            let expected = match expect {
                Expect::Any => revision,
                Expect::Revision(expected) | Expect::Unreadable(expected) => expected.0,
            };
            let is_own = current
                .as_ref()
                .is_some_and(|current| current.write_id == Some(write_id));
            if is_own && expected == revision - 1 {
                // The answer was lost, the save was not.
                return Ok(Revision(revision));
            }
            if expected != revision {
                let current = Revision(revision);
                return Err(Error::Conflict { current });
            }
            let set_aside = match expect {
                Expect::Any => {
                    let stored = read_state(&mut *tx, &owner, conversation_id, "").await?;
                    matches!(stored, Loaded::Unreadable { .. })
                }
                Expect::Revision(_) => false,
                Expect::Unreadable(_) => true,
            };
            if set_aside && current.is_some_and(|current| current.has_unreadable) {
                return Err(Error::Invalid(OCCUPIED.into()));
            }
            let revision = sqlx::query_scalar(SAVE)
                .bind(owner.id())
                .bind(conversation_id)
                .bind(serializer::current_version())
                .bind(write_id)
                .bind(&data)
                .bind(timestamp(now()))
                .bind(set_aside)
                .fetch_one(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(Revision(revision))
        })
        .await
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
        let owner = scope.owner()?;
        let agent_id = LoadContext::new(conversation_id).agent_id;
        match read_state(&self.pool, &owner, conversation_id, &agent_id).await? {
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
        let owner = scope.owner()?;
        match read_state(&self.pool, &owner, conversation_id, "").await? {
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
            UPDATE "chat_agent_states"
            SET data = unreadable_data, unreadable_data = data,
                revision = revision + 1, write_id = $3, updated_at = $4
            WHERE "login_id" = $1 AND conversation_id = $2 AND unreadable_data IS NOT NULL
            RETURNING revision"#;

        let owner = scope.owner()?;
        let write_id = Uuid::now_v7();
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, &owner, conversation_id).await?;
            let revision = sqlx::query_scalar(RESTORE)
                .bind(owner.id())
                .bind(conversation_id)
                .bind(write_id)
                .bind(timestamp(now()))
                .fetch_optional(&mut *tx)
                .await?
                .ok_or(Error::NotFound)?;
            tx.commit().await?;
            Ok(Revision(revision))
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
            SELECT unreadable_data FROM "chat_agent_states"
            WHERE "login_id" = $1 AND conversation_id = $2 AND unreadable_data IS NOT NULL"#;

        let owner = scope.owner()?;
        let row = sqlx::query(SELECT)
            .bind(owner.id())
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
            UPDATE "chat_agent_states" SET unreadable_data = NULL
            WHERE "login_id" = $1 AND conversation_id = $2 AND unreadable_data IS NOT NULL"#;

        let owner = scope.owner()?;
        retry(|| async {
            let mut tx = self.begin().await?;
            touch(&mut tx, &owner, conversation_id).await?;
            let discarded = sqlx::query(DISCARD)
                .bind(owner.id())
                .bind(conversation_id)
                .execute(&mut *tx)
                .await?;
            if discarded.rows_affected() == 0 {
                return Err(Error::NotFound);
            }
            tx.commit().await
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
            UPDATE "chat_conversations" SET interrupted = $3, updated_at = $4
            WHERE "login_id" = $1 AND id = $2
            RETURNING *"#;

        let owner = scope.owner()?;
        retry(|| async {
            let mut tx = self.begin().await?;
            let updated: Option<Conversation> = sqlx::query_as(UPDATE)
                .bind(owner.id())
                .bind(conversation_id)
                .bind(interrupted)
                .bind(timestamp(now()))
                .fetch_optional(&mut *tx)
                .await?;
            tx.commit().await?;
            updated.ok_or(Error::NotFound)
        })
        .await
    }
}

/// Reads the saved state, whether it can be understood or not.
async fn read_state(
    executor: impl SqliteExecutor<'_>,
    owner: &Owner,
    conversation_id: Uuid,
    agent_id: &str,
) -> Result<Loaded> {
    // The conversation is on the left, so that one without a state is told from one that is not
    // there. The state is read as bytes: what is no text is damaged, not a failure.
    const SELECT: &str = r#"
        SELECT s.revision, s.data FROM "chat_conversations" c
        LEFT JOIN "chat_agent_states" s ON s."login_id" = $1 AND s.conversation_id = $2
        WHERE c."login_id" = $1 AND c.id = $2"#;

    let row = sqlx::query(SELECT)
        .bind(owner.id())
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

impl AgentPersistence for Chat {
    type Scope = Scope;
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
        let owner = scope.owner()?;
        read_state(
            &self.pool,
            &owner,
            context.conversation_id,
            &context.agent_id,
        )
        .await
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
