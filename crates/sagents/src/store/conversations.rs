//! The calls for conversations.

use tracing::instrument;
use uuid::Uuid;

use super::{Store, with_driver};
use crate::page::is_cut;
use crate::{
    Conversation, ConversationChanges, Error, Key, ListConversations, NewConversation, OwnerScope, Page, Reach, Result,
    Timestamp,
};

/// The time by which a conversation is old.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Age {
    Updated,
    Archived,
}

impl Store {
    /// Creates a conversation. Repeating the call with the same id stores nothing and returns the existing one.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the id isn't a `UUIDv7` or the metadata is nested too deeply.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(gen_ai.conversation.id = %new.id))]
    pub async fn create_conversation(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        new: NewConversation,
    ) -> Result<Conversation> {
        let (owner, new) = (scope.owner()?, new.checked()?);
        with_driver!(self, driver => driver.create_conversation(&owner, &new).await)
    }

    /// Returns a conversation.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(gen_ai.conversation.id = %id))]
    pub async fn get_conversation(&self, scope: &(impl OwnerScope + ?Sized), id: Uuid) -> Result<Conversation> {
        let owner = self.reached(scope, id).await?;
        with_driver!(self, driver => driver.get_conversation(&owner, id).await)
    }

    /// Changes the fields that `changes` names.
    ///
    /// Archiving only moves a conversation to another list: everything else works as before, `updated_at` stays, and
    /// archiving it again keeps the first time.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, [`Error::Invalid`] if the metadata is nested too
    /// deeply.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(gen_ai.conversation.id = %id))]
    pub async fn update_conversation(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        id: Uuid,
        changes: ConversationChanges,
    ) -> Result<Conversation> {
        let (owner, changes) = (scope.owner()?, changes.checked()?);
        with_driver!(self, driver => driver.update_conversation(&owner, id, &changes).await)
    }

    /// Deletes a conversation with its messages, its agent state, its usage and its run.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(gen_ai.conversation.id = %id))]
    pub async fn delete_conversation(&self, scope: &(impl OwnerScope + ?Sized), id: Uuid) -> Result<()> {
        let owner = scope.owner()?;
        let is_deleted = with_driver!(self, driver => driver.delete_conversation(&owner, id).await?);
        if !is_deleted {
            return Err(Error::NotFound);
        }
        self.notify(id).await;
        Ok(())
    }

    /// Returns a page of the active or the archived conversations that the scope reaches.
    ///
    /// Pagination is keyset-based: conversations that are added or deleted between two pages cause neither gaps nor
    /// duplicates. If several members of a group have a conversation with the same id, a page has all of them, even if
    /// it gets longer than its limit.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the limit is 0 or above [`ListConversations::MAX_LIMIT`], or the cursor belongs to another
    /// list.
    #[instrument(level = "debug", target = "sagents", skip_all)]
    pub async fn list_conversations(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        list: ListConversations,
    ) -> Result<Page<Conversation>> {
        let (reach, start, mut read) = (scope.reach()?, list.start()?, list.rows_to_read()?);
        let cursor = |row: &Conversation| list.cursor(row.updated_at, row.id);
        loop {
            let rows = match &reach {
                Reach::Owner(owner) => with_driver!(self, driver => driver.list(owner, &list, start, read).await?),
                Reach::Group(group) => {
                    with_driver!(self, driver => driver.list_of_group(group, &list, start, read).await?)
                }
            };
            if !is_cut(&rows, list.limit, read, cursor) {
                return Ok(Page::new(rows, list.limit, cursor));
            }
            read *= 2;
        }
    }

    /// Deletes all owners' conversations that were last updated before `cutoff`, and returns their number.
    ///
    /// It works in small transactions, so other writers don't wait for long. It deletes a conversation as a whole, and
    /// keeps one that's written to in the meantime. Watches notice a deletion after their interval.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database fails. What was deleted until then stays deleted.
    #[instrument(level = "debug", target = "sagents", skip_all)]
    pub async fn delete_conversations_before(&self, cutoff: Timestamp) -> Result<u64> {
        self.delete_old(Age::Updated, cutoff).await
    }

    /// As [`delete_conversations_before`](Self::delete_conversations_before), for conversations that were archived before
    /// `cutoff`.
    ///
    /// # Errors
    ///
    /// As there.
    #[instrument(level = "debug", target = "sagents", skip_all)]
    pub async fn delete_archived_before(&self, cutoff: Timestamp) -> Result<u64> {
        self.delete_old(Age::Archived, cutoff).await
    }

    /// Goes through the keys of all conversations: an index by time begins with the owner.
    async fn delete_old(&self, age: Age, cutoff: Timestamp) -> Result<u64> {
        let mut last = (self.tables().owner().kind.least(), Uuid::nil());
        let mut total = 0;
        loop {
            let mut page: Vec<(Key, Uuid, bool)> =
                with_driver!(self, driver => driver.conversations_behind(&last, age, cutoff).await?);
            let Some((owner, id, _)) = page.last() else {
                return Ok(total);
            };
            last = (owner.clone(), *id);
            page.retain(|(_, _, is_old)| *is_old);
            let mut rest = page.as_slice();
            while !rest.is_empty() {
                let (tried, deleted) = with_driver!(self, driver => driver.delete_batch(rest, age, cutoff).await?);
                rest = &rest[tried..];
                total += deleted;
            }
        }
    }
}
