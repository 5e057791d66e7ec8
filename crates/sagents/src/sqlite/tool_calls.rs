//! The statements for tool calls. A model may use the id of a call again: the newest item with it counts.

use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::Driver;
use crate::display_message::{IS_ERROR, IS_INTERRUPT};
use crate::rows::display_message;
use crate::statement::statements;
use crate::store::tool_calls::{ToolCallEdit, is_interrupt};
use crate::{ContentType, DisplayMessage, Error, Owner, Result, ToolStatus};

statements! {
    pub(super) struct ToolCalls {
        newest: "
            SELECT {m.display_message_columns} FROM {display_messages} AS m
            WHERE m.{owner} = $4 AND m.conversation_id = $1 AND m.sequence = (
                SELECT max(n.sequence) FROM {display_messages} AS n
                WHERE n.{owner} = $4 AND n.conversation_id = $1
                  AND n.tool_call_id = $2 AND n.content_type = $3
            )",
        update: "
            UPDATE {display_messages} AS m
            SET status = $3, content = $4, metadata = $5, changed = $6
            WHERE m.{owner} = $7 AND m.conversation_id = $1 AND m.sequence = $2
            RETURNING {display_message_columns}",
    }
}

impl Driver {
    pub(crate) async fn newest_item(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        content_type: ContentType,
    ) -> Result<Option<DisplayMessage>> {
        let mut connection = self.pool.acquire().await?;
        self.newest(&mut connection, owner, conversation_id, tool_call_id, content_type).await
    }

    /// Returns the call, and whether the edit applied to it.
    pub(crate) async fn edit_tool_call(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        edit: &ToolCallEdit,
    ) -> Result<(DisplayMessage, bool)> {
        let mut tx = self.begin().await?;
        let call = self.newest(&mut tx, owner, conversation_id, tool_call_id, ContentType::ToolCall).await?;
        let mut call = call.ok_or(Error::NotFound)?;
        if !edit.applies_to(&call) {
            tx.rollback().await?;
            return Ok((call, false));
        }
        let change = self.take_sequences(&mut tx, owner, conversation_id, 0).await?;
        let removed = edit.removes(&call);
        call.metadata.retain(|key, _| !removed.contains(&key.as_str()));
        call.metadata.extend(edit.metadata.clone());
        call.status = Some(edit.status);
        let call = self.update(&mut tx, owner, &call, change.number).await?;
        if let Some(metadata) = edit.of_result() {
            let result = self.newest(&mut tx, owner, conversation_id, tool_call_id, ContentType::ToolResult);
            if let Some(mut result) = result.await? {
                result.metadata.extend(metadata);
                self.update(&mut tx, owner, &result, change.number).await.map(drop)?;
            }
        }
        tx.commit().await?;
        self.announce(conversation_id);
        Ok((call, true))
    }

    /// Replaces the newest result of a call, or returns nothing if it doesn't mark an interrupt.
    pub(crate) async fn resolve_tool_result(
        &self,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        content: &str,
        is_error: bool,
    ) -> Result<Option<DisplayMessage>> {
        let mut tx = self.begin().await?;
        let result = self.newest(&mut tx, owner, conversation_id, tool_call_id, ContentType::ToolResult).await?;
        let mut result = result.ok_or(Error::NotFound)?;
        if !is_interrupt(&result) {
            tx.rollback().await?;
            return Ok(None);
        }
        let change = self.take_sequences(&mut tx, owner, conversation_id, 0).await?;
        let flags = [(IS_INTERRUPT, false), (IS_ERROR, is_error)];
        result.metadata.extend(flags.map(|(key, flag)| (key.to_owned(), flag.into())));
        content.clone_into(&mut result.content);
        let resolved = self.update(&mut tx, owner, &result, change.number).await?;
        tx.commit().await?;
        self.announce(conversation_id);
        Ok(Some(resolved))
    }

    async fn newest(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        conversation_id: Uuid,
        tool_call_id: &str,
        content_type: ContentType,
    ) -> Result<Option<DisplayMessage>> {
        let row = sqlx::query(&self.sql.tool_calls.newest)
            .bind(conversation_id)
            .bind(tool_call_id)
            .bind(content_type.as_str())
            .bind(owner.key())
            .fetch_optional(connection)
            .await?;
        Ok(row.as_ref().map(display_message).transpose()?)
    }

    /// Stores status, content and metadata of a message, and returns it as it is then.
    async fn update(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        message: &DisplayMessage,
        changed: i64,
    ) -> Result<DisplayMessage> {
        let row = sqlx::query(&self.sql.tool_calls.update)
            .bind(message.conversation_id)
            .bind(message.sequence)
            .bind(message.status.map(ToolStatus::as_str))
            .bind(&message.content)
            .bind(Json(&message.metadata))
            .bind(changed)
            .bind(owner.key())
            .fetch_one(connection)
            .await?;
        Ok(display_message(&row)?)
    }
}
