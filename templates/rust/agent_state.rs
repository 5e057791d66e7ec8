//! The stored state of a conversation's agent.

use chrono::{DateTime, Utc};
use serde::Serialize;
{%- block uses %}{% endblock %}
use uuid::Uuid;

/// A row of `{{ w.prefix }}agent_states`: what the agent knows, one row per conversation.
#[derive(Debug, Clone, PartialEq, Serialize{% block derive %}{% endblock %})]
pub struct AgentState {
{% if let Some(owner) = w.owner %}    /// The {{ owner.noun }} that owns it.
    {{ owner.state_attribute }}pub {{ owner.field }}: {{ owner.rust_type }},
{% endif %}    /// The conversation whose agent it is.
    pub conversation_id: Uuid,
    /// The version of the format that was last saved.
    pub version: i32,
    /// Counts the saves; a writer that holds an older revision has missed one.
    pub revision: i64,
    /// Identifies the save, so that repeating it changes nothing.
    pub write_id: Uuid,
    /// The state as JSON text, exactly as it was saved.
    pub data: String,
    /// What `data` held when it could not be read, kept until it is restored.
    pub unreadable_data: Option<String>,
    /// When it was first saved.
    pub inserted_at: DateTime<Utc>,
    /// When it was last saved.
    pub updated_at: DateTime<Utc>,
}
{% block rows %}{% endblock %}
