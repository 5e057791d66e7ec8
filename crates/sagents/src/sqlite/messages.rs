//! The statements for display messages.

use futures_util::TryStreamExt as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::types::Json;
use uuid::Uuid;

use super::Driver;
use crate::page::{Bound, PageRows};
use crate::rows::{Columns as _, size, stored_item};
use crate::statement::statements;
use crate::store::messages::{ItemChanges, Items, Settled, StoredItem, settled};
use crate::{Delivery, Error, MessagePage, NewDisplayMessage, Owner, Result, Timestamp, ToolStatus, usage_of};

statements! {
    pub(super) struct DisplayMessages {
        /// The clock may go back; the times of a conversation's messages don't.
        take: "
            UPDATE {conversations} AS c
            SET next_sequence = c.next_sequence + $2, last_change = c.last_change + 1,
                updated_at = max(c.updated_at, $3)
            WHERE c.{owner} = $4 AND c.id = $1
            RETURNING last_change, next_sequence - $2 AS first, updated_at",
        /// If no item of the message is stored.
        take_new: "
            UPDATE {conversations} AS c
            SET next_sequence = c.next_sequence + $2, last_change = c.last_change + 1,
                updated_at = max(c.updated_at, $3)
            WHERE c.{owner} = $5 AND c.id = $1 AND NOT EXISTS (
                SELECT 1 FROM {display_messages} AS m
                WHERE m.{owner} = $5 AND m.conversation_id = $1
                  AND m.message_id = $4 AND m.item >= 0
            )
            RETURNING last_change, next_sequence - $2 AS first, updated_at",
        insert: "
            INSERT INTO {display_messages}
                ({owner}, conversation_id, sequence, message_id, item, role, content_type, content,
                 metadata, tool_call_id, status, inserted_at, changed, delivery)
            VALUES ($14, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
            ON CONFLICT ({owner}, conversation_id, message_id, item) DO NOTHING
            RETURNING {display_message_columns}",
        items: "
            SELECT {m.display_message_columns} FROM {display_messages} AS m
            WHERE m.{owner} = $3 AND m.conversation_id = $1 AND m.message_id = $2
            ORDER BY m.item",
        replace: "
            UPDATE {display_messages} AS m
            SET role = $3, content_type = $4, content = $5, metadata = $6, tool_call_id = $7,
                status = $8, changed = $9, delivery = $10
            WHERE m.{owner} = $11 AND m.conversation_id = $1 AND m.sequence = $2",
        delete: "
            DELETE FROM {display_messages} AS m
            WHERE m.{owner} = $3 AND m.conversation_id = $1 AND m.sequence = $2",
        removed: "
            UPDATE {conversations} AS c SET last_removal = $2
            WHERE c.{owner} = $3 AND c.id = $1",
        touch_last: "
            UPDATE {display_messages} AS m SET changed = $2
            WHERE m.{owner} = $3 AND m.conversation_id = $1 AND m.sequence = (
                SELECT max(n.sequence) FROM {display_messages} AS n
                WHERE n.{owner} = $3 AND n.conversation_id = $1
            )",
        /// Without the `+`, `SQLite` would read all messages of the conversation, in this order.
        unsettled: "
            SELECT DISTINCT m.message_id, m.delivery FROM {display_messages} AS m
            WHERE m.{owner} = $2 AND m.conversation_id = $1 AND m.delivery IN ('draft', 'unsaved')
            ORDER BY +m.message_id",
        /// Without a number, readers don't get the message again.
        settle: "
            UPDATE {display_messages} AS m SET delivery = $3, changed = coalesce($4, m.changed)
            WHERE m.{owner} = $5 AND m.conversation_id = $1 AND m.sequence = $2
            RETURNING {display_message_columns}",
        forward: "
            SELECT {m.display_message_columns} FROM {display_messages} AS m
            WHERE m.{owner} = $4 AND m.conversation_id = $1 AND m.sequence > $2
            ORDER BY m.sequence LIMIT $3",
        backward: "
            SELECT {m.display_message_columns} FROM {display_messages} AS m
            WHERE m.{owner} = $4 AND m.conversation_id = $1 AND m.sequence < $2
            ORDER BY m.sequence DESC LIMIT $3",
        touch: "
            UPDATE {display_messages} AS m SET changed = (
                SELECT c.last_change + 1 FROM {conversations} AS c
                WHERE c.{owner} = $3 AND c.id = $1
            )
            WHERE m.{owner} = $3 AND m.conversation_id = $1
              AND m.sequence IN (SELECT value FROM json_each($2))",
        touched: "
            UPDATE {conversations} AS c SET last_change = c.last_change + 1
            WHERE c.{owner} = $2 AND c.id = $1",
        clear: "
            UPDATE {conversations} AS c
            SET last_change = c.last_change + 1, last_removal = c.last_change + 1,
                updated_at = max(c.updated_at, $2)
            WHERE c.{owner} = $3 AND c.id = $1",
        delete_all: "
            DELETE FROM {display_messages} AS m
            WHERE m.{owner} = $2 AND m.conversation_id = $1",
    }
}

/// A change of the display messages of a conversation.
pub(super) struct Change {
    /// Counts the changes of the conversation.
    pub(super) number: i64,
    /// The first of the sequences that were taken.
    first: i64,
    time: Timestamp,
}

impl Change {
    fn of(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self { number: row.get("last_change")?, first: row.get("first")?, time: row.get("updated_at")? })
    }
}

