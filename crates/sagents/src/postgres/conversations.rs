//! The statements for conversations.

use uuid::Uuid;

use super::{Driver, retry};
use crate::Expired;
use crate::statement::statements;
use crate::{Key, Owner, Result, Timestamp};

statements! {
    pub(super) struct ConversationRows {
        set_title: "
            UPDATE {conversations} AS c SET title = $3::text, updated_at = greatest(c.updated_at, $4::timestamptz)
            WHERE c.{owner} = $1::{owner_type} AND c.id = $2::uuid",
        delete: "
            DELETE FROM {conversations} WHERE {owner} = $1::{owner_type} AND id = $2::uuid",
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

    /// Returns whether there was one.
    pub(crate) async fn set_title(&self, owner: &Owner, id: Uuid, title: &str) -> Result<bool> {
        retry(|| async {
            let mut lease = self.lease(owner, id).await?;
            let update = sqlx::query(&self.sql.conversation_rows.set_title).bind(owner.key()).bind(id);
            let update = update.bind(title).bind(Timestamp::now());
            let updated = update.execute(lease.connection()).await?.rows_affected();
            lease.end();
            Ok(updated > 0)
        })
        .await
    }

    /// Deletes conversations that are still old, each in a transaction of its own: the number of rows that go with it
    /// isn't known. Returns how many it tried and how many it deleted.
    pub(crate) async fn delete_batch(&self, old: &[(Key, Uuid, bool)], expired: Expired) -> Result<(usize, u64)> {
        let statement = match expired {
            Expired::UpdatedBefore(_) => &self.sql.old.delete_updated,
            Expired::ArchivedBefore(_) => &self.sql.old.delete_archived,
        };
        let mut deleted = 0;
        for (owner, id, _) in old {
            deleted += retry(|| async {
                let delete = sqlx::query(statement).bind(owner).bind(id).bind(expired.cutoff());
                Ok(delete.execute(&self.pool).await?.rows_affected())
            })
            .await?;
        }
        Ok((old.len(), deleted))
    }
}
