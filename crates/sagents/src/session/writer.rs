//! The calls of the storage that write something beside the agent state.

use serde_json::Map;

use super::storage::{Failure, failure, is_missing};
use super::task::Session;
use super::writes::{PendingWrite, Written};
use super::{Result, SessionError};
use crate::{BeginRun, Delivery, RunSignal, RunUpdate};

impl Session {
    /// Makes the calls of a write.
    pub async fn make(&self, write: &PendingWrite, delivery: Delivery) -> Result<Written> {
        let (storage, owner, options) = (&self.registry.storage, &self.owner, &self.registry.options);
        let id = self.context.conversation_id;
        if !storage.has_rows() {
            return self.make_without_rows(write).await;
        }
        Ok(match write {
            PendingWrite::Message { id: message_id, message, .. } => {
                Written::Items(storage.save_message(owner, id, *message_id, message, delivery).await?)
            }
            PendingWrite::Draft { id: message_id, message } => {
                Written::Items(storage.save_message(owner, id, *message_id, message, Delivery::Draft).await?)
            }
            PendingWrite::Settle(messages) => Written::Items(storage.settle_messages(owner, id, messages).await?),
            PendingWrite::Tool { .. }
            | PendingWrite::Finish { .. }
            | PendingWrite::Claim { .. }
            | PendingWrite::Decide { .. }
            | PendingWrite::CancelUnstarted { .. }
            | PendingWrite::Seal { .. } => self.make_of_tool_call(write).await?,
            PendingWrite::BeginRun(run_id) => Written::Run(storage.begin_run(owner, id, *run_id, options).await?),
            PendingWrite::RenewRun(run_id) => {
                Written::Signal(storage.update_run(owner, id, *run_id, RunUpdate::Renew).await?)
            }
            PendingWrite::WaitRun { run_id, begins, data } => {
                if *begins && matches!(storage.begin_run(owner, id, *run_id, options).await?, BeginRun::Busy(_)) {
                    // An agent of another process goes on.
                    return Ok(Written::Signal(RunSignal::Lost));
                }
                Written::Signal(storage.update_run(owner, id, *run_id, RunUpdate::Wait(data.clone())).await?)
            }
            PendingWrite::EndRun(run_id, status) => {
                let _ = storage.update_run(owner, id, *run_id, RunUpdate::End(*status)).await?;
                Written::Nothing
            }
            PendingWrite::RequestCancel(_) => Written::IsRunning(storage.request_cancel(owner, id).await?),
            PendingWrite::Rewind(to) => Written::Rewound(self.rewind(*to).await?),
            PendingWrite::Title(title) => {
                storage.set_title(owner, id, title).await?;
                Written::Nothing
            }
            PendingWrite::Interrupted(interrupted) => {
                storage.set_interrupted(owner, &self.context, *interrupted).await?;
                Written::Nothing
            }
        })
    }

    /// A host's own persistence has the flag. Title and data of a wait are in the agent state.
    async fn make_without_rows(&self, write: &PendingWrite) -> Result<Written> {
        match write {
            PendingWrite::Interrupted(interrupted) => {
                self.registry.storage.set_interrupted(&self.owner, &self.context, *interrupted).await?;
                Ok(Written::Nothing)
            }
            PendingWrite::WaitRun { .. } => Ok(Written::Signal(RunSignal::Go)),
            _ => Ok(Written::Nothing),
        }
    }

    /// Makes the calls of a write about a tool call.
    async fn make_of_tool_call(&self, write: &PendingWrite) -> Result<Written> {
        let (storage, owner, id) = (&self.registry.storage, &self.owner, self.context.conversation_id);
        Ok(match write {
            PendingWrite::Tool { tool_call_id, status, metadata } => {
                let metadata = metadata.clone();
                Written::Items(vec![storage.change_tool_call(owner, id, tool_call_id, *status, metadata).await?])
            }
            PendingWrite::Finish { result, status, has_placeholder } => {
                let ended = storage.change_tool_call(owner, id, &result.tool_call_id, *status, Map::new()).await;
                let mut items: Vec<_> = if_allowed(ended)?.into_iter().collect();
                if *has_placeholder {
                    items.extend(if_allowed(storage.resolve_tool_result(owner, id, result).await)?);
                }
                Written::Items(items)
            }
            PendingWrite::Claim { tool_call_id, claim } => {
                Written::Claim(storage.claim_tool_call(owner, id, tool_call_id, *claim).await?)
            }
            PendingWrite::Decide { tool_call_id, decision, claim } => {
                Written::Decided(storage.decide_tool_call(owner, id, tool_call_id, decision, *claim).await?)
            }
            PendingWrite::CancelUnstarted { tool_call_id, only_undecided } => {
                Written::Cancelled(storage.cancel_unstarted_tool_call(owner, id, tool_call_id, *only_undecided).await?)
            }
            PendingWrite::Seal { tool_call_id, run_id, reopens } => {
                // A process that was slow may have lost its run, and the call may be running in another one.
                if storage.update_run(owner, id, *run_id, RunUpdate::Renew).await? == RunSignal::Lost {
                    return Ok(Written::Sealed(None));
                }
                if *reopens {
                    storage.reopen_tool_call(owner, id, tool_call_id).await?;
                }
                Written::Sealed(storage.seal_tool_call(owner, id, tool_call_id).await?)
            }
            _ => Written::Nothing,
        })
    }

    /// Whether the conversation of a write that failed is gone.
    pub async fn is_deleted(&self, write: &PendingWrite, error: &SessionError) -> bool {
        if !is_missing(error) {
            return false;
        }
        if write.tool_call_id().is_none() && !matches!(write, PendingWrite::Rewind(_)) {
            return true;
        }
        // The call or the message may be missing, and not the conversation.
        let run = self.registry.storage.get_run(&self.owner, self.context.conversation_id).await;
        run.is_err_and(|error| is_missing(&error))
    }
}

/// Nothing, if the status of a call doesn't allow a change.
fn if_allowed<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if failure(&error) == Failure::Permanent => Ok(None),
        result => result.map(Some),
    }
}