impl Driver {
    pub(crate) async fn append_display_message(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        message: &NewDisplayMessage,
    ) -> Result<SqliteRow> {
        let usage = usage_of(&message.metadata);
        let usage: Vec<_> = usage.iter().map(|usage| (message.message_id, usage)).collect();
        let mut tx = self.begin().await?;
        let change = self.take_sequences(&mut tx, owner, conversation_id, 1).await?;
        let (new, delivery) = ((change.first, message), Delivery::Stored);
        if let Some(row) = self.insert(&mut tx, owner, conversation_id, new, delivery, &change).await? {
            self.count(&mut tx, owner, conversation_id, &usage).await?;
            tx.commit().await?;
            self.announce(conversation_id);
            return Ok(row);
        }
        // It exists: the sequence goes back.
        tx.rollback().await?;
        let mut tx = self.begin().await?;
        let stored = self.items(&mut tx, owner, conversation_id, message.message_id).await?;
        tx.commit().await?;
        let is_it = |row: &SqliteRow| row.get("item").is_ok_and(|item: i32| item == message.item);
        stored.into_iter().find(is_it).ok_or(Error::NotFound)
    }

    /// Stores the items of a message, and returns all of them in order.
    pub(crate) async fn save_items(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        items: &Items,
    ) -> Result<Vec<SqliteRow>> {
        let Items { message_id, messages, delivery, usage } = items;
        let usage: Vec<_> = usage.iter().map(|usage| (*message_id, usage)).collect();
        let mut tx = self.begin().await?;
        // A draft exists, except for the first time.
        if *delivery != Delivery::Draft && !messages.is_empty() {
            let change = self.take_new(&mut tx, owner, conversation_id, *message_id, messages.len()).await?;
            if let Some(change) = change {
                let mut stored = Vec::with_capacity(messages.len());
                for new in (change.first..).zip(messages) {
                    stored.extend(self.insert(&mut tx, owner, conversation_id, new, *delivery, &change).await?);
                }
                self.count(&mut tx, owner, conversation_id, &usage).await?;
                tx.commit().await?;
                self.announce(conversation_id);
                return Ok(stored);
            }
        }
        let mut rows = self.items(&mut tx, owner, conversation_id, *message_id).await?;
        self.count(&mut tx, owner, conversation_id, &usage).await?;
        let stored = rows.iter().map(stored_item).collect::<sqlx::Result<Vec<_>>>()?;
        let changes = items.changes(&stored);
        if let Some(changes) = &changes {
            self.change_items(&mut tx, owner, conversation_id, changes, *delivery).await?;
            rows = self.items(&mut tx, owner, conversation_id, *message_id).await?;
        }
        let is_unsettled = stored.iter().any(StoredItem::is_unsettled);
        let mut is_changed = changes.is_some();
        if *delivery == Delivery::Stored && is_unsettled {
            // An earlier call didn't know whether the agent state contains it.
            let known = [(*message_id, Delivery::Stored)];
            is_changed |= !self.settle(&mut tx, owner, conversation_id, &known).await?.is_empty();
            rows = self.items(&mut tx, owner, conversation_id, *message_id).await?;
        }
        tx.commit().await?;
        if is_changed {
            self.announce(conversation_id);
        }
        if stored.is_empty() && changes.is_none() && !self.conversation_exists(owner, conversation_id).await? {
            return Err(Error::NotFound);
        }
        Ok(rows)
    }

