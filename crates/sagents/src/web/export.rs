//! The route that exports a conversation.

use std::future::ready;

use axum::Extension;
use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use futures_util::stream::{Stream, StreamExt as _, once, unfold};
use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
use tokio::sync::oneshot::{self, Receiver};
use tokio::time::timeout;
use uuid::Uuid;

use super::Backend;
use super::body::{BrokenOff, PART, Part, body};
use super::caller::Caller;
use super::input::Id;
use super::problem::{Problem, Result};
use crate::{Error, OwnerScope as _};

/// How many bytes an export may be ahead of the client. The export of a shorter file returns its connection to the pool
/// at once, however slow the client is.
const AHEAD: usize = 1024 * 1024;

/// Sends the file while it's read, at the pace of the client.
pub(super) async fn export(caller: Caller, Extension(web): Extension<Backend>, id: Id) -> Result<impl IntoResponse> {
    let (id, stalled_after) = (id.get(), web.limits.stalled_after);
    let permit = web.exports.take(caller.reach()?, 1)?;
    let turn = web.readers.wait(caller.reach()?).await?;
    let (writer, reader) = duplex(AHEAD);
    let (mut ended, end) = oneshot::channel();
    drop(tokio::spawn(async move {
        let _turn = turn;
        let read = timeout(web.limits.longest_export, web.store.export_conversation_to(&caller, id, writer));
        tokio::select! {
            read = read => match read {
                Ok(result) => drop(ended.send(result)),
                Err(_) => tracing::warn!(target: "sagents", %id, "an export took too long and was broken off"),
            },
            // The client has gone.
            () = ended.closed() => {}
        }
    }));
    let mut file = File { reader, end };
    let first = file.first().await?;
    let parts = once(ready(Ok(first))).chain(file.parts(id));
    let name = format!("attachment; filename=\"{id}.jsonl\"");
    let name = HeaderValue::try_from(name).map_err(|_| Problem::new(StatusCode::NOT_FOUND))?;
    let kind = HeaderValue::from_static("application/jsonl");
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)];
    Ok((headers, body(parts, permit, stalled_after)))
}

/// An export that's being read. The file is whole only if the export says so: if it fails, the pipe just ends.
struct File {
    reader: DuplexStream,
    end: Receiver<crate::Result<()>>,
}

impl File {
    /// The first part, or the error that the client gets as a response.
    async fn first(&mut self) -> Result<Bytes> {
        if let Some(part) = self.read().await {
            return Ok(part);
        }
        match (&mut self.end).await {
            Ok(Ok(())) => Ok(Bytes::new()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE)),
        }
    }

    /// The other parts.
    fn parts(self, id: Uuid) -> impl Stream<Item = Part> + Send {
        unfold(Some(self), move |file| async move {
            let mut file = file?;
            if let Some(part) = file.read().await {
                return Some((Ok(part), Some(file)));
            }
            match file.end.await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => {
                    log(id, &error);
                    Some((Err(BrokenOff), None))
                }
                Err(_) => Some((Err(BrokenOff), None)),
            }
        })
    }

    /// `None` at the end of the pipe.
    async fn read(&mut self) -> Option<Bytes> {
        let mut part = Vec::with_capacity(PART);
        match self.reader.read_buf(&mut part).await {
            Ok(length) if length > 0 => Some(part.into()),
            _ => None,
        }
    }
}

fn log(id: Uuid, error: &Error) {
    let source = error as &dyn std::error::Error;
    tracing::error!(target: "sagents", error = source, %id, "an export failed");
}
