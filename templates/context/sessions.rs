//! How sessions store their state and display messages in this context.

use std::time::Duration;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::{
    BeginRun, Claim, {{ context }}, ConversationChanges, Cut, Decided, Decision, Delivery,
    DisplayMessage, Error, Owner, OwnerScope, Point, Result, Run, RunSignal, RunStatus, ToolStatus,
    store,
};
use crate::sagents::{
    Failure, LoadContext, Message, SessionPersistence, StoredCall, ToolResult,
};

impl SessionPersistence for {{ context }} {
    type Owner = Owner;
    type DisplayMessage = DisplayMessage;

    fn owner(&self, scope: &Self::Scope) -> Result<Owner> {
        scope.owner()
    }

    async fn save_message(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        message_id: Uuid,
        message: &Message,
        delivery: Delivery,
    ) -> Result<Vec<DisplayMessage>> {
        self.save_items(scope, context.conversation_id, message_id, message, delivery)
            .await
    }

    async fn unsettled_messages(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
    ) -> Result<Vec<(Uuid, Delivery)>> {
        Self::unsettled_messages(self, scope, context.conversation_id).await
    }

    async fn settle_messages(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        messages: &[(Uuid, Delivery)],
    ) -> Result<Vec<DisplayMessage>> {
        Self::settle_messages(self, scope, context.conversation_id, messages).await
    }

    async fn change_tool_call(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let id = context.conversation_id;
        Self::change_tool_call(self, scope, id, call_id, status, metadata).await
    }

    async fn claim_tool_call(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        call_id: &str,
        claim: Uuid,
    ) -> Result<Claim<DisplayMessage>> {
        Self::claim_tool_call(self, scope, context.conversation_id, call_id, claim).await
    }

    async fn decide_tool_call(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        call_id: &str,
        decision: &Decision,
        claim: Uuid,
    ) -> Result<Decided<DisplayMessage>> {
        let id = context.conversation_id;
        Self::decide_tool_call(self, scope, id, call_id, decision, claim).await
    }

    async fn cancel_unstarted_tool_call(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        call_id: &str,
        only_undecided: bool,
    ) -> Result<Option<(DisplayMessage, bool)>> {
        let id = context.conversation_id;
        let cancelled =
            Self::cancel_unstarted_tool_call(self, scope, id, call_id, only_undecided).await;
        self.if_displayed(scope, id, cancelled).await
    }

    async fn seal_tool_call(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        call_id: &str,
    ) -> Result<Option<StoredCall>> {
        let id = context.conversation_id;
        let sealed = Self::seal_tool_call(self, scope, id, call_id).await;
        self.if_displayed(scope, id, sealed).await
    }

    async fn resolve_tool_result(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        result: &ToolResult,
    ) -> Result<DisplayMessage> {
        self.resolve_interrupted_tool_result(scope, context.conversation_id, result)
            .await
    }

    async fn begin_run(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        run_id: Uuid,
        holder: &str,
        lease: Duration,
    ) -> Result<BeginRun> {
        let id = context.conversation_id;
        Self::begin_run(self, scope, id, run_id, holder, lease).await
    }

    async fn renew_run(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        run_id: Uuid,
    ) -> Result<RunSignal> {
        Self::renew_run(self, scope, context.conversation_id, run_id).await
    }

    async fn wait_run(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        run_id: Uuid,
        waiting_for: &Value,
    ) -> Result<RunSignal> {
        Self::wait_run(self, scope, context.conversation_id, run_id, waiting_for).await
    }

    async fn end_run(
        &self,
        scope: &Self::Scope,
        context: &LoadContext,
        run_id: Uuid,
        status: RunStatus,
    ) -> Result<()> {
        Self::end_run(self, scope, context.conversation_id, run_id, status).await
    }

    async fn request_cancel(&self, scope: &Self::Scope, context: &LoadContext) -> Result<bool> {
        Self::request_cancel(self, scope, context.conversation_id).await
    }

    async fn get_run(&self, scope: &Self::Scope, context: &LoadContext) -> Result<Option<Run>> {
        Self::get_run(self, scope, context.conversation_id).await
    }

    async fn rewind(&self, scope: &Self::Scope, context: &LoadContext, to: Point) -> Result<Cut> {
        let rewound = self.rewind_conversation(scope, context.conversation_id, to).await?;
        Ok(rewound.cut)
    }

    async fn delete_conversation(&self, scope: &Self::Scope, context: &LoadContext) -> Result<()> {
        Self::delete_conversation(self, scope, context.conversation_id).await
    }

    async fn set_title(&self, scope: &Self::Scope, context: &LoadContext, title: &str) -> Result<()> {
        let changes = ConversationChanges::default().title(title);
        self.update_conversation(scope, context.conversation_id, changes)
            .await
            .map(drop)
    }

    fn failure(error: &Error) -> Failure {
        match error {
            Error::Conflict { current } => Failure::Conflict { current: *current },
            Error::Database(error) if store::is_transient(error) => Failure::Transient,
            _ => Failure::Permanent,
        }
    }

    fn is_missing(error: &Error) -> bool {
        matches!(error, Error::NotFound)
    }
}

impl {{ context }} {
    /// Nothing if there is no such call in a conversation that exists.
    async fn if_displayed<T>(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
        found: Result<T>,
    ) -> Result<Option<T>> {
        match found {
            Err(Error::NotFound) => {
                drop(self.get_conversation(scope, conversation_id).await?);
                Ok(None)
            }
            found => found.map(Some),
        }
    }
}
