//! The calls that export conversations and import them.

use std::future::Future;
use std::io::BufRead;

use serde_json::{Map, Value};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tracing::instrument;
use uuid::Uuid;

use super::tool_calls::reset_copied;
use super::{Store, with_driver};
use crate::export::{ExportReader, ExportValues, ExportWriter, Place, Record};
use crate::values::{clean_call_id, clean_json, clean_string};
use crate::{
    Conversation, Delivery, DisplayMessage, Error, Export, ExportedConversation, ExportedMessage, OwnerScope, Result,
    Timestamp,
};

/// Takes the records of an export, one after the other.
pub(crate) trait Sink: Send {
    fn take(&mut self, record: Record) -> impl Future<Output = Result<()>> + Send;
}

/// Returns the records of an import behind the conversation.
pub(crate) type Source<'a> = &'a mut (dyn FnMut() -> Result<Option<Record>> + Send);

/// The result of an import.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The stored conversation.
    pub conversation: Conversation,
    /// `false` if the owner had a conversation with this id: then nothing was stored.
    pub created: bool,
}

impl Store {
    /// Returns a conversation with its display messages, its agent state and its usage, as of one point in time. Its runs
    /// and quarantined states aren't part of it.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation, [`Error::Unreadable`] if its agent state can't be
    /// read.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %id))]
    pub async fn export_conversation(&self, scope: &(impl OwnerScope + ?Sized), id: Uuid) -> Result<Export> {
        let mut export = None;
        self.export(scope, id, &mut export).await?;
        export.ok_or(Error::NotFound)
    }

    /// As [`export_conversation`](Self::export_conversation), to a file of JSON lines. It has a few messages in memory at
    /// a time, whatever the conversation's length.
    ///
    /// The call waits for `writer` in the middle of a read transaction, which keeps a connection: limit the number of
    /// exports for slow clients, and their time. If the call fails, the file has no end, and an import refuses it.
    ///
    /// # Errors
    ///
    /// As [`export_conversation`](Self::export_conversation), and [`Error::Io`] if `writer` fails.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %id))]
    pub async fn export_conversation_to(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        id: Uuid,
        writer: impl AsyncWrite + Send + Unpin,
    ) -> Result<()> {
        let mut file = File { lines: ExportWriter::new(Vec::new()), writer };
        self.export(scope, id, &mut file).await?;
        file.finish().await
    }

    async fn export(&self, scope: &(impl OwnerScope + ?Sized), id: Uuid, sink: &mut impl Sink) -> Result<()> {
        let owner = self.owner_of(scope, id).await?;
        with_driver!(self, driver => driver.export_conversation(&owner, id, sink).await)
    }

    /// Stores a conversation for the caller: all of it, or nothing if the call fails. If the owner has a conversation with
    /// this id, nothing is stored, so you can repeat the call.
    ///
    /// Ids and sequences stay. The conversation is updated, and perhaps archived, at the time of the import, because the
    /// calls that delete old conversations rely on these times; other times stay unless they're in the future. The agent
    /// state gets revision 1, drafts become interrupted, and nobody has approved the tool calls that are open.
    ///
    /// [Your own columns](ExportedConversation::columns) are stored as the export has them. If one decides who may see
    /// the conversation, check or remove it first.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] with the place of a value that can't be stored.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix(), gen_ai.conversation.id = %export.conversation.id))]
    pub async fn import_conversation(&self, scope: &(impl OwnerScope + ?Sized), export: Export) -> Result<Imported> {
        let now = Timestamp::now();
        let mut values = ExportValues::new(export);
        self.import(scope, &mut || cleaned(values.read()?, now)).await
    }

    /// As [`import_conversation`](Self::import_conversation), from a file. It has a few messages in memory at a time, and
    /// the ids of all. It reads up to the record that says that the file ends, so several files may follow each other.
    ///
    /// The call reads from `reader` in the middle of a transaction, which on `SQLite` keeps other writers waiting. Pass a
    /// file or a buffer, not a network connection.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] with the line and the place of a value that can't be stored, [`Error::Io`] if `reader` fails.
    /// Nothing is stored then.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix()))]
    pub async fn import_conversation_from(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        reader: impl BufRead + Send,
    ) -> Result<Imported> {
        let now = Timestamp::now();
        let mut file = ExportReader::new(reader);
        self.import(scope, &mut || cleaned(file.read()?, now)).await
    }

    async fn import(&self, scope: &(impl OwnerScope + ?Sized), next: Source<'_>) -> Result<Imported> {
        let owner = scope.owner()?;
        let Some(Record::Conversation(new)) = next()? else {
            return Err(Error::Invalid("the conversation is missing".into()));
        };
        let is_own = |column: &str| self.tables().own_conversation_columns().any(|own| own == column);
        if let Some(column) = new.columns.keys().find(|column| !is_own(column)) {
            return Err(Error::Invalid(format!("conversation.columns.{column}: there is no such column of your own")));
        }
        let imported = with_driver!(self, driver => driver.import_conversation(&owner, &new, next).await?);
        if let Some(conversation) = imported {
            return Ok(Imported { conversation, created: true });
        }
        // Another file may follow this one.
        while next()?.is_some() {}
        let existing = with_driver!(self, driver => driver.existing_conversation(&owner, new.id).await?);
        Ok(Imported { conversation: existing.ok_or(Error::NotFound)?, created: false })
    }
}

