//! The routes and the page call the context through this, so a quota or a column of yours applies
//! there, too.

use sagents::web::ConversationContext;
use sagents::{ListConversations, Page, Result, Store};
use uuid::Uuid;
{% if let Some(import) = scope_import %}
use {{ import }};
{%- endif %}
use super::{Conversation, ConversationChanges, {{ context }}, NewConversation};

impl ConversationContext for {{ context }} {
    type Scope = {{ scope_name }};
    type Conversation = Conversation;

    fn store(&self) -> &Store {
        &self.store
    }

    async fn create(&self, scope: &{{ scope_name }}, id: Uuid, title: Option<String>) -> Result<Conversation> {
        let new = NewConversation { id, title, ..NewConversation::default() };
        self.create_conversation(scope, new).await
    }

    async fn get(&self, scope: &{{ scope_name }}, id: Uuid) -> Result<Conversation> {
        self.get_conversation(scope, id).await
    }

    async fn list(&self, scope: &{{ scope_name }}, list: ListConversations) -> Result<Page<Conversation>> {
        self.list_conversations(scope, list).await
    }

    async fn update(
        &self,
        scope: &{{ scope_name }},
        id: Uuid,
        changes: sagents::ConversationChanges,
    ) -> Result<Conversation> {
        let changes = ConversationChanges {
            title: changes.title,
            archived: changes.archived,
            ..ConversationChanges::default()
        };
        self.update_conversation(scope, id, changes).await
    }

    async fn delete(&self, scope: &{{ scope_name }}, id: Uuid) -> Result<()> {
        self.delete_conversation(scope, id).await
    }
}
