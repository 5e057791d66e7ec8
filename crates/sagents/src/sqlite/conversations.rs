//! The statements for conversations.

use sqlx::types::Json;
use uuid::Uuid;

use super::{Driver, retry};
use crate::rows::{conversation, key_and_age};
use crate::statement::{Statement, statements};
use crate::store::conversations::Age;
use crate::{
    Conversation, ConversationChanges, ConversationOrder, Error, Key, ListConversations, NewConversation, Owner,
    Result, Timestamp,
};

statements! {
    pub(super) struct ConversationRows {
        /// The update changes nothing: it makes `RETURNING` return an existing row.
        create: "
            INSERT INTO {conversations} AS c ({owner}, id, title, scope, metadata, inserted_at, updated_at)
            VALUES ($1, $2, $3, $4, $5, $6, $6)
            ON CONFLICT ({owner}, id) DO UPDATE SET title = c.title
            RETURNING {conversation_columns}",
        get: "
            SELECT {conversation_columns} FROM {conversations}
            WHERE {owner} = $1 AND id = $2",
        update: "
            UPDATE {conversations} AS c
            SET title = CASE WHEN $3 THEN $4 ELSE c.title END,
                metadata = coalesce($5, c.metadata),
                archived_at = CASE $6 WHEN TRUE THEN coalesce(c.archived_at, $7) WHEN FALSE THEN NULL ELSE c.archived_at END,
                updated_at = CASE WHEN $3 OR $5 IS NOT NULL THEN max(c.updated_at, $7) ELSE c.updated_at END
            WHERE c.{owner} = $1 AND c.id = $2
            RETURNING {conversation_columns}",
        delete: "
            DELETE FROM {conversations} WHERE {owner} = $1 AND id = $2",
    }
}

statements! {
    pub(super) struct Lists {
        active_updated: "
            SELECT {conversation_columns} FROM {conversations}
            WHERE {owner} = $1 AND archived_at IS NULL AND (updated_at, id) < ($2, $3)
            ORDER BY updated_at DESC, id DESC LIMIT $4",
        archived_updated: "
            SELECT {conversation_columns} FROM {conversations}
            WHERE {owner} = $1 AND archived_at IS NOT NULL AND (updated_at, id) < ($2, $3)
            ORDER BY updated_at DESC, id DESC LIMIT $4",
        /// The index is named: `SQLite` would go through the table, which is in the order of ids, too, and skip rows.
        active_created: r#"
            SELECT {conversation_columns} FROM {conversations} INDEXED BY "{prefix}conversations_active_id"
            WHERE {owner} = $1 AND archived_at IS NULL AND id < $2
            ORDER BY id DESC LIMIT $3"#,
        archived_created: r#"
            SELECT {conversation_columns} FROM {conversations} INDEXED BY "{prefix}conversations_archived_id"
            WHERE {owner} = $1 AND archived_at IS NOT NULL AND id < $2
            ORDER BY id DESC LIMIT $3"#,
    }
}

statements! {
    /// `+` takes the declared type off a member's key: a comparison with another type would use none of our indexes.
    pub(super) struct GroupLists {
        active_updated: "
            SELECT {conversation_columns} FROM {conversations} AS c
            WHERE c.{owner} IN (SELECT +g.{member} FROM {group_table} AS g WHERE g.{group} = $1)
              AND archived_at IS NULL AND (updated_at, id) < ($2, $3)
            ORDER BY updated_at DESC, id DESC LIMIT $4",
        archived_updated: "
            SELECT {conversation_columns} FROM {conversations} AS c
            WHERE c.{owner} IN (SELECT +g.{member} FROM {group_table} AS g WHERE g.{group} = $1)
              AND archived_at IS NOT NULL AND (updated_at, id) < ($2, $3)
            ORDER BY updated_at DESC, id DESC LIMIT $4",
        active_created: r#"
            SELECT {conversation_columns} FROM {conversations} AS c INDEXED BY "{prefix}conversations_active_id"
            WHERE c.{owner} IN (SELECT +g.{member} FROM {group_table} AS g WHERE g.{group} = $1)
              AND archived_at IS NULL AND id < $2
            ORDER BY id DESC LIMIT $3"#,
        archived_created: r#"
            SELECT {conversation_columns} FROM {conversations} AS c INDEXED BY "{prefix}conversations_archived_id"
            WHERE c.{owner} IN (SELECT +g.{member} FROM {group_table} AS g WHERE g.{group} = $1)
              AND archived_at IS NOT NULL AND id < $2
            ORDER BY id DESC LIMIT $3"#,
    }
}

statements! {
    /// The conversations whose time is before a cutoff.
    pub(super) struct Old {
        updated: "
            SELECT {owner} AS owner, id, updated_at < $3 AS is_old FROM {conversations}
            WHERE ({owner}, id) > ($1, $2)
            ORDER BY {owner}, id LIMIT 1000",
        archived: "
            SELECT {owner} AS owner, id, coalesce(archived_at < $3, FALSE) AS is_old FROM {conversations}
            WHERE ({owner}, id) > ($1, $2)
            ORDER BY {owner}, id LIMIT 1000",
        delete_updated: "
            DELETE FROM {conversations} WHERE {owner} = $1 AND id = $2 AND updated_at < $3",
        delete_archived: "
            DELETE FROM {conversations} WHERE {owner} = $1 AND id = $2 AND archived_at < $3",
    }
}

