//! The calls for display messages: append, page, clear, search.

use tracing::instrument;
use uuid::Uuid;

use super::page::{Bound, Cursor, Page, Position, rows_to_read};
use super::values::clean_text;
use super::{
    {{ context }}, DisplayMessage, Error, MessagePage, NewDisplayMessage, OwnerScope, Result, SearchPage,
};
use crate::sagents::{Message, display_items};

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
    /// # Errors
    ///
    /// [`Error::NotFound`] if the owner has no such conversation, [`Error::Invalid`] if a value is
    /// nested too deeply.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn save_message(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        message_id: Uuid,
        message: &Message,
    ) -> Result<Vec<DisplayMessage>> {
        let owner = scope.owner()?;
        let items = display_items(message).into_iter().zip(0..);
        let items = items.map(|(item, place)| {
            NewDisplayMessage::of_item(message_id, place, message.role, item).checked()
        });
        let items = items.collect::<Result<Vec<_>>>()?;
        match items.as_slice() {
            [] => {
                let exists = self.store.get_conversation(&scope.reach()?, conversation_id).await;
                exists.map(|_| Vec::new())
            }
            [item] => {
                let stored = self.store.append_display_message(&owner, conversation_id, item).await?;
                Ok(vec![stored])
            }
            items => self.store.append_display_messages(&owner, conversation_id, items).await,
        }
    }

    /// A page of the display messages, in the order of the conversation. The pages that follow
    /// [`MessagePage::last`] have older messages.
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
        let rows = self.store.load_display_messages(&reach, conversation_id, bound, rows).await?;
        let cursor = |bound| Cursor(Position::Message(bound));
        Ok(match bound {
            Bound::After(_) => Page::new(rows, page.limit, |row| cursor(Bound::After(row.sequence))),
            Bound::Before(_) => {
                Page::backward(rows, page.limit, |row| cursor(Bound::Before(row.sequence)))
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
    /// Case is ignored, and wildcards have no meaning.
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
        let rows = self.store.search_messages(&reach, &clean_text(text), after, rows).await?;
        Ok(Page::new(rows, page.limit, DisplayMessage::found))
    }
}