    async fn change_items(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        conversation_id: Uuid,
        changes: &ItemChanges<'_>,
        delivery: Delivery,
    ) -> Result<()> {
        let change = self.take_sequences(connection, owner, conversation_id, changes.added.len()).await?;
        for (sequence, new) in &changes.replaced {
            sqlx::query(&self.sql.messages.replace)
                .bind(conversation_id)
                .bind(sequence)
                .bind(new.role.as_str())
                .bind(new.content_type.as_str())
                .bind(&new.content)
                .bind(Json(&new.metadata))
                .bind(&new.tool_call_id)
                .bind(new.status.map(ToolStatus::as_str))
                .bind(change.number)
                .bind(delivery.as_stored())
                .bind(owner.key())
                .execute(&mut *connection)
                .await
                .map(drop)?;
        }
        for sequence in &changes.deleted {
            let delete = sqlx::query(&self.sql.messages.delete).bind(conversation_id).bind(sequence).bind(owner.key());
            delete.execute(&mut *connection).await.map(drop)?;
        }
        for new in (change.first..).zip(changes.added.iter().copied()) {
            self.insert(connection, owner, conversation_id, new, delivery, &change).await.map(drop)?;
        }
        if changes.is_removal {
            // The last row that stays gets the number, too, as in a rewind.
            for statement in [&self.sql.messages.removed, &self.sql.messages.touch_last] {
                let mark = sqlx::query(statement).bind(conversation_id).bind(change.number).bind(owner.key());
                mark.execute(&mut *connection).await.map(drop)?;
            }
        }
        Ok(())
    }

