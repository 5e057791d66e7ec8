//! The route that exports a conversation.

use std::io::{self, ErrorKind};
use std::mem::take;

use axum::Extension;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use tokio::sync::oneshot;
use tokio::time::timeout;
use uuid::Uuid;

use super::super::exports::Sink;
use super::super::{self as context, Error, OwnerScope as _};
use super::body::{Writer, body};
use super::input::Id;
use super::problem::{Problem, Result};
use super::{Caller, Web};
use crate::sagents::export::{ExportWriter, Record};

/// How many bytes an export may be ahead of the client. A file that has no more gives its connection to the
/// database back at once, however slow the client is.
const AHEAD: usize = 1024 * 1024;

/// Sends the file while it is read, at the pace of the client.
pub(super) async fn export(
    caller: Caller,
    Extension(web): Extension<Web>,
    id: Id,
) -> Result<impl IntoResponse> {
    let (id, limits) = (id.get(), web.limits.clone());
    let permit = web.exports.take(caller.reach()?, 1)?;
    let (writer, parts) = Writer::new(AHEAD);
    let (begun, begins) = oneshot::channel();
    let output = Output {
        writer: writer.clone(),
        begun: Some(begun),
    };
    drop(tokio::spawn(async move {
        let file = send(&web, &caller, id, output);
        tokio::select! {
            ended = timeout(limits.longest_export, file) => {
                if ended.is_err() {
                    tracing::warn!(%id, "an export took too long and was broken off");
                }
            }
            () = writer.closed() => {}
        }
    }));
    let begun = begins.await;
    begun.map_err(|_| Problem::new(StatusCode::SERVICE_UNAVAILABLE))??;
    let name = format!("attachment; filename=\"{id}.jsonl\"");
    let name = HeaderValue::try_from(name).map_err(|_| Problem::new(StatusCode::NOT_FOUND))?;
    let kind = HeaderValue::from_static("application/jsonl");
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)];
    Ok((headers, body(parts, permit, limits.stalled_after)))
}

async fn send(web: &Web, caller: &Caller, id: Uuid, output: Output) {
    let mut file = File {
        lines: ExportWriter::new(Vec::new()),
        output,
    };
    let read = web.conversations.export(caller, id, &mut file).await;
    let File { lines, mut output } = file;
    let sent = match read.and_then(|()| Ok(lines.finish()?)) {
        Ok(last) => output.end(&last).await,
        Err(error) => Err(error),
    };
    if let Err(error) = sent {
        output.fail(error);
    }
}

/// A file whose lines are sent.
struct File {
    lines: ExportWriter<Vec<u8>>,
    output: Output,
}

impl Sink for File {
    async fn take(&mut self, record: Record) -> context::Result<()> {
        const ENOUGH: usize = 32 * 1024;

        self.lines.write(&record)?;
        drop(record);
        let lines = self.lines.get_mut();
        if lines.len() < ENOUGH {
            return Ok(());
        }
        let lines = take(lines);
        self.output.write(&lines).await
    }
}

/// The body of the response.
struct Output {
    writer: Writer,
    /// Says whether there is a response, until there is one.
    begun: Option<oneshot::Sender<context::Result<()>>>,
}

impl Output {
    async fn write(&mut self, text: &[u8]) -> context::Result<()> {
        if let Some(begun) = self.begun.take() {
            drop(begun.send(Ok(())));
        }
        self.writer.write(text).await.map_err(|_| gone())
    }

    async fn end(&mut self, text: &[u8]) -> context::Result<()> {
        self.write(text).await?;
        self.writer.end().await.map_err(|_| gone())
    }

    /// Responds with the error. If the response has begun, the client sees that the file has no end.
    fn fail(self, error: Error) {
        match (self.begun, error) {
            (Some(begun), error) => drop(begun.send(Err(error))),
            (None, Error::Io(error)) if error.kind() == ErrorKind::BrokenPipe => {}
            // This logs it.
            (None, error) => drop(Problem::from(error)),
        }
    }
}

/// The client has gone, or takes nothing.
fn gone() -> Error {
    Error::Io(io::Error::from(ErrorKind::BrokenPipe))
}
