//! The calls for display messages: append, save, page, clear.

use tracing::instrument;
use uuid::Uuid;

use super::{Store, with_driver};
use crate::page::{Bound, Cursor, Page, PageRows, Position, rows_to_read};
use crate::rows::{Columns, display_message};
use crate::{
    Delivery, DisplayKind, DisplayMessage, Message, MessagePage, MessageUsage, NewDisplayMessage, OwnerScope, Result,
    display_items, usage_of,
};

impl Store {
    /// Appends a display message, behind all others of the conversation.
    ///
    /// The call is idempotent: repeated with the same message id and item, it stores nothing and returns the existing
    /// message.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`](crate::Error::NotFound) if the owner has no such conversation,
    /// [`Error::Invalid`](crate::Error::Invalid) if the message contradicts itself.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn append_display_message(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        message: NewDisplayMessage,
    ) -> Result<DisplayMessage> {
        let (owner, message) = (scope.owner()?, message.checked()?);
        with_driver!(self, driver => {
            let row = driver.append_display_message(&owner, conversation_id, &message).await?;
            Ok(display_message(&row)?)
        })
    }

    /// Stores what a message shows: one display message for each text, thought, picture, file, tool call (pending) and
    /// tool result. Returns all of them. A message that shows nothing stores nothing.
    ///
    /// The call is idempotent: repeated with the same id, it adds only items that are new. If there's a
    /// [draft](Self::save_draft) with this id, its items get their final content. Draft items that the message doesn't
    /// have are deleted, so a reader who gets a finished item of a message drops the drafts of that message.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`](crate::Error::NotFound) if the owner has no such conversation,
    /// [`Error::Invalid`](crate::Error::Invalid) if a value is nested too deeply.
    pub async fn save_message(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        message_id: Uuid,
        message: &Message,
    ) -> Result<Vec<DisplayMessage>> {
        self.save_items(scope, conversation_id, message_id, message, Delivery::Stored).await
    }

    /// Stores the texts of a message that the model is still writing, in place of those from the last call.
    ///
    /// [`save_message`](Self::save_message) with the same id replaces the draft. After that, a late draft changes nothing.
    /// A draft's tokens aren't counted.
    ///
    /// # Errors
    ///
    /// As [`save_message`](Self::save_message).
    pub async fn save_draft(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        message_id: Uuid,
        message: &Message,
    ) -> Result<Vec<DisplayMessage>> {
        self.save_items(scope, conversation_id, message_id, message, Delivery::Draft).await
    }

    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id, ?delivery))]
    pub(crate) async fn save_items(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        message_id: Uuid,
        message: &Message,
        delivery: Delivery,
    ) -> Result<Vec<DisplayMessage>> {
        let (owner, items) = (scope.owner()?, Items::of(message_id, message, delivery)?);
        with_driver!(self, driver => {
            let rows = driver.save_items(&owner, conversation_id, &items).await?;
            Ok(rows.iter().map(display_message).collect::<sqlx::Result<_>>()?)
        })
    }

    /// The messages with items that are drafts or not yet saved in the agent state.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub(crate) async fn unsettled_messages(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
    ) -> Result<Vec<(Uuid, Delivery)>> {
        let owner = scope.owner()?;
        with_driver!(self, driver => {
            let rows = driver.unsettled_messages(&owner, conversation_id).await?;
            let settled = rows.iter().map(|row| Ok((row.get("message_id")?, row.get("delivery")?)));
            Ok(settled.collect::<sqlx::Result<_>>()?)
        })
    }

    /// Changes the delivery of messages: unsaved becomes stored or unknown, unknown becomes stored, a draft becomes
    /// interrupted. Anything else stays as it is. Returns the items that readers get again, which are all but those that
    /// were unsaved and are stored now.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub(crate) async fn settle_messages(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        messages: &[(Uuid, Delivery)],
    ) -> Result<Vec<DisplayMessage>> {
        let owner = scope.owner()?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let settled: sqlx::Result<Vec<_>> = with_driver!(self, driver => {
            driver.settle_messages(&owner, conversation_id, messages).await?.iter().map(display_message).collect()
        });
        let mut settled = settled?;
        settled.sort_by_key(|message| message.sequence);
        Ok(settled)
    }

    /// A page of the display messages, in the order of the conversation. The pages that follow [`MessagePage::last`] have
    /// older messages. A page of large messages ends at [`MessagePage::MAX_BYTES`], before its limit.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`](crate::Error::NotFound) if the scope reaches no such conversation,
    /// [`Error::Invalid`](crate::Error::Invalid) if the limit is 0 or above [`MessagePage::MAX_LIMIT`], or the cursor
    /// belongs to another list.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn load_display_messages(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        page: MessagePage,
    ) -> Result<Page<DisplayMessage>> {
        let (bound, rows) = page.rows()?;
        let owner = self.owner_of(scope, conversation_id).await?;
        with_driver!(self, driver => {
            let rows = driver.load_display_messages(&owner, conversation_id, bound, rows).await?;
            page_of(rows, bound, display_message)
        })
    }

    /// Tells readers that your application changed columns of its own in display messages. They get these messages again
    /// from [`changes`](Self::changes) and [`watch`](Self::watch). Returns how many of them exist.
    ///
    /// Call it after your own `UPDATE` has committed: a reader who's told always finds the new values. If your process dies
    /// in between, readers get the values with the next change of those messages; repeating the call does no harm. All
    /// messages of a call are one change. The conversation's `updated_at`, and so its place in lists, stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`](crate::Error::NotFound) if the owner has no such conversation.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn touch_display_messages(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        sequences: &[i64],
    ) -> Result<u64> {
        let owner = scope.owner()?;
        let touched =
            with_driver!(self, driver => driver.touch_display_messages(&owner, conversation_id, sequences).await?);
        if touched == 0 {
            self.must_exist(&owner, conversation_id).await?;
        }
        Ok(touched)
    }

    /// Deletes the display messages, but not the conversation or its agent state. Returns how many there were. Their
    /// sequences aren't used again.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`](crate::Error::NotFound) if the owner has no such conversation.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn clear_display_messages(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
    ) -> Result<u64> {
        let owner = scope.owner()?;
        with_driver!(self, driver => driver.clear_display_messages(&owner, conversation_id).await)
    }
}

