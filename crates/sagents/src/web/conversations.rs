//! The routes for conversations.

use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::Backend;
use super::caller::Caller;
use super::input::{Body, Id, Query};
use super::problem::{Problem, Result};
use crate::{ConversationChanges, Cut, Fork, ListConversations, OwnerScope as _, Point, Todo, Usage};

/// The longest title, in characters.
const LONGEST: usize = 200;

pub(super) async fn list(
    caller: Caller,
    Extension(web): Extension<Backend>,
    Query(list): Query<ListConversations>,
) -> Result<Response> {
    let page = caller.conversations.list(list).await?;
    web.page(caller.reach()?, &page)
}

#[derive(Debug, Deserialize)]
pub(super) struct New {
    /// From the client, so that it can repeat the request.
    id: Option<Uuid>,
    title: Option<String>,
}

pub(super) async fn create(caller: Caller, Body(New { id, title }): Body<New>) -> Result<(StatusCode, Json<Value>)> {
    let id = id.unwrap_or_else(Uuid::now_v7);
    let conversation = caller.conversations.create(id, checked(title)?).await?;
    Ok((StatusCode::CREATED, Json(conversation)))
}

pub(super) async fn show(caller: Caller, id: Id) -> Result<Json<Value>> {
    Ok(Json(caller.conversations.get(id.get()).await?))
}

#[derive(Debug, Deserialize)]
pub(super) struct Rename {
    title: Option<String>,
}

pub(super) async fn rename(
    caller: Caller,
    Extension(web): Extension<Backend>,
    id: Id,
    Body(Rename { title }): Body<Rename>,
) -> Result<Json<Value>> {
    let title = checked(title)?;
    let changes = match &title {
        Some(title) => ConversationChanges::default().title(title),
        None => ConversationChanges::default().clear_title(),
    };
    let conversation = caller.conversations.update(id.get(), changes).await?;
    if let (Some(title), Some(session)) = (title, web.coordinator.find(&caller, id.get())?) {
        // The agent and the other pages get it, too, unless the session ends just now.
        drop(session.set_title(title));
    }
    Ok(Json(conversation))
}

pub(super) async fn delete(caller: Caller, Extension(web): Extension<Backend>, id: Id) -> Result<StatusCode> {
    caller.conversations.delete(id.get()).await?;
    web.store.notify(id.get()).await;
    web.coordinator.forget_conversation(&caller, id.get())?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn archive(caller: Caller, id: Id) -> Result<Json<Value>> {
    set_archived(&caller, id, true).await
}

pub(super) async fn unarchive(caller: Caller, id: Id) -> Result<Json<Value>> {
    set_archived(&caller, id, false).await
}

async fn set_archived(caller: &Caller, id: Id, archived: bool) -> Result<Json<Value>> {
    let changes = ConversationChanges::default().archived(archived);
    Ok(Json(caller.conversations.update(id.get(), changes).await?))
}

#[derive(Debug, Deserialize)]
pub(super) struct NewFork {
    id: Option<Uuid>,
    #[serde(default)]
    at: Point,
    title: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Copied {
    conversation: Value,
    cut: Cut,
}

pub(super) async fn fork(
    caller: Caller,
    id: Id,
    Body(NewFork { id: new_id, at, title }): Body<NewFork>,
) -> Result<(StatusCode, Json<Copied>)> {
    let new_id = new_id.unwrap_or_else(Uuid::now_v7);
    let fork = Fork { title: checked(title)?, ..Fork::at(at).id(new_id) };
    let cut = caller.conversations.fork(id.get(), fork).await?.cut;
    // As the application shows it.
    let conversation = caller.conversations.get(new_id).await?;
    Ok((StatusCode::CREATED, Json(Copied { conversation, cut })))
}

pub(super) async fn todos(caller: Caller, Extension(web): Extension<Backend>, id: Id) -> Result<Json<Vec<Todo>>> {
    let stored = web.store.load_todos(&caller, id.get()).await?;
    // The agent of this process may have changed them since they were saved.
    let session = web.coordinator.find(&caller, id.get()).ok().flatten();
    let unsaved = session.filter(|session| !session.is_saved());
    Ok(Json(unsaved.map_or(stored, |session| session.read(|state| state.todos.clone()))))
}

pub(super) async fn usage(caller: Caller, Extension(web): Extension<Backend>, id: Id) -> Result<Json<Usage>> {
    Ok(Json(web.store.usage(&caller, id.get()).await?))
}

fn checked(title: Option<String>) -> Result<Option<String>> {
    match title {
        Some(title) if title.chars().count() > LONGEST => {
            Err(Problem::invalid(format!("A title has at most {LONGEST} characters.")))
        }
        title => Ok(title),
    }
}
