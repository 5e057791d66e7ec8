//! Reads of agent states. Each database compiles this module with its own types and statements.

use uuid::Uuid;

use super::{Connection, Driver, Row};
use crate::rows::{self, Columns as _};
use crate::store::states::{StateReader, UnreadableReader};
use crate::{Error, Owner, Result, Timestamp, UnreadableState};

impl Driver {
    pub(crate) async fn load_agent_state(&self, owner: &Owner, conversation_id: Uuid) -> Result<StateReader> {
        let mut reader = StateReader::default();
        sqlx::query(&self.sql.states.load)
            .bind(conversation_id)
            .bind(owner.key())
            .try_map(|row: Row| reader.push(conversation_id, &row))
            .fetch_all(&self.pool)
            .await?;
        Ok(reader)
    }

    /// The stored header, if there is one.
    pub(crate) async fn load_header(&self, owner: &Owner, conversation_id: Uuid) -> Result<Option<Vec<u8>>> {
        let query = sqlx::query(&self.sql.states.header).bind(conversation_id).bind(owner.key());
        let row = query.fetch_optional(&self.pool).await?.ok_or(Error::NotFound)?;
        let revision: Option<i64> = row.at(1)?;
        Ok(revision.map(|_| row.bytes(0).map(<[u8]>::to_vec)).transpose()?)
    }

    pub(crate) async fn list_unreadable_states(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<Vec<UnreadableState>> {
        let query = sqlx::query(&self.sql.states.list_unreadable).bind(conversation_id).bind(owner.key());
        let states = query.fetch_all(&self.pool).await?;
        Ok(states.iter().map(rows::unreadable_state).collect::<sqlx::Result<_>>()?)
    }

    pub(crate) async fn load_unreadable_state(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        epoch: i64,
    ) -> Result<UnreadableReader> {
        let mut reader = UnreadableReader::default();
        sqlx::query(&self.sql.states.load_unreadable)
            .bind(conversation_id)
            .bind(epoch)
            .bind(owner.key())
            .try_map(|row: Row| reader.push(&row))
            .fetch_all(&self.pool)
            .await?;
        Ok(reader)
    }

    /// Keeps the header of the current state with its epoch. The messages of the epoch stay where they are.
    pub(super) async fn set_aside(
        &self,
        connection: &mut Connection,
        owner: &Owner,
        conversation_id: Uuid,
    ) -> Result<()> {
        let aside =
            sqlx::query(&self.sql.states.set_aside).bind(conversation_id).bind(Timestamp::now()).bind(owner.key());
        aside.execute(connection).await?;
        Ok(())
    }
}
