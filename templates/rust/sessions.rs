//! How sessions keep their conversations here.

use uuid::Uuid;

use super::{
    {{ w.context }}, ConversationChanges, DisplayMessage, Error, Owner, OwnerScope, Result, code, is_collision,
};
use crate::sagents::{Failure, LoadContext, Message, SessionPersistence};

impl SessionPersistence for {{ w.context }} {
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
            Error::Database(error) if is_collision(error) || !is_permanent(error) => Failure::Transient,
            _ => Failure::Permanent,
        }
    }
}

{% block is_permanent %}{% endblock %}
