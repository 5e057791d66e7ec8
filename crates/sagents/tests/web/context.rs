//! An application's scopes and context, and what the routes leave to them.

use std::marker::PhantomData;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;
use sagents::session::Coordinator;
use sagents::web::{ConversationContext, Problem, Web};
use sagents::{
    Conversation, ConversationChanges, Error, Fork, Forked, Key, ListConversations, Owner, OwnerScope, Page, Result,
    Store,
};
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use crate::agent::Script;
use crate::support::context::{Conversations, NewConversation};
use crate::support::{TABLES, TestDatabase};
use crate::{Server, conversation, serve};

/// An application that has a project for each conversation, and limits on titles.
pub struct Context<S> {
    store: Conversations,
    scope: PhantomData<fn() -> S>,
}

/// A conversation as the application shows it.
#[derive(Serialize)]
pub struct Shown {
    #[serde(flatten)]
    conversation: Conversation,
    project: &'static str,
}

impl<S> Context<S> {
    pub fn new(store: Conversations) -> Self {
        Self { store, scope: PhantomData }
    }
}

fn shown(conversation: Conversation) -> Shown {
    Shown { conversation, project: "Atlas" }
}

fn refused(status: u16, message: &str) -> Error {
    Error::Host { status, message: message.into(), source: None }
}

impl<S: OwnerScope + 'static> ConversationContext for Context<S> {
    type Scope = S;
    type Conversation = Shown;

    fn store(&self) -> &Store {
        &self.store
    }

    async fn create(&self, scope: &S, id: Uuid, title: Option<String>) -> Result<Shown> {
        if title.as_deref() == Some("one too many") {
            return Err(refused(402, "Your plan has ten conversations."));
        }
        let new = NewConversation { id, title, ..NewConversation::new() };
        self.store.create_conversation(scope, new).await.map(shown)
    }

    async fn get(&self, scope: &S, id: Uuid) -> Result<Shown> {
        self.store.get_conversation(scope, id).await.map(shown)
    }

    async fn list(&self, scope: &S, list: ListConversations) -> Result<Page<Shown>> {
        let Page { items, next } = self.store.list_conversations(scope, list).await?;
        Ok(Page { items: items.into_iter().map(shown).collect(), next })
    }

    async fn update(&self, scope: &S, id: Uuid, changes: ConversationChanges) -> Result<Shown> {
        if changes.title == Some(Some("frozen".into())) {
            return Err(refused(423, "The project is frozen."));
        }
        self.store.update_conversation(scope, id, changes).await.map(shown)
    }

    async fn delete(&self, scope: &S, id: Uuid) -> Result<()> {
        self.store.delete_conversation(scope, id).await
    }

    fn caller_name(&self, scope: &S) -> Option<String> {
        Some(format!("caller {:?}", scope.owner().ok()?.key()))
    }

    async fn fork(&self, scope: &S, id: Uuid, fork: Fork) -> Result<Forked> {
        if fork.title.as_deref() == Some("one too many") {
            return Err(refused(402, "Your plan has ten conversations."));
        }
        self.store.fork_conversation(scope, id, fork).await
    }
}

/// A user, whose id is in a header.
pub struct User(pub i64);

impl OwnerScope for User {
    fn owner(&self) -> Result<Owner> {
        Ok(Owner::new("user", self.0))
    }
}

impl<S: Sync> FromRequestParts<S> for User {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let id = header(parts, "x-user").and_then(|id| id.parse().ok());
        id.map(Self).ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED).detail("Log in first."))
    }
}

/// A device, or somebody who reads what a club's devices have.
pub struct Member {
    device: Option<Uuid>,
    club: Option<String>,
}

impl OwnerScope for Member {
    fn owner(&self) -> Result<Owner> {
        self.device.map(|id| Owner::new("device", id)).ok_or(Error::NoOwner)
    }

    fn group(&self) -> Result<Key> {
        self.club.as_ref().map(Key::from).ok_or(Error::NoOwner)
    }
}

impl<S: Sync> FromRequestParts<S> for Member {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let device = header(parts, "x-device").and_then(|id| id.parse().ok());
        Ok(Self { device, club: header(parts, "x-club").map(str::to_owned) })
    }
}

/// Nobody signs in.
pub struct Everybody;

impl OwnerScope for Everybody {
    fn owner(&self) -> Result<Owner> {
        Ok(Owner::none())
    }
}

impl<S: Sync> FromRequestParts<S> for Everybody {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self)
    }
}

fn header<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    parts.headers.get(name)?.to_str().ok()
}

/// A user that the application's state names.
struct Configured(i64);

#[derive(Clone)]
struct AppState {
    user: UserId,
}

#[derive(Clone, Copy)]
struct UserId(i64);

impl FromRef<AppState> for UserId {
    fn from_ref(state: &AppState) -> Self {
        state.user
    }
}

impl OwnerScope for Configured {
    fn owner(&self) -> Result<Owner> {
        User(self.0).owner()
    }
}

impl<S: Sync> FromRequestParts<S> for Configured
where
    UserId: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(UserId::from_ref(state).0))
    }
}

crate::on_both_databases!(
    the_application_decides_about_conversations,
    a_scope_is_extracted_with_the_state_of_the_router
);

async fn the_application_decides_about_conversations(database: &TestDatabase) {
    let server = Server::start(database).await;
    let user = server.user(1);
    let path = conversation(&user).await;
    let too_many = json!({ "title": "one too many" });
    for route in ["/api/conversations", &format!("{path}/fork")] {
        let detail = user.post(route, too_many.clone()).await.problem(402);
        assert_eq!(detail.as_deref(), Some("Your plan has ten conversations."));
    }
    let detail = user.patch(&path, json!({ "title": "frozen" })).await.problem(423);
    assert_eq!(detail.as_deref(), Some("The project is frozen."));

    let list = user.get("/api/conversations").await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let forked = user.post(&format!("{path}/fork"), json!({})).await.expect(201);
    for shown in [&list["items"][0], &user.get(&path).await.expect(200), &forked["conversation"]] {
        assert_eq!(shown["project"], "Atlas", "{shown}");
    }
}

async fn a_scope_is_extracted_with_the_state_of_the_router(database: &TestDatabase) {
    let store = database.store(&TABLES).await;
    let context = Context::<Configured>::new(store.clone());
    let web = Web::new(context, Coordinator::new(&store), Script);
    let router = web.router::<AppState>().with_state(AppState { user: UserId(7) });
    let (client, _) = serve(router).await;
    let path = conversation(&client).await;
    let id = path.rsplit_once('/').unwrap().1.parse().unwrap();
    assert_eq!(store.get_conversation(&User(7), id).await.unwrap().id, id);
    assert!(matches!(store.get_conversation(&User(8), id).await, Err(Error::NotFound)));
}
