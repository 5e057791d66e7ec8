//! What an agent knows, and what can be done with it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::message::{Message, ToolResult};
use super::persistence::{AgentPersistence, Expect, LoadContext, Loaded};
use super::runtime::Runtime;
use super::serializer::{self, ReadError};
use super::todo::{Todo, TodoId, TodoStatus};

/// What an agent knows: the conversation with its model, its todos, and what its middleware keeps.
///
/// Stored are the messages, the todos, the metadata and a pending message. The agent's id,
/// `interrupt_data` and `runtime` belong to the process.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// The running agent. It is given by whoever loads the state, and never stored.
    pub agent_id: Option<String>,
    /// The conversation with the model, in order.
    pub messages: Vec<Message>,
    /// What the agent has set out to do.
    pub todos: Vec<Todo>,
    /// What middleware keeps, each under its own key.
    pub metadata: Map<String, Value>,
    /// A user's message that the agent has not taken up yet.
    pub pending_message: Option<Message>,
    /// What the agent waits for. Never stored.
    pub interrupt_data: Option<Value>,
    /// Values that live with the process. Never stored.
    pub runtime: Runtime,
    /// What another version wrote beside the messages, kept as it is.
    pub extra: Map<String, Value>,
    /// What another version wrote around the state, kept as it is.
    pub envelope: Map<String, Value>,
}

/// States are equal if they are stored alike.
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

/// What a demoted result tells the model.
const CANCELLED: &str = "Tool execution was interrupted and the user did not respond. \
     They sent a new message instead — proceed with their new request.";
const INCOMPATIBLE: &str = "Tool execution was interrupted and could not be resumed \
     (saved data was incompatible with current code).";
const LOST: &str = "Tool execution was interrupted and could not be resumed (agent was restarted). \
     The sub-agent's work was lost.";

