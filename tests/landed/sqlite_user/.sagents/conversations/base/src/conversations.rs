
//! Conversations with AI agents: who owns them, and what a person sees of them.
//!
//! [`Conversations`] is the one door to the tables. Every call takes the caller's scope first and
//! reaches only the rows of that user; what belongs to another is [`Error::NotFound`],
//! exactly like what does not exist. The tables hold to that by themselves: the owner leads every
//! key.
//!
//! Every write is one transaction that takes the write lock when it begins, so two writers never
//! work on the same conversation at once, and touches the conversation's `updated_at`.

mod agent_state;
mod conversation;
mod display_message;
mod messages;
mod scope;
mod sessions;
mod states;
#[cfg(test)]
mod tests;
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
    /// There is no such row, or it belongs to another owner.
    #[error("not found")]
    NotFound,
    /// The scope names no user.
    #[error("the scope has no user")]
    NoOwner,
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
pub struct Conversations {
    pool: SqlitePool,
    /// There is one writer at a time. Waiting here instead of in the database, writers come in
    /// their order and keep no connection from readers.
    writers: Arc<Mutex<()>>,
}

impl Conversations {
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
        // The update changes nothing: with it the row that is there already is returned.
        const INSERT: &str = r#"
            INSERT INTO "sagents_conversations" AS c
                ("user_id", id, title, scope, metadata, inserted_at, updated_at)
            VALUES ($1, $2, $3, $4, $5, $6, $6)
            ON CONFLICT ("user_id", id) DO UPDATE SET title = c.title
            RETURNING *"#;

        let owner = scope.owner()?;
        if new.id.get_version_num() != 7 {
            return Err(Error::Invalid(format!("the id {} is no UUIDv7", new.id)));
        }
        let title = new.title.as_deref().map(clean_text);
        let metadata = clean_json(new.metadata)?;
        retry(|| async {
            let mut tx = self.begin().await?;
let created = sqlx::query_as(INSERT)
.bind(owner.id())
                .bind(new.id)
                .bind(&title)
                .bind(Json(owner.to_json()))
                .bind(Json(&metadata))
                .bind(timestamp(now()))
                .fetch_one(&mut *tx)
                .await?;
tx.commit().await?;
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
            SELECT * FROM "sagents_conversations" WHERE "user_id" = $1 AND id = $2"#;

        let owner = scope.owner()?;
        sqlx::query_as(SELECT)
.bind(owner.id())
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
            UPDATE "sagents_conversations"
            SET title = CASE WHEN $3 THEN $4 ELSE title END,
                metadata = CASE WHEN $5 THEN $6 ELSE metadata END,
                updated_at = $7
            WHERE "user_id" = $1 AND id = $2
            RETURNING *"#;

        let owner = scope.owner()?;
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
let updated: Option<Conversation> = sqlx::query_as(UPDATE)
.bind(owner.id())
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
            DELETE FROM "sagents_conversations" WHERE "user_id" = $1 AND id = $2"#;

        let owner = scope.owner()?;
        retry(|| async {
            let mut tx = self.begin().await?;
let deleted = sqlx::query(DELETE)
.bind(owner.id())
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
            SELECT * FROM "sagents_conversations"
            WHERE "user_id" = $1 AND (updated_at, id) < ($4, $3)
            ORDER BY updated_at DESC, id DESC LIMIT $2"#;
        const UPDATED_ASC: &str = r#"
            SELECT * FROM "sagents_conversations"
            WHERE "user_id" = $1 AND (updated_at, id) > ($4, $3)
            ORDER BY updated_at, id LIMIT $2"#;
        const CREATED_DESC: &str = r#"
            SELECT * FROM "sagents_conversations"
            WHERE "user_id" = $1 AND id < $3
            ORDER BY id DESC LIMIT $2"#;
        const CREATED_ASC: &str = r#"
            SELECT * FROM "sagents_conversations"
            WHERE "user_id" = $1 AND id > $3
            ORDER BY id LIMIT $2"#;

        let owner = scope.owner()?;
        let (sql, start, by_time) = match list.order_by {
            ConversationOrder::UpdatedDesc => (UPDATED_DESC, ConversationCursor::LAST, true),
            ConversationOrder::UpdatedAsc => (UPDATED_ASC, ConversationCursor::FIRST, true),
            ConversationOrder::CreatedDesc => (CREATED_DESC, ConversationCursor::LAST, false),
            ConversationOrder::CreatedAsc => (CREATED_ASC, ConversationCursor::FIRST, false),
        };
        let after = list.after.unwrap_or(start);
        let mut query = sqlx::query_as(sql)
.bind(owner.id())
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
        // The planner would go through an owner's rows for every batch; one by one it cannot.
        const SELECT: &str = r#"
            SELECT "user_id", id, updated_at < $3 FROM "sagents_conversations"
            WHERE ("user_id", id) > ($1, $2)
            ORDER BY "user_id", id LIMIT 1000"#;
        const DELETE: &str = r#"
            DELETE FROM "sagents_conversations"
            WHERE "user_id" = $1 AND id = $2 AND updated_at < $3"#;

        let cutoff = timestamp(cutoff);
        let mut start = (i64::MIN, Uuid::nil());
        let mut total = 0;
        loop {
            let mut batch: Vec<(i64, Uuid, bool)> = sqlx::query_as(SELECT)
                .bind(start.0)
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

/// Repeats a write that met another one, a few times.
async fn retry<T, F>(write: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    const ATTEMPTS: u32 = 4;
    for attempt in 1..ATTEMPTS {
        match write().await {
            Err(Error::Database(error)) if is_collision(&error) => {
                tokio::time::sleep(Duration::from_millis(20) * 4_u32.pow(attempt)).await;
            }
            result => return result,
        }
    }
    write().await
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

/// Whether the database was busy with another writer.
fn is_collision(error: &sqlx::Error) -> bool {
    const SQLITE_BUSY: u32 = 5;
    code(error) == Some(SQLITE_BUSY)
}

/// The code of an error that the database returned, without its variant.
fn code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?;
    Some(code.parse::<u32>().ok()? & 0xff)
}

/// Marks a conversation as written to, and thereby makes sure that the caller has it.
async fn touch(
    connection: &mut SqliteConnection,
    owner: &Owner,
    conversation_id: Uuid,
) -> Result<()> {
    const TOUCH: &str = r#"
        UPDATE "sagents_conversations" SET updated_at = $3 WHERE "user_id" = $1 AND id = $2"#;

    let touched = sqlx::query(TOUCH)
.bind(owner.id())
        .bind(conversation_id)
        .bind(timestamp(now()))
        .execute(connection)
        .await?;
    if touched.rows_affected() == 0 {
        return Err(Error::NotFound);
    }
    Ok(())
}