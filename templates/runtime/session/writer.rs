//! The calls of the storage that write something beside the agent state.

use serde_json::Map;

use super::super::persistence::{Failure, SessionPersistence};
use super::super::run::{BeginRun, RunSignal};
use super::super::turn::Delivery;
use super::SessionError;
use super::task::{Session, failure};
use super::writes::{PendingWrite, Written};

type WriteResult<T, P> = Result<T, SessionError<<P as super::AgentPersistence>::Error>>;

impl<P: SessionPersistence> Session<P> {
    /// Makes the calls of a write.
    pub async fn make(
        &self,
        write: &PendingWrite,
        delivery: Delivery,
    ) -> WriteResult<Written<P::DisplayMessage>, P> {
        let (storage, scope, context) = (&self.registry.persistence, &*self.scope, &self.context);
        Ok(match write {
            PendingWrite::Message { id, message, .. } => {
                let call = storage.save_message(scope, context, *id, message, delivery);
                Written::Items(self.in_time(call).await?)
            }
            PendingWrite::Draft { id, message } => {
                let call = storage.save_message(scope, context, *id, message, Delivery::Draft);
                Written::Items(self.in_time(call).await?)
            }
            PendingWrite::Settle(messages) => {
                let call = storage.settle_messages(scope, context, messages);
                Written::Items(self.in_time(call).await?)
            }
            PendingWrite::Tool { .. }
            | PendingWrite::Finish { .. }
            | PendingWrite::Claim { .. }
            | PendingWrite::Decide { .. }
            | PendingWrite::CancelUnstarted { .. }
            | PendingWrite::Seal { .. } => self.make_of_call(write).await?,
            PendingWrite::BeginRun(run_id) => {
                let options = &self.registry.options;
                let (holder, lease) = (&options.run_holder, options.run_lease);
                let call = storage.begin_run(scope, context, *run_id, holder, lease);
                Written::Run(self.in_time(call).await?)
            }
            PendingWrite::RenewRun(run_id) => {
                let call = storage.renew_run(scope, context, *run_id);
                Written::Signal(self.in_time(call).await?)
            }
            PendingWrite::WaitRun {
                run_id,
                begins,
                data,
            } => {
                if *begins {
                    let options = &self.registry.options;
                    let (holder, lease) = (&options.run_holder, options.run_lease);
                    let call = storage.begin_run(scope, context, *run_id, holder, lease);
                    if let BeginRun::Busy(_) = self.in_time(call).await? {
                        // An agent of another process goes on.
                        return Ok(Written::Signal(RunSignal::Lost));
                    }
                }
                let call = storage.wait_run(scope, context, *run_id, data);
                Written::Signal(self.in_time(call).await?)
            }
            PendingWrite::EndRun(run_id, status) => {
                let call = storage.end_run(scope, context, *run_id, *status);
                self.in_time(call).await?;
                Written::Nothing
            }
            PendingWrite::CancelRun(_) => {
                let call = storage.request_cancel(scope, context);
                Written::IsRunning(self.in_time(call).await?)
            }
            PendingWrite::Rewind(to) => Written::Rewound(self.rewind(*to).await?),
            PendingWrite::Title(title) => {
                let call = storage.set_title(scope, context, title);
                self.in_time(call).await?;
                Written::Nothing
            }
            PendingWrite::Interrupted(interrupted) => {
                let call = storage.set_interrupted(scope, context, *interrupted);
                self.in_time(call).await?;
                Written::Nothing
            }
        })
    }

    /// Makes the calls of a write about a tool call.
    async fn make_of_call(&self, write: &PendingWrite) -> WriteResult<Written<P::DisplayMessage>, P> {
        let (storage, scope, context) = (&self.registry.persistence, &*self.scope, &self.context);
        Ok(match write {
            PendingWrite::Tool {
                call_id,
                status,
                metadata,
            } => {
                let metadata = metadata.clone();
                let call = storage.change_tool_call(scope, context, call_id, *status, metadata);
                Written::Items(vec![self.in_time(call).await?])
            }
            PendingWrite::Finish {
                result,
                status,
                has_placeholder,
            } => {
                let call_id = &result.tool_call_id;
                let call = storage.change_tool_call(scope, context, call_id, *status, Map::new());
                let mut items: Vec<_> = if_allowed::<P, _>(self.in_time(call).await)?
                    .into_iter()
                    .collect();
                if *has_placeholder {
                    let call = storage.resolve_tool_result(scope, context, result);
                    items.extend(if_allowed::<P, _>(self.in_time(call).await)?);
                }
                Written::Items(items)
            }
            PendingWrite::Claim { call_id, claim } => {
                let call = storage.claim_tool_call(scope, context, call_id, *claim);
                Written::Claim(self.in_time(call).await?)
            }
            PendingWrite::Decide {
                call_id,
                decision,
                claim,
            } => {
                let call = storage.decide_tool_call(scope, context, call_id, decision, *claim);
                Written::Decided(self.in_time(call).await?)
            }
            PendingWrite::CancelUnstarted {
                call_id,
                only_undecided,
            } => {
                let only = *only_undecided;
                let call = storage.cancel_unstarted_tool_call(scope, context, call_id, only);
                Written::Cancelled(self.in_time(call).await?)
            }
            PendingWrite::Seal { call_id, run_id } => {
                // A process that was slow may have lost its run, and the call runs in another one.
                let Some(run_id) = *run_id else {
                    return Ok(Written::Sealed(None));
                };
                let renewed = storage.renew_run(scope, context, run_id);
                if self.in_time(renewed).await? == RunSignal::Lost {
                    return Ok(Written::Sealed(None));
                }
                let call = storage.seal_tool_call(scope, context, call_id);
                Written::Sealed(self.in_time(call).await?)
            }
            _ => Written::Nothing,
        })
    }

    /// Whether the conversation of a write that failed is gone.
    pub async fn is_deleted(&self, write: &PendingWrite, error: &SessionError<P::Error>) -> bool {
        if !is_missing::<P>(error) {
            return false;
        }
        if write.call_id().is_none() && !matches!(write, PendingWrite::Rewind(_)) {
            return true;
        }
        // The call or the message may be missing, and not the conversation.
        let run = self
            .registry
            .persistence
            .get_run(&self.scope, &self.context);
        self.in_time(run)
            .await
            .is_err_and(|error| is_missing::<P>(&error))
    }
}

pub(super) fn is_missing<P: SessionPersistence>(error: &SessionError<P::Error>) -> bool {
    matches!(error, SessionError::Storage(error) if P::is_missing(error))
}

/// Nothing, if the state of a call does not allow a change.
fn if_allowed<P: SessionPersistence, T>(result: WriteResult<T, P>) -> WriteResult<Option<T>, P> {
    match result {
        Err(error) if failure::<P>(&error) == Failure::Permanent => Ok(None),
        result => result.map(Some),
    }
}
