//! The life of a tool call, from pending to its end, and a person's decisions on the way.

{% block uses %}{% endblock %}

impl {{ w.context }} {
    /// A tool call starts, or goes on after a person approved it.
    ///
    /// # Errors
    ///
    /// For this and the other changes of a tool call: [`Error::NotFound`] if the caller has no such
    /// conversation or it has no such call, [`Error::Invalid`] if the call [may not
    /// change](ToolStatus::may_become) so.
    pub async fn mark_tool_executing(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Executing;
        self.change_tool_call(scope, conversation_id, call_id, status, Map::new())
            .await
    }

    /// A tool call succeeds. `metadata` is merged into the call's metadata, for example the result.
    ///
    /// # Errors
    ///
    /// As [`{{ w.context }}::mark_tool_executing`].
    pub async fn complete_tool_call(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Completed;
        self.change_tool_call(scope, conversation_id, call_id, status, metadata)
            .await
    }

    /// A tool call fails. `metadata` is merged into the call's metadata, for example the error.
    ///
    /// # Errors
    ///
    /// As [`{{ w.context }}::mark_tool_executing`].
    pub async fn fail_tool_call(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Failed;
        self.change_tool_call(scope, conversation_id, call_id, status, metadata)
            .await
    }

    /// A tool call waits for a person's decision. `metadata` is merged into the call's metadata,
    /// for example the question.
    ///
    /// # Errors
    ///
    /// As [`{{ w.context }}::mark_tool_executing`].
    pub async fn interrupt_tool_call(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Interrupted;
        self.change_tool_call(scope, conversation_id, call_id, status, metadata)
            .await
    }

    /// A tool call is given up.
    ///
    /// # Errors
    ///
    /// As [`{{ w.context }}::mark_tool_executing`].
    pub async fn cancel_tool_call(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
    ) -> Result<DisplayMessage> {
        let status = ToolStatus::Cancelled;
        self.change_tool_call(scope, conversation_id, call_id, status, Map::new())
            .await
    }

    /// Notes a person's decision as `hitl_decision` in the metadata of the tool call, and of its
    /// result if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation or it has no such call.
    pub async fn record_hitl_decision(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
        decision: HitlDecision,
    ) -> Result<DisplayMessage> {
{%- block record_hitl_decision %}{% endblock %}
    }

    /// Puts the real result in the place of a tool result that stood for an interrupt
    /// (`is_interrupt` in its metadata).
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation, or the newest result of the call
    /// is no interrupt.
    pub async fn resolve_interrupted_tool_result(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
        content: &str,
    ) -> Result<DisplayMessage> {
{%- block resolve_interrupted_tool_result %}{% endblock %}
    }

    async fn change_tool_call(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        call_id: &str,
        status: ToolStatus,
        metadata: Map<String, Value>,
    ) -> Result<DisplayMessage> {
{%- block change_tool_call %}{% endblock %}
    }
}

{% block tool_call_steps %}{% endblock %}
