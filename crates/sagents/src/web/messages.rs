//! The routes for messages.

use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Backend;
use super::caller::Caller;
use super::input::{Body, Id, Query};
use super::problem::{Problem, Result};
use super::runner::{Reason, has_message, is_waiting};
use crate::{
    ChangeCursor, Cursor, Cut, DisplayMessage, Message, MessagePage, MessagePosition, OwnerScope as _, Page, Point,
    SearchPage,
};

/// The longest message, in characters.
const LONGEST: usize = 32_000;

#[derive(Debug, Deserialize)]
pub(super) struct Which {
    from: Option<MessagePosition>,
    limit: Option<u32>,
}

#[derive(Debug, Serialize)]
pub(super) struct Messages {
    items: Vec<DisplayMessage>,
    next: Option<Cursor>,
    /// Where the events continue. Only the last page has it.
    cursor: Option<ChangeCursor>,
}

pub(super) async fn list(
    caller: Caller,
    Extension(web): Extension<Backend>,
    id: Id,
    Query(which): Query<Which>,
) -> Result<Response> {
    let page = MessagePage {
        from: which.from.unwrap_or(MessagePosition::Last),
        limit: which.limit.unwrap_or(MessagePage::DEFAULT_LIMIT),
    };
    let is_last = page.from == MessagePosition::Last;
    let Page { items, next } = web.store.load_display_messages(&caller, id.get(), page).await?;
    let cursor = is_last.then(|| ChangeCursor::after(&items));
    web.page(caller.reach()?, &Messages { items, next, cursor })
}

#[derive(Debug, Deserialize)]
pub(super) struct Search {
    q: String,
    limit: Option<u32>,
    after: Option<Cursor>,
}

pub(super) async fn search(
    caller: Caller,
    Extension(web): Extension<Backend>,
    Query(search): Query<Search>,
) -> Result<Response> {
    let page = SearchPage { limit: search.limit.unwrap_or(SearchPage::DEFAULT_LIMIT), after: search.after };
    let page = web.store.search_messages(&caller, &search.q, page).await?;
    web.page(caller.reach()?, &page)
}

#[derive(Debug, Deserialize)]
pub(super) struct NewMessage {
    /// From the client, so that it can repeat the request.
    id: Uuid,
    text: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Sent {
    items: Vec<DisplayMessage>,
}

pub(super) async fn send(
    caller: Caller,
    Extension(web): Extension<Backend>,
    id: Id,
    Body(NewMessage { id: message_id, text }): Body<NewMessage>,
) -> Result<(StatusCode, Json<Sent>)> {
    let text = text.trim().to_owned();
    if text.is_empty() || text.chars().count() > LONGEST {
        return Err(Problem::invalid(format!("A message has 1 to {LONGEST} characters.")));
    }
    if message_id.get_version_num() != 7 {
        return Err(Problem::invalid("The id of a message is a UUIDv7."));
    }
    let session = web.session(&caller, id.get()).await?;
    // A client that disconnects doesn't stop it between the message and the start.
    let send = async move {
        let is_working = web.runner.is_working(caller.owner()?, session.conversation_id());
        if !is_working && is_waiting(&session) {
            // A message instead of a decision.
            session.cancel_pending_interrupts().await?;
        }
        let items = session.send_message(message_id, Message::user(text)).await?;
        // A message that is repeated may have its answer.
        if has_message(&session) {
            web.start(&caller.scope, &session, Reason::News).await?;
        }
        Ok::<_, Problem>(items)
    };
    let items = super::to_the_end(send).await?;
    Ok((StatusCode::ACCEPTED, Json(Sent { items })))
}

#[derive(Debug, Deserialize)]
pub(super) struct Rewind {
    to: Point,
}

#[derive(Debug, Serialize)]
pub(super) struct Rewound {
    cut: Cut,
}

pub(super) async fn rewind(
    caller: Caller,
    Extension(web): Extension<Backend>,
    id: Id,
    Body(Rewind { to }): Body<Rewind>,
) -> Result<Json<Rewound>> {
    let session = web.session(&caller, id.get()).await?;
    // Anything that the agent still says would come after the cut.
    let _ = session.request_cancel().await?;
    if !web.runner.ended(caller.owner()?, id.get()).await {
        return Err(Problem::conflict("The agent is still working. Try again."));
    }
    let cut = session.rewind(to).await?;
    Ok(Json(Rewound { cut }))
}
