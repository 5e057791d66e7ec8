//! The calls for the tokens that messages cost.
//!
//! The statement that stores a message counts it, once, from its metadata; see [`usage_of`](crate::usage_of). Counts stay
//! when messages are deleted, and go with the conversation.

use tracing::instrument;
use uuid::Uuid;

use super::{Store, with_driver};
use crate::rows::model_usage;
use crate::{ModelUsage, Owner, OwnerScope, Reach, Result, Timestamp, Usage, UsageOf};

impl Store {
    /// The tokens that messages cost, by model: those of a conversation, or those of all conversations that the scope
    /// reaches within a period. Deleted messages are included.
    ///
    /// ```
    /// use sagents::{OwnerScope, Store, Timestamp, Usage};
    /// use uuid::Uuid;
    ///
    /// # async fn example(store: Store, scope: impl OwnerScope, conversation_id: Uuid) -> sagents::Result<()> {
    /// let of_conversation = store.usage(&scope, conversation_id).await?;
    /// let ever = store.usage(&scope, Timestamp::MIN..Timestamp::MAX).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`](crate::Error::NotFound) if the scope reaches no such conversation.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix()))]
    pub async fn usage(&self, scope: &(impl OwnerScope + ?Sized), of: impl Into<UsageOf>) -> Result<Usage> {
        match of.into() {
            UsageOf::Conversation(id) => self.usage_of_conversation(&self.owner_of(scope, id).await?, id).await,
            UsageOf::Period { from, to } => self.usage_between(&scope.reach()?, from, to).await,
        }
    }

    async fn usage_of_conversation(&self, owner: &Owner, conversation_id: Uuid) -> Result<Usage> {
        let models: sqlx::Result<Vec<_>> = with_driver!(self, driver => {
            driver.usage(owner, conversation_id).await?.iter().map(model_usage).collect()
        });
        let models = models?;
        if models.is_empty() {
            self.must_exist(owner, conversation_id).await?;
        }
        Ok(by_model(models))
    }

    async fn usage_between(&self, reach: &Reach, from: Timestamp, to: Timestamp) -> Result<Usage> {
        let models: sqlx::Result<Vec<_>> = with_driver!(self, driver => {
            let rows = match reach {
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
