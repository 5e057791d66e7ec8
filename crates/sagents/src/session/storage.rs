//! Where sessions store what they have: the only place that calls the storage.

#![cfg_attr(
    not(any(feature = "_sqlite", feature = "postgres")),
    expect(unused_variables, reason = "only a store uses the arguments of the calls for rows")
)]

use std::pin::Pin;
use std::time::Duration;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Result, SessionError, SessionOptions};
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
use crate::Store;
use crate::{
    AgentPersistence, BeginRun, Claim, Cut, Decided, Delivery, DisplayMessage, Error, Expect, LoadContext, Loaded,
    Message, Owner, PersistContext, Point, Revision, Run, RunSignal, RunUpdate, SignedDecision, State, StoredCall,
    ToolResult, ToolStatus,
};

/// The storage of all sessions of a coordinator. A call that takes longer than the timeout fails.
pub(super) struct Storage {
    backend: Backend,
    call_timeout: Duration,
    #[cfg(feature = "_faults")]
    faults: Option<std::sync::Arc<super::Faults>>,
}

enum Backend {
    #[cfg(any(feature = "_sqlite", feature = "postgres"))]
    Store(Store),
    /// An implementation of the application's own, which has agent states and no rows.
    Host(Box<dyn Host>),
}

/// An [`AgentPersistence`] as a trait object.
trait Host: Send + Sync {
    fn persist_state<'a>(
        &'a self,
        owner: &'a Owner,
        state: &'a State,
        expect: Expect,
        context: &'a PersistContext,
    ) -> Call<'a, Revision>;

    fn load_state<'a>(&'a self, owner: &'a Owner, context: &'a LoadContext) -> Call<'a, Loaded>;

    fn set_interrupted<'a>(&'a self, owner: &'a Owner, context: &'a LoadContext, interrupted: bool) -> Call<'a, ()>;
}

/// A call of either backend. It's boxed at once, because every layer around it would hold another copy of it.
type Call<'a, T> = Pin<Box<dyn Future<Output = crate::Result<T>> + Send + 'a>>;

impl<P> Host for P
where
    P: AgentPersistence<Scope = Owner, Error: Into<Error>> + Send,
{
    fn persist_state<'a>(
        &'a self,
        owner: &'a Owner,
        state: &'a State,
        expect: Expect,
        context: &'a PersistContext,
    ) -> Call<'a, Revision> {
        let call = AgentPersistence::persist_state(self, owner, state, expect, context);
        Box::pin(async move { call.await.map_err(Into::into) })
    }

    fn load_state<'a>(&'a self, owner: &'a Owner, context: &'a LoadContext) -> Call<'a, Loaded> {
        let call = AgentPersistence::load_state(self, owner, context);
        Box::pin(async move { call.await.map_err(Into::into) })
    }

    fn set_interrupted<'a>(&'a self, owner: &'a Owner, context: &'a LoadContext, interrupted: bool) -> Call<'a, ()> {
        let call = AgentPersistence::set_interrupted(self, owner, context, interrupted);
        Box::pin(async move { call.await.map_err(Into::into) })
    }
}

/// Makes a call of the store; a host has no rows.
macro_rules! rows {
    ($storage:expr, $make:ident, $store:ident => $call:expr) => {
        match &$storage.backend {
            #[cfg(any(feature = "_sqlite", feature = "postgres"))]
            Backend::Store($store) => $storage.$make(Box::pin($call)).await,
            Backend::Host(_) => Err(SessionError::StateOnly),
        }
    };
}

impl Storage {
    #[cfg(any(feature = "_sqlite", feature = "postgres"))]
    pub fn of_store(store: &Store, options: &SessionOptions) -> Self {
        Self::new(Backend::Store(store.clone()), options)
    }

    pub fn of_host<P>(persistence: P, options: &SessionOptions) -> Self
    where
        P: AgentPersistence<Scope = Owner, Error: Into<Error>> + Send + 'static,
    {
        Self::new(Backend::Host(Box::new(persistence)), options)
    }

    fn new(backend: Backend, options: &SessionOptions) -> Self {
        Self {
            backend,
            call_timeout: options.call_timeout,
            #[cfg(feature = "_faults")]
            faults: None,
        }
    }

    #[cfg(all(feature = "_faults", any(feature = "_sqlite", feature = "postgres")))]
    pub fn with_faults(self, faults: std::sync::Arc<super::Faults>) -> Self {
        Self { faults: Some(faults), ..self }
    }

