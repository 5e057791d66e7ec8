//! The routes that start and stop the agent, and take decisions.

use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Serialize;

use super::Backend;
use super::caller::Caller;
use super::input::{Body, Call, Id};
use super::problem::{Problem, Result};
use super::runner::{Reason, is_waiting};
use crate::{Decided, Decision, DisplayMessage, OwnerScope as _, SignedDecision};

pub(super) async fn start(caller: Caller, Extension(web): Extension<Backend>, id: Id) -> Result<StatusCode> {
    let session = web.session(&caller, id.get()).await?;
    web.start(&caller.scope, &session, Reason::Asked).await?;
    Ok(StatusCode::ACCEPTED)
}

pub(super) async fn stop(caller: Caller, Extension(web): Extension<Backend>, id: Id) -> Result<StatusCode> {
    let session = web.session(&caller, id.get()).await?;
    let is_working = web.runner.is_working(caller.owner()?, id.get());
    // The agent may work in another process.
    let _ = session.request_cancel().await?;
    if !is_working && is_waiting(&session) {
        session.acknowledge_cancel()?;
        session.cancel_pending_interrupts().await?;
        let _ = session.save().await?;
    }
    Ok(StatusCode::ACCEPTED)
}

#[derive(Debug, Serialize)]
pub(super) struct Taken {
    /// Whether this decision counts. Otherwise somebody else decided first.
    claimed: bool,
    items: [DisplayMessage; 1],
}

pub(super) async fn decide(
    caller: Caller,
    Extension(web): Extension<Backend>,
    call: Call,
    Body(decision): Body<Decision>,
) -> Result<Json<Taken>> {
    let session = web.session(&caller, call.conversation).await?;
    // A client that disconnects doesn't stop it between the decision and the start.
    let decide = async move {
        let by = caller.conversations.caller_name();
        let decided = session.decide_tool_call(&call.tool_call, SignedDecision { decision, by }).await?;
        web.start(&caller.scope, &session, Reason::News).await?;
        Ok::<_, Problem>(decided)
    };
    let (claimed, call) = match super::to_the_end(decide).await? {
        Decided::Claimed(call) => (true, call),
        Decided::Already(_, call) => (false, call),
    };
    let items = [call];
    Ok(Json(Taken { claimed, items }))
}
