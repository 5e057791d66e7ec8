//! The routes for conversations.

use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::{
    Conversation, ConversationChanges, Cut, Fork, ListConversations, NewConversation, OwnerScope as _,
    Point, Usage,
};
use super::input::{Body, Id, Query};
use super::problem::{Problem, Result};
use super::{Caller, Web};
use crate::sagents::Todo;

/// The longest title, in characters.
const LONGEST: usize = 200;

pub(super) async fn list(
    caller: Caller,
    Extension(web): Extension<Web>,
    Query(list): Query<ListConversations>,
) -> Result<Response> {
    let page = web.conversations.list_conversations(&caller, list).await?;
    web.page(caller.reach()?, &page)
}

#[derive(Debug, Deserialize)]
pub(super) struct New {
    /// From the client, so that it can repeat the request.
    id: Option<Uuid>,
    title: Option<String>,
}

pub(super) async fn create(
    caller: Caller,
    Extension(web): Extension<Web>,
    Body(New { id, title }): Body<New>,
) -> Result<(StatusCode, Json<Conversation>)> {
    let new = NewConversation {
        title: checked(title)?,
        ..NewConversation::new().id(id.unwrap_or_else(Uuid::now_v7))
    };
    let conversation = web.conversations.create_conversation(&caller, new).await?;
    Ok((StatusCode::CREATED, Json(conversation)))
}

pub(super) async fn show(
    caller: Caller,
    Extension(web): Extension<Web>,
    id: Id,
) -> Result<Json<Conversation>> {
    Ok(Json(web.conversations.get_conversation(&caller, id.get()).await?))
}

#[derive(Debug, Deserialize)]
pub(super) struct Rename {
    title: Option<String>,
}

pub(super) async fn rename(
    caller: Caller,
    Extension(web): Extension<Web>,
    id: Id,
    Body(Rename { title }): Body<Rename>,
) -> Result<Json<Conversation>> {
    let title = checked(title)?;
    let changes = ConversationChanges::default();
    let changes = match &title {
        Some(title) => changes.title(title),
        None => changes.clear_title(),
    };
    let conversation = web.conversations.update_conversation(&caller, id.get(), changes).await?;
    if let (Some(title), Some(session)) = (title, web.coordinator.find(&caller, id.get())?) {
        // The agent and the other pages get to know it, unless the session ends just now.
        drop(session.title_generated(title));
    }
    Ok(Json(conversation))
}

pub(super) async fn delete(
    caller: Caller,
    Extension(web): Extension<Web>,
    id: Id,
) -> Result<StatusCode> {
    web.coordinator.delete_conversation(&caller, id.get()).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn archive(
    caller: Caller,
    Extension(web): Extension<Web>,
    id: Id,
) -> Result<Json<Conversation>> {
    Ok(Json(web.conversations.archive_conversation(&caller, id.get()).await?))
}

pub(super) async fn unarchive(
    caller: Caller,
    Extension(web): Extension<Web>,
    id: Id,
) -> Result<Json<Conversation>> {
    Ok(Json(web.conversations.unarchive_conversation(&caller, id.get()).await?))
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
    conversation: Conversation,
    cut: Cut,
}

pub(super) async fn fork(
    caller: Caller,
    Extension(web): Extension<Web>,
    id: Id,
    Body(NewFork { id: new_id, at, title }): Body<NewFork>,
) -> Result<(StatusCode, Json<Copied>)> {
    let fork = Fork {
        title: checked(title)?,
        ..Fork::at(at).id(new_id.unwrap_or_else(Uuid::now_v7))
    };
    let forked = web.conversations.fork_conversation(&caller, id.get(), fork).await?;
    let copied = Copied {
        conversation: forked.conversation,
        cut: forked.cut,
    };
    Ok((StatusCode::CREATED, Json(copied)))
}

pub(super) async fn todos(
    caller: Caller,
    Extension(web): Extension<Web>,
    id: Id,
) -> Result<Json<Vec<Todo>>> {
    let stored = web.conversations.load_todos(&caller, id.get()).await?;
    // The agent of this process may have changed them since they were saved.
    let session = web.coordinator.find(&caller, id.get()).ok().flatten();
    let unsaved = session.filter(|session| !session.is_saved());
    Ok(Json(unsaved.map_or(stored, |session| session.read(|state| state.todos.clone()))))
}

pub(super) async fn usage(
    caller: Caller,
    Extension(web): Extension<Web>,
    id: Id,
) -> Result<Json<Usage>> {
    Ok(Json(web.conversations.usage(&caller, id.get()).await?))
}

fn checked(title: Option<String>) -> Result<Option<String>> {
    match title {
        Some(title) if title.chars().count() > LONGEST => {
            Err(Problem::invalid(format!("A title has at most {LONGEST} characters.")))
        }
        title => Ok(title),
    }
}