impl Sink for Option<Export> {
    async fn take(&mut self, record: Record) -> Result<()> {
        Export::add(self, record);
        Ok(())
    }
}

/// Writes records behind each other.
struct File<W> {
    lines: ExportWriter<Vec<u8>>,
    writer: W,
}

impl<W: AsyncWrite + Send + Unpin> Sink for File<W> {
    async fn take(&mut self, record: Record) -> Result<()> {
        const CHUNK: usize = 64 * 1024;

        self.lines.write(&record)?;
        let lines = self.lines.get_mut();
        if lines.len() >= CHUNK {
            self.writer.write_all(lines).await?;
            lines.clear();
            // One large line doesn't stay in memory.
            lines.shrink_to(2 * CHUNK);
        }
        Ok(())
    }
}

impl<W: AsyncWrite + Send + Unpin> File<W> {
    async fn finish(mut self) -> Result<()> {
        let rest = self.lines.finish()?;
        self.writer.write_all(&rest).await?;
        Ok(self.writer.flush().await?)
    }
}

impl Conversation {
    pub(crate) fn into_export(self, columns: Map<String, Value>) -> ExportedConversation {
        ExportedConversation {
            id: self.id,
            title: self.title,
            metadata: self.metadata,
            interrupted: self.interrupted,
            inserted_at: self.inserted_at,
            updated_at: self.updated_at,
            archived_at: self.archived_at,
            columns,
        }
    }
}

impl DisplayMessage {
    pub(crate) fn into_export(mut self) -> ExportedMessage {
        let status = reset_copied(self.tool_call_id.as_deref(), self.status, &mut self.metadata);
        ExportedMessage {
            sequence: self.sequence,
            message_id: self.message_id,
            item: self.item,
            role: self.role,
            content_type: self.content_type,
            content: self.content,
            metadata: self.metadata,
            tool_call_id: self.tool_call_id,
            status,
            inserted_at: self.inserted_at,
            delivery: finished(self.delivery),
        }
    }
}

/// No process writes on at a draft that was exported.
fn finished(delivery: Delivery) -> Delivery {
    match delivery {
        Delivery::Draft => Delivery::Interrupted,
        delivery => delivery,
    }
}

/// A record as every database can store it. No time is in the future.
fn cleaned(record: Option<(Place, Record)>, now: Timestamp) -> Result<Option<Record>> {
    let Some((place, mut record)) = record else {
        return Ok(None);
    };
    match &mut record {
        Record::Conversation(conversation) => {
            conversation.title = conversation.title.take().map(clean_string);
            conversation.inserted_at = conversation.inserted_at.min(now);
            conversation.updated_at = now;
            conversation.archived_at = conversation.archived_at.map(|_| now);
            clean_object(&mut conversation.metadata, place, "metadata")?;
            clean_object(&mut conversation.columns, place, "columns")?;
        }
        Record::Message(message) => {
            message.content = clean_string(std::mem::take(&mut message.content));
            message.tool_call_id = message.tool_call_id.as_deref().map(clean_call_id);
            message.delivery = finished(message.delivery);
            message.status = reset_copied(message.tool_call_id.as_deref(), message.status, &mut message.metadata);
            message.inserted_at = message.inserted_at.min(now);
            clean_object(&mut message.metadata, place, "metadata")?;
        }
        Record::Usage(usage) => {
            usage.model = usage.model.take().map(clean_string);
            usage.inserted_at = usage.inserted_at.min(now);
        }
        Record::State(_) | Record::AgentMessage { .. } => {}
    }
    Ok(Some(record))
}

fn clean_object(object: &mut Map<String, Value>, place: Place, key: &str) -> Result<()> {
    *object = clean_json(std::mem::take(object)).map_err(|error| match error {
        Error::Invalid(reason) => Error::Invalid(format!("{}: {reason}", place.key(key))),
        error => error,
    })?;
    Ok(())
}

/// The number of the change that an imported message belongs to. [`changes`](Store::changes) returns a change as a whole,
/// so each has its own.
pub(crate) fn change_of(index: usize) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX - 1) + 1
}

/// The database refuses the value of a column of the host's.
pub(crate) fn refused_column(column: &str, error: sqlx::Error) -> Error {
    match error.as_database_error() {
        Some(refused) if !crate::database::is_transient(&error) => {
            Error::Invalid(format!("conversation.columns.{column}: {}", refused.message()))
        }
        _ => error.into(),
    }
}
