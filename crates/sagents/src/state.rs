//! The agent state and its operations.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::extensions::Extensions;
use super::message::{Message, ToolCall, ToolResult};
use super::messages::Messages;
use super::persistence::{AgentPersistence, Expect, LoadContext, Loaded};
use super::serializer::{self, ReadError};
use super::stored::StoredMessages;
use super::todo::{Todo, TodoId, TodoStatus};

/// The agent state: the conversation with the model, the todos, and the data of middleware.
///
/// `messages`, `todos`, `metadata`, `pending_message` and `undisplayed` are stored, together with the
/// keys that this version does not know. The other fields belong to the process.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Identifies the running agent. The caller who loads the state chooses it; it is not stored.
    pub agent_id: Option<String>,
    /// The conversation with the model, oldest message first.
    pub messages: Messages,
    /// The tasks of the agent, in the agent's order.
    pub todos: Vec<Todo>,
    /// The data of middleware, each under its own key.
    pub metadata: Map<String, Value>,
    /// A message of the user that the agent has not processed yet.
    pub pending_message: Option<Message>,
    /// What a person has to decide before the agent can continue. Not stored.
    pub interrupt_data: Option<Value>,
    /// Clients, channels and other values of the process. Not stored.
    pub extensions: Extensions,
    /// Keys beside `messages` that this version does not know.
    pub extra: Map<String, Value>,
    /// Keys of the envelope that this version does not know.
    pub envelope: Map<String, Value>,
    /// The ids of messages whose display messages were not stored when the state was saved. Sessions
    /// set it; it is not part of an envelope.
    pub undisplayed: Vec<Uuid>,
    /// The messages as they are stored, as far as this process knows.
    pub stored_messages: StoredMessages,
}

/// Compares only what is stored.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.messages == other.messages
            && self.todos == other.todos
            && self.metadata == other.metadata
            && self.pending_message == other.pending_message
            && self.extra == other.extra
            && self.envelope == other.envelope
    }
}

// The model reads these instead of the result of an interrupted tool.
const CANCELLED: &str = "Tool execution was interrupted and the user did not respond. \
     They sent a new message instead — proceed with their new request.";
const INCOMPATIBLE: &str = "Tool execution was interrupted and could not be resumed \
     (saved data was incompatible with current code).";
const LOST: &str = "Tool execution was interrupted and could not be resumed (agent was restarted). \
     The sub-agent's work was lost.";

impl State {
    /// An empty state.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a message.
    pub fn add_message(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Appends messages.
    pub fn add_messages(&mut self, messages: impl IntoIterator<Item = Message>) {
        self.messages.extend(messages);
    }

    /// Replaces all messages. Those that are equal to messages at the start or at the end of the old
    /// list keep their ids.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages.replace(messages);
    }

    /// Replaces the todo with the same id in its position, or appends it.
    pub fn put_todo(&mut self, todo: Todo) {
        match self.todos.iter_mut().find(|other| other.id == todo.id) {
            Some(existing) => *existing = todo,
            None => self.todos.push(todo),
        }
    }

    /// The todo with this id.
    #[must_use]
    pub fn get_todo(&self, id: &TodoId) -> Option<&Todo> {
        self.todos.iter().find(|todo| todo.id == *id)
    }

    /// Removes the todo with this id, if there is one.
    pub fn delete_todo(&mut self, id: &TodoId) {
        self.todos.retain(|todo| todo.id != *id);
    }

    /// The todos with this status, in order.
    pub fn todos_by_status<'a>(&'a self, status: &'a TodoStatus) -> impl Iterator<Item = &'a Todo> {
        self.todos.iter().filter(move |todo| todo.status == *status)
    }

    /// Replaces all todos.
    pub fn set_todos(&mut self, todos: Vec<Todo>) {
        self.todos = todos;
    }

    /// Sets a key of the metadata.
    pub fn put_metadata(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        drop(self.metadata.insert(key.into(), value.into()));
    }

