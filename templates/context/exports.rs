//! The calls that export conversations and import them.

use std::io::{BufRead, Write};

use tracing::instrument;
use uuid::Uuid;

use super::tool_calls::reset_copied;
use super::values::{clean_call_id, clean_json, clean_string};
use super::{{ '{' }}{{ context }}, Conversation, Delivery, DisplayMessage, Error, Export, OwnerScope, Result};
use crate::sagents::export::{ExportReader, ExportValues, ExportWriter, Place, Record};
use crate::sagents::{ExportError, ExportedConversation, ExportedMessage};

/// Takes the records of an export, one after the other.
pub(super) type Sink<'a> = &'a mut (dyn FnMut(Record) -> Result<()> + Send);

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
        let reach = scope.reach()?;
        let mut export = None;
        let mut sink = |record| {
            Export::add(&mut export, record);
            Ok(())
        };
        self.store.export_conversation(&reach, id, &mut sink).await?;
        export.ok_or(Error::NotFound)
    }

    /// As [`export_conversation`](Self::export_conversation), to a file: JSON lines. Only one message
    /// is in memory at a time.
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
        let reach = scope.reach()?;
        let mut file = ExportWriter::new(writer);
        let mut sink = |record: Record| Ok(file.write(&record)?);
        self.store.export_conversation(&reach, id, &mut sink).await?;
        Ok(file.finish()?)
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
