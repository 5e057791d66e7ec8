//! The parts of a turn: messages, tool calls, drafts and the run.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use super::edits::Edit;
use super::state::SessionState;
use super::writes::{PendingWrite, Reply, Written, reply};
use super::{Result, RunChange, SessionError, SessionEvent};
use crate::{BeginRun, Delivery, Lifecycle, Message, RunSignal, RunStatus, State, ToolResult, ToolStatus};

impl SessionState {
    /// Appends a message, and displays it at once.
    pub fn add_message(&mut self, id: Uuid, message: Message) {
        let message = Arc::new(message);
        self.push(id, &message);
        self.display(id, message);
    }

    /// Appends a message, saves it, then displays it, and replies.
    pub fn send_message(&mut self, id: Uuid, message: Message, reply: Reply<Written>) {
        let message = Arc::new(message);
        self.push(id, &message);
        self.place_drafts(id);
        self.skip_backoff();
        let write = PendingWrite::Message { id, message, is_sent: true };
        self.writes.push(write, Some(reply));
        self.refuse_sent();
    }

    fn push(&mut self, id: Uuid, message: &Arc<Message>) {
        let message = Arc::clone(message);
        let _ = self.edit(Edit::Push { id, message });
    }

    /// Drafts before this message are displayed before it. The draft with its id becomes whole.
    fn place_drafts(&mut self, id: Uuid) {
        self.drafts.remove(id);
        let drafts = self.drafts.place();
        self.writes.extend(drafts);
    }

    pub fn display(&mut self, id: Uuid, message: Arc<Message>) {
        self.place_drafts(id);
        self.write(PendingWrite::Message { id, message, is_sent: false });
    }

    /// What a message is displayed as.
    pub fn delivery(&self, id: Uuid) -> Delivery {
        if self.edits.contains(id) { Delivery::Unsaved } else { Delivery::Stored }
    }

    pub fn settle(&mut self, messages: Vec<(Uuid, Delivery)>) {
        if !messages.is_empty() {
            self.write(PendingWrite::Settle(messages));
        }
    }

    pub fn settle_as(&mut self, ids: Vec<Uuid>, delivery: Delivery) {
        self.settle(ids.into_iter().map(|id| (id, delivery)).collect());
    }

    /// Keeps a draft to be stored after an interval.
    pub fn save_draft(&mut self, id: Uuid, message: Arc<Message>) {
        let interval = self.options.draft_interval;
        if let Some(due) = interval.and_then(|interval| self.used_at.checked_add(interval)) {
            self.drafts.put(id, message, due);
        }
    }

    /// The draft to store now, after everything before it.
    pub fn due_draft(&mut self, now: Instant) -> Option<PendingWrite> {
        if self.writes.is_empty() { self.drafts.take_due(now) } else { None }
    }

    /// Drafts won't be finished any more.
    pub fn close_drafts(&mut self) {
        let (writes, ids) = self.drafts.close();
        self.writes.extend(writes);
        self.settle_as(ids, Delivery::Interrupted);
    }

    pub fn change_tool_call(&mut self, tool_call_id: &str, status: ToolStatus, metadata: Map<String, Value>) {
        self.write(PendingWrite::Tool { tool_call_id: tool_call_id.to_owned(), status, metadata });
    }

    /// Adds a placeholder for the result of a call, unless there's one, and changes the status of the call.
    pub fn interrupt_tool_call(&mut self, tool_call_id: &str, data: Value) {
        const WAITS: &str = "Waiting for a decision.";
        let existing = self.agent_state.result_of(tool_call_id);
        if !existing.is_some_and(|result| result.is_interrupt) {
            let name = self.agent_state.find_tool_call(tool_call_id);
            let name = name.map_or("", |call| &call.name);
            let result = ToolResult::interrupt(tool_call_id, name, WAITS, data.clone());
            self.add_message(Uuid::now_v7(), Message::tool_results([result]));
        }
        let metadata = Map::from_iter([("interrupt_data".to_owned(), data)]);
        self.change_tool_call(tool_call_id, ToolStatus::Interrupted, metadata);
    }

    /// Adds the result of a call, in place of its placeholder or as a message.
    pub fn add_tool_result(&mut self, result: ToolResult) {
        let status = if result.is_error { ToolStatus::Failed } else { ToolStatus::Completed };
        self.finish_tool_call(Uuid::now_v7(), result, status);
    }

    /// As [`add_tool_result`](Self::add_tool_result), with the id of its message and the status of the call.
    pub fn finish_tool_call(&mut self, id: Uuid, result: ToolResult, status: ToolStatus) {
        let existing = self.agent_state.result_of(&result.tool_call_id);
        let has_placeholder = existing.is_some_and(|existing| existing.is_interrupt);
        let edit = Edit::Result { id, result: Box::new(result.clone()) };
        if self.edit(edit) && !has_placeholder {
            let message = Message::tool_results([result.clone()]);
            self.display(id, Arc::new(message));
        }
        self.write(PendingWrite::Finish { result, status, has_placeholder });
    }

    /// Replaces the interrupts of cancelled calls, in the agent state and in the display messages.
    pub fn resolve_interrupts(&mut self, resolved: Vec<ToolResult>) {
        for result in &resolved {
            self.write(PendingWrite::Finish {
                result: result.clone(),
                status: ToolStatus::Cancelled,
                has_placeholder: true,
            });
        }
        let _ = self.edit(Edit::Resolve(resolved));
    }

