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
            VALUES ($1::{owner_type}, $2::uuid, $3::text, $4::jsonb, $5::jsonb, $6::timestamptz, $6::timestamptz)
            ON CONFLICT ({owner}, id) DO UPDATE SET title = c.title
            RETURNING {c.conversation_columns}",
        get: "
            SELECT {conversation_columns} FROM {conversations}
            WHERE {owner} = $1::{owner_type} AND id = $2::uuid",
        update: "
            UPDATE {conversations} AS c
            SET title = CASE WHEN $3::boolean THEN $4::text ELSE c.title END,
                metadata = coalesce($5::jsonb, c.metadata),
                archived_at = CASE $6::boolean
                    WHEN TRUE THEN coalesce(c.archived_at, $7::timestamptz) WHEN FALSE THEN NULL ELSE c.archived_at
                END,
                updated_at = CASE
                    WHEN $3::boolean OR $5::jsonb IS NOT NULL THEN greatest(c.updated_at, $7::timestamptz)
                    ELSE c.updated_at
                END
            WHERE c.{owner} = $1::{owner_type} AND c.id = $2::uuid
            RETURNING {c.conversation_columns}",
        delete: "
            DELETE FROM {conversations} WHERE {owner} = $1::{owner_type} AND id = $2::uuid",
    }
}

statements! {
    pub(super) struct Lists {
        active_updated: "
            SELECT {conversation_columns} FROM {conversations}
            WHERE {owner} = $1::{owner_type} AND archived_at IS NULL
              AND (updated_at, id) < ($2::timestamptz, $3::uuid)
            ORDER BY updated_at DESC, id DESC LIMIT $4::bigint",
        archived_updated: "
            SELECT {conversation_columns} FROM {conversations}
            WHERE {owner} = $1::{owner_type} AND archived_at IS NOT NULL
              AND (updated_at, id) < ($2::timestamptz, $3::uuid)
            ORDER BY updated_at DESC, id DESC LIMIT $4::bigint",
        active_created: "
            SELECT {conversation_columns} FROM {conversations}
            WHERE {owner} = $1::{owner_type} AND archived_at IS NULL AND id < $2::uuid
            ORDER BY id DESC LIMIT $3::bigint",
        archived_created: "
            SELECT {conversation_columns} FROM {conversations}
            WHERE {owner} = $1::{owner_type} AND archived_at IS NOT NULL AND id < $2::uuid
            ORDER BY id DESC LIMIT $3::bigint",
    }
}

statements! {
    pub(super) struct GroupLists {
        active_updated: "
            SELECT {c.conversation_columns} FROM {conversations} AS c
            WHERE c.{owner} IN (SELECT g.{member} FROM {group_table} AS g WHERE g.{group} = $1::{group_type})
              AND c.archived_at IS NULL AND (c.updated_at, c.id) < ($2::timestamptz, $3::uuid)
            ORDER BY c.updated_at DESC, c.id DESC LIMIT $4::bigint",
        archived_updated: "
            SELECT {c.conversation_columns} FROM {conversations} AS c
            WHERE c.{owner} IN (SELECT g.{member} FROM {group_table} AS g WHERE g.{group} = $1::{group_type})
              AND c.archived_at IS NOT NULL AND (c.updated_at, c.id) < ($2::timestamptz, $3::uuid)
            ORDER BY c.updated_at DESC, c.id DESC LIMIT $4::bigint",
        active_created: "
            SELECT {c.conversation_columns} FROM {conversations} AS c
            WHERE c.{owner} IN (SELECT g.{member} FROM {group_table} AS g WHERE g.{group} = $1::{group_type})
              AND c.archived_at IS NULL AND c.id < $2::uuid
            ORDER BY c.id DESC LIMIT $3::bigint",
        archived_created: "
            SELECT {c.conversation_columns} FROM {conversations} AS c
            WHERE c.{owner} IN (SELECT g.{member} FROM {group_table} AS g WHERE g.{group} = $1::{group_type})
              AND c.archived_at IS NOT NULL AND c.id < $2::uuid
            ORDER BY c.id DESC LIMIT $3::bigint",
    }
}

statements! {
    /// The conversations whose time is before a cutoff.
    pub(super) struct Old {
        updated: "
            SELECT {owner} AS owner, id, updated_at < $3::timestamptz AS is_old FROM {conversations}
            WHERE ({owner}, id) > ($1::{owner_type}, $2::uuid)
            ORDER BY {owner}, id LIMIT 1000",
        archived: "
            SELECT {owner} AS owner, id, coalesce(archived_at < $3::timestamptz, FALSE) AS is_old FROM {conversations}
            WHERE ({owner}, id) > ($1::{owner_type}, $2::uuid)
            ORDER BY {owner}, id LIMIT 1000",
        delete_updated: "
            DELETE FROM {conversations}
            WHERE {owner} = $1::{owner_type} AND id = $2::uuid AND updated_at < $3::timestamptz",
        delete_archived: "
            DELETE FROM {conversations}
            WHERE {owner} = $1::{owner_type} AND id = $2::uuid AND archived_at < $3::timestamptz",
    }
}

impl Driver {
    pub(crate) async fn create_conversation(&self, owner: &Owner, new: &NewConversation) -> Result<Conversation> {
        retry(|| async {
            let mut lease = self.lease(owner, new.id).await?;
            let row = sqlx::query(&self.sql.conversation_rows.create)
                .bind(owner.key())
                .bind(new.id)
                .bind(&new.title)
                .bind(Json(owner.to_json()))
                .bind(Json(&new.metadata))
                .bind(Timestamp::now())
                .fetch_one(lease.connection())
                .await?;
            lease.end();
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
            let mut lease = self.lease(owner, id).await?;
            let row = sqlx::query(&self.sql.conversation_rows.update)
                .bind(owner.key())
                .bind(id)
                .bind(changes.title.is_some())
                .bind(changes.title.as_ref().and_then(Option::as_ref))
                .bind(changes.metadata.as_ref().map(Json))
                .bind(changes.archived)
                .bind(Timestamp::now())
                .fetch_optional(lease.connection())
                .await?;
            lease.end();
            Ok(conversation(&row.ok_or(Error::NotFound)?)?)
        })
        .await
    }

    /// Returns whether there was one.
    pub(crate) async fn delete_conversation(&self, owner: &Owner, id: Uuid) -> Result<bool> {
        retry(|| async {
            let mut lease = self.lease(owner, id).await?;
            let delete = sqlx::query(&self.sql.conversation_rows.delete).bind(owner.key()).bind(id);
            let deleted = delete.execute(lease.connection()).await?.rows_affected();
            lease.end();
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

    /// Deletes conversations that are still old, each in a transaction of its own: the number of rows that go with it
    /// isn't known. Returns how many it tried and how many it deleted.
    pub(crate) async fn delete_batch(
        &self,
        old: &[(Key, Uuid, bool)],
        age: Age,
        cutoff: Timestamp,
    ) -> Result<(usize, u64)> {
        let statement = match age {
            Age::Updated => &self.sql.old.delete_updated,
            Age::Archived => &self.sql.old.delete_archived,
        };
        let mut deleted = 0;
        for (owner, id, _) in old {
            deleted += retry(|| async {
                let delete = sqlx::query(statement).bind(owner).bind(id).bind(cutoff);
                Ok(delete.execute(&self.pool).await?.rows_affected())
            })
            .await?;
        }
        Ok((old.len(), deleted))
    }
}
