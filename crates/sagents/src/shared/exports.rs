//! The parts of an export. Each database compiles this module with its own types and statements.

use futures_util::TryStreamExt as _;
use sqlx::Row as _;
use uuid::Uuid;

use super::{Connection, Driver};
use crate::export::{self, MessageRows, Record};
use crate::rows::{display_message, exported_usage};
use crate::store::exports::Sink;
use crate::{Owner, Result, State, Timestamp, serializer};

/// How many rows a statement reads. Rows are passed on as they arrive.
const PAGE: i64 = 1000;

impl Driver {
    pub(super) async fn export_agent_messages(
        &self,
        connection: &mut Connection,
        owner: &Owner,
        conversation_id: Uuid,
        epoch: i64,
        mut messages: MessageRows,
        sink: &mut impl Sink,
    ) -> Result<()> {
        let (mut last, mut is_last_page) = (-1_i32, false);
        while !is_last_page {
            let select = sqlx::query(&self.sql.exports.agent_messages).bind(owner.key()).bind(conversation_id);
            let mut rows = select.bind(epoch).bind(last).bind(PAGE).fetch(&mut *connection);
            let mut count = 0;
            while let Some(row) = rows.try_next().await? {
                last = row.try_get("position")?;
                let message = messages.read(last.into(), row.try_get_unchecked("data")?)?;
                let id = Some(row.try_get("message_id")?);
                sink.take(Record::AgentMessage { id, message: Box::new(message) }).await?;
                count += 1;
            }
            is_last_page = count < PAGE;
        }
        Ok(messages.end()?)
    }

    pub(super) async fn export_display_messages(
        &self,
        connection: &mut Connection,
        owner: &Owner,
        conversation_id: Uuid,
        sink: &mut impl Sink,
    ) -> Result<()> {
        let (mut last, mut is_last_page) = (-1_i64, false);
        while !is_last_page {
            let select = sqlx::query(&self.sql.exports.display_messages).bind(owner.key()).bind(conversation_id);
            let mut rows = select.bind(last).bind(PAGE).fetch(&mut *connection);
            let mut count = 0;
            while let Some(row) = rows.try_next().await? {
                let message = display_message(&row)?;
                last = message.sequence;
                sink.take(Record::Message(Box::new(message.into_export()))).await?;
                count += 1;
            }
            is_last_page = count < PAGE;
        }
        Ok(())
    }

    pub(super) async fn export_usage(
        &self,
        connection: &mut Connection,
        owner: &Owner,
        conversation_id: Uuid,
        sink: &mut impl Sink,
    ) -> Result<()> {
        let (mut last, mut is_last_page) = (None, false);
        while !is_last_page {
            let select = sqlx::query(&self.sql.exports.usage).bind(owner.key()).bind(conversation_id);
            let first = last.unwrap_or_default();
            let mut rows = select.bind(first).bind(PAGE).fetch(&mut *connection);
            let mut count = 0;
            while let Some(row) = rows.try_next().await? {
                let usage = exported_usage(&row)?;
                count += 1;
                if last.replace(usage.message_id) != Some(usage.message_id) {
                    sink.take(Record::Usage(usage)).await?;
                }
            }
            is_last_page = count < PAGE;
        }
        Ok(())
    }

    pub(super) async fn import_state(
        &self,
        connection: &mut Connection,
        owner: &Owner,
        conversation_id: Uuid,
        state: &State,
        count: i32,
    ) -> Result<()> {
        sqlx::query(&self.sql.imports.state)
            .bind(owner.key())
            .bind(conversation_id)
            .bind(serializer::STORED_VERSION)
            .bind(Uuid::now_v7())
            .bind(export::header(state, count)?)
            .bind(Timestamp::now())
            .execute(connection)
            .await?;
        Ok(())
    }
}
