//! Drafts: messages that are stored at intervals while a model writes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use super::writes::PendingWrite;
use crate::Message;

/// The drafts, by the ids of their messages.
#[derive(Default)]
pub(super) struct Drafts(BTreeMap<Uuid, Draft>);

struct Draft {
    message: Arc<Message>,
    /// When to store it, unless the newest text is stored.
    due: Option<Instant>,
    /// Whether it has its place among the display messages.
    is_placed: bool,
}

impl Drafts {
    pub fn put(&mut self, id: Uuid, message: Arc<Message>, due: Instant) {
        let draft = self.0.entry(id).or_insert(Draft { message: Arc::clone(&message), due: None, is_placed: false });
        draft.message = message;
        let _ = draft.due.get_or_insert(due);
    }

    /// When to store the next one.
    pub fn next_due(&self) -> Option<Instant> {
        self.dues().map(|(_, due)| due).min()
    }

    /// Takes the one to store now. Its next text is stored an interval later.
    pub fn take_due(&mut self, now: Instant) -> Option<PendingWrite> {
        let (id, _) = self.dues().find(|(_, due)| *due <= now)?;
        let draft = self.0.get_mut(&id)?;
        draft.due = None;
        let message = Arc::clone(&draft.message);
        Some(PendingWrite::Draft { id, message })
    }

    /// When to store each. One without a place waits until those before it have theirs.
    fn dues(&self) -> impl Iterator<Item = (Uuid, Instant)> + '_ {
        let first = self.0.iter().find(|(_, draft)| !draft.is_placed);
        let first = first.map(|(id, _)| id);
        let drafts = self.0.iter();
        let drafts = drafts.filter(move |(id, draft)| draft.is_placed || Some(*id) == first);
        drafts.filter_map(|(id, draft)| Some((*id, draft.due?)))
    }

    /// Takes those that aren't stored yet, because they come before a message that's added now.
    pub fn place(&mut self) -> Vec<PendingWrite> {
        let drafts = self.0.iter_mut().filter(|(_, draft)| !draft.is_placed);
        let writes = drafts.map(|(id, draft)| {
            draft.is_placed = true;
            draft.due = None;
            let (id, message) = (*id, Arc::clone(&draft.message));
            PendingWrite::Draft { id, message }
        });
        writes.collect()
    }

    /// One is stored.
    pub fn placed(&mut self, id: Uuid) {
        if let Some(draft) = self.0.get_mut(&id) {
            draft.is_placed = true;
        }
    }

    /// One couldn't be stored, and is tried again later.
    pub fn failed(&mut self, id: Uuid, retry_at: Instant) {
        if let Some(draft) = self.0.get_mut(&id) {
            let _ = draft.due.get_or_insert(retry_at);
        }
    }

    /// The message is whole.
    pub fn remove(&mut self, id: Uuid) {
        drop(self.0.remove(&id));
    }

    /// None of them will be finished. Returns what's left to store of those that are stored, or were about to be.
    pub fn close(&mut self) -> (Vec<PendingWrite>, Vec<Uuid>) {
        let drafts = std::mem::take(&mut self.0);
        let ids = drafts.keys().copied().collect();
        let unsaved = drafts.into_iter().filter(|(_, draft)| draft.due.is_some());
        let writes = unsaved.map(|(id, draft)| PendingWrite::Draft { id, message: draft.message });
        (writes.collect(), ids)
    }
}
