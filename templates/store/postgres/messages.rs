//! The statements for display messages.

use std::sync::Arc;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Json;
use sqlx::{Executor as _, FromRow as _, Row as _};
use uuid::Uuid;

use super::super::{
    Delivery, DisplayMessage, Error, NewDisplayMessage, Owner, {% if group.is_some() %}Reach, {% endif %}Result, ToolStatus,
};
use super::super::messages::Items;
use super::super::page::{Bound, PageRows};
{% if group.is_some() %}use super::groups;
{% endif %}use super::lease::{Lease, Work, in_time};
use super::rows::{display_message_columns, joined_display_message, named};
use super::usage::{Counted, counted};
use super::{FOREIGN_KEY_VIOLATION, Store, UNIQUE_VIOLATION, code, now, retry, timestamp};
use crate::sagents::{MessageUsage, Timestamp, usage_of};

impl Store {
    pub(crate) async fn append_display_message(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        message: &NewDisplayMessage,
    ) -> Result<DisplayMessage> {
        let usage = usage_of(&message.metadata);
        let usage = usage.as_ref();
        let stored: DisplayMessage = retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let connection = lease.connection();
            let append = append(connection, owner, conversation_id, message, &APPEND, (Delivery::Stored, usage));
            let stored = match append.await {
                // The item exists, and the statement was undone.
                Err(error) if code(&error).as_deref() == Some(UNIQUE_VIOLATION) => {
                    let stored = stored_item(connection, owner, conversation_id, message).await?;
                    stored.ok_or(Error::Database(error))
                }
                appended => appended?.ok_or(Error::NotFound),
            };
            lease.end();
            stored
        })
        .await?;
        self.announce(conversation_id).await;
        Ok(stored)
    }

    /// Stores the items of one message. Those that exist are returned as they are, except texts that
    /// are not finished, which are replaced, or deleted if the message does not have them any more.
    pub(crate) async fn save_items(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        Items { message_id, messages, delivery, usage }: Items<'_>,
    ) -> Result<Vec<DisplayMessage>> {
        let items: Vec<_> = messages.iter().map(|new| new.item).collect();
        let roles: Vec<_> = messages.iter().map(|new| new.role.as_str()).collect();
        let types: Vec<_> = messages.iter().map(|new| new.content_type.as_str()).collect();
        let contents: Vec<_> = messages.iter().map(|new| new.content.as_str()).collect();
        let metadata: Vec<_> = messages.iter().map(|new| Json(&new.metadata)).collect();
        let calls: Vec<_> = messages.iter().map(|new| new.tool_call_id.as_deref()).collect();
        let statuses: Vec<_> = messages.iter().map(|new| new.status.map(ToolStatus::as_str)).collect();
        let stored: Vec<DisplayMessage> = retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            // A draft exists, except for the first time.
            if let ([message], true) = (messages, delivery != Delivery::Draft) {
                let connection = lease.connection();
                let append = append(connection, owner, conversation_id, message, &APPEND_NEW, (delivery, usage));
                if let Some(appended) = append.await? {
                    lease.end();
                    return Ok(vec![appended]);
                }
            }
            let [new, any] = if usage.is_some() { [SAVE_NEW_COUNTED, SAVE_COUNTED] } else { [SAVE_NEW, SAVE] };
            let is_new = messages.len() > 1 && delivery != Delivery::Draft;
            let mut stored: Vec<DisplayMessage> = Vec::new();
            for statement in is_new.then_some(new).into_iter().chain([any]) {
                let mut query = sqlx::query_as(statement)
                    .bind(conversation_id)
                    .bind(message_id)
                    .bind(&items)
                    .bind(&roles)
                    .bind(&types)
                    .bind(&contents)
                    .bind(&metadata)
                    .bind(&calls)
                    .bind(&statuses)
                    .bind(now())
                    .bind(delivery.as_stored()){% if owner.is_none() %};{% endif %}
{%- if owner.is_some() %}
                    .bind(owner.id());
{%- endif %}
                if let Some(usage) = usage {
                    query = query.bind(Json([Counted::new(message_id, usage)]));
                }
                stored = match query.fetch_all(lease.connection()).await {
                    // The conversation was deleted in between.
                    Err(error) if code(&error).as_deref() == Some(FOREIGN_KEY_VIOLATION) => {
                        lease.end();
                        return Err(Error::NotFound);
                    }
                    stored => stored?,
                };
                if !stored.is_empty() {
                    break;
                }
            }
            lease.end();
            stored.sort_by_key(|row| row.item);
            Ok(stored)
        })
        .await?;
        if stored.is_empty() {
            drop(self.get_conversation({% if group.is_some() %}&Reach::Owner(owner.clone()){% else %}owner{% endif %}, conversation_id).await?);
        }
        // A draft may have been deleted.
        self.announce(conversation_id).await;
        Ok(stored)
    }

    pub(crate) async fn unsettled_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<Vec<(Uuid, Delivery)>> {
        const SELECT: &str = r#"
            SELECT m.message_id, m.delivery FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $2 AND {% endif %}m.conversation_id = $1::uuid
              AND m.delivery IN ('draft', 'unsaved')"#;

        let mut rows: Vec<(Uuid, String)> = sqlx::query_as(SELECT)
            .bind(conversation_id)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .fetch_all(&self.pool)
            .await?;
        // A message may have several items.
        rows.sort();
        rows.dedup();
        let read = |(id, delivery): &(Uuid, String)| Ok((*id, named("delivery", delivery)?));
        rows.iter().map(read).collect()
    }

    pub(crate) async fn settle_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        messages: &[(Uuid, Delivery)],
    ) -> Result<Vec<DisplayMessage>> {
        // What is stored now and was unsaved keeps its number: readers need not get it again. If all
        // is, the conversation is locked and stays as it is.
        const SETTLE: &str = concat!(r#"
            WITH changing AS (
                SELECT m.sequence, m.delivery AS earlier, n.delivery AS later
                FROM {{ display_messages }} AS m,
                     unnest($2::uuid[], $3::text[]) AS n (message_id, delivery)
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = $1::uuid
                  AND m.message_id = n.message_id
                  AND CASE m.delivery
                      WHEN 'unsaved' THEN coalesce(n.delivery, 'unknown') = 'unknown'
                      WHEN 'unknown' THEN n.delivery IS NULL
                      WHEN 'draft' THEN n.delivery = 'interrupted'
                      ELSE FALSE
                  END
            ), visible AS (
                SELECT t.sequence FROM changing AS t
                WHERE t.earlier <> 'unsaved' OR t.later IS NOT NULL
            ), conversation AS (
                UPDATE {{ conversations }} AS c
                SET last_change = c.last_change + EXISTS (SELECT FROM visible)::integer,
                    updated_at = CASE
                        WHEN EXISTS (SELECT FROM visible) THEN greatest(c.updated_at, $4::timestamptz)
                        ELSE c.updated_at
                    END
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $5 AND {% endif %}c.id = $1::uuid
                  AND EXISTS (SELECT FROM changing)
                RETURNING c.id, c.last_change
            ), settled AS (
                UPDATE {{ display_messages }} AS m
                SET delivery = t.later,
                    changed = CASE
                        WHEN t.earlier = 'unsaved' AND t.later IS NULL THEN m.changed
                        ELSE c.last_change
                    END
                FROM conversation AS c, changing AS t
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $5 AND {% endif %}m.conversation_id = c.id
                  AND m.sequence = t.sequence AND m.delivery = t.earlier
                RETURNING "#, display_message_columns!(), r#"
            )
            SELECT EXISTS (
                SELECT FROM changing AS t WHERE t.sequence NOT IN (SELECT n.sequence FROM settled AS n)
            ) AS is_stale, "#, display_message_columns!(), r#"
            FROM conversation AS c
            LEFT JOIN settled AS m ON m.sequence IN (SELECT v.sequence FROM visible AS v)
            ORDER BY m.sequence"#);

        let ids: Vec<_> = messages.iter().map(|(id, _)| *id).collect();
        let deliveries: Vec<_> = messages.iter().map(|(_, delivery)| delivery.as_stored()).collect();
        let mut settled: Vec<DisplayMessage> = Vec::new();
        loop {
            let rows = retry(|| async {
                let mut lease = self.lease(owner, conversation_id).await?;
                let rows = sqlx::query(SETTLE)
                    .bind(conversation_id)
                    .bind(&ids)
                    .bind(&deliveries)
                    .bind(now())
{%- if owner.is_some() %}
                    .bind(owner.id())
{%- endif %}
                    .fetch_all(lease.connection())
                    .await?;
                lease.end();
                Ok(rows)
            })
            .await?;
            for row in &rows {
                settled.extend(joined_display_message(row)?);
            }
            let is_stale = rows.first().map(|row| row.try_get("is_stale")).transpose()?;
            if is_stale != Some(true) {
                break;
            }
            // A concurrent writer changed one of them: the next attempt sees how.
        }
        if !settled.is_empty() {
            self.announce(conversation_id).await;
        }
        Ok(settled)
    }

    pub(crate) async fn load_display_messages(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        conversation_id: Uuid,
        bound: Bound,
        rows: &mut PageRows,
    ) -> Result<()> {
        // The left join tells a conversation without messages from one that does not exist.
        const FORWARD: &str = concat!("SELECT ", display_message_columns!(), r#"
            FROM {{ conversations }} AS c
            LEFT JOIN (
                SELECT "#, display_message_columns!(), r#"
                FROM {{ display_messages }} AS m
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $4 AND {% endif %}m.conversation_id = $1::uuid AND m.sequence > $2::bigint
                ORDER BY m.sequence LIMIT $3::bigint
            ) AS m ON TRUE
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.id = $1::uuid
            ORDER BY m.sequence"#);
        const BACKWARD: &str = concat!("SELECT ", display_message_columns!(), r#"
            FROM {{ conversations }} AS c
            LEFT JOIN (
                SELECT "#, display_message_columns!(), r#"
                FROM {{ display_messages }} AS m
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $4 AND {% endif %}m.conversation_id = $1::uuid AND m.sequence < $2::bigint
                ORDER BY m.sequence DESC LIMIT $3::bigint
            ) AS m ON TRUE
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $4 AND {% endif %}c.id = $1::uuid
            ORDER BY m.sequence DESC"#);

        let (sql, sequence) = match bound {
            Bound::After(sequence) => (FORWARD, sequence),
            Bound::Before(sequence) => (BACKWARD, sequence),
        };
{%- if group.is_some() %}
        let owner = &groups::owner_of(&self.pool, reach, conversation_id).await?;
{%- endif %}
        let found = sqlx::query(sql)
            .bind(conversation_id)
            .bind(sequence)
            .bind(i64::from(rows.to_read()))
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
            .try_map(|row: PgRow| rows.take(|| joined_display_message(&row)))
            .fetch_all(&self.pool)
            .await?;
        if found.is_empty() {
            return Err(Error::NotFound);
        }
        Ok(())
    }

    pub(crate) async fn clear_display_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<u64> {
        const CLEAR: &str = r#"
            WITH conversation AS (
                UPDATE {{ conversations }} AS c
                SET last_change = c.last_change + 1,
                    last_removal = c.last_change + 1,
                    updated_at = greatest(c.updated_at, $2::timestamptz)
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $3 AND {% endif %}c.id = $1::uuid
                RETURNING c.id
            ), deleted AS (
                DELETE FROM {{ display_messages }} AS m USING conversation AS c
                WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $3 AND {% endif %}m.conversation_id = c.id
                RETURNING m.sequence
            )
            SELECT (SELECT count(*) FROM deleted) FROM conversation AS c"#;

        let deleted: i64 = retry(|| async {
            let mut lease = self.lease(owner, conversation_id).await?;
            let deleted = sqlx::query_scalar(CLEAR)
                .bind(conversation_id)
                .bind(now())
{%- if owner.is_some() %}
                .bind(owner.id())
{%- endif %}
                .fetch_optional(lease.connection())
                .await?;
            lease.end();
            deleted.ok_or(Error::NotFound)
        })
        .await?;
        self.announce(conversation_id).await;
        Ok(deleted.unsigned_abs())
    }

    pub(crate) async fn search_messages(
        &self,
        {% if group.is_some() %}reach: &Reach{% else %}owner: &Owner{% endif %},
        text: &str,
        (time, id, sequence): (Timestamp, Uuid, i64),
        rows: &mut PageRows,
    ) -> Result<()> {
        // For this transaction, a limit of ten seconds or the lower one that holds already.
        const BEGIN: &str = "
            BEGIN; SELECT set_config('statement_timeout', least(10000, nullif(1000 * extract(
                epoch FROM current_setting('statement_timeout')::interval
            ), 0))::integer::text, TRUE)";
        // ILIKE is fast but ignores only the case of ASCII letters in this collation; the regular
        // expression decides. Its time does not grow with the length of the text that is searched
        // for, and it can be cancelled.
        const SEARCH: &str = concat!("SELECT ", display_message_columns!(), r#"
            FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $7 AND {% endif %}m.content COLLATE "C" ILIKE $1::text ESCAPE '\'
              AND m.content ~ $2::text
              AND (m.inserted_at, m.conversation_id, m.sequence)
                  < ($4::timestamptz, $5::uuid, $6::bigint)
            ORDER BY m.inserted_at DESC, m.conversation_id DESC, m.sequence DESC LIMIT $3::bigint"#);
{%- if group.is_some() %}

        groups::check_member(&self.pool, reach).await?;
{%- endif %}

        let turn = self.turns.take({% if group.is_some() %}reach{% else %}owner{% endif %}, Work::Searches).await?;
        let permit = in_time(Arc::clone(&self.searches).acquire_owned()).await?;
        let mut lease = Lease::take(&self.pool, (turn, permit)).await?;
        lease.connection().execute(BEGIN).await.map(drop)?;
{%- if group.is_some() %}
        let sql = match reach {
            Reach::Owner(_) | Reach::Member(..) => SEARCH,
            Reach::Group(_) => groups::SEARCH,
        };
        let query = sqlx::query(sql)
{%- else %}
        sqlx::query(SEARCH)
{%- endif %}
            .bind(like_pattern(text))
            .bind(regex_pattern(text))
            .bind(i64::from(rows.to_read()))
            .bind(timestamp(time))
            .bind(id)
{%- if group.is_some() %}
            .bind(sequence);
        let query = match reach {
            Reach::Owner(owner) | Reach::Member(_, owner) => query.bind(owner.id()),
            Reach::Group(group) => query.bind(group.id()),
        };
        query
{%- else %}
            .bind(sequence)
{%- if owner.is_some() %}
            .bind(owner.id())
{%- endif %}
{%- endif %}
            .try_map(|row: PgRow| rows.take(|| DisplayMessage::from_row(&row).map(Some)))
            .fetch_all(lease.connection())
            .await
            .map(drop)?;
        lease.connection().execute("COMMIT").await.map(drop)?;
        lease.end();
        Ok(())
    }
}

/// Stores the items of a message of which nothing is stored; nothing happens otherwise. Most messages
/// are stored once, and this takes less time than `SAVE`.
macro_rules! save_new {
    ($counted:expr) => { concat!(r#"
    WITH new AS (
        SELECT n.item, n.role, n.content_type, n.content, n.metadata, n.tool_call_id, n.status,
               row_number() OVER (ORDER BY n.item) AS place
        FROM unnest(
            $3::integer[], $4::text[], $5::text[], $6::text[], $7::jsonb[], $8::text[],
            $9::text[]
        ) AS n (item, role, content_type, content, metadata, tool_call_id, status)
    ), conversation AS (
        UPDATE {{ conversations }} AS c
        SET next_sequence = c.next_sequence + cardinality($3::integer[]),
            last_change = c.last_change + 1,
            updated_at = greatest(c.updated_at, $10::timestamptz)
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $12 AND {% endif %}c.id = $1::uuid AND NOT EXISTS (
            SELECT FROM {{ display_messages }} AS m
            WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $12 AND {% endif %}m.conversation_id = $1::uuid
              AND m.message_id = $2::uuid
        )
        RETURNING c.id, c.updated_at, c.last_change,
                  c.next_sequence - cardinality($3::integer[]) - 1 AS last_sequence{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
    )"#, $counted, r#"
    INSERT INTO {{ display_messages }} AS m
        (conversation_id, sequence, message_id, item, role, content_type, content,
         metadata, tool_call_id, status, inserted_at, changed, delivery{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
    SELECT c.id, c.last_sequence + n.place, $2::uuid, n.item, n.role, n.content_type,
           n.content, n.metadata, n.tool_call_id, n.status, c.updated_at, c.last_change,
           $11::text{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
    FROM conversation AS c, new AS n
    RETURNING "#, display_message_columns!()) };
}

const SAVE_NEW: &str = save_new!("");
const SAVE_NEW_COUNTED: &str = save_new!(counted!(
    "conversation",
    "$10",
    "${% if owner.is_some() %}13{% else %}12{% endif %}"
));

/// Stores the items of a message. Only missing ones take a sequence, and the conversation is touched
/// only if something changes: a draft is `refused` if the message has a finished item. If a concurrent
/// writer inserts one of them first, the unique key undoes the statement, and the next attempt finds
/// that item.
///
/// Readers forget the drafts of a message when they get a row of it that is not one. Of what else is
/// deleted they learn by a removal, whose number the last row that stays gets, as in a rewind.
macro_rules! save {
    ($counted:expr) => { concat!(r#"
    WITH present AS (
        SELECT "#, display_message_columns!(), r#"
        FROM {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $12 AND {% endif %}m.conversation_id = $1::uuid
          AND m.message_id = $2::uuid
    ), refused AS (
        SELECT m.item FROM present AS m
        WHERE $11::text = 'draft' AND coalesce(m.delivery, '') NOT IN ('draft', 'interrupted')
    ), unfinished AS (
        SELECT m.sequence, m.item, m.delivery FROM present AS m
        WHERE m.delivery IN ('draft', 'interrupted') AND NOT EXISTS (SELECT FROM refused)
    ), new AS (
        SELECT n.item, n.role, n.content_type, n.content, n.metadata, n.tool_call_id, n.status
        FROM unnest(
            $3::integer[], $4::text[], $5::text[], $6::text[], $7::jsonb[], $8::text[],
            $9::text[]
        ) AS n (item, role, content_type, content, metadata, tool_call_id, status)
        WHERE NOT EXISTS (SELECT FROM refused)
    ), missing AS (
        SELECT n.item, n.role, n.content_type, n.content, n.metadata, n.tool_call_id,
               n.status, row_number() OVER (ORDER BY n.item) AS place
        FROM new AS n WHERE n.item NOT IN (SELECT m.item FROM present AS m)
    ), removal AS (
        SELECT u.sequence FROM unfinished AS u
        WHERE u.item <> ALL ($3::integer[]) AND (
            u.delivery = 'interrupted' OR $11::text = 'draft'
            OR NOT EXISTS (SELECT FROM missing) AND NOT EXISTS (
                SELECT FROM unfinished AS n WHERE n.item = ANY ($3::integer[])
            )
        )
    ), conversation AS (
        UPDATE {{ conversations }} AS c
        SET next_sequence = c.next_sequence + (SELECT count(*) FROM missing),
            last_change = c.last_change + 1,
            last_removal = CASE
                WHEN EXISTS (SELECT FROM removal) THEN c.last_change + 1
                ELSE c.last_removal
            END,
            updated_at = greatest(c.updated_at, $10::timestamptz)
        WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $12 AND {% endif %}c.id = $1::uuid
          AND (EXISTS (SELECT FROM missing) OR EXISTS (SELECT FROM unfinished))
        RETURNING c.id, c.updated_at, c.last_change,
                  c.next_sequence - (SELECT count(*) FROM missing) - 1 AS last_sequence{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
    ), inserted AS (
        INSERT INTO {{ display_messages }} AS m
            (conversation_id, sequence, message_id, item, role, content_type, content,
             metadata, tool_call_id, status, inserted_at, changed, delivery{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT c.id, c.last_sequence + n.place, $2::uuid, n.item, n.role, n.content_type,
               n.content, n.metadata, n.tool_call_id, n.status, c.updated_at, c.last_change,
               $11::text{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
        FROM conversation AS c, missing AS n
        RETURNING "#, display_message_columns!(), r#"
    ), replaced AS (
        UPDATE {{ display_messages }} AS m
        SET role = n.role, content_type = n.content_type, content = n.content,
            metadata = n.metadata, tool_call_id = n.tool_call_id, status = n.status,
            changed = c.last_change, delivery = $11::text
        FROM conversation AS c, unfinished AS u, new AS n
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $12 AND {% endif %}m.conversation_id = c.id AND m.sequence = u.sequence
          AND m.item = n.item AND m.delivery IN ('draft', 'interrupted')
        RETURNING "#, display_message_columns!(), r#"
    ), deleted AS (
        DELETE FROM {{ display_messages }} AS m USING conversation AS c, unfinished AS u
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $12 AND {% endif %}m.conversation_id = c.id AND m.sequence = u.sequence
          AND m.item <> ALL ($3::integer[]) AND m.delivery IN ('draft', 'interrupted')
        RETURNING m.sequence
    ), touched AS (
        UPDATE {{ display_messages }} AS m SET changed = c.last_change
        FROM conversation AS c
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $12 AND {% endif %}m.conversation_id = c.id AND m.sequence = (
            SELECT max(n.sequence) FROM {{ display_messages }} AS n
            WHERE {% if let Some(owner) = owner %}n.{{ owner }} = $12 AND {% endif %}n.conversation_id = $1::uuid AND n.sequence NOT IN (
                SELECT u.sequence FROM unfinished AS u WHERE u.item <> ALL ($3::integer[])
            )
        ) AND EXISTS (SELECT FROM removal) AND NOT EXISTS (SELECT FROM missing)
          AND m.sequence NOT IN (SELECT u.sequence FROM unfinished AS u)
        RETURNING "#, display_message_columns!(), r#"
    )"#, $counted, r#"
    SELECT "#, display_message_columns!(), r#" FROM present AS m
    WHERE m.sequence NOT IN (SELECT n.sequence FROM replaced AS n)
      AND m.sequence NOT IN (SELECT n.sequence FROM deleted AS n)
      AND m.sequence NOT IN (SELECT n.sequence FROM touched AS n)
    UNION ALL
    SELECT "#, display_message_columns!(), r#" FROM touched AS m WHERE m.message_id = $2::uuid
    UNION ALL
    SELECT "#, display_message_columns!(), r#" FROM replaced AS m
    UNION ALL
    SELECT "#, display_message_columns!(), r#" FROM inserted AS m
    ORDER BY item"#) };
}

const SAVE: &str = save!("");
const SAVE_COUNTED: &str = save!(counted!(
    r#"(
                SELECT c.id{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %} FROM {{ conversations }} AS c
                WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $12 AND {% endif %}c.id = $1::uuid
            )"#,
    "$10",
    "${% if owner.is_some() %}13{% else %}12{% endif %}"
));

/// The statements that append an item, without and with its usage.
struct Append {
    statement: &'static str,
    counted: &'static str,
}

macro_rules! append {
    ($condition:literal, $counted:expr) => { concat!(r#"
        WITH conversation AS (
            UPDATE {{ conversations }} AS c
            SET next_sequence = c.next_sequence + 1, last_change = c.last_change + 1,
                updated_at = greatest(c.updated_at, $10::timestamptz)
            WHERE {% if let Some(owner) = owner %}c.{{ owner }} = $12 AND {% endif %}c.id = $1::uuid"#, $condition, r#"
            RETURNING c.id, c.next_sequence - 1 AS sequence, c.last_change, c.updated_at{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
        )"#, $counted, r#"
        INSERT INTO {{ display_messages }} AS m
            (conversation_id, sequence, message_id, item, role, content_type, content, metadata,
             tool_call_id, status, inserted_at, changed, delivery{% if let Some(owner) = owner %}, {{ owner }}{% endif %})
        SELECT c.id, c.sequence, $2::uuid, $3::integer, $4::text, $5::text, $6::text, $7::jsonb,
               $8::text, $9::text, c.updated_at, c.last_change, $11::text{% if let Some(owner) = owner %}, c.{{ owner }}{% endif %}
        FROM conversation AS c
        RETURNING "#, display_message_columns!()) };
    ($condition:literal) => {
        Append {
            statement: append!($condition, ""),
            counted: append!(
                $condition,
                counted!("conversation", "$10", "${% if owner.is_some() %}13{% else %}12{% endif %}")
            ),
        }
    };
}

const APPEND: Append = append!("");

/// Only if no item of the message is stored.
const APPEND_NEW: Append = append!(r#"
              AND NOT EXISTS (
                  SELECT FROM {{ display_messages }} AS m
                  WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $12 AND {% endif %}m.conversation_id = $1::uuid
                    AND m.message_id = $2::uuid
              )"#);

/// Appends an item, or returns nothing if there is no such conversation.
async fn append(
    connection: &mut PgConnection,
    owner: &Owner,
    conversation_id: Uuid,
    message: &NewDisplayMessage,
    append: &Append,
    (delivery, usage): (Delivery, Option<&MessageUsage>),
) -> sqlx::Result<Option<DisplayMessage>> {
    let statement = if usage.is_some() { append.counted } else { append.statement };
    let mut query = sqlx::query_as(statement)
        .bind(conversation_id)
        .bind(message.message_id)
        .bind(message.item)
        .bind(message.role.as_str())
        .bind(message.content_type.as_str())
        .bind(&message.content)
        .bind(Json(&message.metadata))
        .bind(&message.tool_call_id)
        .bind(message.status.map(ToolStatus::as_str))
        .bind(now())
        .bind(delivery.as_stored()){% if owner.is_none() %};{% endif %}
{%- if owner.is_some() %}
        .bind(owner.id());
{%- endif %}
    if let Some(usage) = usage {
        query = query.bind(Json([Counted::new(message.message_id, usage)]));
    }
    query.fetch_optional(connection).await
}

/// The item, if it is stored.
async fn stored_item(
    connection: &mut PgConnection,
    owner: &Owner,
    conversation_id: Uuid,
    message: &NewDisplayMessage,
) -> Result<Option<DisplayMessage>> {
    const SELECT: &str = concat!("SELECT ", display_message_columns!(), r#"
        FROM {{ display_messages }} AS m
        WHERE {% if let Some(owner) = owner %}m.{{ owner }} = $4 AND {% endif %}m.conversation_id = $1::uuid
          AND m.message_id = $2::uuid AND m.item = $3::integer"#);

    let stored = sqlx::query_as(SELECT)
        .bind(conversation_id)
        .bind(message.message_id)
        .bind(message.item)
{%- if owner.is_some() %}
        .bind(owner.id())
{%- endif %}
        .fetch_optional(connection)
        .await?;
    Ok(stored)
}

/// A pattern for ILIKE, which ignores the case of ASCII letters only: other letters that have a
/// case match anything. It has only the beginning of the text: the time of ILIKE grows with its
/// length, and the server cannot cancel it within a message.
fn like_pattern(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.chars().take(16) {
        match c {
            '%' | '_' | '\\' => pattern.extend(['\\', c]),
            _ if !c.is_ascii() && cases(c).len() > c.len_utf8() => pattern.push('_'),
            _ => pattern.push(c),
        }
    }
    pattern.push('%');
    pattern
}

/// A regular expression, which does not ignore case: every letter becomes a class of its cases.
fn regex_pattern(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        let cases = cases(c);
        if cases.len() > c.len_utf8() {
            pattern.push('[');
            pattern.push_str(&cases);
            pattern.push(']');
        } else {
            if c.is_ascii_punctuation() {
                pattern.push('\\');
            }
            pattern.push(c);
        }
    }
    pattern
}

/// A letter with its other case, if that is a single letter too.
fn cases(c: char) -> String {
    let mut cases = String::from(c);
    for other in [c.to_lowercase().to_string(), c.to_uppercase().to_string()] {
        if other.chars().count() == 1 && !cases.contains(&other) {
            cases += &other;
        }
    }
    cases
}
