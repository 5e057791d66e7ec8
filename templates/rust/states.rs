//! The calls for what a conversation's agent knows.

{% block uses %}{% endblock %}
use crate::sagents::serializer::{self, ReadError};
use crate::sagents::{
    AgentPersistence, Expect, LoadContext, Loaded, PersistContext, Revision, State, Todo,
};
{%- if let Some(import) = w.scope_import %}
use {{ import }};
{%- endif %}

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

impl {{ w.context }} {
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
{%- block save_state %}{% endblock %}
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
        {{ w.take_owner }}
        let agent_id = LoadContext::new(conversation_id).agent_id;
        match read_state(&self.pool, {{ w.owner_arg }}conversation_id, &agent_id).await? {
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
        {{ w.take_owner }}
        match read_state(&self.pool, {{ w.owner_arg }}conversation_id, "").await? {
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
{%- block restore_unreadable %}{% endblock %}
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
            SELECT unreadable_data FROM {{ w.agent_states }}
            WHERE {{ w.owner_and }}conversation_id = $1 AND unreadable_data IS NOT NULL"#;

        {{ w.take_owner }}
        let row = sqlx::query(SELECT){{ w.bind_owner }}
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
{%- block discard_unreadable %}{% endblock %}
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
            UPDATE {{ w.conversations }} SET interrupted = $2, updated_at = {{ w.latest("$3") }}
            WHERE {{ w.owner_and }}id = $1
            RETURNING *"#;

        {{ w.take_owner }}
        retry(|| async {
            {{ w.dialect.begin }}let updated: Option<Conversation> = sqlx::query_as(UPDATE){{ w.bind_owner }}
                .bind(conversation_id)
                .bind(interrupted)
                .bind(timestamp(now()))
                .fetch_optional({{ w.dialect.writer }})
                .await?;{{ w.dialect.commit }}
            updated.ok_or(Error::NotFound)
        })
        .await
    }
}

/// Reads the saved state, whether it can be understood or not.
async fn read_state(
    executor: impl {{ w.dialect.executor }}<'_>,
    {{ w.owner_param }}
    conversation_id: Uuid,
    agent_id: &str,
) -> Result<Loaded> {
    // The conversation is on the left, so that one without a state is told from one that is not
    // there. The state is read as bytes: what is no text is damaged, not a failure.
    const SELECT: &str = r#"
        SELECT s.revision, s.data FROM {{ w.conversations }} c
        LEFT JOIN {{ w.agent_states }} s ON {{ w.s_owner_and }}s.conversation_id = $1
        WHERE {{ w.c_owner_and }}c.id = $1"#;

    let row = sqlx::query(SELECT){{ w.bind_owner }}
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

impl AgentPersistence for {{ w.context }} {
    type Scope = {{ w.scope_name }};
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
        {{ w.take_owner }}
        read_state(&self.pool, {{ w.owner_arg }}context.conversation_id, &context.agent_id).await
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
