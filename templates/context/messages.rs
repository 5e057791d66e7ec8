//! The calls for display messages: append, page, clear, search.

use tracing::instrument;
use uuid::Uuid;

use super::page::{Bound, Cursor, Page, PageRows, Position, rows_to_read};
use super::values::clean_text;
use super::{
    {{ context }}, DisplayMessage, Error, MessagePage, NewDisplayMessage, OwnerScope, Result, SearchPage,
};
use crate::sagents::{Delivery, DisplayKind, Message, MessageUsage, display_items, usage_of};

impl {{ context }} {
    /// Appends a display message. Repeating the call with the same message id and item stores
    /// nothing and returns the existing message.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, [`Error::Invalid`] if the message
    /// contradicts itself.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn append_display_message(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        message: NewDisplayMessage,
    ) -> Result<DisplayMessage> {
        let owner = scope.owner()?;
        let message = message.checked()?;
        self.store.append_display_message(&owner, conversation_id, &message).await
    }

    /// Stores what a message shows, as one display message for each text, thought, picture, file, tool
    /// call (pending) and tool result. A message that shows nothing stores nothing. Repeating the call
    /// with the same message id stores no item twice and adds those that are new.
    ///
    /// Items of a [draft](Self::save_draft) with this id get their whole content, and those that the
    /// message does not have are deleted: a reader who gets a whole item of a message forgets the
    /// drafts of that message.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, [`Error::Invalid`] if a value is
    /// nested too deeply.
    pub async fn save_message(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        message_id: Uuid,
        message: &Message,
    ) -> Result<Vec<DisplayMessage>> {
        self.save_items(scope, conversation_id, message_id, message, Delivery::Stored).await
    }

    /// Stores the texts of a message that the model is still writing, or replaces those that were
    /// stored before. [`save_message`](Self::save_message) with the same id replaces them by the whole
    /// message, which a draft does not replace.
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

    #[instrument(level = "debug", skip_all, fields(%conversation_id, ?delivery))]
    pub(super) async fn save_items(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        message_id: Uuid,
        message: &Message,
        delivery: Delivery,
    ) -> Result<Vec<DisplayMessage>> {
        let owner = scope.owner()?;
        let is_text = |kind: &DisplayKind| matches!(kind, DisplayKind::Text | DisplayKind::Thinking);
        let items = display_items(message).into_iter();
        let items = items.filter(|item| delivery != Delivery::Draft || is_text(&item.kind));
        let items =
            items.map(|item| NewDisplayMessage::of_item(message_id, message.role, item).checked());
        let items = items.collect::<Result<Vec<_>>>()?;
        // A draft is not counted: its usage is not known yet.
        let metadata = message.metadata.as_ref().filter(|_| delivery != Delivery::Draft);
        let usage = metadata.and_then(usage_of);
        let items = Items {
            message_id,
            messages: &items,
            delivery,
            usage: usage.as_ref(),
        };
        let mut stored = self.store.save_items(&owner, conversation_id, items).await?;
        let is_unsaved = |row: &DisplayMessage| matches!(row.delivery, Delivery::Unsaved | Delivery::Unknown);
        if delivery == Delivery::Stored && stored.iter().any(is_unsaved) {
            // An earlier call stored it, and did not know whether the agent state contains it.
            let known = [(message_id, delivery)];
            let settled = self.store.settle_messages(&owner, conversation_id, &known).await?;
            for row in &mut stored {
                match settled.iter().find(|settled| settled.sequence == row.sequence) {
                    Some(settled) => row.clone_from(settled),
                    None if is_unsaved(row) => row.delivery = delivery,
                    None => {}
                }
            }
        }
        Ok(stored)
    }

    /// The messages that have display messages which are drafts or not yet saved in the agent state.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database fails.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn unsettled_messages(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
    ) -> Result<Vec<(Uuid, Delivery)>> {
        self.store.unsettled_messages(&scope.owner()?, conversation_id).await
    }

    /// Changes whether display messages are whole and in the agent state: unsaved ones become stored
    /// or unknown, unknown ones stored, drafts interrupted; anything else stays as it is. Returns
    /// those that readers get again, which are all but the ones that were unsaved and are stored.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database fails.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn settle_messages(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        messages: &[(Uuid, Delivery)],
    ) -> Result<Vec<DisplayMessage>> {
        let owner = scope.owner()?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        self.store.settle_messages(&owner, conversation_id, messages).await
    }

    /// A page of the display messages, in the order of the conversation. The pages that follow
    /// [`MessagePage::last`] have older messages. A page of large messages has fewer than its limit: it ends
    /// at [`MessagePage::MAX_BYTES`].
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation, [`Error::Invalid`] if the limit is
    /// 0 or above [`MessagePage::MAX_LIMIT`], or the cursor is one of another list.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn load_display_messages(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        page: MessagePage,
    ) -> Result<Page<DisplayMessage>> {
        let reach = scope.reach()?;
        let (bound, rows) = (page.bound()?, rows_to_read(page.limit, MessagePage::MAX_LIMIT)?);
        let mut rows = PageRows::new(rows, MessagePage::MAX_BYTES);
        self.store.load_display_messages(&reach, conversation_id, bound, &mut rows).await?;
        let (rows, limit) = rows.into_parts();
        let cursor = |bound| Cursor(Position::Message(bound));
        Ok(match bound {
            Bound::After(_) => Page::new(rows, limit, |row| cursor(Bound::After(row.sequence))),
            Bound::Before(_) => {
                Page::backward(rows, limit, |row| cursor(Bound::Before(row.sequence)))
            }
        })
    }

    /// Deletes the display messages and keeps the conversation and its agent state. Sequences are
    /// not used again. Returns the number of messages.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn clear_display_messages(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
    ) -> Result<u64> {
        let owner = scope.owner()?;
        self.store.clear_display_messages(&owner, conversation_id).await
    }

    /// A page of the display messages that the scope reaches and that contain a text, newest first.
    /// Case is ignored, and wildcards have no meaning. A page of large messages has fewer than its limit:
    /// it ends at [`SearchPage::MAX_BYTES`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the text has more than 200 characters, the limit is 0 or above
    /// [`SearchPage::MAX_LIMIT`], or the cursor is one of another list; [`Error::Database`] if the
    /// search takes too long.
    #[instrument(level = "debug", skip_all)]
    pub async fn search_messages(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        text: &str,
        page: SearchPage,
    ) -> Result<Page<DisplayMessage>> {
        const LONGEST: usize = 200;

        let reach = scope.reach()?;
        if text.chars().count() > LONGEST {
            return Err(Error::Invalid(format!("a search text has at most {LONGEST} characters")));
        }
        let (after, rows) = (page.start()?, rows_to_read(page.limit, SearchPage::MAX_LIMIT)?);
        let mut rows = PageRows::new(rows, SearchPage::MAX_BYTES);
        self.store.search_messages(&reach, &clean_text(text), after, &mut rows).await?;
        let (rows, limit) = rows.into_parts();
        Ok(Page::new(rows, limit, DisplayMessage::found))
    }
}

/// The items of a message to store.
#[derive(Clone, Copy)]
pub(crate) struct Items<'a> {
    pub(crate) message_id: Uuid,
    pub(crate) messages: &'a [NewDisplayMessage],
    pub(crate) delivery: Delivery,
    pub(crate) usage: Option<&'a MessageUsage>,
}