    /// The value of a key of the metadata.
    #[must_use]
    pub fn get_metadata(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// Sets a key of the metadata to a value of middleware's own type.
    ///
    /// # Errors
    ///
    /// If the value has no JSON form, for example a map whose keys are not strings.
    pub fn put_typed<T: Serialize>(&mut self, key: impl Into<String>, value: &T) -> serde_json::Result<()> {
        self.put_metadata(key, serde_json::to_value(value)?);
        Ok(())
    }

    /// The value that [`put_typed`](Self::put_typed) stored, or the default if there is none. So new
    /// middleware works on old conversations.
    ///
    /// # Errors
    ///
    /// If there is a value of another type.
    pub fn get_typed<T: DeserializeOwned + Default>(&self, key: &str) -> serde_json::Result<T> {
        match self.metadata.get(key) {
            None | Some(Value::Null) => Ok(T::default()),
            Some(value) => T::deserialize(value),
        }
    }

    /// Merges another state into this one: its messages are appended, its todos replace these, its
    /// metadata is merged key by key, also inside of objects.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.messages.append(other.messages);
        self.todos = other.todos;
        merge_objects(&mut self.metadata, other.metadata);
        self.agent_id = other.agent_id.or(self.agent_id);
        self.pending_message = other.pending_message.or(self.pending_message);
        self.interrupt_data = other.interrupt_data.or(self.interrupt_data);
        self.extensions.extend(other.extensions);
        self.extra.extend(other.extra);
        self.envelope.extend(other.envelope);
        self
    }

    /// Clears everything except the agent's id and the extensions.
    pub fn reset(&mut self) {
        *self = Self {
            agent_id: self.agent_id.take(),
            extensions: std::mem::take(&mut self.extensions),
            stored_messages: std::mem::take(&mut self.stored_messages),
            ..Self::default()
        };
    }

    /// Replaces the newest result with this call id: a model may use one again. Returns whether there
    /// was one.
    pub fn replace_newest_tool_result(&mut self, tool_call_id: &str, result: &ToolResult) -> bool {
        for message in (0..self.messages.len()).rev() {
            let results = &self.messages[message].tool_results;
            let is_it = |result: &ToolResult| result.tool_call_id == tool_call_id;
            if let Some(index) = results.iter().rposition(is_it) {
                self.messages[message].tool_results[index] = result.clone();
                return true;
            }
        }
        false
    }

    /// Replaces every result with this call id, as the Elixir library does, also those of an earlier
    /// call. Returns whether there was one.
    ///
    /// Most callers want [`replace_newest_tool_result`](Self::replace_newest_tool_result).
    pub fn replace_tool_result(&mut self, tool_call_id: &str, result: &ToolResult) -> bool {
        self.replace_results(|existing| (existing.tool_call_id == tool_call_id).then(|| result.clone()))
    }

    /// The result of the newest call with this id, or an interrupt in its place.
    #[must_use]
    pub fn result_of(&self, tool_call_id: &str) -> Option<&ToolResult> {
        for message in self.messages.iter().rev() {
            let mut results = message.tool_results.iter().rev();
            let result = results.find(|result| result.tool_call_id == tool_call_id);
            let mut calls = message.tool_calls.iter();
            if result.is_some() || calls.any(|call| call.tool_call_id == tool_call_id) {
                return result;
            }
        }
        None
    }

    /// The newest call with this id.
    #[must_use]
    pub fn find_tool_call(&self, tool_call_id: &str) -> Option<&ToolCall> {
        let calls = self.messages.iter().rev();
        let mut calls = calls.flat_map(|message| message.tool_calls.iter().rev());
        calls.find(|call| call.tool_call_id == tool_call_id)
    }

    /// The newest call of each id that has no result, or an interrupt in its place.
    #[must_use]
    pub fn open_tool_calls(&self) -> Vec<ToolCall> {
        let mut open: Vec<&ToolCall> = Vec::new();
        for message in &self.messages {
            let results = message.tool_results.iter();
            for result in results.filter(|result| !result.is_interrupt) {
                open.retain(|call| call.tool_call_id != result.tool_call_id);
            }
            for call in &message.tool_calls {
                open.retain(|other| other.tool_call_id != call.tool_call_id);
                open.push(call);
            }
        }
        open.into_iter().cloned().collect()
    }

    /// The ids of the tool calls with an interrupt in place of a result, in order. The agent can't go on with the model
    /// before each of them has its result.
    #[must_use]
    pub fn undecided_tool_calls(&self) -> Vec<String> {
        let mut undecided: Vec<&str> = Vec::new();
        for message in &self.messages {
            for result in &message.tool_results {
                undecided.retain(|id| *id != result.tool_call_id);
                undecided.extend(result.is_interrupt.then_some(result.tool_call_id.as_str()));
            }
            for call in &message.tool_calls {
                // A model may use an id again.
                undecided.retain(|id| *id != call.tool_call_id);
            }
        }
        undecided.into_iter().map(str::to_owned).collect()
    }

