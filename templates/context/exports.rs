//! The calls that export conversations and import them.

use std::future::Future;
use std::io::{BufRead, Write};

use tracing::instrument;
use uuid::Uuid;

use super::tool_calls::reset_copied;
use super::values::{clean_call_id, clean_json, clean_string};
use super::{{ '{' }}{{ context }}, Conversation, Delivery, DisplayMessage, Error, Export, OwnerScope, Result};
use crate::sagents::export::{ExportReader, ExportValues, ExportWriter, Place, Record};
use crate::sagents::{ExportError, ExportedConversation, ExportedMessage};

/// Takes the records of an export, one after the other. As long as it takes one, the export reads no more,
/// and keeps its connection.
pub(super) trait Sink: Send {
    fn take(&mut self, record: Record) -> impl Future<Output = Result<()>> + Send;
}

/// Returns the records of an import behind the conversation.
pub(super) type Source<'a> = &'a mut (dyn FnMut() -> Result<Option<Record>> + Send);

/// What an import has done.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The stored conversation.
    pub conversation: Conversation,
    /// `false` if the owner had a conversation with this id: then nothing was stored.
    pub created: bool,
}

impl From<ExportError> for Error {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Io(error) => Self::Io(error),
            error @ ExportError::Invalid { .. } => Self::Invalid(error.to_string()),
        }
    }
}

impl {{ context }} {
    /// Reads a conversation with its display messages, its agent state and its usage, all at one point
    /// in time. Neither its runs nor the states that were set aside are part of it.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the scope reaches no such conversation,
    /// [`Error::DeserializationFailed`] if its agent state cannot be read.
    #[instrument(level = "debug", skip_all, fields(%id))]
    pub async fn export_conversation(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        id: Uuid,
    ) -> Result<Export> {
        let mut collected = Collected(None);
        self.export(scope, id, &mut collected).await?;
        collected.0.ok_or(Error::NotFound)
    }

    /// As [`export_conversation`](Self::export_conversation), to a file: JSON lines. A few messages are in
    /// memory at a time.
    ///
    /// `writer` is called between the statements of a transaction, so it should be quick: a file, or
    /// a buffer. What is written before an error has no end, and cannot be imported.
    ///
    /// # Errors
    ///
    /// As [`export_conversation`](Self::export_conversation), and [`Error::Io`] if `writer` fails.
    #[instrument(level = "debug", skip_all, fields(%id))]
    pub async fn export_conversation_to(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        id: Uuid,
        writer: impl Write + Send,
    ) -> Result<()> {
        let mut file = File(ExportWriter::new(writer));
        self.export(scope, id, &mut file).await?;
        Ok(file.0.finish().map(drop)?)
    }

    /// Reads a conversation at one point in time, in pages, at the pace of the sink. Exports use at most a
    /// quarter of the connections, and those of one caller use one; others wait some seconds for their turn.
    pub(super) async fn export(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        id: Uuid,
        sink: &mut impl Sink,
    ) -> Result<()> {
        self.store.export_conversation(&scope.reach()?, id, sink).await
    }

    /// Stores a conversation for the caller, all of it or nothing. If the owner has a conversation with
    /// this id, nothing is stored, so that the call can be repeated.
    ///
    /// Ids, sequences and times stay. The agent state gets revision 1, and drafts are interrupted.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] with the place of a value that cannot be stored.
    #[instrument(level = "debug", skip_all, fields(id = %export.conversation.id))]
    pub async fn import_conversation(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        export: Export,
    ) -> Result<Imported> {
        let mut values = ExportValues::new(export);
        self.import(scope, &mut || clean(values.read()?)).await
    }

    /// As [`import_conversation`](Self::import_conversation), from a file. A few messages are in memory
    /// at a time. It reads up to the end that a record says: several files may follow each other.
    ///
    /// `reader` is called between the statements of a transaction, which on `SQLite` keeps other writers
    /// waiting, so it should be quick: a file, or a buffer.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] with the line and the place of what cannot be stored, [`Error::Io`] if `reader`
    /// fails. Nothing is stored then.
    #[instrument(level = "debug", skip_all)]
    pub async fn import_conversation_from(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        reader: impl BufRead + Send,
    ) -> Result<Imported> {
        let mut file = ExportReader::new(reader);
        self.import(scope, &mut || clean(file.read()?)).await
    }

