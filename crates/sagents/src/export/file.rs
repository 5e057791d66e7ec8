//! The records of an export as the lines of a file.

use std::io::{self, BufRead, Read as _, Write};

use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::json::{Path, from_value};
use super::super::message::Message;
use super::super::serializer;
use super::super::state::State;
use super::checks::{Checks, Counts, Problem, check_depth};
use super::fields::Fields;
use super::{ExportError, Place, Record};

/// The version of the records.
const VERSION: u64 = 1;

/// Writes the records of a file. It has one of them in memory.
#[derive(Debug)]
pub struct ExportWriter<W> {
    writer: W,
    counts: Counts,
    line: Vec<u8>,
}

impl<W: Write> ExportWriter<W> {
    /// Begins a file.
    pub fn new(writer: W) -> Self {
        Self { writer, counts: Counts::default(), line: Vec::new() }
    }

    /// Writes the next record.
    ///
    /// # Errors
    ///
    /// As [`Export::write_to`](super::Export::write_to).
    pub fn write(&mut self, record: &Record) -> Result<(), ExportError> {
        self.counts.add(record);
        match record {
            Record::Conversation(conversation) => {
                self.line(&Tagged { kind: "conversation", version: Some(VERSION), record: conversation })
            }
            Record::State(state) => {
                let mut envelope = serializer::serialize_server_state(state)?;
                if let Some(envelope) = envelope.as_object_mut() {
                    drop(envelope.remove("serialized_at"));
                }
                let undisplayed = &state.undisplayed;
                let record = json!({ "envelope": envelope, "undisplayed": undisplayed });
                self.tagged("state", &record)
            }
            Record::AgentMessage { id, message } => {
                check_depth(message)?;
                self.tagged("agent_message", &AgentMessage { id, message })
            }
            Record::Message(message) => self.tagged("display_message", &**message),
            Record::Usage(usage) => self.tagged("usage", usage),
        }
    }

    /// Writes the last line, and returns the writer.
    ///
    /// # Errors
    ///
    /// [`ExportError::Io`] if the writer fails.
    pub fn finish(mut self) -> Result<W, ExportError> {
        let counts = self.counts;
        self.tagged("end", &counts)?;
        self.writer.flush()?;
        Ok(self.writer)
    }

    /// The writer.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.writer
    }

    fn tagged(&mut self, kind: &'static str, record: &impl Serialize) -> Result<(), ExportError> {
        self.line(&Tagged { kind, version: None, record })
    }

    fn line(&mut self, record: &impl Serialize) -> Result<(), ExportError> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, record).map_err(io::Error::from)?;
        self.line.push(b'\n');
        self.writer.write_all(&self.line)?;
        // One large line does not stay in memory.
        self.line.shrink_to(64 * 1024);
        Ok(())
    }
}

#[derive(Serialize)]
struct Tagged<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(flatten)]
    record: &'a T,
}

#[derive(Serialize)]
struct AgentMessage<'a> {
    id: &'a Option<Uuid>,
    message: &'a Message,
}

/// Reads the records of a file and checks them. It has one of them in memory, and the ids of all display
/// messages.
#[derive(Debug)]
pub struct ExportReader<R> {
    reader: R,
    line: u64,
    text: Vec<u8>,
    checks: Checks,
}

impl<R: BufRead> ExportReader<R> {
    /// Begins to read a file.
    pub fn new(reader: R) -> Self {
        Self { reader, line: 0, text: Vec::new(), checks: Checks::default() }
    }

    /// The next record, or nothing at the end of the file.
    ///
    /// # Errors
    ///
    /// As [`Export::read_from`](super::Export::read_from).
    pub fn read(&mut self) -> Result<Option<(Place, Record)>, ExportError> {
        if self.checks.has_ended {
            return Ok(None);
        }
        self.line += 1;
        self.read_line()?;
        let place = Place::Line(self.line);
        let record = self.record().map_err(|problem| problem.at(place))?;
        Ok(record.map(|record| (place, record)))
    }

    fn read_line(&mut self) -> Result<(), ExportError> {
        /// No database stores a larger value.
        const LONGEST: u64 = 1 << 30;

        self.text.clear();
        self.text.shrink_to(64 * 1024);
        let mut line = self.reader.by_ref().take(LONGEST);
        let length = line.read_until(b'\n', &mut self.text)?;
        let problem = if length == 0 {
            "expected another record, found the end of the file"
        } else if line.limit() == 0 {
            "it is longer than 1 GiB"
        } else {
            return Ok(());
        };
        Err(Problem::new("", problem).at(Place::Line(self.line)))
    }

    fn record(&mut self) -> Result<Option<Record>, Problem> {
        let record = serde_json::from_slice(&self.text).map_err(|error| {
            // The line that it names is always 1.
            let text = error.to_string();
            let reason = text.split(" at line ").next().unwrap_or_default();
            Problem::new("", format!("column {}: {reason}", error.column()))
        })?;
        let Value::Object(map) = record else {
            return Err(Problem::new("", "expected an object"));
        };
        let mut fields = Fields(map);
        let kind: String = fields.take("type")?;
        let record = match kind.as_str() {
            "conversation" => {
                let version: Value = fields.take("version")?;
                if version != VERSION {
                    let reason = format!("expected {VERSION}, found {version}");
                    return Err(Problem::new("version", reason));
                }
                Record::Conversation(fields.read()?)
            }
            "state" => Record::State(Box::new(state_of(fields)?)),
            "agent_message" => {
                let (id, message) = (fields.take("id")?, fields.take("message")?);
                fields.end()?;
                let message = from_value(Path::Root("message"), message);
                let message = Box::new(message.map_err(|error| Problem::of(error, ""))?);
                check_depth(&message)?;
                Record::AgentMessage { id, message }
            }
            "display_message" => Record::Message(Box::new(fields.read()?)),
            "usage" => Record::Usage(fields.read()?),
            "end" => {
                let counts = Counts {
                    agent_messages: fields.take("agent_messages")?,
                    display_messages: fields.take("display_messages")?,
                    usage: fields.take("usage")?,
                };
                fields.end()?;
                return self.checks.end(counts).map(|()| None);
            }
            other => return Err(Problem::new("type", format!("unknown record `{other}`"))),
        };
        self.checks.next(&record)?;
        Ok(Some(record))
    }
}

/// The `state` of a file.
fn state_of(mut fields: Fields) -> Result<State, Problem> {
    let (envelope, undisplayed): (Value, _) = (fields.take("envelope")?, fields.take("undisplayed")?);
    fields.end()?;
    let current = serializer::current_version();
    let version = envelope.get("version").cloned().unwrap_or_default();
    if version != current {
        let reason = format!("expected {current}, found {version}");
        return Err(Problem::new("envelope.version", reason));
    }
    let state = serializer::deserialize_server_state("", envelope);
    let mut state = state.map_err(|error| Problem::of(error, "envelope."))?;
    if !state.messages.is_empty() {
        return Err(Problem::new("envelope.state.messages", "expected none: they are records"));
    }
    drop(serializer::serialize_server_state(&state)?);
    state.agent_id = None;
    state.undisplayed = undisplayed;
    Ok(state)
}
