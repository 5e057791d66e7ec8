//! The lines of an exported file, by hand.

use sagents::{ContentType, Conversation, Delivery, DisplayMessage, Message, Role, Timestamp, ToolStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    Conversation {
        version: u32,
        id: Uuid,
        title: Option<String>,
        metadata: Map<String, Value>,
        interrupted: bool,
        inserted_at: Timestamp,
        updated_at: Timestamp,
        archived_at: Option<Timestamp>,
    },
    State {
        envelope: Value,
        undisplayed: Vec<Uuid>,
    },
    AgentMessage {
        id: Uuid,
        message: Message,
    },
    DisplayMessage(Shown),
    Usage(Used),
    End {
        agent_messages: usize,
        display_messages: usize,
        usage: usize,
    },
}

#[derive(Serialize, Deserialize)]
pub struct Shown {
    pub sequence: i64,
    pub message_id: Uuid,
    pub item: i32,
    pub role: Role,
    pub content_type: ContentType,
    pub content: String,
    pub metadata: Map<String, Value>,
    pub tool_call_id: Option<String>,
    pub status: Option<ToolStatus>,
    pub inserted_at: Timestamp,
    pub delivery: Delivery,
}

#[derive(Serialize, Deserialize)]
pub struct Used {
    pub message_id: Uuid,
    pub model: Option<String>,
    pub input_tokens: i64,
    pub output_tokens: i64,
    pub cached_tokens: i64,
    pub inserted_at: Timestamp,
}

/// The columns of a row of usage.
pub type UsageRow = (Uuid, Option<String>, i64, i64, i64, Timestamp);

impl From<UsageRow> for Used {
    fn from((message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at): UsageRow) -> Self {
        Self { message_id, model, input_tokens, output_tokens, cached_tokens, inserted_at }
    }
}

/// What is read of a conversation.
pub struct Read {
    pub conversation: Conversation,
    pub header: Vec<u8>,
    pub agent_messages: Vec<(Uuid, Message)>,
    pub messages: Vec<DisplayMessage>,
    pub usage: Vec<UsageRow>,
}

pub fn write(read: Read) -> Vec<u8> {
    let mut file = Vec::new();
    let mut line = |line: Line| {
        serde_json::to_writer(&mut file, &line).unwrap();
        file.push(b'\n');
    };
    let Conversation { id, title, metadata, interrupted, inserted_at, updated_at, archived_at, .. } = read.conversation;
    line(Line::Conversation { version: 1, id, title, metadata, interrupted, inserted_at, updated_at, archived_at });
    let mut envelope: Value = serde_json::from_slice(&read.header).unwrap();
    envelope["version"] = 2.into();
    envelope["state"]["messages"] = json!([]);
    let header = envelope.as_object_mut().unwrap();
    header.remove("serialized_at");
    let undisplayed = header.remove("undisplayed").map_or(Vec::new(), |ids| serde_json::from_value(ids).unwrap());
    line(Line::State { envelope, undisplayed });
    let end = Line::End {
        agent_messages: read.agent_messages.len(),
        display_messages: read.messages.len(),
        usage: read.usage.len(),
    };
    for (id, message) in read.agent_messages {
        line(Line::AgentMessage { id, message });
    }
    for message in read.messages {
        line(Line::DisplayMessage(Shown {
            sequence: message.sequence,
            message_id: message.message_id,
            item: message.item,
            role: message.role,
            content_type: message.content_type,
            content: message.content,
            metadata: message.metadata,
            tool_call_id: message.tool_call_id,
            status: message.status,
            inserted_at: message.inserted_at,
            delivery: message.delivery,
        }));
    }
    for usage in read.usage {
        line(Line::Usage(usage.into()));
    }
    line(end);
    file
}

/// The header of a state that has so many messages.
pub fn header_of(mut envelope: Value, messages: usize) -> String {
    envelope["version"] = 3.into();
    envelope["state"]["messages"] = json!({ "count": messages });
    envelope.to_string()
}
