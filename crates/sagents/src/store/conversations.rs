//! The conversations that the library writes: an application creates, reads, changes and lists them in its own SQL.

use tracing::instrument;
use uuid::Uuid;

use super::{Store, with_driver};
use crate::values::clean_text;
use crate::{Error, Key, Owner, Result, Timestamp};

/// Which conversations are [deleted](Store::delete_conversations).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expired {
    /// Those that were last updated before this time.
    UpdatedBefore(Timestamp),
    /// Those that were archived before this time.
    ArchivedBefore(Timestamp),
}

impl Expired {
    pub(crate) fn cutoff(self) -> Timestamp {
        let (Self::UpdatedBefore(cutoff) | Self::ArchivedBefore(cutoff)) = self;
        cutoff
    }
}

impl Store {
    pub(crate) async fn delete_conversation(&self, owner: &Owner, id: Uuid) -> Result<()> {
        let is_deleted = with_driver!(self, driver => driver.delete_conversation(owner, id).await?);
        if !is_deleted {
            return Err(Error::NotFound);
        }
        self.notify(id).await;
        Ok(())
    }

    pub(crate) async fn set_title(&self, owner: &Owner, id: Uuid, title: &str) -> Result<()> {
        let title = clean_text(title);
        let is_changed = with_driver!(self, driver => driver.set_title(owner, id, &title).await?);
        if is_changed { Ok(()) } else { Err(Error::NotFound) }
    }

    /// Deletes all owners' expired conversations, and returns their number. An index by time begins with the owner, so
    /// this call reads the keys of all conversations.
    ///
    /// It works in small transactions, so other writers don't wait for long. It deletes a conversation as a whole, and
    /// keeps one that's written to in the meantime. Watches notice a deletion after their interval.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database fails. What was deleted until then stays deleted.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix()))]
    pub async fn delete_conversations(&self, expired: Expired) -> Result<u64> {
        let mut last = (self.tables().owner().kind.least(), Uuid::nil());
        let mut total = 0;
        loop {
            let mut page: Vec<(Key, Uuid, bool)> =
                with_driver!(self, driver => driver.conversations_behind(&last, expired).await?);
            let Some((owner, id, _)) = page.last() else {
                return Ok(total);
            };
            last = (owner.clone(), *id);
            page.retain(|(_, _, is_old)| *is_old);
            let mut rest = page.as_slice();
            while !rest.is_empty() {
                let (tried, deleted) = with_driver!(self, driver => driver.delete_batch(rest, expired).await?);
                rest = &rest[tried..];
                total += deleted;
            }
        }
    }
}