    /// Replaces every interrupt with the call id of this result. Returns whether there was one.
    pub(super) fn resolve_interrupts(&mut self, result: &ToolResult) -> bool {
        self.replace_results(|existing| {
            let is_it = existing.is_interrupt && existing.tool_call_id == result.tool_call_id;
            is_it.then(|| result.clone())
        })
    }

    /// Turns every interrupt into an error that the model can read. Call it when the user sends a
    /// new message instead of deciding.
    pub fn cancel_pending_interrupts(&mut self) {
        let _ = self.replace_results(|result| result.is_interrupt.then(|| result.demoted(CANCELLED)));
        self.interrupt_data = None;
    }

    /// Turns every interrupt that the application cannot resume into an error that the model can
    /// read. Call it after loading. `restorable` decides by the interrupt data; several interrupts
    /// of one result are resumed only if all of them are restorable.
    pub fn clean_stale_interrupts(&mut self, restorable: impl Fn(&Value) -> bool) {
        let _ = self.replace_results(|result| match &result.interrupt_data {
            _ if !result.is_interrupt => None,
            Some(data) if !data.is_null() => (!can_restore(data, &restorable)).then(|| result.demoted(LOST)),
            _ if result.has_elixir_data() => Some(result.demoted(LOST)),
            _ => Some(result.demoted(INCOMPATIBLE)),
        });
    }

    /// As [`serializer::deserialize_state`], and turns every interrupt into an error.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if it is damaged, or has a version that this code does not know.
    pub fn from_serialized(agent_id: impl Into<String>, data: Value) -> Result<Self, ReadError> {
        let mut state = serializer::deserialize_state(agent_id, data)?;
        state.clean_stale_interrupts(|_| false);
        Ok(state)
    }

    /// Loads the state of a conversation, and what the next save has to [`Expect`].
    ///
    /// If none is saved, or the saved one is damaged, the result is `fresh`; the next save then sets
    /// the damaged one aside.
    ///
    /// # Errors
    ///
    /// The error of the persistence: the caller has no such conversation, a newer version wrote the
    /// state (which an older process must not replace), or the database failed.
    pub async fn load_or_new<P: AgentPersistence>(
        persistence: &P,
        scope: &P::Scope,
        context: &LoadContext,
        fresh: State,
    ) -> Result<(Self, Expect), P::Error> {
        let loaded = persistence.load_state(scope, context).await?;
        Ok(Self::loaded_or_new(loaded, context, fresh))
    }

    pub(crate) fn loaded_or_new(loaded: Loaded, context: &LoadContext, fresh: State) -> (Self, Expect) {
        let (mut state, expect) = match loaded {
            Loaded::Nothing => (fresh, Expect::NOTHING),
            Loaded::Saved { state, revision } => (*state, Expect::Revision(revision)),
            Loaded::Unreadable { error, revision } => {
                tracing::warn!(
                    agent_id = context.agent_id,
                    conversation_id = %context.conversation_id,
                    %error,
                    "the saved agent state is damaged; the agent starts with a new one"
                );
                (fresh, Expect::Unreadable(revision))
            }
        };
        state.agent_id = Some(context.agent_id.clone());
        (state, expect)
    }

    /// Replaces the tool results for which there is another one. Returns whether there was one.
    /// Only the messages that have them are changed.
    fn replace_results(&mut self, other: impl Fn(&ToolResult) -> Option<ToolResult>) -> bool {
        let mut replaced = false;
        for message in 0..self.messages.len() {
            for result in 0..self.messages[message].tool_results.len() {
                if let Some(other) = other(&self.messages[message].tool_results[result]) {
                    self.messages[message].tool_results[result] = other;
                    replaced = true;
                }
            }
        }
        replaced
    }
}

/// `{"type": "multiple_interrupts", "interrupts": [...]}` contains several.
fn can_restore(data: &Value, restorable: &impl Fn(&Value) -> bool) -> bool {
    let several = data.get("type").is_some_and(|kind| kind == "multiple_interrupts");
    match data.get("interrupts").and_then(Value::as_array) {
        Some(interrupts) if several => !interrupts.is_empty() && interrupts.iter().all(restorable),
        _ if several => false,
        _ => restorable(data),
    }
}

fn merge_objects(left: &mut Map<String, Value>, right: Map<String, Value>) {
    for (key, value) in right {
        match (left.get_mut(&key), value) {
            (Some(Value::Object(left)), Value::Object(right)) => merge_objects(left, right),
            (_, value) => drop(left.insert(key, value)),
        }
    }
}