impl MessagePage {
    /// Where the page is, and the number of rows to read for it.
    pub(crate) fn rows(&self) -> Result<(Bound, u32)> {
        Ok((self.bound()?, rows_to_read(self.limit, Self::MAX_LIMIT)?))
    }
}

/// A page of rows, in the order of the conversation, decoded by `decode`.
pub(crate) fn page_of<R: Columns, M>(
    rows: PageRows<R>,
    bound: Bound,
    decode: impl Fn(&R) -> sqlx::Result<M>,
) -> Result<Page<M>> {
    let (rows, limit) = rows.into_parts();
    let rows = rows.into_iter().map(|row| Ok((row.get("sequence")?, decode(&row)?)));
    let rows: Vec<(i64, M)> = rows.collect::<sqlx::Result<_>>()?;
    let page = match bound {
        Bound::After(_) => Page::new(rows, limit, |(sequence, _)| Cursor(Position::Message(Bound::After(*sequence)))),
        Bound::Before(_) => {
            Page::backward(rows, limit, |(sequence, _)| Cursor(Position::Message(Bound::Before(*sequence))))
        }
    };
    Ok(Page { items: page.items.into_iter().map(|(_, message)| message).collect(), next: page.next })
}

/// The items of a message, to store.
pub(crate) struct Items {
    pub(crate) message_id: Uuid,
    pub(crate) messages: Vec<NewDisplayMessage>,
    pub(crate) delivery: Delivery,
    pub(crate) usage: Option<MessageUsage>,
}

impl Items {
    pub(crate) fn of(message_id: Uuid, message: &Message, delivery: Delivery) -> Result<Self> {
        let is_draft = delivery == Delivery::Draft;
        let is_text = |kind: &DisplayKind| matches!(kind, DisplayKind::Text | DisplayKind::Thinking);
        let items = display_items(message).into_iter().filter(|item| !is_draft || is_text(&item.kind));
        let messages = items.map(|item| NewDisplayMessage::of_item(message_id, message.role, item).checked());
        // The usage of a draft isn't known yet.
        let metadata = message.metadata.as_ref().filter(|_| !is_draft);
        let usage = metadata.and_then(usage_of);
        Ok(Self { message_id, messages: messages.collect::<Result<_>>()?, delivery, usage })
    }

    /// How a message changes whose items are stored as `stored`; nothing if it's as it should be, or if this is a draft
    /// and the message has been stored.
    ///
    /// Finished items stay as they are. Partial ones are replaced, or deleted if the message doesn't have them.
    pub(crate) fn changes(&self, stored: &[StoredItem]) -> Option<ItemChanges<'_>> {
        let is_draft = self.delivery == Delivery::Draft;
        if is_draft && !stored.iter().all(StoredItem::is_partial) {
            return None;
        }
        let is_new = |new: &&NewDisplayMessage| stored.iter().all(|old| old.item != new.item);
        let added: Vec<_> = self.messages.iter().filter(is_new).collect();
        if added.is_empty() && !stored.iter().any(StoredItem::is_partial) {
            return None;
        }
        let (mut replaced, mut gone) = (Vec::new(), Vec::new());
        for old in stored.iter().filter(|old| old.is_partial()) {
            match self.messages.iter().find(|new| new.item == old.item) {
                Some(new) => replaced.push((old.sequence, new)),
                None => gone.push(old),
            }
        }
        // Readers drop the drafts of a message when they get a row of it that isn't one.
        let has_row = !added.is_empty() || !replaced.is_empty();
        let are_told = |old: &StoredItem| !is_draft && has_row && old.delivery == Delivery::Draft;
        let is_removal = !gone.iter().all(|old| are_told(old));
        let deleted = gone.iter().map(|old| old.sequence).collect();
        Some(ItemChanges { added, replaced, deleted, is_removal })
    }
}