impl State {
    /// An agent that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message at the end.
    pub fn add_message(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Adds messages at the end.
    pub fn add_messages(&mut self, messages: impl IntoIterator<Item = Message>) {
        self.messages.extend(messages);
    }

    /// Replaces all messages.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// Replaces the todo with the same id where it is, or adds it at the end.
    pub fn put_todo(&mut self, todo: Todo) {
        match self.todos.iter_mut().find(|other| other.id == todo.id) {
            Some(place) => *place = todo,
            None => self.todos.push(todo),
        }
    }

    /// The todo with an id.
    #[must_use]
    pub fn get_todo(&self, id: &TodoId) -> Option<&Todo> {
        self.todos.iter().find(|todo| todo.id == *id)
    }

    /// Takes the todo with an id out.
    pub fn delete_todo(&mut self, id: &TodoId) {
        self.todos.retain(|todo| todo.id != *id);
    }

    /// The todos that have come so far.
    pub fn todos_by_status<'a>(&'a self, status: &'a TodoStatus) -> impl Iterator<Item = &'a Todo> {
        self.todos.iter().filter(move |todo| todo.status == *status)
    }

    /// Replaces all todos.
    pub fn set_todos(&mut self, todos: Vec<Todo>) {
        self.todos = todos;
    }

    /// Keeps a value under a key.
    pub fn put_metadata(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.metadata.insert(key.into(), value.into());
    }

    /// The value under a key.
    #[must_use]
    pub fn get_metadata(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// Keeps a value of the middleware's own under its key.
    ///
    /// # Errors
    ///
    /// If the value cannot be written as JSON, for example because a map has keys that are no
    /// texts.
    pub fn put_typed<T: Serialize>(
        &mut self,
        key: impl Into<String>,
        value: &T,
    ) -> serde_json::Result<()> {
        self.metadata
            .insert(key.into(), serde_json::to_value(value)?);
        Ok(())
    }

    /// The value that the middleware kept, or its default where it has kept none yet: middleware
    /// that is new works on conversations that are old.
    ///
    /// # Errors
    ///
    /// If there is a value that is none of this type.
    pub fn get_typed<T: DeserializeOwned + Default>(&self, key: &str) -> serde_json::Result<T> {
        match self.metadata.get(key) {
            None | Some(Value::Null) => Ok(T::default()),
            Some(value) => T::deserialize(value),
        }
    }

    /// Adds what another state knows: its messages follow, its todos replace these, its metadata is
    /// merged into this, object by object.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.messages.extend(other.messages);
        self.todos = other.todos;
        merge_objects(&mut self.metadata, other.metadata);
        self.agent_id = other.agent_id.or(self.agent_id);
        self.pending_message = other.pending_message.or(self.pending_message);
        self.interrupt_data = other.interrupt_data.or(self.interrupt_data);
        self.runtime.extend(other.runtime);
        self.extra.extend(other.extra);
        self.envelope.extend(other.envelope);
        self
    }

    /// Forgets everything but the agent's id and the process's own values.
    pub fn reset(&mut self) {
        *self = Self {
            agent_id: self.agent_id.take(),
            runtime: std::mem::take(&mut self.runtime),
            ..Self::default()
        };
    }

    /// Puts a result in the place of the one with the same call id, wherever that is. Returns
    /// whether there was one.
    pub fn replace_tool_result(&mut self, tool_call_id: &str, result: &ToolResult) -> bool {
        let mut replaced = false;
        for place in self
            .results_mut()
            .filter(|place| place.tool_call_id == tool_call_id)
        {
            *place = result.clone();
            replaced = true;
        }
        replaced
    }

    /// Tells the model that nobody answered: every interrupt becomes a failed result. For a user
    /// who sends a new message instead of deciding.
    pub fn cancel_pending_interrupts(&mut self) {
        for result in self.results_mut().filter(|result| result.is_interrupt) {
            result.demote(CANCELLED);
        }
        self.interrupt_data = None;
    }

    /// After loading: every interrupt that the application cannot take up again becomes a failed
    /// result. `restorable` says which ones it can; of several at once it is all or none.
    pub fn clean_stale_interrupts(&mut self, restorable: impl Fn(&Value) -> bool) {
        for result in self.results_mut().filter(|result| result.is_interrupt) {
            match &result.interrupt_data {
                Some(data) if !data.is_null() => {
                    if !can_restore(data, &restorable) {
                        result.demote(LOST);
                    }
                }
                _ if result.has_foreign_data() => result.demote(LOST),
                _ => result.demote(INCOMPATIBLE),
            }
        }
    }

    /// Reads the `state` part of what was stored, or all of it, and demotes every interrupt.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if it is damaged, or of a version that this code does not know.
    pub fn from_serialized(agent_id: impl Into<String>, data: Value) -> Result<Self, ReadError> {
        let mut state = serializer::deserialize_state(agent_id, data)?;
        state.clean_stale_interrupts(|_| false);
        Ok(state)
    }

    /// Loads the state of a conversation. Where none is saved, or what is saved is damaged, the
    /// agent starts with `fresh`; damaged bytes are kept aside by the save that follows.
    ///
    /// The answer carries what that save has to [expect](Expect).
    ///
    /// # Errors
    ///
    /// What the persistence answers: that the conversation is not the caller's, that the state was
    /// written by a newer version (an old process must not start over what a new one wrote), or
    /// that the database failed.
    pub async fn load_or_new<P: AgentPersistence>(
        persistence: &P,
        scope: &P::Scope,
        context: &LoadContext,
        fresh: State,
    ) -> Result<(Self, Expect), P::Error> {
        let (mut state, expect) = match persistence.load_state(scope, context).await? {
            Loaded::Nothing => (fresh, Expect::NOTHING),
            Loaded::Saved { state, revision } => (*state, Expect::Revision(revision)),
            Loaded::Unreadable { error, revision } => {
                tracing::warn!(
                    agent_id = context.agent_id,
                    conversation_id = %context.conversation_id,
                    %error,
                    "the saved state cannot be read; starting afresh and keeping it aside"
                );
                (fresh, Expect::Unreadable(revision))
            }
        };
        state.agent_id = Some(context.agent_id.clone());
        Ok((state, expect))
    }

    fn results_mut(&mut self) -> impl Iterator<Item = &mut ToolResult> {
        self.messages
            .iter_mut()
            .flat_map(|message| &mut message.tool_results)
    }
}

/// `{"type": "multiple_interrupts", "interrupts": [...]}` stands for several.
fn can_restore(data: &Value, restorable: &impl Fn(&Value) -> bool) -> bool {
    let several = data
        .get("type")
        .is_some_and(|kind| kind == "multiple_interrupts");
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
            (_, value) => {
                left.insert(key, value);
            }
        }
    }
}
