//! Tool calls and runs, as calls on a session.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::super::message::{ToolCall, ToolResult};
use super::super::persistence::SessionPersistence;
use super::super::run::BeginRun;
use super::super::state::State;
use super::super::turn::{Claim, Decided, Decision, ToolStatus};
use super::guard::RunGuard;
use super::handle::{AgentSession, Result};
use super::state::SessionState;
use super::turn::resolved_by;
use super::writes::{PendingWrite, Written};

/// The status of a tool call is stored after the message that has the call. A change that [the
/// status does not allow](ToolStatus::may_become) is reported to subscribers.
impl<P: SessionPersistence> AgentSession<P> {
    /// Reports that a tool runs. [`claim_call`](Self::claim_call) is for calls that several
    /// processes may see.
    ///
    /// # Errors
    ///
    /// [`SessionError::Ended`](super::SessionError::Ended) if the session has ended, as for all of
    /// these calls.
    pub fn tool_executing(&self, call_id: &str) -> Result<(), P> {
        self.change_call(call_id, ToolStatus::Executing, Map::new())
    }

    /// Reports that a tool succeeded, without a result for the model; see
    /// [`tool_result`](Self::tool_result). `metadata` is merged into that of the call.
    ///
    /// # Errors
    ///
    /// If the session has ended.
    pub fn tool_completed(&self, call_id: &str, metadata: Map<String, Value>) -> Result<(), P> {
        self.change_call(call_id, ToolStatus::Completed, metadata)
    }

    /// Reports that a tool failed, without a result for the model; see
    /// [`tool_result`](Self::tool_result). `metadata` is merged into that of the call.
    ///
    /// # Errors
    ///
    /// If the session has ended.
    pub fn tool_failed(&self, call_id: &str, metadata: Map<String, Value>) -> Result<(), P> {
        self.change_call(call_id, ToolStatus::Failed, metadata)
    }

    /// Reports that a call will not run.
    ///
    /// # Errors
    ///
    /// If the session has ended.
    pub fn tool_cancelled(&self, call_id: &str) -> Result<(), P> {
        self.change_call(call_id, ToolStatus::Cancelled, Map::new())
    }

    /// Reports that a call waits for a person's [decision](Self::decide). The agent state gets an
    /// interrupt with this data in place of the result, unless it has one.
    ///
    /// # Errors
    ///
    /// If the session has ended.
    pub fn tool_interrupted(&self, call_id: &str, data: Value) -> Result<(), P> {
        self.update(|session| session.interrupt_call(call_id, data))
    }

    /// Starts a call that is pending or approved. Exactly one caller of all processes gets
    /// [`Claim::Claimed`] and runs the tool.
    ///
    /// It waits while failures are transient. A caller who stops waiting may have claimed the call.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if there is no such call.
    pub async fn claim_call(&self, call_id: &str) -> Result<Claim<P::DisplayMessage>, P> {
        let claim = PendingWrite::Claim {
            call_id: call_id.to_owned(),
            claim: Uuid::now_v7(),
        };
        self.ask(
            |session, reply| session.writes.push(claim, Some(reply)),
            |written| match written {
                Written::Claim(claim) => Some(claim),
                _ => None,
            },
        )
        .await
    }

    /// Stores a person's decision about an interrupted call. Exactly one caller of all processes gets
    /// [`Decided::Claimed`]. An approved call then has to be [claimed](Self::claim_call) like any
    /// other one before its tool runs. A rejected call gets a [result](Self::tool_result), which is an
    /// error for the model.
    ///
    /// It waits while failures are transient. A caller who stops waiting may have decided.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if the call does not wait for a
    /// decision.
    pub async fn decide(
        &self,
        call_id: &str,
        decision: Decision,
    ) -> Result<Decided<P::DisplayMessage>, P> {
        let decide = PendingWrite::Decide {
            call_id: call_id.to_owned(),
            decision,
            claim: Uuid::now_v7(),
        };
        self.ask(
            |session, reply| session.writes.push(decide, Some(reply)),
            |written| match written {
                Written::Decided(decided) => Some(decided),
                _ => None,
            },
        )
        .await
    }

    /// Adds the result of a tool, or an error, to the agent state and to the display messages. It
    /// replaces the interrupt of its call, if there is one; a call that has a result keeps it. The
    /// call is then completed or failed, unless it has ended before.
    ///
    /// # Errors
    ///
    /// If the session has ended.
    pub fn tool_result(&self, result: ToolResult) -> Result<(), P> {
        self.update(|session| session.tool_result(result))
    }

    /// As [`State::cancel_pending_interrupts`], and the calls are cancelled. Call it when the user
    /// sends a new message instead of deciding. A call that somebody has decided about stays as it
    /// is: it may be running.
    ///
    /// It waits while failures are transient.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if the failure is permanent.
    pub async fn cancel_interrupts(&self) -> Result<(), P> {
        let results = self.read(|state| resolved_by(state, State::cancel_pending_interrupts));
        self.cancel_calls(results).await?;
        self.update(SessionState::resume)
    }

    /// As [`State::clean_stale_interrupts`], and the calls are cancelled. Call it when the session
    /// starts. A call that somebody has decided about stays as it is.
    ///
    /// It waits while failures are transient.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if the failure is permanent.
    pub async fn clean_stale_interrupts(
        &self,
        restorable: impl Fn(&Value) -> bool,
    ) -> Result<(), P> {
        let clean = |state: &mut State| state.clean_stale_interrupts(restorable);
        let results = self.read(|state| resolved_by(state, clean));
        self.cancel_calls(results).await
    }

