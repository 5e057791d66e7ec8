//! The calls for agent states.

use tracing::instrument;
use uuid::Uuid;

use super::{{ '{' }}{{ context }}, Conversation, Error, OwnerScope, Result};
use crate::sagents::stored::{StoredRow, are_rows_of_aside};
use crate::sagents::{
    AgentPersistence, Expect, LoadContext, Loaded, PersistContext, Revision, State, Timestamp,
    Todo, TooDeep,
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

/// A state that was set aside because it could not be read, or because another was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableState {
    /// Identifies it in its conversation. -1 is one that an earlier version of this code set aside.
    pub epoch: i64,
    /// `None` if that was not recorded, which is so for -1.
    pub set_aside_at: Option<Timestamp>,
}

/// The bytes of a state that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableData {
    /// The state without the messages that are rows.
    pub header: Vec<u8>,
    /// The messages that are rows, in order.
    pub messages: Vec<UnreadableMessage>,
}

/// A message of a state that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableMessage {
    /// Counted from 0.
    pub position: i32,
    /// The id of the message.
    pub message_id: Uuid,
    /// The message as it is stored.
    pub data: Vec<u8>,
}

impl UnreadableData {
    /// What an earlier version of this code set aside comes with the current header, at position -1, and
    /// with messages that may belong to either.
    pub(super) fn new(header: &[u8], mut messages: Vec<StoredRow<'_>>) -> Self {
        if messages.first().is_some_and(|first| first.position == -1) {
            let current = messages.remove(0);
            if !are_rows_of_aside(current.data, header) {
                messages.clear();
            }
        }
        let messages = messages.into_iter().map(|message| UnreadableMessage {
            position: message.position,
            message_id: message.message_id,
            data: message.data.to_vec(),
        });
        Self {
            header: header.to_vec(),
            messages: messages.collect(),
        }
    }
}

impl From<TooDeep> for Error {
    fn from(error: TooDeep) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl {{ context }} {
    /// Saves the agent state, if the stored one is what `expect` says. If the state was loaded or
    /// saved with the expected revision, only the messages that changed since are written.
    ///
    /// What cannot be read is set aside and stays; see [`list_unreadable`](Self::list_unreadable).
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, [`Error::Conflict`] if another
    /// writer saved first, [`Error::Invalid`] if a value is nested too deeply to be read back.
    pub async fn save_agent_state(
        &self,
        scope: &(impl OwnerScope + ?Sized),
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
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        state: &State,
        expect: Expect,
        write_id: Uuid,
    ) -> Result<Revision> {
        let owner = scope.owner()?;
        self.store.save_agent_state(&owner, conversation_id, state, expect, write_id).await
    }

    /// Reads the agent state that was saved last.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation or it has no state,
    /// [`Error::DeserializationFailed`] if the state cannot be read.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn load_agent_state(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
    ) -> Result<Saved> {
        let reach = scope.reach()?;
        let agent_id = LoadContext::new(conversation_id).agent_id;
        match self.store.load_agent_state(&reach, conversation_id, &agent_id).await? {
            Loaded::Saved { state, revision } => Ok(Saved {
                state: *state,
                revision,
            }),
            Loaded::Unreadable { error, .. } => Err(error.into()),
            Loaded::Nothing => Err(Error::NotFound),
        }
    }

    /// Only the todos of the saved state, for a page that does not start the agent. The messages
    /// are not read. Without a state there are no todos.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation,
    /// [`Error::DeserializationFailed`] if the state cannot be read.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn load_todos(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
    ) -> Result<Vec<Todo>> {
        let reach = scope.reach()?;
        self.store.load_todos(&reach, conversation_id).await
    }

    /// The states that were set aside, oldest epoch first.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn list_unreadable(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
    ) -> Result<Vec<UnreadableState>> {
        let reach = scope.reach()?;
        self.store.list_unreadable(&reach, conversation_id).await
    }

    /// The bytes of a state that was set aside, for a repair by hand.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation, or no such state is set aside in
    /// it.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn load_unreadable(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        epoch: i64,
    ) -> Result<UnreadableData> {
        let reach = scope.reach()?;
        self.store.load_unreadable(&reach, conversation_id, epoch).await
    }

    /// Makes a state that was set aside the current one again, to the byte. The current one is set
    /// aside in turn, also if it can be read.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, or no such state is set aside in
    /// it.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn restore_unreadable(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        epoch: i64,
    ) -> Result<Revision> {
        let owner = scope.owner()?;
        self.store.restore_unreadable(&owner, conversation_id, epoch).await
    }

    /// Deletes a state that was set aside, with its messages. This cannot be undone.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, or no such state is set aside in
    /// it.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn discard_unreadable(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        epoch: i64,
    ) -> Result<()> {
        let owner = scope.owner()?;
        self.store.discard_unreadable(&owner, conversation_id, epoch).await
    }

    /// Sets whether the agent waits for a person's decision.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn set_interrupted(
        &self,
        scope: &(impl OwnerScope + ?Sized),
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
        let reach = scope.reach()?;
        self.store
            .load_agent_state(&reach, context.conversation_id, &context.agent_id)
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
