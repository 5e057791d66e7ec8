//! The calls for agent states.

use tracing::instrument;
use uuid::Uuid;

use super::{Store, with_driver};
use crate::rows::Columns;
use crate::serializer::{self, ReadError};
use crate::stored::{RowReader, Rows, SavePoint, StoredRow};
use crate::{
    AgentPersistence, Error, Expect, LoadContext, Loaded, OwnerScope, PersistContext, Result, Revision, SaveOptions,
    State, Timestamp, Todo,
};

/// A stored agent state.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// The state.
    pub state: State,
    /// For [`Expect::Revision`] in the next save.
    pub revision: Revision,
}

/// A state that was set aside because it couldn't be parsed, or because another one was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableState {
    /// Identifies it in its conversation.
    pub epoch: i64,
    /// When it was set aside.
    pub set_aside_at: Timestamp,
}

/// The bytes of a state that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableData {
    /// The state without its messages.
    pub header: Vec<u8>,
    /// The messages in order.
    pub messages: Vec<UnreadableMessage>,
}

/// A message of a state that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableMessage {
    /// Counted from 0.
    pub position: i64,
    /// The id of the message.
    pub message_id: Uuid,
    /// The message as it's stored.
    pub data: Vec<u8>,
}

impl Store {
    /// Saves the agent state if the stored one is the one that you `expect`, and returns the new revision.
    ///
    /// If `state` was loaded or saved with the expected revision, only the messages that changed since are written: the
    /// cost doesn't depend on the length of the conversation. A stored state that can't be parsed is set aside, never
    /// overwritten; see [`list_unreadable_states`](Self::list_unreadable_states).
    ///
    /// If a save may have gone through, retry it with the same [write id](Expect::with_write_id); it's applied once.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, [`Error::Conflict`] if another writer saved first,
    /// [`Error::Invalid`] if a value is nested too deeply, [`Error::Unreadable`] if a newer version of this library wrote
    /// the stored state and you expect [`Expect::Any`].
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn save_agent_state(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        state: &State,
        expect: impl Into<SaveOptions>,
    ) -> Result<Revision> {
        let (owner, SaveOptions { expect, write_id }) = (scope.owner()?, expect.into());
        loop {
            let (expected, set_aside) = match expect {
                Expect::Revision(expected) => (expected, false),
                Expect::Unreadable(expected) => (expected, true),
                Expect::Any => {
                    let reader = with_driver!(self, driver => driver.load_agent_state(&owner, conversation_id).await?);
                    match reader.finish("")? {
                        None => (Revision(0), false),
                        Some(stored) if stored.point.write_id == write_id => return Ok(stored.point.revision),
                        Some(stored) => (stored.point.revision, stored.must_be_set_aside()?),
                    }
                }
            };
            let save = Save { expect, expected, set_aside, write_id };
            let attempt =
                with_driver!(self, driver => driver.save_agent_state(&owner, conversation_id, state, &save).await?);
            let current = match attempt {
                Attempt::Saved(revision, rows) => {
                    state.remember(&rows, SavePoint { conversation_id, revision, write_id });
                    return Ok(revision);
                }
                Attempt::Found(current) => current,
            };
            if current.is_result_of(&save) {
                // Only the reply was lost. The state may have changed since, so it isn't remembered.
                return Ok(current.revision);
            }
            if expect != Expect::Any {
                return Err(Error::Conflict { current: current.revision });
            }
            // Another writer saved in between: this save overwrites that state, too.
        }
    }

