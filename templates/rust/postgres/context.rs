{% extends "rust/context.rs" %}

{% block manner %}
//! Every call is one statement; only a save that is refused, or that expects anything, takes a
//! second. One that writes also authorises, takes its sequence numbers and touches the
//! conversation's `updated_at` in it, and locks the conversation first, so that writers of one
//! conversation come one after the other and never lock each other out.
{%- endblock %}

{% block uses %}
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
{%- endblock %}

{% block database_error %}
    #[error("{}", explain(.0))]
    Database(sqlx::Error),
{%- endblock %}

{% block connect %}
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
{%- endblock %}

{% block housekeeping %}
{%- match w.owner %}
{%- when Some(owner) %}
        // For a key of both columns the planner looks at the first alone, and would read all that an
        // owner has for every batch.
        const DELETE: &str = r#"
            WITH own AS (
                SELECT {{ owner.column }}, id, updated_at FROM {{ w.conversations }}
                WHERE {{ owner.column }} = $0 AND id > $1 ORDER BY id LIMIT 1000
            ), others AS (
                SELECT {{ owner.column }}, id, updated_at FROM {{ w.conversations }}
                WHERE {{ owner.column }} > $0 ORDER BY {{ owner.column }}, id LIMIT 1000
            ), batch AS (
                SELECT * FROM own UNION ALL SELECT * FROM others
                ORDER BY {{ owner.column }}, id LIMIT 1000
            ), deleted AS (
                DELETE FROM {{ w.conversations }} c USING batch b
                WHERE b.updated_at < $2 AND c.updated_at < $2
                  AND c.{{ owner.column }} = b.{{ owner.column }} AND c.id = b.id
                RETURNING c.id
            )
            SELECT {{ owner.column }}, id, (SELECT count(*) FROM deleted) FROM batch
            ORDER BY {{ owner.column }} DESC, id DESC LIMIT 1"#;

        let cutoff = timestamp(cutoff);
        let mut start = ({{ owner.least }}, Uuid::nil());
        let mut total = 0;
        loop {
            let batch: Option<({{ owner.key_type }}, Uuid, i64)> = retry(|| async {
                let batch = sqlx::query_as(DELETE)
                    .bind({{ owner.borrow }}start.0)
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
{%- when None %}
        const DELETE: &str = r#"
            WITH batch AS (
                SELECT id, updated_at FROM {{ w.conversations }}
                WHERE id > $1 ORDER BY id LIMIT 1000
            ), deleted AS (
                DELETE FROM {{ w.conversations }} c USING batch b
                WHERE b.updated_at < $2 AND c.updated_at < $2 AND c.id = b.id
                RETURNING c.id
            )
            SELECT id, (SELECT count(*) FROM deleted) FROM batch ORDER BY id DESC LIMIT 1"#;

        let cutoff = timestamp(cutoff);
        let mut start = Uuid::nil();
        let mut total = 0;
        loop {
            let batch: Option<(Uuid, i64)> = retry(|| async {
                let batch = sqlx::query_as(DELETE).bind(start).bind(cutoff);
                Ok(batch.fetch_optional(&self.pool).await?)
            })
            .await?;
            let Some((id, deleted)) = batch else {
                return Ok(total);
            };
            start = id;
            total += deleted.unsigned_abs();
        }
{%- endmatch %}
{%- endblock %}

{% block writes %}
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
                "grant the role what it lacks: SELECT, INSERT, UPDATE and DELETE on {{ w.prefix }}*"
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
{%- endblock %}
