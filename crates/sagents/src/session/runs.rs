//! The run of a session: the agent that works on the conversation.

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::RunChange;
use super::writes::PendingWrite;
use crate::{Run, RunSignal, RunStatus};

/// Tells an agent that it has to stop: somebody cancelled the run, another process took it over, or the session ends.
#[derive(Debug, Clone)]
pub struct CancelToken(watch::Receiver<bool>);

impl CancelToken {
    /// Whether the agent has to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits until the agent has to stop.
    pub async fn cancelled(&self) {
        // Without a session, it has to stop too.
        drop(self.0.clone().wait_for(|cancelled| *cancelled).await);
    }
}

/// The run of this process, and the one that it found.
#[derive(Default)]
pub(super) struct Runs {
    active: Option<Active>,
    /// A run that waits for a person, of this process or an earlier one.
    waiting: Option<Uuid>,
    /// A run that an earlier process left in the middle. The next run has to know that.
    left: Option<Uuid>,
}

struct Active {
    run_id: Uuid,
    cancel: watch::Sender<bool>,
    renew_at: Instant,
}

impl Runs {
    /// An earlier process left a run that waits for a person, or for the next process.
    pub fn found(waiting: Option<&Run>) -> Self {
        let is_question = |run: &&Run| run.waiting_for.as_ref().is_some_and(|data| !data.is_null());
        let (waiting, left) = (waiting.filter(is_question), waiting.filter(|run| !is_question(run)));
        Self { active: None, waiting: waiting.map(|run| run.id), left: left.map(|run| run.id) }
    }

    /// Whether an agent of this process works.
    pub fn is_active(&self) -> bool {
        self.active.is_some() && self.waiting.is_none()
    }

    /// The run is stored.
    pub fn started(&mut self, run_id: Uuid, renew_at: Instant) {
        (self.waiting, self.left) = (None, None);
        let resumed = self.active.take();
        let resumed = resumed.filter(|active| active.run_id == run_id);
        let cancel = resumed.map_or_else(|| watch::Sender::new(false), |active| active.cancel);
        self.active = Some(Active { run_id, cancel, renew_at });
    }

    /// The token of a run, which is cancelled if it isn't the current one.
    pub fn token(&self, run_id: Uuid) -> CancelToken {
        let active = self.active.as_ref();
        let active = active.filter(|active| active.run_id == run_id);
        let lost = || watch::Sender::new(true).subscribe();
        CancelToken(active.map_or_else(lost, |active| active.cancel.subscribe()))
    }

    /// When the run is renewed.
    pub fn renew_at(&self) -> Option<Instant> {
        let active = self.active.as_ref().filter(|_| self.is_active());
        active.map(|active| active.renew_at)
    }

    pub fn take_due(&mut self, now: Instant, next: Instant) -> Option<PendingWrite> {
        let due = self.renew_at().is_some_and(|at| at <= now);
        let active = self.active.as_mut().filter(|_| due)?;
        active.renew_at = next;
        Some(PendingWrite::RenewRun(active.run_id))
    }

    pub fn retry_at(&mut self, at: Instant) {
        if let Some(active) = &mut self.active {
            active.renew_at = at;
        }
    }

    /// Takes what the database says about a run. Returns what changed if it's the run of this process.
    pub fn signal(&mut self, run_id: Uuid, signal: RunSignal) -> Option<RunChange> {
        if signal == RunSignal::Lost {
            for found in [&mut self.waiting, &mut self.left] {
                let _ = found.take_if(|found| *found == run_id);
            }
        }
        let active = self.active.as_ref();
        let active = active.filter(|active| active.run_id == run_id)?;
        match signal {
            RunSignal::Go => None,
            RunSignal::CancelRequested => {
                let was_cancelled = active.cancel.send_replace(true);
                (!was_cancelled).then_some(RunChange::CancelRequested)
            }
            RunSignal::Lost => {
                let _ = active.cancel.send_replace(true);
                self.active = None;
                Some(RunChange::Lost)
            }
        }
    }

    /// The agent has to stop. Returns its run, unless it had to stop before.
    pub fn cancel(&self) -> Option<Uuid> {
        let active = self.active.as_ref()?;
        let was_cancelled = active.cancel.send_replace(true);
        (!was_cancelled).then_some(active.run_id)
    }

    /// The run waits for a person.
    pub fn wait(&mut self, data: Value) -> PendingWrite {
        let active = self.active.as_ref().map(|active| active.run_id);
        let run_id = active.or(self.waiting).unwrap_or_else(Uuid::now_v7);
        self.waiting = Some(run_id);
        PendingWrite::WaitRun { run_id, begins: active.is_none(), data }
    }

    /// A run that waits goes on, or ends if no agent of this process has it.
    pub fn resume(&mut self, renew_at: Instant) -> Option<PendingWrite> {
        let waiting = self.waiting.take()?;
        Some(match &mut self.active {
            Some(active) => {
                active.renew_at = renew_at;
                PendingWrite::BeginRun(waiting)
            }
            None => PendingWrite::EndRun(waiting, RunStatus::Finished),
        })
    }

    /// The run ends, if there's one.
    pub fn end(&mut self, status: RunStatus) -> Option<PendingWrite> {
        let (waiting, left) = (self.waiting.take(), self.left.take());
        let active = self.active.take().map(|active| active.run_id);
        let run_id = active.or(waiting).or(left)?;
        Some(PendingWrite::EndRun(run_id, status))
    }

    /// The agent gave up its run. Returns whether it ends: one that waits goes on waiting.
    pub fn release(&mut self, run_id: Uuid) -> bool {
        self.remove(run_id) && self.waiting.is_none()
    }

    /// The run has ended. Returns whether it was the run of this process.
    pub fn remove(&mut self, run_id: Uuid) -> bool {
        let removed = self.active.take_if(|active| active.run_id == run_id);
        removed.is_some()
    }

    /// The process ends in the middle of a run. Another one may take over at once.
    pub fn hand_over(&mut self) -> Option<PendingWrite> {
        let active = self.active.take()?;
        self.waiting.is_none().then_some(PendingWrite::WaitRun {
            run_id: active.run_id,
            begins: false,
            data: Value::Null,
        })
    }
}
