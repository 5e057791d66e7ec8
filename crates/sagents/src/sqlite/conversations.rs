//! The statements for conversations.

use uuid::Uuid;

use super::Driver;
use crate::Expired;
use crate::statement::statements;
use crate::{Key, Owner, Result, Timestamp};

statements! {
    pub(super) struct ConversationRows {
        set_title: "
            UPDATE {conversations} AS c SET title = $3, updated_at = max(c.updated_at, $4)
            WHERE c.{owner} = $1 AND c.id = $2",
        delete: "
            DELETE FROM {conversations} WHERE {owner} = $1 AND id = $2",
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
    /// Returns whether there was one.
    pub(crate) async fn delete_conversation(&self, owner: &Owner, id: Uuid) -> Result<bool> {
        let mut write = self.begin().await?;
        let delete = sqlx::query(&self.sql.conversation_rows.delete).bind(owner.key()).bind(id);
        let deleted = delete.execute(&mut *write).await?.rows_affected();
        write.commit().await?;
        Ok(deleted > 0)
    }

    /// Returns whether there was one.
    pub(crate) async fn set_title(&self, owner: &Owner, id: Uuid, title: &str) -> Result<bool> {
        let mut write = self.begin().await?;
        let update = sqlx::query(&self.sql.conversation_rows.set_title).bind(owner.key()).bind(id);
        let updated = update.bind(title).bind(Timestamp::now()).execute(&mut *write).await?.rows_affected();
        write.commit().await?;
        Ok(updated > 0)
    }

    /// Deletes conversations that are still old until a thousand rows are gone with them. Returns how many it tried and
    /// how many it deleted.
    pub(crate) async fn delete_batch(&self, old: &[(Key, Uuid, bool)], expired: Expired) -> Result<(usize, u64)> {
        // Counts the rows that cascades delete, too.
        const COUNT: &str = "SELECT total_changes()";

        let statement = match expired {
            Expired::UpdatedBefore(_) => &self.sql.old.delete_updated,
            Expired::ArchivedBefore(_) => &self.sql.old.delete_archived,
        };
        let mut write = self.begin().await?;
        let before: i64 = sqlx::query_scalar(COUNT).fetch_one(&mut *write).await?;
        let (mut tried, mut deleted) = (0, 0);
        for (owner, id, _) in old {
            let delete = sqlx::query(statement).bind(owner).bind(id).bind(expired.cutoff());
            deleted += delete.execute(&mut *write).await?.rows_affected();
            tried += 1;
            let now: i64 = sqlx::query_scalar(COUNT).fetch_one(&mut *write).await?;
            if now - before >= 1000 {
                break;
            }
        }
        write.commit().await?;
        Ok((tried, deleted))
    }
}