    /// Whether there are display messages, tool calls and runs beside the agent states.
    pub fn has_rows(&self) -> bool {
        !matches!(self.backend, Backend::Host(_))
    }

    pub async fn persist_state(
        &self,
        owner: &Owner,
        state: &State,
        expect: Expect,
        context: &PersistContext,
    ) -> Result<Revision> {
        let call = match &self.backend {
            #[cfg(any(feature = "_sqlite", feature = "postgres"))]
            Backend::Store(store) => Box::pin(store.persist_state(owner, state, expect, context)),
            Backend::Host(host) => host.persist_state(owner, state, expect, context),
        };
        #[cfg(feature = "_faults")]
        let call = super::faults::save(self.faults.as_deref(), state, expect, context, call);
        self.in_time(call).await
    }

    pub async fn load_state(&self, owner: &Owner, context: &LoadContext) -> Result<Loaded> {
        let call = match &self.backend {
            #[cfg(any(feature = "_sqlite", feature = "postgres"))]
            Backend::Store(store) => Box::pin(store.load_state(owner, context)),
            Backend::Host(host) => host.load_state(owner, context),
        };
        #[cfg(feature = "_faults")]
        let call = super::faults::load(self.faults.as_deref(), call);
        self.in_time(call).await
    }

    pub async fn set_interrupted(&self, owner: &Owner, context: &LoadContext, interrupted: bool) -> Result<()> {
        self.write(match &self.backend {
            #[cfg(any(feature = "_sqlite", feature = "postgres"))]
            Backend::Store(store) => Box::pin(AgentPersistence::set_interrupted(store, owner, context, interrupted)),
            Backend::Host(host) => host.set_interrupted(owner, context, interrupted),
        })
        .await
    }

    pub async fn save_message(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        message_id: Uuid,
        message: &Message,
        delivery: Delivery,
    ) -> Result<Vec<DisplayMessage>> {
        rows!(self, write, store => store.save_items(owner, conversation_id, message_id, message, delivery))
    }

    pub async fn unsettled_messages(&self, owner: &Owner, conversation_id: Uuid) -> Result<Vec<(Uuid, Delivery)>> {
        rows!(self, read, store => store.unsettled_messages(owner, conversation_id))
    }