    /// Ends the run, unless tool calls still have an interrupt in place of a result.
    pub fn complete_run(&mut self) -> Result<()> {
        let tool_call_ids = self.agent_state.undecided_tool_calls();
        if !tool_call_ids.is_empty() {
            return Err(SessionError::Undecided { tool_call_ids });
        }
        self.end_run(RunStatus::Finished, Lifecycle::Completion);
        Ok(())
    }

    /// Ends the run, and with it everything that isn't finished.
    pub fn end_run(&mut self, status: RunStatus, lifecycle: Lifecycle) {
        self.set_interrupt(None);
        self.close_drafts();
        let end = self.runs.end(status);
        self.writes.extend(end);
        if self.options.auto_save.on_idle {
            self.request_save(lifecycle);
        }
    }

    /// The agent waits for a person.
    pub fn wait_run(&mut self, data: Value) {
        // A run whose process has left it waits for null.
        let data = if data.is_null() { json!({}) } else { data };
        let wait = self.runs.wait(data.clone());
        self.set_interrupt(Some(data));
        self.write(wait);
        if self.options.auto_save.on_interrupt {
            self.request_save(Lifecycle::Interrupt);
        }
    }

    /// The agent continues.
    pub fn continue_run(&mut self) {
        self.set_interrupt(None);
        let resume = self.runs.resume(self.next_renewal(self.used_at));
        self.writes.extend(resume);
    }

    /// The guard of a run is gone. If it isn't known whether the run began, it ends in any case.
    pub fn release_run(&mut self, run_id: Uuid, is_known: bool) {
        // Without a task nothing is written any more.
        if self.has_ended() || self.deleted {
            return;
        }
        if self.runs.release(run_id) || !is_known {
            self.write(PendingWrite::EndRun(run_id, RunStatus::Failed));
        }
    }

    pub fn next_renewal(&self, now: Instant) -> Instant {
        now + self.options.renew_interval()
    }

    /// Records the result of a write, and returns what subscribers have to know. The caller of the write gets the
    /// result with [`written`](Self::written).
    pub fn apply(
        &mut self,
        write: &PendingWrite,
        written: &mut Written,
        delivery: Delivery,
        now: Instant,
    ) -> Option<SessionEvent> {
        let run = |run_id: &Uuid, change| {
            let run_id = *run_id;
            Some(SessionEvent::Run { run_id, change })
        };
        match (write, written) {
            (PendingWrite::Message { id, .. }, Written::Items(items)) => {
                if delivery == Delivery::Unsaved {
                    self.edits.shown(*id);
                }
                Some(SessionEvent::Displayed { message_id: *id, items: items.clone() })
            }
            (PendingWrite::Draft { id, .. }, _) => {
                self.drafts.placed(*id);
                None
            }
            (PendingWrite::Settle(_), Written::Items(items)) if !items.is_empty() => {
                let items = items.clone();
                Some(SessionEvent::Changed { items })
            }
            (PendingWrite::BeginRun(id), Written::Run(BeginRun::Started(_))) => {
                let renew_at = self.next_renewal(now);
                self.runs.started(*id, renew_at);
                run(id, RunChange::Started)
            }
            (PendingWrite::BeginRun(id), Written::Run(BeginRun::Busy(_))) => {
                let lost = self.runs.signal(*id, RunSignal::Lost)?;
                run(id, lost)
            }
            (PendingWrite::RenewRun(id), Written::Signal(signal)) => {
                let change = self.runs.signal(*id, *signal)?;
                run(id, change)
            }
            (PendingWrite::WaitRun { run_id, .. }, Written::Signal(signal)) => {
                let change = self.runs.signal(*run_id, *signal);
                let otherwise = match signal {
                    RunSignal::Lost => RunChange::Lost,
                    RunSignal::Go | RunSignal::CancelRequested => RunChange::Waiting,
                };
                run(run_id, change.unwrap_or(otherwise))
            }
            (PendingWrite::EndRun(id, status), _) => {
                let _ = self.runs.remove(*id);
                run(id, RunChange::from(*status))
            }
            (PendingWrite::RequestCancel(Some(id)), Written::IsRunning(true)) => run(id, RunChange::CancelRequested),
            (PendingWrite::Rewind(_), Written::Rewound(rewound)) => {
                self.rewound(rewound.loaded.take(), now);
                let cut = rewound.cut;
                Some(SessionEvent::Rewound { cut })
            }
            (PendingWrite::Title(title), _) => {
                let title = title.clone();
                Some(SessionEvent::Title { title })
            }
            (write, written) => {
                let tool_call_id = write.tool_call_id()?.to_owned();
                let items = written.call_items();
                (!items.is_empty()).then_some(SessionEvent::ToolCall { tool_call_id, items })
            }
        }
    }

    /// The write is done. Its caller gets the result, and callers of `save` who waited for it get a reply.
    pub fn written(&mut self, write: &PendingWrite, written: Written) {
        if self.writes.is_first(write) {
            reply(self.writes.succeeded(), Ok(written));
        }
        self.last_error = None;
        self.reply_to_saves();
    }
}

/// The results with which a change of an agent state would replace interrupts.
pub(super) fn resolved_by(state: &State, change: impl FnOnce(&mut State)) -> Vec<ToolResult> {
    let mut changed = state.clone();
    change(&mut changed);
    let pairs = state.messages.iter().zip(&changed.messages);
    let results = pairs.flat_map(|(old, new)| old.tool_results.iter().zip(&new.tool_results));
    let resolved = results.filter(|(old, new)| old.is_interrupt && !new.is_interrupt);
    resolved.map(|(_, result)| result.clone()).collect()
}
