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
//! Every write is one transaction that takes the write lock when it begins, so two writers never
//! work on the same conversation at once, and touches the conversation's `updated_at`.
{%- if !w.public %}

#![allow(dead_code, unused_imports, reason = "an application need not use every call")]
{%- endif %}

mod agent_state;
mod conversation;
mod display_message;
mod messages;
mod scope;
mod states;
{%- if w.tests %}
#[cfg(test)]
mod tests;
{%- endif %}
mod tool_calls;
mod values;

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Map;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::types::Json;
use sqlx::{Sqlite, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};
use uuid::Uuid;

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
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// What the calls of this module answer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Opens a pool with the settings that this layer wants; the file is created if it is missing.
///
/// - Write-ahead logging lets readers go on while one writer works, and `synchronous = FULL` keeps
///   every call that was answered through a power cut.
/// - Foreign keys are enforced: deleting a conversation deletes what belongs to it.
/// - A writer waits up to ten seconds for a writer of another process, and tries a few times.
/// - Connections are local and do not go stale, so none is tested before use or closed when idle.
///
/// A database in memory lives in its one connection.
///
/// # Errors
///
/// [`Error::Database`] if the URL is not understood or the file cannot be opened.
pub async fn connect(url: &str) -> Result<SqlitePool> {
    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(10));
    let in_memory = url.contains(":memory:") || url.contains("mode=memory");
    let pool = SqlitePoolOptions::new()
        .max_connections(if in_memory { 1 } else { 8 })
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_with(options)
        .await?;
    Ok(pool)
}

/// The conversations of an application. Cloning it is cheap; clones share the pool.
#[derive(Debug, Clone)]
pub struct {{ w.context }} {
    pool: SqlitePool,
    /// There is one writer at a time. Waiting here instead of in the database, writers come in
    /// their order and keep no connection from readers.
    writers: Arc<Mutex<()>>,
}

