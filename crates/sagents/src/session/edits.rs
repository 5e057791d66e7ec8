//! Changes of the agent state that can be repeated on a state that another process saved.

use std::sync::Arc;

use uuid::Uuid;

use crate::{Message, State, ToolResult};

/// The key of the title in the metadata of the agent state.
const TITLE: &str = "conversation_title";

/// A change that a reload doesn't lose.
pub(super) enum Edit {
    /// A message is appended.
    Push {
        id: Uuid,
        message: Arc<Message>,
    },
    /// The result of a tool replaces its placeholder, or is appended as a message with this id.
    Result {
        id: Uuid,
        result: Box<ToolResult>,
    },
    /// These results replace their placeholders.
    Resolve(Vec<ToolResult>),
    Title(String),
}

impl Edit {
    /// Makes the change, unless the state has it. Returns whether the state has changed.
    fn apply(&self, state: &mut State) -> bool {
        match self {
            Self::Push { id, message } => push(state, *id, (**message).clone()),
            Self::Result { id, result } => match state.result_of(&result.tool_call_id) {
                Some(existing) if existing.is_interrupt => {
                    state.replace_newest_tool_result(&result.tool_call_id, result)
                }
                Some(_) => false,
                None => push(state, *id, Message::tool_results([(**result).clone()])),
            },
            Self::Resolve(results) => results.iter().fold(false, |any, result| state.resolve_interrupts(result) | any),
            Self::Title(title) => {
                state.put_metadata(TITLE, title.clone());
                true
            }
        }
    }

    /// The id of its message, if it has a result whose call isn't in the state.
    fn orphan(&self, state: &State) -> Option<Uuid> {
        let (id, results) = match self {
            Self::Push { id, message } => (id, message.tool_results.as_slice()),
            Self::Result { id, result } => (id, std::slice::from_ref(&**result)),
            Self::Resolve(_) | Self::Title(_) => return None,
        };
        let has_call = |result: &ToolResult| state.find_tool_call(&result.tool_call_id).is_some();
        (!results.iter().all(has_call)).then_some(*id)
    }

    fn message_id(&self) -> Option<Uuid> {
        match self {
            Self::Push { id, .. } | Self::Result { id, .. } => Some(*id),
            Self::Resolve(_) | Self::Title(_) => None,
        }
    }
}

fn push(state: &mut State, id: Uuid, message: Message) -> bool {
    let is_new = state.messages.position(id).is_none();
    if is_new {
        state.messages.push_with_id(id, message);
    }
    is_new
}

/// The edits that aren't saved, each with the number of its change.
#[derive(Default)]
pub(super) struct Edits(Vec<Unsaved>);

struct Unsaved {
    change: u64,
    edit: Edit,
    /// Whether its display messages are stored, marked as unsaved.
    is_shown: bool,
}

impl Edits {
    /// Makes a change, and remembers it unless the state had it.
    pub fn apply(&mut self, edit: Edit, change: u64, state: &mut State) -> bool {
        let changed = edit.apply(state);
        if changed {
            self.0.push(Unsaved { change, edit, is_shown: false });
        }
        changed
    }

    /// Whether the message is in the agent state and not saved.
    pub fn contains(&self, id: Uuid) -> bool {
        self.0.iter().any(|unsaved| unsaved.edit.message_id() == Some(id))
    }

    pub fn shown(&mut self, id: Uuid) {
        for unsaved in &mut self.0 {
            unsaved.is_shown |= unsaved.edit.message_id() == Some(id);
        }
    }

    /// Forgets the changes up to this one, which are saved, and returns the messages among them that are displayed as
    /// unsaved.
    pub fn saved(&mut self, up_to: u64) -> Vec<Uuid> {
        let (saved, rest) =
            std::mem::take(&mut self.0).into_iter().partition::<Vec<_>, _>(|unsaved| unsaved.change <= up_to);
        self.0 = rest;
        shown_ids(&saved)
    }

    /// Repeats all changes on a loaded state; `next` returns their new numbers. Returns the messages that are displayed
    /// as unsaved although the loaded state has them, and those with results whose calls it doesn't have.
    pub fn apply_again(&mut self, state: &mut State, mut next: impl FnMut() -> u64) -> (Vec<Uuid>, Vec<Uuid>) {
        let (mut known, mut orphans) = (Vec::new(), Vec::new());
        for mut unsaved in std::mem::take(&mut self.0) {
            if let Some(id) = unsaved.edit.orphan(state) {
                orphans.push(id);
            } else if unsaved.edit.apply(state) {
                unsaved.change = next();
                self.0.push(unsaved);
            } else {
                known.push(unsaved);
            }
        }
        (shown_ids(&known), orphans)
    }

    /// Takes the displayed messages, to display them again.
    pub fn hide(&mut self) -> Vec<(Uuid, Arc<Message>)> {
        let shown = self.0.iter_mut().filter(|unsaved| unsaved.is_shown);
        let messages = shown.filter_map(|unsaved| {
            unsaved.is_shown = false;
            match &unsaved.edit {
                Edit::Push { id, message } => Some((*id, Arc::clone(message))),
                Edit::Result { id, result } => Some((*id, Arc::new(Message::tool_results([(**result).clone()])))),
                Edit::Resolve(_) | Edit::Title(_) => None,
            }
        });
        messages.collect()
    }

    /// Forgets the messages that are displayed.
    pub fn forget_shown(&mut self) {
        self.0.retain(|unsaved| !unsaved.is_shown);
    }

    /// Takes back a message that was appended.
    pub fn take_back(&mut self, id: Uuid, state: &mut State) {
        self.0.retain(|unsaved| unsaved.edit.message_id() != Some(id));
        if let Some(position) = state.messages.position(id) {
            drop(state.messages.remove(position));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn shown_ids(edits: &[Unsaved]) -> Vec<Uuid> {
    let shown = edits.iter().filter(|unsaved| unsaved.is_shown);
    shown.filter_map(|unsaved| unsaved.edit.message_id()).collect()
}
