//! How sessions keep their conversations here.

use uuid::Uuid;

use super::{
    Conversations, ConversationChanges, DisplayMessage, Error, Owner, OwnerScope, Result, code, is_collision,
};
use crate::sagents::{Failure, LoadContext, Message, SessionPersistence};

impl SessionPersistence for Conversations {
    type Owner = Owner;
    type DisplayMessage = DisplayMessage;

    fn owner(&self, scope: &Self::Scope) -> Result<Owner> {
        scope.owner()
    }

    async fn save_message(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        message_id: Uuid,
        message: &Message,
    ) -> Result<Vec<DisplayMessage>> {
        Self::save_message(self, scope, context.conversation_id, message_id, message).await
    }

    async fn set_title(&self, scope: &Self::Scope, context: &LoadContext, title: &str) -> Result<()> {
        let changes = ConversationChanges::default().title(title);
        self.update_conversation(scope, context.conversation_id, changes)
            .await?;
        Ok(())
    }

    fn failure(error: &Error) -> Failure {
        match error {
            Error::Conflict { current } => Failure::Conflict { current: *current },
            Error::Database(error) if is_collision(error) || !is_lasting(error) => Failure::Passing,
            _ => Failure::Lasting,
        }
    }
}


/// Whether the database refuses what it was given, which it will do again: too much of it, the wrong
/// type, or against a constraint. So does a pool that was closed. Everything else may have passed by
/// the next time.
fn is_lasting(error: &sqlx::Error) -> bool {
    const SQLITE_TOOBIG: u32 = 18;
    const SQLITE_CONSTRAINT: u32 = 19;
    const SQLITE_MISMATCH: u32 = 20;
    let lasting = [SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH];
    matches!(error, sqlx::Error::PoolClosed)
        || code(error).is_some_and(|code| lasting.contains(&code))
}