impl Driver {
    pub(crate) async fn create_conversation(&self, owner: &Owner, new: &NewConversation) -> Result<Conversation> {
        retry(|| async {
            let mut write = self.begin().await?;
            let row = sqlx::query(&self.sql.conversation_rows.create)
                .bind(owner.key())
                .bind(new.id)
                .bind(&new.title)
                .bind(Json(owner.to_json()))
                .bind(Json(&new.metadata))
                .bind(Timestamp::now())
                .fetch_one(&mut *write)
                .await?;
            write.commit().await?;
            Ok(conversation(&row)?)
        })
        .await
    }

    pub(crate) async fn get_conversation(&self, owner: &Owner, id: Uuid) -> Result<Conversation> {
        let query = sqlx::query(&self.sql.conversation_rows.get).bind(owner.key()).bind(id);
        let row = query.fetch_optional(&self.pool).await?.ok_or(Error::NotFound)?;
        Ok(conversation(&row)?)
    }

    pub(crate) async fn update_conversation(
        &self,
        owner: &Owner,
        id: Uuid,
        changes: &ConversationChanges,
    ) -> Result<Conversation> {
        retry(|| async {
            let mut write = self.begin().await?;
            let row = sqlx::query(&self.sql.conversation_rows.update)
                .bind(owner.key())
                .bind(id)
                .bind(changes.title.is_some())
                .bind(changes.title.as_ref().and_then(Option::as_ref))
                .bind(changes.metadata.as_ref().map(Json))
                .bind(changes.archived)
                .bind(Timestamp::now())
                .fetch_optional(&mut *write)
                .await?;
            write.commit().await?;
            Ok(conversation(&row.ok_or(Error::NotFound)?)?)
        })
        .await
    }

    /// Returns whether there was one.
    pub(crate) async fn delete_conversation(&self, owner: &Owner, id: Uuid) -> Result<bool> {
        retry(|| async {
            let mut write = self.begin().await?;
            let delete = sqlx::query(&self.sql.conversation_rows.delete).bind(owner.key()).bind(id);
            let deleted = delete.execute(&mut *write).await?.rows_affected();
            write.commit().await?;
            Ok(deleted > 0)
        })
        .await
    }

    pub(crate) async fn list(
        &self,
        owner: &Owner,
        list: &ListConversations,
        start: (Timestamp, Uuid),
        rows: i64,
    ) -> Result<Vec<Conversation>> {
        let lists = &self.sql.lists;
        let statement = match (list.order_by, list.archived) {
            (ConversationOrder::Updated, false) => &lists.active_updated,
            (ConversationOrder::Updated, true) => &lists.archived_updated,
            (ConversationOrder::Created, false) => &lists.active_created,
            (ConversationOrder::Created, true) => &lists.archived_created,
        };
        self.read_list(statement, list, owner.key(), start, rows).await
    }

    pub(crate) async fn list_of_group(
        &self,
        group: &Key,
        list: &ListConversations,
        start: (Timestamp, Uuid),
        rows: i64,
    ) -> Result<Vec<Conversation>> {
        let lists = &self.groups()?.lists;
        let statement = match (list.order_by, list.archived) {
            (ConversationOrder::Updated, false) => &lists.active_updated,
            (ConversationOrder::Updated, true) => &lists.archived_updated,
            (ConversationOrder::Created, false) => &lists.active_created,
            (ConversationOrder::Created, true) => &lists.archived_created,
        };
        self.read_list(statement, list, group, start, rows).await
    }

    async fn read_list(
        &self,
        statement: &Statement,
        list: &ListConversations,
        key: &Key,
        (updated_at, id): (Timestamp, Uuid),
        rows: i64,
    ) -> Result<Vec<Conversation>> {
        let mut query = sqlx::query(statement).bind(key);
        if list.order_by == ConversationOrder::Updated {
            query = query.bind(updated_at);
        }
        let rows = query.bind(id).bind(rows).fetch_all(&self.pool).await?;
        Ok(rows.iter().map(conversation).collect::<sqlx::Result<_>>()?)
    }

    /// The next conversations in the order of their keys, and whether each is old.
    pub(crate) async fn conversations_behind(
        &self,
        (owner, id): &(Key, Uuid),
        age: Age,
        cutoff: Timestamp,
    ) -> Result<Vec<(Key, Uuid, bool)>> {
        let statement = match age {
            Age::Updated => &self.sql.old.updated,
            Age::Archived => &self.sql.old.archived,
        };
        let query = sqlx::query(statement).bind(owner).bind(id).bind(cutoff);
        let rows = query.fetch_all(&self.pool).await?;
        Ok(rows.iter().map(key_and_age).collect::<sqlx::Result<_>>()?)
    }

    /// Deletes conversations that are still old until a thousand rows are gone with them. Returns how many it tried and
    /// how many it deleted.
    pub(crate) async fn delete_batch(
        &self,
        old: &[(Key, Uuid, bool)],
        age: Age,
        cutoff: Timestamp,
    ) -> Result<(usize, u64)> {
        // Counts the rows that cascades delete, too.
        const COUNT: &str = "SELECT total_changes()";

        let statement = match age {
            Age::Updated => &self.sql.old.delete_updated,
            Age::Archived => &self.sql.old.delete_archived,
        };
        retry(|| async {
            let mut write = self.begin().await?;
            let before: i64 = sqlx::query_scalar(COUNT).fetch_one(&mut *write).await?;
            let (mut tried, mut deleted) = (0, 0);
            for (owner, id, _) in old {
                let delete = sqlx::query(statement).bind(owner).bind(id).bind(cutoff);
                deleted += delete.execute(&mut *write).await?.rows_affected();
                tried += 1;
                let now: i64 = sqlx::query_scalar(COUNT).fetch_one(&mut *write).await?;
                if now - before >= 1000 {
                    break;
                }
            }
            write.commit().await?;
            Ok((tried, deleted))
        })
        .await
    }
}
