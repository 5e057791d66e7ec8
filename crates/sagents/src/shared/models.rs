//! The calls that decode display messages into a host's model. Each database compiles this module with its own types.

use sqlx::FromRow;
use tracing::instrument;
use uuid::Uuid;

use super::{Row, Store};
use crate::store::messages::{Items, page_of};
use crate::{Delivery, Message, MessagePage, NewDisplayMessage, OwnerScope, Page, Result};

/// Calls for a display message of your own: a type that decodes the columns of [`Tables`](crate::Tables), with yours.
/// [`DisplayMessage`](crate::DisplayMessage) is such a type.
impl Store {
    /// As [`append_display_message`](crate::Store::append_display_message) of the shared store.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn append_display_message<M>(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        message: NewDisplayMessage,
    ) -> Result<M>
    where
        M: for<'r> FromRow<'r, Row>,
    {
        let (owner, message) = (scope.owner()?, message.checked()?);
        let row = self.driver().append_display_message(&owner, conversation_id, &message).await?;
        Ok(M::from_row(&row)?)
    }

    /// As [`save_message`](crate::Store::save_message) of the shared store.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn save_message<M>(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        message_id: Uuid,
        message: &Message,
    ) -> Result<Vec<M>>
    where
        M: for<'r> FromRow<'r, Row>,
    {
        let (owner, items) = (scope.owner()?, Items::of(message_id, message, Delivery::Stored)?);
        let rows = self.driver().save_items(&owner, conversation_id, &items).await?;
        Ok(rows.iter().map(M::from_row).collect::<sqlx::Result<_>>()?)
    }

    /// As [`load_display_messages`](crate::Store::load_display_messages) of the shared store.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %conversation_id))]
    pub async fn load_display_messages<M>(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        page: MessagePage,
    ) -> Result<Page<M>>
    where
        M: for<'r> FromRow<'r, Row>,
    {
        let (bound, rows) = page.rows()?;
        let owner = self.owner_of(scope, conversation_id).await?;
        let rows = self.driver().load_display_messages(&owner, conversation_id, bound, rows).await?;
        page_of(rows, bound, |row| M::from_row(row))
    }
}
