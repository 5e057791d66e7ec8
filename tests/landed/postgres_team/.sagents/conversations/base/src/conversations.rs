
//! Conversations with AI agents: who owns them, and what a person sees of them.
//!
//! [`Conversations`] is the one door to the tables. Every call takes the caller's scope first and
//! reaches only the rows of that team; what belongs to another is [`Error::NotFound`],
//! exactly like what does not exist. The tables hold to that by themselves: the owner leads every
//! key.
//!
//! Every call is one statement; only a save that is refused, or that expects anything, takes a
//! second. One that writes also authorises, takes its sequence numbers and touches the
//! conversation's `updated_at` in it, and locks the conversation first, so that writers of one
//! conversation come one after the other and never lock each other out.

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
use std::io::ErrorKind;
use std::str::FromStr as _;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Map;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::types::Json;
use sqlx::{ConnectOptions as _, Connection as _};
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
    /// The scope names no team.
    #[error("the scope has no team")]
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
    #[error("{}", explain(.0))]
    Database(sqlx::Error),
}

/// What the calls of this module answer.
pub type Result<T, E = Error> = std::result::Result<T, E>;


/// Opens a pool with the settings that this layer wants.
///
/// - At most 16 connections. Every call is one short statement, so these serve hundreds of agents;
///   a call that finds none free within ten seconds fails instead of waiting for ever.
/// - A connection is tested before use only if nobody used it for half a minute: a call is one
///   exchange with the server.
/// - The server ends a statement after 30 seconds, and one that waits for a lock after ten.
///   A URL with options of its own, such as `?options[statement_timeout]=5s`, has only those.
///
/// Behind `PgBouncer` in transaction mode, use 1.21 or later with `max_prepared_statements` set and
/// `ignore_startup_parameters = extra_float_digits, options`; the time-outs are then those of the
/// role (`ALTER ROLE … SET statement_timeout`).
///
/// # Errors
///
/// [`Error::Invalid`] if this is no URL of a `PostgreSQL` database, [`Error::Database`] if the
/// server cannot be reached or refuses.
pub async fn connect(url: &str) -> Result<PgPool> {
    if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        let expected = "the database URL must start with postgres://, as in postgres://role@host/database";
        return Err(Error::Invalid(expected.into()));
    }
    let mut options = PgConnectOptions::from_str(url)?;
    if options.get_options().is_none() {
        options = options.options([("statement_timeout", "30s"), ("lock_timeout", "10s")]);
    }
    open(options).await
}

/// Tries a connection, so that what is wrong shows now and not as a time-out of the pool.
async fn open(options: PgConnectOptions) -> Result<PgPool> {
    options.connect().await?.close().await?;
    let pool = PgPoolOptions::new()
        .max_connections(16)
        .acquire_timeout(Duration::from_secs(10))
        .test_before_acquire(false)
        .before_acquire(|connection, usage| {
            Box::pin(async move {
                if usage.idle_for > Duration::from_secs(30) {
                    connection.ping().await?;
                }
                Ok(true)
            })
        });
    Ok(pool.connect_lazy_with(options))
}

/// The conversations of an application. Cloning it is cheap; clones share the pool.
#[derive(Debug, Clone)]
pub struct Conversations {
    pool: PgPool,
}

impl Conversations {
    /// Uses a pool of the application's own; [`connect`] makes one with the right settings.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self {
            pool,
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
                ("team_id", id, title, scope, metadata, inserted_at, updated_at)
            VALUES ($1, $2, $3, $4, $5, $6, $6)
            ON CONFLICT ("team_id", id) DO UPDATE SET title = c.title
            RETURNING *"#;

