//! The calls for agent states.

use tracing::instrument;
use uuid::Uuid;

use super::{{ '{' }}{{ context }}, Conversation, Error, OwnerScope, Result};
use crate::sagents::{
    AgentPersistence, Expect, LoadContext, Loaded, PersistContext, Revision, State, Todo,
    serializer,
};
{%- if let Some(import) = scope_import %}
use {{ import }};
{%- endif %}

/// A stored agent state.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// The state.
    pub state: State,
    /// For [`Expect::Revision`] in the next save.
    pub revision: Revision,
}

impl {{ context }} {
    /// Saves the agent state, if the stored one is what `expect` says.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, [`Error::Conflict`] if another
    /// writer saved first, [`Error::Invalid`] if a value is nested too deeply to be read back.
    pub async fn save_agent_state(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        state: &State,
        expect: Expect,
    ) -> Result<Revision> {
        self.save_agent_state_with_id(scope, conversation_id, state, expect, Uuid::now_v7())
            .await
    }

    /// As [`save_agent_state`](Self::save_agent_state), with an id for the save. A save that expects
    /// a revision and whose result was lost can be repeated with the same id: it is stored once.
    ///
    /// # Errors
    ///
    /// As [`save_agent_state`](Self::save_agent_state).
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn save_agent_state_with_id(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        state: &State,
        expect: Expect,
        write_id: Uuid,
    ) -> Result<Revision> {
        let owner = scope.owner()?;
        let data = serializer::to_text(state).map_err(|error| Error::Invalid(error.to_string()))?;
        self.store
            .save_agent_state(&owner, conversation_id, &data, expect, write_id)
            .await
    }

    /// Reads the agent state that was saved last.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation or it has no state,
    /// [`Error::DeserializationFailed`] if the state cannot be read.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn load_agent_state(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
    ) -> Result<Saved> {
        let owner = scope.owner()?;
        let agent_id = LoadContext::new(conversation_id).agent_id;
        match self.store.load_agent_state(&owner, conversation_id, &agent_id).await? {
            Loaded::Saved { state, revision } => Ok(Saved {
                state: *state,
                revision,
            }),
            Loaded::Unreadable { error, .. } => Err(error.into()),
            Loaded::Nothing => Err(Error::NotFound),
        }
    }

    /// Only the todos of the saved state, for a page that does not start the agent. Without a state
    /// there are none.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation,
    /// [`Error::DeserializationFailed`] if the state cannot be read.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn load_todos(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
    ) -> Result<Vec<Todo>> {
        let owner = scope.owner()?;
        match self.store.load_agent_state(&owner, conversation_id, "").await? {
            Loaded::Saved { state, .. } => Ok(state.todos),
            Loaded::Unreadable { error, .. } => Err(error.into()),
            Loaded::Nothing => Ok(Vec::new()),
        }
    }

    /// Swaps the agent state with the unreadable one that was set aside, to the byte. Calling it
    /// again undoes it.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation or nothing is set aside in it.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn restore_unreadable(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
    ) -> Result<Revision> {
        let owner = scope.owner()?;
        self.store.restore_unreadable(&owner, conversation_id).await
    }

    /// The bytes of the unreadable state that was set aside, for a repair by hand.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation or nothing is set aside in it.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn load_unreadable(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
    ) -> Result<Vec<u8>> {
        let owner = scope.owner()?;
        self.store.load_unreadable(&owner, conversation_id).await
    }

    /// Deletes the unreadable state that was set aside. This cannot be undone.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation or nothing is set aside in it.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn discard_unreadable(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
    ) -> Result<()> {
        let owner = scope.owner()?;
        self.store.discard_unreadable(&owner, conversation_id).await
    }

    /// Sets whether the agent waits for a person's decision.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn set_interrupted(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        interrupted: bool,
    ) -> Result<Conversation> {
        let owner = scope.owner()?;
        self.store.set_interrupted(&owner, conversation_id, interrupted).await
    }
}

impl AgentPersistence for {{ context }} {
    type Scope = {{ scope_name }};
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
            .save_agent_state_with_id(scope, id, state, expect, write_id)
            .await;
        if let Err(error) = &saved {
            tracing::error!(
                agent_id = context.agent_id,
                conversation_id = %context.conversation_id,
                lifecycle = context.lifecycle.as_str(),
                error = error as &dyn std::error::Error,
                "the agent state was not saved"
            );
        }
        saved
    }

    async fn load_state(&self, scope: &Self::Scope, context: &LoadContext) -> Result<Loaded> {
        let owner = scope.owner()?;
        self.store
            .load_agent_state(&owner, context.conversation_id, &context.agent_id)
            .await
    }

    async fn set_interrupted(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        interrupted: bool,
    ) -> Result<()> {
        Self::set_interrupted(self, scope, context.conversation_id, interrupted)
            .await
            .map(drop)
    }
}