    /// Loads the agent state that was saved last.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation or it has no state, [`Error::Unreadable`] if the
    /// state can't be parsed.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn load_agent_state(&self, scope: &(impl OwnerScope + ?Sized), conversation_id: Uuid) -> Result<Saved> {
        match self.load(scope, &LoadContext::new(conversation_id)).await? {
            Loaded::Saved { state, revision } => Ok(Saved { state: *state, revision }),
            Loaded::Unreadable { error, .. } => Err(error.into()),
            Loaded::Nothing => Err(Error::NotFound),
        }
    }

    /// Loads only the todos of the saved state, for a page that doesn't start the agent. The messages aren't read.
    /// Without a state there are no todos.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation, [`Error::Unreadable`] if the state can't be parsed.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn load_todos(&self, scope: &(impl OwnerScope + ?Sized), conversation_id: Uuid) -> Result<Vec<Todo>> {
        let owner = self.owner_of(scope, conversation_id).await?;
        let header = with_driver!(self, driver => driver.load_header(&owner, conversation_id).await?);
        match header {
            Some(header) => Ok(serializer::read_stored("", &header)?.into_todos()),
            None => Ok(Vec::new()),
        }
    }

    /// Lists the states that were set aside, by epoch.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn list_unreadable_states(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
    ) -> Result<Vec<UnreadableState>> {
        let owner = self.owner_of(scope, conversation_id).await?;
        let states = with_driver!(self, driver => driver.list_unreadable_states(&owner, conversation_id).await?);
        if states.is_empty() {
            self.must_exist(&owner, conversation_id).await?;
        }
        Ok(states)
    }

    /// Loads the bytes of a state that was set aside, so that you can repair it by hand.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation, or it has no such state.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id, epoch))]
    pub async fn load_unreadable_state(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        epoch: i64,
    ) -> Result<UnreadableData> {
        let owner = self.owner_of(scope, conversation_id).await?;
        let reader = with_driver!(self, driver => driver.load_unreadable_state(&owner, conversation_id, epoch).await?);
        reader.finish()
    }

    /// Makes a state that was set aside the current one again, byte by byte. The current one is set aside in turn, even
    /// if it can be parsed. Writers with the old revision get a conflict.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, or it has no such state.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id, epoch))]
    pub async fn restore_unreadable_state(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        epoch: i64,
    ) -> Result<Revision> {
        let (owner, write_id) = (scope.owner()?, Uuid::now_v7());
        with_driver!(self, driver => driver.restore_unreadable_state(&owner, conversation_id, epoch, write_id).await)
    }

    /// Deletes a state that was set aside, with its messages. You can't undo this.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, or it has no such state.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id, epoch))]
    pub async fn discard_unreadable_state(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        epoch: i64,
    ) -> Result<()> {
        let owner = scope.owner()?;
        with_driver!(self, driver => driver.discard_unreadable_state(&owner, conversation_id, epoch).await)
    }

    /// Sets whether the agent waits for a person's decision.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id, interrupted))]
    pub async fn set_interrupted(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        interrupted: bool,
    ) -> Result<()> {
        let owner = scope.owner()?;
        with_driver!(self, driver => driver.set_interrupted(&owner, conversation_id, interrupted).await)
    }

    async fn load(&self, scope: &(impl OwnerScope + ?Sized), context: &LoadContext) -> Result<Loaded> {
        let id = context.conversation_id;
        let owner = self.owner_of(scope, id).await?;
        let reader = with_driver!(self, driver => driver.load_agent_state(&owner, id).await?);
        let Some(stored) = reader.finish(&context.agent_id)? else {
            return Ok(Loaded::Nothing);
        };
        let revision = stored.point.revision;
        match stored.state {
            Ok(state) => Ok(Loaded::Saved { state: Box::new(state), revision }),
            Err(error @ ReadError::FutureVersion { .. }) => Err(error.into()),
            Err(error) => Ok(Loaded::Unreadable { error, revision }),
        }
    }
}

/// A caller is anything that has an owner, so a scope of any type fits: `&scope`.
impl AgentPersistence for Store {
    type Scope = dyn OwnerScope;
    type Error = Error;

    async fn persist_state(
        &self,
        scope: &Self::Scope,
        state: &State,
        expect: Expect,
        context: &PersistContext,
    ) -> Result<Revision> {
        let (id, write_id) = (context.conversation_id, context.write_id);
        let saved = self.save_agent_state(scope, id, state, expect.with_write_id(write_id)).await;
        if let Err(error) = &saved {
            tracing::error!(
                target: "sagents",
                agent_id = context.agent_id,
                gen_ai.conversation.id = %id,
                lifecycle = context.lifecycle.as_str(),
                error = error as &dyn std::error::Error,
                "the agent state was not saved"
            );
        }
        saved
    }

    async fn load_state(&self, scope: &Self::Scope, context: &LoadContext) -> Result<Loaded> {
        self.load(scope, context).await
    }

    async fn set_interrupted(&self, scope: &Self::Scope, context: &LoadContext, interrupted: bool) -> Result<()> {
        Self::set_interrupted(self, scope, context.conversation_id, interrupted).await
    }
}

/// Implements [`AgentPersistence`] for a type that dereferences to a [`Store`].
macro_rules! persistence_of_store {
    ($store:ty) => {
        impl AgentPersistence for $store {
            type Scope = dyn OwnerScope;
            type Error = Error;

            async fn persist_state(
                &self,
                scope: &Self::Scope,
                state: &State,
                expect: Expect,
                context: &PersistContext,
            ) -> Result<Revision> {
                AgentPersistence::persist_state(&**self, scope, state, expect, context).await
            }

            async fn load_state(&self, scope: &Self::Scope, context: &LoadContext) -> Result<Loaded> {
                self.load(scope, context).await
            }

            async fn set_interrupted(
                &self,
                scope: &Self::Scope,
                context: &LoadContext,
                interrupted: bool,
            ) -> Result<()> {
                Store::set_interrupted(self, scope, context.conversation_id, interrupted).await
            }
        }
    };
}

