//! The statements that read what changed.

use futures_util::TryStreamExt as _;
use sqlx::Row as _;
use uuid::Uuid;

use super::Driver;
use crate::page::PageRows;
use crate::rows::{display_message, size};
use crate::statement::statements;
use crate::store::changes::LastChange;
use crate::{DisplayMessage, Owner, Result};

statements! {
    pub(super) struct Changes {
        last: "
            SELECT last_change, last_removal FROM {conversations}
            WHERE {owner} = $1::{owner_type} AND id = $2::uuid",
        /// The index has only numbers from 0 on, which the condition has to say.
        behind: "
            SELECT {display_message_columns} FROM {display_messages}
            WHERE {owner} = $1::{owner_type} AND conversation_id = $2::uuid
              AND changed > $3::bigint AND changed >= 0
            ORDER BY changed, sequence LIMIT $4::bigint",
    }
}

impl Driver {
    /// Nothing if the owner has no such conversation.
    pub(crate) async fn last_change(&self, owner: &Owner, conversation_id: Uuid) -> Result<Option<LastChange>> {
        let query = sqlx::query(&self.sql.changes.last).bind(owner.key()).bind(conversation_id);
        let Some(row) = query.fetch_optional(&self.pool).await? else {
            return Ok(None);
        };
        Ok(Some(LastChange { changed: row.try_get("last_change")?, removed: row.try_get("last_removal")? }))
    }

    /// The first display messages behind the change with this number, by change and sequence.
    pub(crate) async fn changes(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        after: i64,
        rows: u32,
        bytes: usize,
    ) -> Result<PageRows<DisplayMessage>> {
        let query = sqlx::query(&self.sql.changes.behind).bind(owner.key()).bind(conversation_id);
        let mut found = PageRows::new(rows, bytes);
        let mut rows = query.bind(after).bind(i64::from(rows)).fetch(&self.pool);
        while let Some(row) = rows.try_next().await?
            && found.push(display_message(&row)?, size(&row)?, |_, _| false)
        {}
        Ok(found)
    }
}
