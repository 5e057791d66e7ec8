//! Responses that may be large. They're sent at the pace of their reader, and broken off if the reader takes nothing
//! for a while.

use std::pin::pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt as _, iter, unfold};
use serde::Serialize;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

use super::Backend;
use super::limits::Permit;
use super::problem::{Problem, Result};
use crate::Reach;

/// How many bytes are sent at once. A server buffers some parts for each connection, so they're small.
pub(super) const PART: usize = 8 * 1024;

/// A body ends before its response does. The client sees that the connection breaks off.
#[derive(Debug, thiserror::Error)]
#[error("the response was broken off")]
pub(super) struct BrokenOff;

/// The next part of a body.
pub(super) type Part = std::result::Result<Bytes, BrokenOff>;

/// A body of these parts. If the reader takes nothing, the remaining parts are dropped. The connection may still buffer
/// some, so the caller's share of the permit is held until the connection ends.
pub(super) fn body(parts: impl Stream<Item = Part> + Send + 'static, permit: Permit, stalled_after: Duration) -> Body {
    let Permit { own, all } = permit;
    let (sender, sent) = channel(4);
    let work = async move {
        let _all = all;
        let mut parts = pin!(parts);
        loop {
            let part = tokio::select! {
                part = parts.next() => part.transpose(),
                () = sender.closed() => return,
            };
            let Ok(part) = part else {
                return;
            };
            let is_end = part.is_none();
            let is_taken = timeout(stalled_after, sender.send(part)).await;
            if is_end || !matches!(is_taken, Ok(Ok(()))) {
                return;
            }
        }
    };
    drop(tokio::spawn(work));
    Body::from_stream(up_to_the_end(sent).inspect(move |_| {
        let _own = &own;
    }))
}

/// A body in small parts.
pub(super) fn in_parts(body: Body) -> Body {
    let parts = body.into_data_stream().flat_map(|part| {
        let mut rest = part.unwrap_or_default();
        iter(std::iter::from_fn(move || {
            let length = rest.len().min(PART);
            (length > 0).then(|| Ok::<_, BrokenOff>(rest.split_to(length)))
        }))
    });
    Body::from_stream(parts)
}

/// The parts up to the last one, which is `None`. Without it, the body is broken off.
fn up_to_the_end(parts: Receiver<Option<Bytes>>) -> impl Stream<Item = Part> + Send {
    unfold(Some(parts), |parts| async move {
        let mut parts = parts?;
        match parts.recv().await {
            Some(part) => part.map(|part| (Ok(part), Some(parts))),
            None => Some((Err(BrokenOff), None)),
        }
    })
}

impl Backend {
    /// A page as JSON. A large one counts against the caller's limit until it's sent.
    pub(super) fn page(&self, caller: Reach, page: &impl Serialize) -> Result<Response> {
        const SMALL: usize = 64 * 1024;

        let text = serde_json::to_vec(page);
        let text = text.map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR))?;
        let kind = (header::CONTENT_TYPE, "application/json".to_owned());
        if text.len() < SMALL {
            return Ok(([kind], text).into_response());
        }
        let permit = self.pages.take(caller, text.len())?;
        let length = (header::CONTENT_LENGTH, text.len().to_string());
        let parts = (0..text.len()).step_by(PART);
        let parts = parts.map(move |from| {
            let to = text.len().min(from + PART);
            Ok(Bytes::copy_from_slice(&text[from..to]))
        });
        let body = body(iter(parts), permit, self.limits.stalled_after);
        Ok(([kind, length], body).into_response())
    }
}