    /// Cancels the calls of these results, which replace their interrupts, unless somebody has decided
    /// about them.
    async fn cancel_calls(&self, results: Vec<ToolResult>) -> Result<(), P> {
        let mut cancelled = Vec::new();
        for result in results {
            if self.cancel_unstarted(&result.tool_call_id, true).await? {
                cancelled.push(result);
            }
        }
        self.update(|session| session.resolve_interrupts(cancelled))
    }

    /// Cancels a call that nobody has started, whether or not somebody has approved it. Returns whether
    /// the call is cancelled; if not, it may be running in another process.
    ///
    /// It waits while failures are transient.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if the failure is permanent.
    pub async fn cancel_call(&self, call_id: &str) -> Result<bool, P> {
        self.cancel_unstarted(call_id, false).await
    }

    async fn cancel_unstarted(&self, call_id: &str, only_undecided: bool) -> Result<bool, P> {
        let cancel = PendingWrite::CancelUnstarted {
            call_id: call_id.to_owned(),
            only_undecided,
        };
        self.ask(
            |session, reply| session.writes.push(cancel, Some(reply)),
            |written| match written {
                // Nobody can decide about a call that isn't displayed, or start it.
                Written::Cancelled(call) => Some(call.is_none_or(|(_, is_cancelled)| is_cancelled)),
                _ => None,
            },
        )
        .await
    }

    /// Gives a result to every call that an earlier run started or ended, and that has none in the
    /// agent state: the stored result if there is one, otherwise an error. A call that was executing
    /// becomes [unknown](ToolStatus::Unknown). Calls that nobody has started don't change. Returns how
    /// many calls got a result.
    ///
    /// Call it after [`begin_run`](Self::begin_run), as soon as the state is
    /// [current](Self::reload). Without a run it does nothing, because the calls may be running in
    /// another process.
    ///
    /// It waits while failures are transient.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if the failure is permanent.
    pub async fn seal_calls(&self) -> Result<usize, P> {
        let mut sealed = 0;
        for call in self.read(State::open_tool_calls) {
            sealed += usize::from(self.seal(&call).await?);
        }
        Ok(sealed)
    }

    /// As [`seal_calls`](Self::seal_calls), for one call. Returns whether it got a result.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if the failure is permanent.
    pub async fn seal_call(&self, call_id: &str) -> Result<bool, P> {
        let open = self.read(State::open_tool_calls);
        match open.iter().find(|call| call.call_id == call_id) {
            Some(call) => self.seal(call).await,
            None => Ok(false),
        }
    }

    async fn seal(&self, call: &ToolCall) -> Result<bool, P> {
        let call_id = call.call_id.clone();
        let stored = self.ask(
            |session, reply| {
                let run_id = session.runs.active_id();
                let seal = PendingWrite::Seal { call_id, run_id };
                session.writes.push(seal, Some(reply));
            },
            |written| match written {
                Written::Sealed(stored) => Some(stored),
                _ => None,
            },
        );
        // Nobody can have started a call that isn't displayed.
        let Some(stored) = stored.await? else {
            return Ok(false);
        };
        let status = stored.status;
        let sealed = stored.sealed(call);
        let is_sealed = sealed.is_some();
        if let Some((id, result)) = sealed {
            self.update(|session| session.finish_call(id, result, status))?;
        }
        Ok(is_sealed)
    }

    /// Begins a run of the agent, unless one is in progress in this or another process, which is
    /// returned then. A run that waits for a person, or whose process was killed, is taken over; see
    /// [`RunGuard::resumed`].
    ///
    /// It waits while failures are transient.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if the failure is permanent.
    pub async fn begin_run(&self) -> Result<BeginRun<RunGuard<P>>, P> {
        let run_id = Uuid::now_v7();
        let guard = RunGuard::new(self, run_id);
        let begun = self.ask(
            |session, reply| {
                let begin = PendingWrite::BeginRun(run_id);
                session.writes.push(begin, Some(reply));
            },
            |written| match written {
                Written::Run(begun) => Some(begun),
                _ => None,
            },
        );
        let begun = begun.await?;
        let guard = guard.known();
        Ok(match begun {
            BeginRun::Started(run) => BeginRun::Started(guard.started(&run)),
            BeginRun::Busy(run) => BeginRun::Busy(run),
        })
    }

    /// Asks the agent to stop, in whichever process it runs: its
    /// [token](RunGuard::token) is cancelled, in another process when that renews the run. Returns
    /// whether there is a run that has not ended.
    ///
    /// It waits while failures are transient.
    ///
    /// # Errors
    ///
    /// [`SessionError::Storage`](super::SessionError::Storage) if the failure is permanent.
    pub async fn cancel_run(&self) -> Result<bool, P> {
        self.ask(
            |session, reply| {
                let cancel = PendingWrite::CancelRun(session.runs.cancel());
                session.writes.push(cancel, Some(reply));
            },
            |written| match written {
                Written::IsRunning(is_running) => Some(is_running),
                _ => None,
            },
        )
        .await
    }

    fn change_call(
        &self,
        call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> Result<(), P> {
        self.update(|session| session.change_call(call_id, status, metadata))
    }
}