/// An item of a message that's stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredItem {
    pub(crate) sequence: i64,
    pub(crate) item: i32,
    pub(crate) delivery: Delivery,
}

impl StoredItem {
    /// Whether it's a text that isn't finished.
    fn is_partial(&self) -> bool {
        matches!(self.delivery, Delivery::Draft | Delivery::Interrupted)
    }

    /// Whether an earlier save didn't know if the agent state contains it.
    pub(crate) fn is_unsettled(&self) -> bool {
        matches!(self.delivery, Delivery::Unsaved | Delivery::Unknown)
    }
}

/// How the stored items of a message change.
#[derive(Debug)]
pub(crate) struct ItemChanges<'a> {
    pub(crate) added: Vec<&'a NewDisplayMessage>,
    /// With the sequences of the items that they replace.
    pub(crate) replaced: Vec<(i64, &'a NewDisplayMessage)>,
    pub(crate) deleted: Vec<i64>,
    /// Whether readers have to begin again to learn of the deleted ones.
    pub(crate) is_removal: bool,
}

/// How a delivery may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Readers get the message again.
    Visible,
    /// Readers needn't know.
    Silent,
}

/// Whether a message with the delivery `before` may become `after`.
pub(crate) fn settled(before: Delivery, after: Delivery) -> Option<Settled> {
    match (before, after) {
        (Delivery::Unsaved, Delivery::Stored) => Some(Settled::Silent),
        (Delivery::Unsaved, Delivery::Unknown)
        | (Delivery::Unknown, Delivery::Stored)
        | (Delivery::Draft, Delivery::Interrupted) => Some(Settled::Visible),
        _ => None,
    }
}

#[cfg(all(test, feature = "_sqlite", feature = "postgres"))]
mod database_tests;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, ContentPart, Role};

    fn items(texts: &[&str], delivery: Delivery) -> Items {
        let parts = texts.iter().map(|text| ContentPart::text(*text)).collect();
        let message = Message::new(Role::Assistant, Some(Content::Parts(parts)));
        Items::of(Uuid::now_v7(), &message, delivery).unwrap()
    }

    /// The items 0, 1, … with these deliveries.
    fn stored(deliveries: &[Delivery]) -> Vec<StoredItem> {
        let items = deliveries.iter().zip(0..);
        items.map(|(delivery, item)| StoredItem { sequence: 10 + i64::from(item), item, delivery: *delivery }).collect()
    }

    /// The items that are added, the sequences that are replaced and deleted, and whether readers begin again.
    type Changes = (Vec<i32>, Vec<i64>, Vec<i64>, bool);

    fn changes(items: &Items, stored: &[StoredItem]) -> Option<Changes> {
        let changes = items.changes(stored)?;
        let added = changes.added.iter().map(|new| new.item).collect();
        let replaced = changes.replaced.iter().map(|(sequence, _)| *sequence).collect();
        Some((added, replaced, changes.deleted, changes.is_removal))
    }

    #[test]
    fn a_message_replaces_its_draft_and_nothing_else() {
        let whole = items(&["a", "b"], Delivery::Stored);
        assert_eq!(changes(&whole, &[]), Some((vec![0, 1], vec![], vec![], false)));
        assert_eq!(changes(&whole, &stored(&[Delivery::Draft])), Some((vec![1], vec![10], vec![], false)));
        assert_eq!(changes(&whole, &stored(&[Delivery::Stored])), Some((vec![1], vec![], vec![], false)));
        assert_eq!(changes(&whole, &stored(&[Delivery::Stored, Delivery::Unsaved])), None);
    }

    #[test]
    fn a_late_draft_changes_nothing() {
        let draft = items(&["a"], Delivery::Draft);
        assert_eq!(changes(&draft, &stored(&[Delivery::Stored])), None);
        assert_eq!(changes(&draft, &stored(&[Delivery::Draft, Delivery::Unsaved])), None);
        assert_eq!(changes(&draft, &stored(&[Delivery::Interrupted])), Some((vec![], vec![10], vec![], false)));
    }

    #[test]
    fn readers_begin_again_if_nothing_else_tells_them_of_a_deletion() {
        let drafts = stored(&[Delivery::Draft, Delivery::Draft]);
        let shorter = |delivery| changes(&items(&["a"], delivery), &drafts).unwrap();
        assert_eq!(shorter(Delivery::Stored), (vec![], vec![10], vec![11], false));
        assert_eq!(shorter(Delivery::Draft), (vec![], vec![10], vec![11], true));
        let interrupted = stored(&[Delivery::Draft, Delivery::Interrupted]);
        assert_eq!(changes(&items(&["a"], Delivery::Stored), &interrupted), Some((vec![], vec![10], vec![11], true)));
        assert_eq!(changes(&items(&[], Delivery::Stored), &drafts), Some((vec![], vec![], vec![10, 11], true)));
    }
}