impl {{ w.context }} {
    /// Uses a pool of the application's own; [`connect`] makes one with the right settings.
    #[must_use]
    pub fn new(pool: SqlitePool) -> Self {
        Self {
            pool,
            writers: Arc::default(),
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
        const INSERT: &str = r#"
            INSERT INTO {{ w.conversations }}
                ({{ w.owner_first }}id, title, scope, metadata, inserted_at, updated_at)
            VALUES ({{ w.owner_value }}$1, $2, $3, $4, $5, $5)
            ON CONFLICT ({{ w.owner_first }}id) DO NOTHING
            RETURNING *"#;

        {{ w.take_owner }}
        if new.id.get_version_num() != 7 {
            return Err(Error::Invalid(format!("the id {} is no UUIDv7", new.id)));
        }
        let title = new.title.as_deref().map(clean_text);
        let metadata = clean_json(new.metadata)?;
        let created = retry(|| async {
            let mut tx = self.begin().await?;
            let created: Option<Conversation> = sqlx::query_as(INSERT){{ w.bind_owner }}
                .bind(new.id)
                .bind(&title)
                .bind(Json({{ w.owner_json }}))
                .bind(Json(&metadata))
                .bind(timestamp(now()))
                .fetch_optional(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(created)
        })
        .await?;
        match created {
            Some(conversation) => Ok(conversation),
            None => self.get_conversation(scope, new.id).await,
        }
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
                updated_at = $6
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
            let mut tx = self.begin().await?;
            let updated: Option<Conversation> = sqlx::query_as(UPDATE){{ w.bind_owner }}
                .bind(id)
                .bind(set_title)
                .bind(&title)
                .bind(set_metadata)
                .bind(Json(&metadata))
                .bind(timestamp(now()))
                .fetch_optional(&mut *tx)
                .await?;
            tx.commit().await?;
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
            let mut tx = self.begin().await?;
            let deleted = sqlx::query(DELETE){{ w.bind_owner }}
                .bind(id)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            tx.commit().await?;
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
            WHERE {{ w.owner_and }}(updated_at, id) < ($1, $2)
            ORDER BY updated_at DESC, id DESC LIMIT $3"#;
        const UPDATED_ASC: &str = r#"
            SELECT * FROM {{ w.conversations }}
            WHERE {{ w.owner_and }}(updated_at, id) > ($1, $2)
            ORDER BY updated_at, id LIMIT $3"#;
        const CREATED_DESC: &str = r#"
            SELECT * FROM {{ w.conversations }}
            WHERE {{ w.owner_and }}id < $2
            ORDER BY id DESC LIMIT $3"#;
        const CREATED_ASC: &str = r#"
            SELECT * FROM {{ w.conversations }}
            WHERE {{ w.owner_and }}id > $2
            ORDER BY id LIMIT $3"#;

        {{ w.take_owner }}
        let (sql, start) = match list.order_by {
            ConversationOrder::UpdatedDesc => (UPDATED_DESC, ConversationCursor::LAST),
            ConversationOrder::UpdatedAsc => (UPDATED_ASC, ConversationCursor::FIRST),
            ConversationOrder::CreatedDesc => (CREATED_DESC, ConversationCursor::LAST),
            ConversationOrder::CreatedAsc => (CREATED_ASC, ConversationCursor::FIRST),
        };
        let after = list.after.unwrap_or(start);
        let conversations = sqlx::query_as(sql){{ w.bind_owner }}
            .bind(timestamp(after.updated_at))
            .bind(after.id)
            .bind(list.limit.min(ListConversations::MAX_LIMIT))
            .fetch_all(&self.pool)
            .await?;
        Ok(conversations)
    }

    /// Deletes the conversations that nothing was written to since `cutoff`, of every owner. This
    /// is housekeeping, the one call without a scope. It goes through the table once, in batches,
    /// so that other writers get their turn. Returns how many there were.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database fails; the batches before that are deleted.
    pub async fn delete_conversations_before(&self, cutoff: DateTime<Utc>) -> Result<u64> {
        // The planner would go through an owner's rows for every batch; one by one it cannot.
{%- match w.owner %}
{%- when Some(owner) %}
        const SELECT: &str = r#"
            SELECT {{ owner.column }}, id, updated_at < $2 FROM {{ w.conversations }}
            WHERE ({{ owner.column }}, id) > ($0, $1)
            ORDER BY {{ owner.column }}, id LIMIT 1000"#;
        const DELETE: &str = r#"
            DELETE FROM {{ w.conversations }}
            WHERE {{ owner.column }} = $0 AND id = $1 AND updated_at < $2"#;

        let cutoff = timestamp(cutoff);
        let mut start = ({{ owner.least }}, Uuid::nil());
        let mut total = 0;
        loop {
            let mut batch: Vec<({{ owner.key_type }}, Uuid, bool)> = sqlx::query_as(SELECT)
                .bind({{ owner.borrow }}start.0)
                .bind(start.1)
                .bind(&cutoff)
                .fetch_all(&self.pool)
                .await?;
            let old: Vec<_> = batch.iter().filter(|(_, _, is_old)| *is_old).collect();
            if !old.is_empty() {
                total += retry(|| async {
                    let mut deleted = 0;
                    let mut tx = self.begin().await?;
                    for (owner, id, _) in &old {
                        let row = sqlx::query(DELETE).bind(owner).bind(id).bind(&cutoff);
                        deleted += row.execute(&mut *tx).await?.rows_affected();
                    }
                    tx.commit().await?;
                    Ok(deleted)
                })
                .await?;
            }
            match batch.pop() {
                Some((owner, id, _)) => start = (owner, id),
                None => return Ok(total),
            }
        }
{%- when None %}
        const SELECT: &str = r#"
            SELECT id, updated_at < $2 FROM {{ w.conversations }}
            WHERE id > $1 ORDER BY id LIMIT 1000"#;
        const DELETE: &str = r#"
            DELETE FROM {{ w.conversations }} WHERE id = $1 AND updated_at < $2"#;

        let cutoff = timestamp(cutoff);
        let mut start = Uuid::nil();
        let mut total = 0;
        loop {
            let mut batch: Vec<(Uuid, bool)> = sqlx::query_as(SELECT)
                .bind(start)
                .bind(&cutoff)
                .fetch_all(&self.pool)
                .await?;
            let old: Vec<_> = batch.iter().filter(|(_, is_old)| *is_old).collect();
            if !old.is_empty() {
                total += retry(|| async {
                    let mut deleted = 0;
                    let mut tx = self.begin().await?;
                    for (id, _) in &old {
                        let row = sqlx::query(DELETE).bind(id).bind(&cutoff);
                        deleted += row.execute(&mut *tx).await?.rows_affected();
                    }
                    tx.commit().await?;
                    Ok(deleted)
                })
                .await?;
            }
            match batch.pop() {
                Some((id, _)) => start = id,
                None => return Ok(total),
            }
        }
{%- endmatch %}
    }

    /// Begins a write when it is its turn. Taking the database's lock at once, a transaction cannot
    /// fail later because another one wrote meanwhile.
    async fn begin(&self) -> Result<Write> {
        let turn = Arc::clone(&self.writers).lock_owned().await;
        let transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        Ok(Write {
            transaction,
            _turn: turn,
        })
    }
}

/// A write that has its turn. It is undone unless it is committed.
struct Write {
    transaction: Transaction<'static, Sqlite>,
    _turn: OwnedMutexGuard<()>,
}

impl Write {
    async fn commit(self) -> Result<()> {
        Ok(self.transaction.commit().await?)
    }

    async fn rollback(self) -> Result<()> {
        Ok(self.transaction.rollback().await?)
    }
}

impl Deref for Write {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.transaction
    }
}

impl DerefMut for Write {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }
}

/// Repeats a write that lost its turn to others, a few times.
async fn retry<T, F>(write: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    const ATTEMPTS: u32 = 4;
    for attempt in 1..ATTEMPTS {
        match write().await {
            Err(Error::Database(error)) if is_busy(&error) => {
                tokio::time::sleep(Duration::from_millis(20) * 4_u32.pow(attempt)).await;
            }
            result => return result,
        }
    }
    write().await
}

/// Whether the database was busy with another writer: `SQLITE_BUSY`, in whatever variant.
fn is_busy(error: &sqlx::Error) -> bool {
    const SQLITE_BUSY: u32 = 5;
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    code.and_then(|code| code.parse::<u32>().ok())
        .is_some_and(|code| code & 0xff == SQLITE_BUSY)
}

/// Marks a conversation as written to, and thereby makes sure that the caller has it.
async fn touch(
    connection: &mut SqliteConnection,
    {{ w.owner_param }}
    conversation_id: Uuid,
) -> Result<()> {
    const TOUCH: &str = r#"
        UPDATE {{ w.conversations }} SET updated_at = $2 WHERE {{ w.owner_and }}id = $1"#;

    let touched = sqlx::query(TOUCH){{ w.bind_owner }}
        .bind(conversation_id)
        .bind(timestamp(now()))
        .execute(connection)
        .await?;
    if touched.rows_affected() == 0 {
        return Err(Error::NotFound);
    }
    Ok(())
}