    async fn import(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        next: Source<'_>,
    ) -> Result<Imported> {
        let owner = scope.owner()?;
        let Some(Record::Conversation(new)) = next()? else {
            return Err(Error::Invalid("the conversation is missing".into()));
        };
        if let Some(conversation) = self.store.import_conversation(&owner, &new, next).await? {
            let created = true;
            return Ok(Imported { conversation, created });
        }
        // Another file may follow this one.
        while next()?.is_some() {}
        let conversation = self.get_conversation(&owner, new.id).await?;
        let created = false;
        Ok(Imported { conversation, created })
    }
}

struct Collected(Option<Export>);

impl Sink for Collected {
    async fn take(&mut self, record: Record) -> Result<()> {
        Export::add(&mut self.0, record);
        Ok(())
    }
}

struct File<W>(ExportWriter<W>);

impl<W: Write + Send> Sink for File<W> {
    async fn take(&mut self, record: Record) -> Result<()> {
        Ok(self.0.write(&record)?)
    }
}

/// The rows that a statement of an export reads, which are in memory together. It ends with the row that makes
/// it too large. The rest is read again, so a statement asks for no more rows than are likely to fit.
pub(super) struct Batch {
    rows: u32,
    taken: u32,
    bytes: usize,
}

impl Batch {
    const ROWS: u32 = 1000;
    const BYTES: usize = 256 * 1024;

    pub(super) fn first() -> Self {
        Self {
            rows: 32,
            taken: 0,
            bytes: 0,
        }
    }

    /// The number of rows to read.
    pub(super) fn rows(&self) -> u32 {
        self.rows
    }

    /// Whether another row is taken.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < Self::BYTES
    }

    /// Takes a row of this size.
    pub(super) fn take(&mut self, bytes: usize) {
        self.taken += 1;
        self.bytes += bytes;
    }

    /// The batch behind this one; nothing if the statement found no more rows.
    pub(super) fn next(&self) -> Option<Self> {
        if self.taken < self.rows && self.has_room() {
            return None;
        }
        let size = self.bytes / self.taken.max(1) as usize;
        let fit = u32::try_from(Self::BYTES / size.max(1)).unwrap_or(Self::ROWS);
        // The next ones may be larger.
        let rows = fit.clamp(1, self.rows.saturating_mul(2)).min(Self::ROWS);
        Some(Self { rows, ..Self::first() })
    }
}

impl Conversation {
    pub(super) fn into_export(self) -> ExportedConversation {
        ExportedConversation {
            id: self.id,
            title: self.title,
            metadata: self.metadata,
            interrupted: self.interrupted,
            inserted_at: self.inserted_at,
            updated_at: self.updated_at,
            archived_at: self.archived_at,
        }
    }
}

impl DisplayMessage {
    pub(super) fn into_export(mut self) -> ExportedMessage {
        let call_id = self.tool_call_id.as_deref();
        let status = reset_copied(call_id, self.status, &mut self.metadata);
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

/// A record as every database can store it.
fn clean(record: Option<(Place, Record)>) -> Result<Option<Record>> {
    let Some((place, mut record)) = record else {
        return Ok(None);
    };
    let metadata = match &mut record {
        Record::Conversation(conversation) => {
            conversation.title = conversation.title.take().map(clean_string);
            &mut conversation.metadata
        }
        Record::Message(message) => {
            message.content = clean_string(std::mem::take(&mut message.content));
            message.tool_call_id = message.tool_call_id.as_deref().map(clean_call_id);
            message.delivery = finished(message.delivery);
            let call_id = message.tool_call_id.as_deref();
            message.status = reset_copied(call_id, message.status, &mut message.metadata);
            &mut message.metadata
        }
        Record::Usage(usage) => {
            usage.model = usage.model.take().map(clean_string);
            return Ok(Some(record));
        }
        Record::State(_) | Record::AgentMessage { .. } => return Ok(Some(record)),
    };
    let cleaned = clean_json(std::mem::take(metadata));
    *metadata = cleaned.map_err(|error| match error {
        Error::Invalid(reason) => Error::Invalid(format!("{}: {reason}", place.key("metadata"))),
        error => error,
    })?;
    Ok(Some(record))
}
