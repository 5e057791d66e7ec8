//! The records of an export in memory.

use super::super::serializer;
use super::checks::{Checks, check_depth};
use super::{Export, ExportError, Place, Record};

/// The records of a value, which are checked as those of a file.
#[derive(Debug)]
pub struct ExportValues {
    records: std::vec::IntoIter<(Place, Record)>,
    checks: Checks,
}

impl ExportValues {
    /// The records of an export.
    #[must_use]
    pub fn new(export: Export) -> Self {
        let Export { conversation, state, messages, usage } = export;
        let mut records = vec![(Place::Field("conversation"), Record::Conversation(conversation))];
        let state = state.into_iter().flat_map(Record::of_state);
        for (index, record) in state.enumerate() {
            let place = match index.checked_sub(1) {
                None => Place::Field("state"),
                Some(index) => Place::Item("state.messages", index),
            };
            records.push((place, record));
        }
        for (index, message) in messages.into_iter().enumerate() {
            let record = Record::Message(Box::new(message));
            records.push((Place::Item("messages", index), record));
        }
        for (index, usage) in usage.into_iter().enumerate() {
            records.push((Place::Item("usage", index), Record::Usage(usage)));
        }
        Self { records: records.into_iter(), checks: Checks::default() }
    }

    /// The next record, or nothing behind the last one.
    ///
    /// # Errors
    ///
    /// [`ExportError::Invalid`] if it cannot be imported.
    pub fn read(&mut self) -> Result<Option<(Place, Record)>, ExportError> {
        let Some((place, record)) = self.records.next() else {
            return Ok(None);
        };
        let checked = match &record {
            Record::AgentMessage { message, .. } => check_depth(message),
            Record::State(state) => match serializer::serialize_server_state(state) {
                Ok(_) => Ok(()),
                Err(error) => Err(error.into()),
            },
            _ => Ok(()),
        };
        let checked = checked.and_then(|()| self.checks.next(&record));
        checked.map_err(|problem| problem.at(place))?;
        Ok(Some((place, record)))
    }
}