        let owner = scope.owner()?;
        if new.id.get_version_num() != 7 {
            return Err(Error::Invalid(format!("the id {} is no UUIDv7", new.id)));
        }
        let title = new.title.as_deref().map(clean_text);
        let metadata = clean_json(new.metadata)?;
        retry(|| async {
            let created = sqlx::query_as(INSERT)
.bind(owner.id())
                .bind(new.id)
                .bind(&title)
                .bind(Json(owner.to_json()))
                .bind(Json(&metadata))
                .bind(timestamp(now()))
                .fetch_one(&self.pool)
                .await?;
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
            SELECT * FROM "sagents_conversations" WHERE "team_id" = $1 AND id = $2"#;

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
                updated_at = greatest(updated_at, $7)
            WHERE "team_id" = $1 AND id = $2
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
            let updated: Option<Conversation> = sqlx::query_as(UPDATE)
.bind(owner.id())
                .bind(id)
                .bind(set_title)
                .bind(&title)
                .bind(set_metadata)
                .bind(Json(&metadata))
                .bind(timestamp(now()))
                .fetch_optional(&self.pool)
                .await?;
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
            DELETE FROM "sagents_conversations" WHERE "team_id" = $1 AND id = $2"#;

        let owner = scope.owner()?;
        retry(|| async {
            let deleted = sqlx::query(DELETE)
.bind(owner.id())
                .bind(id)
                .execute(&self.pool)
                .await?
                .rows_affected();
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
            WHERE "team_id" = $1 AND (updated_at, id) < ($4, $3)
            ORDER BY updated_at DESC, id DESC LIMIT $2"#;
        const UPDATED_ASC: &str = r#"
            SELECT * FROM "sagents_conversations"
            WHERE "team_id" = $1 AND (updated_at, id) > ($4, $3)
            ORDER BY updated_at, id LIMIT $2"#;
        const CREATED_DESC: &str = r#"
            SELECT * FROM "sagents_conversations"
            WHERE "team_id" = $1 AND id < $3
            ORDER BY id DESC LIMIT $2"#;
        const CREATED_ASC: &str = r#"
            SELECT * FROM "sagents_conversations"
            WHERE "team_id" = $1 AND id > $3
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
        // For a key of both columns the planner looks at the first alone, and would read all that an
        // owner has for every batch.
        const DELETE: &str = r#"
            WITH own AS (
                SELECT "team_id", id, updated_at FROM "sagents_conversations"
                WHERE "team_id" = $1 AND id > $2 ORDER BY id LIMIT 1000
            ), others AS (
                SELECT "team_id", id, updated_at FROM "sagents_conversations"
                WHERE "team_id" > $1 ORDER BY "team_id", id LIMIT 1000
            ), batch AS (
                SELECT * FROM own UNION ALL SELECT * FROM others
                ORDER BY "team_id", id LIMIT 1000
            ), deleted AS (
                DELETE FROM "sagents_conversations" c USING batch b
                WHERE b.updated_at < $3 AND c.updated_at < $3
                  AND c."team_id" = b."team_id" AND c.id = b.id
                RETURNING c.id
            )
            SELECT "team_id", id, (SELECT count(*) FROM deleted) FROM batch
            ORDER BY "team_id" DESC, id DESC LIMIT 1"#;

        let cutoff = timestamp(cutoff);
        let mut start = (Uuid::nil(), Uuid::nil());
        let mut total = 0;
        loop {
            let batch: Option<(Uuid, Uuid, i64)> = retry(|| async {
                let batch = sqlx::query_as(DELETE)
                    .bind(start.0)
                    .bind(start.1)
                    .bind(cutoff);
                Ok(batch.fetch_optional(&self.pool).await?)
            })
            .await?;
            let Some((owner, id, deleted)) = batch else {
                return Ok(total);
            };
            start = (owner, id);
            total += deleted.unsigned_abs();
        }
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
                tokio::time::sleep(Duration::from_millis(5) * 4_u32.pow(attempt)).await;
            }
            result => return result,
        }
    }
    write().await
}


impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

/// What the database said, and what can be done about it.
fn explain(error: &sqlx::Error) -> String {
    let remedy = match error {
        sqlx::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
            "start the server, or correct host and port in the database URL"
        }
        sqlx::Error::Tls(_) => "enable a `tls-…` feature of sqlx",
        sqlx::Error::PoolTimedOut => "the server is down, or more calls are made than connections allow",
        _ => match code(error).as_deref() {
            Some("28P01" | "28000") => "correct role and password in the database URL",
            Some("3D000") => "create the database, for example with `sqlx database create`",
            Some("42501") => {
                "grant the role what it lacks: SELECT, INSERT, UPDATE and DELETE on sagents_*"
            }
            Some("42P01") => "run the migrations, for example with `sqlx migrate run`",
            Some("53300") => "allow more connections on the server, or fewer in its clients",
            _ => return error.to_string(),
        },
    };
    match error.as_database_error() {
        Some(error) => format!("{}: {remedy}", error.message()),
        None => format!("{error}: {remedy}"),
    }
}

/// Whether a statement did nothing because of another one at the same moment: a serialization
/// failure, a deadlock, or a message that both stored, which the next attempt finds.
fn is_collision(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("40001" | "40P01" | "23505"))
}

/// The SQLSTATE of an error that the database returned.
fn code(error: &sqlx::Error) -> Option<String> {
    let code = error.as_database_error()?.code()?;
    Some(code.into_owned())
}