//! The calls for the tokens that messages cost.
//!
//! The statement that stores a message counts it, once, from its metadata; see [`usage_of`](crate::usage_of). Counts stay
//! when messages are deleted, and go with the conversation.

use tracing::instrument;
use uuid::Uuid;

use super::{Store, with_driver};
use crate::rows::model_usage;
use crate::{ModelUsage, OwnerScope, Reach, Result, Timestamp, Usage};

impl Store {
    /// What the messages of a conversation cost, by model. Deleted messages are included.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`](crate::Error::NotFound) if the scope reaches no such conversation.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(gen_ai.conversation.id = %conversation_id))]
    pub async fn usage(&self, scope: &(impl OwnerScope + ?Sized), conversation_id: Uuid) -> Result<Usage> {
        let owner = self.reached(scope, conversation_id).await?;
        let models: sqlx::Result<Vec<_>> = with_driver!(self, driver => {
            driver.usage(&owner, conversation_id).await?.iter().map(model_usage).collect()
        });
        let models = models?;
        if models.is_empty() {
            self.must_exist(&owner, conversation_id).await?;
        }
        Ok(by_model(models))
    }

    /// What the messages that the scope reaches cost, by model, if they were stored at `from` or later, and before `to`.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database) if the database fails.
    #[instrument(level = "debug", target = "sagents", skip_all)]
    pub async fn usage_between(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Usage> {
        let reach = scope.reach()?;
        let models: sqlx::Result<Vec<_>> = with_driver!(self, driver => {
            let rows = match &reach {
                Reach::Owner(owner) => driver.usage_between(owner, from, to).await?,
                Reach::Group(group) => driver.usage_of_group_between(group, from, to).await?,
            };
            rows.iter().map(model_usage).collect()
        });
        Ok(by_model(models?))
    }
}

/// Databases sort texts in several ways.
fn by_model(mut models: Vec<ModelUsage>) -> Usage {
    models.sort_by(|one, other| one.model.cmp(&other.model));
    Usage { models }
}
