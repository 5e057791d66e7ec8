//! Responses that may be large. They are sent at the pace of the client, and broken off if it takes nothing
//! for a while.

use std::pin::pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt as _, iter, unfold};
use serde::Serialize;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

use super::super::Reach;
use super::Web;
use super::limits::Permit;
use super::problem::{Problem, Result};

/// How many bytes are sent at once. Over a plain connection, the server buffers up to 16 parts.
const PART: usize = 8 * 1024;

/// The body has no end. The client sees a connection that breaks off.
#[derive(Debug, thiserror::Error)]
#[error("the response was broken off")]
pub(super) struct BrokenOff;

/// Takes the bytes of a body. Dropping it before the [end](Self::end) breaks the response off.
#[derive(Clone)]
pub(super) struct Writer(Sender<Option<Bytes>>);

impl Writer {
    /// A writer that may be this many bytes ahead of the client, and what it writes.
    pub(super) fn new(ahead: usize) -> (Self, impl Stream<Item = std::result::Result<Bytes, BrokenOff>> + Send) {
        let (sender, parts) = channel((ahead / PART).max(1));
        (Self(sender), up_to_the_end(parts))
    }

    /// Waits until the bytes can be sent, or are ahead.
    pub(super) async fn write(&self, bytes: &[u8]) -> std::result::Result<(), BrokenOff> {
        for part in bytes.chunks(PART) {
            let part = Bytes::copy_from_slice(part);
            self.0.send(Some(part)).await.map_err(|_| BrokenOff)?;
        }
        Ok(())
    }

    /// Waits until nobody takes the bytes any more.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }

    /// As [`write`](Self::write), for the end.
    pub(super) async fn end(&self) -> std::result::Result<(), BrokenOff> {
        self.0.send(None).await.map_err(|_| BrokenOff)
    }
}

/// A body of these parts. If the client takes nothing for a while, the rest is dropped, and the process's part
/// of the permit is free. The caller's part is not until the connection ends, because it may have buffers.
pub(super) fn body(
    parts: impl Stream<Item = std::result::Result<Bytes, BrokenOff>> + Send + 'static,
    permit: Permit,
    stalled_after: Duration,
) -> Body {
    let Permit { own, all } = permit;
    let (sender, taken) = channel(4);
    drop(tokio::spawn(async move {
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
    }));
    Body::from_stream(up_to_the_end(taken).inspect(move |_| {
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

/// The parts up to the last one, which is none.
fn up_to_the_end(
    parts: Receiver<Option<Bytes>>,
) -> impl Stream<Item = std::result::Result<Bytes, BrokenOff>> + Send {
    unfold(Some(parts), |parts| async move {
        let mut parts = parts?;
        match parts.recv().await {
            Some(part) => part.map(|part| (Ok(part), Some(parts))),
            None => Some((Err(BrokenOff), None)),
        }
    })
}

impl Web {
    /// A page as JSON. A large one counts as the caller's until it is sent.
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