#[cfg(feature = "_sqlite")]
persistence_of_store!(crate::sqlite::Store);
#[cfg(feature = "postgres")]
persistence_of_store!(crate::postgres::Store);

/// A save to carry out.
#[derive(Debug)]
pub(crate) struct Save {
    pub(crate) expect: Expect,
    /// The revision that must be stored; 0 without a state.
    pub(crate) expected: Revision,
    /// Whether the stored state can't be parsed and is kept.
    pub(crate) set_aside: bool,
    pub(crate) write_id: Uuid,
}

/// The result of an attempt to save.
pub(crate) enum Attempt {
    Saved(Revision, Rows),
    /// Nothing was written, because this is stored.
    Found(Current),
}

/// What a save finds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Current {
    /// 0 without a state.
    pub(crate) revision: Revision,
    pub(crate) write_id: Option<Uuid>,
}

impl Current {
    pub(crate) fn from_row(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { revision: Revision(row.at(0)?), write_id: row.at(1)? })
    }

    /// Whether a save may be carried out. One that leaves out rows fits only the save that wrote them.
    #[cfg(feature = "_sqlite")]
    pub(crate) fn fits(&self, save: &Save, base: Option<Uuid>) -> bool {
        self.revision == save.expected && (base.is_none() || base == self.write_id)
    }

    /// Whether a save was carried out before.
    fn is_result_of(&self, save: &Save) -> bool {
        self.write_id == Some(save.write_id) && save.expected.0.checked_add(1) == Some(self.revision.0)
    }
}

/// Reads a state as its rows arrive, so that header and messages come from one statement and fit together.
///
/// Columns: position, message id, data, revision, write id. The header has no position; without a state it has no revision
/// either. Messages may come in any order.
#[derive(Default)]
pub(crate) struct StateReader {
    /// Whether there is a conversation.
    exists: bool,
    header: Option<(SavePoint, Vec<u8>)>,
    messages: RowReader,
}

impl StateReader {
    pub(crate) fn push(&mut self, conversation_id: Uuid, row: &impl Columns) -> sqlx::Result<()> {
        if let Some(position) = row.at(0)? {
            self.messages.push(StoredRow { position, message_id: row.at(1)?, data: row.bytes(2)? });
            return Ok(());
        }
        let revision: Option<i64> = row.at(3)?;
        let header = revision.map(|revision| {
            let point = SavePoint { conversation_id, revision: Revision(revision), write_id: row.at(4)? };
            Ok::<_, sqlx::Error>((point, row.bytes(2)?.to_vec()))
        });
        (self.exists, self.header) = (true, header.transpose()?);
        Ok(())
    }

    /// The state, if there is one.
    fn finish(self, agent_id: &str) -> Result<Option<StoredState>> {
        let Some((point, header)) = self.header else {
            return if self.exists { Ok(None) } else { Err(Error::NotFound) };
        };
        let state = serializer::read_stored(agent_id, &header);
        let state = state.and_then(|header| header.finish(self.messages, point));
        Ok(Some(StoredState { point, state }))
    }
}

struct StoredState {
    point: SavePoint,
    state: Result<State, ReadError>,
}

impl StoredState {
    /// Whether a save sets it aside. What a newer version wrote is an error: an older process must not replace it.
    fn must_be_set_aside(self) -> Result<bool> {
        match self.state {
            Ok(_) => Ok(false),
            Err(error @ ReadError::FutureVersion { .. }) => Err(error.into()),
            Err(_) => Ok(true),
        }
    }
}

/// Reads a state that was set aside. The columns are those of a [`StateReader`], up to the data.
#[derive(Default)]
pub(crate) struct UnreadableReader {
    header: Option<Vec<u8>>,
    messages: Vec<UnreadableMessage>,
}

impl UnreadableReader {
    pub(crate) fn push(&mut self, row: &impl Columns) -> sqlx::Result<()> {
        let data = row.bytes(2)?.to_vec();
        match row.at(0)? {
            None => self.header = Some(data),
            Some(position) => {
                self.messages.push(UnreadableMessage { position, message_id: row.at(1)?, data });
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<UnreadableData> {
        self.messages.sort_unstable_by_key(|message| message.position);
        Ok(UnreadableData { header: self.header.ok_or(Error::NotFound)?, messages: self.messages })
    }
}
