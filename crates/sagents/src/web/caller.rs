//! Who sent a request, without the types of the application.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::{BoxFuture, ConversationContext, Problem};
use crate::{ConversationChanges, Error, Fork, Forked, Key, ListConversations, Owner, OwnerScope, Page, Reach, Result};

/// Who sent a request, and the calls of the application's context for them.
#[derive(Clone)]
pub(super) struct Caller {
    pub scope: Arc<dyn OwnerScope>,
    pub conversations: Arc<dyn Conversations>,
}

/// The calls of a [`ConversationContext`] with a scope. Conversations are JSON.
pub(super) trait Conversations: Send + Sync {
    fn create(&self, id: Uuid, title: Option<String>) -> BoxFuture<'_, Result<Value>>;
    fn get(&self, id: Uuid) -> BoxFuture<'_, Result<Value>>;
    fn list(&self, list: ListConversations) -> BoxFuture<'_, Result<Page<Value>>>;
    fn update(&self, id: Uuid, changes: ConversationChanges) -> BoxFuture<'_, Result<Value>>;
    fn delete(&self, id: Uuid) -> BoxFuture<'_, Result<()>>;
    fn fork(&self, id: Uuid, fork: Fork) -> BoxFuture<'_, Result<Forked>>;
    fn caller_name(&self) -> Option<String>;
}

struct Scoped<C: ConversationContext> {
    context: Arc<C>,
    scope: Arc<C::Scope>,
}

impl<C: ConversationContext> Conversations for Scoped<C> {
    fn caller_name(&self) -> Option<String> {
        self.context.caller_name(&self.scope)
    }

    fn create(&self, id: Uuid, title: Option<String>) -> BoxFuture<'_, Result<Value>> {
        Box::pin(async move { to_json(self.context.create(&self.scope, id, title).await?) })
    }

    fn get(&self, id: Uuid) -> BoxFuture<'_, Result<Value>> {
        Box::pin(async move { to_json(self.context.get(&self.scope, id).await?) })
    }

    fn list(&self, list: ListConversations) -> BoxFuture<'_, Result<Page<Value>>> {
        Box::pin(async move {
            let Page { items, next } = self.context.list(&self.scope, list).await?;
            let items = items.into_iter().map(to_json).collect::<Result<_>>()?;
            Ok(Page { items, next })
        })
    }

    fn update(&self, id: Uuid, changes: ConversationChanges) -> BoxFuture<'_, Result<Value>> {
        Box::pin(async move { to_json(self.context.update(&self.scope, id, changes).await?) })
    }

    fn delete(&self, id: Uuid) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.context.delete(&self.scope, id))
    }

    fn fork(&self, id: Uuid, fork: Fork) -> BoxFuture<'_, Result<Forked>> {
        Box::pin(self.context.fork(&self.scope, id, fork))
    }
}

fn to_json(conversation: impl Serialize) -> Result<Value> {
    serde_json::to_value(conversation).map_err(|error| Error::Host {
        status: 500,
        message: "The conversation can't be serialized.".into(),
        source: Some(error.into()),
    })
}

impl Caller {
    pub(super) fn new<C: ConversationContext>(context: Arc<C>, scope: C::Scope) -> Self {
        let scope = Arc::new(scope);
        Self { scope: Arc::clone(&scope) as Arc<dyn OwnerScope>, conversations: Arc::new(Scoped { context, scope }) }
    }
}

impl OwnerScope for Caller {
    fn owner(&self) -> Result<Owner> {
        self.scope.owner()
    }

    fn group(&self) -> Result<Key> {
        self.scope.group()
    }

    fn reach(&self) -> Result<Reach> {
        self.scope.reach()
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get().cloned();
        caller.ok_or_else(|| Problem::new(StatusCode::INTERNAL_SERVER_ERROR))
    }
}
