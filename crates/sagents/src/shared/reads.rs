//! Reads. Each database compiles this module with its own types and statements.

use futures_util::TryStreamExt as _;
use sqlx::Row as _;
use uuid::Uuid;

use super::{Driver, Row};
use crate::page::PageRows;
use crate::rows::{conversation, display_message, key_and_age, run, size};
use crate::store::changes::LastChange;
use crate::{Conversation, DisplayMessage, Expired, Key, Owner, Result, Run, Timestamp};

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

    /// The next conversations in the order of their keys, and whether each is old.
    pub(crate) async fn conversations_behind(
        &self,
        (owner, id): &(Key, Uuid),
        expired: Expired,
    ) -> Result<Vec<(Key, Uuid, bool)>> {
        let statement = match expired {
            Expired::UpdatedBefore(_) => &self.sql.old.updated,
            Expired::ArchivedBefore(_) => &self.sql.old.archived,
        };
        let query = sqlx::query(statement).bind(owner).bind(id).bind(expired.cutoff());
        let rows = query.fetch_all(&self.pool).await?;
        Ok(rows.iter().map(key_and_age).collect::<sqlx::Result<_>>()?)
    }

    /// The members of a group that have a conversation with this id; two if there are more.
    pub(crate) async fn owners_in_group(&self, group: &Key, conversation_id: Uuid) -> Result<Vec<Key>> {
        let query = sqlx::query_scalar(&self.groups()?.members.owners).bind(conversation_id).bind(group);
        Ok(query.fetch_all(&self.pool).await?)
    }

    pub(crate) async fn conversation_exists(&self, owner: &Owner, conversation_id: Uuid) -> Result<bool> {
        let query = sqlx::query(&self.sql.conversations.exists).bind(conversation_id).bind(owner.key());
        Ok(query.fetch_optional(&self.pool).await?.is_some())
    }

    pub(crate) async fn existing_conversation(&self, owner: &Owner, id: Uuid) -> Result<Option<Conversation>> {
        let query = sqlx::query(&self.sql.branches.existing).bind(id).bind(owner.key());
        let row = query.fetch_optional(&self.pool).await?;
        Ok(row.as_ref().map(conversation).transpose()?)
    }

    pub(crate) async fn unsettled_messages(&self, owner: &Owner, conversation_id: Uuid) -> Result<Vec<Row>> {
        let query = sqlx::query(&self.sql.messages.unsettled).bind(conversation_id).bind(owner.key());
        Ok(query.fetch_all(&self.pool).await?)
    }

    pub(crate) async fn get_run(&self, owner: &Owner, conversation_id: Uuid) -> Result<Option<Run>> {
        let query = sqlx::query(&self.sql.runs.current).bind(conversation_id).bind(owner.key());
        let row = query.fetch_optional(&self.pool).await?;
        Ok(row.as_ref().map(run).transpose()?)
    }

    pub(crate) async fn unfinished_runs(&self, owner: &Owner) -> Result<Vec<Run>> {
        let query = sqlx::query(&self.sql.runs.unfinished).bind(owner.key());
        let rows = query.fetch_all(&self.pool).await?;
        Ok(rows.iter().map(run).collect::<sqlx::Result<_>>()?)
    }

    pub(crate) async fn unfinished_runs_of_group(&self, group: &Key) -> Result<Vec<Run>> {
        let query = sqlx::query(&self.groups()?.runs.unfinished).bind(group);
        let rows = query.fetch_all(&self.pool).await?;
        Ok(rows.iter().map(run).collect::<sqlx::Result<_>>()?)
    }

    pub(crate) async fn usage(&self, owner: &Owner, conversation_id: Uuid) -> Result<Vec<Row>> {
        let query = sqlx::query(&self.sql.usage.of_conversation).bind(conversation_id).bind(owner.key());
        Ok(query.fetch_all(&self.pool).await?)
    }

    pub(crate) async fn usage_between(&self, owner: &Owner, from: Timestamp, to: Timestamp) -> Result<Vec<Row>> {
        let query = sqlx::query(&self.sql.usage.between).bind(from).bind(to).bind(owner.key());
        Ok(query.fetch_all(&self.pool).await?)
    }

    pub(crate) async fn usage_of_group_between(&self, group: &Key, from: Timestamp, to: Timestamp) -> Result<Vec<Row>> {
        let query = sqlx::query(&self.groups()?.usage.between).bind(from).bind(to).bind(group);
        Ok(query.fetch_all(&self.pool).await?)
    }
}
