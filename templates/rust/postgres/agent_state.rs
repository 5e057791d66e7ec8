{% extends "rust/agent_state.rs" %}

{% block uses %}
use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row as _};
{%- endblock %}

{% block rows %}
/// `data` is text to the byte here, which sqlx does not take JSON for by itself.
impl FromRow<'_, PgRow> for AgentState {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
{%- if let Some(owner) = w.owner %}
            {{ owner.field }}: {{ owner.from_row }},
{%- endif %}
            conversation_id: row.try_get("conversation_id")?,
            version: row.try_get("version")?,
            revision: row.try_get("revision")?,
            write_id: row.try_get("write_id")?,
            data: row.try_get_unchecked("data")?,
            unreadable_data: row.try_get_unchecked("unreadable_data")?,
            inserted_at: row.try_get("inserted_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}
{%- endblock %}
