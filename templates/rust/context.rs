{%- match w.owner %}
{%- when Some(owner) %}
//! Conversations with AI agents: who owns them, and what a person sees of them.
//!
//! [`{{ w.context }}`] is the one door to the tables. Every call takes the caller's scope first and
//! reaches only the rows of that {{ owner.noun }}; what belongs to another is [`Error::NotFound`],
//! exactly like what does not exist. The tables hold to that by themselves: the owner leads every
//! key.
{%- when None %}
//! Conversations with AI agents, and what a person sees of them.
//!
//! [`{{ w.context }}`] is the one door to the tables. Conversations have no owner here: every call
//! takes the caller's scope first all the same, so that call sites stay as they are when
//! conversations get one.
{%- endmatch %}
//!
{%- block manner %}{% endblock %}
{%- if !w.public %}

#![allow(dead_code, unused_imports, reason = "an application need not use every call")]
{%- endif %}

mod agent_state;
mod conversation;
mod display_message;
mod messages;
mod scope;
mod sessions;
mod states;
{%- if w.tests %}
#[cfg(test)]
mod tests;
{%- endif %}
mod tool_calls;
mod values;

{% block uses %}{% endblock %}

use self::values::{clean_json, clean_text, now, timestamp};
use crate::sagents::{ReadError, Revision};

pub use self::agent_state::AgentState;
pub use self::conversation::{
    Change, Conversation, ConversationChanges, ConversationCursor, ConversationOrder,
    ListConversations, NewConversation,
};
pub use self::display_message::{
    ContentType, DisplayMessage, HitlDecision, MessagePage, MessagePosition, NewDisplayMessage,
    Role, ToolStatus,
};
pub use self::scope::{Owner, OwnerScope};
pub use self::states::Saved;

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
{%- if w.owner.is_some() %}
    /// There is no such row, or it belongs to another owner.
{%- else %}
    /// There is no such row.
{%- endif %}
    #[error("not found")]
    NotFound,
{%- if let Some(owner) = w.owner %}
    /// The scope names no {{ owner.noun }}.
    #[error("the scope has no {{ owner.noun }}")]
    NoOwner,
{%- endif %}
    /// Somebody else saved the agent's state meanwhile.
    #[error("the agent's state was saved meanwhile, as revision {}", current.0)]
    Conflict {
        /// What is there now.
        current: Revision,
    },
    /// The agent's state cannot be read.
    #[error(transparent)]
    DeserializationFailed(#[from] ReadError),
    /// The call itself cannot be carried out.
    #[error("invalid: {0}")]
    Invalid(String),
    /// The database refused or failed.
{%- block database_error %}{% endblock %}
}

/// What the calls of this module answer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

{% block connect %}{% endblock %}

/// The conversations of an application. Cloning it is cheap; clones share the pool.
#[derive(Debug, Clone)]
pub struct {{ w.context }} {
    pool: {{ w.dialect.pool }},
{%- block field %}{% endblock %}
}

impl {{ w.context }} {
    /// Uses a pool of the application's own; [`connect`] makes one with the right settings.
    #[must_use]
    pub fn new(pool: {{ w.dialect.pool }}) -> Self {
        Self {
            pool,
{%- block field_value %}{% endblock %}
        }
    }

    /// Creates a conversation. Repeating the call with the same id stores nothing and returns what
    /// the first one stored.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the id is no `UUIDv7` or the metadata is nested too deeply.
    pub async fn create_conversation(
        &self,
        scope: &impl OwnerScope,
        new: NewConversation,
    ) -> Result<Conversation> {
        // The update changes nothing: with it the row that is there already is returned.
        const INSERT: &str = r#"
            INSERT INTO {{ w.conversations }} AS c
                ({{ w.owner_first }}id, title, scope, metadata, inserted_at, updated_at)
            VALUES ({{ w.owner_value }}$1, $2, $3, $4, $5, $5)
            ON CONFLICT ({{ w.owner_first }}id) DO UPDATE SET title = c.title
            RETURNING *"#;

        {{ w.take_owner }}
        if new.id.get_version_num() != 7 {
            return Err(Error::Invalid(format!("the id {} is no UUIDv7", new.id)));
        }
        let title = new.title.as_deref().map(clean_text);
        let metadata = clean_json(new.metadata)?;
        retry(|| async {
            {{ w.dialect.begin }}let created = sqlx::query_as(INSERT){{ w.bind_owner }}
                .bind(new.id)
                .bind(&title)
                .bind(Json({{ w.owner_json }}))
                .bind(Json(&metadata))
                .bind(timestamp(now()))
                .fetch_one({{ w.dialect.writer }})
                .await?;{{ w.dialect.commit }}
            Ok(created)
        })
        .await
    }

    /// Reads a conversation.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation.
    pub async fn get_conversation(
        &self,
        scope: &impl OwnerScope,
        id: Uuid,
    ) -> Result<Conversation> {
        const SELECT: &str = r#"
            SELECT * FROM {{ w.conversations }} WHERE {{ w.owner_and }}id = $1"#;

        {{ w.take_owner }}
        sqlx::query_as(SELECT){{ w.bind_owner }}
            .bind(id)
            .fetch_optional(&self.pool)
            .await?
            .ok_or(Error::NotFound)
    }