    pub async fn settle_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        messages: &[(Uuid, Delivery)],
    ) -> Result<Vec<DisplayMessage>> {
        rows!(self, write, store => store.settle_messages(owner, conversation_id, messages))
    }

    pub async fn change_tool_call(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        rows!(self, write, store => store.change_tool_call(owner, conversation_id, tool_call_id, status, metadata))
    }

    pub async fn claim_tool_call(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        claim: Uuid,
    ) -> Result<Claim<DisplayMessage>> {
        rows!(self, write, store => store.claim_tool_call(owner, conversation_id, tool_call_id, claim))
    }

    pub async fn decide_tool_call(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        decision: &SignedDecision,
        claim: Uuid,
    ) -> Result<Decided<DisplayMessage>> {
        rows!(self, write, store => store.decide_tool_call(owner, conversation_id, tool_call_id, decision.clone(), claim))
    }

    /// Cancels a call that nobody has started, or, with `only_undecided`, decided about. Returns the call and whether it's
    /// cancelled, or nothing if it isn't displayed.
    pub async fn cancel_unstarted_tool_call(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        only_undecided: bool,
    ) -> Result<Option<(DisplayMessage, bool)>> {
        rows!(self, write, store => async {
            let cancelled = store.cancel_unstarted_tool_call(owner, conversation_id, tool_call_id, only_undecided).await;
            if_displayed(store, owner, conversation_id, cancelled).await
        })
    }

    /// Makes a call pending again that was running, if it's displayed.
    pub async fn reopen_tool_call(&self, owner: &Owner, conversation_id: Uuid, tool_call_id: &str) -> Result<()> {
        rows!(self, write, store => async {
            let reopened = store.reopen_tool_call(owner, conversation_id, tool_call_id).await;
            if_displayed(store, owner, conversation_id, reopened).await.map(drop)
        })
    }

    /// Makes a call unknown if it's executing. Returns what's stored about it then, or nothing if it isn't displayed.
    pub async fn seal_tool_call(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
    ) -> Result<Option<StoredCall>> {
        rows!(self, write, store => async {
            let sealed = store.seal_tool_call(owner, conversation_id, tool_call_id).await;
            if_displayed(store, owner, conversation_id, sealed).await
        })
    }

    pub async fn resolve_tool_result(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        result: &ToolResult,
    ) -> Result<DisplayMessage> {
        rows!(self, write, store => store.resolve_tool_result(owner, conversation_id, result))
    }

    pub async fn begin_run(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        run_id: Uuid,
        options: &SessionOptions,
    ) -> Result<BeginRun> {
        let (holder, lease) = (&options.run_holder, options.run_lease);
        rows!(self, write, store => store.begin_run(owner, conversation_id, run_id, holder, lease))
    }

    pub async fn update_run(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        run_id: Uuid,
        update: RunUpdate,
    ) -> Result<RunSignal> {
        rows!(self, write, store => store.update_run(owner, conversation_id, run_id, update))
    }

    pub async fn request_cancel(&self, owner: &Owner, conversation_id: Uuid) -> Result<bool> {
        rows!(self, write, store => store.request_cancel(owner, conversation_id))
    }

    pub async fn get_run(&self, owner: &Owner, conversation_id: Uuid) -> Result<Option<Run>> {
        rows!(self, read, store => store.get_run(owner, conversation_id))
    }

    pub async fn rewind(&self, owner: &Owner, conversation_id: Uuid, to: Point) -> Result<Cut> {
        rows!(self, write, store => async {
            let rewound = store.rewind_conversation(owner, conversation_id, to).await?;
            #[cfg(feature = "_faults")]
            super::faults::rewound(self.faults.as_deref());
            Ok(rewound.cut)
        })
    }

    pub async fn delete_conversation(&self, owner: &Owner, conversation_id: Uuid) -> Result<()> {
        rows!(self, write, store => store.delete_conversation(owner, conversation_id))
    }

    pub async fn set_title(&self, owner: &Owner, conversation_id: Uuid, title: &str) -> Result<()> {
        rows!(self, write, store => store.set_title(owner, conversation_id, title))
    }

    /// A call that changes nothing.
    #[cfg(any(feature = "_sqlite", feature = "postgres"))]
    async fn read<T: Send>(&self, call: Call<'_, T>) -> Result<T> {
        #[cfg(feature = "_faults")]
        let call = super::faults::read(self.faults.as_deref(), call);
        self.in_time(call).await
    }

    async fn write<T: Send>(&self, call: Call<'_, T>) -> Result<T> {
        #[cfg(feature = "_faults")]
        let call = super::faults::write(self.faults.as_deref(), call);
        self.in_time(call).await
    }

    async fn in_time<T: Send>(&self, call: impl Future<Output = crate::Result<T>> + Send) -> Result<T> {
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(result) => result.map_err(SessionError::from),
            Err(_) => Err(SessionError::TimedOut),
        }
    }
}

/// Nothing, if there's no such call in a conversation that exists.
#[cfg(any(feature = "_sqlite", feature = "postgres"))]
async fn if_displayed<T>(
    store: &Store,
    owner: &Owner,
    conversation_id: Uuid,
    found: crate::Result<T>,
) -> crate::Result<Option<T>> {
    match found {
        Err(Error::NotFound) => {
            store.must_exist(owner, conversation_id).await?;
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// Whether to repeat a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// Another writer saved the state. The call fails until that state is loaded.
    Conflict { current: Revision },
    /// The same call fails again.
    Permanent,
    /// The same call may succeed later.
    Transient,
}

pub(super) fn failure(error: &SessionError) -> Failure {
    const UNAVAILABLE: u16 = 503;
    match error {
        SessionError::Storage(error) => match &**error {
            Error::Conflict { current } => Failure::Conflict { current: *current },
            error if error.status_code() == UNAVAILABLE => Failure::Transient,
            _ => Failure::Permanent,
        },
        SessionError::TimedOut => Failure::Transient,
        SessionError::Conflict { current } => Failure::Conflict { current: *current },
        SessionError::Ended | SessionError::Undecided { .. } | SessionError::StateOnly => Failure::Permanent,
    }
}

/// Whether the row of the call is gone. A call that names only a conversation gets such an error if that's gone.
pub(super) fn is_missing(error: &SessionError) -> bool {
    matches!(error, SessionError::Storage(error) if matches!(**error, Error::NotFound))
}
