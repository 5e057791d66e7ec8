//! The header of a stored agent state.

use sagents::sqlx::{{ row_import }};
use sagents::sqlx::{self, FromRow, Row as _};
use sagents::{Revision, Timestamp};
use serde::Serialize;
use uuid::Uuid;

/// A row of `{{ prefix }}agent_states`, without the state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentState {
{%- if let Some(owner) = owner %}
    /// The {{ owner.noun }} that owns its conversation.
    #[serde(skip)]
    pub {{ owner.field }}: {{ owner.rust_type }},
{%- endif %}
    /// The conversation that it belongs to.
    pub conversation_id: Uuid,
    /// The number of saves. A stale writer gets a conflict.
    pub revision: Revision,
    /// The version of the serialized format.
    pub version: i32,
    /// When it was first saved.
    pub inserted_at: Timestamp,
    /// When it was last saved.
    pub updated_at: Timestamp,
}

impl FromRow<'_, {{ row }}> for AgentState {
    fn from_row(row: &{{ row }}) -> sqlx::Result<Self> {
        Ok(Self {
{%- if let Some(owner) = owner %}
            {{ owner.field }}: row{{ owner.get }},
{%- endif %}
            conversation_id: row.try_get("conversation_id")?,
            revision: Revision(row.try_get("revision")?),
            version: row.try_get("version")?,
            inserted_at: row.try_get("inserted_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}