    /// Changes what `changes` names and leaves the rest.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation.
    pub async fn update_conversation(
        &self,
        scope: &impl OwnerScope,
        id: Uuid,
        changes: ConversationChanges,
    ) -> Result<Conversation> {
        const UPDATE: &str = r#"
            UPDATE {{ w.conversations }}
            SET title = CASE WHEN $2 THEN $3 ELSE title END,
                metadata = CASE WHEN $4 THEN $5 ELSE metadata END,
                updated_at = {{ w.latest("$6") }}
            WHERE {{ w.owner_and }}id = $1
            RETURNING *"#;

        {{ w.take_owner }}
        let (set_title, title) = match changes.title {
            Change::Keep => (false, None),
            Change::To(title) => (true, title.as_deref().map(clean_text)),
        };
        let (set_metadata, metadata) = match changes.metadata {
            Change::Keep => (false, Map::new()),
            Change::To(metadata) => (true, clean_json(metadata)?),
        };
        retry(|| async {
            {{ w.dialect.begin }}let updated: Option<Conversation> = sqlx::query_as(UPDATE){{ w.bind_owner }}
                .bind(id)
                .bind(set_title)
                .bind(&title)
                .bind(set_metadata)
                .bind(Json(&metadata))
                .bind(timestamp(now()))
                .fetch_optional({{ w.dialect.writer }})
                .await?;{{ w.dialect.commit }}
            updated.ok_or(Error::NotFound)
        })
        .await
    }

    /// Deletes a conversation with its messages and its agent's state.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation.
    pub async fn delete_conversation(&self, scope: &impl OwnerScope, id: Uuid) -> Result<()> {
        const DELETE: &str = r#"
            DELETE FROM {{ w.conversations }} WHERE {{ w.owner_and }}id = $1"#;

        {{ w.take_owner }}
        retry(|| async {
            {{ w.dialect.begin }}let deleted = sqlx::query(DELETE){{ w.bind_owner }}
                .bind(id)
                .execute({{ w.dialect.writer }})
                .await?
                .rows_affected();{{ w.dialect.commit }}
            if deleted == 0 {
                Err(Error::NotFound)
            } else {
                Ok(())
            }
        })
        .await
    }

    /// A page of the caller's conversations. Pages follow each other by key, so none is skipped or
    /// shown twice because others come and go meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database fails.
    pub async fn list_conversations(
        &self,
        scope: &impl OwnerScope,
        list: ListConversations,
    ) -> Result<Vec<Conversation>> {
        const UPDATED_DESC: &str = r#"
            SELECT * FROM {{ w.conversations }}
            WHERE {{ w.owner_and }}(updated_at, id) < ($3, $2)
            ORDER BY updated_at DESC, id DESC LIMIT $1"#;
        const UPDATED_ASC: &str = r#"
            SELECT * FROM {{ w.conversations }}
            WHERE {{ w.owner_and }}(updated_at, id) > ($3, $2)
            ORDER BY updated_at, id LIMIT $1"#;
        const CREATED_DESC: &str = r#"
            SELECT * FROM {{ w.conversations }}
            WHERE {{ w.owner_and }}id < $2
            ORDER BY id DESC LIMIT $1"#;
        const CREATED_ASC: &str = r#"
            SELECT * FROM {{ w.conversations }}
            WHERE {{ w.owner_and }}id > $2
            ORDER BY id LIMIT $1"#;

        {{ w.take_owner }}
        let (sql, start, by_time) = match list.order_by {
            ConversationOrder::UpdatedDesc => (UPDATED_DESC, ConversationCursor::LAST, true),
            ConversationOrder::UpdatedAsc => (UPDATED_ASC, ConversationCursor::FIRST, true),
            ConversationOrder::CreatedDesc => (CREATED_DESC, ConversationCursor::LAST, false),
            ConversationOrder::CreatedAsc => (CREATED_ASC, ConversationCursor::FIRST, false),
        };
        let after = list.after.unwrap_or(start);
        let mut query = sqlx::query_as(sql){{ w.bind_owner }}
            .bind(i64::from(list.limit.min(ListConversations::MAX_LIMIT)))
            .bind(after.id);
        if by_time {
            query = query.bind(timestamp(after.updated_at));
        }
        Ok(query.fetch_all(&self.pool).await?)
    }

    /// Deletes the conversations that nothing was written to since `cutoff`, of every owner. This
    /// is housekeeping, the one call without a scope. It goes through the table once, in batches,
    /// so that other writers get their turn. Returns how many there were.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database fails; the batches before that are deleted.
    pub async fn delete_conversations_before(&self, cutoff: DateTime<Utc>) -> Result<u64> {
{%- block housekeeping %}{% endblock %}
    }

{% block begin %}{% endblock %}
}

/// Repeats a write that met another one, a few times.
async fn retry<T, F>(write: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    const ATTEMPTS: u32 = 4;
    for attempt in 1..ATTEMPTS {
        match write().await {
            Err(Error::Database(error)) if is_collision(&error) => {
                tokio::time::sleep(Duration::from_millis({{ w.dialect.pause }}) * 4_u32.pow(attempt)).await;
            }
            result => return result,
        }
    }
    write().await
}

{% block writes %}{% endblock %}