    /// Changes deliveries, and returns the items that readers get again.
    pub(crate) async fn settle_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        messages: &[(Uuid, Delivery)],
    ) -> Result<Vec<SqliteRow>> {
        let mut tx = self.begin().await?;
        let visible = self.settle(&mut tx, owner, conversation_id, messages).await?;
        tx.commit().await?;
        if !visible.is_empty() {
            self.announce(conversation_id);
        }
        Ok(visible)
    }

    async fn settle(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        conversation_id: Uuid,
        messages: &[(Uuid, Delivery)],
    ) -> Result<Vec<SqliteRow>> {
        let mut changing = Vec::new();
        for (message_id, delivery) in messages {
            for row in self.items(connection, owner, conversation_id, *message_id).await? {
                let item = stored_item(&row)?;
                changing.extend(settled(item.delivery, *delivery).map(|settled| (item.sequence, *delivery, settled)));
            }
        }
        let number = if changing.iter().any(|(.., settled)| *settled == Settled::Visible) {
            Some(self.take_sequences(connection, owner, conversation_id, 0).await?.number)
        } else {
            None
        };
        let mut visible = Vec::new();
        for (sequence, delivery, settled) in changing {
            let row = sqlx::query(&self.sql.messages.settle)
                .bind(conversation_id)
                .bind(sequence)
                .bind(delivery.as_stored())
                .bind(number.filter(|_| settled == Settled::Visible))
                .bind(owner.key())
                .fetch_one(&mut *connection)
                .await?;
            visible.extend(Some(row).filter(|_| settled == Settled::Visible));
        }
        Ok(visible)
    }

    pub(crate) async fn load_display_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        bound: Bound,
        limit: u32,
    ) -> Result<PageRows<SqliteRow>> {
        let (statement, sequence) = match bound {
            Bound::After(sequence) => (&self.sql.messages.forward, sequence),
            Bound::Before(sequence) => (&self.sql.messages.backward, sequence),
        };
        let query = sqlx::query(statement).bind(conversation_id).bind(sequence).bind(limit).bind(owner.key());
        let (mut page, mut is_empty) = (PageRows::new(limit, MessagePage::MAX_BYTES), true);
        let mut rows = query.fetch(&self.pool);
        while let Some(row) = rows.try_next().await? {
            is_empty = false;
            let size = size(&row)?;
            if !page.push(row, size, |_, _| false) {
                break;
            }
        }
        drop(rows);
        if is_empty && !self.conversation_exists(owner, conversation_id).await? {
            return Err(Error::NotFound);
        }
        Ok(page)
    }

    /// Gives display messages a new change number, and returns how many of them exist.
    pub(crate) async fn touch_display_messages(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        sequences: &[i64],
    ) -> Result<u64> {
        let mut tx = self.begin().await?;
        let touch = sqlx::query(&self.sql.messages.touch).bind(conversation_id).bind(Json(sequences)).bind(owner.key());
        let touched = touch.execute(&mut *tx).await?.rows_affected();
        if touched > 0 {
            let change = sqlx::query(&self.sql.messages.touched).bind(conversation_id).bind(owner.key());
            change.execute(&mut *tx).await.map(drop)?;
        }
        tx.commit().await?;
        if touched > 0 {
            self.announce(conversation_id);
        }
        Ok(touched)
    }

    pub(crate) async fn clear_display_messages(&self, owner: &Owner, conversation_id: Uuid) -> Result<u64> {
        let mut tx = self.begin().await?;
        let clear =
            sqlx::query(&self.sql.messages.clear).bind(conversation_id).bind(Timestamp::now()).bind(owner.key());
        if clear.execute(&mut *tx).await?.rows_affected() == 0 {
            return Err(Error::NotFound);
        }
        let delete = sqlx::query(&self.sql.messages.delete_all).bind(conversation_id).bind(owner.key());
        let deleted = delete.execute(&mut *tx).await?.rows_affected();
        tx.commit().await?;
        self.announce(conversation_id);
        Ok(deleted)
    }

    /// Begins a change of display messages, and takes sequences for those that are new.
    pub(super) async fn take_sequences(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        conversation_id: Uuid,
        count: usize,
    ) -> Result<Change> {
        let taken = sqlx::query(&self.sql.messages.take)
            .bind(conversation_id)
            .bind(i64::try_from(count).unwrap_or(i64::MAX))
            .bind(Timestamp::now())
            .bind(owner.key())
            .fetch_optional(connection)
            .await?;
        Ok(Change::of(&taken.ok_or(Error::NotFound)?)?)
    }

    /// As [`take_sequences`](Self::take_sequences), or nothing if an item of the message is stored.
    async fn take_new(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        conversation_id: Uuid,
        message_id: Uuid,
        count: usize,
    ) -> Result<Option<Change>> {
        let taken = sqlx::query(&self.sql.messages.take_new)
            .bind(conversation_id)
            .bind(i64::try_from(count).unwrap_or(i64::MAX))
            .bind(Timestamp::now())
            .bind(message_id)
            .bind(owner.key())
            .fetch_optional(connection)
            .await?;
        Ok(taken.as_ref().map(Change::of).transpose()?)
    }

    /// Inserts an item with its sequence, or returns nothing if it exists.
    async fn insert(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        conversation_id: Uuid,
        (sequence, message): (i64, &NewDisplayMessage),
        delivery: Delivery,
        change: &Change,
    ) -> Result<Option<SqliteRow>> {
        let insert = sqlx::query(&self.sql.messages.insert)
            .bind(conversation_id)
            .bind(sequence)
            .bind(message.message_id)
            .bind(message.item)
            .bind(message.role.as_str())
            .bind(message.content_type.as_str())
            .bind(&message.content)
            .bind(Json(&message.metadata))
            .bind(&message.tool_call_id)
            .bind(message.status.map(ToolStatus::as_str))
            .bind(change.time)
            .bind(change.number)
            .bind(delivery.as_stored())
            .bind(owner.key());
        Ok(insert.fetch_optional(connection).await?)
    }

    /// The items of a message, in order.
    async fn items(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        conversation_id: Uuid,
        message_id: Uuid,
    ) -> Result<Vec<SqliteRow>> {
        let query = sqlx::query(&self.sql.messages.items).bind(conversation_id).bind(message_id).bind(owner.key());
        Ok(query.fetch_all(connection).await?)
    }
}
