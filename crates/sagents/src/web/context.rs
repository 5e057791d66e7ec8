//! What an application implements for the routes.

use serde::Serialize;
use uuid::Uuid;

use crate::{ConversationChanges, Fork, Forked, ListConversations, OwnerScope, Page, Result, Store};

/// The conversations of your application, as the routes see them.
///
/// The routes create, read, list, change, fork and delete conversations through this trait, so a quota, an audit line
/// or a column of your own applies to them, too. They make all other calls on the [store](Self::store) and its
/// sessions.
///
/// To refuse a request, return [`Error::Host`](crate::Error::Host): the response has its status and message.
///
/// ```
/// use sagents::web::ConversationContext;
/// use sagents::{Conversation, ConversationChanges, Error, ListConversations, Owner, OwnerScope, Page, Result, Store};
/// use uuid::Uuid;
///
/// struct Scope {
///     user_id: i64,
///     may_create: bool,
/// }
///
/// impl OwnerScope for Scope {
///     fn owner(&self) -> Result<Owner> {
///         Ok(Owner::new("user", self.user_id))
///     }
/// }
///
/// # struct Conversations { store: Store }
/// # struct NewConversation { id: Uuid, title: Option<String> }
/// # impl Conversations {
/// #     fn store(&self) -> &Store { &self.store }
/// #     async fn create_conversation(&self, _: &Scope, _: NewConversation) -> Result<Conversation> { unimplemented!() }
/// #     async fn get_conversation(&self, _: &Scope, _: Uuid) -> Result<Conversation> { unimplemented!() }
/// #     async fn list_conversations(&self, _: &Scope, _: ListConversations) -> Result<Page<Conversation>> { unimplemented!() }
/// #     async fn update_conversation(&self, _: &Scope, _: Uuid, _: ConversationChanges) -> Result<Conversation> { unimplemented!() }
/// #     async fn delete_conversation(&self, _: &Scope, _: Uuid) -> Result<()> { unimplemented!() }
/// # }
/// // `Conversations` is the application's context, with its statements.
/// impl ConversationContext for Conversations {
///     type Scope = Scope;
///     type Conversation = Conversation;
///
///     fn store(&self) -> &Store {
///         self.store()
///     }
///
///     async fn create(&self, scope: &Scope, id: Uuid, title: Option<String>) -> Result<Conversation> {
///         if !scope.may_create {
///             return Err(Error::Host { status: 402, message: "Your plan has ended.".into(), source: None });
///         }
///         self.create_conversation(scope, NewConversation { id, title }).await
///     }
///
///     async fn get(&self, scope: &Scope, id: Uuid) -> Result<Conversation> {
///         self.get_conversation(scope, id).await
///     }
///
///     async fn list(&self, scope: &Scope, list: ListConversations) -> Result<Page<Conversation>> {
///         self.list_conversations(scope, list).await
///     }
///
///     async fn update(&self, scope: &Scope, id: Uuid, changes: ConversationChanges) -> Result<Conversation> {
///         self.update_conversation(scope, id, changes).await
///     }
///
///     async fn delete(&self, scope: &Scope, id: Uuid) -> Result<()> {
///         self.delete_conversation(scope, id).await
///     }
/// }
/// ```
pub trait ConversationContext: Send + Sync + 'static {
    /// Who's calling. The routes extract it from each request.
    type Scope: OwnerScope + 'static;
    /// A conversation. Its JSON is the response, and the page needs `id`, `title`, `interrupted`, `updated_at` and
    /// `archived_at`.
    type Conversation: Serialize + Send;

    /// The store with everything but the conversations.
    fn store(&self) -> &Store;

    /// Creates a conversation. It has to be idempotent: with the same id, it returns the existing conversation.
    fn create(
        &self,
        scope: &Self::Scope,
        id: Uuid,
        title: Option<String>,
    ) -> impl Future<Output = Result<Self::Conversation>> + Send;

    /// Returns a conversation.
    fn get(&self, scope: &Self::Scope, id: Uuid) -> impl Future<Output = Result<Self::Conversation>> + Send;

    /// Returns a page of conversations.
    fn list(
        &self,
        scope: &Self::Scope,
        list: ListConversations,
    ) -> impl Future<Output = Result<Page<Self::Conversation>>> + Send;

    /// Sets the title, or archives a conversation or brings it back. The routes change no metadata.
    fn update(
        &self,
        scope: &Self::Scope,
        id: Uuid,
        changes: ConversationChanges,
    ) -> impl Future<Output = Result<Self::Conversation>> + Send;

    /// Deletes a conversation. Its session ends afterwards.
    fn delete(&self, scope: &Self::Scope, id: Uuid) -> impl Future<Output = Result<()>> + Send;

    /// The caller's name, as people should read it. It's stored with the caller's decisions about tool calls.
    fn caller_name(&self, _scope: &Self::Scope) -> Option<String> {
        None
    }

    /// Copies a conversation up to a point. By default that's [`Store::fork_conversation`].
    fn fork(&self, scope: &Self::Scope, id: Uuid, fork: Fork) -> impl Future<Output = Result<Forked>> + Send {
        self.store().fork_conversation(scope, id, fork)
    }
}
