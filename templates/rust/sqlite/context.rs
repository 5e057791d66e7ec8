{% extends "rust/context.rs" %}

{% block manner %}
//! Every write is one transaction that takes the write lock when it begins, so two writers never
//! work on the same conversation at once, and touches the conversation's `updated_at`.
{%- endblock %}

{% block database_error %}
    #[error(transparent)]
    Database(#[from] sqlx::Error),
{%- endblock %}

{% block field %}
    /// There is one writer at a time. Waiting here instead of in the database, writers come in
    /// their order and keep no connection from readers.
    writers: Arc<Mutex<()>>,
{%- endblock %}

{% block field_value %}
            writers: Arc::default(),
{%- endblock %}

{% block uses %}
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
{%- endblock %}

{% block connect %}
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
{%- endblock %}

{% block housekeeping %}
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
{%- endblock %}

{% block begin %}
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
{%- endblock %}

{% block writes %}
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
{%- endblock %}
